"""Decisions on proposals of moves, and trials of fresh components.

A *proposal* of a move is a change of components. :func:`decide` decides on a proposal by the change
of the bound, and returns a :class:`Decision`, from which the record of the proposal is made.

A *memo* of rows has their statistics and entropies, from which the bound is computed. A
:class:`Trial` changes the components and updates the memo of a few rows. The memo of all other rows
stays the same, so that the bound of all rows is known. *Fresh* components are components that a
move proposes to add. :func:`compete` decides by a trial which of them are useful.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from numpy.typing import DTypeLike, NDArray

from skvt.contracts import MoveRecord
from skvt.expfam import RunningStats, Stats
from skvt.ties import exceeds

# Description of a merge in records.
MERGE_DESCRIPTION = "one component for both"


class Decision(NamedTuple):
    """The decision on a proposal."""

    is_accepted: bool
    # Change of the bound in nats; NaN if it was not computed.
    gain: float
    # The reason, as a sentence.
    reason: str

    def record(
        self, n_iter: int, move: str, target: Any, tried: str, n_changed: int = 1,
        n_proposals: int = 1,
    ) -> MoveRecord:  # fmt: skip
        """Return the record of the decision.

        Parameters
        ----------
        n_iter : int
            The number of the pass, from 1.
        move : str
            The name of the move, such as "birth".
        target : sequence of int
            The indices of the components that the proposal concerns.
        tried : str
            A description of the proposed change.
        n_changed : int
            The number of components that are added, merged or deleted if the change is accepted.
        n_proposals : int
            The number of proposals on which the decision was made together.
        """
        indices = ", ".join(map(str, target))
        n_accepted = n_changed if self.is_accepted else 0
        return MoveRecord(
            n_iter, move, indices, tried, n_proposals, n_accepted, self.gain, self.reason
        )


def decide(
    gain: float, scale: float, min_gain: float = 0.0, rows: str = "all rows",
    dtype: DTypeLike | None = None,
) -> Decision:  # fmt: skip
    """Return the decision on a proposal that changes the bound by ``gain`` nats.

    The proposal is accepted if ``gain`` exceeds ``min_gain`` by more than rounding errors. Rounding
    errors are relative to ``scale`` nats: see :func:`find_rounding_scale`. ``dtype`` is the
    precision of the bound, by default float64. The reason names the rows of the bound by ``rows``.
    """
    gain = float(gain)
    is_accepted = bool(exceeds(gain, min_gain, scale=scale, dtype=dtype))
    if is_accepted:
        reason = f"The bound of {rows} rises by {gain:.4g} nats."
    elif exceeds(-gain, 0.0, scale=scale, dtype=dtype):
        reason = f"The bound of {rows} would fall by {-gain:.4g} nats."
    elif exceeds(gain, 0.0, scale=scale, dtype=dtype):
        reason = f"The bound of {rows} would rise by {gain:.4g} nats, too little."
    else:
        reason = f"The bound of {rows} would not change."
    return Decision(is_accepted, gain, reason)


def record_rejected_merges(
    n_iter: int, move: str, pairs: list[tuple[float, Any]], scale: float
) -> list[MoveRecord]:
    """Return a list with a single record for all rejected merges; an empty list without merges.

    ``pairs`` has the gain and the two components of each merge. The record describes the merge of
    the largest gain. Rounding errors of gains are relative to ``scale`` nats.
    """
    if not pairs:
        return []
    gain, pair = max(pairs, key=itemgetter(0))
    decision = decide(gain, scale)
    if decision.is_accepted:
        # The merge alone would raise the bound. The caller has rejected it, because one of the two
        # components was merged with another component, or because several merges failed together.
        reason = f"The bound of all rows would rise by {gain:.4g} nats, but not with other merges."
        decision = Decision(is_accepted=False, gain=decision.gain, reason=reason)
    return [decision.record(n_iter, move, pair, MERGE_DESCRIPTION, n_proposals=len(pairs))]


class Trial:
    """A change of components, and updates of a few rows, while all other rows stay as they are.

    A subclass defines the methods :meth:`update` and :meth:`find_survivors`.
    """

    # The sum of the memos of all rows after the last update.
    total_memo: Any

    def update(self, stats: RunningStats) -> float:
        """Make a local step of the few rows; return the bound of all rows in nats.

        ``stats`` determine the global parameters of the local step. Set ``total_memo``.
        """
        raise NotImplementedError

    def find_survivors(self, fresh_stats: Stats) -> tuple[NDArray[Any], Stats]:
        """Return which of the fresh components have enough rows after the last update.

        The first result is an array of bool (K',) for the K' components of ``fresh_stats``. The
        second result has the statistics of the components that have enough rows.
        """
        raise NotImplementedError

    def compute_gain(
        self, stats: RunningStats, bound_before: float, max_updates: int, scale: float | None = None
    ) -> float:
        """Make updates; return the rise of the bound by the change and the updates, in nats.

        The first update is made with the statistics ``stats``. ``bound_before`` is the bound before
        the change, in nats. The updates end early if the bound would stay below ``bound_before``
        even if each remaining update gained as much as the last update. They also end as soon as
        the bound exceeds ``bound_before``, unless ``scale``, the scale of rounding errors in nats,
        is None.
        """
        gain = self.update(stats) - bound_before
        # n_left is the number of updates after the update of this iteration.
        for n_left in reversed(range(max_updates - 1)):
            if scale is not None and exceeds(gain, 0.0, scale=scale):
                break
            # Continue from the statistics of all rows.
            stats = RunningStats(self.total_memo.stats.arrays)
            previous_gain, gain = gain, self.update(stats) - bound_before
            if gain + n_left * (gain - previous_gain) < 0.0:
                break
        return gain


def compete(
    make_trial: Callable[[Stats], tuple[Any, RunningStats]], fresh_stats: Stats,
    bound_before: float, max_updates: int, scale: float, min_gain: float,
) -> tuple[Any, Decision]:  # fmt: skip
    """Let fresh components compete for the rows of a trial; return the trial and the decision.

    Fresh components that have too few rows at the end of a trial are dropped. The trial is repeated
    with the remaining components, until all of them have enough rows. The returned trial is None if
    no fresh component is left.

    Parameters
    ----------
    make_trial : callable
        ``make_trial(fresh_stats)`` returns a trial, and the statistics with which updates begin.
    fresh_stats : Stats
        The statistics of the fresh components.
    bound_before : float
        The bound of all rows without the fresh components, in nats.
    max_updates : int
        Maximum number of updates of a trial.
    scale, min_gain : float
        Scale of rounding errors, and gain that a useful change exceeds, in nats: see
        :func:`decide`.
    """
    while len(fresh_stats.arrays[0]):
        trial, stats = make_trial(fresh_stats)
        # Do not pass ``scale``, so that updates go on after the bound has risen: components are
        # dropped by their numbers of rows, which change until the last update.
        gain = trial.compute_gain(stats, bound_before, max_updates)
        are_survivors, fresh_stats = trial.find_survivors(fresh_stats)
        if are_survivors.all():
            return trial, decide(gain, scale, min_gain)
    reason = "No fresh component keeps enough rows."
    return None, Decision(is_accepted=False, gain=float("nan"), reason=reason)
