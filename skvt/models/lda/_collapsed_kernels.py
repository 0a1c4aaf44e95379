"""Compiled loops of collapsed Gibbs sampling: topics and proportions are integrated out.

The topic of a token is drawn given the topics of all other tokens, with probabilities proportional
to [GriffithsSteyvers04 eq. 5]

    (alpha_k + n_dk^{-i}) (eta_w + n_wk^{-i}) / (sum_v eta_v + n_k^{-i}).

n_dk, n_wk and n_k are the numbers of tokens of document d, of word w and of all words in topic k.
``^{-i}`` means that token i is left out.

The loops serve :mod:`skvt.models.lda._collapsed`. Vector instructions compute the probabilities of
all topics, without branches to predict. For up to a few hundred topics this is faster than
:mod:`skvt.models.lda._sparse_kernels`, which sums over few topics.

Documents are divided into groups, each of which is sampled by one thread. A group begins with a
copy of the counts over all documents, and during the sweep it does not see how other groups change
the counts (Newman, Asuncion, Smyth and Welling 2009).

Within a group the draws of a few documents are interleaved: each document has a *stream*, and in
each turn every stream draws one token. While an instruction of one draw waits for a result, the
processor works on the other draws. But tokens that are drawn in the same turn do not see how they
change the counts. The groups and the order of their tokens depend on the data alone, so that the
result is the same for any number of threads.

In the loops, ``claim_items`` yields the items that the present thread takes from the shared
``counter``, and ``lit(x, c)`` is the constant c in the floating-point type of x.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvt._compiled import (
    GOLDEN,
    LANES,
    allocate_aligned,
    claim_items,
    digamma,
    draw_from_products,
    jit,
    jit_inlined,
    lit,
    log,
    make_uniform_float32,
    mix,
)
from skvt.models.lda._kernels import WORDS_PER_CLAIM
from skvt.models.lda._sampling import token_weight
from skvt.typing import Array, IndexArray

# Number of token probabilities that are multiplied before a logarithm is taken.
_PROBABILITIES_PER_LOGARITHM = 8
# Maximum number of tokens of an entry, which is a word of a document with its count. A larger count
# is divided into this number of tokens of equal weights.
MAX_TOKENS = 1000
# Smaller probabilities of tokens are replaced by this number, so that products do not underflow.
_MIN_PROBABILITY = 1e-30
# Up to this whole number n, psi(x + n) - psi(x) is computed as a sum of n reciprocals.
MAX_RECIPROCALS = 16.0
# Priors and counts are clipped to this range, so that a product of two of them is within the range
# of single precision.
COUNT_RANGE = 1e-15, 1e15
# Lower limit of the total of a topic, which rounding errors could make zero or negative.
MIN_TOTAL = 1e-15


@jit_inlined
def capped_token_weight(count: Any, position: int, n_tokens: int) -> Any:
    """Return the weight of the token at a position of an entry with ``n_tokens`` tokens.

    If the count exceeds MAX_TOKENS, the entry has MAX_TOKENS tokens of equal weights. Otherwise
    the weights are as in :func:`~skvt.models.lda._sampling.token_weight`.
    """
    if count > lit(count, 1.0 * MAX_TOKENS):
        return count / lit(count, 1.0 * MAX_TOKENS)
    return token_weight(count, position, n_tokens)


class _Streams(NamedTuple):
    """The documents whose draws are interleaved, in S streams: scratch of a thread.

    A stream draws the tokens of a document, then the tokens of its next document. W is the number
    of topics, padded to a multiple of LANES, and L the number of tokens of the longest document.
    """

    # (S,): numbers of the streams. Streams that still have documents come first.
    order: NDArray[np.uint64]
    # (S,): the last topic that each stream has drawn.
    topic: NDArray[np.uint64]
    # (S,): the state of each stream's random numbers.
    state: NDArray[np.uint64]
    # (S,): the row of each stream's document; -1 before the first document of the stream.
    document: IndexArray
    # (S,): the number of the document's first token, and the number of all its tokens.
    first_token: IndexArray
    n_tokens: IndexArray
    # (S,): the number of the document's tokens that have been drawn.
    n_drawn: IndexArray
    # (S,): number and product of the last tokens' probabilities, which are multiplied before a
    # logarithm is taken.
    n_multiplied: IndexArray
    product: Array
    # (S,): the sum of alpha over topics. If the tokens have topics before the sweep, the weight of
    # the document's tokens is added.
    total: Array
    # (S, L + 1): the words of the tokens. The word of the last token is repeated after it, since
    # each draw also fetches the row of the next word from memory.
    words: NDArray[np.uint32]
    # (S, L): the weights of the tokens.
    weights: Array
    # (S, W): ``alpha_k + n_dk``, or alpha_k if the tokens have no topics before the sweep.
    doc_counts: Array


def sweep_collapsed(
    n_streams: int, indptr: IndexArray, token_indptr: IndexArray, lam: Array, *arguments: Any
) -> None:
    """Allocate the scratch of a thread and call :func:`_sweep_collapsed`.

    ``n_streams`` is the number of documents of a group whose draws are interleaved. ``arguments``
    are the arguments of :func:`_sweep_collapsed` from ``words`` to ``log_probability``, and last
    the ``counter``.
    """
    *other_arguments, counter = arguments
    n_words, n_padded = lam.shape
    max_tokens = np.diff(token_indptr[indptr]).max(initial=1)
    # The fields of _Streams up to ``total`` are (S,) arrays of three types, in this order.
    numbers: list[Array] = []
    for n_fields, dtype in (3, np.uint64), (5, np.int64), (2, np.float64):
        numbers.extend(np.empty((n_fields, n_streams), dtype))
    words = np.empty((n_streams, max_tokens + 1), np.uint32)
    weights = np.empty((n_streams, max_tokens), np.float32)
    doc_counts = allocate_aligned(n_streams, n_padded)
    streams = _Streams._make([*numbers, words, weights, doc_counts])
    word_counts = allocate_aligned(n_words, n_padded)
    inverse_totals, sums = allocate_aligned(1, n_padded)[0], allocate_aligned(1, n_padded)[0]
    _sweep_collapsed(
        indptr, token_indptr, lam, *other_arguments, word_counts, inverse_totals, sums, streams,
        counter,
    )  # fmt: skip


@jit_inlined
def _begin_document(
    s: Any, d: int, indptr: IndexArray, words: IndexArray, counts: Array,
    token_indptr: IndexArray, seeds: NDArray[np.uint64], alpha: Array, has_topics: bool,
    topics: IndexArray, streams: Any,
) -> None:  # fmt: skip
    """Begin document d, which must have tokens, in stream s of :func:`_sweep_collapsed`."""
    first_token = token_indptr[indptr[d]]
    alpha_row = min(d, alpha.shape[0] - 1)
    total = 0.0
    for k in range(alpha.shape[1]):
        streams.doc_counts[s, k] = alpha[alpha_row, k]
        total += np.float64(alpha[alpha_row, k])
    # List the words and weights of the tokens; t is the position of a token in the document.
    t = 0
    for j in range(indptr[d], indptr[d + 1]):
        n_tokens = token_indptr[j + 1] - token_indptr[j]
        for i in range(n_tokens):
            weight = np.float32(capped_token_weight(counts[j], i, n_tokens))
            streams.words[s, t], streams.weights[s, t] = words[j], weight
            if has_topics:
                streams.doc_counts[s, topics[first_token + t]] += weight
                total += np.float64(weight)
            t += 1
    streams.words[s, t] = streams.words[s, t - 1]
    streams.document[s], streams.first_token[s] = d, first_token
    streams.n_tokens[s], streams.n_drawn[s] = t, 0
    streams.state[s] = seeds[d]
    streams.total[s] = total
    streams.product[s], streams.n_multiplied[s] = 1.0, 0


@jit_inlined
def _end_document(
    s: Any, topics: IndexArray, doc_topics: Array, log_probability: Array, streams: Any
) -> None:
    """Write the results of the document that stream s has finished.

    Add the weights of its tokens to ``doc_topics``, and the logarithm of the stream's product of
    probabilities to ``log_probability``.
    """
    d, first_token = streams.document[s], streams.first_token[s]
    log_probability[d] += log(streams.product[s])
    for t in range(streams.n_tokens[s]):
        doc_topics[d, topics[first_token + t]] += streams.weights[s, t]


@jit
def _sweep_collapsed(
    indptr: IndexArray, token_indptr: IndexArray, lam: Array, words: IndexArray, counts: Array,
    row_weights: Array, seeds: NDArray[np.uint64], alpha: Array, eta: Array, groups: IndexArray,
    totals: Array, has_topics: bool, topics: IndexArray, doc_topics: Array,
    log_probability: Array, word_counts: Array, inverse_totals: Array, sums: Array,
    streams: Any, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw the topic of each token given the topics of all other tokens.

    Threads take one group of documents at a time. If ``has_topics`` is false, tokens have no topics
    before the sweep. Topics are then drawn given alpha, ``lam`` and ``totals`` alone, which stay
    the same during the sweep.

    Parameters
    ----------
    indptr : (n + 1,) row pointers of the documents
    token_indptr : (nnz + 1,) the number of the first token of each entry
    lam : float32 (A, W) ``eta + n``, where n are the counts of A words in K topics; 0 beyond K
    words, counts : (nnz,) local words and counts of the entries, which make a CSR matrix with
        ``indptr``
    row_weights : (n,) weights of the documents
    seeds : (n,) uint64 seed of each document
    alpha : float32 (1, W) or (n, W) prior of proportions of all documents or of each; 0 beyond K,
        and for topics that a document must not have
    eta : float32 (A, 1) or (A, K) prior of the words
    groups : (G + 1,) the number of the first document of each group, and last n
    totals : float64 (G, K) sum of ``eta + n`` over the vocabulary for each group, changed
    has_topics : whether ``topics`` holds topics of the tokens, which the counts contain
    topics : (tokens,) topic of each token, written
    doc_topics : float32 (n, K) zeros; the weight of the tokens of each document in each topic is
        added
    log_probability : float64 (n,) zeros; the sum of ``log p(w_i | z_-i, w_-i)`` is added
    word_counts, inverse_totals, sums : float32 (A, W), (W,) and (W,) scratch: the group's copy of
        ``lam``, the reciprocals of its totals, and partial sums
    streams : :class:`_Streams`, scratch
    """
    # ``last_alpha_row`` is 0 if all documents have the same alpha.
    n_topics, last_alpha_row = totals.shape[1], alpha.shape[0] - 1
    one = lit(alpha[0, 0], 1.0)
    # With the stride 0, all topics share the only column of eta.
    eta_stride = 1 if eta.shape[1] > 1 else 0
    zero = lit(one, 0.0)
    order, n_drawn = streams.order, streams.n_drawn
    doc_counts, drawn_topic = streams.doc_counts, streams.topic
    for g in claim_items(counter, np.int64(1), groups.size - 1):
        for a in range(lam.shape[0]):
            for k in range(lam.shape[1]):
                word_counts[a, k] = lam[a, k]
        for k in range(inverse_totals.size):
            inverse_totals[k] = one / np.float32(totals[g, k]) if k < n_topics else lit(one, 0.0)
        next_document, stop_document, n_streams = groups[g], groups[g + 1], order.size
        for s in range(order.size):
            order[s], streams.document[s] = s, -1
            streams.n_tokens[s], n_drawn[s] = 0, 0
        # In each turn, all streams with documents draw a token.
        while n_streams > 0:
            # Step 1: give a new document to each stream whose document is finished, or remove the
            # stream if no document is left. Remove the next token of each stream from all counts.
            position = 0
            while position < n_streams:
                s = order[position]
                if n_drawn[s] == streams.n_tokens[s]:
                    if streams.document[s] >= 0:
                        _end_document(s, topics, doc_topics, log_probability, streams)
                    # Skip documents without tokens.
                    while next_document < stop_document and (
                        token_indptr[indptr[next_document]]
                        == token_indptr[indptr[next_document + 1]]
                    ):
                        next_document += 1
                    if next_document == stop_document:
                        n_streams -= 1
                        order[position] = order[n_streams]
                        continue
                    _begin_document(
                        s, next_document, indptr, words, counts, token_indptr, seeds, alpha,
                        has_topics, topics, streams,
                    )  # fmt: skip
                    next_document += 1
                position += 1
                if has_topics:
                    # Indices are unsigned, so that the compiler omits the case of negative indices.
                    t = np.uint64(n_drawn[s])
                    word, weight = streams.words[s, t], streams.weights[s, t]
                    k = topics[np.uint64(streams.first_token[s] + n_drawn[s])]
                    # The counts of words include the weights of documents.
                    word_weight = weight * np.float32(row_weights[streams.document[s]])
                    # Limit counts from below, because rounding of fractional weights could make a
                    # count smaller than its prior.
                    alpha_row = min(streams.document[s], last_alpha_row)
                    doc_counts[s, k] = max(doc_counts[s, k] - weight, alpha[alpha_row, k])
                    word_counts[word, k] = max(
                        word_counts[word, k] - word_weight, eta[word, np.uint64(k * eta_stride)]
                    )
                    total = max(totals[g, k] - np.float64(word_weight), MIN_TOTAL)
                    totals[g, k], inverse_totals[k] = total, one / np.float32(total)
            # Step 2: draw the topics. ``draw_from_products`` also fetches the row of the stream's
            # next word from memory.
            for position in range(n_streams):
                s = order[position]
                t, next_t = np.uint64(n_drawn[s]), np.uint64(n_drawn[s] + 1)
                streams.state[s] += GOLDEN
                # [GriffithsSteyvers04 eq. 5]
                k, weight_sum = draw_from_products(
                    doc_counts[s], inverse_totals, word_counts[streams.words[s, t]],
                    word_counts[streams.words[s, next_t]], sums,
                    make_uniform_float32(mix(streams.state[s])),
                )  # fmt: skip
                # Rounding may lead to a padding topic, or to a topic that the document must not
                # have, whose count is 0. Go back from padding to a topic below K. Then take the
                # nearest allowed topic at or below it or, if all of these are 0, above it.
                k = k if k < n_topics else max(k - LANES, 0)
                while k > 0 and doc_counts[s, np.uint64(k)] == zero:
                    k -= 1
                while doc_counts[s, np.uint64(k)] == zero:
                    k += 1
                drawn_topic[s] = k
                # p(w_i | z_-i, w_-i) is the sum of the products over the sum of alpha + n_d^{-i}.
                others_total = streams.total[s]
                if has_topics:
                    others_total -= np.float64(streams.weights[s, t])
                streams.product[s] *= max(np.float64(weight_sum) / others_total, _MIN_PROBABILITY)
            # Step 3: write the topics, and add the tokens to the counts of these topics.
            for position in range(n_streams):
                s = order[position]
                t, k = np.uint64(n_drawn[s]), drawn_topic[s]
                topics[np.uint64(streams.first_token[s] + n_drawn[s])] = k
                n_drawn[s] += 1
                if has_topics:
                    word, weight = streams.words[s, t], streams.weights[s, t]
                    word_weight = weight * np.float32(row_weights[streams.document[s]])
                    doc_counts[s, k] += weight
                    word_counts[word, k] += word_weight
                    total = totals[g, k] + np.float64(word_weight)
                    totals[g, k], inverse_totals[k] = total, one / np.float32(total)
                streams.n_multiplied[s] += 1
                if streams.n_multiplied[s] == _PROBABILITIES_PER_LOGARITHM:
                    log_probability[streams.document[s]] += log(streams.product[s])
                    streams.product[s], streams.n_multiplied[s] = 1.0, 0


