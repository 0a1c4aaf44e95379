"""Readers recognise the kind of each column, or name the column that they refuse."""

import warnings
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from estimators._registry import ENTRIES

import skvt
from skvt.components import Categorical, Gaussian, Poisson
from skvt.metrics import topic_coherence
from skvt.rows import dense

BRIEF = {"max_iter": 1, "tol": 1.0, "max_components": 1}
NUMBERS = np.random.default_rng(0).integers(1, 40, size=(40, 2)) / 2


def blocks_of(X):
    """The name of the block to which "auto" assigns each column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", skvt.ColumnWarning)
        model = skvt.MemoizedDPMixture(**BRIEF).fit(X)
    return {column: name for name, _, columns in model.blocks_ for column in columns}


def of_objects(values):
    column = np.empty(len(values), object)
    column[:] = values
    return column


# ------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    "as_frame",
    [
        lambda X: pd.DataFrame(X, columns=["a", "b"]).astype(object),
        lambda X: pd.DataFrame({"a": [None, *X[1:, 0]], "b": X[:, 1]}, dtype=object),
        lambda X: pd.DataFrame([["x", "y"], *X], columns=["a", "b"])[1:],
        lambda X: pd.DataFrame(X, columns=["a", "b"]).map(Decimal),
        lambda X: pd.DataFrame(X, columns=["a", "b"]).map(Fraction),
        lambda X: pl.DataFrame([pl.Series(name, [*map(Fraction, X[:, j])], pl.Object)
                                for j, name in enumerate("ab")]),
    ],
    ids=["objects", "None", "records", "Decimal", "Fraction", "polars"],
)  # fmt: skip
def test_numbers_in_columns_of_objects_are_numbers(as_frame):
    X = as_frame(NUMBERS)
    assert blocks_of(X) == {"a": "numbers", "b": "numbers"}
    expected = NUMBERS.copy()
    if next(iter(X["a"])) is None:
        expected[0, 0] = np.nan
    model = skvt.MemoizedDPMixture(**BRIEF).fit(X)
    np.testing.assert_array_equal(model._read(X), expected)
    assert len(model.sample(3)[0]) == 3
    filled = model.impute(X)
    assert type(filled) is type(X) and not np.isnan(np.array(filled["a"], float)).any()


def test_an_imputed_number_in_a_column_of_objects_is_no_boolean():
    X = of_objects([0.0, 2.0] * 30 + [None]).reshape(-1, 1)
    X = np.hstack([X, np.roll(X, 1)])
    model = skvt.MemoizedDPMixture(components=[("a", Gaussian("diag"), [0, 1])], **BRIEF).fit(X)
    filled = model.impute(X)
    assert {type(value) for value in filled.ravel()} == {float}
    flags = of_objects([True, False] * 30).reshape(-1, 1)
    _, levels = skvt.MemoizedDPMixture(**BRIEF).fit(flags).predict_column_proba(flags, 0)
    assert levels.tolist() == [False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table.reindex(columns=["size", "colour", "is_new"]),
        lambda table: table.assign(colour=pd.NA, is_new=None).convert_dtypes(),
        lambda table: pl.from_pandas(table.assign(colour=np.nan, is_new=None)),
        lambda table: pa.Table.from_pylist(
            table.assign(colour=None, is_new=np.nan).to_dict("records")
        ),
    ],
)
def test_columns_of_which_no_value_is_observed_are_imputed_as_in_the_fit(make):
    is_large = np.arange(80) % 2 == 0
    colours = np.where(is_large, "red", "blue")
    table = pd.DataFrame({"size": 9.0 * is_large, "colour": colours, "is_new": is_large})
    components = [
        ("size", "gaussian", [0]),
        ("colour", "categorical", [1]),
        ("new", "bernoulli", [2]),
    ]
    model = skvt.MemoizedDPMixture(2, components=components, random_state=0).fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled = model.impute(make(pd.DataFrame({"size": [9.0, 0.0]}, index=[5, 7])))
    columns = filled.to_pydict() if isinstance(filled, pa.Table) else filled
    assert list(columns["colour"]) == ["red", "blue"]
    assert list(columns["is_new"]) == [True, False]


# ------------------------------------------------------------------------------- cells and dates
@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, np.array([1, 2]), {1, 2}], ids=repr)
def test_cells_with_several_values_are_refused_with_a_remedy(cell):
    frame = pd.DataFrame({"x": NUMBERS[:, 0], "cells": of_objects([cell] * 40)})
    for X, name in ((frame, "'cells'"), (frame.to_numpy(), "1")):
        for make in (skvt.MemoizedDPMixture, skvt.MemoizedDPGMM):
            with pytest.raises((TypeError, ValueError), match=f"olumn {name} .*a separate column"):
                make().fit(X)
    # A list of the other columns is accepted.
    listed = [("a", Gaussian(), ["x"])]
    assert skvt.MemoizedDPMixture(components=listed, max_components=1).fit(frame).n_components_
    named = [("a", Categorical(), ["cells"])]
    with pytest.raises(ValueError, match=r"'cells'.*a separate column"):
        skvt.MemoizedDPMixture(components=named).fit(frame)


WHEN = pd.date_range("2020-01-01", periods=40)


@pytest.mark.parametrize(
    "column",
    [
        WHEN, WHEN.tz_localize("UTC"), WHEN - WHEN[0], WHEN.to_period("D"),
        of_objects([date(2020, 1, 1)] * 20 + [date(2021, 1, 1)] * 20),
        of_objects([timedelta(1)] * 40),
    ],
    ids=["datetime", "zone", "timedelta", "period", "date", "durations"],
)  # fmt: skip
def test_dates_are_left_out_with_a_warning_or_refused(column):
    frame = pd.DataFrame({"x": NUMBERS[:, 0], "when": column})
    with pytest.warns(skvt.ColumnWarning, match="'when'.*if they say something .* into numbers"):
        model = skvt.MemoizedDPMixture(**BRIEF).fit(frame)
    assert model.blocks_[0][2] == ["x"]
    assert np.isfinite(model.score(frame))
    with pytest.raises(
        TypeError, match=r"MemoizedDPGMM takes numbers, but column .when. is of type .*numpy\.time"
    ):
        skvt.MemoizedDPGMM().fit(frame)
    with pytest.raises(ValueError, match=r"leaves out every column: .*dates"):
        skvt.MemoizedDPMixture().fit(frame[["when"]])


def test_dates_of_other_packages_are_recognised():
    frame = pl.from_pandas(pd.DataFrame({"x": NUMBERS[:, 0], "when": WHEN}))
    frame = frame.with_columns(day=pl.col("when").dt.date(), hour=pl.col("when").dt.time())
    for X in (frame, frame.to_arrow()):
        assert blocks_of(X) == {"x": "numbers"}
    with pytest.raises(TypeError, match="column 'when' is of type Datetime"):
        skvt.MemoizedDPGMM().fit(frame)


@pytest.mark.parametrize("make", [skvt.MemoizedDPMixture, skvt.MemoizedDPGMM, skvt.TemperedLDA])
def test_arrays_of_dates_are_not_read_as_nanoseconds(make):
    X = WHEN.to_numpy()[:, None]
    for dates in (X, X - X[0]):
        with pytest.raises(TypeError, match=r"takes numbers, but X is of type .*64"):
            make().fit(dates)
    fitted = make().fit(NUMBERS[:, :1])
    with pytest.raises(TypeError, match="datetime64"):
        fitted.score(X)


@pytest.mark.parametrize("make", [skvt.MemoizedDPMixture, skvt.MemoizedDPGMM])
def test_duplicate_names_are_refused_with_a_remedy(make):
    frames = (
        pd.DataFrame(NUMBERS, columns=["a", "a"]),
        pa.Table.from_arrays([pa.array(NUMBERS[:, 0])] * 2, names=["a", "a"]),
    )
    for frame in frames:
        with pytest.raises(ValueError, match=r"must be distinct\. Got 'a' 2 times. Rename"):
            make().fit(frame)


# --------------------------------------------------------------------------------- masked arrays
def masked(X, number=3):
    mask = np.zeros(X.shape, bool)
    mask[:number, 0] = True
    return np.ma.masked_array(np.where(mask, X.dtype.type(-999), X), mask)


@pytest.mark.parametrize("entry", {entry.cls: entry for entry in ENTRIES}.values(), ids=str)
def test_masked_values_are_missing_or_refused(entry):
    X = np.asarray(entry.data()[:12], np.float64)
    estimator = entry.make()
    reads = type(estimator)._reader_class.from_estimator(estimator)
    if reads.accepts_missing:
        expected = X.copy()
        expected[:3, 0] = np.nan
        reader, read = reads.fit_and_read(masked(X))
        np.testing.assert_array_equal(dense(read), dense(reads.fit_and_read(expected)[1]))
        np.testing.assert_array_equal(dense(reader.read(masked(X))), dense(read))
    else:
        with pytest.raises(ValueError, match=r"3 values of X are masked, .*filled"):
            reads.fit_and_read(masked(X))
    with pytest.raises(ValueError, match=r"2 values of sample_weight are masked.*filled\(0\)"):
        estimator.fit(X, sample_weight=masked(np.ones((12, 1)), 2)[:, 0])
    np.testing.assert_array_equal(
        dense(reads.fit_and_read(masked(X, 0))[1]), dense(reads.fit_and_read(X)[1])
    )


def test_masked_numbers_booleans_and_texts_are_missing_values():
    for X in (NUMBERS.astype(int), NUMBERS > 9, NUMBERS.astype(str)):
        model = skvt.MemoizedDPMixture(**BRIEF).fit(masked(X))
        assert np.isnan(model._read(masked(X))).sum() == 3
        filled = model.impute(masked(X))
        assert not isinstance(filled, np.ma.MaskedArray)
        np.testing.assert_array_equal(filled[3:], X[3:])
        assert -999 not in filled[:3].ravel().tolist()


def test_masked_values_in_chunks_and_corpora_are_missing_or_refused():
    X = masked(NUMBERS)
    model = skvt.MemoizedDPGMM(max_iter=2, random_state=0)
    chunks = model.fit(da.from_array(X, chunks=(20, 2))).means_
    np.testing.assert_allclose(chunks, model.fit(X.filled(np.nan)).means_)
    weights = da.from_array(masked(np.ones((40, 1)))[:, 0], chunks=20)
    with pytest.raises(ValueError, match="sample_weight are masked"):
        model.fit(da.from_array(NUMBERS, chunks=(20, 2)), sample_weight=weights)
    counts = masked(np.random.default_rng(0).poisson(3.0, (9, 4)))
    topics = np.full((2, 4), 0.25)
    with pytest.raises(ValueError, match="are masked"):
        topic_coherence(topics, counts, n_words=2)


# ------------------------------------------------------------------- one component for all columns
COUNTS = np.random.default_rng(0).poisson([[3.0, 9.0, 1.0]] * 40 + [[9.0, 2.0, 8.0]] * 40)


def test_one_component_describes_all_columns_except_given_ones_and_the_exposure():
    brief = {"max_components": 2, "max_iter": 3, "random_state": 0}
    frame = pd.DataFrame(COUNTS + 1, columns=["a", "b", "years"])
    for settings in ({"components": Poisson(exposure="years")},
                     {"components": Gaussian(), "given": ["years"]}):  # fmt: skip
        model = skvt.MemoizedDPMixture(**settings, **brief).fit(frame)
        assert {*model.describe()["column"]} == {"a", "b"}


@pytest.mark.parametrize("components", [[Poisson()], [("a", Poisson())]], ids=repr)
def test_lists_without_triples_are_refused_with_a_remedy(components):
    with pytest.raises(TypeError, match=r"one component for all columns, such as Negative"):
        skvt.MemoizedDPMixture(components=components).fit(COUNTS)
