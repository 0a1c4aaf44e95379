"""Ordinal columns as thresholded Gaussians: the posterior of the latent values.

An ordinal value tells only the interval in which a latent real value lies. Real and latent values
of a row in component k are jointly N(mu_k, Lambda_k^-1). Let m be the missing columns of a row, c
the ordinal columns with values, and o the real columns with values. With ``A = E[Lambda_k]`` and
``b = E[Lambda_k mu_k]``, the best q(x_m | x_c, z = k) is the Gaussian of
:mod:`skvt.models.mixture._missing`. With this q, the terms of the energy E_q[log p] that depend on
x_c add up to

    d' x_c - x_c' S x_c / 2,      S = A_cc - A_cm A_mm^-1 A_mc,
                                  d = b_c - A_co x_o - A_cm A_mm^-1 (b_m - A_mo x_o).

The distribution q(x_c | z = k) is a product over columns. At temperature T its best factors are
normal distributions truncated to the intervals I_j,

    q_j(x) = N(x; g_j / S_jj, T / S_jj) / Z_j on I_j,      g_j = d_j - sum_{i != j} S_ji E[x_i],

which are computed by coordinate ascent. The density of q is log-concave, and the optimum is unique.
For any g_j, optimal or not, the energy plus T times the entropy of this q is

    d' e - e' S e / 2 + sum_j [S_jj e_j^2 / 2 - g_j e_j + T log int_{I_j} exp((g_j x - S_jj x^2 / 2)
    / T) dx],      e_j = E[x_j].

Since this equation is exact, the ELBO is valid even before the ascent has converged. With one
ordinal column, this q is the exact posterior.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from skvt._compiled import exp, jit, jit_allocating, jit_inlined, log
from skvt.files import are_indices_below, in_files
from skvt.models.mixture._missing import (
    GaussianCompletion,
    Patterns,
    add_expected_features,
    compute_marginal_precision,
    factorize,
    list_hidden_columns,
    solve_transposed,
    whiten,
)
from skvt.rows import dense, evaluate_rows
from skvt.typing import Array, IndexArray

_LOG_2PI = np.log(2.0 * np.pi)
# Nodes and weights of Gauss-Legendre quadrature on [0, 1]. Quadrature computes the moments of
# truncated normals, because no closed form is accurate both for intervals far from the mean and
# for narrow intervals. Ten nodes are exact to rounding if the log density falls by less than
# _MAX_LOG_DROP_FOR_10 over the interval. Otherwise 20 nodes are used.
_NODES_10, _NODES_20 = (0.5 * (np.polynomial.legendre.leggauss(n)[0] + 1.0) for n in (10, 20))
_WEIGHTS_10, _WEIGHTS_20 = (0.5 * np.polynomial.legendre.leggauss(n)[1] for n in (10, 20))
_MAX_LOG_DROP_FOR_10 = 5.0
# Integrals end where the log density has fallen by this number from its maximum, because smaller
# densities do not change a sum in double precision.
_MAX_LOG_DROP = 37.0
# Coordinate ascent ends when each mean moves by less than this share of its factor's standard
# deviation before truncation.
_NEGLIGIBLE_MOVE = 1e-5
# Maximum number of sweeps of coordinate ascent.
_MAX_SWEEPS = 500


@in_files("models.Cells")
@dataclass(frozen=True)
class Cells:
    """Intervals of the latent values of ordinal columns, one interval for each level.

    The levels are the distinct values of an ordinal column in the data of the fit.
    """

    # (J,): the ordinal columns, in ascending order.
    columns: IndexArray
    # For each ordinal column, its C_j levels in ascending order.
    levels: tuple[Array, ...]
    # For each ordinal column, the C_j + 1 ends of the intervals of its levels, from -inf to inf.
    edges: tuple[Array, ...]

    def validate(self, d: int, k: int) -> bool:
        """Return whether the fields fit each other and data of ``d`` columns, for loaded files."""
        pairs = list(zip(self.levels, self.edges, strict=True))
        return (
            are_indices_below(self.columns, d)
            and self.columns.shape == (len(pairs),)
            and all(levels.shape == (edges.size - 1,) for levels, edges in pairs)
            and all(edges.ndim == 1 and edges.size > 1 for _, edges in pairs)
            # Levels and edges are in ascending order.
            and all(np.all(numbers[1:] > numbers[:-1]) for pair in pairs for numbers in pair)
        )

    @classmethod
    def from_frequencies(cls, X: Any, weights: Any, columns: IndexArray) -> "Cells":
        """Return intervals for rows X, given their ``weights`` (n,) and the ordinal ``columns``.

        The thresholds between levels are the standard normal quantiles of the cumulative weighted
        frequencies of the levels in X. Rows without weight are ignored.
        """
        weights = np.asarray(weights)
        levels, edges = [], []
        for j in columns.tolist():
            column = evaluate_rows(X, weights, partial(_read_column, j))
            is_present = ~np.isnan(column) & (weights > 0.0)
            values, codes = np.unique(column[is_present], return_inverse=True)
            # A column without values has the level 0.
            values = values if values.size else np.zeros(1)
            level_weights = np.bincount(codes, weights[is_present], minlength=values.size)
            cumulative = np.cumsum(level_weights)
            thresholds = ndtri(cumulative[:-1] / cumulative[-1]) if values.size > 1 else []
            levels.append(values)
            edges.append(np.concatenate([[-np.inf], thresholds, [np.inf]]))
        return cls(columns, tuple(levels), tuple(edges))

    def encode(self, X: Any) -> IndexArray:
        """Return the numbers (n, J) of the levels of rows (n, D), and -1 for missing values.

        The levels of a column have the numbers 0, 1, .... New rows may contain values that are no
        levels: a value between two levels counts as the higher level, and a value above all levels
        as the highest level.
        """
        codes = np.empty((X.shape[0], self.columns.size), np.intp)
        for j, (column, levels) in enumerate(zip(self.columns, self.levels, strict=True)):
            x = np.asarray(X[:, column], np.float64)
            code = np.minimum(np.searchsorted(levels, x), levels.size - 1)
            codes[:, j] = np.where(np.isnan(x), -1, code)
        return codes

    def find_intervals(self, X: Any) -> tuple[Array, Array]:
        """Return lower and upper ends of the intervals of the latent values, (n, J) each.

        Missing values have the interval from -inf to inf.
        """
        codes = self.encode(X)
        j = np.arange(self.columns.size)
        lower = np.where(codes < 0, -np.inf, self.padded_edges[j, codes])
        return lower, np.where(codes < 0, np.inf, self.padded_edges[j, codes + 1])

    def with_scores(self, X: Any) -> Array:
        """Return rows (n, D) in float64, with scores in the ordinal columns.

        The score of a value is the mean of a standard normal in the interval of the value. Missing
        values stay NaN.
        """
        rows = np.array(dense(X), np.float64)
        codes = self.encode(rows)
        for j, (column, edges) in enumerate(zip(self.columns, self.edges, strict=True)):
            means, _ = _compute_moments_between(edges)
            # The code -1 of a missing value selects the last mean, which is not used.
            rows[:, column] = np.where(codes[:, j] < 0, np.nan, means[codes[:, j]])
        return rows

    def sum_variances_within(self, X: Any, weights: Array) -> tuple[Array, Array]:
        """Return weighted sums over rows of variances within the intervals, and sums of weights.

        Both are (J,). Each value contributes the variance of a standard normal truncated to the
        interval of the value. Missing values are left out.
        """
        codes = self.encode(dense(X))
        sums, weight_sums = np.zeros((2, self.columns.size))
        for j, edges in enumerate(self.edges):
            column_weights = weights * (codes[:, j] >= 0)
            _, variances = _compute_moments_between(edges)
            # The code -1 of a missing value selects the last variance, with the weight 0.
            sums[j] = column_weights @ variances[codes[:, j]]
            weight_sums[j] = column_weights.sum()
        return sums, weight_sums

    @cached_property
    def padded_edges(self) -> Array:
        """The edges of all columns as one array (J, largest C_j + 1), padded with inf."""
        padded = np.full((len(self.edges), max(edges.size for edges in self.edges)), np.inf)
        for j, edges in enumerate(self.edges):
            padded[j, : edges.size] = edges
        return padded

    def with_levels(self, rows: Array) -> Array:
        """Return rows (n, D) with latent values replaced by the levels of their intervals."""
        rows_of_levels = np.array(rows)
        for j, levels, edges in zip(self.columns, self.levels, self.edges, strict=True):
            thresholds = edges[1:-1]
            rows_of_levels[:, j] = levels[np.searchsorted(thresholds, rows[:, j])]
        return rows_of_levels


def _read_column(j: int, X: Any) -> Array:
    """Return column j of X in float64."""
    return np.asarray(dense(X)[:, j], np.float64)


def _compute_moments_between(edges: Array) -> tuple[Array, Array]:
    """Return mean and variance of a standard normal between consecutive edges, (C,) each."""
    means, variances = np.empty((2, edges.size - 1))
    _write_moments_between(edges, means, variances)
    return means, variances


@dataclass(frozen=True)
class OrdinalCompletion:
    """Completes rows with missing and ordinal values, given q of the components' parameters phi."""

    # (D,): the centre that is subtracted from the rows; 0 in ordinal columns.
    center: Array
    # (K, P): coefficients of the features of a row x in E[log p(x | phi_k)].
    table: Array
    cells: Cells

    @cached_property
    def gaussian(self) -> GaussianCompletion:
        """The completion whose ``linear`` is E[Lambda_k mu_k] and ``precision`` is E[Lambda_k]."""
        return GaussianCompletion.from_table(self.center, self.table, self.center.size)

    def holes(self, X: Any, inv_temps: Array) -> "OrdinalHoles":
        """Return the missing and latent values of rows X (n, D).

        ``inv_temps`` (n,) or (1,) are 1 / T of each row, or of all rows.
        """
        rows = np.subtract(X, self.center, order="C", dtype=np.float64)
        is_missing = np.isnan(rows)
        rows[is_missing] = 0.0
        rows[:, self.cells.columns] = 0.0
        # Rows without missing values are included, because their ordinal values are hidden.
        return OrdinalHoles(
            self.gaussian, rows, self.cells.columns, self.cells.find_intervals(X),
            Patterns.from_mask(is_missing, min_missing=0), inv_temps,
        )  # fmt: skip


