"""Gaussians with ordinal columns, whose latent values are known only to lie in intervals.

The value of a row in an ordinal column is a level, which says in which interval a latent real value
lies. Given the component, real and latent values of a row are jointly Gaussian, so that an ordinal
column may be correlated with all other columns. All components share the ends of the intervals. The
local step uses the posterior q of latent values in :mod:`skvt.models.mixture._ordinal`. Predictive
densities need the probability under a Student t of a box, which is the product of the intervals of
a row, see :mod:`skvt.models.mixture._boxes`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skvt.contracts import Completion
from skvt.files import in_files
from skvt.models.mixture._boxes import (
    BoxSample,
    LatentStudent,
    compute_interval_probability,
    conditional_roots,
    make_sobol_points,
    sample_box,
)
from skvt.models.mixture._gaussian_prior import (
    DEFAULT_PRIOR,
    GaussianPrior,
    addition_to_squares,
    complete_prior,
    diagonal_if_few_rows,
    natural_prior,
    rounding_variance,
    weighted_moments,
)
from skvt.models.mixture._missing import GaussianCompletion
from skvt.models.mixture._ordinal import Cells, OrdinalCompletion
from skvt.models.mixture._tied import TiedGaussian
from skvt.models.mixture.components import (
    ConjugateComponent,
    FullGaussian,
    GaussianRowFits,
    compute_squared_distances,
    draw_positions,
    full_features,
    student_t_log_density,
)
from skvt.rows import map_rows, sums_of_rows
from skvt.ties import stable_argmax
from skvt.typing import Array, IndexArray


@in_files("models.LatentGaussian")
@dataclass(frozen=True)
class LatentGaussian(FullGaussian):
    """N(mu_k, Lambda_k^-1) of real and latent values, with a normal-Wishart prior.

    The fields, natural parameters and statistics are those of :class:`FullGaussian`. The center of
    ordinal columns is 0. The score of an ordinal value is the mean of a standard normal that is
    truncated to the interval of the value. The arguments ``lam`` (K, E) of methods are natural
    parameters of q of K components.
    """

    # Ordinal columns and the intervals of their levels.
    cells: Cells = field(kw_only=True)

    def features(self, X: Any) -> Any:
        """Return ``[1, x, upper triangle of x x']`` with 0 in place of ordinal values.

        All features that involve an ordinal column are thus 0, and the completion adds them.
        A missing value stays NaN, which `full_features` treats as missing.
        """
        rows = self._centred(X)
        columns = self.cells.columns
        rows[:, columns] = np.where(np.isnan(rows[:, columns]), np.nan, 0.0)
        return full_features(rows, self.added, with_linear=True)

    def completion(self, table: Array) -> Completion | None:
        """Return a function that finds q of missing and latent values, given the table (K, P)."""
        return OrdinalCompletion(self.center, table, self.cells).holes

    def filled(self, X: Any) -> Any:
        """Return rows whose missing values are conditional means under the prior.

        A missing ordinal value is the level in whose interval the conditional mean lies.
        """
        return np.where(np.isnan(X), self.cells.with_levels(self._complete_scores(X)), X)

    # Use the methods of the base class, which sum the result of `features`. The methods of
    # `FullGaussian` read the rows themselves, and would take levels for known real values.
    log_densities_and_sums = ConjugateComponent.log_densities_and_sums
    weighted_sums = ConjugateComponent.weighted_sums

    def filled_features(self, X: Any) -> Any:
        """Return features of rows with scores in place of latent values."""
        return full_features(self._complete_scores(X) - self.center, self.added, with_linear=True)

    def row_fits(self, X: Any) -> GaussianRowFits:
        """Return fits of rows with scores in place of latent values."""
        return GaussianRowFits(self, self._complete_scores(X) - self.center)

    def _complete_scores(self, X: Any) -> Array:
        """Return rows with scores for ordinal values and conditional means for missing values."""
        rows = self.cells.with_scores(X)
        # The first result is for the only component, the prior.
        return super().conditional_mean(rows, self.prior[None])[0]

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of real values plus log probabilities of intervals, (n, K)."""
        if self.cells.columns.size > 1:
            samples = self._sample_boxes(X, lam)
            return np.stack([sample.log_probability for sample in samples], axis=1)
        # The probability of a single interval needs no draws.
        columns = np.broadcast_to(self.cells.columns, (X.shape[0], 1))
        log_densities, students = self._condition_on_reals(X, lam, columns)
        bounds = self.cells.find_intervals(X)
        probabilities = [compute_interval_probability(student, bounds) for student in students]
        return log_densities + np.stack(probabilities, axis=1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows with means, or most probable levels, for missing values, (K, n, D)."""
        # Impute under each component alone.
        memberships = np.ones((X.shape[0], 1))
        return np.stack([self.imputed(X, lam[[k]], memberships) for k in range(len(lam))])

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by means, and by most probable levels in ordinal columns.

        ``memberships`` (n, K) are the probabilities of the components.
        """
        # Average the means (n, D) and the probabilities (n, J, C) of levels over components, where
        # C is the largest number of levels of a column. One zero broadcasts to (n, J, C).
        mean, probabilities = np.zeros(X.shape), np.zeros(1)
        for k, sample in enumerate(self._sample_boxes(X, lam, with_levels=True)):
            # Insert the means of the weighted draws s of latent values. They suffice, because the
            # means of missing real values are linear in the latent values.
            latent = np.einsum("ns,nsj->nj", sample.weights, sample.draws)
            rows = super().conditional_mean(self._insert_latent(X, latent), lam[[k]])[0]
            mean += memberships[:, [k]] * rows
            probabilities = probabilities + memberships[:, k, None, None] * sample.probabilities
        for j, levels in enumerate(self.cells.levels):
            mean[:, self.cells.columns[j]] = levels[stable_argmax(probabilities[:, j])]
        return np.where(np.isnan(X), mean, X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw latent values by importance resampling, then missing values given latent values."""
        (sample,) = self._sample_boxes(X, lam[None], rng)
        latent = sample.draws[np.arange(X.shape[0]), draw_positions(sample.weights, rng)]
        rows = super().conditional_sample(self._insert_latent(X, latent), lam, rng)
        return np.where(np.isnan(X), self.cells.with_levels(rows), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the predictive Student t, with ordinal columns at their levels."""
        return self.cells.with_levels(super().sample(lam, n_rows, rng))

    def _insert_latent(self, X: Any, values: Array) -> Array:
        """Return rows with ``values`` (n, J) in the ordinal columns."""
        rows = np.array(X, np.float64)
        rows[:, self.cells.columns] = values
        return rows

    def _condition_on_reals(
        self, X: Any, lam: Array, columns: IndexArray
    ) -> tuple[Array, list[LatentStudent]]:
        """Return log densities of real values, and the latent values given real values.

        The log densities are (n, K). The latent values of each row, in the order of its ``columns``
        (n, J), have a Student t in each of the K components.
        """
        # Ordinal values are treated as missing.
        latent = np.full((X.shape[0], self.cells.columns.size), np.nan)
        real_rows = self._insert_latent(X, latent) - self.center
        mean, scale, freedom = self._compute_student_t(lam)
        log_densities = student_t_log_density(real_rows, mean, scale, freedom)
        holes = GaussianCompletion.from_scale(0.0, mean, scale).holes(real_rows, np.ones(1))
        # Values are missing in all rows, because ordinal columns are NaN in ``real_rows``.
        assert holes is not None
        n_real = X.shape[1] - holes.is_missing.sum(axis=1)
        students = []
        for k in range(len(lam)):
            # The location of the latent values is their mean given the real values.
            rows = holes.filled(k)
            distance = compute_squared_distances(rows, mean[k], np.linalg.cholesky(scale[k]))
            precision, conditional_freedom = holes.completion.precision[k], freedom[k] + n_real
            students.append(LatentStudent(
                location=np.take_along_axis(rows, columns, axis=1),
                root=conditional_roots(precision, hidden=holes.is_missing, columns=columns),
                scale=np.sqrt((1.0 + distance) / conditional_freedom),
                freedom=conditional_freedom,
            ))  # fmt: skip
        return log_densities, students

    def _sample_boxes(
        self,
        X: Any,
        lam: Array,
        rng: np.random.Generator | None = None,
        *,
        with_levels: bool = False,
    ) -> list[BoxSample]:
        """Sample latent values in the box of each row under the predictive of each component.

        Returns one sample of all rows for each component. The log probabilities include the log
        density of the real values. Samples are computed from random points if ``rng`` is not None,
        and otherwise from the points of a Sobol sequence. Only ``with_levels`` have samples the
        probabilities of levels, which take most of the time.
        """
        cells = self.cells
        # In each row, put the ordinal columns with missing values last, because `sample_box` draws
        # one column after the other, given the columns before it.
        order = np.argsort(cells.encode(X) < 0, axis=1, kind="stable")
        log_densities, students = self._condition_on_reals(X, lam, cells.columns[order])
        # (n, 1): indices of rows that broadcast with the columns (n, J).
        row_numbers = np.arange(len(order))[:, None]
        low, high = (bound[row_numbers, order] for bound in cells.find_intervals(X))
        points = make_sobol_points(cells.columns.size + 1)
        if rng is not None:
            points = rng.random((len(order), *points.shape))
        inverse_order = np.argsort(order, axis=1)
        edges = cells.padded_edges[order] if with_levels else None
        boxes = []
        for k, student in enumerate(students):
            sample = sample_box(student, (low, high), edges, points)
            # Add the density of the real values, and put the columns back into their order.
            boxes.append(sample._replace(
                log_probability=log_densities[:, k] + sample.log_probability,
                draws=np.take_along_axis(sample.draws, inverse_order[:, None], axis=2),
                probabilities=sample.probabilities[row_numbers, inverse_order],
            ))  # fmt: skip
        return boxes


@in_files("models.TiedLatentGaussian")
@dataclass(frozen=True)
class TiedLatentGaussian(LatentGaussian, TiedGaussian):
    """N(mu_k, Lambda^-1) of real and latent values, with one Lambda for all components."""

    @property
    def without_shared_globals(self) -> LatentGaussian:
        return LatentGaussian(self.prior, self.center, self.dtype, self.added, cells=self.cells)


# The components with ordinal columns.
LATENT_GAUSSIAN_CLASSES = LatentGaussian, TiedLatentGaussian


def make_latent_gaussian_component(
    X: Any, weights: Any, covariance_type: str, cells: Cells,
    prior: GaussianPrior = DEFAULT_PRIOR,
) -> tuple[LatentGaussian | TiedLatentGaussian, dict[str, Any]]:  # fmt: skip
    """Return the component for rows X of ``weights`` (n,), and its prior's parameters by name.

    Parameters that are None in ``prior`` are derived from the data as in
    :func:`~skvt.models.mixture.make_gaussian_component`. For the derivation, each ordinal value is
    replaced by its score. The variance of the scores plus the mean variance of a standard normal
    within the intervals is the variance of the column.
    """
    ordinal_columns = cells.columns
    rows = map_rows(X, cells.with_scores)
    center, moment = weighted_moments(rows, weights, "full")
    center[ordinal_columns] = 0.0
    variance_sums, weight_sums = sums_of_rows(X, weights, cells.sum_variances_within)
    moment[ordinal_columns, ordinal_columns] += np.divide(
        variance_sums, weight_sums, out=np.ones_like(variance_sums), where=weight_sums > 0
    )
    default_moment = diagonal_if_few_rows(moment, weights.sum())
    prior = complete_prior(prior, covariance_type, center, default_moment, error_moment=0.0)
    # Natural parameters are relative to the center.
    eta = natural_prior(covariance_type, prior._replace(mean=prior.mean - center))
    errors = rounding_variance(X, weights)
    errors[ordinal_columns] = 0.0
    added_squares = addition_to_squares(moment, errors, weights.sum())
    component_class = LatentGaussian if covariance_type == "full" else TiedLatentGaussian
    return component_class(eta, center, X.dtype, added_squares, cells=cells), prior.by_name()
