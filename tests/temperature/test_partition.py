"""Laws of log C(T): agreement with exhaustive summation, order of the bounds, closed forms."""

import functools
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import betaln, digamma, expit, gammaln, log_expit, logsumexp

from skvt.temperature import _partition
from skvt.temperature._partition import (
    FORMS,
    METHODS,
    log_mean_power_sum,
    log_mean_power_sum_derivative,
    log_partition_lda,
    log_partition_lda_derivative,
    monte_carlo_log_partition,
    token_log_partition,
)

INV_TEMPS = np.array([1.0, 0.8, 0.5, 0.2])
MONTE_CARLO = ("nested", "log_mean", "mean_log")
LEGAL = [(f, m) for f in FORMS for m in METHODS if (f, m) != ("multinomial", "closed_form")]

# two topics, two words: three Beta variables, for quadrature
ALPHA2, ETA2 = np.array([0.8, 1.3]), np.array([0.9, 0.7])
# two topics, three words, sparse and uneven
ALPHA3, ETA3 = np.array([0.5, 0.8]), np.array([0.3, 0.6, 0.4])
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2)]


# ---- the truth, by enumeration ---------------------------------------------------------------


def log_moment(concentration, powers):
    """``log E[prod_i p_i^powers_i]`` under a Dirichlet."""
    a = concentration
    return (gammaln(a + powers) - gammaln(a)).sum() + gammaln(a.sum()) - gammaln((a + powers).sum())


