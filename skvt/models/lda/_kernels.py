"""Compiled loops of latent Dirichlet allocation: mean-field local steps of documents.

The loops serve :mod:`skvt.models.lda._model`, which has the notation. Their arrays and numbers are
chosen as follows.

Layout: arrays of topics have shape (V, K), so that the row of a word is contiguous. The words that
occur in a minibatch of n documents are called active. They are numbered from 0, and ``table``
(n_active, K) holds exp(inv_temp * E[log beta]) for these words only.

Sweeps over a document update q(z) and q(theta) in turn. They use a copy of the document's rows of
the table. The copy has shape topics x words, so that vector instructions run along words. A sweep
is then equally efficient for each topic whether it visits few topics or many, and topics that later
sweeps leave out cost nothing.

Numerics: q(z) is a softmax, so rows of the table and E[log theta] are shifted by their maximum, and
relative weights below a floor are set to the floor. In float32 the floor of 1e-17 keeps each
product above the smallest normal number, because arithmetic of denormal numbers is ten times as
slow. Weights at the floor contribute less than rounding errors to the statistics of a topic.

Threads: all threads call a loop with the same ``counter``, from which ``claim_items`` yields the
items of the present thread. ``lit(x, c)`` is the constant c in the floating-point type of x, so
that computations in float32 are not promoted to float64.
"""

from typing import Any

import numpy as np

from skvt._compiled import (
    claim_items,
    digamma,
    exp,
    gammaln,
    jit,
    jit_allocating,
    jit_inlined,
    lit,
    log,
    write_dot_products,
    write_weighted_sum,
)
from skvt.typing import Array, IndexArray

# Number of words, and number of documents, in a claim: the items that a thread takes at a time.
# They are NumPy integers, since numba treats a Python integer as a constant and compiles a function
# again for each constant.
WORDS_PER_CLAIM = np.int64(16)
DOCUMENTS_PER_CLAIM = np.int64(1)
# A document's table is padded to a multiple of this number of topics and words. The samplers pad
# to the larger number LANES of :mod:`skvt._compiled`.
TABLE_MULTIPLE = 8
# Number of sweeps of a cycle. After each cycle, topics with fewer tokens than a threshold are set
# aside: later sweeps over the document leave them out. In each cycle but the first, gamma is
# extrapolated before the last sweep.
CYCLE = 3
# After later cycles, the threshold is this share of the threshold after the first cycle.
LATER_THRESHOLD_SHARE = 0.01
# Extrapolation of gamma leaves at least this share of its tokens to a topic.
MIN_KEPT_SHARE = 0.1
# :func:`list_expected_counts` leaves out expected counts up to this number.
MIN_COUNT = 1e-2
# Smallest positive entry of a prior. A prior of 0 means that a document must not have the topic.
MIN_PRIOR = 1e-30
# The floor of relative weights in each precision.
FLOOR = {np.dtype(np.float32): np.float32(1e-17), np.dtype(np.float64): 1e-140}


