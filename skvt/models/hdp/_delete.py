"""Deletes of topics: the documents of a small topic are explained without it.

Only documents that have tokens of the topic are solved again, in a few updates of all other topics.
Documents without tokens of it do not change, so that the bound without the topic is exact.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skvt.contracts import (
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    Solved,
)
from skvt.expfam import RunningStats
from skvt.models.hdp._documents import Part, TopicTrial, of_topics
from skvt.models.hdp._merge import of_other_batches
from skvt.models.hdp._model import HDP
from skvt.models.hdp._pairs import LEAST_TOKENS
from skvt.models.hdp._sticks import DOCUMENTS, IN_USE
from skvt.moves import Ledger, bound_of, judged, size_of
from skvt.ties import stable_order
from skvt.typing import IndexArray

# Maximum number of topics tried in a pass.
MOST_CANDIDATES = 8
# Largest share of all documents that these topics may have together.
LARGEST_SHARE = 0.3
# Maximum number of bytes kept of their documents; the largest topics wait for a later pass.
MOST_BYTES = 2**28
# Maximum number of updates by which a delete is judged; see :meth:`~skvt.moves.Trial.gain`.
TRIAL_STEPS = 5
# After this number of failures in a row, no topic is tried until topics are born or deleted.
MOST_FAILURES = 8


class DeleteTopic(Move):
    """Delete topics without which the bound rises, smallest first."""

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_ledger": Ledger,
    }
    requires = of_topics("A delete")

    def __init__(self) -> None:
        # Documents of each candidate, and the rows of these documents in the batches.
        self._parts: dict[int, list[tuple[Part, IndexArray]]] = {}
        self._ids: IndexArray = np.empty(0, np.int64)
        # Topics that could not be deleted; their masses are numbers of documents.
        self._ledger = Ledger()
        # Number of documents of each candidate; whether a candidate waits for a later pass.
        self._use: dict[int, float] = {}
        self._waiting = False

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose as candidates the topics in the fewest documents that were not tried in vain."""
        usage = state.plain_stats.value().arrays[1]
        self._ids = state.component_ids
        self._ledger = self._ledger.among(self._ids)
        n, total = usage[:, IN_USE], float(usage[:, DOCUMENTS].max())
        self._parts, self._use, self._waiting = {}, {}, False
        if len(n) < 2 or not len(state.memos) or self._ledger.n_in_vain >= MOST_FAILURES:
            return
        untried = self._ledger.tries(self._ids, n) == 0
        room = LARGEST_SHARE * total
        for k in stable_order(n, scale=total):
            if untried[k] and n[k] < room and len(self._parts) < MOST_CANDIDATES:
                self._parts[int(k)], self._use[int(k)] = [], float(n[k])
                room -= n[k]

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Collect the documents of each candidate."""
        return partial(_collected, tuple(self._parts)) if self._parts else None

    def note(self, noted: dict[int, tuple[Part, IndexArray]]) -> None:
        """Keep the collected documents, up to ``MOST_BYTES``."""
        for k, part_and_rows in noted.items():
            if k in self._parts:
                self._parts[k].append(part_and_rows)
        while sum(part.nbytes for parts in self._parts.values() for part, _ in parts) > MOST_BYTES:
            # The largest candidate waits for a later pass; if it is the only one, it has failed.
            topic, _ = self._parts.popitem()
            self._waiting = self._waiting or bool(self._parts)
            if not self._parts:
                self._ledger = self._ledger.failed([int(self._ids[topic])], [self._use[topic]])

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Delete candidates without which the bound rises.

        A candidate that shares documents with a deleted topic is left out, since the collected
        shares of these documents are out of date.
        """
        candidates, self.exhausted = list(self._parts), not self._waiting
        if not np.array_equal(self._ids, state.component_ids):
            # Another move of this pass has changed the documents.
            self.exhausted, candidates = False, []
        records: list[MoveRecord] = []
        changed: dict[Hashable, list[int]] = {}
        for topic in candidates:
            parts = self._parts[topic]
            if any(np.isin(rows, changed.get(part.key, [])).any() for part, rows in parts):
                continue
            k = int(np.flatnonzero(state.component_ids == self._ids[topic])[0])
            records.append(self._delete(model, [part for part, _ in parts], k, state, tools))
            if records[-1].accepted:
                self.exhausted = False
                for part, rows in parts:
                    changed[part.key] = [*changed.get(part.key, []), *rows.tolist()]
                self._forget(k, len(state.component_ids) + 1)
        self._parts = {}
        return records

    def _forget(self, k: int, n_topics: int) -> None:
        """Remove topic k, which was deleted, from the collected shares."""
        kept = np.delete(np.arange(n_topics), k)
        for parts in self._parts.values():
            parts[:] = [
                (replace(part, share=part.share.with_topics(kept)), rows) for part, rows in parts
            ]

    def within(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Delete topics without which the bound rises, among those of this batch alone."""
        self.begin(model, state, tools)
        _, is_elsewhere = of_other_batches(model, state, key)
        records = []
        for id_ in [self._ids[k] for k in self._parts if not is_elsewhere[k]]:
            k = int(np.flatnonzero(state.component_ids == id_)[0])
            records.append(self._delete(model, [Part.whole(key, batch, state)], k, state, tools))
        self.exhausted = not any(record.accepted for record in records)
        return records

    def _delete(
        self, model: HDP, parts: list[Part], k: int, state: MovableState, tools: MoveTools
    ) -> MoveRecord:
        """Delete topic k if the bound rises."""
        total = state.memos.total()
        before = bound_of(model, total)
        size = size_of(before, total)
        kept = np.delete(np.arange(state.component_ids.size), k)
        trial = TopicTrial(model, parts, total, kept, tools)
        begun = RunningStats(trial.total.stats.arrays)
        outcome = judged(trial.gain(begun, before, TRIAL_STEPS, size), size)
        if outcome.is_accepted:
            trial.keep(state)
            self._ledger = self._ledger.succeeded(MOST_FAILURES, [], [])
        else:
            n_documents = float(total.stats.arrays[1][k, IN_USE])
            self._ledger = self._ledger.failed([int(state.component_ids[k])], [n_documents])
        return outcome.record(tools.n_iter, "delete", [k], "its tokens belong to the others")


def _collected(
    topics: tuple[int, ...], model: HDP, solved: Solved, tools: ObserverTools
) -> dict[int, tuple[Part, IndexArray]]:
    """Collect the documents of a batch that have these topics, and their rows."""
    counts, collected = solved.result.counts, dict[int, tuple[Part, IndexArray]]()
    assert counts is not None
    for k in topics:
        rows = np.flatnonzero(counts[:, k] > LEAST_TOKENS)
        if rows.size:
            collected[k] = Part.of(solved, model, rows, tools), rows
    return collected
