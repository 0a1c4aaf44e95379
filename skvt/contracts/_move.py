"""The contract of a move, which changes the components of a model if the bound rises.

:class:`Move` is the base of moves of memoized inference, which keeps a *memo* of each batch: its
statistics and entropies after its last local step. The memos give the exact bound of all rows by
which a move decides. :class:`SampledMove` is the protocol of moves of other engines, which decide
by a sample of the rows. This module also defines the tools and the records of moves.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from skvt.contracts._memo import Memo, MovableState, SampledState
from skvt.contracts._model import LocalResult, Requirement, RowSource
from skvt.contracts._policy import RunningPolicy
from skvt.files import in_files
from skvt.progress import ResumableMixin
from skvt.typing import Array, IndexArray, Run


@in_files("moves.MoveRecord", nan=("gain",))
@dataclass(frozen=True)
class MoveRecord:
    """Record of a proposal, or of several proposals on which a move decided together."""

    # The pass, from 1, in which the move decided.
    n_iter: int
    # "birth", "merge", "delete", "refresh", "superposition" or "split-merge".
    move: str
    # Numbers of the components that the proposal concerns, in their order when it was made.
    target: str
    # Description of the proposed change.
    tried: str
    # Number of proposals.
    proposed: int
    # Number of components that were added, merged or deleted, or number of other changes; 0 if no
    # proposal was accepted.
    accepted: int
    # Rise of the bound in nats; negative if the bound would have fallen, NaN if the rise was not
    # computed. It is the rise of the exact bound if memoized inference has accepted the proposal,
    # and an estimate from a sample of the rows in engines without memos.
    gain: float
    # Why the proposal was accepted or not, as a sentence.
    reason: str


class MoveTools(Protocol):
    """Tools that an engine provides to its moves."""

    # Number of the pass, from 1.
    @property
    def n_iter(self) -> int: ...
    # Random numbers for draws of the moves.
    @property
    def rng(self) -> np.random.Generator: ...
    # ``run(function, tasks)`` returns the results of the function for a list of tuples of
    # arguments.
    @property
    def run(self) -> Run: ...
    # In a stream, ``n_judged`` of `Stream`.
    @property
    def n_judged(self) -> int | None: ...

    def make_memo(self, model: Any, result: LocalResult, batch: Any) -> Memo:
        """Return the memo of a batch after its local step."""

    def separate_fit(
        self,
        model: Any,
        X: Any,
        weights: Array,
        policy: RunningPolicy,
        *,
        n_batches: int = 1,
        seeds: IndexArray | None = None,
    ) -> tuple[MovableState, "Callable[[Any, Sequence[Move]], tuple[Any, bool]]"]:
        """Begin a fit of the rows X (n, D) with weights (n,) by memoized inference.

        ``policy`` sets the temperature, ``n_batches`` is the number of batches, and ``seeds`` are
        the indices of the rows among which initial components are chosen; None for all rows. Return
        the initial state, and a function ``sweep(model, moves)``, which makes a pass and these
        moves. The function changes the state in place, and returns the model with learned priors
        and whether the fit may stop.
        """


class SolvedBatch(NamedTuple):
    """A batch after its local step, the input of observers."""

    batch: Any
    # Key of the batch's memo.
    key: Hashable
    # The global parameters as passed to the local step.
    global_params: Any
    # The result of the local step.
    result: LocalResult


class ObserverTools(NamedTuple):
    """Tools of observers, with the meaning that they have in :class:`MoveTools`."""

    run: Run
    make_memo: Callable[[Any, LocalResult, Any], Memo]


#: ``observer(model, solved_batch, tools)`` returns the notes of a move on a batch, which are data
#: of any type. It runs in the process that holds the rows of the batch, and must be picklable.
Observer: TypeAlias = Callable[[Any, SolvedBatch, ObserverTools], Any]


class Move(ResumableMixin):
    """Base of moves of memoized inference, which prepare before a pass and act after the pass.

    During the pass, a move may observe each batch and take notes. A subclass overrides ``finish``
    and the methods that do something for this move. It changes memos and identifiers of components
    only by the methods of the state, which keep both consistent.

    Attributes
    ----------
    requires : tuple of Requirement
        Capabilities that the move needs of a model beyond those of memoized inference.
    exhausted : bool
        Whether the move has nothing more to try, so that convergence may be judged.
    """

    requires: tuple[Requirement, ...] = ()
    # Attributes that interrupted fits restore, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {"exhausted": bool}
    exhausted: bool = True
    # A model with the priors under which the last change was accepted; None if the priors have not
    # changed since the last call of ``update_priors``.
    _relearned: Any = None

    def begin(self, model: Any, state: MovableState, tools: MoveTools) -> None:
        """Prepare before the pass."""

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the observer of the next batch, which has ``n_rows`` rows; None for no observer.

        It is called after :meth:`begin`, once for each batch of the pass.
        """
        return None

    def store_notes(self, notes: Any) -> None:
        """Store the notes that the observer of a batch has returned."""

    def finish(self, model: Any, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Change the state after the pass, when all memos are exact; return records of proposals.

        ``model`` has the priors learned so far, and the statistics of ``state`` are the sum of the
        memos.
        """
        raise NotImplementedError(f"{type(self).__name__} must define finish(model, state, tools).")

    def change_within_batch(
        self, model: Any, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try changes after a batch of a stream, whose memo has this key; return their records.

        Only the rows of this batch are available, and the memos of all batches.
        """
        return []

    def update_priors(self, model: Any) -> Any:
        """Return the model with the priors under which the last changes were accepted.

        The engine calls it after each call of :meth:`begin`, :meth:`finish` and
        :meth:`change_within_batch`.
        """
        relearned = self._relearned
        self._relearned = None
        return model if relearned is None else model.with_priors_of(relearned)

    def conclude(self, model: Any, state: MovableState) -> bool:
        """Change the state after the last pass of a fit; return whether it may have changed."""
        return False


class SampledMove(Protocol):
    """A move between two passes of an engine without memos; a sample of the rows decides on it."""

    # Capabilities that the move needs of a model.
    requires: tuple[Requirement, ...]
    # Whether the last search for changes has accepted none, so that convergence may be judged.
    exhausted: bool

    def change_between_passes(
        self, model: Any, data: RowSource, state: SampledState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Change the state after a pass at T = 1; return records of proposals.

        ``data`` has the rows from which the move takes its sample.
        """
