"""StructuredLDA(global_step="collapsed"): sweeps over tokens whose topics are summed out."""

import numpy as np
import pytest
import scipy.sparse as sp
from estimators._registry import StopAfter, assert_same_fit, counts
from scipy.special import gammaln
from sklearn.base import clone

from skvt import StructuredLDA, load
from skvt._estimators import _structured_lda
from skvt.callbacks import Checkpoint
from skvt.contracts import PassInputs, RunningPolicy
from skvt.datasets import make_topic_corpus
from skvt.expfam import RunningStats
from skvt.inference import (
    CollapsedInference,
    State,
    Workers,
    _collapsed,
    average_collapsed_passes,
    make_rows,
)
from skvt.models.lda import CollapsedLDA
from skvt.models.lda import _collapsed as of_topics
from skvt.models.lda._collapsed import TopicCounts
from skvt.temperature import ConstantTemperature, LinearAnnealing


def collapsed(**params):
    settings = {"n_components": 3, "max_iter": 6, "random_state": 0}
    return StructuredLDA(global_step="collapsed", **(settings | params))


def auto(**params):
    return StructuredLDA(**({"n_components": 3, "random_state": 0} | params))


@pytest.fixture(params=[3, 1], ids=["dense", "sparse"])
def most_dense(request, monkeypatch):
    monkeypatch.setattr(of_topics, "MAX_DENSE_TOPICS", request.param)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(_structured_lda, "MAX_ROWS_OF_BATCH", 12)


def test_the_bits_depend_neither_on_threads_nor_on_the_container(small_batches, most_dense):
    X = counts(n_rows=50)
    one = collapsed(n_jobs=1).fit(X)
    for n_jobs, rows in ((2, X), (3, sp.csr_array(X))):
        assert_same_fit(collapsed(n_jobs=n_jobs).fit(rows), one)


def test_documents_without_words_leave_topics_at_their_prior(most_dense):
    with pytest.warns(UserWarning, match="5 of 5 rows have no words"):
        empty = collapsed(topic_word_prior=0.3).fit(np.zeros((5, 4)))
    np.testing.assert_allclose(empty.components_, 0.3)
    np.testing.assert_allclose(empty.transform(np.zeros((2, 4))), 1.0 / 3.0)


def test_batches_that_take_too_much_memory_are_prepared_in_each_pass(small_batches, monkeypatch):
    X, sizes, batch = counts(n_rows=50), [], CollapsedLDA.batch

    def recorded(self, *args):
        prepared = batch(self, *args)
        sizes.append(prepared.nbytes)
        return prepared

    monkeypatch.setattr(CollapsedLDA, "batch", recorded)
    one = collapsed().fit(X)
    of_a_pass, n_prepared = sum(sizes[:5]), len(sizes)
    for most, again in (of_a_pass, 0), (of_a_pass - 1, 5):
        sizes.clear()
        monkeypatch.setattr(_collapsed, "MAX_BYTES_PREPARED", most)
        assert_same_fit(collapsed().fit(X), one)
        assert len(sizes) == n_prepared + again * 5


def test_priors_are_learned_unless_given():
    X, learned = counts(n_rows=50), {"doc_topic_prior": "auto", "topic_word_prior": "auto"}
    by_default = collapsed().fit(X)
    assert_same_fit(collapsed(**learned).fit(X), by_default)
    assert by_default.topic_word_prior_ != 0.1 and np.ndim(by_default.doc_topic_prior_) == 1
    given = collapsed(doc_topic_prior=0.3, topic_word_prior=0.2).fit(X)
    assert given.doc_topic_prior_ == 0.3 and given.topic_word_prior_ == 0.2


def test_the_learned_prior_of_topics_has_no_part_in_sampling():
    X, rest = counts(n_rows=50), {"doc_topic_prior": 0.3, "average": 0.0}
    learned, given = collapsed(**rest).fit(X), collapsed(topic_word_prior=0.1, **rest)
    tokens = learned.components_ - learned.topic_word_prior_
    np.testing.assert_allclose(tokens, given.fit(X).components_ - 0.1, atol=1e-9)
    # it is that of the last fifth pass, the most probable one
    fifth = collapsed(max_iter=5, **rest).fit(X)
    assert fifth.topic_word_prior_ == learned.topic_word_prior_
    tokens = fifth.components_ - fifth.topic_word_prior_

    def log_probability(eta):
        lam = tokens + eta
        of_prior = 3 * (gammaln(X.shape[1] * eta) - X.shape[1] * gammaln(eta))
        return of_prior + gammaln(lam).sum() - gammaln(lam.sum(axis=1)).sum()

    best = log_probability(fifth.topic_word_prior_)
    assert all(best > log_probability(c * fifth.topic_word_prior_) for c in (0.9, 1.1))


