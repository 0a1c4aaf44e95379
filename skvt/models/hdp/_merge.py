"""Merges of topics, by the exact bound.

Where topics a and b become one, so do r_a and r_b of each token, and the tangents of a document
touch at theta_a + theta_b. What that changes of the usage and of the entropy is a sum over
documents for each pair: it is gathered during a pass, for the pairs that are most alike.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, psi

from skvt.contracts import (
    LocalResult,
    Memo,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    Solved,
)
from skvt.expfam import Dirichlet, Stats
from skvt.models.hdp._documents import of_topics
from skvt.models.hdp._kernels import pair_losses
from skvt.models.hdp._model import HDP, Globals, narrowed, occurring
from skvt.models.hdp._sticks import IN_USE, SLOPE, TRACES, expected_weights
from skvt.moves import bound_of, is_accepted, size_of
from skvt.rows import pieces
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray, Run

# Pairs for each topic whose words are most alike.
BY_WORDS = 2
# Pairs for each topic whose documents are most alike.
BY_DOCUMENTS = 1
# Documents with fewer tokens of a topic have none: what is neglected is below rounding.
LEAST_TOKENS = 1e-9
# Documents of a task.
_ROWS_PER_TASK = 256
# Nats by which a quick look at the weights of topics may be mistaken.
_DOUBT = 10.0
# Passes from one search that found nothing to the next, at most.
_LONGEST_PAUSE = 3


@dataclass
class PairChanges:
    """What merging each of some pairs changes of the documents of a batch, or of several."""

    # (P, 2): first the topic that stays.
    pairs: IndexArray
    # (P, 5): usage of the topic that both become, its columns of all documents 0.
    usage: Array
    # (P,): change of the memo's entropy in nats.
    entropy: Array

    def merged(self, memo: Any, chosen: list[int]) -> Any:
        """The memo after the chosen pairs have become one; the second topic is empty."""
        words, usage = (array.copy() for array in memo.stats.arrays)
        for p in chosen:
            a, b = self.pairs[p]
            words[a] += words[b]
            words[b] = 0.0
            usage[a] = self.used(p, usage[[a, b]])
            usage[b, : self.shared] = 0.0
        entropy = memo.entropy + self.entropy[chosen].sum()
        return replace(memo, stats=Stats((words, usage)), entropy=entropy)

    # columns of single topics come first
    shared = IN_USE + 1

    def used(self, p: int, both: Array) -> Array:
        """The usage, (5,), of the topic that a pair becomes, given that of the two, (2, 5)."""
        # (of documents seen before one of the two was born, the other knows)
        return np.append(self.usage[p, : self.shared], both[:, self.shared :].max(axis=0))

    @classmethod
    def where_apart(cls, pairs: IndexArray, usage: Array) -> "PairChanges":
        """Changes of documents with this usage, none of which has both topics of a pair."""
        both = usage[pairs].sum(axis=1)
        both[:, cls.shared :] = 0.0
        return cls(pairs, both, np.zeros(len(pairs)))


def changes_of_pairs(
    model: HDP, batch: Any, global_params: Globals, result: LocalResult, pairs: IndexArray, run: Run
) -> PairChanges:
    """The :class:`PairChanges` of these documents, from a local step at T = 1."""
    assert result.counts is not None
    pseudo = model.sticks.doc_concentration * expected_weights(global_params.sticks)[:-1]
    pseudo = pseudo.astype(model.dtype).astype(np.float64)
    theta, tokens = result.q, result.counts
    weights = batch.weights.astype(np.float64)
    in_use = theta != pseudo
    document, topic = np.nonzero(in_use)
    used, held = theta[document, topic], tokens[document, topic]
    terms = weights[document] * (gammaln(used) + (held - used) * psi(used))
    alone = np.zeros(in_use.shape[1])
    np.add.at(alone, topic, terms)
    entropy = -alone[pairs[:, 0]] - alone[pairs[:, 1]]
    usage = np.zeros((len(pairs), 5))
    for p, (a, b) in enumerate(pairs):
        either = in_use[:, a] | in_use[:, b]
        both = theta[either, a] + theta[either, b]
        n = tokens[:, a] + tokens[:, b]
        slope, w = psi(both), weights[either]
        usage[p, SLOPE] = w @ slope
        usage[p, TRACES] = weights[~either] @ n[~either]
        usage[p, IN_USE] = w.sum()
        entropy[p] += w @ (gammaln(both) + (n[either] - both) * slope)
    entropy -= _entropy_losses(model, batch, global_params, result, pairs, run)
    return PairChanges(pairs, usage, entropy)


def _entropy_losses(
    model: HDP, batch: Any, global_params: Globals, result: LocalResult, pairs: IndexArray, run: Run
) -> Array:
    """Entropy of q(z) that each pair would lose as one topic, (P,) nats."""
    table = global_params.expected_log
    table = np.exp(table - table.max(axis=1, keepdims=True))
    # (tokens are shared by what theta was in the local step)
    weights = psi(result.found)  # type: ignore[attr-defined]
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    counts, row_weights = batch.counts.astype(np.float64), batch.weights.astype(np.float64)
    pairs = np.ascontiguousarray(pairs, np.int64)
    of_all = (
        batch.indptr, batch.words, counts, row_weights, weights, table, result.counts, pairs,
        LEAST_TOKENS,
    )  # fmt: skip
    tasks = [
        (*of_all, rows.start, rows.stop, np.zeros(len(pairs)))
        for rows in pieces(batch.n_rows, _ROWS_PER_TASK)
    ]
    run(pair_losses, tasks)
    return np.sum([task[-1] for task in tasks], axis=0)


def merge_greedily(model: HDP, memo: Any, changes: PairChanges) -> tuple[list[int], float]:
    """(pairs that become one, rise of the bound): best first, each topic once."""
    pairs = changes.pairs
    if not len(pairs):
        return [], 0.0
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
    rise = 0.0
    for p in stable_order(-gains, scale=size):
        if gains[p] < -_DOUBT:
            break
        a, b = pairs[p].tolist()
        if gone & {a, b}:
            continue
        usage_then, here_then = _merged_usage(usage, changes, p, here)
        bound_then = sticks.best_bound(usage_then)
        gain = float(of_words[p] + changes.entropy[p] + bound_then - exact)
        if is_accepted(gain, size):
            usage, here, exact = usage_then, here_then, bound_then
            chosen.append(int(p))
            gone |= {a, b}
            rise += gain
    return chosen, rise


def _merged_usage(
    usage: Array, changes: PairChanges, p: int, here: IndexArray
) -> tuple[Array, IndexArray]:
    """Usage in the order of topics ``here``, after one more merge, and the topics that are left."""
    a, b = (int(np.flatnonzero(here == k)[0]) for k in changes.pairs[p])
    usage = usage.copy()
    usage[a] = changes.used(p, usage[[a, b]])
    return np.delete(usage, b, axis=0), np.delete(here, b)


def of_other_batches(
    model: HDP, state: MovableState, key: Hashable
) -> tuple[Memo, NDArray[np.bool_]]:
    """The sum of the memos of all batches but one, and whether it has tokens of each topic."""
    total = state.memos.total()
    others = total.plus(state.memos[key], sign=-1.0)
    masses, of_all = (model.component_masses(memo.stats) for memo in (others, total))
    return others, exceeds(masses, LEAST_TOKENS, scale=of_all)


class MergeTopics(Move):
    """Merge pairs of topics, best gain first, each topic once a pass."""

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_overlap": Annotated[tuple[IndexArray, Array] | None, "square"],
        "_ids": Annotated[IndexArray, "ids"],
        "_pause": int,
        "_waiting": int,
        "_seen": set[int],
    }
    requires = of_topics("A merge")

    def __init__(self) -> None:
        self._pairs: IndexArray = np.empty((0, 2), np.int64)
        self._changes: dict[Hashable, PairChanges] = {}
        # documents that topics share, and of which topics
        self._overlap: tuple[IndexArray, Array] | None = None
        self._gathered: Array | None = None
        self._ids: IndexArray = np.empty(0, np.int64)
        self._pause, self._waiting = 0, 0
        self._seen: set[int] = set()

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose the pairs; after searches in vain, of the same topics, not in each pass."""
        self._changes, self._gathered = {}, None
        self._pairs = np.empty((0, 2), np.int64)
        self._ids = ids = state.component_ids
        if not set(ids.tolist()) <= self._seen:
            self._seen |= set(ids.tolist())
            self._pause = self._waiting = 0
        self._waiting -= 1
        if self._waiting < 0 and len(state.memos):
            words = state.memos.total().stats.arrays[0]
            self._pairs = pairs_alike(model, words, self._documents(ids))

    def _documents(self, ids: IndexArray) -> Array:
        """How far the documents of topics are the same, (K, K), 0 where not known."""
        out = np.zeros((ids.size, ids.size))
        if self._overlap is not None:
            places = {id_: i for i, id_ in enumerate(self._overlap[0].tolist())}
            known = np.array([places.get(id_, -1) for id_ in ids.tolist()])
            there = np.flatnonzero(known >= 0)
            square = self._overlap[1][np.ix_(known[there], known[there])]
            out[np.ix_(there, there)] = square
        return out

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """What each pair would change of the batch's memo."""
        return partial(_observed, self._pairs)

    def note(self, noted: "tuple[Hashable, Array, PairChanges | None]") -> None:
        """Keep the changes, and which documents topics share."""
        key, square, changes = noted
        self._gathered = square if self._gathered is None else self._gathered + square
        if changes is not None:
            self._changes[key] = changes

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Merge while the bound rises."""
        if self._gathered is not None:
            self._overlap = self._ids, _cosines(self._gathered)
        if not np.array_equal(self._ids, state.component_ids):
            # what was gathered is of documents as they were before another move of this pass
            self.exhausted, self._waiting = False, 0
            return MoveRecord(tools.n_iter, "merge", 0, 0, 0.0)
        if not len(self._pairs):
            self.exhausted = self._pause > 0 or state.component_ids.size < 2
            return MoveRecord(tools.n_iter, "merge", 0, 0, 0.0)
        parts = list(self._changes.values())
        changes = PairChanges(
            self._pairs,
            np.sum([part.usage for part in parts], axis=0),
            np.sum([part.entropy for part in parts], axis=0),
        )
        chosen, rise = merge_greedily(model, state.memos.total(), changes)
        if chosen:
            _merge(state, self._changes, self._pairs, chosen)
        self.exhausted = not chosen
        self._pause = 0 if chosen else min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._waiting = self._pause
        return MoveRecord(tools.n_iter, "merge", len(self._pairs), len(chosen), rise)

    def within(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Merge pairs of which no other batch has both, such as topics that are just born."""
        total = state.memos.total()
        others, there = of_other_batches(model, state, key)
        usage = others.stats.arrays[1]
        self.exhausted = True
        if there.all() or there.size < 2:
            return []
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        alike = _cosines(_shared_documents(batch, result))
        pairs = pairs_alike(model, total.stats.arrays[0], alike)
        pairs = pairs[~there[pairs].all(axis=1)]
        changes = changes_of_pairs(model, batch, global_params, result, pairs, tools.run)
        of_all = replace(changes, usage=changes.usage + PairChanges.where_apart(pairs, usage).usage)
        memo = tools.memo_of(model, result, batch)
        now, before = others.plus(memo), bound_of(model, total)
        chosen, rise = merge_greedily(model, now, of_all)
        rise += bound_of(model, now) - before
        if not chosen or not is_accepted(rise, size_of(before, total)):
            return [MoveRecord(tools.n_iter, "merge", len(pairs), 0, 0.0)]
        parts = {
            other: PairChanges.where_apart(pairs, state.memos[other].stats.arrays[1])
            for other in state.memos
        }
        state.memos[key] = memo
        _merge(state, parts | {key: changes}, pairs, chosen)
        self.exhausted = False
        return [MoveRecord(tools.n_iter, "merge", len(pairs), len(chosen), rise)]


