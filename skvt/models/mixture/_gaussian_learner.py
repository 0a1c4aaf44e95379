"""Learning of the parameters of a Gaussian's prior.

The prior has the mean m, which counts as kappa rows, nu degrees of freedom and the inverse scale
W^-1. With averages over components k, a step of EM, see
:mod:`skvt.models.mixture._learned_priors`, is

    m = avg(E[Lambda])^-1 avg(E[Lambda mu]),      1 / kappa = avg(E[(mu - m)' Lambda (mu - m)]) / D,
    W^-1 = nu avg(E[Lambda])^-1,      avg(E[log|Lambda|]) = E_{nu, W}[log|Lambda|],

where the first two equations do not depend on the last two. Each parameter is learned or fixed.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt._compiled import digamma, exp, jit, log
from skvt.expfam import triangle
from skvt.files import in_files
from skvt.models.mixture._gaussian_prior import (
    ROWS_PER_COLUMN_OF_SCALE,
    GaussianPrior,
    diagonal_if_few_rows,
    natural_prior,
)
from skvt.models.mixture._learned_priors import MOST_STEPS, Ascent, clip_log
from skvt.models.mixture._product import ProductLearner, ValuesLearner
from skvt.typing import Array

# Range of kappa, the number of rows as which the prior's mean counts.
MEAN_PRECISION = (1e-6, 1.0)
# Ranges of kappa of means and, in regressions, of slopes. The upper limit is higher for slopes,
# because slopes may be the same in all components.
KAPPA_RANGES = MEAN_PRECISION, (MEAN_PRECISION[0], 100.0)
# Learned degrees of freedom exceed their lower limit by at least this number.
LEAST_FREEDOM = 1e-2
# Lower limit of the mean squared distance of components from the prior mean.
TINY = float(np.finfo(np.float64).tiny)
# Lower limit of the eigenvalues of a learned inverse scale, relative to the columns' variances.
# Without it, components of equal rows would make the inverse scale 0 and the evidence infinite.
LEAST_SCALE = 1e-6
# Maximum number of steps in one call if steps are costly.
_FEW_STEPS = 3
# Steps are costly for matrices of at least this many columns.
_MANY_COLUMNS = 32
# Number of rows up to which a component counts as a single row.
ONE_ROW = 1.5
# The search for degrees of freedom ends when its interval of logarithms is this narrow.
_SMALLEST_STEP = 1e-12


@in_files("models.GaussianLearner")
@dataclass(frozen=True)
class GaussianLearner(Ascent):
    """Learns parameters of a Gaussian component's prior.

    They are the prior's mean, kappa, nu and W^-1. A subclass may have other components, whose mean
    and kappa have other shapes.
    """

    # A subset of "mean_prior", "mean_precision_prior", "degrees_of_freedom_prior" and
    # "covariance_prior".
    names: frozenset[str]
    # (D,) or (1,): square roots of the columns' variances. The lower limit of scales is relative to
    # these units.
    unit: Array
    # Maximum number of steps in one call.
    most_steps: int = MOST_STEPS

    @classmethod
    def from_component(cls, component: Any, names: frozenset[str]) -> Any:
        """Return the learner of the parameters ``names`` that the component can learn.

        The result is None if the component can learn none of them.
        """
        # A covariance that components share does not determine the prior of covariances.
        if component.without_shared_globals is not component:
            names -= {"covariance_prior", "degrees_of_freedom_prior"}
        prior = gaussian_prior_of(component)
        if prior.mean.size == 0:
            names -= {"mean_prior", "mean_precision_prior"}
        scale = prior.covariance
        variances = np.diagonal(scale) if np.ndim(scale) == 2 else np.atleast_1d(scale)
        # Steps of factor analysers are costly, because each needs an inner iteration.
        is_wide = np.ndim(scale) == 2 and component.n_features >= _MANY_COLUMNS
        is_costly = is_wide or component.covariance_type == "low_rank"
        max_steps = _FEW_STEPS if is_costly else MOST_STEPS
        return cls(names, np.sqrt(variances), max_steps) if names else None

    def prior_of(self, component: Any) -> GaussianPrior:
        """Return the parameters of the component's prior; the mean is relative to the center."""
        return gaussian_prior_of(component)

    def with_prior(self, component: Any, prior: GaussianPrior) -> Any:
        """Return the component with this prior."""
        return replace(component, prior=natural_prior(component.covariance_type, prior))

    def count_rows(self, component: Any, sums: Array) -> Array:
        """Return the number of rows of each component, (K,)."""
        before = component.family.to_standard(component.prior)["mean_precision"]
        after = component.family.to_standard(component.natural_parameters(sums))["mean_precision"]
        return (after - before).reshape(len(sums), -1).max(axis=1)

    def count_columns(self, component: Any) -> int:
        """Return the number of columns of the data that have distributions."""
        return component.n_features

    def select_informative(self, component: Any, sums: Array) -> Array:
        """Leave out the sums of components of one row if there are few rows per column.

        Otherwise, the prior's mean could move to the only row of a component while the prior's
        scale shrinks to its lower limit. In each column, the evidence of this row grows by half the
        logarithm of the factor by which the scale shrinks. If columns are independent, the other
        components lose almost no evidence.
        """
        if not {"mean_prior", "covariance_prior"} <= self.names:
            return sums
        n_rows = self.count_rows(component, sums)
        if n_rows.sum() > ROWS_PER_COLUMN_OF_SCALE * self.count_columns(component):
            return sums
        return sums[n_rows > ONE_ROW]

    def learn_prior(self, component: Any, sums: Array) -> Any:
        if component.covariance_type != "low_rank":
            return super().learn_prior(component, sums)
        prior = super().learn_prior(component.trial(sums), sums).prior
        return component if prior is component.prior else replace(component, prior=prior)

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters by name; the mean is in the coordinates of the data."""
        prior = gaussian_prior_of(component)
        values = prior._replace(mean=component.center + prior.mean).by_name()
        return {name: value for name, value in values.items() if name in self.names}

    def parameters(self, component: Any) -> Array:
        return self._vector(self.prior_of(component))

    def _vector(self, prior: GaussianPrior) -> Array:
        """Return all parameters as one vector, including parameters that are not learned.

        They are the mean, log kappa, log(nu - lower limit) and the log-Cholesky factor of W^-1.
        """
        m, kappa, nu, scale = prior
        log_excess = np.log(nu - min_freedom(scale))
        parts = np.ravel(m), np.log(np.ravel(kappa)), [log_excess], log_cholesky(scale)
        return np.concatenate(parts)

    def with_parameters(self, component: Any, x: Array) -> Any:
        """Return the component with the learned parameters of the vector ``x``, within limits."""
        m, kappa, nu, scale = self.prior_of(component)
        lowest = min_freedom(scale)
        # Split the vector into the parts that `_vector` concatenates.
        ends = np.cumsum([np.size(m), np.size(kappa), 1])
        mean, log_kappa, (log_excess,), log_factor = np.split(x, ends)
        if "mean_prior" in self.names:
            m = mean.reshape(m.shape)
        if "mean_precision_prior" in self.names:
            ranges = KAPPA_RANGES[: log_kappa.size]
            kappas = np.exp([clip_log(*pair) for pair in zip(log_kappa, ranges, strict=True)])
            kappa = kappas.reshape(np.shape(kappa))
        if "degrees_of_freedom_prior" in self.names:
            limits = freedom_limits(self.count_columns(component), lowest)
            nu = lowest + float(np.exp(clip_log(log_excess, limits)))
        if "covariance_prior" in self.names:
            scale = inverse_scale_from(log_factor, scale, self.unit)
        return self.with_prior(component, GaussianPrior(m, kappa, nu, scale))

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameters that maximise the bound at fixed q, see the module docstring."""
        m, kappa, nu, scale = gaussian_prior_of(component)
        log_det, precision, linear, square = _averages(component, sums)
        is_matrix = precision.ndim == 2
        # Learn the mean, and then how many rows it counts as.
        if "mean_prior" in self.names:
            m = np.linalg.solve(precision, linear) if is_matrix else linear / precision
        if "mean_precision_prior" in self.names:
            precision_m = precision @ m if is_matrix else precision * m
            # Rounding of large means can make the squared distance 0 or negative.
            squared_distance = max(float(square + m @ (precision_m - 2.0 * linear)), TINY)
            kappa = component.n_features / squared_distance
        # Learn the degrees of freedom, and then the scale. In factor analysers, both belong to the
        # noise, whose covariance is diagonal.
        if "loadings" in component.family.to_standard(component.prior):
            log_det, precision = component.noise(component.natural_parameters(sums))
        prior = GaussianPrior(m, kappa, nu, scale)
        return self.finish_step(component, prior, log_det, precision, sums)

    def finish_step(
        self, component: Any, prior: GaussianPrior, log_det: float, precision: Array, sums: Array
    ) -> Array:
        """Return the vector of parameters after the step for nu and W^-1.

        ``prior`` has the mean and kappa after their step. ``log_det`` and ``precision`` are the
        averages of E[log|Lambda|] and of E[Lambda], or of its diagonal.
        """
        m, kappa, nu, scale = prior
        is_matrix, learns_scale = precision.ndim == 2, "covariance_prior" in self.names
        if learns_scale and is_matrix:
            # The first feature of a component with matrices is the number of rows.
            precision = diagonal_if_few_rows(precision, float(sums[:, 0].sum()))
        if "degrees_of_freedom_prior" in self.names:
            limits = freedom_limits(self.count_columns(component), min_freedom(scale))
            # If the scale is learned too, nu is found for the best scale, which depends on nu.
            nu = degrees_of_freedom(log_det, precision, None if learns_scale else scale, limits)
        if learns_scale:
            scale = nu * np.linalg.inv(precision) if is_matrix else nu / precision
            scale = 0.5 * (scale + scale.T)
        return self._vector(GaussianPrior(m, kappa, nu, scale))


