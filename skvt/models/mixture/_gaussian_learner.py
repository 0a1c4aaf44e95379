"""Learning of the parameters of a Gaussian's prior.

The prior of the mean mu and the precision Lambda of a component has the mean m, which counts as
kappa rows, nu degrees of freedom and the inverse scale W^-1. A step of EM, see
:mod:`skvt.models.mixture._learned_priors`, solves the equations

    m = avg(E[Lambda])^-1 avg(E[Lambda mu]),      1 / kappa = avg(E[(mu - m)' Lambda (mu - m)]) / D,
    W^-1 = nu avg(E[Lambda])^-1,      avg(E[log|Lambda|]) = E_{nu, W}[log|Lambda|].

Here E is the expectation under the posterior q of a component, avg is the average over components,
and D is the number of columns. The first two equations do not depend on the last two. Each
parameter is learned or fixed.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt.expfam import triangle
from skvt.files import in_files
from skvt.models.mixture._freedom import (
    find_freedom,
    freedom_limits,
    get_min_freedom,
)
from skvt.models.mixture._gaussian_prior import (
    LOW_RANK_TYPES,
    MIN_ROWS_PER_COLUMN_OF_SCALE,
    GaussianPrior,
    diagonal_if_few_rows,
    natural_prior,
)
from skvt.models.mixture._learned_priors import MAX_STEPS, Ascent, clip_log
from skvt.models.mixture._product import ProductLearner, ValuesLearner
from skvt.typing import Array

# Range of kappa, the number of rows as which the prior's mean counts.
KAPPA_RANGE = (1e-6, 1.0)
# Ranges of kappa of means and, in regressions, of slopes. The upper limit is higher for slopes,
# because slopes may be the same in all components.
KAPPA_RANGES = KAPPA_RANGE, (KAPPA_RANGE[0], 100.0)
# Lower limit of avg(E[(mu - m)' Lambda (mu - m)]), by which a step divides.
MIN_SQUARED_DISTANCE = float(np.finfo(np.float64).tiny)
# Lower limit of the eigenvalues of a learned inverse scale, relative to the columns' variances.
# Without it, components of equal rows would make the inverse scale 0 and the evidence infinite.
MIN_RELATIVE_SCALE = 1e-6
# Maximum number of steps in one call if steps are costly.
_N_STEPS_IF_COSTLY = 3
# Steps are costly for matrices of at least this many columns.
_MIN_COSTLY_COLUMNS = 32
# A component with at most this expected number of rows counts as a component of one row.
MAX_ROWS_OF_SINGLE = 1.5


@in_files("models.GaussianLearner")
@dataclass(frozen=True)
class GaussianLearner(Ascent):
    """Learns parameters of a Gaussian component's prior.

    The parameters are the prior's mean, kappa, nu and W^-1. The base class makes EM steps on a
    vector x of all parameters: :meth:`parameters` returns it, :meth:`with_parameters` takes it, and
    :meth:`step` makes a step. Subclasses for components whose mean and kappa have other shapes
    override methods such as :meth:`prior_of` and :meth:`with_prior`.
    """

    # A subset of "mean_prior", "mean_precision_prior", "degrees_of_freedom_prior" and
    # "covariance_prior".
    names: frozenset[str]
    # (D,) or (1,): square roots of the columns' variances. The lower limit of inverse scales is
    # relative to the squares of these units.
    unit: Array
    # Maximum number of steps in one call.
    most_steps: int = MAX_STEPS

    @classmethod
    def from_component(cls, component: Any, names: frozenset[str]) -> Any:
        """Return the learner of those parameters in ``names`` that can be learned, or None.

        The result is None if no parameter can be learned.
        """
        # The prior of covariances cannot be learned from one covariance that components share.
        has_shared_covariance = component.without_shared_globals is not component
        if has_shared_covariance:
            names -= {"covariance_prior", "degrees_of_freedom_prior"}
        prior = get_gaussian_prior(component)
        if prior.mean.size == 0:
            names -= {"mean_prior", "mean_precision_prior"}
        inverse_scale = prior.covariance
        is_matrix = np.ndim(inverse_scale) == 2
        variances = np.diagonal(inverse_scale) if is_matrix else np.atleast_1d(inverse_scale)
        # Steps of factor analysers are costly, because each needs an inner iteration.
        is_wide = is_matrix and component.n_features >= _MIN_COSTLY_COLUMNS
        is_costly = is_wide or component.covariance_type in LOW_RANK_TYPES
        most_steps = _N_STEPS_IF_COSTLY if is_costly else MAX_STEPS
        return cls(names, np.sqrt(variances), most_steps) if names else None

    def prior_of(self, component: Any) -> GaussianPrior:
        """Return the parameters of the component's prior; the mean is relative to the center."""
        return get_gaussian_prior(component)

    def with_prior(self, component: Any, prior: GaussianPrior) -> Any:
        """Return the component with this prior."""
        return replace(component, prior=natural_prior(component.covariance_type, prior))

    def count_rows(self, component: Any, sums: Array) -> Array:
        """Return the number of rows of each component, (K,).

        Each row adds 1 to kappa of a component. If values are missing, kappa differs between
        columns, and the largest one counts.
        """
        prior_kappa, kappa = (
            component.family.to_standard(eta)["mean_precision"]
            for eta in (component.prior, component.natural_parameters(sums))
        )
        return (kappa - prior_kappa).reshape(len(sums), -1).max(axis=1)

    def count_columns(self, component: Any) -> int:
        """Return the number of columns that the component describes; subclasses override this."""
        return component.n_features

    def select_informative(self, component: Any, sums: Array) -> Array:
        """Return ``sums`` (K, P), without components of one row if there are few rows per column.

        With such a component, the prior's mean could move to its only row while the inverse scale
        shrinks to its lower limit. If the inverse scale shrinks by a factor f, the evidence of this
        row grows by log(f) / 2 in each column. If columns are independent, the other components
        lose almost no evidence.
        """
        if not {"mean_prior", "covariance_prior"} <= self.names:
            return sums
        n_rows = self.count_rows(component, sums)
        if n_rows.sum() > MIN_ROWS_PER_COLUMN_OF_SCALE * self.count_columns(component):
            return sums
        return sums[n_rows > MAX_ROWS_OF_SINGLE]

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence, see :class:`PriorLearner`.

        In factor analysers, q is the result of an iteration. ``component.trial(sums)`` is a copy
        for trials of priors: under each prior, its iteration starts from the last q. Only the prior
        of the copy is kept.
        """
        if component.covariance_type not in LOW_RANK_TYPES:
            return super().learn_prior(component, sums)
        prior = super().learn_prior(component.trial(sums), sums).prior
        return component if prior is component.prior else replace(component, prior=prior)

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters by name; the mean is in the coordinates of the data."""
        prior = get_gaussian_prior(component)
        values = prior._replace(mean=component.center + prior.mean).by_name()
        return {name: value for name, value in values.items() if name in self.names}

    def parameters(self, component: Any) -> Array:
        """Return all parameters of the prior as the vector x, see :meth:`_make_vector`."""
        return self._make_vector(self.prior_of(component))

    def _make_vector(self, prior: GaussianPrior) -> Array:
        """Return all parameters as the vector x, including parameters that are not learned.

        The entries of x are the mean, log kappa, log(nu - lower limit) and the Cholesky factor of
        W^-1 with its diagonal in logarithms. The entries have no limits, as an ascent requires.
        """
        m, kappa, nu, inverse_scale = prior
        log_excess = np.log(nu - get_min_freedom(inverse_scale))
        log_factor = compute_log_cholesky(inverse_scale)
        return np.concatenate([np.ravel(m), np.log(np.ravel(kappa)), [log_excess], log_factor])

    def with_parameters(self, component: Any, x: Array) -> Any:
        """Return the component with the learned parameters of the vector x, moved within limits.

        Parameters that are not learned stay as they are.
        """
        m, kappa, nu, inverse_scale = self.prior_of(component)
        min_nu = get_min_freedom(inverse_scale)
        # Split the vector, see `_make_vector`.
        ends = np.cumsum([np.size(m), np.size(kappa), 1])
        mean, log_kappa, (log_excess,), log_factor = np.split(x, ends)
        if "mean_prior" in self.names:
            m = mean.reshape(m.shape)
        if "mean_precision_prior" in self.names:
            # There is one kappa or, in regressions, one of means and one of slopes.
            ranges = KAPPA_RANGES[: log_kappa.size]
            kappas = np.exp([*map(clip_log, log_kappa, ranges)])
            kappa = kappas.reshape(np.shape(kappa))
        if "degrees_of_freedom_prior" in self.names:
            limits = freedom_limits(self.count_columns(component), min_nu)
            nu = min_nu + float(np.exp(clip_log(log_excess, limits)))
        if "covariance_prior" in self.names:
            inverse_scale = convert_to_inverse_scale(log_factor, inverse_scale, self.unit)
        return self.with_prior(component, GaussianPrior(m, kappa, nu, inverse_scale))

    def step(self, component: Any, sums: Array) -> Array:
        """Return the vector of parameters that maximise the bound at fixed q.

        ``sums`` (K, P) are the sums of features of the components. The module docstring has the
        equations.
        """
        m, kappa, nu, inverse_scale = get_gaussian_prior(component)
        log_det, precision, linear, square = _average_over_components(component, sums)
        is_matrix = precision.ndim == 2
        # Learn the mean, and then how many rows it counts as.
        if "mean_prior" in self.names:
            m = np.linalg.solve(precision, linear) if is_matrix else linear / precision
        if "mean_precision_prior" in self.names:
            precision_m = precision @ m if is_matrix else precision * m
            # Rounding of large means can make the squared distance 0 or negative.
            squared_distance = float(square + m @ (precision_m - 2.0 * linear))
            squared_distance = max(squared_distance, MIN_SQUARED_DISTANCE)
            kappa = component.n_features / squared_distance
        # Learn the degrees of freedom, and then the inverse scale. In factor analysers, which have
        # loadings, both describe the noise, whose covariance is diagonal.
        has_factors = "loadings" in component.family.to_standard(component.prior)
        if has_factors:
            log_det, precision = component.noise(component.natural_parameters(sums))
        prior = GaussianPrior(m, kappa, nu, inverse_scale)
        return self.finish_step(component, prior, log_det, precision, sums)

    def finish_step(
        self, component: Any, prior: GaussianPrior, log_det: float, precision: Array, sums: Array
    ) -> Array:
        """Return the vector of parameters after the step for nu and W^-1.

        :meth:`step` calls this method, also in subclasses with another step for the mean. ``prior``
        has the mean and kappa after their step. ``log_det`` is the average of E[log|Lambda|], and
        ``precision`` is the average of E[Lambda] or of its diagonal.
        """
        m, kappa, nu, inverse_scale = prior
        is_matrix, learns_scale = precision.ndim == 2, "covariance_prior" in self.names
        if learns_scale and is_matrix:
            # Column 0 of the sums is the number of rows if precisions are matrices.
            precision = diagonal_if_few_rows(precision, float(sums[:, 0].sum()))
        if "degrees_of_freedom_prior" in self.names:
            limits = freedom_limits(self.count_columns(component), get_min_freedom(inverse_scale))
            # If the inverse scale is learned, too, None stands for the best one given nu.
            nu = find_freedom(log_det, precision, None if learns_scale else inverse_scale, limits)
        if learns_scale:
            inverse_scale = nu * np.linalg.inv(precision) if is_matrix else nu / precision
            # The inverse of a matrix is symmetric only up to rounding. Vectors do not change here.
            inverse_scale = 0.5 * (inverse_scale + inverse_scale.T)
        return self._make_vector(GaussianPrior(m, kappa, nu, inverse_scale))


