"""Compiled loops of collapsed Gibbs sampling: topics and proportions are summed out.

The topic of a token given those of all others [GriffithsSteyvers04 eq. 5],

    p(z_i = k | z_-i, w) ~ (alpha_k + n_dk^{-i}) (eta_w + n_wk^{-i}) / (sum_v eta_v + n_k^{-i}),

is computed for all topics, side by side: that leaves the processor nothing to guess, and of up to a
few hundred topics is no slower than the sparse sums that other samplers keep.

Documents are in groups, which threads take one after the other. A group begins with the counts of
all, and sees no changes of other groups during the sweep (Newman, Asuncion, Smyth and Welling
2009). The data alone fix the groups, so the result is the same for any number of threads.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import CLAIMS, GOLDEN, claim, finish, jit, lit, log, mix, part, unit
from skvt.models.lda._kernels import WORDS
from skvt.models.lda._sampling import token_weight
from skvt.typing import Array, IndexArray

# Topics stand in lines of so many: a line is summed on vectors, and a draw first finds its line.
LANES = 16
# Probabilities of so many tokens are multiplied before a logarithm is taken.
_MULTIPLIED = 8
# An entry of a larger count is so many tokens of equal weight.
MOST_TOKENS = 1000
# Below this probability a product of ``_MULTIPLIED`` would underflow.
_LEAST = 1e-30
# What rounding leaves at least of a topic's total.
_LEAST_TOTAL = 1e-15


def token_bounds(counts: Array) -> IndexArray:
    """Where the tokens of each entry begin, (nnz + 1,): ceil(count) of them, or MOST_TOKENS."""
    out = np.zeros(counts.size + 1, np.int64)
    np.cumsum(np.ceil(np.minimum(counts, MOST_TOKENS)).astype(np.int64), out=out[1:])
    return out


@part
def _weight(count: Any, position: int, n_tokens: int) -> Any:
    """Whole tokens have weight 1, the last of a fractional count the rest; all alike of many."""
    if count > lit(count, 1.0 * MOST_TOKENS):
        return count / lit(count, 1.0 * MOST_TOKENS)
    return token_weight(count, position, n_tokens)


def collapsed_steps(*arguments: Any) -> None:
    """:func:`_collapsed_steps` with scratch of its own: the task of a thread."""
    lam = arguments[9]
    width = lam.shape[1]
    scratch = np.empty((3, width), np.float32), np.empty(width // LANES, np.float32)
    _collapsed_steps(*arguments[:-1], np.empty_like(lam), *scratch, arguments[-1])


@jit
def _collapsed_steps(
    indptr: IndexArray,
    words: IndexArray,
    counts: Array,
    token_indptr: IndexArray,
    row_weights: Array,
    seeds: NDArray[np.uint64],
    alpha: Array,
    prior: Array,
    groups: IndexArray,
    lam: Array,
    totals: Array,
    placed: bool,
    topics: IndexArray,
    of_topics: Array,
    log_probability: Array,
    table: Array,
    of_topic: Array,
    line_sums: Array,
    counter: IndexArray,
) -> None:
    """Draw the topic of each token given those of all others, group by group.

    Tokens that are not ``placed`` yet are drawn given the topics alone, by ``p ~ E[beta_kw]``.

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    token_indptr : (nnz + 1,) where each entry's tokens begin
    row_weights : (n,)
    seeds : (n,) uint64
    alpha : float32 (W,) prior of proportions; of topics beyond K it is 0
    prior : float32 (A, 1) or (A, K) eta of the words
    groups : (G + 1,) where the documents of each group begin
    lam : float32 (A, W) ``eta + n``; of topics beyond K it is 0
    totals : float64 (G, K) for each group ``sum eta + n``, changed
    topics : (tokens,) topic of each token, written
    of_topics : float32 (n, K) tokens of each document in each topic, 0, written
    log_probability : float64 (n,) 0, the sum of ``log p(w_i | z_-i, w_-i)`` is written
    table, of_topic, line_sums : float32 scratch, (A, W), (3, W) and (W / LANES,)
    """
    n_topics, n_lines = totals.shape[1], line_sums.size
    zero, one = lit(alpha[0], 0.0), lit(alpha[0], 1.0)
    wide = 1 if prior.shape[1] > 1 else 0
    own, inverse, factor = of_topic[0], of_topic[1], of_topic[2]
    sum_alpha = 0.0
    for k in range(n_topics):
        sum_alpha += np.float64(alpha[k])
    for _ in range(CLAIMS):
        g, stop_group = claim(counter, np.int64(1), groups.size - 1)
        if g >= stop_group:
            break
        for a in range(lam.shape[0]):
            for k in range(lam.shape[1]):
                table[a, k] = lam[a, k]
        for k in range(own.size):
            own[k], inverse[k], factor[k] = zero, zero, zero
        for k in range(n_topics):
            inverse[k] = one / np.float32(totals[g, k])
        for d in range(groups[g], groups[g + 1]):
            size = 0.0
            for k in range(own.size):
                own[k] = zero
            if placed:
                for j in range(indptr[d], indptr[d + 1]):
                    n_tokens = token_indptr[j + 1] - token_indptr[j]
                    for i in range(n_tokens):
                        weight = np.float32(_weight(counts[j], i, n_tokens))
                        own[topics[token_indptr[j] + i]] += weight
                        size += np.float64(weight)
            for k in range(own.size):
                factor[k] = (own[k] + alpha[k]) * inverse[k] if placed else inverse[k]
            state, product, n_multiplied = seeds[d], 1.0, 0
            for j in range(indptr[d], indptr[d + 1]):
                word, n_tokens = words[j], token_indptr[j + 1] - token_indptr[j]
                for i in range(token_indptr[j], token_indptr[j + 1]):
                    weight = np.float32(_weight(counts[j], i - token_indptr[j], n_tokens))
                    in_all = weight * np.float32(row_weights[d])
                    before = np.int64(topics[i])
                    if placed:
                        # of fractional weights rounding leaves a rest
                        own[before] = max(own[before] - weight, zero)
                        floor = prior[word, before * wide]
                        table[word, before] = max(table[word, before] - in_all, floor)
                        totals[g, before] = max(
                            totals[g, before] - np.float64(in_all), _LEAST_TOTAL
                        )
                        inverse[before] = one / np.float32(totals[g, before])
                        factor[before] = (own[before] + alpha[before]) * inverse[before]
                    # a loop of its own, without writes, runs on vectors
                    for m in range(n_lines):
                        part_sum = zero
                        for lane in range(LANES):
                            at = m * LANES + lane
                            part_sum += factor[at] * table[word, at]
                        line_sums[m] = part_sum
                    total = zero
                    for m in range(n_lines):
                        total += line_sums[m]
                        line_sums[m] = total
                    state += GOLDEN
                    draw = unit(mix(state)) * total
                    # [GriffithsSteyvers04 eq. 5]: first the line, then the topic
                    line = 0
                    for m in range(n_lines - 1):
                        line += draw >= line_sums[m]
                    if line > 0:
                        draw -= line_sums[line - 1]
                    k, end = line * LANES, zero
                    first = k
                    for lane in range(LANES - 1):
                        end += factor[first + lane] * table[word, first + lane]
                        k += draw >= end
                    # (rounding may lead to where there is no topic)
                    k = min(k, n_topics - 1)
                    topics[i] = k
                    share = np.float64(total)
                    if placed:
                        share /= size - np.float64(weight) + sum_alpha
                        own[k] += weight
                        table[word, k] += in_all
                        totals[g, k] += np.float64(in_all)
                        inverse[k] = one / np.float32(totals[g, k])
                        factor[k] = (own[k] + alpha[k]) * inverse[k]
                    else:
                        share /= np.float64(n_topics)
                        own[k] += weight
                    product *= max(share, _LEAST)
                    n_multiplied += 1
                    if n_multiplied == _MULTIPLIED:
                        log_probability[d] += log(product)
                        product, n_multiplied = 1.0, 0
            log_probability[d] += log(product)
            for k in range(n_topics):
                of_topics[d, k] = own[k]
        finish(counter, g, stop_group)


@jit
def pseudo_counts(
    array: Array, words: IndexArray, scale: Any, prior: Array, low: Any, high: Any, out: Array
) -> None:
    """``out[a, k]`` (float32) ``= prior + scale * array`` of the words, within low and high.

    ``prior`` is (A, 1) or (A, K); of topics beyond K ``out`` is 0.
    """
    wide = 1 if prior.shape[1] > 1 else 0
    for a in range(words.size):
        source = array[words[a]]
        for k in range(source.size):
            value = prior[a, k * wide] + scale * source[k]
            out[a, k] = np.float32(min(max(value, low), high))
        for k in range(source.size, out.shape[1]):
            out[a, k] = np.float32(0.0)


@jit
def changed_statistics(
    word_indptr: IndexArray,
    documents: IndexArray,
    entries: IndexArray,
    counts: Array,
    token_indptr: IndexArray,
    row_weights: Array,
    before: Any,
    after: IndexArray,
    out: Array,
    counter: IndexArray,
) -> None:
    """``out[a, k]``: weighted tokens of word a that are in topic k after, less those before.

    ``before`` may be None.
    """
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, word_indptr.size - 1)
        if start >= stop:
            break
        for a in range(start, stop):
            for k in range(out.shape[1]):
                out[a, k] = lit(out[a, k], 0.0)
            for e in range(word_indptr[a], word_indptr[a + 1]):
                j = entries[e]
                n_tokens = token_indptr[j + 1] - token_indptr[j]
                for i in range(n_tokens):
                    w = row_weights[documents[e]] * _weight(counts[j], i, n_tokens)
                    out[a, after[token_indptr[j] + i]] += w
                    if before is not None:
                        out[a, before[token_indptr[j] + i]] -= w
        finish(counter, start, stop)
