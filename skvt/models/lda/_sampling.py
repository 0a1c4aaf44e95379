"""Compiled local steps of latent Dirichlet allocation given topics: Gibbs sampling and CVB0.

The loops serve :mod:`skvt.models.lda._given_topics`. The K topics beta are fixed during a local
step, at a draw or a point estimate. The proportions theta of a document are integrated out (Mimno,
Hoffman and Blei 2012). The topic z_i of token i, which is an occurrence of word w_i, therefore has
probabilities proportional to

    p(z_i = k | z_-i, w_i, beta) = (alpha_k + n_k^{-i}) beta_{k w_i} / const.,

where n_k^{-i} is the number of the document's tokens in topic k without token i. At inverse
temperature b the likelihood p(w, z | theta, beta) is raised to the power b, but the prior of theta
is not. By Stirling's formula, which has a small error, the probability is then proportional to

    ((alpha_k + b n_k^{-i}) beta_{k w_i})^b.

An entry is a word of a document with its count. A large entry is an entry whose count is so large
that visiting its tokens one by one would be slow. After each sweep over the tokens of all other
entries, theta is drawn, and then all tokens of each large entry are drawn together:

    theta ~ Dir(alpha + b n),   z of the entry ~ Mult(count, (theta_k beta_kw)^b).

This joint draw leaves p(z | w, beta) invariant. For b < 1 it leaves the tempered posterior
invariant without the error of Stirling's formula.

In the loops, ``claim_items`` yields the items that the present thread takes from the shared
``counter``, and ``lit(x, c)`` is the constant c in the floating-point type of x.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvt._compiled import (
    GOLDEN,
    claim_items,
    draw_binomial,
    draw_gamma,
    draw_gammas_exactly,
    exp,
    fill_normals,
    jit,
    jit_allocating,
    jit_inlined,
    lit,
    log,
    make_uniform_float32,
    make_uniform_pair,
    mix,
    mix_states,
    propose_gamma,
    uniform,
)
from skvt.models.lda._kernels import DOCUMENTS_PER_CLAIM, WORDS_PER_CLAIM
from skvt.typing import Array, IndexArray

# A count is large if it exceeds this number and the number of topics. A joint draw of all tokens of
# an entry takes a random number for each topic, which saves nothing if topics outnumber tokens.
LARGE_COUNT = 100
# Number of times that sweep 0 computes the proportions before it first draws large entries.
FIXED_POINT_STEPS = 20
# Number of topics in a block; :func:`_write_block_sums` writes the sum up to the end of each block.
TOPICS_PER_BLOCK = 16
# Number of words whose gamma variates a thread draws at a time.
WORDS_PER_BLOCK = np.int64(64)


class Documents(NamedTuple):
    """The tokens of n documents, and the seed of each document."""

    # (n + 1,), (nnz,) and (nnz,): a CSR matrix of the documents over A local words.
    indptr: IndexArray
    words: IndexArray
    counts: Array
    # (nnz + 1,): number of the first token of each entry, see :func:`make_token_indptr`.
    token_indptr: IndexArray
    # (n,): seeds of the random numbers.
    seeds: NDArray[np.uint64]


class Conditional(NamedTuple):
    """The parts of the conditional probability of a topic that stay the same during a local step.

    With b the inverse temperature, the probability is proportional to the sum of two parts. The
    first part is ``((alpha_k + b n_k)^b - alpha_k^b) beta_kw^b``. Its first factor is the *gain* of
    topic k, which is 0 if the document has no tokens of the topic. The second part is
    ``alpha_k^b beta_kw^b``.
    """

    # float32 (A, K): beta_kw^b; each word may have an arbitrary factor, which cancels.
    table: Array
    # float32 (1, K) or (n, K): alpha^b of all documents or of each; 0 for topics that a document
    # must not have.
    alpha_powers: Array
    # float32 (A, B): for each word, the sums of the second part up to the end of each of B blocks
    # of topics, see :func:`write_prior_sums`. If documents differ in alpha, it is scratch (E, B),
    # which holds these sums for each entry of one document; E is the largest number of entries.
    cumulative: Array
    # (1, K) or (n, K): alpha of all documents or of each.
    alpha: Array
    # The inverse temperature b.
    inv_temp: Any
    # (K, M): gains for n_k = 0, 1, ..., M - 1. If b is 1, no gains are tabulated, because the gain
    # is n_k itself. If documents differ in alpha, no gains are tabulated, because they depend on
    # alpha. The table then has the column n_k = 0 only, which is 0.
    gain_table: Array


class LargeEntries(NamedTuple):
    """The L large entries of n documents, and work arrays of a thread."""

    # (n + 1,): position in ``entries`` at which the large entries of each document begin.
    indptr: IndexArray
    # (L,): numbers of the large entries among all entries.
    entries: IndexArray
    # (L, K), float64: zeros at first. The mean number of tokens of each large entry in each topic
    # over the kept sweeps is added.
    means: Array
    # (6, K), float64: scratch. Row 0 has the tokens of all large entries of a document in each
    # topic, and :func:`_draw_large_entries` names the other rows.
    scratch: Array
    # (K,), int64: scratch for the number of tokens that a sweep has put into each topic.
    n_topic_tokens: IndexArray


class Members(NamedTuple):
    """The members of a document, which are the topics of which it has tokens: scratch of a thread.

    A member that loses its last token stays a member until the end of the sweep.
    """

    # (K + 1,), int32: the topic of each member. The loop over the second half of the members may
    # also read the entry after the last member.
    topic_of: IndexArray
    # (K,), int32: the member of each topic, or -1 if the topic is not a member.
    member_of: IndexArray
    # (K,): number of tokens of each member.
    member_tokens: IndexArray
    # (K,): n_k, the total weight of the tokens of each member.
    sizes: Array
    # (K + 1,): gain of each member, see :class:`Conditional`. The entry after the last member is 0,
    # so that it adds nothing when the loop reads it.
    gains: Array


class _Tokens(NamedTuple):
    """The tokens of a document that is sampled: scratch of a thread.

    The arrays are (L,), where L is the number of tokens of the longest document.
    """

    words: IndexArray
    # The row of ``Conditional.cumulative`` for the word, or for the entry, of each token.
    rows_of_sums: IndexArray
    topics: IndexArray
    weights: Array


# -------------------------------------------------------------------------------- random numbers
def seed_rows(seed: Any, numbers: IndexArray) -> NDArray[np.uint64]:
    """Return a seed for each row, (n,) uint64, made from ``seed`` and the number of the row."""
    return np.asarray(mix_states(seed + GOLDEN * (numbers + 1).astype(np.uint64)))


def draw_log_gammas(array: Array, *arguments: Any) -> None:
    """Allocate the scratch of a thread and call :func:`_draw_log_gammas`.

    ``arguments`` are the arguments of :func:`_draw_log_gammas` from ``rows`` to ``shape_sums``, and
    last the ``counter``.
    """
    *other_arguments, counter = arguments
    n_topics = array.shape[1]
    size = int(WORDS_PER_BLOCK) * n_topics
    _draw_log_gammas(
        array, *other_arguments, np.empty((2, WORDS_PER_BLOCK, n_topics + 1), np.float32),
        np.empty((5, size)), np.empty((2, size), np.uint64), np.empty((4, size), np.int32), counter,
    )  # fmt: skip


@jit
def _draw_log_gammas(
    array: Array, rows: IndexArray, scale: Any, prior: Array, seed: Any, out: Array,
    log_sums: Array, shape_sums: Array, singles: Array, doubles: Array,
    bit_scratch: NDArray[np.uint64], int_scratch: IndexArray, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw gamma variates of given shapes and write their logarithms.

    A variate g(a) of a small shape a underflows. Its logarithm is therefore computed as
    ``log g(a + 1) + log(u) / a`` with a uniform u. The random numbers of a variate depend on the
    seed, the row and the topic alone, and have single precision.

    g(a + 1) is drawn by rejection (Marsaglia and Tsang 2000). The loop over a row makes a proposal
    for each topic and applies a cheap test that never accepts wrongly. The proposals that do not
    pass it, about a tenth, are *doubtful*. All doubtful proposals of a block of rows then get the
    exact test together.

    Parameters
    ----------
    array, scale, prior : (V, K), number and (V,); the shapes are ``prior[:, None] + scale * array``
    rows : (A,) rows of the shapes for which variates are drawn
    seed : int
    out : float32 (A, K), logarithms of the variates, written
    log_sums : (n_blocks, K), logarithm of the sum of the variates over each block of
        WORDS_PER_BLOCK rows, written
    shape_sums : (n_blocks, K), sum of the shapes over each block of rows, written
    singles, doubles, bit_scratch, int_scratch : (2, B, K + 1), (5, B K), (2, B K) and (4, B K)
        scratch, where B is WORDS_PER_BLOCK, the number of rows of a block
    """
    n_topics = array.shape[1]
    normals, log_boosts = singles[0], singles[1]
    # Rows 0 to 2 of ``doubles`` and row 0 of ``bit_scratch`` are input and output of
    # :func:`draw_gammas_exactly`; column j belongs to doubtful proposal j of the block.
    doubtful_shapes, doubtful_normals, accepted = doubles[0], doubles[1], doubles[2]
    doubtful_bits, doubtful_rows, doubtful_topics = bit_scratch[0], int_scratch[2], int_scratch[3]
    # These arrays are used before or after the call of :func:`draw_gammas_exactly`, which also uses
    # them as scratch and overwrites their values.
    is_doubtful, max_logs, scaled_sums = int_scratch[0], doubles[3], doubles[4]
    for block in claim_items(counter, np.int64(1), len(log_sums)):
        start = block * WORDS_PER_BLOCK
        stop = min(start + WORDS_PER_BLOCK, rows.size)
        # Make a proposal for each row and topic, and list the doubtful proposals. With the constant
        # 0 instead of np.int64(0), numba would compile draw_gammas_exactly again.
        n_doubtful = np.int64(0)
        for k in range(n_topics):
            shape_sums[block, k] = 0.0
        for i in range(start, stop):
            i_block, row = i - start, rows[i]
            eta = np.float64(prior[row])
            # The random numbers of a row are functions of this state, and of the topic.
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(row + 1))
            fill_normals(state, normals[i_block])
            for k in range(n_topics):
                shape = eta + np.float64(scale) * np.float64(array[row, k])
                shape_sums[block, k] += shape
                a = np.float32(shape)
                # The first uniform number is u, and the second is for the test of the proposal.
                u, test = make_uniform_pair(mix(state - GOLDEN * np.uint64(k + 1)))
                out[i, k], is_doubtful[k] = propose_gamma(a, normals[i_block, k], test)
                log_boosts[i_block, k] = log(u) / a
            for k in range(n_topics):
                # Always write (i, k), but count it only if its test failed: this needs no branch.
                doubtful_rows[n_doubtful], doubtful_topics[n_doubtful] = i, k
                n_doubtful += is_doubtful[k]
        # Apply the exact test to the doubtful proposals, and replace refused proposals by new ones.
        # The state and shape of a proposal are computed again, because most proposals need neither.
        for j in range(n_doubtful):
            i, k = doubtful_rows[j], doubtful_topics[j]
            row = rows[i]
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(row + 1))
            shape = np.float64(prior[row]) + np.float64(scale) * np.float64(array[row, k])
            doubtful_shapes[j] = shape
            doubtful_bits[j] = mix(state - GOLDEN * np.uint64(k + 1))
            doubtful_normals[j] = normals[i - start, k]
        draw_gammas_exactly(n_doubtful, doubles, bit_scratch, int_scratch)
        for j in range(n_doubtful):
            out[doubtful_rows[j], doubtful_topics[j]] = accepted[j]
        # Write the logarithms of the variates, and the logarithms of their sums over the block.
        for k in range(n_topics):
            max_logs[k], scaled_sums[k] = -np.inf, 0.0
        for i in range(start, stop):
            for k in range(n_topics):
                out[i, k] = log(out[i, k]) + log_boosts[i - start, k]
                max_logs[k] = max(max_logs[k], np.float64(out[i, k]))
        for i in range(start, stop):
            for k in range(n_topics):
                scaled_sums[k] += exp(np.float64(out[i, k]) - max_logs[k])
        for k in range(n_topics):
            log_sums[block, k] = max_logs[k] + log(scaled_sums[k])


