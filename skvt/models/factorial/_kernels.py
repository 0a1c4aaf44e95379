"""Compiled loops of the local step of the factorial mixture.

A row x (D,) is the sum of the vectors mu_k (D,) of its active components, plus noise. The entry z_k
is 1 if component k is active in the row, and 0 otherwise. The loops optimise q(z) of each row. It
has one factor for each of the K components, with the parameter ``q_k = q(z_k = 1)``, which is
called the activation of the component [VT16 app. C].
"""

from typing import Any

import numpy as np

from skvt._compiled import exp, jit_allocating, jit_inlined, lit, log
from skvt.typing import Array

# Number of rows of a block. The inner loops run over the rows of a block, so that the compiler can
# use vector instructions. The position of a row in its block is called its lane.
ROWS_PER_BLOCK = 64
# Number of components whose terms a pass over the lanes subtracts, because fewer passes are faster.
# Activations, and rows of the matrix G of :func:`sweep_factors`, are padded by zeros to a multiple
# of this number.
_COMPONENTS_PER_PASS = 4
# Largest absolute log odds of an activation. Without this limit, products of two activations could
# be denormal numbers, with which arithmetic is slow.
_MAX_LOG_ODDS = 30.0
# Smallest argument of a logarithm, so that 0 log 0 is 0.
_MIN_ARGUMENT = 1e-30


