"""GaP-KL-NMF agrees with dense NumPy, and its draws have their laws."""

from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest
from _engines import policy_at
from _pairs import pairs
from scipy import stats as laws
from scipy.special import digamma, gammaln, polygamma

from skvt._compiled import run_serially as run
from skvt.contracts import PassInputs
from skvt.expfam import Gamma, RunningStats
from skvt.inference import (
    CoordinateAscent,
    Phase,
    Plan,
    Rows,
    State,
    StochasticInference,
    StructuredInference,
    Workers,
    make_ascent_phases,
)
from skvt.models.gap_nmf import _kernels as kernels
from skvt.models.gap_nmf._model import ZERO_BELOW, GaPNMF, Spectra

N, F, K = 300, 7, 4  # A block has fewer rows.


def spectrogram(seed, *, missing=0.0, whole=True):
    rng = np.random.default_rng(seed)
    Y = rng.gamma(0.5, 2.0, (N, 3)) @ rng.gamma(0.5, 4.0, (3, F))
    Y = rng.poisson(Y).astype(np.float64) if whole else Y
    Y[rng.random(Y.shape) < missing] = np.nan
    return Y


def model(**changes):
    settings = {"n_components": K, "n_features": F, "local": "mean_field", "data_mean_prior": 2.5}
    return GaPNMF(**(settings | changes))


def start(gap, Y, seed=0, weights=None, batch_size=None):
    n = Y.shape[0]
    weights = np.ones(n) if weights is None else weights
    data = Rows(Y, weights, batch_size or n)
    state = State(gap.initial(data, np.random.default_rng(seed)))
    state.row_starts = np.ones((n, gap.n_components))
    return data, state


def sweeps(engine, gap, data, state, n, results=None, temperature=1.0):
    results = [] if results is None else results
    with Workers() as workers:
        for _ in range(n):
            policy = policy_at(temperature)
            results.append(engine.run_pass(gap, state, PassInputs(data, policy, workers)))
    return np.array([result.totals.tempered - result.divergence for result in results])


