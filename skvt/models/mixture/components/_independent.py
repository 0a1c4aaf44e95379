"""Gaussians whose columns are independent given the component.

In shapes, n is the number of rows, D of columns, K of components and P of features of a row.
``lam`` are natural parameters of the posterior q of components, and NaN is a missing value. A
normal-gamma distribution of a mean mu and a precision tau has the parameters mean, kappa
(``mean_precision``), shape and rate: tau has a gamma distribution, and mu given tau is normal with
the precision kappa tau. :class:`skvt.contracts.Component` documents the methods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from skvt.contracts import Capability
from skvt.expfam import Normal, NormalGamma
from skvt.files import POSITIVE, in_files
from skvt.models import compute_noise_partition
from skvt.models.mixture._marginals import Marginals, deviation_marginals, mean_marginals
from skvt.models.mixture.components._base import (
    LOG_2PI,
    ConjugateComponent,
    PairOfEachColumn,
    RowFits,
    fill_missing,
)
from skvt.models.mixture.components._directions import fill_with_means
from skvt.typing import Array


class CentredMixin(ConjugateComponent):
    """Gaussians with unknown means, whose parameters are relative to ``center`` (D,)."""

    @property
    def n_features(self) -> int:
        return int(self.center.size)

    def projected(
        self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]
    ) -> RowFits | None:
        """Return the fits of spherical Gaussians to rows projected to a subspace.

        ``directions(rows, weights)`` returns the projected rows. The result is None if there are
        not more rows than columns, or if all projected rows are 0.
        """
        if X.shape[0] <= X.shape[1]:
            return None
        rows = directions(fill_with_means(self.filled(X), weights), weights)
        # D is the number of columns of the projected rows, whose mean is 0.
        D, variance = rows.shape[1], float((weights @ rows**2).mean() / weights.sum())
        if variance == 0.0:
            return None
        # The prior has the mean 0, kappa = 1, nu = D degrees of freedom and W^-1 = ``variance``.
        # The gamma distribution has the shape nu / 2 and the rate W^-1 / 2.
        prior = NormalGamma.from_standard(np.zeros(D), np.ones(D), 0.5 * D, 0.5 * variance)
        component = SphericalGaussian(prior, np.zeros(D), rows.dtype)
        return component.row_fits(rows)

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        """Return the family, and ``lam`` in the coordinates of the data."""
        return self.family, self.add_center(self.family, lam)

    def add_center(self, family: Any, lam: Array) -> Array:
        """Return ``lam`` of a ``family`` after adding the center to its means."""
        q = family.to_standard(lam)
        # Means are (K, D, 1) if each column has a separate distribution, and otherwise (K, D).
        center = self.center[:, None] if q["mean"].shape[-1] == 1 < self.n_features else self.center
        return family.from_standard(**(q | {"mean": q["mean"] + center}))


class IndependentMixin(CentredMixin):
    """Gaussians whose columns are independent given the precision; NaN are integrated out."""

    missing = True

    def gaussians(self, lam: Array) -> tuple[Array, Array]:
        """Return means (K, D) and diagonal covariances (K, D, D)."""
        means, variances = self.moments(lam)
        # Variances are (K, D); (K,) if columns share a variance; () if components share it, too.
        variances = np.broadcast_to(variances.T, means.T.shape).T
        return means, variances[..., None] * np.eye(means.shape[1])

    def _replace_missing(self, X: Any) -> tuple[Array, Array]:
        """Return centred rows with 0 for NaN, and an indicator of observed values, (n, D) each."""
        X = self._centred(X)
        is_observed = ~np.isnan(X)
        return np.where(is_observed, X, 0.0), is_observed.astype(np.float64)

    def _squares(self, X: Any, is_observed: Array) -> Array:
        """Return squares of centred rows, with ``added`` added where values are observed."""
        squares = X * X
        return squares if self.added is None else squares + is_observed * self.added

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are posterior means of the columns, (K, n, D)."""
        means, _ = self.moments(lam)
        return fill_missing(X, means[:, None])


