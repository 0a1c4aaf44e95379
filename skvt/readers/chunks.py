"""Rows of Dask: arrays, data frames and lists of delayed chunks, as estimators take them.

For a fit, each chunk of rows is read into a *block*: its rows of positive weight as numbers, and
their weights. The block stays on a worker of the cluster (:func:`read_rows_with`). Methods such as
``transform`` become lazy (:func:`apply_by_chunk`). The package dask is imported only if the input
is a collection of Dask. A *reader* checks rows and converts them to numbers, see
`skvt.readers._reader`.

A *site*, see :mod:`skvt.inference`, calls functions of chunks on a cluster or in this process. A
*handle* refers to a chunk, wherever it is. ``site.run_each(function, tasks)`` takes a pair
``(handle, arguments)`` for each chunk, and yields ``function(chunk, *arguments)``.
``SealedValue(x)`` keeps dask from looking for collections inside of x.
"""

import sys
from dataclasses import replace
from functools import wraps
from typing import NamedTuple

import numpy as np

from skvt.inference import (
    Chunk,
    ChunkHandle,
    Chunks,
    ChunkWeights,
    SealedValue,
    get_active_site,
    name_chunk_in_errors,
    summarize_chunk,
)
from skvt.readers.validation import refuse_masked_weights


def is_chunked(X):
    """Return whether X is a collection of Dask, or a list of delayed chunks."""
    # No collection can exist before dask is imported.
    if "dask" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    if isinstance(X, list | tuple):
        return bool(X) and all(is_dask_collection(collection) for collection in X)
    return is_dask_collection(X)


def require_rows_in_memory(X, caller):
    """Raise TypeError for rows of Dask, because the method ``caller`` takes rows in memory only."""
    if is_chunked(X):
        raise TypeError(
            f"{caller} takes rows in memory. Got rows of Dask; call it with one chunk after the "
            "other, such as X.partitions[0].compute() of a data frame or X.blocks[0].compute() of "
            "an array."
        )


class DelayedChunks(NamedTuple):
    """Chunks of rows that are not computed yet, with the weights and the length of each chunk."""

    # Delayed object of each chunk.
    rows: list
    # Weights of each chunk: a delayed object, an array, or None.
    weights: list
    # Number of rows of each chunk, NaN if the number is not known.
    lengths: list
    # Whether all chunks are known to have the same dtype.
    has_one_dtype: bool

    @property
    def handles(self):
        """Handles of the chunks of rows."""
        return [ChunkHandle(number, rows) for number, rows in enumerate(self.rows)]


def split_into_chunks(X, sample_weight=None):
    """Return the :class:`DelayedChunks` of X with their weights.

    Raise ValueError or TypeError if X or the weights are illegal, or do not fit together.
    """
    rows, lengths = _split_rows(X)
    weights = _split_weights(sample_weight, lengths)
    # Delayed chunks in a list may have different dtypes.
    return DelayedChunks(rows, weights, lengths, has_one_dtype=not isinstance(X, list | tuple))


def _split_weights(sample_weight, lengths):
    """Return a list with the weights of each chunk: an array, a delayed object or None.

    ``lengths`` are the numbers of rows of the chunks, NaN where they are not known.
    """
    if sample_weight is None:
        return [None] * len(lengths)
    if not is_chunked(sample_weight):
        refuse_masked_weights(sample_weight)
        weights = np.asarray(sample_weight)
        if weights.shape != (sum(lengths),):
            raise ValueError(
                "sample_weight must be a Dask array with the chunks of X, or an array of shape "
                f"(n_samples,) = ({sum(lengths)},) if the lengths of the chunks are known. Got an "
                f"array of shape {weights.shape}."
            )
        return np.split(weights, np.cumsum(lengths)[:-1])
    if _is_delayed(sample_weight):
        sample_weight = [sample_weight]
    ndim = getattr(sample_weight, "ndim", 1)
    if ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {ndim}D array.")
    # If X and the weights have the same known length, but other chunks, divide the weights into the
    # chunks of X. The attribute ``chunks`` of a vector has one element, the lengths of its chunks.
    (weight_lengths,) = getattr(sample_weight, "chunks", None) or ([np.nan],)
    are_known = not np.isnan(lengths).any() and not np.isnan(weight_lengths).any()
    if are_known and list(weight_lengths) != lengths and sum(weight_lengths) == sum(lengths):
        sample_weight = sample_weight.rechunk((tuple(lengths),))
    # A vector is split like rows.
    weights, _ = _split_rows(sample_weight)
    if len(weights) != len(lengths):
        raise ValueError(
            f"sample_weight must have the chunks of X. Got {len(weights)} chunks of weights and "
            f"{len(lengths)} chunks of rows; rechunk or repartition them."
        )
    return weights


