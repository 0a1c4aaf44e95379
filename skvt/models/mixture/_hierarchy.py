"""The routine that makes all hierarchies: it joins pairs of clusters until one is left.

Pairs are chosen by tests of valleys, by the entropy, by the evidence or by products of these. A
hierarchy can start with the joins of another.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.models.mixture._joins import Joins
from skvt.models.mixture._kernels import EXACT, join_pairs, next_pair, set_pair
from skvt.models.mixture._pairs import Pairs
from skvt.ties import RTOL
from skvt.typing import Array


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
