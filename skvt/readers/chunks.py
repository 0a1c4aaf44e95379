"""Rows of Dask: arrays, data frames and lists of delayed chunks as estimators take them.

dask is imported only if the input is a collection of Dask.
"""

import sys
from dataclasses import replace
from functools import wraps
from typing import NamedTuple

import numpy as np

from skvt.inference import (
    Chunk,
    Chunks,
    ChunkWeights,
    Handle,
    Sealed,
    active_site,
    name_chunk_in_errors,
    summarize_chunk,
)
from skvt.readers.validation import refuse_masked_weights


def is_chunked(X):
    """Whether X is a collection of Dask, or a list of delayed chunks."""
    if "dask" not in sys.modules:  # nobody can have made one
        return False
    from dask.base import is_dask_collection

    if isinstance(X, list | tuple):
        return bool(X) and all(is_dask_collection(part) for part in X)
    return is_dask_collection(X)


def require_rows_in_memory(X, whom):
    """Raise TypeError for chunks where a method takes rows in memory only."""
    if is_chunked(X):
        raise TypeError(
            f"{whom} takes rows in memory. Got rows of Dask; call it with one chunk after the "
            "other, such as X.partitions[0].compute() of a data frame, X.blocks[0].compute() of an "
            "array."
        )


class Loads(NamedTuple):
    """Delayed chunks of rows, the weights of each (delayed, or None) and its length (or NaN)."""

    rows: list
    weights: list
    lengths: list
    has_one_dtype: bool

    @property
    def handles(self):
        """Handles of the chunks of rows."""
        return [Handle(number, rows) for number, rows in enumerate(self.rows)]


def loads_of(X, sample_weight=None):
    """The chunks of X with their weights; ValueError or TypeError if they do not fit together."""
    rows, lengths = _delayed_chunks(X)
    weights = _weights_of_chunks(sample_weight, lengths)
    return Loads(rows, weights, lengths, has_one_dtype=not isinstance(X, list | tuple))


def _weights_of_chunks(sample_weight, lengths):
    """Arrays or delayed objects of the weights of chunks of these lengths, or Nones."""
    if sample_weight is None:
        return [None] * len(lengths)
    if not is_chunked(sample_weight):
        refuse_masked_weights(sample_weight)
        given = np.asarray(sample_weight)
        if given.shape != (sum(lengths),):
            raise ValueError(
                "sample_weight must be a Dask array with the chunks of X, or an array of shape "
                f"(n_samples,) where the lengths of chunks are known: {sum(lengths)}. Got an array "
                f"of shape {given.shape}."
            )
        return np.split(given, np.cumsum(lengths)[:-1])
    if _is_delayed(sample_weight):
        sample_weight = [sample_weight]
    ndim = getattr(sample_weight, "ndim", 1)
    if ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {ndim}D array.")
    chunks = getattr(sample_weight, "chunks", None)
    known = not np.isnan(lengths).any() and chunks is not None and not np.isnan(chunks[0]).any()
    if known and tuple(chunks[0]) != tuple(lengths) and sum(chunks[0]) == sum(lengths):
        sample_weight = sample_weight.rechunk((tuple(lengths),))
    weights, _ = _delayed_chunks(sample_weight)
    if len(weights) != len(lengths):
        raise ValueError(
            f"sample_weight must have the chunks of X. Got {len(weights)} chunks of weights for "
            f"{len(lengths)} chunks of rows; rechunk or repartition them."
        )
    return weights


def _delayed_chunks(X):
    """Delayed objects of the chunks, and their lengths, NaN where not known."""
    if isinstance(X, list | tuple):
        return list(X), [np.nan] * len(X)
    if _is_delayed(X):
        return [X], [np.nan]
    if hasattr(X, "numblocks"):  # of dask.array
        if X.ndim == 0 or X.ndim > 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D array instead.")
        if X.ndim == 2 and X.numblocks[1] != 1:
            raise ValueError(
                f"Each chunk must have all columns. Got {X.numblocks[1]} chunks of columns; use "
                "X.rechunk({1: -1})."
            )
        if X.dtype is not None and X.dtype.kind in "OSUT":
            raise TypeError(
                f"A Dask array must hold numbers. Got the dtype {X.dtype}; use X.astype(float), or "
                "a dask.dataframe for columns of several types."
            )
        return X.to_delayed().ravel().tolist(), list(X.chunks[0])
    return X.to_delayed(), [np.nan] * X.npartitions  # of dask.dataframe


