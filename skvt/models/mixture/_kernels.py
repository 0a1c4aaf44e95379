"""Compiled loops of mixtures: features, responsibilities, candidates, entropies of pairs."""

import numpy as np

from skvt.compiled import exp, jit, jit_allocating, lit, log, part
from skvt.typing import Array, IndexArray

# Responsibilities below exp(-60) times the row's largest are zero. This is far below rounding
# and far above the denormal numbers that would slow matrix products down.
_FARTHEST = 60.0
# Among candidates, the same limit is exp(-40); what is left out of q is below rounding.
_FARTHEST_CANDIDATE = 40.0
# Smaller responsibilities are left out of entropies of pairs: less than 1e-12 nats a row.
SMALLEST_SHARE = 1e-14


@jit
def _outer(columns: Array, linear: bool, out: Array) -> None:
    n_features, n_rows = columns.shape
    complete = True
    for i in range(n_features):
        for n in range(n_rows):
            complete &= columns[i, n] == columns[i, n]
    out[0] = 1.0 if complete else 0.0
    if not complete:
        for i in range(n_features):
            for n in range(n_rows):
                value = columns[i, n]
                seen = value == value
                columns[i, n] = value if seen else lit(value, 0.0)
                out[0, n] = lit(value, 1.0) if seen else out[0, n]
    position = 1
    if linear:
        for i in range(n_features):
            for n in range(n_rows):
                out[position, n] = columns[i, n]
            position += 1
    for i in range(n_features):
        for j in range(i, n_features):
            for n in range(n_rows):
                out[position, n] = columns[i, n] * columns[j, n]
            position += 1


def outer_features(X: Array, *, linear: bool) -> Array:
    """Return ``[1, x, upper triangle of x x']`` of each row, with x only if ``linear``.

    NaN count as 0, and all features of a row of NaN are 0. The result is in Fortran order, so that
    the inner loops run over the rows.
    """
    n_rows, n_features = X.shape
    width = 1 + n_features * linear + n_features * (n_features + 1) // 2
    out = np.empty((width, n_rows), X.dtype)
    _outer(np.array(X.T, order="C"), linear, out)
    return out.T


@jit
def indicators(codes: Array, ends: Array, out: Array) -> None:
    """Set ``out[n, ends[d - 1] + codes[n, d]] = 1`` wherever ``codes[n, d]`` is in [0, C_d)."""
    for n in range(codes.shape[0]):
        start = 0
        for d in range(codes.shape[1]):
            code = codes[n, d]
            if code >= 0.0 and code < ends[d] - start:
                out[n, start + int(code)] = 1.0
            start = ends[d]


@jit
def responsibilities(logits: Array, inv_temps: Array, bound: Array, energy: Array) -> None:
    """Replace ``logits`` by the softmax of ``inv_temp * logits`` in each row [HS13 eq. 9].

    ``inv_temps`` (n,) or (1,). Writes each row's ``bound = inv_temp * energy + entropy`` and
    ``energy = sum_k r_k logit_k``.
    """
    n_components = logits.shape[1]
    for n in range(logits.shape[0]):
        row = logits[n]
        inv_temp = inv_temps[n] if inv_temps.size > 1 else inv_temps[0]
        largest = row[0]
        for k in range(1, n_components):
            largest = max(largest, row[k])
        total, weighted = lit(largest, 0.0), lit(largest, 0.0)
        for k in range(n_components):
            distance = row[k] - largest
            scaled = inv_temp * distance
            r = exp(max(scaled, -lit(largest, _FARTHEST)))
            r = r if scaled > -lit(largest, _FARTHEST) else lit(largest, 0.0)
            total += r
            weighted += r * distance
            row[k] = r
        inverse = lit(largest, 1.0) / total
        for k in range(n_components):
            row[k] *= inverse
        bound[n] = np.float64(inv_temp) * np.float64(largest) + np.float64(log(total))
        energy[n] = np.float64(largest) + np.float64(weighted * inverse)


@jit
def candidate_logits(
    features: Array, table: Array, log_weights: Array, candidates: IndexArray, logits: Array
) -> None:
    """Write ``logits[n, j] = E[log w_k] + <F(x_n), T_k>`` for ``k = candidates[n, j]``."""
    for n in range(features.shape[0]):
        row = features[n]
        for j in range(candidates.shape[1]):
            k = candidates[n, j]
            weights, total = table[k], lit(log_weights[k], 0.0)
            for p in range(features.shape[1]):
                total += row[p] * weights[p]
            logits[n, j] = total + log_weights[k]


@jit
def best_of_candidates(
    logits: Array, candidates: IndexArray, best: IndexArray, resp: Array, bound: Array,
    energy: Array,
) -> None:  # fmt: skip
    """Write the ``best`` of each row's candidates, in order, and their responsibilities [HS16].

    This q has the highest bound of all q on as many of the candidates. ``candidates`` are (n, J),
    or (1, J) if all rows share them. Bound and energy are defined as in `responsibilities`.
    """
    n_kept = best.shape[1]
    for n in range(logits.shape[0]):
        row, compared = logits[n], candidates[n if candidates.shape[0] > 1 else 0]
        chosen, values = best[n], resp[n]
        for j in range(row.size):
            if j >= n_kept and row[j] <= values[n_kept - 1]:
                continue
            rank = min(j, n_kept - 1)
            while rank > 0 and values[rank - 1] < row[j]:
                values[rank], chosen[rank] = values[rank - 1], chosen[rank - 1]
                rank -= 1
            values[rank], chosen[rank] = row[j], compared[j]
        largest, total, weighted = values[0], 0.0, 0.0
        for j in range(n_kept):
            distance = values[j] - largest
            values[j] = exp(distance) if distance > -_FARTHEST_CANDIDATE else 0.0
            total += values[j]
            weighted += values[j] * max(distance, -_FARTHEST_CANDIDATE)
        for j in range(n_kept):
            values[j] /= total
        bound[n] = largest + log(total)
        energy[n] = largest + weighted / total


