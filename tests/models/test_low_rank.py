"""The bound of factor analysers follows its definition, and fits find clusters."""

from dataclasses import replace

import numpy as np
import pytest
from _engines import Idle, merges, started, sweeps
from scipy.special import digamma, gammaln
from scipy.stats import gamma as gamma_distribution
from scipy.stats import t as student_t
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM
from skvt.expfam import NormalGamma, NormalWishart
from skvt.expfam import _factor_analysis as module
from skvt.models.mixture import make_gaussian_component
from skvt.moves._base import compute_bound

LOG_2PI = np.log(2.0 * np.pi)


@pytest.fixture
def exactly(monkeypatch):
    """Make steps until the bound does not rise any more."""
    monkeypatch.setattr(module, "_TOLERANCE", 1e-12)


def drawn(n=60, D=3, rank=1, K=1, seed=0, missing=0.0):
    """Draw rows of factor analysers about K means."""
    rng = np.random.default_rng(seed)
    loadings, z = 2.0 * rng.normal(size=(K, D, rank)), np.arange(n) % K
    X = 8.0 * rng.normal(size=(K, D))[z] + 3.0 + 0.5 * rng.normal(size=(n, D))
    X += np.einsum("ndr,nr->nd", loadings[z], rng.normal(size=(n, rank)))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def component_of(X, max_rank=None, kind="low_rank"):
    return make_gaussian_component(X, np.ones(len(X)), kind, False, max_rank=max_rank)[0]


def posterior_of(X, max_rank=None):
    component = component_of(X, max_rank)
    sums = component.features(X).sum(axis=0)[None]
    return component, sums, component.natural_parameters(sums)


# ------------------------------------------------------------------------------ the bound
def contrasts(X, prior):
    """Return rows of mean 0 with the scatter that remains after integration over the mean."""
    kappa = prior["mean_precision"]
    n, mean = len(X), X.mean(axis=0)
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[0][:, 1:]
    shift = np.sqrt(n * kappa / (n + kappa)) * (mean - prior["mean"])
    return np.vstack([basis.T @ (X - mean), shift])


def found(X, component, lam):
    """Return contrasts of the rows, and the loadings, V, rates and C of q."""
    q, factors = component.family.to_standard(lam), component.family.factors(lam)
    r = int(factors.ranks[0])
    Y = contrasts(X - component.center, NormalWishart.to_standard(component.prior))
    return Y, (q["loadings"][0][:, :r], factors.variances[0, :r], q["rate"][0],
               np.full(r, q["loadings_variance"][0]))  # fmt: skip


def bound_row_by_row(Y, prior, M, V, b, C):
    """Return the sum of energy and entropy of every variable by their definitions."""
    nu, kappa = prior["degrees_of_freedom"], prior["mean_precision"]
    scale, (D, r), n = np.diagonal(prior["scale_inverse"]), M.shape, len(Y)
    a = 0.5 * (nu + n)
    psi, log_psi = a / b, digamma(a) - np.log(b)
    alpha_shape = 0.5 * (1.0 + D)
    alpha_rate = 0.5 + 0.5 * ((psi[:, None] * M**2).sum(axis=0) + D * C)
    alpha, log_alpha = alpha_shape / alpha_rate, digamma(alpha_shape) - np.log(alpha_rate)
    total = -(r + 1.0) * np.log(2.0) + 0.5 * D * np.log(kappa / (kappa + n))
    for y in Y:
        h = V * (M.T @ (psi * y))
        for d in range(D):
            noise = psi[d] * ((y[d] - M[d] @ h) ** 2 + M[d] ** 2 @ V) + C @ (h**2 + V)
            total += 0.5 * (log_psi[d] - LOG_2PI - noise)
        total -= 0.5 * (r * LOG_2PI + h @ h + V.sum())
        total += 0.5 * (r * (1.0 + LOG_2PI) + np.log(V).sum())
    for d in range(D):
        log_prior = 0.5 * nu * np.log(0.5 * scale[d]) - gammaln(0.5 * nu)
        total += log_prior + (0.5 * nu - 1.0) * log_psi[d] - 0.5 * scale[d] * psi[d]
        total += gamma_distribution(a, scale=1.0 / b[d]).entropy()
        for j in range(r):
            total += 0.5 * (log_psi[d] + log_alpha[j] - LOG_2PI)
            total -= 0.5 * alpha[j] * (psi[d] * M[d, j] ** 2 + C[j])
            total += 0.5 * (1.0 + LOG_2PI + np.log(C[j]) - log_psi[d])
    for j in range(r):
        total += 0.5 * np.log(0.5) - gammaln(0.5) - 0.5 * log_alpha[j] - 0.5 * alpha[j]
        total += gamma_distribution(alpha_shape, scale=1.0 / alpha_rate[j]).entropy()
    return total


