"""One engine first, then another: coordinate ascent of the mean-field bound, or a polish."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from skvt.contracts import AnyEngine, Model, PassResult, RunningPolicy
from skvt.inference._coordinate import CoordinateAscent
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.inference._structured import StructuredInference
from skvt.progress import Continued
from skvt.schedules import RobbinsMonro


class _Then(Continued):
    """An engine for the first ``n_passes``, and another for the last."""

    kept: ClassVar[dict[str, Any]] = {"_n_passes": int}
    parts = frozenset({"_engine", "_last"})
    knows_exact_bound = False

    def __init__(self, engine: AnyEngine, n_passes: int, last: AnyEngine) -> None:
        self._engine, self._n_passes = engine, n_passes
        self._last: Any = last
        self.requires = (*engine.requires, *last.requires)

    def start(self, state: State, total: float) -> State:
        """The state as the first engine keeps it."""
        return self._engine.start(state, total)

    def run_pass(
        self,
        model: Any,
        data: Rows,
        state: State,
        policy: RunningPolicy,
        workers: Workers,
        rng: np.random.Generator,
    ) -> PassResult:
        """One pass by the current engine; ``state`` changes in place."""
        self._n_passes -= 1
        if self._n_passes >= 0:
            result: PassResult = self._engine.run_pass(model, data, state, policy, workers, rng)
            return result._replace(may_stop=False)
        if self._n_passes == -1:
            self._begin_last(state)
        result = self._last.run_pass(
            self._solved(model), data, state, self._policy(policy), workers, rng
        )
        return result._replace(model=self._after(model, result.model))

    def finish(self, model: Model, state: State) -> float | None:
        """The end of the last engine."""
        return self._last.finish(model, state)

    def _begin_last(self, state: State) -> None:
        """Before the first pass of the last engine."""

    def _policy(self, policy: RunningPolicy) -> RunningPolicy:
        """The temperatures of the last engine."""
        return policy

    def _solved(self, model: Any) -> Any:
        """The model with the local steps of the last engine."""
        raise NotImplementedError

    def _after(self, model: Any, learned: Any) -> Any:
        """The model with its own local steps, after a pass of the last engine."""
        raise NotImplementedError


class ThenCoordinateAscent(_Then):
    """An engine for the first passes, then coordinate ascent with mean-field local steps.

    The result of a structured engine serves as a starting point: it has no bound, and noise keeps
    unneeded components alive. Once they are gone, the engine may go on with fewer. For models whose
    priors are given.

    Parameters
    ----------
    engine : Engine
    n_passes : int
        Number of passes that it makes before coordinate ascent begins.
    turns : sequence of pairs of int
        (passes of coordinate ascent, passes of the engine that follow them) of each return to the
        engine. Coordinate ascent then goes on to the end, and only there may a fit stop.
    """

    kept: ClassVar[dict[str, Any]] = {**_Then.kept, "_turns": list[tuple[int, int]]}

    def __init__(
        self, engine: AnyEngine, n_passes: int, turns: Iterable[tuple[int, int]] = ()
    ) -> None:
        super().__init__(engine, n_passes, CoordinateAscent())
        self._turns = list(turns)

    def run_pass(
        self,
        model: Any,
        data: Rows,
        state: State,
        policy: RunningPolicy,
        workers: Workers,
        rng: np.random.Generator,
    ) -> PassResult:
        """One pass by the engine whose turn it is; ``state`` changes in place."""
        # (passes of coordinate ascent are counted below 0)
        if self._turns and self._n_passes == -self._turns[0][0]:
            self._n_passes = self._turns.pop(0)[1]
        result = super().run_pass(model, data, state, policy, workers, rng)
        return result._replace(may_stop=result.may_stop and not self._turns)

    def _solved(self, model: Any) -> Any:
        return model.mean_field()

    def _after(self, model: Any, learned: Any) -> Any:
        return model


class ThenPolish(_Then):
    """An engine for the first passes, then structured inference with other local steps, at T = 1.

    Mean field makes the proportions of documents too sparse, and topics with them. For a model
    whose local steps are mean field, and can be others.

    Parameters
    ----------
    engine : Engine
    n_passes : int
        Number of passes that it makes.
    rate : RobbinsMonro
        Step sizes of the polish, which count from its beginning.
    collapsed : callable
        ``collapsed(model)`` is the model with the local steps of the polish.
    restored : callable
        ``restored(model, polished)`` is the model as before with what the polish has learned.
    """

    def __init__(
        self,
        engine: AnyEngine,
        n_passes: int,
        rate: RobbinsMonro,
        collapsed: Callable[[Any], Any],
        restored: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(engine, n_passes, StructuredInference(rate, "map"))
        self._rate, self._collapsed, self._restored = rate, collapsed, restored

    def _begin_last(self, state: State) -> None:
        self._last.rate = replace(self._rate, offset=self._rate.offset - state.n_steps)

    def _policy(self, policy: RunningPolicy) -> RunningPolicy:
        return RunningPolicy()

    def _solved(self, model: Any) -> Any:
        return self._collapsed(model)

    def _after(self, model: Any, learned: Any) -> Any:
        return self._restored(model, learned)
