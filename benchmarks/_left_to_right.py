"""log p(document | topics, alpha), left to right: a yardstick that shares no code with skvt.

The proportions are summed out, so that ``p(w) = prod_n p(w_n | w_<n)``. Particles draw the topics
of the tokens before n anew, each given all others, and average

    p(w_n | z_<n) = sum_k (alpha_k + n_k) beta_{w_n k} / (sum_k alpha_k + n - 1)

over themselves (Wallach, Murray, Salakhutdinov and Mimno 2009). They are resampled by that factor
before they take in token n: without it, they come from the wrong distribution, and ``exp`` of the
estimate is biased, as Buntine (2009) notes.
"""

import numba as nb
import numpy as np
from _common import word_probabilities
from scipy.special import digamma


@nb.njit(nogil=True)
def _draw(rows, prior, i, counts, active, n_active, r, cumulative, rng):
    """Topic of token i in particle r, in proportion to (alpha + counts) * rows[i].

    The first ``n_active[r]`` of ``active[r]`` hold all topics that have counts, which are few
    beside all: only these are added up, ``prior`` being running sums of alpha * rows. Topics whose
    count has become 0 leave them, the topic drawn joins them.
    """
    total, j, m = 0.0, 0, n_active[r]
    while j < m:
        k = active[r, j]
        if counts[r, k] == 0.0:
            m -= 1
            active[r, j] = active[r, m]
        else:
            total += counts[r, k] * rows[i, k]
            cumulative[j] = total
            j += 1
    level = rng.random() * (total + prior[i, -1])
    if level < total:
        j = 0
        while cumulative[j] <= level:
            j += 1
        k = active[r, j]
    else:
        k, last = 0, prior.shape[1] - 1
        while k < last and prior[i, k] <= level - total:
            k += 1
        if counts[r, k] == 0.0:
            active[r, m] = k
            m += 1
    n_active[r] = m
    counts[r, k] += 1.0
    return k


@nb.njit(nogil=True)
def _document(words, beta, alpha, n_particles, rng):
    """log p(words) of one document; ``words`` in any order, ``beta`` (V, K)."""
    n_tokens, n_topics = words.size, alpha.size
    rows, prior = np.empty((n_tokens, n_topics)), np.empty((n_tokens, n_topics))
    for n in range(n_tokens):
        rows[n] = beta[words[n]]
        prior[n] = np.cumsum(alpha * rows[n])
    z = np.empty((n_particles, n_tokens), np.int64)
    counts = np.zeros((n_particles, n_topics))
    active, n_active = np.empty((n_particles, n_topics), np.int64), np.zeros(n_particles, np.int64)
    factors, cumulative = np.empty(n_particles), np.empty(n_topics)
    alpha_sum, value = alpha.sum(), 0.0
    for n in range(n_tokens):
        for r in range(n_particles):
            for i in range(n):
                counts[r, z[r, i]] -= 1.0
                z[r, i] = _draw(rows, prior, i, counts, active, n_active, r, cumulative, rng)
            factor = prior[n, -1]
            for j in range(n_active[r]):
                factor += counts[r, active[r, j]] * rows[n, active[r, j]]
            factors[r] = factor / (alpha_sum + n)
        mean = factors.mean()
        value += np.log(mean)
        # Systematic resampling: each particle has on average factors[r] / mean children.
        old_z, old_counts = z[:, :n].copy(), counts.copy()
        old_active, old_n_active = active.copy(), n_active.copy()
        level, parent, passed = rng.random(), 0, factors[0] / mean
        for r in range(n_particles):
            while passed <= level + r and parent < n_particles - 1:
                parent += 1
                passed += factors[parent] / mean
            z[r, :n], counts[r] = old_z[parent], old_counts[parent]
            active[r], n_active[r] = old_active[parent], old_n_active[parent]
            z[r, n] = _draw(rows, prior, n, counts, active, n_active, r, cumulative, rng)
    return value


