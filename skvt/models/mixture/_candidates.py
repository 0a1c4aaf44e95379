"""Rows judged by a few candidates among many components, which stay while they explain a row best.

A q(z_n) of at most L components is a legal q, and its bound exact. Of J candidates of a row each
visit keeps the L best, so that the bound never falls; to these it joins those of another row whose
best component is the same, and one component after the other [HS16] [FL18]. Where
components still move, these find too little: the engine has rows judged by all now and then, in
passes 1, 2, 4, 8 and so on.
"""

from typing import NamedTuple

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


class _Step(NamedTuple):
    """What is the same for all rows: the component, E[log w] (K,), the table (K, P)."""

    component: Component
    batch: RowBatch
    log_weights: Array
    table: Array
    with_stats: bool


class _Found(NamedTuple):
    """Of each row: the components of q (n, L), their responsibilities, bound and energy (n,)."""

    best: IndexArray
    resp: Array
    bound: Array
    energy: Array


def has_candidates(
    batch: RowBatch, completion: Completion | None, n_components: int, inv_temps: Array
) -> bool:
    """Whether rows are judged by candidates: complete rows, at T = 1, many components."""
    if batch.candidates is None or n_components < FEWEST_COMPONENTS:
        return False
    if sp.issparse(batch.X) or inv_temps.size > 1 or inv_temps[0] != 1.0:
        return False
    starts = range(0, batch.n_rows, _ROWS_PER_CHUNK)
    return completion is None or all(
        completion(batch.X[start : start + _ROWS_PER_CHUNK], inv_temps) is None for start in starts
    )


def step_of_candidates(
    component: Component,
    batch: RowBatch,
    log_weights: Array,
    table: Array,
    run: Run,
    *,
    with_stats: bool,
    with_marginal: bool,
) -> LocalResult:
    """A local step in which rows are judged by their candidates, or by all where some are unknown.

    ``q`` of the result is r (n, K) in CSR, L entries a row.
    """
    n, n_components, known = batch.n_rows, log_weights.size, batch.candidates
    if known is None or known.shape[1] != N_CANDIDATES:
        known = np.full((n, N_CANDIDATES), -1, np.int32)
    # rows of one component together, whose candidates are in the cache then; unknown ones first
    first = np.where((known < 0).any(axis=1), -1, known[:, 0])
    order = np.argsort(first, kind="stable")
    n_new = int(np.count_nonzero(first < 0))
    found = _Found(
        np.empty((n, MOST_SHARING), np.int32),
        np.empty((n, MOST_SHARING), component.dtype),
        *np.empty((2, n)),
    )
    step = _Step(component, batch, log_weights, np.ascontiguousarray(table), with_stats)
    n_tasks = int(np.clip(n // (_ROWS_FOR_EACH * n_components), 1, _MOST_TASKS))
    tasks = [
        (step, rows, candidates, found)
        for part, candidates in ((order[:n_new], None), (order[n_new:], known))
        for rows in np.array_split(part, n_tasks)
        if rows.size
    ]
    counts, sums = (sum(part) for part in zip(*run(_candidate_task, tasks), strict=True))
    candidates = np.empty((n, N_CANDIDATES), np.int32)
    order = np.argsort(found.best[:, 0], kind="stable")
    last = np.where(known[:, -1] < 0, batch.rows % n_components, known[:, -1])
    next_candidates(found.best, order, np.full(n_components, -1), last, candidates)
    places = np.arange(n + 1) * MOST_SHARING
    q = sp.csr_array(
        (found.resp.ravel(), found.best.ravel(), places),
        (n, n_components),
    )
    return LocalResult(
        Stats((counts, sums)) if with_stats else None,
        found.bound,
        found.energy,
        q,
        found.bound if with_marginal else None,
        candidates=candidates,
    )


def _candidate_task(
    step: _Step, order: IndexArray, candidates: IndexArray | None, found: _Found
) -> tuple[Array, Array]:
    """q of these rows, all of which have candidates or none; their counts and sums."""
    component, batch, log_weights, table, with_stats = step
    counts, sums = np.zeros(log_weights.size), np.zeros(table.shape)
    everything = np.arange(log_weights.size, dtype=np.int32)[None]
    for start in range(0, order.size, _ROWS_PER_CHUNK):
        rows = order[start : start + _ROWS_PER_CHUNK]
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
        found.best[rows], found.resp[rows] = best, resp
        found.bound[rows], found.energy[rows] = bound, energy
        if with_stats:
            weighted = found.resp[rows] * batch.weights[rows, None]
            add_candidate_statistics(features, best, weighted, counts, sums)
    return counts, sums
