"""Kernels, local steps, starts and bounds of Dirichlet process mixtures follow their formulas."""

import itertools
import tracemalloc
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from _engines import bound_in_this_order
from models._textbook import (
    KINDS,
    center_of,
    log_marginal,
    standard_of,
    stick_divergence,
    with_gaps,
)
from scipy.special import betaln, digamma, logsumexp, softmax, xlogy
from scipy.stats import norm

from skvt._compiled import run_serially as run
from skvt.contracts import Capability, PassInputs, RunningPolicy
from skvt.expfam import Beta
from skvt.inference import MemoizedState, Rows, Workers, evaluate_bound
from skvt.inference._bound import compute_bound_parts
from skvt.inference._memoized import MemoizedInference
from skvt.models.mixture import _model as _mixture
from skvt.models.mixture import _refits, _seeds
from skvt.models.mixture._kernels import (
    add_assignment_entropies,
    compute_outer_features,
    responsibilities,
)
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import KnownWeights, StickBreaking

each_kind = pytest.mark.parametrize("name", KINDS)
MISSING = [name for name in KINDS if KINDS[name].make(1, np.dtype(np.float64)).missing]
# The features of these kinds leave out missing values. Full covariances integrate over them.
LEFT_OUT = [name for name in MISSING if not name.endswith("full")]


def mixture(name, *, D=2, alpha=1.3, dtype=np.float64, **start):
    return Mixture(StickBreaking(alpha), KINDS[name].make(D, np.dtype(dtype)), **start)


def rows_of(name, n, *, D=2, seed=0, dtype=np.float64):
    return KINDS[name].rows(n, D, np.random.default_rng(seed)).astype(dtype)


def batch_of(model, X, weights=None):
    weights = np.ones(X.shape[0]) if weights is None else weights
    return model.batch(X, np.arange(X.shape[0]), weights)


def test_sums_of_all_tasks_are_not_in_memory_at_once():
    model = mixture("multinomial", D=3_000)
    X = sp.csr_array(sp.random(8 * _mixture.ROWS_PER_CHUNK, 3_000, 1e-3, random_state=0))
    table = np.random.default_rng(0).normal(size=(30, 3_000))
    tracemalloc.start()
    model.local_step(batch_of(model, X), (np.zeros(30), table), 1.0, run)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * table.nbytes  # There are eight tasks.


def statistics(model, X, resp):
    """Return counts and sums of rows with responsibilities (n, K)."""
    features = model.component.features(X)
    features = features.toarray() if sp.issparse(features) else features
    return resp.sum(axis=0), resp.T @ features


def state_of(model, X, resp):
    return MemoizedState(_mixture.RunningStats(statistics(model, X, resp)))


def random_responsibilities(n, K, seed=0, sharpness=0.4):
    return np.random.default_rng(seed).dirichlet(np.full(K, sharpness), size=n)


