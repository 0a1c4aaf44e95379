"""Compiled loops of latent Dirichlet allocation: documents x words x topics.

Layout: arrays of topics have shape (V, K), so that the row of a word is contiguous. Only some words
occur in a minibatch of n documents. These words are called ``active`` and numbered from 0, and
``table`` holds exp(inv_temp * E[log beta]) for the active words only.

The sweeps over a document use a copy of the table's rows for the document's words. The copy has
shape topics x words, so that vector instructions run along words. Sweeps over few topics are then
as efficient for each topic as sweeps over many, and topics that are set aside cost nothing.

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
# Number of sweeps of a cycle. After each cycle, topics with a negligible share are set aside. In
# each cycle but the first, gamma is extrapolated before the last sweep.
CYCLE = 3
# After later cycles, the threshold of tokens for topics to be kept is multiplied by this factor.
LATER_FACTOR = 0.01
# Extrapolation of gamma leaves at least this share of its tokens to a topic.
KEPT_SHARE = 0.1
# :func:`list_shares` leaves out expected counts up to this number.
SMALLEST_COUNT = 1e-2
# Smallest positive entry of a prior. The only smaller entry is 0, for topics that a document must
# not have.
LEAST_PRIOR = 1e-30
# Smallest relative weight in each precision.
FLOOR = {np.dtype(np.float32): np.float32(1e-17), np.dtype(np.float64): 1e-140}


# ----------------------------------------------------------------------------------- indices
@jit
def gather_rows(
    indptr: IndexArray, indices: IndexArray, rows: IndexArray, marker: IndexArray,
    out_indptr: IndexArray, active: IndexArray,
) -> int:  # fmt: skip
    """Write row pointers and distinct columns of ``X[rows]``; return the number of columns.

    Parameters
    ----------
    indptr, indices : CSR structure of the matrix X (any, V)
    rows : (n,) rows of X
    marker : (V,) all -1; written, 0 at the distinct columns
    out_indptr : (n + 1,) row pointers of ``X[rows]``, written
    active : (V + 1,) distinct columns in the order in which they occur first, written
    """
    n_active = 0
    out_indptr[0] = 0
    for i in range(rows.size):
        start, stop = indptr[rows[i]], indptr[rows[i] + 1]
        out_indptr[i + 1] = out_indptr[i] + stop - start
        for j in range(start, stop):
            v = indices[j]
            # Always write v, but count it only if it is new: this needs no branch.
            active[n_active] = v
            n_active += marker[v] < 0
            marker[v] = 0
    return n_active


@jit
def localise(
    indptr: IndexArray, indices: IndexArray, data: Array, rows: IndexArray, active: IndexArray,
    marker: IndexArray, out_indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array,
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray,
) -> None:  # fmt: skip
    """Copy rows of a CSR matrix, and list the entries of the copy by word.

    In the copy, columns are numbered by their position in ``active``. The lists have the entries of
    each word in the order of rows.

    Parameters
    ----------
    indptr, indices, data : CSR matrix (any, V)
    rows : (n,) rows to copy
    active : (n_active,) distinct columns of these rows
    marker : (V,) scratch
    out_indptr : (n + 1,) row pointers of the copy
    words, counts : (nnz,) column and value of each entry of the copy, written
    lengths : (n,) row sums, written
    word_indptr : (n_active + 1,) start of each word's list, written
    documents, entries : (nnz,) the lists of all words: row and position in the copy of each entry,
        written
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
        # Use ``marker`` again: it now holds the place of each word's next entry in the lists.
        marker[active[a]] = word_indptr[a]
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
    """Write E[log beta_vk] = digamma(lam_vk) - digamma(sum_v lam_vk) of some words v.

    Parameters
    ----------
    array, scale, prior : (V, K), number and (V,); lam = prior[:, None] + scale * array
    rows : (n_active,) words v
    digamma_sums : (K,) digamma(sum_v lam_vk)
    out : (n_active, K) written
    """
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
    """Write exp(inv_temp * source - shift), but at least ``floor``, to ``target``.

    Returns the shift, inv_temp times the maximum of ``source``. All values of ``target`` are at
    most 1.
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
    """Write table = exp(inv_temp * expected_log - shift), but at least ``floor``.

    There is one shift for each row, so that the maximum of the row is 1.
    """
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
    """Write weights exp(inv_temp * digamma(gamma) - shift), but at least ``floor``.

    Returns the shift, which makes the largest weight 1. The term digamma(sum gamma) of E[log theta]
    is left out, since it cancels in q(z). Topics with gamma = 0, which the document must not have,
    get the weight 0.
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
    """Write table[k, j] = source[words[j], k].

    Columns of ``table`` that pad the words repeat the last word; rows that pad the topics are 0.
    """
    n_topics = source.shape[1]
    last = words.size - 1
    # Copy four words at a time, since their entries of a topic lie in one cache line.
    for j in range(0, table.shape[1], 4):
        r0, r1 = source[words[min(j, last)]], source[words[min(j + 1, last)]]
        r2, r3 = source[words[min(j + 2, last)]], source[words[min(j + 3, last)]]
        for k in range(n_topics):
            table[k, j], table[k, j + 1] = r0[k], r1[k]
            table[k, j + 2], table[k, j + 3] = r2[k], r3[k]
    # ``lit(table[0, 0], 0.0)`` cannot be used here, since documents without words have no entry.
    table[n_topics:] = np.float32(0.0)