# ------------------------------------------------------------------------------------- tokens
def make_token_indptr(counts: Array) -> IndexArray:
    """Return the number of the first token of each entry, and last the number of all tokens.

    The result is (nnz + 1,). An entry has ceil(count) tokens.
    """
    out = np.zeros(counts.size + 1, np.int64)
    np.cumsum(np.ceil(counts).astype(np.int64), out=out[1:])
    return out


@jit_inlined
def token_weight(count: Any, position: int, n_tokens: int) -> Any:
    """Return the weight of the token at a position of an entry with ``n_tokens`` tokens.

    The weight is 1, but the last token of a fractional count has the remainder as its weight.
    """
    return lit(count, 1.0) if position < n_tokens - 1 else count - lit(count, 1.0) * position


# -------------------------------------------------------------------------------------- Gibbs
@jit_inlined
def _write_block_sums(alpha_powers: Array, row: Array, out: Array) -> None:
    """Write to ``out`` the sums of ``alpha_k^b row_k`` up to the end of each block of topics."""
    cumulative_sum = lit(alpha_powers[0], 0.0)
    for block in range(out.size):
        block_sum = lit(alpha_powers[0], 0.0)
        start, stop = block * TOPICS_PER_BLOCK, (block + 1) * TOPICS_PER_BLOCK
        for k in range(start, min(stop, alpha_powers.size)):
            block_sum += alpha_powers[k] * row[k]
        cumulative_sum += block_sum
        out[block] = cumulative_sum


