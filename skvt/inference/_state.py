"""The state of a fit between its steps, and the rows of the data in batches.

The *globals* are the global parameters of a model. :class:`State` has their posterior, and other
data with which the fit continues. An *engine* is an inference algorithm. A *local step* computes
the posterior of the local variables of a batch of rows. An engine *visits* a batch when it makes
the local step of the batch. :class:`MemoizedState` adds a *memo* of each batch, which has the
statistics and the entropies of its last local step. :class:`Rows` divides data in memory into
batches, and visits the batches for engines. T is the temperature.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce, singledispatch
from itertools import chain, pairwise
from operator import iadd
from typing import Any, Self, TypeAlias

import numpy as np

from skvt.contracts import Model, MoveRecord, PriorTerm, Requirement
from skvt.expfam import RunningStats, Stats
from skvt.files import in_files
from skvt.inference._memos import (
    Memo,
    Memos,
    MergeChange,
    RearrangeChange,
    add_memos,
    take_components,
)
from skvt.inference._parallel import Workers
from skvt.inference._visit import VisitRequest, VisitResult, visit_batch
from skvt.rows import pieces, sums_of_rows
from skvt.typing import Array, IndexArray

# Default number of rows of a batch in passes over all data, in evaluations and in ``transform``.
ROWS_PER_BATCH = 2048


@in_files("inference.PriorStats")
@dataclass
class PriorStats:
    """Weighted mean over rows of the statistics from which priors of local variables are learned.

    The mean is kept as a sum and a weight. A *term* is the contribution of a batch: the pair of its
    sum and its weight. It is None if the priors are fixed.
    """

    # Weighted sum of the statistics.
    total: float | Array = 0.0
    # Sum of the weights.
    weight: float = 0.0

    def add(self, term: PriorTerm | None, factor: float = 1.0) -> None:
        """Add ``factor`` times a term."""
        if term is not None:
            total, weight = term
            self.total = self.total + factor * total
            self.weight = self.weight + factor * weight

    def blend(self, rho: float, term: PriorTerm | None) -> None:
        """Move by the share ``rho`` towards a term."""
        if term is not None:
            total, weight = term
            self.total = (1.0 - rho) * self.total + rho * total
            self.weight = (1.0 - rho) * self.weight + rho * weight

    def without_last(self) -> "PriorStats":
        """Return a copy without the last entry of the sum, which only collapsed models add.

        A sum that is a single number is copied unchanged.
        """
        total: Any = self.total
        return PriorStats(total[:-1] if np.ndim(total) else total, self.weight)

    @property
    def mean(self) -> Any:
        """The weighted mean; None before any data."""
        return self.total / self.weight if self.weight > 0.0 else None


@in_files("inference.State")
@dataclass
class State:
    """The variational posterior of the globals, and the progress of the fit."""

    # Statistics divided by T. The posterior has the natural parameters ``lam = prior + stats``.
    stats: RunningStats
    # Number of global updates, in short *steps*, so far.
    n_steps: int = 0
    # Sum of ``1 - share`` over steps, where ``share`` is the number of rows of the step divided by
    # the number of rows of a full minibatch. Only streams make steps with a share below 1.
    n_lacking_steps: float = 0.0
    # Weight of the rows of all visits so far. A row counts once for each visit.
    rows_seen: float = 0.0
    # Statistics from which priors are learned.
    prior_stats: PriorStats = field(default_factory=PriorStats)
    # Number of times that ``stats`` count each row. It may be more than 1 while T is above 1.
    replication: float = 1.0
    # In memoized inference, the factor 1 / T by which ``stats`` differ from the statistics of the
    # memos; otherwise 1.
    inv_temp: float = 1.0
    # Seed of all draws during the fit, except the draws of the order of rows.
    seed: int = 0
    # Records of all proposals of moves, accepted or rejected. Moves change the components.
    move_log: list[MoveRecord] = field(default_factory=list)
    # (N, ...): during ``fit``, the initial value for the next local step of each row. NaN stands
    # for the default initial value. Infinity lets the local step choose among several initial
    # values. None stands for the default initial values of all rows.
    row_starts: Array | None = None

    @property
    def n_full_steps(self) -> float:
        """Number of steps so far, where a step on few rows counts as a fraction of a step."""
        return self.n_steps - self.n_lacking_steps

    @property
    def plain_stats(self) -> RunningStats:
        """The statistics with each row counted once."""
        if self.replication == 1.0:
            return self.stats
        return self.stats.scaled_view(1.0 / self.replication)

    def replicate(self, replication: float) -> None:
        """Scale the statistics so that they count each row ``replication`` times."""
        if replication != self.replication:
            self.stats.rescale(replication / self.replication)
            self.replication = replication

    def with_row_starts(self, batch: Any) -> Any:
        """Return the batch with the initial values for its local step."""
        row_starts = self.row_starts_of(batch)
        return batch if row_starts is None else replace(batch, row_starts=row_starts)

    def row_starts_of(self, batch: Any) -> Array | None:
        """Return the initial values for the local step of a batch; None for the default values."""
        return None if self.row_starts is None else self.row_starts[batch.rows]

    def store_row_starts(self, rows: IndexArray | None, starts: Array | None) -> None:
        """Store initial values for the next local steps of the rows with the indices ``rows``.

        Ignore them if all local steps have their default initial values.
        """
        if self.row_starts is not None:
            self.row_starts[rows] = starts

    def draft(self, rows: IndexArray | None = None) -> Self:
        """Return an independent copy, in which local steps have their default initial values.

        The caller may change only the rows ``rows`` of the statistics of the copy, or all rows if
        ``rows`` is None.
        """
        return replace(
            self, stats=self.stats.draft(rows), prior_stats=replace(self.prior_stats),
            row_starts=None, move_log=list(self.move_log),
        )  # fmt: skip

    def convert_to_state(self, **changes: Any) -> "State":
        """Return a :class:`State` with the fields of this state, without memos.

        ``changes`` replace the values of some fields.
        """
        # `replace` would keep the class of the state, which may have memos.
        return State(**{name: vars(self)[name] for name in State.__dataclass_fields__} | changes)

    def regrouped(self, change: Callable[[Stats], Stats], first_components: IndexArray) -> Self:
        """Return a state in which groups of components are replaced by their sums.

        ``change(stats)`` replaces the groups in statistics. ``first_components`` has the number of
        the first component of each group.
        """
        stats = RunningStats(change(self.stats.as_stats()).arrays)
        return replace(self.draft(), stats=stats, prior_stats=PriorStats())

    def rebuilt(self, change: Callable[[Stats], Stats], index: IndexArray) -> Self:
        """Return a state whose component i is component ``index[i]``, or empty if the index is -1.

        The statistics in the new order are then replaced by ``change(stats)``.
        """
        arrays = tuple(take_components(array, index) for array in self.stats.as_stats().arrays)
        return replace(self.draft(), stats=RunningStats(change(Stats(arrays)).arrays))

    def replace_first_block(self, blocks_of_batches: Iterable[Array]) -> None:
        """Replace the first array of the statistics by the sum of the arrays of all batches."""
        first_block = reduce(iadd, blocks_of_batches)
        self.stats = RunningStats([first_block, *self.plain_stats.as_stats().arrays[1:]])
        self.replication = 1.0

    def without_memos(self, total_weight: float) -> "State":
        """Return the state itself, which has no memos; ``total_weight`` is ignored."""
        return self


#: The memos and the identifiers of the components at a checkpoint.
Checkpoint: TypeAlias = tuple[Memos, IndexArray]


@in_files("inference.MemoizedState")
@dataclass
class MemoizedState(State):
    """The state of memoized inference.

    The statistics ``stats`` are the sum of the memos, times ``inv_temp`` and ``replication``.
    During the first pass, the sum also has a part of the initial statistics, which represents the
    batches that have no memo yet.
    """

    # The memo of each batch, with untempered statistics and entropies.
    memos: Memos = field(default_factory=Memos)
    # During the first pass, the statistics with which the fit began, for all rows; otherwise None.
    initial: Stats | None = None
    # (K,): identifiers of the components, by which moves recognise components from pass to pass.
    # The result of a merge has a new identifier. The array is empty before the first batch.
    component_ids: IndexArray = field(default_factory=lambda: np.empty(0, np.int64))
    # Number of identifiers used so far.
    n_ids: int = 0

    def draft(self, rows: IndexArray | None = None) -> Self:
        """Return an independent copy: see :meth:`State.draft`."""
        # The copy shares the memos with this state, because a memo never changes.
        return replace(super().draft(rows), memos=Memos(self.memos))

    def regrouped(self, change: Callable[[Stats], Stats], first_components: IndexArray) -> Self:
        """Return a state with sums of groups of components: see :meth:`State.regrouped`.

        The memos change in the same way. They lose their candidates, because candidates are numbers
        of the old components.
        """
        memos = {
            key: replace(memo, stats=change(memo.stats), candidates=None)
            for key, memo in self.memos.items()
        }
        ids = self.component_ids[first_components]
        state = super().regrouped(change, first_components)
        state = replace(state, memos=Memos(memos), component_ids=ids)
        state.resum()
        return state

    def rebuilt(self, change: Callable[[Stats], Stats], index: IndexArray) -> Self:
        """Return a state with other components: see :meth:`State.rebuilt`.

        The memos change in the same way.
        """
        memos = {key: memo.rearranged(index) for key, memo in self.memos.items()}
        memos = {key: replace(memo, stats=change(memo.stats)) for key, memo in memos.items()}
        state = replace(super().rebuilt(change, index), memos=Memos(memos), initial=None)
        if state.component_ids.size:
            state._rearrange_ids(index)
        return state

    def replace_first_block(self, blocks_of_batches: Iterable[Array]) -> None:
        """Replace the first array of statistics of each memo by the array of its batch.

        The state must come from ``fit``, so that the memos have the keys 0, 1, ...
        """
        memos = Memos(self.memos)
        for key, block in enumerate(blocks_of_batches):
            memo = memos[key]
            memos[key] = replace(memo, stats=Stats((block, *memo.stats.arrays[1:])))
        self.memos = memos
        self.resum()

    def without_memos(self, total_weight: float) -> State:
        """Return a state without memos, whose statistics represent rows of this total weight.

        The statistics stay unchanged, whatever ``total_weight`` is, if this state has no memos yet.
        """
        state = self.convert_to_state()
        # The memos may represent rows of another weight.
        if self.memos:
            state.stats.rescale(total_weight / self.memos.weight)
        return state

    def untempered(self) -> RunningStats:
        """Return the statistics at T = 1 with each row counted once."""
        return self.stats.scaled_view(1.0 / (self.inv_temp * self.replication))

    def begin(self, n_components: int) -> None:
        """Begin the first pass: store the initial statistics, and give components identifiers.

        The initial statistics represent each batch until its first visit.
        """
        self.initial = self.untempered().as_stats()
        self.component_ids = self.allocate_ids(n_components)

    def temper(self, inv_temp: float, replication: float) -> None:
        """Scale the statistics to this inverse temperature and replication."""
        self.stats.rescale(inv_temp / self.inv_temp)
        self.inv_temp = inv_temp
        self.replicate(replication)

    def replace_memo(self, key: Hashable, memo: Memo, share: float) -> None:
        """Replace the memo of a batch, and the batch's part of the statistics [HS13 eq. 11].

        In the first pass, a batch has no memo yet: ``memo`` replaces the fraction ``share`` of the
        initial statistics, where ``share`` is the share of the batch in all rows.
        """
        factor = self.inv_temp * self.replication
        if key in self.memos:
            self.stats.add(self.memos[key].stats, -factor)
        elif self.initial is not None:
            self.stats.add(self.initial, -factor * share)
        self.stats.add(memo.stats, factor)
        self.memos[key] = memo

    def join_memos(self, keys: Sequence[Hashable], key: Hashable) -> None:
        """Replace the memos of the batches ``keys``, if any, by their sum as memo of ``key``."""
        if keys:
            self.memos[key] = add_memos([self.memos.pop(old_key) for old_key in keys])

    def candidates_of(self, key: Hashable, n_rows: int, visits_all: bool) -> IndexArray:
        """Return the components with which the rows of a batch are compared, (n, J).

        The result has the shape (n, 0), which stands for all components, if ``visits_all`` or if
        the batch has no memo with candidates.
        """
        candidates = None if visits_all or key not in self.memos else self.memos[key].candidates
        return np.empty((n_rows, 0), np.int32) if candidates is None else candidates

    def forget_candidates(self) -> None:
        """Remove the candidates from the memos, because they need memory for each row."""
        if self.memos.has_candidates:
            memos = {key: replace(memo, candidates=None) for key, memo in self.memos.items()}
            self.memos = Memos(memos)

    def resum(self) -> None:
        """Recompute the statistics as the sum of the memos, without the initial statistics."""
        self.initial = None
        self.stats = RunningStats(self.memos.total().stats.arrays)
        self.stats.rescale(self.inv_temp * self.replication)

    def checkpoint(self) -> Checkpoint:
        """Return the present memos and components, for :meth:`restore`."""
        # The ids need no copy, because methods of the state replace the array.
        return Memos(self.memos), self.component_ids

    def restore(self, checkpoint: Checkpoint) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
        self.memos, self.component_ids = checkpoint
        self.resum()

    def allocate_ids(self, n_new: int) -> IndexArray:
        """Return ``n_new`` identifiers that have never been used before."""
        self.n_ids += n_new
        return np.arange(self.n_ids - n_new, self.n_ids)

    def _rearrange_ids(self, index: IndexArray) -> None:
        """Give component i the identifier of component ``index[i]``, or a new one for index -1."""
        # Indexing makes a new array. The old one must not change, because checkpoints share it.
        ids = self.component_ids[index]
        ids[index < 0] = self.allocate_ids(int((index < 0).sum()))
        self.component_ids = ids

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Give the rows of component b to component a, a < b, and leave b empty.

        The losses of entropy by further merges of a become unknown. If ``bounded``, they are
        replaced by upper bounds: see :meth:`Memo.merged`.
        """
        self.memos.change_all(MergeChange(int(a), int(b), bounded))
        # Copy the ids, because checkpoints share the array.
        self.component_ids = self.component_ids.copy()
        self.component_ids[a] = self.allocate_ids(1)[0]
        self.resum()

    def rearrange(self, index: IndexArray) -> None:
        """Make component ``index[i]`` component i, or make i a new, empty component if it is -1."""
        index = np.asarray(index)
        self._rearrange_ids(index)
        self.stats.fold()
        self.stats = RunningStats(take_components(array, index) for array in self.stats.arrays)
        self.memos.change_all(RearrangeChange(index))
        if self.initial is not None:
            arrays = tuple(take_components(array, index) for array in self.initial.arrays)
            self.initial = Stats(arrays)


