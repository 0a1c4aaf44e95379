"""The mixture has the updates of the textbook, and its bound is that of an enumeration."""

import itertools
import re
from contextlib import suppress

import numpy as np
import pytest
from estimators._registry import refused
from scipy.special import logsumexp, softmax, xlogy
from scipy.stats import multivariate_normal, norm

from skvt import AnnealedFactorialMixture, CAVIGaussianMixture
from skvt.expfam import Normal
from skvt.temperature import (
    ConstantTemperature,
    LinearAnnealing,
    LocalTempering,
    VariationalTempering,
)

WEIGHTS = np.array([0.1, 0.2, 0.7])


def three_means(seed=0, n=1000):
    """Rows around the means -5, 0 and 5, (n, 1)."""
    rng = np.random.default_rng(seed)
    return rng.choice([-5.0, 0.0, 5.0], size=(n, 1), p=WEIGHTS) + rng.standard_normal((n, 1))


def few(seed=0, n=6, D=1):
    rng = np.random.default_rng(seed)
    return 2.0 * rng.choice([-1.0, 1.0], size=(n, 1)) + rng.standard_normal((n, D))


def fitted(X, K=2, **settings):
    settings = {"noise_variance": 0.7, "prior_variance": 3.0, "random_state": 0} | settings
    return CAVIGaussianMixture(K, **settings).fit(X)


# -------------------------------------------------------------------------------- the updates
def textbook(X, m, v, weights, noise, prior, n_passes):
    """The means, variances and assignments of algorithm 2 of BKM17, one number at a time."""
    (N, D), K = X.shape, len(m)
    m, v, phi = m.copy(), v.copy(), np.empty((N, K))
    for _ in range(n_passes):
        for i in range(N):
            for k in range(K):
                exponent = (X[i] @ m[k] - 0.5 * (D * v[k] + m[k] @ m[k])) / noise
                phi[i, k] = np.log(weights[k]) + exponent
            phi[i] = softmax(phi[i])
        for k in range(K):
            v[k] = 1.0 / (1.0 / prior + phi[:, k].sum() / noise)
            m[k] = v[k] * (phi[:, k] @ X) / noise
    return m, v, phi


@pytest.mark.parametrize("D", [1, 3])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_passes_are_those_of_the_textbook(D, weights):
    X = np.concatenate([few(seed, n=20, D=D) + 3.0 * seed for seed in range(3)])
    settings = {"weights": weights, "tol": 0.0, "warm_start": True}
    # After these passes the components keep their order.
    mixture = fitted(X, 3, max_iter=3, **settings)
    m, v = mixture.means_, mixture.mean_variances_[:, 0]
    mixture.set_params(max_iter=4).fit(X)
    w = np.full(3, 1.0 / 3.0) if weights is None else weights
    m, v, phi = textbook(X, m, v, w, 0.7, 3.0, 4)
    np.testing.assert_allclose(mixture.means_, m, rtol=1e-9)
    np.testing.assert_allclose(mixture.mean_variances_, np.tile(v[:, None], D), rtol=1e-9)
    # The assignments that are shown are those under the last means.
    _, _, phi = textbook(X, m, v, w, 0.7, 3.0, 1)
    np.testing.assert_allclose(mixture.predict_proba(X), phi, atol=1e-9)
    assert mixture.n_iter_ == 3 + 4


# ----------------------------------------------------------------------------------- the bound
def enumerated(mixture, X, weights, noise, prior):
    """The bound is a sum over all assignments of integrals over the means in closed form."""
    q = mixture.posterior_.blocks
    m, v, phi = q["means"].mean(), q["means"].var(), q["assignments"].mean()
    (N, D), K, total = X.shape, len(m), 0.0
    for z in itertools.product(range(K), repeat=N):
        chance = np.prod([phi[n, k] for n, k in enumerate(z)])
        if chance == 0.0:
            continue
        joint = -np.log(chance)
        for n, k in enumerate(z):
            square = ((X[n] - m[k]) ** 2 + v[k]).sum()
            joint += np.log(weights[k]) - 0.5 * (D * np.log(2 * np.pi * noise) + square / noise)
        total += chance * joint
    for k in range(K):
        log_prior = -0.5 * (D * np.log(2 * np.pi * prior) + (m[k] ** 2 + v[k]).sum() / prior)
        total += log_prior + 0.5 * (np.log(2 * np.pi * v[k]) + 1.0).sum()
    return total