@jit
def write_prior_sums(
    table: Array, alpha_powers: Array, cumulative: Array, counter: IndexArray
) -> None:
    """Write to ``cumulative`` the sums of ``alpha_k^b beta_ka^b`` for each word a.

    The arrays are fields of :class:`Conditional`. All documents must have the same alpha.
    """
    for a in claim_items(counter, WORDS_PER_CLAIM, table.shape[0]):
        _write_block_sums(alpha_powers[0], table[a], cumulative[a])


@jit_inlined
def _compute_power(x: Any, b: Any) -> Any:
    """Return x^b of a positive x."""
    return x if b == lit(b, 1.0) else exp(b * log(x))


@jit_inlined
def _compute_gain(alpha: Any, size: Any, inv_temp: Any) -> Any:
    """Return the gain (alpha + b n)^b - alpha^b of a topic with n = ``size`` tokens."""
    return _compute_power(alpha + inv_temp * size, inv_temp) - _compute_power(alpha, inv_temp)


@jit_inlined
def _look_up_gain(gain_table: Array, k: int, alpha: Any, size: Any, inv_temp: Any) -> Any:
    """Return the gain of topic k with n_k = ``size``.

    The gain is read from ``gain_table`` (K, M) if the size is 0, 1, ... or M - 1, and is computed
    otherwise.
    """
    whole_size = np.int64(size) if size < gain_table.shape[1] else 0
    is_tabulated = size == lit(size, 1.0 * whole_size)
    return gain_table[k, whole_size] if is_tabulated else _compute_gain(alpha, size, inv_temp)


