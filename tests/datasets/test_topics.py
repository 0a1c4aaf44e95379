import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skvt.datasets import make_topic_corpus


def test_shapes_types_and_distributions():
    X, topics, proportions = make_topic_corpus(
        50, n_components=4, n_features=30, mean_length=20, random_state=0
    )
    assert isinstance(X, sparse.csr_matrix)
    assert (X.shape, X.dtype) == ((50, 30), np.int64)
    assert X.has_canonical_format and X.data.min() >= 1
    assert topics.shape == (4, 30) and proportions.shape == (50, 4)
    for rows in (topics, proportions):
        assert rows.min() >= 0
        assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)


def test_the_same_seed_gives_the_same_corpus_and_another_seed_another():
    first, again, other = (make_topic_corpus(40, random_state=seed) for seed in (3, 3, 4))
    for a, b in zip(first, again, strict=True):
        assert abs(a - b).sum() == 0
    assert abs(first.X - other.X).sum() > 0
    state = np.random.RandomState(3)
    assert abs(make_topic_corpus(40, random_state=state).X - first.X).sum() == 0
    assert abs(make_topic_corpus(40, random_state=state).X - first.X).sum() > 0


def test_lengths_are_the_minimum_plus_poisson():
    X = make_topic_corpus(4000, mean_length=20, min_length=8, random_state=0).X
    lengths = np.asarray(X.sum(axis=1)).ravel()
    assert lengths.min() >= 8
    # mean 20 and variance 12: five standard errors of each
    assert abs(lengths.mean() - 20) < 5 * np.sqrt(12 / 4000)
    assert abs(lengths.var() - 12) < 5 * 12 * np.sqrt(2.1 / 4000)


def test_counts_follow_the_mixture_of_topics():
    X, topics, proportions = make_topic_corpus(
        30, n_components=5, n_features=12, mean_length=5000, min_length=5000, random_state=0
    )
    p = proportions @ topics
    # Pearson's statistic has its degrees of freedom as mean: five standard deviations
    expected = 5000 * p
    seen = p > 1e-3
    statistic = ((X.toarray() - expected)[seen] ** 2 / (expected * (1 - p))[seen]).mean()
    assert abs(statistic - 1) < 5 * np.sqrt(2.5 / seen.sum())
    assert X.toarray()[p == 0].sum() == 0


def test_priors_set_mean_and_spread():
    alpha, n = np.array([0.5, 1.0, 2.5]), 20000
    corpus = make_topic_corpus(
        n, n_components=3, n_features=4, mean_length=1, min_length=0, doc_topic_prior=alpha,
        topic_word_prior=[1, 1, 1, 1e4], random_state=0,
    )  # fmt: skip
    mean = alpha / 4
    variance = mean * (1 - mean) / 5  # of a Dirichlet with sum 4
    assert np.all(np.abs(corpus.proportions.mean(axis=0) - mean) < 5 * np.sqrt(variance / n))
    assert_allclose(corpus.proportions.var(axis=0), variance, rtol=0.1)
    assert corpus.topics[:, 3].min() > 0.99


def test_given_topics_are_kept_and_a_word_without_probability_never_appears():
    train = make_topic_corpus(30, n_components=3, n_features=40, random_state=0)
    test = make_topic_corpus(200, topics=train.topics, random_state=1)
    assert_array_equal(test.topics, train.topics)
    assert test.X.shape == (200, 40) and test.proportions.shape == (200, 3)
    impossible = train.topics.max(axis=0) == 0
    topics = np.array([[0.0, 0.3, 0.0, 0.7, 0.0]])
    X = make_topic_corpus(500, topics=topics, random_state=0).X
    assert_array_equal(np.asarray(X.sum(axis=0)).ravel() > 0, [False, True, False, True, False])
    assert test.X[:, impossible].sum() == 0


def test_empty_documents_are_possible():
    X = make_topic_corpus(200, mean_length=0.5, min_length=0, random_state=0).X
    assert X.shape[0] == 200 and np.diff(X.indptr).min() == 0
    assert make_topic_corpus(3, mean_length=0, min_length=0, random_state=0).X.nnz == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_documents": 0}, ValueError, "n_documents=0 must be at least 1"),
        ({"n_documents": 10.0}, TypeError, "n_documents=10.0 must be an integer"),
        ({"n_components": True}, TypeError, "n_components=True must be an integer"),
        ({"n_features": -1}, ValueError, "n_features=-1 must be at least 1"),
        ({"min_length": -1}, ValueError, "min_length=-1 must be at least 0"),
        ({"mean_length": 3}, ValueError, "mean_length=3 must be .* at least min_length=5"),
        ({"mean_length": np.inf}, ValueError, "mean_length=inf must be a finite"),
        ({"mean_length": np.nan}, ValueError, "mean_length=nan must be a finite"),
        ({"doc_topic_prior": 0}, ValueError, "doc_topic_prior=0 must be finite and above 0"),
        ({"doc_topic_prior": [1, 2]}, ValueError, r"doc_topic_prior has shape \(2,\); .* 20"),
        ({"topic_word_prior": [[1.0]]}, ValueError, "topic_word_prior has shape"),
        ({"topic_word_prior": np.nan}, ValueError, "topic_word_prior=nan must be finite"),
        ({"topics": [[2.0, 3.0]]}, ValueError, "one row sums to 5. Divide each row"),
        ({"topics": [[1.5, -0.5]]}, ValueError, "smallest entry is -0.5"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_topic_corpus(**({"n_documents": 5} | arguments))
