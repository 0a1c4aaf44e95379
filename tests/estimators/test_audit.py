"""The columns of a table are examined before a fit."""

import re
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import skvt
from skvt.components import Categorical, Gaussian, Hurdle, Poisson

FEW_PASSES = {"max_iter": 1, "tol": 1.0, "max_components": 1}
THREE = {"n_components": 3, "moves": (), "max_iter": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def diagonal_covariances(monkeypatch):
    """No type of covariance is chosen by short fits, because the report does not depend on it."""
    choose = "skvt.components.specs.choose_covariance_type"
    monkeypatch.setattr(choose, lambda *args, **options: ("diag", None))


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


def test_columns_without_information_change_no_cluster():
    table = clusters()
    alone = skvt.MemoizedDPMixture(3, moves=(), random_state=0).fit(table)
    with pytest.warns(skvt.ColumnWarning, match=r"'line' \(column 0, left out\)") as caught:
        beside = clone(alone).fit(with_noise(table))
    assert len(caught) == 1 and caught[0].filename == __file__
    groups = alone.predict(table), beside.predict(with_noise(table))
    assert adjusted_rand_score(*groups) > 0.95
    report, differ = beside.table_report_.set_index("column"), "(nearly) all values differ"
    assert report["why"].to_dict() == {
        "a": "numbers", "b": "numbers", "c": "text or other objects",
        "number": differ, "name": differ, "date": "dates or times", "same": "one value: 1.0",
        "word": "one value: only", "line": "repeats column 0", "renamed": "repeats column 2",
        "nothing": "no value is observed",
    }  # fmt: skip
    assert set(report["read_as"][3:]) == {"left out"}
    # New rows may have other names, numbers and dates.
    other = with_noise(table[:50]).assign(name="new", number=-1, nothing="here now")
    assert np.array_equal(beside.predict(other), groups[1][:50])


@pytest.mark.parametrize("most_rows", [10_000, 50])
def test_a_column_that_encodes_another_one_is_left_out(most_rows, monkeypatch):
    # Of long tables a sample of the rows is examined.
    monkeypatch.setattr("skvt.readers._audit._SAMPLE_SIZE", most_rows)
    rng = np.random.default_rng(0)
    names = np.array(["none", "school", "master", "bachelor", "doctor", "other", "college"])
    place = rng.integers(7, size=190)
    table = pd.DataFrame(
        {
            "education": names[place], "code": np.array([1, 4, 14, 13, 16, 7, 9])[place],
            "flag": place > 3, "word": np.where(place > 3, "high", "low"),
            "number": np.where(place > 3, 0.5, 2.0), "code of the row before": np.roll(place, 1),
        }
    )  # fmt: skip
    with pytest.warns(skvt.ColumnWarning, match="same information as another column"):
        model = skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)
    report = model.table_report_.set_index("column")["why"]
    assert report["code"] == "repeats column 0"
    assert report["word"] == report["number"] == "repeats column 2"
    assert {name for _, _, columns in model.blocks_ for name in columns} == {
        "education", "flag", "code of the row before"
    }  # fmt: skip


def test_measurements_of_persons_with_several_rows_each_are_no_copies():
    """Each person has values of their own, so that all columns have the same groups of rows."""
    rng = np.random.default_rng(0)
    kilograms, bmi = 2.0 * rng.permutation(40) + 50.0, rng.normal(25.0, 4.0, size=40)
    persons = pd.DataFrame(
        {
            "name": [f"P{n}" for n in range(40)], "person": np.arange(40) + 7, "bmi": bmi,
            "income": 500 * rng.permutation(40), "kilograms": kilograms,
            "pounds": np.round(2.2 * kilograms), "1 / bmi": 1.0 / bmi,
        }
    )  # fmt: skip
    with pytest.warns(skvt.ColumnWarning, match="same information as another column"):
        mixture = skvt.MemoizedDPMixture(**FEW_PASSES).fit(pd.concat([persons] * 3))
    report = mixture.table_report_.set_index("column")
    assert report.loc[report["read_as"] == "left out", "why"].to_dict() == {
        "person": "repeats column 0", "pounds": "repeats column 4", "1 / bmi": "repeats column 2"
    }  # fmt: skip


