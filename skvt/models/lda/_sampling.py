"""Compiled local steps of latent Dirichlet allocation given topics: Gibbs sampling and CVB0.

The topics are known here, as a draw or a point estimate, and the proportions of a document are
summed out (Mimno, Hoffman and Blei 2012):

    p(z_i = k | z_-i, w_i, beta) ~ (alpha_k + n_k^{-i}) beta_{k w_i}

At inverse temperature b the likelihood of words and assignments is raised to the power b and the
document prior is not; to the precision of Stirling's formula the conditional is then

    ((alpha_k + b n_k^{-i}) beta_{k w_i})^b.

Tokens of an entry with a large count are not visited one by one. They are drawn jointly after each
sweep over the others, given a draw of the proportions,

    theta ~ Dir(alpha + b n),   z of the entry ~ Mult(count, (theta_k beta_kw)^b),

which leaves the same p(z | w, beta) invariant (for b < 1, that of the tempered model itself).
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

# ``bulk`` of ``_gibbs_steps`` for entries of large counts, then scratch (6, K) and integers (K,).
Bulk: TypeAlias = tuple[IndexArray, IndexArray, Array, Array, IndexArray]

# The tokens of an entry of a larger count are drawn together, unless there are more topics than
# tokens: a joint draw takes one draw for each topic.
MOST_TOKENS = 100
# Number of steps towards the most probable proportions before the first joint draw.
BULK_STEPS = 20
# Number of topics in a block, for which :func:`prior_table` holds the cumulative sum.
PRIOR_TOPICS = 16
# Number of words that a thread takes at a time to draw topics.
DRAWN_WORDS = np.int64(64)


# -------------------------------------------------------------------------------- random numbers
def row_seeds(seed: Any, numbers: IndexArray) -> NDArray[np.uint64]:
    """Return one seed for each row, (n,) uint64, given the numbers of the rows."""
    return np.asarray(mixed(seed + GOLDEN * (numbers + 1).astype(np.uint64)))


def draw_log_gammas(*arguments: Any) -> None:
    """Allocate scratch and call :func:`_draw_log_gammas`: the task of one thread."""
    n_topics = arguments[0].shape[1]
    size = int(DRAWN_WORDS) * n_topics
    _draw_log_gammas(
        *arguments[:-1], np.empty((2, DRAWN_WORDS, n_topics + 1), np.float32), np.empty((5, size)),
        np.empty((2, size), np.uint64), np.empty((4, size), np.int32), arguments[-1],
    )  # fmt: skip


@jit
def _draw_log_gammas(
    array: Array, rows: IndexArray, scale: Any, prior: Array, seed: Any, out: Array,
    log_sums: Array, shape_sums: Array, single: Array, numbers: Array, words: NDArray[np.uint64],
    places: IndexArray, counter: IndexArray,
) -> None:  # fmt: skip
    """Write logarithms of gamma variates of shapes prior + scale * array in ``rows`` to ``out``.

    ``log g(a) = log g(a + 1) + log(u) / a``, since g(a) itself underflows for small a; g(a + 1) is
    drawn by rejection (Marsaglia and Tsang 2000). The loop over a row makes a proposal for each
    entry and applies the cheap test. The proposals that fail it, one in ten, are decided together.
    Each entry has its own random numbers, of single precision. ``log_sums[b]`` are logarithms of
    the sums of the variates over the b-th DRAWN_WORDS rows, ``shape_sums[b]`` the sums of their
    shapes. ``single``, ``numbers``, ``words`` and ``places`` are scratch.
    """
    n_topics = array.shape[1]
    normal, log_boost = single[0], single[1]
    # Data of the entries that fail the cheap test.
    shapes, normals, values, bits = numbers[0], numbers[1], numbers[2], words[0]
    rows_of, topics_of, doubtful = places[2], places[3], places[0]
    top, total = numbers[3], numbers[4]
    for _ in range(CLAIMS):
        start, stop = claim(counter, DRAWN_WORDS, rows.size)
        if start >= stop:
            break
        block = start // DRAWN_WORDS
        n = np.int64(0)  # not the constant 0, for which numba would compile accepted_gammas anew
        for k in range(n_topics):
            shape_sums[block, k] = 0.0
        for i in range(start, stop):
            r, row, eta = i - start, rows[i], np.float64(prior[rows[i]])
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(row + 1))
            fill_normals(state, normal[r])
            for k in range(n_topics):
                shape = eta + np.float64(scale) * np.float64(array[row, k])
                shape_sums[block, k] += shape
                a = np.float32(shape)
                u, test = unit_pair(mix(state - GOLDEN * np.uint64(k + 1)))
                out[i, k], doubtful[k] = proposed_gamma(a, normal[r, k], test)
                log_boost[r, k] = log(u) / a
            for k in range(n_topics):
                rows_of[n], topics_of[n] = i, k
                n += doubtful[k]
        for j in range(n):
            i, k = rows_of[j], topics_of[j]
            row = rows[i]
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(row + 1))
            shapes[j] = np.float64(prior[row]) + np.float64(scale) * np.float64(array[row, k])
            bits[j], normals[j] = mix(state - GOLDEN * np.uint64(k + 1)), normal[i - start, k]
        accepted_gammas(n, numbers, words, places)
        for j in range(n):
            out[rows_of[j], topics_of[j]] = values[j]
        for k in range(n_topics):
            top[k], total[k] = -np.inf, 0.0
        for i in range(start, stop):
            for k in range(n_topics):
                out[i, k] = log(out[i, k]) + log_boost[i - start, k]
                top[k] = max(top[k], np.float64(out[i, k]))
        for i in range(start, stop):
            for k in range(n_topics):
                total[k] += exp(np.float64(out[i, k]) - top[k])
        for k in range(n_topics):
            log_sums[block, k] = top[k] + log(total[k])
        finish(counter, start, stop)


# ------------------------------------------------------------------------------------- tokens
def count_tokens(counts: Array, n_topics: int, token_indptr: IndexArray) -> IndexArray:
    """Write where the tokens of each entry begin; return the entries of large counts."""
    are_large = counts > max(MOST_TOKENS, n_topics)
    token_indptr[0] = 0
    np.cumsum(np.where(are_large, 0.0, np.ceil(counts)).astype(np.int64), out=token_indptr[1:])
    return np.flatnonzero(are_large)


@part
def token_weight(count: Any, position: int, n_tokens: int) -> Any:
    """Return the weight of a token: 1, or what remains for the last one of a fractional count."""
    return lit(count, 1.0) if position < n_tokens - 1 else count - lit(count, 1.0) * position


# -------------------------------------------------------------------------------------- Gibbs
@part
def _accumulate(base: Array, row: Array, out: Array) -> None:
    """Write the sum of ``base_k row_k`` over all topics up to the end of each block to ``out``."""
    total = lit(base[0], 0.0)
    for block in range(out.size):
        part = lit(base[0], 0.0)
        for k in range(block * PRIOR_TOPICS, min((block + 1) * PRIOR_TOPICS, base.size)):
            part += base[k] * row[k]
        total += part
        out[block] = total


@jit
def prior_table(table: Array, base: Array, cumulative: Array, counter: IndexArray) -> None:
    """Write cumulative sums of the prior's part of the conditional, ``base_k table[a, k]``.

    ``base`` is alpha^b, (1, K). ``cumulative`` (A, K / PRIOR_TOPICS) gets the sum over all topics
    up to the end of each block of PRIOR_TOPICS topics.
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
    return x if b == lit(b, 1.0) else exp(b * log(x))


