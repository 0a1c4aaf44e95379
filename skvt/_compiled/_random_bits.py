"""Random numbers of compiled loops, by the generator SplitMix64.

The state of the generator is an integer of 64 bits. It advances by adding :data:`GOLDEN`, and
:func:`mix` turns a state into 64 random bits. Each item of a loop can thus start from a separate
state, so that results do not depend on the threads that compute them. Functions that draw a random
number from a *state* advance and return it; functions that take ``bits`` turn random bits into
numbers.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt._compiled._special import Real, jit, jit_inlined, lit, log, polynomial
from skvt.typing import Array, IndexArray

# Constants of SplitMix64: the step of the state, and the factors of its finaliser, `mix_states`.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_FACTOR_2 = np.uint64(0x94D049BB133111EB)
# Numbers of bits by which states are shifted, and the mask of the lowest 24 bits. They are uint64,
# since uint64 combined with signed integers becomes float64.
_SHIFT_30 = np.uint64(30)
_SHIFT_27 = np.uint64(27)
_SHIFT_31 = np.uint64(31)
_SHIFT_40 = np.uint64(40)
_SHIFT_16 = np.uint64(16)
_LOWEST_24_BITS = np.uint64(0xFFFFFF)
# Maximum number of proposals for one variate. At most 22 % of the proposals are refused on average,
# but all of them are refused if a parameter is NaN.
MAX_TRIES = 100
# Binomial variates with fewer expected successes are drawn by sequential search.
_MIN_EXPECTED_SUCCESSES = 10.0
# Coefficients of the Taylor series of cos(x) and sin(x) / x in powers of x**2, highest power first.
_COS_SERIES = tuple((-1) ** i / math.factorial(2 * i) for i in range(9, -1, -1))
_SIN_SERIES = tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(8, -1, -1))


def mix_states(state: Any) -> Any:
    """Apply the finaliser of SplitMix64 to a state or an array of states.

    Each bit of the result depends on all bits of the state.
    """
    z = np.uint64(state)
    z = (z ^ (z >> _SHIFT_30)) * _MIX_FACTOR_1
    z = (z ^ (z >> _SHIFT_27)) * _MIX_FACTOR_2
    return z ^ (z >> _SHIFT_31)


#: Compiled version of :func:`mix_states`.
mix = jit(mix_states)


@jit_inlined
def uniform(bits: np.uint64) -> np.float64:
    """Return a float64 in [0, 1) from the upper 53 bits."""
    # The factor is 2**-53.
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit_inlined
def make_uniform_float32(bits: np.uint64) -> np.float32:
    """Return a float32 in [0, 1) from the upper 24 bits."""
    # The factor is 2**-24.
    return np.float32(np.int32(bits >> _SHIFT_40)) * np.float32(1.0 / 16777216.0)


@jit_inlined
def draw_normal_pair(state: np.uint64) -> tuple[float, float, np.uint64]:
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
def make_uniform_pair(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Return two float32 in (0, 1], each from 24 of the bits."""
    # The step between neighbouring numbers is 2**-24.
    one, step = np.float32(1.0), np.float32(1.0 / 16777216.0)
    first = (np.float32(np.int32(bits >> _SHIFT_40)) + one) * step
    return first, (np.float32(np.int32((bits >> _SHIFT_16) & _LOWEST_24_BITS)) + one) * step


