"""The normal-Wishart family: mean and precision matrix of a Gaussian.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`NormalWishart` has the parameters m, kappa, nu and W, and the layout of eta.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gamma import CERTAIN_COUNT
from skvt.expfam._gaussian import MeanPrecision, join
from skvt.expfam._wishart import Wishart, compute_moments, compute_statistic, draw_root
from skvt.expfam.triangle import dimension, pack, pack_outer, pack_statistic, unpack
from skvt.typing import Array


def get_m_kappa_nu(eta: ArrayLike) -> tuple[Array, Array, Array]:
    """Return the parameters m (..., D), kappa (...) and nu (...) of each member.

    This takes less time than :func:`split_parameters`, which also computes W^-1.
    """
    eta = np.asarray(eta, dtype=np.float64)
    # The length 2 + D + D (D + 1) / 2 of eta is 1 plus the number of entries of the triangle of a
    # matrix with D + 1 rows.
    D = dimension(eta.shape[-1] - 1) - 1
    kappa = eta[..., 1]
    # The first entry of eta is nu - D. Subtract and add 1, so that nu has the same rounding error
    # as in the marginal of Lambda from :func:`split_parameters`.
    return eta[..., 2 : 2 + D] / kappa[..., None], kappa, eta[..., 0] - 1.0 + D + 1.0


def split_parameters(eta: ArrayLike) -> tuple[Array, Array, Array]:
    """Return kappa (...), m (..., D) and the natural parameters of the marginal of Lambda.

    The marginal is a Wishart with parameters (..., 1 + D (D + 1) / 2).
    """
    eta = np.asarray(eta, dtype=np.float64)
    m, kappa, _ = get_m_kappa_nu(eta)
    # The last part of eta is the triangle of W^-1 + kappa m m'.
    scale_inverse = eta[..., 2 + m.shape[-1] :] - kappa[..., None] * pack_outer(m)
    return kappa, m, join(eta[..., :1] - 1.0, scale_inverse)


def join_moments(
    m: Array, kappa: Array, log_det: Array, precision: Array, precision_mean: Array
) -> Array:
    """Return ``E[t(mu, Lambda)]`` (..., 2 + D + D (D + 1) / 2), given moments of Lambda.

    ``m`` (..., D) and ``kappa`` (...) are parameters of the normal-Wishart, ``log_det`` (...) is
    E[log|Lambda|], ``precision`` (..., D, D) is E[Lambda], and ``precision_mean`` (..., D) is
    E[Lambda] m.
    """
    # E[mu' Lambda mu]
    mean_square = np.einsum("...i,...i->...", m, precision_mean) + m.shape[-1] / kappa
    scalars = 0.5 * log_det[..., None], -0.5 * mean_square[..., None]
    return join(*scalars, precision_mean, pack_statistic(precision))


class NormalWishart:
    """Normal-Wishart distribution of the mean mu (D) and the precision Lambda (D, D) of a Gaussian.

    ``Lambda ~ Wishart(nu, W)`` and ``mu | Lambda ~ N(m, (kappa Lambda)^-1)``.
    The distribution is legal if nu > D - 1. Its form as an exponential family is:

    - Sufficient statistic: ``t(mu, Lambda) = (log|Lambda| / 2, -mu' Lambda mu / 2, Lambda mu,
      upper triangle of -Lambda)``. The triangle is stored row by row, and its diagonal is halved.
    - Natural parameter: ``eta = (nu - D, kappa, kappa m, upper triangle of W^-1 + kappa m m')``.
    - Base measure: 1 on the entries of mu and of the upper triangle of Lambda.

    A row x of the Gaussian adds ``(1, 1, x, upper triangle of x x')`` to eta. The log density of
    the row also has the constant ``-D / 2 log(2 pi)``. Draws are
    :class:`~skvt.expfam.MeanPrecision`.

    ``W^-1`` is computed as a difference of two matrices. If the mean of the data is c times their
    standard deviation, the relative error of ``W^-1`` is about ``1e-16 c^2``. Data should therefore
    be centred if c is large.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``A(eta)``, (...).

        It is ``D / 2 log(2 pi / kappa)`` plus the log-normaliser of the marginal of Lambda.
        """
        kappa, m, marginal = split_parameters(eta)
        return Wishart.log_normalizer(marginal) + 0.5 * m.shape[-1] * np.log(2.0 * np.pi / kappa)

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return ``E[t(mu, Lambda)]`` in the shape of eta, computed from ``E[Lambda] = nu W``."""
        kappa, m, marginal = split_parameters(eta)
        log_det, precision = compute_moments(marginal)
        precision_mean = np.einsum("...ij,...j->...i", precision, m)
        return join_moments(m, kappa, log_det, precision, precision_mean)

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """Draw a mean (..., D) and a precision (..., D, D) from each distribution."""
        kappa, m, marginal = split_parameters(eta)
        root = draw_root(marginal, rng)
        root_transposed = np.swapaxes(root, -1, -2)
        # Since Lambda = root root', root'^-1 z has the covariance Lambda^-1 for standard normal z.
        z = rng.standard_normal((*m.shape, 1))
        deviation = np.linalg.solve(root_transposed, z)[..., 0] / np.sqrt(kappa)[..., None]
        return MeanPrecision(m + deviation, root @ root_transposed)

    @staticmethod
    def concentrate_at(x: MeanPrecision) -> Array:
        """Return natural parameters of members that are nearly certain of x."""
        kappa = nu = np.full(x.mean.shape[:-1], CERTAIN_COUNT)
        scale_inverse = CERTAIN_COUNT * np.linalg.inv(x.precision)
        return NormalWishart.from_standard(x.mean, kappa, nu, scale_inverse)

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return m (..., D), kappa (...), nu (...) and W^-1 (..., D, D) as a dict.

        The keys are the names of scikit-learn, and of the arguments of :meth:`from_standard`.
        """
        kappa, m, marginal = split_parameters(eta)
        return {"mean": m, "mean_precision": kappa} | Wishart.to_standard(marginal)

    @staticmethod
    def from_standard(
        mean: ArrayLike, mean_precision: ArrayLike, degrees_of_freedom: ArrayLike,
        scale_inverse: ArrayLike,
    ) -> Array:  # fmt: skip
        """Return natural parameters (..., 2 + D + D (D + 1) / 2); leading axes broadcast."""
        m = np.asarray(mean, dtype=np.float64)
        scale_inverse = np.asarray(scale_inverse, dtype=np.float64)
        kappa = np.asarray(mean_precision, dtype=np.float64)[..., None]
        nu = np.asarray(degrees_of_freedom, dtype=np.float64)[..., None]
        triangle = pack(scale_inverse) + kappa * pack_outer(m)
        return join(nu - m.shape[-1], kappa, kappa * m, triangle)

    @staticmethod
    def mean(eta: ArrayLike) -> MeanPrecision:
        """Return m and ``E[Lambda] = nu W``.

        If nu > D, m is E[mu]. Otherwise E[mu] does not exist, and m is the centre of symmetry.
        """
        _, m, marginal = split_parameters(eta)
        return MeanPrecision(m, Wishart.mean(marginal))

    @staticmethod
    def variance(eta: ArrayLike) -> MeanPrecision:
        """Return the variances of the entries of mu and of the entries of Lambda.

        The variances of mu are inf unless nu > D + 1.
        """
        kappa, _, marginal = split_parameters(eta)
        scale_inverse = np.diagonal(unpack(marginal[..., 1:]), axis1=-2, axis2=-1)
        # mu has a t distribution with nu - D + 1 degrees of freedom, so that the variance of mu_d
        # is (W^-1)_dd / (kappa (nu - D - 1)). The first entry of ``marginal`` is nu - D - 1.
        excess = marginal[..., :1]
        is_finite = excess > 0.0
        divisor = kappa[..., None] * np.where(is_finite, excess, 1.0)
        variance = np.where(is_finite, scale_inverse / divisor, np.inf)
        return MeanPrecision(variance, Wishart.variance(marginal))

    @staticmethod
    def log_density(eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Return the log density at ``x = (mu, Lambda)`` in nats, shape (...).

        It is -inf if Lambda is not symmetric and positive definite.
        """
        kappa, m, marginal = split_parameters(eta)
        mean, precision = (np.asarray(values, dtype=np.float64) for values in x)
        # t is the sufficient statistic of the Wishart, whose first entry is log|Lambda| / 2.
        t, is_legal = compute_statistic(precision)
        deviation = mean - m
        mahalanobis = np.einsum("...i,...ij,...j->...", deviation, precision, deviation)
        # The density is the Wishart density of Lambda times the normal density of mu given Lambda.
        # The latter has the factor |Lambda|^(1/2), whose logarithm is ``t[..., 0]``.
        value = np.einsum("...d,...d->...", marginal, t) + t[..., 0] - 0.5 * kappa * mahalanobis
        return np.where(is_legal, value - NormalWishart.log_normalizer(eta), -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        """Return the entropy in nats, shape (...)."""
        kappa, m, marginal = split_parameters(eta)
        D = m.shape[-1]
        # The expected entropy of mu given Lambda.
        conditional = 0.5 * (D * np.log(2.0 * np.pi * np.e / kappa) - compute_moments(marginal)[0])
        return Wishart.entropy(marginal) + conditional
