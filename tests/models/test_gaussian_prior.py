"""Priors of Gaussian components: the user's numbers as given, else moments of the data."""

from dataclasses import replace

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


def textbook(component):
    return component.family.to_standard(component.prior)


@each_kind
def test_moments_are_those_of_weighted_rows(shape, zero, monkeypatch):
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
    # however the rows are held, to the last bit; and in single precision
    held = weighted_moments(np.asfortranarray(X), weights, shape, zero)
    np.testing.assert_array_equal(held[1], moment)
    narrow = weighted_moments(X.astype(np.float32), weights, shape, zero)
    np.testing.assert_allclose(narrow[1], moment, rtol=1e-5)
    assert narrow[0].dtype == np.float64


@pytest.mark.parametrize("zero", [False, True])
def test_missing_values_are_left_out_of_moments(zero):
    X, weights = rows(), np.random.default_rng(1).uniform(0.2, 3.0, 200)
    X[np.random.default_rng(2).random(X.shape) < 0.4] = np.nan
    X[0] = np.nan
    center, moment = weighted_moments(X, weights, "diag", zero)
    for d in range(3):
        seen = ~np.isnan(X[:, d])
        mean = 0.0 if zero else np.average(X[seen, d], weights=weights[seen])
        assert center[d] == pytest.approx(mean)
        square = np.average((X[seen, d] - mean) ** 2, weights=weights[seen])
        assert moment[d] == pytest.approx(square)
    assert weighted_moments(X, weights, "spherical", zero)[1] == pytest.approx(moment.mean())


def log_likelihood(X, weights, mean, covariance):
    """Of one Gaussian for rows with NaN, row by row."""
    total = 0.0
    for x, w in zip(X, weights, strict=True):
        seen = ~np.isnan(x)
        if seen.any():
            part = covariance[np.ix_(seen, seen)]
            total += w * multivariate_normal(mean[seen], part).logpdf(x[seen])
    return total


