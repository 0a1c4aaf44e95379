"""Families, evidence and fits with one covariance for all components follow their formulas."""

from types import SimpleNamespace

import numpy as np
import pytest
from _engines import Idle, merges, started, sweeps, total_of
from scipy.special import multigammaln
from sklearn.base import clone

from skvt import MemoizedDPGMM
from skvt.expfam import MeanPrecision, NormalWishart, TiedNormalWishart, Wishart, kl_divergence
from skvt.models.mixture import Block, Product, make_gaussian_component
from skvt.models.mixture._seeds import propose_responsibilities
from skvt.moves import Merge
from skvt.moves._base import compute_bound

D, K = 3, 4


def drawn(n=60, missing=0.0, seed=0):
    """Draw rows about K means with one covariance, and their labels."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(D, D)) + 2.0 * np.eye(D)
    z = np.arange(n) % K
    X = rng.normal(scale=6.0, size=(K, D))[z] + rng.normal(size=(n, D)) @ root.T + 5.0
    X[rng.random(X.shape) < missing] = np.nan
    return X, z


def component_of(X, covariance_type="tied"):
    return make_gaussian_component(X, np.ones(len(X)), covariance_type, False)[0]


def members(seed=0):
    """Return a family, and natural parameters of K members that have seen rows."""
    X, z = drawn(seed=seed)
    component = component_of(X)
    sums = np.eye(K)[z].T @ component.features(X)
    return component.family, component.natural_parameters(sums)


# ------------------------------------------------------------------------------ the family
def test_a_family_of_one_member_is_the_normal_wishart():
    family, eta = members()
    one = eta[:1]
    for name in ("log_normalizer", "expectation", "entropy"):
        np.testing.assert_allclose(
            getattr(family, name)(one), getattr(NormalWishart, name)(one), rtol=1e-12
        )
    x = NormalWishart.sample(one, np.random.default_rng(0))
    np.testing.assert_allclose(family.log_density(one, x), NormalWishart.log_density(one, x))


def test_members_that_equal_the_prior_change_nothing():
    family, eta = members()
    more = np.concatenate([eta, family.prior[None], family.prior[None]])
    np.testing.assert_allclose(
        family.precision_marginal(more), family.precision_marginal(eta), rtol=1e-12
    )
    np.testing.assert_allclose(family.expectation(more)[:K], family.expectation(eta), rtol=1e-12)
    total = family.log_normalizer(more).sum() - 2.0 * family.log_normalizer(family.prior)
    assert total == pytest.approx(family.log_normalizer(eta).sum(), rel=1e-12)


def test_draws_have_the_density_the_entropy_and_the_moments():
    family, eta = members()
    rng, n = np.random.default_rng(1), 1200
    draws = [family.sample(eta, rng) for _ in range(n)]
    draws = MeanPrecision(*map(np.array, zip(*draws, strict=True)))
    assert np.ptp(draws.precision, axis=1).max() == 0.0
    density = family.log_density(eta, draws).sum(axis=1)
    error = density.std() / np.sqrt(n)
    assert -density.mean() == pytest.approx(family.entropy(eta).sum(), abs=5.0 * error)
    for name in ("mean", "precision"):
        sample, limit = getattr(draws, name), 5.0 / np.sqrt(n)
        mean, variance = getattr(family.mean(eta), name), getattr(family.variance(eta), name)
        assert np.all(np.abs(sample.mean(axis=0) - mean) < limit * sample.std(axis=0))
        assert np.all(np.abs(sample.var(axis=0) - variance) < 3.0 * limit * sample.var(axis=0))
    # Means with different precisions are no value of the family.
    apart = MeanPrecision(draws.mean[0], draws.precision[0] * np.arange(1, K + 1)[:, None, None])
    assert np.all(family.log_density(eta, apart) == -np.inf)


def test_expectations_are_slopes_of_the_log_normalizer():
    family, eta = members()
    t, step = family.expectation(eta), 1e-6
    for k, e in ((0, 0), (1, 1), (2, 3), (3, 6), (1, 10)):
        change = np.zeros_like(eta)
        change[k, e] = step * max(1.0, abs(eta[k, e]))
        up, down = (family.log_normalizer(eta + s * change).sum() for s in (1.0, -1.0))
        assert (up - down) / (2.0 * change[k, e]) == pytest.approx(t[k, e], rel=1e-5)


@pytest.mark.parametrize("n_members", [3, 50_000])
def test_the_divergence_is_the_sum_over_the_precision_and_all_means(n_members):
    rng = np.random.default_rng(4)
    prior = NormalWishart.from_standard([0.3, -0.2], 0.7, 4.0, [[2.0, 0.5], [0.5, 1.0]])
    family, kappa = TiedNormalWishart(prior), rng.uniform(1.0, 3.0, n_members)
    deviation = rng.normal(size=(n_members, 2))
    freedom, scale = np.full(n_members, 9.0), np.tile([[3.0, 0.1], [0.1, 2.0]], (n_members, 1, 1))
    eta = family.from_standard(np.array([0.3, -0.2]) + deviation, kappa, freedom, scale)
    precisions = [
        Wishart.from_standard(9.0, scale[0]),
        Wishart.from_standard(4.0, [[2, 0.5], [0.5, 1]]),
    ]
    mahalanobis = np.einsum("ki,ij,kj->", deviation, Wishart.mean(precisions[0]), deviation)
    means = np.sum(0.7 / kappa - 1.0 - np.log(0.7 / kappa)) + 0.5 * 0.7 * mahalanobis
    expected = kl_divergence(Wishart, *precisions) + means
    assert kl_divergence(family, eta, prior) == pytest.approx(expected, rel=1e-6)


def test_standard_parameters_go_there_and_back():
    family, eta = members()
    again = family.from_standard(**family.to_standard(eta))
    np.testing.assert_allclose(
        family.with_shared_globals(again), family.with_shared_globals(eta), rtol=1e-9
    )
    np.testing.assert_allclose(family.expectation(again), family.expectation(eta), rtol=1e-9)


# ------------------------------------------------------------------------------ the mixture
def matrix_t(X, z, component):
    """Return the log marginal likelihood of rows with labels, which is a matrix t."""
    q = NormalWishart.to_standard(component.prior)
    nu, n = q["degrees_of_freedom"], len(X)
    same = (z[:, None] == z).astype(float)
    rows = np.eye(n) + same / q["mean_precision"]
    deviation = X - component.center - q["mean"]
    after = q["scale_inverse"] + deviation.T @ np.linalg.solve(rows, deviation)
    return (
        multigammaln(0.5 * (nu + n), D)
        - multigammaln(0.5 * nu, D)
        - 0.5 * n * D * np.log(np.pi)
        - 0.5 * D * np.linalg.slogdet(rows)[1]
        + 0.5 * nu * np.linalg.slogdet(q["scale_inverse"])[1]
        - 0.5 * (nu + n) * np.linalg.slogdet(after)[1]
    )


@pytest.mark.parametrize("labels", [np.zeros(60, int), np.arange(60) % K, np.arange(60)])
def test_the_evidence_of_labelled_rows_is_a_matrix_t_density(labels):
    X, _ = drawn()
    component = component_of(X)
    sums = np.eye(labels.max() + 1)[labels].T @ component.features(X)
    expected = matrix_t(X, labels, component)
    assert component.log_evidence(sums).sum() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("in_product", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_bound_never_falls_and_merges_gain_what_is_predicted(missing, in_product):
    X, _ = drawn(missing=missing)
    component = component_of(X)
    if in_product:
        component = Product((Block("all", component, np.arange(D)),), D, X.dtype)
    model, data, state = started(component, X, 6)
    bounds = sweeps(model, data, state, [Idle()], 8)
    assert np.all(np.diff(bounds) > -1e-9 * abs(bounds[0]))
    # The bound by divergence and energy equals the one by the evidence.
    before = compute_bound(model, state.memos.total())
    assert bounds[-1] == pytest.approx(before, rel=1e-12)
    pairs = list(merges(model, state))
    assert len(pairs) == 15
    for gain, change, _ in pairs:
        assert change == pytest.approx(gain, rel=1e-8, abs=1e-8)
    # Each merge of a pass changes the gains of the next ones.
    fewer = sweeps(model, data, state, [Merge()], 3)
    assert np.all(np.diff([before, *fewer]) > -1e-9 * abs(before))


def test_gains_of_several_merges_of_a_pass_add_up():
    X, _ = drawn(n=80)
    model, data, state = started(component_of(X), X, 12)
    sweeps(model, data, state, [Idle()])
    before = compute_bound(model, state.memos.total())
    record = total_of(Merge().finish(model, state, SimpleNamespace(n_iter=1)))
    assert record.accepted > 1
    assert compute_bound(model, state.memos.total()) - before == pytest.approx(
        record.gain, rel=1e-9
    )


def test_seeds_do_not_share_their_covariance():
    X, _ = drawn()
    proposals = [
        propose_responsibilities(
            component_of(X, kind), X, np.ones(len(X)), 5, "k-means++", np.random.default_rng(0)
        )
        for kind in ("tied", "full")
    ]
    np.testing.assert_array_equal(*proposals)


def test_the_predictive_density_is_the_ratio_of_evidences():
    X, z = drawn()
    component, new = component_of(X), X[:5] + 0.3
    sums = np.eye(K)[z].T @ component.features(X)
    lam = component.with_shared_globals(component.natural_parameters(sums))
    found = component.log_predictive(new, lam)
    for n, k in ((0, 0), (1, 2), (4, 3)):
        with_it = sums.copy()
        with_it[k] += component.features(new)[n]
        ratio = (component.log_evidence(with_it) - component.log_evidence(sums)).sum()
        assert found[n, k] == pytest.approx(ratio, rel=1e-10)


# ------------------------------------------------------------------------------ estimators
def clusters(n=600, n_features=12, n_clusters=6, seed=0):
    rng = np.random.default_rng(seed)
    root, means = rng.normal(size=(2, n_features, n_features))
    z = rng.integers(n_clusters, size=n)
    return (3.0 * means[:n_clusters][z] + rng.normal(size=(n, n_features))) @ root.T


def few():
    return clusters(n=80, n_features=5, n_clusters=3)


@pytest.mark.slow
def test_few_rows_of_many_columns_need_one_covariance():
    X, new = np.split(clusters(n=4000), [240])
    tied, full = (
        MemoizedDPGMM(
            covariance_type=kind, max_components=8, covariance_prior=None, random_state=0
        ).fit(X)
        for kind in ("tied", "full")
    )
    assert tied.n_components_ == 6
    assert tied.score(new) > full.score(new) + 1.0
    assert tied.covariances_.shape == (12, 12)
    np.testing.assert_allclose(tied.precisions_ @ tied.covariances_, np.eye(12), atol=1e-8)
    root = tied.precisions_cholesky_
    np.testing.assert_allclose(root @ root.T, tied.precisions_, rtol=1e-8)


def test_the_posterior_is_in_the_coordinates_of_the_data_and_components_share_the_precision():
    settings = {"n_components": 3, "moves": (), "max_iter": 10, "random_state": 0}
    mixture = MemoizedDPGMM(covariance_type="tied", **settings).fit(few())
    assert mixture.sample(5, 0)[0].shape == (5, 5)
    components = mixture.posterior_.components
    np.testing.assert_allclose(components.mean().mean, mixture.means_, rtol=1e-8)
    draw = components.sample(3, random_state=0)
    assert draw.mean.shape == (3, 3, 5)
    assert np.ptp(draw.precision, axis=1).max() == 0.0
    assert np.isfinite(components.log_prob(draw)).all()


def test_a_tied_covariance_needs_enough_degrees_of_freedom():
    with pytest.raises(ValueError, match="for covariance_type='tied'"):
        MemoizedDPGMM(covariance_type="tied", degrees_of_freedom_prior=5.0).fit(clusters(n=60))


@pytest.mark.slow
def test_tied_mixtures_learn_the_prior_of_means():
    learned = MemoizedDPGMM(covariance_type="tied", max_components=4, random_state=0).fit(few())
    given = clone(learned).set_params(mean_precision_prior=None, mean_prior=None).fit(few())
    # The degrees of freedom of a single covariance are not learned.
    assert learned.degrees_of_freedom_prior_ == given.degrees_of_freedom_prior_
    assert learned.elbo_ > given.elbo_ and learned.mean_precision_prior_ != 1.0
    assert np.all(np.diff(learned.history_["elbo"][-3:]) > -1e-6)
