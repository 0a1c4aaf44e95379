"""Covariates have effects on shares of topics and clusters, and clusters have outcomes."""

from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq, minimize
from scipy.special import expit, softmax
from scipy.stats import t as student
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from skvt import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    MemoizedHDP,
    StructuredBernoulliMixture,
    StructuredLDA,
    TemperedLDA,
    covariate_effects,
    outcome_by_cluster,
)
from skvt._results import _shares
from skvt._results._regression import Regression
from skvt.components import Bernoulli
from skvt.datasets import make_topic_corpus

# So many pseudo-counts that draws of topics do not differ.
CERTAIN = 1e14


class Topics(BaseEstimator):
    """A topic model with these pseudo-counts."""

    def __init__(self, components):
        self.components_ = self.exp_dirichlet_component_ = np.array(components, np.float64)

    def fit(self, X):
        return self


class Classes(BaseEstimator):
    """A mixture with these responsibilities of rows, which no refit changes."""

    verbose = 0

    def __init__(self, chances):
        self.chances_ = np.array(chances, np.float64)

    def fit(self, X):
        return self

    def _make_refits(self, X, weights):
        chances = self.chances_[weights > 0.0]
        weights = weights[weights > 0.0]
        return SimpleNamespace(resp=chances, draw=lambda rng: (weights, chances, chances))

    def _make_label_column(self, n_clusters, clusters):
        return {}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def corpus(rng):
    """Topics, proportions of documents, and the counts that these have in the mean."""
    topics, theta = rng.dirichlet(np.full(30, 0.2), 3), rng.dirichlet([1.0, 2.0, 0.5], 40)
    return topics, theta, rng.integers(1, 50, 40)[:, None] * (theta @ topics)


def least_squares(design, values, groups=None):
    """Coefficients, moderated errors and their degrees of freedom, by matrices (n, n)."""
    n = len(design)
    to_coefficients = np.linalg.solve(design.T @ design, design.T)
    make_residuals = np.eye(n) - design @ to_coefficients
    residuals = make_residuals @ values
    groups = np.arange(n) if groups is None else groups
    in_one_group = groups[:, None] == groups
    pairs = in_one_group & ~np.eye(n, dtype=bool)
    variance = residuals @ residuals / np.trace(make_residuals)
    products = (residuals @ pairs @ residuals) / max(pairs.sum(), 1)
    covariance = variance * np.eye(n) + np.clip(products, 0.0, variance) * pairs
    kurtosis = max(np.mean(residuals**4) / np.mean(residuals**2) ** 2 - 3.0, 0.0)
    variances, degrees = [], []
    for row in to_coefficients:
        # The sandwich variance is a quadratic form of the values, and `row @ row` is the variance
        # of the coefficient if that of the values is 1.
        form = make_residuals @ (np.outer(row, row) * in_one_group) @ make_residuals
        robust, pooled = (
            values @ form @ values * (row @ row) / np.trace(form),
            row @ covariance @ row,
        )
        degree = np.trace(form) ** 2 / np.trace(form @ form) / (1.0 + kurtosis / 2.0)
        variances.append(max(robust, (degree * robust + 4.0 * pooled) / (degree + 4.0)))
        of_normal_errors = degree * (1.0 + kurtosis / 2.0)
        total = degree + 4.0
        degrees.append(total if pooled > robust else min(total, of_normal_errors))
    return to_coefficients @ values, np.sqrt(variances), np.array(degrees)


# ------------------------------------------------------------------------------------ estimates
@pytest.mark.parametrize("grouped", [False, True])
def test_effects_are_least_squares_on_the_true_shares_with_robust_errors(corpus, rng, grouped):
    topics, theta, X = corpus
    z = rng.normal(size=40)
    groups = rng.integers(7, size=40) if grouped else None
    sizes = CERTAIN * np.array([[1.0], [5.0], [2.0]])
    table = covariate_effects(Topics(sizes * topics), X, z, cluster=groups)
    assert table["term"].tolist() == ["Intercept", "x0"] * 3
    for k in range(3):
        design = np.c_[np.ones(40), z]
        coefficients, errors, degrees = least_squares(design, theta[:, k], groups)
        rows = table[table["topic"] == k]
        np.testing.assert_allclose(rows["effect"], coefficients, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(rows["standard_error"], errors, rtol=1e-5)
        width = student.ppf(0.975, degrees) * errors
        np.testing.assert_allclose(rows["high"] - rows["low"], 2.0 * width, rtol=1e-5)
    assert table["between_fits"].isna().all() and (table["n_fits"] == 1).all()


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("clustered", [False, True])
def test_intervals_of_a_small_group_miss_a_null_effect_as_often_as_they_should(size, clustered):
    # Shares of 200 topics, whose errors are normal and nearly independent between topics.
    rng, n_topics = np.random.default_rng(size), 200
    group = np.where(np.arange(90) < 3 * size, "few", "many")
    author = np.repeat(np.arange(30), 3)
    errors = rng.normal(size=(90, n_topics))
    # Documents of an author resemble each other if they are clustered.
    X = 1.0 + 0.05 * (errors[author] + errors if clustered else errors)
    rows = slice(None) if clustered else slice(2 * size, None)
    table = covariate_effects(
        Topics(CERTAIN * np.eye(n_topics)),
        X[rows],
        pd.DataFrame({"group": group[rows]}),
        cluster=author if clustered else None,
        n_draws=2,
    )
    of_group = table[table["term"] == "group[T.many]"]
    # The standard error of the rate is .015 if it is .05.
    assert np.mean((of_group["low"] > 0.0) | (of_group["high"] < 0.0)) < 0.1


@pytest.mark.parametrize("size", [3, 5])
def test_intervals_of_a_small_group_whose_shares_vary_more_are_wide_enough(size):
    rng, n_topics = np.random.default_rng(size), 400
    is_few = np.arange(300) < size
    X = 1.0 + 0.05 * np.where(is_few, 4.0, 1.0)[:, None] * rng.normal(size=(300, n_topics))
    shares = Topics(CERTAIN * np.eye(n_topics))
    table = covariate_effects(shares, X, is_few.astype(float), n_draws=2)
    of_group = table[table["term"] == "x0"]
    # The standard error of the rate is .011 if it is .05.
    assert np.mean((of_group["low"] > 0.0) | (of_group["high"] < 0.0)) < 0.08


@pytest.mark.parametrize("link", ["identity", "logit"])
@pytest.mark.parametrize("size", [4, 8, 15])
@pytest.mark.parametrize("clustered", [False, True])
def test_intervals_of_a_small_group_allow_for_topics_that_it_lacks_by_chance(size, clustered, link):
    # Shares of 200 topics are nearly independent. Most of them are near 0, and few are large.
    rng, n_topics = np.random.default_rng(size), 200
    X = 1e-3 + rng.beta(0.1, 0.9, (300, n_topics))
    author = np.arange(300)
    if clustered:
        author = np.repeat(author, 2)
        X = X[author] + 0.1 * rng.beta(0.1, 0.9, (600, n_topics))
    table = covariate_effects(
        Topics(CERTAIN * np.eye(n_topics)),
        X,
        (author < size).astype(float),
        cluster=author if clustered else None,
        n_draws=2,
        link=link,
    )
    of_group = table[table["term"] == "x0"]
    # By the sandwich variance alone, 10 to 40 of 100 intervals exclude 0.
    assert np.mean((of_group["low"] > 0.0) | (of_group["high"] < 0.0)) < 0.08


@pytest.mark.parametrize("clustered", [False, True])
def test_variances_with_unequal_weights_are_unbiased_for_equal_errors(clustered, rng):
    """The factor and the degrees of freedom are those of the quadratic form, by dense matrices."""
    n = 30
    X = np.column_stack([np.ones(n), np.arange(n) < 4, rng.normal(size=n)])
    weights, groups = rng.lognormal(size=n), np.arange(n) // 5 if clustered else np.arange(n)
    indicators = (groups == np.unique(groups)[:, None]).astype(float)
    regression = Regression(X, np.eye(3), weights, indicators if clustered else None, "identity")
    factors, degrees = regression.compute_corrections(np.eye(3))
    to_coefficients = np.linalg.solve(X.T @ (weights[:, None] * X), (weights[:, None] * X).T)
    make_residuals = np.eye(n) - X @ to_coefficients
    for factor, degree, a in zip(factors, degrees, to_coefficients, strict=True):
        root = (indicators * a) @ make_residuals
        form = root @ root.T
        assert factor == pytest.approx(a @ a / np.trace(form), rel=1e-9)
        assert degree == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form), rel=1e-9)
    if not clustered:
        # The pooled covariance is a quadratic form of the errors. For errors of variance 1, its
        # expectation is the sum of its values at the unit vectors.
        expectation = np.sum([regression.fit(errors).pooled for errors in np.eye(n)], axis=0)
        np.testing.assert_allclose(expectation, to_coefficients @ to_coefficients.T, rtol=1e-9)


