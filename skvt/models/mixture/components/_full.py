"""Gaussians with full covariances, and the Student t of their predictive densities.

The posterior q of mean mu and precision Lambda is a normal-Wishart with the parameters m, kappa, nu
and W. The predictive density is a Student t with the mean m and nu - D + 1 degrees of freedom. In
this module, ``scale`` is the shape matrix of the Student t times its degrees of freedom, which is
``W^-1 (1 + 1 / kappa)`` [Bishop06 eq. 10.81].

In shapes, n is the number of rows, D of columns, K of components and P of features of a row.
``lam`` are natural parameters of q, and NaN is a missing value. The product of the features of rows
and the transposed ``table`` (K, P) is their expected log densities (n, K).
:class:`skvt.contracts.Component` documents the methods of components.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

import numpy as np

from skvt._compiled import gammaln_array as _gammaln
from skvt.contracts import Completion
from skvt.expfam import Gamma, NormalGamma, NormalWishart, Wishart, triangle
from skvt.files import in_files
from skvt.models.mixture._kernels import compute_outer_features
from skvt.models.mixture._marginals import Marginals, deviation_marginals, mean_marginals
from skvt.models.mixture._missing import GaussianCompletion, has_missing
from skvt.models.mixture.components._base import LOG_2PI, ConjugateComponent
from skvt.models.mixture.components._independent import CentredMixin
from skvt.typing import Array

# With at least this many columns, sums of features over rows are computed without the array (n, P)
# of features. With at most this many components, log densities are then computed without it, too.
_MIN_COLUMNS_WITHOUT_FEATURES = 32
_MAX_COMPONENTS_WITHOUT_FEATURES = 16


class _FullMixin(ConjugateComponent):
    """Gaussians with full covariances, whose predictive is a multivariate Student t."""

    missing = True

    @property
    def base(self) -> Array:
        """The constant of the log density, as coefficient of the first feature, which is 1."""
        base = np.zeros(self.feature_coefficients(self.prior).size)
        base[0] = -0.5 * self.n_features * LOG_2PI
        return base

    def _compute_student_t(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return the predictive's mean (K, D), ``scale`` (K, D, D), and degrees of freedom (K,).

        The mean is relative to the center.
        """
        raise NotImplementedError

    def completion(self, table: Array) -> Completion | None:
        """Return a function that finds q of the missing values of rows under a table (K, P)."""
        # Convert the table only once, for the first chunk of rows that has missing values.
        from_table = GaussianCompletion.from_table
        convert_table = cache(partial(from_table, self.center, table, self.n_features))
        return lambda X, inv_temps: convert_table().holes(X, inv_temps) if has_missing(X) else None

    def filled(self, X: Any) -> Any:
        """Return rows whose missing values are conditional means under the prior."""
        return self.conditional_mean(X, self.prior[None])[0] if has_missing(X) else X

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of the Student t [Bishop06 eq. 10.81], (n, K) in nats."""
        return student_t_log_density(self._centred(X), *self._compute_student_t(lam))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the Student t of one component, (``n_rows``, D)."""
        # The axis of components has the length 1.
        mean, scale, freedom = (array[0] for array in self._compute_student_t(lam[None]))
        # Draw a normal vector, and divide it by the root of a chi-square. ``scale`` is the shape
        # matrix times the degrees of freedom, so that the chi-square is not divided by them.
        normal_draws = rng.standard_normal((n_rows, mean.size)) @ np.linalg.cholesky(scale).T
        return mean + normal_draws / np.sqrt(rng.chisquare(freedom, size=(n_rows, 1))) + self.center

    def with_completed(self, X: Any, completed: Array) -> Array:
        """Return the rows ``completed``, because missing values are local variables with a q."""
        return completed

    def gaussians(self, lam: Array) -> tuple[Array, Array]:
        """Return means (K, D) and covariances (K, D, D), see `moments` of the subclasses."""
        means, covariances = self.moments(lam)
        return means, np.broadcast_to(covariances, (*means.shape, means.shape[1]))

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are means given their observed values, (K, n, D)."""
        mean, scale, _ = self._compute_student_t(lam)
        holes = GaussianCompletion.from_scale(self.center, mean, scale).holes(X, np.ones(1))
        if holes is None:
            return np.repeat(np.asarray(X, np.float64)[None], len(lam), axis=0)
        filled = np.stack([holes.filled(k) for k in range(len(lam))]) + self.center
        return np.where(holes.is_missing, filled, X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw the missing values x_m given the observed values x_o from a Student t, (n, D).

        Let f be the degrees of freedom of the predictive density of the row, and let ``delta`` be
        the squared distance of x_o from its mean, in units of the marginal shape matrix of x_o.
        With |o| observed values, the Student t of x_m has f + |o| degrees of freedom. Its shape
        matrix is the conditional shape matrix of the predictive density, times
        ``(f + delta) / (f + |o|)``.
        """
        mean, scale, freedom = self._compute_student_t(lam[None])
        # The squared distance in units of `scale` is delta / f.
        distance, _, n_observed, holes = compute_observed_distances(self._centred(X), mean, scale)
        if holes is None:
            return np.array(X, np.float64)
        # A draw is normal noise times the roots of ``(f + delta) / chi-square`` and of the
        # conditional shape matrix. `holes.filled` multiplies by the root of f times this matrix.
        noise_factor = np.sqrt((1.0 + distance) / rng.chisquare(freedom + n_observed))
        noise = rng.standard_normal(holes.X.shape) * noise_factor
        return np.where(holes.is_missing, holes.filled(0, noise) + self.center, X)


