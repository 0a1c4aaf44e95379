"""Probability and draws of a Student t within a box, for values that are known by intervals only.

Components with ordinal columns call :func:`sample_box`. A row has J latent values, and the box is
the product of their intervals. The sequential method of [Genz92] draws the columns in turn, by the
Cholesky factor of the shape matrix. Each value is drawn within its interval given the values of the
preceding columns. The product of the probabilities of these intervals is an unbiased estimate of
the probability of the box, and it is the weight of the draw. The S draws of a row come from S
points of a Sobol sequence.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri, stdtr
from scipy.stats import qmc

from skvt.typing import Array, IndexArray

# Binary logarithm of the number S of points.
_LOG2_N_POINTS = 7
# Smaller probabilities are raised to this number, so that they have a logarithm.
_MIN_PROBABILITY = 1e-300


class LatentStudent(NamedTuple):
    """A multivariate Student t of the J latent values of each of n rows."""

    # (n, J): locations.
    location: Array
    # (n, J, J): lower triangular matrices. The shape matrix of a row is ``scale^2 root root'``.
    root: Array
    # (n,): factors of the matrices ``root``.
    scale: Array
    # (n,): degrees of freedom.
    freedom: Array


class BoxSample(NamedTuple):
    """Weighted draws from a Student t within a box, for each of n rows."""

    # (n,): logarithm of the probability of the box.
    log_probability: Array
    # (n, S): weights of the draws, with the sum 1 in each row.
    weights: Array
    # (n, S, J): draws of the latent values.
    draws: Array
    # (n, J, C): probability of each interval between successive ``edges`` of a column, given that
    # all latent values are in the box. C is 0 without edges.
    probabilities: Array


def compute_interval_probability(latent: LatentStudent, bounds: tuple[Array, Array]) -> Array:
    """Return the log probabilities (n,) of the intervals of a single latent value.

    ``bounds`` are the lower and the upper ends, (n, 1) each.
    """
    deviation = latent.scale * latent.root[:, 0, 0]
    low, high = _mirror(*((bound[:, 0] - latent.location[:, 0]) / deviation for bound in bounds))
    within = stdtr(latent.freedom, high) - stdtr(latent.freedom, low)
    return np.asarray(np.log(np.maximum(within, _MIN_PROBABILITY)))


def _mirror(low: Array, high: Array) -> tuple[Array, Array]:
    """Mirror intervals above 0, because small probabilities are accurate below 0."""
    return np.where(low > 0.0, -high, low), np.where(low > 0.0, -low, high)


def make_sobol_points(n_columns: int) -> Array:
    """Return S points of a Sobol sequence in the unit cube, (S, n_columns), none on a face."""
    sobol = qmc.Sobol(n_columns, scramble=False).random_base2(_LOG2_N_POINTS)
    return np.asarray(sobol + 0.5 / len(sobol))


def sample_box(
    latent: LatentStudent, bounds: tuple[Array, Array], edges: Array | None, uniform: Array
) -> BoxSample:
    """Sample the Student t of each row within its box [Genz92].

    The probabilities of intervals are valid only in columns without bounds that follow all columns
    with bounds, because each column is conditioned on the preceding columns only.

    Parameters
    ----------
    latent : LatentStudent
        The distributions of n rows.
    bounds : tuple of two arrays, shape (n, J) each
        Lower and upper ends of the intervals of the latent values, which may be infinite.
    edges : ndarray, shape (n, J, C + 1), or None
        Ends of the C intervals of each column whose probabilities are returned. They take most of
        the time; pass None if they are not needed.
    uniform : ndarray, shape (S, J + 1) or (n, S, J + 1)
        Points of the unit cube, the same for all rows or different ones. The last column draws the
        scale of the Student t, and column j draws the latent value j.
    """
    n, J = latent.location.shape
    # Draw the scales. If the points are the same for all rows, compute the inverse distribution
    # function only once for each distinct number of degrees of freedom.
    distinct_freedom, index = np.unique(latent.freedom, return_inverse=True)
    if uniform.ndim == 2:
        half_chi_squares = gammaincinv(0.5 * distinct_freedom[:, None], uniform[..., -1])[index]
    else:
        half_chi_squares = gammaincinv(0.5 * latent.freedom[:, None], uniform[..., -1])
    scale = latent.scale[:, None] * np.sqrt(0.5 * latent.freedom[:, None] / half_chi_squares)
    # Draw the columns in turn, each within its interval given the preceding columns. The draws
    # ``normal_draws`` (n, S, J) are in units of a standard normal.
    normal_draws = np.zeros((*scale.shape, J))
    log_weights = np.zeros(scale.shape)
    # (n, J, C, S): probabilities of the intervals given the draws of the preceding columns.
    n_intervals = 0 if edges is None else edges.shape[2] - 1
    conditional_probabilities = np.empty((n, J, n_intervals, scale.shape[1]))
    for j in range(J):
        mean = np.einsum("nsi,ni->ns", normal_draws[..., :j], latent.root[:, j, :j])
        mean = latent.location[:, j, None] + scale * mean
        deviation = scale * latent.root[:, j, j, None]
        low, high = ((bound[:, j, None] - mean) / deviation for bound in bounds)
        sign = np.where(low > 0.0, -1.0, 1.0)
        low, high = _mirror(low, high)
        below = ndtr(low)
        within = np.maximum(ndtr(high) - below, _MIN_PROBABILITY)
        log_weights += np.log(within)
        # The limits exclude 0 and 1, whose normal quantiles are infinite.
        quantiles = np.clip(below + uniform[..., j] * within, _MIN_PROBABILITY, 1.0 - 1e-16)
        normal_draws[..., j] = sign * np.clip(ndtri(quantiles), low, high)
        if edges is not None:
            standard_edges = (edges[:, j, :, None] - mean[:, None]) / deviation[:, None]
            conditional_probabilities[:, j] = np.diff(ndtr(standard_edges), axis=1)
    # Normalise the weights, and convert the draws from standard normals to latent values.
    largest = log_weights.max(axis=1, keepdims=True)
    weights = np.exp(log_weights - largest)
    weight_sum = weights.sum(axis=1, keepdims=True)
    weights /= weight_sum
    draws = np.einsum("nsi,nji->nsj", normal_draws, latent.root)
    draws = latent.location[:, None] + scale[..., None] * draws
    log_probability = (largest + np.log(weight_sum / weights.shape[1]))[:, 0]
    probabilities = np.einsum("njcs,ns->njc", conditional_probabilities, weights)
    return BoxSample(log_probability, weights, draws, probabilities)


def conditional_roots(precision: Array, hidden: NDArray[np.bool_], columns: IndexArray) -> Array:
    """Return Cholesky factors (n, J, J) of covariances of ``columns`` given the visible columns.

    ``precision`` (D, D) is the inverse covariance of all columns. ``hidden`` (n, D) is True for the
    columns of each row that are not visible. They include the ``columns`` (n, J) of the row.
    """
    # Compute one factor for each group of rows with the same ``hidden`` and the same ``columns``.
    patterns = np.concatenate([hidden, columns], axis=1)
    _, firsts, groups = np.unique(patterns, axis=0, return_index=True, return_inverse=True)
    group_hidden, group_columns = hidden[firsts], columns[firsts]
    are_hidden = group_hidden[:, :, None] & group_hidden[:, None, :]
    # The identity outside the hidden block lets `inv` invert this block alone.
    visible_identity = np.eye(len(precision)) * ~group_hidden[:, None]
    covariance = np.linalg.inv(np.where(are_hidden, precision, 0.0) + visible_identity)
    group_numbers = np.arange(len(firsts))[:, None, None]
    block = covariance[group_numbers, group_columns[:, :, None], group_columns[:, None, :]]
    factors = np.linalg.cholesky(0.5 * (block + np.swapaxes(block, 1, 2)))
    return np.asarray(factors[groups.reshape(-1)])