def test_a_linear_function_of_a_column_is_left_out_even_if_it_begins_at_the_mean():
    values = np.random.default_rng(0).normal(size=99)
    values = np.concatenate([[0.0], values, -values])
    table = pd.DataFrame({"x": values, "up": 5.0 + 3.0 * values, "down": 5.0 - 3.0 * values})
    with pytest.warns(skvt.ColumnWarning, match="same information as another column"):
        model = skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)
    assert model.table_report_["why"].tolist() == ["numbers", *["repeats column 0"] * 2]


def test_columns_of_rows_that_occur_several_times_are_no_copies_of_each_other():
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.normal(size=(150, 2)), columns=["age", "size"])
    people["name"] = [f"person {i}" for i in range(150)]
    people["power"] = np.exp(3.0 * people["size"])  # the same order as the sizes
    panel = people.loc[rng.integers(150, size=600)]
    with pytest.warns(skvt.ColumnWarning, match="same information as another column"):
        model = skvt.MemoizedDPMixture(**FEW_PASSES).fit(panel)
    reasons = model.table_report_["why"].tolist()
    assert reasons == ["numbers", "numbers", "text or other objects", "repeats column 1"]


def test_a_constant_column_of_an_array_changes_nothing():
    X = clusters()[["a", "b"]].to_numpy()
    beside = np.column_stack([np.full(300, 2.0), X])
    alone = skvt.MemoizedDPMixture(**THREE).fit(X)
    with pytest.warns(skvt.ColumnWarning, match=r"'0' \(2, left out\)"):
        fitted = skvt.MemoizedDPMixture(**THREE).fit(beside)
    np.testing.assert_allclose(fitted.elbo_, alone.elbo_, rtol=1e-9)
    # A constant column with missing values is imputed.
    beside[:3, 0] = np.nan
    filled = skvt.MemoizedDPMixture(**THREE).fit(beside).impute(beside)
    np.testing.assert_allclose(filled[:, 0], 2.0, rtol=1e-6)


@pytest.mark.parametrize("make", [pd.DataFrame, pd.DataFrame.to_numpy, pl.from_pandas])
def test_a_column_without_any_value_is_left_out_unless_later_rows_may_have_one(make):
    table = clusters()[["a", "b"]].assign(empty=np.nan)
    X = make(table)
    alone = skvt.MemoizedDPMixture(**THREE).fit(make(table[["a", "b"]]))
    with pytest.warns(skvt.ColumnWarning, match=r"left out\): no value is observed"):
        fitted = skvt.MemoizedDPMixture(**THREE).fit(X)
    assert fitted.elbo_ == alone.elbo_
    assert list(fitted.table_report_["read_as"])[2] == "left out"
    assert list(fitted.table_report_["why"])[2] == "no value is observed"
    # No value is known that could fill the column.
    assert np.isnan(np.asarray(fitted.impute(X), np.float64)[:, 2]).all()
    stream = skvt.MemoizedDPMixture(**THREE)
    with pytest.warns(skvt.ColumnWarning, match="no value is observed"):
        stream.partial_fit(X)
    assert len(stream.blocks_[0][2]) == 3


def test_a_column_without_any_value_in_all_chunks_is_left_out():
    X = np.column_stack([clusters()[["a", "b"]], np.full((300, 2), np.nan)])
    X[200:, 3] = 1.0
    fitted = skvt.MemoizedDPMixture(2, moves=(), max_iter=2).fit(da.from_array(X, (100, 4)))
    assert list(fitted.blocks_[0][2]) == [0, 1, 3]
    assert fitted.table_report_["why"].tolist()[2] == "one value in all rows, or none"


