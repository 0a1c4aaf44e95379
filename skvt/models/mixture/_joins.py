"""The sequence of joins that makes a hierarchy of clusters, and the rules that cut it.

Clusters begin as the K components of a mixture. The sequence joins two clusters at a time, until
one cluster is left. A join loses entropy of the assignments of rows to clusters, and evidence. If
two clusters overlap, a join loses much entropy, because it ends the uncertainty about which of them
a row belongs to. Joins that are chosen by the entropy therefore stop before the first join that
loses too little entropy, or at the elbow of the losses. Joins that are chosen by the evidence stop
at the elbow only. An elbow is a join at which the mean loss per join changes abruptly. A valley
between two clusters is a region in which the density of rows is lower than within the clusters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
from numpy.typing import DTypeLike, NDArray

from skvt.files import in_files
from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray

# Two clusters overlap, and are joined, if the join loses enough entropy: LOSS_SHARE_OF_ONE_MODE of
# the largest possible loss in any case, LOSS_SHARE_WITHOUT_VALLEY of it if no valley lies between
# the clusters, and LOSS_SHARE_BEFORE_ELBOW of it if the join comes before the elbow.
# For two normal clusters with equal weights and equal spherical covariances, these shares
# correspond to means that are 2, 3.9 and 5.6 standard deviations apart. Two such clusters have one
# mode up to a distance of 2.
LOSS_SHARE_OF_ONE_MODE = 0.5
LOSS_SHARE_WITHOUT_VALLEY = 0.1
LOSS_SHARE_BEFORE_ELBOW = 0.01
# Minimum ratio of the slopes of the losses of entropy before and after an elbow.
_MIN_SLOPE_RATIO = 4.0
# Minimum number of joins on the line before an elbow and, for losses of entropy, on the line after
# it, since a line through two points fits without error.
_MIN_JOINS_OF_LINE = 2
# An elbow of the entropy after fewer joins than this is ignored, since a few pairs of close
# clusters do not make an elbow.
_MIN_JOINS_BEFORE_ELBOW = 5
# Clusters of fewer rows than this, such as single rows with a wrong value, make no elbow.
_MIN_ROWS_OF_CLUSTER = 5.0
# Clusters are joined if the valley between them is less than this many standard errors deep.
SIGNIFICANT_VALLEY = 3.5


# The fields in ``nan`` may have NaN in files.
@in_files("models.Joins", nan=("valleys", "tests", "refits", "agreement"))
@dataclass(frozen=True)
class Joins:
    """The sequence of pairs of clusters that are joined, until one is left, and where to stop."""

    # (K - 1, 4), a linkage matrix as in SciPy. Columns 0 and 1 are the numbers of the two clusters.
    # The components have the numbers 0, ..., K - 1, and the union that join j makes has the number
    # K + j. Column 2 is the height: the sum of the losses of this and all earlier joins, in nats
    # per row. Column 3 is the number of components in the union.
    linkage: Annotated[Array, "k-1 4"]
    # (K - 1,): loss of the join relative to the largest possible loss of entropy.
    shares: Annotated[Array, "k-1"]
    # (K - 1,): fraction of the rows in the union that the join makes.
    masses: Annotated[Array, "k-1"]
    # Number of vacant components, which are the most probable component of no row. In each of the
    # first ``n_vacant`` joins, one of the clusters consists of vacant components.
    n_vacant: int
    # Number of joins at the beginning that are not chosen by the evidence: the joins from number
    # ``n_by_valley`` on are chosen by the entropy. None means that the evidence chooses no join.
    n_by_entropy: int | None = None
    # Suggested number of clusters, if another rule than the rule for the entropy suggests it, and
    # the reason as text.
    n_suggested: int | None = None
    reason: str = ""
    # (K - 1,): depth of the valley between the two clusters, see `Assignments.valley_depths`.
    valleys: Annotated[Array | None, "k-1"] = None
    # Number of joins at the beginning that are chosen by tests of valleys.
    n_by_valley: int = 0
    # (K - 1,): test of the valley between the two clusters, in standard errors, see `Valleys`.
    tests: Annotated[Array | None, "k-1"] = None
    # (K,): bound at 1, ..., K clusters minus the bound of the components, in nats; None if not
    # known.
    bounds: Annotated[Array | None, "k"] = None
    # The next three fields are None unless clusterings are compared.
    # (K,): bounds of refits with 1, ..., K clusters, in nats.
    refits: Annotated[Array | None, "k"] = None
    # (K,): mean adjusted Rand index with other fits at 1, ..., K clusters.
    agreement: Annotated[Array | None, "k"] = None
    # (K,): share of the fits that suggest 1, ..., K clusters.
    suggested_by: Annotated[Array | None, "k"] = None

    def validate(self, d: int, k: int) -> bool:
        """Return whether each join of a file refers to clusters that exist before the join.

        ``d``, the number of columns of the data, is not used.
        """
        pairs = self.linkage[:, :2]
        # Before join j there are the clusters 0, ..., k + j - 1.
        are_known = (pairs >= 0) & (pairs < k + np.arange(k - 1)[:, None])
        return 0 <= self.n_vacant < k and bool(are_known.all())

    @property
    def n_components(self) -> int:
        """K, the number of components."""
        return len(self.linkage) + 1

    @property
    def criteria(self) -> NDArray[np.str_]:
        """Criterion that chose each join, "valley", "entropy" or "evidence", (K - 1,)."""
        join_numbers = np.arange(len(self.linkage))
        n_by_entropy = len(self.linkage) if self.n_by_entropy is None else self.n_by_entropy
        other_criteria = np.where(join_numbers < n_by_entropy, "entropy", "evidence")
        return np.where(join_numbers < self.n_by_valley, "valley", other_criteria)

    @property
    def losses(self) -> Array:
        """Loss of each join, in nats per row, (K - 1,)."""
        return np.diff(self.linkage[:, 2], prepend=0.0)

    @property
    def n_clusters(self) -> int:
        """Number of clusters suggested, by the rule for the entropy unless another rule set it."""
        if self.n_suggested is not None:
            return self.n_suggested
        return self.count_clusters_at_elbow(self.count_clusters_at_share(LOSS_SHARE_WITHOUT_VALLEY))

    def count_clusters_at_elbow(self, n_without_elbow: int, counts: Array | None = None) -> int:
        """Return the number of clusters at the elbow of the losses, at most ``n_without_elbow``.

        Return ``n_without_elbow`` if there is no elbow, or if fewer than `_MIN_JOINS_BEFORE_ELBOW`
        joins come before it. Joins before the elbow count only up to the first join that loses less
        than `LOSS_SHARE_BEFORE_ELBOW`. If ``counts``, the numbers of rows (K,) of the components,
        are not None, joins of clusters of fewer than `_MIN_ROWS_OF_CLUSTER` rows do not count.
        """
        n_with_rows = self.n_components - self.n_vacant
        n_at_elbow = n_with_rows - self.elbow(_MIN_JOINS_OF_LINE, min_ratio=_MIN_SLOPE_RATIO)
        n_at_elbow = max(self.count_clusters_at_share(LOSS_SHARE_BEFORE_ELBOW), n_at_elbow)
        n_joins = n_with_rows - n_at_elbow
        if counts is not None:
            counts_of_clusters = np.append(counts, self.masses * counts.sum())
            smaller_counts = counts_of_clusters[self.linkage[:, :2].astype(int)].min(axis=1)
            is_small = smaller_counts[self.n_vacant :] < _MIN_ROWS_OF_CLUSTER
            n_joins -= int(np.count_nonzero(is_small[:n_joins]))
        # This is true if there is no elbow, which counts as 0 joins.
        if n_joins < _MIN_JOINS_BEFORE_ELBOW:
            return n_without_elbow
        return min(n_without_elbow, n_at_elbow)

    def count_clusters_at_share(self, share: float) -> int:
        """Return the number of clusters before the first join that loses less than ``share``.

        ``share`` is relative to the largest possible loss of entropy. Joins of vacant components,
        which come first, are not examined.
        """
        # Find the first False. If all joins lose enough, it is the appended one.
        loses_enough = np.append(self.shares[self.n_vacant :] >= share, False)
        return self.n_components - self.n_vacant - int(np.argmin(loses_enough))

    def elbow(
        self, n_after: int, *, min_ratio: float | None = None, max_ratio: float | None = None
    ) -> int:
        """Return the number of joins before the elbow of the losses, 0 if there is no elbow.

        The cumulative losses, as a function of the cumulative masses of unions, are approximated by
        two straight lines [Baudry10 sec. 4]. The lines share a point, and their sum of squared
        errors is the smallest one among points that at least ``n_after`` joins follow. The point is
        an elbow if the mean slope before it, divided by the mean slope after it, is at least
        ``min_ratio`` and at most ``max_ratio``. None stands for no limit. Joins of vacant
        components are not examined and not counted.
        """
        losses = self._without_vacant_joins(self.linkage[:, 2])
        masses = self._without_vacant_joins(self.masses.cumsum())
        inner_points = range(_MIN_JOINS_OF_LINE, losses.size - n_after)
        if not inner_points:
            return 0
        # Choose the shared point with the smallest sum of squared errors.
        errors = [
            _sum_errors(masses[: j + 1], losses[: j + 1]) + _sum_errors(masses[j:], losses[j:])
            for j in inner_points
        ]
        squared_range = (losses[-1] - losses[0]) ** 2
        n_before_elbow = inner_points[int(stable_argmax(-np.array(errors), scale=squared_range))]
        # Compare the mean slopes before and after this point.
        slope_before, slope_after = self.compute_slopes(n_before_elbow, self.masses)
        is_elbow = (min_ratio is None or slope_before >= min_ratio * slope_after) and (
            max_ratio is None or slope_before <= max_ratio * slope_after
        )
        return n_before_elbow if is_elbow else 0

    def compute_slopes(self, n_joins: int, weights: Array) -> tuple[float, float]:
        """Return the sum of losses per sum of weights, before and after ``n_joins`` joins.

        ``weights`` (K - 1,) are weights of the joins. Joins of vacant components are not counted.
        """
        losses = self._without_vacant_joins(self.linkage[:, 2])
        weight_sums = self._without_vacant_joins(weights.cumsum())
        slope_before = (losses[n_joins] - losses[0]) / (weight_sums[n_joins] - weight_sums[0])
        slope_after = (losses[-1] - losses[n_joins]) / (weight_sums[-1] - weight_sums[n_joins])
        return float(slope_before), float(slope_after)

    def _without_vacant_joins(self, sums: Array) -> Array:
        """Return the last entries of cumulative sums over joins, from the last vacant join on.

        ``sums`` (K - 1,) are sums over each join and all earlier joins. The first entry of the
        result is the sum over the joins of vacant components, and 0 if there are none.
        """
        return np.append(0.0, sums)[self.n_vacant :]

    def component_clusters(self, n_clusters: int) -> IndexArray:
        """Return the cluster of each component, (K,), if there are ``n_clusters``.

        Clusters are numbered from 0 in the order of their first components.
        """
        n_joins = self.n_components - n_clusters
        # Stop the iterator after ``n_joins`` joins.
        first_components = next(islice(self._iterate_first_components(), n_joins, None))
        return _number_clusters(first_components)

    def all_component_clusters(self) -> list[IndexArray]:
        """Return :meth:`component_clusters` for 1, ..., K clusters."""
        return [*map(_number_clusters, self._iterate_first_components())][::-1]

    def _iterate_first_components(self) -> Iterator[IndexArray]:
        """Yield, after 0, ..., K - 1 joins, the first component of each component's cluster, (K,).

        All yields are the same array, which the next join changes.
        """
        members = [np.array([k]) for k in range(self.n_components)]
        first_components = np.arange(self.n_components)
        yield first_components
        for a, b in self.linkage[:, :2].astype(int):
            members.append(np.concatenate([members[a], members[b]]))
            first_components[members[-1]] = members[-1].min()
            yield first_components


def append_unions(values: Array, pairs: Array) -> Array:
    """Return the values of K clusters (K, ...), followed by their sums over the unions.

    The first two columns of ``pairs`` (K - 1, ...) are the numbers of the two clusters of each
    join, as in a linkage matrix, see `Joins`. The result has the shape (2 K - 1, ...).
    """
    sums = list(values)
    for a, b in pairs[:, :2].astype(int):
        sums.append(sums[a] + sums[b])
    return np.array(sums)


def indicate_clusters(clusters: IndexArray, dtype: DTypeLike = np.float64) -> Array:
    """Return a matrix (n_clusters, K) with 1 if the component belongs to the cluster, and 0 if not.

    ``clusters`` (K,) has the number of each component's cluster.
    """
    return (clusters == np.arange(clusters.max() + 1)[:, None]).astype(dtype)


def _number_clusters(first_components: IndexArray) -> IndexArray:
    """Return the number of each component's cluster, (K,).

    ``first_components`` (K,) has the first component of each component's cluster. Clusters are
    numbered in the order of their first components.
    """
    return np.unique(first_components, return_inverse=True)[1]


def _sum_errors(x: Array, y: Array) -> float:
    """Return the sum of squared errors of the straight line that fits points (x, y) best."""
    x, y = x - x.mean(), y - y.mean()
    slope = (x @ y) / (x @ x)
    return float(np.square(y - slope * x).sum())
