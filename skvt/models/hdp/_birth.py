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
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import (
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    Solved,
)
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._documents import FEWEST_TOKENS, Part, TopicTrial, csr_of, of_topics, tokens_of
from skvt.models.hdp._fresh import fresh_topics
from skvt.models.hdp._merge import of_other_batches
from skvt.models.hdp._model import HDP
from skvt.moves import Ledger, Outcome, Target, bound_of, choose, compete, size_of
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Maximum number of documents collected for all targets of a pass together.
MOST_DOCUMENTS = 20_000
# Minimum number of documents of a target that is tried.
FEWEST_DOCUMENTS = 10
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
# Description of a birth from words that occur more often than topics predict.
SURPLUS = "a topic of words in surplus"


class BirthOfTopics(Move):
    """Propose fresh topics for documents of a topic, up to ``max_components`` in all."""

    requires = of_topics("A birth")

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_ledger": Ledger,
    }

    def __init__(self, max_components: int) -> None:
        self._max_components = max_components
        self._targets: list[Target] = []
        # Failures of topics, by their tokens; topics count as tried when a birth makes them.
        self._ledger = Ledger(same_mass=SAME_MASS)
        self._most, self._share = MOST_DOCUMENTS, 1.0
        self._ids: IndexArray = np.empty(0, np.int64)
        # Whether the topics of this call's batch have been replaced once.
        self._begun_again = False
        self.exhausted = False

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
            target.components[0]: self._most - _n_documents(target)
            for target in self._targets
            if _n_documents(target) < self._most
        }
        if not wanted:
            return None
        drawn = tools.rng.random(n_rows) < self._share if self._share < 1.0 else None
        return partial(_collected, wanted, drawn)

    def note(self, noted: dict[int, Part]) -> None:
        """Keep the collected documents."""
        for target in self._targets:
            if (topic := target.components[0]) in noted:
                target.rows.append(noted[topic])

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Try births from all targets, one after the other.

        If other moves of this pass have changed the topics, no birth is tried, since the collected
        shares of memos are out of date.
        """
        self.exhausted = not self._targets
        is_current = np.array_equal(self._ids, state.component_ids)
        targets, self._targets = self._targets if is_current else [], []
        records: list[MoveRecord] = []
        for target in targets:
            if _n_documents(target) >= FEWEST_DOCUMENTS:
                records.append(self._birth(model, target, state, tools))
            else:
                self._ledger = self._ledger.failed(target.ids, target.masses)
        return records

    def within(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try births on one batch: from words in surplus, from targets, then all topics anew."""
        records: list[MoveRecord] = []
        while state.component_ids.size < self._max_components and len(records) < MOST_TARGETS:
            part = Part.whole(key, batch, state)
            records.append(self._birth_of_surprises(model, part, state, tools))
            if not records[-1].accepted:
                break
        masses = model.component_masses(state.memos.total().stats)
        for target in self._choose(masses, state.component_ids, tools.rng):
            target.rows = [Part.whole(key, batch, state)]
            records.append(self._birth(model, target, state, tools))
        if any(record.accepted for record in records) and not self._begun_again:
            self._begun_again = True
            records += self._birth_of_all(model, Part.whole(key, batch, state), state, tools)
        return records

    def _birth_of_surprises(
        self, model: HDP, part: Part, state: MovableState, tools: MoveTools
    ) -> MoveRecord:
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
            reason = "No words occur more often than topics predict."
            return Outcome(False, np.nan, reason).record(tools.n_iter, "birth", (), SURPLUS)
        # Add as many tokens of all words: a topic gains words that it lacks slowly.
        surplus += surplus.sum() * expected / expected.sum()
        # Until the first update, its usage is that of the topic with the most similar mass.
        alike = int(np.argmin(np.abs(masses - surplus.sum())))
        fresh = Stats((surplus[None], usage[alike : alike + 1]))
        n_before = state.component_ids.size
        outcome = self._trial(model, [part], None, fresh, state, tools)
        parts = tools.n_iter, "birth", (), SURPLUS, state.component_ids.size - n_before
        return outcome.record(*parts)

    def _birth_of_all(
        self, model: HDP, part: Part, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try to replace all topics of which no other batch has tokens by fresh topics.

        Topics that were born one after the other have taken words that belong to later topics.
        """
        batch, (_, elsewhere) = part.batch, of_other_batches(model, state, part.key)
        kept, X = np.flatnonzero(elsewhere), csr_of(batch, batch.counts, model.n_features)
        n_seeds = max(FEWEST_SEEDS, int(np.sqrt(X.sum() / TOKENS_OF_FIRST)))
        n_seeds = min(n_seeds, self._max_components - kept.size)
        fresh = fresh_topics(model, X, np.asarray(batch.weights, np.float64), n_seeds, tools)
        n_before = state.component_ids.size
        outcome = self._trial(model, [part], None, fresh, state, tools, kept)
        gone = np.delete(np.arange(n_before), kept)
        number, parts = state.component_ids.size - kept.size, (tools.n_iter, "birth", gone)
        records = [outcome.record(*parts, "fresh topics for all topics of these rows", number)]
        if outcome.is_accepted:
            deleted = Outcome(True, 0.0, "Fresh topics have replaced these topics.")
            numbers = gone.size, gone.size
            records.append(deleted.record(tools.n_iter, "delete", gone, "the same", *numbers))
        return records

    def _choose(self, masses: Array, ids: IndexArray, rng: np.random.Generator) -> list[Target]:
        """Choose topics, unless the model has as many topics as it may have."""
        number = min(MOST_TARGETS, max(1, int(TARGETS_PER_TOPIC * masses.size)))
        number = number if masses.size < self._max_components else 0
        return choose(self._ledger, np.maximum(masses, 0.0), ids, rng, number)

    def _birth(
        self, model: HDP, target: Target, state: MovableState, tools: MoveTools
    ) -> MoveRecord:
        """Try births from a target, and remember a failure."""
        n_before, n_seeds = state.component_ids.size, 0
        topic = int(np.flatnonzero(state.component_ids == target.ids[0])[0])
        outcome = Outcome(False, np.nan, "There are as many topics as there may be.")
        if n_before < self._max_components:
            sample, weights = tokens_of(model, target.rows, topic, state, tools)
            if not sample.nnz:  # documents without tokens of the topic are no failure
                outcome = outcome._replace(reason="The documents have no tokens of the topic.")
                return outcome.record(tools.n_iter, "birth", [topic], "no topics")
            n_seeds = max(FEWEST_SEEDS, int(np.sqrt(sample.sum() / TOKENS_OF_FIRST)))
            n_seeds = min(n_seeds, self._max_components - n_before + 1)
            fresh = fresh_topics(model, sample, weights, n_seeds, tools)
            outcome = outcome._replace(reason="The fresh topics have become one.")
            order = stable_order(-fresh.arrays[0].sum(axis=1), scale=float(sample.sum()))
            # The largest fresh topic may be the target's remainder, or a new topic.
            for first in (1, 0) if order.size > 1 else ():
                new = Stats(tuple(array[order[first:]] for array in fresh.arrays))
                outcome = self._trial(model, target.rows, topic, new, state, tools)
                if outcome.is_accepted:
                    break
        if not outcome.is_accepted:
            self._ledger = self._ledger.failed(target.ids, target.masses)
        tried, number = f"{n_seeds} fresh topics", state.component_ids.size - n_before
        return outcome.record(tools.n_iter, "birth", [topic], tried, number)

    def _trial(
        self, model: HDP, parts: list[Part], own: int | None, fresh: Stats,
        state: MovableState, tools: MoveTools, old: IndexArray | None = None,
    ) -> Outcome:  # fmt: skip
        """Add fresh topics if the bound rises.

        Their tokens are taken from the target ``own`` unless it is None. With ``old``, only these
        topics stay, and begin without the documents of the trial.
        """
        total = state.memos.total()
        steps = TRIAL_STEPS if old is None else STEPS_OF_ALL
        others = np.arange(state.component_ids.size) if old is None else old
        before, n_old = bound_of(model, total), others.size

        def begin(fresh: Stats) -> tuple[TopicTrial, RunningStats]:
            index = np.concatenate([others, np.full(len(fresh.arrays[0]), -1)])
            trial = TopicTrial(model, parts, total, index, tools)
            begun = trial.total if old is None else trial.others
            words, usage = (array.copy() for array in begun.stats.arrays)
            new = trial.narrowed(fresh).arrays
            if own is not None:
                words[own] = np.maximum(words[own] - new[0].sum(axis=0), 0.0)
            words[n_old:], usage[n_old:] = new
            return trial, RunningStats((words, usage))

        fresh = Stats(tuple(array[: self._max_components - n_old] for array in fresh.arrays))
        size = size_of(before, total)
        trial, outcome = compete(begin, fresh, before, steps, size, SMALLEST_GAIN)
        if outcome.is_accepted:
            trial.keep(state)
            # Topics that were just judged are tried again only if they change.
            masses = model.component_masses(state.memos.total().stats)
            topics = [*([] if own is None else [own]), *range(n_old, masses.size)]
            ids = state.component_ids[topics].tolist()
            self._ledger = self._ledger.succeeded(FAILURES_OF_BIRTH, ids, masses[topics])
        return outcome


def _n_documents(target: Target) -> int:
    """Return the number of documents collected."""
    return sum(part.n_documents for part in target.rows)


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
