"""Readers: rows as numbers, without a model."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from skvt import (
    MemoizedDPGMM,
    MemoizedDPMixture,
    StructuredBernoulliMixture,
    StructuredGaPNMF,
    TemperedLDA,
)
from skvt.rows import dense

ROWS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
TABLE = pd.DataFrame({"size": [0.5, 1.5], "kind": ["b", "a"]})


@pytest.mark.parametrize(
    ("estimator", "first", "later", "expected"),
    [
        (MemoizedDPGMM(), ROWS.astype(np.float32), ROWS, ROWS),
        (StructuredBernoulliMixture(binarize=1.5), ROWS, sp.coo_array(ROWS), ROWS > 1.5),
        (StructuredGaPNMF(), sp.csc_array(ROWS), ROWS, ROWS),
        (TemperedLDA(), ROWS, ROWS.astype(int).tolist(), ROWS),
        (MemoizedDPMixture(), TABLE, TABLE[::-1], [[1.5, 0.0], [0.5, 1.0]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reader_goes_elsewhere_with_what_the_first_rows_said(estimator, first, later, expected):
    reader, read = estimator._reader_class.from_estimator(estimator).fit_and_read(first)
    assert not hasattr(estimator, "n_features_in_")
    elsewhere = pickle.loads(pickle.dumps(reader)).read(later)
    assert elsewhere.dtype == read.dtype
    np.testing.assert_array_equal(dense(elsewhere), expected)
    with pytest.raises(ValueError, match=f"{type(estimator).__name__} is expecting|should match"):
        reader.read(TABLE.iloc[:, :1] if first is TABLE else ROWS[:, :2])


@pytest.mark.parametrize("estimator", [MemoizedDPGMM(), TemperedLDA()])
def test_later_arrays_like_the_first_are_read_without_scikit_learn(estimator, monkeypatch):
    reader, _ = estimator._reader_class.from_estimator(estimator).fit_and_read(ROWS)
    monkeypatch.setattr("skvt.readers._reader.validate_data", None)
    np.testing.assert_array_equal(dense(reader.read(ROWS + 1.0)), ROWS + 1.0)
    infinite = np.where(ROWS == 3.0, np.inf, ROWS)
    for other in (ROWS[:, :2], ROWS[0], ROWS[:0], infinite, ROWS.astype(np.float32)):
        with pytest.raises(TypeError, match="not callable"):
            reader.read(other)


def test_weights_that_do_not_count_rows_are_warned_of_once():
    """Weights of a survey add up to people; whole weights are counts of equal rows."""
    rows, weights = np.arange(40.0).reshape(20, 2), np.linspace(0.5, 1.5, 20)
    reader = MemoizedDPGMM()._reader_class.from_estimator(MemoizedDPGMM())
    for scale, total in ((1000.0, r"2e\+04"), (1e-3, "0.02")):
        with pytest.warns(UserWarning, match=f"adds up to {total} for 20 rows"):
            later, *_ = reader.fit_and_read_weighted(rows, scale * weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.fit_and_read_weighted(rows, weights)
        reader.fit_and_read_weighted(rows, 100 * np.arange(1, 21))
        later.fit_and_read_weighted(rows, 1000.0 * weights)
        reader.fit_and_read_weighted(rows[:1], [0.05])