def exact_evidence(X, weights, noise, prior):
    """log p(X): a sum over all assignments, in each of which rows are jointly Gaussian."""
    (N, D), terms = X.shape, []
    for z in itertools.product(range(len(weights)), repeat=N):
        same = np.equal.outer(z, z)
        joint = multivariate_normal(np.zeros(N), noise * np.eye(N) + prior * same)
        terms.append(np.log(weights[list(z)]).sum() + sum(joint.logpdf(X[:, d]) for d in range(D)))
    return logsumexp(terms)


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("max_iter", [1, 200])
@pytest.mark.parametrize("weights", [None, np.array([0.3, 0.7])])
def test_the_bound_is_the_enumerated_one_and_below_the_evidence(D, max_iter, weights):
    w = np.full(2, 0.5) if weights is None else weights
    for seed in range(2):
        X = few(seed, D=D)
        mixture = fitted(X, weights=weights, max_iter=max_iter, tol=1e-13)
        # The assignments that are shown are the best under the last means.
        expected = enumerated(mixture, X, w, 0.7, 3.0)
        assert mixture.elbo(X) == pytest.approx(expected, rel=1e-12)
        assert mixture.elbo_ <= expected + 1e-12
        assert expected < exact_evidence(X, w, 0.7, 3.0)
        if max_iter > 1:
            assert mixture.elbo_ == pytest.approx(expected, rel=1e-9)
            # The posterior is a mixture over relabellings, but q is one of them at most.
            assert expected > exact_evidence(X, w, 0.7, 3.0) - 3.0


# ---------------------------------------------------------------------------- the posterior
def test_the_posterior_has_a_block_of_means_and_one_of_assignments():
    X, weights = three_means(n=300), np.arange(300) % 3
    mixture = fitted(X, 3, weights=WEIGHTS).fit(X, sample_weight=weights)
    q, p = mixture.posterior_, mixture.predict_proba(X[weights > 0])
    np.testing.assert_array_equal(q.means.mean(), mixture.means_)
    np.testing.assert_array_equal(q.means.var(), mixture.mean_variances_)
    # Rows of weight 0 have no assignment.
    np.testing.assert_allclose(q.assignments.mean(), p, atol=1e-15)
    entropy = 0.5 * np.log(2 * np.pi * np.e * mixture.mean_variances_).sum() - xlogy(p, p).sum()
    assert q.entropy() == pytest.approx(entropy, rel=1e-10)
    assert re.fullmatch(r"JointPosterior\(means=.*Normal.*assignments=.*Categorical.*\)", repr(q))
    mixture.partial_fit(X[:7])
    assert mixture.posterior_.assignments.mean().shape == (7, 3)


# --------------------------------------------------------------------------- labels and starts
def test_components_go_where_their_weights_are_and_the_bound_never_falls():
    # Coordinate ascent alone would not leave a wrong order of the means.
    X, ends = three_means(), []
    for order in itertools.permutations(range(3)):
        mixture = fitted(X, 3, weights=WEIGHTS[list(order)], n_init=3, noise_variance=1.0)
        ends.append(mixture.elbo_)
        bounds = np.array(mixture.history_["elbo"])
        assert np.all(np.diff(bounds) > -1e-10 * np.abs(bounds[1:]))
        wanted = np.array([-5.0, 0.0, 5.0])[list(order)]
        np.testing.assert_allclose(mixture.means_.ravel(), wanted, atol=0.35)
        np.testing.assert_allclose(mixture.weights_, WEIGHTS[list(order)], rtol=1e-15)
    np.testing.assert_allclose(ends, ends[0], rtol=1e-6)


