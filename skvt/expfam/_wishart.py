"""The Wishart family: precision matrices of Gaussians."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skvt.compiled import digamma_array as digamma
from skvt.compiled import gammaln_array as gammaln
from skvt.expfam._gamma import CERTAIN
from skvt.expfam._gaussian import join, standard_gamma
from skvt.expfam.triangle import dimension, pack, pack_statistic, unpack
from skvt.typing import Array

# Least number of columns at which triangular matrices are inverted by halves.
_MANY_COLUMNS = 24


def parameters(eta: ArrayLike) -> tuple[Array, Array]:
    """Return degrees of freedom nu (...) and the lower Cholesky factor of W^-1 (..., D, D)."""
    eta = np.asarray(eta, dtype=np.float64)
    scale_inverse = unpack(eta[..., 1:])
    try:
        factor = np.linalg.cholesky(scale_inverse)
        # LAPACK does not reject NaN
        positive = bool(np.all(np.diagonal(factor, axis1=-2, axis2=-1) > 0.0))
    except np.linalg.LinAlgError:
        positive = False
    if not positive:
        raise ValueError(
            "The inverse scale matrix W^-1 of a Wishart is not positive definite. Give the prior a "
            "positive definite scale_inverse, rather than learn it; if the data lie far from 0 "
            "compared with their spread, centre them; scale columns and weights of rows to the "
            "order of 1."
        )
    return eta[..., 0] + scale_inverse.shape[-1] + 1.0, factor


def _halves(nu: ArrayLike, D: int) -> Array:
    """Return ``(nu - i) / 2``, i = 0, ..., D - 1, arguments of the multivariate gamma function."""
    return 0.5 * (np.asarray(nu)[..., None] - np.arange(D))


def _inverse(factor: Array) -> Array:
    """Invert lower triangles (..., D, D) by halves; ``inv`` takes twice as long at D = 64."""
    D = factor.shape[-1]
    if D < _MANY_COLUMNS:
        return np.tril(np.linalg.inv(factor))
    h = D // 2
    inverse = np.zeros(factor.shape)
    inverse[..., :h, :h] = top = _inverse(factor[..., :h, :h])
    inverse[..., h:, h:] = bottom = _inverse(factor[..., h:, h:])
    inverse[..., h:, :h] = -bottom @ (factor[..., h:, :h] @ top)
    return inverse


def _log_det_scale_inverse(factor: Array) -> Array:
    return 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)


def moments(eta: ArrayLike) -> tuple[Array, Array]:
    """Return ``E[log|Lambda|]`` (...) and ``E[Lambda] = nu W`` (..., D, D)."""
    nu, factor = parameters(eta)
    D = factor.shape[-1]
    log_det = digamma(_halves(nu, D)).sum(axis=-1) + D * np.log(2.0)
    inverse = _inverse(factor)
    precision = np.swapaxes(inverse, -1, -2) @ inverse
    precision *= nu[..., None, None]
    return log_det - _log_det_scale_inverse(factor), precision


def statistic(precision: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """Return ``t(Lambda)``, and whether Lambda is symmetric and positive definite, (...)."""
    precision = np.asarray(precision, dtype=np.float64)
    diagonal = np.diagonal(precision, axis1=-2, axis2=-1)
    inside = np.all(diagonal > 0.0, axis=-1)
    root = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    with np.errstate(invalid="ignore"):
        # scale to a unit diagonal, so that the units of the features cost no digits
        scaled = precision / (root[..., :, None] * root[..., None, :])
        inside &= np.all(np.abs(scaled - np.swapaxes(scaled, -1, -2)) < 1e-8, axis=(-2, -1))
    scaled = np.where(inside[..., None, None], scaled, np.eye(precision.shape[-1]))
    eigenvalues = np.linalg.eigvalsh(scaled)
    inside &= eigenvalues[..., 0] > 0.0
    log_root = np.log(root) + 0.5 * np.log(np.where(inside[..., None], eigenvalues, 1.0))
    return join(log_root.sum(axis=-1)[..., None], pack_statistic(precision)), inside


def drawn_root(eta: ArrayLike, rng: np.random.Generator) -> Array:
    """Draw a root (..., D, D) of each member by Bartlett's theorem: Lambda = root root'."""
    nu, factor = parameters(eta)
    D = factor.shape[-1]
    lower = np.tril(rng.standard_normal((*nu.shape, D, D)), -1)
    i = np.arange(D)
    lower[..., i, i] = np.sqrt(2.0 * standard_gamma(_halves(nu, D), rng))
    # W = L^-T L^-1 where W^-1 = L L'
    return np.linalg.solve(np.swapaxes(factor, -1, -2), lower)


class Wishart:
    """Wishart distribution of a precision matrix Lambda (D, D), ``E[Lambda] = nu W``.

    ``t(Lambda) = (log|Lambda| / 2, upper triangle, row by row, of -Lambda, halved on its
    diagonal)``, natural parameter ``eta = (nu - D - 1, upper triangle of W^-1)``, base measure 1 on
    the entries of the upper triangle; nu > D - 1. The rows x of a Gaussian of known mean 0 add
    ``(1, upper triangle of x x')`` each, and ``-D / 2 log(2 pi)`` to the log density.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """``A(eta) = log Gamma_D(nu / 2) + nu D / 2 log 2 + nu / 2 log|W|``, shape (...)."""
        nu, factor = parameters(eta)
        D = factor.shape[-1]
        log_gamma = 0.25 * D * (D - 1) * np.log(np.pi) + gammaln(_halves(nu, D)).sum(axis=-1)
        return log_gamma + 0.5 * nu * (D * np.log(2.0) - _log_det_scale_inverse(factor))

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """``E[log|Lambda|] / 2`` and the triangle of ``E[Lambda] = nu W``, shape of eta."""
        log_det, precision = moments(eta)
        return join(0.5 * log_det[..., None], pack_statistic(precision))

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """One draw of Lambda for each member, shape (..., D, D)."""
        root = drawn_root(eta, rng)
        return root @ np.swapaxes(root, -1, -2)

    @staticmethod
    def certain(x: Array) -> Array:
        """Return natural parameters of members that are nearly certain of x."""
        number = np.full(x.shape[:-2], CERTAIN)
        return Wishart.from_standard(number, CERTAIN * np.linalg.inv(x))

    @staticmethod
    def standard(eta: ArrayLike) -> dict[str, Array]:
        """``{"degrees_of_freedom": nu (...), "scale_inverse": W^-1 (..., D, D)}``."""
        eta = np.asarray(eta, dtype=np.float64)
        D = dimension(eta.shape[-1] - 1)
        return {"degrees_of_freedom": eta[..., 0] + D + 1.0, "scale_inverse": unpack(eta[..., 1:])}

    @staticmethod
    def from_standard(degrees_of_freedom: ArrayLike, scale_inverse: ArrayLike) -> Array:
        """Natural parameters, shape (..., 1 + D (D + 1) / 2); leading axes broadcast."""
        scale_inverse = np.asarray(scale_inverse, dtype=np.float64)
        nu = np.asarray(degrees_of_freedom, dtype=np.float64)[..., None]
        return join(nu - scale_inverse.shape[-1] - 1.0, pack(scale_inverse))

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """``E[Lambda] = nu W``, shape (..., D, D)."""
        return moments(eta)[1]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """``Var[Lambda_ij] = nu (W_ij^2 + W_ii W_jj)``, shape (..., D, D)."""
        mean = moments(eta)[1]
        nu = Wishart.standard(eta)["degrees_of_freedom"][..., None, None]
        diagonal = np.diagonal(mean, axis1=-2, axis2=-1)
        return (mean**2 + diagonal[..., :, None] * diagonal[..., None, :]) / nu

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Log density at Lambda = ``x`` in nats, shape (...); -inf off the positive definite."""
        t, inside = statistic(x)
        value = np.einsum("...d,...d->...", np.asarray(eta, dtype=np.float64), t)
        return np.where(inside, value - Wishart.log_normalizer(eta), -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        D = dimension(eta.shape[-1] - 1)
        # E[tr(W^-1 Lambda)] = nu D
        rest = 0.5 * ((eta[..., 0] + D + 1.0) * D - eta[..., 0] * moments(eta)[0])
        return Wishart.log_normalizer(eta) + rest
