"""A short fit without temperature, which calibrates learned temperatures."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skvt.contracts import Model, RunningPolicy
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.inference._stochastic import StochasticInference, Visits
from skvt.inference._visit import VisitRequest
from skvt.typing import Array

# Maximum number of minibatches of a pilot, which makes at most one pass, and number of sampled rows
# whose energies are measured unless all rows are requested.
MOST_BATCHES = 100
SAMPLE = 1024


@dataclass(frozen=True)
class Pilot:
    """A short fit at T = 1, which makes at most one pass of stochastic inference."""

    # Step number -> rho.
    rate: Callable[[int], float]
    # The rows, divided into minibatches; None for the batches of the fit.
    minibatches: Rows | None = None

    def energies(
        self,
        model: Model,
        data: Rows,
        replication: float,
        workers: Workers,
        rng: np.random.Generator,
        *,
        every_row: bool = False,
    ) -> tuple[float, Array]:
        """Return marginal energies per unit of length after the fit, in nats.

        Returns the mean over a sample of rows, or over all rows if ``every_row``, and the energy of
        each of these rows, 0 for rows of length 0. ``data`` are the rows in the batches of the fit.
        """
        data = data if self.minibatches is None else self.minibatches
        state = State(model.initial(data, rng))
        engine: StochasticInference[Model] = StochasticInference(self.rate)
        # T = 1 with the replication of the main fit; no priors are learned
        policy = RunningPolicy()
        policy.replication, policy.done = replication, False
        visits = Visits(data, workers, policy)
        for batches in data.rounds(model, workers, data.order(rng)[:MOST_BATCHES]):
            engine.step(model, batches, data.total, state, visits)
        request = VisitRequest(model, requested={"with_marginal": True, "with_stats": False})
        expect = partial(model.expectation, state.stats, run=workers.run)
        if not every_row:
            data = data.subset(rng.permutation(data.n_rows)[:SAMPLE])
        parts: list[tuple[Any, ...]] = []
        for batches in data.rounds(model, workers, data.order(), whole=True):
            for result in data.visit(batches, lambda batch: request, expect, workers):
                parts.append((result.marginal_energy, result.lengths, result.weights))
        energies, units, weights = (
            np.concatenate(part, dtype=np.float64) for part in zip(*parts, strict=True)
        )
        mean = float(weights @ energies) / max(float(weights @ units), 1e-300)
        return mean, energies / np.maximum(units, 1e-300)