@part
def _gain(alpha: Any, size: Any, inv_temp: Any) -> Any:
    """Return (alpha + b n)^b - alpha^b."""
    return _power(alpha + inv_temp * size, inv_temp) - _power(alpha, inv_temp)


@part
def _draw_proportions(
    alpha: Array, inv_temp: Any, sizes: Array, drawn: bool, theta: Array, state: np.uint64
) -> np.uint64:
    """Write t^b up to a factor to theta, t ~ Dir(alpha + b sizes) or its mean; return the state."""
    top = -np.inf
    for k in range(theta.size):
        shape = np.float64(alpha[k]) + np.float64(inv_temp) * sizes[k]
        if drawn and shape > 0.0:
            value, state = gamma_variate(shape, state)
            state += GOLDEN
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
    count: float, theta: Array, row: Array, tails: Array, out: Array, state: np.uint64
) -> np.uint64:
    """Draw an entry's tokens in each topic, ``out`` ~ Mult(count, theta * row); return the state.

    A fractional count consists of whole tokens and one token of the remaining weight. ``tails``
    (K,) is scratch.
    """
    n_topics = theta.size
    total = 0.0
    for k in range(n_topics - 1, -1, -1):
        tails[k] = total  # sum over later topics
        total += theta[k] * np.float64(row[k])
    left = np.floor(count)
    state += GOLDEN
    draw, rest = uniform(mix(state)) * total, count - left
    for k in range(n_topics):
        weight = theta[k] * np.float64(row[k])
        out[k] = left
        if tails[k] > 0.0:
            out[k], state = binomial(left, weight / (weight + tails[k]), state)
        left -= out[k]
        if draw >= tails[k] and weight > 0.0:
            out[k] += rest
            rest = 0.0
    return state