def convert_to_inverse_scale(x: Array, previous: Any, unit: Array) -> Any:
    """Return the inverse scale of which x is the result of :func:`compute_log_cholesky`.

    Its eigenvalues are raised to their lower limit, in the units ``unit`` of the columns, see
    :class:`GaussianLearner`. The result has the shape of ``previous``.
    """
    if np.ndim(previous) < 2:
        return np.maximum(np.exp(2.0 * x), MIN_RELATIVE_SCALE * unit**2).reshape(np.shape(previous))
    D = unit.size
    factor = np.tril(triangle.unpack(x))
    factor[np.diag_indices(D)] = np.exp(np.diagonal(factor))
    inverse_scale = factor @ factor.T
    standardised = inverse_scale / unit[:, None] / unit
    # A Cholesky factorisation succeeds if all eigenvalues are above the limit. It is tried first,
    # because the computation of eigenvalues takes much longer.
    try:
        np.linalg.cholesky(standardised - MIN_RELATIVE_SCALE * np.eye(D))
        return inverse_scale
    except np.linalg.LinAlgError:
        eigenvalues, directions = np.linalg.eigh(standardised)
    directions = unit[:, None] * directions
    return (directions * np.maximum(eigenvalues, MIN_RELATIVE_SCALE)) @ directions.T


