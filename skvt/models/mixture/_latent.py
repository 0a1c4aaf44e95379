"""Gaussians with ordinal columns: of a latent value, only the interval is seen.

Given the component, a row of latent values is Gaussian, so that there are correlations within a
component between ordinal and real columns, and among ordinal ones. The ends of the intervals are
the same in all components. Fits go by the q of :mod:`skvt.models.mixture._ordinal`; predictive
densities need the probability of a box under a Student t, :mod:`skvt.models.mixture._boxes`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skvt.contracts import Completion
from skvt.models.mixture._boxes import Box, LatentValues, box, points, roots
from skvt.models.mixture._gaussian_prior import (
    DEFAULTS,
    GaussianPrior,
    added_to_squares,
    default_scale,
    determined,
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
    student_t,
)
from skvt.rows import mapped, sums_of_rows
from skvt.ties import stable_argmax
from skvt.typing import Array


@dataclass(frozen=True)
class LatentGaussian(FullGaussian):
    """N(mu_k, Lambda_k^-1) of latent values, normal-Wishart prior.

    Parameters are those of :class:`FullGaussian`, whose statistics it has, with 0 for the center of
    ordinal columns.
    """

    # The ordinal columns and their intervals.
    cells: Cells = field(kw_only=True)

    def features(self, X: Any) -> Any:
        """``[1, x, upper triangle of x x']``, 0 for x in ordinal columns."""
        rows = self._centred(X)
        columns = self.cells.columns
        rows[:, columns] = np.where(np.isnan(rows[:, columns]), np.nan, 0.0)
        return full_features(rows, True, self.added)

    def completion(self, table: Array) -> Completion | None:
        return OrdinalCompletion(self.center, table, self.cells).holes

    def filled(self, X: Any) -> Any:
        """A copy of the rows with missing values at their mean under the prior."""
        return np.where(np.isnan(X), self.cells.with_levels(self._at_scores(X)), X)

    explain, weighted_sums = ConjugateComponent.explain, ConjugateComponent.weighted_sums

    def filled_features(self, X: Any) -> Any:
        """Of rows with latent values at the mean of a standard normal in their interval."""
        return full_features(self._at_scores(X) - self.center, True, self.added)

    def row_fits(self, X: Any) -> GaussianRowFits:
        """Of such rows."""
        return GaussianRowFits(self, self._at_scores(X) - self.center)

    def _at_scores(self, X: Any) -> Array:
        rows = self._with_latent(X, self.cells.scores(X))
        # (of latent values, by the prior of all columns together)
        return super().conditional_mean(rows, self.prior[None])[0]

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Student t of the real values, times the probability of the others' intervals."""
        return np.stack([seen.log_probability for seen in self._seen(X, lam)], axis=1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Missing values at their means, ordinal ones at the most probable level, (K, n, D)."""
        one = np.ones((X.shape[0], 1))
        return np.stack([self.imputed(X, lam[[k]], one) for k in range(len(lam))])

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        mean, levels = np.zeros(X.shape), np.zeros(1)
        for k, seen in enumerate(self._seen(X, lam)):
            # means of missing real values are linear in the latent ones
            latent = np.einsum("ns,nsj->nj", seen.weights, seen.draws)
            rows = super().conditional_mean(self._with_latent(X, latent), lam[[k]])[0]
            mean += memberships[:, [k]] * rows
            levels = levels + memberships[:, k, None, None] * seen.probabilities
        for place, j in enumerate(self.cells.columns):
            mean[:, j] = self.cells.levels[place][stable_argmax(levels[:, place])]
        return np.where(np.isnan(X), mean, X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Missing values drawn: latent values by importance resampling, the others given these."""
        (seen,) = self._seen(X, lam[None], rng)
        below = seen.weights.cumsum(axis=1)
        drawn = (below < rng.random((len(below), 1)) * below[:, -1:]).sum(axis=1)
        latent = seen.draws[np.arange(len(drawn)), drawn]
        rows = super().conditional_sample(self._with_latent(X, latent), lam, rng)
        return np.where(np.isnan(X), self.cells.with_levels(rows), X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of that Student t, ordinal columns at their levels."""
        return self.cells.with_levels(super().sample(lam, n_rows, rng))

    def _with_latent(self, X: Any, values: Array) -> Array:
        """Rows with these values (n, J) in the ordinal columns."""
        rows = np.array(X, np.float64)
        rows[:, self.cells.columns] = values
        return rows

    def _seen(self, X: Any, lam: Array, rng: np.random.Generator | None = None) -> list[Box]:
        """Rows under each component's predictive, real values too; random draws by a generator."""
        cells, n_columns = self.cells, self.cells.columns.size
        real = self._with_latent(X, np.full((X.shape[0], n_columns), np.nan)) - self.center
        mean, scale, freedom = self._student(lam)
        density = student_t(real, mean, scale, freedom)
        holes = GaussianCompletion.of_scale(0.0, mean, scale).holes(real, np.ones(1))
        assert holes is not None  # (no row is without ordinal columns)
        n_known = X.shape[1] - holes.missing.sum(axis=1)
        # missing ones last, whose probabilities are then those given all the rest
        order = np.argsort(cells.codes(X) < 0, axis=1, kind="stable")
        columns, row = cells.columns[order], np.arange(len(order))[:, None]
        bounds = tuple(bound[row, order] for bound in cells.intervals(X))
        uniform = points(n_columns + 1)
        if rng is not None:
            uniform = rng.random((len(order), *uniform.shape))
        back, found = np.argsort(order, axis=1), []
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
            own = box(values, (bounds[0], bounds[1]), cells.padded_edges[order], uniform)
            found.append(
                own._replace(
                    log_probability=density[:, k] + own.log_probability,
                    draws=np.take_along_axis(own.draws, back[:, None], axis=2),
                    probabilities=own.probabilities[row, back],
                )
            )
        return found


@dataclass(frozen=True)
class TiedLatentGaussian(LatentGaussian, TiedGaussian):
    """N(mu_k, Lambda^-1) of latent values with one Lambda; see :class:`LatentGaussian`."""

    @property
    def alone(self) -> LatentGaussian:
        return LatentGaussian(self.prior, self.center, self.dtype, self.added, cells=self.cells)


def latent_gaussian(
    X: Any, weights: Any, covariance_type: str, cells: Cells,
    given: GaussianPrior = DEFAULTS,
) -> tuple[LatentGaussian | TiedLatentGaussian, dict[str, Any]]:  # fmt: skip
    """The component and the prior's parameters as used, None replaced by defaults of the data.

    As :func:`~skvt.models.mixture.gaussian_component`; defaults are of rows with each ordinal value
    at the mean of its interval under a standard normal, the variance within added.
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
        given = given._replace(covariance=default_scale(determined(moment, weights.sum())))
    plain, priors = gaussian_component(rows, weights, covariance_type, False, given)
    # (the plain one's center of an ordinal column is the mean of its scores)
    mean, *others = (priors[f"{name}_prior"] for name in given._fields)
    eta = natural_prior(plain, GaussianPrior(mean - center, *others))
    errors = rounding_variance(X, weights)
    errors[ordinal] = 0.0
    added = added_to_squares(moment, errors, weights.sum())
    kind = LatentGaussian if covariance_type == "full" else TiedLatentGaussian
    return kind(eta, center, X.dtype, added, cells=cells), priors