def _split_rows(X):
    """Return the delayed chunks and their lengths, NaN where a length is not known."""
    if isinstance(X, list | tuple):
        return list(X), [np.nan] * len(X)
    if _is_delayed(X):
        return [X], [np.nan]
    is_array = hasattr(X, "numblocks")
    if is_array:
        # ``numblocks`` are the numbers of chunks along the axes.
        if X.ndim == 0 or X.ndim > 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D array instead.")
        if X.ndim == 2 and X.numblocks[1] != 1:
            raise ValueError(
                "Each chunk must have all columns. Got chunks that divide the columns into "
                f"{X.numblocks[1]} parts; use X.rechunk({{1: -1}})."
            )
        if X.dtype is not None and X.dtype.kind in "OSUT":
            raise TypeError(
                f"A Dask array must hold numbers. Got the dtype {X.dtype}; use X.astype(float), "
                "or a dask.dataframe for columns of several types."
            )
        return X.to_delayed().ravel().tolist(), list(X.chunks[0])
    return X.to_delayed(), [np.nan] * X.npartitions


def _is_delayed(X):
    """Return whether X is one delayed object.

    The class decides, because ``hasattr`` of a delayed object is true for every attribute.
    """
    from dask.delayed import Delayed

    return isinstance(X, Delayed)


def read_rows_with(reader, X, sample_weight):
    """Read X. Return the fitted reader, the rows of positive weight as numbers, and their weights.

    A reader that was fitted before remains as it is. For rows of Dask, the results are
    :class:`~skvt.inference.Chunks` for the rows and :class:`~skvt.inference.ChunkWeights` for the
    weights.
    """
    if is_chunked(X):
        return _read_chunks(reader, split_into_chunks(X, sample_weight))
    return reader.fit_and_read_weighted(X, sample_weight)


def _read_chunks(reader, chunks):
    """Read the :class:`DelayedChunks`. Return the fitted reader, the rows, and their weights.

    The blocks stay on the workers if they fit in memory; otherwise chunks are read again whenever
    their block is needed.
    """
    from dask.delayed import delayed

    site = get_active_site()
    try:
        # The reader has no dtype before it is fitted.
        if reader.dtype is None:
            reader = _fit_reader(reader, chunks, site)
        # With pure=False, dask does not hash the arguments to find equal calls.
        read_block = delayed(_read_block, pure=False)
        sealed_reader = delayed(SealedValue(reader))
        blocks = [
            ChunkHandle(number, read_block(sealed_reader, rows, weights, weights is not None))
            for number, (rows, weights) in enumerate(zip(chunks.rows, chunks.weights, strict=True))
        ]
        # The cluster keeps the blocks only if they fit in memory. Measure the first block, to
        # estimate the size of all blocks.
        (first_summary,) = site.run_each(summarize_chunk, [(blocks[0], ())])
        handles = site.keep_blocks(blocks, first_summary.nbytes * len(blocks))
        summaries = list(site.run_each(summarize_chunk, ((handle, ()) for handle in handles)))
        # Leave out blocks without rows of positive weight.
        used_numbers = [i for i, summary in enumerate(summaries) if summary.n_rows]
        if not used_numbers:
            raise _no_rows_error(reader)
        used_handles = [handles[i]._replace(n_rows=summaries[i].n_rows) for i in used_numbers]
        X = Chunks(site, used_handles, [summaries[i] for i in used_numbers])
    except BaseException:
        # Let the workers free the blocks.
        site.close()
        raise
    return reader, X, ChunkWeights(X)


def _no_rows_error(reader):
    """Return the error for chunks without any row of positive weight."""
    return ValueError(
        "Found array with 0 sample(s) of positive weight while a minimum of 1 is required by "
        f"{reader.owner.__name__}."
    )


