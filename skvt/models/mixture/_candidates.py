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
MIN_COMPONENTS_FOR_CANDIDATES = 200
# J, the number of candidates of a row, and L, the number of components in its q(z_n).
N_CANDIDATES = 20
MAX_COMPONENTS_PER_ROW = 10
# Number of rows whose features are computed at a time. It is not a power of two, because matrices
# of such sizes are transposed slowly.
_ROWS_PER_CHUNK = 250
# Maximum number of parallel tasks of a batch. It is low because each task has a copy of the
# statistics.
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
    if batch.candidates is None or n_components < MIN_COMPONENTS_FOR_CANDIDATES:
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
    n_rows, n_components = batch.n_rows, log_weights.size
    # (n, J): candidates that the last local step of a row chose, with -1 for components that have
    # been removed since. The engine gives an array without columns if rows must be compared with
    # all components.
    old_candidates = batch.candidates
    if old_candidates is None or old_candidates.shape[1] != N_CANDIDATES:
        old_candidates = np.full((n_rows, N_CANDIDATES), -1, np.int32)
    # Sort the rows by their first candidate, because the parameters of this component are then in
    # the cache for successive rows. Rows without known candidates come first.
    first_candidates = np.where((old_candidates < 0).any(axis=1), -1, old_candidates[:, 0])
    order = np.argsort(first_candidates, kind="stable")
    n_unknown = int(np.count_nonzero(first_candidates < 0))
    best_components: Any = np.empty((n_rows, MAX_COMPONENTS_PER_ROW), np.int32)
    resp = np.empty(best_components.shape, component.dtype)
    bound, energy = np.empty((2, n_rows))
    step = _CandidateStep(
        component, batch, log_weights, np.ascontiguousarray(table), with_stats,
        best_components=best_components, resp=resp, bound=bound, energy=energy,
    )  # fmt: skip
    n_tasks = int(np.clip(n_rows // (_TASK_ROWS_PER_COMPONENT * n_components), 1, _MAX_TASKS))
    tasks = [
        (rows, candidates)
        for indices, candidates in ((order[:n_unknown], None), (order[n_unknown:], old_candidates))
        for rows in np.array_split(indices, n_tasks)
        if rows.size
    ]
    task_counts, task_sums = zip(*run(step.run_task, tasks), strict=True)
    stats = Stats((sum(task_counts), sum(task_sums))) if with_stats else None
    # Choose the candidates of the next local step. A row tries further components in turn, after
    # the component that it has tried last, its last old candidate. Rows without known candidates
    # begin with different components.
    candidates = np.empty((n_rows, N_CANDIDATES), np.int32)
    order = np.argsort(best_components[:, 0], kind="stable")
    last_tried = np.where(
        old_candidates[:, -1] < 0, batch.rows % n_components, old_candidates[:, -1]
    )
    positions = np.full(n_components, -1)
    write_next_candidates(best_components, order, positions, last_tried, candidates)
    row_limits = np.arange(n_rows + 1) * MAX_COMPONENTS_PER_ROW
    q = sp.csr_array((resp.ravel(), best_components.ravel(), row_limits), (n_rows, n_components))
    marginal = bound if with_marginal else None
    return LocalResult(stats, bound, energy, q, marginal, candidates=candidates)


class _CandidateStep(NamedTuple):
    """A local step with candidates, in which each parallel task computes some of the n rows."""

    component: Component
    batch: RowBatch
    # E[log w] (K,) and the table (K, P).
    log_weights: Array
    table: Array
    with_stats: bool
    # Outputs: components of each row's q and their responsibilities, (n, L) each.
    best_components: IndexArray
    resp: Array
    # Outputs: bound and energy of each row in nats, (n,) each.
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
        for chunk in pieces(order.size, _ROWS_PER_CHUNK):
            rows = order[chunk]
            features = dense_rows(self.component.features(self.batch.X[rows]))
            # The components with which the rows are compared, (1, K) or (m, J), and their logits.
            if candidates is None:
                compared_components: IndexArray = np.arange(log_weights.size, dtype=np.int32)[None]
                logits = features @ table.T + log_weights
            else:
                compared_components = candidates[rows]
                logits = np.empty(compared_components.shape)
                write_candidate_logits(features, table, log_weights, compared_components, logits)
            best_components = np.empty((rows.size, MAX_COMPONENTS_PER_ROW), np.int32)
            resp = np.empty(best_components.shape)
            bound, energy = np.empty((2, rows.size))
            write_best_candidates(logits, compared_components, best_components, resp, bound, energy)
            self.best_components[rows], self.resp[rows] = best_components, resp
            self.bound[rows], self.energy[rows] = bound, energy
            if self.with_stats:
                # Read responsibilities from ``self.resp``, which has the precision of the data.
                weighted_resp = self.resp[rows] * self.batch.weights[rows, None]
                add_candidate_statistics(features, best_components, weighted_resp, counts, sums)
        return counts, sums