DATES = {
    "times": ["2024-05-01 12:30", "2024-05-02T00:00:00.25", None, "2024-02-29T23:59:59+02:00"],
    "days": ["2024-05-01", "2024-12-31"], "slashes": ["2024/5/1"],
    "days first": ["01.05.2024", " 31.12.2024"],
    "months first": ["5/1/2024 1:30 PM", "12/31/2024 1:30 AM"],
    "digits": ["20240501", "20241231"], "numbers": [20240501, 20241231],
    "numbers, days first": [1052024, 31122024],
}  # fmt: skip
NO_DATES = {
    "a word": ["2024-05-01", "unknown"], "no such day": ["2024-02-30", "2024-02-28"],
    "two orders": ["31/12/2024", "12/31/2024"], "years": ["2024", "2025"],
    "two marks": ["01.05-2024", "02.05-2024"], "telephones": ["1-800-5555", "1-900-5555"],
    "amounts": [20240501, 20249999], "two orders of digits": [20240501, 31122024],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*rows have NaN only")
@pytest.mark.parametrize("make", [pd.DataFrame, pd.DataFrame.to_numpy, pl.from_pandas])
def test_dates_as_text_are_left_out_like_dates(make):
    texts = {name: (texts * 300)[:300] for name, texts in DATES.items()}
    table = make(clusters().assign(**texts))
    with pytest.warns(skvt.ColumnWarning, match=f"'{DATES['times'][0]}', left out.*dates and"):
        fitted = skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)
    assert list(fitted.table_report_["why"])[3:] == ["dates or times"] * len(DATES)
    # A user who lists such a column wants its categories.
    listed = [("when", Categorical(), [3])]
    fitted = skvt.MemoizedDPMixture(components=listed, max_components=1).fit(table)
    assert fitted.categories_["when"][0].size == 3


def test_texts_that_are_not_all_dates_are_categories():
    rng = np.random.default_rng(0)
    table = clusters().assign(
        **{name: rng.choice(texts, 300) for name, texts in NO_DATES.items()},
        declared=pd.Categorical(["2024-05-01", "2024-05-02"] * 150),
    )
    fitted = skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)
    read_as = fitted.table_report_["read_as"].tolist()
    assert read_as[3:] == ["Categorical, 2 levels"] * (len(NO_DATES) + 1)


@pytest.mark.slow
def test_columns_without_information_change_no_birth():
    # The number of rows that births look at depends on the number of columns.
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


@pytest.mark.parametrize(
    ("values", "component", "why"),
    [
        (np.r_[np.zeros(95), 1.5, 2.5, 0.5, 7.0, 3.0], Gaussian(), "0 in 95%: try Hurdle()"),
        (np.arange(100) % 4.0, Gaussian(), "4 values: try Categorical()"),
        (np.arange(100.0), Categorical(), "(nearly) all values differ"),
        (np.full(100, np.nan), Gaussian(), "no value is observed"),
    ],
)
def test_a_column_that_is_probably_read_wrongly_is_named(values, component, why):
    X = np.c_[np.random.default_rng(0).normal(size=100), values]
    blocks = [("a", Gaussian(), [0]), ("b", component, [1])]
    with pytest.warns(skvt.ColumnWarning, match="'1'"):
        model = skvt.MemoizedDPMixture(components=blocks, max_iter=1, moves=()).fit(X)
    assert model.table_report_["why"][1] == why


AGES, ANSWERS = np.arange(120) % 60 + 18, np.arange(120) % 5 + 1


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.r_[AGES, np.full(5, -99)], "-99 in 4%: missing?"),
        (np.r_[AGES / 4.0, np.full(5, -9.0)], "-9 in 4%: missing?"),
        (np.r_[AGES, 997, 998, 999], "997 to 999 in 2%: missing?"),
        (np.r_[ANSWERS, np.full(5, 9)], "9 in 4%: missing?"),
        (np.r_[ANSWERS % 2, np.full(5, 9)], "9 in 4%: missing?"),
    ],
)
def test_numbers_that_may_stand_for_missing_values_are_named(values, why):
    table = pd.DataFrame({"asked": values, "sex": np.where(np.arange(len(values)) % 3, "f", "m")})
    said = r"'asked' \(.*stand for missing values.* NaN; if they are true values, keep them"
    with pytest.warns(skvt.ColumnWarning, match=said):
        fitted = skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)
    assert fitted.table_report_["why"].iloc[0] == why


