"""Some documents of a corpus, taken out and solved again: what moves of topics have in common."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Capability, MovableState, MoveTools, ObserverTools, Requirement, Solved
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._model import HDP, Globals, narrowed, occurring_in
from skvt.moves import bound_of, is_accepted
from skvt.typing import Array, IndexArray


def of_topics(whom: str) -> tuple[Requirement, ...]:
    """What moves of topics ask of a model."""
    return (Requirement(whom, Capability.GROWING_TOPICS, "Leave it out of moves."),)


# Of a word in a document, as it is prepared: its number and count, by document and by word.
_BYTES_OF_ENTRY = 24
# Tokens below this share of the largest are left out of what is kept of documents: below rounding.
# (relative, as row weights may have any scale; what floors of float32 leave is below it, too)
_NOTHING = np.finfo(np.float64).eps


@dataclass(frozen=True)
class Share:
    """What a memo owes to some of its documents: sparse, as these have few words and topics."""

    # (K, A): tokens of each topic by word.
    words: sp.csr_array
    # (A,): which words these are.
    columns: IndexArray
    # (K, 5)
    usage: Array
    entropy: Any
    # As in the memo.
    weight: float

    @classmethod
    def of(cls, memo: Any, columns: IndexArray) -> "Share":
        """The memo of documents that have these words."""
        words, usage = memo.stats.arrays
        words = words[:, columns]
        words[words < _NOTHING * words.max(initial=0.0)] = 0.0
        return cls(sp.csr_array(words), columns, usage, memo.entropy, memo.weight)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens, by far the most."""
        return int(self.words.data.nbytes + self.words.indices.nbytes)

    def with_topics(self, index: IndexArray) -> "Share":
        """Topics in another order: those of ``index``, empty ones where there is no such."""
        known = (index >= 0) & (index < len(self.usage))
        place = np.where(known, index, 0)
        chosen = sp.csr_array((known.astype(np.float64), (np.arange(index.size), place)),
                              shape=(index.size, len(self.usage)))  # fmt: skip
        return replace(self, words=chosen @ self.words, usage=known[:, None] * self.usage[place])


def plus(memo: Any, shares: Iterable[Share], sign: float = 1.0) -> Any:
    """A memo with these added, or with ``sign=-1`` without them."""
    words, usage = (array.copy() for array in memo.stats.arrays)
    entropy, weight = memo.entropy, memo.weight
    for share in shares:
        words[:, share.columns] += sign * share.words.toarray()
        usage += sign * share.usage
        entropy, weight = entropy + sign * share.entropy, weight + sign * share.weight
    return replace(memo, stats=Stats((words, usage)), entropy=entropy, weight=weight)


