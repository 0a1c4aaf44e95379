"""Compiled local steps of latent Dirichlet allocation given topics: Gibbs sampling and CVB0.

The topics beta are known here, as a draw or a point estimate. The proportions theta of a document
are integrated out (Mimno, Hoffman and Blei 2012), so that Gibbs sampling draws the topic z_i of a
token from

    p(z_i = k | z_-i, w_i, beta) ~ (alpha_k + n_k^{-i}) beta_{k w_i}.

At inverse temperature b the likelihood p(w, z | theta, beta) is raised to the power b, but the
prior of theta is not. The conditional is then, up to the error of Stirling's formula,

    ((alpha_k + b n_k^{-i}) beta_{k w_i})^b.

An entry is a word of a document with its count. The tokens of entries with large counts are not
visited one by one. After each sweep over the other tokens, theta is drawn, and then the tokens of
each such entry are drawn together:

    theta ~ Dir(alpha + b n),   z of the entry ~ Mult(count, (theta_k beta_kw)^b).

This joint draw leaves p(z | w, beta) invariant. For b < 1 it leaves the tempered posterior
invariant without the error of Stirling's formula.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import (
    CLAIMS,
    GOLDEN,
    accepted_gammas,
    binomial,
    claim,
    exp,
    fill_normals,
    finish,
    gamma_variate,
    jit,
    jit_allocating,
    lit,
    log,
    mix,
    mixed,
    part,
    proposed_gamma,
    uniform,
    unit,
    unit_pair,
)
from skvt.models.lda._kernels import DOCUMENTS, WORDS
from skvt.typing import Array, IndexArray

# Arrays for the entries of large counts: (indptr, entries, means) as ``bulk`` of ``_gibbs_steps``,
# and scratch (6, K) of numbers and (K,) of integers.
Bulk: TypeAlias = tuple[IndexArray, IndexArray, Array, Array, IndexArray]

# A count is large if it is greater than this number and than the number of topics. The second
# condition holds because a joint draw of an entry takes one random number for each topic.
MOST_TOKENS = 100
# Number of times that sweep 0 computes the proportions, before it first draws tokens together.
BULK_STEPS = 20
# Number of topics in a block; :func:`prior_table` writes the cumulative sum at the end of a block.
PRIOR_TOPICS = 16
# Number of words for which a thread draws topics at a time.
DRAWN_WORDS = np.int64(64)


# -------------------------------------------------------------------------------- random numbers
def row_seeds(seed: Any, numbers: IndexArray) -> NDArray[np.uint64]:
    """Return a seed for each row, (n,) uint64, from one seed and the numbers of the rows."""
    return np.asarray(mixed(seed + GOLDEN * (numbers + 1).astype(np.uint64)))


def draw_log_gammas(*arguments: Any) -> None:
    """Allocate the scratch of a thread and call :func:`_draw_log_gammas`."""
    n_topics = arguments[0].shape[1]
    size = int(DRAWN_WORDS) * n_topics
    _draw_log_gammas(
        *arguments[:-1], np.empty((2, DRAWN_WORDS, n_topics + 1), np.float32), np.empty((5, size)),
        np.empty((2, size), np.uint64), np.empty((4, size), np.int32), arguments[-1],
    )  # fmt: skip


@jit
def _draw_log_gammas(
    array: Array, rows: IndexArray, scale: Any, prior: Array, seed: Any, out: Array,
    log_sums: Array, shape_sums: Array, singles: Array, doubles: Array,
    bit_scratch: NDArray[np.uint64], int_scratch: IndexArray, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw gamma variates of given shapes and write their logarithms.

    For small a, a variate g(a) underflows. Its logarithm is therefore computed as
    ``log g(a + 1) + log(u) / a`` with a uniform u. g(a + 1) is drawn by rejection (Marsaglia and
    Tsang 2000). The loop over a row makes a proposal for each topic and applies a cheap test. About
    one proposal in ten fails the test; the failed proposals of a block of rows are decided
    together. The random numbers of a variate depend on the seed, the row and the topic alone, and
    have single precision.

    Parameters
    ----------
    array, rows, scale, prior : the shapes are ``prior[row] + scale * array[row]`` for each row in
        ``rows`` (A,)
    seed : int
    out : float32 (A, K), logarithms of the variates, written
    log_sums : (B, K), logarithm of the sum of the variates over each block of DRAWN_WORDS rows,
        written
    shape_sums : (B, K), sum of the shapes over each block of rows, written
    singles, doubles, bit_scratch, int_scratch : scratch
    """
    n_topics = array.shape[1]
    normal, log_boost = singles[0], singles[1]
    # The next arrays describe the proposals of a block that fail the cheap test.
    shapes, normals, variates, bits = doubles[0], doubles[1], doubles[2], bit_scratch[0]
    doubtful_rows, doubtful_topics, is_doubtful = int_scratch[2], int_scratch[3], int_scratch[0]
    largest, scaled_sums = doubles[3], doubles[4]
    for _ in range(CLAIMS):
        start, stop = claim(counter, DRAWN_WORDS, rows.size)
        if start >= stop:
            break
        block = start // DRAWN_WORDS
        # With the constant 0 instead of np.int64(0), numba would compile accepted_gammas again.
        n_doubtful = np.int64(0)
        for k in range(n_topics):
            shape_sums[block, k] = 0.0
        for i in range(start, stop):
            position, row, eta = i - start, rows[i], np.float64(prior[rows[i]])
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(row + 1))
            fill_normals(state, normal[position])
            for k in range(n_topics):
                shape = eta + np.float64(scale) * np.float64(array[row, k])
                shape_sums[block, k] += shape
                a = np.float32(shape)
                u, test = unit_pair(mix(state - GOLDEN * np.uint64(k + 1)))
                out[i, k], is_doubtful[k] = proposed_gamma(a, normal[position, k], test)
                log_boost[position, k] = log(u) / a
            for k in range(n_topics):
                # Each (i, k) is written, and a failed test alone keeps it: there is no branch.
                doubtful_rows[n_doubtful], doubtful_topics[n_doubtful] = i, k
                n_doubtful += is_doubtful[k]
        for j in range(n_doubtful):
            i, k = doubtful_rows[j], doubtful_topics[j]
            row = rows[i]
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(row + 1))
            shapes[j] = np.float64(prior[row]) + np.float64(scale) * np.float64(array[row, k])
            bits[j], normals[j] = mix(state - GOLDEN * np.uint64(k + 1)), normal[i - start, k]
        accepted_gammas(n_doubtful, doubles, bit_scratch, int_scratch)
        for j in range(n_doubtful):
            out[doubtful_rows[j], doubtful_topics[j]] = variates[j]
        for k in range(n_topics):
            largest[k], scaled_sums[k] = -np.inf, 0.0
        for i in range(start, stop):
            for k in range(n_topics):
                out[i, k] = log(out[i, k]) + log_boost[i - start, k]
                largest[k] = max(largest[k], np.float64(out[i, k]))
        for i in range(start, stop):
            for k in range(n_topics):
                scaled_sums[k] += exp(np.float64(out[i, k]) - largest[k])
        for k in range(n_topics):
            log_sums[block, k] = largest[k] + log(scaled_sums[k])
        finish(counter, start, stop)


