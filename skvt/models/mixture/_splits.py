"""Clusters split in two until there are as many as asked for."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.compiled import serial_map
from skvt.contracts import RowBatch
from skvt.expfam import RunningStats, Stats
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import StickBreaking
from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Number of rows, on average, for each seed from which priors are learned.
_ROWS_OF_SEED = 5
# Passes in which rows choose their clusters again, after a split and after all splits.
_MOST_PASSES = 10


def rows_that_differ(X: Any) -> tuple[IndexArray, IndexArray]:
    """Return the first row of each kind, and for each row (n,) the number of its kind."""
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        parts = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        keys = [(X.indices[a:b].tobytes(), X.data[a:b].tobytes()) for a, b in parts]
    else:
        # (0.0 turns -0.0 into 0.0)
        keys = [(row.tobytes(), b"") for row in np.ascontiguousarray(X + 0.0)]
    numbers: dict[tuple[bytes, bytes], int] = {}
    kinds = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.intp)
    return np.unique(kinds, return_index=True)[1], kinds


def split_clusters(
    model: Mixture, X: Any, weights: Array, labels: IndexArray, n_clusters: int,
    rng: np.random.Generator,
) -> IndexArray:  # fmt: skip
    """Split clusters in two, the one that gains most evidence first, until there are n_clusters.

    Each half begins with a seed by k-means++ and is fitted, rows belonging to one component each,
    under priors that are learned for clusters of that number. At last all rows choose among all
    clusters, as long as none becomes empty.

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
        0, ..., n_clusters - 1, each at least once; clusters made of the same label follow each
        other.
    """
    batch = model.batch(X, np.arange(weights.size), weights)
    model = _for_smaller_clusters(model, batch, n_clusters, rng)
    sources, labels = np.unique(labels, return_inverse=True)
    origins = sources.tolist()
    halves = {k: _halves(model, X, weights, labels, k, rng) for k in range(len(origins))}
    while len(origins) < n_clusters:
        gains = np.array([halves[k][0] for k in range(len(origins))])
        chosen = int(stable_argmax(gains, scale=float(weights.sum())))
        second, born = halves[chosen][1], len(origins)
        labels[second] = born
        origins.append(origins[chosen])
        for k in (chosen, born):
            halves[k] = _halves(model, X, weights, labels, k, rng)
    labels = _settled(model, batch, labels, n_clusters)
    ranks = np.empty(n_clusters, np.intp)
    ranks[np.argsort(origins, kind="stable")] = np.arange(n_clusters)
    return ranks[labels]


def _for_smaller_clusters(
    model: Mixture, batch: RowBatch, n_clusters: int, rng: np.random.Generator
) -> Mixture:
    """The model under priors learned from as many seeds, where it learns its priors.

    The priors of the fit expect components of the size that it has found. Weights that are known
    belong to these components, so that they are replaced.
    """
    number = min(n_clusters, max(1, batch.n_rows // _ROWS_OF_SEED))
    model = replace(model, weights=StickBreaking(1.0), learns_concentration=False)
    stats = model.seeded_statistics(batch, number, "k-means++", rng)
    for _ in range(_MOST_PASSES):
        model = model.with_learned_priors(None, RunningStats(stats.arrays))
        labels = np.unique(_nearest(model, batch, stats)[0], return_inverse=True)[1]
        stats = _statistics(model, batch, labels, int(labels.max()) + 1)
    return model


def _halves(
    model: Mixture, X: Any, weights: Array, labels: IndexArray, k: int, rng: np.random.Generator
) -> tuple[float, IndexArray]:
    """The gain of a split of cluster k in nats, -inf of a single row, and its second half."""
    rows = np.flatnonzero(labels == k)
    if rows.size == 1:
        return -np.inf, rows
    batch = model.batch(X[rows], np.arange(rows.size), weights[rows])
    whole = _statistics(model, batch, np.zeros(rows.size, np.intp), 1)
    halves, _ = _nearest(model, batch, model.seeded_statistics(batch, 2, "k-means++", rng))
    if np.unique(halves).size < 2:
        # the row that the whole explains worst
        worst = stable_argmax(-_nearest(model, batch, whole)[1])
        halves = (np.arange(rows.size) == worst).astype(np.intp)
    halves = _settled(model, batch, halves, 2)
    two = _statistics(model, batch, halves, 2)
    gain = model.collapsed_energy(two) - model.collapsed_energy(whole)
    return float(gain), rows[halves == 1]


def _settled(model: Mixture, batch: RowBatch, labels: IndexArray, number: int) -> IndexArray:
    """Labels after each row has chosen its best cluster a few times; none becomes empty."""
    for _ in range(_MOST_PASSES):
        chosen, _ = _nearest(model, batch, _statistics(model, batch, labels, number))
        if np.array_equal(chosen, labels) or np.unique(chosen).size < number:
            break
        labels = chosen
    return labels


def _statistics(model: Mixture, batch: RowBatch, labels: IndexArray, number: int) -> Stats:
    stats = model.given_assignments(batch, np.eye(number, dtype=model.dtype)[labels]).stats
    assert stats is not None
    return stats


def _nearest(model: Mixture, batch: RowBatch, stats: Stats) -> tuple[IndexArray, Array]:
    """The most probable cluster of each row, and its log density under all, (n,)."""
    params = model.row_globals(RunningStats(stats.arrays), batch, serial_map)
    result = model.local_step(batch, params, 1.0, serial_map, with_stats=False)
    return stable_argmax(result.q), result.bound
