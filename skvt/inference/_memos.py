"""Memos: the statistics and entropies that memoized inference keeps of each batch [HS13 sec. 3].

:class:`Memo` is the memo of one batch, or the sum of several. :class:`Memos` is the collection of
all memos, which also keeps their sum. A visit of a batch, that is, its local step, replaces the
memo of this batch. Moves are changes of the components between passes. They change all memos:
:class:`MergeChange` merges two components, and :class:`RearrangeChange` changes which components
are kept, and in which order.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from skvt.expfam import Stats, are_float_arrays
from skvt.files import are_indices_below, in_files
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray

# Number of memos, or of sums of memos, that are added up to one stored sum.
_FAN_IN = 32
# Arrays with fewer columns are stored with their zero columns.
_MIN_WIDTH_TO_PACK = 64
# Arrays with a larger share of columns that are not 0 are stored with their zero columns.
_MAX_SHARE_TO_PACK = 0.5


@in_files("inference.Memo", nan=("merge_entropy_loss",))
@dataclass(frozen=True)
class Memo:
    """What the rows of one or more batches contribute to the statistics and the bound at T = 1.

    The memo describes each batch after the last local step of the batch. T is the temperature.
    """

    # Statistics of the batch; the first axis of each array has the K components.
    stats: Stats
    # (K,): entropy ``-sum_n w_n r_nk log r_nk`` of the assignments to each component, in nats; or
    # (): entropy of all local variables.
    entropy: Array
    # (K, K): for a < b, the entropy in nats that would be lost if components a and b became one.
    # After a merge of a or b with another component, the entry is NaN or an upper bound. Entries
    # for a >= b are 0. None if the losses are not known.
    # See :func:`skvt.models.mixture._kernels.add_assignment_entropies`.
    merge_entropy_loss: Array | None
    # Sum of the weights of the rows.
    weight: float
    # (n, J): components with which the next local step compares each row; -1 is a removed
    # component. None if rows are compared with all components.
    candidates: IndexArray | None = None

    def rearranged(self, index: IndexArray) -> "Memo":
        """Return a memo whose component i is component ``index[i]``, or empty for the index -1."""
        arrays = tuple(take(array, index) for array in self.stats.arrays)
        merge_entropy_loss = None
        if self.merge_entropy_loss is not None:
            symmetric = self.merge_entropy_loss + self.merge_entropy_loss.T
            merge_entropy_loss = np.triu(take(take(symmetric, index).T, index), 1)
        entropy = take(self.entropy, index) if self.entropy.ndim else self.entropy
        candidates = self.candidates
        if candidates is not None:
            # The additional last entry is at index -1, and maps -1 to -1.
            new_numbers = np.full(len(self.entropy) + 1, -1, candidates.dtype)
            kept = np.flatnonzero(np.asarray(index) >= 0)
            new_numbers[np.asarray(index)[kept]] = kept
            candidates = new_numbers[candidates]
        return Memo(Stats(arrays), entropy, merge_entropy_loss, self.weight, candidates)

    def merged(self, a: int, b: int, *, bounded: bool = False) -> "Memo":
        """Return the memo after component a has taken over the rows of b, a < b; b is then empty.

        The memo does not determine the loss of entropy by a further merge of a with a component c.
        The loss is 0 if the merges of c with the old a and with b would have lost nothing.
        Otherwise the entry of ``merge_entropy_loss`` for a and c becomes NaN, or if ``bounded``,
        the sum of the losses by the merges of c with the old a and with b. This sum is an upper
        bound, because a loss is a concave function of the share of either component, and 0 at a
        share of 0.
        """
        arrays = tuple(array.copy() for array in self.stats.arrays)
        for array in arrays:
            array[a] += array[b]
            array[b] = 0.0
        # Merges are proposed only if their loss of entropy is known.
        assert self.merge_entropy_loss is not None
        entropy, merge_entropy_loss = self.entropy.copy(), self.merge_entropy_loss.copy()
        entropy[a] += entropy[b] - merge_entropy_loss[a, b]
        entropy[b] = 0.0
        symmetric = self.merge_entropy_loss + self.merge_entropy_loss.T
        # (K,): bounds of the losses by merges of the new component a with each component.
        losses = symmetric[a] + symmetric[b]
        if not bounded:
            losses[exceeds(losses, 0.0, scale=self.weight)] = np.nan
        merge_entropy_loss[a, a + 1 :], merge_entropy_loss[:a, a] = losses[a + 1 :], losses[:a]
        merge_entropy_loss[b, b + 1 :] = merge_entropy_loss[:b, b] = 0.0
        return Memo(Stats(arrays), entropy, merge_entropy_loss, self.weight, self.candidates)

    def plus(self, other: "Memo", sign: float = 1.0) -> "Memo":
        """Return the sum of the memo and ``other``, or their difference if ``sign`` is -1.

        The result has the candidates of this memo.
        """
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
class MergeChange:
    """A change of memos: component a takes over the rows of b, see :meth:`Memo.merged`."""

    a: int
    b: int
    bounded: bool

    def size_after(self, n_components: int) -> int | None:
        """Return the number of components after a change of memos with ``n_components``.

        Return None if a and b are not numbers of two components in ascending order, so that the
        change is illegal.
        """
        return n_components if 0 <= self.a < self.b < n_components else None

    def __call__(self, memo: Memo) -> Memo:
        """Return the memo after the merge."""
        return memo.merged(self.a, self.b, bounded=self.bounded)


@in_files("inference.Rearranged")
@dataclass(frozen=True)
class RearrangeChange:
    """A change of memos: component i becomes component ``index[i]``, or empty for the index -1."""

    index: IndexArray

    def size_after(self, n_components: int) -> int | None:
        """Return the number of components after a change of memos with ``n_components``.

        Return None if ``index`` is not a vector of numbers of components or -1, so that the change
        is illegal.
        """
        is_vector = self.index.ndim == 1 and self.index.size > 0
        is_legal = is_vector and are_indices_below(self.index + 1, n_components + 1)
        return self.index.size if is_legal else None

    def __call__(self, memo: Memo) -> Memo:
        """Return the rearranged memo."""
        return memo.rearranged(self.index)


@in_files("inference.Packed")
@dataclass(frozen=True)
class _PackedMemo:
    """A memo whose wide arrays are stored without their zero columns.

    For instance, a word that does not occur in the batch has a zero column.
    """

    # The memo, whose arrays have only the columns that are stored.
    memo: Memo
    # For each array, the numbers of the columns that are stored; None for all columns. () if all
    # arrays have all columns.
    columns: tuple[IndexArray | None, ...]
    # For each array, the number of columns before packing. () if all arrays have all columns.
    widths: tuple[int, ...]

    @classmethod
    def of(cls, memo: Memo) -> "_PackedMemo":
        """Leave out the zero columns of the wide arrays of a memo."""
        arrays, columns = [], []
        for array in memo.stats.arrays:
            stored = None
            if array.ndim == 2 and array.shape[1] >= _MIN_WIDTH_TO_PACK:
                stored = np.flatnonzero(array.any(axis=0))
                if stored.size > _MAX_SHARE_TO_PACK * array.shape[1]:
                    stored = None
            columns.append(stored)
            arrays.append(array if stored is None else array[:, stored])
        if any(stored is not None for stored in columns):
            widths = tuple(np.shape(array)[-1] for array in memo.stats.arrays)
            return cls(replace(memo, stats=Stats(tuple(arrays))), tuple(columns), widths)
        return cls(memo, columns=(), widths=())

    def is_legal(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether the memo, read from a file, has arrays of these shapes when unpacked."""
        memo = self.memo
        loss, candidates = memo.merge_entropy_loss, memo.candidates
        n_components = shapes[0][0]
        # The shapes of the arrays as they are stored.
        stored_shapes = list(shapes)
        if self.columns:
            packed_arrays = zip(self.columns, self.widths, shapes, strict=True)
            for i, (columns, width, shape) in enumerate(packed_arrays):
                if columns is None:
                    continue
                if shape != (n_components, width):
                    return False
                if columns.ndim != 1 or not are_indices_below(columns, width):
                    return False
                stored_shapes[i] = (n_components, columns.size)
        # Candidates are numbers of components or -1.
        has_legal_candidates = candidates is None or (
            candidates.ndim == 2 and are_indices_below(candidates + 1, n_components + 1)
        )
        return (
            are_float_arrays(memo.stats.arrays, stored_shapes)
            and np.shape(memo.entropy) in ((), (1,), (n_components,))
            and (loss is None or loss.shape in ((), (n_components, n_components)))
            and has_legal_candidates
        )

    def unpack(self) -> Memo:
        """Return the memo with all columns."""
        if not self.columns:
            return self.memo
        arrays = []
        packed_arrays = zip(self.memo.stats.arrays, self.columns, self.widths, strict=True)
        for array, columns, width in packed_arrays:
            if columns is not None:
                unpacked = np.zeros((len(array), width), array.dtype)
                unpacked[:, columns] = array
                array = unpacked
            arrays.append(array)
        return replace(self.memo, stats=Stats(tuple(arrays)))


