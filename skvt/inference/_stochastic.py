"""Stochastic variational inference: a natural-gradient step for each minibatch [HBWP13].

:class:`StochasticInference` makes the passes of a fit, and the steps of a *stream*, that is, of
calls of ``partial_fit``. The *globals* are the global parameters. A *visit* makes the local step of
a minibatch. A step updates the globals after one or more visits with the same globals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from skvt.contracts import LocalTotals, Model, PassInputs, PassResult, Stream
from skvt.expfam import RunningStats
from skvt.inference._bound import compute_global_divergence
from skvt.inference._parallel import Workers
from skvt.inference._state import State, WithoutMemosMixin
from skvt.inference._visit import Draw, VisitRequest
from skvt.progress import ResumableMixin
from skvt.schedules import RobbinsMonro

M = TypeVar("M", bound=Model)

# In a stream, the priors of the globals are updated after this number of steps. Updates are rare,
# because an update reads all globals, but a step reads only the globals that its rows need.
STEPS_PER_PRIOR_UPDATE = 16
# Minimum size of a step of a stream on few rows, as a multiple of the share of its rows in all rows
# so far. With the multiple 1, all rows would count equally. The size of a step on a full minibatch
# limits the minimum.
_MULTIPLE_OF_SHARE_SEEN = 3.0


@dataclass(eq=False)
class StochasticInference(WithoutMemosMixin, ResumableMixin, Generic[M]):
    """Stochastic inference on minibatches, which are shuffled except in a stream [VT16 alg. 1]."""

    # ``rate(number)`` returns the size rho of the step with this number, from 0.
    rate: Callable[[float], float]

    # Types of the attributes that an interrupted fit keeps, see `ResumableMixin`.
    kept_attributes: ClassVar[dict[str, Any]] = {"rate": Annotated[RobbinsMonro, "rate"]}
    bound_kind = "estimate"

    def run_pass(self, model: M, state: State, inputs: PassInputs) -> PassResult:
        """Make a pass, and change ``state`` in place.

        The result has an estimate of the bound. The local parts of the bound are computed at the
        globals before the step of each minibatch, and the divergence at the globals after the pass.
        """
        data, policy, workers, rng = inputs
        totals = LocalTotals()
        for batches in data.group_batches(model, workers, data.list_batches(rng)):
            model = self.step(model, batches, data.total, state, inputs, totals)
        state.stats.resum()
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        divergence = compute_global_divergence(model, state.stats)
        last_rate = self.rate(state.n_full_steps - 1)
        return PassResult(totals, divergence, model, self.bound_kind, last_rate)

    def update(self, model: M, state: State, stream: Stream, inputs: PassInputs) -> tuple[M, float]:
        """Make a step for each group of minibatches; return the model and the last step size."""
        data, policy, workers, _ = inputs
        for batches in data.group_batches(model, workers, data.list_batches()):
            n_updates_before = state.n_steps // STEPS_PER_PRIOR_UPDATE
            n_steps = data.count_steps(batches)
            weights = [data.weights[batch.rows] for batch in batches]
            weight = sum(float(weights_of_batch.sum()) for weights_of_batch in weights)
            total_weight = stream.count_rows(weight)
            # ``share`` is the number of rows of a step, divided by that of a full minibatch.
            n_rows = sum(weights_of_batch.size for weights_of_batch in weights)
            share = min(1.0, n_rows / (n_steps * data.batch_size))
            rate = self._make_rate(stream, weight / n_steps, state, share)
            model = self.step(model, batches, total_weight, state, inputs, rate=rate)
            state.n_lacking_steps += n_steps * (1.0 - share)
            # Learn the priors of globals, which is done rarely; `step` learns those of local
            # variables.
            if policy.done and state.n_steps // STEPS_PER_PRIOR_UPDATE > n_updates_before:
                model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return model, rate(n_steps - 1)

    # Structured inference overrides the following four methods.
    def _make_draw(self, state: State, visit: int) -> Draw | None:
        """Return the description of the draw of globals by a visit; None for no draw.

        ``visit`` is the number of the visit within its step, from 0.
        """
        return None

    def _make_globals(self, model: M, stats: RunningStats, batch: Any, workers: Workers) -> Any:
        """Return the globals of a visit; if visits draw globals, the statistics to draw from."""
        return model.expectation(stats, batch, workers.run)

    def _make_rate(
        self, stream: Stream, weight: float, state: State, share: float
    ) -> Callable[[int], float]:
        """Return a function ``rate(i)`` with the sizes of the next steps of a stream, i = 0, 1, ...

        ``weight`` is the weight of the rows of a step, and ``share`` is the number of its rows
        divided by the number of rows of a full minibatch. A full step of size rho keeps the share
        ``1 - rho`` of the old statistics. A step on fewer rows keeps ``(1 - rho) ** share``, and
        advances the schedule of step sizes by ``share``, so that ``1 / share`` such steps equal a
        full step. Full steps on single rows would forget earlier rows within a few hundred rows.

        At the beginning of a stream, when there is little to forget, steps are larger.
        """
        n_full_steps = state.n_full_steps
        min_rate = _MULTIPLE_OF_SHARE_SEEN * weight / (state.rows_seen + weight)

        def rate(i: int) -> float:
            full_rate = self.rate(n_full_steps + share * i)
            if share == 1.0:
                return full_rate
            return min(full_rate, max(min_rate, 1.0 - (1.0 - full_rate) ** share))

        return rate

    def _combine_rates(self, rates: Sequence[float]) -> float:
        """Return the size of a single step that equals several steps to the same statistics.

        Steps of sizes rho_i = ``rates[i]`` keep the share ``prod_i (1 - rho_i)`` of the old
        statistics.
        """
        return rates[0] if len(rates) == 1 else 1.0 - math.prod(1.0 - rate for rate in rates)

    def step(
        self, model: M, batches: Sequence[Any], total_weight: float, state: State,
        inputs: PassInputs, totals: LocalTotals | None = None,
        rate: Callable[[int], float] | None = None,
    ) -> M:  # fmt: skip
        """Make a step on minibatches that are visited at once; return the model.

        The minibatches represent rows of weight ``total_weight``. With R minibatches, the step
        equals R steps, each towards the statistics of all minibatches. ``rate(i)`` returns the size
        of step i of the R steps, from 0; None stands for the rate of the engine.

        ``state`` changes in place. The local parts of the bound are added to ``totals`` unless it
        is None. Once the temperature has its final value, the returned model has newly learned
        priors of local variables.
        """
        data, policy, workers, _ = inputs
        weight = sum(float(batch.weights.sum(dtype="float64")) for batch in batches)
        policy.advance(state.rows_seen / total_weight, weight / total_weight, state.n_steps)
        state.replicate(policy.replication)
        visit_numbers = count()
        options = policy.step_options
        if totals is None:
            # Only the untempered bound needs the energy, and the bound is not computed.
            options["with_energy"] = False

        def make_request(batch: Any) -> VisitRequest:
            inv_temp, start = policy.inv_temp(batch), state.row_starts_of(batch)
            draw = self._make_draw(state, next(visit_numbers))
            return VisitRequest(model, inv_temp, policy.mean_inv_temp, options, start, draw=draw)

        make_globals = partial(self._make_globals, model, state.stats, workers=workers)
        # Visit the minibatches.
        results = list(data.visit(batches, make_request, make_globals, workers, summed=True))
        n_steps = data.count_steps(batches)
        # Compute the step size rho of the globals, and the step size of the statistics from which
        # priors of local variables are learned.
        rate = rate or (lambda i: self.rate(state.n_full_steps + i))
        rho = self._combine_rates([rate(i) for i in range(n_steps)])
        prior_rho = model.prior_step(rho, weight / total_weight)
        for i, result in enumerate(results):
            # Local steps return statistics unless a request says otherwise.
            assert result.stats is not None
            state.store_row_starts(result.rows, result.row_starts)
            if totals is not None:
                totals.extend(result.totals)
            # lam <- (1 - rho) lam + rho (eta + (N/B) S/T)  [VT16 eq. 8]. Here q has the natural
            # parameters lam, and the prior has eta. N is the weight of all rows, B is the weight of
            # the minibatches, and S is multiplied by the replication. The state has lam - eta, so
            # that eta drops out.
            factor = (total_weight / weight) * result.mean_inv_temp * state.replication
            # The first result makes the step. Further results only add to the target of the step.
            if i == 0:
                state.stats.blend(rho, result.stats, factor, workers.run)
                state.prior_stats.blend(prior_rho, result.prior_term)
            else:
                state.stats.add(result.stats, rho * factor, workers.run)
                state.prior_stats.add(result.prior_term, prior_rho)
            # The result also serves as the batch, because it has the rows and weights.
            policy.observe(result, result)
        state.n_steps += n_steps
        state.rows_seen += weight
        return model.with_learned_priors(state.prior_stats) if policy.done else model
