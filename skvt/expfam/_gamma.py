"""The gamma family: distributions of positive numbers, such as rates and precisions.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

import numpy as np
from numpy.typing import ArrayLike

from skvt._compiled import digamma_array as digamma
from skvt._compiled import gammaln_array as gammaln
from skvt.typing import Array

# Draws that underflow are set to this number and not to 0, because at 0 a density could be 0 or
# infinite, and a division by the draw would fail.
MIN_DRAW = np.finfo(np.float64).tiny
# The methods `concentrate_at` of the families return members that are as certain of a value x as
# after about this number of observations.
CERTAIN_COUNT = 1e8


def log_standard_gamma(shape: Array, rng: np.random.Generator) -> Array:
    """Draw the logarithm of a gamma variate of rate 1 for each shape.

    For a gamma variate g(a) of shape a, ``log g(a) = log g(a + 1) + log(u) / a`` in distribution,
    with u uniform on (0, 1]. g(a) itself would underflow for small a.
    """
    return np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape


class Gamma:
    """Gamma distribution of a positive x, by shape a and rate b.

    The sufficient statistic is ``t(x) = (log x, -x)``, the natural parameter is ``eta = (a, b)``,
    and the base measure is 1 / x. If x is a Poisson rate, n events in an exposure e add ``(n, e)``
    to eta. If x is the precision of a Gaussian with mean 0, n draws with the sum of squares S add
    ``(n / 2, S / 2)``.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``A(eta) = log Gamma(a) - a log b`` in nats, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return gammaln(eta[..., 0]) - eta[..., 0] * np.log(eta[..., 1])

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return ``(E[log x], -E[x]) = (digamma(a) - log b, -a / b)``, shape (..., 2)."""
        eta = np.asarray(eta, dtype=np.float64)
        a, b = eta[..., 0], eta[..., 1]
        return np.stack([digamma(a) - np.log(b), -a / b], axis=-1)

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw x (...) for each member."""
        eta = np.asarray(eta, dtype=np.float64)
        a, b = eta[..., 0], eta[..., 1]
        return np.maximum(np.exp(log_standard_gamma(a, rng) - np.log(b)), MIN_DRAW)

    @staticmethod
    def concentrate_at(x: Array) -> Array:
        """Return natural parameters (..., 2) of members that are nearly certain of x."""
        return Gamma.from_standard(np.full(x.shape, CERTAIN_COUNT), CERTAIN_COUNT / x)

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return the shape a (...) and the rate b (...) by name."""
        eta = np.asarray(eta)
        return {"shape": eta[..., 0], "rate": eta[..., 1]}

    @staticmethod
    def from_standard(shape: ArrayLike, rate: ArrayLike) -> Array:
        """Return natural parameters (..., 2); shape and rate broadcast."""
        return np.stack(np.broadcast_arrays(shape, rate), axis=-1).astype(np.float64)

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """Return ``E[x] = a / b``, shape (...)."""
        eta = np.asarray(eta)
        return eta[..., 0] / eta[..., 1]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """Return the variance ``a / b^2``, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return eta[..., 0] / eta[..., 1] ** 2

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at ``x`` in nats, shape (...); -inf for x <= 0."""
        eta, x = np.asarray(eta, dtype=np.float64), np.asarray(x, dtype=np.float64)
        is_legal = x > 0.0
        # Replace illegal values by a value whose logarithm exists.
        x = np.where(is_legal, x, 1.0)
        log_density = (eta[..., 0] - 1.0) * np.log(x) - eta[..., 1] * x - Gamma.log_normalizer(eta)
        return np.where(is_legal, log_density, -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        t = Gamma.expectation(eta)
        return Gamma.log_normalizer(eta) - (eta[..., 0] - 1.0) * t[..., 0] - eta[..., 1] * t[..., 1]
