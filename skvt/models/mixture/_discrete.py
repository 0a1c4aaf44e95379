"""Components for columns of categories and of counts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from skvt.expfam import DirichletColumns, Gamma
from skvt.models.mixture._components import (
    ConjugateComponent,
    PairOfEachColumn,
    with_draws,
    with_means,
)
from skvt.models.mixture._kernels import indicators
from skvt.models.mixture._marginals import Marginals, of_probabilities, of_rates
from skvt.ties import stable_argmax
from skvt.typing import Array


def _dense(X: Any) -> Array:
    # row by row in memory, so that rounding does not depend on the layout of X
    return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, np.float64)


@dataclass(frozen=True)
class Categorical(ConjugateComponent):
    """Independent columns of categories with Dirichlet priors; features are indicators.

    Parameters
    ----------
    prior : ndarray, shape (sum_d C_d,)
        Concentrations, column after column.
    sizes : tuple of int
        Categories C_d of each column; in the data 0, ..., C_d - 1, or NaN.
    dtype : dtype
    """

    prior: Array
    sizes: tuple[int, ...]
    dtype: np.dtype[Any]

    base = 0.0
    missing = True

    @property
    def family(self) -> DirichletColumns:
        """Dirichlets side by side."""
        return DirichletColumns(self.sizes)

    @property
    def n_features(self) -> int:
        """Number of columns D."""
        return len(self.sizes)

    def features(self, X: Any) -> Array:
        """``[x_d = c]`` for each column and category, all 0 where x_d is missing."""
        X = _dense(X)
        out = np.zeros((X.shape[0], sum(self.sizes)))
        indicators(X, np.cumsum(self.sizes), out)
        return out

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Columns are independent, so that the predictive is linear in the features."""
        return self.features(X) @ np.log(self.family.mean(lam)).T

    def column_probabilities(self, lam: Array, column: int) -> Array:
        """Predictive probabilities of a column's categories, (K, C)."""
        probabilities: list[Array] = np.split(
            self.family.mean(lam), np.cumsum(self.sizes)[:-1], axis=-1
        )
        return probabilities[column]

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Missing values replaced by the most probable category; ties go to the first."""
        out = np.array(X, np.float64)
        for d in np.flatnonzero(np.isnan(out).any(axis=0)).tolist():
            holes = np.isnan(out[:, d])
            own = np.asarray(memberships[holes] @ self.column_probabilities(lam, d))
            out[holes, d] = stable_argmax(own)
        return out

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        """Missing values drawn; columns are independent."""
        return with_draws(X, self.sample(lam, len(X), rng))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Rows of categories."""
        probabilities = np.split(self.family.mean(lam), np.cumsum(self.sizes)[:-1])
        columns = [rng.choice(p.size, n_rows, p=p / p.sum()) for p in probabilities]
        return np.stack(columns, axis=1).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Probabilities of the categories of each column."""
        columns = np.repeat(np.arange(self.n_features), self.sizes)
        codes = np.concatenate([np.arange(size) for size in self.sizes])
        others = self.family.totals(lam)[:, columns] - lam
        return (of_probabilities(lam, others, columns, codes),)

    def column_evidence(self, sums: Array) -> Array:
        """Exact: columns are independent."""
        after = self.family.log_normalizers(self.natural_parameters(sums))
        return after - self.family.log_normalizers(self.prior)


@dataclass(frozen=True)
class Poisson(PairOfEachColumn, ConjugateComponent):
    """Independent columns of counts, each Poisson(rate_kd) with gamma prior; ``prior`` (D, 2).

    Features are ``[x, seen, rest]``, where ``rest = -sum_d log x_d!`` is the part of the log
    density that does not depend on the rates.

    Parameters
    ----------
    prior : ndarray, shape (D, 2)
        Shape and rate of each column's gamma prior.
    dtype : dtype
    """

    prior: Array
    dtype: np.dtype[Any]

    family = Gamma
    missing = True

    @property
    def base(self) -> Array:
        """``rest`` as it is."""
        return np.append(np.zeros(2 * self.n_features), 1.0)

    def features(self, X: Any) -> Array:
        """``[x_d, seen_d]``, D of each, and ``-sum_d log x_d!``; 0 where x_d is missing."""
        X = _dense(X)
        seen = ~np.isnan(X)
        X = np.where(seen, X, 0.0)
        rest = -gammaln(X + 1.0).sum(axis=1, keepdims=True)
        return np.concatenate([X, seen, rest], axis=1)

    def spread(self, sums: Array) -> Array:
        """(..., 2D + 1) -> (..., D, 2)."""
        return super().spread(sums[..., :-1])

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
        return np.concatenate([super().gather(t), np.zeros((*t.shape[:-2], 1))], axis=-1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Missing values at the expected rates, (K, n, D)."""
        return with_means(X, Gamma.mean(lam))

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        """Missing values drawn; columns are independent."""
        return with_draws(X, self.sample(lam, len(X), rng))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of independent negative binomials, the posterior predictive."""
        shape, rate = lam[..., 0], lam[..., 1]
        rates = rng.standard_gamma(shape, size=(n_rows, shape.size)) / rate
        return rng.poisson(rates).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Rates of the columns."""
        return (of_rates(lam[..., 0], lam[..., 1]),)
