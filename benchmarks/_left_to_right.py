"""Estimates of log p(document | topics, alpha), and the alpha that makes documents most probable.

The estimate is ``skvt.metrics.held_out_log_likelihood``, which needs only topics. It visits the
tokens of a document from left to right. Before each token, particles draw the topics of all earlier
tokens anew, and are resampled. There are K topics over V words, and alpha (K,) is the Dirichlet
prior of a document's topics.
"""

import numba as nb
import numpy as np
import scipy.sparse as sp
from _common import word_probabilities
from scipy.special import digamma

from skvt.metrics import held_out_log_likelihood


@nb.njit(nogil=True)
def _sweep(documents, words, beta, alpha, z, counts, rng):
    """Draw the topics z of all tokens in one sweep of Gibbs sampling, given beta (V, K).

    ``documents`` and ``words`` have the document and the word of each token. ``counts`` (n, K), the
    numbers of tokens of each document and topic, change with z.
    """
    cumulative = np.empty(alpha.size)
    for i in range(words.size):
        document_counts = counts[documents[i]]
        document_counts[z[i]] -= 1.0
        total = 0.0
        for k in range(alpha.size):
            total += (alpha[k] + document_counts[k]) * beta[words[i], k]
            cumulative[k] = total
        level = rng.random() * total
        z[i] = min(np.searchsorted(cumulative, level, side="right"), alpha.size - 1)
        document_counts[z[i]] += 1.0


def sample_prior(X, topics, alpha, *, n_rounds=150, seed=0):
    """Return the alpha (K,) that makes documents X most probable, given topics (K, V).

    This is stochastic EM. Each round makes a sweep of Gibbs sampling, and then a step of Minka's
    fixed point (2000, eq. 55) at the counts drawn. The result is the mean over the second half of
    the rounds. It maximises the probability that :class:`LeftToRight` estimates, whereas
    variational EM maximises a lower bound of this probability.
    """
    beta, X = word_probabilities(topics), sp.csr_array(X).tocoo()
    documents, words = np.repeat(X.row, X.data), np.repeat(X.col, X.data)
    rng, alpha = np.random.default_rng(seed), np.full(beta.shape[1], float(alpha))
    z = rng.integers(alpha.size, size=words.size)
    counts = np.zeros((X.shape[0], alpha.size))
    np.add.at(counts, (documents, z), 1.0)
    lengths, mean = counts.sum(axis=1), np.zeros(alpha.size)
    for n in range(n_rounds):
        _sweep(documents, words, beta, alpha, z, counts, rng)
        total = alpha.sum()
        numerator = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        denominator = (digamma(lengths + total) - digamma(total)).sum()
        # The minimum is for topics without tokens, whose alpha would become 0.
        alpha = np.maximum(alpha * numerator / denominator, 1e-4)
        if n >= n_rounds // 2:
            mean += alpha / (n_rounds - n_rounds // 2)
    return mean


class LeftToRight:
    """Scorer of topics by the log probability of whole held-out documents, in nats per word.

    The time grows with the square of a document's length. From a document of more than
    ``max_tokens`` tokens, this number of tokens is therefore drawn at random.

    Parameters
    ----------
    X : CSR matrix
        Counts of the test documents. The first ``n_documents`` of the documents with words are
        used.
    """

    def __init__(self, X, *, n_documents=150, max_tokens=100, n_particles=20, seed=0):
        rng, self.n_particles = np.random.default_rng(seed), n_particles
        has_words = np.diff(X.indptr) > 0
        X = X[has_words][:n_documents].toarray()
        lengths = np.minimum(X.sum(axis=1), max_tokens)
        self.X = np.stack(
            [rng.multivariate_hypergeometric(row, n) for row, n in zip(X, lengths, strict=True)]
        )

    def __call__(self, topics, alpha):
        """Return nats per word of the documents, given topics (K, V) and alpha."""
        values = held_out_log_likelihood(
            topics, self.X, doc_topic_prior=alpha, n_samples=self.n_particles
        )
        return float(values.sum() / self.X.sum())
