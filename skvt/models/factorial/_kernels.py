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
# A pass over the lanes subtracts the terms of this many components at once, because fewer passes
# are faster. Activations, and rows of the matrix G of :func:`optimise_activations`, are padded by
# zeros to a multiple of this number.
_COMPONENTS_PER_PASS = 4
# Largest absolute log odds of an activation. Without this limit, products of two activations could
# be denormal numbers, with which arithmetic is slow.
_MAX_LOG_ODDS = 30.0
# Smallest argument of a logarithm, so that 0 log 0 is 0.
_MIN_ARGUMENT = 1e-30


@jit_allocating
def optimise_activations(
    projections: Array, gram: Array, prior_log_odds: Array, precision: Any, inv_temps: Array,
    ladder: Array, max_sweeps: int, tol: Any, q: Array, energies: Array, entropies: Array,
) -> None:  # fmt: skip
    """Optimise the activations of each row by coordinate ascent, in place.

    A sweep updates the activations of all components in turn. The update is [VT16 app. C]

        q_k = sigmoid(b (o_k + precision (p_k - G_kk / 2 - sum_{j != k} G_kj q_j))),

    where o are the ``prior_log_odds`` and p are the ``projections`` of the row.

    In sweep i of the first ``ladder.size`` sweeps, b is the inverse temperature of the row times
    ``ladder[i]``. In later sweeps, of which there are at most ``max_sweeps``, b is the inverse
    temperature of the row. A row has converged once a later sweep changes each of its activations
    by less than ``tol``. Its activations then remain unchanged.

    Parameters
    ----------
    projections : (n, K) ``E[mu_k] . x`` of each row x
    gram : (n, K, K) matrices G of the rows, or (1, K, K) if all rows share one matrix: ``G_kj =
        E[mu_k . mu_j]``, a sum over the columns that are observed in the row
    prior_log_odds : (K,) ``log(pi / (1 - pi))`` for the prior probabilities pi of activations
    precision : 1 / s for the noise variance s
    inv_temps : (n,) inverse temperatures of the rows, or (1,) if it is the same for all rows
    ladder : factors of the inverse temperatures in the first sweeps, all at most 1
    q : (n, K) initial activations, overwritten by the final activations
    energies : (n,) float64, terms of ``E_q[log p(x, z)]`` in nats that depend on q, written
    entropies : (n,) float64, entropy of q of each row in nats, written
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
    # q of the rows of a block, with one column for each lane.
    q_lanes = np.zeros((n_padded, ROWS_PER_BLOCK), q.dtype)
    # The *field* of component k is p_k - G_kk / 2 - sum_{j != k} G_kj q_j, by which the update
    # multiplies the precision. ``biases[k]`` has the first two terms for each lane: the field if no
    # other component is active. ``field`` is the field of the component that is updated.
    biases = np.empty((K, ROWS_PER_BLOCK), q.dtype)
    field = np.empty(ROWS_PER_BLOCK, q.dtype)
    lane_inv_temps = np.empty(ROWS_PER_BLOCK, q.dtype)
    # The largest change of the activations of each lane in the present sweep, and in the previous
    # sweep. ``last_changes`` are inf until the end of the ladder, so that no row has converged.
    changes = np.empty(ROWS_PER_BLOCK, q.dtype)
    last_changes = np.empty(ROWS_PER_BLOCK, q.dtype)
    # Energies of the rows of a block in the first row, and entropies in the second row.
    sums = np.empty((2, ROWS_PER_BLOCK))
    for start in range(0, n_rows, ROWS_PER_BLOCK):
        # Load a block of rows. If it has fewer rows than lanes, the last lanes repeat its last row.
        n_used = min(ROWS_PER_BLOCK, n_rows - start)
        for lane in range(ROWS_PER_BLOCK):
            row = start + min(lane, n_used - 1)
            lane_inv_temps[lane] = inv_temps[row] if inv_temps.size > 1 else inv_temps[0]
            last_changes[lane] = np.inf
            for k in range(K):
                q_lanes[k, lane] = q[row, k]
                biases[k, lane] = projections[row, k] - half * gram[0 if is_shared else row, k, k]
        # Row i of the block has the matrix ``row_grams[i]``, which is unused if the rows share G.
        first_gram = 0 if is_shared else start
        row_grams = gram[first_gram:]
        # In each sweep, update the activations of all components in turn.
        for sweep in range(ladder.size + max_sweeps):
            ladder_factor = ladder[sweep] if sweep < ladder.size else one
            changes[:] = zero
            for k in range(K):
                _write_field(k, biases, shared_gram, row_grams, n_used, is_shared, q_lanes, field)
                for lane in range(ROWS_PER_BLOCK):
                    b = ladder_factor * lane_inv_temps[lane]
                    log_odds = b * (prior_log_odds[k] + precision * field[lane])
                    log_odds = min(max(log_odds, -largest_log_odds), largest_log_odds)
                    activation = one / (one + exp(-log_odds))
                    # Keep the activations of a row that has converged.
                    activation = activation if last_changes[lane] >= tol else q_lanes[k, lane]
                    changes[lane] = max(changes[lane], abs(activation - q_lanes[k, lane]))
                    q_lanes[k, lane] = activation
            # After the ladder, end once all rows of the block have converged.
            if sweep >= ladder.size:
                largest_change = zero
                for lane in range(ROWS_PER_BLOCK):
                    last_changes[lane] = changes[lane]
                    largest_change = max(largest_change, changes[lane])
                if largest_change < tol:
                    break
        # Compute the energies and entropies, and write the results of the block.
        sums[:] = 0.0
        for k in range(K):
            _write_field(k, biases, shared_gram, row_grams, n_used, is_shared, q_lanes, field)
            for lane in range(ROWS_PER_BLOCK):
                q_on = q_lanes[k, lane]
                q_off = one - q_on
                # The sum over k counts the term G_kj q_k q_j of each pair of components twice.
                # The average of ``biases`` and ``field`` has the factor 1/2 at this term.
                averaged_field = half * (biases[k, lane] + field[lane])
                sums[0, lane] += q_on * (prior_log_odds[k] + precision * averaged_field)
                sums[1, lane] -= q_on * log(max(q_on, tiny)) + q_off * log(max(q_off, tiny))
        for lane in range(n_used):
            energies[start + lane], entropies[start + lane] = sums[0, lane], sums[1, lane]
            for k in range(K):
                q[start + lane, k] = q_lanes[k, lane]


@jit_inlined
def _write_field(
    k: int, biases: Array, shared_gram: Array, row_grams: Array, n_used: int, is_shared: bool,
    q_lanes: Array, field: Array,
) -> None:  # fmt: skip
    """Write the field of component k in each lane, see :func:`optimise_activations`, to ``field``.

    The matrix G is ``shared_gram`` if ``is_shared``, and ``row_grams[lane]`` otherwise. The loops
    run over all j to avoid a branch. The field has no term j = k, so that this term is added first,
    and the loop cancels it.
    """
    K = biases.shape[0]
    if is_shared:
        for lane in range(ROWS_PER_BLOCK):
            field[lane] = biases[k, lane] + shared_gram[k, k] * q_lanes[k, lane]
        for j in range(0, q_lanes.shape[0], _COMPONENTS_PER_PASS):
            g0, g1 = shared_gram[k, j], shared_gram[k, j + 1]
            g2, g3 = shared_gram[k, j + 2], shared_gram[k, j + 3]
            q0, q1, q2, q3 = q_lanes[j], q_lanes[j + 1], q_lanes[j + 2], q_lanes[j + 3]
            for lane in range(ROWS_PER_BLOCK):
                field[lane] -= g0 * q0[lane] + g1 * q1[lane] + g2 * q2[lane] + g3 * q3[lane]
    else:
        for lane in range(ROWS_PER_BLOCK):
            # Lanes from ``n_used`` on repeat the last row of the block.
            gram_row = row_grams[min(lane, n_used - 1), k]
            lane_field = biases[k, lane] + gram_row[k] * q_lanes[k, lane]
            for j in range(K):
                lane_field -= gram_row[j] * q_lanes[j, lane]
            field[lane] = lane_field


@jit_allocating
def sum_row_squares(X: Array) -> Array:
    """Return ``sum_d x_nd^2`` of each row of X (n, D), shape (n,), float64."""
    squares = np.zeros(X.shape[0])
    for n in range(X.shape[0]):
        for d in range(X.shape[1]):
            x = np.float64(X[n, d])
            squares[n] += x * x
    return squares