@jit
def add_candidate_statistics(
    features: Array, best: IndexArray, weighted: Array, counts: Array, sums: Array
) -> None:
    """Add weighted responsibilities to ``counts`` (K,), and features times these to ``sums``."""
    for n in range(features.shape[0]):
        for j in range(best.shape[1]):
            r = weighted[n, j]
            if r > 0.0:
                row, component_sums = features[n], sums[best[n, j]]
                counts[best[n, j]] += r
                for p in range(features.shape[1]):
                    component_sums[p] += r * row[p]


@jit
def next_candidates(
    best: IndexArray, order: IndexArray, places: IndexArray, before: IndexArray, out: IndexArray
) -> None:
    """Write the candidates of each row's next visit, ``out`` (n, J), all different.

    A row's candidates are its ``best`` components, then those of the preceding row in ``order``, in
    which rows with the same best component follow each other. At least one more candidate follows:
    the components after ``before[n]`` in turn, so that each component is tried. ``places`` (K,)
    must be -1 throughout, and is so again afterwards.
    """
    n_kept, n_candidates, n_components = best.shape[1], out.shape[1], places.size
    for i in range(order.size):
        n, other = order[i], order[i - 1]
        for j in range(n_kept):
            out[n, j] = best[n, j]
            places[best[n, j]] = j
        end = n_kept
        for j in range(n_kept):
            k = best[other, j]
            if places[k] < 0 and end < n_candidates - 1:
                out[n, end] = k
                places[k] = end
                end += 1
        k = before[n]
        while end < n_candidates:
            k = k + 1 if k + 1 < n_components else 0
            if places[k] < 0:
                out[n, end] = k
                places[k] = end
                end += 1
        for j in range(n_candidates):
            places[out[n, j]] = -1


@jit_allocating
def assignment_entropy(
    resp: Array, components: IndexArray, weights: Array, pairs: bool, entropy: Array,
    merge_entropy_loss: Array,
) -> None:  # fmt: skip
    """Add the entropies of assignments by component and, if ``pairs``, what merges lose of them.

    ``resp`` (n, J) are responsibilities of ``components`` (n, J), or (1, J) if all rows share them.

    ``entropy[k] += -sum_n w r_k log r_k`` and, for a < b, with r_ab = r_a + r_b,

        merge_entropy_loss[a, b] += sum_n w (r_ab log r_ab - r_a log r_a - r_b log r_b) >= 0,

    so that the component merged from both has the entropy ``H_a + H_b - merge_entropy_loss[a, b]``
    [HS13 sec. 3.2]. Only rows that both components share contribute, and these are few.
    """
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
                if r > SMALLEST_SHARE:
                    shares[n_members], terms[n_members] = r, term
                    members[n_members] = row_components[j]
                    n_members += 1
        if pairs and n_members > 1:
            for i in range(n_members):
                for j in range(i + 1, n_members):
                    r = shares[i] + shares[j]
                    gain = r * log(r) - terms[i] - terms[j]
                    a, b = members[i], members[j]
                    merge_entropy_loss[min(a, b), max(a, b)] += w * gain


@part
def _loss(a: float, term_a: float, b: float, term_b: float) -> float:
    """Entropy ``(a + b) log(a + b) - a log a - b log b`` that a row loses; 0 if a or b is 0."""
    both = a + b
    loss = both * log(both) - term_a - term_b
    return loss if a > 0.0 and b > 0.0 and loss > 0.0 else 0.0


@jit
def loss_of_pair(a: Array, terms_a: Array, b: Array, terms_b: Array, weights: Array) -> float:
    """Entropy that is lost if two clusters are joined, in nats [Baudry10 sec. 3].

    Responsibilities a and b (n,), terms ``a log a`` and ``b log b``, weights of the rows (n,).
    """
    total = 0.0
    for n in range(a.size):
        total += weights[n] * _loss(a[n], terms_a[n], b[n], terms_b[n])
    return total


@jit
def loss_of_pair_in_rows(
    a: Array, terms_a: Array, b: Array, terms_b: Array, weights: Array, rows: IndexArray
) -> float:
    """:func:`loss_of_pair` where the responsibilities b, like ``rows``, are those of rows only."""
    total = 0.0
    for i in range(rows.size):
        n = rows[i]
        total += weights[n] * _loss(a[n], terms_a[n], b[i], terms_b[i])
    return total


@jit
def bounds_of_pairs(a: int, others: IndexArray, resp: Array, terms: Array, out: Array) -> None:
    """:func:`loss_of_pair` of a and each of the others, with the rows of ``resp`` and ``terms``."""
    for i in range(others.size):
        b, total = others[i], 0.0
        for n in range(resp.shape[1]):
            total += _loss(resp[a, n], terms[a, n], resp[b, n], terms[b, n])
        out[i] = total
