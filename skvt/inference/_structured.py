"""Structured stochastic variational inference (SSVI): local steps given drawn globals [HB15].

The *globals* beta are the global parameters. :class:`StructuredInference` is stochastic inference
in which a *visit*, that is, the local step of a minibatch, is made given globals that are drawn
from q(beta).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skvt.contracts import (
    Capability,
    Drawable,
    LocalTotals,
    PassInputs,
    PassResult,
    Requirement,
    Stream,
)
from skvt.expfam import RunningStats
from skvt.inference._parallel import Workers
from skvt.inference._state import State
from skvt.inference._stochastic import StochasticInference
from skvt.inference._visit import Draw

# Kinds of globals for local steps [HB15 sec. 2.5]. "ssvi" and "ssvi-a": globals drawn from q;
# "mean_field": the expected statistics of the globals; "map": the mean of q as the globals.
GLOBAL_STEPS = ("ssvi", "ssvi-a", "mean_field", "map")
_DRAWS = Requirement(
    "Structured inference", Capability.DRAWABLE, "Use stochastic inference instead."
)
_CORRECTION = Requirement(
    'global_step="ssvi"', Capability.CORRECTABLE, 'Use global_step="ssvi-a" instead.'
)


@dataclass(eq=False)
class StructuredInference(StochasticInference[Drawable]):
    """SSVI and SSVI-A on shuffled minibatches [HB15 alg. 1].

    A step draws beta from q(beta), and makes the local step, given beta, of a minibatch of S of the
    N rows. With the statistics eta_hat of the local step, it updates the natural parameters lam of
    q(beta):

        lam <- (1 - rho) lam + rho (eta + (N / S) V(beta, lam) eta_hat)      [HB15 eq. 11]

    Here eta are the natural parameters of the prior, rho is the step size, and V is a correction
    for the dependence of beta on lam. SSVI-A replaces V by its expectation, the identity
    [HB15 eq. 10].
    """

    # A kind in `GLOBAL_STEPS`. Only "ssvi" uses the correction V.
    global_step: str
    # In a stream that counts its rows, the step size is at most this number times the share of the
    # step's rows in all rows so far. None stands for no limit.
    max_rate_per_share: float | None = None

    bound_kind = "none"

    def __post_init__(self) -> None:
        self.requires = (_DRAWS, _CORRECTION) if self.global_step == "ssvi" else (_DRAWS,)

    def run_pass(self, model: Drawable, state: State, inputs: PassInputs) -> PassResult:
        """Make a pass, and change ``state`` in place. The result has no bound."""
        if model.updates_all_rows:
            # Steps of these models keep components sorted, but the components of the initial
            # statistics need not be sorted.
            model.project(state.stats)
        return super().run_pass(model, state, inputs)

    def step(
        self, model: Drawable, batches: Sequence[Any], total_weight: float, state: State,
        inputs: PassInputs, totals: LocalTotals | None = None,
        rate: Callable[[int], float] | None = None,
    ) -> Drawable:  # fmt: skip
        """Make a step on several minibatches, each with a separate draw of the globals."""
        model = super().step(model, batches, total_weight, state, inputs, totals, rate)
        # Make the statistics legal and sort the components. A step with the correction V may have
        # made statistics illegal; a step that changes all statistics may have changed the order.
        if model.updates_all_rows or self.global_step == "ssvi":
            model.project(state.stats)
        return model

    def _make_rate(
        self, stream: Stream, weight: float, state: State, share: float
    ) -> Callable[[int], float]:
        """Return step sizes that are limited by the share of the rows in the stream so far.

        ``weight`` is the weight of the rows of a step. If the stream becomes longer than the user
        has announced by ``total_samples``, the limit stays constant, so that early rows are
        forgotten.
        """
        rate = super()._make_rate(stream, weight, state, share)
        if self.max_rate_per_share is None or not stream.counts_rows:
            return rate
        weight_so_far = min(stream.n_rows, stream.total_samples or np.inf)
        max_rate = self.max_rate_per_share * weight / weight_so_far
        return lambda i: min(max_rate, rate(i))

    def _combine_rates(self, rates: Sequence[float]) -> float:
        """Return the size of a single step that replaces several steps.

        For "ssvi" the result is the first size, because large steps with the correction V diverge.
        """
        return super()._combine_rates(rates[:1] if self.global_step == "ssvi" else rates)

    def _make_draw(self, state: State, visit: int) -> Draw:
        """Return a draw of the kind ``global_step``, with a separate seed for each visit."""
        # The number 0 of the first visit is not part of the seed, so that the first visit of each
        # step has the same draw, however many visits follow.
        seed = [state.seed, state.n_steps] + ([visit] if visit else [])
        return Draw(self.global_step, seed, is_corrected=self.global_step == "ssvi")

    def _make_globals(
        self, model: Drawable, stats: RunningStats, batch: Any, workers: Workers
    ) -> Any:
        """Return the statistics from which visits draw their globals."""
        # The correction V needs the statistics of all columns of the data, which are rows of the
        # arrays of statistics. Without V, the statistics of the columns in the batch are enough.
        active = None if self.global_step == "ssvi" else model.scope(batch).active
        return stats.view_of_rows(active)
