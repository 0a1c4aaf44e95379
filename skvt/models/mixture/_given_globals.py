"""Mixtures given their globals: the local steps of structured inference.

Globals are the weights w and the parameters phi of components. Locals are the assignments z of rows
to components. The posterior of structured inference, q(w, phi) q(z | w, phi), keeps the dependence
between globals and locals: weights and components are drawn from q(w, phi), and the
responsibilities are exact given the draw [HB15 sec. 2]. The posteriors of weights and of components
must be Dirichlet or beta distributions. Components are therefore Bernoulli or multinomial.

In shapes, K is the number of components and P the number of features of a row. ``lam`` are natural
parameters of q. The matrix M converts sums S of features to the form of natural parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from skvt.contracts import Capability, DrawnWeights, LocalResult, RowBatch, RowSource
from skvt.expfam import RunningStats, Stats, log_standard_gamma
from skvt.files import in_files
from skvt.models import Gammas, correct_statistics
from skvt.models.mixture._gaussian_learner import learner_matches
from skvt.models.mixture._model import Mixture
from skvt.typing import Array, Run

# Components are reordered if the evidence of the weights gains more than this number of nats, which
# is well above rounding.
MIN_GAIN = 1e-6


class DrawnGlobals(NamedTuple):
    """Weights and components on which a local step is conditioned."""

    # (K,): logarithms of the weights.
    log_weights: Array
    # (K, P): log densities of rows are products of their features (P,) and rows of this table.
    table: Array
    # Logarithms of the gamma variates of which weights and components were made by normalisation.
    # The two arrays have the shapes of ``lam`` of the weights and of the components.
    log_gammas: tuple[Array, ...]


@in_files("models.MixtureGivenGlobals")
@dataclass(frozen=True)
class MixtureGivenGlobals(Mixture):
    """A mixture for structured inference; the docstring of the module defines its posterior.

    The statistics of the weights have the form that ``weights.statistics`` returns. They need not
    be counts (K,), because there may be no counts from which corrected statistics follow.
    """

    weights: DrawnWeights

    capabilities = frozenset({Capability.DRAWABLE, Capability.CORRECTABLE})
    updates_all_rows = True

    def validate(self, d: int, k: int) -> bool:
        """Return whether the learner of priors from a file fits the component."""
        return learner_matches(self.learner, self.component)

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics of weights and of components."""
        _, component_shape = super().statistics_shapes(n_components)
        return [self.weights.statistics(np.zeros(n_components)).shape, component_shape]

    # ------------------------------------------------------------------------------- globals
    def drawn_globals(
        self, stats: RunningStats, batch: RowBatch, kind: str, rng: np.random.Generator, run: Run
    ) -> Any:
        """Return the globals for a local step, as log weights and a table of log densities.

        They are expected logarithms if ``kind`` is "mean_field", logarithms of expectations if
        ``kind`` is "map", and otherwise a draw from q, see :class:`~skvt.contracts.Drawable`.
        """
        if kind == "mean_field":
            return self.expectation(stats, batch, run)
        if kind == "map":
            return self.row_globals(stats, batch, run)
        log_gammas = tuple(log_standard_gamma(lam, rng) for lam in self.natural_parameters(stats))
        return DrawnGlobals(*self._normalise(log_gammas), log_gammas)

    def row_globals(self, stats: RunningStats, batch: RowBatch, run: Run) -> Any:
        """Return the globals at E[w] and E[phi], for the assignment of rows after the fit."""
        return self._normalise(np.log(lam) for lam in self.natural_parameters(stats))

    def _normalise(self, log_values: Iterable[Array]) -> tuple[Array, Array]:
        """Return log weights (K,) and the table (K, P) of the numbers ``exp(log_values)``.

        ``log_values`` has an array for the weights and one for the components. The numbers are
        normalised on the last axis.
        """
        log_sticks, log_components = (x - logsumexp(x, axis=-1, keepdims=True) for x in log_values)
        return self.weights.log_weights(log_sticks), self.component.table_at(log_components)

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return the corrected statistics ``V(beta, lam) eta_hat`` [HB15 eq. 7].

        The correction accounts for the dependence of the draw ``beta``, here ``global_params``, on
        lam. ``eta_hat`` are the statistics of a local step given the draw. Beta distributions are
        treated as Dirichlets of two entries.
        """
        weights, sums = result_stats.arrays
        # Convert the sums of components to the shape of their natural parameters.
        eta_hats = weights, self.component.natural_sums(sums)
        corrected = []
        for lam, log_gammas, eta_hat in zip(
            self.natural_parameters(stats), global_params.log_gammas, eta_hats, strict=True
        ):
            # :func:`correct_statistics` takes each Dirichlet as a column.
            arrays = lam, log_gammas, eta_hat
            shapes, logs, statistics = (array.reshape(-1, array.shape[-1]).T for array in arrays)
            corrected_columns = correct_statistics(shapes, Gammas.from_logs(logs), statistics, run)
            corrected.append(corrected_columns.T.reshape(eta_hat.shape))
        component: Any = self.component
        return Stats((corrected[0], component.feature_sums(corrected[1])))

    def project(self, stats: RunningStats) -> None:
        """Clip the statistics so that ``lam >= prior``, and sort the components, in place.

        Components are sorted if another order has a higher evidence of the weights. The evidence of
        stick-breaking weights depends on the order.
        """
        stats.clip()
        counts = self.component_masses(stats.as_stats())
        order = self.weights.order(counts)
        gain = self.weights.log_evidence(counts[order]) - self.weights.log_evidence(counts)
        if gain > MIN_GAIN:
            # The statistics are ``stats.arrays`` times ``stats.scale``.
            weights = self.weights.statistics(counts[order]) / stats.scale
            stats.overwrite([weights, stats.arrays[1][order]])

    def component_masses(self, stats: Stats) -> Array:
        """Return the expected number of rows of each component, (K,)."""
        # The statistics of weights are counts (K,), or pairs (K, 2) whose first column are counts.
        masses = super().component_masses(stats)
        return masses.reshape(len(masses), -1)[:, 0]

    # ---------------------------------------------------------------------------------- rows
    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return the initial statistics of a mixture, in the form of this model."""
        return RunningStats(self._convert_statistics(super().initial(data, rng).arrays))

    def _convert_statistics(self, arrays: Sequence[Array]) -> tuple[Array, Array]:
        """Convert the counts and sums of a mixture to the statistics of this model.

        Different sums S may have the same M S. All of them are replaced by the sums that
        ``feature_sums`` derives from M S.
        """
        counts, sums = arrays
        component: Any = self.component
        return self.weights.statistics(counts), component.feature_sums(component.natural_sums(sums))

    def finish_step(self, result: LocalResult, global_params: Any) -> LocalResult:
        """Return the result of a local step with statistics in the form of this model."""
        if result.stats is None:
            return result
        return replace(result, stats=Stats(self._convert_statistics(result.stats.arrays)))
