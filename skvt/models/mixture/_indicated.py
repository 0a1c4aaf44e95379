"""Columns with a point mass or with informative missing values: values and indicators of them.

A value x of a column is modelled by an indicator i and a component F for the values,

    i ~ Bernoulli(p_k),      x | i = 1 ~ F(phi_k),      x | i = 0 is the point mass, or missing.

With a point mass, i is 1 where x differs from it, and unknown where x is missing. With informative
missing values, i is 1 where x is observed, and always known. Where i is 0, the component of values
has a missing value. The model is a product of two blocks of columns: values, and indicators.

Columns that are missing in nearly the same rows share one indicator, since they state one fact. It
is 1 in a row where at least half of these columns are observed. Columns that are never missing
share one indicator, too. :func:`columns_missing_together` decides which columns share one.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from skvt.contracts import Component
from skvt.files import in_files
from skvt.models.mixture._given_columns import Conditioned, GivenColumns, conditioned
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import Bernoulli
from skvt.rows import dense, sums_of_rows
from skvt.typing import Array

# Smallest Cohen's kappa of the missing values of columns that share an indicator.
LEAST_AGREEMENT = 0.75


@in_files("models.Indicated")
@dataclass(frozen=True)
class Indicated(WrapperMixin, Product):
    """Product of the blocks "values" and "indicators".

    The blocks describe rows of D + I columns: D columns of values and I of indicators. The first F
    of the D columns have indicators; an exposure and given columns have none, since they are always
    known. Densities are with respect to Lebesgue measure, or counting measure for counts, plus a
    unit mass at each ``at``. If missing values are informative, densities of rows include the
    probability that the missing values are missing.
    """

    # Point mass of each of the F columns; () if the indicators describe missing values.
    at: tuple[float, ...] = field(default=(), kw_only=True)
    # Subtracted from the values.
    shift: float = field(default=0.0, kw_only=True)
    # Number of the indicator of each of the F columns; () if each column has a separate indicator.
    shared: tuple[int, ...] = field(default=(), kw_only=True)
    # Columns whose indicators are left out, as if they were unknown.
    silent: tuple[int, ...] = field(default=(), kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        return (
            [block.name for block in self.blocks] == ["values", "indicators"]
            and type(getattr(self._indicators, "differing", self._indicators))
            in (Bernoulli, Conditioned)
            and d - self.blocks[0].n_given - self._n_indicated in (0, 1)  # none of an exposure
            and self._are_disjoint(d + self._n_indicators)
            and {*self._indicator_of} == {*range(self._n_indicators)}
            and len(self.at) in (0, self._n_indicators)
            and not (self.at and self.shared)
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
        """I, the number of indicators."""
        return self.blocks[1].explained.size

    @property
    def _indicator_of(self) -> tuple[int, ...]:
        """Number of the indicator of each of the F columns."""
        return self.shared or tuple(range(self._n_indicators))

    @property
    def _n_indicated(self) -> int:
        """F, the number of columns with indicators."""
        return len(self._indicator_of)

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
        out, F = np.array(draws, np.float64), self._n_indicated
        drawn = self._indicators.conditional_sample(self._unknown(X), others[0], rng)
        has_value = drawn[:, self._indicator_of] > 0.0
        out[:, :F] = np.where(has_value, out[:, :F] + self.shift, self.at or np.nan)
        return out

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column's values and indicator together, (K, D) nats.

        The evidence of a shared indicator is divided equally among its columns.
        """
        evidence = super().column_evidence(sums)
        D, F = evidence.shape[1] - self._n_indicators, self._n_indicated
        number_sharing = np.bincount(self._indicator_of)
        evidence[:, :F] += (evidence[:, D:] / number_sharing)[:, self._indicator_of]
        return evidence[:, :D]

    def marginals(self, lam: Array) -> Any:
        """Return the marginals of the values, and of the probabilities of indicators."""
        values, (shares,) = super().marginals(lam)
        names = [f"share not {at:g}" for at in self.at] or ["share observed"] * self._n_indicated
        parts_of_shares = (
            shares.select([i])._replace(quantity=name, columns=np.array([d]))
            for d, (i, name) in enumerate(zip(self._indicator_of, names, strict=True))
        )
        return (*values, *parts_of_shares)

    def _convert_rows(self, X: Any) -> Array:
        """Return values and indicators side by side, (n, D + I).

        Values are NaN where the indicator is not 1, and indicators are NaN where they are unknown.
        """
        X, F = np.asarray(dense(X), np.float64), self._n_indicated
        missing = np.isnan(X[:, :F])
        if self._models_missing:
            votes = np.equal.outer(self._indicator_of, np.arange(self._n_indicators))
            votes[list(self.silent)] = False
            n_votes = votes.sum(axis=0)
            indicators = np.where(2.0 * (~missing @ votes.astype(float)) >= n_votes, 1.0, 0.0)
            indicators[:, n_votes == 0] = np.nan
            return np.concatenate([X, indicators], axis=1)
        indicators = np.where(missing, np.nan, np.array(self.at) != X[:, :F])
        values = np.where(indicators > 0.0, X[:, :F] - self.shift, np.nan)
        return np.concatenate([values, X[:, F:], indicators], axis=1)


