"""Compiled loops of :mod:`skvt.models.gap_nmf._model`, all but the matrix products."""

from typing import Any

import numpy as np

from skvt.compiled import (
    GOLDEN,
    LANES,
    accepted_gammas,
    digamma,
    dot_products,
    exp,
    fill_normals,
    gammaln,
    jit,
    jit_allocating,
    lit,
    log,
    mix,
    part,
    proposed_gamma,
    unit_pair,
    weighted_sum,
)
from skvt.typing import Array


# ------------------------------------------------------------------------------- activations
@jit
def geometric_means(shape: Array, rate: Array, smallest: float, out: Array) -> None:
    """Write exp(E[log h]) of gamma variables, (n, K), 0 below ``smallest``; one or n rates."""
    for i in range(shape.shape[0]):
        row = rate[i] if rate.shape[0] > 1 else rate[0]
        for k in range(shape.shape[1]):
            value = exp(digamma(shape[i, k])) / row[k]
            out[i, k] = value if value >= smallest else lit(value, 0.0)


@jit
def divergences(shape: Array, rate: Array, prior: float, out: Array) -> None:
    """Write the sum over k of KL(Gamma(shape, rate) || Gamma(prior, prior)) in nats to ``out``."""
    constant = gammaln(prior) - prior * log(prior)
    for i in range(shape.shape[0]):
        row = rate[i] if rate.shape[0] > 1 else rate[0]
        total = 0.0
        for k in range(shape.shape[1]):
            s, r = shape[i, k], row[k]
            value = (s - prior) * digamma(s) - gammaln(s) + constant
            total += value + prior * log(r) + np.float64(s) * (prior - r) / r
        out[i] = total


@jit
def poisson_terms(counts: Array, rates: Array, logs: Array, log_factorials: Array) -> None:
    """Write sums over f of ``y log rate`` and ``log Gamma(y + 1)`` of each row, (n,) float64."""
    for i in range(counts.shape[0]):
        y, rate = counts[i], rates[i]
        total, constant = 0.0, 0.0
        for f in range(y.size):
            total += np.float64(y[f] * log(rate[f]))
            constant += np.float64(gammaln(y[f] + lit(y[f], 1.0)))
        logs[i], log_factorials[i] = total, constant


@jit_allocating
def ascend(
    counts: Array, table: Array, inv_temp: Any, prior: Any, rate: Array, max_iter: int, tol: float,
    smallest: float, smallest_rate: Any, shape: Array, levels: Array,
) -> None:  # fmt: skip
    """Update q(z) and q(H) in turn by mean field, each row until it has converged, in place.

    This is for few rows; for many rows, matrix products are faster. Columns without counts have no
    effect, so that each row uses a table of its other columns, padded to whole vectors.
    """
    n_components = table.shape[0]
    width, depth = (table.shape[1] + LANES - 1) // LANES * LANES, (n_components + 3) // 4 * 4
    memory = np.empty(depth * width, table.dtype)
    per_column = np.empty((2, width), table.dtype)
    per_component = np.zeros((2, depth), table.dtype)
    weights, totals = per_component[0], per_component[1]
    for i in range(counts.shape[0]):
        columns = np.flatnonzero(counts[i])
        filled = max((columns.size + LANES - 1) // LANES, 1) * LANES
        rates = memory[: depth * filled].reshape(depth, filled)
        y, ratio = per_column[0][:filled], per_column[1][:filled]
        rates[:], y[:] = lit(prior, 0.0), lit(prior, 0.0)
        for j in range(columns.size):
            y[j] = counts[i, columns[j]]
            for k in range(n_components):
                rates[k, j] = table[k, columns[j]]
        row_rate = rate[i] if rate.shape[0] > 1 else rate[0]
        for _ in range(max_iter):
            for k in range(n_components):
                weights[k] = levels[i, k] if inv_temp == 1.0 else levels[i, k] ** inv_temp
            weighted_sum(rates, weights, ratio)
            for j in range(filled):
                ratio[j] = y[j] / (ratio[j] + smallest_rate)
            dot_products(rates, ratio, totals)
            change = lit(prior, 0.0)
            for k in range(n_components):
                updated = prior + inv_temp * weights[k] * totals[k]
                change += abs(updated - shape[i, k])
                shape[i, k] = updated
                value = exp(digamma(updated)) / row_rate[k]
                levels[i, k] = value if value >= smallest else lit(value, 0.0)
            if change < tol * n_components:
                break


# ------------------------------------------------------------------------------------- draws
@jit_allocating
def draw_gammas(shape: Array, rate: Array, seed: Any, smallest: float, out: Array) -> None:
    """Draw gamma variates of shapes (n, K) and rates, (n, K) or (1, K); 0 below ``smallest``.

    ``g(a) = g(a + 1) u^(1/a)``, and g(a + 1) is drawn by rejection (Marsaglia and Tsang 2000). The
    loop over a row makes a proposal for each entry and applies the cheap test; the few proposals
    that fail it are decided together.
    """
    n, width = shape.shape
    normal = np.empty(width + 1, np.float32)
    numbers, words = np.empty((5, width)), np.empty((2, width), np.uint64)
    places = np.empty((3, width), np.int32)
    shapes, normals, values, bits = numbers[0], numbers[1], numbers[2], words[0]
    doubtful, topics_of = places[0], places[2]
    for i in range(n):
        state = mix(np.uint64(seed) + GOLDEN * np.uint64(i + 1))
        fill_normals(state, normal)
        row = rate[i] if rate.shape[0] > 1 else rate[0]
        for k in range(width):
            a = shape[i, k]
            u, test = unit_pair(mix(state - GOLDEN * np.uint64(k + 1)))
            value, doubtful[k] = proposed_gamma(a, normal[k], test)
            value = value * _power(u, a) / row[k]
            out[i, k] = value if value >= smallest else lit(value, 0.0)
        n_doubtful = np.int64(0)  # not the constant 0: numba would compile anew
        for k in range(width):
            topics_of[n_doubtful] = k
            n_doubtful += doubtful[k]
        for j in range(n_doubtful):
            k = topics_of[j]
            shapes[j], normals[j] = shape[i, k], normal[k]
            bits[j] = mix(state - GOLDEN * np.uint64(k + 1))
        accepted_gammas(n_doubtful, numbers, words, places)
        for j in range(n_doubtful):
            k = topics_of[j]
            a = shape[i, k]
            value = values[j] * _power(unit_pair(bits[j])[0], a) / row[k]
            out[i, k] = value if value >= smallest else lit(a, 0.0)


@part
def _power(u: Any, a: Any) -> Any:
    """Return u^(1/a)."""
    return exp(log(u + lit(a, 0.0)) / a)