def test_the_pooled_variance_of_log_odds_has_one_dispersion(rng):
    sizes, group = np.array([5, 20]), np.repeat([0, 1], [5, 20])
    shares = rng.uniform(0.0, [[0.2], [0.8]], (2, 20))[group, np.arange(25) % 20]
    regression = Regression(np.eye(2)[group], np.eye(2), np.ones(25), None, "logit")
    means = np.bincount(group, shares) / sizes
    variances = means * (1.0 - means)
    dispersion = np.sum((shares - means[group]) ** 2) / np.sum((sizes - 1) * variances)
    pooled = regression.fit(shares).pooled
    np.testing.assert_allclose(pooled, np.diag(dispersion / (sizes * variances)), atol=1e-7)


def test_an_effect_that_is_0_by_definition_has_an_interval_of_width_0(corpus):
    topics, _, X = corpus
    frame, contrasts = pd.DataFrame({"a": list("xy") * 20}), {"first": {"a[T.x]": 1.0}}
    table = covariate_effects(Topics(CERTAIN * topics), X, frame, contrasts=contrasts)
    assert (table[["effect", "low", "high"]] == 0.0).all(axis=None)


def test_a_share_that_one_row_determines_has_no_interval(corpus):
    topics, theta, X = corpus
    frame = pd.DataFrame({"party": ["x", *"ab" * 19, "a"]})
    at = pd.DataFrame({"party": ["x", "a"]})
    table = covariate_effects(Topics(CERTAIN * topics), X, frame, at=at)
    np.testing.assert_allclose(table["effect"][:1], theta[0, 0], atol=1e-6)
    assert table["low"].isna().tolist() == table["high"].isna().tolist() == [True, False] * 3


def test_a_row_of_weight_two_counts_as_two_rows(corpus, rng):
    topics, _, X = corpus
    z, weights = rng.normal(size=40), rng.integers(0, 3, 40)
    model = Topics(100.0 * topics)
    weighted = covariate_effects(model, X, z, sample_weight=weights)
    repeated = covariate_effects(model, np.repeat(X, weights, axis=0), np.repeat(z, weights))
    np.testing.assert_allclose(weighted["effect"], repeated["effect"], atol=1e-10)


def test_short_documents_do_not_pull_effects_to_zero(rng):
    topics = rng.dirichlet(np.full(60, 0.3), 4)
    covered, slopes = [], []
    for _ in range(40):
        x = rng.integers(2, size=300)
        mean = np.where(x[:, None], [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4])
        theta = np.array([rng.dirichlet(2.0 * row) for row in mean])
        X = rng.multinomial(6, theta @ topics)
        table = covariate_effects(Topics(CERTAIN * topics), X, x, n_draws=2)
        of_x = table[table["term"] == "x0"]
        truth = np.array([0.3, 0.1, -0.1, -0.3])
        slopes.append(of_x["effect"])
        covered.append((of_x["low"] < truth) & (truth < of_x["high"]))
    np.testing.assert_allclose(np.mean(slopes, axis=0), truth, atol=0.02)
    assert 0.9 <= np.mean(covered) <= 0.99


def test_draws_have_the_variance_of_effects_under_the_posterior_of_topics(corpus, rng):
    topics, _, X = corpus
    z, lam = rng.normal(size=40), 300.0 * topics + 0.5
    # Shares are linear in words: a change delta of topics changes effects b by -b delta G.
    mean = lam / lam.sum(axis=1, keepdims=True)
    sizes = lam.sum(axis=1) / lam.sum()
    words = sizes @ mean
    chances = (sizes[:, None] * mean / words).T
    G = chances @ np.linalg.inv(mean @ chances)
    design = np.c_[np.ones(40), z]
    shares = X @ G / X.sum(axis=1, keepdims=True)
    b = np.linalg.lstsq(design, shares, rcond=None)[0][1]
    expected = np.zeros(3)
    for k in range(3):
        covariance = (np.diag(mean[k]) - np.outer(mean[k], mean[k])) / (lam[k].sum() + 1.0)
        expected += b[k] ** 2 * np.diag(G.T @ covariance @ G)
    table = covariate_effects(Topics(lam), X, z, n_draws=1000, random_state=0)
    of_z = table[table["term"] == "x0"]
    np.testing.assert_allclose(of_z["effect"], b, atol=1e-10)
    within = [least_squares(design, shares[:, k])[1][1] ** 2 for k in range(3)]
    drawn = of_z["standard_error"] ** 2 - within
    np.testing.assert_allclose(drawn, expected, rtol=0.15, atol=0.02 * np.max(within))


def test_fits_are_matched_and_their_variance_is_added(corpus, rng):
    topics, _, X = corpus
    z = rng.normal(size=40)
    others = [topics, rng.dirichlet(20.0 * topics[2] + 0.1), rng.dirichlet(20.0 * topics[0] + 0.1)]
    fits = [
        Topics(CERTAIN * topics),
        Topics(CERTAIN * np.array([others[1], topics[0], topics[1]])),
        Topics(CERTAIN * np.array([topics[1], others[2]])),
    ]
    alone = [covariate_effects(fit, X, z) for fit in fits]
    places = {0: [(0, 0), (1, 1), (2, 1)], 1: [(0, 1), (1, 2), (2, 0)], 2: [(0, 2), (1, 0)]}
    table = covariate_effects(fits, X, z)

    def find_degrees(fit):
        """Return the degrees of freedom of the interval of a fit."""
        quantile = (fit["high"] - fit["low"]) / 2.0 / fit["standard_error"]
        return brentq(lambda degrees: student.ppf(0.975, degrees) - quantile, 1.0, 1e6)

    for k, partners in places.items():
        (row,) = table[(table["topic"] == k) & (table["term"] == "x0")].itertuples()
        of_fits = [alone[r].iloc[2 * j + 1] for r, j in partners]
        effects = np.array([fit["effect"] for fit in of_fits])
        R = len(partners)
        between = (1.0 + 1.0 / R) * effects.var(ddof=1)
        variance = np.mean([fit["standard_error"] ** 2 for fit in of_fits]) + between
        assert row.n_fits == R and row.effect == pytest.approx(effects.mean())
        assert row.standard_error == pytest.approx(np.sqrt(variance))
        assert row.between_fits == pytest.approx(between / variance, abs=1e-6)
        assert row.same_sign == np.sum(np.sign(effects) == np.sign(effects.mean()))
        # The variances within fits are fully dependent.
        within = np.mean([fit["standard_error"] ** 2 / find_degrees(fit) ** 0.5 for fit in of_fits])
        degrees = variance**2 / (within**2 + between**2 / (R - 1))
        width = student.ppf(0.975, degrees) * row.standard_error
        assert row.high - row.low == pytest.approx(2.0 * width, rel=1e-5)
        assert 0.0 < row.agreement <= 1.0


