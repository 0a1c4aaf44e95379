"""Laws of mixture weights agree with formulas and enumeration."""

import itertools

import numpy as np
import pytest
from _engines import bound, passes
from models._textbook import KINDS, dirichlet_divergence, log_marginal, standard_of
from scipy.special import digamma, logsumexp

from skvt.expfam import Dirichlet, RunningStats, kl_divergence
from skvt.inference import MemoizedInference, MemoizedState, Rows, Workers, evaluate_bound
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import (
    KnownWeights,
    SeparateSticks,
    StickBreaking,
    SymmetricDirichlet,
)

COUNTS = np.array([4.0, 0.0, 2.5])


def test_known_weights_do_not_depend_on_counts():
    w = np.array([0.2, 0.5, 0.3])
    weights = KnownWeights(w)
    lam = weights.natural_parameters(COUNTS)
    np.testing.assert_array_equal(weights.mean(lam), w)
    np.testing.assert_array_equal(weights.log_weights(lam), np.log(w))
    assert kl_divergence(weights.family, lam, weights.prior()) == 0.0
    assert weights.log_evidence(COUNTS) == pytest.approx(np.log(0.2**4 * 0.3**2.5))


def test_moves_judge_components_in_their_best_order():
    weights = StickBreaking(1.3)
    orders = [np.array(order) for order in itertools.permutations([1.0, 4.0, 0.0, 2.5])]
    best = max(weights.log_evidence(counts) for counts in orders)
    model = Mixture(weights, KINDS["Bernoulli"].make(2, np.float64))
    for counts in orders:
        assert model.weights_log_evidence(counts) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alike", [False, True])
def test_known_weights_find_the_best_order(seed, alike):
    rng = np.random.default_rng(seed)
    w = np.array([0.3, 0.1, 0.3, 0.1, 0.2]) if alike else rng.dirichlet(np.ones(5))
    weights, counts = KnownWeights(w), rng.uniform(0.0, 10.0, 5)
    order = weights.order(counts)
    assert sorted(order) == list(range(5))
    best = max(weights.log_evidence(counts[list(p)]) for p in itertools.permutations(range(5)))
    assert weights.log_evidence(counts[order]) == pytest.approx(best, rel=1e-12)
    # Components that are in order keep their places.
    np.testing.assert_array_equal(weights.order(counts[order]), np.arange(5))


# ------------------------------------------------------------------------- finite Dirichlet
def urn(counts, prior):
    """Return the log probability of assignments from Polya's urn."""
    total, seen = 0.0, np.zeros(len(prior))
    for k in np.repeat(np.arange(len(counts)), counts):
        total += np.log((prior[k] + seen[k]) / (prior.sum() + seen.sum()))
        seen[k] += 1
    return total


@pytest.mark.parametrize("K", [3, 5])
def test_components_without_rows_count_in_a_symmetric_dirichlet(K):
    weights = SymmetricDirichlet(1.5, K)
    lam = weights.natural_parameters(COUNTS)
    expected = np.append(COUNTS, np.zeros(K - 3)) + 1.5 / K
    np.testing.assert_allclose(lam, expected[None])
    np.testing.assert_allclose(weights.mean(lam), expected / expected.sum())
    logs = digamma(expected) - digamma(expected.sum())
    np.testing.assert_allclose(weights.log_weights(Dirichlet.expectation(lam)), logs)
    prior = {"concentration": np.full(K, 1.5 / K)}
    divergence = kl_divergence(weights.family, lam, weights.prior())
    textbook = dirichlet_divergence({"concentration": expected}, prior)
    assert divergence == pytest.approx(textbook, rel=1e-12)


@pytest.mark.parametrize("K", [3, 6])
def test_the_evidence_of_a_dirichlet_is_that_of_polyas_urn(K):
    weights, counts = SymmetricDirichlet(0.7, K), np.array([3, 0, 2])
    expected = urn(counts, np.full(K, 0.7 / K))
    assert weights.log_evidence(counts.astype(float)) == pytest.approx(expected, rel=1e-12)
    assert weights.log_evidence(counts[::-1] * 1.0) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(weights.order(counts), [0, 1, 2])


