"""Stochastic variational inference: a natural-gradient step for each minibatch [HBWP13]."""

from skvt.inference._bound import LocalTotals, global_divergence


class StochasticInference:
    """SVI on shuffled minibatches, at the temperature the policy asks for [VT16 alg. 1].

    Parameters
    ----------
    rate : callable
        Step number -> rho.
    """

    monotone = False
    exact = False
    bounds = True
    may_stop = True

    def __init__(self, rate):
        self.rate = rate

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass; ``state`` moves on.

        Returns
        -------
        totals, divergence : LocalTotals, float
            Sums over minibatches, each evaluated at the globals it met, and the divergence at the
            end: an estimate of the bound, not its value.
        model : Model
            With the priors learned so far.
        """
        totals = LocalTotals()
        for batch in data.batches(model, workers, rng):
            model = self.step(model, batch, data.total, state, policy, workers, totals)
        state.stats.resum()
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return totals, global_divergence(model, state.stats), model

    def _globals(self, model, state, batch, workers):
        """What the local step takes for the globals: E_q[t(beta)]."""
        return model.expectation(state.stats, batch, workers.run)

    def _statistics(self, model, state, global_params, result, workers):
        """What the globals learn from a local step."""
        return result.stats

    def step(self, model, batch, total, state, policy, workers, totals):
        """One minibatch that stands for rows of weight ``total``."""
        weight = float(batch.weights.sum(dtype="float64"))
        policy.advance(state.rows_seen / total, weight / total, state.n_steps)
        state.replicate(policy.replication)
        inv_temp = policy.inv_temp(batch)
        batch = state.prepared(batch)
        global_params = self._globals(model, state, batch, workers)
        result = model.local_step(batch, global_params, inv_temp, workers.run, **policy.requested)
        state.keep(batch, result)
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
