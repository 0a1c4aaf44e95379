"""Conversion between symmetric matrices and their upper triangles, vectors row by row."""

from functools import lru_cache
from math import isqrt

import numpy as np

from skvt.typing import Array, IndexArray


def dimension(length: int) -> int:
    """Return D for an upper triangle of ``length = D (D + 1) / 2`` entries."""
    D = (isqrt(8 * length + 1) - 1) // 2 if length > 0 else 0
    if D == 0 or D * (D + 1) // 2 != length:
        raise ValueError(f"No symmetric matrix has {length} entries in its upper triangle.")
    return D


@lru_cache(maxsize=16)
def _indices(D: int) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return the rows and the columns of the entries of a triangle, and positions (D, D) in it.

    The last array has the position in the triangle of each element of the matrix.
    """
    rows, columns = np.triu_indices(D)
    positions = np.empty((D, D), dtype=np.intp)
    positions[rows, columns] = positions[columns, rows] = np.arange(rows.size)
    for array in (rows, columns, positions):
        # Callers cannot write to the arrays, because the cache returns the same arrays to all.
        array.setflags(write=False)
    return rows, columns, positions


def pack(matrix: Array) -> Array:
    """Return upper triangles (..., D (D + 1) / 2) of matrices (..., D, D)."""
    D = matrix.shape[-1]
    rows, columns, _ = _indices(D)
    return np.take(matrix.reshape(*matrix.shape[:-2], D * D), rows * D + columns, axis=-1)


def unpack(triangle: Array) -> Array:
    """Return symmetric matrices (..., D, D) of upper triangles (..., D (D + 1) / 2)."""
    _, _, positions = _indices(dimension(triangle.shape[-1]))
    return np.take(triangle, positions, axis=-1)


def pack_outer(x: Array) -> Array:
    """Return upper triangles (..., D (D + 1) / 2) of ``x x'`` for vectors x (..., D)."""
    rows, columns, _ = _indices(x.shape[-1])
    return np.take(x, rows, axis=-1) * np.take(x, columns, axis=-1)


def pack_statistic(precision: Array) -> Array:
    """Return upper triangles of ``-Lambda``, halved on the diagonal.

    The inner product of the result with the upper triangle of a symmetric S is ``-tr(S Lambda) /
    2``, so that natural parameters and statistics such as sum x x' need no factors.
    """
    rows, columns, _ = _indices(precision.shape[-1])
    return pack(precision) * np.where(rows == columns, -0.5, -1.0)
