"""Coordinate ascent: local steps of all rows, then an update of the *globals*.

The globals are the global parameters of a model. A *visit* makes the local step of a batch of rows.
"""

from functools import partial
from typing import Any

from skvt.contracts import LocalTotals, Model, PassInputs, PassResult
from skvt.expfam import RunningStats
from skvt.inference._bound import compute_global_divergence
from skvt.inference._state import PriorStats, State, WithoutMemosMixin
from skvt.inference._visit import VisitRequest
from skvt.progress import ResumableMixin


class CoordinateAscent(WithoutMemosMixin, ResumableMixin):
    """Coordinate ascent on all data.

    At a constant temperature, the bound never falls if the local step of each row ends in an
    optimum that is at least as good as in the last pass. Local steps of topic models begin anew in
    each pass, and may end in lower optima.
    """

    def run_pass(self, model: Model, state: State, inputs: PassInputs) -> PassResult:
        """Make a pass, and change ``state`` in place.

        The result has the exact bound at the globals before the update, with the optimal posterior
        q(z) of the local variables.
        """
        data, policy, workers, rng = inputs
        totals, prior_stats = LocalTotals(), PriorStats()
        new_stats = None
        # A pass visits the share 1 of the rows.
        policy.advance(state.rows_seen / data.total, 1.0, state.n_steps)
        state.replicate(policy.replication)
        divergence = compute_global_divergence(model, state.stats)

        def make_request(batch: Any) -> VisitRequest:
            inv_temp, start = policy.inv_temp(batch), state.row_starts_of(batch)
            return VisitRequest(model, inv_temp, policy.mean_inv_temp, policy.step_options, start)

        make_globals = partial(model.expectation, state.stats, run=workers.run)
        for batches in data.group_batches(model, workers, data.list_batches(), fixed_globals=True):
            for result in data.visit(batches, make_request, make_globals, workers, summed=True):
                state.store_row_starts(result.rows, result.row_starts)
                totals.extend(result.totals)
                # Local steps return statistics unless a request says otherwise.
                assert result.stats is not None
                if new_stats is None:
                    # The arrays are made after the first visit, because the globals of the visits
                    # need memory until then.
                    new_stats = RunningStats.zeros_like(state.stats)
                # lam = eta + S/T  [VT16 eq. 8] with the step size rho = 1, for natural parameters
                # lam of q and eta of the prior. S is multiplied by the replication.
                new_stats.add(result.stats, result.mean_inv_temp * state.replication)
                prior_stats.add(result.prior_term)
                # The result also serves as the batch, because it has the rows and weights.
                policy.observe(result, result)
            # Free the memory of the last result before the next batches are visited.
            del result
        # The assertion holds because the data have a row.
        assert new_stats is not None
        # At T > 1, add noise, because components that are equal would stay equal.
        if policy.jitter > 0.0:
            new_stats.jitter(policy.jitter, rng)
        state.stats, state.prior_stats = new_stats, prior_stats
        state.rows_seen += totals.weight
        state.n_steps += 1
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return PassResult(totals, divergence, model, monotone=True)
