"""Student t components: Gaussians whose precision is scaled by a random u, small for outliers.

The model is

    u ~ Gamma(nu_k / 2, nu_k / 2),      x | u ~ N(mu_k, (u Lambda_k)^-1)      given z = k,

with one u per row ("full") or one per value ("diag"). The scale u is a local variable, like z.
Let ``2 d = E[(x - mu)' Lambda (x - mu)]``, and let m of the D columns be missing. At T = 1,

    q(u | z = k) = Gamma((nu + D - m) / 2, nu / 2 + d),
    q(x_m | u, z = k) = N(x^, (u A_mm)^-1),      A = E[Lambda],

with x^ and d as under the Gaussian (:mod:`skvt.models.mixture._missing`). The energy is linear in
the statistics

    S = sum r (1, E[u], E[u x], E[u x x'], E[log u - u]),

which suffice for all globals. These sums add up over batches and over merged components; the rows
of a merged component keep the mixture of both q. The posterior of mu and Lambda is that of a
Gaussian whose rows have weights r E[u]. The value of nu is the point at which the bound is highest.
With N, the first sum of S, and L, the last one, the part of the bound that depends on nu is

    max_nu N [nu / 2 log(nu / 2) - log Gamma(nu / 2)] + nu / 2 L,

This maximum takes the place of a log-normaliser, because the energy of a row is linear in the
gradient of the maximum with respect to (N, L).
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from skvt._compiled import digamma_array as digamma
from skvt._compiled import exp, jit, log, writeable
from skvt._compiled import gammaln_array as gammaln
from skvt.contracts import Completion
from skvt.expfam import NormalGamma
from skvt.files import in_files
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._missing import GaussianCompletion, GaussianHoles
from skvt.models.mixture._product import Block, FitsOfBlocks, Product
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import (
    LOG_2PI,
    ConjugateComponent,
    DiagonalGaussian,
    FullGaussian,
    PairOfEachColumn,
    distances_of_observed,
    fill_missing,
)
from skvt.typing import Array

# Range of the degrees of freedom.
LIMITS = (1.0, 100.0)
# Degrees of freedom of a component without rows.
_FREEDOM_WITHOUT_ROWS = 10.0
_NEWTON_STEPS = 8
# Smallest shape of q(u). A limit is needed because the bound may have no maximum over the shape at
# high temperatures and with missing values.
_SMALLEST_SHAPE = 0.5
# Distance of Tukey's fences from the quartiles, in interquartile ranges.
_FENCE = 1.5
# Distance between the nodes of the quadrature over log u, in standard deviations at a mode.
_NODE_DISTANCE = 0.7
# Largest distance between these nodes, in units of log u.
_MAX_NODE_DISTANCE = 0.4
# The search for the highest node evaluates every third node.
_SEARCH_STRIDE = 3
# The sum over nodes ends where the log integrand less its maximum is below this number.
_NEGLIGIBLE_LOG_RATIO = -25.0
# Larger squared distances are replaced by this one, whose square does not overflow.
_MAX_DISTANCE = 1e140
# Position of the features [u, u x, u x x'] of full scales. The first feature of all is 1, and the
# last two are [1, log u - u].
_FEATURES_OF_U = slice(1, -2)


@dataclass(frozen=True)
class DegreesOfFreedom:
    """Degrees of freedom nu at the maximum of the bound, with the interface of a family.

    The natural parameters (N, L) are the sums over rows of 1 and of ``E[log u - u]``. The
    statistics are ``(nu / 2 log(nu / 2) - log Gamma(nu / 2), nu / 2)``. The methods treat nu as a
    known number: its variance and its entropy are 0, and draws are equal to it.
    """

    # Range of nu; both limits are equal if nu is fixed.
    limits: tuple[float, float] = LIMITS
    __name__ = "DegreesOfFreedom"

    def mean(self, eta: ArrayLike) -> Array:
        """Return nu, shape (...), for natural parameters (..., 2)."""
        N, L = np.moveaxis(np.asarray(eta, np.float64), -1, 0)
        has_rows = N > 0.0
        # At the maximum, x = nu / 2 solves log(x) - digamma(x) = target, the equation of the shape
        # in a maximum likelihood fit of a gamma distribution.
        target = np.where(has_rows, -L / np.where(has_rows, N, 1.0) - 1.0, 1.0)
        target = np.maximum(target, 1e-6)
        # Begin with an approximate solution, and improve it by Newton's method for 1 / x.
        x = (3.0 - target + np.sqrt((target - 3.0) ** 2 + 24.0 * target)) / (12.0 * target)
        for _ in range(_NEWTON_STEPS):
            slope = x - x * x * polygamma(1, x)
            x = 1.0 / (1.0 / x + (np.log(x) - digamma(x) - target) / slope)
        return np.clip(np.where(has_rows, 2.0 * x, _FREEDOM_WITHOUT_ROWS), *self.limits)

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return the maximum over nu, shape (...)."""
        return np.asarray((np.asarray(eta) * self.expectation(eta)).sum(axis=-1))

    def expectation(self, eta: ArrayLike) -> Array:
        """Return the gradient of the maximum with respect to N and L, in the shape of ``eta``."""
        half = 0.5 * self.mean(eta)
        return np.stack([half * np.log(half) - gammaln(half), half], axis=-1)

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        return {"degrees_of_freedom": self.mean(eta)}

    def variance(self, eta: ArrayLike) -> Array:
        """Return 0, shape (...)."""
        return np.zeros(np.shape(eta)[:-1])

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        return self.mean(eta)

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """Return 0 where x is nu, and -inf elsewhere."""
        return np.where(np.isclose(x, self.mean(eta)), 0.0, -np.inf)

    entropy = variance


