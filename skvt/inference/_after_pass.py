"""Steps after each pass of an engine: :class:`MovesBetweenPasses` and :class:`Averaging`.

An *engine* is an inference algorithm, and a *move* changes the components of the model if the bound
rises. ``skvt.inference.Plan`` calls the steps. T is the temperature.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from skvt.contracts import PassInputs, PassResult, Requirement, SampledMove
from skvt.expfam import RunningStats
from skvt.inference._memoized import EngineTools
from skvt.inference._state import State
from skvt.progress import ResumableMixin
from skvt.typing import Array

# Moves begin after this share of the passes, but after at most MAX_PASSES_BEFORE_MOVES passes. In
# earlier passes, topics change too much to be compared.
SHARE_BEFORE_MOVES = 0.5
MAX_PASSES_BEFORE_MOVES = 10


class MovesBetweenPasses(ResumableMixin):
    """Moves after passes at T = 1, which decide by a sample of the rows.

    If ``numbers`` is None, moves may be made after each of the ``n_passes`` passes, from the first
    pass in which topics can be compared. Otherwise, moves are made after the passes with these
    ``numbers``, until moves make no change. No moves follow the last pass of the fit, because each
    move needs a pass after it.
    """

    # Attributes that an interrupted fit keeps. `_numbers` are not kept, because a resumed fit may
    # have another number of passes.
    kept_attributes: ClassVar[dict[str, Any]] = {"_moved": bool}
    kept_parts = frozenset({"_moves"})

    def __init__(
        self, moves: Sequence[SampledMove], n_passes: int, numbers: Sequence[int] | None = None
    ) -> None:
        self._moves = moves
        self.requires = tuple(requirement for move in moves for requirement in move.requires)
        # The numbers of the passes after which moves may be made.
        first = math.ceil(min(SHARE_BEFORE_MOVES * n_passes, MAX_PASSES_BEFORE_MOVES))
        self._numbers = range(first, n_passes) if numbers is None else numbers
        self._ends_without_change = numbers is not None
        # Whether any move has been accepted so far.
        self._moved = False

    def apply(
        self, result: PassResult, number: int, state: State, inputs: PassInputs
    ) -> PassResult:
        """Make moves after a pass, and change ``state`` in place.

        ``number`` is the number of the pass. Return the result of the pass with changed flags.
        ``monotone`` is False after a move, because a move that raises the bound of a sample may
        lower the bound of all rows. ``may_stop`` is False until all moves are exhausted.
        """
        has_moved = False
        is_exhausted = all(move.exhausted for move in self._moves)
        is_due = number in self._numbers and not (self._ends_without_change and is_exhausted)
        if is_due and inputs.policy.at_unit_temperature:
            # Moves have a separate generator, so that they do not change the shuffling of rows.
            rng = np.random.default_rng([state.seed, state.n_steps, 1])
            tools = EngineTools(number, rng, inputs.workers)
            for move in self._moves:
                records = move.change_between_passes(result.model, inputs.data, state, tools)
                state.move_log.extend(records)
                has_moved |= any(record.accepted for record in records)
        self._moved |= has_moved
        # No move follows if the temperature stays above 1, or if ``number`` exceeds the last of
        # `_numbers`, which may be empty.
        stays_hot = inputs.policy.done and not inputs.policy.at_unit_temperature
        is_over = stays_hot or all(last < number for last in self._numbers[-1:])
        has_no_move_left = is_over or all(move.exhausted for move in self._moves)
        return result._replace(
            monotone=result.monotone and not self._moved,
            may_stop=result.may_stop and has_no_move_left,
            has_moved=has_moved,
        )

    def finish(self, state: State) -> bool:
        """Return False, because the state does not change."""
        return False


class Averaging(ResumableMixin):
    """The mean of the statistics over the last passes at T = 1 (Polyak and Juditsky 1992).

    The results of stochastic steps fluctuate about the optimum, and their mean is closer to the
    optimum than the last result. Natural parameters are linear in the statistics, so that the mean
    of the statistics determines a legal posterior, whose exact bound can be evaluated. The mean is
    taken over the last ``averaged_share`` of the ``n_passes`` passes, without passes at T > 1.
    """

    # Attributes that an interrupted fit keeps. `_n_before_mean` is not kept, because a resumed fit
    # may have another number of passes.
    kept_attributes: ClassVar[dict[str, Any]] = {
        "_n_averaged": int,
        "_sum": Annotated[list[Array], "statistics"],
    }
    requires: tuple[Requirement, ...] = ()

    def __init__(self, n_passes: int, averaged_share: float) -> None:
        # Number of passes before the first averaged pass.
        self._n_before_mean = (1.0 - averaged_share) * n_passes
        # Number of passes averaged so far.
        self._n_averaged = 0
        # Each array of the statistics, summed over the passes averaged so far.
        self._sum: list[Array] = []

    def apply(
        self, result: PassResult, number: int, state: State, inputs: PassInputs
    ) -> PassResult:
        """Add the statistics to the mean if the pass is averaged; return ``result`` unchanged."""
        if result.has_moved:
            # Restart the mean, because the components have changed.
            self._n_averaged = 0
            self._sum = []
        elif number > self._n_before_mean and inputs.policy.at_unit_temperature:
            self._n_averaged += 1
            if self._sum:
                state.plain_stats.add_to(self._sum)
            else:
                self._sum = list(state.plain_stats.as_stats().arrays)
        return result

    def finish(self, state: State) -> bool:
        """Replace the statistics of the state by the mean, if at least two passes were averaged.

        Return whether the statistics have changed.
        """
        if self._n_averaged < 2:
            return False
        for total in self._sum:
            total /= total.dtype.type(self._n_averaged)
        state.stats = RunningStats(self._sum)
        self._n_averaged = 0
        self._sum = []
        return True
