"""The loop over passes, shared by all models, engines and temperature policies."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from sklearn.exceptions import ConvergenceWarning

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
from skvt.files import in_files
from skvt.inference._bound import evaluate_bound
from skvt.inference._parallel import Workers
from skvt.inference._phases import Phase
from skvt.inference._pilot import pilot_energies
from skvt.inference._state import Rows, State
from skvt.monitoring import FitMonitor
from skvt.ties import exceeds
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


@in_files("inference.Entry", nan=("elbo", "objective", "learning_rate"))
class Entry(NamedTuple):
    """Record of a pass of ``fit`` or a call of ``partial_fit``.

    ``elbo`` is the untempered bound and ``objective`` the tempered one, in nats for the whole data
    set. Batch inference records their exact values at the start of the pass, memoized inference at
    its end; minibatches give estimates. Where an evaluation on all data was requested, ``elbo`` is
    its result; structured inference has no other bound, and ``elbo`` is NaN elsewhere. Both are NaN
    in a stream, where the data set is not known.
    """

    n_iter: int
    elbo: float
    objective: float
    temperature: float
    learning_rate: float
    n_components: int
    seconds: float


@in_files("inference.History")
class History(list[Entry]):
    """The entries of a model since its first fit, including warm starts and streams."""

    def lists(self) -> dict[str, list[float]]:
        """Return a dict of equal-length lists, the form of ``history_``."""
        return {name: [getattr(entry, name) for entry in self] for name in Entry._fields}

    @property
    def seconds(self) -> float:
        """Total time of the passes and calls in seconds."""
        return self[-1].seconds if self else 0.0


@dataclass(frozen=True)
class Stopping:
    """When to evaluate and when to stop."""

    # Maximum number of passes.
    max_iter: int
    # Number of passes between evaluations of the exact bound on all data; never if <= 0.
    evaluate_every: int = 0
    # Stop when the gain between two evaluations is in [0, tol), up to rounding.
    tol: float = 0.0
    # ``gain(previous, current, n_units)`` of two values of the exact bound in nats, and the number
    # of units of data.
    gain: Callable[[float, float, float], float] = field(default=gain_per_unit)
    # Whether to warn if ``max_iter`` ends a fit that has not converged.
    warns: bool = True


@dataclass(frozen=True)
class Plan:
    """The parts of a fit, or of a call of ``partial_fit``."""

    # The rows, divided into batches for the engine.
    data: Rows
    # Used for this fit only.
    engine: AnyEngine
    # The policy from which the running policy is made.
    policy: TemperaturePolicy
    stopping: Stopping
    # Step number -> rho, for the pilot of a learned temperature.
    rate: Callable[[int], float]
    # The rows, divided into minibatches for the pilot; None for the engine's batches.
    minibatches: Rows | None = None
    # Number of passes of which a policy uses a share if the fit may stop on convergence. Then
    # ``max_iter`` is only a limit, and a share of it could prolong the annealing needlessly.
    planned_passes: float = 20.0
    # Assumed number of rows of the whole stream, if given by the user.
    total_samples: float | None = None
    # (N, ...): start of the first local step of each row; None for default starts.
    row_starts: Array | None = None
    # Whether a unit of data is a word, not a row.
    in_words: bool = False
    # Phases that follow passes of the engine, by the number of their first pass.
    then: tuple[Phase, ...] = ()
    # Steps after each pass, in this order.
    after_pass: tuple[AfterPass, ...] = ()
    # Passes over which the temperature falls; infinite in a stream; None as in ``stopping``.
    n_passes: float | None = None
    # The last phase of the best start, if that ends at T = 1 with several components. It is one
    # pass, which is neither judged nor recorded, and its ``policy`` is set.
    last: Phase | None = None
    # Number of components at which births end; None without births.
    most_components: int | None = None
    # Rows from which a stream makes its initial globals; None for the rows of the first call.
    first_rows: Rows | None = None
    # Whether the size of a stream is that of the rows seen so far, rather than assumed.
    counts_rows: bool = False

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases of the fit."""
        return (Phase(0, self.engine), *self.then)

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
        rows = self.data if self.first_rows is None else self.first_rows
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
        return self.data.n_words if self.in_words else self.data.total

    @property
    def judges_convergence(self) -> bool:
        """Whether the fit may stop before ``max_iter``: known bound, tol > 0."""
        known = self.phases[-1].engine.knows_exact_bound or self.stopping.evaluate_every > 0
        return known and self.stopping.tol > 0.0

    def _for_policy(
        self, model: Model, workers: Workers | None = None, rng: np.random.Generator | None = None
    ) -> FitPlan:
        """Return the information that the temperature policy needs."""
        n_passes = self.stopping.max_iter if self.n_passes is None else self.n_passes

        def pilot(replication: float, *, every_row: bool = False) -> tuple[float, Array]:
            assert rng is not None and workers is not None  # without them, a plan is for checks
            seed = rng.spawn(1)[0]
            rows = self.data if self.minibatches is None else self.minibatches
            run = (rows, self.rate, replication, workers, seed)
            return pilot_energies(model, *run, every_row=every_row)

        judged = np.isfinite(n_passes) and self.judges_convergence
        return FitPlan(
            model=model,
            n_passes=n_passes,
            planned_passes=self.planned_passes if judged else None,
            n_rows=self.data.weights.size,
            n_units=self.n_units,
            pilot=pilot,
            knows_total=self.total_samples is not None,
        )


