"""Compiled loops of GaP-KL-NMF: updates, draws and terms of the bound of activations.

They serve the local step of :mod:`skvt.models.gap_nmf._model`, which explains the model and the
terms rate, table and levels. For each row, q(H) has a gamma distribution for each of K components.
Its parameters are ``shape`` (n, K) and ``rate``, which is (n, K), or (1, K) if all rows have equal
rates. ``lit(x, c)`` is the constant c in the floating-point type of x.
"""

from typing import Any

import numpy as np

from skvt._compiled import (
    GOLDEN,
    LANES,
    digamma,
    draw_gammas_exactly,
    exp,
    fill_normals,
    gammaln,
    jit,
    jit_allocating,
    jit_inlined,
    lit,
    log,
    make_uniform_pair,
    mix,
    propose_gamma,
    write_dot_products,
    write_weighted_sum,
)
from skvt.typing import Array


# ------------------------------------------------------------------------------- activations
@jit
def write_geometric_means(shape: Array, rate: Array, zero_below: float, out: Array) -> None:
    """Write exp(E[log h]) of gamma variables h to ``out`` (n, K).

    Values below ``zero_below`` are replaced by 0.
    """
    for i in range(shape.shape[0]):
        row_rate = rate[i] if rate.shape[0] > 1 else rate[0]
        for k in range(shape.shape[1]):
            mean = exp(digamma(shape[i, k])) / row_rate[k]
            out[i, k] = mean if mean >= zero_below else lit(mean, 0.0)


@jit
def write_divergences(shape: Array, rate: Array, prior: float, out: Array) -> None:
    """Write the sum over k of KL(Gamma(shape, rate) || Gamma(prior, prior)) to ``out`` (n,).

    The divergences are in nats.
    """
    constant = gammaln(prior) - prior * log(prior)
    for i in range(shape.shape[0]):
        row_rate = rate[i] if rate.shape[0] > 1 else rate[0]
        divergence = 0.0
        for k in range(shape.shape[1]):
            a, r = shape[i, k], row_rate[k]
            shape_terms = (a - prior) * digamma(a) - gammaln(a) + constant
            divergence += shape_terms + prior * log(r) + np.float64(a) * (prior - r) / r
        out[i] = divergence


@jit
def write_poisson_terms(counts: Array, rates: Array, logs: Array, log_factorials: Array) -> None:
    """Write terms of Poisson log probabilities of counts y (n, F), summed over f, in nats.

    ``logs`` (n,) gets the sum of ``y log rate``, and ``log_factorials`` (n,) the sum of
    ``log Gamma(y + 1)``, both float64.
    """
    for i in range(counts.shape[0]):
        y, rate = counts[i], rates[i]
        sum_of_logs, sum_of_log_factorials = 0.0, 0.0
        for f in range(y.size):
            sum_of_logs += np.float64(y[f] * log(rate[f]))
            sum_of_log_factorials += np.float64(gammaln(y[f] + lit(y[f], 1.0)))
        logs[i], log_factorials[i] = sum_of_logs, sum_of_log_factorials


