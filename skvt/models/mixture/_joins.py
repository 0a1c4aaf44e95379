"""Hierarchies of clusters, made by joining components.

A cluster whose shape is not that of a component is fitted by several components, and the
assignments of its rows are uncertain. If two clusters a and b are joined, their responsibilities
are added up, and the entropy of the assignments falls by [Baudry10 sec. 3]

    H_a + H_b - H_ab = sum_n w_n ((r_na + r_nb) log(r_na + r_nb) - r_na log r_na - r_nb log r_nb),

which is at most the entropy of random assignments to a and b in proportion to their masses, see
doc/guide/clusters.md. Components that do not overlap have no entropy to lose. They are joined by
the evidence that is lost if two become one component, the negative gain of a merge [HS13 eq. 12].
One routine makes the hierarchies by tests of valleys, by the entropy, by the evidence and by
products of these; a hierarchy can start with the joins of another.
"""

import functools
from collections.abc import Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Component
from skvt.files import in_files
from skvt.models.mixture._kernels import (
    EXACT,
    ROUNDED_UP,
    join_pairs,
    loss_of_pair,
    loss_of_pair_in_rows,
    next_pair,
    set_pair,
)
from skvt.ties import RTOL, stable_argmax, stable_order
from skvt.typing import Array, IndexArray

# Responsibilities below this are taken as 0: their entropy is within rounding.
_LEAST = 1e-10
# Minimum of the largest possible losses by which losses are divided: it is 0 for components without
# rows.
_LEAST_MASS = 1e-100
_TINY = float(np.finfo(float).tiny)
# Two clusters are joined if the loss of entropy, as a share of the largest possible loss, is at
# least _ONE_MODE; at least _SURELY_ONE, if there is no valley between them; at least _MAYBE_ONE, if
# the join is before the elbow. For two normal clusters with equal weights and spherical
# covariances, the shares correspond to means 2, 3.9 and 5.6 standard deviations apart. Up to a
# distance of 2 such clusters have one mode.
_ONE_MODE = 0.5
_SURELY_ONE = 0.1
_MAYBE_ONE = 0.01
# Minimum factor by which the entropy falls faster before an elbow than after it.
_STEEPER = 4.0
# Minimum factor by which the evidence falls faster after an elbow than before it.
_STEEPER_EVIDENCE = 1.8
# Minimum number of joins on each side of an elbow, since a line fits any two points.
_JOINS_OF_LINE = 2
# Minimum number of joins before an elbow of the entropy, since a few pairs of close clusters do not
# make an elbow.
_JOINS_BEFORE = 5
# If there are more components than this, each is compared with its neighbours only.
_ALL_COMPARED = 100
# Minimum number of neighbours with which a component is compared.
_NEIGHBOURS = 24
# Factor by which joins of two suggested clusters come after joins within clusters.
_LAST = 1e9
# A cluster's responsibilities are kept for all rows if more than this share of them are positive.
_DENSE = 0.25
# Numbers of rows whose responsibilities are summed for bounds of losses.
_ROWS_OF_GROUPS = (16, 4)
# Clusters are joined if the valley between them is less than this many standard errors deep.
SIGNIFICANT = 3.5
# A row lies between two clusters if each of them has at least this responsibility for it.
_BETWEEN = 0.25
# There is a valley if the log density of rows between two clusters is more than _VALLEY nats below
# the log density of the rows of each cluster. Log densities are compared at the quantile _DENSEST.
_DENSEST = 0.9
_VALLEY = 0.1


