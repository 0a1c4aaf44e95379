"""The functions of every family of distributions agree with one another."""

from functools import partial

import numpy as np
import pytest
import scipy.stats

from skvt.expfam import (
    Beta,
    Categorical,
    Dirichlet,
    DirichletColumns,
    Gamma,
    Normal,
    NormalGamma,
    NormalWishart,
    Wishart,
    kl_divergence,
)
from skvt.expfam._gaussian_columns import GaussianColumns
from skvt.posterior import Posterior


def covariance(D, seed):
    """A covariance matrix with correlations and different scales."""
    x = np.random.default_rng(seed).standard_normal((D + 3, D)) * np.linspace(0.5, 2.0, D)
    return x.T @ x


def wishart(D, nu, seed=0):
    return Wishart.from_standard(nu, covariance(D, seed))


def normal_wishart(D, nu, kappa, seed=0):
    m = np.random.default_rng(seed + 100).normal(0.5, 1.5, size=D)
    return NormalWishart.from_standard(m, kappa, nu, covariance(D, seed))


def gaussian_columns(seed=0):
    """Three columns of two correlated variables each, with their own precisions."""
    precision = np.stack([np.linalg.inv(covariance(2, seed + d)) for d in range(3)])
    return COLUMNS.natural(precision, np.random.default_rng(seed).normal(size=(2, 3)))


def normal_gamma(a, b, kappa, seed=0):
    m = np.random.default_rng(seed + 100).normal(0.5, 1.5, size=len(kappa))
    return NormalGamma.from_standard(m, kappa, a, b)


COLUMNS = GaussianColumns(2, 3)
# The draws of these members have light tails, so that sample moments of their squares exist.
MODERATE = {
    "Dirichlet": (Dirichlet, np.array([1.5, 0.8, 4.0])),
    "DirichletColumns": (DirichletColumns((3, 2)), np.array([1.5, 0.8, 4.0, 2.0, 0.9])),
    "Beta": (Beta, np.array([0.9, 3.5])), "Categorical": (Categorical, np.log([0.2, 0.5, 0.3])),
    "Gamma": (Gamma, np.array([3.5, 0.6])), "Normal": (Normal, Normal.from_standard(1.5, 0.4)),
    "GaussianColumns": (COLUMNS, gaussian_columns()),
    "Wishart 1": (Wishart, wishart(1, 7.0)), "Wishart 3": (Wishart, wishart(3, 8.5)),
    "NormalWishart 1": (NormalWishart, normal_wishart(1, 12.0, 0.7)),
    "NormalWishart 3": (NormalWishart, normal_wishart(3, 14.5, 2.5)),
    "NormalGamma 1": (NormalGamma, normal_gamma(6.0, 2.0, [0.4])),
    "NormalGamma 3": (NormalGamma, normal_gamma(7.5, 0.8, [0.4, 3.0, 1.0])),
}  # fmt: skip
# Other members of the same families, for divergences.
OTHERS = {
    "Dirichlet": np.array([0.7, 2.0, 1.0]),
    "DirichletColumns": np.array([0.7, 2.0, 1.0, 0.4, 1.2]), "Beta": np.array([2.0, 1.1]),
    "Categorical": np.log([0.6, 0.1, 0.3]), "Gamma": np.array([1.2, 2.0]),
    "Normal": Normal.from_standard(-0.7, 2.5), "GaussianColumns": gaussian_columns(seed=1),
    "Wishart 1": wishart(1, 5.0, seed=1),
    "Wishart 3": wishart(3, 4.5, seed=1), "NormalWishart 1": normal_wishart(1, 9.0, 2.0, seed=1),
    "NormalWishart 3": normal_wishart(3, 11.0, 0.9, seed=1),
    "NormalGamma 1": normal_gamma(4.0, 3.0, [1.4], seed=1),
    "NormalGamma 3": normal_gamma(5.0, 1.5, [1.0, 0.6, 2.0], seed=1),
}  # fmt: skip
MEMBERS = MODERATE | {
    "Dirichlet, flat": (Dirichlet, np.ones(4)),
    "Dirichlet, sparse": (Dirichlet, np.array([0.01, 0.02, 0.05])),
    "Dirichlet, peaked": (Dirichlet, np.array([300.0, 2.0, 15.0, 0.7])),
    "Dirichlet, one word among many": (Dirichlet, np.append(np.full(50, 0.1), 40.0)),
    "Dirichlet, two": (Dirichlet, np.array([0.3, 4.0])),
    "Beta, sparse": (Beta, np.array([1.0, 0.02])),
    "Categorical, nearly certain": (Categorical, np.log([1e-6, 1e-3, 1.0 - 1e-6 - 1e-3])),
    "Normal, nearly known": (Normal, Normal.from_standard(-40.0, 1e-6)),
    "Gamma, few events": (Gamma, np.array([0.03, 1e-3])),
    "Gamma, many": (Gamma, np.array([3e3, 5e3])),
    "Wishart, few degrees of freedom": (Wishart, wishart(4, 3.05)),
    "Wishart, many": (Wishart, wishart(5, 2000.0)),
    "NormalWishart, few degrees of freedom": (NormalWishart, normal_wishart(4, 3.05, 1e-2)),
    "NormalWishart, many": (NormalWishart, normal_wishart(5, 2000.0, 900.0)),
    "NormalGamma, few degrees of freedom": (NormalGamma, normal_gamma(0.03, 1e-3, [1e-2, 3.0])),
    "NormalGamma, many": (NormalGamma, normal_gamma(3e3, 5e3, [10.0, 900.0])),
}
each_member = pytest.mark.parametrize(("family", "eta"), MEMBERS.values(), ids=MEMBERS.keys())
each_moderate = pytest.mark.parametrize(("family", "eta"), MODERATE.values(), ids=MODERATE.keys())
each_pair = pytest.mark.parametrize(
    ("family", "q", "p"),
    [(*MODERATE[name], OTHERS[name]) for name in MODERATE],
    ids=MODERATE.keys(),
)


