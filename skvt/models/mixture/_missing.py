"""Missing values of Gaussians with full covariances: rows with NaN in some columns.

The rows x of component k (z = k) have the distribution N(mu_k, Lambda_k^-1), whose parameters are
phi_k. Let the columns m of a row be missing and the columns o observed. The row then has a further
local variable, x_m given z = k. Let ``A = E[Lambda_k]``, ``b = E[Lambda_k mu_k]`` and ``v = b_m -
A_mo x_o``. At temperature T, the best q of x_m and the entropy of this q are

    q(x_m | z = k) = N(A_mm^-1 v, T A_mm^-1),      h_k = |m| (1 + log(2 pi T)) / 2 - log|A_mm| / 2.

As a function of x_m, ``E[log p(x | phi_k)]`` is largest at the mean of q, where it exceeds its
value at ``x_m = 0`` by ``v' A_mm^-1 v / 2``. The same functions complete rows under a Student t: if
A is the inverse of its scale matrix, ``A_mm^-1 v`` is the conditional mean of the missing values.

A pattern is a set m of missing columns. Rows are processed pattern by pattern, so that all rows of
a pattern share the Cholesky factor L of A_mm, with ``A_mm = L L'``. In the compiled functions, the
indices a, c and e are positions in m.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skvt._compiled import jit_allocating, jit_inlined, log
from skvt.expfam import triangle
from skvt.typing import Array, IndexArray

_LOG_2PI = np.log(2.0 * np.pi)
_Mask: TypeAlias = NDArray[np.bool_]


def has_missing(X: Any) -> bool:
    """Return whether any value is NaN."""
    return bool(np.isnan(X).any())


class Patterns(NamedTuple):
    """Rows in groups, each of which has one pattern of missing columns.

    Rows without any value are left out. Several groups may have the same pattern.
    """

    # (R,): indices of the rows, group after group.
    rows: IndexArray
    # (G + 1,): position in ``rows`` where each of the G groups starts, followed by R.
    row_starts: IndexArray
    # (C,): missing columns of each group, group after group.
    columns: IndexArray
    # (G + 1,): position in ``columns`` where each group's columns start, followed by C.
    column_starts: IndexArray

    @classmethod
    def from_mask(cls, is_missing: _Mask, min_missing: int = 1) -> "Patterns":
        """Return the patterns of the rows of a mask (n, D), which is True for missing values.

        Rows with fewer than ``min_missing`` missing values are left out.
        """
        n_columns = is_missing.shape[1]
        n_missing = is_missing.sum(axis=1)
        rows = np.flatnonzero((n_missing >= min_missing) & (n_missing < n_columns))
        # Sort the rows by keys whose digits in base 3 are the mask. Keys are numbers modulo 2^64:
        # in base 2, the digits of all but 64 columns would be lost. If patterns happen to have the
        # same key, their rows alternate, so that a pattern may have several groups.
        keys = is_missing[rows] @ 3 ** np.arange(n_columns)[::-1]
        rows = rows[np.argsort(keys, kind="stable")]
        # Start a group at each row whose pattern differs from that of the row before. If there are
        # no rows, the slice removes the first True.
        masks = is_missing[rows]
        is_new = np.append(True, np.any(masks[1:] != masks[:-1], axis=1))[: rows.size]
        row_starts = np.append(np.flatnonzero(is_new), rows.size)
        masks = masks[is_new]
        column_starts = np.append(0, np.cumsum(masks.sum(axis=1)))
        return cls(rows, row_starts, np.nonzero(masks)[1], column_starts)


@dataclass(frozen=True)
class GaussianCompletion:
    """Completes missing values, given A and b of K Gaussians with full covariances."""

    # () or (D,): subtracted from rows before they are completed.
    center: Any
    # (K, D): b of each component.
    linear: Array
    # (K, D, D): A of each component.
    precision: Array
    # Whether the features of a row x are ``[1, x, x x']``. Otherwise they are ``[1, x x']``.
    with_linear: bool

    @classmethod
    def from_table(cls, center: Any, table: Array, n_features: int) -> "GaussianCompletion":
        """Return the completion from the coefficients of E[log p(x | phi_k)].

        ``table`` (K, P) has the coefficients of the features of ``x - center``, among them the
        upper triangle of ``x x'``. ``n_features`` is the number D of columns of x.
        """
        n_squares = n_features * (n_features + 1) // 2
        precision = triangle.unpack_statistic(table[:, -n_squares:])
        with_linear = table.shape[1] > 1 + n_squares
        linear = table[:, 1 : 1 + n_features] if with_linear else np.zeros((len(table), n_features))
        return cls(center, np.ascontiguousarray(linear), precision, with_linear)

    @classmethod
    def from_scale(cls, center: Any, mean: Array, scale: Array) -> "GaussianCompletion":
        """Return the completion from means and scale matrices.

        The means ``mean`` (K, D) are relative to ``center``. The positive definite matrices
        ``scale`` (K, D, D) are the inverses of A.
        """
        precision = np.linalg.inv(scale)
        precision = 0.5 * (precision + np.swapaxes(precision, 1, 2))
        return cls(center, np.einsum("kij,kj->ki", precision, mean), precision, with_linear=True)

    def holes(self, X: Any, inv_temps: Array) -> "GaussianHoles | None":
        """Return the missing values of rows, or None if no value is missing.

        ``X`` (n, D) has NaN in place of missing values. ``inv_temps`` (n,) or (1,) are 1 / T of
        each row, or of all rows.
        """
        X = np.subtract(X, self.center, order="C", dtype=np.float64)
        is_missing = np.isnan(X)
        if not is_missing.any():
            return None
        X[is_missing] = 0.0
        return GaussianHoles(self, X, is_missing, Patterns.from_mask(is_missing), inv_temps)


@dataclass(frozen=True)
class GaussianHoles:
    """The missing values of n rows.

    The class implements :class:`skvt.contracts.HiddenValues`, the contract of hidden values.
    """

    completion: GaussianCompletion
    # (n, D): rows relative to the centre, with 0 in place of missing values.
    X: Array
    # (n, D): True where a value is missing.
    is_missing: _Mask
    patterns: Patterns
    # (n,) or (1,): 1 / T of each row, or of all rows.
    inv_temps: Array

    def half_log_det(self) -> Array:
        """Return ``log|A_mm| / 2`` of each row and component, (n, K), at T = 1.

        The result is wrong for rows without any value.
        """
        # Solve the equation of the entropy h_k in the docstring of the module for the determinant.
        logits, entropy = np.zeros((2, self.X.shape[0], len(self.completion.precision)))
        self.add_to(logits, entropy)
        half_n_missing = 0.5 * self.is_missing.sum(axis=1)[:, None]
        return half_n_missing * (1.0 + _LOG_2PI) - entropy

    def add_to(self, logits: Array, entropy: Array) -> None:
        """Add what q of the missing values contributes to ``logits`` and ``entropy``, (n, K) each.

        See :meth:`skvt.contracts.HiddenValues.add_to`.
        """
        completion = self.completion
        _correct_logits(
            self.X, *self.patterns, completion.linear, completion.precision, self.inv_temps,
            logits, entropy,
        )  # fmt: skip

    def add_statistics(self, weighted_resp: Array, sums: Array) -> None:
        """Add expected features that contain missing values to ``sums`` (K, P).

        ``weighted_resp`` (n, K) are the responsibilities times the weights of the rows.
        """
        completion = self.completion
        add_expected_features(
            self.X, *self.patterns, completion.linear, completion.precision, self.inv_temps,
            weighted_resp, None, completion.with_linear, sums,
        )  # fmt: skip

    def filled(self, k: int, noise: Array | None = None) -> Array:
        """Return rows (n, D) relative to the centre, completed under component ``k``.

        Missing values are ``x_m = A_mm^-1 v + L^-T noise_m``. If ``noise`` is None, they are the
        mean of q. If ``noise`` (n, D) is standard normal, they are a draw from q at T = 1.
        """
        linear, precision = self.completion.linear[k], self.completion.precision[k]
        noise = np.zeros_like(self.X) if noise is None else noise
        completed = self.X.copy()
        _write_completed(self.X, *self.patterns, linear, precision, noise, completed)
        # Fill rows without any value, which ``patterns`` leaves out.
        is_empty = self.is_missing.all(axis=1)
        if is_empty.any():
            root = np.linalg.cholesky(precision)
            mean = np.linalg.solve(precision, linear)
            completed[is_empty] = mean + np.linalg.solve(root.T, noise[is_empty].T).T
        return completed


@jit_inlined
def factorize(precision: Array, columns: Array, cholesky: Array) -> float:
    """Write the Cholesky factor L of A_mm to ``cholesky``; return ``log|A_mm| / 2``.

    ``precision`` is A and ``columns`` are m. On its diagonal, ``cholesky`` has ``1 / L_aa``, as the
    following functions expect.
    """
    half_log_det = 0.0
    for a in range(columns.size):
        row = precision[columns[a]]
        for c in range(a + 1):
            total = row[columns[c]]
            for e in range(c):
                total -= cholesky[a, e] * cholesky[c, e]
            if c < a:
                cholesky[a, c] = total * cholesky[c, c]
            else:
                diagonal = np.sqrt(total)
                half_log_det += log(diagonal)
                cholesky[a, a] = 1.0 / diagonal
    return half_log_det


@jit_inlined
def whiten(
    x: Array, linear: Array, precision: Array, columns: Array, cholesky: Array, u: Array
) -> float:
    """Write ``u = L^-1 v``; return ``|u|^2``, which is ``v' A_mm^-1 v``.

    ``x`` is the row, which must be 0 where values are missing, ``linear`` is b, ``precision`` is A
    and ``columns`` are m. ``cholesky`` is the result of :func:`factorize`.
    """
    squared_length = 0.0
    for a in range(columns.size):
        i = columns[a]
        row = precision[i]
        total = linear[i]
        for j in range(x.size):
            total -= row[j] * x[j]
        for c in range(a):
            total -= cholesky[a, c] * u[c]
        total *= cholesky[a, a]
        u[a] = total
        squared_length += total * total
    return squared_length


@jit_inlined
def solve_transposed(cholesky: Array, u: Array, size: int) -> None:
    """Replace the first ``size`` entries of ``u`` by ``L^-T u``; L is the factor ``cholesky``."""
    for a in range(size - 1, -1, -1):
        total = u[a]
        for c in range(a + 1, size):
            total -= cholesky[c, a] * u[c]
        u[a] = total * cholesky[a, a]


@jit_inlined
def _add_inverse(cholesky: Array, columns: Array, factor: float, u: Array, out: Array) -> None:
    """Add ``factor * A_mm^-1`` to the block ``out[m, m]``.

    ``cholesky`` is the result of :func:`factorize`, ``columns`` are m and ``u`` is scratch.
    """
    for a in range(columns.size):
        # Solve ``L L' u = e_a`` for column a of the inverse.
        for c in range(columns.size):
            total = 1.0 if c == a else 0.0
            for e in range(a, c):
                total -= cholesky[c, e] * u[e]
            u[c] = total * cholesky[c, c] if c >= a else 0.0
        solve_transposed(cholesky, u, columns.size)
        for c in range(columns.size):
            out[columns[a], columns[c]] += factor * u[c]


@jit_allocating
def _correct_logits(
    X: Array, rows: Array, row_starts: Array, columns: Array, column_starts: Array, linear: Array,
    precision: Array, inv_temps: Array, logits: Array, entropy: Array,
) -> None:  # fmt: skip
    """Correct ``logits`` (n, K) and add to ``entropy`` (n, K), see :class:`HiddenValues`.

    ``rows``, ``row_starts``, ``columns`` and ``column_starts`` are the fields of :class:`Patterns`.
    """
    n_features = X.shape[1]
    cholesky, u = np.empty((n_features, n_features)), np.empty(n_features)
    for k in range(precision.shape[0]):
        for g in range(row_starts.size - 1):
            missing = columns[column_starts[g] : column_starts[g + 1]]
            half_log_det = factorize(precision[k], missing, cholesky)
            half_n_missing = 0.5 * missing.size
            for i in range(row_starts[g], row_starts[g + 1]):
                n = rows[i]
                inv_temp = inv_temps[n] if inv_temps.size > 1 else inv_temps[0]
                squared_length = whiten(X[n], linear[k], precision[k], missing, cholesky, u)
                # The entropy is h_k = gain + |m| / 2, and the variance of x_m lowers the energy by
                # T |m| / 2. Energy plus T times entropy therefore change by T times the gain.
                gain = half_n_missing * (_LOG_2PI - log(inv_temp)) - half_log_det
                logits[n, k] += 0.5 * squared_length + gain / inv_temp
                entropy[n, k] += gain + half_n_missing


@jit_inlined
def compute_marginal_precision(
    precision: Array, missing: Array, ordinal_columns: Array, cholesky: Array, u: Array,
    W: Array, S: Array,
) -> None:  # fmt: skip
    """Write ``W = A_mm^-1 A_mc`` and ``S = A_cc - A_cm W``, where c are the ``ordinal_columns``.

    S is the marginal precision of the latent values x_c. ``precision`` is A, and ``missing`` are m.
    ``cholesky`` is the result of :func:`factorize`, and ``u`` is scratch.
    """
    for j in range(ordinal_columns.size):
        column = precision[ordinal_columns[j]]
        for a in range(missing.size):
            total = column[missing[a]]
            for e in range(a):
                total -= cholesky[a, e] * u[e]
            u[a] = total * cholesky[a, a]
        solve_transposed(cholesky, u, missing.size)
        for a in range(missing.size):
            W[a, j] = u[a]
    for i in range(ordinal_columns.size):
        for j in range(ordinal_columns.size):
            total = precision[ordinal_columns[i], ordinal_columns[j]]
            for a in range(missing.size):
                total -= precision[ordinal_columns[i], missing[a]] * W[a, j]
            S[i, j] = total


@jit_inlined
def list_hidden_columns(columns: Array, missing: Array, positions: Array, hidden: Array) -> int:
    """Find the ordinal columns that are not missing; return their number.

    Parameters
    ----------
    columns : (J,) ordinal columns
    missing : (M,) missing columns, ordinal or not
    positions : output, positions in ``columns`` of the ordinal columns that are not missing
    hidden : output, ``missing`` followed by the ordinal columns that are not missing
    """
    n_observed = 0
    for a in range(missing.size):
        hidden[a] = missing[a]
    for j in range(columns.size):
        is_observed = True
        for a in range(missing.size):
            is_observed &= missing[a] != columns[j]
        if is_observed:
            positions[n_observed], hidden[missing.size + n_observed] = j, columns[j]
            n_observed += 1
    return n_observed


@jit_allocating
def add_expected_features(
    X: Array, rows: Array, row_starts: Array, missing_columns: IndexArray, column_starts: Array,
    linear: Array, precision: Array, inv_temps: Array, weighted_resp: Array, ordinal: Any,
    with_linear: bool, sums: Array,
) -> None:  # fmt: skip
    """Add expected features of hidden values, see `skvt.contracts.HiddenValues.add_statistics`.

    A value is hidden if it is missing or if its column is ordinal. Only those entries of the
    features are added that contain hidden values.

    Parameters
    ----------
    X : (n, D) rows relative to the centre, 0 where values are hidden
    rows, row_starts, missing_columns, column_starts : fields of :class:`Patterns`
    linear, precision : (K, D) b and (K, D, D) A
    inv_temps : (n,) or (1,) inverse temperatures
    weighted_resp : (n, K) weights of the rows in each component
    ordinal : None, or ordinal columns (J,) and means and variances (n, K, J) of their latent values
    with_linear : whether the features include x
    sums : (K, P) sums of features; changed
    """
    D = X.shape[1]
    # ``u`` has the expected hidden values of a row, in the order of ``hidden``. ``value_sums`` is
    # the sum of w u over rows with the weights w. ``product_sums`` is the sum of ``w u x'``, where
    # ``x`` has the observed values and half of each hidden value. At the end, ``product_sums`` and
    # its transpose are added up, so that products of two hidden values count fully. For the same
    # reason, half of each covariance is added to ``product_sums``.
    cholesky, u = np.empty((D, D)), np.empty(D)
    x, value_sums, product_sums = np.empty(D), np.empty(D), np.empty((D, D))
    # This condition is evaluated when the function is compiled.
    if ordinal is not None:
        columns, means, variances = ordinal
        J = columns.size
        positions, all_hidden = np.empty(J, np.int64), np.empty(D, np.int64)
        sum_of_variances = np.empty(J)
        W, S = np.empty((D, J)), np.empty((J, J))
    for k in range(precision.shape[0]):
        A = precision[k]
        value_sums[:] = 0.0
        product_sums[:] = 0.0
        for group in range(row_starts.size - 1):
            is_factorized, sum_of_temperatures = False, 0.0
            missing = missing_columns[column_starts[group] : column_starts[group + 1]]
            hidden = missing
            if ordinal is not None:
                n_observed = list_hidden_columns(columns, missing, positions, all_hidden)
                hidden = all_hidden[: missing.size + n_observed]
                observed_columns = hidden[missing.size :]
                sum_of_variances[:] = 0.0
            for row in range(row_starts[group], row_starts[group + 1]):
                n = rows[row]
                w = weighted_resp[n, k]
                if w == 0.0:
                    continue
                # Factorize A_mm for the first row of the group that has a weight.
                if not is_factorized:
                    factorize(A, missing, cholesky)
                    is_factorized = True
                    if ordinal is not None:
                        compute_marginal_precision(A, missing, observed_columns, cholesky, u, W, S)
                sum_of_temperatures += w / (inv_temps[n] if inv_temps.size > 1 else inv_temps[0])
                # Compute the means of missing values and, given latent values, correct them.
                whiten(X[n], linear[k], A, missing, cholesky, u)
                solve_transposed(cholesky, u, missing.size)
                if ordinal is not None:
                    for j in range(observed_columns.size):
                        mean = means[n, k, positions[j]]
                        sum_of_variances[j] += w * variances[n, k, positions[j]]
                        u[missing.size + j] = mean
                        for a in range(missing.size):
                            u[a] -= W[a, j] * mean
                # Add the row to the sums.
                for i in range(D):
                    x[i] = X[n, i]
                for a in range(hidden.size):
                    x[hidden[a]] = 0.5 * u[a]
                for a in range(hidden.size):
                    factor, product_row = w * u[a], product_sums[hidden[a]]
                    value_sums[hidden[a]] += factor
                    for i in range(D):
                        product_row[i] += factor * x[i]
            if not is_factorized:
                continue
            if ordinal is not None:
                # Add the variances of the latent values x_c. The mean of the missing values x_m
                # contains -W x_c, from which covariances of x_m with x_c and with itself follow.
                for j in range(observed_columns.size):
                    half_variance = 0.5 * sum_of_variances[j]
                    product_sums[observed_columns[j], observed_columns[j]] += half_variance
                    for a in range(missing.size):
                        product_sums[observed_columns[j], missing[a]] -= half_variance * W[a, j]
                        product_sums[missing[a], observed_columns[j]] -= half_variance * W[a, j]
                        for e in range(missing.size):
                            product = half_variance * W[a, j] * W[e, j]
                            product_sums[missing[a], missing[e]] += product
            # Add the covariance T A_mm^-1 of each row.
            _add_inverse(cholesky, missing, 0.5 * sum_of_temperatures, u, product_sums)
        # Add the sums of this component to the entries of ``sums`` for x and for the upper triangle
        # of x x'. Entry 0 belongs to the constant feature, which contains no hidden values.
        position = 1
        for i in range(D if with_linear else 0):
            sums[k, position] += value_sums[i]
            position += 1
        for i in range(D):
            for j in range(i, D):
                sums[k, position] += product_sums[i, j] + product_sums[j, i]
                position += 1


@jit_allocating
def _write_completed(
    X: Array, rows: Array, row_starts: Array, columns: Array, column_starts: Array, linear: Array,
    precision: Array, noise: Array, out: Array,
) -> None:  # fmt: skip
    """Write missing values ``x_m = A_mm^-1 v + L^-T noise_m`` to ``out`` (n, D).

    ``rows``, ``row_starts``, ``columns`` and ``column_starts`` are the fields of :class:`Patterns`.
    b is ``linear``, and A is ``precision``.
    """
    n_features = X.shape[1]
    cholesky, u = np.empty((n_features, n_features)), np.empty(n_features)
    for g in range(row_starts.size - 1):
        missing = columns[column_starts[g] : column_starts[g + 1]]
        factorize(precision, missing, cholesky)
        for i in range(row_starts[g], row_starts[g + 1]):
            n = rows[i]
            whiten(X[n], linear, precision, missing, cholesky, u)
            for a in range(missing.size):
                u[a] += noise[n, missing[a]]
            solve_transposed(cholesky, u, missing.size)
            for a in range(missing.size):
                out[n, missing[a]] = u[a]
