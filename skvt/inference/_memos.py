"""What memoized inference remembers of each batch [HS13 sec. 3]."""

from dataclasses import dataclass

import numpy as np

from skvt.expfam import Stats


@dataclass(frozen=True)
class Memo:
    """One batch as it was last seen, untempered.

    Attributes
    ----------
    stats : Stats
        Its statistics; the first axis of each array are the K components.
    entropy : ndarray, shape (K,)
        ``-sum_n w_n r_nk log r_nk`` in nats.
    excess : ndarray, shape (K, K), or None
        For a < b, what the entropy loses when a and b become one; after a later merge NaN, or the
        most that it can lose. See :func:`skvt.models._mixture_kernels.assignment_entropy`.
    weight : float
        Sum of the rows' weights.
    start : ndarray, shape (n, ...), or None
        Where the next local step on these rows begins; None for models that begin anew.
    """

    stats: Stats
    entropy: np.ndarray
    excess: np.ndarray | None
    weight: float
    start: np.ndarray | None = None

    def rearranged(self, index):
        """Components in another order: those of ``index``, empty ones where it is -1."""
        arrays = tuple(take(array, index) for array in self.stats.arrays)
        excess = None
        if self.excess is not None:
            # entries are kept above the diagonal
            square = take(take(self.excess + self.excess.T, index).T, index)
            excess = np.triu(square, 1)
        return Memo(Stats(arrays), take(self.entropy, index), excess, self.weight)

    def merged(self, a, b, *, bounded=False):
        """Component a takes over the rows of b, and b is empty; a < b.

        What the entropy would lose by merging a with a third is not known then. If ``bounded`` it
        is bounded by the sum of what both would lose: as a function of the share of one of the two,
        it is concave, and 0 at 0.
        """
        arrays = tuple(array.copy() for array in self.stats.arrays)
        for array in arrays:
            array[a] += array[b]
            array[b] = 0.0
        entropy, excess = self.entropy.copy(), self.excess.copy()
        entropy[a] += entropy[b] - excess[a, b]
        entropy[b] = 0.0
        if bounded:
            both = self.excess + self.excess.T
            both = both[a] + both[b]
            excess[a, a + 1 :], excess[:a, a] = both[a + 1 :], both[:a]
        else:
            excess[a, a + 1 :] = excess[:a, a] = np.nan
        excess[b, b + 1 :] = excess[:b, b] = 0.0
        return Memo(Stats(arrays), entropy, excess, self.weight)

    def plus(self, other, sign=1.0):
        """The sum with another memo, or with ``sign=-1`` the difference."""
        pairs = zip(self.stats.arrays, other.stats.arrays, strict=True)
        excess = None if self.excess is None else self.excess + sign * other.excess
        return Memo(
            Stats(tuple(array + sign * addend for array, addend in pairs)),
            self.entropy + sign * other.entropy,
            excess,
            self.weight + sign * other.weight,
        )


class Memos(dict):
    """The memo of each batch by its key; sums over all of them are exact by construction."""

    def total(self):
        """The sum of all memos, as a memo."""
        memos = list(self.values())
        arrays = zip(*(memo.stats.arrays for memo in memos), strict=True)
        known = all(memo.excess is not None for memo in memos)
        return Memo(
            Stats(tuple(_sum(parts) for parts in arrays)),
            _sum([memo.entropy for memo in memos]),
            _sum([memo.excess for memo in memos]) if known else None,
            float(sum(memo.weight for memo in memos)),
        )

    def change_all(self, change):
        """Replace each memo by ``change(memo)``."""
        for key, memo in self.items():
            self[key] = change(memo)


def take(array, index):
    """``array[index]`` along the first axis, zero where the index is -1."""
    out = array[index]
    out[np.asarray(index) < 0] = 0.0
    return out


def _sum(arrays):
    total = np.zeros(arrays[0].shape)
    for array in arrays:
        total += array
    return total