@dataclass(frozen=True)
class OrdinalHoles:
    """The missing and latent values of n rows.

    The class implements :class:`skvt.contracts.HiddenValues`, the contract of hidden values.
    """

    gaussian: GaussianCompletion
    # (n, D): rows relative to the centre, with 0 in place of missing and ordinal values.
    rows: Array
    # (J,): the ordinal columns.
    columns: IndexArray
    # (n, J) each: lower and upper ends of the intervals.
    intervals: tuple[Array, Array]
    # Patterns of missing values, which include the pattern of rows without missing values.
    patterns: Patterns
    # (n,) or (1,): 1 / T of each row, or of all rows.
    inv_temps: Array

    @cached_property
    def _latent_moments(self) -> tuple[Array, Array, Array]:
        """Means and variances of latent values, (n, K, J) each, and additions, (2, n, K).

        :meth:`add_to` adds ``additions[0]`` to the logits and ``additions[1]`` to the entropies.
        """
        n, K, J = len(self.rows), len(self.gaussian.precision), self.columns.size
        means, variances, additions = np.zeros((n, K, J)), np.zeros((n, K, J)), np.zeros((2, n, K))
        _fit_latent_values(
            self.rows, *self.patterns, self.columns, *self.intervals, self.gaussian.linear,
            self.gaussian.precision, self.inv_temps, means, variances, additions,
        )  # fmt: skip
        return means, variances, additions

    def add_to(self, logits: Array, entropy: Array) -> None:
        """Add the contributions of hidden values to ``logits`` and ``entropy``, (n, K) each."""
        _, _, (logit_additions, entropy_additions) = self._latent_moments
        logits += logit_additions
        entropy += entropy_additions

    def add_statistics(self, weighted_resp: Array, sums: Array) -> None:
        """Add expected features that contain hidden values to ``sums`` (K, P).

        ``weighted_resp`` (n, K) are weighted responsibilities.
        """
        means, variances, _ = self._latent_moments
        # The argument True says that the features include x.
        add_expected_features(
            self.rows, *self.patterns, self.gaussian.linear, self.gaussian.precision,
            self.inv_temps, weighted_resp, (self.columns, means, variances), True, sums,
        )  # fmt: skip