# ----------------------------------------------------------------------------------- indices
@jit
def gather_rows(
    indptr: IndexArray, indices: IndexArray, rows: IndexArray, marker: IndexArray,
    out_indptr: IndexArray, active: IndexArray,
) -> int:  # fmt: skip
    """Write row pointers and distinct columns of ``X[rows]``; return the number of these columns.

    Parameters
    ----------
    indptr, indices : CSR structure of the matrix X (any, V)
    rows : (n,) rows of X
    marker : (V,) -1 for each column; overwritten by 0 for the columns that occur
    out_indptr : (n + 1,) row pointers of ``X[rows]``, written
    active : (V + 1,) the distinct columns in order of their first occurrence, written
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
def copy_rows(
    indptr: IndexArray, indices: IndexArray, data: Array, rows: IndexArray, active: IndexArray,
    marker: IndexArray, out_indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array,
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray,
) -> None:  # fmt: skip
    """Copy rows of a CSR matrix, and list the entries of the copy by word.

    The words of the copy are numbered by their position in ``active``. Each word has a list of its
    entries in the order of rows.

    Parameters
    ----------
    indptr, indices, data : CSR matrix (any, V)
    rows : (n,) rows to copy
    active : (n_active,) distinct columns of these rows
    marker : (V,) scratch
    out_indptr : (n + 1,) row pointers of the copy, see :func:`gather_rows`
    words, counts : (nnz,) word and value of each entry of the copy, written
    lengths : (n,) row sums, written
    word_indptr : (n_active + 1,) position at which the list of each word begins, written
    documents, entries : (nnz,) the lists of all words, which hold the row of each entry and its
        number in the copy, written
    """
    # Copy the entries. ``marker`` holds the number of each active column.
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
    # Fill the lists. From here on, ``marker`` holds the position of the next entry of each list.
    for a in range(active.size):
        word_indptr[a + 1] += word_indptr[a]
        marker[active[a]] = word_indptr[a]
    for i in range(rows.size):
        for j in range(out_indptr[i], out_indptr[i + 1]):
            v = active[words[j]]
            documents[marker[v]] = i
            entries[marker[v]] = j
            marker[v] += 1


# ------------------------------------------------------------------------------- expectations
@jit
def write_expected_log_topics(
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
    for a in claim_items(counter, WORDS_PER_CLAIM, rows.size):
        source = array[rows[a]]
        target = out[a]
        eta = prior[rows[a]]
        for k in range(source.size):
            target[k] = digamma(eta + scale * source[k]) - digamma_sums[k]


@jit_inlined
def _write_tempered_row(source: Array, inv_temp: Any, floor: Any, target: Array) -> Any:
    """Write exp(inv_temp * source - shift), at least ``floor``, to ``target``; return the shift.

    The shift is inv_temp times the maximum of ``source``, so that no value exceeds 1.
    """
    max_log = source[0]
    for k in range(source.size):
        max_log = max(max_log, source[k])
    for k in range(source.size):
        target[k] = max(exp(inv_temp * (source[k] - max_log)), floor)
    return inv_temp * max_log


@jit
def write_tempered_table(
    expected_log: Array, inv_temp: Any, floor: Any, table: Array, shift: Array, counter: IndexArray
) -> None:
    """Write table = exp(inv_temp * expected_log - shift), but at least ``floor``, and the shifts.

    ``expected_log`` and ``table`` are (n_active, K). ``shift`` (n_active,) makes the maximum of
    each row 1.
    """
    for a in claim_items(counter, WORDS_PER_CLAIM, expected_log.shape[0]):
        shift[a] = _write_tempered_row(expected_log[a], inv_temp, floor, table[a])


# ----------------------------------------------------------------------------- document step
@jit_inlined
def _round_up(n: Any) -> Any:
    """Return n rounded up to a multiple of TABLE_MULTIPLE."""
    return (n + TABLE_MULTIPLE - 1) // TABLE_MULTIPLE * TABLE_MULTIPLE


@jit_inlined
def _write_topic_weights(gamma: Array, inv_temp: Any, floor: Any, weights: Array) -> Any:
    """Write weights exp(inv_temp * digamma(gamma) - shift), at least ``floor``; return the shift.

    The shift makes the largest weight 1. The term digamma(sum gamma) of E[log theta] is left out,
    since it cancels in q(z). Topics with gamma = 0, which the document must not have, get the
    weight 0.
    """
    zero, min_gamma = lit(floor, 0.0), lit(floor, MIN_PRIOR)
    for k in range(gamma.size):
        weights[k] = digamma(max(gamma[k], min_gamma))
    max_digamma = weights[0]
    for k in range(gamma.size):
        max_digamma = max(max_digamma, weights[k])
    for k in range(gamma.size):
        weight = max(exp(inv_temp * (weights[k] - max_digamma)), floor)
        weights[k] = weight if gamma[k] > zero else zero
    return inv_temp * max_digamma


@jit_inlined
def _compute_dirichlet_divergence(
    gamma: Array, alpha: Array, gammaln_alpha: Array, gammaln_sum_alpha: float,
    digamma_sum: float, gammaln_sum: float,
) -> float:  # fmt: skip
    """Return KL(Dir(gamma) || Dir(alpha)) in nats over the topics whose alpha is above 0.

    ``gammaln_alpha`` (K,) is log Gamma(alpha) and ``gammaln_sum_alpha`` is log Gamma(sum alpha).
    ``digamma_sum`` and ``gammaln_sum`` are digamma and log Gamma of sum gamma.
    """
    divergence = gammaln_sum - gammaln_sum_alpha
    for k in range(alpha.size):
        if alpha[k] > 0.0:
            g = np.float64(gamma[k])
            divergence += (g - alpha[k]) * (digamma(g) - digamma_sum)
            divergence += gammaln_alpha[k] - gammaln(g)
    return divergence


@jit_inlined
def _write_document_table(source: Array, words: IndexArray, table: Array) -> None:
    """Write table[k, j] = source[words[j], k].

    ``table`` is padded to more words and topics. Columns that pad the words repeat the last word,
    and rows that pad the topics are 0.
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
    # Take a constant 0 instead of ``lit(table[0, 0], 0.0)``, because the table has no entry if the
    # document has no words.
    table[n_topics:] = np.float32(0.0)