def _is_delayed(X):
    """Whether X is one delayed object, which has any attribute that it is asked for."""
    from dask.delayed import Delayed

    return isinstance(X, Delayed)


def rows_read(reader, X, sample_weight):
    """Fit the reader to X. Return it, the rows of positive weight as numbers, and their weights."""
    if is_chunked(X):
        return _chunks_of(reader, loads_of(X, sample_weight))
    return reader.first_weighted(X, sample_weight)


def _chunks_of(reader, loads):
    """Fit the reader to the chunks. Return it, the chunks read as numbers, and their weights.

    The numbers stay where the chunks are, on the cluster.
    """
    from dask.delayed import delayed

    site = active_site()
    try:
        if reader.dtype is None:
            reader = _fitted_reader(reader, loads, site)
        read = delayed(_block, pure=False)
        shared = delayed(Sealed(reader))
        blocks = [
            Handle(number, read(shared, rows, weights, weights is not None))
            for number, (rows, weights) in enumerate(zip(loads.rows, loads.weights, strict=True))
        ]
        # Measure one block before the cluster is asked to keep all of them.
        (first,) = site.each(summarize_chunk, [(blocks[0], ())])
        handles = site.hold(blocks, first.nbytes * len(blocks))
        summaries = list(site.each(summarize_chunk, ((handle, ()) for handle in handles)))
        used = [i for i, summary in enumerate(summaries) if summary.n_rows]
        if not used:
            raise ValueError(
                "Found array with 0 sample(s) of positive weight while a minimum of 1 is "
                f"required by {reader.owner.__name__}."
            )
        used_handles = [handles[i]._replace(n_rows=summaries[i].n_rows) for i in used]
        X = Chunks(site, used_handles, [summaries[i] for i in used])
    except BaseException:
        site.close()
        raise
    return reader, X, ChunkWeights(X)


def _fitted_reader(reader, loads, site):
    """Fit the reader: scan all chunks if it needs that, then read a first row.

    The dtype is float32 only if it is that of every chunk.
    """
    handles = loads.handles
    if reader.needs_scan:
        scans = enumerate(site.each(_scan, ((handle, (reader,)) for handle in handles)))
        reader = reader.scanned({number: scan for number, scan in scans if scan is not None})
    for handle in handles:
        (row,) = site.each(_first_row, [(handle, ())])
        if row.shape[0]:
            with name_chunk_in_errors(handle.number):
                fitted, _ = reader.first(row)
            break
    else:  # no chunk has rows: the reader raises its usual error
        fitted, _ = reader.first(row)
    if fitted.dtype == np.float32 and not loads.has_one_dtype:
        others = site.each(_dtype_of_rows, ((handle, (reader,)) for handle in handles))
        dtype = np.result_type(*(other for other in others if other is not None))
        fitted = replace(fitted, dtype=dtype)
    return fitted


def _n_rows(chunk):
    """Number of rows of a chunk; TypeError if it has none."""
    if not getattr(chunk, "shape", ()):
        raise TypeError(
            "A chunk must be rows: an array, a CSR matrix or a data frame. Got an object of type "
            f"{type(chunk).__name__}."
        )
    return chunk.shape[0]


def _first_row(chunk):
    _n_rows(chunk)
    return chunk.iloc[:1] if hasattr(chunk, "iloc") else chunk[:1]


def _scan(chunk, reader):
    return reader.scan(chunk) if _n_rows(chunk) else None


def _dtype_of_rows(chunk, reader):
    return reader.first(_first_row(chunk))[0].dtype if _n_rows(chunk) else None


