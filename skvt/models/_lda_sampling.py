"""Compiled local steps of latent Dirichlet allocation given topics: Gibbs sampling and CVB0.

The topics are known here (drawn, or a point), and the proportions of a document are summed out
(Mimno, Hoffman and Blei 2012):

    p(z_i = k | z_-i, w_i, beta) ~ (alpha_k + n_k^{-i}) beta_{k w_i}

At inverse temperature b the likelihood of words and assignments is raised to the power b and the
document prior is not; to the precision of Stirling's formula that is

    ((alpha_k + b n_k^{-i}) beta_{k w_i})^b.
"""

import numpy as np

from skvt.expfam._special import exp, jit, lit, log
from skvt.models._random_bits import GOLDEN, mix, normal_pair, uniform

# An entry of a larger count is sampled as so many equal parts.
MOST_TOKENS = 1000


# -------------------------------------------------------------------------------- random numbers
@jit
def row_seeds(seed, n_rows):
    """One seed for each row, (n_rows,) uint64."""
    seeds = np.empty(n_rows, np.uint64)
    for d in range(n_rows):
        seeds[d] = mix(seed + GOLDEN * np.uint64(d + 1))
    return seeds


@jit
def draw_log_gammas(array, rows, scale, prior, seed, out):
    """``out[i, k]``: logarithm of a gamma variate of shape prior + scale * array in these rows.

    ``log g(a) = log g(a + 1) + log(u) / a``, since g(a) itself underflows for small a; g(a + 1) by
    rejection (Marsaglia and Tsang 2000). Each row has random numbers of its own, so that the draw
    does not depend on how rows are divided among threads.
    """
    n_topics = array.shape[1]
    lam, u = np.empty((2, n_topics))
    for i in range(rows.size):
        source, target = array[rows[i]], out[i]
        eta = np.float64(prior[rows[i]])
        state = mix(np.uint64(seed) + GOLDEN * np.uint64(rows[i] + 1))
        for k in range(n_topics):
            lam[k] = eta + np.float64(scale) * np.float64(source[k])
        first, spare, state = normal_pair(state)
        has_spare = True
        for k in range(n_topics):
            d = lam[k] + 2.0 / 3.0
            c = 1.0 / np.sqrt(9.0 * d)
            normal = first
            while True:
                v = 1.0 + c * normal
                state += GOLDEN
                draw = 1.0 - uniform(mix(state))
                square = normal * normal
                # in the negative, so that a NaN ends the loop
                accepted = not v <= 0.0
                if accepted:
                    v = v * v * v
                    # the first test is cheap and decides most cases
                    if not draw <= 1.0 - 0.0331 * square * square:
                        accepted = not log(draw) >= 0.5 * square + d - d * v + d * log(v)
                if has_spare:
                    normal, has_spare = spare, False
                else:
                    normal, spare, state = normal_pair(state)
                    has_spare = True
                if accepted:
                    first = normal
                    break
            target[k] = d * v
            state += GOLDEN
            u[k] = 1.0 - uniform(mix(state))
        for k in range(n_topics):
            target[k] = log(target[k]) + log(u[k]) / lam[k]


# ------------------------------------------------------------------------------------- tokens
@jit
def count_tokens(counts, token_indptr):
    """Where each entry's tokens begin: ceil(count) of them, MOST_TOKENS at most."""
    token_indptr[0] = 0
    for j in range(counts.size):
        tokens = min(np.int64(np.ceil(counts[j])), MOST_TOKENS)
        token_indptr[j + 1] = token_indptr[j] + tokens


@jit
def _token_weight(count, position, n_tokens):
    """Whole tokens have weight 1, the last of a fractional count the rest."""
    if n_tokens == MOST_TOKENS:
        return count / lit(count, 1.0 * MOST_TOKENS)
    return lit(count, 1.0) if position < n_tokens - 1 else count - lit(count, 1.0) * position


