"""Local steps in which each row is compared with a few candidates among many components.

If q(z_n), the distribution of row n over components, is restricted to at most L components, the
bound is still a lower bound. A local step keeps the L best of a row's J candidates, so that the
bound never falls. The candidates of the row's next local step are these L components, the best
components of another row whose best component is the same, and further components in turn [HS16]
[FL18]. While components still change much, the candidates may lack the row's best component. The
engine therefore compares the rows with all components in passes 1, 2, 4, 8 and so on.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Completion, Component, LocalResult, RowBatch
from skvt.expfam import Stats
from skvt.models.mixture._kernels import (
    add_candidate_statistics,
    write_best_candidates,
    write_candidate_logits,
    write_next_candidates,
)
from skvt.models.mixture.components import dense_rows
from skvt.rows import pieces
from skvt.typing import Array, IndexArray, Run

# Minimum number of components at which rows have candidates.
MIN_COMPONENTS = 200
# J, the number of candidates of a row, and L, the number of components in its q(z_n).
N_CANDIDATES = 20
MAX_SHARING = 10
# Number of rows whose features are computed at a time. It is not a power of two, because matrices
# of such sizes are transposed slowly.
_ROWS_PER_CHUNK = 250
# Maximum number of parallel tasks of a batch. It is low because each task has its own statistics.
_MAX_TASKS = 8
# Minimum number of rows of a task per component, so that the time for the statistics is small
# compared with the time for the rows.
_TASK_ROWS_PER_COMPONENT = 4


def has_candidates(
    batch: RowBatch, completion: Completion | None, n_components: int, inv_temps: Array
) -> bool:
    """Return whether the local step compares rows with candidates instead of all components.

    It does so for complete, dense rows at the temperature 1 if there are many components and the
    engine allows candidates. ``completion`` returns None for rows without missing values.
    """
    if batch.candidates is None or n_components < MIN_COMPONENTS:
        return False
    if sp.issparse(batch.X) or inv_temps.size > 1 or inv_temps[0] != 1.0:
        return False
    chunks = pieces(batch.n_rows, _ROWS_PER_CHUNK)
    return completion is None or all(
        completion(batch.X[rows], inv_temps) is None for rows in chunks
    )


def run_candidate_step(
    component: Component, batch: RowBatch, log_weights: Array, table: Array, run: Run, *,
    with_stats: bool, with_marginal: bool,
) -> LocalResult:  # fmt: skip
    """Run a local step with candidates, in which ``q`` of the result is a CSR matrix (n, K).

    ``log_weights`` (K,) are E[log w], and the product of features and ``table`` (K, P) are expected
    log densities. A row without known candidates is compared with all components.
    """
    n, n_components = batch.n_rows, log_weights.size
    # (n, J): candidates that the last local step of a row chose, with -1 for components that have
    # been removed since. The engine gives an array without columns if rows must be compared with
    # all components.
    known = batch.candidates
    if known is None or known.shape[1] != N_CANDIDATES:
        known = np.full((n, N_CANDIDATES), -1, np.int32)
    # Sort the rows by their first candidate, because the parameters of this component are then in
    # the cache for successive rows. Rows without known candidates come first.
    first = np.where((known < 0).any(axis=1), -1, known[:, 0])
    order = np.argsort(first, kind="stable")
    n_unknown = int(np.count_nonzero(first < 0))
    best: Any = np.empty((n, MAX_SHARING), np.int32)
    resp = np.empty(best.shape, component.dtype)
    bound, energy = np.empty((2, n))
    step = _CandidateStep(
        component, batch, log_weights, np.ascontiguousarray(table), with_stats,
        best=best, resp=resp, bound=bound, energy=energy,
    )  # fmt: skip
    n_tasks = int(np.clip(n // (_TASK_ROWS_PER_COMPONENT * n_components), 1, _MAX_TASKS))
    tasks = [
        (rows, candidates)
        for part, candidates in ((order[:n_unknown], None), (order[n_unknown:], known))
        for rows in np.array_split(part, n_tasks)
        if rows.size
    ]
    task_counts, task_sums = zip(*run(step.run_task, tasks), strict=True)
    stats = Stats((sum(task_counts), sum(task_sums))) if with_stats else None
    # Choose the candidates of the next local step. A row tries further components in turn. The last
    # known candidate is the component that it has tried last. Rows without known candidates begin
    # with different components.
    candidates = np.empty((n, N_CANDIDATES), np.int32)
    order = np.argsort(best[:, 0], kind="stable")
    last_tried = np.where(known[:, -1] < 0, batch.rows % n_components, known[:, -1])
    scratch = np.full(n_components, -1)
    write_next_candidates(best, order, scratch, last_tried, candidates)
    data, indices, indptr = resp.ravel(), best.ravel(), np.arange(n + 1) * MAX_SHARING
    q = sp.csr_array((data, indices, indptr), (n, n_components))
    marginal = bound if with_marginal else None
    return LocalResult(stats, bound, energy, q, marginal, candidates=candidates)


class _CandidateStep(NamedTuple):
    """A local step with candidates, whose parallel tasks compute parts of the n rows."""

    component: Component
    batch: RowBatch
    # E[log w] (K,) and the table (K, P).
    log_weights: Array
    table: Array
    with_stats: bool
    # Written: components of each row's q and their responsibilities, (n, L) each.
    best: IndexArray
    resp: Array
    # Written: bound and energy of each row in nats, (n,) each.
    bound: Array
    energy: Array

    def run_task(self, order: IndexArray, candidates: IndexArray | None) -> tuple[Array, Array]:
        """Write q of the rows in ``order``; return counts (K,) and sums of features (K, P).

        ``order`` (m,) are indices of rows of the batch. ``candidates`` (n, J) are the candidates of
        all rows of the batch, or None if the rows in ``order`` are compared with all components.
        The counts and sums are 0 unless ``with_stats`` is set.
        """
        log_weights, table = self.log_weights, self.table
        counts, sums = np.zeros(log_weights.size), np.zeros(table.shape)
        for part in pieces(order.size, _ROWS_PER_CHUNK):
            rows = order[part]
            features = dense_rows(self.component.features(self.batch.X[rows]))
            # The components with which the rows are compared, (1, K) or (m, J), and their logits.
            if candidates is None:
                compared: IndexArray = np.arange(log_weights.size, dtype=np.int32)[None]
                logits = features @ table.T + log_weights
            else:
                compared = candidates[rows]
                logits = np.empty(compared.shape)
                write_candidate_logits(features, table, log_weights, compared, logits)
            best = np.empty((rows.size, MAX_SHARING), np.int32)
            resp = np.empty(best.shape)
            bound, energy = np.empty((2, rows.size))
            write_best_candidates(logits, compared, best, resp, bound, energy)
            self.best[rows], self.resp[rows] = best, resp
            self.bound[rows], self.energy[rows] = bound, energy
            if self.with_stats:
                # Read responsibilities from ``self.resp``, which has the precision of the data.
                weighted = self.resp[rows] * self.batch.weights[rows, None]
                add_candidate_statistics(features, best, weighted, counts, sums)
        return counts, sums
