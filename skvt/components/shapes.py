"""Tests whether the values of a column are counts, or are spread evenly over a range.

The audit of a table calls :func:`prefer_counts` and :func:`are_evenly_spread`.

Mixtures of one to three distributions are fitted to whole numbers by EM: negative binomials,
Gaussians and log-normals. A Gaussian or log-normal gives a whole number x the probability of the
interval from x - 1/2 to x + 1/2, so that its likelihood is comparable with the likelihood of
counts. Mixtures are compared by the Bayesian information criterion (BIC) in nats, of which more is
better: the log likelihood, minus half the number of parameters times the log of the number of
values.
"""

import numpy as np
from scipy.special import gammaln, ndtr

# Minimum gain in BIC, in nats, for which counts are preferred to real numbers.
_MIN_GAIN_OF_COUNTS = 1.0
# Maximum loss in BIC, in nats, of counts beside a point mass. It is positive because a mixture of
# log-normals has an advantage in small whole numbers: a component may describe all ones.
_MAX_LOSS_OF_COUNTS = 3.0
# Share of the values that are compared. The largest values are left out, because single wrong
# values decide otherwise.
_COMPARED_SHARE = 0.995
# Minimum gain in BIC, in nats, of a uniform distribution over mixtures of Gaussians, and of such a
# mixture over a single Gaussian, for which values count as evenly spread.
_MIN_GAIN_OF_UNIFORM = 10.0
# The range of values is divided into this number of intervals, unless the values are whole numbers
# in a range of at most this length.
_N_INTERVALS = 50
# Maximum number of distributions in a mixture.
_MAX_COMPONENTS = 3
# Number of EM steps.
_EM_STEPS = 40
# Smallest variance of a Gaussian.
_MIN_VARIANCE = 1e-3
# Smallest mean of a negative binomial, and the range of its dispersion 1 / r.
_MIN_MEAN = 1e-3
_DISPERSIONS = 0.01, 20.0
# Smallest divisor, and smallest argument of a logarithm.
_TINY = 1e-300


def prefer_counts(values, *, has_point_mass):
    """Return whether whole numbers from 0 on are better described by counts than by real numbers.

    Negative binomials must be better than Gaussians both as a single distribution and as the best
    mixture. A single Gaussian is better for symmetric or bounded numbers, such as ages or marks,
    and mixtures of Gaussians are better for clusters that vary less than counts.

    With ``has_point_mass``, zeros are left out of the comparison, because a hurdle describes them
    in both cases. Negative binomials then describe the other values minus 1, log-normals are
    compared, too, and counts are preferred unless real numbers are clearly better.
    """
    if has_point_mass:
        values = values[values > 0.0]
    largest = np.quantile(values, _COMPARED_SHARE) if values.size else 0.0
    reals, weights = np.unique(values[values <= largest], return_counts=True)
    counts = reals - 1.0 if has_point_mass else reals
    min_gain = -_MAX_LOSS_OF_COUNTS if has_point_mass else _MIN_GAIN_OF_COUNTS
    if reals.size <= _MAX_COMPONENTS:
        return False
    real_bic = count_bic = -np.inf
    for K in range(1, _MAX_COMPONENTS + 1):
        real_bic = max(real_bic, _compute_bic(_gaussian_log_pmf, reals, weights, K))
        if has_point_mass:
            log_normal_bic = _compute_bic(_gaussian_log_pmf, reals, weights, K, in_logs=True)
            real_bic = max(real_bic, log_normal_bic)
        count_bic = max(count_bic, _compute_bic(_count_log_pmf, counts, weights, K))
        if K == 1 and count_bic < real_bic + min_gain:
            return False
    return count_bic > real_bic + min_gain


