"""The loop over passes, shared by all models, engines and temperature policies."""

import time
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from sklearn.exceptions import ConvergenceWarning

from skvt.contracts import Model, PassInputs, RunningPolicy
from skvt.files import in_files
from skvt.inference._bound import evaluate_bound
from skvt.inference._parallel import Workers
from skvt.inference._plan import Plan, Stopping, perplexity
from skvt.inference._state import State
from skvt.monitoring import FitMonitor
from skvt.ties import exceeds


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
    inputs = PassInputs(data, policy, workers, rng)
    position, started = monitor.position, time.perf_counter() - history.seconds
    n_before, n_units = len(history) - position.n_passes, plan.n_units
    while position.n_passes < stopping.max_iter and not position.converged:
        iteration, previous = position.n_passes + 1, position.bound
        monitor.begin_pass()
        done = plan.run_pass(iteration, model, state, inputs)
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
        shown = perplexity(entry.elbo, n_units) if due and stopping.in_words else None
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
