"""The contract of a move, its tools and its record."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from skvt.contracts._memo import Memo, MovableState, SampledState
from skvt.contracts._model import LocalResult, Requirement, RowSource
from skvt.expfam import Stats
from skvt.progress import Continued
from skvt.typing import Run


@dataclass(frozen=True)
class MoveRecord:
    """Record of one kind of move at the end of a pass."""

    # The pass, from 1.
    n_iter: int
    # "birth", "merge", "delete", "refresh", "superposition" or "split-merge".
    move: str
    # Components proposed and accepted (born, merged away, deleted), or changes.
    proposed: int
    accepted: int
    # Rise of the exact bound in nats. For births it is the rise since the end of the last pass, if
    # components were adopted in this one; for "split-merge" it is estimated on the sample.
    gain: float
    # Why births came to nothing, one after the other; empty for other moves.
    reason: str = ""


def _no_memos(*args: Any) -> Any:
    raise RuntimeError("An engine without memos lends its moves none.")


@dataclass(frozen=True)
class MoveTools:
    """Tools that an engine provides to its moves."""

    # The pass, from 1.
    n_iter: int
    rng: np.random.Generator
    # ``run(function, tasks)``.
    run: Run
    # ``fresh(model, batch, n_components, goal, others, init_params)`` fits a new mixture to a batch
    # and returns its memo, and the model with its priors: those given where ``others`` are None,
    # else such as suit seeds and statistics of the others, whose loss counts. It ends early where
    # the bound will not reach the ``goal``. Only with memos.
    fresh: Callable[[Any, Any, int, float, Stats | None, str], tuple[Memo, Any]] = _no_memos
    # ``memo_of(model, result, batch)``: a `skvt.inference._memos.Memo`. Likewise.
    memo_of: Callable[[Any, LocalResult, Any], Memo] = _no_memos
    # ``annealed(model, X, weights, n_components)`` fits the model from a new start to rows of these
    # weights with falling temperature, and returns its statistics. Likewise.
    annealed: Callable[[Any, Any, Any, int], Stats] = _no_memos


class Solved(NamedTuple):
    """A batch after its local step, as observers see it."""

    batch: Any
    # Of the batch among the memos.
    key: Hashable
    # The globals as passed to the local step.
    global_params: Any
    result: LocalResult


class ObserverTools(NamedTuple):
    """Tools of observers: ``run`` and ``memo_of`` of :class:`MoveTools`."""

    run: Run
    memo_of: Callable[[Any, LocalResult, Any], Memo]


#: ``observer(model, solved, tools)``: what a move notes of a batch, where the batch lies.
Observer: TypeAlias = Callable[[Any, Solved, ObserverTools], Any]


class Move(Continued):
    """A move accompanies a pass: it prepares, observes the batches, and acts at the end.

    The base of all moves; steps that a move does not need are inherited. Memos and the identity of
    components belong to the state: a move changes them through the state's methods alone.

    Attributes
    ----------
    requires : tuple of Requirement
        Capabilities of a model that it needs beyond those of memoized inference.
    exhausted : bool
        Whether the move has nothing more to try, so that convergence may be judged.
    """

    requires: tuple[Requirement, ...] = ()
    kept: ClassVar[dict[str, Any]] = {"exhausted": bool}
    exhausted: bool = True
    # the model with the priors that a change just accepted needs
    _relearned: Any = None

    def begin(self, model: Any, state: MovableState, tools: MoveTools) -> None:
        """Before the pass."""

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """What to note of the next batch, of ``n_rows`` rows, or None; it can be pickled."""
        return None

    def note(self, noted: Any) -> None:
        """Keep what the observer of a batch has noted."""

    def finish(self, model: Any, state: MovableState, tools: MoveTools) -> MoveRecord:
        """After the pass, memos exact; changes the state and returns a :class:`MoveRecord`."""
        raise NotImplementedError(f"{type(self).__name__} has no finish(model, state, tools).")

    def within(
        self, model: Any, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Records of what was tried after a batch of a stream, its memo exact; none by default."""
        return []

    def under_priors(self, model: Any) -> Any:
        """The model with the priors that the changes accepted last need."""
        found, self._relearned = self._relearned, None
        return model if found is None else model.with_priors_of(found)

    def conclude(self, model: Any, state: MovableState) -> bool:
        """After the last pass; whether the state has changed."""
        return False


class SampledMove(Protocol):
    """A move between two passes of an engine without memos, judged on a sample of the rows."""

    # Capabilities of a model that it needs.
    requires: tuple[Requirement, ...]
    # Whether the last search found nothing, so that convergence may be judged.
    exhausted: bool

    def between(
        self, model: Any, data: RowSource, state: SampledState, tools: MoveTools
    ) -> MoveRecord:
        """After a pass at T = 1; changes the state and returns a :class:`MoveRecord`."""
