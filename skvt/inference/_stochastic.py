"""Stochastic variational inference: a natural-gradient step for each minibatch [HBWP13]."""

from skvt.inference._bound import LocalTotals, global_divergence
from skvt.inference._engine import PassResult, weighted_by_temperature


class StochasticInference:
    """SVI on shuffled minibatches, at the temperature the policy asks for [VT16 alg. 1].

    Parameters
    ----------
    rate : callable
        Step number -> rho.
    """

    requires = ()
    knows_exact_bound = False
    bound_kind = "estimate"

    def __init__(self, rate):
        self.rate = rate

    def start(self, state, total):
        """Nothing is kept of single batches."""
        return state.without_memos(total)

    def resume(self, state, total):
        """Amid a stream as before a fit."""
        return state.without_memos(total)

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass; ``state`` changes in place.

        Returns
        -------
        PassResult
            Sums over minibatches, each evaluated at the globals it met, and the divergence at the
            end: an estimate of the bound, not its value.
        """
        totals = LocalTotals()
        for batch in data.batches(model, workers, rng):
            model = self.step(model, batch, data.total, state, policy, workers, totals)
        state.stats.resum()
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        divergence, rate = global_divergence(model, state.stats), self.rate(state.n_steps - 1)
        return PassResult(totals, divergence, model, self.bound_kind, rate)

    def update(self, model, data, stream, state, policy, workers):
        """Rows of a stream in order, a step for each minibatch: (model, size of the last step)."""
        totals = LocalTotals()
        for batch in data.batches(model, workers):
            total = stream.taken_for(float(data.weights[batch.rows].sum()))
            model = self.step(model, batch, total, state, policy, workers, totals)
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return model, self.rate(state.n_steps - 1)

    def finish(self, model, state):
        """The bound is not known."""
        return None

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