# ------------------------------------------------------------------------- links and predictions
def test_the_logit_link_is_logistic_regression_where_clusters_are_certain(rng):
    z = rng.normal(size=(80, 2))
    y = (rng.random(80) < expit(0.5 + z @ [1.0, -0.5])).astype(int)
    design = np.c_[np.ones(80), z]
    best = minimize(
        lambda b: np.logaddexp(0.0, design @ b).sum() - y @ design @ b, np.zeros(3), tol=1e-10
    )
    mixture = Classes(np.eye(2)[y])
    table = covariate_effects(mixture, np.zeros((80, 1)), z, link="logit")
    assert table.columns[0] == "cluster"
    np.testing.assert_allclose(table["effect"], [*-best.x, *best.x], atol=1e-4)
    with pytest.warns(UserWarning, match="at has rows outside the data: 'x0' is 0 to 50"):
        predicted = covariate_effects(
            mixture, np.zeros((80, 1)), z, link="logit", at=[[0.0, 1.0], [50.0, 0.0]]
        )
    assert predicted["term"].tolist() == ["x0=0.0, x1=1.0", "x0=50.0, x1=0.0"] * 2
    share = expit(best.x @ [1.0, 0.0, 1.0])
    np.testing.assert_allclose(predicted["effect"][[0, 2]], [1.0 - share, share], atol=1e-4)
    assert predicted[["low", "high"]].to_numpy().min() >= 0.0
    assert predicted[["low", "high"]].to_numpy().max() <= 1.0


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_units_and_origins_of_covariates_change_only_their_coefficients(rng, link):
    year, income = rng.integers(2018, 2025, 200), rng.lognormal(size=200)
    y = (rng.random(200) < expit(0.3 * (year - 2021) - 0.5 * income)).astype(int)
    mixture, X = Classes(np.eye(2)[y]), np.zeros((200, 1))
    weights = rng.uniform(0.5, 2.0, 200)

    def tables(origin, unit):
        frame = pd.DataFrame({"year": year - origin, "income": unit * income})
        options = {"link": link, "sample_weight": weights, "random_state": 0}
        effects = covariate_effects(mixture, X, frame, **options)
        return effects, covariate_effects(mixture, X, frame, at=frame[:5], **options)

    ends = ["effect", "low", "high", "standard_error"]
    effects, predictions = tables(year.mean(), 1.0)
    assert (effects[ends].abs() > 0.0).all(axis=None)
    intercepts = effects.set_index("term").loc["Intercept", "effect"].to_numpy()
    slopes = effects.set_index("term").loc["year", "effect"].to_numpy()
    for origin, unit in ((0.0, 1.0), (0.0, 1e9), (0.0, 1e-9), (-1.7e6, 1e9)):
        moved, moved_predictions = tables(origin, unit)
        for term, scale in (("year", 1.0), ("income", unit)):
            rows = effects["term"] == term
            np.testing.assert_allclose(scale * moved.loc[rows, ends], effects.loc[rows, ends], 1e-6)
        at_origin = moved.set_index("term").loc["Intercept", "effect"]
        np.testing.assert_allclose(at_origin, intercepts + (origin - year.mean()) * slopes, 1e-6)
        np.testing.assert_allclose(moved_predictions[ends], predictions[ends], 1e-6)


def test_a_share_that_is_never_positive_has_no_log_odds(corpus):
    topics, theta, X = corpus
    z = np.repeat([0.0, 1.0], 20)
    theta = np.where(z[:, None] == 1.0, theta * [0.0, 1.0, 1.0] - [0.01, 0.0, 0.0], theta)
    X = np.maximum(theta @ topics, 0.0)
    with pytest.warns(UserWarning, match="no estimates for some topics.*link='identity'"):
        table = covariate_effects(Topics(CERTAIN * topics), X, z, link="logit")
    missing = table.loc[table["effect"].isna(), "topic"]
    assert set(missing) == {0}


@pytest.mark.parametrize("link", ["identity", "logit"])
@pytest.mark.filterwarnings("ignore:The logit link gives no estimates")
def test_topics_that_words_do_not_distinguish_are_warned_of(rng, link):
    topics = rng.dirichlet(np.full(30, 0.2), 3)
    X = rng.multinomial(50, rng.dirichlet(np.ones(3), 200) @ topics)
    z = rng.integers(2, size=200)
    options = {"link": link, "random_state": 0}
    covariate_effects(Topics(1000.0 * topics), X, z, **options)
    alike = [*topics, 0.999 * topics[1] + 0.001 * rng.dirichlet(np.full(30, 0.2))]
    with pytest.warns(UserWarning, match=r"shares of the topics \[1, 3\].*Fit fewer topics"):
        covariate_effects(Topics(1000.0 * np.array(alike)), X, z, **options)


def test_mean_shares_that_no_line_fits_are_warned_of(rng):
    z = rng.uniform(-4.0, 4.0, 500)
    X, mixtures = np.zeros((500, 1)), {}
    for slope in (0.2, 3.0):
        y = (rng.random(500) < expit(slope * z)).astype(int)
        mixtures[slope] = Classes(np.eye(3)[y])
    covariate_effects(mixtures[0.2], X, z)
    with pytest.warns(UserWarning, match=r"clusters \[0, 1\] are outside.*Use link='logit'"):
        covariate_effects(mixtures[3.0], X, z)
    covariate_effects(Classes(np.eye(2)[y]), X, z, link="logit")


def test_clusters_that_rows_do_not_distinguish_are_warned_of(rng):
    kinds = rng.integers(2, size=200)
    chances = np.eye(3)[kinds]
    half = 0.5 + 0.01 * rng.normal(size=200)
    chances[:, 2] = chances[:, 1] * half
    chances[:, 1] *= 1.0 - half
    options = {"covariates": rng.normal(size=200), "random_state": 0}
    covariate_effects(Classes(np.eye(2)[kinds]), np.zeros((200, 1)), **options)
    with pytest.warns(UserWarning, match=r"the clusters \[1, 2\].*n_clusters='auto'"):
        covariate_effects(Classes(chances), np.zeros((200, 1)), **options)


def test_contrasts_and_predictions_are_sums_of_effects(corpus):
    topics, theta, X = corpus
    frame = pd.DataFrame({"party": list("abcd") * 10})
    model = Topics(CERTAIN * topics)
    means = [theta[i::4, 0].mean() for i in range(4)]
    effects = covariate_effects(model, X, frame)[:4]
    assert effects["term"].tolist() == ["Intercept", "party[T.b]", "party[T.c]", "party[T.d]"]
    contrasts = {"d - b": {"party[T.d]": 1.0, "party[T.b]": -1.0}}
    (difference,) = covariate_effects(model, X, frame, contrasts=contrasts)["effect"][:1]
    assert difference == pytest.approx(means[3] - means[1], abs=1e-6)
    predicted = covariate_effects(model, X, frame, at=pd.DataFrame({"party": ["c", "a"]}))[:2]
    np.testing.assert_allclose(predicted["effect"], [means[2], means[0]], atol=1e-6)
    assert predicted["term"].tolist() == ["party=c", "party=a"]
    error = theta[2::4, 0].std() / np.sqrt(9.0)
    assert predicted["standard_error"].iloc[0] == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize("formula", [None, "party", "C(party)", "party * z", "0 + party"])
