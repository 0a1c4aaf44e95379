"""Missing values of Gaussians with full covariances: rows with NaN in some columns.

Let the columns m of a row be missing and o observed. The row then has another local variable, x_m
given z = k. With ``A = E[Lambda_k]``, ``b = E[Lambda_k mu_k]`` and ``v = b_m - A_mo x_o``, at
temperature T, its best q and the entropy of this q are

    q(x_m | z = k) = N(A_mm^-1 v, T A_mm^-1),      h_k = |m| (1 + log(2 pi T)) / 2 - log|A_mm| / 2,

and ``E[log p(x | phi_k)]`` is largest over x_m where it exceeds its value at ``x_m = 0`` by ``v'
A_mm^-1 v / 2``. With another matrix, the same equations yield the conditional mean of missing
values under a Student t.

Rows are processed in the order of their patterns, the sets m, so that all rows of a pattern share
the Cholesky factor of A_mm.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import jit_allocating, log, part
from skvt.expfam import triangle
from skvt.typing import Array, IndexArray

_LOG_2PI = np.log(2.0 * np.pi)
_Mask: TypeAlias = NDArray[np.bool_]


def has_holes(X: Any) -> bool:
    return bool(np.isnan(X).any())


class Patterns(NamedTuple):
    """Which columns are missing in which rows; rows without any value are left out."""

    # (R,): the rows, grouped by pattern.
    rows: IndexArray
    # (G + 1,): index in ``rows`` of each pattern's first row, and R.
    starts: IndexArray
    # The missing columns of each pattern, pattern after pattern.
    columns: IndexArray
    # (G + 1,): index in ``columns`` of each pattern's first column, and their number.
    offsets: IndexArray

    @classmethod
    def of(cls, missing: _Mask, least: int = 1) -> "Patterns":
        """Return the patterns of a mask (n, D), for rows with at least ``least`` missing values."""
        number, keys = _keys(missing)
        rows = np.flatnonzero((number >= least) & (number < missing.shape[1]))
        rows = rows[np.argsort(keys[rows], kind="stable")]
        return cls(rows, *_groups(missing, rows, number))


@dataclass(frozen=True)
class GaussianCompletion:
    """Missing values of Gaussians with full covariances, under one table."""

    # () or (D,): subtracted from the rows.
    center: Any
    # (K, D): b.
    linear: Array
    # (K, D, D): A.
    precision: Array
    # Whether features are ``[1, x, x x']`` rather than ``[1, x x']``.
    means: bool

    @classmethod
    def of_table(cls, center: Any, table: Array, n_features: int) -> "GaussianCompletion":
        """Return the completion of a table (K, P) of E[log p(x | phi)]."""
        n_entries = n_features * (n_features + 1) // 2
        precision = -triangle.unpack(table[:, -n_entries:])
        diagonal = np.arange(n_features)
        precision[:, diagonal, diagonal] *= 2.0
        means = table.shape[1] > 1 + n_entries
        linear = table[:, 1 : 1 + n_features] if means else np.zeros((len(table), n_features))
        return cls(center, np.ascontiguousarray(linear), precision, means)

    @classmethod
    def of_scale(cls, center: Any, mean: Array, scale: Array) -> "GaussianCompletion":
        """Return it for means (K, D) less ``center`` and positive definite matrices (K, D, D)."""
        precision = np.linalg.inv(scale)
        precision = 0.5 * (precision + np.swapaxes(precision, 1, 2))
        return cls(center, np.einsum("kij,kj->ki", precision, mean), precision, True)

    def holes(self, X: Any, inv_temps: Array) -> "GaussianHoles | None":
        """Return the missing values of a chunk of rows; None if there are none."""
        X = np.subtract(X, self.center, order="C", dtype=np.float64)
        missing = np.isnan(X)
        if not missing.any():
            return None
        X[missing] = 0.0
        return GaussianHoles(self, X, missing, Patterns.of(missing), inv_temps)


@dataclass(frozen=True)
class GaussianHoles:
    """:class:`Holes`: centred rows (n, D) with 0 where ``missing``; 1 / T (n,) or (1,)."""

    completion: GaussianCompletion
    X: Array
    missing: _Mask
    patterns: Patterns
    inv_temps: Array

    def half_log_det(self) -> Array:
        """Return ``log|A_mm| / 2`` of each row and component, (n, K)."""
        logits, entropy = np.zeros((2, self.X.shape[0], len(self.completion.precision)))
        self.add_to(logits, entropy)
        half = 0.5 * self.missing.sum(axis=1)[:, None]
        return half * (1.0 + _LOG_2PI) - entropy

    def add_to(self, logits: Array, entropy: Array) -> None:
        completion = self.completion
        _add_to(
            self.X, *self.patterns, completion.linear, completion.precision, self.inv_temps,
            logits, entropy,
        )  # fmt: skip

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        completion = self.completion
        add_expected_features(
            self.X, *self.patterns, completion.linear, completion.precision, self.inv_temps,
            weighted, None, completion.means, sums,
        )  # fmt: skip

    def filled(self, k: int, noise: Array | None = None) -> Array:
        """Return centred rows (n, D) with x_m = ``A_mm^-1 v + L^-T noise_m``, ``A_mm = L L'``."""
        completion = self.completion
        linear, precision = completion.linear[k], completion.precision[k]
        noise = np.zeros_like(self.X) if noise is None else noise
        out = self.X.copy()
        _fill(self.X, *self.patterns, linear, precision, noise, out)
        empty = self.missing.all(axis=1)
        if empty.any():
            root = np.linalg.cholesky(precision)
            mean = np.linalg.solve(precision, linear)
            out[empty] = mean + np.linalg.solve(root.T, noise[empty].T).T
        return out


