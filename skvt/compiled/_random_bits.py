"""SplitMix64, for compiled loops whose random numbers must not depend on threads.

A state advances by :data:`GOLDEN`; :func:`mix` turns it into 64 random bits.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.compiled._special import Real, jit, lit, log, part, polynomial
from skvt.typing import Array, IndexArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_S40 = np.uint64(40)
_S16 = np.uint64(16)
_LOW_24 = np.uint64(0xFFFFFF)
# Maximum number of proposals. At most 22 % of them are refused, but all if a parameter is NaN.
MOST_TRIES = 100
# Below this number of expected successes, a binomial variate is found by sequential search.
_FEW = 10.0
# Taylor coefficients of cos(x) and sin(x) / x in powers of x**2, highest power first.
_COSINE = tuple((-1) ** i / math.factorial(2 * i) for i in range(9, -1, -1))
_SINE = tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(8, -1, -1))


def mixed(state: Any) -> Any:
    """Apply the finaliser of SplitMix64 to a state or an array: each bit depends on all bits."""
    z = np.uint64(state)
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


#: :func:`mixed`, compiled.
mix = jit(mixed)


@part
def uniform(bits: np.uint64) -> np.float64:
    """Return a number in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@part
def unit(bits: np.uint64) -> np.float32:
    """Return a float32 in [0, 1) from the upper 24 bits."""
    return np.float32(np.int32(bits >> _S40)) * np.float32(1.0 / 16777216.0)


@part
def normal_pair(state: np.uint64) -> tuple[float, float, np.uint64]:
    """Return two normal variates by the polar method, and the new state."""
    for _ in range(MOST_TRIES):
        state += GOLDEN
        x = 2.0 * uniform(mix(state)) - 1.0
        state += GOLDEN
        y = 2.0 * uniform(mix(state)) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            factor = np.sqrt(-2.0 * log(square) / square)
            return x * factor, y * factor, state
    return 0.0, 0.0, state  # once in 10^66 calls


