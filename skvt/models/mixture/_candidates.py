"""Rows judged by a few candidates among many components, which stay while they explain a row best.

A q(z_n) of at most L components is a legal q, and its bound exact. Of J candidates of a row each
visit keeps the L best, so that the bound never falls; to these it joins those of another row whose
best component is the same, and one component after the other [HS16] [FL18]. Where
components still move, these find too little: the engine has rows judged by all now and then, in
passes 1, 2, 4, 8 and so on.
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

# Number of components from which on rows have candidates.
FEWEST_COMPONENTS = 200
# Candidates of a row, and the most components of its q.
N_CANDIDATES = 20
MOST_SHARING = 10
# Rows whose features are held at a time: no power of two, by which a matrix is transposed slowly.
_ROWS_PER_CHUNK = 250
# Maximum number of parallel tasks of a batch, and rows of a task for each component: each task has
# a copy of the statistics.
_MOST_TASKS = 8
_ROWS_FOR_EACH = 4


def has_candidates(
    batch: RowBatch, completion: Completion | None, n_components: int, inv_temps: Array
) -> bool:
    """Whether rows are judged by candidates: complete rows, at T = 1, many components."""
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
    """A local step by candidates, or by all where some are unknown; ``q`` (n, K) is CSR."""
    n, n_components, known = batch.n_rows, log_weights.size, batch.candidates
    if known is None or known.shape[1] != N_CANDIDATES:
        known = np.full((n, N_CANDIDATES), -1, np.int32)
    # rows of one component together, whose candidates are in the cache then; unknown ones first
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
    """q of these rows, all of which have candidates or none; their counts and sums.

    ``out`` are the components of each row's q (n, L), responsibilities, bound and energy (n,).
    """
    component, batch, log_weights, table, with_stats = step
    counts, sums = np.zeros(log_weights.size), np.zeros(table.shape)
    everything = np.arange(log_weights.size, dtype=np.int32)[None]
    for part in pieces(order.size, _ROWS_PER_CHUNK):
        rows = order[part]
        features = dense_rows(component.features(batch.X[rows]))
        if candidates is None:
            own: IndexArray = everything
            logits = features @ table.T + log_weights
        else:
            own, logits = candidates[rows], np.empty((rows.size, candidates.shape[1]))
            candidate_logits(features, table, log_weights, own, logits)
        best = np.empty((rows.size, MOST_SHARING), np.int32)
        resp = np.empty(best.shape)
        bound, energy = np.empty((2, rows.size))
        best_of_candidates(logits, own, best, resp, bound, energy)
        out[0][rows], out[1][rows], out[2][rows], out[3][rows] = best, resp, bound, energy
        if with_stats:
            weighted = out[1][rows] * batch.weights[rows, None]
            add_candidate_statistics(features, best, weighted, counts, sums)
    return counts, sums