def _block(sealed, chunk, weights, is_weighted):
    """Read a chunk: numeric rows of positive weight, and their weights."""
    reader = sealed.value
    if _n_rows(chunk) == 0:
        return Chunk(np.empty((0, reader.columns["n_features_in_"]), reader.dtype), np.empty(0))
    X = reader.read(chunk)
    refuse_masked_weights(weights)
    weights = np.asarray(weights) if is_weighted else None
    if is_weighted and weights.shape == X.shape[:1] and np.all(weights == 0.0):
        return Chunk(X[:0], np.empty(0))  # legal, because other chunks may have positive weights
    return Chunk(*reader.weighted(X, weights))


def loaded(rows, weights):
    """Compute a chunk and its weights; return None if it has no rows."""
    import dask

    is_weighted = weights is not None
    rows, weights = dask.compute(rows, weights)
    return (rows, np.asarray(weights) if is_weighted else None) if _n_rows(rows) else None


def released(X):
    """Let the workers of a cluster free these rows."""
    if hasattr(X, "site"):
        X.site.close()


# ------------------------------------------------------------------------------- row by row
def by_chunk(describe):
    """Decorate a method that is lazy for chunks.

    ``describe`` gives the number of columns of its result, None for a vector, and the dtype.
    """

    def decorate(method):
        @wraps(method)
        def of_rows(self, X, *args, **kwargs):
            if not is_chunked(X):
                return method(self, X, *args, **kwargs)
            self._require_fitted()
            width, dtype = describe(self, *args, **kwargs)
            return _lazily(self, (method.__name__, args, kwargs), X, (width, dtype))

        return of_rows

    return decorate


def _lazily(estimator, request, X, shape):
    """Apply a method lazily to each chunk; return a Dask array of shape (n,) or (n, width)."""
    import dask.array as da
    from dask.delayed import delayed

    X = [X] if _is_delayed(X) else X
    width, dtype = shape
    trailing = () if width is None else (width,)
    loads = loads_of(X)
    if getattr(X, "ndim", 2) == 2 and hasattr(X, "shape"):
        given, expected = X.shape[1], estimator.n_features_in_
        if given != expected:
            raise ValueError(
                f"X has {given} features, but {type(estimator).__name__} is expecting {expected} "
                "features as input."
            )
    fitted = delayed(Sealed(estimator._without_rows()))
    call = delayed(_of_chunk, pure=False)
    sealed = Sealed(request)
    parts = [
        da.from_delayed(
            call(number, fitted, sealed, rows, shape), shape=(length, *trailing), dtype=dtype,
            meta=np.empty((0,) * (1 + len(trailing)), dtype),
        )
        for number, (rows, length) in enumerate(zip(loads.rows, loads.lengths, strict=True))
    ]  # fmt: skip
    return da.concatenate(parts, axis=0, allow_unknown_chunksizes=True)


def _of_chunk(number, fitted, sealed, chunk, shape):
    name, args, kwargs = sealed.value
    width, dtype = shape
    with name_chunk_in_errors(number):
        if _n_rows(chunk) == 0:
            return np.empty((0,) if width is None else (0, width), dtype)
        found = getattr(fitted.value, name)(chunk, *args, **kwargs)
    return np.asarray(found, dtype)


def sums_over(estimator, X, details=None):
    """Sum ``estimator._completion_sums(rows)``, which add up over rows, over all of X.

    Only rows in memory may have ``details``.
    """
    estimator._require_fitted()
    if not is_chunked(X):
        return estimator._completion_sums(estimator._read(X, details))
    fitted, loads, site = estimator._without_rows(), loads_of(X), active_site()
    try:
        tasks = ((handle, (fitted,)) for handle in loads.handles)
        found = [part for part in site.each(_sums_of, tasks) if part is not None]
    finally:
        site.close()
    return tuple(map(sum, zip(*found, strict=True)))


def _sums_of(chunk, fitted):
    return fitted._completion_sums(fitted._read(chunk)) if _n_rows(chunk) else None
