"""Documents that moves of topics take out of a corpus and solve again.

Memoized inference keeps a memo of each batch: statistics, entropy and weight. A *share* is what
some documents contribute to a memo. If a few documents are solved again with other topics, their
old shares are subtracted from the memos and their new shares are added, so that the exact bound of
the whole corpus is known.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import psi

from skvt.contracts import Capability, MovableState, MoveTools, ObserverTools, Requirement, Solved
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._model import HDP, Globals, narrow_columns, unite_words
from skvt.models.hdp._usage import IN_USE
from skvt.moves import Trial, bound_of
from skvt.rows import pieces
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray


def require_growing_topics(move: str) -> tuple[Requirement, ...]:
    """Return the requirements of a move of topics; error messages call the move ``move``."""
    return (Requirement(move, Capability.GROWING_TOPICS, "Leave it out of moves."),)


# Minimum number of tokens of a fresh topic. A document is collected for a target, which is a topic,
# only if it has more tokens of the target than this.
FEWEST_TOKENS = 2.0
# Bytes of an entry of a batch. Each entry is stored twice: by document and by word.
_BYTES_OF_ENTRY = 24
# Expected counts below this share of the largest are set to 0, since they are below rounding. The
# limit is relative, since row weights may have any scale. The counts of absent topics are below the
# limit. They are not exactly 0, because weights in float32 have a positive floor.
_ROUNDING = np.finfo(np.float64).eps
# Smallest expected count that is kept in the tokens of a topic.
_SMALLEST_COUNT = 1e-3
# Maximum number of entries of an array of responsibilities.
_NUMBERS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Share:
    """What documents contribute to a memo: sparse arrays, since documents have few words."""

    # (K, A): expected counts of the A words that occur in the documents.
    words: sp.csr_array
    # (A,): columns of these words in the statistics.
    columns: IndexArray
    # (K, 5): usage of the topics.
    usage: Array
    # Entropy in nats and weight of the documents, as in a memo.
    entropy: Any
    weight: float

    @classmethod
    def of(cls, memo: Any, columns: IndexArray) -> "Share":
        """Return the memo of documents as a share; ``columns`` are the words of the documents."""
        words, usage = memo.stats.arrays
        # Indexing by an array makes a copy, so that the memo does not change.
        words = words[:, columns]
        words[words < _ROUNDING * words.max(initial=0.0)] = 0.0
        return cls(sp.csr_array(words), columns, usage, memo.entropy, memo.weight)

    @property
    def nbytes(self) -> int:
        """Bytes of the word counts; all else is small."""
        return int(self.words.data.nbytes + self.words.indices.nbytes)

    def with_topics(self, index: IndexArray) -> "Share":
        """Return the share whose topic j is topic ``index[j]`` of this share.

        Topic j is empty if ``index[j]`` is -1, or the number of a topic that this share lacks.
        """
        is_known = (index >= 0) & (index < len(self.usage))
        source = np.where(is_known, index, 0)
        selection = sp.csr_array((is_known.astype(np.float64), (np.arange(index.size), source)),
                                 shape=(index.size, len(self.usage)))  # fmt: skip
        usage = is_known[:, None] * self.usage[source]
        return replace(self, words=selection @ self.words, usage=usage)


def add_shares(memo: Any, shares: Iterable[Share], sign: float = 1.0) -> Any:
    """Return ``memo`` with the shares added, or with ``sign=-1`` subtracted."""
    words, usage = (array.copy() for array in memo.stats.arrays)
    entropy, weight = memo.entropy, memo.weight
    for share in shares:
        words[:, share.columns] += sign * share.words.toarray()
        usage += sign * share.usage
        entropy, weight = entropy + sign * share.entropy, weight + sign * share.weight
    return replace(memo, stats=Stats((words, usage)), entropy=entropy, weight=weight)


@dataclass(frozen=True)
class Part:
    """Documents of one batch, and their share of the memo of the batch."""

    # Key of the memo.
    key: Hashable
    # The documents as a batch.
    batch: Any
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
        """Return the documents ``rows`` of a batch that has just been solved as a part."""
        batch, global_params = solved.batch, solved.global_params
        X = make_csr(batch, batch.counts, model.n_features)
        documents = model.batch(X[rows], np.arange(rows.size), batch.weights[rows])
        positions = np.searchsorted(batch.active, documents.active)
        global_params = Globals(global_params.expected_log[positions], global_params.sticks)
        # Solve the documents again to get their share. The result is the same as before, since the
        # local step of a document does not depend on the other documents of its batch.
        result = model.local_step(documents, global_params, 1.0, tools.run)
        memo = tools.memo_of(model, result, documents)
        return cls(solved.key, documents, Share.of(memo, documents.active))


def make_csr(batch: Any, values: Array, n_features: int) -> sp.csr_array:
    """Return the entries of a batch with other ``values`` as a matrix (n, V).

    The types of its indices are those for which the compiled loops of the package exist already.
    """
    dtype = np.int32 if values.size < 2**31 else np.int64
    words, indptr = batch.active[batch.words].astype(dtype), batch.indptr.astype(dtype)
    return sp.csr_array((values, words, indptr), shape=(batch.n_rows, n_features))


def count_tokens_in_parts(
    model: HDP, parts: list[Part], topic: int, state: MovableState, tools: MoveTools
) -> tuple[sp.csr_array, Array]:
    """Return the expected word counts of a topic in all documents of the parts.

    Returns the counts (n, V) and the weights of the documents (n,).
    """
    counts, weights = [], []
    for part in parts:
        batch = part.batch
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run)
        counts.append(count_topic_tokens(model, batch, global_params, result, topic))
        weights.append(np.asarray(batch.weights, np.float64))
    return sp.vstack(counts, format="csr"), np.concatenate(weights)


def count_topic_tokens(
    model: HDP, batch: Any, global_params: Globals, result: Any, topic: int
) -> sp.csr_array:
    """Return the expected word counts of a topic in each document of a batch, (n, V)."""
    expected_log = global_params.expected_log
    psi_theta = psi(result.solved_theta)
    document = np.repeat(np.arange(batch.n_rows), np.diff(batch.indptr))
    topic_counts = np.empty(batch.counts.size)
    for entries in pieces(topic_counts.size, max(1, _NUMBERS_AT_ONCE // expected_log.shape[1])):
        logits = psi_theta[document[entries]] + expected_log[batch.words[entries]]
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        topic_counts[entries] = batch.counts[entries] * odds[:, topic] / odds.sum(axis=1)
    X = make_csr(batch, topic_counts, model.n_features)
    X.data[X.data < _SMALLEST_COUNT] = 0.0
    X.eliminate_zeros()
    return X


class TopicTrial(Trial):
    """Updates of all topics on the documents of parts, while other documents do not change.

    ``index`` has the old number of each topic of the trial, or -1 for a new topic. Parts may be
    older than the last births; they have no tokens of topics born since.

    ``memo`` is the memo of the whole corpus before the trial, and the attribute ``total`` is this
    memo after the last update. ``others`` is the memo of all documents that are not in the parts.
    If most words do not occur in the documents of the parts, the last column of the word counts in
    ``total`` and ``others`` is the sum over the absent words.
    """

    def __init__(
        self, model: HDP, parts: list[Part], memo: Any, index: IndexArray, tools: MoveTools
    ) -> None:
        self._parts, self._tools, self._model = parts, tools, model
        self._batches = [part.batch for part in parts]
        self._index = np.asarray(index)
        self._old_shares = [part.share.with_topics(self._index) for part in parts]
        self._new_shares = self._old_shares
        self.total = memo.rearranged(self._index)
        # Words that occur in the documents, or None if most words do.
        self._columns = unite_words([part.share.columns for part in parts], model.n_features)
        # The bound of all words minus the bound of the narrowed words. It stays the same during the
        # trial.
        self._bound_of_other_words = 0.0
        narrow_shares = self._old_shares
        if self._columns is not None:
            narrow_shares = self._narrow_trial(self._columns)
        self.others = add_shares(self.total, narrow_shares, sign=-1.0)

    def _narrow_trial(self, columns: IndexArray) -> list[Share]:
        """Narrow the model, the memo and the batches to ``columns``; return the narrow shares."""
        model, all_words = self._model, self.total.stats
        self._model = model.narrowed_to(columns)
        self.total = replace(self.total, stats=self.narrow(all_words))
        self._bound_of_other_words = float(
            model.words_evidence(all_words.arrays[0]).sum()
            - self._model.words_evidence(self.total.stats.arrays[0]).sum()
        )
        positions = [np.searchsorted(columns, part.share.columns) for part in self._parts]
        self._batches = [
            replace(batch, active=active)
            for batch, active in zip(self._batches, positions, strict=True)
        ]
        return [
            replace(share, columns=active)
            for share, active in zip(self._old_shares, positions, strict=True)
        ]

    def narrow(self, stats: Stats) -> Stats:
        """Narrow statistics over all words to the columns of the trial."""
        words, *others = stats.arrays
        if self._columns is not None:
            words = narrow_columns(words, self._columns)
        return Stats((words, *others))

    def update(self, stats: RunningStats) -> float:
        """Make one local step of the documents; return the bound of the whole corpus in nats."""
        model, run = self._model, self._tools.run
        self._new_shares = []
        for batch in self._batches:
            global_params = model.expectation(stats, batch, run)
            result = model.local_step(batch, global_params, 1.0, run)
            memo = self._tools.memo_of(model, result, batch)
            self._new_shares.append(Share.of(memo, batch.active))
        self.total = add_shares(self.others, self._new_shares)
        return bound_of(model, self.total) + self._bound_of_other_words

    def survivors(self, fresh: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh topics survive (n,), and the part of ``fresh`` of these topics.

        A topic survives if it has enough tokens, and if the documents in which it is in use have
        a weight of more than 1.
        """
        words, usage = (array[self._index < 0] for array in self.total.stats.arrays)
        survives = exceeds(words.sum(axis=1), FEWEST_TOKENS) & exceeds(usage[:, IN_USE], 1.0)
        return survives, Stats(tuple(array[survives] for array in fresh.arrays))

    def keep(self, state: MovableState) -> None:
        """Store the result of the last update in the state."""
        state.rearrange(self._index)
        for part, old, new in zip(self._parts, self._old_shares, self._new_shares, strict=True):
            memo_of_others = add_shares(state.memos[part.key], [old], sign=-1.0)
            # Replace positions within the narrowed model by columns of all words.
            new = replace(new, columns=part.share.columns)
            state.memos[part.key] = add_shares(memo_of_others, [new])
        state.resum()
