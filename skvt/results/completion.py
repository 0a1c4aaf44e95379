"""Document completion: the split of the tokens of a row into observed and held-out tokens.

The split depends only on the row: the side of a token is a bit of a hash of the row's content and
the token's position in it. A row is therefore split in the same way in any data set.
"""

import numpy as np
import scipy.sparse as sp

from skvt.compiled import GOLDEN, jit, mix, part
from skvt.expfam import Dirichlet
from skvt.inference import local_results, rows_of
from skvt.models.lda import LDAGivenTopics, Topics
from skvt.rows import Documents, described

_S63 = np.uint64(63)
MOST_COINS = 4096
# Larger counts have the hash of this count, which fits into an int64.
_LARGEST_KEY = 2.0**62


@part
def _key(start, stop, indices, data):
    """Return a hash of a row's content, a sum that does not depend on the order of entries."""
    state = np.uint64(0)
    for j in range(start, stop):
        scaled = np.int64(min(data[j] * 1024.0, _LARGEST_KEY))
        state += mix(np.uint64(indices[j]) * GOLDEN + np.uint64(scaled))
    return state


@jit
def _keys(indptr, indices, data, out):
    for d in range(indptr.size - 1):
        out[d] = _key(indptr[d], indptr[d + 1], indices, data)


def content_keys(X):
    """Return a hash of each row's content, (n,) uint64, which does not depend on other rows."""
    out = np.empty(X.shape[0], np.uint64)
    _keys(X.indptr, X.indices, X.data, out)
    return out


@jit
def _split(indptr, indices, data, observed):
    """Set ``observed[j]`` to the part of ``data[j]`` on the observed side.

    Whole tokens go to either side with probability 1/2; the fractional part of an entry is treated
    as one more token.
    """
    for d in range(indptr.size - 1):
        state = _key(indptr[d], indptr[d + 1], indices, data)
        for j in range(indptr[d], indptr[d + 1]):
            whole = np.floor(np.float64(data[j]))
            token = mix(state + np.uint64(indices[j]) * GOLDEN)
            # Half of the tokens beyond MOST_COINS are kept, without a toss.
            kept = np.floor(0.5 * max(whole - MOST_COINS, 0.0))
            for _ in range(np.int64(min(whole, MOST_COINS))):
                token += GOLDEN
                kept += np.float64(mix(token) >> _S63)
            rest = data[j] - whole
            if rest > 0.0:
                token += GOLDEN
                if mix(token) >> _S63:
                    kept += rest
            observed[j] = kept


def split_tokens(X):
    """Split X into two CSR arrays, with a fair coin for each token that the row determines."""
    left = np.empty(X.nnz, np.float64)
    _split(X.indptr, X.indices, X.data, left)
    parts = []
    for data in (left, X.data - left):
        part = sp.csr_array(
            (data.astype(X.data.dtype), X.indices.copy(), X.indptr.copy()), shape=X.shape
        )
        part.eliminate_zeros()
        parts.append(part)
    return tuple(parts)


def document_parameters(model, stats, X, workers):
    """Return gamma (n, K) of q(theta) at T = 1, by CVB0 at the mean of q(topics)."""
    data = rows_of(X, np.ones(X.shape[0]))
    documents = LDAGivenTopics.of(model.documents(stats), "cvb0")

    def topics_of(batch):
        return Topics(model.log_mean_topics(stats, batch))

    return np.concatenate(
        [result.q for _, result in local_results(documents, topics_of, data, workers)]
    )


def completion_score(model, stats, X, workers):
    """Return the mean log predictive probability of held-out tokens, in nats."""
    return mean_of_held_out(*completion_sums(model, stats, X, workers))


def mean_of_held_out(total, n_held_out, n_tokens, n_documents):
    """Return the mean per held-out token from the result of :func:`completion_sums`."""
    if n_held_out == 0.0:
        raise ValueError(
            f"No token to hold out: X has {n_tokens:g} tokens in {n_documents} documents; "
            "document completion needs documents of two or more tokens."
        )
    return float(total / n_held_out)


def completion_sums(model, stats, X, workers):
    """Sum log predictive probabilities in nats; count held-out tokens, all tokens, documents."""
    design, allowed = described(X)
    observed, held_out = (Documents.of(part, design, allowed=allowed) for part in split_tokens(X))
    topics = np.ascontiguousarray(Dirichlet.mean(model.natural_parameters(stats)[0]).T)
    gamma = document_parameters(model, stats, observed, workers)
    proportions = gamma / gamma.sum(axis=1, keepdims=True)
    data = rows_of(held_out, np.ones(X.shape[0]))
    total = 0.0
    for (batch,) in data.rounds(model, workers, data.order(), whole=True):
        total += model.log_predictive(batch, proportions[batch.rows], topics, workers.run).sum()
    return total, float(held_out.sum()), float(X.sum()), X.shape[0]
