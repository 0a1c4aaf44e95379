"""Mixtures given drawn globals: draws, corrections and steps by their formulas."""

import numpy as np
import pytest
from _engines import passes, policy_at
from models._textbook import KINDS
from scipy.special import logsumexp, softmax

from skvt._compiled import run_serially as run
from skvt.contracts import LocalTotals, PassInputs
from skvt.expfam import RunningStats
from skvt.inference import Rows, State, StochasticInference, StructuredInference, Workers
from skvt.inference._structured import GLOBAL_STEPS
from skvt.models._dirichlet_correction import Gammas, correct_statistics
from skvt.models.mixture._given_globals import MixtureGivenGlobals
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import SeparateSticks, SymmetricDirichlet

WEIGHTS = {"sticks": SeparateSticks(1.3), "dirichlet": SymmetricDirichlet(1.3, 3)}
each_weights = pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
each_likelihood = pytest.mark.parametrize("name", ["Bernoulli", "multinomial"])


def setup(weights, name="Bernoulli", *, D=4, K=3, n=40, cls=MixtureGivenGlobals, seed=0):
    """A model, rows, and a state that has begun."""
    component = KINDS[name].make(D, np.dtype(np.float64))
    model = cls(weights, component, n_initial=K, init_params="random", n_fewest=K)
    X = KINDS[name].rows(n, D, np.random.default_rng(seed))
    data = Rows(X, np.ones(n), n)
    state = State(model.initial(data, np.random.default_rng(seed + 1)), seed=5)
    return model, data, state


# ------------------------------------------------------------------------------------ draws
def assert_mean(draws, expected):
    """The draws (n, ...) have the expected mean, up to five standard errors."""
    values = np.array(draws)
    assert values.shape[1:] == expected.shape
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - expected) < 5.0 * error)


@pytest.mark.quick_cases("Bernoulli-dirichlet")
@each_weights
@each_likelihood
def test_draws_have_the_expectations_of_mean_field(weights, name):
    model, _, state = setup(weights, name)
    expected, rng = model.expectation(state.stats, None, run), np.random.default_rng(2)
    draws = [model.drawn_globals(state.stats, None, "ssvi-a", rng, run) for _ in range(1500)]
    for i in range(2):
        assert_mean([draw[i] for draw in draws], expected[i])
    log_weights, table = draws[0].log_weights, draws[0].table
    assert np.exp(log_weights).sum() <= 1.0 + 1e-12
    totals = np.exp(table).reshape(3, -1, 4).sum(axis=1 if name == "Bernoulli" else (1, 2))
    np.testing.assert_allclose(totals, 1.0)


@each_weights
def test_rows_are_explained_by_posterior_means_after_the_fit(weights):
    model, data, state = setup(weights)
    stats = state.stats
    log_weights, table = model.row_globals(stats, None, run)
    lam = model.natural_parameters(stats)
    np.testing.assert_allclose(np.exp(log_weights), weights.mean(lam[0]))
    p = lam[1][..., 0] / lam[1].sum(axis=-1)
    np.testing.assert_allclose(np.exp(table), np.concatenate([p, 1.0 - p], axis=1))
    # The density of a row is the sum over the components and one that has no rows.
    density = logsumexp(log_weights + model.component.features(data.X) @ table.T, axis=1)
    rest = max(0.0, 1.0 - np.exp(log_weights).sum())
    prior = model.component.log_predictive(data.X, model.component.prior[None])[:, 0]
    with np.errstate(divide="ignore"):
        total = np.logaddexp(density, np.log(rest) + prior)
    np.testing.assert_allclose(model.log_predictive(data.X, stats, run), total, rtol=1e-9)
    drawn = model.drawn_globals(stats, None, "map", None, run)
    np.testing.assert_array_equal(drawn[1], table)


@each_weights
def test_the_generator_determines_a_draw(weights):
    model, _, state = setup(weights)
    one, other, third = (
        model.drawn_globals(state.stats, None, kind, np.random.default_rng(seed), run)
        for kind, seed in (("ssvi-a", 0), ("ssvi", 0), ("ssvi-a", 1))
    )
    np.testing.assert_array_equal(one.table, other.table)
    np.testing.assert_array_equal(one.log_weights, other.log_weights)
    assert not np.array_equal(one.table, third.table)


# ------------------------------------------------------------------------------- corrections
@pytest.mark.quick_cases("multinomial-dirichlet")
@each_weights
@each_likelihood
def test_the_correction_is_the_identity_on_average(weights, name):
    model, data, state = setup(weights, name, D=3)
    g, rng = model.expectation(state.stats, None, run), np.random.default_rng(3)
    batch = model.batch(data.X, np.arange(data.n_rows), data.weights)
    hat = model.local_step(batch, g, 1.0, run).stats
    corrected = []
    for _ in range(1000):
        draw = model.drawn_globals(state.stats, None, "ssvi", rng, run)
        corrected.append(model.corrected(state.stats, draw, hat, run).arrays)
    for values, expected in zip(zip(*corrected, strict=True), hat.arrays, strict=True):
        assert_mean(values, expected)


