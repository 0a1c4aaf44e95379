"""Compiled loops of mixtures: features, responsibilities, candidates, and joins of clusters.

In shapes, n is the number of rows, D of columns, K of components, P of features of a row, J of
candidates of a row, and L of the best of these candidates. If a local step does not compute all
responsibilities, the candidates of a row are the components whose responsibilities it computes. A
join makes one cluster of two clusters of components of a fitted mixture.

The loops write their results to arguments. Some loops run in the precision of the data, and
``lit(x, 0.0)`` is the constant 0 in the type of x. Functions with the decorator ``jit_inlined`` are
inlined into the loops that call them.
"""

from typing import NamedTuple

import numpy as np

from skvt._compiled import exp, jit, jit_allocating, jit_inlined, lit, log
from skvt.typing import Array, IndexArray

# Responsibilities below exp(-60) times the largest responsibility of the row are set to zero. This
# limit is far below rounding and far above the denormal numbers that would slow matrix products
# down.
_MAX_LOGIT_DISTANCE = 60.0
# For responsibilities of candidates, the limit is exp(-40), which is below rounding, too.
_MAX_CANDIDATE_DISTANCE = 40.0
# Smaller responsibilities are left out of the losses of entropy by merges, because their entropy is
# less than 1e-12 nats in each row.
MIN_RESPONSIBILITY = 1e-14
# Upper bounds are multiplied by this factor, so that rounding does not make them too small.
ROUNDING_FACTOR = 1.0 + 1e-9


@jit
def _write_outer_features(columns: Array, with_linear: bool, features: Array) -> None:
    """Write `compute_outer_features` of ``columns`` (D, n) to ``features`` (P, n).

    NaN in ``columns`` are replaced by 0 in place.
    """
    n_features, n_rows = columns.shape
    # Only NaN differs from itself.
    is_complete = True
    for i in range(n_features):
        for n in range(n_rows):
            is_complete &= columns[i, n] == columns[i, n]
    # Feature 0 is 1 in rows with any observed value.
    features[0] = 1.0 if is_complete else 0.0
    if not is_complete:
        for i in range(n_features):
            for n in range(n_rows):
                value = columns[i, n]
                is_seen = value == value
                columns[i, n] = value if is_seen else lit(value, 0.0)
                features[0, n] = lit(value, 1.0) if is_seen else features[0, n]
    position = 1
    if with_linear:
        for i in range(n_features):
            for n in range(n_rows):
                features[position, n] = columns[i, n]
            position += 1
    for i in range(n_features):
        for j in range(i, n_features):
            for n in range(n_rows):
                features[position, n] = columns[i, n] * columns[j, n]
            position += 1


def compute_outer_features(X: Array, *, with_linear: bool) -> Array:
    """Return ``[1, x, upper triangle of x x']`` of each row, (n, P).

    x is left out unless ``with_linear`` is set. NaN count as 0, and all features of a row of NaN
    are 0. The result is in Fortran order, because the inner loops of the compiled function run over
    rows.
    """
    n_rows, n_features = X.shape
    width = 1 + n_features * with_linear + n_features * (n_features + 1) // 2
    features = np.empty((width, n_rows), X.dtype)
    _write_outer_features(np.array(X.T, order="C"), with_linear, features)
    return features.T


@jit
def write_indicators(codes: Array, ends: Array, indicators: Array) -> None:
    """Set the indicators of the categories of rows to 1 in ``indicators`` (n, sum_d C_d).

    ``codes`` (n, D) are the categories, which are 0, ..., C_d - 1 in column d. Other codes, and
    NaN, have no indicator. The indicators of column d end before the position ``ends[d]``.
    """
    for n in range(codes.shape[0]):
        start = 0
        for d in range(codes.shape[1]):
            code = codes[n, d]
            if code >= 0.0 and code < ends[d] - start:
                indicators[n, start + int(code)] = 1.0
            start = ends[d]


