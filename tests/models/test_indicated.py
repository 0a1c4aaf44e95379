"""Indicators explain point masses and informative missing values."""

import itertools

import numpy as np
import pandas as pd
import pytest
from models._textbook import KINDS
from scipy.integrate import quad
from scipy.special import betaln
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPMixture, components, load, save
from skvt.models.mixture import Poisson, add_indicators, find_columns_missing_together

D = 2


def setup(name, at, shift=0.0, n=12, seed=0):
    """Return a component of two columns with indicators, and rows with missing values."""
    rng = np.random.default_rng(seed)
    X = KINDS[name].rows(n, D, rng) + shift
    X = np.where(rng.random((n, D)) < 0.3, np.array(at or np.nan), X)
    if at:
        X[rng.random((n, D)) < 0.2] = np.nan
    return add_indicators(KINDS[name].make(D, np.dtype(np.float64)), at, shift), X


CASES = [
    ("diagonal", (0.0, -3.0), 0.0), ("Poisson", (0.0, 0.0), 1.0), ("categorical", (), 0.0),
    ("diagonal", (), 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "at", "shift"), CASES)
def test_predictives_chain_to_the_evidence(name, at, shift):
    component, X = setup(name, at, shift)
    chained, sums = 0.0, np.zeros((1, component.base.size))
    for row in X:
        lam = component.natural_parameters(sums)
        chained += component.log_predictive(row[None], lam)[0, 0]
        sums += component.features(row[None])
    assert component.log_evidence(sums)[0] == pytest.approx(chained, rel=1e-10)
    np.testing.assert_allclose(component.column_evidence(sums).shape, (1, D))


@pytest.mark.parametrize(("name", "at", "shift"), CASES)
def test_point_masses_and_densities_sum_to_one(name, at, shift):
    component, X = setup(name, at, shift)
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    row = X[~np.isnan(X).any(axis=1)][0]

    def density(value):
        with_value = np.array([[row[0], value]])
        without = np.array([[row[0], np.nan]])
        known = component.log_predictive(with_value, lam)
        unknown = component.without_indicator(1).log_predictive(without, lam)
        return float(np.exp(known - unknown)[0, 0])

    special = density(at[1] if at else np.nan)
    if name == "diagonal":
        rest = sum(quad(density, *ends)[0] for ends in ((-np.inf, 1.0), (1.0, np.inf)))
    else:
        rest = sum(density(float(x)) for x in (range(3) if not at else range(1, 300)))
    assert 0.05 < special < 0.95
    assert special + rest == pytest.approx(1.0, abs=1e-6)


def test_missing_values_are_imputed_and_drawn_from_both_parts():
    component, X = setup("diagonal", (0.0, -3.0), n=40)
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    X = np.where(np.arange(D) == 1, np.nan, X[:1].repeat(20_000, axis=0))
    rng = np.random.default_rng(0)
    drawn = component.conditional_sample(X, lam[0], rng)[:, 1]
    mean = component.imputed(X[:1], lam, np.ones((1, 1)))[0, 1]
    assert 0.1 < (drawn == -3.0).mean() < 0.9
    assert abs(drawn.mean() - mean) < 5.0 * drawn.std() / np.sqrt(drawn.size)
    assert component.sample(lam[0], 9, rng).shape == (9, D)


def test_full_covariances_complete_point_masses_as_missing_values():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, D))
    full = KINDS["full"].make(D, np.dtype(np.float64))
    resp = rng.dirichlet(np.ones(2), size=30)
    table = full.expected_table(full.natural_parameters(resp.T @ full.features(X)))
    table = np.concatenate([table, np.zeros((2, 2 * D))], axis=1)
    component, logits = add_indicators(full, (7.0, 7.0)), np.zeros((2, 30, 2))
    for own, value in zip(logits, (7.0, np.nan), strict=True):
        X[::2, 0] = value
        component.completion(table)(X, np.ones(1)).add_to(own, np.zeros((30, 2)))
    assert np.abs(logits[0, ::2]).min() > 0.0
    np.testing.assert_array_equal(*logits)


# ------------------------------------------------------------------------------- exposures
def test_probabilities_of_exposed_counts_and_missing_values_sum_to_one():
    """An exposure has no indicator, because all rows would pay for its probability."""
    poisson = Poisson(np.full((D, 2), 1.5), np.dtype(np.float64), exposure="column")
    component = add_indicators(poisson, exposed=True)
    X = np.array([[2.0, np.nan, 1.0], [0.0, 3.0, 2.0], [np.nan, 1.0, 4.0]])
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    values = [np.nan, *range(150)]
    rows = np.array([(*pair, 1.7) for pair in itertools.product(values, values)])
    assert np.exp(component.log_predictive(rows, lam)).sum() == pytest.approx(1.0, abs=1e-9)
    drawn = component.sample(lam[0], 200, np.random.default_rng(0))
    assert not np.isnan(drawn[:, -1]).any()
    assert 0.1 < np.isnan(drawn[:, :-1]).mean() < 0.7
    assert component.column_evidence(component.features(X)).shape == (3, 3)