def _fit_reader(reader, chunks, site):
    """Return the fitted reader: scan all chunks if the reader needs that, then read one row.

    The precision is float32 only if all chunks have float32.
    """
    handles = chunks.handles
    if reader.needs_scan:
        scans = enumerate(site.run_each(_scan_chunk, ((handle, (reader,)) for handle in handles)))
        scans_of_rows = {number: scan for number, scan in scans if scan is not None}
        reader = reader.learn_from_scans(scans_of_rows)
    # Fit the reader to the first row of the first chunk that has rows.
    for handle in handles:
        (row,) = site.run_each(_get_first_row, [(handle, ())])
        if row.shape[0]:
            with name_chunk_in_errors(handle.number):
                fitted, _ = reader.fit_and_read(row)
            break
    else:
        # No chunk has rows. Let the reader raise its usual error for an empty X.
        fitted, _ = reader.fit_and_read(row)
    # Other chunks may have float64.
    if fitted.dtype == np.float32 and not chunks.has_one_dtype:
        dtypes = site.run_each(_find_dtype, ((handle, (reader,)) for handle in handles))
        dtype = np.result_type(*(dtype for dtype in dtypes if dtype is not None))
        fitted = replace(fitted, dtype=dtype)
    return fitted


def _count_rows(chunk):
    """Return the number of rows of a chunk; raise TypeError if the chunk is not rows."""
    if not getattr(chunk, "shape", ()):
        raise TypeError(
            "A chunk must be an array, a CSR matrix or a data frame. Got an object of type "
            f"{type(chunk).__name__}."
        )
    return chunk.shape[0]


def _get_first_row(chunk):
    """Return the first row of a chunk, in two dimensions; no row if the chunk is empty."""
    # Check that the chunk is rows.
    _count_rows(chunk)
    return chunk.iloc[:1] if hasattr(chunk, "iloc") else chunk[:1]


def _scan_chunk(chunk, reader):
    """Return the result of the reader's method ``scan``; None if the chunk has no rows."""
    return reader.scan(chunk) if _count_rows(chunk) else None


def _find_dtype(chunk, reader):
    """Return the precision in which the reader reads a chunk; None if the chunk has no rows."""
    if not _count_rows(chunk):
        return None
    fitted, _ = reader.fit_and_read(_get_first_row(chunk))
    return fitted.dtype


def _read_block(sealed_reader, chunk, weights, is_weighted):
    """Return the block of a chunk: its rows of positive weight as numbers, and their weights.

    ``is_weighted`` tells whether the user passed weights. If so, weights of None are an error.
    """
    reader = sealed_reader.value
    if _count_rows(chunk) == 0:
        return Chunk(np.empty((0, reader.attributes["n_features_in_"]), reader.dtype), np.empty(0))
    return _select_weighted(reader, reader.read(chunk), weights, is_weighted)


def _select_weighted(reader, X, weights, is_weighted):
    """Return the rows of positive weight of a chunk, which ``reader`` has read as X."""
    refuse_masked_weights(weights)
    weights = np.asarray(weights) if is_weighted else None
    # The reader refuses rows that all have weight 0. A chunk of such rows is legal, because other
    # chunks may have positive weights.
    if is_weighted and weights.shape == X.shape[:1] and np.all(weights == 0.0):
        return Chunk(X[:0], np.empty(0))
    return Chunk(*reader.select_weighted(X, weights))


def load_chunk(rows, weights):
    """Compute a chunk; return the pair of its rows and its weights.

    The weights are None if the user passed none. Return None if the chunk has no rows.
    """
    import dask

    is_weighted = weights is not None
    rows, weights = dask.compute(rows, weights)
    return (rows, np.asarray(weights) if is_weighted else None) if _count_rows(rows) else None


def release(X):
    """Let the workers of a cluster free the rows X; do nothing for rows in memory."""
    if hasattr(X, "site"):
        X.site.close()


# -------------------------------------------------------------- methods that are lazy for chunks
class _Call(NamedTuple):
    """A call of an estimator's method, to be made for each chunk, and the form of its results."""

    method_name: str
    # Arguments of the method other than X.
    args: tuple
    kwargs: dict
    # Shape of the result of one row: () or (n_columns,).
    row_shape: tuple
    dtype: np.dtype