# ------------------------------------------------------------------------------------- tokens
def count_tokens(counts: Array, n_topics: int, token_indptr: IndexArray) -> IndexArray:
    """Write where the tokens of each entry begin; return the numbers of entries of large counts.

    An entry has ceil(count) tokens. An entry of a large count has no tokens, since they are drawn
    together. ``token_indptr`` (nnz + 1,) is written.
    """
    is_large = counts > max(MOST_TOKENS, n_topics)
    token_indptr[0] = 0
    np.cumsum(np.where(is_large, 0.0, np.ceil(counts)).astype(np.int64), out=token_indptr[1:])
    return np.flatnonzero(is_large)


@part
def token_weight(count: Any, position: int, n_tokens: int) -> Any:
    """Return the weight of the token at a position of an entry.

    The weight is 1. The last token of an entry has the rest of a fractional count.
    """
    return lit(count, 1.0) if position < n_tokens - 1 else count - lit(count, 1.0) * position


# -------------------------------------------------------------------------------------- Gibbs
@part
def _accumulate(base: Array, row: Array, out: Array) -> None:
    """Write to ``out`` the sum of ``base_k row_k`` over all topics up to the end of each block."""
    total = lit(base[0], 0.0)
    for block in range(out.size):
        block_sum = lit(base[0], 0.0)
        for k in range(block * PRIOR_TOPICS, min((block + 1) * PRIOR_TOPICS, base.size)):
            block_sum += base[k] * row[k]
        total += block_sum
        out[block] = total