@in_files("models.WeightedFullGaussian")
@dataclass(frozen=True)
class WeightedFullGaussian(FullGaussian):
    """Gaussians of rows with scales u; the features are [1, u, u x, u x x'].

    The method `features` sets u = 1. :class:`_ScalesOfRows` inserts E[u].
    """

    @property
    def base(self) -> Array:
        """Coefficients of the features 1 and u that do not depend on the parameters.

        The coefficient of u cancels the -u of the term ``(D / 2 - 1) (log u - u)``, which
        `Freedom.base` contains.
        """
        base = np.zeros(self.prior.size)
        base[0] = -0.5 * self.n_features * LOG_2PI
        base[1] = 0.5 * self.n_features - 1.0
        return base

    def features(self, X: Any) -> Any:
        """Return ``[1, 1, x, upper triangle of x x']``."""
        features = super().features(X)
        return np.concatenate([features[:, :1], features], axis=1)

    # These methods of `FullGaussian` do not fit, because the rows have a further feature, u.
    log_densities_and_sums = ConjugateComponent.log_densities_and_sums
    weighted_sums = ConjugateComponent.weighted_sums
    # The features are the statistics of the family, so that M is the identity.
    natural_sums = ConjugateComponent.natural_sums
    feature_coefficients = ConjugateComponent.feature_coefficients


@in_files("models.WeightedDiagonalGaussian")
@dataclass(frozen=True)
class WeightedDiagonalGaussian(DiagonalGaussian):
    """Gaussians of values with scales u; features [is observed, u, u x, u x^2], D of each.

    The method `features` sets u = 1. :class:`_ScalesOfValues` inserts E[u].
    """

    @property
    def base(self) -> Array:
        """For each column, the coefficients of :attr:`WeightedFullGaussian.base` with D = 1."""
        return np.repeat([-0.5 * LOG_2PI, -0.5, 0.0, 0.0], self.n_features)

    def features(self, X: Any) -> Any:
        """Return ``[seen_d, seen_d, x_d, x_d^2]``, D of each; seen_d is 1 if x_d is observed."""
        X, seen = self._observed(X)
        return np.concatenate([seen, seen, X, self._squares(X, seen)], axis=1)

    def natural_sums(self, sums: Array) -> Array:
        """Rearrange sums of features (..., 4D) to natural parameters (..., D, 4)."""
        n_observed, sum_u, sum_u_x, sum_u_xx = np.split(sums, 4, axis=-1)
        return np.stack([n_observed, sum_u_xx, sum_u_x, sum_u], axis=-1)

    def feature_coefficients(self, t: Array) -> Array:
        return np.concatenate([t[..., 0], t[..., 3], t[..., 2], t[..., 1]], axis=-1)


