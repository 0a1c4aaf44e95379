"""The bounds of short fits choose the type of covariances."""

from functools import partial
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM, MemoizedDPMixture
from skvt.components import Gaussian
from skvt.components import _choices as types
from skvt.components.specs import GAUSSIAN_PRIORS
from skvt.io import load, save
from skvt.models.mixture import make_gaussian_component

# Priors are given, because "full" would learn a prior under which all covariances are alike.
GIVEN = dict.fromkeys(GAUSSIAN_PRIORS)
LEARNED = frozenset({"covariance_prior", "degrees_of_freedom_prior", "mean_precision_prior"})


def clusters(kind, n=240, seed=0):
    """Rows of three clusters whose covariances have a type, (n, D)."""
    rng = np.random.default_rng(seed)
    D, z = 12 if "low_rank" in kind else 4, np.arange(n) % 3
    means, noise = 6.0 * rng.normal(size=(3, D)), rng.normal(size=(n, D))
    roots = rng.normal(size=(3, D, D))
    if kind == "tied":
        return (means[z] + noise) @ roots[0]
    if kind == "diag":
        return means[z] + np.exp(rng.normal(size=(3, D)))[z] * noise
    if kind == "full":
        return 2.0 * means[z] + np.einsum("nij,nj->ni", roots[z], noise)
    if kind == "tied_low_rank":
        return means[z] + noise[:, :2] @ (2.0 * roots[0, :2]) + 0.3 * rng.normal(size=(n, D))
    if kind == "low_rank":
        return means[z] + 2.0 * roots[z, :, 0] * noise[:, :1] + 0.3 * rng.normal(size=(n, D))
    return means[z] + noise


def bounds(X, learned=frozenset()):
    build = partial(make_gaussian_component, zero_mean=False)
    fits = types.fit_each_type(X, np.ones(len(X)), build, learned)
    return {kind: fit.bound for kind, fit in fits.items()}


@pytest.mark.quick_cases("tied", "low_rank")
@pytest.mark.parametrize("kind", types.CANDIDATE_TYPES)
def test_the_type_of_the_clusters_is_chosen(kind, monkeypatch):
    monkeypatch.setattr(types, "INITIAL_NUMBERS", (3, 8))
    learned = frozenset() if "tied" in kind else LEARNED
    assert next(iter(bounds(clusters(kind), learned))) == kind


def test_low_rank_is_compared_where_it_has_fewer_parameters_than_full(monkeypatch):
    monkeypatch.setattr(types, "INITIAL_NUMBERS", (2,))
    for D in range(1, 6):
        fewer = 2 * D < D * (D + 1) // 2  # A matrix of rank 1 plus a diagonal has 2 D parameters.
        compared = bounds(np.random.default_rng(0).normal(size=(30, D)))
        assert ("low_rank" in compared) == fewer, D


def test_types_are_compared_under_the_priors_that_they_learn(monkeypatch):
    X = clusters("diag", n=90)
    given, learned = bounds(X), bounds(X, LEARNED)
    assert all(learned[kind] > given[kind] for kind in types.CANDIDATE_TYPES)


def test_a_fit_is_that_of_the_chosen_type(tmp_path):
    X, settings = clusters("tied"), GIVEN | {"max_components": 4, "random_state": 0}
    fitted, known = (MemoizedDPGMM(covariance_type=t, **settings).fit(X) for t in ("auto", "tied"))
    assert fitted.covariance_type_ == known.covariance_type_ == "tied"
    assert fitted.elbo_ == known.elbo_ and fitted.covariances_.shape == (4, 4)
    save(fitted, tmp_path / "auto.skvt")
    again = load(tmp_path / "auto.skvt")
    assert again.covariance_type_ == "tied"
    np.testing.assert_array_equal(again.precisions_, fitted.precisions_)
    # A stream decides at its first call.
    stream = MemoizedDPGMM(covariance_type="auto", **settings)
    for kind in ("tied", "spherical"):
        assert stream.partial_fit(clusters(kind)).covariance_type_ == "tied"


def test_a_sample_of_the_rows_decides_wherever_the_rows_are_stored(monkeypatch):
    monkeypatch.setattr(types, "MAX_ROWS", 120)
    X = clusters("tied")
    settings = {"covariance_type": "auto", "max_components": 3, "max_iter": 3}
    fits = [MemoizedDPGMM(**settings, n_jobs=n, random_state=n).fit(X) for n in (1, 2)]
    chunked = da.from_array(X, chunks=(60, 4))
    both = [MemoizedDPGMM(**settings, n_jobs=n, random_state=0).fit(chunked) for n in (1, 2)]
    assert len({fit.covariance_type_ for fit in (*fits, *both)}) == 1
    assert both[0].elbo_ == both[1].elbo_