@in_files("inference.Position")
@dataclass(frozen=True)
class Position:
    """The position of a fit after a pass."""

    # Number of passes made.
    n_passes: int = 0
    # The exact bound in nats at the last test of convergence.
    bound: float | None = None
    # Whether the fit has ended with this pass.
    converged: bool = False


def fit_loop(
    model: Model,
    plan: Plan,
    policy: RunningPolicy,
    state: State,
    workers: Workers,
    rng: np.random.Generator,
    monitor: FitMonitor,
) -> tuple[Model, bool]:
    """Make passes until convergence, ``max_iter``, or a stop by a callback.

    ``state`` changes in place. ``rng`` shuffles minibatches and jitters. The ``monitor`` is
    notified of each pass, holds the history and the position, and may stop the fit. Returns the
    model with learned priors, and whether the fit has converged.
    """
    data, stopping, history = plan.data, plan.stopping, monitor.history
    given = PassInputs(data, policy, workers, rng)
    position, started = monitor.position, time.perf_counter() - history.seconds
    n_before, n_units = len(history) - position.n_passes, plan.n_units
    while position.n_passes < stopping.max_iter and not position.converged:
        iteration, previous = position.n_passes + 1, position.bound
        monitor.begin_pass()
        done = plan.run_pass(iteration, model, state, given)
        model, divergence, totals = done.model, done.divergence, done.totals.scaled(data.total)
        estimate = np.nan if done.bound_kind == "none" else totals.untempered - divergence
        exact = estimate if done.bound_kind == "exact" else None
        due = stopping.evaluate_every > 0 and iteration % stopping.evaluate_every == 0
        if due and exact is None:
            exact = evaluate_bound(model, state.plain_stats, data, workers)
        entry = Entry(
            n_iter=n_before + iteration,
            elbo=estimate if exact is None else exact,
            objective=totals.tempered
            - divergence / policy.replication
            + policy.bound_terms(data.total),
            temperature=policy.temperature,
            learning_rate=done.learning_rate,
            n_components=model.size(state.stats),
            seconds=time.perf_counter() - started,
        )
        history.append(entry)
        converged = False
        if exact is not None and policy.done and done.may_stop:
            monotone = done.monotone and policy.mean_inv_temp == 1.0
            gain = None if previous is None else (previous, exact, n_units)
            converged = _has_converged(gain, stopping, monotone, data.X.dtype)
            previous = exact
        monitor.position = position = Position(iteration, previous, converged)
        shown = perplexity(entry.elbo, n_units) if due and plan.in_words else None
        if monitor.end_pass(model, state, shown):
            break
    return model, position.converged


def _has_converged(
    change: tuple[float, float, float] | None, stopping: Stopping, monotone: bool, dtype: DTypeLike
) -> bool:
    """Return whether 0 <= gain < tol, up to rounding; warn if the bound falls by over 1e-6."""
    if change is None:
        return False
    previous, current, _ = change
    if monotone and (current - previous) / max(abs(previous), 1.0) < -1e-6:
        warnings.warn(
            f"The evidence lower bound fell from {previous:.6f} to {current:.6f} nats. Coordinate "
            "ascent at T = 1 does not lower it where local steps converge to the optima of the "
            "pass before. Documents begin anew in each pass of batch mode and may end in other "
            "optima, which is no mistake. Where local steps have not converged, and the estimator "
            "has these parameters, lower mean_change_tol or raise max_doc_update_iter.",
            ConvergenceWarning,
            stacklevel=2,
        )
    # at convergence the bound fluctuates in its last digits
    if exceeds(previous, current, dtype=dtype):
        return False
    return bool(stopping.tol > 0.0 and stopping.gain(*change) < stopping.tol)
