"""The matrix normal-Wishart family: coefficients and precision matrix of a linear regression.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

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
    """Parameters of a regression of E columns on Q regressors, or variances of their entries."""

    # (..., E, Q): the coefficients B.
    coefficients: Array
    # (..., E, E): the inverse Lambda of the covariance matrix of the residuals.
    precision: Array


@dataclass(frozen=True)
class MatrixNormalWishart:
    """Matrix normal-Wishart distribution of coefficients B (E, Q) and a precision Lambda (E, E).

    ``Lambda ~ Wishart(nu, W)`` and, given Lambda, B is normal with the mean M (E, Q) and the
    covariance ``(V kron Lambda)^-1``, where V is (Q, Q). The covariance matrix of a row of B is
    proportional to ``V^-1``, and the covariance matrix of a column is proportional to
    ``Lambda^-1``. With ``G = (B, -I)``, where I is the identity matrix, the sufficient statistic
    and the natural parameter are

        t(B, Lambda) = (log|Lambda| / 2, triangle of -G' Lambda G, halved on its diagonal),
        eta = (nu - E - 1 + Q, triangle of the matrix (V, V M'; M V, W^-1 + M V M')).

    A triangle is the upper triangle of a matrix, row by row. The base measure is 1, V is positive
    definite, and nu > E - 1. The likelihood of a row y (E,) of data with the regressors w (Q,) adds
    ``(1, triangle of z z')`` to eta, where z = (w, y). The log density of the row also has the
    constant ``-E / 2 log(2 pi)``.

    With the single regressor w = 1, the family is the :class:`~skvt.expfam.NormalWishart`, where
    m = M and kappa = V. Draws are :class:`~skvt.expfam.Coefficients`.
    """

    # Number of regressors Q, at least 1.
    n_regressors: int

    # Texts name a family by its ``__name__``. The other families are classes, which have this
    # attribute, but this family is an instance.
    __name__ = "MatrixNormalWishart"

    def split(self, eta: ArrayLike) -> tuple[Array, Array, Array]:
        """Return M' (..., Q, E), V (..., Q, Q) and the Wishart natural parameters of Lambda."""
        eta = np.asarray(eta, dtype=np.float64)
        # The entries after the first are the triangle of the matrix (V, V M'; M V, W^-1 + M V M').
        matrix = unpack(eta[..., 1:])
        Q = self.n_regressors
        V, cross = matrix[..., :Q, :Q], matrix[..., :Q, Q:]
        M_transposed = np.linalg.solve(V, cross)
        scale_inverse = matrix[..., Q:, Q:] - np.swapaxes(cross, -1, -2) @ M_transposed
        return M_transposed, V, join(eta[..., :1] - Q, pack(scale_inverse))

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return ``A(eta)`` in nats, shape (...).

        It is ``E / 2 (Q log(2 pi) - log|V|)`` plus the log-normaliser of the marginal of Lambda.
        """
        M_transposed, V, marginal = self.split(eta)
        Q, E = M_transposed.shape[-2:]
        coefficient_term = Q * np.log(2.0 * np.pi) - np.linalg.slogdet(V)[1]
        return Wishart.log_normalizer(marginal) + 0.5 * E * coefficient_term

    def expectation(self, eta: ArrayLike) -> Array:
        """Return ``E[t(B, Lambda)]`` in the shape of eta.

        It follows from ``E[Lambda] = nu W`` and ``E[B' Lambda B] = M' nu W M + E V^-1``.
        """
        M_transposed, V, marginal = self.split(eta)
        E = M_transposed.shape[-1]
        log_det, precision = compute_moments(marginal)
        cross = M_transposed @ precision
        square = cross @ np.swapaxes(M_transposed, -1, -2) + E * np.linalg.inv(V)
        # E[G' Lambda G], with the first block made symmetric in spite of rounding errors.
        matrix = np.concatenate([
            np.concatenate([0.5 * (square + np.swapaxes(square, -1, -2)), -cross], axis=-1),
            np.concatenate([-np.swapaxes(cross, -1, -2), precision], axis=-1),
        ], axis=-2)  # fmt: skip
        return join(0.5 * log_det[..., None], pack_statistic(matrix))

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Coefficients:
        """Draw B (..., E, Q) and Lambda (..., E, E) for each member."""
        M_transposed, V, marginal = self.split(eta)
        M = np.swapaxes(M_transposed, -1, -2)
        root = draw_root(marginal, rng)
        root_transposed = np.swapaxes(root, -1, -2)
        noise = rng.standard_normal(M.shape)
        # Since Lambda = root root', columns of root'^-1 noise have the covariance Lambda^-1.
        deviation = np.linalg.solve(root_transposed, noise) @ np.linalg.inv(np.linalg.cholesky(V))
        return Coefficients(M + deviation, root @ root_transposed)

    def concentrate_at(self, x: Coefficients) -> Array:
        """Return natural parameters of members that are nearly certain of x."""
        nu = np.full(x.precision.shape[:-2], CERTAIN_COUNT)
        V = CERTAIN_COUNT * np.eye(self.n_regressors)
        scale_inverse = CERTAIN_COUNT * np.linalg.inv(x.precision)
        return self.from_standard(x.coefficients, V, nu, scale_inverse)

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return M (..., E, Q), V (..., Q, Q), nu (...) and W^-1 (..., E, E) by name."""
        M_transposed, V, marginal = self.split(eta)
        M = np.swapaxes(M_transposed, -1, -2)
        coefficients = {"coefficients": M, "coefficients_precision": V}
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
        leading_shape = np.broadcast_shapes(MV.shape[:-2], W_inverse.shape[:-2])
        E, Q = M.shape[-2:]
        matrix = np.empty((*leading_shape, Q + E, Q + E))
        matrix[..., :Q, :Q], matrix[..., Q:, :Q] = V, MV
        matrix[..., :Q, Q:] = np.swapaxes(MV, -1, -2)
        matrix[..., Q:, Q:] = W_inverse + MV @ np.swapaxes(M, -1, -2)
        nu = np.asarray(degrees_of_freedom, np.float64)[..., None]
        return join(nu - E - 1.0 + Q, pack(matrix))

    def mean(self, eta: ArrayLike) -> Coefficients:
        """Return the centre M of B, which is its mean if nu > E, and ``E[Lambda] = nu W``."""
        M_transposed, _, marginal = self.split(eta)
        return Coefficients(np.swapaxes(M_transposed, -1, -2), Wishart.mean(marginal))

    def variance(self, eta: ArrayLike) -> Coefficients:
        """Return the variances of the entries of B and of the entries of Lambda.

        The variances of B are inf unless nu > E + 1.
        """
        _, V, marginal = self.split(eta)
        # B has a matrix t distribution with nu - E + 1 degrees of freedom, so that the variance of
        # B_eq is (W^-1)_ee (V^-1)_qq / (nu - E - 1). The first entry of ``marginal`` is nu - E - 1,
        # and the other entries are the triangle of W^-1.
        divisor = marginal[..., :1, None]
        W_inverse_ee = np.diagonal(unpack(marginal[..., 1:]), axis1=-2, axis2=-1)[..., :, None]
        V_inverse_qq = np.diagonal(np.linalg.inv(V), axis1=-2, axis2=-1)[..., None, :]
        is_finite = divisor > 0.0
        safe_divisor = np.where(is_finite, divisor, 1.0)
        variance = np.where(is_finite, W_inverse_ee * V_inverse_qq / safe_divisor, np.inf)
        return Coefficients(variance, Wishart.variance(marginal))

    def log_density(self, eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Return the log density at ``x = (B, Lambda)`` in nats, shape (...).

        It is -inf if Lambda is not symmetric and positive definite.
        """
        M_transposed, V, marginal = self.split(eta)
        B, precision = (np.asarray(values, np.float64) for values in x)
        # t is the sufficient statistic of the Wishart, whose first entry is log|Lambda| / 2.
        t, is_legal = compute_statistic(precision)
        deviation = B - np.swapaxes(M_transposed, -1, -2)
        # tr(deviation' Lambda deviation V)
        mahalanobis = np.einsum("...eq,...ef,...fr,...qr->...", deviation, precision, deviation, V)
        log_density = np.einsum("...d,...d->...", marginal, t) - 0.5 * mahalanobis
        log_density = log_density + self.n_regressors * t[..., 0] - self.log_normalizer(eta)
        return np.where(is_legal, log_density, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        """Return the differential entropy in nats, shape (...)."""
        eta = np.asarray(eta, np.float64)
        inner_product = np.einsum("...d,...d->...", eta, self.expectation(eta))
        return self.log_normalizer(eta) - inner_product
