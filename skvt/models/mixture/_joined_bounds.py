"""Bounds of a mixture whose components are joined into clusters, without a pass over the rows.

A hierarchy joins two clusters at a time, until one cluster is left. For each number of clusters,
each cluster becomes one component, which has the sums of the statistics and responsibilities of the
cluster's components. Given the summed responsibilities, the bound is the log evidence of weights
and components, plus the entropy of the responsibilities [HS13 eq. 8]. The results of a fit call
:func:`compute_join_bounds`.

The responsibilities are computed after the last update of the global parameters. The bound of the
fit may use responsibilities from before this update, and then differs by the gain of one more pass.
If the hierarchy has been built from a sample of the rows, the entropy of all rows is estimated by
the entropy of the sample.
"""

import numpy as np

from skvt.contracts import Capability, Component
from skvt.expfam import Stats
from skvt.models.mixture._joins import Joins, append_unions, indicate_clusters
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._pairs import Assignments
from skvt.typing import Array, IndexArray


def sum_joined_stats(model: Mixture, stats: Stats, clusters: IndexArray) -> Stats:
    """Return the statistics summed over the components of each cluster.

    ``clusters`` (K,) has the number of the cluster of each component. The result has the clusters
    in the best order for the prior of the weights, for example by descending count.
    """
    indicators = indicate_clusters(clusters)
    counts, sums = (indicators @ array for array in stats.arrays)
    order = model.weights.order(counts)
    return Stats((counts[order], sums[order]))


def compute_join_bounds(
    model: Mixture, stats: Stats, assignments: Assignments, joins: Joins
) -> Array | None:
    """Return the bounds at 1, ..., K clusters minus the bound of the K components, (K,) in nats.

    ``assignments`` are the responsibilities of the rows, and ``joins`` is the hierarchy. Return
    None for models whose components cannot be merged.
    """
    if Capability.MERGEABLE not in model.capabilities:
        return None
    # The entropy in nats per row that is lost by the first join, by the first two joins, and so on.
    losses_per_row = assignments.join_losses(joins.linkage).cumsum()
    # For 1, ..., K clusters, the cluster of each component (K,), and the counts of the clusters.
    clusterings = joins.all_component_clusters()
    counts, sums = stats.arrays
    joined_counts = (
        np.bincount(clusters, weights=counts).astype(np.float64) for clusters in clusterings
    )
    weights_evidence = np.array([model.weights_log_evidence(joined) for joined in joined_counts])
    # If components share no global parameters, which their log evidence shows, the evidence of a
    # cluster does not depend on the other clusters, and is computed once for each cluster.
    # Otherwise it is computed anew for each number of clusters.
    component = model.component
    if np.array_equal(
        component.log_evidence(sums), component.without_shared_globals.log_evidence(sums)
    ):
        components_evidence = _compute_evidence_from_joins(component, sums, joins)
    else:
        joined_stats = (sum_joined_stats(model, stats, clusters).arrays for clusters in clusterings)
        # S are the sums of features of the clusters, (n_clusters, P).
        components_evidence = np.array([component.log_evidence(S).sum() for _, S in joined_stats])
    log_evidence = weights_evidence + components_evidence
    # Reverse the losses, because joins lead from K clusters to one, and the result begins with one.
    lost_entropy = float(counts.sum()) * np.append(losses_per_row[::-1], 0.0)
    return log_evidence - log_evidence[-1] - lost_entropy


def _compute_evidence_from_joins(component: Component, sums: Array, joins: Joins) -> Array:
    """Return the log evidence at 1, ..., K clusters, (K,) in nats, computed once for each cluster.

    ``sums`` (K, P) are the sums of features of the K components. The clusters are the components
    and the K - 1 unions that the joins make.
    """
    # The first two columns of the linkage are the numbers of the clusters that are joined.
    pairs, K = joins.linkage[:, :2].astype(int), len(sums)
    log_evidence = component.log_evidence(append_unions(sums, pairs))
    # A join replaces the evidence of two clusters by the evidence of their union.
    evidence_gains = log_evidence[K:] - log_evidence[pairs].sum(axis=1)
    # Cumulative sums from K clusters to one, in reverse order.
    return np.append(log_evidence[:K].sum(), evidence_gains).cumsum()[::-1]
