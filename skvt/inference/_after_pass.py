"""Steps after a pass of any engine: moves, and averages of the globals."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from skvt.contracts import PassInputs, PassResult, Requirement, SampledMove
from skvt.expfam import RunningStats
from skvt.inference._memoized import Tools
from skvt.inference._state import State
from skvt.progress import Continued
from skvt.typing import Array

# Moves begin after this share of the passes, or at most this number of passes. Earlier, topics have
# not settled enough to be compared.
FIRST_SHARE = 0.5
MOST_BEFORE = 10


class MovesBetween(Continued):
    """Moves after passes at T = 1, except after the last one, since a pass must follow."""

    # `_first` is not kept, because a resumed fit may have another number of passes
    kept: ClassVar[dict[str, Any]] = {"_moved": bool}
    parts = frozenset({"_moves"})

    def __init__(self, moves: Sequence[SampledMove], n_passes: int) -> None:
        self._moves, self._n_passes = moves, n_passes
        self.requires = tuple(requirement for move in moves for requirement in move.requires)
        self._first = min(FIRST_SHARE * n_passes, MOST_BEFORE)
        self._moved = False

    def after(
        self, result: PassResult, number: int, state: State, inputs: PassInputs
    ) -> PassResult:
        """Make moves; ``state`` changes in place.

        A move may lower the bound, since a sample decides on it. The fit may not stop before all
        moves are exhausted.
        """
        has_moved = False
        if self._first <= number < self._n_passes and inputs.policy.at_unit_temperature:
            # a separate generator, so that rows are shuffled alike with and without moves
            rng = np.random.default_rng([state.seed, state.n_steps, 1])
            tools = Tools(number, rng, inputs.workers)
            for move in self._moves:
                records = move.between(result.model, inputs.data, state, tools)
                state.move_log.extend(records)
                has_moved |= any(record.accepted for record in records)
        self._moved |= has_moved
        # no moves are made under a policy that ends above T = 1
        never = inputs.policy.done and not inputs.policy.at_unit_temperature
        done = never or number >= self._n_passes
        return result._replace(
            monotone=result.monotone and not self._moved,
            may_stop=result.may_stop and (done or all(move.exhausted for move in self._moves)),
            has_moved=has_moved,
        )

    def finish(self, state: State) -> bool:
        """Return False, since the state does not change."""
        return False


class Averaging(Continued):
    """Average the statistics after the last passes at T = 1.

    Stochastic steps fluctuate about the optimum, and their mean is closer to it than the last step:
    averaging of iterates (Polyak and Juditsky 1992). Averaging statistics averages the natural
    parameters, so that the mean is a valid posterior with an exact bound. The last ``share`` of
    ``n_passes`` passes is averaged, without passes at T > 1.
    """

    # `_first` is not kept, because a resumed fit may have another number of passes
    kept: ClassVar[dict[str, Any]] = {
        "_n_averaged": int,
        "_sum": Annotated[list[Array], "statistics"],
    }
    requires: tuple[Requirement, ...] = ()

    def __init__(self, n_passes: int, share: float) -> None:
        self._first = (1.0 - share) * n_passes
        self._n_averaged = 0
        self._sum: list[Array] = []

    def after(
        self, result: PassResult, number: int, state: State, inputs: PassInputs
    ) -> PassResult:
        """Include the statistics in the mean if the pass is one of the last at T = 1."""
        if result.has_moved:
            # restart the mean, because the components have changed
            self._sum, self._n_averaged = [], 0
        elif number > self._first and inputs.policy.at_unit_temperature:
            self._include(state.plain_stats)
        return result

    def finish(self, state: State) -> bool:
        """Replace the last statistics by the mean; return whether there is one."""
        if self._n_averaged < 2:
            return False
        for total in self._sum:
            total /= total.dtype.type(self._n_averaged)
        state.stats = RunningStats(self._sum)
        self._sum, self._n_averaged = [], 0
        return True

    def _include(self, stats: Any) -> None:
        """Include these statistics in the mean."""
        self._n_averaged += 1
        if self._sum:
            stats.add_to(self._sum)
        else:
            self._sum = list(stats.value().arrays)
