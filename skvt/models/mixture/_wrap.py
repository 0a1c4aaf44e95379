"""Base of components that model transformed values of rows.

There are four such components. :mod:`skvt.models.mixture._indicated` adds indicators of whether
values are observed. :mod:`skvt.models.mixture._logs` takes logarithms.
:mod:`skvt.models.mixture._student` gives rows or values random scales.
:mod:`skvt.models.mixture._given_columns` separates rows by cells, the combinations of categories in
columns that explain the others.
"""

from typing import Any

import numpy as np

from skvt.typing import Array


class WrapperMixin:
    """Methods of a :class:`Product` whose first block describes values, such as logarithms.

    The method `_convert_rows` converts rows of the data to rows that begin with the values. A
    second block may describe indicators of values, the Jacobian determinant of logarithms, or
    random scales. The first block predicts missing values, which are converted to the units of the
    data. The arguments ``lam`` of methods are natural parameters of q of K components.
    :class:`skvt.contracts.Component` documents the methods without docstrings.
    """

    # The class that inherits from this mixin and from Product defines these attributes.
    blocks: Any
    family: Any
    n_features: Any
    dtype: Any
    _convert_rows: Any

    @property
    def value_component(self) -> Any:
        """The component of the first block, which models the values."""
        return self.blocks[0].component

    def _extract_values(self, X: Any) -> Any:
        """Convert rows X of the data, and return the columns of the first block."""
        return self._convert_rows(X)[:, : self.value_component.n_features]

    def _convert_to_data_units(self, X: Array, values: Array, *others: Array) -> Array:
        """Convert the values of rows X, or means of these values, to the units of the data.

        ``values`` and the result are (..., n, D). ``others`` are the natural parameters of each
        block except the first.
        """
        return values

    def _convert_draws(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        """Convert draws of the values of rows X, (n, D), to the units of the data."""
        return self._convert_to_data_units(X, draws, *others)

    def with_completed(self, X: Any, completed: Array) -> Any:
        return self.value_component.with_completed(X, completed)

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Return rows (n, D) whose missing values are imputed, in units of the data.

        The first block imputes the values, given the probabilities ``memberships`` (n, K) of the
        components.
        """
        values_lam, *others = self.family.split(lam)
        completed = self.value_component.imputed(self._extract_values(X), values_lam, memberships)
        return np.where(np.isnan(X), self._convert_to_data_units(X, completed, *others), X)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are means in units of the data, (K, n, D)."""
        values_lam, *others = self.family.split(lam)
        means = self.value_component.conditional_mean(self._extract_values(X), values_lam)
        return np.where(np.isnan(X), self._convert_to_data_units(X, means, *others), X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        values_lam, *others = self.family.split(lam)
        draws = self.value_component.conditional_sample(self._extract_values(X), values_lam, rng)
        return np.where(np.isnan(X), self._convert_draws(X, draws, rng, *others), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        values_lam, *others = self.family.split(lam)
        draws = self.value_component.sample(values_lam, n_rows, rng)
        # All values of the result are draws, because no value of these rows is known.
        rows_of_nan = np.full((n_rows, self.n_features), np.nan)
        return self._convert_draws(rows_of_nan, draws, rng, *others).astype(self.dtype)

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        """Return the family and ``lam`` of the values, before they are centred."""
        values_lam, *_ = self.family.split(lam)
        return self.value_component.in_data_coordinates(values_lam)

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        values_lam, *_ = self.family.split(lam)
        return self.value_component.column_probabilities(values_lam, column, X)