# -------------------------------------------------------------------------------------- Gibbs
@jit
def prior_table(table, base, cumulative):
    """cumulative[a, k] = sum_{l<=k} base_l table[a, l], base = alpha^b: what the prior proposes."""
    for a in range(table.shape[0]):
        total = lit(base[0], 0.0)
        for k in range(base.size):
            total += base[k] * table[a, k]
            cumulative[a, k] = total


@jit
def _search(cumulative, value):
    """First k with cumulative[k] > value."""
    low, high = 0, cumulative.size - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@jit
def _power(x, b):
    return x if b == lit(b, 1.0) else exp(b * log(x))


@jit
def gibbs_steps(
    indptr, words, counts, token_indptr, seeds, table, cumulative, alpha, inv_temp, n_burn_in,
    n_samples, samples, proportions,
):  # fmt: skip
    """Sample the assignments of each document, each by random numbers of its own.

    The conditional is a sum over the few topics that the document has, plus the share of the
    prior, which is tabulated for each word: a token costs as many operations as its document has
    topics (Yao, Mimno and McCallum 2009).

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    token_indptr : (nnz + 1,) where each entry's tokens begin
    seeds : (n,) uint64
    table : (A, K) beta_kw^b of the active words, each word scaled as it likes
    cumulative : (A, K) see :func:`prior_table`
    alpha : (K,)
    n_burn_in, n_samples : sweeps dropped and kept
    samples : (n_samples, tokens) int32, the topic of each token in each kept sweep, written
    proportions : (n, K) mean of ``alpha + n_k`` over the kept sweeps, written
    """
    n_topics = alpha.size
    zero = lit(alpha[0], 0.0)
    # The topics that a document has, packed: member m is topic members[m], with n_k in size[m] and
    # (alpha + b n)^b - alpha^b in extra[m]. place[k] is the member of topic k.
    members = np.empty(n_topics, np.int32)
    place = np.full(n_topics, -1, np.int32)
    size = np.zeros(n_topics, alpha.dtype)
    extra = np.zeros(n_topics, alpha.dtype)
    tokens_of = np.zeros(n_topics, np.int64)
    partial = np.empty(n_topics, alpha.dtype)
    base = np.empty(n_topics, alpha.dtype)
    for k in range(n_topics):
        base[k] = _power(alpha[k], inv_temp)
    first_token = token_indptr[0]
    topic = np.empty(token_indptr[-1] - first_token, np.int32)
    for d in range(indptr.size - 1):
        n_members = 0
        state = seeds[d]
        proportions[d] = zero
        for sweep in range(n_burn_in + n_samples + 1):
            # sweep 0 places the tokens one after the other
            kept = sweep - n_burn_in - 1
            for j in range(indptr[d], indptr[d + 1]):
                row, cumulated = table[words[j]], cumulative[words[j]]
                share_of_prior = cumulated[n_topics - 1]
                n_tokens = token_indptr[j + 1] - token_indptr[j]
                for i in range(n_tokens):
                    position = token_indptr[j] - first_token + i
                    weight = _token_weight(counts[j], i, n_tokens)
                    if sweep > 0:
                        m = place[topic[position]]
                        tokens_of[m] -= 1
                        if tokens_of[m] == 0:
                            n_members -= 1
                            last = n_members
                            place[members[m]] = -1
                            if m != last:
                                members[m], size[m], extra[m] = (
                                    members[last],
                                    size[last],
                                    extra[last],
                                )
                                tokens_of[m] = tokens_of[last]
                                place[members[m]] = m
                        else:
                            k = members[m]
                            size[m] -= weight
                            extra[m] = _power(alpha[k] + inv_temp * size[m], inv_temp) - base[k]
                    total = zero
                    for m in range(n_members):
                        total += extra[m] * row[members[m]]
                        partial[m] = total
                    state += GOLDEN
                    draw = lit(zero, 1.0) * uniform(mix(state)) * (total + share_of_prior)
                    if draw < total:
                        m = 0
                        while partial[m] <= draw:
                            m += 1
                        k = members[m]
                    else:
                        k = np.int32(_search(cumulated, draw - total))
                        m = place[k]
                    if m < 0:
                        m = n_members
                        n_members += 1
                        members[m], size[m], tokens_of[m], place[k] = k, zero, 0, m
                    tokens_of[m] += 1
                    size[m] += weight
                    extra[m] = _power(alpha[k] + inv_temp * size[m], inv_temp) - base[k]
                    topic[position] = k
                    if kept >= 0:
                        samples[kept, position] = k
            if kept >= 0:
                for m in range(n_members):
                    proportions[d, members[m]] += size[m]
        inverse = lit(zero, 1.0) / lit(zero, 1.0 * n_samples)
        for k in range(n_topics):
            proportions[d, k] = alpha[k] + inverse * proportions[d, k]
        for m in range(n_members):
            place[members[m]] = -1


