"""Memos: the statistics and entropies that memoized inference keeps of each batch [HS13 sec. 3].

:class:`Memo` is the memo of a batch, or the sum of the memos of several batches. :class:`Memos` is
the collection of all memos, which also keeps their sum. A *visit* of a batch makes its local step,
and replaces its memo. *Moves* change the components between passes, and therefore all memos:
:class:`MergeChange` merges two components, and :class:`RearrangeChange` removes, adds and reorders
components.
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

# Maximum number of terms of a stored sum.
_MAX_TERMS = 32
# An array is packed, that is, stored without its zero columns, if it has at least this number of
# columns, and if at most this share of its columns is not 0.
_MIN_WIDTH_TO_PACK = 64
_MAX_SHARE_TO_PACK = 0.5


@in_files("inference.Memo", nan=("merge_entropy_loss",))
@dataclass(frozen=True)
class Memo:
    """The statistics and entropies of one or more batches at the temperature T = 1.

    Both are results of the last local step of each batch. The bound is computed from them.
    """

    # Statistics of the batch; the first axis of each array has the K components.
    stats: Stats
    # (K,): entropy ``-sum_n w_n r_nk log r_nk`` of the assignments to each component, in nats; or
    # (): entropy of all local variables.
    entropy: Array
    # (K, K): entry (a, b), for a < b, is the *loss of entropy* by a merge of a and b, in nats, from
    # :func:`skvt.models.mixture._kernels.add_assignment_entropies`. Entries for a >= b are 0. After
    # a merge of a or b with another component, the entry is NaN or an upper bound. The array is
    # None if the losses are not known.
    merge_entropy_loss: Array | None
    # Sum of the weights of the rows.
    weight: float
    # (n, J): the candidates of each row, that is, the components with which the next local step
    # compares the row; -1 is a removed component. None if rows are compared with all components.
    candidates: IndexArray | None = None

    def rearranged(self, index: IndexArray) -> "Memo":
        """Return a memo whose component i is component ``index[i]``, or empty for the index -1."""
        arrays = tuple(take_components(array, index) for array in self.stats.arrays)
        merge_entropy_loss = None
        if self.merge_entropy_loss is not None:
            losses: Array = self.merge_entropy_loss + self.merge_entropy_loss.T
            losses = take_components(take_components(losses, index).T, index)
            merge_entropy_loss = np.triu(losses, 1)
        entropy = take_components(self.entropy, index) if self.entropy.ndim else self.entropy
        candidates = self.candidates
        if candidates is not None:
            # (K + 1,): new number of each component; -1 if it is removed. The number -1 selects the
            # last entry, and so stays -1.
            new_numbers = np.full(len(self.entropy) + 1, -1, candidates.dtype)
            kept_positions = np.flatnonzero(np.asarray(index) >= 0)
            new_numbers[np.asarray(index)[kept_positions]] = kept_positions
            candidates = new_numbers[candidates]
        return Memo(Stats(arrays), entropy, merge_entropy_loss, self.weight, candidates)

    def merged(self, a: int, b: int, *, bounded: bool = False) -> "Memo":
        """Return the memo after component a has taken over the rows of b, a < b; b is then empty.

        Let L(i, j) be the loss of entropy by a merge of i and j before this change. Then a merge of
        the new component a with c loses at most ``L(a, c) + L(b, c)``, because a loss is a concave
        function of the share of either component, and 0 if the share is 0. If the bound is 0, so is
        the loss. Otherwise the loss is unknown: its entry becomes NaN or, if ``bounded``, the
        bound.
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
        symmetric_losses = self.merge_entropy_loss + self.merge_entropy_loss.T
        # (K,): upper bounds of the losses by merges of the new component a with each component.
        loss_bounds = symmetric_losses[a] + symmetric_losses[b]
        if not bounded:
            loss_bounds[exceeds(loss_bounds, 0.0, scale=self.weight)] = np.nan
        merge_entropy_loss[a, a + 1 :] = loss_bounds[a + 1 :]
        merge_entropy_loss[:a, a] = loss_bounds[:a]
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
        stats = Stats(tuple(array + sign * addend for array, addend in pairs))
        entropy, weight = self.entropy + sign * other.entropy, self.weight + sign * other.weight
        return Memo(stats, entropy, merge_entropy_loss, weight, self.candidates)


