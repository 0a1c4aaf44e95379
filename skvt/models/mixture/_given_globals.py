"""Mixtures given their globals: the local steps of structured inference.

Structured inference keeps the dependence between globals and assignments, q(w, phi) q(z | w, phi):
weights and components are drawn from q, and responsibilities are exact given the draw [HB15 sec.
2]. The families of weights and components must be Dirichlets, as for Bernoulli and multinomial
components.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from skvt.contracts import Capability, DrawnWeights, LocalResult, RowBatch, RowSource
from skvt.expfam import RunningStats, Stats, log_standard_gamma
from skvt.files import in_files
from skvt.models import Gammas, corrected_statistics
from skvt.models.mixture._gaussian_learner import learner_matches
from skvt.models.mixture._model import Mixture
from skvt.typing import Array, Run

# Smallest gain in nats for which components are reordered, well above rounding.
SMALLEST_GAIN = 1e-6


class DrawnGlobals(NamedTuple):
    """Weights and components on which a local step is conditioned."""

    # (K,)
    log_weights: Array
    # (K, P): a component's table for the drawn parameters.
    table: Array
    # The gamma variates from which both were formed, shaped as the natural parameters.
    log_gammas: tuple[Array, ...]


@in_files("models.MixtureGivenGlobals")
@dataclass(frozen=True)
class MixtureGivenGlobals(Mixture):
    """A mixture for structured inference, see the module.

    Statistics of the weights have the form that ``weights.statistics`` returns for counts. After
    the correction there need not be counts of which they are the statistics.
    """

    weights: DrawnWeights

    capabilities = frozenset({Capability.DRAWABLE, Capability.CORRECTABLE})
    updates_all_rows = True

    def validate(self, d: int, k: int) -> bool:
        return learner_matches(self.learner, self.component)

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        _, of_components = super().statistics_shapes(n_components)
        return [self.weights.statistics(np.zeros(n_components)).shape, of_components]

    # ------------------------------------------------------------------------------- globals
    def drawn_globals(
        self, stats: RunningStats, batch: RowBatch, kind: str, rng: np.random.Generator, run: Run
    ) -> Any:
        """Return weights and components of a kind of global step, see :class:`StructuredModel`."""
        if kind == "mean_field":
            return self.expectation(stats, batch, run)
        if kind == "map":
            return self.row_globals(stats, batch, run)
        log_gammas = tuple(log_standard_gamma(lam, rng) for lam in self.natural_parameters(stats))
        return DrawnGlobals(*self._of_gammas(log_gammas), log_gammas)

    def row_globals(self, stats: RunningStats, batch: RowBatch, run: Run) -> Any:
        """Return E[w] and E[phi], the globals for rows after the fit."""
        return self._of_gammas(np.log(lam) for lam in self.natural_parameters(stats))

    def _of_gammas(self, logs: Iterable[Array]) -> tuple[Array, Array]:
        """Normalise Dirichlet vectors; return the logarithms of the weights and the table."""
        weights, components = (part - logsumexp(part, axis=-1, keepdims=True) for part in logs)
        return self.weights.log_weights(weights), self.component.table_of(components)

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return ``V(beta, lam) eta_hat`` [HB15 eq. 7]; a beta is a Dirichlet of two entries."""
        weights, sums = result_stats.arrays
        hats, lams = (weights, self.component.spread(sums)), self.natural_parameters(stats)
        blocks = []
        for block in zip(lams, global_params.log_gammas, hats, strict=True):
            shapes, logs, hat = (part.reshape(-1, part.shape[-1]).T for part in block)
            corrected = corrected_statistics(shapes, Gammas.of_all(logs), hat, run)
            blocks.append(corrected.T.reshape(block[2].shape))
        component: Any = self.component
        return Stats((blocks[0], component.unspread(blocks[1])))

    def project(self, stats: RunningStats) -> None:
        """Enforce ``lam >= prior``, and the order of components that the weights prefer."""
        stats.clip()
        counts = self.component_masses(stats.value())
        ordered = counts[self.weights.order(counts)]
        gain = self.weights.log_evidence(ordered) - self.weights.log_evidence(counts)
        if gain > SMALLEST_GAIN:
            weights = self.weights.statistics(ordered) / stats.scale
            stats.overwrite([weights, stats.arrays[1][self.weights.order(counts)]])

    def component_masses(self, stats: Stats) -> Array:
        weights = super().component_masses(stats)
        return weights.reshape(len(weights), -1)[:, 0]

    # ---------------------------------------------------------------------------------- rows
    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return a mixture's initial statistics, converted by :meth:`_in_their_form`."""
        return RunningStats(self._in_their_form(super().initial(data, rng).arrays))

    def _in_their_form(self, arrays: Sequence[Array]) -> tuple[Array, Array]:
        """Convert a mixture's statistics to statistics of weights and spread ones of components."""
        counts, sums = arrays
        component: Any = self.component
        return self.weights.statistics(counts), component.unspread(component.spread(sums))

    def local_step(
        self, batch: RowBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        requested = {"with_marginal": with_marginal, "with_stats": with_stats}
        result = super().local_step(batch, global_params, inv_temp, run, **requested)
        if result.stats is None:
            return result
        return replace(result, stats=Stats(self._in_their_form(result.stats.arrays)))