@jit
def write_pseudo_counts(
    array: Array, words: IndexArray, scale: Any, eta: Array, out: Array
) -> None:
    """Write ``eta + scale * array`` of the rows ``words`` (A,) to ``out``.

    ``array`` is (V, K), and ``eta`` is (A, 1) or (A, K). ``out`` (A, W) is float32. Its values are
    clipped to COUNT_RANGE, and are 0 in the columns that pad K topics to W.
    """
    # With the stride 0, all topics share the only column of eta.
    eta_stride = 1 if eta.shape[1] > 1 else 0
    for a in range(words.size):
        row = array[words[a]]
        for k in range(row.size):
            pseudo_count = eta[a, k * eta_stride] + scale * row[k]
            out[a, k] = np.float32(min(max(pseudo_count, COUNT_RANGE[0]), COUNT_RANGE[1]))
        for k in range(row.size, out.shape[1]):
            out[a, k] = np.float32(0.0)


@jit
def list_tokens_by_word(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    token_indptr: IndexArray, row_weights: Array, word_token_indptr: IndexArray, tokens: IndexArray,
    weights: Array,
) -> bool:  # fmt: skip
    """Write the tokens sorted by word, and their weights; return whether all weights are 1.

    The tokens of word a are ``tokens[word_token_indptr[a]:word_token_indptr[a + 1]]``. Their
    weights include the weights of their documents. ``word_indptr``, ``documents`` and ``entries``
    are the lists of :func:`~skvt.models.lda._kernels.copy_rows`, and ``token_indptr`` has the
    number of the first token of each entry.
    """
    t, are_all_one = 0, True
    word_token_indptr[0] = 0
    for a in range(word_indptr.size - 1):
        for e in range(word_indptr[a], word_indptr[a + 1]):
            j = entries[e]
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            for i in range(n_tokens):
                tokens[t] = token_indptr[j] + i
                weights[t] = row_weights[documents[e]] * capped_token_weight(counts[j], i, n_tokens)
                are_all_one = are_all_one and weights[t] == lit(weights[t], 1.0)
                t += 1
        word_token_indptr[a + 1] = t
    return are_all_one


