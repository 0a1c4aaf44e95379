"""Beta, Wishart, normal-Wishart and normal-gamma agree with SciPy, also for extreme values."""

import numpy as np
import pytest
import scipy.stats
from scipy.special import betaln, digamma

from skvt.expfam import Beta, MeanPrecision, NormalGamma, NormalWishart, Wishart, triangle
from skvt.expfam._gaussian import join


def covariance(D, seed):
    x = np.random.default_rng(seed).standard_normal((D + 2, D))
    return x.T @ x


def random_parameters(seed, D):
    """m, kappa, nu, W^-1 of a normal-Wishart."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=D), rng.gamma(2.0), D - 1.0 + rng.gamma(3.0), covariance(D, seed)


def random_gamma_parameters(seed, D):
    """m, kappa, a, b of a normal-gamma."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=D), rng.gamma(2.0, size=D), rng.gamma(3.0), rng.gamma(2.0)


# -------------------------------------------------------------------------------- triangles
@pytest.mark.parametrize("D", [1, 2, 5])
def test_a_symmetric_matrix_is_packed_row_by_row(D):
    matrix = np.stack([covariance(D, 0), covariance(D, 1)])
    packed = triangle.pack(matrix)
    rows = [np.concatenate([each[i, i:] for i in range(D)]) for each in matrix]
    np.testing.assert_array_equal(packed, rows)
    np.testing.assert_array_equal(triangle.unpack(packed), np.triu(matrix) + np.triu(matrix, 1).mT)
    assert triangle.dimension(packed.shape[-1]) == D
    x = np.random.default_rng(2).normal(size=(3, D))
    np.testing.assert_allclose(
        triangle.pack_outer(x), [triangle.pack(np.outer(row, row)) for row in x], rtol=1e-15
    )
    precision = covariance(D, 3)
    np.testing.assert_allclose(
        packed @ triangle.pack_statistic(precision),
        [-0.5 * np.trace(each @ precision) for each in matrix],
        rtol=1e-12,
    )


@pytest.mark.parametrize("length", [0, 2, 4, 5, 7])
def test_a_length_that_no_triangle_has_is_refused(length):
    with pytest.raises(ValueError, match="upper triangle"):
        triangle.dimension(length)