@pytest.mark.parametrize(
    ("values", "component"),
    [
        (np.r_[AGES, np.full(5, 99.0)], Gaussian()),  # not far from the other ages
        (np.r_[AGES, np.full(5, -50.0)], Gaussian()),
        (np.r_[AGES, 999.0, 999.0], Gaussian()),  # two rows
        (np.r_[AGES, np.full(40, -99.0)], Hurdle(Gaussian(), at=-99.0)),  # named by the user
        (np.r_[ANSWERS, np.full(5, 9)], Categorical()),
    ],
)
def test_other_numbers_do_not_stand_for_missing_values(values, component):
    table = pd.DataFrame({"asked": values, "sex": np.where(np.arange(len(values)) % 3, "f", "m")})
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        blocks = [("a", component, ["asked"]), ("b", Categorical(), ["sex"])]
        skvt.MemoizedDPMixture(components=blocks, **FEW_PASSES).fit(table)


@pytest.mark.parametrize(
    "levels", [(4, 6, 8), (9, 10, 11, 12), (5, 6, 7, 8, 9), (0, 4, 8), (1, 5, 9), (2, 4, 6, 8)]
)
def test_the_ends_of_a_scale_do_not_stand_for_missing_values(levels):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"level": rng.choice(levels, 120), "size": rng.normal(size=120)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)


def test_ratings_that_pile_up_at_an_end_of_their_scale_are_named():
    """Answers from 0 to 10 have eleven values."""
    answers = np.r_[np.repeat(np.arange(10.0), 9), np.full(30, 10.0), np.nan]
    table = pd.DataFrame({"trust": answers, "size": np.sqrt(np.arange(answers.size))})
    for direction, end in ((answers, "10"), (10.0 - answers, "0")):
        with pytest.warns(skvt.ColumnWarning, match=rf"'trust' \({end} in 25%\).*LatentGaussian"):
            blocks = [("numbers", Gaussian(), ["trust", "size"])]
            fitted = skvt.MemoizedDPMixture(components=blocks, **FEW_PASSES).fit(
                table.assign(trust=direction)
            )
        assert fitted.table_report_["why"].iloc[0] == f"{end} in 25%: an end of a scale?"


def test_measurements_few_rows_and_possible_codes_cause_no_warning():
    X = np.random.default_rng(0).normal(size=(210, 3)).round(1)
    X[:, 2] = np.sqrt(np.arange(210) % 49).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        why = skvt.MemoizedDPMixture(**FEW_PASSES).fit(X).table_report_["why"]
        skvt.MemoizedDPMixture(**FEW_PASSES).fit(np.ones((5, 2)))
    assert why.tolist() == ["numbers", "numbers", "7 whole numbers: or a code?"]


def streamed(table, size, **params):
    stream = skvt.MemoizedDPMixture(random_state=0, **params)
    for start in range(0, len(table), size):
        stream.partial_fit(table[start : start + size])
    return stream


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
@pytest.mark.quick_cases("DataFrame")
@pytest.mark.parametrize("container", [pd.DataFrame, pd.DataFrame.to_numpy])
def test_a_column_that_varies_only_after_the_first_call_of_a_stream_is_used(container):
    rng = np.random.default_rng(0)
    group = np.r_[np.zeros(100, int), rng.integers(2, size=200)]
    table = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(30.0 * group)})
    table.loc[:99, "b"] = 0.0
    stream = streamed(container(table), 100, max_components=3)
    assert stream.blocks_[0][2] == list(table.columns if container is pd.DataFrame else range(2))
    labels = stream.predict(container(table))
    # The first hundred rows have one value in this column and may be a component of their own.
    assert not set(labels[group == 0]) & set(labels[group == 1])
    describe = stream.describe().query("column in ['b', 1] and quantity == 'mean'")
    assert describe["estimate"].max() == pytest.approx(30.0, abs=0.5)
    assert describe["estimate"].min() == pytest.approx(0.0, abs=0.5)


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_a_stream_keeps_columns_that_its_first_call_alone_would_leave_out():
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
    # Only the number of the row is left out, because it goes on to count the rows.
    assert blocks == {"numbers": ["age"], "categories": ["word", "town"], "flags": ["flag"]}


