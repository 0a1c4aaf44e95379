"""Base of components that model transformed values of rows, and a second block of variables.

There are three such components: :mod:`skvt.models.mixture._indicated` adds indicators of values,
:mod:`skvt.models.mixture._logs` takes logarithms, and :mod:`skvt.models.mixture._student` gives
rows or values random scales.
"""

from typing import Any

import numpy as np

from skvt.models.mixture.components import ConjugateComponent
from skvt.typing import Array


class WrapperMixin:
    """Methods of a :class:`Product` whose first block describes the values of all columns.

    Values are the numbers that the first block models, such as logarithms of the data. The method
    `_convert_rows` converts rows of the data to rows whose first D columns are values, where D is
    ``n_features``. The second block describes indicators of values, the volume element (Jacobian
    determinant) of logarithms, or random scales. Missing values are predicted by the first block
    and converted to the units of the data.
    """

    # The subclass of Product defines these attributes.
    blocks: Any
    family: Any
    n_features: Any
    dtype: Any
    _convert_rows: Any

    @property
    def _values(self) -> Any:
        """The component of the first block, which models the values."""
        return self.blocks[0].component

    def _means_of_data(self, X: Array, means: Array, *others: Array) -> Array:
        """Convert means of the values of rows X, (K, n, D), to the units of the data.

        ``others`` has the natural parameters ``lam`` of each block except the first.
        """
        return means

    def _draws_of_data(
        self, X: Array, draws: Array, rng: np.random.Generator, *others: Array
    ) -> Array:
        """Convert draws of the values of rows X, (n, D), to the units of the data.

        ``others`` has the natural parameters ``lam`` of each block except the first.
        """
        return draws

    # Use conditional means in the units of the data, because `Product.imputed` would complete each
    # block.
    imputed = ConjugateComponent.imputed
    # Rows stay unchanged, because the method `filled_features` fills in the values.
    filled = ConjugateComponent.filled

    def with_completed(self, X: Any, completed: Array) -> Any:
        return self._values.with_completed(X, completed)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are means in units of the data, (K, n, D)."""
        values_lam, *others = self.family.split(lam)
        values = self._convert_rows(X)[:, : self.n_features]
        means = self._values.conditional_mean(values, values_lam)
        return np.where(np.isnan(X), self._means_of_data(X, means, *others), X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        values_lam, *others = self.family.split(lam)
        values = self._convert_rows(X)[:, : self.n_features]
        draws = self._values.conditional_sample(values, values_lam, rng)
        return np.where(np.isnan(X), self._draws_of_data(X, draws, rng, *others), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        values_lam, *others = self.family.split(lam)
        draws = self._values.sample(values_lam, n_rows, rng)
        # All values of the rows are unknown, so that all of them are drawn.
        unknown = np.full((n_rows, self.n_features), np.nan)
        return self._draws_of_data(unknown, draws, rng, *others).astype(self.dtype)

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        values_lam = self.family.split(lam)[0]
        return np.asarray(self._values.column_probabilities(values_lam, column, X))
