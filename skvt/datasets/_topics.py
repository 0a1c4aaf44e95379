"""Generator of a corpus from latent Dirichlet allocation with known topics."""

from collections import namedtuple
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_random_state, check_scalar

from skvt._results import prior_vector

TopicCorpus = namedtuple("TopicCorpus", ["X", "topics", "proportions"])
TopicCorpus.__doc__ = "Word counts X (N, V), topics (K, V) and topic proportions (N, K)."


def make_topic_corpus(
    n_documents=1000, *, n_components=20, n_features=1000, mean_length=105.0, min_length=5,
    doc_topic_prior=0.1, topic_word_prior=0.05, topics=None, random_state=None,
):  # fmt: skip
    """Draw documents from the generative process of latent Dirichlet allocation.

    Parameters
    ----------
    n_documents : int, default=1000
        Number of documents N.
    n_components : int, default=20
        Number of topics K. Not used when `topics` is given.
    n_features : int, default=1000
        Number of words in the vocabulary V. Not used when `topics` is given.
    mean_length : float, default=105.0
        Expected number of tokens of a document, at least `min_length`.
    min_length : int, default=5
        Minimum number of tokens of a document.
    doc_topic_prior : float or array-like of shape (K,), default=0.1
        Dirichlet prior of the topic proportions, `alpha` in the literature.
    topic_word_prior : float or array-like of shape (V,), default=0.05
        Dirichlet prior of the topics, `eta` in the literature. Not used when `topics` is given.
    topics : array-like of shape (K, V), default=None
        Topics to draw from, each row a distribution over words. By default, they are drawn from
        their prior. Pass the topics of an earlier call to draw test documents from the same topics.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same corpus at every call.

    Returns
    -------
    X : csr_matrix of int64, shape (N, V)
        Word counts, with sorted indices. X, `topics` and `proportions` are returned as a named
        tuple.
    topics : ndarray, shape (K, V)
        Probability of each word in each topic.
    proportions : ndarray, shape (N, K)
        Probability of each topic in each document.

    Notes
    -----
    For each topic, ``topics[k] ~ Dirichlet(eta)``. For each document, its length is `min_length`
    plus a Poisson variable, ``proportions[d] ~ Dirichlet(alpha)``, and each token has a topic ``z ~
    Multinomial(proportions[d])`` and a word ``w ~ Multinomial(topics[z])`` [1]_. The order of
    tokens is not kept: the topics of a document are drawn as counts, and all words of a topic
    together, so that time and memory grow with the number of tokens rather than with N times V.
    Under a small prior, some entries of topics and proportions are exactly zero.

    References
    ----------
    .. [1] D. M. Blei, A. Y. Ng and M. I. Jordan (2003). Latent Dirichlet allocation. Journal of
       Machine Learning Research 3, 993-1022.

    Examples
    --------
    >>> from skvt.datasets import make_topic_corpus
    >>> train = make_topic_corpus(100, n_components=5, n_features=50, random_state=0)
    >>> train.X.shape, train.topics.shape, train.proportions.shape
    ((100, 50), (5, 50), (100, 5))
    >>> test = make_topic_corpus(20, topics=train.topics, random_state=1)
    """
    check_scalar(n_documents, "n_documents", Integral, min_val=1)
    check_scalar(min_length, "min_length", Integral, min_val=0)
    if not isinstance(mean_length, Real) or not min_length <= mean_length < np.inf:
        raise ValueError(
            f"mean_length must be a finite number in the range [min_length, inf) = [{min_length}, "
            f"inf). Got {mean_length!r}; raise it, or lower min_length."
        )
    # The draws are made by a Generator, because RandomState.dirichlet fails for concentrations near
    # zero. Its seed consists of four random numbers.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1, size=4))
    if topics is None:
        check_scalar(n_components, "n_components", Integral, min_val=1)
        check_scalar(n_features, "n_features", Integral, min_val=1)
        eta = prior_vector("topic_word_prior", topic_word_prior, n_features, "n_features")
        topics = rng.dirichlet(eta, size=n_components)
    else:
        topics = _check_topics(topics)
    alpha = prior_vector("doc_topic_prior", doc_topic_prior, len(topics), "n_components")

    lengths = min_length + rng.poisson(mean_length - min_length, size=n_documents)
    proportions = rng.dirichlet(alpha, size=n_documents)
    X = _draw_words(rng.multinomial(lengths, proportions), topics, rng)
    return TopicCorpus(X, topics, proportions)


def _draw_words(topic_counts, topics, rng):
    """Draw word counts (N, V) of documents with `topic_counts` (N, K) tokens of each topic."""
    n_documents, n_features = len(topic_counts), topics.shape[1]
    # The document and the word of each token, in arrays by topic.
    documents, words = [], []
    for counts, topic in zip(topic_counts.T, topics, strict=True):
        cumulative = np.cumsum(topic)
        # The last sum becomes exactly 1, so that no draw lies beyond the last word.
        cumulative /= cumulative[-1]
        documents.append(np.repeat(np.arange(n_documents), counts))
        # With side="right", no draw is a word of probability zero.
        words.append(np.searchsorted(cumulative, rng.random(counts.sum()), side="right"))
    documents, words = np.concatenate(documents), np.concatenate(words)
    # The conversion to CSR adds up the tokens of a word in a document.
    tokens = (np.ones(len(words), dtype=np.int64), (documents, words))
    X = sparse.coo_matrix(tokens, shape=(n_documents, n_features)).tocsr()
    X.sort_indices()
    return X


def _check_topics(topics):
    """Return topics as an array; raise ValueError unless each row is a distribution."""
    topics = check_array(topics, dtype=np.float64, input_name="topics")
    row_sums = topics.sum(axis=1)
    if topics.min() < 0 or not np.allclose(row_sums, 1, rtol=0, atol=1e-6):
        worst_sum = row_sums[np.argmax(np.abs(row_sums - 1))]
        raise ValueError(
            f"Each row of topics must be non-negative and sum to 1; the smallest entry is "
            f"{topics.min():.6g} and one row sums to {worst_sum:.6g}. Divide each row by its sum."
        )
    return topics
