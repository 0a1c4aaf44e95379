"""Births within one batch of a stream: fresh components compete for the rows of the batch.

A *birth* replaces its *target*, a component or several components, by *fresh* components, which it
has learned from the rows of the target in the batch. The *memo* of a batch has the statistics and
entropies of the batch. The memos of all other batches stay as they are, so that the exact bound of
all rows is known.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Memo, Mergeable, MovableState, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import (
    compute_bound,
    concatenate_components,
    find_rounding_scale,
    select_components,
)
from skvt.moves._merge import MIN_GAIN_OF_PRIORS, MIN_ROWS_OF_COMPONENT
from skvt.moves._targets import Target
from skvt.moves._trial import Decision, Trial, compete
from skvt.ties import exceeds, stable_order
from skvt.typing import IndexArray

# Number of local and global updates after which a birth is accepted or rejected.
_N_UPDATES = 3


@dataclass
class BatchBirths:
    """Births within a batch of a stream."""

    model: Mergeable
    batch: Any
    # Key of the batch's memo in ``state.memos``.
    key: Hashable
    state: MovableState
    tools: MoveTools

    def find_kept_components(self, target: Target) -> IndexArray:
        """Return the indices of the components that stay if fresh components replace the target.

        These are the components outside the target, and the components of the target that have rows
        in other batches.
        """
        total, memo = self.state.memos.total(), self.state.memos[self.key]
        # Expected numbers of rows of the components in all other batches.
        masses_elsewhere = self.model.component_masses(total.stats)
        masses_elsewhere = masses_elsewhere - self.model.component_masses(memo.stats)
        is_outside = ~np.isin(self.state.component_ids, target.ids)
        return np.flatnonzero(is_outside | exceeds(masses_elsewhere, 0.0, scale=total.weight))

    def compute_statistics_without_target_rows(self, kept: IndexArray, target: Target) -> Stats:
        """Return the statistics of the components ``kept`` without the target's rows of this batch.

        Kept components of the target have only their rows in other batches. Components outside the
        target keep all rows.
        """
        memos = self.state.memos
        is_target = np.isin(self.state.component_ids[kept], target.ids)
        arrays = [array[kept] for array in memos.total().stats.arrays]
        for array, batch_array in zip(arrays, memos[self.key].stats.arrays, strict=True):
            array[is_target] -= batch_array[kept][is_target]
        return Stats(tuple(arrays))

    def try_components(
        self, fresh_model: Mergeable, fresh_stats: Stats, kept: IndexArray
    ) -> Decision:
        """Add fresh components if the bound of all memos rises; return the decision.

        Of the present components, only the components ``kept`` stay. The bound before the birth is
        computed with ``model``, and the bound after the birth with ``fresh_model``, which has the
        priors of the fresh components.
        """
        memos, memo_before = self.state.memos, self.state.memos.total()
        # The kept components begin with all their rows, so that kept and fresh components may count
        # the same rows of this batch. The first update of a trial corrects this, because it
        # computes the statistics of the batch again.
        kept_stats = select_components(memo_before.stats, kept)

        def make_trial(candidates: Stats) -> tuple[Trial, RunningStats]:
            """Return a trial of fresh components, and the statistics with which it begins."""
            # Index -1 stands for an empty component.
            index = np.concatenate([kept, np.full(len(candidates.arrays[0]), -1)])
            other_batches = memo_before.plus(memos[self.key], sign=-1.0).rearranged(index)
            trial = _BatchTrial(self, fresh_model, index, kept.size, other_batches)
            return trial, RunningStats(concatenate_components([kept_stats, candidates]).arrays)

        bound = compute_bound(self.model, memo_before)
        # A birth may also change the learned priors. The bound must therefore rise by more than
        # MIN_GAIN_OF_PRIORS.
        trial, decision = compete(
            make_trial, fresh_stats, bound,
            max_updates=_N_UPDATES, scale=find_rounding_scale(bound, memo_before),
            min_gain=MIN_GAIN_OF_PRIORS,
        )  # fmt: skip
        if decision.is_accepted:
            self.state.rearrange(trial.index)
            memos[self.key] = trial.memo
            self.state.resum()
        return decision


@dataclass
class _BatchTrial(Trial):
    """A trial in which kept and fresh components compete for the rows of the batch."""

    births: BatchBirths
    fresh_model: Mergeable
    # (K',): the indices of the kept components, then -1 for each fresh component.
    index: IndexArray
    n_kept: int
    # The sum of the memos of all other batches, with the K' components of ``index``.
    other_batches: Memo
    # The memo of the batch after the last update; None before the first.
    memo: Memo | None = None

    def update(self, stats: RunningStats) -> float:
        """Make a local step of the batch; return the bound of all memos in nats.

        ``stats`` are the statistics of all rows. Set ``memo`` and ``total_memo``.
        """
        model, batch, tools = self.fresh_model, self.births.batch, self.births.tools
        global_params = model.expectation(stats, batch, tools.run)
        # Moves are made at the inverse temperature 1.
        result = model.local_step(batch, global_params, 1.0, tools.run)
        self.memo = tools.make_memo(model, result, batch)
        self.total_memo = self.other_batches.plus(self.memo)
        return compute_bound(model, self.total_memo)

    def find_survivors(self, fresh_stats: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh components have enough rows, as an array of bool.

        Also return the statistics of these components after the last update.
        """
        stats = select_components(self.total_memo.stats, slice(self.n_kept, None))
        masses = self.fresh_model.component_masses(stats)
        # A component survives if it has the minimum number of rows, up to rounding errors.
        is_survivor = ~exceeds(MIN_ROWS_OF_COMPONENT, masses)
        return is_survivor, select_components(stats, is_survivor)


def select_smallest_components(model: Mergeable, fresh_stats: Stats, n_smallest: int) -> Stats:
    """Return the statistics of the ``n_smallest`` components with the smallest counts of rows.

    Of components with equal counts, the components with the larger indices are returned.
    """
    counts = model.component_masses(fresh_stats)
    descending = stable_order(-counts, scale=float(counts.sum()))
    smallest = np.sort(descending[max(0, counts.size - n_smallest) :])
    return select_components(fresh_stats, smallest)
