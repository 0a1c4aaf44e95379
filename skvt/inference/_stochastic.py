"""Stochastic variational inference: a natural-gradient step for each minibatch [HBWP13]."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from skvt.expfam import Stats
from skvt.inference._bound import LocalTotals, global_divergence
from skvt.inference._engine import PassResult, Stream, weighted_by_temperature
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.models import LocalResult, Model, Requirement
from skvt.progress import Continued
from skvt.temperature import RunningPolicy

M = TypeVar("M", bound=Model)


class StochasticInference(Continued, Generic[M]):
    """SVI on shuffled minibatches, at the temperature given by the policy [VT16 alg. 1].

    Parameters
    ----------
    rate : callable
        Step number -> rho.
    """

    not_kept = frozenset({"requires", "_global_step"})
    requires: tuple[Requirement, ...] = ()
    knows_exact_bound = False
    bound_kind = "estimate"

    def __init__(self, rate: Callable[[int], float]) -> None:
        self.rate = rate

    def start(self, state: State, total: float) -> State:
        """No memos: single batches are not kept."""
        return state.without_memos(total)

    def resume(self, state: State, total: float) -> State:
        """As before a fit."""
        return state.without_memos(total)

    def run_pass(
        self,
        model: M,
        data: Rows,
        state: State,
        policy: RunningPolicy,
        workers: Workers,
        rng: np.random.Generator,
    ) -> PassResult:
        """One pass; ``state`` changes in place.

        Returns
        -------
        PassResult
            Sums over minibatches, each evaluated at the globals before its step, and the divergence
            at the end: an estimate of the bound.
        """
        totals = LocalTotals()
        for batch in data.batches(model, workers, rng):
            model = self.step(model, batch, data.total, state, policy, workers, totals)
        state.stats.resum()
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        divergence, rate = global_divergence(model, state.stats), self.rate(state.n_steps - 1)
        return PassResult(totals, divergence, model, self.bound_kind, rate)

    def update(
        self,
        model: M,
        data: Rows,
        stream: Stream,
        state: State,
        policy: RunningPolicy,
        workers: Workers,
    ) -> tuple[M, float]:
        """A step for each minibatch of a stream in order: (model, size of the last step)."""
        totals = LocalTotals()
        for batch in data.batches(model, workers):
            total = stream.taken_for(float(data.weights[batch.rows].sum()))
            model = self.step(model, batch, total, state, policy, workers, totals)
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return model, self.rate(state.n_steps - 1)

    def finish(self, model: M, state: State) -> float | None:
        """The bound is not known."""
        return None

    def _globals(self, model: M, state: State, batch: Any, workers: Workers) -> Any:
        """The globals as passed to the local step: E_q[t(beta)]."""
        return model.expectation(state.stats, batch, workers.run)

    def _statistics(
        self, model: M, state: State, global_params: Any, result: LocalResult, workers: Workers
    ) -> Stats:
        """Statistics by which a local step updates the globals."""
        assert result.stats is not None  # as requested
        return result.stats

    def step(
        self,
        model: M,
        batch: Any,
        total: float,
        state: State,
        policy: RunningPolicy,
        workers: Workers,
        totals: LocalTotals,
    ) -> M:
        """A step on one minibatch, which represents rows of weight ``total``."""
        weight = float(batch.weights.sum(dtype="float64"))
        policy.advance(state.rows_seen / total, weight / total, state.n_steps)
        state.replicate(policy.replication)
        inv_temp = policy.inv_temp(batch)
        global_params = self._globals(model, state, batch, workers)
        weighted = weighted_by_temperature(state.begun(batch), inv_temp)
        result = model.local_step(
            weighted, global_params, inv_temp, workers.run, **policy.requested
        )
        state.remember_ends(batch, result)
        totals.add(result, batch.weights, inv_temp)
        rho = self.rate(state.n_steps)
        # lam <- (1 - rho) lam + rho (eta + (N/B) S/T)  [VT16 eq. 8], S replicated
        factor = (total / weight) * policy.mean_inv_temp * state.replication
        new = self._statistics(model, state, global_params, result, workers)
        state.stats.blend(rho, new, factor, workers.run)
        state.prior_stats.blend(rho, model.prior_statistics(batch, result))
        state.n_steps += 1
        state.rows_seen += weight
        policy.observe(result, batch)
        return model.with_learned_priors(state.prior_stats) if policy.done else model
