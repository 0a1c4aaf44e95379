"""The plan of a fit: its rows, phases, temperature policy and rules for stopping.

A *start* is a fit from one set of random initial values. An estimator makes a :class:`Plan` for
each start, and :func:`~skvt.inference.fit_loop` makes its passes. An *engine* is an inference
algorithm, and a *phase* consists of passes of the same engine. T is the temperature.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from skvt.contracts import (
    AnyEngine,
    FitPlan,
    Model,
    PassInputs,
    PassResult,
    Resumable,
    RunningPolicy,
    StepAfterPass,
    TemperaturePolicy,
    check_requirements,
)
from skvt.inference._parallel import Workers
from skvt.inference._phases import Phase
from skvt.inference._pilot import Pilot
from skvt.inference._state import Rows, State
from skvt.typing import Array


def gain_per_unit(previous: float, current: float, n_units: float) -> float:
    """Return the increase between two bounds per unit of data, a row or a word, in nats.

    If ``n_units`` is 0, as in a corpus without words, return the whole increase.
    """
    return (current - previous) / (n_units or 1.0)


def perplexity(bound: float, n_words: float) -> float:
    """Return the perplexity ``exp(-bound / n_words)`` for a bound in nats."""
    with np.errstate(over="ignore"):
        return float(np.exp(-bound / max(1.0, n_words)))


def perplexity_fall(previous: float, current: float, n_units: float) -> float:
    """Return the decrease of the perplexity between two bounds in nats.

    ``n_units`` is the number of words.
    """
    with np.errstate(invalid="ignore"):
        return float(np.subtract(perplexity(previous, n_units), perplexity(current, n_units)))


@dataclass(frozen=True)
class Stopping:
    """The rules by which a fit evaluates its bound and stops."""

    # Maximum number of passes; infinite in a stream.
    max_iter: float
    # The exact bound of all data is evaluated each time that this number of passes has been made;
    # never if the number is not positive.
    evaluate_every: int = 0
    # A fit stops when the gain between successive exact bounds is in [0, tol), up to rounding.
    tol: float = 0.0
    # ``gain(previous, current, n_units)`` returns the gain between two exact bounds, given in nats,
    # in the unit of ``tol``. ``n_units`` is the number of units of data.
    gain: Callable[[float, float, float], float] = field(default=gain_per_unit)
    # Whether the user is warned if ``max_iter`` ends a fit that has not converged.
    warns: bool = True
    # Expected number of passes of a fit that may stop on convergence. A temperature policy anneals
    # over a share of this number: ``max_iter`` is only a limit, and a share of it may be too long.
    planned_passes: float = 20.0
    # Whether the unit of data is a word; otherwise it is a row.
    in_words: bool = False
    # Maximum number of components; None if the fit makes no births, the moves that add components.
    max_components: int | None = None


@dataclass(frozen=True)
class StreamPlan:
    """Settings that only calls of ``partial_fit`` use. The calls form a *stream* of rows."""

    # Total weight of the rows of the whole stream, if the user gave it.
    total_samples: float | None = None
    # Rows from which the initial global parameters are made; None for the rows of the first call.
    first_rows: Rows | None = None
    # Whether the global parameters represent the rows of all calls so far. If it is False, they
    # represent an assumed number of rows, which is the same in all calls.
    counts_rows: bool = False


@dataclass(frozen=True)
class Plan:
    """The parts and settings of a fit, or of a call of ``partial_fit``."""

    # The rows, divided into batches for the engines.
    data: Rows
    # The phases in their order. Another start needs a new plan, because engines keep data between
    # passes.
    phases: tuple[Phase, ...]
    # The user's temperature policy, from which the fit starts a running policy.
    policy: TemperaturePolicy
    stopping: Stopping
    # The short fit that calibrates a learned temperature.
    pilot: Pilot
    # (N, ...): initial value for the first local step of each row; None for the default values.
    row_starts: Array | None = None
    # Steps after each pass, in this order.
    steps_after_pass: tuple[StepAfterPass, ...] = ()
    # ``last_step(model, state, data, workers)`` changes the state of the best of all starts, if
    # this start has ended at T = 1 with several components; None for no last step. The history does
    # not record the change, and convergence is not judged after it.
    last_step: Callable[[Any, State, Rows, Workers], None] | None = None
    # Settings for calls of ``partial_fit``.
    stream: StreamPlan = StreamPlan()

    @property
    def engines(self) -> list[AnyEngine]:
        """The engines of all phases, each listed once."""
        return list(dict.fromkeys(phase.engine for phase in self.phases))

    def check(self, model: Model) -> None:
        """Check that the engines, the steps after passes and the policy can work with ``model``.

        Raise ValueError if the model lacks a capability that an engine, a step or the policy needs,
        or if the policy has parameters that are impossible in this fit.
        """
        members: list[Any] = [*self.engines, *self.steps_after_pass]
        check_requirements(model, [needed for member in members for needed in member.requires])
        self.policy.check(self._describe_fit(model))

    def begin(
        self, model: Model, workers: Workers, rng: np.random.Generator
    ) -> tuple[State, RunningPolicy]:
        """Return the initial state and the running policy.

        The state has no memos yet: the method ``start`` of an engine that needs memos adds them.
        """
        policy = self.policy.start(self._describe_fit(model, workers, rng))
        first_rows = self.stream.first_rows
        rows = self.data if first_rows is None else first_rows
        state = State(model.initial(rows, rng))
        # A spawned generator draws the seed, so that the draws of ``rng`` do not change.
        state.seed = int(rng.spawn(1)[0].integers(2**63))
        return state, policy

    def run_pass(self, number: int, model: Model, state: State, inputs: PassInputs) -> PassResult:
        """Make a pass and the steps after it, and change ``state`` in place.

        ``number`` is the number of the pass, from 1.
        """
        # The pass belongs to the last phase that has begun. Its first pass has the number
        # ``phase.n_passes_before + 1``.
        phase = next(phase for phase in self.phases[::-1] if phase.n_passes_before < number)
        if phase.n_passes_before == number - 1:
            phase.begin(state)
        inputs = inputs._replace(policy=phase.policy or inputs.policy)
        # The engine gets the model with the local steps of the phase.
        result = phase.engine.run_pass(phase.view(model), state, inputs)
        result = result._replace(
            model=phase.restore(model, result.model),
            # Convergence is judged in the last phase only.
            may_stop=result.may_stop and phase.n_passes_before == self.phases[-1].n_passes_before,
        )
        for step in self.steps_after_pass:
            result = step.apply(result, number, state, inputs)
        return result

    def finish(self, model: Model, state: State) -> float | None:
        """Finish the steps after passes and the engine; return the exact bound in nats.

        Return None if the bound is not known: if the engine does not compute it, or if a step has
        changed the state after the last pass.
        """
        has_changed = [step.finish(state) for step in self.steps_after_pass]
        return None if any(has_changed) else self.phases[-1].engine.finish(model, state)

    def get_progress(self) -> dict[str, Any]:
        """Return the data of engines and steps from which an interrupted fit can continue."""
        return {
            "engines": [engine.get_progress() for engine in self.engines],
            "after_pass": [step.get_progress() for step in self.steps_after_pass],
        }

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Continue an interrupted fit from the result of :meth:`get_progress`."""
        engines_and_steps: list[Resumable] = [*self.engines, *self.steps_after_pass]
        saved = [*progress["engines"], *progress["after_pass"]]
        for engine_or_step, saved_progress in zip(engines_and_steps, saved, strict=True):
            engine_or_step.set_progress(saved_progress)

    @cached_property
    def n_units(self) -> float:
        """Total weight of all words if the unit of data is a word, otherwise of all rows."""
        return self.data.n_words if self.stopping.in_words else self.data.total

    @property
    def judges_convergence(self) -> bool:
        """Whether the fit may stop before ``max_iter``.

        It may stop if ``tol`` is positive and the exact bound becomes known during the fit: either
        the last engine computes the bound, or the loop over the passes evaluates it.
        """
        evaluates = self.stopping.evaluate_every > 0
        knows_bound = self.phases[-1].engine.knows_exact_bound or evaluates
        return knows_bound and self.stopping.tol > 0.0

    def _describe_fit(
        self, model: Model, workers: Workers | None = None, rng: np.random.Generator | None = None
    ) -> FitPlan:
        """Return the properties of the fit that the temperature policy needs.

        ``workers`` and ``rng`` are needed to start the policy, but not to check it.
        """
        # The policy of the fit sets the temperature until the first phase that has another policy.
        # Without such a phase, it sets the temperature in all passes.
        policy_starts = (phase.n_passes_before for phase in self.phases if phase.policy is not None)
        n_passes = next(policy_starts, self.stopping.max_iter)

        def pilot(replication: float, *, every_row: bool = False) -> tuple[float, Array]:
            """Run the pilot and return its energies, see :meth:`Pilot.energies`."""
            # Policies call the pilot only when they start.
            assert rng is not None and workers is not None
            (pilot_rng,) = rng.spawn(1)
            energies = self.pilot.energies
            return energies(model, self.data, replication, workers, pilot_rng, every_row=every_row)

        may_converge = np.isfinite(n_passes) and self.judges_convergence
        return FitPlan(
            model=model, n_passes=n_passes,
            planned_passes=self.stopping.planned_passes if may_converge else None,
            n_rows=self.data.weights.size, n_units=self.n_units, pilot=pilot,
            knows_total=self.stream.total_samples is not None,
        )  # fmt: skip