@jit_inlined
def make_normals(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Return two float32 normal variates by the Box-Muller method."""
    u, turns = make_uniform_pair(bits)
    # The angle is ``turns`` full turns, or 2 pi times ``turns``, at most pi in absolute value.
    turns -= lit(u, 0.5)
    radius = np.sqrt(lit(u, -2.0) * log(u))
    # The series in the squared angle give the cosine, and the sine divided by the angle.
    squared_angle = turns * turns * lit(u, 4.0 * math.pi**2)
    cosine = polynomial(squared_angle, _COS_SERIES)
    sine_ratio = polynomial(squared_angle, _SIN_SERIES)
    return radius * cosine, radius * sine_ratio * turns * lit(u, 2.0 * math.pi)


@jit_inlined
def fill_normals(state: np.uint64, out: NDArray[np.float32]) -> None:
    """Fill ``out`` with float32 normal variates.

    Variates are made in pairs. If the size of ``out`` is odd, its last entry does not change.
    """
    half = out.size // 2
    for j in range(half):
        out[j], out[half + j] = make_normals(mix(state + GOLDEN * np.uint64(j + 1)))


@jit_inlined
def propose_gamma(a: Real, normal: Real, test_number: Real) -> tuple[Real, np.uint8]:
    """Propose a gamma variate of shape a + 1 and rate 1; return it and whether it is doubtful.

    This is the method of Marsaglia and Tsang (2000). ``normal`` is a standard normal variate, and
    the proposal is d v with d = a + 2/3 and v = (1 + normal / sqrt(9 d))^3. ``test_number`` is a
    uniform variate, with which a cheap test accepts most proposals. The other proposals are
    doubtful: they need the exact test of :func:`_test_gamma`. The proposal has the precision of a.
    """
    # The sum with 0 converts ``normal`` to the precision of a.
    z = normal + lit(a, 0.0)
    d = a + lit(a, 2.0 / 3.0)
    # v is root**3.
    root = lit(a, 1.0) + z / np.sqrt(lit(a, 9.0) * d)
    threshold = lit(a, 1.0) - lit(a, 0.0331) * z * z * z * z
    return d * root * root * root, np.uint8(root <= lit(a, 0.0)) | np.uint8(test_number > threshold)


@jit_inlined
def _test_gamma(a: float, normal: float, test_number: float) -> tuple[np.uint8, float]:
    """Apply the exact test to the proposal of :func:`propose_gamma`, in float64.

    Return whether the proposal is accepted, and the proposal.
    """
    d, z = a + 2.0 / 3.0, normal
    root = 1.0 + z / np.sqrt(9.0 * d)
    # The lower limit keeps log(v) finite. Proposals with smaller roots are refused below.
    v = max(root, 1e-3) ** 3
    is_accepted = log(test_number) < 0.5 * z * z + d - d * v + d * log(v)
    return np.uint8(is_accepted & (root > 1e-3)), d * v


@jit_inlined
def draw_gamma(a: float, state: np.uint64) -> tuple[float, np.uint64]:
    """Draw a gamma variate of shape a + 1 and rate 1; return it and the new state.

    The variate is NaN if a is NaN.
    """
    for _ in range(MAX_TRIES):
        normal, _, state = draw_normal_pair(state)
        state += GOLDEN
        is_accepted, variate = _test_gamma(a, normal, 1.0 - uniform(mix(state)))
        if is_accepted:
            return variate, state
    return np.nan, state


@jit
def draw_binomial(n: float, p: float, state: np.uint64) -> tuple[float, np.uint64]:
    """Draw a binomial variate of n trials of probability p; return it and the new state.

    n and p are float64, and n is a whole number. The variate is the number of n uniform numbers in
    [0, 1) that are below p. Each round of the method of Ahrens and Dieter (1974) draws x, the i-th
    smallest of these numbers, which is a beta variate. A binomial variate of fewer trials remains:

    - if x <= p, the i smallest numbers are below p, and each of the n - i larger numbers is below p
      with probability (p - x) / (1 - x);
    - if x > p, each of the i - 1 numbers below x is above p with probability (x - p) / x.

    With i about n p, the expected value of the remaining variate is about sqrt(n p). After a few
    rounds it is so small that a sequential search is fast.
    """
    # In each round, the result is ``successes + sign * y`` with a binomial variate y of the present
    # n and p.
    successes, sign = 0.0, 1.0
    for _ in range(MAX_TRIES):
        # Count failures instead of successes if there are fewer failures.
        if p > 0.5:
            successes = successes + sign * n
            sign = -sign
            p = 1.0 - p
        if n * p < _MIN_EXPECTED_SUCCESSES:
            break
        i = np.floor((n + 1.0) * p)
        # x has the distribution Beta(i, n + 1 - i), by gamma variates of these two shapes.
        gamma_below, state = draw_gamma(i - 1.0, state)
        gamma_above, state = draw_gamma(n - i, state)
        x = gamma_below / (gamma_below + gamma_above)
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
    n_successes = 0.0
    odds = p / (1.0 - p)
    probability = np.exp(n * np.log1p(-p))
    for _ in range(MAX_TRIES):
        if remainder < probability or n_successes >= n:
            break
        remainder -= probability
        n_successes += 1.0
        probability *= odds * (n - n_successes + 1.0) / n_successes
    return successes + sign * n_successes, state


@jit_inlined
def resample(weights: Array, offset: float, parents: IndexArray) -> None:
    """Resample P particles systematically; write the index of the parent of each new particle.

    ``weights`` (P,) are the weights of the old particles, which need not sum to 1, and ``offset``
    is a random number in [0, 1). The parents are the old particles at P equal steps of the
    cumulative weight. They are written to ``parents`` (P,).
    """
    n_particles = weights.size
    step = weights.sum() / n_particles
    cumulative, parent = 0.0, -1
    for i in range(n_particles):
        target = (i + offset) * step
        # Go on until the cumulative weight exceeds the target, but at least to the first and at
        # most to the last particle, whatever the rounding errors.
        while (cumulative <= target and parent < n_particles - 1) or parent < 0:
            parent += 1
            cumulative += weights[parent]
        parents[i] = parent


@jit_inlined
def draw_gammas_exactly(
    n: int, doubles: Array, bit_scratch: NDArray[np.uint64], int_scratch: IndexArray
) -> None:
    """Draw n gamma variates of rate 1, each from the first proposal that the exact test accepts.

    An entry is *open* until a proposal for its variate is accepted. The first two proposals are
    made and tested in loops over all open entries, which the compiler vectorises. The few entries
    that are open after two proposals are drawn one by one.

    The first n columns of all arrays are used. The rows of ``doubles`` (5, N) are

    0. the shapes minus 1;
    1. the normal variates of the first proposals, which are overwritten;
    2. the gamma variates, which are written;
    3. and 4. scratch.

    Row 0 of ``bit_scratch`` (2, N) has random bits, from which ``make_uniform_pair`` makes the
    number that tests the first proposal, its second number. The other row, and the first two rows
    of ``int_scratch``, are scratch.
    """
    shapes, normals, out, proposals = doubles[0], doubles[1], doubles[2], doubles[3]
    open_shapes, bits, open_bits = doubles[4], bit_scratch[0], bit_scratch[1]
    open_entries, is_accepted = int_scratch[0], int_scratch[1]
    for j in range(n):
        open_entries[j], open_shapes[j], open_bits[j] = j, shapes[j], bits[j]
    n_open: Any = n
    for _ in range(2):
        for j in range(n_open):
            test_number = np.float64(make_uniform_pair(open_bits[j])[1])
            is_accepted[j], proposals[j] = _test_gamma(open_shapes[j], normals[j], test_number)
        # Write all proposals, and move the entries that stay open to the front.
        n_refused: Any = 0
        for j in range(n_open):
            out[open_entries[j]] = proposals[j]
            open_entries[n_refused] = open_entries[j]
            open_shapes[n_refused], open_bits[n_refused] = open_shapes[j], open_bits[j]
            n_refused += 1 - is_accepted[j]
        n_open = n_refused
        # Draw the normal variates and the bits of the next proposals. The old bits serve as the
        # state; different steps give independent numbers.
        for j in range(n_open):
            normals[j] = make_normals(mix(open_bits[j] + GOLDEN))[0]
            open_bits[j] = mix(open_bits[j] - GOLDEN)
    # Draw the entries that are still open by further proposals.
    for j in range(n_open):
        i = open_entries[j]
        out[i], _ = draw_gamma(shapes[i], mix(bits[i]))
