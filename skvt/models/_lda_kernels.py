"""Compiled loops of latent Dirichlet allocation: documents x words x topics.

Layout: topics are kept word by word, arrays of shape (V, K), so that a word's row is contiguous. A
minibatch of n documents knows its ``active`` words (those that occur) and numbers them locally;
``table`` holds exp(inv_temp * E[log beta]) for the active words only.

Numerics: q(z) is a softmax, so rows of the table and E[log theta] are shifted by their maximum, and
relative weights below a floor are set to the floor. In float32 the floor of 1e-17 keeps each
product above the smallest normal number; denormals would cost a factor of ten. Their share of a
topic's statistics is below rounding.
"""

import numpy as np

from skvt.expfam._special import digamma, exp, gammaln, jit, lit, log

# Topics are processed in groups of so many.
LANES = 8
# Sweeps over all topics before those without a share are set aside.
FULL_SWEEPS = 3
FLOOR = {np.dtype(np.float32): np.float32(1e-17), np.dtype(np.float64): 1e-140}


# ----------------------------------------------------------------------------------- indices
@jit
def gather_rows(indptr, rows, out_indptr):
    """Row pointers of ``X[rows]``."""
    out_indptr[0] = 0
    for i in range(rows.size):
        out_indptr[i + 1] = out_indptr[i] + indptr[rows[i] + 1] - indptr[rows[i]]


@jit
def localise(indptr, indices, data, rows, out_indptr, marker, words, counts, active):
    """Copy rows of a CSR matrix and number their distinct columns in order of appearance.

    Writes ``words`` (local column of each entry), ``counts`` and ``active`` (global column of each
    local one); returns the number of active columns. ``marker`` (V,) holds -1 throughout, before
    and after.
    """
    n_active = 0
    for i in range(rows.size):
        start = indptr[rows[i]]
        for j in range(out_indptr[i + 1] - out_indptr[i]):
            v = indices[start + j]
            if marker[v] < 0:
                marker[v] = n_active
                active[n_active] = v
                n_active += 1
            words[out_indptr[i] + j] = marker[v]
            counts[out_indptr[i] + j] = data[start + j]
    for a in range(n_active):
        marker[active[a]] = -1
    return n_active


@jit
def by_word(indptr, words, n_active, word_indptr, documents, entries):
    """The same entries sorted by word (stable): for each, its document and its place."""
    for a in range(n_active + 1):
        word_indptr[a] = 0
    for j in range(words.size):
        word_indptr[words[j] + 1] += 1
    for a in range(n_active):
        word_indptr[a + 1] += word_indptr[a]
    place = word_indptr[:n_active].copy()
    for i in range(indptr.size - 1):
        for j in range(indptr[i], indptr[i + 1]):
            p = place[words[j]]
            place[words[j]] += 1
            documents[p] = i
            entries[p] = j


# ------------------------------------------------------------------------------- expectations
@jit
def expected_log_topics(array, rows, scale, prior, digamma_sums, out):
    """out[a, k] = digamma(lam_vk) - digamma(sum_v lam_vk), lam = prior + scale * array."""
    for a in range(rows.size):
        source = array[rows[a]]
        target = out[a]
        eta = prior[rows[a]]
        for k in range(source.size):
            target[k] = digamma(eta + scale * source[k]) - digamma_sums[k]


@jit
def _tempered_row(source, inv_temp, floor, target):
    """target = exp(inv_temp * (source - top)), top its maximum, not below floor.

    Returns the shift inv_temp * top.
    """
    top = source[0]
    for k in range(source.size):
        top = max(top, source[k])
    for k in range(source.size):
        target[k] = max(exp(inv_temp * (source[k] - top)), floor)
    return inv_temp * top


@jit
def tempered_table(expected_log, inv_temp, floor, table, shift):
    """Each row of ``expected_log`` tempered: table = exp(inv_temp * expected_log - shift)."""
    for a in range(expected_log.shape[0]):
        shift[a] = _tempered_row(expected_log[a], inv_temp, floor, table[a])


