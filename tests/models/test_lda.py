"""LDA agrees with a second derivation.

With b = 1/T, documents d, tokens n of words w_dn, the tempered bound is, every constant included,

    L_b =  sum_k { E[log Dir(beta_k | eta)] - E[log q(beta_k)] }
         + sum_d { E[log Dir(theta_d | alpha)] - E[log q(theta_d)] }
         + sum_dn { b E[log theta_{d, z_dn} + log beta_{z_dn, w_dn}] - E[log q(z_dn)] }

(neither prior is tempered). What follows writes this down twice without the package's code: as an
explicit sum over all assignments of all tokens, and as dense arithmetic over documents.
"""

from itertools import product

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from scipy.special import digamma, gammaln, logsumexp, softmax

from skvt import TemperedLDA
from skvt._compiled import run_serially as run
from skvt.expfam import RunningStats, Stats
from skvt.models.lda import _model as _lda
from skvt.models.lda._model import LDA
from skvt.temperature import ConstantTemperature, LinearAnnealing


# ------------------------------------------------------------------- the second derivation
def expected_log(concentration):
    """Return E[log x] under Dirichlets in the rows."""
    return digamma(concentration) - digamma(concentration.sum(axis=-1, keepdims=True))


def prior_minus_entropy(q, p):
    """Return E_q[log Dir(x | p)] - E_q[log Dir(x | q)] for rows q. The prior p may have rows."""
    value = 0.0
    for row, own, mean_log in zip(q, np.broadcast_to(p, q.shape), expected_log(q), strict=True):
        log_p = gammaln(own.sum()) - gammaln(own).sum() + (own - 1.0) @ mean_log
        log_q = gammaln(row.sum()) - gammaln(row).sum() + (row - 1.0) @ mean_log
        value += log_p - log_q
    return value


def enumerated_bound(documents, phi, gamma, lam, alpha, eta, b):
    """Return L_b by a sum over all z. ``phi[d][n]`` is q(z_dn)."""
    tokens = [(d, n, w) for d, words in enumerate(documents) for n, w in enumerate(words)]
    log_theta, log_beta = expected_log(gamma), expected_log(lam)
    value = 0.0
    for z in product(range(alpha.size), repeat=len(tokens)):
        q = np.prod([phi[d][n][k] for (d, n, _), k in zip(tokens, z, strict=True)])
        energy = sum(
            log_theta[d, k] + log_beta[k, w] for (d, _, w), k in zip(tokens, z, strict=True)
        )
        if q > 0.0:
            value += q * (b * energy - np.log(q))
    return value + prior_minus_entropy(gamma, alpha) + prior_minus_entropy(lam, eta)


class Dense:
    """Coordinate ascent follows the formulas document by document."""

    def __init__(self, alpha, eta, b=1.0, replication=1.0):
        self.alpha, self.eta, self.b, self.replication = alpha, eta, b, replication

    def document(self, counts, log_beta):
        """Return gamma and phi (V, K) at the fixed point reached from equal shares."""
        gamma = self.alpha + self.b * counts.sum() / self.alpha.size
        for _ in range(5000):
            phi = softmax(self.b * (expected_log(gamma) + log_beta.T), axis=1)
            updated = self.alpha + self.b * counts @ phi
            if np.abs(updated - gamma).max() < 1e-12:
                break
            gamma = updated
        return updated, softmax(self.b * (expected_log(updated) + log_beta.T), axis=1)

    def local(self, X, lam):
        """Return statistics (K, V), gamma, the energy, and the entropy with the term of theta."""
        log_beta = expected_log(lam)
        statistics, gammas = np.zeros_like(lam), []
        energy = entropy = 0.0
        for counts in X:
            gamma, phi = self.document(counts, log_beta)
            gammas.append(gamma)
            statistics += (counts[:, None] * phi).T
            energy += counts @ np.sum(phi * (expected_log(gamma) + log_beta.T), axis=1)
            entropy -= counts @ np.sum(phi * np.log(np.maximum(phi, 1e-300)), axis=1)
        gammas = np.array(gammas)
        return statistics, gammas, energy, entropy + prior_minus_entropy(gammas, self.alpha)

    def update(self, X, lam):
        """Return the next lam, and the tempered and the untempered bound at lam.

        Where the globals count each row r times, lam = eta + r b S is the maximum of the bound
        with KL(q(beta) || p(beta)) / r; the untempered bound has no part in that.
        """
        statistics, _, energy, rest = self.local(X, lam)
        topics = prior_minus_entropy(lam, self.eta)
        tempered = self.b * energy + rest + topics / self.replication
        return self.eta + self.replication * self.b * statistics, tempered, energy + rest + topics