@in_files("models.Joins", nan=("valleys", "tests", "refits", "agreement"))
@dataclass(frozen=True)
class Joins:
    """The sequence of pairs of clusters that are joined, until one is left, and where to stop."""

    # (K - 1, 4), as in SciPy: numbers of the two clusters, where the cluster of join j has the
    # number K + j; loss of this and all earlier joins, in nats per row; number of components.
    linkage: Annotated[Array, "k-1 4"]
    # (K - 1,): loss of the join relative to the largest possible loss of entropy.
    shares: Annotated[Array, "k-1"]
    # (K - 1,): fraction of rows in the new cluster.
    masses: Annotated[Array, "k-1"]
    # Number of joins at the beginning that assign components without rows to others.
    n_vacant: int
    # Number of joins at the beginning that are chosen by the entropy; None for all.
    n_by_entropy: int | None = None
    # Number of clusters suggested; None is the number by the rule for the entropy.
    n_suggested: int | None = None
    reason: str = ""
    # (K - 1,): depth of the valley between the two clusters, see :meth:`Assignments.valley`.
    valleys: Annotated[Array | None, "k-1"] = None
    # Number of joins at the beginning that are chosen by tests of valleys.
    n_by_valley: int = 0
    # (K - 1,): test of the valley between the two clusters, in standard errors, see `Valleys`.
    tests: Annotated[Array | None, "k-1"] = None
    # (K,): bound at 1, ..., K clusters less that of the components, in nats; None if not known.
    bounds: Annotated[Array | None, "k"] = None
    # (K,): bound of a refit at each number, in nats; mean adjusted Rand index with other fits; and
    # the share of the fits that suggest the number. None unless clusterings are compared.
    refits: Annotated[Array | None, "k"] = None
    agreement: Annotated[Array | None, "k"] = None
    suggested_by: Annotated[Array | None, "k"] = None

    def validate(self, d: int, k: int) -> bool:
        pairs = self.linkage[:, :2]
        within = (pairs >= 0) & (pairs < k + np.arange(k - 1)[:, None])
        return 0 <= self.n_vacant < k and bool(within.all())

    @property
    def n_components(self) -> int:
        return len(self.linkage) + 1

    @property
    def criteria(self) -> NDArray[np.str_]:
        """Criterion that chose each join, "valley", "entropy" or "evidence", (K - 1,)."""
        steps = np.arange(len(self.linkage))
        n = len(self.linkage) if self.n_by_entropy is None else self.n_by_entropy
        by = np.where(steps < n, "entropy", "evidence")
        return np.where(steps < self.n_by_valley, "valley", by)

    @property
    def losses(self) -> Array:
        """Loss of each join, in nats per row, (K - 1,)."""
        return np.diff(self.linkage[:, 2], prepend=0.0)

    @property
    def n_clusters(self) -> int:
        if self.n_suggested is not None:
            return self.n_suggested
        return self.n_before_elbow(self.n_from(_SURELY_ONE))

    def n_before_elbow(self, least: int) -> int:
        """Return the number of clusters at the elbow, at most ``least``; this if there is none."""
        joined = self.elbow(_JOINS_OF_LINE, _STEEPER)
        maybe = max(self.n_from(_MAYBE_ONE), self.n_components - self.n_vacant - joined)
        enough = self.n_components - self.n_vacant - maybe >= _JOINS_BEFORE
        return min(least, maybe) if enough else least

    def n_from(self, share: float, begin: int | None = None) -> int:
        """Return the number of clusters when a join first loses less than this share.

        Joins are examined from number ``begin`` on; by default, after those of components without
        rows.
        """
        begin = self.n_vacant if begin is None else begin
        holds = np.append(self.shares[begin:] >= share, False)
        return self.n_components - begin - int(np.argmin(holds))

    def elbow(self, n_behind: int, steeper: float) -> int:
        """Return the number of joins before the elbow of the losses, 0 if there is no elbow.

        Cumulative losses as a function of cumulative rows are fitted by two straight lines that
        share a point, by least squares [Baudry10 sec. 4]. It is an elbow if the slope of the first
        line is at least ``steeper`` times that of the second, or at most, if ``steeper`` <= 1. At
        least ``n_behind`` joins must follow.
        """
        lost = np.append(0.0, self.linkage[:, 2])[self.n_vacant :]
        joined = np.append(0.0, self.masses.cumsum())[self.n_vacant :]
        inner = range(_JOINS_OF_LINE, lost.size - n_behind)
        if not inner:
            return 0
        errors = [
            _line_error(joined[: j + 1], lost[: j + 1]) + _line_error(joined[j:], lost[j:])
            for j in inner
        ]
        elbow = inner[int(stable_argmax(-np.array(errors), scale=(lost[-1] - lost[0]) ** 2))]
        before = (lost[elbow] - lost[0]) / (joined[elbow] - joined[0])
        after = (lost[-1] - lost[elbow]) / (joined[-1] - joined[elbow])
        is_elbow = before >= steeper * after if steeper > 1.0 else before <= steeper * after
        return elbow if is_elbow else 0

    def pairs(self, n_joins: int) -> Array:
        """Return the first ``n_joins`` rows of the linkage matrix, with NaN as heights."""
        out = self.linkage[:n_joins].copy()
        out[:, 2] = np.nan
        return out

    def clusters(self, n_clusters: int) -> IndexArray:
        """Return the cluster of each component, (K,), if there are ``n_clusters``.

        Clusters are numbered from 0 in the order of their first components.
        """
        K = self.n_components
        members = [np.array([k]) for k in range(K)]
        first = np.arange(K)
        for a, b in self.linkage[: K - n_clusters, :2].astype(int):
            members.append(np.concatenate([members[a], members[b]]))
            first[members[-1]] = members[-1].min()
        return np.unique(first, return_inverse=True)[1]