@jit
def write_count_changes(
    word_token_indptr: IndexArray, tokens: IndexArray, weights: Any, old_topics: Any,
    new_topics: IndexArray, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write to ``out[a, k]`` the change of the weight of the tokens of word a in topic k.

    ``word_token_indptr``, ``tokens`` and ``weights`` are results of :func:`list_tokens_by_word`;
    all weights are 1 if ``weights`` is None. ``old_topics`` and ``new_topics`` (tokens,) are the
    topics of the tokens before and after the sweep; no token had a topic if ``old_topics`` is None.
    """
    for a in claim_items(counter, WORDS_PER_CLAIM, word_token_indptr.size - 1):
        for k in range(out.shape[1]):
            out[a, k] = lit(out[a, k], 0.0)
        for t in range(word_token_indptr[a], word_token_indptr[a + 1]):
            token, weight = tokens[t], lit(out[a, 0], 1.0)
            if weights is not None:
                weight = weights[t]
            new_topic = new_topics[token]
            if old_topics is None:
                out[a, new_topic] += weight
            else:
                old_topic = old_topics[token]
                if old_topic != new_topic:
                    out[a, new_topic] += weight
                    out[a, old_topic] -= weight


@jit
def add_log_proportions(
    counts: Array, weights: Array, alpha: Array, digamma_alpha: Array, sums: Array
) -> None:
    """Add ``sum_d w_d (psi(alpha_k + n_dk) - psi(alpha_k))`` to ``sums[k]``.

    n_dk are ``counts`` (n, K), w_d are the ``weights`` (n,) of the documents, and
    ``digamma_alpha[k]`` is psi(alpha_k).
    """
    for d in range(counts.shape[0]):
        for k in range(counts.shape[1]):
            if counts[d, k] > lit(counts[d, k], 0.0):
                digamma_posterior = digamma(alpha[k] + np.float64(counts[d, k]))
                sums[k] += weights[d] * (digamma_posterior - digamma_alpha[k])


@jit_inlined
def _compute_digamma_rise(x: float, n: float) -> float:
    """Return psi(x + n) - psi(x), computed as a sum of n reciprocals if n is small and whole."""
    if n > MAX_RECIPROCALS or n != np.floor(n):
        return digamma(x + n) - digamma(x)
    rise = 0.0
    for i in range(np.int64(n)):
        rise += 1.0 / (x + i)
    return rise


@jit
def write_count_derivatives(counts: Array, alpha: Array, gradient: Array, curvature: Array) -> None:
    """Write derivatives of log p(z_d | alpha_d) of each document with respect to log alpha_dk.

    ``counts`` (n, K) are the weights of the tokens in each topic, and ``alpha`` (n, K) the priors.
    ``gradient`` (n, K) is the first derivative. ``curvature`` (n, K) is minus the second derivative
    of a lower bound [Minka00 eq. 55].
    """
    for d in range(counts.shape[0]):
        alpha_sum, n_tokens = 0.0, 0.0
        for k in range(counts.shape[1]):
            alpha_sum += alpha[d, k]
            n_tokens += np.float64(counts[d, k])
        sum_rise = _compute_digamma_rise(alpha_sum, n_tokens)
        for k in range(counts.shape[1]):
            curvature[d, k] = sum_rise * alpha[d, k]
            gradient[d, k] = -curvature[d, k]
            if counts[d, k] > lit(counts[d, k], 0.0):
                topic_rise = _compute_digamma_rise(alpha[d, k], np.float64(counts[d, k]))
                gradient[d, k] += alpha[d, k] * topic_rise
