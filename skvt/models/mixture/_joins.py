"""Components joined to clusters by the entropy that assignments lose [Baudry10 sec. 3].

A cluster that is not of the components' shape becomes several components, and the assignments of
its rows are uncertain. Joining two clusters a and b adds their responsibilities up, and the entropy
of the assignments falls by

    H_a + H_b - H_ab = sum_n w_n ((r_na + r_nb) log(r_na + r_nb) - r_na log r_na - r_nb log r_nb),

the more the less rows tell them apart. It cannot fall by more than with a coin tossed for each row,

    M_ab h(M_a / M_ab),    M_a = sum_n w_n r_na,    h(p) = -p log p - (1 - p) log(1 - p),

by Jensen's inequality. The density stays as it is, and so does what it is worth as evidence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Responsibilities below this are none: what they add to the entropy of a row is rounding.
_LEAST = 1e-10
# Two clusters are one where rows lose this share of what could tell them apart ...
_SURELY_ONE = 0.1
# ... and may be one, up to the elbow, from this share on. (Of two normal clusters with equal
# weights and spherical covariances these are 3.9 and 5.6 standard deviations.)
_MAYBE_ONE = 0.01
# An elbow: before it, the entropy falls so many times as fast as behind.
_STEEPER = 4.0
# Joins on either side of an elbow: a line meets any two points, and one pair of clusters that are
# nearer than all others are is no elbow.
_JOINS_OF_LINE = 2


@dataclass(frozen=True)
class Joins:
    """Which clusters are joined, one pair after the other, until one is left.

    Attributes
    ----------
    linkage : ndarray, shape (K - 1, 4)
        As SciPy's: numbers of the two clusters, of which those from K on are joined ones; the
        entropy that assignments have lost so far, in nats per row; components of the new cluster.
    shares : ndarray, shape (K - 1,)
        What the join loses, of the most that it could.
    masses : ndarray, shape (K - 1,)
        Rows of the new cluster, as a share of all.
    n_vacant : int
        Joins at the beginning that give components without rows to others.
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
        """Number of clusters that the rule suggests."""
        shares = self.shares[self.n_vacant :]
        surely = _leading(shares >= _SURELY_ONE)
        maybe = min(_leading(shares >= _MAYBE_ONE), self._elbow())
        joined = max(surely, maybe if maybe >= _JOINS_OF_LINE else 0)
        return self.n_components - self.n_vacant - joined

    def _elbow(self) -> int:
        """Joins before the elbow of the entropy over the rows joined so far; 0 without.

        Two straight lines, the least squares of both, that share the point where they meet
        [Baudry10 sec. 4].
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
        """Number of the cluster of each component, (K,), after joins to so many clusters.

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
    """Entries before the first that does not hold."""
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
    """What joins need of responsibilities: entries of the rows that do not belong to one component.

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
        """Entropy that is lost by joining a with each of the others, (K,), in nats per row."""
        mine = self.columns == a
        own = np.full(self.weights.size, np.nan)
        own[self.rows[mine]] = self.values[mine]
        at = np.flatnonzero(~mine & (own > 0.0)[self.rows])
        rows, columns = self.rows[at], self.columns[at]
        both = own[rows] + self.values[at]
        both *= np.log(both)
        # (what is lost is never negative; rounding may be)
        loss = np.maximum(both - (own * np.log(own))[rows] - self.terms[at], 0.0)
        loss *= self.weights[rows]
        sums = np.bincount(columns, weights=loss, minlength=self.mass.size)
        return sums.astype(np.float64, copy=False)

    def join(self, a: int, b: int) -> None:
        """Component a takes over what b has."""
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
    """Join the pair that loses most entropy, again and again; the assignments are used up.

    [Baudry10 sec. 3] takes the loss as it is, which favours pairs of many rows, however well they
    are told apart: one large cluster swallows the others. ``relative`` takes it as a share of the
    most that the pair could lose. Components that are no row's most probable one come first.
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
