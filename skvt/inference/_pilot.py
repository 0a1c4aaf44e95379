"""A short fit without temperature, from which learned temperatures take their zero."""

import numpy as np

from skvt.inference._bound import LocalTotals
from skvt.inference._state import State
from skvt.inference._stochastic import StochasticInference

# A pilot is a pass at most and no more than so many minibatches; its energies are measured on a
# sample of so many rows where not all rows are asked for.
MOST_BATCHES = 100
SAMPLE = 1024


class _Unheated:
    """Temperature 1, with the replication that the main fit will have."""

    mean_inv_temp, done, requested = 1.0, False, {}

    def __init__(self, replication):
        self.replication = replication

    def advance(self, passes, step, n_steps):
        pass

    def inv_temp(self, batch):
        return 1.0

    def observe(self, result, batch):
        pass


def pilot_energies(model, data, rate, replication, workers, rng, rows=None):
    """Marginal energy per unit of length after a short plain fit, in nats.

    Returns the mean over ``rows``, or over a sample without them, and that of each of the rows
    (0 for rows of length 0).
    """
    state = State(model.initial(data, rng))
    engine, policy = StochasticInference(rate), _Unheated(replication)
    for batch_rows in data.order(rng)[:MOST_BATCHES]:
        batch = data.batch(model, batch_rows)
        engine.step(model, batch, data.total, state, policy, workers, LocalTotals())
    if rows is None:
        rows = rng.permutation(data.n_rows)[:SAMPLE]
    energies, units = [], []
    for start in range(0, rows.size, data.batch_size):
        batch = data.batch(model, rows[start : start + data.batch_size])
        global_params = model.expectation(state.stats, batch, workers.run)
        result = model.local_step(
            batch, global_params, 1.0, workers.run, with_marginal=True, with_stats=False
        )
        energies.append(result.marginal_energy)
        units.append(np.asarray(batch.lengths, dtype=np.float64))
    energies, units = np.concatenate(energies), np.concatenate(units)
    weights = data.weights[rows]
    mean = float(weights @ energies / max(weights @ units, 1e-300))
    return mean, energies / np.maximum(units, 1e-300)
