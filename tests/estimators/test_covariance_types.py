"""Types of covariances chosen by the bounds of short fits."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM, MemoizedDPMixture
from skvt.components import Gaussian
from skvt.components import _choices as types
from skvt.components.specs import GAUSSIAN_PRIORS
from skvt.io import load, save
from skvt.models.mixture import gaussian_component

# "full" learns a prior of covariances that are all alike where these are.
GIVEN = dict.fromkeys(GAUSSIAN_PRIORS)
LEARNED = frozenset({"covariance_prior", "degrees_of_freedom_prior", "mean_precision_prior"})


def clusters(kind, n=240, seed=0):
    """Three clusters whose covariances are of a type."""
    rng = np.random.default_rng(seed)
    D, z = 12 if kind == "low_rank" else 4, np.arange(n) % 3
    means, noise = 6.0 * rng.normal(size=(3, D)), rng.normal(size=(n, D))
    roots = rng.normal(size=(3, D, D))
    if kind == "tied":
        return (means[z] + noise) @ roots[0]
    if kind == "diag":
        return means[z] + np.exp(rng.normal(size=(3, D)))[z] * noise
    if kind == "full":
        return 2.0 * means[z] + np.einsum("nij,nj->ni", roots[z], noise)
    if kind == "low_rank":
        return means[z] + 2.0 * roots[z, :, 0] * noise[:, :1] + 0.3 * rng.normal(size=(n, D))
    return means[z] + noise


def bounds(X, learned=frozenset()):
    build = partial(gaussian_component, zero_mean=False)
    return types.bounds_of_types(X, np.ones(len(X)), build, learned)


@pytest.mark.quick_cases("tied", "low_rank")
@pytest.mark.parametrize("kind", types.CANDIDATES)
def test_the_type_of_the_clusters_is_chosen(kind, monkeypatch):
    monkeypatch.setattr(types, "NUMBERS", (3, 8))
    learned = frozenset() if kind == "tied" else LEARNED
    assert next(iter(bounds(clusters(kind), learned))) == kind


def test_low_rank_is_compared_where_it_has_fewer_parameters_than_full(monkeypatch):
    monkeypatch.setattr(types, "NUMBERS", (2,))
    for D in range(1, 6):
        fewer = D + D < D * (D + 1) // 2  # of rank 1
        compared = bounds(np.random.default_rng(0).normal(size=(30, D)))
        assert ("low_rank" in compared) == fewer, D


def test_types_are_compared_under_the_priors_that_they_learn(monkeypatch):
    X = clusters("diag", n=90)
    given, learned = bounds(X), bounds(X, LEARNED)
    assert all(learned[kind] > given[kind] for kind in types.CANDIDATES)


@pytest.fixture(scope="module")
def fitted():
    return MemoizedDPGMM(covariance_type="auto", max_components=4, random_state=0, **GIVEN).fit(
        clusters("tied")
    )


def test_a_fit_is_that_of_the_chosen_type(fitted, tmp_path):
    X = clusters("tied")
    known = MemoizedDPGMM(covariance_type="tied", max_components=4, random_state=0, **GIVEN).fit(X)
    assert fitted.covariance_type_ == known.covariance_type_ == "tied"
    assert fitted.elbo_ == known.elbo_ and fitted.covariances_.shape == (4, 4)
    save(fitted, tmp_path / "auto.skvt")
    again = load(tmp_path / "auto.skvt")
    assert again.covariance_type_ == "tied"
    np.testing.assert_array_equal(again.precisions_, fitted.precisions_)


def test_a_sample_of_the_rows_decides_wherever_they_lie(monkeypatch):
    da = pytest.importorskip("dask.array", reason="needs the extra 'dask'")
    monkeypatch.setattr(types, "MOST_ROWS", 120)
    X = clusters("tied")
    settings = {"covariance_type": "auto", "max_components": 3, "max_iter": 3}
    fits = [MemoizedDPGMM(**settings, n_jobs=n, random_state=n).fit(X) for n in (1, 2)]
    chunked = da.from_array(X, chunks=(60, 4))
    both = [MemoizedDPGMM(**settings, n_jobs=n, random_state=0).fit(chunked) for n in (1, 2)]
    assert len({fit.covariance_type_ for fit in (*fits, *both)}) == 1
    assert both[0].elbo_ == both[1].elbo_


def test_streams_decide_at_their_first_call(monkeypatch):
    stream = MemoizedDPGMM(covariance_type="auto", max_components=4, random_state=0, **GIVEN)
    assert stream.partial_fit(clusters("tied")).covariance_type_ == "tied"
    assert stream.partial_fit(clusters("spherical")).covariance_type_ == "tied"


def test_blocks_of_tables_choose_for_themselves(monkeypatch):
    X = np.hstack([clusters("spherical"), clusters("tied")])
    auto = Gaussian("auto", mean_prior=None, degrees_of_freedom_prior=None)
    spec = [("a", auto, [0, 1, 2, 3]), ("b", auto, [4, 5, 6, 7])]
    table = MemoizedDPMixture(components=spec, max_components=4, max_iter=3).fit(X)
    assert [table.priors_[name]["covariance_type"] for name in "ab"] == ["spherical", "tied"]


def test_wide_tables_are_compared_on_some_columns():
    X = np.random.default_rng(0).normal(size=(90, types.MOST_COLUMNS + 1))
    widths = set()

    def build(X, weights, covariance_type):
        widths.add(X.shape[1])
        return gaussian_component(X, weights, covariance_type, zero_mean=False)

    of_complete = types.bounds_of_types(X, np.ones(90), build, frozenset())
    X[::2, 1] = np.nan
    of_holes = types.bounds_of_types(X, np.ones(90), build, frozenset())
    assert widths == {types.MOST_COLUMNS}
    assert {*of_complete} == {"spherical", "diag", "low_rank"}
    assert {*of_holes} == {"spherical", "diag"}


def two_clusters(n_rows, n_columns, seed):
    """Rows of two clusters that are five standard deviations apart in each column, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n_rows)
    return rng.normal(size=(n_rows, n_columns)) + 5.0 * y[:, None], y