@part
def unit_pair(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Return two float32 in (0, 1], from 24 bits each."""
    one, step = np.float32(1.0), np.float32(1.0 / 16777216.0)
    first = (np.float32(np.int32(bits >> _S40)) + one) * step
    return first, (np.float32(np.int32((bits >> _S16) & _LOW_24)) + one) * step


@part
def normals_of(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Return two float32 normal variates by the Box-Muller method."""
    u, x = unit_pair(bits)
    x -= lit(u, 0.5)
    radius = np.sqrt(lit(u, -2.0) * log(u))
    z = x * x * lit(u, 4.0 * math.pi**2)
    # The series give cosine and sine of 2 pi x, where |2 pi x| <= pi.
    c, s = polynomial(z, _COSINE), polynomial(z, _SINE)
    return radius * c, radius * s * x * lit(u, 2.0 * math.pi)


@part
def fill_normals(state: np.uint64, out: NDArray[np.float32]) -> None:
    """Write float32 normal variates; the last entry of an odd number does not change."""
    half = out.size // 2
    for j in range(half):
        out[j], out[half + j] = normals_of(mix(state + GOLDEN * np.uint64(j + 1)))


@part
def proposed_gamma(a: Real, normal: Real, test: Real) -> tuple[Real, np.uint8]:
    """Return a proposal d v, and whether the cheap test fails to accept it.

    Marsaglia and Tsang (2000) propose d v as a gamma variate of shape a + 1, with d = a + 2/3 and
    v = (1 + normal / sqrt(9 d))^3, from a ``normal`` variate; ``test`` is a uniform one. Proposal
    and cheap test are theirs, in the precision of a.
    """
    z = normal + lit(a, 0.0)
    d = a + lit(a, 2.0 / 3.0)
    root = lit(a, 1.0) + z / np.sqrt(lit(a, 9.0) * d)
    sure = lit(a, 1.0) - lit(a, 0.0331) * z * z * z * z
    return d * root * root * root, np.uint8(root <= lit(a, 0.0)) | np.uint8(test > sure)


@part
def _accepted_gamma(a: float, normal: float, test: float) -> tuple[np.uint8, float]:
    """Return whether d v of :func:`proposed_gamma` is accepted, and d v, in float64."""
    d, z = a + 2.0 / 3.0, normal
    root = 1.0 + z / np.sqrt(9.0 * d)
    # Without a positive root the proposal is refused below; the limit keeps log(v) finite.
    v = max(root, 1e-3) ** 3
    accepted = log(test) < 0.5 * z * z + d - d * v + d * log(v)
    return np.uint8(accepted & (root > 1e-3)), d * v


@part
def gamma_variate(a: float, state: np.uint64) -> tuple[float, np.uint64]:
    """Return a gamma variate of shape a + 1 and rate 1, NaN if a is NaN, and the new state."""
    for _ in range(MOST_TRIES):
        normal, _, state = normal_pair(state)
        state += GOLDEN
        accepted, value = _accepted_gamma(a, normal, 1.0 - uniform(mix(state)))
        if accepted:
            return value, state
    return np.nan, state


@jit
def binomial(n: float, p: float, state: np.uint64) -> tuple[float, np.uint64]:
    """Draw a binomial variate of n trials of probability p; return it and the new state.

    n and p are float64, n is whole. The i-th smallest of n uniform numbers is a beta variate x. If
    x is below p, so are i of the numbers, and each of the n - i larger ones with probability
    (p - x) / (1 - x); otherwise all numbers below p are among the i - 1 smaller ones (Ahrens and
    Dieter 1974). With i about n p, some sqrt(n p) expected successes are left after one round, and
    few enough for a sequential search after a few rounds.
    """
    hits, sign = 0.0, 1.0
    for _ in range(MOST_TRIES):
        if p > 0.5:  # count the failures
            hits, sign, p = hits + sign * n, -sign, 1.0 - p
        if n * p < _FEW:
            break
        i = np.floor((n + 1.0) * p)
        below, state = gamma_variate(i - 1.0, state)
        above, state = gamma_variate(n - i, state)
        x = below / (below + above)
        if x <= p:
            hits, n, p = hits + sign * i, n - i, (p - x) / (1.0 - x)
        else:
            hits, sign, n, p = hits + sign * (i - 1.0), -sign, i - 1.0, (x - p) / x
    state += GOLDEN
    rest, few = uniform(mix(state)), 0.0
    odds, share = p / (1.0 - p), np.exp(n * np.log1p(-p))
    for _ in range(MOST_TRIES):
        if rest < share or few >= n:
            break
        rest -= share
        few += 1.0
        share *= odds * (n - few + 1.0) / few
    return hits + sign * few, state


@part
def resample(weights: Array, offset: float, parents: IndexArray) -> None:
    """Resample systematically by an ``offset`` in [0, 1); write a parent for each particle."""
    n_particles = weights.size
    step = weights.sum() / n_particles
    reached, r = 0.0, -1
    for i in range(n_particles):
        target = (i + offset) * step
        while (reached <= target and r < n_particles - 1) or r < 0:
            r += 1
            reached += weights[r]
        parents[i] = r


@part
def accepted_gammas(n: int, numbers: Array, words: NDArray[np.uint64], places: IndexArray) -> None:
    """Draw gamma variates of n shapes + 1, each from the first proposal that is accepted.

    The first two proposals are made for all open entries together, in loops over vectors; few
    entries remain open. Rows of ``numbers`` (5, N) are the shapes; the normal variates of the first
    proposals, overwritten; the gamma variates, written; two of scratch. Rows of ``words`` (2, N)
    are random bits, whose ``unit_pair`` has the test of the first proposal as second number, and
    scratch. ``places`` (2, N) are scratch.
    """
    shapes, normals, out, values = numbers[0], numbers[1], numbers[2], numbers[3]
    own_shapes, bits, own_bits = numbers[4], words[0], words[1]
    which, accepted = places[0], places[1]
    for j in range(n):
        which[j], own_shapes[j], own_bits[j] = j, shapes[j], bits[j]
    for _ in range(2):
        for j in range(n):
            test = unit_pair(own_bits[j])[1]
            accepted[j], values[j] = _accepted_gamma(own_shapes[j], normals[j], np.float64(test))
        n_refused: Any = 0
        for j in range(n):
            out[which[j]] = values[j]
            which[n_refused] = which[j]
            own_shapes[n_refused], own_bits[n_refused] = own_shapes[j], own_bits[j]
            n_refused += 1 - accepted[j]
        n = n_refused
        for j in range(n):
            normals[j] = normals_of(mix(own_bits[j] + GOLDEN))[0]
            own_bits[j] = mix(own_bits[j] - GOLDEN)
    for j in range(n):
        i = which[j]
        out[i], _ = gamma_variate(shapes[i], mix(bits[i]))