def enumerated(model, X, resp, stats):
    """Return the bound as a sum over all assignments by the textbook's formulas."""
    kind, component = KINDS["Bernoulli"], model.component
    counts, lam = stats.arrays[0], component.natural_parameters(stats.arrays[1])
    prior = np.full(model.weights.n_components, 1.3 / model.weights.n_components)
    a = prior + np.append(counts, np.zeros(prior.size - counts.size))
    log_w = digamma(a) - digamma(a.sum())
    q = [standard_of(component, lam, k) for k in range(counts.size)]
    total = 0.0
    for z in itertools.product(range(counts.size), repeat=len(X)):
        chance = np.prod([resp[n, k] for n, k in enumerate(z)])
        if chance > 0.0:
            joint = sum(log_w[k] + kind.log_density(q[k], X[n], 0.0) for n, k in enumerate(z))
            total += chance * (joint - np.log(chance))
    flat = component.family.to_standard(component.prior)
    total -= sum(kind.divergence(part, flat) for part in q)
    return total - dirichlet_divergence({"concentration": a}, {"concentration": prior})


@pytest.mark.parametrize("K, n_initial", [(2, 2), (4, 2), (3, 3)])
def test_the_bound_under_a_dirichlet_equals_enumeration_and_is_below_the_evidence(K, n_initial):
    rng, component = np.random.default_rng(0), KINDS["Bernoulli"].make(2, np.dtype(np.float64))
    model = Mixture(SymmetricDirichlet(1.3, K), component, n_initial=n_initial)
    X = KINDS["Bernoulli"].rows(5, 2, rng)
    X[1, 0] = np.nan
    evidence = []
    for z in itertools.product(range(K), repeat=5):
        z = np.array(z)
        parts = [log_marginal(KINDS["Bernoulli"], component, X[z == k]) for k in set(z)]
        evidence.append(urn(np.bincount(z, minlength=K), np.full(K, 1.3 / K)) + sum(parts))
    evidence, data = logsumexp(evidence), Rows(X, np.ones(5), 5)
    batch = model.batch(X, np.arange(5), np.ones(5))
    for seed in range(2):
        resp = np.random.default_rng(seed).dirichlet(np.full(n_initial, 0.5), size=5)
        sums = resp.T @ component.features(X)
        state = MemoizedState(RunningStats([resp.sum(axis=0), sums]))
        bounds = [*map(bound, passes(MemoizedInference(), model, state, data, 20, rng=rng))]
        assert np.all(np.diff(bounds) > -1e-12) and bounds[-1] < evidence
        with Workers() as workers:
            resp = model.local_step(
                batch, model.expectation(state.stats, None, None), 1.0, workers.run
            ).q
            found = evaluate_bound(model, state.stats, data, workers)
        assert found == pytest.approx(enumerated(model, X, resp, state.stats), rel=1e-10)


# ---------------------------------------------------------------------------------- sticks
def test_separate_sticks_equal_the_sticks_of_the_process():
    separate, process = SeparateSticks(0.8), StickBreaking(0.8)
    pairs = separate.statistics(COUNTS)
    np.testing.assert_allclose(pairs, [[4.0, 2.5], [0.0, 2.5], [2.5, 0.0]])
    lam = process.natural_parameters(COUNTS)
    np.testing.assert_allclose(separate.natural_parameters(pairs), lam)
    assert separate.log_evidence(COUNTS) == process.log_evidence(COUNTS)
    np.testing.assert_array_equal(separate.order(COUNTS), [0, 2, 1])
    np.testing.assert_allclose(separate.mean(lam), process.mean(lam))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weights", [StickBreaking(1.0), KnownWeights(np.array([0.2, 0.3, 0.5]))])
def test_components_of_equal_counts_or_weights_keep_their_places(weights, seed):
    noise = np.random.default_rng(seed).uniform(-4e-16, 4e-16, 3)
    np.testing.assert_array_equal(weights.order(np.full(3, 7.0) * (1.0 + noise)), np.arange(3))
    equal = KnownWeights(np.full(3, 1.0 / 3.0))
    np.testing.assert_array_equal(equal.order(noise), np.arange(3))
