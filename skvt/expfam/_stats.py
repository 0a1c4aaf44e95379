"""Expected sufficient statistics, and their arithmetic: sums, multiples, exponential averages.

The global parameters of a model consist of blocks: a block has, for example, the parameters of all
topics, or of all mixture components. A :class:`Stats` has one array for each block, and
:class:`RunningStats` has the statistics of a fit. The natural parameters of the posterior q are
``lam = prior + statistics``, so that inference needs only the operations of this module.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from skvt._compiled import SharedLoop, claim_items, jit, lit, lowest_bit, run_serially
from skvt.files import in_files
from skvt.typing import Array, IndexArray, Run, T

# Smallest scale of `RunningStats`. A smaller scale is multiplied into the arrays and set to 1, so
# that the division of new statistics by the scale stays accurate.
_MIN_SCALE = 1e-6
# Maximum relative error of the sums in a file, whose arrays may be in single precision.
_MAX_SUM_ERROR = 1e-3
# Number of rows of a task, which a thread adds at a time.
_ROWS_PER_TASK = np.int64(64)
# Sparse arrays are read fast by their *marks*, a bitmap of the entries that may be other than zero.
# A mark is an integer with a bit for each of this number of successive columns of a row.
_COLUMNS_PER_MARK = 64
# The CSR matrix of an array is kept if at most this share of its entries is not zero.
_MAX_DENSITY_KEPT = 0.1
# Metadata of fields that are not written to files, because they only have a meaning in this
# process.
_PROCESS_ONLY = {"process_only": True}


@in_files("expfam.Stats")
@dataclass(frozen=True)
class Stats:
    """Statistics of a set of rows of data, in one of three forms.

    1. ``rows`` and ``columns`` are None: each array has all rows of its block.
    2. ``rows`` has distinct numbers: each array has only these rows of its block. Other rows are 0.
    3. ``rows`` and ``columns`` have n numbers: each array is a vector (n,) of addends. Addend i
       belongs to row ``rows[i]`` and column ``columns[i]`` of the block, and entries may repeat.
    """

    # One array for each block of the model's globals.
    arrays: tuple[Array, ...]
    rows: IndexArray | None = None
    columns: IndexArray | None = None

    def as_whole_rows(self, width: int) -> "Stats":
        """Return the same statistics in the form of whole rows, for blocks of ``width`` columns."""
        if self.rows is None or self.columns is None:
            return self
        rows, positions = np.unique(self.rows, return_inverse=True)
        totals = tuple(np.zeros((rows.size, width), array.dtype) for array in self.arrays)
        for row_totals, array in zip(totals, self.arrays, strict=True):
            np.add.at(row_totals, (positions, self.columns), array)
        return Stats(totals, rows)


def are_float_arrays(arrays: Iterable[Any], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether the arrays hold floating-point numbers and have the ``shapes``."""
    arrays = list(arrays)
    have_shapes = [array.shape for array in arrays] == list(shapes)
    return have_shapes and all(array.dtype.kind == "f" for array in arrays)


def sum_stats(terms: Sequence[Stats]) -> Stats:
    """Return the sum of the terms, with all rows that any term has.

    The terms are added in their order. Unless there is a single term, no term may have ``columns``.
    """
    if len(terms) == 1:
        return terms[0]
    if terms[0].rows is None:
        # Each term has all rows.
        blocks = zip(*(term.arrays for term in terms), strict=True)
        return Stats(tuple(sum(arrays[1:], arrays[0]) for arrays in blocks))
    rows_of_terms = [term.rows for term in terms if term.rows is not None]
    rows = np.unique(np.concatenate(rows_of_terms))
    totals = [np.zeros((rows.size, *array.shape[1:]), array.dtype) for array in terms[0].arrays]
    for term, rows_of_term in zip(terms, rows_of_terms, strict=True):
        positions = np.searchsorted(rows, rows_of_term)
        for total, array in zip(totals, term.arrays, strict=True):
            total[positions] += array
    return Stats(tuple(totals), rows.astype(rows_of_terms[0].dtype))


