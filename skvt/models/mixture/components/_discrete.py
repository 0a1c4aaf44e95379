"""Components for columns of bits, categories, tokens and counts.

The columns are independent given the component, except that the columns of tokens share a total.
Counts may be in proportion to an exposure of the row, such as a duration or a length.

In shapes, n is the number of rows, D of columns, K of components and C_d of categories of column d.
``lam`` are natural parameters of the posterior of components, and NaN is a missing value.
:class:`skvt.contracts.Component` documents the methods.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from skvt._compiled import digamma_array
from skvt.expfam import Dirichlet, DirichletColumns, Gamma
from skvt.files import PRIOR, in_files
from skvt.models.mixture._kernels import write_indicators
from skvt.models.mixture._marginals import Marginals, probability_marginals, rate_marginals
from skvt.models.mixture.components._base import (
    ConjugateComponent,
    PairOfEachColumn,
    dense_rows,
    fill_missing,
)
from skvt.rows import dense, without_missing
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array

# Indicators of categories are a sparse matrix if columns have on average at least this many
# categories.
_MIN_LEVELS_IF_SPARSE = 64


class LevelColumns(ConjugateComponent):
    """Independent columns of bits or categories, whose values are called levels.

    Each column has a Dirichlet distribution of the probabilities of its levels. A mixture of two
    predictive distributions is again a distribution of levels. It is therefore the predictive
    distribution of some natural parameters.
    """

    def mix_parameters(self, lam: Array, common_lam: Array, probabilities: Array) -> Array:
        """Return natural parameters of the mixture of two predictive distributions in each column.

        With the ``probabilities`` (K, D), a column has the distribution of ``lam``, and otherwise
        the distribution of ``common_lam``.
        """
        # Repeat the probability of each column for each of its levels, as in ``lam``.
        probabilities = np.repeat(probabilities, self.parameter_counts, axis=-1).reshape(lam.shape)
        mean = self.family.mean
        return np.asarray(probabilities * mean(lam) + (1.0 - probabilities) * mean(common_lam))

    def log_predictive_mixed(
        self, X: Any, lam: Array, common_lam: Array, probabilities: Array
    ) -> Array:
        """Return log densities, (n, K) in nats, if each column has one of two distributions."""
        return self.log_predictive(X, self.mix_parameters(lam, common_lam, probabilities))


@in_files("models.Bernoulli")
@dataclass(frozen=True)
class Bernoulli(LevelColumns, PairOfEachColumn):
    """Independent binary columns with beta priors.

    The features are ``[x, 1 - x]``, D of each, which are both 0 where x is missing. If ``sparse``,
    they are ``[x, -x - m, 1]``, D of the first two, where m is 1 if x is missing and 0 otherwise.
    The first two are then 0 where x is 0. The last feature is the common term of the second
    features, see :class:`PairOfEachColumn`: ``1 + (-x - m)`` is ``1 - x``, or 0 where x is missing.
    """

    # (D, 2): parameters of the beta priors of the probability of a one.
    prior: Annotated[Array, "d 2"]
    dtype: np.dtype[Any]
    sparse: bool = False

    family = Dirichlet
    missing = True

    @property
    def n_features(self) -> int:
        return len(self.prior)

    def features(self, X: Any) -> Any:
        """Return the features that the class describes."""
        if not self.sparse:
            X = dense_rows(X)
            features = np.concatenate([X, 1.0 - X], axis=1)
            return np.nan_to_num(features, copy=False)
        values, is_missing = without_missing(sp.csr_array(X, dtype=np.float64))
        minus_values_and_missing = -values
        if is_missing is not None:
            minus_values_and_missing.data -= is_missing.data
        ones = sp.csr_array(np.ones((X.shape[0], 1)))
        return sp.csr_array(sp.hstack([values, minus_values_and_missing, ones], format="csr"))

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities, which are linear in the features since columns are independent."""
        return self.features(X) @ self.feature_coefficients(np.log(Dirichlet.mean(lam))).T

    def repeat_columns(self, number: int) -> "Bernoulli":
        """Return the component of dense rows in which all columns occur ``number`` times."""
        return replace(self, prior=np.tile(self.prior, (number, 1)), sparse=False)

    def column_probabilities(self, lam: Array, column: int, X: Any = None) -> Array:
        """Return predictive probabilities of a zero and a one in ``column``, (K, 2)."""
        return Dirichlet.mean(lam)[:, column, ::-1]

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by the more probable value, or by 0 if both are tied.

        ``memberships`` (n, K) are the probabilities of the components for each row.
        """
        rows = np.array(X, np.float64)
        probability_of_one = memberships @ Dirichlet.mean(lam)[..., 0]
        return np.where(np.isnan(rows), exceeds(probability_of_one, 0.5), rows)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the predictive distribution of one component."""
        probability = Dirichlet.mean(lam)[:, 0]
        return (rng.random((n_rows, self.n_features)) < probability).astype(self.dtype)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are the probabilities of a one, (K, n, D)."""
        return fill_missing(X, Dirichlet.mean(lam)[:, None, :, 0])

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the probabilities of a one, the category 1 of each column."""
        ones = np.ones(self.n_features, np.intp)
        return (probability_marginals(lam[..., 0], lam[..., 1], categories=ones),)


