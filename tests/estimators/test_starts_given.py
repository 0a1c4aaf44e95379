"""Mixtures and topic models begin where the user says."""

from functools import partial

import numpy as np
import pytest

from skvt import MemoizedDPGMM, MemoizedDPMixture, MemoizedHDP, StructuredLDA, TemperedLDA
from skvt.datasets import make_topic_corpus
from skvt.fitting import read_rows
from skvt.temperature import LinearAnnealing

rng = np.random.default_rng(0)
LABELS = rng.integers(3, size=150)
X = np.array([[-4.0, 0.0], [0.0, 0.0], [4.0, 0.0]])[LABELS] + rng.standard_normal((150, 2))
WEIGHTS = rng.uniform(0.5, 2.0, 150)


def begun(mixture, weights=None):
    """Statistics that a fit begins with."""
    kept = np.ones(150) if weights is None else weights
    rows = read_rows(mixture, X, None, reset=True)
    return mixture._build_model(rows.X, kept).start.arrays


@pytest.mark.parametrize(
    "make", [partial(MemoizedDPGMM, covariance_type="diag"), MemoizedDPMixture]
)
def test_a_fit_begins_with_the_labels_given(make):
    # Labels are numbers, and components have their ascending order.
    counts, sums = begun(make(labels_init=np.array([2.0, 5.0, 9.0])[LABELS]), WEIGHTS)
    np.testing.assert_allclose(counts, np.bincount(LABELS, WEIGHTS))
    center = np.average(X, axis=0, weights=WEIGHTS)
    first = [(WEIGHTS[:, None] * (X - center))[LABELS == k].sum(axis=0) for k in range(3)]
    np.testing.assert_allclose(sums[:, 2:4], first)
    mixture = make(labels_init=LABELS, moves=(), max_iter=1, tol=0.0).fit(X)
    assert mixture.n_components_ == 3
    # Rows without a label begin in the component that explains them best.
    some = np.where(np.arange(150) % 3 == 0, LABELS, -1)
    counts, _ = begun(make(labels_init=some))
    assert counts.sum() == pytest.approx(150.0)
    np.testing.assert_allclose(counts, np.bincount(LABELS), atol=12.0)
    assert np.all(counts > np.bincount(LABELS[::3]) + 15.0)


def test_a_fit_begins_with_the_means_given():
    means = np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 0.0], [90.0, 90.0]])
    priors = {"full": [[2.0, 1.3], [1.3, 1.0]], "diag": [1.0, 10.0], "spherical": 3.0}
    apart = X[:, None] - means
    for kind, prior in priors.items():
        inverse = np.linalg.inv(prior if kind == "full" else np.diag(np.broadcast_to(prior, 2)))
        nearest = np.einsum("nkd,de,nke->nk", apart, inverse, apart).argmin(axis=1)
        mixture = MemoizedDPGMM(4, means_init=means, covariance_type=kind, covariance_prior=prior)
        np.testing.assert_array_equal(begun(mixture)[0], np.bincount(nearest, minlength=4))
    mixture = MemoizedDPGMM(3, means_init=means[:3], covariance_type="spherical", moves=()).fit(X)
    found = mixture.means_[np.argsort(mixture.means_[:, 0])]
    np.testing.assert_allclose(found[:, 0], [-4.0, 0.0, 4.0], atol=0.6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"labels_init": LABELS[:-1]}, r"'labels_init' .* \(n_samples,\) = \(150,\)"),
        ({"labels_init": LABELS * 0.5}, "'labels_init'"),
        ({"labels_init": np.where(LABELS > 0, LABELS, np.nan)}, "-1 where the label is not known"),
        ({"labels_init": np.full(150, -1)}, "At least one label must be known"),
        ({"labels_init": LABELS - 2}, "'labels_init'"),
        ({"labels_init": LABELS, "max_components": 2}, r"\[number of labels, inf\) = \[3, inf\)"),
        ({"means_init": np.zeros((3, 2))}, r"'means_init' .* = \(1, 2\)"),
        ({"means_init": np.full((1, 2), np.nan)}, "'means_init'"),
        ({"means_init": X[:1], "labels_init": LABELS}, "'means_init' .* with 'labels_init'"),
        ({"means_init": X[:1], "mean_type": "zero"}, "'means_init' .* with mean_type='zero'"),
    ],
)
def test_starts_that_do_not_fit_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        MemoizedDPGMM(**parameters).fit(X)


# --------------------------------------------------------------------------------- topics
DRAWN = make_topic_corpus(300, n_components=5, n_features=120, mean_length=40.0, random_state=0)
TOPICS = DRAWN.topics
every_topic_model = pytest.mark.parametrize(
    "make", [TemperedLDA, StructuredLDA, MemoizedHDP], ids=lambda cls: cls.__name__
)


def distances(components):
    """Total variation of each topic of the truth from the component of the same number."""
    found = components / components.sum(axis=1, keepdims=True)
    return 0.5 * np.abs(found - TOPICS).sum(axis=1)


@every_topic_model
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_fit_begins_with_the_topics_given(make, method):
    # Only the proportions within a row matter.
    scales = np.array([[1.0], [30.0], [0.1], [2.0], [500.0]])
    model = make(5, components_init=scales * TOPICS, moves=(), random_state=0)
    if make is not MemoizedHDP:
        # The default heats fits of such sparse topics, unless topics are given.
        model.set_params(batch_size=100, topic_word_prior=0.02, max_iter=3)
    getattr(model, method)(DRAWN.X)
    places = model.topic_ids_ if make is MemoizedHDP else np.arange(5)
    assert distances(model.components_[np.argsort(places)]).max() < 0.2
    assert max(model.history_["temperature"]) == 1.0


def test_topics_given_to_a_stream_stand_for_all_of_it():
    X = np.zeros((20, 120))
    X[:, :60] = DRAWN.X[:20, :60].toarray()
    settings = {"topic_word_prior": 0.1, "learning_offset": 4.0, "learning_decay": 0.5}
    model = TemperedLDA(5, components_init=3.0 * TOPICS, total_samples=1e4, **settings)
    model.partial_fit(X)
    tokens = X.sum() / 20 * 1e4
    # The first step forgets half of the counts of words that do not occur.
    expected = 0.1 + 0.5 * TOPICS[:, 60:] * tokens / 5
    np.testing.assert_allclose(model.components_[:, 60:], expected, rtol=1e-9)


def test_a_policy_heats_topics_that_are_given():
    policy = LinearAnnealing(initial_temperature=2.0)
    for make in (TemperedLDA, StructuredLDA):
        model = make(5, components_init=TOPICS, temperature=policy, max_iter=3).fit(DRAWN.X)
        assert max(model.history_["temperature"]) > 1.2


@every_topic_model
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TOPICS[:4], r"\(5, 120\) .* shape \(4, 120\) instead; pass a row for each topic"),
        (np.where(np.eye(5, 120) == 1.0, -0.5, TOPICS), r"\[0, 1e\+30\].* Got -0\.5 in row 0"),
        (np.where(np.eye(5, 120, -3) == 1.0, np.nan, TOPICS), "Got nan in row 3"),
        (TOPICS * (np.arange(5) != 2)[:, None], "The sum of row 2 is 0; leave this topic out"),
        ([["a"] * 120] * 5, "a positive number in each row. Got"),
    ],
)
def test_topics_that_do_not_fit_are_refused(make, given, message):
    model = make(5, components_init=given)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="'components_init'.*" + message):
            method(DRAWN.X)
        assert not hasattr(model, "components_") and not hasattr(model, "n_iter_")