@jit_inlined
def _draw_proportions(
    alpha: Array, inv_temp: Any, sizes: Array, is_drawn: bool, theta: Array, state: np.uint64
) -> np.uint64:
    """Write proportions to the power b, up to a factor, to ``theta``; return the new random state.

    The proportions are a draw from Dir(alpha + b sizes) if ``is_drawn``, and otherwise the mean of
    this distribution. b is ``inv_temp``, and ``sizes`` (K,) are the tokens in each topic.
    """
    # Before the last loop, ``theta`` holds logarithms of the proportions, up to a constant.
    max_log = -np.inf
    for k in range(theta.size):
        shape = np.float64(alpha[k]) + np.float64(inv_temp) * sizes[k]
        if is_drawn and shape > 0.0:
            # ``draw_gamma(a, state)`` draws a variate of shape a + 1. The uniform number turns
            # it into a variate of shape a, see :func:`_draw_log_gammas`.
            variate, state = draw_gamma(shape, state)
            state += GOLDEN
            theta[k] = np.log(variate) + np.log(1.0 - uniform(mix(state))) / shape
        elif shape > 0.0:
            theta[k] = np.log(shape)
        else:
            theta[k] = -np.inf
        max_log = max(max_log, theta[k])
    for k in range(theta.size):
        theta[k] = np.exp(inv_temp * (theta[k] - max_log))
    return state


@jit_inlined
def _draw_assignments(
    count: float, theta: Array, row: Array, later_sums: Array, out: Array, state: np.uint64
) -> np.uint64:
    """Draw the number of tokens of a large entry in each topic; return the new random state.

    ``out`` (K,) is drawn from Mult(count, theta * row) and written. ``theta`` and ``row`` (K,) are
    the proportions and the probabilities of the entry's word, both to the power b. A fractional
    count consists of whole tokens and one token that has the fraction as its weight.
    ``later_sums`` (K,) is scratch.
    """
    n_topics = theta.size
    # later_sums[k] is the sum of the weights of all topics after k.
    total_weight = 0.0
    for k in range(n_topics - 1, -1, -1):
        later_sums[k] = total_weight
        total_weight += theta[k] * np.float64(row[k])
    n_remaining = np.floor(count)
    # The weight of the fractional token, until it has a topic; then 0.
    fraction = count - n_remaining
    state += GOLDEN
    weight_draw = uniform(mix(state)) * total_weight
    for k in range(n_topics):
        # Divide the remaining whole tokens between topic k and all later topics.
        weight = theta[k] * np.float64(row[k])
        out[k] = n_remaining
        if later_sums[k] > 0.0:
            out[k], state = draw_binomial(n_remaining, weight / (weight + later_sums[k]), state)
        n_remaining -= out[k]
        # The fractional token goes to the first topic k with ``later_sums[k] <= weight_draw``.
        # ``weight_draw`` is uniform in [0, total_weight), so that topic k has the probability
        # ``weight / total_weight``.
        if weight_draw >= later_sums[k] and weight > 0.0:
            out[k] += fraction
            fraction = 0.0
    return state