def fields(value):
    """The arrays of a value: of its fields, or the only one."""
    return value if isinstance(value, tuple) else (value,)


def take(value, index):
    """The part of a value that belongs to these members."""
    if isinstance(value, tuple):
        return type(value)(*(field[index] for field in value))
    return value[index]


def draws(family, eta, n, seed=0):
    return family.sample(np.broadcast_to(eta, (n, *eta.shape)), np.random.default_rng(seed))


@each_member
def test_the_gradient_of_the_log_normalizer_is_the_expectation(family, eta):
    def difference(d, length):
        step = np.zeros(eta.size)
        step[d] = length
        return (family.log_normalizer(eta + step) - family.log_normalizer(eta - step)) / length / 2

    for d in range(eta.size):
        length = 1e-5 * abs(eta[d])
        # The difference is extrapolated, because A is strongly curved where W^-1 is small.
        slope = (4.0 * difference(d, 0.5 * length) - difference(d, length)) / 3.0
        np.testing.assert_allclose(family.expectation(eta)[d], slope, rtol=1e-5, atol=1e-6)


TWINS = {
    "Gamma": scipy.stats.gamma(3.5, scale=1.0 / 0.6),
    "Normal": scipy.stats.norm(1.5, 0.4**0.5),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_density_of_one_variable_is_that_of_scipy(name):
    family, eta = MODERATE[name]
    x = draws(family, eta, 20)
    np.testing.assert_allclose(
        family.log_density(np.tile(eta, (20, 1)), x), TWINS[name].logpdf(x), rtol=1e-10, atol=1e-12
    )


def test_the_density_of_an_indicator_is_its_probability():
    probabilities = np.array([0.2, 0.5, 0.3])
    density = Categorical.log_density(np.log(3.0 * probabilities), np.eye(3))
    np.testing.assert_allclose(density, np.log(probabilities), rtol=1e-12)


def test_the_density_of_columns_is_the_product_of_their_densities():
    family, eta = MODERATE["DirichletColumns"]
    x = draws(family, eta, 1)[0]
    expected = sum(Dirichlet.log_density(eta[part], x[part]) for part in (slice(3), slice(3, 5)))
    np.testing.assert_allclose(family.log_density(eta, x), expected, rtol=1e-11)


@each_pair
def test_functions_are_vectorised_over_leading_axes(family, q, p):
    weight = np.linspace(0.0, 1.0, 6).reshape(3, 2, 1)
    eta = (1.0 - weight) * q + weight * p
    x = family.sample(eta, np.random.default_rng(0))
    log_density = family.log_density(eta, x)
    assert log_density.shape == (3, 2)
    for index in np.ndindex(3, 2):
        np.testing.assert_allclose(
            log_density[index], family.log_density(eta[index], take(x, index)), rtol=1e-11
        )
        for field, single in zip(
            fields(x), fields(family.sample(eta[index], np.random.default_rng(0))), strict=True
        ):
            assert field.shape == (3, 2, *np.shape(single))
    for name in ("log_normalizer", "expectation", "entropy", "mean", "variance"):
        function = getattr(family, name)
        whole = function(eta)
        for index in np.ndindex(3, 2):
            for part, single in zip(
                fields(take(whole, index)), fields(function(eta[index])), strict=True
            ):
                assert np.shape(part) == np.shape(single)
                np.testing.assert_allclose(part, single, rtol=1e-11)
    whole = family.to_standard(eta)
    for index in np.ndindex(3, 2):
        single = family.to_standard(eta[index])
        assert set(single) == set(whole)
        for name, part in whole.items():
            np.testing.assert_allclose(part[index], single[name], rtol=1e-11)


@each_moderate
def test_computations_are_in_double_precision(family, eta):
    single = eta.astype(np.float32)
    for name in ("log_normalizer", "expectation", "entropy", "variance"):
        results = fields(getattr(family, name)(single))
        expected = fields(getattr(family, name)(single.astype(np.float64)))
        for result, reference in zip(results, expected, strict=True):
            assert result.dtype == np.float64
            np.testing.assert_array_equal(result, reference)


@each_pair
def test_the_divergence_sums_over_members_and_broadcasts_the_prior(family, q, p):
    weight = np.linspace(0.0, 0.9, 4)[:, None]
    eta = (1.0 - weight) * q + weight * p
    one_by_one = sum(kl_divergence(family, row, p) for row in eta)
    np.testing.assert_allclose(kl_divergence(family, eta, p), one_by_one, rtol=1e-11)
    np.testing.assert_allclose(kl_divergence(family, eta, p[None, :]), one_by_one, rtol=1e-11)


@each_pair
def test_the_divergence_is_the_mean_log_ratio_of_densities(family, q, p):
    x = draws(family, q, 50_000, seed=1)
    ratio = family.log_density(q, x) - family.log_density(p, x)
    error = 4.5 * ratio.std() / np.sqrt(ratio.size)
    assert abs(kl_divergence(family, q, p) - ratio.mean()) < error


@each_moderate
def test_the_entropy_is_minus_the_mean_log_density_of_draws(family, eta):
    value = -family.log_density(eta, draws(family, eta, 50_000, seed=2))
    error = 4.5 * value.std() / np.sqrt(value.size)
    assert abs(family.entropy(eta) - value.mean()) < error


@each_moderate
def test_draws_have_the_mean_and_the_variance_of_the_member(family, eta):
    n = 40_000
    x = draws(family, eta, n, seed=3)
    checks = []
    for field, mean, variance in zip(
        fields(x), fields(family.mean(eta)), fields(family.variance(eta)), strict=True
    ):
        assert field.shape == (n, *np.shape(mean))
        checks += [(field, mean), ((field - mean) ** 2, variance)]
    for moments, expected in checks:
        error = 4.5 * moments.std(axis=0) / np.sqrt(len(moments))
        assert np.all(np.abs(moments.mean(axis=0) - expected) < error)


@each_member
def test_textbook_parameters_are_converted_there_and_back(family, eta):
    standard = family.to_standard(eta)
    if hasattr(family, "from_standard"):
        back = family.from_standard(**standard)
    elif family is COLUMNS:
        precision = np.linalg.inv(standard["covariance"])
        back = family.natural(precision, np.einsum("dkl,ld->kd", precision, standard["mean"]))
    else:
        back = standard["concentration"]
    np.testing.assert_allclose(back, eta, rtol=1e-11, atol=1e-14)


@each_pair
def test_a_posterior_offers_draws_moments_entropy_and_log_prob(family, q, p):
    eta = np.stack([q, p, 0.5 * (q + p)])
    posterior = Posterior(family, eta)
    x = posterior.sample(5, random_state=0)
    again = posterior.sample(5, random_state=0)
    for field, repeated, mean, variance in zip(
        fields(x), fields(again), fields(posterior.mean()), fields(posterior.var()), strict=True
    ):
        assert field.shape == (5, *mean.shape)
        assert mean.shape == variance.shape
        assert len(mean) == 3
        np.testing.assert_array_equal(field, repeated)
        distinct = 2 if family is Categorical else 5
        assert len(np.unique(field[:, 0].reshape(5, -1)[:, 0])) == distinct
    assert type(x) is type(posterior.mean())
    expected = [
        sum(family.log_density(eta[k], take(take(x, i), k)) for k in range(3)) for i in range(5)
    ]
    np.testing.assert_allclose(posterior.log_prob(x), expected, rtol=1e-11)
    np.testing.assert_allclose(posterior.log_prob(take(x, 0)), expected[0], rtol=1e-11)
    np.testing.assert_allclose(
        posterior.entropy(), sum(family.entropy(row) for row in eta), rtol=1e-11
    )
    assert repr(posterior).startswith(f"Posterior({family.__name__}, members=(3,), ")


# ------------------------------------------------------------------------------------ laws of draws
# About forty p values are computed, and each falls below ALARM for one of 1 / ALARM seeds.
ALARM = 1e-5


def wishart_draws(D, nu, rng, n):
    law = scipy.stats.wishart(nu, np.linalg.inv(covariance(D, 0)))
    return law.rvs(n, random_state=rng).reshape(n, D, D)


def gaussian_draws(mean, precision, rng):
    """One draw for each row of means (n, D) with precisions (n, D, D)."""
    factor = np.swapaxes(np.linalg.cholesky(precision), 1, 2)
    return mean + np.linalg.solve(factor, rng.standard_normal(mean.shape)[..., None])[..., 0]


def normal_wishart_draws(D, nu, kappa, rng, n):
    precision = wishart_draws(D, nu, rng, n)
    mean = np.random.default_rng(100).normal(0.5, 1.5, size=D)
    return gaussian_draws(np.tile(mean, (n, 1)), kappa * precision, rng), precision


def normal_gamma_draws(a, b, kappa, rng, n):
    mean, tau = np.random.default_rng(100).normal(0.5, 1.5, size=len(kappa)), rng.gamma(a, 1 / b, n)
    return rng.normal(mean, 1.0 / np.sqrt(np.array(kappa) * tau[:, None])), tau


def entries(x):
    """Scalars of draws (n, ...): entries, extremes and sums of squares."""
    flat = np.reshape(x, (len(x), -1))
    return [flat[:, 0], flat[:, -1], flat.max(axis=1), (flat**2).sum(axis=1)]


def evaluate_forms(mean, precision):
    """mu' Lambda mu of each draw, where Lambda may be a multiple of the identity."""
    if precision.ndim == 1:
        return precision * (mean**2).sum(axis=1)
    return np.einsum("nd,nde,ne->n", mean, precision, mean)


# Draws by NumPy and SciPy of members with the same textbook parameters.
DRAWN = {
    "Dirichlet": (Dirichlet, [1.5, 0.8, 4.0], lambda rng, n: rng.dirichlet([1.5, 0.8, 4.0], n)),
    "Beta": (Beta, [0.9, 2.5], lambda rng, n: rng.beta(0.9, 2.5, n)),
    "Categorical": (
        Categorical, np.log([0.2, 0.5, 0.3]), lambda rng, n: rng.multinomial(1, [0.2, 0.5, 0.3], n)
    ),
    "Gamma": (Gamma, [3.5, 0.6], lambda rng, n: rng.gamma(3.5, 1.0 / 0.6, n)),
    "Normal": (Normal, Normal.from_standard(0.7, 2.0), lambda rng, n: rng.normal(0.7, 2**0.5, n)),
    "Wishart 1": (Wishart, wishart(1, 3.0), partial(wishart_draws, 1, 3.0)),
    "Wishart 3": (Wishart, wishart(3, 3.2), partial(wishart_draws, 3, 3.2)),
    "NormalWishart 1": (
        NormalWishart, normal_wishart(1, 2.5, 0.4), partial(normal_wishart_draws, 1, 2.5, 0.4)
    ),
    "NormalWishart 3": (
        NormalWishart, normal_wishart(3, 3.2, 0.4), partial(normal_wishart_draws, 3, 3.2, 0.4)
    ),
    "NormalGamma 1": (
        NormalGamma, normal_gamma(1.3, 0.7, [0.4]), partial(normal_gamma_draws, 1.3, 0.7, [0.4])
    ),
    "NormalGamma 3": (
        NormalGamma, normal_gamma(0.6, 0.7, [0.4, 3.0, 1.0]),
        partial(normal_gamma_draws, 0.6, 0.7, [0.4, 3.0, 1.0]),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("family", "eta", "twin"), DRAWN.values(), ids=DRAWN)
def test_draws_follow_the_law_of_scipy(family, eta, twin):
    n = 20_000
    pairs = []
    for x in (draws(family, np.asarray(eta, float), n, seed=4), twin(np.random.default_rng(5), n)):
        scalars = [scalar for field in fields(x) for scalar in entries(field)]
        pairs.append(scalars + ([evaluate_forms(*x)] if isinstance(x, tuple) else []))
    for one, other in zip(*pairs, strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > ALARM


@pytest.mark.parametrize("concentration", [1e-5, 1e-3, 0.05, 0.7, 40.0])
def test_draws_of_small_concentrations_have_the_beta_law_of_each_entry(concentration):
    n, eta = 20_000, concentration * np.array([1.0, 3.0, 0.5])
    rng = np.random.default_rng(6)
    draws = {
        "Dirichlet": Dirichlet.sample(np.broadcast_to(eta, (n, 3)), rng)[:, 0],
        "Beta": Beta.sample(np.broadcast_to([eta[0], eta[1:].sum()], (n, 2)), rng),
    }
    law = scipy.stats.beta(eta[0], eta[1:].sum())
    for x in draws.values():
        # Numbers that are too small, or too close to 1, for their digits are spread at random.
        low, high = law.cdf(1e-290), law.cdf(1.0 - 1e-12)
        u = np.where(x < 1e-290, low * rng.random(n), law.cdf(x))
        u = np.where(x > 1.0 - 1e-12, high + (1.0 - high) * rng.random(n), u)
        assert scipy.stats.kstest(u, "uniform").pvalue > ALARM


@pytest.mark.parametrize("shape", [1e-3, 0.05, 0.7, 2e4])
def test_draws_of_small_shapes_have_the_gamma_law(shape):
    n, rng = 20_000, np.random.default_rng(7)
    x = Gamma.sample(np.broadcast_to([shape, 3.0], (n, 2)), rng)
    law = scipy.stats.gamma(shape, scale=1.0 / 3.0)
    u = np.where(x < 1e-290, law.cdf(1e-290) * rng.random(n), law.cdf(x))
    assert scipy.stats.kstest(u, "uniform").pvalue > ALARM


@pytest.mark.parametrize(
    "family, eta",
    [
        (Beta, [40.0, 1e-3]), (Beta, [1e-3, 40.0]), (Dirichlet, [1e-3, 1e-3, 40.0]),
        (DirichletColumns((2, 2)), [1e-3, 1e-3, 40.0, 1e-3]), (Gamma, [1e-3, 2.0]),
    ],
)  # fmt: skip
def test_draws_next_to_an_end_have_a_finite_density(family, eta):
    posterior = Posterior(family, np.tile(eta, (50, 1)))
    assert np.isfinite(posterior.log_prob(posterior.sample(20, random_state=0))).all()
