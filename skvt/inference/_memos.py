"""Memos: the statistics that memoized inference keeps of each batch [HS13 sec. 3]."""

from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from skvt.expfam import Stats, are_real
from skvt.files import in_files, is_within
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray

# Number of memos, or of their sums, that are added up to one stored sum.
_SUMMED = 32
# Least number of columns of arrays that may be packed.
_WIDE = 64
# Arrays are packed if at most this share of their columns is kept.
_WORTH_PACKING = 0.5


@in_files("inference.Memo", nan=("merge_entropy_loss",))
@dataclass(frozen=True)
class Memo:
    """Contribution of a batch at its last visit, untempered."""

    # Statistics of the batch; the first axis of each array has the K components.
    stats: Stats
    # (K,) or (): ``-sum_n w_n r_nk log r_nk`` in nats, or the entropy of all local variables.
    entropy: Array
    # (K, K): for a < b, the loss of entropy if a and b became one; after a later merge NaN, or an
    # upper bound. See :func:`skvt.models.mixture._kernels.assignment_entropy`.
    merge_entropy_loss: Array | None
    # Sum of the rows' weights.
    weight: float
    # (n, J): candidates of the rows at the next visit, -1 for components that were removed.
    candidates: IndexArray | None = None

    def rearranged(self, index: IndexArray) -> "Memo":
        """Return the memo of the components in ``index``, with empty ones where it is -1."""
        arrays = tuple(take(array, index) for array in self.stats.arrays)
        merge_entropy_loss = None
        if self.merge_entropy_loss is not None:
            # entries are kept above the diagonal
            square = take(take(self.merge_entropy_loss + self.merge_entropy_loss.T, index).T, index)
            merge_entropy_loss = np.triu(square, 1)
        entropy = take(self.entropy, index) if self.entropy.ndim else self.entropy
        candidates = self.candidates
        if candidates is not None:
            places = np.full(len(self.entropy) + 1, -1, candidates.dtype)  # the last is for -1
            kept = np.flatnonzero(np.asarray(index) >= 0)
            places[np.asarray(index)[kept]] = kept
            candidates = places[candidates]
        return Memo(Stats(arrays), entropy, merge_entropy_loss, self.weight, candidates)

    def merged(self, a: int, b: int, *, bounded: bool = False) -> "Memo":
        """Return the memo after component a has taken over the rows of b, a < b; b is then empty.

        The entropy that a merge of a with a third component loses is then unknown, unless neither a
        nor b would lose any. If ``bounded``, it is replaced by an upper bound, the sum of both
        losses: the loss is a concave function of the share of either component, and 0 at 0.
        """
        arrays = tuple(array.copy() for array in self.stats.arrays)
        for array in arrays:
            array[a] += array[b]
            array[b] = 0.0
        # merges are proposed only if the loss is known
        assert self.merge_entropy_loss is not None
        entropy, merge_entropy_loss = self.entropy.copy(), self.merge_entropy_loss.copy()
        entropy[a] += entropy[b] - merge_entropy_loss[a, b]
        entropy[b] = 0.0
        both = self.merge_entropy_loss + self.merge_entropy_loss.T
        both = both[a] + both[b]
        if not bounded:
            both[exceeds(both, 0.0, scale=self.weight)] = np.nan
        merge_entropy_loss[a, a + 1 :], merge_entropy_loss[:a, a] = both[a + 1 :], both[:a]
        merge_entropy_loss[b, b + 1 :] = merge_entropy_loss[:b, b] = 0.0
        return Memo(Stats(arrays), entropy, merge_entropy_loss, self.weight, self.candidates)

    def plus(self, other: "Memo", sign: float = 1.0) -> "Memo":
        """Return the sum with another memo, or with ``sign=-1`` the difference."""
        pairs = zip(self.stats.arrays, other.stats.arrays, strict=True)
        merge_entropy_loss = None
        if self.merge_entropy_loss is not None and other.merge_entropy_loss is not None:
            merge_entropy_loss = self.merge_entropy_loss + sign * other.merge_entropy_loss
        return Memo(
            Stats(tuple(array + sign * addend for array, addend in pairs)),
            self.entropy + sign * other.entropy,
            merge_entropy_loss,
            self.weight + sign * other.weight,
            self.candidates,
        )


@in_files("inference.Merged")
@dataclass(frozen=True)
class Merged:
    """A change of memos: component a takes over the rows of b."""

    a: int
    b: int
    bounded: bool

    def size_after(self, n: int) -> int | None:
        """Return the number of components, n before; None if there are no such components."""
        return n if 0 <= self.a < self.b < n else None

    def __call__(self, memo: Memo) -> Memo:
        """Return the memo after the merge."""
        return memo.merged(self.a, self.b, bounded=self.bounded)