@part
def _bulk_step(
    bulk: Bulk, d: int, sweep: int, share: float, words: IndexArray, counts: Array, table: Array,
    alpha: Array, inv_temp: Any, topic: IndexArray, weights: Array, n_own: int, sizes: Array,
    n_members: int, members: IndexArray, place: IndexArray, size: Array, extra: Array,
    tokens_of: IndexArray, state: np.uint64,
) -> tuple[int, np.uint64]:  # fmt: skip
    """Draw the tokens of document d's large entries; return (n_members, the new random state).

    ``bulk`` is that of :func:`_gibbs_steps`; ``share`` times the drawn tokens is added to its
    means. ``sizes`` (K,) float64 are the tokens of each topic in large entries after the last
    sweep, and are overwritten by those of this sweep. The other arrays are those of
    :func:`_gibbs_steps` at the end of a sweep.
    """
    indptr, entries, means, scratch, n_tokens = bulk
    n_topics = alpha.size
    of_tokens, totals, theta, tails, drawn = (
        scratch[1], scratch[2], scratch[3], scratch[4], scratch[5],
    )  # fmt: skip
    for k in range(n_topics):
        of_tokens[k], n_tokens[k] = 0.0, 0
    for i in range(n_own):
        of_tokens[topic[i]] += weights[i]
        n_tokens[topic[i]] += 1
    # Sweep 0 first approaches the most probable proportions. From other proportions this takes many
    # sweeps, since all tokens of an entry move at once.
    n_steps = 1 if sweep > 0 else BULK_STEPS
    for step in range(n_steps):
        for k in range(n_topics):
            totals[k] = of_tokens[k] + sizes[k]
            sizes[k] = 0.0
        state = _draw_proportions(alpha, inv_temp, totals, sweep > 0, theta, state)
        if step < n_steps - 1:
            for e in range(indptr[d], indptr[d + 1]):
                row, total = table[words[entries[e]]], 0.0
                for k in range(n_topics):
                    drawn[k] = theta[k] * np.float64(row[k])
                for k in range(n_topics):
                    total += drawn[k]
                scale = np.float64(counts[entries[e]]) / total
                for k in range(n_topics):
                    sizes[k] += scale * drawn[k]
    for e in range(indptr[d], indptr[d + 1]):
        j = entries[e]
        state = _draw_assignments(
            np.float64(counts[j]), theta, table[words[j]], tails, drawn, state
        )
        for k in range(n_topics):
            sizes[k] += drawn[k]
            means[e, k] += share * drawn[k]
    # Recompute the packed topics, since next to a large count steps of single tokens are rounded.
    for m in range(n_members):
        place[members[m]] = -1
        extra[m] = 0.0
    n_members = 0
    for k in range(n_topics):
        if n_tokens[k] > 0 or sizes[k] > 0.0:
            m = n_members
            n_members += 1
            members[m], place[k] = k, m
            size[m] = of_tokens[k] + sizes[k]
            tokens_of[m] = n_tokens[k] + (sizes[k] > 0.0)
            extra[m] = _gain(alpha[k], size[m], inv_temp)
    return n_members, state


