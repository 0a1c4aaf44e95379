"""Readers turn rows into numbers without a model."""

import pickle
import re
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
def test_a_pickled_reader_reads_later_rows_like_the_first(estimator, first, later, expected):
    reader, read = estimator._reader_class.from_estimator(estimator).fit_and_read(first)
    assert not hasattr(estimator, "n_features_in_")
    elsewhere = pickle.loads(pickle.dumps(reader)).read(later)
    assert elsewhere.dtype == read.dtype
    np.testing.assert_array_equal(dense(elsewhere), expected)
    with pytest.raises(ValueError, match=f"{type(estimator).__name__} is expecting|should match"):
        reader.read(TABLE.iloc[:, :1] if first is TABLE else ROWS[:, :2])


@pytest.mark.parametrize("estimator", [MemoizedDPGMM(), TemperedLDA()])
def test_later_arrays_like_the_first_are_not_validated_by_scikit_learn(estimator, monkeypatch):
    reader, _ = estimator._reader_class.from_estimator(estimator).fit_and_read(ROWS)
    monkeypatch.setattr("skvt.readers._reader.validate_data", None)
    np.testing.assert_array_equal(dense(reader.read(ROWS + 1.0)), ROWS + 1.0)
    infinite = np.where(ROWS == 3.0, np.inf, ROWS)
    for other in (ROWS[:, :2], ROWS[0], ROWS[:0], infinite, ROWS.astype(np.float32)):
        with pytest.raises(TypeError, match="not callable"):
            reader.read(other)


def test_weights_that_do_not_count_rows_give_one_warning():
    """Weights of a survey add up to people, and are fractions or whole numbers."""
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(200, 2)), rng.uniform(0.5, 1.5, 200)
    reader = MemoizedDPGMM()._reader_class.from_estimator(MemoizedDPGMM())
    remedy = r"weights / weights\.mean\(\)"
    for scale in (1e-3, 5.0, 1e3):
        total = re.escape(f"adds up to {scale * weights.sum():.4g} for 200 rows")
        with pytest.warns(UserWarning, match=f"{total}.*{remedy}"):
            later, *_ = reader.fit_and_read_weighted(rows, scale * weights)
    # Answers to three questions: people of equal answers have different weights.
    answers = rng.integers(3, size=(200, 3)).astype(float)
    ages = rng.integers(18, 90, size=(200, 1)).astype(float)
    for X in (rows, answers, ages, np.hstack([answers, ages])):
        for scale in (5.0, 1e3):
            with pytest.warns(UserWarning, match=remedy):
                reader.fit_and_read_weighted(X, np.round(scale * weights))
    documents = TemperedLDA()._reader_class.from_estimator(TemperedLDA())
    with pytest.warns(UserWarning, match=remedy):
        documents.fit_and_read_weighted(sp.csr_array(answers), np.round(1e3 * weights))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.fit_and_read_weighted(rows, weights)
        later.fit_and_read_weighted(rows, 1000.0 * weights)
        reader.fit_and_read_weighted(rows[:1], [0.05])
    started = MemoizedDPGMM(1, moves=(), warm_start=True).fit(rows)
    for scale in (0.01, 1e3):
        with pytest.warns(UserWarning, match=remedy):
            started.fit(rows, sample_weight=scale * weights)


def test_weights_that_count_equal_rows_give_no_warning():
    rng = np.random.default_rng(0)
    groups = [
        rng.integers(300, size=(300, 1)),  # a bootstrap sample
        rng.binomial(90, 0.5, size=(50_000, 1)),  # ages
        rng.integers(2, size=(5_000, 6)),  # all answers to six questions
        rng.geometric(0.3, size=(5_000, 3)),  # counts of three things
        rng.random((5_000, 12)) < 0.15,  # some of the answers to twelve questions
        np.floor(4.0 * rng.normal(size=(50_000, 2))),  # bins of two numbers
    ]
    reader = MemoizedDPGMM()._reader_class.from_estimator(MemoizedDPGMM())
    means = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in groups:
            distinct, counts = np.unique(rows.astype(float), axis=0, return_counts=True)
            means.append(counts.mean())
            reader.fit_and_read_weighted(distinct, counts)
    # All means but the first are so large that other whole numbers are warned of.
    assert np.min(means[1:]) > 5.0


@pytest.mark.parametrize("estimator", [MemoizedDPGMM(), TemperedLDA()])
def test_weights_whose_index_has_another_order_than_that_of_rows_are_refused(estimator):
    weights = pd.Series(np.ones(len(TABLE)), index=TABLE.index[::-1])
    with pytest.raises(ValueError, match="index of sample_weight has the labels of X in another"):
        estimator.fit(TABLE, sample_weight=weights)
