"""Initial statistics of a mixture, from labels of rows or from means.

Estimators, and readers of labels, call these functions.
"""

from functools import partial
from typing import Any

import numpy as np

from skvt.contracts import RowBatch
from skvt.expfam import Stats
from skvt.models.mixture._gaussian_learner import get_gaussian_prior
from skvt.models.mixture._model import Mixture
from skvt.rows import pieces, sums_of_rows
from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Number of rows whose features are in memory at a time.
_ROWS_AT_ONCE = 4096


def initialise_from_labels(model: Mixture, X: Any, weights: Array, labels: IndexArray) -> Stats:
    """Return the statistics of K components whose rows X have the given labels.

    Labels (n,) are 0, ..., K - 1, each at least once, or -1 if unknown. A row without label is
    assigned to the component that explains it best after a fit to the labelled rows.
    """
    n_components = int(labels.max()) + 1
    stats = sum_by_label(model, X, weights, labels, n_components)
    unlabelled = np.flatnonzero(labels < 0)
    if unlabelled.size:
        component = model.component
        # (K, P): the table of expected log densities, given the labelled rows.
        _, sums = stats.arrays
        table = component.expected_table(component.natural_parameters(sums))
        labels = labels.copy()
        for chunk in pieces(unlabelled.size, _ROWS_AT_ONCE):
            rows = unlabelled[chunk]
            features = component.filled_features(X[rows])
            # If components are tied up to rounding, take the first one. Rounding errors are
            # relative to the sums of the absolute values of terms.
            magnitudes = (abs(features) @ np.abs(table).T).max(axis=1, keepdims=True)
            labels[rows] = stable_argmax(features @ table.T, scale=magnitudes)
        stats = sum_by_label(model, X, weights, labels, n_components)
    return stats


def initialise_from_means(model: Mixture, X: Array, weights: Array, means: Array) -> Stats:
    """Return the statistics of Gaussian components, each with the rows nearest to its mean.

    ``means`` are (K, D). Distances are measured in the metric of the prior's covariance, over the
    observed values. A component has no rows if every row is nearer to another mean.
    """
    # The Euclidean length of (row - mean) @ whitener is the distance in this metric.
    prior_covariance = get_gaussian_prior(model.component).covariance
    if np.ndim(prior_covariance) == 2:
        whitener = np.linalg.inv(np.linalg.cholesky(prior_covariance)).T
    else:
        # The prior has one variance, or a variance of each column.
        whitener = np.eye(X.shape[1]) / np.sqrt(prior_covariance)
    return Stats(sums_of_rows(X, weights, partial(_assign_to_means, model, whitener, means)))


def _assign_to_means(
    model: Mixture, whitener: Array, means: Array, X: Array, weights: Array
) -> tuple[Array, ...]:
    """Return the counts (K,) and sums (K, P) of components with the rows nearest to their means."""
    labels = np.empty(X.shape[0], np.intp)
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        # Differences of missing values are NaN, and become 0.
        whitened = (np.nan_to_num(X[rows] - mean) @ whitener for mean in means)
        # Squared distances (rows, K), summed in double precision.
        distances = np.array([np.einsum("nd,nd->n", z, z, dtype=np.float64) for z in whitened]).T
        labels[rows] = stable_argmax(-distances, scale=distances.max(axis=1, keepdims=True))
    return sum_by_label(model, X, weights, labels, len(means)).arrays


def sum_by_label(
    model: Mixture, X: Any, weights: Array, labels: IndexArray, n_components: int
) -> Stats:
    """Return the statistics of components that have the rows of one label each.

    They are the counts (K,) and the sums of features (K, P) with K = ``n_components``. Rows with
    the label -1 are left out.
    """
    # (K, 1) broadcasts to (K, P) in the first addition.
    counts, sums = np.zeros(n_components), np.zeros((n_components, 1))
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        resp = (labels[rows, None] == np.arange(n_components)).astype(np.float64)
        # The statistics do not depend on the argument ``rows``, which may have any indices.
        batch = RowBatch(X[rows], weights[rows], rows=np.arange(len(resp)))
        added_counts, added_sums = model.statistics_of_assignments(batch, resp).arrays
        counts, sums = counts + added_counts, sums + added_sums
    return Stats((counts, sums))
