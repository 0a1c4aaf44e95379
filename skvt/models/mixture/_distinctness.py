"""Pairs of clusters whose losses are losses of evidence, also weighted by how distinct the two are.

Components that do not overlap have no entropy to lose. They are joined by the evidence that is lost
if two become one component, the negative gain of a merge [HS13 eq. 12].
"""

from copy import deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Component
from skvt.models.mixture._joins import MAYBE_ONE, SIGNIFICANT
from skvt.models.mixture._pairs import Assignments, Pairs
from skvt.ties import stable_order
from skvt.typing import Array, IndexArray

# If there are more components than this, each is compared with its neighbours only.
_ALL_COMPARED = 100
# Minimum number of neighbours with which a component is compared.
_NEIGHBOURS = 24
# Factor by which joins of two suggested clusters come after joins within clusters.
_LAST = 1e9


class Evidence(Pairs):
    """Clusters whose losses are losses of evidence; a joined cluster has the summed statistics.

    ``sums`` (K, P) are the components' sums of features, ``counts`` (K,) their expected rows. If
    ``merge_gains`` of the component is only a bound for pairs that should not be merged, so is the
    loss. If there are many components, losses are computed for neighbours only. The loss of other
    pairs is approximated by the cost of explaining the rows of one by the other as it is.
    """

    sign = -1.0
    # (K, K): pairs whose losses are computed before one is chosen; None for all pairs.
    near: NDArray[np.bool_] | None = None

    def __init__(
        self, component: Component, sums: Array, counts: Array, vacant: NDArray[np.bool_]
    ) -> None:
        self.component, self.sums = component.alone, sums
        self.n_rows = float(counts.sum())
        self.mass, self.vacant, self.dtype = counts / self.n_rows, vacant, component.dtype
        if counts.size > _ALL_COMPARED:
            tables = self.component.table(self.component.natural_parameters(sums))
            cost = (sums * tables).sum(axis=1)[:, None] - sums @ tables.T
            self.cost = np.minimum(cost, cost.T) / self.n_rows
            self.near = np.zeros(cost.shape, bool)
            for neighbours, cost in zip(self.near, self.cost, strict=True):
                neighbours[stable_order(cost)[: 1 + _NEIGHBOURS]] = True
            self.near |= self.near.T

    def copy(self) -> Self:
        return deepcopy(self)

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return ``log M(S_a) + log M(S_b) - log M(S_a + S_b)`` per row, M being the evidence."""
        near, out = np.ones(b.size, bool), np.zeros(b.size)
        if self.near is not None:
            near, out = self.near[a, b], self.cost[a, b]
        out[near] = self._lost(np.broadcast_to(a, b.shape)[near], b[near])
        return out

    def loss_of_join(self, a: int, b: int, loss: float | None) -> float:
        if loss is not None and (self.near is None or self.near[a, b]):
            return loss
        return float(self._lost(np.array([a]), np.array([b]))[0])

    def _lost(self, a: IndexArray, b: IndexArray) -> Array:
        return -self.component.merge_gains(self.sums, a, b) / self.n_rows

    def join(self, a: int, b: int) -> None:
        super().join(a, b)
        self.sums[a] += self.sums[b]
        if self.near is not None:
            self.near[a] |= self.near[b]
            self.cost[a] += self.cost[b]
            self.near[:, a], self.cost[:, a] = self.near[a], self.cost[a]


class Distinctness(Pairs):
    """Clusters, the least distinct two of which are joined first.

    Two clusters are distinct if joining them loses much evidence, their rows are assigned with
    certainty, and there is a valley between them. Evidence grows with the square of a distance in
    standard deviations. It is therefore multiplied by the square of the test of the valley. A test
    below SIGNIFICANT counts as this value, since chance explains it. The share of the possible
    entropy that remains is a factor, too. Of its powers 1 to 4, the fourth gave the best clusters
    of a told number. Two different ones of ``clusters`` (K,) are joined last. The losses that a
    hierarchy reports are those of evidence.
    """

    sign = -1.0

    def __init__(
        self, assignments: "Assignments", evidence: Evidence, valleys: Pairs | None,
        clusters: IndexArray,
    ) -> None:  # fmt: skip
        self.assignments, self.evidence, self.valleys = assignments, evidence, valleys
        self.mass, self.vacant, self.dtype = assignments.mass, assignments.vacant, evidence.dtype
        self.clusters = clusters

    @property
    def overlap(self) -> "Assignments":
        return self.assignments

    def copy(self) -> Self:
        valleys = None if self.valleys is None else self.valleys.copy()
        return type(self)(self.assignments.copy(), self.evidence.copy(), valleys, self.clusters)

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the losses of evidence, weighted by the tests of valleys."""
        losses = np.maximum(self.evidence.losses(a, b), 0.0)
        if self.valleys is not None:
            losses *= np.maximum(self.valleys.losses(a, b) / SIGNIFICANT, 1.0) ** 2
        return losses * np.where(self.clusters[b] == self.clusters[a], 1.0, _LAST)

    def largest_losses(self, a: Any, b: Any) -> Any:
        most = self.assignments.largest_losses(a, b)
        # Shares below MAYBE_ONE are taken as 0.
        return np.where(self.assignments.bounds[a, b] / most >= MAYBE_ONE, most, np.inf)

    def loss_of_join(self, a: int, b: int, loss: float | None) -> float:
        return self.evidence.loss_of_join(a, b, None)

    def join(self, a: int, b: int) -> None:
        for pairs in (self.assignments, self.evidence, self.valleys):
            if pairs is not None:
                pairs.join(a, b)
