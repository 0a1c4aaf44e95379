"""Gaussians with full covariances, and the Student t of their predictive densities."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

import numpy as np

from skvt.compiled import gammaln_array as _gammaln
from skvt.contracts import Completion
from skvt.expfam import Gamma, NormalGamma, NormalWishart, Wishart, triangle
from skvt.files import in_files
from skvt.models.mixture._kernels import outer_features
from skvt.models.mixture._marginals import Marginals, of_deviations, of_means
from skvt.models.mixture._missing import GaussianCompletion, has_holes
from skvt.models.mixture.components._base import LOG_2PI, ConjugateComponent
from skvt.models.mixture.components._independent import CentredMixin
from skvt.typing import Array

# Rows are multiplied by matrices with at least this many columns and at most this many
# components.
_MANY_COLUMNS = 32
_FEW_COMPONENTS = 16


class _FullMixin(ConjugateComponent):
    """Gaussians with full covariances, whose predictive is a multivariate Student t."""

    missing = True

    @property
    def base(self) -> Array:
        """The constant of the density, a coefficient of the feature that counts rows."""
        base = np.zeros(self.gather(self.prior).size)
        base[0] = -0.5 * self.n_features * LOG_2PI
        return base

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return the mean (K, D), shape matrix times d.o.f. (K, D, D), and the d.o.f. (K,)."""
        raise NotImplementedError

    def completion(self, table: Array) -> Completion | None:
        """Return q of missing values; the table is converted once there are missing values."""
        converted = cache(
            partial(GaussianCompletion.from_table, self.center, table, self.n_features)
        )
        return lambda X, inv_temps: converted().holes(X, inv_temps) if has_holes(X) else None

    def filled(self, X: Any) -> Any:
        return self.conditional_mean(X, self.prior[None])[0] if has_holes(X) else X

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of Student t with nu - D + 1 d.o.f. [Bishop06 eq. 10.81]."""
        return student_t_log_density(self._centred(X), *self._student(lam))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        mean, scale, freedom = (part[0] for part in self._student(lam[None]))
        normal = rng.standard_normal((n_rows, mean.size)) @ np.linalg.cholesky(scale).T
        return mean + normal / np.sqrt(rng.chisquare(freedom, size=(n_rows, 1))) + self.center

    def with_completed(self, X: Any, completed: Array) -> Array:
        """Return the completed rows, since missing values count as observed."""
        return completed

    def gaussians(self, lam: Array) -> tuple[Array, Array]:
        means, covariances = self.moments(lam)
        return means, np.broadcast_to(covariances, (*means.shape, means.shape[1]))

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows with ``x_m`` at its mean given ``x_o`` under the Student t, (K, n, D)."""
        mean, scale, _ = self._student(lam)
        holes = GaussianCompletion.from_scale(self.center, mean, scale).holes(X, np.ones(1))
        if holes is None:
            return np.repeat(np.asarray(X, np.float64)[None], len(lam), axis=0)
        filled = np.stack([holes.filled(k) for k in range(len(lam))]) + self.center
        return np.where(holes.missing, filled, X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw ``x_m`` given ``x_o`` from a Student t, (n, D).

        It has f + |o| degrees of freedom and the conditional shape matrix times ``(f + delta) / (f
        + |o|)``, where f are the predictive's degrees of freedom and ``delta`` is the squared
        distance of ``x_o`` in its marginal shape matrix.
        """
        mean, scale, freedom = self._student(lam[None])
        distance, _, n_seen, holes = distances_of_observed(self._centred(X), mean, scale)
        if holes is None:
            return np.array(X, np.float64)
        spread = np.sqrt((1.0 + distance) / rng.chisquare(freedom + n_seen))
        noise = rng.standard_normal(holes.X.shape) * spread
        return np.where(holes.missing, holes.filled(0, noise) + self.center, X)


@in_files("models.FullGaussian")
@dataclass(frozen=True)
class FullGaussian(CentredMixin, _FullMixin):
    """N(mu_k, Lambda_k^-1) with normal-Wishart prior; features [1, x, x x']."""

    # (2 + D + D (D + 1) / 2,): natural parameters for the data minus the center.
    prior: Annotated[Array, "2+d+t"]
    # (D,): subtracted from the rows, so that a distant origin does not cost precision.
    center: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    # (D (D + 1) / 2,): added to ``x x'`` of each row, but not in predictive densities. See
    # `skvt.models.mixture._gaussian_prior`.
    added: Annotated[Array | None, "t"] = None

    covariance_type = "full"
    family = NormalWishart

    def features(self, X: Any) -> Any:
        return full_features(self._centred(X), True, self.added)

    def spread(self, sums: Array) -> Array:
        """Repeat the number of rows, the statistic of log|Lambda| / 2 and -mu' Lambda mu / 2."""
        return np.concatenate([sums[..., :1], sums], axis=-1)

    def gather(self, t: Array) -> Array:
        out = t[..., 1:].copy()
        out[..., 0] += t[..., 0]
        return out

    @property
    def avoids_features(self) -> bool:  # type: ignore[override]
        return self.n_features >= _MANY_COLUMNS

    def explain(self, X: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
        """See :class:`Component`; with many columns, products of rows and matrices are faster."""
        D = self.n_features
        if not self.avoids_features or table.shape[1] > _FEW_COMPONENTS:
            return super().explain(X, table)
        rows, seen = _without_holes(self._centred(X))
        added = 0.0 if self.added is None else self.added @ table[1 + D :]
        logits: Array = seen[:, None] * (table[0] + added)
        matrices = triangle.unpack(table[1 + D :].T) * (0.5 + 0.5 * np.eye(D))
        for k, matrix in enumerate(matrices):
            logits[:, k] += np.einsum("nd,nd->n", rows @ matrix + table[1 : 1 + D, k], rows)
        return logits, partial(self._sums, rows, seen)

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        if not self.avoids_features:
            return super().weighted_sums(X, weighted)
        return self._sums(*_without_holes(self._centred(X)), weighted)

    def _sums(self, rows: Array, seen: Array, weighted: Array) -> Array:
        """Return sums of features (K, P), each over the rows in which a component has a share."""
        sums = np.empty((weighted.shape[1], self.prior.size - 1))
        for k, share in enumerate(weighted.T):
            members = np.flatnonzero(share)
            part = rows[members]
            scaled = part * share[members, None]
            square = triangle.pack(scaled.T @ part)
            sums[k] = np.concatenate([[share @ seen], scaled.sum(axis=0), square])
        if self.added is not None:
            sums[:, -self.added.size :] += sums[:, :1] * self.added
        return sums

    def row_fits(self, X: Any) -> Any:
        """Return fits computed from whitened rows, without features; see :class:`Component`."""
        return GaussianRowFits(self, self._centred(self.filled(X)))

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        q = NormalWishart.standard(lam)
        kappa = q["mean_precision"]
        scale = q["scale_inverse"] * ((1.0 + kappa) / kappa)[:, None, None]
        return q["mean"], scale, q["degrees_of_freedom"] - self.n_features + 1.0

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the inverse of the expected precision (K, D, D)."""
        q = NormalWishart.standard(lam)
        covariances = q["scale_inverse"] / q["degrees_of_freedom"][:, None, None]
        return q["mean"] + self.center, covariances

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        mean, kappa, shape, rate = self._of_columns(lam)
        return of_means(mean, kappa, shape, rate), of_deviations(shape, rate)

    def column_evidence(self, sums: Array) -> Array:
        _, kappa, shape, rate = self._of_columns(self.natural_parameters(sums))
        _, *before = self._of_columns(self.prior[None])
        return normal_gamma_log_normalizers(kappa, shape, rate) - normal_gamma_log_normalizers(
            *before
        )

    def _of_columns(self, lam: Array) -> tuple[Array, Array, Array, Array]:
        """Return the normal-gamma of each column: m, kappa, shape and rate, broadcast to (K, D)."""
        q = NormalWishart.standard(lam)
        shape, rate = _variances_of_columns(q)
        return q["mean"] + self.center, q["mean_precision"][:, None], shape, rate


def _without_holes(X: Array) -> tuple[Array, Array]:
    """Return rows with 0 for missing values, and 1 for each row that has any value, (n,)."""
    observed = ~np.isnan(X)
    return np.where(observed, X, 0.0), np.asarray(observed.any(axis=1), np.float64)


class GaussianRowFits:
    """:class:`RowFits` of full Gaussians.

    Let z be the rows relative to the prior's mean, in coordinates in which its scale is the
    identity. A component fitted to z_s has mean ``z_s / kappa`` and, with ``c = kappa_0 / kappa``,
    the scale ``(I + c z_s z_s')^-1 = I - g z_s z_s'``, ``g = c / (1 + c |z_s|^2)``.
    """

    def __init__(self, component: FullGaussian, X: Array) -> None:
        q = NormalWishart.standard(component.prior)
        self._kappa, self._nu = q["mean_precision"] + 1.0, q["degrees_of_freedom"] + 1.0
        # the whitener includes the addition to squares, whose product with z_s is needed, too
        added: Any = 0.0 if component.added is None else triangle.unpack(component.added)
        whitener = np.linalg.inv(np.linalg.cholesky(q["scale_inverse"] + added))
        self._z = (X - q["mean"]) @ whitener.T
        self._square = np.einsum("nd,nd->n", self._z, self._z)
        self._added = np.zeros(len(X))
        if component.added is not None:
            along = self._z @ (whitener @ added @ whitener.T)
            self._added = np.einsum("nd,nd->n", along, self._z)

    def some(self, rows: Any) -> tuple[Array, ...]:
        """Return these rows, their squared lengths, and the additions to squares along them."""
        return self._z[rows], self._square[rows], self._added[rows]

    def given(self, some: tuple[Array, ...], seeds: Any) -> tuple[Array, Array]:
        """Return fits of each row under components of each seed, (n, K), and sizes of terms."""
        z, square, added = self.some(seeds)
        return self._fits(some[0] @ z.T, some[1][:, None], square, added)

    def own(self, some: tuple[Array, ...]) -> tuple[Array, Array]:
        _, square, added = some
        return self._fits(square, square, square, added)

    def _fits(self, inner: Array, square: Array, own: Array, added: Array) -> tuple[Array, Array]:
        kappa, share = self._kappa, 1.0 - 1.0 / self._kappa
        growth = 1.0 + share * own
        distance = square - 2.0 * inner / kappa + own / kappa**2
        along = (inner - own / kappa) ** 2 + added
        fits = self._nu * (distance - share / growth * along) + np.log(growth)
        return -0.5 * fits, 0.5 * (self._nu * (square + own) + np.log(growth))


@in_files("models.ZeroMeanFullGaussian")
@dataclass(frozen=True)
class ZeroMeanFullGaussian(_FullMixin):
    """N(0, Lambda_k^-1) with Wishart prior; features [1, x x']."""

    prior: Annotated[Array, "1+t"]
    n_features: int
    dtype: np.dtype[Any]
    added: Annotated[Array | None, "t"] = None

    covariance_type = "full"
    family = Wishart
    center = 0.0

    def features(self, X: Any) -> Any:
        return full_features(self._centred(X), False, self.added)

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        q = Wishart.standard(lam)
        freedom = q["degrees_of_freedom"] - self.n_features + 1.0
        return np.zeros((lam.shape[0], self.n_features)), q["scale_inverse"], freedom

    def moments(self, lam: Array) -> tuple[Array, Array]:
        q = Wishart.standard(lam)
        covariances = q["scale_inverse"] / q["degrees_of_freedom"][:, None, None]
        return np.zeros((lam.shape[0], self.n_features)), covariances

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the standard deviations of the columns."""
        return (of_deviations(*_variances_of_columns(Wishart.standard(lam))),)

    def column_evidence(self, sums: Array) -> Array:
        after, before = (
            Gamma.log_normalizer(Gamma.from_standard(*_variances_of_columns(Wishart.standard(lam))))
            for lam in (self.natural_parameters(sums), self.prior[None])
        )
        return after - before


def _variances_of_columns(q: dict[str, Array]) -> tuple[Array, Array]:
    """Return shape (K, 1) and rate (K, D) of the gammas of columns' inverse variances."""
    scale = np.diagonal(q["scale_inverse"], axis1=1, axis2=2)
    freedom = q["degrees_of_freedom"][:, None] - scale.shape[1] + 1.0
    return 0.5 * freedom, 0.5 * scale


def normal_gamma_log_normalizers(kappa: Array, shape: Array, rate: Array) -> Array:
    """Return log-normalisers (K, D) of normal-gammas; they do not depend on the means."""
    kappa, shape, rate = np.broadcast_arrays(kappa, shape, rate)
    eta = NormalGamma.from_standard(np.zeros((*rate.shape, 1)), kappa[..., None], shape, rate)
    return NormalGamma.log_normalizer(eta)


def full_features(X: Array, linear: bool, added: Array | None) -> Array:
    """Return ``[1, x, upper triangle of x x' + added]`` of centred rows, with x if ``linear``.

    Missing values count as 0. All features of a row without values are 0, so that its density is
    one.
    """
    features = outer_features(X, linear=linear)
    if added is not None:
        by_column = features.T  # in C order
        by_column[-added.size :] += added[:, None] * by_column[0]
    return features


def student_t_log_density(X: Array, mean: Array, scale: Array, freedom: Array) -> Array:
    """Return the log density of the multivariate Student t, (n, K) in nats; NaN are left out.

    X is (n, D), ``mean`` (K, D) and ``scale`` (K, D, D), the shape matrix times ``freedom`` (K,).
    """
    apart, half_logdet, n_features, holes = distances_of_observed(X, mean, scale)
    total = 0.5 * (freedom + n_features)
    constant = _gammaln(total) - _gammaln(0.5 * freedom) - 0.5 * n_features * np.log(np.pi)
    density = constant - half_logdet - total * np.log1p(apart)
    if holes is not None:
        density[holes.missing.all(axis=1)] = 0.0
    return np.asarray(density)


def distances_of_observed(X: Array, mean: Array, scale: Array) -> tuple[Array, Array, Any, Any]:
    """Return distances of the observed values of rows (n, D) under marginals of the scales.

    Returns squared distances from the means (n, K), half the log-determinants (n, K) or (K,), the
    number of observed columns (n, 1) or one number, and the missing values or None. Missing values
    are set to their means given the rest, which adds nothing to the distance.
    """
    n_features: Any = X.shape[1]
    cholesky = np.linalg.cholesky(scale)
    half_logdet = np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
    holes: Any = None
    if has_holes(X):
        holes = GaussianCompletion.from_scale(0.0, mean, scale).holes(X, np.ones(1))
        half_logdet = half_logdet + holes.half_log_det()
        n_features = (~holes.missing).sum(axis=1)[:, None]
    out = np.empty((X.shape[0], mean.shape[0]))
    for k in range(mean.shape[0]):
        out[:, k] = squared_distances(X if holes is None else holes.filled(k), mean[k], cholesky[k])
    return out, half_logdet, n_features, holes


def squared_distances(X: Array, mean: Array, cholesky: Array) -> Array:
    """Return ``(x - mean)' (L L')^-1 (x - mean)`` of each row, (n,)."""
    white = (X - mean) @ np.linalg.inv(cholesky).T
    return np.einsum("nd,nd->n", white, white)
