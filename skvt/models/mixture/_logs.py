"""Columns whose logarithms are modelled: amounts such as incomes, prices and areas.

Let y = log x in some columns, and y = x in the other columns. If f(y | phi) is the density of y in
a component with the parameters phi, the density of x is

    p(x | phi) = f(y | phi) prod_j 1 / x_j,

where j runs over the columns in logarithms whose value is not missing. The product is the Jacobian
determinant of y as a function of x, and it has no parameters. A separate block of columns
contributes this product, so that all bounds and densities refer to x.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from skvt.contracts import Component
from skvt.expfam import Dirichlet
from skvt.files import are_indices_below, in_files
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import ConjugateComponent
from skvt.rows import dense
from skvt.typing import Array, IndexArray


@in_files("models.Volume")
@dataclass(frozen=True)
class Volume(ConjugateComponent):
    """The factor ``prod_j 1 / x_j`` of a density, as a component of rows of logarithms log x_j.

    Every component needs parameters with a prior. This component has a Dirichlet with two entries,
    on which no density depends.
    """

    n_features: int
    dtype: np.dtype[Any]
    prior: Annotated[Array, "1 2"] = field(default_factory=lambda: np.ones((1, 2)))

    family = Dirichlet
    # The coefficient of the only feature, the log of the factor.
    base = 1.0

    def features(self, X: Any) -> Array:
        """Return the negative sum of the logarithms in each row, (n, 1)."""
        return np.asarray(-np.nansum(X, axis=1, keepdims=True))

    def natural_sums(self, sums: Array) -> Array:
        return np.zeros((*sums.shape[:-1], 1, 2))

    def feature_coefficients(self, t: Array) -> Array:
        return np.zeros((*t.shape[:-2], 1))


class NoVolume(Volume):
    """The factor 1 in place of a :class:`Volume`, for densities of logarithms."""

    base = 0.0


@in_files("models.Logged")
@dataclass(frozen=True)
class Logged(WrapperMixin, Product):
    """Product of the block "values" of all columns and the block "volume".

    The values are logarithms in some columns and the numbers themselves in the other columns. The
    block "volume" has the columns in logarithms. The arguments ``lam`` (K, E) of methods are
    natural parameters of q of K components.
    """

    # Lower limit of each column in logarithms. Smaller numbers are raised to the limit, since the
    # logarithms must be finite.
    least: tuple[float, ...] = field(kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        """Return whether the fields fit each other and data of ``d`` columns, for loaded files."""
        values, volume = self.blocks
        least = np.array(self.least)
        return (
            (values.name, volume.name) == ("values", "volume")
            and type(volume.component) is Volume
            and np.array_equal(values.columns, np.arange(d))
            and volume.component.n_features > 0
            and self.log_columns.shape == least.shape == (volume.component.n_features,)
            and are_indices_below(self.log_columns, d)
            and bool(np.all((least > 0.0) & np.isfinite(least)))
        )

    @property
    def log_columns(self) -> IndexArray:
        """Positions of the columns in logarithms."""
        return self.blocks[1].columns

    @property
    def without_jacobian(self) -> "Logged":
        values, volume = self.blocks
        components = values.component, NoVolume(volume.component.n_features, volume.component.dtype)
        return self.with_components(components)

    def _convert_to_data_units(self, X: Array, values: Array, *others: Array) -> Array:
        """Return values with exponentials in place of logarithms.

        If ``values`` are means of logarithms, which are also their medians, the exponentials are
        medians.
        """
        data_values = np.array(values)
        data_values[..., self.log_columns] = np.exp(data_values[..., self.log_columns])
        return data_values

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Return the parts of the block "values", since the block "volume" has no parameters."""
        values_lam, _ = self.family.split(lam)
        return self.value_component.parts(values_lam)

    def column_evidence(self, sums: Array) -> Array:
        return self.value_component.column_evidence(self.split_by_block(sums)[0])

    def marginals(self, lam: Array) -> Any:
        """Return the marginals of all columns.

        For columns in logarithms, medians take the place of means, and standard deviations are
        standard deviations of the logarithms.
        """
        marginals_of_values, _ = super().marginals(lam)
        return tuple(each for group in marginals_of_values for each in self._separate_logs(group))

    def _separate_logs(self, marginals: Marginals) -> list[Marginals]:
        """Separate the marginals of columns of numbers from those of columns in logarithms.

        Means of logarithms become medians of the numbers. The names of other quantities get the
        suffix "of logarithm".
        """
        is_log = np.isin(marginals.columns, self.log_columns)
        logs, others = marginals.select(is_log), marginals.select(~is_log)
        if marginals.quantity == "mean":
            estimate = np.exp(logs.estimate)
            medians = Marginals(
                "median", logs.columns, estimate, lambda p: np.exp(logs.quantile(p))
            )
            return [others, medians]
        return [others, logs._replace(quantity=f"{marginals.quantity} of logarithm")]

    def _convert_rows(self, X: Any) -> Array:
        return take_logarithms(self.log_columns, self.least, X)


def model_logarithms(
    component: Component, log_columns: IndexArray, lower_limits: tuple[float, ...]
) -> Logged:
    """Return a component of rows in the units of the data.

    ``component`` describes the rows that :func:`take_logarithms` makes of these rows.
    """
    D, dtype = component.n_features, component.dtype
    values = Block("values", component, np.arange(D))
    volume = Block("volume", Volume(log_columns.size, dtype), log_columns)
    return Logged((values, volume), D, dtype, least=lower_limits)


def take_logarithms(log_columns: IndexArray, lower_limits: tuple[float, ...], X: Any) -> Array:
    """Return rows with logarithms in the columns ``log_columns``.

    Numbers below the ``lower_limits`` of these columns are raised to the limits.
    """
    rows = np.array(dense(X))
    rows[:, log_columns] = np.log(np.maximum(rows[:, log_columns], lower_limits))
    return rows
