"""Columns whose logarithms are modelled: amounts such as incomes, prices and areas.

With y = log x in some columns, and y = x in the others, the component's density of x is

    p(x | phi) = f(y | phi) prod_j 1 / x_j,

where j runs over the columns in logarithms whose value is not missing. The product is the Jacobian
determinant of y as a function of x. It has no parameters. It is a separate block, so that all
bounds and densities refer to x.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from skvt.contracts import Component
from skvt.expfam import Dirichlet
from skvt.files import in_files, is_within
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import ConjugateComponent
from skvt.rows import dense
from skvt.typing import Array, IndexArray


@in_files("models.Volume")
@dataclass(frozen=True)
class Volume(ConjugateComponent):
    """The factor ``prod_j 1 / x_j`` as a component of rows of logarithms.

    It needs a family of globals like any component; no density depends on its parameter.
    """

    n_features: int
    dtype: np.dtype[Any]
    prior: Annotated[Array, "1 2"] = field(default_factory=lambda: np.ones((1, 2)))

    family = Dirichlet
    base = 1.0

    def features(self, X: Any) -> Array:
        """Return minus the sum of each row's logarithms, (n, 1)."""
        return np.asarray(-np.nansum(X, axis=1, keepdims=True))

    def spread(self, sums: Array) -> Array:
        return np.zeros((*sums.shape[:-1], 1, 2))

    def gather(self, t: Array) -> Array:
        return np.zeros((*t.shape[:-2], 1))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Raise an error: the block of values draws the rows."""
        raise NotImplementedError


@in_files("models.Logged")
@dataclass(frozen=True)
class Logged(WrapperMixin, Product):
    """Product of the block "values" of all columns and the block "volume" of those in logarithms.

    The values are logarithms in some columns and numbers in the others.
    """

    # Smallest legal number of each column in logarithms; smaller numbers are raised to it.
    least: tuple[float, ...] = field(kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        values, volume = self.blocks
        least = np.array(self.least)
        return (
            (values.name, volume.name) == ("values", "volume")
            and type(volume.component) is Volume
            and np.array_equal(values.columns, np.arange(d))
            and self.logs.shape == least.shape == (volume.component.n_features,) != (0,)
            and is_within(self.logs, d)
            and bool(np.all((least > 0.0) & np.isfinite(least)))
        )

    @property
    def logs(self) -> IndexArray:
        return self.blocks[1].columns

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Return missing values at their means, or geometric means in columns in logarithms."""
        values_lam = self.family.split(lam)[0]
        filled = self._values.imputed(self._convert_rows(X), values_lam, memberships)
        return np.where(np.isnan(X), self._raised(filled), X)

    def _means_of_data(self, X: Array, means: Array, *others: Array) -> Array:
        """Return medians in columns in logarithms."""
        return self._raised(means)

    def _draws_of_data(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        return self._raised(draws)

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """Return the family and parameters of the values, which have all parameters."""
        uncentred: tuple[Any, Array] = self._values.uncentred(self.family.split(lam)[0])
        return uncentred

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Return the parts of the values, since only these have parameters."""
        parts: dict[str, tuple[Any, Array]] = self._values.parts(self.family.split(lam)[0])
        return parts

    def column_evidence(self, sums: Array) -> Array:
        return np.asarray(self._values.column_evidence(self.split_by_block(sums)[0]))

    def marginals(self, lam: Array) -> Any:
        """Return marginals, with medians and deviations of logarithms for columns in logarithms."""
        return tuple(
            part
            for of_values in super().marginals(lam)[0]
            for part in self._in_units_of_data(of_values)
        )

    def _in_units_of_data(self, marginals: Marginals) -> list[Marginals]:
        logged = np.isin(marginals.columns, self.logs)
        logs, others = marginals.select(logged), marginals.select(~logged)
        if marginals.quantity == "mean":
            estimate = np.exp(logs.estimate)
            medians = Marginals(
                "median", logs.columns, estimate, lambda p: np.exp(logs.quantile(p))
            )
            return [others, medians]
        return [others, logs._replace(quantity=f"{marginals.quantity} of logarithm")]

    def _convert_rows(self, X: Any) -> Array:
        return logarithms(self.logs, self.least, X)

    def _raised(self, rows: Array) -> Array:
        """Return rows (..., D) with exponentials in the columns in logarithms."""
        out = np.array(rows)
        out[..., self.logs] = np.exp(out[..., self.logs])
        return out


def logged(component: Component, logs: IndexArray, least: tuple[float, ...]) -> Logged:
    """Return a component of rows whose :func:`logarithms` follow ``component``."""
    D, dtype = component.n_features, component.dtype
    blocks = (
        Block("values", component, np.arange(D)),
        Block("volume", Volume(logs.size, dtype), logs),
    )
    return Logged(blocks, D, dtype, least=least)


def logarithms(logs: IndexArray, least: tuple[float, ...], X: Any) -> Array:
    """Return rows with logarithms in these columns, after raising numbers to at least ``least``."""
    rows = np.array(dense(X))
    rows[:, logs] = np.log(np.maximum(rows[:, logs], least))
    return rows