@part
def factorize(precision: Array, columns: Array, lower: Array) -> float:
    """Write the Cholesky factor of A_mm, its diagonal inverted; return ``log|A_mm| / 2``."""
    half_log_det = 0.0
    for a in range(columns.size):
        row = precision[columns[a]]
        for c in range(a + 1):
            total = row[columns[c]]
            for e in range(c):
                total -= lower[a, e] * lower[c, e]
            if c < a:
                lower[a, c] = total * lower[c, c]
            else:
                root = np.sqrt(total)
                half_log_det += log(root)
                lower[a, a] = 1.0 / root
    return half_log_det


@part
def whiten(
    x: Array, linear: Array, precision: Array, columns: Array, lower: Array, u: Array
) -> float:
    """Write ``u = L^-1 v`` and return ``|u|^2``; ``x`` must be 0 where it is missing."""
    square = 0.0
    for a in range(columns.size):
        i = columns[a]
        row = precision[i]
        total = linear[i]
        for j in range(x.size):
            total -= row[j] * x[j]
        for c in range(a):
            total -= lower[a, c] * u[c]
        total *= lower[a, a]
        u[a] = total
        square += total * total
    return square


@part
def solve_transposed(lower: Array, u: Array, size: int) -> None:
    """Replace ``u`` by ``L^-T u``."""
    for a in range(size - 1, -1, -1):
        total = u[a]
        for c in range(a + 1, size):
            total -= lower[c, a] * u[c]
        u[a] = total * lower[a, a]


@part
def _add_inverse(lower: Array, columns: Array, factor: float, u: Array, second: Array) -> None:
    """Add A_mm^-1 times a factor to the block of these columns; ``u`` is overwritten."""
    for a in range(columns.size):
        for c in range(columns.size):
            total = 1.0 if c == a else 0.0
            for e in range(a, c):
                total -= lower[c, e] * u[e]
            u[c] = total * lower[c, c] if c >= a else 0.0
        solve_transposed(lower, u, columns.size)
        for c in range(columns.size):
            second[columns[a], columns[c]] += factor * u[c]


