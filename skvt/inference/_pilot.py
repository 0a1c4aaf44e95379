"""A short fit without temperature, which calibrates learned temperatures."""

from collections.abc import Callable

import numpy as np

from skvt.inference._bound import LocalTotals
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.inference._stochastic import StochasticInference
from skvt.models import Model
from skvt.temperature import RunningPolicy
from skvt.typing import Array, IndexArray

# Maximum number of minibatches of a pilot, which is at most one pass, and number of rows of the
# sample on which its energies are measured unless all rows are requested.
MOST_BATCHES = 100
SAMPLE = 1024


class _Unheated(RunningPolicy):
    """Temperature 1, with the replication that the main fit will have; nothing is learned."""

    done = False

    def __init__(self, replication: float) -> None:
        self.replication = replication


def pilot_energies(
    model: Model,
    data: Rows,
    rate: Callable[[int], float],
    replication: float,
    workers: Workers,
    rng: np.random.Generator,
    rows: IndexArray | None = None,
) -> tuple[float, Array]:
    """Marginal energy per unit of length after a short plain fit, in nats.

    Returns the mean over ``rows``, or over a sample without them, and that of each of the rows
    (0 for rows of length 0).
    """
    state = State(model.initial(data, rng))
    engine: StochasticInference[Model] = StochasticInference(rate)
    policy = _Unheated(replication)
    for batch_rows in data.order(rng)[:MOST_BATCHES]:
        batch = data.batch(model, batch_rows)
        engine.step(model, batch, data.total, state, policy, workers, LocalTotals())
    if rows is None:
        rows = rng.permutation(data.n_rows)[:SAMPLE]
    parts = []
    for start in range(0, rows.size, data.batch_size):
        batch = data.batch(model, rows[start : start + data.batch_size])
        global_params = model.expectation(state.stats, batch, workers.run)
        result = model.local_step(
            batch, global_params, 1.0, workers.run, with_marginal=True, with_stats=False
        )
        assert result.marginal_energy is not None  # as requested
        parts.append((result.marginal_energy, np.asarray(batch.lengths, dtype=np.float64)))
    energies, units = (np.concatenate(part) for part in zip(*parts, strict=True))
    weights = data.weights[rows]
    mean = float(weights @ energies / max(weights @ units, 1e-300))
    return mean, energies / np.maximum(units, 1e-300)
