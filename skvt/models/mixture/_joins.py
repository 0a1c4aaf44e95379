"""Components joined into clusters: by the entropy of the assignments, then by the evidence.

A cluster that is not of the components' shape becomes several components, and the assignments of
its rows are uncertain. Joining two clusters a and b adds their responsibilities up, and the entropy
of the assignments falls by [Baudry10 sec. 3]

    H_a + H_b - H_ab = sum_n w_n ((r_na + r_nb) log(r_na + r_nb) - r_na log r_na - r_nb log r_nb),

which is at most that of assignments by the toss of a coin for each row, see doc/guide/clusters.md.
Components that do not overlap have no entropy to lose: which of them are alike tells the evidence
that is lost if two become one component, the negative gain of a merge [HS13 eq. 12]. One routine
makes both trees, and the tree that goes on by the evidence where the entropy ends.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Component
from skvt.ties import stable_argmax, stable_order
from skvt.typing import Array, IndexArray

# Responsibilities below this are taken as 0: their entropy is within rounding.
_LEAST = 1e-10
# Least of what divides losses: components without rows lose nothing.
_LEAST_MASS = 1e-100
# Two clusters are joined if this share of the largest possible entropy is lost, as of two normal
# clusters that have one mode ...
_ONE_MODE = 0.5
# ... if there is no valley between them, from this share on ...
_SURELY_ONE = 0.1
# ... and before the elbow from this share on. (For two normal clusters with equal weights and
# spherical covariances, these are distances of 2, 3.9 and 5.6 standard deviations.)
_MAYBE_ONE = 0.01
# At an elbow: factor by which the entropy falls faster before than after it.
_STEEPER = 4.0
# At an elbow of the evidence: factor by which it falls faster behind than before.
_STEEPER_EVIDENCE = 1.8
# Least number of joins on either side of an elbow, since a line fits any two points; and before an
# elbow of the entropy, since a few pairs of close clusters are none.
_JOINS_OF_LINE = 2
_JOINS_BEFORE = 5
# Beyond the number that is suggested, joins are made by the entropy down to this share.
_SOME_ENTROPY = 0.03
# More components than these are compared with their neighbours only.
_ALL_COMPARED = 100
# Neighbours that a component is compared with at least.
_NEIGHBOURS = 24
# Rows lie between components that each have this responsibility at least ...
_BETWEEN = 0.25
# ... and there is a valley if their density at this quantile ...
_DENSEST = 0.9
# ... is below the density of either component's own rows by more than this, in nats.
_VALLEY = 0.1


@dataclass(frozen=True)
class Joins:
    """The sequence of pairs of clusters that are joined, until one is left, and where to stop."""

    # (K - 1, 4): as SciPy's: numbers of the two clusters (joined ones have those from K on); what
    # has been lost so far, in nats per row; components of the new cluster.
    linkage: Array
    # (K - 1,): loss of the join relative to the largest possible loss of entropy.
    shares: Array
    # (K - 1,): fraction of rows in the new cluster.
    masses: Array
    # Number of joins at the beginning that assign components without rows to others.
    n_vacant: int
    # Number of joins at the beginning that are chosen by the entropy; None for all.
    n_by_entropy: int | None = None
    # Number of clusters suggested; None is the number by the rule for the entropy.
    n_suggested: int | None = None
    reason: str = ""

    @property
    def n_components(self) -> int:
        return len(self.linkage) + 1

    @property
    def criteria(self) -> NDArray[np.str_]:
        """What chooses each join, "entropy" or "evidence"."""
        n = len(self.linkage) if self.n_by_entropy is None else self.n_by_entropy
        return np.where(np.arange(len(self.linkage)) < n, "entropy", "evidence")

    @property
    def n_clusters(self) -> int:
        if self.n_suggested is not None:
            return self.n_suggested
        return self.n_before_elbow(self.n_from(_SURELY_ONE))

    def n_before_elbow(self, least: int) -> int:
        """Number of clusters after joins before the elbow, if there is one; at most ``least``."""
        joined = self.elbow(_JOINS_OF_LINE, _STEEPER)
        maybe = max(self.n_from(_MAYBE_ONE), self.n_components - self.n_vacant - joined)
        enough = self.n_components - self.n_vacant - maybe >= _JOINS_BEFORE
        return min(least, maybe) if enough else least

    def n_from(self, share: float) -> int:
        """Number of clusters after the first joins that lose this share and more."""
        holds = np.append(self.shares[self.n_vacant :] >= share, False)
        return self.n_components - self.n_vacant - int(np.argmin(holds))

    def elbow(self, n_behind: int, steeper: float) -> int:
        """Joins before the elbow of what is lost over the rows joined so far; 0 without.

        By least squares with two straight lines that share a point [Baudry10 sec. 4]. The first is
        ``steeper`` than the second by this factor; below 1, flatter.
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
        behind = (lost[-1] - lost[elbow]) / (joined[-1] - joined[elbow])
        found = before >= steeper * behind if steeper > 1.0 else before <= steeper * behind
        return elbow if found else 0

    def clusters(self, n_clusters: int) -> IndexArray:
        """Cluster of each component (K,) of this number, in the order of their first components."""
        K = self.n_components
        members = [np.array([k]) for k in range(K)]
        first = np.arange(K)
        for a, b in self.linkage[: K - n_clusters, :2].astype(int):
            members.append(np.concatenate([members[a], members[b]]))
            first[members[-1]] = members[-1].min()
        return np.unique(first, return_inverse=True)[1]


