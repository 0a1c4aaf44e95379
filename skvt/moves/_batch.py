"""Births within one batch of a stream: fresh components compete for the rows of the batch.

Fresh components are those that a birth has learned from some rows of the batch. The memos of all
other batches, that is, their statistics and entropies, stay as they are, so that the exact bound of
all rows is known.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Mergeable, MovableState, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import compute_bound, concatenate_components, find_scale
from skvt.moves._merge import MIN_ROWS_OF_COMPONENT, SMALLEST_GAIN
from skvt.moves._targets import Target
from skvt.moves._trial import Decision, Trial, compete
from skvt.ties import exceeds, stable_order
from skvt.typing import IndexArray

# Number of local and global updates after which a birth is accepted or rejected.
_N_UPDATES = 3


@dataclass
class BatchOfStream(Trial):
    """Trials of births on one batch, whose memo has the key ``key`` in ``state.memos``."""

    model: Mergeable
    batch: Any
    key: Hashable
    state: MovableState
    tools: MoveTools

    def find_kept_components(self, target: Target) -> IndexArray:
        """Return the numbers of the components that stay if fresh components replace the target.

        A component of the target stays only if it has rows in other batches.
        """
        total, masses = self.state.memos.total(), self.model.component_masses
        masses_elsewhere = masses(total.stats) - masses(self.state.memos[self.key].stats)
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

        ``fresh_model`` is the model with the priors of the fresh components. Return the decision.
        """
        memos, before = self.state.memos, self.state.memos.total()
        kept_stats = Stats(tuple(array[kept] for array in before.stats.arrays))
        # The following methods also read these two attributes.
        self._fresh_model = fresh_model
        self._n_kept = kept.size

        def begin(fresh_stats: Stats) -> tuple[Trial, RunningStats]:
            # The index -1 makes an empty component.
            self._index = np.concatenate([kept, np.full(len(fresh_stats.arrays[0]), -1)])
            self._other_batches = before.plus(memos[self.key], sign=-1.0).rearranged(self._index)
            return self, RunningStats(concatenate_components([kept_stats, fresh_stats]).arrays)

        bound = compute_bound(self.model, before)
        scale = find_scale(bound, before)
        _, decision = compete(begin, fresh_stats, bound, _N_UPDATES, scale, SMALLEST_GAIN)
        if decision.is_accepted:
            self.state.rearrange(self._index)
            memos[self.key] = self._memo
            self.state.resum()
        return decision

    def update(self, stats: RunningStats) -> float:
        """Make a local step with these statistics; return the bound of all memos in nats."""
        model, batch, tools = self._fresh_model, self.batch, self.tools
        global_params = model.expectation(stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        self._memo = tools.make_memo(model, result, batch)
        self.total_memo = self._other_batches.plus(self._memo)
        return compute_bound(model, self.total_memo)

    def find_survivors(self, fresh_stats: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh components have enough rows, and their statistics after the update."""
        updated = Stats(tuple(array[self._n_kept :] for array in self.total_memo.stats.arrays))
        survives = ~exceeds(MIN_ROWS_OF_COMPONENT, self._fresh_model.component_masses(updated))
        return survives, Stats(tuple(array[survives] for array in updated.arrays))


def smallest_components(model: Mergeable, fresh_stats: Stats, number: int) -> Stats:
    """Return the statistics of the ``number`` components with the smallest counts."""
    counts = model.component_masses(fresh_stats)
    order = stable_order(-counts, scale=float(counts.sum()))
    kept = np.sort(order[max(0, counts.size - number) :])
    return Stats(tuple(array[kept] for array in fresh_stats.arrays))
