"""Pairs of clusters that can be joined, and the entropy of assignments that is lost in a join.

A cluster in the data whose shape is not that of a component is fitted by several components, and
the assignments of its rows are uncertain. To find such clusters, components are joined step by
step: the join of two clusters a and b adds up their responsibilities. The entropy of the
assignments then falls by [Baudry10 sec. 3]

    H_a + H_b - H_ab = sum_n w_n ((r_na + r_nb) log(r_na + r_nb) - r_na log r_na - r_nb log r_nb),

with the weights w_n and the responsibilities r of the rows. This loss is at most the entropy of
random assignments to a and b in proportion to their masses, see doc/guide/joining.md.
"""

import functools
import itertools
from collections.abc import Iterable
from copy import copy, deepcopy
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from skvt.models.mixture._joins import Joins
from skvt.models.mixture._kernels import (
    ROUNDING_FACTOR,
    add_losses_of_joins,
    loss_of_pair,
    write_positive_responsibilities,
)
from skvt.ties import RTOL
from skvt.typing import Array, IndexArray

# Responsibilities below this are set to 0, since their entropy is within rounding errors.
_MIN_RESPONSIBILITY = 1e-10
# Minimum of the largest possible losses, by which losses are divided. Without this minimum, the
# divisor would be 0 for components without rows.
_MIN_DIVISOR = 1e-100
_TINY = float(np.finfo(float).tiny)
# Size of the groups of rows over which responsibilities are summed, for bounds of losses.
_ROWS_OF_GROUP = 8
# A row lies between two clusters if each of them has at least this responsibility for it.
_MIN_RESPONSIBILITY_BETWEEN = 0.25
# The depth of a valley is the difference between this quantile of the log densities of rows within
# the clusters and the same quantile of rows between them.
_DENSITY_QUANTILE = 0.9


def largest_loss(x: Any, y: Any) -> Any:
    """Return the largest possible losses of entropy of joining clusters with masses x and y.

    They are ``(x + y) log(x + y) - x log x - y log y``, in a form without cancellation.
    """
    x, y = np.maximum(x, _TINY), np.maximum(y, _TINY)
    return np.maximum(x * np.log1p(y / x) + y * np.log1p(x / y), _MIN_DIVISOR)


