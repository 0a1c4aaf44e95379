"""Matrices of independent Gaussian columns against the normal distribution of SciPy."""

import numpy as np
import pytest
import scipy.stats

from skvt.expfam._gaussian_columns import GaussianColumns
from skvt.expfam.triangle import pack

K, D = 3, 4
FAMILY = GaussianColumns(K, D)


def members(n, *, shared, seed=0):
    """n natural parameters (n, ...), means (n, K, D) and covariances (n, D, K, K)."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((n, 1 if shared else D, K, K + 2))
    precision = roots @ np.swapaxes(roots, -1, -2)
    mean = rng.standard_normal((n, K, D))
    linear = np.einsum("ndkl,nld->nkd", np.broadcast_to(precision, (n, D, K, K)), mean)
    eta = np.stack([FAMILY.natural(p, h) for p, h in zip(precision, linear, strict=True)])
    return eta, mean, np.broadcast_to(np.linalg.inv(precision), (n, D, K, K))


def columns(mean, covariance):
    return [scipy.stats.multivariate_normal(mean[:, d], covariance[d]) for d in range(D)]


@pytest.mark.parametrize("shared", [True, False])
def test_members_agree_with_scipy_one_by_one_and_side_by_side(shared):
    eta, mean, covariance = members(2, shared=shared)
    x = np.random.default_rng(1).standard_normal((2, K, D))
    variance = np.swapaxes(np.diagonal(covariance, axis1=-2, axis2=-1), -1, -2)
    density = [
        sum(law.logpdf(x[i, :, d]) for d, law in enumerate(columns(mean[i], covariance[i])))
        for i in range(2)
    ]
    entropy = [sum(law.entropy() for law in columns(mean[i], covariance[i])) for i in range(2)]
    for part in (slice(None), 0, 1):
        np.testing.assert_allclose(FAMILY.mean(eta[part]), mean[part], rtol=1e-9)
        np.testing.assert_allclose(FAMILY.variance(eta[part]), variance[part], rtol=1e-9)
        np.testing.assert_allclose(
            FAMILY.log_density(eta[part], x[part]), np.array(density)[part], rtol=1e-10
        )
        np.testing.assert_allclose(FAMILY.entropy(eta[part]), np.array(entropy)[part], rtol=1e-9)


@pytest.mark.parametrize("shared", [True, False])
def test_expectation_is_the_gradient_of_the_normaliser(shared):
    (eta,), _, _ = members(1, shared=shared)
    step = 1e-5 * np.eye(eta.size)
    gradient = (FAMILY.log_normalizer(eta + step) - FAMILY.log_normalizer(eta - step)) / 2e-5
    np.testing.assert_allclose(FAMILY.expectation(eta), gradient, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shared", [True, False])
def test_draws_have_the_moments_of_the_member(shared):
    (eta,), (mean,), (covariance,) = members(1, shared=shared, seed=2)
    n = 20_000
    draws = FAMILY.sample(np.broadcast_to(eta, (n, eta.size)), np.random.default_rng(3))
    error = np.sqrt(FAMILY.variance(eta) / n)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4.5 * error)
    away = (draws - mean).reshape(n, K * D)
    expected = np.zeros((K, D, K, D))
    for d in range(D):
        expected[:, d, :, d] = covariance[d]
    expected = expected.reshape(K * D, K * D)
    spread = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()) / n)
    assert np.all(np.abs(away.T @ away / n - expected) < 5.0 * 2.0**0.5 * spread)


def test_the_natural_parameter_is_the_triangle_and_what_observations_add():
    rng = np.random.default_rng(4)
    z, y = rng.standard_normal(K), rng.standard_normal(D)
    (eta,), (mean,), (covariance,) = members(1, shared=True)
    added = eta + np.append(pack(np.outer(z, z)), np.outer(z, y))
    precision = np.linalg.inv(covariance[0]) + np.outer(z, z)
    linear = np.linalg.inv(covariance[0]) @ mean + np.outer(z, y)
    np.testing.assert_allclose(FAMILY.mean(added), np.linalg.solve(precision, linear), rtol=1e-9)
