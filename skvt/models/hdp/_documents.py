"""Documents taken out of a corpus and solved again, the common part of all moves of topics."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import psi

from skvt.contracts import Capability, MovableState, MoveTools, ObserverTools, Requirement, Solved
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._model import HDP, Globals, narrowed, occurring_in
from skvt.models.hdp._sticks import IN_USE
from skvt.moves import Trial, bound_of
from skvt.rows import pieces
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray


def of_topics(whom: str) -> tuple[Requirement, ...]:
    """Return the requirements of a move of topics."""
    return (Requirement(whom, Capability.GROWING_TOPICS, "Leave it out of moves."),)


# Minimum tokens of a fresh topic, and of a target in a document that is collected for it.
FEWEST_TOKENS = 2.0
# Bytes of an entry of a batch, which is stored by document and by word.
_BYTES_OF_ENTRY = 24
# Tokens below this share of the largest are set to 0, since they are below rounding. The limit is
# relative, as row weights may have any scale, and above what the floors of float32 leave.
_NOTHING = np.finfo(np.float64).eps


@dataclass(frozen=True)
class Share:
    """The contribution of some documents to a memo, sparse since they have few words and topics."""

    # (K, A): tokens of each topic and word.
    words: sp.csr_array
    # (A,): numbers of these words.
    columns: IndexArray
    # (K, 5)
    usage: Array
    entropy: Any
    # ``entropy`` and ``weight`` are as in a memo.
    weight: float

    @classmethod
    def of(cls, memo: Any, columns: IndexArray) -> "Share":
        """Return a memo as a share, given the words of its documents."""
        words, usage = memo.stats.arrays
        words = words[:, columns]
        words[words < _NOTHING * words.max(initial=0.0)] = 0.0
        return cls(sp.csr_array(words), columns, usage, memo.entropy, memo.weight)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens; all else is small."""
        return int(self.words.data.nbytes + self.words.indices.nbytes)

    def with_topics(self, index: IndexArray) -> "Share":
        """Return the share with topics ``index``; a topic that it does not have is empty."""
        known = (index >= 0) & (index < len(self.usage))
        source = np.where(known, index, 0)
        chosen = sp.csr_array((known.astype(np.float64), (np.arange(index.size), source)),
                              shape=(index.size, len(self.usage)))  # fmt: skip
        return replace(self, words=chosen @ self.words, usage=known[:, None] * self.usage[source])


def plus(memo: Any, shares: Iterable[Share], sign: float = 1.0) -> Any:
    """Return a memo with these shares added, or with ``sign=-1`` subtracted."""
    words, usage = (array.copy() for array in memo.stats.arrays)
    entropy, weight = memo.entropy, memo.weight
    for share in shares:
        words[:, share.columns] += sign * share.words.toarray()
        usage += sign * share.usage
        entropy, weight = entropy + sign * share.entropy, weight + sign * share.weight
    return replace(memo, stats=Stats((words, usage)), entropy=entropy, weight=weight)


