"""Compiled loops of collapsed Gibbs sampling at a cost that many topics hardly change.

The probabilities of [GriffithsSteyvers04 eq. 5] fall into two parts,

    p(z_i = k | z_-i, w) ~ n_dk^{-i} phi_k + alpha_k phi_k,  phi_k = (eta_w + n_wk^{-i}) / n_k^{-i},

with n_k for the sum over words, prior included. The first is a sum over the topics that the
document has. Of the second, sums over blocks of topics are kept, one of which a change of a count
changes (after Yu, Hsieh, Yun, Vishwanathan and Dhillon 2015). Tokens are visited word by word: the
counts of one word are at hand, and those of a document lie together.

Groups of documents are those of :mod:`skvt.models.lda._collapsed_kernels`. Tokens of a group are
drawn one after the other.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import (
    CLAIMS,
    GOLDEN,
    claim,
    finish,
    jit,
    lit,
    log,
    mix,
    part,
    uniform,
)
from skvt.models.lda._collapsed_kernels import LEAST_TOTAL, weight_of
from skvt.typing import Array, IndexArray

# Topics whose sum is kept, and sums whose sum is.
BLOCK = 16
# Below this a product of probabilities gives way to its logarithm.
_SMALL = 1e-200
# What a probability in the product is at least.
_LEAST = 1e-30


class Proportions(NamedTuple):
    """Tokens of each document in its topics, which begin at ``first[d]``.

    Attributes
    ----------
    topic, held : int32, shape (M,)
        Topics, and how many tokens of the document each has.
    counts : float32, shape (M,)
        Their weights.
    first, size : ndarray of int64, shape (n + 1,) and (n,)
        How many topics there are.
    total : float64, shape (n,)
        Of the counts, and alpha.
    """

    topic: IndexArray
    held: IndexArray
    counts: Array
    first: IndexArray
    size: IndexArray
    total: Array


def no_proportions(n_tokens: IndexArray, n_topics: int) -> Proportions:
    """Room for documents of these numbers of tokens."""
    first = np.zeros(n_tokens.size + 1, np.int64)
    np.cumsum(np.minimum(n_tokens, n_topics), out=first[1:])
    topic, held = np.empty((2, first[-1]), np.int32)
    count, total = np.empty(first[-1], np.float32), np.empty(n_tokens.size)
    return Proportions(topic, held, count, first, np.zeros(n_tokens.size, np.int64), total)


class _Scratch(NamedTuple):
    """Of a thread.

    Attributes
    ----------
    counts, inverse, phi : float32 (K,) ``eta_w + n_wk`` of the word, ``1 / n_k``, their product
    of_prior : float64 (B,) sums of ``alpha_k / n_k`` over blocks
    blocks, ranges : float64 (B,), (R,) sums of ``alpha_k phi_k`` over blocks, over ranges of these
    sums : float64 (K,) of the first part up to each topic of the document
    places : int64 (K,) 0, where a topic may be among those of the document
    """

    counts: Array
    inverse: Array
    phi: Array
    of_prior: Array
    blocks: Array
    ranges: Array
    sums: Array
    places: IndexArray


def sparse_steps(*arguments: Any) -> None:
    """:func:`_sparse_steps` with scratch of its own: the task of a thread."""
    n_topics = arguments[-2].shape[1]
    n_blocks = -(-n_topics // BLOCK)
    sizes = n_blocks, n_blocks, -(-n_blocks // BLOCK), n_topics
    single, places = np.empty((3, n_topics), np.float32), np.zeros(n_topics, np.int64)
    scratch = _Scratch._make([*single, *map(np.empty, sizes), places])
    _sparse_steps(*arguments[:-1], scratch, arguments[-1])


@part
def _put(d: Any, place: Any, k: Any, weight: Any, proportions: Any) -> None:
    """A token of document d goes to topic k, which is at this place or, if it is the end, new."""
    if place == proportions.first[d] + proportions.size[d]:
        proportions.topic[place], proportions.held[place] = k, 0
        proportions.counts[place] = lit(weight, 0.0)
        proportions.size[d] += 1
    proportions.held[place] += 1
    proportions.counts[place] += weight


@part
def _shift(k: Any, change: Any, least: Any, alpha: Array, totals: Array, scratch: Any) -> Any:
    """Count tokens in or out of topic k; returns by how much the sum of the second part changes."""
    inverse, phi = np.float64(scratch.inverse[k]), np.float64(scratch.phi[k])
    # of fractional weights rounding leaves a rest
    scratch.counts[k] = max(scratch.counts[k] + change, least)
    totals[k] = max(totals[k] + np.float64(change), LEAST_TOTAL)
    scratch.inverse[k] = np.float32(1.0 / totals[k])
    scratch.phi[k] = scratch.counts[k] * scratch.inverse[k]
    factor, b = np.float64(alpha[k]), k // BLOCK
    scratch.of_prior[b] += factor * (np.float64(scratch.inverse[k]) - inverse)
    added = factor * (np.float64(scratch.phi[k]) - phi)
    scratch.blocks[b] += added
    scratch.ranges[b // BLOCK] += added
    return added


@part
def _of_second_part(number: Any, alpha: Array, scratch: Any) -> Any:
    """The topic at which the sums of ``alpha_k phi_k`` pass a number."""
    r: Any = np.int64(0)
    while r < scratch.ranges.size - 1 and number >= scratch.ranges[r]:
        number -= scratch.ranges[r]
        r += 1
    b, last = r * BLOCK, min((r + 1) * BLOCK, scratch.blocks.size) - 1
    while b < last and number >= scratch.blocks[b]:
        number -= scratch.blocks[b]
        b += 1
    k, last = b * BLOCK, min((b + 1) * BLOCK, alpha.size) - 1
    while k < last:
        value = np.float64(alpha[k]) * np.float64(scratch.phi[k])
        if number < value:
            break
        number -= value
        k += 1
    return k


@jit
def _sparse_steps(
    indptr: IndexArray,
    word_indptr: IndexArray,
    documents: IndexArray,
    entries: IndexArray,
    counts: Array,
    token_indptr: IndexArray,
    row_weights: Array,
    states: NDArray[np.uint64],
    alpha: Array,
    prior: Array,
    groups: IndexArray,
    count_indptr: IndexArray,
    count_topics: IndexArray,
    count_values: Array,
    placed: bool,
    topics: IndexArray,
    proportions: Any,
    products: Array,
    log_probability: Array,
    totals: Array,
    scratch: Any,
    counter: IndexArray,
) -> None:
    """Draw the topic of each token given those of all others, group by group, word by word.

    Tokens that are not ``placed`` yet are drawn given the topics alone: alpha is 1 then.

    Parameters
    ----------
    indptr : (n + 1,) where the entries of each document begin
    word_indptr, documents, entries : the entries of each word
    counts, token_indptr : of the entries, and where the tokens of each begin
    row_weights : (n,)
    states : (n,) uint64 of each document's random numbers, changed
    alpha : float32 (K,) prior of proportions
    prior : float32 (A,) eta of the words
    groups : (G + 1,) where the documents of each group begin
    count_indptr, count_topics, count_values : CSR of ``n_wk`` (float32) of the words
    topics : (tokens,) topic of each token, written
    proportions : :class:`Proportions`, to be filled
    products : float64 (n,) 1, scratch
    log_probability : float64 (n,) 0, the sum of ``log p(w_i | z_-i, w_-i)`` is written
    totals : float64 (G, K) for each group ``sum eta + n``, changed
    scratch : :class:`_Scratch`
    """
    n_topics, n_blocks, sum_of_alpha = totals.shape[1], scratch.blocks.size, 0.0
    for k in range(n_topics):
        sum_of_alpha += np.float64(alpha[k])
    for _ in range(CLAIMS):
        g, stop_group = claim(counter, np.int64(1), groups.size - 1)
        if g >= stop_group:
            break
        own = totals[g]
        for d in range(groups[g], groups[g + 1]):
            proportions.total[d] = sum_of_alpha
            if placed:
                for j in range(indptr[d], indptr[d + 1]):
                    n_tokens = token_indptr[j + 1] - token_indptr[j]
                    for i in range(n_tokens):
                        weight = np.float32(weight_of(counts[j], i, n_tokens))
                        k = topics[token_indptr[j] + i]
                        first, size = proportions.first[d], proportions.size[d]
                        # (of another document, unless the topic is there)
                        place = min(scratch.places[k], size)
                        if place == size or proportions.topic[first + place] != k:
                            place = scratch.places[k] = size
                        _put(d, first + place, k, weight, proportions)
                        proportions.total[d] += np.float64(weight)
        for b in range(n_blocks):
            scratch.of_prior[b] = 0.0
            for k in range(b * BLOCK, min((b + 1) * BLOCK, n_topics)):
                scratch.inverse[k] = np.float32(1.0 / own[k])
                scratch.of_prior[b] += np.float64(alpha[k]) * np.float64(scratch.inverse[k])
        for a in range(word_indptr.size - 1):
            start, stop = word_indptr[a], word_indptr[a + 1]
            while start < stop:  # (documents of a word are in order)
                middle = (start + stop) // 2
                if documents[middle] < groups[g]:
                    start = middle + 1
                else:
                    stop = middle
            stop = word_indptr[a + 1]
            if start == stop or documents[start] >= groups[g + 1]:
                continue
            eta, second = prior[a], 0.0
            for k in range(n_topics):
                scratch.counts[k] = eta
                scratch.phi[k] = eta * scratch.inverse[k]
            for b in range(n_blocks):
                scratch.blocks[b] = np.float64(eta) * scratch.of_prior[b]
            for i in range(count_indptr[a], count_indptr[a + 1]):
                k = int(count_topics[i])
                scratch.counts[k] += count_values[i]
                scratch.phi[k] = scratch.counts[k] * scratch.inverse[k]
                scratch.blocks[k // BLOCK] += np.float64(alpha[k]) * np.float64(
                    count_values[i] * scratch.inverse[k]
                )
            for r in range(scratch.ranges.size):
                scratch.ranges[r] = 0.0
                for b in range(r * BLOCK, min((r + 1) * BLOCK, n_blocks)):
                    scratch.ranges[r] += scratch.blocks[b]
                second += scratch.ranges[r]
            for e in range(start, stop):
                d, j = documents[e], entries[e]
                if d >= groups[g + 1]:
                    break
                n_tokens, first = token_indptr[j + 1] - token_indptr[j], proportions.first[d]
                for i in range(n_tokens):
                    t = token_indptr[j] + i
                    weight = np.float32(weight_of(counts[j], i, n_tokens))
                    in_all = weight * np.float32(row_weights[d])
                    size, total, others = proportions.size[d], 0.0, np.float64(n_topics)
                    if placed:
                        before, place = np.int64(topics[t]), np.int64(0)
                        second += _shift(before, -in_all, eta, alpha, own, scratch)
                        for m in range(size):
                            k = int(proportions.topic[first + m])
                            count = proportions.counts[first + m]
                            if k == before:
                                place, count = first + m, count - weight
                            total += np.float64(count * scratch.phi[k])
                            scratch.sums[m] = total
                        proportions.held[place] -= 1
                        proportions.counts[place] -= weight
                        others = proportions.total[d] - np.float64(weight)
                    whole = total + second
                    states[d] += GOLDEN
                    number = uniform(mix(states[d])) * whole
                    m, from_own = 0, number < total
                    if from_own:
                        while m < size - 1 and scratch.sums[m] <= number:
                            m += 1
                        k = int(proportions.topic[first + m])
                        _put(d, first + m, k, weight, proportions)
                    else:
                        k = _of_second_part(number - total, alpha, scratch)
                    if placed:
                        if proportions.held[place] == 0:
                            size -= 1
                            proportions.topic[place] = proportions.topic[first + size]
                            proportions.held[place] = proportions.held[first + size]
                            proportions.counts[place] = proportions.counts[first + size]
                            proportions.size[d] = size
                        second += _shift(k, in_all, eta, alpha, own, scratch)
                    if not from_own:
                        while m < size and proportions.topic[first + m] != k:
                            m += 1
                        _put(d, first + m, k, weight, proportions)
                    topics[t] = k
                    products[d] *= max(whole / others, _LEAST)
                    if products[d] < _SMALL:
                        log_probability[d] += log(products[d])
                        products[d] = 1.0
        for d in range(groups[g], groups[g + 1]):
            log_probability[d] += log(products[d])
        finish(counter, g, stop_group)


@jit
def present_counts(
    array: Array, words: IndexArray, scale: Any, high: Any, indptr: IndexArray,
    topics: IndexArray, values: Array,
) -> None:  # fmt: skip
    """CSR of ``scale * array`` of the words, where it is above 0; float32, up to ``high``."""
    n = np.int64(0)
    indptr[0] = 0
    for a in range(words.size):
        source = array[words[a]]
        for k in range(source.size):
            if source[k] > lit(source[k], 0.0):
                topics[n] = k
                values[n] = np.float32(min(scale * source[k], high))
                n += 1
        indptr[a + 1] = n