class JoinCriterion:
    """Clusters that can be joined, and the losses by which the next pair is chosen.

    Subclasses define the losses. The arguments a and b of methods are indices of clusters. At
    first, these are the K components. After b is joined into a, the union has the index a, and b is
    not used again.
    """

    # (K,): fraction of the rows in each cluster.
    proportions: Array
    # (K,): whether the cluster is the most probable one for no row.
    is_vacant: NDArray[np.bool_]
    # Precision of the numbers from which losses are computed.
    dtype: np.dtype[Any]
    # 1 if pairs with the largest loss are joined first, -1 if pairs with the smallest loss are.
    sign: float
    # (K,): suggested cluster of each component. Only `Valleys` and `Distinctness` have it.
    clusters: IndexArray

    @property
    def entropy_assignments(self) -> "Assignments | None":
        """Assignments whose losses of entropy affect the order of joins; None if none do.

        The losses of entropy are computed only for pairs that may be joined next.
        """
        return None

    def copy(self) -> Self:
        """Return a copy whose clusters can be joined."""
        return deepcopy(self)

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the losses of joining a with each of b, in nats per row.

        If a is an array, ``a[i]`` is paired with ``b[i]``.
        """
        raise NotImplementedError

    def largest_losses(self, a: Any, b: Any) -> Any:
        """Return the largest possible losses of entropy; infinite if the entropy is ignored."""
        return np.full(np.broadcast(a, b).shape, np.inf)

    def join_losses(self, pairs: Array) -> Array:
        """Return the exact losses of joins, (K - 1,) in nats per row.

        The first two columns of ``pairs`` (K - 1, ...) are those of a linkage matrix, see `Joins`.
        """
        raise NotImplementedError

    def join(self, a: int, b: int) -> None:
        """Join b into a: a has the rows of both, and b has none."""
        self.proportions[a] += self.proportions[b]
        self.proportions[b] = 0.0
        self.is_vacant[a] &= self.is_vacant[b]
        self.is_vacant[b] = False


class _RowResults(NamedTuple):
    """Results for the n rows of one batch or of all batches.

    Unsure rows have two or more positive responsibilities.
    """

    # (n,): most probable component of each row.
    labels: IndexArray
    # (n,): log density of each row in nats.
    log_densities: Array
    # (n_unsure,) each, of the unsure rows: weights, log densities, and the most and second most
    # probable components.
    unsure_weights: Array
    unsure_log_densities: Array
    first_components: IndexArray
    second_components: IndexArray


class Assignments(JoinCriterion):
    """Clusters whose losses are losses of the entropy of assignments [Baudry10 sec. 3].

    ``batches`` are triples of responsibilities (n, K), weights (n,) and log densities (n,) of rows.
    Only unsure rows, which have two or more positive responsibilities, have an entropy to lose.
    """

    sign = 1.0

    def __init__(self, batches: Iterable[tuple[NDArray[Any], Array, Array]]) -> None:
        # Collect the rows of each batch, and the responsibilities for its unsure rows.
        results_of_batches: list[_RowResults] = []
        resp_of_batches: list[sp.csr_array] = []
        total_weight, masses, root_products = 0.0, np.zeros(1), np.zeros((1, 1))
        for resp, weights, log_densities in batches:
            n, K = resp.shape
            self.dtype = resp.dtype
            # The function writes to these arrays, in which the entries for unsure rows come first.
            labels, second_labels, unsure_rows, ends = np.empty((4, n), int)
            components, positive_resp = np.empty(n * K, np.int32), np.empty(n * K)
            batch_masses, roots = np.zeros(K), np.empty((n, K))
            n_unsure = write_positive_responsibilities(
                resp, weights, _MIN_RESPONSIBILITY, RTOL[self.dtype], batch_masses, labels,
                second_labels, unsure_rows, ends, components, positive_resp, roots,
            )  # fmt: skip
            total_weight += float(weights.sum())
            masses = masses + batch_masses
            # Add ``sum_n w_n sqrt(r_na r_nb)`` over the unsure rows. ``roots`` are sqrt(w_n r_na).
            roots = roots[:n_unsure]
            root_products = root_products + roots.T @ roots
            # Keep only the entries that have been written.
            starts = np.append(0, ends[:n_unsure])
            csr_arrays = positive_resp[: starts[-1]].copy(), components[: starts[-1]].copy(), starts
            resp_of_batches.append(sp.csr_array(csr_arrays, (n_unsure, K)))
            unsure_rows = unsure_rows[:n_unsure]
            results_of_batches.append(_RowResults(
                labels, log_densities, unsure_weights=weights[unsure_rows],
                unsure_log_densities=log_densities[unsure_rows],
                first_components=labels[unsure_rows], second_components=second_labels[unsure_rows],
            ))  # fmt: skip
        self.rows = _RowResults(*map(np.concatenate, zip(*results_of_batches, strict=True)))
        self.labels = self.rows.labels
        self.proportions = masses / total_weight
        self.is_vacant: NDArray[np.bool_] = np.bincount(self.labels, minlength=masses.size) == 0
        # (n_unsure,): fractions of the weight of all rows.
        self.weights = self.rows.unsure_weights / total_weight
        # (K, K): upper bounds of the losses of pairs, since (x + y) log(x + y) - x log x - y log y
        # <= 2 log(2) sqrt(x y), with equality at x = y.
        self.bounds = 2.0 * np.log(2.0) / total_weight * ROUNDING_FACTOR * root_products
        # (n_unsure, K): responsibilities.
        self.resp = sp.vstack(resp_of_batches, format="csr")
        by_column = self.resp.tocsc()
        # For each of the K clusters, a list of addends. Their sum, the responsibilities of the
        # cluster, is computed when it is needed.
        self.addends = [
            [_PositiveResp.from_resp(by_column.indices[i:j].astype(np.intp), by_column.data[i:j])]
            for i, j in itertools.pairwise(by_column.indptr)
        ]
        # For bounds of losses: sums x of weighted responsibilities over groups of rows, and
        # x log x, (K, n_groups) each.
        group_sums = self._sum_over_groups()
        self.groups = group_sums, _compute_x_log_x(group_sums)

    def _sum_over_groups(self) -> Array:
        """Return sums of weighted responsibilities over groups of unsure rows, (K, n_groups).

        The rows are sorted by their two most probable components, so that the rows of a group are
        alike and the bounds computed from groups are close.
        """
        order = np.lexsort((self.rows.second_components, self.rows.first_components))
        # The last group may have fewer rows than the others.
        ends = np.arange(0, order.size + _ROWS_OF_GROUP, _ROWS_OF_GROUP).clip(max=order.size)
        # A matrix (n_groups, n_unsure) with the weights of the rows of each group.
        grouping = sp.csr_array((self.weights[order], order, ends), (ends.size - 1, order.size))
        return np.array((grouping @ self.resp).toarray().T, order="C")

    @property
    def entropy_assignments(self) -> Self:
        return self

    def copy(self) -> Self:
        """Return a copy whose clusters can be joined; it shares what joins do not change."""
        copied = copy(self)
        for name in ("proportions", "is_vacant", "bounds", "groups"):
            setattr(copied, name, deepcopy(getattr(self, name)))
        copied.addends = list(self.addends)
        return copied

    def join_losses(self, pairs: Array) -> Array:
        losses, _ = self._compute_losses(pairs)
        return losses

    def _compute_losses(self, pairs: Array) -> tuple[Array, IndexArray]:
        """Return the losses of joins, (K - 1,), and the rows between the clusters of joins.

        A row lies between the two clusters of a join if each of them has a responsibility of at
        least `_MIN_RESPONSIBILITY_BETWEEN`, which is 1 / 4, for the row. There are at most three
        such joins, because at most four clusters without common components have such
        responsibilities. The second result (n_unsure, 3) has the numbers of these joins for each
        unsure row, followed by -1.
        """
        pairs = pairs[:, :2].astype(int)
        # Order the components so that those of each cluster follow each other. ``next_join[k]`` is
        # the join that unites the clusters of component k and of its successor in this order.
        members = [[k] for k in range(self.proportions.size)]
        next_join = np.empty(self.proportions.size, int)
        for step, (a, b) in enumerate(pairs):
            next_join[members[a][-1]] = step
            members.append(members[a] + members[b])
        order = np.array(members[-1])
        positions = np.empty(order.size, int)
        positions[order] = np.arange(order.size)
        losses = np.zeros(len(pairs))
        joins_of_rows = np.full((self.weights.size, 3), -1)
        add_losses_of_joins(
            self.resp.indptr, self.resp.indices, self.resp.data, self.weights, positions,
            next_join[order], _MIN_RESPONSIBILITY_BETWEEN, losses, joins_of_rows,
        )  # fmt: skip
        return losses, joins_of_rows

    def valley_depths(self, joins: Joins) -> Array:
        """Return the depth of the valley between the two clusters of each join, (K - 1,).

        The depth is the number of nats by which the log density is lower between the two clusters
        than within them. It is inf if no row lies between the two, and NaN if one of the two is the
        most probable cluster for no row.
        """
        # Collect the log densities of the rows between the clusters of each join, in ``between``.
        _, joins_of_rows = self._compute_losses(joins.linkage)
        rows, _ = np.nonzero(joins_of_rows >= 0)
        join_of_each_row = joins_of_rows[joins_of_rows >= 0]
        order = np.argsort(join_of_each_row, kind="stable")
        join_numbers = np.arange(len(joins.linkage))
        limits = np.searchsorted(join_of_each_row[order], join_numbers[1:])
        between = np.split(self.rows.unsure_log_densities[rows[order]], limits)
        # Collect the log densities of the rows of each cluster in ascending order, in ``within``.
        # At first, the clusters are the components. Each join appends a union.
        log_densities = self.rows.log_densities
        order = np.lexsort((log_densities, self.labels))
        limits = np.searchsorted(self.labels[order], np.arange(1, joins.n_components))
        within = np.split(log_densities[order], limits)
        depths = np.full(join_numbers.size, np.inf)
        for step, (a, b) in enumerate(joins.linkage[:, :2].astype(int)):
            # Sort the union. The kind "stable" is fast, because both parts are sorted.
            within.append(np.sort(np.concatenate([within[a], within[b]]), kind="stable"))
            if not within[a].size or not within[b].size:
                depths[step] = np.nan
            elif between[step].size:
                lower_quantile = min(_find_quantile(within[a]), _find_quantile(within[b]))
                depths[step] = lower_quantile - _find_quantile(np.sort(between[step]))
            within[a] = within[b] = np.empty(0)
        return depths

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the losses of joining a with each of b, in nats per row, see `JoinCriterion`."""
        pairs = zip(np.broadcast_to(a, b.shape), b, strict=True)
        return np.array([self.loss_of_pair(i, j) for i, j in pairs])

    def loss_of_pair(self, a: int, b: int) -> float:
        """Return the loss of joining a with b, in nats per row."""
        return self._sum_responsibilities(a).loss_with(self._sum_responsibilities(b), self.weights)

    def _sum_responsibilities(self, k: int) -> "_PositiveResp":
        """Return the responsibilities of cluster k, and keep their sum for later calls."""
        if len(self.addends[k]) > 1:
            union = functools.partial(_PositiveResp.union, n_rows=self.weights.size)
            self.addends[k] = [functools.reduce(union, self.addends[k])]
        return self.addends[k][0]

    def largest_losses(self, a: Any, b: Any) -> Any:
        return largest_loss(self.proportions[a], self.proportions[b])

    def relative_losses(self, a: int, others: IndexArray) -> Array:
        """Return the losses of joining a with ``others`` as shares of the largest possible ones."""
        return np.asarray(self.losses(a, others) / self.largest_losses(a, others))

    def join(self, a: int, b: int) -> None:
        """Join b into a; the responsibilities of the union are summed when they are needed."""
        super().join(a, b)
        self.addends[a] = self.addends[a] + self.addends[b]
        self.addends[b] = []
        sums, terms = self.groups
        sums[a] += sums[b]
        terms[a] = _compute_x_log_x(sums[a])
        self.bounds[a] += self.bounds[b]
        self.bounds[:, a] = self.bounds[a]


