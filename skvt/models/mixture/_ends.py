"""Initial components: small clusters that differ from all other rows in few of many columns.

:func:`find_clusters_at_ends` serves components that may have a common distribution in some columns.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from skvt.contracts import Component
from skvt.rows import dense, pieces
from skvt.ties import stable_order
from skvt.typing import Array

# Maximum number of rows among which clusters are searched for.
_MOST_ROWS = 2_000
# Number of principal components, and of steps of the power method.
_DIRECTIONS = 6
_POWER_STEPS = 30
# Share of the rows with which EM for a cluster begins.
_FIRST_SHARE = 0.07
# Clusters of at most this weight are dropped.
_LARGEST_DROPPED = 2.0
# Number of EM steps, and of first steps in which a cluster's share is raised to _FIRST_SHARE.
_EM_STEPS = 20
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
    highest bounds are returned, except clusters that share half of their rows or more with a better
    one.
    """
    sample = np.sort(rng.permutation(weights.size)[:_MOST_ROWS])
    features = np.asarray(dense(component.filled_features(X[sample])), np.float64)
    sample_weights = weights[sample]
    resp = _find_end_rows(features, sample_weights, rng)
    sums_of_all = (sample_weights @ features)[None]
    table_of_all = component.expected_table(component.natural_parameters(sums_of_all))
    # Fit each cluster by EM. The log odds compare its component with the component of all rows.
    for step in range(_EM_STEPS):
        sums = (resp * sample_weights[:, None]).T @ features
        mass = sample_weights @ resp
        table = component.expected_table(component.natural_parameters(sums))
        min_share = _FIRST_SHARE if step < _STEPS_OF_FIRST_SHARE else _TINY
        share = np.clip(mass / sample_weights.sum(), min_share, 0.5)
        log_odds = features @ (table - table_of_all).T + np.log(share) - np.log1p(-share)
        resp = expit(log_odds)
    # Compute the bound of the two components less the bound of one component, up to a constant.
    bound = sample_weights @ (np.logaddexp(0.0, log_odds) + np.log1p(-share))
    bound += component.log_evidence(sums) - (sums * table).sum(axis=1)
    # Choose clusters in descending order of the bound, unless they share rows with chosen ones.
    chosen: list[int] = []
    for j in stable_order(-bound, scale=float(sample_weights.sum())).tolist():
        shared_mass = sample_weights @ np.minimum(resp[:, [j]], resp[:, chosen])
        differs = np.all(2.0 * shared_mass < np.minimum(mass[j], mass[chosen]))
        if differs and mass[j] > _LARGEST_DROPPED and len(chosen) < n_clusters:
            chosen.append(j)
    # Assign each row to the best of the chosen clusters, or to column 0 if none is better than the
    # component of all rows.
    table_difference = (table[chosen] - table_of_all).T
    log_share = np.log(share[chosen])
    out = np.zeros((weights.size, 1 + len(chosen)))
    for rows in pieces(weights.size, _ROWS_AT_ONCE):
        gains = component.filled_features(X[rows]) @ table_difference + log_share
        labels = np.argmax(np.pad(np.asarray(gains), [(0, 0), (1, 0)]), axis=1)
        out[rows][np.arange(labels.size), labels] = 1.0
    return out[:, out.any(axis=0)]


def _find_end_rows(features: Array, weights: Array, rng: np.random.Generator) -> Array:
    """Return indicators (n, M) of the rows at each of the M ends of principal components."""
    share = weights / weights.sum()
    standardised = features - share @ features
    deviation = np.sqrt(share @ standardised**2)
    standardised /= np.where(deviation > 0.0, deviation, np.inf)
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
