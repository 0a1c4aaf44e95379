"""Compiled loops of mixtures: features, responsibilities, entropies of pairs."""

import numpy as np

from skvt.compiled import exp, jit, jit_allocating, lit, log
from skvt.typing import Array

# Weights relative to a row's largest below exp(-60) are zero: far below rounding, and far above the
# denormal numbers that would slow the matrix products down.
_FARTHEST = 60.0
# Smaller responsibilities do not enter the entropies of pairs (an error below 1e-12 nats a row).
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
    """``[1, x, upper triangle of x x']`` of each row, without x unless ``linear``.

    NaN count as 0; of a row of nothing else, all features are 0. In memory column by column: loops
    over rows are long ones.
    """
    n_rows, n_features = X.shape
    width = 1 + n_features * linear + n_features * (n_features + 1) // 2
    out = np.empty((width, n_rows), X.dtype)
    _outer(np.array(X.T, order="C"), linear, out)
    return out.T


@jit
def indicators(codes: Array, ends: Array, out: Array) -> None:
    """``out[n, ends[d - 1] + codes[n, d]] = 1``, of zeros (n, sum_d C_d).

    Values that are not codes of their column, such as NaN, have no indicator.
    """
    for n in range(codes.shape[0]):
        start = 0
        for d in range(codes.shape[1]):
            code = codes[n, d]
            if code >= 0.0 and code < ends[d] - start:
                out[n, start + int(code)] = 1.0
            start = ends[d]


@jit
def responsibilities(logits: Array, inv_temps: Array, bound: Array, energy: Array) -> None:
    """Softmax of ``inv_temp * logits`` in place, row by row [HS13 eq. 9].

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


@jit_allocating
def assignment_entropy(
    resp: Array, weights: Array, pairs: bool, entropy: Array, merge_entropy_loss: Array
) -> None:
    """Entropy of the assignments, by component and (if ``pairs``) of pairs taken together.

    ``entropy[k] += -sum_n w r_k log r_k`` and, for a < b, with r_ab = r_a + r_b,

        merge_entropy_loss[a, b] += sum_n w (r_ab log r_ab - r_a log r_a - r_b log r_b) >= 0,

    so that the component merged from both has the entropy ``H_a + H_b - merge_entropy_loss[a, b]``
    [HS13 sec. 3.2]. Only rows that both share count, and of those there are few.
    """
    n_components = resp.shape[1]
    shares = np.empty(n_components)
    terms = np.empty(n_components)
    members = np.empty(n_components, np.int64)
    for n in range(resp.shape[0]):
        w = weights[n]
        n_members = 0
        for k in range(n_components):
            r = np.float64(resp[n, k])
            if r > 0.0:
                term = r * log(r)
                entropy[k] -= w * term
                if r > SMALLEST_SHARE:
                    shares[n_members], terms[n_members] = r, term
                    members[n_members] = k
                    n_members += 1
        if pairs and n_members > 1:
            for i in range(n_members):
                for j in range(i + 1, n_members):
                    r = shares[i] + shares[j]
                    gain = r * log(r) - terms[i] - terms[j]
                    merge_entropy_loss[members[i], members[j]] += w * gain
