"""The factorial mixture agrees with enumeration, quadrature and dense formulas."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from _engines import passes
from scipy.special import logsumexp

from skvt._compiled import run_serially as run
from skvt.contracts import FitPlan
from skvt.expfam import RunningStats, kl_divergence
from skvt.inference import MemoizedInference, MemoizedState, Rows, Workers, evaluate_bound
from skvt.inference._bound import compute_bound_parts
from skvt.models.factorial import _particles, _posterior, infer_activations
from skvt.models.factorial._model import FactorialMixture
from skvt.moves._base import compute_bound
from skvt.temperature import ConstantTemperature

K, D = 3, 2
CONFIGURATIONS = np.array(list(itertools.product([0.0, 1.0], repeat=K)))
EVERYTHING = frozenset({"noise_variance", "prior_variance", "activation_prior"})


def model_of(missing=False, dtype=np.float64, **changes):
    return FactorialMixture(
        n_components=K, n_features=D, noise_variance=0.3, prior_variance=1.7,
        activation_prior=np.array([0.2, 0.5, 0.7]), dtype=np.dtype(dtype), by_column=missing,
        **changes,
    )  # fmt: skip


def data_of(n=40, missing=False, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.random((n, K)) < 0.4
    X = Z @ (1.5 * rng.standard_normal((K, D))) + 0.5 * rng.standard_normal((n, D))
    if missing:
        X[rng.random(X.shape) < 0.3] = np.nan
        X[0] = np.nan
    return X, rng.uniform(0.5, 2.0, n)


def fitted(model, X, weights, n_passes=4, batch_size=15, seed=0, temperature=1.0):
    """Return the last model, the state, and the tempered bound after each pass."""
    data, rng = Rows(X, weights, batch_size), np.random.default_rng(seed)
    starts = np.full((data.n_rows, model.n_components), np.nan)
    state = MemoizedState(model.initial(data, rng), row_starts=starts)
    policy = ConstantTemperature(temperature).start(FitPlan(model, n_passes))
    done = [*passes(MemoizedInference(), model, state, data, n_passes, policy=policy, rng=rng)]
    return done[-1].model, state, [each.totals.tempered - each.divergence for each in done]


def compute_log_joint(model, x, z, mean, covariance):
    """Return ``E_q(mu)[log p(x, z | mu)]`` for one row and one z."""
    total = scipy.stats.bernoulli.logpmf(z, model.activation_prior).sum()
    for d in np.flatnonzero(~np.isnan(x)):
        S = covariance[d if len(covariance) > 1 else 0]
        square = (x[d] - z @ mean[:, d]) ** 2 + z @ S @ z
        s = model.noise_variance
        total += -0.5 * np.log(2.0 * np.pi * s) - 0.5 * square / s
    return total


def q_of(model, state):
    return model.family.to_standard(model.natural_parameters(state.stats)[0])


def energy_and_entropy(model, x, v, q):
    """Enumerate the activations of a row, which are independent with probabilities v."""
    chance = np.prod(np.where(CONFIGURATIONS == 1.0, v, 1.0 - v), axis=1)
    joint = np.array([compute_log_joint(model, x, z, **q) for z in CONFIGURATIONS])
    return chance @ joint, -(chance @ np.log(chance))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("inv_temp", [1.0, 0.4])
def test_bounds_of_rows_equal_enumeration_and_are_maxima(missing, inv_temp):
    model, (X, weights) = model_of(missing, sweep_tol=1e-12, max_sweeps=1000), data_of(6, missing)
    model, state, _ = fitted(model, X, weights, batch_size=6)
    q, batch = q_of(model, state), model.batch(X, np.arange(6), weights)
    result = model.local_step(batch, model.expectation(state.stats, batch, run), inv_temp, run)
    for n in range(6):
        energy, entropy = energy_and_entropy(model, X[n], result.q[n], q)
        assert result.energy[n] == pytest.approx(energy, rel=1e-9)
        assert result.bound[n] == pytest.approx(inv_temp * energy + entropy, rel=1e-9)
        for k in range(K):
            v = result.q[n, k]
            for other in (v - 0.05 * v, v + 0.05 * (1.0 - v)):
                changed = np.where(np.arange(K) == k, other, result.q[n])
                energy, entropy = energy_and_entropy(model, X[n], changed, q)
                assert inv_temp * energy + entropy < result.bound[n]


@pytest.mark.parametrize("missing", [False, True])
def test_the_bound_equals_a_dense_formula_and_is_below_the_evidence(missing):
    X, _ = data_of(4, missing, seed=1)
    weights = np.ones(4)
    model, state, bounds = fitted(model_of(missing), X, weights, n_passes=30, batch_size=4)
    q = q_of(model, state)
    # The row starts are the activations of the last visit.
    v = state.row_starts
    energy = 0.0
    for n in range(4):
        energy += sum(energy_and_entropy(model, X[n], v[n], q))
    divergence = 0.0
    for d in range(D):
        m, S = q["mean"][:, d], q["covariance"][d if missing else 0]
        c = model.prior_variance
        log_det = np.linalg.slogdet(S)[1]
        divergence += 0.5 * ((np.trace(S) + m @ m) / c - K + K * np.log(c) - log_det)
    assert bounds[-1] == pytest.approx(energy - divergence, rel=1e-9)
    assert compute_bound(model, state.memos.total()) == pytest.approx(bounds[-1], rel=1e-9)
    # The evidence sums over all activations of all rows and integrates over the components.
    Z = np.array(list(itertools.product(CONFIGURATIONS, repeat=4)))
    logs = scipy.stats.bernoulli.logpmf(Z, model.activation_prior).sum(axis=(1, 2))
    covariance = model.prior_variance * Z @ Z.transpose(0, 2, 1) + 0.3 * np.eye(4)
    for d in range(D):
        there = np.flatnonzero(~np.isnan(X[:, d]))
        part, x = covariance[:, there[:, None], there], X[there, d]
        distance = np.linalg.solve(part, np.tile(x[:, None], (len(Z), 1, 1)))[..., 0] @ x
        logs -= 0.5 * (np.linalg.slogdet(2.0 * np.pi * part)[1] + distance)
    assert logsumexp(logs) - 30.0 < bounds[-1] < logsumexp(logs)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("learned", "temperature"), [(frozenset(), 1.0), (frozenset(), 2.5), (EVERYTHING, 1.0)]
)
def test_the_tempered_bound_never_falls(missing, learned, temperature):
    X, weights = data_of(missing=missing, seed=2)
    model = model_of(missing, learned=learned)
    _, _, bounds = fitted(model, X, weights, 30, 7, temperature=temperature)
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[-1]))
    assert bounds[-1] > bounds[0] + (temperature == 1.0)


def test_covariances_for_each_column_give_the_same_fit_of_complete_data():
    X, weights = data_of(seed=4)
    one, state, bounds = fitted(model_of(), X, weights)
    other, state_by_column, bounds_by_column = fitted(model_of(missing=True), X, weights)
    np.testing.assert_allclose(bounds_by_column, bounds, rtol=1e-10)
    np.testing.assert_allclose(
        q_of(other, state_by_column)["mean"], q_of(one, state)["mean"], rtol=1e-8, atol=1e-10
    )


def test_learned_parameters_maximise_the_bound():
    X, weights = data_of(missing=True, seed=5)
    start = model_of(missing=True)
    _, state, _ = fitted(start, X, weights)
    lam = start.natural_parameters(state.stats)[0]
    g = start.expectation(state.stats, None, None)
    learned = replace(start, learned=EVERYTHING).with_learned_priors(None, state.stats)

    def bound(model):
        """Return the terms that depend on the learned parameters, at fixed q."""
        energy = model.statistics_energy(state.stats, g)
        return energy - kl_divergence(model.family, lam, model.prior().arrays[0])

    best = bound(learned)
    assert best > bound(start)
    for name in EVERYTHING:
        for factor in (0.97, 1.03):
            assert bound(replace(learned, **{name: getattr(learned, name) * factor})) < best


# -------------------------------------------------------------------------------- temperature
@pytest.mark.parametrize("b", [1.0, 0.6, 0.15])
def test_the_log_partition_is_the_integral_over_rows_and_activations(b):
    model, components = replace(model_of(), n_features=1), np.array([[0.7], [-1.2], [2.0]])
    # The error of the rectangle rule is below rounding for densities this smooth and wide.
    x, step = np.linspace(-40.0, 40.0, 1601, retstep=True)
    density = scipy.stats.norm(CONFIGURATIONS @ components, np.sqrt(model.noise_variance)).logpdf(x)
    prior = scipy.stats.bernoulli.logpmf(CONFIGURATIONS, model.activation_prior).sum(axis=1)
    integral = logsumexp(b * (prior[:, None] + density)) + np.log(step)
    value, slope = model.tempered_log_partition(np.array([b - 1e-5, b, b + 1e-5]))
    assert value[1] == pytest.approx(integral, abs=1e-8)
    assert slope[1] == pytest.approx((value[2] - value[0]) / 2e-5, rel=1e-6)


def test_symmetry_breaking_noise_has_the_scale_of_moved_rows():
    X, weights = data_of(seed=13)
    model, on = model_of(), np.full(K, 20.0)
    totals = np.array([40.0, 80.0, 320.0])
    pairs = np.full((1, K, K), 10.0) + 10.0 * np.eye(K)
    stats = RunningStats([pairs, np.ones((K, D)), on, totals])
    rng = np.random.default_rng(0)
    drawn = [
        model.symmetry_breaking_stats(stats, Rows(X, weights, 40), 0.05, rng).arrays
        for _ in range(2_000)
    ]
    assert all(not np.any(part) for arrays in drawn for part in (arrays[0], *arrays[2:]))
    noise = np.array([arrays[1] for arrays in drawn])
    # The noise of z x' is that of a share of the rows moved by the standard deviation of columns.
    spread = np.sqrt(np.cov(X.T, aweights=weights, ddof=0).diagonal())
    np.testing.assert_allclose(noise.std(axis=0) / spread, 0.05 * 20.0, rtol=0.1)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=4.5 * 2.0 / np.sqrt(2_000))


# -------------------------------------------------------------------------------- predictions
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("fitted_by_column", [False, True])
def test_enumerated_activations_have_the_probabilities_of_bayes_rule(missing, fitted_by_column):
    model, (X, weights) = model_of(fitted_by_column), data_of(12, fitted_by_column, seed=6)
    model, state, _ = fitted(model, X, weights)
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.2 * missing, np.nan, X)
    q, batch = q_of(model, state), model.batch(X, np.arange(12), weights)
    found = infer_activations(model, batch, state.stats, run)
    for n in range(12):
        joint = scipy.stats.bernoulli.logpmf(CONFIGURATIONS, model.activation_prior).sum(axis=1)
        for d in np.flatnonzero(~np.isnan(X[n])):
            S = q["covariance"][d if len(q["covariance"]) > 1 else 0]
            variance = model.noise_variance + np.array([z @ S @ z for z in CONFIGURATIONS])
            normal = scipy.stats.norm(CONFIGURATIONS @ q["mean"][:, d], np.sqrt(variance))
            joint = joint + normal.logpdf(X[n, d])
        assert found.log_density[n] == pytest.approx(logsumexp(joint), rel=1e-9)
        expected = np.exp(joint - logsumexp(joint)) @ CONFIGURATIONS
        np.testing.assert_allclose(found.probabilities[n], expected, rtol=1e-8, atol=1e-12)


def known_activations(noise=0.25, many=8, n=300):
    """Return rows, a model, and statistics of the true activations."""
    rng = np.random.default_rng(0)
    Z = (rng.random((n, many)) < 0.3).astype(float)
    X = Z @ rng.standard_normal((many, 12)) + np.sqrt(noise) * rng.standard_normal((n, 12))
    model = FactorialMixture(many, 12, noise, 1.0, np.full(many, 0.3), np.dtype(float))
    totals = np.array([n, X.size, np.sum(X**2)])
    return X, model, RunningStats([(Z.T @ Z)[None], Z.T @ X, Z.sum(axis=0), totals])


@pytest.mark.parametrize("noise, largest", [(0.25, 0.1), (4.0, 0.6)])
def test_annealed_particles_agree_with_the_sum(monkeypatch, noise, largest):
    X, model, stats = known_activations(noise)
    X[::5, 2] = np.nan
    batch = model.batch(X, np.arange(len(X)), np.ones(len(X)))
    exact = infer_activations(model, batch, stats, run)
    monkeypatch.setattr(_posterior, "MAX_ENUMERATED", 2**8 - 1)
    estimate = infer_activations(model, batch, stats, run)
    assert not np.array_equal(exact.log_density, estimate.log_density)
    error = estimate.log_density - exact.log_density
    assert np.abs(error).max() < largest and abs(error.mean()) < 0.03
    assert np.abs(estimate.probabilities - exact.probabilities).max() < 0.25
    difference = estimate.probabilities - exact.probabilities
    assert np.sqrt(np.mean(difference**2)) < 0.03
    assert np.abs(difference.mean(axis=0)).max() < 0.003


def test_a_start_has_the_weight_of_all_rows_and_values():
    X, weights = data_of(50)
    stats = model_of().initial(Rows(X, weights, 20), np.random.default_rng(0))
    total = weights.sum()
    np.testing.assert_allclose(stats.as_stats().arrays[3][:2], [total, D * total], rtol=1e-12)


def test_a_start_has_the_squared_error_of_the_noise():
    model, (X, weights) = model_of(learned=("noise_variance",)), data_of()
    stats = model.initial(Rows(X, weights, 20), np.random.default_rng(0))
    learned = model.with_learned_priors(None, stats)
    assert learned.noise_variance == pytest.approx(model.noise_variance)


def test_particles_estimate_the_sum_over_activations_nearly_without_bias(monkeypatch):
    """Ratios of independent estimates to the exact sum have mean 1."""
    X, model, stats = known_activations(noise=1.0, many=5)
    mean, second = model.expectation(stats, None, None)
    z = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
    x = np.repeat(X[:1], 4_000, axis=0)
    exponent = (z @ mean @ X[0] - 0.5 * np.einsum("sk,kl,sl->s", z, second[0], z)) / 1.0
    exact = logsumexp(exponent + z @ model.logit + model.log_prob_all_inactive)
    posterior = np.exp(exponent + z @ model.logit + model.log_prob_all_inactive - exact) @ z
    keys = np.arange(4_000, dtype=np.uint64) * np.uint64(0x632BE59BD9B4E019)
    monkeypatch.setattr(_particles, "hash_rows", lambda bits: keys)
    linear = x @ mean.T
    log_mass, _, probabilities, states, _ = _particles.draw_particles(
        x, linear, second, model.logit, model.noise_variance
    )
    ratio = np.exp(log_mass - exact)
    # The particles choose the temperatures, which causes a bias of order 1 / particles.
    assert abs(ratio.mean() - 1.0) < 4.5 * ratio.std() / np.sqrt(4_000) + 1.0 / 64
    np.testing.assert_allclose(probabilities.mean(axis=0), posterior, atol=0.01)
    np.testing.assert_allclose(states.mean(axis=(0, 1)), posterior, atol=0.015)


@pytest.mark.parametrize("missing", [False, True])
def test_the_search_raises_the_bound_of_rows_below_the_exact_sum(missing):
    X, model, stats = known_activations(noise=0.02)
    if missing:
        X[::2, 3] = np.nan
    batch = model.batch(X, np.arange(len(X)), np.ones(len(X)))
    g = model.expectation(stats, batch, run)
    plain = model.local_step(batch, g, 1.0, run, with_stats=False).bound
    found = replace(model, search=True).local_step(batch, g, 1.0, run, with_stats=False).bound
    assert np.all(found >= plain - 1e-9) and found.mean() > plain.mean() + 0.5
    assert np.all(found <= infer_activations(model, batch, stats, run).log_density + 1e-9)


def test_draws_have_the_moments_of_the_model():
    X, weights = data_of(seed=8)
    model, state, _ = fitted(model_of(), X, weights)
    q = q_of(model, state)
    draws, z = model.sample(state.stats, 200_000, np.random.default_rng(0))
    pi = model.activation_prior
    np.testing.assert_allclose(z.mean(axis=0), pi, atol=0.006)
    np.testing.assert_allclose(draws.mean(axis=0), pi @ q["mean"], atol=0.02)
    spread = pi @ np.diag(q["covariance"][0]) + np.einsum(
        "k,kl,l->", pi, q["covariance"][0] - np.diag(np.diag(q["covariance"][0])), pi
    )
    variance = (pi * (1.0 - pi)) @ q["mean"] ** 2 + model.noise_variance + spread
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.03)


# ------------------------------------------------------------------------------------- rows
@pytest.mark.parametrize("missing", [False, True])
def test_a_row_has_the_same_solution_among_any_other_rows(missing):
    X, weights = data_of(53, missing, seed=9)
    model, state, _ = fitted(model_of(True), X, weights)
    every = np.arange(53)
    batch = model.batch(X, every, weights)
    g = model.expectation(state.stats, batch, run)
    whole = model.local_step(batch, g, 1.0, run)
    for rows in (every[5:6], every[[40, 2, 17]], every[::2]):
        part = replace(model.batch(X, rows, weights[rows]), has_missing=batch.has_missing)
        result = model.local_step(part, g, 1.0, run)
        np.testing.assert_allclose(result.q, whole.q[rows], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(result.bound, whole.bound[rows], rtol=1e-5, atol=1e-5)


def test_an_evaluated_bound_starts_rows_anew():
    X, weights = data_of(seed=12)
    model, state, bounds = fitted(model_of(), X, weights, n_passes=20)
    with Workers() as workers:
        anew = evaluate_bound(model, state.stats, Rows(X, weights, 9), workers)
    totals, divergence = compute_bound_parts(model, state)
    assert bounds[-1] == pytest.approx(totals.untempered - divergence, rel=1e-12)
    # New starts are about as good as continued ones, although a row may reach another optimum.
    assert anew > bounds[-1] - 2.0