def test_the_first_level_may_stand_in_contrasts(corpus, formula):
    if formula is not None:
        pytest.importorskip("formulaic")
    topics, theta, X = corpus
    frame = pd.DataFrame({"party": list("abcd") * 10})
    if formula == "party * z":
        frame["z"] = np.repeat([0.0, 1.0], 20)
    template = "C(party)[T.{}]" if formula == "C(party)" else "party[T.{}]"
    if formula == "0 + party":
        # Releases of formulaic differ in the names of indicators of all levels.
        terms = covariate_effects(Topics(CERTAIN * topics), X, frame, formula=formula)["term"]
        template = "party[T.{}]" if "party[T.c]" in set(terms) else "party[{}]"
    weights = {template.format("c"): 1.0, template.format("a"): -1.0}
    contrasts = {"c - a": weights, "a - c": {term: -w for term, w in weights.items()}}
    table = covariate_effects(
        Topics(CERTAIN * topics), X, frame, formula=formula, contrasts=contrasts
    )
    # In the design with interactions, the terms are effects in the rows with z = 0.
    rows = slice(0, 20) if formula == "party * z" else slice(None)
    shares = theta[rows, 0]
    expected = shares[2::4].mean() - shares[0::4].mean()
    np.testing.assert_allclose(table["effect"][:2], [expected, -expected], atol=1e-6)


