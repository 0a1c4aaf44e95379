"""Regressions on given columns and tables of cells agree with quadrature and textbook formulas."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy.special import betaln, gammaln
from scipy.stats import gamma, multivariate_normal, multivariate_t

from skvt import MemoizedDPMixture
from skvt.components import Bernoulli as Bits
from skvt.components import Gaussian
from skvt.expfam import Coefficients, MatrixNormalWishart, NormalWishart
from skvt.models.mixture import (
    GivenColumns,
    RegressionLearner,
    make_regression_component,
    separate_by_cell,
)
from skvt.models.mixture import _regression as regression
from skvt.models.mixture.components import Bernoulli, Categorical, Poisson

LEARNED = frozenset(
    ["mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior"]
)


def setup(E, n=7, seed=0, covariance_type="full"):
    """Return a component of E columns given a number and a category of three levels, and rows."""
    rng = np.random.default_rng(seed)
    given = np.column_stack([rng.normal(5.0, 2.0, n), np.arange(n) % 3])
    X = np.column_stack([rng.normal(size=(n, E)) + given[:, :1], given])
    of_given = GivenColumns.from_rows(given, np.ones(n), (0, 3), ("age", "kind: b", "kind: c"))
    component, _ = make_regression_component(X, np.ones(n), covariance_type, of_given)
    return component, X


def regressors_by_hand(X, n_explained):
    """Return the intercept, the number and the indicators of two levels, standardised, (n, 4)."""
    number, level = X[:, n_explained:].T
    u = np.column_stack([number, level == 1, level == 2])
    return np.column_stack([np.ones(len(X)), (u - u.mean(axis=0)) / u.std(axis=0)])


def posterior_by_hand(q, w, y):
    """Return the posterior matrix normal-Wishart of rows y (n, E) with regressors w (n, Q)."""
    M, V = q["coefficients"], q["coefficients_precision"]
    V_n = V + w.T @ w
    M_n = np.linalg.solve(V_n, V @ M.T + w.T @ y).T
    rest = y - w @ M_n.T
    scale = q["scale_inverse"] + rest.T @ rest + (M_n - M) @ V @ (M_n - M).T
    return M_n, V_n, q["degrees_of_freedom"] + len(y), scale


def test_the_family_of_one_regressor_is_the_normal_wishart():
    rng = np.random.default_rng(0)
    root, m = rng.normal(size=(3, 3)), rng.normal(size=3)
    scale = root @ root.T + np.eye(3)
    plain = NormalWishart.from_standard(m, 2.5, 6.0, scale)
    family = MatrixNormalWishart(1)
    eta = family.from_standard(m[:, None], [[2.5]], 6.0, scale)
    np.testing.assert_allclose(family.log_normalizer(eta), NormalWishart.log_normalizer(plain))
    np.testing.assert_allclose(family.entropy(eta), NormalWishart.entropy(plain))
    x = NormalWishart.sample(plain, rng)
    density = family.log_density(eta, Coefficients(x.mean[:, None], x.precision))
    np.testing.assert_allclose(density, NormalWishart.log_density(plain, x))
    variance = family.variance(eta)
    np.testing.assert_allclose(variance.coefficients[:, 0], NormalWishart.variance(plain).mean)


def test_expectations_are_gradients_and_draws_have_the_moments_of_the_family():
    rng = np.random.default_rng(0)
    family, M = MatrixNormalWishart(2), rng.normal(size=(3, 2))
    eta = family.from_standard(M, [[2.0, 0.3], [0.3, 1.0]], 9.0, 2.0 * np.eye(3))
    steps = 1e-5 * np.eye(eta.size)
    slopes = [
        (family.log_normalizer(eta + h) - family.log_normalizer(eta - h)) / 2e-5 for h in steps
    ]
    np.testing.assert_allclose(family.expectation(eta), slopes, rtol=1e-6, atol=1e-6)
    draws = family.sample(np.tile(eta, (20_000, 1)), rng)
    mean, variance = family.mean(eta), family.variance(eta)
    for found, expected, spread in zip(draws, mean, variance, strict=True):
        error = np.sqrt(spread / len(found))
        assert np.all(np.abs(found.mean(axis=0) - expected) < 5.0 * error)
    np.testing.assert_allclose(draws.coefficients.var(axis=0), variance.coefficients, rtol=0.05)
    entropy = -family.log_density(eta, draws).mean()
    np.testing.assert_allclose(entropy, family.entropy(eta), atol=0.1)
    near = family.mean(family.concentrate_at(Coefficients(M, np.eye(3))))
    np.testing.assert_allclose(near.coefficients, M)


def test_evidence_and_expected_densities_equal_quadrature_over_the_precision():
    """The rows of one column are jointly normal given its precision."""
    component, X = setup(1)
    q, w, y = component.family.to_standard(component.prior), regressors_by_hand(X, 1), X[:, 0]
    M, V = q["coefficients"], q["coefficients_precision"]
    y = y - component.center
    shape, rate = 0.5 * q["degrees_of_freedom"], 0.5 * q["scale_inverse"].item()
    covariance = np.eye(len(y)) + w @ np.linalg.inv(V) @ w.T

    def joint(precision):
        rows = multivariate_normal((w @ M.T)[:, 0], covariance / precision)
        return rows.pdf(y) * gamma(shape, scale=1.0 / rate).pdf(precision)

    evidence = np.log(integrate.quad(joint, 0.0, 60.0 * shape / rate, limit=200)[0])
    sums = component.features(X).sum(axis=0, keepdims=True)
    np.testing.assert_allclose(component.log_evidence(sums), evidence, rtol=1e-6)
    np.testing.assert_allclose(
        component.column_evidence(sums)[0, 0] - 3.5 * np.log(2 * np.pi), evidence
    )
    M, V, nu, scale = posterior_by_hand(q, w, y[:, None])
    of_precision = gamma(0.5 * nu, scale=2.0 / scale.item())
    lam = component.natural_parameters(sums)
    expected = []
    for row, value in zip(w, y, strict=True):
        variance = row @ np.linalg.inv(V) @ row

        def mean_log(precision, rest=value - row @ M[0], variance=variance):
            log_density = 0.5 * np.log(precision / (2.0 * np.pi)) - 0.5 * precision * rest**2
            return (log_density - 0.5 * variance) * of_precision.pdf(precision)

        expected.append(integrate.quad(mean_log, 0.0, 60.0 * nu / scale.item(), limit=200)[0])
    found = component.features(X) @ component.expected_table(lam).T
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)


def test_predictive_densities_are_students_t_and_chain_to_the_evidence():
    component, X = setup(3, n=9)
    prior = component.family.to_standard(component.prior)
    w, y = regressors_by_hand(X, 3), X[:, :3] - component.center
    total = 0.0
    for n in range(len(X)):
        lam = component.natural_parameters(component.features(X[:n]).sum(axis=0)[None])
        M, V, nu, scale = posterior_by_hand(prior, w[:n], y[:n])
        q = component.family.to_standard(lam)
        # Before the first row some numbers are 0, up to rounding.
        np.testing.assert_allclose(q["coefficients"][0], M, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(q["scale_inverse"][0], scale, rtol=1e-9, atol=1e-12)
        freedom = nu - 2.0
        shape = scale * (1.0 + w[n] @ np.linalg.solve(V, w[n])) / freedom
        row = X[[n]]
        density = multivariate_t(M @ w[n], shape, freedom).logpdf(y[n])
        np.testing.assert_allclose(component.log_predictive(row, lam)[0, 0], density)
        hidden = row.copy()
        hidden[0, 1] = np.nan  # The density is the marginal of the others.
        others = multivariate_t((M @ w[n])[[0, 2]], shape[np.ix_([0, 2], [0, 2])], freedom)
        expected = others.logpdf(y[n, [0, 2]])
        np.testing.assert_allclose(component.log_predictive(hidden, lam)[0, 0], expected)
        total += density
    sums = component.features(X).sum(axis=0)[None]
    np.testing.assert_allclose(component.log_evidence(sums), total)


def test_the_local_step_integrates_over_missing_values():
    component, X = setup(2)
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    table = component.expected_table(lam)
    rows = X[:2].copy()
    rows[:, 1] = np.nan

    def expected_density(value):
        row = X[[0]].copy()
        row[0, 1] = value
        return np.exp(component.features(row) @ table.T).item()

    expected = np.log(integrate.quad(expected_density, -40.0, 60.0, limit=200)[0])
    logits, entropy = component.features(rows) @ table.T, np.zeros((2, 1))
    component.completion(table)(rows, np.ones(1)).add_to(logits, entropy)
    np.testing.assert_allclose(logits[0, 0], expected, rtol=1e-7)
    rows[:, 0] = np.nan  # A row without explained values has no density.
    assert not component.features(rows).any() and not component.log_predictive(rows, lam).any()


def test_missing_values_are_filled_in_from_their_conditional_distribution():
    component, X = setup(2, n=40)
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    rows = np.repeat(X[[3]], 20_000, axis=0)
    rows[:, 1] = np.nan
    drawn = component.conditional_sample(rows, lam[0], np.random.default_rng(0))
    mean = component.conditional_mean(rows[:1], lam)[0, 0]
    np.testing.assert_array_equal(np.delete(drawn, 1, axis=1), np.delete(rows, 1, axis=1))
    deviation = drawn[:, 1].std()
    assert abs(drawn[:, 1].mean() - mean[1]) < 5.0 * deviation / np.sqrt(len(rows))

    def density(value):
        return np.exp(component.log_predictive(np.array([[X[3, 0], value, *X[3, 2:]]]), lam)).item()

    total, first = (
        integrate.quad(lambda v, p=p: v**p * density(v), -30.0, 50.0, limit=200)[0] for p in (0, 1)
    )
    np.testing.assert_allclose(mean[1], first / total, rtol=1e-6)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_learned_priors_maximise_the_evidence(covariance_type, monkeypatch):
    monkeypatch.setattr("skvt.models.mixture._learned_priors._MIN_GAIN", 0.0)
    component, X = setup(2, n=90, covariance_type=covariance_type)
    rng = np.random.default_rng(1)
    parts = np.arange(90) % 6
    X[:, :2] += 2.0 * rng.normal(size=(6, 2))[parts] + rng.normal(size=(6, 2))[parts] * X[:, [2]]
    sums = np.stack([component.features(X[parts == k]).sum(axis=0) for k in range(6)])
    learner = RegressionLearner.from_component(component, LEARNED)
    previous = component.log_evidence(sums).sum()
    for _ in range(60):
        component = learner.learn_prior(component, sums)
        evidence = component.log_evidence(sums).sum()
        assert evidence > previous - 1e-9
        previous = evidence
    values = learner.learned_values(component)
    assert set(values) == LEARNED | {"slope_prior", "slope_precision_prior"}
    assert all(len(values[name]) == 2 for name in ("mean_prior", "slope_prior", "covariance_prior"))
    for one, block, own in of_blocks(component, sums):
        x, best = one.parameters(block), block.log_evidence(own).sum()
        for j, step in enumerate(1e-3 * np.eye(x.size)):
            blocks = [one.with_parameters(block, x + sign * step) for sign in (-1, 1)]
            beside = [changed.log_evidence(own).sum() for changed in blocks]
            assert max(beside) < best + 1e-4, j


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_components_of_one_row_are_not_informative(covariance_type):
    # The rule on the number of rows must not depend on the number of columns of a block.
    component, X = setup(3, n=25, covariance_type=covariance_type)
    parts = np.minimum(np.arange(25) // 8, 3)
    sums = np.stack([component.features(X[parts == k]).sum(axis=0) for k in range(4)])
    for learner, block, own in of_blocks(component, sums):
        np.testing.assert_array_equal(learner.select_informative(block, own), own[:3])


def of_blocks(component, sums):
    """Return learner, component and statistics of each block that has a precision."""
    learner = RegressionLearner.from_component(component, LEARNED)
    if isinstance(learner, RegressionLearner):
        return [(learner, component, sums)]
    blocks = [block.component for block in component.blocks]
    return [*zip(learner.learners, blocks, component.split_by_block(sums), strict=True)]


def test_cells_of_given_categories_have_separate_tables():
    rng = np.random.default_rng(0)
    given = np.column_stack([rng.integers(2, size=30), rng.integers(2, size=30)]).astype(float)
    given[(given == 1.0).all(axis=1)] = 0.0  # One combination does not occur.
    of_given = GivenColumns.from_rows(given, np.ones(30), (2, 2), ("a: 1", "b: 1"))
    values = rng.integers(3, size=(30, 2)).astype(float)
    values[::5, 1] = np.nan
    X = np.column_stack([values, given])
    plain = Categorical(np.array([1.0, 2.0, 0.5, 1.0, 1.0, 1.0]), (3, 3), np.dtype(float))
    component = separate_by_cell(plain, of_given)
    expected = np.zeros(2)
    for cell in ([0.0, 0.0], [0.0, 1.0], [1.0, 0.0]):
        rows = values[(given == cell).all(axis=1)]
        for d, prior in enumerate(np.split(plain.prior, 2)):
            counts = np.array([(rows[:, d] == c).sum() for c in range(3)])
            expected[d] += gammaln(prior.sum()) - gammaln(prior.sum() + counts.sum())
            expected[d] += (gammaln(prior + counts) - gammaln(prior)).sum()
    sums = component.features(X).sum(axis=0)[None]
    np.testing.assert_allclose(component.column_evidence(sums)[0], expected)
    np.testing.assert_allclose(component.log_evidence(sums), expected.sum())
    lam = component.natural_parameters(sums)
    row = np.array([[1.0, np.nan, 1.0, 1.0]])  # A combination without rows has the prior's share.
    np.testing.assert_allclose(component.log_predictive(row, lam), np.log(2.0 / 3.5))
    chances = component.column_probabilities(lam, 0, X)
    assert chances.shape == (30, 1, 3)
    one = (given == 0.0).all(axis=1)
    counts = np.array([(values[one, 0] == c).sum() for c in range(3)])
    mean = (plain.prior[:3] + counts) / (3.5 + counts.sum())
    np.testing.assert_allclose(chances[one][0, 0], mean)
    filled = component.imputed(np.where(np.isnan(X), np.nan, X), lam, np.ones((30, 1)))
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    assert np.isin(filled, [0.0, 1.0, 2.0]).all()
    (marginals,) = component.marginals(lam)
    by_cell = component.value_component.family.mean(lam).reshape(-1, 6)
    np.testing.assert_allclose(marginals.estimate[0], of_given.shares @ by_cell)
    low, high = (marginals.quantile(p)[0] for p in (0.025, 0.975))
    assert np.all((0.0 < low) & (low < marginals.estimate[0]) & (marginals.estimate[0] < high))


@pytest.mark.parametrize("exposed", [False, True])
def test_bits_and_counts_of_each_cell_are_explained_by_its_rows(exposed):
    rng = np.random.default_rng(0)
    given = rng.integers(2, size=(20, 1)).astype(float)
    of_given = GivenColumns.from_rows(given, np.ones(20), (2,), ("a: 1",))
    kind = Poisson if exposed else Bernoulli
    plain = kind(np.array([[1.0, 2.0], [2.0, 1.0]]), np.dtype(float))
    values = rng.integers(2, size=(20, 2)).astype(float)
    if exposed:
        plain = replace(plain, exposure="column", typical=2.0)
        values = np.column_stack([values, rng.uniform(1.0, 3.0, 20)])
    component = separate_by_cell(plain, of_given, exposed)
    X = np.column_stack([values, given])
    sums = component.features(X).sum(axis=0)[None]
    lam = component.natural_parameters(sums)
    expected, density = 0.0, np.zeros(20)
    for level in (0.0, 1.0):
        rows = given[:, 0] == level
        part = plain.features(values[rows]).sum(axis=0)[None]
        expected += plain.log_evidence(part)
        density[rows] = plain.log_predictive(values[rows], plain.natural_parameters(part))[:, 0]
    np.testing.assert_allclose(component.log_evidence(sums), expected)
    np.testing.assert_allclose(component.log_predictive(X, lam)[:, 0], density)
    X[:, :2] = np.nan
    drawn = component.conditional_sample(X, lam[0], rng)
    np.testing.assert_array_equal(drawn[:, 2:], X[:, 2:])
    assert np.isfinite(drawn).all()


def test_too_many_cells_are_refused():
    given = np.repeat(np.arange(201.0), 2)[:, None]
    of_given = GivenColumns.from_rows(
        given, np.ones(402), (201,), tuple(f"a: {c}" for c in range(1, 201))
    )
    with pytest.raises(ValueError, match=r"201 combinations.*at most 200"):
        separate_by_cell(Bernoulli(np.ones((1, 2)), np.dtype(float)), of_given)


def test_the_default_prior_has_the_slopes_of_least_squares():
    component, X = setup(2, n=50)
    w = regressors_by_hand(X, 2)
    np.testing.assert_allclose(component.given.regressors(X[:, 2:]), w[:, 1:], atol=1e-12)
    expected = np.linalg.lstsq(w, X[:, :2])[0]
    found = regression.get_prior_values(component)
    np.testing.assert_allclose(found["mean_prior"], expected[0], rtol=1e-4)
    scaled = found["slope_prior"].T * component.given.scale[:, None]
    np.testing.assert_allclose(scaled, expected[1:], rtol=1e-4, atol=1e-5)
    rest = X[:, :2] - w @ expected
    np.testing.assert_allclose(found["covariance_prior"], rest.T @ rest / 50, rtol=1e-4)


def test_the_bound_of_a_mixture_of_one_component_is_the_evidence():
    """The bound of one component is the evidence of its rows and of the first stick."""
    component, X = setup(2, n=8)
    bits = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    table = np.column_stack([X, bits])
    blocks = [
        ("real", Gaussian(**dict.fromkeys(LEARNED)), [0, 1]),
        ("bit", Bits(), [4]),
    ]
    mixture = MemoizedDPMixture(components=blocks, given=[2, 3], moves=()).fit(table)
    prior = component.family.to_standard(component.prior)
    w, y = regressors_by_hand(X, 2), X[:, :2] - component.center
    evidence = betaln(9.0, 1.0) - betaln(1.0, 1.0)
    for n in range(8):
        M, V, nu, scale = posterior_by_hand(prior, w[:n], y[:n])
        shape = scale * (1.0 + w[n] @ np.linalg.solve(V, w[n])) / (nu - 1.0)
        evidence += multivariate_t(M @ w[n], shape, nu - 1.0).logpdf(y[n])
    for level in range(3):
        ones = bits[np.arange(8) % 3 == level]
        evidence += betaln(1.0 + ones.sum(), 1.0 + len(ones) - ones.sum())
    np.testing.assert_allclose(mixture.elbo_, evidence, rtol=1e-9)
