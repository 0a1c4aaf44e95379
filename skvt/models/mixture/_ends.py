"""Clusters that differ from all other rows in few of many columns."""

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
# Share of the rows with which clusters begin, and smallest number of rows of a cluster.
_SHARE = 0.07
_FEWEST_ROWS = 2.0
# Number of EM steps, and of the first steps in which a cluster has at least the smallest share.
_STEPS = 20
_STEPS_OF_MIN_SHARE = 8
# Number of rows that are assigned at a time.
_ROWS_AT_ONCE = 1024
_TINY = float(np.finfo(np.float64).tiny)


def clusters_at_ends(
    component: Component, X: Any, weights: Array, n_clusters: int, rng: np.random.Generator
) -> Array:
    """Return one-hot responsibilities (n, K): other rows first, then up to ``n_clusters`` clusters.

    A small cluster that differs from the other rows in a few columns lies at an end of a principal
    component of the features. EM begins with the rows at each end. It fits one component beside
    that of all rows, whose parameters are kept. The clusters with the highest bounds that share
    less than half of their rows are returned.
    """
    sample = np.sort(rng.permutation(weights.size)[:_MOST_ROWS])
    features = np.asarray(dense(component.filled_features(X[sample])), np.float64)
    sample_weights = weights[sample]
    resp = _find_end_rows(features, sample_weights, rng)
    all_rows = component.table(component.natural_parameters((sample_weights @ features)[None]))
    # Fit each cluster by EM. The log odds ``gain`` compare its component with that of all rows.
    for step in range(_STEPS):
        sums = (resp * sample_weights[:, None]).T @ features
        mass = sample_weights @ resp
        table = component.table(component.natural_parameters(sums))
        min_share = _SHARE if step < _STEPS_OF_MIN_SHARE else _TINY
        share = np.clip(mass / sample_weights.sum(), min_share, 0.5)
        gain = features @ (table - all_rows).T + np.log(share) - np.log1p(-share)
        resp = expit(gain)
    # The bound is that of both components less that of one for all rows, without constants.
    bound = sample_weights @ (np.logaddexp(0.0, gain) + np.log1p(-share))
    bound += component.log_evidence(sums) - (sums * table).sum(axis=1)
    # Choose clusters in descending order of the bound, unless they share rows with chosen ones.
    chosen: list[int] = []
    for j in stable_order(-bound, scale=float(sample_weights.sum())).tolist():
        common = sample_weights @ np.minimum(resp[:, [j]], resp[:, chosen])
        differs = np.all(2.0 * common < np.minimum(mass[j], mass[chosen]))
        if differs and mass[j] > _FEWEST_ROWS and len(chosen) < n_clusters:
            chosen.append(j)
    # Assign all rows to the best of the chosen clusters, or to the other rows.
    difference = (table[chosen] - all_rows).T
    constant = np.log(share[chosen])
    out = np.zeros((weights.size, 1 + len(chosen)))
    for rows in pieces(weights.size, _ROWS_AT_ONCE):
        fits = component.filled_features(X[rows]) @ difference + constant
        labels = np.argmax(np.pad(np.asarray(fits), [(0, 0), (1, 0)]), axis=1)
        out[rows][np.arange(labels.size), labels] = 1.0
    return out[:, out.any(axis=0)]


def _find_end_rows(features: Array, weights: Array, rng: np.random.Generator) -> Array:
    """Return indicators (n, M) of the rows at both ends of each principal component."""
    share = weights / weights.sum()
    standardised = features - share @ features
    deviation = np.sqrt(share @ standardised**2)
    standardised /= np.where(deviation > 0.0, deviation, np.inf)
    # Find the principal components by the power method.
    basis = rng.standard_normal((features.shape[1], min(_DIRECTIONS, *features.shape)))
    for _ in range(_POWER_STEPS):
        basis = np.linalg.qr(standardised.T @ (share[:, None] * (standardised @ basis)))[0]
    values = standardised @ basis
    values = np.concatenate([values, -values], axis=1)
    # The rank of a row is the share of the rows up to it, from the end of the component.
    order = np.argsort(-values, axis=0, kind="stable")
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, np.cumsum(share[order], axis=0), axis=0)
    return 1.0 * (ranks <= _SHARE)
