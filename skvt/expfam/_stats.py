"""Expected sufficient statistics, and their arithmetic: sums, multiples, exponential averages.

A model's globals consist of blocks (topics; or sticks and components). A :class:`Stats` holds one
array for each block. All inference is ``lam = prior + statistics``, so that engines need only the
operations of this file.
"""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from skvt.compiled import CLAIMS, SharedLoop, claim, finish, jit, lit, lowest_bit, serial_map
from skvt.files import in_files
from skvt.typing import Array, IndexArray, Run

# A smaller scale of a running sum is multiplied into its array, so that the division of new
# statistics by the scale stays accurate.
_SMALLEST_SCALE = 1e-6
# Maximum relative error of the sums in a file, also in single precision.
_ROUNDING = 1e-3
# Rows that a thread adds at a time.
_ROWS = np.int64(64)
# Number of columns that one mark covers, one per bit.
_COLUMNS = 64
# Largest share of non-zero entries of an array whose list is kept.
_SPARSE = 0.1
# Metadata of fields that exist only in this process and are not written to files.
_OF_PROCESS = {"of_process": True}


@in_files("expfam.Stats")
@dataclass(frozen=True)
class Stats:
    """Statistics of one set of rows."""

    # One array for each block of the model's globals.
    arrays: tuple[Array, ...]
    # If given, arrays hold only these rows (distinct) of each block; all others are zero.
    rows: IndexArray | None = None
    # If given, arrays hold addends of the entries at ``rows`` and ``columns``, which may repeat.
    columns: IndexArray | None = None

    def whole_rows(self, width: int) -> "Stats":
        """Return statistics that hold all ``width`` columns of the rows with any addend."""
        if self.rows is None or self.columns is None:
            return self
        rows, places = np.unique(self.rows, return_inverse=True)
        totals = tuple(np.zeros((rows.size, width), array.dtype) for array in self.arrays)
        for total, array in zip(totals, self.arrays, strict=True):
            np.add.at(total, (places, self.columns), array)
        return Stats(totals, rows)