@jit_inlined
def _draw_large_entries(
    large_entries: LargeEntries, d: int, sweep: int, sweep_weight: float, words: IndexArray,
    counts: Array, table: Array, alpha: Array, inv_temp: Any, token_topics: IndexArray,
    token_weights: Array, n_doc_tokens: int, members: Members, n_members: int, state: np.uint64,
) -> tuple[int, np.uint64]:  # fmt: skip
    """Draw the tokens of the large entries of document d after a sweep over all other tokens.

    The members of the document are computed again from the tokens of all entries. Row 0 of
    ``large_entries.scratch`` has the tokens of all large entries in each topic, as the previous
    sweep has drawn them, and is overwritten by the new draw. Arguments that are not described below
    are variables of :func:`_sweep_gibbs`.

    Parameters
    ----------
    sweep_weight : weight of this sweep in the means of ``large_entries``
    alpha : (K,) prior of the document
    n_members : number of members before the draw

    Returns
    -------
    int
        The number of members after the draw.
    uint64
        The new random state.
    """
    indptr, entries, means, scratch, n_topic_tokens = large_entries
    topic_of, member_of, member_tokens, sizes, gains = members
    n_topics = alpha.size
    # Weights of tokens in each topic: ``large_sizes`` of all large entries, ``single_sizes`` of all
    # other entries, ``topic_sizes`` of both together, and ``entry_sizes`` of one large entry.
    large_sizes, single_sizes, topic_sizes = scratch[0], scratch[1], scratch[2]
    theta, later_sums, entry_sizes = scratch[3], scratch[4], scratch[5]
    # Compute the weight and number of the tokens in each topic that the sweep has visited.
    for k in range(n_topics):
        single_sizes[k], n_topic_tokens[k] = 0.0, 0
    for i in range(n_doc_tokens):
        single_sizes[token_topics[i]] += token_weights[i]
        n_topic_tokens[token_topics[i]] += 1
    # In sweep 0, theta is not drawn, but iterated to the fixed point at which it is proportional to
    # alpha + b n with the expected tokens n given theta. Tokens are drawn after the last step. From
    # a start far away, the sampler would need many sweeps to reach the fixed point, because all
    # tokens of an entry are drawn given the same theta.
    is_drawn = sweep > 0
    n_steps = 1 if is_drawn else FIXED_POINT_STEPS
    for step in range(n_steps):
        for k in range(n_topics):
            topic_sizes[k] = single_sizes[k] + large_sizes[k]
            large_sizes[k] = 0.0
        state = _draw_proportions(alpha, inv_temp, topic_sizes, is_drawn, theta, state)
        if step < n_steps - 1:
            # Set ``large_sizes`` to the expected tokens given theta.
            for e in range(indptr[d], indptr[d + 1]):
                word_row, total_size = table[words[entries[e]]], 0.0
                for k in range(n_topics):
                    entry_sizes[k] = theta[k] * np.float64(word_row[k])
                for k in range(n_topics):
                    total_size += entry_sizes[k]
                scale = np.float64(counts[entries[e]]) / total_size
                for k in range(n_topics):
                    large_sizes[k] += scale * entry_sizes[k]
    # Draw the tokens of each large entry given theta.
    for e in range(indptr[d], indptr[d + 1]):
        j = entries[e]
        state = _draw_assignments(
            np.float64(counts[j]), theta, table[words[j]], later_sums, entry_sizes, state
        )
        for k in range(n_topics):
            large_sizes[k] += entry_sizes[k]
            means[e, k] += sweep_weight * entry_sizes[k]
    # Compute all members again, even members whose tokens have not changed, because the sizes have
    # rounding errors: the sweep has added and subtracted weights of single tokens.
    for m in range(n_members):
        member_of[topic_of[m]] = -1
        gains[m] = 0.0
    n_members = 0
    for k in range(n_topics):
        if n_topic_tokens[k] > 0 or large_sizes[k] > 0.0:
            m = n_members
            n_members += 1
            topic_of[m], member_of[k] = k, m
            sizes[m] = single_sizes[k] + large_sizes[k]
            # All tokens of large entries count as one token, so that the next sweep cannot reduce
            # the number to 0 and set the size to 0.
            member_tokens[m] = n_topic_tokens[k] + (large_sizes[k] > 0.0)
            gains[m] = _compute_gain(alpha[k], sizes[m], inv_temp)
    return n_members, state


@jit_inlined
def _find_topic_at(
    draw: Any, cumulative: Array, row_of_sums: int, alpha_powers: Array, alpha_row: int,
    table: Array, word: int,
) -> int:  # fmt: skip
    """Return the topic at which the cumulative sum of ``alpha_k^b beta_kw^b`` exceeds ``draw``.

    The block of the topic is found first, by the sums in row ``row_of_sums`` of ``cumulative``, and
    then the topic in the block. ``alpha_row`` is the row of the document's prior in
    ``alpha_powers``. The arrays are fields of :class:`Conditional`.
    """
    zero = lit(draw, 0.0)
    last_block = cumulative.shape[1] - 1
    block = 0
    while block < last_block and cumulative[row_of_sums, block] <= draw:
        block += 1
    # Subtract the sum of all earlier blocks, and then the probabilities of the topics of this block
    # one by one, until the draw is negative.
    draw -= cumulative[row_of_sums, block - 1] if block > 0 else zero
    k = block * TOPICS_PER_BLOCK
    last_topic = min(k + TOPICS_PER_BLOCK, table.shape[1]) - 1
    draw -= alpha_powers[alpha_row, k] * table[word, k]
    while draw >= zero and k < last_topic:
        k += 1
        draw -= alpha_powers[alpha_row, k] * table[word, k]
    # If rounding has led to a topic that the document must not have, take the last allowed topic
    # before it.
    while k > 0 and alpha_powers[alpha_row, k] == zero:
        k -= 1
    return k


