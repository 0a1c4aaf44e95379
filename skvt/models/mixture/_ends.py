"""Initial components: small clusters that differ from all other rows in few of many columns.

:func:`find_clusters_at_ends` is used for components that may share their distribution in some
columns.
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
_MAX_ROWS = 2_000
# Number of principal components, and of steps of the power method.
_DIRECTIONS = 6
_POWER_STEPS = 30
# Share of the rows with which EM for a cluster begins.
_FIRST_SHARE = 0.07
# Clusters whose rows have at most this weight are left out.
_MAX_DROPPED = 2.0
# Number of EM steps.
_EM_STEPS = 20
# In this number of first steps, the share of the cluster is raised to _FIRST_SHARE if it is less.
_STEPS_OF_FIRST_SHARE = 8
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
    highest bounds are returned. A cluster is left out if it shares at least half of its rows, or of
    the rows of a better cluster, with the better cluster. If no row belongs to a column of the
    result, also the first one, the column is left out.
    """
    sample = np.sort(rng.permutation(weights.size)[:_MAX_ROWS])
    features = np.asarray(dense(component.filled_features(X[sample])), np.float64)
    sample_weights = weights[sample]
    sums_of_all = (sample_weights @ features)[None]
    table_of_all = component.expected_table(component.natural_parameters(sums_of_all))
    end_rows = _find_end_rows(features, sample_weights, rng)
    fits = _fit_clusters(component, features, sample_weights, table_of_all, end_rows)
    chosen = _choose_clusters(fits, sample_weights, n_clusters)
    # (P, K): coefficients by which log densities under clusters exceed log densities of all rows.
    gain_table = (fits.table[chosen] - table_of_all).T
    return _assign_rows(component, X, weights.size, gain_table, np.log(fits.share[chosen]))


class _Fits(NamedTuple):
    """Mixtures of one cluster and all other rows, for M clusters and n sampled rows."""

    # (n, M): responsibilities of the clusters.
    resp: Array
    # (M,): expected weight of the rows of each cluster, and the weight of the cluster in its
    # mixture.
    mass: Array
    share: Array
    # (M, P): ``features @ table.T`` are expected log densities of rows under the clusters.
    table: Array
    # (M,): bound of the mixture minus the bound of one component for all rows, in nats and up to a
    # constant.
    bound: Array


def _fit_clusters(
    component: Component, features: Array, weights: Array, table_of_all: Array, resp: Array
) -> _Fits:
    """Fit each cluster by EM, which begins with the responsibilities ``resp`` (n, M).

    The component of all rows is fixed. Its table is ``table_of_all`` (1, P).
    """
    for step in range(_EM_STEPS):
        sums = (resp * weights[:, None]).T @ features
        mass = weights @ resp
        table = component.expected_table(component.natural_parameters(sums))
        min_share = _FIRST_SHARE if step < _STEPS_OF_FIRST_SHARE else _TINY
        share = np.clip(mass / weights.sum(), min_share, 0.5)
        # The log odds compare the cluster's component with the component of all rows.
        log_odds = features @ (table - table_of_all).T + np.log(share) - np.log1p(-share)
        resp = expit(log_odds)
    # Log density of the rows under the mixture minus log density under the component of all rows.
    bound = weights @ (np.logaddexp(0.0, log_odds) + np.log1p(-share))
    # Subtract the divergence of the posterior of the cluster's parameters from their prior.
    bound += component.log_evidence(sums) - (sums * table).sum(axis=1)
    return _Fits(resp, mass, share, table, bound)


def _choose_clusters(fits: _Fits, weights: Array, n_clusters: int) -> list[int]:
    """Return the indices of clusters in descending order of their bounds.

    Small clusters, and clusters that share rows with a better cluster, are left out.
    """
    chosen: list[int] = []
    for j in stable_order(-fits.bound, scale=float(weights.sum())).tolist():
        shared_mass = weights @ np.minimum(fits.resp[:, [j]], fits.resp[:, chosen])
        differs = np.all(2.0 * shared_mass < np.minimum(fits.mass[j], fits.mass[chosen]))
        if differs and fits.mass[j] > _MAX_DROPPED and len(chosen) < n_clusters:
            chosen.append(j)
    return chosen


def _assign_rows(
    component: Component, X: Any, n_rows: int, gain_table: Array, log_share: Array
) -> Array:
    """Assign each row to the best cluster, or to column 0 if the component of all rows is better.

    The product of features and ``gain_table`` (P, K) is the log density under each cluster minus
    the log density under the component of all rows. ``log_share`` (K,) are the log weights of the
    clusters. The component of all rows has the weight 1.
    """
    out = np.zeros((n_rows, 1 + log_share.size))
    for rows in pieces(n_rows, _ROWS_AT_ONCE):
        gains = component.filled_features(X[rows]) @ gain_table + log_share
        # Insert a column of zeros: the gain of the component of all rows over itself.
        labels = np.argmax(np.pad(np.asarray(gains), [(0, 0), (1, 0)]), axis=1)
        # ``out[rows]`` is a view, because ``rows`` is a slice.
        out[rows][np.arange(labels.size), labels] = 1.0
    return out[:, out.any(axis=0)]


def _find_end_rows(features: Array, weights: Array, rng: np.random.Generator) -> Array:
    """Return indicators (n, M) of the rows at each of the M ends of principal components.

    A principal component has two ends, where its scores are largest and smallest.
    """
    share = weights / weights.sum()
    standardised = standardise_columns(features, share)
    # Find the principal components by the power method.
    basis = rng.standard_normal((features.shape[1], min(_DIRECTIONS, *features.shape)))
    for _ in range(_POWER_STEPS):
        basis = np.linalg.qr(standardised.T @ (share[:, None] * (standardised @ basis)))[0]
    scores = standardised @ basis
    scores = np.concatenate([scores, -scores], axis=1)
    # The rank of a row is the share of the rows whose scores are at least as high.
    order = np.argsort(-scores, axis=0, kind="stable")
    ranks = np.empty(scores.shape)
    np.put_along_axis(ranks, order, np.cumsum(share[order], axis=0), axis=0)
    return 1.0 * (ranks <= _FIRST_SHARE)