def one_component(X, component, columns=slice(None)):
    blocks = [("block", component, columns)]
    return MemoizedDPMixture(1, components=blocks, moves=(), random_state=0).fit(X)


def assert_a_file_keeps_the_scores(mixture, X, tmp_path):
    save(mixture, tmp_path / "model.skvt")
    loaded = load(tmp_path / "model.skvt")
    np.testing.assert_array_equal(loaded.score_samples(X), mixture.score_samples(X))


@pytest.mark.parametrize("kind", [components.Poisson, components.NegativeBinomial])
def test_a_mixture_has_indicators_of_exposed_counts(kind, tmp_path):
    rng = np.random.default_rng(0)
    years = rng.uniform(1.0, 5.0, size=40)
    frame = pd.DataFrame({"visits": rng.poisson(3.0 * years), "years": years})
    informed, plain = (
        one_component(frame, kind(exposure="years", missing=missing), ["visits"])
        for missing in ("informative", "ignore")
    )
    # The fact that all n values are observed has the probability 1 / (n + 1) under a uniform prior.
    assert informed.elbo_ - plain.elbo_ == pytest.approx(-np.log(41.0), abs=1e-6)
    drawn, _ = informed.sample(200, random_state=0)
    assert np.isfinite(informed.score_samples(drawn)).all()
    quantities = informed.describe()
    shares = quantities[quantities["quantity"] == "share observed"]
    assert shares["column"].tolist() == ["visits"]
    assert_a_file_keeps_the_scores(informed, frame, tmp_path)


# ------------------------------------------------------------------- values missing together
def together(n=200, n_together=6, seed=0):
    """Draw categories of three clusters. The last columns of some rows are missing together."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    shares = rng.dirichlet(np.full(3, 0.3), size=(3, 12))
    X = np.array([[rng.choice(3, p=shares[k, j]) for j in range(12)] for k in z], float)
    X[rng.random(n) < 0.3, -n_together:] = np.nan
    return X, z


@pytest.mark.parametrize("n_together", [1, 6])
def test_values_missing_together_have_one_indicator(n_together, tmp_path):
    X, _ = together(n_together=n_together)
    mixture, plain = (
        one_component(X, components.Categorical(missing=missing))
        for missing in ("informative", "ignore")
    )
    n, m = len(X), int(np.isnan(X[:, -1]).sum())
    # The evidence has one beta function, and that of the columns without missing values.
    one_fact = betaln(m + 1.0, n - m + 1.0) - np.log(n + 1.0)
    assert mixture.elbo_ - plain.elbo_ == pytest.approx(one_fact, abs=1e-6)
    drawn, _ = mixture.sample(500, random_state=0)
    missing = np.isnan(drawn[:, -n_together:])
    assert (missing == missing[:, :1]).all() and 0.2 < missing.mean() < 0.4
    shares = mixture.describe().query("quantity == 'share observed'").set_index("column")
    assert shares["estimate"].tolist()[-n_together:] == n_together * [(n - m + 1.0) / (n + 2.0)]
    assert_a_file_keeps_the_scores(mixture, X, tmp_path)


def test_clusters_are_found_beside_many_columns_missing_together():
    """One in thirty of their values is missing at random."""
    X, z = together()
    rng = np.random.default_rng(1)
    X[rng.random(X.shape) < 0.03] = np.nan
    block = [("words", components.Categorical(missing="informative"), slice(None))]
    mixture = MemoizedDPMixture(components=block, random_state=0).fit(X)
    assert adjusted_rand_score(z, mixture.labels_) > 0.9


def test_values_missing_in_different_rows_have_different_indicators():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 5)) < [0.0, 0.0, 0.5, 0.5, 0.9], np.nan, 1.0)
    X[:, 3] = X[:, 2]
    assert find_columns_missing_together(X, np.ones(300), 5) == (0, 0, 1, 1, 2)
    other = np.where(np.arange(300) % 3 == 0, np.nan, X[:, 2])  # A third of the rows has values.
    other = np.column_stack([X[:, 2], other])
    assert find_columns_missing_together(other, np.ones(300), 2) == (0, 1)


def test_columns_missing_together_share_an_indicator():
    component = add_indicators(KINDS["categorical"].make(3, np.dtype(np.float64)), shared=(0, 1, 0))
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(20, 3)).astype(float)
    X[:8, [0, 2]] = np.nan
    lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
    rows = X[[0]]
    np.testing.assert_array_equal(
        component.without_indicator(0).log_predictive(rows, lam),
        component.log_predictive(rows, lam),
    )
    silent = component.without_indicator(0).without_indicator(2)
    difference = component.log_predictive(rows, lam) - silent.log_predictive(rows, lam)
    assert difference[0, 0] == pytest.approx(np.log(9.0 / 22.0))