@pytest.mark.slow
def test_auto_sums_topics_out_given_passes_enough():
    X = counts(n_rows=15)
    for n_passes, params in ((200, {}), (100, {"max_iter": 100, "temperature": None})):
        assert_same_fit(auto(**params).fit(X), collapsed(max_iter=n_passes).fit(X))
    for params in ({"max_iter": 99}, {"local_step": "cvb0"}, {"temperature": LinearAnnealing()}):
        lda = auto(**params).fit(X)
        assert_same_fit(lda, auto(global_step="ssvi-a", **params).fit(X))
    assert lda.n_iter_ == 40


def test_a_fit_that_is_continued_keeps_the_choice_of_auto(tmp_path):
    X, path = counts(n_rows=15), tmp_path / "fit.skvt"
    lda = auto(max_iter=4, warm_start=True).fit(X)
    lda.set_params(max_iter=100).fit(X)
    # (a prior that sampling would have learned)
    assert lda.n_iter_ == 104 and lda.topic_word_prior_ == 1.0 / 3.0
    auto(max_iter=4).set_callbacks(Checkpoint(path)).fit(X)
    begun = load(path).set_params(max_iter=100)
    assert begun.resume(X).topic_word_prior_ == 1.0 / 3.0
    assert_same_fit(load(path).set_params(max_iter=100).fit(X), collapsed(max_iter=100).fit(X))
    stream = auto().partial_fit(X).set_params(max_iter=4, n_samples=3).partial_fit(X)
    assert type(stream._fitted.model) is CollapsedLDA


def test_topics_hold_each_token_once(small_batches):
    X, weights = counts(n_rows=50), np.random.default_rng(0).integers(1, 4, 50)
    lda = collapsed(average=0.0).fit(X, sample_weight=weights)
    np.testing.assert_allclose(lda.components_.sum(axis=0), weights @ X + 3 * lda.topic_word_prior_)


def test_tokens_are_placed_anew_in_the_first_half_of_a_fit(monkeypatch):
    monkeypatch.setattr(_collapsed, "MIN_PASSES_PER_RESTART", 2)
    step, placed = CollapsedLDA.local_step, []

    def local_step(self, batch, global_params, *args, **kwargs):
        if isinstance(global_params, TopicCounts):
            placed.append(batch.row_starts is None)
        return step(self, batch, global_params, *args, **kwargs)

    monkeypatch.setattr(CollapsedLDA, "local_step", local_step)
    X = counts(n_rows=50)
    lda = collapsed(max_iter=9, average=0.0, moves=(), warm_start=True).fit(X)
    assert np.array_equal(np.flatnonzero(placed), [0, 2, 4])
    np.testing.assert_allclose(
        lda.components_.sum(axis=0), X.sum(axis=0) + 3 * lda.topic_word_prior_
    )
    # what has settled stays
    lda.fit(X)
    assert np.array_equal(np.flatnonzero(placed), [0, 2, 4, 9])


def test_a_fit_goes_on_after_an_accepted_move_with_topics_drawn_again(tmp_path):
    drawn = make_topic_corpus(400, n_components=5, n_features=100, random_state=0)
    start = drawn.topics[[0, 0, 1, 3, 4]]  # Topic 0 twice, and topics 1 and 2 as one.
    start[2] += drawn.topics[2]
    lda = collapsed(n_components=5, max_iter=10, average=0.0, components_init=1e4 * start)
    resumed = clone(lda).set_callbacks(StopAfter(tmp_path / "fit.skvt", 3))
    lda.fit(drawn.X)
    assert lda.move_log_["n_iter"][0] == 3 and lda.move_log_["accepted"][0]
    topics = lda.posterior_.mean()
    assert (0.5 * np.abs(drawn.topics[:, None] - topics).sum(-1).min(axis=1)).max() < 0.2
    words = lda.components_.sum(axis=0) - 5 * lda.topic_word_prior_
    np.testing.assert_allclose(words, drawn.X.toarray().sum(axis=0), atol=1e-6)
    with pytest.raises(KeyboardInterrupt):
        resumed.fit(drawn.X)
    assert_same_fit(load(tmp_path / "fit.skvt").resume(drawn.X), lda)


def test_a_fit_that_has_converged_does_not_wait_for_a_share_of_max_iter_to_make_moves():
    X = make_topic_corpus(200, n_components=5, n_features=100, random_state=0).X
    lda = collapsed(n_components=5, max_iter=1000, evaluate_every=5, perp_tol=1.0).fit(X)
    assert lda.converged_ and lda.n_iter_ < 100


