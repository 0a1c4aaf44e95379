"""One engine first, then coordinate ascent of the mean-field bound."""

import numpy as np

from skvt.inference._coordinate import CoordinateAscent
from skvt.inference._engine import AnyEngine, PassResult
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.models import Model
from skvt.progress import Continued
from skvt.temperature import RunningPolicy


class ThenCoordinateAscent(Continued):
    """An engine for the first passes, then coordinate ascent with mean-field local steps.

    The result of a structured engine serves as a starting point: it has no bound, and noise keeps
    unneeded components alive. For models whose priors are given.

    Parameters
    ----------
    engine : Engine
    n_passes : int
        Number of passes that it makes.
    """

    not_kept = frozenset({"requires"})
    parts = frozenset({"_engine", "_ascent"})
    knows_exact_bound = False

    def __init__(self, engine: AnyEngine, n_passes: int) -> None:
        self._engine, self._n_passes, self._ascent = engine, n_passes, CoordinateAscent()
        self.requires = engine.requires

    def start(self, state: State, total: float) -> State:
        """The state as the first engine keeps it."""
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
        """One pass by the current engine; ``state`` changes in place."""
        self._n_passes -= 1
        if self._n_passes >= 0:
            result = self._engine.run_pass(model, data, state, policy, workers, rng)
            return result._replace(may_stop=False)
        mean_field = model.mean_field()
        result = self._ascent.run_pass(mean_field, data, state, policy, workers, rng)
        return result._replace(model=model)

    def finish(self, model: Model, state: State) -> float | None:
        """The end of coordinate ascent."""
        return self._ascent.finish(model, state)