# ------------------------------------------------------------------------------------- bound
def dense_bound(gap, Y, lam, shape, rate, inv_temp):
    """Return the tempered bound and the energy of each row by their definitions.

    ``shape`` and ``rate`` (n, K) are those of q(H).
    """
    theta, W = lam
    log_theta, log_W = (digamma(p[..., 0]) - np.log(p[..., 1]) for p in (theta, W))
    mean = (theta[:, 0] / theta[:, 1])[:, None] * W[..., 0] / W[..., 1]
    log_H, b = digamma(shape) - np.log(rate), gap.activation_shape
    bounds, energies = np.zeros((2, len(Y)))
    for n, f in product(range(len(Y)), range(Y.shape[1])):
        y = Y[n, f]
        if np.isnan(y):
            continue
        logs = log_theta + log_W[:, f] + log_H[n]
        phi = np.exp(inv_temp * (logs - logs.max()))
        phi /= phi.sum()
        energy = y * phi @ logs - (shape[n] / rate[n]) @ mean[:, f] - gammaln(y + 1.0)
        energies[n] += energy
        bounds[n] += inv_temp * energy - y * np.sum(phi * np.log(phi))
    # - KL(q(H) || p(H)) = E[log p] + entropy
    log_prior = b * np.log(b) - gammaln(b) + (b - 1.0) * log_H - b * shape / rate
    entropy = shape - np.log(rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)
    return bounds + (log_prior + entropy).sum(axis=1), energies


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bounds_and_energies_of_rows_follow_their_definition(temperature, missing, whole, dtype):
    Y = spectrogram(0, missing=missing, whole=whole)
    gap = model(dtype=dtype, mean_change_tol=1e-9, max_local_iter=1000)
    data, state = start(gap, Y.astype(dtype))
    batch = data.batch(gap, np.arange(N))
    g = gap.expectation(state.stats, batch, run)
    result = gap.local_step(batch, g, 1.0 / temperature, run, with_energy=True)
    exposure = (~np.isnan(Y)).astype(float) @ g.rates.T
    rate = gap.activation_shape + exposure / temperature
    lam = gap.natural_parameters(state.stats)
    shape, some = result.q.astype(float) * rate, slice(None, None, 5)
    bound, energy = dense_bound(gap, Y[some], lam, shape[some], rate[some], 1.0 / temperature)
    tolerance = 1e-9 if dtype is np.float64 else 2e-4
    np.testing.assert_allclose(result.bound[some], bound, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(result.energy[some], energy, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "seed, temperature, missing, n_local_iter", pairs(range(3), [1.0, 1.4], [0.0, 0.3], [1, 3])
)
def test_the_bound_never_falls_under_coordinate_ascent(seed, temperature, missing, n_local_iter):
    gap = model(n_local_iter=n_local_iter)
    data, state = start(gap, spectrogram(seed, missing=missing), seed, batch_size=70)
    objective = sweeps(CoordinateAscent(), gap, data, state, 15, temperature=temperature)
    assert np.all(np.diff(objective) > -1e-10 * np.abs(objective[:-1]))
    assert objective[-1] > objective[0] + 1.0


# ------------------------------------------------------------------------------------- globals
def test_the_prior_weights_sum_to_the_given_mean_or_to_one():
    for gap, mean in ((GaPNMF(K, F), 1.0), (GaPNMF(K, F, data_mean_prior=2.5), 2.5)):
        assert K * Gamma.mean(gap.prior().arrays[0])[0] == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_weights_and_spectra_are_at_their_joint_optimum(missing):
    gap = model()
    data, state = start(gap, spectrogram(2, missing=missing))
    sweeps(CoordinateAscent(), gap, data, state, 5)
    SW, SH = state.stats.arrays
    assert (missing == 0.0) == np.array_equal(SH, np.tile(SH[:, :1], F))
    theta, W = gap.natural_parameters(state.stats)
    mean_theta, mean_W = theta[:, 0] / theta[:, 1], W[..., 0] / W[..., 1]
    a, alpha = gap.component_shape, gap.weight_concentration
    np.testing.assert_allclose(W[..., 0], a + SW, rtol=1e-12)
    np.testing.assert_allclose(W[..., 1], a + mean_theta[:, None] * SH, rtol=1e-11)
    np.testing.assert_allclose(theta[:, 0], alpha / K + SW.sum(axis=1), rtol=1e-12)
    rate = alpha / gap.data_mean_prior + (mean_W * SH).sum(axis=1)
    np.testing.assert_allclose(theta[:, 1], rate, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("counts", [0.0, 1e-8, 1.0, 1e9])
def test_the_joint_optimum_is_found_at_any_scale(scale, counts):
    rng = np.random.default_rng(0)
    gap = model(data_mean_prior=scale)
    for SH in (np.full((K, F), 10.0), rng.gamma(0.1, 10.0, (K, F)), np.zeros((K, F))):
        stats = RunningStats([counts * rng.random((K, F)), SH])
        theta, W = gap.natural_parameters(stats)
        mean = theta[:, 0] / theta[:, 1]
        assert np.all(mean > 0.0) and np.all(np.isfinite(mean))
        rate = gap.component_shape + mean[:, None] * SH
        np.testing.assert_allclose(W[..., 1], rate, rtol=1e-8)


def test_drawn_globals_have_the_law_of_q():
    gap = model()
    _, state = start(gap, spectrogram(3)[:20])
    theta, W = gap.natural_parameters(state.stats)
    rng, n = np.random.default_rng(0), 2000
    draws = [gap.drawn_globals(state.stats, None, "ssvi-a", rng, run) for _ in range(n)]
    assert len({draw.seed for draw in draws}) == n
    rates = np.array([draw.rates for draw in draws])
    np.testing.assert_allclose(np.log(rates), [draw.log_rates for draw in draws], rtol=1e-12)
    mean = Gamma.mean(theta)[:, None] * Gamma.mean(W)
    assert np.all(np.abs(rates.mean(axis=0) - mean) < 5.0 * rates.std(axis=0) / n**0.5)
    logs = np.log(rates)
    expected = gap.expectation(state.stats, None, run)
    error = logs.std(axis=0) / n**0.5
    assert np.all(np.abs(logs.mean(axis=0) - expected.log_rates) < 5.0 * error)
    # The bins of a component share its weight, so that their logarithms covary as log theta varies.
    products = (logs[:, :, 0] - logs[:, :, 0].mean(axis=0)) * (
        logs[:, :, 1] - logs[:, :, 1].mean(axis=0)
    )
    error = products.std(axis=0) / n**0.5
    assert np.all(np.abs(products.mean(axis=0) - polygamma(1, theta[:, 0])) < 5.0 * error)


# --------------------------------------------------------------------------------------- draws
@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [0.2, 0.9, 1.0, 3.3, 50.0, 1e5])
def test_gamma_variates_have_their_law(dtype, shape):
    n, width = 700, 33
    shapes, out = np.full((n, width), shape, dtype), np.empty((n, width), dtype)
    kernels.draw_gammas(shapes, np.full((1, width), 2.0, dtype), 11, 0.0, out)
    x = 2.0 * out.astype(np.float64)
    assert laws.kstest(x.ravel(), laws.gamma(shape).cdf).pvalue > 1e-4
    u = laws.norm.ppf(np.clip(laws.gamma(shape).cdf(x), 1e-9, 1 - 1e-9))
    # An entry is independent of its neighbours in its row and the next, and of the other half.
    for other in (np.roll(u, 1, 1), np.roll(u, 1, 0), np.roll(u, width // 2, 1)):
        assert abs((u * other).mean()) < 5.0 / (n * width) ** 0.5
    assert np.all(np.abs(u.mean(axis=0)) < 5.0 / n**0.5)


def test_gamma_variates_have_a_rate_for_each_row_and_are_0_below_a_limit():
    shapes, rates = np.full((50, 8), 0.05), np.tile([1.0, 10.0], 200).reshape(50, 8)
    out, same = np.empty((2, 50, 8))
    kernels.draw_gammas(shapes, rates, 3, 0.0, out)
    kernels.draw_gammas(shapes, np.ones((1, 8)), 3, 0.0, same)
    np.testing.assert_allclose(out * rates, same, rtol=1e-12)
    kernels.draw_gammas(shapes, np.ones((1, 8)), 3, 1e-3, out)
    np.testing.assert_array_equal(out, np.where(same >= 1e-3, same, 0.0))
    kernels.draw_gammas(shapes, np.ones((1, 8)), 4, 0.0, out)
    assert not np.array_equal(out, same)


def sampled(gap, Y, temperature, **options):
    """Return drawn globals and the local step given them, which starts from activations of 1."""
    data, state = start(gap, Y)
    batch = state.with_row_starts(data.batch(gap, np.arange(len(Y))))
    g = gap.drawn_globals(state.stats, batch, "ssvi-a", np.random.default_rng(0), run)
    return g, gap.local_step(batch, g, 1.0 / temperature, run, **options)


def test_sweeps_have_different_random_numbers():
    # The levels of one component are independent from sweep to sweep. The bound is that of the last
    # sweep but one, and the row starts are those of the last sweep.
    gap = model(n_components=1, n_features=2, local="gibbs", n_burn_in=1, n_samples=2)
    g, result = sampled(gap, np.tile([3.0, 2.0], (4000, 1)), 1.0)
    at_the_last = 5.0 * np.log(result.row_starts[:, 0]) - result.row_starts[:, 0] * g.rates.sum()
    assert abs(np.corrcoef(at_the_last, result.bound)[0, 1]) < 0.06


def test_statistics_average_over_the_sweeps_after_the_burn_in():
    # Sweep 0 starts from H = (1, 0) and allocates all counts to component 0. Later sweeps do not.
    gap = model(n_components=2, n_features=1, local="gibbs")
    n, y, rates = 20_000, 3.0, np.array([1.0, 2.0])
    g = Spectra(np.log(rates)[:, None], rates[:, None], 5)
    data, _ = start(gap, np.full((n, 1), y))
    batch = replace(data.batch(gap, np.arange(n)), row_starts=np.tile([1.0, 0.0], (n, 1)))
    rng, b, H, shares = np.random.default_rng(1), gap.activation_shape, np.array([1.0, 0.0]), []
    for _ in range(4):
        share = H * rates / (H * rates).sum(axis=-1, keepdims=True)
        shares.append(np.broadcast_to(share, (n, 2)))
        H = rng.gamma(b + y * shares[-1]) / (b + rates)
    for n_burn_in, kept in [(0, [0]), (1, [1]), (1, [1, 2]), (2, [2, 3])]:
        sampler = replace(gap, n_burn_in=n_burn_in, n_samples=len(kept))
        SW = sampler.local_step(batch, g, 1.0, run).stats.arrays[0]
        draws = y * np.mean([shares[sweep][:, 1] for sweep in kept], axis=0)
        # Both averages vary.
        assert abs(SW[1, 0] / n - draws.mean()) <= 5.0 * draws.std() * (2.0 / n) ** 0.5


def test_the_energy_of_draws_is_not_tempered():
    # A draw of all local variables has no entropy.
    _, result = sampled(model(local="gibbs"), spectrogram(8), 2.0, with_energy=True)
    np.testing.assert_allclose(result.bound, 0.5 * result.energy, rtol=1e-12)


# ---------------------------------------------------------------------------------- statistics
@pytest.mark.parametrize("local", ["gibbs", "mean_field"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_statistics_allocate_all_counts(local, missing):
    Y = spectrogram(4, missing=missing)
    gap = model(local=local)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, N)
    data, state = start(gap, Y, weights=weights)
    batch = data.batch(gap, np.arange(N))
    g = gap.drawn_globals(state.stats, batch, "ssvi-a", np.random.default_rng(0), run)
    SW, SH = gap.local_step(batch, g, 1.0, run).stats.arrays
    np.testing.assert_allclose(SW.sum(axis=0), weights @ np.nan_to_num(Y), rtol=1e-10)
    assert SH.shape == SW.shape == (K, F)


def test_a_start_has_the_counts_and_the_weight_of_the_data():
    Y, weights = spectrogram(7), np.random.default_rng(0).integers(1, 4, N).astype(float)
    stats = model().initial(Rows(Y, weights, N), np.random.default_rng(1))
    assert stats.arrays[0].sum() == pytest.approx(weights @ Y.sum(axis=1))
    np.testing.assert_allclose(stats.arrays[1], weights.sum())


# -------------------------------------------------------------------------------------- engines
@pytest.mark.parametrize("temperature", [1.0, 1.6])
def test_a_full_stochastic_step_is_coordinate_ascent(temperature):
    gap, ends = model(), []
    for engine in (CoordinateAscent(), StochasticInference(lambda step: 1.0)):
        data, state = start(gap, spectrogram(8), weights=np.linspace(0.5, 2.0, N))
        objective = sweeps(engine, gap, data, state, 3, temperature=temperature)
        ends.append((state.stats.arrays[0], state.row_starts))
        assert np.isfinite(objective).all()
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_rows_continue_from_their_last_activations():
    gap = model(n_local_iter=2)
    data, state = start(gap, spectrogram(9), batch_size=100)
    twice = replace(gap, n_local_iter=4)
    g = gap.expectation(state.stats, None, run)
    for rows in data.list_batches():
        batch = data.batch(gap, rows)
        two = gap.local_step(state.with_row_starts(batch), g, 1.0, run)
        four = twice.local_step(state.with_row_starts(batch), g, 1.0, run)
        state.store_row_starts(batch.rows, two.row_starts)
        again = gap.local_step(state.with_row_starts(batch), g, 1.0, run)
        np.testing.assert_array_equal(again.row_starts, four.row_starts)
        assert np.all(again.bound >= two.bound - 1e-9 * np.abs(two.bound))


class InPhases:
    """Passes of structured inference take turns with passes of coordinate ascent."""

    def __init__(self, *phases):
        engine, self.n = StructuredInference(lambda step: 1.0, "ssvi-a"), 0
        self.phases = Phase(engine), *make_ascent_phases(engine, *phases)

    def run_pass(self, model, state, given):
        self.n += 1
        plan = Plan(given.data, self.phases, given.policy, None, None)
        return plan.run_pass(self.n, model, state, given)


@pytest.mark.parametrize(("phases", "turns"), [([3], [3, 4]), ([3, [(2, 1)]], [3, 2, 1, 2])])
def test_phases_take_turns_and_only_the_last_may_stop_the_fit(phases, turns):
    gap, results = model(local="gibbs"), []
    data, state = start(gap, spectrogram(11))
    objective = sweeps(InPhases(*phases), gap, data, state, sum(turns), results)
    is_sampled = np.repeat(np.arange(len(turns)) % 2 == 0, turns)
    assert [result.bound_kind == "none" for result in results] == is_sampled.tolist()
    first, last = results[: -turns[-1]], results[-turns[-1] :]
    assert not any(result.may_stop for result in first)
    assert all(result.may_stop and result.monotone for result in last)
    assert np.all(np.diff(objective[-turns[-1] :]) > 0.0)
    by_hand_data, by_hand = start(gap, spectrogram(11))
    structured = StructuredInference(lambda step: 1.0, "ssvi-a"), gap
    ascent = CoordinateAscent(), gap.mean_field()
    for n, (engine, solved) in zip(turns, cycle([structured, ascent]), strict=False):
        sweeps(engine, solved, by_hand_data, by_hand, n)
    np.testing.assert_array_equal(state.stats.arrays[0], by_hand.stats.arrays[0])


@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize(("missing", "n_local_iter"), [(0.0, None), (0.2, 3)])
def test_few_rows_are_solved_as_among_many(temperature, missing, n_local_iter):
    # K = 6 is no multiple of the entries that a loop takes at a time, and one row has no counts.
    gap, Y = model(n_components=6, n_local_iter=n_local_iter or 1), spectrogram(3, missing=missing)
    Y[1] = 0.0
    _, state = start(gap, Y)
    spectra, weights = gap.expectation(state.stats, None, run), np.ones(N)

    def solved(rows):
        batch = gap.batch(Y, np.arange(N)[rows], weights[rows])
        if n_local_iter:
            batch = replace(batch, row_starts=np.full((weights[rows].size, 6), 0.3))
        return gap.local_step(batch, spectra, 1.0 / temperature, run, with_stats=False)

    few, many = solved(slice(0, 5)), solved(slice(0, 60))
    np.testing.assert_allclose(few.q, many.q[:5], rtol=1e-9)
    np.testing.assert_allclose(few.bound, many.bound[:5], rtol=1e-9)


def test_small_activations_count_as_zero():
    shape, rate, out = np.full((1, 2), 0.02), np.ones((1, 2)), np.empty((1, 2))
    kernels.write_geometric_means(shape, rate, ZERO_BELOW, out)
    np.testing.assert_array_equal(out, 0.0)
    kernels.write_geometric_means(np.full((1, 2), 0.2), rate, ZERO_BELOW, out)
    np.testing.assert_allclose(out, np.exp(digamma(0.2)), rtol=1e-12)
