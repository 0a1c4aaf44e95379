"""Learning of the parameters of a mixture's priors, by maximisation of the bound.

At the best q, ``q_k = eta + S_k``, the bound depends on the prior eta of the components only
through their evidence,

    F(eta) = sum_k [A(eta + S_k) - A(eta)],      dF/deta = sum_k (E_{q_k}[t] - E_eta[t]),

so that at the maximum the expectations E_eta[t] of the prior are the averages of E_{q_k}[t] over
components. A step of EM maximises the bound at fixed q. For a Gaussian's prior, with averages over
k, it is

    m = avg(E[Lambda])^-1 avg(E[Lambda mu]),      1 / kappa = avg(E[(mu - m)' Lambda (mu - m)]) / D,
    W^-1 = nu avg(E[Lambda])^-1,      avg(E[log|Lambda|]) = E_{nu, W}[log|Lambda|],

where the first two equations do not depend on the last two. The step for a gamma's shape and rate
is similar. For Dirichlets and the concentration of sticks it is the fixed-point step of [Minka00
eq. 55], which also raises F. Steps are lengthened while this raises F further: EM alone is slow if
a prior counts for more rows than a component has.

The prior cannot be learned from one component: the best prior would be concentrated at this
component and make all other components improbable. :class:`~skvt.models.mixture._model.Mixture`
therefore learns only from two or more components. The ranges of parameters are limited for the
same reason: if few components happen to have similar means or covariances, a prior that is certain
of these would prevent births of different components. For Dirichlets, a conjugate prior of the
concentrations has the same purpose: it counts as ``PSEUDO_COMPONENTS`` further components with the
expectations under concentrations of 1. It only directs the steps. F does not include it, and steps
that lower F are not made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.optimize import brentq

from skvt.compiled import digamma as digamma_of
from skvt.compiled import digamma_array as digamma
from skvt.compiled import exp, jit, log
from skvt.expfam import triangle
from skvt.files import in_files
from skvt.models.mixture._gaussian_prior import (
    ROWS_PER_COLUMN_OF_SCALE,
    GaussianPrior,
    determined,
    natural_prior,
)
from skvt.models.mixture._product import of_block
from skvt.models.mixture._weights import StickBreaking
from skvt.typing import Array

# Range of the number of rows for which a prior mean counts.
MEAN_PRECISION = (1e-6, 1.0)
# Range of concentrations and of gamma shapes.
CONCENTRATION = (1e-3, 1e3)
# Degrees of freedom exceed their lower limit by at least this; they are at most twice the number of
# columns.
LEAST_FREEDOM = 1e-2
# Number of components as which the conjugate prior of learned concentrations counts.
PSEUDO_COMPONENTS = 2.0
# Lower limit of the mean squared distance of components from the prior mean.
TINY = float(np.finfo(np.float64).tiny)
# Lower limit of the eigenvalues of a learned inverse scale, relative to the columns' variances.
# Without it, components of equal rows would make the inverse scale 0 and the evidence infinite.
LEAST_SCALE = 1e-6
# Lower limit of the learned probability of a negative binomial's size, relative to the most
# probable size.
LEAST_SHARE = 1e-5
# Maximum number of steps in one call. It is _FEW_STEPS for factor analysers, which need an inner
# iteration, and for matrices of at least _MANY_COLUMNS columns.
_MOST_STEPS = 10
_FEW_STEPS = 3
# Steps end if they gain less than this, in nats.
_SMALLEST_GAIN = 1e-2
_MANY_COLUMNS = 32
# Number of rows up to which a component counts as a single row.
_ONE_ROW = 1.5
# Width of the interval of logarithms at which the search for degrees of freedom ends.
_SMALLEST_STEP = 1e-12
# Largest factor by which a step of EM is lengthened.
_LONGEST = 16.0


class PriorLearner(Protocol):
    """Moves the prior of a component towards the maximum of the bound; immutable."""

    def learned(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence, given statistics (K, P)."""

    def values(self, component: Any) -> dict[str, Any]:
        """Return learned values by the names of the parameters."""