@pytest.mark.parametrize(("D", "rank", "n"), [(2, 1, 30), (6, 2, 50), (6, 4, 5)])
def test_the_bound_is_the_sum_of_energies_and_entropies(D, rank, n):
    X = drawn(n, D, rank, seed=1)
    component, sums, lam = posterior_of(X)
    assert component.ranks(lam)[0] >= 1
    Y, q = found(X, component, lam)
    expected = bound_row_by_row(Y, NormalWishart.to_standard(component.prior), *q)
    assert component.log_evidence(sums)[0] == pytest.approx(expected, rel=1e-10)


def test_a_factor_analyser_of_one_column_is_a_normal_gamma(exactly):
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(9, 1))
    component, sums, lam = posterior_of(X)
    X = X - component.center
    nu, scale = (float(component.family._standard_prior[n][...].sum()) for n in
                 ("degrees_of_freedom", "scale_inverse"))  # fmt: skip
    prior = NormalGamma.from_standard(np.zeros(1), np.ones(1), 0.5 * nu, 0.5 * scale)
    after = prior + np.array([9.0, (X**2).sum(), X.sum(), 9.0])
    expected = NormalGamma.log_normalizer(after) - NormalGamma.log_normalizer(prior)
    expected -= 4.5 * LOG_2PI + np.log(2.0)  # The last term is that of rank 0.
    assert component.log_evidence(sums)[0] == pytest.approx(expected, rel=1e-9)
    m, s = NormalGamma.to_standard(after)["mean"][0], NormalGamma.to_standard(after)
    spread = np.sqrt(s["rate"] / s["shape"] * (1.0 + 0.1))
    x = np.linspace(-4.0, 4.0, 5)
    got = component.log_predictive(x[:, None] + component.center, lam)[:, 0]
    np.testing.assert_allclose(got, student_t(2.0 * s["shape"], m, spread).logpdf(x), rtol=1e-9)


@pytest.mark.parametrize("D", [40, 80])
def test_factors_of_many_columns_equal_the_leading_eigenvectors(D):
    rng, a0 = np.random.default_rng(0), 1.0
    numbers = (20, 20, 60)
    for n, rank in zip(numbers, (0, 2, 2), strict=True):
        Y = rng.normal(size=(n, D)) + 3.0 * rng.normal(size=(n, rank)) @ rng.normal(size=(rank, D))
        scatter, variances, rate = Y.T @ Y, np.ones((1, 5)), np.ones((1, D))
        out = np.zeros(1), rate, np.zeros((1, D, 5)), variances
        module._maximise_bounds(
            np.array([float(n)]), scatter[None], a0, np.ones(D), *out, 1e-6, False
        )
        root = np.sqrt((a0 + 0.5 * n) / rate[0])
        values = np.linalg.eigvalsh(scatter * root * root[:, None])[::-1][:rank]
        assert np.count_nonzero(variances < 1.0) == rank
        np.testing.assert_allclose(variances[0, :rank], (n + 1) / values, rtol=1e-3)


