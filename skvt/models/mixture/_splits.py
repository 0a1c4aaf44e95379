"""Splits of the clusters of a fit, if the user requests more clusters than the fit has.

The results of a fit call :func:`split_clusters`.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt._compiled import run_serially
from skvt.contracts import RowBatch
from skvt.expfam import RunningStats, Stats
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import StickBreaking
from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Priors are learned from clusters around seeds, at most one seed for this number of rows.
_ROWS_PER_SEED = 5
# Maximum number of passes that assign rows to their best clusters: in each split, after the last
# split, and while priors are learned.
_MAX_PASSES = 10


def number_distinct_rows(X: Any) -> tuple[IndexArray, IndexArray]:
    """Number the distinct rows of X in the order in which they first occur.

    Returns the index of the first row with each number, and the number of each row, (n,). Equal
    rows have equal numbers.
    """
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        limits = pairwise(X.indptr)
        keys = [(X.indices[i:j].tobytes(), X.data[i:j].tobytes()) for i, j in limits]
    else:
        # The sum with 0.0 turns -0.0 into 0.0, so that equal rows have equal bytes.
        keys = [(row.tobytes(), b"") for row in np.ascontiguousarray(X + 0.0)]
    number_of_key: dict[tuple[bytes, bytes], int] = {}
    numbers = np.array([number_of_key.setdefault(key, len(number_of_key)) for key in keys], np.intp)
    return np.unique(numbers, return_index=True)[1], numbers


def split_clusters(
    model: Mixture, X: Any, weights: Array, labels: IndexArray, n_clusters: int,
    rng: np.random.Generator,
) -> IndexArray:  # fmt: skip
    """Split clusters in two until there are ``n_clusters``; return the cluster of each row.

    The cluster whose split gains most evidence is split first. The halves of a split begin with two
    seeds by k-means++ and are fitted by hard assignments, under priors that are learned for
    ``n_clusters`` clusters. Finally, all rows are assigned to the best of all clusters, as long as
    no cluster becomes empty.

    Parameters
    ----------
    X : array of shape (n, D)
        Rows, no two of which are equal.
    weights : array of shape (n,)
        Weights of the rows.
    labels : array of shape (n,)
        Clusters to begin with, at most ``n_clusters`` different ones.
    n_clusters : int
        At most n.

    Returns
    -------
    array of shape (n,)
        Numbers of clusters, 0, ..., n_clusters - 1, each at least once. Clusters that come from the
        same label have consecutive numbers.
    """
    batch = model.batch(X, np.arange(weights.size), weights)
    model = _adapt_to_smaller_clusters(model, batch, n_clusters, rng)
    # Number the clusters from 0. ``origins`` has the original label of each cluster.
    unique_labels, labels = np.unique(labels, return_inverse=True)
    origins = unique_labels.tolist()
    # For each cluster, the gain of its split in nats, and the rows of its second half.
    splits = {k: _split_in_half(model, X, weights, labels, k, rng) for k in range(len(origins))}
    while len(origins) < n_clusters:
        gains = np.array([gain for gain, _ in splits.values()])
        # Gains are differences of sums over rows, so that ties are judged by the number of rows.
        split_cluster = int(stable_argmax(gains, scale=float(weights.sum())))
        _, second_half = splits[split_cluster]
        new_cluster = len(origins)
        labels[second_half] = new_cluster
        origins.append(origins[split_cluster])
        for k in (split_cluster, new_cluster):
            splits[k] = _split_in_half(model, X, weights, labels, k, rng)
    labels = _reassign_rows(model, batch, labels, n_clusters)
    # Number the clusters so that clusters of the same origin follow each other.
    new_numbers = np.empty(n_clusters, np.intp)
    new_numbers[np.argsort(origins, kind="stable")] = np.arange(n_clusters)
    return new_numbers[labels]


def _adapt_to_smaller_clusters(
    model: Mixture, batch: RowBatch, n_clusters: int, rng: np.random.Generator
) -> Mixture:
    """Return the model with stick-breaking weights, and with priors for ``n_clusters`` clusters.

    The priors of the fit suit its components, which are larger than the clusters. If the model
    learns priors, they are learned again from clusters around at most ``n_clusters`` seeds. The
    weights are replaced, because they may be the known weights of the fit's components.
    """
    n_seeds = min(n_clusters, max(1, batch.n_rows // _ROWS_PER_SEED))
    model = replace(model, weights=StickBreaking(1.0), learns_concentration=False)
    stats = model.seeded_statistics(batch, n_seeds, "k-means++", rng)
    for _ in range(_MAX_PASSES):
        # The first argument is None, since a mixture learns priors from its statistics alone.
        model = model.with_learned_priors(None, RunningStats(stats.arrays))
        best_clusters, _ = _assign_rows(model, batch, stats)
        _, labels = np.unique(best_clusters, return_inverse=True)
        stats = _sum_statistics(model, batch, labels, int(labels.max()) + 1)
    return model


def _split_in_half(
    model: Mixture, X: Any, weights: Array, labels: IndexArray, k: int, rng: np.random.Generator
) -> tuple[float, IndexArray]:
    """Split cluster k in two; return the gain in nats and the indices of rows in the second half.

    The gain is the change of the log evidence. It is -inf for a cluster of one row.
    """
    rows = np.flatnonzero(labels == k)
    if rows.size == 1:
        return -np.inf, rows
    batch = model.batch(X[rows], np.arange(rows.size), weights[rows])
    unsplit_stats = _sum_statistics(model, batch, np.zeros(rows.size, np.intp), 1)
    halves, _ = _assign_rows(model, batch, model.seeded_statistics(batch, 2, "k-means++", rng))
    if np.unique(halves).size < 2:
        # All rows are in one half. Move the row that the cluster explains worst to the other half.
        _, log_densities = _assign_rows(model, batch, unsplit_stats)
        worst_row = stable_argmax(-log_densities)
        halves = (np.arange(rows.size) == worst_row).astype(np.intp)
    halves = _reassign_rows(model, batch, halves, 2)
    split_stats = _sum_statistics(model, batch, halves, 2)
    gain = model.collapsed_energy(split_stats) - model.collapsed_energy(unsplit_stats)
    return float(gain), rows[halves == 1]


def _reassign_rows(
    model: Mixture, batch: RowBatch, labels: IndexArray, n_clusters: int
) -> IndexArray:
    """Return labels after rows are repeatedly assigned to their best clusters.

    The assignments end when no label changes, before a cluster becomes empty, or after
    `_MAX_PASSES` passes.
    """
    for _ in range(_MAX_PASSES):
        stats = _sum_statistics(model, batch, labels, n_clusters)
        best_labels, _ = _assign_rows(model, batch, stats)
        if np.array_equal(best_labels, labels) or np.unique(best_labels).size < n_clusters:
            break
        labels = best_labels
    return labels


def _sum_statistics(model: Mixture, batch: RowBatch, labels: IndexArray, n_clusters: int) -> Stats:
    """Return the statistics of clusters 0, ..., n_clusters - 1, given labels (n,) of the rows."""
    return model.statistics_of_assignments(batch, np.eye(n_clusters, dtype=model.dtype)[labels])


def _assign_rows(model: Mixture, batch: RowBatch, stats: Stats) -> tuple[IndexArray, Array]:
    """Return each row's most probable cluster, and its log density under the mixture, (n,)."""
    params = model.row_globals(RunningStats(stats.arrays), batch, run_serially)
    result = model.local_step(batch, params, inv_temp=1.0, run=run_serially, with_stats=False)
    return stable_argmax(result.q), result.bound
