"""Functions and types that several families of distributions over Gaussian parameters use."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gamma import MIN_DRAW, log_standard_gamma
from skvt.typing import Array


class MeanPrecision(NamedTuple):
    """Means and precisions of Gaussians, the draws of normal-Wishart and normal-gamma families."""

    # (..., D): the means.
    mean: Array
    # (..., D, D) or (...): the inverses of the covariance matrices, or of one variance for all D
    # columns.
    precision: Array


def join(*values: ArrayLike) -> Array:
    """Concatenate arrays (..., n_i) along the last axis in float64; leading axes are broadcast."""
    arrays = [np.asarray(value, dtype=np.float64) for value in values]
    leading_shapes = {array.shape[:-1] for array in arrays}
    # Broadcast only if shapes differ, because broadcasting takes longer than all other lines.
    if len(leading_shapes) > 1:
        leading_shape = np.broadcast_shapes(*leading_shapes)
        arrays = [np.broadcast_to(array, leading_shape + array.shape[-1:]) for array in arrays]
    return np.concatenate(arrays, axis=-1)


def standard_gamma(shape: Array, rng: np.random.Generator) -> Array:
    """Draw a gamma variate of rate 1 for each shape; it is never 0."""
    return np.maximum(np.exp(log_standard_gamma(shape, rng)), MIN_DRAW)
