"""Independent Dirichlets of different sizes, side by side, for tables of categorical columns.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from skvt._compiled import digamma_array as digamma
from skvt._compiled import gammaln_array as gammaln
from skvt.expfam._dirichlet import Dirichlet
from skvt.expfam._gamma import MIN_DRAW, log_standard_gamma
from skvt.typing import Array, IndexArray


@dataclass(frozen=True)
class DirichletColumns:
    """D independent Dirichlets with C_1, ..., C_D categories, side by side in the last axis.

    The last axis of all arrays has the C_1 categories of the first column, then the C_2 categories
    of the second column, and so on, in total ``sum_d C_d`` numbers. The natural parameter consists
    of the concentrations eta_dc of category c of column d, and the sufficient statistic is
    ``t(x) = log x``.
    """

    # (D,): the numbers of categories C_d, each at least 1.
    sizes: tuple[int, ...]

    # The name of the family in texts. Other families are classes, which have a ``__name__``.
    __name__ = "DirichletColumns"

    @cached_property
    def _starts(self) -> IndexArray:
        """Positions of the first category of each column, (D,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def sum_categories(self, values: Array) -> Array:
        """Return sums over the categories of each column, shape (..., D)."""
        sums: Array = np.add.reduceat(values, self._starts, axis=-1)
        return sums

    def _repeat(self, values: Array) -> Array:
        """Return values of columns (..., D), repeated for each category: (..., sum_d C_d)."""
        return np.repeat(values, self.sizes, axis=-1)

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return ``sum_d [sum_c log Gamma(eta_dc) - log Gamma(sum_c eta_dc)]`` in nats, (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return gammaln(eta).sum(axis=-1) - gammaln(self.sum_categories(eta)).sum(axis=-1)

    def log_normalizers(self, eta: ArrayLike) -> Array:
        """Return the log-normaliser of each column in nats, shape (..., D)."""
        eta = np.asarray(eta, dtype=np.float64)
        return self.sum_categories(gammaln(eta)) - gammaln(self.sum_categories(eta))

    def expectation(self, eta: ArrayLike) -> Array:
        """Return ``E[log x_dc] = digamma(eta_dc) - digamma(sum_c eta_dc)``, shape of eta."""
        eta = np.asarray(eta, dtype=np.float64)
        return digamma(eta) - self._repeat(digamma(self.sum_categories(eta)))

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw probabilities for each member, in the shape of eta; each column sums to 1."""
        # Draw the logarithms of gamma variates, because all gamma variates of a column could
        # underflow.
        log_gammas = log_standard_gamma(np.asarray(eta, dtype=np.float64), rng)
        max_log_gammas = np.maximum.reduceat(log_gammas, self._starts, axis=-1)
        gammas = np.exp(log_gammas - self._repeat(max_log_gammas))
        return np.maximum(gammas / self._repeat(self.sum_categories(gammas)), MIN_DRAW)

    concentrate_at = staticmethod(Dirichlet.concentrate_at)
    to_standard = staticmethod(Dirichlet.to_standard)

    def mean(self, eta: ArrayLike) -> Array:
        """Return ``E[x_dc] = eta_dc / sum_c eta_dc``, shape of eta."""
        eta = np.asarray(eta, dtype=np.float64)
        return eta / self._repeat(self.sum_categories(eta))

    def variance(self, eta: ArrayLike) -> Array:
        mean = self.mean(eta)
        concentration = self._repeat(self.sum_categories(np.asarray(eta, dtype=np.float64)))
        return mean * (1.0 - mean) / (concentration + 1.0)

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at x in nats, shape (...); -inf if a column is off its simplex."""
        eta, x = np.asarray(eta, dtype=np.float64), np.asarray(x, dtype=np.float64)
        sums_to_1 = np.isclose(self.sum_categories(x), 1.0)
        is_legal = np.all(x >= 0.0, axis=-1) & np.all(sums_to_1, axis=-1)
        log_density = xlogy(eta - 1.0, x).sum(axis=-1) - self.log_normalizer(eta)
        return np.where(is_legal, log_density, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        inner_product = np.einsum("...d,...d->...", eta - 1.0, self.expectation(eta))
        return self.log_normalizer(eta) - inner_product