def _lost(x: Array, y: Array) -> Array:
    """Return ``(x + y) log(x + y) - x log x - y log y`` for x, y > 0 without cancellation."""
    return x * np.log1p(y / x) + y * np.log1p(x / y)


def _most_lost(x: Any, y: Any) -> Any:
    """Return the largest possible losses of entropy of joining clusters with masses x and y."""
    return np.maximum(_lost(np.maximum(x, _TINY), np.maximum(y, _TINY)), _LEAST_MASS)


def _line_error(x: Array, y: Array) -> float:
    """Return the sum of squared errors of the straight line that fits best."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x @ y) / (x @ x)
    return float(np.square(y - slope * x).sum())


class Pairs:
    """Clusters that can be joined two at a time; the first of two is overwritten by the union."""

    # (K,): fraction of the rows in each cluster.
    mass: Array
    # (K,): whether the cluster is the most probable one for no row.
    vacant: NDArray[np.bool_]
    # Precision of the numbers from which losses are computed.
    dtype: np.dtype[Any]
    # 1 if pairs with the largest loss are joined first, -1 if pairs with the smallest loss are.
    sign: float
    # (K,): suggested cluster of each component, where tests of valleys give one.
    clusters: IndexArray

    @property
    def overlap(self) -> "Assignments | None":
        """Assignments on whose losses of entropy the order of joins depends, if any.

        These losses are computed only for pairs that may be joined next.
        """
        return None

    def copy(self) -> Self:
        """Return a copy whose clusters can be joined."""
        raise NotImplementedError

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the losses of joining a with each of b, or pair by pair, in nats per row."""
        raise NotImplementedError

    def largest_losses(self, a: Any, b: Any) -> Any:
        """Return the largest possible losses of entropy; infinite if the entropy is ignored."""
        return np.full(np.broadcast(a, b).shape, np.inf)

    def loss_of_join(self, a: int, b: int, loss: float | None) -> float:
        """Return the exact loss of the pair that is joined; ``loss`` is that of :meth:`losses`."""
        return float(self.losses(a, np.array([b]))[0]) if loss is None else loss

    def shares_of(self, losses: Any, i: Any, j: Any) -> Any:
        """Return the losses of joining i with j, relative to their largest possible values."""
        return losses / _most_lost(self.mass[i], self.mass[j])

    def join(self, a: int, b: int) -> None:
        """Join b into a: a has the rows of both, and b has none."""
        self.mass[a] += self.mass[b]
        self.mass[b] = 0.0
        self.vacant[a] &= self.vacant[b]
        self.vacant[b] = False


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
        # Shares below _MAYBE_ONE are taken as 0.
        return np.where(self.assignments.bounds[a, b] / most >= _MAYBE_ONE, most, np.inf)

    def loss_of_join(self, a: int, b: int, loss: float | None) -> float:
        return self.evidence.loss_of_join(a, b, None)

    def join(self, a: int, b: int) -> None:
        for pairs in (self.assignments, self.evidence, self.valleys):
            if pairs is not None:
                pairs.join(a, b)