class WithoutMemosMixin:
    """The methods that begin and end a fit in engines without memos.

    These engines do not know the exact bound at the end of a fit.
    """

    requires: tuple[Requirement, ...] = ()
    knows_exact_bound = False

    def start(self, state: State, total: float) -> State:
        """Return the state without the memos of an earlier fit.

        ``total`` is the weight of all rows of this fit.
        """
        return state.without_memos(total)

    def finish(self, model: Any, state: State) -> float | None:
        """Return None, because the exact bound is not known."""
        return None


@dataclass(frozen=True)
class BatchedRows:
    """Base of the classes of rows in memory and in chunks, which divide rows into batches."""

    # (N, D): array, CSR matrix or `Chunks`.
    X: Any
    # (N,): positive weights of the rows, an array or `ChunkWeights`.
    weights: Any
    # Maximum number of rows of a batch.
    batch_size: int
    # Weight of the data set that the rows represent, by default the sum of ``weights``.
    total: Any = None
    # Number of batches that are visited at once, with the same globals. None is only for rows in
    # chunks, which then choose the number themselves.
    n_parallel: int | None = 1

    def __post_init__(self) -> None:
        if self.total is None:
            object.__setattr__(self, "total", float(self.weights.sum()))

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return int(self.weights.size)

    @property
    def n_words(self) -> float:
        """Weight of all words, if rows are counts of words."""
        return float(sums_of_rows(self.X, self.weights, _count_words)[0])