# ----------------------------------------------------------------------------------- covariates
FRAMES = {
    "pandas": pd.DataFrame({"party": ["b", "a", "c", "a"] * 10, "age": np.arange(40.0) ** 2}),
    "polars": pl.DataFrame({"party": ["b", "a", "c", "a"] * 10, "age": np.arange(40.0) ** 2}),
    "levels and decimals": pd.DataFrame(
        {
            "party": pd.Categorical(list("ab") * 20, categories=list("zbay")),
            "age": [Decimal(i * i) for i in range(40)],
        }
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_and_formulas_have_the_same_terms(corpus, kind):
    pytest.importorskip("formulaic")
    topics, _, X = corpus
    model, frame = Topics(100.0 * topics), FRAMES[kind]
    plain = covariate_effects(model, X, frame, random_state=0)
    formula = covariate_effects(model, X, frame, formula="party + age", random_state=0)
    pd.testing.assert_frame_equal(plain, formula)
    if kind == "levels and decimals":
        assert list(frame["party"].cat.categories) == list("zbay")


def test_splines_keep_their_knots_for_new_rows(corpus, rng):
    pytest.importorskip("formulaic")
    topics, _, X = corpus
    frame = pd.DataFrame({"day": rng.uniform(0.0, 9.0, 40), "unused": [None] * 40})
    options = {"formula": "bs(day, df=4)"}
    model = Topics(CERTAIN * topics)
    everywhere = covariate_effects(model, X, frame, at=frame, **options)
    two = covariate_effects(model, X, frame, at=frame[3:5], **options)
    np.testing.assert_allclose(two["effect"][:2], everywhere["effect"][3:5])
    assert np.ptp(two["effect"][:2]) > 0.0


@pytest.mark.parametrize("formula", [None, "day"])
def test_predictions_outside_the_range_of_the_data_are_warned_of(corpus, formula):
    if formula:
        pytest.importorskip("formulaic")
    topics, _, X = corpus
    frame = pd.DataFrame({"day": range(1, 41)})
    predict = partial(covariate_effects, Topics(topics), X, frame, formula=formula)
    predict(at=pd.DataFrame({"day": [-0.9, 41.9], "other": [99, 99]}))
    for days, message in ([-1, 1], "'day' is -1 to 1, but 1 to 40"), ([1, 50], "'day' is 1 to 50"):
        with pytest.warns(UserWarning, match=f"at has rows outside the data: {message}"):
            predict(at=pd.DataFrame({"day": days}))


def test_without_covariates_in_the_formula_predictions_are_the_intercept(corpus):
    pytest.importorskip("formulaic")
    topics, _, X = corpus
    frame = pd.DataFrame({"year": np.arange(40.0)})
    model, options = Topics(CERTAIN * topics), {"formula": "1", "random_state": 0}
    intercepts = covariate_effects(model, X, frame, **options)
    predictions = covariate_effects(model, X, frame, at=frame[:2], **options)
    for row in range(2):
        np.testing.assert_allclose(predictions["effect"][row::2], intercepts["effect"])


PARTIES = {"party": ["Con", "Lab", "SNP", "Lab"] * 10, "day": range(40)}
NEW = pd.DataFrame({"party": ["lab"], "day": [1]})
# formulaic 1.0 has no cubic regression splines, and its B-splines take dates.
try:
    from formulaic.transforms import cubic_spline
except ImportError:
    cubic_spline = None
with_cubic_splines = pytest.mark.skipif(not cubic_spline, reason="needs cubic splines of formulaic")


@pytest.mark.parametrize(
    ("covariates", "options", "message"),
    [
        (np.arange(39), {}, "covariates has 39 rows, but X has 40"),
        ({"a": [1.0] * 40}, {}, "'a' is 1 in all rows.*Leave it out"),
        ({"a": ["x"] * 40, "b": range(40)}, {"formula": "a + b"}, "'a' is x in all"),
        (
            {"a": [0.0, 1.0, 2.0, 3.0] * 10, "b": [1.0, 3.0] * 20, "c": [1.0, 4.0, 3.0, 6.0] * 10},
            {}, "'c' is collinear: it is a linear combination of a, b",
        ),
        (
            {"a": [0.0, 1e9, 2e9, 3e9] * 10, "b": [1e-9, 3e-9] * 20,
             "c": [1e-9, 4e-9, 3e-9, 6e-9] * 10},
            {}, "'c' is collinear: it is a linear combination of a, b",
        ),
        ({"a": [1.0, np.nan, None, *range(37)]}, {}, "'a' has 2 missing.*the first in row 1"),
        ({"a": ["x", np.nan, *"xy" * 19]}, {}, "'a' has 1 missing values.*'missing' may be a le"),
        ({"a": [1.0, np.nan, *range(38)]}, {"formula": "a"}, "'a' has 1 missing values"),
        ({"a": [1.0, np.inf, *range(38)]}, {}, "'a' has infinite values"),
        ({"a": pd.date_range("2001", periods=40)}, {}, "Convert dates to numbers"),
        ({"a": pd.period_range("2001", periods=40, freq="M")}, {}, r"dates\.dt\.strftime\('%Y-%m"),
        ({"a": range(40)}, {"formula": "y ~ a"}, "no left-hand side"),
        ({"a": range(40)}, {"formula": "b"}, "'b' cannot be evaluated"),
        (np.arange(40), {"formula": "x0"}, "needs covariates in a data frame"),
        ({"a": list("xy") * 20}, {"at": pd.DataFrame({"a": ["z"]})}, "the level 'z' .* 'x', 'y'"),
        ({"a": list("xy") * 20}, {"at": pd.DataFrame({"b": ["x"]})}, r"\['a'\] are missing"),
        ({"a": list("xy") * 20}, {"formula": "a", "at": pd.DataFrame({"b": [0]})}, "is missing"),
        ({"a": pd.Categorical([1, 2] * 20)}, {"at": pd.DataFrame({"a": ["2"]})}, "'2'.* are 2, 1"),
        (PARTIES, {"at": NEW}, "'lab'.* are 'Lab', 'Con', 'SNP'"),
        (PARTIES, {"formula": "party", "at": NEW}, "'lab'.* are 'Lab', 'Con', 'SNP'"),
        (
            {"a": [1, 2] * 20}, {"formula": "C(a)", "at": pd.DataFrame({"a": [2, 3]})},
            "'a' has the level 3 here.* are 1, 2",
        ),
        ({"a": range(40)}, {"at": pd.DataFrame({"a": [1, "x"]})}, "'a' was a number .* value 'x'"),
        (PARTIES, {"formula": "s(day) + party"}, r"no function 's'.*bs\(day, df=5\).* C\(day\)"),
        (PARTIES, {"formula": "as.factor(party)"}, r"no function 'as\.factor'.* C\(party\)"),
        (PARTIES, {"formula": "bs(dya, df=5)"}, "'dya' is not a column .* are 'day', 'party'"),
        (PARTIES, {"formula": "Party"}, "'Party' is not a column .* are 'party', 'day'"),
        (PARTIES, {"formula": "C(party, Treatment('lab'))"}, "of 'party' are 'Lab', 'Con', 'SNP'"),
        (PARTIES, {"formula": "C(party, levels=['Con', 'Lab'])"}, "levels of 'party' are 'SNP', "),
        (
            PARTIES, {"formula": "bs(day, df=5)", "at": pd.DataFrame({"day": [-5, 1]})},
            r"'day' is -5 to 1, but 0 to 39 in the data.*extrapolation='clip'",
        ),
        pytest.param(
            PARTIES, {"formula": "cr(day, df=4)"}, "is collinear.*Write constraints='center' in it",
            marks=with_cubic_splines,
        ),
        (PARTIES, {"formula": "bs(party, df=5)"}, "'party' is a category.*'Con'.*needs numbers"),
        pytest.param(
            {"a": pd.date_range("2001", periods=40)}, {"formula": "bs(a, df=5)"},
            "Convert dates to numbers", marks=with_cubic_splines,
        ),
        (
            PARTIES, {"formula": "I(1 / (1 + day))", "at": pd.DataFrame({"day": [-1, 3]})},
            r"term 'I\(1 / \(1 \+ day\)\)' of the formula must be finite",
        ),
        (PARTIES, {"at": {"day": [1]}}, "at must be a data frame, or an array.* each prediction"),
        (PARTIES, {"formula": "0"}, "has no terms"),
        (PARTIES, {"contrasts": {"party[T.Lab]": 1}}, r"such as {'difference': {'day': 1}}. Got"),
        (PARTIES, {"contrasts": {"a": {"party[T.con]": 1}}}, r"the 5 .* are 'party\[T\.Con\]'"),
        (pd.DataFrame(index=range(40)), {}, r"at least one column\. Got the shape \(40, 0\)"),
        ({"a": range(40)}, {"formula": "a +* a"}, r"not a formula: Operator[^\x1b]*$"),
        ({"a": pd.date_range("2001", periods=40)}, {"formula": "a"}, "'a' cannot be evaluated"),
        (np.arange(40), {"contrasts": {"d": {"x0": np.nan}}}, "with finite weights"),
        (np.arange(40), {"contrasts": ["x0"]}, "contrasts must be a dict"),
        (np.arange(40), {"contrasts": {"d": {"b": 1.0}}}, "has the term 'b', which is not"),
        (
            {"a": [f"v{i:02}" for i in range(30)] + ["v00", "v01"] * 5},
            {"contrasts": {"d": {"a[T.v31]": 1.0}}},
            r"'a\[T\.v31\]', which is not among the 31 terms .* are ('a\[T\.v\d+\]', ){5}\.\.\.",
        ),
        (
            {"a": list("xy") * 20, "b": range(40)},
            {"formula": "b + a:b", "contrasts": {"d": {"a[T.x]": -1.0}}},
            r"'a\[T\.x\]', which is not among",
        ),
        (np.arange(40), {"contrasts": {}, "at": [1]}, "either 'at' or 'contrasts'"),
        (np.arange(40), {"cluster": [1] * 39}, "one value for each of the 40 rows .* Got 39"),
        (np.arange(40), {"cluster": [None, *range(39)]}, "cluster is missing in 1 rows"),
        (np.arange(40), {"cluster": [np.nan, *"ab" * 19, "a"]}, "cluster is missing in 1 rows"),
        (np.arange(40), {"cluster": np.eye(40)}, "cluster must have one value .* 40 columns"),
        (np.arange(40), {"cluster": "author"}, r"cluster must be .* Got 'author'"),
        (np.arange(40), {"cluster": pd.Series([[1], [2]] * 20)}, "cluster must be one-dimensional"),
        ({"a": range(40)}, {"cluster": pd.DataFrame(np.eye(40))}, "cluster .* 40 columns"),
        (np.arange(40), {"cluster": [1] * 40}, "at least 2 groups. cluster has 1"),
        (np.arange(40), {"level": 95}, r"'level' parameter .* in the range \(0, 1\)\. Got 95"),
        (np.arange(40), {"n_draws": 1}, "n_draws == 1, must be >= 2"),
        (np.arange(40), {"link": "log"}, "'identity', 'logit'"),
        (np.arange(40), {"sample_weight": -np.ones(40)}, "sample_weight must be in the range"),
        (np.eye(40)[:, 1:], {}, "40 terms needs more than 40 rows"),
        (
            {"party": list("xy") * 20, "text": [f"Text {i}" for i in range(40)]}, {},
            "41 terms needs more .* category 'text' alone has 40 levels: leave out columns",
        ),
    ],
)  # fmt: skip
def test_illegal_arguments_are_named_with_the_remedy(corpus, covariates, options, message):
    if "formula" in options:
        pytest.importorskip("formulaic")
    topics, _, X = corpus
    if isinstance(covariates, dict):
        covariates = pd.DataFrame(covariates)
    with pytest.raises(ValueError, match=message):
        covariate_effects(Topics(topics), X, covariates, **options)


def test_matrix_libraries_use_one_thread(monkeypatch):
    # On a busy machine, small products on several threads wait for each other for minutes.
    n_threads, draw = set(), Classes._make_refits

    def counted(self, X, weights):
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        n_threads.update(pool["num_threads"] for pool in pools)
        return draw(self, X, weights)

    monkeypatch.setattr(Classes, "_make_refits", counted)
    mixture, X = Classes(np.eye(2)[np.arange(40) % 2]), np.zeros((40, 1))
    for call in (covariate_effects, outcome_by_cluster):
        with threadpool_limits(2, user_api="blas"):
            call(mixture, X, np.arange(40))
        assert n_threads == {1}
        n_threads.clear()


def test_a_cluster_may_be_a_column_of_a_table(corpus):
    topics, _, X = corpus
    author = np.arange(40) % 7
    frame = pd.DataFrame({"author": author})
    expected = covariate_effects(Topics(topics), X, np.arange(40), cluster=author, random_state=0)
    for column in (frame, frame["author"], pl.Series(author), list(map(str, author))):
        table = covariate_effects(Topics(topics), X, np.arange(40), cluster=column, random_state=0)
        pd.testing.assert_frame_equal(table, expected)


def test_effects_refuse_columns_in_another_order_than_in_the_fit():
    X = make_topic_corpus(60, n_components=2, n_features=20, random_state=0).X.toarray()
    frame, z = pd.DataFrame(X).add_prefix("word"), np.arange(60)
    fit = TemperedLDA(2, random_state=0, max_iter=2).fit(frame)
    expected = covariate_effects(fit, frame, z, random_state=0)
    same = covariate_effects(fit, pl.from_pandas(frame), z, random_state=0)
    pd.testing.assert_frame_equal(same, expected)
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        covariate_effects(fit, frame.iloc[:, ::-1], z)
    fit = TemperedLDA(2, random_state=0, max_iter=2).fit(X).set_words(frame.columns)
    with pytest.raises(ValueError, match="names of set_words"):
        covariate_effects(fit, frame.iloc[:, ::-1], z)


@pytest.mark.parametrize(
    ("formula", "name"), [(None, "party=a, year=0"), ("year + party", "year=0, party=a")]
)
def test_predictions_are_named_by_the_covariates_in_their_order(corpus, formula, name):
    if formula:
        pytest.importorskip("formulaic")
    topics, _, X = corpus
    rows = pd.DataFrame({"year": range(40), "party": list("ab") * 20, "text": ["long"] * 40})
    # Without a formula, all columns are covariates.
    used = rows if formula else rows[["party", "year"]]
    table = covariate_effects(Topics(topics), X, used, formula=formula, at=rows[:1])
    assert table["term"].tolist() == [name] * 3


def test_fits_that_do_not_compare_are_refused(corpus):
    topics, _, X = corpus
    z, fit = np.arange(40), Topics(topics)
    factorial = AnnealedFactorialMixture(2, max_iter=2, random_state=0).fit(X)
    for fits, rows, message in (
        (fit, ["some words"] * 40, "X has text, such as 'some words'"),
        ([fit, Topics(topics[:, 1:])], X, "vocabularies of 29, 30 words"),
        (fit, X[:, 1:], r"X has 29 columns, but .* 30 words"),
        ([fit, Classes(np.eye(40))], X, r"one kind.*Got Topics, Classes"),
        ([], X, "an empty list"),
        # A second copy would count as an independent fit, and make intervals too small.
        ([fit, Topics(topics), fit], X, "the same fit twice"),
        (factorial, X, "AnnealedFactorialMixture has neither clusters nor topics"),
    ):
        with pytest.raises(ValueError, match=message):
            covariate_effects(fits, rows, z)


def test_rows_without_words_are_left_out(corpus):
    topics, _, X = corpus
    z, model = np.arange(40.0) ** 2, Topics(CERTAIN * topics)
    expected = covariate_effects(model, X[1:], z[1:])
    X[0] = 0.0
    with pytest.warns(UserWarning, match="1 of 40 rows have no words.*the first of them row 0"):
        table = covariate_effects(model, sp.csr_array(X), z)
    assert table.attrs["rows_without_words"] == [0]
    np.testing.assert_allclose(table["effect"], expected["effect"], atol=1e-10)
    # The first and the last level, which no document with words has.
    for level in "az":
        levels = pd.DataFrame({"b": [level, *"mn" * 19, "m"]})
        with pytest.raises(ValueError, match="a level of a category, leave these 1 rows out of X"):
            covariate_effects(model, X, levels)


# ------------------------------------------------------------------------------------- fits
@pytest.mark.parametrize("make", [StructuredLDA, TemperedLDA, MemoizedHDP])
def test_every_topic_model_finds_a_planted_effect(make):
    first = make_topic_corpus(150, n_components=3, n_features=40, random_state=0)
    second = make_topic_corpus(
        150, topics=first.topics, doc_topic_prior=[1.0, 0.1, 0.1], random_state=1
    )
    X, z = sp.vstack([first.X, second.X]).tocsr(), np.repeat([0.0, 1.0], 150)
    options = {"n_polish": 0, "moves": ()} if make is MemoizedHDP else {}
    fits = [make(3, max_iter=10, random_state=seed, **options).fit(X) for seed in range(2)]
    table = covariate_effects(fits, X, z, random_state=0)
    topics = fits[0].components_ / fits[0].components_.sum(axis=1, keepdims=True)
    planted = np.argmin(abs(topics - first.topics[0]).sum(axis=1))
    row = table[(table["topic"] == planted) & (table["term"] == "x0")].iloc[0]
    truth = second.proportions[:, 0].mean() - first.proportions[:, 0].mean()
    assert row["effect"] == pytest.approx(truth, abs=0.1) and row["low"] > 0.2
    assert row["same_sign"] == row["n_fits"] == 2
    again = covariate_effects(fits, X, z, random_state=0)
    pd.testing.assert_frame_equal(table, again)


def test_effects_take_pipelines_and_texts():
    texts = ["cat cat mouse the", "mouse cat the", "sun rain the the", "rain rain sun the"] * 20
    pipeline = make_pipeline(CountVectorizer(stop_words=["the"]), TemperedLDA(2, random_state=0))
    table = covariate_effects(pipeline.fit(texts), texts, [0, 0, 1, 1] * 20, random_state=0)
    effect = table[table["term"] == "x0"].set_index("label")["effect"]
    assert {label: round(value) for label, value in effect.items()} == {
        label: 1 if "rain" in label else -1 for label in effect.index
    }


@pytest.mark.parametrize(
    "make",
    [
        partial(MemoizedDPGMM, max_components=3), partial(CAVIGaussianMixture, 2),
        partial(StructuredBernoulliMixture, 2), partial(MemoizedDPMixture, max_components=3),
    ],
    ids=lambda make: make.func.__name__,
)  # fmt: skip
def test_every_mixture_has_effects_and_outcomes(make, rng):
    z = np.repeat([0.0, 1.0], 100)
    y = (rng.random(200) < np.where(z, 0.8, 0.3)).astype(int)
    X = 8.0 * y[:, None] + rng.normal(size=(200, 2))
    if make.func is StructuredBernoulliMixture:
        X = (rng.random((200, 8)) < np.where(y[:, None], 0.95, 0.05)).astype(float)
    mixture = make(random_state=0).fit(X)
    label = mixture.predict(X[y == 1])[0]
    table = covariate_effects(mixture, X, z, random_state=0)
    row = table[(table["cluster"] == label) & (table["term"] == "x0")].iloc[0]
    assert row["effect"] == pytest.approx(y[100:].mean() - y[:100].mean(), abs=0.05)
    means = outcome_by_cluster(mixture, X, 3.0 * y, random_state=0).set_index("cluster")["mean"]
    assert means[label] == pytest.approx(3.0, abs=0.2)


def test_clusters_are_joined_components(rng):
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 9.0])
    mixture = MemoizedDPGMM(4, moves=(), random_state=0).fit(X)
    table = outcome_by_cluster(mixture, X, np.repeat([0.0, 1.0], 100), n_clusters=2)
    assert sorted(table["mean"].round(6)) == [0.0, 1.0]
    effects = covariate_effects(
        mixture, X, np.repeat([0.0, 1.0], 100), n_clusters=2, n_draws=2, random_state=0
    )
    # The clusters are nine standard deviations apart, so that few draws misplace any row.
    effects_of_x0 = sorted(effects.loc[effects["term"] == "x0", "effect"])
    assert effects_of_x0 == pytest.approx([-1.0, 1.0], abs=1e-5)


