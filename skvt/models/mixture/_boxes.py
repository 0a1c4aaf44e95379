"""Probability, draws and moments of a Student t within a box, for values known by interval only.

By the sequential method of [Genz92]: with the Cholesky factor of the shape matrix, columns are
drawn in turn, each within its interval given those before. The product of the probabilities of
these intervals is an unbiased estimate of that of the box, and the weight of the draw. The draws
come from the points of a Sobol sequence, the same for all rows.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri
from scipy.stats import qmc

from skvt.typing import Array, IndexArray

# Binary logarithm of the number of points.
_LOG2_POINTS = 7
# Smaller probabilities are raised to this one.
_TINY = 1e-300


class LatentValues(NamedTuple):
    """Independent Student t for each of n rows, J columns."""

    # (n, J)
    location: Array
    # (n, J, J): lower triangular; ``scale^2 root root'`` is the shape matrix.
    root: Array
    # (n,)
    scale: Array
    # (n,)
    freedom: Array


class Box(NamedTuple):
    """What is known of a box and of what lies in it."""

    # (n,)
    log_probability: Array
    # (n, S): of the draws; each row sums to 1.
    weights: Array
    # (n, S, J)
    draws: Array
    # (n, J, C): probability of each interval between ``edges``, given the box.
    probabilities: Array


def points(n_columns: int) -> Array:
    """Points of the unit cube, (S, n_columns), none on its faces."""
    sobol = qmc.Sobol(n_columns, scramble=False).random_base2(_LOG2_POINTS)
    return np.asarray(sobol + 0.5 / len(sobol))


def box(latent: LatentValues, bounds: tuple[Array, Array], edges: Array, uniform: Array) -> Box:
    """Sample the box between ``bounds``, (n, J) each.

    ``uniform`` (..., S, J + 1) has points of the unit cube; the last column draws the scale of the
    t. ``edges`` (n, J, C + 1) are the ends of intervals whose probabilities are returned. These are
    only valid in columns without bounds that come after all columns with bounds.
    """
    n, J = latent.location.shape
    freedom, group = np.unique(latent.freedom, return_inverse=True)
    if uniform.ndim == 2:  # the same points for all rows: one inverse for each distinct value
        chi = gammaincinv(0.5 * freedom[:, None], uniform[..., -1])[group]
    else:
        chi = gammaincinv(0.5 * latent.freedom[:, None], uniform[..., -1])
    scale = latent.scale[:, None] * np.sqrt(0.5 * latent.freedom[:, None] / chi)
    normal = np.zeros((*scale.shape, J))
    log_weights = np.zeros(scale.shape)
    conditional = np.empty((n, J, edges.shape[2] - 1, scale.shape[1]))
    for j in range(J):
        mean = np.einsum("nsi,ni->ns", normal[..., :j], latent.root[:, j, :j])
        mean = latent.location[:, j, None] + scale * mean
        width = scale * latent.root[:, j, j, None]
        low, high = ((bound[:, j, None] - mean) / width for bound in bounds)
        # Mirror to the lower tail, where small probabilities are accurate.
        flip = np.where(low > 0.0, -1.0, 1.0)
        low, high = np.where(low > 0.0, -high, low), np.where(low > 0.0, -low, high)
        below = ndtr(low)
        inside = np.maximum(ndtr(high) - below, _TINY)
        log_weights += np.log(inside)
        drawn = ndtri(np.clip(below + uniform[..., j] * inside, _TINY, 1.0 - 1e-16))
        normal[..., j] = flip * np.clip(drawn, low, high)
        cuts = (edges[:, j, :, None] - mean[:, None]) / width[:, None]
        conditional[:, j] = np.diff(ndtr(cuts), axis=1)
    largest = log_weights.max(axis=1, keepdims=True)
    weights = np.exp(log_weights - largest)
    weights /= (total := weights.sum(axis=1, keepdims=True))
    draws = np.einsum("nsi,nji->nsj", normal, latent.root)
    draws = latent.location[:, None] + scale[..., None] * draws
    log_probability = (largest + np.log(total / weights.shape[1]))[:, 0]
    return Box(log_probability, weights, draws, np.einsum("njcs,ns->njc", conditional, weights))


def roots(precision: Array, hidden: NDArray[np.bool_], columns: IndexArray) -> Array:
    """Return Cholesky factors (n, J, J) of covariances of ``columns`` given the visible ones."""
    _, first, group = np.unique(
        np.concatenate([hidden, columns], axis=1), axis=0, return_index=True, return_inverse=True
    )
    gaps, chosen = hidden[first], columns[first]
    both = gaps[:, :, None] & gaps[:, None, :]
    # The identity outside the hidden block lets `inv` invert this block alone.
    masked = np.where(both, precision, 0.0) + np.eye(len(precision)) * ~gaps[:, None]
    covariance = np.linalg.inv(masked)
    rows = np.arange(len(first))[:, None, None]
    own = covariance[rows, chosen[:, :, None], chosen[:, None, :]]
    out = np.linalg.cholesky(0.5 * (own + np.swapaxes(own, 1, 2)))
    return np.asarray(out[group.reshape(-1)])
