"""Trials of moves of topics: new local steps of a few documents, while all others do not change.

Births and deletes of topics use them. Memoized inference keeps a *memo* of each batch: the sums of
the statistics, entropies and weights of its documents. The *contribution* of some documents is
their share of these sums. A *part* consists of some documents of one batch and their contribution.

A trial makes new local steps of the documents of some parts with other topics. It replaces the old
contributions in the memos by the new contributions, from which the exact bound of the whole corpus
follows. Shapes have A words that occur in the documents, V words of the vocabulary and K topics.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import psi

from skvt.contracts import (
    Capability,
    MovableState,
    MoveTools,
    ObserverTools,
    Requirement,
    SolvedBatch,
)
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._model import HDP, Globals, narrow_columns, unite_words
from skvt.models.hdp._usage import IN_USE
from skvt.moves import Trial, compute_bound
from skvt.rows import pieces
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray

# A fresh topic that a birth proposes is dropped unless it has more than this number of tokens. A
# birth from an old topic collects documents with more than this number of tokens of the old topic.
MIN_TOKENS = 2.0
# Bytes of an entry of a batch. Each entry is stored twice: by document and by word.
_BYTES_OF_ENTRY = 24
# Expected counts below this share of the largest count are set to 0, since they do not exceed its
# rounding error. Local steps leave such counts to topics that are absent. The limit is a share,
# since row weights may have any scale.
_ROUNDING_SHARE = np.finfo(np.float64).eps
# :func:`count_topic_tokens` leaves out expected counts below this number.
_MIN_COUNT = 1e-3
# Maximum number of responsibilities that are in memory at a time.
_MAX_RESPONSIBILITIES = 2_000_000


def require_growing_topics(move: str) -> tuple[Requirement, ...]:
    """Return the requirements of a move of topics; error messages call the move ``move``."""
    return (Requirement(move, Capability.GROWING_TOPICS, "Leave it out of moves."),)


@dataclass(frozen=True)
class Contribution:
    """The contribution of documents to a memo, with sparse word counts."""

    # (K, A): expected counts of the A words that occur in the documents.
    word_counts: sp.csr_array
    # (A,): columns of these words in the statistics.
    columns: IndexArray
    # (K, 5): usage of the topics.
    usage: Array
    # Entropy in nats and weight of the documents, as in a memo.
    entropy: Any
    weight: float

    @classmethod
    def from_memo(cls, memo: Any, columns: IndexArray) -> "Contribution":
        """Return a memo as a contribution; ``columns`` (A,) are the words of its documents."""
        word_counts, usage = memo.stats.arrays
        # Indexing by an array makes a copy, so that the memo does not change.
        word_counts = word_counts[:, columns]
        word_counts[word_counts < _ROUNDING_SHARE * word_counts.max(initial=0.0)] = 0.0
        return cls(sp.csr_array(word_counts), columns, usage, memo.entropy, memo.weight)

    @property
    def nbytes(self) -> int:
        """Bytes of the word counts; the other fields are small."""
        return int(self.word_counts.data.nbytes + self.word_counts.indices.nbytes)

    def with_topics(self, index: IndexArray) -> "Contribution":
        """Return the contribution whose topic j is topic ``index[j]`` of this contribution.

        Topic j is empty if ``index[j]`` is -1, or is not less than the number of topics of this
        contribution.
        """
        # Multiply the word counts by a matrix that selects topics.
        is_present = (index >= 0) & (index < len(self.usage))
        source = np.where(is_present, index, 0)
        selection = sp.csr_array((is_present.astype(np.float64), (np.arange(index.size), source)),
                                 shape=(index.size, len(self.usage)))  # fmt: skip
        usage = is_present[:, None] * self.usage[source]
        return replace(self, word_counts=selection @ self.word_counts, usage=usage)


def add_contributions(memo: Any, contributions: Iterable[Contribution], sign: float = 1.0) -> Any:
    """Return ``memo`` with contributions added, or with ``sign=-1`` subtracted."""
    word_counts, usage = (array.copy() for array in memo.stats.arrays)
    entropy, weight = memo.entropy, memo.weight
    for contribution in contributions:
        word_counts[:, contribution.columns] += sign * contribution.word_counts.toarray()
        usage += sign * contribution.usage
        entropy, weight = entropy + sign * contribution.entropy, weight + sign * contribution.weight
    return replace(memo, stats=Stats((word_counts, usage)), entropy=entropy, weight=weight)


@dataclass(frozen=True)
class BatchPart:
    """Documents of one batch, and their contribution to the memo of the batch."""

    # Key of the batch's memo.
    key: Hashable
    # The documents as a batch.
    batch: Any
    contribution: Contribution

    @property
    def n_documents(self) -> int:
        return int(self.batch.n_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the documents and of their contribution."""
        return self.contribution.nbytes + _BYTES_OF_ENTRY * int(self.batch.counts.size)

    @classmethod
    def from_batch(cls, key: Hashable, batch: Any, state: MovableState) -> "BatchPart":
        """Return all documents of a batch as a part."""
        return cls(key, batch, Contribution.from_memo(state.memos[key], batch.active))

    @classmethod
    def from_solved(
        cls, solved_batch: SolvedBatch, model: HDP, rows: IndexArray, tools: ObserverTools
    ) -> "BatchPart":
        """Return the documents ``rows`` of a batch after its local step as a part."""
        batch, global_params = solved_batch.batch, solved_batch.global_params
        X = make_csr(batch, batch.counts, model.n_features)
        documents = model.batch(X[rows], np.arange(rows.size), batch.weights[rows])
        positions = np.searchsorted(batch.active, documents.active)
        global_params = Globals(global_params.expected_log[positions], global_params.sticks)
        # Repeat the local step of these documents to get their contribution. Its result is the same
        # as in the whole batch, since it does not depend on other documents.
        result = model.local_step(documents, global_params, 1.0, tools.run)
        memo = tools.make_memo(model, result, documents)
        return cls(solved_batch.key, documents, Contribution.from_memo(memo, documents.active))


