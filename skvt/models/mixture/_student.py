"""Student t: Gaussians with a scale of the precision per row, which downweights outliers.

    u ~ Gamma(nu_k / 2, nu_k / 2),      x | u ~ N(mu_k, (u Lambda_k)^-1)      given z = k,

with one u per row ("full") or one per value ("diag"), a further local variable.
With ``2 d = E[(x - mu)' Lambda (x - mu)]``, D columns of which m are missing, and T = 1,

    q(u | z = k) = Gamma((nu + D - m) / 2, nu / 2 + d),
    q(x_m | u, z = k) = N(x^, (u A_mm)^-1),      A = E[Lambda],

with x^ and d as under the Gaussian (:mod:`skvt.models.mixture._missing`). The energy is linear in

    S = sum r (1, E[u], E[u x], E[u x x'], E[log u - u]),

which are the statistics of all globals. They add up over batches and over merged components, whose
rows keep the mixture of both q. mu and Lambda have the posterior of a Gaussian with weighted rows.
nu is at the maximum of the bound, a function of the first sum N and the last sum L,

    max_nu N [nu / 2 log(nu / 2) - log Gamma(nu / 2)] + nu / 2 L,

which replaces a log-normaliser: the energy of a row is linear in its gradient.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from skvt.compiled import digamma_array as digamma
from skvt.compiled import exp, jit, log, writeable
from skvt.compiled import gammaln_array as gammaln
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
    distances,
    with_draws,
)
from skvt.typing import Array

# Range of the degrees of freedom, and their value in a component without rows.
LIMITS = (1.0, 100.0)
_OF_NONE = 10.0
_STEPS = 8
# Least shape of q(u), since at high temperatures and with missing values no shape may be best.
_LEAST_SHAPE = 0.5
# Distance of fences from the quartiles, in interquartile ranges.
_FENCE = 1.5
# Distance between the nodes of the quadrature over log u, in standard deviations at a mode.
_STEP = 0.7
# Largest distance between these nodes.
_WIDEST = 0.4
# The search for the highest node evaluates every third node.
_STRIDE = 3
# The sum over nodes ends where the log integrand is this far below its maximum.
_NEGLIGIBLE = -25.0
# Larger squared distances are replaced by this one.
_FARTHEST = 1e140


@dataclass(frozen=True)
class DegreesOfFreedom:
    """Degrees of freedom at the maximum of the bound, with the interface of a family.

    Natural parameters (N, L) are sums over rows, of 1 and of ``E[log u - u]``; the statistics are
    ``(nu / 2 log(nu / 2) - log Gamma(nu / 2), nu / 2)``.
    """

    # Range of nu; both limits are equal if nu is fixed.
    limits: tuple[float, float] = LIMITS
    __name__ = "DegreesOfFreedom"

    def mean(self, eta: ArrayLike) -> Array:
        number, total = np.moveaxis(np.asarray(eta, np.float64), -1, 0)
        has_rows = number > 0.0
        lack = np.where(has_rows, -total / np.where(has_rows, number, 1.0) - 1.0, 1.0)
        # solve log(x) - digamma(x) = lack for x = nu / 2, like the shape of a gamma
        lack = np.maximum(lack, 1e-6)
        x = (3.0 - lack + np.sqrt((lack - 3.0) ** 2 + 24.0 * lack)) / (12.0 * lack)
        for _ in range(_STEPS):
            slope = x - x * x * polygamma(1, x)
            x = 1.0 / (1.0 / x + (np.log(x) - digamma(x) - lack) / slope)
        return np.clip(np.where(has_rows, 2.0 * x, _OF_NONE), *self.limits)

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return the maximum over nu, shape (...)."""
        return np.asarray((np.asarray(eta) * self.expectation(eta)).sum(axis=-1))

    def expectation(self, eta: ArrayLike) -> Array:
        """Return the gradient of the maximum, in the shape of ``eta``."""
        half = 0.5 * self.mean(eta)
        return np.stack([half * np.log(half) - gammaln(half), half], axis=-1)

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        return {"degrees_of_freedom": self.mean(eta)}

    def variance(self, eta: ArrayLike) -> Array:
        return np.zeros(np.shape(eta)[:-1])

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Array:
        return self.mean(eta)

    def log_density(self, eta: ArrayLike, x: ArrayLike) -> Array:
        """Return 0 at nu, a known value, and -inf elsewhere."""
        return np.where(np.isclose(x, self.mean(eta)), 0.0, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        """Return 0, since nu is known."""
        return np.zeros(np.shape(eta)[:-1])


@in_files("models.WeightedFullGaussian")
@dataclass(frozen=True)
class WeightedFullGaussian(FullGaussian):
    """Gaussians of rows with weights u; features [1, u, u x, u x x'], here with u = 1."""

    @property
    def base(self) -> Array:
        """Constants of the density, and the part of ``E[log u]`` that nu does not multiply."""
        base = np.zeros(self.prior.size)
        base[:2] = -0.5 * self.n_features * LOG_2PI, 0.5 * self.n_features - 1.0
        return base

    def features(self, X: Any) -> Any:
        """Return ``[1, 1, x, upper triangle of x x']``."""
        features = super().features(X)
        return np.concatenate([features[:, :1], features], axis=1)

    explain, weighted_sums = ConjugateComponent.explain, ConjugateComponent.weighted_sums

    def spread(self, sums: Array) -> Array:
        """Return the sums, which are the statistics of the family."""
        return sums

    def gather(self, t: Array) -> Array:
        return t


@in_files("models.WeightedDiagonalGaussian")
@dataclass(frozen=True)
class WeightedDiagonalGaussian(DiagonalGaussian):
    """Gaussians of values with weights u; features [seen, u, u x, u x^2], D of each, u = 1."""

    @property
    def base(self) -> Array:
        """Constants of each column, as in :class:`WeightedFullGaussian` with one column."""
        return np.repeat([-0.5 * LOG_2PI, -0.5, 0.0, 0.0], self.n_features)

    def features(self, X: Any) -> Any:
        """Return ``[seen_d, seen_d, x_d, x_d^2]``, D of each."""
        X, seen = self._observed(X)
        return np.concatenate([seen, seen, X, self._squares(X, seen)], axis=1)

    def spread(self, sums: Array) -> Array:
        """(..., 4D) -> (..., D, 4)."""
        number, weight, first, second = np.split(sums, 4, axis=-1)
        return np.stack([number, second, first, weight], axis=-1)

    def gather(self, t: Array) -> Array:
        return np.concatenate([t[..., 0], t[..., 3], t[..., 2], t[..., 1]], axis=-1)


@in_files("models.Freedom")
@dataclass(frozen=True)
class Freedom(ConjugateComponent):
    """Degrees of freedom of rows or values; ``prior`` has zeros, (1, 2) or (D, 2)."""

    prior: Annotated[Array, "1 2 | d 2"]
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
        """Coefficients of ``E[log u - u]`` that do not depend on nu."""
        size = len(self.prior)
        return np.repeat([0.0, 0.5 * self.n_features / size - 1.0], size)

    def features(self, X: Any) -> Any:
        """Return ``[seen, log u - u]`` with u = 1."""
        seen = 1.0 - np.isnan(np.asarray(X, np.float64))
        seen = seen if len(self.prior) == seen.shape[1] else seen.max(axis=1, keepdims=True)
        return np.concatenate([seen, -seen], axis=1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        nu = self.family.mean(lam)
        return rng.gamma(0.5 * nu, 2.0 / nu, (n_rows, nu.size))

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Freedom", Array]:
        """Return the component and ``lam``, since the degrees of freedom are known."""
        return self, lam

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the degrees of freedom as if they were known."""
        nu = np.broadcast_to(self.family.mean(lam), (len(lam), self.n_features))
        return (Marginals("degrees of freedom", np.arange(self.n_features), nu, lambda p: nu),)


@in_files("models.StudentT")
@dataclass(frozen=True)
class StudentT(WrapperMixin, Product):
    """Student t of "full" or "diag" scale; the blocks are "gaussian" and "freedom".

    Only the first feature of each block does not depend on u. The completion adds all others.
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
        seen = freedom.features(X)[:, : len(freedom.prior)]
        width = self._widths[0]
        out = np.zeros((len(seen), width + 2 * len(freedom.prior)))
        out[:, : seen.shape[1]] = out[:, width : width + seen.shape[1]] = seen
        return out

    def filled(self, X: Any) -> Any:
        return self._values.filled(X)

    def row_fits(self, X: Any) -> FitsOfBlocks:
        return super().row_fits(self._drawn_in(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        return super().projected(self._drawn_in(X), weights, directions)

    def _drawn_in(self, X: Any) -> Array:
        """Clip outliers to the fences of their column, so that they do not become seeds.

        Tukey's fences are 1.5 interquartile ranges from the quartiles. A column in which both
        quartiles are equal has no fences. A row of means is appended, so that each column has
        values.
        """
        rows = np.concatenate([np.asarray(X, np.float64), self._values.center[None]])
        low, high = np.nanquantile(rows, [0.25, 0.75], axis=0)
        away = np.where(low < high, _FENCE * (high - low), np.inf)
        return np.clip(rows[:-1], low - away, high + away)

    def completion(self, table: Array) -> Completion:
        return partial(_ScalesOfRows if self._full else _ScalesOfValues, self._values, table)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the log posterior predictive density, by quadrature over log u."""
        of_gaussian, of_freedom = self.family.split(lam)
        nu = self._family.mean(of_freedom)
        if not self._full:
            q, out = NormalGamma.standard(of_gaussian), np.zeros((X.shape[0], len(lam)))
            rows, seen = self._values._observed(X)
            for k in range(len(lam)):
                distance = (rows - q["mean"][k, :, 0]) ** 2 / (2.0 * q["rate"][k])
                mixed = _Mixed(distance, seen, 2.0 * q["shape"][k],
                               q["mean_precision"][k, :, 0], nu[k])  # fmt: skip
                densities = mixed.log_density() - 0.5 * seen * np.log(2.0 * q["rate"][k])
                out[:, k] = densities.sum(axis=1)
            return out
        mixed, half_log_det, _ = self._of_rows(X, of_gaussian, nu[:, 0])
        return np.asarray(mixed.log_density() - half_log_det * (mixed.number > 0.0))

    @property
    def _family(self) -> Any:
        return self.blocks[1].component.family

    def _of_rows(self, X: Any, lam: Array, nu: Array) -> tuple["_Mixed", Array, Any]:
        """Return rows under full scales, half the scales' log-determinants, and missing values."""
        mean, scale, freedom = self._values._student(lam)
        kappa = self._values.family.standard(lam)["mean_precision"]
        scale = scale * (kappa / (1.0 + kappa))[:, None, None]
        apart, half_log_det, number, holes = distances(self._values._centred(X), mean, scale)
        number = np.broadcast_to(number, (X.shape[0], 1))
        return _Mixed(apart, number, freedom, kappa, nu), half_log_det, holes

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw from the posterior predictive of one component: first u, then a Student t."""
        of_gaussian, of_freedom = self.family.split(lam)
        u = self.blocks[1].component.sample(of_freedom, n_rows, rng)
        gaussian = self._values
        q = gaussian.family.standard(of_gaussian)
        kappa = q["mean_precision"] if self._full else q["mean_precision"][:, 0]
        center = gaussian.center + (q["mean"] if self._full else q["mean"][:, 0])
        # convert draws at the scale 1 + 1 / kappa to the scale 1 / u + 1 / kappa
        ratio = np.sqrt((1.0 / u + 1.0 / kappa) / (1.0 + 1.0 / kappa))
        drawn = gaussian.sample(of_gaussian, n_rows, rng)
        return np.asarray(center + ratio * (drawn - center), self.dtype)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw u given the rest of the row from the nodes, then missing values from a Student t."""
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
        return np.where(holes.missing, holes.filled(0, noise) + self._values.center, X)

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of the Gaussian and of the degrees of freedom, (K, D) in nats."""
        parts = super().column_evidence(sums)
        return np.asarray(parts[:, : self.n_features] + parts[:, self.n_features :])

    def marginals(self, lam: Array) -> Any:
        """Return locations, scales and degrees of freedom."""
        (means, deviations), freedom = super().marginals(lam)
        return means, deviations._replace(quantity="scale"), *freedom


def student_t_component(
    gaussian: FullGaussian | DiagonalGaussian, freedom: float | None = None
) -> StudentT:
    """Return a Student t with a Gaussian's prior; degrees of freedom are learned if None."""
    D, dtype = gaussian.n_features, gaussian.dtype
    full = gaussian.covariance_type == "full"
    kind = WeightedFullGaussian if full else WeightedDiagonalGaussian
    weighted: Any = kind(gaussian.prior, gaussian.center, dtype, gaussian.added)
    limits = LIMITS if freedom is None else (freedom, freedom)
    of_scales = Freedom(np.zeros((1 if full else D, 2)), D, dtype, limits)
    columns = np.arange(D)
    blocks = Block("gaussian", weighted, columns), Block("freedom", of_scales, columns)
    return StudentT(blocks, D, dtype)


# ---------------------------------------------------------------------------------- q(u)
@dataclass(frozen=True)
class _Scales:
    """The gamma distributions q(u), for rows of ``n_columns`` columns, some of them missing.

    These arrays broadcast to each other: the degrees of freedom, half the expected squared distance
    d, the inverse temperatures and the number of missing columns.
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
        """The coefficient of log u in the energy."""
        return np.asarray(0.5 * (self.nu + self.n_columns) - 1.0)

    @cached_property
    def mean(self) -> Array:
        return self.shape / self.rate

    @cached_property
    def mean_log(self) -> Array:
        return digamma(self.shape) - np.log(self.rate)

    def energy(self) -> Array:
        """Return the expected log density without the terms that do not depend on u."""
        of_missing = 0.5 * self.n_missing / self.inv_temps
        linear = self.mean * (0.5 * self.nu + self.half)
        return np.asarray(self._times * self.mean_log - linear - of_missing)

    def entropy(self) -> Array:
        """Return the entropy of u and of missing values, without the determinant of A_mm."""
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
        return GaussianCompletion.from_table(center, of_gaussian, D).holes(self.X, np.ones(1))

    @cached_property
    def _scales(self) -> tuple[_Scales, Array]:
        """q(u) and half the log-determinants of A_mm, (n, K)."""
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
        entropies = self._seen * (scales.entropy() - half_log_det)
        logits += self._seen * scales.energy() + entropies / self.inv_temps[:, None]
        entropy += entropies

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        scales, missing = self._scales[0], self._missing
        mean, weighted = scales.mean, weighted * self._seen
        scaled = weighted * mean
        of_gaussian = scaled.T @ self._features
        if missing is not None:
            of = missing.completion
            for k in range(len(sums)):
                one = GaussianCompletion(of.center, of.linear[[k]], of.precision[[k]], True)
                part = np.zeros((1, of_gaussian.shape[1]))
                inv_temps = self.inv_temps * mean[:, k]
                of_one = replace(missing, completion=one, inv_temps=inv_temps)
                of_one.add_statistics(np.ascontiguousarray(scaled[:, [k]]), part)
                of_gaussian[k] += part[0]
        sums[:, 1:-2] += of_gaussian
        sums[:, -1] += (weighted * (scales.mean_log - mean)).sum(axis=0)


@dataclass(frozen=True)
class _ScalesOfValues:
    """One u for each value of a row."""

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
        # distance that the uncertainty of the mean adds, and the variance added to squares
        least = np.maximum(-(weight + 0.5) - 0.5 * precision * mean**2, 0.0)
        least = least if added is None else least + 0.5 * precision * added
        scales = []
        for k in range(len(self.table)):
            half = 0.5 * precision[k] * (rows - mean[k]) ** 2 + least[k]
            nu = 2.0 * last[k] + 1.0
            scales.append(_Scales(nu, half, self.inv_temps[:, None], 1, np.zeros(1)))
        return scales

    def add_to(self, logits: Array, entropy: Array) -> None:
        seen = self._rows[1]
        for k, scales in enumerate(self._scales):
            entropies = (seen * scales.entropy()).sum(axis=1)
            logits[:, k] += (seen * scales.energy()).sum(axis=1) + entropies / self.inv_temps
            entropy[:, k] += entropies

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        rows, seen = self._rows
        squares = self.gaussian._squares(rows, seen)
        for k, scales in enumerate(self._scales):
            resp = weighted[:, [k]] * seen
            scaled, zeros = resp * scales.mean, np.zeros(rows.shape[1])
            logs = (resp * (scales.mean_log - scales.mean)).sum(axis=0)
            parts = (zeros, scaled.sum(axis=0), (scaled * rows).sum(axis=0),
                     (scaled * squares).sum(axis=0), zeros, logs)  # fmt: skip
            sums[k] += np.concatenate(parts)


# ---------------------------------------------------------------------------------- predictive
@dataclass(frozen=True)
class _Mixed:
    """Student t whose scale is 1 / u + 1 / kappa times a known one, u ~ Gamma(nu / 2, nu / 2).

    These arrays broadcast to each other: the squared distances from the location in units of the
    known scale, the number of observed values, the degrees of freedom, kappa and nu.
    """

    distance: Array
    number: Array
    freedom: Array
    kappa: Array
    nu: Array

    def log_density(self) -> Array:
        """Return log densities without the known scale's determinant; 0 without observed values."""
        n, total = self.number, 0.5 * (self.freedom + self.number)
        constant = gammaln(total) - gammaln(0.5 * self.freedom) - 0.5 * n * np.log(np.pi)
        constant = constant + 0.5 * self.nu * np.log(0.5 * self.nu) - gammaln(0.5 * self.nu)
        return np.asarray(np.where(n > 0.0, constant + self._integrated(0.5)[0], 0.0))

    def drawn(self, rng: np.random.Generator) -> Array:
        """Draw u given the values, from the nodes of the quadrature."""
        shape = np.broadcast_shapes(*(np.shape(part) for part in self._parts))
        return self._integrated(rng.random(shape))[1]

    @property
    def _parts(self) -> tuple[Array, ...]:
        return self.distance, self.number, self.freedom, self.kappa, self.nu

    def _integrated(self, uniform: Any) -> tuple[Array, Array]:
        """Return the log integral over log u without constants, and u drawn by uniform numbers."""
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
    """Integrate over t = log u by the trapezoidal rule, and draw a node by the integrand.

    With n = number and ``s = 1 / u + 1 / kappa`` the logarithm of the integrand has the slope
    ``nu / 2 (1 - u) + kappa / (kappa + u) h(u)``, ``h = n / 2 - (f + n) / 2 distance / (s +
    distance)``, and one or two modes: near the most likely u of a known mean, and near the prior's
    where the uncertainty of the mean explains the distance. All lie between u_0, the mode at
    infinite kappa, and ``1 + n / nu``. The second derivative at a mode is at least about ``-(nu +
    n) / 2``, from which the distance of nodes is derived.
    """
    for i in range(distance.size):
        # the square of a larger distance would overflow
        apart, n = min(distance[i], _FARTHEST), number[i]
        rise, fall, prior = 0.5 * (nu[i] + n), 0.5 * (freedom[i] + n), 0.5 * nu[i]
        b = (rise - fall) * apart - prior
        root = np.sqrt(b * b + 4.0 * prior * apart * rise)
        # use the form of the solution in which no terms cancel
        u = 2.0 * rise / (root - b) if b < 0.0 else (b + root) / (2.0 * prior * apart)
        first, step = log(u), min(_STEP / np.sqrt(rise), _WIDEST)
        last = int(np.ceil(max(log(1.0 + n / nu[i]) - first, 0.0) / step))
        total, best, chance = 0.0, -np.inf, uniform[i]
        # phase 0 finds the maximum; then sum from the first node to the left, and to the right
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
            # replace the drawn node with probability `share`; then `chance` is uniform again
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