@jit_inlined
def _write_tempered_document_table(
    expected_log: Array, words: IndexArray, inv_temp: Any, floor: Any, row: Array, table: Array,
    shift: Array,
) -> None:  # fmt: skip
    """Write table[k, j] = exp(inv_temp * expected_log[words[j], k] - shift[j]), at least ``floor``.

    ``table`` is padded to more words and topics. Columns that pad the words repeat the first word,
    and rows that pad the topics are 0. ``row`` (K,) is scratch.
    """
    n_topics = expected_log.shape[1]
    for j in range(table.shape[1]):
        word = words[j if j < words.size else 0]
        shift[j] = _write_tempered_row(expected_log[word], inv_temp, floor, row)
        for k in range(n_topics):
            table[k, j] = row[k]
    table[n_topics:] = lit(floor, 0.0)


@jit_inlined
def _set_aside(
    threshold: Any, doc_table: Array, gamma: Array, prior: Array, last_step: Array,
    order: IndexArray,
) -> Any:  # fmt: skip
    """Move topics with more tokens than a threshold to the front; return the number to keep.

    The document has ``gamma - prior`` tokens of a topic. The number of kept topics is rounded up to
    a multiple of TABLE_MULTIPLE. Gamma of all other topics is set to the prior. The rows of
    ``doc_table`` and the entries of ``gamma``, ``prior``, ``last_step`` and ``order`` are permuted
    alike. ``order`` has the number of the topic at each position.
    """
    # Topics before ``start`` are kept, topics from ``stop`` on are set aside, and the topics in
    # between have not been visited yet.
    start: Any = np.int64(0)
    stop: Any = np.int64(gamma.size)
    while start < stop:
        last = stop - 1
        if gamma[start] - prior[start] > threshold:
            start += 1
        elif gamma[last] - prior[last] > threshold:
            gamma[start], gamma[last] = gamma[last], gamma[start]
            prior[start], prior[last] = prior[last], prior[start]
            last_step[start], last_step[last] = last_step[last], last_step[start]
            order[start], order[last] = order[last], order[start]
            start_row, last_row = doc_table[start], doc_table[last]
            for j in range(start_row.size):
                start_row[j], last_row[j] = last_row[j], start_row[j]
        else:
            stop -= 1
    # Keep at least TABLE_MULTIPLE topics, which the loops need, even if no topic is above the
    # threshold, as when gamma is NaN.
    n_kept = _round_up(max(start, 1))
    for k in range(n_kept, gamma.size):
        gamma[k] = prior[k]
    return n_kept


