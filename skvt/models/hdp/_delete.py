"""Deletes of topics: a small topic is deleted if the bound rises without it.

Before a pass, a few small topics are chosen as *candidates*. During the pass, the documents that
have tokens of a candidate are collected, together with their contributions to the memos. After the
pass, a few updates of all other topics are made, with local steps of the documents of the
candidate. Other documents have no tokens of the candidate and do not change, so that the exact
bound without the candidate is known.

A memo holds the sums of the statistics, entropies and weights of the documents of a batch, and the
contribution of some documents is their share of these sums.
"""

from collections import defaultdict
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
    SolvedBatch,
)
from skvt.expfam import RunningStats
from skvt.models.hdp._documents import BatchPart, TopicTrial, require_growing_topics
from skvt.models.hdp._merge import sum_other_memos
from skvt.models.hdp._model import HDP
from skvt.models.hdp._pairs import NEGLIGIBLE_TOKENS
from skvt.models.hdp._usage import DOCUMENTS, IN_USE
from skvt.moves import Ledger, compute_bound, decide, find_rounding_scale
from skvt.ties import stable_order
from skvt.typing import IndexArray

# Maximum number of candidates of a pass.
MAX_CANDIDATES = 8
# Largest share of all documents that the candidates may have together.
MAX_DOCUMENT_SHARE = 0.3
# Maximum number of bytes of the collected documents. If there are more, the largest candidates wait
# for a later pass.
MAX_BYTES = 2**28
# Maximum number of updates before a delete is judged; :meth:`~skvt.moves.Trial.compute_gain` makes
# the updates.
TRIAL_STEPS = 5
# After this number of failures in a row, no topic is tried until topics are born or deleted.
MAX_FAILURES = 8


