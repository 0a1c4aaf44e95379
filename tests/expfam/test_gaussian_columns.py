"""Matrices of independent Gaussian columns agree with the normal distribution of SciPy."""

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
def test_members_agree_with_scipy(shared):
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


def test_observations_add_to_the_natural_parameter():
    rng = np.random.default_rng(4)
    z, y = rng.standard_normal(K), rng.standard_normal(D)
    (eta,), (mean,), (covariance,) = members(1, shared=True)
    added = eta + np.append(pack(np.outer(z, z)), np.outer(z, y))
    precision = np.linalg.inv(covariance[0]) + np.outer(z, z)
    linear = np.linalg.inv(covariance[0]) @ mean + np.outer(z, y)
    np.testing.assert_allclose(FAMILY.mean(added), np.linalg.solve(precision, linear), rtol=1e-9)