def test_a_component_without_rows_keeps_the_prior():
    X = np.repeat(few(n=2), 5, axis=0)
    mixture = fitted(X, 4, max_iter=1)
    assert mixture.means_.shape == (4, 1) and mixture.predict_proba(X).shape == (10, 4)
    assert mixture.weights_.sum() == pytest.approx(1.0)
    # All rows are far from the mean of the prior, so that the second component has none.
    alone = fitted(X * 0.0 + 1000.0, 2, init_params="k-means++", noise_variance=0.01)
    np.testing.assert_allclose(alone.mean_variances_[1], 3.0)
    np.testing.assert_allclose(alone.means_[1], 0.0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:1 of 60 rows have NaN only:UserWarning")
def test_missing_values_are_integrated_out():
    X = np.concatenate([few(seed, n=20, D=2) for seed in range(3)])
    gaps = X.copy()
    gaps[::4, 1] = np.nan
    gaps[5] = np.nan
    mixture = fitted(gaps, 2)
    assert mixture.score_samples(gaps)[5] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(mixture.predict_proba(gaps)[5], 0.5)
    N = mixture.predict_proba(gaps).T @ ~np.isnan(gaps)
    np.testing.assert_allclose(mixture.mean_variances_, 1.0 / (1 / 3.0 + N / 0.7), rtol=1e-3)
    whole = np.column_stack([X, np.full(60, np.nan)])
    assert fitted(whole, 2).elbo_ == pytest.approx(fitted(X, 2).elbo_, rel=1e-9)


def test_a_far_origin_costs_no_digits():
    # The prior has its mean at 0, but is so flat that it does not matter.
    X = few(n=200, D=2)
    near = fitted(X, prior_variance=1e20, tol=1e-12)
    far = fitted(X + 2.0**27, prior_variance=1e20, tol=1e-12)
    np.testing.assert_allclose(far.means_ - 2.0**27, near.means_, atol=1e-6)


def test_densities_are_those_of_the_predictive():
    mixture = fitted(three_means(), 3, weights=WEIGHTS, noise_variance=1.3)
    scale = np.sqrt(1.3 + mixture.mean_variances_.ravel())
    x = np.linspace(-9.0, 9.0, 7)
    parts = norm(mixture.means_.ravel(), scale).logpdf(x[:, None])
    np.testing.assert_allclose(
        mixture.score_samples(x[:, None]), logsumexp(parts, b=WEIGHTS, axis=1), rtol=1e-10
    )


# ---------------------------------------------------------------------------------- temperatures
@pytest.mark.parametrize("temperature", [1.5, 4.0])
def test_the_normalised_tempered_bound_is_that_of_a_broader_mixture(temperature):
    # The density p(x, z | mu)^(1/T) / C(T) has weights proportional to w^(1/T), and its noise has
    # T times the variance.
    X, b = three_means(n=200), 1.0 / temperature
    settings = {"init_params": "random", "max_iter": 20, "tol": 0.0}
    hot = fitted(X, 3, weights=WEIGHTS, temperature=ConstantTemperature(temperature), **settings)
    flat = WEIGHTS**b / (WEIGHTS**b).sum()
    broad = fitted(X, 3, weights=flat, noise_variance=0.7 * temperature, **settings)
    log_partition = hot._fitted.model.tempered_log_partition([b])[0]
    np.testing.assert_allclose(hot.means_, broad.means_, rtol=1e-9)
    normalised = np.array(hot.history_["objective"]) - len(X) * log_partition
    np.testing.assert_allclose(normalised, broad.history_["elbo"], rtol=1e-10)


@pytest.mark.quick_cases("Variational")
@pytest.mark.parametrize("policy", [VariationalTempering, LocalTempering])
def test_learned_temperatures_end_at_1_and_the_bound_stays_below_the_evidence(policy):
    b = np.linspace(1.0 / 3.0, 1.0, 9)
    w = np.array([0.3, 0.7])
    X = few()
    settings = {"weights": w, "n_init": 3, "tol": 1e-10, "max_iter": 60}
    mixture = fitted(X, temperature=policy(max_temperature=3.0, replication=1.0), **settings)
    temperatures = np.array(mixture.history_["temperature"])
    assert temperatures[0] > 2.0 and temperatures[-1] == 1.0 and mixture.converged_
    assert np.all(temperatures >= 1.0)
    # With one temperature for all rows, the evidence is a mean over temperatures.
    if policy is VariationalTempering:
        evidences = [exact_evidence(X, w**p / (w**p).sum(), 0.7 / p, 3.0) for p in b]
        assert np.all(np.array(mixture.history_["objective"]) < max(evidences))
    assert mixture.elbo_ < exact_evidence(X, w, 0.7, 3.0)
    assert mixture.elbo(X) == pytest.approx(mixture.elbo_, rel=1e-8)


def three_clusters(seed=0):
    rng = np.random.default_rng(seed)
    clusters = ((-8.0, 100), (0.0, 100), (8.0, 60))
    return np.concatenate([rng.normal(mean, 1.0, (n, 1)) for mean, n in clusters])


@pytest.mark.parametrize("seed", [0, 1])
def test_annealing_leaves_the_poor_optimum_in_which_the_plain_fit_ends(seed):
    X = three_clusters(seed)
    start = {"means_init": [[-1.5], [5.5]], "random_state": seed}
    annealing = LinearAnnealing(initial_temperature=60.0, n_passes=60, replication=1.0)
    plain = CAVIGaussianMixture(2, **start).fit(X)
    annealed = CAVIGaussianMixture(2, temperature=annealing, **start).fit(X)
    np.testing.assert_allclose(np.sort(plain.means_.ravel()), [-4.0, 8.0], atol=1.0)
    np.testing.assert_allclose(np.sort(annealed.means_.ravel()), [-8.0, 3.0], atol=1.0)
    assert annealed.elbo_ > plain.elbo_ + 100.0


@pytest.mark.parametrize("weights", [None, [0.2, 0.8]])
def test_a_fit_begins_at_the_means_given(weights):
    X = three_clusters() + 30.0
    means = np.array([[25.0], [39.0]])
    model = CAVIGaussianMixture(2, means_init=means, weights=weights)._build_model(
        X, np.full(len(X), 2.0)
    )
    start = model.initial(None, None)
    _, lam = model.component.in_data_coordinates(model.natural_parameters(start)[1])
    np.testing.assert_allclose(Normal.mean(lam), means, rtol=1e-12)
    # Each component begins as if it had its share of the rows.
    share = np.array(weights or [0.5, 0.5])
    expected = 1.0 / (1.0 / 100.0 + 2.0 * len(X) * share)
    np.testing.assert_allclose(Normal.variance(lam)[:, 0], expected, rtol=1e-12)
    # Without heat, the rows go to the nearer mean in the first pass.
    one = CAVIGaussianMixture(2, means_init=means, max_iter=1).fit(X)
    near = np.abs(X - 25.0) < np.abs(X - 39.0)
    np.testing.assert_allclose(one.means_.ravel(), [X[near].mean(), X[~near].mean()], atol=0.2)


# --------------------------------------------------------------------------------- illegal input
WEIGHTS_MESSAGE = r"'weights' .* n_components = 3 positive .* sum to 1. Got"
SCALE_MESSAGE = r"{name}.*e-29, 1e\+200\] .* Got {value}\. Scale"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"weights": weights}, WEIGHTS_MESSAGE) for weights in (
            [0.5, 0.5], [0.2, 0.3, 0.4], [0.5, 0.6, -0.1], [0.5, 0.5, 0.0], [np.nan, 0.5, 0.5],
            [[0.2, 0.3, 0.5]],
        )),
        *(({"means_init": means}, r"means_init.*\(3, 1\).*Got") for means in (
            [[0.0]], [0.0, 1.0, 2.0], [[0.0], [0.0], [np.nan]], [[0.0], [0.0], [1e200]],
        )),
        *(({name: float(value)}, SCALE_MESSAGE.format(name=name, value=re.escape(value)))
          for name in ("noise_variance", "prior_variance") for value in ("1e-300", "1e+300")),
        ({"n_components": 30}, "n_components = 30, n_samples = 20"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_illegal_settings_are_refused_with_the_legal_ones(settings, message, method):
    mixture = CAVIGaussianMixture(**({"n_components": 3} | settings))
    with refused(mixture, match=message):
        getattr(mixture, method)(three_means(n=20))


@pytest.mark.parametrize("cls", [CAVIGaussianMixture, AnnealedFactorialMixture])
def test_scales_that_overflow_end_in_an_error_that_changes_nothing(cls):
    X = few(n=12, D=2)
    X[::4, 0] = np.nan
    mixture = cls(2, noise_variance=1e-20, max_iter=2, random_state=0).fit(X)
    before = mixture.elbo_
    with pytest.raises(ValueError, match="Scale the columns"):
        mixture.fit(1e90 * X)
    assert mixture.elbo_ == before
    for scale, noise, prior in itertools.product((1e-80, 1.0, 1e90), *[(1e-200, 1.0, 1e200)] * 2):
        mixture.set_params(noise_variance=noise, prior_variance=prior)
        with suppress(ValueError):  # A warning would fail the test.
            assert np.isfinite(mixture.fit(scale * X).elbo_)


def test_precisions_are_those_of_the_known_variance():
    mixture = CAVIGaussianMixture(3, noise_variance=0.25, random_state=0).fit(np.eye(5))
    np.testing.assert_allclose(mixture.covariances_, [0.25] * 3)
    np.testing.assert_allclose(mixture.precisions_, [4.0] * 3)
    np.testing.assert_allclose(mixture.precisions_cholesky_, [2.0] * 3)