class DeleteTopic(Move):
    """Delete topics without which the bound rises, smallest first.

    Before a pass, the engine calls ``begin``. For each batch, it calls ``make_observer``, which
    returns a function, the *observer*. It calls the observer after the local step of the batch, and
    passes the result, the *notes* of the observer, to ``store_notes``. After the pass, it calls
    ``finish``. On a stream, it calls ``change_within_batch`` for each batch.
    """

    # Attributes that files keep, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {**Move.kept_attributes, "_ledger": Ledger}
    requires = require_growing_topics("A delete")

    def __init__(self) -> None:
        # For each candidate, the documents collected from each batch, and their rows in the batch.
        self._parts: dict[int, list[tuple[BatchPart, IndexArray]]] = {}
        # Number of documents of each candidate.
        self._n_documents: dict[int, float] = {}
        # Whether a candidate waits for a later pass.
        self._is_waiting = False
        # Identifiers of the topics at the beginning of the pass.
        self._ids: IndexArray = np.empty(0, np.int64)
        # The topics whose delete failed, each with its number of documents at that time.
        self._ledger = Ledger()

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose the candidates: the topics with the fewest documents.

        A topic whose delete failed is left out until its number of documents changes.
        """
        usage = state.plain_stats.as_stats().arrays[1]
        self._ids = state.component_ids
        self._ledger = self._ledger.record_targets(self._ids)
        # (K,): number of documents in which each topic is in use.
        doc_counts = usage[:, IN_USE]
        n_documents = float(usage[:, DOCUMENTS].max())
        self._parts, self._n_documents, self._is_waiting = {}, {}, False
        if len(doc_counts) < 2 or not len(state.memos) or self._ledger.n_in_vain >= MAX_FAILURES:
            return
        has_not_failed = self._ledger.count_failures(self._ids, doc_counts) == 0
        # Number of documents that further candidates may have.
        n_allowed = MAX_DOCUMENT_SHARE * n_documents
        for k in stable_order(doc_counts, scale=n_documents):
            is_small = doc_counts[k] < n_allowed
            if has_not_failed[k] and is_small and len(self._parts) < MAX_CANDIDATES:
                self._parts[int(k)], self._n_documents[int(k)] = [], float(doc_counts[k])
                n_allowed -= doc_counts[k]

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the function that collects documents of a batch, or None without candidates."""
        return partial(_collect_documents, tuple(self._parts)) if self._parts else None

    def store_notes(self, notes: dict[int, tuple[BatchPart, IndexArray]]) -> None:
        """Keep the documents of a batch that were collected for each candidate, up to MAX_BYTES."""
        for k, part_and_rows in notes.items():
            if k in self._parts:
                self._parts[k].append(part_and_rows)
        while sum(part.nbytes for parts in self._parts.values() for part, _ in parts) > MAX_BYTES:
            # Let the largest candidate, which is the last, wait for a later pass. If it is the only
            # candidate, it counts as failed.
            topic, _ = self._parts.popitem()
            if self._parts:
                self._is_waiting = True
            else:
                ids, n_documents = [int(self._ids[topic])], [self._n_documents[topic]]
                self._ledger = self._ledger.record_failure(ids, n_documents)

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Delete candidates without which the bound rises.

        A candidate that has documents in common with a deleted topic is left out, since the
        collected contributions of these documents are out of date.
        """
        candidates = list(self._parts)
        self.exhausted = not self._is_waiting
        if not np.array_equal(self._ids, state.component_ids):
            # Another move has changed topics, so that all contributions are out of date.
            self.exhausted = False
            candidates = []
        records: list[MoveRecord] = []
        # Rows of each batch whose documents have changed because a topic was deleted.
        changed_rows = defaultdict[Hashable, set[int]](set)
        for topic in candidates:
            parts = self._parts[topic]
            if any(changed_rows[part.key].intersection(rows.tolist()) for part, rows in parts):
                continue
            k = int(np.flatnonzero(state.component_ids == self._ids[topic])[0])
            records.append(self._delete(model, [part for part, _ in parts], k, state, tools))
            if records[-1].accepted:
                self.exhausted = False
                for part, rows in parts:
                    changed_rows[part.key].update(rows.tolist())
                # The state has one topic less than the collected contributions.
                self._remove_from_contributions(k, len(state.component_ids) + 1)
        self._parts = {}
        return records

    def _remove_from_contributions(self, k: int, n_topics: int) -> None:
        """Remove topic k from all collected contributions, which had ``n_topics`` topics."""
        kept_topics = np.delete(np.arange(n_topics), k)
        for parts in self._parts.values():
            parts[:] = [
                (replace(part, contribution=part.contribution.with_topics(kept_topics)), rows)
                for part, rows in parts
            ]

    def change_within_batch(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Delete candidates whose tokens are all in this batch, if the bound rises without them."""
        self.begin(model, state, tools)
        _, is_in_other_batches = sum_other_memos(model, state, key)
        records = []
        # Remember candidates by their identifiers, since a delete changes the numbers of topics.
        for id_ in [self._ids[k] for k in self._parts if not is_in_other_batches[k]]:
            k = int(np.flatnonzero(state.component_ids == id_)[0])
            records.append(
                self._delete(model, [BatchPart.from_batch(key, batch, state)], k, state, tools)
            )
        self.exhausted = not any(record.accepted for record in records)
        return records

    def _delete(
        self, model: HDP, parts: list[BatchPart], k: int, state: MovableState, tools: MoveTools
    ) -> MoveRecord:
        """Delete topic k, whose documents are the ``parts``, if the bound rises."""
        total_memo = state.memos.total()
        bound_before = compute_bound(model, total_memo)
        scale = find_rounding_scale(bound_before, total_memo)
        kept_topics = np.delete(np.arange(state.component_ids.size), k)
        trial = TopicTrial(model, parts, total_memo, kept_topics, tools)
        first_stats = RunningStats(trial.total_memo.stats.arrays)
        decision = decide(trial.compute_gain(first_stats, bound_before, TRIAL_STEPS, scale), scale)
        if decision.is_accepted:
            trial.keep(state)
            # A success cancels all earlier failures.
            self._ledger = self._ledger.record_success(MAX_FAILURES, [], [])
        else:
            n_documents = float(total_memo.stats.arrays[1][k, IN_USE])
            self._ledger = self._ledger.record_failure([int(state.component_ids[k])], [n_documents])
        return decision.record(tools.n_iter, "delete", [k], "its tokens belong to the others")


def _collect_documents(
    topics: tuple[int, ...], model: HDP, solved_batch: SolvedBatch, tools: ObserverTools
) -> dict[int, tuple[BatchPart, IndexArray]]:
    """Return for each topic the documents of a batch with tokens of the topic, and their rows."""
    tokens = solved_batch.result.counts
    collected = dict[int, tuple[BatchPart, IndexArray]]()
    assert tokens is not None
    for k in topics:
        rows = np.flatnonzero(tokens[:, k] > NEGLIGIBLE_TOKENS)
        if rows.size:
            collected[k] = BatchPart.from_solved(solved_batch, model, rows, tools), rows
    return collected