@jit_inlined
def _extrapolate(gamma: Array, updated: Array, alpha: Array, last_step: Array) -> None:
    """Replace gamma by the extrapolation ``updated + 15 (updated - gamma) - 9 last_step``.

    ``updated`` is the result of the present update, and ``last_step`` is the change of gamma in the
    previous update.

    Suppose that each update multiplies the distance of gamma from the optimum by a factor r,
    0.6 <= r <= 1. Then the previous update, the present update and the extrapolation together
    multiply the distance by ``(4 r - 3)^2``, and a cycle of three updates multiplies it by
    ``r (4 r - 3)^2``. This Chebyshev polynomial is at most 1. Near r = 1 it is ``1 - 9 (1 - r)``,
    so that a cycle is worth nine updates.

    The step beyond ``updated`` is 0 if r = 0.6, and 6 times the present change if r = 1. It is
    clipped to this range, so that gamma never moves back, even if successive updates have different
    factors. Each topic keeps a share of its tokens.
    """
    zero = lit(gamma[0], 0.0)
    for k in range(gamma.size):
        change = updated[k] - gamma[k]
        extra_step = lit(change, 15.0) * change - lit(change, 9.0) * last_step[k]
        limit = lit(change, 6.0) * change
        extra_step = min(max(extra_step, min(limit, zero)), max(limit, zero))
        # Gamma must stay above alpha, since a topic without tokens could not grow again.
        min_gamma = alpha[k] + lit(change, MIN_KEPT_SHARE) * (updated[k] - alpha[k])
        gamma[k] = max(updated[k] + extra_step, min_gamma)


