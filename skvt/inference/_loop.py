"""The loop over passes: once, for every model, engine and temperature policy."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvt.inference._bound import evaluate_bound


@dataclass
class History:
    """What a fit recorded after each pass: equal-length lists, one entry a pass.

    ``elbo`` is the untempered bound and ``objective`` the tempered one, in nats for the whole data
    set. Batch inference records their exact values at the start of the pass, memoized inference
    at its end; minibatches give estimates. Where an evaluation on all data was asked for, ``elbo``
    is that; of structured inference, which has no other bound, it is NaN elsewhere.
    """

    n_iter: list = field(default_factory=list)
    elbo: list = field(default_factory=list)
    objective: list = field(default_factory=list)
    temperature: list = field(default_factory=list)
    learning_rate: list = field(default_factory=list)
    n_components: list = field(default_factory=list)
    seconds: list = field(default_factory=list)

    def append(self, **values):
        """Add one pass."""
        for name, value in values.items():
            getattr(self, name).append(value)


def relative_gain(previous, current):
    """(current - previous) / |previous|."""
    return (current - previous) / max(abs(previous), 1.0)


@dataclass(frozen=True)
class Stopping:
    """When to evaluate and when to stop.

    Attributes
    ----------
    max_iter : int
        Most passes.
    evaluate_every : int
        Evaluate the exact bound on all data every so many passes; not at all if <= 0.
    tol : float
        Stop when the gain between two evaluations is in [0, tol).
    gain : callable
        ``gain(previous, current)`` of two values of the exact bound in nats; relative by default.
    """

    max_iter: int
    evaluate_every: int = 0
    tol: float = 0.0
    gain: Callable = field(default=relative_gain)


def fit_loop(model, data, engine, policy, state, stopping, workers, rng, history, monitor):
    """Sweep until converged, out of passes, or told to stop.

    Parameters
    ----------
    model, data, engine, policy, state : see :mod:`skvt.inference`
        ``state`` is moved on in place.
    rng : numpy.random.Generator
        Shuffles minibatches, or jitters.
    history : History
        Appended to.
    monitor : FitMonitor
        Told of each pass; may stop the fit.

    Returns
    -------
    model : Model
        With learned priors.
    converged : bool
    """
    started = time.perf_counter()
    previous = None
    for iteration in range(1, stopping.max_iter + 1):
        monitor.begin_pass()
        totals, divergence, model = engine.sweep(model, data, state, policy, workers, rng)
        totals = totals.scaled(data.total)
        estimate = totals.untempered - divergence if engine.bounds else np.nan
        exact = estimate if engine.exact else None
        due = stopping.evaluate_every > 0 and iteration % stopping.evaluate_every == 0
        if due and exact is None:
            exact = evaluate_bound(model, state.plain_stats, data, workers)
        history.append(
            n_iter=iteration,
            elbo=estimate if exact is None else exact,
            objective=totals.tempered
            - divergence / policy.replication
            + policy.bound_terms(data.total),
            temperature=policy.temperature,
            learning_rate=engine.rate(state.n_steps - 1),
            n_components=model.size(state.stats),
            seconds=time.perf_counter() - started,
        )
        converged = False
        if exact is not None and policy.settled and engine.settled:
            monotone = engine.monotone and policy.mean_inv_temp == 1.0
            converged = _has_converged(previous, exact, stopping, monotone)
            previous = exact
        if monitor.end_pass(model, state, history) or converged:
            return model, converged
    return model, False


def _has_converged(previous, current, stopping, monotone):
    """Whether 0 <= gain < tol; a fall beyond rounding warns and never counts."""
    if previous is None:
        return False
    if monotone and relative_gain(previous, current) < -1e-6:
        warnings.warn(
            f"The evidence lower bound fell from {previous:.6f} to {current:.6f} nats. Coordinate "
            "ascent at T = 1 does not lower it where local steps converge: where the estimator has "
            "them, lower mean_change_tol or raise max_doc_update_iter.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return 0.0 <= stopping.gain(previous, current) < stopping.tol
