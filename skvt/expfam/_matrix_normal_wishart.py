"""The matrix normal-Wishart family: coefficients and precision matrix of a linear regression."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gamma import CERTAIN_COUNT
from skvt.expfam._gaussian import join
from skvt.expfam._wishart import Wishart, compute_moments, compute_statistic, draw_root
from skvt.expfam.triangle import pack, pack_statistic, unpack
from skvt.typing import Array


class Coefficients(NamedTuple):
    """Parameters of a regression of E columns on Q regressors."""

    # (..., E, Q)
    coefficients: Array
    # (..., E, E): the inverse of the covariance matrix of the residuals.
    precision: Array


@dataclass(frozen=True)
class MatrixNormalWishart:
    """Matrix normal-Wishart distribution of coefficients B (E, Q) and a precision Lambda (E, E).

    ``Lambda ~ Wishart(nu, W)`` and, given Lambda, B is normal with the mean M and the covariance
    ``(V kron Lambda)^-1``: the covariance matrix of a row of B is proportional to ``V^-1``, that
    of a column to ``Lambda^-1``. With ``G = (B, -I)``, where I is the identity matrix,

        t(B, Lambda) = (log|Lambda| / 2, upper triangle of -G' Lambda G, halved on its diagonal),
        eta = (nu - E - 1 + Q, upper triangle of the matrix (V, V M'; M V, W^-1 + M V M')),

    with base measure 1; V is positive definite and nu > E - 1. A row y with the regressors w adds
    ``(1, upper triangle of z z')`` with z = (w, y) to eta. Its log density also has the constant
    ``-E / 2 log(2 pi)``.
    With the single regressor w = 1, the family is the :class:`~skvt.expfam.NormalWishart`, where
    m = M and kappa = V. Values are :class:`~skvt.expfam.Coefficients`.
    """

    # Q, at least 1.
    n_regressors: int

    # The name in texts, where other families are classes and have a ``__name__``.
    __name__ = "MatrixNormalWishart"

    def split(self, eta: ArrayLike) -> tuple[Array, Array, Array]:
        """Return M' (..., Q, E), V (..., Q, Q) and the Wishart natural parameters of Lambda."""
        eta = np.asarray(eta, dtype=np.float64)
        matrix = unpack(eta[..., 1:])
        Q = self.n_regressors
        V, cross = matrix[..., :Q, :Q], matrix[..., :Q, Q:]
        M = np.linalg.solve(V, cross)
        scale_inverse = matrix[..., Q:, Q:] - np.swapaxes(cross, -1, -2) @ M
        return M, V, join(eta[..., :1] - Q, pack(scale_inverse))

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return ``A(eta)``, (...): ``Q E / 2 log(2 pi) - E / 2 log|V|`` plus the Wishart's."""
        M, V, marginal = self.split(eta)
        coefficient_term = M.shape[-2] * np.log(2.0 * np.pi) - np.linalg.slogdet(V)[1]
        return Wishart.log_normalizer(marginal) + 0.5 * M.shape[-1] * coefficient_term

    def expectation(self, eta: ArrayLike) -> Array:
        """Return ``E[t]``, by ``E[Lambda] = nu W`` and ``E[B' Lambda B] = M' nu W M + E V^-1``."""
        M, V, marginal = self.split(eta)
        log_det, precision = compute_moments(marginal)
        cross = M @ precision
        square = cross @ np.swapaxes(M, -1, -2) + M.shape[-1] * np.linalg.inv(V)
        blocks = np.concatenate([
            np.concatenate([0.5 * (square + np.swapaxes(square, -1, -2)), -cross], axis=-1),
            np.concatenate([-np.swapaxes(cross, -1, -2), precision], axis=-1),
        ], axis=-2)  # fmt: skip
        return join(0.5 * log_det[..., None], pack_statistic(blocks))

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Coefficients:
        """Draw B and Lambda once for each set of natural parameters."""
        M, V, marginal = self.split(eta)
        root = draw_root(marginal, rng)
        root_transposed = np.swapaxes(root, -1, -2)
        noise = rng.standard_normal(np.swapaxes(M, -1, -2).shape)
        deviation = np.linalg.solve(root_transposed, noise) @ np.linalg.inv(np.linalg.cholesky(V))
        return Coefficients(np.swapaxes(M, -1, -2) + deviation, root @ root_transposed)

    def concentrate_at(self, x: Coefficients) -> Array:
        """Return natural parameters of distributions that are concentrated at x."""
        nu = np.full(x.precision.shape[:-2], CERTAIN_COUNT)
        V = CERTAIN_COUNT * np.eye(self.n_regressors)
        scale_inverse = CERTAIN_COUNT * np.linalg.inv(x.precision)
        return self.from_standard(x.coefficients, V, nu, scale_inverse)

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return M (..., E, Q), V (..., Q, Q), nu (...) and W^-1 (..., E, E)."""
        M, V, marginal = self.split(eta)
        coefficients = {"coefficients": np.swapaxes(M, -1, -2), "coefficients_precision": V}
        return coefficients | Wishart.to_standard(marginal)

    def from_standard(
        self, coefficients: ArrayLike, coefficients_precision: ArrayLike,
        degrees_of_freedom: ArrayLike, scale_inverse: ArrayLike,
    ) -> Array:  # fmt: skip
        """Return the natural parameters of M, V, nu and W^-1; leading axes broadcast."""
        M = np.asarray(coefficients, np.float64)
        V = np.asarray(coefficients_precision, np.float64)
        W_inverse = np.asarray(scale_inverse, np.float64)
        MV = M @ V
        leading = np.broadcast_shapes(MV.shape[:-2], W_inverse.shape[:-2])
        E, Q = M.shape[-2:]
        blocks = np.empty((*leading, Q + E, Q + E))
        blocks[..., :Q, :Q], blocks[..., Q:, :Q] = V, MV
        blocks[..., :Q, Q:] = np.swapaxes(MV, -1, -2)
        blocks[..., Q:, Q:] = W_inverse + MV @ np.swapaxes(M, -1, -2)
        nu = np.asarray(degrees_of_freedom, np.float64)[..., None]
        return join(nu - E - 1.0 + Q, pack(blocks))

    def mean(self, eta: ArrayLike) -> Coefficients:
        """Return the centre M of B, which is its mean if nu > E, and ``E[Lambda] = nu W``."""
        M, _, marginal = self.split(eta)
        return Coefficients(np.swapaxes(M, -1, -2), Wishart.mean(marginal))

    def variance(self, eta: ArrayLike) -> Coefficients:
        """Return the variances of entries of B, inf if nu <= E + 1, and of entries of Lambda."""
        _, V, marginal = self.split(eta)
        # B has a matrix t distribution with nu - E + 1 degrees of freedom, so that the variance of
        # B_eq is (W^-1)_ee (V^-1)_qq / (nu - E - 1). The first entry of ``marginal`` is nu - E - 1.
        excess = marginal[..., :1, None]
        scale = np.diagonal(unpack(marginal[..., 1:]), axis1=-2, axis2=-1)[..., :, None]
        inverse = np.diagonal(np.linalg.inv(V), axis1=-2, axis2=-1)[..., None, :]
        is_finite = excess > 0.0
        variance = np.where(is_finite, scale * inverse / np.where(is_finite, excess, 1.0), np.inf)
        return Coefficients(variance, Wishart.variance(marginal))

    def log_density(self, eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Return the log density at ``x = (B, Lambda)`` in nats, shape (...)."""
        M, V, marginal = self.split(eta)
        B, precision = (np.asarray(part, np.float64) for part in x)
        t, is_legal = compute_statistic(precision)
        deviation = B - np.swapaxes(M, -1, -2)
        mahalanobis = np.einsum("...eq,...ef,...fr,...qr->...", deviation, precision, deviation, V)
        value = np.einsum("...d,...d->...", marginal, t) - 0.5 * mahalanobis
        value = value + self.n_regressors * t[..., 0] - self.log_normalizer(eta)
        return np.where(is_legal, value, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        eta = np.asarray(eta, np.float64)
        inner = np.einsum("...d,...d->...", eta, self.expectation(eta))
        return self.log_normalizer(eta) - inner
