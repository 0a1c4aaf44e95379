"""Compiled loops of collapsed Gibbs sampling whose cost hardly grows with the number of topics.

The loops serve :mod:`skvt.models.lda._collapsed` if there are many topics. Token i, an occurrence
of word w in document d, gets topic k with a probability that is proportional to the sum of two
parts [GriffithsSteyvers04 eq. 5],

    n_dk^{-i} phi_k + alpha_k phi_k,  phi_k = (eta_w + n_wk^{-i}) / n_k^{-i},

where n_dk and n_wk are the numbers of tokens of document d and of word w in topic k, n_k is the sum
of ``eta_w + n_wk`` over words, and ``^{-i}`` means that token i is left out (Yao, Mimno and
McCallum 2009).

The first part is 0 for topics that the document does not have. Vector instructions compute its sum
over topics for each draw. The second part is positive for all topics. Its sums over *ranges* of
consecutive topics are kept for the current word. If a count changes, only the sum of the range of
its topic is updated.

Tokens are visited word by word, so that the counts of the word stay in the cache. The counts of a
document are contiguous in memory. Documents are divided into groups as in
:mod:`skvt.models.lda._collapsed_kernels`, but the tokens of a group are drawn one after the other.

``claim_items`` yields the groups that the present thread takes from the shared ``counter``,
``lit(x, c)`` is the constant c in the floating-point type of x, and ``fetch`` loads an entry of an
array into the caches before it is needed.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from skvt._compiled import (
    GOLDEN,
    LANES,
    allocate_aligned,
    claim_items,
    draw_from_members,
    draw_from_products,
    fetch,
    jit,
    jit_inlined,
    lit,
    log,
    make_uniform_pair,
    mix,
)
from skvt.models.lda._collapsed_kernels import MIN_TOTAL, capped_token_weight
from skvt.typing import Array, IndexArray

# Number of topics in a range whose sum is kept, a multiple of LANES.
TOPICS_PER_RANGE = 256
# Number of tokens ahead of the current token for which data are fetched from memory.
N_TOKENS_AHEAD = 8
# The logarithm of a product of probabilities is taken when the product falls below this value.
_MIN_PRODUCT = 1e-200
# Smallest probability of a token in a product.
_MIN_PROBABILITY = 1e-30


class DocumentCounts(NamedTuple):
    """The topics of n documents, and the number and weight of the tokens of each topic.

    A document has a slot for each of its topics, and its slots are consecutive. The M slots of all
    documents are padded, so that each document begins at a multiple of LANES.
    """

    # (M,), int32: the topic of each slot; K in padding slots.
    topics: IndexArray
    # (M,), int32: the number of tokens of each slot, which may be 0.
    n_tokens: IndexArray
    # (M,), float32: the weight of the tokens of each slot.
    weights: Array
    # (n + 1,): the first slot of each document, and last M.
    first: IndexArray
    # (n,): the number of slots that each document uses.
    n_slots: IndexArray
    # (n,): the sum of alpha, plus the weight of the document's tokens if they have topics.
    totals: Array


def allocate_document_counts(n_tokens: IndexArray, n_topics: int) -> DocumentCounts:
    """Return :class:`DocumentCounts` without topics for documents of ``n_tokens`` (n,) tokens."""
    # A document has at most as many topics as tokens. Round its slots up to a multiple of LANES.
    first = np.zeros(n_tokens.size + 1, np.int64)
    np.cumsum(-(-np.minimum(n_tokens, n_topics) // LANES) * LANES, out=first[1:])
    # The memory of two aligned float32 arrays of zeros serves as int32 arrays of zeros.
    arrays = allocate_aligned(3, first[-1])
    arrays[:] = 0.0
    topics, n_tokens_of_slots = arrays[:2].view(np.int32)
    topics[:] = n_topics
    return DocumentCounts(
        topics, n_tokens_of_slots, arrays[2], first, n_slots=np.zeros(n_tokens.size, np.int64),
        totals=np.zeros(n_tokens.size),
    )  # fmt: skip


class _Scratch(NamedTuple):
    """Work arrays of a thread, padded from K to W topics.

    The padding of ``phi`` and ``alpha`` is 0, so that padding topics have no probability.
    """

    # (W,), float32: ``eta_w + n_wk`` of the current word w.
    word_counts: Array
    # (W,), float32: phi_k of the current word.
    phi: Array
    # (W,), float32: ``1 / n_k``.
    inverse_totals: Array
    # (W,), float32: alpha_k.
    alpha: Array
    # (W,), float32: partial sums of a draw.
    sums: Array
    # (W,), float32: ones. They take the place of an array that a draw does not need.
    ones: Array
    # (R,), float64: sums of ``alpha_k phi_k`` over each range of topics.
    range_sums: Array
    # (K,): the slot of each topic, counted from the first slot of the document. The values of
    # topics that the document does not have may be left over from another document.
    slot_of: IndexArray


class CountChanges(NamedTuple):
    """Changes of the counts n_wk by G groups of documents.

    The changes by group g are entries ``first[g]`` to ``first[g] + n_changes[g]``.
    """

    # (M,): word, topic and amount of each change.
    words: IndexArray
    topics: IndexArray
    weights: Array
    # (G,): position of the first change, and number of changes, of each group.
    first: IndexArray
    n_changes: IndexArray

    def concatenate(self) -> list[Any]:
        """Return words, topics and amounts of the changes by all groups."""
        bounds = list(zip(self.first, self.first + self.n_changes, strict=True))
        return [np.concatenate([array[i:j] for i, j in bounds]) for array in self[:3]]


def allocate_changes(first_tokens: IndexArray, topics: IndexArray, dtype: Any) -> CountChanges:
    """Return :class:`CountChanges` without changes, given the first token of each group.

    ``topics`` (tokens,) are the topics of all tokens. There is memory for two changes per token,
    since a token that moves leaves one topic and enters another.
    """
    n = 2 * topics.size
    first, n_changes = 2 * first_tokens, np.zeros(first_tokens.size, np.int64)
    return CountChanges(
        np.empty(n, np.int32), np.empty(n, topics.dtype), np.empty(n, dtype), first, n_changes
    )


def to_csr(document_counts: DocumentCounts, n_topics: int) -> Any:
    """Return the counts n_dk (n, K) as a CSR matrix."""
    # Allocate one entry more than the number of slots, because the loop also writes empty slots,
    # which it does not count.
    n_rows, max_listed = document_counts.n_slots.size, int(document_counts.n_slots.sum()) + 1
    indptr, topics = np.empty(n_rows + 1, np.int64), np.empty(max_listed, np.int32)
    weights = np.empty(max_listed, np.float32)
    _list_slots(document_counts, indptr, topics, weights)
    n_listed = indptr[-1]
    return sp.csr_array((weights[:n_listed], topics[:n_listed], indptr), shape=(n_rows, n_topics))


@jit
def _list_slots(
    document_counts: Any, indptr: IndexArray, topics: IndexArray, weights: Array
) -> None:
    """Write topics and weights of the slots that have tokens, as the arrays of a CSR matrix."""
    n, indptr[0] = 0, 0
    for d in range(document_counts.n_slots.size):
        first = document_counts.first[d]
        for slot in range(first, first + document_counts.n_slots[d]):
            # Always write the slot, but count it only if it has tokens: this needs no branch.
            topics[n], weights[n] = document_counts.topics[slot], document_counts.weights[slot]
            n += document_counts.n_tokens[slot] > 0
        indptr[d + 1] = n


def sweep_sparse(alpha: Array, *arguments: Any) -> None:
    """Allocate the scratch of a thread and call :func:`_sweep_sparse`.

    ``arguments`` are the arguments of :func:`_sweep_sparse` from ``indptr`` to ``changes``, and
    last the ``counter``.
    """
    *other_arguments, counter = arguments
    # All fields but the last two are (W,). W is more than K, since K is the topic of padding slots.
    padded_arrays = allocate_aligned(len(_Scratch._fields) - 2, (alpha.size // LANES + 1) * LANES)
    padded_arrays[:] = 0.0
    range_sums = np.empty(-(-padded_arrays.shape[1] // TOPICS_PER_RANGE))
    scratch = _Scratch._make([*padded_arrays, range_sums, np.zeros(alpha.size, np.int64)])
    scratch.alpha[: alpha.size] = alpha
    scratch.ones[:] = 1.0
    _sweep_sparse(alpha, *other_arguments, scratch, counter)


@jit_inlined
def _count_topics(
    d: Any, indptr: IndexArray, counts: Array, token_indptr: IndexArray, topics: IndexArray,
    slot_of: IndexArray, document_counts: Any,
) -> None:  # fmt: skip
    """Fill the slots of document d from the topics of its tokens, see :func:`_sweep_sparse`."""
    first = document_counts.first[d]
    n_slots = 0
    total = document_counts.totals[d]
    for j in range(indptr[d], indptr[d + 1]):
        n_tokens = token_indptr[j + 1] - token_indptr[j]
        for i in range(n_tokens):
            weight = np.float32(capped_token_weight(counts[j], i, n_tokens))
            k = topics[np.uint64(token_indptr[j] + i)]
            # Unless the slot is in use and has topic k, ``slot_of[k]`` is left over from another
            # document, and k gets the next slot.
            slot = min(slot_of[k], n_slots)
            if slot == n_slots or document_counts.topics[first + slot] != k:
                slot = slot_of[k] = n_slots
                document_counts.topics[first + slot] = k
                n_slots += 1
            document_counts.n_tokens[first + slot] += 1
            document_counts.weights[first + slot] += weight
            total += np.float64(weight)
    document_counts.n_slots[d], document_counts.totals[d] = n_slots, total


@jit_inlined
def _set_topic_count(k: Any, word_count: Any, total: Any, totals: Array, scratch: Any) -> Any:
    """Set ``eta_w + n_wk`` and n_k of topic k; return the change of the sum of the second part.

    ``word_count`` and ``total`` are the new values, and ``totals`` (K,) holds n_k of all topics.
    """
    old_phi = np.float64(scratch.phi[k])
    scratch.word_counts[k], totals[k] = word_count, total
    scratch.inverse_totals[k] = np.float32(1.0 / total)
    scratch.phi[k] = word_count * scratch.inverse_totals[k]
    change = np.float64(scratch.alpha[k]) * (np.float64(scratch.phi[k]) - old_phi)
    scratch.range_sums[k // TOPICS_PER_RANGE] += change
    return change


@jit_inlined
def _draw_from_second_part(random_number: Any, second_sum: Any, scratch: Any) -> Any:
    """Draw a topic with probability proportional to ``alpha_k phi_k``.

    ``random_number`` is a random number in [0, 1), and ``second_sum`` the sum over all topics. The
    range of the topic is drawn first, then the topic in the range.
    """
    remainder: Any = np.float64(random_number) * second_sum
    r: Any = np.int64(0)
    while r < scratch.range_sums.size - 1 and remainder >= scratch.range_sums[r]:
        remainder -= scratch.range_sums[r]
        r += 1
    start, stop = r * TOPICS_PER_RANGE, min((r + 1) * TOPICS_PER_RANGE, scratch.phi.size)
    # Given the range, the remainder divided by the sum of the range is uniform in [0, 1), so that
    # it is the random number of the draw in the range. ``ones`` take the place of a third factor,
    # and of the array that is fetched from memory for the next draw.
    random_number = np.float32(max(min(remainder / scratch.range_sums[r], 1.0), 0.0))
    k, _ = draw_from_products(
        scratch.alpha[start:stop], scratch.phi[start:stop], scratch.ones, scratch.ones,
        scratch.sums, random_number,
    )  # fmt: skip
    return start + k


@jit_inlined
def _move_token(d: Any, old_topic: Any, new_topic: Any, weight: Any, document_counts: Any) -> None:
    """Move a token of document d to another topic, which may be new to the document."""
    # Look for the slots of both topics and for a slot without tokens. A slot that does not exist is
    # ``no_slot``, which is less than the number of any slot. The search has no branches, since it
    # takes maxima.
    no_slot = np.int32(-1)
    old_slot, new_slot, free_slot = no_slot, no_slot, no_slot
    first, n_slots = np.uint64(document_counts.first[d]), np.uint64(document_counts.n_slots[d])
    for m in range(n_slots):
        topic, slot = document_counts.topics[first + m], np.int32(m)
        old_slot = max(old_slot, slot if topic == old_topic else no_slot)
        new_slot = max(new_slot, slot if topic == new_topic else no_slot)
        free_slot = max(free_slot, slot if document_counts.n_tokens[first + m] == 0 else no_slot)
    # Take the token from its old slot.
    position = first + np.uint64(old_slot)
    document_counts.n_tokens[position] -= 1
    document_counts.weights[position] -= weight
    if document_counts.n_tokens[position] == 0:
        # Set the weight to 0, because rounding of fractional weights may leave a remainder.
        document_counts.weights[position] = lit(weight, 0.0)
        free_slot = old_slot
    # If the document does not have the topic yet, give the topic a free slot or the next slot.
    if new_slot < 0:
        new_slot = free_slot
        if free_slot < 0:
            new_slot = np.int32(n_slots)
            document_counts.n_slots[d] += 1
        document_counts.topics[first + np.uint64(new_slot)] = new_topic
    position = first + np.uint64(new_slot)
    document_counts.n_tokens[position] += 1
    document_counts.weights[position] += weight


@jit_inlined
def _find_first_token(document: int, start: int, stop: int, token_documents: IndexArray) -> int:
    """Return the first position from ``start`` to ``stop`` whose document is at least ``document``.

    The documents of the tokens at these positions ascend, so that bisection finds the position.
    """
    while start < stop:
        middle = (start + stop) // 2
        if token_documents[middle] < document:
            start = middle + 1
        else:
            stop = middle
    return start


@jit_inlined
def _fetch_document(d: Any, document_counts: Any) -> None:
    """Fetch the counts of document d, which a later token needs, into the caches."""
    first = document_counts.first[d]
    for slot in range(first, first + document_counts.n_slots[d], LANES):
        fetch(document_counts.topics, slot)
        fetch(document_counts.n_tokens, slot)
        fetch(document_counts.weights, slot)


@jit_inlined
def _record_change(g: Any, word: Any, topic: Any, weight: Any, changes: Any) -> None:
    """Append a change of n_wk to the changes by group g."""
    i = np.uint64(changes.first[g] + changes.n_changes[g])
    changes.words[i], changes.topics[i], changes.weights[i] = word, topic, weight
    changes.n_changes[g] += 1


@jit
def _sweep_sparse(
    alpha: Array, indptr: IndexArray, counts: Array, token_indptr: IndexArray, row_weights: Array,
    words: IndexArray, word_token_indptr: IndexArray, tokens: IndexArray,
    token_weights: Array | None,
    token_documents: IndexArray, states: NDArray[np.uint64], eta: Array, groups: IndexArray,
    count_indptr: IndexArray, count_topics: IndexArray, count_values: Array, has_topics: bool,
    topics: IndexArray, document_counts: Any, products: Array, log_probability: Array,
    totals: Array, changes: Any, scratch: Any, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw the topic of each token given the topics of all other tokens.

    A thread takes one group of documents at a time, and visits the tokens of the group word by
    word. If tokens have no topics yet, topics are drawn with probabilities proportional to phi_k
    alone. The caller then passes alpha = 1. Indices g, d, a, t, k and r number groups, documents,
    the batch's words, tokens, topics and ranges of topics.

    Parameters
    ----------
    alpha : float32 (K,) prior of proportions
    indptr, counts : row pointers and counts of the documents' entries, as in a CSR matrix
    token_indptr : (nnz + 1,) the number of the first token of each entry
    row_weights : (n,) weights of the documents
    words : (A,) numbers of the words in the vocabulary
    word_token_indptr, tokens, token_weights, token_documents : see
        :class:`~skvt.models.lda._collapsed.TokenBatch`
    states : (n,) uint64 state of each document's random numbers; at first its seed, changed
    eta : float32 (A,) prior of the words
    groups : (G + 1,) the number of the first document of each group, and last n
    count_indptr, count_topics, count_values : CSR matrix of n_wk (A, K), float32
    has_topics : whether ``topics`` holds topics of the tokens, which n_wk contains
    topics : (tokens,) topic of each token, written
    document_counts : :class:`DocumentCounts` without topics, written
    products : float64 (n,) ones, scratch
    log_probability : float64 (n,) zeros; the sum of ``log p(w_i | z_-i, w_-i)`` is added
    totals : float64 (G, K) n_k in each group's copy of the counts, changed
    changes : :class:`CountChanges`, written
    scratch : :class:`_Scratch`
    """
    n_topics = totals.shape[1]
    for g in claim_items(counter, np.int64(1), groups.size - 1):
        group_totals, sum_of_alpha = totals[g], 0.0
        for k in range(n_topics):
            scratch.inverse_totals[k] = np.float32(1.0 / group_totals[k])
            sum_of_alpha += np.float64(alpha[k])
        for d in range(groups[g], groups[g + 1]):
            document_counts.totals[d] = sum_of_alpha
            if has_topics:
                _count_topics(
                    d, indptr, counts, token_indptr, topics, scratch.slot_of, document_counts
                )
        for a in range(word_token_indptr.size - 1):
            # The tokens of a word are in the order of their documents. Skip the word if this group
            # has no token of it.
            stop = word_token_indptr[a + 1]
            start = _find_first_token(groups[g], word_token_indptr[a], stop, token_documents)
            if start == stop or token_documents[start] >= groups[g + 1]:
                continue
            # Compute phi and the sums of the second part for this word.
            word_eta = eta[a]
            second_sum = 0.0
            scratch.word_counts[:] = word_eta
            for i in range(count_indptr[a], count_indptr[a + 1]):
                scratch.word_counts[int(count_topics[i])] += count_values[i]
            for k in range(n_topics):
                scratch.phi[k] = scratch.word_counts[k] * scratch.inverse_totals[k]
            for r in range(scratch.range_sums.size):
                range_sum = lit(word_eta, 0.0)
                range_alpha = scratch.alpha[r * TOPICS_PER_RANGE : (r + 1) * TOPICS_PER_RANGE]
                range_phi = scratch.phi[r * TOPICS_PER_RANGE : (r + 1) * TOPICS_PER_RANGE]
                for k in range(range_phi.size):
                    range_sum += range_alpha[k] * range_phi[k]
                scratch.range_sums[r] = np.float64(range_sum)
                second_sum += scratch.range_sums[r]
            for position in range(start, stop):
                d, t = token_documents[position], tokens[position]
                if d >= groups[g + 1]:
                    break
                old_topic = np.int64(topics[t])
                position_ahead = min(position + N_TOKENS_AHEAD, tokens.size - 1)
                fetch(topics, np.int64(tokens[position_ahead]))
                _fetch_document(token_documents[position_ahead], document_counts)
                # The token adds ``weight`` to n_dk, and ``word_weight``, which is ``weight`` times
                # the weight of its document, to n_wk. ``change`` is ``word_weight`` in the data
                # type of the statistics.
                change: Any = lit(changes.weights[0], 1.0)
                if token_weights is not None:
                    change = token_weights[position]
                word_weight = np.float32(change)
                weight = word_weight / np.float32(row_weights[d])
                states[d] += GOLDEN
                number, second_number = make_uniform_pair(mix(states[d]))
                # Draw a slot of the document, or the second part. ``slot`` is below ``n_padded``,
                # the padded number of slots, if a slot is drawn. The sums over topics without this
                # token are ``others_sum`` of the second part, ``parts_sum`` of both parts and
                # ``others_total`` of alpha + n_dk. If tokens have no topics yet, the document has
                # no slots, and alpha is 1.
                others_sum, parts_sum = second_sum, np.float32(second_sum)
                others_total = np.float64(n_topics)
                n_padded, slot = np.int64(0), np.int64(0)
                first = document_counts.first[d]
                if has_topics:
                    n_padded = (document_counts.n_slots[d] + LANES - 1) // LANES * LANES
                    # Compute the counts without the token, but do not write them to the arrays yet.
                    word_count = max(scratch.word_counts[old_topic] - word_weight, word_eta)
                    total = max(group_totals[old_topic] - np.float64(word_weight), MIN_TOTAL)
                    phi = word_count * np.float32(1.0 / total)
                    others_sum -= np.float64(scratch.alpha[old_topic]) * (
                        np.float64(scratch.phi[old_topic]) - np.float64(phi)
                    )
                    slot, parts_sum = draw_from_members(
                        document_counts.weights, document_counts.topics, scratch.phi, scratch.sums,
                        (first, n_padded, old_topic, weight, phi, np.float32(others_sum), number),
                    )  # fmt: skip
                    others_total = document_counts.totals[d] - np.float64(weight)
                if slot < n_padded:
                    # The draw is in the first part. Take the topic of the slot. Keep the old topic
                    # if rounding has led to a slot without tokens.
                    k = int(old_topic)
                    if document_counts.weights[first + slot] > lit(weight, 0.0):
                        k = int(document_counts.topics[first + slot])
                else:
                    # The draw is in the second part. Remove the token from phi, and from the sum of
                    # its topic's range, during the draw only.
                    saved_phi = scratch.phi[old_topic]
                    if has_topics:
                        scratch.phi[old_topic] = phi
                        scratch.range_sums[old_topic // TOPICS_PER_RANGE] -= second_sum - others_sum
                    k = _draw_from_second_part(second_number, others_sum, scratch)
                    # Take a topic below K if rounding has led to a padding topic.
                    k = k if k < n_topics else max(k - LANES, 0)
                    if has_topics:
                        scratch.phi[old_topic] = saved_phi
                        scratch.range_sums[old_topic // TOPICS_PER_RANGE] += second_sum - others_sum
                if has_topics and k != old_topic:
                    second_sum += _set_topic_count(
                        old_topic, word_count, total, group_totals, scratch
                    )
                    second_sum += _set_topic_count(
                        k, scratch.word_counts[k] + word_weight,
                        group_totals[k] + np.float64(word_weight), group_totals, scratch,
                    )  # fmt: skip
                    _move_token(d, old_topic, k, weight, document_counts)
                    _record_change(g, words[a], old_topic, -change, changes)
                if not has_topics or k != old_topic:
                    _record_change(g, words[a], k, change, changes)
                topics[t] = k
                # p(w_i | z_-i, w_-i) is the sum of both parts, divided by the sum of alpha + n_dk
                # without this token.
                products[d] *= max(np.float64(parts_sum) / others_total, _MIN_PROBABILITY)
                if products[d] < _MIN_PRODUCT:
                    log_probability[d] += log(products[d])
                    products[d] = 1.0
        for d in range(groups[g], groups[g + 1]):
            log_probability[d] += log(products[d])
            if not has_topics:
                _count_topics(
                    d, indptr, counts, token_indptr, topics, scratch.slot_of, document_counts
                )
