"""Draws of latents given data leave the joint law of latents and data as it is.

Latents x and data y are simulated from prior and likelihood, and then the kernel of the package
draws x' given y, where it can from x itself, which is an exact draw from p(x | y). If the kernel
has the posterior for its stationary law, (x', y) has the law of (x, y), and every function of both
has the same mean: Geweke (2004, "Getting it right"), with independent replicates in place of one
long chain. All means of a test are compared at once: a correct kernel is reported with probability
ALARM at most.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats as laws

from skvt._compiled import run_serially as run
from skvt.contracts import RowBatch
from skvt.models import Topics
from skvt.models.gap_nmf._model import GaPNMF, Spectra
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._model import LDA

# Probability that a test fails although the kernel is right.
ALARM = 1e-4


def scores(differences):
    """Return the mean over the first axis in standard errors, which is 0 where nothing differs."""
    d = np.asarray(differences, float).reshape(len(differences), -1)
    error = d.std(axis=0) / np.sqrt(len(d))
    return d.mean(axis=0) / np.where(error > 0.0, error, 1.0)


def assert_centred(**functions):
    """The differences of all functions have mean 0."""
    z = {name: scores(differences) for name, differences in functions.items()}
    limit = laws.norm.isf(0.5 * ALARM / sum(part.size for part in z.values()))
    found = {name: float(np.abs(part).max()) for name, part in z.items()}
    assert max(found.values()) < limit, (limit, found)


def products(a, b):
    """Return the products of each pair of columns, (n, A B)."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


# ----------------------------------------------------------------------------------- topic models
def simulated_documents(rng, alpha, beta, n, n_tokens):
    """Draw the tokens of each topic (n, K), of each word (n, V), and of both (V, K)."""
    theta = rng.dirichlet(alpha, size=n)
    sizes = rng.multinomial(n_tokens, theta)
    of_both = np.zeros((beta.shape[1], alpha.size))
    counts = np.zeros((n, beta.shape[1]))
    for k, p in enumerate(beta):
        words = rng.multinomial(sizes[:, k], p)
        of_both[:, k] = words.sum(axis=0)
        counts += words
    return sizes.astype(float), counts, of_both


def redrawn_documents(alpha, beta, counts, n_sweeps, seed):
    """Return the sampler's tokens of each topic (n, K), and of each word and topic (V, K)."""
    lda = LDA(alpha, np.full(beta.shape[1], 0.2))
    model = LDAGivenTopics.from_lda(lda, "gibbs", n_sweeps - 1, 1)
    batch = model.batch(sp.csr_array(counts), np.arange(len(counts)), np.ones(len(counts)))
    log_beta = np.ascontiguousarray(np.log(beta).T[batch.active])
    result = model.local_step(batch, Topics(log_beta, seed), 1.0, run)
    statistics = np.zeros((beta.shape[1], alpha.size))
    statistics[result.stats.rows] = result.stats.arrays[0]
    return result.q - alpha, statistics


def assert_same_law_of_documents(alpha, beta, counts, sizes, redrawn):
    """Moments of topics, and of topics with words, do not change."""
    np.testing.assert_allclose(redrawn.sum(axis=1), counts.sum(axis=1))
    # Squares are taken about the means, so that they lose no digits.
    expected = counts.sum(axis=1, keepdims=True) * alpha / alpha.sum()
    old, new, words = sizes - expected, redrawn - expected, counts - counts.mean(axis=0)
    log_likelihood = [
        (counts * np.log((alpha + part) @ beta)).sum(axis=1) for part in (redrawn, sizes)
    ]
    assert_centred(
        sizes=new - old,
        squares=new**2 - old**2,
        neighbours=new[:, 1:] * new[:, :-1] - old[:, 1:] * old[:, :-1],
        with_words=products(new - old, words),
        log_likelihood=log_likelihood[0] - log_likelihood[1],
    )


def assert_same_statistics(alpha, beta, n, n_tokens, before, after):
    """The tokens of each word and topic (V, K) change no more than by chance."""
    total = alpha.sum()
    share = alpha / total * beta.T
    second = alpha * (alpha + 1.0) / (total * (total + 1.0)) * beta.T**2
    variance = n_tokens * share * (1.0 - share) + n_tokens * (n_tokens - 1) * (second - share**2)
    # The difference has twice this variance at most, since both have the same words.
    z = (after - before) / np.sqrt(2.0 * n * variance)
    z = z[n * n_tokens * share > 25.0]
    assert z.size > 50 and np.abs(z).max() < laws.norm.isf(0.5 * ALARM / z.size)


@pytest.mark.parametrize("n_topics", [17, 40])
def test_topics_of_tokens_are_redrawn_by_their_law(n_topics):
    n = 5_000
    # The priors are as strong as the data, so that 20 sweeps forget where they began.
    rng = np.random.default_rng(n_topics)
    alpha = rng.uniform(0.1, 0.5, n_topics)
    beta = rng.dirichlet(np.full(12, 0.5), size=n_topics) + 1e-4
    beta /= beta.sum(axis=1, keepdims=True)
    sizes, counts, of_both = simulated_documents(rng, alpha, beta, n, 8)
    redrawn, statistics = redrawn_documents(alpha, beta, counts, 20, seed=1)
    assert_same_law_of_documents(alpha, beta, counts, sizes, redrawn)
    assert_same_statistics(alpha, beta, n, 8, of_both, statistics)


