"""An engine of passes, and moves between them."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from skvt.contracts import AnyEngine, Model, MoveTools, PassResult, RunningPolicy, SampledMove
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.progress import Continued

# Moves begin after this share of the passes, or this number of passes: earlier, topics are too
# unformed to judge.
FIRST_SHARE, MOST_BEFORE = 0.5, 10


class WithMoves(Continued):
    """An engine, with moves after its passes at T = 1, except the last: a pass must follow.

    Parameters
    ----------
    engine : Engine
    moves : sequence of SampledMove
    n_passes : int
        Number of passes of the fit.
    """

    # (not when moves begin: a resumed fit may have another number of passes)
    kept: ClassVar[dict[str, Any]] = {"_pass": int, "_moved": bool}
    parts = frozenset({"_engine", "_moves"})
    knows_exact_bound = False

    def __init__(self, engine: AnyEngine, moves: Sequence[SampledMove], n_passes: int) -> None:
        self._engine, self._moves, self._n_passes = engine, moves, n_passes
        of_moves = (requirement for move in moves for requirement in move.requires)
        self.requires = (*engine.requires, *of_moves)
        self._first = min(FIRST_SHARE * n_passes, MOST_BEFORE)
        self._pass, self._moved = 0, False

    def start(self, state: State, total: float) -> State:
        """The state as the engine keeps it."""
        return self._engine.start(state, total)

    def run_pass(
        self,
        model: Model,
        data: Rows,
        state: State,
        policy: RunningPolicy,
        workers: Workers,
        rng: np.random.Generator,
    ) -> PassResult:
        """One pass, then moves; ``state`` changes in place.

        A move may lower the bound, since it is judged on a sample; and convergence is not judged
        before moves find nothing more.
        """
        result = self._engine.run_pass(model, data, state, policy, workers, rng)
        self._pass += 1
        if self._first <= self._pass < self._n_passes and policy.at_unit_temperature:
            # a generator of its own, so that rows are shuffled in the same way with and without
            # moves
            rng = np.random.default_rng([state.seed, state.n_steps, 1])
            tools = MoveTools(self._pass, rng, workers.run)
            for move in self._moves:
                record = move.between(result.model, data, state, tools)
                state.move_log.append(record)
                self._moved |= record.accepted > 0
        # a policy that ends above T = 1 leaves nothing to judge moves by
        never = policy.done and not policy.at_unit_temperature
        done = never or self._pass >= self._n_passes
        return result._replace(
            monotone=result.monotone and not self._moved,
            may_stop=result.may_stop and (done or all(move.exhausted for move in self._moves)),
        )

    def finish(self, model: Model, state: State) -> float | None:
        """The end of the engine."""
        return self._engine.finish(model, state)
