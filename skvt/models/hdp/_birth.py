"""Births of topics: fresh topics are fitted to a few documents, and kept if the bound rises.

Before a pass, a few topics are chosen as *targets*. During the pass, a sample of the documents that
have many tokens of a target is collected, together with their contributions to the memos. After the
pass

1. fresh topics are fitted to the target's tokens in these documents alone. An annealed fit begins
   with more topics than are expected. Topics then merge while the bound of these documents rises;
2. all topics, old and fresh, compete for all tokens of these documents in a few updates. Other
   documents have no tokens of the fresh topics, so that the exact bound of the whole corpus is
   known. The change is kept if the bound has risen.

Documents that were not collected can use the fresh topics from the next pass on. On a stream, whose
documents are seen once, births are tried on each batch instead.

A memo holds the sums of the statistics, entropies and weights of the documents of a batch, and the
contribution of some documents is their share of these sums.
"""

from collections.abc import Hashable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from skvt.contracts import (
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    SolvedBatch,
)
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._documents import (
    MIN_TOKENS,
    BatchPart,
    TopicTrial,
    count_tokens_in_parts,
    make_csr,
    require_growing_topics,
)
from skvt.models.hdp._fresh import fit_fresh_topics
from skvt.models.hdp._merge import sum_other_memos
from skvt.models.hdp._model import HDP
from skvt.moves import (
    Decision,
    Ledger,
    Target,
    compete,
    compute_bound,
    draw_targets,
    find_rounding_scale,
)
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Maximum number of documents collected for all targets of a pass together.
MAX_DOCUMENTS = 20_000
# Minimum number of documents of a target that is tried.
MIN_DOCUMENTS = 10
# Smallest share of the target in the tokens of a document that is collected for the target.
MIN_SHARE = 0.1
# Maximum number of targets of a pass.
MAX_TARGETS = 8
# Maximum number of targets of a pass, as a share of the number of topics. A pass may always have a
# single target.
TARGETS_PER_TOPIC = 0.5
# A fit of fresh topics to n tokens begins with sqrt(n / TOKENS_OF_FIRST_TOPIC) topics: a single
# topic for TOKENS_OF_FIRST_TOPIC tokens, and two topics for four times as many.
TOKENS_OF_FIRST_TOPIC = 40.0
# Minimum number of topics with which a fit of fresh topics begins.
MIN_FRESH_TOPICS = 4
# A failure is a target without a birth, and a birth cancels up to FAILURES_PER_BIRTH earlier
# failures. Births end when MAX_UNCANCELLED_FAILURES failures are not cancelled.
MAX_UNCANCELLED_FAILURES = 24
FAILURES_PER_BIRTH = 4
# A word is in surplus if its count is this number of standard deviations above its expectation.
SURPLUS_DEVIATIONS = 2.0
# Maximum number of updates of all topics on the collected documents before a birth is judged.
TRIAL_STEPS = 4
# Maximum number of updates before a replacement of all topics of a batch is judged.
REPLACEMENT_STEPS = 20
# After a birth from a topic has failed, the topic is a target again only if the number of its
# tokens has changed by more than this share.
SAME_MASS_TOLERANCE = 0.15
# Smallest rise of the bound in nats for which a birth is kept.
MIN_GAIN = 0.1
# Description in records of a birth from words that occur more often than topics predict.
SURPLUS_DESCRIPTION = "a topic of words in surplus"


