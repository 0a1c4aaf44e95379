"""Student t components: Gaussians whose precision is scaled by a random u.

The scale u of an outlier is small, so that outliers affect the other parameters little.

The model is

    u ~ Gamma(nu_k / 2, nu_k / 2),      x | u ~ N(mu_k, (u Lambda_k)^-1)      given z = k,

with one u per row ("full") or one per value ("diag"). The scale u is a local variable, like z.
Let D be the number of columns that share a scale, which is 1 with "diag", m the set of those that
are missing in the row, and |m| their number. Let x^ be the conditional mean of the missing values
under the Gaussian with u = 1, see :mod:`skvt.models.mixture._missing`. With x^ in place of the
missing values, let ``2 d = E[(x - mu)' Lambda (x - mu)]``. At the temperature T = 1, the best q of
the local variables is

    q(u | z = k) = Gamma((nu + D - |m|) / 2, nu / 2 + d),
    q(x_m | u, z = k) = N(x^, (u A_mm)^-1),      A = E[Lambda].

The energy is the expected log density under q. It is linear in the sums over rows, with the
responsibilities r,

    S = sum r (1, E[u], E[u x], E[u x x'], E[log u - u]).

The posterior of all parameters depends on the data through S only. Sums of batches of rows add up,
and so do the sums of two components that are merged. After a merge, the q of a row's local
variables is the mixture of its q under the two components. The posterior of mu and Lambda is the
posterior under a Gaussian with the row weights r E[u]. The value of nu is the number that maximises
the bound. Let N be the first sum of S, and L the last one. The part of the bound that depends on nu
is

    max_nu N [nu / 2 log(nu / 2) - log Gamma(nu / 2)] + nu / 2 L.

This maximum serves as the log-normaliser of an exponential family with the natural parameters
(N, L), see :class:`DegreesOfFreedom`. The gradient of the maximum serves as the expected
statistics, because the energy of a row is linear in it.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from skvt._compiled import digamma_array as digamma
from skvt._compiled import ensure_writeable, exp, jit, log
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
    compute_observed_distances,
    fill_missing,
)
from skvt.typing import Array

# Range of the degrees of freedom nu.
_FREEDOM_LIMITS = (1.0, 100.0)
# Value of nu of a component without rows.
_FREEDOM_WITHOUT_ROWS = 10.0
# Lower limit of log(nu / 2) - digamma(nu / 2), which is reached where nu is far above its range.
_MIN_LOG_MINUS_DIGAMMA = 1e-6
# Number of Newton's steps in the computation of nu, which converge quadratically.
_NEWTON_STEPS = 8
# Smallest shape of q(u). A limit is needed because the bound may have no maximum over the shape at
# high temperatures and with missing values.
_MIN_SHAPE = 0.5
# Distance of Tukey's fences from the quartiles, in interquartile ranges.
_FENCE_FACTOR = 1.5
# Predictive densities are integrals over log u, computed by the trapezoidal rule. Its nodes have
# this distance, in standard deviations of log u at a mode of the integrand.
_NODE_DISTANCE = 0.7
# Largest distance between these nodes, in units of log u.
_MAX_NODE_DISTANCE = 0.4
# The search for the node with the largest integrand evaluates every third node.
_SEARCH_STRIDE = 3
# The sum over nodes ends where the log integrand less its maximum is below this number.
_NEGLIGIBLE_LOG_RATIO = -25.0
# Larger squared distances are replaced by this number, whose square does not overflow.
_MAX_SQUARED_DISTANCE = 1e140
# Position of [u, u x, u x x'] in the features [1, u, u x, u x x', 1, log u - u] of a component with
# one scale for each row.
_FEATURES_OF_U = slice(1, -2)


@dataclass(frozen=True)
class DegreesOfFreedom:
    """Degrees of freedom nu at the maximum of the bound, with the methods of `skvt.expfam.Family`.

    The natural parameters ``eta`` are (N, L), the sums over rows of 1 and of ``E[log u - u]``. The
    statistics are ``(nu / 2 log(nu / 2) - log Gamma(nu / 2), nu / 2)``. The methods treat nu as a
    known number: its variance and its entropy are 0, and draws are equal to nu.
    """

    # Range of nu; both limits are equal if nu is fixed.
    limits: tuple[float, float] = _FREEDOM_LIMITS
    # The name in texts, like the ``__name__`` of families that are classes.
    __name__ = "DegreesOfFreedom"

    def mean(self, eta: ArrayLike) -> Array:
        """Return nu, shape (...), for natural parameters (..., 2)."""
        N, L = np.moveaxis(np.asarray(eta, np.float64), -1, 0)
        has_rows = N > 0.0
        # At the maximum, x = nu / 2 solves log(x) - digamma(x) = target, the equation of the shape
        # in a maximum likelihood fit of a gamma distribution.
        target = np.where(has_rows, -L / np.where(has_rows, N, 1.0) - 1.0, 1.0)
        target = np.maximum(target, _MIN_LOG_MINUS_DIGAMMA)
        # Begin with an approximate solution x, and improve 1 / x by Newton's method.
        x = (3.0 - target + np.sqrt((target - 3.0) ** 2 + 24.0 * target)) / (12.0 * target)
        for _ in range(_NEWTON_STEPS):
            derivative = x - x * x * polygamma(1, x)
            x = 1.0 / (1.0 / x + (np.log(x) - digamma(x) - target) / derivative)
        return np.clip(np.where(has_rows, 2.0 * x, _FREEDOM_WITHOUT_ROWS), *self.limits)

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return the maximum over nu of the bound's part that depends on nu, shape (...)."""
        return np.asarray((np.asarray(eta) * self.expectation(eta)).sum(axis=-1))

    def expectation(self, eta: ArrayLike) -> Array:
        """Return the gradient of the maximum with respect to N and L, in the shape of ``eta``."""
        half_nu = 0.5 * self.mean(eta)
        return np.stack([half_nu * np.log(half_nu) - gammaln(half_nu), half_nu], axis=-1)

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        return {"degrees_of_freedom": self.mean(eta)}

    def variance(self, eta: ArrayLike) -> Array:
        """Return the variance of nu, which is 0, shape (...)."""
        return np.zeros(np.shape(eta)[:-1])

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        return self.mean(eta)

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """Return 0 where x is nu, and -inf elsewhere."""
        return np.where(np.isclose(x, self.mean(eta)), 0.0, -np.inf)

    # The entropy is 0, too.
    entropy = variance