def test_tokens_of_large_counts_are_redrawn_by_their_law():
    n = 300
    # Two words have more than 1,000 tokens each, and a third one has some 600. The prior counts as
    # much as the tokens, so that a sweep forgets half of its start.
    rng = np.random.default_rng(5)
    alpha = rng.uniform(100.0, 260.0, 20)
    beta = np.column_stack([rng.dirichlet(np.full(2, 4.0), size=20), np.full(20, 0.2)])
    beta[::3, 2] = 0.3
    beta /= beta.sum(axis=1, keepdims=True)
    sizes, counts, of_both = simulated_documents(rng, alpha, beta, n, 3_600)
    assert counts[:, :2].min() > 1000 and counts[:, 2].max() < 1000
    redrawn, statistics = redrawn_documents(alpha, beta, counts, 15, seed=2)
    assert_same_law_of_documents(alpha, beta, counts, sizes, redrawn)
    assert_same_statistics(alpha, beta, n, 3_600, of_both, statistics)


# --------------------------------------------------------------------------------------- GaP-NMF
def simulated_frames(rng, rates, prior, n, missing):
    """Draw activations (n, K), counts by origin (n, K, F), counts with NaN, and their mask."""
    H = rng.gamma(prior, 1.0 / prior, size=(n, len(rates)))
    origins = rng.poisson(H[:, :, None] * rates).astype(float)
    Y = origins.sum(axis=1)
    seen = rng.random(Y.shape) >= missing
    origins *= seen[:, None]
    return H, origins, np.where(seen, Y, np.nan), seen.astype(float)


def redrawn_frames(rates, prior, Y, H, sweeps, seed):
    """Return the sampler's activations and statistics after a start from H."""
    K, F = rates.shape
    n_burn_in, n_samples = sweeps
    gap = GaPNMF(K, F, activation_shape=prior, n_burn_in=n_burn_in, n_samples=n_samples)
    batch = RowBatch(Y, np.ones(len(Y)), np.arange(len(Y)), row_starts=H)
    with np.errstate(divide="ignore"):
        g = Spectra(np.log(rates), rates, seed)
    result = gap.local_step(batch, g, 1.0, run)
    return result.row_starts, result.stats.arrays


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_activations_of_disjoint_spectra_are_redrawn_by_their_law(missing):
    n = 6_000
    # Spectra without a common bin have expected allocations that equal the allocations.
    rng, prior = np.random.default_rng(13), 0.6
    rates = np.kron(np.eye(3), np.ones(2)) * np.array([0.8, 0.1, 2.0, 0.5, 3.0, 6.0])
    H, origins, Y, seen = simulated_frames(rng, rates, prior, n, missing)
    redrawn, (SW, SH) = redrawn_frames(rates, prior, Y, H, (2, 2), seed=3)
    y = np.nan_to_num(Y)
    assert_centred(
        activations=redrawn - H,
        squares=redrawn**2 - H**2,
        logs=np.log(redrawn + 0.1) - np.log(H + 0.1),
        pairs=redrawn[:, 1:] * redrawn[:, :-1] - H[:, 1:] * H[:, :-1],
        with_counts=products(redrawn - H, y),
    )
    np.testing.assert_allclose(SW, origins.sum(axis=0), rtol=1e-9)
    rate = prior + seen @ rates.T
    expected = (prior + origins.sum(axis=2)) / rate
    np.testing.assert_allclose(SH, expected.T @ seen, rtol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_activations_of_any_spectra_lack_only_the_variance_of_allocations(missing):
    n = 8_000
    # Allocations are in expectation: shape' = b + E[n | H, Y]. Given Y, E[H'] is therefore E[H],
    # and what lacks to the second moment is Var(n | H, Y) / rate^2, of multinomials.
    rng, prior = np.random.default_rng(17), 0.6
    rates = rng.gamma(0.8, 1.5, size=(3, 5))
    H, origins, Y, seen = simulated_frames(rng, rates, prior, n, missing)
    redrawn, (SW, SH) = redrawn_frames(rates, prior, Y, H, (0, 1), seed=4)
    y, rate = np.nan_to_num(Y), prior + seen @ rates.T
    shares = H[:, :, None] * rates
    shares /= shares.sum(axis=1, keepdims=True)
    varying = -np.einsum("nf,njf,nkf->njk", y, shares, shares)
    varying[:, np.arange(3), np.arange(3)] += np.einsum("nf,nkf->nk", y, shares)
    varying /= rate[:, :, None] * rate[:, None, :]
    second = products(redrawn, redrawn) - products(H, H)
    allocated = y[:, None] * shares
    assert_centred(
        activations=redrawn - H,
        second=second + varying.reshape(n, -1),
        with_counts=products(redrawn - H, y),
        # The summed statistics have the mean of the simulated values.
        allocations=allocated - origins,
        exposed=((prior + allocated.sum(axis=2)) / rate - H)[:, :, None] * seen[:, None],
    )
    np.testing.assert_allclose(SW, allocated.sum(axis=0), rtol=1e-9)
    expected = (prior + allocated.sum(axis=2)) / rate
    np.testing.assert_allclose(SH, expected.T @ seen, rtol=1e-9)