def test_topics_of_a_corpus_are_found():
    corpus = make_topic_corpus(600, n_components=8, n_features=200, random_state=0)
    lda = collapsed(n_components=8, max_iter=60, doc_topic_prior="auto").fit(corpus.X)
    found = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    distance = 0.5 * np.abs(corpus.topics[:, None] - found).sum(axis=2)
    assert np.all(distance.min(axis=1) < 0.25)
    # words become more probable as assignments settle
    objective = lda.history_["objective"]
    assert objective[-1] > objective[2] > objective[0]


def test_the_prior_of_documents_is_learned(most_dense):
    rng = np.random.default_rng(1)
    alpha = np.array([0.9, 0.3, 0.1])
    topics = np.kron(np.eye(3), np.full(10, 0.1))
    shares = rng.dirichlet(alpha, 2000)
    X = np.stack([rng.multinomial(30, p @ topics) for p in shares]).astype(float)
    lda = collapsed(doc_topic_prior="auto", components_init=topics, max_iter=30).fit(X)
    # as precise as 2,000 documents of known topics allow: a standard error of .02
    np.testing.assert_allclose(lda.doc_topic_prior_, alpha, rtol=0.15)


@pytest.mark.parametrize(
    "params, says",
    [
        ({"local_step": "cvb0"}, 'needs local_step="gibbs"'),
        ({"temperature": LinearAnnealing()}, "samples at T = 1"),
        ({"temperature": ConstantTemperature(2.0)}, "samples at T = 1"),
        ({"temperature": "variational"}, "samples at T = 1"),
    ],
)
def test_what_cannot_be_is_refused(params, says):
    with pytest.raises(ValueError, match=says):
        collapsed(**params).fit(counts())


@pytest.mark.parametrize("temperature", [None, "annealed"])
def test_all_is_at_unit_temperature(temperature):
    lda = collapsed(temperature=temperature).fit(counts())
    assert lda.history_["temperature"] == [1.0] * 6


def test_a_fit_goes_on_from_topics_and_in_a_stream():
    X = counts(n_rows=60)
    lda = collapsed(warm_start=True).fit(X)
    before = lda.components_.copy()
    assert lda.fit(X).n_iter_ == 12
    # tokens are placed by the topics of before: these are the same topics
    correlation = np.corrcoef(before, lda.components_)[:3, 3:]
    assert np.array_equal(correlation.argmax(axis=1), [0, 1, 2])
    lda.partial_fit(X[:20])
    assert np.all(np.isfinite(lda.components_)) and lda.n_iter_ == 13


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [1e4, 1e9])
def test_large_and_fractional_counts_give_finite_answers(dtype, largest, most_dense):
    X = counts(n_rows=20).astype(dtype)
    X[0, 0], X[1, 1], X[2] = largest, 0.25, 0.0
    lda = collapsed(topic_word_prior=1e-12, doc_topic_prior=1e-12).fit(X)
    assert lda.components_.dtype == dtype
    for value in (lda.components_, lda.transform(X), lda.elbo_, lda.history_["objective"]):
        assert np.all(np.isfinite(value))


def test_chunks_have_the_bits_of_the_same_batches_in_memory(small_batches, most_dense):
    da = pytest.importorskip("dask.array")
    X = counts(n_rows=48)
    chunks = da.from_array(X, chunks=(12, X.shape[1]))
    parts, whole = collapsed().fit(chunks), collapsed().fit(X)
    # (the bound is summed chunk by chunk)
    assert_same_fit(parts, whole, apart={"elbo_", "bound_", "restart_elbos_"})
    assert parts.elbo_ == pytest.approx(whole.elbo_, rel=1e-12)


@pytest.mark.parametrize("n_passes", [1, 2, 13])
def test_means_of_batches_add_up_to_those_of_the_statistics_after_the_last_passes(
    n_passes, most_dense
):
    fit, X = collapsed().fit(counts(n_rows=50)), sp.csr_array(counts(n_rows=50))
    model, data = fit._fitted.model, make_rows(X, np.ones(50), 12)

    def begun():
        return State(RunningStats([fit._fitted.stats.as_stats().arrays[0].copy()]), seed=3)

    with Workers(1) as workers:
        means = average_collapsed_passes(model, data, begun(), n_passes, workers)
        state, engine, after = begun(), CollapsedInference(n_passes), []
        for _ in range(n_passes):
            engine.run_pass(
                model, state, PassInputs(data, RunningPolicy(), workers, np.random.default_rng(0))
            )
            after.append(state.stats.as_stats().arrays[0])
    expected = np.mean(after[n_passes // 2 :], axis=0)
    total = np.zeros_like(expected)
    for batch in means:
        total[batch.rows] += batch.arrays[0]
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)
