"""Components for columns of counts that are negative binomial given the component.

Such counts have a larger variance than Poisson counts. The size r of a column determines how much
larger. An exposure is a number of each row by which the rates of its counts are multiplied. The
module :mod:`skvt.models.mixture._sizes` has the mathematics: the posterior of sizes and rates, and
the interpolation between exposures.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, betaincinv, xlogy

from skvt._compiled import gammaln_array as gammaln
from skvt._compiled import jit
from skvt.files import PRIOR, in_files
from skvt.models.mixture._learned_priors import PenalizedAscent
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._sizes import SIZES, QGivenSizes, SizesAndRates, betaln
from skvt.models.mixture.components import ExposureColumns, separate_missing
from skvt.rows import dense, pieces
from skvt.typing import Array, IndexArray

# log h_r(x) is tabulated for counts x less than this number.
_N_TABULATED_COUNTS = 1024
# Local steps use `_CountRows`, unless the array of features takes less time, in three cases. First,
# `_CountRows` would tabulate more numbers than this share of the number of features.
_MAX_SHARE_OF_TABULATED = 0.3
# Second, K times the number of exposures e_j is more than this number times D.
_MAX_EXPOSURES_PER_COLUMN = 20
# Third, D is at most this number, and there is one exposure.
_MAX_FEW_COLUMNS = 5
# Number of entries of which fits or densities are computed at a time.
_ENTRIES_AT_ONCE = 2**13
# Sizes with a smaller probability are left out of predictive densities and quantiles.
_NEGLIGIBLE_SHARE = 1e-9
# Lower limit of the learned probability of a size, relative to the most probable size.
_MIN_LEARNED_SHARE = 1e-5
# Number of bisections for the logarithm of a quantile.
_N_BISECTIONS = 35
# The prior of the learned probabilities of sizes has the weight of this number of columns in which
# all sizes are equally probable. Without this prior, intervals of dispersions are too narrow if
# there are few columns and components.
_N_PSEUDO_COLUMNS = 8.0
# Limits (G + 1,) between the logarithms of adjacent dispersions 1 / SIZES, in ascending order.
_LOG_DISPERSION_LIMITS = np.interp(
    np.arange(SIZES.size + 1) - 0.5, np.arange(SIZES.size), -np.log(SIZES[::-1])
)
# Larger means of drawn counts are replaced by this number, because NumPy raises an error for very
# large means. Rates of components without rows may be so large.
_MAX_DRAWN_MEAN = 1e15
# Larger counts have the density of this count, because rounding errors of differences of log gamma
# functions would be larger than the densities.
_MAX_COUNT = 1e15


@in_files("models.NegativeBinomial")
@dataclass(frozen=True)
class NegativeBinomial(ExposureColumns):
    """Independent columns of counts, each negative binomial given the component.

    There are G sizes r_g. Functions of the exposure e of a row are interpolated between J exposures
    e_j by Lagrange's polynomials, whose values at e are L_j. The features are

        [log h_g(x_d) (D, G), x_d L_j (D, J), -missing_d L_j (D, J), L_j (J,), sum_d x_d log e],

    flattened, where h_g(x) is the factor of p(x | r_g) that does not depend on the rate, and
    missing_d is 1 if x_d is missing and 0 otherwise. All features except the last J + 1 are 0 where
    x_d is 0. P is the number of features. The arguments ``lam`` (K, D, G + 2 J) of methods are
    natural parameters of q of K components.
    """

    # (D, G + 2 J): natural parameters of each column's prior, see `SizesAndRates`.
    prior: Annotated[Array, "n width"]
    dtype: np.dtype[Any]
    # (J,): exposures e_j, in ascending order.
    points: Annotated[Array, "n_points", PRIOR]
    # The base class `ExposureColumns` explains these fields.
    exposure: str = "none"
    typical: Annotated[float, PRIOR] = 1.0
    shares: Annotated[Array | None, "n"] = None

    missing = True
    sparse = True
    # The array of the features is large: it has G + 2 J numbers for each count.
    avoids_features = True
    # The features of large counts take several times their memory while they are computed.
    entries_at_once = 2**20

    def validate(self, d: int, k: int) -> bool:
        is_ascending = self.points.size > 0 and bool(np.all(np.diff(self.points) > 0.0))
        width = SIZES.size + 2 * self.points.size
        return super().validate(d, k) and is_ascending and self.prior.shape[1] == width

    def with_prior(self, shape: Array, rate: Array, probabilities: Array) -> "NegativeBinomial":
        """Return the component whose prior counts as much as observed counts.

        In column d, the sum of these counts is ``shape[d]``, at a total exposure of ``rate[d]``. In
        the limit of large sizes, the prior is Gamma(shape[d], rate[d]). ``probabilities`` (G,) are
        the prior probabilities of sizes.
        """
        # All pseudo-counts are at the typical exposure.
        pseudo_counts = shape[:, None] * self.family.typical_c
        n_rows = (rate / self.typical)[:, None]
        pseudo_rows = n_rows * self.family.typical_c
        # Begin with log probabilities that cancel the integrals over b given each size. For large
        # shapes, these integrals differ by thousands of nats, so that the probabilities of some
        # sizes would otherwise round to 0.
        log_probabilities = -betaln(1.0 + SIZES * n_rows, shape[:, None])
        prior = np.concatenate([log_probabilities, pseudo_counts, pseudo_rows], axis=1)
        return replace(self, prior=prior).with_size_probabilities(probabilities)

    def with_size_probabilities(self, probabilities: Array) -> "NegativeBinomial":
        """Return the component with these prior probabilities of sizes, (G,)."""
        # Replace the old log probabilities by the new ones, and subtract ``log_integral``, so that
        # the log-normalizer of the prior becomes 0.
        old_probabilities = self.family.condition_on_sizes(self.prior).probability
        log_integral = self.family.log_normalizer(self.prior)[:, None]
        log_probabilities = np.log(probabilities / probabilities.sum())
        prior = self.prior.copy()
        prior[:, : SIZES.size] += log_probabilities - np.log(old_probabilities) - log_integral
        return replace(self, prior=prior)

    @cached_property
    def family(self) -> SizesAndRates:
        return SizesAndRates(self.points, self._evaluate_polynomials(np.array([self.typical]))[0])

    @property
    def base(self) -> Array:
        """The coefficients that do not depend on the parameters: 1 for the last feature, else 0."""
        D, J = len(self.prior), self.points.size
        return np.append(np.zeros(D * (SIZES.size + 2 * J) + J), 1.0)

    def _evaluate_polynomials(self, exposures: Array) -> Array:
        """Return Lagrange's polynomials (n, J) at exposures (n,), clipped to the range of points.

        At the exposure 0 the polynomials are 0, because counts are then 0 under all components.

        The points are Chebyshev points in log e: on the scale from -1 to 1 of Chebyshev
        polynomials, they are cosines of equidistant ``angles``.
        """
        nodes = np.log(self.points)
        if nodes.size == 1:
            return np.ones((exposures.size, 1))
        orders = np.arange(nodes.size)
        angles = np.pi * (orders + 0.5) / nodes.size
        has_exposure = exposures > 0.0
        log_exposures = np.log(np.where(has_exposure, exposures, self.typical))
        x = (log_exposures - nodes.mean()) / (nodes[-1] - nodes.mean()) * np.cos(angles[0])
        # Expand Lagrange's polynomials in Chebyshev polynomials, which are orthogonal under sums
        # over their zeros.
        coefficients = np.cos(np.outer(orders, np.pi - angles))
        coefficients = coefficients * np.where(orders, 2.0, 1.0)[:, None]
        chebyshev = np.cos(np.outer(np.arccos(np.clip(x, -1.0, 1.0)), orders))
        return np.asarray(has_exposure[:, None] * (chebyshev @ coefficients) / nodes.size)

    @cached_property
    def _log_h_table(self) -> Array:
        """``log h_g(x)`` of small counts, (`_N_TABULATED_COUNTS`, G)."""
        return _compute_log_h(np.arange(float(_N_TABULATED_COUNTS)))

    def _look_up_log_h(self, counts: Array) -> Array:
        """Return ``log h_g(x)`` (m, G) of counts (m,)."""
        log_h = self._log_h_table[np.minimum(counts, _N_TABULATED_COUNTS - 1).astype(np.intp)]
        is_large = counts >= _N_TABULATED_COUNTS
        log_h[is_large] = _compute_log_h(counts[is_large])
        return log_h

    def split_exposure(self, X: Any) -> tuple[Any, Array]:
        """Return counts, and exposures clipped to the range of the points, unless they are 0."""
        counts, exposures = super().split_exposure(X)
        return counts, np.clip(exposures, self.points[0], self.points[-1]) * (exposures > 0.0)

    def features(self, X: Any) -> Any:
        """Return the features that the class describes, as CSR if rows are sparse."""
        counts, exposures = self.split_exposure(X)
        L = self._evaluate_polynomials(exposures)
        G, J, D = SIZES.size, self.points.size, len(self.prior)
        if not sp.issparse(counts):
            features = np.empty((len(counts), D * (G + 2 * J) + J + 1))
            _write_features(np.ascontiguousarray(counts), self._log_h_table, L, features)
            is_large = counts >= _N_TABULATED_COUNTS
            features[:, : D * G].reshape(-1, D, G)[is_large] = _compute_log_h(counts[is_large])
            features[:, -J - 1 : -1] = L
            features[:, -1] = xlogy(np.nansum(counts, axis=1), exposures)
            return features
        # The row of each stored entry.
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        counts, is_missing = separate_missing(counts)
        constants = xlogy(np.bincount(rows, counts.data, counts.shape[0]), exposures)
        feature_blocks = [
            _widen_entries(counts, self._look_up_log_h(counts.data)),
            _widen_entries(counts, counts.data[:, None] * L[rows]),
            _widen_entries(is_missing, -np.repeat(L, np.diff(is_missing.indptr), axis=0)),
            sp.csr_array(np.column_stack([L, constants])),
        ]
        return sp.csr_array(sp.hstack(feature_blocks, format="csr"))

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return expected log densities (n, K), and a function that sums features.

        ``table`` (P, K) has the coefficients of features. The function returns sums (K, P) for
        weighted responsibilities (n, K).
        """
        rows = self._convert_to_count_rows(X, table.shape[1])
        if rows is None:
            return super().log_densities_and_sums(X, table)
        return rows.log_densities(table), rows.sums

    def _sum_few_rows(self, X: Any, weighted_resp: Array) -> Array:
        rows = self._convert_to_count_rows(X, weighted_resp.shape[1])
        if rows is None:
            return super()._sum_few_rows(X, weighted_resp)
        return rows.sums(weighted_resp)

    def _convert_to_count_rows(self, X: Any, n_components: int) -> "_CountRows | None":
        """Convert rows for computations without features.

        Returns None if features take less time or memory: for sparse rows, for counts as large as
        the number of rows, and in the three cases at `_MAX_SHARE_OF_TABULATED`.
        """
        counts, exposures = self.split_exposure(X)
        if sp.issparse(counts):
            return None
        is_missing = np.isnan(counts)
        counts = np.where(is_missing, 0.0, counts)
        n_values = int(counts.max(initial=0.0)) + 1
        G, J, D = SIZES.size, self.points.size, len(self.prior)
        max_values = _MAX_SHARE_OF_TABULATED * len(counts) * (G + 2 * J) / n_components
        if n_values > min(len(counts), max_values):
            return None
        if J * n_components > _MAX_EXPOSURES_PER_COLUMN * D or (J == 1 and D <= _MAX_FEW_COLUMNS):
            return None
        # Append a row of zeros to the table, for missing counts.
        log_h = np.append(self._look_up_log_h(np.arange(float(n_values))), np.zeros((1, G)), axis=0)
        positions = np.where(is_missing, n_values, counts).astype(np.intp)
        constants = xlogy(counts.sum(axis=1), exposures)
        polynomials = self._evaluate_polynomials(exposures)
        return _CountRows(positions, log_h, counts, is_missing, polynomials, constants)

    def natural_sums(self, sums: Array) -> Array:
        """Convert sums of features (..., P) to natural parameters (..., D, G + 2 J)."""
        G, J, D = SIZES.size, self.points.size, len(self.prior)
        ends = D * np.array([G, G + J, G + 2 * J])
        log_h, x_L, minus_missing_L, L = np.split(sums[..., :-1], ends, axis=-1)
        leading_shape = sums.shape[:-1]
        log_h, x_L = log_h.reshape(*leading_shape, D, G), x_L.reshape(*leading_shape, D, J)
        # Sums of L_j over the rows in which a column is observed: all rows less the missing ones.
        observed_L = minus_missing_L.reshape(*leading_shape, D, J) + L[..., None, :]
        return np.concatenate([log_h, x_L, observed_L], axis=-1)

    def feature_coefficients(self, t: Array) -> Array:
        """Convert values of statistics (..., D, G + 2 J) to coefficients of features (..., P).

        This is the transpose of :meth:`natural_sums`.
        """
        leading_shape = t.shape[:-2]
        coefficients = np.split(t, [SIZES.size, SIZES.size + self.points.size], axis=-1)
        _, _, of_observed = coefficients
        flattened = [array.reshape(*leading_shape, -1) for array in coefficients]
        zeros = np.zeros((*leading_shape, 1))
        return np.concatenate([*flattened, of_observed.sum(axis=-2), zeros], axis=-1)

    def feature_sums(self, statistics: Array) -> Array:
        """Return sums S for which ``M S`` equals ``statistics``, with 0 in the last J + 1 entries.

        M is the matrix of :meth:`natural_sums`.
        """
        sums = self.feature_coefficients(statistics)
        sums[..., -self.points.size - 1 :] = 0.0
        return sums

    def fits_to_self(self, features: Any) -> tuple[Array, Array]:
        """Return the fit of each row under a component fitted to this row alone, and its magnitude.

        The fit is an expected log density in nats. Its magnitude is the sum of the absolute values
        of its terms, to which rounding errors are relative. Both are (n,).

        The sum over columns in which a row is zero is interpolated between the exposures e_j, and
        so are the fits of other counts that occur often.
        """
        G, J, D = SIZES.size, self.points.size, len(self.prior)
        L = dense(features[:, -J - 1 : -1])
        constants = dense(features[:, [-1]]).ravel()
        zero_fits, zero_magnitudes = self._self_fits_at_points(np.arange(D), np.zeros(D))
        # Sum the features x_d L_j and -missing_d L_j over j and over both kinds. Since polynomials
        # add up to 1, the sums are the counts, and -1 where they are missing.
        counts_and_missing = features[:, D * G : D * (G + 2 * J)]
        if sp.issparse(features):
            sum_over_j = sp.kron(np.ones((2, 1)), sp.kron(sp.eye_array(D), np.ones((J, 1))))
            entries = sp.coo_array(counts_and_missing @ sum_over_j)
        else:
            # The axis a has the two kinds.
            entries = sp.coo_array(np.einsum("nadj->nd", counts_and_missing.reshape(-1, 2, D, J)))
        rows, columns = entries.coords
        counts = np.rint(entries.data)
        # Find the distinct pairs of column and count. The key of a pair is one integer.
        values, value_of_entry = np.unique(counts, return_inverse=True)
        keys = columns.astype(np.int64) * values.size + value_of_entry
        keys, key_of_entry = np.unique(keys, return_inverse=True)
        # Compute one fit for each entry, or interpolate if that takes fewer fits.
        if J * keys.size < counts.size:
            key_columns, key_counts = keys // values.size, values[keys % values.size]
            fits_at_points = self._self_fits_at_points(key_columns, key_counts)
            fits, magnitudes = (
                np.einsum("mj,mj->m", factors[rows], fits_of_keys[key_of_entry])
                for factors, fits_of_keys in zip((L, np.abs(L)), fits_at_points, strict=True)
            )
        else:
            fits, magnitudes = self._fit_to_self(columns, counts, L[rows])
        # Sum over all columns as if the row had only zeros, and correct the other entries.
        fits -= (L[rows] * zero_fits[columns]).sum(axis=1)
        row_fits = L @ zero_fits.sum(axis=0) + constants + np.bincount(rows, fits, len(L))
        row_magnitudes = np.abs(L) @ zero_magnitudes.sum(axis=0) + np.abs(constants)
        return row_fits, row_magnitudes + np.bincount(rows, magnitudes, len(L))

    def _self_fits_at_points(self, columns: IndexArray, counts: Array) -> tuple[Array, Array]:
        """Return fits of counts (m,) to themselves at each e_j, and magnitudes, (m, J) each."""
        J, m = self.points.size, counts.size
        # At the exposure e_j, polynomial j is 1 and the others are 0.
        entries_at_points = np.repeat(columns, J), np.repeat(counts, J), np.tile(np.eye(J), (m, 1))
        fits, magnitudes = self._fit_to_self(*entries_at_points)
        return fits.reshape(m, J), magnitudes.reshape(m, J)

    def _fit_to_self(self, columns: IndexArray, counts: Array, L: Array) -> tuple[Array, Array]:
        """Return fits of single counts to themselves, and magnitudes of their terms, (m,) each.

        ``columns`` and ``counts`` are (m,), and L (m, J) are the polynomials. Counts below 0 are
        missing.
        """
        fits, magnitudes = np.empty((2, counts.size))
        for chunk in pieces(counts.size, _ENTRIES_AT_ONCE):
            is_observed = (counts[chunk] >= 0.0)[:, None]
            x = np.maximum(counts[chunk], 0.0)
            statistics = np.concatenate(
                [self._look_up_log_h(x), x[:, None] * L[chunk], is_observed * L[chunk]], axis=1
            )
            terms = statistics * self.family.expectation(self.prior[columns[chunk]] + statistics)
            fits[chunk], magnitudes[chunk] = terms.sum(axis=1), np.abs(terms).sum(axis=1)
        return fits, magnitudes

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of mixtures of beta negative binomials over sizes, (n, K) in nats.

        They are exact if all exposures are the same. Otherwise, the posterior of ``b / (b + e)`` is
        approximated by Beta(A', B'), whose mean is the value at b* and whose logit has about the
        same variance as under q: ``1 / A' + 1 / B' = 1 / A + 1 / B``. The module
        :mod:`skvt.models.mixture._sizes` defines A, B, b and b*, which depend on the size. The sum
        over columns with zeros is interpolated between exposures.
        """
        return self._log_predictive_of(X, self.family.condition_on_sizes(lam))

    def log_predictive_mixed(
        self, X: Any, lam: Array, common_lam: Array, probabilities: Array
    ) -> Array:
        # The mixture of two distributions over G sizes is a distribution over 2 G sizes, in which
        # the probabilities of each distribution are multiplied by its share.
        fields = zip(*map(self.family.condition_on_sizes, (lam, common_lam)), strict=True)
        q = QGivenSizes(*(np.concatenate(np.broadcast_arrays(*both), axis=-1) for both in fields))
        probabilities = np.repeat(
            np.stack([probabilities, 1.0 - probabilities], axis=-1), SIZES.size, axis=-1
        )
        return self._log_predictive_of(X, q._replace(probability=q.probability * probabilities))

    def _log_predictive_of(self, X: Any, q: QGivenSizes) -> Array:
        """Return log densities (n, K) of rows X under q, whose arrays are (K, D, G').

        G' is a multiple of G, because the sizes of q are SIZES once or several times.
        """
        counts, exposures = self.split_exposure(X)
        counts = sp.csr_array(counts)
        counts.eliminate_zeros()
        # Leave out columns that are missing in all rows.
        n_missing = np.bincount(counts.indices[np.isnan(counts.data)], minlength=counts.shape[1])
        observed_columns = np.flatnonzero(n_missing < counts.shape[0])
        if not observed_columns.size:
            return np.zeros((counts.shape[0], len(q.probability)))
        if observed_columns.size < counts.shape[1]:
            counts = counts[:, observed_columns]
            q = QGivenSizes(*(array[:, observed_columns] for array in q))
        # The row of each entry that is not 0.
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        known = np.flatnonzero(~np.isnan(counts.data))
        # Each distinct entry is computed once, together with zeros at the exposures e_j.
        entries, numbers = _find_distinct(
            counts.indices[known], counts.data[known], exposures[rows[known]]
        )
        L = self._evaluate_polynomials(exposures)
        K, D = q.probability.shape[:2]
        J = self.points.size
        zeros = np.repeat(np.arange(D), J), np.zeros(D * J), np.tile(self.points, D)
        entries = [np.concatenate(pair) for pair in zip(zeros, entries, strict=True)]
        log_densities = np.empty((counts.shape[0], K))
        # For few rows, several components take hardly longer than one.
        for part in pieces(K, max(1, _ENTRIES_AT_ONCE // entries[0].size)):
            q_part = QGivenSizes(*(array[part] for array in q))
            # (number of components, D J + number of distinct entries). Sum over all columns as if
            # the row had only zeros, and correct the other entries.
            terms = _log_densities_of_components(q_part, *entries)
            for k, terms_of_k in zip(range(K)[part], terms, strict=True):
                zero_terms = terms_of_k[: D * J].reshape(D, J)
                # A missing entry has the density 1.
                corrections = np.zeros(counts.nnz)
                corrections[known] = terms_of_k[D * J :][numbers]
                corrections -= (L[rows] * zero_terms[counts.indices]).sum(axis=1)
                sum_of_corrections = np.bincount(rows, corrections, len(log_densities))
                log_densities[:, k] = L @ zero_terms.sum(axis=0) + sum_of_corrections
        return log_densities

    def expected_rates(self, lam: Array) -> Array:
        return self.family.mean(lam).rate

    def _draw_rows(self, lam: Array, exposures: Array, rng: np.random.Generator) -> Array:
        """Draw a row of one component for each exposure, and append the column of exposures."""
        # Draw sizes and rates for each row. Given sizes and rates, mean counts are gamma variates.
        size, rate = self.family.sample(np.broadcast_to(lam, (exposures.size, *lam.shape)), rng)
        means = exposures[:, None] * rate * rng.standard_gamma(size) / size
        draws = rng.poisson(np.minimum(means, _MAX_DRAWN_MEAN)).astype(self.dtype)
        return self.append_exposure(draws, exposures.astype(self.dtype))

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return marginals of the rates for an exposure of 1, and of the dispersions 1 / r."""
        q = self.family.condition_on_sizes(lam)
        columns = np.arange(lam.shape[1])

        def rate_quantiles(p: float) -> Array:
            # The quantile lies between the quantiles given each of the likely sizes. Given a size,
            # the rate is SIZES / q.scale times the odds of a variable with distribution Beta(B, A).
            shares = betaincinv(q.b, q.a, p)
            log_quantiles = np.log(shares) - np.log1p(-shares) + np.log(SIZES / q.scale)
            is_likely = q.probability > _NEGLIGIBLE_SHARE
            low = np.where(is_likely, log_quantiles, np.inf).min(axis=-1)
            high = np.where(is_likely, log_quantiles, -np.inf).max(axis=-1)
            # Find the logarithm of the quantile by bisection.
            for _ in range(_N_BISECTIONS):
                middle = 0.5 * (low + high)
                odds = np.exp(middle)[..., None] * q.scale / SIZES
                probability = (q.probability * betainc(q.b, q.a, odds / (1.0 + odds))).sum(axis=-1)
                is_above = probability >= p
                low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
            return np.exp(0.5 * (low + high))

        def dispersion_quantiles(p: float) -> Array:
            # Dispersions ascend as sizes descend. The probability of each of them is spread evenly
            # over the logarithms that are closer to it than to its neighbours.
            probability = q.probability[..., ::-1]
            below = probability.cumsum(axis=-1)
            # The first dispersion at which the cumulative probability reaches p.
            index = np.minimum((below < p).sum(axis=-1, keepdims=True), SIZES.size - 1)
            excess = np.take_along_axis(below - p, index, axis=-1)
            shares = 1.0 - excess / np.take_along_axis(probability, index, axis=-1)
            positions = (index + shares.clip(0.0, 1.0))[..., 0]
            limits = np.arange(SIZES.size + 1), _LOG_DISPERSION_LIMITS
            return np.exp(np.interp(positions, *limits))

        return (
            Marginals("rate", columns, self.expected_rates(lam), rate_quantiles),
            Marginals("dispersion", columns, q.probability @ (1.0 / SIZES), dispersion_quantiles),
        )


class _CountRows(NamedTuple):
    """Dense rows of counts, of which log densities and sums are computed without their features.

    :class:`NegativeBinomial` describes the features and the symbols. In each column, the part of a
    log density that depends on log h_g(x) is tabulated for all counts x up to the largest. The
    argument ``table`` (P, K) has the coefficients of P features in the expected log densities of K
    components.
    """

    # (n, D): the row of ``log_h`` for each count. A missing count has the last row.
    positions: IndexArray
    # (V + 1, G): log h_g(x) of the counts x = 0, ..., V - 1, and 0 for missing counts.
    log_h: Array
    # (n, D): the counts, 0 where they are missing.
    counts: Array
    # (n, D): whether a count is missing.
    is_missing: Array
    # (n, J): Lagrange's polynomials L_j.
    polynomials: Array
    # (n,): sum_d x_d log e.
    constants: Array

    def log_densities(self, table: Array) -> Array:
        """Return expected log densities (n, K) for the transposed table (P, K)."""
        (n, D), J, K = self.counts.shape, self.polynomials.shape[1], table.shape[1]
        ends = np.cumsum([D * self.log_h.shape[1], D * J, D * J])
        log_h_table, count_table, missing_table, row_table = np.split(table, ends)
        log_densities = np.column_stack([self.polynomials, self.constants]) @ row_table
        # (D, V + 1, K): the contribution of log h_g(x) for each count x.
        contributions = self.log_h @ log_h_table.reshape(D, -1, K)
        _add_contributions(self.positions, contributions, log_densities)
        # (n, J, K): factors of L_j.
        factors = self.counts @ count_table.reshape(D, J * K)
        if self.is_missing.any():
            factors -= self.is_missing @ missing_table.reshape(D, J * K)
        log_densities += np.einsum("nj,njk->nk", self.polynomials, factors.reshape(n, J, K))
        return log_densities

    def sums(self, weighted_resp: Array) -> Array:
        """Return the sums of features (K, P) for weighted responsibilities (n, K)."""
        D, J, K = self.counts.shape[1], self.polynomials.shape[1], weighted_resp.shape[1]
        # (D, V + 1, K): sums of the responsibilities of the rows with each count in each column.
        resp_sums = np.zeros((D, len(self.log_h), K))
        _add_responsibilities(self.positions, weighted_resp, resp_sums)
        log_h_sums = np.transpose(self.log_h.T @ resp_sums, (2, 0, 1))
        # (K J, n): responsibilities times L_j.
        weighted_polynomials = (weighted_resp.T[:, None] * self.polynomials.T).reshape(K * J, -1)
        count_sums, missing_sums = weighted_polynomials @ self.counts, np.zeros((K * J, D))
        if self.is_missing.any():
            missing_sums -= weighted_polynomials @ self.is_missing
        by_column = [sums.reshape(K, J, D).swapaxes(1, 2) for sums in (count_sums, missing_sums)]
        row_sums = weighted_resp.T @ np.column_stack([self.polynomials, self.constants])
        flattened = [sums.reshape(K, -1) for sums in (log_h_sums, *by_column)]
        return np.concatenate([*flattened, row_sums], axis=1)


@jit
def _add_contributions(positions: IndexArray, contributions: Array, log_densities: Array) -> None:
    """Add the ``contributions`` (D, V, K) at the ``positions`` (n, D) to log densities (n, K)."""
    for i in range(positions.shape[0]):
        for d in range(positions.shape[1]):
            position = positions[i, d]
            for k in range(log_densities.shape[1]):
                log_densities[i, k] += contributions[d, position, k]


@jit
def _add_responsibilities(positions: IndexArray, weighted_resp: Array, sums: Array) -> None:
    """Add ``weighted_resp`` (n, K) to ``sums`` (D, V, K) at the ``positions`` (n, D) of rows."""
    for i in range(positions.shape[0]):
        for d in range(positions.shape[1]):
            position = positions[i, d]
            for k in range(weighted_resp.shape[1]):
                sums[d, position, k] += weighted_resp[i, k]


@jit
def _write_features(counts: Array, log_h: Array, L: Array, features: Array) -> None:
    """Write all features of counts (n, D) except the last J + 1, see `NegativeBinomial`.

    ``log_h`` (V, G) has log h_g(x) for counts less than V. The results are wrong for other counts.
    """
    (n, D), (V, G), J = counts.shape, log_h.shape, L.shape[1]
    for i in range(n):
        for d in range(D):
            # Only NaN differs from itself.
            is_missing = counts[i, d] != counts[i, d]
            x = 0.0 if is_missing else counts[i, d]
            row = min(np.int64(x), V - 1)
            for g in range(G):
                features[i, d * G + g] = log_h[row, g]
            for j in range(J):
                features[i, D * G + d * J + j] = x * L[i, j]
                features[i, D * (G + J) + d * J + j] = -L[i, j] if is_missing else 0.0


def _compute_log_h(counts: Array) -> Array:
    """Return ``log h_g(x) = log Gamma(x + r_g) - log Gamma(r_g) - log x!``, (m, G), of counts x."""
    counts = counts[:, None]
    return gammaln(counts + SIZES) - gammaln(SIZES) - gammaln(counts + 1.0)


def _widen_entries(X: Any, values: Array) -> Any:
    """Return a CSR array in which W adjacent entries replace each stored entry of X.

    Row i of ``values`` (number of stored entries, W) replaces stored entry i. The result has W
    times as many columns as X.
    """
    width = values.shape[1]
    indices = (X.indices[:, None].astype(np.int64) * width + np.arange(width)).ravel()
    shape = (X.shape[0], X.shape[1] * width)
    return sp.csr_array((values.ravel(), indices, X.indptr.astype(np.int64) * width), shape)


def _find_distinct(*arrays: Any) -> tuple[list[Any], IndexArray]:
    """Return the distinct entries of arrays (m,), and the number of each entry among them, (m,).

    Two entries are equal if they are equal in all arrays.
    """
    order = np.lexsort(arrays)
    ordered = [array[order] for array in arrays]
    is_new = np.ones(order.size, bool)
    is_new[1:] = np.any([array[1:] != array[:-1] for array in ordered], axis=0)
    numbers = np.empty(order.size, np.intp)
    numbers[order] = np.cumsum(is_new) - 1
    return [array[is_new] for array in ordered], numbers


def _log_densities_of_components(
    q: QGivenSizes, columns: IndexArray, counts: Any, exposures: Array
) -> Array:
    """Return predictive log densities (K, m) of single entries under each of K components.

    ``columns``, ``counts`` and ``exposures`` are (m,), and q is (K, D, G').
    """
    K, D, n_sizes = q.probability.shape
    # Column d of component k is column k D + d of all components.
    all_columns = D * np.arange(K)[:, None] + columns
    entries = (array.ravel() for array in np.broadcast_arrays(all_columns, counts, exposures))
    q_of_all = QGivenSizes(*(array.reshape(K * D, n_sizes) for array in q))
    return _log_densities(q_of_all, *entries).reshape(all_columns.shape)


def _log_densities(q: QGivenSizes, columns: IndexArray, counts: Any, exposures: Array) -> Array:
    """Return predictive log densities (m,) of single entries under one component.

    ``columns``, ``counts`` and ``exposures`` are (m,), and q is (D, G'), see
    :meth:`NegativeBinomial.log_predictive`.
    """
    counts = np.broadcast_to(np.minimum(counts, _MAX_COUNT), columns.shape)
    densities = np.zeros(columns.size)
    for g, entries, logs in _log_densities_by_size(q, columns, counts, exposures):
        densities[entries] += q.probability[columns[entries], g] * np.exp(logs)
    # Where densities round to 0, add up logarithms, which takes longer.
    underflows = np.flatnonzero(densities == 0.0)
    densities[underflows] = 1.0
    log_densities = np.log(densities)
    arguments = columns[underflows], counts[underflows], exposures[underflows]
    log_sums = np.full(underflows.size, -np.inf)
    for g, entries, logs in _log_densities_by_size(q, *arguments) if underflows.size else ():
        log_terms = np.log(q.probability[arguments[0][entries], g]) + logs
        log_sums[entries] = np.logaddexp(log_sums[entries], log_terms)
    log_densities[underflows] = log_sums
    return log_densities


def _log_densities_by_size(
    q: QGivenSizes, columns: IndexArray, counts: Array, exposures: Array
) -> Iterator[tuple[int, IndexArray, Array]]:
    """Yield for each size its number, indices of entries (m',), and their log densities (m',).

    Entries are left out if the size has a negligible probability in their column.
    """
    # np.resize repeats SIZES up to the number G' of sizes of q.
    for g, size in enumerate(np.resize(SIZES, q.probability.shape[1])):
        entries = np.flatnonzero((q.probability[:, g] > _NEGLIGIBLE_SHARE)[columns])
        d, x = columns[entries], counts[entries]
        a, b = q.a[d, g], q.b[d, g]
        # From A and B, compute the mean of Beta(A', B') and ``total = A' + B'``, then A' and B'.
        mean = 1.0 / (1.0 + exposures[entries] * b / (a * q.scale[d, g]))
        total = a * b / ((a + b) * mean * (1.0 - mean))
        a, b = total * mean, total * (1.0 - mean)
        logs = betaln(a + size, b + x) - betaln(a, b)
        yield g, entries, logs + (gammaln(x + size) - gammaln(size) - gammaln(x + 1.0))


@in_files("models.SizesLearner")
@dataclass(frozen=True)
class SizesLearner(PenalizedAscent):
    """Learns the prior probabilities of sizes, which are the same for all columns."""

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the probabilities (G,) of the dispersions 1 / r in ascending order."""
        # Dispersions ascend as sizes descend.
        return {"dispersion_prior": np.exp(self.parameters(component))[::-1].copy()}

    def parameters(self, component: Any) -> Array:
        return np.log(component.family.condition_on_sizes(component.prior[0]).probability)

    def with_parameters(self, component: Any, x: Array) -> Any:
        """Return the component whose sizes have the log probabilities x, up to a constant.

        Smaller probabilities are raised to `_MIN_LEARNED_SHARE` of the largest.
        """
        probabilities = np.maximum(np.exp(x - x.max()), _MIN_LEARNED_SHARE)
        return component.with_size_probabilities(probabilities)

    def step(self, component: Any, sums: Array) -> Array:
        """Return logarithms of posterior probabilities, averaged over components and columns.

        The average includes ``_N_PSEUDO_COLUMNS`` columns with equal probabilities.
        """
        lam = component.natural_parameters(sums)
        # (K, D, G): q of the size of each component and column.
        probability = component.family.condition_on_sizes(lam).probability
        totals = probability.sum(axis=(0, 1)) + _N_PSEUDO_COLUMNS / SIZES.size
        return np.log(np.maximum(totals / totals.sum(), _MIN_LEARNED_SHARE))

    def log_density(self, component: Any) -> float:
        """Return the log density of probabilities under a Dirichlet, up to a constant, in nats."""
        return _N_PSEUDO_COLUMNS * float(self.parameters(component).mean())
