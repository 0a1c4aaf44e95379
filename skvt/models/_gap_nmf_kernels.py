"""Compiled loops of :mod:`skvt.models._gap_nmf`: what is not a matrix product."""

import math

import numpy as np

from skvt.expfam._special import digamma, exp, gammaln, jit, lit, log
from skvt.models._random_bits import GOLDEN, mix, normal_pair, uniform

_S40, _S16, _LOW_24 = np.uint64(40), np.uint64(16), np.uint64(0xFFFFFF)


# ------------------------------------------------------------------------------- activations
@jit
def geometric_means(shape, rate, smallest, out):
    """``out = exp(E[log h])`` of gamma variables, (n, K), or 0; ``rate`` is (n, K) or (1, K)."""
    for i in range(shape.shape[0]):
        row = rate[i] if rate.shape[0] > 1 else rate[0]
        for k in range(shape.shape[1]):
            value = exp(digamma(shape[i, k])) / row[k]
            out[i, k] = value if value >= smallest else lit(value, 0.0)


@jit
def divergences(shape, rate, prior, out):
    """``out[i]``: sum over k of KL(Gamma(shape, rate) || Gamma(prior, prior)) in nats."""
    constant = gammaln(prior) - prior * log(prior)
    for i in range(shape.shape[0]):
        row = rate[i] if rate.shape[0] > 1 else rate[0]
        total = 0.0
        for k in range(shape.shape[1]):
            s, r = shape[i, k], row[k]
            value = (s - prior) * digamma(s) - gammaln(s) + constant
            total += value + prior * log(r) + s * (prior - r) / r
        out[i] = total


@jit
def poisson_terms(counts, rates, logs, log_factorials):
    """Sums over f of ``y log rate`` and of ``log Gamma(y + 1)`` for each row, (n,) float64."""
    for i in range(counts.shape[0]):
        y, rate = counts[i], rates[i]
        total, constant = 0.0, 0.0
        for f in range(y.size):
            total += np.float64(y[f] * log(rate[f]))
            constant += np.float64(gammaln(y[f] + lit(y[f], 1.0)))
        logs[i], log_factorials[i] = total, constant


# ------------------------------------------------------------------------------------- draws
@jit
def draw_gammas(shape, rate, seed, smallest, out):
    """Gamma variates of these shapes (n, K) and rates, (n, K) or (1, K); 0 below ``smallest``.

    ``g(a) = g(a + 1) u^(1/a)``, and g(a + 1) by rejection (Marsaglia and Tsang 2000). The loop over
    a row makes a proposal for each entry and the cheap test; the few that fail it are done again
    one by one.
    """
    n, width = shape.shape
    normal = np.empty(width + 1, np.float32)
    doubtful = np.empty(width, np.uint8)
    for i in range(n):
        state = mix(np.uint64(seed) + GOLDEN * np.uint64(i + 1))
        _fill_normals(state, normal)
        row = rate[i] if rate.shape[0] > 1 else rate[0]
        for k in range(width):
            a = shape[i, k]
            bits = mix(state - GOLDEN * np.uint64(k + 1))
            z = normal[k] + lit(a, 0.0)
            d = a + lit(a, 2.0 / 3.0)
            v = lit(a, 1.0) + z / np.sqrt(lit(a, 9.0) * d)
            cheap = lit(a, 1.0) - lit(a, 0.0331) * z * z * z * z
            value = d * v * v * v * _power(_unit(bits >> _S40), a) / row[k]
            out[i, k] = value if value >= smallest else lit(value, 0.0)
            test = _unit((bits >> _S16) & _LOW_24)
            doubtful[k] = np.uint8(v <= lit(a, 0.0)) | np.uint8(test > cheap)
        for k in range(width):
            if doubtful[k]:
                a = shape[i, k]
                bits = mix(state - GOLDEN * np.uint64(k + 1))
                test = np.float64(_unit((bits >> _S16) & _LOW_24))
                value = _settled(np.float64(a), np.float64(normal[k]), test, mix(bits))
                value = value * _power(_unit(bits >> _S40), a) / row[k]
                out[i, k] = value if value >= smallest else lit(a, 0.0)


@jit
def _settled(a, normal, test, state):
    """A gamma variate of shape a + 1, from this proposal or the next that is accepted."""
    d = a + 2.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        v = 1.0 + c * normal
        # in the negative, so that a NaN ends the loop
        if not v <= 0.0:
            v = v * v * v
            if not log(test) >= 0.5 * normal * normal + d - d * v + d * log(v):
                return d * v
        normal, _, state = normal_pair(state)
        state += GOLDEN
        test = 1.0 - uniform(mix(state))


@jit
def _unit(bits):
    """A float32 in (0, 1] from 24 bits."""
    one = np.float32(1.0)
    return (np.float32(np.int32(bits)) + one) * np.float32(1.0 / 16777216.0)


@jit
def _power(u, a):
    """u^(1/a)."""
    return exp(log(u + lit(a, 0.0)) / a)


@jit
def _fill_normals(state, out):
    """Normal variates by the method of Box and Muller; an entry over stays as it is."""
    half = out.size // 2
    for j in range(half):
        bits = mix(state + GOLDEN * np.uint64(j + 1))
        u = _unit(bits >> _S40)
        x = _unit((bits >> _S16) & _LOW_24) - lit(u, 0.5)
        radius = np.sqrt(lit(u, -2.0) * log(u))
        z = x * x * lit(u, 4.0 * math.pi**2)
        # cosine and sine of 2 pi x by their series, |2 pi x| <= pi
        c = lit(u, -1.0 / 6402373705728000)
        c = c * z + lit(u, 1.0 / 20922789888000)
        c = c * z + lit(u, -1.0 / 87178291200)
        c = c * z + lit(u, 1.0 / 479001600)
        c = c * z + lit(u, -1.0 / 3628800)
        c = c * z + lit(u, 1.0 / 40320)
        c = c * z + lit(u, -1.0 / 720)
        c = c * z + lit(u, 1.0 / 24)
        c = c * z + lit(u, -1.0 / 2)
        c = c * z + lit(u, 1.0)
        s = lit(u, 1.0 / 355687428096000)
        s = s * z + lit(u, -1.0 / 1307674368000)
        s = s * z + lit(u, 1.0 / 6227020800)
        s = s * z + lit(u, -1.0 / 39916800)
        s = s * z + lit(u, 1.0 / 362880)
        s = s * z + lit(u, -1.0 / 5040)
        s = s * z + lit(u, 1.0 / 120)
        s = s * z + lit(u, -1.0 / 6)
        s = s * z + lit(u, 1.0)
        out[j] = radius * c
        out[half + j] = radius * s * x * lit(u, 2.0 * math.pi)


# ----------------------------------------------------------------------------------- spectra
@jit
def flush(values, smallest):
    """Numbers below ``smallest`` become 0, in place: products of theirs would be denormal."""
    flat = values.reshape(-1)
    for i in range(flat.size):
        if flat[i] < smallest:
            flat[i] = lit(flat[i], 0.0)