# ------------------------------------------------------------------------------------ kernels
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("temperature", [1.0, 2.5, "rows"])
def test_responsibilities_are_a_softmax_and_its_bound(dtype, scale, temperature):
    rng = np.random.default_rng(0)
    logits = (scale * rng.standard_normal((50, 7)) - 3.0 * scale).astype(dtype)
    logits[3] = logits[3, 0]
    logits[4, 2] = -1e30
    inv_temps = rng.uniform(0.2, 1.0, 50) if temperature == "rows" else [1.0 / temperature]
    inv_temps = np.asarray(inv_temps, dtype=dtype)
    r, bound, energy = logits.copy(), np.empty(50), np.empty(50)
    responsibilities(r, inv_temps, bound, energy)
    b = np.broadcast_to(inv_temps.astype(float), 50)
    scaled = b[:, None] * logits.astype(float)
    expected = softmax(scaled, axis=1)
    eps = np.finfo(dtype).eps
    # Probabilities below exp(-60) of the largest one become zero.
    np.testing.assert_allclose(r, expected, rtol=10 * eps * max(scale, 1.0), atol=1e-25)
    np.testing.assert_allclose(r.sum(axis=1), 1.0, rtol=8 * eps)
    expected_energy = np.where(expected > 0.0, expected * logits, 0.0).sum(axis=1)
    entropy = -xlogy(expected, expected).sum(axis=1)
    np.testing.assert_allclose(energy, expected_energy, rtol=100 * eps, atol=100 * eps * scale)
    np.testing.assert_allclose(
        bound, b * expected_energy + entropy, rtol=100 * eps, atol=100 * eps * scale
    )
    np.testing.assert_allclose(bound, logsumexp(scaled, axis=1), rtol=100 * eps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_assignment_entropies_of_components_and_pairs_follow_their_formulas(dtype):
    rng = np.random.default_rng(1)
    r = rng.dirichlet(np.full(5, 0.2), size=200)
    r[r < 1e-3] = 0.0
    r[0], r[1] = 0.0, [1.0, 0.0, 0.0, 0.0, 0.0]
    r, w = r.astype(dtype), rng.uniform(0.5, 3.0, 200)
    entropy, merge_entropy_loss = np.zeros(5), np.zeros((5, 5))
    every = np.arange(r.shape[1], dtype=np.int32)[None]
    add_assignment_entropies(r, every, w, True, entropy, merge_entropy_loss)
    wide = r.astype(float)
    np.testing.assert_allclose(entropy, -w @ xlogy(wide, wide), rtol=1e-10)
    for a, b in itertools.product(range(5), repeat=2):
        merged = wide[:, a] + wide[:, b]
        expected = entropy[a] + entropy[b] + w @ xlogy(merged, merged) if a < b else 0.0
        assert merge_entropy_loss[a, b] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    alone, none = np.zeros(5), np.zeros((5, 5))
    add_assignment_entropies(r, every, w, False, alone, none)
    np.testing.assert_array_equal(alone, entropy)
    np.testing.assert_array_equal(none, 0.0)


@pytest.mark.parametrize("linear", [True, False])
def test_outer_features_are_the_rows_of_the_upper_triangle(linear):
    X = np.random.default_rng(2).standard_normal((6, 4))
    upper = np.triu_indices(4)
    parts = [np.ones((6, 1)), *([X] if linear else []), (X[:, :, None] * X[:, None])[:, *upper]]
    np.testing.assert_array_equal(
        compute_outer_features(X, with_linear=linear), np.concatenate(parts, axis=1)
    )


# ------------------------------------------------------------------------------------- sticks


def test_expected_weights_and_their_logs_are_means_of_draws():
    lam = StickBreaking(0.7).natural_parameters(np.array([4.0, 0.0, 2.5, 1.0]))
    np.testing.assert_allclose(lam, [[5.0, 4.2], [1.0, 4.2], [3.5, 1.7], [2.0, 0.7]])
    rng = np.random.default_rng(3)
    v = rng.beta(lam[:, 0], lam[:, 1], size=(100_000, 4))
    w = v * np.concatenate([np.ones((100_000, 1)), np.cumprod(1.0 - v, axis=1)[:, :-1]], axis=1)
    for draws, expected in (
        (w, StickBreaking(1.0).mean(lam)),
        (np.log(w), StickBreaking(1.0).log_weights(Beta.expectation(lam))),
    ):
        error = draws.std(axis=0) / np.sqrt(100_000)
        assert np.all(np.abs(draws.mean(axis=0) - expected) < 4.5 * error)
    rest = 1.0 - w.sum(axis=1)
    assert abs(rest.mean() - (1.0 - StickBreaking(1.0).mean(lam).sum())) < 4.5 * rest.std() / 316.0


def test_the_evidence_of_counts_is_that_of_their_assignments():
    # The sticks are integrated out, and assignments come one after the other.
    counts, alpha = [3, 0, 2], 0.7
    total, seen = 0.0, np.zeros(3)
    for k in np.repeat([0, 1, 2], counts):
        after = np.array([seen[j + 1 :].sum() for j in range(3)])
        v = (1.0 + seen) / (1.0 + seen + alpha + after)
        total += np.log(v[k] * np.prod(1.0 - v[:k]))
        seen[k] += 1
    model = mixture("spherical", alpha=alpha)
    evidence = model.weights.log_evidence(np.array(counts, float))
    assert evidence == pytest.approx(total, rel=1e-12)


# --------------------------------------------------------------------------------- local steps
@each_kind
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_local_step_equals_the_dense_computation(name, dtype):
    model, rng = mixture(name, D=3, dtype=dtype), np.random.default_rng(4)
    X = rows_of(name, 60, D=3, dtype=dtype)
    X = with_gaps(X, rng).astype(dtype) if name in LEFT_OUT else X
    weights = rng.uniform(0.5, 2.0, 60)
    state = state_of(model, X, random_responsibilities(60, 4))
    g, rtol = model.expectation(state.stats, None, None), 1e-10
    logits = g[0] + model.component.features(X).astype(float) @ g[1].T
    for inv_temp in (0.8, rng.uniform(0.3, 1.0, 60)):
        b = np.broadcast_to(inv_temp, 60)
        result = model.local_step(batch_of(model, X, weights), g, inv_temp, run, with_marginal=True)
        r = softmax(b[:, None] * logits, axis=1)
        np.testing.assert_allclose(result.q, r, rtol=10 * np.finfo(dtype).eps, atol=rtol)
        assert result.q.dtype == dtype
        np.testing.assert_allclose(result.energy, (r * logits).sum(axis=1), rtol=rtol)
        np.testing.assert_allclose(result.bound, logsumexp(b[:, None] * logits, axis=1), rtol=rtol)
        np.testing.assert_allclose(result.marginal_energy, result.bound / b, rtol=rtol)
        expected = statistics(model, X, r * weights[:, None])
        for found, own in zip(result.stats.arrays, expected, strict=True):
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, own, rtol=rtol, atol=100 * rtol)
    assert model.local_step(batch_of(model, X), g, 1.0, run, with_stats=False).stats is None