class _Ascent:
    """Base of learners that make lengthened steps of EM on unconstrained parameters x."""

    most_steps: int = _MOST_STEPS

    def at(self, component: Any, x: Array) -> Any:
        """Return the component whose prior has these parameters, clipped to their range."""
        raise NotImplementedError

    def parameters(self, component: Any) -> Array:
        """Return the parameters x of the component's prior, a vector."""
        raise NotImplementedError

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameters after a step of EM."""
        raise NotImplementedError

    def informative(self, component: Any, sums: Array) -> Array:
        """Select the statistics (K', P) of the components over which steps of EM average."""
        return sums

    def log_density(self, component: Any) -> float:
        """Return the log density of the prior's parameters, up to a constant, in nats."""
        return 0.0

    def learned(self, component: Any, sums: Array) -> Any:
        followed = self.informative(component, sums)
        if len(followed) < min(2, len(sums)):
            return component

        return _ascend(
            component, lambda now: (self.parameters(now), self.step(now, followed)), self.at,
            lambda now: _evidence(now, sums) + self.log_density(now), self.most_steps,
        )  # fmt: skip


def _evidence(component: Any, sums: Array) -> float:
    """Return the evidence of components with these statistics (K, P), without base measure."""
    after = component.family.log_normalizer(component.natural_parameters(sums))
    return float(after.sum() - len(sums) * component.log_normalizer)


def _ascend(
    now: Any, step: Callable[[Any], tuple[Array, Array]], at: Callable[[Any, Array], Any],
    evidence: Callable[[Any], float], most_steps: int = _MOST_STEPS,
) -> Any:  # fmt: skip
    """Return ``now`` after a few steps from x to x', lengthened while F rises; no step lowers F.

    ``step`` returns x and x', ``at`` the object with parameters x, and ``evidence`` F in nats.
    """
    value, length = evidence(now), 1.0
    for _ in range(most_steps):
        x, target = step(now)
        trial = at(now, x + length * (target - x))
        new = evidence(trial)
        if length > 1.0 and not new > value:
            length = 1.0
            trial = at(now, target)
            new = evidence(trial)
        if not new > value:
            break
        gain, now, value = new - value, trial, new
        if gain < _SMALLEST_GAIN:
            break
        length = min(2.0 * length, _LONGEST)
    return now


# ------------------------------------------------------------------------------ Gaussians
@in_files("models.GaussianLearner")
@dataclass(frozen=True)
class GaussianLearner(_Ascent):
    """Learns parameters of a Gaussian component's prior."""

    # A subset of "mean_prior", "mean_precision_prior", "degrees_of_freedom_prior" and
    # "covariance_prior".
    names: frozenset[str]
    # (D,) or (1,): square roots of the columns' variances, the units of the lower limit of scales.
    unit: Array
    # Number of steps at a time.
    most_steps: int = _MOST_STEPS

    @classmethod
    def of(cls, component: Any, names: frozenset[str]) -> "GaussianLearner | None":
        """Return the learner of those parameters that the component can learn; None without any."""
        # Components that share a covariance do not determine its prior.
        if component.alone is not component:
            names -= {"covariance_prior", "degrees_of_freedom_prior"}
        prior = gaussian_prior_of(component)
        if prior.mean is None:
            names -= {"mean_prior", "mean_precision_prior"}
        scale = prior.covariance
        variances = np.diagonal(scale) if np.ndim(scale) == 2 else np.atleast_1d(scale)
        wide = np.ndim(scale) == 2 and component.n_features >= _MANY_COLUMNS
        costly = wide or component.covariance_type == "low_rank"
        steps = _FEW_STEPS if costly else _MOST_STEPS
        return cls(names, np.sqrt(variances), steps) if names else None

    def informative(self, component: Any, sums: Array) -> Array:
        """Leave out components of one row if there are few rows per column.

        The prior's mean could otherwise move to such a row, and its scale shrink to the lower
        limit. For each column, the row's evidence then grows by half the logarithm of the factor by
        which the scale shrinks, at almost no cost to the other components if columns are
        independent.
        """
        if not {"mean_prior", "covariance_prior"} <= self.names:
            return sums
        after, before = (
            component.family.standard(eta)["mean_precision"]
            for eta in (component.natural_parameters(sums), component.prior)
        )
        number = (after - before).reshape(len(sums), -1).max(axis=1)
        if number.sum() > ROWS_PER_COLUMN_OF_SCALE * component.n_features:
            return sums
        return sums[number > _ONE_ROW]

    def learned(self, component: Any, sums: Array) -> Any:
        if component.covariance_type != "low_rank":
            return super().learned(component, sums)
        prior = super().learned(component.trial(sums), sums).prior
        return component if prior is component.prior else replace(component, prior=prior)

    def values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters by name; the mean is in the coordinates of the data."""
        m, kappa, nu, scale = gaussian_prior_of(component)
        mean = None if m is None else component.center + m
        values = {
            "mean_prior": mean, "mean_precision_prior": kappa, "degrees_of_freedom_prior": nu,
            "covariance_prior": scale,
        }  # fmt: skip
        return {name: value for name, value in values.items() if name in self.names}

    def parameters(self, component: Any) -> Array:
        """Return the learned ones of m, log kappa, log(nu - lower limit) and log-Cholesky W^-1."""
        return self._vector(gaussian_prior_of(component))

    def at(self, component: Any, x: Array) -> Any:
        m, kappa, nu, scale = gaussian_prior_of(component)
        D, least = component.n_features, least_freedom(scale)
        if "mean_prior" in self.names:
            m, x = x[:D], x[D:]
        if "mean_precision_prior" in self.names:
            kappa, x = float(np.exp(within(x[0], MEAN_PRECISION))), x[1:]
        if "degrees_of_freedom_prior" in self.names:
            nu, x = least + float(np.exp(within(x[0], freedom_limits(D, least)))), x[1:]
        if "covariance_prior" in self.names:
            scale = self._scale(x, np.ndim(scale))
        prior = natural_prior(component, GaussianPrior(m, kappa, nu, scale))
        return replace(component, prior=prior)

    def _vector(self, prior: GaussianPrior) -> Array:
        """Return the learned parameters of the prior as one unconstrained vector."""
        m, kappa, nu, scale = prior
        parts: list[Any] = []
        if "mean_prior" in self.names:
            parts.append(m)
        if "mean_precision_prior" in self.names:
            parts.append([np.log(kappa)])
        if "degrees_of_freedom_prior" in self.names:
            parts.append([np.log(nu - least_freedom(scale))])
        if "covariance_prior" in self.names:
            parts.append(log_cholesky(scale))
        return np.concatenate(parts)

    def _scale(self, x: Array, ndim: int) -> Any:
        """Return the inverse scale with log-Cholesky parameters x, raised to its lower limit."""
        if ndim < 2:
            scale = np.maximum(np.exp(2.0 * x), LEAST_SCALE * self.unit**2)
            return scale if ndim else float(scale[0])
        D = self.unit.size
        root = np.tril(triangle.unpack(x))
        root[np.diag_indices(D)] = np.exp(np.diagonal(root))
        scale = root @ root.T
        scaled = scale / self.unit[:, None] / self.unit
        # A Cholesky factor shows that nothing has to be raised; eigenvalues take much longer.
        try:
            np.linalg.cholesky(scaled - LEAST_SCALE * np.eye(D))
            return scale
        except np.linalg.LinAlgError:
            values, directions = np.linalg.eigh(scaled)
        directions = self.unit[:, None] * directions
        return (directions * np.maximum(values, LEAST_SCALE)) @ directions.T

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameters that maximise the bound at fixed q, see the module docstring."""
        m, kappa, nu, scale = gaussian_prior_of(component)
        log_det, precision, linear, square = _averages(component, sums)
        full = precision.ndim == 2
        if "mean_prior" in self.names:
            m = np.linalg.solve(precision, linear) if full else linear / precision
        if "mean_precision_prior" in self.names:
            weighted = precision @ m if full else precision * m
            # Rounding of large means can make the distance 0 or negative.
            distance = max(float(square + m @ (weighted - 2.0 * linear)), TINY)
            kappa = component.n_features / distance
        # For factor analysers, the learned scale is that of the noise.
        if "loadings" in component.family.standard(component.prior):
            log_det, precision = component.noise(component.natural_parameters(sums))
            full = False
        learns_scale = "covariance_prior" in self.names
        if learns_scale and full:
            q = component.family.standard(component.natural_parameters(sums))
            precision = determined(precision, float((q["degrees_of_freedom"] - nu).sum()))
        if "degrees_of_freedom_prior" in self.names:
            limits = freedom_limits(component.n_features, least_freedom(scale))
            nu = degrees_of_freedom(log_det, precision, None if learns_scale else scale, limits)
        if learns_scale:
            scale = nu * np.linalg.inv(precision) if full else nu / precision
            scale = scale if np.ndim(scale) < 2 else 0.5 * (scale + scale.T)
        return self._vector(GaussianPrior(m, kappa, nu, scale))


def gaussian_prior_of(component: Any) -> GaussianPrior:
    """Return the parameters of a Gaussian component's prior; the mean is relative to its centre."""
    q = component.family.standard(component.prior)
    mean = kappa = None
    if "mean" in q:
        mean, kappa = q["mean"].reshape(-1), float(q["mean_precision"].reshape(-1)[0])
    if "degrees_of_freedom" in q:
        return GaussianPrior(mean, kappa, float(q["degrees_of_freedom"]), q["scale_inverse"])
    scale = 2.0 * q["rate"]
    nu = 2.0 * float(np.reshape(q["shape"], -1)[0])
    return GaussianPrior(mean, kappa, nu, scale if np.ndim(scale) else float(scale))


def _averages(component: Any, sums: Array) -> tuple[Any, Array, Any, Any]:
    """Average E[log|Lambda|], E[Lambda], E[Lambda mu] and E[mu' Lambda mu] over components."""
    t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
    D, q = component.n_features, component.family.standard(component.prior)
    if "degrees_of_freedom" in q or "loadings" in q:
        start = 2 + D if "mean" in q else 1
        precision = -triangle.unpack(t[start:])
        precision[np.diag_indices(D)] *= 2.0
        linear, square = (t[2 : 2 + D], -2.0 * t[1]) if "mean" in q else (None, None)
        return 2.0 * t[0], precision, linear, square
    if "mean" not in q:
        return t[..., 0].sum(), np.atleast_1d(-t[..., 1]), None, None
    log_det, precision = 2.0 * t[..., 0].sum(), np.atleast_1d(-2.0 * t[..., 1])
    width = (t.shape[-1] - 2) // 2
    linear = t[..., 2 : 2 + width].reshape(-1)
    return log_det, precision, linear, -2.0 * t[..., 2 + width :].sum()


def _log_determinant(precision: Array) -> float:
    """Return the log determinant of a matrix, or of the diagonal matrix with this diagonal."""
    if precision.ndim == 2:
        return float(np.linalg.slogdet(precision)[1])
    return float(np.log(precision).sum())


def least_freedom(scale: Any) -> float:
    """Return the lower limit of the degrees of freedom of a prior with this scale."""
    return len(scale) - 1.0 if np.ndim(scale) == 2 else 0.0


def freedom_limits(n_features: int, least: float) -> tuple[float, float]:
    """Return the range of the degrees of freedom less their lower limit."""
    return LEAST_FREEDOM, 2.0 * n_features - least


def degrees_of_freedom(
    log_det: float, precision: Array, scale: Any, limits: tuple[float, float]
) -> float:
    """Return nu at which the prior's expectation of log|Lambda| is ``log_det``.

    For a matrix, the expectation is ``sum_i digamma((nu - i) / 2) + D log 2 - log|W^-1|`` with i =
    0, ..., D - 1. For D gammas of shape nu / 2, it is the same with i = 0 in all terms. If
    ``scale`` is None, W^-1 is the best scale ``nu precision^-1``. ``limits`` are those of nu less
    its lower limit.
    """
    size, is_matrix = len(precision), precision.ndim == 2
    log_scale = -_log_determinant(precision)
    if scale is not None:
        log_scale = _log_determinant(np.asarray(scale).reshape(precision.shape))
    excess = log_det - size * np.log(2.0) + log_scale
    low, high = np.log(limits)
    return float(_freedom_of(excess, size, is_matrix, scale is None, low, high))


@jit
def _freedom_of(
    excess: float, size: int, is_matrix: bool, scale_is_free: bool, low: float, high: float
) -> float:
    """Return nu by bisection over the logarithm of nu less its lower limit."""
    least = size - 1.0 if is_matrix else 0.0
    while high - low > _SMALLEST_STEP:
        middle = 0.5 * (low + high)
        nu = least + exp(middle)
        excess_at_nu = excess + (size * log(nu) if scale_is_free else 0.0)
        for i in range(size):
            excess_at_nu -= digamma_of(0.5 * (nu - (i if is_matrix else 0.0)))
        if excess_at_nu > 0.0:
            low = middle
        else:
            high = middle
    return least + exp(0.5 * (low + high))


def log_cholesky(scale: Any) -> Array:
    """Return the Cholesky factor of a matrix with its diagonal in logarithms, as a vector.

    For a vector or a number, the scale is a diagonal, and the result is half its logarithm.
    """
    if np.ndim(scale) < 2:
        return 0.5 * np.log(np.atleast_1d(scale))
    root = np.linalg.cholesky(scale)
    root[np.diag_indices(len(root))] = np.log(np.diagonal(root))
    return triangle.pack(root.T)


def within(log_value: float, limits: tuple[float, float]) -> float:
    """Return a logarithm clipped to the logarithms of the limits."""
    return float(np.clip(log_value, *np.log(limits)))


def _root(function: Callable[[float], float], limits: tuple[float, float]) -> float:
    """Return log x at which a decreasing function of log x is 0, or the nearer end of the range."""
    low, high = np.log(limits)
    if function(low) <= 0.0:
        return float(low)
    if function(high) >= 0.0:
        return float(high)
    return float(brentq(function, low, high, xtol=1e-12))


# ------------------------------------------------------------------------------ others
@in_files("models.DirichletLearner")
@dataclass(frozen=True)
class DirichletLearner(_Ascent):
    """Learns the concentrations of Dirichlet priors, separately or one for all entries."""

    name: str
    # Number of entries of each Dirichlet; they follow each other in the flattened prior.
    sizes: tuple[int, ...]
    symmetric: bool = False
    # Number of steps at a time.
    most_steps: int = _MOST_STEPS

    def values(self, component: Any) -> dict[str, Any]:
        """Return the concentrations in the shape of the prior, or a number if symmetric."""
        prior = component.prior.copy()
        return {self.name: float(prior.flat[0]) if self.symmetric else prior}

    def parameters(self, component: Any) -> Array:
        return np.log(component.prior).reshape(-1)

    def at(self, component: Any, x: Array) -> Any:
        """Return the component with these concentrations, clipped to their range."""
        prior = np.exp(np.clip(x, *np.log(CONCENTRATION)))
        return replace(component, prior=prior.reshape(component.prior.shape))

    def learned(self, component: Any, sums: Array) -> Any:
        after = super().learned(component, sums)
        return after if _evidence(after, sums) > _evidence(component, sums) else component

    def log_density(self, component: Any) -> float:
        """Return ``<alpha, E_1[log phi]> - A(alpha)`` of each pseudo-component, in nats."""
        at_one = component.family.expectation(np.ones_like(component.prior))
        of_one = float((component.prior * at_one).sum()) - component.log_normalizer
        return PSEUDO_COMPONENTS * of_one

    def step(self, component: Any, sums: Array) -> Array:
        """Return log concentrations after a fixed-point step, see [Minka00 eq. 55].

        The differences of digamma functions of pseudo-components are added to the numerator or, if
        negative, subtracted from the denominator, and vice versa, so that both stay positive.
        """
        alpha = component.prior.reshape(-1)
        counts = component.spread(sums).reshape(len(sums), -1)
        starts = np.cumsum(self.sizes, dtype=np.intp) - np.array(self.sizes, np.intp)
        totals = np.add.reduceat(counts, starts, axis=1)
        total = np.add.reduceat(alpha, starts)
        numerator = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        denominator = np.repeat((digamma(totals + total) - digamma(total)).sum(axis=0), self.sizes)
        sizes = np.array(self.sizes, np.float64)
        rise = PSEUDO_COMPONENTS * (digamma(np.ones(1)) - digamma(alpha))
        fall = np.repeat(PSEUDO_COMPONENTS * (digamma(sizes) - digamma(total)), self.sizes)
        numerator += np.maximum(rise, 0.0) + np.maximum(-fall, 0.0)
        denominator += np.maximum(fall, 0.0) + np.maximum(-rise, 0.0)
        if self.symmetric:
            numerator, denominator = (
                np.full_like(numerator, numerator.sum()),
                np.full_like(denominator, denominator.sum()),
            )
        # The concentrations of a column without values are kept.
        ratio = np.where(
            denominator > 0.0, numerator / np.where(denominator > 0.0, denominator, 1.0), 1.0
        )
        return np.log(np.maximum(alpha * ratio, 0.1 * CONCENTRATION[0]))


@in_files("models.GammaLearner")
@dataclass(frozen=True)
class GammaLearner(_Ascent):
    """Learns the shape that gamma priors of rates share, and their rates."""

    # A subset of "shape_prior" and "rate_prior".
    names: frozenset[str]

    def values(self, component: Any) -> dict[str, Any]:
        """Return the shape, a number, and the rates (D,), as far as learned."""
        shape, rate = component.prior.T
        values = {"shape_prior": float(shape[0]), "rate_prior": rate.copy()}
        return {name: value for name, value in values.items() if name in self.names}

    def parameters(self, component: Any) -> Array:
        shape, rate = component.prior.T
        return np.log(np.append(shape[0], rate))

    def at(self, component: Any, x: Array) -> Any:
        shape, rate = component.prior.T
        if "shape_prior" in self.names:
            shape = np.full_like(shape, np.exp(within(x[0], CONCENTRATION)))
        if "rate_prior" in self.names:
            rate = np.exp(np.clip(x[1:], -100.0, 100.0))
        return replace(component, prior=np.stack([shape, rate], axis=1))

    def step(self, component: Any, sums: Array) -> Array:
        """Return log parameters that solve ``sum avg E[log tau] = sum (digamma(a) - log b)``.

        The sums are over columns, the averages over components, and ``b = a / avg E[tau]``.
        """
        t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
        (mean_log, mean), (shape, rate) = (t[:, 0], -t[:, 1]), component.prior.T
        a = shape[0]
        if "shape_prior" in self.names:
            learns_rate = "rate_prior" in self.names

            def excess(log_a: float) -> float:
                log_rate = log_a - np.log(mean) if learns_rate else np.log(rate)
                return float((mean_log + log_rate - digamma(np.exp(log_a))).sum())

            a = np.exp(_root(excess, CONCENTRATION))
        rate = a / mean if "rate_prior" in self.names else rate
        return np.log(np.append(a, rate))


@in_files("models.SizesLearner")
@dataclass(frozen=True)
class SizesLearner(_Ascent):
    """Learns the probabilities of negative binomials' sizes, the same for all columns."""

    def values(self, component: Any) -> dict[str, Any]:
        """Return the probabilities of the dispersions in ascending order."""
        return {"dispersion_prior": np.exp(self.parameters(component))[::-1].copy()}

    def parameters(self, component: Any) -> Array:
        return np.log(component.family.of_sizes(component.prior[0]).share)

    def at(self, component: Any, x: Array) -> Any:
        """Return the component with these probabilities, none below the least one."""
        return component.with_shares(np.maximum(np.exp(x - x.max()), LEAST_SHARE))

    def step(self, component: Any, sums: Array) -> Array:
        """Return logarithms of posterior probabilities averaged over components and columns."""
        share = component.family.of_sizes(component.natural_parameters(sums)).share
        share = share.reshape(-1, share.shape[-1]).mean(axis=0)
        return np.log(np.maximum(share, LEAST_SHARE))


@in_files("models.ProductLearner")
@dataclass(frozen=True)
class ProductLearner:
    """Learns the priors of blocks of columns; a block whose learner is None keeps its prior."""

    learners: tuple[PriorLearner | None, ...]

    def learned(self, component: Any, sums: Array) -> Any:
        parts = zip(component.blocks, self.learners, component.of_blocks(sums), strict=True)
        blocks = []
        for block, learner, block_sums in parts:
            if learner is not None:
                with of_block(block.name):
                    component_of_block = learner.learned(block.component, block_sums)
                    block = block._replace(component=component_of_block)
            blocks.append(block)
        return replace(component, blocks=tuple(blocks))

    def values(self, component: Any) -> dict[str, Any]:
        """Return the learned values of each block by its name."""
        return {
            block.name: learner.values(block.component)
            for block, learner in zip(component.blocks, self.learners, strict=True)
            if learner is not None
        }


@in_files("models.ValuesLearner")
@dataclass(frozen=True)
class ValuesLearner:
    """Learns the prior of the first block of a product; the other priors are fixed."""

    learner: PriorLearner

    def learned(self, component: Any, sums: Array) -> Any:
        """Return the product with a prior of higher evidence in its first block."""
        others = (None,) * (len(component.blocks) - 1)
        return ProductLearner((self.learner, *others)).learned(component, sums)

    def values(self, component: Any) -> dict[str, Any]:
        return self.learner.values(component.blocks[0].component)


def suits(learner: Any, component: Any) -> bool:
    """Return whether a learner that is read from a file fits the component that is read from it."""
    if type(learner) is ProductLearner:
        pairs = zip(learner.learners, component.blocks, strict=True)
        return all(suits(block_learner, block.component) for block_learner, block in pairs)
    if type(learner) is ValuesLearner:
        return suits(learner.learner, component.blocks[0].component)
    shapes = (component.n_features,), (1,)
    return type(learner) is not GaussianLearner or learner.unit.shape in shapes


def with_learned_concentration(weights: Any, counts: Array) -> Any:
    """Return sticks with a concentration of higher evidence.

    Steps lead to the fixed point ``alpha = -K / sum_k E[log(1 - v_k)]``.
    """

    def step(now: StickBreaking) -> tuple[Array, Array]:
        lam = now.natural_parameters(counts)
        missing = digamma(lam.sum(axis=1)) - digamma(lam[:, 1])  # -E[log(1 - v_k)]
        target = np.log(counts.size / missing.sum())
        return np.log([now.concentration]), np.array([target])

    def at(now: StickBreaking, x: Array) -> StickBreaking:
        return replace(now, concentration=float(np.exp(within(x[0], CONCENTRATION))))

    def evidence(now: StickBreaking) -> float:
        return now.log_evidence(counts)

    return _ascend(weights, step, at, evidence)
