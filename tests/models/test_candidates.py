"""The q of rows is on candidates among the components, and candidates change."""

import numpy as np
import pytest
from estimators._registry import StopAfter
from scipy.special import logsumexp

import skvt
from skvt import MemoizedDPGMM, MemoizedDPMixture
from skvt._compiled import run_serially
from skvt.components import Bernoulli, Categorical, Gaussian
from skvt.contracts import RowBatch
from skvt.expfam import Stats
from skvt.inference._memos import Memo
from skvt.models.mixture import _candidates
from skvt.moves._base import compute_bound


@pytest.fixture
def few(monkeypatch):
    """Rows of few components have 6 candidates, and their q has at most 3 components."""
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS_FOR_CANDIDATES", 8)
    monkeypatch.setattr(_candidates, "N_CANDIDATES", 6)
    monkeypatch.setattr(_candidates, "MAX_COMPONENTS_PER_ROW", 3)


def many_groups(n_rows=600, n_groups=12, n_features=3, apart=2.0):
    rng = np.random.default_rng(0)
    z = rng.integers(n_groups, size=n_rows)
    X = rng.normal(0.0, apart, (n_groups, n_features))[z] + rng.normal(size=(n_rows, n_features))
    return X, np.where(rng.random(n_rows) < 0.5, rng.integers(n_groups, size=n_rows), z)


SHORT = {"moves": (), "n_batches": 3, "max_iter": 7, "tol": 0.0, "random_state": 0}


def fit(X, labels, **parameters):
    parameters = SHORT | parameters
    return MemoizedDPGMM(labels.max() + 1, labels_init=labels, **parameters).fit(X)


def judged(fitted, X, candidates, weights=None):
    """Return the globals of a fit, and the local step of rows with these candidates."""
    weights = np.ones(len(X)) if weights is None else weights
    batch = RowBatch(X, weights, np.arange(len(X)), candidates=candidates)
    params = fitted.model.expectation(fitted.state.stats, batch, run_serially)
    return params, fitted.model.local_step(batch, params, 1.0, run_serially)


