"""Random numbers of compiled loops, by the generator SplitMix64.

The state of the generator is an integer of 64 bits, which advances by :data:`GOLDEN`. :func:`mix`
turns a state into 64 random bits. Each item of a loop can thus start from a separate state, so that
results do not depend on the threads that compute them.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt._compiled._special import Real, jit, jit_inlined, lit, log, polynomial
from skvt.typing import Array, IndexArray

# Constants of SplitMix64: the step of the state, and the factors of its finaliser.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
# Numbers of bits by which states are shifted, and the mask of the lowest 24 bits.
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_S40 = np.uint64(40)
_S16 = np.uint64(16)
_LOW_24 = np.uint64(0xFFFFFF)
# Maximum number of proposals for one variate. At most 22 % of the proposals are refused on average,
# but all of them if a parameter is NaN.
MAX_TRIES = 100
# A binomial variate with fewer expected successes is drawn by sequential search.
_MIN_SUCCESSES = 10.0
# Coefficients of the Taylor series of cos(x) and sin(x) / x in powers of x**2, highest power first.
_COSINE = tuple((-1) ** i / math.factorial(2 * i) for i in range(9, -1, -1))
_SINE = tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(8, -1, -1))


def mix_states(state: Any) -> Any:
    """Apply the finaliser of SplitMix64 to a state or an array of states.

    Each bit of the result depends on all bits of the state.
    """
    z = np.uint64(state)
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


#: Compiled version of :func:`mix_states`.
mix = jit(mix_states)


@jit_inlined
def uniform(bits: np.uint64) -> np.float64:
    """Return a float64 in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit_inlined
def uniform_float32(bits: np.uint64) -> np.float32:
    """Return a float32 in [0, 1) from the upper 24 bits."""
    return np.float32(np.int32(bits >> _S40)) * np.float32(1.0 / 16777216.0)


@jit_inlined
def normal_pair(state: np.uint64) -> tuple[float, float, np.uint64]:
    """Return two normal variates by the polar method, and the new state."""
    for _ in range(MAX_TRIES):
        state += GOLDEN
        x = 2.0 * uniform(mix(state)) - 1.0
        state += GOLDEN
        y = 2.0 * uniform(mix(state)) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            factor = np.sqrt(-2.0 * log(square) / square)
            return x * factor, y * factor, state
    # All proposals are refused in one of 10^66 calls.
    return 0.0, 0.0, state