@jit
def sampled_statistics(
    word_indptr, documents, entries, counts, token_indptr, row_weights, samples, out
):
    """``out[a, k]``: weighted tokens of word a in topic k, in the mean over the kept sweeps."""
    n_samples = samples.shape[0]
    share = lit(out[0, 0], 1.0) / lit(out[0, 0], 1.0 * n_samples)
    for a in range(word_indptr.size - 1):
        target = out[a]
        target[:] = lit(share, 0.0)
        for e in range(word_indptr[a], word_indptr[a + 1]):
            j = entries[e]
            n_tokens = token_indptr[j + 1] - token_indptr[j]
            factor = share * row_weights[documents[e]]
            for i in range(n_tokens):
                w = factor * _token_weight(counts[j], i, n_tokens)
                for s in range(n_samples):
                    target[samples[s, token_indptr[j] + i]] += w


# --------------------------------------------------------------------------------------- CVB0
@jit
def cvb0_steps(
    indptr, words, counts, table, alpha, inv_temp, max_iter, tol, shares, proportions
):  # fmt: skip
    """CVB0 with known topics: each token's q(z) given the expected counts of the others.

        q(z_i = k) ~ ((alpha_k + b E[n_k^{-i}]) beta_{k w_i})^b

    (Asuncion et al. 2009, there with the topics' counts in place of beta.)

    Parameters
    ----------
    shares : (nnz, K) q(z) of a token of each entry, written
    proportions : (n, K) ``alpha + E[n_k]``, written
    tol : mean absolute change of E[n_k] at which a document has converged
    """
    # Sums have loops of their own: where a loop writes, too, the compiler asks at run time whether
    # arrays are far enough apart to work on vectors, and the last digits depend on the answer.
    n_topics = alpha.size
    zero = lit(alpha[0], 0.0)
    new = np.empty(n_topics, alpha.dtype)
    tempered = inv_temp != lit(zero, 1.0)
    for d in range(indptr.size - 1):
        size = proportions[d]
        size[:] = zero
        for j in range(indptr[d], indptr[d + 1]):
            row, q = table[words[j]], shares[j]
            total = zero
            for k in range(n_topics):
                q[k] = _power(alpha[k], inv_temp) * row[k]
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
                own = min(n, lit(zero, 1.0))
                total = zero
                for k in range(n_topics):
                    # rounding may leave less than nothing
                    others = max(size[k] - own * q[k], zero)
                    new[k] = (alpha[k] + inv_temp * others) * row[k]
                    if tempered:
                        new[k] = _power(alpha[k] + inv_temp * others, inv_temp) * row[k]
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


@jit
def shared_statistics(word_indptr, documents, entries, counts, row_weights, shares, out):
    """``out[a, k] = sum_d w_d n_da q_dak``."""
    for a in range(word_indptr.size - 1):
        target = out[a]
        target[:] = lit(target[0], 0.0)
        for e in range(word_indptr[a], word_indptr[a + 1]):
            w = row_weights[documents[e]] * counts[entries[e]]
            q = shares[entries[e]]
            for k in range(q.size):
                target[k] += w * q[k]
