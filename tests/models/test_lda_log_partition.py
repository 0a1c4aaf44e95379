"""Laws of LDA's log C(T): agreement with exhaustive summation, order of the bounds, slopes."""

import functools
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import betaln, digamma, expit, gammaln, log_expit, logsumexp

from skvt.models.lda import LDA
from skvt.models.lda import _log_partition as room
from skvt.models.lda._log_partition import METHODS, Corpus, Draws, log_partition

INV_TEMPS = np.array([1.0, 0.8, 0.5, 0.2])
SAMPLED = ("nested", "log_mean", "mean_log")

# two topics, two words: three Beta variables, for quadrature
ALPHA2, ETA2 = np.array([0.8, 1.3]), np.array([0.9, 0.7])
# two topics, three words, sparse and uneven
ALPHA3, ETA3 = np.array([0.5, 0.8]), np.array([0.3, 0.6, 0.4])
# topics with priors of their own
OWN3 = np.array([[2.3, 0.6, 0.1], [0.2, 0.5, 0.9]])


def closed_form(alpha, eta, inv_temps):
    """``(log C(T), slope)`` of one token by the model."""
    model = LDA(alpha, eta.T)
    return model.tempered_log_partition(np.asarray(inv_temps))


# ---- the truth, by enumeration ---------------------------------------------------------------


def log_moment(concentration, powers):
    """``log E[prod_i p_i^powers_i]`` under a Dirichlet."""
    a = concentration
    return (gammaln(a + powers) - gammaln(a)).sum() + gammaln(a.sum()) - gammaln((a + powers).sum())


def exact_joint(b, alpha, eta, n_docs, n_tokens):
    """Sum over every corpus and assignment; the Dirichlet integrals of each are known."""
    n_topics, n_words = len(alpha), eta.shape[-1]
    own = np.broadcast_to(eta, (n_topics, n_words))
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
            + sum(log_moment(eta, b * row) for eta, row in zip(own, topic_counts, strict=True))
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


def replicates(method, n_docs, n_tokens, *, n=24, n_draws=64, n_inner=20):
    """Independent Monte Carlo estimates of one token's log C(T), (n, M)."""
    corpus = Corpus(n_docs, n_tokens)
    rngs = np.random.default_rng(20).spawn(n)
    return np.array([
        log_partition(INV_TEMPS, ALPHA2, ETA2, method, corpus, Draws(rng, n_draws, n_inner))[0]
        for rng in rngs
    ])  # fmt: skip


def assert_unbiased(samples, truth):
    """The mean is within four standard errors, and these are small enough to mean something."""
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    assert np.all(error < 0.01 * np.maximum(np.abs(truth), 0.1))
    assert np.all(np.abs(samples.mean(axis=0) - truth) < 4 * error + 1e-9)


# ---- the reference checks itself -------------------------------------------------------------


# ---- exhaustive summation --------------------------------------------------------------------


@pytest.mark.quick_cases("1-2")
@pytest.mark.parametrize(("n_docs", "n_tokens"), [(1, 1), (1, 2), (2, 2)])
def test_nested_monte_carlo_agrees_with_exhaustive_summation(n_docs, n_tokens):
    truth = np.array([exact_multinomial(b, n_docs, n_tokens) for b in INV_TEMPS])
    # Unbiased for C itself with one document; with two the bias is of order 1 / n_inner.
    n_inner = 20 if n_docs == 1 else 300
    estimates = replicates("nested", n_docs, n_tokens, n_inner=n_inner)
    assert_unbiased(np.exp(n_docs * n_tokens * estimates), np.exp(truth))


@pytest.mark.slow
def test_jensen_bounds_by_monte_carlo_agree_with_quadrature():
    truth = np.array([exact_expectations(b, "multinomial") for b in INV_TEMPS])  # (M, 2)
    assert_unbiased(replicates("mean_log", 2, 3), truth[:, 0])
    assert_unbiased(np.exp(replicates("log_mean", 2, 3)), np.exp(truth[:, 1]))


