"""Local steps in which each row is compared with a few candidates among many components.

A q(z_n) of at most L components is a legal q, and its bound is exact. Each visit keeps the L best
of a row's J candidates, so that the bound never falls. It adds the best components of another row
whose best component is the same, and further components in turn [HS16] [FL18]. While components
still move, such candidates miss better components. The engine therefore compares the rows with all
components in passes 1, 2, 4, 8 and so on.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Completion, Component, LocalResult, RowBatch
from skvt.expfam import Stats
from skvt.models.mixture._kernels import (
    add_candidate_statistics,
    best_of_candidates,
    candidate_logits,
    next_candidates,
)
from skvt.models.mixture.components import dense_rows
from skvt.rows import pieces
from skvt.typing import Array, IndexArray, Run

# Least number of components at which rows have candidates.
FEWEST_COMPONENTS = 200
# Number of candidates of a row, and the largest number of components in its q.
N_CANDIDATES = 20
MOST_SHARING = 10
# Rows whose features are held at a time; matrices are transposed slowly if it is a power of two.
_ROWS_PER_CHUNK = 250
# Maximum number of parallel tasks of a batch, and minimum number of rows of a task per component.
# Both are limited because each task has a copy of the statistics.
_MOST_TASKS = 8
_ROWS_FOR_EACH = 4


def has_candidates(
    batch: RowBatch, completion: Completion | None, n_components: int, inv_temps: Array
) -> bool:
    """Return whether candidates are used: for complete rows, at T = 1, with many components."""
    if batch.candidates is None or n_components < FEWEST_COMPONENTS:
        return False
    if sp.issparse(batch.X) or inv_temps.size > 1 or inv_temps[0] != 1.0:
        return False
    chunks = pieces(batch.n_rows, _ROWS_PER_CHUNK)
    return completion is None or all(
        completion(batch.X[rows], inv_temps) is None for rows in chunks
    )


def step_of_candidates(
    component: Component, batch: RowBatch, log_weights: Array, table: Array, run: Run, *,
    with_stats: bool, with_marginal: bool,
) -> LocalResult:  # fmt: skip
    """Run a local step with candidates; ``q`` (n, K) is CSR.

    A row without known candidates is compared with all components.
    """
    n, n_components, known = batch.n_rows, log_weights.size, batch.candidates
    if known is None or known.shape[1] != N_CANDIDATES:
        known = np.full((n, N_CANDIDATES), -1, np.int32)
    # Rows are sorted by their first candidate, whose parameters are then in the cache. Rows without
    # known candidates come first.
    first = np.where((known < 0).any(axis=1), -1, known[:, 0])
    order = np.argsort(first, kind="stable")
    n_new = int(np.count_nonzero(first < 0))
    best: Any = np.empty((n, MOST_SHARING), np.int32)
    resp, (bound, energy) = np.empty(best.shape, component.dtype), np.empty((2, n))
    step = component, batch, log_weights, np.ascontiguousarray(table), with_stats
    n_tasks = int(np.clip(n // (_ROWS_FOR_EACH * n_components), 1, _MOST_TASKS))
    tasks = [
        (step, rows, candidates, (best, resp, bound, energy))
        for part, candidates in ((order[:n_new], None), (order[n_new:], known))
        for rows in np.array_split(part, n_tasks)
        if rows.size
    ]
    counts, sums = (sum(part) for part in zip(*run(_candidate_task, tasks), strict=True))
    candidates = np.empty((n, N_CANDIDATES), np.int32)
    order = np.argsort(best[:, 0], kind="stable")
    last = np.where(known[:, -1] < 0, batch.rows % n_components, known[:, -1])
    next_candidates(best, order, np.full(n_components, -1), last, candidates)
    entries = resp.ravel(), best.ravel(), np.arange(n + 1) * MOST_SHARING
    q = sp.csr_array(entries, (n, n_components))
    stats = Stats((counts, sums)) if with_stats else None
    marginal = bound if with_marginal else None
    return LocalResult(stats, bound, energy, q, marginal, candidates=candidates)


def _candidate_task(
    step: tuple[Component, RowBatch, Array, Array, bool], order: IndexArray,
    candidates: IndexArray | None, out: tuple[Array, ...],
) -> tuple[Array, Array]:  # fmt: skip
    """Write q of the rows in ``order`` and return their counts and sums.

    ``candidates`` is None where all components are compared. ``out`` holds the components of each
    row's q (n, L), their responsibilities (n, L), and the row's bound and energy (n,).
    """
    component, batch, log_weights, table, with_stats = step
    counts, sums = np.zeros(log_weights.size), np.zeros(table.shape)
    all_components = np.arange(log_weights.size, dtype=np.int32)[None]
    for part in pieces(order.size, _ROWS_PER_CHUNK):
        rows = order[part]
        features = dense_rows(component.features(batch.X[rows]))
        if candidates is None:
            compared: IndexArray = all_components
            logits = features @ table.T + log_weights
        else:
            compared, logits = candidates[rows], np.empty((rows.size, candidates.shape[1]))
            candidate_logits(features, table, log_weights, compared, logits)
        best = np.empty((rows.size, MOST_SHARING), np.int32)
        resp = np.empty(best.shape)
        bound, energy = np.empty((2, rows.size))
        best_of_candidates(logits, compared, best, resp, bound, energy)
        out[0][rows], out[1][rows], out[2][rows], out[3][rows] = best, resp, bound, energy
        if with_stats:
            weighted = out[1][rows] * batch.weights[rows, None]
            add_candidate_statistics(features, best, weighted, counts, sums)
    return counts, sums
