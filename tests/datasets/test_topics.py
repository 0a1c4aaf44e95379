import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skvt.datasets import make_topic_corpus


def test_lengths_are_the_minimum_plus_poisson():
    X = make_topic_corpus(4000, mean_length=20, min_length=8, random_state=0).X
    lengths = np.asarray(X.sum(axis=1)).ravel()
    assert lengths.min() >= 8
    # The tolerance is five standard errors of the mean 20 and of the variance 12.
    assert abs(lengths.mean() - 20) < 5 * np.sqrt(12 / 4000)
    assert abs(lengths.var() - 12) < 5 * 12 * np.sqrt(2.1 / 4000)


def test_counts_follow_the_mixture_of_topics():
    X, topics, proportions = make_topic_corpus(
        30, n_components=5, n_features=12, mean_length=5000, min_length=5000, random_state=0
    )
    p = proportions @ topics
    # The mean of Pearson's statistic is its number of degrees of freedom.
    expected = 5000 * p
    seen = p > 1e-3
    statistic = ((X.toarray() - expected)[seen] ** 2 / (expected * (1 - p))[seen]).mean()
    assert abs(statistic - 1) < 5 * np.sqrt(2.5 / seen.sum())
    assert X.toarray()[p == 0].sum() == 0


def test_priors_determine_mean_and_variance():
    alpha, n = np.array([0.5, 1.0, 2.5]), 20000
    corpus = make_topic_corpus(
        n, n_components=3, n_features=4, mean_length=1, min_length=0, doc_topic_prior=alpha,
        topic_word_prior=[1, 1, 1, 1e4], random_state=0,
    )  # fmt: skip
    mean = alpha / 4
    variance = mean * (1 - mean) / 5  # This holds for a Dirichlet with sum 4.
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
