"""Rules that suggest a number of clusters, and the hierarchies that lead there."""

from dataclasses import replace

import numpy as np

from skvt.models.mixture._distinctness import Distinctness, Evidence
from skvt.models.mixture._hierarchy import join_components
from skvt.models.mixture._joins import ONE_MODE, SIGNIFICANT, SURELY_ONE, Joins
from skvt.models.mixture._pairs import Assignments, Pairs
from skvt.typing import IndexArray

# Minimum factor by which the evidence falls faster after an elbow than before it.
_STEEPER_EVIDENCE = 1.8
# There is a valley between two clusters if the log density of the rows between them is more than
# this number of nats below that of the rows of each, see `Assignments.valley`.
_VALLEY = 0.1


def separated(valleys: Pairs) -> IndexArray:
    """Return the cluster of each component, (K,), if valleys separate all clusters."""
    joins = join_components(valleys, relative=False)
    is_joined = (joins.losses < SIGNIFICANT) | (np.arange(len(joins.losses)) < joins.n_vacant)
    return joins.clusters(joins.n_components - int(np.argmin(np.append(is_joined, False))))


def choose_clusters(
    assignments: Assignments, evidence: Evidence, n_blocks: int, valleys: Pairs | None
) -> Joins:
    """Return the hierarchy by valleys or by the entropy, then by distinctness.

    If components have fewer rows than statistics on average, even parts of one cluster hardly
    overlap. Then the hierarchy is that of the evidence, and the suggested number of clusters is
    that at its elbow, if there is one. Otherwise, if ``valleys`` are tested, they give the
    suggested clusters, within which the least distinct ones are joined first. If they are not, a
    rule for the entropy gives the suggested number. The rule does not look for valleys of the
    density if there are several blocks of columns, since components that differ in all blocks
    overlap as classes do.
    """
    n_with_rows, n_by_valley = int(np.count_nonzero(~assignments.vacant)), 0
    if n_with_rows == 1:
        return replace(join_components(assignments), reason="no other component has rows")
    # There are fewer rows than statistics, on average over components with rows.
    if evidence.n_rows < n_with_rows * evidence.sums.shape[1]:
        joins = by_elbow(evidence, "with few rows and many columns components hardly overlap")
        if joins.n_clusters < n_with_rows:
            return joins
    if valleys is not None:
        number = int(valleys.clusters.max()) + 1
        n_by_valley = valleys.mass.size - number
        order = Distinctness(assignments, evidence, None, valleys.clusters)
        first = join_components(order, relative=False)
        entropy = join_components(assignments, first_joins=first.pairs(len(first.linkage)))
        reasons = (
            "no valley separates the components",
            "components that no valley separates are joined",
            "valleys separate all components",
        )
    else:
        entropy = join_components(assignments)
        number = entropy.n_from(ONE_MODE)
        if n_blocks < 2:
            number = _n_until_valley(entropy, assignments, number)
        number = entropy.n_before_elbow(number)
        reasons = (
            "all components overlap, and no valley of the density separates them",
            "components that overlap are joined",
            "no components overlap enough",
        )
    reason = reasons[0 if number == 1 else 1 if number < n_with_rows else 2]
    chosen = replace(entropy, n_suggested=number, n_by_valley=n_by_valley, reason=reason)
    if number == 1:
        return chosen
    n_first = entropy.n_components - number
    order = Distinctness(assignments, evidence, valleys, np.zeros(entropy.n_components, int))
    joins = join_components(order, relative=False, first_joins=entropy.linkage[:n_first])
    shares = np.append(entropy.shares[:n_first], joins.shares[n_first:])
    return replace(chosen, linkage=joins.linkage, shares=shares, n_by_entropy=n_first)


def _n_until_valley(joins: Joins, assignments: Assignments, number: int) -> int:
    """Return the number of clusters before the first join across a valley or of little entropy."""
    while number > 1 and joins.shares[joins.n_components - number] >= SURELY_ONE:
        now, joined = joins.clusters(number), joins.clusters(number - 1)
        parts = (np.unique(now[joined == c]) for c in range(number - 1))
        if assignments.valley(now, next(pair for pair in parts if pair.size == 2)) > _VALLEY:
            break
        number -= 1
    return number


def by_elbow(evidence: Evidence, reason: str) -> Joins:
    """Return the hierarchy by the evidence alone; the number at its elbow is suggested."""
    joins = join_components(evidence, relative=False)
    joined = joins.elbow(1, 1.0 / _STEEPER_EVIDENCE)
    number = joins.n_components - joins.n_vacant - joined
    reason += "; by the elbow of the evidence" if joined else "; the evidence has no elbow"
    return replace(joins, n_by_entropy=0, n_suggested=number, reason=reason)