@jit
def responsibilities(logits: Array, inv_temps: Array, bound: Array, energy: Array) -> None:
    """Replace ``logits`` (n, K) by the softmax of ``inv_temp * logits`` in each row [HS13 eq. 9].

    ``inv_temps`` has the inverse temperature of each row, (n,), or of all rows, (1,). For each row
    with the responsibilities r_k, ``energy`` (n,) gets ``sum_k r_k logit_k``, and ``bound`` (n,)
    gets ``inv_temp * energy + entropy``, both in nats.
    """
    n_components = logits.shape[1]
    for n in range(logits.shape[0]):
        row = logits[n]
        inv_temp = inv_temps[n] if inv_temps.size > 1 else inv_temps[0]
        largest_logit = row[0]
        for k in range(1, n_components):
            largest_logit = max(largest_logit, row[k])
        total, weighted_distance = lit(largest_logit, 0.0), lit(largest_logit, 0.0)
        lowest = -lit(largest_logit, _MAX_LOGIT_DISTANCE)
        for k in range(n_components):
            distance = row[k] - largest_logit
            tempered_distance = inv_temp * distance
            # The maximum keeps `exp` from computing denormal numbers, which are slow.
            r = exp(max(tempered_distance, lowest))
            r = r if tempered_distance > lowest else lit(largest_logit, 0.0)
            total += r
            weighted_distance += r * distance
            row[k] = r
        inverse_total = lit(largest_logit, 1.0) / total
        for k in range(n_components):
            row[k] *= inverse_total
        bound[n] = np.float64(inv_temp) * np.float64(largest_logit) + np.float64(log(total))
        energy[n] = np.float64(largest_logit) + np.float64(weighted_distance * inverse_total)


@jit
def write_candidate_logits(
    features: Array, table: Array, log_weights: Array, candidates: IndexArray, logits: Array
) -> None:
    """Write ``logits[n, j] = E[log w_k] + <F(x_n), T_k>`` for ``k = candidates[n, j]``.

    ``features`` (n, P) are F(x_n), ``table`` (K, P) has the row T_k, ``log_weights`` (K,) are
    E[log w_k], and ``candidates`` are (n, J).
    """
    for n in range(features.shape[0]):
        row = features[n]
        for j in range(candidates.shape[1]):
            k = candidates[n, j]
            coefficients = table[k]
            log_density = lit(log_weights[k], 0.0)
            for p in range(features.shape[1]):
                log_density += row[p] * coefficients[p]
            logits[n, j] = log_density + log_weights[k]


@jit
def write_best_candidates(
    logits: Array, candidates: IndexArray, best_components: IndexArray, resp: Array, bound: Array,
    energy: Array,
) -> None:  # fmt: skip
    """Write the L best of each row's candidates and their responsibilities, (n, L) each [HS16].

    The best candidate, which has the largest logit, comes first. Of all q that assign a row to at
    most L of its candidates, q with the L largest logits has the highest bound. ``logits`` are
    (n, J), and ``candidates`` are (n, J), or (1, J) if all rows share them. ``bound`` and
    ``energy`` (n,) are defined in :func:`responsibilities`, for the temperature 1.
    """
    n_kept = best_components.shape[1]
    for n in range(logits.shape[0]):
        row, row_candidates = logits[n], candidates[n if candidates.shape[0] > 1 else 0]
        # Insert each candidate into the sorted list ``row_best`` of the best candidates. ``values``
        # are first their logits, and then their responsibilities.
        row_best, values = best_components[n], resp[n]
        for j in range(row.size):
            if j >= n_kept and row[j] <= values[n_kept - 1]:
                continue
            rank = min(j, n_kept - 1)
            while rank > 0 and values[rank - 1] < row[j]:
                values[rank], row_best[rank] = values[rank - 1], row_best[rank - 1]
                rank -= 1
            values[rank], row_best[rank] = row[j], row_candidates[j]
        largest_logit, total, weighted_distance = values[0], 0.0, 0.0
        for j in range(n_kept):
            distance = values[j] - largest_logit
            values[j] = exp(distance) if distance > -_MAX_CANDIDATE_DISTANCE else 0.0
            total += values[j]
            weighted_distance += values[j] * max(distance, -_MAX_CANDIDATE_DISTANCE)
        for j in range(n_kept):
            values[j] /= total
        bound[n] = largest_logit + log(total)
        energy[n] = largest_logit + weighted_distance / total


