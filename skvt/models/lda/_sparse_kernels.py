"""Compiled loops of collapsed Gibbs sampling whose cost hardly grows with the number of topics.

The probabilities of [GriffithsSteyvers04 eq. 5] fall into two parts,

    p(z_i = k | z_-i, w) ~ n_dk^{-i} phi_k + alpha_k phi_k,  phi_k = (eta_w + n_wk^{-i}) / n_k^{-i},

where n_k is the sum over words, prior included. The first part is a sum over the topics that the
document has (after Yao, Mimno and McCallum 2009), computed by vector instructions. Of the second
part, sums over ranges of topics are kept; a change of a count changes one of them. Tokens are
visited word by word, so that the counts of the word are in the cache, and the counts of a document
are contiguous.

Groups of documents are those of :mod:`skvt.models.lda._collapsed_kernels`. Tokens of a group are
drawn one after the other.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from skvt.compiled import (
    CLAIMS,
    GOLDEN,
    LANES,
    aligned,
    claim,
    draw_of_members,
    draw_of_product,
    fetch,
    finish,
    jit,
    lit,
    log,
    mix,
    part,
    unit_pair,
)
from skvt.models.lda._collapsed_kernels import LEAST_TOTAL, weight_of
from skvt.typing import Array, IndexArray

# Number of topics in a range whose sum is kept, a multiple of LANES.
RANGE = 256
# Number of tokens ahead of the current one for which data are fetched from memory.
AHEAD = 8
# When a product of probabilities falls below this, its logarithm is taken.
_SMALL = 1e-200
# Smallest probability in the product.
_LEAST = 1e-30


class Proportions(NamedTuple):
    """Counts of each document's topics, which begin at ``first[d]``, a multiple of LANES."""

    # (M,), int32: topics of the documents, and the number of tokens of each, which may be 0; padded
    # by K and 0. (M,), float32: weights of these tokens.
    topic: IndexArray
    held: IndexArray
    counts: Array
    # (n + 1,): where documents begin; (n,): number of topics, and the sum of counts and alpha.
    first: IndexArray
    size: IndexArray
    total: Array


