"""Structured stochastic variational inference: local steps given drawn globals [HB15 alg. 1]."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skvt.contracts import Capability, Drawable, PassInputs, PassResult, Requirement, Stream
from skvt.expfam import RunningStats
from skvt.inference._parallel import Workers
from skvt.inference._state import State
from skvt.inference._stochastic import StochasticInference, Visits
from skvt.inference._visit import Draw

# "ssvi" and "ssvi-a" draw the globals; the others condition local steps on an expectation or a
# point [HB15 sec. 2.5].
GLOBAL_STEPS = ("ssvi", "ssvi-a", "mean_field", "map")
_DRAWS = Requirement(
    "Structured inference", Capability.DRAWABLE, "Use stochastic inference instead."
)
_CORRECTION = Requirement(
    'global_step="ssvi"', Capability.CORRECTABLE, 'Use global_step="ssvi-a" instead.'
)


@dataclass(eq=False)
class StructuredInference(StochasticInference[Drawable]):
    """SSVI and SSVI-A on shuffled minibatches.

    A step draws beta from q(beta), solves the minibatch given beta, and moves

        lam <- (1 - rho) lam + rho (eta + (N / S) V(beta, lam) eta_hat)      [HB15 eq. 11]

    SSVI-A replaces V by its expectation, the identity [HB15 eq. 10]. In a stream that counts its
    rows, a step is at most ``most_of_share`` times the share of its rows in all rows so far.
    """

    global_step: str
    most_of_share: float | None = None

    bound_kind = "none"

    def __post_init__(self) -> None:
        self.requires = (_DRAWS, _CORRECTION) if self.global_step == "ssvi" else (_DRAWS,)

    def run_pass(self, model: Drawable, state: State, inputs: PassInputs) -> PassResult:
        """Make one pass; ``state`` changes in place."""
        if model.updates_all_rows:
            model.project(state.stats)  # a start may have components in another order
        return super().run_pass(model, state, inputs)

    def step(
        self, model: Drawable, batches: Sequence[Any], total: float, state: State, visits: Visits
    ) -> Drawable:
        """Make a step on minibatches visited at once, each with its own draw of the globals."""
        model = super().step(model, batches, total, state, visits)
        if model.updates_all_rows or self.global_step == "ssvi":
            model.project(state.stats)
        return model

    def _rate_of(self, stream: Stream, weight: float) -> Callable[[int], float]:
        """Limit steps by the share of rows; a stream longer than assumed forgets its first rows."""
        if self.most_of_share is None or not stream.grows:
            return self.rate
        seen = min(stream.n_rows, stream.total or np.inf)
        most = self.most_of_share * weight / seen
        return lambda step: min(most, self.rate(step))

    def _size(self, rates: Sequence[float]) -> float:
        """Return the size of a combined step; large corrected steps of "ssvi" would diverge."""
        return super()._size(rates[:1] if self.global_step == "ssvi" else rates)

    def _draw(self, state: State, place: int) -> Draw:
        """Return a draw by the kind of the global step, with a separate seed for each visit."""
        seed = [state.seed, state.n_steps, place][: 3 if place else 2]
        return Draw(self.global_step, seed, is_corrected=self.global_step == "ssvi")

    def _globals(self, model: Drawable, stats: RunningStats, batch: Any, workers: Workers) -> Any:
        """Return the statistics from which visits draw their globals."""
        # a correction needs the statistics of all words
        active = None if self.global_step == "ssvi" else model.scope(batch).active
        return stats.for_rows(active)
