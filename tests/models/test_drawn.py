"""Densities given drawn globals average to the predictive, and imputed rows share globals."""

import numpy as np
import pandas as pd
import pytest
from models._textbook import KINDS, posterior
from scipy.stats import binom
from scipy.stats import t as student_t

from skvt import MemoizedDPGMM, MemoizedDPMixture
from skvt.components import (
    Categorical,
    Gaussian,
    Hurdle,
    LatentGaussian,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from skvt.models.mixture import make_gaussian_component, make_student_t_component

STUDENTS = {f"Student t {kind}": kind for kind in ("full", "diag")}


def component_of(name):
    """Return a component, rows, and the parameters (1, ..., E) after these rows."""
    rng = np.random.default_rng(0)
    kind = KINDS["full" if name in STUDENTS else name]
    X = kind.rows(12, 3, rng)
    component = kind.make(3, np.dtype(np.float64))
    if name in STUDENTS:
        gaussian = make_gaussian_component(X, np.ones(12), STUDENTS[name], False)[0]
        component = make_student_t_component(gaussian)
    return component, X, posterior(component, X, np.ones((12, 1)))


@pytest.mark.parametrize("name", [*KINDS, *STUDENTS])
def test_densities_given_drawn_parameters_average_to_the_predictive(name):
    component, X, lam = component_of(name)
    if name in STUDENTS:  # Their sums need the scales of the rows.
        lam = component.prior[None]
    n_draws, rng = 200 if name == "negative binomial" else 2_000, np.random.default_rng(1)
    drawn, known = component.drawn(np.repeat(lam, n_draws, axis=0), rng)
    given = np.exp(drawn.log_predictive(X[:4], known))
    expected = np.exp(component.log_predictive(X[:4], lam))[:, 0]
    error = given.std(axis=1) / np.sqrt(n_draws)
    assert np.all(error > 0.0)
    assert np.all(np.abs(given.mean(axis=1) - expected) < 4.5 * error + 1e-3 * expected)


def fit(X, components, n_components=1, **settings):
    settings = {"moves": (), "random_state": 0} | settings
    return MemoizedDPMixture(n_components, components=components, **settings).fit(X)


def correlated(rng, missing, n):
    """Draw two columns of mean 0 and variance 1. A share of the second one is missing."""
    X = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]], size=n)
    X[rng.permutation(n)[: int(missing * n)], 1] = np.nan
    return X


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_means_of_imputed_columns_have_the_variance_of_the_mean(kind):
    n, missing = 200, 0.5
    X = correlated(np.random.default_rng(0), missing, n)
    mixture = fit(X, [("all", Gaussian(kind), slice(None))], max_iter=20)
    draws = mixture.impute(X, n_draws=60, random_state=0)
    own = np.nanvar(X[:, 1])
    # Given the seen values, the mean of all has (1 / n_seen - 1 / n) of the unexplained variance.
    unexplained = own if kind == "diag" else own * (1.0 - 0.36)
    expected = unexplained * (1.0 / (n * (1.0 - missing)) - 1.0 / n)
    found = np.var([np.mean(draw[:, 1]) for draw in draws])
    # The limit is 4 standard errors of a variance, and a tenth for the correlation of the rows.
    assert abs(found / expected - 1.0) < 4.0 * np.sqrt(2.0 / 60) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_intervals_by_the_rules_of_rubin_cover_the_mean(kind):
    rng, n, m, n_tables = np.random.default_rng(0), 80, 5, 60
    covered = 0
    for _ in range(n_tables):
        X = correlated(rng, 0.8, n)
        mixture = fit(X, [("all", Gaussian(kind), slice(None))])
        draws = mixture.impute(X, n_draws=m, random_state=rng.integers(2**31))
        columns = np.array([draw[:, 1] for draw in draws])
        means = columns.mean(axis=1)
        within, between = columns.var(axis=1, ddof=1).mean() / n, means.var(ddof=1)
        total = within + (1.0 + 1.0 / m) * between
        share = 1.0 - within / total
        # Few rows have these degrees of freedom [BarnardRubin99].
        of_rows = n / (n + 2.0) * (n - 1.0) * (1.0 - share)
        freedom = 1.0 / (share**2 / (m - 1.0) + 1.0 / of_rows)
        covered += abs(means.mean()) < student_t.ppf(0.975, freedom) * np.sqrt(total)
    assert covered >= binom.ppf(0.001, n_tables, 0.95)