# ------------------------------------------------------------------------------------- steps
@each_weights
@each_likelihood
@pytest.mark.parametrize("kind", GLOBAL_STEPS)
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_a_step_follows_its_equation(weights, name, kind, temperature):
    model, data, state = setup(weights, name)
    before, rho = state.stats.as_stats().arrays, 0.3
    lam = model.natural_parameters(state.stats)
    rows, row_weights = np.arange(16), np.random.default_rng(6).uniform(0.5, 2.0, 16)
    batch = model.batch(data.X, rows, row_weights)
    g = model.drawn_globals(state.stats, batch, kind, np.random.default_rng([5, 0]), run)
    with Workers() as workers:
        inputs = PassInputs(data, policy_at(temperature), workers)
        engine = StructuredInference(lambda t: rho, kind)
        engine.step(model, [batch], 100.0, state, inputs, LocalTotals())
    # The responsibilities are exact given the draw.
    F = model.component.features(data.X[:16])
    r = softmax((g[0] + F @ g[1].T) / temperature, axis=1) * row_weights[:, None]
    counts, sums = r.sum(axis=0), r.T @ F
    after = [counts[k + 1 :].sum() for k in range(3)]
    first = np.stack([counts, after], axis=1) if weights is WEIGHTS["sticks"] else counts
    hats = [first, sums]
    if kind == "ssvi":
        spread = model.component.natural_sums
        pairs = zip(lam, g.log_gammas, (first.reshape(lam[0].shape), spread(sums)), strict=True)
        for i, parts in enumerate(pairs):
            columns, logs, some = (part.reshape(-1, part.shape[-1]).T for part in parts)
            corrected = correct_statistics(columns, Gammas.from_logs(logs), some)
            corrected = corrected.T.reshape(parts[2].shape)
            hats[i] = (
                model.component.feature_coefficients(corrected)
                if i
                else corrected.reshape(first.shape)
            )
    found = state.stats.as_stats().arrays
    expected = [
        (1.0 - rho) * old + rho * 100.0 / row_weights.sum() * hat / temperature
        for old, hat in zip(before, hats, strict=True)
    ]  # [HB15 eq. 11]
    expected = [np.maximum(e, 0.0) for e in expected]
    # The largest component comes first where the sticks prefer this order.
    of_counts = expected[0].reshape(3, -1)[:, 0]
    order = weights.order(of_counts)
    if weights.log_evidence(of_counts[order]) > weights.log_evidence(of_counts):
        expected = weights.statistics(of_counts[order]), expected[1][order]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 1.4])
def test_mean_field_steps_equal_those_of_stochastic_inference(temperature):
    ends, weights = [], WEIGHTS["dirichlet"]
    for cls, engine in (
        (Mixture, StochasticInference(lambda t: (2.0 + t) ** -0.6)),
        (MixtureGivenGlobals, StructuredInference(lambda t: (2.0 + t) ** -0.6, "mean_field")),
    ):
        model, data, state = setup(weights, cls=cls, n=60)
        data, policy = Rows(data.X, data.weights, 16), policy_at(temperature)
        for seed in range(3):
            rng = np.random.default_rng(seed)
            ((totals, divergence, *_),) = passes(engine, model, state, data, policy=policy, rng=rng)
        sums = state.stats.as_stats().arrays[1]
        # Structured inference may put the components in another order.
        ends.append((sums[np.argsort(sums[:, 0])], totals.tempered, divergence))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-10)
    np.testing.assert_allclose(ends[1][1:], ends[0][1:], rtol=1e-10)


def test_projection_puts_components_in_the_best_order_for_the_sticks():
    model, _, state = setup(WEIGHTS["sticks"])
    state.stats.arrays[0][:] = model.weights.statistics(np.array([3.0, 30.0, 7.0]))
    sums = state.stats.arrays[1].copy()
    before = model.weights.log_evidence(model.component_masses(state.stats.as_stats()))
    model.project(state.stats)
    np.testing.assert_allclose(model.component_masses(state.stats.as_stats()), [30.0, 7.0, 3.0])
    np.testing.assert_allclose(state.stats.arrays[0][:, 1], [10.0, 3.0, 0.0])
    np.testing.assert_array_equal(state.stats.arrays[1], sums[[1, 2, 0]])
    assert model.weights.log_evidence(model.component_masses(state.stats.as_stats())) > before


@each_weights
def test_projection_keeps_natural_parameters_above_the_prior(weights):
    model, _, state = setup(weights)
    for array in state.stats.arrays:
        array[1] = -1e3
    state.stats.scale = 0.5
    model.project(state.stats)
    prior = RunningStats(np.zeros_like(array) for array in state.stats.arrays)
    for lam, lowest in zip(
        model.natural_parameters(state.stats), model.natural_parameters(prior), strict=True
    ):
        assert np.all(lam >= lowest)
