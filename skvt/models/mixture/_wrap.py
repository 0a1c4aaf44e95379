"""Base of components that wrap a component of all columns, to add indicators or to take logarithms.

See :mod:`skvt.models.mixture._indicated`, :mod:`skvt.models.mixture._logs` and, for scales of
rows, :mod:`skvt.models.mixture._student`.
"""

from typing import Any

import numpy as np

from skvt.models.mixture.components import ConjugateComponent
from skvt.typing import Array


class WrapperMixin:
    """Methods of a :class:`Product` whose first block describes the values of all columns.

    The method `_made` returns the values in its first columns. The other blocks describe the
    variables that convert values to rows of the data: indicators, volumes or scales. Missing values
    are filled in by the first block and converted to the units of the data.
    """

    # Attributes of the product.
    blocks: Any
    family: Any
    n_features: Any
    dtype: Any
    _made: Any

    @property
    def _values(self) -> Any:
        """The component of the first block."""
        return self.blocks[0].component

    def _means_of_data(self, X: Array, means: Array, *others: Array) -> Array:
        """Convert means of values (K, n, D) to means of rows X; ``others`` are ``lam`` of blocks.

        There is one ``lam`` for each block but the first.
        """
        return means

    def _draws_of_data(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        """Convert draws of values (n, D) to draws of rows X; ``others`` are ``lam`` of blocks."""
        return draws

    def imputed(self: Any, X: Array, lam: Array, memberships: Array) -> Array:
        return ConjugateComponent.imputed(self, X, lam, memberships)

    def filled(self, X: Any) -> Any:
        """Return the rows unchanged: the block of values completes them to compute features."""
        return X

    def with_completed(self, X: Any, completed: Array) -> Any:
        return self._values.with_completed(X, completed)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        values_lam, *others = self.family.split(lam)
        means = self._values.conditional_mean(self._made(X)[:, : self.n_features], values_lam)
        return np.where(np.isnan(X), self._means_of_data(X, means, *others), X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        values_lam, *others = self.family.split(lam)
        values = self._made(X)[:, : self.n_features]
        draws = self._values.conditional_sample(values, values_lam, rng)
        return np.where(np.isnan(X), self._draws_of_data(X, draws, rng, *others), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        values_lam, *others = self.family.split(lam)
        draws = self._values.sample(values_lam, n_rows, rng)
        unknown = np.full((n_rows, self.n_features), np.nan)
        return self._draws_of_data(unknown, draws, rng, *others).astype(self.dtype)

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        values_lam = self.family.split(lam)[0]
        return np.asarray(self._values.column_probabilities(values_lam, column, X))