class Assignments(Pairs):
    """Clusters whose losses are losses of the entropy of assignments.

    Each of the batches has responsibilities (n, K), weights (n,) and log densities (n,) of rows.
    Responsibilities are kept for rows with more than one positive responsibility.
    """

    sign = 1.0

    def __init__(self, batches: Iterable[tuple[NDArray[Any], Array, Array]]) -> None:
        parts: list[tuple[NDArray[Any], ...]] = []
        columns: list[list[tuple[IndexArray, Array]]] = []
        n_rows, total = 0, 0.0
        mass: Any = 0.0
        bounds: Any = 0.0
        for resp, weight, density in batches:
            self.dtype = resp.dtype
            r = np.where(resp < _LEAST, 0.0, resp).astype(np.float64)
            r /= r.sum(axis=1, keepdims=True)
            mass = mass + weight @ r
            total += float(weight.sum())
            unsure = np.flatnonzero(np.count_nonzero(r, axis=1) > 1)
            parts.append((weight[unsure], density[unsure], stable_argmax(resp), density))
            rest = r[unsure]
            by_column = np.array(rest.T, order="C")
            present = [np.flatnonzero(column) for column in by_column]
            columns.append(
                [(n_rows + at, column[at]) for at, column in zip(present, by_column, strict=True)]
            )
            n_rows += unsure.size
            first = rest.argmax(axis=1)
            rest[np.arange(unsure.size), first] = 0.0
            parts[-1] += (first, rest.argmax(axis=1))
            by_column *= weight[unsure]
            root = np.sqrt(by_column, out=by_column)
            bounds = bounds + root @ root.T
        of_all_batches = (np.concatenate(part) for part in zip(*parts, strict=True))
        weights, self.between, self.labels, self.densities, first, second = of_all_batches
        self.weights, self.mass = weights / total, mass / total
        # These are bounds since (x + y) log(x + y) - x log x - y log y <= 2 log(2) sqrt(x y), with
        # equality at x = y.
        self.bounds = 2.0 * np.log(2.0) / total * ROUNDED_UP * bounds
        self.vacant: NDArray[np.bool_] = np.bincount(self.labels, minlength=self.mass.size) == 0
        # K columns: each cluster's responsibilities for the rows whose assignment is uncertain.
        self.columns = [
            _Column.from_positive(
                np.concatenate([rows for rows, _ in pieces]),
                np.concatenate([resp for _, resp in pieces]),
                n_rows,
            )
            for pieces in zip(*columns, strict=True)
        ]
        # K lists: columns whose sum is that of a cluster, and columns of unions of two clusters.
        self.parts = [[column] for column in self.columns]
        self.unions: dict[tuple[int, int], _Column] = {}
        # Rows with the same two most probable components are next to each other.
        order, group = np.lexsort((second, first)), np.empty(n_rows, int)
        # (K, n_groups): weighted responsibilities of groups of rows, and x log x of these.
        self.groups: list[Array] = []
        for size in _ROWS_OF_GROUPS:
            group[order] = np.arange(n_rows) // size
            sums = np.array([column.sums(group, self.weights) for column in self.columns])
            self.groups += [sums, _x_log_x(sums)]
        # (K,): number of the join that made each cluster, 0 for components.
        self.join_numbers = np.zeros(self.mass.size, int)

    @property
    def overlap(self) -> Self:
        return self

    def copy(self) -> Self:
        out = copy(self)
        out.mass, out.vacant, out.join_numbers = (
            self.mass.copy(),
            self.vacant.copy(),
            self.join_numbers.copy(),
        )
        out.groups = [values.copy() for values in self.groups]
        out.parts, out.unions = list(self.parts), {}
        out.bounds = self.bounds.copy()
        return out

    def valley(self, clusters: IndexArray, pair: IndexArray) -> float:
        """Return by how many nats the log density is lower between two clusters than within them.

        ``clusters`` (K,) is the cluster of each component, and ``pair`` are two of them. The result
        is inf if no row is between them, NaN if one is the most probable one for no row.
        """
        members = [np.flatnonzero(clusters == cluster).tolist() for cluster in pair]
        a, b = (np.sum([self._resp_of(k) for k in group], axis=0) for group in members)
        return self._depth(clusters[self.labels], pair, a, b)

    def valleys(self, joins: Joins) -> Array:
        """Return the depth of the valley between the two clusters of each join, (K - 1,) nats."""
        clusters, depths = np.arange(joins.n_components), np.empty(len(joins.linkage))
        # Positive responsibilities of joined clusters, and their rows.
        joined: dict[int, tuple[IndexArray, Array]] = {}
        for step, pair in enumerate(joins.linkage[:, :2].astype(int)):
            a, b = (self._resp_of(k, joined.pop(k, None)) for k in pair.tolist())
            depths[step] = self._depth(clusters[self.labels], pair, a, b)
            clusters[np.isin(clusters, pair)] = joins.n_components + step
            both = a + b
            rows = np.flatnonzero(both)
            joined[joins.n_components + step] = rows, both[rows]
        return depths

    def _resp_of(self, k: int, positive: tuple[IndexArray, Array] | None = None) -> Array:
        """Return the responsibilities of a component, or those with these ``positive`` ones."""
        rows, resp = (self.columns[k].rows, self.columns[k].resp) if positive is None else positive
        out = np.zeros(self.weights.size)
        out[slice(None) if rows is None else rows] = resp
        return out

    def _depth(self, labels: IndexArray, pair: IndexArray, a: Array, b: Array) -> float:
        """Return :meth:`valley` of two clusters by their responsibilities and the rows' labels."""
        within = [self.densities[labels == cluster] for cluster in pair]
        if not all(densities.size for densities in within):
            return np.nan
        between = self.between[np.minimum(a, b) >= _BETWEEN]
        if not between.size:
            return np.inf
        lower = min(np.quantile(densities, _DENSEST) for densities in within)
        return float(lower - np.quantile(between, _DENSEST))

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        pairs = zip(np.broadcast_to(a, b.shape), b, strict=True)
        return np.array([self.loss_of_pair(i, j) for i, j in pairs])

    def loss_of_pair(self, a: int, b: int) -> float:
        """Return the loss of joining a with b, in nats per row."""
        one, other = self._column(a), self._column(b)
        one, other = (other, one) if other.rows is None else (one, other)
        return other.loss_with(one.dense(self.weights.size), self.weights)

    def _column(self, k: int) -> "_Column":
        """Return the responsibilities of a cluster."""
        if len(self.parts[k]) > 1:
            union = functools.partial(_Column.union, n_rows=self.weights.size)
            self.parts[k] = [functools.reduce(union, self.parts[k])]
        return self.parts[k][0]

    def largest_losses(self, a: Any, b: Any) -> Any:
        return _most_lost(self.mass[a], self.mass[b])

    def shares(self, a: int, others: IndexArray) -> Array:
        """Return the losses of joining a with each of the others, relative to their maxima."""
        return np.asarray(self.shares_of(self.losses(a, others), a, others))

    def loss_of_join(self, a: int, b: int, loss: float | None) -> float:
        # A cumulative sum adds row by row, so that the result does not depend on the processor.
        if self.join_numbers[a] < self.join_numbers[b]:
            a, b = b, a
        n_rows = self.weights.size
        column, other = self._column(a), self._column(b)
        union = self.unions[a, b] = self.unions[b, a] = column.union(other, n_rows)
        both, one, two = (each.dense(n_rows).terms for each in (union, column, other))
        # Losses are negative only by rounding.
        lost = np.maximum(both - one - two, 0.0) * self.weights
        return float(lost.cumsum()[-1]) if lost.size else 0.0

    def join(self, a: int, b: int) -> None:
        super().join(a, b)
        parts, self.parts[b] = self.parts[a] + self.parts[b], []
        self.parts[a] = parts if (a, b) not in self.unions else [self.unions[a, b]]
        self.unions.clear()
        for sums, terms in zip(self.groups[::2], self.groups[1::2], strict=True):
            sums[a] += sums[b]
            terms[a] = _x_log_x(sums[a])
        self.join_numbers[a] = self.join_numbers.max() + 1
        self.bounds[a] += self.bounds[b]
        self.bounds[:, a] = self.bounds[a]


