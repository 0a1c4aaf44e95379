"""Columns in logarithms: bounds and densities are those of the numbers themselves."""

import time

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.metrics import adjusted_rand_score

import skvt
from skvt import MemoizedDPMixture
from skvt._results.profiles import make_profiles
from skvt.components import Gaussian, Hurdle
from skvt.components.specs import find_log_columns

LOGS = [0, 2]


def positive_rows(n=300, seed=0):
    """Two clusters of three positive columns, with a hole in every third row; kinds."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    Y = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.3, 0.5]])
    Y += np.where(kind, 9.0, 0.0)[:, None]
    Y[:, 1] += 20.0
    X = np.where(np.isin(range(3), LOGS), np.exp(Y), Y)
    holes = rng.integers(9, size=n)  # in a third of the rows, one
    X[holes < 3, holes[holes < 3]] = np.nan
    return X, kind


def fitted(component, X, kind, **others):
    blocks = [("amounts", component, slice(None))]
    parameters = {"moves": (), "labels_init": kind, "n_components": 2, "max_iter": 5} | others
    return MemoizedDPMixture(components=blocks, random_state=0, **parameters).fit(X)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "low_rank"])
def test_a_fit_is_that_of_the_logarithms_with_densities_of_the_numbers(covariance_type):
    X, kind = positive_rows()
    Y = X.copy()
    Y[:, LOGS] = np.log(X[:, LOGS])
    volumes = -np.nansum(Y[:, LOGS], axis=1)
    ours = fitted(Gaussian(covariance_type, log=LOGS), X, kind)
    theirs = fitted(Gaussian(covariance_type), Y, kind)
    assert ours.elbo_ == pytest.approx(theirs.elbo_ + volumes.sum())
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(Y) + volumes)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(Y), atol=1e-9)
    np.testing.assert_allclose(ours.column_relevance_, theirs.column_relevance_, atol=1e-9)
    (drawn, _), (plain, _) = (one.sample(50, random_state=1) for one in (ours, theirs))
    np.testing.assert_allclose(np.log(drawn[:, LOGS]), plain[:, LOGS], atol=1e-9)
    np.testing.assert_allclose(drawn[:, 1], plain[:, 1])
    np.testing.assert_allclose(ours.impute(X)[:, LOGS], np.exp(theirs.impute(Y)[:, LOGS]))


def test_a_density_in_logarithms_is_one():
    X, kind = positive_rows()
    there = ~np.isnan(X[:, 0])
    mixture = fitted(Gaussian("diag", log=[0]), X[there][:, [0]], kind[there])
    total, _ = quad(
        lambda y: np.exp(mixture.score_samples([[np.exp(y)]])[0] + y), -9, 20, limit=200
    )
    assert total == pytest.approx(1.0, abs=1e-3)  # (a thousandth is of clusters without rows)


def test_a_density_in_logarithms_is_flat_far_below_the_smallest_value():
    y = np.random.default_rng(0).normal(size=400)
    blocks = [("amounts", Gaussian("diag", log=[0]), [0])]
    mixture = MemoizedDPMixture(components=blocks, max_components=1, random_state=0)
    # as far below the smallest value as this is below the geometric mean
    least = np.exp(2.0 * y.min() - y.mean())
    rows = least * np.array([[1e-6], [0.5], [1.0], [1.1]])
    far, below, at, above = mixture.fit(np.exp(y)[:, None]).score_samples(rows)
    assert far == below == at and above != at


def test_what_is_said_of_logarithms_is_in_units_of_the_data():
    X, kind = positive_rows()
    told = fitted(Gaussian("diag", log=LOGS), X, kind).describe()
    logged = told[told["column"].isin(LOGS)]
    assert set(logged["quantity"]) == {"median", "standard deviation of logarithm"}
    medians = logged[logged["quantity"] == "median"]
    expected = [np.nanmedian(X[kind == k][:, LOGS], axis=0) for k in range(2)]
    np.testing.assert_allclose(np.sort(medians["estimate"]), np.sort(np.ravel(expected)), rtol=0.2)
    assert np.all((medians["low"] < medians["estimate"]) & (medians["estimate"] < medians["high"]))
    assert set(told[told["column"] == 1]["quantity"]) == {"mean", "standard deviation"}


def test_variances_of_logarithms_are_averaged_in_profiles():
    names = ("component", "weight", "block", "column", "relevance", "quantity", "category")
    quantities = "median", "standard deviation of logarithm"
    rows = [(k, 0.5, "b", 0, 0.1, quantity, None) for k in range(2) for quantity in quantities]
    table = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    estimates = make_profiles(table | {"estimate": [5.0, 1.0, 5.0, 3.0]}).estimates
    (_, _, median), (_, _, spread) = estimates[2, 0]
    assert (median, spread) == pytest.approx((5.0, np.sqrt(0.5 * 1.0 + 0.5 * 9.0)))


@pytest.mark.slow
def test_auto_takes_logarithms_of_amounts_alone(tmp_path):
    rng = np.random.default_rng(0)
    n = 600
    X = np.column_stack([
        rng.lognormal(10.0, 0.8, n),  # an amount
        rng.normal(100.0, 10.0, n),  # positive, and no amount
        np.where(rng.random(n) < 0.8, rng.normal(5.0, 1.0, n).clip(0.1), rng.normal(30, 3, n)),
        np.where(rng.random(n) < 0.4, 0.0, rng.lognormal(3.0, 0.8, n)),  # one that may be zero
        rng.lognormal(0.0, 0.8, n) - 0.3,  # not always positive
    ])  # fmt: skip
    mixture = MemoizedDPMixture(max_components=6, random_state=0).fit(X)
    assert mixture.n_components_ < 6
    (_, _, plain), (_, hurdle, columns) = mixture.blocks_
    assert (plain, columns) == ([0, 1, 2, 4], [3]) and isinstance(hurdle, Hurdle)
    assert mixture.priors_["numbers"]["log"].tolist() == [0]
    assert mixture.priors_["hurdles"]["log"].tolist() == [0]
    skvt.save(mixture, tmp_path / "amounts.skvt")
    loaded = skvt.load(tmp_path / "amounts.skvt")
    np.testing.assert_array_equal(loaded.score_samples(X), mixture.score_samples(X))
    usual, far = mixture.score_samples(np.vstack([X[0], np.where(range(5), X[0], 0.0)]))
    assert -100.0 < far < usual - 5.0  # 0 is a small number


def test_logarithms_are_chosen_where_values_were_drawn_with_them():
    """Clusters far apart, and a single one, each as normal values and as normal logarithms."""
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=(1000, 10))
    amounts = np.exp(rng.normal(3.0, 0.4, (1000, 20)) + np.hstack([0 * kind, 3 * kind]))
    normal = rng.normal(30.0, 3.0, (1000, 20)) + 20.0 * np.hstack([0 * kind, kind**2])
    X = np.hstack([amounts, normal])
    X[rng.random(X.shape) < 0.1] = np.nan
    chosen, _ = find_log_columns(X, np.ones(1000))
    assert chosen.tolist() == list(range(20))


def test_single_wrong_values_do_not_decide_on_logarithms():
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=(500, 1))
    X = np.hstack([np.exp(rng.normal(3.0 + kind, 0.4)), rng.normal(30.0 + 20.0 * kind, 3.0)])
    for factor in (1.0 / 300.0, 300.0):
        wrong = np.vstack([X[:1] * factor, X[1:]])
        chosen, _ = find_log_columns(wrong, np.ones(500))
        assert chosen.tolist() == [0]


@pytest.mark.slow
def test_logarithms_of_many_columns_are_chosen_within_seconds():
    """Two short fits of each column took nine seconds here."""
    rng = np.random.default_rng(0)
    rates = (20.0 + rng.gamma(2.0, 10.0, (5, 300)))[rng.integers(5, size=400)]
    X = 1.0 + rng.negative_binomial(3, 3.0 / (3.0 + rates))
    find_log_columns(X[:, :1], np.ones(400))
    begun = time.process_time()
    find_log_columns(X, np.ones(400))
    assert time.process_time() - begun < 3.0


def test_amounts_are_no_clusters():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=800)
    X = np.exp(rng.normal(np.array([[7.0, 10.0], [9.5, 11.0]])[kind], 0.7))
    mixture = MemoizedDPMixture(random_state=0).fit(X)
    assert mixture.n_components_ == 2
    assert adjusted_rand_score(kind, mixture.labels_) > 0.85


def test_numbers_without_logarithms_are_refused():
    X, kind = positive_rows()
    X[7, 2] = 0.0
    with pytest.raises(ValueError, match=r"positive numbers. Column 2 .* Hurdle"):
        fitted(Gaussian(log=LOGS), X, kind)
    for log in ([], True):
        with pytest.raises(ValueError, match="'log' parameter must select at least one"):
            fitted(Gaussian(log=log), X, kind)
