"""The normal family: distributions of a single mean, for Gaussian data of known variance.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gamma import CERTAIN_COUNT
from skvt.expfam._gaussian import join
from skvt.typing import Array


class Normal:
    """Normal distribution of mu, by mean m and variance v.

    The sufficient statistic is ``t(mu) = (mu, -mu^2 / 2)``, the natural parameter is
    ``eta = (m / v, 1 / v)``, and the base measure is 1. If mu is the mean of a Gaussian with the
    variance s, n draws with the sum S add ``(S / s, n / s)`` to eta.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``A(eta) = m^2 / (2 v) + log(2 pi v) / 2``, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return 0.5 * (eta[..., 0] ** 2 / eta[..., 1] + np.log(2.0 * np.pi / eta[..., 1]))

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return ``(E[mu], -E[mu^2] / 2) = (m, -(m^2 + v) / 2)``, shape (..., 2)."""
        m, v = Normal.mean(eta), Normal.variance(eta)
        return np.stack([m, -0.5 * (m**2 + v)], axis=-1)

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw mu (...) for each member."""
        m, v = Normal.mean(eta), Normal.variance(eta)
        return m + np.sqrt(v) * rng.standard_normal(m.shape)

    @staticmethod
    def concentrate_at(x: Array) -> Array:
        """Return natural parameters (..., 2) of members that are nearly certain of x.

        The standard deviation of each member is 1 / CERTAIN_COUNT.
        """
        return Normal.from_standard(x, np.full(x.shape, 1.0 / CERTAIN_COUNT**2))

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return m (...) and v (...) by name."""
        return {"mean": Normal.mean(eta), "variance": Normal.variance(eta)}

    @staticmethod
    def from_standard(mean: ArrayLike, variance: ArrayLike) -> Array:
        """Return natural parameters (..., 2); mean and variance broadcast."""
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        return join((mean / variance)[..., None], (1.0 / variance)[..., None])

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """Return m, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return eta[..., 0] / eta[..., 1]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """Return v, shape (...)."""
        return 1.0 / np.asarray(eta, dtype=np.float64)[..., 1]

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at mu = ``x`` in nats, shape (...)."""
        m, v = Normal.mean(eta), Normal.variance(eta)
        return -0.5 * ((np.asarray(x, dtype=np.float64) - m) ** 2 / v + np.log(2.0 * np.pi * v))

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        return 0.5 * (1.0 + np.log(2.0 * np.pi * Normal.variance(eta)))