@jit_allocating
def _keys(missing: _Mask) -> tuple[IndexArray, IndexArray]:
    """Return the number of missing columns of each row, and a key of its pattern."""
    n_rows, n_features = missing.shape
    number, keys = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    for n in range(n_rows):
        key, count = np.int64(0), 0
        for j in range(n_features):
            key *= 3
            if missing[n, j]:
                key += 1
                count += 1
        keys[n], number[n] = key, count
    return number, keys


@jit_allocating
def _groups(
    missing: _Mask, rows: IndexArray, number: IndexArray
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return starts, columns and offsets of :class:`Patterns` for rows in the order of ``rows``."""
    n_features = missing.shape[1]
    starts, offsets = np.zeros(rows.size + 1, np.int64), np.zeros(rows.size + 1, np.int64)
    columns = np.empty(number[rows].sum(), np.int64)
    n_groups, n_columns = 0, 0
    for i in range(rows.size):
        pattern = missing[rows[i]]
        same = i > 0
        if same:
            before = missing[rows[i - 1]]
            for j in range(n_features):
                same &= pattern[j] == before[j]
        if not same:
            starts[n_groups] = i
            for j in range(n_features):
                if pattern[j]:
                    columns[n_columns] = j
                    n_columns += 1
            n_groups += 1
            offsets[n_groups] = n_columns
    starts[n_groups] = rows.size
    return starts[: n_groups + 1], columns[:n_columns], offsets[: n_groups + 1]


@jit_allocating
def _add_to(
    X: Array, rows: Array, starts: Array, columns: Array, offsets: Array, linear: Array,
    precision: Array, inv_temps: Array, logits: Array, entropy: Array,
) -> None:  # fmt: skip
    """See :class:`Holes`."""
    n_features = X.shape[1]
    lower, u = np.empty((n_features, n_features)), np.empty(n_features)
    for k in range(precision.shape[0]):
        for g in range(starts.size - 1):
            missing = columns[offsets[g] : offsets[g + 1]]
            half_log_det, half = factorize(precision[k], missing, lower), 0.5 * missing.size
            for i in range(starts[g], starts[g + 1]):
                n = rows[i]
                inv_temp = inv_temps[n] if inv_temps.size > 1 else inv_temps[0]
                square = whiten(X[n], linear[k], precision[k], missing, lower, u)
                # this is the entropy less |m| / 2, by which the variance of x_m lowers the energy
                gain = half * (_LOG_2PI - log(inv_temp)) - half_log_det
                logits[n, k] += 0.5 * square + gain / inv_temp
                entropy[n, k] += gain + half


@part
def marginal_precision(
    precision: Array, missing: Array, cut: Array, lower: Array, u: Array, W: Array, S: Array
) -> None:
    """Write ``W = A_mm^-1 A_mc`` and ``S = A_cc - A_cm W``; ``lower`` is the factor of A_mm."""
    for j in range(cut.size):
        column = precision[cut[j]]
        for a in range(missing.size):
            total = column[missing[a]]
            for c in range(a):
                total -= lower[a, c] * u[c]
            u[a] = total * lower[a, a]
        solve_transposed(lower, u, missing.size)
        for a in range(missing.size):
            W[a, j] = u[a]
    for i in range(cut.size):
        for j in range(cut.size):
            total = precision[cut[i], cut[j]]
            for a in range(missing.size):
                total -= precision[cut[i], missing[a]] * W[a, j]
            S[i, j] = total


@part
def cut_columns(columns: Array, missing: Array, places: Array, hidden: Array) -> int:
    """Return how many of ``columns`` are not missing, and write their indices to ``places``.

    Write the missing columns to ``hidden``, followed by these columns.
    """
    size = 0
    for a in range(missing.size):
        hidden[a] = missing[a]
    for j in range(columns.size):
        present = True
        for a in range(missing.size):
            present &= missing[a] != columns[j]
        if present:
            places[size], hidden[missing.size + size] = j, columns[j]
            size += 1
    return size


@jit_allocating
def add_expected_features(
    X: Array, rows: Array, starts: Array, gaps: IndexArray, offsets: Array, linear: Array,
    precision: Array, inv_temps: Array, weighted: Array, ordinal: Any, with_linear: bool,
    sums: Array,
) -> None:  # fmt: skip
    """See :class:`Holes`; the features include x if ``with_linear``.

    ``ordinal`` is None, or ordinal columns (J,) and means and variances (n, K, J) of their values.
    """
    D = X.shape[1]
    lower, u = np.empty((D, D)), np.empty(D)
    # x has halves of its hidden values: x x' - x_o x_o' is then the sum of x_h x' and its transpose
    x, first, second = np.empty(D), np.empty(D), np.empty((D, D))
    if ordinal is not None:  # decided when the function is compiled
        columns, means, variances = ordinal
        J, both = columns.size, np.empty(D, np.int64)
        places, spread, W, S = (
            np.empty(J, np.int64),
            np.empty(J),
            np.empty((D, J)),
            np.empty((J, J)),
        )
    for k in range(precision.shape[0]):
        A = precision[k]
        first[:] = 0.0
        second[:] = 0.0
        for group in range(starts.size - 1):
            known, of_variance = False, 0.0
            missing = gaps[offsets[group] : offsets[group + 1]]
            hidden = missing
            if ordinal is not None:
                hidden = both[: missing.size + cut_columns(columns, missing, places, both)]
                cut = hidden[missing.size :]
                spread[:] = 0.0
            for place in range(starts[group], starts[group + 1]):
                n = rows[place]
                w = weighted[n, k]
                if w == 0.0:
                    continue
                if not known:
                    factorize(A, missing, lower)
                    known = True
                    if ordinal is not None:
                        marginal_precision(A, missing, cut, lower, u, W, S)
                of_variance += w / (inv_temps[n] if inv_temps.size > 1 else inv_temps[0])
                whiten(X[n], linear[k], A, missing, lower, u)
                solve_transposed(lower, u, missing.size)
                if ordinal is not None:
                    for j in range(cut.size):
                        mean = means[n, k, places[j]]
                        spread[j] += w * variances[n, k, places[j]]
                        u[missing.size + j] = mean
                        for a in range(missing.size):
                            u[a] -= W[a, j] * mean
                for i in range(D):
                    x[i] = X[n, i]
                for a in range(hidden.size):
                    x[hidden[a]] = 0.5 * u[a]
                for a in range(hidden.size):
                    factor, target = w * u[a], second[hidden[a]]
                    first[hidden[a]] += factor
                    for i in range(D):
                        target[i] += factor * x[i]
            if not known:
                continue
            if ordinal is not None:
                # Add the variances of x_c, and their effect on x_m, whose mean contains -W x_c.
                for j in range(cut.size):
                    half = 0.5 * spread[j]
                    second[cut[j], cut[j]] += half
                    for a in range(missing.size):
                        second[cut[j], missing[a]] -= half * W[a, j]
                        second[missing[a], cut[j]] -= half * W[a, j]
                        for c in range(missing.size):
                            second[missing[a], missing[c]] += half * W[a, j] * W[c, j]
            _add_inverse(lower, missing, 0.5 * of_variance, u, second)
        position = 1
        for i in range(D if with_linear else 0):
            sums[k, position] += first[i]
            position += 1
        for i in range(D):
            for j in range(i, D):
                sums[k, position] += second[i, j] + second[j, i]
                position += 1


@jit_allocating
def _fill(
    X: Array, rows: Array, starts: Array, columns: Array, offsets: Array, linear: Array,
    precision: Array, noise: Array, out: Array,
) -> None:  # fmt: skip
    n_features = X.shape[1]
    lower, u = np.empty((n_features, n_features)), np.empty(n_features)
    for g in range(starts.size - 1):
        missing = columns[offsets[g] : offsets[g + 1]]
        factorize(precision, missing, lower)
        for i in range(starts[g], starts[g + 1]):
            n = rows[i]
            whiten(X[n], linear, precision, missing, lower, u)
            for a in range(missing.size):
                u[a] += noise[n, missing[a]]
            solve_transposed(lower, u, missing.size)
            for a in range(missing.size):
                out[n, missing[a]] = u[a]
