"""Choices among floating-point numbers that rounding cannot flip.

The order of additions in BLAS depends on the processor. Numbers that are equal in exact arithmetic,
such as masses of components with equally many rows or bounds of two mirrored changes, therefore
differ in their last digits, with a sign that depends on the machine. Plain comparisons would turn
this into other labels, other moves, another optimum. Here numbers that differ by less than a
relative tolerance are tied, and ties go to the first candidate. Callers list their candidates in an
order that does not depend on the processor: the order of creation of components, or of columns.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from skvt.typing import IndexArray

# Relative differences below which numbers are tied: far above the rounding errors of long sums, far
# below differences that matter.
RTOL = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}


def _rtol(values: NDArray[Any], dtype: DTypeLike | None) -> float:
    """Return the tolerance for numbers computed in ``dtype``, by default that of ``values``."""
    return RTOL.get(np.dtype(values.dtype if dtype is None else dtype), RTOL[np.dtype(float)])


def stable_order(
    values: ArrayLike, *, scale: float = 0.0, dtype: DTypeLike | None = None
) -> IndexArray:
    """Return indices that sort values in ascending order; tied values keep their order.

    Neighbours in sorted order are tied if they differ by no more than the tolerance. Ties are
    transitive: otherwise the order of three numbers of which only neighbours are tied would depend
    on the sorting method. Values may be infinite, but not NaN.

    The tolerance is relative to the larger of two numbers and at least to ``scale``, the size of
    the terms of which differences were taken. ``dtype`` is the precision of the computation if it
    is lower than that of ``values``.
    """
    values = np.asarray(values)
    order = np.argsort(values, kind="stable")
    ranked = values[order].astype(np.float64)
    apart = _above(ranked[1:], ranked[:-1], scale, _rtol(values, dtype))
    group = np.concatenate([[0], apart.cumsum()]) if order.size else order
    return order[np.lexsort((order, group))]


def first_of_order(values: ArrayLike, number: int, *, dtype: DTypeLike | None = None) -> IndexArray:
    """Return the first indices of :func:`stable_order` without sorting all values."""
    values = np.asarray(values)
    if number >= values.size:
        return stable_order(values, dtype=dtype)
    wide, before = values.astype(np.float64), None
    last = np.partition(wide, number - 1)[number - 1]
    while last != before:  # include all values tied with the last one
        chosen = np.flatnonzero(~_above(wide, last, 0.0, _rtol(values, dtype)))
        last, before = wide[chosen].max(), last
    return chosen[stable_order(values[chosen], dtype=dtype)[:number]]


def stable_argmax(
    values: ArrayLike, *, scale: ArrayLike = 0.0, dtype: DTypeLike | None = None
) -> Any:
    """Return the first index tied with the maximum of the last axis, see `stable_order`."""
    values = np.asarray(values)
    largest = values.max(axis=-1, keepdims=True)
    size = np.maximum(_finite_size(largest), scale)
    return np.argmax(values >= largest - _rtol(values, dtype) * size, axis=-1)


def exceeds(
    a: ArrayLike, b: ArrayLike, *, scale: ArrayLike = 0.0, dtype: DTypeLike | None = None
) -> Any:
    """Return whether a > b by more than the tolerance, by element, as in `stable_order`."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    above = _above(a, b, scale, _rtol(a, dtype))
    return bool(above) if above.ndim == 0 else above


def _above(a: NDArray[Any], b: NDArray[Any], scale: ArrayLike, rtol: float) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.maximum(_finite_size(a), _finite_size(b)), scale)
        return a - b > rtol * size


def _finite_size(a: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(a), np.abs(a), 0.0)
