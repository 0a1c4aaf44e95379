"""Rows that are stored in chunks outside this process: in files or on the workers of a cluster.

A *chunk* consists of successive rows of the data. Models are built and initialised with
:class:`Chunks` in place of the data matrix. *Engines*, the inference algorithms, make passes over
:class:`ChunkRows` in place of :class:`~skvt.inference._state.Rows`. A *site*
(:mod:`skvt.inference._cluster`) runs functions where chunks are stored.

All rows of a batch belong to the same chunk. A *visit* makes the local step of a batch where its
chunk is stored: the engine sends the *globals*, that is, the global parameters in the form that
local steps need, and gets statistics back. The *scope* of a batch is the set of columns of the data
that occur in the batch. A local step needs only the globals of these columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt._compiled import run_serially
from skvt.contracts import BatchScope, Model
from skvt.inference._blas import one_blas_thread
from skvt.inference._cluster import ChunkHandle
from skvt.inference._parallel import Workers
from skvt.inference._state import BatchedRows, Rows, make_rows
from skvt.inference._visit import VisitRequest, VisitResult, visit_batch
from skvt.rows import (
    SumsFunction,
    evaluate_rows,
    get_chunk_sizes,
    map_rows,
    stack_rows,
    sums_of_rows,
    take_rows,
)
from skvt.typing import Array, IndexArray

# Number of groups of batches in a pass of memoized inference. The batches of a group are visited at
# once with the same globals, which are updated after each group.
GROUPS_PER_PASS = 10
# Default number of rows of a batch. Few large batches are fast, because the globals are sent for
# each batch. Larger batches would need too much memory for local variables and temporary arrays.
MAX_ROWS_PER_VISIT = 2**16
# Several batches share the globals of their columns, which are then sent once, if separate globals
# of each batch would be at least this number of times as much data.
_MIN_SHARING_FACTOR = 2
# Maximum number of minibatches that stochastic inference visits at once.
MAX_PARALLEL_MINIBATCHES = 8


@dataclass(frozen=True)
class Chunk:
    """The rows of a chunk in the form that models need, without rows of weight 0."""

    # (n, D): array or CSR matrix.
    X: Any
    # (n,), float64: weights of the rows.
    weights: Array

    @property
    def nbytes(self) -> int:
        """Bytes of ``X``."""
        X = self.X
        return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)

    def __sizeof__(self) -> int:
        # Dask uses this size to decide which chunks it spills to disk.
        return self.nbytes + self.weights.nbytes


class ChunkSummary(NamedTuple):
    """Properties of a chunk, which this process keeps while the rows are stored elsewhere."""

    n_rows: int
    n_columns: int
    dtype: np.dtype[Any]
    total_weight: float
    # Whether any weight is not 1.
    is_weighted: bool
    # Bytes of the rows.
    nbytes: int


def summarize_chunk(chunk: Chunk) -> ChunkSummary:
    """Return the summary of a chunk."""
    X, weights = chunk.X, chunk.weights
    is_weighted = bool(np.any(weights != 1.0))
    n_rows, n_columns = X.shape
    total_weight = float(weights.sum())
    return ChunkSummary(n_rows, n_columns, X.dtype, total_weight, is_weighted, chunk.nbytes)


class ChunkWeights:
    """Weights of all rows in chunks, which replace an array (N,) of weights."""

    def __init__(self, chunks: "Chunks") -> None:
        self._chunks = chunks

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._chunks)

    def sum(self) -> float:
        """Return the sum of the weights."""
        return self._chunks.total_weight

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        if not self._chunks.is_weighted:
            return np.ones(self.size)
        return np.concatenate(list(self._chunks.each(attrgetter("weights"))))


class Chunks:
    """A matrix whose rows are stored in chunks, which replaces an array.

    ``site`` runs functions where the chunks are stored, and ``handles`` identify the chunks. If
    ``row_function`` is not None, the rows of the matrix are the results of this function for the
    stored rows: see :func:`~skvt.rows.map_rows`. The function must keep the number of rows.
    ``shape`` and ``dtype`` describe the stored rows; only a selection of columns changes ``shape``.
    """

    ndim = 2

    def __init__(
        self, site: Any, handles: list[ChunkHandle], summaries: list[ChunkSummary],
        row_function: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.site = site
        self.handles = handles
        self.summaries = summaries
        self._row_function = row_function
        # Number of rows of each chunk.
        self.chunk_sizes = np.array([summary.n_rows for summary in summaries], np.int64)
        # Index of the first row of each chunk, and at the end the number of all rows.
        self.offsets = np.concatenate([[0], np.cumsum(self.chunk_sizes)])
        self.total_weight = float(sum(summary.total_weight for summary in summaries))
        self.is_weighted = any(summary.is_weighted for summary in summaries)
        self.dtype = summaries[0].dtype
        self.shape = int(self.offsets[-1]), summaries[0].n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: tuple[slice, Any]) -> "Chunks":
        """Return ``X[:, columns]``, where ``key`` is ``(:, columns)``.

        To select rows, use :func:`~skvt.rows.take_rows`.
        """
        rows, columns = key
        if rows != slice(None):
            raise TypeError("Select whole columns: chunked data cannot be indexed by row.")
        selected_chunks = map_rows(self, partial(_select_columns, columns))
        selected_chunks.shape = self.shape[0], np.arange(self.shape[1])[columns].size
        return selected_chunks

    def bind_row_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that sites can call with a stored chunk.

        It applies the row function to the rows of the chunk, and calls ``function`` with the
        resulting `Chunk`.
        """
        return partial(_apply_to_rows, function, self._row_function)

    def each(self, function: Callable[[Chunk], Any]) -> Iterator[Any]:
        """Yield ``function(chunk)`` for each chunk, in their order."""
        tasks = ((handle, ()) for handle in self.handles)
        yield from self.site.run_each(self.bind_row_function(function), tasks)

    def take(self, rows: IndexArray) -> tuple[Any, Array]:
        """Return the rows whose indices are ``rows``, and their weights, in memory."""
        rows = np.asarray(rows, np.int64)
        chunk_of_row = np.searchsorted(self.offsets, rows, side="right") - 1
        tasks = [
            (self.handles[chunk], (rows[chunk_of_row == chunk] - self.offsets[chunk],))
            for chunk in np.unique(chunk_of_row).tolist()
        ]
        results = list(self.site.run_each(self.bind_row_function(_take_rows), tasks))
        X = stack_rows([rows_of_chunk for rows_of_chunk, _ in results])
        weights = np.concatenate([weights_of_chunk for _, weights_of_chunk in results])
        # The results are sorted by chunk. Restore the order of ``rows`` by the inverse of the
        # permutation that sorts by chunk.
        sorting_permutation = np.argsort(chunk_of_row, kind="stable")
        positions = np.argsort(sorting_permutation, kind="stable")
        return X[positions], weights[positions]


