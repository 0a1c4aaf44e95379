"""Student t: Gaussians whose precision is scaled for each row, so that outliers have little weight.

    u ~ Gamma(nu_k / 2, nu_k / 2),      x | u ~ N(mu_k, (u Lambda_k)^-1)      given z = k,

with one u for a row ("full"), or for each of its values ("diag"). u is a further local variable.
With ``2 d = E[(x - mu)' Lambda (x - mu)]``, D columns of which m are missing, and T = 1,

    q(u | z = k) = Gamma((nu + D - m) / 2, nu / 2 + d),
    q(x_m | u, z = k) = N(x^, (u A_mm)^-1),      A = E[Lambda],

x^ and d as under the Gaussian (:mod:`skvt.models.mixture._missing`). The energy is linear in

    S = sum r (1, E[u], E[u x], E[u x x'], E[log u - u]),

the same sums for all that is global: they add up over batches, and over components that are merged,
whose rows keep the mixture of both q. mu and Lambda have the posterior of a Gaussian of weighted
rows. nu is at the maximum of the bound, a function of the first sum N and the last one L,

    max_nu N [nu / 2 log(nu / 2) - log Gamma(nu / 2)] + nu / 2 L,

which has the place of a log-normaliser: its gradient is what the energy of a row needs.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from skvt.compiled import digamma_array as digamma
from skvt.compiled import exp, jit, log, writeable
from skvt.compiled import gammaln_array as gammaln
from skvt.contracts import Completion
from skvt.expfam import NormalGamma
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._missing import GaussianCompletion, GaussianHoles
from skvt.models.mixture._product import Block, FitsOfBlocks, Product
from skvt.models.mixture.components import (
    LOG_2PI,
    ConjugateComponent,
    DiagonalGaussian,
    FullGaussian,
    PairOfEachColumn,
    distances,
    with_draws,
)
from skvt.typing import Array

# Range of the degrees of freedom, and those of a component without rows.
LIMITS = (1.0, 100.0)
_OF_NONE = 10.0
_STEPS = 8
# Least shape of q(u): at high temperatures and with missing values there may be no best one.
_LEAST_SHAPE = 0.5
# Distance of fences from the quartiles, in interquartile ranges.
_FENCE = 1.5
# Distance between the nodes of the quadrature over log u, in standard deviations at a mode.
_STEP = 0.7
# Largest distance between these nodes.
_WIDEST = 0.4
# The highest node is looked for among every third one.
_STRIDE = 3
# Nodes end where the logarithm of the integrand is this far below the highest one.
_NEGLIGIBLE = -25.0
# Largest squared distance of a row that is told apart from larger ones.
_FARTHEST = 1e140


@dataclass(frozen=True)
class DegreesOfFreedom:
    """Degrees of freedom at the maximum of the bound, in the place of an exponential family.

    Natural parameters (N, L) are sums over rows, of 1 and of ``E[log u - u]``; the statistics are
    ``(nu / 2 log(nu / 2) - log Gamma(nu / 2), nu / 2)``.
    """

    # Range of nu; the same twice where it is given.
    limits: tuple[float, float] = LIMITS
    __name__ = "DegreesOfFreedom"

    def mean(self, eta: ArrayLike) -> Array:
        number, total = np.moveaxis(np.asarray(eta, np.float64), -1, 0)
        there = number > 0.0
        lack = np.where(there, -total / np.where(there, number, 1.0) - 1.0, 1.0)
        # log(x) - digamma(x) = lack, x = nu / 2, as the shape of a gamma is found
        lack = np.maximum(lack, 1e-6)
        x = (3.0 - lack + np.sqrt((lack - 3.0) ** 2 + 24.0 * lack)) / (12.0 * lack)
        for _ in range(_STEPS):
            slope = x - x * x * polygamma(1, x)
            x = 1.0 / (1.0 / x + (np.log(x) - digamma(x) - lack) / slope)
        return np.clip(np.where(there, 2.0 * x, _OF_NONE), *self.limits)

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """The maximum, shape (...)."""
        return np.asarray((np.asarray(eta) * self.expectation(eta)).sum(axis=-1))

    def expectation(self, eta: ArrayLike) -> Array:
        """Its gradient, shape of ``eta``."""
        half = 0.5 * self.mean(eta)
        return np.stack([half * np.log(half) - gammaln(half), half], axis=-1)

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        return {"degrees_of_freedom": self.mean(eta)}

    def variance(self, eta: ArrayLike) -> Array:
        return np.zeros(np.shape(eta)[:-1])

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        return self.mean(eta)

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """0 at nu, as of a value that is known."""
        return np.where(np.isclose(x, self.mean(eta)), 0.0, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        """0: nu is known."""
        return np.zeros(np.shape(eta)[:-1])


@dataclass(frozen=True)
class WeightedFullGaussian(FullGaussian):
    """Of rows with weights u; features [1, u, u x, u x x'], here with u = 1."""

    @property
    def base(self) -> Array:
        """Constants of the density, and what nu does not multiply of ``E[log u]``."""
        base = np.zeros(self.prior.size)
        base[:2] = -0.5 * self.n_features * LOG_2PI, 0.5 * self.n_features - 1.0
        return base

    def features(self, X: Any) -> Any:
        """``[1, 1, x, upper triangle of x x']``."""
        own = super().features(X)
        return np.concatenate([own[:, :1], own], axis=1)

    explain, weighted_sums = ConjugateComponent.explain, ConjugateComponent.weighted_sums

    def spread(self, sums: Array) -> Array:
        """The features are the statistics."""
        return sums

    def gather(self, t: Array) -> Array:
        return t


@dataclass(frozen=True)
class WeightedDiagonalGaussian(DiagonalGaussian):
    """Of values with weights u; features [seen, u, u x, u x^2], here with u = 1, D of each."""

    @property
    def base(self) -> Array:
        """As that of :class:`WeightedFullGaussian` with one column."""
        return np.repeat([-0.5 * LOG_2PI, -0.5, 0.0, 0.0], self.n_features)

    def features(self, X: Any) -> Any:
        """``[seen_d, seen_d, x_d, x_d^2]``, D of each."""
        X, seen = self._observed(X)
        return np.concatenate([seen, seen, X, self._squares(X, seen)], axis=1)

    def spread(self, sums: Array) -> Array:
        """(..., 4D) -> (..., D, 4)."""
        number, weight, first, second = np.split(sums, 4, axis=-1)
        return np.stack([number, second, first, weight], axis=-1)

    def gather(self, t: Array) -> Array:
        return np.concatenate([t[..., 0], t[..., 3], t[..., 2], t[..., 1]], axis=-1)


@dataclass(frozen=True)
class Freedom(ConjugateComponent):
    """Degrees of freedom of rows (``prior`` (1, 2)) or of values (``prior`` (D, 2)), zeros."""

    prior: Array
    n_features: int
    dtype: np.dtype[Any]
    limits: tuple[float, float] = LIMITS

    spread = PairOfEachColumn.spread
    gather = PairOfEachColumn.gather

    @property
    def family(self) -> DegreesOfFreedom:
        return DegreesOfFreedom(self.limits)

    @property
    def base(self) -> Array:
        """What nu does not multiply of ``E[log u - u]``."""
        size = len(self.prior)
        return np.repeat([0.0, 0.5 * self.n_features / size - 1.0], size)

    def features(self, X: Any) -> Any:
        """``[seen, log u - u]`` with u = 1."""
        seen = 1.0 - np.isnan(np.asarray(X, np.float64))
        seen = seen if len(self.prior) == seen.shape[1] else seen.max(axis=1, keepdims=True)
        return np.concatenate([seen, -seen], axis=1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        nu = self.family.mean(lam)
        return rng.gamma(0.5 * nu, 2.0 / nu, (n_rows, nu.size))

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Freedom", Array]:
        """As they are: the degrees of freedom are known."""
        return self, lam

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """The degrees of freedom, as if they were known."""
        nu = np.broadcast_to(self.family.mean(lam), (len(lam), self.n_features))
        return (Marginals("degrees of freedom", np.arange(self.n_features), nu, lambda p: nu),)


@dataclass(frozen=True)
class StudentT(Product):
    """Student t of "full" or "diag" scale; the blocks are "gaussian" and "freedom".

    Each row counts for the first feature of both blocks; all else depends on u, and is added by the
    completion.
    """

    @property
    def _gaussian(self) -> Any:
        return self.blocks[0].component

    @property
    def _full(self) -> bool:
        return bool(self._gaussian.covariance_type == "full")

    def features(self, X: Any) -> Any:
        """Those that do not depend on u; 0 for the others."""
        freedom: Any = self.blocks[1].component
        seen = freedom.features(X)[:, : len(freedom.prior)]
        width = self._widths[0]
        out = np.zeros((len(seen), width + 2 * len(freedom.prior)))
        out[:, : seen.shape[1]] = out[:, width : width + seen.shape[1]] = seen
        return out

    def filled(self, X: Any) -> Any:
        return self._gaussian.filled(X)

    def row_fits(self, X: Any) -> FitsOfBlocks:
        return super().row_fits(self._drawn_in(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        return super().projected(self._drawn_in(X), weights, directions)

    def _drawn_in(self, X: Any) -> Array:
        """Rows with outliers at the fences of their column, so that these do not become seeds.

        Tukey's fences are 1.5 interquartile ranges from the quartiles; none where half of the
        values are the same. (A row of means lets no column be without values.)
        """
        rows = np.concatenate([np.asarray(X, np.float64), self._gaussian.center[None]])
        low, high = np.nanquantile(rows, [0.25, 0.75], axis=0)
        away = np.where(low < high, _FENCE * (high - low), np.inf)
        return np.clip(rows[:-1], low - away, high + away)

    def completion(self, table: Array) -> Completion:
        return partial(_ScalesOfRows if self._full else _ScalesOfValues, self._gaussian, table)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Log posterior predictive density, by a quadrature over log u."""
        of_gaussian, of_freedom = self.family.split(lam)
        nu = self._family.mean(of_freedom)
        if not self._full:
            q, out = NormalGamma.standard(of_gaussian), np.zeros((X.shape[0], len(lam)))
            rows, seen = self._gaussian._observed(X)
            for k in range(len(lam)):
                distance = (rows - q["mean"][k, :, 0]) ** 2 / (2.0 * q["rate"][k])
                mixed = _Mixed(distance, seen, 2.0 * q["shape"][k],
                               q["mean_precision"][k, :, 0], nu[k])  # fmt: skip
                own = mixed.log_density() - 0.5 * seen * np.log(2.0 * q["rate"][k])
                out[:, k] = own.sum(axis=1)
            return out
        mixed, half_log_det, _ = self._of_rows(X, of_gaussian, nu[:, 0])
        return np.asarray(mixed.log_density() - half_log_det * (mixed.number > 0.0))

    @property
    def _family(self) -> Any:
        return self.blocks[1].component.family

    def _of_rows(self, X: Any, lam: Array, nu: Array) -> tuple["_Mixed", Array, Any]:
        """Rows under full scales; half the log-determinants of these, and what is missing."""
        mean, scale, freedom = self._gaussian._student(lam)
        kappa = self._gaussian.family.standard(lam)["mean_precision"]
        scale = scale * (kappa / (1.0 + kappa))[:, None, None]
        apart, half_log_det, number, holes = distances(self._gaussian._centred(X), mean, scale)
        number = np.broadcast_to(number, (X.shape[0], 1))
        return _Mixed(apart, number, freedom, kappa, nu), half_log_det, holes

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of the posterior predictive of one component: first u, then a Student t."""
        of_gaussian, of_freedom = self.family.split(lam)
        u = self.blocks[1].component.sample(of_freedom, n_rows, rng)
        own = self._gaussian
        q = own.family.standard(of_gaussian)
        kappa = q["mean_precision"] if self._full else q["mean_precision"][:, 0]
        center = own.center + (q["mean"] if self._full else q["mean"][:, 0])
        # drawn at the scale 1 + 1 / kappa, wanted at 1 / u + 1 / kappa
        ratio = np.sqrt((1.0 / u + 1.0 / kappa) / (1.0 + 1.0 / kappa))
        drawn = own.sample(of_gaussian, n_rows, rng)
        return np.asarray(center + ratio * (drawn - center), self.dtype)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """As of the Gaussian: u changes no location."""
        return np.asarray(self._gaussian.conditional_mean(X, self.family.split(lam)[0]))

    imputed = ConjugateComponent.imputed

    def with_completed(self, X: Any, completed: Array) -> Any:
        return self._gaussian.with_completed(X, completed)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Missing values drawn: u given the rest of the row, by its nodes, then a Student t."""
        if not self._full:
            return with_draws(X, self.sample(lam, len(X), rng))
        of_gaussian, of_freedom = self.family.split(lam[None])
        mixed, _, holes = self._of_rows(X, of_gaussian, self._family.mean(of_freedom)[:, 0])
        if holes is None:
            return np.array(X, np.float64)
        s = 1.0 / mixed.drawn(rng)[:, 0] + 1.0 / mixed.kappa
        chi = rng.chisquare(mixed.freedom + mixed.number[:, 0])
        spread = np.sqrt((s + mixed.distance[:, 0]) / chi)
        noise = rng.standard_normal(holes.X.shape) * spread[:, None]
        return np.where(holes.missing, holes.filled(0, noise) + self._gaussian.center, X)

    def column_evidence(self, sums: Array) -> Array:
        """Of the Gaussian and of the degrees of freedom, (K, D) in nats."""
        parts = super().column_evidence(sums)
        return np.asarray(parts[:, : self.n_features] + parts[:, self.n_features :])

    def marginals(self, lam: Array) -> Any:
        """Locations, scales, degrees of freedom."""
        (means, deviations), freedom = super().marginals(lam)
        return means, deviations._replace(quantity="scale"), *freedom


def student_t_component(
    gaussian: FullGaussian | DiagonalGaussian, freedom: float | None = None
) -> StudentT:
    """Student t with the prior of a Gaussian; degrees of freedom given, or found where None."""
    D, dtype = gaussian.n_features, gaussian.dtype
    full = gaussian.covariance_type == "full"
    kind = WeightedFullGaussian if full else WeightedDiagonalGaussian
    weighted: Any = kind(gaussian.prior, gaussian.center, dtype, gaussian.added)
    limits = LIMITS if freedom is None else (freedom, freedom)
    own = Freedom(np.zeros((1 if full else D, 2)), D, dtype, limits)
    blocks = Block("gaussian", weighted, np.arange(D)), Block("freedom", own, np.arange(D))
    return StudentT(blocks, D, dtype)


# ---------------------------------------------------------------------------------- q(u)
@dataclass(frozen=True)
class _Scales:
    """q(u) of gammas of this shape and rate, of D columns of which some are missing.

    Arrays that broadcast to each other: degrees of freedom, half the expected distance d, inverse
    temperatures, and the number of missing columns.
    """

    nu: Array
    half: Array
    inv_temps: Array
    n_columns: int
    n_missing: Array

    @cached_property
    def shape(self) -> Array:
        best = self.inv_temps * self._times + 1.0 - 0.5 * self.n_missing
        return np.maximum(best, _LEAST_SHAPE)

    @cached_property
    def rate(self) -> Array:
        return np.asarray(self.inv_temps * (0.5 * self.nu + self.half))

    @property
    def _times(self) -> Array:
        """What log u is multiplied by in the energy."""
        return np.asarray(0.5 * (self.nu + self.n_columns) - 1.0)

    @cached_property
    def mean(self) -> Array:
        return self.shape / self.rate

    @cached_property
    def mean_log(self) -> Array:
        return digamma(self.shape) - np.log(self.rate)

    def energy(self) -> Array:
        """Expected log density, but for what does not depend on u."""
        of_missing = 0.5 * self.n_missing / self.inv_temps
        linear = self.mean * (0.5 * self.nu + self.half)
        return np.asarray(self._times * self.mean_log - linear - of_missing)

    def entropy(self) -> Array:
        """Of u, and of missing values but for the determinant of A_mm."""
        a, half = self.shape, 0.5 * self.n_missing
        of_u = a - np.log(self.rate) + gammaln(a) + (1.0 - a) * digamma(a)
        return np.asarray(of_u + half * (1.0 + LOG_2PI - np.log(self.inv_temps) - self.mean_log))


@dataclass(frozen=True)
class _ScalesOfRows:
    """One u for each row, and the missing values of full scales."""

    gaussian: WeightedFullGaussian
    table: Array
    X: Any
    inv_temps: Array

    @cached_property
    def _features(self) -> Array:
        return np.asarray(self.gaussian.features(self.X)[:, 1:])

    @cached_property
    def _missing(self) -> GaussianHoles | None:
        of_gaussian = self.table[:, 1:-2]
        center, D = self.gaussian.center, self.gaussian.n_features
        return GaussianCompletion.of_table(center, of_gaussian, D).holes(self.X, np.ones(1))

    @cached_property
    def _scales(self) -> tuple[_Scales, Array]:
        """q(u), and half the log-determinants of A_mm, (n, K)."""
        D, of_gaussian = self.gaussian.n_features, self.table[:, 1:-2].copy()
        of_gaussian[:, 0] -= self.gaussian.base[1]
        half, n_missing = -self._features @ of_gaussian.T, np.zeros((len(self._features), 1))
        half_log_det = np.zeros_like(half)
        if self._missing is not None:
            n_missing = self._missing.missing.sum(axis=1, keepdims=True).astype(np.float64)
            gain, entropy = np.zeros((2, *half.shape))
            self._missing.add_to(gain, entropy)
            half_log_det = 0.5 * n_missing * (1.0 + LOG_2PI) - entropy
            half -= gain - entropy + 0.5 * n_missing
        nu = 2.0 * self.table[:, -1] + 2.0 - D
        inv_temps = self.inv_temps[:, None]
        return _Scales(nu, np.maximum(half, 0.0), inv_temps, D, n_missing), half_log_det

    @property
    def _seen(self) -> Array:
        return self._features[:, :1]

    def add_to(self, logits: Array, entropy: Array) -> None:
        scales, half_log_det = self._scales
        own = self._seen * (scales.entropy() - half_log_det)
        logits += self._seen * scales.energy() + own / self.inv_temps[:, None]
        entropy += own

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        scales, missing = self._scales[0], self._missing
        mean, weighted = scales.mean, weighted * self._seen
        own = weighted * mean
        of_gaussian = own.T @ self._features
        if missing is not None:
            of = missing.completion
            for k in range(len(sums)):
                one = GaussianCompletion(of.center, of.linear[[k]], of.precision[[k]], True)
                part = np.zeros((1, of_gaussian.shape[1]))
                inv_temps = self.inv_temps * mean[:, k]
                of_one = replace(missing, completion=one, inv_temps=inv_temps)
                of_one.add_statistics(np.ascontiguousarray(own[:, [k]]), part)
                of_gaussian[k] += part[0]
        sums[:, 1:-2] += of_gaussian
        sums[:, -1] += (weighted * (scales.mean_log - mean)).sum(axis=0)


@dataclass(frozen=True)
class _ScalesOfValues:
    """A u for each value of a row."""

    gaussian: WeightedDiagonalGaussian
    table: Array
    X: Any
    inv_temps: Array

    @cached_property
    def _rows(self) -> tuple[Array, Array]:
        return self.gaussian._observed(self.X)

    @cached_property
    def _scales(self) -> list[_Scales]:
        """q(u) under each component."""
        rows, added = self._rows[0], self.gaussian.added
        _, weight, first, second, _, last = np.split(self.table, 6, axis=1)
        precision = -2.0 * second
        mean = first / precision
        # what the uncertainty of the mean adds, and rows that count as if they varied
        least = np.maximum(-(weight + 0.5) - 0.5 * precision * mean**2, 0.0)
        least = least if added is None else least + 0.5 * precision * added
        found = []
        for k in range(len(self.table)):
            half = 0.5 * precision[k] * (rows - mean[k]) ** 2 + least[k]
            nu = 2.0 * last[k] + 1.0
            found.append(_Scales(nu, half, self.inv_temps[:, None], 1, np.zeros(1)))
        return found

    def add_to(self, logits: Array, entropy: Array) -> None:
        seen = self._rows[1]
        for k, scales in enumerate(self._scales):
            own = (seen * scales.entropy()).sum(axis=1)
            logits[:, k] += (seen * scales.energy()).sum(axis=1) + own / self.inv_temps
            entropy[:, k] += own

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        rows, seen = self._rows
        squares = self.gaussian._squares(rows, seen)
        for k, scales in enumerate(self._scales):
            own = weighted[:, [k]] * seen
            scaled, zeros = own * scales.mean, np.zeros(rows.shape[1])
            logs = (own * (scales.mean_log - scales.mean)).sum(axis=0)
            parts = (zeros, scaled.sum(axis=0), (scaled * rows).sum(axis=0),
                     (scaled * squares).sum(axis=0), zeros, logs)  # fmt: skip
            sums[k] += np.concatenate(parts)


# ---------------------------------------------------------------------------------- predictive
@dataclass(frozen=True)
class _Mixed:
    """Student t whose scale is 1 / u + 1 / kappa times a known one, u ~ Gamma(nu / 2, nu / 2).

    Arrays that broadcast to each other: squared distances from the location in units of the known
    scale, number of values seen, degrees of freedom, kappa, nu.
    """

    distance: Array
    number: Array
    freedom: Array
    kappa: Array
    nu: Array

    def log_density(self) -> Array:
        """Without the determinant of the known scale; 0 where nothing is seen."""
        n, total = self.number, 0.5 * (self.freedom + self.number)
        constant = gammaln(total) - gammaln(0.5 * self.freedom) - 0.5 * n * np.log(np.pi)
        constant = constant + 0.5 * self.nu * np.log(0.5 * self.nu) - gammaln(0.5 * self.nu)
        return np.asarray(np.where(n > 0.0, constant + self._integrated(0.5)[0], 0.0))

    def drawn(self, rng: np.random.Generator) -> Array:
        """u given the values, by the nodes."""
        shape = np.broadcast_shapes(*(np.shape(part) for part in self._parts))
        return self._integrated(rng.random(shape))[1]

    @property
    def _parts(self) -> tuple[Array, ...]:
        return self.distance, self.number, self.freedom, self.kappa, self.nu

    def _integrated(self, uniform: Any) -> tuple[Array, Array]:
        """Log of the integral over log u but for constants, and u drawn by uniform numbers."""
        parts = np.broadcast_arrays(*self._parts, uniform)
        flat = [writeable(np.array(part, np.float64).ravel()) for part in parts]
        out = np.empty((2, flat[0].size))
        _integrate(*flat, *out)
        return out[0].reshape(parts[0].shape), out[1].reshape(parts[0].shape)


@jit
def _integrate(
    distance: Array, number: Array, freedom: Array, kappa: Array, nu: Array, uniform: Array,
    log_total: Array, drawn: Array,
) -> None:  # fmt: skip
    """Trapezoidal rule over t = log u, and one node drawn in proportion to the integrand.

    With n = number and ``s = 1 / u + 1 / kappa`` the logarithm of the integrand has the slope
    ``nu / 2 (1 - u) + kappa / (kappa + u) h(u)``, ``h = n / 2 - (f + n) / 2 distance / (s +
    distance)``, and one or two modes: near the most likely u of a known mean, and near the prior's
    where the uncertainty of the mean explains the distance. All lie between u_0, the mode at
    infinite kappa, and ``1 + n / nu``. The second derivative is no less than about ``-(nu + n) /
    2`` at a mode, which the distance of nodes suits.
    """
    for i in range(distance.size):
        # (squares of larger distances would not be finite)
        apart, n = min(distance[i], _FARTHEST), number[i]
        rise, fall, prior = 0.5 * (nu[i] + n), 0.5 * (freedom[i] + n), 0.5 * nu[i]
        b = (rise - fall) * apart - prior
        root = np.sqrt(b * b + 4.0 * prior * apart * rise)
        # of two forms of the solution, the one in which nothing cancels
        u = 2.0 * rise / (root - b) if b < 0.0 else (b + root) / (2.0 * prior * apart)
        first, step = log(u), min(_STEP / np.sqrt(rise), _WIDEST)
        last = int(np.ceil(max(log(1.0 + n / nu[i]) - first, 0.0) / step))
        total, best, chance = 0.0, -np.inf, uniform[i]
        # find the height between the modes, then sum to the left of the first one, then from there
        j, phase = 0, 0
        while phase < 3:
            t = first + j * step
            u = exp(t)
            s = 1.0 / u + 1.0 / kappa[i]
            height = prior * (t - u) - 0.5 * n * log(s) - fall * log(1.0 + apart / s)
            if phase == 0:
                best = max(best, height)
                j, phase = (j + _STRIDE, 0) if j < last else (0, 1)
                continue
            term = exp(height - best)
            total += term
            # the chances of nodes so far remain in proportion, and the uniform number uniform
            share = term / total
            if chance < share:
                drawn[i], chance = u, chance / share
            else:
                chance = (chance - share) / (1.0 - share)
            low = height - best < _NEGLIGIBLE
            if phase == 1:
                j, phase = (1, 2) if low else (j - 1, 1)
            else:
                phase = 3 if low and j > last else 2
                j += 1
        log_total[i] = best + log(total * step)
