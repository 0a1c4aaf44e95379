"""Collapsed Gibbs sampling of LDA draws assignments by their law and counts them."""

from dataclasses import replace
from functools import partial
from itertools import islice, product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, gammaln

from skvt._compiled import LANES, run_serially
from skvt.expfam import RunningStats
from skvt.inference._state import PriorStats
from skvt.models.lda import CollapsedLDA, _collapsed
from skvt.models.lda._collapsed_kernels import MAX_TOKENS
from skvt.models.lda._sampling import make_token_indptr
from skvt.models.lda._sparse_kernels import TOPICS_PER_RANGE

ALPHA, ETA = np.array([0.3, 0.8]), np.array([0.2, 0.5, 0.9])


def log_beta_function(a):
    return gammaln(a).sum() - gammaln(a.sum())


def by_enumeration(X, alpha, eta):
    """Return P(z_i = z_j | w) of all pairs of tokens, and P(z_i = k | w), for eta (K, V)."""
    n = X.astype(int)
    tokens = [(d, v) for d, v in np.argwhere(n) for _ in range(n[d, v])]
    total, pairs, single = 0.0, 0.0, 0.0
    without = sum(map(log_beta_function, [*eta, *np.tile(alpha, (len(X), 1))]))
    for z in product(range(alpha.size), repeat=len(tokens)):
        of_topics, of_documents = eta.copy(), np.tile(alpha, (len(X), 1))
        for k, (d, v) in zip(z, tokens, strict=True):
            of_topics[k, v] += 1.0
            of_documents[d, k] += 1.0
        p = np.exp(sum(map(log_beta_function, [*of_topics, *of_documents])) - without)
        z = np.array(z)
        total, pairs = total + p, pairs + p * (z[:, None] == z)
        single = single + p * (z[:, None] == np.arange(alpha.size))
    return pairs / total, single / total


def sweeps_of(model, batch, n_sweeps):
    """Yield the local result and the statistics after the start and after each of n sweeps."""
    stats, begun = (
        RunningStats([np.zeros((model.topic_word_prior.shape[0], model.n_components))]),
        batch,
    )
    for sweep in range(n_sweeps + 1):
        counts = model.counts_given_others(stats, batch, sweep)
        result = model.local_step(begun, counts, 1.0, run_serially)
        stats.add(result.stats, 1.0)
        begun = replace(batch, row_starts=result.row_starts)
        yield result, stats


def batch_of(model, X, weights=None):
    weights = np.ones(X.shape[0]) if weights is None else weights
    return model.batch(sp.csr_array(X), np.arange(X.shape[0]), weights)


def sampled(model, X, n_sweeps):
    """Return the same probabilities as shares of the sweeps."""
    pairs, single = 0.0, 0.0
    for result, _ in islice(sweeps_of(model, batch_of(model, X), n_sweeps), 1, None):
        pairs = pairs + (result.row_starts[:, None] == result.row_starts)
        single = single + (result.row_starts[:, None] == np.arange(model.n_components))
    return pairs / n_sweeps, single / n_sweeps


@pytest.mark.quick_cases("True-True")
@pytest.mark.parametrize("of_topics, dense", [(False, True), (True, True), (False, False)])
def test_assignments_have_the_law_that_enumeration_gives_them(monkeypatch, of_topics, dense):
    # The tokens of one group know all changes at once.
    monkeypatch.setattr(_collapsed, "MAX_GROUPS", 1)
    monkeypatch.setattr(_collapsed, "MAX_DENSE_TOPICS", 2 if dense else 1)
    X = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])
    eta = np.stack([ETA, ETA[::-1] + 0.3]) if of_topics else np.stack([ETA, ETA])
    model = CollapsedLDA(ALPHA, np.ascontiguousarray(eta.T) if of_topics else ETA)
    # Every third sweep is nearly independent, so that the standard error is .013.
    for found, true in zip(sampled(model, X, 3000), by_enumeration(X, ALPHA, eta), strict=True):
        np.testing.assert_allclose(found, true, atol=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [True, False])
