"""Criteria for joining clusters of components by the evidence that is lost.

A hierarchy joins two clusters of components at a time. If two clusters do not overlap, a join loses
no entropy of the assignments of rows to clusters. Such clusters are joined in the order of the
evidence that is lost if two of them become one component. This loss is the gain of the merge
[HS13 eq. 12] with the opposite sign. :class:`Evidence` uses the loss alone, and
:class:`Distinctness` uses its product with other measures.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Component
from skvt.models.mixture._joins import LOSS_SHARE_BEFORE_ELBOW, SIGNIFICANT_VALLEY
from skvt.models.mixture._pairs import Assignments, JoinCriterion
from skvt.ties import stable_order
from skvt.typing import Array, IndexArray

# Maximum number of components for which the losses of all pairs are computed. With more components,
# each is compared with its neighbours only.
_MAX_COMPONENTS_WITH_ALL_PAIRS = 100
# Minimum number of neighbours of a component.
_MIN_NEIGHBOURS = 24
# If the smaller of two clusters has n rows, the test of the valley between them, see
# `measure_valley`, is at most the square root of n times this number. The fixed test of clusters
# that are taken as apart without a count of rows is limited to the same root.
_MAX_SQUARED_TEST = 3.0
# Factor of the losses of pairs from two suggested clusters. It is so large that these pairs are
# joined after all pairs within clusters.
_PENALTY_ACROSS = 1e9


class Evidence(JoinCriterion):
    """Clusters whose losses are losses of evidence; a union has the sum of both statistics.

    ``sums`` (K, P) are the components' sums of features, and ``counts`` (K,) are their expected
    numbers of rows. ``is_vacant`` (K,) says which component is the most probable one for no row.
    For pairs that should not be merged, the component's method ``merge_gains`` may return a bound
    of the gain. The losses of these pairs are then bounds, too.

    If there are many components, exact losses are computed for pairs of neighbours only. For any
    other pair, the cost of each of its clusters is the number of nats that are lost if the rows of
    this cluster are explained by the parameters of the other one. The smaller of the two costs
    approximates the loss. The neighbours of a component are the components of smallest cost.
    """

    # Pairs with the smallest losses are joined first.
    sign = -1.0

    def __init__(
        self, component: Component, sums: Array, counts: Array, is_vacant: NDArray[np.bool_]
    ) -> None:
        self.component = component
        self.sums = sums
        self.n_rows = float(counts.sum())
        # (K,): share of the rows in each cluster. If all rows belong to a background, ``n_rows`` is
        # 0, and so are the shares.
        self.proportions, self.is_vacant = counts / (self.n_rows or 1.0), is_vacant
        self.dtype = component.dtype
        # (K, K): whether two clusters are neighbours, and the costs of pairs in nats per row.
        compares_all = counts.size <= _MAX_COMPONENTS_WITH_ALL_PAIRS
        self.is_near = np.full((counts.size, counts.size), compares_all)
        self.costs = np.zeros(self.is_near.shape)
        if not compares_all:
            table = self.component.expected_table(self.component.natural_parameters(sums))
            # The entry (a, b) is the cost of cluster a in the pair (a, b).
            pair_costs = (sums * table).sum(axis=1)[:, None] - sums @ table.T
            self.costs = np.minimum(pair_costs, pair_costs.T) / self.n_rows
            # First in the order of costs is the component itself, with the cost 0.
            for is_near, costs in zip(self.is_near, self.costs, strict=True):
                is_near[stable_order(costs)[: 1 + _MIN_NEIGHBOURS]] = True
            self.is_near |= self.is_near.T

    @property
    def rows_per_statistic(self) -> float:
        """The mean number of rows per component with rows, divided by its number of statistics."""
        n_with_rows = int(np.count_nonzero(~self.is_vacant))
        return self.n_rows / (n_with_rows * self.sums.shape[1])

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return ``log M(S_a) + log M(S_b) - log M(S_a + S_b)`` in nats per row.

        M is the evidence and S are the sums of features of a cluster. For pairs that are not
        neighbours, return the costs.
        """
        is_near, losses = self.is_near[a, b], self.costs[a, b]
        near_pairs = np.broadcast_to(a, b.shape)[is_near], b[is_near]
        losses[is_near] = -self.component.merge_gains(self.sums, *near_pairs) / self.n_rows
        return losses

    def join_losses(self, pairs: Array) -> Array:
        """Return the losses of evidence of all joins, (K - 1,) in nats per row."""
        K = len(self.sums)
        # (2 K - 1, P): sums of the clusters that remain, and zeros of clusters that do not exist
        # yet or are joined, because a shared covariance depends on all clusters.
        sums = np.concatenate([self.sums, np.zeros_like(self.sums[1:])])
        losses = np.zeros(K - 1)
        for step, (a, b) in enumerate(pairs[:, :2].astype(int)):
            (gain,) = self.component.merge_gains(sums, np.array([a]), np.array([b]))
            losses[step] = -gain / self.n_rows
            sums[K + step] = sums[a] + sums[b]
            sums[[a, b]] = 0.0
        return losses

    def join(self, a: int, b: int) -> None:
        """Join cluster b into a, whose sums, neighbours and costs become those of the union."""
        super().join(a, b)
        self.sums[a] += self.sums[b]
        self.sums[b] = 0.0
        self.is_near[a] |= self.is_near[b]
        self.costs[a] += self.costs[b]
        self.is_near[:, a] = self.is_near[a]
        self.costs[:, a] = self.costs[a]


