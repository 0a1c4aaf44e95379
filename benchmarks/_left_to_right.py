"""log p(document | topics, alpha), left to right, and the alpha of the most probable documents.

The estimate is that of ``skvt.metrics.held_out_log_likelihood``, which sees topics alone: particles
draw the topics of all earlier tokens anew before each token, and are resampled.
"""

import numba as nb
import numpy as np
import scipy.sparse as sp
from _common import word_probabilities
from scipy.special import digamma

from skvt.metrics import held_out_log_likelihood


@nb.njit(nogil=True)
def _sweep(documents, words, beta, alpha, z, counts, rng):
    """One sweep of Gibbs sampling over the topics z of all tokens, given beta (V, K)."""
    cumulative = np.empty(alpha.size)
    for i in range(words.size):
        own = counts[documents[i]]
        own[z[i]] -= 1.0
        total = 0.0
        for k in range(alpha.size):
            total += (alpha[k] + own[k]) * beta[words[i], k]
            cumulative[k] = total
        level = rng.random() * total
        z[i] = min(np.searchsorted(cumulative, level, side="right"), alpha.size - 1)
        own[z[i]] += 1.0


def sampled_prior(X, topics, alpha, *, n_rounds=150, seed=0):
    """alpha (K,) at which documents X are most probable, given topics, by stochastic EM.

    A sweep of Gibbs sampling, then a step of Minka's fixed point (2000, eq. 55) at the counts
    drawn; the mean over the second half of the rounds. It maximises what :class:`LeftToRight`
    estimates, where variational EM maximises a bound of it.
    """
    beta, X = word_probabilities(topics), sp.csr_array(X).tocoo()
    documents, words = np.repeat(X.row, X.data), np.repeat(X.col, X.data)
    rng, alpha = np.random.default_rng(seed), np.full(beta.shape[1], float(alpha))
    z = rng.integers(alpha.size, size=words.size)
    counts = np.zeros((X.shape[0], alpha.size))
    np.add.at(counts, (documents, z), 1.0)
    sizes, mean = counts.sum(axis=1), np.zeros(alpha.size)
    for n in range(n_rounds):
        _sweep(documents, words, beta, alpha, z, counts, rng)
        total = alpha.sum()
        grown = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        # (a topic that no token has would get 0)
        alpha = np.maximum(alpha * grown / (digamma(sizes + total) - digamma(total)).sum(), 1e-4)
        if n >= n_rounds // 2:
            mean += alpha / (n_rounds - n_rounds // 2)
    return mean


class LeftToRight:
    """Log probability of whole held-out documents, in nats per word.

    Time grows with the square of a document's length, so that of a longer document ``max_tokens``
    are taken, by lot.

    Parameters
    ----------
    X : CSR of counts, test documents, of which the first ``n_documents`` with words are taken
    """

    def __init__(self, X, *, n_documents=150, max_tokens=100, n_particles=20, seed=0):
        rng, self.n_particles = np.random.default_rng(seed), n_particles
        X = X[np.diff(X.indptr) > 0][:n_documents].toarray()
        taken = np.minimum(X.sum(axis=1), max_tokens)
        self.X = np.stack(
            [rng.multivariate_hypergeometric(row, n) for row, n in zip(X, taken, strict=True)]
        )

    def __call__(self, topics, alpha):
        values = held_out_log_likelihood(
            topics, self.X, doc_topic_prior=alpha, n_samples=self.n_particles
        )
        return float(values.sum() / self.X.sum())
