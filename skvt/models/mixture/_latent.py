"""Gaussians with ordinal columns: only the interval of a latent value is observed.

Given the component, a row of latent values is Gaussian, so that ordinal columns are correlated with
real and with other ordinal columns within a component. All components share the ends of the
intervals. Fits use the q of :mod:`skvt.models.mixture._ordinal`. Predictive densities need the
probability of a box under a Student t, see :mod:`skvt.models.mixture._boxes`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skvt.contracts import Completion
from skvt.files import in_files
from skvt.models.mixture._boxes import Box, LatentValues, box, points, roots
from skvt.models.mixture._gaussian_prior import (
    DEFAULTS,
    GaussianPrior,
    addition_to_squares,
    default_scale,
    diagonal_if_few_rows,
    gaussian_component,
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
    full_features,
    squared_distances,
    student_t_log_density,
)
from skvt.rows import mapped, sums_of_rows
from skvt.ties import stable_argmax
from skvt.typing import Array


@in_files("models.LatentGaussian")
@dataclass(frozen=True)
class LatentGaussian(FullGaussian):
    """N(mu_k, Lambda_k^-1) of latent values, normal-Wishart prior.

    Parameters and statistics are those of :class:`FullGaussian`; the center of ordinal columns is
    0.
    """

    # The ordinal columns and their intervals.
    cells: Cells = field(kw_only=True)

    def features(self, X: Any) -> Any:
        """Return ``[1, x, upper triangle of x x']`` with x = 0 in ordinal columns."""
        rows = self._centred(X)
        columns = self.cells.columns
        rows[:, columns] = np.where(np.isnan(rows[:, columns]), np.nan, 0.0)
        return full_features(rows, True, self.added)

    def completion(self, table: Array) -> Completion | None:
        return OrdinalCompletion(self.center, table, self.cells).holes

    def filled(self, X: Any) -> Any:
        """Return a copy of the rows with missing values at their mean under the prior."""
        return np.where(np.isnan(X), self.cells.with_levels(self._at_scores(X)), X)

    explain, weighted_sums = ConjugateComponent.explain, ConjugateComponent.weighted_sums

    def filled_features(self, X: Any) -> Any:
        """Return features with latent values at the mean of a standard normal in their interval."""
        return full_features(self._at_scores(X) - self.center, True, self.added)

    def row_fits(self, X: Any) -> GaussianRowFits:
        """Return fits of rows with the same latent values as in :meth:`filled_features`."""
        return GaussianRowFits(self, self._at_scores(X) - self.center)

    def _at_scores(self, X: Any) -> Array:
        rows = self._with_latent(X, self.cells.scores(X))
        # missing values are at their conditional means under the prior
        return super().conditional_mean(rows, self.prior[None])[0]

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of real values plus log probabilities of intervals, (n, K)."""
        return np.stack([seen.log_probability for seen in self._seen(X, lam)], axis=1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return missing values at their means, or at the most probable level, (K, n, D)."""
        one = np.ones((X.shape[0], 1))
        return np.stack([self.imputed(X, lam[[k]], one) for k in range(len(lam))])

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        mean, levels = np.zeros(X.shape), np.zeros(1)
        for k, seen in enumerate(self._seen(X, lam)):
            # means of missing real values are linear in the latent values
            latent = np.einsum("ns,nsj->nj", seen.weights, seen.draws)
            rows = super().conditional_mean(self._with_latent(X, latent), lam[[k]])[0]
            mean += memberships[:, [k]] * rows
            levels = levels + memberships[:, k, None, None] * seen.probabilities
        for ordinal, j in enumerate(self.cells.columns):
            mean[:, j] = self.cells.levels[ordinal][stable_argmax(levels[:, ordinal])]
        return np.where(np.isnan(X), mean, X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw latent values by importance resampling, then missing values given these."""
        (seen,) = self._seen(X, lam[None], rng)
        below = seen.weights.cumsum(axis=1)
        drawn = (below < rng.random((len(below), 1)) * below[:, -1:]).sum(axis=1)
        latent = seen.draws[np.arange(len(drawn)), drawn]
        rows = super().conditional_sample(self._with_latent(X, latent), lam, rng)
        return np.where(np.isnan(X), self.cells.with_levels(rows), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the predictive Student t, with ordinal columns at their levels."""
        return self.cells.with_levels(super().sample(lam, n_rows, rng))

    def _with_latent(self, X: Any, values: Array) -> Array:
        """Return the rows with these values (n, J) in the ordinal columns."""
        rows = np.array(X, np.float64)
        rows[:, self.cells.columns] = values
        return rows

    def _seen(self, X: Any, lam: Array, rng: np.random.Generator | None = None) -> list[Box]:
        """Sample the box of each row's intervals under each component's predictive.

        The log probabilities include the density of the real values. Points are those of a Sobol
        sequence, or random if a generator is passed.
        """
        cells, n_columns = self.cells, self.cells.columns.size
        real = self._with_latent(X, np.full((X.shape[0], n_columns), np.nan)) - self.center
        mean, scale, freedom = self._student(lam)
        density = student_t_log_density(real, mean, scale, freedom)
        holes = GaussianCompletion.from_scale(0.0, mean, scale).holes(real, np.ones(1))
        assert holes is not None  # each row has NaN in ordinal columns
        n_known = X.shape[1] - holes.missing.sum(axis=1)
        # sort missing values last, so that their probabilities are conditional on all others
        order = np.argsort(cells.codes(X) < 0, axis=1, kind="stable")
        columns, row = cells.columns[order], np.arange(len(order))[:, None]
        bounds = tuple(bound[row, order] for bound in cells.intervals(X))
        uniform = points(n_columns + 1)
        if rng is not None:
            uniform = rng.random((len(order), *uniform.shape))
        inverse, boxes = np.argsort(order, axis=1), []
        for k in range(len(lam)):
            latent = holes.filled(k)
            distance = squared_distances(latent, mean[k], np.linalg.cholesky(scale[k]))
            degrees = freedom[k] + n_known
            values = LatentValues(
                latent[row, columns],
                roots(holes.completion.precision[k], holes.missing, columns),
                np.sqrt((1.0 + distance) / degrees),
                degrees,
            )
            sample = box(values, (bounds[0], bounds[1]), cells.padded_edges[order], uniform)
            boxes.append(
                sample._replace(
                    log_probability=density[:, k] + sample.log_probability,
                    draws=np.take_along_axis(sample.draws, inverse[:, None], axis=2),
                    probabilities=sample.probabilities[row, inverse],
                )
            )
        return boxes


@in_files("models.TiedLatentGaussian")
@dataclass(frozen=True)
class TiedLatentGaussian(LatentGaussian, TiedGaussian):
    """N(mu_k, Lambda^-1) of latent values with one Lambda; see :class:`LatentGaussian`."""

    @property
    def alone(self) -> LatentGaussian:
        return LatentGaussian(self.prior, self.center, self.dtype, self.added, cells=self.cells)


LATENT_GAUSSIANS = LatentGaussian, TiedLatentGaussian


def latent_gaussian(
    X: Any, weights: Any, covariance_type: str, cells: Cells,
    given: GaussianPrior = DEFAULTS,
) -> tuple[LatentGaussian | TiedLatentGaussian, dict[str, Any]]:  # fmt: skip
    """Return the component and its prior's parameters, None replaced by defaults of the data.

    See :func:`~skvt.models.mixture.gaussian_component`. For the defaults each ordinal value is at
    the mean of its interval under a standard normal; the variances within intervals are added.
    """
    ordinal = cells.columns
    rows = mapped(X, cells.with_scores)
    center, moment = weighted_moments(rows, weights, "full", False)
    center[ordinal] = 0.0
    total, number = sums_of_rows(X, weights, cells.variances_within)
    moment[ordinal, ordinal] += np.divide(total, number, out=np.ones_like(total), where=number > 0)
    if given.mean is None:
        given = given._replace(mean=center)
    if given.covariance is None:
        given = given._replace(
            covariance=default_scale(diagonal_if_few_rows(moment, weights.sum()))
        )
    plain, priors = gaussian_component(rows, weights, covariance_type, False, given)
    # the center of `plain` is the mean of scores in an ordinal column, here it is 0
    mean, *others = (priors[f"{name}_prior"] for name in given._fields)
    eta = natural_prior(plain, GaussianPrior(mean - center, *others))
    errors = rounding_variance(X, weights)
    errors[ordinal] = 0.0
    added = addition_to_squares(moment, errors, weights.sum())
    kind = LatentGaussian if covariance_type == "full" else TiedLatentGaussian
    return kind(eta, center, X.dtype, added, cells=cells), priors
