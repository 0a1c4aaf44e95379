"""Document completion: prediction of held-out tokens of a document from the other tokens.

A row is a document, and a token is one occurrence of a word in it. A bit of a hash says whether a
token is observed or held out. The hash depends on the content of the row, on the word and on the
number of the token, so that a row is split in the same way in any data set. Hashes use the
generator SplitMix64: GOLDEN is the step of its state, and ``mix`` turns a state into random bits.
Loops read the arrays ``indptr``, ``indices`` and ``data`` of a CSR matrix of counts.

There are n documents, V words and K topics. Functions with the arguments ``model`` and ``stats``
take the model and the statistics of a fit.
"""

import numpy as np
import scipy.sparse as sp

from skvt._compiled import GOLDEN, jit, jit_inlined, mix
from skvt.expfam import Dirichlet
from skvt.inference import iterate_local_results, make_rows
from skvt.models import Topics
from skvt.models.lda import LDAGivenTopics
from skvt.rows import Documents, get_design_and_allowed

# A shift of an uint64 by this number of bits leaves its highest bit.
_SHIFT_TO_HIGHEST_BIT = np.uint64(63)
# Maximum number of tokens of a word in a row that are split one by one, each by a bit of a hash.
MAX_HASHED_TOKENS = 4096
# Counts are multiplied by 1024 and hashed as integers. Larger products are replaced by this number,
# which fits into an int64.
_MAX_KEY = 2.0**62


@jit_inlined
def _hash_row(start, stop, indices, data):
    """Return a hash of the content of a row, the entries from ``start`` to ``stop``.

    The hash is a sum over entries, so that their order does not matter.
    """
    hash_sum = np.uint64(0)
    for entry in range(start, stop):
        scaled_count = np.int64(min(data[entry] * 1024.0, _MAX_KEY))
        hash_sum += mix(np.uint64(indices[entry]) * GOLDEN + np.uint64(scaled_count))
    return hash_sum


@jit
def _hash_rows(indptr, indices, data, out):
    """Write the hash of each row's content to ``out``."""
    for d in range(indptr.size - 1):
        out[d] = _hash_row(indptr[d], indptr[d + 1], indices, data)


def hash_contents(X):
    """Return a hash of each row's content, (n,) uint64, which does not depend on other rows."""
    out = np.empty(X.shape[0], np.uint64)
    _hash_rows(X.indptr, X.indices, X.data, out)
    return out


@jit
def _split_rows(indptr, indices, data, observed):
    """Write to ``observed[j]`` the part of ``data[j]`` that is observed.

    Each token is observed with probability 1/2. If ``data[j]`` is not a whole number, its
    fractional part is treated as one more token.
    """
    for d in range(indptr.size - 1):
        row_hash = _hash_row(indptr[d], indptr[d + 1], indices, data)
        for entry in range(indptr[d], indptr[d + 1]):
            n_whole_tokens = np.floor(np.float64(data[entry]))
            # The tokens of a word have consecutive states of a generator whose first state depends
            # on the row and the word.
            token_state = mix(row_hash + np.uint64(indices[entry]) * GOLDEN)
            # Of the tokens beyond MAX_HASHED_TOKENS, half are observed, without a hash of each.
            n_observed = np.floor(0.5 * max(n_whole_tokens - MAX_HASHED_TOKENS, 0.0))
            for _ in range(np.int64(min(n_whole_tokens, MAX_HASHED_TOKENS))):
                token_state += GOLDEN
                n_observed += np.float64(mix(token_state) >> _SHIFT_TO_HIGHEST_BIT)
            fraction = data[entry] - n_whole_tokens
            if fraction > 0.0:
                token_state += GOLDEN
                if mix(token_state) >> _SHIFT_TO_HIGHEST_BIT:
                    n_observed += fraction
            observed[entry] = n_observed


def split_tokens(X):
    """Split the tokens of X into observed and held-out tokens; return two CSR arrays.

    Each token is observed with probability 1/2. The split depends on the content of the row only.
    """
    observed = np.empty(X.nnz, np.float64)
    _split_rows(X.indptr, X.indices, X.data, observed)
    halves = []
    for counts in (observed, X.data - observed):
        arrays = (counts.astype(X.data.dtype), X.indices.copy(), X.indptr.copy())
        half_of_tokens = sp.csr_array(arrays, shape=X.shape)
        half_of_tokens.eliminate_zeros()
        halves.append(half_of_tokens)
    return tuple(halves)


def infer_document_parameters(model, stats, X, workers):
    """Return the parameters gamma (n, K) of the Dirichlet posterior of topic proportions.

    Gamma is computed by CVB0, with the topics at their mean under the posterior q of the fit.
    """
    lda = LDAGivenTopics.from_lda(model.document_model(stats), "cvb0")

    def get_topics(batch):
        """Return the global parameters of the local step of a batch."""
        return Topics(model.log_mean_topics(stats, batch))

    results = iterate_local_results(lda, get_topics, make_rows(X, np.ones(X.shape[0])), workers)
    # The result of a batch has gamma in its field ``q``. Batches come in the order of the rows.
    return np.concatenate([result.q for _, result in results])


def compute_completion_score(model, stats, X, workers):
    """Return the mean log predictive probability of the held-out tokens, in nats per token."""
    weights = np.ones(X.shape[0])
    return compute_mean_of_held_out(*compute_completion_sums(model, stats, X, weights, workers))


def compute_mean_of_held_out(log_probability, n_held_out, n_tokens, n_documents):
    """Return the mean log predictive probability of the held-out tokens, in nats per token.

    Arguments are the results of :func:`compute_completion_sums`: ``log_probability`` is the sum of
    the log predictive probabilities. Raise ValueError if there is no held-out token.
    """
    if n_held_out == 0.0:
        raise ValueError(
            f"There is no token to hold out: X has {n_tokens:g} tokens in {n_documents} "
            "documents, and document completion needs a document of at least two tokens."
        )
    return float(log_probability / n_held_out)


def compute_completion_sums(model, stats, X, weights, workers):
    """Compute the sums over documents X that :func:`compute_mean_of_held_out` takes.

    Return the sum of the log predictive probabilities of held-out tokens in nats, the number of
    held-out tokens, the number of all tokens and the number of documents. In the first two, a
    document of weight w counts w times; ``weights`` are (n,).
    """
    # Both halves of a document have its covariates (``design``) and its allowed topics.
    design, allowed = get_design_and_allowed(X)
    observed, held_out = (Documents.of(half, design, allowed=allowed) for half in split_tokens(X))
    # (V, K): expected probabilities of words in topics.
    lam = model.natural_parameters(stats)[0]
    topics = np.ascontiguousarray(Dirichlet.mean(lam).T)
    gamma = infer_document_parameters(model, stats, observed, workers)
    proportions = gamma / gamma.sum(axis=1, keepdims=True)
    # Rows have the weight 1 here, because the sum of each document is multiplied by its weight.
    rows = make_rows(held_out, np.ones(X.shape[0]))
    log_probability = 0.0
    # Each group has a single batch.
    for (batch,) in rows.group_batches(model, workers, rows.list_batches(), fixed_globals=True):
        log_probabilities = model.log_predictive(
            batch, proportions[batch.rows], topics, workers.run
        )
        log_probability += (weights[batch.rows] * log_probabilities).sum()
    n_held_out = weights.astype(X.dtype) * (held_out @ np.ones(X.shape[1], X.dtype))
    return log_probability, float(n_held_out.sum()), float(X.sum()), X.shape[0]
