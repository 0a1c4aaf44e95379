"""Merges of topics, judged by the exact bound.

If topics a and b merge, the responsibilities r_a and r_b of each token add up, and the tangents of
a document touch at theta_a + theta_b. The changes of usage and entropy are sums over documents,
which are gathered during a pass for the most similar pairs.
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
    Solved,
)
from skvt.expfam import Dirichlet
from skvt.models.hdp._documents import of_topics
from skvt.models.hdp._model import HDP, narrowed, occurring
from skvt.models.hdp._pairs import LEAST_TOKENS, PairChanges, changes_of_pairs
from skvt.moves import ONE_FOR_BOTH, Ledger, bound_of, is_accepted, judged, rejected, size_of
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Number of pairs per topic, those with the most similar words.
PAIRS_PER_TOPIC = 2
# Error in nats that the approximate bound of the sticks may have.
_DOUBT = 10.0
# Maximum number of passes between a search without a merge and the next.
_LONGEST_PAUSE = 3


def merge_greedily(model: HDP, memo: Any, changes: PairChanges) -> tuple[list[int], Array]:
    """Choose merges, best first, each topic once; return them and the gains of all pairs in nats.

    Gains of pairs that lose much are approximate.
    """
    pairs = changes.pairs
    if not len(pairs):
        return [], np.empty(0)
    size = size_of(bound_of(model, memo), memo)
    words, usage = memo.stats.arrays
    if (occur := occurring(words)) is not None:
        model, words = model.within(occur), narrowed(words, occur)
    alone = model.words_evidence(words)
    of_words = np.array([
        float(model.words_evidence(words[a] + words[b])) - alone[a] - alone[b] for a, b in pairs
    ])  # fmt: skip
    sticks = model.sticks
    here: IndexArray = np.arange(len(usage))
    quick = sticks.near_bound(usage)
    guess = np.array([
        sticks.near_bound(_merged_usage(usage, changes, p, here)[0]) - quick
        for p in range(len(pairs))
    ])  # fmt: skip
    gains = of_words + changes.entropy + guess
    exact = sticks.best_bound(usage)
    chosen: list[int] = []
    gone: set[int] = set()
    for p in stable_order(-gains, scale=size):
        if gains[p] < -_DOUBT:
            break
        a, b = pairs[p].tolist()
        if gone & {a, b}:
            continue
        usage_then, here_then = _merged_usage(usage, changes, p, here)
        bound_then = sticks.best_bound(usage_then)
        gains[p] = of_words[p] + changes.entropy[p] + bound_then - exact
        if is_accepted(gains[p], size):
            usage, here, exact = usage_then, here_then, bound_then
            chosen.append(int(p))
            gone |= {a, b}
    return chosen, gains


def _merged_usage(
    usage: Array, changes: PairChanges, p: int, here: IndexArray
) -> tuple[Array, IndexArray]:
    """Return usage and topics after one more merge, given the topics ``here`` before it."""
    a, b = (int(np.flatnonzero(here == k)[0]) for k in changes.pairs[p])
    usage = usage.copy()
    usage[a] = changes.used(p, usage[[a, b]])
    return np.delete(usage, b, axis=0), np.delete(here, b)


def of_other_batches(
    model: HDP, state: MovableState, key: Hashable
) -> tuple[Memo, NDArray[np.bool_]]:
    """Return the sum of all memos but one, and whether it has tokens of each topic."""
    total = state.memos.total()
    others = total.plus(state.memos[key], sign=-1.0)
    masses, of_all = (model.component_masses(memo.stats) for memo in (others, total))
    return others, exceeds(masses, LEAST_TOKENS, scale=of_all)


class MergeTopics(Move):
    """Merge pairs of topics, best gain first, each topic once a pass."""

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_ledger": Ledger,
    }
    requires = of_topics("A merge")

    def __init__(self) -> None:
        self._pairs: IndexArray = np.empty((0, 2), np.int64)
        self._changes: dict[Hashable, PairChanges] = {}
        self._ids: IndexArray = np.empty(0, np.int64)
        self._ledger = Ledger()

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose the pairs; after searches of the same topics in vain, pause for some passes."""
        self._changes = {}
        self._pairs = np.empty((0, 2), np.int64)
        self._ids = ids = state.component_ids
        self._ledger = self._ledger.among(ids).next_pass()
        if self._ledger.waiting < 0 and len(state.memos):
            words = state.memos.total().stats.arrays[0]
            self._pairs = pairs_alike(model, words)

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Compute the changes of the batch's memo if each pair merges."""
        return partial(_observed, self._pairs) if len(self._pairs) else None

    def note(self, noted: tuple[Hashable, PairChanges]) -> None:
        """Keep the changes of a batch."""
        key, changes = noted
        self._changes[key] = changes

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Merge while the bound rises."""
        if not np.array_equal(self._ids, state.component_ids):
            # Another move of this pass has changed the documents since the changes were gathered.
            self.exhausted, self._ledger = False, replace(self._ledger, waiting=0)
            return []
        if not len(self._pairs):
            self.exhausted = self._ledger.pause > 0 or state.component_ids.size < 2
            return []
        parts = list(self._changes.values())
        changes = PairChanges(
            self._pairs,
            np.sum([part.usage for part in parts], axis=0),
            np.sum([part.entropy for part in parts], axis=0),
        )
        total = state.memos.total()
        chosen, gains = merge_greedily(model, total, changes)
        if chosen:
            _merge(state, self._changes, self._pairs, chosen)
        self.exhausted = not chosen
        self._ledger = self._ledger.searched(bool(chosen), _LONGEST_PAUSE)
        return _records(tools, self._pairs, chosen, gains, size_of(bound_of(model, total), total))

    def within(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Merge pairs that no other batch has both of, such as topics that were just born."""
        total = state.memos.total()
        others, is_elsewhere = of_other_batches(model, state, key)
        usage = others.stats.arrays[1]
        self.exhausted = True
        if is_elsewhere.all() or is_elsewhere.size < 2:
            return []
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        pairs = pairs_alike(model, total.stats.arrays[0])
        pairs = pairs[~is_elsewhere[pairs].all(axis=1)]
        changes = changes_of_pairs(model, batch, global_params, result, pairs, tools.run)
        of_all = replace(changes, usage=changes.usage + PairChanges.where_apart(pairs, usage).usage)
        memo = tools.memo_of(model, result, batch)
        now, before = others.plus(memo), bound_of(model, total)
        chosen, gains = merge_greedily(model, now, of_all)
        gains += (bound_of(model, now) - before) / max(1, len(chosen))
        size = size_of(before, total)
        if not chosen or not is_accepted(gains[chosen].sum(), size):
            return _records(tools, pairs, [], gains, size)
        parts = {
            other: PairChanges.where_apart(pairs, state.memos[other].stats.arrays[1])
            for other in state.memos
        }
        state.memos[key] = memo
        _merge(state, parts | {key: changes}, pairs, chosen)
        self.exhausted = False
        return _records(tools, pairs, chosen, gains, size)