def test_a_factor_outside_the_span_of_the_initial_loadings_is_found():
    rng, D, n = np.random.default_rng(0), 40, 200
    Y = rng.normal(size=(n, D))
    for columns in (slice(0, 20), slice(20, 40)):
        Y[:, columns] += 3.0 * rng.normal(size=(n, 1)) * rng.normal(size=20)
    scatter = Y.T @ Y
    # Steps from loadings in the first columns alone never leave these columns.
    scatter[:20, 20:] = scatter[20:, :20] = 0.0
    bounds = []
    for initial in (np.r_[np.ones(20), np.zeros(20)], np.zeros(40)):
        rate = 0.5 * np.diag(scatter)[None]
        out = np.zeros(1), rate.copy(), np.zeros((1, D, 5)), np.ones((1, 5))
        out[2][0, :, 0], out[3][0, 0] = initial, 0.5 if initial.any() else 1.0
        numbers = np.array([float(n)]), scatter[None], 1.0, np.ones(D)
        module._maximise_bounds(*numbers, *out, 1e-6, False)
        bounds.append(out[0][0])
        assert np.count_nonzero(out[3] < 1.0) == 2
    assert bounds[0] == pytest.approx(bounds[1], abs=0.01)


def test_the_scatter_of_few_rows_has_a_narrow_root():
    Y = np.random.default_rng(0).normal(size=(7, 30)) * np.logspace(-4, 4, 30)
    factorise = in_plain_python(module._factorise_scatter)
    root = factorise(Y.T @ Y, 15)
    assert root.shape == (30, 7)
    scaled = np.linalg.norm(Y, axis=0)
    scaled = scaled * scaled[:, None]
    np.testing.assert_allclose(root @ root.T / scaled, Y.T @ Y / scaled, atol=1e-10)
    assert factorise(Y.T @ Y, 6).shape == (30, 0)


@pytest.mark.parametrize(("n", "share"), [(9.0, 0.04), (90.0, 0.2), (900.0, 0.02)])
def test_the_noise_starts_at_variances_given_the_other_columns(n, share):
    rng = np.random.default_rng(0)
    root, b0 = rng.standard_normal((90, 7)), rng.uniform(0.5, 2.0, 90)
    scatter = root @ root.T
    shrunk = np.diag(2.0 * b0 + share * np.diag(scatter)) + (1.0 - share) * scatter
    for known_root in (root, root[:, :0]):
        in_plain_python(module._start_noise)(n, scatter, known_root, b0, rate := np.empty(90))
        np.testing.assert_allclose(rate, 0.5 / np.diag(np.linalg.inv(shrunk)), rtol=1e-10)


