"""Trials of births on one batch of a stream: fresh components compete for its rows."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Mergeable, MovableState, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import bound_of, joined, size_of
from skvt.moves._merge import FEWEST_ROWS, SMALLEST_GAIN
from skvt.moves._targets import Target
from skvt.moves._trial import Outcome, Trial, compete
from skvt.ties import exceeds, stable_order
from skvt.typing import IndexArray

# Number of local and global updates before a birth is accepted or rejected.
_STEPS = 3


class BatchOfStream(Trial):
    """Trials on the batch of a stream, among the memos of all batches."""

    def __init__(
        self, model: Mergeable, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> None:
        self.model, self.batch, self.key, self.state, self.tools = model, batch, key, state, tools

    def kept(self, target: Target) -> IndexArray:
        """Return the components that stay: all but those of the target without rows elsewhere."""
        total, masses = self.state.memos.total(), self.model.component_masses
        elsewhere = masses(total.stats) - masses(self.state.memos[self.key].stats)
        is_other = ~np.isin(self.state.component_ids, target.ids)
        return np.flatnonzero(is_other | exceeds(elsewhere, 0.0, scale=total.weight))

    def statistics_of(self, kept: IndexArray, target: Target) -> Stats:
        """Return the statistics of ``kept`` components less those of the target in the batch."""
        memos = self.state.memos
        is_target = np.isin(self.state.component_ids[kept], target.ids)
        arrays = [array[kept] for array in memos.total().stats.arrays]
        for array, part in zip(arrays, memos[self.key].stats.arrays, strict=True):
            array[is_target] -= part[kept][is_target]
        return Stats(tuple(arrays))

    def try_components(self, under: Mergeable, fresh: Stats, kept: IndexArray) -> Outcome:
        """Add fresh components to the ``kept`` ones if the bound of all memos rises.

        ``under`` is the model with the priors of the fresh components.
        """
        memos, before = self.state.memos, self.state.memos.total()
        of_kept = Stats(tuple(array[kept] for array in before.stats.arrays))
        self._under, self._n_old = under, kept.size

        def begin(fresh: Stats) -> tuple[Trial, RunningStats]:
            self._index = np.concatenate([kept, np.full(len(fresh.arrays[0]), -1)])
            self._others = before.plus(memos[self.key], sign=-1.0).rearranged(self._index)
            return self, RunningStats(joined([of_kept, fresh]).arrays)

        bound = bound_of(self.model, before)
        _, outcome = compete(begin, fresh, bound, _STEPS, size_of(bound, before), SMALLEST_GAIN)
        if outcome.is_accepted:
            self.state.rearrange(self._index)
            memos[self.key] = self._memo
            self.state.resum()
        return outcome

    def update(self, stats: RunningStats) -> float:
        """Make a local step with these statistics; return the bound of all memos in nats."""
        model, batch, tools = self._under, self.batch, self.tools
        global_params = model.expectation(stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        self._memo = tools.memo_of(model, result, batch)
        self.total = self._others.plus(self._memo)
        return bound_of(model, self.total)

    def survivors(self, fresh: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh components have enough rows, and their statistics as they are now."""
        now = Stats(tuple(array[self._n_old :] for array in self.total.stats.arrays))
        lives = ~exceeds(FEWEST_ROWS, self._under.component_masses(now))
        return lives, Stats(tuple(array[lives] for array in now.arrays))


def at_most(model: Mergeable, fresh: Stats, number: int) -> Stats:
    """Return the statistics of at most ``number`` components, the ones with smallest counts."""
    counts = model.component_masses(fresh)
    order = stable_order(-counts, scale=float(counts.sum()))
    kept = np.sort(order[max(0, counts.size - number) :])
    return Stats(tuple(array[kept] for array in fresh.arrays))
