"""Components joined into clusters by the loss of entropy of the assignments [Baudry10 sec. 3].

A cluster that is not of the components' shape becomes several components, and the assignments of
its rows are uncertain. Joining two clusters a and b adds their responsibilities up, and the entropy
of the assignments falls by

    H_a + H_b - H_ab = sum_n w_n ((r_na + r_nb) log(r_na + r_nb) - r_na log r_na - r_nb log r_nb),

the more, the less certain the assignments between them are. The loss is at most that of assignments
by the toss of a coin for each row,

    M_ab h(M_a / M_ab),    M_a = sum_n w_n r_na,    h(p) = -p log p - (1 - p) log(1 - p),

by Jensen's inequality. The density does not change, and neither does its evidence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Responsibilities below this are taken as 0: their entropy is within rounding.
_LEAST = 1e-10
# Two clusters are joined if this share of the largest possible entropy is lost ...
_SURELY_ONE = 0.1
# ... and before the elbow from this share on. (For two normal clusters with equal weights and
# spherical covariances, these are distances of 3.9 and 5.6 standard deviations.)
_MAYBE_ONE = 0.01
# At an elbow: factor by which the entropy falls faster before than after it.
_STEEPER = 4.0
# Least number of joins on either side of an elbow: a line fits any two points, and a single pair of
# close clusters is not an elbow.
_JOINS_OF_LINE = 2


@dataclass(frozen=True)
class Joins:
    """The sequence of pairs of clusters that are joined, until one is left.

    Attributes
    ----------
    linkage : ndarray, shape (K - 1, 4)
        As SciPy's: numbers of the two clusters, of which those from K on are joined ones; the
        entropy that assignments have lost so far, in nats per row; components of the new cluster.
    shares : ndarray, shape (K - 1,)
        Loss of entropy of the join relative to the largest possible loss.
    masses : ndarray, shape (K - 1,)
        Fraction of rows in the new cluster.
    n_vacant : int
        Number of joins at the beginning that assign components without rows to others.
    """

    linkage: Array
    shares: Array
    masses: Array
    n_vacant: int

    @property
    def n_components(self) -> int:
        """Number of components K."""
        return len(self.linkage) + 1

    @property
    def n_clusters(self) -> int:
        """Number of clusters suggested by the rule."""
        shares = self.shares[self.n_vacant :]
        surely = _leading(shares >= _SURELY_ONE)
        maybe = min(_leading(shares >= _MAYBE_ONE), self._elbow())
        joined = max(surely, maybe if maybe >= _JOINS_OF_LINE else 0)
        return self.n_components - self.n_vacant - joined

    def _elbow(self) -> int:
        """Joins before the elbow of the entropy over the rows joined so far; 0 without.

        By least squares with two straight lines that share a point [Baudry10 sec. 4].
        """
        lost = np.append(0.0, self.linkage[:, 2])[self.n_vacant :]
        joined = np.append(0.0, self.masses.cumsum())[self.n_vacant :]
        inner = range(_JOINS_OF_LINE, lost.size - _JOINS_OF_LINE)
        if not inner:
            return 0
        errors = [
            _line_error(joined[: j + 1], lost[: j + 1]) + _line_error(joined[j:], lost[j:])
            for j in inner
        ]
        elbow = inner[int(stable_argmax(-np.array(errors), scale=(lost[-1] - lost[0]) ** 2))]
        before = (lost[elbow] - lost[0]) / (joined[elbow] - joined[0])
        behind = (lost[-1] - lost[elbow]) / (joined[-1] - joined[elbow])
        return elbow if before >= _STEEPER * behind else 0

    def clusters(self, n_clusters: int) -> IndexArray:
        """Cluster of each component, (K,), after joins into this number of clusters.

        Clusters are numbered in the order of their first components.
        """
        K = self.n_components
        members = [np.array([k]) for k in range(K)]
        first = np.arange(K)
        for a, b in self.linkage[: K - n_clusters, :2].astype(int):
            members.append(np.concatenate([members[a], members[b]]))
            first[members[-1]] = members[-1].min()
        return np.unique(first, return_inverse=True)[1]


def _leading(holds: NDArray[np.bool_]) -> int:
    """Number of entries before the first that is false."""
    return int(np.argmin(np.append(holds, False)))


def _lost(x: Array, y: Array) -> Array:
    """``(x + y) log(x + y) - x log x - y log y`` of positive numbers, without cancellation."""
    return x * np.log1p(y / x) + y * np.log1p(x / y)


def _line_error(x: Array, y: Array) -> float:
    """Sum of squared errors of the straight line that fits best."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x @ y) / (x @ x)
    return float(np.square(y - slope * x).sum())


