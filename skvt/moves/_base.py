"""The contract of a move, and its record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from skvt.models import Capability, Requirement
from skvt.ties import exceeds


@dataclass(frozen=True)
class MoveRecord:
    """What one kind of move did at the end of a pass.

    Attributes
    ----------
    n_iter : int
        The pass, from 1.
    move : str
        "birth", "merge", "delete", "refresh", "superposition" or "split-merge".
    proposed, accepted : int
        Components proposed and accepted (born, merged away, deleted), or changes.
    gain : float
        Rise of the exact bound in nats; of births since the last pass began, thanks to the
        components adopted in this one. Of "split-merge", estimated on the sample.
    """

    n_iter: int
    move: str
    proposed: int
    accepted: int
    gain: float


@dataclass(frozen=True)
class MoveTools:
    """What an engine lends its moves.

    Attributes
    ----------
    n_iter : int
        The pass, from 1.
    rng : numpy.random.Generator
    run : callable
        ``run(function, tasks)``.
    fresh : callable
        ``fresh(model, batch, n_components)`` fits a new mixture to a batch of its own and returns
        its statistics; only where there are memos.
    memo_of : callable
        ``memo_of(model, result, batch)``: a local result's :class:`~skvt.inference._memos.Memo`.
        Likewise.
    """

    n_iter: int
    rng: np.random.Generator
    run: Callable
    fresh: Callable | None = None
    memo_of: Callable | None = None


class Move:
    """A move goes along with one pass: it prepares, watches the batches, and acts at the end.

    The base of all moves; what a move does not need to do, it inherits. The identity of components
    and the memos belong to the state: a move changes them by the state's methods alone.

    Attributes
    ----------
    requires : tuple of Requirement
        What it asks of a model, beside what memoized inference does.
    exhausted : bool
        Whether the move has nothing more to try, so that convergence may be judged.
    """

    requires = ()
    exhausted = True

    def begin(self, model, state, tools):
        """Before the pass."""

    def observe(self, model, batch, key, global_params, result, tools):
        """After the local step on a batch."""

    def finish(self, model, state, tools):
        """After the pass, memos exact; changes the state and returns a :class:`MoveRecord`."""
        raise NotImplementedError

    def within(self, model, batch, key, state, tools):
        """After one batch of a stream, its memo exact; a list of records, none if not tried.

        By default none: rows of other batches would have to be seen again.
        """
        return []

    def conclude(self, model, state):
        """After the last pass; whether the state has changed."""
        return False


class SampledMove(Protocol):
    """A move between two passes of an engine without memos, judged on a sample of the rows.

    Attributes
    ----------
    requires : tuple of Requirement
        What it asks of a model.
    exhausted : bool
        Whether the last search found nothing, so that convergence may be judged.
    """

    requires: tuple
    exhausted: bool

    def between(self, model, data, state, tools):
        """After a pass at T = 1; changes the state and returns a :class:`MoveRecord`."""


def bound_of(model, memo):
    """The exact evidence lower bound in nats of what a memo remembers, globals optimal for it."""
    return float(memo.entropy.sum()) + model.collapsed_energy(memo.stats)


def size_of(model, memo):
    """Nats to which the rounding of the bound is relative, so that a gain is told from none.

    The bound itself, and a nat for each row: it is a sum over rows, in which terms may cancel.
    """
    return max(abs(bound_of(model, memo)), memo.weight)


def of_components(whom):
    """What births, merges and deletes ask of a model."""
    return (Requirement(whom, Capability.MERGEABLE, "Leave it out of moves."),)


def is_accepted(gain, size, least=0.0):
    """THE rule of acceptance: whether the exact bound rises by more than so many nats.

    Differences that rounding may make, of a bound of this ``size``, are no rise.
    """
    return bool(exceeds(gain, least, scale=size))
