"""Trials: a change is made for a few rows, and the exact bound of all rows decides on it."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from numpy.typing import DTypeLike, NDArray

from skvt.contracts import MoveRecord
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import is_accepted

# Description of merges in records.
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
        """Return the record of the proposal, with its ``number`` of components if accepted.

        The ``target`` is a sequence of the numbers of components.
        """
        names, accepted = ", ".join(map(str, target)), number if self.is_accepted else 0
        return MoveRecord(n_iter, move, names, tried, proposed, accepted, self.gain, self.reason)


def judged(
    gain: float,
    size: float,
    least: float = 0.0,
    rows: str = "all rows",
    dtype: DTypeLike | None = None,
) -> Outcome:
    """Decide on a proposal by the rise of the bound of these rows; see :func:`is_accepted`."""
    accepted, gain = is_accepted(gain, size, least, dtype), float(gain)
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
    """Return one record of all merges that were rejected: the gain and numbers of the best pair."""
    if not pairs:
        return []
    gain, pair = max(pairs, key=itemgetter(0))
    outcome = judged(gain, size)._replace(is_accepted=False)
    return [outcome.record(n_iter, move, pair, ONE_FOR_BOTH, proposed=len(pairs))]


class Trial:
    """Updates of a few rows after a change of components; all other rows stay as they are.

    A subclass makes the updates. ``total`` is the memo of all rows after the last one.
    """

    total: Any

    def update(self, stats: RunningStats) -> float:
        """Make a local step with these statistics; return the bound of all rows in nats."""
        raise NotImplementedError

    def survivors(self, fresh: Stats) -> tuple[NDArray[Any], Stats]:
        """Return which fresh components have enough rows, and the statistics to go on with."""
        raise NotImplementedError

    def gain(
        self, stats: RunningStats, before: float, most: int, size: float | None = None
    ) -> float:
        """Return the rise of the bound in nats after updates that begin with these statistics.

        There are at most ``most`` updates. They end if the remaining ones, at the rate of the last
        one, would not make the change positive, or, given the ``size`` of the bound, once the rise
        is accepted.
        """
        gain = previous = self.update(stats) - before
        for n_left in range(most - 1, 0, -1):
            if size is not None and is_accepted(gain, size):
                break
            stats = RunningStats(self.total.stats.arrays)
            previous, gain = gain, self.update(stats) - before
            if gain + (n_left - 1) * (gain - previous) < 0.0:
                break
        return gain


def compete(
    begin: Callable[[Stats], tuple[Any, RunningStats]],
    fresh: Stats,
    before: float,
    most: int,
    size: float,
    least: float,
) -> tuple[Any, Outcome]:
    """Let fresh components compete for the rows of a trial; return the trial and its outcome.

    ``begin`` makes a trial from the statistics of fresh components, and the statistics with which
    its updates begin. The trial is made again without components that end with too few rows.
    """
    outcome = Outcome(False, float("nan"), "No fresh component keeps enough rows.")
    while len(fresh.arrays[0]):
        trial, stats = begin(fresh)
        gain = trial.gain(stats, before, most)
        lives, fresh = trial.survivors(fresh)
        if lives.all():
            return trial, judged(gain, size, least)
    return None, outcome