def sweep_gibbs(
    documents: Documents, conditional: Conditional, n_burn_in: int, samples: IndexArray,
    proportions: Array, large_entries: Any, counter: IndexArray,
) -> None:  # fmt: skip
    """Allocate the scratch of a thread and call :func:`_sweep_gibbs`.

    ``large_entries`` has the first three fields of :class:`LargeEntries`, or is None.
    """
    max_tokens = np.diff(documents.token_indptr[documents.indptr]).max(initial=0)
    table, alpha = conditional.table, conditional.alpha
    n_topics = table.shape[1]
    if large_entries is not None:
        scratch, n_topic_tokens = np.empty((6, n_topics)), np.empty(n_topics, np.int64)
        large_entries = LargeEntries._make([*large_entries, scratch, n_topic_tokens])
    if len(alpha) > 1:
        # Documents differ in alpha, so that the cumulative sums are scratch of the thread.
        n_entries = np.diff(documents.indptr).max(initial=0)
        n_blocks = -(-n_topics // TOPICS_PER_BLOCK)
        conditional = conditional._replace(cumulative=np.empty((n_entries, n_blocks), table.dtype))
    # The sampler would be 2 % slower if the following arrays were rows of a few arrays.
    members = Members(
        np.empty(n_topics + 1, np.int32), np.empty(n_topics, np.int32),
        np.empty(n_topics, np.int64), np.empty(n_topics, alpha.dtype),
        np.empty(n_topics + 1, table.dtype),
    )  # fmt: skip
    numbers = np.empty((3, max_tokens), np.int32)
    tokens = _Tokens(numbers[0], numbers[1], numbers[2], np.empty(max_tokens, alpha.dtype))
    _sweep_gibbs(
        documents, conditional, n_burn_in, samples, proportions, large_entries, members, tokens,
        np.empty(n_topics + 1, table.dtype), counter,
    )  # fmt: skip


@jit
def _sweep_gibbs(
    documents: Documents, conditional: Conditional, n_burn_in: int, samples: IndexArray,
    proportions: Array, large_entries: LargeEntries | None, members: Members, tokens: _Tokens,
    partial_sums: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw the topics of the tokens of each document by Gibbs sampling.

    The conditional probability of a topic is the sum of the two parts of :class:`Conditional`. The
    first part is 0 for all topics but the members of the document. The cumulative sums of the
    second part over topics are tabulated for each word, or for each entry of the document. The draw
    of a token therefore takes about as many operations as the document has topics (Yao, Mimno and
    McCallum 2009).

    ``documents``, ``conditional``, ``members`` and ``tokens`` are described in their classes.

    Parameters
    ----------
    n_burn_in : number of sweeps after sweep 0 that are dropped; sweep 0 is always dropped
    samples : (tokens, n_samples) int32, the topic of each token in each of the ``n_samples`` sweeps
        that are kept, written
    proportions : (n, K) mean of ``alpha + n_k`` over the kept sweeps, not divided by its sum;
        written
    large_entries : the large entries, or None if no entry is large
    partial_sums : (K + 1,) scratch
    """
    indptr, words, counts, token_indptr, seeds = documents
    table, alpha_powers, cumulative, alpha, inv_temp, gain_table = conditional
    topic_of, member_of, member_tokens, sizes, gains = members
    token_words, rows_of_sums, token_topics, token_weights = tokens
    # The loops over tokens use two-dimensional indices instead of views of rows, which would make
    # them slower.
    n_topics, n_samples = gain_table.shape[0], samples.shape[1]
    # ``last_alpha_row`` is 0 if all documents have the same alpha.
    last_block, last_alpha_row = cumulative.shape[1] - 1, alpha.shape[0] - 1
    # ``zero`` has the type of gains, and ``no_weight`` is 0 in the type of sizes.
    zero, no_weight = lit(gains[0], 0.0), lit(sizes[0], 0.0)
    is_tempered = inv_temp != lit(inv_temp, 1.0)
    for k in range(n_topics):
        topic_of[k], member_tokens[k], member_of[k] = 0, 0, -1
        sizes[k], gains[k] = no_weight, zero
    topic_of[n_topics], gains[n_topics] = 0, zero
    # The conditions ``is not None`` below take no time, because numba decides them when it compiles
    # the function.
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        first_token = token_indptr[indptr[d]]
        n_doc_tokens = token_indptr[indptr[d + 1]] - first_token
        alpha_row = min(d, last_alpha_row)
        # List the tokens of each entry. If documents differ in alpha, tabulate the second part of
        # the probabilities of the entry.
        for j in range(indptr[d], indptr[d + 1]):
            row_of_sums = words[j]
            if last_alpha_row > 0:
                row_of_sums = j - indptr[d]
                _write_block_sums(alpha_powers[alpha_row], table[words[j]], cumulative[row_of_sums])
            begin = token_indptr[j] - first_token
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            for i in range(n_tokens):
                token_words[begin + i], rows_of_sums[begin + i] = words[j], row_of_sums
                token_weights[begin + i] = token_weight(counts[j], i, n_tokens)
        n_members = 0
        state = seeds[d]
        for k in range(n_topics):
            proportions[d, k] = no_weight
        if large_entries is not None:
            large_entries.scratch[0, :] = 0.0
        for sweep in range(n_burn_in + n_samples + 1):
            # Sweep 0 draws the first topic of each token, given the topics of earlier tokens.
            # ``sample`` is the number of a kept sweep, and is negative in dropped sweeps.
            sample = sweep - n_burn_in - 1
            for i in range(n_doc_tokens):
                word, weight, row_of_sums = token_words[i], token_weights[i], rows_of_sums[i]
                # Remove the token from the counts of its topic. If b = 1, the gain is the size.
                if sweep > 0:
                    m = member_of[token_topics[i]]
                    member_tokens[m] -= 1
                    # Set the size of a member without tokens to 0, because rounding of fractional
                    # weights may leave a remainder.
                    sizes[m] = sizes[m] - weight if member_tokens[m] > 0 else no_weight
                    gains[m] = sizes[m]
                    if is_tempered:
                        k = topic_of[m]
                        gains[m] = _look_up_gain(
                            gain_table, k, alpha[alpha_row, k], sizes[m], inv_temp
                        )
                # Compute partial sums of the first part of the probabilities over the members. The
                # sums of the two halves of the members are computed at the same time.
                half = (n_members + 1) // 2
                first_half_sum, second_half_sum = zero, zero
                for m in range(half):
                    first_half_sum += gains[m] * table[word, topic_of[m]]
                    second_half_sum += gains[half + m] * table[word, topic_of[half + m]]
                    partial_sums[m], partial_sums[half + m] = first_half_sum, second_half_sum
                first_part_sum = first_half_sum + second_half_sum
                state += GOLDEN
                draw = make_uniform_float32(mix(state)) * (
                    first_part_sum + cumulative[row_of_sums, last_block]
                )
                if draw < first_part_sum:
                    # The draw lies in the first part. The drawn member is the number of partial
                    # sums that do not exceed the draw. Count them, since a search would have
                    # branches to predict. The partial sums of the second half begin again at 0, so
                    # that the sum of the first half is subtracted from the draw.
                    m = 0
                    draw_in_second_half = draw - first_half_sum
                    for i_half in range(half):
                        m += 1 if partial_sums[i_half] <= draw else 0
                        m += 1 if partial_sums[half + i_half] <= draw_in_second_half else 0
                    m = min(m, n_members - 1)
                else:
                    # The draw lies in the second part. The drawn topic may become a new member.
                    draw -= first_part_sum
                    k = _find_topic_at(
                        draw, cumulative, row_of_sums, alpha_powers, alpha_row, table, word
                    )
                    m = member_of[k]
                    if m < 0:
                        m = n_members
                        n_members += 1
                        topic_of[m], member_of[k] = k, m
                        sizes[m], member_tokens[m] = no_weight, 0
                # Add the token to the counts of the drawn topic.
                k = topic_of[m]
                member_tokens[m] += 1
                sizes[m] += weight
                gains[m] = sizes[m]
                if is_tempered:
                    gains[m] = _look_up_gain(gain_table, k, alpha[alpha_row, k], sizes[m], inv_temp)
                token_topics[i] = k
                if sample >= 0:
                    samples[first_token + i, sample] = k
            if large_entries is not None:
                if large_entries.indptr[d] < large_entries.indptr[d + 1]:
                    sweep_weight = 1.0 / n_samples if sample >= 0 else 0.0
                    n_members, state = _draw_large_entries(
                        large_entries, d, sweep, sweep_weight, words, counts, table,
                        alpha[alpha_row], inv_temp, token_topics, token_weights, n_doc_tokens,
                        members, n_members, state,
                    )  # fmt: skip
            # Add the sizes of the members to the proportions, and remove members without tokens.
            # The last member takes the place of a removed member.
            m = 0
            while m < n_members:
                if member_tokens[m] > 0:
                    if sample >= 0:
                        proportions[d, topic_of[m]] += sizes[m]
                    m += 1
                    continue
                n_members -= 1
                member_of[topic_of[m]] = -1
                gains[m] = zero
                if m < n_members:
                    topic_of[m], sizes[m] = topic_of[n_members], sizes[n_members]
                    gains[m], member_tokens[m] = gains[n_members], member_tokens[n_members]
                    member_of[topic_of[m]] = m
                    gains[n_members] = zero
        # Turn the sums over the kept sweeps into means.
        kept_weight = lit(no_weight, 1.0) / lit(no_weight, 1.0 * n_samples)
        for k in range(n_topics):
            proportions[d, k] = alpha[alpha_row, k] + kept_weight * proportions[d, k]
        # Remove all members, so that the next document begins without members.
        for m in range(n_members):
            member_of[topic_of[m]] = -1
            gains[m] = zero


@jit
def write_sampled_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    row_weights: Array, token_indptr: IndexArray, samples: IndexArray, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write to ``out[a, k]`` the tokens of word a in topic k, averaged over the kept sweeps.

    Tokens are weighted by ``row_weights`` (n,) of their documents. ``word_indptr``, ``documents``
    and ``entries`` are the lists of :func:`~skvt.models.lda._kernels.copy_rows`. Large entries do
    not contribute, because they have no tokens in ``samples`` (tokens, n_samples).
    """
    n_samples = samples.shape[1]
    sweep_weight = lit(row_weights[0], 1.0) / lit(row_weights[0], 1.0 * n_samples)
    for a in claim_items(counter, WORDS_PER_CLAIM, word_indptr.size - 1):
        out[a, :] = lit(sweep_weight, 0.0)
        for e in range(word_indptr[a], word_indptr[a + 1]):
            j = entries[e]
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            entry_weight = sweep_weight * row_weights[documents[e]]
            for i in range(n_tokens):
                weight = entry_weight * token_weight(counts[j], i, n_tokens)
                for sample in range(n_samples):
                    out[a, samples[token_indptr[j] + i, sample]] += weight


# --------------------------------------------------------------------------------------- CVB0
@jit_inlined
def _compute_alpha_power(alpha: Any, inv_temp: Any) -> Any:
    """Return alpha^b, which is 0 for alpha = 0 at all temperatures."""
    zero = lit(alpha, 0.0)
    return _compute_power(alpha, inv_temp) if alpha > zero else zero


@jit_allocating
def run_cvb0(
    indptr: IndexArray, words: IndexArray, counts: Array, table: Array, priors: Array,
    inv_temp: Any, max_iter: int, tol: Any, shares: Array, proportions: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Optimise q(z) of each document by CVB0 with known topics.

    For one entry after the other, CVB0 sets q of its tokens i, up to the normalising constant, to

        q(z_i = k) = ((alpha_k + b E[n_k^{-i}]) beta_{k w_i})^b / const.,

    where n^{-i} counts all tokens of the document but i. The passes over the entries are repeated
    until q converges. The algorithm is due to Asuncion et al. (2009), who have the counts of words
    in topics in place of beta.

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    table : (A, K) beta_kw^b; each word may have an arbitrary factor
    priors : (1, K) or (n, K) alpha of all documents or of each; 0 for topics that a document must
        not have
    max_iter : maximum number of passes over the entries of a document
    tol : a document has converged if ``sum_j n_j |change of q_jk|`` over its entries j falls below
        this number on average over topics k
    shares : (nnz, K) q(z) of a token of each entry, written
    proportions : (n, K) ``alpha + E[n_k]``, not divided by its sum; written
    """
    # Compute each sum in a separate loop that writes to no array. If a loop also writes to an
    # array, the compiled code tests whether arrays overlap and uses vector instructions only if
    # they do not, so that the last digits of the sum depend on the addresses of the arrays.
    n_topics, last_alpha_row = priors.shape[1], priors.shape[0] - 1
    zero = lit(priors[0, 0], 0.0)
    new_q = np.empty(n_topics, priors.dtype)
    is_tempered = inv_temp != lit(zero, 1.0)
    alpha_powers = np.empty(n_topics, priors.dtype)
    for k in range(n_topics):
        alpha_powers[k] = _compute_alpha_power(priors[0, k], inv_temp)
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        alpha = priors[min(d, last_alpha_row)]
        if last_alpha_row > 0:
            for k in range(n_topics):
                alpha_powers[k] = _compute_alpha_power(alpha[k], inv_temp)
        # Start from q(z_i) as if the document had no other tokens. ``sizes`` (K,) are E[n_k].
        sizes = proportions[d]
        sizes[:] = zero
        for j in range(indptr[d], indptr[d + 1]):
            word_row, q = table[words[j]], shares[j]
            sum_of_q = zero
            for k in range(n_topics):
                q[k] = alpha_powers[k] * word_row[k]
            for k in range(n_topics):
                sum_of_q += q[k]
            scale = lit(zero, 1.0) / sum_of_q
            for k in range(n_topics):
                q[k] *= scale
                sizes[k] += counts[j] * q[k]
        for _ in range(max_iter):
            total_change = zero
            for j in range(indptr[d], indptr[d + 1]):
                word_row, q = table[words[j]], shares[j]
                count = counts[j]
                # A token has the weight 1, or the count if it is a fraction of 1.
                token_size = min(count, lit(zero, 1.0))
                sum_of_q = zero
                for k in range(n_topics):
                    # Clip the difference, which rounding may make negative.
                    other_tokens = max(sizes[k] - token_size * q[k], zero)
                    new_q[k] = alpha[k] + inv_temp * other_tokens
                if is_tempered:
                    # Do not call _compute_power, whose branch would make this loop two to four
                    # times as slow.
                    for k in range(n_topics):
                        power = exp(inv_temp * log(new_q[k]))
                        new_q[k] = power if alpha[k] > zero else zero
                for k in range(n_topics):
                    new_q[k] *= word_row[k]
                for k in range(n_topics):
                    sum_of_q += new_q[k]
                scale = lit(zero, 1.0) / sum_of_q
                # From here on, ``new_q`` is the change of q.
                for k in range(n_topics):
                    new_q[k] = scale * new_q[k] - q[k]
                    sizes[k] += count * new_q[k]
                    q[k] += new_q[k]
                for k in range(n_topics):
                    total_change += count * abs(new_q[k])
            if total_change < tol * n_topics:
                break
        for k in range(n_topics):
            proportions[d, k] = alpha[k] + max(sizes[k], zero)


@jit
def write_cvb0_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    row_weights: Array, shares: Array, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write to ``out[a, k]`` the expected tokens of word a in topic k, ``sum_d w_d n_da q_dak``.

    w are ``row_weights`` (n,) of the documents. n are ``counts`` (nnz,), and q are ``shares``
    (nnz, K), both of entries.
    """
    for a in claim_items(counter, WORDS_PER_CLAIM, word_indptr.size - 1):
        target = out[a]
        target[:] = lit(target[0], 0.0)
        for e in range(word_indptr[a], word_indptr[a + 1]):
            weighted_count = row_weights[documents[e]] * counts[entries[e]]
            q = shares[entries[e]]
            for k in range(q.size):
                target[k] += weighted_count * q[k]
