"""Priors of Gaussian components have the user's values, or the moments of the data."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skvt import MemoizedDPGMM
from skvt.expfam import triangle
from skvt.models.mixture import _gaussian_prior, components
from skvt.models.mixture._gaussian_prior import (
    GAUSSIANS_BY_TYPE,
    GaussianPrior,
    make_gaussian_component,
    rounding_variance,
    weighted_moments,
)

KINDS = [("full", False), ("diag", False), ("spherical", False), ("full", True)]
each_kind = pytest.mark.parametrize(("shape", "zero"), KINDS)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)) @ rng.standard_normal((3, 3)) + [5.0, -2.0, 0.5]


def build(X, shape, zero, weights=None, **given):
    weights = np.ones(len(X)) if weights is None else weights
    return make_gaussian_component(X, weights, shape, zero, GaussianPrior(**given))


@each_kind
def test_moments_equal_those_of_weighted_rows(shape, zero, monkeypatch):
    X, weights = rows(), np.random.default_rng(1).uniform(0.2, 3.0, 200)
    mean = np.zeros(3) if zero else np.average(X, axis=0, weights=weights)
    covariance = np.einsum("n,ni,nj->ij", weights, X - mean, X - mean) / weights.sum()
    expected = {
        "full": covariance,
        "diag": np.diagonal(covariance),
        "spherical": np.trace(covariance) / 3.0,
    }[shape]
    for at_once in (1000, 7):
        monkeypatch.setattr(_gaussian_prior, "_ROWS_AT_ONCE", at_once)
        center, moment = weighted_moments(X, weights, shape, zero)
        np.testing.assert_allclose(center, mean, rtol=1e-12)
        np.testing.assert_allclose(moment, expected, rtol=1e-12)
    narrow = weighted_moments(X.astype(np.float32), weights, shape, zero)
    np.testing.assert_allclose(narrow[1], moment, rtol=1e-5)
    assert narrow[0].dtype == np.float64
    if shape == "full":
        return
    # Missing values do not count.
    X[np.random.default_rng(2).random(X.shape) < 0.4] = np.nan
    X[0] = np.nan
    seen = weights[:, None] * ~np.isnan(X)
    mean = (1.0 - zero) * np.nansum(seen * X, axis=0) / seen.sum(axis=0)
    squares = np.nansum(seen * (X - mean) ** 2, axis=0) / seen.sum(axis=0)
    center, moment = weighted_moments(X, weights, shape, zero)
    np.testing.assert_allclose(center, mean)
    np.testing.assert_allclose(moment, squares if shape == "diag" else squares.mean())


def log_likelihood(X, weights, mean, covariance):
    """Return the log likelihood of a Gaussian for rows with NaN."""
    total = 0.0
    for x, w in zip(X, weights, strict=True):
        seen = ~np.isnan(x)
        if seen.any():
            part = covariance[np.ix_(seen, seen)]
            total += w * multivariate_normal(mean[seen], part).logpdf(x[seen])
    return total


@pytest.mark.parametrize("zero", [False, True])
def test_moments_of_rows_with_missing_values_maximise_their_likelihood(zero, monkeypatch):
    X, weights = rows(120), np.random.default_rng(1).uniform(0.2, 3.0, 120)
    X[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    X[0] = np.nan
    monkeypatch.setattr(_gaussian_prior, "_EM_TOL", 1e-9)
    monkeypatch.setattr(_gaussian_prior, "_EM_RIDGE_SHARE", 1e-14)
    monkeypatch.setattr(_gaussian_prior, "_MAX_EM_STEPS", 2000)
    center, covariance = weighted_moments(X, weights, "full", zero)
    best, steps, slopes = log_likelihood(X, weights, center, covariance), 1e-5 * np.eye(3), []
    changes = [(0.0, np.maximum(np.outer(a, b), np.outer(b, a)) / 1e-5)
               for a, b in combinations_with_replacement(steps, 2)]  # fmt: skip
    changes += [] if zero else [(step, 0.0) for step in steps]
    for of_mean, of_covariance in changes:
        up, down = (
            log_likelihood(X, weights, center + s * of_mean, covariance + s * of_covariance)
            for s in (1.0, -1.0)
        )
        assert max(up, down) < best
        slopes.append((up - down) / 2e-5)
    np.testing.assert_allclose(slopes, 0.0, atol=1e-3)
    # The units and the origin of the columns do not matter.
    scale = np.array([1e3, 1.0, 1e-3])
    moved, same = weighted_moments(X * scale + 7.0 * (not zero), weights, "full", zero)
    np.testing.assert_allclose(moved, center * scale + 7.0 * (not zero), rtol=1e-6)
    np.testing.assert_allclose(same, covariance * scale * scale[:, None], rtol=1e-6)


def test_moments_of_many_rows_with_missing_values_are_those_of_a_sample(monkeypatch):
    X, weights = rows(4000), np.random.default_rng(1).uniform(0.2, 3.0, 4000)
    X[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    monkeypatch.setattr(_gaussian_prior, "_EM_TOL", 1e-9)
    every = weighted_moments(X, weights, "full", False)
    monkeypatch.setattr(_gaussian_prior, "_MAX_EM_ROWS", 1000)
    some = weighted_moments(X, weights, "full", False)
    few = np.linspace(0, 3999, 1000).astype(int)
    expected = weighted_moments(X[few], weights[few], "full", False)
    np.testing.assert_allclose(some[1], expected[1], rtol=1e-6)
    assert not np.allclose(some[1], every[1], rtol=1e-3)


@pytest.mark.parametrize("what", ["constant", "twice"])
def test_dependent_columns_with_missing_values_vary_by_a_millionth(what):
    X = rows()
    X = np.column_stack([X, np.full(200, 4.0) if what == "constant" else X[:, 0] - X[:, 1]])
    X[np.random.default_rng(3).random(X.shape) < 0.2] = np.nan
    component, priors = build(X, "full", False)
    added = triangle.unpack(component.added)
    unit = np.sqrt(np.diagonal(priors["covariance_prior"]))
    assert np.linalg.eigvalsh(priors["covariance_prior"])[0] > 0.0
    if what == "twice":
        assert 1e-7 < np.linalg.eigvalsh(added / unit / unit[:, None])[-1] <= 1.001e-6
    else:
        assert added[3, 3] > 0.0 and np.all(added[:3, :3] == 0.0)


@pytest.mark.parametrize("given", [False, True])
@each_kind
def test_priors_are_the_given_values_or_the_moments_of_the_data(shape, zero, given):
    X = rows()
    _, covariance = weighted_moments(X, np.ones(200), shape, zero)
    mean, kappa, nu, values = X.mean(axis=0), 1.0, 3.0, {}
    if given:
        mean, kappa, nu, covariance = np.array([1.0, 2.0, 3.0]), 0.3, 4.5, 1.7 * covariance
        values = {"mean": mean, "mean_precision": kappa, "degrees_of_freedom": nu}
        values["covariance"] = covariance
    component, priors = build(X, shape, zero, **values)
    kind = components.ZeroMeanFullGaussian if zero else GAUSSIANS_BY_TYPE[shape]
    assert type(component) is kind
    assert component.n_features == 3 and component.dtype == X.dtype
    q = component.family.to_standard(component.prior)
    if zero:
        assert priors["mean_prior"] is priors["mean_precision_prior"] is None
    else:
        np.testing.assert_allclose(component.center, X.mean(axis=0))
        np.testing.assert_allclose(priors["mean_prior"], mean)
        np.testing.assert_allclose(np.ravel(q["mean"]) + component.center, mean)
        np.testing.assert_allclose(q["mean_precision"], kappa)
        assert priors["mean_precision_prior"] == kappa
    # The default covariance has a ridge.
    rtol = 1e-12 if given else 1e-5
    np.testing.assert_allclose(priors["covariance_prior"], covariance, rtol=rtol)
    assert priors["degrees_of_freedom_prior"] == nu
    if shape == "full":
        assert q["degrees_of_freedom"] == nu
        np.testing.assert_allclose(q["scale_inverse"], covariance, rtol=rtol)
    else:
        np.testing.assert_allclose(q["shape"], 0.5 * nu)
        np.testing.assert_allclose(q["rate"], 0.5 * np.asarray(covariance), rtol=rtol)


@pytest.mark.parametrize(("shape", "zero"), [("full", False), ("full", True), ("diag", False)])
def test_default_priors_change_with_the_unit_of_each_column(shape, zero):
    X, unit = rows(), np.array([2.0**-20, 1.0, 2.0**20])
    plain, other = (build(x, shape, zero)[1]["covariance_prior"] for x in (X, X * unit))
    factor = np.outer(unit, unit) if shape == "full" else unit**2
    np.testing.assert_allclose(other, plain * factor, rtol=1e-12)


DEGENERATE = {
    "one row": lambda X: X[:1], "all rows the same": lambda X: np.repeat(X[:1], 9, axis=0),
    "zeros": lambda X: 0.0 * X,
    "a constant column": lambda X: X * [1.0, 0.0, 1.0] + [0.0, 7.0, 0.0],
    "a column twice": lambda X: X[:, [0, 1, 1]], "fewer rows than columns": lambda X: X[:2],
    "scales far apart": lambda X: X * [1e-6, 1.0, 1e6], "tiny": lambda X: 1e-100 * X,
    "huge": lambda X: 1e100 * X,
}  # fmt: skip


def covariance_of(component, X, weights):
    """Return the second moments about the center by the statistics of a component."""
    sums = weights @ component.features(X)
    moments = sums[-len(X.T) * (len(X.T) + 1) // 2 :] / weights.sum()
    return triangle.unpack(moments)


@pytest.mark.parametrize("zero", [False, True])
def test_rows_vary_by_a_millionth_in_every_direction(zero):
    X = np.random.default_rng(0).standard_normal((300, 3)) * [1.0, 1e3, 1e-2]
    X = np.c_[X, X @ [2.0, 1e-3, 0.0], np.full(300, 0.0 if zero else 7.0)]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 300)
    component, _ = build(X, "full", zero, weights)
    own = covariance_of(component, X, weights)
    unit = np.sqrt(np.diagonal(own))
    unit[-1] = np.sqrt(np.mean(unit[:-1] ** 2) * 0.8)  # A constant column has the mean of all.
    scaled = own / np.outer(unit, unit)
    np.testing.assert_allclose(np.linalg.eigvalsh(scaled)[:2], 1e-6, rtol=1e-4)
    # The other directions vary as before.
    plain = covariance_of(replace(component, added=None), X, weights)
    np.testing.assert_allclose(scaled, plain / np.outer(unit, unit), atol=1.1e-6)
    ordinary, _ = build(X[:, :3], "full", zero, weights)
    assert ordinary.added is None
    # The predictive density is that of the exact rows.
    lam = component.natural_parameters(weights[None] @ component.features(X))
    exact = replace(component, added=None)
    np.testing.assert_array_equal(component.log_predictive(X, lam), exact.log_predictive(X, lam))


def test_constant_columns_vary_by_a_millionth():
    X = rows() * [1.0, 0.0, 1.0]
    X[3, 1] = X[5, 0] = np.nan
    component, _ = build(X, "diag", False)
    added = component.features(X) - replace(component, added=None).features(X)
    expected = np.zeros(added.shape)
    expected[:, -2] = 1e-6 * np.nanvar(X, axis=0).mean()
    expected[3, -2] = 0.0
    np.testing.assert_allclose(added, expected, rtol=1e-6, atol=1e-15)
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    np.testing.assert_array_equal(
        component.log_predictive(X, lam), replace(component, added=None).log_predictive(X, lam)
    )
    assert build(rows(), "diag", False)[0].added is None


@each_kind
@pytest.mark.parametrize("what", DEGENERATE)
def test_degenerate_data_have_a_proper_prior(shape, zero, what):
    X = DEGENERATE[what](rows())
    component, _ = build(X, shape, zero)
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    assert np.all(np.isfinite(component.expected_table(lam)))
    assert np.all(np.isfinite(component.log_predictive(X, lam)))
    assert np.all(np.isfinite(component.log_predictive(X, component.prior[None])))


def test_columns_of_different_scales_have_legal_covariances():
    scales = np.array([1e-10, 1.0, 1e11])
    given = np.outer(scales, scales) * (0.5 + 0.5 * np.eye(3))
    np.testing.assert_array_equal(
        _gaussian_prior.choose_prior_scale(given, "full", 3, given), given
    )


@pytest.mark.parametrize("covariance_type", ["tied", "diag", "spherical", "low_rank", "auto"])
def test_means_of_zero_need_full_covariances(covariance_type):
    with pytest.raises(ValueError, match=f"needs covariance_type='full'. Got .*{covariance_type}"):
        MemoizedDPGMM(covariance_type=covariance_type, mean_type="zero").fit(rows())


def test_rounded_values_vary_within_their_intervals(monkeypatch):
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(400, 1))
    rounded = np.round(exact * 4.0) / 4.0
    some = np.where(rng.random((400, 1)) < 0.6, 0.0, exact)  # Equal values are not rounded ones.
    X = np.hstack([exact, rounded, some, np.where(rng.random((400, 1)) < 0.3, np.nan, rounded)])
    found = rounding_variance(X, np.ones(len(X)))
    np.testing.assert_allclose(found[[0, 1, 3]], [0.0, 0.0625 / 12.0, 0.0625 / 12.0])
    assert found[2] < 3e-4
    # Rows of weight two are rows that occur twice.
    weights = np.where(np.arange(len(X)) < 300, 2.0, 1.0)
    twice = rounding_variance(np.vstack([X, X[:300]]), np.ones(700))
    np.testing.assert_array_equal(rounding_variance(X, weights), twice)
    # A sample of many rows decides, and rows outside of it may have equal values.
    monkeypatch.setattr(_gaussian_prior, "_N_VALUES_FOR_ROUNDING", 0)
    monkeypatch.setattr(_gaussian_prior, "_MIN_ROWS_FOR_ROUNDING", 400)
    many = rng.normal(size=(8_000, 1))
    found = rounding_variance(np.hstack([many, np.round(many * 4.0) / 4.0]), np.ones(8_000))
    np.testing.assert_allclose(found, [0.0, 0.0625 / 12.0])


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["full", "diag", "low_rank"])
def test_values_of_rounded_columns_are_no_clusters(covariance_type):
    rng = np.random.default_rng(5)
    centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, -9.0]])
    X = np.round(centers[np.arange(900) % 3] + 1.4 * rng.normal(size=(900, 2)))
    mixture = MemoizedDPGMM(covariance_type=covariance_type, random_state=0).fit(X)
    assert mixture.n_components_ == 3


def test_a_single_component_takes_rounded_values_as_exact():
    X = np.round(rows(2_000))
    (own,) = MemoizedDPGMM(1, max_components=1).fit(X).covariances_
    (spread,) = MemoizedDPGMM(1, moves=()).fit(X).covariances_
    np.testing.assert_allclose(own, np.cov(X.T), atol=0.02)
    np.testing.assert_allclose(spread - own, np.eye(3) / 12.0, atol=0.01)
