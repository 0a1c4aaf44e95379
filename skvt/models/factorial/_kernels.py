"""Compiled loops of the local step of the factorial mixture.

They optimise q(z) of each row, which has one factor q_k for each component k: the probability that
the component is active, also called activation [VT16 app. C].
"""

from typing import Any

import numpy as np

from skvt._compiled import exp, jit_allocating, jit_inlined, lit, log
from skvt.typing import Array

# Number of rows of a block. The inner loops run over the rows of a block, so that the compiler can
# use vector instructions. Each row of a block has a lane.
ROWS_PER_BLOCK = 64
# Number of factors subtracted at a time; factors are padded by zeros to a multiple of it.
_UNROLLED = 4
# Largest absolute log odds of an activation, so that no product of two activations is denormal.
_MAX_LOG_ODDS = 30.0
# Smallest argument of a logarithm, so that 0 log 0 is 0.
_TINY = 1e-30


@jit_allocating
def sweep_factors(
    linear: Array, gram: Array, logit: Array, precision: Any, inv_temps: Array, ladder: Array,
    max_sweeps: int, tol: Any, q: Array, energy: Array, entropy: Array,
) -> None:  # fmt: skip
    """Optimise the activations of each row by coordinate ascent, in place.

    A sweep updates the activations of all components in turn. The update is [VT16 app. C]

        q_k = sigmoid(b (logit_k + precision (linear_k - G_kk / 2 - sum_{j != k} G_kj q_j))).

    The first ``ladder.size`` sweeps are tempered further: b is ``ladder[i]`` times the inverse
    temperature of the row in sweep i, and the inverse temperature itself in later sweeps. At most
    ``max_sweeps`` sweeps follow the ladder. The activations of a row stay as they are once none of
    them has changed by ``tol`` or more in a sweep after the ladder.

    Parameters
    ----------
    linear : (n, K) ``E[mu_k] . x`` of each row x
    gram : (1, K, K) or (n, K, K) ``G_kj = E[mu_k . mu_j]``, a sum over the columns that are
        observed in the row
    logit : (K,) ``log(pi / (1 - pi))`` for the prior probabilities pi of activations
    precision : 1 / s for the noise variance s
    inv_temps : (n,) or (1,) inverse temperatures of the rows
    q : (n, K) initial activations, overwritten by the final activations
    energy : (n,) float64, the part of the energy in nats that depends on the activations, written
    entropy : (n,) float64, entropy of the activations in nats, written
    """
    n_rows, K = q.shape
    n_padded = -(-K // _UNROLLED) * _UNROLLED
    zero, one, half = lit(precision, 0.0), lit(precision, 1.0), lit(precision, 0.5)
    largest_log_odds, tiny = lit(precision, _MAX_LOG_ODDS), lit(precision, _TINY)
    is_shared = gram.shape[0] == 1
    shared_gram = np.zeros((K, n_padded), q.dtype)
    # The activations q of the rows of a block, transposed: (k, lane).
    v = np.zeros((n_padded, ROWS_PER_BLOCK), q.dtype)
    # ``field_alone`` holds linear_k - G_kk / 2 for all k. ``field`` holds linear_k - G_kk / 2 -
    # sum_{j != k} G_kj v_j for the component k that is being updated.
    field_alone = np.empty((K, ROWS_PER_BLOCK), q.dtype)
    field = np.empty(ROWS_PER_BLOCK, q.dtype)
    inv_temp = np.empty(ROWS_PER_BLOCK, q.dtype)
    # ``change`` is the largest change of each row's activations in the present sweep, and
    # ``last_change`` in the previous sweep. It is inf until a sweep after the ladder has ended.
    change = np.empty(ROWS_PER_BLOCK, q.dtype)
    last_change = np.empty(ROWS_PER_BLOCK, q.dtype)
    # Energy and entropy of each row.
    sums = np.empty((2, ROWS_PER_BLOCK))
    if is_shared:
        for k in range(K):
            for j in range(K):
                shared_gram[k, j] = gram[0, k, j]
    for start in range(0, n_rows, ROWS_PER_BLOCK):
        # Load a block of rows. If it has fewer rows than lanes, the last lanes repeat its last row.
        n_used = min(ROWS_PER_BLOCK, n_rows - start)
        for lane in range(ROWS_PER_BLOCK):
            row = start + min(lane, n_used - 1)
            inv_temp[lane] = inv_temps[row] if inv_temps.size > 1 else inv_temps[0]
            last_change[lane] = np.inf
            for k in range(K):
                v[k, lane] = q[row, k]
                field_alone[k, lane] = linear[row, k] - half * gram[0 if is_shared else row, k, k]
        # Row i of the block has ``row_grams[i]``, which is not used if all rows share one matrix.
        row_grams = gram[0 if is_shared else start :]
        # Update all factors in turn, in each sweep.
        for sweep in range(ladder.size + max_sweeps):
            factor = ladder[sweep] if sweep < ladder.size else one
            change[:] = zero
            for k in range(K):
                _write_field(k, field_alone, shared_gram, row_grams, n_used, is_shared, v, field)
                for lane in range(ROWS_PER_BLOCK):
                    log_odds = factor * inv_temp[lane] * (logit[k] + precision * field[lane])
                    log_odds = min(max(log_odds, -largest_log_odds), largest_log_odds)
                    new = one / (one + exp(-log_odds))
                    # Keep the activations of a row that has converged.
                    new = new if last_change[lane] >= tol else v[k, lane]
                    change[lane] = max(change[lane], abs(new - v[k, lane]))
                    v[k, lane] = new
            # After the ladder, end once all rows of the block have converged.
            if sweep >= ladder.size:
                largest = zero
                for lane in range(ROWS_PER_BLOCK):
                    last_change[lane] = change[lane]
                    largest = max(largest, change[lane])
                if largest < tol:
                    break
        # Compute the energies and entropies, and write the results of the block.
        sums[:] = 0.0
        for k in range(K):
            _write_field(k, field_alone, shared_gram, row_grams, n_used, is_shared, v, field)
            for lane in range(ROWS_PER_BLOCK):
                on = v[k, lane]
                off = one - on
                # Each pair of factors is counted twice, which ``half`` corrects.
                mean_field = half * (field_alone[k, lane] + field[lane])
                sums[0, lane] += on * (logit[k] + precision * mean_field)
                sums[1, lane] -= on * log(max(on, tiny)) + off * log(max(off, tiny))
        for lane in range(n_used):
            energy[start + lane], entropy[start + lane] = sums[0, lane], sums[1, lane]
            for k in range(K):
                q[start + lane, k] = v[k, lane]


@jit_inlined
def _write_field(
    k: int, field_alone: Array, shared_gram: Array, row_grams: Array, n_used: int, is_shared: bool,
    v: Array, field: Array,
) -> None:  # fmt: skip
    """Write ``linear_k - G_kk / 2 - sum_{j != k} G_kj v_j`` of each lane to ``field``.

    ``field_alone[k]`` are the first two terms. The sum runs over all j, and the term of k itself is
    added back. G is ``shared_gram`` if ``is_shared``, and otherwise ``row_grams[lane]``.
    """
    K = field_alone.shape[0]
    if is_shared:
        for lane in range(ROWS_PER_BLOCK):
            field[lane] = field_alone[k, lane] + shared_gram[k, k] * v[k, lane]
        for j in range(0, v.shape[0], _UNROLLED):
            g0, g1 = shared_gram[k, j], shared_gram[k, j + 1]
            g2, g3 = shared_gram[k, j + 2], shared_gram[k, j + 3]
            v0, v1, v2, v3 = v[j], v[j + 1], v[j + 2], v[j + 3]
            for lane in range(ROWS_PER_BLOCK):
                field[lane] -= g0 * v0[lane] + g1 * v1[lane] + g2 * v2[lane] + g3 * v3[lane]
    else:
        for lane in range(ROWS_PER_BLOCK):
            g = row_grams[min(lane, n_used - 1), k]
            total = field_alone[k, lane] + g[k] * v[k, lane]
            for j in range(K):
                total -= g[j] * v[j, lane]
            field[lane] = total


@jit_allocating
def row_squares(X: Array) -> Array:
    """Return ``sum_d x_nd^2`` of each row of X (n, D), shape (n,), float64."""
    squares = np.zeros(X.shape[0])
    for n in range(X.shape[0]):
        for d in range(X.shape[1]):
            x = np.float64(X[n, d])
            squares[n] += x * x
    return squares