# ----------------------------------------------------------------------------------- corpora
TOY = dict(
    documents=[[0, 1], [2, 0, 0]], alpha=np.array([0.7, 1.3]), eta=np.array([0.4, 0.9, 0.6]),
    lam=np.array([[2.1, 0.5, 1.2], [0.6, 1.9, 0.8]]),
)  # fmt: skip
SHARP = dict(
    documents=[[0, 2, 2], [1, 0]], alpha=np.array([0.15, 0.3]), eta=np.array([0.1, 0.2, 0.3]),
    lam=np.array([[9.1, 0.2, 0.7], [0.3, 1.9, 4.0]]),
)  # fmt: skip
# These topics have different priors.
OWN = TOY | dict(eta=np.array([[2.5, 0.2, 0.4], [0.1, 0.9, 1.6]]))
each_toy = pytest.mark.parametrize("toy", [TOY, SHARP, OWN], ids=["mild", "sharp", "own"])
each_inv_temp = pytest.mark.parametrize("b", [1.0, 0.5], ids=["T=1", "T=2"])


def count(documents, n_words):
    return np.array(
        [np.bincount(np.array(words, int), minlength=n_words) for words in documents], float
    )


def exact(alpha, eta, dtype=np.float64):
    """An LDA whose local steps converge to rounding."""
    return LDA(alpha.astype(dtype), np.ascontiguousarray(eta.T, dtype), 10_000, 1e-13)


def step(model, X, lam, b, *, rows=None, weights=None, **options):
    """Return the local result and dense statistics (K, V) of rows of X at the globals lam."""
    X = sp.csr_array(X)
    rows = np.arange(X.shape[0]) if rows is None else rows
    batch = model.batch(X, rows, np.ones(len(rows)) if weights is None else weights)
    result = model.local_step(
        batch, model.expectation(model.stats_from_topics(lam), batch, run), b, run, **options
    )
    full = np.zeros((X.shape[1], model.n_components))
    if result.stats is not None:
        full[result.stats.rows] = result.stats.arrays[0]
    return result, full.T


def corpus(seed, *, n=40, n_words=30, n_topics=4, length=25, sharp=0.1):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, sharp), size=n_topics)
    shares = rng.dirichlet(np.full(n_topics, 0.3), size=n)
    lengths = rng.poisson(length, size=n)
    return np.array(
        [rng.multinomial(m, share @ topics) for m, share in zip(lengths, shares, strict=True)],
        dtype=float,
    )


def random_topics(seed, n_topics, n_words):
    return np.random.default_rng(seed).gamma(0.5, 4.0, size=(n_topics, n_words)) + 0.05


@pytest.fixture
def start_at(monkeypatch):
    """Make fits start from the given lam."""

    def start(lam):
        monkeypatch.setattr(LDA, "initial", lambda self, data, rng: self.stats_from_topics(lam))

    return start


# --------------------------------------------------------------------------- brute force
def phi_of_local_step(model, toy, b):
    """Return gamma and q(z) of each token by local steps of single documents."""
    X = count(toy["documents"], 3)
    gamma, phi = [], []
    for d, words in enumerate(toy["documents"]):
        result, statistics = step(model, X[d : d + 1], toy["lam"], b)
        gamma.append(result.q[0])
        phi.append([statistics[:, w] / X[d, w] for w in words])
    return np.array(gamma), phi