@in_files("models.DiagonalGaussian")
@dataclass(frozen=True)
class DiagonalGaussian(IndependentMixin):
    """Independent columns, each N(mu_kd, 1 / tau_kd) with a normal-gamma prior.

    The features are [is observed, x, x^2], D of each. The sufficient statistics of a normal-gamma
    are t = (log(tau) / 2, -tau / 2, tau mu, -tau mu^2 / 2).
    """

    # (D, 4): natural parameters of the prior for rows relative to the center.
    prior: Annotated[Array, "d 4"]
    # (D,): subtracted from the rows.
    center: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    # (D,): added to the squares of each row.
    added: Annotated[Array | None, "d"] = None

    covariance_type = "diag"
    family = NormalGamma

    @property
    def base(self) -> Array:
        """The constant of each column's log density, the coefficient of "is observed"."""
        zeros = np.zeros(2 * self.n_features)
        return np.concatenate([np.full(self.n_features, -0.5 * LOG_2PI), zeros])

    def features(self, X: Any) -> Any:
        """Return the features [is observed, x, x^2] of rows X, (n, 3 D)."""
        X, is_observed = self._replace_missing(X)
        return np.concatenate([is_observed, X, self._squares(X, is_observed)], axis=1)

    def natural_sums(self, sums: Array) -> Array:
        """Convert sums of features (..., 3 D) to the form of natural parameters, (..., D, 4)."""
        counts, sum_x, sum_xx = np.split(sums, 3, axis=-1)
        return np.stack([counts, sum_xx, sum_x, counts], axis=-1)

    def feature_coefficients(self, t: Array) -> Array:
        """Return the coefficients of the features, (..., 3 D), for t (..., D, 4) of the family."""
        # Apply the transpose of the matrix that `natural_sums` applies.
        return np.concatenate([t[..., 0] + t[..., 3], t[..., 2], t[..., 1]], axis=-1)

    def feature_sums(self, statistics: Array) -> Array:
        """Return sums of features that `natural_sums` converts to ``statistics``."""
        return np.concatenate([statistics[..., 0], statistics[..., 2], statistics[..., 1]], axis=-1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows of independent Student t, each with twice ``shape`` degrees of freedom."""
        q = NormalGamma.to_standard(lam)
        mean, kappa = q["mean"][:, 0], q["mean_precision"][:, 0]
        squared_scale = q["rate"] * (1.0 + kappa) / (kappa * q["shape"])
        t = rng.standard_t(2.0 * q["shape"], size=(n_rows, self.n_features))
        return mean + self.center + np.sqrt(squared_scale) * t

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the inverse of the expected precision (K, D)."""
        q = NormalGamma.to_standard(lam)
        return q["mean"][..., 0] + self.center, q["rate"] / q["shape"]

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the means and the standard deviations of the columns."""
        q = NormalGamma.to_standard(lam)
        mean, kappa = q["mean"][..., 0] + self.center, q["mean_precision"][..., 0]
        shape, rate = q["shape"], q["rate"]
        return mean_marginals(mean, kappa, shape, rate), deviation_marginals(shape, rate)


@in_files("models.SphericalGaussian")
@dataclass(frozen=True)
class SphericalGaussian(IndependentMixin):
    """N(mu_k, I / tau_k) with a normal-gamma prior.

    The features are [number of observed values, |x|^2, x, is observed], with D entries for each of
    the last two.
    """

    # (2 + 2D,): natural parameters of the prior for rows relative to the center.
    prior: Annotated[Array, "2+d+d"]
    # (D,): subtracted from the rows.
    center: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    # (D,): added to the squares of each row.
    added: Annotated[Array | None, "d"] = None

    covariance_type = "spherical"
    family = NormalGamma

    @property
    def base(self) -> Array:
        """The constant of a column's log density, the coefficient of the first feature."""
        base = np.zeros(self.prior.size)
        base[0] = -0.5 * LOG_2PI
        return base

    def features(self, X: Any) -> Any:
        """Return the features [number of observed values, |x|^2, x, is observed] of rows X."""
        X, is_observed = self._replace_missing(X)
        n_observed = is_observed.sum(axis=1, keepdims=True)
        squares = self._squares(X, is_observed).sum(axis=1, keepdims=True)
        return np.concatenate([n_observed, squares, X, is_observed], axis=1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw the precision of each row, which its columns share, and then the row."""
        q = NormalGamma.to_standard(lam)
        tau = rng.gamma(q["shape"], 1.0 / q["rate"], size=(n_rows, 1))
        variance = (1.0 + 1.0 / q["mean_precision"]) / tau
        noise = rng.standard_normal((n_rows, self.n_features))
        return q["mean"] + self.center + np.sqrt(variance) * noise

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw the precision of each row given its observed values, and then its missing values.

        The precision is common to the columns, so that observed values inform about it.
        """
        rows, is_observed = self._replace_missing(X)
        q = NormalGamma.to_standard(lam)
        # Given tau, the predictive variance of a column is ``factor / tau``.
        factor = 1.0 + 1.0 / q["mean_precision"]
        squares = (is_observed * (rows - q["mean"]) ** 2 / factor).sum(axis=1)
        rate = q["rate"] + 0.5 * squares
        tau = rng.gamma(q["shape"] + 0.5 * is_observed.sum(axis=1)) / rate
        noise = rng.standard_normal(is_observed.shape) / np.sqrt(tau)[:, None]
        return fill_missing(X, q["mean"] + self.center + np.sqrt(factor) * noise)

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the inverse of the expected precision (K,)."""
        q = NormalGamma.to_standard(lam)
        return q["mean"] + self.center, q["rate"] / q["shape"]

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the means of the columns, and the standard deviation that they share."""
        q = NormalGamma.to_standard(lam)
        mean, kappa = q["mean"] + self.center, q["mean_precision"]
        shape, rate = (np.broadcast_to(q[name][:, None], mean.shape) for name in ("shape", "rate"))
        return mean_marginals(mean, kappa, shape, rate), deviation_marginals(shape, rate)


@in_files("models.KnownVarianceGaussian")
@dataclass(frozen=True)
class KnownVarianceGaussian(IndependentMixin, PairOfEachColumn):
    """N(mu_k, s I) with known s and a normal prior of each mean.

    The features are [x / s, is observed / s, constant], with D entries for each of the first two.
    The constant is the part of a row's log density that does not depend on the means. With the
    prior variance v of the means and the number of rows N_k of component k, q has the precision
    ``1 / v + N_k / s``, and the mean in [BKM17 alg. 2].
    """

    # (D, 2): natural parameters of the prior for rows relative to the center.
    prior: Annotated[Array, "d 2"]
    # (D,): subtracted from the rows.
    center: Annotated[Array, "d"]
    # The known variance s.
    noise_variance: Annotated[float, POSITIVE]
    dtype: np.dtype[Any]

    family = Normal
    capabilities = frozenset({Capability.TEMPERABLE})
    n_constants = 1

    def projected(self, X: Any, weights: Array, directions: Any) -> None:
        """Return None: no projection is needed, because the variance is known."""

    def features(self, X: Any) -> Any:
        """Return the features, whose last is ``-(|x|^2 / s + n_observed log(2 pi s)) / 2``."""
        X, is_observed = self._replace_missing(X)
        s = self.noise_variance
        n_observed = is_observed.sum(axis=1)
        constant = -0.5 * ((X * X).sum(axis=1) / s + n_observed * np.log(2.0 * np.pi * s))
        return np.concatenate([X / s, is_observed / s, constant[:, None]], axis=1)

    def sums_from_means(self, means: Array, counts: Array) -> Array:
        """Return sums of features for which q has the ``means`` (K, D), in units of the data.

        ``counts`` (K,) are the numbers of rows of the components. The last feature, the constant,
        gets the sum 0.
        """
        counts_over_s = np.repeat(counts[:, None] / self.noise_variance, self.n_features, axis=1)
        x_over_s = (self.prior[:, 1] + counts_over_s) * (means - self.center) - self.prior[:, 0]
        return np.concatenate([x_over_s, counts_over_s, np.zeros((len(counts), 1))], axis=1)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of independent normal columns of variance ``s + Var[mu_kd]``."""
        X, is_observed = self._replace_missing(X)
        log_densities = np.empty((X.shape[0], lam.shape[0]))
        means, variances = Normal.mean(lam), Normal.variance(lam) + self.noise_variance
        for k, (mean, v) in enumerate(zip(means, variances, strict=True)):
            deviances = is_observed * ((X - mean) ** 2 / v + np.log(2.0 * np.pi * v))
            log_densities[:, k] = -0.5 * deviances.sum(axis=1)
        return log_densities

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from independent normal columns of variance ``s + Var[mu_kd]``."""
        scale = np.sqrt(self.noise_variance + Normal.variance(lam))
        noise = rng.standard_normal((n_rows, self.n_features))
        return Normal.mean(lam) + self.center + scale * noise

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return the mean (K, D) and the known variance."""
        return Normal.mean(lam) + self.center, np.array(self.noise_variance)

    def log_partition(self, b: Array) -> tuple[Array, Array]:
        """Return ``log int p(x | mu_k)^b dx`` of a complete row and its slope in b, (M,) each.

        ``b`` (M,) are inverse temperatures.
        """
        return compute_noise_partition(b, self.n_features, self.noise_variance)