@jit
def prior_table(table: Array, base: Array, cumulative: Array, counter: IndexArray) -> None:
    """Write cumulative sums over topics of ``alpha_k^b beta_ka^b`` for each word a.

    This product is the conditional probability of a topic without tokens in the document.
    ``table`` (A, K) is beta^b, ``base`` (1, K) is alpha^b. ``cumulative`` (A, K / PRIOR_TOPICS,
    rounded up) gets the sums over all topics up to the end of each block of PRIOR_TOPICS topics.
    """
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, table.shape[0])
        if start >= stop:
            break
        for a in range(start, stop):
            _accumulate(base[0], table[a], cumulative[a])
        finish(counter, start, stop)


@part
def _power(x: Any, b: Any) -> Any:
    """Return x^b of a positive x."""
    return x if b == lit(b, 1.0) else exp(b * log(x))


@part
def _gain(alpha: Any, size: Any, inv_temp: Any) -> Any:
    """Return (alpha + b n)^b - alpha^b, where n is the ``size`` of a topic in a document."""
    return _power(alpha + inv_temp * size, inv_temp) - _power(alpha, inv_temp)


@part
def _draw_proportions(
    alpha: Array, inv_temp: Any, sizes: Array, drawn: bool, theta: Array, state: np.uint64
) -> np.uint64:
    """Write t^b up to a factor to ``theta``; return the new random state.

    t is a draw from Dir(alpha + b sizes) if ``drawn``, and otherwise the mean of this distribution.
    """
    top = -np.inf
    for k in range(theta.size):
        shape = np.float64(alpha[k]) + np.float64(inv_temp) * sizes[k]
        if drawn and shape > 0.0:
            value, state = gamma_variate(shape, state)
            state += GOLDEN
            # ``value`` has shape + 1, see :func:`_draw_log_gammas`.
            theta[k] = np.log(value) + np.log(1.0 - uniform(mix(state))) / shape
        elif shape > 0.0:
            theta[k] = np.log(shape)
        else:
            theta[k] = -np.inf
        top = max(top, theta[k])
    for k in range(theta.size):
        theta[k] = np.exp(inv_temp * (theta[k] - top))
    return state


@part
def _draw_assignments(
    count: float, theta: Array, row: Array, later_sums: Array, out: Array, state: np.uint64
) -> np.uint64:
    """Draw the tokens of an entry in each topic; return the new random state.

    ``out`` (K,) is drawn from Mult(count, theta * row) and written. A fractional count consists of
    whole tokens and one token that has the fraction as its weight. ``later_sums`` (K,) is scratch.
    """
    n_topics = theta.size
    total = 0.0
    for k in range(n_topics - 1, -1, -1):
        later_sums[k] = total
        total += theta[k] * np.float64(row[k])
    n_left = np.floor(count)
    state += GOLDEN
    draw, fraction = uniform(mix(state)) * total, count - n_left
    for k in range(n_topics):
        weight = theta[k] * np.float64(row[k])
        out[k] = n_left
        if later_sums[k] > 0.0:
            out[k], state = binomial(n_left, weight / (weight + later_sums[k]), state)
        n_left -= out[k]
        if draw >= later_sums[k] and weight > 0.0:
            out[k] += fraction
            fraction = 0.0
    return state