@jit
def add_candidate_statistics(
    features: Array, best_components: IndexArray, weighted_resp: Array, counts: Array, sums: Array
) -> None:
    """Add rows to the statistics ``counts`` (K,) and ``sums`` (K, P) of their best candidates.

    ``weighted_resp`` (n, L) are weighted responsibilities of the components ``best_components`` (n,
    L), and ``features`` are (n, P).
    """
    for n in range(features.shape[0]):
        for j in range(best_components.shape[1]):
            r = weighted_resp[n, j]
            if r > 0.0:
                row, component_sums = features[n], sums[best_components[n, j]]
                counts[best_components[n, j]] += r
                for p in range(features.shape[1]):
                    component_sums[p] += r * row[p]


@jit
def write_next_candidates(
    best_components: IndexArray, order: IndexArray, positions: IndexArray, last_tried: IndexArray,
    candidates: IndexArray,
) -> None:  # fmt: skip
    """Write each row's ``candidates`` (n, J) in its next local step, all different.

    The first candidates of a row are its ``best_components`` (n, L). The best components of the
    preceding row follow, in the order ``order`` (n,) of rows, in which rows with the same best
    component are neighbours. The last candidates, at least one, are the components after
    ``last_tried[n]``, so that each component is tried in some local step. The scratch array
    ``positions`` (K,) holds the positions of components in the present row of ``candidates``. All
    its entries are -1 before and after the call.
    """
    n_kept, n_candidates = best_components.shape[1], candidates.shape[1]
    n_components = positions.size
    for i in range(order.size):
        # The first row is preceded by the last row, because ``order[-1]`` is the last entry.
        n, preceding_row = order[i], order[i - 1]
        for j in range(n_kept):
            candidates[n, j] = best_components[n, j]
            positions[best_components[n, j]] = j
        n_written = n_kept
        for j in range(n_kept):
            k = best_components[preceding_row, j]
            if positions[k] < 0 and n_written < n_candidates - 1:
                candidates[n, n_written] = k
                positions[k] = n_written
                n_written += 1
        k = last_tried[n]
        while n_written < n_candidates:
            k = k + 1 if k + 1 < n_components else 0
            if positions[k] < 0:
                candidates[n, n_written] = k
                positions[k] = n_written
                n_written += 1
        for j in range(n_candidates):
            positions[candidates[n, j]] = -1


@jit_allocating
def add_assignment_entropies(
    resp: Array, components: IndexArray, weights: Array, with_pairs: bool, entropy: Array,
    merge_entropy_loss: Array,
) -> None:  # fmt: skip
    """Add the entropies of assignments and, if ``with_pairs``, those that merges lose, in nats.

    ``resp`` (n, J) are responsibilities of ``components`` (n, J), or (1, J) if all rows share them.
    With the row ``weights`` w (n,), ``-sum_n w r_k log r_k`` is added to ``entropy[k]``, (K,). A
    merge of the components a < b has the responsibility r_ab = r_a + r_b. Its loss

        sum_n w (r_ab log r_ab - r_a log r_a - r_b log r_b) >= 0

    is added to ``merge_entropy_loss[a, b]``, (K, K). The merged component has the entropy
    ``H_a + H_b - merge_entropy_loss[a, b]``, where H_k is ``entropy[k]`` [HS13 sec. 3.2]. Only the
    few rows that both components share contribute to a loss.
    """
    # A row's responsibilities r above MIN_RESPONSIBILITY, their r log r, and their components.
    shares = np.empty(resp.shape[1])
    terms = np.empty(resp.shape[1])
    members = np.empty(resp.shape[1], np.int64)
    for n in range(resp.shape[0]):
        w = weights[n]
        row_components = components[n if components.shape[0] > 1 else 0]
        n_members = 0
        for j in range(resp.shape[1]):
            r = np.float64(resp[n, j])
            if r > 0.0:
                term = r * log(r)
                entropy[row_components[j]] -= w * term
                if r > MIN_RESPONSIBILITY:
                    shares[n_members], terms[n_members] = r, term
                    members[n_members] = row_components[j]
                    n_members += 1
        if with_pairs and n_members > 1:
            for i in range(n_members):
                for j in range(i + 1, n_members):
                    r = shares[i] + shares[j]
                    loss = r * log(r) - terms[i] - terms[j]
                    a, b = members[i], members[j]
                    merge_entropy_loss[min(a, b), max(a, b)] += w * loss


