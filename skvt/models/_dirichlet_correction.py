"""The correction V(beta, lam) of structured inference for Dirichlet globals [HB15 sec. 2.4].

A Dirichlet draw consists of normalised gamma variates, ``beta_v = b_v / sum b``, and each b_v is a
function of its shape lam_v at a fixed quantile. The contribution of a batch with expected counts
``hat`` then has the gradient

    grad_u = (d log b_u / d lam_u) (hat_u - beta_u sum_v hat_v),

and in natural coordinates ``V hat = F^-1 grad`` with the Fisher information of the Dirichlet,
``F = diag(psi'(lam)) - psi'(sum lam) 1 1'``. Over the draw of beta, E[V] is the identity.
"""

from typing import Any, NamedTuple, Self

import numpy as np

from skvt.compiled import (
    CLAIMS,
    SharedLoop,
    claim,
    digamma,
    exp,
    finish,
    jit,
    jit_allocating,
    part,
    part_allocating,
    serial_map,
)
from skvt.typing import Array, IndexArray, Run

# Gauss-Legendre nodes and weights on [0, 1].
_NODES, _WEIGHTS = 0.5 * np.array(np.polynomial.legendre.leggauss(16)) + [[0.5], [0.0]]
# The tail of an integrand below exp(-_TAIL) is left out.
_TAIL = 20.0
# Terms of the power series: the next is e^18 / 18! of the first, at most.
_TERMS = 17
# Shapes above which quantiles are those of a cube of a normal variate, to rounding.
_NEARLY_NORMAL = 1e6
# Totals of lam above which 1 - c sum(1 / psi') would be lost in rounding.
_LARGE_TOTAL = 1e8
# Words that a thread takes at a time.
_WORDS = np.int64(16)


class Gammas(NamedTuple):
    """Gamma variates of rate 1 from which topics are formed."""

    # (A, K): logarithms of those of some words, or of all.
    logs: Array
    # (K,), float64: of the sums over all words.
    log_totals: Array
    # (K,), float64: shape of the sum of the others, and its logarithm; None where there are none.
    rest: Array | None = None
    log_rest: Array | None = None
    # (A,): the words; None for all.
    rows: IndexArray | None = None

    @classmethod
    def of_all(cls, logs: Array) -> Self:
        """Variates of all words, (V, K)."""
        return cls(logs, np.logaddexp.reduce(logs, dtype=np.float64))


@jit
def trigamma(x: float) -> float:
    """psi'(x) for x > 0: eight recurrence steps, then the asymptotic series.

    The steps' sum of 1 / (x + i)^2 as one fraction: divisions are what costs.
    """
    numerator, denominator = 0.0, 1.0
    small = min(x, 1e17)  # beyond, the steps add nothing, and their product overflows
    for step in range(8):
        square = (small + step) * (small + step)
        numerator = numerator * square + denominator
        denominator *= square
    inverse = 1.0 / (x + 8.0)
    square = inverse * inverse
    series = 1.0 / 6.0 + square * (-1.0 / 30.0 + square * (1.0 / 42.0 - square / 30.0))
    return numerator / denominator + inverse * (1.0 + inverse * (0.5 + inverse * series))


@jit
def log_gamma_slopes(a: Array, log_x: Array, out: Array) -> None:
    """``d log x / d a`` of Gamma(a, 1) variates x at fixed quantiles, all (n,).

    With the distribution function P(a, x), it is ``-(dP/da) / (x dP/dx)``. For x <= e by the power
    series of P; otherwise by quadrature, or for very large shapes by the normal approximation of
    Wilson and Hilferty (1931). Relative error below 2e-7 for a of 1e-3 and more.
    """
    for i in range(a.size):
        # S(a) = sum over n of x^n / ((a+1) .. (a+n)) from within: as a fraction p / q, whose
        # derivatives in a go along, so that there is one division at the end
        x = exp(min(log_x[i], 1.0))
        p, q, dp, dq = 1.0, 1.0, 0.0, 0.0
        for step in range(_TERMS):
            factor = a[i] + (_TERMS - step)
            dq = q + factor * dq
            q *= factor
            dp = dq + x * dp
            p = q + x * p
        # P = x^a exp(-x) / Gamma(a + 1) S: the exponential is part of the series' own factor
        inverse, own = 1.0 / q, 1.0 / a[i]
        total = p * inverse
        slope = (dp - total * dq) * inverse - total * own
        out[i] = -own * (total * (log_x[i] - digamma(a[i])) + slope)
    _slopes_of_large(a, log_x, out)


