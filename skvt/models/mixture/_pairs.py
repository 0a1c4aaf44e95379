"""Pairs of clusters that can be joined, and the entropy of assignments that a pair loses.

A cluster whose shape is not that of a component is fitted by several components, and the
assignments of its rows are uncertain. If two clusters a and b are joined, their responsibilities
are added up, and the entropy of the assignments falls by [Baudry10 sec. 3]

    H_a + H_b - H_ab = sum_n w_n ((r_na + r_nb) log(r_na + r_nb) - r_na log r_na - r_nb log r_nb),

which is at most the entropy of random assignments to a and b in proportion to their masses, see
doc/guide/clusters.md.
"""

import functools
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvt.models.mixture._joins import Joins
from skvt.models.mixture._kernels import ROUNDED_UP, loss_of_pair, loss_of_pair_in_rows
from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Responsibilities below this are set to 0, since their entropy is within rounding errors.
_SMALLEST_RESPONSIBILITY = 1e-10
# Minimum of the largest possible losses, by which losses are divided. Without it, the divisor would
# be 0 for components without rows.
_SMALLEST_DIVISOR = 1e-100
_TINY = float(np.finfo(float).tiny)
# A column of responsibilities is stored with its zeros if more than this share of it is positive.
_DENSE = 0.25
# Sizes of the coarse and of the fine groups of rows over which responsibilities are summed, for
# bounds of losses.
_ROWS_OF_GROUPS = (16, 4)
# A row lies between two clusters if each of them has at least this responsibility for it.
_BETWEEN = 0.25
# The depth of a valley is the difference of this quantile of the log densities, within the clusters
# and between them.
_DENSITY_QUANTILE = 0.9


def _entropy_loss(x: Array, y: Array) -> Array:
    """Return ``(x + y) log(x + y) - x log x - y log y`` for x, y > 0 without cancellation."""
    return x * np.log1p(y / x) + y * np.log1p(x / y)


def _largest_loss(x: Any, y: Any) -> Any:
    """Return the largest possible losses of entropy of joining clusters with masses x and y."""
    return np.maximum(_entropy_loss(np.maximum(x, _TINY), np.maximum(y, _TINY)), _SMALLEST_DIVISOR)