@in_files("inference.Merged")
@dataclass(frozen=True)
class MergeChange:
    """A change of memos: component a takes over the rows of component b.

    See :meth:`Memo.merged`.
    """

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

    A word that does not occur in the batch, for instance, has a zero column. If no array is packed,
    ``columns`` and ``widths`` are empty.
    """

    # The memo, whose packed arrays have only the stored columns.
    memo: Memo
    # For each array, the numbers of the stored columns; None for an array that is not packed.
    columns: tuple[IndexArray | None, ...]
    # For each array, the number of columns before packing.
    widths: tuple[int, ...]

    @classmethod
    def of(cls, memo: Memo) -> "_PackedMemo":
        """Leave out the zero columns of the wide arrays of a memo."""
        arrays, columns = [], []
        for array in memo.stats.arrays:
            stored_columns = None
            if array.ndim == 2 and array.shape[1] >= _MIN_WIDTH_TO_PACK:
                stored_columns = np.flatnonzero(array.any(axis=0))
                if stored_columns.size > _MAX_SHARE_TO_PACK * array.shape[1]:
                    stored_columns = None
            columns.append(stored_columns)
            arrays.append(array if stored_columns is None else array[:, stored_columns])
        if any(stored_columns is not None for stored_columns in columns):
            widths = tuple(np.shape(array)[-1] for array in memo.stats.arrays)
            return cls(replace(memo, stats=Stats(tuple(arrays))), tuple(columns), widths)
        return cls(memo, columns=(), widths=())

    def is_legal(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether a memo that was read from a file has arrays of legal shapes.

        ``shapes`` are the legal shapes of the unpacked arrays.
        """
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


# A memo or a sum of memos, and the number of changes in `Memos._changes` that it includes.
_Entry: TypeAlias = tuple[_PackedMemo, int]


