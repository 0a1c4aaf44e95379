"""The state of a fit between steps, and the rows of the data."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce, singledispatch
from operator import iadd
from typing import Any, Self, TypeAlias

import numpy as np

from skvt.contracts import Model, MoveRecord, PriorTerm, Requirement
from skvt.expfam import RunningStats, Stats
from skvt.files import in_files
from skvt.inference._memos import Memo, Memos, Merged, Rearranged, sum_of, take
from skvt.inference._parallel import Workers
from skvt.inference._visit import VisitRequest, VisitResult, visit_batch
from skvt.typing import Array, IndexArray

# Default number of rows per batch, for full-data passes, evaluation and transform.
ROWS_PER_BATCH = 2048


@in_files("inference.PriorStats")
@dataclass
class PriorStats:
    """Weighted mean of the statistics from which priors are learned, as a sum and a weight."""

    total: float | Array = 0.0
    weight: float = 0.0

    def add(self, addend: PriorTerm | None, factor: float = 1.0) -> None:
        """Add (sum, weight) of one batch, or None, times a factor."""
        if addend is not None:
            self.total = self.total + factor * addend[0]
            self.weight = self.weight + factor * addend[1]

    def blend(self, rho: float, addend: PriorTerm | None) -> None:
        """Fade by ``1 - rho``, then add ``rho`` times (sum, weight) of one batch."""
        if addend is not None:
            self.total = (1.0 - rho) * self.total + rho * addend[0]
            self.weight = (1.0 - rho) * self.weight + rho * addend[1]

    def without_last(self) -> "PriorStats":
        """A copy without the last entry, if there are any."""
        total: Any = self.total
        return PriorStats(total[:-1] if np.ndim(total) else total, self.weight)

    @property
    def mean(self) -> Any:
        """The weighted mean, or None before any data."""
        return self.total / self.weight if self.weight > 0.0 else None


@in_files("inference.State")
@dataclass
class State:
    """The variational posterior over the globals and the position in the fit."""

    # Tempered statistics S; the posterior is ``lam = prior + S``.
    stats: RunningStats
    # Number of global updates so far.
    n_steps: int = 0
    # Sum of the weights of all rows visited so far.
    rows_seen: float = 0.0
    # Statistics from which priors are learned.
    prior_stats: PriorStats = field(default_factory=PriorStats)
    # Number of times that ``stats`` count each row.
    replication: float = 1.0
    # The factor 1 / T of ``stats`` if memos hold untempered statistics; otherwise 1.
    inv_temp: float = 1.0
    # Seed of all draws during the fit, except the order of rows.
    seed: int = 0
    # Proposed and accepted moves.
    move_log: list[MoveRecord] = field(default_factory=list)
    # (N, ...): during ``fit``, the start of the next local step of each row; NaN for a default
    # start, infinite for a search among several.
    row_starts: Array | None = None

    @property
    def plain_stats(self) -> RunningStats:
        """The statistics with each row counted once."""
        return self.stats if self.replication == 1.0 else self.stats.scaled(1.0 / self.replication)

    def replicate(self, replication: float) -> None:
        """Scale the statistics to count each row this many times."""
        if replication != self.replication:
            self.stats.rescale(replication / self.replication)
            self.replication = replication

    def with_warm_start(self, batch: Any) -> Any:
        """Return the batch with its local steps starting where the last ones ended."""
        if self.row_starts is None:
            return batch
        return replace(batch, start=self.row_starts[batch.rows])

    def warm_start_of(self, batch: Any) -> Array | None:
        """Return the starts of the local steps of these rows, or None."""
        return None if self.row_starts is None else self.row_starts[batch.rows]

    def remember_ends(self, rows: IndexArray | None, start: Array | None) -> None:
        """Store where the next local step of these rows begins."""
        if self.row_starts is not None:
            self.row_starts[rows] = start

    def draft(self, rows: IndexArray | None = None) -> Self:
        """Return an independent copy; with ``rows``, only these statistics may be changed."""
        return replace(
            self,
            stats=self.stats.draft(rows),
            prior_stats=copy(self.prior_stats),
            row_starts=None,
            move_log=list(self.move_log),
        )

    def regrouped(self, change: Callable[[Stats], Stats], places: IndexArray) -> Self:
        """Return the state with statistics ``change(stats)`` of the components at ``places``."""
        stats = RunningStats(change(self.stats.value()).arrays)
        return replace(self.draft(), stats=stats, prior_stats=PriorStats())

    def rebuilt(self, change: Callable[[Stats], Stats], index: IndexArray) -> Self:
        """Return the state of components ``index``, empty where -1, with ``change(stats)``."""
        arrays = tuple(take(array, index) for array in self.stats.value().arrays)
        return replace(self.draft(), stats=RunningStats(change(Stats(arrays)).arrays))

    def replace_first_block(self, of_batches: Iterable[Array]) -> None:
        """Replace the first block of statistics by the sum of these arrays."""
        first = reduce(iadd, of_batches)
        self.stats = RunningStats([first, *self.plain_stats.value().arrays[1:]])
        self.replication = 1.0

    def without_memos(self, total: float) -> "State":
        """Return the state itself, which has no memos."""
        return self


#: The memos and the ids of the components, which a move may restore.
Checkpoint: TypeAlias = tuple[Memos, IndexArray]


@in_files("inference.MemoizedState")
@dataclass
class MemoizedState(State):
    """The state of memoized inference: the statistics are the sum of the memos."""

    # Contribution of each batch, untempered.
    memos: Memos = field(default_factory=Memos)
    # The initial statistics, which represent the rows that the first pass has not yet visited.
    initial: Stats | None = None
    # (K,): identifiers by which moves recognise components from pass to pass; a merged component
    # gets a new one. Empty before the first batch.
    component_ids: IndexArray = field(default_factory=lambda: np.empty(0, np.int64))
    n_ids: int = 0

    def draft(self, rows: IndexArray | None = None) -> Self:
        """Return an independent copy that may be changed."""
        return replace(super().draft(rows), memos=Memos(self.memos))

    def regrouped(self, change: Callable[[Stats], Stats], places: IndexArray) -> Self:
        """Return a state with all memos changed, of the components at ``places``."""
        memos = {
            key: replace(memo, stats=change(memo.stats), candidates=None)
            for key, memo in self.memos.items()
        }
        state = replace(
            super().regrouped(change, places),
            memos=Memos.of(memos),
            component_ids=self.component_ids[places],
        )
        state.resum()
        return state

    def rebuilt(self, change: Callable[[Stats], Stats], index: IndexArray) -> Self:
        """Return the state of components ``index``, with all memos changed, too."""
        memos = {key: memo.rearranged(index) for key, memo in self.memos.items()}
        memos = {key: replace(memo, stats=change(memo.stats)) for key, memo in memos.items()}
        state = replace(super().rebuilt(change, index), memos=Memos.of(memos), initial=None)
        if state.component_ids.size:
            ids = state.component_ids[index]
            ids[index < 0] = state.new_ids(int((index < 0).sum()))
            state.component_ids = ids
        return state

    def replace_first_block(self, of_batches: Iterable[Array]) -> None:
        """Replace the first block of each memo of ``fit`` by these arrays."""
        memos = Memos(self.memos)
        for key, block in enumerate(of_batches):
            memo = memos[key]
            memos[key] = replace(memo, stats=Stats((block, *memo.stats.arrays[1:])))
        self.memos = memos
        self.resum()

    def without_memos(self, total: float) -> State:
        """Return a state without memos; scale its statistics to rows of weight ``total``."""
        state = State(**{name: vars(self)[name] for name in State.__dataclass_fields__})
        if self.memos:
            state.stats.rescale(total / self.memos.weight)
        return state

    def untempered(self) -> RunningStats:
        """Return the statistics with each row counted once, at T = 1, as in memos."""
        return self.stats.scaled(1.0 / (self.inv_temp * self.replication))

    def begin(self, n_components: int) -> None:
        """Let the statistics represent all rows until each batch has replaced its part."""
        self.initial = self.untempered().value()
        self.component_ids = self.new_ids(n_components)

    def temper(self, inv_temp: float, replication: float) -> None:
        """Count the memos' statistics at this inverse temperature and replication."""
        self.stats.rescale(inv_temp / self.inv_temp)
        self.inv_temp = inv_temp
        self.replicate(replication)

    def remember(self, key: Hashable, memo: Memo, share: float) -> None:
        """Replace a batch's memo, and its part of the statistics [HS13 eq. 11].

        ``share`` is the batch's fraction of all rows, by which the initial statistics are reduced
        in the first pass.
        """
        factor = self.inv_temp * self.replication
        if key in self.memos:
            self.stats.add(self.memos[key].stats, -factor)
        elif self.initial is not None:
            self.stats.add(self.initial, -factor * share)
        self.stats.add(memo.stats, factor)
        self.memos[key] = memo

    def join(self, keys: Sequence[Hashable], key: Hashable) -> None:
        """Replace the memos of ``keys``, if there are any, by their sum."""
        if keys:
            self.memos[key] = sum_of([self.memos.pop(part) for part in keys])

    def candidates_of(self, key: Hashable, n_rows: int, asks_all: bool) -> IndexArray:
        """Return the candidates of a batch's rows, (n, J); (n, 0) stands for all components."""
        candidates = None if asks_all or key not in self.memos else self.memos[key].candidates
        return np.empty((n_rows, 0), np.int32) if candidates is None else candidates

    def forget_candidates(self) -> None:
        """Remove the candidates of rows after a fit, since they take memory for each row."""
        if self.memos.has_candidates:
            memos = {key: replace(memo, candidates=None) for key, memo in self.memos.items()}
            self.memos = Memos(memos)

    def resum(self) -> None:
        """Make the statistics exactly the sum of the memos, without the initial ones."""
        self.initial = None
        self.stats = RunningStats(self.memos.total().stats.arrays)
        self.stats.rescale(self.inv_temp * self.replication)

    def checkpoint(self) -> Checkpoint:
        """Return the argument of :meth:`restore`; memos are replaced rather than changed."""
        return Memos(self.memos), self.component_ids

    def restore(self, checkpoint: Checkpoint) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
        self.memos, self.component_ids = checkpoint
        self.resum()

    def new_ids(self, number: int) -> IndexArray:
        """Return ids that have never been used before."""
        self.n_ids += number
        return np.arange(self.n_ids - number, self.n_ids)

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Move the rows of component b to component a, a < b; b stays empty. See `Memo.merged`."""
        self.memos.change_all(Merged(int(a), int(b), bounded))
        self.component_ids = self.component_ids.copy()  # a snapshot shares them
        self.component_ids[a] = self.new_ids(1)[0]
        self.resum()

    def rearrange(self, index: IndexArray) -> None:
        """Keep the components in ``index``, in this order, with empty ones where it is -1."""
        index = np.asarray(index)
        ids = self.component_ids[index]
        ids[index < 0] = self.new_ids(int((index < 0).sum()))
        self.component_ids = ids
        self.stats.fold()
        self.stats = RunningStats(take(array, index) for array in self.stats.arrays)
        self.memos.change_all(Rearranged(index))
        if self.initial is not None:
            self.initial = Stats(tuple(take(array, index) for array in self.initial.arrays))


class WithoutMemosMixin:
    """Engines whose state has no memos, and which end without a known bound."""

    requires: tuple[Requirement, ...] = ()
    knows_exact_bound = False

    def start(self, state: State, total: float) -> State:
        """Return the state without memos of an earlier fit."""
        return state.without_memos(total)

    def finish(self, model: Any, state: State) -> float | None:
        """Return None, since the bound is not known."""
        return None


@dataclass(frozen=True)
class Rows:
    """Data, row weights, and how they are divided into batches."""

    # array or CSR matrix, (N, D)
    X: Any
    # (N,), positive
    weights: Array
    # Number of rows of a batch.
    batch_size: int
    # Weight of the data set that these rows represent; None becomes the sum of the weights.
    total: Any = None
    # Number of batches that are visited at once, with the same globals.
    n_parallel: int = 1

    def __post_init__(self) -> None:
        if self.total is None:
            object.__setattr__(self, "total", float(self.weights.sum()))

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.weights.size

    @property
    def n_batches(self) -> int:
        """Number of batches of a pass."""
        return -(-self.n_rows // self.batch_size)

    @property
    def n_words(self) -> float:
        """Weight of all words, if rows are counts of words."""
        return float(self.weights @ self.X.sum(axis=1))

    def order(self, rng: np.random.Generator | None = None) -> list[IndexArray]:
        """Return the row indices of a pass's batches, shuffled by ``rng`` if there are several."""
        rows = np.arange(self.n_rows)
        if rng is not None and self.n_batches > 1:
            rows = rng.permutation(self.n_rows)
        return [
            rows[start : start + self.batch_size] for start in range(0, rows.size, self.batch_size)
        ]

    def subset(self, rows: IndexArray) -> "Rows":
        """Return these rows only."""
        return Rows(self.X[rows], self.weights[rows], self.batch_size)

    def batch(self, model: Model, rows: IndexArray) -> Any:
        """Return a batch of these rows, prepared by the model."""
        return model.batch(self.X, rows, self.weights[rows])

    def rounds(
        self, model: Model, workers: Workers, places: list[IndexArray], *, whole: bool = False
    ) -> Iterator[list[Any]]:
        """Yield lists of batches that are visited at once, in the order of ``places``.

        A batch is prepared while its predecessor is processed. With ``whole``, all visits use the
        same globals, and lists have one batch.
        """
        number = 1 if whole else self.n_parallel
        waiting: deque[Callable[[], Any]] = deque()
        ready: list[Any] = []
        for rows in places:
            waiting.append(workers.prefetch(self.batch, model, rows))
            if len(waiting) > 1:
                ready.append(waiting.popleft()())
            if len(ready) == number:
                yield ready
                ready = []
        while waiting:
            ready.append(waiting.popleft()())
        if ready:
            yield ready

    def n_steps(self, batches: Sequence[Any]) -> int:
        """Return how many steps of stochastic inference a step on these batches counts for."""
        return len(batches)

    def visit(
        self,
        batches: Sequence[Any],
        ask: Callable[[Any], VisitRequest],
        expect: Callable[[Any], Any],
        workers: Workers,
        *,
        summed: bool = False,
    ) -> Iterator[VisitResult]:
        """Visit these batches of :meth:`rounds` one after the other, see `visit_batch`.

        Both functions are called in the order of the batches. ``ask(batch)`` returns the request
        without globals. ``expect(batch)`` returns the globals, which depend only on the scope of
        the batch, or with a draw the statistics to draw from. With ``summed``, additive results may
        be returned as their sum.
        """
        for batch in batches:
            yield visit_batch(batch, replace(ask(batch), global_params=expect(batch)), workers.run)


@singledispatch
def rows_of(
    X: Any,
    weights: Array,
    batch_size: int | None = None,
    n_parallel: int | None = None,
    total: float | None = None,
) -> Any:
    """Return `Rows`, or rows in chunks; batch size None is fast for sums over all rows."""
    size = ROWS_PER_BATCH if batch_size is None else batch_size
    return Rows(X, weights, size, total, n_parallel or 1)