def inverse_scale_from(x: Array, previous: Any, unit: Array) -> Any:
    """Return the inverse scale with the parameters x, raised to its lower limit.

    x is the result of :func:`log_cholesky` for a scale of the shape of ``previous``, and ``unit``
    are the units of the lower limit, see :class:`GaussianLearner`.
    """
    if np.ndim(previous) < 2:
        return np.maximum(np.exp(2.0 * x), LEAST_SCALE * unit**2).reshape(np.shape(previous))
    D = unit.size
    root = np.tril(triangle.unpack(x))
    root[np.diag_indices(D)] = np.exp(np.diagonal(root))
    scale = root @ root.T
    scaled = scale / unit[:, None] / unit
    # Try a Cholesky factorisation first, which succeeds if all eigenvalues are above the limit,
    # because eigenvalues take much longer.
    try:
        np.linalg.cholesky(scaled - LEAST_SCALE * np.eye(D))
        return scale
    except np.linalg.LinAlgError:
        values, directions = np.linalg.eigh(scaled)
    directions = unit[:, None] * directions
    return (directions * np.maximum(values, LEAST_SCALE)) @ directions.T


def gaussian_prior_of(component: Any) -> GaussianPrior:
    """Return the parameters of a Gaussian component's prior; the mean is relative to its centre.

    The mean and kappa are empty arrays if the mean of the component is known to be 0.
    """
    q = component.family.to_standard(component.prior)
    mean: Any = np.empty(0)
    kappa: Any = np.empty(0)
    if "mean" in q:
        mean, kappa = q["mean"].reshape(-1), float(q["mean_precision"].reshape(-1)[0])
    if "degrees_of_freedom" in q:
        return GaussianPrior(mean, kappa, float(q["degrees_of_freedom"]), q["scale_inverse"])
    scale = 2.0 * q["rate"]
    nu = 2.0 * float(np.reshape(q["shape"], -1)[0])
    return GaussianPrior(mean, kappa, nu, scale if np.ndim(scale) else float(scale))


