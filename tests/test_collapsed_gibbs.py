"""The yardstick of ``benchmarks/bernoulli_mixture.py`` draws from the exact posterior."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import betaln, gammaln

ROOT = Path(__file__).parents[1]


def log_joint(X, z, K, alpha):
    """log p(X, z) with weights and probabilities summed out."""
    counts = np.bincount(z, minlength=K)
    total = gammaln(counts + alpha / K).sum() - K * gammaln(alpha / K)
    total += gammaln(alpha) - gammaln(alpha + len(z))
    for k in range(K):
        ones = X[z == k].sum(axis=0)
        total += (betaln(1 + ones, 1 + counts[k] - ones) - betaln(1, 1)).sum()
    return total


@pytest.mark.slow  # a yardstick of the benchmarks, compiled for this test alone
def test_collapsed_gibbs_sampling_draws_from_the_enumerated_posterior():
    sampler = runpy.run_path(str(ROOT / "benchmarks" / "_collapsed_gibbs.py"))
    K, alpha, n_chains = 3, 1.5, 2000
    X = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 1], [1, 1, 1]])
    draws = [sampler["collapsed_gibbs"](X, K, alpha, 15, seed) for seed in range(n_chains)]
    found = np.bincount(np.array(draws) @ K ** np.arange(4)[::-1], minlength=K**4) / n_chains
    assignments = [np.array(z) for z in itertools.product(range(K), repeat=4)]
    chances = np.exp([log_joint(X, z, K, alpha) for z in assignments])
    chances /= chances.sum()
    error = np.sqrt(chances * (1.0 - chances) / n_chains)
    assert np.all(np.abs(found - chances) < 4.5 * error)
    weights, means = sampler["posterior_means"](X, np.array([0, 0, 2, 0]), K, alpha)
    np.testing.assert_allclose(weights, [3.5 / 5.5, 0.5 / 5.5, 1.5 / 5.5])
    np.testing.assert_allclose(means, [[4 / 5, 2 / 5, 3 / 5], [0.5] * 3, [1 / 3, 2 / 3, 2 / 3]])