def are_real(arrays: Iterable[Any], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether these are arrays of real numbers of these shapes."""
    arrays = list(arrays)
    return [a.shape for a in arrays] == list(shapes) and all(a.dtype.kind == "f" for a in arrays)


def sum_of_stats(parts: Sequence[Stats]) -> Stats:
    """Return the sum in the order of the parts, with all rows that any part holds."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].rows is None:
        blocks = zip(*(part.arrays for part in parts), strict=True)
        return Stats(tuple(sum(arrays[1:], arrays[0]) for arrays in blocks))
    held = [part.rows for part in parts if part.rows is not None]
    rows = np.unique(np.concatenate(held))
    totals = [np.zeros((rows.size, *array.shape[1:]), array.dtype) for array in parts[0].arrays]
    for part, rows_of_part in zip(parts, held, strict=True):
        places = np.searchsorted(rows, rows_of_part)
        for total, array in zip(totals, part.arrays, strict=True):
            total[places] += array
    return Stats(tuple(totals), rows.astype(held[0].dtype))


@jit
def _add_rows(
    array: Array, rows: IndexArray, factor: np.floating[Any], addend: Array, totals: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """array[rows] += factor * addend; totals[b] (float64) = sums of the b-th _ROWS of addend."""
    for _ in range(CLAIMS):
        start, stop = claim(counter, _ROWS, rows.size)
        if start >= stop:
            break
        total = totals[start // _ROWS]
        total[:] = 0.0
        for i in range(start, stop):
            target = array[rows[i]]
            source = addend[i]
            for k in range(source.size):
                target[k] += factor * source[k]
                total[k] += source[k]
        finish(counter, start, stop)


@jit
def _add_entries(
    array: Array, marks: NDArray[np.uint64], rows: IndexArray, columns: IndexArray, factor: Any,
    addend: Array, totals: Array,
) -> None:  # fmt: skip
    """array[rows, columns] += factor * addend; totals (float64) = sums of addend over rows."""
    totals[:] = 0.0
    for i in range(rows.size):
        v, k = np.uint64(rows[i]), np.uint64(columns[i])
        array[v, k] += factor * addend[i]
        marks[v, k // np.uint64(_COLUMNS)] |= np.uint64(1) << (k % np.uint64(_COLUMNS))
        totals[k] += addend[i]


@jit
def _list_entries(
    array: Array, marks: NDArray[np.uint64], indptr: IndexArray, columns: IndexArray, values: Array
) -> None:
    """Write the non-zero entries at marks as CSR, and remove the marks of zeros."""
    n, indptr[0] = np.int64(0), 0
    every = ~np.uint64(0)
    for v in range(array.shape[0]):
        for b in range(marks.shape[1]):
            bits, left = marks[v, b], np.uint64(0)
            for i in range(_COLUMNS):
                if bits == np.uint64(0):
                    break
                place = np.uint64(i)
                if bits != every:
                    place = np.uint64(lowest_bit(bits))
                    bits &= bits - np.uint64(1)
                k = np.uint64(b * _COLUMNS) + place
                columns[n], values[n] = k, array[v, k]
                is_there = array[v, k] != lit(array[v, k], 0.0)
                n += is_there
                left |= np.uint64(is_there) << place
            marks[v, b] = left
        indptr[v + 1] = n


@jit
def _add_listed(total: Array, indptr: IndexArray, columns: IndexArray, values: Array) -> None:
    """``total += `` a CSR."""
    for v in range(indptr.size - 1):
        for i in range(indptr[v], indptr[v + 1]):
            total[v, columns[i]] += values[i]


# Arrays, the rows in which they differ from those of the successor, and their former owner.
_Spare: TypeAlias = tuple[tuple[Array, ...], IndexArray | None, "weakref.ref[RunningStats]"]


@in_files("expfam.RunningStats")
@dataclass(init=False, eq=False, repr=False)
class RunningStats:
    """An engine's current statistics of the data, ``S = scale * array``.

    A step of stochastic inference is ``S <- (1 - rho) S + rho * factor * new`` (so that ``prior +
    S`` makes the natural-gradient step, HBWP13). All rows are discounted by one multiplication of
    the scale, and only rows with new statistics are written to. The cost of a minibatch thus
    depends on its own words, not on the vocabulary. The object owns the initial arrays of the
    blocks and writes to them.
    """

    _arrays: tuple[Array, ...]
    scale: float
    # Sums of each array over its rows.
    sums: tuple[Array | float, ...]
    # Arrays that :meth:`draft` may reuse, the rows in which they differ from the current ones (None
    # means all), and a weak reference to their former owner, after whose end they are free.
    _spare: _Spare | None = field(default=None, metadata=_OF_PROCESS)
    # Number of writes to the arrays, for a view at its creation; see :meth:`scaled`.
    _version: int = field(default=0, metadata=_OF_PROCESS)
    _owner: "RunningStats | None" = field(default=None, metadata=_OF_PROCESS)
    # The rows of a view that are pickled, see :meth:`for_rows`.
    _rows: IndexArray | None = field(default=None, metadata=_OF_PROCESS)
    # For the only block, bits of the columns that may be non-zero, and the result of :meth:`listed`
    # since the last write; None if not known.
    _marks: NDArray[np.uint64] | None = field(default=None, metadata=_OF_PROCESS)
    _listed: Any = field(default=None, metadata=_OF_PROCESS)

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._arrays = tuple(arrays)
        self.scale = 1.0
        self.resum()

    def __getstate__(self) -> dict[str, Any]:
        state = self._shared()
        if self._rows is not None:
            shapes = [array.shape for array in self.arrays]
            state["_arrays"] = shapes, tuple(array[self._rows] for array in self.arrays)
            state["_owner"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state.get("_rows")
        if rows is not None:
            shapes, parts = state["_arrays"]
            # pages of zeros that are never touched take no memory
            state["_arrays"] = tuple(
                np.zeros(shape, part.dtype) for shape, part in zip(shapes, parts, strict=True)
            )
            for array, part in zip(state["_arrays"], parts, strict=True):
                array[rows] = part
        vars(self).update(state)

    def _shared(self) -> dict[str, Any]:
        excluded = "_spare", "_marks", "_listed"
        return {name: value for name, value in self.__dict__.items() if name not in excluded}

    def _twin(self) -> Self:
        """Return an object that shares the arrays, to become a view or to receive new arrays."""
        # copy.copy takes 20 microseconds, and each minibatch makes a view
        twin = object.__new__(type(self))
        vars(twin).update(self._shared())
        return twin

    @property
    def arrays(self) -> tuple[Array, ...]:
        """One array for each block, to be read and multiplied by ``scale``."""
        if self._owner is not None and self._owner._version != self._version:
            raise RuntimeError(
                "The statistics have been written to since this view of them was made."
            )
        return self._arrays

    def _begin_write(self, *, only_drafted: bool = False, is_marked: bool = False) -> None:
        """Prepare a write; ``is_marked`` if it also marks the columns it writes to."""
        if self._owner is not None:
            raise RuntimeError("A view of statistics cannot be written to.")
        self._version += 1
        self._listed = None
        if not is_marked:
            self._marks = None
        if not only_drafted and self._spare is not None:
            arrays, _, owner = self._spare
            self._spare = arrays, None, owner

    def listed(self, dtype: Any = None) -> Any:
        """Return the only block as CSR, before ``scale``; marks save a search of all entries."""
        if self._listed is not None:
            return self._listed.astype(dtype or self._listed.dtype)
        (array,) = self.arrays
        if self._marks is None:
            self._marks = _no_marks(array)
            self._marks[:] = ~np.uint64(0)
            self._marks[:, -1] >>= np.uint64(-array.shape[1] % _COLUMNS)
        most = int(np.bitwise_count(self._marks).sum()) + 1  # the loop writes one more entry
        indptr = np.empty(len(array) + 1, np.int64)
        columns, values = np.empty(most, np.int32), np.empty(most, dtype or array.dtype)
        _list_entries(array, self._marks, indptr, columns, values)
        size = int(indptr[-1])
        found = sp.csr_array((values[:size], columns[:size], indptr), shape=array.shape)
        if found.dtype == array.dtype and size <= _SPARSE * array.size:
            self._listed = found
        return found

    def add_to(self, totals: Sequence[Array]) -> None:
        """Add S to these arrays."""
        if self._marks is not None and self.scale == 1.0:
            found = self.listed()
            _add_listed(totals[0], found.indptr, found.indices, found.data)
            return
        arrays = self.arrays if self.scale == 1.0 else self.value().arrays
        for total, array in zip(totals, arrays, strict=True):
            total += array

    def resum(self) -> None:
        """Recompute the sums over the first axis, so that rounding errors do not accumulate."""
        if self._marks is not None:
            found = self.listed()
            self.sums = (self.scale * np.bincount(found.indices, found.data, found.shape[1]),)
            return
        self.sums = tuple(self.scale * array.sum(axis=0, dtype=np.float64) for array in self.arrays)

    def are_legal(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether arrays that are read from a file are legal.

        They must have these shapes and the same precision, and ``sums`` must be their sums.
        """
        if not are_real(self.arrays, shapes) or len({array.dtype for array in self.arrays}) > 1:
            return False
        for array, total in zip(self.arrays, self.sums, strict=True):
            expected = self.scale * array.sum(axis=0, dtype=np.float64)
            magnitude = np.zeros_like(expected)
            for row in array:
                magnitude += np.abs(self.scale * row)
            if np.shape(total) != expected.shape:
                return False
            if not np.all(np.abs(total - expected) <= _ROUNDING * magnitude):
                return False
        return True

    def clip(self) -> None:
        """``S <- max(S, 0)``, in place."""
        self._begin_write()
        for array in self.arrays:
            np.maximum(array, 0.0, out=array)
        self.resum()

    def replace_columns(self, columns: Sequence[int], values: Array) -> None:
        """Replace these columns of the only block, whose scale is 1."""
        self._begin_write()
        (array,), (total,) = self.arrays, self.sums
        array[:, columns] = values
        total[columns] = values.sum(axis=0)  # type: ignore[index]  # of two axes

    def fold(self) -> None:
        """Multiply the scale into the arrays."""
        if self.scale != 1.0:
            self._begin_write()
            for array in self.arrays:
                array *= array.dtype.type(self.scale)
            self.scale = 1.0
            self.resum()

    def blend(self, rho: float, stats: Stats, factor: float = 1.0, run: Run = serial_map) -> None:
        """``S <- (1 - rho) S + rho * factor * stats``, in place; a step size ``rho`` of 1 replaces.

        ``factor`` is the number of rows of the data that one row of ``stats`` represents, times the
        inverse temperature.
        """
        keep = 1.0 - rho
        if keep * self.scale < _SMALLEST_SCALE:
            self.fold()
            self._begin_write()
            for array in self.arrays:
                array *= array.dtype.type(keep)
        else:
            self.scale *= keep
        self.sums = tuple(keep * total for total in self.sums)
        self.add(stats, rho * factor, run)

    def rescale(self, factor: float) -> None:
        """``S <- factor * S``, in place."""
        self.scale *= factor
        self.sums = tuple(factor * total for total in self.sums)

    def jitter(self, relative: float, rng: np.random.Generator) -> None:
        """Multiply each entry by noise of mean 1 and this relative standard deviation."""
        self._begin_write()
        shape = relative**-2
        for array in self.arrays:
            array *= (rng.standard_gamma(shape, size=array.shape) / shape).astype(array.dtype)
        self.resum()

    def add(self, stats: Stats, factor: float = 1.0, run: Run = serial_map) -> None:
        """``S <- S + factor * stats``, in place."""
        named = stats.columns is not None
        self._begin_write(only_drafted=stats.rows is not None, is_marked=named)
        sums = []
        for array, addend, total in zip(self.arrays, stats.arrays, self.sums, strict=True):
            step = array.dtype.type(factor / self.scale)
            if array.ndim != 2:
                array += step * addend
                added = addend.sum(axis=0, dtype=np.float64)
            elif stats.columns is not None:
                added, marks = np.empty(array.shape[1]), self._marks
                marks = _no_marks(array) if marks is None else marks
                _add_entries(array, marks, stats.rows, stats.columns, step, addend, added)
            else:
                n_rows, width = addend.shape
                rows = np.arange(n_rows, dtype=np.int32) if stats.rows is None else stats.rows
                totals = np.empty((-(-n_rows // _ROWS), width))
                run(_add_rows, SharedLoop(n_rows, _ROWS, array, rows, step, addend, totals))
                added = totals.sum(axis=0)
            sums.append(total + factor * added)
        self.sums = tuple(sums)

    def overwrite(self, arrays: Iterable[Array]) -> None:
        """Replace ``arrays``, which are still to be multiplied by ``scale``."""
        self._begin_write()
        for array, value in zip(self.arrays, arrays, strict=True):
            array[:] = value
        self.resum()

    def value(self) -> Stats:
        """The current statistics: a dense :class:`Stats` with new arrays."""
        return Stats(tuple(array * array.dtype.type(self.scale) for array in self.arrays))

    def scaled(self, factor: float) -> Self:
        """``factor * S`` as a view: an error to write to, or to read once ``S`` has changed."""
        twin = self._twin()
        twin.rescale(factor)
        # This reference keeps the arrays from being reused by a draft while the view exists.
        twin._owner = self if self._owner is None else self._owner
        return twin

    def for_rows(self, rows: IndexArray | None) -> Self:
        """Return a view that sends these rows, None for all, and all sums to other processes."""
        twin = self.scaled(1.0)
        twin._rows = rows
        return twin

    def copy(self) -> Self:
        twin = self._twin()
        twin._arrays, twin._owner = tuple(np.array(array) for array in self.arrays), None
        return twin

    def draft(self, rows: IndexArray | None) -> Self:
        """Return a copy for steps that add to these rows only; None for all rows.

        If ``rows`` is not None, the cost of the copy depends on their number, not on the size of
        the vocabulary: the copy reuses the arrays of the object from which this one was drafted,
        if that object has been freed.
        """
        if rows is None or self._owner is not None:
            return self.copy()
        # The operation is atomic, so that only one of two threads gets the arrays.
        spare = self.__dict__.pop("_spare", None)
        twin = self._twin()
        is_free = spare is not None and spare[2]() is None
        # Arrays of a file that is mapped read-only cannot be reused.
        if not is_free or not all(array.flags.writeable for array in spare[0]):
            twin._arrays = tuple(np.array(array) for array in self.arrays)
        else:
            twin._arrays, stale, _ = spare
            for array, target in zip(self.arrays, twin.arrays, strict=True):
                if stale is None:
                    np.copyto(target, array)
                else:
                    target[stale] = array[stale]
        twin._spare = self.arrays, rows, weakref.ref(self)
        return twin

    @classmethod
    def zeros_like(cls, other: "Stats | RunningStats") -> Self:
        """Return the statistics of no data, in the shapes of ``other``."""
        # Zeros take no memory until they are read. The sums are therefore set without reading them.
        twin = cls(np.zeros((0, *array.shape[1:]), array.dtype) for array in other.arrays)
        twin._arrays = tuple(np.zeros(array.shape, array.dtype) for array in other.arrays)
        if len(twin._arrays) == 1 and twin._arrays[0].ndim == 2:
            twin._marks = _no_marks(twin._arrays[0])
        return twin


def _no_marks(array: Array) -> NDArray[np.uint64]:
    """Marks of a matrix of zeros."""
    return np.zeros((len(array), -(-array.shape[1] // _COLUMNS)), np.uint64)
