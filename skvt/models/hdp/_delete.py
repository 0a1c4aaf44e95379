"""Deletes of topics: the documents of a small topic are explained without it.

Only documents that have tokens of the topic are solved again; of all others, whose tangents touch
at its pseudo-count, nothing is lost but that. So the bound without it is exact.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np

from skvt.models import LocalResult
from skvt.models.hdp._documents import part_of, with_topics
from skvt.models.hdp._merge import LEAST_TOKENS, of_topics
from skvt.models.hdp._model import HDP, Globals
from skvt.models.hdp._sticks import DOCUMENTS, IN_USE
from skvt.moves import MovableState, Move, MoveRecord, MoveTools, bound_of, is_accepted, size_of
from skvt.ties import exceeds, stable_argmax, stable_order

# Topics tried in a pass, and the largest share of documents that one may have.
MOST_CANDIDATES, LARGEST_SHARE = 3, 0.1
# A topic is tried again after a failure if the number of its documents has changed by this share.
SAME_USE = 0.1


class DeleteTopic(Move):
    """Delete the topic that the documents miss least, one a pass."""

    requires = of_topics("A delete")

    def __init__(self) -> None:
        self._candidates: list[int] = []
        self._ids = np.empty(0, np.int64)
        self._sticks: dict[int, Any] = {}
        self._changes: dict[int, dict[Hashable, Any]] = {}
        # documents by the id of topics that could not be deleted
        self._failed: dict[int, float] = {}

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose the candidates: those in the fewest documents, not tried in vain."""
        usage = state.plain_stats.value().arrays[1]
        self._ids = state.component_ids
        n, total = usage[:, IN_USE], float(usage[:, DOCUMENTS].max())
        failed = np.array([self._failed.get(int(id_), np.inf) for id_ in state.component_ids])
        fresh = exceeds(np.abs(n - failed), SAME_USE * n) & exceeds(LARGEST_SHARE * total, n)
        order = stable_order(n, scale=total)
        order = order[fresh[order]][:MOST_CANDIDATES] if len(n) > 1 else order[:0]
        self._candidates = order.tolist()
        self._changes = {k: {} for k in self._candidates}
        self._sticks = {
            k: model.sticks.best(np.delete(usage, k, axis=0)) for k in self._candidates
        }

    def observe(
        self,
        model: HDP,
        batch: Any,
        key: Hashable,
        global_params: Globals,
        result: LocalResult,
        tools: MoveTools,
    ) -> None:
        """What the batch's memo would become without each candidate."""
        assert result.counts is not None
        for k in self._candidates:
            rows = np.flatnonzero(result.counts[:, k] > LEAST_TOKENS)
            if rows.size == 0:
                continue
            part = part_of(model, batch, rows)
            places = np.searchsorted(batch.active, part.active)
            table = global_params.expected_log[places]
            n_topics = table.shape[1]
            with_it = model.local_step(
                part, Globals(table, global_params.sticks), 1.0, tools.run
            )
            without = model.local_step(
                part, Globals(np.delete(table, k, axis=1), self._sticks[k]), 1.0, tools.run
            )
            index = np.arange(n_topics) - (np.arange(n_topics) > k)
            index[k] = -1
            change = with_topics(tools.memo_of(model, without, part), index)
            self._changes[k][key] = change.plus(tools.memo_of(model, with_it, part), sign=-1.0)

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Delete the best candidate if the bound rises."""
        self.exhausted = True
        if not np.array_equal(self._ids, state.component_ids):
            # merges of this pass have changed documents
            self.exhausted = False
            return MoveRecord(tools.n_iter, "delete", 0, 0, 0.0)
        if not self._candidates:
            return MoveRecord(tools.n_iter, "delete", 0, 0, 0.0)
        total, gains = state.memos.total(), []
        before = bound_of(model, total)
        for k in self._candidates:
            memo = total
            for change in self._changes[k].values():
                memo = memo.plus(change)
            kept = np.delete(np.arange(state.component_ids.size), k)
            gains.append(bound_of(model, with_topics(memo, kept)) - before)
        size = size_of(before, total)
        first = stable_argmax(gains, scale=size)
        best = self._candidates[first]
        accepted = is_accepted(gains[first], size)
        for k in self._candidates:
            if not (accepted and k == best):
                self._failed[int(state.component_ids[k])] = float(total.stats.arrays[1][k, IN_USE])
        if not accepted:
            return MoveRecord(tools.n_iter, "delete", len(gains), 0, 0.0)
        self.exhausted = False
        for key, change in self._changes[best].items():
            state.memos[key] = state.memos[key].plus(change)
        state.rearrange(np.delete(np.arange(state.component_ids.size), best))
        state.resum()
        return MoveRecord(tools.n_iter, "delete", len(gains), 1, gains[first])

