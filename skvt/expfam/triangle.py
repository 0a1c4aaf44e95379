"""Conversion between symmetric matrices (D, D) and vectors of their upper triangles, row by row.

Leading axes enumerate matrices.
"""

from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np

from skvt._compiled import jit
from skvt.typing import Array, IndexArray


def dimension(length: int) -> int:
    """Return D for an upper triangle of ``length = D (D + 1) / 2`` entries."""
    D = (isqrt(8 * length + 1) - 1) // 2 if length > 0 else 0
    if D == 0 or D * (D + 1) // 2 != length:
        raise ValueError(
            "The upper triangle of a symmetric matrix has D (D + 1) / 2 entries for D rows. Got "
            f"{length} entries, which is not such a number."
        )
    return D


class _TriangleIndices(NamedTuple):
    """Indices of the P entries of upper triangles of matrices (D, D)."""

    # (P,): position of each entry of the triangle in the flattened matrix.
    flat: IndexArray
    # (D, D): position of each element of the matrix in the triangle.
    positions: IndexArray
    # (P,): factors by which :func:`pack_statistic` multiplies the entries of the triangle.
    factors: Array


@lru_cache(maxsize=16)
def _get_indices(D: int) -> _TriangleIndices:
    """Return the indices of the upper triangles of matrices (D, D)."""
    rows, columns = np.triu_indices(D)
    positions = np.empty((D, D), dtype=np.intp)
    positions[rows, columns] = positions[columns, rows] = np.arange(rows.size)
    factors = np.where(rows == columns, -0.5, -1.0)
    indices = _TriangleIndices(rows * D + columns, positions, factors)
    for array in indices:
        # Forbid writing, because the cache returns the same arrays to all callers.
        array.setflags(write=False)
    return indices


def pack(matrix: Array) -> Array:
    """Return upper triangles (..., D (D + 1) / 2) of matrices (..., D, D)."""
    D = matrix.shape[-1]
    return matrix.reshape(*matrix.shape[:-2], D * D).take(_get_indices(D).flat, axis=-1)


def unpack(triangle: Array) -> Array:
    """Return symmetric matrices (..., D, D) of upper triangles (..., D (D + 1) / 2)."""
    return triangle.take(_get_indices(dimension(triangle.shape[-1])).positions, axis=-1)


def pack_outer(x: Array) -> Array:
    """Return upper triangles (..., D (D + 1) / 2) of ``x x'`` for vectors x (..., D)."""
    D = x.shape[-1]
    vectors = np.ascontiguousarray(x, np.float64).reshape(-1, D)
    triangles = np.empty((len(vectors), D * (D + 1) // 2))
    _write_outer(vectors, triangles)
    return triangles.reshape(*x.shape[:-1], triangles.shape[1])


@jit
def _write_outer(vectors: Array, triangles: Array) -> None:
    """Write the upper triangle of ``x x'`` of each vector x, without temporary arrays."""
    n_vectors, D = vectors.shape
    for vector in range(n_vectors):
        entry = 0
        for i in range(D):
            for j in range(i, D):
                triangles[vector, entry] = vectors[vector, i] * vectors[vector, j]
                entry += 1


def pack_statistic(precision: Array) -> Array:
    """Return upper triangles of ``-Lambda``, halved on the diagonal.

    ``precision`` has Lambda (..., D, D). The inner product of the result with the upper triangle of
    a symmetric S is ``-tr(S Lambda) / 2``, so that natural parameters and statistics, such as
    sum x x', need no factors.
    """
    return pack(precision) * _get_indices(precision.shape[-1]).factors


def unpack_statistic(statistic: Array) -> Array:
    """Return the matrices (..., D, D) of which ``statistic`` is the :func:`pack_statistic`."""
    return unpack(statistic / _get_indices(dimension(statistic.shape[-1])).factors)
