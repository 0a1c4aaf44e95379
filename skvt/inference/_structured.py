"""Structured stochastic variational inference: local steps given drawn globals [HB15 alg. 1]."""

import numpy as np

from skvt.expfam import Stats
from skvt.inference._stochastic import StochasticInference

# "ssvi" and "ssvi-a" draw the globals; the others give local steps of the matrix [HB15 sec. 2.5]
# a point or an expectation.
GLOBAL_STEPS = ("ssvi", "ssvi-a", "mean_field", "map")


class StructuredInference(StochasticInference):
    """SSVI and SSVI-A on shuffled minibatches.

    A step draws beta from q(beta), solves the minibatch given beta, and moves

        lam <- (1 - rho) lam + rho (eta + (N / S) V(beta, lam) eta_hat)      [HB15 eq. 11]

    SSVI-A takes the identity for V, which is its expectation [HB15 eq. 10].

    Parameters
    ----------
    rate : callable
        Step number -> rho.
    global_step : {"ssvi", "ssvi-a", "mean_field", "map"}
    ramp : bool
        Let a minibatch of the first pass stand only for the rows seen so far [HB15 sec. 2.6].
    """

    bounds = False

    def __init__(self, rate, global_step, *, ramp=False):
        super().__init__(rate)
        self._global_step, self._ramp = global_step, ramp
        self._share = 1.0  # of all rows, those that the minibatch stands for

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass; ``state`` moves on."""
        if model.updates_all_rows:
            model.project(state.stats)  # a start may have components in another order
        return super().run_pass(model, data, state, policy, workers, rng)

    def step(self, model, batch, total, state, policy, workers, totals):
        """One minibatch that stands for rows of weight ``total``."""
        if self._ramp:
            seen = state.rows_seen + float(batch.weights.sum(dtype="float64"))
            self._share = min(1.0, seen / total)
        model = super().step(model, batch, total, state, policy, workers, totals)
        if model.updates_all_rows or self._global_step == "ssvi":
            model.project(state.stats)
        return model

    def _globals(self, model, state, batch, workers):
        rng = np.random.default_rng([state.seed, state.n_steps])
        return model.drawn_globals(state.stats, batch, self._global_step, rng, workers.run)

    def _statistics(self, model, state, global_params, result, workers):
        stats = result.stats
        if self._global_step == "ssvi":
            stats = model.corrected(state.stats, global_params, stats, workers.run)
        if self._share < 1.0:
            arrays = tuple(array * array.dtype.type(self._share) for array in stats.arrays)
            stats = Stats(arrays, stats.rows)
        return stats
