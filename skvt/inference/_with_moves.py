"""An engine of passes, and moves between them."""

import numpy as np

from skvt.moves import MoveTools

# Moves begin after this share of the passes, or so many: before, there is little to judge by.
FIRST_SHARE, MOST_BEFORE = 0.5, 10


class WithMoves:
    """An engine, and moves after its passes at T = 1 but the last: a change needs one to settle.

    Parameters
    ----------
    engine : Engine
    moves : sequence of SampledMove
    n_passes : int
        Passes of the fit.
    """

    exact = False

    def __init__(self, engine, moves, n_passes):
        self._engine, self._moves, self._n_passes = engine, moves, n_passes
        self._first = min(FIRST_SHARE * n_passes, MOST_BEFORE)
        self._pass, self._moved, self._never = 0, False, False

    @property
    def monotone(self):
        """Whether the bound never falls: what moves see is a sample."""
        return self._engine.monotone and not self._moved

    @property
    def bounds(self):
        """Whether passes give a bound."""
        return self._engine.bounds

    @property
    def may_stop(self):
        """Whether convergence may be judged: not before moves have found nothing more."""
        done = self._never or self._pass >= self._n_passes
        return self._engine.may_stop and (done or all(move.exhausted for move in self._moves))

    def rate(self, step):
        """Step size of the engine."""
        return self._engine.rate(step)

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass, then moves; ``state`` moves on."""
        totals, divergence, model = self._engine.run_pass(model, data, state, policy, workers, rng)
        self._pass += 1
        # a policy that ends above T = 1 leaves nothing to judge moves by
        self._never = policy.done and not policy.at_unit_temperature
        if self._first <= self._pass < self._n_passes and policy.at_unit_temperature:
            # of its own, so that rows are shuffled alike with and without moves
            rng = np.random.default_rng([state.seed, state.n_steps, 1])
            tools = MoveTools(self._pass, rng, workers.run)
            for move in self._moves:
                record = move.between(model, data, state, tools)
                state.move_log.append(record)
                self._moved |= record.accepted > 0
        return totals, divergence, model