# ----------------------------------------------------------------------------- document step
@jit
def _topic_weights(gamma, n_topics, inv_temp, floor, weights):
    """weights = exp(inv_temp * (digamma(gamma) - top)), not below floor; returns the shift.

    The normaliser digamma(sum gamma) cancels in q(z).
    """
    for k in range(n_topics):
        weights[k] = digamma(gamma[k])
    top = weights[0]
    for k in range(n_topics):
        top = max(top, weights[k])
    for k in range(n_topics):
        weights[k] = max(exp(inv_temp * (weights[k] - top)), floor)
    return inv_temp * top


@jit
def _sweep(
    table, n_words, n_topics, counts, first, alpha, inv_temp, floor, gamma, weights, total, ratio
):
    """One fixed-point update of q(z) and gamma on ``table[:n_words, :n_topics]``.

    ratio_j = n_j / sum_k table_jk weights_k, so that n_j phi_jk = ratio_j table_jk weights_k;
    counts and ratio are read and written from ``first`` on. Returns the summed absolute change of
    gamma.
    """
    _topic_weights(gamma, n_topics, inv_temp, floor, weights)
    for j in range(n_words):
        norm = lit(inv_temp, 0.0)
        for k in range(n_topics):
            norm += table[j, k] * weights[k]
        ratio[first + j] = counts[first + j] / norm
    for k in range(n_topics):
        total[k] = lit(inv_temp, 0.0)
    for j in range(n_words):
        r = ratio[first + j]
        for k in range(n_topics):
            total[k] += r * table[j, k]
    change = lit(inv_temp, 0.0)
    for k in range(n_topics):
        updated = alpha[k] + inv_temp * weights[k] * total[k]  # [VT16 app. B.2]
        change += abs(updated - gamma[k])
        gamma[k] = updated
    return change


@jit
def _packed_sweep(table, n_words, n_topics, counts, alpha, inv_temp, floor, gamma, weights, norm):
    """The same for few topics, on ``table[:n_topics, :n_words]``: vectors run along the words."""
    _topic_weights(gamma, n_topics, inv_temp, floor, weights)
    for j in range(n_words):
        norm[j] = weights[0] * table[0, j]
    for k in range(1, n_topics):
        w = weights[k]
        for j in range(n_words):
            norm[j] += w * table[k, j]
    for j in range(n_words):
        norm[j] = counts[j] / norm[j]
    change = lit(inv_temp, 0.0)
    for k in range(n_topics):
        total = lit(inv_temp, 0.0)
        for j in range(n_words):
            total += norm[j] * table[k, j]
        updated = alpha[k] + inv_temp * weights[k] * total
        change += abs(updated - gamma[k])
        gamma[k] = updated
    return change


@jit
def _dirichlet_divergence(gamma, alpha, gammaln_alpha, constant, digamma_sum, gammaln_sum):
    """KL(Dir(gamma) || Dir(alpha)) in nats; ``constant`` is -log Gamma(sum alpha)."""
    value = constant + gammaln_sum
    for k in range(alpha.size):
        value += (gamma[k] - alpha[k]) * (digamma(gamma[k]) - digamma_sum)
        value += gammaln_alpha[k] - gammaln(gamma[k])
    return value


