"""Initial components: small clusters that differ from all other rows in few of many columns.

:mod:`skvt.models.mixture._seeds` calls :func:`find_clusters_at_ends` for components that may share
their distribution in some columns.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from skvt.contracts import Component
from skvt.models.mixture.components import standardise_columns
from skvt.rows import dense, pieces
from skvt.ties import stable_order
from skvt.typing import Array

# Maximum number of rows among which clusters are searched for.
_MAX_SAMPLE_ROWS = 2_000
# Number of principal components, and of steps of the power method.
_N_PRINCIPAL_COMPONENTS = 6
_POWER_STEPS = 30
# Share of the rows with which EM for a cluster begins.
_INITIAL_CLUSTER_SHARE = 0.07
# Clusters whose rows have at most this weight are left out.
_MAX_WEIGHT_TO_DROP = 2.0
# Number of EM steps.
_EM_STEPS = 20
# Number of first steps in which the weight of the cluster is at least _INITIAL_CLUSTER_SHARE.
_N_STEPS_OF_RAISED_SHARE = 8
# Number of rows that are assigned at a time.
_ROWS_AT_ONCE = 1024
_TINY = float(np.finfo(np.float64).tiny)


def find_clusters_at_ends(
    component: Component, X: Any, weights: Array, n_clusters: int, rng: np.random.Generator
) -> Array:
    """Return one-hot responsibilities (n, K): other rows first, then up to ``n_clusters`` clusters.

    A small cluster that differs from the other rows in a few columns lies at an end of a principal
    component of the features. For each end, EM begins with the rows at this end and fits a mixture
    of two components: one for the cluster, and a fixed one for all rows. The clusters with the
    highest bounds are returned. A cluster is left out if it shares at least half of its rows with a
    better cluster, or half of the rows of the better cluster. Columns of the result to which no row
    belongs are left out, even the first column.
    """
    sample_rows = np.sort(rng.permutation(weights.size)[:_MAX_SAMPLE_ROWS])
    features = np.asarray(dense(component.filled_features(X[sample_rows])), np.float64)
    sample_weights = weights[sample_rows]
    total_sums = (sample_weights @ features)[None]
    table_of_all_rows = component.expected_table(component.natural_parameters(total_sums))
    end_rows = _find_end_rows(features, sample_weights, rng)
    fits = _fit_clusters(component, features, sample_weights, table_of_all_rows, end_rows)
    best = _choose_clusters(fits, sample_weights, n_clusters)
    # (P, K): the product of features and this table is the log density under each cluster minus the
    # log density under the component of all rows.
    gain_table = (fits.table[best] - table_of_all_rows).T
    return _assign_rows(component, X, weights.size, gain_table, np.log(fits.shares[best]))


class _ClusterFits(NamedTuple):
    """Mixtures of one cluster and all other rows, for M clusters and n sampled rows."""

    # (n, M): responsibilities of the clusters.
    resp: Array
    # (M,) each: expected weight of the rows of a cluster, and weight of the cluster in its mixture.
    masses: Array
    shares: Array
    # (M, P): ``features @ table.T`` are expected log densities of rows under the clusters.
    table: Array
    # (M,): bound of the mixture minus the bound of one component for all rows, in nats and up to a
    # constant.
    bounds: Array


def _fit_clusters(
    component: Component, features: Array, weights: Array, table_of_all_rows: Array, resp: Array
) -> _ClusterFits:
    """Fit each cluster by EM, which begins with the responsibilities ``resp`` (n, M).

    The component of all rows is fixed. Its table is ``table_of_all_rows`` (1, P).
    """
    for step in range(_EM_STEPS):
        sums = (resp * weights[:, None]).T @ features
        masses = weights @ resp
        table = component.expected_table(component.natural_parameters(sums))
        min_share = _INITIAL_CLUSTER_SHARE if step < _N_STEPS_OF_RAISED_SHARE else _TINY
        shares = np.clip(masses / weights.sum(), min_share, 0.5)
        # (n, M): log odds of the cluster's component against the component of all rows.
        log_odds = features @ (table - table_of_all_rows).T + np.log(shares) - np.log1p(-shares)
        resp = expit(log_odds)
    # Log density of the rows under the mixture minus log density under the component of all rows.
    bounds = weights @ (np.logaddexp(0.0, log_odds) + np.log1p(-shares))
    # Subtract the divergence of the posterior of the cluster's parameters from their prior.
    bounds += component.log_evidence(sums) - (sums * table).sum(axis=1)
    return _ClusterFits(resp, masses, shares, table, bounds)


def _choose_clusters(fits: _ClusterFits, weights: Array, n_clusters: int) -> list[int]:
    """Return the indices of clusters in descending order of their bounds.

    Small clusters, and clusters that share rows with a better cluster, are left out.
    """
    best: list[int] = []
    for j in stable_order(-fits.bounds, scale=float(weights.sum())).tolist():
        shared_masses = weights @ np.minimum(fits.resp[:, [j]], fits.resp[:, best])
        is_distinct = np.all(2.0 * shared_masses < np.minimum(fits.masses[j], fits.masses[best]))
        if is_distinct and fits.masses[j] > _MAX_WEIGHT_TO_DROP and len(best) < n_clusters:
            best.append(j)
    return best


def _assign_rows(
    component: Component, X: Any, n_rows: int, gain_table: Array, log_shares: Array
) -> Array:
    """Assign each row to the best cluster, or to column 0 if the component of all rows is better.

    ``log_shares`` (K,) are the log weights of the clusters. The component of all rows has the
    weight 1.
    """
    resp = np.zeros((n_rows, 1 + log_shares.size))
    for rows in pieces(n_rows, _ROWS_AT_ONCE):
        gains = component.filled_features(X[rows]) @ gain_table + log_shares
        # Insert a column of zeros: the gain of the component of all rows over itself.
        labels = np.argmax(np.pad(np.asarray(gains), [(0, 0), (1, 0)]), axis=1)
        # ``resp[rows]`` is a view, because ``rows`` is a slice.
        resp[rows][np.arange(labels.size), labels] = 1.0
    return resp[:, resp.any(axis=0)]


def _find_end_rows(features: Array, weights: Array, rng: np.random.Generator) -> Array:
    """Return indicators (n, M) of the rows at each of the M ends of principal components.

    A principal component has two ends, where its scores are largest and smallest.
    """
    row_shares = weights / weights.sum()
    standardised = standardise_columns(features, row_shares)
    # Find the principal components by the power method.
    basis = rng.standard_normal((features.shape[1], min(_N_PRINCIPAL_COMPONENTS, *features.shape)))
    for _ in range(_POWER_STEPS):
        basis = np.linalg.qr(standardised.T @ (row_shares[:, None] * (standardised @ basis)))[0]
    scores = standardised @ basis
    scores = np.concatenate([scores, -scores], axis=1)
    # The rank of a row is the share of the rows whose scores are at least as high.
    order = np.argsort(-scores, axis=0, kind="stable")
    ranks = np.empty(scores.shape)
    np.put_along_axis(ranks, order, np.cumsum(row_shares[order], axis=0), axis=0)
    return 1.0 * (ranks <= _INITIAL_CLUSTER_SHARE)
