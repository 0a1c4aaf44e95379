"""The correction V(beta, lam) of structured inference for Dirichlet globals [HB15 sec. 2.4].

A Dirichlet draw is made of gamma variates, ``beta_v = b_v / sum b``, and each b_v is a function of
its shape lam_v at a fixed quantile. What a batch says of log beta, ``hat`` (expected counts), then
has the gradient

    grad_u = (d log b_u / d lam_u) (hat_u - beta_u sum_v hat_v),

and in natural coordinates ``V hat = F^-1 grad`` with the Fisher information of the Dirichlet,
``F = diag(psi'(lam)) - psi'(sum lam) 1 1'``. Over the draw of beta, E[V] is the identity.
"""

import numpy as np

from skvt.expfam._shared_loop import CLAIMS, SharedLoop, claim, finish, in_turn
from skvt.expfam._special import digamma, exp, jit

# Gauss-Legendre nodes and weights on [0, 1].
_NODES, _WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(20))
_NODES = _NODES + 0.5
# The tail of an integrand below exp(-_TAIL) is left out.
_TAIL = 24.0
# Terms of the power series: the next is e^21 / 21! of the first, at most.
_TERMS = 20
# Words that a thread takes at a time.
_WORDS = 16


@jit
def trigamma(x):
    """psi'(x) for x > 0: eight recurrence steps, then the asymptotic series.

    The steps' sum of 1 / (x + i)^2 as one fraction: divisions are what costs.
    """
    numerator, denominator = 0.0, 1.0
    for step in range(8):
        square = (x + step) * (x + step)
        numerator = numerator * square + denominator
        denominator *= square
    inverse = 1.0 / (x + 8.0)
    square = inverse * inverse
    series = 1.0 / 6.0 + square * (-1.0 / 30.0 + square * (1.0 / 42.0 - square / 30.0))
    return numerator / denominator + inverse * (1.0 + inverse * (0.5 + inverse * series))


@jit
def log_gamma_slopes(a, log_x, out):
    """``d log x / d a`` of Gamma(a, 1) variates x at fixed quantiles, all (n,).

    With the distribution function P(a, x), it is ``-(dP/da) / (x dP/dx)``. For x <= e by the power
    series of P; otherwise by quadrature. Relative error below 1e-8 for a in [1e-3, 1e5].
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
    for i in range(a.size):
        if log_x[i] > 1.0:
            out[i] = _slope_of_large(a[i], log_x[i])


@jit
def _slope_of_large(a, log_x):
    """The same for x > e, by quadrature over the smaller tail.

        dP/da = int_0^x (log t - psi(a)) p(t) dt = -int_x^inf (log t - psi(a)) p(t) dt

    with t = x exp(-s) or x exp(s).
    """
    distance, x = log_x - digamma(a), exp(log_x)
    value = 0.0
    if x <= a:
        c = _TAIL / x
        longest = 0.5 * (c + np.sqrt(c * c + 8.0 * c))
        if a > x:
            longest = min(longest, _TAIL / (a - x))
        for i in range(_NODES.size):
            s = longest * _NODES[i]
            value += _WEIGHTS[i] * (s - distance) * exp(x - a * s - x * exp(-s))
    else:
        longest = min(_TAIL / (x - a), np.sqrt(2.0 * _TAIL / x))
        for i in range(_NODES.size):
            s = longest * _NODES[i]
            value += _WEIGHTS[i] * (s + distance) * exp(x + a * s - x * exp(s))
    return longest * value


@jit
def _gradients(lam, log_gammas, log_totals, hat, totals, sums, counter):
    """``hat <- grad / psi'(lam)`` and ``lam <- 1 / psi'(lam)`` of each word, both (V, K).

    ``log_totals`` and ``totals`` (K,) are the sums of gammas and statistics over all words. Of the
    b-th _WORDS words, ``sums[b]`` (3, K) are those of the new ``hat``, the new and the old ``lam``.
    """
    slopes = np.empty(lam.shape[1])
    for _ in range(CLAIMS):
        start, stop = claim(counter, _WORDS, lam.shape[0])
        if start >= stop:
            break
        total = sums[start // _WORDS]
        total[:] = 0.0
        for v in range(start, stop):
            log_gamma_slopes(lam[v], log_gammas[v], slopes)
            for k in range(slopes.size):
                total[2, k] += lam[v, k]
                beta = exp(log_gammas[v, k] - log_totals[k])
                lam[v, k] = 1.0 / trigamma(lam[v, k])
                hat[v, k] = slopes[k] * lam[v, k] * (hat[v, k] - beta * totals[k])
            for k in range(slopes.size):
                total[0, k] += hat[v, k]
                total[1, k] += lam[v, k]
        finish(counter, start, stop)


@jit
def _add_multiples(hat, inverses, factors, counter):
    """``hat += factors * inverses``, factors (K,)."""
    for _ in range(CLAIMS):
        start, stop = claim(counter, _WORDS, hat.shape[0])
        if start >= stop:
            break
        for v in range(start, stop):
            for k in range(factors.size):
                hat[v, k] += factors[k] * inverses[v, k]
        finish(counter, start, stop)


def corrected_statistics(lam, log_gammas, hat, run=in_turn, log_totals=None, *, copy=True):
    """``V(beta, lam) hat`` of each topic [HB15 eq. 7].

    Parameters
    ----------
    lam : ndarray, shape (V, K)
        Parameters of q(beta_k), one topic a column.
    log_gammas : ndarray, shape (V, K)
        Logarithms of the gamma variates of which the topics were made.
    hat : ndarray, shape (V, K)
        Statistics.
    run : callable
        ``run(function, tasks)``.
    log_totals : ndarray, shape (K,), optional
        Logarithms of the variates' sums over words, where they are known.
    copy : bool
        Whether ``lam`` and ``hat`` are to stay as they are; otherwise they become work arrays.

    Returns
    -------
    ndarray, shape (V, K)
    """
    log_gammas = np.ascontiguousarray(log_gammas)
    lam, hat = (np.array(a, copy=copy or None, order="C") for a in (lam, hat))
    n_words, n_topics = lam.shape
    if n_words == 1:
        return hat  # a topic of one word has no parameter to correct for
    if log_totals is None:
        log_totals = np.logaddexp.reduce(log_gammas)
    sums = np.empty((-(-n_words // _WORDS), 3, n_topics))
    loop = SharedLoop(n_words, _WORDS, lam, log_gammas, log_totals, hat, hat.sum(axis=0), sums)
    run(_gradients, loop)
    gradients, diagonals, totals = sums.sum(axis=0)
    # F^-1 grad by the formula of Sherman and Morrison
    c = np.array([trigamma(total) for total in totals])
    factors = c * gradients / (1.0 - c * diagonals)
    run(_add_multiples, SharedLoop(n_words, _WORDS, hat, lam, factors))
    return hat
