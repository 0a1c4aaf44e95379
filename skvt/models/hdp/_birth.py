"""Births of topics: fresh topics are fitted to documents of one topic and tried on these alone.

During a pass, a sample of the documents that have a topic is collected for some topics, the
*targets*, together with the documents' shares of the memos. After the pass

1. fresh topics are fitted to the target's tokens in these documents alone: more than are expected,
   annealed, then merged while the bound of these documents rises;
2. all topics, including the fresh ones, compete for all tokens of these documents in a few updates.
   Other documents have no tokens of the fresh topics, so that the exact bound of the whole corpus
   is known: if it has risen, the change is kept.

Documents that were not collected can use the fresh topics from the next pass on.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import psi

from skvt.contracts import (
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    Solved,
)
from skvt.expfam import Stats
from skvt.models.hdp._documents import Part, Trial, csr_of, of_topics
from skvt.models.hdp._fresh import fresh_topics
from skvt.models.hdp._merge import of_other_batches
from skvt.models.hdp._model import HDP, Globals
from skvt.models.hdp._sticks import IN_USE
from skvt.moves import Ledger, bound_of, is_accepted, size_of
from skvt.rows import pieces
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Maximum number of documents collected for all targets of a pass together.
MOST_DOCUMENTS = 20_000
# Minimum number of documents of a target that is tried.
FEWEST_DOCUMENTS = 10
# Minimum tokens of a fresh topic, and of a target in a document that is collected for it.
FEWEST_TOKENS = 2.0
# Smallest share of the target in a document that is collected for it.
SMALLEST_SHARE = 0.1
# Maximum number of targets of a pass.
MOST_TARGETS = 8
# Maximum number of targets of a pass per topic of the model.
TARGETS_PER_TOPIC = 0.5
# A trial on n tokens begins with sqrt(n / this number) fresh topics.
TOKENS_OF_FIRST = 40.0
# Minimum number of fresh topics that a trial begins with.
FEWEST_SEEDS = 4
# Births are not tried once the number of failures, less those that births cancel, reaches this.
MOST_FAILURES = 24
# Number of failures that a birth cancels.
FAILURES_OF_BIRTH = 4
# A word is in surplus if its count is this number of standard deviations above its expectation.
SURPRISE = 2.0
# Maximum number of local and global updates by which a birth is judged.
TRIAL_STEPS = 4
# The same if all topics of a batch are replaced.
STEPS_OF_ALL = 20
# A topic is tried again if its tokens have changed by a larger share since a birth from it failed.
SAME_MASS = 0.15
# The bound must rise by more nats than this.
SMALLEST_GAIN = 0.1


@dataclass
class _Target:
    """A topic from which a birth is tried: number, id, tokens, and documents collected for it."""

    topic: int
    id: int
    mass: float
    parts: list[Part] = field(default_factory=list)

    @property
    def n_documents(self) -> int:
        """Number of documents collected."""
        return sum(part.n_documents for part in self.parts)


class BirthOfTopics(Move):
    """Propose fresh topics for documents of a topic, up to ``max_components`` in all."""

    requires = of_topics("A birth")

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_ledger": Ledger,
    }

    def __init__(self, max_components: int) -> None:
        self._max_components = max_components
        self._targets: list[_Target] = []
        # Failures of topics, by their tokens; topics count as tried when a birth makes them.
        self._ledger = Ledger(same_mass=SAME_MASS)
        self._most, self._share = MOST_DOCUMENTS, 1.0
        self._ids: IndexArray = np.empty(0, np.int64)
        # Whether the topics of this call's batch have been replaced once.
        self._begun_again = False
        self.exhausted = False

    # ------------------------------------------------------------------------------- a pass
    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose targets."""
        masses = model.component_masses(state.plain_stats.value())
        self._ids, trying = state.component_ids, self._ledger.n_in_vain < MOST_FAILURES
        self._targets = self._choose(masses, self._ids, tools.rng) if trying else []
        n_rows = state.memos.total().weight if len(state.memos) else 0.0
        self._most = MOST_DOCUMENTS // max(1, len(self._targets))
        # Documents are drawn with this probability, so that all batches contribute.
        self._share = min(1.0, 2.0 * MOST_DOCUMENTS / n_rows) if n_rows else 1.0

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Collect documents, each for the target that has most of its tokens."""
        wanted = {
            target.topic: self._most - target.n_documents
            for target in self._targets
            if target.n_documents < self._most
        }
        if not wanted:
            return None
        drawn = tools.rng.random(n_rows) < self._share if self._share < 1.0 else None
        return partial(_collected, wanted, drawn)

    def note(self, noted: dict[int, Part]) -> None:
        """Keep the collected documents."""
        for target in self._targets:
            if target.topic in noted:
                target.parts.append(noted[target.topic])

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Try births from all targets, one after the other.

        If other moves of this pass have changed the topics, no birth is tried, since the collected
        shares of memos are out of date.
        """
        proposed, born, gain = 0, 0, 0.0
        self.exhausted = not self._targets
        if np.array_equal(self._ids, state.component_ids):
            for target in self._targets:
                if target.n_documents < FEWEST_DOCUMENTS:
                    self._ledger = self._ledger.failed([target.id], [target.mass])
                    continue
                proposed += 1
                n, rise = self._birth(model, target, state, tools)
                born, gain = born + n, gain + rise
        self._targets = []
        return MoveRecord(tools.n_iter, "birth", proposed, born, gain)

    # ----------------------------------------------------------------------------- a stream
    def within(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try births on one batch: from words in surplus, from targets, then all topics anew."""
        proposed, born, gain = 0, 0, 0.0
        while state.component_ids.size < self._max_components and proposed < MOST_TARGETS:
            proposed += 1
            n, rise = self._birth_of_surprises(model, Part.whole(key, batch, state), state, tools)
            if not n:
                break
            born, gain = born + n, gain + rise
        masses = model.component_masses(state.memos.total().stats)
        targets = self._choose(masses, state.component_ids, tools.rng)
        for target in targets:
            target.parts = [Part.whole(key, batch, state)]
            n, rise = self._birth(model, target, state, tools)
            born, gain = born + n, gain + rise
        gone = 0
        if born and not self._begun_again:
            self._begun_again, proposed = True, proposed + 1
            n_before = state.component_ids.size
            n, rise = self._birth_of_all(model, Part.whole(key, batch, state), state, tools)
            gone = n_before + n - state.component_ids.size
            born, gain = born + n, gain + rise
        return [
            MoveRecord(tools.n_iter, "birth", proposed + len(targets), born, gain),
            *([MoveRecord(tools.n_iter, "delete", gone, gone, 0.0)] if gone else []),
        ]

    def _birth_of_surprises(
        self, model: HDP, part: Part, state: MovableState, tools: MoveTools
    ) -> tuple[int, float]:
        """Try births from words that occur in a batch more often than its topics predict.

        A topic that is new in a stream has no target: each old topic takes a few of its tokens.
        """
        observed, usage = state.memos[part.key].stats.arrays
        masses = observed.sum(axis=1)
        lam = model.natural_parameters(state.stats)[0]
        expected = masses @ (lam / lam.sum(axis=1, keepdims=True))
        surplus = observed.sum(axis=0) - expected
        surplus[surplus < SURPRISE * np.sqrt(expected)] = 0.0
        if not exceeds(surplus.sum(), FEWEST_TOKENS):
            return 0, 0.0
        # Add as many tokens of all words: a topic gains words that it lacks slowly.
        surplus += surplus.sum() * expected / expected.sum()
        # Until the first update, its usage is that of the topic with the most similar mass.
        alike = int(np.argmin(np.abs(masses - surplus.sum())))
        fresh = Stats((surplus[None], usage[alike : alike + 1]))
        return self._trial(model, [part], None, fresh, state, tools)

    def _birth_of_all(
        self, model: HDP, part: Part, state: MovableState, tools: MoveTools
    ) -> tuple[int, float]:
        """Try to replace all topics of which no other batch has tokens by fresh topics.

        Topics that were born one after the other have taken words that belong to later topics.
        """
        batch, (_, elsewhere) = part.batch, of_other_batches(model, state, part.key)
        kept, X = np.flatnonzero(elsewhere), csr_of(batch, batch.counts, model.n_features)
        n_seeds = max(FEWEST_SEEDS, int(np.sqrt(X.sum() / TOKENS_OF_FIRST)))
        n_seeds = min(n_seeds, self._max_components - kept.size)
        fresh = fresh_topics(model, X, np.asarray(batch.weights, np.float64), n_seeds, tools)
        return self._trial(model, [part], None, fresh, state, tools, kept)

    # --------------------------------------------------------------------------------- both
    def _choose(self, masses: Array, ids: IndexArray, rng: np.random.Generator) -> list[_Target]:
        """Draw targets in proportion to their tokens, without topics from which births failed."""
        eligible = self._ledger.tries(ids, masses) == 0
        targets: list[_Target] = []
        if masses.size >= self._max_components:
            return targets
        number = min(MOST_TARGETS, max(1, int(TARGETS_PER_TOPIC * masses.size)))
        while len(targets) < number and eligible.any():
            chances = np.maximum(masses, 0.0) * eligible
            if not exceeds(chances.sum(), 0.0, scale=masses.sum()):
                break
            k = int(rng.choice(masses.size, p=chances / chances.sum()))
            eligible[k] = False
            targets.append(_Target(k, int(ids[k]), float(masses[k])))
        return targets

    def _birth(
        self, model: HDP, target: _Target, state: MovableState, tools: MoveTools
    ) -> tuple[int, float]:
        """Try births from a target; return the number of topics born and the rise of the bound."""
        room = self._max_components - state.component_ids.size
        if room > 0:
            topic = int(np.flatnonzero(state.component_ids == target.id)[0])
            sample, weights = _tokens_of(model, target, topic, state, tools)
            if not sample.nnz:  # documents without tokens of the topic are no failure
                return 0, 0.0
            n_seeds = max(FEWEST_SEEDS, int(np.sqrt(sample.sum() / TOKENS_OF_FIRST)))
            fresh = fresh_topics(model, sample, weights, min(n_seeds, room + 1), tools)
            order = stable_order(-fresh.arrays[0].sum(axis=1), scale=float(sample.sum()))
            if order.size > 1:
                fresh = Stats(tuple(array[order] for array in fresh.arrays))
                # The largest fresh topic may be the target's remainder, or a new topic.
                for first in (1, 0):
                    new = Stats(tuple(array[first:] for array in fresh.arrays))
                    born, gain = self._trial(model, target.parts, topic, new, state, tools)
                    if born:
                        return born, gain
        self._ledger = self._ledger.failed([target.id], [target.mass])
        return 0, 0.0

    def _trial(
        self, model: HDP, parts: list[Part], own: int | None, fresh: Stats,
        state: MovableState, tools: MoveTools, old: IndexArray | None = None,
    ) -> tuple[int, float]:  # fmt: skip
        """Try fresh topics; return the number of topics born and the rise of the bound.

        Their tokens are taken from the target ``own`` unless it is None. With ``old``, only these
        topics stay, and begin without the documents of the trial.
        """
        total = state.memos.total()
        steps = TRIAL_STEPS if old is None else STEPS_OF_ALL
        others = np.arange(state.component_ids.size) if old is None else old
        before, n_old = bound_of(model, total), others.size
        order = np.arange(len(fresh.arrays[0]))[: self._max_components - n_old]
        while order.size:
            new = Stats(tuple(array[order] for array in fresh.arrays))
            index = np.concatenate([others, np.full(order.size, -1)])
            trial = Trial(model, parts, total, index, tools)
            begun = trial.total if old is None else trial.others
            words, usage = (array.copy() for array in begun.stats.arrays)
            born = trial.narrowed(new).arrays
            if own is not None:
                words[own] = np.maximum(words[own] - born[0].sum(axis=0), 0.0)
            words[n_old:], usage[n_old:] = born
            gain = trial.gain(Stats((words, usage)), before, steps)
            words, usage = trial.total.stats.arrays
            lives = exceeds(words[n_old:].sum(axis=1), FEWEST_TOKENS)
            lives &= exceeds(usage[n_old:, IN_USE], 1.0)
            if lives.all():
                if is_accepted(gain, size_of(before, total), SMALLEST_GAIN):
                    trial.keep(state)
                    # Topics that were just judged are tried again only if they change.
                    masses = model.component_masses(state.memos.total().stats)
                    judged = [*([] if own is None else [own]), *range(n_old, masses.size)]
                    ids = state.component_ids[judged].tolist()
                    self._ledger = self._ledger.succeeded(FAILURES_OF_BIRTH, ids, masses[judged])
                    return order.size, gain
                break
            order = order[lives]
        return 0, 0.0


def _tokens_of(
    model: HDP, target: _Target, k: int, state: MovableState, tools: MoveTools
) -> tuple[sp.csr_array, Array]:
    """Return word counts of topic k, the target, in its documents, and the documents' weights."""
    counts, weights = [], []
    for part in target.parts:
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


def _collected(
    wanted: dict[int, int], drawn: NDArray[np.bool_] | None, model: HDP, solved: Solved,
    tools: ObserverTools,
) -> dict[int, Part]:  # fmt: skip
    """Collect documents by topic among those drawn, at most as many as are wanted of each."""
    batch, result, parts = solved.batch, solved.result, dict[int, Part]()
    assert result.counts is not None
    tokens = result.counts[:, list(wanted)]
    most = tokens.argmax(axis=1)
    largest = tokens[np.arange(len(most)), most]
    enough = (largest > FEWEST_TOKENS) & (largest > SMALLEST_SHARE * batch.lengths)
    if drawn is not None:
        enough &= drawn
    for i, (topic, number) in enumerate(wanted.items()):
        rows = np.flatnonzero(enough & (most == i))[:number]
        if rows.size:
            parts[topic] = Part.of(solved, model, rows, tools)
    return parts
