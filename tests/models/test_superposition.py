"""Superposition moves: optima they leave, bounds they keep."""

from dataclasses import replace

import numpy as np
import pytest
from _engines import sweeps as sweeps_of
from scipy.optimize import linear_sum_assignment

from skvt.datasets import make_shapes
from skvt.expfam import RunningStats
from skvt.inference import EngineTools, MemoizedState, Rows, Workers
from skvt.models.factorial import Superposition, _superposition
from skvt.models.factorial._model import FactorialMixture
from skvt.moves._base import compute_bound

X, ACTIVATIONS, TRUTH = make_shapes(3_000, random_state=0)
K, D = TRUTH.shape


def begun_at(components, dtype=np.float64):
    """A model of the shapes, and a state with these components, activations not yet found."""
    model = FactorialMixture(K, D, 0.1, 0.35, np.full(K, 0.3), np.dtype(dtype))
    pairs = len(X) * (np.full((K, K), 0.09) + 0.21 * np.eye(K))
    totals = np.array([len(X), X.size, np.sum(X**2)])
    products = (pairs + 0.1 / 0.35 * np.eye(K)) @ components
    stats = RunningStats([pairs[None], products, len(X) * np.full(K, 0.3), totals])
    return model, MemoizedState(stats, row_starts=np.full((len(X), K), np.nan))


def sweeps(model, state, moves, n):
    return sweeps_of(model, Rows(X, np.ones(len(X)), 1_000), state, moves, n)


def matched(model, state):
    """Number of true components found."""
    found = model.family.mean(model.natural_parameters(state.stats)[0])
    correlations = np.corrcoef(found, TRUTH)[:K, K:]
    return np.sum(correlations[linear_sum_assignment(-correlations)] > 0.95)


def difference():
    """Component 1 is what it should be less component 0, and the same the other way."""
    components = TRUTH.copy()
    components[:2] = TRUTH[0] + TRUTH[1], TRUTH[1] - TRUTH[0]
    return components


def negative():
    """Component 2 is off where it should be on; the others share the constant."""
    components = TRUTH + TRUTH[2] / (0.3 * K)
    components[2] = -TRUTH[2]
    return components


def test_moves_leave_an_optimum_that_sweeps_do_not():
    model, state = begun_at(negative())
    plain = sweeps(model, state, [], 60)
    assert plain[-1] - plain[-2] < 1e-2
    assert matched(model, state) < K
    model, state = begun_at(negative())
    moved = sweeps(model, state, [Superposition()], 30)
    assert matched(model, state) == K
    assert moved[-1] > plain[-1] + 0.5 * len(X)
    accepted = [record for record in state.move_log if record.accepted]
    assert {record.move for record in accepted} == {"refresh", "superposition"}
    assert all(record.gain > 0.0 for record in accepted)


@pytest.mark.quick_cases("difference")
@pytest.mark.parametrize("start", [difference, negative, lambda: TRUTH])
def test_the_bound_never_falls_and_moves_settle(start, monkeypatch):
    model, state = begun_at(start())
    move = Superposition()
    bounds = sweeps(model, state, [move], 40)
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[-1]))
    assert move.exhausted
    # nothing is left to try: a pass costs as much as without moves
    steps, local_step = [], FactorialMixture.local_step
    monkeypatch.setattr(
        FactorialMixture,
        "local_step",
        lambda self, *args, **more: steps.append(1) or local_step(self, *args, **more),
    )
    sweeps(model, state, [move], 1)
    assert len(steps) == 3  # batches


def test_a_gain_is_what_the_bound_rises_by():
    model, state = begun_at(difference())
    sweeps(model, state, [], 20)

    class Watched(Superposition):
        def finish(self, model, state, tools):
            before = compute_bound(model, state.memos.total())
            records = super().finish(model, state, tools)
            rise = compute_bound(model, state.memos.total()) - before
            rises.extend((record, rise) for record in records)
            return records

    rises = []
    sweeps(model, state, [Watched()], 20)
    assert any(record.accepted for record, _ in rises)
    for record, rise in rises:
        assert record.accepted == (rise > 0.0)
        assert record.gain == pytest.approx(rise, abs=1e-6) or not record.accepted


def test_each_row_keeps_the_better_of_two_starts():
    model, state = begun_at(TRUTH)
    rows = np.arange(300)
    # half of the rows go on from where they are, half from the opposite
    q = np.where((rows % 2 == 0)[:, None], ACTIVATIONS[rows], 1.0 - ACTIVATIONS[rows])
    batch = replace(model.batch(X, rows, np.ones(300)), row_starts=q)
    with Workers() as workers:
        tools = EngineTools(1, np.random.default_rng(0), workers)
        g = model.expectation(state.stats, batch, workers.run)
        on, anew = (
            model.local_step(b, g, 1.0, workers.run).bound
            for b in (batch, replace(batch, row_starts=None))
        )
        better = _superposition._restart_or_continue(model, batch, g, tools).bound
    assert np.any(on > anew + 1.0) and np.any(anew > on + 1.0)
    assert np.all(better > np.maximum(on, anew) - 1e-6)


def test_one_component_has_nothing_to_add_but_its_sign():
    model = FactorialMixture(1, D, 0.1, 0.35, np.array([0.3]), np.dtype(float))
    state = MemoizedState(model.initial(Rows(X, np.ones(len(X)), 500), np.random.default_rng(0)))
    state.row_starts = np.full((len(X), 1), np.nan)
    bounds = sweeps(model, state, [Superposition()], 15)
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[-1]))