def get_gaussian_prior(component: Any) -> GaussianPrior:
    """Return the parameters of a Gaussian component's prior.

    The mean is relative to the center of the component. The mean and kappa are empty arrays if
    components have mean zero.
    """
    standard = component.family.to_standard(component.prior)
    mean: Any = np.empty(0)
    kappa: Any = np.empty(0)
    if "mean" in standard:
        mean = standard["mean"].reshape(-1)
        kappa = float(standard["mean_precision"].reshape(-1)[0])
    if "degrees_of_freedom" in standard:
        nu = float(standard["degrees_of_freedom"])
        return GaussianPrior(mean, kappa, nu, standard["scale_inverse"])
    # The gamma of a precision has the shape nu / 2 and the rate W^-1 / 2.
    nu = 2.0 * float(np.reshape(standard["shape"], -1)[0])
    inverse_scale = 2.0 * standard["rate"]
    if np.ndim(inverse_scale) == 0:
        inverse_scale = float(inverse_scale)
    return GaussianPrior(mean, kappa, nu, inverse_scale)


def _average_over_components(component: Any, sums: Array) -> tuple[Any, Array, Any, Any]:
    """Average E[log|Lambda|], E[Lambda], E[Lambda mu] and E[mu' Lambda mu] over components.

    E[Lambda] is (D, D), or its diagonal (D,). The last two results are None for a Gaussian with
    mean zero.
    """
    # The expected sufficient statistics of q, averaged over components.
    t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
    D = component.n_features
    standard = component.family.to_standard(component.prior)
    if "degrees_of_freedom" in standard or "loadings" in standard:
        # t is (log|Lambda| / 2, -mu' Lambda mu / 2, Lambda mu, triangle), and without means
        # (log|Lambda| / 2, triangle). The triangle is the upper triangle of -Lambda with its
        # diagonal halved.
        has_means = "mean" in standard
        triangle_start = 2 + D if has_means else 1
        precision = triangle.unpack_statistic(t[triangle_start:])
        linear, square = (t[2:triangle_start], -2.0 * t[1]) if has_means else (None, None)
        return 2.0 * t[0], precision, linear, square
    # Columns are independent. A normal-gamma with D' means has t = (log(lambda) / 2, -lambda / 2,
    # lambda mu (D',), -lambda mu^2 / 2 (D',)). t has an axis of columns, in which D' is 1, or none
    # if columns share one precision.
    log_det, precision = 2.0 * t[..., 0].sum(), np.atleast_1d(-2.0 * t[..., 1])
    n_means = (t.shape[-1] - 2) // 2
    linear = t[..., 2 : 2 + n_means].reshape(-1)
    return log_det, precision, linear, -2.0 * t[..., 2 + n_means :].sum()


def compute_log_cholesky(inverse_scale: Any) -> Array:
    """Return the Cholesky factor of an inverse scale as a vector, with its diagonal in logarithms.

    A vector or a number stands for a diagonal matrix. The result is then half the logarithm of the
    diagonal.
    """
    if np.ndim(inverse_scale) < 2:
        return 0.5 * np.log(np.atleast_1d(inverse_scale))
    factor = np.linalg.cholesky(inverse_scale)
    factor[np.diag_indices(len(factor))] = np.log(np.diagonal(factor))
    return triangle.pack(factor.T)


def learner_matches(learner: Any, component: Any) -> bool:
    """Return whether a learner from a file has the shapes of the component from the same file.

    Learners of products of blocks are checked block by block. This function checks only the
    learners of Gaussians.
    """
    if type(learner) is ValuesLearner:
        learner = learner.for_blocks(component)
    if type(learner) is ProductLearner:
        blocks = zip(learner.learners, component.blocks, strict=True)
        return all(learner_matches(learner_b, block.component) for learner_b, block in blocks)
    legal_shapes = (component.n_features,), (1,)
    return type(learner) is not GaussianLearner or learner.unit.shape in legal_shapes