def indicated(
    component: Component, at: tuple[float, ...] = (), shift: float = 0.0, *,
    exposed: bool = False, given: GivenColumns | None = None, shared: tuple[int, ...] = (),
) -> Indicated:  # fmt: skip
    """Return a component of values with indicators, whose probabilities have a uniform prior.

    ``at`` and ``shift`` are those of `values_beside`. If ``exposed``, the last column before given
    columns is an exposure, which has no indicator. Columns that are ``given`` come last; they
    explain values and indicators. Columns with the same number in ``shared``, the result of
    `columns_missing_together`, share an indicator.
    """
    D, dtype = component.n_features, component.dtype
    G = 0 if given is None else given.n_columns
    n_indicators = max(shared) + 1 if shared else D - G - exposed
    indicators: Any = Bernoulli(np.ones((n_indicators, 2)), dtype)
    if given is not None:
        indicators = conditioned(indicators, given)
    blocks = (
        Block("values", component, np.arange(D), G),
        Block(
            "indicators", indicators,
            np.append(D + np.arange(n_indicators), np.arange(D - G, D)), G,
        ),
    )  # fmt: skip
    return Indicated(blocks, D, dtype, at=at, shift=shift, shared=shared)


def columns_missing_together(X: Any, weights: Any, n_columns: int) -> tuple[int, ...]:
    """Return the number of the indicator of each of the first F columns of the rows of a fit.

    In order of the columns, each shares the indicator of the first column with which its missing
    values agree, or has the next number. Missing values of two columns agree if Cohen's kappa, 1
    less the ratio of the number of rows in which one alone is missing to the number expected of
    independent columns, is at least ``LEAST_AGREEMENT``, or if neither column has missing values.
    """
    both, total = sums_of_rows(X, weights, partial(_missing_in_both, n_columns))
    share = np.diagonal(both) / total
    apart = share[:, None] + share - 2.0 * both / total
    expected = share[:, None] + share - 2.0 * np.outer(share, share)
    agree = apart <= (1.0 - LEAST_AGREEMENT) * expected + np.finfo(np.float64).eps
    first: list[int] = []
    shared: list[int] = []
    for agrees in agree:
        leaders = np.flatnonzero(agrees[first])
        if leaders.size == 0:
            first.append(len(shared))
        shared.append(int(leaders[0]) if leaders.size else len(first) - 1)
    return tuple(shared)


def _missing_in_both(n_columns: int, X: Any, weights: Array) -> tuple[Any, ...]:
    """Return weighted numbers of rows in which both of two columns are missing, (F, F)."""
    missing = np.isnan(dense(X)[:, :n_columns]).astype(np.float64)
    return (missing.T * weights) @ missing, weights.sum()


def values_beside(at: tuple[float, ...], shift: float, X: Any) -> Array:
    """Return rows with NaN in place of point masses ``at``, and with ``shift`` subtracted.

    Columns after the columns with point masses are unchanged. The result has the dtype of the rows.
    """
    X = dense(X)
    F = len(at)
    values = np.asarray(np.where(np.array(at) == X[:, :F], np.nan, X[:, :F] - shift), X.dtype)
    return values if X.shape[1] == F else np.concatenate([values, X[:, F:]], axis=1)
