"""Choices among floating-point numbers that rounding cannot flip.

Numbers that are equal in exact arithmetic, such as the weights of components with equally many rows
or the bounds of two symmetric changes, differ in their last digits after rounding. The sign of the
difference depends on the machine, because the order of additions in BLAS depends on the processor.
Plain comparisons of such numbers would give other labels, other moves or another optimum on another
machine.

In the functions of this module, numbers that differ by less than a relative tolerance are tied, and
ties go to the first candidate. Callers list their candidates in an order that does not depend on
the processor: the order of creation of components, or of columns.
"""

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from skvt.typing import IndexArray

# Relative differences below which numbers are tied, by precision. The tolerances are far above the
# rounding errors of long sums, and far below differences that matter.
RTOL = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}


def _get_rtol(dtype: DTypeLike | None, default: DTypeLike = np.float64) -> float:
    """Return the tolerance for numbers computed in ``dtype``; None means ``default``.

    Types that are not in RTOL, such as integers, have the tolerance of float64.
    """
    return RTOL.get(np.dtype(default if dtype is None else dtype), RTOL[np.dtype(float)])


def stable_order(
    values: ArrayLike, *, scale: float = 0.0, dtype: DTypeLike | None = None
) -> IndexArray:
    """Return indices that sort values in ascending order; tied values keep their order.

    Neighbours in sorted order are tied if they differ by no more than the tolerance. Ties are
    transitive: the first and the last of three numbers are tied if both are tied with the middle
    one. If ties were not transitive, the order would depend on the sorting method. Values may be
    infinite, but not NaN.

    The tolerance is relative to the larger size of the two numbers, or to ``scale`` if that is
    larger. If values are differences, ``scale`` is the size of their terms. ``dtype`` is the
    precision of the computation if it is lower than that of ``values``.
    """
    values = np.asarray(values)
    # Sorted values keep their order, whether they are tied or not.
    if np.all(values[1:] >= values[:-1]):
        return np.arange(values.size)
    order = np.argsort(values, kind="stable")
    sorted_values = values[order].astype(np.float64)
    rtol = _get_rtol(dtype, values.dtype)
    # Whether each value but the first is above the value before it, rather than tied with it.
    is_above = _exceeds(sorted_values[1:], sorted_values[:-1], scale, rtol)
    if is_above.all():
        return order
    # Number of the group of tied values to which each value belongs, in sorted order.
    groups = np.concatenate([[0], is_above.cumsum()])
    # Sort by group, and within a group by index.
    return order[np.lexsort((order, groups))]


def first_of_order(values: ArrayLike, number: int, *, dtype: DTypeLike | None = None) -> IndexArray:
    """Return the first ``number`` indices of :func:`stable_order` without sorting all values."""
    values = np.asarray(values)
    if number >= values.size:
        return stable_order(values, dtype=dtype)
    doubles = values.astype(np.float64)
    rtol = _get_rtol(dtype, values.dtype)
    # Select all values that are at most ``limit`` or tied with it. Raise ``limit`` to the largest
    # selected value, and repeat until no further value is tied.
    limit = np.partition(doubles, number - 1)[number - 1]
    previous_limit = None
    while limit != previous_limit:
        selected = np.flatnonzero(~_exceeds(doubles, limit, 0.0, rtol))
        previous_limit = limit
        limit = doubles[selected].max()
    return selected[stable_order(values[selected], dtype=dtype)[:number]]


def stable_argmax(
    values: ArrayLike, *, scale: ArrayLike = 0.0, dtype: DTypeLike | None = None
) -> Any:
    """Return the first index along the last axis whose value is tied with the maximum.

    ``scale`` and ``dtype`` are explained in :func:`stable_order`.
    """
    values = np.asarray(values)
    largest = values.max(axis=-1, keepdims=True)
    magnitude = np.maximum(_finite_abs(largest), scale)
    return np.argmax(values >= largest - _get_rtol(dtype, values.dtype) * magnitude, axis=-1)


def exceeds(a: Any, b: Any, *, scale: Any = 0.0, dtype: DTypeLike | None = None) -> Any:
    """Return whether a > b by more than the tolerance of :func:`stable_order`, by element.

    If a and b differ in precision, the lower precision determines the tolerance.
    """
    if isinstance(a, float) and isinstance(b, float) and isinstance(scale, float):
        # Without arrays, the comparison of two numbers takes a tenth of the time.
        magnitude = max(scale, *(abs(number) for number in (a, b) if isfinite(number)), 0.0)
        return float(a) - float(b) > _get_rtol(dtype) * magnitude
    a, b = np.asarray(a), np.asarray(b)
    rtol = max(_get_rtol(dtype, a.dtype), _get_rtol(dtype, b.dtype))
    is_above = _exceeds(a.astype(np.float64), b.astype(np.float64), scale, rtol)
    return bool(is_above) if is_above.ndim == 0 else is_above


def _exceeds(a: NDArray[Any], b: NDArray[Any], scale: ArrayLike, rtol: float) -> NDArray[np.bool_]:
    """Return whether a > b by more than ``rtol`` times the largest of |a|, |b| and scale."""
    with np.errstate(invalid="ignore"):
        magnitude = np.maximum(np.maximum(_finite_abs(a), _finite_abs(b)), scale)
        return a - b > rtol * magnitude


def _finite_abs(a: NDArray[Any]) -> NDArray[Any]:
    """Return absolute values, with 0 for values that are not finite."""
    return np.where(np.isfinite(a), np.abs(a), 0.0)
