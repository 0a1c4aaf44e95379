"""Gaussians whose columns are independent given the component."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from skvt.contracts import Capability
from skvt.expfam import Normal, NormalGamma
from skvt.files import POSITIVE, in_files
from skvt.models import noise_log_partition
from skvt.models.mixture._marginals import Marginals, of_deviations, of_means
from skvt.models.mixture.components._base import (
    LOG_2PI,
    ConjugateComponent,
    RowFits,
    with_draws,
    with_means,
)
from skvt.models.mixture.components._directions import fill_with_means
from skvt.typing import Array


class CentredMixin(ConjugateComponent):
    """Gaussians of the data minus ``center`` (D,), with unknown means."""

    @property
    def n_features(self) -> int:
        return int(self.center.size)

    def projected(
        self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]
    ) -> RowFits | None:
        """Return fits of spherical Gaussians in these directions; None if rows are too few."""
        if X.shape[0] <= X.shape[1]:
            return None
        rows = directions(fill_with_means(self.filled(X), weights), weights)
        size, scale = rows.shape[1], float((weights @ rows**2).mean() / weights.sum())
        if scale == 0.0:
            return None
        prior = NormalGamma.from_standard(np.zeros(size), np.ones(size), 0.5 * size, 0.5 * scale)
        component = SphericalGaussian(prior, np.zeros(size), rows.dtype)
        return component.row_fits(rows)

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        q = self.family.standard(lam)
        center = self.center[:, None] if q["mean"].shape[-1] == 1 < self.n_features else self.center
        return self.family, self.family.from_standard(**(q | {"mean": q["mean"] + center}))


class IndependentMixin(CentredMixin):
    """Gaussians whose columns are independent given the precision; NaN are left out."""

    missing = True

    def gaussians(self, lam: Array) -> tuple[Array, Array]:
        means, variances = self.moments(lam)
        variances = np.broadcast_to(variances.T, means.T.shape).T
        return means, variances[..., None] * np.eye(means.shape[1])

    def _observed(self, X: Any) -> tuple[Array, Array]:
        """Return centred rows with 0 for NaN, and 1 for observed entries, 0 for NaN."""
        X = self._centred(X)
        observed = ~np.isnan(X)
        return np.where(observed, X, 0.0), observed.astype(np.float64)

    def _squares(self, X: Any, seen: Array) -> Array:
        squares = X * X
        return squares if self.added is None else squares + seen * self.added

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        return with_means(X, self.moments(lam)[0])


@in_files("models.DiagonalGaussian")
@dataclass(frozen=True)
class DiagonalGaussian(IndependentMixin):
    """Independent columns, each N(mu_kd, 1 / tau_kd), normal-gamma; features [seen, x, x^2].

    ``prior`` is (D, 4); ``added``, None or (D,), is added to the squares.
    """

    prior: Annotated[Array, "d 4"]
    center: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    added: Annotated[Array | None, "d"] = None

    covariance_type = "diag"
    family = NormalGamma

    @property
    def base(self) -> Array:
        """The constant of the density for each observed value."""
        zeros = np.zeros(2 * self.n_features)
        return np.concatenate([np.full(self.n_features, -0.5 * LOG_2PI), zeros])

    def features(self, X: Any) -> Any:
        X, seen = self._observed(X)
        return np.concatenate([seen, X, self._squares(X, seen)], axis=1)

    def spread(self, sums: Array) -> Array:
        """Convert (..., 3D) to (..., D, 4): counts, squares, sums, counts."""
        counts, first, second = np.split(sums, 3, axis=-1)
        return np.stack([counts, second, first, counts], axis=-1)

    def gather(self, t: Array) -> Array:
        return np.concatenate([t[..., 0] + t[..., 3], t[..., 2], t[..., 1]], axis=-1)

    def sums_of(self, own: Array) -> Array:
        return np.concatenate([own[..., 0], own[..., 2], own[..., 1]], axis=-1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        q = NormalGamma.standard(lam)
        mean, kappa = q["mean"][:, 0], q["mean_precision"][:, 0]
        scale = q["rate"] * (1.0 + kappa) / (kappa * q["shape"])
        t = rng.standard_t(2.0 * q["shape"], size=(n_rows, self.n_features))
        return mean + self.center + np.sqrt(scale) * t

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the inverse of the expected precision (K, D)."""
        q = NormalGamma.standard(lam)
        return q["mean"][..., 0] + self.center, q["rate"] / q["shape"]

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        q = NormalGamma.standard(lam)
        mean, kappa = q["mean"][..., 0] + self.center, q["mean_precision"][..., 0]
        return of_means(mean, kappa, q["shape"], q["rate"]), of_deviations(q["shape"], q["rate"])


