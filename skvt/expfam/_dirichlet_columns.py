"""Independent Dirichlets of different sizes, side by side."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from skvt.compiled import digamma_array as digamma
from skvt.compiled import gammaln_array as gammaln
from skvt.expfam._gamma import CERTAIN, LEAST, log_standard_gamma
from skvt.typing import Array, IndexArray


@dataclass(frozen=True)
class DirichletColumns:
    """D independent Dirichlets with C_1, ..., C_D categories, side by side in the last axis.

    The natural parameter holds the concentrations of the first column, then those of the second,
    and so on, ``sum_d C_d`` numbers; ``t(x) = log x`` likewise.
    """

    # C_d, each at least 1.
    sizes: tuple[int, ...]

    __name__ = "DirichletColumns"

    @cached_property
    def _starts(self) -> IndexArray:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def totals(self, values: Array) -> Array:
        """Sums over the categories of each column, shape (..., D)."""
        sums: Array = np.add.reduceat(values, self._starts, axis=-1)
        return sums

    def _of_categories(self, values: Array) -> Array:
        """Values of columns (..., D), repeated for each of their categories."""
        return np.repeat(values, self.sizes, axis=-1)

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """``sum_d [sum_c log Gamma(eta_dc) - log Gamma(sum_c eta_dc)]`` in nats, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return gammaln(eta).sum(axis=-1) - gammaln(self.totals(eta)).sum(axis=-1)

    def log_normalizers(self, eta: ArrayLike) -> Array:
        """Log-normaliser of each column, shape (..., D)."""
        eta = np.asarray(eta, dtype=np.float64)
        return self.totals(gammaln(eta)) - gammaln(self.totals(eta))

    def expectation(self, eta: ArrayLike) -> Array:
        """``E[log x_dc] = digamma(eta_dc) - digamma(sum_c eta_dc)``, shape of eta."""
        eta = np.asarray(eta, dtype=np.float64)
        return digamma(eta) - self._of_categories(digamma(self.totals(eta)))

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        """One draw for each member, shape of eta; each column sums to 1."""
        log_g = log_standard_gamma(np.asarray(eta, dtype=np.float64), rng)
        largest = np.maximum.reduceat(log_g, self._starts, axis=-1)
        g = np.exp(log_g - self._of_categories(largest))
        return np.maximum(g / self._of_categories(self.totals(g)), LEAST)

    @staticmethod
    def certain(x: Array) -> Array:
        """Natural parameters of members that are nearly certain of x, in its shape."""
        return CERTAIN * x

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        return {"concentration": np.asarray(eta)}

    def mean(self, eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        return eta / self._of_categories(self.totals(eta))

    def variance(self, eta: ArrayLike) -> Array:
        mean = self.mean(eta)
        total = self._of_categories(self.totals(np.asarray(eta, dtype=np.float64)))
        return mean * (1.0 - mean) / (total + 1.0)

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """Log density at x, shape of eta, in nats, shape (...); -inf off the simplices."""
        eta, x = np.asarray(eta, dtype=np.float64), np.asarray(x, dtype=np.float64)
        inside = np.all(x >= 0.0, axis=-1) & np.all(np.isclose(self.totals(x), 1.0), axis=-1)
        value = xlogy(eta - 1.0, x).sum(axis=-1) - self.log_normalizer(eta)
        return np.where(inside, value, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        inner = np.einsum("...d,...d->...", eta - 1.0, self.expectation(eta))
        return self.log_normalizer(eta) - inner