@part
def _tempered_topics_by_words(
    expected_log: Array, words: IndexArray, inv_temp: Any, floor: Any, row: Array, table: Array,
    shift: Array,
) -> None:  # fmt: skip
    """Write table[k, j] = exp(inv_temp * expected_log[words[j], k] - shift[j]), at least ``floor``.

    Columns of ``table`` that pad the words repeat the first word; rows that pad the topics are 0.
    ``row`` is scratch.
    """
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
    """Move topics with more tokens than a threshold to the front, and reset topics behind them.

    Returns the number of topics to keep, which is rounded up to a multiple of LANES. Gamma of all
    other topics is set to their prior. ``topics``, ``gamma``, ``prior``, ``step`` and ``order`` are
    permuted alike.
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
    # Keep at least LANES topics, which the loops need. If gamma is NaN, no topic is above the
    # threshold.
    stop = (max(start, 1) + LANES - 1) // LANES * LANES
    for k in range(stop, gamma.size):
        gamma[k] = prior[k]
    return stop


@part
def _extrapolate(gamma: Array, updated: Array, alpha: Array, step: Array) -> None:
    """Replace gamma by an extrapolation beyond ``updated``, the result of the next update.

    ``step`` is the change of gamma in the last update. Let each update multiply the distance of
    gamma from the optimum by l, 0.6 <= l <= 1. Then the last update, the next update and the
    extrapolation together multiply the distance by ``(4 l - 3)^2``. The cycle has one more update,
    and its factor ``l (4 l - 3)^2`` is a Chebyshev polynomial: it is at most 1, and ``1 - 9 (1 -
    l)`` near l = 1, so that a cycle is worth nine updates there.

    For smaller l gamma becomes ``updated``. If the factors of successive updates differ, gamma
    moves on from ``updated`` in the direction of the next update or stays there, but does not move
    back. It always keeps a share of its tokens.
    """
    zero = lit(gamma[0], 0.0)
    for k in range(gamma.size):
        next_step = updated[k] - gamma[k]
        further, farthest = (
            lit(next_step, 15.0) * next_step - lit(next_step, 9.0) * step[k],
            lit(next_step, 6.0) * next_step,
        )
        further = min(max(further, min(farthest, zero)), max(farthest, zero))
        # Gamma must stay above alpha, since a topic without tokens could not grow again.
        least = alpha[k] + lit(next_step, KEPT_SHARE) * (updated[k] - alpha[k])
        gamma[k] = max(updated[k] + further, least)


@jit
def document_steps(
    indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array, expected_log: Array,
    table: Array, table_shift: Array, alpha: Array, inv_temp: Any, row_inv_temps: Array | None,
    floor: Any, max_iter: int, tol: Any, prune: Any, weights_out: Array, ratio_out: Array,
    bound: Array, energy: Any, digamma_sums: Array, gamma: Array, table_scratch: Array,
    per_word: Array, per_topic: Array, order: IndexArray, counter: IndexArray,
) -> None:  # fmt: skip
    """Optimise q(z, theta) of each document, starting from equal shares of its topics.

    After every CYCLE sweeps, topics whose tokens have fallen below a threshold of at most ``prune``
    are set aside with gamma = alpha, and sweeps continue over the other topics. The last evaluation
    is over all topics. So q(z) is the exact optimum given the returned gamma, and the returned
    bound is the bound at this q(z) and gamma.

    In the shapes below, w is K and W the number of words of the longest document, each rounded up
    to a multiple of LANES.

    Parameters
    ----------
    indptr, words, counts : CSR matrix of the documents over active words, nnz entries
    lengths : (n,) number of tokens of each document
    expected_log : (n_active, K) E[log beta]
    table, table_shift : (n_active, K), (n_active,) results of :func:`tempered_table`; not used if
        ``row_inv_temps`` is given
    alpha : (2, 1, w) or (2, n, w) float64, the prior and its log Gamma, of all documents or of each
        document; the prior is 0 for topics that a document must not have, and padded by its minimum
    inv_temp : inverse temperature of all documents; not used if ``row_inv_temps`` is given
    row_inv_temps : (n,) inverse temperature of each document, or None
    floor : smallest relative weight
    max_iter : largest number of sweeps over a document
    tol : mean absolute change of gamma in a sweep below which a document has converged
    prune : largest number of tokens of topics that are set aside
    weights_out : (n, K) relative weights exp(inv_temp * E[log theta]), written
    ratio_out : (nnz,) ratios n_j / sum_k weights_k table_jk, written
    bound : (n,) local part of the bound in nats, written
    energy : None if ``row_inv_temps`` is None; otherwise empty, or (n,) and written with the result
        of :func:`energies`
    digamma_sums : (n,) digamma(sum_k gamma_k), the normaliser of E[log theta], written
    gamma : (n, K) written
    table_scratch, per_word, per_topic, order : (W w,), (3, W), (6, w), (w,) scratch
    """
    n_topics = expected_log.shape[1]
    width = per_topic.shape[1]
    all_gamma, prior, weights = per_topic[0], per_topic[1], per_topic[2]
    updated, step, row = per_topic[3], per_topic[4], per_topic[5]
    # Loops run to a multiple of the vector length, since scalar loops over the remainder would take
    # most of the time. Padding topics have no words and stay at their prior. The divergence of
    # q(theta) is a difference of large numbers and is computed in float64.
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        prior_row = min(d, alpha.shape[1] - 1)
        sum_alpha, n_allowed = 0.0, 0
        for k in range(n_topics):
            sum_alpha += alpha[0, prior_row, k]
            n_allowed += alpha[0, prior_row, k] > 0.0
        max_change = tol * n_allowed
        lo, hi = indptr[d], indptr[d + 1]
        n_words = hi - lo
        padded_size = (n_words + LANES - 1) // LANES * LANES
        topics = table_scratch[: width * padded_size].reshape(width, padded_size)
        word_counts, shift, ratio = (
            per_word[0][:padded_size],
            per_word[1][:padded_size],
            per_word[2][:padded_size],
        )
        for j in range(n_words):
            word_counts[j] = counts[lo + j]
        word_counts[n_words:] = lit(inv_temp, 0.0)
        shift[n_words:] = lit(inv_temp, 0.0)
        if row_inv_temps is not None:
            inv_temp = row_inv_temps[d]
            _tempered_topics_by_words(
                expected_log, words[lo:hi], inv_temp, floor, row, topics, shift
            )
        else:
            _topics_by_words(table, words[lo:hi], topics)
            for j in range(n_words):
                shift[j] = table_shift[words[lo + j]]
        equal_share = inv_temp * lengths[d] / n_allowed
        for k in range(width):
            order[k], prior[k] = k, alpha[0, prior_row, k]
            is_allowed = k < n_topics and alpha[0, prior_row, k] > 0.0
            all_gamma[k] = prior[k] + (equal_share if is_allowed else lit(inv_temp, 0.0))

        # Fixed-point updates of q(z) and gamma. ratio_j = n_j / sum_k weights_k table_kj, so that
        # n_j phi_jk = ratio_j weights_k table_kj.
        max_sweeps = max_iter if n_words > 0 and n_allowed > 1 else 0
        sweeps, last = 0, False
        kept_gamma, kept_alpha, kept_weights, kept_updated = all_gamma, prior, weights, updated
        while True:
            last = last or sweeps == max_sweeps
            if not last and sweeps > 0 and sweeps % CYCLE == 0:
                # Set topics below a threshold aside. The threshold is well below an equal share, so
                # that documents with nearly equal shares keep all topics.
                threshold = min(prune, lit(inv_temp, 0.1) * equal_share)
                if sweeps > CYCLE:
                    # Lower the threshold: topics that vanish have fallen far below it by now, and
                    # the tokens that topics lose when they are set aside add up.
                    threshold *= lit(inv_temp, LATER_FACTOR)
                n_kept = _set_aside(threshold, topics, kept_gamma, prior, step, order)
                kept_gamma, kept_alpha, kept_weights, kept_updated = (
                    all_gamma[:n_kept], prior[:n_kept], weights[:n_kept], updated[:n_kept]
                )  # fmt: skip
            if last:
                # Evaluate all topics, including the topics that were set aside.
                kept_gamma, kept_weights = all_gamma, weights
            shift_topics = _topic_weights(kept_gamma, inv_temp, floor, kept_weights)
            weighted_sum(topics, kept_weights, ratio)
            if last:
                break
            sweeps += 1
            # Up to here, ``ratio`` holds the denominators only.
            for j in range(padded_size):
                ratio[j] = word_counts[j] / ratio[j]
            dot_products(topics, ratio, kept_updated)
            change = lit(inv_temp, 0.0)
            for k in range(kept_gamma.size):
                kept_updated[k] = (
                    kept_alpha[k] + inv_temp * kept_weights[k] * kept_updated[k]
                )  # [VT16 app. B.2]
                change += abs(kept_updated[k] - kept_gamma[k])
            last = change < max_change
            if CYCLE < sweeps < max_sweeps and (sweeps + 1) % CYCLE == 0 and not last:
                _extrapolate(kept_gamma, kept_updated, kept_alpha, step)
            else:
                for k in range(kept_gamma.size):
                    step[k] = kept_updated[k] - kept_gamma[k]
                    kept_gamma[k] = kept_updated[k]

        # Compute the part of the bound that comes from q(z), at the final gamma.
        shift_topics = np.float64(shift_topics)
        value = 0.0
        for j in range(padded_size):
            value += np.float64(word_counts[j]) * (
                log(ratio[j]) + np.float64(shift[j]) + shift_topics
            )
            ratio[j] = word_counts[j] / ratio[j]
        for j in range(n_words):
            ratio_out[lo + j] = ratio[j]
        sum_gamma = 0.0
        # Return gamma and the weights in the original order of topics.
        for k in range(width):
            updated[order[k]] = all_gamma[k]
        for k in range(n_topics):
            weights_out[d, order[k]] = weights[k]
            gamma[d, k] = updated[k]
            sum_gamma += np.float64(updated[k])
        digamma_sums[d] = digamma_sum = digamma(sum_gamma)
        # This is [VT16 eq. 4] at the optimum of q(z). The prior of theta is not tempered.
        bound[d] = value - inv_temp * lengths[d] * digamma_sum
        bound[d] -= _dirichlet_divergence(
            updated, alpha[0, prior_row], alpha[1, prior_row], -gammaln(sum_alpha), digamma_sum,
            gammaln(sum_gamma),
        )  # fmt: skip
        if row_inv_temps is not None:
            if energy.size > 0:
                energy[d] = _energy(
                    expected_log, words[lo:hi], topics, weights, ratio, all_gamma, order[:n_topics],
                    digamma_sum,
                )  # fmt: skip
        finish(counter, d, stop)


@part
def _energy(
    expected_log: Array, words: IndexArray, table: Array, weights: Array, ratio: Array,
    gamma: Array, order: IndexArray, digamma_sum: float,
) -> float:  # fmt: skip
    """Return the energy of a document, as :func:`energies`, from its table of topics x words.

    Row k of ``table``, ``weights[k]`` and ``gamma[k]`` belong to topic ``order[k]``.
    """
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


# The following results are rarely requested, so separate loops compute them. As parts of
# ``document_steps``, the loops would lengthen its compilation before the first fit, or make further
# compiled versions of ``document_steps`` necessary.
@jit_allocating
def log_marginals(
    indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array, expected_log: Array,
    gamma: Array, digamma_sums: Array, floor: Any, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write log marginals out[d] = sum_j n_j log sum_k exp(E[log theta_k] + E[log beta_kj]).

    In nats, this is the part of the bound that words and z contribute at T = 1, at the optimum of
    q(z) under q(theta) = Dir(gamma_d).
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
    """Write energies out[d] = sum_jk n_j phi_jk (E[log theta_k] + E[log beta_kj]) in nats.

    ``weights``, ``ratio``, ``gamma`` and ``digamma_sums`` are results of :func:`document_steps` at
    one temperature for all documents. They determine q(z), with probabilities phi.
    """
    n_topics = table.shape[1]
    tokens, log_sums = np.empty((2, n_topics), table.dtype)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        for k in range(n_topics):
            tokens[k] = log_sums[k] = lit(tokens[k], 0.0)
        for j in range(indptr[d], indptr[d + 1]):
            row, logs, r = table[words[j]], expected_log[words[j]], ratio[j]
            for k in range(n_topics):
                tokens[k] += r * row[k]
                log_sums[k] += r * row[k] * logs[k]
        value = 0.0
        for k in range(n_topics):
            if weights[d, k] > lit(tokens[k], 0.0):
                log_share = digamma(np.float64(gamma[d, k])) - digamma_sums[d]
                value += weights[d, k] * (np.float64(log_sums[k]) + tokens[k] * log_share)
        out[d] = value
        finish(counter, d, stop)


@jit_allocating
def tokens_of_topics(
    indptr: IndexArray, words: IndexArray, table: Array, weights: Array, ratio: Array, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write expected counts of tokens, out[d, k] = sum_j n_j phi_jk.

    ``weights`` and ``ratio`` are results of :func:`document_steps` at one temperature for all
    documents.
    """
    n_topics = table.shape[1]
    width, longest = (n_topics + LANES - 1) // LANES * LANES, 0
    for d in range(indptr.size - 1):
        longest = max(longest, indptr[d + 1] - indptr[d])
    longest = (longest + LANES - 1) // LANES * LANES
    table_scratch, total = np.empty(width * longest, table.dtype), np.empty(width, table.dtype)
    padded_ratio = np.empty(longest, table.dtype)
    for _ in range(CLAIMS):
        d, stop = claim(counter, DOCUMENTS, indptr.size - 1)
        if d >= stop:
            break
        lo, n_words = indptr[d], indptr[d + 1] - indptr[d]
        padded_size = (n_words + LANES - 1) // LANES * LANES
        topics = table_scratch[: width * padded_size].reshape(width, padded_size)
        _topics_by_words(table, words[lo : lo + n_words], topics)
        for j in range(padded_size):
            padded_ratio[j] = ratio[lo + j] if j < n_words else lit(total[0], 0.0)
        dot_products(topics, padded_ratio[:padded_size], total)
        for k in range(n_topics):
            out[d, k] = weights[d, k] * total[k]
        finish(counter, d, stop)


