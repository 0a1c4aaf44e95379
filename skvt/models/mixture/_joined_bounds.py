"""Bounds of a mixture whose components are joined clusters, from statistics alone.

A cluster becomes one component, with the sums of the statistics and of the responsibilities of its
components. The bound is that of these responsibilities [HS13 eq. 8]: the evidence of weights and
components, plus the entropy of assignments.

Responsibilities are those under the final globals. The bound of the fit may have those before its
last update, so that differences from it are exact up to what one more pass would gain.
"""

import numpy as np

from skvt.contracts import Capability, Component
from skvt.expfam import Stats
from skvt.models.mixture._hierarchy import join_components
from skvt.models.mixture._joins import Joins
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._pairs import Assignments
from skvt.typing import Array, IndexArray


def joined_statistics(model: Mixture, stats: Stats, clusters: IndexArray) -> Stats:
    """Return the summed statistics of the clusters (K,) of components, in the best order."""
    members = np.eye(clusters.max() + 1)[:, clusters]
    counts, sums = (members @ array for array in stats.arrays)
    order = model.weights.order(counts)
    return Stats((counts[order], sums[order]))


def bounds_of_joins(
    model: Mixture, stats: Stats, assignments: Assignments, joins: Joins
) -> Array | None:
    """Return the bound at each number of clusters less that of the components, (K,) in nats.

    The result is None for models whose components cannot be merged.
    """
    if Capability.MERGEABLE not in model.capabilities:
        return None
    K = joins.n_components
    lost = join_components(assignments, relative=False, first_joins=joins.pairs(K - 1)).linkage[
        :, 2
    ]
    joined = [joins.clusters(n) for n in range(1, K + 1)]
    counts, sums = stats.arrays
    of_weights = np.empty(K)
    for n, clusters in enumerate(joined):
        rows = np.bincount(clusters, counts).astype(np.float64)
        of_weights[n] = model.weights_log_evidence(rows[model.weights.order(rows)])
    component = model.component
    if np.array_equal(component.log_evidence(sums), component.alone.log_evidence(sums)):
        evidence = _evidence_of_each(component, sums, joins)
    else:  # components share globals
        arrays = (joined_statistics(model, stats, clusters).arrays[1] for clusters in joined)
        evidence = np.array([component.log_evidence(sums).sum() for sums in arrays])
    energy = of_weights + evidence
    return energy - energy[-1] - float(counts.sum()) * np.append(lost[::-1], 0.0)


def _evidence_of_each(component: Component, sums: Array, joins: Joins) -> Array:
    """Return the evidence at 1, ..., K clusters, (K,), each cluster's being computed once."""
    pairs, of_clusters = joins.linkage[:, :2].astype(int), list(sums)
    for a, b in pairs:
        of_clusters.append(of_clusters[a] + of_clusters[b])
    each = component.log_evidence(np.array(of_clusters))
    gained = each[len(sums) :] - each[pairs].sum(axis=1)
    return np.append(each[: len(sums)].sum(), gained).cumsum()[::-1]