@jit
def document_steps(
    indptr,
    words,
    counts,
    lengths,
    expected_log,
    table,
    table_shift,
    alpha,
    inv_temps,
    own,
    floor,
    max_iter,
    tol,
    prune,
    with_energy,
    with_marginal,
    rows,
    columns,
    gamma,
    weights_out,
    ratio,
    bound,
    energy,
    marginal,
):
    """Optimise q(z, theta) of each document, starting from equal shares of all topics.

    Every document is computed on its own, so that results do not depend on how documents are
    divided into chunks. After a few sweeps over all topics, those whose share of the document has
    fallen below ``prune`` tokens are set aside (gamma = alpha) and the others go on, packed
    together; the last evaluation is over all topics again, so that q(z) is the exact optimum given
    gamma, and the bound is the bound of what is returned.

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    lengths : (n,) tokens of each document
    expected_log : (n_active, K) E[log beta]
    table, table_shift : its tempered exponential (unused with ``own``)
    alpha : (K,) document prior
    inv_temps : (n,) or (1,) inverse temperatures
    rows, columns : (W, w), (w, W) scratch; W and w: the longest document's words and K, each
        rounded up to a multiple of LANES
    own : bool, one temperature per document
    tol : mean absolute change of gamma at which a document has converged
    gamma, weights_out : (n, K), ratio : (nnz,), bound, energy, marginal : (n,), written
    """
    n_topics = expected_log.shape[1]
    # Loops over topics run to a multiple of the vector length: a scalar remainder would cost more
    # than the rest. The topics that fill up have no words, so that they stay at their prior.
    width = rows.shape[1]
    longest = rows.shape[0]
    norms = np.empty(columns.shape[1], expected_log.dtype)
    packed_counts = np.empty(columns.shape[1], expected_log.dtype)
    shift = np.empty(longest, expected_log.dtype)
    weights = np.empty(width, expected_log.dtype)
    total = np.empty(width, expected_log.dtype)
    kept = np.empty(n_topics, np.int32)
    g = np.empty(width, expected_log.dtype)
    prior = np.full(width, alpha.min(), expected_log.dtype)
    prior[:n_topics] = alpha
    gamma_kept = np.empty(width, expected_log.dtype)
    prior_kept = np.empty(width, expected_log.dtype)
    limit = tol * n_topics
    # The divergence of q(theta) is a difference of large numbers: float64 throughout.
    wide = np.empty(n_topics, np.float64)
    alpha_wide = alpha.astype(np.float64)
    gammaln_alpha = np.empty(n_topics, np.float64)
    for k in range(n_topics):
        gammaln_alpha[k] = gammaln(alpha_wide[k])
    gammaln_sum_alpha = gammaln(alpha_wide.sum())
    for d in range(indptr.size - 1):
        lo = indptr[d]
        n_words = indptr[d + 1] - lo
        inv_temp = inv_temps[d] if own else inv_temps[0]
        share = inv_temp * lengths[d] / n_topics
        for k in range(width):
            g[k] = prior[k] + (share if k < n_topics else lit(inv_temp, 0.0))
        for j in range(n_words):
            w = words[lo + j]
            for k in range(n_topics, width):
                rows[j, k] = lit(inv_temp, 0.0)
            if own:
                shift[j] = _tempered_row(expected_log[w], inv_temp, floor, rows[j])
            else:
                shift[j] = table_shift[w]
                for k in range(n_topics):
                    rows[j, k] = table[w, k]

        done = n_words == 0 or n_topics == 1
        sweeps = 0
        while not done and sweeps < min(FULL_SWEEPS, max_iter):
            sweeps += 1
            change = _sweep(
                rows, n_words, width, counts, lo, prior, inv_temp, floor, g, weights, total, ratio
            )
            done = change < limit
        if not done and sweeps < max_iter:
            # well below an equal share, so that flat documents keep all topics
            threshold = min(prune, lit(inv_temp, 0.1) * share)
            n_kept = 0
            for k in range(n_topics):
                if g[k] - alpha[k] > threshold:
                    kept[n_kept] = k
                    gamma_kept[n_kept] = g[k]
                    prior_kept[n_kept] = alpha[k]
                    n_kept += 1
            # fill up: topics without words stay at their prior, words without tokens are nothing
            filled = (n_kept + LANES - 1) // LANES * LANES
            n_padded = (n_words + LANES - 1) // LANES * LANES
            for k in range(n_kept, filled):
                gamma_kept[k] = lit(inv_temp, 1e-4)
                prior_kept[k] = gamma_kept[k]
            for k in range(filled):
                for j in range(n_padded):
                    inside = k < n_kept and j < n_words
                    columns[k, j] = rows[j, kept[k]] if inside else lit(inv_temp, 0.0)
            for j in range(n_padded):
                packed_counts[j] = counts[lo + j] if j < n_words else lit(inv_temp, 0.0)
                if j >= n_words:
                    columns[0, j] = lit(inv_temp, 1.0)
            while not done and sweeps < max_iter:
                sweeps += 1
                change = _packed_sweep(
                    columns, n_padded, filled, packed_counts, prior_kept, inv_temp, floor,
                    gamma_kept, weights, norms,
                )  # fmt: skip
                done = change < limit
            for k in range(n_topics):
                g[k] = alpha[k]
            for k in range(n_kept):
                g[kept[k]] = gamma_kept[k]

        # q(z) at the final gamma, and its value.
        shift_topics = np.float64(_topic_weights(g, width, inv_temp, floor, weights))
        value = 0.0
        for j in range(n_words):
            norm = lit(inv_temp, 0.0)
            for k in range(width):
                norm += rows[j, k] * weights[k]
            ratio[lo + j] = counts[lo + j] / norm
            value += counts[lo + j] * (log(norm) + np.float64(shift[j]) + shift_topics)
        sum_gamma = 0.0
        for k in range(n_topics):
            gamma[d, k] = g[k]
            weights_out[d, k] = weights[k]
            wide[k] = g[k]
            sum_gamma += wide[k]
        digamma_sum = digamma(sum_gamma)
        # [VT16 eq. 4] at the optimum of q(z); the document prior is not tempered
        bound[d] = value - inv_temp * lengths[d] * digamma_sum
        bound[d] -= _dirichlet_divergence(
            wide, alpha_wide, gammaln_alpha, -gammaln_sum_alpha, digamma_sum, gammaln(sum_gamma)
        )
        if with_energy:
            # sum_jk n_j phi_jk (E[log theta_k] + E[log beta_kj])
            value = 0.0
            for k in range(width):
                total[k] = lit(inv_temp, 0.0)
            for j in range(n_words):
                source = expected_log[words[lo + j]]
                r = ratio[lo + j]
                part = lit(inv_temp, 0.0)
                for k in range(n_topics):
                    mass = r * rows[j, k] * weights[k]
                    total[k] += mass
                    part += mass * source[k]
                value += np.float64(part)
            for k in range(n_topics):
                value += np.float64(total[k]) * (digamma(wide[k]) - digamma_sum)
            energy[d] = value
        if with_marginal:
            # sum_j n_j log sum_k exp(E[log theta_k] + E[log beta_kj]): z summed out, untempered
            shift_topics = np.float64(_topic_weights(g, width, lit(inv_temp, 1.0), floor, weights))
            value = 0.0
            for j in range(n_words):
                w = words[lo + j]
                top = _tempered_row(expected_log[w], lit(inv_temp, 1.0), floor, rows[j])
                norm = lit(inv_temp, 0.0)
                for k in range(n_topics):
                    norm += rows[j, k] * weights[k]
                value += counts[lo + j] * (log(norm) + np.float64(top) + shift_topics)
            marginal[d] = value - lengths[d] * digamma_sum


