"""SplitMix64, for compiled loops whose random numbers must not depend on threads.

A state advances by :data:`GOLDEN`; :func:`mix` of it are 64 random bits.
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
# Proposals before a sampler gives up: of numbers, one of five is refused at most; of NaN all are.
MOST_TRIES = 100
# Expected successes below which a binomial variate is sought one by one.
_FEW = 10.0
# Taylor's coefficients of cos(x) and sin(x) / x in powers of x**2, the highest power's first.
_COSINE = tuple((-1) ** i / math.factorial(2 * i) for i in range(9, -1, -1))
_SINE = tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(8, -1, -1))


def mixed(state: Any) -> Any:
    """The finaliser of SplitMix64, of arrays too: every bit of it depends on all of the state."""
    z = np.uint64(state)
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


#: :func:`mixed`, compiled.
mix = jit(mixed)


@part
def uniform(bits: np.uint64) -> np.float64:
    """A number in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@part
def unit(bits: np.uint64) -> np.float32:
    """A float32 in [0, 1) from the upper 24 bits."""
    return np.float32(np.int32(bits >> _S40)) * np.float32(1.0 / 16777216.0)


@part
def normal_pair(state: np.uint64) -> tuple[float, float, np.uint64]:
    """(two normal variates by the polar method, new state)."""
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
    """Two float32 in (0, 1], from 24 bits each."""
    one, step = np.float32(1.0), np.float32(1.0 / 16777216.0)
    first = (np.float32(np.int32(bits >> _S40)) + one) * step
    return first, (np.float32(np.int32((bits >> _S16) & _LOW_24)) + one) * step


@part
def normals_of(bits: np.uint64) -> tuple[np.float32, np.float32]:
    """Two float32 normal variates by the method of Box and Muller."""
    u, x = unit_pair(bits)
    x -= lit(u, 0.5)
    radius = np.sqrt(lit(u, -2.0) * log(u))
    z = x * x * lit(u, 4.0 * math.pi**2)
    # cosine and sine of 2 pi x by their series, |2 pi x| <= pi
    c, s = polynomial(z, _COSINE), polynomial(z, _SINE)
    return radius * c, radius * s * x * lit(u, 2.0 * math.pi)


@part
def fill_normals(state: np.uint64, out: NDArray[np.float32]) -> None:
    """float32 normal variates; an entry over stays as it is."""
    half = out.size // 2
    for j in range(half):
        out[j], out[half + j] = normals_of(mix(state + GOLDEN * np.uint64(j + 1)))


@part
def proposed_gamma(a: Real, normal: Real, test: Real) -> tuple[Real, np.uint8]:
    """(d v, whether the cheap test does not accept it) for a normal and a uniform variate.

    Marsaglia and Tsang (2000) propose d v as a gamma variate of shape a + 1, with d = a + 2/3 and
    v = (1 + normal / sqrt(9 d))^3. Proposal and cheap test are theirs, in the precision of a.
    """
    z = normal + lit(a, 0.0)
    d = a + lit(a, 2.0 / 3.0)
    root = lit(a, 1.0) + z / np.sqrt(lit(a, 9.0) * d)
    sure = lit(a, 1.0) - lit(a, 0.0331) * z * z * z * z
    return d * root * root * root, np.uint8(root <= lit(a, 0.0)) | np.uint8(test > sure)


@part
def _accepted_gamma(a: float, normal: float, test: float) -> tuple[np.uint8, float]:
    """(whether d v is a gamma variate of shape a + 1, d v), see :func:`proposed_gamma`; float64."""
    d, z = a + 2.0 / 3.0, normal
    root = 1.0 + z / np.sqrt(9.0 * d)
    # some number above zero where there is none: the proposal is refused
    v = max(root, 1e-3) ** 3
    found = log(test) < 0.5 * z * z + d - d * v + d * log(v)
    return np.uint8(found & (root > 1e-3)), d * v


@part
def gamma_variate(a: float, state: np.uint64) -> tuple[float, np.uint64]:
    """(a gamma variate of shape a + 1 and rate 1, new state); NaN where a is no number."""
    for _ in range(MOST_TRIES):
        normal, _, state = normal_pair(state)
        state += GOLDEN
        found, value = _accepted_gamma(a, normal, 1.0 - uniform(mix(state)))
        if found:
            return value, state
    return np.nan, state


@jit
def binomial(n: float, p: float, state: np.uint64) -> tuple[float, np.uint64]:
    """(a binomial variate of n trials of probability p, new state); n is whole, n and p float64.

    Of n uniform numbers, the i-th smallest is a beta variate x. If it is below p, so are i of the
    numbers, and each of the n - i larger ones with probability (p - x) / (1 - x); otherwise all
    below p are among the i - 1 smaller ones (Ahrens and Dieter 1974). With i about n p, some
    sqrt(n p) of the expected successes are left to find, and a few rounds lead to a search.
    """
    found, sign = 0.0, 1.0
    for _ in range(MOST_TRIES):
        if p > 0.5:  # count the failures
            found, sign, p = found + sign * n, -sign, 1.0 - p
        if n * p < _FEW:
            break
        i = np.floor((n + 1.0) * p)
        below, state = gamma_variate(i - 1.0, state)
        above, state = gamma_variate(n - i, state)
        x = below / (below + above)
        if x <= p:
            found, n, p = found + sign * i, n - i, (p - x) / (1.0 - x)
        else:
            found, sign, n, p = found + sign * (i - 1.0), -sign, i - 1.0, (x - p) / x
    state += GOLDEN
    rest, few = uniform(mix(state)), 0.0
    odds, share = p / (1.0 - p), np.exp(n * np.log1p(-p))
    for _ in range(MOST_TRIES):
        if rest < share or few >= n:
            break
        rest -= share
        few += 1.0
        share *= odds * (n - few + 1.0) / few
    return found + sign * few, state


@part
def resample(weights: Array, offset: float, parents: IndexArray) -> None:
    """Systematic resampling by an ``offset`` in [0, 1): writes as many ``parents`` as particles."""
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
    """Gamma variates of n shapes + 1, each from a proposal, or the next that is accepted.

    Two proposals are made for all entries side by side, where loops run on vectors; few are left
    then. ``numbers`` (5, N) are shapes; the normal variates of first proposals, which are
    overwritten; the gamma variates, written; and scratch. ``words`` (2, N) are random bits, the
    second number of whose ``unit_pair`` is the test of the first proposal, and scratch, as all of
    ``places`` (2, N) is.
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