@jit
def optimise_documents(
    indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array, expected_log: Array,
    table: Array, table_shift: Array, alpha: Array, inv_temp: Any, row_inv_temps: Array | None,
    floor: Any, max_iter: int, tol: Any, max_threshold: Any, weights_out: Array, ratio_out: Array,
    bound: Array, energy: Any, digamma_sums: Array, gamma: Array, table_scratch: Array,
    per_word: Array, per_topic: Array, order: IndexArray, counter: IndexArray,
) -> None:  # fmt: skip
    """Optimise q(z, theta) of each document, starting from equal shares of its topics.

    After every CYCLE sweeps, topics whose tokens have fallen below a threshold are set aside with
    gamma = alpha, and sweeps continue over all other topics. The last evaluation is over all
    topics, so that q(z) is optimal given the returned gamma. The returned bound is the bound at
    this q(z) and gamma.

    In the shapes below, w is K, and W is the number of words of the longest document, each rounded
    up to a multiple of TABLE_MULTIPLE.

    Parameters
    ----------
    indptr, words, counts : CSR matrix of the documents over active words, nnz entries
    lengths : (n,) number of tokens of each document
    expected_log : (n_active, K) E[log beta]
    table, table_shift : (n_active, K), (n_active,) results of :func:`write_tempered_table`; not
        used if ``row_inv_temps`` is given
    alpha : float64 (2, 1, w) or (2, n, w), the prior of all documents or of each, and log Gamma of
        the prior; the prior is 0 for topics that a document must not have, and padded by its
        minimum
    inv_temp : inverse temperature of all documents; not used if ``row_inv_temps`` is given
    row_inv_temps : (n,) inverse temperature of each document, or None
    floor : smallest relative weight
    max_iter : largest number of sweeps over a document
    tol : mean absolute change of gamma in a sweep below which a document has converged
    max_threshold : upper limit of the threshold below which topics are set aside, in tokens
    weights_out : (n, K) relative weights exp(inv_temp * E[log theta]), written
    ratio_out : (nnz,) ratios n_j / sum_k weights_k table_jk, written
    bound : (n,) local part of the bound in nats, written
    energy : None if ``row_inv_temps`` is None; otherwise (n,), written as by
        :func:`write_energies`, or (0,) if energies are not needed
    digamma_sums : (n,) digamma(sum_k gamma_k), the normaliser of E[log theta], written
    gamma : (n, K) written
    table_scratch, per_word, per_topic, order : (W w,), (3, W), (6, w), (w,) scratch
    """
    n_topics = expected_log.shape[1]
    width = per_topic.shape[1]
    # Entry k of these arrays, but for the scratch ``row``, belongs to topic order[k]. ``updated``
    # is the next gamma, and ``last_step`` the change of gamma in the previous update.
    all_gamma, prior, weights = per_topic[0], per_topic[1], per_topic[2]
    updated, last_step, row = per_topic[3], per_topic[4], per_topic[5]
    # Loops run to a multiple of the vector length, since scalar loops over the remainder would take
    # most of the time. Padding topics have no words, and their gamma stays at the prior.
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        prior_row = min(d, alpha.shape[1] - 1)
        doc_alpha, doc_gammaln_alpha = alpha[0, prior_row], alpha[1, prior_row]
        sum_alpha, n_allowed = 0.0, 0
        for k in range(n_topics):
            sum_alpha += doc_alpha[k]
            n_allowed += doc_alpha[k] > 0.0
        max_change = tol * n_allowed
        # Copy the table and counts of the document's words to scratch. ``doc_table`` is topics x
        # words. Padding words have the count 0.
        start, stop = indptr[d], indptr[d + 1]
        n_words = stop - start
        n_padded = _round_up(n_words)
        doc_table = table_scratch[: width * n_padded].reshape(width, n_padded)
        word_counts, shift, ratio = (
            per_word[0][:n_padded], per_word[1][:n_padded], per_word[2][:n_padded],
        )  # fmt: skip
        for j in range(n_words):
            word_counts[j] = counts[start + j]
        word_counts[n_words:] = lit(inv_temp, 0.0)
        shift[n_words:] = lit(inv_temp, 0.0)
        if row_inv_temps is not None:
            inv_temp = row_inv_temps[d]
            _write_tempered_document_table(
                expected_log, words[start:stop], inv_temp, floor, row, doc_table, shift
            )
        else:
            _write_document_table(table, words[start:stop], doc_table)
            for j in range(n_words):
                shift[j] = table_shift[words[start + j]]
        # Start from equal shares of the topics that the document may have.
        equal_share = inv_temp * lengths[d] / n_allowed
        for k in range(width):
            order[k] = k
            prior[k] = doc_alpha[k]
            is_allowed = k < n_topics and doc_alpha[k] > 0.0
            all_gamma[k] = prior[k] + (equal_share if is_allowed else lit(inv_temp, 0.0))

        # Make fixed-point updates of q(z) and gamma. The topics' weights and ratio_j = n_j / sum_k
        # weights_k table_kj determine q(z), since n_j phi_jk = ratio_j weights_k table_kj.
        max_sweeps = max_iter if n_words > 0 and n_allowed > 1 else 0
        n_sweeps, is_last = 0, False
        # Each round but the last is a sweep; the last round only computes the weights and the
        # denominators. The ``kept`` arrays are views of the topics that are not set aside.
        kept_gamma, kept_prior, kept_weights, kept_updated = all_gamma, prior, weights, updated
        while True:
            is_last = is_last or n_sweeps == max_sweeps
            if not is_last and n_sweeps > 0 and n_sweeps % CYCLE == 0:
                # Set topics below a threshold aside. The threshold is well below an equal share, so
                # that documents with nearly equal shares keep all topics.
                threshold = min(max_threshold, lit(inv_temp, 0.1) * equal_share)
                if n_sweeps > CYCLE:
                    # Lower the threshold after later cycles, because vanishing topics have fallen
                    # far below it by then, and the tokens of topics set aside add up.
                    threshold *= lit(inv_temp, LATER_THRESHOLD_SHARE)
                n_kept = _set_aside(threshold, doc_table, kept_gamma, prior, last_step, order)
                kept_gamma, kept_prior = all_gamma[:n_kept], prior[:n_kept]
                kept_weights, kept_updated = weights[:n_kept], updated[:n_kept]
            if is_last:
                # Evaluate all topics, including the topics that were set aside.
                kept_gamma, kept_weights = all_gamma, weights
            # Write the denominators of the ratios to ``ratio``.
            shift_topics = _write_topic_weights(kept_gamma, inv_temp, floor, kept_weights)
            write_weighted_sum(doc_table, kept_weights, ratio)
            if is_last:
                break
            n_sweeps += 1
            for j in range(n_padded):
                ratio[j] = word_counts[j] / ratio[j]
            write_dot_products(doc_table, ratio, kept_updated)
            change = lit(inv_temp, 0.0)
            for k in range(kept_gamma.size):
                kept_updated[k] = (
                    kept_prior[k] + inv_temp * kept_weights[k] * kept_updated[k]
                )  # [VT16 app. B.2]
                change += abs(kept_updated[k] - kept_gamma[k])
            is_last = change < max_change
            if CYCLE < n_sweeps < max_sweeps and (n_sweeps + 1) % CYCLE == 0 and not is_last:
                _extrapolate(kept_gamma, kept_updated, kept_prior, last_step)
            else:
                for k in range(kept_gamma.size):
                    last_step[k] = kept_updated[k] - kept_gamma[k]
                    kept_gamma[k] = kept_updated[k]

        # Compute the part of the bound that comes from q(z) at the final gamma. ``ratio`` still
        # holds denominators; replace them by the ratios.
        shift_topics = np.float64(shift_topics)
        word_bound = 0.0
        for j in range(n_padded):
            word_bound += np.float64(word_counts[j]) * (
                log(ratio[j]) + np.float64(shift[j]) + shift_topics
            )
            ratio[j] = word_counts[j] / ratio[j]
        for j in range(n_words):
            ratio_out[start + j] = ratio[j]
        # Write gamma and the weights in the original order of topics.
        sum_gamma = 0.0
        for k in range(width):
            updated[order[k]] = all_gamma[k]
        for k in range(n_topics):
            weights_out[d, order[k]] = weights[k]
            gamma[d, k] = updated[k]
            sum_gamma += np.float64(updated[k])
        digamma_sums[d] = digamma_sum = digamma(sum_gamma)
        # This is [VT16 eq. 4] at the optimum of q(z). The prior of theta is not tempered. The
        # divergence is a difference of large numbers and therefore computed in float64.
        bound[d] = word_bound - inv_temp * lengths[d] * digamma_sum
        bound[d] -= _compute_dirichlet_divergence(
            updated, doc_alpha, doc_gammaln_alpha, gammaln(sum_alpha), digamma_sum,
            gammaln(sum_gamma),
        )  # fmt: skip
        # If ``row_inv_temps`` is None, so is ``energy``, and numba does not compile this block.
        if row_inv_temps is not None:
            if energy.size > 0:
                energy[d] = _compute_energy(
                    expected_log, words[start:stop], doc_table, weights, ratio, all_gamma,
                    order[:n_topics], digamma_sum,
                )  # fmt: skip