@each_toy
@each_inv_temp
def test_bound_equals_the_sum_over_all_assignments(toy, b):
    model = exact(toy["alpha"], toy["eta"])
    gamma, phi = phi_of_local_step(model, toy, b)
    expected = enumerated_bound(
        toy["documents"], phi, gamma, toy["lam"], toy["alpha"], toy["eta"], b
    )
    result, _ = step(model, count(toy["documents"], 3), toy["lam"], b)
    np.testing.assert_allclose(result.q, gamma, rtol=1e-13)
    value = result.bound.sum() + prior_minus_entropy(toy["lam"], toy["eta"])
    assert value == pytest.approx(expected, abs=1e-9)


# --------------------------------------------------------------------- dense coordinate ascent
@pytest.mark.quick_cases("1.0-13", "1.3-5")
@pytest.mark.parametrize("n_topics", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_batch_inference_equals_dense_coordinate_ascent(
    start_at, monkeypatch, n_topics, temperature
):
    monkeypatch.setattr(_lda, "MAX_THRESHOLD", 0.0)
    X = corpus(0, n=12)
    X[3] = 0.0  # This document is empty.
    X[4] *= 0.5  # Counts may have fractions.
    rng = np.random.default_rng(1)
    shape = (5, X.shape[1]) if n_topics == 5 else X.shape[1]
    alpha, eta = rng.uniform(0.2, 0.9, n_topics), rng.uniform(0.1, 0.5, shape)
    lam = random_topics(2, n_topics, X.shape[1])
    start_at(lam)
    n_passes = 4
    estimator = TemperedLDA(
        n_topics, doc_topic_prior=alpha, topic_word_prior=eta,
        temperature=None if temperature == 1.0 else ConstantTemperature(temperature),
        learning_method="batch", max_iter=n_passes, max_doc_update_iter=5000,
        mean_change_tol=1e-13,
    ).fit(X)  # fmt: skip
    dense = Dense(alpha, eta, 1.0 / temperature)
    for n in range(n_passes):
        lam, tempered, untempered = dense.update(X, lam)
        assert estimator.history_["objective"][n] == pytest.approx(tempered, rel=1e-9)
        assert estimator.history_["elbo"][n] == pytest.approx(untempered, rel=1e-9)
    np.testing.assert_allclose(estimator.components_, lam, rtol=1e-7)
    elbo = Dense(alpha, eta).update(X, lam)[2]
    assert estimator.elbo_ == pytest.approx(elbo, rel=1e-9)
    assert estimator.elbo(X) == pytest.approx(elbo, rel=1e-9)
    np.testing.assert_allclose(
        estimator.exp_dirichlet_component_, np.exp(expected_log(lam)), rtol=1e-6
    )


def test_proportions_are_a_fixed_point_of_cvb0_given_the_mean_topics():
    X = corpus(0, n=12)
    X[3] = 0.0  # This document is empty.
    X[4] *= 1.5  # Tokens of weight 1/2 stand beside whole ones.
    alpha = np.random.default_rng(1).uniform(0.2, 0.9, 5)
    estimator = TemperedLDA(
        5, doc_topic_prior=alpha, max_iter=4, max_doc_update_iter=5000, mean_change_tol=1e-13
    ).fit(X)
    beta = estimator.components_ / estimator.components_.sum(axis=1, keepdims=True)
    theta = estimator.transform(X)
    np.testing.assert_allclose(theta[3], alpha / alpha.sum(), rtol=1e-12)
    pseudo = theta * (alpha.sum() + X.sum(axis=1, keepdims=True))  # alpha + E[n_k]
    for counts, weights in zip(X, pseudo, strict=True):
        q = np.full((counts.size, 5), 0.2)
        for _ in range(200):  # This is CVB0 given the topics.
            q = (weights - np.minimum(counts, 1.0)[:, None] * q) * beta.T
            q /= q.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(alpha + counts @ q, weights, rtol=1e-8)


@pytest.mark.parametrize("replication", [1.0, 10.0])
def test_annealed_batch_inference_equals_dense_coordinate_ascent(
    start_at, monkeypatch, replication
):
    monkeypatch.setattr(_lda, "MAX_THRESHOLD", 0.0)
    monkeypatch.setattr(RunningStats, "jitter", lambda self, relative, rng: None)
    X = corpus(0, n=12)
    alpha, eta = np.full(4, 0.4), np.full(X.shape[1], 0.2)
    lam = random_topics(2, 4, X.shape[1]) + eta
    start_at(lam)
    estimator = TemperedLDA(
        4, doc_topic_prior=0.4, topic_word_prior=0.2,
        temperature=LinearAnnealing(1.5, 3.0, replication), learning_method="batch", max_iter=5,
        max_doc_update_iter=5000, mean_change_tol=1e-13,
    ).fit(X)  # fmt: skip
    history, before = estimator.history_, 1.0
    for n in range(5):
        # The temperature is that of the middle of the pass.
        temperature = max(1.0, 1.5 - 0.5 * (n + 0.5) / 3.0)
        assert history["temperature"][n] == pytest.approx(temperature, rel=1e-12)
        times = replication if temperature > 1.0 else 1.0
        lam = eta + times / before * (lam - eta)
        before = times
        lam, tempered, untempered = Dense(alpha, eta, 1.0 / temperature, times).update(X, lam)
        assert history["objective"][n] == pytest.approx(tempered, rel=1e-9), f"pass {n + 1}"
        assert history["elbo"][n] == pytest.approx(untempered, rel=1e-9), f"pass {n + 1}"
    np.testing.assert_allclose(estimator.components_, lam, rtol=1e-7)


@pytest.mark.parametrize("temperature, shape", [(1.0, ()), (1.4, (3, 30))])
def test_one_minibatch_makes_the_natural_gradient_step(start_at, monkeypatch, temperature, shape):
    monkeypatch.setattr(_lda, "MAX_THRESHOLD", 0.0)
    X = corpus(3, n=12)
    alpha, eta = np.full(3, 0.5), np.random.default_rng(5).uniform(0.1, 0.5, shape)
    lam = random_topics(4, 3, X.shape[1])
    start_at(lam)
    estimator = TemperedLDA(
        3, doc_topic_prior=0.5, topic_word_prior=eta,
        temperature=ConstantTemperature(temperature), learning_offset=3.0, learning_decay=0.6,
        batch_size=5, total_samples=1000, max_doc_update_iter=5000, mean_change_tol=1e-13,
    ).partial_fit(X)  # fmt: skip
    dense = Dense(alpha, eta, 1.0 / temperature)
    for t, rows in enumerate([X[:5], X[5:10], X[10:]]):
        rho = (3.0 + t) ** -0.6
        statistics = dense.local(rows, lam)[0]
        target = eta + 1000.0 / len(rows) * statistics / temperature
        lam = (1.0 - rho) * lam + rho * target
    np.testing.assert_allclose(estimator.components_, lam, rtol=1e-7)


# --------------------------------------------------------------------- parts of the local step
N_TOPICS = 6
ALPHA = np.random.default_rng(6).uniform(0.1, 0.6, N_TOPICS)
X30 = corpus(7)
ETA = np.full(X30.shape[1], 0.3)
LAM = random_topics(8, N_TOPICS, X30.shape[1])


@pytest.mark.parametrize("b", [1.0, 0.4])
def test_the_marginal_energy_sums_over_the_topics_of_tokens(b):
    X, lam = corpus(3), random_topics(3, 4, 30)
    X[5] = 0.0
    result, _ = step(exact(np.full(4, 0.3), np.full(30, 0.1)), X, lam, b, with_marginal=True)
    log_theta, log_beta = expected_log(result.q), expected_log(lam)
    expected = np.sum(X * logsumexp(log_theta[:, :, None] + log_beta, axis=1), axis=1)
    np.testing.assert_allclose(result.marginal_energy, expected, rtol=1e-10)


def test_rows_with_different_temperatures_are_solved_as_if_alone():
    model, b = LDA(ALPHA, ETA), np.random.default_rng(9).uniform(0.1, 1.0, len(X30))
    together, statistics = step(model, X30, LAM, b, with_energy=True, with_marginal=True)
    results, each = zip(
        *(step(model, X30[d : d + 1], LAM, b[d], with_energy=True) for d in range(len(b))),
        strict=True,
    )
    for name, rtol in (("bound", 1e-12), ("energy", 1e-12), ("q", 1e-11)):
        alone = np.concatenate([getattr(result, name) for result in results])
        np.testing.assert_allclose(getattr(together, name), alone, rtol=rtol)
    np.testing.assert_allclose(statistics, np.sum(each, axis=0), rtol=1e-10, atol=1e-13)


# --------------------------------------------------------------------- batches and their parts


# ----------------------------------------------------------------------------- the globals
def test_expectations_are_those_of_prior_plus_statistics_after_any_blends():
    model = LDA(ALPHA, np.random.default_rng(13).uniform(0.1, 0.5, ETA.size))
    rng = np.random.default_rng(14)
    stats = model.stats_from_topics(LAM)
    np.testing.assert_allclose(model.natural_parameters(stats)[0], LAM, rtol=1e-14)
    batch = model.batch(sp.csr_array(X30), np.array([5, 2, 11]), np.ones(3))
    for _ in range(40):
        words = rng.permutation(ETA.size)[:9]
        stats.blend(0.4, Stats((rng.gamma(1.0, size=(9, N_TOPICS)),), rows=words), 10.0)
    lam = model.natural_parameters(stats)[0]
    np.testing.assert_allclose(
        model.expectation(stats, batch, run).log_beta,
        expected_log(lam)[:, batch.active].T,
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        lam, stats.as_stats().arrays[0].T + model.topic_word_prior, rtol=1e-14
    )


def test_a_computed_expectation_does_not_change_with_the_statistics():
    model = LDA(ALPHA, ETA)
    stats = model.stats_from_topics(LAM)
    batch = model.batch(sp.csr_array(X30), np.array([5, 2, 11]), np.ones(3))
    expected = model.expectation(stats, batch, run).log_beta
    before = expected.copy()
    stats.add(Stats((np.ones((1, N_TOPICS)),), rows=batch.active[:1]))
    np.testing.assert_array_equal(expected, before)


def test_random_starts_break_the_symmetry_with_positive_statistics():
    model = LDA(ALPHA, ETA)
    lam = model.natural_parameters(model.initial(None, np.random.default_rng(0)))[0]
    assert lam.shape == (N_TOPICS, ETA.size)
    # Gamma(100, 1/100): mean 1, deviation 0.1
    statistics = lam - ETA
    assert np.all(statistics > 0.0)
    assert statistics.mean() == pytest.approx(1.0, abs=0.05)
    assert statistics.std() == pytest.approx(0.1, rel=0.3)


# -------------------------------------------------------------------- precision and shortcuts
@pytest.mark.parametrize("b", [1.0, 0.6])
def test_single_precision_is_close_to_double(b):
    # Both make the same number of sweeps, so that only rounding differs.
    model = LDA(ALPHA, ETA, 20, 0.0)
    wide, statistics = step(model, X30, LAM, b, with_energy=True)
    model = LDA(ALPHA.astype(np.float32), ETA.astype(np.float32), 20, 0.0)
    single, single_statistics = step(model, X30.astype(np.float32), LAM, b, with_energy=True)
    assert single.q.dtype == np.float32
    assert single.stats.arrays[0].dtype == np.float32
    assert single.bound.dtype == np.float64
    np.testing.assert_allclose(single.bound, wide.bound, rtol=1e-5)
    np.testing.assert_allclose(single.energy, wide.energy, rtol=1e-4)
    np.testing.assert_allclose(single.q, wide.q, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(single_statistics, statistics, rtol=1e-3, atol=1e-4)


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_priors_and_improbable_words_give_finite_numbers(dtype):
    # E[log theta] and E[log beta] are as low as -1e4, where exp underflows.
    model = LDA(np.full(10, 1e-4, dtype), np.full(30, 1e-4, dtype), 100, 1e-3)
    lam = np.full((10, 30), 1e-4)
    lam[np.arange(10), np.arange(10)] = 1e6
    for b in (1.0, 0.3, np.linspace(0.05, 1.0, len(X30))):
        wanted = {"with_energy": True, "with_marginal": True}
        result, statistics = step(model, X30.astype(dtype), lam, b, **wanted)
        for numbers in (result.bound, result.energy, result.marginal_energy, result.q, statistics):
            assert np.all(np.isfinite(numbers))
        np.testing.assert_allclose(statistics.sum(), X30.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("n_topics", "alpha", "length", "flat"),
    [(20, 0.05, 60, False), (100, 0.1, 8, False), (400, 0.1, 5, True), (1500, 0.1, 8, True)],
    ids=["sharp topics", "short documents", "many alike topics", "more topics than a cent"],
)
@pytest.mark.parametrize("b", [1.0, 0.6])
def test_leaving_out_small_topics_hardly_changes_the_bound(
    monkeypatch, n_topics, alpha, length, flat, b
):
    X = corpus(15, n=30, n_words=100, length=length)
    lam = random_topics(16, n_topics, 100)
    if flat:
        lam = np.random.default_rng(17).gamma(100.0, 0.01, size=lam.shape)
    model = LDA(np.full(n_topics, alpha), np.full(100, 0.1), 1000, 1e-8)
    pruned, statistics = step(model, X, lam, b)
    monkeypatch.setattr(_lda, "MAX_THRESHOLD", 0.0)
    full, full_statistics = step(model, X, lam, b)
    assert abs(pruned.bound.sum() / full.bound.sum() - 1.0) < 1e-4
    assert np.abs(statistics - full_statistics).sum() < 0.02 * full_statistics.sum()
    np.testing.assert_allclose(statistics.sum(axis=0), X.sum(axis=0), rtol=1e-10)
    # The sum of gamma is that of the prior and of the document's tokens.
    np.testing.assert_allclose(
        pruned.q.sum(axis=1) - n_topics * alpha, b * X.sum(axis=1), rtol=1e-3
    )


def test_extrapolated_sweeps_need_fewer_sweeps_and_reach_no_worse_optima():
    # Half of the sweeps suffice.
    X, lam, alpha = corpus(15, n=5, n_words=300, length=100), random_topics(16, 40, 300), 0.05
    gamma, bounds = np.full((5, 40), alpha) + X.sum(axis=1, keepdims=True) / 40, []
    for _ in range(201):
        logs = expected_log(gamma)[:, None] + expected_log(lam).T
        bound = (X * logsumexp(logs, axis=2)).sum()
        bounds.append(bound + prior_minus_entropy(gamma, np.full(40, alpha)))
        gamma = alpha + np.einsum("dv,dvk->dk", X, softmax(logs, axis=2))
    for sweeps, plain in ((40, 80), (200, 200)):
        result, _ = step(LDA(np.full(40, alpha), np.full(300, 0.1), sweeps, 0.0), X, lam, 1.0)
        assert result.bound.sum() > bounds[plain]


def test_topics_that_are_left_out_have_their_prior():
    alpha = np.linspace(0.05, 0.8, 16)
    lam = np.kron(np.eye(16), np.full(2, 50.0)) + 0.01
    X = np.zeros((1, 32))
    X[0, 6:8] = 30.0, 20.0  # These are words of topic 3 alone.
    result, _ = step(LDA(alpha, np.full(32, 0.1), 100, 1e-9), X, lam, 1.0)
    np.testing.assert_allclose(result.q[0], alpha + 50.0 * (np.arange(16) == 3), atol=2e-3)


def test_bound_energy_and_statistics_are_those_of_the_returned_gamma_after_few_sweeps():
    # After few sweeps q is not optimal, but bound, energy and statistics are those of one q.
    for sweeps in (1, 2, 5):
        model = LDA(ALPHA, ETA, sweeps, 0.0)
        for d in range(4):
            result, statistics = step(model, X30[d : d + 1], LAM, 0.7, with_energy=True)
            gamma, counts = result.q[0], X30[d]
            phi = softmax(0.7 * (expected_log(gamma) + expected_log(LAM).T), axis=1)
            energy = np.sum(counts[:, None] * phi * (expected_log(gamma) + expected_log(LAM).T))
            bound = 0.7 * energy - np.sum(counts[:, None] * phi * np.log(phi))
            bound += prior_minus_entropy(gamma[None, :], ALPHA)
            assert result.bound[0] == pytest.approx(bound, rel=1e-10)
            assert result.energy[0] == pytest.approx(energy, rel=1e-10)
            np.testing.assert_allclose(statistics, (counts[:, None] * phi).T, rtol=1e-9)


# -------------------------------------------------------------------------- learned priors
def separated_corpus(alpha, n=500, length=60):
    """Draw documents whose words belong to one topic each, so that assignments are certain."""
    rng = np.random.default_rng(18)
    block = 8
    topics = np.kron(np.eye(alpha.size), rng.dirichlet(np.full(block, 2.0)))
    return np.array(
        [rng.multinomial(length, share @ topics) for share in rng.dirichlet(alpha, size=n)], float
    ), topics


def test_the_learned_document_prior_maximises_the_likelihood_of_separate_topics(start_at):
    truth = np.array([0.2, 0.5, 1.0])
    X, topics = separated_corpus(truth)
    start_at(1000.0 * topics + 0.01)
    estimator = TemperedLDA(
        3, doc_topic_prior="auto", topic_word_prior=0.01, temperature=None,
        learning_method="batch", max_iter=40, mean_change_tol=1e-6,
    ).fit(X)  # fmt: skip
    in_topic = X.reshape(len(X), 3, -1).sum(axis=2)

    def loss(log_alpha):
        # The topic counts are certain and have a Dirichlet-multinomial law.
        alpha = np.exp(log_alpha)
        return -np.sum(
            gammaln(alpha.sum()) - gammaln(alpha.sum() + in_topic.sum(axis=1))
            + np.sum(gammaln(alpha + in_topic) - gammaln(alpha), axis=1)
        )  # fmt: skip

    best = np.exp(scipy.optimize.minimize(loss, np.zeros(3)).x)
    np.testing.assert_allclose(estimator.doc_topic_prior_, best, rtol=0.02)
    np.testing.assert_allclose(estimator.doc_topic_prior_, truth, rtol=0.2)


def test_the_learned_word_prior_maximises_the_bound_of_given_topics():
    lam = random_topics(20, 4, 30)
    start = np.full(30, 0.2)
    model = LDA(np.ones(4), start, learn_topic_word_prior=True)
    eta = model.with_learned_priors(None, model.stats_from_topics(lam)).topic_word_prior

    def loss(log_eta):
        return -prior_minus_entropy(lam, np.full(30, np.exp(log_eta)))

    best = scipy.optimize.minimize_scalar(loss, bounds=(-6.0, 6.0), options={"xatol": 1e-9}).x
    np.testing.assert_allclose(eta, np.exp(best), rtol=1e-5)


@pytest.mark.parametrize("n_topics", [1, 3])
def test_learned_priors_keep_topics_positive_where_most_words_do_not_occur(n_topics):
    # The start is lam about 1; far smaller priors are learned from it after one small step.
    X = np.zeros((256, 300))
    X[:, :10] = np.random.default_rng(22).poisson(500.0, (256, 10))
    estimator = TemperedLDA(
        n_topics, doc_topic_prior="auto", topic_word_prior="auto", temperature=None,
        batch_size=128, max_iter=3, learning_offset=64.0, random_state=0,
    ).fit(X)  # fmt: skip
    assert np.all(estimator.components_ > 0.0) and np.isfinite(estimator.elbo_)
    assert estimator.topic_word_prior_ < 1.0


def test_prior_statistics_sum_weighted_expected_log_proportions():
    model = LDA(ALPHA, ETA, learn_doc_topic_prior=True)
    weights = np.array([1.0, 3.0, 0.5])
    batch = model.batch(sp.csr_array(X30), np.arange(3), weights)
    result = model.local_step(
        batch, model.expectation(model.stats_from_topics(LAM), batch, run), 1.0, run
    )
    total, weight = model.prior_statistics(batch, result)
    np.testing.assert_allclose(total, weights @ expected_log(result.q), rtol=1e-12)
    assert weight == 4.5
