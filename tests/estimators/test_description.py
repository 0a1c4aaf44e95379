"""Descriptions of components list their parameters and the columns that tell them apart."""

import re
import sys
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from estimators._registry import every_class
from estimators.test_tables import mixture, table
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skvt import (
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    StructuredBernoulliMixture,
    cluster_report,
    load,
    save,
    unusual_rows,
)
from skvt._results.profiles import find_directions, list_distinctive_columns, make_profiles
from skvt.components import Bernoulli, Categorical, Gaussian, Hurdle, Poisson
from skvt.plotting import ComponentsDisplay, ProfilesDisplay


@pytest.fixture(scope="module")
def fitted():
    return mixture().fit(table(share=0.1)[0])


def test_descriptions_name_columns_and_categories_as_the_user_does(fitted):
    found = fitted.describe()
    expected = [
        ("events", "count", "rate", None),
        *[("names", "colour", "probability", colour) for colour in ("blue", "red")],
        *[("names", "grade", "probability", grade) for grade in "cbad"],
        ("flags", "striped", "probability", True),
        ("real", "size", "mean", None),
        ("real", "size", "standard deviation", None),
    ]
    said = found[["block", "column", "quantity", "category"]].itertuples(index=False, name=None)
    said = [tuple(None if pd.isna(value) else value for value in row) for row in said]
    assert said == expected * fitted.n_components_
    np.testing.assert_array_equal(found["component"], np.repeat(range(3), len(expected)))
    np.testing.assert_array_equal(found["weight"], np.repeat(fitted.weights_, len(expected)))
    # Estimates are the posterior means, in the units of the data.
    means = fitted.posterior_.mean()["components"]
    by_quantity = found.groupby(["component", "column", "quantity"], sort=False)["estimate"]
    for k in range(3):
        own = {key[1:]: value.to_numpy() for key, value in by_quantity if key[0] == k}
        np.testing.assert_allclose(own["count", "rate"], means["events"][k])
        np.testing.assert_allclose(own["colour", "probability"], means["names"][k, :2])
        np.testing.assert_allclose(own["grade", "probability"], means["names"][k, 2:])
        np.testing.assert_allclose(own["striped", "probability"], means["flags"][k, 0, 0])
        np.testing.assert_allclose(own["size", "mean"], means["real"].mean[k, 0])
    assert ((found["low"] < found["estimate"]) & (found["estimate"] < found["high"])).all()
    # The relevance is that of the row's own component and column.
    names = [name for _, _, columns in fitted.blocks_ for name in columns]
    place = [names.index(name) for name in found["column"]]
    np.testing.assert_array_equal(
        found["relevance"], fitted.column_relevance_[found["component"], place]
    )


