"""The gamma family."""

import numpy as np
from numpy.typing import ArrayLike

from skvt.compiled import digamma_array as digamma
from skvt.compiled import gammaln_array as gammaln
from skvt.typing import Array

# Draws that double precision cannot tell from 0 are this: at 0 a density may be 0 or infinite, and
# a variance would be divided by it.
LEAST = np.finfo(np.float64).tiny
# Number of observations after which a member is nearly certain of its value.
CERTAIN = 1e8


def log_standard_gamma(shape: Array, rng: np.random.Generator) -> Array:
    """Log gamma variates of rate 1; small shapes via ``log g(a) = log g(a + 1) + log(u) / a``."""
    return np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape


class Gamma:
    """Gamma distribution of a positive x, by shape a and rate b.

    ``t(x) = (log x, -x)`` and ``eta = (a, b)`` with base measure 1/x, so that n events in an
    exposure e give ``eta + (n, e)``, and N draws of mean zero from N(0, 1/x) ``eta + (N/2, S/2)``
    with S the sum of their squares.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """``A(eta) = log Gamma(a) - a log b``, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return gammaln(eta[..., 0]) - eta[..., 0] * np.log(eta[..., 1])

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """``(E[log x], -E[x]) = (digamma(a) - log b, -a / b)``, shape (..., 2)."""
        eta = np.asarray(eta, dtype=np.float64)
        a, b = eta[..., 0], eta[..., 1]
        return np.stack([digamma(a) - np.log(b), -a / b], axis=-1)

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """One draw for each member, shape (...); in log space, where small shapes underflow."""
        eta = np.asarray(eta, dtype=np.float64)
        a, b = eta[..., 0], eta[..., 1]
        return np.maximum(np.exp(log_standard_gamma(a, rng) - np.log(b)), LEAST)

    @staticmethod
    def certain(x: Array) -> Array:
        """Natural parameters (..., 2) of members that are nearly certain of x."""
        return Gamma.from_standard(np.full(x.shape, CERTAIN), CERTAIN / x)

    @staticmethod
    def standard(eta: ArrayLike) -> dict[str, Array]:
        eta = np.asarray(eta)
        return {"shape": eta[..., 0], "rate": eta[..., 1]}

    @staticmethod
    def from_standard(shape: ArrayLike, rate: ArrayLike) -> Array:
        """``eta`` of a shape and a rate, (..., 2)."""
        return np.stack(np.broadcast_arrays(shape, rate), axis=-1).astype(np.float64)

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        eta = np.asarray(eta)
        return eta[..., 0] / eta[..., 1]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        return eta[..., 0] / eta[..., 1] ** 2

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Log density at ``x`` in nats, shape (...); -inf for x <= 0."""
        eta, x = np.asarray(eta, dtype=np.float64), np.asarray(x, dtype=np.float64)
        inside = x > 0.0
        x = np.where(inside, x, 1.0)
        value = (eta[..., 0] - 1.0) * np.log(x) - eta[..., 1] * x - Gamma.log_normalizer(eta)
        return np.where(inside, value, -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        t = Gamma.expectation(eta)
        return Gamma.log_normalizer(eta) - (eta[..., 0] - 1.0) * t[..., 0] - eta[..., 1] * t[..., 1]