def _averages(component: Any, sums: Array) -> tuple[Any, Array, Any, Any]:
    """Average E[log|Lambda|], E[Lambda], E[Lambda mu] and E[mu' Lambda mu] over components.

    E[Lambda] is a matrix, or the diagonal of one. The last two are None for a zero-mean Gaussian.
    """
    t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
    D = component.n_features
    q = component.family.to_standard(component.prior)
    # In priors of matrices, statistics of means precede the upper triangle of -Lambda / 2.
    if "degrees_of_freedom" in q or "loadings" in q:
        start = 2 + D if "mean" in q else 1
        precision = -triangle.unpack(t[start:])
        precision[np.diag_indices(D)] *= 2.0
        linear, square = (t[2 : 2 + D], -2.0 * t[1]) if "mean" in q else (None, None)
        return 2.0 * t[0], precision, linear, square
    if "mean" not in q:
        return t[..., 0].sum(), np.atleast_1d(-t[..., 1]), None, None
    log_det, precision = 2.0 * t[..., 0].sum(), np.atleast_1d(-2.0 * t[..., 1])
    n_means = (t.shape[-1] - 2) // 2
    linear = t[..., 2 : 2 + n_means].reshape(-1)
    return log_det, precision, linear, -2.0 * t[..., 2 + n_means :].sum()


