"""Memoized inference: exact full-data updates from one batch at a time [HS13 sec. 3]."""

from dataclasses import replace

import numpy as np

from skvt.inference._bound import LocalTotals, global_divergence
from skvt.inference._memos import Memo
from skvt.inference._state import Rows, State
from skvt.moves import Delete, Merge, MoveTools, dissolve
from skvt.temperature import RunningPolicy

# Rows for each component of a fresh mixture among which its seeds are found.
_ROWS_PER_SEED = 50
# Passes of a fresh mixture without merges and in all, and the gain in nats per row that ends it.
_PASSES_UNMERGED = 5
_FRESH_PASSES = 40
_FRESH_TOL = 1e-4


class MemoizedInference:
    """Memoized inference for mixtures, with moves at the end of each pass.

    Each batch has a memo: its statistics and the entropies of its assignments. A visit replaces
    the memo and at once updates the globals, so that after the first pass the evidence lower bound
    of all data is known exactly at every step, and never falls but by a birth. One batch is
    coordinate ascent.

    Parameters
    ----------
    moves : sequence of Move
        Finished in this order, births last; only while the temperature is 1.
    """

    monotone = True
    bounds = True
    exact = True

    def __init__(self, moves=()):
        self._moves = moves
        self._active, self._n_passes = (), 0

    @property
    def may_stop(self):
        """Whether no move that went along with the last pass has anything left to try."""
        return all(move.exhausted for move in self._active)

    def rate(self, step):
        """Every update replaces the batch's statistics."""
        return 1.0

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass over the batches in random order; ``state`` moves on.

        Returns
        -------
        totals, divergence : LocalTotals, float
            The exact bound of all data at the end of the pass.
        model : Model
            With the priors learned from this pass.
        """
        if state.component_ids is None:
            state.begin(model.size(state.stats))
        self._n_passes += 1
        self._active = moves = self._moves if policy.at_unit_temperature else ()
        tools = self._tools(self._n_passes, workers, rng)
        # Births come first, so that the others see the newborn, and judge last.
        for move in reversed(moves):
            move.begin(model, state, tools)
        if policy.jitter > 0.0:
            state.stats.add(model.symmetry_breaking_stats(state.stats, data, policy.jitter, rng))
        batches = data.order()
        for key in rng.permutation(len(batches)):
            batch = data.batch(model, batches[key])
            self.visit(model, batch, int(key), data.total, state, policy, workers, moves, tools)
        state.resum()
        for move in moves:
            state.move_log.append(move.finish(model, state, tools))
        sort_by_mass(model, state)
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        return *exact_bound(model, state), model

    def conclude(self, model, state):
        """After the last pass: no component without rows. Returns the exact bound in nats."""
        if any(isinstance(move, Delete) for move in self._active):
            dissolve(model, state)
            sort_by_mass(model, state)
        for key, memo in state.memos.items():
            if memo.start is not None:
                state.memos[key] = replace(memo, start=None)
        totals, divergence = exact_bound(model, state)
        return totals.untempered - divergence

    def update_batch(self, model, batch, key, total, state, policy, workers, rng):
        """One batch of a stream: its memo, then moves where the exact bound rises.

        ``total`` is the weight of the stream, None if it is what has been seen.
        """
        if state.component_ids is None:
            state.begin(model.size(state.stats))
        seen = state.memos.weight
        if key in state.memos:
            seen -= state.memos[key].weight
        weight = float(batch.weights.sum())
        total = max(total or 0.0, seen + weight)
        # the first batch replaces all of the initial statistics
        self.visit(model, batch, key, total, state, policy, workers, share=1.0)
        state.resum()
        if policy.at_unit_temperature:
            tools = self._tools(len(state.memos), workers, rng)
            for move in self._moves:
                state.move_log.extend(move.within(model, batch, key, state, tools))
        sort_by_mass(model, state)

    def visit(
        self,
        model,
        batch,
        key,
        total,
        state,
        policy,
        workers,
        moves=(),
        tools=None,
        *,
        share=None,
    ):
        """The local step on a batch, its memo, and the globals."""
        weight = float(batch.weights.sum())
        policy.advance(state.rows_seen / total, weight / total, state.n_steps)
        state.temper(policy.mean_inv_temp, policy.replication)
        if key in state.memos and state.memos[key].start is not None:
            batch = replace(batch, start=state.memos[key].start)
        global_params = model.expectation(state.stats, batch, workers.run)
        result = model.local_step(
            batch, global_params, policy.inv_temp(batch), workers.run, **policy.requested
        )
        memo = memo_of(model, result, batch, workers.run, pairs=bool(self._moves))
        state.remember(key, memo, weight / total if share is None else share)
        state.n_steps += 1
        state.rows_seen += weight
        policy.observe(result, batch)
        for move in moves:
            move.observe(model, batch, key, global_params, result, tools)

    def _tools(self, n_iter, workers, rng):
        def fresh(model, batch, n_components):
            return fresh_mixture(model, batch, n_components, workers, rng)

        def memo(model, result, batch):
            return memo_of(model, result, batch, workers.run, pairs=True)

        return MoveTools(n_iter, rng, workers.run, fresh, memo)


def exact_bound(model, state):
    """LocalTotals of what the memos remember, and the divergence of the globals, in nats."""
    memo = state.memos.total()
    energy = model.statistics_energy(state.untempered(), model.expectation(state.stats, None, None))
    entropy = float(memo.entropy.sum())
    tempered = state.inv_temp * energy + entropy
    totals = LocalTotals(tempered, energy + entropy, memo.weight)
    return totals, global_divergence(model, state.stats)


def memo_of(model, result, batch, run, *, pairs):
    """The :class:`Memo` of a local result; ``pairs`` if components may be merged."""
    entropy, merge_entropy_loss = model.memo_entropy(batch, result, run, pairs=pairs)
    return Memo(result.stats, entropy, merge_entropy_loss, float(batch.weights.sum()), result.start)


def sort_by_mass(model, state):
    """Components in the order that the model likes best."""
    order = model.best_order(state.stats)
    if order is not None:
        state.rearrange(order)
        state.resum()


def fresh_mixture(model, batch, n_components, workers, rng):
    """The total memo of a mixture of its own, fitted to these rows from k-means++ seeds."""
    data = sample = Rows(batch.X, batch.weights, batch.n_rows)
    if batch.n_rows > _ROWS_PER_SEED * n_components:
        few = rng.permutation(batch.n_rows)[: _ROWS_PER_SEED * n_components]
        sample = Rows(batch.X[few], batch.weights[few], few.size, data.total)
    state = State(model.with_start(n_components).initial(sample, rng))
    # merged at once, seeds that differ little from each other would all become one
    first, rest = MemoizedInference(), MemoizedInference([Merge()])
    policy, previous = RunningPolicy(), -np.inf
    for n_passes in range(_FRESH_PASSES):
        engine = first if n_passes < _PASSES_UNMERGED else rest
        totals, divergence, _ = engine.run_pass(model, data, state, policy, workers, rng)
        bound = totals.untempered - divergence
        if engine is rest and rest.may_stop and bound - previous < _FRESH_TOL * data.total:
            break
        previous = bound
    dissolve(model, state)
    return state.memos.total()
