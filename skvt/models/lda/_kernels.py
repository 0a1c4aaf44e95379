"""Compiled loops of latent Dirichlet allocation: documents x words x topics.

Layout: arrays of topics have shape (V, K), so that the row of a word is contiguous. A minibatch of
n documents numbers its ``active`` words, which are those that occur in it; ``table`` holds
exp(inv_temp * E[log beta]) for the active words only. The sweeps over a document use a copy of its
rows of the table, topics x words, so that vectors run along words: topics set aside then cost
nothing, however few are left.

Numerics: q(z) is a softmax, so rows of the table and E[log theta] are shifted by their maximum, and
relative weights below a floor are set to the floor. In float32 the floor of 1e-17 keeps each
product above the smallest normal number; denormals would cost a factor of ten. Weights at the floor
contribute less than rounding errors to the statistics of a topic.
"""

from typing import Any

import numpy as np

from skvt.compiled import (
    CLAIMS,
    claim,
    digamma,
    dot_products,
    exp,
    finish,
    gammaln,
    jit,
    jit_allocating,
    lit,
    log,
    part,
    weighted_sum,
)
from skvt.typing import Array, IndexArray

# Numbers of words and of documents that a thread takes at a time. They are NumPy integers, since
# numba treats a Python integer as a constant and compiles a function once for each.
WORDS = np.int64(16)
DOCUMENTS = np.int64(1)
# A document's table is padded to a multiple of this number of topics and words.
LANES = 8
# Each time this number of sweeps is complete, topics with a negligible share are set aside. Before
# the last sweep of every cycle but the first, gamma is extrapolated.
CYCLE = 3
# Factor of the threshold after the first cycle, when vanishing topics have fallen far below it.
LATER = 0.01
# Smallest share of its tokens that extrapolation leaves to a topic.
KEPT_SHARE = 0.1
# Expected counts up to this one are left out by :func:`list_shares`.
SMALLEST_SHARE = 1e-2
# Smallest legal entry of a prior; below it is 0, for topics that a document must not have.
LEAST_PRIOR = 1e-30
FLOOR = {np.dtype(np.float32): np.float32(1e-17), np.dtype(np.float64): 1e-140}


# ----------------------------------------------------------------------------------- indices
@jit
def gather_rows(
    indptr: IndexArray, indices: IndexArray, rows: IndexArray, marker: IndexArray,
    out_indptr: IndexArray, active: IndexArray,
) -> int:  # fmt: skip
    """Write row pointers of ``X[rows]`` and its distinct columns; return the number of columns.

    ``marker`` (V,) must be -1; it is set to 0 at the distinct columns. ``active`` is (V + 1,).
    """
    n_active = 0
    out_indptr[0] = 0
    for i in range(rows.size):
        start, stop = indptr[rows[i]], indptr[rows[i] + 1]
        out_indptr[i + 1] = out_indptr[i] + stop - start
        for j in range(start, stop):
            v = indices[j]
            active[n_active] = v  # overwritten unless v is new: no branch to predict
            n_active += marker[v] < 0
            marker[v] = 0
    return n_active


@jit
def localise(
    indptr: IndexArray, indices: IndexArray, data: Array, rows: IndexArray, active: IndexArray,
    marker: IndexArray, out_indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array,
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray,
) -> None:  # fmt: skip
    """Copy rows of a CSR matrix, columns numbered by their position in ``active``.

    Writes the local column ``words`` and the value ``counts`` of each entry, and the row sums
    ``lengths``. Also sorts the entries by word, in the order of rows: ``documents`` and ``entries``
    are row and position of each, and those of word a begin at ``word_indptr[a]``.
    """
    for a in range(active.size):
        marker[active[a]] = a
    word_indptr[:] = 0
    for i in range(rows.size):
        shift = indptr[rows[i]] - out_indptr[i]
        length = 0.0
        for j in range(out_indptr[i], out_indptr[i + 1]):
            words[j] = marker[indices[j + shift]]
            counts[j] = data[j + shift]
            length += counts[j]
            word_indptr[words[j] + 1] += 1
        lengths[i] = length
    for a in range(active.size):
        word_indptr[a + 1] += word_indptr[a]
        marker[active[a]] = word_indptr[a]  # from here on, the position of the word's next entry
    for i in range(rows.size):
        for j in range(out_indptr[i], out_indptr[i + 1]):
            v = active[words[j]]
            documents[marker[v]] = i
            entries[marker[v]] = j
            marker[v] += 1


