"""Bounds, slopes, predictives and draws of negative binomials agree with quadrature."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from models._textbook import NB_SIZES, log_binomials
from scipy.special import betaln, logsumexp
from scipy.stats import beta, nbinom, poisson

from skvt import MemoizedDPMixture
from skvt.components import specs
from skvt.contracts import RowBatch
from skvt.models.mixture import (
    Mixture,
    NegativeBinomial,
    Poisson,
    _negative_binomial,
    make_exposure_points,
)
from skvt.models.mixture._negative_binomial import SizesLearner
from skvt.models.mixture._weights import StickBreaking
from skvt.models.mixture.components import ConjugateComponent
from skvt.rows import dense

F8 = np.dtype(np.float64)


def exposed(n=40, *, seed=0, spread=1.15):
    """Draw counts of two columns in proportion to the exposures in the last column."""
    rng = np.random.default_rng(seed)
    e = np.exp(rng.uniform(-spread, spread, n))
    X = rng.poisson(e[:, None] * rng.gamma(0.7, 1.0 / 0.7, (n, 2)) * [3.0, 0.2])
    return np.column_stack([X, e])


def component_for(X, *, exposure="column"):
    e = X[:, -1] if exposure == "column" else X.sum(axis=1)
    points = make_exposure_points(e.min(), e.max())
    component = NegativeBinomial(
        np.empty((2, 0)), F8, points, exposure=exposure, typical=float(e.mean())
    )
    return component.with_prior(np.array([1.0, 1.5]), np.array([0.3, 2.0]), np.ones(16))


def plain_component(D):
    """Return a component of D columns without exposure, with shapes and rates of 1."""
    component = NegativeBinomial(np.empty((D, 0)), F8, np.ones(1))
    return component.with_prior(np.ones(D), np.ones(D), np.ones(16))


def after(X, component=None):
    """Return the component and its parameters after the rows."""
    component = component or component_for(X)
    return component, component.natural_parameters(component.features(X).sum(axis=0)[None])


def peak_memory(call):
    """Return the result of a call, and the largest number of bytes that it held."""
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


@pytest.mark.parametrize("n_points", [1, 9])
@pytest.mark.parametrize("mean", [0.01, 4.0, 1000.0])
def test_priors_with_large_shapes_have_the_given_probabilities_of_sizes(n_points, mean):
    points = make_exposure_points(1.0, 1.0) if n_points == 1 else make_exposure_points(0.5, 2.0)
    component = NegativeBinomial(np.empty((3, 0)), F8, points)
    shape, expected = np.array([1.0, 50.0, 1000.0]), np.linspace(1.0, 2.0, 16) / 24.0
    component = component.with_prior(shape, shape / mean, expected)
    probabilities = component.family.condition_on_sizes(component.prior).probability
    np.testing.assert_allclose(probabilities, np.tile(expected, (3, 1)), rtol=1e-5)
    np.testing.assert_allclose(component.family.log_normalizer(component.prior), 0.0, atol=1e-6)


def log_marginal_of_sizes(x, e, shape, rate, typical):
    """Return the log of p(x | r_g) for each size by the trapezoidal rule over log b."""
    grid, step = np.linspace(-25.0, 25.0, 5_001, retstep=True)
    b, out = np.exp(grid), []
    for g, r in enumerate(NB_SIZES):
        a = 1.0 + r * rate / typical
        logs = a * grid - (a + shape) * np.log(b + typical) + shape * np.log(typical)
        logs -= betaln(a, shape)
        for count, own, binomial in zip(x, e, log_binomials(x)[:, g], strict=True):
            logs += binomial + r * grid - (r + count) * np.log(b + own) + count * np.log(own)
        out.append(logsumexp(logs) + np.log(step))
    return np.array(out)


def test_learned_probabilities_of_dispersions_maximise_the_evidence():
    """Steps of EM find the maximum of the sum of log evidences and of the log prior.

    The prior is the density Dirichlet(1.5, ..., 1.5), which counts as half a column for each size.
    """
    X = exposed(60)
    X[:, 2] = 2.5
    component = component_for(X)
    shape, rate = np.array([1.0, 1.5]), np.array([0.3, 2.0])
    parts = np.split(X, 3)
    logs = np.empty((3, 2, 16))
    for k, part in enumerate(parts):
        for d in range(2):
            logs[k, d] = log_evidence_of_equal_exposures(part[:, d], 2.5, shape[d], rate[d])
    logs = logs.reshape(6, 16)
    share = np.full(16, 1.0 / 16.0)
    for _ in range(5_000):
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True)) * share
        share = (posterior / posterior.sum(axis=1, keepdims=True)).sum(axis=0) + 0.5
        share /= share.sum()
    best = logsumexp(logs, b=share, axis=1).sum() + 0.5 * np.log(share).sum()
    sums = np.stack([component.features(part).sum(axis=0) for part in parts])
    learner = SizesLearner()
    for _ in range(30):
        component = learner.learn_prior(component, sums)
    learned = learner.learned_values(component)["dispersion_prior"][::-1]
    assert learned.sum() == pytest.approx(1.0)
    found = logsumexp(logs, b=learned, axis=1).sum() + 0.5 * np.log(learned).sum()
    assert best - 0.02 < found < best + 1e-9


@pytest.mark.parametrize("counts", [(0.0, 2.0), (3.0, 0.0, 9.0), tuple(range(12))])
def test_marginals_of_rates_have_the_quantiles_over_all_sizes(counts):
    """A grid has the joint posterior of size and rate."""
    plain = NegativeBinomial(np.empty((1, 0)), F8, np.ones(1))
    component = plain.with_prior(np.array([1.5]), np.array([0.4]), np.ones(16))
    component, lam = after(np.array(counts)[:, None], component)
    rates = component.marginals(lam)[0]
    odds, cells = np.exp(np.linspace(-25.0, 25.0, 15_001)), []
    for r in NB_SIZES:  # b / (b + 1) ~ Beta(1 + .4 r, 1.5)
        p, rate = odds / (1.0 + odds), r / odds
        logs = beta.logpdf(p, 1.0 + 0.4 * r, 1.5) + np.log(p * (1.0 - p))
        logs += sum(nbinom.logpmf(x, r, p) for x in counts)
        cells.append((rate, np.exp(logs)))
    rate, mass = (np.concatenate(part) for part in zip(*cells, strict=True))
    order = np.argsort(rate)
    below = np.cumsum(mass[order]) / mass.sum()
    for share in (0.025, 0.5, 0.975):
        expected = rate[order][np.searchsorted(below, share)]
        assert rates.quantile(share)[0, 0] == pytest.approx(expected, rel=5e-3)


def test_intervals_of_dispersions_cover_drawn_dispersions():
    """With 1,000 rows, one size of the grid has nearly all of the probability."""
    rng = np.random.default_rng(0)
    dispersion = np.exp(rng.uniform(np.log(0.05), np.log(5.0), 200))
    X = rng.poisson(5.0 * rng.gamma(1.0 / dispersion, dispersion, (1_000, 200))).astype(float)
    component, lam = after(X, plain_component(200))
    low, high = (component.marginals(lam)[1].quantile(p)[0] for p in (0.025, 0.975))
    assert np.all(low < high)
    # The standard error of the share is .015.
    assert 0.9 < np.mean((low <= dispersion) & (dispersion <= high)) <= 1.0


def log_evidence_of_equal_exposures(x, e, shape, rate):
    """Return the log of p(x | r_g) for each size, where all exposures are e."""
    a = 1.0 + NB_SIZES * rate / e
    logs = log_binomials(x).sum(axis=0) - betaln(a, shape)
    return logs + betaln(a + x.size * NB_SIZES, shape + x.sum())


def test_the_bound_is_slightly_below_the_evidence_and_exact_for_equal_exposures():
    shape, rate = np.array([1.0, 1.5]), np.array([0.3, 2.0])
    for equal in (False, True):
        X = exposed()
        X[:, 2] = 2.5 if equal else X[:, 2]
        component = component_for(X)
        found = component.column_evidence(component.features(X).sum(axis=0)[None])[0, :2]
        for d in range(2):
            parts = (
                log_evidence_of_equal_exposures(X[:, d], 2.5, shape[d], rate[d])
                if equal
                else log_marginal_of_sizes(X[:, d], X[:, 2], shape[d], rate[d], component.typical)
            )
            gap = logsumexp(parts) - np.log(16.0) - X[:, d] @ np.log(X[:, 2]) - found[d]
            assert abs(gap) < 1e-6 if equal else -1e-5 < gap < 0.1


def test_expected_logarithms_are_slopes_of_the_log_normalizer():
    component, lam = after(exposed())
    t = component.family.expectation(lam)[0]
    for d, i in [(0, 3), (0, 18), (1, 20), (0, 30), (1, 33)]:
        change = np.zeros_like(lam)
        change[0, d, i] = 1e-4
        high, low = (component.family.log_normalizer(lam + sign * change) for sign in (1, -1))
        assert t[d, i] == pytest.approx((high - low)[0, d] / 2e-4, rel=1e-6, abs=1e-8)


def test_polynomials_interpolate_logarithms_between_the_points_of_exposure():
    component = component_for(exposed())
    e = np.exp(np.linspace(-1.1, 1.1, 57))
    L = component._evaluate_polynomials(e)
    for b in (1e-3, 0.3, 1.0, 40.0, 1e4):
        np.testing.assert_allclose(L @ np.log(b + component.points), np.log(b + e), atol=3e-6)


def test_predictive_densities_sum_to_one_and_are_those_of_draws():
    X, n = exposed(), 40_000
    component, lam = after(X)
    row = np.array([np.nan, np.nan, 2.0])
    draws = component.conditional_sample(np.tile(row, (n, 1)), lam[0], np.random.default_rng(1))
    mean = component.conditional_mean(row[None], lam)[0, 0]
    np.testing.assert_allclose(mean, [*2.0 * component.expected_rates(lam)[0], 2.0])
    for d in range(2):
        assert draws[:, d].mean() == pytest.approx(mean[d], abs=5 * draws[:, d].std() / n**0.5)
    rows = np.tile(row, (20_000, 1))
    rows[:, 0] = np.arange(20_000)
    p = np.exp(component.log_predictive(rows, lam)[:, 0])
    assert p.sum() == pytest.approx(1.0, abs=1e-4)
    for value in range(4):  # The densities approximate the posterior of the rate.
        assert np.mean(draws[:, 0] == value) == pytest.approx(p[value], abs=5e-3)


def test_predictives_with_exposures_are_close_to_the_exact_ones():
    X = exposed(400)
    component, lam = after(X)
    phi = component.family.sample(np.broadcast_to(lam[0], (4_000, *lam.shape[1:])),
                                  np.random.default_rng(0))  # fmt: skip
    for row in ([0.0, 0.0, 0.4], [3.0, 1.0, 3.0], [30.0, 0.0, 1.0]):
        mean = row[2] * phi.rate
        logs = nbinom.logpmf(row[:2], phi.size, phi.size / (phi.size + mean)).sum(axis=1)
        p = np.exp(logs)
        found = np.exp(component.log_predictive(np.array([row]), lam)[0, 0])
        assert found == pytest.approx(p.mean(), abs=5.0 * p.std() / 4_000**0.5)


@pytest.mark.parametrize("kind", ["negative binomial", "Poisson", "Poisson, row_total"])
def test_features_of_sparse_rows_are_those_of_dense_ones(kind):
    X = exposed()
    X[3, 0] = X[7] = np.nan
    X[4, 0] = 5_000.0
    X[:, -1] = np.nan_to_num(X[:, -1], nan=1.0)
    if kind == "negative binomial":
        component = component_for(exposed())
    else:
        exposure = "row_total" if "row" in kind else "column"
        prior = np.ones((3 if "row" in kind else 2, 2))
        component = Poisson(prior, F8, sparse=True, exposure=exposure)
    features = component.features(sp.csr_array(X))
    assert sp.issparse(features)
    np.testing.assert_allclose(features.toarray(), component.features(X), atol=1e-12)
    lam = component.natural_parameters(features.toarray().sum(axis=0)[None])
    np.testing.assert_allclose(
        component.log_predictive(sp.csr_array(X), lam), component.log_predictive(X, lam)
    )


def test_fits_of_rows_to_themselves_are_interpolated():
    X, rng = exposed(), np.random.default_rng(1)
    X[:, :2] = np.where(rng.random((len(X), 2)) < 0.2, np.nan, X[:, :2])
    component = component_for(X)
    features = component.features(X)
    whole, _ = ConjugateComponent.fits_to_self(component, features)
    for held in (features, sp.csr_array(features)):
        own, size = component.fits_to_self(held)
        np.testing.assert_allclose(own, whole, rtol=1e-3, atol=1e-9)
        assert (size >= (1.0 - 1e-3) * np.abs(whole)).all()


def test_statistics_and_merges_take_less_memory_than_all_features():
    rng, n, D, K = np.random.default_rng(0), 3_000, 300, 40
    X, resp = rng.poisson(0.5, (n, D)).astype(float), rng.dirichlet(np.ones(K), size=n)
    model = Mixture(StickBreaking(1.0), plain_component(D))

    def work():
        stats = model.make_local_result(RowBatch(X, np.ones(n), np.arange(n)), resp).stats
        model.merge_gains(stats, *np.triu_indices(K, 1))

    assert peak_memory(work)[1] < 100e6 < n * 18 * D * 8


def test_a_poisson_with_exposures_follows_the_textbook():
    X = exposed()
    for sparse in (False, True):
        component = Poisson(np.array([[2.0, 0.5], [1.0, 0.7]]), F8, sparse, exposure="column")
        lam = component.natural_parameters(component.features(X).sum(axis=0)[None])
        np.testing.assert_allclose(lam[0, :, 0], X[:, :2].sum(axis=0) + np.array([2.0, 1.0]))
        np.testing.assert_allclose(lam[0, :, 1], X[:, 2].sum() + np.array([0.5, 0.7]))
        shape, rate = lam[0].T
        expected = nbinom.logpmf(X[:, :2], shape, rate / (rate + X[:, 2:])).sum(axis=1)
        np.testing.assert_allclose(component.log_predictive(X, lam)[:, 0], expected)
        # The constant of the features has all terms that do not depend on the rates.
        t = np.stack([np.log([[1.5, 0.4]]), [[-1.5, -0.4]]], axis=-1)
        logs = poisson.logpmf(X[:, :2], X[:, 2:] * [1.5, 0.4]).sum(axis=1)
        np.testing.assert_allclose(component.features(X) @ component.table_at(t)[0], logs)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("exposure_range", [(20, 21), (5, 200)])
def test_rows_whose_total_is_zero_have_density_one_and_no_statistics(convert, exposure_range):
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.uniform(*exposure_range, size=(60, 1)) * [0.1, 0.2, 0.3, 0.4] + 1.0)
    spec = specs.NegativeBinomial(exposure="row_total")
    component, _, _ = specs.build_component(spec, X.astype(F8), np.ones(60), None)
    # In the second row, the total of the observed counts is zero.
    empty = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, np.nan, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    rows = convert(empty)
    features = component.features(rows)
    statistics = component.natural_sums(dense(features))
    np.testing.assert_allclose(statistics, 0.0, atol=1e-12)
    np.testing.assert_allclose(component.fits_to_self(features)[0], 0.0, atol=1e-11)
    lam = component.natural_parameters(component.features(X.astype(F8)).sum(axis=0)[None])
    np.testing.assert_allclose(component.log_predictive(rows, lam), 0.0, atol=1e-12)
    table = component.feature_coefficients(component.family.expectation(lam)).T
    log_densities, _ = component.log_densities_and_sums(rows, table)
    np.testing.assert_allclose(log_densities, 0.0, atol=1e-12)


def test_rows_of_zeros_are_no_component_of_their_own():
    rng = np.random.default_rng(0)
    rates = rng.gamma(1.0, 1.0, (2, 15))[rng.integers(2, size=300)]
    X = rng.poisson(rng.gamma(4.0, 1.5, (300, 1)) * rates).astype(F8)
    component = specs.NegativeBinomial(exposure="row_total")
    mixture = MemoizedDPMixture(components=component, random_state=0)
    zeros = np.zeros((30, 15))
    assert mixture.fit(X).n_components_ == mixture.fit(np.vstack([X, zeros])).n_components_ == 2
    np.testing.assert_allclose(mixture.score_samples(zeros), 0.0, atol=1e-12)
    np.testing.assert_allclose(mixture.predict_proba(zeros), 30 * [mixture.weights_], atol=1e-3)
    unknown = np.where(np.arange(15) < 5, np.nan, zeros)
    np.testing.assert_array_equal(mixture.impute(unknown), 0.0)


def test_a_row_total_is_extrapolated_over_missing_values():
    shares = np.array([0.5, 0.3, 0.2])
    component = Poisson(np.ones((3, 2)), F8, exposure="row_total", typical=9.0, shares=shares)
    X = np.array([[5.0, 3.0, 2.0], [5.0, np.nan, 2.0], [np.nan] * 3, [0.0] * 3])
    for held in (X, sp.csr_array(X)):
        np.testing.assert_allclose(component.split_exposure(held)[1], [10.0, 10.0, 9.0, 0.0])


@pytest.mark.parametrize("exposure", ["none", "column", "row_total"])
def test_densities_and_sums_equal_those_by_features(exposure):
    rng = np.random.default_rng(0)
    X = exposed(80)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, -1] = np.exp(rng.uniform(-1.0, 1.0, 80))
    if exposure != "column":
        X = X[:, :2] if exposure == "none" else np.nan_to_num(X[:, :2]) + 1.0
    component = component_for(exposed(80), exposure="column")
    component = replace(component, exposure=exposure, shares=np.array([0.7, 0.3]))
    resp = rng.dirichlet(np.ones(3), 80)
    features = component.features(X)
    sums = resp.T @ features
    np.testing.assert_allclose(component.weighted_sums(X, resp), sums, atol=1e-10)
    table = component.expected_table(component.natural_parameters(sums)).T
    log_densities, sums_of = component.log_densities_and_sums(X, table)
    np.testing.assert_allclose(log_densities, features @ table, atol=1e-10)
    np.testing.assert_allclose(sums_of(resp), sums, atol=1e-10)


def test_tables_of_different_counts_take_no_more_memory_than_features():
    rng = np.random.default_rng(0)
    n, D, K = 20_000, 10, 100
    X, resp = rng.integers(0, n, (n, D)).astype(float), rng.dirichlet(np.ones(K), size=n)
    component = plain_component(D)
    expected = ConjugateComponent.weighted_sums(component, X, resp)
    table = np.zeros((expected.shape[1], K))

    def work():
        component.log_densities_and_sums(X[:512], table)[1](resp[:512])
        return component.weighted_sums(X, resp)

    found, peak = peak_memory(work)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert peak < 40e6 < D * n * K * 8


def test_features_of_few_columns_are_computed():
    # They take less time than tables of counts.
    X = np.random.default_rng(0).poisson(3.0, (512, 10)).astype(float)
    for D, has_features in ((5, True), (10, False)):
        assert (plain_component(D)._convert_to_count_rows(X[:, :D], 5) is None) == has_features


def test_sums_of_features_are_divided_once(monkeypatch):
    # Memory of 2 ** 20 entries has the 1802 features of 581 rows.
    sizes, features = [], NegativeBinomial.features
    monkeypatch.setattr(
        NegativeBinomial, "features", lambda self, X: sizes.append(X.shape[0]) or features(self, X)
    )
    plain_component(100).weighted_sums(sp.csr_array((4648, 100)), np.ones((4648, 1)))
    assert sizes == [581] * 8


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_densities_of_one_column_compute_no_other_column(monkeypatch, container):
    X = np.random.default_rng(0).poisson(2.0, (30, 4)).astype(float)
    component, lam = after(X, plain_component(4))
    alone, lam_alone = after(X[:, [2]], plain_component(1))
    X[:, [0, 1, 3]] = np.nan
    n_columns, compute = [], _negative_binomial._log_densities

    def count_columns(q, *entries):
        n_columns.append(len(q.a))
        return compute(q, *entries)

    monkeypatch.setattr(_negative_binomial, "_log_densities", count_columns)
    log_densities = component.log_predictive(container(X), lam)
    assert set(n_columns) == {1}
    np.testing.assert_allclose(log_densities, alone.log_predictive(X[:, [2]], lam_alone))


def test_fits_of_rows_to_themselves_are_right_beside_huge_counts():
    # The product of column and largest count is not exact in float64.
    X = np.tile(np.random.default_rng(0).integers(0, 3, (2, 40)).astype(float), (20, 1))
    X[0, 0] = 1e15
    component = plain_component(40)
    features = component.features(X)
    expected = [component.fits_to_self(row[None]) for row in features]
    for found, own in zip(
        component.fits_to_self(features), zip(*expected, strict=True), strict=True
    ):
        np.testing.assert_allclose(found[1:], np.ravel(own)[1:], rtol=1e-12)