@jit
def _add_rows(
    array: Array, rows: IndexArray, factor: np.floating[Any], addend: Array, totals: Array,
    counter: IndexArray,
) -> None:  # fmt: skip
    """Add ``factor * addend`` to the rows with the numbers ``rows`` of an array.

    Several threads call this function with the same arguments and share the work: each thread takes
    tasks of ``_ROWS_PER_TASK`` rows, and ``counter`` counts the tasks that have been taken.
    ``totals``, in float64, gets the sums of ``addend`` over the rows of each task.
    """
    for task in claim_items(counter, np.int64(1), len(totals)):
        total = totals[task]
        total[:] = 0.0
        start = task * _ROWS_PER_TASK
        for i in range(start, min(start + _ROWS_PER_TASK, rows.size)):
            target = array[rows[i]]
            source = addend[i]
            for column in range(source.size):
                target[column] += factor * source[column]
                total[column] += source[column]


@jit
def _add_entries(
    array: Array, marks: NDArray[np.uint64], rows: IndexArray, columns: IndexArray, factor: Any,
    addend: Array, totals: Array,
) -> None:  # fmt: skip
    """Add ``factor * addend`` to entries of an array, and set the bits of the entries in the marks.

    Entry i of ``addend`` belongs to row ``rows[i]`` and column ``columns[i]``. ``totals``, in
    float64, gets the sum of ``addend`` for each column.
    """
    totals[:] = 0.0
    for i in range(rows.size):
        row, column = np.uint64(rows[i]), np.uint64(columns[i])
        array[row, column] += factor * addend[i]
        mark, bit = column // np.uint64(_COLUMNS_PER_MARK), column % np.uint64(_COLUMNS_PER_MARK)
        marks[row, mark] |= np.uint64(1) << bit
        totals[column] += addend[i]


@jit
def _write_csr(
    array: Array, marks: NDArray[np.uint64], indptr: IndexArray, columns: IndexArray, values: Array
) -> None:
    """Write the non-zero entries of an array as CSR, and clear the bits of zeros in the marks.

    Only entries whose bits are set are read. ``columns`` and ``values`` need space for one entry
    more than the number of set bits.
    """
    # Number of entries written so far.
    n_written = np.int64(0)
    indptr[0] = 0
    all_bits = ~np.uint64(0)
    for row in range(array.shape[0]):
        for mark in range(marks.shape[1]):
            bits, nonzero_bits = marks[row, mark], np.uint64(0)
            for i in range(_COLUMNS_PER_MARK):
                if bits == np.uint64(0):
                    break
                # Take the next bit that is set. If all bits are set, this is bit i, and no search
                # is needed. Otherwise find the lowest set bit, and clear it.
                position = np.uint64(i)
                if bits != all_bits:
                    position = np.uint64(lowest_bit(bits))
                    bits &= bits - np.uint64(1)
                column = np.uint64(mark * _COLUMNS_PER_MARK) + position
                # If the entry is zero, n_written stays, and the next entry overwrites it.
                columns[n_written], values[n_written] = column, array[row, column]
                is_nonzero = array[row, column] != lit(array[row, column], 0.0)
                n_written += is_nonzero
                nonzero_bits |= np.uint64(is_nonzero) << position
            marks[row, mark] = nonzero_bits
        indptr[row + 1] = n_written


@jit
def _add_csr(total: Array, indptr: IndexArray, columns: IndexArray, values: Array) -> None:
    """Add a CSR matrix to an array of the same shape."""
    for row in range(indptr.size - 1):
        for i in range(indptr[row], indptr[row + 1]):
            total[row, columns[i]] += values[i]


class _Spare(NamedTuple):
    """Arrays that :meth:`RunningStats.draft` may reuse once their owner has been freed."""

    arrays: tuple[Array, ...]
    # The rows in which the spare arrays may differ from the arrays in use; None for all rows.
    stale_rows: IndexArray | None
    # Weak reference to the owner of the spare arrays, which is None once the owner has been freed.
    owner: "weakref.ref[RunningStats]"


