"""Bounds of a mixture whose components are joined into clusters, without a pass over the rows.

Each cluster becomes one component. The statistics and the responsibilities of its components are
summed. The bound at these responsibilities is the evidence of weights and components, plus the
entropy of assignments [HS13 eq. 8].

The bounds of this module use responsibilities under the final globals. The bound of the fit may use
the responsibilities before the last update of the globals. The difference between a bound of this
module and the bound of the fit is therefore exact up to the gain of one more pass. If the hierarchy
has been built from a sample of the rows, entropies of all rows are estimated by entropies of the
sample.
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

    Return None for models whose components cannot be merged.
    """
    if Capability.MERGEABLE not in model.capabilities:
        return None
    # Compute the entropy in nats per row that is lost by the first join, the first two joins, etc.
    lost = assignments.join_losses(joins.linkage).cumsum()
    clusters_by_number = joins.all_component_clusters()
    counts, sums = stats.arrays
    rows = (np.bincount(c, counts).astype(np.float64) for c in clusters_by_number)
    weights_evidence = np.array([model.weights_log_evidence(of_number) for of_number in rows])
    # If components share globals, the evidence of a cluster depends on the other clusters and is
    # computed anew for each number of clusters. Otherwise it is computed once for each cluster.
    # Components share globals if their evidence changes when shared globals are left out.
    component = model.component
    if np.array_equal(
        component.log_evidence(sums), component.without_shared_globals.log_evidence(sums)
    ):
        evidence = _evidence_from_joins(component, sums, joins)
    else:
        joined = (sum_joined_stats(model, stats, c).arrays for c in clusters_by_number)
        evidence = np.array(
            [component.log_evidence(joined_sums).sum() for _, joined_sums in joined]
        )
    energy = weights_evidence + evidence
    # Joins lead from K clusters to one, and the result begins with one: reverse the losses.
    return energy - energy[-1] - float(counts.sum()) * np.append(lost[::-1], 0.0)


def _evidence_from_joins(component: Component, sums: Array, joins: Joins) -> Array:
    """Return the evidence at 1, ..., K clusters, (K,), computed once for each cluster.

    Clusters are the K components with the statistics ``sums``, and the K - 1 unions.
    """
    pairs = joins.linkage[:, :2].astype(int)
    evidence = component.log_evidence(with_unions(sums, pairs))
    gained = evidence[len(sums) :] - evidence[pairs].sum(axis=1)
    return np.append(evidence[: len(sums)].sum(), gained).cumsum()[::-1]