def no_proportions(n_tokens: IndexArray, n_topics: int) -> Proportions:
    """Allocate :class:`Proportions` for documents of these numbers of tokens."""
    first = np.zeros(n_tokens.size + 1, np.int64)
    np.cumsum(-(-np.minimum(n_tokens, n_topics) // LANES) * LANES, out=first[1:])
    lines, size = aligned(3, first[-1]), np.zeros(n_tokens.size, np.int64)
    topic, held, counts = lines[0].view(np.int32), lines[1].view(np.int32), lines[2]
    topic[:], held[:], counts[:] = n_topics, 0, 0.0
    return Proportions(topic, held, counts, first, size, np.zeros(n_tokens.size))


class _Scratch(NamedTuple):
    """Work arrays of a thread; beyond K topics, all of them but ``ones`` are 0."""

    # (W,), float32: ``eta_w + n_wk`` of the word, ``phi_k``, ``1 / n_k``, the prior of proportions,
    # sums of a draw, and 1.
    counts: Array
    phi: Array
    inverse: Array
    alpha: Array
    sums: Array
    ones: Array
    # (R,): sums of ``alpha_k phi_k`` over RANGE topics.
    ranges: Array
    # (K,): position at which each topic may be in the document's list; 0 at first.
    places: IndexArray


class Moves(NamedTuple):
    """Changes of the counts over all tokens; those by group g begin at ``first[g]``."""

    # (M,): word, topic and amount of each change.
    words: IndexArray
    topics: IndexArray
    weights: Array
    # (G,): where each group begins, and its number of changes.
    first: IndexArray
    size: IndexArray

    def joined(self) -> list[Any]:
        """Return words, topics and weights of all groups."""
        bounds = list(zip(self.first, self.first + self.size, strict=True))
        return [np.concatenate([array[i:j] for i, j in bounds]) for array in self[:3]]


def no_moves(tokens_before: IndexArray, topics: IndexArray, dtype: Any) -> Moves:
    """Allocate :class:`Moves` for groups, given the number of tokens before each."""
    n = 2 * topics.size
    first, size = 2 * tokens_before, np.zeros(tokens_before.size, np.int64)
    return Moves(np.empty(n, np.int32), np.empty(n, topics.dtype), np.empty(n, dtype), first, size)


def listed(proportions: Proportions, n_topics: int) -> Any:
    """Return the counts (n, K) as a CSR matrix."""
    n_rows, most = proportions.size.size, int(proportions.size.sum()) + 1
    indptr, topics = np.empty(n_rows + 1, np.int64), np.empty(most, np.int32)
    counts = np.empty(most, np.float32)
    _list_counts(proportions, indptr, topics, counts)
    size = indptr[-1]
    return sp.csr_array((counts[:size], topics[:size], indptr), shape=(n_rows, n_topics))


@jit
def _list_counts(proportions: Any, indptr: IndexArray, topics: IndexArray, counts: Array) -> None:
    """Write the topics that have tokens as a CSR matrix."""
    n, indptr[0] = 0, 0
    for d in range(proportions.size.size):
        for m in range(proportions.first[d], proportions.first[d] + proportions.size[d]):
            topics[n], counts[n] = proportions.topic[m], proportions.counts[m]
            n += proportions.held[m] > 0
        indptr[d + 1] = n


def sparse_steps(*arguments: Any) -> None:
    """Allocate scratch and call :func:`_sparse_steps`: the task of one thread."""
    alpha = arguments[10]
    # At least one topic beyond K, which pads :class:`Proportions`.
    lines = aligned(6, (alpha.size // LANES + 1) * LANES)
    lines[:5], lines[5] = 0.0, 1.0
    lines[3, : alpha.size] = alpha
    ranges = np.empty(-(-lines.shape[1] // RANGE))
    scratch = _Scratch._make([*lines, ranges, np.zeros(alpha.size, np.int64)])
    _sparse_steps(*arguments[:-1], scratch, arguments[-1])


@part
def _list_topics(
    d: Any, indptr: IndexArray, counts: Array, token_indptr: IndexArray, topics: IndexArray,
    places: IndexArray, proportions: Any,
) -> None:  # fmt: skip
    """Fill the proportions of document d from the topics of its tokens."""
    first, size, total = proportions.first[d], 0, proportions.total[d]
    for j in range(indptr[d], indptr[d + 1]):
        n_tokens = token_indptr[j + 1] - token_indptr[j]
        for i in range(n_tokens):
            weight = np.float32(weight_of(counts[j], i, n_tokens))
            k = topics[np.uint64(token_indptr[j] + i)]
            # places[k] may be left over from another document; then the topic differs.
            place = min(places[k], size)
            if place == size or proportions.topic[first + place] != k:
                place = places[k] = size
                proportions.topic[first + place] = k
                size += 1
            proportions.held[first + place] += 1
            proportions.counts[first + place] += weight
            total += np.float64(weight)
    proportions.size[d], proportions.total[d] = size, total


@part
def _shift(k: Any, count: Any, total: Any, totals: Array, scratch: Any) -> Any:
    """Set count and total of topic k; return the change of the sum of the second part."""
    before = np.float64(scratch.phi[k])
    scratch.counts[k], totals[k] = count, total
    scratch.inverse[k] = np.float32(1.0 / total)
    scratch.phi[k] = count * scratch.inverse[k]
    added = np.float64(scratch.alpha[k]) * (np.float64(scratch.phi[k]) - before)
    scratch.ranges[k // RANGE] += added
    return added


@part
def _of_second_part(number: Any, second: Any, scratch: Any) -> Any:
    """Draw a topic by ``alpha_k phi_k``, whose sum is ``second``."""
    left: Any = np.float64(number) * second
    r: Any = np.int64(0)
    while r < scratch.ranges.size - 1 and left >= scratch.ranges[r]:
        left -= scratch.ranges[r]
        r += 1
    start, stop = r * RANGE, min((r + 1) * RANGE, scratch.phi.size)
    number = np.float32(max(min(left / scratch.ranges[r], 1.0), 0.0))
    k, _ = draw_of_product(
        scratch.alpha[start:stop], scratch.phi[start:stop], scratch.ones, scratch.ones,
        scratch.sums, number,
    )  # fmt: skip
    return start + k


@part
def _move(d: Any, before: Any, k: Any, weight: Any, proportions: Any) -> None:
    """Move a token of document d to topic k, which the document may not have yet."""
    none = np.int32(-1)
    old, new, free = none, none, none
    first, size = np.uint64(proportions.first[d]), np.uint64(proportions.size[d])
    for m in range(size):
        topic, i = proportions.topic[first + m], np.int32(m)
        old = max(old, i if topic == before else none)
        new = max(new, i if topic == k else none)
        free = max(free, i if proportions.held[first + m] == 0 else none)
    place = first + np.uint64(old)
    proportions.held[place] -= 1
    proportions.counts[place] -= weight
    if proportions.held[place] == 0:  # rounding of fractional weights may leave a rest
        proportions.counts[place], free = lit(weight, 0.0), old
    if new < 0:
        new = free
        if free < 0:
            new = np.int32(size)
            proportions.size[d] += 1
        proportions.topic[first + np.uint64(new)] = k
    place = first + np.uint64(new)
    proportions.held[place] += 1
    proportions.counts[place] += weight


@part
def _record(g: Any, word: Any, topic: Any, weight: Any, moves: Any) -> None:
    i = np.uint64(moves.first[g] + moves.size[g])
    moves.words[i], moves.topics[i], moves.weights[i] = word, topic, weight
    moves.size[g] += 1


@jit
def _sparse_steps(
    indptr: IndexArray, counts: Array, token_indptr: IndexArray, row_weights: Array,
    words: IndexArray, word_tokens: IndexArray, tokens: IndexArray, token_weights: Array | None,
    documents: IndexArray, states: NDArray[np.uint64], alpha: Array, prior: Array,
    groups: IndexArray, count_indptr: IndexArray, count_topics: IndexArray, count_values: Array,
    placed: bool, topics: IndexArray, proportions: Any, products: Array, log_probability: Array,
    totals: Array, moves: Any, scratch: Any, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw the topic of each token given those of all others, group by group, word by word.

    If tokens are not ``placed`` yet, they are drawn given the topics alone; alpha must be 1 then.

    Parameters
    ----------
    indptr, counts, token_indptr : entries of the documents, and where the tokens of each begin
    row_weights : (n,)
    words : (A,) numbers of the words
    word_tokens, tokens, token_weights : see :class:`TokenBatch`
    documents : (tokens,) document of each of ``tokens``
    states : (n,) uint64 state of each document's random numbers, changed
    alpha : float32 (K,) prior of proportions
    prior : float32 (A,) eta of the words
    groups : (G + 1,) where the documents of each group begin
    count_indptr, count_topics, count_values : CSR of ``n_wk`` (float32) of the words
    topics : (tokens,) topic of each token, written
    proportions : :class:`Proportions`, to be filled
    products : float64 (n,) ones, scratch
    log_probability : float64 (n,) zeros; the sum of ``log p(w_i | z_-i, w_-i)`` is added
    totals : float64 (G, K) for each group ``sum eta + n``, changed
    moves : :class:`Moves`, written
    scratch : :class:`_Scratch`
    """
    n_topics = totals.shape[1]
    for _ in range(CLAIMS):
        g, stop_group = claim(counter, np.int64(1), groups.size - 1)
        if g >= stop_group:
            break
        group_totals, sum_of_alpha = totals[g], 0.0
        for k in range(n_topics):
            scratch.inverse[k] = np.float32(1.0 / group_totals[k])
            sum_of_alpha += np.float64(alpha[k])
        for d in range(groups[g], groups[g + 1]):
            proportions.total[d] = sum_of_alpha
            if placed:
                _list_topics(d, indptr, counts, token_indptr, topics, scratch.places, proportions)
        for a in range(word_tokens.size - 1):
            start, stop = word_tokens[a], word_tokens[a + 1]
            while start < stop:  # bisection: the documents of a word are sorted
                middle = (start + stop) // 2
                if documents[middle] < groups[g]:
                    start = middle + 1
                else:
                    stop = middle
            stop = word_tokens[a + 1]
            if start == stop or documents[start] >= groups[g + 1]:
                continue
            eta, second = prior[a], 0.0
            scratch.counts[:] = eta
            for i in range(count_indptr[a], count_indptr[a + 1]):
                scratch.counts[int(count_topics[i])] += count_values[i]
            for k in range(n_topics):
                scratch.phi[k] = scratch.counts[k] * scratch.inverse[k]
            for r in range(scratch.ranges.size):
                of_range = lit(eta, 0.0)
                factors = scratch.alpha[r * RANGE : (r + 1) * RANGE]
                values = scratch.phi[r * RANGE : (r + 1) * RANGE]
                for k in range(values.size):
                    of_range += factors[k] * values[k]
                scratch.ranges[r] = np.float64(of_range)
                second += scratch.ranges[r]
            for n in range(start, stop):
                d, t, after = documents[n], tokens[n], min(n + AHEAD, tokens.size - 1)
                if d >= groups[g + 1]:
                    break
                before = np.int64(topics[t])
                fetch(topics, np.int64(tokens[after]))
                ahead = proportions.first[documents[after]]
                for place in range(ahead, ahead + proportions.size[documents[after]], LANES):
                    fetch(proportions.topic, place)
                    fetch(proportions.held, place)
                    fetch(proportions.counts, place)
                whole_weight: Any = lit(moves.weights[0], 1.0)
                if token_weights is not None:
                    whole_weight = token_weights[n]
                in_all = np.float32(whole_weight)
                weight = in_all / np.float32(row_weights[d])
                states[d] += GOLDEN
                number, other_number = unit_pair(mix(states[d]))
                rest, norm, others = second, np.float32(second), np.float64(n_topics)
                width, m, first = np.int64(0), np.int64(0), proportions.first[d]
                if placed:
                    width = (proportions.size[d] + LANES - 1) // LANES * LANES
                    count = max(scratch.counts[before] - in_all, eta)
                    total = max(group_totals[before] - np.float64(in_all), LEAST_TOTAL)
                    phi = count * np.float32(1.0 / total)
                    rest -= np.float64(scratch.alpha[before]) * (
                        np.float64(scratch.phi[before]) - np.float64(phi)
                    )
                    m, norm = draw_of_members(
                        proportions.counts, proportions.topic, scratch.phi, scratch.sums,
                        (first, width, before, weight, phi, np.float32(rest), number),
                    )  # fmt: skip
                    others = proportions.total[d] - np.float64(weight)
                if m < width:
                    # Rounding may lead to a topic without tokens: keep the old topic then.
                    k = int(before)
                    if proportions.counts[first + m] > lit(weight, 0.0):
                        k = int(proportions.topic[first + m])
                else:
                    of_before = scratch.phi[before]
                    if placed:
                        scratch.phi[before] = phi
                        scratch.ranges[before // RANGE] -= second - rest
                    k = _of_second_part(other_number, rest, scratch)
                    # Rounding may lead to a padding topic beyond K.
                    k = k if k < n_topics else max(k - LANES, 0)
                    if placed:
                        scratch.phi[before] = of_before
                        scratch.ranges[before // RANGE] += second - rest
                if placed and k != before:
                    second += _shift(before, count, total, group_totals, scratch)
                    second += _shift(
                        k, scratch.counts[k] + in_all, group_totals[k] + np.float64(in_all),
                        group_totals, scratch,
                    )  # fmt: skip
                    _move(d, before, k, weight, proportions)
                    _record(g, words[a], before, -whole_weight, moves)
                if not placed or k != before:
                    _record(g, words[a], k, whole_weight, moves)
                topics[t] = k
                products[d] *= max(np.float64(norm) / others, _LEAST)
                if products[d] < _SMALL:
                    log_probability[d] += log(products[d])
                    products[d] = 1.0
        for d in range(groups[g], groups[g + 1]):
            log_probability[d] += log(products[d])
            if not placed:
                _list_topics(d, indptr, counts, token_indptr, topics, scratch.places, proportions)
        finish(counter, g, stop_group)
