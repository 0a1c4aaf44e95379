"""Values that may not be there: a component, and Bernoullis that say where it has a value.

One mechanism for point masses and for holes that mean something. Of a value x in a column,

    i ~ Bernoulli(p_k),      x | i = 1 ~ F(phi_k),      x | i = 0 is at the point mass, or missing.

With a point mass, ``i = [x is not there]``, and unknown where x is missing; with missing values,
``i = [x is observed]``, always known. The component has a hole where i is 0. Both parts have the
same rows, so that they are a product of two blocks: of the values, and of the indicators.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from skvt.contracts import Component
from skvt.files import in_files
from skvt.models.mixture._given_columns import Conditioned, GivenColumns, conditioned
from skvt.models.mixture._product import Block
from skvt.models.mixture._wrap import Wrapped
from skvt.models.mixture.components import Bernoulli
from skvt.rows import dense
from skvt.typing import Array


@in_files("models.Indicated")
@dataclass(frozen=True)
class Indicated(Wrapped):
    """Values and their indicators: blocks "values" and "indicators" of rows of D + F columns.

    The first F of D columns have indicators: all but an exposure and given columns, whose values
    are always known. Densities are with respect to Lebesgue measure (or counts) plus a unit mass at
    each ``at``; those of rows with missing values include the probability that these are missing.
    """

    # Point mass of each of the F columns; none where indicators are of missing values.
    at: tuple[float, ...] = field(default=(), kw_only=True)
    # Subtracted from the values.
    shift: float = field(default=0.0, kw_only=True)
    # Columns whose indicators are not known.
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
    def _of_holes(self) -> bool:
        return not self.at

    @property
    def _indicators(self) -> Any:
        return self.blocks[1].component

    @property
    def _n_indicators(self) -> int:
        """F."""
        return self.blocks[1].explained.size

    def _unknown(self, X: Array) -> Array:
        """Return the rows of the block of indicators, without any indicator."""
        made = np.concatenate([X, np.full((len(X), self._n_indicators), np.nan)], axis=1)
        return made[:, self.blocks[1].columns]

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Rows with the values that the component of the values completes.

        Where missing values mean something, they stay missing, as the indicators say.
        """
        return X if self._of_holes else super().with_completed(X, completed)

    def without_indicator(self, column: int) -> "Indicated":
        return replace(self, silent=(*self.silent, column)) if self._of_holes else self

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Missing values replaced; beside a point mass, by the mean of both parts."""
        if self._of_holes:
            return np.asarray(self._values.imputed(X, self.family.split(lam)[0], memberships))
        return super().imputed(X, lam, memberships)

    def _means_of_data(self, X: Array, means: Array, *others: Array) -> Array:
        if self._of_holes:
            return means
        F, at, out = self._n_indicators, np.array(self.at), means.copy()
        share = self._indicators.conditional_mean(self._unknown(X), others[0])[..., :F]
        out[..., :F] = share * (means[..., :F] + self.shift) + (1.0 - share) * at
        return out

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        if self._of_holes:  # a hole has a value, too
            of_values = self.family.split(lam)[0]
            return np.asarray(self._values.conditional_sample(X, of_values, rng))
        return super().conditional_sample(X, lam, rng)

    def _draws_of_data(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        """Return the draws, or the point mass or a hole where the indicators say so."""
        out, F = np.array(draws, np.float64), self._n_indicators
        there = self._indicators.conditional_sample(self._unknown(X), others[0], rng)[:, :F] > 0.0
        out[:, :F] = np.where(there, out[:, :F] + self.shift, self.at or np.nan)
        return out

    def column_evidence(self, sums: Array) -> Array:
        """Of the values of each column and of its indicators, (K, D) in nats."""
        evidence = super().column_evidence(sums)
        D = evidence.shape[1] - self._n_indicators
        evidence[:, : self._n_indicators] += evidence[:, D:]
        return evidence[:, :D]

    def marginals(self, lam: Array) -> Any:
        """Of the values, and of the shares of rows that have one."""
        values, (shares,) = super().marginals(lam)
        names = [f"share not {at:g}" for at in self.at] or ["share observed"] * self._n_indicators
        own = (shares.some([d])._replace(quantity=name) for d, name in enumerate(names))
        return (*values, *own)

    def _made(self, X: Any) -> Array:
        """Values, NaN where there is none, and indicators, NaN where not known: (n, 2 D)."""
        X, F = np.asarray(dense(X), np.float64), self._n_indicators
        missing = np.isnan(X[:, :F])
        if self._of_holes:
            there = np.where(missing, 0.0, 1.0)
            there[:, list(self.silent)] = np.nan
            return np.concatenate([X, there], axis=1)
        there = np.where(missing, np.nan, np.array(self.at) != X[:, :F])
        values = np.where(there > 0.0, X[:, :F] - self.shift, np.nan)
        return np.concatenate([values, X[:, F:], there], axis=1)


def indicated(
    component: Component, at: tuple[float, ...] = (), shift: float = 0.0, *,
    exposed: bool = False, given: GivenColumns | None = None,
) -> Indicated:  # fmt: skip
    """A component with indicators of uniform prior; ``at``, ``shift`` as in `values_beside`.

    If ``exposed``, the last column is an exposure, which has no indicator; columns that are
    ``given`` follow, and explain indicators, too.
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
    """Rows less a shift, with NaN at the point masses, which are numbers of their precision.

    Columns after those with point masses are unchanged.
    """
    X = dense(X)
    F = len(at)
    values = np.asarray(np.where(np.array(at) == X[:, :F], np.nan, X[:, :F] - shift), X.dtype)
    return values if X.shape[1] == F else np.concatenate([values, X[:, F:]], axis=1)