@in_files("models.FullGaussian")
@dataclass(frozen=True)
class FullGaussian(CentredMixin, _FullMixin):
    """N(mu_k, Lambda_k^-1) with a normal-Wishart prior.

    The features of a row are [1, x, upper triangle of x x'], where x is relative to the center. In
    a row without values, the first feature is 0, too.
    """

    # (2 + D + D (D + 1) / 2,): natural parameters of the prior for rows relative to the center.
    prior: Annotated[Array, "2+d+t"]
    # (D,): subtracted from the rows, so that sums keep their digits if the rows are far from 0.
    center: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    # (D (D + 1) / 2,): added to ``x x'`` in the features of each row; predictive densities do not
    # use it. See `skvt.models.mixture._gaussian_prior`.
    added: Annotated[Array | None, "t"] = None

    covariance_type = "full"
    family = NormalWishart

    def features(self, X: Any) -> Any:
        """Return the features [1, x, upper triangle of x x'] of rows X, (n, P)."""
        return full_features(self._centred(X), self.added, with_linear=True)

    def natural_sums(self, sums: Array) -> Array:
        """Convert sums of features (..., P) to the form of natural parameters, (..., P + 1).

        The first sum is the number of rows. It is repeated, because it is the coefficient of two
        sufficient statistics, log|Lambda| / 2 and -mu' Lambda mu / 2.
        """
        return np.concatenate([sums[..., :1], sums], axis=-1)

    def feature_coefficients(self, t: Array) -> Array:
        """Return the coefficients of the features, (..., P), for t (..., P + 1) of the family."""
        # `natural_sums` copies the first sum to two entries. This method applies the transposed
        # matrix, which adds these two entries.
        coefficients = t[..., 1:].copy()
        coefficients[..., 0] += t[..., 0]
        return coefficients

    @property
    def avoids_features(self) -> bool:  # type: ignore[override]
        """Whether columns are so many that the array of the features of all rows is costly."""
        return self.n_features >= _MIN_COLUMNS_WITHOUT_FEATURES

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return log densities (n, K), and a function that sums features.

        ``table`` is the transposed table (P, K). With many columns and few components, quadratic
        forms of the rows are computed, because the array of all features would take more time.
        """
        D = self.n_features
        if not self.avoids_features or table.shape[1] > _MAX_COMPONENTS_WITHOUT_FEATURES:
            return super().log_densities_and_sums(X, table)
        rows, has_values = _fill_with_zeros(self._centred(X))
        # The rows of ``table`` are the coefficients of 1, of x (D,), and of the upper triangle of
        # x x'.
        added = 0.0 if self.added is None else self.added @ table[1 + D :]
        logits: Array = has_values[:, None] * (table[0] + added)
        # (K, D, D): symmetric matrices Q with x' Q x in place of the terms of the triangle.
        matrices = -0.5 * triangle.unpack_statistic(table[1 + D :].T)
        for k, matrix in enumerate(matrices):
            logits[:, k] += np.einsum("nd,nd->n", rows @ matrix + table[1 : 1 + D, k], rows)
        return logits, partial(self._sum_features, rows, has_values)

    def weighted_sums(self, X: Any, weighted_resp: Array) -> Array:
        """Return sums of features (K, P) for responsibilities times weights of the rows, (n, K)."""
        if not self.avoids_features:
            return super().weighted_sums(X, weighted_resp)
        return self._sum_features(*_fill_with_zeros(self._centred(X)), weighted_resp)

    def _sum_features(self, rows: Array, has_values: Array, weighted_resp: Array) -> Array:
        """Return weighted sums of features (K, P), without computing the features of each row.

        ``rows`` (n, D) and ``has_values`` (n,) are the results of :func:`_fill_with_zeros`, and
        ``weighted_resp`` (n, K) are weighted responsibilities. Each sum skips the rows of weight 0.
        """
        sums = np.empty((weighted_resp.shape[1], self.prior.size - 1))
        for k, weights in enumerate(weighted_resp.T):
            members = np.flatnonzero(weights)
            member_rows = rows[members]
            weighted_rows = member_rows * weights[members, None]
            squares = triangle.pack(weighted_rows.T @ member_rows)
            sums[k] = np.concatenate([[weights @ has_values], weighted_rows.sum(axis=0), squares])
        if self.added is not None:
            sums[:, -self.added.size :] += sums[:, :1] * self.added
        return sums

    def row_fits(self, X: Any) -> Any:
        """Return the :class:`GaussianRowFits` of rows, which do not compute features."""
        return GaussianRowFits(self, self._centred(self.filled(X)))

    def _compute_student_t(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return the predictive's mean, ``scale`` and degrees of freedom [Bishop06 eq. 10.81]."""
        q = NormalWishart.to_standard(lam)
        kappa = q["mean_precision"]
        scale = q["scale_inverse"] * ((1.0 + kappa) / kappa)[:, None, None]
        return q["mean"], scale, q["degrees_of_freedom"] - self.n_features + 1.0

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the inverse of the expected precision (K, D, D)."""
        q = NormalWishart.to_standard(lam)
        covariances = q["scale_inverse"] / q["degrees_of_freedom"][:, None, None]
        return q["mean"] + self.center, covariances

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the means and the standard deviations of the columns."""
        mean, kappa, shape, rate = self._normal_gammas_of_columns(lam)
        return mean_marginals(mean, kappa, shape, rate), deviation_marginals(shape, rate)

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return the log normalizers of the columns' normal-gammas, (K, D)."""
        _, kappa, shape, rate = self._normal_gammas_of_columns(lam)
        return normal_gamma_log_normalizers(kappa, shape, rate)

    def _normal_gammas_of_columns(self, lam: Array) -> tuple[Array, Array, Array, Array]:
        """Return m, kappa, shape and rate of each column's normal-gamma, broadcast to (K, D)."""
        q = NormalWishart.to_standard(lam)
        shape, rate = column_gammas(q)
        return q["mean"] + self.center, q["mean_precision"][:, None], shape, rate