@in_files("models.Freedom")
@dataclass(frozen=True)
class Freedom(ConjugateComponent):
    """Degrees of freedom of rows or of values; the features are [is observed, log u - u].

    There is one pair of features for each row, or for each of its values, in the order of
    :class:`PairOfEachColumn`.
    """

    # Zeros, (1, 2) if each row has a scale u, or (D, 2) if each value has one.
    prior: Annotated[Array, "1 2 | d 2"]
    n_features: int
    dtype: np.dtype[Any]
    limits: tuple[float, float] = LIMITS

    natural_sums = PairOfEachColumn.natural_sums
    feature_coefficients = PairOfEachColumn.feature_coefficients

    @property
    def family(self) -> DegreesOfFreedom:
        return DegreesOfFreedom(self.limits)

    @property
    def base(self) -> Array:
        """The part of the coefficients of ``E[log u - u]`` that does not depend on nu."""
        n_scales = len(self.prior)
        return np.repeat([0.0, 0.5 * self.n_features / n_scales - 1.0], n_scales)

    def features(self, X: Any) -> Any:
        """Return ``[is observed, log u - u]`` with u = 1."""
        is_seen = 1.0 - np.isnan(np.asarray(X, np.float64))
        # A row with one scale counts as observed if any of its values is.
        if len(self.prior) != is_seen.shape[1]:
            is_seen = is_seen.max(axis=1, keepdims=True)
        return np.concatenate([is_seen, -is_seen], axis=1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw the scales u of rows, (n_rows, 1) or (n_rows, D)."""
        nu = self.family.mean(lam)
        return rng.gamma(0.5 * nu, 2.0 / nu, (n_rows, nu.size))

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Freedom", Array]:
        """Return the component and ``lam`` unchanged, since q(nu) is a point."""
        return self, lam

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the degrees of freedom, whose quantiles are all equal to nu."""
        nu = np.broadcast_to(self.family.mean(lam), (len(lam), self.n_features))
        return (Marginals("degrees of freedom", np.arange(self.n_features), nu, lambda p: nu),)


@in_files("models.StudentT")
@dataclass(frozen=True)
class StudentT(WrapperMixin, Product):
    """Student t components of "full" or "diag" scale, with the blocks "gaussian" and "freedom".

    Only the first feature of each block, or the first D of them if each value has a scale, does not
    depend on u. The method `features` returns 0 for all others, and the completion adds their
    expectations under q(u).
    """

    def validate(self, d: int, k: int) -> bool:
        freedom: Any
        gaussian, freedom = (block.component for block in self.blocks)
        low, high = freedom.limits
        return (
            [block.name for block in self.blocks] == ["gaussian", "freedom"]
            and type(gaussian) in (WeightedFullGaussian, WeightedDiagonalGaussian)
            and all(np.array_equal(block.columns, np.arange(d)) for block in self.blocks)
            and len(freedom.prior) == (1 if self._full else d)
            and 0.0 < low <= high < np.inf
        )

    @property
    def _full(self) -> bool:
        return bool(self._values.covariance_type == "full")

    def features(self, X: Any) -> Any:
        """Return the features that do not depend on u, with 0 for the others."""
        freedom: Any = self.blocks[1].component
        n_scales = len(freedom.prior)
        gaussian_width = self._widths[0]
        is_seen = freedom.features(X)[:, :n_scales]
        features = np.zeros((len(is_seen), gaussian_width + 2 * n_scales))
        features[:, :n_scales] = is_seen
        features[:, gaussian_width : gaussian_width + n_scales] = is_seen
        return features

    def filled(self, X: Any) -> Any:
        """Return rows completed by the Gaussian, if its features need complete rows."""
        return self._values.filled(X)

    def row_fits(self, X: Any) -> FitsOfBlocks:
        """Return fits of rows whose outliers are clipped, which search for seeds."""
        return super().row_fits(self._without_outliers(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        """Project rows whose outliers are clipped."""
        return super().projected(self._without_outliers(X), weights, directions)

    def _without_outliers(self, X: Any) -> Array:
        """Clip outliers to Tukey's fences of their column, so that they do not become seeds.

        The fences are 1.5 interquartile ranges below the lower quartile and above the upper one. A
        column in which both quartiles are equal has no fences.
        """
        # Append a row of means, so that each column has a value.
        rows = np.concatenate([np.asarray(X, np.float64), self._values.center[None]])
        lower_quartile, upper_quartile = np.nanquantile(rows, [0.25, 0.75], axis=0)
        quartile_range = upper_quartile - lower_quartile
        distance = np.where(quartile_range > 0.0, _FENCE * quartile_range, np.inf)
        return np.clip(rows[:-1], lower_quartile - distance, upper_quartile + distance)

    def completion(self, table: Array) -> Completion:
        return partial(_ScalesOfRows if self._full else _ScalesOfValues, self._values, table)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log posterior predictive densities (n, K), by quadrature over log u."""
        gaussian_lam, freedom_lam = self.family.split(lam)
        nu = self._freedom_family.mean(freedom_lam)
        if self._full:
            mixture, half_log_dets, _ = self._scale_mixtures(X, gaussian_lam, nu[:, 0])
            return np.asarray(mixture.log_density() - half_log_dets * (mixture.n_seen > 0.0))
        # With one scale for each value, the columns are independent given the component.
        q = NormalGamma.standard(gaussian_lam)
        log_densities = np.zeros((X.shape[0], len(lam)))
        rows, is_seen = self._values._observed(X)
        for k in range(len(lam)):
            distance = (rows - q["mean"][k, :, 0]) ** 2 / (2.0 * q["rate"][k])
            mixture = _ScaleMixture(
                distance, n_seen=is_seen, freedom=2.0 * q["shape"][k],
                kappa=q["mean_precision"][k, :, 0], nu=nu[k],
            )  # fmt: skip
            of_values = mixture.log_density() - 0.5 * is_seen * np.log(2.0 * q["rate"][k])
            log_densities[:, k] = of_values.sum(axis=1)
        return log_densities

    @property
    def _freedom_family(self) -> Any:
        return self.blocks[1].component.family

    def _scale_mixtures(self, X: Any, lam: Array, nu: Array) -> tuple["_ScaleMixture", Array, Any]:
        """Return the predictive distributions of rows X under full scales.

        ``lam`` are the natural parameters of the Gaussian block, and nu is (K,). Returns the
        distributions, half the log-determinants of the shape matrices of observed columns, (n, K)
        or (K,), and the missing values or None.
        """
        mean, scale, freedom = self._values._student(lam)
        kappa = self._values.family.standard(lam)["mean_precision"]
        # The predictive of a Gaussian has the scale (1 + 1 / kappa) times W^-1. Keep only W^-1.
        scale = scale * (kappa / (1.0 + kappa))[:, None, None]
        rows = self._values._centred(X)
        distances, half_log_dets, n_seen, holes = distances_of_observed(rows, mean, scale)
        n_seen = np.broadcast_to(n_seen, (X.shape[0], 1))
        return _ScaleMixture(distances, n_seen, freedom, kappa, nu), half_log_dets, holes

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw from the posterior predictive of one component: first u, then a Student t."""
        gaussian_lam, freedom_lam = self.family.split(lam)
        u = self.blocks[1].component.sample(freedom_lam, n_rows, rng)
        gaussian = self._values
        q = gaussian.family.standard(gaussian_lam)
        kappa = q["mean_precision"] if self._full else q["mean_precision"][:, 0]
        center = gaussian.center + (q["mean"] if self._full else q["mean"][:, 0])
        # The Gaussian draws at the scale 1 + 1 / kappa. Convert its draws to 1 / u + 1 / kappa.
        ratio = np.sqrt((1.0 / u + 1.0 / kappa) / (1.0 + 1.0 / kappa))
        draws = gaussian.sample(gaussian_lam, n_rows, rng)
        return np.asarray(center + ratio * (draws - center), self.dtype)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values given the observed values of their row.

        With a full scale, u is drawn from the nodes of the quadrature, and then the missing values
        from a Student t given u. With a diagonal scale, values are independent.
        """
        if not self._full:
            return fill_missing(X, self.sample(lam, len(X), rng))
        gaussian_lam, freedom_lam = self.family.split(lam[None])
        nu = self._freedom_family.mean(freedom_lam)[:, 0]
        mixture, _, holes = self._scale_mixtures(X, gaussian_lam, nu)
        if holes is None:
            return np.array(X, np.float64)
        scale = 1.0 / mixture.draw_u(rng)[:, 0] + 1.0 / mixture.kappa
        chi_square = rng.chisquare(mixture.freedom + mixture.n_seen[:, 0])
        noise_factor = np.sqrt((scale + mixture.distance[:, 0]) / chi_square)
        noise = rng.standard_normal(holes.X.shape) * noise_factor[:, None]
        return np.where(holes.missing, holes.filled(0, noise) + self._values.center, X)

    def column_evidence(self, sums: Array) -> Array:
        """Return the sum of the evidence of the Gaussian and of the freedom, (K, D) in nats."""
        of_blocks = super().column_evidence(sums)
        return np.asarray(of_blocks[:, : self.n_features] + of_blocks[:, self.n_features :])

    def marginals(self, lam: Array) -> Any:
        """Return locations, scales and degrees of freedom."""
        (means, deviations), freedom = super().marginals(lam)
        return means, deviations._replace(quantity="scale"), *freedom


def student_t_component(
    gaussian: FullGaussian | DiagonalGaussian, freedom: float | None = None
) -> StudentT:
    """Return the Student t component with the prior of ``gaussian``.

    ``freedom`` is the number of degrees of freedom; if it is None, they are learned.
    """
    D, dtype = gaussian.n_features, gaussian.dtype
    full = gaussian.covariance_type == "full"
    kind = WeightedFullGaussian if full else WeightedDiagonalGaussian
    weighted: Any = kind(gaussian.prior, gaussian.center, dtype, gaussian.added)
    limits = LIMITS if freedom is None else (freedom, freedom)
    freedom_component = Freedom(np.zeros((1 if full else D, 2)), D, dtype, limits)
    columns = np.arange(D)
    blocks = Block("gaussian", weighted, columns), Block("freedom", freedom_component, columns)
    return StudentT(blocks, D, dtype)


# ---------------------------------------------------------------------------------- q(u)
@dataclass(frozen=True)
class _Scales:
    """The gamma distributions q(u) = Gamma(shape, rate), see the docstring of the module.

    The arrays among the fields broadcast to each other.
    """

    # Degrees of freedom.
    nu: Array
    # d, half the expected squared distance.
    half_distance: Array
    # 1 / T.
    inv_temps: Array
    # Number of columns that share a scale u, and how many of them are missing in each row.
    n_columns: int
    n_missing: Array

    @cached_property
    def shape(self) -> Array:
        optimum = self.inv_temps * self._log_u_coefficient + 1.0 - 0.5 * self.n_missing
        return np.maximum(optimum, _SMALLEST_SHAPE)

    @cached_property
    def rate(self) -> Array:
        return np.asarray(self.inv_temps * (0.5 * self.nu + self.half_distance))

    @property
    def _log_u_coefficient(self) -> Array:
        """The coefficient of log u in the energy."""
        return np.asarray(0.5 * (self.nu + self.n_columns) - 1.0)

    @cached_property
    def mean(self) -> Array:
        """E[u]."""
        return self.shape / self.rate

    @cached_property
    def mean_log(self) -> Array:
        """E[log u]."""
        return digamma(self.shape) - np.log(self.rate)

    def energy(self) -> Array:
        """Return the expected log density without the terms that do not depend on u."""
        missing_energy = 0.5 * self.n_missing / self.inv_temps
        linear = self.mean * (0.5 * self.nu + self.half_distance)
        return np.asarray(self._log_u_coefficient * self.mean_log - linear - missing_energy)

    def entropy(self) -> Array:
        """Return the entropy of u and of missing values, without the determinant of A_mm."""
        a = self.shape
        entropy_of_u = a - np.log(self.rate) + gammaln(a) + (1.0 - a) * digamma(a)
        per_missing_value = 1.0 + LOG_2PI - np.log(self.inv_temps) - self.mean_log
        return np.asarray(entropy_of_u + 0.5 * self.n_missing * per_missing_value)


@dataclass(frozen=True)
class _ScalesOfRows:
    """The hidden variables of a chunk of rows under full scales: u and the missing values.

    It implements :class:`~skvt.contracts.Holes`, the contract of variables such as missing values,
    whose q the local step integrates out.
    """

    gaussian: WeightedFullGaussian
    # (K, P): coefficients of the features [1, u, u x, u x x'] of the Gaussian and [1, log u - u] of
    # the freedom.
    table: Array
    # (n, D): rows of the data.
    X: Any
    # (n,) or (1,): 1 / T of each row, or of all rows.
    inv_temps: Array

    @cached_property
    def _features(self) -> Array:
        """The features [u, u x, u x x'] at u = 1, (n, P - 3)."""
        return np.asarray(self.gaussian.features(self.X)[:, 1:])

    @cached_property
    def _missing(self) -> GaussianHoles | None:
        """The missing values under the Gaussian with u = 1 and T = 1."""
        center, D = self.gaussian.center, self.gaussian.n_features
        completion = GaussianCompletion.from_table(center, self.table[:, _FEATURES_OF_U], D)
        return completion.holes(self.X, np.ones(1))

    @cached_property
    def _scales(self) -> tuple[_Scales, Array]:
        """q(u) and half the log-determinants of A_mm, (n, K)."""
        # The product of table and features is -d after the constant has been subtracted from the
        # coefficient of u.
        table = self.table[:, _FEATURES_OF_U].copy()
        table[:, 0] -= self.gaussian.base[1]
        half_distance = -self._features @ table.T
        half_log_dets = np.zeros_like(half_distance)
        n_missing = np.zeros((len(self._features), 1))
        if self._missing is not None:
            n_missing = self._missing.missing.sum(axis=1, keepdims=True).astype(np.float64)
            gain, entropy = np.zeros((2, *half_distance.shape))
            self._missing.add_to(gain, entropy)
            half_log_dets = 0.5 * n_missing * (1.0 + LOG_2PI) - entropy
            # Missing values at their means reduce the distance. The gain of the logits contains
            # this reduction and the entropy less |m| / 2.
            half_distance -= gain - entropy + 0.5 * n_missing
        D = self.gaussian.n_features
        scales = _Scales(
            nu=2.0 * self.table[:, -1] + 2.0 - D, half_distance=np.maximum(half_distance, 0.0),
            inv_temps=self.inv_temps[:, None], n_columns=D, n_missing=n_missing,
        )  # fmt: skip
        return scales, half_log_dets

    @property
    def _has_values(self) -> Array:
        """1 for each row with an observed value and 0 for the others, (n, 1)."""
        return self._features[:, :1]

    def add_to(self, logits: Array, entropy: Array) -> None:
        scales, half_log_dets = self._scales
        entropies = self._has_values * (scales.entropy() - half_log_dets)
        logits += self._has_values * scales.energy() + entropies / self.inv_temps[:, None]
        entropy += entropies

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        scales, _ = self._scales
        weighted = weighted * self._has_values
        weighted_means = weighted * scales.mean
        gaussian_sums = weighted_means.T @ self._features
        missing = self._missing
        if missing is not None:
            # Add the missing values component by component, because their variances are divided by
            # E[u], which acts like an inverse temperature and differs between components.
            linear, precision = missing.completion.linear, missing.completion.precision
            for k in range(len(sums)):
                of_k = replace(missing.completion, linear=linear[[k]], precision=precision[[k]])
                inv_temps = self.inv_temps * scales.mean[:, k]
                under_k = replace(missing, completion=of_k, inv_temps=inv_temps)
                missing_sums = np.zeros((1, gaussian_sums.shape[1]))
                under_k.add_statistics(np.ascontiguousarray(weighted_means[:, [k]]), missing_sums)
                gaussian_sums[k] += missing_sums[0]
        sums[:, _FEATURES_OF_U] += gaussian_sums
        sums[:, -1] += (weighted * (scales.mean_log - scales.mean)).sum(axis=0)


@dataclass(frozen=True)
class _ScalesOfValues:
    """The hidden variables of a chunk of rows under diagonal scales: one u for each value.

    It implements :class:`~skvt.contracts.Holes`, as :class:`_ScalesOfRows` does.
    """

    gaussian: WeightedDiagonalGaussian
    # (K, 6 D): coefficients of the features [1, u, u x, u x^2] of the Gaussian and [1, log u - u]
    # of the freedom, D of each.
    table: Array
    # (n, D): rows of the data.
    X: Any
    # (n,) or (1,): 1 / T of each row, or of all rows.
    inv_temps: Array

    @cached_property
    def _observed(self) -> tuple[Array, Array]:
        """Centred rows with 0 for missing values, and 1 for each observed value, (n, D) each."""
        return self.gaussian._observed(self.X)

    @cached_property
    def _scales(self) -> list[_Scales]:
        """q(u) under each component."""
        rows, _ = self._observed
        _, of_u, of_u_x, of_u_xx, _, of_log_u = np.split(self.table, 6, axis=1)
        precision = -2.0 * of_u_xx
        mean = of_u_x / precision
        # Every value has at least this d, because the mean is uncertain and a variance may be
        # added to squares.
        smallest = np.maximum(-(of_u + 0.5) - 0.5 * precision * mean**2, 0.0)
        if self.gaussian.added is not None:
            smallest = smallest + 0.5 * precision * self.gaussian.added
        scales = []
        for k in range(len(self.table)):
            half_distance = 0.5 * precision[k] * (rows - mean[k]) ** 2 + smallest[k]
            scales.append(_Scales(
                nu=2.0 * of_log_u[k] + 1.0, half_distance=half_distance,
                inv_temps=self.inv_temps[:, None], n_columns=1, n_missing=np.zeros(1),
            ))  # fmt: skip
        return scales

    def add_to(self, logits: Array, entropy: Array) -> None:
        _, is_seen = self._observed
        for k, scales in enumerate(self._scales):
            entropies = (is_seen * scales.entropy()).sum(axis=1)
            logits[:, k] += (is_seen * scales.energy()).sum(axis=1) + entropies / self.inv_temps
            entropy[:, k] += entropies

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        rows, is_seen = self._observed
        squares = self.gaussian._squares(rows, is_seen)
        # The completion does not change the features that do not depend on u.
        zeros = np.zeros(rows.shape[1])
        for k, scales in enumerate(self._scales):
            resp = weighted[:, [k]] * is_seen
            weighted_means = resp * scales.mean
            sum_of_logs = (resp * (scales.mean_log - scales.mean)).sum(axis=0)
            sums[k] += np.concatenate([
                zeros, weighted_means.sum(axis=0), (weighted_means * rows).sum(axis=0),
                (weighted_means * squares).sum(axis=0), zeros, sum_of_logs,
            ])  # fmt: skip


# ---------------------------------------------------------------------------------- predictive
class _ScaleMixture(NamedTuple):
    """Student t whose scale is 1 / u + 1 / kappa times a known one, u ~ Gamma(nu / 2, nu / 2).

    The fields are arrays that broadcast to each other.
    """

    # Squared distances of rows from the location, in units of the known scale.
    distance: Array
    # Number of observed values.
    n_seen: Array
    # f, the degrees of freedom of the Student t given u.
    freedom: Array
    # Number of rows that the uncertainty of the location corresponds to.
    kappa: Array
    # Degrees of freedom of u.
    nu: Array

    def log_density(self) -> Array:
        """Return log densities without the known scale's determinant; 0 without observed values."""
        n, total = self.n_seen, 0.5 * (self.freedom + self.n_seen)
        constant = gammaln(total) - gammaln(0.5 * self.freedom) - 0.5 * n * np.log(np.pi)
        constant = constant + 0.5 * self.nu * np.log(0.5 * self.nu) - gammaln(0.5 * self.nu)
        return np.asarray(np.where(n > 0.0, constant + self._integrate_log_u(0.5)[0], 0.0))

    def draw_u(self, rng: np.random.Generator) -> Array:
        """Draw u given the values, from the nodes of the quadrature."""
        shape = np.broadcast_shapes(*(np.shape(array) for array in self))
        return self._integrate_log_u(rng.random(shape))[1]

    def _integrate_log_u(self, uniform: Any) -> tuple[Array, Array]:
        """Return the log integral over log u without constants, and u drawn by uniform numbers."""
        arrays = np.broadcast_arrays(*self, uniform)
        flat = [writeable(np.array(array, np.float64).ravel()) for array in arrays]
        log_integral, drawn_u = np.empty((2, flat[0].size))
        _integrate(*flat, log_integral, drawn_u)
        return log_integral.reshape(arrays[0].shape), drawn_u.reshape(arrays[0].shape)


@jit
def _integrate(
    distance: Array, n_seen: Array, freedom: Array, kappa: Array, nu: Array, uniform: Array,
    log_integral: Array, drawn_u: Array,
) -> None:  # fmt: skip
    """Integrate over t = log u by the trapezoidal rule, and draw a node in proportion to its term.

    Results are written to ``log_integral`` and ``drawn_u``. The other arguments are the fields of
    :class:`_ScaleMixture` and uniform random numbers, one for each integral.

    Let n be the number of observed values, f the degrees of freedom and ``s = 1 / u + 1 / kappa``.
    The logarithm of the integrand has the slope ``nu / 2 (1 - u) + kappa / (kappa + u) h(u)`` in t,
    with ``h = n / 2 - (f + n) / 2 distance / (s + distance)``. It has one or two modes. One is near
    the most likely u if the mean were known, the other near the prior's mode, where the uncertainty
    of the mean explains the distance. All modes lie between u_0, the mode at infinite kappa, and
    ``1 + n / nu``. The second derivative at a mode is at least about ``-(nu + n) / 2``, from which
    the distance between nodes is derived.
    """
    for i in range(distance.size):
        d = min(distance[i], _MAX_DISTANCE)
        n = n_seen[i]
        half_nu = 0.5 * nu[i]
        half_nu_n = 0.5 * (nu[i] + n)
        half_f_n = 0.5 * (freedom[i] + n)
        # The first node is at u_0, a root of ``nu / 2 d u^2 - b u - (nu + n) / 2``. Its two forms
        # are equal; use the one in which no terms cancel.
        b = (half_nu_n - half_f_n) * d - half_nu
        root = np.sqrt(b * b + 4.0 * half_nu * d * half_nu_n)
        u = 2.0 * half_nu_n / (root - b) if b < 0.0 else (b + root) / (2.0 * half_nu * d)
        first = log(u)
        step = min(_NODE_DISTANCE / np.sqrt(half_nu_n), _MAX_NODE_DISTANCE)
        # Number of the node after which there is no mode.
        last = int(np.ceil(max(log(1.0 + n / nu[i]) - first, 0.0) / step))
        total, log_max = 0.0, -np.inf
        uniform_number = uniform[i]
        # Phase 0 finds the maximum, phase 1 sums from the first node to the left, and phase 2 sums
        # from the second node to the right. One loop saves compiling the integrand three times.
        # The number of the node is j.
        j, phase = 0, 0
        while phase < 3:
            t = first + j * step
            u = exp(t)
            s = 1.0 / u + 1.0 / kappa[i]
            log_term = half_nu * (t - u) - 0.5 * n * log(s) - half_f_n * log(1.0 + d / s)
            if phase == 0:
                log_max = max(log_max, log_term)
                if j < last:
                    j += _SEARCH_STRIDE
                else:
                    j, phase = 0, 1
                continue
            term = exp(log_term - log_max)
            total += term
            # Replace the drawn node by this one with probability `share`, and make a new uniform
            # number from what the comparison leaves of the old one.
            share = term / total
            if uniform_number < share:
                drawn_u[i], uniform_number = u, uniform_number / share
            else:
                uniform_number = (uniform_number - share) / (1.0 - share)
            is_negligible = log_term - log_max < _NEGLIGIBLE_LOG_RATIO
            if phase == 1 and not is_negligible:
                j -= 1
            elif phase == 1:
                j, phase = 1, 2
            else:
                phase = 3 if is_negligible and j > last else 2
                j += 1
        log_integral[i] = log_max + log(total * step)