# The following functions run where a chunk is stored. They are at the top level of the module so
# that they can be pickled.


def _apply_to_rows(
    function: Callable[..., Any], row_function: Any, chunk: Chunk, *arguments: Any
) -> Any:
    """Apply ``row_function`` to the rows of a chunk, then call ``function`` with the chunk.

    Matrix products run on a single thread.
    """
    if row_function is not None:
        chunk = Chunk(row_function(chunk.X), chunk.weights)
    with one_blas_thread():
        return function(chunk, *arguments)


def _select_columns(columns: Any, X: Any) -> Any:
    return X[:, columns]


def _apply_both(first: Callable[[Any], Any], second: Callable[[Any], Any], X: Any) -> Any:
    return second(first(X))


def _compute_sums(sums: SumsFunction, chunk: Chunk) -> tuple[Any, ...]:
    return sums(chunk.X, chunk.weights)


def _add_sums(sums_of_chunks: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add up results of :func:`_compute_sums` for several chunks, entry by entry."""
    return tuple(sum(arrays[1:], arrays[0]) for arrays in zip(*sums_of_chunks, strict=True))


def _take_rows(chunk: Chunk, rows: IndexArray) -> tuple[Any, Array]:
    return chunk.X[rows], chunk.weights[rows]


def _evaluate_rows(function: Callable[[Any], Array], chunk: Chunk) -> Array:
    return function(chunk.X)


# The versions of the functions of `skvt.rows` for chunks.


@sums_of_rows.register
def _sum_over_chunks(X: Chunks, weights: Any, sums: SumsFunction) -> tuple[Any, ...]:
    function = X.bind_row_function(partial(_compute_sums, sums))
    tasks = ((handle, ()) for handle in X.handles)
    return tuple(X.site.run_and_combine(function, _add_sums, tasks))


@evaluate_rows.register
def _evaluate_chunks(X: Chunks, weights: Any, function: Callable[[Any], Array]) -> Array:
    return np.concatenate(list(X.each(partial(_evaluate_rows, function))))


@take_rows.register
def _take_from_chunks(X: Chunks, weights: Any, rows: IndexArray) -> tuple[Any, Array]:
    return X.take(rows)


@map_rows.register
def _map_chunks(X: Chunks, function: Callable[[Any], Any]) -> Chunks:
    if X._row_function is not None:
        function = partial(_apply_both, X._row_function, function)
    mapped_chunks = Chunks(X.site, X.handles, X.summaries, function)
    mapped_chunks.shape = X.shape
    return mapped_chunks


@get_chunk_sizes.register
def _get_chunk_sizes(X: Chunks) -> IndexArray:
    return X.chunk_sizes


class BatchSlice(NamedTuple):
    """The position of a batch in its chunk.

    The rows of the chunk are shuffled if there is a seed, and then divided into batches.
    """

    # Number of the chunk.
    chunk: int
    # Number of the batch within the chunk, from 0.
    number: int
    # Number of rows of a batch; the last batch of the chunk may have fewer.
    size: int
    # Seed by which the rows of the chunk are shuffled; None if they are not shuffled.
    seed: int | None = None

    def rows(self, n_rows: int) -> IndexArray:
        """Return the positions of the batch's rows in its chunk, which has ``n_rows`` rows."""
        order: IndexArray = np.arange(n_rows)
        if self.seed is not None:
            order = np.random.default_rng(self.seed).permutation(n_rows)
        return order[self.number * self.size : (self.number + 1) * self.size]


class BatchHandle(NamedTuple):
    """A reference to a batch, with the attributes of batches that engines and policies read."""

    slice: BatchSlice
    # Index of the chunk's first row in the data.
    offset: int
    n_rows_of_chunk: int
    # The columns that occur in the batch, and whether values are missing.
    scope: BatchScope
    # (n,): weights of the rows; None if all weights are 1.
    stored_weights: Array | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        start = self.slice.number * self.slice.size
        return min(self.slice.size, self.n_rows_of_chunk - start)

    @property
    def rows(self) -> IndexArray:
        """Indices of the rows in the data."""
        return self.offset + self.slice.rows(self.n_rows_of_chunk)

    @property
    def weights(self) -> Array:
        """Weights of the rows, (n,)."""
        if self.stored_weights is not None:
            return self.stored_weights
        return np.broadcast_to(np.ones(1), (self.n_rows,))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in this process, which are 0."""
        return 0

    @property
    def active(self) -> IndexArray | None:
        """Columns that occur in the batch; None for all."""
        return self.scope.active

    @property
    def has_missing(self) -> bool:
        """Whether values are missing."""
        return self.scope.has_missing


def _compute_scopes(
    chunk: Chunk, model: Model, slices: list[BatchSlice], is_weighted: bool
) -> list[tuple[BatchScope, Array | None]]:
    """Return the scope of each batch of a chunk, and the weights of its rows.

    The weights are None unless ``is_weighted``, that is, unless any weight of the data is not 1.
    """
    scopes = []
    for batch_slice in slices:
        rows = batch_slice.rows(len(chunk.weights))
        batch = model.batch(chunk.X, rows, chunk.weights[rows])
        weights = np.array(batch.weights) if is_weighted else None
        scopes.append((model.scope(batch), weights))
    return scopes


class CommonGlobals(NamedTuple):
    """A model and globals for several batches, which are sent once."""

    model: Model
    # The globals of the columns ``active``.
    global_params: Any
    # (A,): the columns that occur in at least one of the batches, ascending; None for all columns.
    active: IndexArray | None

    def select_for(self, batch: Any) -> Any:
        """Return the globals of the columns that occur in a batch."""
        if self.active is None:
            return self.global_params
        return self.global_params.select_words(np.searchsorted(self.active, batch.active))


def _find_common_scope(batches: Sequence[BatchHandle]) -> BatchScope | None:
    """Return the union of the scopes if the batches should share their globals, else None.

    They should share the globals if the numbers of columns of the scopes add up to at least
    `_MIN_SHARING_FACTOR` times the number of columns of the union. If each batch needs the globals
    of all columns, `_MIN_SHARING_FACTOR` batches are enough.
    """
    first_scope = batches[0].scope
    # In models whose batches need the globals of all columns, ``active`` is None.
    if first_scope.active is None:
        all_equal = all(batch.scope == first_scope for batch in batches)
        return first_scope if all_equal and len(batches) >= _MIN_SHARING_FACTOR else None
    columns = np.concatenate([batch.active for batch in batches if batch.active is not None])
    # Mark the columns that occur, which is faster than sorting them.
    is_present = np.zeros(columns.max(initial=-1) + 1, np.bool_)
    is_present[columns] = True
    active = np.flatnonzero(is_present).astype(columns.dtype)
    is_worthwhile = columns.size >= _MIN_SHARING_FACTOR * active.size
    return BatchScope(active) if is_worthwhile else None


def _visit_slice(
    chunk: Chunk, batch_slice: BatchSlice, offset: int, request: VisitRequest,
    shared: CommonGlobals | None = None,
) -> VisitResult:  # fmt: skip
    """Visit a batch where its chunk is stored.

    ``offset`` is the index of the chunk's first row in the data. If ``shared`` is not None, its
    model and globals replace the model and the globals of the request.
    """
    rows = batch_slice.rows(len(chunk.weights))
    model = request.model if shared is None else shared.model
    with one_blas_thread():
        batch = model.batch(chunk.X, rows, chunk.weights[rows])
        if shared is not None:
            request = replace(request, model=model, globals_or_stats=shared.select_for(batch))
        batch = replace(batch, rows=rows + offset)
        result = visit_batch(batch, request, run_serially)
    # Send the indices and weights of rows only if the engine needs arrays of rows.
    return result if request.needs_row_arrays else replace(result, rows=None, weights=None)


@dataclass(frozen=True)
class ChunkRows(BatchedRows):
    """Rows in chunks, with the same methods as `Rows`, which has rows in memory.

    ``X`` are `Chunks`, and ``weights`` are `ChunkWeights`. If ``batch_size`` is at least the number
    of all rows, each chunk is a batch, and all batches are visited at once. Except for
    :meth:`batch`, methods yield and take a :class:`BatchHandle` in place of a batch.
    """

    # Number of batches that are visited at once. If it is None, a tenth of all batches is visited
    # at once in passes without shuffling, and up to 8 minibatches in passes with shuffling.
    n_parallel: int | None = None
    # Handles of the unshuffled batches, which are the same in each pass.
    _fixed_handles: dict[BatchSlice, BatchHandle] = field(default_factory=dict)

    @property
    def _visits_all_at_once(self) -> bool:
        return self.batch_size >= self.n_rows

    @property
    def n_batches(self) -> int:
        """Number of batches of a pass; 1 if all rows are visited at once."""
        return 1 if self._visits_all_at_once else int(self._count_batches().sum())

    def _count_batches(self) -> IndexArray:
        """Return the number of batches of each chunk."""
        return -(-self.X.chunk_sizes // self.batch_size)

    def list_batches(self, rng: np.random.Generator | None = None) -> list[BatchSlice]:
        """Return the batches of a pass.

        If ``rng`` is None, or if all rows are visited at once, batches have the order of the rows.
        Otherwise the rows of each chunk are shuffled, and batches of different chunks alternate.
        """
        n_batches = self._count_batches()
        if rng is None or self._visits_all_at_once:
            return [
                BatchSlice(chunk, number, self.batch_size)
                for chunk, n in enumerate(n_batches)
                for number in range(int(n))
            ]
        seeds = rng.integers(2**62, size=n_batches.size).tolist()
        # Sort the batches by their times in a pass, which lasts from 0 to 1. The n batches of a
        # chunk are spread evenly: the first batch has a random time below 1 / n, and further
        # batches follow at intervals of 1 / n.
        fractions = rng.random(n_batches.size)
        times_and_slices = [
            ((i + fractions[chunk]) / n, BatchSlice(chunk, i, self.batch_size, seeds[chunk]))
            for chunk, n in enumerate(n_batches.tolist())
            for i in range(n)
        ]
        return [batch_slice for _, batch_slice in sorted(times_and_slices)]

    def select_rows(self, rows: IndexArray) -> Rows:
        """Return the rows whose indices are ``rows``, in memory."""
        X, weights = self.X.take(rows)
        return Rows(X, weights, self.batch_size)

    def batch(self, model: Model, rows: IndexArray) -> Any:
        """Return a batch, in memory, of the rows whose indices are ``rows``."""
        X, weights = self.X.take(rows)
        return model.batch(X, np.arange(len(weights)), weights)

    def _choose_n_parallel(self, slices: list[BatchSlice]) -> int:
        """Return how many of the batches ``slices`` are visited at once."""
        if self._visits_all_at_once:
            return max(1, len(slices))
        if self.n_parallel is not None:
            return self.n_parallel
        # Only stochastic inference shuffles rows. Other passes are divided into groups.
        if slices and slices[0].seed is None:
            return -(-len(slices) // GROUPS_PER_PASS)
        return min(MAX_PARALLEL_MINIBATCHES, self.X.chunk_sizes.size)

    def group_batches(
        self, model: Model, workers: Workers, slices: list[BatchSlice], *,
        fixed_globals: bool = False,
    ) -> Iterator[list[BatchHandle]]:  # fmt: skip
        """Yield lists of the batches that are visited at once, with the same globals.

        If ``fixed_globals``, the caller does not change the globals during the pass, and a single
        list has all batches.
        """
        handles = self._make_handles(model, slices)
        n_at_once = max(1, len(slices)) if fixed_globals else self._choose_n_parallel(slices)
        for start in range(0, len(slices), n_at_once):
            yield [handles[batch_slice] for batch_slice in slices[start : start + n_at_once]]

    def _make_handles(
        self, model: Model, slices: list[BatchSlice]
    ) -> dict[BatchSlice, BatchHandle]:
        """Return the handles of ``slices``, and of all earlier batches that were not shuffled.

        Scopes that are not known yet are computed where the chunks are stored.
        """
        # The slices without a handle, by the number of their chunk.
        new_slices: dict[int, list[BatchSlice]] = {}
        for batch_slice in slices:
            if batch_slice not in self._fixed_handles:
                new_slices.setdefault(batch_slice.chunk, []).append(batch_slice)
        tasks = [
            (self.X.handles[chunk], (model, slices_of_chunk, self.X.is_weighted))
            for chunk, slices_of_chunk in new_slices.items()
        ]
        scopes_of_chunks = self.X.site.run_each(_compute_scopes, tasks)
        handles: dict[BatchSlice, BatchHandle] = {}
        for chunk, scopes in zip(new_slices, scopes_of_chunks, strict=True):
            offset, n_rows = int(self.X.offsets[chunk]), int(self.X.chunk_sizes[chunk])
            for batch_slice, (scope, weights) in zip(new_slices[chunk], scopes, strict=True):
                handles[batch_slice] = BatchHandle(batch_slice, offset, n_rows, scope, weights)
        fixed_handles = {key: handle for key, handle in handles.items() if key.seed is None}
        self._fixed_handles.update(fixed_handles)
        return self._fixed_handles | handles

    def count_steps(self, batches: Sequence[BatchHandle]) -> int:
        """Return the number of steps for which a joint stochastic step on ``batches`` counts."""
        return 1 if self._visits_all_at_once else len(batches)

    def visit(
        self, batches: Sequence[BatchHandle], make_request: Callable[[BatchHandle], VisitRequest],
        make_globals: Callable[[BatchHandle], Any], workers: Workers, *, summed: bool = False,
    ) -> Iterator[VisitResult]:  # fmt: skip
        """Visit batches where they are stored; yield their results, or the sum if ``summed``.

        The results are not summed if the engine needs memos or arrays of rows. See `Rows.visit` for
        the arguments.
        """
        requests = map(make_request, batches)
        first_request = next(requests)
        draw = first_request.draw
        # If several batches need almost the same globals, send the globals once. The correction of
        # statistics after a draw of globals needs all columns, for which ``BatchScope()`` stands.
        shared = None
        is_corrected = draw is not None and draw.is_corrected
        scope = BatchScope() if is_corrected else _find_common_scope(batches)
        if scope is not None:
            global_params = make_globals(batches[0]._replace(scope=scope))
            # With a draw, ``global_params`` are statistics, of which each visit selects columns.
            active = None if draw is not None else scope.active
            common = CommonGlobals(first_request.model, global_params, active)
            shared = self.X.site.send_value(common)

        def tasks() -> Iterator[tuple[Any, tuple[Any, ...]]]:
            all_requests = chain([first_request], requests)
            for batch, request in zip(batches, all_requests, strict=True):
                if scope is None:
                    request = replace(request, globals_or_stats=make_globals(batch))
                else:
                    # The model is sent in ``shared``.
                    request = replace(request, model=None)
                yield self.X.handles[batch.slice.chunk], (batch.slice, batch.offset, request)

        needs_each_result = first_request.needs_row_arrays or first_request.makes_memo
        if summed and not needs_each_result:
            yield self.X.site.run_and_combine(_visit_slice, VisitResult.from_parts, tasks(), shared)
        else:
            yield from self.X.site.run_each(_visit_slice, tasks(), shared)


@make_rows.register
def _rows_of_chunks(
    X: Chunks, weights: Any, batch_size: int | None = None, n_parallel: int | None = None,
    total: float | None = None,
) -> Any:  # fmt: skip
    size = MAX_ROWS_PER_VISIT if batch_size is None else batch_size
    return ChunkRows(X, weights, size, total, n_parallel)
