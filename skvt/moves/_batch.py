"""Births within one batch of a stream: fresh components compete for the rows of the batch.

Fresh components are those that a birth has learned from some rows of the batch. The memo of a batch
has its statistics and entropies. The memos of all other batches stay as they are, so that the exact
bound of all rows is known.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Memo, Mergeable, MovableState, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import compute_bound, concatenate_components, find_scale
from skvt.moves._merge import MIN_GAIN, MIN_ROWS_OF_COMPONENT
from skvt.moves._targets import Target
from skvt.moves._trial import Decision, Trial, compete
from skvt.ties import exceeds, stable_order
from skvt.typing import IndexArray

# Number of local and global updates after which a birth is accepted or rejected.
_N_UPDATES = 3


@dataclass
class BatchBirths:
    """Births on one batch of a stream, whose memo has the key ``key`` in ``state.memos``."""

    model: Mergeable
    batch: Any
    key: Hashable
    state: MovableState
    tools: MoveTools

    def find_kept_components(self, target: Target) -> IndexArray:
        """Return the indices of the components that stay if fresh components replace the target.

        A component of the target stays only if it has rows in other batches.
        """
        total, memo = self.state.memos.total(), self.state.memos[self.key]
        masses_elsewhere = self.model.component_masses(total.stats)
        masses_elsewhere = masses_elsewhere - self.model.component_masses(memo.stats)
        is_other = ~np.isin(self.state.component_ids, target.ids)
        return np.flatnonzero(is_other | exceeds(masses_elsewhere, 0.0, scale=total.weight))

    def sum_kept_statistics(self, kept: IndexArray, target: Target) -> Stats:
        """Return the statistics that the components ``kept`` have if they lose the target's rows.

        Components of the target lose their rows of this batch; other components keep all rows.
        """
        memos = self.state.memos
        is_target = np.isin(self.state.component_ids[kept], target.ids)
        arrays = [array[kept] for array in memos.total().stats.arrays]
        for array, part in zip(arrays, memos[self.key].stats.arrays, strict=True):
            array[is_target] -= part[kept][is_target]
        return Stats(tuple(arrays))

    def try_components(
        self, fresh_model: Mergeable, fresh_stats: Stats, kept: IndexArray
    ) -> Decision:
        """Replace the components by ``kept`` and fresh ones if the bound of all memos rises.

        ``fresh_model`` is the model with the priors of the fresh components. The bound before the
        birth is that of ``model``. Return the decision.
        """
        memos, before = self.state.memos, self.state.memos.total()
        kept_stats = Stats(tuple(array[kept] for array in before.stats.arrays))

        def begin(candidates: Stats) -> tuple[Trial, RunningStats]:
            # The index -1 makes an empty component.
            index = np.concatenate([kept, np.full(len(candidates.arrays[0]), -1)])
            other_batches = before.plus(memos[self.key], sign=-1.0).rearranged(index)
            trial = _BatchTrial(self, fresh_model, index, kept.size, other_batches)
            # The rows of the candidates count twice here, since they are also in the kept
            # statistics. The first update corrects this.
            return trial, RunningStats(concatenate_components([kept_stats, candidates]).arrays)

        bound = compute_bound(self.model, before)
        trial, decision = compete(
            begin, fresh_stats, bound,
            max_updates=_N_UPDATES, scale=find_scale(bound, before), min_gain=MIN_GAIN,
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
    # The sum of the memos of all other batches for these K' components.
    other_batches: Memo
    # The memo of the batch after the last update.
    memo: Memo | None = None

    def update(self, stats: RunningStats) -> float:
        """Make a local step with these statistics; return the bound of all memos in nats."""
        model, batch, tools = self.fresh_model, self.births.batch, self.births.tools
        global_params = model.expectation(stats, batch, tools.run)
        # Moves are made at T = 1.
        result = model.local_step(batch, global_params, 1.0, tools.run)
        self.memo = tools.make_memo(model, result, batch)
        self.total_memo = self.other_batches.plus(self.memo)
        return compute_bound(model, self.total_memo)

    def find_survivors(self, fresh_stats: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh components have enough rows, and their statistics after the update."""
        updated = Stats(tuple(array[self.n_kept :] for array in self.total_memo.stats.arrays))
        survives = ~exceeds(MIN_ROWS_OF_COMPONENT, self.fresh_model.component_masses(updated))
        return survives, Stats(tuple(array[survives] for array in updated.arrays))


def smallest_components(model: Mergeable, fresh_stats: Stats, number: int) -> Stats:
    """Return the statistics of the ``number`` components with the smallest counts."""
    counts = model.component_masses(fresh_stats)
    # The counts descend in this order, so that the later ones of tied components are returned.
    order = stable_order(-counts, scale=float(counts.sum()))
    smallest = np.sort(order[max(0, counts.size - number) :])
    return Stats(tuple(array[smallest] for array in fresh_stats.arrays))
