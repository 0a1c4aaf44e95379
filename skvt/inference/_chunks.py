"""Rows in chunks outside this process: in files, or in the memory of a cluster's workers.

:class:`Chunks` replaces an array where models are built and initialised. :class:`ChunkRows`
replaces the :class:`~skvt.inference._state.Rows` of engines. All rows of a batch belong to one
chunk. The batch is prepared and visited where its chunk is stored: the globals of the columns that
occur in it are sent there, and statistics come back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt.compiled import serial_map
from skvt.contracts import BatchScope, Model
from skvt.inference._cluster import Handle
from skvt.inference._parallel import Workers, one_blas_thread
from skvt.inference._state import Rows, rows_of
from skvt.inference._visit import VisitRequest, VisitResult, visit_batch
from skvt.rows import Sums, layout_of, mapped, of_each_row, some_rows, stacked, sums_of_rows
from skvt.typing import Array, IndexArray

# Updates of the globals in a pass of memoized inference.
UPDATES_OF_PASS = 10
# Maximum number of rows of a visit that is part of a sum over all rows. Globals are sent to each
# visit, so that few visits are fast; local variables and temporary arrays of a visit need memory.
ROWS_OF_VISIT = 2**16
# Globals are shared among visits if this divides the amount sent by at least this factor.
_WORTH_SHARING = 2
# Maximum number of minibatches of a step of stochastic inference.
MOST_TOGETHER = 8


@dataclass(frozen=True)
class Chunk:
    """The rows of a chunk in the form that models need, without rows of weight 0."""

    # array or CSR matrix, (n, D)
    X: Any
    # float64, (n,)
    weights: Array

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        X = self.X
        return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)

    def __sizeof__(self) -> int:
        # Dask uses this size to decide what it spills to disk
        return self.nbytes + self.weights.nbytes


class BlockFacts(NamedTuple):
    """Facts of a block that need no rows; ``is_weighted`` if any weight is not 1."""

    n_rows: int
    n_columns: int
    dtype: np.dtype[Any]
    total: float
    is_weighted: bool
    nbytes: int


def facts_of(block: Chunk) -> BlockFacts:
    """Return the facts of a block of rows."""
    X, weights = block.X, block.weights
    is_weighted = bool(np.any(weights != 1.0))
    n_rows, n_columns = X.shape
    total = float(weights.sum())
    return BlockFacts(n_rows, n_columns, X.dtype, total, is_weighted, block.nbytes)


class ChunkWeights:
    """Weights of the rows of chunks, which replace a vector."""

    def __init__(self, chunks: "Chunks") -> None:
        self._chunks = chunks

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._chunks)

    def sum(self) -> float:
        """Return the sum of the weights."""
        return self._chunks.total

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        if not self._chunks.is_weighted:
            return np.ones(self.size)
        return np.concatenate(list(self._chunks.each(_weights_of)))


class Chunks:
    """Rows in chunks, or some of their columns, which replace an array.

    ``function`` is applied to the rows, see :func:`~skvt.rows.mapped`. It must keep columns and
    dtype, or at least be used as if it did.
    """

    ndim = 2

    def __init__(
        self,
        site: Any,
        handles: list[Handle],
        facts: list[BlockFacts],
        columns: Any = None,
        function: Callable[[Any], Any] | None = None,
    ) -> None:
        self.site, self.handles, self.facts = site, handles, facts
        self.columns, self._function = columns, function
        self.lengths = np.array([fact.n_rows for fact in facts], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.total = float(sum(fact.total for fact in facts))
        self.is_weighted = any(fact.is_weighted for fact in facts)
        self.dtype = facts[0].dtype
        n_columns = facts[0].n_columns
        if columns is not None:
            n_columns = np.arange(n_columns)[columns].size
        self.shape = int(self.offsets[-1]), n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: tuple[slice, Any]) -> "Chunks":
        """Return ``X[:, columns]``; :func:`~skvt.rows.some_rows` selects rows."""
        rows, columns = key
        if rows != slice(None):
            raise TypeError("Select whole columns: chunked data cannot be indexed by row.")
        if self.columns is None and self._function is None:
            return Chunks(self.site, self.handles, self.facts, columns)
        selected = mapped(self, partial(_columns_of, columns))
        selected.shape = self.shape[0], np.arange(self.shape[1])[columns].size
        return selected

    def seen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of a block that passes only these columns, mapped, to ``function``."""
        return partial(_of_view, function, self.columns, self._function)

    def each(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]] | None = None
    ) -> Iterator[Any]:
        """Yield ``function(block, *arguments)`` of each chunk, in order."""
        given = [()] * len(self.facts) if arguments is None else arguments
        tasks = ((self.handles[i], given[i]) for i in range(len(self.facts)))
        return iter(self.site.each(self.seen(function), tasks))

    def take(self, rows: IndexArray) -> tuple[Any, Array]:
        """Return these rows and their weights, in memory."""
        rows = np.asarray(rows, np.int64)
        chunk = np.searchsorted(self.offsets, rows, side="right") - 1
        used = np.unique(chunk)
        tasks = [(self.handles[c], (rows[chunk == c] - self.offsets[c],)) for c in used.tolist()]
        parts = list(self.site.each(self.seen(_taken), tasks))
        X = stacked([part for part, _ in parts])
        weights = np.concatenate([part for _, part in parts])
        # sort from the order of the chunks into the order of `rows`
        order = np.argsort(np.argsort(chunk, kind="stable"), kind="stable")
        return X[order], weights[order]