def _fill_with_zeros(X: Array) -> tuple[Array, Array]:
    """Return rows with 0 for missing values, and 1.0 for each row that has any value, (n,)."""
    is_observed = ~np.isnan(X)
    return np.where(is_observed, X, 0.0), np.asarray(is_observed.any(axis=1), np.float64)


class GaussianRowFits:
    """:class:`RowFits` of full Gaussians, computed without features.

    A fit is the expected log density of a row under a component that is fitted to one row, the
    seed. Let A be the matrix that is ``added`` to ``x x'`` of each row. The rows z (D,) are
    relative to the prior's mean, in coordinates in which ``W^-1 + A`` of the prior is the identity.
    The seed is z_s. Let kappa_0 be kappa of the prior, kappa = kappa_0 + 1 and
    ``c = kappa_0 / kappa``. A component fitted to z_s has the mean ``z_s / kappa`` and the matrix W

        (I + c z_s z_s')^-1 = I - g z_s z_s',      g = c / (1 + c |z_s|^2).
    """

    def __init__(self, component: FullGaussian, X: Array) -> None:
        q = NormalWishart.to_standard(component.prior)
        # kappa and nu of a component that is fitted to one row.
        self._kappa = q["mean_precision"] + 1.0
        self._nu = q["degrees_of_freedom"] + 1.0
        added: Any = 0.0 if component.added is None else triangle.unpack(component.added)
        whitener = np.linalg.inv(np.linalg.cholesky(q["scale_inverse"] + added))
        self._whitened = (X - q["mean"]) @ whitener.T
        self._squared_lengths = np.einsum("nd,nd->n", self._whitened, self._whitened)
        # Because A is added to ``x x'``, a fit contains the trace of A W, where W belongs to the
        # seed. The part of this trace that depends on the seed is -g z_s' A z_s. The next array has
        # z' A z of each row z.
        self._added_forms = np.zeros(len(X))
        if component.added is not None:
            product = self._whitened @ (whitener @ added @ whitener.T)
            self._added_forms = np.einsum("nd,nd->n", product, self._whitened)

    def prepare(self, rows: Any) -> tuple[Array, ...]:
        """Return z (n, D), its squared lengths (n,), and z' A z (n,), of the rows."""
        return self._whitened[rows], self._squared_lengths[rows], self._added_forms[rows]

    def fits_to_seeds(
        self, prepared: tuple[Array, ...], seeds: Any, *, with_magnitudes: bool = True
    ) -> tuple[Array, Array]:
        """Return fits of rows to K seeds, and magnitudes of the terms of fits, (n, K) each.

        ``prepared`` is the result of :meth:`prepare` for the rows; ``seeds`` are indices of rows.
        """
        z, square, _ = prepared
        seed_z, seed_square, seed_added = self.prepare(seeds)
        return self._compute_fits(z @ seed_z.T, square[:, None], seed_square, seed_added)

    def fits_to_self(self, prepared: tuple[Array, ...]) -> tuple[Array, Array]:
        """Return fits of rows to themselves as seeds, and their magnitudes, (n,) each."""
        _, square, added = prepared
        return self._compute_fits(square, square, square, added)

    def _compute_fits(
        self, inner: Array, square: Array, seed_square: Array, seed_added: Array
    ) -> tuple[Array, Array]:
        """Return fits of rows to seeds, and magnitudes of their terms, see :class:`RowFits`.

        ``inner`` is z' z_s, ``square`` is |z|^2, ``seed_square`` is |z_s|^2, and ``seed_added`` is
        z_s' A z_s. The results have the shape to which the arguments broadcast.
        """
        kappa = self._kappa
        c = 1.0 - 1.0 / kappa
        # |W^-1| of the component, so that g = c / determinant.
        determinant = 1.0 + c * seed_square
        # |d|^2 of the deviation d = z - z_s / kappa. With it, d' W d is |d|^2 - g (d' z_s)^2.
        distance = square - 2.0 * inner / kappa + seed_square / kappa**2
        # (d' z_s)^2 + z_s' A z_s, of which the second term comes from the trace of A W.
        along_seed = (inner - seed_square / kappa) ** 2 + seed_added
        deviance = self._nu * (distance - c / determinant * along_seed) + np.log(determinant)
        return -0.5 * deviance, 0.5 * (self._nu * (square + seed_square) + np.log(determinant))