# ------------------------------------------------------------------------------- statistics
@jit
def word_statistics(
    word_indptr, documents, entries, row_weights, weights, ratio, table,
    expected_log, inv_temps, own, floor, out,
):  # fmt: skip
    """out[a, k] = sum_d row_weight_d n_da phi_dak, word by word in the order of the documents.

    The sum of one word is always taken in the same order, so that it does not depend on how words
    are divided into chunks.
    """
    n_topics = table.shape[1]
    for a in range(word_indptr.size - 1):
        target = out[a]
        for k in range(n_topics):
            target[k] = lit(floor, 0.0)
        if not own:
            for p in range(word_indptr[a], word_indptr[a + 1]):
                r = ratio[entries[p]] * row_weights[documents[p]]
                source = weights[documents[p]]
                for k in range(n_topics):
                    target[k] += r * source[k]
            for k in range(n_topics):
                target[k] *= table[a, k]
        else:
            row = np.empty(n_topics, out.dtype)
            for p in range(word_indptr[a], word_indptr[a + 1]):
                d = documents[p]
                r = ratio[entries[p]] * row_weights[d]
                source = weights[d]
                _tempered_row(expected_log[a], inv_temps[d], floor, row)
                for k in range(n_topics):
                    target[k] += r * source[k] * row[k]


@jit
def mixture_log_likelihood(indptr, words, counts, proportions, topics, out):
    """out[d] = sum_j n_j log sum_k proportions_dk topics_jk, topics (n_active, K)."""
    for d in range(indptr.size - 1):
        value = 0.0
        share = proportions[d]
        for j in range(indptr[d], indptr[d + 1]):
            row = topics[words[j]]
            probability = lit(share[0], 0.0)
            for k in range(share.size):
                probability += share[k] * row[k]
            value += counts[j] * np.float64(log(probability))
        out[d] = value
