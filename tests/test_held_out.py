"""Held-out log likelihoods against the sum over all assignments of a document's tokens."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp

from skvt.metrics import held_out_log_likelihood
from skvt.metrics._held_out import estimate_documents
from skvt.models.lda._sampling import seed_rows

METHODS = ("left-to-right", "chib")
each_method = pytest.mark.parametrize("method", METHODS)


def log_probability(tokens, beta, alpha):
    """log sum_z p(z | alpha) prod_n beta_{z_n w_n}, ``beta`` (K, V)."""
    n, terms = len(tokens), []
    for z in product(range(alpha.size), repeat=n):
        counts = np.bincount(np.array(z, int), minlength=alpha.size)
        terms.append(
            gammaln(alpha.sum()) - gammaln(alpha.sum() + n)
            + np.sum(gammaln(alpha + counts) - gammaln(alpha))
            + sum(np.log(beta[k, w]) for k, w in zip(z, tokens, strict=True))
        )  # fmt: skip
    return logsumexp(terms)


def topics(seed, n_topics, n_words, sharp=0.4):
    return np.random.default_rng(seed).dirichlet(np.full(n_words, sharp), size=n_topics) + 1e-3


def normalized(weights):
    return weights / weights.sum(axis=1, keepdims=True)


def counted(documents_of_words, n_words):
    return np.array([np.bincount(words, minlength=n_words) for words in documents_of_words], float)


def replicates(counts, beta, alpha, method, n_samples, n, *, n_burn_in=3, seed=0):
    """n independent estimates of the log probability of one document of these word counts."""
    words = np.flatnonzero(counts)
    out = np.empty(n)
    estimate_documents(
        words.size * np.arange(n + 1), np.tile(words, n), np.tile(counts[words], n),
        np.ascontiguousarray(beta.T), alpha, seed_rows(np.uint64(seed), np.arange(n)),
        method == "chib", n_samples, n_burn_in, out,
    )  # fmt: skip
    return out


TOY = [
    # words, alpha, seed of the topics
    ([0, 1, 2, 0], np.array([0.3, 0.6, 0.9]), 0),
    ([0, 0, 1, 1, 2, 3, 3], np.array([0.1, 0.2]), 1),
    ([3, 2, 1, 1, 2], np.array([0.05, 0.4, 1.5]), 2),
]


@pytest.mark.parametrize("toy", TOY, ids=["short", "repeated words", "unequal prior"])
@pytest.mark.parametrize(
    ("method", "n_samples", "n"),
    [
        ("left-to-right", 1, 40_000), ("left-to-right", 20, 4_000), ("chib", 1, 40_000),
        ("chib", 4, 20_000),
    ],
)  # fmt: skip
def test_estimates_of_probabilities_are_unbiased(toy, method, n_samples, n):
    words, alpha, seed = toy
    beta = normalized(topics(seed, alpha.size, 4))
    exact = log_probability(words, beta, alpha)
    estimates = replicates(np.bincount(words, minlength=4), beta, alpha, method, n_samples, n)
    ratio = np.exp(estimates - exact)
    error = ratio.std() / n**0.5
    assert error < 0.02  # A bias of a tenth is detected.
    assert abs(ratio.mean() - 1.0) < 3.5 * error
    # By Jensen's inequality, the mean of the logarithm is too low.
    assert estimates.mean() < exact


def test_held_out_log_likelihood_agrees_with_enumeration():
    weights, alpha = 40.0 * topics(3, 3, 5), np.array([0.2, 0.5, 1.0])
    rows = [[0, 1, 1, 4], [2], [3, 3, 3, 3, 2]]
    X = counted(rows, 5)
    exact = [log_probability(words, normalized(weights), alpha) for words in rows]
    for method in METHODS:
        estimates = np.array([
            held_out_log_likelihood(
                weights, X, doc_topic_prior=alpha, method=method, n_samples=200, random_state=seed
            )
            for seed in range(60)
        ])  # fmt: skip
        ratio = np.exp(estimates - exact)
        error = np.maximum(ratio.std(axis=0) / 60**0.5, 1e-12)
        assert np.all(error < 0.05)
        assert np.all(np.abs(ratio.mean(axis=0) - 1.0) < 3.5 * error)


@each_method
def test_a_document_of_one_token_or_none_or_one_topic_is_exact(method):
    beta, alpha = normalized(topics(4, 4, 6)), np.array([0.1, 0.7, 0.2, 1.3])
    values = held_out_log_likelihood(
        beta, np.vstack([np.eye(6), np.zeros(6)]), doc_topic_prior=alpha, method=method
    )
    expected = np.append(np.log(alpha @ beta / alpha.sum()), 0.0)
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
    X = counted([[0, 1, 1, 5, 2], [3]], 6)
    values = held_out_log_likelihood(beta[:1], X, doc_topic_prior=0.3, method=method)
    np.testing.assert_allclose(values, X @ np.log(beta[0]), rtol=1e-12)


def corpus(n=23, n_words=12):
    rng = np.random.default_rng(5)
    X = rng.poisson(0.7, size=(n, n_words)).astype(float)
    X[4] = 0.0
    return X


@each_method
def test_a_row_has_the_same_value_wherever_it_stands_and_for_any_number_of_threads(method):
    X, beta = corpus(), topics(6, 3, 12)
    settings = {"doc_topic_prior": 0.3, "method": method, "n_samples": 5}
    values = held_out_log_likelihood(beta, X, **settings)
    np.testing.assert_array_equal(held_out_log_likelihood(beta, X, **settings), values)
    np.testing.assert_array_equal(held_out_log_likelihood(beta, X, **settings, n_jobs=2), values)
    rows = np.array([20, 3, 3, 11, 0])
    np.testing.assert_array_equal(held_out_log_likelihood(beta, X[rows], **settings), values[rows])
    for contained in (sp.csr_matrix(X), sp.csc_array(X), X.astype(np.int64), X.astype(np.float32)):
        np.testing.assert_array_equal(held_out_log_likelihood(beta, contained, **settings), values)
    np.testing.assert_allclose(
        held_out_log_likelihood(7.0 * beta, X, **settings), values, rtol=1e-10
    )
    others = held_out_log_likelihood(beta, X, **settings, random_state=1)
    assert np.mean(others != values) > 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": [[0.5, 1.0, 0.0]]}, "whole numbers"),
        ({"X": [[-1.0, 1.0, 0.0]]}, "Negative.*held_out_log_likelihood"),
        ({"X": [[np.nan, 1.0, 0.0]]}, "NaN"), ({"X": [[1.0, 1.0]]}, "columns"),
        ({"method": "annealed"}, "'left-to-right', 'chib'"),
        ({"topic_word": [[1.0, 0.0, 2.0]]}, "positive"),
        ({"topic_word": [[1.0, -1.0, 2.0]]}, "positive"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior"),
        ({"doc_topic_prior": [0.1, np.inf]}, "doc_topic_prior"),
        ({"doc_topic_prior": [0.1, 0.2, 0.3]}, "shape"), ({"n_samples": 0}, "n_samples"),
        ({"n_burn_in": -1}, "n_burn_in"),
    ],
)  # fmt: skip
def test_held_out_log_likelihood_refuses_bad_input(changes, message):
    arguments = {
        "topic_word": [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]],
        "X": [[1.0, 0.0, 2.0]],
        "doc_topic_prior": 0.1,
    } | changes
    with pytest.raises(ValueError, match=message):
        held_out_log_likelihood(**arguments)