@in_files("models.SphericalGaussian")
@dataclass(frozen=True)
class SphericalGaussian(IndependentMixin):
    """N(mu_k, I / tau_k), normal-gamma; features [values seen, |x|^2, x, seen].

    ``prior`` is (2 + 2D,); ``added``, None or (D,), is added to the squares.
    """

    prior: Annotated[Array, "2+d+d"]
    center: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    added: Annotated[Array | None, "d"] = None

    covariance_type = "spherical"
    family = NormalGamma

    @property
    def base(self) -> Array:
        base = np.zeros(self.prior.size)
        base[0] = -0.5 * LOG_2PI
        return base

    def features(self, X: Any) -> Any:
        X, seen = self._observed(X)
        number = seen.sum(axis=1, keepdims=True)
        squares = self._squares(X, seen).sum(axis=1, keepdims=True)
        return np.concatenate([number, squares, X, seen], axis=1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw from the Student t: first the precision, which a row's columns share."""
        q = NormalGamma.standard(lam)
        tau = rng.gamma(q["shape"], 1.0 / q["rate"], size=(n_rows, 1))
        variance = (1.0 + 1.0 / q["mean_precision"]) / tau
        noise = rng.standard_normal((n_rows, self.n_features))
        return q["mean"] + self.center + np.sqrt(variance) * noise

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values after the precision given the rest of the row."""
        observed, seen = self._observed(X)
        q = NormalGamma.standard(lam)
        factor = 1.0 + 1.0 / q["mean_precision"]
        squares = (seen * (observed - q["mean"]) ** 2 / factor).sum(axis=1)
        rate = q["rate"] + 0.5 * squares
        tau = rng.gamma(q["shape"] + 0.5 * seen.sum(axis=1)) / rate
        noise = rng.standard_normal(seen.shape) / np.sqrt(tau)[:, None]
        return with_draws(X, q["mean"] + self.center + np.sqrt(factor) * noise)

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the inverse of the expected precision (K,)."""
        q = NormalGamma.standard(lam)
        return q["mean"] + self.center, q["rate"] / q["shape"]

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the means of the columns, and the standard deviation that they share."""
        q = NormalGamma.standard(lam)
        mean, kappa = q["mean"] + self.center, q["mean_precision"]
        shape, rate = (np.broadcast_to(q[name][:, None], mean.shape) for name in ("shape", "rate"))
        return of_means(mean, kappa, shape, rate), of_deviations(shape, rate)


@in_files("models.KnownVarianceGaussian")
@dataclass(frozen=True)
class KnownVarianceGaussian(IndependentMixin):
    """N(mu_k, s I) with known s, normal prior of each mean; features [x / s, seen / s, rest].

    ``rest`` is the part of the log density that does not depend on the means. Prior plus statistics
    yield the precision ``1 / v + N_k / s`` and the mean of [BKM17 alg. 2].
    """

    # (D, 2): natural parameters for the data minus the center.
    prior: Annotated[Array, "d 2"]
    # (D,)
    center: Annotated[Array, "d"]
    # s.
    noise_variance: Annotated[float, POSITIVE]
    dtype: np.dtype[Any]

    family = Normal
    capabilities = frozenset({Capability.TEMPERABLE})

    @property
    def base(self) -> Array:
        return np.append(np.zeros(2 * self.n_features), 1.0)

    def projected(self, X: Any, weights: Array, directions: Any) -> None:
        """Return None, since the known variance defines the distances."""

    def features(self, X: Any) -> Any:
        """Return ``[x / s, seen / s]`` (2D), and ``-(|x|^2 / s + n_seen log(2 pi s)) / 2``."""
        X, seen = self._observed(X)
        s = self.noise_variance
        rest = -0.5 * ((X * X).sum(axis=1) / s + seen.sum(axis=1) * np.log(2.0 * np.pi * s))
        return np.concatenate([X / s, seen / s, rest[:, None]], axis=1)

    def spread(self, sums: Array) -> Array:
        """Convert (..., 2D + 1) to (..., D, 2)."""
        D = self.n_features
        return np.stack([sums[..., :D], sums[..., D : 2 * D]], axis=-1)

    def gather(self, t: Array) -> Array:
        nothing = np.zeros((*t.shape[:-2], 1))
        return np.concatenate([t[..., 0], t[..., 1], nothing], axis=-1)

    def sums_at(self, means: Array, counts: Array) -> Array:
        """Return sums of features for which q has these means (K, D) at numbers of rows (K,)."""
        seen = np.repeat(counts[:, None] / self.noise_variance, self.n_features, axis=1)
        first = (self.prior[:, 1] + seen) * (means - self.center) - self.prior[:, 0]
        return np.concatenate([first, seen, np.zeros((len(counts), 1))], axis=1)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of independent normal columns of variance ``s + Var[mu_kd]``."""
        X, seen = self._observed(X)
        out = np.empty((X.shape[0], lam.shape[0]))
        for k, (m, v) in enumerate(zip(Normal.mean(lam), Normal.variance(lam), strict=True)):
            v = v + self.noise_variance
            out[:, k] = -0.5 * (seen * ((X - m) ** 2 / v + np.log(2.0 * np.pi * v))).sum(axis=1)
        return out

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        scale = np.sqrt(self.noise_variance + Normal.variance(lam))
        noise = rng.standard_normal((n_rows, self.n_features))
        return Normal.mean(lam) + self.center + scale * noise

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the known variance."""
        return Normal.mean(lam) + self.center, np.array(self.noise_variance)

    def log_partition(self, b: Array) -> tuple[Array, Array]:
        """Return ``log int p(x | mu_k)^b dx`` of a complete row and its slope in b, (M,) each."""
        return noise_log_partition(b, self.n_features, self.noise_variance)
