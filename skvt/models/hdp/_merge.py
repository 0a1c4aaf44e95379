"""Merges of topics, judged by the exact bound.

A memo holds the sums of the statistics, entropies and weights of the documents of a batch. Before a
pass, the most similar pairs of topics are chosen. During the pass, the change of each memo by each
merge is computed, see :mod:`skvt.models.hdp._pairs`. After the pass, pairs merge as long as the
bound rises.

The statistics are the expected word counts of topics, and their *usage*: sums over documents on
which the best *sticks* depend, and with the sticks the weights of topics.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import (
    Memo,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    SolvedBatch,
)
from skvt.expfam import Dirichlet
from skvt.models.hdp._documents import require_growing_topics
from skvt.models.hdp._model import HDP, find_occurring_words, narrow_columns
from skvt.models.hdp._pairs import NEGLIGIBLE_TOKENS, PairChanges, compute_pair_changes
from skvt.moves import (
    MERGE_DESCRIPTION,
    Ledger,
    compute_bound,
    decide,
    find_rounding_scale,
    record_rejected_merges,
)
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Number of topics with which each topic forms pairs: the topics with the most similar words.
PAIRS_PER_TOPIC = 2
# Largest error in nats of the approximate bound of the sticks. A merge whose approximate gain is
# below minus this error would lower the bound, so that its exact gain is not computed.
_MAX_APPROXIMATION_ERROR = 10.0
# Maximum number of passes without a search for merges after a search that found no merge.
_MAX_PAUSE = 3


def choose_merges(model: HDP, memo: Any, changes: PairChanges) -> tuple[list[int], Array]:
    """Choose merges that raise the bound, best first, each topic at most once.

    ``memo`` is the sum of the memos, and ``changes`` are its changes by each merge. Returns the
    indices of the chosen pairs, and the gains of all P pairs in nats, (P,). A gain is approximate
    if the merge would clearly lower the bound, or if a topic of the pair has merged already.
    """
    pairs = changes.pairs
    if not len(pairs):
        return [], np.empty(0)
    scale = find_rounding_scale(compute_bound(model, memo), memo)
    counts, usage = memo.stats.arrays
    if (used_words := find_occurring_words(counts)) is not None:
        model, counts = model.restrict_to_words(used_words), narrow_columns(counts, used_words)
    evidence = model.words_evidence(counts)
    word_gains = np.array([
        float(model.words_evidence(counts[a] + counts[b])) - evidence[a] - evidence[b]
        for a, b in pairs
    ])  # fmt: skip
    # Approximate all gains first, since the exact bound of the sticks costs more.
    sticks = model.sticks
    # ``usage`` is the usage of topics after the merges chosen so far, and ``topics`` are the
    # original numbers of its rows.
    topics: IndexArray = np.arange(len(usage))
    merged_usages = (_merge_usage(usage, changes, p, topics)[0] for p in range(len(pairs)))
    merged_bounds = np.array([sticks.approximate_best_bound(merged) for merged in merged_usages])
    stick_gains = merged_bounds - sticks.approximate_best_bound(usage)
    gains = word_gains + changes.entropy + stick_gains
    # Compute exact gains in the order of the approximate gains, each given the merges chosen so
    # far.
    stick_bound = sticks.best_bound(usage)
    chosen_pairs: list[int] = []
    merged_topics: set[int] = set()
    for p in stable_order(-gains, scale=scale):
        if gains[p] < -_MAX_APPROXIMATION_ERROR:
            break
        a, b = pairs[p].tolist()
        if merged_topics & {a, b}:
            continue
        merged_usage, kept_topics = _merge_usage(usage, changes, p, topics)
        merged_stick_bound = sticks.best_bound(merged_usage)
        gains[p] = word_gains[p] + changes.entropy[p] + merged_stick_bound - stick_bound
        if exceeds(gains[p], 0.0, scale=scale):
            usage, topics, stick_bound = merged_usage, kept_topics, merged_stick_bound
            chosen_pairs.append(int(p))
            merged_topics |= {a, b}
    return chosen_pairs, gains


def _merge_usage(
    usage: Array, changes: PairChanges, p: int, topics: IndexArray
) -> tuple[Array, IndexArray]:
    """Return usage and topics after pair p has merged.

    Before the merge, ``usage`` (n, 5) is the usage of the topics with the numbers ``topics`` (n,).
    """
    kept, removed = (int(np.flatnonzero(topics == k)[0]) for k in changes.pairs[p])
    usage = usage.copy()
    usage[kept] = changes.merged_usage(p, usage[[kept, removed]])
    return np.delete(usage, removed, axis=0), np.delete(topics, removed)


def sum_other_memos(
    model: HDP, state: MovableState, key: Hashable
) -> tuple[Memo, NDArray[np.bool_]]:
    """Return the sum of all memos but memo ``key``, and whether it has tokens of topics, (K,)."""
    total_memo = state.memos.total()
    other_memo = total_memo.plus(state.memos[key], sign=-1.0)
    masses, all_masses = (model.component_masses(memo.stats) for memo in (other_memo, total_memo))
    return other_memo, exceeds(masses, NEGLIGIBLE_TOKENS, scale=all_masses)


class MergeTopics(Move):
    """Merge pairs of topics, best gain first, each topic at most once in a pass.

    Before a pass, the engine calls ``begin``. For each batch, it calls ``make_observer``, which
    returns a function, the *observer*. It calls the observer after the local step of the batch, and
    passes the result, the *notes* of the observer, to ``store_notes``. After the pass, it calls
    ``finish``. On a stream, it calls ``change_within_batch`` for each batch.
    """

    # Attributes that files keep, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {**Move.kept_attributes, "_ledger": Ledger}
    requires = require_growing_topics("A merge")

    def __init__(self) -> None:
        # Pairs of this pass, (P, 2), and the changes of the memo of each batch if they merge.
        self._pairs: IndexArray = np.empty((0, 2), np.int64)
        self._changes: dict[Hashable, PairChanges] = {}
        # Identifiers of the topics at the beginning of the pass.
        self._ids: IndexArray = np.empty(0, np.int64)
        # Counter of passes and of searches without a merge, which says when to search again.
        self._ledger = Ledger()

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose the pairs, unless there is a pause after a search without a merge."""
        self._changes = {}
        self._pairs = np.empty((0, 2), np.int64)
        self._ids = state.component_ids
        self._ledger = self._ledger.record_targets(self._ids).record_pass()
        if self._ledger.waiting < 0 and len(state.memos):
            word_counts = state.memos.total().stats.arrays[0]
            self._pairs = find_similar_pairs(model, word_counts)

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the function that computes the changes of a batch, or None without pairs."""
        return partial(_compute_changes, self._pairs) if len(self._pairs) else None

    def store_notes(self, notes: tuple[Hashable, PairChanges]) -> None:
        """Keep the changes of a batch by the key of its memo."""
        key, changes = notes
        self._changes[key] = changes

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Merge pairs as long as the bound rises."""
        if not np.array_equal(self._ids, state.component_ids):
            # Another move of this pass has changed topics, so that the changes are out of date.
            self.exhausted = False
            self._ledger = replace(self._ledger, waiting=0)
            return []
        if not len(self._pairs):
            self.exhausted = self._ledger.pause > 0 or state.component_ids.size < 2
            return []
        batch_changes = list(self._changes.values())
        changes = PairChanges(
            self._pairs,
            np.sum([change.usage for change in batch_changes], axis=0),
            np.sum([change.entropy for change in batch_changes], axis=0),
        )
        total_memo = state.memos.total()
        chosen_pairs, gains = choose_merges(model, total_memo, changes)
        if chosen_pairs:
            _merge_pairs(state, self._changes, self._pairs, chosen_pairs)
        self.exhausted = not chosen_pairs
        self._ledger = self._ledger.record_search(bool(chosen_pairs), _MAX_PAUSE)
        scale = find_rounding_scale(compute_bound(model, total_memo), total_memo)
        return _make_records(tools, self._pairs, chosen_pairs, gains, scale)

    def change_within_batch(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Merge pairs in which a topic has tokens in this batch only.

        No document of another batch has both topics of such a pair, so that the changes of the
        other memos are known without local steps.
        """
        total_memo = state.memos.total()
        other_memo, is_in_other_batches = sum_other_memos(model, state, key)
        other_usage = other_memo.stats.arrays[1]
        self.exhausted = True
        if is_in_other_batches.all() or is_in_other_batches.size < 2:
            return []
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        pairs = find_similar_pairs(model, total_memo.stats.arrays[0])
        # Leave out pairs of which other batches have both topics.
        pairs = pairs[~is_in_other_batches[pairs].all(axis=1)]
        changes = compute_pair_changes(model, batch, global_params, result, pairs, tools.run)
        other_changes = PairChanges.without_common_documents(pairs, other_usage)
        all_changes = replace(changes, usage=changes.usage + other_changes.usage)
        # The local step gives the batch a new memo, which changes the bound even without merges.
        # Judge the merges and the new memo together. Divide the change of the bound that is due to
        # the new memo equally among the gains of the chosen merges.
        memo = tools.make_memo(model, result, batch)
        new_total_memo = other_memo.plus(memo)
        bound_before = compute_bound(model, total_memo)
        chosen_pairs, gains = choose_merges(model, new_total_memo, all_changes)
        gains += (compute_bound(model, new_total_memo) - bound_before) / max(1, len(chosen_pairs))
        scale = find_rounding_scale(bound_before, total_memo)
        if not chosen_pairs or not exceeds(gains[chosen_pairs].sum(), 0.0, scale=scale):
            return _make_records(tools, pairs, [], gains, scale)
        batch_changes = {
            other: PairChanges.without_common_documents(pairs, state.memos[other].stats.arrays[1])
            for other in state.memos
        }
        state.memos[key] = memo
        _merge_pairs(state, batch_changes | {key: changes}, pairs, chosen_pairs)
        self.exhausted = False
        return _make_records(tools, pairs, chosen_pairs, gains, scale)


def _make_records(
    tools: MoveTools, pairs: IndexArray, chosen_pairs: list[int], gains: Array, scale: float
) -> list[MoveRecord]:
    """Return a record of each chosen merge, and a single record for all other pairs."""
    records = [
        decide(gains[p], scale).record(tools.n_iter, "merge", pairs[p], MERGE_DESCRIPTION)
        for p in chosen_pairs
    ]
    unmerged = [(gains[p], pairs[p]) for p in range(len(pairs)) if p not in chosen_pairs]
    return records + record_rejected_merges(tools.n_iter, "merge", unmerged, scale)


def _merge_pairs(
    state: MovableState, batch_changes: dict[Hashable, PairChanges], pairs: IndexArray,
    chosen_pairs: list[int],
) -> None:  # fmt: skip
    """Merge the chosen pairs in the memo of every batch, and remove their second topics."""
    for key, changes in batch_changes.items():
        state.memos[key] = changes.merge(state.memos[key], chosen_pairs)
    state.rearrange(np.delete(np.arange(state.component_ids.size), pairs[chosen_pairs, 1]))
    state.resum()


def _compute_changes(
    pairs: IndexArray, model: HDP, solved_batch: SolvedBatch, tools: ObserverTools
) -> tuple[Hashable, PairChanges]:
    """Return the key of a batch and the changes of its memo if each pair merges."""
    batch, key, global_params, result = solved_batch
    return key, compute_pair_changes(model, batch, global_params, result, pairs, tools.run)


def find_similar_pairs(model: HDP, counts: Array) -> IndexArray:
    """Return pairs (P, 2) of topics with similar words, the lower number first.

    ``counts`` (K, V) are the word counts of the topics. The similarity of two topics is the
    Bhattacharyya coefficient of their mean word probabilities.
    """
    n_topics = len(counts)
    used_words = find_occurring_words(counts)
    if used_words is not None:
        model, counts = model.restrict_to_words(used_words), narrow_columns(counts, used_words)
    root_probabilities = np.sqrt(Dirichlet.mean(counts + model.topic_word_prior))
    similarity = root_probabilities @ root_probabilities.T
    pairs: set[tuple[int, int]] = set()
    for k in range(n_topics):
        other_topics = np.delete(np.arange(n_topics), k)
        order = other_topics[stable_order(-similarity[k, other_topics], scale=1.0)]
        pairs |= {(min(k, other), max(k, other)) for other in order[:PAIRS_PER_TOPIC].tolist()}
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)