@in_files("inference.Memos")
@dataclass(init=False, eq=False)
class Memos(MutableMapping[Hashable, Memo]):
    """A mapping from the key of each batch to its memo, which also keeps the sum of all memos.

    The memos have the order in which their keys were added. Sums are kept in levels: sums of up to
    _MAX_TERMS = 32 memos, sums of up to 32 such sums, and so on. If a memo is replaced, only the
    sums that include the memo are computed again. Rounding errors do not accumulate, because each
    sum is computed from its terms.

    A change of all memos is deferred until a memo or the total is requested. Changes are linear, so
    that they can be applied to sums directly.

    ``Memos(memos)`` is an independent copy of a collection, which shares the memos.
    """

    # By key, the position of the memo in the lowest level.
    _places: dict[Hashable, int]
    # The lowest level has the memos. Each level above has the sums of successive entries of the
    # level below; None stands for a sum that must be computed again.
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

    @classmethod
    def of(cls, memos: "Mapping[Hashable, Memo]") -> "Memos":
        """Return a collection of memos. Moves, which cannot import this class, call the method."""
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
            # In the next level, None replaces the sum that includes the memo.
            position, entry = position // _MAX_TERMS, None
        # Add a level if the highest level has more entries than one sum can have terms.
        n_sums = -(-len(self._levels[-1]) // _MAX_TERMS)
        if n_sums > 1:
            self._levels.append([None] * n_sums)

    def __delitem__(self, key: Hashable) -> None:
        """Remove a memo, and move the last memo to its position."""
        position = self._places.pop(key)
        # The position of the last memo, since the number of keys is now one less.
        last_position = len(self._places)
        memos = self._levels[0]
        if position < last_position:
            (last_key,) = (key for key, number in self._places.items() if number == last_position)
            self._places[last_key] = position
            memos[position] = memos[last_position]
        memos.pop()
        # Invalidate the sums that included either memo, and remove sums without terms.
        for level_below, level in pairwise(self._levels):
            position, last_position = position // _MAX_TERMS, last_position // _MAX_TERMS
            level[position] = level[last_position] = None
            del level[-(-len(level_below) // _MAX_TERMS) :]
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
        sizes_above = [-(-size // _MAX_TERMS) for size in sizes]
        has_all_positions = sorted(self._places.values()) == list(range(sizes[0]))
        has_all_memos = has_all_positions and None not in self._levels[0]
        # The highest level must be short enough for one sum.
        return has_all_memos and [*sizes[1:], 1] == sizes_above

    def are_legal(
        self, shapes: Sequence[tuple[int, ...]], n_components: int, max_bytes: float
    ) -> bool:
        """Return whether memos that were read from a file fit the statistics of the state.

        ``shapes`` are the shapes of the arrays of statistics, with ``n_components`` components. The
        memos must have these shapes after all changes. The changes are not applied, because they
        may make memos much larger than the file. Return False if a memo would have more than
        ``max_bytes``.
        """
        if not self.is_consistent():
            return False
        entries = [entry for level in self._levels for entry in level if entry is not None]
        if not entries:
            return True
        # Compute the number of components after each change, from the entries that include the
        # fewest changes.
        sizes = {n_changes: len(packed.memo.stats.arrays[0]) for packed, n_changes in entries}
        n_included = min(sizes)
        size = max_size = sizes[n_included]
        size_after_changes = {n_included: size}
        for n_changes, change in enumerate(self._changes[n_included:], n_included + 1):
            # Files hold only changes that have this method.
            new_size = change.size_after(size)  # type: ignore[attr-defined]
            if new_size is None:
                return False
            size, max_size = new_size, max(max_size, size)
            size_after_changes[n_changes] = size
        # Compare the bytes of the largest memo with the limit. A number has 8 bytes. The losses of
        # entropy are K numbers per component.
        has_losses = any(packed.memo.merge_entropy_loss is not None for packed, _ in entries)
        numbers_per_component = sum(int(np.prod(shape[1:])) for shape in shapes)
        numbers_per_component += max_size * has_losses
        if size != n_components or 8 * max_size * numbers_per_component > max_bytes:
            return False
        # Compare each entry with the shapes after the changes that it includes.
        for packed, n_changes in entries:
            entry_shapes = [(size_after_changes[n_changes], *shape[1:]) for shape in shapes]
            if not packed.is_legal(entry_shapes if self._changes else shapes):
                return False
        # A memo may have the weight 0, but a sum of memos may not. Each level has a list of
        # weights; ``weights`` are the weights of all levels.
        memo_weights, *sum_weights = (
            [packed.memo.weight for packed, _ in filter(None, level)] for level in self._levels
        )
        weights = sum(sum_weights, memo_weights)
        are_finite = all(0.0 <= weight < np.inf for weight in weights)
        sums_are_positive = all(0.0 not in weights_of_level for weights_of_level in sum_weights)
        return are_finite and sum(memo_weights) > 0.0 and sums_are_positive

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
        """Return the at most _MAX_TERMS entries of the highest level, which add up to the total."""
        top = len(self._levels) - 1
        return [self._get_entry(top, position) for position in range(len(self._levels[top]))]

    def _get_entry(self, level: int, position: int) -> Memo:
        """Return a memo, or a sum of memos, after all changes; store the result."""
        entry = self._levels[level][position]
        if entry is None:
            # Sum the entries of the level below. The last sum of a level may have fewer terms.
            n_below = len(self._levels[level - 1])
            positions = range(n_below)[position * _MAX_TERMS : (position + 1) * _MAX_TERMS]
            memo = add_memos([self._get_entry(level - 1, i) for i in positions])
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
    stats = Stats(tuple(_add_arrays(arrays) for arrays in blocks))
    entropy = _add_arrays([memo.entropy for memo in memos])
    merge_entropy_loss = _add_arrays(losses) if len(losses) == len(memos) else None
    return Memo(stats, entropy, merge_entropy_loss, float(sum(memo.weight for memo in memos)))


def find_unused_key(memos: Mapping[Hashable, Memo]) -> int:
    """Return a number that is not the key of a memo, as the key of a batch without an id."""
    return next(number for number in count(len(memos)) if number not in memos)


def take_components(array: Array, index: IndexArray) -> Array:
    """Return a copy of ``array[index]`` in which the rows of index -1 are 0."""
    taken = array[index]
    taken[np.asarray(index) < 0] = 0.0
    return taken


def _add_arrays(arrays: Sequence[Array]) -> Array:
    """Return the sum of arrays in double precision, added in their order."""
    total = np.array(arrays[0], np.float64)
    for array in arrays[1:]:
        total += array
    return total
