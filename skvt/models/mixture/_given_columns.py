"""Columns of bits, categories and counts whose distributions depend on given columns.

Given columns explain the others and have no distribution themselves: the likelihood of component k
is ``p(y | w, phi_k)``, where w are the given values of a row. :class:`GivenColumns` converts them
to regressors, see :mod:`skvt.models.mixture._regression`, and to cells. A cell is a combination of
levels of the given categories. A column of bits, categories or counts has separate parameters in
each cell,

    y_d | z = k, cell c ~ F(phi_kcd),        phi_kcd ~ H(eta_d),

independent given the component. A row thus informs the parameters of one cell only. It is treated
as a row of C D columns in which the columns of all other cells are missing, so that inference is
exact where it is exact for missing values. Given columns of numbers do not affect these columns.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from skvt.files import POSITIVE, in_files
from skvt.models.mixture._gaussian_prior import weighted_moments
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._product import Block, Product
from skvt.models.mixture.components import dense_rows
from skvt.rows import mapped, of_each_row
from skvt.typing import Array, IndexArray

# Maximum number of cells.
MOST_CELLS = 200
# Added to the variances of standardised regressors, since some may be linearly dependent on others.
_RIDGE = 1e-6


@in_files("models.GivenColumns")
@dataclass(frozen=True)
class GivenColumns:
    """Conversion of G given columns to R regressors and to C cells.

    Regressors are the numbers, and for a category of L levels the indicators of all levels but the
    first. They are standardised by the rows of the fit. Each combination of levels that occurs in
    these rows is a cell. All other combinations share one further cell, if there are any.
    """

    # Number of levels of each given column, 0 if it holds numbers.
    sizes: tuple[int, ...]
    # Names of the regressors.
    labels: tuple[str, ...]
    # (R,): means and standard deviations of the regressors.
    center: Annotated[Array, "r"]
    scale: Annotated[Array, "r", POSITIVE]
    # (R, R): covariance of the standardised regressors.
    moment: Annotated[Array, "r r"]
    # Numbers of the combinations that occur, ascending, see :meth:`combination`.
    combinations: Annotated[IndexArray, "c"]
    # (C,): fraction of the rows in each cell; 0 for the cell of all other combinations.
    shares: Annotated[Array, "c | c+1"]

    def validate(self, d: int, k: int) -> bool:
        numbers = self.combinations
        return (
            min(self.sizes) >= 0
            and self.n_regressors == len(self.labels) == self.center.size > 0
            and bool(np.all(np.isfinite(self.moment)) and np.linalg.eigvalsh(self.moment)[0] > 0.0)
            and numbers.dtype.kind in "iu"
            and numbers.size > 0
            and bool(np.all(np.diff(numbers) > 0) and numbers[0] >= 0)
            and bool(np.all(self.shares >= 0.0))
        )

    @classmethod
    def of(
        cls, X: Any, weights: Any, sizes: tuple[int, ...], labels: tuple[str, ...]
    ) -> "GivenColumns":
        """Derive the conversion from the given columns X (n, G) of the rows of a fit."""
        if not labels:
            raise ValueError(
                "The given columns have one value in all rows and explain nothing. Name columns "
                "that differ between rows in 'given', or set given=None."
            )
        empty = np.zeros(0)
        unscaled = cls(sizes, labels, empty, empty, empty, np.zeros(0, np.intp), empty)
        center, moment = weighted_moments(mapped(X, unscaled.indicated), weights, "full", False)
        deviation = np.sqrt(np.diagonal(moment))
        scale = np.where(deviation > 0.0, deviation, 1.0)
        moment = moment / scale / scale[:, None] + _RIDGE * np.eye(scale.size)
        numbers = of_each_row(X, weights, unscaled.combination).astype(np.intp)
        combinations, cells = np.unique(numbers, return_inverse=True)
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

    def indicated(self, X: Any) -> Array:
        """Return the regressors (n, R) of given columns (n, G) before standardisation."""
        X = dense_rows(X)
        parts = [
            X[:, [g]] if size == 0 else (X[:, [g]] == np.arange(1, size)).astype(np.float64)
            for g, size in enumerate(self.sizes)
        ]
        return np.concatenate(parts, axis=1)

    def regressors(self, X: Any) -> Array:
        """Return the standardised regressors, (n, R)."""
        return (self.indicated(X) - self.center) / self.scale

    def combination(self, X: Any) -> Array:
        """Return the combination of levels of each row as one number in mixed radix, (n,)."""
        X, number = dense_rows(X), np.zeros(X.shape[0])
        for g, size in enumerate(self.sizes):
            if size:
                number = number * size + X[:, g]
        return number

    def cells(self, X: Any) -> IndexArray:
        """Return the cell of each row, (n,)."""
        numbers, known = self.combination(X).astype(np.intp), self.combinations
        places = np.minimum(np.searchsorted(known, numbers), known.size - 1)
        return np.where(known[places] == numbers, places, known.size)


@in_files("models.Conditioned")
@dataclass(frozen=True)
class Conditioned(Product):
    """Columns of bits, categories or counts with separate parameters in each cell.

    The only block, "values", has C F columns, those of one cell after those of another, and the
    exposure, if there is one. Rows have D + G columns: D columns are the F columns with parameters
    and the exposure, G columns are given.
    """

    given: GivenColumns = field(kw_only=True)
    # Whether the last of the D columns is an exposure.
    exposed: bool = field(default=False, kw_only=True)

    sparse = False

    def validate(self, d: int, k: int) -> bool:
        (block,), F = self.blocks, self._n_in_cell
        return (
            block.name == "values"
            and F > 0
            and self.values.n_features == self._n_cells * F + self.exposed
            and np.array_equal(block.columns, np.arange(self.values.n_features))
        )

    @property
    def values(self) -> Any:
        """The component of the columns of all cells."""
        return self.blocks[0].component

    @property
    def n_explained(self) -> int:
        """D, the number of columns that are not given, with the exposure."""
        return self.n_features - self.given.n_columns

    @property
    def _n_cells(self) -> int:
        return self.given.shares.size

    @property
    def _n_in_cell(self) -> int:
        """F, the number of columns with parameters in each cell."""
        return self.n_explained - self.exposed

    def _cells(self, X: Any) -> tuple[IndexArray, IndexArray]:
        """Return an index of the array (n, C, ...): each row's number and its cell."""
        return np.arange(X.shape[0]), self.given.cells(X[:, self.n_explained :])

    def _convert_rows(self, X: Any) -> Array:
        X, F, D = dense_rows(X), self._n_in_cell, self.n_explained
        out = np.full((len(X), self._n_cells, F), np.nan)
        out[self._cells(X)] = X[:, :F]
        return np.concatenate([out.reshape(len(X), -1), X[:, F:D]], axis=1)

    def _in_rows(self, X: Any, made: Array) -> Array:
        """Fill in missing values of rows X from their cells in the completed rows ``made``.

        ``made`` has shape (..., n, C F) or has an exposure besides; the result (..., n, D + G).
        """
        F, (rows, cells) = self._n_in_cell, self._cells(X)
        values = made[..., : self._n_cells * F]
        values = values.reshape(*values.shape[:-1], self._n_cells, F)[..., rows, cells, :]
        out = np.array(np.broadcast_to(X, (*values.shape[:-1], X.shape[1])), np.float64)
        out[..., :F] = np.where(np.isnan(out[..., :F]), values, out[..., :F])
        return out

    @property
    def opened(self) -> "Conditioned":
        block = self.blocks[0]._replace(component=self.values.opened)
        return replace(self, blocks=(block,))

    def filled(self, X: Any) -> Any:
        """Return the rows unchanged, since missing values have no features."""
        return X

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return the rows unchanged, since q leaves missing values out."""
        return X

    def without_indicator(self, column: int) -> "Conditioned":
        return self

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        uncentred: tuple[Any, Array] = self.values.uncentred(self.family.split(lam)[0])
        return uncentred

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        return {}

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        values_lam = self.family.split(lam)[0]
        return self._in_rows(X, self.values.imputed(self._convert_rows(X), values_lam, memberships))

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        values_lam = self.family.split(lam)[0]
        return self._in_rows(X, self.values.conditional_mean(self._convert_rows(X), values_lam))

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        values_lam = self.family.split(lam)[0]
        draws = self.values.conditional_sample(self._convert_rows(X), values_lam, rng)
        return self._in_rows(X, draws)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Raise an error: :meth:`conditional_sample` draws rows for given columns."""
        raise NotImplementedError

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        """Return predictive probabilities of a column's L categories, (n, K, L)."""
        values_lam, F = self.family.split(lam)[0], self._n_in_cell
        by_cell = [
            self.values.column_probabilities(values_lam, c * F + column, None)
            for c in range(self._n_cells)
        ]
        return np.stack(by_cell)[self._cells(X)[1]]

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column in nats, summed over cells, (K, D); 0 for exposure."""
        evidence = self.values.column_evidence(self.split_by_block(sums)[0])
        F, size = self._n_in_cell, self._n_cells * self._n_in_cell
        by_cell = evidence[:, :size].reshape(len(sums), -1, F)
        return np.concatenate([by_cell.sum(axis=1), evidence[:, size:]], axis=1)

    def marginals(self, lam: Array) -> Any:
        """Return marginals of the parameters' means over cells, weighted by the cells' shares.

        The quantiles are approximate: distances of cells' quantiles from the estimates are combined
        by the root of their sum of squares, as for independent normals.
        """
        return tuple(map(self._averaged, self.values.marginals(self.family.split(lam)[0])))

    def _averaged(self, cells: Marginals) -> Marginals:
        F, categories = self._n_in_cell, cells.categories
        columns = cells.columns.reshape(self._n_cells, -1)[0]
        shares = self.given.shares[:, None]

        def sum_over_cells(values: Array, power: float) -> Array:
            """Return the sum of ``(share * value) ** power``, (K, columns)."""
            by_cell = values.reshape(len(values), self._n_cells, -1)
            total: Array = ((shares * by_cell) ** power).sum(axis=1)
            return total

        def quantile(p: float) -> Array:
            squared = sum_over_cells(cells.quantile(p) - cells.estimate, 2.0)
            return estimate + np.copysign(np.sqrt(squared), p - 0.5)

        estimate = sum_over_cells(cells.estimate, 1.0)
        categories = None if categories is None else categories[: columns.size]
        return Marginals(cells.quantity, columns % F, estimate, quantile, categories)


def conditioned(component: Any, given: GivenColumns, exposed: bool = False) -> Conditioned:
    """Return the component whose columns have separate parameters in each cell.

    The method ``component.repeated(C)`` returns C copies of all columns and priors, except for an
    exposure, which is not repeated.
    """
    C = given.shares.size
    if C > MOST_CELLS:
        raise ValueError(
            f"The levels of the given columns have {C} combinations, and columns of bits, "
            f"categories and counts take at most {MOST_CELLS}. Join rare levels, or give fewer "
            "columns of categories."
        )
    values, n_features = component.repeated(C), component.n_features + given.n_columns
    block = Block("values", values, np.arange(values.n_features))
    return Conditioned((block,), n_features, component.dtype, given=given, exposed=exposed)