@nb.njit(nogil=True)
def _documents(starts, words, beta, alpha, n_particles, rng, out):
    for d in range(out.size):
        out[d] = _document(words[starts[d] : starts[d + 1]], beta, alpha, n_particles, rng)


def documents_of(X, rng):
    """The words of each document of X (CSR of counts), one for each token, in random order."""
    return [
        rng.permutation(np.repeat(X.indices[a:b], X.data[a:b]))
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]


def left_to_right(documents, topics, alpha, n_particles, seed):
    """Estimates of log p(w | topics, alpha), in nats, of documents.

    Parameters
    ----------
    documents : list of arrays of words, a word for each token
    topics : (K, V), pseudo-counts or probabilities
    alpha : float or (K,)
    """
    starts, words, beta, alpha = _prepare(documents, topics, alpha)
    out, rng = np.empty(len(documents)), np.random.default_rng(seed)
    _documents(starts, words, beta, alpha, n_particles, rng, out)
    return out


def _prepare(documents, topics, alpha):
    """(starts of documents, words of all, topics (V, K), alpha (K,))."""
    beta = word_probabilities(topics)
    alpha = np.ascontiguousarray(np.broadcast_to(np.asarray(alpha, np.float64), beta.shape[1]))
    starts = np.concatenate([[0], np.cumsum([len(words) for words in documents])])
    words = np.concatenate([*documents, []]).astype(np.int64)
    return starts.astype(np.int64), words, beta, alpha


@nb.njit(nogil=True)
def _sweep(starts, words, beta, alpha, z, counts, rng):
    """One sweep of Gibbs sampling over the topics z of all tokens, given beta (V, K)."""
    cumulative = np.empty(alpha.size)
    for d in range(counts.shape[0]):
        for i in range(starts[d], starts[d + 1]):
            counts[d, z[i]] -= 1.0
            total = 0.0
            for k in range(alpha.size):
                total += (alpha[k] + counts[d, k]) * beta[words[i], k]
                cumulative[k] = total
            level = rng.random() * total
            z[i] = min(np.searchsorted(cumulative, level, side="right"), alpha.size - 1)
            counts[d, z[i]] += 1.0


def sampled_prior(documents, topics, alpha, *, n_rounds=150, seed=0):
    """alpha (K,) at which documents are most probable, given topics, by stochastic EM.

    A sweep of Gibbs sampling, then a step of Minka's fixed point (2000, eq. 55) at the counts
    drawn; the mean over the second half of the rounds. It maximises what :func:`left_to_right`
    estimates, where variational EM maximises a bound of it.
    """
    starts, words, beta, alpha = _prepare(documents, topics, alpha)
    rng = np.random.default_rng(seed)
    z = rng.integers(alpha.size, size=words.size)
    counts = np.zeros((len(documents), alpha.size))
    np.add.at(counts, (np.repeat(np.arange(len(documents)), np.diff(starts)), z), 1.0)
    sizes, mean = np.diff(starts).astype(float), np.zeros(alpha.size)
    for n in range(n_rounds):
        _sweep(starts, words, beta, alpha, z, counts, rng)
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
    are taken, by lot. The tokens of each are in random order.

    Parameters
    ----------
    X : CSR of counts, test documents, of which the first ``n_documents`` with words are taken
    """

    def __init__(self, X, *, n_documents=150, max_tokens=100, n_particles=20, seed=0):
        self.n_particles, self.seed = n_particles, seed
        documents = documents_of(X, np.random.default_rng(seed))
        documents = [words[:max_tokens] for words in documents if words.size]
        self.documents = documents[:n_documents]
        self.n_tokens = sum(words.size for words in self.documents)

    def __call__(self, topics, alpha):
        values = left_to_right(self.documents, topics, alpha, self.n_particles, self.seed)
        if not np.isfinite(values).all():
            raise ValueError("The topics give some held-out word probability 0 or NaN.")
        return float(values.sum() / self.n_tokens)