def _log_determinant(precision: Array) -> float:
    """Return the log determinant of a matrix, or of the diagonal matrix with this diagonal."""
    if precision.ndim == 2:
        return float(np.linalg.slogdet(precision)[1])
    return float(np.log(precision).sum())


def min_freedom(scale: Any) -> float:
    """Return the lower limit of the degrees of freedom of a prior with this scale."""
    return len(scale) - 1.0 if np.ndim(scale) == 2 else 0.0


def freedom_limits(n_features: int, lowest: float) -> tuple[float, float]:
    """Return the range of the degrees of freedom less their lower limit ``lowest``.

    Learned degrees of freedom are at most twice the number of columns.
    """
    return LEAST_FREEDOM, 2.0 * n_features - lowest


def degrees_of_freedom(
    log_det: float, precision: Array, scale: Any, limits: tuple[float, float]
) -> float:
    """Return nu at which the prior's expectation of log|Lambda| is ``log_det``.

    For a matrix, the expectation is ``sum_i digamma((nu - i) / 2) + D log 2 - log|W^-1|`` with i =
    0, ..., D - 1. For D gammas of shape nu / 2, it is the same with i = 0 in all terms.
    ``precision`` is the average of E[Lambda], and ``scale`` is W^-1. If ``scale`` is None, W^-1 is
    the best scale ``nu precision^-1``. ``limits`` are the results of :func:`freedom_limits`.
    """
    size, is_matrix = len(precision), precision.ndim == 2
    log_scale = -_log_determinant(precision)
    if scale is not None:
        log_scale = _log_determinant(np.asarray(scale).reshape(precision.shape))
    excess = log_det - size * np.log(2.0) + log_scale
    low, high = np.log(limits)
    return float(_solve_for_freedom(excess, size, is_matrix, scale is None, low, high))


@jit
def _solve_for_freedom(
    excess: float, size: int, is_matrix: bool, scale_is_free: bool, low: float, high: float
) -> float:
    """Return nu by bisection over log(nu - lower limit), between ``low`` and ``high``.

    ``excess`` is the given log|Lambda| less its expectation, without the terms that contain nu.
    """
    lowest = size - 1.0 if is_matrix else 0.0
    while high - low > _SMALLEST_STEP:
        middle = 0.5 * (low + high)
        nu = lowest + exp(middle)
        excess_at_nu = excess + (size * log(nu) if scale_is_free else 0.0)
        for i in range(size):
            excess_at_nu -= digamma(0.5 * (nu - (i if is_matrix else 0.0)))
        if excess_at_nu > 0.0:
            low = middle
        else:
            high = middle
    return lowest + exp(0.5 * (low + high))


def log_cholesky(scale: Any) -> Array:
    """Return the Cholesky factor of the scale as a vector, with its diagonal in logarithms.

    A vector or a number stands for a diagonal matrix. The result is then half its logarithm.
    """
    if np.ndim(scale) < 2:
        return 0.5 * np.log(np.atleast_1d(scale))
    root = np.linalg.cholesky(scale)
    root[np.diag_indices(len(root))] = np.log(np.diagonal(root))
    return triangle.pack(root.T)


def learner_matches(learner: Any, component: Any) -> bool:
    """Return whether a learner from a file has the shapes of the component from the same file."""
    if type(learner) is ValuesLearner:
        learner = learner.for_blocks(component)
    if type(learner) is ProductLearner:
        pairs = zip(learner.learners, component.blocks, strict=True)
        return all(learner_matches(part, block.component) for part, block in pairs)
    shapes = (component.n_features,), (1,)
    return type(learner) is not GaussianLearner or learner.unit.shape in shapes
