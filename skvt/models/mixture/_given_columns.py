"""Columns of bits, categories and counts whose distributions depend on given columns.

Given columns explain the other columns and have no distribution themselves: the likelihood of
component k is ``p(y | w, phi_k)``, where w are the given values of a row, and y are its other
values. A given column holds numbers or categories, whose values are called levels.

:class:`GivenColumns` converts w to regressors and to a cell. Regressors explain columns of real
numbers, see :mod:`skvt.models.mixture._regression`. A cell is a combination of levels of all given
categories. It explains columns of bits, categories and counts, see :class:`Conditioned`. Such a
column d has separate parameters in each cell,

    y_d | z = k, cell c ~ p(. | phi_kcd),        phi_kcd ~ H(eta_d),

where p is the density of the values, z is the component of the row, and H is the prior. The
parameters of all cells are independent given the component, so that a row informs the parameters of
one cell only. With C cells and F such columns, a row is treated as a row of C F columns: the F
columns of its cell have values, and the columns of all other cells are missing. Cells therefore
need no approximation beyond the treatment of missing values. Given columns of numbers do not affect
columns of bits, categories or counts.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from skvt.files import POSITIVE, in_files
from skvt.models.mixture._gaussian_prior import weighted_moments
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import ConjugateComponent, dense_rows
from skvt.rows import evaluate_rows, map_rows
from skvt.typing import Array, IndexArray

# Maximum number of cells. It limits the number of parameters and of columns of converted rows.
MAX_CELLS = 200
# Added to the variances of standardised regressors, because regressors may be linearly dependent.
_REGRESSOR_RIDGE = 1e-6


@in_files("models.GivenColumns")
@dataclass(frozen=True)
class GivenColumns:
    """Conversion of G given columns to R regressors and to C cells.

    A column of numbers is one regressor. A category of L levels has L - 1 regressors, the
    indicators of all levels except the first. Regressors are standardised by the rows of the fit.
    Each combination of levels that occurs in these rows is a cell. If other combinations are
    possible, they share one further cell.
    """

    # Number of levels of each given column, 0 if it holds numbers.
    sizes: tuple[int, ...]
    # Names of the R regressors.
    labels: tuple[str, ...]
    # (R,): means of the regressors.
    center: Annotated[Array, "r"]
    # (R,): standard deviations of the regressors.
    scale: Annotated[Array, "r", POSITIVE]
    # (R, R): covariance of the standardised regressors.
    moment: Annotated[Array, "r r"]
    # Numbers, see :meth:`combination`, of the combinations of levels that occur in the fit, in
    # ascending order. Cell c is the combination ``combinations[c]``.
    combinations: Annotated[IndexArray, "c"]
    # (C,): share of the rows of the fit in each cell. If other combinations are possible, their
    # common cell is the last one, with the share 0.
    shares: Annotated[Array, "c | c+1"]

    def validate(self, d: int, k: int) -> bool:
        """Return whether the fields of a conversion from a file fit each other."""
        combinations = self.combinations
        return (
            min(self.sizes) >= 0
            and self.n_regressors == len(self.labels) == self.center.size > 0
            and bool(np.all(np.isfinite(self.moment)) and np.linalg.eigvalsh(self.moment)[0] > 0.0)
            and combinations.dtype.kind in "iu"
            and combinations.size > 0
            and bool(np.all(np.diff(combinations) > 0) and combinations[0] >= 0)
            and bool(np.all(self.shares >= 0.0))
        )

    @classmethod
    def from_rows(
        cls, X: Any, weights: Any, sizes: tuple[int, ...], labels: tuple[str, ...]
    ) -> "GivenColumns":
        """Derive the conversion from the given columns X (n, G) of the rows of a fit.

        Raises ValueError if there are no regressors.
        """
        if not labels:
            raise ValueError(
                "The given columns have the same value in all rows and explain nothing. Name "
                "columns in 'given' that differ between rows, or set given=None."
            )
        # The methods that are called on ``unfitted`` use only ``sizes``.
        empty = np.zeros(0)
        unfitted = cls(sizes, labels, empty, empty, empty, np.zeros(0, np.intp), empty)
        # Standardise the regressors.
        center, moment = weighted_moments(map_rows(X, unfitted.raw_regressors), weights, "full")
        deviation = np.sqrt(np.diagonal(moment))
        scale = np.where(deviation > 0.0, deviation, 1.0)
        moment = moment / scale / scale[:, None] + _REGRESSOR_RIDGE * np.eye(scale.size)
        # Find the combinations that occur, and the share of the rows in each cell. If further
        # combinations are possible, append their common cell.
        combination_numbers = evaluate_rows(X, weights, unfitted.combination).astype(np.intp)
        combinations, cells = np.unique(combination_numbers, return_inverse=True)
        shares = np.bincount(cells, np.asarray(weights)) / weights.sum()
        if np.prod(np.maximum(sizes, 1), dtype=np.float64) > combinations.size:
            shares = np.append(shares, 0.0)
        return cls(sizes, labels, center, scale, moment, combinations, shares)

    @property
    def n_columns(self) -> int:
        """G, the number of given columns."""
        return len(self.sizes)

    @property
    def n_regressors(self) -> int:
        """R, the number of regressors."""
        return sum(max(size - 1, 0) if size else 1 for size in self.sizes)

    def raw_regressors(self, X: Any) -> Array:
        """Return the regressors (n, R) of given columns X (n, G) before standardisation."""
        X = dense_rows(X)
        regressors = [
            X[:, [g]] if size == 0 else (X[:, [g]] == np.arange(1, size)).astype(np.float64)
            for g, size in enumerate(self.sizes)
        ]
        return np.concatenate(regressors, axis=1)

    def regressors(self, X: Any) -> Array:
        """Return the standardised regressors, (n, R)."""
        return (self.raw_regressors(X) - self.center) / self.scale

    def combination(self, X: Any) -> Array:
        """Return a number, (n,), that identifies each row's combination of levels.

        The digits of the number, in a mixed radix, are the levels of the given categories.
        """
        X, number = dense_rows(X), np.zeros(X.shape[0])
        for g, size in enumerate(self.sizes):
            if size:
                number = number * size + X[:, g]
        return number

    def cells(self, X: Any) -> IndexArray:
        """Return the cell of each row, (n,)."""
        numbers, combinations = self.combination(X).astype(np.intp), self.combinations
        # Find the position of each number in the sorted ``combinations``. Numbers that are not in
        # ``combinations``, because they do not occur in the fit, belong to the last cell.
        cells = np.minimum(np.searchsorted(combinations, numbers), combinations.size - 1)
        return np.where(combinations[cells] == numbers, cells, combinations.size)


@in_files("models.Conditioned")
@dataclass(frozen=True)
class Conditioned(WrapperMixin, Product):
    """Columns of bits, categories or counts with separate parameters in each cell.

    Rows of the data have F columns with parameters, then an exposure if ``exposed``, then G given
    columns. D is F + 1 with an exposure, and F otherwise. The only block, "values", describes
    converted rows. A converted row has the F columns of each cell, cell after cell, and then the
    exposure. Its values are NaN in all cells except the cell of the row.
    """

    given: GivenColumns = field(kw_only=True)
    # Whether the last of the D columns is an exposure, which has no parameters.
    exposed: bool = field(default=False, kw_only=True)

    sparse = False

    def validate(self, d: int, k: int) -> bool:
        """Return whether the block of a component from a file has the columns of all cells."""
        (block,), F = self.blocks, self._n_in_cell
        return (
            block.name == "values"
            and F > 0
            and self.value_component.n_features == self._n_cells * F + self.exposed
            and np.array_equal(block.columns, np.arange(self.value_component.n_features))
        )

    @property
    def n_explained(self) -> int:
        """D, the number of columns that are not given, including an exposure."""
        return self.n_features - self.given.n_columns

    @property
    def _n_cells(self) -> int:
        """C, the number of cells."""
        return self.given.shares.size

    @property
    def _n_in_cell(self) -> int:
        """F, the number of columns with parameters in each cell."""
        return self.n_explained - self.exposed

    def _index_cells(self, X: Any) -> tuple[IndexArray, IndexArray]:
        """Return the indices of all rows, (n,), and their cells, (n,).

        With this pair as an index, an array (n, C, ...) returns the entries of each row's cell.
        """
        return np.arange(X.shape[0]), self.given.cells(X[:, self.n_explained :])

    def _convert_rows(self, X: Any) -> Array:
        """Return converted rows, (n, C F) without and (n, C F + 1) with an exposure."""
        X, F, D = dense_rows(X), self._n_in_cell, self.n_explained
        values = np.full((len(X), self._n_cells, F), np.nan)
        values[self._index_cells(X)] = X[:, :F]
        return np.concatenate([values.reshape(len(X), -1), X[:, F:D]], axis=1)

    def _convert_to_data_units(self, X: Array, values: Array, *others: Array) -> Array:
        """Return rows X, (..., n, D + G), with the F columns taken from ``values``.

        ``values`` are converted rows (..., n, C F), or (..., n, C F + 1) with an exposure, of which
        the values in each row's cell are taken. The result has the leading axes of ``values``.
        """
        F, (rows, cells) = self._n_in_cell, self._index_cells(X)
        leading_shape = values.shape[:-1]
        values_by_cell = values[..., : self._n_cells * F].reshape(*leading_shape, self._n_cells, F)
        rows_in_units = np.array(np.broadcast_to(X, (*leading_shape, X.shape[1])), np.float64)
        rows_in_units[..., :F] = values_by_cell[..., rows, cells, :]
        return rows_in_units

    @property
    def with_unknown_levels(self) -> "Conditioned":
        """The component whose predictive densities cover levels that are not in the fit."""
        return self.with_components([self.value_component.with_unknown_levels])

    # `parts` does not return the block, because its columns are not the columns of the data.
    parts = ConjugateComponent.parts

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Raise NotImplementedError, because given columns have no distribution.

        :meth:`conditional_sample` draws the other columns of rows with given values.
        """
        raise NotImplementedError

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        """Return predictive probabilities of the L categories of ``column``, (n, K, L).

        They depend on the cells of the rows X (n, D + G).
        """
        values_lam = self.family.split(lam)[0]
        # In converted rows, the column occurs once in each cell, at a distance of F columns.
        positions = range(column, self._n_cells * self._n_in_cell, self._n_in_cell)
        probabilities_by_cell = [
            self.value_component.column_probabilities(values_lam, d, None) for d in positions
        ]
        _, cells = self._index_cells(X)
        return np.stack(probabilities_by_cell)[cells]

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column, summed over cells, (K, D) in nats.

        The evidence of an exposure is 0.
        """
        evidence = self.value_component.column_evidence(self.split_by_block(sums)[0])
        F, n_values = self._n_in_cell, self._n_cells * self._n_in_cell
        evidence_by_cell = evidence[:, :n_values].reshape(len(sums), -1, F)
        return np.concatenate([evidence_by_cell.sum(axis=1), evidence[:, n_values:]], axis=1)

    def marginals(self, lam: Array) -> Any:
        """Return marginals of averages of parameters over cells, weighted by the cells' shares.

        The quantiles are approximate, since the parameters of cells are treated as normal and
        independent. The square of the distance of a quantile from the average is a sum over cells.
        Its terms are the squares of the cell's share times the distance of the cell's quantile from
        the cell's estimate.
        """
        (values_lam,) = self.family.split(lam)
        return tuple(map(self._average_cells, self.value_component.marginals(values_lam)))

    def _average_cells(self, cell_marginals: Marginals) -> Marginals:
        """Return the marginals of averages, given the marginals of the parameters of all cells.

        ``cell_marginals`` has the columns of the first cell, then of the second, and so on.
        """
        F, categories = self._n_in_cell, cell_marginals.categories
        # The average has the columns of the first cell.
        columns = cell_marginals.columns.reshape(self._n_cells, -1)[0]
        shares = self.given.shares[:, None]

        def sum_over_cells(values: Array, power: float) -> Array:
            """Return, for each column of a cell, the sum of ``(share * value) ** power``."""
            values_by_cell = values.reshape(len(values), self._n_cells, -1)
            return np.asarray(((shares * values_by_cell) ** power).sum(axis=1))

        estimate = sum_over_cells(cell_marginals.estimate, 1.0)

        def quantile(p: float) -> Array:
            """Return the quantiles at probability p, below the estimates if p < 0.5."""
            squares = sum_over_cells(cell_marginals.quantile(p) - cell_marginals.estimate, 2.0)
            return estimate + np.copysign(np.sqrt(squares), p - 0.5)

        categories = None if categories is None else categories[: columns.size]
        return Marginals(cell_marginals.quantity, columns % F, estimate, quantile, categories)


def separate_by_cell(component: Any, given: GivenColumns, exposed: bool = False) -> Conditioned:
    """Return the component whose columns have separate parameters in each cell.

    ``component`` describes the columns of one cell. Its method ``repeat_columns(C)`` makes C copies
    of all columns except an exposure, which is the last column if ``exposed``. Raises ValueError if
    there are more than `MAX_CELLS` cells.
    """
    C = given.shares.size
    if C > MAX_CELLS:
        raise ValueError(
            f"The levels of the given columns have {C} combinations, but bits, categories and "
            f"counts can depend on at most {MAX_CELLS}. Join rare levels, or name fewer columns "
            "of categories in 'given'."
        )
    values, n_features = component.repeat_columns(C), component.n_features + given.n_columns
    block = Block("values", values, np.arange(values.n_features))
    return Conditioned((block,), n_features, component.dtype, given=given, exposed=exposed)
