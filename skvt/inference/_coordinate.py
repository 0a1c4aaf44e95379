"""Coordinate ascent: all rows, then the globals."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from skvt.compiled import serial_map
from skvt.expfam import RunningStats
from skvt.inference._bound import LocalTotals, global_divergence
from skvt.inference._engine import PassResult, weighted_by_temperature
from skvt.inference._parallel import Workers
from skvt.inference._state import PriorStats, Rows, State
from skvt.models import LocalResult, Model, Requirement
from skvt.progress import Continued
from skvt.temperature import RunningPolicy
from skvt.typing import Array


def _local_task(
    model: Model,
    batch: Any,
    global_params: Any,
    inv_temp: float | Array,
    requested: dict[str, bool],
) -> LocalResult:
    """Local step of a batch in another process: arrays in, additive statistics out."""
    return model.local_step(batch, global_params, inv_temp, serial_map, **requested)


class CoordinateAscent(Continued):
    """Full-data variational inference at the temperature given by the policy.

    At a constant temperature the tempered bound never falls.
    """

    requires: tuple[Requirement, ...] = ()
    knows_exact_bound = False  # its bound is that of the globals before the update

    def start(self, state: State, total: float) -> State:
        """No memos: single batches are not kept."""
        return state.without_memos(total)

    def run_pass(
        self,
        model: Model,
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
            Totals and divergence belong together: the exact bound at the globals before the update,
            with q(z) optimal for them.
        """
        totals, fresh = LocalTotals(), RunningStats.zeros_like(state.stats)
        prior_stats = PriorStats()
        policy.advance(state.rows_seen / data.total, 1.0, state.n_steps)
        state.replicate(policy.replication)
        divergence = global_divergence(model, state.stats)
        steps = self._local_steps(model, data, state, policy, workers)
        for batch, inv_temp, mean_inv_temp, result in steps:
            state.remember_ends(batch, result)
            totals.add(result, batch.weights, inv_temp)
            # lam = eta + S/T  [VT16 eq. 8] with rho = 1, S replicated
            assert result.stats is not None  # as requested
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
        return PassResult(totals, divergence, model, monotone=True)

    def finish(self, model: Model, state: State) -> float | None:
        """The bound at the last globals is not known."""
        return None

    def _local_steps(
        self, model: Model, data: Rows, state: State, policy: RunningPolicy, workers: Workers
    ) -> Iterator[tuple[Any, float | Array, float, LocalResult]]:
        """Yield (batch, inverse temperature, its mean, LocalResult) in order, here or elsewhere.

        The mean is that of the step, since the policy may learn another before the next.
        """

        def prepare(batch: Any) -> tuple[Any, tuple[Any, Any, float | Array], float]:
            inv_temp = policy.inv_temp(batch)
            task = (
                weighted_by_temperature(state.begun(batch), inv_temp),
                model.expectation(state.stats, batch, workers.run),
                inv_temp,
            )
            return batch, task, policy.mean_inv_temp

        if not workers.remote:
            for following in data.batches(model, workers):
                batch, task, mean = prepare(following)
                result = model.local_step(*task, workers.run, **policy.requested)
                yield batch, task[-1], mean, result
            return
        prepared = [prepare(batch) for batch in data.batches(model, workers)]
        tasks = [(model, *task, policy.requested) for _, task, _ in prepared]
        results = workers.run_remote(_local_task, tasks)
        for (batch, task, mean), result in zip(prepared, results, strict=True):
            yield batch, task[-1], mean, result