@jit_inlined
def _compute_lost_entropy(a: float, term_a: float, b: float, term_b: float) -> float:
    """Return the entropy of a row that is lost if its responsibilities a and b are added, in nats.

    It is ``(a + b) log(a + b) - a log a - b log b``, and 0 if a or b is 0. ``term_a`` is a log a,
    and ``term_b`` is b log b.
    """
    union = a + b
    loss = union * log(union) - term_a - term_b
    return loss if a > 0.0 and b > 0.0 and loss > 0.0 else 0.0


@jit
def write_positive_responsibilities(
    resp: Array, weights: Array, min_resp: float, rtol: float, masses: Array, labels: IndexArray,
    second_labels: IndexArray, unsure_rows: IndexArray, ends: IndexArray, components: IndexArray,
    positive_resp: Array, roots: Array,
) -> int:  # fmt: skip
    """Write the positive responsibilities of unsure rows; return the number of these rows.

    ``resp`` is (n, K), and the rows have ``weights`` (n,). Responsibilities below ``min_resp``
    count as 0, and all other responsibilities of a row are divided by their sum. The quotients are
    called positive responsibilities. Unsure rows have two or more of them. The arguments from
    ``masses`` on are outputs.

    The weighted sums of positive responsibilities are added to ``masses`` (K,). ``labels`` (n,) are
    the most probable components, the first one if several are tied up to the relative tolerance
    ``rtol``. ``second_labels`` (n,) are the second most probable components, or -1.

    ``unsure_rows`` are the indices of the unsure rows. The positive responsibilities r of unsure
    row i are ``positive_resp[ends[i - 1]:ends[i]]``, or ``positive_resp[:ends[0]]`` if i is 0, and
    ``components`` has their components at the same indices. ``roots[i]`` (K,) are sqrt(w r), where
    w is the weight of the row.
    """
    # ``first_free`` is the first free position of ``positive_resp``.
    n_unsure, first_free = 0, 0
    for n in range(resp.shape[0]):
        # Collect the positive responsibilities, and find the two most probable components.
        threshold = np.float64(_compute_maximum(resp[n])) * (1.0 - rtol)
        labels[n], second_labels[n] = -1, -1
        total, end = 0.0, first_free
        for k in range(resp.shape[1]):
            r = np.float64(resp[n, k])
            roots[n_unsure, k] = 0.0
            if r >= min_resp:
                components[end], positive_resp[end] = k, r
                total += r
                end += 1
                if labels[n] < 0 and r >= threshold:
                    labels[n] = k
                elif second_labels[n] < 0 or r > np.float64(resp[n, second_labels[n]]):
                    second_labels[n] = k
        for i in range(first_free, end):
            positive_resp[i] /= total
            masses[components[i]] += weights[n] * positive_resp[i]
            roots[n_unsure, components[i]] = np.sqrt(weights[n] * positive_resp[i])
        # Keep the entries of an unsure row. The next row overwrites the entries of any other row.
        if end - first_free > 1:
            unsure_rows[n_unsure], ends[n_unsure] = n, end
            n_unsure += 1
            first_free = end
    return n_unsure


