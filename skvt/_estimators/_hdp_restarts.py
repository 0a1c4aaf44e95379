"""The starts of a fit of :class:`~skvt.MemoizedHDP`, and the sampling of topics at its end.

A fit consists of one or several starts, each a series of passes from other initial values; the
start with the highest bound is kept. The launch of a start is the object with which it begins: a
plan, a model, a state, a temperature policy and random numbers.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt._estimators._structured_lda import COLLAPSED_PRIOR
from skvt._stages import begin_stage, take_notes
from skvt.expfam import RunningStats
from skvt.fitting import SameModel
from skvt.inference import State, average_collapsed_passes
from skvt.models.lda import CollapsedLDA
from skvt.readers.validation import find_stack_level
from skvt.rows import sums_of_rows
from skvt.temperature import LinearAnnealing

# Initial numbers of topics of the annealed starts that follow a fit which ends with one topic. Such
# a fit may have missed topics: it judges births by concentrations and a prior that were learned for
# one topic. If documents mix many topics, only a fit that starts from several topics learns
# suitable values.
ANNEALED_NUMBERS = 20, 50
# Minimum number of documents for each initial topic of an annealed start.
MIN_DOCUMENTS_PER_TOPIC = 10
# Warning after annealed starts if the best start still has one topic.
ONE_TOPIC_WARNING = (
    "The fit ended with one topic, and fits that began with {} topics have no higher bound. "
    "Either the documents have no topics, or each of them mixes many topics, for which the bound "
    "is too loose to find their number. If you expect several topics, set their number in "
    "StructuredLDA(n_components=...)."
)
# If there are at most FEW_DOCUMENTS documents, a start from one topic that has found several topics
# is followed by another start. SWEEPS_OF_START sweeps of collapsed sampling, which begin with the
# topics found, yield the initial topics of the new start. In few documents, two themes that share a
# topic have too few tokens for a birth to separate them, but sampling separates them.
FEW_DOCUMENTS = 1_000
SWEEPS_OF_START = 200
# Name of a start from sampled topics in ``Outcomes.kinds``.
SAMPLED = "from sampled topics"
# An entry is a pair of a document and a word that occurs in it. If entries have more than
# MAX_TOKENS_PER_ENTRY tokens on average, there are fewer sweeps than requested. The number is not
# reduced below MIN_SWEEPS.
MAX_TOKENS_PER_ENTRY = 10.0
MIN_SWEEPS = 20


@dataclass(frozen=True)
class TopicRestarts:
    """Rule for starts: first one start for each seed, then starts that depend on the best fit."""

    # Seeds of the first starts; all further starts have the first seed.
    seeds: tuple[int, ...]
    # The `skvt.fitting._fit.Fit`, whose method `launch` makes the launch of a start.
    fit: Any
    # Initial numbers of topics of the annealed starts, which follow if the best fit has converged
    # with one topic.
    annealed_numbers: tuple[int, ...]
    # Whether a start from sampled topics follows if the best fit has several topics.
    may_sample: bool

    @classmethod
    def from_fit(cls, seeds, fit, *, may_sample):
        """Return the rule for a fit with births.

        Annealed starts with too many topics for the number of documents are left out. With
        ``may_sample``, a start from sampled topics may follow if documents are few.
        """
        n_documents, max_topics = fit.plan.data.n_rows, fit.plan.stopping.max_components
        supported = [n for n in ANNEALED_NUMBERS if n * MIN_DOCUMENTS_PER_TOPIC <= n_documents]
        numbers = sorted({min(n, max_topics) for n in supported} - {1})
        return cls(seeds, fit, tuple(numbers), may_sample and n_documents <= FEW_DOCUMENTS)

    def next(self, outcomes):
        """Return the launch of the next start, or None if no start follows.

        The fit calls this after each start. ``outcomes`` are the results of the starts so far: the
        ``kinds`` of all starts by name, the ``best`` of them, and whether this one has converged.
        Warn if annealed starts were made and the best fit has converged, still with one topic.
        """
        n_init = len(self.seeds)
        # Number of starts made so far beyond the first ones, one for each seed.
        n_further = len(outcomes.kinds) - n_init
        if n_further < 0:
            return SameModel(self.seeds, self.fit).next(outcomes)
        # No start follows if the best of the first starts has not converged, or after a start from
        # sampled topics.
        if (n_further == 0 and not outcomes.converged) or SAMPLED in outcomes.kinds:
            return None
        best = outcomes.best
        has_one_topic = best.model.size(best.stats) == 1
        # Once an annealed start has been made, the annealed starts of all numbers are made.
        if n_further < len(self.annealed_numbers) and (n_further or has_one_topic):
            n_topics = self.annealed_numbers[n_further]
            return self.fit.launch(
                self.seeds[0], kind=f"annealed from {n_topics} topics", policy=LinearAnnealing(),
                n_starts=n_init + len(self.annealed_numbers),
                model=self.fit.model.resized(n_topics),
            )  # fmt: skip
        can_sample = n_further == 0 and not has_one_topic and self.may_sample
        if can_sample and best.policy.at_unit_temperature:
            model = self._start_from_sampled_topics(best)
            return self.fit.launch(self.seeds[0], kind=SAMPLED, n_starts=n_init + 1, model=model)
        if n_further and has_one_topic and outcomes.converged:
            warning = ONE_TOPIC_WARNING.format(" and ".join(map(str, self.annealed_numbers)))
            warnings.warn(warning, UserWarning, stacklevel=find_stack_level())
        return None

    def _start_from_sampled_topics(self, fitted):
        """Return the model that starts from the topics of a fit after collapsed sampling."""
        fit = self.fit
        state = fitted.state.draft()
        _sample_topics(SWEEPS_OF_START, fitted.model, state, fit.plan.data, fit.workers)
        # The Dirichlet parameters of the topics come first, and the sticks follow.
        topics, *_ = fitted.model.natural_parameters(state.stats)
        topics /= topics.sum(axis=1, keepdims=True)
        return replace(fit.model, n_initial=len(topics), start=topics)


def polish_topics(n_sweeps, model, state, data, workers):
    """Replace the topics in ``state`` by sampled topics, and print or log a line of progress."""
    stage = "polish: topics by collapsed sampling"
    begin_stage(stage, line=stage)
    _sample_topics(n_sweeps, model, state, data, workers)


def _sample_topics(n_sweeps, model, state, data, workers):
    """Replace the statistics of topics in ``state``, in total and by batch, by sampled means.

    The means are over the second half of ``n_sweeps`` sweeps of collapsed Gibbs sampling, at T = 1.
    The number of topics stays the same. The number of sweeps is reduced if counts are large,
    because the time of a sweep grows with the number of tokens.
    """
    n_entries, n_tokens = map(float, sums_of_rows(data.X, data.weights, _count_entries_and_tokens))
    share_of_sweeps = min(1.0, MAX_TOKENS_PER_ENTRY * n_entries / max(n_tokens, 1.0))
    n_sweeps = max(min(n_sweeps, MIN_SWEEPS), round(share_of_sweeps * n_sweeps))
    # (K, V): the expected numbers of tokens, the first array of the statistics.
    topic_counts, *_ = state.plain_stats.as_stats().arrays
    lda = replace(
        CollapsedLDA.from_lda(model.document_model(state.plain_stats), "gibbs"),
        sampling_prior=COLLAPSED_PRIOR,
    )
    stats = RunningStats([np.ascontiguousarray(topic_counts.T, lda.dtype)])
    means = average_collapsed_passes(lda, data, State(stats, seed=state.seed), n_sweeps, workers)
    # Discard the notes of the sweeps, because no line of progress shows a sweep.
    take_notes()
    state.replace_first_block(_widen_to_vocabulary(mean, topic_counts.shape) for mean in means)


def _count_entries_and_tokens(X, weights):
    """Return the number of entries of X and of tokens, regardless of weights."""
    return float(X.nnz), X.sum(dtype=np.float64)


def _widen_to_vocabulary(mean, shape):
    """Return mean counts of all V words, given the counts (A, K) of the A words of a batch.

    ``shape`` is (K, V), and ``mean.rows`` are the positions of the A words in the vocabulary.
    """
    topic_counts = np.zeros(shape)
    batch_counts, *_ = mean.arrays
    topic_counts[:, mean.rows] = batch_counts.T
    return topic_counts