def test_topics_of_all_lines_have_the_law_that_enumeration_gives_them(monkeypatch, dense):
    monkeypatch.setattr(_collapsed, "MAX_GROUPS", 1)
    X, alpha = np.array([[1.0, 1.0]]), np.linspace(0.05, 0.5, 2 * LANES + 2)
    eta = np.stack([np.linspace(0.2, 1.0, alpha.size), np.linspace(0.9, 0.3, alpha.size)], axis=1)
    if not dense:
        monkeypatch.setattr(_collapsed, "MAX_DENSE_TOPICS", 1)
        eta = np.tile([0.2, 0.9], (alpha.size, 1))
    model = CollapsedLDA(alpha, np.ascontiguousarray(eta.T) if dense else eta[0])
    # The standard error is .007 at most.
    for found, true in zip(sampled(model, X, 3000), by_enumeration(X, alpha, eta), strict=True):
        np.testing.assert_allclose(found, true, atol=0.03)


@pytest.mark.slow
def test_topics_of_all_ranges_have_the_law_of_the_prior(monkeypatch):
    monkeypatch.setattr(_collapsed, "MAX_DENSE_TOPICS", 1)
    # The prior alone determines the topic of a single token.
    alpha = np.full(2 * TOPICS_PER_RANGE + 3, 1e-3)
    alpha[5], alpha[TOPICS_PER_RANGE + 7], alpha[-1] = 0.4, 1.0, 0.6
    single = sampled(CollapsedLDA(alpha, np.array([0.2, 0.9])), np.array([[1.0, 0.0]]), 2000)[1]
    # The standard error is .012 at most.
    np.testing.assert_allclose(single[0].cumsum(), (alpha / alpha.sum()).cumsum(), atol=0.06)


@pytest.mark.parametrize("dense", [True, False])
def test_tokens_follow_the_probabilities_of_given_topics(monkeypatch, dense):
    n_topics = 2 * TOPICS_PER_RANGE + 3
    monkeypatch.setattr(_collapsed, "MAX_DENSE_TOPICS", n_topics - (not dense))
    rng = np.random.default_rng(0)
    n = rng.poisson(0.5, (2, n_topics)) * 10.0
    model = CollapsedLDA(np.full(n_topics, 0.1), np.array([0.5, 2.0]))
    batch = batch_of(model, np.full((60, 2), float(MAX_TOKENS)))
    counts = model.counts_given_others(RunningStats([n]), batch, 0)
    drawn = RunningStats([np.zeros_like(n)])
    drawn.add(model.local_step(batch, counts, 1.0, run_serially).stats)
    p = (n + model.topic_word_prior[:, None]) / (n.sum(axis=0) + 2.5)
    expected = 60 * MAX_TOKENS * p / p.sum(axis=1, keepdims=True)
    chi_square = ((drawn.arrays[0] - expected) ** 2 / expected).sum(axis=1)
    # The tolerance is six standard deviations of the chi-square law.
    np.testing.assert_allclose(chi_square, n_topics - 1, atol=6 * np.sqrt(2 * n_topics))


@pytest.mark.slow
def test_documents_in_several_streams_have_their_laws(monkeypatch):
    monkeypatch.setattr(_collapsed, "MAX_GROUPS", 1)
    monkeypatch.setattr(_collapsed, "DOCUMENTS_PER_STREAM", 1)
    X = np.zeros((6, 3))
    X[0, 1], X[2], X[3, 0], X[4, 0], X[5] = 1.0, [0.0, 1.0, 1.0], 2.0, 1.0, [1.0, 1.0, 0.0]
    # The topics are nearly given, so that tokens of different documents are nearly independent.
    eta = 1e4 * np.stack([ETA, ETA[::-1] + 0.3])
    model = CollapsedLDA(ALPHA, np.ascontiguousarray(eta.T))
    for found, true in zip(sampled(model, X, 3000), by_enumeration(X, ALPHA, eta), strict=True):
        np.testing.assert_allclose(found, true, atol=0.06)


def test_an_empty_topic_does_not_change_the_learned_prior_of_topics():
    counts = np.random.default_rng(0).poisson(2.0, (30, 2)).astype(float)
    learned = []
    for topics in (counts, np.column_stack([counts, np.zeros(30)])):
        model = CollapsedLDA(
            np.full(topics.shape[1], 0.3), np.full(30, 0.1), learn_topic_word_prior=True
        )
        model = model.with_most_probable_priors(PriorStats(), RunningStats([topics]), slowly=False)
        learned.append(model.topic_word_prior)
    np.testing.assert_allclose(learned[0], learned[1], rtol=1e-6)