# A memo or a sum of memos, and the number of changes of all memos that have been applied to it.
_Entry: TypeAlias = tuple[_PackedMemo, int]


@in_files("inference.Memos")
@dataclass(init=False, eq=False)
class Memos(MutableMapping[Hashable, Memo]):
    """The memo of each batch by the key of the batch, and the sum of all memos.

    The memos have the order in which their keys were added. Sums are kept in levels: sums of 32
    memos, sums of 32 of these sums, and so on. If a memo is replaced, only the sums that contain
    the memo are computed again, so that the total of many memos costs little more than the total of
    few. Rounding errors do not accumulate, because each sum is computed from its 32 terms.

    A change of all memos is deferred until a memo or the total is requested. Changes are linear, so
    that they can be applied to sums directly.

    ``Memos(memos)`` is an independent copy of a collection, which shares the memos.
    """

    # By key, the position of the memo in the lowest level.
    _places: dict[Hashable, int]
    # The lowest level has the memos. Each level above has the sums of 32 entries of the level
    # below, in their order; None stands for a sum that must be computed again.
    _levels: list[list[_Entry | None]]
    # The changes of all memos so far, in their order.
    _changes: list[Callable[[Memo], Memo]]

    def __init__(self, memos: "Memos | Mapping[Hashable, Memo]" = MappingProxyType({})) -> None:
        if isinstance(memos, Memos):
            self._places = dict(memos._places)
            self._levels = [list(level) for level in memos._levels]
            self._changes = list(memos._changes)
        else:
            self._places = {}
            self._levels = [[]]
            self._changes = []
            self.update(memos)

    def __copy__(self) -> "Memos":
        return Memos(self)

    @classmethod
    def of(cls, memos: "Mapping[Hashable, Memo]") -> "Memos":
        """Return a collection of these memos, for moves, which cannot import this class."""
        return cls(memos)

    def __getitem__(self, key: Hashable) -> Memo:
        return self._get_entry(0, self._places[key])

    def __setitem__(self, key: Hashable, memo: Memo) -> None:
        """Store a memo, and invalidate the sums that contain the memo of this key."""
        position = self._places.setdefault(key, len(self._places))
        entry: _Entry | None = (_PackedMemo.of(memo), len(self._changes))
        for level in self._levels:
            if position == len(level):
                level.append(entry)
            else:
                level[position] = entry
            # In the levels above, None marks the sum that contains the memo.
            position, entry = position // _FAN_IN, None
        # Add a level if the highest level has more entries than one sum can have terms.
        n_sums = -(-len(self._levels[-1]) // _FAN_IN)
        if n_sums > 1:
            self._levels.append([None] * n_sums)

    def __delitem__(self, key: Hashable) -> None:
        """Remove a memo, and move the last memo to its position."""
        position = self._places.pop(key)
        # The position of the last memo, since the number of keys is now one less.
        last = len(self._places)
        memos = self._levels[0]
        if position < last:
            (last_key,) = (key for key, number in self._places.items() if number == last)
            self._places[last_key] = position
            memos[position] = memos[last]
        memos.pop()
        # Invalidate the sums that contained either memo, and remove sums without terms.
        for level_below, level in pairwise(self._levels):
            position, last = position // _FAN_IN, last // _FAN_IN
            level[position] = level[last] = None
            del level[-(-len(level_below) // _FAN_IN) :]
        # Remove levels above a level with a single entry.
        while len(self._levels) > 1 and len(self._levels[-2]) == 1:
            self._levels.pop()

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def is_consistent(self) -> bool:
        """Return whether keys and levels, read from a file, fit together."""
        sizes = [len(level) for level in self._levels]
        sizes_above = [-(-size // _FAN_IN) for size in sizes]
        has_all_positions = sorted(self._places.values()) == list(range(sizes[0]))
        has_all_memos = has_all_positions and None not in self._levels[0]
        # The highest level must be short enough for one sum.
        return has_all_memos and [*sizes[1:], 1] == sizes_above

    def are_legal(
        self, shapes: Sequence[tuple[int, ...]], n_components: int, max_bytes: float
    ) -> bool:
        """Return whether memos, read from a file, fit statistics of these shapes.

        The shapes, with ``n_components`` components, are those after all changes. The changes are
        not applied, because they may make memos much larger than the file. Return False if a memo
        would have more than ``max_bytes``.
        """
        if not self.is_consistent():
            return False
        entries = [entry for level in self._levels for entry in level if entry is not None]
        if not entries:
            return True
        # Compute the number of components after each change. Skip the changes that have been
        # applied to all entries.
        sizes = {n_changes: len(packed.memo.stats.arrays[0]) for packed, n_changes in entries}
        n_applied_to_all = min(sizes)
        size = max_size = sizes[n_applied_to_all]
        size_after_changes = {n_applied_to_all: size}
        remaining_changes = self._changes[n_applied_to_all:]
        for n_changes, change in enumerate(remaining_changes, n_applied_to_all + 1):
            # Files hold only changes that have this method.
            new_size = change.size_after(size)  # type: ignore[attr-defined]
            if new_size is None:
                return False
            size, max_size = new_size, max(max_size, size)
            size_after_changes[n_changes] = size
        # Compare the bytes of the largest memo with the limit. Its numbers have 8 bytes. The losses
        # of merges have as many numbers per component as there are components.
        has_pairs = any(packed.memo.merge_entropy_loss is not None for packed, _ in entries)
        numbers_per_component = sum(int(np.prod(shape[1:])) for shape in shapes)
        numbers_per_component += max_size * has_pairs
        if size != n_components or 8 * max_size * numbers_per_component > max_bytes:
            return False
        # Compare each entry with the shapes before the changes that have not been applied to it.
        for packed, n_changes in entries:
            shapes_before = [(size_after_changes[n_changes], *shape[1:]) for shape in shapes]
            if not packed.is_legal(shapes_before if self._changes else shapes):
                return False
        # Memos may have the weight 0, sums of memos may not.
        memo_weights, *sum_weights = (
            [packed.memo.weight for packed, _ in filter(None, level)] for level in self._levels
        )
        # Concatenate the lists.
        weights = sum(sum_weights, memo_weights)
        are_finite = all(0.0 <= weight < np.inf for weight in weights)
        return are_finite and sum(memo_weights) > 0.0 and all(0.0 not in s for s in sum_weights)

    def total(self) -> Memo:
        """Return the sum of all memos as a new memo, whose arrays may be changed."""
        return add_memos(self._get_top_level())

    @property
    def has_candidates(self) -> bool:
        """Whether the rows of any batch have candidates."""
        memos = (packed.memo for packed, _ in filter(None, self._levels[0]))
        return any(memo.candidates is not None for memo in memos)

    @property
    def weight(self) -> float:
        """Sum of the weights of the rows of all batches."""
        return float(sum(memo.weight for memo in self._get_top_level()))

    def change_all(self, change: Callable[[Memo], Memo]) -> None:
        """Replace each memo by ``change(memo)``; the change must be linear and picklable."""
        self._changes.append(change)

    def _get_top_level(self) -> list[Memo]:
        """Return the memos or sums of the highest level, at most 32, which add up to the total."""
        top = len(self._levels) - 1
        return [self._get_entry(top, position) for position in range(len(self._levels[top]))]

    def _get_entry(self, level: int, position: int) -> Memo:
        """Return a memo, or a sum of memos, after all changes; store the result."""
        entry = self._levels[level][position]
        if entry is None:
            # The slice of the range ends at the number of entries of the level below.
            n_below = len(self._levels[level - 1])
            positions = range(n_below)[position * _FAN_IN : (position + 1) * _FAN_IN]
            memo = add_memos([self._get_entry(level - 1, below) for below in positions])
        else:
            packed, n_changes = entry
            memo = packed.unpack()
            if n_changes == len(self._changes):
                return memo
            for change in self._changes[n_changes:]:
                memo = change(memo)
        self._levels[level][position] = _PackedMemo.of(memo), len(self._changes)
        return memo


def add_memos(memos: Sequence[Memo]) -> Memo:
    """Return the sum of memos as a new memo without candidates, whose arrays may be changed."""
    blocks = zip(*(memo.stats.arrays for memo in memos), strict=True)
    losses = [memo.merge_entropy_loss for memo in memos if memo.merge_entropy_loss is not None]
    return Memo(
        Stats(tuple(_add_arrays(arrays) for arrays in blocks)),
        _add_arrays([memo.entropy for memo in memos]),
        _add_arrays(losses) if len(losses) == len(memos) else None,
        float(sum(memo.weight for memo in memos)),
    )


def find_unused_key(memos: Mapping[Hashable, Memo]) -> int:
    """Return a number that is not yet the key of a memo, for a batch without an id."""
    return next(number for number in count(len(memos)) if number not in memos)


def take(array: Array, index: IndexArray) -> Array:
    """Return a copy of ``array[index]``, in which the rows for the index -1 are 0."""
    out = array[index]
    out[np.asarray(index) < 0] = 0.0
    return out


def _add_arrays(arrays: Sequence[Array]) -> Array:
    """Return the sum of arrays in double precision, added in their order."""
    total = np.array(arrays[0], np.float64)
    for array in arrays[1:]:
        total += array
    return total