@jit_inlined
def uniform_pair(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Return two float32 in (0, 1], each from 24 of the bits."""
    one, step = np.float32(1.0), np.float32(1.0 / 16777216.0)
    first = (np.float32(np.int32(bits >> _S40)) + one) * step
    return first, (np.float32(np.int32((bits >> _S16) & _LOW_24)) + one) * step


@jit_inlined
def make_normals(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Return two float32 normal variates by the Box-Muller method."""
    u, turn = uniform_pair(bits)
    turn -= lit(u, 0.5)
    radius = np.sqrt(lit(u, -2.0) * log(u))
    # The angle is 2 pi turn, at most pi in absolute value. The series in the squared angle give its
    # cosine, and its sine divided by the angle.
    squared_angle = turn * turn * lit(u, 4.0 * math.pi**2)
    cosine, sine_ratio = polynomial(squared_angle, _COSINE), polynomial(squared_angle, _SINE)
    return radius * cosine, radius * sine_ratio * turn * lit(u, 2.0 * math.pi)


@jit_inlined
def fill_normals(state: np.uint64, out: NDArray[np.float32]) -> None:
    """Fill ``out`` with float32 normal variates.

    Variates are made in pairs. If the size of ``out`` is odd, its last entry does not change.
    """
    half = out.size // 2
    for j in range(half):
        out[j], out[half + j] = make_normals(mix(state + GOLDEN * np.uint64(j + 1)))


@jit_inlined
def propose_gamma(a: Real, normal: Real, test: Real) -> tuple[Real, np.uint8]:
    """Propose a gamma variate of shape a + 1; return it and whether it is doubtful.

    The method is that of Marsaglia and Tsang (2000). ``normal`` is a standard normal variate, and
    the proposal is d v with d = a + 2/3 and v = (1 + normal / sqrt(9 d))^3. ``test`` is a uniform
    variate, with which a cheap test accepts most proposals at once. The other proposals are
    doubtful, and need the exact test of :func:`_test_gamma`. The result has the precision of a.
    """
    z = normal + lit(a, 0.0)
    d = a + lit(a, 2.0 / 3.0)
    root = lit(a, 1.0) + z / np.sqrt(lit(a, 9.0) * d)
    threshold = lit(a, 1.0) - lit(a, 0.0331) * z * z * z * z
    return d * root * root * root, np.uint8(root <= lit(a, 0.0)) | np.uint8(test > threshold)


@jit_inlined
def _test_gamma(a: float, normal: float, test: float) -> tuple[np.uint8, float]:
    """Apply the exact test to the proposal of :func:`propose_gamma`, in float64.

    Return whether the proposal is accepted, and the proposal.
    """
    d, z = a + 2.0 / 3.0, normal
    root = 1.0 + z / np.sqrt(9.0 * d)
    # The minimum keeps log(v) finite. Proposals with smaller roots are refused at the end.
    v = max(root, 1e-3) ** 3
    accepted = log(test) < 0.5 * z * z + d - d * v + d * log(v)
    return np.uint8(accepted & (root > 1e-3)), d * v


@jit_inlined
def draw_gamma(a: float, state: np.uint64) -> tuple[float, np.uint64]:
    """Draw a gamma variate of shape a + 1 and rate 1; return it and the new state.

    The variate is NaN if a is NaN.
    """
    for _ in range(MAX_TRIES):
        normal, _, state = normal_pair(state)
        state += GOLDEN
        accepted, value = _test_gamma(a, normal, 1.0 - uniform(mix(state)))
        if accepted:
            return value, state
    return np.nan, state


@jit
def draw_binomial(n: float, p: float, state: np.uint64) -> tuple[float, np.uint64]:
    """Draw a binomial variate of n trials of probability p; return it and the new state.

    n and p are float64, and n is a whole number. The variate is the number of n uniform numbers
    that are below p. Each round of the method of Ahrens and Dieter (1974) draws x, the i-th
    smallest of the numbers, which is a beta variate. If x is at most p, the i smallest numbers
    are below p, and each of the n - i larger numbers is below p with probability (p - x) / (1 - x).
    Otherwise the numbers below p are among the i - 1 numbers below x, each of which is above p with
    probability (x - p) / x. With i about n p, a round leaves about sqrt(n p) expected successes.
    After a few rounds so few are left that a sequential search is fast.
    """
    # The variate is ``successes`` plus ``sign`` times a binomial variate of the present n and p.
    successes, sign = 0.0, 1.0
    for _ in range(MAX_TRIES):
        # Count failures instead of successes if these are fewer.
        if p > 0.5:
            successes = successes + sign * n
            sign = -sign
            p = 1.0 - p
        if n * p < _MIN_SUCCESSES:
            break
        i = np.floor((n + 1.0) * p)
        below, state = draw_gamma(i - 1.0, state)
        above, state = draw_gamma(n - i, state)
        x = below / (below + above)
        if x <= p:
            successes, n, p = successes + sign * i, n - i, (p - x) / (1.0 - x)
        else:
            successes = successes + sign * (i - 1.0)
            sign = -sign
            n = i - 1.0
            p = (x - p) / x
    state += GOLDEN
    # The sequential search subtracts the probabilities of 0, 1, 2, ... successes from a uniform
    # number until the next probability is larger than the remainder.
    remainder = uniform(mix(state))
    n_found = 0.0
    odds = p / (1.0 - p)
    probability = np.exp(n * np.log1p(-p))
    for _ in range(MAX_TRIES):
        if remainder < probability or n_found >= n:
            break
        remainder -= probability
        n_found += 1.0
        probability *= odds * (n - n_found + 1.0) / n_found
    return successes + sign * n_found, state


@jit_inlined
def resample(weights: Array, offset: float, parents: IndexArray) -> None:
    """Resample particles systematically; write the index of a parent for each particle.

    ``weights`` (P,) are the weights of the particles, which need not sum to 1, and ``offset`` is
    a random number in [0, 1). ``parents`` (P,) is overwritten.
    """
    n_particles = weights.size
    step = weights.sum() / n_particles
    cumulative, parent = 0.0, -1
    for i in range(n_particles):
        target = (i + offset) * step
        while (cumulative <= target and parent < n_particles - 1) or parent < 0:
            parent += 1
            cumulative += weights[parent]
        parents[i] = parent


@jit_inlined
def draw_gammas_exactly(
    n: int, doubles: Array, bit_scratch: NDArray[np.uint64], int_scratch: IndexArray
) -> None:
    """Draw n gamma variates of rate 1, each from the first proposal that the exact test accepts.

    The first two proposals are made and tested in loops over all open entries, which the compiler
    vectorises. An entry is open until a proposal is accepted for it. The few entries that are open
    after two proposals are drawn one by one.

    Rows 0 to 2 of ``doubles`` (5, N) are the shapes less 1, the normal variates of the first
    proposals, which are overwritten, and the gamma variates, which are written. Row 0 of
    ``bit_scratch`` (2, N) has random bits; the second number of ``uniform_pair`` of these bits is
    the test of the first proposal. The other rows of ``doubles`` and ``bit_scratch`` and the first
    two rows of ``int_scratch`` are scratch. The first n columns of all arrays are used.
    """
    shapes, normals, out, proposals = doubles[0], doubles[1], doubles[2], doubles[3]
    open_shapes, bits, open_bits = doubles[4], bit_scratch[0], bit_scratch[1]
    open_entries, is_accepted = int_scratch[0], int_scratch[1]
    for j in range(n):
        open_entries[j], open_shapes[j], open_bits[j] = j, shapes[j], bits[j]
    n_open: Any = n
    for _ in range(2):
        for j in range(n_open):
            test = np.float64(uniform_pair(open_bits[j])[1])
            is_accepted[j], proposals[j] = _test_gamma(open_shapes[j], normals[j], test)
        # Write all proposals, and move the entries that stay open to the front.
        n_refused: Any = 0
        for j in range(n_open):
            out[open_entries[j]] = proposals[j]
            open_entries[n_refused] = open_entries[j]
            open_shapes[n_refused], open_bits[n_refused] = open_shapes[j], open_bits[j]
            n_refused += 1 - is_accepted[j]
        n_open = n_refused
        # Draw the normal variates and the bits of the next proposals.
        for j in range(n_open):
            normals[j] = make_normals(mix(open_bits[j] + GOLDEN))[0]
            open_bits[j] = mix(open_bits[j] - GOLDEN)
    for j in range(n_open):
        i = open_entries[j]
        out[i], _ = draw_gamma(shapes[i], mix(bits[i]))
