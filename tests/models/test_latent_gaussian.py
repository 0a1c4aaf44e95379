"""Ordinal columns as intervals of latent values, against sums over all that could be."""

import functools
import itertools

import numpy as np
import pytest
from scipy.special import logsumexp, roots_legendre
from scipy.stats import multivariate_t, norm, t, truncnorm

from skvt._compiled import run_serially
from skvt.components._cuts import _compute_likelihood, cut_by_classes
from skvt.contracts import RowBatch
from skvt.expfam import NormalWishart
from skvt.models.mixture import Mixture, StickBreaking, make_latent_gaussian_component
from skvt.models.mixture._ordinal import Cells, OrdinalCompletion
from skvt.models.mixture.components import FullGaussian

D = 3


def cut(X, ordinal, weights=None):
    return Cells.from_frequencies(X, np.ones(len(X)) if weights is None else weights, ordinal)


def drawn(ordinal, n=60, seed=0):
    """Rows whose last columns are cut, the parameters of two components that have seen some."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(D, D)) + 1.5 * np.eye(D)
    X = rng.normal(size=(n, D)) @ root.T / 2.0
    for j in ordinal:
        X[:, j] = np.digitize(X[:, j], [-1.0, 0.2, 0.9])
    component, _ = make_latent_gaussian_component(X, np.ones(n), "full", cut(X, np.array(ordinal)))
    resp = rng.dirichlet(np.ones(2), size=n)
    sums = resp.T @ component.filled_features(X)
    return X, component, component.natural_parameters(sums)


def local_step(component, table, x, inv_temp=1.0):
    model = Mixture(StickBreaking(1.0), component)
    batch = RowBatch(x[None], np.ones(1), np.zeros(1, np.intp))
    log_weights = np.log([0.3, 0.7])[: len(table)]
    return model.local_step(batch, (log_weights, table), inv_temp, run_serially)


legendre = functools.cache(roots_legendre)


def by_quadrature(component, x, table, inv_temp, most):
    """log of the sum over values not known, p(k), and the expected features times p(k)."""
    plain = FullGaussian(component.prior, component.center, component.dtype)
    nodes, heights = legendre(most)
    lower, upper = (bound[0] for bound in component.cells.find_intervals(x[None]))
    low, high = np.full((2, D), x)
    low[np.isnan(x)], high[np.isnan(x)] = -12.0, 12.0
    low[component.cells.columns] = np.maximum(lower, -12.0)
    high[component.cells.columns] = np.minimum(upper, 12.0)
    axes, log_heights = [], 0.0
    for j in range(D):
        half = 0.5 * (high[j] - low[j])
        axes.append(low[j] + half * (nodes + 1.0) if half else x[[j]])
        own = np.log(heights * half) if half else np.zeros(1)
        log_heights = np.add.outer(log_heights, own)
    rows = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, D)
    features = plain.features(rows)
    logits = inv_temp * (features @ table.T + np.log([0.3, 0.7])[: len(table)])
    logits += log_heights.reshape(-1, 1)
    total = logsumexp(logits)
    p = np.exp(logits - total)
    return total, p.sum(axis=0), p.T @ features


@pytest.mark.parametrize("inv_temp", [1.0, 0.6])
@pytest.mark.parametrize("hidden", [None, 0])
def test_one_ordinal_column_is_the_sum_over_all_its_interval(hidden, inv_temp):
    X, component, lam = drawn([2])
    table = component.expected_table(lam)
    for level in range(4):
        x = X[np.flatnonzero(X[:, 2] == level)[0]].copy()
        if hidden is not None:
            x[hidden] = np.nan
        result = local_step(component, table, x, inv_temp)
        bound, resp, sums = by_quadrature(component, x, table, inv_temp, 400)
        assert result.bound[0] == pytest.approx(bound, abs=1e-8)
        np.testing.assert_allclose(result.q[0], resp, rtol=1e-7)
        np.testing.assert_allclose(result.stats.arrays[1], sums, atol=1e-7)


def test_the_default_prior_has_variance_one_in_ordinal_columns():
    X, *_ = drawn([1, 2])
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    _, priors = make_latent_gaussian_component(
        X, weights, "full", cut(X, np.array([1, 2]), weights)
    )
    # that of the scores, and that within the intervals (and a millionth of it)
    np.testing.assert_allclose(np.diagonal(priors["covariance_prior"])[1:], 1.0, rtol=1e-5)


def test_with_several_the_bound_is_that_of_independent_factors():
    # Three factors given one component. From the statistics: the energy; from each mean and
    # variance, the factor's entropy by its definition.
    X, component, lam = drawn([0, 1, 2], seed=1)
    table = component.expected_table(lam)[:1]
    lower, upper = component.cells.find_intervals(X[:8])
    for n, inv_temp in itertools.product(range(8), (1.0, 0.7)):
        result = local_step(component, table, X[n], inv_temp)
        sums = result.stats.arrays[1][0]
        energy = sums @ table[0] + np.log(0.3)
        mean, entropy = sums[1:4], 0.0
        gaussian = OrdinalCompletion(component.center, table, component.cells).gaussian
        precision, linear = gaussian.precision[0], gaussian.linear[0]
        second = sums[[4, 7, 9]]
        for j in range(D):
            others = np.delete(np.arange(D), j)
            center = (linear[j] - precision[j, others] @ mean[others]) / precision[j, j]
            scale = np.sqrt(1.0 / (inv_temp * precision[j, j]))
            ends = (np.array([lower[n, j], upper[n, j]]) - center) / scale
            factor = truncnorm(*ends, center, scale)
            assert mean[j] == pytest.approx(factor.mean(), abs=1e-4)
            assert second[j] - mean[j] ** 2 == pytest.approx(factor.var(), abs=1e-4)
            square = (factor.var() + (factor.mean() - center) ** 2) / scale**2
            inside = np.log(scale * np.sqrt(2.0 * np.pi) * np.diff(norm.cdf(ends))[0])
            entropy += inside + 0.5 * square
        assert result.bound[0] == pytest.approx(inv_temp * energy + entropy, abs=1e-6)
        assert result.energy[0] == pytest.approx(energy, abs=1e-6)
        assert result.hidden_entropy[0] == pytest.approx(entropy, abs=1e-6)
        exact, _, _ = by_quadrature(component, X[n], table, inv_temp, 60)
        assert result.bound[0] < exact


def test_moments_of_intervals_far_out_and_narrow():
    shares = np.concatenate([[1e-12, 1e-9], np.full(6, 0.1), [1e-4, 1e-7]])
    X = np.arange(10.0)[:, None]
    cells = Cells.from_frequencies(X, shares, np.array([0]))
    (edges,) = cells.edges
    np.testing.assert_allclose(norm.cdf(edges[1:-1]), np.cumsum(shares)[:-1] / shares.sum())
    exact = [truncnorm(a, b) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(cells.with_scores(X)[:, 0], [own.mean() for own in exact], rtol=1e-7)
    within = shares @ [own.var() for own in exact] / shares.sum()
    total, number = cells.sum_variances_within(X, shares)
    np.testing.assert_allclose(total / number, within, rtol=1e-6)


def test_values_between_levels_count_as_the_higher_one():
    cells = Cells.from_frequencies(
        np.array([[1.0], [2.0], [5.0], [np.nan]]), np.ones(4), np.array([0])
    )
    codes = cells.encode(np.array([[0.0], [1.0], [1.5], [5.0], [9.0], [np.nan]]))
    np.testing.assert_array_equal(codes[:, 0], [0, 0, 1, 2, 2, -1])


def test_how_levels_are_called_does_not_matter_where_they_are_missing():
    X, _, _ = drawn([1, 2])
    X[::3, 2] = X[1::4, 0] = np.nan
    renamed = X.copy()
    renamed[:, 1:] = 100.0 + 50.0 * X[:, 1:]
    one, two = (
        make_latent_gaussian_component(rows, np.ones(len(rows)), "full", cells)[0].filled_features(
            rows
        )
        for rows, cells in ((rows, cut(rows, np.array([1, 2]))) for rows in (X, renamed))
    )
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
    assert np.abs(one[::3, 3]).max() < 2.0  # (of a latent value of variance 1)


def student(component, lam):
    q = NormalWishart.to_standard(lam)
    kappa, freedom = q["mean_precision"], q["degrees_of_freedom"] - D + 1.0
    return q["mean"] + component.center, q["scale_inverse"] * (1 + kappa) / kappa / freedom, freedom


def test_predictive_of_one_ordinal_column_is_an_interval_of_a_student_t():
    X, component, lam = drawn([2])
    X = X[:12].copy()
    X[::3, 0], X[1::4, 1] = np.nan, np.nan
    found = component.log_predictive(X, lam)
    lower, upper = (bound[:, 0] for bound in component.cells.find_intervals(X))
    for k, n in itertools.product(range(2), range(12)):
        mean, shape, freedom = student(component, lam[k])
        o = np.flatnonzero(~np.isnan(X[n, :2]))
        density = 0.0
        if o.size:
            density = multivariate_t(mean[o], shape[np.ix_(o, o)], freedom).logpdf(X[n, o])
        weights = np.linalg.solve(shape[np.ix_(o, o)], shape[o, 2])
        distance = (X[n, o] - mean[o]) @ np.linalg.solve(shape[np.ix_(o, o)], X[n, o] - mean[o])
        variance = (shape[2, 2] - weights @ shape[o, 2]) * (freedom + distance)
        variance /= freedom + o.size
        own = t(freedom + o.size, mean[2] + weights @ (X[n, o] - mean[o]), np.sqrt(variance))
        expected = density + np.log(own.cdf(upper[n]) - own.cdf(lower[n]))
        assert found[n, k] == pytest.approx(expected, abs=1e-9)


def test_predictive_of_several_and_what_is_imputed_by_many_draws():
    _, component, lam = drawn([1, 2], seed=2)
    mean, shape, freedom = student(component, lam[0])
    draws = multivariate_t(mean, shape, freedom).rvs(400_000, random_state=0)
    levels = component.cells.with_levels(draws)
    one = np.ones((1, 1))
    for own in itertools.product(range(4), repeat=2):
        inside = (levels[:, 1:] == own).all(axis=1)
        x = np.array([[np.nan, *own]])
        found = np.exp(component.log_predictive(x, lam[:1])[0, 0])
        error = np.sqrt(inside.mean() / 400_000)
        assert found == pytest.approx(inside.mean(), abs=5.0 * error + 0.02 * found)
        if inside.sum() > 1000:
            filled = component.imputed(x, lam[:1], one)[0, 0]
            exact, error = draws[inside, 0].mean(), draws[inside, 0].std() / inside.sum() ** 0.5
            assert filled == pytest.approx(exact, abs=5.0 * error + 0.02)
        x = np.array([[np.nan, own[0], np.nan]])
        shares = np.bincount(levels[levels[:, 1] == own[0], 2].astype(int)) / inside.size
        chosen = int(component.imputed(x, lam[:1], one)[0, 2])
        assert shares[chosen] > 0.97 * shares.max()


@pytest.mark.slow
def test_draws_of_missing_values_have_their_joint_law():
    _, component, lam = drawn([1, 2], seed=2)
    x = np.array([np.nan, 2.0, np.nan])
    filled = component.conditional_sample(np.tile(x, (10_000, 1)), lam[0], np.random.default_rng(0))
    assert (filled[:, 1] == 2.0).all()
    rows = component.sample(lam[0], 60_000, np.random.default_rng(1))
    rows = rows[rows[:, 1] == 2.0]
    for level in range(4):
        own, other = filled[:, 2] == level, rows[:, 2] == level
        share = other.mean()
        error = np.sqrt(share * (1.0 - share) * (1.0 / own.size + 1.0 / other.size))
        assert own.mean() == pytest.approx(share, abs=5.0 * error)
        if own.sum() > 500:
            error = rows[other, 0].std() * np.sqrt(1.0 / own.sum() + 1.0 / other.sum())
            assert filled[own, 0].mean() == pytest.approx(rows[other, 0].mean(), abs=5.0 * error)


# ------------------------------------------------------------------------------ cuts
def test_the_likelihood_of_levels_by_class_and_its_gradient():
    rng = np.random.default_rng(0)
    shares = rng.gamma(1.0, 20.0, (3, 5))
    p = np.concatenate([[-1.0], np.log([0.4, 0.6, 0.3]), rng.normal(size=6)])
    cuts, m, s = np.array([-1.0, -0.6, 0.0, 0.3]), p[4:7], np.exp(p[7:])
    below = norm.cdf(np.array([-np.inf, *cuts, np.inf]), m[:, None], s[:, None])
    priors = norm.logpdf([m, p[7:]], scale=[[1.0], [0.7]]) - norm.logpdf(0.0, scale=[[1.0], [0.7]])
    value, slope = _compute_likelihood(p, shares)
    assert value == pytest.approx((shares * np.log(np.diff(below))).sum() + priors.sum())
    steps = 1e-5 * np.eye(p.size)
    by_steps = [
        _compute_likelihood(p + h, shares)[0] - _compute_likelihood(p - h, shares)[0] for h in steps
    ]
    np.testing.assert_allclose(slope, np.array(by_steps) / 2e-5, rtol=1e-5, atol=1e-5)


def test_columns_are_cut_by_classes_where_these_are_far_apart():
    rng = np.random.default_rng(0)
    n, kind = 3_000, np.arange(3_000) % 3
    z = rng.normal(size=(n, 4))
    z[:, :3] += 3.0 * np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])[kind]
    cuts = np.linspace(0.0, 6.0, 6)[:, None] * [1.0, 1.0, 1.0, 0.2] - [0.0, 0.0, 0.0, 0.6]
    X = (z > cuts[:, None]).sum(axis=0).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    weights = np.where(kind == 0, 2.0, 1.0)  # as if these rows were there twice
    before = cut(X, np.arange(4), weights)
    after = cut_by_classes(before, X, weights)
    center = np.average(z, axis=0, weights=weights)
    true = (cuts - center) / np.sqrt(np.average((z - center) ** 2, axis=0, weights=weights))
    off = [np.abs(np.array(edges[:3])[:, 1:-1] - true.T[:3]).mean()
           for edges in (before.edges, after.edges)]  # fmt: skip
    assert off[1] < 0.4 * off[0]
    np.testing.assert_array_equal(after.edges[3], before.edges[3])
