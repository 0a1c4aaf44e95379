"""Coordinate ascent: update all rows, then the globals."""

from typing import Any

from skvt.contracts import LocalTotals, Model, PassInputs, PassResult
from skvt.expfam import RunningStats
from skvt.inference._bound import global_divergence
from skvt.inference._state import PriorStats, State, WithoutMemosMixin
from skvt.inference._visit import VisitRequest
from skvt.progress import Continued


class CoordinateAscent(WithoutMemosMixin, Continued):
    """Variational inference on all data.

    At a constant temperature the bound never falls where local steps keep or find their optima.
    Documents of topic models begin anew in each pass, and may end in lower ones.
    """

    def run_pass(self, model: Model, state: State, inputs: PassInputs) -> PassResult:
        """Make one pass; ``state`` changes in place.

        Totals and divergence yield the exact bound at the globals before the update, with q(z)
        optimal for them.
        """
        data, policy, workers, rng = inputs
        totals, fresh, prior_stats = LocalTotals(), None, PriorStats()
        policy.advance(state.rows_seen / data.total, 1.0, state.n_steps)
        state.replicate(policy.replication)
        divergence = global_divergence(model, state.stats)

        def make_request(batch: Any) -> VisitRequest:
            return VisitRequest(
                model, policy.inv_temp(batch), policy.mean_inv_temp, policy.requested,
                state.row_starts_of(batch),
            )  # fmt: skip

        def make_globals(batch: Any) -> Any:
            return model.expectation(state.stats, batch, workers.run)

        for batches in data.rounds(model, workers, data.order(), whole=True):
            for found in data.visit(batches, make_request, make_globals, workers, summed=True):
                state.store_row_starts(found.rows, found.start)
                totals.extend(found.totals)
                # lam = eta + S/T  [VT16 eq. 8] with rho = 1, S replicated
                assert found.stats is not None  # as requested
                if fresh is None:  # allocate late, since globals being sent take memory
                    fresh = RunningStats.zeros_like(state.stats)
                fresh.add(found.stats, found.mean_inv_temp * state.replication)
                prior_stats.add(found.prior)
                policy.observe(found, found)
            del found
        assert fresh is not None  # there are rows
        if policy.jitter > 0.0:
            fresh.jitter(policy.jitter, rng)
        state.stats, state.prior_stats = fresh, prior_stats
        state.rows_seen += totals.weight
        state.n_steps += 1
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return PassResult(totals, divergence, model, monotone=True)
