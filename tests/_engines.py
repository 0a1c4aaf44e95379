"""Passes of engines, made by hand."""

import numpy as np

from skvt.contracts import RunningPolicy
from skvt.inference import MemoizedInference, Workers
from skvt.temperature import ConstantTemperature


def policy_at(temperature):
    """A running policy of constant temperature."""
    return ConstantTemperature(temperature).start(None)


def sweeps(model, data, state, moves=(), n=1, seed=0):
    """The bound after each of n passes of memoized inference, (n,)."""
    engine, rng, bounds = MemoizedInference(moves), np.random.default_rng(seed), []
    with Workers() as workers:
        for _ in range(n):
            result = engine.run_pass(model, data, state, RunningPolicy(), workers, rng)
            bounds.append(result.totals.untempered - result.divergence)
    return np.array(bounds)