@jit_inlined
def _truncate_normal(
    lower: float, upper: float, mean: float, scale: float
) -> tuple[float, float, float]:
    """Return log int exp(-z^2 / 2) dz over the standardised interval, and two truncated moments.

    The moments are the mean and variance of N(mean, scale^2) truncated to the interval from
    ``lower`` to ``upper``. If the interval has no width, the logarithm is -inf, the mean is the end
    of the interval, and the variance is 0.
    """
    # Positions in this function are in standard deviations from the mean. Mirror an interval below
    # the mean, so that ``near_end`` is the end next to the mean.
    near_end, far_end = (lower - mean) / scale, (upper - mean) / scale
    sign = 1.0
    if far_end < 0.0:
        near_end, far_end, sign = -far_end, -near_end, -1.0
    # Integrate outwards from the point of highest density, ``densest``: to both sides if the mean
    # is inside the interval, and otherwise to one side.
    densest = max(near_end, 0.0)
    # At this distance from ``densest``, the log density has fallen by `_MAX_LOG_DROP`.
    max_length = 2.0 * _MAX_LOG_DROP / (densest + np.sqrt(densest * densest + 2.0 * _MAX_LOG_DROP))
    # These are the integrals of f, f x and f x^2, where x is the position relative to ``densest``
    # and f is the density relative to its maximum.
    mass, first_moment, second_moment = 0.0, 0.0, 0.0
    # Side 0 of the interval extends from ``densest`` to ``far_end``. Side 1 extends from
    # ``densest``, which is then the mean 0, to a negative ``near_end``.
    for side in range(2):
        length = min(far_end - densest if side == 0 else -near_end, max_length)
        if length > 0.0:
            signed_length = length if side == 0 else -length
            ten_suffice = length * (densest + 0.5 * length) < _MAX_LOG_DROP_FOR_10
            nodes = _NODES_10 if ten_suffice else _NODES_20
            node_weights = _WEIGHTS_10 if ten_suffice else _WEIGHTS_20
            for i in range(nodes.size):
                distance = length * nodes[i]
                f = length * node_weights[i] * exp(-distance * (densest + 0.5 * distance))
                x = signed_length * nodes[i]
                mass += f
                first_moment += f * x
                second_moment += f * x * x
    if mass <= 0.0:
        return -np.inf, mean + scale * sign * densest, 0.0
    first_moment /= mass
    variance = max(second_moment / mass - first_moment * first_moment, 0.0)
    log_mass = log(mass) - 0.5 * densest * densest
    return log_mass, mean + scale * sign * (densest + first_moment), scale * scale * variance