def apply_by_chunk(describe):
    """Make a decorator for methods whose result has one entry or one row for each row of X.

    For rows of Dask the decorated method returns a Dask array, each chunk of which is computed when
    it is needed. ``describe`` takes the estimator and the arguments of the method other than X. It
    returns the number of columns of the result, None for a vector, and the dtype of the result.
    """

    def decorate(method):
        @wraps(method)
        def apply_to_rows(self, X, *args, **kwargs):
            if not is_chunked(X):
                return method(self, X, *args, **kwargs)
            self._require_fitted()
            n_columns, dtype = describe(self, *args, **kwargs)
            row_shape = () if n_columns is None else (n_columns,)
            return _apply_lazily(self, _Call(method.__name__, args, kwargs, row_shape, dtype), X)

        return apply_to_rows

    return decorate


def _apply_lazily(estimator, call, X):
    """Apply a method lazily to each chunk; return a Dask array (n_rows, *call.row_shape)."""
    import dask.array as da
    from dask.delayed import delayed

    # A delayed object would seem to have ``ndim`` and ``shape``.
    X = [X] if _is_delayed(X) else X
    chunks = split_into_chunks(X)
    # Check the number of columns now, because the chunks are read later.
    if getattr(X, "ndim", 2) == 2 and hasattr(X, "shape"):
        n_features, expected = X.shape[1], estimator.n_features_in_
        if n_features != expected:
            raise ValueError(
                f"X has {n_features} features, but {type(estimator).__name__} is expecting "
                f"{expected} features as input."
            )
    sealed_estimator = delayed(SealedValue(estimator._without_rows()))
    apply_to_chunk = delayed(_apply_to_chunk, pure=False)
    sealed_call = SealedValue(call)
    # dask takes the dtype and the number of dimensions of the results from an empty result.
    empty_result = np.empty((0, *call.row_shape), call.dtype)
    results = []
    for number, (rows, length) in enumerate(zip(chunks.rows, chunks.lengths, strict=True)):
        result = apply_to_chunk(number, sealed_estimator, sealed_call, rows)
        shape = length, *call.row_shape
        results.append(da.from_delayed(result, shape=shape, dtype=call.dtype, meta=empty_result))
    return da.concatenate(results, axis=0, allow_unknown_chunksizes=True)


def _apply_to_chunk(number, sealed_estimator, sealed_call, chunk):
    """Return the result of a fitted estimator's method for one chunk, as an array.

    ``number`` is the number of the chunk, for errors.
    """
    call = sealed_call.value
    with name_chunk_in_errors(number):
        if _count_rows(chunk) == 0:
            return np.empty((0, *call.row_shape), call.dtype)
        method = getattr(sealed_estimator.value, call.method_name)
        result = method(chunk, *call.args, **call.kwargs)
    return np.asarray(result, call.dtype)


def sum_over_rows(estimator, X, sample_weight=None, details=None):
    """Return the sums over all rows of X that ``_compute_score_sums`` computes for a chunk.

    Weights are validated as in ``fit``. Only rows in memory may have ``details``.
    """
    reader = estimator._require_fitted().reader
    if not is_chunked(X):
        X, weights = reader.select_weighted(estimator._read(X, details), sample_weight)
        return estimator._compute_score_sums(X, weights)
    from dask.delayed import delayed

    fitted = estimator._without_rows()
    is_weighted = sample_weight is not None
    chunks = split_into_chunks(X, sample_weight)
    site = get_active_site()
    try:
        rows_and_weights = zip(chunks.rows, chunks.weights, strict=True)
        blocks = map(delayed, rows_and_weights)
        handles = (ChunkHandle(number, block) for number, block in enumerate(blocks))
        tasks = ((handle, (fitted, is_weighted)) for handle in handles)
        chunk_sums = [sums for sums in site.run_each(_sum_over_chunk, tasks) if sums is not None]
    finally:
        site.close()
    if not chunk_sums:
        raise _no_rows_error(reader)
    return tuple(map(sum, zip(*chunk_sums, strict=True)))


def _sum_over_chunk(rows_and_weights, fitted, is_weighted):
    """Return the sums of the rows and weights of a chunk; None without rows of positive weight."""
    rows, weights = rows_and_weights
    if _count_rows(rows) == 0:
        return None
    chunk = _select_weighted(fitted._fitted.reader, fitted._read(rows), weights, is_weighted)
    return fitted._compute_score_sums(chunk.X, chunk.weights) if chunk.X.shape[0] else None