@jit
def loss_of_pair(
    rows_a: IndexArray, a: Array, terms_a: Array, rows_b: IndexArray, b: Array, terms_b: Array,
    weights: Array,
) -> float:  # fmt: skip
    """Return the entropy that is lost if two clusters are joined, in nats [Baudry10 sec. 3].

    The first cluster has positive responsibilities ``a`` for the rows with the ascending indices
    ``rows_a``. ``terms_a`` are ``a log a``. The other cluster has ``rows_b``, ``b`` and
    ``terms_b``. ``weights`` has the weights of all rows.
    """
    # Only rows of both clusters lose entropy. Find them in a pass over the two sorted lists.
    total, i, j = 0.0, 0, 0
    while i < rows_a.size and j < rows_b.size:
        n, m = rows_a[i], rows_b[j]
        if n == m:
            total += weights[n] * _compute_lost_entropy(a[i], terms_a[i], b[j], terms_b[j])
        if n <= m:
            i += 1
        if m <= n:
            j += 1
    return total


@jit_allocating
def add_losses_of_joins(
    starts: IndexArray, components: IndexArray, resp: Array, weights: Array, positions: IndexArray,
    next_join: IndexArray, min_resp: float, losses: Array, joins_of_rows: IndexArray,
) -> None:  # fmt: skip
    """Add the losses of entropy of the joins of a hierarchy to ``losses`` (K - 1,), in nats.

    Row n has the positive responsibilities ``resp[starts[n] : starts[n + 1]]`` for the components
    in the same entries of ``components``. The components are ordered so that those of each cluster
    follow each other: component k has the position ``positions[k]``. Join number ``next_join[p]``
    unites the clusters of the components at the positions p and p + 1. If both clusters of a join
    have at least the responsibility ``min_resp`` for row n, the number of the join is written to
    the next entry of ``joins_of_rows[n]``, (3,).

    The clusters of two components are united by the latest join between their positions. The loop
    goes through the components of a row by position, and keeps clusters of them on a stack. From
    the bottom to the top of the stack, the joins that unite neighbours have descending numbers.
    Before the next component is put on the stack, the upper two clusters are joined, as long as
    the join that unites them is earlier than the join of the next component with them.
    """
    K = positions.size
    # Responsibilities of a row by position. The loop over positions sets its entries back to 0.
    resp_at = np.zeros(K)
    # Responsibilities r of a row's components and unions, numbered as they occur, and r log r.
    sums, terms = np.empty((2, 2 * K))
    # For each cluster on the stack, its index in ``sums``, and the join with the cluster below it.
    stack, stack_joins = np.empty(K, np.int64), np.empty(K, np.int64)
    # For each union: its join, and the indices in ``sums`` of the union and of the joined clusters.
    unions = np.empty((K, 4), np.int64)
    for n in range(weights.size):
        lowest, highest = K, -1
        for i in range(starts[n], starts[n + 1]):
            position = positions[components[i]]
            resp_at[position] = resp[i]
            lowest, highest = min(lowest, position), max(highest, position)
        # ``top`` is the index of the top of the stack. ``join`` is the latest join between the
        # preceding component of the row and the present position.
        top, join = -1, -1
        n_sums, n_unions = 0, 0
        for p in range(lowest, highest + 1):
            r = resp_at[p]
            resp_at[p] = 0.0
            if r > 0.0:
                top += 1
                stack[top], stack_joins[top] = n_sums, join
                join = -1
                sums[n_sums] = r
                n_sums += 1
            # After the last position, join all clusters of the row: K is later than all joins.
            join = max(join, next_join[p]) if p < highest else K
            while top > 0 and stack_joins[top] < join:
                a, b = stack[top - 1], stack[top]
                unions[n_unions, 0], unions[n_unions, 1] = stack_joins[top], n_sums
                unions[n_unions, 2], unions[n_unions, 3] = a, b
                sums[n_sums] = sums[a] + sums[b]
                top -= 1
                stack[top] = n_sums
                n_sums += 1
                n_unions += 1
        for i in range(n_sums):
            terms[i] = sums[i] * log(sums[i])
        # Add the losses of the row's joins.
        n_found = 0
        for i in range(n_unions):
            join, union, a, b = unions[i, 0], unions[i, 1], unions[i, 2], unions[i, 3]
            losses[join] += weights[n] * max(terms[union] - terms[a] - terms[b], 0.0)
            if min(sums[a], sums[b]) >= min_resp:
                joins_of_rows[n, n_found] = join
                n_found += 1