EACH_COMPONENT = [
    *(Gaussian(kind) for kind in ("full", "tied", "diag", "spherical", "low_rank")),
    StudentT("full"), StudentT("diag"), Hurdle(Gaussian("full")), Hurdle(Poisson()),
    Gaussian("full", log=["a"]), Gaussian("full", missing="informative"), Poisson(),
    Poisson(exposure="years"), NegativeBinomial(), NegativeBinomial(exposure="years"),
    Categorical(), LatentGaussian(["b"], "full"), LatentGaussian(["b"], "tied"),
]  # fmt: skip


@pytest.mark.quick_cases(
    "Gaussian()", "low_rank", "StudentT()", "Poisson(exp", "Binomial(exp", "Latent"
)
@pytest.mark.parametrize("spec", EACH_COMPONENT, ids=str)
def test_every_component_draws_missing_values_given_its_drawn_parameters(spec):
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=60)
    frame = pd.DataFrame(rng.poisson(4.0 + 20.0 * kind[:, None], size=(60, 2)), columns=["a", "b"])
    frame = frame.clip(upper=30).astype(float)
    hole = rng.random((60, 2)) < 0.3
    hole[:, 1] &= ~hole[:, 0]
    frame = frame.mask(hole)
    frame["years"] = 1.0
    mixture = fit(frame, [("counts", spec, ["a", "b"])], 2, max_iter=10)
    first, second = mixture.impute(frame, n_draws=2, random_state=0)
    assert first.notna().all(axis=None) and not first.equals(second)
    pd.testing.assert_frame_equal(first.where(frame.notna()), frame)
    # The other column determines the cluster, and most draws lie in its range.
    named = frame["a"].isna() & frame["b"].notna()
    apart = np.abs(first["a"] - np.where(kind == 1, 24.0, 4.0))[named]
    assert (apart < 12.0).mean() > 0.5
    assert first["a"].between(-20.0, 200.0).all()


def test_columns_beside_ordinal_ones_are_completed_given_their_levels():
    rng, cuts = np.random.default_rng(0), [-1.0, 0.0, 1.0]
    latent = rng.normal(size=250)
    number, level = 2.0 * latent + rng.normal(size=250), np.digitize(latent, cuts)
    hole = rng.random(250) < 0.5
    frame = pd.DataFrame({"level": level, "number": np.where(hole, np.nan, number)})
    mixture = fit(frame, [("all", LatentGaussian(["level"], "full"), slice(None))], max_iter=15)
    draws = mixture.impute(frame, n_draws=4, random_state=0)
    normals = np.random.default_rng(1).normal(size=200_000)
    for own in range(4):
        rows = hole & (level == own)
        # The mean is twice that of a standard normal variable within the interval.
        expected = 2.0 * normals[np.digitize(normals, cuts) == own].mean()
        drawn = np.mean([draw["number"][rows].mean() for draw in draws])
        assert abs(drawn - expected) < 0.5


def test_imputed_new_rows_share_the_drawn_parameters():
    X = correlated(np.random.default_rng(0), 0.0, 10)
    mixture = MemoizedDPGMM(1, moves=(), random_state=0).fit(X)
    empty = np.full((400, 2), np.nan)
    empty[:, 0] = X[:, 0].mean()
    means = [draw[:, 1].mean() for draw in mixture.impute(empty, n_draws=40, random_state=0)]
    assert np.std(means) > 2.0 * 0.8 / np.sqrt(400)


def test_imputed_values_are_not_drawn_from_the_prior():
    """A column is a Cauchy variable under the prior, so that its draws have no mean."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(100, 2)))
    X[:50, 0] = np.nan
    mixture = fit(X, [(str(j), Gaussian("diag", log=[j]), [j]) for j in range(2)])
    assert np.abs(np.log(mixture.impute(X, n_draws=60, random_state=0))).max() < 6.0
