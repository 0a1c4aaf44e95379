"""Compiled loops of the factorial mixture: sweeps over the factors of each row."""

from typing import Any

import numpy as np

from skvt.compiled import exp, jit_allocating, lit, log, part
from skvt.typing import Array

# Number of rows that one vector operation handles together.
LANES = 64
# Number of factors subtracted at a time; factors are padded by zeros to a multiple of it.
_UNROLLED = 4
# Largest absolute log odds of an activation, so that no product of two of them is denormal.
_FARTHEST = 30.0
_TINY = 1e-30


@jit_allocating
def sweep_factors(
    linear: Array, gram: Array, logit: Array, precision: Any, inv_temps: Array, ladder: Array,
    most: int, tol: Any, q: Array, energy: Array, entropy: Array,
) -> int:  # fmt: skip
    """Optimise the activations of each row by coordinate ascent, in place.

    With b the inverse temperature of the row, times ``ladder[i]`` in sweep i, the update is

        q_k = sigmoid(b (logit_k + precision (linear_k - G_kk / 2 - sum_{j != k} G_kj q_j))).

    [VT16 app. C]. After the ladder there are at most ``most`` sweeps; a row ends once its largest
    change is less than ``tol``. Returns the number of sweeps, summed over rows.

    ``linear`` (n, K) is ``E[mu_k] . x``; ``gram`` (1, K, K) or (n, K, K) is ``G = E[mu mu']``
    summed over the row's observed columns; ``logit`` (K,) is ``log(pi / (1 - pi))``; ``precision``
    is that of the noise; ``inv_temps`` are (n,) or (1,). ``q`` (n, K) are the initial activations,
    overwritten by the final ones. The part of the ``energy`` (n,) that depends on the activations,
    and their ``entropy`` (n,), in nats, float64, are written.
    """
    n_rows, K = q.shape
    padded = -(-K // _UNROLLED) * _UNROLLED
    zero, one, half = lit(precision, 0.0), lit(precision, 1.0), lit(precision, 0.5)
    farthest, tiny = lit(precision, _FARTHEST), lit(precision, _TINY)
    shared = gram.shape[0] == 1
    G = np.zeros((K, padded), q.dtype)
    v = np.zeros((padded, LANES), q.dtype)
    field = np.empty((K, LANES), q.dtype)
    total = np.empty(LANES, q.dtype)
    inv_temp = np.empty(LANES, q.dtype)
    change = np.empty(LANES, q.dtype)
    last = np.empty(LANES, q.dtype)
    sums = np.empty((2, LANES))
    n_sweeps = 0
    if shared:
        for k in range(K):
            for j in range(K):
                G[k, j] = gram[0, k, j]
    for start in range(0, n_rows, LANES):
        n = min(LANES, n_rows - start)
        for r in range(LANES):
            row = start + min(r, n - 1)  # surplus lanes repeat the last row
            inv_temp[r] = inv_temps[row] if inv_temps.size > 1 else inv_temps[0]
            last[r] = np.inf
            for k in range(K):
                v[k, r] = q[row, k]
                field[k, r] = linear[row, k] - half * gram[0 if shared else row, k, k]
        grams = gram[0 if shared else start :]
        for sweep in range(ladder.size + most):
            factor = ladder[sweep] if sweep < ladder.size else one
            n_sweeps += n
            change[:] = zero
            for k in range(K):
                _without(k, field, G, grams, n, shared, v, total)
                for r in range(LANES):
                    a = factor * inv_temp[r] * (logit[k] + precision * total[r])
                    new = one / (one + exp(-min(max(a, -farthest), farthest)))
                    new = new if last[r] >= tol else v[k, r]  # a converged row does not change
                    change[r] = max(change[r], abs(new - v[k, r]))
                    v[k, r] = new
            if sweep >= ladder.size:
                largest = zero
                for r in range(LANES):
                    last[r] = change[r]
                    largest = max(largest, change[r])
                if largest < tol:
                    break
        sums[:] = 0.0
        for k in range(K):
            _without(k, field, G, grams, n, shared, v, total)
            for r in range(LANES):
                on, off = v[k, r], one - v[k, r]
                # each pair of factors is counted twice
                sums[0, r] += on * (logit[k] + precision * half * (field[k, r] + total[r]))
                sums[1, r] -= on * log(max(on, tiny)) + off * log(max(off, tiny))
        for r in range(n):
            energy[start + r], entropy[start + r] = sums[0, r], sums[1, r]
            for k in range(K):
                q[start + r, k] = v[k, r]
    return n_sweeps


@part
def _without(
    k: int, field: Array, G: Array, own: Array, n: int, shared: bool, v: Array, total: Array
) -> None:
    """Write field_k - sum_{j != k} G_kj v_j of each lane; G is ``own[r]`` unless ``shared``."""
    K = field.shape[0]
    if shared:
        for r in range(LANES):
            total[r] = field[k, r] + G[k, k] * v[k, r]
        for j in range(0, v.shape[0], _UNROLLED):
            g0, g1, g2, g3 = G[k, j], G[k, j + 1], G[k, j + 2], G[k, j + 3]
            v0, v1, v2, v3 = v[j], v[j + 1], v[j + 2], v[j + 3]
            for r in range(LANES):
                total[r] -= g0 * v0[r] + g1 * v1[r] + g2 * v2[r] + g3 * v3[r]
    else:
        for r in range(LANES):
            g = own[min(r, n - 1), k]
            t = field[k, r] + g[k] * v[k, r]
            for j in range(K):
                t -= g[j] * v[j, r]
            total[r] = t


@jit_allocating
def row_squares(X: Array) -> Array:
    """Return ``sum_d x_nd^2`` of each row, shape (n,), float64."""
    out = np.zeros(X.shape[0])
    for n in range(X.shape[0]):
        for d in range(X.shape[1]):
            x = np.float64(X[n, d])
            out[n] += x * x
    return out
