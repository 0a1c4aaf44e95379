"""Ordinal columns as thresholded Gaussians: the posterior of the latent values.

An ordinal value tells only the interval in which a latent real value lies. Let m be the missing
columns of a row, c the ordinal ones and o the observed real ones. With ``A = E[Lambda_k]`` and
``b = E[Lambda_k mu_k]``, the best q(x_m | x_c, z = k) is the Gaussian of
:mod:`skvt.models.mixture._missing`; what remains of the energy E_q[log p] is a quadratic form in
x_c,

    d' x_c - x_c' S x_c / 2,      S = A_cc - A_cm A_mm^-1 A_mc,
                                  d = b_c - A_co x_o - A_cm A_mm^-1 (b_m - A_mo x_o),

and q(x_c | z = k) is taken to be a product over columns. At temperature T its best factors are
normals truncated to the intervals I_j,

    q_j(x) = N(x; g_j / S_jj, T / S_jj) / Z_j on I_j,      g_j = d_j - sum_{i != j} S_ji E[x_i],

and coordinate ascent computes them: the density of q is log-concave, and the optimum is unique. For
any g_j, optimal or not, the energy plus T times the entropy of this q is

    d' e - e' S e / 2 + sum_j [S_jj e_j^2 / 2 - g_j e_j + T log int_{I_j} exp((g_j x - S_jj x^2 / 2)
    / T) dx],      e_j = E[x_j],

exactly, so that the ELBO is valid before the ascent has converged. With one ordinal column this q
is the exact posterior.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from skvt.compiled import exp, jit, jit_allocating, log, part
from skvt.files import in_files, is_within
from skvt.models.mixture._missing import (
    GaussianCompletion,
    Patterns,
    add_expected_features,
    factorize,
    list_hidden_columns,
    marginal_precision,
    solve_transposed,
    whiten,
)
from skvt.rows import dense, of_each_row
from skvt.typing import Array, IndexArray

_LOG_2PI = np.log(2.0 * np.pi)
# Gauss-Legendre nodes on [0, 1]: truncated normals have no closed form that is accurate both far
# out and in narrow intervals. Ten nodes are exact to rounding if the log density changes by less
# than 5 over the interval; otherwise 20 are used.
_FEW_NODES, _NODES = (0.5 * (np.polynomial.legendre.leggauss(n)[0] + 1.0) for n in (10, 20))
_FEW_HEIGHTS, _HEIGHTS = (0.5 * np.polynomial.legendre.leggauss(n)[1] for n in (10, 20))
_FEW_SUFFICE = 5.0
# A density below exp(-37) of the largest does not change a sum in double precision.
_FARTHEST = 37.0
# Coordinate ascent ends when no mean moves by more than this share of its standard deviation.
_TOL = 1e-5
_MOST_SWEEPS = 500


@in_files("models.Cells")
@dataclass(frozen=True)
class Cells:
    """Intervals of the latent values of ordinal columns."""

    # (J,): the ordinal columns, in ascending order.
    columns: IndexArray
    # (C_j,) each: values of a column in the data, ascending.
    levels: tuple[Array, ...]
    # (C_j + 1,) each: ends of their intervals, from -inf to inf.
    edges: tuple[Array, ...]

    def validate(self, d: int, k: int) -> bool:
        pairs = list(zip(self.levels, self.edges, strict=True))
        return (
            is_within(self.columns, d)
            and self.columns.shape == (len(pairs),)
            and all(levels.shape == (edges.size - 1,) for levels, edges in pairs)
            and all(edges.ndim == 1 < edges.size for _, edges in pairs)
            and all(np.all(numbers[1:] > numbers[:-1]) for pair in pairs for numbers in pair)
        )

    @classmethod
    def of_shares(cls, X: Any, weights: Any, columns: IndexArray) -> "Cells":
        """Put thresholds at normal quantiles of the cumulative frequencies of the levels in X."""
        levels, edges, weights = [], [], np.asarray(weights)
        for j in columns.tolist():
            x = of_each_row(X, weights, partial(_column, j))
            is_present = ~np.isnan(x) & (weights > 0.0)
            values, codes = np.unique(x[is_present], return_inverse=True)
            values = values if values.size else np.zeros(1)
            below = np.cumsum(np.bincount(codes, weights[is_present], minlength=values.size))
            cuts = ndtri(below[:-1] / below[-1]) if values.size > 1 else np.zeros(0)
            levels.append(values)
            edges.append(np.concatenate([[-np.inf], cuts, [np.inf]]))
        return cls(columns, tuple(levels), tuple(edges))

    def codes(self, X: Any) -> IndexArray:
        """Levels of rows (n, D) by number, (n, J); -1 where missing.

        A value between two levels counts as the higher one, one above all as the highest.
        """
        out = np.empty((X.shape[0], self.columns.size), np.intp)
        for place, (j, levels) in enumerate(zip(self.columns, self.levels, strict=True)):
            x = np.asarray(X[:, j], np.float64)
            code = np.minimum(np.searchsorted(levels, x), levels.size - 1)
            out[:, place] = np.where(np.isnan(x), -1, code)
        return out

    def intervals(self, X: Any) -> tuple[Array, Array]:
        """Lower and upper ends (n, J) of what is known; the whole line where missing."""
        codes, places, edges = self.codes(X), np.arange(self.columns.size), self.padded_edges
        lower = np.where(codes < 0, -np.inf, edges[places, codes])
        return lower, np.where(codes < 0, np.inf, edges[places, codes + 1])

    def scores(self, X: Any) -> Array:
        """Mean of a standard normal in the interval of each value, (n, J); NaN where missing."""
        codes = self.codes(X)
        out = np.full(codes.shape, np.nan)
        for place, edges in enumerate(self.edges):
            known = codes[:, place] >= 0
            out[known, place] = _moments(edges)[0][codes[known, place]]
        return out

    def with_scores(self, X: Any) -> Array:
        """Rows (n, D) in float64 with those means in the ordinal columns."""
        rows = np.array(dense(X), np.float64)
        rows[:, self.columns] = self.scores(rows)
        return rows

    def variances_within(self, X: Any, weights: Array) -> tuple[Array, Array]:
        """Sum the weighted variances within the intervals, and the weights, (J,) each."""
        codes = self.codes(dense(X))
        total, number = np.zeros((2, self.columns.size))
        for place, edges in enumerate(self.edges):
            w = weights * (codes[:, place] >= 0)
            total[place], number[place] = w @ _moments(edges)[1][codes[:, place]], w.sum()
        return total, number

    @cached_property
    def padded_edges(self) -> Array:
        """All edges as one array, (J, largest C + 1); shorter rows are padded with inf."""
        out = np.full((len(self.edges), max(edges.size for edges in self.edges)), np.inf)
        for j, edges in enumerate(self.edges):
            out[j, : edges.size] = edges
        return out

    def with_levels(self, rows: Array) -> Array:
        """Rows (n, D) with latent values replaced by the levels in whose intervals they lie."""
        out = np.array(rows)
        for j, levels, edges in zip(self.columns, self.levels, self.edges, strict=True):
            out[:, j] = levels[np.searchsorted(edges[1:-1], rows[:, j])]
        return out


def _column(j: int, X: Any) -> Array:
    return np.asarray(dense(X)[:, j], np.float64)


def _moments(edges: Array) -> tuple[Array, Array]:
    """Return the mean and variance of a standard normal in each interval."""
    means, variances = np.empty((2, edges.size - 1))
    _map_truncated(edges, means, variances)
    return means, variances


@dataclass(frozen=True)
class OrdinalCompletion:
    """Completes rows with missing and ordinal values, given parameters of the components."""

    # (D,): subtracted from the rows; 0 in ordinal columns.
    center: Array
    # (K, P): E[log p(x | phi)].
    table: Array
    cells: Cells

    @cached_property
    def gaussian(self) -> GaussianCompletion:
        """E[Lambda_k mu_k] (``linear``) and E[Lambda_k] (``precision``) of all components."""
        return GaussianCompletion.from_table(self.center, self.table, self.center.size)

    def holes(self, X: Any, inv_temps: Array) -> "OrdinalHoles":
        """Return the missing and latent values of a chunk of rows."""
        rows = np.subtract(X, self.center, order="C", dtype=np.float64)
        missing = np.isnan(rows)
        rows[missing] = 0.0
        rows[:, self.cells.columns] = 0.0
        ordinal, patterns = (
            (self.cells.columns, self.cells.intervals(X)),
            Patterns.from_mask(missing, 0),
        )
        return OrdinalHoles(self.gaussian, rows, *ordinal, patterns, inv_temps)


@dataclass(frozen=True)
class OrdinalHoles:
    """:class:`~skvt.contracts.Holes`: what is missing, and latent values."""

    gaussian: GaussianCompletion
    # (n, D): centred, with 0 where the value is not known exactly.
    rows: Array
    # (J,): the ordinal columns.
    columns: IndexArray
    # (n, J) each: lower and upper ends of the intervals.
    intervals: tuple[Array, Array]
    # Patterns of missing values; rows without missing values have one, too.
    patterns: Patterns
    # (n,) or (1,)
    inv_temps: Array

    @cached_property
    def _found(self) -> tuple[Array, Array, Array]:
        """Means and variances (n, K, J) of the latent values, and (2, n, K) for the bound."""
        K = len(self.gaussian.precision)
        size = (len(self.rows), K, self.columns.size)
        means, variances, of_bound = np.zeros(size), np.zeros(size), np.zeros((2, *size[:2]))
        _ascend(
            self.rows, *self.patterns, self.columns, *self.intervals, self.gaussian.linear,
            self.gaussian.precision, self.inv_temps, means, variances, of_bound,
        )  # fmt: skip
        return means, variances, of_bound

    def add_to(self, logits: Array, entropy: Array) -> None:
        logit_gain, q_entropy = self._found[2]
        logits += logit_gain
        entropy += q_entropy

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        means, variances, _ = self._found
        add_expected_features(
            self.rows, *self.patterns, self.gaussian.linear, self.gaussian.precision,
            self.inv_temps, weighted, (self.columns, means, variances), True, sums,
        )  # fmt: skip


@part
def _truncated(lower: float, upper: float, mean: float, scale: float) -> tuple[float, float, float]:
    """Return log int exp(-z^2 / 2) dz over the standardised interval, and truncated moments.

    The moments are the mean and variance of N(mean, scale^2) on the interval.
    """
    a, b = (lower - mean) / scale, (upper - mean) / scale
    # Integrate outwards from the point of highest density: to one side, or to both if it is inside.
    side = 1.0
    if b < 0.0:
        a, b, side = -b, -a, -1.0
    start = max(a, 0.0)
    reach = 2.0 * _FARTHEST / (start + np.sqrt(start * start + 2.0 * _FARTHEST))
    total, first, second = 0.0, 0.0, 0.0
    for half in range(2):
        length = min(b - start if half == 0 else -a, reach)
        if length > 0.0:
            direction = length if half == 0 else -length
            few = length * (start + 0.5 * length) < _FEW_SUFFICE
            nodes = _FEW_NODES if few else _NODES
            heights = _FEW_HEIGHTS if few else _HEIGHTS
            for i in range(nodes.size):
                distance = length * nodes[i]
                f = length * heights[i] * exp(-distance * (start + 0.5 * distance))
                x = direction * nodes[i]
                total += f
                first += f * x
                second += f * x * x
    if total <= 0.0:  # an interval of no width
        return -np.inf, mean + scale * side * start, 0.0
    first /= total
    variance = max(second / total - first * first, 0.0)
    log_total = log(total) - 0.5 * start * start
    return log_total, mean + scale * side * (start + first), scale * scale * variance


@jit
def _map_truncated(edges: Array, means: Array, variances: Array) -> None:
    """Write the moments of a standard normal between consecutive edges."""
    for i in range(means.size):
        _, means[i], variances[i] = _truncated(edges[i], edges[i + 1], 0.0, 1.0)


@part
def _latent_ascent(
    S: Array, d: Array, lower: Array, upper: Array, temp: float, e: Array, v: Array,
    log_z: Array, g: Array,
) -> None:  # fmt: skip
    """Factors of q by coordinate ascent: means e, variances v, log Z and g of each."""
    size = d.size
    for j in range(size):
        v[j] = np.sqrt(temp / S[j, j])
    for _ in range(_MOST_SWEEPS):
        change = 0.0
        for j in range(size):
            total, row, before = d[j], S[j], e[j]
            for i in range(size):
                total -= row[i] * e[i]
            g[j] = total + row[j] * before
            _, e[j], _ = _truncated(lower[j], upper[j], g[j] / row[j], v[j])
            change = max(change, abs(e[j] - before) / v[j])
        if change < _TOL:
            break
    for j in range(size):
        mean, scale = g[j] / S[j, j], v[j]
        log_z[j], _, v[j] = _truncated(lower[j], upper[j], mean, scale)
        log_z[j] += log(scale) + 0.5 * (mean / scale) ** 2


@jit_allocating
def _ascend(
    X: Array, rows: Array, starts: Array, gaps: Array, offsets: Array, columns: Array,
    low: Array, high: Array, linear: Array, precision: Array, inv_temps: Array,
    means: Array, variances: Array, of_bound: Array,
) -> None:  # fmt: skip
    """Fit q of the latent values of each row and component; write what ``Holes.add_to`` adds."""
    D, J = X.shape[1], columns.size
    lower, u, W, S = np.empty((D, D)), np.empty(D), np.empty((D, J)), np.empty((J, J))
    all_places, not_known = np.empty(J, np.int64), np.empty(D, np.int64)
    for k in range(precision.shape[0]):
        A = precision[k]
        for group in range(starts.size - 1):
            missing = gaps[offsets[group] : offsets[group + 1]]
            places = all_places[: list_hidden_columns(columns, missing, all_places, not_known)]
            cut = not_known[missing.size : missing.size + places.size]
            half_log_det, half = factorize(A, missing, lower), 0.5 * missing.size
            marginal_precision(A, missing, cut, lower, u, W, S)
            d, e, v = np.empty(cut.size), np.empty(cut.size), np.empty(cut.size)
            log_z, g = np.empty(cut.size), np.empty(cut.size)
            for place in range(starts[group], starts[group + 1]):
                n = rows[place]
                temp = 1.0 / (inv_temps[n] if inv_temps.size > 1 else inv_temps[0])
                square = whiten(X[n], linear[k], A, missing, lower, u)
                solve_transposed(lower, u, missing.size)
                for j in range(cut.size):
                    total = linear[k, cut[j]]
                    for i in range(D):
                        total -= A[cut[j], i] * X[n, i]
                    for a in range(missing.size):
                        total -= A[cut[j], missing[a]] * u[a]
                    d[j] = total
                    # start at 0, or the end of the interval that is nearest to it
                    e[j] = min(max(low[n, places[j]], 0.0), high[n, places[j]])
                own_low, own_high = low[n, places], high[n, places]
                _latent_ascent(S, d, own_low, own_high, temp, e, v, log_z, g)
                hidden = half * (_LOG_2PI + log(temp)) - half_log_det
                gain, entropy = 0.5 * square + temp * hidden, hidden + half
                for j in range(cut.size):
                    gain += temp * log_z[j] + (d[j] - g[j] + 0.5 * S[j, j] * e[j]) * e[j]
                    of_energy = (g[j] - 0.5 * S[j, j] * e[j]) * e[j] - 0.5 * S[j, j] * v[j]
                    entropy += log_z[j] - of_energy / temp
                    for i in range(cut.size):
                        gain -= 0.5 * e[j] * S[j, i] * e[i]
                    means[n, k, places[j]] = e[j]
                    variances[n, k, places[j]] = v[j]
                of_bound[0, n, k] = gain
                of_bound[1, n, k] = entropy