class BirthOfTopics(Move):
    """Propose fresh topics for documents of a topic, up to ``max_components`` topics in all.

    Before a pass, the engine calls ``begin``. For each batch, it calls ``make_observer``, which
    returns a function, the *observer*. It calls the observer after the local step of the batch, and
    passes the result, the *notes* of the observer, to ``store_notes``. After the pass, it calls
    ``finish``. On a stream, it calls ``change_within_batch`` for each batch.
    """

    requires = require_growing_topics("A birth")

    # Attributes that files keep, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {**Move.kept_attributes, "_ledger": Ledger}

    def __init__(self, max_components: int) -> None:
        self._max_components = max_components
        # The targets of the pass. ``components[0]`` of a target is its topic, and ``rows`` are the
        # parts of batches with the documents that were collected for it.
        self._targets: list[Target] = []
        # The topics that failed as targets, each with its number of tokens at that time. Topics
        # that a birth has made or changed are recorded like failures, so that they are targets
        # again only if they change.
        self._ledger = Ledger(same_mass=SAME_MASS_TOLERANCE)
        # Maximum number of documents of a target, and the probability with which a document is in
        # the random sample from which documents are collected.
        self._max_documents, self._sampling_probability = MAX_DOCUMENTS, 1.0
        # Identifiers of the topics at the beginning of the pass.
        self._ids: IndexArray = np.empty(0, np.int64)
        # Whether a replacement of all topics of a batch has been tried.
        self._has_replaced = False
        self.exhausted = False

    def begin(self, model: HDP, state: MovableState, tools: MoveTools) -> None:
        """Choose targets, unless too many births have failed."""
        masses = model.component_masses(state.plain_stats.as_stats())
        self._ids = state.component_ids
        self._targets = []
        if self._ledger.n_in_vain < MAX_UNCANCELLED_FAILURES:
            self._targets = self._choose_targets(masses, self._ids, tools.rng)
        n_rows = state.memos.total().weight if len(state.memos) else 0.0
        self._max_documents = MAX_DOCUMENTS // max(1, len(self._targets))
        # Collect documents only from a random sample of 2 MAX_DOCUMENTS documents on average, so
        # that all batches contribute.
        self._sampling_probability = min(1.0, 2.0 * MAX_DOCUMENTS / n_rows) if n_rows else 1.0

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the function that collects documents of a batch, or None if there are enough."""
        n_missing_by_topic = {
            target.components[0]: self._max_documents - _count_documents(target)
            for target in self._targets
            if _count_documents(target) < self._max_documents
        }
        if not n_missing_by_topic:
            return None
        probability = self._sampling_probability
        is_in_sample = tools.rng.random(n_rows) < probability if probability < 1.0 else None
        return partial(_collect_documents, n_missing_by_topic, is_in_sample)

    def store_notes(self, notes: dict[int, BatchPart]) -> None:
        """Keep the documents of a batch that were collected for each topic."""
        for target in self._targets:
            if (topic := target.components[0]) in notes:
                target.rows.append(notes[topic])

    def finish(self, model: HDP, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Try a birth from each target in turn.

        No birth is tried if other moves of this pass have changed the topics, since the collected
        contributions to memos are then out of date.
        """
        self.exhausted = not self._targets
        is_current = np.array_equal(self._ids, state.component_ids)
        targets = self._targets if is_current else []
        self._targets = []
        records: list[MoveRecord] = []
        for target in targets:
            if _count_documents(target) >= MIN_DOCUMENTS:
                records.append(self._try_target(model, target, state, tools))
            else:
                self._ledger = self._ledger.record_failure(target.ids, target.masses)
        return records

    def change_within_batch(
        self, model: HDP, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try births on a batch of a stream.

        First try births from words in surplus until one fails, then births from targets. After the
        first batch with a birth, also try to replace the topics of the batch by fresh topics.
        """
        records: list[MoveRecord] = []
        while state.component_ids.size < self._max_components and len(records) < MAX_TARGETS:
            part = BatchPart.from_batch(key, batch, state)
            records.append(self._try_surplus(model, part, state, tools))
            if not records[-1].accepted:
                break
        masses = model.component_masses(state.memos.total().stats)
        for target in self._choose_targets(masses, state.component_ids, tools.rng):
            target.rows = [BatchPart.from_batch(key, batch, state)]
            records.append(self._try_target(model, target, state, tools))
        if any(record.accepted for record in records) and not self._has_replaced:
            self._has_replaced = True
            records += self._try_replacement(
                model, BatchPart.from_batch(key, batch, state), state, tools
            )
        return records

    def _try_surplus(
        self, model: HDP, part: BatchPart, state: MovableState, tools: MoveTools
    ) -> MoveRecord:
        """Try a birth from words that occur in a batch more often than its topics predict.

        This birth finds a topic that is new in a stream. A birth from a target would not find it,
        since each old topic has only a few tokens of the new topic.
        """
        word_counts, usage = state.memos[part.key].stats.arrays
        masses = word_counts.sum(axis=1)
        lam = model.natural_parameters(state.stats)[0]
        expected_counts = masses @ (lam / lam.sum(axis=1, keepdims=True))
        surplus = word_counts.sum(axis=0) - expected_counts
        surplus[surplus < SURPLUS_DEVIATIONS * np.sqrt(expected_counts)] = 0.0
        if not exceeds(surplus.sum(), MIN_TOKENS):
            reason = "No words occur more often than topics predict."
            decision = Decision(is_accepted=False, gain=np.nan, reason=reason)
            return decision.record(tools.n_iter, "birth", (), SURPLUS_DESCRIPTION)
        # Double the tokens of the fresh topic, and divide the additional tokens among all words as
        # expected, because a topic gains words that it lacks only slowly.
        surplus += surplus.sum() * expected_counts / expected_counts.sum()
        # Start the fresh topic with the usage, see :mod:`skvt.models.hdp._usage`, of the topic that
        # is most similar in its number of tokens.
        similar_topic = int(np.argmin(np.abs(masses - surplus.sum())))
        fresh = Stats((surplus[None], usage[similar_topic : similar_topic + 1]))
        n_topics_before = state.component_ids.size
        decision = self._try_topics(model, [part], fresh, state, tools)
        n_born = state.component_ids.size - n_topics_before
        return decision.record(tools.n_iter, "birth", (), SURPLUS_DESCRIPTION, n_changed=n_born)

    def _try_replacement(
        self, model: HDP, part: BatchPart, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try to replace by fresh topics all topics that have tokens in this batch only.

        These topics were born one after the other, so that early topics may have words that belong
        to later topics.
        """
        _, is_in_other_batches = sum_other_memos(model, state, part.key)
        kept_topics = np.flatnonzero(is_in_other_batches)
        batch = part.batch
        X = make_csr(batch, batch.counts, model.n_features)
        n_fresh = _choose_number_of_topics(X, self._max_components - kept_topics.size)
        fresh = fit_fresh_topics(model, X, np.asarray(batch.weights, np.float64), n_fresh, tools)
        n_topics_before = state.component_ids.size
        decision = self._try_topics(model, [part], fresh, state, tools, kept_topics=kept_topics)
        replaced = np.delete(np.arange(n_topics_before), kept_topics)
        description = "fresh topics for all topics of these rows"
        n_born = state.component_ids.size - kept_topics.size
        records = [decision.record(tools.n_iter, "birth", replaced, description, n_changed=n_born)]
        if decision.is_accepted:
            reason = "Fresh topics have replaced these topics."
            delete = Decision(is_accepted=True, gain=0.0, reason=reason)
            n_deleted = replaced.size
            records.append(delete.record(
                tools.n_iter, "delete", replaced, "the same",
                n_changed=n_deleted, n_proposals=n_deleted,
            ))  # fmt: skip
        return records

    def _choose_targets(
        self, masses: Array, ids: IndexArray, rng: np.random.Generator
    ) -> list[Target]:
        """Choose topics as targets, unless the model has as many topics as it may have.

        ``masses`` (K,) are the tokens of the topics, and ``ids`` (K,) their identifiers.
        """
        n_targets = min(MAX_TARGETS, max(1, int(TARGETS_PER_TOPIC * masses.size)))
        n_targets = n_targets if masses.size < self._max_components else 0
        return draw_targets(self._ledger, np.maximum(masses, 0.0), ids, rng, n_targets)

    def _try_target(
        self, model: HDP, target: Target, state: MovableState, tools: MoveTools
    ) -> MoveRecord:
        """Try births from the documents collected for a target, and record a failure."""
        n_topics_before = state.component_ids.size
        n_fresh = 0
        # Number of the target among the present topics.
        topic = int(np.flatnonzero(state.component_ids == target.ids[0])[0])
        # This is the decision if the model has as many topics as it may have.
        reason = "There are as many topics as there may be."
        decision = Decision(is_accepted=False, gain=np.nan, reason=reason)
        if n_topics_before < self._max_components:
            X, weights = count_tokens_in_parts(model, target.rows, topic, state, tools)
            if not X.nnz:
                # Documents without tokens of the target do not count as its failure.
                decision = decision._replace(reason="The documents have no tokens of the topic.")
                return decision.record(tools.n_iter, "birth", [topic], "no topics")
            # Allow one topic more than may be born, because the largest is left out at first.
            n_fresh = _choose_number_of_topics(X, self._max_components - n_topics_before + 1)
            fresh = fit_fresh_topics(model, X, weights, n_fresh, tools)
            # This is the decision if only one fresh topic remains, so that nothing is tried.
            decision = decision._replace(reason="The fresh topics have become one.")
            order = stable_order(-fresh.arrays[0].sum(axis=1), scale=float(X.sum()))
            # The largest fresh topic may be a new topic, or what remains of the target. Try the
            # birth without the largest fresh topic, then with it.
            for n_left_out in (1, 0) if order.size > 1 else ():
                born = Stats(tuple(array[order[n_left_out:]] for array in fresh.arrays))
                decision = self._try_topics(model, target.rows, born, state, tools, source=topic)
                if decision.is_accepted:
                    break
        if not decision.is_accepted:
            self._ledger = self._ledger.record_failure(target.ids, target.masses)
        description = f"{n_fresh} fresh topics"
        n_born = state.component_ids.size - n_topics_before
        return decision.record(tools.n_iter, "birth", [topic], description, n_changed=n_born)

    def _try_topics(
        self, model: HDP, parts: list[BatchPart], fresh: Stats, state: MovableState,
        tools: MoveTools, *, source: int | None = None, kept_topics: IndexArray | None = None,
    ) -> Decision:  # fmt: skip
        """Let fresh topics compete for the documents of ``parts``; keep them if the bound rises.

        At the beginning, the tokens of the fresh topics are subtracted from the topic ``source``,
        unless it is None. If ``kept_topics`` is not None, all other old topics are removed, and the
        kept topics begin without their tokens in the documents of the parts.
        """
        total_memo = state.memos.total()
        max_updates = TRIAL_STEPS if kept_topics is None else REPLACEMENT_STEPS
        old_topics = np.arange(state.component_ids.size) if kept_topics is None else kept_topics
        bound_before = compute_bound(model, total_memo)
        n_old = old_topics.size

        def begin_trial(competing: Stats) -> tuple[TopicTrial, RunningStats]:
            """Return a trial of the old and the competing topics, and its first statistics."""
            # The old number of each topic of the trial, and -1 for a fresh topic.
            index = np.concatenate([old_topics, np.full(len(competing.arrays[0]), -1)])
            trial = TopicTrial(model, parts, total_memo, index, tools)
            memo = trial.total_memo if kept_topics is None else trial.memo_of_others
            counts, usage = (array.copy() for array in memo.stats.arrays)
            fresh_counts, fresh_usage = trial.narrow(competing).arrays
            if source is not None:
                counts[source] = np.maximum(counts[source] - fresh_counts.sum(axis=0), 0.0)
            counts[n_old:], usage[n_old:] = fresh_counts, fresh_usage
            return trial, RunningStats((counts, usage))

        fresh = Stats(tuple(array[: self._max_components - n_old] for array in fresh.arrays))
        scale = find_rounding_scale(bound_before, total_memo)
        trial, decision = compete(begin_trial, fresh, bound_before, max_updates, scale, MIN_GAIN)
        if decision.is_accepted:
            trial.keep(state)
            # Record the source and the fresh topics, which are targets again only if they change.
            masses = model.component_masses(state.memos.total().stats)
            topics = [*([] if source is None else [source]), *range(n_old, masses.size)]
            ids = state.component_ids[topics].tolist()
            self._ledger = self._ledger.record_success(FAILURES_PER_BIRTH, ids, masses[topics])
        return decision


def _choose_number_of_topics(X: sp.csr_array, max_topics: int) -> int:
    """Return the number of topics with which a fit to the word counts X (n, V) begins."""
    n_topics = int(np.sqrt(X.sum() / TOKENS_OF_FIRST_TOPIC))
    return min(max(MIN_FRESH_TOPICS, n_topics), max_topics)


def _count_documents(target: Target) -> int:
    """Return the number of documents that were collected for a target."""
    return sum(part.n_documents for part in target.rows)


def _collect_documents(
    n_missing_by_topic: dict[int, int], is_in_sample: NDArray[np.bool_] | None, model: HDP,
    solved_batch: SolvedBatch, tools: ObserverTools,
) -> dict[int, BatchPart]:  # fmt: skip
    """Collect documents of a batch for targets; return a part for the topic of each target.

    ``n_missing_by_topic`` has the topic of each target and the number of documents that may still
    be collected for it. ``is_in_sample`` (n,) says which documents may be collected, or is None.
    A document is collected for the target that has the most of its tokens, if these are enough.
    """
    assert solved_batch.result.counts is not None
    tokens = solved_batch.result.counts[:, list(n_missing_by_topic)]
    main_targets = tokens.argmax(axis=1)
    n_tokens = tokens[np.arange(len(main_targets)), main_targets]
    is_suitable = (n_tokens > MIN_TOKENS) & (n_tokens > MIN_SHARE * solved_batch.batch.lengths)
    if is_in_sample is not None:
        is_suitable &= is_in_sample
    parts = dict[int, BatchPart]()
    for i, (topic, n_missing) in enumerate(n_missing_by_topic.items()):
        rows = np.flatnonzero(is_suitable & (main_targets == i))[:n_missing]
        if rows.size:
            parts[topic] = BatchPart.from_solved(solved_batch, model, rows, tools)
    return parts
