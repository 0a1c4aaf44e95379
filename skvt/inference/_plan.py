"""The plan of a fit: its rows, phases, temperature, and when it stops."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from skvt.contracts import (
    AfterPass,
    AnyEngine,
    FitPlan,
    Model,
    PassInputs,
    PassResult,
    Remembering,
    RunningPolicy,
    TemperaturePolicy,
    check_requirements,
)
from skvt.inference._parallel import Workers
from skvt.inference._phases import Phase
from skvt.inference._pilot import Pilot
from skvt.inference._state import Rows, State
from skvt.typing import Array


def gain_per_unit(previous: float, current: float, n_units: float) -> float:
    """Return the gain in nats per row or word; in all for a corpus without words."""
    return (current - previous) / (n_units or 1.0)


def perplexity(bound: float, n_words: float) -> float:
    """Return ``exp(-ELBO / number of words)``."""
    with np.errstate(over="ignore"):
        return float(np.exp(-bound / max(1.0, n_words)))


def perplexity_fall(previous: float, current: float, n_units: float) -> float:
    """Return the decrease of the perplexity."""
    with np.errstate(invalid="ignore"):
        return float(np.subtract(perplexity(previous, n_units), perplexity(current, n_units)))


@dataclass(frozen=True)
class Stopping:
    """When to evaluate and when to stop."""

    # Maximum number of passes; infinite in a stream.
    max_iter: float
    # Number of passes between evaluations of the exact bound on all data; never if <= 0.
    evaluate_every: int = 0
    # Stop when the gain between two evaluations is in [0, tol), up to rounding.
    tol: float = 0.0
    # ``gain(previous, current, n_units)`` of two values of the exact bound in nats, and the number
    # of units of data.
    gain: Callable[[float, float, float], float] = field(default=gain_per_unit)
    # Whether to warn if ``max_iter`` ends a fit that has not converged.
    warns: bool = True
    # Number of passes of which a policy uses a share if the fit may stop on convergence. Then
    # ``max_iter`` is only a limit, and a share of it could prolong the annealing needlessly.
    planned_passes: float = 20.0
    # Whether a unit of data is a word, not a row.
    in_words: bool = False
    # Number of components at which births end; None without births.
    most_components: int | None = None


@dataclass(frozen=True)
class StreamPlan:
    """The parts of a plan that only calls of ``partial_fit`` use."""

    # Assumed number of rows of the whole stream, if given by the user.
    total_samples: float | None = None
    # Rows from which a stream makes its initial globals; None for the rows of the first call.
    first_rows: Rows | None = None
    # Whether the size of a stream is that of the rows seen so far, rather than assumed.
    counts_rows: bool = False


@dataclass(frozen=True)
class Plan:
    """The parts of a fit, or of a call of ``partial_fit``."""

    # The rows, divided into batches for the engines.
    data: Rows
    # The phases, in the order of their first passes. Their engines serve this fit only.
    phases: tuple[Phase, ...]
    # The policy from which the running policy is made.
    policy: TemperaturePolicy
    stopping: Stopping
    # The short fit by which a learned temperature is calibrated.
    pilot: Pilot
    # (N, ...): start of the first local step of each row; None for default starts.
    row_starts: Array | None = None
    # Steps after each pass, in this order.
    after_pass: tuple[AfterPass, ...] = ()
    # The last phase of the best start, if that ends at T = 1 with several components. It is one
    # pass, which is neither judged nor recorded, and its ``policy`` is set.
    last: Phase | None = None
    stream: StreamPlan = StreamPlan()

    @property
    def engines(self) -> list[AnyEngine]:
        """The distinct engines of all phases."""
        return list(dict.fromkeys(phase.engine for phase in self.phases))

    def check(self, model: Model) -> None:
        """Raise ValueError unless engines, moves and the policy can work with this model."""
        parts: list[Any] = [*self.engines, *self.after_pass]
        check_requirements(model, [each for part in parts for each in part.requires])
        self.policy.check(self._for_policy(model))

    def begin(
        self, model: Model, workers: Workers, rng: np.random.Generator
    ) -> tuple[State, RunningPolicy]:
        """Return the initial state, without memos, and the running policy."""
        policy = self.policy.start(self._for_policy(model, workers, rng))
        first_rows = self.stream.first_rows
        rows = self.data if first_rows is None else first_rows
        state = State(model.initial(rows, rng))
        # spawn, so that the stream of rng does not advance
        state.seed = int(rng.spawn(1)[0].integers(2**63))
        return state, policy

    def run_pass(self, number: int, model: Model, state: State, given: PassInputs) -> PassResult:
        """Make the pass with this number, from 1, and the steps after it; ``state`` changes."""
        phase = next(phase for phase in self.phases[::-1] if phase.first < number)
        if phase.first == number - 1:
            phase.begin(state)
        inputs = given._replace(policy=phase.policy or given.policy)
        result = phase.engine.run_pass(phase.view(model), state, inputs)
        result = result._replace(
            model=phase.restored(model, result.model),
            may_stop=result.may_stop and phase.first == self.phases[-1].first,
        )
        for part in self.after_pass:
            result = part.after(result, number, state, given)
        return result

    def finish(self, model: Model, state: State) -> float | None:
        """Conclude the fit; return the exact bound in nats, or None if it is not known."""
        changed = [part.finish(state) for part in self.after_pass]
        return None if any(changed) else self.phases[-1].engine.finish(model, state)

    def progress(self) -> dict[str, Any]:
        """Return the progress of engines and other parts, from which a fit can continue."""
        return {
            "engines": [engine.progress() for engine in self.engines],
            "after_pass": [part.progress() for part in self.after_pass],
        }

    def take_up(self, progress: dict[str, Any]) -> None:
        """Continue an interrupted fit from its :meth:`progress`."""
        parts: list[Remembering] = [*self.engines, *self.after_pass]
        memories = [*progress["engines"], *progress["after_pass"]]
        for part, memory in zip(parts, memories, strict=True):
            part.take_up(memory)

    @cached_property
    def n_units(self) -> float:
        """Total weight of the units of data, rows or words."""
        return self.data.n_words if self.stopping.in_words else self.data.total

    @property
    def judges_convergence(self) -> bool:
        """Whether the fit may stop before ``max_iter``: known bound, tol > 0."""
        known = self.phases[-1].engine.knows_exact_bound or self.stopping.evaluate_every > 0
        return known and self.stopping.tol > 0.0

    def _for_policy(
        self, model: Model, workers: Workers | None = None, rng: np.random.Generator | None = None
    ) -> FitPlan:
        """Return the information that the temperature policy needs."""
        # Phases with a policy of their own come after the passes over which the temperature falls.
        ends = (phase.first for phase in self.phases if phase.policy is not None)
        n_passes = next(ends, self.stopping.max_iter)

        def pilot(replication: float, *, every_row: bool = False) -> tuple[float, Array]:
            assert rng is not None and workers is not None  # without them, a plan is for checks
            run = (self.data, replication, workers, rng.spawn(1)[0])
            return self.pilot.energies(model, *run, every_row=every_row)

        judged = np.isfinite(n_passes) and self.judges_convergence
        return FitPlan(
            model=model,
            n_passes=n_passes,
            planned_passes=self.stopping.planned_passes if judged else None,
            n_rows=self.data.weights.size,
            n_units=self.n_units,
            pilot=pilot,
            knows_total=self.stream.total_samples is not None,
        )
