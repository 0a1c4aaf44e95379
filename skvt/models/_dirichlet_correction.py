"""The correction V(beta, lam) of structured inference for Dirichlet globals [HB15 sec. 2.4].

A Dirichlet draw is made of gamma variates, ``beta_v = b_v / sum b``, and each b_v is a function of
its shape lam_v at a fixed quantile. What a batch says of log beta, ``hat`` (expected counts), then
has the gradient

    grad_u = (d log b_u / d lam_u) (hat_u - beta_u sum_v hat_v),

and in natural coordinates ``V hat = F^-1 grad`` with the Fisher information of the Dirichlet,
``F = diag(psi'(lam)) - psi'(sum lam) 1 1'``. Over the draw of beta, E[V] is the identity.
"""

import numpy as np

from skvt.expfam._special import digamma, exp, jit, log

# Gauss-Legendre nodes and weights on [0, 1].
_NODES, _WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(20))
_NODES = _NODES + 0.5
# The tail of an integrand below exp(-_TAIL) is left out.
_TAIL = 24.0
# Entries of a parallel task; one topic at least.
_ENTRIES_PER_TASK = 2_000
# lam stays above so much of the prior: V is the identity on average only, and a step may overshoot.
SMALLEST_SHARE_OF_PRIOR = 0.1


@jit
def trigamma(x):
    """psi'(x) for x > 0: recurrence up to 8, then the asymptotic series."""
    value = 0.0
    while x < 8.0:
        value += 1.0 / (x * x)
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = 1.0 / 6.0 + square * (-1.0 / 30.0 + square * (1.0 / 42.0 - square / 30.0))
    return value + inverse * (1.0 + inverse * (0.5 + inverse * series))


@jit
def log_gamma_slope(a, log_x):
    """``d log x / d a`` of a Gamma(a, 1) variate x at a fixed quantile.

    With the distribution function P(a, x), it is ``-(dP/da) / (x dP/dx)``. For x <= e by the power
    series of P; otherwise by quadrature of

        dP/da = int_0^x (log t - psi(a)) p(t) dt = -int_x^inf (log t - psi(a)) p(t) dt

    over the smaller tail, substituting t = x exp(-s) or x exp(s). Relative error below 1e-8 for a
    in [1e-3, 1e5].
    """
    distance = log_x - digamma(a)
    if log_x <= 1.0:
        x = exp(max(log_x, -600.0))
        term = 1.0 / a  # x^n / (a (a+1) .. (a+n))
        harmonic = 1.0 / a
        total, slope = term, -term * harmonic
        n = 1.0
        while n < 60.0:
            term *= x / (a + n)
            harmonic += 1.0 / (a + n)
            total += term
            slope -= term * harmonic
            if term * harmonic < 1e-12 * abs(slope):
                break
            n += 1.0
        # P = x^a exp(-x) / Gamma(a) * sum_n: the exponential is part of the series' own factor
        return -(total * distance + slope)
    x = exp(log_x)
    value = 0.0
    if x <= a:
        c = _TAIL / x
        longest = 0.5 * (c + np.sqrt(c * c + 8.0 * c))
        if a > x:
            longest = min(longest, _TAIL / (a - x))
        for i in range(_NODES.size):
            s = longest * _NODES[i]
            value += _WEIGHTS[i] * (s - distance) * exp(-a * s - x * np.expm1(-s))
    else:
        longest = min(_TAIL / (x - a), np.sqrt(2.0 * _TAIL / x))
        for i in range(_NODES.size):
            s = longest * _NODES[i]
            value += _WEIGHTS[i] * (s + distance) * exp(a * s - x * np.expm1(s))
    return longest * value


@jit
def _correct(lam, log_gammas, hat, out):
    """``V hat`` of one topic, all (V,); Sherman-Morrison for F^-1."""
    n_words = lam.size
    top = log_gammas[0]
    for v in range(n_words):
        top = max(top, log_gammas[v])
    total_gamma, total_hat, total_lam = 0.0, 0.0, 0.0
    for v in range(n_words):
        total_gamma += exp(max(log_gammas[v] - top, -600.0))
        total_hat += hat[v]
        total_lam += lam[v]
    log_total = top + log(total_gamma)
    sum_inverse, sum_gradient = 0.0, 0.0
    inverses = np.empty(n_words)
    for v in range(n_words):
        beta = exp(max(log_gammas[v] - log_total, -600.0))
        gradient = log_gamma_slope(lam[v], log_gammas[v]) * (hat[v] - beta * total_hat)
        inverses[v] = 1.0 / trigamma(lam[v])
        out[v] = inverses[v] * gradient
        sum_inverse += inverses[v]
        sum_gradient += out[v]
    c = trigamma(total_lam)
    shift = c * sum_gradient / (1.0 - c * sum_inverse)
    for v in range(n_words):
        out[v] += shift * inverses[v]


@jit
def _correct_all(lam, log_gammas, hat, out):
    """``V hat`` of several topics, all (K, V)."""
    for k in range(lam.shape[0]):
        _correct(lam[k], log_gammas[k], hat[k], out[k])


def corrected_statistics(lam, log_gammas, hat, run=None):
    """``V(beta, lam) hat`` of each topic [HB15 eq. 7].

    Parameters
    ----------
    lam : ndarray, shape (V, K)
        Parameters of q(beta_k), one topic a column.
    log_gammas : ndarray, shape (V, K)
        Logarithms of the gamma variates of which the topics were made.
    hat : ndarray, shape (V, K)
        Statistics.
    run : callable, optional
        ``run(function, tasks)``; groups of topics are tasks.

    Returns
    -------
    ndarray, shape (V, K)
    """
    if lam.shape[0] == 1:
        return hat.copy()  # a topic of one word has no parameter to correct for
    lam, log_gammas, hat = (np.ascontiguousarray(a.T) for a in (lam, log_gammas, hat))
    out = np.empty_like(lam)
    step = max(1, _ENTRIES_PER_TASK // lam.shape[1])
    pieces = [slice(start, start + step) for start in range(0, lam.shape[0], step)]
    tasks = [(lam[piece], log_gammas[piece], hat[piece], out[piece]) for piece in pieces]
    if run is None:
        for task in tasks:
            _correct_all(*task)
    else:
        run(_correct_all, tasks)
    return out.T