class Pairs:
    """Clusters that can be joined, and the losses by which the next pair is chosen.

    Subclasses define the losses. The arguments a and b are indices of clusters. After b is joined
    into a, the union has the index a, and b is not used again.
    """

    # (K,): fraction of the rows in each cluster.
    mass: Array
    # (K,): whether the cluster is the most probable one for no row.
    vacant: NDArray[np.bool_]
    # Precision of the numbers from which losses are computed.
    dtype: np.dtype[Any]
    # 1 if pairs with the largest loss are joined first, -1 if pairs with the smallest loss are.
    sign: float
    # (K,): suggested cluster of each component. Only `Valleys` and `Distinctness` have it.
    clusters: IndexArray

    @property
    def overlap(self) -> "Assignments | None":
        """Assignments whose losses of entropy affect the order of joins; None without them.

        The losses of entropy are computed only for pairs that may be joined next.
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
        """Return the exact loss of the pair a, b that is joined, in nats per row.

        ``loss`` is the earlier result of :meth:`losses`, or None. :class:`Assignments`, which is
        compared by bounds, ignores it.
        """
        return float(self.losses(a, np.array([b]))[0]) if loss is None else loss

    def shares_of(self, losses: Any, i: Any, j: Any) -> Any:
        """Return the losses of joining i with j, relative to their largest possible values."""
        return losses / _largest_loss(self.mass[i], self.mass[j])

    def join(self, a: int, b: int) -> None:
        """Join b into a: a has the rows of both, and b has none."""
        self.mass[a] += self.mass[b]
        self.mass[b] = 0.0
        self.vacant[a] &= self.vacant[b]
        self.vacant[b] = False


class Assignments(Pairs):
    """Clusters whose losses are losses of the entropy of assignments [Baudry10 sec. 3].

    Each of the batches has responsibilities (n, K), weights (n,) and log densities (n,) of rows.
    Only unsure rows, which have two or more positive responsibilities, have an entropy to lose. The
    attributes ``weights``, ``between`` and ``columns`` are limited to unsure rows; ``labels`` and
    ``densities`` have all rows.
    """

    sign = 1.0

    def __init__(self, batches: Iterable[tuple[NDArray[Any], Array, Array]]) -> None:
        # Arrays of each batch with an entry per row, and the positive entries of each column.
        parts: list[tuple[NDArray[Any], ...]] = []
        columns: list[list[tuple[IndexArray, Array]]] = []
        n_rows, total = 0, 0.0
        mass: Any = 0.0
        bounds: Any = 0.0
        for resp, weight, density in batches:
            self.dtype = resp.dtype
            r = np.where(resp < _SMALLEST_RESPONSIBILITY, 0.0, resp).astype(np.float64)
            r /= r.sum(axis=1, keepdims=True)
            mass = mass + weight @ r
            total += float(weight.sum())
            unsure = np.flatnonzero(np.count_nonzero(r, axis=1) > 1)
            parts.append((weight[unsure], density[unsure], stable_argmax(resp), density))
            unsure_resp = r[unsure]
            by_column = np.array(unsure_resp.T, order="C")
            positive = [np.flatnonzero(column) for column in by_column]
            columns.append(
                [(n_rows + i, column[i]) for i, column in zip(positive, by_column, strict=True)]
            )
            n_rows += unsure.size
            # Find the two most probable components of each unsure row.
            first = unsure_resp.argmax(axis=1)
            unsure_resp[np.arange(unsure.size), first] = 0.0
            parts[-1] += (first, unsure_resp.argmax(axis=1))
            # Sum sqrt(r_na r_nb) over the rows, weighted.
            by_column *= weight[unsure]
            root = np.sqrt(by_column, out=by_column)
            bounds = bounds + root @ root.T
        of_all_batches = (np.concatenate(part) for part in zip(*parts, strict=True))
        weights, self.between, self.labels, self.densities, first, second = of_all_batches
        self.weights, self.mass = weights / total, mass / total
        # (K, K): bounds of the losses of pairs, since (x + y) log(x + y) - x log x - y log y <=
        # 2 log(2) sqrt(x y), with equality at x = y.
        self.bounds = 2.0 * np.log(2.0) / total * ROUNDED_UP * bounds
        self.vacant: NDArray[np.bool_] = np.bincount(self.labels, minlength=self.mass.size) == 0
        # K columns: each component's responsibilities for the unsure rows.
        self.columns = [
            _Column.from_positive(
                np.concatenate([rows for rows, _ in pieces]),
                np.concatenate([resp for _, resp in pieces]),
                n_rows,
            )
            for pieces in zip(*columns, strict=True)
        ]
        # K lists: the sum of the columns in list k is the column of cluster k. The sum is computed
        # when it is first used.
        self.parts = [[column] for column in self.columns]
        # Columns of unions of two clusters that are about to be joined, by the pair.
        self.unions: dict[tuple[int, int], _Column] = {}
        # Four arrays (K, n_groups): sums x of weighted responsibilities over coarse groups, then
        # x log x, and the same for fine groups.
        self.groups = self._sum_groups(first, second)
        # (K,): number of the join that made each cluster, 0 for components.
        self.join_numbers = np.zeros(self.mass.size, int)

    def _sum_groups(self, first: IndexArray, second: IndexArray) -> list[Array]:
        """Return ``groups``, given the two most probable components (n,) of the unsure rows."""
        # Sort the rows by these components, so that the rows of a group are alike and the bounds
        # computed from groups are close.
        order, group, groups = np.lexsort((second, first)), np.empty(first.size, int), []
        for size in _ROWS_OF_GROUPS:
            group[order] = np.arange(first.size) // size
            sums = np.array([column.sums(group, self.weights) for column in self.columns])
            groups += [sums, _x_log_x(sums)]
        return groups

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

        ``clusters`` (K,) is the cluster of each component, and ``pair`` has two of these clusters.
        The result is inf if no row lies between the two, and NaN if one of the two is the most
        probable cluster for no row.
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
        """Return the responsibilities of component k for the unsure rows.

        If ``positive`` is not None, return the responsibilities with these rows and values instead.
        """
        rows, resp = (self.columns[k].rows, self.columns[k].resp) if positive is None else positive
        out = np.zeros(self.weights.size)
        out[slice(None) if rows is None else rows] = resp
        return out

    def _depth(self, labels: IndexArray, pair: IndexArray, a: Array, b: Array) -> float:
        """Return :meth:`valley` of two clusters, given their responsibilities a and b.

        ``labels`` are the most probable clusters of all rows.
        """
        within = [self.densities[labels == cluster] for cluster in pair]
        if not all(densities.size for densities in within):
            return np.nan
        between = self.between[np.minimum(a, b) >= _BETWEEN]
        if not between.size:
            return np.inf
        lower = min(np.quantile(densities, _DENSITY_QUANTILE) for densities in within)
        return float(lower - np.quantile(between, _DENSITY_QUANTILE))

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        pairs = zip(np.broadcast_to(a, b.shape), b, strict=True)
        return np.array([self.loss_of_pair(i, j) for i, j in pairs])

    def loss_of_pair(self, a: int, b: int) -> float:
        """Return the loss of joining a with b, in nats per row."""
        column, to_fill = self._column(a), self._column(b)
        # Only one of the columns must be dense. If one of them is already, it is ``to_fill``.
        if to_fill.rows is not None:
            column, to_fill = to_fill, column
        return column.loss_with(to_fill.dense(self.weights.size), self.weights)

    def _column(self, k: int) -> "_Column":
        """Return the responsibilities of cluster k, and keep their sum."""
        if len(self.parts[k]) > 1:
            union = functools.partial(_Column.union, n_rows=self.weights.size)
            self.parts[k] = [functools.reduce(union, self.parts[k])]
        return self.parts[k][0]

    def largest_losses(self, a: Any, b: Any) -> Any:
        return _largest_loss(self.mass[a], self.mass[b])

    def shares(self, a: int, others: IndexArray) -> Array:
        """Return the losses of joining a with each of the others, relative to their maxima."""
        return np.asarray(self.shares_of(self.losses(a, others), a, others))

    def loss_of_join(self, a: int, b: int, loss: float | None) -> float:
        # Subtract the terms of the cluster that was made later first, so that rounding errors do
        # not depend on the indices of the clusters.
        if self.join_numbers[a] < self.join_numbers[b]:
            a, b = b, a
        n_rows = self.weights.size
        column, other = self._column(a), self._column(b)
        union = self.unions[a, b] = self.unions[b, a] = column.union(other, n_rows)
        terms_union, terms_a, terms_b = (c.dense(n_rows).terms for c in (union, column, other))
        # A loss of a row is negative only by rounding.
        row_losses = np.maximum(terms_union - terms_a - terms_b, 0.0) * self.weights
        # A cumulative sum adds row by row, so that the result does not depend on the processor.
        return float(row_losses.cumsum()[-1]) if row_losses.size else 0.0

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
    """Responsibilities r of a cluster for unsure rows; without zeros if few are positive."""

    # Numbers of the rows with positive r in ascending order; None if the column is dense, with all
    # unsure rows.
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
        """Return the column with its zeros."""
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
        """Return the sums of the weighted responsibilities over groups of rows, (n_groups,).

        ``group`` (n,) is the number of the group of each row.
        """
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