def _records(
    tools: MoveTools, pairs: IndexArray, chosen: list[int], gains: Array, size: float
) -> list[MoveRecord]:
    """Return the records of the chosen merges, and one of all others, with the best of them."""
    records = [
        judged(gains[p], size).record(tools.n_iter, "merge", pairs[p], ONE_FOR_BOTH) for p in chosen
    ]
    stay = [(gains[p], pairs[p]) for p in range(len(pairs)) if p not in chosen]
    return records + rejected(tools.n_iter, "merge", stay, size)


def _merge(
    state: MovableState, parts: dict[Hashable, PairChanges], pairs: IndexArray, chosen: list[int]
) -> None:
    """Merge the chosen pairs in every memo and remove the second topics."""
    for key, part in parts.items():
        state.memos[key] = part.merged(state.memos[key], chosen)
    state.rearrange(np.delete(np.arange(state.component_ids.size), pairs[chosen, 1]))
    state.resum()


def _observed(
    pairs: IndexArray, model: HDP, solved: Solved, tools: ObserverTools
) -> tuple[Hashable, PairChanges]:
    """Return a batch's key and the changes of its memo if each pair merges."""
    batch, given, result = solved.batch, solved.global_params, solved.result
    return solved.key, changes_of_pairs(model, batch, given, result, pairs, tools.run)


def pairs_alike(model: HDP, words: Array) -> IndexArray:
    """Return pairs (P, 2) of topics with similar words, the lower number first."""
    n_topics, occur = len(words), occurring(words)
    if occur is not None:
        model, words = model.within(occur), narrowed(words, occur)
    root = np.sqrt(Dirichlet.mean(words + model.topic_word_prior))
    likeness = root @ root.T
    pairs: set[tuple[int, int]] = set()
    for k in range(n_topics):
        others = np.delete(np.arange(n_topics), k)
        order = others[stable_order(-likeness[k, others], scale=1.0)]
        pairs |= {(min(k, other), max(k, other)) for other in order[:PAIRS_PER_TOPIC].tolist()}
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)