# --------------------------------------------------------------------------------- outcomes
def test_outcomes_are_corrected_by_the_errors_of_assignment(rng):
    labels = rng.integers(2, size=4000)
    # Rows are of four kinds, whose chances are those of the kind: assignments are calibrated.
    kind = np.where(rng.random(4000) < 0.75, labels, 1 - labels)
    chances = np.array([[0.75, 0.25], [0.25, 0.75]])[kind]
    outcome = labels + 0.1 * rng.normal(size=4000)
    table = outcome_by_cluster(Classes(chances), np.zeros((4000, 1)), outcome)
    # The expectation has M = D^-1 R'R and the weights of Bolck, Croon and Hagenaars.
    M = chances.T @ chances / chances.sum(axis=0)[:, None]
    weights = chances @ np.linalg.inv(M)
    np.testing.assert_allclose(table["mean"], weights.T @ outcome / weights.sum(axis=0))
    np.testing.assert_allclose(table["mean"], [0.0, 1.0], atol=0.1)
    naive = chances.T @ outcome / chances.sum(axis=0)
    assert abs(naive - [0.0, 1.0]).min() > 0.3


def test_shares_of_categories_are_means_of_indicators():
    chances, outcome = np.eye(2)[[0, 0, 0, 1, 1]], ["b", "a", "b", "c", "b"]
    table = outcome_by_cluster([Classes(chances), Classes(chances)], np.zeros((5, 1)), outcome)
    assert table["category"].tolist() == ["a", "b", "c"] * 2
    np.testing.assert_allclose(table["mean"], [1 / 3, 2 / 3, 0, 0, 1 / 2, 1 / 2], atol=1e-12)
    assert (table["n_fits"] == 2).all() and table["between_fits"].fillna(0.0).abs().max() < 1e-12
    (first, *_) = outcome_by_cluster(Classes(chances), np.zeros((5, 1)), outcome)["standard_error"]
    # The standard error of the mean of 0, 1, 0, which estimates the variance by n - 1.
    assert first == pytest.approx(np.std([1, 0, 0], ddof=1) / np.sqrt(3))