def test_starts_with_shrunken_scatter_reach_higher_maxima_for_few_rows():
    X, y = load_digits(return_X_y=True)
    gains = []
    for digit in range(10):
        rows = X[y == digit]
        rows = rows[:, rows.std(axis=0) > 0.0]
        n, D = rows.shape
        scatter, b0, bounds = n * np.cov(rows.T, ddof=0), 0.005 * rows.var(axis=0), []
        of_others = 0.5 / np.diag(np.linalg.inv(scatter + np.diag(2.0 * b0)))
        all_noise = b0 + 0.5 * np.diag(scatter)
        for rate in (None, of_others, all_noise):
            start = all_noise if rate is None else rate
            out = np.zeros(1), start[None].copy(), np.zeros((1, D, D // 2)), np.ones((1, D // 2))
            numbers = np.array([float(n)]), scatter[None], 0.5, b0
            module._maximise_bounds(*numbers, *out, 1e-6, rate is None)
            bounds.append(out[0][0])
        gains.append(bounds[0] - np.array(bounds[1:]))
    assert (np.mean(gains, axis=0) > 5.0).all()


def test_trials_reuse_the_best_q_under_the_present_prior(monkeypatch):
    component, sums, _ = posterior_of(drawn(D=6))
    expected = component.log_evidence(sums)
    trial = component.trial(sums)
    monkeypatch.setattr(module.FactorAnalysis, "_find_best_factors", None)
    np.testing.assert_array_equal(trial.log_evidence(sums), expected)


def test_members_that_differ_in_their_scatter_have_different_q():
    component, _, lam = posterior_of(drawn())
    D = component.n_features
    wider = NormalWishart.to_standard(lam)
    wider["scale_inverse"] = wider["scale_inverse"] + 50.0 * np.eye(D)
    other = NormalWishart.from_standard(**wider)
    np.testing.assert_array_equal(lam[:, : 2 + D], other[:, : 2 + D])
    # A copy of the component has not computed any q yet.
    expected = [replace(component).family.factors(eta).bound[0] for eta in (lam, other)]
    assert abs(expected[0] - expected[1]) > 1.0
    for members, of_members in ((lam, [0]), (other, [1]), (np.concatenate([lam, other]), [0, 1])):
        bound = component.family.factors(members).bound
        assert bound.tolist() == [expected[k] for k in of_members]


def test_no_other_q_has_a_higher_bound(exactly):
    X = drawn(20, 4, 2)
    component, sums, lam = posterior_of(X)
    (Y, q), prior = found(X, component, lam), NormalWishart.to_standard(component.prior)
    highest, rng = component.log_evidence(sums)[0], np.random.default_rng(0)
    for size in (1e-4, 1e-2, 0.3):
        for _ in range(10):
            factors = [np.exp(size * rng.normal(size=part.shape)) for part in q]
            other = [part * factor for part, factor in zip(q, factors, strict=True)]
            assert bound_row_by_row(Y, prior, *other) < highest + 1e-9
    fewer = (q[0][:, :1], q[1][:1], q[2], q[3][:1])
    assert bound_row_by_row(Y, prior, *fewer) < highest


def test_expectations_are_slopes_of_the_log_normalizer(exactly):
    component, _, lam = posterior_of(drawn(D=4))
    family, step = component.family, 1e-6
    t = family.expectation(lam)
    for e in (3, 6, 8, 14):
        change = np.zeros_like(lam)
        change[0, e] = step * max(1.0, abs(lam[0, e]))
        up, down = (family.log_normalizer(lam + sign * change)[0] for sign in (1.0, -1.0))
        assert (up - down) / (2.0 * change[0, e]) == pytest.approx(t[0, e], rel=1e-5, abs=1e-7)
    # The degrees of freedom and the precision of the mean count the same rows.
    change[:] = 0.0
    change[0, :2] = 1e-4
    up, down = (family.log_normalizer(lam + sign * change)[0] for sign in (1.0, -1.0))
    assert (up - down) / 2e-4 == pytest.approx(t[0, :2].sum(), rel=1e-5)


def test_evidence_under_other_priors_starts_from_the_present_solution():
    X = drawn(200, D=12, rank=3, K=2)
    component = component_of(X)
    sums = np.stack([component.features(part).sum(axis=0) for part in (X[::2], X[1::2], X[:0])])
    other = component.prior.copy()
    other[[0, 1]] *= 1.5
    exact = replace(component, prior=other).log_evidence(sums)
    trial = replace(component.trial(sums), prior=other)
    short = exact - trial.log_evidence(sums)
    assert np.all(short[:2] > -1e-3) and np.all(short[:2] < 0.1) and short[2] == 0.0
    assert exact[2] == 0.0  # The last component has no rows.
    np.testing.assert_array_equal(trial.family.to_standard(other)["rate"],
                                  component.family.to_standard(other)["rate"])  # fmt: skip


# ------------------------------------------------------------------- a shared covariance
def shared_posterior_of(X, K):
    """Return rows by cluster, a component with one covariance, sums, and natural parameters."""
    component, z = component_of(X, kind="tied_low_rank"), np.arange(len(X)) % K
    sums = np.eye(K)[z].T @ component.features(X)
    return [X[z == k] for k in range(K)], component, sums, component.natural_parameters(sums)


def drawn_alike(n, D, rank, K):
    """Draw rows of K clusters with the same loadings."""
    return drawn(n, D, rank) + np.random.default_rng(1).normal(size=(K, D))[np.arange(n) % K]


@pytest.mark.parametrize(("D", "rank", "n"), [(3, 1, 60), (6, 2, 50)])
def test_the_bound_of_a_shared_covariance_is_the_sum_of_energies_and_entropies(D, rank, n):
    clusters, component, sums, lam = shared_posterior_of(drawn_alike(n, D, rank, K=3), 3)
    prior = NormalWishart.to_standard(component.prior)
    rows = np.vstack([contrasts(X - component.center, prior) for X in clusters])
    q = component.family.to_standard(lam)
    factors = component.family.separate.factors(component.with_shared_globals(lam))
    r, kappa = int(factors.ranks[0]), prior["mean_precision"]
    assert r >= 1
    variances = np.full(r, q["loadings_variance"][0])
    expected = bound_row_by_row(
        rows, prior, q["loadings"][0][:, :r], factors.variances[0, :r], q["rate"][0], variances
    )
    # There is one mean for each cluster, not one mean of all rows.
    counts = np.array([len(X) for X in clusters])
    expected += 0.5 * D * (np.log(kappa / (kappa + counts)).sum() - np.log(kappa / (kappa + n)))
    assert component.log_evidence(sums).sum() == pytest.approx(expected, rel=1e-10)


def test_expectations_under_a_shared_covariance_are_slopes_of_the_log_normalizer(exactly):
    _, component, _, lam = shared_posterior_of(drawn_alike(60, 4, 1, K=3), 3)
    family, step = component.family, 1e-6
    t = family.expectation(lam)
    for k, e in ((0, 3), (1, 6), (2, 8), (0, 14)):
        change = np.zeros_like(lam)
        change[k, e] = step * max(1.0, abs(lam[k, e]))
        up, down = (family.log_normalizer(lam + sign * change).sum() for sign in (1.0, -1.0))
        assert (up - down) / (2.0 * change[k, e]) == pytest.approx(t[k, e], rel=1e-5, abs=1e-7)


def test_one_component_with_a_shared_covariance_is_a_factor_analyser():
    X = drawn(60, 5, 2)
    (_, alone, sums, lam), single = shared_posterior_of(X, 1), component_of(X)
    assert alone.log_evidence(sums) == pytest.approx(single.log_evidence(sums), rel=1e-12)
    np.testing.assert_allclose(alone.family.expectation(lam), single.family.expectation(lam))
    np.testing.assert_allclose(alone.log_predictive(X, lam), single.log_predictive(X, lam))


@pytest.mark.parametrize("kind", ["low_rank", "tied_low_rank"])
def test_merges_of_components_without_rows_gain_nothing(kind):
    component = component_of(drawn(30), kind=kind)
    sums = np.zeros((3, component.features(np.zeros((1, 3))).shape[1]))
    with np.errstate(all="raise"):
        gains = component.merge_gains(sums, np.array([0, 0, 1]), np.array([1, 2, 2]))
    np.testing.assert_array_equal(gains, 0.0)


def test_draws_share_a_covariance_and_have_the_means_of_q():
    _, component, _, lam = shared_posterior_of(drawn_alike(60, 4, 1, K=3), 3)
    rng = np.random.default_rng(0)
    draws = [component.family.sample(lam, rng) for _ in range(500)]
    means, precisions = (np.array([part[i] for part in draws]) for i in (0, 1))
    assert np.ptp(precisions, axis=1).max() == 0.0
    error = means.std(axis=0) / np.sqrt(500)
    assert np.all(np.abs(means.mean(axis=0) - component.family.mean(lam).mean) < 5.0 * error)
    # The covariance of a mean is the covariance of rows, divided by kappa.
    q = component.family.to_standard(lam)
    expected = np.linalg.inv(precisions).mean(axis=0)[:, range(4), range(4)]
    np.testing.assert_allclose(
        means.var(axis=0) * q["mean_precision"][:, None], expected, rtol=0.25
    )


# -------------------------------------------------------------------------- the predictive
def test_predictive_densities_are_those_of_draws_from_q():
    X = drawn(80, D=4, rank=2, seed=2)
    component, _, lam = posterior_of(X)
    assert component.ranks(lam)[0] == 2
    draws = component.family.sample(np.repeat(lam, 4000, axis=0), np.random.default_rng(0))
    means, covariances = draws.mean + component.center, np.linalg.inv(draws.precision)
    mean, scale, freedom = (part[0] for part in component._compute_student_t(lam))
    covariance = scale / (freedom - 2.0)
    unit = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(mean + component.center, means.mean(axis=0), atol=0.02 * unit.max())
    total = covariances.mean(axis=0) + np.cov(means.T)
    np.testing.assert_allclose(total / unit / unit[:, None], covariance / unit / unit[:, None],
                               atol=0.03)  # fmt: skip
    new = X[:10] + 0.2
    away = new - means[:, None]
    square = np.einsum("kni,kij,knj->kn", away, draws.precision, away)
    each = -0.5 * (square + np.linalg.slogdet(covariances)[1][:, None] + 4.0 * LOG_2PI)
    expected = np.log(np.mean(np.exp(each), axis=0))
    np.testing.assert_allclose(component.log_predictive(new, lam)[:, 0], expected, atol=0.1)


# ----------------------------------------------------------------------------- the mixture
@pytest.mark.parametrize("kind", ["low_rank", "tied_low_rank"])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_the_bound_never_falls_and_merges_gain_what_is_predicted(missing, kind):
    X = drawn(120, D=5, rank=2, K=3, missing=missing)
    model, data, state = started(component_of(X, kind=kind), X, 5)
    bounds = sweeps(model, data, state, [Idle()], 8)
    assert np.all(np.diff(bounds) > -1e-4)
    assert bounds[-1] == pytest.approx(compute_bound(model, state.memos.total()), rel=1e-9)
    clearly_bad, pairs = 0, list(merges(model, state))
    for gain, change, _ in pairs:
        if kind == "tied_low_rank" and gain < -10.0:  # The prediction may be an estimate.
            clearly_bad += change != pytest.approx(gain, rel=1e-6, abs=1e-3)
            assert change < -10.0
        elif change < -100.0:  # The prediction is an upper bound.
            clearly_bad += gain > change + 1.0
            assert change - 1e-3 < gain < -5.0
        else:
            assert change == pytest.approx(gain, rel=1e-6, abs=1e-3)
    assert 0 < clearly_bad < len(pairs)


@pytest.mark.parametrize("kind", ["low_rank", "tied_low_rank"])
def test_the_gain_of_a_single_merge_is_exact_even_if_it_is_a_clear_loss(kind):
    """Another block of columns may gain more, so that the merge may be accepted."""
    X, z = drawn(120, D=5, rank=2, K=3), np.arange(120) % 3
    component = component_of(X, kind=kind)
    sums = np.eye(3)[z].T @ component.features(X)
    pairs = np.triu_indices(3, 1)
    changes = []
    for a, b in zip(*pairs, strict=True):
        merged = np.delete(sums, b, axis=0)
        merged[a] += sums[b]
        changes.append(component.log_evidence(merged).sum() - component.log_evidence(sums).sum())
        (gain,) = component.merge_gains(sums, np.array([a]), np.array([b]))
        assert gain == pytest.approx(changes[-1], rel=1e-6) and gain < -100.0
    # Some of the gains of several merges are estimates.
    assert np.abs(component.merge_gains(sums, *pairs) - changes).max() > 1.0


# ------------------------------------------------------------------------------ estimators
def test_clusters_of_low_rank_are_found_in_few_rows():
    X = drawn(600, D=24, rank=2, K=3, seed=1)
    X, new = X[:75], X[75:]
    settings = {"max_components": 4, "random_state": 0, "mean_precision_prior": 1e-3}
    settings |= {"mean_prior": None, "degrees_of_freedom_prior": None, "covariance_prior": None}
    low, full = (
        MemoizedDPGMM(covariance_type=kind, **settings).fit(X) for kind in ("low_rank", "full")
    )
    assert low.n_components_ == 3
    np.testing.assert_array_equal(low.ranks_, 2)
    limited = MemoizedDPGMM(covariance_type="low_rank", max_rank=1, **settings).fit(X)
    assert limited.ranks_.max() == 1
    assert low.score(new) > full.score(new) + 5.0 and low.elbo_ > full.elbo_
    inverse = low.precisions_ @ low.covariances_
    np.testing.assert_allclose(inverse, np.tile(np.eye(24), (3, 1, 1)), atol=1e-8)
    np.testing.assert_allclose(low.posterior_.components.mean().mean, low.means_)
    with pytest.raises(AttributeError, match="low_rank"):
        _ = full.ranks_


def test_clusters_that_share_factors_are_found():
    """With separate loadings, two of the three clusters are merged."""
    rng = np.random.default_rng(0)
    y, loadings = rng.integers(3, size=400), 0.7 * rng.normal(size=(5, 30))
    means = rng.normal(size=(3, 30)) * 6.0 / np.sqrt(30)
    X = means[y] + rng.normal(size=(400, 5)) @ loadings + rng.normal(size=(400, 30))
    shared, separate = (
        MemoizedDPGMM(covariance_type=kind, random_state=0).fit(X)
        for kind in ("tied_low_rank", "low_rank")
    )
    assert adjusted_rand_score(y, shared.labels_) > 0.97 > adjusted_rand_score(y, separate.labels_)
    assert shared.n_components_ == 3 and shared.elbo_ > separate.elbo_
    np.testing.assert_array_equal(shared.ranks_, 5)
    assert shared.covariances_.shape == (30, 30)
    np.testing.assert_allclose(shared.precisions_ @ shared.covariances_, np.eye(30), atol=1e-8)
    np.testing.assert_allclose(shared.posterior_.components.mean().mean, shared.means_)


@pytest.mark.slow
def test_rates_of_columns_that_hardly_vary_stay_finite():
    """The noise of pixels that are mostly zero is too small to limit the rates."""
    X = load_digits().data[:400]
    X = X[:, X.std(axis=0) > 0.0]
    X += 1e-7 * np.random.default_rng(0).normal(size=X.shape)
    mixture = MemoizedDPGMM(covariance_type="low_rank", random_state=0, max_iter=2)
    with pytest.warns(ConvergenceWarning):
        mixture.fit(X)
    assert np.isfinite(mixture.elbo_)


# -------------------------------------------------------------------------- compiled parts
def in_plain_python(part):
    return getattr(part, "py_func", part)


def test_independent_directions_become_orthonormal_and_dependent_ones_zero():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(9, 4)) * np.array([1e-3, 1.0, 1e3, 1.0])
    columns[:, 2] = columns[:, 0] - 2.0 * columns[:, 1]
    q = np.linalg.qr(columns[:, [0, 1, 3]])[0]
    rows = np.empty((4, 9))
    in_plain_python(module._orthonormalise)(columns, rows)
    np.testing.assert_array_equal(rows, columns.T)
    np.testing.assert_allclose(rows @ columns, np.diag([1.0, 1.0, 0.0, 1.0]), atol=1e-14)
    np.testing.assert_allclose(columns @ rows, q @ q.T, atol=1e-12)


def test_an_accelerated_step_solves_the_least_squares_of_the_last_steps():
    rng = np.random.default_rng(0)
    for n, size in ((0, 1), (5, 3), (6, 4)):
        steps, targets, step, x = (rng.normal(size=shape) for shape in ((4, 7), (4, 7), 7, 7))
        last = (n - np.arange(size)) % 4
        ridge = module._RIDGE * np.trace(steps[last] @ steps[last].T)
        stacked = np.vstack([steps[last].T, np.sqrt(ridge) * np.eye(size)])
        solution = np.linalg.lstsq(stacked, np.append(step, np.zeros(size)), rcond=None)[0]
        expected = x - solution @ targets[last]
        scratch = np.empty((4, 4)), np.empty(4)
        in_plain_python(module._accelerate)(steps, targets, step, n, size, *scratch, x)
        np.testing.assert_allclose(x, expected, rtol=1e-10)


def test_a_scatter_is_not_factorised_if_rounding_dominates_the_scatter_of_a_column():
    root = np.random.default_rng(0).normal(size=(12, 5))
    root[0] = 0.0
    scatter = root @ root.T
    factor_root = module._factorise_scatter.py_func(scatter, 8)
    assert factor_root.shape == (12, 5)
    np.testing.assert_allclose(factor_root @ factor_root.T, scatter, atol=1e-9)
    # The first column is constant. Errors of its products are larger than its scatter allows.
    scatter[0, 0], scatter[0, 1:], scatter[1:, 0] = 1e-17, 1e-7, 1e-7
    assert module._factorise_scatter.py_func(scatter, 8).shape == (12, 0)
