"""The normal-gamma family: means of Gaussians and the precision that the Gaussians share.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

import numpy as np
from numpy.typing import ArrayLike

from skvt._compiled import digamma_array as digamma
from skvt._compiled import gammaln_array as gammaln
from skvt.expfam._gamma import CERTAIN_COUNT
from skvt.expfam._gaussian import MeanPrecision, join, standard_gamma
from skvt.typing import Array


def _split(eta: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Return m (..., D), kappa (..., D), the shape a (...) and the rate b (...).

    Raise ValueError unless b > 0.
    """
    eta = np.asarray(eta, dtype=np.float64)
    D, remainder = divmod(eta.shape[-1] - 2, 2)
    if D < 1 or remainder:
        raise ValueError(
            "A normal-gamma distribution has 2 + 2 D natural parameters for D columns. Got "
            f"{eta.shape[-1]} of them."
        )
    # See :class:`NormalGamma` for the layout of eta.
    kappa = eta[..., 2 + D :]
    m = eta[..., 2 : 2 + D] / kappa
    a = 0.5 * (eta[..., 0] - D) + 1.0
    b = 0.5 * (eta[..., 1] - (kappa * m**2).sum(axis=-1))
    if not np.all(b > 0.0):
        raise ValueError(
            "The rate of a normal-gamma distribution is not positive after rounding. Set a "
            "positive rate of the prior instead of learning it, subtract the mean of each column "
            "if it is large compared with the spread, and scale columns and weights to the order "
            "of 1."
        )
    return m, kappa, a, b


class NormalGamma:
    """Normal-gamma distribution of D means mu_d and the precision tau that they share.

    ``tau ~ Gamma(shape a, rate b)`` and ``mu_d | tau ~ N(m_d, 1 / (kappa_d tau))``. The form as an
    exponential family is as follows, where entries with the index d stand for D entries:

    - Sufficient statistic: ``t(mu, tau) = (log(tau) / 2, -tau / 2, tau mu_d, -tau mu_d^2 / 2)``.
    - Natural parameter: ``eta = (2 (a - 1) + D, 2 b + sum_d kappa_d m_d^2, kappa_d m_d, kappa_d)``.
    - Base measure: 1.

    A row x of the Gaussian adds ``(D, sum_d x_d^2, x_d, 1)`` to eta. The log density of the row
    also has the constant ``-D / 2 log(2 pi)``. Draws are :class:`~skvt.expfam.MeanPrecision`.

    A Gaussian with a spherical covariance has one member with D columns. A Gaussian with a diagonal
    covariance has D members with one column each.

    ``b`` is computed as a difference. If the mean of the data is c times their standard deviation,
    the relative error of ``b`` is about ``1e-16 c^2``. Data should therefore be centred if c is
    large.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``log Gamma(a) - a log b + sum_d log(2 pi / kappa_d) / 2`` in nats, (...)."""
        _, kappa, a, b = _split(eta)
        return gammaln(a) - a * np.log(b) + 0.5 * np.log(2.0 * np.pi / kappa).sum(axis=-1)

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return ``E[t(mu, tau)]`` in the shape of eta.

        It follows from ``E[log tau] = digamma(a) - log b`` and ``E[tau] = a / b``.
        """
        m, kappa, a, b = _split(eta)
        precision = a / b
        scalars = np.stack([0.5 * (digamma(a) - np.log(b)), -0.5 * precision], axis=-1)
        precision_mean = precision[..., None] * m
        return join(scalars, precision_mean, -0.5 * (precision_mean * m + 1.0 / kappa))

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """Draw a mean (..., D) and a precision (...) for each member."""
        m, kappa, a, b = _split(eta)
        precision = standard_gamma(a, rng) / b
        deviation = rng.standard_normal(m.shape) / np.sqrt(kappa * precision[..., None])
        return MeanPrecision(m + deviation, precision)

    @staticmethod
    def concentrate_at(x: MeanPrecision) -> Array:
        """Return natural parameters of members that are nearly certain of x."""
        shape = np.full(x.precision.shape, 0.5 * CERTAIN_COUNT)
        return NormalGamma.from_standard(x.mean, [CERTAIN_COUNT], shape, shape / x.precision)

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return m (..., D), kappa (..., D), shape a (...) and rate b (...) by name."""
        m, kappa, a, b = _split(eta)
        return {"mean": m, "mean_precision": kappa, "shape": a, "rate": b}

    @staticmethod
    def from_standard(
        mean: ArrayLike, mean_precision: ArrayLike, shape: ArrayLike, rate: ArrayLike
    ) -> Array:
        """Return natural parameters (..., 2 + 2 D); leading axes broadcast.

        ``mean`` is (..., D), and ``mean_precision`` is (..., D), or (..., 1) if it is equal for all
        columns.
        """
        m, kappa = (np.asarray(values, dtype=np.float64) for values in (mean, mean_precision))
        m, kappa = np.broadcast_arrays(m, kappa)
        a, b = (np.asarray(values, dtype=np.float64)[..., None] for values in (shape, rate))
        log_precision_part = 2.0 * (a - 1.0) + m.shape[-1]
        precision_part = 2.0 * b + (kappa * m**2).sum(axis=-1, keepdims=True)
        return join(log_precision_part, precision_part, kappa * m, kappa)

    @staticmethod
    def mean(eta: ArrayLike) -> MeanPrecision:
        """Return m and ``E[tau] = a / b``.

        If a > 1/2, m is E[mu]. Otherwise E[mu] does not exist, and m is the centre of symmetry.
        """
        m, _, a, b = _split(eta)
        return MeanPrecision(m, a / b)

    @staticmethod
    def variance(eta: ArrayLike) -> MeanPrecision:
        """Return the variances of the entries of mu, and of tau.

        The variance of mu_d is ``b / (kappa_d (a - 1))``, or inf unless a > 1. The variance of tau
        is ``a / b^2``.
        """
        _, kappa, a, b = _split(eta)
        # E[1 / tau]
        mean_inverse = np.where(a > 1.0, b / np.where(a > 1.0, a - 1.0, 1.0), np.inf)
        return MeanPrecision(mean_inverse[..., None] / kappa, a / b**2)

    @staticmethod
    def log_density(eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Return the log density at ``x = (mu, tau)`` in nats, shape (...); -inf if tau <= 0."""
        m, kappa, a, b = _split(eta)
        mean, precision = (np.asarray(values, dtype=np.float64) for values in x)
        is_legal = precision > 0.0
        log_precision = np.log(np.where(is_legal, precision, 1.0))
        square = (kappa * (mean - m) ** 2).sum(axis=-1)
        value = (a - 1.0 + 0.5 * m.shape[-1]) * log_precision - precision * (b + 0.5 * square)
        return np.where(is_legal, value - NormalGamma.log_normalizer(eta), -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        m, _, a, b = _split(eta)
        half_D = 0.5 * m.shape[-1]
        # This is -<eta, E[t]>, since E[tau (b + sum_d kappa_d (mu_d - m_d)^2 / 2)] = a + D / 2.
        minus_inner_product = a + half_D - (a - 1.0 + half_D) * (digamma(a) - np.log(b))
        return NormalGamma.log_normalizer(eta) + minus_inner_product