def _lost(x: Array, y: Array) -> Array:
    """``(x + y) log(x + y) - x log x - y log y`` of positive numbers, without cancellation."""
    return x * np.log1p(y / x) + y * np.log1p(x / y)


def _line_error(x: Array, y: Array) -> float:
    """Sum of squared errors of the straight line that fits best."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x @ y) / (x @ x)
    return float(np.square(y - slope * x).sum())


class Pairs:
    """Clusters that can be joined, two at a time; joined ones are overwritten."""

    # (K,): fraction of the rows in each.
    mass: Array
    # (K,): whether it is the most probable one of no row.
    vacant: NDArray[np.bool_]
    # Precision of what losses are computed from.
    dtype: np.dtype[Any]
    # 1 where pairs that lose most are joined first, -1 where those that lose least are.
    sign: float
    # (K, K): pairs whose losses are computed before they are chosen; None of all.
    near: NDArray[np.bool_] | None = None

    def losses(self, a: int, others: IndexArray) -> Array:
        """Loss from joining a with each of the others, in nats per row."""
        raise NotImplementedError

    def join(self, a: int, b: int) -> None:
        """Join b into a: the rows of b are those of a."""
        self.mass[a] += self.mass[b]
        self.mass[b] = 0.0
        self.vacant[a] &= self.vacant[b]


class Evidence(Pairs):
    """Evidence of components, each by itself; joined ones have the summed statistics.

    Of sums of features (K, P) and expected rows (K,). Where ``merge_gains`` of the component is a
    bound for pairs that no merge is good for, losses are bounds for these. Of many components only
    neighbours are compared: others lose what it costs to explain the rows of one as they are.
    """

    sign = -1.0

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
            for own, cost in zip(self.near, self.cost, strict=True):
                own[stable_order(cost)[: 1 + _NEIGHBOURS]] = True
            self.near |= self.near.T

    def losses(self, a: int, others: IndexArray) -> Array:
        """``log M(S_a) + log M(S_b) - log M(S_a + S_b)``."""
        near, out = np.ones(others.size, bool), np.zeros(others.size)
        if self.near is not None and others.size > 1:
            near, out = self.near[a, others], self.cost[a, others]
        pairs = np.full(np.count_nonzero(near), a), others[near]
        out[near] = -self.component.merge_gains(self.sums, *pairs) / self.n_rows
        return out

    def join(self, a: int, b: int) -> None:
        super().join(a, b)
        self.sums[a] += self.sums[b]
        if self.near is not None:
            self.near[a] |= self.near[b]
            self.cost[a] += self.cost[b]
            self.near[:, a], self.cost[:, a] = self.near[a], self.cost[a]


class Assignments(Pairs):
    """Responsibilities (n, K), weights, log densities (n,) of rows between components."""

    sign = 1.0

    def __init__(self, batches: Iterable[tuple[NDArray[Any], Array, Array]]) -> None:
        parts: list[tuple[NDArray[Any], ...]] = []
        n_rows, total = 0, 0.0
        mass: Any = 0.0
        for resp, weight, density in batches:
            self.dtype = resp.dtype
            r = np.where(resp < _LEAST, 0.0, resp).astype(np.float64)
            r /= r.sum(axis=1, keepdims=True)
            mass = mass + weight @ r
            total += float(weight.sum())
            unsure = np.flatnonzero((r > 0.0).sum(axis=1) > 1)
            row, column = np.nonzero(r[unsure])
            of_unsure = n_rows + row, column, r[unsure[row], column], weight[unsure]
            parts.append((*of_unsure, density[unsure], stable_argmax(resp), density))
            n_rows += unsure.size
        found = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.rows, self.columns, self.values, weights, self.between, *of_all = found
        self.labels, self.densities = of_all
        self.terms = self.values * np.log(self.values)
        self.weights, self.mass = weights / total, mass / total
        self.vacant: NDArray[np.bool_] = np.bincount(self.labels, minlength=self.mass.size) == 0

    def has_valley(self, clusters: IndexArray, pair: IndexArray) -> bool:
        """Whether the density is lower between two of the clusters (K,) than within them."""
        labels, between = clusters[self.labels], np.ones(self.weights.size, bool)
        for c in pair:
            own = np.isin(self.columns, np.flatnonzero(clusters == c))
            resp = np.bincount(self.rows[own], self.values[own], minlength=self.weights.size)
            between &= resp >= _BETWEEN
        if not between.any():
            return True
        peaks = [np.quantile(self.densities[labels == c], _DENSEST) for c in pair]
        return bool(np.quantile(self.between[between], _DENSEST) < min(peaks) - _VALLEY)

    def losses(self, a: int, others: IndexArray) -> Array:
        mine = self.columns == a
        own = np.full(self.weights.size, np.nan)
        own[self.rows[mine]] = self.values[mine]
        at = np.flatnonzero(~mine & (own > 0.0)[self.rows])
        rows, columns = self.rows[at], self.columns[at]
        both = own[rows] + self.values[at]
        both *= np.log(both)
        # (losses are never negative, except for rounding)
        loss = np.maximum(both - (own * np.log(own))[rows] - self.terms[at], 0.0)
        loss *= self.weights[rows]
        sums = np.bincount(columns, weights=loss, minlength=self.mass.size)
        return sums[others].astype(np.float64, copy=False)

    def join(self, a: int, b: int) -> None:
        super().join(a, b)
        mine = (self.columns == a) | (self.columns == b)
        both = np.bincount(self.rows[mine], self.values[mine], minlength=self.weights.size)
        others, joined = ~mine, np.flatnonzero(both)
        self.rows = np.append(self.rows[others], joined)
        self.columns = np.append(self.columns[others], np.full(joined.size, a))
        both = both[joined]
        self.values = np.append(self.values[others], both)
        self.terms = np.append(self.terms[others], both * np.log(both))


def join_components(pairs: Pairs, *, relative: bool = True, first: Array | None = None) -> Joins:
    """Repeatedly join the pair that loses most entropy, or least evidence.

    [Baudry10 sec. 3] uses the entropy itself, which favours pairs with many rows even if they are
    well separated: one large cluster absorbs the others. ``relative`` divides it by the largest
    possible loss of the pair. Components that are the most probable one for no row come first,
    after the joins of ``first``, the beginning of another linkage matrix.
    """
    pairs, K = deepcopy(pairs), pairs.mass.size
    losses, n_vacant = np.zeros((K, K)), int(pairs.vacant.sum())
    for a in range(K - 1):
        losses[a, a + 1 :] = losses[a + 1 :, a] = pairs.losses(a, np.arange(a + 1, K))
    number, size, left = np.arange(K), np.ones(K), np.triu(np.ones((K, K), bool), 1)
    linkage, shares, masses = np.empty((K - 1, 4)), np.empty(K - 1), np.empty(K - 1)
    lost, first = 0.0, np.empty((0, 4)) if first is None else first

    def shares_of(i: Any, j: Any) -> Any:
        some = np.maximum(pairs.mass, np.finfo(float).tiny)
        return losses[i, j] / np.maximum(_lost(some[i], some[j]), _LEAST_MASS)

    def value(i: Any, j: Any) -> Any:
        own = pairs.sign * (shares_of(i, j) if relative else losses[i, j])
        return np.where(left[i, j], own, -np.inf)

    every, known = np.arange(K), False
    for step in range(K - 1):
        if step < len(first):
            a, b = sorted(int(np.flatnonzero(number == i)[0]) for i in first[step, :2])
            lost = first[step, 2]
        else:
            if not known:
                values = value(every[:, None], every)
                vacant = pairs.vacant & (number >= 0)
                if vacant.any():
                    values[~(vacant[:, None] | vacant)] = -np.inf
                known = not vacant.any()
                best = values.max(axis=1)
            a = int(stable_argmax(best, scale=1.0, dtype=pairs.dtype))
            b = int(stable_argmax(values[a], scale=1.0, dtype=pairs.dtype))
            if pairs.near is not None:
                losses[a, b] = pairs.losses(a, np.array([b]))[0]
            lost += max(losses[a, b], 0.0)
        size[a] += size[b]
        linkage[step] = *sorted((number[a], number[b])), lost, size[a]
        shares[step] = shares_of(a, b)
        pairs.join(a, b)
        masses[step] = pairs.mass[a]
        number[a], number[b] = K + step, -1
        left[b] = left[:, b] = False
        others = np.flatnonzero(left[a] | left[:, a])
        losses[a, others] = losses[others, a] = pairs.losses(a, others)
        if known:
            before = np.maximum(values[:, a], values[:, b])
            values[b] = values[:, b] = -np.inf
            values[a], values[:, a] = value(a, every), value(every, a)
            best = np.maximum(best, values[:, a])
            again = np.unique(np.append(np.flatnonzero(before >= best), (a, b)))
            best[again] = values[again].max(axis=1)
    return Joins(linkage, shares, masses, n_vacant)


def choose_clusters(assignments: Assignments, evidence: Evidence, n_blocks: int) -> Joins:
    """The hierarchy by the entropy as far as components overlap, then by the evidence.

    The number of clusters is that of the rule for the entropy, with an exception. Where components
    have fewer rows than statistics, so that even parts of one cluster hardly overlap, joins before
    the elbow of the evidence are made, if it has one. Between rows of several blocks of columns
    valleys are not looked for: components that differ in all of them overlap as classes do.
    """
    entropy = join_components(assignments)
    n_with_rows = entropy.n_components - entropy.n_vacant
    if n_with_rows == 1:
        return replace(entropy, reason="no other component has rows")
    # fewer rows than statistics, on average over components with rows
    if evidence.n_rows < np.count_nonzero(~evidence.vacant) * evidence.sums.shape[1]:
        joins = by_elbow(evidence, "components of so few rows overlap little in so many columns")
        if joins.n_clusters < n_with_rows:
            return joins
    number = entropy.n_from(_ONE_MODE)
    if n_blocks < 2:
        number = _n_until_valley(entropy, assignments, number)
    number = entropy.n_before_elbow(number)
    if number == 1:
        reason = "all components overlap, and no valley of the density separates them"
        return replace(entropy, reason=reason)
    joined = number < n_with_rows
    reason = "components that overlap are joined" if joined else "no components overlap enough"
    first = entropy.linkage[: entropy.n_components - min(number, entropy.n_from(_SOME_ENTROPY))]
    joins = join_components(evidence, relative=False, first=first)
    return replace(joins, n_by_entropy=len(first), n_suggested=number, reason=reason)


def _n_until_valley(joins: Joins, assignments: Assignments, number: int) -> int:
    """Number of clusters before the first join of little entropy or across a valley."""
    while number > 1 and joins.shares[joins.n_components - number] >= _SURELY_ONE:
        now, joined = joins.clusters(number), joins.clusters(number - 1)
        parts = (np.unique(now[joined == c]) for c in range(number - 1))
        if assignments.has_valley(now, next(pair for pair in parts if pair.size == 2)):
            break
        number -= 1
    return number


def by_elbow(evidence: Evidence, reason: str) -> Joins:
    """The hierarchy by the evidence alone; joins before its elbow are suggested."""
    joins = join_components(evidence, relative=False)
    joined = joins.elbow(1, 1.0 / _STEEPER_EVIDENCE)
    number = joins.n_components - joins.n_vacant - joined
    reason += "; by the elbow of the evidence" if joined else "; the evidence has no elbow"
    return replace(joins, n_by_entropy=0, n_suggested=number, reason=reason)
