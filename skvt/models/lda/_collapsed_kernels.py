"""Compiled loops of collapsed Gibbs sampling: topics and proportions are summed out.

The topic of a token given those of all others [GriffithsSteyvers04 eq. 5],

    p(z_i = k | z_-i, w) ~ (alpha_k + n_dk^{-i}) (eta_w + n_wk^{-i}) / (sum_v eta_v + n_k^{-i}),

is computed for all topics by vector instructions. There are no branches to predict, and up to a few
hundred topics this is faster than the sparse sums that other samplers keep.

Documents are divided into groups, each of which is sampled by one thread. A group begins with a
copy of the counts over all documents and sees no changes by other groups during the sweep (Newman,
Asuncion, Smyth and Welling 2009). Within a group the draws of a few documents are interleaved: each
instruction of a draw waits for the one before, and draws of other documents fill the time. Tokens
that are drawn at the same time do not see each other's changes. Groups and order depend on the data
alone, so the result is the same for any number of threads.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import (
    CLAIMS,
    GOLDEN,
    LANES,
    aligned,
    claim,
    digamma,
    draw_of_product,
    finish,
    jit,
    lit,
    log,
    mix,
    part,
    unit,
)
from skvt.models.lda._kernels import WORDS
from skvt.models.lda._sampling import token_weight
from skvt.typing import Array, IndexArray

# Number of token probabilities that are multiplied before a logarithm is taken.
_MULTIPLIED = 8
# Maximum number of tokens of an entry; larger counts are divided into tokens of equal weight.
MOST_TOKENS = 1000
# Smallest probability of a token: a product of ``_MULTIPLIED`` smaller ones could underflow.
_LEAST = 1e-30
# Up to this whole number n, psi(x + n) - psi(x) is computed as a sum of n reciprocals.
MOST_RECIPROCALS = 16.0
# Smallest total of a topic, to which rounding errors are clipped.
LEAST_TOTAL = 1e-15


def token_bounds(counts: Array) -> IndexArray:
    """Return where the tokens of each entry begin: ceil(count) tokens, at most MOST_TOKENS."""
    out = np.zeros(counts.size + 1, np.int64)
    np.cumsum(np.ceil(np.minimum(counts, MOST_TOKENS)).astype(np.int64), out=out[1:])
    return out


@part
def weight_of(count: Any, position: int, n_tokens: int) -> Any:
    """Return the weight of a token: equal weights of a large count, else ``token_weight``."""
    if count > lit(count, 1.0 * MOST_TOKENS):
        return count / lit(count, 1.0 * MOST_TOKENS)
    return token_weight(count, position, n_tokens)


class _Streams(NamedTuple):
    """Documents whose draws are interleaved, one in each of S streams; W and L as below."""

    # (S,): numbers of the streams, active ones first; topic that was drawn last; state of the
    # random numbers.
    order: NDArray[np.uint64]
    topic: NDArray[np.uint64]
    state: NDArray[np.uint64]
    # (S,): row of the document, its first token, its number of tokens, number of those drawn.
    document: IndexArray
    begin: IndexArray
    size: IndexArray
    place: IndexArray
    # (S,): number of probabilities in the current product, and the product.
    n_multiplied: IndexArray
    product: Array
    # (S,): sum of the document's counts and alpha; of alpha alone while tokens are not placed.
    weight: Array
    # (S, L + 1) and (S, L): words and weights of the document's tokens; the last word is repeated.
    words: NDArray[np.uint32]
    weights: Array
    # (S, W): ``alpha + n_d``.
    own: Array


def collapsed_steps(n_streams: int, *arguments: Any) -> None:
    """Allocate scratch and call :func:`_collapsed_steps`: the task of one thread."""
    indptr, token_indptr, lam = arguments[0], arguments[3], arguments[9]
    n_words, width = lam.shape
    longest = np.diff(token_indptr[indptr]).max(initial=1)
    numbers: list[Array] = []
    for n, dtype in (3, np.uint64), (5, np.int64), (2, np.float64):
        numbers.extend(np.empty((n, n_streams), dtype))
    words = np.empty((n_streams, longest + 1), np.uint32)
    weights = np.empty((n_streams, longest), np.float32)
    doc_counts = aligned(n_streams, width)
    streams = _Streams._make([*numbers, words, weights, doc_counts])
    table, inverse, sums = aligned(n_words, width), aligned(1, width)[0], aligned(1, width)[0]
    _collapsed_steps(*arguments[:-1], table, inverse, sums, streams, arguments[-1])


@part
def _begin_document(
    s: Any, d: int, indptr: IndexArray, words: IndexArray, counts: Array,
    token_indptr: IndexArray, seeds: NDArray[np.uint64], alpha: Array, placed: bool,
    topics: IndexArray, streams: Any,
) -> None:  # fmt: skip
    """Begin document d, which has at least one token, in stream s."""
    begin, total, t = token_indptr[indptr[d]], 0.0, 0
    of_prior = min(d, alpha.shape[0] - 1)
    for k in range(alpha.shape[1]):
        streams.own[s, k] = alpha[of_prior, k]
        total += np.float64(alpha[of_prior, k])
    for j in range(indptr[d], indptr[d + 1]):
        n_tokens = token_indptr[j + 1] - token_indptr[j]
        for i in range(n_tokens):
            weight = np.float32(weight_of(counts[j], i, n_tokens))
            streams.words[s, t], streams.weights[s, t] = words[j], weight
            if placed:
                streams.own[s, topics[begin + t]] += weight
                total += np.float64(weight)
            t += 1
    streams.words[s, t] = streams.words[s, t - 1]
    streams.document[s], streams.begin[s], streams.size[s], streams.place[s] = d, begin, t, 0
    streams.state[s], streams.weight[s] = seeds[d], total
    streams.product[s], streams.n_multiplied[s] = 1.0, 0


@part
def _end_document(
    s: Any, topics: IndexArray, of_topics: Array, log_probability: Array, streams: Any
) -> None:
    """Write counts and log probability of the document that stream s has finished."""
    d, begin = streams.document[s], streams.begin[s]
    log_probability[d] += log(streams.product[s])
    for t in range(streams.size[s]):
        of_topics[d, topics[begin + t]] += streams.weights[s, t]


@jit
def _collapsed_steps(
    indptr: IndexArray, words: IndexArray, counts: Array, token_indptr: IndexArray,
    row_weights: Array, seeds: NDArray[np.uint64], alpha: Array, prior: Array, groups: IndexArray,
    lam: Array, totals: Array, placed: bool, topics: IndexArray, of_topics: Array,
    log_probability: Array, table: Array, inverse: Array, sums: Array, streams: Any,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Draw the topic of each token given those of all others, group by group.

    If tokens are not ``placed`` yet, they are drawn given alpha and the topics alone.

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    token_indptr : (nnz + 1,) where each entry's tokens begin
    row_weights : (n,)
    seeds : (n,) uint64
    alpha : float32 (1, W) or (n, W) prior of proportions of all documents or of each; 0 for topics
        that a document must not have, and beyond K topics
    prior : float32 (A, 1) or (A, K) eta of the words
    groups : (G + 1,) where the documents of each group begin
    lam : float32 (A, W) ``eta + n``; 0 beyond K topics
    totals : float64 (G, K) for each group ``sum eta + n``, changed
    topics : (tokens,) topic of each token, written
    of_topics : float32 (n, K) zeros; tokens of each document in each topic are added
    log_probability : float64 (n,) zeros; the sum of ``log p(w_i | z_-i, w_-i)`` is added
    table, inverse, sums : float32 scratch, (A, W), (W,) and (W,)
    streams : :class:`_Streams`, scratch; L is the number of tokens of the longest document
    """
    n_topics, one, last = totals.shape[1], lit(alpha[0, 0], 1.0), alpha.shape[0] - 1
    wide, nothing = 1 if prior.shape[1] > 1 else 0, lit(one, 0.0)
    order, place, own, topic = streams.order, streams.place, streams.own, streams.topic
    for _ in range(CLAIMS):
        g, stop_group = claim(counter, np.int64(1), groups.size - 1)
        if g >= stop_group:
            break
        for a in range(lam.shape[0]):
            for k in range(lam.shape[1]):
                table[a, k] = lam[a, k]
        for k in range(inverse.size):
            inverse[k] = one / np.float32(totals[g, k]) if k < n_topics else lit(one, 0.0)
        following, stop, n_streams = groups[g], groups[g + 1], order.size
        for s in range(order.size):
            order[s], streams.document[s], streams.size[s], place[s] = s, -1, 0, 0
        while n_streams > 0:
            at = 0
            while at < n_streams:
                s = order[at]
                if place[s] == streams.size[s]:
                    if streams.document[s] >= 0:
                        _end_document(s, topics, of_topics, log_probability, streams)
                    while following < stop and (
                        token_indptr[indptr[following]] == token_indptr[indptr[following + 1]]
                    ):
                        following += 1
                    if following == stop:
                        n_streams -= 1
                        order[at] = order[n_streams]
                        continue
                    _begin_document(
                        s, following, indptr, words, counts, token_indptr, seeds, alpha, placed,
                        topics, streams,
                    )  # fmt: skip
                    following += 1
                at += 1
                if placed:
                    # The index is unsigned, so that the compiler omits the case below 0.
                    t = np.uint64(place[s])
                    word, weight = streams.words[s, t], streams.weights[s, t]
                    k = topics[np.uint64(streams.begin[s] + place[s])]
                    in_all = weight * np.float32(row_weights[streams.document[s]])
                    # Rounding of fractional weights may lead below the prior.
                    of_prior = min(streams.document[s], last)
                    own[s, k] = max(own[s, k] - weight, alpha[of_prior, k])
                    table[word, k] = max(table[word, k] - in_all, prior[word, np.uint64(k * wide)])
                    total = max(totals[g, k] - np.float64(in_all), LEAST_TOTAL)
                    totals[g, k], inverse[k] = total, one / np.float32(total)
            for at in range(n_streams):
                s = order[at]
                t, after = np.uint64(place[s]), np.uint64(place[s] + 1)
                streams.state[s] += GOLDEN
                # [GriffithsSteyvers04 eq. 5]
                k, total = draw_of_product(
                    own[s], inverse, table[streams.words[s, t]],
                    table[streams.words[s, after]], sums, unit(mix(streams.state[s])),
                )  # fmt: skip
                # Rounding may lead to a padding topic beyond K, or to one that is not allowed.
                k = k if k < n_topics else max(k - LANES, 0)
                while k > 0 and own[s, np.uint64(k)] == nothing:
                    k -= 1
                while own[s, np.uint64(k)] == nothing:
                    k += 1
                topic[s] = k
                others = streams.weight[s]
                if placed:
                    others -= np.float64(streams.weights[s, t])
                streams.product[s] *= max(np.float64(total) / others, _LEAST)
            for at in range(n_streams):
                s = order[at]
                t, k = np.uint64(place[s]), topic[s]
                topics[np.uint64(streams.begin[s] + place[s])] = k
                place[s] += 1
                if placed:
                    word, weight = streams.words[s, t], streams.weights[s, t]
                    in_all = weight * np.float32(row_weights[streams.document[s]])
                    own[s, k] += weight
                    table[word, k] += in_all
                    total = totals[g, k] + np.float64(in_all)
                    totals[g, k], inverse[k] = total, one / np.float32(total)
                streams.n_multiplied[s] += 1
                if streams.n_multiplied[s] == _MULTIPLIED:
                    log_probability[streams.document[s]] += log(streams.product[s])
                    streams.product[s], streams.n_multiplied[s] = 1.0, 0
        finish(counter, g, stop_group)