@pytest.mark.parametrize("zero", [False, True])
def test_with_missing_values_a_full_covariance_is_the_most_likely_one(zero, monkeypatch):
    X, weights = rows(120), np.random.default_rng(1).uniform(0.2, 3.0, 120)
    X[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    X[0] = np.nan
    # to where the slope shows
    monkeypatch.setattr(_gaussian_prior, "_EM_TOL", 1e-9)
    monkeypatch.setattr(_gaussian_prior, "_EM_RIDGE", 1e-14)
    monkeypatch.setattr(_gaussian_prior, "_MAX_EM_STEPS", 2000)
    center, covariance = weighted_moments(X, weights, "full", zero)
    best = log_likelihood(X, weights, center, covariance)
    slopes = []
    for i in range(3):
        for j in range(i, 3):
            change = np.zeros((3, 3))
            change[i, j] = change[j, i] = 1e-5
            up, down = (
                log_likelihood(X, weights, center, covariance + s * change) for s in (1.0, -1.0)
            )
            assert max(up, down) < best
            slopes.append((up - down) / 2e-5)
        if not zero:
            step = 1e-5 * np.eye(3)[i]
            up, down = (
                log_likelihood(X, weights, center + s * step, covariance) for s in (1.0, -1.0)
            )
            assert max(up, down) < best
            slopes.append((up - down) / 2e-5)
    np.testing.assert_allclose(slopes, 0.0, atol=1e-3)
    # in other units, the same
    scale = np.array([1e3, 1.0, 1e-3])
    moved, same = weighted_moments(X * scale + 7.0 * (not zero), weights, "full", zero)
    np.testing.assert_allclose(moved, center * scale + 7.0 * (not zero), rtol=1e-6)
    np.testing.assert_allclose(same, covariance * scale * scale[:, None], rtol=1e-6)


def test_of_many_rows_with_missing_values_some_stand_for_all(monkeypatch):
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
def test_with_missing_values_dependent_columns_vary_by_a_millionth(what):
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


@each_kind
def test_defaults_are_the_moments_of_the_data(shape, zero):
    X = rows()
    component, priors = build(X, shape, zero)
    kind = components.ZeroMeanFullGaussian if zero else GAUSSIANS_BY_TYPE[shape]
    assert type(component) is kind
    assert component.n_features == 3 and component.dtype == X.dtype
    q = textbook(component)
    if not zero:
        # relative to the centre, which is the mean
        np.testing.assert_allclose(q["mean"], 0.0, atol=1e-12)
        np.testing.assert_allclose(q["mean_precision"], 1.0)
        np.testing.assert_allclose(priors["mean_prior"], X.mean(axis=0))
        np.testing.assert_allclose(component.center, X.mean(axis=0))
        assert priors["mean_precision_prior"] == 1.0
    else:
        assert priors["mean_prior"] is priors["mean_precision_prior"] is None
    # E[precision] = nu / covariance, up to the ridge
    _, moment = weighted_moments(X, np.ones(200), shape, zero)
    np.testing.assert_allclose(priors["covariance_prior"], moment, rtol=1e-5)
    assert priors["degrees_of_freedom_prior"] == 3.0
    if shape == "full":
        assert q["degrees_of_freedom"] == 3.0
        np.testing.assert_allclose(q["scale_inverse"], moment, rtol=1e-5)
    else:
        np.testing.assert_allclose(q["shape"], 1.5)
        np.testing.assert_allclose(q["rate"], 0.5 * np.asarray(moment), rtol=1e-5)


@each_kind
def test_given_numbers_are_taken_as_they_are(shape, zero):
    X = rows()
    covariance = {
        "full": np.diag([1.0, 2.0, 3.0]) + 0.1,
        "diag": np.array([1.0, 2.0, 3.0]),
        "spherical": 1.7,
    }[shape]
    component, priors = build(
        X, shape, zero, mean=[1.0, 2.0, 3.0], mean_precision=0.3, degrees_of_freedom=4.5,
        covariance=covariance,
    )  # fmt: skip
    np.testing.assert_array_equal(priors["covariance_prior"], covariance)
    assert priors["degrees_of_freedom_prior"] == 4.5
    q = textbook(component)
    if not zero:
        np.testing.assert_allclose(np.ravel(q["mean"]) + component.center, [1.0, 2.0, 3.0])
        np.testing.assert_allclose(q["mean_precision"], 0.3)
    if shape == "full":
        np.testing.assert_allclose(q["scale_inverse"], covariance)
        assert q["degrees_of_freedom"] == 4.5
    else:
        np.testing.assert_allclose(q["shape"], 2.25)
        np.testing.assert_allclose(q["rate"], 0.5 * np.asarray(covariance))


@pytest.mark.parametrize(("shape", "zero"), [("full", False), ("full", True), ("diag", False)])
def test_default_priors_change_with_the_unit_of_each_column(shape, zero):
    X, unit = rows(), np.array([2.0**-20, 1.0, 2.0**20])
    scale = build(X, shape, zero)[1]["covariance_prior"]
    other = build(X * unit, shape, zero)[1]["covariance_prior"]
    factor = np.outer(unit, unit) if shape == "full" else unit**2
    np.testing.assert_allclose(other, scale * factor, rtol=1e-12)


DEGENERATE = {
    "one row": lambda X: X[:1], "all rows the same": lambda X: np.repeat(X[:1], 9, axis=0),
    "zeros": lambda X: 0.0 * X,
    "a constant column": lambda X: X * [1.0, 0.0, 1.0] + [0.0, 7.0, 0.0],
    "a column twice": lambda X: X[:, [0, 1, 1]], "fewer rows than columns": lambda X: X[:2],
    "scales far apart": lambda X: X * [1e-6, 1.0, 1e6], "tiny": lambda X: 1e-100 * X,
    "huge": lambda X: 1e100 * X,
}  # fmt: skip


def covariance_of(component, X, weights):
    """Second moments of the rows as a component's statistics count them, around the center."""
    sums = weights @ component.features(X)
    moments = sums[-len(X.T) * (len(X.T) + 1) // 2 :] / weights.sum()
    return triangle.unpack(moments)


@pytest.mark.parametrize("zero", [False, True])
def test_rows_vary_in_every_direction_by_a_millionth(zero):
    X = np.random.default_rng(0).standard_normal((300, 3)) * [1.0, 1e3, 1e-2]
    X = np.c_[X, X @ [2.0, 1e-3, 0.0], np.full(300, 0.0 if zero else 7.0)]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 300)
    component, _ = build(X, "full", zero, weights)
    own = covariance_of(component, X, weights)
    unit = np.sqrt(np.diagonal(own))
    unit[-1] = np.sqrt(np.mean(unit[:-1] ** 2) * 0.8)  # a constant one has the mean of all
    scaled = own / np.outer(unit, unit)
    np.testing.assert_allclose(np.linalg.eigvalsh(scaled)[:2], 1e-6, rtol=1e-4)
    # and where they vary as they did
    plain = covariance_of(replace(component, added=None), X, weights)
    np.testing.assert_allclose(scaled, plain / np.outer(unit, unit), atol=1.1e-6)
    ordinary, _ = build(X[:, :3], "full", zero, weights)
    assert ordinary.added is None
    # the predictive density is that of the rows as they are
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


def test_scales_of_columns_make_no_covariance_illegal():
    scales = np.array([1e-10, 1.0, 1e11])
    given = np.outer(scales, scales) * (0.5 + 0.5 * np.eye(3))
    np.testing.assert_array_equal(_gaussian_prior.prior_scale(given, "full", 3, given), given)


@pytest.mark.parametrize("covariance_type", ["tied", "diag", "spherical", "low_rank", "auto"])
def test_means_of_zero_go_with_full_covariances_alone(covariance_type):
    with pytest.raises(ValueError, match=f"needs covariance_type='full'. Got .*{covariance_type}"):
        MemoizedDPGMM(covariance_type=covariance_type, mean_type="zero").fit(rows())


def test_rounded_values_vary_within_their_intervals(monkeypatch):
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(400, 1))
    rounded = np.round(exact * 4.0) / 4.0
    some = np.where(rng.random((400, 1)) < 0.6, 0.0, exact)  # equal, but not by rounding
    X = np.hstack([exact, rounded, some, np.where(rng.random((400, 1)) < 0.3, np.nan, rounded)])
    found = rounding_variance(X, np.ones(len(X)))
    np.testing.assert_allclose(found[[0, 1, 3]], [0.0, 0.0625 / 12.0, 0.0625 / 12.0])
    assert found[2] < 3e-4
    # rows that count twice are rows that are there twice
    weights = np.where(np.arange(len(X)) < 300, 2.0, 1.0)
    twice = rounding_variance(np.vstack([X, X[:300]]), np.ones(700))
    np.testing.assert_array_equal(rounding_variance(X, weights), twice)
    # of many rows, some are looked at: that values differ there does not say that others are alike
    monkeypatch.setattr(_gaussian_prior, "_VALUES_OF_ROUNDING", 0)
    monkeypatch.setattr(_gaussian_prior, "_MIN_ROWS_OF_ROUNDING", 400)
    many = rng.normal(size=(8_000, 1))
    found = rounding_variance(np.hstack([many, np.round(many * 4.0) / 4.0]), np.ones(8_000))
    np.testing.assert_allclose(found, [0.0, 0.0625 / 12.0])


@pytest.mark.quick_cases("full")
@pytest.mark.parametrize("covariance_type", ["full", "diag", "low_rank"])
def test_a_value_of_a_rounded_column_is_no_cluster(covariance_type):
    rng = np.random.default_rng(5)
    centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, -9.0]])
    X = np.round(centers[np.arange(900) % 3] + 1.4 * rng.normal(size=(900, 2)))
    mixture = MemoizedDPGMM(covariance_type=covariance_type, random_state=0).fit(X)
    assert mixture.n_components_ == 3


def test_one_component_takes_rounded_values_as_they_are():
    X = np.round(rows(2_000))
    (own,) = MemoizedDPGMM(1, max_components=1).fit(X).covariances_
    (spread,) = MemoizedDPGMM(1, moves=()).fit(X).covariances_
    np.testing.assert_allclose(own, np.cov(X.T), atol=0.02)
    np.testing.assert_allclose(spread - own, np.eye(3) / 12.0, atol=0.01)