# --------------------------------------------------------------------------------- the report
def columns_of_all_kinds():
    rng = np.random.default_rng(0)
    income = np.exp(rng.normal(9.0, 1.0, 90))
    return pd.DataFrame(
        {
            "size": rng.normal(size=90), "income": income, "stars": rng.integers(1, 5, 90),
            "colour": rng.choice(["red", "blue"], 90), "flag": rng.random(90) < 0.5,
            "grade": pd.Categorical(rng.choice(list("ab"), 90), list("abc")),
            "rain": np.where(rng.random(90) < 0.4, 0.0, rng.normal(9.0, 1.0, 90)),
            "when": pd.date_range("2020", periods=90), "id": np.arange(90),
            "price": rng.choice(np.arange(1_000, 90_000), 90, replace=False),
        }
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_the_report_says_of_every_column_how_it_was_read():
    frame = columns_of_all_kinds()
    model = skvt.MemoizedDPMixture(**FEW_PASSES).fit(frame)
    report = model.table_report_
    assert list(report) == ["column", "read_as", "why"]
    assert dict(zip(report["column"], report["read_as"], strict=True)) == {
        "size": "Gaussian", "income": "Gaussian of logarithm", "stars": "Categorical, 4 levels",
        "colour": "Categorical, 2 levels", "flag": "Bernoulli", "grade": "Categorical, 3 levels",
        "rain": "Hurdle at 0, Gaussian", "when": "left out", "id": "left out", "price": "Gaussian",
    }  # fmt: skip
    assert report["why"].tolist() == [
        "numbers", "numbers", "2 to 6 distinct whole numbers", "text or other objects", "booleans",
        "a categorical type", "numbers", "dates or times", "(nearly) all values differ",
        "numbers",
    ]  # fmt: skip
    assert "..." not in str(report)  # The printed table is complete.
    in_polars = pl.from_pandas(frame).with_columns(pl.col("grade").cast(pl.Enum(list("abc"))))
    of_polars = skvt.MemoizedDPMixture(**FEW_PASSES).fit(in_polars).table_report_
    assert isinstance(of_polars, pl.DataFrame)
    for name in ("column", "read_as"):
        assert of_polars[name].to_list() == report[name].tolist()
    assert max(of_polars["why"].str.len_chars()) <= 30  # Polars prints no longer text.


def test_the_report_of_listed_components_and_of_arrays():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), rng.poisson(4.0, 60), rng.uniform(1, 2, 60)])
    blocks = [("events", Poisson(exposure=2), [1])]
    model = skvt.MemoizedDPMixture(components=blocks, **FEW_PASSES).fit(X)
    report = model.table_report_
    assert isinstance(report, pd.DataFrame) and report["column"].tolist() == [0, 1, 2]
    assert report["read_as"].tolist() == ["left out", "Poisson", "exposure of 'events'"]
    listed = "listed in 'components'"
    assert report["why"].tolist() == ["not listed in 'components'", listed, listed]
    counts = sp.csr_array(rng.poisson(1.0, (40, 3)))
    report = skvt.MemoizedDPMixture(**FEW_PASSES).fit(counts).table_report_
    assert report["why"].tolist() == ["counts of a sparse matrix"] * 3
    chunks = da.from_array(np.column_stack([X[:, 0], np.ones(60)]), chunks=(30, 2))
    report = skvt.MemoizedDPMixture(**FEW_PASSES).fit(chunks).table_report_
    assert report["read_as"].tolist() == ["Gaussian", "left out"]
    assert report["why"].tolist() == ["numbers", "one value in all rows, or none"]


