"""The contract of a move, which changes the components of a model if the bound rises.

:class:`Move` is the base of moves of memoized inference, which keeps a *memo* of each batch of
rows: the statistics and entropies after the last local step of the batch. The memos give the exact
bound of all rows, by which a move decides whether to accept a *proposal*, that is, a possible
change. :class:`SampledMove` is the protocol of moves of other engines, which decide by a sample of
the rows. The module also defines the tools and the records of moves.

An engine calls the methods of a :class:`Move` in this order. Before a pass it calls ``begin``, and
for each batch of the pass ``make_observer`` and, after the local step, the observer and
``store_notes``. After the pass it calls ``finish``, and after the last pass ``conclude``.
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
    # Indices of the components that the proposal concerns, when the proposal was made.
    target: str
    # Description of the proposed change.
    tried: str
    # Number of proposals.
    proposed: int
    # Number of components that were added, merged or deleted, or number of other changes; 0 if no
    # proposal was accepted.
    accepted: int
    # Rise of the bound in nats; negative if the bound would have fallen, NaN if the rise was not
    # computed. For an accepted proposal of memoized inference, it is the rise of the exact bound.
    # In engines without memos, it is an estimate from a sample of the rows.
    gain: float
    # The reason why the proposal was accepted or rejected, as a sentence.
    reason: str


class MoveTools(Protocol):
    """Tools that an engine provides to its moves."""

    # Number of the pass, from 1.
    @property
    def n_iter(self) -> int: ...
    # Random number generator for draws of the moves.
    @property
    def rng(self) -> np.random.Generator: ...
    # ``run(function, tasks)`` calls a function with each tuple of arguments in a list, perhaps in
    # several threads, and returns the list of the results.
    @property
    def run(self) -> Run: ...
    # Births of a stream were tried before among this number of rows, the first rows of the batch.
    # None outside of streams, and if births do not wait for rows of later calls. See the field
    # ``n_judged`` of `skvt.contracts.Stream`.
    @property
    def n_judged(self) -> int | None: ...

    def make_memo(self, model: Any, result: LocalResult, batch: Any) -> Memo:
        """Return the memo of a batch after its local step."""

    def separate_fit(
        self, model: Any, X: Any, weights: Array, policy: RunningPolicy, *,
        n_batches: int = 1, seeds: IndexArray | None = None,
    ) -> tuple[MovableState, "Callable[[Any, Sequence[Move]], tuple[Any, bool]]"]:  # fmt: skip
        """Begin a fit of the rows X (n, D) with weights (n,) by memoized inference.

        Moves use such a fit to find new components for some rows. ``policy`` sets the temperature,
        and ``n_batches`` is the number of batches. Initial components are chosen among the rows
        with the indices ``seeds``; None stands for all rows.

        Return the initial state, and a function ``sweep(model, moves)``, which makes a pass and
        then these moves. The function changes the state in place. It returns the model with learned
        priors, and whether the fit may stop.
        """


class SolvedBatch(NamedTuple):
    """A batch after its local step, the input of observers."""

    # The rows, prepared by the model.
    batch: Any
    # Key of the batch's memo.
    key: Hashable
    # The global parameters of the local step.
    global_params: Any
    # The result of the local step.
    result: LocalResult


class ObserverTools(NamedTuple):
    """Tools of observers, two of the tools in :class:`MoveTools`."""

    run: Run
    make_memo: Callable[[Any, LocalResult, Any], Memo]


#: ``observer(model, solved_batch, tools)`` returns the *notes* of a move on a batch: data of any
#: type that the move needs after the pass. The observer runs in the process that holds the rows of
#: the batch, and must be picklable.
Observer: TypeAlias = Callable[[Any, SolvedBatch, ObserverTools], Any]


class Move(ResumableMixin):
    """Base of moves of memoized inference, which prepare before a pass and act after the pass.

    During the pass, a move may observe each batch and take notes. A subclass overrides ``finish``,
    and further methods if the move needs them. A move changes memos and identifiers of components
    only by the methods of the state, which keep both consistent.

    Attributes
    ----------
    requires : tuple of Requirement
        Capabilities that the move needs of a model, besides those that memoized inference needs.
    exhausted : bool
        Whether the move has nothing more to try, so that convergence may be judged.
    """

    requires: tuple[Requirement, ...] = ()
    # Names and types of the attributes that an interrupted fit keeps, so that it can be resumed.
    kept_attributes: ClassVar[dict[str, Any]] = {"exhausted": bool}
    exhausted: bool = True
    # A model with new priors, which the move sets if it has accepted a change under new priors.
    # `update_priors` passes the priors on, and sets None.
    _relearned_model: Any = None

    def begin(self, model: Any, state: MovableState, tools: MoveTools) -> None:
        """Prepare the move before a pass, for instance by the choice of components to observe."""

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the observer of the next batch, which has ``n_rows`` rows; None for no observer.

        The method is called once for each batch of the pass, after :meth:`begin`.
        """
        return None

    def store_notes(self, notes: Any) -> None:
        """Store the notes on a batch, which the observer from :meth:`make_observer` has returned.

        The method is called for each batch that has an observer.
        """

    def finish(self, model: Any, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Change the state after the pass, when all memos are exact; return records of proposals.

        ``model`` has the priors learned so far. The statistics of ``state`` are the sum of the
        memos when the method is called.
        """
        raise NotImplementedError(f"{type(self).__name__} must define finish(model, state, tools).")

    def change_within_batch(
        self, model: Any, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Change the state after a batch of a stream; return records of proposals.

        ``key`` is the key of the batch's memo. Only the rows of this batch are available, and the
        memos of all batches.
        """
        return []

    def update_priors(self, model: Any) -> Any:
        """Return the model with the priors under which the last changes were accepted.

        The engine calls this method after each call of :meth:`begin`, :meth:`finish` and
        :meth:`change_within_batch`.
        """
        relearned_model = self._relearned_model
        self._relearned_model = None
        return model if relearned_model is None else model.with_priors_of(relearned_model)

    def conclude(self, model: Any, state: MovableState) -> bool:
        """Change the state after the last pass of a fit; return whether it may have changed."""
        return False


class SampledMove(Protocol):
    """A move between two passes of an engine without memos, which decides by a sample of rows."""

    # Capabilities that the move needs of a model.
    requires: tuple[Requirement, ...]
    # Whether the last search for changes has accepted no change, so that convergence may be judged.
    exhausted: bool

    def change_between_passes(
        self, model: Any, data: RowSource, state: SampledState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Change the state after a pass at T = 1; return records of proposals.

        ``data`` has the rows from which the move takes its sample.
        """
