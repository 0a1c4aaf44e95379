"""The Wishart family: precision matrices of Gaussians.

A member of the family is the distribution of a precision matrix Lambda (D, D), with nu degrees of
freedom, nu > D - 1, and the scale matrix W (D, D). The natural parameter of a member is the vector
``eta = (nu - D - 1, upper triangle of W^-1)``, and the sufficient statistic is ``t(Lambda) =
(log|Lambda| / 2, upper triangle of -Lambda with its diagonal halved)``. Triangles are stored row by
row. The leading axes of arrays enumerate members. :class:`~skvt.expfam.Family` documents the
methods that all families have.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skvt._compiled import digamma_array as digamma
from skvt._compiled import gammaln_array as gammaln
from skvt.expfam._gamma import CERTAIN_COUNT
from skvt.expfam._gaussian import join, standard_gamma
from skvt.expfam.triangle import dimension, pack, pack_statistic, unpack
from skvt.typing import Array

# Triangular matrices with at least this number of columns are inverted by halves.
_MANY_COLUMNS = 24
# Largest difference of opposite entries in a symmetric matrix with a unit diagonal.
_SYMMETRY_TOLERANCE = 1e-8


def get_freedom_and_factor(eta: ArrayLike) -> tuple[Array, Array]:
    """Return degrees of freedom nu (...) and the lower Cholesky factor of W^-1 (..., D, D).

    Raises ValueError if W^-1 is not positive definite.
    """
    eta = np.asarray(eta, dtype=np.float64)
    scale_inverse = unpack(eta[..., 1:])
    # The Cholesky decomposition fails if the matrix is not positive definite.
    try:
        factor = np.linalg.cholesky(scale_inverse)
        # The diagonal is checked, too, because LAPACK does not reject NaN.
        is_positive = bool(np.all(np.diagonal(factor, axis1=-2, axis2=-1) > 0.0))
    except np.linalg.LinAlgError:
        is_positive = False
    if not is_positive:
        raise ValueError(
            "The inverse scale matrix W^-1 of a Wishart distribution is not positive definite "
            "after rounding. Set a positive definite scale of the prior instead of learning it, "
            "subtract the mean of each column if it is large compared with the spread, and scale "
            "columns and weights to the order of 1."
        )
    return eta[..., 0] + scale_inverse.shape[-1] + 1.0, factor


def _make_gamma_arguments(nu: ArrayLike, D: int) -> Array:
    """Return ``(nu - i) / 2`` for i = 0, ..., D - 1, shape (..., D).

    Up to a power of pi, the multivariate gamma function of nu / 2 is the product of the gamma
    functions of these numbers.
    """
    return 0.5 * (np.asarray(nu)[..., None] - np.arange(D))


def _invert_triangular(factor: Array) -> Array:
    """Invert lower triangular matrices (..., D, D), by halves if they are large.

    At D = 64, ``np.linalg.inv`` takes twice as long as this function.
    """
    D = factor.shape[-1]
    if D < _MANY_COLUMNS:
        # LAPACK pivots, and therefore leaves rounding errors above the diagonal. Set them to 0.
        return np.where(_is_lower(D), np.linalg.inv(factor), 0.0)
    half = D // 2
    top = _invert_triangular(factor[..., :half, :half])
    bottom = _invert_triangular(factor[..., half:, half:])
    inverse = np.zeros(factor.shape)
    inverse[..., :half, :half] = top
    inverse[..., half:, half:] = bottom
    inverse[..., half:, :half] = -bottom @ (factor[..., half:, :half] @ top)
    return inverse


@lru_cache(maxsize=16)
def _is_lower(D: int) -> NDArray[np.bool_]:
    """Return whether each element of a matrix (D, D) is in its lower triangle."""
    return np.tri(D, dtype=bool)


def _compute_log_det_scale_inverse(factor: Array) -> Array:
    """Return log|W^-1| (...), given the lower Cholesky factor of W^-1."""
    return 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)


def compute_moments(eta: ArrayLike) -> tuple[Array, Array]:
    """Return ``E[log|Lambda|]`` (...) and ``E[Lambda] = nu W`` (..., D, D)."""
    nu, factor = get_freedom_and_factor(eta)
    D = factor.shape[-1]
    log_det = digamma(_make_gamma_arguments(nu, D)).sum(axis=-1) + D * np.log(2.0)
    inverse = _invert_triangular(factor)
    precision = np.swapaxes(inverse, -1, -2) @ inverse
    precision *= nu[..., None, None]
    return log_det - _compute_log_det_scale_inverse(factor), precision


def compute_statistic(precision: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """Return ``t(Lambda)`` (..., 1 + D (D + 1) / 2) and whether Lambda is legal, (...).

    A legal precision is symmetric and positive definite. The result ``t(Lambda)`` has no meaning if
    Lambda is illegal.
    """
    precision = np.asarray(precision, dtype=np.float64)
    diagonal = np.diagonal(precision, axis1=-2, axis2=-1)
    is_legal = np.all(diagonal > 0.0, axis=-1)
    scales = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    with np.errstate(invalid="ignore"):
        # Scale to a unit diagonal, so that different units of the features cost no digits.
        scaled = precision / (scales[..., :, None] * scales[..., None, :])
        asymmetry = np.abs(scaled - np.swapaxes(scaled, -1, -2))
        is_legal &= np.all(asymmetry < _SYMMETRY_TOLERANCE, axis=(-2, -1))
    # Replace illegal matrices by a matrix whose eigenvalues exist.
    scaled = np.where(is_legal[..., None, None], scaled, np.eye(precision.shape[-1]))
    eigenvalues = np.linalg.eigvalsh(scaled)
    # The first eigenvalue is the smallest.
    is_legal &= eigenvalues[..., 0] > 0.0
    # The sum of these terms is log|Lambda| / 2. A single term has no meaning, because eigenvalues
    # do not belong to columns.
    half_log_terms = np.log(scales) + 0.5 * np.log(np.where(is_legal[..., None], eigenvalues, 1.0))
    return join(half_log_terms.sum(axis=-1)[..., None], pack_statistic(precision)), is_legal


def draw_root(eta: ArrayLike, rng: np.random.Generator) -> Array:
    """Draw Lambda for each member, and return a root (..., D, D) with Lambda = root root'.

    By Bartlett's theorem, the lower triangular root of a draw with W = I has independent entries:
    standard normal variates below the diagonal, and square roots of chi-squared variates with
    nu - i degrees of freedom on the diagonal, i = 0, ..., D - 1.
    """
    nu, factor = get_freedom_and_factor(eta)
    D = factor.shape[-1]
    root = np.tril(rng.standard_normal((*nu.shape, D, D)), -1)
    i = np.arange(D)
    root[..., i, i] = np.sqrt(2.0 * standard_gamma(_make_gamma_arguments(nu, D), rng))
    # ``factor`` is L with W^-1 = L L', so that W = L^-T L^-1. L^-T maps a root for W = I to a root
    # for W.
    return np.linalg.solve(np.swapaxes(factor, -1, -2), root)


class Wishart:
    """Wishart distribution of a precision matrix Lambda (D, D), ``E[Lambda] = nu W``.

    The natural parameter is ``eta = (nu - D - 1, upper triangle of W^-1)``. The sufficient
    statistic is ``t(Lambda) = (log|Lambda| / 2, upper triangle of -Lambda with its diagonal
    halved)``. The base measure is 1 on the entries of the upper triangle. A row x of a Gaussian of
    known mean 0 adds ``(1, upper triangle of x x')`` to eta. The log density of the row also has
    the constant ``-D / 2 log(2 pi)``.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``log Gamma_D(nu / 2) + nu D / 2 log 2 + nu / 2 log|W|`` in nats, (...)."""
        nu, factor = get_freedom_and_factor(eta)
        D = factor.shape[-1]
        log_gamma = 0.25 * D * (D - 1) * np.log(np.pi)
        log_gamma = log_gamma + gammaln(_make_gamma_arguments(nu, D)).sum(axis=-1)
        return log_gamma + 0.5 * nu * (D * np.log(2.0) - _compute_log_det_scale_inverse(factor))

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return ``E[t(Lambda)]`` in the shape of eta, computed from ``E[Lambda] = nu W``."""
        log_det, precision = compute_moments(eta)
        return join(0.5 * log_det[..., None], pack_statistic(precision))

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw Lambda (..., D, D) for each member."""
        root = draw_root(eta, rng)
        return root @ np.swapaxes(root, -1, -2)

    @staticmethod
    def concentrate_at(x: Array) -> Array:
        """Return natural parameters of members that are nearly certain of x."""
        nu = np.full(x.shape[:-2], CERTAIN_COUNT)
        return Wishart.from_standard(nu, CERTAIN_COUNT * np.linalg.inv(x))

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return nu (...) and W^-1 (..., D, D) by name."""
        eta = np.asarray(eta, dtype=np.float64)
        D = dimension(eta.shape[-1] - 1)
        return {"degrees_of_freedom": eta[..., 0] + D + 1.0, "scale_inverse": unpack(eta[..., 1:])}

    @staticmethod
    def from_standard(degrees_of_freedom: ArrayLike, scale_inverse: ArrayLike) -> Array:
        """Return natural parameters (..., 1 + D (D + 1) / 2); leading axes broadcast."""
        scale_inverse = np.asarray(scale_inverse, dtype=np.float64)
        nu = np.asarray(degrees_of_freedom, dtype=np.float64)[..., None]
        return join(nu - scale_inverse.shape[-1] - 1.0, pack(scale_inverse))

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """Return ``E[Lambda] = nu W``, shape (..., D, D)."""
        return compute_moments(eta)[1]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """Return ``Var[Lambda_ij] = nu (W_ij^2 + W_ii W_jj)``, shape (..., D, D)."""
        mean = Wishart.mean(eta)
        nu = Wishart.to_standard(eta)["degrees_of_freedom"][..., None, None]
        diagonal = np.diagonal(mean, axis1=-2, axis2=-1)
        # The mean is nu W, so that one factor nu is too many.
        return (mean**2 + diagonal[..., :, None] * diagonal[..., None, :]) / nu

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at Lambda = ``x`` in nats, shape (...).

        It is -inf if Lambda is not symmetric and positive definite.
        """
        t, is_legal = compute_statistic(x)
        inner_product = np.einsum("...d,...d->...", np.asarray(eta, dtype=np.float64), t)
        return np.where(is_legal, inner_product - Wishart.log_normalizer(eta), -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        """Return the entropy in nats, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        D = dimension(eta.shape[-1] - 1)
        # This is -<eta, E[t]>, since E[tr(W^-1 Lambda)] = nu D.
        log_det, _ = compute_moments(eta)
        minus_inner_product = 0.5 * ((eta[..., 0] + D + 1.0) * D - eta[..., 0] * log_det)
        return Wishart.log_normalizer(eta) + minus_inner_product
