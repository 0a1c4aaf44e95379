"""Local steps given topics agree with enumeration, dense arithmetic and SciPy's laws.

A document is a list of tokens (word, weight): a count of 2.5 is two tokens of weight 1 and one of
weight 0.5. With b = 1/T and n_k the weight of the *other* tokens in topic k, the sampler's
conditional is

    p(z_i = k | z_-i) ~ ((alpha_k + b n_k) beta_{k w_i})^b.

Sweep 0 places the tokens in order given those before; each later sweep visits all in order. The
law after any number of sweeps is therefore a product of small matrices over all K^N assignments.
Of tokens of weight 1 the conditionals are those of the joint

    p(z) ~ prod_k prod_{m < n_k} (alpha_k + b m)^b  prod_i beta_{z_i w_i}^b,

at T = 1 the posterior p(z | w, beta). Of unequal weights there is no such joint.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from _entrances import entrance
from _pairs import pairs
from scipy import stats as laws
from scipy.special import digamma, gammainc, gammaln, polygamma

from skvt._compiled import run_serially as run
from skvt._compiled._random_bits import draw_binomial
from skvt._compiled._shared_loop import COUNTER_SIZE
from skvt.expfam import RunningStats
from skvt.inference import Workers
from skvt.models import Topics
from skvt.models.lda import _sampling as sampling
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._model import LDA


def counter():
    """Return the counter of a loop that one thread runs through."""
    return np.zeros(COUNTER_SIZE, np.int64)


# --------------------------------------------------------------------------------- by enumeration
def tokens_of(counts):
    """Return the words and the weights of the tokens of a dense row of counts."""
    words, weights = [], []
    for word, count in enumerate(counts):
        whole = int(np.ceil(count))
        words += [word] * whole
        weights += [1.0] * (whole - 1) + [count - (whole - 1)] * (whole > 0)
    return np.array(words, int), np.array(weights)


class Enumerated:
    """All assignments of a document's tokens, and the sampler's chain on them."""

    def __init__(self, counts, alpha, beta, b=1.0):
        self.words, self.weights = tokens_of(counts)
        self.alpha, self.beta, self.b = alpha, beta, b
        n, n_topics = self.words.size, alpha.size
        self.z = np.array(list(product(range(n_topics), repeat=n)), int).reshape(-1, n)
        onehot = np.eye(n_topics)[self.z]  # (states, N, K)
        self.sizes = np.einsum("snk,n->sk", onehot, self.weights)
        self.by_word = np.zeros((self.z.shape[0], beta.shape[1], n_topics))
        for i in range(n):
            self.by_word[:, self.words[i]] += self.weights[i] * onehot[:, i]

    def conditional(self, z, i, others):
        """Return p(z_i | z of the tokens ``others``), (K,)."""
        sizes = np.zeros(self.alpha.size)
        for j in others:
            sizes[z[j]] += self.weights[j]
        p = ((self.alpha + self.b * sizes) * self.beta[:, self.words[i]]) ** self.b
        return p / p.sum()

    def after(self, n_sweeps):
        """Return the law over assignments after so many sweeps, where sweep 0 does not count."""
        n, n_topics = self.words.size, self.alpha.size
        law = np.array([
            np.prod([self.conditional(z, i, range(i))[z[i]] for i in range(n)]) for z in self.z
        ])  # fmt: skip
        power = n_topics ** np.arange(n)[::-1]
        scan = np.eye(law.size)
        for i in range(n):
            step = np.zeros_like(scan)
            for s, z in enumerate(self.z):
                p = self.conditional(z, i, [j for j in range(n) if j != i])
                step[s, s + power[i] * (np.arange(n_topics) - z[i])] = p
            scan = scan @ step
        return law @ np.linalg.matrix_power(scan, n_sweeps)

    def joint(self):
        """Return the joint law of tokens of weight 1."""
        p = np.prod(self.beta[self.z, self.words] ** self.b, axis=1)
        for s, sizes in enumerate(self.sizes.astype(int)):
            for k, size in enumerate(sizes):
                p[s] *= np.prod((self.alpha[k] + self.b * np.arange(size)) ** self.b)
        return p / p.sum()


# ------------------------------------------------------------------------------- the package's
def given_topics(
    alpha, n_words, local="gibbs", *, dtype=np.float64, n_burn_in=5, n_samples=5, **of
):
    lda = LDA(np.asarray(alpha, dtype), np.full(n_words, 0.2, dtype), **of)
    return LDAGivenTopics.from_lda(lda, local, n_burn_in, n_samples)


def local_step(model, X, beta, b=1.0, *, seed=0, weights=None, runner=run, **options):
    """Return the result and the statistics (V, K) of the rows of X under topics beta (K, V)."""
    X = sp.csr_array(np.atleast_2d(X))
    n = X.shape[0]
    batch = model.batch(X, np.arange(n), np.ones(n) if weights is None else weights)
    log_beta = np.ascontiguousarray(np.log(beta).T[batch.active], model.dtype)
    result = model.local_step(batch, Topics(log_beta, seed), b, runner, **options)
    full = np.zeros((X.shape[1], model.n_components), model.dtype)
    if result.stats is not None:
        full[result.stats.rows] = result.stats.arrays[0]
    return result, full


def topics(seed, n_topics, n_words, sharp=0.7):
    return np.random.default_rng(seed).dirichlet(np.full(n_words, sharp), size=n_topics) + 1e-3


ALPHA, BETA = np.array([0.3, 0.7, 1.4]), topics(0, 3, 4)
DOCUMENTS = {
    "distinct words": [1.0, 1.0, 0.0, 1.0], "repeated words": [0.0, 3.0, 1.0, 0.0],
    "one word": [0.0, 0.0, 4.0, 0.0], "fractional": [0.0, 2.5, 0.0, 0.25],
    "less than a token": [0.6, 0.0, 0.0, 0.0],
}  # fmt: skip
each_inv_temp = pytest.mark.parametrize("b", [1.0, 0.6], ids=["T=1", "T>1"])
each_dtype = pytest.mark.parametrize(
    "dtype",
    [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)],
    ids=["double", "single"],
)


def agrees_with(law, chain, result, statistics, alpha, n):
    """One sample of each of n chains agrees with a law over assignments."""
    # The numbers of tokens of the topics have their joint distribution.
    sizes, which = np.unique(np.round(chain.sizes, 6), axis=0, return_inverse=True)
    expected = n * np.bincount(which.ravel(), weights=law, minlength=len(sizes))
    distance = np.abs((result.q - alpha)[:, None, :] - sizes[None]).max(axis=2)
    assert distance.min(axis=1).max() < 1e-4
    observed = np.bincount(distance.argmin(axis=1), minlength=len(sizes))
    likely = expected > 5.0
    if likely.sum() > 1:
        observed, expected = observed[likely], expected[likely]
        chi2 = np.sum((observed - expected) ** 2 / expected)
        assert laws.chi2.sf(chi2, likely.sum() - 1) > 1e-3
    # The mean number of tokens of each word and topic is right.
    mean = np.einsum("s,swk->wk", law, chain.by_word)
    variance = np.einsum("s,swk->wk", law, chain.by_word**2) - mean**2
    error = np.sqrt(np.maximum(variance, 0.0) / n)
    assert np.all(np.abs(statistics / n - mean) <= 3.7 * error + 1e-5)


# ------------------------------------------------------------------------------------- Gibbs
@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "name, b, dtype, n_sweeps", pairs(list(DOCUMENTS), [1.0, 0.6], [np.float64, np.float32], [1, 3])
)
def test_assignments_after_some_sweeps_have_the_enumerated_law(name, b, dtype, n_sweeps):
    n, counts = 20_000, DOCUMENTS[name]
    model = given_topics(ALPHA, 4, dtype=dtype, n_burn_in=n_sweeps - 1, n_samples=1)
    result, statistics = local_step(model, np.tile(counts, (n, 1)), BETA, b)
    assert result.q.dtype == statistics.dtype == dtype
    chain = Enumerated(counts, ALPHA, BETA, b)
    agrees_with(chain.after(n_sweeps), chain, result, statistics, ALPHA, n)


@each_inv_temp
@pytest.mark.parametrize("counts", [[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]], ids=str)
def test_pairs_of_tokens_have_their_joint_law_among_many_topics(counts, b):
    # The sampler proposes a topic of the document or one of the two blocks of the prior.
    n, alpha = 20_000, np.random.default_rng(20).uniform(0.05, 0.4, 20)
    model = given_topics(alpha, 4, n_burn_in=15, n_samples=1)
    result, _ = local_step(model, np.tile(counts, (n, 1)), topics(21, 20, 4), b, seed=5)
    chain = Enumerated(counts, alpha, topics(21, 20, 4), b)
    # This number identifies a pair of topics without its order.
    of_topics = np.random.default_rng(0).random(20)
    pairs, which = np.unique(np.round(chain.sizes @ of_topics, 9), return_inverse=True)
    assert pairs.size == 210
    law = np.bincount(which.ravel(), weights=chain.joint())
    found = np.abs(((result.q - alpha) @ of_topics)[:, None] - pairs).argmin(axis=1)
    observed, expected = np.bincount(found, minlength=210), n * law
    order = np.argsort(expected)  # Rare pairs are counted together.
    starts = np.flatnonzero(np.diff(np.cumsum(expected[order]) // 5.0, prepend=-1.0))
    observed, expected = (np.add.reduceat(part[order], starts) for part in (observed, expected))
    assert laws.chisquare(observed, expected).pvalue > 1e-4


def test_kept_sweeps_are_averaged():
    counts, n = np.array([1.0, 2.0, 0.0, 1.0]), 20_000
    model = given_topics(ALPHA, 4, n_burn_in=2, n_samples=3)
    result, statistics = local_step(model, np.tile(counts, (n, 1)), BETA)
    chain = Enumerated(counts, ALPHA, BETA)
    law = np.mean([chain.after(sweep) for sweep in (3, 4, 5)], axis=0)
    mean = np.einsum("s,swk->wk", law, chain.by_word)
    # An average of three sweeps varies less than one of them.
    error = np.sqrt((np.einsum("s,swk->wk", law, chain.by_word**2) - mean**2) / n)
    assert np.all(np.abs(statistics / n - mean) <= 3.5 * error + 1e-12)
    # An average of three sweeps has thirds of tokens.
    assert np.any(np.abs(3.0 * (result.q - ALPHA) % 3.0 - 1.0) < 1e-9)


# ------------------------------------------------------------------------------ large counts
def law_of_large_counts(counts, tokens, alpha, beta, b):
    """Return the law of the tokens of the first of two topics in two large entries and some tokens.

    ``p(m) ~ prod_k Gamma(alpha_k + b n_k) prod_w C(n_w, m_w) prod_k beta_kw^(b m_kw)``.
    """
    axes = [np.arange(count + 1.0) for count in (*counts, tokens)]
    log_p = [
        gammaln(n[-1] + 1.0) - gammaln(n + 1.0) - gammaln(n[-1] - n + 1.0)
        + b * n * np.log(beta[0, w]) + b * (n[-1] - n) * np.log(beta[1, w])
        for w, n in enumerate(axes)
    ]  # fmt: skip
    first, second, third = (np.exp(part - part.max()) for part in log_p)
    of_words = np.convolve(np.convolve(first, second), third)
    size = np.arange(of_words.size)
    prior = gammaln(alpha[0] + b * size) + gammaln(alpha[1] + b * size[::-1])
    with np.errstate(divide="ignore"):
        logs = np.log(of_words) + prior
    law = np.exp(logs - logs.max())
    return law / law.sum()


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "b, tokens, dtype", [(1.0, 0, np.float32), (1.0, 3, np.float64), (0.6, 0, np.float64)]
)
def test_large_counts_have_the_posterior_of_their_assignments(b, tokens, dtype):
    # The priors are as strong as the data, so that they matter.
    n, counts, alpha = 1_500, [1200, 1500], np.array([300.0, 900.0])
    beta = np.array([[0.6, 0.1, 0.3], [0.1, 0.2, 0.7]])
    model = given_topics(alpha, 3, dtype=dtype, n_burn_in=25, n_samples=1)
    X = np.tile([*counts, tokens], (n, 1)).astype(dtype)
    result, statistics = local_step(model, X, beta, b, seed=4)
    law = law_of_large_counts(counts, tokens, alpha, beta, b)
    sizes = np.round(result.q[:, 0] - alpha[0]).astype(int)
    edges = np.searchsorted(np.cumsum(law), np.linspace(0.05, 0.95, 19))
    expected = np.diff(np.cumsum(law)[edges], prepend=0.0, append=1.0)
    observed = np.bincount(np.searchsorted(edges, sizes), minlength=20)
    assert laws.chisquare(observed, n * expected).pvalue > 1e-3
    np.testing.assert_allclose(statistics.sum(axis=1), n * X[0], rtol=1e-5)
    # The odds of both topics among the tokens of a word are those of its probabilities.
    odds = statistics[:2, 0] / statistics[:2, 1]
    assert odds[0] / odds[1] == pytest.approx((6.0 / 0.5) ** b, rel=0.02)


def test_the_first_sweep_draws_large_counts_about_the_most_probable_proportions():
    beta = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6], [0.2, 0.6, 0.2]])
    theta = np.array([0.8, 0.05, 0.15])
    model = given_topics(np.ones(3), 3, n_burn_in=0, n_samples=1)
    result, _ = local_step(model, np.round(1e6 * theta @ beta), beta)
    # One sweep from equal proportions would lead half the way.
    np.testing.assert_allclose(result.q[0] / 1e6, theta, atol=0.06)


def test_the_tokens_of_an_entry_are_multinomial():
    theta, row = np.array([0.5, 0.0, 1.0, 0.01, 0.2]), np.array([1.0, 1.0, 0.3, 0.7, 1e-9])
    p = theta * row / (theta @ row)
    n, count, tails, out = 4_000, 2000.25, np.empty(5), np.empty((4_000, 5))
    draw = entrance(sampling._draw_assignments)
    state = np.uint64(7)
    for i in range(n):
        state = np.uint64(draw(count, theta, row, tails, out[i], state))
    np.testing.assert_allclose(out.sum(axis=1), count, rtol=1e-15)
    assert np.all((out % 1.0 == 0.25).sum(axis=1) == 1)
    assert np.all(out[:, 1] == 0.0)
    whole = np.floor(out)
    # The joint law of two topics shows in the law of their sum.
    for members in ([0], [2], [3], [0, 3], [0, 2]):
        law = laws.binom(2000, p[members].sum())
        uniform = law.cdf(whole[:, members].sum(axis=1) - 1.0)
        uniform += np.random.default_rng(0).random(n) * law.pmf(whole[:, members].sum(axis=1))
        assert laws.kstest(uniform, "uniform").pvalue > 1e-3
    of_rest = np.bincount(np.argmax(out % 1.0 == 0.25, axis=1), minlength=5)[[0, 2, 3]]
    assert laws.chisquare(of_rest, n * p[[0, 2, 3]] / p[[0, 2, 3]].sum()).pvalue > 1e-3


@pytest.mark.parametrize("p", [0.0, 1e-5, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("n", [0, 1, 17, 10**6, 10**15])
def test_binomial_variates_have_their_law(n, p):
    draws, state = np.empty(2_000), np.uint64(n + 5)
    for i in range(draws.size):
        draws[i], state = draw_binomial(float(n), p, np.uint64(state))
    assert np.all((draws >= 0.0) & (draws <= n) & (draws == np.floor(draws)))
    if min(p, 1.0 - p) * n == 0.0:
        np.testing.assert_array_equal(draws, n * p)
    elif n < 10**15:
        law, rng = laws.binom(n, p), np.random.default_rng(0)
        uniform = law.cdf(draws - 1.0) + rng.random(draws.size) * law.pmf(draws)
        assert laws.kstest(uniform, "uniform").pvalue > 1e-3
    else:
        normal = (draws - n * p) / np.sqrt(n * p * (1.0 - p))
        assert laws.kstest(normal, "norm").pvalue > 1e-3


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "b, dtype, largest", pairs([1.0, 0.6], [np.float64, np.float32], [2.0**20, 1e12, 1e18])
)
def test_large_counts_change_neither_other_documents_nor_bits_of_two_threads(largest, b, dtype):
    X, beta = documents(1, n=20, dtype=dtype), topics(1, 20, 30)
    X[3, 4] = X[3, 7] = X[8] = largest
    model, results = given_topics(np.linspace(0.1, 0.5, 20), 30, dtype=dtype), []
    for n_jobs in (1, 2):
        with Workers(n_jobs) as workers:
            result, statistics = local_step(model, X, beta, b, runner=workers.run)
            results.append((result.q, statistics))
    np.testing.assert_equal(*results)
    assert_every_token_has_a_topic(model, X, np.ones(20), result, statistics)
    small = X.max(axis=1) <= 1000.0
    alone, _ = local_step(model, X * small[:, None], beta, b)
    np.testing.assert_array_equal(result.q[small], alone.q[small])


def assert_every_token_has_a_topic(model, X, weights, result, statistics):
    """Statistics have the weight of each word, proportions the length of each document."""
    tolerance = {"rtol": 1e-10 if X.dtype == np.float64 else 1e-4, "atol": 1e-4}
    of_topics = result.q - model.doc_topic_prior
    np.testing.assert_allclose(statistics.sum(axis=1), weights @ X, **tolerance)
    np.testing.assert_allclose(of_topics.sum(axis=1), X.sum(axis=1), **tolerance)
    np.testing.assert_allclose(statistics.sum(axis=0), weights @ of_topics, **tolerance)


def documents(seed, n=60, n_words=30, dtype=np.float64, fractional=True):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.5, size=(n, n_words)).astype(dtype)
    if fractional:
        X *= rng.choice([1.0, 0.25, 1.75], size=X.shape)
    X[n // 2] = 0.0
    return X


@pytest.mark.parametrize("local", ["gibbs", "cvb0"])
@each_inv_temp
@each_dtype
def test_every_token_has_a_topic(local, b, dtype):
    X, beta = documents(1, dtype=dtype), topics(1, 5, 30)
    X[7, 3], X[8, 4] = 2345.5, 1000.0  # The sampler does not draw so many tokens one by one.
    weights = np.random.default_rng(2).uniform(0.2, 3.0, len(X))
    model = given_topics(np.linspace(0.1, 0.5, 5), 30, local, dtype=dtype)
    result, statistics = local_step(model, X, beta, b, weights=weights)
    assert_every_token_has_a_topic(model, X, weights, result, statistics)
    assert np.all(statistics >= 0.0)
    np.testing.assert_array_equal(result.q[30], model.doc_topic_prior)
    assert result.bound[30] == 0.0


@pytest.mark.parametrize("local", ["gibbs", "cvb0"])
def test_weights_multiply_the_statistics_of_the_same_samples(local):
    X, beta = documents(3, n=8), topics(3, 3, 30)
    model = given_topics(ALPHA, 30, local)
    parts = [local_step(model, X, beta, weights=row)[1] for row in np.eye(8)]
    weights = np.random.default_rng(4).uniform(0.2, 3.0, 8)
    result, statistics = local_step(model, X, beta, weights=weights)
    np.testing.assert_allclose(statistics, np.tensordot(weights, parts, 1), rtol=1e-12)
    np.testing.assert_array_equal(result.q, local_step(model, X, beta)[0].q)


def test_rounding_of_sums_does_not_lead_a_draw_out_of_its_block_of_topics():
    size = int(sampling.TOPICS_PER_BLOCK)
    # Only topics of the first block have the word.
    table, base = np.zeros((1, 3 * size), np.float32), np.ones((1, 3 * size), np.float32)
    table[0, :size] = 1.0 / size
    # The tabulated sum is a quarter too large, so that draws above 1 exceed the sum of all topics.
    cumulative = np.full((1, 3), 1.25, np.float32)
    find_topic_at = entrance(sampling._find_topic_at)
    draws = np.linspace(0.0, 1.25, 400, endpoint=False, dtype=np.float32)
    drawn = np.bincount([find_topic_at(draw, cumulative, 0, base, 0, table, 0) for draw in draws])
    assert drawn.size == size and drawn.min() > 0
    # The last topic of the block has its share and the excess.
    assert drawn[size - 1] == pytest.approx(400 * 0.25, rel=0.05)


# -------------------------------------------------------------------------------------- CVB0
def dense_cvb0(counts, alpha, beta, b, max_iter, tol):
    """Return alpha + E[n_k] and q(z) of each word (V, K). Entries are updated in turn."""
    q = (alpha * beta.T) ** b
    q /= q.sum(axis=1, keepdims=True)
    size = counts @ q
    for _ in range(max_iter):
        change = 0.0
        for w in np.flatnonzero(counts):
            others = size - min(counts[w], 1.0) * q[w]
            new = ((alpha + b * others) * beta[:, w]) ** b
            new /= new.sum()
            change += counts[w] * np.abs(new - q[w]).sum()
            size, q[w] = size + counts[w] * (new - q[w]), new
        if change / alpha.size < tol:
            break
    return alpha + size, q


@each_inv_temp
@pytest.mark.parametrize(("max_iter", "tol"), [(1, 0.0), (7, 0.0), (100, 0.05), (5000, 1e-12)])
def test_cvb0_equals_dense_arithmetic(b, max_iter, tol):
    X, beta, alpha = documents(9, n=20), topics(9, 4, 30), np.array([0.05, 0.2, 0.6, 1.1])
    model = given_topics(alpha, 30, "cvb0", max_doc_update_iter=max_iter, mean_change_tol=tol)
    result, statistics = local_step(model, X, beta, b)
    expected = np.zeros_like(statistics)
    for d, counts in enumerate(X):
        size, q = dense_cvb0(counts, alpha, beta, b, max_iter, tol)
        np.testing.assert_allclose(result.q[d], size, rtol=1e-9)
        expected += counts[:, None] * q
    np.testing.assert_allclose(statistics, expected, rtol=1e-9, atol=1e-12)


def test_rows_without_a_seed_are_solved_by_cvb0():
    X, beta = documents(10), topics(10, 3, 30)
    batch_of = given_topics(ALPHA, 30, "cvb0")
    batch = batch_of.batch(sp.csr_array(X), np.arange(60), np.ones(60))
    log_beta = np.ascontiguousarray(np.log(beta).T[batch.active])
    expected, _ = local_step(batch_of, X, beta)
    unseeded = Topics(log_beta)
    result = given_topics(ALPHA, 30).local_step(batch, unseeded, 1.0, run, with_stats=False)
    np.testing.assert_array_equal(result.q, expected.q)
    assert result.stats is None


# ------------------------------------------------------------------------- log probabilities
@pytest.mark.parametrize("local", ["gibbs", "cvb0"])
@each_inv_temp
@each_dtype
def test_the_bound_is_the_log_probability_at_the_proportions(local, b, dtype):
    X, beta = documents(11, dtype=dtype), topics(11, 3, 30)
    model = given_topics(ALPHA, 30, local, dtype=dtype)
    plain, _ = local_step(model, X, beta, b)
    assert plain.energy is None
    assert plain.marginal_energy is None
    result, _ = local_step(model, X, beta, b, with_energy=True, with_marginal=True)
    theta = result.q / result.q.sum(axis=1, keepdims=True)
    expected = np.sum(X * np.log(theta @ beta), axis=1)
    # The sampler's tables of topics have single precision for both types of data.
    rtol = 2e-5 if dtype == np.float32 else 1e-6 if local == "gibbs" else 1e-12
    np.testing.assert_allclose(result.energy, expected, rtol=rtol)
    np.testing.assert_allclose(result.bound, b * result.energy, rtol=1e-6)
    np.testing.assert_array_equal(result.marginal_energy, result.energy)


@each_inv_temp
@each_dtype
def test_words_of_underflowing_probability_have_a_finite_log_probability(b, dtype):
    # A draw from a small lam makes each topic's probability of word 1 underflow.
    log_beta = np.array([[-1.0, -2.0], [-1500.0, -1502.0], [-2000.0, -0.5]], dtype)
    counts = np.array([[2.0, 3.0, 1.0]], dtype)
    for local in ("gibbs", "cvb0"):
        model = given_topics([0.3, 0.6], 3, local, dtype=dtype)
        batch = model.batch(sp.csr_array(counts), np.array([0]), np.ones(1))
        result = model.local_step(batch, Topics(log_beta, 0), b, run)
        assert np.all(np.isfinite(result.q))
        theta = (result.q / result.q.sum())[0].astype(np.float64)
        value = counts[0] @ np.logaddexp.reduce(log_beta + np.log(theta), axis=1)
        assert result.bound[0] == pytest.approx(b * value, rel=1e-5)


# ------------------------------------------------------------------------------ gamma variates
def draw_log_gammas(array, rows, scale, prior, seed, out):
    """Write the draws, and check their sums and those of their shapes."""
    rows = rows.astype(np.int32)  # Models have rows of this type.
    log_sums, shapes = np.empty((2, -(-rows.size // sampling.WORDS_PER_BLOCK), out.shape[1]))
    sampling.draw_log_gammas(array, rows, scale, prior, seed, out, log_sums, shapes, counter())
    expected = prior[rows].sum(dtype=float) + scale * array[rows].sum(axis=0, dtype=float)
    np.testing.assert_allclose(shapes.sum(axis=0), expected, rtol=1e-6)
    np.testing.assert_allclose(
        np.logaddexp.reduce(log_sums), np.logaddexp.reduce(out.astype(float)), rtol=1e-12
    )


def log_gamma_cdf(x, a):
    """Return P(log g <= x) of g ~ Gamma(a, 1), where exp(x) may underflow."""
    small = x < -40.0
    power = np.exp(np.minimum(a * x - gammaln(a + 1.0), 0.0))
    return np.where(small, power, gammainc(a, np.exp(np.where(small, 0.0, x))))


@pytest.mark.parametrize("a", [1e-3, 0.03, 0.2, 0.9, 1.0, 3.7, 30.0, 1e3, 1e4])
def test_gamma_variates_have_the_law_of_log_gammas(a):
    n = 20_000
    draws = np.empty((n, 1), np.float32)
    draw_log_gammas(np.zeros((n, 1)), np.arange(n), 1.0, np.full(n, a), 5, draws)
    error = np.sqrt(polygamma(1, a) / n)
    assert abs(draws.mean() - digamma(a)) < 3.5 * error
    spread = (draws - digamma(a)) ** 2
    assert abs(spread.mean() - polygamma(1, a)) < 3.5 * spread.std() / n**0.5
    assert laws.kstest(draws[:, 0], log_gamma_cdf, args=(a,)).pvalue > 1e-3


@each_dtype
def test_gamma_variates_have_shapes_of_prior_plus_statistics_and_are_independent(dtype):
    n, rng = 20_000, np.random.default_rng(12)
    array = np.tile(np.array([0.0, 2.0, 7.0], dtype), (n, 1))
    prior = np.full(n, 0.4, dtype)
    draws = np.empty((n, 3), np.float32)
    rows = rng.permutation(n)
    draw_log_gammas(array, rows, dtype(0.5), prior, 9, draws)
    for k, a in enumerate([0.4, 1.4, 3.9]):
        assert laws.kstest(draws[:, k], log_gamma_cdf, args=(a,)).pvalue > 1e-3
    in_order = np.empty_like(draws)
    draw_log_gammas(array, np.arange(n), dtype(0.5), prior, 9, in_order)
    np.testing.assert_array_equal(draws, in_order[rows])
    # Topics, neighbouring words and neighbouring seeds are not correlated.
    other = np.empty_like(draws)
    draw_log_gammas(array, np.arange(n), dtype(0.5), prior, 10, other)
    ranks = laws.rankdata(np.hstack([in_order[:-1], in_order[1:], other[:-1]]), axis=0)
    correlation = np.corrcoef(ranks.T) - np.eye(9)
    assert np.abs(correlation).max() < 4.0 / n**0.5


def test_words_and_documents_do_not_share_random_numbers():
    model = given_topics(np.full(2, 0.5), 50)
    state = RunningStats([np.ones((50, 2))])
    batch = model.batch(sp.csr_array(np.ones((50, 50))), np.arange(50), np.ones(50))
    drawn = model.drawn_globals(state, batch, "ssvi", np.random.default_rng(0), run)
    by_its_seed = np.empty((50, 2), np.float32)
    draw_log_gammas(
        state.arrays[0], np.arange(50), 1.0, model.topic_word_prior, drawn.seed, by_its_seed
    )
    assert not np.any(by_its_seed == drawn.gammas.logs)


# ------------------------------------------------------------------------------------- topics
LAM = np.array([[0.25, 3.0], [2.2, 0.21], [0.5, 7.0], [4.0, 0.4], [0.2, 1.0]])


def model_and_batch(words, *, dtype=np.float64, local="gibbs", scale=1.0, own=False):
    """Return a model, statistics with lam = LAM, and a batch of these words.

    Topics have different priors if ``own`` is true.
    """
    model = given_topics([0.5, 0.5], 5, local, dtype=dtype)
    eta = 0.2
    if own:
        eta = np.array([[0.1, 0.5], [0.3, 0.2], [0.2, 2.0], [1.5, 0.1], [0.1, 0.4]])
        model = replace(model, topic_word_prior=eta.astype(dtype))
    stats = RunningStats([((LAM - eta) / scale).astype(dtype)])
    stats.rescale(scale)
    X = np.zeros((1, 5), dtype)
    X[0, words] = 1.0
    return model, stats, model.batch(sp.csr_array(X), np.array([0]), np.ones(1))


@pytest.mark.quick_cases(
    "ssvi-1.0-False-[1, 4]", "ssvi-1.0-False-[0, 2, 3]", "ssvi-a-0.5-True-[0, 1, 2, 3, 4]"
)
@pytest.mark.parametrize("words", [[1, 4], [0, 2, 3], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scale", "own"), [("ssvi", 1.0, False), ("ssvi-a", 0.5, True)])
def test_drawn_topics_have_the_law_of_the_dirichlet(kind, words, scale, own):
    model, stats, batch = model_and_batch(words, scale=scale, own=own)
    n, rng = 4000, np.random.default_rng(13)
    drawn = [model.drawn_globals(stats, batch, kind, rng, run) for _ in range(n)]
    beta = np.exp([topics.log_beta for topics in drawn])
    assert beta.shape == (n, len(words), 2)
    assert len({topics.seed for topics in drawn}) == n
    for k in range(2):
        lam, total = LAM[words, k], LAM[:, k].sum()
        for a in range(len(words)):
            law = laws.beta(lam[a], total - lam[a])
            assert laws.kstest(beta[:, a, k], law.cdf).pvalue > 1e-3
        # Compare covariances with those of the Dirichlet distribution.
        mean = lam / total
        covariance = (np.diag(mean) - np.outer(mean, mean)) / (total + 1.0)
        centred = beta[:, :, k] - mean
        products = centred[:, :, None] * centred[:, None, :]
        error = products.std(axis=0) / n**0.5
        assert np.all(np.abs(products.mean(axis=0) - covariance) < 3.7 * error)
        if len(words) < 5:
            rest = total - lam.sum()
            twin = rng.dirichlet(np.append(lam, rest), size=n)
            assert laws.ks_2samp(beta[:, :, k].sum(axis=1), 1.0 - twin[:, -1]).pvalue > 1e-3
        else:
            np.testing.assert_allclose(beta[:, :, k].sum(axis=1), 1.0, rtol=1e-6)
    # Topics are drawn independently.
    correlation = laws.spearmanr(beta[:, 0, 0], beta[:, 0, 1]).statistic
    assert abs(correlation) < 4.0 / n**0.5


def test_both_global_steps_draw_the_same_topics():
    model, stats, batch = model_and_batch([0, 2, 3])
    full = model.drawn_globals(stats, batch, "ssvi", np.random.default_rng(1), run)
    part = model.drawn_globals(stats, batch, "ssvi-a", np.random.default_rng(1), run)
    np.testing.assert_array_equal(full.log_beta, part.log_beta)
    np.testing.assert_allclose(full.gammas.logs - full.gammas.log_totals, full.log_beta, rtol=1e-5)
    assert part.gammas is None


@each_dtype
@pytest.mark.parametrize("local", ["gibbs", "cvb0", "mean_field"])
@pytest.mark.parametrize("own", [False, True])
def test_expected_topics_follow_their_formulas(dtype, local, own):
    words = [0, 2, 3]
    model, stats, batch = model_and_batch(words, dtype=dtype, local=local, scale=0.25, own=own)
    expected_log = digamma(LAM) - digamma(LAM.sum(axis=0))
    log_mean = np.log(LAM / LAM.sum(axis=0))
    rng = np.random.default_rng(2)
    tolerance = {"rtol": 1e-6 if dtype == np.float32 else 1e-12}
    mean_field = model.drawn_globals(stats, batch, "mean_field", rng, run).log_beta
    np.testing.assert_allclose(mean_field, expected_log[words], **tolerance)
    point = model.drawn_globals(stats, batch, "map", rng, run).log_beta
    np.testing.assert_allclose(point, log_mean[words], **tolerance)
    assert mean_field.dtype == point.dtype == dtype


@each_dtype
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_projection_raises_negative_statistics_to_the_prior_alone(dtype, scale):
    rng = np.random.default_rng(14)
    model = given_topics([0.5, 0.5], 6, dtype=dtype)
    values = rng.normal(0.0, 0.3, size=(6, 2))
    stats = RunningStats([(values / scale).astype(dtype)])
    stats.rescale(scale)
    model.project(stats)
    lam = model.natural_parameters(stats)[0].T
    expected = np.maximum(values, 0.0) + 0.2
    np.testing.assert_allclose(lam, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(stats.sums[0], (expected - 0.2).sum(axis=0), rtol=1e-5)
    assert np.any(values + 0.2 < 0.0)


# -------------------------------------------------------------------------------- mean field
def test_mean_field_steps_equal_those_of_lda():
    X = documents(15)
    lda = LDA(ALPHA, np.full(30, 0.2))
    model = LDAGivenTopics.from_lda(lda, "mean_field", 5, 5)
    lam = np.random.default_rng(16).gamma(1.0, 2.0, size=(3, 30)) + 0.1
    batch = lda.batch(sp.csr_array(X), np.arange(60), np.ones(60))
    g = lda.expectation(lda.stats_from_topics(lam), batch, run)
    for b in (1.0, 0.7, np.linspace(0.3, 1.0, 60)):
        expected = lda.local_step(batch, g, b, run, with_energy=True)
        for handed in (g, g._replace(seed=3)):
            result = model.local_step(batch, handed, b, run, with_energy=True)
            np.testing.assert_array_equal(result.q, expected.q)
            np.testing.assert_array_equal(result.bound, expected.bound)
            np.testing.assert_array_equal(result.stats.arrays[0], expected.stats.arrays[0])
    # From Python 3.13 on, == of dataclasses would compare arrays entry by entry.
    np.testing.assert_equal(vars(model.mean_field()), vars(model))
    assert given_topics(ALPHA, 30).mean_field().local == "mean_field"