@jit_allocating
def ascend_activations(
    counts: Array, table: Array, inv_temp: Any, prior: Any, rate: Array, max_iter: int, tol: float,
    zero_below: float, min_rate: Any, shape: Array, levels: Array,
) -> None:  # fmt: skip
    """Update q(z) and q(H) in turn by mean field, each row until it has converged.

    ``counts`` are (n, F), and ``table`` is (K, F). ``prior`` is both the shape and the rate of the
    prior of H. ``shape`` (n, K) and ``levels`` (n, K), which are exp(E[log H]), are updated in
    place. A row has converged once its shapes change by less than ``tol`` on average. ``min_rate``
    is added to sums of tempered rates, so that no divisor is 0.

    The loop is for few rows, because matrix products are faster for many rows. Columns without
    counts have no effect, so that each row uses a copy of the columns with counts. The width of the
    copy is a multiple of the length of vector instructions.
    """
    n_components = table.shape[0]
    # Numbers of columns and components, padded to multiples of LANES and of 4.
    padded_width = (table.shape[1] + LANES - 1) // LANES * LANES
    padded_depth = (n_components + 3) // 4 * 4
    table_memory = np.empty(padded_depth * padded_width, table.dtype)
    per_column = np.empty((2, padded_width), table.dtype)
    per_component = np.zeros((2, padded_depth), table.dtype)
    tempered_levels, ratio_sums = per_component[0], per_component[1]
    for i in range(counts.shape[0]):
        # Copy the columns with counts.
        columns = np.flatnonzero(counts[i])
        n_padded = max((columns.size + LANES - 1) // LANES, 1) * LANES
        row_table = table_memory[: padded_depth * n_padded].reshape(padded_depth, n_padded)
        row_counts, ratio = per_column[0][:n_padded], per_column[1][:n_padded]
        row_table[:], row_counts[:] = lit(prior, 0.0), lit(prior, 0.0)
        for j in range(columns.size):
            row_counts[j] = counts[i, columns[j]]
            for k in range(n_components):
                row_table[k, j] = table[k, columns[j]]
        row_rate = rate[i] if rate.shape[0] > 1 else rate[0]
        for _ in range(max_iter):
            # Divide the counts by the sums over k of tempered rates times tempered levels.
            for k in range(n_components):
                level = levels[i, k]
                tempered_levels[k] = level if inv_temp == 1.0 else level**inv_temp
            write_weighted_sum(row_table, tempered_levels, ratio)
            for j in range(n_padded):
                ratio[j] = row_counts[j] / (ratio[j] + min_rate)
            # Allocate the counts to components, and update q(H).
            write_dot_products(row_table, ratio, ratio_sums)
            change = lit(prior, 0.0)
            for k in range(n_components):
                updated = prior + inv_temp * tempered_levels[k] * ratio_sums[k]
                change += abs(updated - shape[i, k])
                shape[i, k] = updated
                new_level = exp(digamma(updated)) / row_rate[k]
                levels[i, k] = new_level if new_level >= zero_below else lit(new_level, 0.0)
            if change < tol * n_components:
                break


# ------------------------------------------------------------------------------------- draws
@jit_allocating
def draw_gammas(shape: Array, rate: Array, seed: Any, zero_below: float, out: Array) -> None:
    """Draw gamma variates to ``out`` (n, K); variates below ``zero_below`` are replaced by 0.

    A variate of shape a is ``g u^(1/a)``, with a uniform u and a variate g of shape a + 1. g is
    drawn by the rejection method of Marsaglia and Tsang (2000). A loop over the row makes a
    proposal for each entry and applies a cheap test. The few entries whose proposals fail the test
    are then drawn together.
    """
    n, width = shape.shape
    normal = np.empty(width + 1, np.float32)
    doubles, bit_scratch = np.empty((5, width)), np.empty((2, width), np.uint64)
    int_scratch = np.empty((3, width), np.int32)
    # Input and output of :func:`draw_gammas_exactly`, which draws the *doubtful* entries, whose
    # proposals fail the cheap test. Column j belongs to doubtful entry j of a row.
    shapes, normals, variates, bits = doubles[0], doubles[1], doubles[2], bit_scratch[0]
    is_doubtful, components = int_scratch[0], int_scratch[2]
    for i in range(n):
        state = mix(np.uint64(seed) + GOLDEN * np.uint64(i + 1))
        fill_normals(state, normal)
        row_rate = rate[i] if rate.shape[0] > 1 else rate[0]
        for k in range(width):
            a = shape[i, k]
            uniform_number, test_number = make_uniform_pair(mix(state - GOLDEN * np.uint64(k + 1)))
            variate, is_doubtful[k] = propose_gamma(a, normal[k], test_number)
            variate = variate * _compute_root(uniform_number, a) / row_rate[k]
            out[i, k] = variate if variate >= zero_below else lit(variate, 0.0)
        # List the components of doubtful entries. To avoid a branch, each k is written to the list,
        # and overwritten by the next k unless it is doubtful. The count has the type np.int64,
        # because numba would compile draw_gammas_exactly again for the constant 0.
        n_doubtful = np.int64(0)
        for k in range(width):
            components[n_doubtful] = k
            n_doubtful += is_doubtful[k]
        for j in range(n_doubtful):
            k = components[j]
            shapes[j], normals[j] = shape[i, k], normal[k]
            bits[j] = mix(state - GOLDEN * np.uint64(k + 1))
        draw_gammas_exactly(n_doubtful, doubles, bit_scratch, int_scratch)
        for j in range(n_doubtful):
            k = components[j]
            a = shape[i, k]
            variate = variates[j] * _compute_root(make_uniform_pair(bits[j])[0], a) / row_rate[k]
            out[i, k] = variate if variate >= zero_below else lit(a, 0.0)


@jit_inlined
def _compute_root(u: Any, a: Any) -> Any:
    """Return u^(1/a) in the type of a."""
    return exp(log(u + lit(a, 0.0)) / a)