def _of_view(
    function: Callable[..., Any], columns: Any, mapping: Any, block: Chunk, *given: Any
) -> Any:
    """Apply a function to a block, to some of its columns or to its mapped rows, on one thread."""
    if columns is not None:
        block = Chunk(block.X[:, columns], block.weights)
    if mapping is not None:
        block = Chunk(mapping(block.X), block.weights)
    with one_blas_thread():
        return function(block, *given)


def _columns_of(columns: Any, X: Any) -> Any:
    return X[:, columns]


def _composed(first: Callable[[Any], Any], second: Callable[[Any], Any], X: Any) -> Any:
    return second(first(X))


def _part_of(block: Chunk, part: Sums) -> tuple[Any, ...]:
    return part(block.X, block.weights)


def _added(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(sum(arrays[1:], arrays[0]) for arrays in zip(*parts, strict=True))


def _taken(block: Chunk, rows: IndexArray) -> tuple[Any, Array]:
    return block.X[rows], block.weights[rows]


def _weights_of(block: Chunk) -> Array:
    return block.weights


def _value_of_rows(block: Chunk, function: Callable[[Any], Array]) -> Array:
    return function(block.X)


@sums_of_rows.register
def _(X: Chunks, weights: Any, part: Sums) -> tuple[Any, ...]:
    tasks = ((handle, (part,)) for handle in X.handles)
    return tuple(X.site.total(X.seen(_part_of), _added, tasks))


@of_each_row.register
def _(X: Chunks, weights: Any, function: Callable[[Any], Array]) -> Array:
    return np.concatenate(list(X.each(_value_of_rows, [(function,)] * len(X.lengths))))


@some_rows.register
def _(X: Chunks, weights: Any, rows: IndexArray) -> tuple[Any, Array]:
    return X.take(rows)


@mapped.register
def _(X: Chunks, function: Callable[[Any], Any]) -> Chunks:
    if X._function is not None:
        function = partial(_composed, X._function, function)
    view = Chunks(X.site, X.handles, X.facts, X.columns, function)
    view.shape = X.shape
    return view


@layout_of.register
def _(X: Chunks) -> IndexArray:
    return X.lengths


class BatchSlice(NamedTuple):
    """The ``number``-th slice of ``size`` rows of a chunk, after a shuffle if it has a ``seed``."""

    chunk: int
    number: int
    size: int
    seed: int | None = None

    def rows(self, n_rows: int) -> IndexArray:
        """Return the positions of the batch's rows in its chunk of ``n_rows`` rows."""
        order: IndexArray = np.arange(n_rows)
        if self.seed is not None:
            order = np.random.default_rng(self.seed).permutation(n_rows)
        return order[self.number * self.size : (self.number + 1) * self.size]


class BatchHandle(NamedTuple):
    """A batch without its rows, with the attributes that engines and policies use."""

    place: BatchSlice
    # Index of the chunk's first row in the data, and number of the chunk's rows.
    offset: int
    n_in_chunk: int
    scope: BatchScope
    # (n,): None if all are 1.
    own_weights: Array | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        start = self.place.number * self.place.size
        return min(self.place.size, self.n_in_chunk - start)

    @property
    def rows(self) -> IndexArray:
        """Indices of the rows in the data."""
        return self.offset + self.place.rows(self.n_in_chunk)

    @property
    def weights(self) -> Array:
        """Weights of the rows, (n,)."""
        if self.own_weights is not None:
            return self.own_weights
        return np.broadcast_to(np.ones(1), (self.n_rows,))

    @property
    def nbytes(self) -> int:
        """Return 0, since no rows are held in this process."""
        return 0

    @property
    def active(self) -> IndexArray | None:
        """As in the batch."""
        return self.scope.active

    @property
    def missing(self) -> bool:
        """As in the batch."""
        return self.scope.missing


def _scopes(
    block: Chunk, model: Model, places: list[BatchSlice], is_weighted: bool
) -> list[tuple[BatchScope, Array | None]]:
    """Return the scope of each of a chunk's batches, and the rows' weights if they differ."""
    scopes = []
    for place in places:
        rows = place.rows(len(block.weights))
        batch = model.batch(block.X, rows, block.weights[rows])
        weights = np.array(batch.weights) if is_weighted else None
        scopes.append((model.scope(batch), weights))
    return scopes


class SharedGlobals(NamedTuple):
    """The model, and globals of the ``active`` columns that occur in any batch, or of all."""

    model: Model
    global_params: Any
    active: IndexArray | None

    def of(self, batch: Any) -> Any:
        """Return the globals of a batch."""
        if self.active is None:
            return self.global_params
        return self.global_params.at(np.searchsorted(self.active, batch.active))


def _common_scope(batches: Sequence[BatchHandle]) -> BatchScope | None:
    """Return the union of the scopes if sending it once at least halves the cost, else None."""
    first, n_active = batches[0].scope, 0
    if first.active is None:
        alike = all(head.scope == first for head in batches)
        return first if alike and len(batches) >= _WORTH_SHARING else None
    columns = [head.active for head in batches if head.active is not None]
    occurs = np.zeros(1 + max(int(words.max(initial=0)) for words in columns), np.bool_)
    for words in columns:
        occurs[words] = True
        n_active += words.size
    active = np.flatnonzero(occurs).astype(first.active.dtype)
    return BatchScope(active) if n_active >= _WORTH_SHARING * active.size else None


def _visited(
    block: Chunk,
    place: BatchSlice,
    offset: int,
    asked: VisitRequest,
    common: SharedGlobals | None = None,
) -> VisitResult:
    """Visit a batch where its chunk is stored."""
    rows = place.rows(len(block.weights))
    model = asked.model if common is None else common.model
    batch = model.batch(block.X, rows, block.weights[rows])
    if common is not None:
        asked = replace(asked, model=model, global_params=common.of(batch))
    batch = replace(batch, rows=rows + offset)
    result = visit_batch(batch, asked, serial_map)
    # send the rows' indices and weights only if they are needed
    return result if asked.is_by_row else replace(result, rows=None, weights=None)


@dataclass(frozen=True)
class ChunkRows:
    """Rows in chunks, and their division into batches, see `Rows`."""

    X: Chunks
    weights: ChunkWeights
    # Largest number of rows of a batch. If it is at least the number of all rows, each chunk is a
    # batch, and all batches are visited at once.
    batch_size: int
    # Weight of the data set that these rows represent; None becomes the rows' weight.
    total: Any = None
    # Number of batches that are visited at once; None stands for a tenth of all batches in memoized
    # inference, and for up to 8 minibatches.
    given_parallel: int | None = None
    # Handles of batches that are the same in each pass.
    _known: dict[BatchSlice, BatchHandle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.total is None:
            object.__setattr__(self, "total", self.X.total)

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return len(self.X)

    @property
    def _is_whole(self) -> bool:
        return self.batch_size >= self.n_rows

    @property
    def n_batches(self) -> int:
        """Number of batches of a pass; 1 if all rows are visited at once."""
        return 1 if self._is_whole else int(self._batches_of_chunks().sum())

    def _batches_of_chunks(self) -> IndexArray:
        return -(-self.X.lengths // self.batch_size)

    @property
    def n_words(self) -> float:
        """Weight of all words, if rows are counts of words."""
        return float(sums_of_rows(self.X, self.weights, _n_words)[0])

    def order(self, rng: np.random.Generator | None = None) -> list[BatchSlice]:
        """Return a pass's batches in order, or shuffled by ``rng`` so that chunks alternate."""
        numbers = self._batches_of_chunks()
        if rng is None or self._is_whole:
            return [
                BatchSlice(c, i, self.batch_size)
                for c, n in enumerate(numbers)
                for i in range(int(n))
            ]
        seeds = rng.integers(2**62, size=numbers.size).tolist()
        begins = rng.random(numbers.size)
        places = [
            ((i + begins[c]) / n, BatchSlice(c, i, self.batch_size, seeds[c]))
            for c, n in enumerate(numbers.tolist())
            for i in range(n)
        ]
        return [place for _, place in sorted(places)]

    def subset(self, rows: IndexArray) -> Rows:
        """Return these rows in memory."""
        return Rows(*self.X.take(rows), self.batch_size)

    def batch(self, model: Model, rows: IndexArray) -> Any:
        """Return a batch of these rows, prepared by the model in memory."""
        X, weights = self.X.take(rows)
        return model.batch(X, np.arange(len(weights)), weights)

    def _together(self, places: list[BatchSlice]) -> int:
        """Return how many of these batches are visited at once."""
        if self._is_whole:
            return max(1, len(places))
        if self.given_parallel is not None:
            return self.given_parallel
        if places and places[0].seed is None:
            return -(-len(places) // UPDATES_OF_PASS)
        return min(MOST_TOGETHER, self.X.lengths.size)

    def rounds(
        self, model: Model, workers: Workers, places: list[BatchSlice], *, whole: bool = False
    ) -> Iterator[list[BatchHandle]]:
        """Yield lists of handles of batches that are visited at once."""
        heads = self._heads(model, places)
        number = max(1, len(places)) if whole else self._together(places)
        for start in range(0, len(places), number):
            yield [heads[place] for place in places[start : start + number]]

    def _heads(self, model: Model, places: list[BatchSlice]) -> dict[BatchSlice, BatchHandle]:
        by_chunk: dict[int, list[BatchSlice]] = {}
        for place in places:
            if place not in self._known:
                by_chunk.setdefault(place.chunk, []).append(place)
        tasks = [
            (self.X.handles[chunk], (model, own, self.X.is_weighted))
            for chunk, own in by_chunk.items()
        ]
        heads: dict[BatchSlice, BatchHandle] = {}
        scopes = self.X.site.each(_scopes, tasks)
        for (chunk, own), found in zip(by_chunk.items(), scopes, strict=True):
            where = int(self.X.offsets[chunk]), int(self.X.lengths[chunk])
            for place, (scope, weights) in zip(own, found, strict=True):
                heads[place] = BatchHandle(place, *where, scope, weights)
        self._known.update({place: head for place, head in heads.items() if place.seed is None})
        return self._known | heads

    def n_steps(self, batches: Sequence[BatchHandle]) -> int:
        """Return how many steps of stochastic inference a step on these batches counts for."""
        return 1 if self._is_whole else len(batches)

    def visit(
        self,
        batches: Sequence[BatchHandle],
        ask: Callable[[BatchHandle], VisitRequest],
        expect: Callable[[BatchHandle], Any],
        workers: Workers,
        *,
        summed: bool = False,
    ) -> Iterator[VisitResult]:
        """Visit batches where they are stored; yield results, or their sum if ``summed``."""
        asked = map(ask, batches)
        first, common = next(asked), None
        is_corrected = first.draw is not None and first.draw.is_corrected
        scope = BatchScope() if is_corrected else _common_scope(batches)
        if scope is not None:
            head = batches[0]._replace(scope=scope)
            # statistics to draw from are indexed by the original columns
            active = None if first.draw is not None else scope.active
            common = self.X.site.share(SharedGlobals(first.model, expect(head), active))

        def tasks() -> Iterator[tuple[Any, tuple[Any, ...]]]:
            for head, one in zip(batches, chain([first], asked), strict=True):
                if scope is None:
                    one = replace(one, global_params=expect(head))
                else:
                    one = replace(one, model=None)
                yield self.X.handles[head.place.chunk], (head.place, head.offset, one)

        function = partial(_of_view, _visited, None, None)
        if summed and not first.is_by_row and first.pair_entropies is None:
            yield self.X.site.total(function, VisitResult.total, tasks(), common)
        else:
            yield from self.X.site.each(function, tasks(), common)


def _n_words(X: Any, weights: Array) -> tuple[Any]:
    return (weights @ X.sum(axis=1),)


@rows_of.register
def _(
    X: Chunks,
    weights: Any,
    batch_size: int | None = None,
    n_parallel: int | None = None,
    total: float | None = None,
) -> Any:
    size = ROWS_OF_VISIT if batch_size is None else batch_size
    return ChunkRows(X, weights, size, total, n_parallel)
