"""Mixtures of Bernoullis find clusters of binary rows by each learning method."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimators._registry import assert_same_fit, bits, refused
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

from skvt import StructuredBernoulliMixture
from skvt.datasets import make_bernoulli_mixture
from skvt.readers import validation

LAWS = ["dirichlet_process", "dirichlet_distribution"]
METHODS = ["structured", "memoized", "online", "batch"]
each_law = pytest.mark.parametrize("law", LAWS)
each_method = pytest.mark.parametrize("learning_method", METHODS)


def clusters(n=400, D=30, K=4, seed=0, noise=0.1):
    """Rows of K profiles, of which each bit is turned with some probability; and their labels."""
    rng = np.random.default_rng(seed)
    profiles, labels = rng.random((K, D)) < 0.5, rng.integers(K, size=n)
    return (profiles[labels] ^ (rng.random((n, D)) < noise)).astype(float), labels


def fitted(X, K=12, **settings):
    usual = {"learning_method": "structured", "feature_prior": 1.0, "max_iter": 100}
    return StructuredBernoulliMixture(K, **(usual | {"random_state": 0} | settings)).fit(X)


# ------------------------------------------------------------------------------ known answers
@pytest.mark.quick_cases("structured-dirichlet_process", "memoized-dirichlet_distribution")
@each_law
@each_method
def test_clusters_are_found(law, learning_method):
    X, labels = clusters()
    settings = {"weight_concentration_prior_type": law, "init_params": "random", "max_iter": 300}
    mixture = fitted(X, learning_method=learning_method, **settings)
    assert mixture.n_active_components_ == 4
    found = mixture.predict(X)
    assert adjusted_rand_score(labels, found) > 0.97
    for name in range(4):
        k = np.bincount(found[labels == name]).argmax()
        assert mixture.weights_[k] == pytest.approx(np.mean(labels == name), abs=0.02)
        np.testing.assert_allclose(mixture.means_[k], X[labels == name].mean(axis=0), atol=0.04)
    if law == "dirichlet_process" and learning_method != "online":
        assert np.all(np.diff(mixture.weights_) <= 1e-6)


def test_the_defaults_find_the_number_of_clusters():
    X, labels = clusters()
    mixture = StructuredBernoulliMixture(300, random_state=0).fit(X)
    assert mixture.n_components_ == mixture.n_active_components_ == 4
    assert mixture.n_clusters_ == 4
    assert adjusted_rand_score(labels, mixture.labels_) > 0.97
    assert mixture.converged_
    # The start has fewer components than the maximum.
    assert mixture._fitted.model.n_initial == 100


@pytest.mark.slow
def test_structured_inference_finds_clusters_that_mean_field_does_not():
    # This is the setting of HB15 sec. 4.2, half as large.
    truth = make_bernoulli_mixture(
        500, n_features=60, n_components=60, weight_concentration=12.0, random_state=1
    )
    X, rng = truth.X, np.random.default_rng(2)
    labels = rng.choice(60, size=4000, p=truth.weights)
    test = (rng.random((4000, 60)) < truth.means[labels]).astype(float)
    with np.errstate(divide="ignore"):
        logs = test @ np.log(truth.means).T + (1 - test) @ np.log1p(-truth.means).T
        true = logsumexp(logs + np.log(truth.weights), axis=1)
    settings = {
        "weight_concentration_prior": 12.0,
        "weight_concentration_prior_type": "dirichlet_distribution",
        "max_iter": 300,
    }
    structured = fitted(X, 60, **settings)
    plain = fitted(X, 60, learning_method="batch", moves=(), init_params="random", **settings)
    divergence = [np.mean(true - m.score_samples(test)) for m in (structured, plain)]
    n_true = np.unique(truth.labels).size
    assert abs(structured.n_active_components_ / n_true - 1.0) < 0.15
    assert plain.n_active_components_ < 0.7 * n_true
    assert divergence[1] > 1.3 * divergence[0]
    assert structured.elbo_ > plain.elbo_


# ------------------------------------------------------------------------------ missing values
@pytest.mark.filterwarnings("ignore:1 of 31 columns have NaN only:UserWarning")
def test_missing_values_are_left_out():
    X, labels = clusters(600)
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.3, np.nan, X)
    mixture = fitted(gaps)
    # A draw may leave a component of one or two rows.
    assert np.sum(mixture.weights_ > 0.02) == 4
    assert adjusted_rand_score(labels, mixture.predict(gaps)) > 0.97
    # A column without values changes nothing but the random numbers.
    one = fitted(X, learning_method="batch")
    with pytest.warns(UserWarning, match=r"1 of 31 columns have NaN only.*columns 30\)"):
        other = fitted(np.column_stack([X, np.full(600, np.nan)]), learning_method="batch")
    assert other.elbo_ == pytest.approx(one.elbo_, rel=1e-9)
    np.testing.assert_allclose(other.means_[:, -1], 0.5)


# ---------------------------------------------------------------------------------- binary input
ILLEGAL = [
    (2.0, r"binary.* Got 2\. .*'binarize'.* such as 0 for counts.* pass 2 - X"),
    (-1.0, r"Got -1\. If -1 stands for a missing value, replace it by NaN"),
    (0.5, r"binary.* Got 0\.5"), (np.inf, "infinity"),
]  # fmt: skip


@pytest.mark.parametrize("contain", [np.asarray, sp.csc_array])
def test_values_that_are_not_binary_are_refused_and_change_nothing(contain):
    mixture = StructuredBernoulliMixture(3, max_iter=2, random_state=0).fit(bits())
    for value, message in ILLEGAL:
        X = bits()
        X[3, -1] = value
        for method in ("fit", "partial_fit", "predict", "score", "elbo"):
            with refused(mixture, match=message):
                getattr(mixture, method)(contain(X))


def test_the_remedy_for_answers_as_text_keeps_missing_values():
    X = pd.DataFrame(bits()).replace({0.0: "no", 1.0: "yes"}).astype(object)
    X.iloc[0, 0] = None
    with pytest.raises(ValueError, match=r"\(X == 'yes'\)\.astype\(float\)\.where\(X\.notna\(\)\)"):
        StructuredBernoulliMixture().fit(X)
    expected = bits()
    expected[0, 0] = np.nan
    np.testing.assert_array_equal((X == "yes").astype(float).where(X.notna()), expected)


@pytest.mark.parametrize("contain", [np.asarray, sp.csr_array])
def test_values_above_a_threshold_are_ones(contain):
    counts = np.random.default_rng(0).poisson(1.0, size=(60, 5)).astype(float)
    settings = {"K": 3, "max_iter": 3, "learning_method": "memoized"}
    one = fitted(contain((counts > 1.0).astype(float)), **settings)
    assert_same_fit(fitted(contain(counts), binarize=1.0, **settings), one)


def test_missing_values_stay_missing_under_a_threshold():
    X, _ = clusters(60, D=5)
    X[4, 2] = np.nan
    one, other = fitted(X, max_iter=9), fitted(3.0 * X - 1.0, binarize=0.0, max_iter=9)
    np.testing.assert_array_equal(one.means_, other.means_)
    sparse = fitted(sp.csr_array(X), max_iter=9)
    np.testing.assert_allclose(sparse.means_, one.means_, rtol=1e-9)


def test_a_negative_threshold_of_sparse_data_is_refused():
    with pytest.raises(ValueError, match=r"sparse X, the 'binarize' .* Got -0.5"):
        fitted(sp.csr_array(bits()), binarize=-0.5)


@pytest.mark.parametrize("warm", [True, False])
def test_rows_are_read_with_the_threshold_of_the_first_rows(warm):
    mixture = fitted(3.0 * bits(), binarize=1.0, max_iter=2)
    labels = mixture.labels_
    mixture.set_params(binarize=5.0, warm_start=warm)
    np.testing.assert_array_equal(mixture.predict(3.0 * bits()), labels)
    with pytest.raises(ValueError, match=r"had binarize=1\.0\. Got binarize=5\.0; set it back"):
        mixture.fit(bits()) if warm else mixture.partial_fit(bits())


# ---------------------------------------------------------------------------------- parameters
@pytest.mark.parametrize(
    "prior", [0.0, -1.0, [1.0], [1.0, 2.0, 3.0], [1.0, 0.0], np.ones((8, 3)), [np.nan, 1.0]]
)
def test_an_illegal_feature_prior_is_refused_with_the_legal_ones(prior):
    mixture = StructuredBernoulliMixture(3, feature_prior=prior)
    with refused(mixture, match=r"'feature_prior' .*\(0(\.0)?, inf\)"):
        mixture.fit(bits())


def test_feature_priors_of_all_shapes_are_the_same():
    X = bits()
    same = (0.4, [0.4, 0.4], np.full((8, 2), 0.4))
    fits = [fitted(X, 3, feature_prior=prior, max_iter=9) for prior in same]
    assert_same_fit(fits[0], fits[1])
    assert_same_fit(fits[0], fits[2])
    # Few rows do not outweigh a large prior.
    skew = fitted(X[:4], 3, feature_prior=[100.0, 300.0])
    np.testing.assert_allclose(skew.means_, 0.25, atol=0.02)


def test_a_warm_start_does_not_change_between_structured_and_mean_field_inference():
    X = bits()
    mixture = fitted(X, 3, max_iter=9, warm_start=True)
    n_before = mixture.n_batch_iter_
    with refused(mixture, match="learning_method='memoized'"):
        mixture.set_params(learning_method="memoized").fit(X)
    # It may change from one global step to another.
    mixture.set_params(learning_method="structured", global_step="ssvi").fit(X)
    assert mixture.n_batch_iter_ == 2 * n_before


def test_components_without_rows_are_described_in_one_line():
    X = make_bernoulli_mixture(300, n_features=20, random_state=0)[0]
    mixture = StructuredBernoulliMixture(40, learning_method="structured", random_state=0).fit(X)
    *lines, last = mixture.describe(form="text").splitlines()
    n_empty = np.count_nonzero(np.rint(mixture.weights_ * 300) == 0)
    assert len(lines) == 40 - n_empty and last == f"{n_empty} components without rows"


def test_births_stop_at_the_maximum_number_of_components():
    X, _ = clusters(600, K=8)
    for law in LAWS:
        mixture = fitted(X, 3, learning_method="memoized", weight_concentration_prior_type=law)
        assert mixture.n_components_ <= 3


# -------------------------------------------------------------------------------------- steps
def test_steps_on_all_rows_are_full_ones_at_first():
    X = bits()
    rates = fitted(X, 3, max_iter=500).history_["learning_rate"]
    assert rates[400] == 1.0 and 0.9 < rates[-1] < 1.0
    corrected = fitted(X, 3, max_iter=2, global_step="ssvi").history_["learning_rate"]
    np.testing.assert_allclose(corrected, [10.0**-0.75, 11.0**-0.75])
    minibatches = fitted(X, 3, max_iter=2, batch_size=40).history_["learning_rate"]
    np.testing.assert_allclose(minibatches, corrected)
    given = fitted(X, 3, max_iter=2, learning_scale=3.0, learning_offset=20.0)
    np.testing.assert_allclose(given.history_["learning_rate"], 3.0 * np.array([20, 21.0]) ** -0.75)


def test_the_bound_of_structured_inference_is_known_where_it_is_evaluated():
    X = bits()
    mixture = fitted(X, 3, max_iter=7, evaluate_every=3)
    known = ~np.isnan(mixture.history_["elbo"])
    assert list(np.flatnonzero(known)) == [2, 5]
    short = fitted(X, 3, max_iter=6)
    assert mixture.history_["elbo"][5] == pytest.approx(short.elbo_, rel=1e-12)


@pytest.mark.quick_cases("ssvi-a")
@pytest.mark.parametrize(
    "global_step, law",
    [("ssvi-a", "dirichlet_process"), ("ssvi", "dirichlet_distribution"),
     ("mean_field", "dirichlet_process"), ("map", "dirichlet_distribution")],
)  # fmt: skip
def test_every_global_step_learns_from_minibatches_and_streams(law, global_step):
    X, labels = clusters(600)
    single = fitted(X, 1, learning_method="batch").score(X)
    found, gains = [], []
    # The noise of "ssvi" loses clusters with one seed of twenty, and which one it is depends on
    # the rounding of the processor.
    for seed in range(3 if global_step == "ssvi" else 1):
        settings = {
            "weight_concentration_prior_type": law, "global_step": global_step,
            "learning_method": "structured", "feature_prior": 1.0, "random_state": seed,
        }  # fmt: skip
        mixture = StructuredBernoulliMixture(8, batch_size=100, max_iter=30, **settings).fit(X)
        assert mixture.n_batch_iter_ == 180
        stream = StructuredBernoulliMixture(8, batch_size=100, total_samples=600, **settings)
        for _ in range(30):
            stream.partial_fit(X)
        found.append(adjusted_rand_score(labels, mixture.predict(X)))
        gains.append(min(stream.score(X), mixture.score(X)) - single)
    assert np.median(found) > 0.6
    assert np.median(gains) > 1.5


def test_small_calls_of_a_stream_are_small_steps():
    X, _ = clusters(1400, D=12)
    X, test, n_rows = X[:1000], X[1000:], 100
    whole = fitted(X, 10, max_iter=60)
    stream = StructuredBernoulliMixture(
        10, learning_method="structured", feature_prior=1.0, random_state=0
    )
    for start in range(0, 1000, n_rows):
        stream.partial_fit(X[start : start + n_rows])
    rates = stream.history_["learning_rate"]
    # The first 500 rows begin the stream.
    np.testing.assert_array_equal(rates[: 500 // n_rows], 1.0)
    np.testing.assert_allclose(
        rates[500 // n_rows :], 2 * n_rows / np.arange(500 + n_rows, 1001, n_rows)
    )
    before = whole.score(test)
    assert stream.score(test) > before - 0.3
    assert whole.partial_fit(X[:n_rows]).score(test) > before - 0.1


def test_a_structured_stream_longer_than_assumed_forgets():
    X = bits()
    stream = fitted(X[:10], 3, total_samples=80)
    for _ in range(7):
        stream.partial_fit(X[:10])
    rates = stream.history_["learning_rate"]
    np.testing.assert_allclose(rates[-6:], 2.0 / np.array([3, 4, 5, 6, 7, 8.0]))
    assert stream.partial_fit(X[:10]).history_["learning_rate"][-1] == 0.25
    assert stream.weight_concentration_[:, 0].sum() == pytest.approx(82.0)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_value_that_is_not_binary_is_found_wherever_it_stands(container, monkeypatch):
    monkeypatch.setattr(validation, "_ENTRIES_PER_CHECK", 6)
    for row, column in ((0, 0), (4, 1), (6, 2)):
        X = np.ones((7, 3))
        X[row, column] = 0.5
        with pytest.raises(ValueError, match=r"Got 0\.5\."):
            StructuredBernoulliMixture().fit(container(X))


def ones_at_random(n_rows, n_columns, number):
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(n_rows), number)
    columns = rng.integers(n_columns, size=rows.size)
    X = sp.csr_array((np.ones(rows.size), (rows, columns)), (n_rows, n_columns))
    X.sum_duplicates()
    X.data[:] = 1.0
    return X


@pytest.mark.quick_cases("{}")
@pytest.mark.parametrize("how", [{}, {"learning_method": "memoized"}], ids=str)
def test_sparse_rows_are_not_made_dense(how):
    X = ones_at_random(1_000, 8_000, 5)  # 64 MB if dense
    mixture = StructuredBernoulliMixture(3, max_iter=1, moves=(), random_state=0, **how)
    # The first fit compiles the loops, which takes memory.
    mixture.fit(X[:50, :20])
    tracemalloc.start()
    mixture.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("how", [{}, {"learning_method": "memoized"}], ids=str)
def test_sparse_rows_are_fitted_as_dense_ones(how):
    rng = np.random.default_rng(0)
    X = (rng.random((300, 12)) < rng.random((3, 12))[rng.integers(3, size=300)]).astype(float)
    fits = [
        StructuredBernoulliMixture(5, max_iter=5, random_state=0, **how).fit(held)
        for held in (X, sp.csr_array(X))
    ]
    bounds = [fit.elbo(X) for fit in fits]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-9)
    np.testing.assert_allclose(fits[1].means_, fits[0].means_, atol=1e-6)
