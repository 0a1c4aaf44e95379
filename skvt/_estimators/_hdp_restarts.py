"""Restarts of a topic model that finds its number of topics, and sampling of its topics.

A fit consists of one or several starts, and each start has a launch: its plan, and the model, the
state, the policy and the random numbers with which it begins.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt._estimators._structured_lda import COLLAPSED_PRIOR
from skvt._stages import begin_stage, take_notes
from skvt.contracts import LocalTotals, PassResult, RunningPolicy
from skvt.expfam import RunningStats
from skvt.fitting import SameModel
from skvt.inference import Phase, State, collapsed_means
from skvt.models.lda import CollapsedLDA
from skvt.readers.validation import stack_level
from skvt.rows import sums_of_rows
from skvt.temperature import LinearAnnealing

# Initial numbers of topics of the annealed starts that follow a fit which ends at one topic. Such a
# fit may have missed topics: it judges births by concentrations and a prior that were learned for
# one topic. Documents that mix many topics need other values, which a fit of several topics learns.
ANNEALED_TOPICS = 20, 50
# Minimum number of documents for each topic of such a start.
DOCUMENTS_OF_EACH = 10
NO_MORE_TOPICS = (
    "The fit has ended at one topic, and fits begun with {} topics have no higher bound. Either "
    "the documents have no topics, or each mixes many of them: there the bound is too loose to "
    "count topics. If you expect several, give their number to StructuredLDA(n_components=...)."
)
# If there are at most this many documents, a fit that began at one topic is followed by a start
# from its topics after SWEEPS_OF_START sweeps of collapsed sampling. In few documents, two themes
# of a topic have too few tokens for a birth to separate them, but collapsed sampling does.
FEW_DOCUMENTS = 1_000
SWEEPS_OF_START = 200
SAMPLED = "from sampled topics"
# If a word that occurs in a document has more tokens there than this, on average, there are fewer
# sweeps, but at least FEWEST_SWEEPS.
MOST_REPEATED = 10.0
FEWEST_SWEEPS = 20


@dataclass(frozen=True)
class TopicRestarts:
    """Starts of the same model, and further starts that depend on the topics of the best fit."""

    # Seeds of the starts of the same model; all further starts have the first seed.
    seeds: tuple[int, ...]
    # The `skvt.fitting._fit.Fit`, whose method `launch` makes the launch of a start.
    fit: Any
    # Initial numbers of topics of annealed starts, which follow if the best fit ended at one topic.
    numbers: tuple[int, ...]
    # Whether a start from sampled topics follows if the best fit ended at several topics.
    samples: bool

    @classmethod
    def of(cls, seeds, fit, *, samples):
        """Return the restarts of a fit with births."""
        n_documents, max_topics = fit.plan.data.n_rows, fit.plan.stopping.most_components
        supported = [n for n in ANNEALED_TOPICS if n * DOCUMENTS_OF_EACH <= n_documents]
        numbers = sorted({min(n, max_topics) for n in supported} - {1})
        return cls(seeds, fit, tuple(numbers), samples and n_documents <= FEW_DOCUMENTS)

    def next(self, outcomes):
        """Return the next launch, or None after the last; warn if the result is one topic."""
        n_init, n_ended = len(self.seeds), len(outcomes.kinds)
        if n_ended < n_init:
            return SameModel(self.seeds, self.fit).next(outcomes)
        # No start follows a fit that has not converged, nor a start from sampled topics.
        if not (outcomes.converged or n_ended > n_init) or SAMPLED in outcomes.kinds:
            return None
        best = outcomes.best
        n_further = n_ended - n_init
        has_one_topic = best.model.size(best.stats) == 1
        if n_further < len(self.numbers) and (n_further or has_one_topic):
            n_topics = self.numbers[n_further]
            return self.fit.launch(
                self.seeds[0], kind=f"annealed from {n_topics} topics",
                n_starts=n_init + len(self.numbers), model=self.fit.model.resized(n_topics),
                policy=LinearAnnealing(),
            )  # fmt: skip
        can_sample = n_further == 0 and not has_one_topic and self.samples
        if can_sample and best.policy.at_unit_temperature:
            model = self._start_from_sampled_topics(best)
            return self.fit.launch(self.seeds[0], kind=SAMPLED, n_starts=n_init + 1, model=model)
        if n_further and has_one_topic and outcomes.converged:
            warning = NO_MORE_TOPICS.format(" and ".join(map(str, self.numbers)))
            warnings.warn(warning, UserWarning, stacklevel=stack_level())
        return None

    def _start_from_sampled_topics(self, fitted):
        """Return the model with the topics of a fit after collapsed sampling as its start."""
        fit = self.fit
        state = fitted.state.draft()
        _sample_topics(SWEEPS_OF_START, fitted.model, state, fit.plan.data, fit.workers)
        topics = fitted.model.natural_parameters(state.stats)[0]
        topics /= topics.sum(axis=1, keepdims=True)
        return replace(fit.model, n_initial=len(topics), start=topics)


@dataclass(frozen=True)
class TopicSampling:
    """An engine whose single pass samples the topics of all tokens, given the number of topics.

    The new topics are means over the second half of ``n_sweeps`` sweeps of collapsed Gibbs
    sampling.
    """

    n_sweeps: int

    requires = ()
    knows_exact_bound = False

    def phase(self):
        """Return the phase of this engine, at T = 1."""
        return Phase(self, policy=RunningPolicy())

    def run_pass(self, model, state, inputs):
        """Replace the topics in ``state`` by sampled ones; the pass has no bound (NaN)."""
        begin_stage("polish: topics by collapsed sampling", printed=True)
        _sample_topics(self.n_sweeps, model, state, inputs.data, inputs.workers)
        return PassResult(LocalTotals(), np.nan, model, "none")


def _sample_topics(n_sweeps, model, state, data, workers):
    """Replace the statistics of topics in ``state``, total and by batch, by sampled means."""
    entries, tokens = map(float, sums_of_rows(data.X, data.weights, _count_entries_and_tokens))
    share = min(1.0, MOST_REPEATED * entries / max(tokens, 1.0))
    n_sweeps = max(min(n_sweeps, FEWEST_SWEEPS), round(share * n_sweeps))
    words = state.plain_stats.value().arrays[0]
    lda = replace(
        CollapsedLDA.of(model.documents(state.plain_stats), "gibbs"), sampling_prior=COLLAPSED_PRIOR
    )
    sampled = State(RunningStats([np.ascontiguousarray(words.T, lda.dtype)]), seed=state.seed)
    means = collapsed_means(lda, data, sampled, n_sweeps, workers)
    # The notes of sweeps are discarded: sweeps are not passes, and no line of progress shows them.
    take_notes()
    state.replace_first_block(_widen_to_vocabulary(mean, words.shape) for mean in means)


def _count_entries_and_tokens(X, weights):
    """Return the number of entries of X, pairs of a document and a word in it, and of tokens."""
    return float(X.nnz), X.sum(dtype=np.float64)


def _widen_to_vocabulary(mean, shape):
    """Return statistics (K, V), given mean counts (A, K) of the A words that occur in a batch."""
    topic_counts = np.zeros(shape)
    topic_counts[:, mean.rows] = mean.arrays[0].T
    return topic_counts
