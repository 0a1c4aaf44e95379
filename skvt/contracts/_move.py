"""The contract of a move, its tools and its record."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from skvt.contracts._memo import Memo, MovableState, SampledState
from skvt.contracts._model import LocalResult, Requirement, RowSource
from skvt.expfam import Stats
from skvt.files import in_files
from skvt.progress import Continued
from skvt.typing import Run


@in_files("moves.MoveRecord")
@dataclass(frozen=True)
class MoveRecord:
    """Record of one kind of move at the end of a pass."""

    # The pass, from 1.
    n_iter: int
    # "birth", "merge", "delete", "refresh", "superposition" or "split-merge".
    move: str
    # Numbers of proposals and acceptances: of components added, merged or deleted, or of changes.
    proposed: int
    accepted: int
    # Rise of the exact bound in nats. For births it is the rise since the end of the last pass if
    # components were adopted in this pass; for "split-merge" it is an estimate from the sample.
    gain: float
    # Why each birth failed, in order; empty for other moves.
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
    # and returns its memo and the model with its priors. The priors are kept if ``others`` is None;
    # else they suit the seeds and the statistics ``others``, whose loss of evidence counts. The fit
    # ends early if its bound will not reach the ``goal``. Only with memos.
    fresh: Callable[[Any, Any, int, float, Stats | None, str], tuple[Memo, Any]] = _no_memos
    # ``memo_of(model, result, batch)`` returns a `skvt.inference._memos.Memo`. Only with memos.
    memo_of: Callable[[Any, LocalResult, Any], Memo] = _no_memos
    # ``annealed(model, X, weights, n_components)`` fits the model from a new start to rows of these
    # weights with falling temperature, and returns its statistics. Only with memos.
    annealed: Callable[[Any, Any, Any, int], Stats] = _no_memos


class Solved(NamedTuple):
    """A batch after its local step, the input of observers."""

    batch: Any
    # Key of the batch's memo.
    key: Hashable
    # The globals as passed to the local step.
    global_params: Any
    result: LocalResult


class ObserverTools(NamedTuple):
    """Tools of observers: ``run`` and ``memo_of`` of :class:`MoveTools`."""

    run: Run
    memo_of: Callable[[Any, LocalResult, Any], Memo]


#: ``observer(model, solved, tools)`` returns a move's notes of a batch; it runs in the process
#: that holds the batch.
Observer: TypeAlias = Callable[[Any, Solved, ObserverTools], Any]


class Move(Continued):
    """Base of moves: a move prepares before a pass, observes its batches, and acts at its end.

    A subclass inherits the steps that it does not need. Memos and the identity of components belong
    to the state: a move changes them only by the methods of the state.

    Attributes
    ----------
    requires : tuple of Requirement
        Capabilities that the move needs of a model beyond those of memoized inference.
    exhausted : bool
        Whether the move has nothing more to try, so that convergence may be judged.
    """

    requires: tuple[Requirement, ...] = ()
    kept: ClassVar[dict[str, Any]] = {"exhausted": bool}
    exhausted: bool = True
    # Model with the priors for the change accepted last; None without one.
    _relearned: Any = None

    def begin(self, model: Any, state: MovableState, tools: MoveTools) -> None:
        """Prepare before the pass."""

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the observer of the next batch, of ``n_rows`` rows, picklable, or None."""
        return None

    def note(self, noted: Any) -> None:
        """Store the notes that the observer of a batch has returned."""

    def finish(self, model: Any, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Change the state after the pass, with exact memos; return a :class:`MoveRecord`."""
        raise NotImplementedError(f"{type(self).__name__} has no finish(model, state, tools).")

    def within(
        self, model: Any, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try changes after a batch of a stream, with its exact memo; return their records."""
        return []

    def under_priors(self, model: Any) -> Any:
        """Return the model with the priors for the changes accepted last."""
        relearned, self._relearned = self._relearned, None
        return model if relearned is None else model.with_priors_of(relearned)

    def conclude(self, model: Any, state: MovableState) -> bool:
        """Finish after the last pass; return whether the state has changed."""
        return False


class SampledMove(Protocol):
    """A move between two passes of an engine without memos, judged on a sample of the rows."""

    # Capabilities that the move needs of a model.
    requires: tuple[Requirement, ...]
    # Whether the last search found nothing, so that convergence may be judged.
    exhausted: bool

    def between(
        self, model: Any, data: RowSource, state: SampledState, tools: MoveTools
    ) -> MoveRecord:
        """Change the state after a pass at T = 1; return a :class:`MoveRecord`."""