def are_evenly_spread(values):
    """Return whether a uniform distribution describes numbers better than mixtures of Gaussians.

    A mixture must also be better than a single Gaussian. Otherwise the numbers are so few that they
    need no additional components.

    The range of the numbers is divided into intervals, and the likelihoods are the probabilities of
    the intervals. In a small range, each whole number has a separate interval.
    """
    # ``bins`` has the number of the interval of each value.
    bins, n_intervals = values - values.min(), np.ptp(values) + 1.0
    if n_intervals > _N_INTERVALS or not np.array_equal(bins, np.floor(bins)):
        bins = np.minimum(np.floor(_N_INTERVALS * bins / bins.max()), _N_INTERVALS - 1.0)
        n_intervals = _N_INTERVALS
    distinct, weights = np.unique(bins, return_counts=True)
    if distinct.size <= _MAX_COMPONENTS:
        return False
    # A uniform distribution has two parameters, the ends of its range.
    uniform_bic = -values.size * np.log(n_intervals) - np.log(values.size)
    single_bic = _compute_bic(_gaussian_log_pmf, distinct, weights, 1)
    # For most columns, a single Gaussian is as good.
    if uniform_bic <= single_bic + _MIN_GAIN_OF_UNIFORM:
        return False
    best_bic = max(
        _compute_bic(_gaussian_log_pmf, distinct, weights, K) for K in range(2, _MAX_COMPONENTS + 1)
    )
    gains = uniform_bic - best_bic, best_bic - single_bic
    return bool(min(gains) > _MIN_GAIN_OF_UNIFORM)


def _compute_bic(log_pmf, values, weights, K, *, in_logs=False):
    """Fit a mixture of K distributions to whole numbers by EM, and return its BIC in nats.

    ``values`` (n,) are the distinct numbers in ascending order, and ``weights`` (n,) the numbers of
    times that they occur. With ``in_logs``, the mixture describes the logarithms of the numbers.
    ``log_pmf(edges, mean, variance)`` returns the log probabilities (K, n) of intervals with the
    limits ``edges`` (2, n), under K distributions with the moments (K, 1). Each M step sets the
    moments to the weighted moments of the values. EM starts from a division of the sorted values
    into K parts of equal weight.
    """
    edges = np.stack([values - 0.5, values + 0.5])
    x, edges = (np.log(values), np.log(edges)) if in_logs else (values, edges)
    total_weight = weights.sum()
    # The share of the smaller values, plus half the share of the value itself.
    ranks = (np.cumsum(weights) - 0.5 * weights) / total_weight
    resp = (np.floor(K * ranks) == np.arange(K)[:, None]).astype(float)
    for _ in range(_EM_STEPS if K > 1 else 1):
        weighted_resp = resp * weights
        component_weights = weighted_resp.sum(axis=1, keepdims=True) + _TINY
        mean = weighted_resp @ x[:, None] / component_weights
        variance = (weighted_resp * (x - mean) ** 2).sum(axis=1, keepdims=True) / component_weights
        log_joint = log_pmf(edges, mean, variance) + np.log(component_weights / total_weight)
        # This takes a quarter of the time of scipy.special.logsumexp, and is called often.
        max_log_joint = log_joint.max(axis=0)
        log_likelihood = max_log_joint + np.log(np.exp(log_joint - max_log_joint).sum(axis=0))
        resp = np.exp(log_joint - log_likelihood)
    # K means, K variances, and K weights that sum to 1.
    n_parameters = 3 * K - 1
    return log_likelihood @ weights - 0.5 * n_parameters * np.log(total_weight)


def _gaussian_log_pmf(edges, mean, variance):
    """Return the log probability of each interval under Gaussians, see :func:`_compute_bic`."""
    scale = np.sqrt(np.maximum(variance, _MIN_VARIANCE))
    lower, upper = ndtr((edges[:, None] - mean) / scale)
    probabilities = upper - lower
    return np.log(np.maximum(probabilities, _TINY))


def _count_log_pmf(edges, mean, variance):
    """Return log probabilities of negative binomials, see :func:`_compute_bic`.

    The size r follows from the variance, which is ``mean + mean^2 / r``.
    """
    # The counts are in the middle of the intervals.
    x = edges.mean(axis=0)
    mean = np.maximum(mean, _MIN_MEAN)
    r = 1.0 / np.clip((variance - mean) / mean**2, *_DISPERSIONS)
    log_factors = gammaln(x + r) - gammaln(r) - gammaln(x + 1.0)
    return log_factors - r * np.log1p(mean / r) + x * (np.log(mean) - np.log(r + mean))
