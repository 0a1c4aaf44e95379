"""An engine of passes, and the mean of the globals after its last ones."""

from typing import Annotated, Any, ClassVar

import numpy as np

from skvt.contracts import AnyEngine, Model, PassResult, RunningPolicy
from skvt.expfam import RunningStats
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.progress import Continued
from skvt.typing import Array


class Averaged(Continued):
    """An engine whose fit ends with the mean of the statistics after its last passes at T = 1.

    Stochastic steps wander about the optimum, and their mean is closer to it than where they end:
    averaging of iterates (Polyak and Juditsky 1992). The mean of statistics is that of the natural
    parameters, so it is a posterior as any, and its bound is exact.

    Parameters
    ----------
    engine : Engine
    n_passes : int
        Number of passes of the fit.
    share : float
        Share of them, the last ones, whose statistics are averaged where T = 1.
    """

    # (not the first pass: a resumed fit may have another number of passes)
    kept: ClassVar[dict[str, Any]] = {
        "_pass": int,
        "_n_averaged": int,
        "_sum": Annotated[list[Array], "statistics"],
    }
    parts = frozenset({"_engine"})

    def __init__(self, engine: AnyEngine, n_passes: int, share: float) -> None:
        self._engine, self._first = engine, (1.0 - share) * n_passes
        self.requires, self.knows_exact_bound = engine.requires, engine.knows_exact_bound
        self._pass, self._n_averaged = 0, 0
        self._sum: list[Array] = []

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
        """One pass of the engine, after which the statistics may enter the mean."""
        n_moves = len(state.move_log)
        result = self._engine.run_pass(model, data, state, policy, workers, rng)
        self._pass += 1
        if any(record.accepted for record in state.move_log[n_moves:]):
            # components are others from here on
            self._sum, self._n_averaged = [], 0
        elif self._pass > self._first and policy.at_unit_temperature:
            self._include(state.plain_stats)
        return result

    def finish(self, model: Model, state: State) -> float | None:
        """The mean takes the place of the last statistics, and its bound is not known."""
        if self._n_averaged < 2:
            return self._engine.finish(model, state)
        for total in self._sum:
            total /= total.dtype.type(self._n_averaged)
        state.stats = RunningStats(self._sum)
        self._sum, self._n_averaged = [], 0
        return None

    def _include(self, stats: Any) -> None:
        """Let these enter the mean."""
        self._n_averaged += 1
        arrays = stats.arrays if stats.scale == 1.0 else stats.value().arrays
        if not self._sum:
            self._sum = [array.copy() for array in arrays]
            return
        for total, array in zip(self._sum, arrays, strict=True):
            total += array
