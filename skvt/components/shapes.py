"""Decisions whether the values of a column are counts, or spread evenly over a range.

Mixtures of one to three distributions are fitted to whole numbers by EM: negative binomials,
Gaussians and Gaussians of the logarithms. Gaussians are rounded to whole numbers, so that
likelihoods can be compared. The criterion is the Bayesian information criterion: the maximum log
likelihood of a mixture of K distributions, minus half the number of its parameters times the log of
the number of values.
"""

import numpy as np
from scipy.special import gammaln, ndtr

# Minimum gain in the criterion for which counts are chosen, and for which values are called evenly
# spread, in nats.
_MIN_GAIN = 3.0
_MIN_GAIN_OF_UNIFORM = 10.0
# Real numbers, and whole numbers in a larger range, are divided into this number of intervals.
_N_INTERVALS = 50
# Maximum number of components of a mixture, and the number of EM steps.
_MAX_COMPONENTS = 3
_EM_STEPS = 40
# Least variance of a Gaussian, and the least mean and the range of dispersions of counts.
_MIN_VARIANCE = 1e-3
_MIN_MEAN = 1e-3
_DISPERSIONS = 0.01, 20.0
_TINY = 1e-300


def prefer_counts(values, *, has_point_mass):
    """Return whether whole numbers from 0 on are better described by counts than by real numbers.

    Negative binomials must be better than Gaussians both as a single distribution and as the best
    of small mixtures. A single Gaussian is better for symmetric or bounded numbers, such as ages or
    marks, and small mixtures of Gaussians are better for clusters that vary less than counts. If
    zeros are a point mass, a hurdle describes them in both cases. The other values are then either
    counts minus 1, or real numbers, or amounts, whose logarithms are Gaussian.
    """
    distinct, weights = np.unique(values, return_counts=True)
    counts = distinct
    if has_point_mass:
        distinct, weights = distinct[distinct > 0.0], weights[distinct > 0.0]
        counts = distinct - 1.0
    if distinct.size <= _MAX_COMPONENTS:
        return False
    best_real = best_counts = -np.inf
    for K in range(1, _MAX_COMPONENTS + 1):
        best_real = max(best_real, _criterion(_gaussian_log_pmf, distinct, weights, K))
        if has_point_mass:
            of_logs = _criterion(_gaussian_log_pmf, distinct, weights, K, in_logs=True)
            best_real = max(best_real, of_logs)
        best_counts = max(best_counts, _criterion(_count_log_pmf, counts, weights, K))
        if K == 1 and best_counts < best_real + _MIN_GAIN:
            return False
    return best_counts > best_real + _MIN_GAIN


def are_evenly_spread(values):
    """Return whether numbers are described better by a uniform distribution than by Gaussians.

    The Gaussians are small mixtures. Numbers are compared by the interval of their range to which
    they belong, and whole numbers in a small range by their values.
    """
    x, n_intervals = values - values.min(), np.ptp(values) + 1.0
    if n_intervals > _N_INTERVALS or not np.array_equal(x, np.floor(x)):
        x = np.minimum(np.floor(_N_INTERVALS * x / x.max()), _N_INTERVALS - 1.0)
        n_intervals = _N_INTERVALS
    distinct, weights = np.unique(x, return_counts=True)
    if distinct.size <= _MAX_COMPONENTS:
        return False
    of_uniform = -values.size * np.log(n_intervals) - np.log(values.size)
    of_gaussians = max(
        _criterion(_gaussian_log_pmf, distinct, weights, K) for K in range(1, _MAX_COMPONENTS + 1)
    )
    return of_uniform > of_gaussians + _MIN_GAIN_OF_UNIFORM


def _criterion(log_pmf, values, weights, K, *, in_logs=False):
    """Return the penalised log likelihood in nats of a mixture of K distributions.

    ``values`` (n,) are distinct and in ascending order, and ``weights`` (n,) their numbers. The
    logarithms of the values have the distributions if ``in_logs``. ``log_pmf(edges, mean,
    variance)`` returns log probabilities (K, n) of intervals, whose limits are ``edges`` (2, n). EM
    matches the moments of each distribution, and starts from a division of the sorted values into
    K parts of equal size.
    """
    edges = np.stack([values - 0.5, values + 0.5])
    x, edges = (np.log(values), np.log(edges)) if in_logs else (values, edges)
    total = weights.sum()
    ranks = (np.cumsum(weights) - 0.5 * weights) / total
    resp = (np.floor(K * ranks) == np.arange(K)[:, None]).astype(float)
    for _ in range(_EM_STEPS if K > 1 else 1):
        weighted = resp * weights
        sizes = weighted.sum(axis=1, keepdims=True) + _TINY
        mean = weighted @ x[:, None] / sizes
        variance = (weighted * (x - mean) ** 2).sum(axis=1, keepdims=True) / sizes
        log_joint = log_pmf(edges, mean, variance) + np.log(sizes / total)
        # This takes a quarter of the time of scipy.special.logsumexp, and is called often.
        highest = log_joint.max(axis=0)
        log_likelihood = highest + np.log(np.exp(log_joint - highest).sum(axis=0))
        resp = np.exp(log_joint - log_likelihood)
    n_parameters = 3 * K - 1
    return log_likelihood @ weights - 0.5 * n_parameters * np.log(total)


def _gaussian_log_pmf(edges, mean, variance):
    """Return log probabilities of intervals between ``edges`` under Gaussians."""
    scale = np.sqrt(np.maximum(variance, _MIN_VARIANCE))
    lower, upper = ndtr((edges[:, None] - mean) / scale)
    probabilities = upper - lower
    return np.log(np.maximum(probabilities, _TINY))


def _count_log_pmf(edges, mean, variance):
    """Return log probabilities of negative binomials, whose variance is mean + mean^2 / r."""
    x = edges.mean(axis=0)
    mean = np.maximum(mean, _MIN_MEAN)
    r = 1.0 / np.clip((variance - mean) / mean**2, *_DISPERSIONS)
    log_factors = gammaln(x + r) - gammaln(r) - gammaln(x + 1.0)
    return log_factors - r * np.log1p(mean / r) + x * (np.log(mean) - np.log(r + mean))
