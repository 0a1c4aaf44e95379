"""Bounds of a mixture whose components are joined into clusters, without a pass over the rows.

A hierarchy joins two clusters at a time, until one cluster is left. For each number of clusters,
each cluster becomes one component, which has the sums of the statistics and responsibilities of the
cluster's components. The bound at these responsibilities is the evidence of weights and components,
plus the entropy of assignments [HS13 eq. 8].

The bounds of this module use responsibilities under the final global parameters, weights and
components. The bound of the fit may use the responsibilities before the last update of the global
parameters. The difference between a bound of this module and the bound of the fit is therefore
exact up to the gain of one more pass. If the hierarchy has been built from a sample of the rows,
the entropy of all rows is estimated by the entropy of the sample.
"""

import numpy as np

from skvt.contracts import Capability, Component
from skvt.expfam import Stats
from skvt.models.mixture._joins import Joins, cluster_indicators, with_unions
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._pairs import Assignments
from skvt.typing import Array, IndexArray


def sum_joined_stats(model: Mixture, stats: Stats, clusters: IndexArray) -> Stats:
    """Return the statistics summed over the components of each cluster.

    ``clusters`` (K,) has the number of the cluster of each component. The result has the clusters
    in the best order for the prior of the weights, for example by descending count.
    """
    indicators = cluster_indicators(clusters)
    counts, sums = (indicators @ array for array in stats.arrays)
    order = model.weights.order(counts)
    return Stats((counts[order], sums[order]))


def compute_join_bounds(
    model: Mixture, stats: Stats, assignments: Assignments, joins: Joins
) -> Array | None:
    """Return the bound at 1, ..., K clusters minus the bound of the components, (K,) in nats.

    ``assignments`` are the responsibilities of the rows, and ``joins`` is the hierarchy. Return
    None for models whose components cannot be merged.
    """
    if Capability.MERGEABLE not in model.capabilities:
        return None
    # The entropy in nats per row that is lost by the first join, by the first two joins, and so on.
    lost_entropy = assignments.join_losses(joins.linkage).cumsum()
    # For 1, ..., K clusters, the cluster of each component (K,), and the counts of the clusters.
    clusters_by_number = joins.all_component_clusters()
    counts, sums = stats.arrays
    joined_counts = (np.bincount(c, counts).astype(np.float64) for c in clusters_by_number)
    weights_evidence = np.array([model.weights_log_evidence(joined) for joined in joined_counts])
    # If components share global parameters, the evidence of a cluster depends on the other clusters
    # and is computed anew for each number of clusters. Otherwise it is computed once for each
    # cluster. Components share global parameters if the evidence differs without them.
    component = model.component
    if np.array_equal(
        component.log_evidence(sums), component.without_shared_globals.log_evidence(sums)
    ):
        evidence = _evidence_from_joins(component, sums, joins)
    else:
        joined_stats = (sum_joined_stats(model, stats, c).arrays for c in clusters_by_number)
        # S are the sums of features of the clusters, (n_clusters, P).
        evidence = np.array([component.log_evidence(S).sum() for _, S in joined_stats])
    energy = weights_evidence + evidence
    # Reverse the losses, because joins lead from K clusters to one, and the result begins with one.
    return energy - energy[-1] - float(counts.sum()) * np.append(lost_entropy[::-1], 0.0)


def _evidence_from_joins(component: Component, sums: Array, joins: Joins) -> Array:
    """Return the evidence at 1, ..., K clusters, (K,) in nats, computed once for each cluster.

    Clusters are the K components with the sums of features ``sums``, and the K - 1 unions.
    """
    pairs, K = joins.linkage[:, :2].astype(int), len(sums)
    evidence = component.log_evidence(with_unions(sums, pairs))
    # A join replaces the evidence of two clusters by the evidence of their union.
    gained = evidence[K:] - evidence[pairs].sum(axis=1)
    # Cumulative sums from K clusters to one, in reverse order.
    return np.append(evidence[:K].sum(), gained).cumsum()[::-1]
