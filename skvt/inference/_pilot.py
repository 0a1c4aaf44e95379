"""The *pilot*: a short fit at the temperature T = 1, which calibrates learned temperatures."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skvt.contracts import Model, PassInputs, RunningPolicy
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.inference._stochastic import StochasticInference
from skvt.inference._visit import VisitRequest
from skvt.typing import Array

# Maximum number of minibatches in a pilot.
MAX_BATCHES = 100
# Number of sampled rows whose energies are computed, unless all rows are requested.
SAMPLE_SIZE = 1024


@dataclass(frozen=True)
class Pilot:
    """A short fit at T = 1, by at most a single pass of stochastic inference.

    Policies that learn the temperature compare the energies of rows at T > 1 with the energies of
    rows after the pilot.
    """

    # ``rate(number)`` returns the size rho of the step with this number.
    rate: Callable[[float], float]
    # The rows, divided into minibatches; None for the batches of the fit.
    minibatches: Rows | None = None

    def energies(
        self, model: Model, data: Rows, replication: float, workers: Workers,
        rng: np.random.Generator, *, every_row: bool = False,
    ) -> tuple[float, Array]:  # fmt: skip
        """Make the short fit; return energies per unit of data, in nats.

        The energy of a row is untempered, with the local variables of the row summed out. A unit of
        data is a token or a row. Energies are computed for a sample of rows, or for all rows if
        ``every_row``.

        Parameters
        ----------
        model : Model
        data : Rows
            The rows, divided into the batches of the main fit.
        replication : float
            Number of times that the statistics of the main fit count each row.
        workers : Workers
        rng : numpy.random.Generator
        every_row : bool, default=False

        Returns
        -------
        mean : float
            Weighted sum of the energies, divided by the weighted sum of the units of data.
        energies : ndarray of shape (n_rows,)
            Energy of each row, divided by its number of units; 0 for rows without units.
        """
        data = data if self.minibatches is None else self.minibatches
        state = State(model.initial(data, rng))
        engine: StochasticInference[Model] = StochasticInference(self.rate)
        # The base class keeps T = 1. ``done`` is False, so that the engine does not learn priors.
        policy = RunningPolicy()
        policy.replication = replication
        policy.done = False
        inputs = PassInputs(data, policy, workers)
        for batches in data.group_batches(model, workers, data.list_batches(rng)[:MAX_BATCHES]):
            engine.step(model, batches, data.total, state, inputs)
        request = VisitRequest(model, step_options={"with_marginal": True, "with_stats": False})
        make_globals = partial(model.expectation, state.stats, run=workers.run)
        if not every_row:
            data = data.select_rows(rng.permutation(data.n_rows)[:SAMPLE_SIZE])
        # For each batch, the energies, numbers of units, and weights of its rows.
        row_arrays: list[tuple[Any, ...]] = []
        for batches in data.group_batches(model, workers, data.list_batches(), fixed_globals=True):
            for result in data.visit(batches, lambda batch: request, make_globals, workers):
                row_arrays.append((result.marginal_energy, result.lengths, result.weights))
        energies, units, weights = (
            np.concatenate(arrays, dtype=np.float64) for arrays in zip(*row_arrays, strict=True)
        )
        # Rows without units have the energy 0, which is divided by a tiny number instead of 0.
        mean = float(weights @ energies) / max(float(weights @ units), 1e-300)
        return mean, energies / np.maximum(units, 1e-300)
