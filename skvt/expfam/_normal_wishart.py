"""The normal-Wishart family: mean and precision matrix of a Gaussian."""

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gamma import CERTAIN
from skvt.expfam._gaussian import MeanPrecision, join
from skvt.expfam._wishart import Wishart, drawn_root, moments, statistic
from skvt.expfam.triangle import dimension, pack, pack_outer, pack_statistic, unpack
from skvt.rows import pieces
from skvt.typing import Array

# Natural parameters that are worked on at a time, so that matrices made of them stay in the cache.
_NUMBERS_AT_ONCE = 2**17


def split(eta: ArrayLike) -> tuple[Array, Array, Array]:
    """kappa (...), m (..., D), and the natural parameter of the marginal of Lambda, a Wishart."""
    eta = np.asarray(eta, dtype=np.float64)
    # 2 + D + D (D + 1) / 2 is 1 more than the triangle of a matrix with D + 1 rows.
    D = dimension(eta.shape[-1] - 1) - 1
    kappa = eta[..., 1]
    m = eta[..., 2 : 2 + D] / kappa[..., None]
    scale_inverse = eta[..., 2 + D :] - kappa[..., None] * pack_outer(m)
    return kappa, m, join(eta[..., :1] - 1.0, scale_inverse)


class NormalWishart:
    """Normal-Wishart distribution of the mean mu (D) and the precision Lambda (D, D) of a Gaussian.

    ``Lambda ~ Wishart(nu, W)`` and ``mu | Lambda ~ N(m, (kappa Lambda)^-1)``.
    ``t(mu, Lambda) = (log|Lambda| / 2, -mu' Lambda mu / 2, Lambda mu, upper triangle, row by row,
    of -Lambda, halved on its diagonal)``, natural parameter ``eta = (nu - D, kappa, kappa m, upper
    triangle of W^-1 + kappa m m')``, base measure 1 on the entries of mu and of the upper triangle;
    nu > D - 1. A row x of the Gaussian adds ``(1, 1, x, upper triangle of x x')``, and
    ``-D / 2 log(2 pi)`` to the log density. Values are :class:`~skvt.expfam.MeanPrecision`.

    ``W^-1`` is a difference here. Data whose mean is c times their standard deviation cost it a
    relative error of about ``1e-16 c^2``: centre them.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """``A(eta)``: that of the Wishart, plus ``D / 2 log(2 pi / kappa)``; shape (...)."""
        kappa, m, marginal = split(eta)
        return Wishart.log_normalizer(marginal) + 0.5 * m.shape[-1] * np.log(2.0 * np.pi / kappa)

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """``E[t]``, where ``E[Lambda] = nu W``; shape of eta."""
        eta = np.asarray(eta, dtype=np.float64)
        step = max(1, _NUMBERS_AT_ONCE // eta.shape[-1])
        if eta.ndim == 2 and len(eta) > step:
            parts = [NormalWishart.expectation(eta[own]) for own in pieces(len(eta), step)]
            return np.concatenate(parts)
        kappa, m, marginal = split(eta)
        log_det, precision = moments(marginal)
        precision_mean = np.einsum("...ij,...j->...i", precision, m)
        # E[mu' Lambda mu]
        square = np.einsum("...i,...i->...", m, precision_mean) + m.shape[-1] / kappa
        scalars = np.stack([0.5 * log_det, -0.5 * square], axis=-1)
        return join(scalars, precision_mean, pack_statistic(precision))

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """One draw for each member: mean (..., D) and precision (..., D, D)."""
        kappa, m, marginal = split(eta)
        root = drawn_root(marginal, rng)
        root_transposed = np.swapaxes(root, -1, -2)
        # Lambda = root root', so that root'^-1 z has the covariance Lambda^-1
        z = rng.standard_normal((*m.shape, 1))
        deviation = np.linalg.solve(root_transposed, z)[..., 0] / np.sqrt(kappa)[..., None]
        return MeanPrecision(m + deviation, root @ root_transposed)

    @staticmethod
    def certain(x: MeanPrecision) -> Array:
        """Natural parameters of members that are nearly certain of x."""
        number = np.full(x.mean.shape[:-1], CERTAIN)
        scale_inverse = CERTAIN * np.linalg.inv(x.precision)
        return NormalWishart.from_standard(x.mean, number, number, scale_inverse)

    @staticmethod
    def standard(eta: ArrayLike) -> dict[str, Array]:
        """m (..., D), kappa (...), nu (...) and W^-1 (..., D, D), by scikit-learn's names."""
        kappa, m, marginal = split(eta)
        return {"mean": m, "mean_precision": kappa} | Wishart.standard(marginal)

    @staticmethod
    def from_standard(
        mean: ArrayLike,
        mean_precision: ArrayLike,
        degrees_of_freedom: ArrayLike,
        scale_inverse: ArrayLike,
    ) -> Array:
        """Natural parameters, shape (..., 2 + D + D (D + 1) / 2); leading axes broadcast."""
        m, scale_inverse = (np.asarray(a, dtype=np.float64) for a in (mean, scale_inverse))
        kappa = np.asarray(mean_precision, dtype=np.float64)[..., None]
        nu = np.asarray(degrees_of_freedom, dtype=np.float64)[..., None]
        triangle = pack(scale_inverse) + kappa * pack_outer(m)
        return join(nu - m.shape[-1], kappa, kappa * m, triangle)

    @staticmethod
    def mean(eta: ArrayLike) -> MeanPrecision:
        """``E[mu] = m`` (where nu > D; else the centre) and ``E[Lambda] = nu W``."""
        _, m, marginal = split(eta)
        return MeanPrecision(m, Wishart.mean(marginal))

    @staticmethod
    def variance(eta: ArrayLike) -> MeanPrecision:
        """Variance of each entry of mu (inf unless nu > D + 1) and of Lambda."""
        kappa, _, marginal = split(eta)
        scale_inverse = np.diagonal(unpack(marginal[..., 1:]), axis1=-2, axis2=-1)
        # marginal of mu: Student's t with nu - D + 1 degrees of freedom; nu - D - 1 is marginal[0]
        finite = marginal[..., :1] > 0.0
        divisor = kappa[..., None] * np.where(finite, marginal[..., :1], 1.0)
        variance = np.where(finite, scale_inverse / divisor, np.inf)
        return MeanPrecision(variance, Wishart.variance(marginal))

    @staticmethod
    def log_density(eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Log density at ``x = (mu, Lambda)`` in nats, (...); -inf off the positive definite."""
        kappa, m, marginal = split(eta)
        mean, precision = (np.asarray(part, dtype=np.float64) for part in x)
        t, inside = statistic(precision)
        deviation = mean - m
        square = np.einsum("...i,...ij,...j->...", deviation, precision, deviation)
        value = np.einsum("...d,...d->...", marginal, t) + t[..., 0] - 0.5 * kappa * square
        return np.where(inside, value - NormalWishart.log_normalizer(eta), -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        kappa, m, marginal = split(eta)
        D = m.shape[-1]
        # that of mu given Lambda, in the mean over Lambda
        given = 0.5 * (D * np.log(2.0 * np.pi * np.e / kappa) - moments(marginal)[0])
        return Wishart.entropy(marginal) + given
