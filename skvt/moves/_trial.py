"""Decisions on proposals of moves, and trials of fresh components.

:func:`judged` decides on a change of components by the change of the bound, and returns an
:class:`Outcome`, from which the record of the proposal is made. A :class:`Trial` makes a change of
components for a few rows, while all other rows stay as they are, so that the bound of all rows is
known. :func:`compete` decides by a trial which of several fresh components are useful.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from numpy.typing import DTypeLike, NDArray

from skvt.contracts import MoveRecord
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import is_accepted

# Description of a merge in records.
ONE_FOR_BOTH = "one component for both"


class Outcome(NamedTuple):
    """The decision on a proposal."""

    is_accepted: bool
    # Change of the bound in nats; NaN if it was not computed.
    gain: float
    # The reason, as a sentence.
    reason: str

    def record(
        self, n_iter: int, move: str, target: Any, tried: str, number: int = 1, proposed: int = 1
    ) -> MoveRecord:
        """Return the record of one or more proposals.

        Parameters
        ----------
        n_iter : int
            The number of the pass, from 1.
        move : str
            The name of the move, such as "birth".
        target : sequence of int
            The numbers of the components that the proposals concern.
        tried : str
            A description of the proposed change.
        number : int
            The number of components that are added, merged or deleted if the change is accepted.
        proposed : int
            The number of proposals.
        """
        names = ", ".join(map(str, target))
        accepted = number if self.is_accepted else 0
        return MoveRecord(n_iter, move, names, tried, proposed, accepted, self.gain, self.reason)


def judged(
    gain: float, size: float, min_gain: float = 0.0, rows: str = "all rows",
    dtype: DTypeLike | None = None,
) -> Outcome:  # fmt: skip
    """Return the decision on a proposal by which the bound changes by ``gain`` nats.

    The proposal is accepted if ``gain`` exceeds ``min_gain`` by more than rounding errors, which
    are relative to ``size`` nats and to the precision ``dtype``. ``rows`` names the rows of the
    bound in the reason.
    """
    accepted, gain = is_accepted(gain, size, min_gain, dtype), float(gain)
    if accepted:
        reason = f"The bound of {rows} rises by {gain:.4g} nats."
    elif is_accepted(-gain, size, 0.0, dtype):
        reason = f"The bound of {rows} would fall by {-gain:.4g} nats."
    elif is_accepted(gain, size, 0.0, dtype):
        reason = f"The bound of {rows} would rise by {gain:.4g} nats, too little."
    else:
        reason = f"The bound of {rows} would not change."
    return Outcome(accepted, gain, reason)


def rejected(
    n_iter: int, move: str, pairs: list[tuple[float, Any]], size: float
) -> list[MoveRecord]:
    """Return a list with one record of all rejected merges; an empty list if there are none.

    ``pairs`` has the gain and the two components of each merge. The record has the largest gain and
    its components. Rounding errors of gains are relative to ``size`` nats.
    """
    if not pairs:
        return []
    gain, pair = max(pairs, key=itemgetter(0))
    outcome = judged(gain, size)._replace(is_accepted=False)
    return [outcome.record(n_iter, move, pair, ONE_FOR_BOTH, proposed=len(pairs))]


class Trial:
    """Updates of a few rows after a change of components, while all other rows stay as they are.

    A subclass defines the methods :meth:`update` and :meth:`survivors`.
    """

    # The memo of all rows after the last update.
    total: Any

    def update(self, stats: RunningStats) -> float:
        """Make a local step of the few rows, with the globals that these statistics determine.

        Set ``total``, and return the bound of all rows in nats.
        """
        raise NotImplementedError

    def survivors(self, fresh: Stats) -> tuple[NDArray[Any], Stats]:
        """Return which fresh components have enough rows after the last update.

        The first result (K',) has a truth value for each of the K' components of ``fresh``. The
        second has the statistics of those that have enough rows.
        """
        raise NotImplementedError

    def gain(
        self, stats: RunningStats, before: float, max_updates: int, size: float | None = None
    ) -> float:
        """Return the rise of the bound in nats after updates that begin with these statistics.

        ``before`` is the bound before the change. The updates end early if the bound would not rise
        above ``before`` even if each remaining update gained as much as the last one. If ``size``,
        the scale of rounding errors in nats, is not None, they also end as soon as the rise is
        accepted.
        """
        gain = self.update(stats) - before
        for n_left in range(max_updates - 1, 0, -1):
            if size is not None and is_accepted(gain, size):
                break
            stats = RunningStats(self.total.stats.arrays)
            previous_gain, gain = gain, self.update(stats) - before
            if gain + (n_left - 1) * (gain - previous_gain) < 0.0:
                break
        return gain


def compete(
    begin: Callable[[Stats], tuple[Any, RunningStats]], fresh: Stats, before: float,
    max_updates: int, size: float, min_gain: float,
) -> tuple[Any, Outcome]:  # fmt: skip
    """Let fresh components compete for the rows of a trial; return the trial and its outcome.

    The trial is repeated without the fresh components that end with too few rows, until all have
    enough rows. The returned trial is None if no fresh component is left.

    Parameters
    ----------
    begin : callable
        ``begin(fresh)`` returns a trial, and the statistics with which its updates begin.
    fresh : Stats
        The statistics of the fresh components.
    before : float
        The bound of all rows without the fresh components, in nats.
    max_updates : int
        Maximum number of updates of a trial.
    size, min_gain : float
        Scale of rounding errors, and smallest gain of a useful change, in nats: see :func:`judged`.
    """
    while len(fresh.arrays[0]):
        trial, stats = begin(fresh)
        gain = trial.gain(stats, before, max_updates)
        survives, fresh = trial.survivors(fresh)
        if survives.all():
            return trial, judged(gain, size, min_gain)
    return None, Outcome(False, float("nan"), "No fresh component keeps enough rows.")