def exact_joint(b, alpha, eta, n_docs, n_tokens):
    """Sum over every corpus and assignment; the Dirichlet integrals of each are known."""
    n_topics, n_words = len(alpha), len(eta)
    outcomes = list(itertools.product(range(n_topics), range(n_words)))
    terms = []
    for corpus in itertools.product(outcomes, repeat=n_docs * n_tokens):
        doc_counts = np.zeros((n_docs, n_topics))
        topic_counts = np.zeros((n_topics, n_words))
        for i, (z, w) in enumerate(corpus):
            doc_counts[i // n_tokens, z] += 1
            topic_counts[z, w] += 1
        terms.append(
            sum(log_moment(alpha, b * row) for row in doc_counts)
            + sum(log_moment(eta, b * row) for row in topic_counts)
        )
    return logsumexp(terms)


def beta_rule(a, b):
    """Nodes and weights for Beta(a, b): the trapezoid rule in the log-odds converges fast."""
    t = np.arange(-36.0, 36.0, 0.6)
    return expit(t), 0.6 * np.exp(a * log_expit(t) + b * log_expit(-t) - betaln(a, b))


@functools.cache
def quadrature_grid():
    """Weights of (theta, topic 0, topic 1), and the two words' probabilities on that grid."""
    theta, w_theta = beta_rule(*ALPHA2)
    x, w_x = beta_rule(*ETA2)
    theta = theta[:, None, None]
    p0 = theta * x[:, None] + (1 - theta) * x
    p1 = theta * (1 - x)[:, None] + (1 - theta) * (1 - x)
    return w_theta, w_x, theta, x, (p0, p1)


@functools.cache
def exact_multinomial(b, n_docs, n_tokens):
    """Sum over every corpus of words; theta and the topics by quadrature."""
    w_theta, w_x, _, _, p = quadrature_grid()
    powers = [p[0] ** b, p[1] ** b]
    documents = [
        np.tensordot(w_theta, math.prod(powers[w] for w in words), 1)
        for words in itertools.product(range(2), repeat=n_tokens)
    ]
    corpora = sum(map(math.prod, itertools.product(documents, repeat=n_docs)))
    return math.log(w_x @ corpora @ w_x)


@functools.cache
def exact_expectations(b, form):
    """(E[log g], log E[g]) by quadrature, two topics and two words."""
    w_theta, w_x, theta, x, p = quadrature_grid()
    if form == "multinomial":
        g = p[0] ** b + p[1] ** b
    else:
        s = x**b + (1 - x) ** b
        g = theta**b * s[:, None] + (1 - theta) ** b * s
    mean_log, mean = (w_x @ np.tensordot(w_theta, y, 1) @ w_x for y in (np.log(g), g))
    return mean_log, math.log(mean)


def exact(form, b, n_docs, n_tokens):
    if form == "joint":
        return exact_joint(b, ALPHA2, ETA2, n_docs, n_tokens)
    return exact_multinomial(b, n_docs, n_tokens)


def replicates(method, form, n_docs, n_tokens, *, n=24, n_draws=64, n_inner=20, priors=None):
    """Independent Monte Carlo estimates, (n, M)."""
    alpha, eta = priors or (ALPHA2, ETA2)
    rngs = np.random.default_rng(20).spawn(n)
    return np.array(
        [
            log_partition_lda(
                INV_TEMPS,
                alpha,
                eta,
                n_docs=n_docs,
                tokens_per_doc=n_tokens,
                form=form,
                method=method,
                n_draws=n_draws,
                n_inner=n_inner,
                rng=rng,
            )
            for rng in rngs
        ]
    )


def assert_unbiased(samples, truth):
    """The mean is within four standard errors, and these are small enough to mean something."""
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    assert np.all(error < 0.01 * np.maximum(np.abs(truth), 0.1))
    assert np.all(np.abs(samples.mean(axis=0) - truth) < 4 * error + 1e-9)


# ---- the reference checks itself -------------------------------------------------------------


def test_quadrature_agrees_with_dirichlet_moments():
    for b in INV_TEMPS:
        truth = exact_joint(b, ALPHA2, ETA2, 1, 1)
        assert_allclose(exact_expectations(b, "joint")[1], truth, rtol=0, atol=1e-9)
    assert_allclose(exact_multinomial(1.0, 2, 2), 0.0, atol=1e-9)


# ---- exhaustive summation --------------------------------------------------------------------


@pytest.mark.parametrize(("n_docs", "n_tokens"), [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("form", FORMS)
def test_nested_monte_carlo_agrees_with_exhaustive_summation(form, n_docs, n_tokens):
    truth = np.array([exact(form, b, n_docs, n_tokens) for b in INV_TEMPS])
    # Unbiased for C itself with one document; with two the bias is of order 1 / n_inner.
    n_inner = 20 if n_docs == 1 else 300
    estimates = replicates("nested", form, n_docs, n_tokens, n_inner=n_inner)
    assert_unbiased(np.exp(estimates), np.exp(truth))


def test_nested_monte_carlo_agrees_with_exhaustive_summation_for_three_words():
    truth = np.array([exact_joint(b, ALPHA3, ETA3, 2, 2) for b in INV_TEMPS])
    # Sparse priors: the draws scatter more, so more of them.
    sizes = {"n_draws": 200, "n_inner": 100}
    estimates = replicates("nested", "joint", 2, 2, priors=(ALPHA3, ETA3), **sizes)
    assert_unbiased(np.exp(estimates), np.exp(truth))


@pytest.mark.parametrize("form", FORMS)
def test_jensen_bounds_by_monte_carlo_agree_with_quadrature(form):
    truth = np.array([exact_expectations(b, form) for b in INV_TEMPS])  # (M, 2)
    n_all = 2 * 3
    assert_unbiased(replicates("mean_log", form, 2, 3) / n_all, truth[:, 0])
    assert_unbiased(np.exp(replicates("log_mean", form, 2, 3) / n_all), np.exp(truth[:, 1]))


@pytest.mark.parametrize("b", [0.9, 0.5, 0.1])
def test_closed_form_is_exact_for_a_single_token(b):
    closed = log_partition_lda([b], ALPHA3, ETA3, n_docs=1, tokens_per_doc=1)
    assert_allclose(closed, exact_joint(b, ALPHA3, ETA3, 1, 1), rtol=1e-12)


def test_closed_form_is_the_monte_carlo_bound_without_noise():
    closed = log_partition_lda(INV_TEMPS, ALPHA3, ETA3, n_docs=1, tokens_per_doc=1)
    samples = replicates("log_mean", "joint", 1, 1, priors=(ALPHA3, ETA3))
    assert_unbiased(np.exp(samples), np.exp(closed))


# ---- order -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_docs", "n_tokens"), SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_both_jensen_bounds_lie_below_and_the_ceiling_above(form, n_docs, n_tokens):
    # VT16 app. B.1 calls N D log E[g] an upper bound: it is not, from two tokens on.
    n_all = n_docs * n_tokens
    for b in (0.8, 0.5, 0.2):
        truth = exact(form, b, n_docs, n_tokens)
        mean_log, log_mean = (n_all * bound for bound in exact_expectations(b, form))
        ceiling = log_partition_lda(
            [b],
            ALPHA2,
            ETA2,
            n_docs=n_docs,
            tokens_per_doc=n_tokens,
            form=form,
            method="ceiling",
        )[0]
        assert mean_log < log_mean < truth + 1e-9
        assert truth < ceiling
        if n_all > 1:
            assert log_mean < truth - 1e-4


def test_sampled_methods_keep_the_order_of_the_bounds_draw_by_draw():
    for form in FORMS:
        mean_log, log_mean, nested = (
            replicates(method, form, 3, 4, n=3) for method in ("mean_log", "log_mean", "nested")
        )
        hot = INV_TEMPS < 1
        assert np.all(mean_log[:, hot] < log_mean[:, hot])
        assert np.all(log_mean[:, hot] < nested[:, hot])


@pytest.mark.parametrize(("form", "method"), LEGAL)
def test_log_partition_vanishes_at_unit_temperature_and_grows_with_it(form, method):
    inv_temps = np.linspace(1.0, 0.05, 12)
    value = log_partition_lda(
        inv_temps,
        [0.1, 0.2, 1.5],
        np.linspace(0.01, 2.0, 7),
        n_docs=5,
        tokens_per_doc=8.5,
        form=form,
        method=method,
        n_draws=5,
        n_inner=4,
        rng=np.random.default_rng(0),
    )
    assert value.shape == inv_temps.shape
    assert_allclose(value[0], 0.0, atol=1e-11)
    assert np.all(np.diff(value) > 0)
    if method == "ceiling":
        assert_allclose(np.diff(value, 2), 0.0, atol=1e-10)
    else:
        # a log of a sum of exponentials of inv_temp: convex
        assert np.all(np.diff(value, 2) > 0)


# ---- closed forms ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("a", [1 / 500, 0.7, 12.0])
def test_vector_prior_of_equal_entries_gives_the_symmetric_formula(a, n):
    b = INV_TEMPS
    f = math.log(n) + gammaln(a + b) - gammaln(a) + gammaln(n * a) - gammaln(n * a + b)
    assert_allclose(log_mean_power_sum(b, np.full(n, a)), f, rtol=1e-11, atol=1e-12)


def test_vector_prior_gives_the_sum_of_dirichlet_moments():
    a = np.array([0.02, 0.9, 5.0])
    for b in INV_TEMPS:
        truth = logsumexp([log_moment(a, b * row) for row in np.eye(3)])
        assert_allclose(log_mean_power_sum([b], a), truth, rtol=1e-12, atol=1e-13)


def test_equal_and_barely_unequal_concentrations_agree():
    a = np.array([0.3, 0.3, 0.3, 2.0, 2.0])
    nudged = a * (1 + 1e-13 * np.arange(5))
    for function in (log_mean_power_sum, log_mean_power_sum_derivative):
        assert_allclose(function(INV_TEMPS, a), function(INV_TEMPS, nudged), atol=1e-11)


def test_large_concentrations_approach_the_uniform_distribution():
    # p = 1/n exactly in the limit; the next term of the expansion is -b (1 - b) (n - 1) / (2 n a)
    n, a = 40, 1e8
    b = INV_TEMPS
    limit = (1 - b) * math.log(n) - b * (1 - b) * (n - 1) / (2 * n * a)
    assert_allclose(log_mean_power_sum(b, np.full(n, a)), limit, rtol=0, atol=5e-10)


@pytest.mark.parametrize(
    ("alpha", "eta"),
    [(ALPHA3, ETA3), (np.full(50, 1 / 50), np.full(300, 1 / 50)), ([2.0, 30.0], [0.001, 4.0, 9.0])],
)
def test_derivative_is_the_slope_of_the_closed_form(alpha, eta):
    b, step = np.array([0.9, 0.6, 0.3, 0.1]), 1e-5
    corpus = {"n_docs": 7, "tokens_per_doc": 3.5}
    up = log_partition_lda(b + step, alpha, eta, **corpus)
    down = log_partition_lda(b - step, alpha, eta, **corpus)
    slope = log_partition_lda_derivative(b, alpha, eta, **corpus)
    assert_allclose(slope, (up - down) / (2 * step), rtol=1e-7)
    assert np.all(slope < 0)


def test_derivative_at_unit_temperature_is_the_prior_mean_of_the_log_likelihood():
    # d/db log E[sum_i p_i^b] at b = 1 is E[sum_i p_i log p_i]
    a = np.array([0.4, 1.1, 3.0])
    total = a.sum()
    truth = (a / total * (digamma(a + 1) - digamma(total + 1))).sum()
    assert_allclose(log_mean_power_sum_derivative([1.0], a), truth, rtol=1e-12)


# ---- MAP -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_map_is_log_partition_at_the_mode_in_natural_parameters(form):
    # softmax coordinates: log density sum_i a_i log p_i + const, maximal at a / sum(a)
    alpha, eta = np.array([0.2, 0.9, 0.4]), np.array([0.05, 0.3, 2.0, 0.7])
    theta, word = alpha / alpha.sum(), eta / eta.sum()
    for mode, a in ((theta, alpha), (word, eta)):
        shifts = np.eye(len(a)) * 1e-4
        for shift in (*shifts, *-shifts):
            near = np.log(mode) + shift
            assert a @ (near - logsumexp(near)) < a @ np.log(mode)
    value = log_partition_lda(
        INV_TEMPS, alpha, eta, n_docs=3, tokens_per_doc=5, form=form, method="map"
    )
    per_token = token_log_partition(
        INV_TEMPS, np.log(theta), np.log(np.tile(word, (3, 1))), form=form
    )
    assert_allclose(value, 15 * per_token, rtol=1e-12, atol=1e-12)


def test_map_has_the_sign_of_appendix_a1_not_of_equation_15():
    # One topic: a categorical likelihood with natural parameter log p and normaliser logsumexp.
    eta = np.array([0.5, 2.0, 1.0])
    natural = np.log(eta / eta.sum()) + 3.0
    truth = [
        6 * (logsumexp(natural * b) - b * logsumexp(natural)) for b in INV_TEMPS
    ]  # N (a(beta / T) - a(beta) / T)
    for form in FORMS:
        value = log_partition_lda(
            INV_TEMPS, [1.0], eta, n_docs=2, tokens_per_doc=3, form=form, method="map"
        )
        assert_allclose(value, truth, rtol=1e-12, atol=1e-12)
        assert np.all(value[1:] > 0)


@pytest.mark.parametrize("form", FORMS)
def test_map_is_above_the_jensen_bound_and_the_ceiling_for_symmetric_priors(form):
    corpus = {"n_docs": 1, "tokens_per_doc": 1, "form": form}
    hot = INV_TEMPS[1:]
    value = log_partition_lda(hot, ALPHA2, ETA2, method="map", **corpus)
    assert np.all(value > [exact_expectations(b, form)[1] for b in hot])
    flat, flat_words = np.full(3, 0.1), np.full(5, 0.2)
    assert_allclose(
        log_partition_lda(hot, flat, flat_words, method="map", **corpus),
        log_partition_lda(hot, flat, flat_words, method="ceiling", **corpus),
        rtol=1e-12,
    )


# ---- sums in log space, blocks, memory --------------------------------------------------------


def dense_token_log_partition(b, log_theta, log_topics, form):
    joint = log_theta[:, :, None] + log_topics  # (S, K, V)
    if form == "joint":
        return logsumexp(b * joint, axis=(1, 2))
    return logsumexp(b * logsumexp(joint, axis=1), axis=1)


@pytest.mark.parametrize("block_size", [7, 2**18])
@pytest.mark.parametrize("concentration", [1.0, 1 / 500])
@pytest.mark.parametrize("form", FORMS)
def test_token_log_partition_equals_a_dense_sum(form, concentration, block_size, monkeypatch):
    # At 1/500 logs reach -5000: every product of exponentials underflows for some words.
    monkeypatch.setattr(_partition, "_BLOCK_SIZE", block_size)
    rng = np.random.default_rng(5)
    inv_temps = np.array([1.0, 0.3, 0.001])
    log_theta, log_topics = (
        np.log(rng.standard_gamma(concentration + 1, size))
        - rng.exponential(size=size) / concentration
        for size in ((6, 4), (4, 30))
    )
    log_theta -= logsumexp(log_theta, axis=1, keepdims=True)
    log_topics -= logsumexp(log_topics, axis=1, keepdims=True)
    value = token_log_partition(inv_temps, log_theta, log_topics, form=form)
    truth = [dense_token_log_partition(b, log_theta, log_topics, form) for b in inv_temps]
    assert_allclose(value, np.transpose(truth), rtol=1e-12, atol=1e-12)
    one = token_log_partition(inv_temps, log_theta[2], log_topics, form=form)
    assert_allclose(one, value[2], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_certain_topics_and_words_leave_nothing_to_sum(form):
    with np.errstate(divide="ignore"):
        log_theta = np.log([[1.0, 0.0], [0.0, 1.0]])
        log_topics = np.log([[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    value = token_log_partition([1.0, 0.25], log_theta, log_topics, form=form)
    assert_allclose(value, [[0.0, 0.0], [0.0, 0.75 * math.log(2)]], atol=1e-14)


def test_topics_drawn_in_blocks_are_dirichlet():
    eta = np.array([0.05, 0.4, 1.5, 0.3, 2.0, 0.8, 0.1])
    blocks = _partition._draw_log_topics(eta, 40_000, 3, np.random.default_rng(8))
    log_p = np.hstack(list(blocks))
    assert_allclose(logsumexp(log_p, axis=1), 0.0, atol=1e-12)
    total = eta.sum()
    p = np.exp(log_p)
    error = p.std(axis=0) / 200
    assert np.all(np.abs(p.mean(axis=0) - eta / total) < 4 * error)
    second = (np.diag(eta) + np.outer(eta, eta)) / (total * (total + 1))
    products = p[:, :, None] * p[:, None, :]
    assert np.all(np.abs(products.mean(axis=0) - second) < 4.5 * products.std(axis=0) / 200)
    error = log_p.std(axis=0) / 200
    assert np.all(np.abs(log_p.mean(axis=0) - (digamma(eta) - digamma(total))) < 4 * error)


@pytest.mark.parametrize("form", FORMS)
def test_tiny_concentrations_stay_finite(form):
    for method in MONTE_CARLO:
        value = log_partition_lda(
            [1.0, 0.5, 0.01],
            np.full(20, 1e-4),
            np.full(200, 1e-6),
            n_docs=1000,
            tokens_per_doc=100,
            form=form,
            method=method,
            n_draws=2,
            n_inner=3,
            rng=np.random.default_rng(1),
        )
        assert np.all(np.isfinite(value))
        assert_allclose(value[0], 0.0, atol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_memory_does_not_grow_with_topics_times_words(form):
    tracemalloc.start()
    try:
        log_partition_lda(
            [0.5],
            np.full(50, 0.02),
            np.full(40_000, 0.02),
            n_docs=10,
            tokens_per_doc=10,
            form=form,
            method="nested",
            n_draws=1,
            n_inner=4,
            rng=np.random.default_rng(1),
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The whole matrix of topics would be 16 MB, and its logs and powers as much again.
    assert peak < 14e6


def test_same_seed_gives_the_same_numbers_whatever_other_temperatures_are_asked():
    def run(inv_temps):
        return log_partition_lda(
            inv_temps,
            ALPHA3,
            ETA3,
            n_docs=2,
            tokens_per_doc=2,
            form="multinomial",
            method="nested",
            n_draws=3,
            n_inner=3,
            rng=np.random.default_rng(3),
        )

    assert_allclose(run([0.9, 0.4])[1], run([0.4])[0], rtol=1e-13)


# ---- any model -------------------------------------------------------------------------------


def test_monte_carlo_agrees_with_an_exponential_likelihood_under_a_gamma_prior():
    # int (r e^(-r x))^b dx = r^(b - 1) / b; E[r^(N (b - 1))] under Gamma(shape) is known
    shape, n_points, n_draws = 9.0, 3, 20_000
    estimate = monte_carlo_log_partition(
        lambda rng: rng.standard_gamma(shape),
        lambda rate, b: (b - 1) * np.log(rate) - np.log(b),
        INV_TEMPS,
        n_draws,
        np.random.default_rng(11),
        n_copies=n_points,
    )
    power = n_points * (INV_TEMPS - 1)
    log_mean = gammaln(shape + power) - gammaln(shape)
    truth = log_mean - n_points * np.log(INV_TEMPS)
    relative_variance = np.exp(gammaln(shape + 2 * power) - gammaln(shape) - 2 * log_mean) - 1
    error = np.sqrt(relative_variance / n_draws)
    assert error.max() < 0.01
    assert np.all(np.abs(estimate - truth) <= 4 * error + 1e-12)


def test_copies_multiply_the_local_log_partition():
    draws = iter([[0.0, 1.0], [0.0, 2.0]] * 3)
    log2 = math.log(2)
    truth = {
        "nested": math.log(math.exp(3) + math.exp(6)) - log2,
        "log_mean": 3 * (math.log(math.exp(1) + math.exp(2)) - log2),
        "mean_log": 4.5,
    }
    for method in MONTE_CARLO:
        value = monte_carlo_log_partition(
            lambda rng: next(draws),
            lambda draw, inv_temps: draw,
            [1.0, 0.5],
            2,
            np.random.default_rng(0),
            n_copies=3,
            method=method,
        )
        assert_allclose(value, [0.0, truth[method]], atol=1e-14)


# ---- bad arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"inverse_temperatures": [0.0]},
            r"inverse_temperatures=\[0.0\]; legal: .*\(0, 1\].*1 / T",
        ),
        ({"inverse_temperatures": [1.5]}, r"inverse_temperatures=\[1.5\]"),
        ({"inverse_temperatures": [np.nan]}, r"inverse_temperatures=\[nan\]"),
        ({"inverse_temperatures": []}, r"inverse_temperatures=\[\]"),
        ({"inverse_temperatures": [[0.5]]}, r"one-dimensional"),
        ({"alpha": [0.5, 0.0]}, r"alpha=\[0.5, 0.0\]; legal: .*positive"),
        ({"eta": 0.1}, r"eta=0.1; legal: .*numpy.full"),
        ({"eta": [np.inf]}, r"eta=\[inf\]"),
        ({"n_docs": 0}, r"n_docs=0; legal"),
        ({"tokens_per_doc": -1.0}, r"tokens_per_doc=-1.0; legal"),
        ({"tokens_per_doc": "5"}, r"tokens_per_doc='5'; legal"),
        ({"form": "both"}, r"form='both'; legal: 'joint', 'multinomial'"),
        ({"method": "exact"}, r"method='exact'; legal: 'closed_form'"),
        ({"method": "upper"}, r"method='upper'; legal: .*'log_mean'.*'ceiling'"),
        ({"form": "multinomial"}, r"method='closed_form' with form='multinomial'; .*'log_mean'"),
        ({"method": "nested"}, r"rng=None; legal: .*default_rng"),
        ({"method": "nested", "rng": 3}, r"rng=3; legal"),
        ({"method": "nested", "rng": np.random.default_rng(0), "n_draws": 0}, r"n_draws=0; legal"),
        ({"method": "nested", "rng": np.random.default_rng(0), "n_inner": 1.5}, r"n_inner=1.5"),
    ],
)
def test_bad_arguments_are_named_with_the_legal_range_and_the_remedy(change, message):
    arguments = {
        "inverse_temperatures": [0.5],
        "alpha": ALPHA3,
        "eta": ETA3,
        "n_docs": 2,
        "tokens_per_doc": 2,
    }
    log_partition_lda(**arguments)
    with pytest.raises(ValueError, match=message):
        log_partition_lda(**(arguments | change))


def test_shapes_that_disagree_are_refused():
    with pytest.raises(ValueError, match=r"log_theta has shape \(3,\).*legal"):
        token_log_partition([0.5], np.zeros(3), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"local_log_partition returned .* shape \(1,\)"):
        monte_carlo_log_partition(
            lambda rng: 0, lambda draw, b: 0.0, [0.5], 2, np.random.default_rng(0)
        )
