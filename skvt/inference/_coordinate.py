"""Coordinate ascent: all rows, then the globals."""

from skvt.compiled import serial_map
from skvt.expfam import RunningStats
from skvt.inference._bound import LocalTotals, global_divergence
from skvt.inference._state import PriorStats


def _local_task(model, batch, global_params, inv_temp, requested):
    """A batch's local step in another process: arrays in, additive statistics out."""
    return model.local_step(batch, global_params, inv_temp, serial_map, **requested)


class CoordinateAscent:
    """Full-data variational inference at the temperature the policy asks for.

    At a constant temperature the tempered bound never falls.
    """

    monotone = True
    bounds = True
    exact = False  # its bound is that of the globals before the update
    may_stop = True

    def rate(self, step):
        """Every update replaces the statistics."""
        return 1.0

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass; ``state`` moves on.

        Returns
        -------
        totals, divergence : LocalTotals, float
            They belong together: the exact bound at the globals before the update, with q(z)
            optimal for them.
        model : Model
            With the priors learned from this pass.
        """
        totals, fresh = LocalTotals(), RunningStats.zeros_like(state.stats)
        prior_stats = PriorStats()
        policy.advance(state.rows_seen / data.total, 1.0, state.n_steps)
        state.replicate(policy.replication)
        divergence = global_divergence(model, state.stats)
        steps = self._local_steps(model, data, state, policy, workers)
        for batch, inv_temp, mean_inv_temp, result in steps:
            state.keep(batch, result)
            totals.add(result, batch.weights, inv_temp)
            # lam = eta + S/T  [VT16 eq. 8] with rho = 1, S replicated
            fresh.add(result.stats, mean_inv_temp * state.replication)
            prior_stats.add(model.prior_statistics(batch, result))
            policy.observe(result, batch)
        if policy.jitter > 0.0:
            fresh.jitter(policy.jitter, rng)
        state.stats, state.prior_stats = fresh, prior_stats
        state.rows_seen += totals.weight
        state.n_steps += 1
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return totals, divergence, model

    def _local_steps(self, model, data, state, policy, workers):
        """Yield (batch, inverse temperature, its mean, LocalResult) in order, here or elsewhere.

        The mean is that of the step, since the policy may learn another before the next.
        """

        def prepare(batch):
            batch = state.prepared(batch)
            global_params = model.expectation(state.stats, batch, workers.run)
            inv_temp = policy.inv_temp(batch)
            return batch, global_params, inv_temp, policy.mean_inv_temp

        if not workers.remote:
            for following in data.batches(model, workers):
                batch, global_params, inv_temp, mean = prepare(following)
                result = model.local_step(
                    batch, global_params, inv_temp, workers.run, **policy.requested
                )
                yield batch, inv_temp, mean, result
            return
        prepared = [prepare(batch) for batch in data.batches(model, workers)]
        results = workers.run_remote(
            _local_task,
            [
                (model, batch, global_params, inv_temp, policy.requested)
                for batch, global_params, inv_temp, _ in prepared
            ],
        )
        for (batch, _, inv_temp, mean), result in zip(prepared, results, strict=True):
            yield batch, inv_temp, mean, result
