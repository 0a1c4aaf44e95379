"""Estimation of the cuts of ordinal columns from rows that fall into several classes.

Each level of an ordinal column stands for an interval of latent values, and the *cuts* are the
limits between the intervals. By default the cuts are quantiles of a standard normal. If rows fall
into classes that are far apart, however, the latent values of all rows together are not normal.
:func:`cut_by_classes` therefore fits the cuts by classes.

The classes are the K components of a short fit of a categorical mixture. In class k a column's
latent value is N(m_k, s_k^2), so that a level between cuts a and b has the probability
``Phi((b - m_k) / s_k) - Phi((a - m_k) / s_k)``. Cuts, m and s maximise the likelihood of the
levels times weak priors of m and log s. The origin and the unit of the latent values are such that
all classes together have mean 0 and variance 1.

A column of C levels has C - 1 cuts. The edges (C + 1,) of its intervals are the cuts between minus
and plus infinity.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

from skvt.components._choices import MAX_ROWS, run_passes, select_evenly_spaced
from skvt.models.mixture import Categorical, Mixture, StickBreaking

# Initial number of components of the short fit, which are the classes.
_N_CLASSES = 10
# Number of passes of the short fit.
_N_PASSES = 20
# Standard deviation of log s in its prior. The standard deviation of m in its prior is 1.
_LOG_S_SPREAD = 0.7
# Minimum initial distance between neighbouring cuts.
_MIN_CUT_DISTANCE = 1e-3
# Minimum probability of a level, which keeps logarithms finite.
_MIN_PROBABILITY = 1e-300
# Number of cuts that BIC does not count as parameters: two cuts only set the origin and the unit of
# the latent values, which are arbitrary.
_N_ARBITRARY_CUTS = 2


def cut_by_classes(cells, X, weights):
    """Return cells whose cuts are fitted by classes, in each column where BIC prefers that.

    ``cells`` is the :class:`~skvt.models.mixture.Cells` of the ordinal columns with default cuts. X
    has all columns.
    """
    # The number of levels of each ordinal column.
    n_levels = tuple(levels.size for levels in cells.levels)
    # In this case, all cuts are arbitrary.
    if max(n_levels) <= 1 + _N_ARBITRARY_CUTS:
        return cells
    X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
    # Missing values have the code -1 in cells, and NaN in the categorical mixture.
    codes = cells.encode(X).astype(np.float64)
    codes[codes < 0.0] = np.nan
    model = Mixture(StickBreaking(1.0), Categorical(np.ones(sum(n_levels)), n_levels, codes.dtype))
    start_model = model.resized(_N_CLASSES, learns_priors=True)
    memo, _ = run_passes(start_model, codes, weights, _N_PASSES)
    edges = list(cells.edges)
    # (K, sum of C): the weight of the rows of each class at each level of all columns. Split them
    # into counts (K, C) of each column.
    _, level_weights, *_ = memo.stats.arrays
    counts_of_columns = np.split(level_weights, np.cumsum(n_levels)[:-1], axis=1)
    for j, counts in enumerate(counts_of_columns):
        n_parameters = n_levels[j] - 1 - _N_ARBITRARY_CUTS
        if n_parameters > 0 and len(counts) > 1:
            default_likelihood, _ = _maximise_likelihood(counts, edges[j], moves_cuts=False)
            likelihood, fitted_edges = _maximise_likelihood(counts, edges[j], moves_cuts=True)
            # BIC subtracts half the log of the total weight of the rows for each parameter.
            if likelihood - default_likelihood > 0.5 * n_parameters * np.log(counts.sum()):
                edges[j] = fitted_edges
    return replace(cells, edges=tuple(edges))


def _maximise_likelihood(counts, edges, *, moves_cuts):
    """Maximise :func:`_compute_likelihood` for a column; return the maximum and the edges (C + 1,).

    ``counts`` (K, C) has the weight of the rows of each class at each level. ``edges`` (C + 1,)
    have the default cuts. m and s are optimised, and with ``moves_cuts`` also the cuts. Finally,
    the cuts are shifted and scaled so that the latent values have mean 0 and variance 1.
    """
    _, *default_cuts, _ = edges
    n_cuts = len(default_cuts)
    # The share of each class in the rows.
    class_weights = counts.sum(axis=1) / counts.sum()
    # A minimum keeps the logarithms of the steps from cut to cut finite.
    log_steps = np.log(np.maximum(np.diff(default_cuts), _MIN_CUT_DISTANCE))
    # All m and all log s start at 0. The parameters of the cuts come first, see `_unpack`.
    start_parameters = np.concatenate([default_cuts[:1], log_steps, np.zeros(2 * len(counts))])
    n_fixed = 0 if moves_cuts else n_cuts

    def loss(free_parameters):
        """Return minus the log-likelihood, and its gradient, as a function to minimise."""
        parameters = np.concatenate([start_parameters[:n_fixed], free_parameters])
        log_likelihood, gradient = _compute_likelihood(parameters, counts)
        return -log_likelihood, -gradient[n_fixed:]

    optimum = minimize(loss, start_parameters[n_fixed:], jac=True, method="L-BFGS-B")
    cuts, m, s = _unpack(np.concatenate([start_parameters[:n_fixed], optimum.x]), n_cuts)
    # Mean and standard deviation of the latent values of all classes together.
    center = class_weights @ m
    deviation = np.sqrt(class_weights @ (s**2 + (m - center) ** 2))
    return -optimum.fun, np.concatenate([[-np.inf], (cuts - center) / deviation, [np.inf]])


def _unpack(parameters, n_cuts):
    """Return cuts (C - 1,), m (K,) and s (K,).

    ``parameters`` (C - 1 + 2 K,) are the first cut, the logarithms of the steps from cut to cut, m
    and log s.
    """
    first_cut, log_steps = parameters[:1], parameters[1:n_cuts]
    m, log_s = np.split(parameters[n_cuts:], 2)
    return np.cumsum(np.concatenate([first_cut, np.exp(log_steps)])), m, np.exp(log_s)


def _compute_likelihood(parameters, counts):
    """Return the log-likelihood plus the log priors in nats, and its gradient.

    ``counts`` (K, C) has the weight of the rows of each class at each level, and ``parameters`` are
    as in `_unpack`.
    """
    n_cuts = counts.shape[1] - 1
    cuts, m, s = _unpack(parameters, n_cuts)
    # ``z`` (K, C - 1) are the cuts as standard scores in each class. ``lower`` and ``upper`` (K, C)
    # are the ends of the intervals.
    z = (cuts - m[:, None]) / s[:, None]
    lower = np.pad(z, [(0, 0), (1, 0)], constant_values=-np.inf)
    upper = np.pad(z, [(0, 0), (0, 1)], constant_values=np.inf)
    # Reflect intervals above 0 to the lower tail. In the upper tail, both values of the
    # distribution function are close to 1, and their difference would lose digits.
    sign = np.where(lower > 0.0, -1.0, 1.0)
    probabilities = np.maximum(sign * (ndtr(sign * upper) - ndtr(sign * lower)), _MIN_PROBABILITY)
    # The gradient of the log-likelihood with respect to each probability.
    grad_probabilities = counts / probabilities
    # Compute the gradients with respect to z (K, C - 1) and to the cuts (C - 1,).
    grad_z = grad_probabilities[:, :-1] - grad_probabilities[:, 1:]
    grad_z = grad_z * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    grad_cuts = (grad_z / s[:, None]).sum(axis=0)
    # The first cut moves all cuts, and a step moves the cut at its upper end and all later cuts.
    # Their derivatives are therefore sums of the derivatives of a cut and of all later cuts.
    grad_first_and_steps = np.cumsum(grad_cuts[::-1])[::-1]
    scaled_log_s = np.log(s) / _LOG_S_SPREAD
    log_priors = -0.5 * (m @ m + scaled_log_s @ scaled_log_s)
    grad_m = -(grad_z / s[:, None]).sum(axis=1) - m
    grad_log_s = -(grad_z * z).sum(axis=1) - scaled_log_s / _LOG_S_SPREAD
    grad_first_cut, grad_steps = np.split(grad_first_and_steps, [1])
    grad_log_steps = grad_steps * np.exp(parameters[1:n_cuts])
    log_likelihood = (counts * np.log(probabilities)).sum() + log_priors
    return log_likelihood, np.concatenate([grad_first_cut, grad_log_steps, grad_m, grad_log_s])
