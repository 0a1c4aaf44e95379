"""The search for the degrees of freedom nu of a prior of Gaussian precisions Lambda.

The prior has the scale matrix W, and nu is such that the prior's expectation of log|Lambda| has a
given value.
"""

from typing import Any

import numpy as np

from skvt._compiled import digamma, exp, jit, log
from skvt.typing import Array

# Learned degrees of freedom exceed their lower limit by at least this number.
MIN_FREEDOM = 1e-2
# The search for degrees of freedom ends when its interval of logarithms is this narrow.
_MIN_STEP = 1e-12


def _log_determinant(precision: Array) -> float:
    """Return the log determinant of a matrix, or of the diagonal matrix with this diagonal."""
    if precision.ndim == 2:
        return float(np.linalg.slogdet(precision)[1])
    return float(np.log(precision).sum())


def min_freedom(scale: Any) -> float:
    """Return the lower limit of the degrees of freedom of a prior with this scale."""
    return len(scale) - 1.0 if np.ndim(scale) == 2 else 0.0


def freedom_limits(n_features: int, lowest: float) -> tuple[float, float]:
    """Return the range of nu - ``lowest``, where ``lowest`` is the lower limit of nu.

    Learned degrees of freedom are at most twice the number of columns.
    """
    return MIN_FREEDOM, 2.0 * n_features - lowest


def degrees_of_freedom(
    log_det: float, precision: Array, scale: Any, limits: tuple[float, float]
) -> float:
    """Return nu at which the prior's expectation of log|Lambda| is ``log_det``.

    For a matrix, the expectation is ``sum_i digamma((nu - i) / 2) + D log 2 - log|W^-1|`` with i =
    0, ..., D - 1. For D gammas of shape nu / 2, it is the same with i = 0 in all terms.
    ``precision`` is the average of E[Lambda], and ``scale`` is W^-1. If ``scale`` is None, W^-1 is
    the best scale ``nu precision^-1``. ``limits`` are the results of :func:`freedom_limits`.
    """
    size, is_matrix = len(precision), precision.ndim == 2
    # log|W^-1|. If W^-1 is the best one, the solver adds the term D log nu.
    log_det_scale = -_log_determinant(precision)
    if scale is not None:
        log_det_scale = _log_determinant(np.asarray(scale).reshape(precision.shape))
    excess = log_det - size * np.log(2.0) + log_det_scale
    low, high = np.log(limits)
    return float(_solve_for_freedom(excess, size, is_matrix, scale is None, low, high))


@jit
def _solve_for_freedom(
    excess: float, size: int, is_matrix: bool, scale_is_free: bool, low: float, high: float
) -> float:
    """Return nu by bisection over log(nu - lower limit), between ``low`` and ``high``.

    ``excess`` is the given log|Lambda| minus its expectation, without the terms that contain nu.
    """
    lowest = size - 1.0 if is_matrix else 0.0
    while high - low > _MIN_STEP:
        middle = 0.5 * (low + high)
        nu = lowest + exp(middle)
        excess_at_nu = excess + (size * log(nu) if scale_is_free else 0.0)
        for i in range(size):
            excess_at_nu -= digamma(0.5 * (nu - (i if is_matrix else 0.0)))
        if excess_at_nu > 0.0:
            low = middle
        else:
            high = middle
    return lowest + exp(0.5 * (low + high))
