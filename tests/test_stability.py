from functools import partial
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvt import MemoizedHDP, TemperedLDA, consensus, covariate_effects
from skvt.datasets import make_topic_corpus
from skvt.metrics import topic_stability

X = make_topic_corpus(120, n_components=3, n_features=20, random_state=0).X
A = np.array([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]])
# A[0] shares the mass .8 with B[2], and A[1] shares .9 with B[0].
B = np.array([[0, 1, 9], [4, 2, 4], [7, 3, 0]])  # These topics are counts.


def test_stability_is_the_shared_mass_of_matched_topics():
    of_a, of_b = topic_stability([A, B], average=None)
    assert_allclose(of_a, [0.8, 0.9], rtol=1e-12)
    assert_allclose(of_b, [0.9, 0.0, 0.8], rtol=1e-12)
    assert topic_stability([A, B]) == pytest.approx((1.7 / 2 + 1.7 / 3) / 2)
    # For three fits, it is the mean over the other two.
    of_a, of_b, _ = topic_stability([A, B, 3.0 * A[::-1]], average=None)
    assert_allclose(of_a, [0.9, 0.95], rtol=1e-12)
    assert_allclose(of_b, [0.9, 0.0, 0.8], rtol=1e-12)


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        ([A], "at least 2 fits. Got 1"), ([A, A[:, :2]], "2, 3 words"),
        ([A, -A], r"smallest entry of fits\[1\] is -0.8"),
        ([A, 0.0 * A], "smallest sum of a topic is 0"),
    ],
)  # fmt: skip
def test_stability_refuses_bad_input(fits, message):
    with pytest.raises(ValueError, match=message):
        topic_stability(fits)


def test_fits_with_the_same_seed_are_no_evidence_of_stability():
    fits = [TemperedLDA(2, max_iter=2, random_state=0).fit(X) for _ in range(2)]
    with pytest.raises(ValueError, match="two fits with the same random_state"):
        topic_stability(fits)
    with pytest.raises(ValueError, match="two fits with the same random_state"):
        covariate_effects(fits, X, X[:, 0])
    with pytest.raises(ValueError, match="at least 2 fits"):
        topic_stability(fits[0])


def test_topics_with_words_in_different_orders_are_not_compared():
    fits = [TemperedLDA(2, max_iter=2, random_state=seed).fit(X) for seed in range(3)]
    words = [f"word{j}" for j in range(20)]
    fits[1].set_words(words)
    assert 0.0 < topic_stability(fits) <= 1.0
    fits[2].set_words(words[:18] + words[:17:-1])
    for compare in (topic_stability, partial(consensus, X=X)):
        with pytest.raises(ValueError, match=r"column 18 is 'word18' in fits\[1\], but 'word19'"):
            compare(fits)


def test_a_consensus_starts_from_the_mean_of_matched_topics():
    fits = [TemperedLDA(3, max_iter=5, random_state=seed).fit(X) for seed in range(3)]
    best = max(fits, key=lambda fit: fit.elbo_)
    mean = np.zeros_like(best.components_)
    for fit in fits:

        def shared(order, topics=fit.components_):
            topics = topics[list(order)] / topics[list(order)].sum(axis=1, keepdims=True)
            own = best.components_ / best.components_.sum(axis=1, keepdims=True)
            return np.minimum(topics, own).sum()

        mean += fit.components_[list(max(permutations(range(3)), key=shared))] / 3
    before = [fit.components_ for fit in fits]
    result = consensus(fits, X, n_passes=2)
    assert_allclose(result.components_init, mean, rtol=1e-12)
    assert result.n_iter_ == 2
    assert set(result.history_["temperature"]) == {1.0}
    for fit, old in zip(fits, before, strict=True):
        assert_array_equal(fit.components_, old)


@pytest.mark.slow
def test_a_consensus_has_as_many_topics_as_the_best_fit():
    fits = [MemoizedHDP(k, moves=(), max_iter=3, random_state=k).fit(X) for k in (2, 4)]
    best = max(fits, key=lambda fit: fit.elbo_)
    assert consensus(fits, X).components_.shape == best.components_.shape


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        ([TemperedLDA()], "Got 1 fits of TemperedLDA"),
        ([TemperedLDA(), MemoizedHDP()], "MemoizedHDP and TemperedLDA"),
        ([A, B], "ndarray"),
    ],
)
def test_a_consensus_refuses_fits_of_different_models(fits, message):
    with pytest.raises(ValueError, match=message):
        consensus(fits, X)