@part
def _bulk_step(
    bulk: Bulk, d: int, sweep: int, share: float, words: IndexArray, counts: Array, table: Array,
    alpha: Array, inv_temp: Any, token_topics: IndexArray, token_weights: Array,
    n_doc_tokens: int, bulk_sizes: Array, n_members: int, members: IndexArray,
    member_of: IndexArray, sizes: Array, gains: Array, member_tokens: IndexArray, state: np.uint64,
) -> tuple[int, np.uint64]:  # fmt: skip
    """Draw the tokens of the large entries of document d after a sweep over the other tokens.

    Return the number of members and the new random state. ``share`` times the numbers of drawn
    tokens is added to the means in ``bulk``. On entry, ``bulk_sizes`` (K,) float64 are the numbers
    of tokens that the previous sweep drew for each topic in large entries; this sweep overwrites
    them. ``alpha`` is (K,). All other arguments are variables of :func:`_gibbs_steps`, whose
    members are computed again.
    """
    indptr, entries, means, scratch, n_topic_tokens = bulk
    n_topics = alpha.size
    single_sizes, topic_sizes, theta, later_sums, entry_sizes = (
        scratch[1], scratch[2], scratch[3], scratch[4], scratch[5],
    )  # fmt: skip
    for k in range(n_topics):
        single_sizes[k], n_topic_tokens[k] = 0.0, 0
    for i in range(n_doc_tokens):
        single_sizes[token_topics[i]] += token_weights[i]
        n_topic_tokens[token_topics[i]] += 1
    # Sweep 0 first approaches a fixed point, where theta ~ alpha + b n and n are the expected
    # tokens given theta. A sampler that started elsewhere would take many sweeps to get there,
    # since all tokens of an entry are drawn given one theta.
    n_steps = 1 if sweep > 0 else BULK_STEPS
    for step in range(n_steps):
        for k in range(n_topics):
            topic_sizes[k] = single_sizes[k] + bulk_sizes[k]
            bulk_sizes[k] = 0.0
        state = _draw_proportions(alpha, inv_temp, topic_sizes, sweep > 0, theta, state)
        if step < n_steps - 1:
            for e in range(indptr[d], indptr[d + 1]):
                row, total = table[words[entries[e]]], 0.0
                for k in range(n_topics):
                    entry_sizes[k] = theta[k] * np.float64(row[k])
                for k in range(n_topics):
                    total += entry_sizes[k]
                scale = np.float64(counts[entries[e]]) / total
                for k in range(n_topics):
                    bulk_sizes[k] += scale * entry_sizes[k]
    for e in range(indptr[d], indptr[d + 1]):
        j = entries[e]
        state = _draw_assignments(
            np.float64(counts[j]), theta, table[words[j]], later_sums, entry_sizes, state
        )
        for k in range(n_topics):
            bulk_sizes[k] += entry_sizes[k]
            means[e, k] += share * entry_sizes[k]
    # Compute all members again. Their sizes may have rounding errors, since the sweep has added
    # tokens to large numbers and subtracted tokens from them.
    for m in range(n_members):
        member_of[members[m]] = -1
        gains[m] = 0.0
    n_members = 0
    for k in range(n_topics):
        if n_topic_tokens[k] > 0 or bulk_sizes[k] > 0.0:
            m = n_members
            n_members += 1
            members[m], member_of[k] = k, m
            sizes[m] = single_sizes[k] + bulk_sizes[k]
            # All tokens in large entries count as one, which keeps the member during a sweep.
            member_tokens[m] = n_topic_tokens[k] + (bulk_sizes[k] > 0.0)
            gains[m] = _gain(alpha[k], sizes[m], inv_temp)
    return n_members, state