def test_a_cluster_is_described_as_one_component_of_its_rows():
    """A mixture of the clusters is the same model, if rows and priors are given."""
    rng = np.random.default_rng(0)
    part = np.repeat([0, 1, 2, 3], [70, 60, 50, 40])
    frame = pd.DataFrame(
        {
            "size": 100.0 * (part > 1) + 20.0 * (part % 2) + rng.normal(size=220),
            "colour": np.where(part > 1, "red", rng.choice(["blue", "red"], size=220)),
            "visits": rng.poisson(2.0 + part),
        }
    )
    blocks = [
        ("real", Gaussian("diag", mean_prior=[0.0], mean_precision_prior=1e-4,
                          degrees_of_freedom_prior=2.0, covariance_prior=[1.0]), ["size"]),
        ("words", Categorical(1.0), ["colour"]),
        ("counts", Poisson(1.0, rate_prior=1.0), ["visits"]),
    ]  # fmt: skip
    fixed = {"components": blocks, "moves": (), "random_state": 0, "n_batches": 1,
             "weight_concentration_prior": 1.0}  # fmt: skip
    parts = MemoizedDPMixture(4, labels_init=part, **fixed).fit(frame)
    whole = MemoizedDPMixture(2, labels_init=part // 2, **fixed).fit(frame)
    assert parts.component_clusters(2).tolist() == [0, 0, 1, 1]
    found, expected = parts.describe(n_clusters=2), whole.describe()
    assert found.columns[0] == "cluster"
    found = found.rename(columns={"cluster": "component"})
    # Weights differ a little, because the prior breaks other sticks.
    shared = expected.columns.drop("weight")
    pd.testing.assert_frame_equal(found[shared], expected[shared], rtol=1e-6)
    np.testing.assert_allclose(found["weight"].unique(), [130 / 220, 90 / 220], atol=0.01)
    np.testing.assert_allclose(parts.column_relevance(2), whole.column_relevance_, rtol=1e-6)
    # The spread of a cluster includes that between its components.
    spread = found.query("quantity == 'standard deviation'")["estimate"]
    np.testing.assert_allclose(spread, frame["size"].groupby(part // 2).std(), rtol=0.05)
    # None, or the number of components, leaves them as they are.
    np.testing.assert_array_equal(parts.column_relevance(None), parts.column_relevance_)
    np.testing.assert_array_equal(parts.column_relevance(4), parts.column_relevance_)
    auto, number = parts.describe(n_clusters="auto"), parts.n_clusters_
    pd.testing.assert_frame_equal(auto, parts.describe(n_clusters=number))
    with pytest.raises(ValueError, match=r"range \[1, n_components_\] = \[1, 4\]"):
        parts.describe(n_clusters=5)


def groups_with_slips():
    """Two groups that differ in two columns, and two slips in a third column."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 100)
    frame = pd.DataFrame({
        "potassium": 4.5 + 0.3 * rng.normal(size=200),
        "hemo": 11.0 + 4.0 * z + rng.normal(size=200),
        "noise": (1.0 + 4.0 * z) * rng.normal(size=200),
    })  # fmt: skip
    slips = frame.copy()
    slips.loc[[3, 150], "potassium"] = [39.0, 47.0]
    return frame, slips, z


def numbers(rows, labels):
    """A mixture of independent columns whose components are these groups of rows."""
    block = [("numbers", Gaussian("diag"), slice(None))]
    n_components, fixed = len(np.unique(labels)), {"moves": (), "random_state": 0}
    mixture = MemoizedDPMixture(n_components, components=block, labels_init=labels, **fixed)
    return mixture.fit(rows)


def test_levels_of_whole_numbers_have_no_decimals():
    answers = np.repeat([1.0, 4.0, 2.5], [60, 60, 3])
    frame = pd.DataFrame({"a": answers, "b": np.where(np.arange(123) < 5, np.nan, answers)})
    model = MemoizedDPMixture(2, components=Categorical(), moves=(), random_state=0).fit(frame)
    sentences = model.describe(form="text")
    assert re.search("a is 1 ", sentences) and re.search("b is 4 ", sentences)
    assert not re.search(r"is \d\.0", sentences)
    levels = {parts[0] for parts in make_profiles(model.describe()).cells.values()}
    assert levels == {"1", "4"}


def test_two_slips_do_not_make_a_column_relevant():
    """The slips have a component, with which the other components are not compared."""
    frame, slips, z = groups_with_slips()
    mixture = numbers(slips, np.where(np.isin(np.arange(200), [3, 150]), 2, z))
    expected, relevance = numbers(frame, z).column_relevance(None), mixture.column_relevance(None)
    assert relevance.columns.tolist() == ["potassium", "hemo", "noise"]
    np.testing.assert_allclose(relevance[:2], expected, atol=0.05)
    lines = mixture.describe(form="text").splitlines()
    assert ["potassium" in line for line in lines] == [False, False, True]


def test_descriptions_say_whether_centre_or_spread_differs():
    frame, _, z = groups_with_slips()
    frame["noise"] = 2000.0 + 100.0 * frame["noise"]  # standard deviations of 100 and 500
    mixture = numbers(frame, z)
    columns = mixture.describe().set_index("column")
    part = columns["differs_in"]
    assert set(part["hemo"]) == {"centre"} and set(part["noise"]) == {"spread"}
    noise = columns.loc["noise"].set_index("quantity")["estimate"]
    deviations = noise["standard deviation"].to_numpy()
    sentences = re.findall(
        r"noise (\d+), with standard deviation (\d+) \(average component: (\d+)\)",
        mixture.describe(form="text"),
    )
    on_average = np.full(2, np.sqrt(np.mean(deviations**2)))
    expected = np.column_stack([noise["mean"], deviations, on_average])
    np.testing.assert_allclose(np.array(sentences, float), expected, rtol=0.05)
    assert mixture.column_relevance(None).loc[0, "noise"] > 0.1


def test_the_value_in_all_rows_is_that_of_the_data():
    """Amounts have their geometric mean, and columns with point masses the mean of other values."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], [600, 400])
    wage = np.exp(rng.normal(5.0 + 3.0 * z, 0.3))
    hours = np.where(rng.random(1000) < np.array([0.9, 0.1])[z], 40.0, rng.normal(10 + 20 * z))
    frame = pd.DataFrame({"wage": wage, "hours": hours})
    hurdle = ("hours", Hurdle(Gaussian("diag"), at=40.0), ["hours"])
    blocks = [("wage", Gaussian("diag", log=["wage"]), ["wage"]), hurdle]
    mixture = MemoizedDPMixture(2, components=blocks, labels_init=z, moves=()).fit(frame)
    estimates = make_profiles(mixture.describe()).estimates
    (median, *_), (mean, _, share) = estimates[2, 0], estimates[2, 1]
    assert median.value == pytest.approx(np.exp(np.log(wage).mean()), rel=0.03)
    assert mean.value == pytest.approx(hours[hours != 40.0].mean(), rel=0.03)
    assert share.value == pytest.approx(np.mean(hours != 40.0), rel=0.03)
    text = mixture.describe(form="text")
    assert re.search(r"hours 89% equal to 40 \(all 58%\), otherwise \d", text)


def test_cells_show_shares_of_zeros_counts_from_one_on_and_small_amounts():
    """Hurdles of counts describe the count minus one, and amounts differ by orders of magnitude."""
    names, quantities = ("returns", "returns", "spent"), ("rate", "share not 0", "median")
    rows = [
        (k, 0.5, "block", name, 1.0, quantity, None, estimate)
        for k, estimates in enumerate([(1.5, 0.25, 24.0), (1.0, 0.75, 20_000.0)])
        for name, quantity, estimate in zip(names, quantities, estimates, strict=True)
    ]
    headers = "component weight block column relevance quantity category estimate".split()
    profiles = make_profiles(dict(zip(headers, zip(*rows, strict=True), strict=True)))
    assert profiles.cells[0, 0] == ("2.5", "(75% zero)")
    # The mean of all values is 0.25 * 2.5 in component 0, and 0.75 * 2.0 in component 1.
    assert find_directions(profiles)[:, 0].tolist() == [-1.0, 1.0, 0.0]
    assert profiles.cells[0, 1] == ("24",) and profiles.cells[1, 1] == ("20000",)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_counts_beside_a_point_mass_have_the_mean_of_the_other_counts(at):
    rng = np.random.default_rng(0)
    counts = at + rng.poisson(2.0, 500) * (rng.random(500) < 0.7)
    mixture = MemoizedDPMixture(1, components=Hurdle(Poisson(), at=at)).fit(counts[:, None])
    mean = make_profiles(mixture.describe()).estimates[0, 0][0]
    assert mean.quantity == "rate"
    assert mean.value == pytest.approx(counts[counts > at].mean(), rel=0.02)


def test_without_pandas_the_table_is_a_dict_of_lists(fitted, monkeypatch):
    expected = fitted.describe()
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = fitted.describe()
    assert list(found) == list(expected)
    for name, values in found.items():
        assert type(values) is list and type(values[0]) in (int, float, str, type(None))
        pd.testing.assert_series_equal(pd.Series(values, name=name), expected[name])


def test_columns_of_noise_are_irrelevant_and_those_that_make_clusters_are_relevant():
    rng = np.random.default_rng(0)
    # Components are in the order of their weights.
    kind = np.repeat([0, 1, 2], [240, 200, 160])
    frame = pd.DataFrame({
        "noise": rng.normal(size=600), "place": rng.normal(size=600) + 8.0 * (kind == 1),
        "word": np.where(kind == 2, "b", rng.choice(list("ac"), size=600)),
        "sign": np.where(kind == 2, "+", rng.choice(list("-0"), size=600)),
        "coin": rng.random(600) < 0.5,
    })  # fmt: skip
    blocks = [
        ("real", Gaussian("full"), ["place", "noise"]),
        ("words", Categorical(), ["word", "sign"]), ("coins", Bernoulli(), ["coin"]),
    ]  # fmt: skip
    model = MemoizedDPMixture(3, components=blocks, labels_init=kind, moves=(), max_iter=9)
    place, noise, word, sign, coin = model.fit(frame).column_relevance_.T
    assert np.argmax(place) == 1 and place[1] > 1.0
    assert np.argmax(word) == 2 and word[2] > 0.6
    assert max(noise.max(), coin.max()) < 0.02
    # The columns of these blocks are independent.
    np.testing.assert_allclose(model.block_relevance_[:, 1:], np.stack([word + sign, coin], axis=1))
    # Units and the order of columns change no relevance.
    other = frame.assign(place=1e4 + 1e-3 * frame["place"])[[*frame.columns[::-1]]]
    again = clone(model).fit(other).column_relevance_
    np.testing.assert_allclose(again, model.column_relevance_, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_have_their_level_of_the_posterior_draws(fitted, level):
    rates = [fitted.posterior_.sample(random_state=seed)["components"] for seed in range(1_000)]
    rates = np.array([rate["events"][0, 0] for rate in rates])
    row = fitted.describe(level=level).iloc[0]
    inside = np.mean((row["low"] < rates) & (rates < row["high"]))
    assert inside == pytest.approx(level, abs=4.0 * np.sqrt(level * (1.0 - level) / 1_000))


def test_descriptions_need_a_level_and_a_fit(fitted):
    for level in (0.0, 1.0, "0.95"):
        with pytest.raises(ValueError, match=r"'level' parameter .* \(0, 1\)\. Got"):
            fitted.describe(level)
    with pytest.raises(NotFittedError):
        mixture().describe()
    assert not hasattr(mixture(), "column_relevance_")


@pytest.mark.parametrize("method", ["structured", "memoized"])
def test_descriptions_of_binary_columns_have_the_means(method):
    frame = pd.DataFrame(np.random.default_rng(0).random((60, 3)) < 0.5, columns=list("abc"))
    bits = StructuredBernoulliMixture(4, learning_method=method, max_iter=9, random_state=0)
    rows = bits.fit(frame).describe()
    np.testing.assert_allclose(rows["estimate"], bits.means_.ravel())
    assert rows["column"].tolist() == list("abc") * bits.n_components_
    assert set(rows["category"]) == {1}


@pytest.mark.quick_cases("MemoizedDPGMM", "StructuredBernoulli")
@pytest.mark.parametrize("kind", [MemoizedDPMixture, MemoizedDPGMM, StructuredBernoulliMixture])
def test_names_that_are_given_to_columns_of_arrays_are_shown(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = (rng.random((80, 3)) < np.repeat([[0.05, 0.9, 0.5], [0.9, 0.1, 0.5]], 40, 0)).astype(float)
    X = X if kind is StructuredBernoulliMixture else X + rng.normal(scale=0.1, size=X.shape)
    X[5, 2] = np.nan
    model = kind(random_state=0).fit(X)
    genes = ["CD3E", "CD19", "NKG7"]
    assert {*model.describe()["column"]} == {0, 1, 2}
    assert re.search(r"\(\d+% of rows\): column [01] ", model.describe(form="text"))
    assert isinstance(model.column_relevance(), np.ndarray)
    assert model.set_words(pd.Index(genes)).words_.tolist() == genes
    assert {*model.describe()["column"]} == {*genes}
    assert "CD3E" in model.describe(form="text") and "column" not in model.describe(form="text")
    assert {*genes} <= {*model.describe(form="wide").columns}
    assert {*model.column_relevance().columns} == {*genes}
    assert {*unusual_rows(model, X, n=5)["column"]} <= {*genes}
    assert {name for _, name in ProfilesDisplay.from_estimator(model).columns_} == {*genes}
    cluster_report(model, X, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ">NKG7<" in page and "column 0" not in page
    save(model, tmp_path / "model.skvt")
    assert {*load(tmp_path / "model.skvt").partial_fit(X).describe()["column"]} == {*genes}
    assert {*model.fit(X).describe()["column"]} == {0, 1, 2}


def test_columns_of_a_table_are_called_by_the_names_that_were_given(fitted):
    X, _ = table(share=0.1)
    named = deepcopy(fitted)
    names = {name: f"the {name}" for name in X.columns}
    named.set_words([*names.values()])
    expected = fitted.describe().replace({"column": names})
    pd.testing.assert_frame_equal(named.describe(), expected)
    report = fitted.table_report_.replace({"column": names})
    pd.testing.assert_frame_equal(named.table_report_, report)
    # Blocks are legal components, which need the names in X.
    assert [columns for *_, columns in named.blocks_] == [columns for *_, columns in fitted.blocks_]
    # New rows have the names that the fit saw.
    np.testing.assert_array_equal(named.predict(X), fitted.predict(X))
    scores = fitted.score_column(X, "size")
    np.testing.assert_array_equal(named.score_column(X, "the size"), scores)
    # The name in X is meant if it is another column's new name, too.
    named.set_words([*X.columns[1:], X.columns[0]])
    np.testing.assert_array_equal(named.score_column(X, "size"), scores)
    assert [*named.sample(3)[0].columns] == [*fitted.sample(3)[0].columns]


def test_a_mixture_with_a_background_keeps_it_when_columns_are_named():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = MemoizedDPGMM(background=True, random_state=0).fit(X)
    weight = model.background_weight_
    model.set_words(["a", "b"])
    assert model.background_weight_ == weight and {*model.describe()["column"]} == {"a", "b"}


@every_class
def test_every_estimator_takes_names_of_columns(entry):
    X = entry.data()
    model = entry.make(max_iter=1).fit(X)
    assert not hasattr(model, "words_")
    names = [f"gene {j}" for j in range(X.shape[1])]
    assert model.set_words(names).words_.tolist() == names
    assert model.partial_fit(X).words_.tolist() == names
    assert not hasattr(model.set_params(warm_start=False).fit(X), "words_")


def test_means_are_shown_with_the_names_of_the_columns():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = CAVIGaussianMixture(2, random_state=0).fit(X).set_words(["a", "b", "c"])
    labels = ComponentsDisplay.from_estimator(model).ax_.get_xticklabels()
    assert [label.get_text() for label in labels] == ["a", "b", "c"]


def test_descriptions_say_by_how_much_amounts_vary():
    # The amounts of both groups have the median 18. Most are within factors of 1.05 and 1.65.
    rng = np.random.default_rng(0)
    z = rng.random(1_000) < 0.5
    deviation = np.log(np.where(z, 1.05, 1.65))
    frame = pd.DataFrame(
        {"amount": 18.0 * np.exp(deviation * rng.normal(size=z.size)), "x": 8.0 * z}
    )
    frame["x"] += rng.normal(size=z.size)
    blocks = [("amount", Gaussian(log=["amount"]), ["amount"]), ("x", Gaussian(), ["x"])]
    mixture = MemoizedDPMixture(2, components=blocks, moves=(), labels_init=z.astype(int)).fit(
        frame
    )
    found = re.findall(
        r"amount (\S+), typically within a factor of (\S+) \(average component: (\S+)\)",
        mixture.describe(form="text"),
    )
    found = np.array(sorted(found, key=lambda numbers: float(numbers[1])), float)
    average = np.exp(np.sqrt(np.mean(np.log([1.05, 1.65]) ** 2)))
    expected = [[18.0, 1.05, average], [18.0, 1.65, average]]
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_a_sentence_names_a_level_that_is_more_frequent_in_the_cluster():
    rng = np.random.default_rng(0)
    group = np.arange(400) % 2
    frame = pd.DataFrame({"x": rng.normal(8.0 * group), "y": rng.normal(8.0 * group)})
    frame["children"] = np.where(rng.random(400) < np.where(group == 0, 0.4, 0.02), "some", "none")
    model = MemoizedDPMixture(random_state=0).fit(frame)
    sentence, other = model.describe(form="text").splitlines()
    if "x 8" in sentence:
        sentence, other = other, sentence
    n_some = np.sum(frame["children"] == "some") / 400
    share, share_of_all = re.search(
        r"children is more often some \((\d+)%; all (\d+)%", sentence
    ).groups()
    assert abs(int(share) - 40) < 8 and abs(int(share_of_all) - 100 * n_some) < 2
    assert "children is none (9" in other


def test_clusters_with_equal_sentences_get_the_column_that_tells_them_apart():
    # Two clusters are alike in two columns.
    values = {"phone": (1.0, 1.0, 0.0), "mail": (1.0, 1.0, 0.1), "noise": (5.0, 5.2, 5.1),
              "tenure": (52.0, 14.0, 30.0), "calls": (3.0, 2.9, 0.0)}  # fmt: skip
    first, second, third = describe_three_clusters(values)
    assert first.startswith("phone is yes (100%; all 67%), mail is yes (100%; all 70%), tenure 52")
    assert second.startswith("phone is yes (100%; all 67%), mail is yes (100%; all 70%), tenure 14")
    assert third == "phone is no (100%; all 33%), mail is no (90%; all 30%)"
    # A column that does not tell the two clusters apart is not added.
    del values["noise"], values["calls"]
    values["tenure"] = 30.0, 30.0, 14.0
    first, second, _ = describe_three_clusters(values)
    assert first == second == "phone is yes (100%; all 67%), mail is yes (100%; all 70%)"


def describe_three_clusters(values):
    """Return texts on two columns. ``values`` are shares of "yes" in phone and mail, and means."""
    relevance = {"phone": 0.6, "mail": 0.5, "noise": -0.01, "tenure": 0.2, "calls": 0.3}
    rows = [
        (k, 1 / 3, "all", name, relevance[name], quantity, category, estimate)
        for k in range(3)
        for name in values
        for quantity, category, estimate in (
            [("probability", "yes", values[name][k]), ("probability", "no", 1.0 - values[name][k])]
            if name in ("phone", "mail")
            else [("mean", None, values[name][k]), ("standard deviation", None, 1.0)]
        )
    ]
    names = "cluster weight block column relevance quantity category estimate".split()
    profiles = make_profiles(pd.DataFrame(rows, columns=names))
    return list_distinctive_columns(profiles, max_columns=2)
