"""What is found of a table's columns before any work."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import skvt
from skvt.components import Categorical, Gaussian


def clusters():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=300)
    return pd.DataFrame(
        {
            "a": rng.normal(np.array([0.0, 4.0, 8.0])[group]),
            "b": rng.normal(np.array([0.0, 4.0, -4.0])[group]),
            "c": np.array(list("xyz"))[(group + (rng.random(300) < 0.1)) % 3],
        }
    )


def with_noise(table):
    n = len(table)
    return table.assign(
        number=np.arange(n) + 17, name=[f"row {i}" for i in range(n)],
        date=pd.date_range("2020", periods=n).astype(str), same=1.0, word="only",
        line=1.0 - 2.0 * table.a, renamed=table.c.map({"x": 3, "y": 1, "z": 2}).astype(str),
        nothing=np.full(n, None, object),
    )  # fmt: skip


def test_columns_that_say_nothing_change_no_cluster():
    table = clusters()
    room = {"max_components": 4, "random_state": 0}
    alone = skvt.MemoizedDPMixture(**room).fit(table)
    with pytest.warns(skvt.ColumnWarning, match=r"'line' \(column 0, left out\)") as caught:
        beside = skvt.MemoizedDPMixture(**room).fit(with_noise(table))
    assert len(caught) == 1 and caught[0].filename == __file__
    groups = alone.predict(table), beside.predict(with_noise(table))
    assert adjusted_rand_score(*groups) > 0.95
    report = beside.table_report_
    assert dict(zip(report["column"], report["kind"], strict=True)) == {
        "number": "identifier", "name": "identifier", "date": "identifier", "same": "constant",
        "word": "constant", "line": "repeated", "renamed": "repeated", "nothing": "missing",
    }  # fmt: skip
    assert report["found"][report["column"].index("word")] == "only, left out"
    # (among numbers a constant would take part in the covariances)
    assert report["found"][report["column"].index("same")].endswith("left out")
    # new rows may have other names, numbers and dates
    other = with_noise(table[:50]).assign(name="new", number=-1, nothing="here now")
    assert np.array_equal(beside.predict(other), groups[1][:50])


def test_constant_numbers_of_an_array_change_nothing():
    X = clusters()[["a", "b"]].to_numpy()
    beside = np.column_stack([np.full(300, 2.0), X])
    settings = {"max_iter": 3, "random_state": 0}
    alone = skvt.MemoizedDPMixture(**settings).fit(X)
    with pytest.warns(skvt.ColumnWarning, match=r"'0' \(2, left out\)"):
        fitted = skvt.MemoizedDPMixture(**settings).fit(beside)
    np.testing.assert_allclose(fitted.elbo_, alone.elbo_, rtol=1e-9)
    # one that has holes is filled in
    beside[:3, 0] = np.nan
    filled = skvt.MemoizedDPMixture(**settings).fit(beside).impute(beside)
    np.testing.assert_allclose(filled[:, 0], 2.0, rtol=1e-6)


@pytest.mark.slow
def test_columns_that_say_nothing_change_no_birth():
    # (births see a number of rows for each column)
    rng = np.random.default_rng(0)
    centres = rng.normal(0.0, 1.0, (6, 14))
    table = pd.DataFrame(centres[rng.integers(6, size=700)] + rng.standard_normal((700, 14)))
    beside = table.assign(name=[f"row {i}" for i in range(700)], word="only", number=np.arange(700))
    beside.columns = beside.columns.astype(str)
    bounds = [
        skvt.MemoizedDPMixture(max_iter=2, random_state=0).fit(own).lower_bounds_
        for own in (table, beside)
    ]
    np.testing.assert_allclose(*bounds, rtol=1e-9)


def test_a_table_of_identifiers_alone_is_refused():
    with pytest.raises(ValueError, match=r"leaves out every column.*'number', 'name'.*components"):
        skvt.MemoizedDPMixture().fit(with_noise(clusters())[["number", "name"]])


def test_few_whole_numbers_are_levels_and_prices_are_no_identifiers():
    rng = np.random.default_rng(1)
    price = rng.choice(np.arange(1_000, 90_000), 400, replace=False)
    table = pd.DataFrame({"grade": rng.integers(1, 6, size=400), "price": price})
    model = skvt.MemoizedDPMixture(max_iter=2, random_state=0).fit(table)
    blocks = {block.name: list(table.columns[block.columns]) for block in model._table.blocks}
    assert blocks == {"numbers": ["price"], "categories": ["grade"]}
    assert not model.table_report_["column"]


@pytest.mark.parametrize(
    ("values", "component", "kind"),
    [
        (np.r_[np.zeros(95), 1.5, 2.5, 0.5, 7.0, 3.0], Gaussian(), "one value"),
        (np.arange(100) % 4.0, Gaussian(), "few values"),
        (np.arange(100.0), Categorical(), "identifier"),
        (np.full(100, np.nan), Gaussian(), "missing"),
    ],
)
def test_what_is_likely_read_wrongly_is_named(values, component, kind):
    X = np.c_[np.random.default_rng(0).normal(size=100), values]
    blocks = [("a", Gaussian(), [0]), ("b", component, [1])]
    with pytest.warns(skvt.ColumnWarning, match="'1'"):
        model = skvt.MemoizedDPMixture(components=blocks, max_iter=1, random_state=0).fit(X)
    assert model.table_report_["kind"] == [kind]


def test_measurements_and_few_rows_are_not_warned_of():
    X = np.random.default_rng(0).normal(size=(200, 3)).round(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        skvt.MemoizedDPMixture(max_iter=1, random_state=0).fit(X)
        skvt.MemoizedDPMixture(max_iter=1, random_state=0).fit(np.ones((5, 2)))


def streamed(table, size, **params):
    stream = skvt.MemoizedDPMixture(random_state=0, **params)
    for start in range(0, len(table), size):
        stream.partial_fit(table[start : start + size])
    return stream


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
@pytest.mark.quick_cases("DataFrame")
@pytest.mark.parametrize("container", [pd.DataFrame, pd.DataFrame.to_numpy])
def test_a_column_that_varies_after_the_first_call_of_a_stream_counts(container):
    rng = np.random.default_rng(0)
    group = np.r_[np.zeros(100, int), rng.integers(2, size=200)]
    table = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(30.0 * group)})
    table.loc[:99, "b"] = 0.0
    stream = streamed(container(table), 100, max_components=3)
    assert stream.blocks_[0][2] == list(table.columns if container is pd.DataFrame else range(2))
    labels = stream.predict(container(table))
    # (the first hundred rows have one value, and may be a component of their own)
    assert not set(labels[group == 0]) & set(labels[group == 1])
    # in the mean of the column both groups are
    describe = stream.describe().query("column in ['b', 1] and quantity == 'mean'")
    assert describe["estimate"].max() == pytest.approx(30.0, abs=0.5)
    assert describe["estimate"].min() == pytest.approx(0.0, abs=0.5)


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_a_stream_drops_no_column_for_what_its_first_call_happens_to_hold():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "flag": np.r_[np.zeros(40, bool), rng.random(80) < 0.5],
            "word": np.r_[np.full(40, "a"), rng.choice(["a", "b"], 80)],
            "town": [f"town {i}" for i in np.r_[:40, rng.integers(40, size=80)]],
            "age": np.r_[rng.choice(np.r_[20:60, 61:80:2], 40, False), rng.integers(18, 80, 80)],
            "number": np.arange(120),
        }
    )
    settings = {"max_components": 1, "handle_unknown": "missing"}
    blocks = {name: columns for name, _, columns in streamed(table, 40, **settings).blocks_}
    # (what counts the rows goes on to do so)
    assert blocks == {"numbers": ["age"], "categories": ["word", "town"], "flags": ["flag"]}
    # a fit to these rows has no others to wait for
    with pytest.raises(ValueError, match="leaves out every column"):
        skvt.MemoizedDPMixture(**settings).fit(table[:40])