@jit
def pseudo_counts(
    array: Array, words: IndexArray, scale: Any, prior: Array, low: Any, high: Any, out: Array
) -> None:
    """Write ``prior + scale * array``, float32, clipped to low and high; 0 beyond K topics."""
    wide = 1 if prior.shape[1] > 1 else 0
    for a in range(words.size):
        source = array[words[a]]
        for k in range(source.size):
            value = prior[a, k * wide] + scale * source[k]
            out[a, k] = np.float32(min(max(value, low), high))
        for k in range(source.size, out.shape[1]):
            out[a, k] = np.float32(0.0)


@jit
def tokens_by_word(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    token_indptr: IndexArray, row_weights: Array, word_tokens: IndexArray, tokens: IndexArray,
    weights: Array,
) -> bool:  # fmt: skip
    """Write the tokens sorted by word, and their weights; return whether all weights are 1.

    The tokens of word a are ``tokens[word_tokens[a]:word_tokens[a + 1]]``.
    """
    t, alike = 0, True
    word_tokens[0] = 0
    for a in range(word_indptr.size - 1):
        for e in range(word_indptr[a], word_indptr[a + 1]):
            j = entries[e]
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            for i in range(n_tokens):
                tokens[t] = token_indptr[j] + i
                weights[t] = row_weights[documents[e]] * weight_of(counts[j], i, n_tokens)
                alike = alike and weights[t] == lit(weights[t], 1.0)
                t += 1
        word_tokens[a + 1] = t
    return alike


