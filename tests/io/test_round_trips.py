"""A fitted estimator that is saved and loaded continues with the same bits."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimators._registry import ENTRIES, assert_same_fit, bits, counts, rows, sums, takes

import skvt
from skvt import components, load, save
from skvt.callbacks import Checkpoint


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skvt"


def holes(X):
    """The rows with missing values in all but the first two."""
    missing = np.random.default_rng(0).random(X.shape) < 0.1
    missing[:2] = False
    return np.where(missing, np.nan, X)


FORMS = {"dense": np.asarray, "holes": holes, "sparse": sp.csr_array}


def weights_of(X):
    return np.random.default_rng(1).uniform(0.5, 2.0, X.shape[0])


def call(estimator, X, number):
    """A call of ten weighted rows. The first two calls have no batch_id."""
    some = slice(10 * number, 10 * number + 10)
    given = {"sample_weight": weights_of(X)[some], "batch_id": number if number > 1 else None}
    return estimator.partial_fit(X[some], **given)


def streamed(estimator, X):
    for number in range(3):
        call(estimator, X, number)
    return estimator


def started_warm(estimator, X):
    estimator.set_params(warm_start=True)
    return estimator.fit(X).fit(X, sample_weight=weights_of(X))


WAYS = {
    "fit": lambda estimator, X: estimator.fit(X, sample_weight=weights_of(X)),
    "stream": streamed,
    "warm": started_warm,
}


def check_round_trips(fitted, X, path):
    """Saved once or twice, it shows the same results, and streams continue with the same bits."""
    save(fitted, path)
    once = load(path)
    assert_same_fit(once, fitted)
    save(once, path)
    twice = call(load(path), X, 3)
    assert_same_fit(twice, call(fitted, X, 3))
    save(twice, path)
    assert_same_fit(load(path), fitted)


def legal_forms(entry):
    tags = entry.make().__sklearn_tags__().input_tags
    legal = {"dense": True, "holes": tags.allow_nan, "sparse": tags.sparse}
    return [form for form in FORMS if legal[form]]


CASES = [
    pytest.param(entry, form, way, id=f"{entry}-{form}-{way}")
    for entry in ENTRIES
    for form in legal_forms(entry)
    for way in WAYS
]


@pytest.mark.quick_cases("stream", "AnnealedFactorialMixture-batch-4-20-holes-fit")
@pytest.mark.parametrize(("entry", "form", "way"), CASES)
def test_every_estimator_can_be_saved_after_every_kind_of_fit(entry, form, way, path):
    X = FORMS[form](entry.data())
    fitted = WAYS[way](entry.make(), X)
    save(fitted, path)
    loaded = load(path)
    assert loaded.get_params().keys() == fitted.get_params().keys()
    for one, other in zip(entry.answers(loaded, X), entry.answers(fitted, X), strict=True):
        np.testing.assert_array_equal(one, other)
    check_round_trips(fitted, X, path)


SMALL = {"n_components": 3, "max_iter": 3, "tol": 0.0, "random_state": 0}
LAWS = "dirichlet_process", "dirichlet_distribution"


@pytest.mark.quick_cases("dense-dirichlet_distribution-full", "holes-dirichlet_process-diag",
                         "dense-dirichlet_distribution-low_rank")  # fmt: skip
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "low_rank"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("form", ["dense", "holes"])
def test_every_covariance_and_law_of_weights_can_be_saved(form, law, covariance_type, path):
    X = FORMS[form](rows(n_features=4))
    params = {"covariance_type": covariance_type, "weight_concentration_prior_type": law}
    fit = skvt.MemoizedDPGMM(**SMALL, moves=(), **params).set_callbacks(Checkpoint(path)).fit(X)
    check_round_trips(fit.set_callbacks(), X, path)
    stream = skvt.MemoizedDPGMM(**SMALL, max_components=4, **params)
    check_round_trips(streamed(stream, X), X, path)


@pytest.mark.parametrize("method", ["memoized", pytest.param("online", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_gathered_calls_may_be_sparse(form, method, path):
    X = FORMS[form](counts())
    stream = skvt.MemoizedHDP(**SMALL, max_components=4, learning_method=method)
    check_round_trips(streamed(stream, X), X, path)


@pytest.mark.parametrize(
    ("cls", "forms"),
    [
        (skvt.StructuredBernoulliMixture, ("sparse", "dense")),
        (skvt.MemoizedDPMixture, ("dense", "sparse")),
    ],
)
def test_gathered_calls_may_be_dense_and_sparse(cls, forms, path):
    X, given = bits(), SMALL | {"learning_method": "memoized"}
    once, mixture = cls(**given), cls(**given)
    for start in (0, 10, 20, 30):
        part = X[start : start + 10]
        once.partial_fit(FORMS[forms[0]](part))
        mixture.partial_fit(FORMS[forms[start // 10 % 2]](part))
    assert sp.issparse(mixture._fitted.gathered.X)
    np.testing.assert_allclose(mixture.predict_proba(X), once.predict_proba(X), rtol=1e-6)
    check_round_trips(mixture, X, path)


def test_a_stream_of_one_batch_of_sums_of_parts_can_be_saved(path):
    rng = np.random.default_rng(0)
    X = 9.0 * rng.integers(2, size=(100, 3)) @ rng.normal(size=(3, 6))
    check_round_trips(skvt.AnnealedFactorialMixture(3, random_state=0).partial_fit(X), X, path)


def mixed(n_rows=40):
    """A table with columns of every kind."""
    rng = np.random.default_rng(0)
    cluster = rng.integers(3, size=n_rows)
    table = {
        "x": rng.normal(3.0 * cluster), "y": rng.normal(size=n_rows),
        "z": rng.normal(2.0 * cluster), "income": np.exp(rng.normal(2.0 * cluster)),
        "word": np.array(["a", "b", "c"])[np.arange(n_rows) % 3],
        "flag": rng.random(n_rows) < 0.3, "count": rng.poisson(1.0 + cluster),
        "n1": rng.poisson(3.0, n_rows), "n2": rng.poisson(3.0, n_rows),
        "years": rng.uniform(1.0, 3.0, n_rows), "grade": rng.integers(4, size=n_rows),
    }  # fmt: skip
    return pd.DataFrame(table)


KINDS = {
    "full": (components.Gaussian(), ["x", "y"]),
    "diag": (components.Gaussian(covariance_type="diag"), ["x", "y"]),
    "tied": (components.Gaussian(covariance_type="tied"), ["x", "y"]),
    "spherical": (components.Gaussian(covariance_type="spherical"), ["x", "y"]),
    "low_rank": (components.Gaussian(covariance_type="low_rank", max_rank=1), ["x", "y", "income"]),
    "logarithm": (components.Gaussian(covariance_type="diag", log=["income"]), ["x", "income"]),
    "student": (components.StudentT(), ["x", "y"]),
    "student-diag": (components.StudentT(covariance_type="diag"), ["x", "y"]),
    "ordinal": (components.LatentGaussian(ordinal=["grade"]), ["grade", "y"]),
    "ordinal-tied": (
        components.LatentGaussian(covariance_type="tied", ordinal=["grade"]), ["grade", "y"]
    ),
    "categorical": (components.Categorical(missing="informative"), ["word"]),
    "bernoulli": (components.Bernoulli(), ["flag"]),
    "poisson": (components.Poisson(rate_prior="auto"), ["count"]),
    "rate": (components.Poisson(exposure="years"), ["count"]),
    "negative_binomial": (components.NegativeBinomial(exposure="years"), ["count"]),
    "multinomial": (components.Multinomial(), ["n1", "n2"]),
    "hurdle": (components.Hurdle(components.Poisson(), missing="informative"), ["count"]),
    "hurdle-logarithm": (
        components.Hurdle(components.Gaussian(covariance_type="diag", log=["income"])), ["income"]
    ),
}  # fmt: skip


@pytest.mark.quick_cases("ordinal-holes", "hurdle-holes")
@pytest.mark.parametrize(
    ("kind", "form"),
    [(kind, form) for kind in KINDS for form in ("dense", "holes")
     if (kind, form) != ("multinomial", "holes")],
)  # fmt: skip
def test_components_of_every_kind_of_columns_can_be_saved(kind, form, path):
    table, (component, columns) = mixed(), KINDS[kind]
    if form == "holes":
        first = table[columns[0]]
        first = first.astype(object if columns[0] in ("word", "flag") else float)
        table[columns[0]] = first.mask(first.index.isin(range(3, 9)))
    blocks = [("block", component, columns), ("rest", "gaussian", ["z"])]
    for way in (lambda m: m.fit(table), lambda m: streamed(m, table)):
        mixture = way(skvt.MemoizedDPMixture(**SMALL, components=blocks, moves=()))
        save(mixture, path)
        loaded = load(path)
        pd.testing.assert_frame_equal(loaded.impute(table), mixture.impute(table))
        pd.testing.assert_frame_equal(loaded.describe(), mixture.describe())
        check_round_trips(mixture, table, path)


@pytest.mark.quick_cases("TemperedLDA", "variational")
@pytest.mark.parametrize("temperature", ["annealed", "variational"])
@pytest.mark.parametrize("entry", [e for e in ENTRIES if takes(e, "variational")], ids=str)
def test_streams_of_every_temperature_can_be_saved(entry, temperature, path):
    stream = streamed(entry.make(temperature=temperature, **entry.heated), entry.data())
    check_round_trips(stream, entry.data(), path)


@pytest.mark.filterwarnings("ignore:.*rows have no words")
@pytest.mark.parametrize("temperature", ["variational", "local"])
def test_a_fit_to_documents_without_words_can_be_saved(temperature, path):
    lda = skvt.TemperedLDA(2, max_iter=3, temperature=temperature, random_state=0)
    save(lda.fit(np.zeros((6, 4))), path)
    assert_same_fit(load(path), lda)


@pytest.mark.parametrize("scale", [1e16, 1e-16])
def test_a_fit_to_values_of_any_size_can_be_saved(scale, path):
    factors = skvt.AnnealedFactorialMixture(2, max_iter=3, random_state=0).fit(sums() * scale)
    save(factors, path)
    assert_same_fit(load(path), factors)
