"""Joins of pairs of clusters until one cluster is left: the hierarchy of a mixture's components.

Clusters begin as the K components. :func:`join_components` makes every hierarchy. A subclass of
:class:`JoinCriterion` computes the loss of joining two clusters, which determines the pair that is
joined next. The loss is a test of the valley between the clusters, the entropy of the assignments
of rows that is lost, the evidence that is lost, or a product of these numbers. A hierarchy can
begin with the joins of another hierarchy.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.models.mixture._joins import Joins, append_unions
from skvt.models.mixture._kernels import (
    PairTables,
    bound_losses_of_union,
    find_next_pair,
    set_exact_loss,
    set_priorities,
)
from skvt.models.mixture._pairs import JoinCriterion, largest_loss
from skvt.ties import RTOL
from skvt.typing import Array


def join_components(
    criterion: JoinCriterion, *, is_relative: bool = True, first_joins: Array | None = None
) -> Joins:
    """Join pairs of clusters until one cluster is left; return the hierarchy.

    If ``criterion.sign`` is 1, the pair with the largest loss of entropy is joined next, because
    clusters that overlap lose much entropy. If it is -1, the pair with the smallest loss is joined
    next. A cluster is vacant if it is the most probable cluster of no row. As long as there are
    vacant clusters, one of the two clusters of a join must be vacant.

    If ``is_relative`` is true, a loss of entropy is divided by the largest possible loss of the
    pair. [Baudry10 sec. 3] does not divide. The undivided loss favours pairs with many rows even if
    they are well separated, so that one large cluster absorbs the others.

    ``first_joins`` (n, ...) are the first rows of the linkage matrix of another hierarchy. Their
    first two columns are the clusters of the first n joins.
    """
    # Joins change the copy. ``initial_criterion`` keeps the state before all joins.
    initial_criterion = criterion
    criterion = criterion.copy()
    K = criterion.proportions.size
    first_joins = np.empty((0, 2)) if first_joins is None else first_joins
    # A cluster has an index in the arrays of ``criterion`` and a number in the linkage matrix. A
    # union keeps the index of its first cluster, and gets a new number.
    cluster_numbers = np.arange(K)
    is_remaining = np.ones(K, bool)
    pair_losses = None
    joined_pairs = np.empty((K - 1, 2), int)
    for step in range(K - 1):
        # Choose the clusters a < b and join them. Losses of all pairs are computed only before the
        # first join that ``first_joins`` does not determine.
        if step < len(first_joins):
            numbers = first_joins[step, :2]
            a, b = sorted(int(np.flatnonzero(cluster_numbers == number)[0]) for number in numbers)
            criterion.join(a, b)
        else:
            if pair_losses is None:
                pair_losses = _PairLosses(criterion, is_relative, is_remaining)
            a, b = pair_losses.find_best_pair()
            pair_losses.join(a, b)
        joined_pairs[step] = sorted((cluster_numbers[a], cluster_numbers[b]))
        is_remaining[b] = False
        cluster_numbers[a] = K + step
    return make_hierarchy(initial_criterion, joined_pairs)


def make_hierarchy(criterion: JoinCriterion, joined_pairs: Array) -> Joins:
    """Return the hierarchy that makes the joins ``joined_pairs``, with the losses of ``criterion``.

    The first two columns of ``joined_pairs`` (K - 1, ...) are the numbers of the two clusters of
    each join, as in a linkage matrix, see `Joins`.
    """
    joined_pairs = joined_pairs[:, :2].astype(int)
    K = criterion.proportions.size
    masses = append_unions(criterion.proportions, joined_pairs)
    n_components = append_unions(np.ones(K), joined_pairs)
    losses = criterion.join_losses(joined_pairs)
    shares = losses / largest_loss(*masses[joined_pairs.T])
    heights = np.maximum(losses, 0.0).cumsum()
    linkage = np.column_stack([joined_pairs, heights, n_components[K:]])
    return Joins(linkage, shares, masses[K:], int(criterion.is_vacant.sum()))


class _PairLosses:
    """Losses of all pairs of the remaining clusters, and the choice of the next pair.

    Each pair has a priority, which is computed from its losses. The pair with the largest priority
    is joined next. Since an exact loss of entropy takes a pass over the rows, it is computed only
    for a pair that has the largest priority by an upper bound of its loss.

    There are two kinds of upper bounds. First, the loss of joining a union of two clusters with a
    third one is at most the sum of the losses of joining each of the two with the third one.
    Second, the loss over all rows is at most the loss computed from sums of responsibilities over
    groups of rows. Both bounds hold because the loss of a row is concave and homogeneous in its
    responsibilities: the sum of losses is at most the loss of the summed responsibilities.
    """

    def __init__(
        self, criterion: JoinCriterion, is_relative: bool, is_remaining: NDArray[np.bool_]
    ) -> None:
        self.criterion = criterion
        # (K,): whether a cluster remains, that is, has not been joined into another one.
        self.is_remaining = is_remaining.copy()
        # Whether priorities are losses of entropy, not divided by the largest possible losses.
        self.is_absolute = criterion is criterion.entropy_assignments and not is_relative
        K = is_remaining.size
        entropy_bounds, largest_losses, losses, priorities = np.zeros((4, K, K))
        # (K, n_groups) each: responsibilities r, summed over groups of rows, and r log r. There are
        # no groups if the entropy is ignored.
        group_sums: Array = np.zeros((K, 0))
        group_terms: Array = np.zeros((K, 0))
        if criterion.entropy_assignments is not None:
            entropy_bounds[:] = criterion.entropy_assignments.bounds
            group_sums, group_terms = criterion.entropy_assignments.groups
        # All pairs a < b of remaining clusters.
        a, b = np.nonzero(np.triu(is_remaining & is_remaining[:, None], 1))
        if criterion is not criterion.entropy_assignments:
            losses[a, b] = losses[b, a] = criterion.losses(a, b)
        largest_losses[a, b] = largest_losses[b, a] = self._largest_losses(a, b)
        # An upper bound of 0 is the exact loss, because no loss is negative.
        self.tables = PairTables(
            entropy_bounds, entropy_bounds == 0.0, largest_losses, losses, priorities,
            np.empty(K), group_sums, group_terms,
        )  # fmt: skip
        self.rtol = RTOL[np.dtype(criterion.dtype)]
        self._set_all_priorities()

    def _largest_losses(self, a: Any, b: Any) -> Any:
        """Return the numbers by which losses of entropy of pairs (a, b) are divided, (n,)."""
        return np.ones(b.size) if self.is_absolute else self.criterion.largest_losses(a, b)

    def _set_all_priorities(self) -> None:
        """Compute the priorities of all pairs of remaining clusters."""
        # Whether one of the two clusters of the next join must be vacant.
        self.needs_vacant = bool(self.criterion.is_vacant.any())
        self.tables.priorities[:] = -np.inf
        self.tables.row_maxima[:] = -np.inf
        for a in np.flatnonzero(self.is_remaining).tolist():
            self._set_priorities_of(a)

    def _set_priorities_of(self, a: int) -> None:
        """Compute the priorities of cluster a and all clusters that can be joined with it."""
        is_vacant = self.criterion.is_vacant
        partners = self.is_remaining.copy()
        partners[a] = False
        partners = partners & (is_vacant | is_vacant[a]) if self.needs_vacant else partners
        set_priorities(a, partners, self.criterion.sign, self.tables)

    def find_best_pair(self) -> tuple[int, int]:
        """Return the next pair a < b to join.

        Exact losses of entropy are computed until no other pair can have the largest priority.
        """
        while True:
            a, b, is_exact = find_next_pair(self.rtol, self.tables)
            if is_exact:
                return a, b
            assert self.criterion.entropy_assignments is not None
            loss = self.criterion.entropy_assignments.loss_of_pair(a, b)
            set_exact_loss(a, b, loss, self.criterion.sign, self.tables)

    def join(self, a: int, b: int) -> None:
        """Join b into a, and update the losses and priorities of all pairs with a."""
        criterion, tables = self.criterion, self.tables
        self.is_remaining[b] = False
        criterion.join(a, b)
        bound_losses_of_union(a, b, tables)
        others = np.flatnonzero(self.is_remaining)
        others = others[others != a]
        largest_losses = self._largest_losses(a, others)
        tables.largest_losses[a, others] = tables.largest_losses[others, a] = largest_losses
        if criterion is not criterion.entropy_assignments:
            tables.losses[a, others] = tables.losses[others, a] = criterion.losses(a, others)
        # If this join has used the last vacant cluster, all pairs can be joined from now on.
        if self.needs_vacant and not criterion.is_vacant.any():
            self._set_all_priorities()
        else:
            self._set_priorities_of(a)