@in_files("models.Multinomial")
@dataclass(frozen=True)
class Multinomial(ConjugateComponent):
    """Rows of counts of tokens, each token from Categorical(phi_k); the features are the counts.

    The density of a row is the density of a sequence of tokens with these counts. It lacks the
    multinomial coefficient, which does not depend on parameters. The number of tokens of a row is
    not modelled.
    """

    # (D,): concentrations of the Dirichlet prior of phi_k.
    prior: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    # Number of tokens of a drawn row.
    n_tokens: int = 1

    family = Dirichlet
    sparse = True

    @property
    def n_features(self) -> int:
        return self.prior.size

    def features(self, X: Any) -> Any:
        """Return the counts (n, D), as a CSR or dense array."""
        return sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else dense_rows(X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows of ``n_tokens`` tokens, after drawing phi_k anew for each row."""
        probabilities = Dirichlet.sample(np.broadcast_to(lam, (n_rows, lam.size)), rng)
        return rng.multinomial(self.n_tokens, probabilities).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the probabilities that a token is in each column."""
        return (probability_marginals(lam, lam.sum(axis=1, keepdims=True) - lam),)

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return log normalizers of two categories: a column, and all other columns, (K, D)."""
        others = lam.sum(axis=1, keepdims=True) - lam
        return Dirichlet.log_normalizer(np.stack([lam, others], axis=-1))


@in_files("models.Categorical")
@dataclass(frozen=True)
class Categorical(LevelColumns):
    """Independent columns of categories with Dirichlet priors; the features are indicators.

    Column d has the codes 0, ..., C_d - 1 or NaN. A larger code is an unseen level, a category that
    does not occur in the fit. It has no features, so that assignments do not depend on it.
    """

    # (sum_d C_d,): concentrations of the Dirichlet priors, column after column.
    prior: Annotated[Array, "n"]
    # Number of categories C_d of each column.
    sizes: tuple[int, ...]
    dtype: np.dtype[Any]
    # Whether predictive densities keep a share for unseen levels.
    open_levels: bool = False

    missing = True

    def validate(self, d: int, k: int) -> bool:
        """Return whether the fields of a component from a file fit each other."""
        return min(self.sizes) > 0 and sum(self.sizes) == self.prior.size

    @cached_property
    def family(self) -> DirichletColumns:
        """The family of the Dirichlet distributions of all columns."""
        return DirichletColumns(self.sizes)

    @property
    def parameter_counts(self) -> tuple[int, ...]:
        """Number of concentrations of each column."""
        return self.sizes

    @property
    def n_features(self) -> int:
        return len(self.sizes)

    def features(self, X: Any) -> Any:
        """Return indicators of ``x_d = c`` for each column and category, 0 where x_d is missing.

        The result is CSR if categories are many, so that the cost of a row is proportional to the
        number of its columns and not to the number of categories.
        """
        X = dense_rows(X)
        # Positions in the prior at which the categories of each column end.
        ends = np.cumsum(self.sizes)
        if ends[-1] < _MIN_LEVELS_IF_SPARSE * len(ends):
            indicators = np.zeros((X.shape[0], ends[-1]))
            write_indicators(X, ends, indicators)
            return indicators
        # Missing values and unseen levels have no indicators. Both comparisons with NaN are false.
        is_known = (X >= 0.0) & (self.sizes > X)
        indices = (np.where(is_known, X, 0.0) + (ends - self.sizes)).astype(np.int32)[is_known]
        indptr = np.append(0, is_known.sum(axis=1).cumsum()).astype(np.int32)
        return sp.csr_array((np.ones(indices.size), indices, indptr), (X.shape[0], ends[-1]))

    def fits_to_self(self, features: Any) -> tuple[Array, Array]:
        """Return the fit of each row to a component fitted to this row alone, and its magnitude."""
        # A component fitted to one row adds 1 to the concentration of each category of this row.
        # The row has no other features than these categories, so that one table serves all rows.
        totals = np.repeat(self.family.sum_categories(self.prior), self.sizes)
        table = digamma_array(self.prior + 1.0) - digamma_array(totals + 1.0)
        return features @ table, features @ np.abs(table)

    @property
    def with_unknown_levels(self) -> "Categorical":
        """The component whose predictive densities cover unseen levels."""
        return replace(self, open_levels=True)

    def log_predictive(self, X: Any, lam: Array, n_values: Array | None = None) -> Array:
        """Return log densities, which are linear in the features since columns are independent.

        If ``open_levels`` is set, an unseen level has the probability ``u = a / (N + A + a)`` in
        each component. N is the number of values of the column in all rows of the fit, A is the sum
        of the column's concentrations, and ``a`` is the smallest of these concentrations. The
        probabilities of the levels of the fit are multiplied by 1 - u. They are at least
        ``(1 - u) a / (N + A) = u``, so that an unseen level is never more probable than another.

        ``n_values`` (D,) are the numbers N. If they are None, ``lam`` must contain all components,
        from which N is computed.
        """
        log_densities = np.asarray(self.features(X) @ np.log(self.family.mean(lam)).T)
        if not self.open_levels:
            return log_densities
        X = dense_rows(X)
        A = self.family.sum_categories(self.prior)
        if n_values is None:
            n_values = (self.family.sum_categories(lam) - A).sum(axis=0)
        starts = np.cumsum(self.sizes, dtype=np.intp) - np.array(self.sizes, np.intp)
        smallest_prior = np.minimum.reduceat(self.prior, starts)
        # (D,) each: the denominator of u, and log(1 - u) and log u.
        denominator = n_values + A + smallest_prior
        log_known = np.log((n_values + A) / denominator)
        log_unseen = np.log(smallest_prior / denominator)
        log_shares = np.where(self.sizes > X, log_known, log_unseen)
        return log_densities + np.where(np.isnan(X), 0.0, log_shares).sum(axis=1, keepdims=True)

    def log_predictive_mixed(
        self, X: Any, lam: Array, common_lam: Array, probabilities: Array
    ) -> Array:
        """Return log densities, (n, K) in nats, if each column has one of two distributions."""
        # Compute N from ``lam``, because the mixed parameters contain no counts.
        n_values = self.family.sum_categories((lam - self.prior).sum(axis=0))
        return self.log_predictive(X, self.mix_parameters(lam, common_lam, probabilities), n_values)

    def repeat_columns(self, number: int) -> "Categorical":
        """Return the component of rows in which all columns occur ``number`` times."""
        return replace(self, prior=np.tile(self.prior, number), sizes=self.sizes * number)

    def column_probabilities(self, lam: Array, column: int, X: Any = None) -> Array:
        """Return predictive probabilities of the categories of ``column``, (K, C)."""
        ends = np.cumsum(self.sizes)
        return self.family.mean(lam)[..., ends[column] - self.sizes[column] : ends[column]]

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by the most probable category, the first one if several are tied.

        ``memberships`` (n, K) are the probabilities of the components for each row.
        """
        rows = np.array(X, np.float64)
        for d in np.flatnonzero(np.isnan(rows).any(axis=0)).tolist():
            is_missing = np.isnan(rows[:, d])
            probabilities = np.asarray(memberships[is_missing] @ self.column_probabilities(lam, d))
            rows[is_missing, d] = stable_argmax(probabilities)
        return rows

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the predictive distribution of one component."""
        probabilities = np.split(self.family.mean(lam), np.cumsum(self.sizes)[:-1])
        columns = [rng.choice(p.size, n_rows, p=p / p.sum()) for p in probabilities]
        return np.stack(columns, axis=1).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the probabilities of all categories of all columns."""
        columns = np.repeat(np.arange(self.n_features), self.sizes)
        codes = np.concatenate([np.arange(size) for size in self.sizes])
        others = self.family.sum_categories(lam)[:, columns] - lam
        return (probability_marginals(lam, others, columns, codes),)

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return the log normalizers of the columns, (K, D)."""
        return self.family.log_normalizers(lam)


def separate_missing(X: Any) -> tuple[Any, Any]:
    """Return sparse rows with 0 for missing values, and indicators of missing values, as CSR.

    The indicators are 1 where a value is missing, and store no zeros.
    """
    values, is_missing = without_missing(X)
    if is_missing is None:
        return values, sp.csr_array(X.shape)
    is_missing = sp.csr_array(is_missing, dtype=np.float64, copy=True)
    is_missing.eliminate_zeros()
    return values, is_missing


def split_exposure(
    X: Any, exposure: str, typical: float = 1.0, shares: Array | None = None
) -> tuple[Any, Array]:
    """Return counts, as a CSR or dense array, and the exposure of each row, (n,).

    Parameters
    ----------
    X : array or sparse matrix, shape (n, D) or (n, D + 1)
        Counts, followed by the exposure if it is a column.
    exposure : str
        The exposure of a row is 1 if this is "none", the last column of X if it is "column", and
        the sum of the row's counts if it is "row_total".
    typical : float
        The exposure of a row without values, if the exposure is a sum.
    shares : ndarray, shape (D,), or None
        Share of each column in the sum of all counts; None for equal shares. If values are missing,
        the sum of a row's observed counts is divided by the sum of the shares of the columns that
        are observed in the row.
    """
    X = sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else dense_rows(X)
    if exposure == "none":
        return X, np.ones(X.shape[0])
    if exposure == "column":
        return X[:, :-1], dense(X[:, [-1]]).ravel()
    observed, is_missing = without_missing(X)
    if is_missing is None:
        return X, np.asarray(X.sum(axis=1)).ravel()
    equal_shares = np.full(X.shape[1], 1.0 / X.shape[1])
    observed_share = 1.0 - is_missing @ (equal_shares if shares is None else shares)
    has_values = observed_share > 1e-9
    exposures = np.asarray(observed.sum(axis=1)).ravel() / np.where(has_values, observed_share, 1.0)
    return X, np.where(has_values, exposures, typical)


class ExposureColumns(ConjugateComponent):
    """Independent columns of counts whose means are in proportion to an exposure of the row."""

    # "none", "column" or "row_total", see `split_exposure`.
    exposure: str = "none"
    # Mean exposure of the rows of the fit. Drawn rows have this exposure.
    typical: float = 1.0
    # (D,): share of each column in the sum of all counts; None for equal shares.
    shares: Array | None = None

    def validate(self, d: int, k: int) -> bool:
        """Return whether a file has one of the three legal values of ``exposure``."""
        return self.exposure in ("none", "column", "row_total")

    if TYPE_CHECKING:
        # Subclasses define two methods. `expected_rates` returns the expected counts for the
        # exposure 1, (K, D). `_draw_rows` draws rows with ``exposures`` (n,) from the posterior
        # predictive of one component.
        def expected_rates(self, lam: Array) -> Array: ...
        def _draw_rows(self, lam: Array, exposures: Array, rng: np.random.Generator) -> Array: ...

    @property
    def n_features(self) -> int:
        """Number of columns of the data, including a column of exposures."""
        return len(self.prior) + (self.exposure == "column")

    def repeat_columns(self, number: int) -> Any:
        """Return the component of dense rows in which all columns of counts occur ``number`` times.

        A column of exposures occurs once.
        """
        prior = np.tile(self.prior, (number, 1))
        return replace(self, prior=prior)  # type: ignore[type-var]

    def split_exposure(self, X: Any) -> tuple[Any, Array]:
        """Return counts and exposures, see :func:`split_exposure`."""
        return split_exposure(X, self.exposure, self.typical, self.shares)

    def append_exposure(self, values: Array, exposures: Any) -> Array:
        """Append exposures to ``values`` (..., D) if the last column of the data has exposures.

        ``values`` belong to the D columns of counts, and ``exposures`` broadcast to their leading
        axes.
        """
        if self.exposure != "column":
            return values
        exposure_column = np.broadcast_to(exposures, values.shape[:-1]).astype(values.dtype)
        return np.concatenate([values, exposure_column[..., None]], axis=-1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are expected rates times the exposure, (K, n, D)."""
        _, exposures = self.split_exposure(X)
        means = exposures[:, None] * self.expected_rates(lam)[:, None]
        return fill_missing(X, self.append_exposure(means, exposures))

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values at the exposures of the rows."""
        _, exposures = self.split_exposure(X)
        return fill_missing(X, self._draw_rows(lam, exposures, rng))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows at the typical exposure."""
        return self._draw_rows(lam, np.full(n_rows, self.typical), rng)

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column, which is 0 for a column of exposures."""
        return self.append_exposure(super().column_evidence(sums), 0.0)


@in_files("models.Poisson")
@dataclass(frozen=True)
class Poisson(ExposureColumns, PairOfEachColumn):
    """Independent columns of counts, each Poisson(e_n rate_kd) with a gamma prior of the rate.

    The features of a row with the exposure e are ``[x_d, e seen_d, constant]``, D of each of the
    first two, where seen_d is 1 if x_d is observed. The constant ``sum_d x_d log e - log x_d!`` is
    the part of the log density that does not depend on the rates. If ``sparse``, the features are
    ``[x_d, -e missing_d, constant, e]``, with missing_d = 1 - seen_d. The first two are then 0
    where x_d is 0. The last feature is the common term of the second features, see
    :class:`PairOfEachColumn`: ``e - e missing_d`` is ``e seen_d``.
    """

    # (D, 2): shape and rate of each column's gamma prior.
    prior: Annotated[Array, "n 2"]
    dtype: np.dtype[Any]
    sparse: bool = False
    exposure: str = "none"
    typical: Annotated[float, PRIOR] = 1.0
    shares: Annotated[Array | None, "n"] = None

    family = Gamma
    missing = True
    n_constants = 1

    def features(self, X: Any) -> Any:
        """Return the features that the class describes."""
        counts, exposures = self.split_exposure(X)
        if sp.issparse(counts) and self.sparse:
            counts, is_missing = separate_missing(counts)
            # The row of each stored count.
            rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
            constants = xlogy(counts.data, exposures[rows]) - gammaln(counts.data + 1.0)
            constants = np.bincount(rows, constants, counts.shape[0])
            minus_missing_exposures = sp.csr_array(is_missing * -exposures[:, None])
            row_features = sp.csr_array(np.column_stack([constants, exposures]))
            blocks = [counts, minus_missing_exposures, row_features]
            return sp.csr_array(sp.hstack(blocks, format="csr"))
        X = dense_rows(counts)
        is_observed = ~np.isnan(X)
        X = np.where(is_observed, X, 0.0)
        constants = -gammaln(X + 1.0).sum(axis=1, keepdims=True)
        exposures = exposures[:, None]
        if self.exposure != "none":
            constants += xlogy(X, exposures).sum(axis=1, keepdims=True)
        if self.sparse:
            minus_missing_exposures = np.where(is_observed, 0.0, -exposures)
            return np.concatenate([X, minus_missing_exposures, constants, exposures], axis=1)
        return np.concatenate([X, is_observed * exposures, constants], axis=1)

    def repeat_columns(self, number: int) -> "Poisson":
        """Return the component of dense rows in which all counts occur ``number`` times."""
        return replace(super().repeat_columns(number), sparse=False)

    def expected_rates(self, lam: Array) -> Array:
        """Return the expected counts for the exposure 1, (K, D)."""
        return Gamma.mean(lam)

    def _draw_rows(self, lam: Array, exposures: Array, rng: np.random.Generator) -> Array:
        """Draw rows from independent negative binomials, as Poisson counts of gamma rates."""
        shape, rate = lam[..., 0], lam[..., 1]
        rates = rng.standard_gamma(shape, size=(exposures.size, shape.size)) / rate
        draws = rng.poisson(exposures[:, None] * rates).astype(self.dtype)
        return self.append_exposure(draws, exposures)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the rates of the columns for an exposure of 1."""
        return (rate_marginals(lam[..., 0], lam[..., 1]),)