def gibbs_steps(*arguments: Any) -> None:
    """Allocate the scratch of a thread and call :func:`_gibbs_steps`."""
    *others, bulk, counter = arguments
    indptr, token_indptr, table, alpha = (others[i] for i in (0, 3, 5, 8))
    longest, n_topics = np.diff(token_indptr[indptr]).max(initial=0), table.shape[1]
    if bulk is not None:
        bulk = *bulk, np.empty((6, n_topics)), np.empty(n_topics, np.int64)
    token_entries = None
    if len(alpha) > 1:
        n_entries, n_blocks = np.diff(indptr).max(initial=0), -(-n_topics // PRIOR_TOPICS)
        others[7] = np.empty((n_entries, n_blocks), table.dtype)
        token_entries = np.empty(longest, np.int32)
    _gibbs_steps(
        *others,
        bulk,
        token_entries,
        # The sampler would be 2 % slower if these were rows of a few arrays.
        np.empty(n_topics + 1, np.int32),
        np.empty(n_topics, np.int32),
        np.empty(n_topics, np.int64),
        np.empty(longest, np.int32),
        np.empty(longest, np.int32),
        np.empty(n_topics, alpha.dtype),
        np.empty(longest, alpha.dtype),
        np.empty(n_topics + 1, table.dtype),
        np.empty(n_topics + 1, table.dtype),
        counter,
    )


@jit
def _gibbs_steps(
    indptr: IndexArray, words: IndexArray, counts: Array, token_indptr: IndexArray,
    seeds: NDArray[np.uint64], table: Array, base: Array, cumulative: Array, alpha: Array,
    inv_temp: Any, gain_table: Array, n_burn_in: int, n_samples: int, samples: IndexArray,
    proportions: Array, bulk: Bulk | None, token_entries: IndexArray | None, members: IndexArray,
    member_of: IndexArray, member_tokens: IndexArray, token_words: IndexArray,
    token_topics: IndexArray, sizes: Array, token_weights: Array, gains: Array,
    partial_sums: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Draw the topics of the tokens of each document by Gibbs sampling.

    The conditional probability of a topic is the sum of ``((alpha_k + b n_k)^b - alpha_k^b)
    beta_kw^b``, which is 0 for topics without tokens in the document, and of ``alpha_k^b
    beta_kw^b``, whose cumulative sums are tabulated for each word. The draw of a token therefore
    takes about as many operations as the document has topics (Yao, Mimno and McCallum 2009).

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    token_indptr : (nnz + 1,) where the tokens of each entry begin
    seeds : (n,) uint64 seed of the random numbers of each document
    table : float32 (A, K) beta_kw^b of the active words; each word may have an arbitrary factor
    base : float32 (1, K) or (n, K) alpha^b of all documents or of each; 0 for topics that a
        document must not have
    cumulative : float32 (A, B) for B blocks of topics, see :func:`prior_table`; if each document
        has its alpha, scratch (E, B) for the E entries of the document with the most entries
    alpha : (1, K) or (n, K)
    gain_table : (K, M) ``(alpha + b n)^b - alpha^b`` of n = 0, 1, ..., M - 1; M is 1, and the table
        is 0, if b = 1 or if each document has its alpha
    n_burn_in, n_samples : numbers of sweeps that are dropped and kept after sweep 0
    samples : (tokens, n_samples) int32, the topic of each token in each kept sweep, written
    proportions : (n, K) mean of ``alpha + n_k`` over the kept sweeps, written
    bulk : None, or (indptr, entries, means) of the L entries of large counts, which have no tokens
        ``entries`` (L,) are numbers of entries; the large entries of document d begin at
        ``indptr[d]``, (n + 1,). ``means`` (L, K) float64 must be 0. The mean number of tokens of
        each large entry in each topic over the kept sweeps is added to it.
    token_entries : scratch, a number for each token, if each document has its alpha; else None
    members, member_of, member_tokens, sizes, gains, partial_sums : scratch, a number for each topic
    token_words, token_topics, token_weights : scratch, a number for each token of the longest
        document
    """
    # The loops take scalars and two-dimensional indices instead of views of rows. Counting the
    # references of a view or of an array argument would cost as much as the arithmetic of a token.
    n_topics, n_tabled = gain_table.shape
    last_block, last_alpha_row = cumulative.shape[1] - 1, alpha.shape[0] - 1
    zero, no_weight = lit(gains[0], 0.0), lit(sizes[0], 0.0)
    is_tempered = inv_temp != lit(inv_temp, 1.0)
    # The topics that a document has are its members. Member m is topic members[m]. It has
    # member_tokens[m] tokens of total weight n_k = sizes[m], and gains[m] is its entry of
    # ``gain_table``. gains[n_members] is 0, since the loop over the second half of the members may
    # read it. member_of[k] is the member of topic k, or -1 if the document does not have the topic.
    # A member that loses its last token stays until the end of the sweep.
    for k in range(n_topics):
        members[k], member_of[k], sizes[k], member_tokens[k], gains[k] = 0, -1, no_weight, 0, zero
    members[n_topics], gains[n_topics] = 0, zero
    # numba decides each ``is not None`` when it compiles the function.
    if bulk is not None:
        bulk_sizes = bulk[3][0]
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        first_token = token_indptr[indptr[d]]
        n_doc_tokens = token_indptr[indptr[d + 1]] - first_token
        alpha_row = min(d, last_alpha_row)
        if token_entries is not None:
            for j in range(indptr[d], indptr[d + 1]):
                e = j - indptr[d]
                _accumulate(base[alpha_row], table[words[j]], cumulative[e])
                for i in range(token_indptr[j] - first_token, token_indptr[j + 1] - first_token):
                    token_entries[i] = e
        for j in range(indptr[d], indptr[d + 1]):
            begin = token_indptr[j] - first_token
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            for i in range(n_tokens):
                token_words[begin + i] = words[j]
                token_weights[begin + i] = token_weight(counts[j], i, n_tokens)
        n_members = 0
        state = seeds[d]
        for k in range(n_topics):
            proportions[d, k] = no_weight
        if bulk is not None:
            bulk_sizes[:] = 0.0
        for sweep in range(n_burn_in + n_samples + 1):
            # Sweep 0 assigns each token given the tokens before it. ``sample`` is negative in
            # sweep 0 and in the sweeps that are dropped.
            sample = sweep - n_burn_in - 1
            for i in range(n_doc_tokens):
                word, weight = token_words[i], token_weights[i]
                prior_row = word
                if token_entries is not None:
                    prior_row = token_entries[i]
                if sweep > 0:
                    m = member_of[token_topics[i]]
                    member_tokens[m] -= 1
                    # The size of a member without tokens is set to 0, since rounding of fractional
                    # weights may leave a remainder.
                    sizes[m] = sizes[m] - weight if member_tokens[m] > 0 else no_weight
                    gains[m] = sizes[m]
                    if is_tempered:
                        k = members[m]
                        whole = np.int64(sizes[m]) if sizes[m] < n_tabled else 0
                        is_tabled = sizes[m] == lit(no_weight, 1.0 * whole)
                        alpha_k = alpha[alpha_row, k]
                        gains[m] = (
                            gain_table[k, whole]
                            if is_tabled
                            else _gain(alpha_k, sizes[m], inv_temp)
                        )
                # The members are divided into two halves, whose partial sums are computed at the
                # same time. The member is found by counting the partial sums up to the draw. This
                # is faster than a search, since there are no branches to predict.
                half = (n_members + 1) // 2
                first_sum, second_sum = zero, zero
                for m in range(half):
                    first_sum += gains[m] * table[word, members[m]]
                    second_sum += gains[half + m] * table[word, members[half + m]]
                    partial_sums[m], partial_sums[half + m] = first_sum, second_sum
                total = first_sum + second_sum
                state += GOLDEN
                draw = unit(mix(state)) * (total + cumulative[prior_row, last_block])
                if draw < total:
                    m, rest = 0, draw - first_sum
                    for i_half in range(half):
                        m += 1 if partial_sums[i_half] <= draw else 0
                        m += 1 if partial_sums[half + i_half] <= rest else 0
                    m = min(m, n_members - 1)
                else:
                    draw -= total
                    block = 0
                    while block < last_block and cumulative[prior_row, block] <= draw:
                        block += 1
                    draw -= cumulative[prior_row, block - 1] if block > 0 else zero
                    k = block * PRIOR_TOPICS
                    stop_block = min(k + PRIOR_TOPICS, n_topics) - 1
                    draw -= base[alpha_row, k] * table[word, k]
                    while draw >= zero and k < stop_block:
                        k += 1
                        draw -= base[alpha_row, k] * table[word, k]
                    # Rounding may lead to a topic that the document must not have; take the last
                    # allowed topic before it.
                    while k > 0 and base[alpha_row, k] == zero:
                        k -= 1
                    m = member_of[k]
                    if m < 0:
                        m = n_members
                        n_members += 1
                        members[m], sizes[m], member_tokens[m], member_of[k] = k, no_weight, 0, m
                k = members[m]
                member_tokens[m] += 1
                sizes[m] += weight
                gains[m] = sizes[m]
                if is_tempered:
                    whole = np.int64(sizes[m]) if sizes[m] < n_tabled else 0
                    is_tabled = sizes[m] == lit(no_weight, 1.0 * whole)
                    gains[m] = (
                        gain_table[k, whole]
                        if is_tabled
                        else _gain(alpha[alpha_row, k], sizes[m], inv_temp)
                    )
                token_topics[i] = k
                if sample >= 0:
                    samples[first_token + i, sample] = k
            if bulk is not None:
                if bulk[0][d] < bulk[0][d + 1]:
                    share = 1.0 / n_samples if sample >= 0 else 0.0
                    n_members, state = _bulk_step(
                        bulk, d, sweep, share, words, counts, table, alpha[alpha_row], inv_temp,
                        token_topics, token_weights, n_doc_tokens, bulk_sizes, n_members, members,
                        member_of, sizes, gains, member_tokens, state,
                    )  # fmt: skip
            # Add the sizes of the members to the proportions. Remove members without tokens; the
            # last member takes the place of a removed member.
            m = 0
            while m < n_members:
                if member_tokens[m] > 0:
                    if sample >= 0:
                        proportions[d, members[m]] += sizes[m]
                    m += 1
                    continue
                n_members -= 1
                member_of[members[m]] = -1
                gains[m] = zero
                if m < n_members:
                    members[m], sizes[m] = members[n_members], sizes[n_members]
                    gains[m], member_tokens[m] = gains[n_members], member_tokens[n_members]
                    member_of[members[m]] = m
                    gains[n_members] = zero
        share = lit(no_weight, 1.0) / lit(no_weight, 1.0 * n_samples)
        for k in range(n_topics):
            proportions[d, k] = alpha[alpha_row, k] + share * proportions[d, k]
        for m in range(n_members):
            member_of[members[m]] = -1
            gains[m] = zero
        finish(counter, d, stop)


@jit
def sampled_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    token_indptr: IndexArray, row_weights: Array, samples: IndexArray, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write to ``out[a, k]`` the tokens of word a in topic k, averaged over the kept sweeps.

    Tokens are weighted by ``row_weights`` (n,) of their documents. Entries of large counts have no
    tokens here.
    """
    n_samples = samples.shape[1]
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, word_indptr.size - 1)
        if start >= stop:
            break
        share = lit(out[start, 0], 1.0) / lit(out[start, 0], 1.0 * n_samples)
        for a in range(start, stop):
            out[a, :] = lit(share, 0.0)
            for e in range(word_indptr[a], word_indptr[a + 1]):
                j = entries[e]
                n_tokens = token_indptr[j + 1] - token_indptr[j]
                factor = share * row_weights[documents[e]]
                for i in range(n_tokens):
                    w = factor * token_weight(counts[j], i, n_tokens)
                    for s in range(n_samples):
                        out[a, samples[token_indptr[j] + i, s]] += w
        finish(counter, start, stop)


# --------------------------------------------------------------------------------------- CVB0
@part
def _base(alpha: Any, inv_temp: Any) -> Any:
    """Return alpha^b, which is 0 for alpha = 0 at all temperatures."""
    zero = lit(alpha, 0.0)
    return _power(alpha, inv_temp) if alpha > zero else zero


@jit_allocating
def cvb0_steps(
    indptr: IndexArray, words: IndexArray, counts: Array, table: Array, priors: Array,
    inv_temp: Any, max_iter: int, tol: Any, shares: Array, proportions: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Optimise q(z) of each document by CVB0 with known topics.

    CVB0 repeats, for one entry after the other,

        q(z_i = k) ~ ((alpha_k + b E[n_k^{-i}]) beta_{k w_i})^b,

    where n^{-i} counts the other tokens of the document. Asuncion et al. (2009) have the counts of
    topics in place of beta.

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    table : (A, K) beta_kw^b; each word may have an arbitrary factor
    priors : (1, K) or (n, K) alpha of all documents or of each; 0 for topics that a document must
        not have
    max_iter : maximum number of passes over the entries of a document
    tol : a document has converged if the mean over topics of ``sum_j n_j |change of q_jk|`` over
        its entries j falls below this number
    shares : (nnz, K) q(z) of a token of each entry, written
    proportions : (n, K) ``alpha + E[n_k]``, written
    """
    # Sums have separate loops. If a loop also wrote to an array, the compiler would test at run
    # time whether arrays overlap, and use vectors only if they do not. The last digits of the sum
    # would depend on the result of this test.
    n_topics, last_alpha_row = priors.shape[1], priors.shape[0] - 1
    zero = lit(priors[0, 0], 0.0)
    new_q = np.empty(n_topics, priors.dtype)
    tempered = inv_temp != lit(zero, 1.0)
    base = np.empty(n_topics, priors.dtype)
    for k in range(n_topics):
        base[k] = _base(priors[0, k], inv_temp)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        alpha = priors[min(d, last_alpha_row)]
        if last_alpha_row > 0:
            for k in range(n_topics):
                base[k] = _base(alpha[k], inv_temp)
        sizes = proportions[d]
        sizes[:] = zero
        for j in range(indptr[d], indptr[d + 1]):
            row, q = table[words[j]], shares[j]
            total = zero
            for k in range(n_topics):
                q[k] = base[k] * row[k]
            for k in range(n_topics):
                total += q[k]
            scale = lit(zero, 1.0) / total
            for k in range(n_topics):
                q[k] *= scale
                sizes[k] += counts[j] * q[k]
        for _ in range(max_iter):
            change = zero
            for j in range(indptr[d], indptr[d + 1]):
                row, q = table[words[j]], shares[j]
                n = counts[j]
                token = min(n, lit(zero, 1.0))
                total = zero
                for k in range(n_topics):
                    # Rounding may make the difference negative.
                    others = max(sizes[k] - token * q[k], zero)
                    new_q[k] = alpha[k] + inv_temp * others
                if tempered:
                    # The branch in _power would make this loop two to four times as slow.
                    for k in range(n_topics):
                        power = exp(inv_temp * log(new_q[k]))
                        new_q[k] = power if alpha[k] > zero else zero
                for k in range(n_topics):
                    new_q[k] *= row[k]
                for k in range(n_topics):
                    total += new_q[k]
                scale = lit(zero, 1.0) / total
                # From here on, ``new_q`` is the change of q.
                for k in range(n_topics):
                    new_q[k] = scale * new_q[k] - q[k]
                    sizes[k] += n * new_q[k]
                    q[k] += new_q[k]
                for k in range(n_topics):
                    change += n * abs(new_q[k])
            if change < tol * n_topics:
                break
        for k in range(n_topics):
            proportions[d, k] = alpha[k] + max(sizes[k], zero)
        finish(counter, d, stop)


@jit
def shared_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    row_weights: Array, shares: Array, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write to ``out[a, k]`` the expected tokens of word a in topic k, ``sum_d w_d n_da q_dak``.

    w are ``row_weights`` (n,), n the ``counts`` and q the ``shares`` (nnz, K) of entries.
    """
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, word_indptr.size - 1)
        if start >= stop:
            break
        for a in range(start, stop):
            target = out[a]
            target[:] = lit(target[0], 0.0)
            for e in range(word_indptr[a], word_indptr[a + 1]):
                w = row_weights[documents[e]] * counts[entries[e]]
                q = shares[entries[e]]
                for k in range(q.size):
                    target[k] += w * q[k]
        finish(counter, start, stop)