def test_categories_of_pandas_whose_values_are_numbers_have_shares():
    ratings = pd.Categorical([5, 1, 5, 1, 1])
    table = outcome_by_cluster(Classes(np.eye(2)[[0, 0, 0, 1, 1]]), np.zeros((5, 1)), ratings)
    assert table["category"].tolist() == [1, 5] * 2
    np.testing.assert_allclose(table["mean"], [1 / 3, 2 / 3, 1.0, 0.0], atol=1e-12)


def test_constant_outcomes_have_their_value_in_each_cluster():
    table = outcome_by_cluster(Classes(np.eye(2)[[0, 0, 1, 1]]), np.zeros((4, 1)), [3.0] * 4)
    for column in "mean", "low", "high":
        np.testing.assert_allclose(table[column], [3.0] * 2, atol=1e-12)


@pytest.mark.parametrize("values", [["no", "yes"], [0, 1]], ids=["categories", "numbers"])
def test_intervals_of_shares_that_no_row_or_every_row_has(values):
    """The intervals are those of Wilson for 0 of 400, 0 of 100 and 100 of 100 rows."""
    labels = np.repeat([0, 1, 2], [400, 100, 100])
    outcome = np.repeat(values, [500, 100])
    table = outcome_by_cluster(Classes(np.eye(3)[labels]), np.zeros((600, 1)), outcome)
    if "category" in table:
        table = table[table["category"] == "yes"]
    square = student.ppf(0.975, 599) ** 2
    np.testing.assert_allclose(table["mean"], [0.0, 0.0, 1.0], atol=1e-12)
    expected = np.array([400.0, 100.0, 100.0]) / (np.array([400.0, 100.0, 100.0]) + square)
    np.testing.assert_allclose(table["high"], [*(1.0 - expected[:2]), 1.0], rtol=0.01, atol=1e-12)
    np.testing.assert_allclose(table["low"], [0.0, 0.0, expected[2]], rtol=1e-3, atol=1e-12)


def test_an_outcome_that_the_clusters_were_fitted_to_is_named():
    frame = pd.DataFrame({"age": np.repeat([20.0, 70.0], 30), "visits": np.arange(60.0)})
    mixture = MemoizedDPGMM(2, moves=(), random_state=0).fit(frame)
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), mixture).fit(frame)
    outcome_by_cluster(mixture, frame, frame["visits"].to_numpy())
    outcome_by_cluster(mixture, frame, frame["visits"].rename("later visits"))
    ages = [("ages", "gaussian", ["age"])]
    of_age = MemoizedDPMixture(2, components=ages, moves=(), random_state=0).fit(frame)
    outcome_by_cluster(of_age, frame, frame["visits"])
    for fit, values in (
        (mixture, frame["visits"]), (mixture, frame[["visits"]]),
        (mixture, pl.Series("age", [1, 2] * 30)),
        (pipeline, frame["visits"]),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=r"outcome '(visits|age)' is a column .*describe\(\)"):
            outcome_by_cluster(fit, frame, values)


@pytest.mark.parametrize("size", [3, 6])
def test_intervals_of_a_small_cluster_are_those_of_its_rows(size, rng):
    labels, outcome = np.repeat([0, 1], [size, 200]), rng.normal(size=200 + size)
    table = outcome_by_cluster(Classes(np.eye(2)[labels]), np.zeros((labels.size, 1)), outcome)
    few = outcome[:size]
    ends = student.interval(0.95, size - 1, few.mean(), few.std(ddof=1) / np.sqrt(size))
    np.testing.assert_allclose(table.loc[0, ["low", "high"]].astype(float), ends)


def test_a_cluster_without_rows_has_no_interval():
    chances = np.eye(3)[np.repeat([0, 2], 20)]
    table = outcome_by_cluster(Classes(chances), np.zeros((40, 1)), np.arange(40.0))
    assert table["low"].isna().tolist() == table["high"].isna().tolist() == [False, True, False]