@part_allocating
def _slopes_of_large(a: Array, log_x: Array, out: Array) -> None:
    """Slopes where x > e, by quadrature over the smaller tail; other entries of ``out`` stay.

        dP/da = int_0^x (log t - psi(a)) p(t) dt = -int_x^inf (log t - psi(a)) p(t) dt

    with t = x exp(sign s), sign = -1 for x <= a and 1 otherwise.
    """
    # those entries side by side, and choices instead of branches: so the loops run on vectors
    which, n = np.empty(a.size, np.int64), 0
    for i in range(a.size):
        which[n] = i
        n += 1 if log_x[i] > 1.0 else 0
    x, rate, distance, longest = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    value = np.zeros(n)
    for j in range(n):
        rate[j], distance[j] = a[which[j]], log_x[which[j]]
    for j in range(n):
        own, shape = exp(distance[j]), rate[j]
        sign = -1.0 if own <= shape else 1.0
        c = _TAIL / own
        below, above = 0.5 * (c + np.sqrt(c * c + 8.0 * c)), np.sqrt(2.0 * c)
        # where x = a the quotient is infinite
        longest[j] = sign * min(below if own <= shape else above, _TAIL / abs(shape - own))
        x[j], rate[j], distance[j] = own, sign * shape, sign * (distance[j] - digamma(shape))
    for i in range(_NODES.size):
        for j in range(n):
            s = longest[j] * _NODES[i]
            grown = exp(x[j] + abs(rate[j]) * s - x[j] * exp(s))
            value[j] += _WEIGHTS[i] * (abs(s) + distance[j]) * grown
    for j in range(n):
        shape = abs(rate[j])
        if shape > _NEARLY_NORMAL:
            # cube root of x / a: w = 1 - 1 / 9a + z / 3 sqrt(a), z fixed
            w = exp((log_x[which[j]] - np.log(shape)) / 3.0)
            out[which[j]] = (1.0 + (1.0 / (6.0 * shape) - 1.5 * (w - 1.0)) / w) / shape
        else:
            out[which[j]] = abs(longest[j]) * value[j]


@part
def _series(a: float, coefficients: Array) -> None:
    """Coefficients (_TERMS + 1, 2) of S(a) / a and of its derivative in a, highest power first."""
    value, slope = 1.0 / a, -1.0 / (a * a)
    for n in range(_TERMS + 1):
        if n > 0:
            slope = (slope - value / (a + n)) / (a + n)
            value /= a + n
        coefficients[_TERMS - n, 0], coefficients[_TERMS - n, 1] = value, slope


@part
def _slopes_of_one_shape(
    coefficients: Array, digamma_of_it: float, log_x: Array, out: Array
) -> None:
    """:func:`log_gamma_slopes` for x <= e and variates of one shape: its series is a polynomial."""
    for i in range(log_x.size):
        x = exp(min(log_x[i], 1.0))
        value, slope = 0.0, 0.0
        for step in range(_TERMS + 1):
            value = coefficients[step, 0] + x * value
            slope = coefficients[step, 1] + x * slope
        out[i] = -(value * (log_x[i] - digamma_of_it) + slope)


