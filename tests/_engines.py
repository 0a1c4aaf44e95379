"""Helpers that make single passes of engines."""

from types import SimpleNamespace

import numpy as np

from skvt.contracts import Move, PassInputs, RunningPolicy
from skvt.inference import MemoizedInference, Rows, State, Workers
from skvt.models.mixture import Mixture, StickBreaking
from skvt.moves._base import compute_bound
from skvt.moves._merge import compute_pair_gains
from skvt.temperature import ConstantTemperature


def policy_at(temperature):
    """A running policy of constant temperature."""
    return ConstantTemperature(temperature).start(None)


def passes(engine, model, state, data, n=1, *, policy=None, rng=None):
    """The result of each of n passes, each with the model that the last one has learned."""
    with Workers() as workers:
        for _ in range(n):
            inputs = PassInputs(data, policy or RunningPolicy(), workers, rng)
            result = engine.run_pass(model, state, inputs)
            model = result.model
            yield result


def bound(result):
    """The untempered bound of a pass."""
    return result.totals.untempered - result.divergence


def bound_in_this_order(model, memo):
    """The bound of a memo, with the components of a mixture in their present order."""
    counts = memo.stats.arrays[0]
    best = model.weights_log_evidence(counts)
    return compute_bound(model, memo) - best + model.weights.log_evidence(counts)


def sweeps(model, data, state, moves=(), n=1, seed=0):
    """The bound after each of n passes of memoized inference, (n,)."""
    rng = np.random.default_rng(seed)
    return np.array([*map(bound, passes(MemoizedInference(moves), model, state, data, n, rng=rng))])


class Idle(Move):
    """A move that does nothing, but with which memos hold the entropies of pairs."""

    def finish(self, model, state, tools):
        return []


def started(component, X, n_components):
    """A mixture, the rows in batches of 25, and the state of memoized inference at its start."""
    model = Mixture(StickBreaking(1.0), component, n_initial=n_components)
    data = Rows(X, np.ones(len(X)), 25)
    stats = model.initial(data, np.random.default_rng(0))
    return model, data, MemoizedInference().start(State(stats), data.total)


def total_of(records):
    """Numbers of proposals and acceptances of some records, and the gain of all accepted ones."""
    gain = sum(record.gain for record in records if record.accepted)
    counts = (sum(getattr(record, name) for record in records) for name in ("proposed", "accepted"))
    return SimpleNamespace(**dict(zip(("proposed", "accepted"), counts, strict=True)), gain=gain)


def merges(model, start):
    """(predicted gain, gain, state after the merge) of the merge of each pair."""
    memo = start.memos.total()
    before, sticks = compute_bound(model, memo), model.weights_log_evidence(memo.stats.arrays[0])
    for a, b, gain in zip(*compute_pair_gains(model, memo), strict=True):
        state = start.draft()
        state.merge(a, b)
        state.rearrange(np.delete(np.arange(memo.entropy.size), b))
        state.resum()
        total = state.memos.total()
        gain = gain + model.weights_log_evidence(total.stats.arrays[0]) - sticks
        yield gain, compute_bound(model, total) - before, state