def test_each_block_of_a_table_has_its_own_type():
    X = np.hstack([clusters("spherical"), clusters("tied")])
    auto = Gaussian("auto", mean_prior=None, degrees_of_freedom_prior=None)
    spec = [("a", auto, [0, 1, 2, 3]), ("b", auto, [4, 5, 6, 7])]
    table = MemoizedDPMixture(components=spec, max_components=4, max_iter=3).fit(X)
    assert [table.priors_[name]["covariance_type"] for name in "ab"] == ["spherical", "tied"]


def test_wide_tables_are_compared_on_some_columns():
    X = np.random.default_rng(0).normal(size=(90, types.MAX_COLUMNS + 1))
    widths = set()

    def build(X, weights, covariance_type):
        widths.add(X.shape[1])
        return make_gaussian_component(X, weights, covariance_type, zero_mean=False)

    of_complete = types.fit_each_type(X, np.ones(90), build, frozenset())
    assert {*of_complete} == {"spherical", "diag", "tied_low_rank", "low_rank"}
    # Factorising matrices of missing values takes longer than the observed values of a row, if half
    # of the values are missing.
    for n_missing, expected in ((6, {*of_complete}), (32, {"spherical", "diag"})):
        X[:, :n_missing] = np.nan
        assert {*types.fit_each_type(X, np.ones(90), build, frozenset())} == expected
    assert widths == {types.MAX_COLUMNS}


