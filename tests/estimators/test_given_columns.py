"""Components of MemoizedDPMixture depend on given columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPMixture, load, save, unusual_rows
from skvt.components import (
    Bernoulli,
    Categorical,
    Gaussian,
    Hurdle,
    NegativeBinomial,
    Poisson,
    StudentT,
)

GIVEN = ["sex", "season"]


def drawn_table(seed, n=240, D=3):
    """Three classes, and two categories that shift every column within a class."""
    rng = np.random.default_rng(seed)
    kind, sex, season = (rng.integers(size, size=n) for size in (3, 2, 3))
    of_sex, of_season = (4.0 * rng.normal(size=(size, D)) for size in (2, 3))
    numbers = 5.0 * np.eye(3, D)[kind] + of_sex[sex] + of_season[season] + rng.normal(size=(n, D))
    table = pd.DataFrame(numbers, columns=[f"x{d}" for d in range(D)])
    shifts = [2.0 * rng.normal(size=(size, 3)) for size in (3, 2, 3)]
    odds = np.exp(sum(one[codes] for one, codes in zip(shifts, (kind, sex, season), strict=True)))
    below = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
    table["colour"] = np.array(["blue", "green", "red"])[(below < rng.random((n, 1))).sum(axis=1)]
    table["sex"] = np.array(["f", "m"])[sex]
    table["season"] = np.array(["autumn", "spring", "winter"])[season]
    return table, kind


@pytest.fixture(scope="module")
def fitted():
    table, kind = drawn_table(0)
    rng = np.random.default_rng(1)
    for column in ("x1", "colour"):
        table[column] = table[column].mask(rng.random(len(table)) < 0.1)
    mixture = MemoizedDPMixture(given=GIVEN, max_components=4, random_state=0)
    return mixture.fit(table), table, kind


def test_classes_are_found_that_given_categories_hide(fitted):
    mixture, _, kind = fitted
    assert mixture.n_components_ == 3
    assert adjusted_rand_score(kind, mixture.labels_) > 0.95
    elbo = mixture.history_["elbo"]
    assert np.all(np.diff(elbo) > -1e-9 * np.abs(elbo[:-1]))
    assert mixture.column_relevance_.shape == (3, 4)
    report = mixture.table_report_.set_index("column")["read_as"]
    assert [*report[GIVEN]] == ["given, 2 levels", "given, 3 levels"]


@pytest.mark.slow
def test_nine_of_ten_draws_have_three_of_three_classes():
    found = []
    for seed in range(10):
        table, kind = drawn_table(seed)
        mixture = MemoizedDPMixture(given=GIVEN, random_state=0).fit(table)
        right = adjusted_rand_score(kind, mixture.labels_) > 0.9
        found.append(mixture.n_components_ == 3 and right)
    assert sum(found) >= 9
    plain = MemoizedDPMixture(random_state=0).fit(table)
    assert plain.n_components_ >= 6


def test_parameters_are_described_where_given_columns_have_their_means(fitted):
    mixture, table, _ = fitted
    described = mixture.describe()
    rows = described[(described["column"] == "x0") & (described["component"] == 0)]
    assert [*rows["quantity"]] == [
        "mean", "standard deviation", "slope of sex: m", "slope of season: spring",
        "slope of season: winter",
    ]  # fmt: skip
    w = pd.get_dummies(table[["sex", "season"]], drop_first=True)
    w, own = np.column_stack([np.ones(len(w)), w - w.mean()]), mixture.labels_ == 0
    expected = np.linalg.lstsq(w[own], table["x0"][own])[0]
    np.testing.assert_allclose(rows["estimate"].iloc[[0, 2, 3, 4]], expected, atol=0.2)


def test_missing_values_are_filled_in_with_regard_to_given_columns(fitted):
    mixture, table, _ = fitted
    complete, _ = drawn_table(0)
    filled, missing = mixture.impute(table), table["x1"].isna()
    assert not filled.isna().any(axis=None)
    error = np.sqrt(np.mean((filled["x1"] - complete["x1"])[missing] ** 2))
    # The standard deviation within cells is 1.
    assert error < 1.5 < complete["x1"].std()
    chances, categories = mixture.predict_column_proba(table, "colour")
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    hidden = table["colour"].isna()
    guess = categories[chances.argmax(axis=1)]
    assert np.mean(guess[hidden] == complete["colour"][hidden]) > 0.6
    other = table.assign(sex=np.where(table["sex"] == "f", "m", "f"))
    assert np.abs(mixture.predict_column_proba(other, "colour")[0] - chances).max() > 0.2
    drawn = mixture.impute(table, n_draws=2, random_state=0)
    assert not drawn[0].isna().any(axis=None) and not drawn[0].equals(drawn[1])
    assert np.isfinite(unusual_rows(mixture, table, n=3)["score"]).all()


def test_rows_are_drawn_for_given_values(fitted):
    mixture, table, _ = fitted
    one = table[table["sex"] == "m"]
    drawn, labels = mixture.sample(3, random_state=0, given=one)
    assert drawn.shape == (3 * len(one), 4) and labels.shape == (3 * len(one),)
    expected, spread = one["x0"].mean(), one["x0"].std()
    assert abs(drawn["x0"].mean() - expected) < 5.0 * spread / np.sqrt(len(one))
    again, _ = mixture.sample(3, random_state=0, given=one[GIVEN])
    pd.testing.assert_frame_equal(again, drawn)
    again, _ = mixture.sample(3, random_state=0, given=one[GIVEN].to_numpy())
    pd.testing.assert_frame_equal(again, drawn)
    without = MemoizedDPMixture(random_state=0, max_iter=1).fit(table[["x0", "x1"]])
    for model, given, message in (
        (mixture, table[["season"]], r"lacks the columns \['sex'\]"),
        (mixture, np.ones((4, 3)), r"of the 2 columns .* Got the shape \(4, 3\)"),
        (mixture, None, r"given=rows\)"),
        (without, table, "without given columns"),
    ):
        with pytest.raises(ValueError, match=message):
            model.sample(given=given)


def test_files_hold_given_columns(fitted, tmp_path):
    mixture, table, _ = fitted
    save(mixture, tmp_path / "mixture.skvt")
    again = load(tmp_path / "mixture.skvt")
    np.testing.assert_array_equal(again.predict_proba(table), mixture.predict_proba(table))
    assert again.given == GIVEN
    assert np.isfinite(again.posterior_.log_prob(again.posterior_.sample(2, 0))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sex": "x"}, "'sex' has the level 'x' .*'f', 'm'"),
        ({"season": None}, "'season' has missing values .*did not occur"),
        ({"sex": [["f"]] * 240}, "Column 'sex' has values that cannot be categories"),
    ],
)
def test_rows_need_known_values_of_given_columns(fitted, change, message):
    mixture, table, _ = fitted
    with pytest.raises(ValueError, match=message):
        mixture.predict(table.assign(**change))


@pytest.mark.parametrize(
    ("given", "component", "message"),
    [
        (["other"], None, "The columns of 'given' are not in X"),
        ("x1", None, "'x1' has missing values .*Fill in the values"),
        ("n", None, "same value in all rows and explain nothing"),
        (slice(None), None, "names all 8 columns"),
        ("row", None, "'row' has 240 levels in 240 rows"),
        ("sex", (Categorical(), ["sex", "colour"]), "'sex' belongs to 'given' and to 'part'"),
        ("sex", (StudentT(), ["x0"]), "StudentT cannot depend on given"),
        ("sex", (Gaussian("tied"), ["x0"]), "'diag', 'full' or 'auto'"),
        ("sex", (Poisson(exposure="row_total"), ["n"]), "Add the total of each row"),
    ],
)
def test_illegal_given_columns_are_refused_before_any_work(fitted, given, component, message):
    _, table, _ = fitted
    components = "auto" if component is None else [("part", *component)]
    mixture = MemoizedDPMixture(components=components, given=given)
    with pytest.raises(ValueError, match=message):
        mixture.fit(table.assign(n=1, row=[f"row {i}" for i in range(len(table))]))
    assert not hasattr(mixture, "n_components_")


def test_given_columns_may_have_levels_without_rows_and_first_rows_of_a_stream_one_level_each():
    rng = np.random.default_rng(0)
    x, sites = rng.normal(size=40), [f"site {i}" for i in range(40)]
    some = pd.DataFrame({"x": x, "site": pd.Categorical(sites[:4] * 10, categories=sites)})
    MemoizedDPMixture(1, given="site").fit(some)
    all_sites = some.assign(site=pd.Categorical(sites, categories=sites))
    with pytest.raises(ValueError, match="'site' has 40 levels in 40 rows"):
        MemoizedDPMixture(1, given="site").fit(all_sites)
    MemoizedDPMixture(1, given="site").partial_fit(all_sites)


@pytest.mark.slow
def test_all_components_and_kinds_of_given_columns_work_together(tmp_path):
    rng, n = np.random.default_rng(0), 200
    kind, treated, age = rng.integers(2, size=n), rng.random(n) < 0.5, rng.normal(40.0, 9.0, n)
    table = pd.DataFrame({
        "a": rng.normal(6.0 * kind + 0.2 * age), "b": rng.normal(3.0 * kind - 0.1 * age),
        "hours": np.where(rng.random(n) < 0.3, 0.0, rng.gamma(5.0, 1.0 + kind)),
        "visits": rng.poisson(2.0 + 5.0 * kind), "years": rng.uniform(1.0, 2.0, n),
        "well": rng.random(n) < 0.2 + 0.6 * (kind ^ treated),
        "group": np.where(kind ^ (rng.random(n) < 0.2), "p", "q"),
        "treated": treated, "age": age, "city": np.where(rng.random(n) < 0.1, None, "c"),
    })  # fmt: skip
    table["b"] = table["b"].mask(rng.random(n) < 0.2)
    table["group"] = table["group"].mask(rng.random(n) < 0.2)
    blocks = [
        ("numbers", Gaussian("full", missing="informative"), ["a", "b"]),
        ("hours", Hurdle(Gaussian("diag")), ["hours"]),
        ("visits", NegativeBinomial(exposure="years", missing="informative"), ["visits"]),
        ("well", Bernoulli(feature_prior="auto"), ["well"]),
        ("group", Categorical(missing="informative", concentration_prior="auto"), ["group"]),
    ]
    mixture = MemoizedDPMixture(
        components=blocks, given=["treated", "age", "city"], random_state=0, max_iter=8
    ).fit(table)
    assert mixture.n_components_ == 2
    assert adjusted_rand_score(kind, mixture.labels_) > 0.8
    save(mixture, tmp_path / "mixture.skvt")
    assert load(tmp_path / "mixture.skvt").score(table) == mixture.score(table)
    drawn, _ = mixture.sample(given=table, random_state=0)
    assert set(drawn) >= {"a", "b", "hours", "visits", "well", "group"}
    described = mixture.describe()
    assert {"slope of age", "slope of treated: True"} <= set(described["quantity"])


def test_positions_give_columns_of_arrays_and_weights_stand_for_repeated_rows():
    table, _ = drawn_table(0, n=120, D=2)
    X = table[["x0", "x1"]].to_numpy()
    X = np.column_stack([table["sex"] == "m", X]).astype(float)
    weights = np.random.default_rng(0).integers(1, 3, size=len(X))
    settings = {"given": [0], "moves": (), "n_components": 1}
    weighted = MemoizedDPMixture(**settings).fit(X, sample_weight=weights)
    repeated = MemoizedDPMixture(**settings).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.elbo_, repeated.elbo_)
    with pytest.raises(ValueError, match="lacks the given columns 0 of the fit"):
        weighted.predict(X[:, 1:])


@pytest.mark.slow
def test_streams_take_given_columns():
    table, kind = drawn_table(0)
    mixture = MemoizedDPMixture(given=GIVEN, random_state=0)
    for start in (0, 120):
        mixture.partial_fit(table[start : start + 120])
    assert adjusted_rand_score(kind, mixture.predict(table)) > 0.9


def test_chunks_of_a_table_are_read_as_rows_in_memory_are():
    dask = pytest.importorskip("dask", reason="needs the extra 'dask'")
    dd = pytest.importorskip("dask.dataframe", reason="needs the extra 'dask'")
    table, _ = drawn_table(0, n=120, D=2)
    rng = np.random.default_rng(0)
    table["income"] = np.where(rng.random(120) < 0.3, 0.0, np.exp(2.0 * rng.normal(size=120)))
    table = table[["x0", "x1", "income", "colour", "sex", "season"]]
    mixture = MemoizedDPMixture(given=GIVEN, moves=(), max_iter=2)
    with dask.config.set(scheduler="synchronous"):
        chunked = mixture.fit(dd.from_pandas(table, npartitions=2))
    assert [*chunked.priors_["hurdles"]["log"]] == [0]
    found = chunked.elbo_
    np.testing.assert_allclose(found, mixture.fit(table).elbo_, rtol=1e-9)


def test_the_levels_of_all_chunks_together_decide_whether_a_given_column_is_an_identifier():
    dask = pytest.importorskip("dask", reason="needs the extra 'dask'")
    dd = pytest.importorskip("dask.dataframe", reason="needs the extra 'dask'")
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(160, 2)), columns=["a", "b"])
    mixture = MemoizedDPMixture(given=["site"], moves=(), max_iter=1)

    def fit(sites):
        return mixture.fit(dd.from_pandas(table.assign(site=sites), npartitions=4))

    sites = [f"s{i}" for i in range(160)]
    with dask.config.set(scheduler="synchronous"):
        # Each of four chunks has the same 40 sites.
        assert fit(4 * sites[:40]).n_features_in_ == 3
        with pytest.raises(ValueError, match="'site' has 160 levels in 160 rows"):
            fit(sites)


@pytest.mark.parametrize("as_values", [pd.Series, np.asarray, list, pd.DataFrame])
@pytest.mark.parametrize("levels", ["ab", [0, 1], [0.5, 1.5]])
def test_values_are_refused_as_the_name_of_a_given_column(as_values, levels):
    """Codes 0 and 1 would be read as positions, so that other columns would be given."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    values = as_values([*levels] * 20)
    said = r"^The 'given' parameter takes names .* Got 40 values, a \w+, .* given=\['batch'\]\.$"
    with pytest.raises(ValueError, match=said):
        MemoizedDPMixture(given=values).fit(X)


@pytest.mark.parametrize("kind", [Poisson, NegativeBinomial])
@pytest.mark.parametrize("as_values", [pd.Series, np.asarray, list])
def test_values_are_refused_as_the_name_of_an_exposure(kind, as_values):
    counts = np.random.default_rng(0).poisson(3.0, size=(40, 3))
    components = kind(exposure=as_values([1.5, 2.5] * 20))
    said = r"^The 'exposure' parameter of \w+ takes the name .* Got values, a \w+\. .*'depth'\.$"
    with pytest.raises(ValueError, match=said):
        MemoizedDPMixture(components=components).fit(counts)
