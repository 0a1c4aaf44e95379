"""Functions of all rows of a data set, in memory or in chunks.

Rows are an array or a CSR matrix in memory, or chunks that are loaded where they are used. The
functions with the decorator ``singledispatch`` are for rows in memory. :mod:`skvt.inference`
registers their versions for :class:`~skvt.inference.Chunks`, except of
:func:`get_design_and_allowed`, because chunks have no covariates. The number of rows is n, and the
number of columns is D.
"""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp

from skvt.typing import Array, IndexArray

#: A function of X and weights that returns sums over rows, as arrays or numbers. It can be pickled,
#: so that other processes can call it.
SumsFunction: TypeAlias = Callable[[Any, Array], tuple[Any, ...]]


@singledispatch
def sums_of_rows(X: Any, weights: Any, compute_sums: SumsFunction) -> tuple[Any, ...]:
    """Return the sums ``compute_sums(X, weights)`` over all rows.

    For chunks, ``compute_sums`` is called for each chunk, and the results are added up.
    """
    return compute_sums(X, weights)


def sum_total_and_weight(X: Any, weights: Array) -> tuple[Any, ...]:
    """Return the weighted sum of all entries and the sum of weights, for `sums_of_rows`."""
    return weights @ X.sum(axis=1, dtype=np.float64), weights.sum()


def sum_columns(X: Any, weights: Array) -> tuple[Any, ...]:
    """Return weighted sums of columns, (D,), and the sum of weights, for `sums_of_rows`."""
    return np.asarray(X.T @ weights, np.float64), weights.sum()


def has_sparse_rows(X: Any, weights: Any) -> bool:
    """Return whether the rows, or the rows of any chunk, are sparse."""
    (n_sparse,) = sums_of_rows(X, weights, _is_sparse)
    return bool(n_sparse)


def _is_sparse(X: Any, weights: Array) -> tuple[Any, ...]:
    """Return 1 if the rows are sparse, else 0, for `sums_of_rows`."""
    return (float(sp.issparse(X)),)


class Documents(sp.csr_array):
    """Counts of the words of documents, with the covariates and allowed topics of the documents.

    ``design`` (n, P) has the values of the P regressors that encode the covariates, and ``allowed``
    (n, K) tells which of the K topics each document may have; either may be None. ``n_documents``
    is the number of documents that the rows of a fit, or of the first call of a stream, represent.
    It is None for all other rows.
    """

    design: Array | None
    allowed: Array | None
    n_documents: float | None

    @classmethod
    def of(
        cls, X: Any, design: Array | None, n_documents: float | None = None,
        allowed: Array | None = None,
    ) -> Self:  # fmt: skip
        """Return the counts X with the arrays ``design`` and ``allowed``, which are not copied."""
        documents = cls(X)
        documents.design = design
        documents.allowed = allowed
        documents.n_documents = n_documents
        return documents

    def __getitem__(self, rows: Any) -> Any:
        """Return rows with their covariates and allowed topics."""
        design = None if self.design is None else self.design[rows]
        allowed = None if self.allowed is None else self.allowed[rows]
        return self.of(sp.csr_array(self)[rows], design, allowed=allowed)


@singledispatch
def get_design_and_allowed(X: Any) -> tuple[Array | None, Array | None]:
    """Return the design and the allowed topics of :class:`Documents`; None for other rows."""
    return None, None


@get_design_and_allowed.register
def _get_design_and_allowed_of_documents(X: Documents) -> tuple[Array | None, Array | None]:
    """Return the attributes ``design`` and ``allowed``."""
    return X.design, X.allowed


def collect_details(covariates: Any, allowed_topics: Any) -> dict[str, Any]:
    """Return the details of documents by name: the arguments that are not None."""
    details = {"covariates": covariates, "allowed_topics": allowed_topics}
    return {name: value for name, value in details.items() if value is not None}


def pieces(stop: int, step: int, start: int = 0) -> list[slice]:
    """Return consecutive slices of length ``step`` from ``start`` to ``stop``.

    The last slice may be shorter.
    """
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]


def dense(X: Any) -> Any:
    """Return rows as a dense array."""
    return X.toarray() if sp.issparse(X) else X


def stack_rows(arrays: Sequence[Any]) -> Any:
    """Concatenate the rows of arrays; return a CSR array if any of them is sparse."""
    if any(map(sp.issparse, arrays)):
        return sp.vstack([sp.csr_array(array) for array in arrays], format="csr")
    return np.concatenate(arrays)


def without_missing(X: Any) -> tuple[Any, Any]:
    """Return X with 0 in place of missing values, and a mask of the missing values.

    The mask has the format of X, and is None if no value is missing.
    """
    values = X.data if sp.issparse(X) else X
    is_missing = np.isnan(values)
    if not is_missing.any():
        return X, None
    filled = np.where(is_missing, values.dtype.type(0.0), values)
    if sp.issparse(X):
        return tuple(sp.csr_array((a, X.indices, X.indptr), X.shape) for a in (filled, is_missing))
    return filled, is_missing


@singledispatch
def evaluate_rows(X: Any, weights: Any, function: Callable[[Any], Array]) -> Array:
    """Return ``function(X)``, a number for each row, (n,)."""
    return function(X)


@singledispatch
def take_rows(X: Any, weights: Any, rows: IndexArray) -> tuple[Any, Array]:
    """Return the rows with the numbers ``rows``, and their weights, in memory."""
    return X[rows], weights[rows]


@singledispatch
def map_rows(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return the rows ``function(X)``.

    The function keeps the number of rows, and can be pickled.
    """
    return function(X)


@singledispatch
def get_chunk_sizes(X: Any) -> IndexArray:
    """Return the number of rows of each chunk; an empty array for rows in memory."""
    return np.empty(0, np.int64)
