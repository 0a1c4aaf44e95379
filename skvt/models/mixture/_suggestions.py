"""Rules that suggest a number of clusters, and the hierarchies of joins that lead to this number.

A hierarchy joins the components of a mixture to clusters, two at a time. Three criteria choose the
pairs: valleys of the density between clusters, the entropy of the assignments of rows that a join
loses, and the evidence that a join loses. :func:`choose_clusters` combines the three criteria, and
:func:`choose_by_elbow` uses the evidence alone. The results of a fit call both functions.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skvt.models.mixture._distinctness import Distinctness, Evidence
from skvt.models.mixture._hierarchy import join_components, make_hierarchy
from skvt.models.mixture._joins import (
    LOSS_SHARE_BEFORE_ELBOW,
    LOSS_SHARE_OF_ONE_MODE,
    LOSS_SHARE_WITHOUT_VALLEY,
    SIGNIFICANT_VALLEY,
    Joins,
    append_unions,
)
from skvt.models.mixture._pairs import Assignments, JoinCriterion
from skvt.typing import IndexArray

# In the sequence of joins, the losses of evidence after an elbow are larger than the losses before
# it by at least this factor.
_MIN_EVIDENCE_SLOPE_RATIO = 1.8
# The minimum factor if the weight of a join is ``m_a m_b / (m_a + m_b)``, see `choose_by_elbow`.
_MIN_BALANCED_SLOPE_RATIO = 1.5
# Minimum number of rows of a group that is not joined although the join is before the elbow of the
# evidence. Smaller groups may be a few unusual rows.
_MIN_ROWS_OF_GROUP = 8.0
# There is a valley between two clusters if the log density of the rows between them is lower than
# the log density of the rows of each cluster by more than this number of nats, see
# `Assignments.valley_depths`.
_MIN_VALLEY_DEPTH = 0.1


def separate_by_valleys(valleys: JoinCriterion) -> IndexArray:
    """Join components until valleys separate all clusters; return the cluster of each, (K,)."""
    joins = join_components(valleys, is_relative=False)
    # Stop before the first join across a significant valley. The first ``n_vacant`` joins are made
    # in any case, because they join components without rows.
    is_made = (joins.losses < SIGNIFICANT_VALLEY) | (np.arange(len(joins.losses)) < joins.n_vacant)
    # Find the first False. The appended False counts if all joins are made.
    n_joins = int(np.argmin(np.append(is_made, False)))
    return joins.component_clusters(joins.n_components - n_joins)


def choose_clusters(
    assignments: Assignments, evidence: Evidence, valley_assignments: Assignments | None,
    valleys: JoinCriterion | None,
) -> Joins:  # fmt: skip
    """Return the hierarchy of joins with the suggested number of clusters, by one of three rules.

    - If components have fewer rows than statistics on average, even components of one cluster
      hardly overlap. The evidence alone then gives the hierarchy, and its elbow gives the number.
      If there is no elbow, the next rules apply.
    - If ``valleys`` is not None, tests of valleys give the suggested clusters. Within a cluster,
      the least distinct components are joined first.
    - Otherwise the entropy gives the hierarchy and the number, see `LOSS_SHARE_OF_ONE_MODE`.
      Components that overlap less are joined, too, up to the first valley of the density. The
      assignments ``valley_assignments`` have the log densities of the rows; None if the density
      has no valleys.

    Below the suggested number of clusters, the least distinct clusters are joined first.
    """
    n_with_rows = int(np.count_nonzero(~assignments.is_vacant))
    if n_with_rows == 1:
        return replace(join_components(assignments), reason="no other component has rows")
    if evidence.rows_per_statistic < 1.0:
        joins = choose_by_elbow(
            assignments, evidence, "with few rows and many columns components hardly overlap"
        )
        if joins.n_clusters < n_with_rows:
            return joins
    if valleys is not None:
        n_clusters = int(valleys.clusters.max()) + 1
        # Each join reduces the number of clusters by one.
        n_by_valley = valleys.proportions.size - n_clusters
        distinctness = Distinctness(assignments, evidence, None, valleys.clusters)
        joins_by_distinctness = join_components(distinctness, is_relative=False)
        # Make the same joins again, so that the heights of the hierarchy are losses of entropy.
        entropy_joins = make_hierarchy(assignments, joins_by_distinctness.linkage)
        # The reasons for one cluster, for several clusters of joined components, and for no joins.
        reasons = (
            "no valley separates the components",
            "components that no valley separates are joined",
            "valleys separate all components",
        )
    else:
        n_by_valley = 0
        entropy_joins = join_components(assignments)
        n_clusters = entropy_joins.count_clusters_at_share(LOSS_SHARE_OF_ONE_MODE)
        if valley_assignments is not None:
            n_clusters = _count_until_valley(entropy_joins, valley_assignments, n_clusters)
        counts = assignments.proportions * evidence.n_rows
        n_clusters = entropy_joins.count_clusters_at_elbow(n_clusters, counts)
        reasons = (
            "all components overlap, and no valley of the density separates them",
            "components that overlap are joined",
            "no two components overlap so much that they are one cluster",
        )
    reason = reasons[0 if n_clusters == 1 else 1 if n_clusters < n_with_rows else 2]
    result = replace(entropy_joins, n_suggested=n_clusters, n_by_valley=n_by_valley, reason=reason)
    if n_clusters == 1:
        return result
    # Keep the joins down to the suggested number, and continue with joins by distinctness, as if
    # all components were in one suggested cluster. Heights of a hierarchy are cumulative losses.
    n_kept = entropy_joins.n_components - n_clusters
    one_cluster = np.zeros(entropy_joins.n_components, int)
    distinctness = Distinctness(assignments, evidence, valleys, one_cluster)
    kept_joins = entropy_joins.linkage[:n_kept]
    joins = join_components(distinctness, is_relative=False, first_joins=kept_joins)
    losses = np.append(entropy_joins.losses[:n_kept], joins.losses[n_kept:])
    joins.linkage[:, 2] = losses.cumsum()
    shares = np.append(entropy_joins.shares[:n_kept], joins.shares[n_kept:])
    return replace(
        result, linkage=joins.linkage, shares=shares, masses=joins.masses, n_by_entropy=n_kept
    )


def _count_until_valley(joins: Joins, assignments: Assignments, n_clusters: int) -> int:
    """Continue the joins from ``n_clusters`` clusters on; return the number of clusters at the end.

    The joins end before the first join of two clusters that are apart. Two clusters are apart if
    the density has a valley between them, or if their join loses less than the share
    LOSS_SHARE_WITHOUT_VALLEY of the largest possible loss of entropy.
    """
    have_valley = assignments.valley_depths(joins) > _MIN_VALLEY_DEPTH
    are_apart = have_valley | (joins.shares < LOSS_SHARE_WITHOUT_VALLEY)
    # Count the further joins before the first True. The appended True follows the last join.
    are_apart = are_apart[joins.n_components - n_clusters :]
    return n_clusters - int(np.argmax(np.append(are_apart, True)))


def choose_by_elbow(assignments: Assignments, evidence: Evidence, reason: str) -> Joins:
    """Return the hierarchy by the evidence alone, with the number of clusters at its elbow.

    ``reason`` says why the evidence alone is used. If there is no elbow, the suggested number is
    the number of components with rows. The elbow is found in the losses of evidence per row of the
    joined clusters.

    An elbow counts only if two more conditions hold.

    - The losses per weight of a join are at least _MIN_BALANCED_SLOPE_RATIO times as large after
      the elbow as before it, if the weight is ``m_a m_b / (m_a + m_b)`` in place of the number of
      rows. Here m are the shares of the rows in the two clusters. The reason is that a small
      cluster that is joined to a large one loses little evidence per row, however distinct it is:
      normal clusters at a small distance lose evidence in proportion to this weight.
    - One of the last two joins before the elbow unites clusters that overlap: it loses at least the
      share LOSS_SHARE_BEFORE_ELBOW of the largest possible loss of entropy. The reason is that
      separated clusters may have an elbow, too, because a union of more clusters is wide in more
      directions, and because a few rows that are far from all others make each union wide.

    For the same reason as in the first condition, a rare group may be joined to a large cluster
    before the elbow. Therefore the smaller cluster of a join stays alone if the loss per weight is
    larger than in all joins after the elbow together.
    """
    joins = join_components(evidence, is_relative=False)
    n_joins = joins.elbow(n_after=1, max_ratio=1.0 / _MIN_EVIDENCE_SLOPE_RATIO)
    clusters = np.empty(0, int)
    if n_joins:
        # (K - 1,) each: the shares of the rows in the two clusters of each join.
        pairs = joins.linkage[:, :2].astype(int)
        share_a, share_b = append_unions(evidence.proportions, pairs)[pairs.T]
        # A union of components without rows may have the mass 0.
        masses = np.maximum(joins.masses, np.finfo(np.float64).tiny)
        weights = share_a * share_b / masses
        slope_before, slope_after = joins.compute_slopes(n_joins, weights)
        is_steeper = slope_after >= _MIN_BALANCED_SLOPE_RATIO * slope_before
        n_first = joins.n_vacant + n_joins
        overlap_shares = make_hierarchy(assignments, pairs).shares[:n_first]
        if is_steeper and overlap_shares[-2:].max() >= LOSS_SHARE_BEFORE_ELBOW:
            are_separate = joins.losses[:n_first] > slope_after * weights[:n_first]
            are_separate[: joins.n_vacant] = False
            clusters = _join_without_rare_groups(joins, evidence, are_separate)
    if not clusters.size:
        n_clusters = joins.n_components - joins.n_vacant
        reason += "; the evidence has no elbow"
        return replace(joins, n_by_entropy=0, n_suggested=n_clusters, reason=reason)
    n_clusters = int(clusters.max()) + 1
    reason += "; by the elbow of the evidence"
    n_rare = n_clusters - (joins.n_components - n_first)
    if n_rare:
        # Make the joins within the suggested clusters first.
        distinctness = Distinctness(assignments, evidence, None, clusters)
        joins = join_components(distinctness, is_relative=False)
        reason += f", which leaves {n_rare} rare group{'s' * (n_rare > 1)} alone"
    return replace(joins, n_by_entropy=0, n_suggested=n_clusters, reason=reason)


def _join_without_rare_groups(
    joins: Joins, evidence: Evidence, are_separate: NDArray[np.bool_]
) -> IndexArray:
    """Return the cluster of each component (K,) after the first n joins, without rare groups.

    ``are_separate`` (n,) says whether the two clusters of a join are separate. The smaller one is
    then a rare group, if it has at least _MIN_ROWS_OF_GROUP rows: it stays alone, and the larger
    one takes part in the later joins.
    """
    n_rows = evidence.n_rows * append_unions(evidence.proportions, joins.linkage)
    clusters = np.arange(joins.n_components)
    # The components of each cluster in the linkage matrix.
    members = [[k] for k in range(joins.n_components)]
    for (a, b), is_separate in zip(joins.linkage[:, :2].astype(int), are_separate, strict=False):
        small, large = (a, b) if n_rows[a] < n_rows[b] else (b, a)
        is_rare = is_separate and n_rows[small] >= _MIN_ROWS_OF_GROUP
        members.append(members[large] + ([] if is_rare else members[small]))
        clusters[members[-1]] = clusters[members[large][0]]
    return np.unique(clusters, return_inverse=True)[1]