def _x_log_x(x: Array) -> Array:
    """Return ``x log x`` of numbers that are not negative."""
    return x * np.log(np.maximum(x, _TINY))


@dataclass(frozen=True)
class _Column:
    """Positive responsibilities r of a cluster, or all responsibilities if many are positive."""

    # Numbers of the rows in ascending order; None for all rows.
    rows: IndexArray | None
    # r and r log r of these rows.
    resp: Array
    terms: Array

    @classmethod
    def from_positive(cls, rows: IndexArray, resp: Array, n_rows: int) -> Self:
        """Return the column for ``resp``, the positive responsibilities of ``rows``."""
        column = cls(rows, resp, resp * np.log(resp))
        return column.dense(n_rows) if rows.size > _DENSE * n_rows else column

    def dense(self, n_rows: int) -> Self:
        """Return the column with the responsibilities of all rows."""
        if self.rows is None:
            return self
        resp, terms = np.zeros((2, n_rows))
        resp[self.rows], terms[self.rows] = self.resp, self.terms
        return type(self)(None, resp, terms)

    def union(self, other: Self, n_rows: int) -> Self:
        """Return the sum of the responsibilities of two clusters."""
        resp = self.dense(n_rows).resp + other.dense(n_rows).resp
        if self.rows is None or other.rows is None:
            return type(self)(None, resp, _x_log_x(resp))
        rows = np.flatnonzero(resp)
        return self.from_positive(rows, resp[rows], n_rows)

    def sums(self, group: IndexArray, weights: Array) -> Array:
        """Return the weighted responsibilities of groups of rows; ``group`` (n,) is a row's."""
        rows = slice(None) if self.rows is None else self.rows
        n_groups = int(group.max(initial=-1)) + 1
        return np.bincount(group[rows], self.resp * weights[rows], n_groups).astype(float)

    def loss_with(self, other: Self, weights: Array) -> float:
        """Return the loss of joining this cluster with another, whose column is dense."""
        if self.rows is None:
            loss = loss_of_pair(other.resp, other.terms, self.resp, self.terms, weights)
        else:
            loss = loss_of_pair_in_rows(
                other.resp, other.terms, self.resp, self.terms, weights, self.rows
            )
        return float(loss)


