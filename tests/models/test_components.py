"""The components of mixtures agree with `_textbook.py`, with quadrature and with draws."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from models._textbook import (
    KINDS,
    NB_SIZES,
    NOISE,
    center_of,
    log_marginal,
    posterior,
    standard_of,
    with_gaps,
)
from scipy.stats import f as f_distribution
from scipy.stats import kstest, rankdata
from scipy.stats import t as student_t
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from skvt.contracts import Component, missing_members
from skvt.expfam import NormalWishart, triangle
from skvt.models.mixture import ConjugateComponent, components
from skvt.models.mixture._low_rank import LowRankGaussian

OF_PRECISION = ("full", "zero-mean full", "diagonal", "spherical")
MISSING = [name for name, kind in KINDS.items() if kind.make(2, np.float64).missing]
# The features of these kinds leave out missing values; `test_missing.py` has the other kinds.
LEFT_OUT = [name for name in MISSING if not name.endswith("full")]
each_kind = pytest.mark.parametrize("name", KINDS)
each_of_precision = pytest.mark.parametrize("name", OF_PRECISION)


def setup(name, *, D=3, n=40, K=2, seed=0, gaps=False, dtype=np.float64):
    """Return kind, component, rows, responsibilities (n, K) and natural parameters."""
    rng = np.random.default_rng(seed)
    kind = KINDS[name]
    component, X = kind.make(D, dtype), kind.rows(n, D, rng)
    X = with_gaps(X, rng) if gaps else X
    resp = rng.dirichlet(np.full(K, 0.4), size=n)
    return kind, component, X.astype(dtype), resp, posterior(component, X.astype(dtype), resp)


def test_the_contract_has_five_protocols_of_at_most_twelve_members():
    five = Component.__mro__[1:6]
    members = [name for each in five for name in vars(each) if not name.startswith("_")]
    assert len(members) == len(set(members))  # No name occurs twice.
    assert all(sum(name in vars(each) for name in members) <= 12 for each in five)
    assert not set(missing_members(ConjugateComponent, Component)) - {
        "dtype", "family", "features", "n_features", "prior", "sample"
    }  # fmt: skip


def dense(features):
    return features.toarray() if sp.issparse(features) else features


def variants(test, with_gaps=LEFT_OUT):
    """Test each kind with one and three columns, some kinds with NaN, and multinomials in CSR."""
    cases = [(name, D, "dense") for name in KINDS for D in (1, 3)]
    cases += [(name, D, "gaps") for name in with_gaps for D in (1, 3)]
    cases += [("multinomial", 3, "sparse")]
    return pytest.mark.parametrize(
        ("name", "D", "how"), cases, ids=[f"{name}, {D}, {how}" for name, D, how in cases]
    )(test)


def each_row_and_component(function, component, X, lam):
    """Return ``function(q, x, center)`` of each row under each of two components, (n, 2)."""
    center, parameters = center_of(component), [standard_of(component, lam, k) for k in range(2)]
    return [[function(q, x, center) for q in parameters] for x in X]


def setup_of(name, D, how, **settings):
    kind, component, X, resp, lam = setup(name, D=D, gaps=how == "gaps", **settings)
    return kind, component, X, sp.csr_array(X) if how == "sparse" else X, resp, lam


# ------------------------------------------------------------------------ features and tables
@variants
def test_features_times_the_table_are_expected_log_densities(name, D, how):
    kind, component, X, held, _, lam = setup_of(name, D, how)
    product = component.features(held) @ component.expected_table(lam).T
    expected = each_row_and_component(kind.log_density, component, X, lam)
    assert product.shape == (40, 2)
    np.testing.assert_allclose(product, expected, rtol=1e-11, atol=1e-11)


@variants
def test_the_prior_plus_features_is_the_conjugate_update(name, D, how):
    kind, component, X, held, resp, _ = setup_of(name, D, how)
    lam = component.natural_parameters(resp.T @ dense(component.features(held)))
    prior = component.family.to_standard(component.prior)
    for k in range(2):
        expected = kind.update(prior, X, resp[:, k], center_of(component))
        found = standard_of(component, lam, k)
        assert set(found) == set(expected)
        for part, value in expected.items():
            np.testing.assert_allclose(found[part], value, rtol=1e-10, atol=1e-12, err_msg=part)


@pytest.mark.parametrize("name", ["Bernoulli", "Poisson"])
def test_sparse_features_equal_dense_features(name):
    _, component, X, resp, lam = setup(name, gaps=True)
    sparse, held = replace(component, sparse=True), sp.csr_array(X)
    features = sparse.features(held)
    assert sp.issparse(features) and features.nnz <= 2 * held.nnz + 2 * len(X)
    np.testing.assert_allclose(features.toarray(), dense(sparse.features(X)), atol=1e-12)
    sums = features.T.dot(resp).T
    np.testing.assert_allclose(sparse.natural_parameters(sums), lam)
    expected = component.features(X) @ component.expected_table(lam).T
    np.testing.assert_allclose(features @ sparse.expected_table(lam).T, expected, atol=1e-11)
    found = sparse.log_predictive(held, lam)
    np.testing.assert_allclose(found, component.log_predictive(X, lam), atol=1e-12)


def test_natural_sums_of_sparse_rows_are_not_negative():
    _, component, X, resp, lam = setup("Bernoulli", gaps=True)
    sparse = replace(component, sparse=True)
    sums = sparse.features(sp.csr_array(X)).T.dot(resp).T
    own = sparse.feature_sums(sparse.natural_sums(sums))
    assert own.min() >= 0.0
    np.testing.assert_allclose(sparse.natural_parameters(own), lam)


def row_fits_by_tables(component, X, rows, seeds):
    features = dense(component.filled_features(X))
    alone = component.without_shared_globals
    return features[rows] @ alone.expected_table(alone.natural_parameters(features[seeds])).T


@pytest.mark.parametrize(
    ("name", "added"),
    [*((name, False) for name in KINDS), ("full", True), ("zero-mean full", True)],
)
def test_row_fits_equal_those_of_components_that_have_seen_the_seed(name, added):
    _, component, X, *_ = setup(name)
    if added:
        root = np.random.default_rng(1).standard_normal((3, 3))
        component = replace(component, added=triangle.pack(root @ root.T))
    rows, seeds = np.arange(5, 20), np.array([7, 2, 11])
    fits = component.row_fits(X)
    expected = row_fits_by_tables(component, X, rows, seeds)
    prepared = fits.prepare(rows)
    difference = fits.fits_to_seeds(prepared, seeds)[0] - expected
    np.testing.assert_allclose(difference, difference[0, 0], rtol=1e-9, atol=1e-9)
    unsized, _ = fits.fits_to_seeds(prepared, seeds, with_magnitudes=False)
    np.testing.assert_array_equal(unsized - expected, difference)
    own = np.diagonal(row_fits_by_tables(component, X, rows, rows))
    np.testing.assert_allclose(
        fits.fits_to_self(prepared)[0] - own, difference[0, 0], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("kind", [components.FullGaussian, LowRankGaussian])
def test_densities_and_sums_of_many_columns_equal_those_by_features(kind):
    D, K, rng = 40, 3, np.random.default_rng(0)
    prior = NormalWishart.from_standard(np.zeros(D), 1.0, D + 2.0, np.eye(D))
    center = rng.standard_normal(D)
    component = kind(prior, center, np.dtype(float), triangle.pack(np.diag(rng.random(D))))
    X = center + rng.standard_normal((30, D))
    X[::4, 3], X[7] = np.nan, np.nan
    weighted = rng.random((30, K)) * (rng.random((30, K)) < 0.5)
    table = rng.standard_normal((1 + D + D * (D + 1) // 2, K))
    features = component.features(X)
    logits, sums_of = component.log_densities_and_sums(X, table)
    np.testing.assert_allclose(logits, features @ table, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sums_of(weighted), weighted.T @ features, atol=1e-11)
    np.testing.assert_allclose(component.weighted_sums(X, weighted), sums_of(weighted))
    # A component of low rank compares seeds as if columns were independent.
    expected = row_fits_by_tables(component, X, np.arange(30), np.arange(4))
    fits = component.row_fits(X)
    difference = fits.fits_to_seeds(fits.prepare(np.arange(30)), np.arange(4))[0] - expected
    np.testing.assert_allclose(difference, difference[0, 0], rtol=1e-9, atol=1e-9)


@each_kind
def test_spread_and_gather_are_transposes_of_each_other(name):
    _, component, X, _, _ = setup(name)
    rng = np.random.default_rng(2)
    sums = rng.standard_normal((5, dense(component.features(X)).shape[1]))
    t = rng.standard_normal((5, *component.prior.shape))
    spread = component.natural_sums(sums)
    assert spread.shape == t.shape
    inner = (spread * t).reshape(5, -1).sum(axis=1)
    np.testing.assert_allclose(
        (sums * component.feature_coefficients(t)).sum(axis=1), inner, rtol=1e-12
    )


@each_kind
def test_features_have_double_precision_for_rows_of_single_precision(name):
    # Squares in single precision would leave no digits for a small variance.
    _, component, X, _, lam = setup(name)
    narrow = X.astype(np.float32)
    for held in (component, KINDS[name].make(3, np.dtype(np.float32))):
        features = dense(held.features(narrow))
        assert features.dtype == np.float64
        np.testing.assert_array_equal(features, dense(component.features(narrow.astype(float))))
        np.testing.assert_array_equal(
            held.log_predictive(narrow, lam), component.log_predictive(narrow.astype(float), lam)
        )


# --------------------------------------------------------------------------------- predictive
@partial(variants, with_gaps=MISSING)
def test_predictive_densities_equal_those_of_the_textbook(name, D, how):
    kind, component, X, held, _, lam = setup_of(name, D, how)
    expected = each_row_and_component(kind.predictive, component, X, lam)
    np.testing.assert_allclose(component.log_predictive(held, lam), expected, rtol=1e-9, atol=1e-9)


@each_kind
def test_the_evidence_is_the_product_of_predictives(name):
    kind, component, X, _, _ = setup(name, n=12)
    features = component.features(X)
    chained = 0.0
    for n in range(12):
        lam = component.natural_parameters(features[:n].sum(axis=0)[None])
        chained += component.log_predictive(X[n : n + 1], lam)[0, 0]
    evidence = component.log_evidence(features.sum(axis=0)[None])[0]
    assert chained == pytest.approx(evidence, rel=1e-9)
    assert log_marginal(kind, component, X) == pytest.approx(evidence, rel=1e-9)


@each_kind
def test_predictive_densities_do_not_depend_on_the_division_of_rows(name, monkeypatch):
    _, component, X, _, lam = setup(name)
    whole = ConjugateComponent.log_predictive(component, X, lam)
    monkeypatch.setattr("skvt.models.mixture.components._base._ENTRIES_AT_ONCE", 7 * lam.size)
    np.testing.assert_allclose(
        ConjugateComponent.log_predictive(component, X, lam), whole, rtol=1e-12
    )


# --------------------------------------------------------------------------- draws and moments
def rows_drawn(component, lam, n, how, seed):
    """Draw rows from the predictive. If ``how`` is "completed", draw some of their values again."""
    rng = np.random.default_rng(seed)
    X = component.sample(lam, n, rng)
    if how == "whole":
        return X
    held = with_gaps(X, rng, share=0.5)
    drawn = component.conditional_sample(held, lam, rng)
    there = ~np.isnan(held)
    np.testing.assert_array_equal(drawn[there], held[there])
    discrete = np.array_equal(X, np.round(X))
    assert discrete or not np.any(drawn[~there] == X[~there])
    return drawn


whole_and_completed = pytest.mark.parametrize("how", ["whole", "completed"])


def alone(values, d):
    """Return rows of three columns, in which only column d has values."""
    return np.where(np.arange(3) == d, np.asarray(values, float)[:, None], np.nan)


@whole_and_completed
@pytest.mark.parametrize("name", ["Bernoulli", "Poisson", "categorical"])
def test_draws_of_discrete_columns_have_their_predictive_probabilities(name, how):
    # The component has seen few rows, so that its parameters are uncertain.
    _, component, _, _, lam = setup(name, n=6, K=1)
    n_draws = 20_000
    X = rows_drawn(component, lam[0], n_draws, how, 3)
    assert X.shape == (n_draws, 3)
    for d in range(3):
        values = np.arange(X[:, d].max() + 1.0)
        if name != "Poisson":
            values = np.arange([2, 2 + d][name == "categorical"])
        p = np.exp(component.log_predictive(alone(values, d), lam)[:, 0])
        shares = (X[:, [d]] == values).mean(axis=0)
        assert shares.sum() == pytest.approx(1.0)
        assert np.all(np.abs(shares - p) < 4.5 * np.sqrt(p / n_draws) + 5.0 / n_draws)
    correlations = np.corrcoef(X.T) - np.eye(3)
    assert np.abs(correlations).max() < 4.5 / n_draws**0.5


@whole_and_completed
@pytest.mark.parametrize("name", [*OF_PRECISION, "known variance"])
def test_draws_have_students_law_in_several_columns(name, how):
    # Columns with a common precision are far out together, which no second moment shows.
    _, component, _, _, lam = setup(name, n=5, K=1)
    X = rows_drawn(component, lam[0], 4_000, how, 5)
    q = standard_of(component, lam, 0)
    mean = center_of(component) + np.ravel(q.get("mean", np.zeros(3)))
    factor = 1.0 + 1.0 / np.ravel(q["mean_precision"]) if "mean_precision" in q else np.ones(1)
    if "scale_inverse" in q:
        freedom = q["degrees_of_freedom"] - 2.0
        matrix = factor * q["scale_inverse"] / freedom
    elif name == "known variance":
        freedom, matrix = np.full(3, np.inf), np.diag(NOISE + q["variance"])
    else:
        freedom = 2.0 * q["shape"]
        matrix = np.diag(np.ones(3) * q["rate"] / q["shape"] * factor)
    deviation = (X - mean) @ np.linalg.inv(np.linalg.cholesky(matrix)).T
    for column, own in zip(deviation.T, np.broadcast_to(freedom, 3), strict=True):
        assert kstest(column, student_t(own).cdf).pvalue > 1e-4
    if np.ndim(freedom) == 0:
        assert kstest((deviation**2).mean(axis=1), f_distribution(3, freedom).cdf).pvalue > 1e-4
    else:  # The columns are independent of each other.
        sizes = rankdata(np.abs(deviation), axis=0)
        assert np.abs(np.corrcoef(sizes.T) - np.eye(3)).max() < 4.5 / 4_000**0.5


def mean_of_columns(q, center):
    """Return the mean of a row (D,) under the textbook parameters of one component."""
    if "concentration" in q:
        return q["concentration"][:, 0] / q["concentration"].sum(axis=1)
    if "probability" in q:
        return (q["probability"] * NB_SIZES * q["b"] / (q["a"] - 1.0)).sum(axis=1)
    if "mean" not in q and "shape" in q:
        return q["shape"] / q["rate"]
    return center + np.ravel(q.get("mean", np.zeros(3)))


@pytest.mark.parametrize("name", [name for name in MISSING if name != "categorical"])
def test_missing_values_are_filled_in_by_their_conditional_mean(name):
    _, component, X, _, lam = setup(name, gaps=True)
    found = component.conditional_mean(X, lam)
    assert found.shape == (2, 40, 3)
    for k in range(2):
        q = standard_of(component, lam, k)
        mean = mean_of_columns(q, center_of(component))
        for x, filled in zip(X, found[k], strict=True):
            seen = ~np.isnan(x)
            expected = mean.copy()
            if "scale_inverse" in q and seen.any():
                S = q["scale_inverse"]
                expected += S[:, seen] @ np.linalg.solve(S[np.ix_(seen, seen)], (x - mean)[seen])
            expected[seen] = x[seen]
            np.testing.assert_allclose(filled, expected, rtol=1e-9)


@each_of_precision
def test_moments_are_the_mean_and_the_inverse_expected_precision(name):
    _, component, _, _, lam = setup(name)
    means, covariances = component.moments(lam)
    center = center_of(component)
    for k in range(2):
        q = standard_of(component, lam, k)
        np.testing.assert_allclose(means[k], center + np.ravel(q.get("mean", np.zeros(3))))
        draws = component.family.sample(
            np.broadcast_to(lam[k], (20_000, *lam.shape[1:])), np.random.default_rng(5)
        )
        precisions = getattr(draws, "precision", draws)
        precision = precisions.mean(axis=0)
        error = precisions.std(axis=0) / np.sqrt(20_000)
        inverse = np.linalg.inv(covariances[k]) if covariances.ndim == 3 else 1.0 / covariances[k]
        assert np.all(np.abs(precision - inverse) < 4.5 * error)


@pytest.mark.parametrize("D", [1, 3])
@each_kind
def test_parameters_in_the_coordinates_of_the_data_predict_the_same(name, D):
    _, component, X, _, lam = setup(name, D=D)
    _, moved = component.in_data_coordinates(lam)
    if not np.any(center_of(component)):
        np.testing.assert_array_equal(moved, lam)
        return
    plain = replace(component, prior=moved[0], center=np.zeros(D))
    np.testing.assert_allclose(
        plain.log_predictive(X, moved), component.log_predictive(X, lam), rtol=1e-10
    )


def test_common_factors_separate_clusters_that_vary_less_than_a_factor():
    rng = np.random.default_rng(0)
    # Five factors and two differences between the means of three clusters stand out from noise.
    labels = rng.integers(3, size=1_500)
    means, loadings = 0.8 * rng.normal(size=(3, 40)), 2.0 * rng.normal(size=(5, 40))
    X = means[labels] + rng.normal(size=(1_500, 5)) @ loadings + rng.normal(size=(1_500, 40))
    factors = components.project_to_factors(X, np.ones(1_500), 2)
    assert factors.shape == (1_500, 7)
    np.testing.assert_allclose(np.cov(factors.T, ddof=0), np.eye(7), atol=1e-8)
    assert adjusted_rand_score(labels, KMeans(3, n_init=3, random_state=0).fit_predict(X)) < 0.1
    found = KMeans(3, n_init=3, random_state=0).fit_predict(factors)
    assert adjusted_rand_score(labels, found) > 0.9


def test_common_factors_depend_neither_on_units_nor_on_how_rows_are_repeated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(60, 6))
    times = rng.integers(1, 4, size=60)
    positions = np.repeat(np.arange(60), times)
    units = [1.0, 100.0, 0.01, 1.0, 1.0, 7.0]
    factors = components.project_to_factors(X, times.astype(float), 2)[positions]
    repeated = components.project_to_factors((units * X)[positions], np.ones(times.sum()), 2)
    # The signs of factors are arbitrary, so that inner products of rows are compared.
    np.testing.assert_allclose(repeated @ repeated.T, factors @ factors.T, atol=1e-8)


def test_constant_columns_change_no_common_factor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 12)) + rng.normal(size=(300, 12))
    factors = components.project_to_factors(X, np.ones(300), 2)
    # The mean of 0.1 has a rounding error, and more than half of all directions are empty.
    X = np.column_stack([X, np.full((300, 20), 0.1), X[:, :4] + X[:, 4:8]])
    again = components.project_to_factors(X[:, :32], np.ones(300), 2)
    assert again.shape == factors.shape
    np.testing.assert_allclose(again @ again.T, factors @ factors.T, atol=1e-8)
    dependent = components.project_to_factors(X, np.ones(300), 2)
    assert dependent.shape[1] <= 12


def test_common_factors_of_columns_of_which_one_is_the_sum_of_others_are_finite():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X = np.column_stack([X, X.sum(axis=1), np.ones(50)])
    factors = components.project_to_factors(X, np.ones(50), 2)
    assert np.isfinite(factors).all() and factors.shape[1] >= 2


def test_the_least_normal_directions_separate_clusters_of_one_covariance():
    # Two clusters differ in one direction of ten. All directions have the same variance.
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=2_000)
    rows = rng.standard_normal((2_000, 10))
    rows[:, 0] = (rows[:, 0] + 6.0 * labels - 3.0) / np.sqrt(10.0)
    turn = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    found = components.project_to_least_normal(rows @ turn, np.ones(2_000), 2)
    assert found.shape == (2_000, 2)
    np.testing.assert_allclose(found.T @ found / 2_000, np.eye(2), atol=0.01)
    assert np.abs(np.corrcoef(found.T, labels)[-1, :-1]).max() > 0.94
    variances = components.project_to_principal(rows @ turn, np.ones(2_000), 2)
    assert np.abs(np.corrcoef(variances.T, labels)[-1, :-1]).max() < 0.8