@in_files("inference.Rearranged")
@dataclass(frozen=True)
class Rearranged:
    """A change of memos: components in another order."""

    index: IndexArray

    def size_after(self, n: int) -> int | None:
        """Return the number of components, n before; None if there are no such components."""
        one = self.index.ndim == 1 and self.index.size > 0
        return self.index.size if one and is_within(self.index + 1, n + 1) else None

    def __call__(self, memo: Memo) -> Memo:
        """Return the rearranged memo."""
        return memo.rearranged(self.index)


@in_files("inference.Packed")
@dataclass(frozen=True)
class _Packed:
    """A memo without the zero columns of its wide arrays, such as words that a batch does not have.

    ``memo`` holds the packed arrays. ``columns`` has the columns that are kept of each array, None
    if these are all; ``widths`` has the original numbers of columns.
    """

    memo: Memo
    columns: tuple[IndexArray | None, ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, memo: Memo) -> "_Packed":
        arrays, columns = [], []
        for array in memo.stats.arrays:
            occurs = None
            if array.ndim == 2 and array.shape[1] >= _WIDE:
                occurs = np.flatnonzero(array.any(axis=0))
                if occurs.size > _WORTH_PACKING * array.shape[1]:
                    occurs = None
            columns.append(occurs)
            arrays.append(array if occurs is None else array[:, occurs])
        if any(occurs is not None for occurs in columns):
            widths = tuple(np.shape(array)[-1] for array in memo.stats.arrays)
            return cls(replace(memo, stats=Stats(tuple(arrays))), tuple(columns), widths)
        return cls(memo, (), ())

    def is_legal(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether a memo of a file has statistics of these shapes after it is unpacked."""
        memo, loss, rows = self.memo, self.memo.merge_entropy_loss, self.memo.candidates
        n, expected = shapes[0][0], list(shapes)
        if self.columns:
            parts = zip(self.columns, self.widths, shapes, strict=True)
            for i, (columns, width, shape) in enumerate(parts):
                if columns is None:
                    continue
                if columns.ndim != 1 or shape != (n, width) or not is_within(columns, width):
                    return False
                expected[i] = (n, columns.size)
        return (
            are_real(memo.stats.arrays, expected)
            and np.shape(memo.entropy) in ((), (1,), (n,))
            and (loss is None or loss.shape in ((), (n, n)))
            and (rows is None or (rows.ndim == 2 and is_within(rows + 1, n + 1)))
        )

    def whole(self) -> Memo:
        """Return the unpacked memo."""
        if not self.columns:
            return self.memo
        arrays = []
        parts = zip(self.memo.stats.arrays, self.columns, self.widths, strict=True)
        for array, occurs, width in parts:
            if occurs is not None:
                kept, array = array, np.zeros((len(array), width), array.dtype)
                array[:, occurs] = kept
            arrays.append(array)
        return replace(self.memo, stats=Stats(tuple(arrays)))


# A memo, and the number of changes made to it.
_Entry: TypeAlias = tuple[_Packed, int]


@in_files("inference.Memos")
@dataclass(init=False, eq=False)
class Memos(MutableMapping[Hashable, Memo]):
    """The memo of each batch by its key, in the order in which they came, and their sum.

    Zero columns of wide arrays are not stored, such as words that no row of a batch has.

    Sums of 32 memos, of 32 such sums and so on are kept, and replacing a memo invalidates only the
    sums that contain it. The total of a stream thus costs the same however long the stream is, and
    rounding errors cannot accumulate: each sum is a plain sum of 32 terms. Changes of all memos are
    deferred until a memo is requested; they are linear, and so are applied directly to sums of many
    memos. ``Memos(memos)`` is an independent copy that shares the memos.
    """

    _places: dict[Hashable, int]
    # [(memo, number of changes made to it)], [the same for each sum of 32 of them, or None] ...
    _levels: list[list[_Entry | None]]
    _changes: list[Callable[[Memo], Memo]]

    def __init__(self, memos: "Memos | Mapping[Hashable, Memo]" = MappingProxyType({})) -> None:
        self._places, self._levels, self._changes = {}, [[]], []
        if isinstance(memos, Memos):
            self._places = dict(memos._places)
            self._levels = [list(level) for level in memos._levels]
            self._changes = list(memos._changes)
            return
        self.update(memos)

    def __copy__(self) -> "Memos":
        return Memos(self)

    @classmethod
    def of(cls, memos: "Mapping[Hashable, Memo]") -> "Memos":
        """Return a collection of these memos."""
        return cls(memos)

    def __getitem__(self, key: Hashable) -> Memo:
        return self._now(0, self._places[key])

    def __setitem__(self, key: Hashable, memo: Memo) -> None:
        place = self._places.setdefault(key, len(self._places))
        entry: _Entry | None = (_Packed.of(memo), len(self._changes))
        for level in self._levels:
            if place == len(level):
                level.append(entry)
            else:
                level[place] = entry
            place, entry = place // _SUMMED, None
        n_sums = -(-len(self._levels[-1]) // _SUMMED)
        if n_sums > 1:
            self._levels.append([None] * n_sums)

    def __delitem__(self, key: Hashable) -> None:
        """Remove a memo and move the last memo to its place."""
        place = self._places.pop(key)
        last = len(self._places)
        memos = self._levels[0]
        if place < last:
            (moved,) = (other for other, number in self._places.items() if number == last)
            self._places[moved], memos[place] = place, memos[last]
        memos.pop()
        for below, level in pairwise(self._levels):
            place, last = place // _SUMMED, last // _SUMMED
            level[place] = level[last] = None
            del level[-(-len(below) // _SUMMED) :]
        while len(self._levels) > 1 and len(self._levels[-2]) == 1:
            self._levels.pop()

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def is_whole(self) -> bool:
        """Return whether all memos and sums are in place."""
        sizes = [len(level) for level in self._levels]
        above = [-(-size // _SUMMED) for size in sizes]
        of_memos = sorted(self._places.values()) == list(range(sizes[0]))
        return of_memos and None not in self._levels[0] and [*sizes[1:], 1] == above

    def are_legal(self, shapes: Sequence[tuple[int, ...]], n_components: int, most: float) -> bool:
        """Return whether memos of a file end with statistics of these shapes, after all changes.

        Changes are not applied, since they may make a memo larger than the file: at most ``most``
        bytes.
        """
        if not self.is_whole():
            return False
        entries = [entry for level in self._levels for entry in level if entry is not None]
        if not entries:
            return True
        # number of components after each number of changes
        numbers = {n_made: len(packed.memo.stats.arrays[0]) for packed, n_made in entries}
        first = min(numbers)
        n = most_components = numbers[first]
        counts = {first: n}
        for n_made, change in enumerate(self._changes[first:], first + 1):
            size = change.size_after(n)  # type: ignore[attr-defined]  # of a file
            if size is None:
                return False
            n, most_components = size, max(most_components, n)
            counts[n_made] = n
        of_pairs = any(packed.memo.merge_entropy_loss is not None for packed, _ in entries)
        of_each = sum(int(np.prod(shape[1:])) for shape in shapes) + most_components * of_pairs
        if n != n_components or 8 * most_components * of_each > most:
            return False
        for packed, n_made in entries:
            changed = [(counts[n_made], *shape[1:]) for shape in shapes]
            if not packed.is_legal(changed if self._changes else shapes):
                return False
        weights = [[entry[0].memo.weight for entry in level if entry] for level in self._levels]
        legal = all(0.0 <= weight < np.inf for level in weights for weight in level)
        return legal and sum(weights[0]) > 0.0 and all(0.0 not in level for level in weights[1:])

    def total(self) -> Memo:
        """Return the sum of all memos, a memo with new arrays."""
        return sum_of(self._summands())

    @property
    def has_candidates(self) -> bool:
        """Whether the rows of any batch have candidates."""
        return any(entry[0].memo.candidates is not None for entry in self._levels[0] if entry)

    @property
    def weight(self) -> float:
        """Sum of the rows' weights of all batches."""
        return float(sum(memo.weight for memo in self._summands()))

    def change_all(self, change: Callable[[Memo], Memo]) -> None:
        """Replace each memo by ``change(memo)``, which is linear and can be pickled."""
        self._changes.append(change)

    def _summands(self) -> list[Memo]:
        """Return a few memos or sums of memos that add up to the total."""
        top = len(self._levels) - 1
        return [self._now(top, place) for place in range(len(self._levels[top]))]

    def _now(self, level: int, place: int) -> Memo:
        """Return a memo, or a sum of memos, after all changes."""
        entry = self._levels[level][place]
        if entry is None:
            parts = range(len(self._levels[level - 1]))[place * _SUMMED : (place + 1) * _SUMMED]
            memo = sum_of([self._now(level - 1, part) for part in parts])
        else:
            packed, n_made = entry
            memo = packed.whole()
            if n_made == len(self._changes):
                return memo
            for change in self._changes[n_made:]:
                memo = change(memo)
        self._levels[level][place] = _Packed.of(memo), len(self._changes)
        return memo


def sum_of(memos: Sequence[Memo]) -> Memo:
    """Return the sum of these memos, a memo with new arrays."""
    arrays = zip(*(memo.stats.arrays for memo in memos), strict=True)
    losses = [memo.merge_entropy_loss for memo in memos if memo.merge_entropy_loss is not None]
    return Memo(
        Stats(tuple(_sum(parts) for parts in arrays)),
        _sum([memo.entropy for memo in memos]),
        _sum(losses) if len(losses) == len(memos) else None,
        float(sum(memo.weight for memo in memos)),
    )


def take(array: Array, index: IndexArray) -> Array:
    """Return ``array[index]`` along the first axis, zero where the index is -1."""
    out = array[index]
    out[np.asarray(index) < 0] = 0.0
    return out


def _sum(arrays: Sequence[Array]) -> Array:
    total = np.array(arrays[0], np.float64)
    for array in arrays[1:]:
        total += array
    return total