def make_csr(batch: Any, values: Array, n_features: int) -> sp.csr_array:
    """Return the entries of a batch, with ``values`` in place of their counts, as a matrix (n, V).

    The index types of the matrix are types for which the package's loops are compiled already.
    """
    dtype = np.int32 if values.size < 2**31 else np.int64
    words, indptr = batch.active[batch.words].astype(dtype), batch.indptr.astype(dtype)
    return sp.csr_array((values, words, indptr), shape=(batch.n_rows, n_features))


def count_tokens_in_parts(
    model: HDP, parts: list[BatchPart], topic: int, state: MovableState, tools: MoveTools
) -> tuple[sp.csr_array, Array]:
    """Return the expected word counts (n, V) of a topic in all documents of the parts.

    Also return the weights of the documents, (n,).
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
    documents = np.repeat(np.arange(batch.n_rows), np.diff(batch.indptr))
    topic_counts = np.empty(batch.counts.size)
    n_entries_at_a_time = max(1, _MAX_RESPONSIBILITIES // expected_log.shape[1])
    for entries in pieces(topic_counts.size, n_entries_at_a_time):
        logits = psi_theta[documents[entries]] + expected_log[batch.words[entries]]
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        topic_counts[entries] = batch.counts[entries] * odds[:, topic] / odds.sum(axis=1)
    X = make_csr(batch, topic_counts, model.n_features)
    X.data[X.data < _MIN_COUNT] = 0.0
    X.eliminate_zeros()
    return X


class TopicTrial(Trial):
    """A trial of topics: updates on the documents of parts, while other documents do not change.

    ``index`` has the old number of each topic of the trial, or -1 for a new topic. The parts have
    no tokens of topics that were born after their documents were collected.

    ``memo`` is the memo of the whole corpus before the trial. The attribute ``total_memo`` is the
    memo of the whole corpus after the last update, and ``memo_of_others`` is the memo of all
    documents that are not in the parts. If most words do not occur in the documents of the parts,
    the trial is *narrowed*: the word counts in these two attributes have a column for each word
    that occurs, and a last column with the sum over all other words.

    A move lets :meth:`compute_gain` or :func:`skvt.moves.compete` call :meth:`update` several
    times, and calls :meth:`keep` if it accepts the result.
    """

    def __init__(
        self, model: HDP, parts: list[BatchPart], memo: Any, index: IndexArray, tools: MoveTools
    ) -> None:
        self._parts, self._tools, self._model = parts, tools, model
        self._batches = [part.batch for part in parts]
        self._index = np.asarray(index)
        # Contributions of the documents before the trial, and after its last update.
        self._old_contributions = [part.contribution.with_topics(self._index) for part in parts]
        self._new_contributions = self._old_contributions
        self.total_memo = memo.rearranged(self._index)
        # Words that occur in the documents, or None if most words do.
        self._columns = unite_words([part.contribution.columns for part in parts], model.n_features)
        # The bound over the whole vocabulary minus the bound over the columns of a narrowed trial,
        # which stays the same during the trial.
        self._bound_of_other_words = 0.0
        narrow_contributions = self._old_contributions
        if self._columns is not None:
            narrow_contributions = self._narrow_trial(self._columns)
        self.memo_of_others = add_contributions(self.total_memo, narrow_contributions, sign=-1.0)

    def _narrow_trial(self, columns: IndexArray) -> list[Contribution]:
        """Narrow the model, the memo and the batches to the words ``columns`` and a last column.

        Return the old contributions, whose words are numbered by their positions in ``columns``.
        """
        model, all_stats = self._model, self.total_memo.stats
        self._model = model.restrict_to_words(columns)
        self.total_memo = replace(self.total_memo, stats=self.narrow(all_stats))
        self._bound_of_other_words = float(
            model.words_evidence(all_stats.arrays[0]).sum()
            - self._model.words_evidence(self.total_memo.stats.arrays[0]).sum()
        )
        positions = [np.searchsorted(columns, part.contribution.columns) for part in self._parts]
        self._batches = [
            replace(batch, active=active)
            for batch, active in zip(self._batches, positions, strict=True)
        ]
        return [
            replace(contribution, columns=active)
            for contribution, active in zip(self._old_contributions, positions, strict=True)
        ]

    def narrow(self, stats: Stats) -> Stats:
        """Return statistics over all words narrowed to the columns of the trial."""
        word_counts, usage = stats.arrays
        if self._columns is not None:
            word_counts = narrow_columns(word_counts, self._columns)
        return Stats((word_counts, usage))

    def update(self, stats: RunningStats) -> float:
        """Make a local step of the documents; return the bound of the whole corpus in nats."""
        model, run = self._model, self._tools.run
        self._new_contributions = []
        for batch in self._batches:
            global_params = model.expectation(stats, batch, run)
            result = model.local_step(batch, global_params, 1.0, run)
            memo = self._tools.make_memo(model, result, batch)
            self._new_contributions.append(Contribution.from_memo(memo, batch.active))
        self.total_memo = add_contributions(self.memo_of_others, self._new_contributions)
        return compute_bound(model, self.total_memo) + self._bound_of_other_words

    def find_survivors(self, fresh_stats: Stats) -> tuple[NDArray[np.bool_], Stats]:
        """Return which fresh topics survive the trial, (n,), and their rows of ``fresh_stats``.

        A topic survives if it has enough tokens, and if the documents in which it is in use have
        a weight of more than 1.
        """
        word_counts, usage = (array[self._index < 0] for array in self.total_memo.stats.arrays)
        is_survivor = exceeds(word_counts.sum(axis=1), MIN_TOKENS) & exceeds(usage[:, IN_USE], 1.0)
        return is_survivor, Stats(tuple(array[is_survivor] for array in fresh_stats.arrays))

    def keep(self, state: MovableState) -> None:
        """Store the result of the last update in the state."""
        state.rearrange(self._index)
        for part, old_contribution, new_contribution in zip(
            self._parts, self._old_contributions, self._new_contributions, strict=True
        ):
            memo_of_others = add_contributions(state.memos[part.key], [old_contribution], sign=-1.0)
            # Number the words by their columns in the whole vocabulary again.
            new_contribution = replace(new_contribution, columns=part.contribution.columns)
            state.memos[part.key] = add_contributions(memo_of_others, [new_contribution])
        state.resum()
