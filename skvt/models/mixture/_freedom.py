"""The search for the degrees of freedom nu of a prior of Gaussian precisions Lambda.

The prior is a Wishart distribution of D x D matrices with the scale matrix W, or a product of gamma
distributions of the D diagonal entries, if Lambda is diagonal. The search finds the nu for which
the prior's expectation of log|Lambda| has a given value. Learners of the prior call
:func:`find_freedom`.
"""

from typing import Any

import numpy as np

from skvt._compiled import digamma, exp, jit, log
from skvt.typing import Array

# Learned degrees of freedom exceed the lower limit of the distribution by at least this number.
MIN_EXCESS_FREEDOM = 1e-2
# The search ends when its interval of log(nu - lower limit) has this width.
_FINAL_WIDTH = 1e-12


def _log_determinant(precision: Array) -> float:
    """Return the log determinant of a matrix, or of the diagonal matrix with this diagonal."""
    if precision.ndim == 2:
        return float(np.linalg.slogdet(precision)[1])
    return float(np.log(precision).sum())


def get_min_freedom(inverse_scale: Any) -> float:
    """Return the lower limit of nu: D - 1 if the inverse scale W^-1 is a matrix, otherwise 0."""
    return len(inverse_scale) - 1.0 if np.ndim(inverse_scale) == 2 else 0.0


def freedom_limits(n_features: int, min_nu: float) -> tuple[float, float]:
    """Return the range of nu - ``min_nu`` in which nu is learned.

    ``min_nu`` is the result of :func:`get_min_freedom`. Learned degrees of freedom are at most
    twice the number of columns.
    """
    return MIN_EXCESS_FREEDOM, 2.0 * n_features - min_nu


def find_freedom(
    log_det: float, precision: Array, inverse_scale: Any, limits: tuple[float, float]
) -> float:
    """Return nu at which the prior's expectation of log|Lambda| is ``log_det``.

    For a matrix, the expectation is ``sum_i digamma((nu - i) / 2) + D log 2 - log|W^-1|``, a sum
    over i = 0, ..., D - 1. For D gammas of shape nu / 2, each i is replaced by 0.

    Parameters
    ----------
    log_det : float
        Average of E[log|Lambda|] over components.
    precision : ndarray, shape (D, D) or (D,)
        Average of E[Lambda] over components, or its diagonal.
    inverse_scale : array-like or None
        W^-1. None stands for ``nu precision^-1``, which is the best choice given nu.
    limits : tuple of float
        The result of :func:`freedom_limits`.
    """
    size, is_matrix = len(precision), precision.ndim == 2
    # log|W^-1|, without the term D log nu of the best choice, which the solver adds.
    log_det_inverse_scale = -_log_determinant(precision)
    if inverse_scale is not None:
        inverse_scale = np.asarray(inverse_scale).reshape(precision.shape)
        log_det_inverse_scale = _log_determinant(inverse_scale)
    excess = log_det - size * np.log(2.0) + log_det_inverse_scale
    low, high = np.log(limits)
    return float(_solve_for_freedom(excess, size, is_matrix, inverse_scale is None, low, high))


@jit
def _solve_for_freedom(
    excess: float, size: int, is_matrix: bool, scale_depends_on_nu: bool, low: float, high: float
) -> float:
    """Return nu by bisection over log(nu - lower limit), between ``low`` and ``high``.

    Let the excess at nu be ``log_det`` minus the expectation of log|Lambda|. The argument
    ``excess`` has its terms that do not contain nu. The excess falls with nu, so that nu is too
    small where the excess is positive.
    """
    min_nu = size - 1.0 if is_matrix else 0.0
    while high - low > _FINAL_WIDTH:
        middle = 0.5 * (low + high)
        nu = min_nu + exp(middle)
        excess_at_nu = excess + (size * log(nu) if scale_depends_on_nu else 0.0)
        for i in range(size):
            excess_at_nu -= digamma(0.5 * (nu - (i if is_matrix else 0.0)))
        if excess_at_nu > 0.0:
            low = middle
        else:
            high = middle
    return min_nu + exp(0.5 * (low + high))
