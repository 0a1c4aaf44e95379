"""The loop over the passes of a fit, and the records of passes.

The loop is the same for all models, temperature policies and *engines*, that is, inference
algorithms. T is the temperature.
"""

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

# If the bound should not fall, a fall by more than this fraction is reported.
_MAX_FALL = 1e-6


@in_files("inference.Entry", nan=("elbo", "objective", "learning_rate"))
class HistoryEntry(NamedTuple):
    """Record of a pass of ``fit`` or of a call of ``partial_fit``."""

    # Number of the pass or call, from 1, counted since the first fit.
    n_iter: int
    # Untempered bound of all data in nats: the exact bound after the pass if its evaluation was
    # requested. Otherwise, batch inference has the exact bound at the start of the pass, memoized
    # inference the exact bound at the end of the pass, and inference on minibatches an estimate.
    # The value is NaN in structured inference, collapsed inference and streams.
    elbo: float
    # Tempered bound of all data in nats, from the sums that the pass has computed; NaN in streams.
    objective: float
    temperature: float
    # Size of the last step, from 0 to 1.
    learning_rate: float
    n_components: int
    # Total time of all passes and calls so far, in seconds.
    seconds: float


@in_files("inference.History")
class History(list[HistoryEntry]):
    """The records of a model since its first fit, including warm starts and streams."""

    def lists(self) -> dict[str, list[float]]:
        """Return ``history_``: by field of :class:`HistoryEntry`, the values of all entries."""
        return {name: [getattr(entry, name) for entry in self] for name in HistoryEntry._fields}

    @property
    def seconds(self) -> float:
        """Total time of the passes and calls in seconds."""
        return self[-1].seconds if self else 0.0


@in_files("inference.Position")
@dataclass(frozen=True)
class Position:
    """The position of a fit between two passes."""

    # Number of passes made.
    n_passes: int = 0
    # The exact bound in nats at the last test of convergence; None before the first test.
    bound: float | None = None
    # Whether the fit has converged.
    converged: bool = False


def fit_loop(
    model: Model, plan: Plan, policy: RunningPolicy, state: State, workers: Workers,
    rng: np.random.Generator, monitor: FitMonitor,
) -> tuple[Model, bool]:  # fmt: skip
    """Make passes until convergence, until ``max_iter``, or until a callback stops the fit.

    ``state`` changes in place. ``rng`` shuffles minibatches and makes the noise of passes at T > 1.
    ``monitor`` holds the history and the position of the fit, and calls the callbacks after each
    pass. Return the model with learned priors, and whether the fit has converged.
    """
    data, stopping, history = plan.data, plan.stopping, monitor.history
    inputs = PassInputs(data, policy, workers, rng)
    position, n_units = monitor.position, plan.n_units
    # The times in the history include the times of earlier passes and fits.
    start_time = time.perf_counter() - history.seconds
    n_entries_of_earlier_fits = len(history) - position.n_passes
    while position.n_passes < stopping.max_iter and not position.converged:
        n_passes = position.n_passes + 1
        previous_bound = position.bound
        monitor.begin_pass()
        result = plan.run_pass(n_passes, model, state, inputs)
        model, divergence = result.model, result.divergence
        totals = result.totals.scaled(data.total)
        # The bound of the pass is exact, an estimate, or NaN if it is not known. Unless it is
        # exact, evaluate the exact bound if an evaluation after this pass was requested.
        bound = np.nan if result.bound_kind == "none" else totals.untempered - divergence
        exact_bound = bound if result.bound_kind == "exact" else None
        is_due = stopping.evaluate_every > 0 and n_passes % stopping.evaluate_every == 0
        if is_due and exact_bound is None:
            exact_bound = evaluate_bound(model, state.plain_stats, data, workers)
        # Compute the tempered bound without the terms of the policy, which are added below.
        objective = totals.tempered - divergence / policy.replication
        entry = HistoryEntry(
            n_iter=n_entries_of_earlier_fits + n_passes,
            elbo=bound if exact_bound is None else exact_bound,
            objective=objective + policy.bound_terms(data.total),
            temperature=policy.temperature,
            learning_rate=result.learning_rate,
            n_components=model.size(state.stats),
            seconds=time.perf_counter() - start_time,
        )
        history.append(entry)
        # A test of convergence compares the exact bound with the bound at the last test. The first
        # test only stores the bound.
        has_converged = False
        if exact_bound is not None and policy.done and result.may_stop:
            monotone = result.monotone and policy.mean_inv_temp == 1.0
            if previous_bound is not None:
                has_converged = _has_converged(
                    previous_bound, exact_bound, n_units, stopping,
                    monotone=monotone, dtype=data.X.dtype,
                )  # fmt: skip
            previous_bound = exact_bound
        monitor.position = position = Position(n_passes, previous_bound, has_converged)
        shows_perplexity = is_due and stopping.in_words
        displayed_perplexity = perplexity(entry.elbo, n_units) if shows_perplexity else None
        is_last = has_converged or n_passes == stopping.max_iter
        if monitor.end_pass(model, state, displayed_perplexity, is_last=is_last):
            break
    return model, position.converged


def _has_converged(
    previous: float, current: float, n_units: float, stopping: Stopping, *, monotone: bool,
    dtype: DTypeLike,
) -> bool:  # fmt: skip
    """Return whether the gain of the bound is in [0, tol), up to rounding errors.

    ``previous`` and ``current`` are the bounds at the last test and now, in nats. ``n_units`` is
    the number of rows or words, and ``dtype`` is the precision of the data. ``monotone`` tells
    whether the bound should not fall: warn if it falls by more than the fraction _MAX_FALL.
    """
    if monotone and (current - previous) / max(abs(previous), 1.0) < -_MAX_FALL:
        warnings.warn(
            f"The evidence lower bound fell from {previous:.6f} to {current:.6f} nats. At T = 1 "
            "and with local steps that converge to the same optima in each pass, coordinate "
            "ascent cannot lower it. In batch mode, documents begin anew in each pass and may end "
            "in other optima, which is not an error. If local steps have not converged, lower "
            "mean_change_tol or raise max_doc_update_iter if the estimator has these parameters.",
            ConvergenceWarning,
            stacklevel=2,
        )
    # A fit has not converged if its bound falls by more than rounding errors.
    if exceeds(previous, current, dtype=dtype):
        return False
    return bool(stopping.tol > 0.0 and stopping.gain(previous, current, n_units) < stopping.tol)
