"""StructuredGaPNMF takes sampled steps and missing values, and its score predicts counts."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from estimators._registry import assert_same_fit, counts, every_check_of_engines, every_pair
from scipy.stats import poisson
from sklearn.utils import estimator_checks

from skvt import StructuredGaPNMF
from skvt.datasets import make_spectrogram
from skvt.metrics import match_components
from skvt.models.gap_nmf import _kernels as kernels

STEPS = [
    {}, {"learning_method": "online"}, {"global_step": "mean_field"},
    {"local_step": "mean_field"},
]  # fmt: skip
every_step = pytest.mark.parametrize("steps", STEPS, ids=str)
SMALL = {"n_components": 5, "max_iter": 4}


def quick(**params):
    settings = {"n_components": 4, "max_iter": 6, "batch_size": 8, "random_state": 0}
    return StructuredGaPNMF(**(settings | params))


@pytest.mark.quick_cases("pickle", "unchanged", "idempotent", "fit2d", "invariance")
@every_check_of_engines
def test_sampled_steps_pass_a_check_of_scikit_learn(check):
    check("StructuredGaPNMF", StructuredGaPNMF(**SMALL))


def test_weights_are_repetitions_by_the_check_of_scikit_learn():
    estimator = StructuredGaPNMF(**SMALL, local_step="mean_field")
    estimator_checks.check_sample_weight_equivalence_on_dense_data("StructuredGaPNMF", estimator)
    estimator_checks.check_sample_weight_equivalence_on_sparse_data("StructuredGaPNMF", estimator)


def test_few_rows_are_computed_in_small_blocks(monkeypatch):
    # A fit computes blocks of 256 rows.
    fitted, heights, whole = quick().fit(counts()), set(), kernels.write_geometric_means

    def watched(shape, rate, smallest, out):
        heights.add(len(shape))
        whole(shape, rate, smallest, out)

    monkeypatch.setattr(kernels, "write_geometric_means", watched)
    # One row alone is computed by itself.
    for n_rows in (1, 9):
        fitted.transform(counts()[:n_rows])
    assert heights == {16}


def test_a_fit_warns_of_magnitudes_in_a_unit_that_hides_components():
    X = counts()
    few = X * (np.arange(X.size).reshape(X.shape) % 50 == 0)
    assert few.mean() < 0.1  # counts may be rare
    for ordinary in (few, X * (0.7 / X.mean())):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quick().fit(ordinary)
    with pytest.warns(UserWarning, match=r"mean of X is 0\.004.*0\.5 / X\.mean"):
        quick().fit(X * (0.004 / X.mean()))


def test_a_fit_leaves_nothing_of_its_rows_behind():
    X = np.concatenate([counts(seed) for seed in range(20)])
    small, large = quick().fit(X[:100]), quick().fit(X)
    assert len(pickle.dumps(large)) < len(pickle.dumps(small)) + 1000


# ------------------------------------------------------------------------------- what it finds
@pytest.fixture(scope="module")
def mixed_sounds():
    return make_spectrogram(400, n_components=12, n_features=120, random_state=0)


@pytest.mark.slow
def test_the_fit_finds_sounds_and_empties_superfluous_components(mixed_sounds):
    X, truth, _ = mixed_sounds
    fitted = StructuredGaPNMF(30, max_iter=300, random_state=0).fit(X.astype(np.float32))
    assert (match_components(truth, fitted.components_)[1] > 0.9).sum() >= 9
    assert fitted.n_active_components_ < 25
    assert fitted.history_["n_components"][-1] == fitted.n_active_components_
    mean_field = StructuredGaPNMF(
        30, max_iter=300, local_step="mean_field", global_step="mean_field", random_state=0
    ).fit(X.astype(np.float32))
    assert fitted.score(X) > mean_field.score(X)


def test_passes_of_coordinate_ascent_have_a_bound_that_rises():
    X = counts(n_rows=60)
    fitted = quick(max_iter=30, polish=0.5).fit(X)
    elbo = np.array(fitted.history_["elbo"])
    assert np.isnan(elbo[:15]).all()
    assert np.all(np.diff(elbo[15:]) > 0.0)
    assert np.isnan(quick(polish=0.0).fit(X).history_["elbo"]).all()
    assert np.isfinite(quick(polish=1.0).fit(X).history_["elbo"]).all()


def test_a_third_of_coordinate_ascent_comes_between_five_rounds_of_sampling():
    X = counts(n_rows=12)
    sampled = np.isnan(quick(max_iter=125, polish=0.2).fit(X).history_["elbo"])
    assert np.flatnonzero(np.diff(sampled)).tolist() == [19, 21, 41, 43, 63, 65, 85, 87, 107]
    online = quick(max_iter=125, polish=0.2, learning_method="online").fit(X)
    assert np.flatnonzero(np.diff(np.isnan(online.history_["elbo"]))).tolist() == [99]


# ------------------------------------------------------------------------------ missing values
@pytest.mark.quick_cases("online")
@every_step
def test_missing_values_are_predicted_from_the_others(steps, mixed_sounds):
    X = mixed_sounds.X[:100]
    hidden = np.random.default_rng(0).random(X.shape) < 0.2
    holes = np.where(hidden, np.nan, X)
    settings = {"n_components": 20, "max_iter": 40, "random_state": 0, "batch_size": 50}
    fitted = StructuredGaPNMF(**settings, **steps).fit(holes)
    guess = fitted.inverse_transform(fitted.transform(holes))
    error = ((guess - X)[hidden] ** 2).mean()
    columns = ((np.nanmean(holes, axis=0) - X)[hidden] ** 2).mean()
    assert error < 0.5 * columns


def test_a_row_and_a_column_without_values_are_taken():
    X = counts()
    X[3], X[:, 5] = np.nan, np.nan
    fitted = quick().fit(X)
    assert np.isfinite(fitted.elbo_) and np.isfinite(fitted.components_).all()
    # Nothing is known of the row, which has the mean of the prior.
    np.testing.assert_allclose(fitted.transform(X)[3], 1.0, rtol=1e-10)
    assert np.isfinite(fitted.score(X))
    with pytest.raises(ValueError, match="all entries are missing"):
        fitted.score(np.full((2, X.shape[1]), np.nan))


def test_missing_values_may_first_come_with_a_later_chunk():
    X, holes = counts(), counts(1)
    holes[::3, ::4] = np.nan
    stream = quick().partial_fit(X).partial_fit(holes)
    assert np.isfinite(stream.components_).all() and np.isfinite(stream.score(holes))


@every_step
def test_missing_values_of_sparse_rows_are_those_of_dense_ones(steps):
    X = counts()
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    X[3], X[:, 5] = np.nan, np.nan
    dense = quick(**steps).fit(X)
    sparse = quick(**steps).fit(sp.csr_array(X))
    assert dense.data_mean_prior_ == pytest.approx(np.nanmean(X))
    assert_same_fit(dense, sparse)
    assert dense.score(X) == sparse.score(sp.csc_matrix(X))
    np.testing.assert_array_equal(dense.transform(X), dense.transform(sp.csr_array(X)))
    stream = quick(**steps).partial_fit(sp.csr_array(X))
    assert_same_fit(quick(**steps).partial_fit(X), stream)


def test_a_missing_value_stored_beside_another_is_missing():
    X = counts()
    holes = np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X)
    # The same place has the value of the row and NaN.
    added = sp.csr_array(
        (np.append(X[0], np.nan), np.append(np.arange(25), 7), [0, 26]), shape=(1, 25)
    )
    doubled = sp.csr_array(sp.vstack([added, sp.csr_array(X[1:])]))
    assert not doubled.has_canonical_format
    assert_same_fit(quick().fit(doubled), quick().fit(holes))


# ------------------------------------------------------------------------------ extreme input
EXTREMES = {
    "one row": lambda X: X[:1], "one column": lambda X: X[:, :1],
    "fewer rows than components": lambda X: X[:2], "no counts at all": lambda X: 0.0 * X,
    "rows without counts": lambda X: np.concatenate([X[:10], 0.0 * X[:10]]),
    "counts of a million": lambda X: 1e6 * X, "very small numbers": lambda X: 1e-9 * X,
    "equal rows": lambda X: np.ones_like(X),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The mean of X")
@pytest.mark.quick_cases("float64")
@every_pair("steps, dtype, extreme", STEPS, [np.float32, np.float64], list(EXTREMES))
def test_extreme_data_give_finite_answers(steps, dtype, extreme):
    X = EXTREMES[extreme](counts()).astype(dtype)
    fitted = quick(evaluate_every=1, tol=0.0, **steps).fit(X)
    for answer in (fitted.elbo_, fitted.components_, fitted.transform(X), fitted.score(X)):
        assert np.isfinite(answer).all()
    assert (fitted.components_ >= 0.0).all()
    assert np.isfinite(fitted.partial_fit(X).elbo(X))


# ------------------------------------------------------------------------------- what it shows
def test_score_predicts_each_parity_of_the_columns_from_the_other():
    X = counts()
    fitted = quick(max_iter=30).fit(X)
    total = 0.0
    for parity in (0, 1):
        seen = X.copy()
        seen[:, parity::2] = np.nan
        rates = fitted.inverse_transform(fitted.transform(seen))[:, parity::2]
        total += poisson.logpmf(X[:, parity::2], rates).sum()
    assert fitted.score(X) == pytest.approx(total / X.size, rel=1e-10)
    assert fitted.score(X) > poisson.logpmf(X, X.mean()).mean()


def test_weights_components_and_reconstructions_agree():
    X = counts()
    fitted = quick(max_iter=30).fit(X)
    mean = fitted.posterior_.mean()
    np.testing.assert_allclose(fitted.weights_, mean["weights"])
    components = mean["weights"][:, None] * mean["components"]
    np.testing.assert_allclose(fitted.components_, components)
    reconstruction = fitted.inverse_transform(fitted.transform(X))
    assert reconstruction.sum() == pytest.approx(X.sum(), rel=0.05)
    assert fitted.data_mean_prior_ == pytest.approx(X.mean())
    assert fitted.n_components_ == 4 >= fitted.n_active_components_ >= 1
    with pytest.raises(ValueError, match="4 components"):
        fitted.inverse_transform(np.ones((2, 3)))