@pytest.mark.parametrize("b", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("eta", [ETA3, OWN3], ids=["shared", "own"])
def test_closed_form_is_exact_for_a_single_token(b, eta):
    truth = exact_joint(b, ALPHA3, eta, 1, 1)
    assert_allclose(closed_form(ALPHA3, eta, [b])[0], truth, rtol=1e-12)
    near = closed_form(ALPHA3, eta, [b - 1e-6, b + 1e-6])[0]
    assert_allclose(closed_form(ALPHA3, eta, [b])[1], np.diff(near) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_topics_that_are_all_but_known_leave_nothing_to_estimate(method, monkeypatch):
    monkeypatch.setattr(room, "_BLOCK_SIZE", 2 * 16)  # blocks of two words
    alpha = 1e9 * np.array([0.3, 0.7])
    eta = 1e9 * np.array([[0.7, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.4]])
    words = np.array([0.3, 0.7]) @ (eta / 1e9)
    draws = Draws(np.random.default_rng(0), 2, 2)
    found = log_partition(INV_TEMPS, alpha, eta, method, Corpus(2, 3.0), draws)
    powers = words[:, None] ** INV_TEMPS
    assert_allclose(found[0], np.log(powers.sum(axis=0)), atol=1e-3)
    assert_allclose(found[1], np.log(words) @ powers / powers.sum(axis=0), rtol=1e-3)


# ---- order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_estimates_vanish_at_unit_temperature_and_are_convex_with_their_own_slope(method):
    def estimate(inv_temps):
        return log_partition(
            inv_temps, np.array([0.1, 0.2, 1.5]), np.linspace(0.01, 2.0, 7), method,
            Corpus(5, 8.5), Draws(np.random.default_rng(0)),
        )  # fmt: skip

    inv_temps, step = np.linspace(1.0, 0.05, 12), 1e-5
    value, slope = estimate(inv_temps)
    assert_allclose(value[0], 0.0, atol=1e-13)
    assert np.all(np.diff(value) > 0)
    # a log of a sum of exponentials of inv_temp: convex
    assert np.all(np.diff(value, 2) > 0)
    difference = estimate(inv_temps[1:] + step)[0] - estimate(inv_temps[1:] - step)[0]
    assert_allclose(slope[1:], difference / (2 * step), rtol=1e-7)


# ---- MAP -------------------------------------------------------------------------------------


def test_map_is_at_the_mode_in_natural_parameters_with_the_sign_of_appendix_a1():
    # softmax coordinates: log density sum_i a_i log p_i + const, maximal at a / sum(a)
    eta = np.array([0.05, 0.3, 2.0, 0.7])
    mode = np.log(eta / eta.sum())
    shifts = np.eye(len(eta)) * 1e-4
    for shift in (*shifts, *-shifts):
        assert eta @ (mode + shift - logsumexp(mode + shift)) < eta @ mode
    # A categorical likelihood with natural parameter log p + any and normaliser logsumexp.
    natural = mode + 3.0
    truth = [
        logsumexp(natural * b) - b * logsumexp(natural) for b in INV_TEMPS
    ]  # a(beta / T) - a(beta) / T
    value, _ = log_partition(INV_TEMPS, ALPHA2, eta, "map", Corpus(2, 3), Draws(None))
    assert_allclose(value, truth, rtol=1e-12, atol=1e-12)


# ---- sums in log space, blocks, memory --------------------------------------------------------


@pytest.mark.parametrize("width", [7, 30])
@pytest.mark.parametrize("concentration", [1.0, 1 / 500])
def test_token_sums_equal_a_dense_sum(concentration, width):
    # At 1/500 logs reach -5000: every product of exponentials underflows for some words.
    rng = np.random.default_rng(5)
    inv_temps = np.array([1.0, 0.3, 0.001])
    log_theta, log_topics = (
        np.log(rng.standard_gamma(concentration + 1, size))
        - rng.exponential(size=size) / concentration
        for size in ((6, 4), (4, 30))
    )
    log_theta -= logsumexp(log_theta, axis=1, keepdims=True)
    log_topics -= logsumexp(log_topics, axis=1, keepdims=True)
    blocks = (log_topics[:, j : j + width] for j in range(0, 30, width))
    value, _ = room.mixture_sums(inv_temps, log_theta, blocks)
    log_p = logsumexp(log_theta[:, :, None] + log_topics, axis=1)
    truth = [logsumexp(b * log_p, axis=1) for b in inv_temps]
    assert_allclose(value, np.transpose(truth), rtol=1e-12, atol=1e-12)


def test_topics_drawn_in_blocks_are_dirichlet():
    eta = np.array([0.05, 0.4, 1.5, 0.3, 2.0, 0.8, 0.1])
    blocks = room._log_topics(eta, 40_000, 3, np.random.default_rng(8))
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


@pytest.mark.parametrize("method", SAMPLED)
def test_tiny_concentrations_stay_finite(method):
    value, slope = log_partition(
        np.array([1.0, 0.5, 0.01]), np.full(20, 1e-4), np.full(200, 1e-6), method,
        Corpus(1000, 100), Draws(np.random.default_rng(1), 2, 3),
    )  # fmt: skip
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(slope))
    assert_allclose(value[0], 0.0, atol=1e-13)


def test_memory_does_not_grow_with_topics_times_words():
    tracemalloc.start()
    try:
        log_partition(
            np.array([0.5]), np.full(50, 0.02), np.full(40_000, 0.02), "nested", Corpus(10, 10),
            Draws(np.random.default_rng(1), 1, 4),
        )  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The whole matrix of topics would be 16 MB, and its logs and powers as much again.
    assert peak < 14e6


# ---- the model's face -------------------------------------------------------------------------


def test_model_estimates_for_a_corpus_of_this_size_with_the_same_draws_each_time():
    model = LDA(ALPHA3, ETA3)
    values = [model.estimated_log_partition([0.5], "nested", 4, 12.0)[0] for _ in range(2)]
    rng = np.random.default_rng(0)
    truth, _ = log_partition(np.array([0.5]), ALPHA3, ETA3, "nested", Corpus(4, 3.0), Draws(rng))
    np.testing.assert_array_equal(values, [truth, truth])