@pytest.mark.quick_cases("full")
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical", "tied"])
def test_a_local_step_finds_the_best_q_on_the_candidates(few, covariance_type):
    X, labels = many_groups(300)
    fitted = fit(X, labels, covariance_type=covariance_type, max_iter=3)._fitted
    model, rng = fitted.model, np.random.default_rng(1)
    K, weights = model.size(fitted.state.stats), rng.uniform(0.5, 2.0, len(X))
    candidates = np.argsort(rng.random((len(X), K)), axis=1)[:, :6].astype(np.int32)
    params, found = judged(fitted, X, candidates, weights)
    features = model.component.features(X)
    logits, r = features @ params[1].T + params[0], np.zeros((len(X), K))
    for n, own in enumerate(candidates):
        best = own[np.argsort(-logits[n, own])[:3]]
        r[n, best] = np.exp(logits[n, best] - logsumexp(logits[n, best]))
    entropy = -(r * np.log(np.where(r > 0.0, r, 1.0))).sum(axis=1)
    np.testing.assert_allclose(found.q.toarray(), r, atol=1e-10)
    np.testing.assert_allclose(found.energy, (r * logits).sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.bound, found.energy + entropy, rtol=1e-9)
    weighted = r * weights[:, None]
    np.testing.assert_allclose(found.stats.arrays[0], weighted.sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(found.stats.arrays[1], weighted.T @ features, atol=1e-6)
    # The next candidates are different and contain the best ones.
    again = found.candidates
    assert again.shape == candidates.shape and again.min() >= 0 and again.max() < K
    assert all(np.unique(own).size == 6 for own in again)
    assert all(set(np.flatnonzero(own)) <= set(kept) for own, kept in zip(r, again, strict=True))


@pytest.mark.quick_cases("moves0")
@pytest.mark.parametrize("moves", [(), ("birth", "merge", "delete")])
def test_the_bound_never_falls_and_is_that_of_the_statistics(few, moves):
    X, labels = many_groups(apart=8.0)
    mixture = fit(X, labels, moves=moves, max_iter=12)
    assert np.all(np.diff(mixture.lower_bounds_) > -1e-9 * abs(mixture.lower_bounds_[0]))
    fitted = mixture._fitted
    assert mixture.n_components_ >= 8
    assert mixture.elbo_ == pytest.approx(compute_bound(fitted.model, fitted.state.memos.total()))
    assert not fitted.state.memos.has_candidates


def test_few_components_have_no_candidates(few, monkeypatch):
    X, labels = many_groups()
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS_FOR_CANDIDATES", 200)
    before = fit(X, labels)
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS_FOR_CANDIDATES", 13)
    assert fit(X, labels).elbo_ == before.elbo_
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS_FOR_CANDIDATES", 12)
    assert fit(X, labels).elbo_ != before.elbo_


def test_all_components_as_candidates_give_the_bound_of_an_ordinary_fit(few, monkeypatch):
    X, labels = many_groups()
    monkeypatch.setattr(_candidates, "N_CANDIDATES", 12)
    monkeypatch.setattr(_candidates, "MAX_COMPONENTS_PER_ROW", 12)
    own = fit(X, labels, moves=())
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS_FOR_CANDIDATES", 100)
    assert own.elbo_ == pytest.approx(fit(X, labels).elbo_, rel=1e-9)


def test_two_threads_fit_the_same_bits(few):
    X, labels = many_groups(1500)
    one, two = (fit(X, labels, n_batches=1, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one.elbo_ == two.elbo_
    np.testing.assert_array_equal(one.means_, two.means_)


def test_a_file_keeps_the_candidates_and_a_resumed_fit_has_the_same_bits(few, tmp_path):
    X, labels = many_groups()
    expected, path = fit(X, labels), tmp_path / "mixture.skvt"
    begun = MemoizedDPGMM(**expected.get_params()).set_callbacks(StopAfter(path, 2))
    with pytest.raises(KeyboardInterrupt):
        begun.fit(X)
    loaded = skvt.load(path)
    assert loaded._fitted.state.memos.has_candidates
    assert loaded.resume(X).elbo_ == expected.elbo_


def test_all_components_judge_rows_whose_candidate_was_deleted(few):
    X, labels = many_groups(300)
    fitted = fit(X, labels, max_iter=3)._fitted
    K = fitted.model.size(fitted.state.stats)
    candidates = np.tile(np.arange(6, dtype=np.int32), (len(X), 1))
    memo = Memo(Stats((np.ones(K),)), np.zeros(K), None, 1.0, candidates)
    # Component 2 is deleted, 0 and 1 change places, and a birth adds one.
    moved = memo.rearranged(np.array([1, 0, *range(3, K), -1])).candidates
    assert (moved == [1, 0, -1, 2, 3, 4]).all()
    (_, found), (_, expected) = (judged(fitted, X, own) for own in (moved, moved[:, :0]))
    np.testing.assert_array_equal(found.bound, expected.bound)


def test_all_components_decide_about_convergence(few):
    X, labels = many_groups()
    mixture = fit(X, labels, tol=1e-2, max_iter=40)
    assert mixture.converged_
    assert mixture.n_iter_ in (3, 4, 7, 8, 15, 16)


@pytest.mark.parametrize("missing", [False, True])
def test_rows_have_candidates_unless_full_covariances_have_missing_values(few, missing):
    X, labels = many_groups(300)
    X = np.column_stack([X, labels % 4, X[:, 0] > 0.0])
    if missing:
        X[::3, 0] = np.nan
    parts = [
        ("real", Gaussian(), [0, 1, 2]),
        ("category", Categorical(), [3]),
        ("bit", Bernoulli(), [4]),
    ]
    mixture = MemoizedDPMixture(12, components=parts, labels_init=labels, **SHORT).fit(X)
    assert np.all(np.diff(mixture.lower_bounds_) > -1e-9 * abs(mixture.lower_bounds_[0]))
    _, result = judged(mixture._fitted, X, np.empty((len(X), 0), int))
    assert (result.candidates is None) == missing