def two_clusters(n_rows, n_columns, seed):
    """Rows of two clusters that are five standard deviations apart in each column, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n_rows)
    return rng.normal(size=(n_rows, n_columns)) + 5.0 * y[:, None], y


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["auto", "full", "spherical"])
def test_clusters_far_apart_are_found_in_few_rows(covariance_type, monkeypatch):
    monkeypatch.setattr(types, "INITIAL_NUMBERS", (3, 20))
    X, y = two_clusters(100, 40, 1) if covariance_type == "spherical" else two_clusters(50, 20, 0)
    fit = of_type(covariance_type).fit(X)
    assert fit.n_components_ == 2
    assert adjusted_rand_score(y, fit.labels_) == 1.0


@pytest.mark.slow
def test_nine_of_ten_tables_of_few_rows_have_their_two_clusters(monkeypatch):
    monkeypatch.setattr(types, "INITIAL_NUMBERS", (3, 20))
    tables = [two_clusters(50, 20, seed) for seed in range(10)]
    fits = [MemoizedDPMixture(random_state=0).fit(X) for X, _ in tables]
    assert sum(fit.n_components_ == 2 for fit in fits) >= 9


def test_a_fit_of_few_rows_starts_from_the_short_fit_of_its_type():
    X, y = two_clusters(50, 20, 0)
    fit, one = (
        MemoizedDPGMM(covariance_type="auto", max_iter=1, moves=moves, random_state=0).fit(X)
        for moves in (("birth", "merge", "delete"), ())
    )
    assert adjusted_rand_score(y, fit.labels_) == 1.0
    # Without births, the user sets the number of components.
    assert one.n_components_ == 1


@pytest.mark.slow
def test_small_first_calls_of_a_stream_do_not_decide_on_its_type():
    """Three full clusters in calls of five rows; a start from the first short fit has six."""
    rng = np.random.default_rng(0)
    means, factors = 4.0 * rng.standard_normal((3, 4)), rng.standard_normal((3, 4, 4))
    y = rng.integers(3, size=300)
    X = means[y] + np.einsum("nij,nj->ni", factors[y], rng.standard_normal((300, 4)))
    stream = MemoizedDPGMM(covariance_type="auto", random_state=0)
    for start in range(0, 300, 5):
        stream.partial_fit(X[start : start + 5])
    assert stream.covariance_type_ == "full"
    assert stream.n_components_ == 3


@pytest.mark.slow
def test_held_out_rows_decide_on_the_prior_of_one_component():
    """A short fit that has merged all components keeps its prior if it predicts rows better."""
    train, test = rows_of(load_breast_cancer, 5)
    auto, full = (of_type(kind).fit(train) for kind in ("auto", "full"))
    assert auto.covariance_type_ == "full" and full.n_components_ == 1
    assert auto.score(test) > full.score(test) + 2.0
    # The prior that is learned from parts of one cluster predicts a nat a row worse.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(75, 30)) @ rng.normal(size=(30, 30))
    auto, full = (of_type(kind).fit(X) for kind in ("auto", "full"))
    assert auto.covariance_type_ == "full" and auto.elbo_ == full.elbo_


def of_type(kind):
    return MemoizedDPGMM(covariance_type=kind, random_state=0)


def rows_of(load, seed):
    """Two and a half rows for each column, drawn from a table, and the other rows."""
    X, _ = load(return_X_y=True)
    rows, n_rows = np.random.default_rng(seed).permutation(len(X)), int(2.5 * X.shape[1])
    return X[rows[:n_rows]], X[rows[n_rows:]]


def chosen_type(X, **options):
    build = partial(make_gaussian_component, zero_mean=False)
    learned = frozenset(GAUSSIAN_PRIORS)
    return types.choose_covariance_type(X, np.ones(len(X)), build, learned, **options)[0]


@pytest.mark.quick_cases("wine-9")
@pytest.mark.parametrize(
    ("load", "seed"),
    [(load_wine, 9), (load_wine, 1), (load_wine, 5), (load_digits, 0)],
    ids=["wine-9", "wine-1", "wine-5", "digits-0"],
)
def test_few_rows_choose_a_type_whose_held_out_density_is_high(load, seed, monkeypatch):
    monkeypatch.setattr(types, "INITIAL_NUMBERS", (3,) if seed == 9 else (3, 20))
    train, test = rows_of(load, seed)
    # The quick case and digits fit the chosen type. The others fit "auto", which starts from its
    # short fit. On digits, the optima of fits of one type differ by more than 0.2 nats.
    kinds = ("diag", "full", chosen_type(train) if seed in (0, 9) else "auto")
    *others, chosen = (of_type(kind).fit(train).score(test) for kind in kinds)
    assert chosen > max(others) - 0.2


@pytest.mark.slow
def test_factors_of_few_rows_are_judged_by_held_out_rows(monkeypatch):
    """Fits of "low_rank" have a higher bound, but 3 to 7 nats less for each held-out row."""
    monkeypatch.setattr(types, "INITIAL_NUMBERS", (3, 20))
    X, _ = load_digits(return_X_y=True)
    X = X[:, X.std(axis=0) > 0.0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(X))
        train = X[rows[: int(2.5 * X.shape[1])]]
        assert next(iter(bounds(train, LEARNED))) == "low_rank"
        assert chosen_type(train) == "diag"


@pytest.mark.slow
def test_few_rows_in_many_columns_determine_no_matrix():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 15)
    X = 2.0 * rng.standard_normal((3, 30))[y] + rng.standard_normal((45, 30))
    full, diag, auto = (of_type(kind).fit(X) for kind in ("full", "diag", "auto"))
    assert full.n_components_ == diag.n_components_ == auto.n_components_ == 3
    # The columns are independent and have the same variance, so that matrices describe them worse.
    assert full.elbo_ < diag.elbo_
    assert auto.covariance_type_ == "spherical"
    scale = full.covariance_prior_
    np.testing.assert_allclose(scale, np.diag(np.diagonal(scale)), atol=1e-9)


def test_a_scale_has_the_shape_of_one_type():
    with pytest.raises(ValueError, match="its shape depends on the type"):
        MemoizedDPGMM(covariance_type="auto", covariance_prior=np.ones(4)).fit(clusters("diag"))


@pytest.mark.parametrize(("difference", "chosen"), [(0.1, "diag"), (1.0, "spherical")])
def test_close_bounds_decide_unless_held_out_rows_clearly_contradict(
    difference, chosen, monkeypatch
):
    bounds = {"diag": -1.0, "spherical": -1.1, "full": -4.1}
    # Of a memo, only the number of components matters. It is the size of the entropy.
    memo = SimpleNamespace(entropy=np.zeros(2))
    fits = {kind: types.ShortFit(bound, memo, None) for kind, bound in bounds.items()}
    monkeypatch.setattr(types, "fit_each_type", lambda *_: fits)
    # The standard error of the mean difference is 2 / sqrt(120) = 0.18 without the one row whose
    # density is far lower.
    noise = np.resize([-2.0, 2.0], 120)
    noise[0] = -500.0
    densities = {"diag": noise, "spherical": np.full(120, difference), "full": np.full(120, 9.0)}
    monkeypatch.setattr(
        types, "_score_held_out",
        lambda X, weights, make, *_: densities[make.keywords["build"].keywords["covariance_type"]],
    )  # fmt: skip
    rows = np.zeros((120, 60)), np.ones(120)
    best, start = types.choose_covariance_type(*rows, dict, (), may_start=True)
    assert best == chosen and start is fits[chosen]
    assert types.choose_covariance_type(*rows, dict, ()) == (chosen, None)
