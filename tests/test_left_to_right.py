"""The left-to-right yardstick of ``benchmarks/time_to_quality.py``, against enumeration."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

ROOT = Path(__file__).parents[1]


def log_probability(words, beta, alpha):
    """log sum_z p(z | alpha) prod_n beta_{z_n w_n}, ``beta`` (K, V)."""
    terms = []
    for z in itertools.product(range(alpha.size), repeat=len(words)):
        counts = np.bincount(z, minlength=alpha.size)
        log_prior = gammaln(alpha.sum()) - gammaln(alpha.sum() + len(words))
        log_prior += (gammaln(alpha + counts) - gammaln(alpha)).sum()
        terms.append(log_prior + np.log(beta[list(z), words]).sum())
    return logsumexp(terms)


@pytest.fixture
def yardstick(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return runpy.run_path(str(ROOT / "benchmarks" / "_left_to_right.py"))


@pytest.mark.slow  # a yardstick of the benchmarks, compiled for this test alone
def test_left_to_right_has_the_enumerated_probability_as_its_mean(yardstick):
    topics = np.array([[8.0, 1.0, 1.0, 2.0], [0.1, 3.0, 0.1, 0.1], [1.0, 1.0, 9.0, 0.3]])
    beta, alpha = topics / topics.sum(axis=1, keepdims=True), np.array([0.1, 0.4, 0.2])
    documents, n = [[3], [0, 1, 2], [0, 0, 1, 2, 2, 3, 1]], 50_000
    exact = np.array([log_probability(words, beta, alpha) for words in documents])
    for n_particles in (1, 3):
        estimates = yardstick["left_to_right"](n * documents, topics, alpha, n_particles, 0)
        ratio = np.exp(estimates.reshape(n, -1) - exact)
        error = ratio.std(axis=0) / n**0.5
        assert np.all(error < 0.01)  # so that a bias of a twentieth is seen
        assert np.all(np.abs(ratio.mean(axis=0) - 1.0) < 3.5 * error + 1e-12)
