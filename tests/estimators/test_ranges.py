"""Counts, weights and priors at the ends of their ranges give finite answers or a named error.

Each fit here ended in numbers that are not finite, in a crash, or never.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from _pairs import pairs

from skvt import StructuredGaPNMF, StructuredLDA, TemperedLDA
from skvt.metrics import (
    document_completion_score,
    document_completion_split,
    held_out_log_likelihood,
)
from skvt.readers.validation import LARGEST


def counts(dtype=np.float64):
    return np.random.default_rng(0).poisson(1.0, (60, 25)).astype(dtype)


MODELS = {
    "TemperedLDA": (TemperedLDA, {}),
    "variational": (TemperedLDA, {"temperature": "variational"}),
    "Gibbs": (StructuredLDA, {"batch_size": 20}),
    "CVB0 and SSVI": (
        StructuredLDA,
        {"local_step": "cvb0", "global_step": "ssvi", "batch_size": 20},
    ),
    "GaP-NMF": (StructuredGaPNMF, {}),
}


def make(name, **changes):
    cls, settings = MODELS[name]
    return cls(n_components=3, max_iter=4, random_state=0, **(settings | changes))


def assert_finite(estimator, X):
    for value in (estimator.components_, estimator.elbo_, estimator.history_["objective"]):
        assert np.isfinite(value).all()
    assert np.isfinite(estimator.transform(X)).all()
    assert np.isfinite(estimator.elbo(X))
    assert np.isfinite(estimator.score(X))


def _with_large(value, *places):
    def change(X):
        X[tuple(zip(*places, strict=True))] = value
        return X

    return change


SCALES = {
    "thousands of millions": lambda X: 1e9 * X,
    "no int64": lambda X: 1e20 * X,
    "two that are no int64": _with_large(1e20, (3, 4), (7, 9)),
    "the largest total": lambda X: X / X.sum() * X.dtype.type(0.99 * LARGEST),
    "the smallest total": lambda X: X / X.sum() / X.dtype.type(0.99 * LARGEST),
    "one large entry": _with_large(LARGEST / 2.0, (3, 4)),
}


@pytest.mark.filterwarnings("ignore:The mean of X is .*, and its numbers are no counts")
@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "name, scale, dtype", pairs(list(MODELS), list(SCALES), [np.float32, np.float64])
)
def test_counts_up_to_the_ends_of_their_range_give_finite_answers(name, scale, dtype):
    X = SCALES[scale](counts(dtype))
    assert X.dtype == dtype
    estimator = make(name).fit(X)
    assert_finite(estimator, X)
    assert np.isfinite(estimator.partial_fit(X).components_).all()


@pytest.mark.quick_cases("TemperedLDA")
@pytest.mark.parametrize("weight", [1e8, 1e26])
@pytest.mark.parametrize("name", MODELS)
def test_large_weights_give_finite_answers(name, weight):
    X = counts(np.float32)
    assert_finite(make(name).fit(X, sample_weight=np.full(60, weight)), X)
    assert_finite(make(name).fit(X, sample_weight=np.r_[weight, np.ones(59)]), X)


@pytest.mark.parametrize("value", [1.0 / LARGEST, LARGEST])
@pytest.mark.parametrize(
    "name, prior",
    [
        (name, prior)
        for name in MODELS
        for prior in (
            ("component_shape", "activation_shape", "weight_concentration_prior", "data_mean_prior")
            if name == "GaP-NMF"
            else ("doc_topic_prior", "topic_word_prior")
        )
    ],
)
def test_priors_at_the_ends_of_their_range_give_finite_answers(name, prior, value):
    X = counts()
    assert_finite(make(name, **{prior: value}).fit(X), X)
    with pytest.raises(ValueError, match=prior) as caught:
        make(name, **{prior: value**5}).fit(X)
    assert "in the range [1e-" in str(caught.value)
    assert f"Got {value**5!r} instead" in str(caught.value)


def test_a_stream_of_a_hundred_million_documents_is_finite():
    X = counts()
    for total in (1e8, 1e20):
        estimator = make("CVB0 and SSVI", total_samples=total)
        for _ in range(5):
            estimator.partial_fit(X)
        assert np.isfinite(estimator.components_).all()
        assert estimator.components_.sum() < 10.0 * total / 60.0 * X.sum()


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "name, of_type, holder",
    pairs(
        list(MODELS),
        ["float32 1e36", "float64 1e160", "float64 1e-310"],
        [np.asarray, sp.csr_array],
    ),
)
def test_counts_out_of_range_are_refused_before_any_work(name, of_type, holder):
    X, dtype, factor = counts(), *of_type.split()
    estimator = make(name).fit(X.astype(dtype))
    before = estimator.components_.copy()
    bad = holder((float(factor) * X).astype(dtype))
    legal = r"add up to 0 or a number in the range \[1e-30, 1e\+30\]. The sum is .*; divide"
    for call in (make(name).fit, estimator.partial_fit, estimator.transform, estimator.elbo):
        with pytest.raises(ValueError, match=legal):
            call(bad)
    np.testing.assert_array_equal(estimator.components_, before)


@pytest.mark.parametrize("holder", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("name", MODELS)
def test_weights_that_lead_out_of_range_are_refused_by_name(name, holder):
    weights = np.ones(60)
    weights[5] = 1e300
    for call in (make(name).fit, make(name).partial_fit):
        with pytest.raises(
            ValueError, match=r"weighted by sample_weight, .* from 1 to 1e\+300; multiply"
        ):
            call(holder(counts()), sample_weight=weights)


# ----------------------------------------------------------------------------------- metrics
@pytest.mark.parametrize(
    "value", [np.nan, -1.0, 0.0, np.inf, 1e300, "x", [1.0, 2.0], [1.0, 1.0, -1.0]]
)
@pytest.mark.parametrize("score", [document_completion_score, held_out_log_likelihood])
def test_illegal_priors_of_documents_are_refused_by_name(score, value):
    topics = np.random.default_rng(0).random((3, 25)) + 0.1
    with pytest.raises(ValueError, match="doc_topic_prior"):
        score(topics, counts(), doc_topic_prior=value)
    assert np.isfinite(score(topics, counts()[:3], doc_topic_prior=[0.1, 0.2, 0.3])).all()


@pytest.mark.parametrize("method", ["left-to-right", "chib"])
def test_documents_whose_tokens_cannot_be_visited_are_refused(method):
    topics = np.random.default_rng(0).random((3, 25)) + 0.1
    for factor in (1e9, 1e20):
        with pytest.raises(ValueError, match=f"tokens, but method='{method}' takes at most 100*00"):
            held_out_log_likelihood(topics, factor * counts(), doc_topic_prior=0.1, method=method)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_that_are_no_int64_are_split_in_two(dtype):
    X = dtype(1e20) * counts(dtype)
    observed, held_out = document_completion_split(X)
    np.testing.assert_array_equal((observed + held_out).toarray(), X)
    assert observed.data.min() > 0.0 and held_out.data.min() > 0.0
    np.testing.assert_allclose(observed.toarray(), 0.5 * X, rtol=1e-6)