@jit
def _write_moments_between(edges: Array, means: Array, variances: Array) -> None:
    """Write the moments of a standard normal truncated between consecutive edges."""
    for i in range(means.size):
        _, means[i], variances[i] = _truncate_normal(edges[i], edges[i + 1], 0.0, 1.0)


@jit_inlined
def _fit_latent_values_of_row(
    S: Array, d: Array, lower: Array, upper: Array, temp: float, e: Array, v: Array,
    log_z: Array, g: Array,
) -> None:  # fmt: skip
    """Compute the factors of q of the J observed ordinal values of one row by coordinate ascent.

    Parameters
    ----------
    S, d : (J, J) and (J,), coefficients of the quadratic form in the docstring of the module
    lower, upper : (J,) ends of the intervals
    temp : temperature T
    e : (J,) means; start values in the intervals before the call, results after it
    v : (J,) output, variances
    log_z : (J,) output, ``log int exp((g_j x - S_jj x^2 / 2) / T) dx`` over the intervals
    g : (J,) output, g_j in the docstring of the module
    """
    n_values = d.size
    # During the ascent, ``v`` holds the standard deviations before truncation.
    for j in range(n_values):
        v[j] = np.sqrt(temp / S[j, j])
    for _ in range(_MAX_SWEEPS):
        largest_move = 0.0
        for j in range(n_values):
            total, row, old_mean = d[j], S[j], e[j]
            for i in range(n_values):
                total -= row[i] * e[i]
            # ``total`` contains the term i = j, which the sum in g_j leaves out.
            g[j] = total + row[j] * old_mean
            _, e[j], _ = _truncate_normal(lower[j], upper[j], g[j] / row[j], v[j])
            largest_move = max(largest_move, abs(e[j] - old_mean) / v[j])
        if largest_move < _NEGLIGIBLE_MOVE:
            break
    for j in range(n_values):
        mean, scale = g[j] / S[j, j], v[j]
        log_z[j], _, v[j] = _truncate_normal(lower[j], upper[j], mean, scale)
        # Convert the integral over standardised values to the integral over x.
        log_z[j] += log(scale) + 0.5 * (mean / scale) ** 2


