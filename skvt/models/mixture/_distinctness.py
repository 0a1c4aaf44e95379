"""Pairs of clusters whose losses are losses of evidence, alone or weighted by distinctness.

Components that do not overlap have no entropy to lose by a join. They are joined in the order of
the evidence that is lost if two of them become one component: the gain of the merge [HS13 eq. 12]
with the opposite sign.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Component
from skvt.models.mixture._joins import MAYBE_ONE, SIGNIFICANT, with_unions
from skvt.models.mixture._pairs import Assignments, JoinCriterion
from skvt.ties import stable_order
from skvt.typing import Array, IndexArray

# If there are more components than this, each is compared with its neighbours only.
_ALL_COMPARED = 100
# Minimum number of neighbours with which a component is compared.
_NEIGHBOURS = 24
# Factor of the losses of pairs from two suggested clusters, so large that these pairs are joined
# after all pairs within clusters.
_PENALTY_ACROSS = 1e9


class Evidence(JoinCriterion):
    """Clusters whose losses are losses of evidence; a joined cluster has the summed statistics.

    ``sums`` (K, P) are the components' sums of features, and ``counts`` (K,) their expected numbers
    of rows. For pairs that should not be merged, ``merge_gains`` of the component may return only a
    bound; then the loss is a bound, too.

    If there are many components, losses are computed for neighbours only. The loss of another pair
    is approximated by a cost: the nats that are lost if the rows of one cluster are explained by
    the parameters of the other cluster. The smaller of the two costs of a pair counts.
    """

    sign = -1.0

    def __init__(
        self, component: Component, sums: Array, counts: Array, is_vacant: NDArray[np.bool_]
    ) -> None:
        self.component = component.without_shared_globals
        self.sums = sums
        self.n_rows = float(counts.sum())
        # There are no rows if all rows are background.
        self.proportions, self.is_vacant = counts / (self.n_rows or 1.0), is_vacant
        self.dtype = component.dtype
        # (K, K): whether two clusters are neighbours, and the costs of other pairs.
        self.is_near = np.full((counts.size, counts.size), counts.size <= _ALL_COMPARED)
        self.cost = np.zeros(self.is_near.shape)
        if counts.size > _ALL_COMPARED:
            tables = self.component.expected_table(self.component.natural_parameters(sums))
            cost = (sums * tables).sum(axis=1)[:, None] - sums @ tables.T
            self.cost = np.minimum(cost, cost.T) / self.n_rows
            # The first component in the order is the component itself, whose cost is 0.
            for is_near, costs in zip(self.is_near, self.cost, strict=True):
                is_near[stable_order(costs)[: 1 + _NEIGHBOURS]] = True
            self.is_near |= self.is_near.T

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return ``log M(S_a) + log M(S_b) - log M(S_a + S_b)`` per row, M being the evidence."""
        is_near, out = self.is_near[a, b], self.cost[a, b]
        near = np.broadcast_to(a, b.shape)[is_near], b[is_near]
        out[is_near] = -self.component.merge_gains(self.sums, *near) / self.n_rows
        return out

    def join_losses(self, pairs: Array) -> Array:
        sums, joined = with_unions(self.sums, pairs), pairs[:, :2].astype(int)
        return -self.component.merge_gains(sums, *joined.T) / self.n_rows

    def join(self, a: int, b: int) -> None:
        super().join(a, b)
        self.sums[a] += self.sums[b]
        self.is_near[a] |= self.is_near[b]
        self.cost[a] += self.cost[b]
        self.is_near[:, a] = self.is_near[a]
        self.cost[:, a] = self.cost[a]


class Distinctness(JoinCriterion):
    """Clusters of which the two least distinct ones are joined first.

    Two clusters are distinct if joining them loses much evidence, if their rows are assigned with
    certainty, and if there is a valley between them. The distinctness is the product of

    - the loss of evidence;
    - the square of the test of the valley, since evidence grows with the square of a distance in
      standard deviations. A test below SIGNIFICANT counts as SIGNIFICANT, since chance explains
      such a valley;
    - the fourth power of the share of the possible entropy that a join does not lose. Of the powers
      1 to 4, the fourth gave the best clusters if their number was known. The compiled loops
      multiply :meth:`losses` by this factor.

    Components that belong to different ``clusters`` (K,) are joined last. The hierarchy reports the
    losses of evidence, without the other factors.
    """

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
        return self.assignments

    def copy(self) -> Self:
        valleys = None if self.valleys is None else self.valleys.copy()
        return type(self)(self.assignments.copy(), self.evidence.copy(), valleys, self.clusters)

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the losses of evidence, in nats per row, weighted by the tests of valleys."""
        losses = np.maximum(self.evidence.losses(a, b), 0.0)
        if self.valleys is not None:
            losses *= np.maximum(self.valleys.losses(a, b) / SIGNIFICANT, 1.0) ** 2
        return losses * np.where(self.clusters[b] == self.clusters[a], 1.0, _PENALTY_ACROSS)

    def largest_losses(self, a: Any, b: Any) -> Any:
        largest = self.assignments.largest_losses(a, b)
        # An infinite divisor makes the share of the entropy 0 for pairs that lose at most a share
        # below MAYBE_ONE.
        return np.where(self.assignments.bounds[a, b] / largest >= MAYBE_ONE, largest, np.inf)

    def join_losses(self, pairs: Array) -> Array:
        """Return the losses of evidence of joins, without the other two factors."""
        return self.evidence.join_losses(pairs)

    def join(self, a: int, b: int) -> None:
        for criterion in (self.assignments, self.evidence, self.valleys):
            if criterion is not None:
                criterion.join(a, b)
