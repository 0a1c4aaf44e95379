"""Columns with a point mass or with informative missing values: values and indicators of them.

A value x of a column is modelled by an indicator i and a component F for the values,

    i ~ Bernoulli(p_k),      x | i = 1 ~ F(phi_k),      x | i = 0 is the point mass, or missing.

With a point mass, i is 1 where x differs from it, and unknown where x is missing. With informative
missing values, i is 1 where x is observed, and always known. Where i is 0, the component of values
has a missing value. The model is a product of two blocks of columns: values, and indicators.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from skvt.contracts import Component
from skvt.files import in_files
from skvt.models.mixture._given_columns import Conditioned, GivenColumns, conditioned
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import Bernoulli
from skvt.rows import dense
from skvt.typing import Array


@in_files("models.Indicated")
@dataclass(frozen=True)
class Indicated(WrapperMixin, Product):
    """Product of the blocks "values" and "indicators".

    The blocks describe rows of D + F columns: D columns of values and F of indicators. The first F
    of the D columns have indicators; an exposure and given columns have none, since they are always
    known. Densities are with respect to Lebesgue measure, or counting measure for counts, plus a
    unit mass at each ``at``. If missing values are informative, densities of rows include the
    probability that the missing values are missing.
    """

    # Point mass of each of the F columns; () if the indicators describe missing values.
    at: tuple[float, ...] = field(default=(), kw_only=True)
    # Subtracted from the values.
    shift: float = field(default=0.0, kw_only=True)
    # Columns whose indicators are left out, as if they were unknown.
    silent: tuple[int, ...] = field(default=(), kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        return (
            [block.name for block in self.blocks] == ["values", "indicators"]
            and type(self._indicators) in (Bernoulli, Conditioned)
            and d - self.blocks[0].n_given - self._n_indicators in (0, 1)  # none of an exposure
            and self._are_disjoint(d + self._n_indicators)
            and len(self.at) in (0, self._n_indicators)
            and self.shift in (0.0, 1.0)
            and not self.silent
        )

    @property
    def _models_missing(self) -> bool:
        """Whether indicators describe which values are missing, rather than a point mass."""
        return not self.at

    @property
    def _indicators(self) -> Any:
        return self.blocks[1].component

    @property
    def _n_indicators(self) -> int:
        """F, the number of columns with indicators."""
        return self.blocks[1].explained.size

    def _unknown(self, X: Array) -> Array:
        """Return the rows of the block of indicators with all indicators unknown."""
        made = np.concatenate([X, np.full((len(X), self._n_indicators), np.nan)], axis=1)
        return made[:, self.blocks[1].columns]

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows with the completed values; informative missing values stay missing."""
        return X if self._models_missing else super().with_completed(X, completed)

    def without_indicator(self, column: int) -> "Indicated":
        return replace(self, silent=(*self.silent, column)) if self._models_missing else self

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values; with a point mass, by the mean of the mass and the values."""
        if self._models_missing:
            return np.asarray(self._values.imputed(X, self.family.split(lam)[0], memberships))
        return super().imputed(X, lam, memberships)

    def _means_of_data(self, X: Array, means: Array, *others: Array) -> Array:
        if self._models_missing:
            return means
        F, at, out = self._n_indicators, np.array(self.at), means.copy()
        share = self._indicators.conditional_mean(self._unknown(X), others[0])[..., :F]
        out[..., :F] = share * (means[..., :F] + self.shift) + (1.0 - share) * at
        return out

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        # An informative missing value is drawn as if it were missing at random.
        if self._models_missing:
            values_lam = self.family.split(lam)[0]
            return np.asarray(self._values.conditional_sample(X, values_lam, rng))
        return super().conditional_sample(X, lam, rng)

    def _draws_of_data(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        """Return the draws, with the point mass or NaN where a drawn indicator is 0."""
        out, F = np.array(draws, np.float64), self._n_indicators
        has_value = (
            self._indicators.conditional_sample(self._unknown(X), others[0], rng)[:, :F] > 0.0
        )
        out[:, :F] = np.where(has_value, out[:, :F] + self.shift, self.at or np.nan)
        return out

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column's values and indicators together, (K, D) nats."""
        evidence = super().column_evidence(sums)
        D = evidence.shape[1] - self._n_indicators
        evidence[:, : self._n_indicators] += evidence[:, D:]
        return evidence[:, :D]

    def marginals(self, lam: Array) -> Any:
        """Return the marginals of the values, and of the probabilities of indicators."""
        values, (shares,) = super().marginals(lam)
        names = [f"share not {at:g}" for at in self.at] or ["share observed"] * self._n_indicators
        parts_of_shares = (shares.some([d])._replace(quantity=name) for d, name in enumerate(names))
        return (*values, *parts_of_shares)

    def _made(self, X: Any) -> Array:
        """Return values and indicators side by side, (n, D + F).

        Values are NaN where the indicator is not 1, and indicators are NaN where they are unknown.
        """
        X, F = np.asarray(dense(X), np.float64), self._n_indicators
        missing = np.isnan(X[:, :F])
        if self._models_missing:
            indicators = np.where(missing, 0.0, 1.0)
            indicators[:, list(self.silent)] = np.nan
            return np.concatenate([X, indicators], axis=1)
        indicators = np.where(missing, np.nan, np.array(self.at) != X[:, :F])
        values = np.where(indicators > 0.0, X[:, :F] - self.shift, np.nan)
        return np.concatenate([values, X[:, F:], indicators], axis=1)


def indicated(
    component: Component, at: tuple[float, ...] = (), shift: float = 0.0, *,
    exposed: bool = False, given: GivenColumns | None = None,
) -> Indicated:  # fmt: skip
    """Return a component of values with indicators, whose probabilities have a uniform prior.

    ``at`` and ``shift`` are those of `values_beside`. If ``exposed``, the last column before given
    columns is an exposure, which has no indicator. Columns that are ``given`` come last; they
    explain values and indicators.
    """
    D, dtype = component.n_features, component.dtype
    G = 0 if given is None else given.n_columns
    F = D - G - exposed
    indicators: Any = Bernoulli(np.ones((F, 2)), dtype)
    if given is not None:
        indicators = conditioned(indicators, given)
    blocks = (
        Block("values", component, np.arange(D), G),
        Block("indicators", indicators, np.append(D + np.arange(F), np.arange(D - G, D)), G),
    )
    return Indicated(blocks, D, dtype, at=at, shift=shift)


def values_beside(at: tuple[float, ...], shift: float, X: Any) -> Array:
    """Return rows with NaN in place of point masses ``at``, and with ``shift`` subtracted.

    Columns after the columns with point masses are unchanged. The result has the dtype of the rows.
    """
    X = dense(X)
    F = len(at)
    values = np.asarray(np.where(np.array(at) == X[:, :F], np.nan, X[:, :F] - shift), X.dtype)
    return values if X.shape[1] == F else np.concatenate([values, X[:, F:]], axis=1)