@dataclass(frozen=True)
class Part:
    """Documents of one batch, and their share of its memo."""

    key: Hashable
    batch: Any
    # Contribution of these documents to the batch's memo.
    share: Share

    @property
    def n_documents(self) -> int:
        return int(self.batch.n_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the documents and of their share."""
        return self.share.nbytes + _BYTES_OF_ENTRY * int(self.batch.counts.size)

    @classmethod
    def whole(cls, key: Hashable, batch: Any, state: MovableState) -> "Part":
        """Return all documents of a batch as a part."""
        return cls(key, batch, Share.of(state.memos[key], batch.active))

    @classmethod
    def of(cls, solved: Solved, model: HDP, rows: IndexArray, tools: ObserverTools) -> "Part":
        """Return documents ``rows`` of a batch that has just been solved."""
        batch, global_params = solved.batch, solved.global_params
        X = csr_of(batch, batch.counts, model.n_features)
        part = model.batch(X[rows], np.arange(rows.size), batch.weights[rows])
        places = np.searchsorted(batch.active, part.active)
        global_params = Globals(global_params.expected_log[places], global_params.sticks)
        # The local step of a document does not depend on the other documents of its batch.
        alone = model.local_step(part, global_params, 1.0, tools.run)
        return cls(solved.key, part, Share.of(tools.memo_of(model, alone, part), part.active))


def csr_of(batch: Any, values: Array, n_features: int) -> sp.csr_array:
    """Return a batch's entries with these values, (n, V), with index types compiled before."""
    dtype = np.int32 if values.size < 2**31 else np.int64
    words, indptr = batch.active[batch.words].astype(dtype), batch.indptr.astype(dtype)
    return sp.csr_array((values, words, indptr), shape=(batch.n_rows, n_features))


def tokens_of(
    model: HDP, parts: list[Part], k: int, state: MovableState, tools: MoveTools
) -> tuple[sp.csr_array, Array]:
    """Return word counts of topic k in these documents, (n, V), and the documents' weights."""
    counts, weights = [], []
    for part in parts:
        batch = part.batch
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        counts.append(tokens_in(model, batch, global_params, result, k))
        weights.append(np.asarray(batch.weights, np.float64))
    return sp.vstack(counts, format="csr"), np.concatenate(weights)


def tokens_in(
    model: HDP, batch: Any, global_params: Globals, result: Any, topic: int
) -> sp.csr_array:
    """Return the expected word counts of a topic in each document, (n, V)."""
    table = global_params.expected_log
    log_share = psi(result.found)
    document = np.repeat(np.arange(batch.n_rows), np.diff(batch.indptr))
    values = np.empty(batch.counts.size)
    for entries in pieces(values.size, max(1, 2_000_000 // table.shape[1])):
        logits = log_share[document[entries]] + table[batch.words[entries]]
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits)
        values[entries] = batch.counts[entries] * shares[:, topic] / shares.sum(axis=1)
    X = csr_of(batch, values, model.n_features)
    X.data[X.data < 1e-3] = 0.0
    X.eliminate_zeros()
    return X


class TopicTrial(Trial):
    """Updates of all topics on the documents of some parts; other documents do not change.

    Parts may be older than the last births; they have no tokens of topics born since. ``index`` has
    the old number of each topic of the trial, -1 for a new topic. ``total`` is the memo of the
    whole corpus; the attribute is that after the last update. If most words do not occur in the
    documents, its last column is the sum over these words.
    """

    def __init__(
        self, model: HDP, parts: list[Part], total: Any, index: IndexArray, tools: MoveTools
    ) -> None:
        self._parts, self._tools = parts, tools
        self._index = np.asarray(index)
        self._old = [part.share.with_topics(self._index) for part in parts]
        self._new = self._old
        self.total = total.rearranged(self._index)
        # The bound of all words is that of the model narrowed to ``_columns``, plus a constant.
        self._columns = occurring_in([part.share.columns for part in parts], model.n_features)
        self._model, self._elsewhere = model, 0.0
        self._batches, narrow = [part.batch for part in parts], self._old
        if self._columns is not None:
            self._model = model.within(self._columns)
            all_words = self.total.stats
            self.total = replace(self.total, stats=self.narrowed(all_words))
            self._elsewhere = float(
                model.words_evidence(all_words.arrays[0]).sum()
                - self._model.words_evidence(self.total.stats.arrays[0]).sum()
            )
            places = [np.searchsorted(self._columns, part.share.columns) for part in parts]
            self._batches = [
                replace(batch, active=words)
                for batch, words in zip(self._batches, places, strict=True)
            ]
            narrow = [replace(old, columns=at) for old, at in zip(narrow, places, strict=True)]
        self.others = plus(self.total, narrow, sign=-1.0)

    def narrowed(self, stats: Stats) -> Stats:
        """Return statistics of all words in the columns of the trial."""
        words, *others = stats.arrays
        if self._columns is not None:
            words = narrowed(words, self._columns)
        return Stats((words, *others))

    def update(self, stats: RunningStats) -> float:
        """Make one local step of the documents; return the bound of the whole corpus in nats."""
        model, run = self._model, self._tools.run
        self._new = []
        for batch in self._batches:
            global_params = model.expectation(stats, batch, run)
            result = model.local_step(batch, global_params, 1.0, run)
            memo = self._tools.memo_of(model, result, batch)
            self._new.append(Share.of(memo, batch.active))
        self.total = plus(self.others, self._new)
        return bound_of(model, self.total) + self._elsewhere

    def survivors(self, fresh: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh topics have enough tokens, and their first statistics."""
        words, usage = (array[self._index < 0] for array in self.total.stats.arrays)
        lives = exceeds(words.sum(axis=1), FEWEST_TOKENS) & exceeds(usage[:, IN_USE], 1.0)
        return lives, Stats(tuple(array[lives] for array in fresh.arrays))

    def keep(self, state: MovableState) -> None:
        """Store the result of the last update in the state."""
        state.rearrange(self._index)
        for part, old, new in zip(self._parts, self._old, self._new, strict=True):
            without = plus(state.memos[part.key], [old], sign=-1.0)
            new = replace(new, columns=part.share.columns)
            state.memos[part.key] = plus(without, [new])
        state.resum()