class PairTables(NamedTuple):
    """Losses and priorities of pairs of clusters; the matrices (K, K) are symmetric."""

    # Losses of entropy in nats per row if the pair is joined, or upper bounds of these losses.
    entropy_bounds: Array
    # Whether the entry of ``entropy_bounds`` is the loss itself.
    is_exact: Array
    # Numbers by which the losses of entropy are divided.
    largest_losses: Array
    # Losses of something else than entropy, such as evidence, in nats per row.
    losses: Array
    # Priorities, see `_compute_priority`; -inf for pairs that cannot be joined. The pair with the
    # largest priority is joined next.
    priorities: Array
    # (K,): maxima of the rows of ``priorities``.
    row_maxima: Array
    # Weighted responsibilities r of the clusters, summed over groups of rows, and r log r, (K,
    # n_groups) each.
    group_sums: Array
    group_terms: Array


@jit_inlined
def _bound_loss_by_groups(a: int, b: int, tables: PairTables) -> float:
    """Return an upper bound of the loss of entropy by a join of clusters a and b, in nats per row.

    The bound is computed from sums of responsibilities over groups of rows.
    """
    sums, terms = tables.group_sums, tables.group_terms
    total = 0.0
    for g in range(sums.shape[1]):
        total += _compute_lost_entropy(sums[a, g], terms[a, g], sums[b, g], terms[b, g])
    return total * ROUNDING_FACTOR


@jit_inlined
def _compute_priority(sign: float, entropy_bound: float, largest_loss: float, loss: float) -> float:
    """Return the priority of a pair of clusters; the pair of the highest priority is joined first.

    ``entropy_bound`` is the loss of entropy or an upper bound of it, and ``largest_loss`` is the
    number by which it is divided, such as the largest possible loss of entropy. The quotient s is
    the share of the entropy that is lost. With the sign 1, the priority is s. With the sign -1, the
    priority is ``-loss * (1 - s) ** 4``, where ``loss`` is a loss of something else than entropy.
    """
    if sign > 0.0:
        return entropy_bound / largest_loss
    factor = max(1.0 - entropy_bound / largest_loss, 0.0)
    return -loss * (factor * factor) * (factor * factor)


@jit_inlined
def _compute_maximum(row: Array) -> float:
    """Return the maximum of a row.

    Four maxima of every fourth entry are computed side by side, which is faster than one maximum.
    """
    first = second = third = fourth = row[0]
    for j in range(0, row.size - 3, 4):
        first, second = max(first, row[j]), max(second, row[j + 1])
        third, fourth = max(third, row[j + 2]), max(fourth, row[j + 3])
    for j in range(row.size - row.size % 4, row.size):
        first = max(first, row[j])
    return max(max(first, second), max(third, fourth))


@jit
def set_exact_loss(a: int, b: int, loss: float, sign: float, tables: PairTables) -> None:
    """Set the exact loss of entropy of a pair; update the pair's priority and the row maxima."""
    tables.entropy_bounds[a, b] = tables.entropy_bounds[b, a] = loss
    tables.is_exact[a, b] = tables.is_exact[b, a] = True
    priorities, row_maxima = tables.priorities, tables.row_maxima
    old_priority = priorities[a, b]
    priority = _compute_priority(sign, loss, tables.largest_losses[a, b], tables.losses[a, b])
    priorities[a, b] = priorities[b, a] = priority
    # Compute the maximum of a row again if the old priority was the maximum.
    for k in (a, b):
        if old_priority >= row_maxima[k]:
            row_maxima[k] = _compute_maximum(priorities[k])
        else:
            row_maxima[k] = max(row_maxima[k], priority)


