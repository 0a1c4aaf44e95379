"""Structured inference makes the steps of its formulas and learns topics in all variants."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import scipy.sparse as sp
from _engines import passes, policy_at
from scipy.special import digamma

from skvt import StructuredLDA, TemperedLDA
from skvt.contracts import LocalTotals, PassInputs
from skvt.datasets import make_topic_corpus
from skvt.inference import (
    Rows,
    State,
    StochasticInference,
    StructuredInference,
    Workers,
    evaluate_bound,
)
from skvt.inference._structured import GLOBAL_STEPS
from skvt.models._dirichlet_correction import correct_statistics
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._model import LDA

LOCAL_STEPS = ("gibbs", "cvb0", "mean_field")
each_local = pytest.mark.parametrize("local", LOCAL_STEPS)
each_global = pytest.mark.parametrize("kind", GLOBAL_STEPS)


def corpus(seed, n=60, n_words=50, dtype=np.float64):
    size = {"n_components": 5, "n_features": n_words, "mean_length": 30}
    return sp.csr_array(make_topic_corpus(n, random_state=seed, **size).X, dtype=dtype)


def estimator(**changes):
    settings = {
        "n_components": 5, "temperature": None, "moves": (), "max_iter": 3, "batch_size": 16,
        "random_state": 0,
    }  # fmt: skip
    return StructuredLDA(**(settings | changes))


def model_of(X, local="gibbs", n_topics=5, eta=0.2, cls=LDAGivenTopics):
    eta = np.full(X.shape[1], eta, X.dtype)
    return cls.from_lda(LDA(np.full(n_topics, 0.2, X.dtype), eta), local, 2, 2)


class Recording(LDAGivenTopics):
    """Remembers the last topics that it drew, and the statistics of its last local step."""

    def drawn_globals(self, *given):
        Recording.topics = super().drawn_globals(*given)
        return Recording.topics

    def local_step(self, *given, **options):
        result = super().local_step(*given, **options)
        Recording.stats = result.stats
        return result


# -------------------------------------------------------------------------------- the steps
@pytest.mark.parametrize("temperature", [1.0, 1.4])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_mean_field_for_both_is_stochastic_inference(temperature, weighted):
    X = corpus(0)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 60) if weighted else np.ones(60)
    given = model_of(X, "mean_field")
    plain = LDA(given.doc_topic_prior, given.topic_word_prior)
    data, ends = Rows(X, weights, 16), []
    for model, engine in (
        (plain, StochasticInference(lambda t: (2.0 + t) ** -0.6)),
        (given, StructuredInference(lambda t: (2.0 + t) ** -0.6, "mean_field")),
    ):
        state, rng = State(model.initial(data, np.random.default_rng(2))), np.random.default_rng(3)
        policy = policy_at(temperature)
        *_, (totals, divergence, *_) = passes(engine, model, state, data, 3, policy=policy, rng=rng)
        ends.append((model.natural_parameters(state.stats)[0], totals.tempered, divergence))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-12)
    np.testing.assert_allclose(ends[1][1:], ends[0][1:], rtol=1e-12)


@each_local
@each_global
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_a_step_moves_by_its_formula(local, kind, temperature):
    X, rho = corpus(4), 0.3
    model, engine = model_of(X, local, cls=Recording), StructuredInference(lambda t: rho, kind)
    state = State(model.initial(None, np.random.default_rng(5)), seed=6)
    state.rows_seen = 20.0
    weights = np.random.default_rng(7).uniform(0.5, 2.0, 60)
    batch = model.batch(X, np.arange(16), weights[:16])
    before = state.stats.as_stats().arrays[0]
    with Workers() as workers:
        inputs = PassInputs(Rows(X, np.ones(60), 16), policy_at(temperature), workers)
        engine.step(model, [batch], 1000.0, state, inputs, LocalTotals())
    rows, (some,) = Recording.stats.rows, Recording.stats.arrays
    hat = np.zeros_like(before)
    hat[rows] = some
    if kind == "ssvi":
        lam = before + model.topic_word_prior[:, None]
        hat = correct_statistics(lam, Recording.topics.gammas, some)
    weight = weights[:16].sum()
    # [HB15 eq. 11], tempered statistics [VT16 eq. 8]
    expected = (1.0 - rho) * before + rho * 1000.0 / weight * hat / temperature
    if kind == "ssvi":
        expected = np.maximum(expected, 0.0)
    after = state.stats.as_stats().arrays[0]
    np.testing.assert_allclose(after, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(state.stats.sums[0], expected.sum(axis=0), rtol=1e-9)
    assert state.n_steps == 1
    assert state.rows_seen == pytest.approx(20.0 + weight)


def test_draws_depend_only_on_the_seed_and_the_step():
    X = corpus(9)
    model, data = model_of(X), Rows(X, np.ones(60), 60)
    batch = data.batch(model, np.arange(60))
    engine = StructuredInference(lambda t: 0.1, "ssvi-a")
    stats = model.initial(None, np.random.default_rng(0))

    def drawn(seed, step, place=0):
        state = State(stats.copy(), seed=seed, n_steps=step, rows_seen=step * 10.0)
        with Workers() as workers:
            draw = engine._make_draw(state, place)
            rng = np.random.default_rng(draw.seed)
            return model.drawn_globals(state.stats, batch, draw.kind, rng, workers.run)

    first, again = drawn(1, 2), drawn(1, 2)
    assert first.seed == again.seed
    np.testing.assert_array_equal(first.log_beta, again.log_beta)
    for other in (drawn(1, 3), drawn(2, 2), drawn(2, 1), drawn(1, 2, place=1)):
        assert other.seed != first.seed
        assert not np.any(other.log_beta == first.log_beta)


# ----------------------------------------------------------------------- lam stays positive
@pytest.mark.parametrize("local, dtype", [("gibbs", np.float64), ("mean_field", np.float32)])
def test_ssvi_with_a_tiny_prior_stays_positive_and_finite(local, dtype):
    X = corpus(10, n_words=80, dtype=dtype)
    fitted = estimator(
        local_step=local, global_step="ssvi", topic_word_prior=1e-3, doc_topic_prior=0.05,
        max_iter=10, batch_size=5, learning_offset=2.0, learning_decay=0.5,
    ).fit(X)  # fmt: skip
    assert fitted.n_batch_iter_ == 120
    assert fitted.components_.dtype == dtype
    assert np.all(fitted.components_ > 0.999e-3)
    assert np.isfinite(fitted.elbo_)
    assert np.all(np.isfinite(fitted.history_["objective"]))
    assert np.all(np.isfinite(fitted.transform(X)))


def test_a_prior_that_falls_does_not_leave_negative_parameters():
    X = corpus(11, n_words=80)
    settings = {"global_step": "ssvi", "learning_offset": 1.0, "learning_decay": 0.5}
    learned = estimator(topic_word_prior="auto", max_iter=8, **settings).fit(X)
    assert learned.topic_word_prior_ < 0.2
    assert np.all(learned.components_ >= 0.999 * learned.topic_word_prior_)
    assert np.isfinite(learned.elbo_)
    again = estimator(topic_word_prior=2.0, warm_start=True, **settings).fit(X)
    again.set_params(topic_word_prior=0.01, global_step="ssvi-a").fit(X)
    assert np.all(again.components_ >= 0.00999)
    assert np.isfinite(again.elbo_)


def test_one_word_is_a_vocabulary():
    X = np.array([[3.0], [1.0], [0.0]])
    for local, kind in zip(cycle(LOCAL_STEPS), GLOBAL_STEPS, strict=False):
        fitted = estimator(local_step=local, global_step=kind, n_components=2).fit(X)
        assert np.isfinite(fitted.elbo_)
        assert np.all(fitted.components_ > 0.0)


# ------------------------------------------------------------------------------- estimators
@each_local
def test_the_published_bound_is_that_of_the_mean_field_model(local):
    X = corpus(16)
    fitted = estimator(local_step=local).fit(X)
    inner = fitted._fitted
    plain = LDA(inner.model.doc_topic_prior, inner.model.topic_word_prior)
    with Workers() as workers:
        bound = evaluate_bound(
            plain, plain.stats_from_topics(fitted.components_), Rows(X, np.ones(60), 60), workers
        )
    assert fitted.elbo_ == pytest.approx(bound, rel=1e-10)
    assert fitted.elbo(X) == pytest.approx(bound, rel=1e-10)
    # The objective of the pass bounds a bound from above, and is no estimate of it.
    assert np.all(np.isnan(fitted.history_["elbo"]))
    assert np.all(np.isfinite(fitted.history_["objective"]))


@pytest.mark.quick_cases("cvb0")
@pytest.mark.parametrize(
    "local, kind", [("gibbs", "ssvi"), ("cvb0", "ssvi-a"), ("mean_field", "ssvi")]
)
def test_priors_are_learned(local, kind):
    X = make_topic_corpus(
        400, n_components=4, n_features=100, mean_length=60, doc_topic_prior=0.1,
        topic_word_prior=0.05, random_state=20,
    ).X  # fmt: skip
    fitted = estimator(
        n_components=4, local_step=local, global_step=kind, doc_topic_prior="auto",
        topic_word_prior="auto", max_iter=24, batch_size=50, temperature="annealed",
        average=0.0,
    ).fit(X)  # fmt: skip
    # The priors move from 1 / K = 0.25 towards the truth, 0.1 and 0.05.
    alpha, eta = fitted.doc_topic_prior_, fitted.topic_word_prior_
    assert np.all((alpha > 0.07) & (alpha < 0.18))
    assert 0.05 < eta < 0.12
    # At the maximum of the bound, E[log theta] and E[log beta] are those of the priors.
    mean_log = fitted._fitted.state.prior_stats.mean
    np.testing.assert_allclose(digamma(alpha) - digamma(alpha.sum()), mean_log, rtol=1e-8)
    lam = fitted.components_  # These are from the eta of the step before.
    mean_log = (digamma(lam) - digamma(lam.sum(axis=1, keepdims=True))).mean()
    assert digamma(eta) - digamma(100 * eta) == pytest.approx(mean_log, rel=0.01)


# ------------------------------------------------------------------- the matrix of approaches
@pytest.fixture(scope="module")
def train_and_test():
    truth = make_topic_corpus(
        400, n_components=5, n_features=150, mean_length=50, random_state=22
    )  # fmt: skip
    held_out = make_topic_corpus(
        100, topics=truth.topics, mean_length=50, random_state=23
    ).X  # fmt: skip
    return truth, held_out


@pytest.mark.parametrize(
    "local, kind", [("gibbs", "ssvi"), ("cvb0", "map"), ("mean_field", "ssvi-a")]
)
def test_every_pair_of_steps_learns_topics(local, kind, train_and_test):
    truth, held_out = train_and_test
    settings = {"local_step": local, "global_step": kind, "batch_size": 40}
    fitted = estimator(**settings, max_iter=10, temperature="annealed").fit(truth.X)
    assert np.all(np.isfinite(fitted.components_))
    # The true topics are the upper end of the scale, and a single topic is the lower end.
    known = estimator(**settings, max_iter=1).fit(truth.X)
    known._fitted.state.stats = known._fitted.model.stats_from_topics(3000.0 * truth.topics + 0.2)
    known._fitted = replace(known._fitted)
    best = known.score(held_out)
    unigram = TemperedLDA(1, max_iter=2).fit(truth.X).score(held_out)
    assert unigram + 0.3 < best
    # The score is at least two thirds of the way up.
    assert fitted.score(held_out) > unigram + 0.67 * (best - unigram)


@pytest.mark.slow
def test_structure_gets_stuck_less_often_than_mean_field(train_and_test):
    truth, held_out = train_and_test
    settings = {"max_iter": 15, "batch_size": 40}
    steps = {"local_step": "mean_field", "global_step": "mean_field"}
    structured, mean_field = (
        np.array([
            estimator(**settings, **how, random_state=seed).fit(truth.X).score(held_out)
            for seed in range(30)
        ])
        for how in ({}, steps)
    )  # fmt: skip
    best = max(structured.max(), mean_field.max())
    # The best starts end alike. A poor optimum, with merged topics, costs .1 to .2 nats per word.
    assert np.quantile(structured, 0.75) > best - 0.01
    assert np.quantile(mean_field, 0.75) > best - 0.01
    assert np.mean(structured < best - 0.05) < 0.7 * np.mean(mean_field < best - 0.05)
