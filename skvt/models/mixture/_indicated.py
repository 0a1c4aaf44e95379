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
from skvt.expfam import Dirichlet
from skvt.files import in_files
from skvt.models.mixture._product import Block
from skvt.models.mixture._wrap import Wrapped
from skvt.models.mixture.components import Bernoulli
from skvt.rows import dense
from skvt.typing import Array


@in_files("models.Indicated")
@dataclass(frozen=True)
class Indicated(Wrapped):
    """Values and their indicators: blocks "values" and "indicators" of rows of D + F columns.

    The first F of D columns have indicators: all but an exposure, which is always known. Densities
    are with respect to Lebesgue measure (or counts) plus a unit mass at each ``at``; those of rows
    with missing values include the probability that these are missing.
    """

    # Point mass of each of the D columns; none where indicators are of missing values.
    at: tuple[float, ...] = field(default=(), kw_only=True)
    # Subtracted from the values.
    shift: float = field(default=0.0, kw_only=True)
    # Columns whose indicators are not known.
    silent: tuple[int, ...] = field(default=(), kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        return (
            [block.name for block in self.blocks] == ["values", "indicators"]
            and type(self.blocks[1].component) is Bernoulli
            and self._n_indicators in (d, d - 1)  # an exposure has no indicator
            and self._are_disjoint(d + self._n_indicators)
            and len(self.at) in (0, d)
            and self.shift in (0.0, 1.0)
            and not self.silent
        )

    @property
    def _of_holes(self) -> bool:
        return not self.at

    @property
    def _n_indicators(self) -> int:
        """F."""
        return self.blocks[1].columns.size

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

    def _means_of_data(self, means: Array, *others: Array) -> Array:
        if self._of_holes:
            return means
        share = Dirichlet.mean(others[0])[:, None, :, 0]
        return np.asarray(share * (means + self.shift) + (1.0 - share) * np.array(self.at))

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        if self._of_holes:  # a hole has a value, too
            of_values = self.family.split(lam)[0]
            return np.asarray(self._values.conditional_sample(X, of_values, rng))
        return super().conditional_sample(X, lam, rng)

    def _draws_of_data(self, draws: Array, rng: np.random.Generator, *others: Array) -> Array:
        """Return the draws, or the point mass or a hole where the indicators say so."""
        out, F = np.array(draws, np.float64), self._n_indicators
        there = rng.random((len(out), F)) < Dirichlet.mean(others[0])[:, 0]
        out[:, :F] = np.where(there, out[:, :F] + self.shift, self.at or np.nan)
        return out

    def column_evidence(self, sums: Array) -> Array:
        """Of the values of each column and of its indicators, (K, D) in nats."""
        evidence, D = super().column_evidence(sums), self.n_features
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
        X = np.asarray(dense(X), np.float64)
        missing = np.isnan(X)
        if self._of_holes:
            there = np.where(missing[:, : self._n_indicators], 0.0, 1.0)
            there[:, list(self.silent)] = np.nan
            return np.concatenate([X, there], axis=1)
        there = np.where(missing, np.nan, np.array(self.at) != X)
        return np.concatenate([np.where(there > 0.0, X - self.shift, np.nan), there], axis=1)


def indicated(
    component: Component, at: tuple[float, ...] = (), shift: float = 0.0, *, exposed: bool = False
) -> Indicated:
    """A component with indicators of uniform prior; ``at``, ``shift`` as in `values_beside`.

    If ``exposed``, the last column is an exposure, which has no indicator.
    """
    D, dtype = component.n_features, component.dtype
    F = D - exposed
    blocks = (
        Block("values", component, np.arange(D)),
        Block("indicators", Bernoulli(np.ones((F, 2)), dtype), D + np.arange(F)),
    )
    return Indicated(blocks, D, dtype, at=at, shift=shift)


def values_beside(at: tuple[float, ...], shift: float, X: Any) -> Array:
    """Rows less a shift, with NaN at the point masses, which are numbers of their precision."""
    X = dense(X)
    return np.asarray(np.where(np.array(at) == X, np.nan, X - shift), X.dtype)