def fit_and_warnings_of(X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mixture = skvt.MemoizedDPMixture(**FEW_PASSES).fit(X)
    return mixture, [str(w.message) for w in caught if w.category is skvt.ColumnWarning]


def test_texts_that_are_one_category_or_blank_are_named():
    """Short texts may differ in case on purpose, and so may categories of a declared type."""
    texts = {
        "product": ["giro", "loan", "GIRO", "savings"], "city": ["New York", "Paris", "new  york "],
        "released": ["13:30", " ", "10:15"], "genotype": ["AA", "Aa", "aa"], "plan": ["a b", "ab"],
    }  # fmt: skip
    rng = np.random.default_rng(0)
    table = clusters().assign(**{name: rng.choice(w, 300) for name, w in texts.items()})
    table["declared"] = pd.Categorical(["Smith", "smith"] * 150)
    mixture, (message,) = fit_and_warnings_of(table)
    report = mixture.table_report_
    named = set(report["column"][report["why"] == "texts: one category?"])
    assert named == {"product", "city", "released"}
    assert "'released' (' ')" in message
    assert "'giro' and 'GIRO'" in message or "'GIRO' and 'giro'" in message
    assert "column.str.lower().str.split().str.join(' ')" in message
    table["city"] = table["city"].str.lower().str.split().str.join(" ")
    _, (message,) = fit_and_warnings_of(table)
    assert "'city'" not in message


def test_categories_of_few_rows_each_are_named():
    rng = np.random.default_rng(0)
    times = [f"{minutes // 60}:{minutes % 60:02d}" for minutes in rng.integers(420, 1080, 300)]
    shifts = rng.choice(["6:00", "14:00", "22:00"], 300)
    # The declared categories include many that do not occur.
    declared = pd.Categorical(rng.permutation(shifts), categories=sorted({*times, *shifts}))
    table = clusters().assign(time=times, shift=shifts, declared=declared)
    mixture, (message,) = fit_and_warnings_of(table)
    n_levels = len(set(times))
    expected = (
        f"'time' ({n_levels} categories, {300 / n_levels:.1f} rows each): categories have few"
    )
    assert expected in message and "'shift'" not in message
    assert "'declared'" not in message
    report = mixture.table_report_.set_index("column")["why"]
    assert report["time"].startswith(f"{n_levels} categories")


def test_amounts_that_are_zero_where_another_column_is_zero_are_named():
    """Contracts without claims have no amount; zeros of the rain are in rows of their own."""
    rng = np.random.default_rng(0)
    claims = rng.poisson(0.6, 300)
    table = clusters().assign(claims=np.where(rng.random(300) < 0.1, np.nan, claims))
    for name, zero in (("amount", claims == 0), ("rain", rng.random(300) < 0.5)):
        table[name] = np.where(zero, 0.0, rng.lognormal(5.0, size=300))
    mixture, (message,) = fit_and_warnings_of(table)
    report = mixture.table_report_.set_index("column")["why"]
    assert report[report == "zeros of another column"].index.tolist() == ["amount"]
    assert "'amount' (as 'claims')" in message
    table["claims"] = np.where(claims == 0, "no", "yes")
    _, (message,) = fit_and_warnings_of(table)
    assert "'amount' (as 'claims')" in message
    assert "'rain'" not in message


def test_numbers_written_as_text_are_named():
    """Amounts and ages are numbers, but codes of one length without other texts are levels."""
    rng = np.random.default_rng(0)
    amounts, ages = rng.lognormal(8.0, size=200), rng.integers(9, 80, size=200)
    days = pd.date_range("1990", periods=200, freq="17D")
    table = pd.DataFrame(
        {
            "amount": [f"{amount:,.2f} €".translate({44: ".", 46: ","}) for amount in amounts],
            "age": [None, *map(str, ages[1:])],
            "rate": rng.choice(["-1,5", "0,0", "2", "2,5", "3,5", "4,5", "6,0"], 200),
            "answer": rng.integers(1, 6, size=200).astype(str),
            "post": rng.integers(10, 40, size=200).astype(str),
            "adult": ["k. A.", *rng.integers(18, 80, size=199).astype(str)],
            "weight": rng.normal(size=200), "date": days.strftime("%d.%m.%Y"),
            "telephone": [f"0{number}" for number in rng.integers(10**6, 10**8, size=200)],
            "version": [f"{a}.{b}.{c}" for a, b, c in rng.integers(20, size=(200, 3))],
            "protein": ["n/a", *(f"{x:.1f}" if x > 5 else "<5" for x in rng.normal(6, 2, 199))],
            "spreadsheet": [*["", "-"] * 5, *rng.normal(size=190)],
            "diagnosis": [f"{'' if x < 150 else 'V'}{x}" for x in rng.integers(100, 200, 200)],
        }
    )  # fmt: skip
    mixture, (message,) = fit_and_warnings_of(table)
    report = mixture.table_report_.set_index("column")
    written = set(report.index[report["why"] == "numbers written as text"])
    assert written == {"amount", "age", "rate", "adult", "protein", "spreadsheet"}
    assert report.loc["amount", "read_as"] == "left out"
    assert f"'amount' ('{table['amount'][0]}', left out)" in message
    assert "decimal=','" in message and "'post'" not in message
    listed = [("text", Categorical(), ["age", "rate"]), ("number", Gaussian(), ["weight"])]
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        skvt.MemoizedDPMixture(2, components=listed, moves=(), max_iter=1).fit(table)


def test_few_values_that_are_not_whole_are_named():
    """Grades such as 0, 0.5 and 1 are read as real numbers; Categorical() takes them, too."""
    table = clusters().assign(grade=np.resize([0.0, 0.5, 1.0], 300))
    mixture, (message,) = fit_and_warnings_of(table)
    assert "'grade' (3 values): numbers with few values, read as real: try" in message
    assert "Categorical()" in mixture.table_report_["why"].iloc[-1]
    listed = [("grade", Categorical(), ["grade"])]
    fitted = skvt.MemoizedDPMixture(components=listed, **FEW_PASSES).fit(table)
    assert fitted.categories_["grade"][0].tolist() == [0.0, 0.5, 1.0]


def test_fits_from_other_seeds_do_not_repeat_the_warning():
    table = clusters().assign(name=[f"row {i}" for i in range(300)])
    mixture, (_,) = fit_and_warnings_of(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        mixture.compare_clusterings(table, max_refitted=0)


def reads(n, n_genes, depth):
    """Reads of genes of cells of three kinds, whose depths vary by a lognormal factor."""
    rng = np.random.default_rng(0)
    rates = rng.lognormal(size=n_genes) * rng.lognormal(sigma=0.7, size=(3, n_genes))
    mean = 5.0 * rates[rng.integers(3, size=n)]
    return rng.poisson(mean * rng.lognormal(sigma=depth, size=(n, 1)))


@pytest.mark.quick_cases("asarray")
@pytest.mark.parametrize("make", [np.asarray, lambda X: pd.DataFrame(X).add_prefix("gene ")])
def test_counts_that_rise_with_their_total_need_an_exposure(make):
    mixture, (message,) = fit_and_warnings_of(make(reads(120, 30, depth=0.7)))
    assert set(mixture.table_report_["why"]) == {"rises with the total of a row"}
    assert "and 25 more: counts that rise with the total of their row" in message
    assert "components=NegativeBinomial(exposure='row_total')" in message


def test_other_whole_numbers_need_no_exposure():
    """Cells of one depth need none, nor do ratings by people who rate high or low."""
    rng = np.random.default_rng(0)
    ratings = 50.0 + 15.0 * rng.normal(size=(200, 1)) + 20.0 * rng.normal(size=(200, 20))
    for X in (reads(200, 30, depth=0.0), np.clip(np.rint(ratings), 0, 100)):
        assert "total of their row" not in "".join(fit_and_warnings_of(X)[1])


@pytest.mark.quick_cases("asarray")
@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, sp.csr_array])
def test_logarithms_of_counts_are_named(make):
    counts = reads(120, 30, depth=0.7)
    logs = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True)).round(3)
    mixture, (message,) = fit_and_warnings_of(make(logs))
    assert "and 25 more: logarithms of counts" in message
    assert set(mixture.table_report_["why"]) == {"logarithms of counts"}
    with pytest.warns(skvt.ColumnWarning, match="X has logarithms of counts, .* to the") as caught:
        skvt.MemoizedDPGMM(covariance_type="diag", **FEW_PASSES).fit(logs)
    assert caught[0].filename == __file__
    magnitudes = np.random.default_rng(0).uniform(0.0, [[12.0], [90.0]] * 60, counts.shape)
    for X in (magnitudes * (counts > 0), counts / 3.0):
        assert "logarithms of counts" not in "".join(fit_and_warnings_of(make(X))[1])


