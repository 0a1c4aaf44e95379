"""Expected sufficient statistics: they add, they scale, and they fade.

A model's globals consist of blocks (topics; or sticks and components). A :class:`Stats` holds one
array for each block. All inference is ``lam = prior + statistics``, so that engines need no more
than this file knows.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from skvt.expfam._shared_loop import CLAIMS, SharedLoop, claim, finish, in_turn
from skvt.expfam._special import jit, lit

# Below this the scale of a running sum is folded into its array, so that the division of new
# statistics by it stays accurate.
_SMALLEST_SCALE = 1e-6
# Rows that a thread adds at a time.
_ROWS = 64


@dataclass(frozen=True)
class Stats:
    """Statistics of one set of rows.

    Attributes
    ----------
    arrays : tuple of ndarray
        One array for each block of the model's globals.
    rows : ndarray of int or None
        If given, ``arrays`` hold only these rows (distinct) of each block; all others are zero.
    """

    arrays: tuple
    rows: np.ndarray | None = None


@jit
def _add_rows(array, rows, factor, addend, totals, counter):
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
def _clip_rows(array, totals):
    """array <- max(array, 0); totals (float64) = its sums over rows."""
    totals[:] = 0.0
    for i in range(array.shape[0]):
        row = array[i]
        for k in range(row.size):
            row[k] = max(row[k], lit(row[k], 0.0))
        for k in range(row.size):
            totals[k] += row[k]


class RunningStats:
    """The statistics ``S = scale * array`` of the data as an engine believes them now.

    A step of stochastic inference is ``S <- (1 - rho) S + rho * factor * new`` (so that
    ``prior + S`` makes the natural-gradient step, HBWP13): the fading of all rows is one
    multiplication of the scale, and only rows with new statistics are touched. A minibatch thus
    costs its own words, not the vocabulary.

    Parameters
    ----------
    arrays : sequence of ndarray
        Initial value of each block; owned and written from here on.
    """

    def __init__(self, arrays):
        self.arrays = tuple(arrays)
        self.scale = 1.0
        self._folded = 1.0
        self.resum()

    def resum(self):
        """Sum the blocks anew over their first axis, so that rounding cannot drift."""
        self.sums = tuple(self.scale * array.sum(axis=0, dtype=np.float64) for array in self.arrays)

    def clip(self):
        """``S <- max(S, 0)``, in place."""
        sums = []
        for array in self.arrays:
            if array.ndim == 2:
                total = np.empty(array.shape[1])
                _clip_rows(array, total)
            else:
                np.maximum(array, 0.0, out=array)
                total = array.sum(axis=0, dtype=np.float64)
            sums.append(self.scale * total)
        self.sums = tuple(sums)

    def fold(self):
        """Multiply the scale into the arrays."""
        if self.scale != 1.0:
            for array in self.arrays:
                array *= array.dtype.type(self.scale)
            self._folded *= self.scale
            self.scale = 1.0
            self.resum()

    def blend(self, rho, stats, factor=1.0, run=in_turn):
        """``S <- (1 - rho) S + rho * factor * stats``, in place.

        Parameters
        ----------
        rho : float in [0, 1]
            Step size; 1 replaces.
        stats : Stats
        factor : float
            Rows of the data for which one row of ``stats`` stands, times the inverse temperature.
        run : callable
            ``run(function, tasks)``, in parallel or not.
        """
        keep = 1.0 - rho
        if keep * self.scale < _SMALLEST_SCALE:
            self.fold()
            for array in self.arrays:
                array *= array.dtype.type(keep)
            self._folded *= keep
        else:
            self.scale *= keep
        self.sums = tuple(keep * total for total in self.sums)
        self.add(stats, rho * factor, run)

    def rescale(self, factor):
        """``S <- factor * S``, in place."""
        self.scale *= factor
        self.sums = tuple(factor * total for total in self.sums)

    def jitter(self, relative, rng):
        """Multiply each entry by noise of mean 1 and this relative standard deviation."""
        shape = relative**-2
        for array in self.arrays:
            array *= (rng.standard_gamma(shape, size=array.shape) / shape).astype(array.dtype)
        self.resum()

    def add(self, stats, factor=1.0, run=in_turn):
        """``S <- S + factor * stats``, in place."""
        sums = []
        for array, addend, total in zip(self.arrays, stats.arrays, self.sums, strict=True):
            step = array.dtype.type(factor / self.scale)
            if array.ndim != 2:
                array += step * addend
                added = addend.sum(axis=0, dtype=np.float64)
            else:
                n_rows, width = addend.shape
                rows = np.arange(n_rows, dtype=np.int32) if stats.rows is None else stats.rows
                totals = np.empty((-(-n_rows // _ROWS), width))
                run(_add_rows, SharedLoop(n_rows, _ROWS, array, rows, step, addend, totals))
                added = totals.sum(axis=0)
            sums.append(total + factor * added)
        self.sums = tuple(sums)

    def value(self):
        """The statistics as they stand: a dense :class:`Stats` of fresh arrays."""
        return Stats(tuple(array * array.dtype.type(self.scale) for array in self.arrays))

    def scaled(self, factor):
        """``factor * S`` as a view: it shares the arrays."""
        twin = copy(self)
        twin.rescale(factor)
        return twin

    def copy(self):
        """An independent copy."""
        twin = copy(self)
        twin.arrays = tuple(array.copy() for array in self.arrays)
        return twin

    def remember(self, rows):
        """What :meth:`restore` needs after steps that touched these rows only."""
        saved = tuple(array[rows] for array in self.arrays)
        return rows, saved, self.scale, self.sums, self._folded

    def restore(self, memory):
        """Undo all since :meth:`remember`, in place."""
        rows, saved, self.scale, self.sums, folded = memory
        for array, values in zip(self.arrays, saved, strict=True):
            if self._folded != folded:
                array *= array.dtype.type(folded / self._folded)
            array[rows] = values
        self._folded = folded

    @classmethod
    def zeros_like(cls, other):
        """Statistics of no data, shaped as ``other``."""
        return cls(np.zeros_like(array) for array in other.arrays)