@jit
def find_next_pair(rtol: float, tables: PairTables) -> tuple[int, int, bool]:
    """Return ``(a, b, True)`` if a < b have the largest priority and their loss is exact.

    Otherwise return ``(a, b, False)`` for a pair that may have the largest priority, so that the
    caller computes its exact loss and calls again.

    Priorities are tied if they differ by less than the relative tolerance ``rtol``. The first of
    tied pairs is returned, after the losses of all pairs that may be tied have been made exact.
    """
    priorities, row_maxima = tables.priorities, tables.row_maxima
    largest_priority = _compute_maximum(row_maxima)
    tolerance = rtol * max(1.0, abs(largest_priority))
    # Find the pair of largest priority among the near pairs whose loss is not exact. Near pairs are
    # those that the second part of this function may choose: the maximum of their row is at most
    # one tolerance below the largest priority, and their priority one tolerance below this maximum.
    first, second, highest_priority = -1, -1, -np.inf
    for a in range(row_maxima.size):
        if row_maxima[a] >= largest_priority - 2.0 * tolerance:
            for b in range(a + 1, row_maxima.size):
                priority = priorities[a, b]
                is_near = priority >= largest_priority - 2.0 * tolerance
                if is_near and priority > highest_priority and not tables.is_exact[a, b]:
                    first, second, highest_priority = a, b, priority
    if first >= 0:
        return first, second, False
    # All near pairs are exact. Choose the first row whose maximum is tied with the largest
    # priority, and in it the first pair that is tied with the maximum of the row.
    first = 0
    while row_maxima[first] < largest_priority - tolerance:
        first += 1
    # ``row[i]`` is the priority of the pair (first, first + 1 + i).
    row = priorities[first, first + 1 :]
    row_maximum = _compute_maximum(row)
    second = 0
    while row[second] < row_maximum - rtol * max(1.0, abs(row_maximum)):
        second += 1
    return first, first + 1 + second, True


@jit
def set_priorities(a: int, partners: Array, sign: float, tables: PairTables) -> None:
    """Compute the priorities of cluster a and its partners, and update the row maxima.

    ``partners`` (K,) is a mask of the clusters that can be joined with a.
    """
    entropy_bounds, row_maxima = tables.entropy_bounds, tables.row_maxima
    threshold = _compute_maximum(row_maxima)
    for k in range(row_maxima.size):
        if partners[k]:
            bound = entropy_bounds[a, k]
            divisor = tables.largest_losses[a, k]
            loss = tables.losses[a, k]
            priority = _compute_priority(sign, bound, divisor, loss)
            # If the pair would have the largest priority of all, compute a closer upper bound of
            # its loss of entropy, which can lower the priority.
            if priority >= threshold and not tables.is_exact[a, k]:
                bound = min(bound, _bound_loss_by_groups(a, k, tables))
                entropy_bounds[a, k] = entropy_bounds[k, a] = bound
                priority = _compute_priority(sign, bound, divisor, loss)
            tables.priorities[a, k] = tables.priorities[k, a] = priority
            row_maxima[k] = max(row_maxima[k], priority)
            row_maxima[a] = max(row_maxima[a], priority)


@jit
def bound_losses_of_union(a: int, b: int, tables: PairTables) -> None:
    """Remove the priorities of a and b, and bound the losses of entropy of joins with their union.

    The union has the index a from now on.
    """
    priorities, row_maxima = tables.priorities, tables.row_maxima
    entropy_bounds, is_exact = tables.entropy_bounds, tables.is_exact
    for k in range(row_maxima.size):
        old_priority = max(priorities[a, k], priorities[b, k])
        priorities[a, k] = priorities[k, a] = priorities[b, k] = priorities[k, b] = -np.inf
        # If one of the removed priorities was the maximum of row k, compute the maximum again.
        if old_priority >= row_maxima[k] and old_priority > -np.inf:
            row_maxima[k] = _compute_maximum(priorities[k])
        # The loss of a join with the union is at most the sum of the losses of joins with its two
        # clusters. A bound of 0 is exact, because no loss is negative.
        entropy_bounds[a, k] += entropy_bounds[b, k]
        entropy_bounds[k, a] = entropy_bounds[a, k]
        is_exact[a, k] = is_exact[k, a] = entropy_bounds[a, k] == 0.0
    row_maxima[a] = row_maxima[b] = -np.inf