def test_given_columns_are_named_if_no_real_column_is_regressed_on_them():
    """Answers have a table for each level, and numbers do not matter for them."""
    rng = np.random.default_rng(0)
    answers = pd.DataFrame(rng.random((40, 3)) < 0.5).add_prefix("q")
    table = answers.assign(age=rng.uniform(20.0, 60.0, 40), sex=np.repeat(["f", "m"], 20))
    mixture = skvt.MemoizedDPMixture(given=["age", "sex"], max_iter=1, moves=(), random_state=0)
    with pytest.warns(skvt.ColumnWarning, match=r"'age' \(given\): .*pandas.cut") as caught:
        mixture.fit(table)
    assert re.search(r"'sex' \(given\): without real columns, only", str(caught[0].message))
    why = mixture.table_report_.set_index("column")["why"]
    assert why["age"] == "given: explains no column"
    assert why["sex"] == "given: are clusters matched?"
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        mixture.fit(table.assign(height=rng.normal(size=40)))


@pytest.mark.parametrize(
    ("slips", "may_be_amounts", "warns"),
    [([-9.0], True, True), ([0.0, 0.0], True, True), ([], True, False), ([-9.0], False, False),
     (20 * [-7.5], True, False)],
)  # fmt: skip
def test_a_few_values_below_zero_among_amounts_are_named(slips, may_be_amounts, warns):
    values = np.random.default_rng(0).normal(size=300)
    values = np.exp(values) if may_be_amounts else values + 4.0
    table = pd.DataFrame({"income": np.append(values, slips)})
    table["age"] = np.random.default_rng(1).normal(40.0, 9.0, len(table))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", skvt.ColumnWarning)
        skvt.MemoizedDPMixture(**FEW_PASSES).fit(table)
    messages = [str(w.message) for w in caught if w.category is skvt.ColumnWarning]
    assert [f"'income' ({min(slips):g})" in text for text in messages] == warns * [True]


@pytest.mark.parametrize("block", ["counts", "genes"])
def test_listed_counts_with_an_exposure_give_no_warning_of_totals(block):
    rng = np.random.default_rng(0)
    means = rng.gamma(2.0, 2.0, 14) * rng.gamma(4.0, 0.25, (300, 1))
    genes = pd.DataFrame(rng.poisson(means), columns=[f"gene {j}" for j in range(14)])
    with pytest.warns(skvt.ColumnWarning, match="rise with the total of their row"):
        skvt.MemoizedDPMixture(**FEW_PASSES).fit(genes)
    counts = skvt.components.NegativeBinomial(exposure="row_total")
    with warnings.catch_warnings():
        warnings.simplefilter("error", skvt.ColumnWarning)
        listed = [(block, counts, list(genes))]
        skvt.MemoizedDPMixture(components=listed, **FEW_PASSES).fit(genes)
