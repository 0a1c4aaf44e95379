"""Topics are averaged over the last passes of a fit and polished by CVB0."""

import numpy as np
import pytest

from skvt import StructuredLDA, TemperedLDA
from skvt.contracts import LocalTotals, PassInputs, PassResult
from skvt.datasets import make_topic_corpus
from skvt.inference import Averaging, Rows, State, Workers
from skvt.models.lda import LDA, LDAGivenTopics
from skvt.temperature import LinearAnnealing, RunningPolicy, VariationalTempering

X = make_topic_corpus(60, n_components=3, n_features=40, random_state=0).X
PLAIN = {"n_components": 3, "batch_size": 20, "moves": (), "random_state": 0}


@pytest.mark.parametrize("estimator", [TemperedLDA, StructuredLDA])
def test_topics_are_the_mean_over_the_last_quarter_and_have_the_published_bound(estimator):
    plain = PLAIN | {"temperature": None, "topic_word_prior": None}
    ends = [estimator(max_iter=n, average=0.0, **plain).fit(X).components_ for n in (7, 8)]
    averaged = estimator(max_iter=8, **plain).fit(X)
    np.testing.assert_allclose(averaged.components_, np.mean(ends, axis=0), rtol=1e-12)
    assert averaged.elbo_ == pytest.approx(averaged.elbo(X), rel=1e-12)


def test_passes_above_temperature_1_are_left_out_of_the_mean():
    plain = PLAIN | {"temperature": LinearAnnealing(n_passes=7.0), "max_iter": 8}
    last, averaged = (TemperedLDA(average=share, **plain).fit(X) for share in (0.0, 1.0))
    np.testing.assert_array_equal(averaged.components_, last.components_)


def test_the_mean_begins_anew_after_an_accepted_move():
    model = LDA(np.ones(3), np.ones(40))
    data = Rows(X, np.ones(60), 60)
    state = State(model.initial(data, np.random.default_rng(0)))
    averaging, policy = Averaging(5, 1.0), RunningPolicy()
    for n in range(1, 6):
        # All statistics are n after pass n. The second pass ends with an accepted move.
        state.stats.overwrite([np.full_like(array, n) for array in state.stats.arrays])
        result = PassResult(LocalTotals(), 0.0, model, has_moved=n == 2)
        assert averaging.apply(result, n, state, PassInputs(data, policy, None)) is result
    assert averaging.finish(state)
    np.testing.assert_allclose(state.stats.as_stats().arrays[0], np.mean([3, 4, 5]))


@pytest.mark.parametrize("temperature", ["annealed", VariationalTempering()])
def test_a_polish_solves_documents_by_cvb0_at_the_mean_topics_and_temperature_1(temperature):
    plain = PLAIN | {"topic_word_prior": None, "batch_size": 60, "max_iter": 2, "average": 0.0}
    plain |= {"temperature": temperature}
    before, polished = (TemperedLDA(n_polish=n, **plain).fit(X) for n in (0, 1))
    prior = np.full(40, 1 / 3)
    model = LDAGivenTopics.from_lda(LDA(np.full(3, 1 / 3), prior), "cvb0")
    batch = model.batch(X, np.arange(60), np.ones(60))
    with Workers() as workers:
        state = State(model.stats_from_topics(before.components_))
        rng = np.random.default_rng(0)
        topics = model.drawn_globals(state.stats, batch, "map", rng, workers.run)
        stats = model.local_step(batch, topics, 1.0, workers.run).stats
    expected = np.tile(prior, (3, 1))
    expected[:, stats.rows] += stats.arrays[0].T
    np.testing.assert_allclose(polished.components_, expected, rtol=1e-6)
    assert polished.n_iter_ == 3 and np.isnan(polished.history_["elbo"][-1])


def test_a_stream_after_a_polish_learns_the_prior_of_documents_which_the_polish_left_alone():
    plain = PLAIN | {"doc_topic_prior": "auto", "max_iter": 4}
    before, polished = (TemperedLDA(n_polish=n, **plain).fit(X) for n in (0, 3))
    alpha = polished.doc_topic_prior_
    np.testing.assert_array_equal(alpha, before.doc_topic_prior_)
    assert np.all(polished.partial_fit(X).doc_topic_prior_ != alpha)


def test_steps_of_a_polish_count_from_its_beginning_and_the_learned_prior_of_topics_stays():
    plain = PLAIN | {"batch_size": 5, "topic_word_prior": "auto", "max_iter": 3}
    fits = [TemperedLDA(n_polish=2, **plain).fit(X), TemperedLDA(**plain).fit(X)]
    rates = [fit.history_["learning_rate"] for fit in fits]
    # With M = 12 minibatches a pass, the steps are 5 / M (0.4 + t / M)^-0.7.
    expected = [5 / 12 * (0.4 + t / 12) ** -0.7 for t in (11, 23)]
    np.testing.assert_allclose(rates[0], [*rates[1], *expected], rtol=1e-12)
    assert fits[0].topic_word_prior_ != fits[1].topic_word_prior_