# ------------------------------------------------------------------------------------- SciPy
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.3, 4.0), (50.0, 2.0), (1.0, 0.2)])
def test_beta_agrees_with_scipy(a, b):
    eta, twin = Beta.from_standard(a, b), scipy.stats.beta(a, b)
    np.testing.assert_array_equal(eta, [a, b])
    np.testing.assert_allclose(Beta.mean(eta), twin.mean(), rtol=1e-12)
    np.testing.assert_allclose(Beta.variance(eta), twin.var(), rtol=1e-12)
    np.testing.assert_allclose(Beta.entropy(eta), twin.entropy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(Beta.log_normalizer(eta), betaln(a, b), rtol=1e-12, atol=1e-12)
    v = np.linspace(0.01, 0.99, 9)
    np.testing.assert_allclose(Beta.log_density(eta, v), twin.logpdf(v), rtol=1e-11, atol=1e-11)
    assert np.all(Beta.log_density(eta, np.array([-0.1, 1.1])) == -np.inf)


@pytest.mark.parametrize("D", [1, 2, 4])
def test_wishart_agrees_with_scipy(D):
    _, _, nu, scale_inverse = random_parameters(D, D)
    W = np.linalg.inv(scale_inverse)
    twin = scipy.stats.wishart(nu, W)
    eta = Wishart.from_standard(nu, scale_inverse)
    np.testing.assert_allclose(Wishart.mean(eta), np.reshape(twin.mean(), (D, D)), rtol=1e-10)
    np.testing.assert_allclose(Wishart.variance(eta), np.reshape(twin.var(), (D, D)), rtol=1e-10)
    np.testing.assert_allclose(Wishart.entropy(eta), twin.entropy(), rtol=1e-10, atol=1e-10)
    for seed in range(4):
        x = covariance(D, seed + 50)
        np.testing.assert_allclose(Wishart.log_density(eta, x), twin.logpdf(x), rtol=1e-10)


@pytest.mark.parametrize("D", [1, 2, 4])
def test_normal_wishart_is_a_wishart_and_then_a_normal(D):
    m, kappa, nu, scale_inverse = random_parameters(D, D)
    eta = NormalWishart.from_standard(m, kappa, nu, scale_inverse)
    for seed in range(4):
        mean = np.random.default_rng(seed).normal(size=D)
        precision = covariance(D, seed + 50)
        expected = scipy.stats.wishart.logpdf(precision, nu, np.linalg.inv(scale_inverse))
        expected += scipy.stats.multivariate_normal.logpdf(
            mean, m, np.linalg.inv(kappa * precision)
        )
        value = NormalWishart.log_density(eta, MeanPrecision(mean, precision))
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("D", [1, 2, 4])
def test_normal_gamma_is_a_gamma_and_then_normals(D):
    m, kappa, a, b = random_gamma_parameters(D, D)
    eta = NormalGamma.from_standard(m, kappa, a, b)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        mean, precision = rng.normal(size=D), rng.gamma(2.0)
        expected = scipy.stats.gamma.logpdf(precision, a, scale=1.0 / b)
        expected += scipy.stats.norm.logpdf(mean, m, 1.0 / np.sqrt(kappa * precision)).sum()
        value = NormalGamma.log_density(eta, MeanPrecision(mean, precision))
        np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_the_density_of_a_matrix_that_is_no_precision_is_zero():
    no_precisions = np.array(
        [
            [[1.0, 2.0], [2.0, 1.0]],
            [[-1.0, 0.0], [0.0, -1.0]],
            [[1.0, 0.5], [0.1, 1.0]],
            [[0.0, 0.0], [0.0, 1.0]],
            [[np.nan, 0.0], [0.0, 1.0]],
        ]
    )
    wishart = Wishart.from_standard(2.5, covariance(2, 0))
    assert np.all(Wishart.log_density(wishart, no_precisions) == -np.inf)
    normal_wishart = NormalWishart.from_standard(np.zeros(2), 1.0, 2.5, covariance(2, 0))
    assert np.all(
        NormalWishart.log_density(normal_wishart, (np.ones((5, 2)), no_precisions)) == -np.inf
    )
    normal_gamma = NormalGamma.from_standard(np.zeros(2), 1.0, 0.5, 1.0)
    assert np.all(
        NormalGamma.log_density(normal_gamma, (np.ones((3, 2)), np.array([0.0, -1.0, np.nan])))
        == -np.inf
    )


# --------------------------------------------------------------------------- hard numbers
def test_the_units_of_features_do_not_matter():
    rng = np.random.default_rng(0)
    D = 6
    m, kappa, nu, scale_inverse = random_parameters(41, D)
    units = 10.0 ** rng.permutation(np.linspace(-9.0, 9.0, D))
    plain = NormalWishart.from_standard(m, kappa, nu, scale_inverse)
    scaled = NormalWishart.from_standard(
        units * m, kappa, nu, scale_inverse * np.outer(units, units)
    )
    # A contains -(nu / 2) log|W^-1|, and E[Lambda] has the inverse units.
    np.testing.assert_allclose(
        NormalWishart.log_normalizer(scaled),
        NormalWishart.log_normalizer(plain) - nu * np.log(units).sum(),
        rtol=1e-11,
    )
    np.testing.assert_allclose(
        NormalWishart.mean(scaled).precision * np.outer(units, units),
        NormalWishart.mean(plain).precision, rtol=1e-11, atol=1e-12,
    )  # fmt: skip
    value = NormalWishart.sample(plain, rng)
    twin = MeanPrecision(value.mean * units, value.precision / np.outer(units, units))
    # The volume element of (mu, Lambda) changes by prod units^(1 - (D + 1)).
    np.testing.assert_allclose(
        NormalWishart.log_density(scaled, twin),
        NormalWishart.log_density(plain, value) + D * np.log(units).sum(),
        rtol=1e-8,
    )


def test_draws_with_the_fewest_degrees_of_freedom_are_finite_and_positive():
    rng = np.random.default_rng(1)
    n, D = 2000, 3
    eta = np.tile(Wishart.from_standard(D - 1.0 + 1e-3, covariance(D, 0)), (n, 1))
    assert np.all(np.isfinite(Wishart.sample(eta, rng)))
    eta = np.tile(NormalWishart.from_standard(np.ones(D), 0.5, D - 1 + 1e-3, np.eye(D)), (n, 1))
    x = NormalWishart.sample(eta, rng)
    assert np.all(np.isfinite(x.mean))
    assert np.all(np.diagonal(x.precision, axis1=-2, axis2=-1) > 0.0)
    x = NormalGamma.sample(np.tile(NormalGamma.from_standard([1.0], 1.0, 1e-4, 1.0), (n, 1)), rng)
    assert np.all(np.isfinite(x.mean))
    assert np.all(x.precision > 0.0)


def test_draws_of_a_small_shape_have_the_expected_logarithm():
    # A plain gamma draw of this shape is 0 once in a thousand times, and its logarithm -inf.
    n, a = 20_000, 0.01
    eta = np.tile(NormalGamma.from_standard([0.0], 1.0, a, 2.0), (n, 1))
    log_tau = np.log(NormalGamma.sample(eta, np.random.default_rng(2)).precision)
    # Draws do not fall below the smallest normal number, which they reach with probability
    # e^(-708 a). This cuts off an exponential of mean 1 / a.
    cut = np.exp(-708.0 * a) / a
    error = 4.5 * log_tau.std() / np.sqrt(n) + 1.1 * cut
    assert abs(log_tau.mean() - (digamma(a) - np.log(2.0))) < error


def test_moments_that_do_not_exist_are_infinite():
    D = 3
    for nu in (D - 0.5, D + 0.5, D + 1.0):
        variance = NormalWishart.variance(
            NormalWishart.from_standard(np.ones(D), 1.0, nu, np.eye(D))
        )
        assert np.all(variance.mean == np.inf)
        assert np.all(np.isfinite(variance.precision))
    for a in (0.3, 1.0):
        variance = NormalGamma.variance(NormalGamma.from_standard(np.ones(2), 1.0, a, 1.0))
        assert np.all(variance.mean == np.inf)
        assert np.isfinite(variance.precision)


@pytest.mark.parametrize("name", ["log_normalizer", "expectation", "entropy", "mean", "variance"])
def test_a_scale_that_is_not_positive_definite_is_refused(name):
    flat = np.array([[1.0, 1.0], [1.0, 1.0]]) - 1e-3 * np.eye(2)
    good = np.eye(2)
    stacked = np.stack([good, flat])
    with pytest.raises(ValueError, match="positive definite"):
        getattr(Wishart, name)(Wishart.from_standard(5.0, stacked))
    with pytest.raises(ValueError, match="positive definite"):
        getattr(NormalWishart, name)(
            NormalWishart.from_standard(np.ones(2), 1.0, 5.0, np.full((2, 2), np.nan))
        )
    # Here kappa m m' exceeds the sum of squares.
    with pytest.raises(ValueError, match="subtract the mean"):
        getattr(NormalWishart, name)(np.array([5.0, 1.0, 3.0, 3.0, 2.0, 0.0, 2.0]))
    with pytest.raises(ValueError, match="subtract the mean"):
        getattr(NormalGamma, name)(np.array([5.0, 2.0, 3.0, 1.0]))


def test_a_parameter_of_impossible_length_is_refused():
    with pytest.raises(ValueError, match="upper triangle"):
        Wishart.log_normalizer(np.ones(6))
    with pytest.raises(ValueError, match="upper triangle"):
        NormalWishart.log_normalizer(np.ones(5))
    with pytest.raises(ValueError, match="2 \\+ 2 D"):
        NormalGamma.log_normalizer(np.ones(5))


def test_textbook_parameters_broadcast():
    K, D = 4, 3
    m = np.random.default_rng(3).normal(size=(K, D))
    eta = NormalWishart.from_standard(m, 0.1, D, np.eye(D))
    assert eta.shape == (K, 2 + D + D * (D + 1) // 2)
    np.testing.assert_array_equal(
        NormalWishart.to_standard(eta)["degrees_of_freedom"], np.full(K, D)
    )
    eta = Wishart.from_standard(np.full((2, K), 5.0), np.eye(D))
    assert eta.shape == (2, K, 1 + D * (D + 1) // 2)
    # Diagonal covariances have one member for each component and feature.
    eta = NormalGamma.from_standard(m[..., None], 0.1, 1.5, np.ones(D))
    assert eta.shape == (K, D, 4)
    # Spherical covariances have one member for each component.
    eta = NormalGamma.from_standard(m, 0.1, 1.5, 1.0)
    assert eta.shape == (K, 2 + 2 * D)
    assert Beta.from_standard(np.ones(K), 2.0).shape == (K, 2)


def test_parameters_of_single_precision_are_joined_in_double():
    single = np.float32([[0.1, 0.2, 0.3]])
    joined = join(single, single[:, :1])
    assert joined.dtype == np.float64
    np.testing.assert_array_equal(joined, np.float64(single[:, [0, 1, 2, 0]]))