# ------------------------------------------------------------------------------- statistics
@jit_allocating
def word_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, row_weights: Array,
    weights: Array, ratio: Array, table: Array, expected_log: Array, row_inv_temps: Array | None,
    floor: Any, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write statistics of topics, out[a, k] = sum_d row_weight_d n_da phi_dak.

    Sums are taken in the order of documents, so that they do not depend on the number of threads.
    ``word_indptr``, ``documents`` and ``entries`` are the lists of :func:`localise`, ``weights``
    and ``ratio`` results of :func:`document_steps`. ``table`` is not used if ``row_inv_temps``, the
    inverse temperature of each document, is given.
    """
    n_topics = expected_log.shape[1]
    if row_inv_temps is not None:
        row = np.empty(n_topics, out.dtype)
    for _ in range(CLAIMS):
        start, stop = claim(counter, WORDS, word_indptr.size - 1)
        if start >= stop:
            break
        for a in range(start, stop):
            target = out[a]
            for k in range(n_topics):
                target[k] = lit(floor, 0.0)
            if row_inv_temps is not None:
                for p in range(word_indptr[a], word_indptr[a + 1]):
                    d = documents[p]
                    r = ratio[entries[p]] * row_weights[d]
                    source = weights[d]
                    _tempered_row(expected_log[a], row_inv_temps[d], floor, row)
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
    document_of: IndexArray, words: IndexArray, counts: Array, weights: Array, table: Array,
    row: Array, stop: IndexArray, entries: IndexArray, values: Array,
) -> None:  # fmt: skip
    """List for each topic the entries of a CSR matrix and the topic's expected counts in them.

    Counts up to SMALLEST_COUNT are left out. The lists of all topics are parts of ``entries`` and
    ``values``.

    Parameters
    ----------
    document_of, words, counts : (nnz,) document, word and count of each entry
    weights : (n, K) relative weights of the topics in each document
    table : (n_active, K) relative probabilities of the words in each topic
    row : (K,) scratch
    stop : (K,) start of each topic's list in ``entries``, replaced by its end
    entries, values : numbers of entries and expected counts, written; if ``entries`` is empty, only
        ``stop`` is written
    """
    least = lit(row[0], SMALLEST_COUNT)
    for e in range(words.size):
        source, topic, total = weights[document_of[e]], table[words[e]], lit(row[0], 0.0)
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
    """Write log likelihoods out[d] = sum_j n_j log sum_k proportions_dk topics_jk in nats.

    ``proportions`` are (n, K) and ``topics`` (n_active, K).
    """
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