@jit_allocating
def _gradients(
    array: Array, scale: float, prior: Array, log_gammas: Array, log_totals: Array, hat: Array,
    rows: IndexArray, totals: Array, of_rest: Any, out: Array, inverses: Array, sums: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """``out = grad / psi'(lam)`` and ``inverses = 1 / psi'(lam)`` of each word, both (V, K).

    ``lam = prior + scale * array``; the variates and statistics of word v are those in row
    ``rows[v]``. Where that is negative, ``grad = of_rest`` (K,). ``log_totals`` and ``totals`` (K,)
    are the sums of gammas and statistics over all words. Of the b-th _WORDS words, ``sums[b]``
    (3, K) are those of ``out``, ``inverses`` and lam.
    """
    n_topics = array.shape[1]
    lam, logs, slopes = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    # entries of a block, side by side
    size = _WORDS * n_topics
    a, log_x, found = np.empty(size), np.empty(size), np.empty(size)
    which = np.empty(size, np.int64)
    coefficients = np.empty((_TERMS + 1, 2))
    last, of_prior, inverse_of_prior = -1.0, 0.0, 0.0
    for _ in range(CLAIMS):
        start, stop = claim(counter, _WORDS, array.shape[0])
        if start >= stop:
            break
        total = sums[start // _WORDS]
        total[:] = 0.0
        n = 0
        for v in range(start, stop):
            # most words of a topic stand at their prior, and share its functions
            eta, row = np.float64(prior[v]), rows[v]
            if eta != last and eta > 0.0:
                last, of_prior, inverse_of_prior = eta, digamma(eta), 1.0 / trigamma(eta)
                _series(eta, coefficients)
            for k in range(n_topics):
                lam[k] = eta + scale * np.float64(array[v, k])
                inverses[v, k] = inverse_of_prior
                total[2, k] += lam[k]
            if row >= 0:
                for k in range(n_topics):
                    logs[k] = log_gammas[row, k]
                _slopes_of_one_shape(coefficients, of_prior, logs, slopes)
                for k in range(n_topics):
                    out[v, k] = slopes[k]
            else:
                logs[:] = 0.0
            first = (v - start) * n_topics
            for k in range(n_topics):
                which[n], a[n], log_x[n] = first + k, lam[k], logs[k]
                n += 1 if (lam[k] != last) | (logs[k] > 1.0) else 0
        log_gamma_slopes(a[:n], log_x[:n], found[:n])
        for j in range(n):
            a[j] = 1.0 / trigamma(a[j])
        for j in range(n):
            v, k = start + which[j] // n_topics, which[j] % n_topics
            out[v, k], inverses[v, k] = found[j], a[j]
        for v in range(start, stop):
            row = rows[v]
            if row >= 0:
                for k in range(n_topics):
                    beta = exp(log_gammas[row, k] - log_totals[k])
                    out[v, k] *= hat[row, k] - beta * totals[k]
            else:
                for k in range(n_topics):
                    out[v, k] = of_rest[k]
            for k in range(n_topics):
                out[v, k] *= inverses[v, k]
            for k in range(n_topics):
                total[0, k] += out[v, k]
                total[1, k] += inverses[v, k]
        finish(counter, start, stop)


@jit
def _add_multiples(out: Array, inverses: Array, factors: Array, counter: IndexArray) -> None:
    """``out += factors * inverses``, factors (K,)."""
    for _ in range(CLAIMS):
        start, stop = claim(counter, _WORDS, out.shape[0])
        if start >= stop:
            break
        for v in range(start, stop):
            for k in range(factors.size):
                out[v, k] += factors[k] * inverses[v, k]
        finish(counter, start, stop)


def corrected_statistics(
    array: Array, gammas: Gammas, hat: Array, run: Run = serial_map, *, scale: float = 1.0,
    prior: Array | None = None, most: float | Array = np.inf,
) -> Array:  # fmt: skip
    """``V(beta, lam) hat`` of each topic [HB15 eq. 7].

    Parameters of q(beta_k) are ``lam = prior + scale * array`` (V, K), one topic a column, with
    ``prior`` (V,) or (V, K), or zero. ``gammas`` are the variates that the topics were made of,
    ``hat`` (A, K) the statistics of their words. Returns (V, K), float64.

    Words without statistics matter by the sum of their gammas alone. That is a gamma of the sum of
    their shapes, so that one variate stands for all of them, with one slope for all these shapes.

    V is the identity on average only: where a word's statistics exceed its lam by orders of
    magnitude, the part that is common to all words of a topic, a multiple of ``1 / psi'(lam)``,
    may be as much larger than the statistics themselves. It adds up to ``most``, at most.
    """
    array, hat, logs = (np.ascontiguousarray(part) for part in (array, hat, gammas.logs))
    n_words, n_topics = array.shape
    if n_words == 1:
        return hat  # a topic of one word has no parameter to correct for
    if prior is None:
        prior = np.zeros(n_words)
    if prior.ndim == 2:
        array, scale, prior = prior + scale * array, 1.0, np.zeros(n_words)
    places = np.full(n_words, -1)
    places[slice(None) if gammas.rows is None else gammas.rows] = np.arange(len(hat))
    totals = hat.sum(axis=0, dtype=np.float64)
    of_rest = np.zeros(n_topics)
    if len(hat) < n_words:
        assert gammas.rest is not None and gammas.log_rest is not None  # there are others
        log_gamma_slopes(gammas.rest, gammas.log_rest, of_rest)
        of_rest *= -totals * np.exp(gammas.log_rest - gammas.log_totals)
    out, inverses = np.empty((2, n_words, n_topics))
    sums = np.empty((-(-n_words // _WORDS), 3, n_topics))
    loop = SharedLoop(
        n_words, _WORDS, array, scale, prior, logs, gammas.log_totals, hat, places, totals, of_rest,
        out, inverses, sums,
    )  # fmt: skip
    run(_gradients, loop)
    gradients, diagonals, totals = sums.sum(axis=0)
    # F^-1 grad by the formula of Sherman and Morrison
    c = np.array([trigamma(total) for total in totals])
    rest = 1.0 - c * diagonals
    large = totals > _LARGE_TOTAL
    if large.any():
        rest[large] = c[large] * _excess(
            prior[:, None] + scale * array[:, large], inverses[:, large], totals[large]
        )
    limit = most / diagonals
    factors = np.clip(c * gradients / rest, -limit, limit)
    run(_add_multiples, SharedLoop(n_words, _WORDS, out, inverses, factors))
    return out


def _excess(lam: Array, inverses: Array, totals: Array) -> Array:
    """``1 / psi'(sum lam) - sum 1 / psi'(lam)`` of columns; no large numbers cancel."""
    rests = np.where(lam < _NEARLY_NORMAL, inverses - lam + 0.5, 1.0 / (12.0 * lam))
    return 0.5 * (len(lam) - 1.0) + 1.0 / (12.0 * totals) - rests.sum(axis=0)