@pytest.mark.parametrize("name", ["full", "multinomial", "negative binomial"])
def test_the_division_of_rows_into_chunks_changes_no_sum(name, monkeypatch):
    model, X = mixture(name), rows_of(name, 500)
    held = sp.csr_array(X) if name == "multinomial" else X
    g = model.expectation(state_of(model, X, random_responsibilities(500, 3)).stats, None, None)
    whole = model.local_step(batch_of(model, X), g, 1.0, run)
    for chunk, most in ((7, 8), (64, 3), (1, 100)):
        monkeypatch.setattr(_mixture, "ROWS_PER_CHUNK", chunk)
        monkeypatch.setattr(_mixture, "MAX_TASKS", most)
        tasks = _mixture._split_into_tasks(500)
        assert len(tasks) <= most
        rows = [
            np.arange(500)[part] for task in tasks for part in _mixture._split_into_chunks(task)
        ]
        assert all(1 <= part.size <= chunk for part in rows)
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(500))
        divided = model.local_step(batch_of(model, held), g, 1.0, run)
        np.testing.assert_allclose(divided.q, whole.q, rtol=1e-9, atol=1e-12)
        for one, other in zip(divided.stats.arrays, whole.stats.arrays, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_batch_of_consecutive_rows_is_a_view():
    model, X = mixture("full"), rows_of("full", 20)
    assert model.batch(X, np.arange(5, 9), np.ones(4)).X.base is X
    np.testing.assert_array_equal(model.batch(X, np.arange(5, 9), np.ones(4)).X, X[5:9])
    for rows in ([3, 1, 2], [4, 6, 5, 7], [2, 2, 4], [0]):
        rows = np.array(rows)
        np.testing.assert_array_equal(model.batch(X, rows, np.ones(rows.size)).X, X[rows])


# ----------------------------------------------------------------- the bound by enumeration
def enumerated_bound(name, model, X, resp, stats):
    """Return the evidence lower bound as a sum over all K^N assignments.

    ``sum_z q(z) (E[log p(z | v)] + E[log p(x | z, phi)] - log q(z)) - KL(v) - KL(phi)``, with the
    textbook's formulas for the parameters that ``prior + stats`` stand for.
    """
    kind, component, alpha = KINDS[name], model.component, model.weights.concentration
    counts, lam = stats.arrays[0], component.natural_parameters(stats.arrays[1])
    K, center = counts.size, center_of(component)
    a = 1.0 + counts
    b = alpha + np.array([counts[k + 1 :].sum() for k in range(K)])
    log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    log_w = [log_v[k] + log_rest[:k].sum() for k in range(K)]
    q = [standard_of(component, lam, k) for k in range(K)]
    log_p = [[kind.log_density(q[k], x, center) for k in range(K)] for x in X]
    total = 0.0
    for z in itertools.product(range(K), repeat=len(X)):
        chance = np.prod([resp[n, k] for n, k in enumerate(z)])
        if chance > 0.0:
            joint = sum(log_w[k] + log_p[n][k] for n, k in enumerate(z))
            total += chance * (joint - np.log(chance))
    prior = component.family.to_standard(component.prior)
    total -= sum(stick_divergence(a[k], b[k], alpha) for k in range(K))
    return total - sum(kind.divergence(q[k], prior) for k in range(K))


@pytest.mark.parametrize(
    ("name", "gaps"), [*((name, False) for name in KINDS), *((name, True) for name in MISSING)]
)
@pytest.mark.parametrize("D", [1, 2])
def test_the_evaluated_bound_equals_enumeration(name, gaps, D):
    model, X = mixture(name, D=D), rows_of(name, 5, D=D)
    X = with_gaps(X, np.random.default_rng(0)) if gaps else X
    # The globals are not the best ones for these rows.
    stats = state_of(model, rows_of(name, 8, D=D, seed=9), random_responsibilities(8, 2)).stats
    g = model.expectation(stats, None, None)
    resp = model.local_step(batch_of(model, X), g, 1.0, run).q
    with Workers() as workers:
        bound = evaluate_bound(model, stats, Rows(X, np.ones(5), 3), workers)
    assert bound == pytest.approx(enumerated_bound(name, model, X, resp, stats), rel=1e-10)
    # Other q(z) have lower bounds under these globals.
    for other in (random_responsibilities(5, 2, seed=1), np.eye(2)[[0, 1, 0, 1, 1]]):
        assert enumerated_bound(name, model, X, other, stats) < bound


@each_kind
def test_the_bound_by_memos_equals_enumeration(name):
    model, X = mixture(name), rows_of(name, 5)
    state, engine = state_of(model, X, random_responsibilities(5, 2)), MemoizedInference()
    state.begin(2)
    seen = {}
    with Workers() as workers:
        inputs = PassInputs(Rows(X, np.ones(5), 5), RunningPolicy(), workers)
        for key, rows in ((0, [0, 1, 2]), (1, [3, 4]), (0, [0, 1, 2])):
            batch = model.batch(X, np.array(rows), np.ones(len(rows)))
            g = model.expectation(state.stats, None, None)
            seen[key] = model.local_step(batch, g, 1.0, run).q
            engine.visit(model, [batch], 5.0, state, inputs, iter([key]))
    state.resum()
    resp = np.concatenate([seen[0], seen[1]])
    expected = enumerated_bound(name, model, X, resp, state.stats)
    totals, divergence = compute_bound_parts(model, state)
    assert totals.untempered - divergence == pytest.approx(expected, rel=1e-10)
    assert totals.tempered == totals.untempered and totals.weight == 5.0
    bound = bound_in_this_order(model, state.memos.total())
    assert bound == pytest.approx(expected, rel=1e-10)


@each_kind
def test_the_bound_of_one_component_is_the_evidence(name):
    X, bounds = rows_of(name, 5), []
    for alpha in (1e-15, 1.3):
        model = mixture(name, alpha=alpha)
        state = state_of(model, X, np.ones((5, 1)))
        with Workers() as workers:
            bounds.append(evaluate_bound(model, state.stats, Rows(X, np.ones(5), 5), workers))
    # A very small concentration leaves no weight for other components.
    assert bounds[0] == pytest.approx(log_marginal(KINDS[name], model.component, X), rel=1e-7)
    of_stick = betaln(6.0, 1.3) - betaln(1.0, 1.3)
    assert bounds[1] - bounds[0] == pytest.approx(of_stick, rel=1e-6)


# ---------------------------------------------------------------------------------- predictions
@each_kind
def test_predictive_densities_average_over_the_components_and_the_prior(name, monkeypatch):
    model, X = mixture(name), rows_of(name, 30)
    stats = state_of(model, X, random_responsibilities(30, 3)).stats
    sticks, lam = model.natural_parameters(stats)
    v = sticks[:, 0] / sticks.sum(axis=1)
    weights = [v[0], v[1] * (1 - v[0]), v[2] * (1 - v[0]) * (1 - v[1]), np.prod(1.0 - v)]
    assert sum(weights) == pytest.approx(1.0)
    kind, center = KINDS[name], center_of(model.component)
    parameters = [standard_of(model.component, lam, k) for k in range(3)]
    parameters.append(model.component.family.to_standard(model.component.prior))
    expected = [
        logsumexp([kind.predictive(q, x, center) for q in parameters], b=weights) for x in X
    ]
    np.testing.assert_allclose(model.log_predictive(X, stats, run), expected, rtol=1e-9)
    monkeypatch.setattr(_mixture, "ROWS_PER_CHUNK", 4)
    np.testing.assert_allclose(model.log_predictive(X, stats, run), expected, rtol=1e-9)


# -------------------------------------------------------------------------------- temperature
KNOWN = KnownWeights(np.array([0.1, 0.6, 0.3]))


@pytest.mark.parametrize("b", [1.0, 0.6, 0.15])
@pytest.mark.parametrize("D", [1, 2])
def test_log_partition_is_the_integral_over_rows_and_assignments(D, b):
    component = KINDS["known variance"].make(D, np.dtype(np.float64))
    log_partition = Mixture(KNOWN, component).tempered_log_partition
    # The error of the rectangle rule is below rounding for densities this smooth and wide.
    x, step = np.linspace(-40.0, 40.0, 401, retstep=True)
    rows = np.stack(np.meshgrid(*[x] * D), axis=-1).reshape(-1, 1, D)
    for seed in range(2):
        means = np.random.default_rng(seed).normal(0.0, 3.0, size=(3, D))
        log_density = norm(means, np.sqrt(component.noise_variance)).logpdf(rows).sum(axis=2)
        integral = logsumexp(b * (log_density + np.log(KNOWN.weights))) + D * np.log(step)
        value, slope = log_partition([b - 1e-5, b, b + 1e-5])
        assert value[1] == pytest.approx(integral, abs=1e-8)
        assert slope[1] == pytest.approx((value[2] - value[0]) / 2e-5, rel=1e-6)


def test_only_known_weights_and_variances_have_a_log_partition():
    for name in KINDS:
        assert Capability.TEMPERABLE not in mixture(name).capabilities
        learned = KINDS[name].make(2, np.dtype(np.float64))
        known = name == "known variance"
        assert (Capability.TEMPERABLE in Mixture(KNOWN, learned).capabilities) == known


# -------------------------------------------------------------------------------------- starts
@each_kind
@pytest.mark.parametrize("init_params", ["k-means++", "random", "random_from_data"])
def test_a_start_divides_all_rows_among_the_components(name, init_params):
    model, X = mixture(name, n_initial=3, init_params=init_params), rows_of(name, 50)
    weights = np.random.default_rng(0).integers(1, 4, 50).astype(float)
    data = Rows(X, weights, 10)
    counts, sums = model.initial(data, np.random.default_rng(1)).arrays
    assert counts.dtype == sums.dtype == np.float64
    # Sums over another memory layout would round differently in a copy.
    assert sums.flags.c_contiguous
    assert 1 <= counts.size <= 3 and np.all(counts > 0.0)
    features = model.component.features(X)
    np.testing.assert_allclose(counts.sum(), weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(sums.sum(axis=0), weights @ features, rtol=1e-10, atol=1e-10)
    # The natural parameters are legal, and another seed leads to another start.
    model.expectation(MemoizedState(_mixture.RunningStats([counts, sums])).stats, None, None)
    others = [model.initial(data, np.random.default_rng(seed)).arrays[1] for seed in range(2, 6)]
    assert any(not np.array_equal(sums, other) for other in others)


@pytest.mark.parametrize("init_params", ["k-means++", "random", "random_from_data"])
def test_starts_depend_neither_on_the_order_of_rows_nor_on_how_they_are_repeated(init_params):
    model = mixture("spherical", n_initial=4, init_params=init_params)
    X, rng = rows_of("spherical", 30), np.random.default_rng(2)
    weights = rng.integers(1, 4, 30)

    def start(X, weights):
        batch = batch_of(model, X, weights.astype(float))
        return model.seeded_statistics(batch, 4, init_params, np.random.default_rng(3)).arrays

    expected, order = start(X, weights), rng.permutation(30)
    for other in (
        start(X[order], weights[order]),
        start(np.repeat(X, weights, axis=0), np.ones(weights.sum())),
    ):
        np.testing.assert_allclose(other[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(other[1], expected[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["full", "diagonal", "spherical"])
def test_seeds_fall_into_different_clusters(name):
    # Ten clusters are far apart, so that even draws miss some of them.
    model, rng = mixture(name), np.random.default_rng(4)
    means = 50.0 * rng.standard_normal((10, 2))
    X = np.repeat(means, 30, axis=0) + 0.1 * rng.standard_normal((300, 2))

    def number_found(init_params):
        starts = [
            model.seeded_statistics(batch_of(model, X), 10, init_params, np.random.default_rng(s))
            for s in range(10)
        ]
        return sum(np.sum(np.abs(stats.arrays[0] - 30.0) < 1e-9) for stats in starts)

    assert number_found("k-means++") > max(75, number_found("random_from_data") + 25)


def test_a_start_has_no_more_components_than_different_rows():
    X = np.repeat(rows_of("spherical", 3), 5, axis=0)
    for init_params in ("k-means++", "random_from_data"):
        model = mixture("spherical", n_initial=8, init_params=init_params)
        counts, _ = model.initial(Rows(X, np.ones(15), 15), np.random.default_rng(0)).arrays
        assert counts.size == 3 and counts.sum() == 15.0


def test_a_start_from_a_sample_has_the_weight_of_all_rows(monkeypatch):
    monkeypatch.setattr(_mixture, "MAX_ROWS_TO_START", 20)
    monkeypatch.setattr(_seeds, "MAX_ROWS_TO_SEED", 10)
    model, X = mixture("full", n_initial=3), rows_of("full", 100)
    weights = np.random.default_rng(5).uniform(0.5, 2.0, 100)
    with mock.patch.object(Rows, "batch", autospec=True, side_effect=Rows.batch) as batch:
        counts, sums = model.initial(Rows(X, weights, 10), np.random.default_rng(0)).arrays
    assert [np.unique(call.args[2]).size for call in batch.call_args_list] == [20]
    assert counts.sum() == pytest.approx(weights.sum(), rel=1e-12)
    assert sums[:, 0].sum() == pytest.approx(weights.sum(), rel=1e-12)


@each_kind
def test_symmetry_breaking_statistics_are_rows_with_a_share_of_each_count(name):
    model, X = mixture(name), rows_of(name, 20)
    stats = state_of(model, X, random_responsibilities(20, 3)).stats
    counts, sums = model.symmetry_breaking_stats(
        stats, Rows(X, np.ones(20), 20), 0.1, np.random.default_rng(0)
    ).arrays
    np.testing.assert_allclose(counts, 0.1 * stats.arrays[0])
    features = model.component.features(X)
    for k in range(3):
        distance = np.abs(features * counts[k] - sums[k]).max(axis=1)
        assert distance.min() < 1e-12


def test_rows_are_drawn_by_weight_in_any_order():
    model, rng = mixture("spherical"), np.random.default_rng(6)
    X, weights = rows_of("spherical", 7), rng.integers(1, 4, 7)

    def drawn(X, weights, number=50, seed=0):
        data = Rows(X, weights.astype(float), 3)
        return X[model._draw_rows(data, number, np.random.default_rng(seed))]

    expected, order = drawn(X, weights), rng.permutation(7)
    np.testing.assert_array_equal(drawn(X[order], weights[order]), expected)
    repeated = np.repeat(X, weights, axis=0)
    np.testing.assert_array_equal(drawn(repeated, np.ones(len(repeated))), expected)
    found = drawn(X, weights, 20_000, seed=1)
    shares = np.array([np.mean(np.all(found == x, axis=1)) for x in X])
    p = weights / weights.sum()
    assert np.all(np.abs(shares - p) < 4.5 * np.sqrt(p * (1.0 - p) / 20_000))


@pytest.mark.parametrize("name", ["full", "diagonal", "spherical"])
def test_seeds_find_clusters_that_differ_in_one_direction(name):
    rng = np.random.default_rng(0)
    labels = np.arange(1200) % 3
    X = rng.standard_normal((1200, 30))
    X[:, 0] += 12.0 * labels
    X = X @ np.linalg.qr(rng.standard_normal((30, 30)))[0]
    model = mixture(name, D=30)
    stats = model.seeded_statistics(batch_of(model, X), 3, "k-means++", np.random.default_rng(0))
    means = np.array([X[labels == k].mean(axis=0) for k in range(3)])
    found = model.component.in_data_coordinates(model.component.natural_parameters(stats.arrays[1]))
    found = found[0].to_standard(found[1])["mean"].reshape(3, 30)
    apart = np.linalg.norm(found[:, None] - means, axis=2)
    assert (apart.min(axis=0) < 1.0).all()


def test_a_refit_returns_the_responsibilities_of_its_last_step(monkeypatch):
    X = rows_of("full", 60)
    steps, step = [], _refits._compute_resp
    monkeypatch.setattr(_refits, "_compute_resp", lambda *a: steps.append(step(*a)) or steps[-1])
    monkeypatch.setattr(_refits, "_MIN_STEPS", 3)
    monkeypatch.setattr(_refits, "_MAX_STEPS", 3)
    resp = np.random.default_rng(1).dirichlet(np.ones(2), size=60)
    model = mixture("full")
    _, sums = _refits._compute_statistics(model, X, np.ones(60), resp)
    assert _refits.refit_by_em(model, X, np.ones(60), resp, sums) is steps[2]
