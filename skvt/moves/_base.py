"""The contract of a move, and its record."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from skvt.expfam import RunningStats, Stats
from skvt.models import Capability, LocalResult, Memoizable, Requirement, RowSource
from skvt.progress import Continued
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray, Run


class Memo(Protocol):
    """Contribution of a batch, or of several: see `skvt.inference`."""

    @property
    def stats(self) -> Stats: ...
    @property
    def entropy(self) -> Array: ...
    @property
    def merge_entropy_loss(self) -> Array | None: ...
    @property
    def weight(self) -> float: ...

    def plus(self, other: Any, sign: float = 1.0) -> Self:
        """The sum with another memo, or with ``sign=-1`` the difference."""
        ...

    def rearranged(self, index: IndexArray) -> Self:
        """Components in another order: those of ``index``, empty ones where it is -1."""
        ...


class Memos(Protocol):
    """The memo of each batch by its key, and their sum."""

    def __getitem__(self, key: Hashable, /) -> Memo: ...
    def __setitem__(self, key: Hashable, memo: Any, /) -> None: ...
    def __len__(self) -> int: ...

    def of(self, memos: Mapping[Hashable, Any]) -> Any:
        """Memos of the same kind, from a mapping."""
        ...

    def total(self) -> Memo:
        """The sum of all memos, as a memo with arrays of its own."""
        ...


class SampledState(Protocol):
    """The state as moves between passes change it: the statistics."""

    stats: RunningStats


class MovableState(SampledState, Protocol):
    """A state with memos, as moves read and change it: see `skvt.inference.MemoizedState`."""

    component_ids: IndexArray

    @property
    def memos(self) -> Memos: ...
    @property
    def plain_stats(self) -> RunningStats: ...

    def begun(self, batch: Any) -> Any:
        """The batch, with local steps starting where the last ones of these rows ended."""

    def remember_ends(self, rows: IndexArray | None, start: Array | None) -> None:
        """Store where the next local step of these rows begins."""

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Component a takes over the rows of b, which is left empty; a < b."""

    def rearrange(self, index: IndexArray) -> None:
        """Components in another order: those of ``index``, empty ones where it is -1."""

    def resum(self) -> None:
        """Statistics are the sum of the memos."""

    def checkpoint(self) -> Any:
        """What :meth:`restore` needs."""

    def restore(self, checkpoint: Any) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""


@dataclass(frozen=True)
class MoveRecord:
    """Record of one kind of move at the end of a pass.

    Attributes
    ----------
    n_iter : int
        The pass, from 1.
    move : str
        "birth", "merge", "delete", "refresh", "superposition" or "split-merge".
    proposed, accepted : int
        Components proposed and accepted (born, merged away, deleted), or changes.
    gain : float
        Rise of the exact bound in nats. For births it is the rise since the end of the last pass,
        if components were adopted in this one; for "split-merge" it is estimated on the sample.
    reason : str
        Why births came to nothing, one after the other; empty for other moves.
    """

    n_iter: int
    move: str
    proposed: int
    accepted: int
    gain: float
    reason: str = ""


def _no_memos(*args: Any) -> Any:
    raise RuntimeError("An engine without memos lends its moves none.")


@dataclass(frozen=True)
class MoveTools:
    """Tools that an engine provides to its moves.

    Attributes
    ----------
    n_iter : int
        The pass, from 1.
    rng : numpy.random.Generator
    run : callable
        ``run(function, tasks)``.
    fresh : callable
        ``fresh(model, batch, n_components, goal, learns, init_params)`` fits a new mixture to a
        batch and returns its memo, and the model, whose priors it has learned if it ``learns``; it
        ends early where the bound will not reach the ``goal``. Only with memos.
    memo_of : callable
        ``memo_of(model, result, batch)``: a local result's :class:`~skvt.inference._memos.Memo`.
        Likewise.
    annealed : callable
        ``annealed(model, X, weights, n_components)`` fits the model anew to rows of these weights,
        with falling temperature, and returns its statistics. Likewise.
    """

    n_iter: int
    rng: np.random.Generator
    run: Run
    fresh: Callable[[Any, Any, int, float, bool, str], tuple[Memo, Any]] = _no_memos
    memo_of: Callable[[Any, LocalResult, Any], Memo] = _no_memos
    annealed: Callable[[Any, Any, Any, int], Stats] = _no_memos


class Solved(NamedTuple):
    """A batch after its local step, as observers see it.

    Attributes
    ----------
    batch : object
    key : hashable
        Of the batch among the memos.
    global_params : object
        The globals as passed to the local step.
    result : LocalResult
    """

    batch: Any
    key: Hashable
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
        """What shall be noted of the next batch, of so many rows; None for nothing.

        It can be pickled: the batch may lie elsewhere.
        """
        return None

    def note(self, noted: Any) -> None:
        """Keep what the observer of a batch has noted."""

    def finish(self, model: Any, state: MovableState, tools: MoveTools) -> MoveRecord:
        """After the pass, memos exact; changes the state and returns a :class:`MoveRecord`."""
        raise NotImplementedError

    def within(
        self, model: Any, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """After one batch of a stream, its memo exact. Returns records, none if nothing was tried.

        Empty by default: rows of other batches would have to be visited again.
        """
        return []

    def under_priors(self, model: Any) -> Any:
        """The model with the priors that the changes accepted last need."""
        found, self._relearned = self._relearned, None
        return model if found is None else model.with_priors_of(found)

    def conclude(self, model: Any, state: MovableState) -> bool:
        """After the last pass; whether the state has changed."""
        return False


class SampledMove(Protocol):
    """A move between two passes of an engine without memos, judged on a sample of the rows.

    Attributes
    ----------
    requires : tuple of Requirement
        Capabilities of a model that it needs.
    exhausted : bool
        Whether the last search found nothing, so that convergence may be judged.
    """

    requires: tuple[Requirement, ...]
    exhausted: bool

    def between(
        self, model: Any, data: RowSource, state: SampledState, tools: MoveTools
    ) -> MoveRecord:
        """After a pass at T = 1; changes the state and returns a :class:`MoveRecord`."""


def bound_of(model: Memoizable, memo: Memo) -> float:
    """The exact evidence lower bound in nats of a memo's rows, at the globals optimal for them."""
    return float(memo.entropy.sum()) + model.collapsed_energy(memo.stats)


def size_of(bound: float, memo: Memo) -> float:
    """Scale in nats of the rounding errors in a memo's bound.

    The larger of the bound and a nat for each row: in a sum over rows, terms may cancel.
    """
    return max(abs(bound), memo.weight)


def of_components(whom: str) -> tuple[Requirement, ...]:
    """Capabilities of a model that births, merges and deletes need."""
    return (Requirement(whom, Capability.MERGEABLE, "Leave it out of moves."),)


def is_accepted(gain: float, size: float, least: float = 0.0) -> bool:
    """The rule of acceptance: whether the exact bound rises by more than ``least`` nats.

    Differences within the rounding error of a bound of this ``size`` do not count.
    """
    return bool(exceeds(gain, least, scale=size))