@jit
def changed_statistics(
    word_tokens: IndexArray, tokens: IndexArray, weights: Any, before: Any, after: IndexArray,
    out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write the change of the weighted tokens of word a in topic k to ``out[a, k]``.

    If ``before`` is None, no token had a topic; if ``weights`` is None, all are 1.
    """
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, word_tokens.size - 1)
        if start >= stop:
            break
        for a in range(start, stop):
            for k in range(out.shape[1]):
                out[a, k] = lit(out[a, k], 0.0)
            for t in range(word_tokens[a], word_tokens[a + 1]):
                token, weight = tokens[t], lit(out[a, 0], 1.0)
                if weights is not None:
                    weight = weights[t]
                k = after[token]
                if before is None:
                    out[a, k] += weight
                else:
                    old = before[token]
                    if old != k:
                        out[a, k] += weight
                        out[a, old] -= weight
        finish(counter, start, stop)


@jit
def add_log_proportions(
    counts: Array, weights: Array, alpha: Array, of_none: Array, sums: Array
) -> None:
    """Add ``sum_d w_d (psi(alpha_k + n_dk) - psi(alpha_k))`` to ``sums[k]``.

    ``of_none[k]`` is psi(alpha_k).
    """
    for d in range(counts.shape[0]):
        for k in range(counts.shape[1]):
            if counts[d, k] > lit(counts[d, k], 0.0):
                value = digamma(alpha[k] + np.float64(counts[d, k]))
                sums[k] += weights[d] * (value - of_none[k])


@part
def _rise_of_digamma(x: float, n: float) -> float:
    """Return psi(x + n) - psi(x), for a small whole number n as a sum of reciprocals."""
    if n > MOST_RECIPROCALS or n != np.floor(n):
        return digamma(x + n) - digamma(x)
    value = 0.0
    for i in range(np.int64(n)):
        value += 1.0 / (x + i)
    return value


@jit
def derivatives_of_counts(counts: Array, alpha: Array, gradient: Array, curvature: Array) -> None:
    """Write derivatives with respect to log alpha, (n, K) each.

    ``gradient`` is the first derivative of the log probability of the drawn topics, ``curvature``
    minus the second derivative of a lower bound of it [Minka00 eq. 55].
    """
    for d in range(counts.shape[0]):
        total, size = 0.0, 0.0
        for k in range(counts.shape[1]):
            total += alpha[d, k]
            size += np.float64(counts[d, k])
        rise = _rise_of_digamma(total, size)
        for k in range(counts.shape[1]):
            curvature[d, k] = rise * alpha[d, k]
            gradient[d, k] = -curvature[d, k]
            if counts[d, k] > lit(counts[d, k], 0.0):
                of_topic = _rise_of_digamma(alpha[d, k], np.float64(counts[d, k]))
                gradient[d, k] += alpha[d, k] * of_topic