@in_files("models.ZeroMeanFullGaussian")
@dataclass(frozen=True)
class ZeroMeanFullGaussian(_FullMixin):
    """N(0, Lambda_k^-1) with a Wishart prior; features [1, upper triangle of x x']."""

    # (1 + D (D + 1) / 2,): natural parameters of the prior.
    prior: Annotated[Array, "1+t"]
    n_features: int
    dtype: np.dtype[Any]
    # (D (D + 1) / 2,): added to ``x x'`` in the features of each row, as in `FullGaussian`.
    added: Annotated[Array | None, "t"] = None

    covariance_type = "full"
    family = Wishart
    center = 0.0

    def features(self, X: Any) -> Any:
        """Return the features [1, upper triangle of x x'] of rows X, (n, P)."""
        return full_features(self._centred(X), self.added, with_linear=False)

    def _compute_student_t(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return the predictive's mean 0 (K, D), ``scale`` and degrees of freedom."""
        q = Wishart.to_standard(lam)
        freedom = q["degrees_of_freedom"] - self.n_features + 1.0
        return np.zeros((lam.shape[0], self.n_features)), q["scale_inverse"], freedom

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean 0 (K, D) and the inverse of the expected precision (K, D, D)."""
        q = Wishart.to_standard(lam)
        covariances = q["scale_inverse"] / q["degrees_of_freedom"][:, None, None]
        return np.zeros((lam.shape[0], self.n_features)), covariances

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the standard deviations of the columns."""
        return (deviation_marginals(*column_gammas(Wishart.to_standard(lam))),)

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return the log normalizers of the gammas of the columns' precisions, (K, D)."""
        shape, rate = column_gammas(Wishart.to_standard(lam))
        return Gamma.log_normalizer(Gamma.from_standard(shape, rate))


def column_gammas(q: dict[str, Array]) -> tuple[Array, Array]:
    """Return shape (K, 1) and rate (K, D) of the gammas of the columns' inverse variances.

    ``q`` has the parameters of a Wishart or normal-Wishart by name.
    """
    inverse_scale = np.diagonal(q["scale_inverse"], axis1=1, axis2=2)
    freedom = q["degrees_of_freedom"][:, None] - inverse_scale.shape[1] + 1.0
    return 0.5 * freedom, 0.5 * inverse_scale


def normal_gamma_log_normalizers(kappa: Array, shape: Array, rate: Array) -> Array:
    """Return log-normalisers (K, D) of normal-gammas; they do not depend on the means."""
    kappa, shape, rate = np.broadcast_arrays(kappa, shape, rate)
    eta = NormalGamma.from_standard(np.zeros((*rate.shape, 1)), kappa[..., None], shape, rate)
    return NormalGamma.log_normalizer(eta)


def full_features(X: Array, added: Array | None, *, with_linear: bool) -> Array:
    """Return the features ``[1, x, upper triangle of x x' + added]`` of centred rows X (n, D).

    x is left out unless ``with_linear`` is set. Missing values count as 0. All features of a row
    without values are 0, so that its density is 1. If ``added`` is None, nothing is added.
    """
    features = compute_outer_features(X, with_linear=with_linear)
    if added is not None:
        # The features are in Fortran order, so that the rows of the transpose are contiguous. The
        # first feature is 0 in rows without values, to which nothing is added.
        transposed = features.T
        transposed[-added.size :] += added[:, None] * transposed[0]
    return features


def student_t_log_density(X: Array, mean: Array, scale: Array, freedom: Array) -> Array:
    """Return the log densities of rows under multivariate Student t, (n, K) in nats.

    X is (n, D), and ``mean`` is (K, D). ``scale`` (K, D, D) are the shape matrices times the
    degrees of freedom ``freedom`` (K,). Missing values are integrated out.
    """
    # Leave out columns that are missing in all rows, to save time, but keep at least one column.
    is_kept = ~np.isnan(X).all(axis=0)
    if not is_kept.all():
        kept = np.flatnonzero(is_kept) if is_kept.any() else np.zeros(1, np.intp)
        X, mean, scale = X[:, kept], mean[:, kept], scale[:, kept][:, :, kept]
    distances, half_log_dets, n_observed, holes = compute_observed_distances(X, mean, scale)
    half_freedom = 0.5 * (freedom + n_observed)
    constant = _gammaln(half_freedom) - _gammaln(0.5 * freedom) - 0.5 * n_observed * np.log(np.pi)
    log_densities = constant - half_log_dets - half_freedom * np.log1p(distances)
    if holes is not None:
        # A row without values has the density 1.
        log_densities[holes.is_missing.all(axis=1)] = 0.0
    return np.asarray(log_densities)


def compute_observed_distances(
    X: Array, mean: Array, scale: Array
) -> tuple[Array, Array, Any, Any]:
    """Return squared distances of the observed values of rows X (n, D) from the means (K, D).

    The unit of a distance is the marginal scale: the block of ``scale`` (K, D, D) for the columns
    that are observed in the row.

    Returns
    -------
    distances : ndarray, shape (n, K)
        Squared distances.
    half_log_dets : ndarray, shape (n, K), or (K,) if no value is missing
        Half the log-determinants of the marginal scales.
    n_observed : ndarray, shape (n, 1), or int if no value is missing
        Numbers of observed columns.
    holes : GaussianHoles or None
        The missing values under each component; None if no value is missing.
    """
    n_observed: Any = X.shape[1]
    cholesky = np.linalg.cholesky(scale)
    half_log_dets = np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
    holes: Any = None
    if has_missing(X):
        holes = GaussianCompletion.from_scale(0.0, mean, scale).holes(X, np.ones(1))
        # If A is the inverse of the scale S, and m are the missing columns, the determinant of the
        # marginal scale is |S| |A_mm|.
        half_log_dets = half_log_dets + holes.half_log_det()
        n_observed = (~holes.is_missing).sum(axis=1)[:, None]
    distances = np.empty((X.shape[0], mean.shape[0]))
    for k in range(mean.shape[0]):
        # Fill missing values with their means given the observed values, so that they add nothing
        # to the distance.
        rows = X if holes is None else holes.filled(k)
        distances[:, k] = compute_squared_distances(rows, mean[k], cholesky[k])
    return distances, half_log_dets, n_observed, holes


def compute_squared_distances(X: Array, mean: Array, cholesky: Array) -> Array:
    """Return ``(x - mean)' (L L')^-1 (x - mean)`` of each row, (n,), where L is ``cholesky``."""
    whitened = (X - mean) @ np.linalg.inv(cholesky).T
    return np.einsum("nd,nd->n", whitened, whitened)