@jit_allocating
def _fit_latent_values(
    X: Array, rows: Array, row_starts: Array, missing_columns: Array, column_starts: Array,
    columns: Array, low: Array, high: Array, linear: Array, precision: Array, inv_temps: Array,
    means: Array, variances: Array, additions: Array,
) -> None:  # fmt: skip
    """Fit q of the latent values of each row and component.

    Parameters
    ----------
    X : (n, D) rows relative to the centre, 0 in place of missing and ordinal values
    rows, row_starts, missing_columns, column_starts : fields of :class:`Patterns`; rows of a group
        have the same missing columns
    columns : (J,) ordinal columns
    low, high : (n, J) ends of the intervals
    linear, precision : (K, D) b and (K, D, D) A
    inv_temps : (n,) or (1,) inverse temperatures
    means, variances : (n, K, J) outputs, moments of the latent values
    additions : (2, n, K) output, additions to logits and entropies, see
        :meth:`skvt.contracts.HiddenValues.add_to`
    """
    D, J = X.shape[1], columns.size
    # ``cholesky`` is the Cholesky factor of A_mm, and W and S are the results of
    # `compute_marginal_precision`. ``all_positions`` and ``all_hidden`` have room for all columns.
    cholesky, u, W, S = np.empty((D, D)), np.empty(D), np.empty((D, J)), np.empty((J, J))
    all_positions, all_hidden = np.empty(J, np.int64), np.empty(D, np.int64)
    for k in range(precision.shape[0]):
        A = precision[k]
        for group in range(row_starts.size - 1):
            missing = missing_columns[column_starts[group] : column_starts[group + 1]]
            # ``observed_columns`` are the observed ordinal columns, at ``positions`` in
            # ``columns``.
            n_observed = list_hidden_columns(columns, missing, all_positions, all_hidden)
            positions = all_positions[:n_observed]
            observed_columns = all_hidden[missing.size : missing.size + n_observed]
            half_log_det, half_n_missing = factorize(A, missing, cholesky), 0.5 * missing.size
            compute_marginal_precision(A, missing, observed_columns, cholesky, u, W, S)
            d, e, v = np.empty(n_observed), np.empty(n_observed), np.empty(n_observed)
            log_z, g = np.empty(n_observed), np.empty(n_observed)
            for row in range(row_starts[group], row_starts[group + 1]):
                n = rows[row]
                temp = 1.0 / (inv_temps[n] if inv_temps.size > 1 else inv_temps[0])
                # Write A_mm^-1 (b_m - A_mo x_o), from which d follows, to ``u``.
                squared_length = whiten(X[n], linear[k], A, missing, cholesky, u)
                solve_transposed(cholesky, u, missing.size)
                for j in range(observed_columns.size):
                    total = linear[k, observed_columns[j]]
                    for i in range(D):
                        total -= A[observed_columns[j], i] * X[n, i]
                    for i in range(missing.size):
                        total -= A[observed_columns[j], missing[i]] * u[i]
                    d[j] = total
                    # Start at 0, or at the end of the interval that is nearest to 0.
                    e[j] = min(max(low[n, positions[j]], 0.0), high[n, positions[j]])
                row_low, row_high = low[n, positions], high[n, positions]
                _fit_latent_values_of_row(S, d, row_low, row_high, temp, e, v, log_z, g)
                # ``gain`` is the energy plus T times the entropy. Start ``gain`` and ``entropy``
                # with the terms of the missing values, and add the terms of the latent values.
                log_normaliser = half_n_missing * (_LOG_2PI + log(temp)) - half_log_det
                gain = 0.5 * squared_length + temp * log_normaliser
                entropy = log_normaliser + half_n_missing
                for j in range(observed_columns.size):
                    gain += temp * log_z[j] + (d[j] - g[j] + 0.5 * S[j, j] * e[j]) * e[j]
                    exponent = (g[j] - 0.5 * S[j, j] * e[j]) * e[j] - 0.5 * S[j, j] * v[j]
                    entropy += log_z[j] - exponent / temp
                    for i in range(observed_columns.size):
                        gain -= 0.5 * e[j] * S[j, i] * e[i]
                    means[n, k, positions[j]] = e[j]
                    variances[n, k, positions[j]] = v[j]
                additions[0, n, k] = gain
                additions[1, n, k] = entropy