def test_illegal_outcomes_are_named():
    mixture = Classes(np.eye(4))
    for fits, outcome, message in (
        (Topics(np.ones((2, 3))), [1, 2, 3, 4], "takes a fitted mixture"),
        ([mixture, Classes(np.eye(4)), mixture], [1, 2, 3, 4], "mixture has the same fit twice"),
        (mixture, [1, 2, 3], r"each of the 4 rows of X\. Got 3 rows"),
        (mixture, [1, 2, None, 3], "'outcome' has 1 missing values, the first in row 2"),
        (mixture, ["a", np.nan, "b", "b"], "'outcome' has 1 missing values, the first in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            outcome_by_cluster(fits, np.zeros((4, 1)), outcome)


def test_impossible_shares_become_the_nearest_share():
    # Rows of the second cluster are hardly told from those of the first, and the outcome follows
    # the small differences: the least-squares line through its means reaches -0.3 and 1.7.
    chances = np.repeat([[0.6, 0.4], [0.5, 0.5]], 1200, axis=0)
    outcome = np.repeat([0.0, 1.0, 0.0, 1.0], [600, 600, 360, 840])
    slope = (840 - 600) / 1200 / (0.5 - 0.6)
    first, second = 0.5 + 0.4 * slope, 0.5 - 0.6 * slope
    assert first == pytest.approx(-0.3) and second == pytest.approx(1.7)
    numbers = outcome_by_cluster(Classes(chances), np.zeros((2400, 1)), outcome + 10.0)
    np.testing.assert_allclose(numbers["mean"], [10.0 + first, 10.0 + second])
    with pytest.warns(UserWarning, match=r"clusters \[1\] are unknown: they are off by up to 0.7"):
        table = outcome_by_cluster(Classes(chances), np.zeros((2400, 1)), outcome)
    assert table["mean"].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(table["standard_error"], numbers["standard_error"])
    # The interval of numbers has its middle at the estimate, and that of shares at 0 or 1.
    half_widths = (numbers["high"] - numbers["low"]) / 2.0
    np.testing.assert_allclose(table["low"], [0.0, 1.0 - half_widths[1]])
    np.testing.assert_allclose(table["high"], [half_widths[0], 1.0])


def test_weighted_outcomes_have_sandwich_errors(rng):
    chances = rng.dirichlet(np.ones(2), 60)
    outcome, weights = rng.normal(size=60), rng.integers(0, 4, 60).astype(float)
    table = outcome_by_cluster(Classes(chances), np.zeros((60, 1)), outcome, sample_weight=weights)
    sizes = weights @ chances
    M = chances.T @ (weights[:, None] * chances) / sizes[:, None]
    corrected = weights[:, None] * (chances @ np.linalg.inv(M))
    means = corrected.T @ outcome / corrected.sum(axis=0)
    deviations = corrected * (outcome[:, None] - means)
    n = sizes**2 / ((weights[:, None] * chances) ** 2).sum(axis=0)
    squares = (deviations**2).sum(axis=0) / corrected.sum(axis=0) ** 2 * n / (n - 1.0)
    np.testing.assert_allclose(table["mean"], means)
    np.testing.assert_allclose(table["standard_error"], np.sqrt(squares))


# ------------------------------------------------------------------------------------- refits
def classes_of_items(seed, separation, feature_prior=1.0):
    """Rows, classes and a mixture of the three classes of Bakk and Kuha (2018)."""
    p = np.full((3, 6), separation)
    p[1, 3:] = p[2] = 1.0 - separation
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=1000)
    X = (rng.random((1000, 6)) < p[labels]).astype(float)
    components = [("items", Bernoulli(feature_prior), list(range(6)))]
    mixture = MemoizedDPMixture(3, moves=(), components=components, random_state=seed)
    return X, labels, mixture.fit(X), rng


@pytest.mark.parametrize("feature_prior", [1.0, "auto"])
def test_a_refit_is_a_fixed_point_of_expectation_maximisation(feature_prior):
    X, _, mixture, _ = classes_of_items(0, 0.8, feature_prior)
    resp = mixture._make_refits(X, np.ones(1000)).resp
    # The step has symmetric priors of probabilities and a uniform prior of weights.
    counts = resp.sum(axis=0)
    a = mixture._fitted.model.component.blocks[0].component.prior.mean(axis=1)
    p = (resp.T @ X + a) / (counts[:, None] + 2.0 * a)
    joint = np.log(counts + 1.0) + X @ np.log(p).T + (1.0 - X) @ np.log(1.0 - p).T
    np.testing.assert_allclose(softmax(joint, axis=1), resp, atol=2e-4)


def test_rows_of_weight_two_are_two_rows_of_a_refit():
    X, _, mixture, rng = classes_of_items(0, 0.8)
    weights = rng.integers(0, 3, 1000)
    weighted = mixture._make_refits(X, weights.astype(float))
    repeated = mixture._make_refits(np.repeat(X, weights, axis=0), np.ones(weights.sum()))
    used = np.repeat(weighted.resp, weights[weights > 0], axis=0)
    np.testing.assert_allclose(used, repeated.resp, atol=1e-9)
    np.testing.assert_allclose(weighted.weights, repeated.weights)


def test_a_refit_restores_a_class_that_mean_field_empties():
    X, _, mixture, _ = classes_of_items(2, 0.7)
    assert mixture.predict_proba(X).mean(axis=0).min() < 1e-3
    # Each class has a third of the rows.
    assert mixture._make_refits(X, np.ones(1000)).resp.mean(axis=0).min() > 0.15


@pytest.mark.parametrize("function", [outcome_by_cluster, covariate_effects])
def test_refits_say_how_many_are_done(function, slow_down, capsys):
    X, _, mixture, rng = classes_of_items(0, 0.8)
    function(mixture, X, rng.normal(size=1000), n_draws=2, random_state=0)
    assert capsys.readouterr().out == ""
    mixture.set_params(verbose=1)
    slow_down(_shares, "_compute_draw_matrix", 0.2)
    function(mixture, X, rng.normal(size=1000), n_draws=2, random_state=0)
    lines = capsys.readouterr().out
    assert "refit 1 of 2 to drawn weights of rows, for " in lines
    assert "refit 2 of 2 to drawn weights of rows, for " in lines


@pytest.mark.slow
def test_overlapping_classes_have_honest_intervals():
    truth, covered, means = np.array([1.0, 0.0, -1.0]), [], []
    for seed in range(8):
        X, labels, mixture, rng = classes_of_items(seed, 0.7)
        outcome = truth[labels] + rng.normal(size=1000)
        table = outcome_by_cluster(mixture, X, outcome, random_state=0)
        resp = mixture._make_refits(X, np.ones(1000)).resp
        table = table.iloc[np.argsort(-(X.sum(axis=1) @ resp) / resp.sum(axis=0))]
        covered.append((table["low"] < truth) & (truth < table["high"]))
        means.append(table["mean"])
    assert np.mean(covered) >= 0.83
    np.testing.assert_allclose(np.median(means, axis=0), truth, atol=0.25)


def test_a_cluster_of_one_row_has_no_interval():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(60, 2)), [[90.0, 90.0]]])
    mixture = MemoizedDPGMM(max_components=3, random_state=0).fit(X)
    table = outcome_by_cluster(mixture, X, rng.normal(size=61), random_state=0)
    alone = table["cluster"] == mixture.predict(X[-1:])[0]
    assert mixture.n_components_ == 2 and alone.sum() == 1
    assert table.loc[alone, ["low", "high"]].isna().all(axis=None)
    assert table.loc[~alone, ["low", "high"]].notna().all(axis=None)


INDEX = pd.Index([f"row {i}" for i in range(40)])
SERIES = pd.Series(np.arange(40) % 7, INDEX, name="a")
CALLS_OF_ROWS = {
    "covariates": covariate_effects,
    "cluster": lambda fit, X, values: covariate_effects(fit, X, np.arange(40), cluster=values),
    "sample_weight": lambda fit, X, values: covariate_effects(
        fit, X, np.arange(40), sample_weight=values
    ),
    "outcome": outcome_by_cluster,
}


@pytest.mark.parametrize("name", CALLS_OF_ROWS)
def test_rows_whose_index_has_another_order_than_that_of_X_are_refused(name):
    call, mixture = CALLS_OF_ROWS[name], Classes(np.eye(2)[np.arange(40) % 2])
    X = pd.DataFrame(np.zeros((40, 1)), INDEX)
    values = SERIES[::-1] + 1
    rows_named, remedy = "row 0 is row 39, and that of X is row 0", rf"{name}\.loc\[X\.index\]"
    said = rf"of {name} .* {rows_named}.* {remedy}.* {name}\.reset"
    for rows in (values, values.to_frame()):
        with pytest.raises(ValueError, match=said):
            call(mixture, X, rows)
    repeated = INDEX[:20].append(INDEX[:20])
    with pytest.raises(ValueError, match="pass both in the same order"):
        call(mixture, X.set_axis(repeated), values.set_axis(repeated[::-1]))
    # Positions decide if an index is absent, or has other labels than X.
    expected = call(mixture, X.to_numpy(), values.to_numpy())["standard_error"]
    for rows, X_rows in (
        (values, X.to_numpy()), (values.reset_index(drop=True), X),
        (values.set_axis(INDEX + "x"), X), (values.loc[X.index][::-1].set_axis(INDEX), X),
        # The types of two equal indexes may differ.
        (values.set_axis(INDEX.astype("string")), X.set_axis(INDEX.astype(object))),
        (values.set_axis(pd.Index(range(40), dtype="Int64")), X.set_axis(range(40))),
    ):  # fmt: skip
        np.testing.assert_allclose(call(mixture, X_rows, rows)["standard_error"], expected)


def test_arguments_about_the_rows_of_an_array_have_one_order():
    """An array or a sparse matrix has no labels of rows, but its covariates and weights may."""
    mixture, weights = Classes(np.eye(2)[np.arange(40) % 2]), pd.Series(np.ones(40), INDEX)
    effects = partial(covariate_effects, mixture, sp.csr_array((40, 1)), sample_weight=weights)
    effects(SERIES)
    with pytest.raises(ValueError, match=r"covariates has the labels of sample_weight in another"):
        effects(SERIES[::-1])