@jit_allocating
def sweep_factors(
    linear: Array, gram: Array, logit: Array, precision: Any, inv_temps: Array, ladder: Array,
    max_sweeps: int, tol: Any, q: Array, energy: Array, entropy: Array,
) -> None:  # fmt: skip
    """Optimise the activations of each row by coordinate ascent, in place.

    A sweep updates the activations of all components in turn. The update is [VT16 app. C]

        q_k = sigmoid(b (logit_k + precision (linear_k - G_kk / 2 - sum_{j != k} G_kj q_j))).

    In sweep i of the first ``ladder.size`` sweeps, b is the inverse temperature of the row times
    ``ladder[i]``. In later sweeps, of which there are at most ``max_sweeps``, b is the inverse
    temperature of the row. A row has converged once a later sweep changes each of its activations
    by less than ``tol``. Its activations then remain unchanged.

    Parameters
    ----------
    linear : (n, K) ``E[mu_k] . x`` of each row x
    gram : (n, K, K) matrices G of the rows, or (1, K, K) if all rows share one matrix: ``G_kj =
        E[mu_k . mu_j]``, a sum over the columns that are observed in the row
    logit : (K,) ``log(pi / (1 - pi))`` for the prior probabilities pi of activations
    precision : 1 / s for the noise variance s
    inv_temps : (n,) inverse temperatures of the rows, or (1,) if it is the same for all rows
    ladder : factors of the inverse temperatures in the first sweeps, all at most 1
    q : (n, K) initial activations, overwritten by the final activations
    energy : (n,) float64, the part of the energy in nats that depends on the activations, written
    entropy : (n,) float64, entropy of the activations in nats, written
    """
    n_rows, K = q.shape
    # K, rounded up to a multiple of _COMPONENTS_PER_PASS.
    n_padded = -(-K // _COMPONENTS_PER_PASS) * _COMPONENTS_PER_PASS
    # `lit` returns constants in the type of ``precision``, so that float32 is not promoted.
    zero, one, half = lit(precision, 0.0), lit(precision, 1.0), lit(precision, 0.5)
    largest_log_odds, tiny = lit(precision, _MAX_LOG_ODDS), lit(precision, _MIN_ARGUMENT)
    is_shared = gram.shape[0] == 1
    # If all rows share one matrix G, a copy of it, padded by zeros.
    shared_gram = np.zeros((K, n_padded), q.dtype)
    if is_shared:
        for k in range(K):
            for j in range(K):
                shared_gram[k, j] = gram[0, k, j]
    # q of the rows of a block, transposed: (k, lane).
    q_t = np.zeros((n_padded, ROWS_PER_BLOCK), q.dtype)
    # The *field* of component k is linear_k - G_kk / 2 - sum_{j != k} G_kj q_j, by which the update
    # multiplies the precision. ``field_alone[k]`` has the first two terms for each lane: the field
    # if no other component is active. ``field`` is the field of the component that is updated.
    field_alone = np.empty((K, ROWS_PER_BLOCK), q.dtype)
    field = np.empty(ROWS_PER_BLOCK, q.dtype)
    inv_temp = np.empty(ROWS_PER_BLOCK, q.dtype)
    # ``change`` is the largest change of a row's activations in the present sweep. ``last_change``
    # is the largest change in the last sweep. It is inf until the first sweep after the ladder has
    # ended, so that no row converges before that.
    change = np.empty(ROWS_PER_BLOCK, q.dtype)
    last_change = np.empty(ROWS_PER_BLOCK, q.dtype)
    # Energies of the rows of a block in the first row, and entropies in the second row.
    sums = np.empty((2, ROWS_PER_BLOCK))
    for start in range(0, n_rows, ROWS_PER_BLOCK):
        # Load a block of rows. If it has fewer rows than lanes, the last lanes repeat its last row.
        n_used = min(ROWS_PER_BLOCK, n_rows - start)
        for lane in range(ROWS_PER_BLOCK):
            row = start + min(lane, n_used - 1)
            inv_temp[lane] = inv_temps[row] if inv_temps.size > 1 else inv_temps[0]
            last_change[lane] = np.inf
            for k in range(K):
                q_t[k, lane] = q[row, k]
                field_alone[k, lane] = linear[row, k] - half * gram[0 if is_shared else row, k, k]
        # Row i of the block has the matrix ``row_grams[i]``, which is unused if the rows share G.
        first_gram = 0 if is_shared else start
        row_grams = gram[first_gram:]
        # In each sweep, update the activations of all components in turn.
        for sweep in range(ladder.size + max_sweeps):
            ladder_factor = ladder[sweep] if sweep < ladder.size else one
            change[:] = zero
            for k in range(K):
                _write_field(k, field_alone, shared_gram, row_grams, n_used, is_shared, q_t, field)
                for lane in range(ROWS_PER_BLOCK):
                    log_odds = ladder_factor * inv_temp[lane] * (logit[k] + precision * field[lane])
                    log_odds = min(max(log_odds, -largest_log_odds), largest_log_odds)
                    activation = one / (one + exp(-log_odds))
                    # Keep the activations of a row that has converged.
                    activation = activation if last_change[lane] >= tol else q_t[k, lane]
                    change[lane] = max(change[lane], abs(activation - q_t[k, lane]))
                    q_t[k, lane] = activation
            # After the ladder, end once all rows of the block have converged.
            if sweep >= ladder.size:
                largest_change = zero
                for lane in range(ROWS_PER_BLOCK):
                    last_change[lane] = change[lane]
                    largest_change = max(largest_change, change[lane])
                if largest_change < tol:
                    break
        # Compute the energies and entropies, and write the results of the block.
        sums[:] = 0.0
        for k in range(K):
            _write_field(k, field_alone, shared_gram, row_grams, n_used, is_shared, q_t, field)
            for lane in range(ROWS_PER_BLOCK):
                p = q_t[k, lane]
                p_off = one - p
                # The sum over k counts the term G_kj q_k q_j of each pair of components twice.
                # Therefore take the mean of both fields, which has the factor 1/2 at this term.
                mean_field = half * (field_alone[k, lane] + field[lane])
                sums[0, lane] += p * (logit[k] + precision * mean_field)
                sums[1, lane] -= p * log(max(p, tiny)) + p_off * log(max(p_off, tiny))
        for lane in range(n_used):
            energy[start + lane], entropy[start + lane] = sums[0, lane], sums[1, lane]
            for k in range(K):
                q[start + lane, k] = q_t[k, lane]


@jit_inlined
def _write_field(
    k: int, field_alone: Array, shared_gram: Array, row_grams: Array, n_used: int, is_shared: bool,
    q_t: Array, field: Array,
) -> None:  # fmt: skip
    """Write the field of component k in each lane, see :func:`sweep_factors`, to ``field``.

    The matrix G is ``shared_gram`` if ``is_shared``, and ``row_grams[lane]`` otherwise. The loops
    over j subtract the term j = k, too, so that they need no branch. This term is added first.
    """
    K = field_alone.shape[0]
    if is_shared:
        for lane in range(ROWS_PER_BLOCK):
            field[lane] = field_alone[k, lane] + shared_gram[k, k] * q_t[k, lane]
        for j in range(0, q_t.shape[0], _COMPONENTS_PER_PASS):
            g0, g1 = shared_gram[k, j], shared_gram[k, j + 1]
            g2, g3 = shared_gram[k, j + 2], shared_gram[k, j + 3]
            v0, v1, v2, v3 = q_t[j], q_t[j + 1], q_t[j + 2], q_t[j + 3]
            for lane in range(ROWS_PER_BLOCK):
                field[lane] -= g0 * v0[lane] + g1 * v1[lane] + g2 * v2[lane] + g3 * v3[lane]
    else:
        for lane in range(ROWS_PER_BLOCK):
            # Lanes from ``n_used`` on repeat the last row of the block.
            gram_row = row_grams[min(lane, n_used - 1), k]
            total = field_alone[k, lane] + gram_row[k] * q_t[k, lane]
            for j in range(K):
                total -= gram_row[j] * q_t[j, lane]
            field[lane] = total


@jit_allocating
def sum_row_squares(X: Array) -> Array:
    """Return ``sum_d x_nd^2`` of each row of X (n, D), shape (n,), float64."""
    squares = np.zeros(X.shape[0])
    for n in range(X.shape[0]):
        for d in range(X.shape[1]):
            x = np.float64(X[n, d])
            squares[n] += x * x
    return squares
