"""Binary rows follow a mixture of Bernoulli distributions."""

import numpy as np
import pytest
from scipy.special import betaln

from skvt.datasets import make_bernoulli_mixture


def test_the_default_setting_uses_the_expected_number_of_components():
    used = []
    for seed in range(20):
        X, labels, weights, means = make_bernoulli_mixture(random_state=seed)
        assert X.shape == (1000, 100) and set(np.unique(X)) == {0, 1}
        assert means.shape == (100, 100) and weights.sum() == pytest.approx(1.0)
        used.append(np.unique(labels).size)
    # A component with the weight w ~ Beta(0.2, 19.8) has no row with probability E[(1 - w)^1000].
    empty = np.exp(betaln(0.2, 1019.8) - betaln(0.2, 19.8))
    error = np.std(used, ddof=1) / np.sqrt(20)
    assert abs(np.mean(used) - 100 * (1.0 - empty)) < 4.5 * error


def test_rows_are_drawn_by_weights_and_means():
    truth = make_bernoulli_mixture(
        50_000, n_features=4, n_components=3, weight_concentration=9.0, random_state=0
    )
    shares = np.bincount(truth.labels, minlength=3) / 50_000
    error = np.sqrt(truth.weights * (1.0 - truth.weights) / 50_000)
    assert np.all(np.abs(shares - truth.weights) < 4.5 * error)
    for k in range(3):
        part, p = truth.X[truth.labels == k], truth.means[k]
        error = np.sqrt(p * (1.0 - p) / len(part))
        assert np.all(np.abs(part.mean(axis=0) - p) < 4.5 * error)


def test_means_follow_the_beta_prior():
    means = make_bernoulli_mixture(1, n_components=4000, feature_prior=(2.0, 6.0)).means
    assert means.mean() == pytest.approx(0.25, abs=0.005)
    assert means.var() == pytest.approx(0.25 * 0.75 / 9.0, rel=0.03)