@jit_inlined
def _compute_energy(
    expected_log: Array, words: IndexArray, table: Array, weights: Array, ratio: Array,
    gamma: Array, order: IndexArray, digamma_sum: float,
) -> float:  # fmt: skip
    """Return a document's energy as in :func:`write_energies`, from its table of topics x words.

    Row k of ``table``, ``weights[k]`` and ``gamma[k]`` belong to topic ``order[k]``.
    """
    energy = 0.0
    for k in range(order.size):
        if weights[k] == lit(weights[0], 0.0):
            continue
        # Both sums over words lack the factor weights[k].
        n_tokens = log_sum = lit(weights[0], 0.0)
        topic_row = table[k]
        for j in range(words.size):
            word_tokens = ratio[j] * topic_row[j]
            n_tokens += word_tokens
            log_sum += word_tokens * expected_log[words[j], order[k]]
        expected_log_theta = digamma(np.float64(gamma[k])) - digamma_sum
        energy += np.float64(weights[k]) * (
            np.float64(log_sum) + np.float64(n_tokens) * expected_log_theta
        )
    return energy


# The results of the next three loops are rarely requested. As parts of ``optimise_documents``, the
# loops would lengthen its compilation before the first fit.
@jit_allocating
def write_log_marginals(
    indptr: IndexArray, words: IndexArray, counts: Array, lengths: Array, expected_log: Array,
    gamma: Array, digamma_sums: Array, floor: Any, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write log marginals out[d] = sum_j n_j log sum_k exp(E[log theta_k] + E[log beta_kj]).

    The log marginal is in nats. It is the term of the bound at T = 1 that comes from words and z,
    for the q(z) that maximises the bound given q(theta) = Dir(gamma_d).
    """
    n_topics = expected_log.shape[1]
    weights, row = np.empty((2, n_topics), expected_log.dtype)
    one = lit(floor, 1.0)
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        shift_topics = np.float64(_write_topic_weights(gamma[d], one, floor, weights))
        log_marginal = 0.0
        for j in range(indptr[d], indptr[d + 1]):
            shift_word = _write_tempered_row(expected_log[words[j]], one, floor, row)
            weight_sum = lit(floor, 0.0)
            for k in range(n_topics):
                weight_sum += row[k] * weights[k]
            log_marginal += counts[j] * (log(weight_sum) + np.float64(shift_word) + shift_topics)
        out[d] = log_marginal - lengths[d] * digamma_sums[d]


@jit_allocating
def write_energies(
    indptr: IndexArray, words: IndexArray, table: Array, weights: Array, ratio: Array,
    expected_log: Array, gamma: Array, digamma_sums: Array, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write energies out[d] = sum_jk n_j phi_jk (E[log theta_k] + E[log beta_kj]) in nats.

    ``weights``, ``ratio``, ``gamma`` and ``digamma_sums`` are results of :func:`optimise_documents`
    at one temperature for all documents. phi_jk = q(z = k) of word j is
    ``ratio_j weights_k table_jk / n_j``.
    """
    n_topics = table.shape[1]
    tokens, log_sums = np.empty((2, n_topics), table.dtype)
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        for k in range(n_topics):
            tokens[k] = log_sums[k] = lit(tokens[k], 0.0)
        for j in range(indptr[d], indptr[d + 1]):
            word_row, logs, word_ratio = table[words[j]], expected_log[words[j]], ratio[j]
            # Both sums lack the factor weights[d, k].
            for k in range(n_topics):
                tokens[k] += word_ratio * word_row[k]
                log_sums[k] += word_ratio * word_row[k] * logs[k]
        energy = 0.0
        for k in range(n_topics):
            if weights[d, k] > lit(tokens[k], 0.0):
                expected_log_theta = digamma(np.float64(gamma[d, k])) - digamma_sums[d]
                energy += weights[d, k] * (np.float64(log_sums[k]) + tokens[k] * expected_log_theta)
        out[d] = energy


@jit_allocating
def write_topic_tokens(
    indptr: IndexArray, words: IndexArray, table: Array, weights: Array, ratio: Array, out: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Write the expected number of tokens of each topic, out[d, k] = sum_j n_j phi_jk.

    ``weights`` and ``ratio`` are results of :func:`optimise_documents` at one temperature for all
    documents.
    """
    n_topics = table.shape[1]
    width = _round_up(n_topics)
    max_words = 0
    for d in range(indptr.size - 1):
        max_words = max(max_words, _round_up(indptr[d + 1] - indptr[d]))
    table_scratch, sums = np.empty(width * max_words, table.dtype), np.empty(width, table.dtype)
    padded_ratio = np.empty(max_words, table.dtype)
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        start, n_words = indptr[d], indptr[d + 1] - indptr[d]
        n_padded = _round_up(n_words)
        doc_table = table_scratch[: width * n_padded].reshape(width, n_padded)
        _write_document_table(table, words[start : start + n_words], doc_table)
        for j in range(n_padded):
            padded_ratio[j] = ratio[start + j] if j < n_words else lit(sums[0], 0.0)
        write_dot_products(doc_table, padded_ratio[:n_padded], sums)
        for k in range(n_topics):
            out[d, k] = weights[d, k] * sums[k]


# ------------------------------------------------------------------------------- statistics
@jit_allocating
def write_word_statistics(
    word_indptr: IndexArray, documents: IndexArray, entries: IndexArray, row_weights: Array,
    weights: Array, ratio: Array, table: Array, expected_log: Array, row_inv_temps: Array | None,
    floor: Any, out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write statistics of topics, out[a, k] = sum_d row_weight_d n_da phi_dak.

    Sums are taken in the order of documents, so that they do not depend on the number of threads.
    ``word_indptr``, ``documents`` and ``entries`` are the lists of :func:`copy_rows`. ``weights``
    and ``ratio`` are results of :func:`optimise_documents`, and ``table`` is the table of the
    active words. If documents have separate inverse temperatures ``row_inv_temps`` (n,), the rows
    of each document are computed from ``expected_log`` instead of ``table``.
    """
    n_topics = expected_log.shape[1]
    if row_inv_temps is not None:
        row = np.empty(n_topics, out.dtype)
    for a in claim_items(counter, WORDS_PER_CLAIM, word_indptr.size - 1):
        target = out[a]
        for k in range(n_topics):
            target[k] = lit(floor, 0.0)
        if row_inv_temps is not None:
            for i in range(word_indptr[a], word_indptr[a + 1]):
                d = documents[i]
                weighted_ratio = ratio[entries[i]] * row_weights[d]
                doc_weights = weights[d]
                _write_tempered_row(expected_log[a], row_inv_temps[d], floor, row)
                for k in range(n_topics):
                    target[k] += weighted_ratio * doc_weights[k] * row[k]
        else:
            for i in range(word_indptr[a], word_indptr[a + 1]):
                weighted_ratio = ratio[entries[i]] * row_weights[documents[i]]
                doc_weights = weights[documents[i]]
                for k in range(n_topics):
                    target[k] += weighted_ratio * doc_weights[k]
            for k in range(n_topics):
                target[k] *= table[a, k]


@jit
def list_expected_counts(
    document_of: IndexArray, words: IndexArray, counts: Array, weights: Array, table: Array,
    row: Array, list_ends: IndexArray, entries: IndexArray, values: Array,
) -> None:  # fmt: skip
    """List for each topic its expected counts in the entries of a CSR matrix.

    Expected counts up to MIN_COUNT are left out. The lists of all topics lie one after the
    other in ``entries`` and ``values``.

    Parameters
    ----------
    document_of, words, counts : (nnz,) document, word and count of each entry
    weights : (n, K) relative weights of the topics in each document
    table : (n_active, K) relative probabilities of the words in each topic
    row : (K,) scratch
    list_ends : (K,) position at which the list of each topic begins; overwritten by the position
        after its last item
    entries, values : numbers of the entries and expected counts, written; if both are empty, only
        ``list_ends`` is written, which counts the items
    """
    min_count = lit(row[0], MIN_COUNT)
    for entry in range(words.size):
        doc_weights = weights[document_of[entry]]
        word_row = table[words[entry]]
        sum_of_products = lit(row[0], 0.0)
        for k in range(row.size):
            row[k] = doc_weights[k] * word_row[k]
            sum_of_products += row[k]
        count_share = counts[entry] / sum_of_products
        for k in range(row.size):
            expected_count = row[k] * count_share
            if expected_count > min_count:
                if entries.size > 0:
                    entries[list_ends[k]], values[list_ends[k]] = entry, expected_count
                list_ends[k] += 1


@jit
def write_mixture_log_likelihoods(
    indptr: IndexArray, words: IndexArray, counts: Array, proportions: Array, topics: Array,
    out: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write log likelihoods out[d] = sum_j n_j log sum_k proportions_dk topics_jk in nats.

    ``proportions`` are (n, K) and ``topics`` (n_active, K).
    """
    for d in claim_items(counter, DOCUMENTS_PER_CLAIM, indptr.size - 1):
        log_likelihood = 0.0
        doc_proportions = proportions[d]
        for j in range(indptr[d], indptr[d + 1]):
            word_row = topics[words[j]]
            probability = lit(doc_proportions[0], 0.0)
            for k in range(doc_proportions.size):
                probability += doc_proportions[k] * word_row[k]
            log_likelihood += counts[j] * np.float64(log(probability))
        out[d] = log_likelihood