@in_files("models.WeightedFullGaussian")
@dataclass(frozen=True)
class WeightedFullGaussian(FullGaussian):
    """Gaussians whose rows have a scale u each; the features are [1, u, u x, u x x'].

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

    # The methods of `FullGaussian` cannot be inherited, because they do not know the feature u.
    log_densities_and_sums = ConjugateComponent.log_densities_and_sums
    weighted_sums = ConjugateComponent.weighted_sums
    # The features are the statistics of the family, so that sums of features need no conversion.
    natural_sums = ConjugateComponent.natural_sums
    feature_coefficients = ConjugateComponent.feature_coefficients


@in_files("models.WeightedDiagonalGaussian")
@dataclass(frozen=True)
class WeightedDiagonalGaussian(DiagonalGaussian):
    """Gaussians whose values have a scale u each.

    The features are [is observed, u, u x, u x^2], D of each. The method `features` sets u = 1.
    :class:`_ScalesOfValues` inserts E[u].
    """

    @property
    def base(self) -> Array:
        """For each column, the coefficients of :attr:`WeightedFullGaussian.base` with D = 1."""
        return np.repeat([-0.5 * LOG_2PI, -0.5, 0.0, 0.0], self.n_features)

    def features(self, X: Any) -> Any:
        """Return ``[is observed, is observed, x, x^2]``, D of each, with 0 for missing values."""
        X, is_observed = self._replace_missing(X)
        squares = self._squares(X, is_observed)
        return np.concatenate([is_observed, is_observed, X, squares], axis=1)

    def natural_sums(self, sums: Array) -> Array:
        """Rearrange sums of features (..., 4D) to natural parameters (..., D, 4)."""
        n_observed, sum_u, sum_u_x, sum_u_xx = np.split(sums, 4, axis=-1)
        return np.stack([n_observed, sum_u_xx, sum_u_x, sum_u], axis=-1)

    def feature_coefficients(self, t: Array) -> Array:
        """Rearrange values of the sufficient statistics (..., D, 4) to the order of features."""
        of_observed, of_u_xx, of_u_x, of_u = np.moveaxis(t, -1, 0)
        return np.concatenate([of_observed, of_u, of_u_x, of_u_xx], axis=-1)


@in_files("models.Freedom")
@dataclass(frozen=True)
class Freedom(PairOfEachColumn):
    """The distribution of scales u given nu; the features are [is observed, log u - u].

    A row has one pair of features, or one pair for each value, in the order of
    :class:`PairOfEachColumn`.
    """

    # Natural parameters, which are 0 because nu has no prior: (1, 2) if each row has a scale u, or
    # (D, 2) if each value has a scale u.
    prior: Annotated[Array, "1 2 | d 2"]
    n_features: int
    dtype: np.dtype[Any]
    limits: tuple[float, float] = _FREEDOM_LIMITS

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
        is_observed = 1.0 - np.isnan(np.asarray(X, np.float64))
        # A row with one scale counts as observed if any of its values is observed.
        if len(self.prior) != is_observed.shape[1]:
            is_observed = is_observed.max(axis=1, keepdims=True)
        # At u = 1, log u - u is -1.
        return np.concatenate([is_observed, -is_observed], axis=1)

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

    The Gaussian block describes rows given their scales u, and the other block describes u given
    the degrees of freedom nu. The first feature of each block, or the first D features if each
    value has a scale, do not depend on u. The method `features` returns 0 for all other features,
    and the completion adds their expectations under q(u). The arguments ``lam`` of methods are
    natural parameters of q of K components.
    """

    def validate(self, d: int, k: int) -> bool:
        """Return whether the blocks fit each other and data of ``d`` columns, for loaded files."""
        return (
            [block.name for block in self.blocks] == ["gaussian", "freedom"]
            and type(self.value_component) in (WeightedFullGaussian, WeightedDiagonalGaussian)
            and type(self._freedom) is Freedom
            and all(np.array_equal(block.columns, np.arange(d)) for block in self.blocks)
            and len(self._freedom.prior) == (1 if self._is_full else d)
            and 0.0 < self._freedom.limits[0] <= self._freedom.limits[1] < np.inf
        )

    @property
    def _is_full(self) -> bool:
        """Whether each row has one scale u; otherwise each value has a scale."""
        return bool(self.value_component.covariance_type == "full")

    @property
    def _freedom(self) -> Any:
        """The component of the scales u, a :class:`Freedom`."""
        return self.blocks[1].component

    def features(self, X: Any) -> Any:
        """Return the features that do not depend on u, with 0 for all other features."""
        n_scales = len(self._freedom.prior)
        is_observed = self._freedom.features(X)[:, :n_scales]
        features = np.zeros((len(is_observed), sum(self._n_block_features)))
        # Write the first features of each block.
        for entries in self._slices:
            features[:, entries][:, :n_scales] = is_observed
        return features

    def row_fits(self, X: Any) -> FitsOfBlocks:
        """Return the fits of rows whose outliers are clipped, for the search for seeds."""
        return super().row_fits(self._without_outliers(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        """Return fits of projected rows whose outliers are clipped."""
        return super().projected(self._without_outliers(X), weights, directions)

    def _without_outliers(self, X: Any) -> Array:
        """Clip outliers to Tukey's fences of their column, so that they do not become seeds.

        The fences are 1.5 interquartile ranges below the lower quartile and above the upper one. A
        column in which both quartiles are equal has no fences.
        """
        # Append a row with the center of the columns, so that columns without values have
        # quantiles.
        rows = np.concatenate([np.asarray(X, np.float64), self.value_component.center[None]])
        lower_quartile, upper_quartile = np.nanquantile(rows, [0.25, 0.75], axis=0)
        quartile_range = upper_quartile - lower_quartile
        distance = np.where(quartile_range > 0.0, _FENCE_FACTOR * quartile_range, np.inf)
        return np.clip(rows[:-1], lower_quartile - distance, upper_quartile + distance)

    def completion(self, table: Array) -> Completion:
        hidden_scales = _ScalesOfRows if self._is_full else _ScalesOfValues
        return partial(hidden_scales, self.value_component, table)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log posterior predictive densities (n, K) in nats, by quadrature over log u."""
        gaussian_lam, freedom_lam = self.family.split(lam)
        nu = self._freedom.family.mean(freedom_lam)
        if self._is_full:
            mixture, half_log_dets, _ = self._scale_mixtures(X, gaussian_lam, nu[:, 0])
            # Rows without observed values keep the log density 0.
            return np.asarray(mixture.log_density() - half_log_dets * (mixture.n_observed > 0.0))
        # With one scale for each value, the columns are independent given the component. In
        # `_ScaleMixture`, the known scale of a column is twice the rate of the gamma distribution
        # of its precision.
        q = NormalGamma.to_standard(gaussian_lam)
        log_densities = np.zeros((X.shape[0], len(lam)))
        rows, is_observed = self.value_component._replace_missing(X)
        for k in range(len(lam)):
            distance = (rows - q["mean"][k, :, 0]) ** 2 / (2.0 * q["rate"][k])
            mixture = _ScaleMixture(
                distance, n_observed=is_observed, freedom_given_u=2.0 * q["shape"][k],
                kappa=q["mean_precision"][k, :, 0], nu=nu[k],
            )  # fmt: skip
            half_log_dets = 0.5 * is_observed * np.log(2.0 * q["rate"][k])
            log_densities[:, k] = (mixture.log_density() - half_log_dets).sum(axis=1)
        return log_densities

    def _scale_mixtures(self, X: Any, lam: Array, nu: Array) -> tuple["_ScaleMixture", Array, Any]:
        """Return the predictive distributions of rows X if each row has one scale u.

        ``lam`` (K, ...) are the natural parameters of the Gaussian block, and ``nu`` is (K,).
        Returns the distributions (n, K), half the log-determinants of the known scales of
        observed columns, (n, K) or (K,), and the missing values or None.
        """
        mean, scale, freedom_given_u = self.value_component._compute_student_t(lam)
        kappa = self.value_component.family.to_standard(lam)["mean_precision"]
        # The Gaussian block has the predictive scale (1 + 1 / kappa) W^-1. Keep only W^-1, the
        # known scale of the mixture.
        scale = scale * (kappa / (1.0 + kappa))[:, None, None]
        rows = self.value_component._centred(X)
        distances, half_log_dets, n_observed, holes = compute_observed_distances(rows, mean, scale)
        n_observed = np.broadcast_to(n_observed, (X.shape[0], 1))
        mixture = _ScaleMixture(distances, n_observed, freedom_given_u, kappa, nu)
        return mixture, half_log_dets, holes

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the posterior predictive of one component: first u, then a Student t."""
        gaussian_lam, freedom_lam = self.family.split(lam)
        u = self._freedom.sample(freedom_lam, n_rows, rng)
        q = self.value_component.family.to_standard(gaussian_lam)
        # With one scale for each value, means and kappa have a further axis of length 1.
        kappa, mean = q["mean_precision"].ravel(), q["mean"].ravel()
        location = self.value_component.center + mean
        # The Gaussian block draws with the factor 1 + 1 / kappa of the scale. Convert the draws to
        # the factor 1 / u + 1 / kappa.
        ratio = np.sqrt((1.0 / u + 1.0 / kappa) / (1.0 + 1.0 / kappa))
        draws = self.value_component.sample(gaussian_lam, n_rows, rng)
        return np.asarray(location + ratio * (draws - location), self.dtype)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values given the observed values of their row.

        If each row has one scale u, u is drawn from the nodes of the quadrature, and then the
        missing values from a Student t given u. If each value has a scale, values are independent.
        """
        if not self._is_full:
            return fill_missing(X, self.sample(lam, len(X), rng))
        gaussian_lam, freedom_lam = self.family.split(lam[None])
        nu = self._freedom.family.mean(freedom_lam)[:, 0]
        mixture, _, holes = self._scale_mixtures(X, gaussian_lam, nu)
        if holes is None:
            return np.array(X, np.float64)
        # Given u and the observed values, the missing values are Student t: a normal draw times the
        # root of the scale divided by a chi-square.
        scale_factor = 1.0 / mixture.draw_u(rng)[:, 0] + 1.0 / mixture.kappa
        chi_square = rng.chisquare(mixture.freedom_given_u + mixture.n_observed[:, 0])
        noise_factor = np.sqrt((scale_factor + mixture.distance[:, 0]) / chi_square)
        noise = rng.standard_normal(holes.X.shape) * noise_factor[:, None]
        return np.where(holes.is_missing, holes.filled(0, noise) + self.value_component.center, X)

    def column_evidence(self, sums: Array) -> Array:
        """Return the sum of the evidence of both blocks for each column, (K, D) in nats.

        If each row has one scale u, the evidence of this scale is added to that of every column.
        """
        evidence = super().column_evidence(sums)
        gaussian_evidence, freedom_evidence = np.split(evidence, [self.n_features], axis=1)
        return np.asarray(gaussian_evidence + freedom_evidence)

    def marginals(self, lam: Array) -> Any:
        """Return locations, scales and degrees of freedom."""
        (means, deviations), freedom = super().marginals(lam)
        return means, deviations._replace(quantity="scale"), *freedom


def make_student_t_component(
    gaussian: FullGaussian | DiagonalGaussian, freedom: float | None = None
) -> StudentT:
    """Return the Student t component with the prior of ``gaussian``.

    ``freedom`` are the degrees of freedom nu, which are learned if ``freedom`` is None.
    """
    D, dtype = gaussian.n_features, gaussian.dtype
    is_full = gaussian.covariance_type == "full"
    gaussian_class = WeightedFullGaussian if is_full else WeightedDiagonalGaussian
    gaussian_given_u: Any = gaussian_class(gaussian.prior, gaussian.center, dtype, gaussian.added)
    limits = _FREEDOM_LIMITS if freedom is None else (freedom, freedom)
    freedom_component = Freedom(np.zeros((1 if is_full else D, 2)), D, dtype, limits)
    columns = np.arange(D)
    gaussian_block = Block("gaussian", gaussian_given_u, columns)
    blocks = gaussian_block, Block("freedom", freedom_component, columns)
    return StudentT(blocks, D, dtype)


# ---------------------------------------------------------------------------------- q(u)
@dataclass(frozen=True)
class _Scales:
    """The gamma distributions q(u) = Gamma(shape, rate) of several scales u.

    The docstring of the module gives shape and rate at T = 1, and defines d, A and m. The arrays
    among the fields broadcast to each other.
    """

    # Degrees of freedom.
    nu: Array
    # d, half the expected squared distance of the row or the value from the component.
    half_distance: Array
    # 1 / T.
    inv_temps: Array
    # Number of columns that share a scale u.
    n_columns: int
    # |m|, the number of these columns that are missing in each row.
    n_missing: Array

    @cached_property
    def shape(self) -> Array:
        """The shapes of q(u)."""
        optimum = self.inv_temps * self._log_u_coefficient + 1.0 - 0.5 * self.n_missing
        return np.maximum(optimum, _MIN_SHAPE)

    @cached_property
    def rate(self) -> Array:
        """The rates of q(u)."""
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
        """Return the expected log density in nats, without the terms that do not depend on u."""
        # The variance of missing values lowers the energy by T |m| / 2.
        missing_term = 0.5 * self.n_missing / self.inv_temps
        linear_term = self.mean * (0.5 * self.nu + self.half_distance)
        return np.asarray(self._log_u_coefficient * self.mean_log - linear_term - missing_term)

    def entropy(self) -> Array:
        """Return the entropy of u and of missing values, without the determinant of A_mm."""
        shape = self.shape
        entropy_of_u = shape - np.log(self.rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)
        per_missing_value = 1.0 + LOG_2PI - np.log(self.inv_temps) - self.mean_log
        return np.asarray(entropy_of_u + 0.5 * self.n_missing * per_missing_value)


@dataclass(frozen=True)
class _ScalesOfRows:
    """The hidden variables of n rows with one u for each row: u and the missing values.

    The class implements :class:`~skvt.contracts.HiddenValues`, the contract of variables such as
    missing values, over whose q the local step takes expectations.
    """

    gaussian: WeightedFullGaussian
    # (K, P): coefficients in E[log p(x, u | phi_k)] of the features [1, u, u x, u x x'] of the
    # block "gaussian" and of the features [1, log u - u] of the block "freedom".
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
    def _holes(self) -> GaussianHoles | None:
        """The missing values under the Gaussian with u = 1 and T = 1."""
        center, D = self.gaussian.center, self.gaussian.n_features
        completion = GaussianCompletion.from_table(center, self.table[:, _FEATURES_OF_U], D)
        return completion.holes(self.X, np.ones(1))

    @cached_property
    def _scales(self) -> tuple[_Scales, Array]:
        """q(u) and half the log-determinants of A_mm, (n, K)."""
        # Subtract the part of the coefficient of u that does not depend on the parameters. The
        # product of the table and the features is then -d.
        table = self.table[:, _FEATURES_OF_U].copy()
        table[:, 0] -= self.gaussian.base[1]
        half_distance = -self._features @ table.T
        half_log_dets = np.zeros_like(half_distance)
        n_missing = np.zeros((len(self._features), 1))
        if self._holes is not None:
            n_missing = self._holes.is_missing.sum(axis=1, keepdims=True).astype(np.float64)
            logit_gain, entropy = np.zeros((2, *half_distance.shape))
            self._holes.add_to(logit_gain, entropy)
            half_log_dets = 0.5 * n_missing * (1.0 + LOG_2PI) - entropy
            # So far, missing values are 0. With their conditional means, d is smaller by a number
            # delta. The gain of the logits is ``delta + entropy - |m| / 2``.
            half_distance -= logit_gain - entropy + 0.5 * n_missing
        D = self.gaussian.n_features
        # The last coefficient of the table, that of log u - u, is (nu + D) / 2 - 1.
        scales = _Scales(
            nu=2.0 * self.table[:, -1] + 2.0 - D, half_distance=np.maximum(half_distance, 0.0),
            inv_temps=self.inv_temps[:, None], n_columns=D, n_missing=n_missing,
        )  # fmt: skip
        return scales, half_log_dets

    @property
    def _has_values(self) -> Array:
        """1 for each row with an observed value and 0 for the others, (n, 1)."""
        # This is the feature u at u = 1.
        return self._features[:, :1]

    def add_to(self, logits: Array, entropy: Array) -> None:
        scales, half_log_dets = self._scales
        entropies = self._has_values * (scales.entropy() - half_log_dets)
        logits += self._has_values * scales.energy() + entropies / self.inv_temps[:, None]
        entropy += entropies

    def add_statistics(self, weighted_resp: Array, sums: Array) -> None:
        scales, _ = self._scales
        weighted_resp = weighted_resp * self._has_values
        weighted_means = weighted_resp * scales.mean
        gaussian_sums = weighted_means.T @ self._features
        holes = self._holes
        if holes is not None:
            # Variances of missing values are divided by E[u], which acts like an inverse
            # temperature. Since E[u] differs between components, add their sums one by one.
            linear, precision = holes.completion.linear, holes.completion.precision
            for k in range(len(sums)):
                completion = replace(holes.completion, linear=linear[[k]], precision=precision[[k]])
                inv_temps = self.inv_temps * scales.mean[:, k]
                missing_under_k = replace(holes, completion=completion, inv_temps=inv_temps)
                row_weights = np.ascontiguousarray(weighted_means[:, [k]])
                missing_sums = np.zeros((1, gaussian_sums.shape[1]))
                missing_under_k.add_statistics(row_weights, missing_sums)
                gaussian_sums[k] += missing_sums[0]
        sums[:, _FEATURES_OF_U] += gaussian_sums
        sums[:, -1] += (weighted_resp * (scales.mean_log - scales.mean)).sum(axis=0)


@dataclass(frozen=True)
class _ScalesOfValues:
    """The hidden scales u of n rows with one u for each value.

    The class implements :class:`~skvt.contracts.HiddenValues`, as :class:`_ScalesOfRows` does.
    """

    gaussian: WeightedDiagonalGaussian
    # (K, 6 D): coefficients in E[log p(x, u | phi_k)] of the features [is observed, u, u x, u x^2]
    # of the block "gaussian" and of the features [is observed, log u - u] of the block "freedom",
    # D of each.
    table: Array
    # (n, D): rows of the data.
    X: Any
    # (n,) or (1,): 1 / T of each row, or of all rows.
    inv_temps: Array

    @cached_property
    def _observed(self) -> tuple[Array, Array]:
        """Centred rows with 0 for missing values, and 1 for each observed value, (n, D) each."""
        return self.gaussian._replace_missing(self.X)

    @cached_property
    def _scales(self) -> list[_Scales]:
        """q(u) under each component, a list of length K."""
        rows, _ = self._observed
        # Split the table into six arrays of coefficients, (K, D) each.
        _, u_table, ux_table, uxx_table, _, log_u_table = np.split(self.table, 6, axis=1)
        precision = -2.0 * uxx_table
        mean = ux_table / precision
        # d is at least this number, because the mean is uncertain and because a variance may be
        # added to squares. The coefficient of u contains -1 / 2, see `WeightedDiagonalGaussian`.
        min_half_distance = np.maximum(-(u_table + 0.5) - 0.5 * precision * mean**2, 0.0)
        if self.gaussian.added is not None:
            min_half_distance = min_half_distance + 0.5 * precision * self.gaussian.added
        scales = []
        for k in range(len(self.table)):
            half_distance = 0.5 * precision[k] * (rows - mean[k]) ** 2 + min_half_distance[k]
            # ``log_u_table`` is (nu + 1) / 2 - 1, the coefficient of log u - u.
            scales.append(_Scales(
                nu=2.0 * log_u_table[k] + 1.0, half_distance=half_distance,
                inv_temps=self.inv_temps[:, None], n_columns=1, n_missing=np.zeros(1),
            ))  # fmt: skip
        return scales

    def add_to(self, logits: Array, entropy: Array) -> None:
        _, is_observed = self._observed
        for k, scales in enumerate(self._scales):
            entropies = (is_observed * scales.entropy()).sum(axis=1)
            logits[:, k] += (is_observed * scales.energy()).sum(axis=1) + entropies / self.inv_temps
            entropy[:, k] += entropies

    def add_statistics(self, weighted_resp: Array, sums: Array) -> None:
        rows, is_observed = self._observed
        squares = self.gaussian._squares(rows, is_observed)
        # Nothing is added to the features that do not depend on u.
        zeros = np.zeros(rows.shape[1])
        for k, scales in enumerate(self._scales):
            resp = weighted_resp[:, [k]] * is_observed
            weighted_means = resp * scales.mean
            sum_of_logs = (resp * (scales.mean_log - scales.mean)).sum(axis=0)
            sums[k] += np.concatenate([
                zeros, weighted_means.sum(axis=0), (weighted_means * rows).sum(axis=0),
                (weighted_means * squares).sum(axis=0), zeros, sum_of_logs,
            ])  # fmt: skip


# ---------------------------------------------------------------------------------- predictive
class _ScaleMixture(NamedTuple):
    """Student t with the known scale times 1 / u + 1 / kappa, where u ~ Gamma(nu / 2, nu / 2).

    The known scale is the shape matrix of the Student t times its degrees of freedom at
    ``1 / u + 1 / kappa = 1``. The fields are arrays that broadcast to each other.
    """

    # Squared distances of rows from the location, in units of the known scale.
    distance: Array
    # Number of observed values.
    n_observed: Array
    # Degrees of freedom of the Student t given u.
    freedom_given_u: Array
    # The location is as uncertain as the mean of this number of rows.
    kappa: Array
    # Degrees of freedom of the distribution of u.
    nu: Array

    def log_density(self) -> Array:
        """Return log densities in nats without the determinant of the known scale.

        Rows without observed values have the log density 0.
        """
        n = self.n_observed
        half_f, half_f_plus_n = 0.5 * self.freedom_given_u, 0.5 * (self.freedom_given_u + n)
        constant = gammaln(half_f_plus_n) - gammaln(half_f) - 0.5 * n * np.log(np.pi)
        constant = constant + 0.5 * self.nu * np.log(0.5 * self.nu) - gammaln(0.5 * self.nu)
        # The draw of u, which the number 0.5 determines, is not used.
        log_integral, _ = self._integrate_log_u(0.5)
        return np.asarray(np.where(n > 0.0, constant + log_integral, 0.0))

    def draw_u(self, rng: np.random.Generator) -> Array:
        """Draw u given the values, from the nodes of the quadrature."""
        shape = np.broadcast_shapes(*(np.shape(array) for array in self))
        _, drawn_u = self._integrate_log_u(rng.random(shape))
        return drawn_u

    def _integrate_log_u(self, uniform: Any) -> tuple[Array, Array]:
        """Return log integrals over log u without constants, and draws of u given the values.

        A number from [0, 1) in ``uniform`` determines each draw.
        """
        arrays = np.broadcast_arrays(*self, uniform)
        flat_arrays = [ensure_writeable(np.array(array, np.float64).ravel()) for array in arrays]
        log_integral, drawn_u = np.empty((2, flat_arrays[0].size))
        _integrate_scales(*flat_arrays, log_integral, drawn_u)
        return log_integral.reshape(arrays[0].shape), drawn_u.reshape(arrays[0].shape)


@jit
def _integrate_scales(
    distance: Array, n_observed: Array, freedom_given_u: Array, kappa: Array, nu: Array,
    uniform: Array, log_integral: Array, drawn_u: Array,
) -> None:  # fmt: skip
    """Integrate over t = log u by the trapezoidal rule, and draw a node in proportion to its term.

    The results are written to ``log_integral`` and ``drawn_u``. The other arguments are the fields
    of :class:`_ScaleMixture` and uniform random numbers, one for each integral.

    Let d be the squared distance, n the number of observed values, f the degrees of freedom given
    u, and ``s = 1 / u + 1 / kappa``. The logarithm of the integrand has the slope ``nu / 2 (1 - u)
    + kappa / (kappa + u) h(u)`` in t, with ``h = n / 2 - (f + n) / 2 d / (s + d)``. The integrand
    has one or two modes. One mode is near the u that is most likely if the location is known. The
    other mode is near the mode of the distribution of u, where the uncertainty of the location
    explains the distance. All modes lie between u_0, the mode at infinite kappa, and
    ``1 + n / nu``. The second derivative of the logarithm at a mode is at least about
    ``-(nu + n) / 2``, from which the distance between nodes is derived.
    """
    for i in range(distance.size):
        d = min(distance[i], _MAX_SQUARED_DISTANCE)
        n = n_observed[i]
        half_nu = 0.5 * nu[i]
        half_nu_plus_n = 0.5 * (nu[i] + n)
        half_f_plus_n = 0.5 * (freedom_given_u[i] + n)
        # The first node is at u_0, a root of ``nu / 2 d u^2 - b u - (nu + n) / 2``. The two
        # formulas of the root are equal; use the formula in which no terms cancel.
        b = (half_nu_plus_n - half_f_plus_n) * d - half_nu
        root = np.sqrt(b * b + 4.0 * half_nu * d * half_nu_plus_n)
        u = 2.0 * half_nu_plus_n / (root - b) if b < 0.0 else (b + root) / (2.0 * half_nu * d)
        first_log_u = log(u)
        step = min(_NODE_DISTANCE / np.sqrt(half_nu_plus_n), _MAX_NODE_DISTANCE)
        # Number of the node after which there is no mode.
        last_mode = int(np.ceil(max(log(1.0 + n / nu[i]) - first_log_u, 0.0) / step))
        sum_of_terms, max_log_term = 0.0, -np.inf
        uniform_number = uniform[i]
        # The nodes have the numbers j = ..., -1, 0, 1, ..., and the first node has the number 0.
        # Phase 0 finds the maximum of the integrand, phase 1 sums over the nodes 0, -1, -2, ...,
        # and phase 2 sums over the nodes 1, 2, .... One loop for all phases saves compiling the
        # integrand three times.
        j, phase = 0, 0
        while phase < 3:
            t = first_log_u + j * step
            u = exp(t)
            s = 1.0 / u + 1.0 / kappa[i]
            log_term = half_nu * (t - u) - 0.5 * n * log(s) - half_f_plus_n * log(1.0 + d / s)
            if phase == 0:
                max_log_term = max(max_log_term, log_term)
                if j < last_mode:
                    j += _SEARCH_STRIDE
                else:
                    j, phase = 0, 1
                continue
            term = exp(log_term - max_log_term)
            sum_of_terms += term
            # Draw this node, in place of the node drawn before, with the probability ``share``.
            # Given the outcome of the comparison, the rescaled number is uniform again.
            share = term / sum_of_terms
            if uniform_number < share:
                drawn_u[i], uniform_number = u, uniform_number / share
            else:
                uniform_number = (uniform_number - share) / (1.0 - share)
            is_negligible = log_term - max_log_term < _NEGLIGIBLE_LOG_RATIO
            if phase == 1 and not is_negligible:
                j -= 1
            elif phase == 1:
                j, phase = 1, 2
            else:
                phase = 3 if is_negligible and j > last_mode else 2
                j += 1
        log_integral[i] = max_log_term + log(sum_of_terms * step)