class Assignments:
    """Responsibilities as joins need them: of rows that do not belong to a single component.

    Parameters
    ----------
    batches : iterable of (ndarray (n, K), ndarray (n,))
        Responsibilities and weights of rows.
    """

    def __init__(self, batches: Iterable[tuple[NDArray[Any], Array]]) -> None:
        rows: list[IndexArray] = []
        columns: list[IndexArray] = []
        values: list[Array] = []
        weights: list[Array] = []
        n_rows, total = 0, 0.0
        mass: Any = 0.0
        wins: Any = 0
        for resp, weight in batches:
            self.dtype = resp.dtype
            r = np.where(resp < _LEAST, 0.0, resp).astype(np.float64)
            r /= r.sum(axis=1, keepdims=True)
            mass = mass + weight @ r
            wins = wins + np.bincount(stable_argmax(resp), minlength=resp.shape[1])
            total += float(weight.sum())
            unsure = np.flatnonzero((r > 0.0).sum(axis=1) > 1)
            row, column = np.nonzero(r[unsure])
            rows.append(n_rows + row)
            columns.append(column)
            values.append(r[unsure[row], column])
            weights.append(weight[unsure])
            n_rows += unsure.size
        self.rows, self.columns = np.concatenate(rows), np.concatenate(columns)
        self.values = np.concatenate(values)
        self.terms = self.values * np.log(self.values)
        self.weights = np.concatenate(weights) / total
        self.mass: Array = mass / total
        self.vacant: NDArray[np.bool_] = wins == 0

    def losses(self, a: int) -> Array:
        """Loss of entropy from joining a with each of the others, (K,), in nats per row."""
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
        return sums.astype(np.float64, copy=False)

    def join(self, a: int, b: int) -> None:
        """Join b into a."""
        mine = (self.columns == a) | (self.columns == b)
        both = np.bincount(self.rows[mine], self.values[mine], minlength=self.weights.size)
        others, joined = ~mine, np.flatnonzero(both)
        self.rows = np.append(self.rows[others], joined)
        self.columns = np.append(self.columns[others], np.full(joined.size, a))
        both = both[joined]
        self.values = np.append(self.values[others], both)
        self.terms = np.append(self.terms[others], both * np.log(both))
        self.mass[a] += self.mass[b]
        self.mass[b] = 0.0
        self.vacant[a] &= self.vacant[b]


def join_components(assignments: Assignments, *, relative: bool = True) -> Joins:
    """Repeatedly join the pair that loses most entropy; the assignments are overwritten.

    [Baudry10 sec. 3] uses the loss itself, which favours pairs with many rows even if they are well
    separated: one large cluster absorbs the others. ``relative`` divides it by the largest possible
    loss of the pair. Components that are the most probable one for no row come first.
    """
    K = assignments.mass.size
    losses = np.stack([assignments.losses(a) for a in range(K)])
    n_vacant = int(assignments.vacant.sum())
    number, size, left = np.arange(K), np.ones(K), np.triu(np.ones((K, K), bool), 1)
    linkage, shares, masses, lost = np.empty((K - 1, 4)), np.empty(K - 1), np.empty(K - 1), 0.0
    for step in range(K - 1):
        mass, vacant = assignments.mass, assignments.vacant
        some = np.maximum(mass, np.finfo(float).tiny)
        share = losses / np.maximum(_lost(some[:, None], some), np.finfo(float).tiny)
        value = np.where(vacant[:, None] | vacant, 1.0, 0.0) + (share if relative else losses)
        value = np.where(left, value, -1.0)
        a, b = divmod(int(stable_argmax(value.ravel(), scale=1.0, dtype=assignments.dtype)), K)
        lost += losses[a, b]
        size[a] += size[b]
        linkage[step] = *sorted((number[a], number[b])), lost, size[a]
        shares[step] = share[a, b]
        assignments.join(a, b)
        masses[step] = assignments.mass[a]
        number[a] = K + step
        left[b] = left[:, b] = False
        losses[a] = losses[:, a] = assignments.losses(a)
    return Joins(linkage, shares, masses, n_vacant)