def gibbs_steps(*arguments: Any) -> None:
    """Allocate scratch and call :func:`_gibbs_steps`: the task of one thread."""
    *others, bulk, counter = arguments
    indptr, token_indptr, table, alpha = (others[i] for i in (0, 3, 5, 8))
    longest, n_topics = np.diff(token_indptr[indptr]).max(initial=0), table.shape[1]
    if bulk is not None:
        bulk = *bulk, np.empty((6, n_topics)), np.empty(n_topics, np.int64)
    entry_of = None
    if len(alpha) > 1:
        n_entries, n_blocks = np.diff(indptr).max(initial=0), -(-n_topics // PRIOR_TOPICS)
        others[7] = np.empty((n_entries, n_blocks), table.dtype)
        entry_of = np.empty(longest, np.int32)
    _gibbs_steps(
        *others,
        bulk,
        entry_of,
        # Separate arrays: with rows of a few arrays the sampler would be 2 % slower.
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
    inv_temp: Any, gains: Array, n_burn_in: int, n_samples: int, samples: IndexArray,
    proportions: Array, bulk: Bulk | None, entry_of: IndexArray | None, members: IndexArray,
    place: IndexArray, tokens_of: IndexArray, word_of: IndexArray, topic: IndexArray,
    size: Array, weights: Array, extra: Array, partial: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Sample the assignments of each document with its own random numbers.

    The conditional is a sum over the few topics that the document has, plus the part of the prior,
    which is tabulated for each word. A token takes as many operations as its document has topics
    (Yao, Mimno and McCallum 2009).

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    token_indptr : (nnz + 1,) where each entry's tokens begin
    seeds : (n,) uint64
    table : float32 (A, K) beta_kw^b of the active words, each word up to a factor
    base : float32 (1, K) or (n, K) alpha^b of all documents or of each; 0 for topics that a
        document must not have
    cumulative : float32 (A, K / PRIOR_TOPICS), see :func:`prior_table`; if each document has its
        alpha, (E, K / PRIOR_TOPICS) scratch for the E entries of the document with most of them
    alpha : (1, K) or (n, K)
    gains : (K, M) ``(alpha + b n)^b - alpha^b`` of n = 0, 1, ..., M - 1; if each document has its
        alpha, those of n = 0, which are 0
    n_burn_in, n_samples : sweeps dropped and kept
    samples : (tokens, n_samples) int32, the topic of each token in each kept sweep, written
    proportions : (n, K) mean of ``alpha + n_k`` over the kept sweeps, written
    bulk : None, or (indptr, entries, means) of the entries of large counts, which have no tokens
        ``entries`` (M,) are their numbers; those of document d begin at ``indptr[d]``, (n + 1,).
        ``means`` (M, K) float64 must be 0; their mean tokens of each topic over the kept sweeps are
        added.
    entry_of : scratch (tokens of the longest document,) if each document has its alpha; else None
    members, place, tokens_of, word_of, topic, size, weights, extra, partial : scratch, of topics or
        of the tokens of the longest document
    """
    # Scalars and two-dimensional indices throughout: counting the references of a row's view or of
    # an array argument would cost as much as the arithmetic of a token.
    n_topics, n_tabled = gains.shape
    last_block, last = cumulative.shape[1] - 1, alpha.shape[0] - 1
    zero, nothing = lit(extra[0], 0.0), lit(size[0], 0.0)
    hot = inv_temp != lit(inv_temp, 1.0)
    # The topics of a document are packed: member m is topic members[m], with n_k in size[m] and its
    # gain in extra[m]; extra[n_members] is 0. place[k] is the member of topic k, or -1. A member
    # that has lost its last token stays until the end of the sweep.
    for k in range(n_topics):
        members[k], place[k], size[k], tokens_of[k], extra[k] = 0, -1, nothing, 0, zero
    members[n_topics], extra[n_topics] = 0, zero
    if bulk is not None:  # numba decides this when it compiles the function
        bulk_sizes = bulk[3][0]
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        origin = token_indptr[indptr[d]]
        n_own = token_indptr[indptr[d + 1]] - origin
        p = min(d, last)  # row of alpha and of base
        if entry_of is not None:  # numba decides this, too, when it compiles
            for j in range(indptr[d], indptr[d + 1]):
                e = j - indptr[d]
                _accumulate(base[p], table[words[j]], cumulative[e])
                for i in range(token_indptr[j] - origin, token_indptr[j + 1] - origin):
                    entry_of[i] = e
        for j in range(indptr[d], indptr[d + 1]):
            first = token_indptr[j] - origin
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            for i in range(n_tokens):
                word_of[first + i] = words[j]
                weights[first + i] = token_weight(counts[j], i, n_tokens)
        n_members = 0
        state = seeds[d]
        for k in range(n_topics):
            proportions[d, k] = nothing
        if bulk is not None:
            bulk_sizes[:] = 0.0
        for sweep in range(n_burn_in + n_samples + 1):
            # Sweep 0 assigns the tokens one after the other, each given those before.
            kept = sweep - n_burn_in - 1
            for i in range(n_own):
                word, weight = word_of[i], weights[i]
                row = word
                if entry_of is not None:
                    row = entry_of[i]
                if sweep > 0:
                    m = place[topic[i]]
                    tokens_of[m] -= 1
                    # Reset the size of a topic without tokens: rounding may leave a remainder.
                    size[m] = size[m] - weight if tokens_of[m] > 0 else nothing
                    extra[m] = size[m]
                    if hot:
                        k = members[m]
                        n = np.int64(size[m]) if size[m] < n_tabled else 0
                        is_tabled = size[m] == lit(nothing, 1.0 * n)
                        of_k = alpha[p, k]
                        extra[m] = gains[k, n] if is_tabled else _gain(of_k, size[m], inv_temp)
                # The sums over two halves do not wait for each other. Counting the partial sums
                # below a draw is faster than searching them, since no branch is predicted.
                half = (n_members + 1) // 2
                first, second = zero, zero
                for m in range(half):
                    first += extra[m] * table[word, members[m]]
                    second += extra[half + m] * table[word, members[half + m]]
                    partial[m], partial[half + m] = first, second
                total = first + second
                state += GOLDEN
                draw = unit(mix(state)) * (total + cumulative[row, last_block])
                if draw < total:
                    m, rest = 0, draw - first
                    for i_half in range(half):
                        m += 1 if partial[i_half] <= draw else 0
                        m += 1 if partial[half + i_half] <= rest else 0
                    m = min(m, n_members - 1)
                else:
                    draw -= total
                    block = 0
                    while block < last_block and cumulative[row, block] <= draw:
                        block += 1
                    draw -= cumulative[row, block - 1] if block > 0 else zero
                    k = block * PRIOR_TOPICS
                    stop_block = min(k + PRIOR_TOPICS, n_topics) - 1
                    draw -= base[p, k] * table[word, k]
                    while draw >= zero and k < stop_block:
                        k += 1
                        draw -= base[p, k] * table[word, k]
                    # Rounding may lead to a topic that the document must not have.
                    while k > 0 and base[p, k] == zero:
                        k -= 1
                    m = place[k]
                    if m < 0:
                        m = n_members
                        n_members += 1
                        members[m], size[m], tokens_of[m], place[k] = k, nothing, 0, m
                k = members[m]
                tokens_of[m] += 1
                size[m] += weight
                extra[m] = size[m]
                if hot:
                    n = np.int64(size[m]) if size[m] < n_tabled else 0
                    is_tabled = size[m] == lit(nothing, 1.0 * n)
                    extra[m] = gains[k, n] if is_tabled else _gain(alpha[p, k], size[m], inv_temp)
                topic[i] = k
                if kept >= 0:
                    samples[origin + i, kept] = k
            if bulk is not None:
                if bulk[0][d] < bulk[0][d + 1]:
                    share = 1.0 / n_samples if kept >= 0 else 0.0
                    n_members, state = _bulk_step(
                        bulk, d, sweep, share, words, counts, table, alpha[p], inv_temp, topic,
                        weights, n_own, bulk_sizes, n_members, members, place, size, extra,
                        tokens_of, state,
                    )  # fmt: skip
            m = 0
            while m < n_members:
                if tokens_of[m] > 0:
                    if kept >= 0:
                        proportions[d, members[m]] += size[m]
                    m += 1
                    continue
                n_members -= 1
                place[members[m]] = -1
                extra[m] = zero
                if m < n_members:
                    members[m], size[m] = members[n_members], size[n_members]
                    extra[m], tokens_of[m] = extra[n_members], tokens_of[n_members]
                    place[members[m]] = m
                    extra[n_members] = zero
        share = lit(nothing, 1.0) / lit(nothing, 1.0 * n_samples)
        for k in range(n_topics):
            proportions[d, k] = alpha[p, k] + share * proportions[d, k]
        for m in range(n_members):
            place[members[m]] = -1
            extra[m] = zero
        finish(counter, d, stop)


@jit
def sampled_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    token_indptr: IndexArray, row_weights: Array, samples: IndexArray, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write weighted tokens of word a in topic k, averaged over kept sweeps, to ``out[a, k]``."""
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
    """Return alpha^b; 0 for alpha = 0."""
    zero = lit(alpha, 0.0)
    return _power(alpha, inv_temp) if alpha > zero else zero


@jit_allocating
def cvb0_steps(
    indptr: IndexArray, words: IndexArray, counts: Array, table: Array, priors: Array,
    inv_temp: Any, max_iter: int, tol: Any, shares: Array, proportions: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Optimise documents by CVB0 with known topics: q(z) of a token given counts of the others.

        q(z_i = k) ~ ((alpha_k + b E[n_k^{-i}]) beta_{k w_i})^b

    (Asuncion et al. 2009, there with the topics' counts in place of beta.)

    Parameters
    ----------
    priors : (1, K) or (n, K) alpha of all documents or of each; 0 for topics that a document must
        not have
    shares : (nnz, K) q(z) of a token of each entry, written
    proportions : (n, K) ``alpha + E[n_k]``, written
    tol : mean absolute change of E[n_k] at which a document has converged
    """
    # Sums have separate loops. In a loop that also writes, the compiler tests at run time whether
    # arrays overlap before it uses vectors, and the last digits would depend on the test.
    n_topics, last = priors.shape[1], priors.shape[0] - 1
    zero = lit(priors[0, 0], 0.0)
    new = np.empty(n_topics, priors.dtype)
    tempered = inv_temp != lit(zero, 1.0)
    base = np.empty(n_topics, priors.dtype)
    for k in range(n_topics):
        base[k] = _base(priors[0, k], inv_temp)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        alpha = priors[min(d, last)]
        if last > 0:
            for k in range(n_topics):
                base[k] = _base(alpha[k], inv_temp)
        size = proportions[d]
        size[:] = zero
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
                size[k] += counts[j] * q[k]
        for _ in range(max_iter):
            change = zero
            for j in range(indptr[d], indptr[d + 1]):
                row, q = table[words[j]], shares[j]
                n = counts[j]
                token = min(n, lit(zero, 1.0))
                total = zero
                for k in range(n_topics):
                    # Rounding may leave negative numbers.
                    others = max(size[k] - token * q[k], zero)
                    new[k] = alpha[k] + inv_temp * others
                if tempered:
                    # Not _power, whose branch makes this loop two to four times as slow.
                    for k in range(n_topics):
                        power = exp(inv_temp * log(new[k]))
                        new[k] = power if alpha[k] > zero else zero
                for k in range(n_topics):
                    new[k] *= row[k]
                for k in range(n_topics):
                    total += new[k]
                scale = lit(zero, 1.0) / total
                for k in range(n_topics):
                    new[k] = scale * new[k] - q[k]
                    size[k] += n * new[k]
                    q[k] += new[k]
                for k in range(n_topics):
                    change += n * abs(new[k])
            if change < tol * n_topics:
                break
        for k in range(n_topics):
            proportions[d, k] = alpha[k] + max(size[k], zero)
        finish(counter, d, stop)


@jit
def shared_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, counts: Array,
    row_weights: Array, shares: Array, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write ``sum_d w_d n_da q_dak`` to ``out[a, k]``."""
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