@in_files("expfam.RunningStats")
@dataclass(init=False, eq=False, repr=False)
class RunningStats:
    """The current statistics S of the data in a fit, ``S = scale * array`` for each block.

    A step of stochastic inference is ``S <- (1 - rho) S + rho * factor * new``, with the step size
    rho, so that ``prior + S`` makes the natural-gradient step [HBWP13]. The factor 1 - rho is
    multiplied into the scale, and only rows with new statistics are written to. The time for a
    minibatch thus depends on the number of its words, not on the size of the vocabulary. The object
    owns the arrays that are passed to ``__init__``, and writes to them.
    """

    _arrays: tuple[Array, ...]
    scale: float
    # Sum of S over the rows of each block: a number for each column.
    sums: tuple[Array | float, ...]
    # In a draft, the arrays of the object from which it was drafted, see :meth:`draft`.
    _spare: _Spare | None = field(default=None, metadata=_PROCESS_ONLY)
    # Number of writes to the arrays so far. In a view, the number of writes before it was made.
    _version: int = field(default=0, metadata=_PROCESS_ONLY)
    # The object that owns the arrays of a view, see :meth:`scaled_view`; None if this is not a
    # view.
    _owner: "RunningStats | None" = field(default=None, metadata=_PROCESS_ONLY)
    # The rows that are pickled, see :meth:`view_of_rows`; None for all rows.
    _rows: IndexArray | None = field(default=None, metadata=_PROCESS_ONLY)
    # (n_rows, n_marks): the marks of the array of the only block. The bit of an entry is set if the
    # entry may be other than zero. None if every entry may be other than zero.
    _marks: NDArray[np.uint64] | None = field(default=None, metadata=_PROCESS_ONLY)
    # The last result of :meth:`as_csr`; None if it had many entries, or if the arrays have been
    # written to since.
    _csr: Any = field(default=None, metadata=_PROCESS_ONLY)
    # The arguments of the last call of :meth:`derived`, and its result; None if S has changed
    # since.
    _derived: tuple[tuple[Any, ...], Any] | None = field(default=None, metadata=_PROCESS_ONLY)

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._arrays = tuple(arrays)
        self.scale = 1.0
        self.resum()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle; a view of :meth:`view_of_rows` has only its rows."""
        state = self._get_state_without_caches() | {"_derived": None}
        if self._rows is not None:
            # Without the other rows, the shapes are needed to restore the arrays.
            shapes = [array.shape for array in self.arrays]
            state["_arrays"] = shapes, tuple(array[self._rows] for array in self.arrays)
            state["_owner"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state.get("_rows")
        if rows is not None:
            shapes, pickled = state["_arrays"]
            # Other rows are zeros, which take no memory as long as they are not read.
            state["_arrays"] = tuple(
                np.zeros(shape, values.dtype) for shape, values in zip(shapes, pickled, strict=True)
            )
            for array, values in zip(state["_arrays"], pickled, strict=True):
                array[rows] = values
        vars(self).update(state)

    def _get_state_without_caches(self) -> dict[str, Any]:
        """Return the attributes by name, without caches that must not be shared with copies."""
        excluded = "_spare", "_marks", "_csr"
        return {name: value for name, value in self.__dict__.items() if name not in excluded}

    def _copy_shallowly(self) -> Self:
        """Return an object that shares the arrays, to become a view or to receive new arrays."""
        # Do not use copy.copy: it takes 20 microseconds, and each minibatch makes a view.
        copy = object.__new__(type(self))
        vars(copy).update(self._get_state_without_caches())
        return copy

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Arrays of all blocks. They are S divided by ``scale``, and must not be written to.

        Raises RuntimeError for a view if the arrays have been written to since it was made.
        """
        if self._owner is not None and self._owner._version != self._version:
            raise RuntimeError(
                "The statistics have been written to since this view of them was made."
            )
        return self._arrays

    def _begin_write(self, *, only_drafted: bool = False, is_marked: bool = False) -> None:
        """Prepare a write to the arrays; raise RuntimeError if this is a view.

        Each method that writes calls this method first. Set ``only_drafted`` if only the rows that
        were passed to :meth:`draft` are written to. Set ``is_marked`` if the caller sets the bits
        of changed entries in the marks.
        """
        if self._owner is not None:
            raise RuntimeError("A view of statistics cannot be written to.")
        self._version += 1
        self._csr = self._derived = None
        if not is_marked:
            self._marks = None
        if not only_drafted and self._spare is not None:
            # The spare arrays may now differ from the arrays in use in all rows.
            self._spare = self._spare._replace(stale_rows=None)

    def as_csr(self, dtype: Any = None) -> Any:
        """Return the array of the only block, which is S divided by ``scale``, as a CSR matrix.

        Only entries whose bits are set in the marks are read. ``dtype`` is the type of the result;
        None stands for the type of the array.
        """
        if self._csr is not None:
            return self._csr.astype(dtype or self._csr.dtype)
        (array,) = self.arrays
        if self._marks is None:
            # Set the bits of all entries. `_write_csr` clears the bits of zeros.
            self._marks = _make_empty_marks(array)
            self._marks[:] = ~np.uint64(0)
            # Clear the bits beyond the last column in the last mark of each row.
            self._marks[:, -1] >>= np.uint64(-array.shape[1] % _COLUMNS_PER_MARK)
        # `_write_csr` needs one entry more than the number of set bits.
        max_size = int(np.bitwise_count(self._marks).sum()) + 1
        indptr = np.empty(len(array) + 1, np.int64)
        columns, values = np.empty(max_size, np.int32), np.empty(max_size, dtype or array.dtype)
        _write_csr(array, self._marks, indptr, columns, values)
        size = int(indptr[-1])
        csr = sp.csr_array((values[:size], columns[:size], indptr), shape=array.shape)
        if csr.dtype == array.dtype and size <= _MAX_DENSITY_KEPT * array.size:
            self._csr = csr
        return csr

    def add_to(self, totals: Sequence[Array]) -> None:
        """Add S in place to ``totals``, an array for each block."""
        if self._marks is not None and self.scale == 1.0:
            csr = self.as_csr()
            _add_csr(totals[0], csr.indptr, csr.indices, csr.data)
            return
        arrays = self.arrays if self.scale == 1.0 else self.as_stats().arrays
        for total, array in zip(totals, arrays, strict=True):
            total += array

    def resum(self) -> None:
        """Recompute ``sums`` from the arrays, so that rounding errors do not accumulate."""
        if self._marks is not None:
            csr = self.as_csr()
            self.sums = (self.scale * np.bincount(csr.indices, csr.data, csr.shape[1]),)
            return
        self.sums = tuple(self.scale * array.sum(axis=0, dtype=np.float64) for array in self.arrays)

    def are_legal(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether arrays that are read from a file are legal.

        Arrays must have the given shapes and one precision, and ``sums`` must be the sums of S.
        """
        n_dtypes = len({array.dtype for array in self.arrays})
        if n_dtypes > 1 or not are_float_arrays(self.arrays, shapes):
            return False
        for array, total in zip(self.arrays, self.sums, strict=True):
            expected_sums = self.scale * array.sum(axis=0, dtype=np.float64)
            # Rounding errors of a sum are relative to the sum of the absolute values. Add absolute
            # values row by row, because an array of all of them could need too much memory.
            sums_of_magnitudes = np.zeros_like(expected_sums)
            for row in array:
                sums_of_magnitudes += np.abs(self.scale * row)
            if np.shape(total) != expected_sums.shape:
                return False
            if not np.all(np.abs(total - expected_sums) <= _MAX_SUM_ERROR * sums_of_magnitudes):
                return False
        return True

    def clip(self) -> None:
        """Replace negative entries of S by 0, in place."""
        self._begin_write()
        for array in self.arrays:
            np.maximum(array, 0.0, out=array)
        self.resum()

    def replace_columns(self, columns: Sequence[int], values: Array) -> None:
        """Replace columns of the only block by ``values``; ``scale`` must be 1."""
        self._begin_write()
        (array,), (total,) = self.arrays, self.sums
        array[:, columns] = values
        total[columns] = values.sum(axis=0)  # type: ignore[index]

    def fold(self) -> None:
        """Multiply the arrays by the scale, and set the scale to 1."""
        if self.scale != 1.0:
            self._begin_write()
            for array in self.arrays:
                array *= array.dtype.type(self.scale)
            self.scale = 1.0
            self.resum()

    def blend(self, rho: float, stats: Stats, factor: float = 1.0, run: Run = run_serially) -> None:
        """Make a step of size ``rho``: ``S <- (1 - rho) S + rho * factor * stats``, in place.

        ``factor`` is the number of rows of the data that one row of ``stats`` represents, times the
        inverse temperature.
        """
        kept_share = 1.0 - rho
        if kept_share * self.scale < _MIN_SCALE:
            self.fold()
            self._begin_write()
            for array in self.arrays:
                array *= array.dtype.type(kept_share)
        else:
            self.scale *= kept_share
        self.sums = tuple(kept_share * total for total in self.sums)
        # `add` also clears the cache of :meth:`derived`, whose result has changed.
        self.add(stats, rho * factor, run)

    def rescale(self, factor: float) -> None:
        """Multiply S by ``factor``, in place."""
        if factor != 1.0:
            self._derived = None
        self.scale *= factor
        self.sums = tuple(factor * total for total in self.sums)

    def jitter(self, relative: float, rng: np.random.Generator) -> None:
        """Multiply each entry by gamma noise of mean 1 and standard deviation ``relative``."""
        self._begin_write()
        shape = relative**-2
        for array in self.arrays:
            array *= (rng.standard_gamma(shape, size=array.shape) / shape).astype(array.dtype)
        self.resum()

    def add(self, stats: Stats, factor: float = 1.0, run: Run = run_serially) -> None:
        """Add ``factor * stats`` to S, in place."""
        self._begin_write(only_drafted=stats.rows is not None, is_marked=stats.columns is not None)
        sums = []
        for array, addend, total in zip(self.arrays, stats.arrays, self.sums, strict=True):
            multiplier = array.dtype.type(factor / self.scale)
            # ``column_sums`` is the sum of ``addend`` over rows. Only for a matrix can ``addend``
            # have some of the rows or entries.
            if array.ndim != 2:
                array += multiplier * addend
                column_sums = addend.sum(axis=0, dtype=np.float64)
            elif stats.columns is not None:
                column_sums = np.empty(array.shape[1])
                # The loop always sets bits. Without marks, it sets the bits in a temporary array.
                marks = self._marks
                marks = _make_empty_marks(array) if marks is None else marks
                _add_entries(
                    array, marks, stats.rows, stats.columns, multiplier, addend, column_sums
                )
            else:
                n_rows, n_columns = addend.shape
                rows = np.arange(n_rows, dtype=np.int32) if stats.rows is None else stats.rows
                task_sums = np.empty((-(-n_rows // _ROWS_PER_TASK), n_columns))
                loop = SharedLoop(len(task_sums), 1, array, rows, multiplier, addend, task_sums)
                run(_add_rows, loop)
                column_sums = task_sums.sum(axis=0)
            sums.append(total + factor * column_sums)
        self.sums = tuple(sums)

    def overwrite(self, arrays: Iterable[Array]) -> None:
        """Replace the values of the arrays in place; S becomes ``scale`` times the new values."""
        self._begin_write()
        for array, value in zip(self.arrays, arrays, strict=True):
            array[:] = value
        self.resum()

    def derived(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(S, *arguments)``, with S as a :class:`Stats`; cache the last result.

        The cached result is returned if S has not changed, and the function and the arguments are
        the same objects as in the last call. Copies of this object share the result, so that
        callers must not write to it.
        """
        call = function, *arguments
        # Reading the arrays raises RuntimeError if this is a view whose statistics have changed.
        _ = self.arrays
        # Read the attribute only once, because another thread may replace it.
        cached = self._derived
        if cached is not None:
            last_call, last_result = cached
            if len(last_call) == len(call) and all(map(is_, last_call, call)):
                return last_result
        result = function(self.as_stats(), *arguments)
        self._derived = call, result
        return result

    def as_stats(self) -> Stats:
        """Return S as a :class:`Stats` with new arrays and all rows."""
        return Stats(tuple(array * array.dtype.type(self.scale) for array in self.arrays))

    def scaled_view(self, factor: float) -> Self:
        """Return ``factor * S`` as a view, which shares the arrays.

        It is an error to write to a view, or to read it after S has been written to.
        """
        view = self._copy_shallowly()
        view.rescale(factor)
        # Drafts do not reuse the arrays as long as the view refers to their owner.
        view._owner = self if self._owner is None else self._owner
        return view

    def view_of_rows(self, rows: IndexArray | None) -> Self:
        """Return a view whose pickle has only the rows with the numbers ``rows``.

        The sums in the pickle are over all rows. If ``rows`` is None, the pickle has all rows.
        """
        view = self.scaled_view(1.0)
        view._rows = rows
        return view

    def copy(self) -> Self:
        """Return a copy with new arrays, to which the copy may write, also if this is a view."""
        copy = self._copy_shallowly()
        copy._arrays = tuple(np.array(array) for array in self.arrays)
        copy._owner = copy._rows = None
        return copy

    def draft(self, rows: IndexArray | None) -> Self:
        """Return a copy for steps that add to the rows with the numbers ``rows`` only.

        If ``rows`` is None, the steps may add to all rows, and all arrays are copied. Otherwise
        successive drafts alternate between two sets of arrays (double buffering). Suppose that A
        was drafted to B, that B is drafted now, and that A has been freed. The draft of B takes
        over the arrays of A, and copies only the rows that steps of B may have changed. The time
        then depends on the number of drafted rows, not on the size of the vocabulary.
        """
        if rows is None or self._owner is not None:
            return self.copy()
        # Remove the attribute, which is atomic, so that two threads cannot both take the spare
        # arrays.
        spare = self.__dict__.pop("_spare", None)
        copy = self._copy_shallowly()
        is_free = spare is not None and spare.owner() is None
        # Arrays that are mapped from a file may be read-only, and cannot be reused.
        if not is_free or not all(array.flags.writeable for array in spare.arrays):
            copy._arrays = tuple(np.array(array) for array in self.arrays)
        else:
            copy._arrays = spare.arrays
            for array, target in zip(self.arrays, copy.arrays, strict=True):
                if spare.stale_rows is None:
                    np.copyto(target, array)
                else:
                    target[spare.stale_rows] = array[spare.stale_rows]
        copy._spare = _Spare(self.arrays, rows, weakref.ref(self))
        return copy

    @classmethod
    def zeros_like(cls, other: "Stats | RunningStats") -> Self:
        """Return the statistics of no data, in the shapes of ``other``."""
        # Arrays of zeros take no memory until they are read. Pass arrays without rows to __init__,
        # because it reads its arrays to sum them.
        zeros = cls(np.zeros((0, *array.shape[1:]), array.dtype) for array in other.arrays)
        zeros._arrays = tuple(np.zeros(array.shape, array.dtype) for array in other.arrays)
        if len(zeros._arrays) == 1 and zeros._arrays[0].ndim == 2:
            zeros._marks = _make_empty_marks(zeros._arrays[0])
        return zeros


def _make_empty_marks(array: Array) -> NDArray[np.uint64]:
    """Return the marks of a matrix of zeros, in which no bit is set."""
    return np.zeros((len(array), -(-array.shape[1] // _COLUMNS_PER_MARK)), np.uint64)