@dataclass(frozen=True)
class Rows(BatchedRows):
    """Rows of data in memory."""

    @property
    def n_batches(self) -> int:
        """Number of batches of a pass."""
        return -(-self.n_rows // self.batch_size)

    def list_batches(self, rng: np.random.Generator | None = None) -> list[IndexArray]:
        """Return the row indices of each batch of a pass.

        The rows are shuffled by ``rng`` unless it is None or there is a single batch.
        """
        rows = np.arange(self.n_rows)
        if rng is not None and self.n_batches > 1:
            rows = rng.permutation(self.n_rows)
        return [rows[batch] for batch in pieces(rows.size, self.batch_size)]

    def select_rows(self, rows: IndexArray) -> "Rows":
        """Return the rows whose indices are ``rows``.

        ``total`` is not kept: it becomes the sum of their weights. ``n_parallel`` becomes 1.
        """
        return Rows(self.X[rows], self.weights[rows], self.batch_size)

    def batch(self, model: Model, rows: IndexArray) -> Any:
        """Return a batch of the rows whose indices are ``rows``, prepared by the model."""
        return model.batch(self.X, rows, self.weights[rows])

    def group_batches(
        self, model: Model, workers: Workers, rows_of_batches: list[IndexArray], *,
        fixed_globals: bool = False,
    ) -> Iterator[list[Any]]:  # fmt: skip
        """Yield lists of batches that are visited at once, with the same globals.

        ``rows_of_batches`` has the row indices of each batch, as :meth:`list_batches` returns them.
        If ``fixed_globals``, the caller does not change the globals during the pass, and each list
        has a single batch.
        """
        n_at_once = 1 if fixed_globals else self.n_parallel
        batches: list[Any] = []
        # Another thread prepares the next batch while the caller visits the present batch, because
        # `pairwise` calls ``prefetch`` a batch ahead. None is the successor of the last batch.
        prefetched = (workers.prefetch(self.batch, model, rows) for rows in rows_of_batches)
        for get_batch, _ in pairwise(chain[Any](prefetched, [None])):
            batches.append(get_batch())
            if len(batches) == n_at_once:
                yield batches
                batches = []
        if batches:
            yield batches

    def count_steps(self, batches: Sequence[Any]) -> int:
        """Return the number of steps for which a joint stochastic step on these batches counts."""
        return len(batches)

    def visit(
        self, batches: Sequence[Any], make_request: Callable[[Any], VisitRequest],
        make_globals: Callable[[Any], Any], workers: Workers, *, summed: bool = False,
    ) -> Iterator[VisitResult]:  # fmt: skip
        """Visit batches of :meth:`group_batches` one after the other; yield their results.

        ``make_request(batch)`` returns the request of a visit without the globals.
        ``make_globals(batch)`` returns the globals of the columns that the batch needs, or, if the
        request has a ``draw``, the statistics from which the globals are drawn. Both functions are
        called in the order of the batches. ``summed`` allows rows in chunks to yield the sum of
        several results in their place; rows in memory ignore it.
        """
        for batch in batches:
            request = replace(make_request(batch), globals_or_stats=make_globals(batch))
            yield visit_batch(batch, request, workers.run)


def _count_words(X: Any, weights: Array) -> tuple[Any, ...]:
    """Return the weighted sum of all counts of X, as the tuple that `sums_of_rows` expects."""
    return (weights @ X.sum(axis=1),)


@singledispatch
def make_rows(
    X: Any, weights: Array, batch_size: int | None = None, n_parallel: int | None = None,
    total: float | None = None,
) -> Any:  # fmt: skip
    """Return the rows of X in batches: `Rows`, or `ChunkRows` if X is in chunks.

    If ``batch_size`` is None, the batches have a size at which sums over all rows are fast. See
    `BatchedRows` for the arguments.
    """
    size = ROWS_PER_BATCH if batch_size is None else batch_size
    return Rows(X, weights, size, total, n_parallel or 1)