def _find_quantile(log_densities: Array) -> float:
    """Return the quantile `_DENSITY_QUANTILE` of ascending ``log_densities``."""
    # Interpolate between the two values next to the position. At the end there is only one.
    position = (log_densities.size - 1) * _DENSITY_QUANTILE
    neighbours = log_densities[int(position) :][:2]
    return float(neighbours[0] + position % 1.0 * (neighbours[-1] - neighbours[0]))


def _compute_x_log_x(x: Array) -> Array:
    """Return ``x log x`` of numbers that are not negative."""
    return x * np.log(np.maximum(x, _TINY))


class _PositiveResp(NamedTuple):
    """The positive responsibilities r of a cluster for unsure rows."""

    # (m,): indices of the rows in ascending order.
    rows: IndexArray
    # (m,) each: r and r log r.
    resp: Array
    terms: Array

    @classmethod
    def from_resp(cls, rows: IndexArray, resp: Array) -> Self:
        """Return this object for the positive responsibilities ``resp`` of ``rows``."""
        return cls(rows, resp, resp * np.log(resp))

    def union(self, other: Self, n_rows: int) -> Self:
        """Return the sum of the responsibilities of two clusters for ``n_rows`` rows."""
        resp = np.zeros(n_rows)
        for cluster in (self, other):
            resp[cluster.rows] += cluster.resp
        rows = np.flatnonzero(resp)
        return self.from_resp(rows, resp[rows])

    def loss_with(self, other: Self, weights: Array) -> float:
        """Return the loss of joining this cluster with another, in nats per row.

        ``weights`` (n_unsure,) are fractions of the weight of all rows.
        """
        return float(loss_of_pair(*self, *other, weights))