@dataclass(frozen=True)
class Part:
    """Documents of one batch, and what its memo owes to them."""

    key: Hashable
    batch: Any
    # Their part of the batch's memo.
    share: Share

    @property
    def n_documents(self) -> int:
        return int(self.batch.n_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the documents, and of what the memo owes to them."""
        return self.share.nbytes + _BYTES_OF_ENTRY * int(self.batch.counts.size)

    @classmethod
    def whole(cls, key: Hashable, batch: Any, state: MovableState) -> "Part":
        """All documents of a batch."""
        return cls(key, batch, Share.of(state.memos[key], batch.active))

    @classmethod
    def of(cls, solved: Solved, model: HDP, rows: IndexArray, tools: ObserverTools) -> "Part":
        """Documents ``rows`` of a batch that has just been solved."""
        batch, found = solved.batch, solved.global_params
        X = csr_of(batch, batch.counts, model.n_features)
        part = model.batch(X[rows], np.arange(rows.size), batch.weights[rows])
        places = np.searchsorted(batch.active, part.active)
        own = Globals(found.expected_log[places], found.sticks)
        # (a document's local step does not depend on its company)
        alone = model.local_step(part, own, 1.0, tools.run)
        return cls(solved.key, part, Share.of(tools.memo_of(model, alone, part), part.active))


def csr_of(batch: Any, values: Array, n_features: int) -> sp.csr_array:
    """A batch's entries with these values, (n, V); usual index types save a new compilation."""
    dtype = np.int32 if values.size < 2**31 else np.int64
    words, indptr = batch.active[batch.words].astype(dtype), batch.indptr.astype(dtype)
    return sp.csr_array((values, words, indptr), shape=(batch.n_rows, n_features))


class Trial:
    """Updates of all topics on the documents of some parts, all others staying as they are.

    Parts may be from before births: of the topics since, they have nothing. ``index`` are topics of
    the trial by their numbers before, -1 for those that are new. ``total`` is the memo of the whole
    corpus, here after the last update: of words that the documents do not have, only their sum, in
    the last column, if they are most of all.
    """

    def __init__(
        self, model: HDP, parts: list[Part], total: Any, index: IndexArray, tools: MoveTools
    ) -> None:
        self._parts, self._tools = parts, tools
        self._index = np.asarray(index)
        self._old = [part.share.with_topics(self._index) for part in parts]
        self._new = self._old
        self.total = total.rearranged(self._index)
        # The bound of all words is that of the narrow model and a constant.
        self._columns = occurring_in([part.share.columns for part in parts], model.n_features)
        self._model, self._elsewhere = model, 0.0
        self._batches, narrow = [part.batch for part in parts], self._old
        if self._columns is not None:
            self._model = model.within(self._columns)
            whole = self.total.stats
            self.total = replace(self.total, stats=self.narrowed(whole))
            self._elsewhere = float(
                model.words_evidence(whole.arrays[0]).sum()
                - self._model.words_evidence(self.total.stats.arrays[0]).sum()
            )
            places = [np.searchsorted(self._columns, part.share.columns) for part in parts]
            self._batches = [
                replace(batch, active=own) for batch, own in zip(self._batches, places, strict=True)
            ]
            narrow = [replace(old, columns=own) for old, own in zip(narrow, places, strict=True)]
        self.others = plus(self.total, narrow, sign=-1.0)

    def narrowed(self, stats: Stats) -> Stats:
        """Statistics of all words as those of the trial."""
        words, *others = stats.arrays
        if self._columns is not None:
            words = narrowed(words, self._columns)
        return Stats((words, *others))

    def update(self, stats: Stats) -> float:
        """One local step of the documents given these statistics; the bound of all in nats."""
        model, run = self._model, self._tools.run
        running, self._new = RunningStats(stats.arrays), []
        for batch in self._batches:
            global_params = model.expectation(running, batch, run)
            result = model.local_step(batch, global_params, 1.0, run)
            memo = self._tools.memo_of(model, result, batch)
            self._new.append(Share.of(memo, batch.active))
        self.total = plus(self.others, self._new)
        return bound_of(model, self.total) + self._elsewhere

    def gain(self, stats: Stats, before: float, most: int, size: float | None = None) -> float:
        """The rise of the bound after updates that begin with these statistics, in nats.

        ``most`` updates; fewer where those left would not make it a rise at the rate of the last
        one, and, given the ``size`` of the bound, once it has risen.
        """
        gain = previous = self.update(stats) - before
        for n_left in range(most - 1, 0, -1):
            if size is not None and is_accepted(gain, size):
                break
            previous, gain = gain, self.update(self.total.stats) - before
            if gain + (n_left - 1) * (gain - previous) < 0.0:
                break
        return gain

    def keep(self, state: MovableState) -> None:
        """Let the state be what the last update has found."""
        state.rearrange(self._index)
        for part, old, new in zip(self._parts, self._old, self._new, strict=True):
            without = plus(state.memos[part.key], [old], sign=-1.0)
            new = replace(new, columns=part.share.columns)
            state.memos[part.key] = plus(without, [new])
        state.resum()