class Distinctness(JoinCriterion):
    """Clusters of which the two least distinct ones are joined first.

    Two clusters are distinct if joining them loses much evidence, if their rows are assigned with
    certainty, and if the density of rows has a valley between them. The test of a valley is its
    depth in standard errors. The distinctness of a pair is the product of

    - the loss of evidence;
    - the square of the test of the valley, because evidence grows with the square of a distance in
      standard deviations. A test below SIGNIFICANT_VALLEY counts as SIGNIFICANT_VALLEY, because
      chance explains such a valley. The number of rows of the smaller cluster limits the test;
    - the fourth power of the share of the largest possible loss of entropy that a join does not
      lose. Of the powers 1 to 4, the fourth gave the best clusters if their number was known. The
      compiled loops multiply :meth:`losses` by this factor.

    Components that belong to different suggested ``clusters`` (K,) are joined last. The hierarchy
    reports the losses of evidence, without the other factors. If ``valleys`` is None, the second
    factor is left out.
    """

    # Pairs with the smallest distinctness are joined first.
    sign = -1.0

    def __init__(
        self, assignments: Assignments, evidence: Evidence, valleys: JoinCriterion | None,
        clusters: IndexArray,
    ) -> None:  # fmt: skip
        self.assignments, self.evidence, self.valleys = assignments, evidence, valleys
        self.proportions, self.is_vacant = assignments.proportions, assignments.is_vacant
        self.dtype = evidence.dtype
        self.clusters = clusters

    @property
    def entropy_assignments(self) -> Assignments:
        """The assignments whose losses of entropy are a factor of the distinctness."""
        return self.assignments

    def copy(self) -> Self:
        """Return a copy whose clusters can be joined."""
        valleys = None if self.valleys is None else self.valleys.copy()
        return type(self)(self.assignments.copy(), self.evidence.copy(), valleys, self.clusters)

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the losses of evidence, in nats per row, weighted by the tests of valleys."""
        losses = np.maximum(self.evidence.losses(a, b), 0.0)
        if self.valleys is not None:
            n_rows = self.evidence.n_rows * np.minimum(self.proportions[a], self.proportions[b])
            tests = np.minimum(self.valleys.losses(a, b), np.sqrt(_MAX_SQUARED_TEST * n_rows))
            losses *= np.maximum(tests / SIGNIFICANT_VALLEY, 1.0) ** 2
        return losses * np.where(self.clusters[b] == self.clusters[a], 1.0, _PENALTY_ACROSS)

    def largest_losses(self, a: Any, b: Any) -> Any:
        """Return the largest possible losses of entropy, or inf where the loss is negligible."""
        largest_losses = self.assignments.largest_losses(a, b)
        # The compiled loops divide the loss of entropy by the result. If an upper bound of the
        # quotient is below LOSS_SHARE_BEFORE_ELBOW, an infinite divisor makes the quotient 0, so
        # that the exact loss is not computed.
        max_shares = self.assignments.bounds[a, b] / largest_losses
        return np.where(max_shares >= LOSS_SHARE_BEFORE_ELBOW, largest_losses, np.inf)

    def join_losses(self, pairs: Array) -> Array:
        """Return the losses of evidence of joins, without the other two factors."""
        return self.evidence.join_losses(pairs)

    def join(self, a: int, b: int) -> None:
        """Join cluster b into a in all criteria that contribute a factor."""
        for criterion in (self.assignments, self.evidence, self.valleys):
            if criterion is not None:
                criterion.join(a, b)
