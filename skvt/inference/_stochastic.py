"""Stochastic variational inference: a natural-gradient step for each minibatch [HBWP13]."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from skvt.contracts import LocalTotals, Model, PassInputs, PassResult, RunningPolicy, Stream
from skvt.expfam import RunningStats
from skvt.inference._bound import global_divergence
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State, WithoutMemosMixin
from skvt.inference._visit import Draw, VisitRequest
from skvt.progress import Continued
from skvt.schedules import RobbinsMonro

M = TypeVar("M", bound=Model)

# Steps of a stream between updates of the globals' priors. An update visits all globals, a step
# only the globals of its rows.
STEPS_PER_PRIOR = 16


class Visits(NamedTuple):
    """Arguments that the visits of minibatches share.

    ``totals``, unless None, adds up the bounds of all visits. ``rate`` maps the number of a step to
    its size; None stands for the engine's rate.
    """

    data: Rows
    workers: Workers
    policy: RunningPolicy
    totals: LocalTotals | None = None
    rate: Callable[[int], float] | None = None


@dataclass(eq=False)
class StochasticInference(WithoutMemosMixin, Continued, Generic[M]):
    """SVI on shuffled minibatches with step sizes ``rate(step)`` [VT16 alg. 1]."""

    rate: Callable[[int], float]

    kept: ClassVar[dict[str, Any]] = {"rate": Annotated[RobbinsMonro, "rate"]}
    bound_kind = "estimate"

    # A call of a stream begins as a fit does.
    resume = WithoutMemosMixin.start

    def run_pass(self, model: M, state: State, inputs: PassInputs) -> PassResult:
        """Make one pass; ``state`` changes in place.

        The sums over minibatches, each evaluated at the globals before its step, and the divergence
        at the end of the pass estimate the bound.
        """
        data, policy, workers, rng = inputs
        totals = LocalTotals()
        visits = Visits(data, workers, policy, totals)
        for batches in data.rounds(model, workers, data.order(rng)):
            model = self.step(model, batches, data.total, state, visits)
        state.stats.resum()
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        divergence, rate = global_divergence(model, state.stats), self.rate(state.n_steps - 1)
        return PassResult(totals, divergence, model, self.bound_kind, rate)

    def update(self, model: M, state: State, stream: Stream, inputs: PassInputs) -> tuple[M, float]:
        """Make a step for each minibatch in order; return the model and the last step size."""
        data, policy, workers, _ = inputs
        visits = Visits(data, workers, policy)
        for batches in data.rounds(model, workers, data.order()):
            n_before = state.n_steps
            weight = sum(float(data.weights[batch.rows].sum()) for batch in batches)
            total = stream.taken_for(weight)
            rate = self._rate_of(stream, weight / data.n_steps(batches))
            model = self.step(model, batches, total, state, visits._replace(rate=rate))
            if policy.done and state.n_steps // STEPS_PER_PRIOR > n_before // STEPS_PER_PRIOR:
                model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return model, rate(state.n_steps - 1)

    def _draw(self, state: State, place: int) -> Draw | None:
        """Return how the visit with this number in a step draws its globals; None for no draw."""
        return None

    def _globals(self, model: M, stats: RunningStats, batch: Any, workers: Workers) -> Any:
        """Return the globals E_q[t(beta)] for the local step of the batch."""
        return model.expectation(stats, batch, workers.run)

    def _rate_of(self, stream: Stream, weight: float) -> Callable[[int], float]:
        """Return the step sizes for rows of this weight of a stream."""
        return self.rate

    def _size(self, rates: Sequence[float]) -> float:
        """Return the size of one step that equals these steps towards the same statistics."""
        return rates[0] if len(rates) == 1 else 1.0 - math.prod(1.0 - rate for rate in rates)

    def step(
        self, model: M, batches: Sequence[Any], total: float, state: State, visits: Visits
    ) -> M:
        """Make one step on minibatches visited at once, which represent rows of weight ``total``.

        With R minibatches, it equals R steps towards the same statistics.
        """
        data, workers, policy, n_before = *visits[:3], state.n_steps
        weight = sum(float(batch.weights.sum(dtype="float64")) for batch in batches)
        policy.advance(state.rows_seen / total, weight / total, n_before)
        state.replicate(policy.replication)
        numbers, requested = count(), policy.requested
        if visits.totals is None:
            requested["with_energy"] = False

        def make_request(batch: Any) -> VisitRequest:
            return VisitRequest(
                model, policy.inv_temp(batch), policy.mean_inv_temp, requested,
                state.row_starts_of(batch), draw=self._draw(state, next(numbers)),
            )  # fmt: skip

        def make_globals(batch: Any) -> Any:
            return self._globals(model, state.stats, batch, workers)

        visited = list(data.visit(batches, make_request, make_globals, workers, summed=True))
        n_steps = data.n_steps(batches)
        rate = visits.rate or self.rate
        rho = self._size([rate(n_before + i) for i in range(n_steps)])
        for place, part in enumerate(visited):
            assert part.stats is not None  # as requested
            state.store_row_starts(part.rows, part.start)
            if visits.totals is not None:
                visits.totals.extend(part.totals)
            # lam <- (1 - rho) lam + rho (eta + (N/B) S/T)  [VT16 eq. 8], S replicated
            factor = (total / weight) * part.mean_inv_temp * state.replication
            if place == 0:
                state.stats.blend(rho, part.stats, factor, workers.run)
                state.prior_stats.blend(rho, part.prior)
            else:
                state.stats.add(part.stats, rho * factor, workers.run)
                state.prior_stats.add(part.prior, rho)
            policy.observe(part, part)
        state.n_steps += n_steps
        state.rows_seen += weight
        return model.with_learned_priors(state.prior_stats) if policy.done else model
