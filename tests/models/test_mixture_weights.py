"""Laws of mixture weights: by their formulas, by draws and by enumeration."""

import itertools

import numpy as np
import pytest

from skvt.expfam import kl_divergence
from skvt.models._mixture_weights import KnownWeights


def test_known_weights_are_what_they_are():
    w, counts = np.array([0.2, 0.5, 0.3]), np.array([4.0, 0.0, 2.5])
    weights = KnownWeights(w)
    lam = weights.natural_parameters(counts)
    np.testing.assert_array_equal(weights.mean(lam), w)
    np.testing.assert_array_equal(weights.expected_log(lam), np.log(w))
    assert kl_divergence(weights.family, lam, weights.prior()) == 0.0
    assert weights.log_evidence(counts) == pytest.approx(np.log(0.2**4 * 0.3**2.5))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alike", [False, True])
def test_known_weights_know_the_best_order(seed, alike):
    rng = np.random.default_rng(seed)
    w = np.array([0.3, 0.1, 0.3, 0.1, 0.2]) if alike else rng.dirichlet(np.ones(5))
    weights, counts = KnownWeights(w), rng.uniform(0.0, 10.0, 5)
    order = weights.order(counts)
    assert sorted(order) == list(range(5))
    best = max(weights.log_evidence(counts[list(p)]) for p in itertools.permutations(range(5)))
    assert weights.log_evidence(counts[order]) == pytest.approx(best, rel=1e-12)
    # what is in order stays as it is
    np.testing.assert_array_equal(weights.order(counts[order]), np.arange(5))


def test_components_of_equal_weights_stay_where_they_are():
    weights = KnownWeights(np.full(4, 0.25))
    np.testing.assert_array_equal(weights.order(np.array([1.0, 7.0, 3.0, 5.0])), np.arange(4))
