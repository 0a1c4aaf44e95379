"""Columns whose logarithms are modelled: amounts such as incomes, prices and areas.

With y = log x in some columns, and y = x in the others, the component's density of x is

    p(x | phi) = f(y | phi) prod_j 1 / x_j,

j over the logarithms that are not missing. The factor has no parameters. It is a block of its own,
so that bounds and densities are those of x, whatever is modelled.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skvt.contracts import Component
from skvt.expfam import Dirichlet
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture.components import ConjugateComponent
from skvt.rows import dense
from skvt.typing import Array, IndexArray


@dataclass(frozen=True)
class Volume(ConjugateComponent):
    """The factor ``prod_j 1 / x_j`` as a component; nothing depends on its parameter."""

    n_features: int
    dtype: np.dtype[Any]
    prior: Array = field(default_factory=lambda: np.ones((1, 2)))

    family = Dirichlet
    base = 1.0

    def features(self, X: Any) -> Array:
        """Minus the sum of a row's logarithms, (n, 1)."""
        return np.asarray(-np.nansum(X, axis=1, keepdims=True))

    def spread(self, sums: Array) -> Array:
        return np.zeros((*sums.shape[:-1], 1, 2))

    def gather(self, t: Array) -> Array:
        return np.zeros((*t.shape[:-2], 1))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Nothing: the rows are the values' own."""
        raise NotImplementedError


@dataclass(frozen=True)
class Logged(Product):
    """Blocks "values", of all columns with logarithms in some, and "volume", of these."""

    # Least numbers whose logarithms are taken; those below count as these.
    least: tuple[float, ...] = field(kw_only=True)

    @property
    def logs(self) -> IndexArray:
        return self.blocks[1].columns

    @property
    def _values(self) -> Any:
        return self.blocks[0].component

    def filled(self, X: Any) -> Any:
        """Rows as they are: whose features need no filling in is for the component to say."""
        return X

    def with_completed(self, X: Any, completed: Array) -> Any:
        return self._values.with_completed(X, completed)

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Missing values at their means, in logarithms at their geometric means."""
        own = self.family.split(lam)[0]
        filled = self._values.imputed(self._made(X), own, memberships)
        return np.where(np.isnan(X), self._raised(filled), X)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Rows with missing values at their means, in logarithms at their medians: (K, n, D)."""
        mean = self._values.conditional_mean(self._made(X), self.family.split(lam)[0])
        return np.where(np.isnan(X), self._raised(mean), X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        own = self.family.split(lam)[0]
        drawn = self._values.conditional_sample(self._made(X), own, rng)
        return np.where(np.isnan(X), self._raised(drawn), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        return self._raised(self._values.sample(self.family.split(lam)[0], n_rows, rng))

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """Of the values, which have all parameters."""
        found: tuple[Any, Array] = self._values.uncentred(self.family.split(lam)[0])
        return found

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """The values are all that has parameters."""
        return {}

    def column_evidence(self, sums: Array) -> Array:
        return np.asarray(self._values.column_evidence(self.of_blocks(sums)[0]))

    def marginals(self, lam: Array) -> Any:
        """Of columns in logarithms the medians, and deviations of the logarithms."""
        return tuple(
            part for own in super().marginals(lam)[0] for part in self._in_units_of_data(own)
        )

    def _in_units_of_data(self, own: Marginals) -> list[Marginals]:
        logged = np.isin(own.columns, self.logs)
        logs, found = own.some(logged), [own.some(~logged)]
        if own.quantity == "mean":
            estimate = np.exp(logs.estimate)
            medians = Marginals(
                "median", logs.columns, estimate, lambda p: np.exp(logs.quantile(p))
            )
            return [*found, medians]
        return [*found, logs._replace(quantity=f"{own.quantity} of logarithm")]

    def _made(self, X: Any) -> Array:
        return logarithms(self.logs, self.least, X)

    def _raised(self, rows: Array) -> Array:
        """Logarithms (..., D) as numbers again."""
        out = np.array(rows)
        out[..., self.logs] = np.exp(out[..., self.logs])
        return out


def logged(component: Component, logs: IndexArray, least: tuple[float, ...]) -> Logged:
    """A component of rows with :func:`logarithms` as one of the rows."""
    D, dtype = component.n_features, component.dtype
    blocks = (
        Block("values", component, np.arange(D)),
        Block("volume", Volume(logs.size, dtype), logs),
    )
    return Logged(blocks, D, dtype, least=least)


def logarithms(logs: IndexArray, least: tuple[float, ...], X: Any) -> Array:
    """Rows with the logarithms of these columns, of numbers that are ``least`` or more."""
    rows = np.array(dense(X))
    rows[:, logs] = np.log(np.maximum(rows[:, logs], least))
    return rows
