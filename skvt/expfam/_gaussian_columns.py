"""The distribution of the loadings of a factor model: matrices with independent Gaussian columns.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dtrtri

from skvt.expfam._gaussian import join
from skvt.expfam.triangle import pack, pack_statistic, unpack
from skvt.typing import Array

LOG_2PI = np.log(2.0 * np.pi)


@dataclass(frozen=True)
class GaussianColumns:
    """Distribution of matrices mu (K, D) with independent columns ``mu_d ~ N(m_d, Lambda_d^-1)``.

    There are P precision matrices (K, K): one matrix Lambda for all columns, P = 1, or a matrix
    Lambda_d for each column, P = D. The natural parameter consists of the upper triangles of the P
    matrices, followed by the entries of h (K, D), row by row. Column d of h is
    ``h_d = Lambda_d m_d``. An observation ``y ~ N(z' mu, 1)`` adds z z' to the matrices and z y' to
    h.
    """

    # Number K of rows of mu.
    n_rows: int
    # Number D of columns of mu.
    n_columns: int

    # The name of the family in messages. Other families are classes, which have a ``__name__``, but
    # this family is an instance.
    __name__ = "GaussianColumns"

    def natural(self, precision: Array, linear: ArrayLike) -> Array:
        """Return the natural parameter, given ``precision`` (P, K, K) and ``linear`` h (K, D)."""
        return join(pack(precision).reshape(-1), np.reshape(linear, -1))

    def _split(self, eta: ArrayLike) -> tuple[Array, Array]:
        """Split eta into ``Lambda`` (..., P, K, K) and ``h`` (..., K, D)."""
        eta = np.asarray(eta, dtype=np.float64)
        K, D = self.n_rows, self.n_columns
        triangles, linear_entries = eta[..., : -K * D], eta[..., -K * D :]
        triangles = triangles.reshape(*eta.shape[:-1], -1, K * (K + 1) // 2)
        return unpack(triangles), linear_entries.reshape(*eta.shape[:-1], K, D)

    def _solve_for_mean(self, eta: ArrayLike) -> tuple[Array, Array, Array]:
        """Return the mean (..., K, D), Cholesky factors (..., P, K, K) and the log-determinant.

        The factors L_d are lower triangular, with ``Lambda_d = L_d L_d'``. The last result, shape
        (...), is the sum of log|Lambda_d| over all D columns.
        """
        precision, linear = self._split(eta)
        factor = np.linalg.cholesky(precision)
        n_matrices = precision.shape[-3]
        # Solve rather than invert, because observations with large z make Lambda ill-conditioned.
        if n_matrices == 1:
            mean = np.linalg.solve(precision[..., 0, :, :], linear)
        else:
            # One equation for each column, whose right side is a matrix (K, 1).
            columns = np.swapaxes(linear, -1, -2)[..., None]
            mean = np.swapaxes(np.linalg.solve(precision, columns)[..., 0], -1, -2)
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=(-2, -1))
        # A shared matrix counts once for each of its columns.
        return mean, factor, log_det * (self.n_columns // n_matrices)

    def _compute_moments(self, eta: ArrayLike) -> tuple[Array, Array]:
        """Return the mean (..., K, D) and the covariances (..., P, K, K) of the columns."""
        mean, factor, _ = self._solve_for_mean(eta)
        if factor.size == self.n_rows**2:
            # There is a single matrix. If it is large, dtrtri is five times as fast as
            # np.linalg.inv.
            inverse = dtrtri(factor.reshape(self.n_rows, -1), lower=1)[0].reshape(factor.shape)
        else:
            inverse = np.linalg.inv(factor)
        return mean, np.swapaxes(inverse, -1, -2) @ inverse

    def second_moments(self, mean: Array, covariance: Array, *, by_column: bool) -> Array:
        """Return ``E[mu_d mu_d']`` of each column, or its sum over the columns.

        ``mean`` is (..., K, D), and ``covariance`` is (..., P, K, K). The result is (..., D, K, K)
        if ``by_column``, otherwise (..., 1, K, K).
        """
        columns = np.swapaxes(mean, -1, -2)
        if by_column:
            return columns[..., :, None] * columns[..., None, :] + covariance
        # A shared covariance counts once for each of its columns.
        sum_of_covariances = covariance.sum(axis=-3, keepdims=True)
        sum_of_covariances = sum_of_covariances * (self.n_columns // covariance.shape[-3])
        return (mean @ columns)[..., None, :, :] + sum_of_covariances

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return ``sum_d (h_d' Lambda_d^-1 h_d - log|Lambda_d|) / 2`` in nats, shape (...)."""
        mean, _, log_det = self._solve_for_mean(eta)
        _, linear = self._split(eta)
        return 0.5 * ((mean * linear).sum(axis=(-2, -1)) - log_det)

    def expectation(self, eta: ArrayLike) -> Array:
        """Return ``E[t(mu)]`` in the shape of eta.

        The result consists of the upper triangles of ``-E[mu_d mu_d'] / 2``, with doubled entries
        off the diagonal, followed by the entries of E[mu], row by row. If columns share one
        precision matrix, their triangles are summed.
        """
        mean, covariance = self._compute_moments(eta)
        by_column = covariance.shape[-3] > 1
        # `pack_statistic` multiplies by -1/2 and doubles the entries off the diagonal.
        second_moments = pack_statistic(self.second_moments(mean, covariance, by_column=by_column))
        leading_shape = mean.shape[:-2]
        return join(second_moments.reshape(*leading_shape, -1), mean.reshape(*leading_shape, -1))

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw mu (..., K, D) for each member."""
        mean, covariance = self._compute_moments(eta)
        # For each column, a matrix (K, 1) of standard normal variates.
        noise = rng.standard_normal((*mean.shape[:-2], self.n_columns, self.n_rows, 1))
        deviation = (np.linalg.cholesky(covariance) @ noise)[..., 0]
        return mean + np.swapaxes(deviation, -1, -2)

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return ``mean`` (..., K, D) and ``covariance`` (..., P, K, K) of the columns."""
        mean, covariance = self._compute_moments(eta)
        return {"mean": mean, "covariance": covariance}

    def mean(self, eta: ArrayLike) -> Array:
        return self._solve_for_mean(eta)[0]

    def variance(self, eta: ArrayLike) -> Array:
        mean, covariance = self._compute_moments(eta)
        variances = np.diagonal(covariance, axis1=-2, axis2=-1)
        return np.broadcast_to(np.swapaxes(variances, -1, -2), mean.shape).copy()

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at x (..., K, D) in nats, shape (...)."""
        mean, _, log_det = self._solve_for_mean(eta)
        precision, _ = self._split(eta)
        deviations = np.swapaxes(np.asarray(x, dtype=np.float64) - mean, -1, -2)[..., None]
        mahalanobis = (deviations * (precision @ deviations)).sum(axis=(-3, -2, -1))
        return 0.5 * (log_det - mahalanobis - self.n_rows * self.n_columns * LOG_2PI)

    def entropy(self, eta: ArrayLike) -> Array:
        _, _, log_det = self._solve_for_mean(eta)
        return 0.5 * (self.n_rows * self.n_columns * (1.0 + LOG_2PI) - log_det)