@pytest.mark.parametrize("covariance_type", ["auto", "full", "spherical"])
def test_clusters_far_apart_are_found_in_few_rows(covariance_type, monkeypatch):
    monkeypatch.setattr(types, "NUMBERS", (3, 20))
    X, y = two_clusters(100, 40, 1) if covariance_type == "spherical" else two_clusters(50, 20, 0)
    fit = MemoizedDPGMM(covariance_type=covariance_type, random_state=0).fit(X)
    assert fit.n_components_ == 2
    assert adjusted_rand_score(y, fit.labels_) == 1.0


@pytest.mark.slow
def test_nine_of_ten_tables_of_few_rows_have_their_two_clusters(monkeypatch):
    monkeypatch.setattr(types, "NUMBERS", (3, 20))
    tables = [two_clusters(50, 20, seed) for seed in range(10)]
    fits = [MemoizedDPMixture(random_state=0).fit(X) for X, _ in tables]
    assert sum(fit.n_components_ == 2 for fit in fits) >= 9


@pytest.mark.slow
@pytest.mark.parametrize(("load", "n_draws"), [(load_wine, 4), (load_digits, 1)])
def test_few_rows_choose_the_type_of_the_higher_held_out_density(load, n_draws, monkeypatch):
    monkeypatch.setattr(types, "NUMBERS", (3, 20))
    X, _ = load(return_X_y=True)
    n_rows = int(2.5 * X.shape[1])
    densities = {"diag": 0.0, "full": 0.0, "auto": 0.0}
    for seed in range(n_draws):
        rows = np.random.default_rng(seed).permutation(len(X))
        for kind in densities:
            fit = MemoizedDPGMM(covariance_type=kind, random_state=0).fit(X[rows[:n_rows]])
            densities[kind] += fit.score(X[rows[n_rows:]]) / n_draws
    assert densities["auto"] > max(densities["diag"], densities["full"]) - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 7])
def test_no_draw_of_a_tiny_table_loses_much(seed, monkeypatch):
    monkeypatch.setattr(types, "NUMBERS", (3, 20))
    X, _ = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = np.random.default_rng(seed).permutation(len(X))
    auto, diag, full = (
        MemoizedDPGMM(covariance_type=kind, random_state=0).fit(X[rows[:32]]).score(X[rows[32:]])
        for kind in ("auto", "diag", "full")
    )
    assert auto > max(diag, full) - 0.3


@pytest.mark.slow
def test_few_rows_in_many_columns_determine_no_matrix():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 15)
    X = 2.0 * rng.standard_normal((3, 30))[y] + rng.standard_normal((45, 30))
    full, diag, auto = (
        MemoizedDPGMM(covariance_type=kind, random_state=0).fit(X)
        for kind in ("full", "diag", "auto")
    )
    assert full.n_components_ == diag.n_components_ == auto.n_components_ == 3
    # The columns are independent and vary alike: nothing is better described by matrices.
    assert full.elbo_ < diag.elbo_
    assert auto.covariance_type_ == "spherical"
    scale = full.covariance_prior_
    np.testing.assert_allclose(scale, np.diag(np.diagonal(scale)), atol=1e-9)


def test_a_scale_has_the_shape_of_one_type():
    with pytest.raises(ValueError, match="another shape for each covariance type"):
        MemoizedDPGMM(covariance_type="auto", covariance_prior=np.ones(4)).fit(clusters("diag"))


def test_a_type_that_is_clearly_behind_is_dropped_after_the_first_part_of_the_rows(monkeypatch):
    monkeypatch.setattr(types, "bounds_of_types", lambda *_: {"diag": -1.0, "spherical": -1.1})
    fits, rng = [], np.random.default_rng(0)

    def densities(X, weights, out, build, *_):
        kind = build.keywords["covariance_type"]
        fits.append(kind)
        return rng.normal(-5.0 if kind == "spherical" else 0.0, 1.0, out.sum())

    monkeypatch.setattr(types, "_held_out_densities", densities)
    assert types.best_type(rng.normal(size=(120, 60)), np.ones(120), dict, ()) == "diag"
    assert [fits.count(kind) for kind in ("diag", "spherical")] == [4, 1]


def test_low_rank_without_factors_is_not_compared_with_diag(monkeypatch):
    # three components, each of which chooses rank 0 of two ranks
    bounds = {"diag": -1.0, "low_rank": -1.0 - 3 * np.log(2.0) / 120}
    monkeypatch.setattr(types, "NUMBERS", (3, 20))
    monkeypatch.setattr(types, "bounds_of_types", lambda *_: bounds)
    monkeypatch.setattr(types, "_find_best_fit", None)
    assert types.best_type(np.zeros((120, 60)), np.ones(120), dict, ()) == "diag"