def join_components(pairs: Pairs, *, relative: bool = True, first: Array | None = None) -> Joins:
    """Join pairs of clusters until one is left; return the hierarchy.

    The pair with the largest loss of entropy, or the smallest loss of evidence or test, is joined
    next. [Baudry10 sec. 3] uses the entropy itself, which favours pairs with many rows even if they
    are well separated, so that one large cluster absorbs the others. If ``relative``, the loss is
    divided by the largest possible loss of the pair. ``first`` are rows of another linkage matrix:
    these joins are made before all others, and heights that are NaN are computed; the shares of the
    others are NaN. Components that are the most probable one for no row are joined next.
    """
    pairs, K, n_vacant = pairs.copy(), pairs.mass.size, int(pairs.vacant.sum())
    number, size, left = np.arange(K), np.ones(K), np.ones(K, bool)
    linkage, shares, masses = np.empty((K - 1, 4)), np.full(K - 1, np.nan), np.empty(K - 1)
    height, first, table = 0.0, np.empty((0, 4)) if first is None else first, None
    for step in range(K - 1):
        if step < len(first):
            a, b = sorted(int(np.flatnonzero(number == i)[0]) for i in first[step, :2])
            loss = None
        else:
            table = _Losses(pairs, relative, left) if table is None else table
            a, b = table.best_pair()
            loss = float(table.losses[a, b])
        if step < len(first) and not np.isnan(first[step, 2]):
            height = first[step, 2]
        else:
            loss = pairs.loss_of_join(a, b, loss)
            height, shares[step] = height + max(loss, 0.0), pairs.shares_of(loss, a, b)
        size[a] += size[b]
        linkage[step] = *sorted((number[a], number[b])), height, size[a]
        if table is None:
            pairs.join(a, b)
        else:
            table.join(a, b)
        masses[step], left[b] = pairs.mass[a], False
        number[a] = K + step
    return Joins(linkage, shares, masses, n_vacant)


