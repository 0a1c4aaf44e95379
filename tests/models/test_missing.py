"""Missing values under full covariances, against sums over a grid of what could be there."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from _engines import merges, sweeps
from models._textbook import KINDS, with_gaps
from scipy.special import logsumexp, softmax

from skvt._compiled import run_serially as run
from skvt.inference import MemoizedState, Rows
from skvt.inference._visit import make_memo
from skvt.models.mixture import _model as _mixture
from skvt.models.mixture import _refits
from skvt.models.mixture._missing import Patterns
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import StickBreaking
from skvt.models.mixture.components import _full
from skvt.moves import Merge
from skvt.moves._base import compute_bound

each_full = pytest.mark.parametrize("name", ["full", "zero-mean full"])


def mixture(name, *, D=3, K=2, dtype=np.float64, n=40):
    """A model, and E[log w] and the table after some rows."""
    model = Mixture(StickBreaking(1.3), KINDS[name].make(D, np.dtype(dtype)), n_initial=K)
    rng = np.random.default_rng(0)
    X, resp = KINDS[name].rows(n, D, rng), rng.dirichlet(np.full(K, 0.5), size=n)
    stats = _mixture.RunningStats((resp.sum(axis=0), resp.T @ model.component.features(X)))
    return model, model.expectation(stats, None, None)


def patterns_of_three(name):
    """Two rows of each of the eight patterns, in no order."""
    rng = np.random.default_rng(1)
    X = KINDS[name].rows(16, 3, rng)
    for n, gaps in enumerate(itertools.product([False, True], repeat=3)):
        X[[n, n + 8], :] = np.where(gaps, np.nan, X[[n, n + 8], :])
    return X[rng.permutation(16)]


def by_grid(component, x, log_weights, table, b):
    """What a row with at most two gaps says, by sums over a grid of the values that they may have.

    log of the sum, p(k) (K,), energy, expected features (K, P) times p(k), entropy of the values
    given k (K,).
    """
    gaps = np.flatnonzero(np.isnan(x))
    axis, step = np.linspace(-45.0, 45.0, 301, retstep=True)
    rows = np.repeat(x[None], 301**gaps.size, axis=0)
    if gaps.size:
        rows[:, gaps] = np.stack(np.meshgrid(*[axis] * gaps.size), axis=-1).reshape(-1, gaps.size)
    features = component.features(rows)
    energies = features @ table.T + log_weights
    cell = gaps.size * np.log(step)
    total = logsumexp(b * energies + cell)
    p = np.exp(b * energies + cell - total)
    of_component = p.sum(axis=0)
    given = np.where(p > 0.0, np.log(np.maximum(p, 1e-300)) - np.log(of_component) - cell, 0.0)
    return (
        total, of_component, (p * energies).sum(), p.T @ features,
        -(p * given).sum(axis=0) / of_component,
    )  # fmt: skip


@pytest.mark.quick_cases("float64")
@each_full
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("inv_temp", [1.0, 0.6, "rows"])
def test_a_local_step_is_the_sum_over_all_that_could_be_missing(name, dtype, inv_temp, monkeypatch):
    model, (log_weights, table) = mixture(name, dtype=dtype)
    X, weights = patterns_of_three(name).astype(dtype), np.linspace(0.5, 2.0, 16)
    b = np.linspace(0.5, 1.0, 16) if inv_temp == "rows" else np.full(16, inv_temp)
    bounds, energies, entropy, counts, sums = [], [], 0.0, 0.0, 0.0
    resp = []
    for x, w, own in zip(X.astype(float), weights, b, strict=True):
        if np.isnan(x).all():  # of density one: q of what is missing is none of the bound's
            total = logsumexp(own * log_weights)
            r = np.exp(own * log_weights - total)
            energy, features, hidden = r @ log_weights, np.zeros_like(table), np.zeros(2)
        else:
            total, r, energy, features, hidden = by_grid(
                model.component, x, log_weights, table, own
            )
        bounds.append(total)
        energies.append(energy)
        resp.append(r)
        counts, sums = counts + w * r, sums + w * features
        entropy = entropy + w * r * hidden
    for chunk in (512, 5):
        monkeypatch.setattr(_mixture, "ROWS_PER_CHUNK", chunk)
        result = model.local_step(
            model.batch(X, np.arange(16), weights), (log_weights, table),
            b if inv_temp == "rows" else inv_temp, run, with_marginal=True,
        )  # fmt: skip
        np.testing.assert_allclose(result.bound, bounds, rtol=1e-9)
        np.testing.assert_allclose(result.energy, energies, rtol=1e-9)
        np.testing.assert_allclose(result.q, resp, rtol=1e-6, atol=1e-12)
        assert result.q.dtype == dtype
        np.testing.assert_allclose(result.stats.arrays[0], counts, rtol=1e-9)
        np.testing.assert_allclose(result.stats.arrays[1], sums, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(result.hidden_entropy, entropy, rtol=1e-8)


def test_patterns_of_more_columns_than_bits_are_told_apart():
    rng = np.random.default_rng(2)
    kinds = rng.random((5, 130)) < 0.3
    kinds[0], kinds[1] = False, True
    which = rng.integers(5, size=60)
    rows, starts, columns, offsets = Patterns.from_mask(kinds[which])
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(which > 1))
    assert starts.size == 4
    for g in range(3):
        held = set(which[rows[starts[g] : starts[g + 1]]])
        assert len(held) == 1
        np.testing.assert_array_equal(
            columns[offsets[g] : offsets[g + 1]], np.flatnonzero(kinds[held.pop()])
        )


def test_of_complete_rows_nothing_is_hidden():
    model, g = mixture("full")
    X = KINDS["full"].rows(6, 3, np.random.default_rng(0))
    batch = model.batch(X, np.arange(6), np.ones(6))
    assert np.all(model.local_step(batch, g, 1.0, run).hidden_entropy == 0.0)
    assert model.component.filled(X) is X


# ----------------------------------------------------------------------------------- memos
def fitted(name, K=4, passes=15, D=3, n=150):
    """A state after some passes over rows of which a fifth of the values is missing."""
    rng = np.random.default_rng(3)
    X = with_gaps(KINDS[name].rows(n, D, rng), rng, share=0.2)
    model = Mixture(StickBreaking(1.3), KINDS[name].make(D, np.dtype(np.float64)), n_initial=K)
    data = Rows(X, rng.uniform(0.5, 2.0, n), 60)
    state = MemoizedState(model.initial(data, rng))
    sweeps(model, data, state, n=passes)
    return model, data, state


@each_full
def test_densities_of_one_column_take_no_time_for_the_others(name, monkeypatch):
    component = mixture(name, D=4)[0].component
    X = KINDS[name].rows(40, 4, np.random.default_rng(0))
    lam, alone = component.prior[None], np.full((41, 4), np.nan)
    alone[:40, 2] = X[:, 2]
    beside = component.log_predictive(np.vstack([X, alone]), lam)[40:]
    n_columns, squared_distances = [], _full.compute_squared_distances

    def recorded(rows, *args):
        n_columns.append(rows.shape[1])
        return squared_distances(rows, *args)

    monkeypatch.setattr(_full, "compute_squared_distances", recorded)
    np.testing.assert_allclose(component.log_predictive(alone, lam), beside, atol=1e-12)
    np.testing.assert_array_equal(component.log_predictive(alone[40:], lam), [[0.0]])
    assert n_columns == [1, 1]


@each_full
def test_a_merge_gains_what_was_predicted_and_the_next_pass_no_less(name):
    model, data, start = fitted(name, passes=2)
    before = compute_bound(model, start.memos.total())
    for gain, change, state in merges(model, start):
        assert change == pytest.approx(gain, rel=1e-9)
        # what two components said of a missing value is less certain than either, not more
        assert sweeps(model, data, state)[0] > before + change
    bounds = sweeps(model, data, start, [Merge()], 12)
    assert np.all(np.diff(bounds) > -1e-9 * abs(before)) and model.size(start.stats) < 4


@each_full
def test_given_assignments_have_the_bound_of_the_fit_that_made_them(name):
    model, data, state = fitted(name, K=2, passes=150)
    batch = model.batch(data.X, np.arange(data.n_rows), data.weights)
    resp = model.local_step(batch, model.expectation(state.stats, None, None), 1.0, run).q
    memo = make_memo(model, model.make_local_result(batch, resp), batch, run)
    bound = compute_bound(model, state.memos.total())
    assert compute_bound(model, memo) == pytest.approx(bound, abs=2e-3 * data.total)
    assert compute_bound(model, memo) < bound + 1e-6
    # one step from the prior is far from it
    one = model._complete_statistics(batch, resp, 1)
    once = replace(memo, stats=one[0], entropy=memo.entropy - memo.entropy + one[1])
    assert compute_bound(model, once) < bound - 0.05 * data.total


@each_full
def test_updates_from_previous_sums_never_lower_the_bound(name):
    model, data, state = fitted(name, K=2)
    batch = model.batch(data.X, np.arange(data.n_rows), data.weights)
    resp = np.random.default_rng(0).dirichlet(np.ones(2), size=data.n_rows)
    sums, bounds = state.stats.as_stats().arrays[1], []
    for _ in range(60):
        stats, entropy = model._complete_statistics(batch, resp, 1, sums)
        bounds.append(entropy.sum() + model.collapsed_energy(stats))
        sums = stats.arrays[1]
    assert np.all(np.diff(bounds) > -1e-9 * abs(bounds[0]))
    assert bounds[-1] > bounds[0] + 0.01 * data.total
    # Updates from the prior reach the same bound.
    stats, entropy = model._complete_statistics(batch, resp, 40)
    assert entropy.sum() + model.collapsed_energy(stats) == pytest.approx(
        bounds[-1], abs=2e-3 * data.total
    )


@each_full
@pytest.mark.parametrize("drawn", [False, True])
def test_a_refit_of_few_updates_reaches_the_fixed_point_of_complete_updates(
    name, drawn, monkeypatch
):
    model, data, state = fitted(name, K=2)
    X, batch = data.X, model.batch(data.X, np.arange(data.n_rows), data.weights)
    start = model.local_step(batch, model.expectation(state.stats, None, None), 1.0, run).q
    refits = _refits.make_refits(model, X, data.weights, start)
    weights, resp = data.weights, refits.resp
    if drawn:
        weights, _, resp = refits.draw(np.random.default_rng(5))
        X, start = refits.X, refits.start_resp
    # In each step of EM, update the missing values from the prior until they are final.
    monkeypatch.setattr(_mixture, "_COMPLETION_TOL", 1e-12)
    monkeypatch.setattr(_mixture, "_MAX_COMPLETIONS", 1000)
    batch = model.batch(X, np.arange(len(X)), weights)
    for _ in range(500):
        counts, sums = model.statistics_of_assignments(batch, start).arrays
        lam = model.component.natural_parameters(sums)
        joint = model.component.log_predictive(X, lam) + np.log(counts + 1.0)
        previous, start = start, softmax(joint, axis=1)
        if abs(start - previous).max() < 1e-8:
            break
    else:
        raise AssertionError("EM has not converged")
    np.testing.assert_allclose(resp, start, atol=2e-3)


@each_full
def test_strangers_and_seeds_are_rows_filled_in_under_the_prior(name):
    model, data, state = fitted(name, K=3, passes=1)
    filled = model.component.conditional_mean(data.X, model.component.prior[None])[0]
    np.testing.assert_array_equal(model.component.filled(data.X), filled)
    features = model.component.features(filled)
    counts, sums = model.symmetry_breaking_stats(
        state.stats, data, 0.1, np.random.default_rng(4)
    ).arrays
    for k in range(3):
        assert np.abs(features * counts[k] - sums[k]).max(axis=1).min() < 1e-12
    whole = Rows(filled, data.weights, 60)
    drawn = [model._draw_rows(d, 40, np.random.default_rng(5)) for d in (data, whole)]
    np.testing.assert_array_equal(*drawn)