def _merge(
    state: MovableState, parts: dict[Hashable, PairChanges], pairs: IndexArray, chosen: list[int]
) -> None:
    """Make the chosen pairs one topic each in every memo."""
    for key, part in parts.items():
        state.memos[key] = part.merged(state.memos[key], chosen)
    state.rearrange(np.delete(np.arange(state.component_ids.size), pairs[chosen, 1]))
    state.resum()


def _observed(
    pairs: IndexArray, model: HDP, solved: Solved, tools: ObserverTools
) -> tuple[Hashable, Array, PairChanges | None]:
    """A batch's key, how far topics share its documents, (K, K), and the changes of pairs."""
    key, batch, result, changes = solved.key, solved.batch, solved.result, None
    if len(pairs):
        changes = changes_of_pairs(model, batch, solved.global_params, result, pairs, tools.run)
    return key, _shared_documents(batch, result), changes


def _shared_documents(batch: Any, result: LocalResult) -> Array:
    """How far topics share documents, (K, K): a sum over these."""
    assert result.counts is not None
    tokens = np.sqrt(result.counts)
    return np.asarray(tokens.T @ (batch.weights.astype(np.float64)[:, None] * tokens))


def _cosines(square: Array) -> Array:
    """How far topics share documents, (K, K), of the sum: at most 1."""
    size = np.sqrt(np.maximum(np.diag(square), 1e-300))
    return square / size / size[:, None]


def pairs_alike(model: HDP, words: Array, documents: Array | None = None) -> IndexArray:
    """Pairs (P, 2) of topics that have words or documents in common, the lower number first."""
    n_topics, occur = len(words), occurring(words)
    if occur is not None:
        model, words = model.within(occur), narrowed(words, occur)
    root = np.sqrt(Dirichlet.mean(words + model.topic_word_prior))
    by_words = root @ root.T
    found: set[tuple[int, int]] = set()
    for nearness, number in ((by_words, BY_WORDS), (documents, BY_DOCUMENTS)):
        if nearness is None:
            continue
        for k in range(n_topics):
            others = np.delete(np.arange(n_topics), k)
            order = others[stable_order(-nearness[k, others], scale=1.0)]
            found |= {(min(k, other), max(k, other)) for other in order[:number].tolist()}
    return np.array(sorted(found), np.int64).reshape(-1, 2)