def test_a_token_does_not_count_for_its_own_topic():
    # The document has a single token and weight 3, so that only the prior counts.
    model = CollapsedLDA(ALPHA, np.full(3, 0.1))
    batch = batch_of(model, np.array([[1.0, 0.0, 0.0]]), np.full(1, 3.0))
    _, (result, _) = sweeps_of(model, batch, 1)
    np.testing.assert_allclose(result.bound, np.log(1.0 / 3.0), rtol=1e-5)


@pytest.mark.quick_cases("True")
@pytest.mark.parametrize("dense", [True, False])
def test_statistics_count_the_drawn_topics(monkeypatch, dense):
    monkeypatch.setattr(_collapsed, "MAX_DENSE_TOPICS", 3 if dense else 1)
    monkeypatch.setattr(_collapsed, "DOCUMENTS_PER_STREAM", 5)
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(1.0, (30, 12)).astype(float))
    X.data[:3] += 0.5
    X.data[3] = 5.0 * MAX_TOKENS
    weights = rng.integers(1, 4, 30).astype(float)
    model = CollapsedLDA(np.full(3, 0.3), np.full(12, 0.1))
    batch = batch_of(model, X, weights)
    *_, (result, stats) = sweeps_of(model, batch, 3)
    ends = make_token_indptr(np.minimum(batch.counts, MAX_TOKENS))
    sizes = np.diff(ends)
    assert sizes.max() == MAX_TOKENS
    value = stats.as_stats().arrays[0]
    assert np.all(value >= -1e-9)
    np.testing.assert_allclose(value.sum(axis=1), weights @ X.toarray())
    documents = np.repeat(np.arange(30), np.diff(batch.indptr))
    own = np.array([
        np.bincount(result.row_starts[a:b], minlength=3) * (count / size)
        for a, b, count, size in zip(ends, ends[1:], batch.counts, sizes, strict=False)
    ])  # fmt: skip
    whole = batch.counts == np.round(batch.counts)
    of_documents = np.zeros((30, 3))
    np.add.at(of_documents, documents[whole], own[whole])
    rest = np.setdiff1d(np.arange(30), documents[~whole])
    found = sp.csr_array(result.counts).toarray()
    np.testing.assert_allclose(found[rest], of_documents[rest], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), X.sum(axis=1), rtol=1e-4)


def test_documents_count_as_many_topics_as_they_have_tokens(monkeypatch):
    monkeypatch.setattr(_collapsed, "MAX_DENSE_TOPICS", 1)
    n_topics = 40 * LANES
    model = CollapsedLDA(np.full(n_topics, 1.0), np.full(LANES, 0.1))
    *_, (result, _) = sweeps_of(model, batch_of(model, np.ones((20, LANES))), 3)
    expected = [np.bincount(z, minlength=n_topics) for z in result.row_starts.reshape(20, LANES)]
    np.testing.assert_array_equal(result.counts.toarray(), expected)


def test_row_starts_of_other_tokens_are_refused():
    model = CollapsedLDA(np.full(2, 0.3), np.full(2, 0.1))
    batch = batch_of(model, np.array([[2.0, 1.0]]))
    counts = model.counts_given_others(RunningStats([np.zeros((2, 2))]), batch, 0)
    for start in (np.zeros(2, np.uint16), np.full(3, 2, np.uint16), np.full(3, 2**16), -np.ones(3)):
        with pytest.raises(ValueError, match="must be 3 numbers"):
            model.local_step(replace(batch, row_starts=start), counts, 1.0, run_serially)


def test_a_quick_update_gives_up_topics_without_tokens():
    model = CollapsedLDA(np.full(2, 0.5), np.full(3, 0.1), learn_doc_topic_prior=True)
    sizes = np.array([4.0, 7.0])
    of_all = digamma(sizes + 1.0).sum()
    mean_log = [digamma(0.5 + sizes).sum() - of_all, 2.0 * digamma(0.5) - of_all]
    prior_stats = PriorStats(np.array([*mean_log, of_all]), 2.0)
    step = partial(model.with_most_probable_priors, prior_stats, None)
    slow, quick = step(slowly=True).doc_topic_prior, step(slowly=False).doc_topic_prior
    assert 0.1 < slow[1] < 0.5
    assert quick[1] < 1e-3
