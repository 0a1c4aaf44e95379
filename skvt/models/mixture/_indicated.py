"""Columns with a point mass or with informative missing values.

A point mass is a number that many rows have exactly, such as 0 in a column of amounts. Missing
values are informative if a value is missing with different probabilities in different components.
In both cases, a value x of a column in component k is modelled by an indicator i and a distribution
p of the values,

    i ~ Bernoulli(p_k),      x | i = 1 ~ p(. | phi_k),   x | i = 0 is the point mass, or missing.

With a point mass, i is 1 if x differs from the point mass, and unknown if x is missing. With
informative missing values, i is 1 if x is observed, and 0 if x is missing. The model is a product
of two blocks of columns: "values" and "indicators". In the block "values", x is missing if i is 0.

Columns that are missing in nearly the same rows share one indicator, so that the same information
counts once. The indicator is 1 in a row in which at least half of these columns are observed.
Columns that are never missing share one indicator, too. :func:`find_columns_missing_together`
decides which columns share an indicator.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from skvt.contracts import Component
from skvt.files import in_files
from skvt.models.mixture._given_columns import Conditioned, GivenColumns, separate_by_cell
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import Bernoulli, ConjugateComponent
from skvt.rows import dense, sums_of_rows
from skvt.typing import Array

# Smallest Cohen's kappa of the missing values of columns that share an indicator.
MIN_AGREEMENT = 0.75


@in_files("models.Indicated")
@dataclass(frozen=True)
class Indicated(WrapperMixin, Product):
    """Product of the blocks "values" and "indicators".

    The blocks describe rows of D + I columns: the D columns of the data and I columns of
    indicators. The first F of the D columns have indicators. An exposure, to which counts are
    proportional, and given columns, which explain the other columns, have no indicators, because
    they are always known. Densities are with respect to Lebesgue measure, or counting measure for
    counts, plus a unit mass at each point mass. If missing values are informative, densities of
    rows include the probability of the indicators.
    """

    # Point mass of each of the F columns; () if the indicators describe missing values.
    at: tuple[float, ...] = field(default=(), kw_only=True)
    # Subtracted from the values that differ from the point mass: 1 for counts, and otherwise 0.
    shift: float = field(default=0.0, kw_only=True)
    # For each of the F columns, the number of its indicator; () if no indicator is shared.
    shared: tuple[int, ...] = field(default=(), kw_only=True)
    # Columns whose missing values do not affect the indicators, see
    # `skvt.contracts.Completes.without_indicator`.
    silent: tuple[int, ...] = field(default=(), kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        """Return whether the fields and blocks of a component from a file fit each other."""
        n_exposures = d - self.blocks[0].n_given - self._n_indicated
        return (
            [block.name for block in self.blocks] == ["values", "indicators"]
            # Components that differ in few columns contain their likelihood as ``inner_component``.
            and type(getattr(self._indicators, "inner_component", self._indicators))
            in (Bernoulli, Conditioned)
            and n_exposures in (0, 1)
            and self._are_disjoint(d + self._n_indicators)
            and {*self._indicator_of} == {*range(self._n_indicators)}
            and len(self.at) in (0, self._n_indicators)
            and not (self.at and self.shared)
            and all(self.shift in (0.0, at + 1.0) for at in self.at or (0.0,))
            and not self.silent
        )

    @property
    def _models_missing(self) -> bool:
        """Whether indicators describe missing values. Otherwise they describe point masses."""
        return not self.at

    @property
    def _indicators(self) -> Any:
        """The component of the indicators."""
        return self.blocks[1].component

    @property
    def _n_indicators(self) -> int:
        """I, the number of indicators."""
        return self.blocks[1].explained.size

    @property
    def _indicator_of(self) -> tuple[int, ...]:
        """For each of the F columns, the number of its indicator."""
        return self.shared or tuple(range(self._n_indicators))

    @property
    def _n_indicated(self) -> int:
        """F, the number of columns with indicators."""
        return len(self._indicator_of)

    def _with_unknown_indicators(self, X: Array) -> Array:
        """Return the rows X as the block "indicators" has them, with unknown indicators (NaN).

        The block has I indicators, and then the given columns, if any.
        """
        rows = np.concatenate([X, np.full((len(X), self._n_indicators), np.nan)], axis=1)
        return rows[:, self.blocks[1].columns]

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows with the ``completed`` values; informative missing values stay missing.

        If they were filled in, their indicators would be 1.
        """
        return X if self._models_missing else super().with_completed(X, completed)

    def without_indicator(self, column: int) -> "Indicated":
        """Return the component in which the missing values of ``column`` affect no indicator."""
        return replace(self, silent=(*self.silent, column)) if self._models_missing else self

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by the imputed values of the block "values".

        With a point mass, replace them by means over both values of the indicator instead.
        """
        if self._models_missing:
            return super().imputed(X, lam, memberships)
        return ConjugateComponent.imputed(self, X, lam, memberships)

    def _convert_to_data_units(self, X: Array, values: Array, *others: Array) -> Array:
        """Return the means of values in units of the data.

        With a point mass, the means are over both values of the indicators.
        """
        if self._models_missing:
            return values
        (indicators_lam,) = others
        # F = I, because no indicator is shared with point masses.
        F = self._n_indicators
        unknown_indicators = self._with_unknown_indicators(X)
        share = self._indicators.conditional_mean(unknown_indicators, indicators_lam)[..., :F]
        means = values.copy()
        means[..., :F] = share * (values[..., :F] + self.shift) + (1.0 - share) * np.array(self.at)
        return means

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values of rows of one component."""
        # The indicator of an informative missing value is 0. Draw the value as if it were missing
        # at random.
        if self._models_missing:
            values_lam = self.family.split(lam)[0]
            return self.value_component.conditional_sample(X, values_lam, rng)
        return super().conditional_sample(X, lam, rng)

    def _convert_draws(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        """Return the draws of values, with the point mass or NaN where a drawn indicator is 0."""
        (indicators_lam,) = others
        rows, F = np.array(draws, np.float64), self._n_indicated
        unknown_indicators = self._with_unknown_indicators(X)
        indicators = self._indicators.conditional_sample(unknown_indicators, indicators_lam, rng)
        has_value = indicators[:, self._indicator_of] > 0.0
        rows[:, :F] = np.where(has_value, rows[:, :F] + self.shift, self.at or np.nan)
        return rows

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column's values and indicator together, (K, D) in nats.

        The evidence of a shared indicator is divided equally among its columns.
        """
        evidence = super().column_evidence(sums)
        D, F = evidence.shape[1] - self._n_indicators, self._n_indicated
        # (I,): the number of columns that share each indicator.
        n_columns = np.bincount(self._indicator_of)
        evidence[:, :F] += (evidence[:, D:] / n_columns)[:, self._indicator_of]
        return evidence[:, :D]

    def marginals(self, lam: Array) -> Any:
        """Return the marginals of the values, and of each column's probability of i = 1."""
        values, (shares,) = super().marginals(lam)
        names = [f"share not {at:g}" for at in self.at] or ["share observed"] * self._n_indicated
        shares_of_columns = (
            shares.select([i])._replace(quantity=name, columns=np.array([d]))
            for d, (i, name) in enumerate(zip(self._indicator_of, names, strict=True))
        )
        return (*values, *shares_of_columns)

    def _convert_rows(self, X: Any) -> Array:
        """Return rows of the D columns of the data and the I indicators, (n, D + I).

        With a point mass, values are NaN where the indicator is not 1. Indicators are NaN where
        they are unknown.
        """
        X = np.asarray(dense(X), np.float64)
        F = self._n_indicated
        is_missing = np.isnan(X[:, :F])
        if self._models_missing:
            # An indicator is 1 if at least half of its columns are observed. Silent columns do not
            # count. ``has_indicator`` (F, I) says which column has which indicator.
            has_indicator = np.equal.outer(self._indicator_of, np.arange(self._n_indicators))
            has_indicator[list(self.silent)] = False
            n_columns = has_indicator.sum(axis=0)
            n_observed = ~is_missing @ has_indicator.astype(float)
            indicators = np.where(2.0 * n_observed >= n_columns, 1.0, 0.0)
            indicators[:, n_columns == 0] = np.nan
            return np.concatenate([X, indicators], axis=1)
        indicators = np.where(is_missing, np.nan, X[:, :F] != np.array(self.at))
        values = np.where(indicators > 0.0, X[:, :F] - self.shift, np.nan)
        return np.concatenate([values, X[:, F:], indicators], axis=1)


def add_indicators(
    component: Component, point_masses: tuple[float, ...] = (), shift: float = 0.0, *,
    exposed: bool = False, given: GivenColumns | None = None, shared: tuple[int, ...] = (),
) -> Indicated:  # fmt: skip
    """Return the component of values and of indicators, whose probabilities have a uniform prior.

    ``component`` describes the values. ``point_masses`` has the point mass of each column with an
    indicator, and ``shift`` is subtracted from the values, see `without_point_masses`. The data
    have columns with indicators, then an exposure if ``exposed``, and then the columns that are
    ``given``, which explain values and indicators. ``shared`` is the result of
    `find_columns_missing_together`. Columns with the same number in ``shared`` share an indicator.
    """
    # The data have D columns, G of which are given.
    D, dtype = component.n_features, component.dtype
    G = 0 if given is None else given.n_columns
    n_indicators = max(shared) + 1 if shared else D - G - exposed
    indicators: Any = Bernoulli(np.ones((n_indicators, 2)), dtype)
    if given is not None:
        indicators = separate_by_cell(indicators, given)
    values = Block("values", component, np.arange(D), n_given=G)
    columns = np.append(D + np.arange(n_indicators), np.arange(D - G, D))
    blocks = values, Block("indicators", indicators, columns, n_given=G)
    return Indicated(blocks, D, dtype, at=point_masses, shift=shift, shared=shared)


def find_columns_missing_together(X: Any, weights: Any, n_columns: int) -> tuple[int, ...]:
    """Return the number of the indicator of each of the first ``n_columns`` columns, (F,).

    The columns are examined in their order. A column shares an indicator if its missing values
    agree with those of the first column of this indicator. Otherwise it gets a new indicator. The
    missing values of two columns agree if Cohen's kappa is at least ``MIN_AGREEMENT``, or if
    neither column has missing values. Kappa is 1 - a / b, where a is the share of rows in which
    exactly one of the columns is missing, and b would be this share if the columns were
    independent.
    """
    both_missing, total = sums_of_rows(X, weights, partial(_count_missing_in_both, n_columns))
    # (F,): share of rows in which a column is missing. The next two arrays, (F, F), are a and b.
    shares = np.diagonal(both_missing) / total
    share_of_one = shares[:, None] + shares - 2.0 * both_missing / total
    expected_share = shares[:, None] + shares - 2.0 * np.outer(shares, shares)
    agree = share_of_one <= (1.0 - MIN_AGREEMENT) * expected_share + np.finfo(np.float64).eps
    # Collect the first column of each indicator, and the indicator of each column.
    first_columns: list[int] = []
    indicators: list[int] = []
    for agrees_with_column in agree:
        matches = np.flatnonzero(agrees_with_column[first_columns])
        if matches.size == 0:
            first_columns.append(len(indicators))
        indicators.append(int(matches[0]) if matches.size else len(first_columns) - 1)
    return tuple(indicators)


def _count_missing_in_both(n_columns: int, X: Any, weights: Array) -> tuple[Any, ...]:
    """Return the weight of the rows in which both of two columns are missing, and of all rows.

    The first result is (F, F), for pairs of the first F = ``n_columns`` columns.
    """
    is_missing = np.isnan(dense(X)[:, :n_columns]).astype(np.float64)
    return (is_missing.T * weights) @ is_missing, weights.sum()


def without_point_masses(point_masses: tuple[float, ...], shift: float, X: Any) -> Array:
    """Return rows with NaN in place of point masses, and with ``shift`` subtracted.

    ``point_masses`` has the point mass of each of the first F columns. Further columns are
    unchanged. The result has the dtype of the rows.
    """
    X = dense(X)
    F = len(point_masses)
    at_mass = X[:, :F] == np.array(point_masses)
    values = np.where(at_mass, np.nan, X[:, :F] - shift).astype(X.dtype)
    return values if X.shape[1] == F else np.concatenate([values, X[:, F:]], axis=1)
