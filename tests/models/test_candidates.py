"""Rows judged by candidates: the bound of q on some components, candidates that stay and go."""

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
    """Candidates among few components already: 6 of them, q of at most 3."""
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS", 8)
    monkeypatch.setattr(_candidates, "N_CANDIDATES", 6)
    monkeypatch.setattr(_candidates, "MAX_SHARING", 3)


def many_groups(n_rows=600, n_groups=12, n_features=3, apart=2.0):
    rng = np.random.default_rng(0)
    z = rng.integers(n_groups, size=n_rows)
    X = rng.normal(0.0, apart, (n_groups, n_features))[z] + rng.normal(size=(n_rows, n_features))
    return X, np.where(rng.random(n_rows) < 0.5, rng.integers(n_groups, size=n_rows), z)


def fit(X, labels, **parameters):
    own = {"moves": (), "n_batches": 3, "max_iter": 7, "tol": 0.0, "random_state": 0} | parameters
    return MemoizedDPGMM(labels.max() + 1, labels_init=labels, **own).fit(X)


@pytest.mark.quick_cases("full")
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical", "tied"])
def test_a_local_step_is_the_best_q_on_the_candidates(few, covariance_type):
    X, labels = many_groups()
    fitted = fit(X, labels, covariance_type=covariance_type)._fitted
    model, rng = fitted.model, np.random.default_rng(1)
    K = model.size(fitted.state.stats)
    candidates = np.argsort(rng.random((len(X), K)), axis=1)[:, :6].astype(np.int32)
    batch = RowBatch(X, rng.uniform(0.5, 2.0, len(X)), np.arange(len(X)), candidates=candidates)
    params = model.expectation(fitted.state.stats, batch, run_serially)
    found = model.local_step(batch, params, 1.0, run_serially)
    logits = model.component.features(X) @ params[1].T + params[0]
    r = np.zeros((len(X), K))
    for n, own in enumerate(candidates):
        best = own[np.argsort(-logits[n, own])[:3]]
        r[n, best] = np.exp(logits[n, best] - logsumexp(logits[n, best]))
    entropy = -(r * np.log(np.where(r > 0.0, r, 1.0))).sum(axis=1)
    np.testing.assert_allclose(found.q.toarray(), r, atol=1e-10)
    np.testing.assert_allclose(found.energy, (r * logits).sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.bound, found.energy + entropy, rtol=1e-9)
    weighted = r * batch.weights[:, None]
    np.testing.assert_allclose(found.stats.arrays[0], weighted.sum(axis=0), atol=1e-8)
    features = model.component.features(X)
    np.testing.assert_allclose(found.stats.arrays[1], weighted.T @ features, atol=1e-6)
    # the best stay, and all are different
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
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS", 200)
    before = fit(X, labels)
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS", 13)
    assert fit(X, labels).elbo_ == before.elbo_
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS", 12)
    assert fit(X, labels).elbo_ != before.elbo_


def test_q_on_all_components_has_the_bound_of_an_ordinary_fit(few, monkeypatch):
    X, labels = many_groups()
    monkeypatch.setattr(_candidates, "N_CANDIDATES", 12)
    monkeypatch.setattr(_candidates, "MAX_SHARING", 12)
    own = fit(X, labels, moves=())
    monkeypatch.setattr(_candidates, "MIN_COMPONENTS", 100)
    assert own.elbo_ == pytest.approx(fit(X, labels).elbo_, rel=1e-9)


def test_any_number_of_threads_has_the_same_bits(few):
    X, labels = many_groups(1500)
    one, two = (fit(X, labels, n_batches=1, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one.elbo_ == two.elbo_
    np.testing.assert_array_equal(one.means_, two.means_)


def test_a_resumed_fit_has_the_same_bits_and_its_file_the_candidates(few, tmp_path):
    X, labels = many_groups()
    expected, path = fit(X, labels), tmp_path / "mixture.skvt"
    begun = MemoizedDPGMM(**expected.get_params()).set_callbacks(StopAfter(path, 2))
    with pytest.raises(KeyboardInterrupt):
        begun.fit(X)
    loaded = skvt.load(path)
    assert loaded._fitted.state.memos.has_candidates
    assert loaded.resume(X).elbo_ == expected.elbo_


def test_rows_whose_candidate_is_gone_are_judged_by_all(few):
    X, labels = many_groups()
    fitted = fit(X, labels)._fitted
    model, stats = fitted.model, fitted.state.stats
    K = model.size(stats)
    candidates = np.tile(np.arange(6, dtype=np.int32), (len(X), 1))
    memo = Memo(Stats((np.ones(K),)), np.zeros(K), None, 1.0, candidates)
    # component 2 is deleted, 0 and 1 change places, one is born
    index = np.array([1, 0, *range(3, K), -1])
    moved = memo.rearranged(index).candidates
    assert (moved == [1, 0, -1, 2, 3, 4]).all()
    batch = RowBatch(X, np.ones(len(X)), np.arange(len(X)), candidates=moved)
    params = model.expectation(stats, batch, run_serially)
    by_all = RowBatch(X, np.ones(len(X)), np.arange(len(X)), candidates=moved[:, :0])
    found, expected = (model.local_step(b, params, 1.0, run_serially) for b in (batch, by_all))
    np.testing.assert_array_equal(found.bound, expected.bound)


def test_convergence_is_judged_by_all_components(few):
    X, labels = many_groups()
    mixture = fit(X, labels, tol=1e-2, max_iter=40)
    assert mixture.converged_
    assert mixture.n_iter_ in (3, 4, 7, 8, 15, 16)


@pytest.mark.parametrize("missing", [False, True])
def test_columns_of_several_kinds_have_candidates_where_nothing_full_is_missing(few, missing):
    X, labels = many_groups(300)
    X = np.column_stack([X, labels % 4, X[:, 0] > 0.0])
    if missing:
        X[::3, 0] = np.nan
    parts = [
        ("real", Gaussian(), [0, 1, 2]),
        ("category", Categorical(), [3]),
        ("bit", Bernoulli(), [4]),
    ]
    own = {"moves": (), "n_batches": 2, "max_iter": 7, "tol": 0.0, "random_state": 0}
    mixture = MemoizedDPMixture(12, components=parts, labels_init=labels, **own).fit(X)
    assert np.all(np.diff(mixture.lower_bounds_) > -1e-9 * abs(mixture.lower_bounds_[0]))
    fitted = mixture._fitted
    batch = RowBatch(X, np.ones(len(X)), np.arange(len(X)), candidates=np.empty((len(X), 0), int))
    params = fitted.model.expectation(fitted.state.stats, batch, run_serially)
    result = fitted.model.local_step(batch, params, 1.0, run_serially)
    assert (result.candidates is None) == missing