# ------------------------------------------------------------------------------- expectations
@jit
def expected_log_topics(
    array: Array, rows: IndexArray, scale: Any, prior: Array, digamma_sums: Array, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write digamma(lam_vk) - digamma(sum_v lam_vk) to ``out``, lam = prior + scale * array."""
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, rows.size)
        if start >= stop:
            break
        for a in range(start, stop):
            source = array[rows[a]]
            target = out[a]
            eta = prior[rows[a]]
            for k in range(source.size):
                target[k] = digamma(eta + scale * source[k]) - digamma_sums[k]
        finish(counter, start, stop)


@part
def _tempered_row(source: Array, inv_temp: Any, floor: Any, target: Array) -> Any:
    """Write exp(inv_temp * (source - top)), at least floor, where top is the maximum of source.

    Returns the shift inv_temp * top.
    """
    top = source[0]
    for k in range(source.size):
        top = max(top, source[k])
    for k in range(source.size):
        target[k] = max(exp(inv_temp * (source[k] - top)), floor)
    return inv_temp * top


@jit
def tempered_table(
    expected_log: Array, inv_temp: Any, floor: Any, table: Array, shift: Array, counter: IndexArray
) -> None:
    """Write table = exp(inv_temp * expected_log - shift) with one shift for each row."""
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, expected_log.shape[0])
        if start >= stop:
            break
        for a in range(start, stop):
            shift[a] = _tempered_row(expected_log[a], inv_temp, floor, table[a])
        finish(counter, start, stop)


# ----------------------------------------------------------------------------- document step
@part
def _topic_weights(gamma: Array, inv_temp: Any, floor: Any, weights: Array) -> Any:
    """Write exp(inv_temp * (digamma(gamma) - top)), at least floor; return the shift.

    The normaliser digamma(sum gamma) cancels in q(z). Topics whose gamma is 0, which the document
    must not have, get weights of 0.
    """
    zero, least = lit(floor, 0.0), lit(floor, LEAST_PRIOR)
    for k in range(gamma.size):
        weights[k] = digamma(max(gamma[k], least))
    top = weights[0]
    for k in range(gamma.size):
        top = max(top, weights[k])
    for k in range(gamma.size):
        weight = max(exp(inv_temp * (weights[k] - top)), floor)
        weights[k] = weight if gamma[k] > zero else zero
    return inv_temp * top


@part
def _dirichlet_divergence(
    gamma: Array, alpha: Array, gammaln_alpha: Array, constant: float, digamma_sum: float,
    gammaln_sum: float,
) -> float:  # fmt: skip
    """Return KL(Dir(gamma) || Dir(alpha)) in nats over the topics whose alpha is above 0.

    ``constant`` is -log Gamma(sum alpha).
    """
    value = constant + gammaln_sum
    for k in range(alpha.size):
        if alpha[k] > 0.0:
            g = np.float64(gamma[k])
            value += (g - alpha[k]) * (digamma(g) - digamma_sum)
            value += gammaln_alpha[k] - gammaln(g)
    return value


@part
def _topics_by_words(source: Array, words: IndexArray, table: Array) -> None:
    """Write table[k, j] = source[words[j], k], padded by zero topics and the last word."""
    n_topics = source.shape[1]
    last = words.size - 1
    # Four words at a time, since their entries of a topic lie in one cache line.
    for j in range(0, table.shape[1], 4):
        r0, r1 = source[words[min(j, last)]], source[words[min(j + 1, last)]]
        r2, r3 = source[words[min(j + 2, last)]], source[words[min(j + 3, last)]]
        for k in range(n_topics):
            table[k, j], table[k, j + 1] = r0[k], r1[k]
            table[k, j + 2], table[k, j + 3] = r2[k], r3[k]
    table[n_topics:] = np.float32(0.0)  # not by ``lit``, whose entry needs a word


@part
def _tempered_topics_by_words(
    expected_log: Array, words: IndexArray, inv_temp: Any, floor: Any, row: Array, table: Array,
    shift: Array,
) -> None:  # fmt: skip
    """Write the tempered exponential of ``expected_log`` to ``table``, and the words' shifts."""
    n_topics = expected_log.shape[1]
    for j in range(table.shape[1]):
        word = words[j if j < words.size else 0]
        shift[j] = _tempered_row(expected_log[word], inv_temp, floor, row)
        for k in range(n_topics):
            table[k, j] = row[k]
    table[n_topics:] = lit(floor, 0.0)


@part
def _set_aside(
    threshold: Any, topics: Array, gamma: Array, prior: Array, step: Array, order: IndexArray
) -> Any:
    """Move topics with more tokens than a threshold to the front; return the number to keep.

    The number is rounded up to a multiple of LANES. Gamma of all further topics is set to its
    prior.
    """
    start: Any = np.int64(0)
    stop: Any = np.int64(gamma.size)
    while start < stop:
        k = stop - 1
        if gamma[start] - prior[start] > threshold:
            start += 1
        elif gamma[k] - prior[k] > threshold:
            gamma[start], gamma[k] = gamma[k], gamma[start]
            prior[start], prior[k] = prior[k], prior[start]
            step[start], step[k] = step[k], step[start]
            order[start], order[k] = order[k], order[start]
            first, second = topics[start], topics[k]
            for j in range(first.size):
                first[j], second[j] = second[j], first[j]
        else:
            stop -= 1
    # Keep at least one line of topics, which the loops need, even if no number is in range.
    stop = (max(start, 1) + LANES - 1) // LANES * LANES
    for k in range(stop, gamma.size):
        gamma[k] = prior[k]
    return stop


@part
def _extrapolate(gamma: Array, updated: Array, alpha: Array, step: Array) -> None:
    """Extrapolate gamma, whose last update was ``step`` and whose next value is ``updated``.

    If each update multiplies the distance from the optimum by l, extrapolation in place of two
    updates multiplies it by ``(4 l - 3)^2``, and one more update by l: a Chebyshev polynomial, at
    most 1, and 1 - 9 (1 - l) near l = 1. If the ratios of steps differ, a topic still moves on
    beyond ``updated``, or not at all, but never back.
    """
    zero = lit(gamma[0], 0.0)
    for k in range(gamma.size):
        now = updated[k] - gamma[k]
        further, most = lit(now, 15.0) * now - lit(now, 9.0) * step[k], lit(now, 6.0) * now
        further = min(max(further, min(most, zero)), max(most, zero))
        # Gamma must stay above alpha, since a topic without tokens could not grow again.
        least = alpha[k] + lit(now, KEPT_SHARE) * (updated[k] - alpha[k])
        gamma[k] = max(updated[k] + further, least)


@jit
def document_steps(
    indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array, expected_log: Array,
    table: Array, table_shift: Array, alpha: Array, inv_temp: Any, own: Array | None, floor: Any,
    max_iter: int, tol: Any, prune: Any, weights_out: Array, ratio_out: Array, bound: Array,
    energy: Any, digamma_sums: Array, gamma: Array, table_of: Array, per_word: Array,
    per_topic: Array, order: IndexArray, counter: IndexArray,
) -> None:  # fmt: skip
    """Optimise q(z, theta) of each document, starting from equal shares of its topics.

    After every CYCLE sweeps, topics whose tokens have fallen below a threshold of at most ``prune``
    are set aside with gamma = alpha, and sweeps continue over the others. The last evaluation is
    over all topics, so that q(z) is the exact optimum given the returned gamma, and the bound is
    the bound of both.

    Parameters
    ----------
    indptr, words, counts : CSR of the documents over local words
    lengths : (n,) tokens of each document
    expected_log : (n_active, K) E[log beta]
    table, table_shift : its tempered exponential, unused with ``own``
    alpha : (2, 1, w) or (2, n, w) float64, prior of all documents or of each, padded by its
        minimum, and its log Gamma; 0 for topics that a document must not have
    inv_temp, own : one inverse temperature; or one for each document, (n,), else None
    tol : mean absolute change of gamma at which a document has converged
    table_of, per_word, per_topic, order : (W w,), (3, W), (6, w), (w,) scratch; W and w are the
        longest document's words and K, each rounded up to a multiple of LANES
    gamma, weights_out : (n, K), ratio_out : (nnz,), bound : (n,), written
    energy : None without ``own``; else empty, or (n,), :func:`energies`, written
    digamma_sums : (n,) digamma(sum_k gamma_k), the normaliser of E[log theta], written
    """
    n_topics = expected_log.shape[1]
    width = per_topic.shape[1]
    g, prior, weights = per_topic[0], per_topic[1], per_topic[2]
    total, step, row = per_topic[3], per_topic[4], per_topic[5]
    # Loops run to a multiple of the vector length, since a scalar remainder would cost more than
    # all else. Padding topics have no words and stay at their prior. The divergence of q(theta) is
    # a difference of large numbers and is computed in float64.
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        of_prior = min(d, alpha.shape[1] - 1)
        sum_alpha, n_allowed = 0.0, 0
        for k in range(n_topics):
            sum_alpha += alpha[0, of_prior, k]
            n_allowed += alpha[0, of_prior, k] > 0.0
        limit = tol * n_allowed
        lo, hi = indptr[d], indptr[d + 1]
        n_words = hi - lo
        filled = (n_words + LANES - 1) // LANES * LANES
        topics = table_of[: width * filled].reshape(width, filled)
        n, shift, ratio = per_word[0][:filled], per_word[1][:filled], per_word[2][:filled]
        for j in range(n_words):
            n[j] = counts[lo + j]
        n[n_words:] = lit(inv_temp, 0.0)
        shift[n_words:] = lit(inv_temp, 0.0)
        if own is not None:
            inv_temp = own[d]
            _tempered_topics_by_words(
                expected_log, words[lo:hi], inv_temp, floor, row, topics, shift
            )
        else:
            _topics_by_words(table, words[lo:hi], topics)
            for j in range(n_words):
                shift[j] = table_shift[words[lo + j]]
        share = inv_temp * lengths[d] / n_allowed
        for k in range(width):
            order[k], prior[k] = k, alpha[0, of_prior, k]
            is_allowed = k < n_topics and alpha[0, of_prior, k] > 0.0
            g[k] = prior[k] + (share if is_allowed else lit(inv_temp, 0.0))

        # Fixed-point updates of q(z) and gamma. ratio_j = n_j / sum_k weights_k table_kj, so that
        # n_j phi_jk = ratio_j weights_k table_kj.
        most = max_iter if n_words > 0 and n_allowed > 1 else 0
        sweeps, last = 0, False
        gamma_of, alpha_of, weights_of, total_of = g, prior, weights, total
        while True:
            last = last or sweeps == most
            if not last and sweeps > 0 and sweeps % CYCLE == 0:
                # Topics below a threshold return to their prior. The threshold is well below an
                # equal share, so that flat documents keep all topics.
                threshold = min(prune, lit(inv_temp, 0.1) * share)
                if sweeps > CYCLE:
                    # Lower it, since the tokens that are given up add up over topics.
                    threshold *= lit(inv_temp, LATER)
                n_left = _set_aside(threshold, topics, gamma_of, prior, step, order)
                gamma_of, alpha_of, weights_of, total_of = (
                    g[:n_left], prior[:n_left], weights[:n_left], total[:n_left]
                )  # fmt: skip
            if last:  # evaluate all topics again
                gamma_of, weights_of = g, weights
            shift_topics = _topic_weights(gamma_of, inv_temp, floor, weights_of)
            weighted_sum(topics, weights_of, ratio)
            if last:
                break
            sweeps += 1
            for j in range(filled):
                ratio[j] = n[j] / ratio[j]
            dot_products(topics, ratio, total_of)
            change = lit(inv_temp, 0.0)
            for k in range(gamma_of.size):
                total_of[k] = (
                    alpha_of[k] + inv_temp * weights_of[k] * total_of[k]
                )  # [VT16 app. B.2]
                change += abs(total_of[k] - gamma_of[k])
            last = change < limit
            if CYCLE < sweeps < most and (sweeps + 1) % CYCLE == 0 and not last:
                _extrapolate(gamma_of, total_of, alpha_of, step)
            else:
                for k in range(gamma_of.size):
                    step[k] = total_of[k] - gamma_of[k]
                    gamma_of[k] = total_of[k]

        # The part of the bound that comes from q(z), at the final gamma.
        shift_topics = np.float64(shift_topics)
        value = 0.0
        for j in range(filled):
            value += np.float64(n[j]) * (log(ratio[j]) + np.float64(shift[j]) + shift_topics)
            ratio[j] = n[j] / ratio[j]
        for j in range(n_words):
            ratio_out[lo + j] = ratio[j]
        sum_gamma = 0.0
        for k in range(width):
            total[order[k]] = g[k]
        for k in range(n_topics):
            weights_out[d, order[k]] = weights[k]
            gamma[d, k] = total[k]
            sum_gamma += np.float64(total[k])
        digamma_sums[d] = digamma_sum = digamma(sum_gamma)
        # [VT16 eq. 4] at the optimum of q(z); the document prior is not tempered
        bound[d] = value - inv_temp * lengths[d] * digamma_sum
        bound[d] -= _dirichlet_divergence(
            total, alpha[0, of_prior], alpha[1, of_prior], -gammaln(sum_alpha), digamma_sum,
            gammaln(sum_gamma),
        )  # fmt: skip
        if own is not None:
            if energy.size > 0:
                energy[d] = _energy(
                    expected_log, words[lo:hi], topics, weights, ratio, g, order[:n_topics],
                    digamma_sum,
                )  # fmt: skip
        finish(counter, d, stop)


@part
def _energy(
    expected_log: Array, words: IndexArray, table: Array, weights: Array, ratio: Array,
    gamma: Array, order: IndexArray, digamma_sum: float,
) -> float:  # fmt: skip
    """Return :func:`energies` of a document with its own table (K, W), topics in ``order``."""
    value = 0.0
    for k in range(order.size):
        if weights[k] == lit(weights[0], 0.0):
            continue
        total = part = lit(weights[0], 0.0)
        topic = table[k]
        for j in range(words.size):
            mass = ratio[j] * topic[j]
            total += mass
            part += mass * expected_log[words[j], order[k]]
        log_share = digamma(np.float64(gamma[k])) - digamma_sum
        value += np.float64(weights[k]) * (np.float64(part) + np.float64(total) * log_share)
    return value


# Results that are rarely asked for have separate loops. As parts of ``document_steps``, they would
# be compiled with each first fit, or, with None in their place, as another version of it.
@jit_allocating
def log_marginals(
    indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array, expected_log: Array,
    gamma: Array, digamma_sums: Array, floor: Any, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write log marginals of the documents at T = 1, with z summed out and q(theta) = Dir(gamma_d).

    out[d] = sum_j n_j log sum_k exp(E[log theta_k] + E[log beta_kj])
    """
    n_topics = expected_log.shape[1]
    weights, row = np.empty((2, n_topics), expected_log.dtype)
    one = lit(floor, 1.0)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        shift_topics = np.float64(_topic_weights(gamma[d], one, floor, weights))
        value = 0.0
        for j in range(indptr[d], indptr[d + 1]):
            top = _tempered_row(expected_log[words[j]], one, floor, row)
            norm = lit(floor, 0.0)
            for k in range(n_topics):
                norm += row[k] * weights[k]
            value += counts[j] * (log(norm) + np.float64(top) + shift_topics)
        out[d] = value - lengths[d] * digamma_sums[d]
        finish(counter, d, stop)


@jit_allocating
def energies(
    indptr: IndexArray, words: IndexArray, table: Array, weights: Array, ratio: Array,
    expected_log: Array, gamma: Array, digamma_sums: Array, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write out[d] = sum_jk n_j phi_jk (E[log theta_k] + E[log beta_kj]).

    q(z), ``weights``, ``ratio``, ``gamma`` and ``digamma_sums`` are those of
    :func:`document_steps` at one temperature.
    """
    n_topics = table.shape[1]
    mass, value_of = np.empty((2, n_topics), table.dtype)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        for k in range(n_topics):
            mass[k] = value_of[k] = lit(mass[k], 0.0)
        for j in range(indptr[d], indptr[d + 1]):
            row, logs, r = table[words[j]], expected_log[words[j]], ratio[j]
            for k in range(n_topics):
                mass[k] += r * row[k]
                value_of[k] += r * row[k] * logs[k]
        value = 0.0
        for k in range(n_topics):
            if weights[d, k] > lit(mass[k], 0.0):
                log_share = digamma(np.float64(gamma[d, k])) - digamma_sums[d]
                value += weights[d, k] * (np.float64(value_of[k]) + mass[k] * log_share)
        out[d] = value
        finish(counter, d, stop)


@jit_allocating
def tokens_of_topics(
    indptr: IndexArray, words: IndexArray, table: Array, weights: Array, ratio: Array, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write out[d, k] = sum_j n_j phi_jk for q(z) of ``document_steps``, at one temperature."""
    n_topics = table.shape[1]
    width, longest = (n_topics + LANES - 1) // LANES * LANES, 0
    for d in range(indptr.size - 1):
        longest = max(longest, indptr[d + 1] - indptr[d])
    longest = (longest + LANES - 1) // LANES * LANES
    scratch, total = np.empty(width * longest, table.dtype), np.empty(width, table.dtype)
    padded_ratio = np.empty(longest, table.dtype)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        lo, n_words = indptr[d], indptr[d + 1] - indptr[d]
        filled = (n_words + LANES - 1) // LANES * LANES
        topics = scratch[: width * filled].reshape(width, filled)
        _topics_by_words(table, words[lo : lo + n_words], topics)
        for j in range(filled):
            padded_ratio[j] = ratio[lo + j] if j < n_words else lit(total[0], 0.0)
        dot_products(topics, padded_ratio[:filled], total)
        for k in range(n_topics):
            out[d, k] = weights[d, k] * total[k]
        finish(counter, d, stop)


# ------------------------------------------------------------------------------- statistics
@jit_allocating
def word_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, row_weights: Array,
    weights: Array, ratio: Array, table: Array, expected_log: Array, own: Array | None, floor: Any,
    out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write out[a, k] = sum_d row_weight_d n_da phi_dak, summed in the order of documents."""
    n_topics = expected_log.shape[1]
    if own is not None:
        row = np.empty(n_topics, out.dtype)
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, word_indptr.size - 1)
        if start >= stop:
            break
        for a in range(start, stop):
            target = out[a]
            for k in range(n_topics):
                target[k] = lit(floor, 0.0)
            if own is not None:
                for p in range(word_indptr[a], word_indptr[a + 1]):
                    d = documents[p]
                    r = ratio[entries[p]] * row_weights[d]
                    source = weights[d]
                    _tempered_row(expected_log[a], own[d], floor, row)
                    for k in range(n_topics):
                        target[k] += r * source[k] * row[k]
            else:
                for p in range(word_indptr[a], word_indptr[a + 1]):
                    r = ratio[entries[p]] * row_weights[documents[p]]
                    source = weights[documents[p]]
                    for k in range(n_topics):
                        target[k] += r * source[k]
                for k in range(n_topics):
                    target[k] *= table[a, k]
        finish(counter, start, stop)


@jit
def list_shares(
    document: IndexArray, words: IndexArray, counts: Array, weights: Array, table: Array,
    row: Array, stop: IndexArray, entries: IndexArray, values: Array,
) -> None:  # fmt: skip
    """List entries of each topic k and their expected counts from ``stop[k]`` on.

    ``stop[k]`` moves to the end of topic k's list. If ``entries`` is empty, entries are counted
    only. ``row`` (K,) is scratch.
    """
    least = lit(row[0], SMALLEST_SHARE)
    for e in range(words.size):
        source, topic, total = weights[document[e]], table[words[e]], lit(row[0], 0.0)
        for k in range(row.size):
            row[k] = source[k] * topic[k]
            total += row[k]
        scale = counts[e] / total
        for k in range(row.size):
            value = row[k] * scale
            if value > least:
                if entries.size > 0:
                    entries[stop[k]], values[stop[k]] = e, value
                stop[k] += 1


@jit
def mixture_log_likelihood(
    indptr: IndexArray, words: IndexArray, counts: Array, proportions: Array, topics: Array,
    out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write out[d] = sum_j n_j log sum_k proportions_dk topics_jk, topics (n_active, K)."""
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        value = 0.0
        share = proportions[d]
        for j in range(indptr[d], indptr[d + 1]):
            row = topics[words[j]]
            probability = lit(share[0], 0.0)
            for k in range(share.size):
                probability += share[k] * row[k]
            value += counts[j] * np.float64(log(probability))
        out[d] = value
        finish(counter, d, stop)