class _Losses:
    """Losses of all pairs of the remaining clusters, and the choice of the next pair.

    Losses of entropy are computed in the order of their bounds until no other pair can be next. The
    loss of joining the union of two clusters with a third is at most the sum of the losses of
    joining each of them with it, and at most the loss of groups of rows: the loss of a row is
    concave and homogeneous in its responsibilities, so that a sum of losses is at most the loss of
    the sums.
    """

    def __init__(self, pairs: Pairs, relative: bool, left: NDArray[np.bool_]) -> None:
        self.pairs, self.left, K = pairs, left.copy(), left.size
        self.is_absolute = pairs is pairs.overlap and not relative
        a, b = np.nonzero(np.triu(left & left[:, None], 1))
        # (K, K), symmetric: losses of entropy or bounds of these, what they are divided by, losses
        # without regard to the entropy, and values. The pair with the largest value is next.
        self.lost, self.most, self.losses, self.values = np.zeros((4, K, K))
        # (K, K): numbers of the bounds in ``lost``, see `EXACT`.
        self.numbers = np.full((K, K), EXACT)
        self.groups: list[Array] = [np.zeros((K, 0))] * 4
        if pairs.overlap is not None:
            self.groups = pairs.overlap.groups
            self.lost[:] = pairs.overlap.bounds
            self.numbers[self.lost > 0.0] = 0
        if pairs is not pairs.overlap:
            self.losses[a, b] = self.losses[b, a] = pairs.losses(a, b)
        self.most[a, b] = self.most[b, a] = self._most(a, b)
        self.rtol = RTOL[np.dtype(pairs.dtype)]
        self._weigh_all()

    def _most(self, a: Any, b: Any) -> Any:
        """Return what losses of entropy are divided by."""
        return np.ones(b.size) if self.is_absolute else self.pairs.largest_losses(a, b)

    def _is_legal(self, a: int) -> NDArray[np.bool_]:
        """Return which clusters can be joined with a, (K,)."""
        vacant, legal = self.pairs.vacant, self.left.copy()
        legal[a] = False
        return legal & (vacant | vacant[a]) if self.only_vacant else legal

    def _weigh_all(self) -> None:
        """Compute the values by which pairs are selected, for all pairs."""
        self.only_vacant, K = bool(self.pairs.vacant.any()), self.left.size
        self.values[:], self.best = -np.inf, np.full(K, -np.inf)
        for a in np.flatnonzero(self.left).tolist():
            self._set_row(a, -1, self._is_legal(a))

    def _set_row(self, a: int, b: int, legal: NDArray[np.bool_]) -> None:
        join_pairs(
            a, b, legal, self.pairs.sign, self.lost, self.most, self.losses, self.numbers,
            self.values, self.best, *self.groups[:2],
        )  # fmt: skip

    def best_pair(self) -> tuple[int, int]:
        """Return the next pair a < b to join; while clusters are vacant, one of these is vacant."""
        while True:
            a, b, number = next_pair(
                self.rtol, self.pairs.sign, self.lost, self.most, self.losses, self.numbers,
                self.values, self.best, *self.groups,
            )  # fmt: skip
            if number == EXACT:
                return a, b
            assert self.pairs.overlap is not None
            lost = self.pairs.overlap.loss_of_pair(a, b)
            set_pair(
                a, b, lost, EXACT, self.pairs.sign, self.lost, self.most, self.losses,
                self.numbers, self.values, self.best,
            )  # fmt: skip

    def join(self, a: int, b: int) -> None:
        """Join b into a, and update the losses and values of pairs with a."""
        pairs, left = self.pairs, self.left
        left[b] = False
        pairs.join(a, b)
        others = np.flatnonzero(left)
        others = others[others != a]
        self.most[a, others] = self.most[others, a] = self._most(a, others)
        if pairs is not pairs.overlap:
            self.losses[a, others] = self.losses[others, a] = pairs.losses(a, others)
        self._set_row(a, b, self._is_legal(a))
        if self.only_vacant and not pairs.vacant.any():
            self._weigh_all()


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
        entropy = join_components(assignments, first=first.pairs(len(first.linkage)))
        reasons = (
            "no valley separates the components",
            "components that no valley separates are joined",
            "valleys separate all components",
        )
    else:
        entropy = join_components(assignments)
        number = entropy.n_from(_ONE_MODE)
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
    joins = join_components(order, relative=False, first=entropy.linkage[:n_first])
    shares = np.append(entropy.shares[:n_first], joins.shares[n_first:])
    return replace(chosen, linkage=joins.linkage, shares=shares, n_by_entropy=n_first)


def _n_until_valley(joins: Joins, assignments: Assignments, number: int) -> int:
    """Return the number of clusters before the first join across a valley or of little entropy."""
    while number > 1 and joins.shares[joins.n_components - number] >= _SURELY_ONE:
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
