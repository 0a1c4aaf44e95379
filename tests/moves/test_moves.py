"""A move changes the bound by the gain that it predicts, and is reverted if the bound falls."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from _engines import sweeps
from models._textbook import KINDS
from scipy.special import entr, softmax

from skvt import MemoizedDPGMM
from skvt._compiled import run_serially as run
from skvt.contracts import LocalResult, Move, PassInputs, RunningPolicy, SolvedBatch, Stream
from skvt.expfam import RunningStats, Stats
from skvt.inference import EngineTools, MemoizedInference, MemoizedState, Rows, Workers
from skvt.inference._memos import Memos
from skvt.inference._visit import make_memo
from skvt.models.mixture import GaussianLearner
from skvt.models.mixture._gaussian_prior import GaussianPrior, make_gaussian_component
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import StickBreaking
from skvt.moves import Birth, Decision, Delete, Ledger, Merge
from skvt.moves import _birth as birth_module
from skvt.moves import _fresh as fresh_module
from skvt.moves import _merge as merge_module
from skvt.moves import _targets as targets_module
from skvt.moves._base import compute_bound
from skvt.moves._batch import select_smallest_components
from skvt.moves._fresh import FreshMixtures, FreshResult
from skvt.moves._merge import compute_pair_gains, dissolve
from skvt.moves._trial import record_rejected_merges

each_kind = pytest.mark.parametrize("name", KINDS)


def mixture(name, *, D=2, K=1, alpha=1.3):
    component = KINDS[name].make(D, np.dtype(np.float64))
    return Mixture(StickBreaking(alpha), component, n_initial=K)


def memo_from(model, X, weights, resp):
    """The memo of rows with these responsibilities."""
    weighted = resp * weights[:, None]
    stats = Stats((weighted.sum(axis=0), weighted.T @ model.component.features(X)))
    none = np.zeros(len(X))
    batch = model.batch(X, np.arange(len(X)), weights)
    return make_memo(model, LocalResult(stats, none, none, resp), batch, run)


def state_from(model, X, weights, resp, n_batches=3):
    """A state with memos of batches of rows with these responsibilities."""
    memos = Memos()
    for key, rows in enumerate(np.array_split(np.arange(len(X)), n_batches)):
        memos[key] = memo_from(model, X[rows], weights[rows], resp[rows])
    state = MemoizedState(RunningStats(memos.total().stats.arrays), memos=memos)
    state.component_ids = state.allocate_ids(resp.shape[1])
    return state


def drawn(name, n=90, K=4, seed=0, sharpness=0.3):
    rng = np.random.default_rng(seed)
    resp = rng.dirichlet(np.full(K, sharpness), size=n)
    # Every third row belongs to one component alone.
    resp[::3] = np.eye(K)[rng.integers(K, size=len(resp[::3]))]
    return KINDS[name].rows(n, 2, rng), rng.uniform(0.3, 2.0, n), resp


class OneThread:
    """The tools of an engine that has one thread."""

    n_iter, rng, run = 3, None, staticmethod(run)

    def __init__(self, total=1.0, seed=0):
        self.total, self.rng = total, np.random.default_rng(seed)

    @staticmethod
    def make_memo(model, result, batch):
        return make_memo(model, result, batch, run)


def size(model, state):
    return model.size(state.stats)


# ------------------------------------------------------------------------------------- merges
@each_kind
def test_the_gain_of_a_merge_is_the_difference_of_the_bounds(name):
    model, (X, weights, resp) = mixture(name), drawn(name)
    state = state_from(model, X, weights, resp)
    memo = state.memos.total()
    before = compute_bound(model, memo)
    sticks = model.weights_log_evidence(memo.stats.arrays[0])
    pairs = list(zip(*compute_pair_gains(model, memo), strict=True))
    assert len(pairs) == 6
    for a, b, gain in pairs:
        merged = resp.copy()
        merged[:, a] += merged[:, b]
        merged = np.delete(merged, b, axis=1)
        after = memo_from(model, X, weights, merged)
        predicted = gain + model.weights_log_evidence(after.stats.arrays[0]) - sticks
        assert predicted == pytest.approx(compute_bound(model, after) - before, rel=1e-9, abs=1e-8)


def test_the_gains_of_some_pairs_are_those_of_all_pairs(monkeypatch):
    model, (X, weights, resp) = mixture("full"), drawn("full", K=7)
    memo = memo_from(model, X, weights, resp)
    a, b, gain = compute_pair_gains(model, memo)
    assert len(gain) == 21
    kept = (a == 2) | (b == 2)
    some = compute_pair_gains(model, memo, np.arange(7) == 2)
    monkeypatch.setattr("skvt.models.mixture.components._base._ENTRIES_AT_ONCE", 20)
    divided = compute_pair_gains(model, memo)
    for of_all, of_some, of_parts in zip((a, b, gain), some, divided, strict=True):
        np.testing.assert_allclose(of_some, of_all[kept], rtol=1e-12)
        np.testing.assert_allclose(of_parts, of_all, rtol=1e-12)


@pytest.mark.parametrize("name", ["full", "diagonal", "spherical", "Bernoulli"])
def test_halves_of_a_component_are_merged(name):
    model, rng = mixture(name, alpha=0.5), np.random.default_rng(1)
    X, weights = KINDS[name].rows(120, 2, rng), np.ones(120)
    whole = np.eye(2)[(X[:, 0] > np.median(X[:, 0])).astype(int)]
    u = rng.uniform(0.3, 0.7, size=(120, 2))
    halves = np.concatenate([whole * u, whole * (1.0 - u)], axis=1)
    state = state_from(model, X, weights, halves)
    names = state.component_ids.copy()
    records = Merge().finish(model, state, OneThread())
    assert all((record.move, record.n_iter) == ("merge", 3) for record in records)
    assert sorted((record.target, record.accepted) for record in records) == [
        ("0, 2", 1), ("1, 3", 1)
    ]  # fmt: skip
    # The merged components have new names.
    assert not set(state.component_ids) & set(names)
    np.testing.assert_allclose(state.memos.total().entropy, 0.0, atol=1e-10)
    for one, other in zip(
        state.stats.as_stats().arrays, state.memos.total().stats.arrays, strict=True
    ):
        np.testing.assert_array_equal(one, other)


@each_kind
@pytest.mark.parametrize("seed", range(2))
def test_merges_raise_the_bound_by_what_they_record(name, seed):
    model = mixture(name)
    state = state_from(model, *drawn(name, K=6, seed=seed, sharpness=2.0))
    move, before = Merge(), compute_bound(model, state.memos.total())
    records = move.finish(model, state, OneThread())
    after = compute_bound(model, state.memos.total())
    made = [record for record in records if record.accepted]
    assert after - before == pytest.approx(sum(r.gain for r in made), rel=1e-9, abs=1e-8)
    assert made and min(record.gain for record in made) > 0.0
    assert not move.exhausted
    # The last record describes the best of the rejected merges.
    assert len(records) <= len(made) + 1
    for record in records[len(made) :]:
        assert record.gain <= 0.0 and record.reason.startswith("The bound of all rows would fall")


@pytest.mark.parametrize("seed", range(3))
def test_the_first_of_merges_with_equal_gain_is_made(seed):
    model, (X, weights, _) = mixture("full"), drawn("full")
    noise = np.random.default_rng(seed).uniform(-1e-13, 1e-13, (len(X), 3))
    state = state_from(model, X, weights, np.full((len(X), 3), 1.0 / 3.0) * (1.0 + noise))
    (record,) = Merge().finish(model, state, OneThread())
    assert (record.target, record.accepted) == ("0, 1", 1)
    # The merge of components 0 and 1 has a new name.
    assert state.component_ids.tolist() == [3, 2]


@pytest.mark.parametrize("merge_entropy_loss", [0.0, 1e-13])
def test_a_merge_needs_more_than_rounding(merge_entropy_loss, monkeypatch):
    model, (X, weights, resp) = mixture("full"), drawn("full", K=2)
    state = state_from(model, X, weights, resp)
    counts = state.memos.total().stats.arrays[0]
    one = model.weights_log_evidence(np.array([counts.sum()]))
    gain = np.array([model.weights_log_evidence(counts) - one])
    gain += merge_entropy_loss * abs(gain)
    pair = np.array([0]), np.array([1])
    monkeypatch.setattr(merge_module, "compute_pair_gains", lambda *_: (*pair, gain.copy()))
    assert Merge().finish(model, state, OneThread())[0].accepted == 0
    gain += 1e-3
    assert Merge().finish(model, state, OneThread())[0].accepted == 1


def test_distant_clusters_are_not_merged():
    model, rng = mixture("spherical"), np.random.default_rng(2)
    means = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    labels = rng.integers(3, size=150)
    X = means[labels] + 0.3 * rng.standard_normal((150, 2))
    state = state_from(model, X, np.ones(150), np.eye(3)[labels])
    memos, stats = Memos(state.memos), state.stats
    move = Merge()
    *_, gains = compute_pair_gains(model, state.memos.total())
    (record,) = move.finish(model, state, OneThread())
    assert (record.proposed, record.accepted) == (3, 0) and record.gain < 0.5 * gains.max() < 0.0
    assert move.exhausted
    assert state.stats is stats and all(state.memos[key] is memos[key] for key in memos)


def test_pairs_of_unknown_entropy_are_not_merged():
    model = mixture("full")
    state = state_from(model, *drawn("full"))
    state.merge(0, 1)
    state.rearrange([0, 2, 3])
    state.resum()
    a, b, _ = compute_pair_gains(model, state.memos.total())
    assert list(zip(a, b, strict=True)) == [(1, 2)]
    # Memos that were made without moves know no pair.
    plain = state.memos[0].__class__(state.memos[0].stats, state.memos[0].entropy, None, 1.0)
    state.memos[0] = plain
    assert compute_pair_gains(model, state.memos.total())[0].size == 0
    assert Merge().finish(model, state, OneThread()) == []


# ------------------------------------------------------------------------------------ deletes
class Watcher(Move):
    """A move that notes the globals and the responsibilities of each batch."""

    def __init__(self):
        self.met = {}

    def make_observer(self, n_rows, tools):
        return lambda model, solved_batch, tools: solved_batch

    def store_notes(self, solved_batch):
        batch, key, g, result = solved_batch
        self.met[key] = (batch, g, result.q.copy())

    def finish(self, model, state, tools):
        self.bound, self.memo = compute_bound(model, state.memos.total()), state.memos.total()
        return []


def with_a_small_component(name, seed=3, alpha=1.3):
    """Two components of rows, and a third that has hardly any rows."""
    model, rng = mixture(name, K=2, alpha=alpha), np.random.default_rng(seed)
    X, weights = KINDS[name].rows(120, 2, rng), rng.uniform(0.5, 1.5, 120)
    data = Rows(X, weights, 40)
    state = MemoizedState(model.initial(data, rng))
    sweeps(model, data, state, [], n=5)
    counts, sums = state.stats.as_stats().arrays
    K = counts.size
    counts, sums = np.append(counts, 0.01 * counts[-1]), np.concatenate([sums, 0.01 * sums[-1:]])
    state.stats = RunningStats([counts, sums])
    state.memos, state.component_ids = Memos(), np.empty(0, int)
    state.initial = None
    return model, data, state, K


@each_kind
@pytest.mark.parametrize("alpha", [0.05, 1.3])
def test_the_gain_of_a_delete_is_the_difference_of_the_bounds(name, alpha):
    model, data, state, K = with_a_small_component(name, alpha=alpha)
    watcher, delete = Watcher(), Delete()
    sweeps(model, data, state, [watcher, delete])
    (record,) = state.move_log
    assert record.move == "delete" and record.proposed == 1
    # Dense computation gives the rows of each batch without the candidate.
    resp = []
    for key in sorted(watcher.met):
        batch, g, q = watcher.met[key]
        logits = g[0] + model.component.features(batch.X) @ g[1].T
        np.testing.assert_allclose(q, softmax(logits, axis=1), atol=1e-10)
        resp.append(softmax(np.delete(logits, K, axis=1), axis=1))
    expected = memo_from(model, data.X, data.weights, np.concatenate(resp))
    gain = compute_bound(model, expected) - watcher.bound
    assert record.accepted == (gain > 0.0)
    assert delete.exhausted == (gain <= 0.0)
    if record.accepted:
        assert size(model, state) == K
        total = state.memos.total()
        # Sorting by mass may add to the gain.
        assert compute_bound(model, total) - watcher.bound >= record.gain * (1.0 - 1e-9) > 0.0
        order = np.argsort(-expected.stats.arrays[0], kind="stable")
        for one, other in zip(total.stats.arrays, expected.stats.arrays, strict=True):
            found = one[np.argsort(-total.stats.arrays[0], kind="stable")]
            np.testing.assert_allclose(found, other[order], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(
            np.sort(total.entropy), np.sort(expected.entropy), rtol=1e-7, atol=1e-7
        )
    else:
        assert size(model, state) == K + 1
    assert record.gain == pytest.approx(gain, rel=1e-6, abs=1e-8)


def test_an_outlier_keeps_a_component_of_its_own():
    model, rng = mixture("spherical"), np.random.default_rng(5)
    X = np.concatenate([0.3 * rng.standard_normal((100, 2)), [[60.0, -60.0]]])
    state = state_from(model, X, np.ones(101), np.eye(2)[[0] * 100 + [1]], n_batches=1)
    state.begin(2)
    sweeps(model, Rows(X, np.ones(101), 101), state, [Delete()], n=2)
    assert [(record.proposed, record.accepted) for record in state.move_log] == [(1, 0)] * 2
    assert size(model, state) == 2


def test_large_components_are_not_deleted():
    model, (X, weights, resp) = mixture("full"), drawn("full", K=3)
    state = state_from(model, X, weights, resp)
    delete = Delete()
    sweeps(model, Rows(X, weights, 30), state, [delete])
    assert state.move_log == [] and delete.exhausted


# ----------------------------------------------------------------------------------- dissolved
@each_kind
def test_a_component_of_less_than_a_row_is_dissolved_and_no_other(name):
    model, (X, weights, resp) = mixture(name), drawn(name, K=3)
    resp = np.concatenate([0.999 * resp, np.full((90, 1), 1e-3)], axis=1)
    state = state_from(model, X, weights, resp)
    names, before = state.component_ids.copy(), compute_bound(model, state.memos.total())
    dissolve(model, state, names[:3])
    np.testing.assert_array_equal(state.component_ids, names)
    dissolve(model, state)
    counts = state.memos.total().stats.arrays[0]
    assert counts.size == 3 and counts.min() >= 1.0
    assert counts.sum() == pytest.approx(weights.sum())
    assert len(set(names[:3]) & set(state.component_ids)) == 2
    assert compute_bound(model, state.memos.total()) > before - 1.0
    kept = state.component_ids.copy()
    dissolve(model, state)
    np.testing.assert_array_equal(state.component_ids, kept)


@each_kind
def test_many_small_components_are_dissolved_together(name):
    model, (X, weights, resp) = mixture(name), drawn(name, K=3)
    rng = np.random.default_rng(9)
    small = rng.dirichlet(np.full(5, 0.3), size=90) * rng.uniform(0.0, 0.004, size=(90, 1))
    whole = np.concatenate([resp * (1.0 - small.sum(axis=1, keepdims=True)), small], axis=1)
    state = state_from(model, X, weights, whole)
    before, names = compute_bound(model, state.memos.total()), state.component_ids
    merged = np.eye(8)
    merge, here = state.merge, list(range(8))

    def spy(a, b, **how):
        merged[:, here[a]] += merged[:, here[b]]
        del here[b]
        merge(a, b, **how)

    state.merge = spy
    dissolve(model, state)
    total = state.memos.total()
    assert total.stats.arrays[0].min() >= 1.0
    assert len(here) == 3 and set(state.component_ids).isdisjoint(names[3:])
    expected = memo_from(model, X, weights, whole @ merged[:, here])
    np.testing.assert_allclose(total.stats.arrays[1], expected.stats.arrays[1], atol=1e-9)
    assert np.all(total.entropy <= expected.entropy + 1e-9)
    # Each pair of components in a group loses at most what it would lose alone.
    alone = weights @ entr(whole)
    pair = np.array([weights @ entr(whole + column[:, None]) for column in whole.T])
    lost = np.triu(alone[:, None] + alone - pair, 1)
    lost += lost.T
    groups = merged[:, here]
    of_groups = groups.T @ lost @ groups
    entropy = groups.T @ alone - 0.5 * np.diagonal(of_groups)
    np.testing.assert_allclose(total.entropy, entropy, rtol=1e-9)
    np.testing.assert_allclose(total.merge_entropy_loss, np.triu(of_groups, 1), rtol=1e-9)
    # The memo knows lower bounds of entropies and upper bounds of what merges lose.
    assert np.all(total.merge_entropy_loss >= expected.merge_entropy_loss - 1e-9)
    assert before - 3.0 < compute_bound(model, total) <= compute_bound(model, expected) + 1e-9


def test_part_of_a_row_that_nothing_else_explains_is_not_dissolved():
    model, rng = mixture("spherical"), np.random.default_rng(5)
    X = np.concatenate([rng.standard_normal((100, 2)), [[60.0, -60.0]]])
    weights = np.append(np.ones(100), 0.5)
    state = state_from(model, X, weights, np.eye(2)[[0] * 100 + [1]])
    dissolve(model, state)
    assert size(model, state) == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_component_of_exactly_one_row_is_not_dissolved(seed):
    model, (X, _, _) = mixture("full"), drawn("full")
    resp = np.eye(2)[(np.arange(len(X)) >= 3).astype(int)]
    weights = np.where(np.arange(len(X)) < 3, 1.0 / 3.0, 1.0)
    weights *= 1.0 + np.random.default_rng(seed).uniform(-4e-16, 0.0)
    state = state_from(model, X, weights, resp)
    dissolve(model, state)
    assert size(model, state) == 2


def test_the_last_component_is_never_dissolved():
    model = mixture("full")
    X, _, resp = drawn("full", n=1, K=2)
    state = state_from(model, X, np.array([0.4]), resp, n_batches=1)
    dissolve(model, state)
    assert size(model, state) == 1


# -------------------------------------------------------------------------------------- births
def clusters(n=300, K=4, seed=6):
    """Clusters in a row."""
    rng = np.random.default_rng(seed)
    means = 10.0 * np.array([[-3.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [3.0, 0.0]])[:K]
    return means[rng.integers(K, size=n)] + 0.5 * rng.standard_normal((n, 2))


def mixture_for(X, K=1):
    """A mixture of spherical components with a prior that suits the data."""
    prior = GaussianPrior(mean_precision=0.01)
    component, _ = make_gaussian_component(X, np.ones(len(X)), "spherical", False, prior)
    return Mixture(StickBreaking(1.0), component, n_initial=K)


def grown(X, max_components, *, n=30, batch_size=100):
    model, data = mixture_for(X), Rows(X, np.ones(X.shape[0]), batch_size)
    state = MemoizedState(model.initial(data, np.random.default_rng(0)))
    moves = [Delete(), Merge(), Birth(max_components)]
    bounds = sweeps(model, data, state, moves, n=n)
    return model, state, moves, bounds


@pytest.mark.parametrize("most", [1, 2, 3, 4, 6])
def test_births_find_the_clusters_as_far_as_they_may(most):
    model, state, moves, bounds = grown(clusters(), most)
    assert size(model, state) == min(most, 4)
    # No move is left to try.
    assert all(move.exhausted for move in moves)
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[0]))
    births = [record for record in state.move_log if record.move == "birth"]
    assert (most == 1) == (births == [])
    assert all(record.n_iter < 30 for record in births)
    # A birth records the gain of the bound in its pass, apart from the gain by sorting.
    for record in births:
        if record.accepted:
            n = record.n_iter - 1
            assert 0.0 < record.gain <= bounds[n] - bounds[n - 1] + 1e-6
    assert len(set(state.component_ids.tolist())) == size(model, state)


def test_a_birth_without_gain_is_reverted(monkeypatch):
    X = clusters(K=2)
    model, data = mixture_for(X, K=2), Rows(X, np.ones(300), 100)
    state = MemoizedState(model.initial(data, np.random.default_rng(0)))
    sweeps(model, data, state, [], n=10)
    settled = [array.copy() for array in state.stats.as_stats().arrays]
    adopted = []

    class Eager(Birth):
        """Proposes fresh components that no rows support."""

        def _fit_fresh_components(self, mixtures, target):
            part = state.stats.as_stats().arrays
            stats = Stats(tuple(0.5 * array[[target.components[0]] * 2] for array in part))
            return FreshResult(Decision(True, 1.0, ""), "", stats)

        def begin(self, model, state, tools):
            super().begin(model, state, tools)
            adopted.append(size(model, state))

    birth = Eager(50)
    sweeps(model, data, state, [birth], n=12)
    assert max(adopted) > 2
    births = [record for record in state.move_log if record.move == "birth"]
    assert all(record.accepted == 0 and record.gain < 0.1 for record in births)
    assert size(model, state) == 2
    for array, before in zip(state.stats.as_stats().arrays, settled, strict=True):
        np.testing.assert_allclose(array, before, rtol=1e-6)
    # A component is not tried forever while it does not change.
    assert birth.exhausted


def tries(ledger, id_, mass):
    """How often a component has failed at this mass."""
    return ledger.count_failures([id_], [mass])[0]


def test_a_component_that_has_changed_is_tried_again():
    empty = ledger = Ledger()
    for n in range(3):
        assert tries(ledger, 7, 100.0) == n
        ledger = ledger.record_failure([7, 8], [100.0, 40.0])
    np.testing.assert_array_equal(
        ledger.count_failures([7, 7, 8, 7, 9], [105, 95, 40, 115, 100]), [3, 3, 3, 0, 0]
    )
    changed = ledger.record_failure([7], [115.0])
    assert tries(changed, 7, 115.0) == 1 and tries(changed, 7, 100.0) == 0
    # A ledger is a value, which does not change.
    assert tries(ledger, 7, 100.0) == 3 and empty == Ledger()
    assert tries(replace(ledger, same_mass=0.2), 7, 115.0) == 3


def test_successes_cancel_failures_and_new_components_end_pauses():
    ledger = (
        Ledger().record_failure([1], [10.0]).record_failure([2], [10.0]).record_failure([3], [10.0])
    )
    assert ledger.n_in_vain == 3
    succeeded = ledger.record_success(2, [1, 4], [30.0, 20.0])
    assert succeeded.n_in_vain == 1 and succeeded.record_success(2, [], []).n_in_vain == 0
    # A component that was just judged waits until its mass changes.
    np.testing.assert_array_equal(
        succeeded.count_failures([1, 4, 4], [30.0, 20.0, 25.0]), [1, 1, 0]
    )
    pauses = [ledger := ledger.record_search(False, 5) for _ in range(4)]
    assert [each.pause for each in pauses] == [each.waiting for each in pauses] == [1, 3, 5, 5]
    assert ledger.record_pass().waiting == 4 and ledger.record_search(True).pause == 0
    known = ledger.record_targets(np.array([1, 2]))
    assert (known.pause, known.waiting, known.n_in_vain) == (0, 0, 0)
    waits = known.record_search(False)
    assert (
        waits.record_targets(np.array([2])) is waits
        and waits.record_targets(np.array([2, 3])).pause == 0
    )


def test_vain_searches_halve_the_number_of_targets_and_gains_double_it(monkeypatch):
    monkeypatch.setattr(birth_module, "dissolve", lambda *args: None)
    monkeypatch.setattr(birth_module, "compute_bound", lambda model, memo: memo)
    birth, found = Birth(50), []
    birth._adopted_targets = [targets_module.Target([k], [k], [1.0]) for k in range(2)]
    birth._newborn_ids = set()
    for gain in (-1.0, -1.0, 1.0, 1.0, 1.0):
        memos = SimpleNamespace(total=lambda gain=gain: 10.0 + gain)
        birth._before_adoption = None, 10.0, None
        birth._judge_adopted(
            None, SimpleNamespace(memos=memos, restore=lambda saved: None), OneThread()
        )
        found.append(len(birth._choose_targets(np.full(16, 100.0), np.arange(16), OneThread())))
    # A search has at least 1 target and at most 8.
    assert found == [4, 2, 4, 8, 8]


@pytest.mark.parametrize("n_rows, ends", [(16_000.0, True), (160.0, False)])
def test_births_end_when_several_of_them_gain_only_a_few_nats(monkeypatch, n_rows, ends):
    birth, has_targets = Birth(50), []
    masses = np.full(16, n_rows / 16)
    state = SimpleNamespace(component_ids=np.arange(16), stats=None, plain_stats=RunningStats([]))
    model = SimpleNamespace(
        size=lambda stats: 16, for_births=lambda stats: None, component_masses=lambda stats: masses
    )
    # A birth of 40 nats begins the count anew. Gains of 3 nats are not small in 160 rows.
    for gains in ((3.0,) * 4, (3.0, 40.0, 3.0), (8.0, 2.0, 3.0), (0.5, 1.0)):
        fresh = [FreshResult(Decision(True, gain, ""), "", Stats((np.ones(1),))) for gain in gains]
        birth._targets = [targets_module.Target([k], [k], [99.0]) for k in range(len(gains))]
        monkeypatch.setattr(
            birth, "_fit_fresh_components", lambda mixtures, target, fresh=fresh: fresh.pop()
        )
        birth.finish(model, state, OneThread())
        targets = birth._choose_targets(np.full(16, 99.0), np.arange(16), OneThread())
        has_targets.append(bool(targets))
    assert has_targets == [True, True, True, not ends]


def test_failed_births_are_tried_again_after_large_changes_of_priors():
    ledger, forgotten = Ledger(), []
    for now in (0.0, 4.0, 6.0, 12.0, 17.0, -2.0):
        prior = Stats((np.array([now]),))
        same = SimpleNamespace(log_normalizer=lambda eta: eta)
        ledger = replace(ledger, failures={1: (10.0, 2)})
        ledger = ledger.forget_if_priors_changed(
            SimpleNamespace(families=(same,), prior=lambda prior=prior: prior)
        )
        forgotten.append(not ledger.failures)
    assert forgotten == [False, False, True, False, True, False]


def test_failures_add_the_nearest_neighbours_to_a_target():
    counts, names = np.array([100.0, 90.0, 80.0, 70.0, 15.0]), np.arange(10, 15)
    overlaps = np.zeros((5, 5))
    for a, b, nats in ((0, 1, 1.0), (0, 2, 5.0), (2, 4, 8.0), (1, 3, 2.0)):
        overlaps[a, b] = overlaps[b, a] = nats
    # The target has the chosen component and, for each failure, one more neighbour. A component of
    # few rows is never chosen.
    expected = {0: [0, 2, 4], 1: [1, 3, 0], 2: [2, 4, 0], 3: [3, 1, 0]}
    for n_tries, seed in [(0, 0), *((n, seed) for n in (1, 2) for seed in range(8))]:
        ledger = Ledger().record_failure(names.tolist(), counts, n_tries)
        rng = np.random.default_rng(seed)
        targets = targets_module.draw_targets(ledger, counts, names, rng, 2, overlaps)
        assert targets[0].components == expected[targets[0].components[0]][: 1 + n_tries]
        members = [k for target in targets for k in target.components]
        assert len(targets) <= 2 and len(set(members)) == len(members)
        for target in targets:
            assert target.ids == [names[k] for k in target.components]
            assert target.masses == [counts[k] for k in target.components]
    # After four failures the target has all components that overlap with another of its members.
    ledger, rng = Ledger().record_failure(names.tolist(), counts, 4), np.random.default_rng(0)
    (target, *_) = targets_module.draw_targets(ledger, counts, names, rng, 2, overlaps)
    assert set(target.components) >= {0, 1, 2, 3}
    ledger = Ledger().record_failure(names.tolist(), counts, 5)
    assert targets_module.draw_targets(ledger, counts, names, rng, 2, overlaps) == []


@pytest.fixture
def collected(monkeypatch):
    """A birth with two targets that have collected rows of three batches.

    ``rows`` are those of the second target. Its components explain the weights ``explained`` of
    them, in the proportions ``shares``.
    """
    monkeypatch.setattr(targets_module, "MIN_RESPONSIBILITY", 0.2)
    monkeypatch.setattr(targets_module, "MAX_ROWS", 50)
    monkeypatch.setattr(fresh_module, "_MAX_COLUMNS_FOR_FEWER", 0)
    model, (X, weights, resp) = mixture("full"), drawn("full", sharpness=2.0)
    birth, tools = Birth(50), OneThread()
    birth._targets = [
        targets_module.Target([1], [1], [1.0]), targets_module.Target([3, 0], [3, 0], [1.0, 1.0]),
    ]  # fmt: skip
    for rows in np.array_split(np.arange(90), 3):
        batch = model.batch(X, rows, weights[rows])
        solved_batch = SolvedBatch(batch, 0, None, LocalResult(None, None, None, resp[rows]))
        birth.store_notes(birth.make_observer(30, tools)(model, solved_batch, tools))
    mass = resp[:, [3, 0]].sum(axis=1)
    rows = np.flatnonzero(mass > 0.2)[:50]
    return SimpleNamespace(
        model=model, data=(X, weights, resp), birth=birth, tools=tools, rows=X[rows],
        explained=(weights * mass)[rows], shares=resp[rows][:, [3, 0]] / mass[rows, None],
        mixtures=FreshMixtures(model, tools, 4, None),
    )  # fmt: skip


def with_more(memo, nats):
    """A memo whose bound is higher by ``nats`` for each component."""
    return memo.__class__(memo.stats, memo.entropy + nats, memo.merge_entropy_loss, memo.weight)


def test_targets_collect_the_rows_that_their_components_explain(collected):
    X, weights, resp = collected.data
    for target in collected.birth._targets:
        resp_of_target = resp[:, target.components]
        mass = resp_of_target.sum(axis=1)
        rows = np.flatnonzero(mass > 0.2)[:50]
        assert target.total == pytest.approx(weights @ mass)
        np.testing.assert_array_equal(np.concatenate(target.rows), X[rows])
        np.testing.assert_array_equal(np.concatenate(target.weights), weights[rows])
        np.testing.assert_array_equal(np.concatenate(target.resp), resp_of_target[rows])


def test_one_component_for_all_rows_may_be_better_than_a_target(collected, monkeypatch):
    def fit_poorly(model, batch, *_):
        memo = memo_from(model, batch.X, batch.weights, collected.shares)
        return with_more(memo, -1e6), model

    monkeypatch.setattr(fresh_module, "fit_fresh_mixture", fit_poorly)
    fresh = collected.birth._fit_fresh_components(collected.mixtures, collected.birth._targets[1])
    assert len(fresh.stats.arrays[0]) == 1


@pytest.mark.parametrize("total", [None, 1000.0], ids=["few rows", "many rows"])
@pytest.mark.parametrize("gain_per_row", [-0.1, 0.0, 0.1])
def test_a_fresh_mixture_must_explain_rows_better_than_its_target(
    collected, monkeypatch, gain_per_row, total
):
    model, birth, target = collected.model, collected.birth, collected.birth._targets[1]
    target.total = total or target.total
    # A collected row also stands for rows that were not collected, but for at most two rows.
    counted = target.total / collected.explained.sum()
    assert counted > 2.0 if total else 1.3 < counted < 2.0
    weights = min(counted, 2.0) * collected.explained
    memo = memo_from(model, collected.rows, weights, collected.shares)
    nats = gain_per_row * weights.sum()

    def make_memo(model, result, batch):
        memo = OneThread.make_memo(model, result, batch)
        return memo if memo.entropy.size > 1 else with_more(memo, -1e6)

    def fit(model, batch, *_):
        np.testing.assert_allclose(batch.weights, weights)
        np.testing.assert_array_equal(batch.X, collected.rows)
        return with_more(memo, nats), model

    collected.tools.make_memo = make_memo
    monkeypatch.setattr(fresh_module, "fit_fresh_mixture", fit)
    fresh, accepted = birth._fit_fresh_components(collected.mixtures, target), gain_per_row > 0.0
    assert fresh.decision.is_accepted == accepted
    assert fresh.decision.gain == pytest.approx(nats * memo.entropy.size)
    assert set(birth._ledger.count_failures([3, 0], [1.0, 1.0])) == {0 if accepted else 2}


@pytest.mark.parametrize("best", [3, 4], ids=["few components", "many components"])
def test_the_best_of_several_fresh_mixtures_is_taken(collected, monkeypatch, best):
    model, weights = collected.model, collected.explained
    memo = memo_from(model, collected.rows, weights, collected.shares)

    def fit(model, *_):
        return with_more(memo, (1.0 if model.n_initial == best else 0.2) * weights.sum()), model

    monkeypatch.setattr(fresh_module, "fit_fresh_mixture", fit)
    batch = model.batch(collected.rows, np.arange(len(weights)), weights)
    fresh = collected.mixtures._fit_best(batch, memo, with_more(memo, -1e6), 4)
    assert fresh.decision.is_accepted
    assert fresh.decision.gain == pytest.approx(weights.sum() * memo.entropy.size)


@pytest.mark.parametrize(
    ("n_columns", "weight", "in_stream", "n_initial"),
    [(3, 1.0, False, [3]), (3, 2.0, False, [10, 3]), (4, 1.0, False, [10, 3, 3]),
     (3, 1.0, True, [10, 3, 3])],
)  # fmt: skip
def test_targets_with_few_rows_and_columns_have_fewer_starts_unless_rows_come_in_a_stream(
    n_columns, weight, in_stream, n_initial, monkeypatch
):
    model, asked, weights = mixture("full", D=n_columns), [], np.full(90, weight)
    X = np.random.default_rng(0).standard_normal((90, n_columns))
    memo = memo_from(model, X, weights, np.ones((90, 1)))

    def fit(model, *_):
        asked.append(model.n_initial)
        return memo, model

    monkeypatch.setattr(fresh_module, "fit_fresh_mixture", fit)
    batch = model.batch(X, np.arange(90), weights)
    FreshMixtures(model, OneThread(), 10, None, in_stream)._fit_best(batch, memo, memo, 10)
    assert asked == n_initial


def test_a_birth_pays_for_the_change_of_priors_of_all_others(monkeypatch):
    model, (X, weights, resp) = mixture("full"), drawn("full")
    prior = 3.0 * model.component.prior
    under = replace(model, component=replace(model.component, prior=prior))
    others, batch = memo_from(model, X, weights, resp).stats, model.batch(X, np.arange(90), weights)
    cost = model.collapsed_energy(others) - under.collapsed_energy(others)
    goal = compute_bound(model, memo_from(model, X, weights, np.ones((90, 1))))
    memo, tools = memo_from(model, X, weights, resp[:, :2] + 0.5 * resp[:, 2:]), OneThread()
    enough = goal + cost + fresh_module.MIN_GAIN_PER_ROW * weights.sum()
    assert abs(cost) > 1.0
    for excess, accepted in ((-0.1, False), (0.1, True)):
        more = (enough + excess - compute_bound(under, memo)) / memo.entropy.size
        found = memo.__class__(memo.stats, memo.entropy + more, None, memo.weight)
        monkeypatch.setattr(
            fresh_module, "fit_fresh_mixture", lambda *_, found=found: (found, under)
        )
        fresh = FreshMixtures(model, tools, 50, others)._fit_under_learned_priors(batch, others)
        assert fresh.decision.is_accepted == accepted and fresh.learns_priors
        assert fresh.decision.gain == pytest.approx(enough + excess - goal - cost)


def test_fresh_components_replace_their_target():
    model, (X, weights, resp) = mixture("full"), drawn("full")
    state = state_from(model, X, weights, resp)
    names, before = state.component_ids.copy(), state.memos.total().stats
    birth = Birth(50)
    birth._fresh = [Stats(tuple(0.3 * array[[0, 2]] for array in before.arrays))]
    birth._targets = [targets_module.Target([2, 0], names[[2, 0]].tolist(), [1.0, 1.0])]
    birth.begin(model, state, OneThread())
    np.testing.assert_array_equal(state.component_ids[:2], names[[1, 3]])
    assert not set(state.component_ids[2:]) & set(names)
    for now, then in zip(state.stats.as_stats().arrays, before.arrays, strict=True):
        np.testing.assert_allclose(now, np.concatenate([then[[1, 3]], 0.3 * then[[0, 2]]]))
    # The memos have no rows of the newborn components.
    np.testing.assert_array_equal(state.memos.total().stats.arrays[0][2:], 0.0)


def test_a_birth_may_replace_two_neighbours():
    """Each component has half of both clusters, and a birth of one alone is not tried."""
    X = clusters(n=300, K=2)
    model, data = mixture_for(X, K=2), Rows(X, np.ones(300), 100)
    resp = np.random.default_rng(0).dirichlet([5.0, 5.0], size=300)
    state, birth = state_from(model, X, np.ones(300), resp), Birth(50)
    birth._ledger = Ledger().record_failure(state.component_ids.tolist(), [150.0, 150.0])
    masses = state.memos.total().stats.arrays[0]
    assert np.all(np.abs(masses - 150.0) < 15.0)
    old = set(state.component_ids)
    bounds = sweeps(model, data, state, [birth], n=2)
    assert not old & set(state.component_ids) and size(model, state) == 2
    births = [record for record in state.move_log if record.move == "birth"]
    assert (births[0].n_iter, births[0].proposed, births[0].accepted) == (2, 1, 2)
    assert set(births[0].target.split(", ")) == {"0", "1"}
    assert bounds[1] - bounds[0] >= births[0].gain - 1e-6 > 100.0
    truth = memo_from(model, X, np.ones(300), np.eye(2)[(X[:, 0] > X[:, 0].mean()).astype(int)])
    assert bounds[1] == pytest.approx(compute_bound(model, truth), abs=1.0)


@pytest.mark.slow
def test_births_find_small_differences_in_many_rows(monkeypatch):
    """A sample is too small to support two components that all rows support."""
    monkeypatch.setattr(targets_module, "MAX_ROWS", 4_000)
    rng = np.random.default_rng(0)
    scales = np.ones((2, 8))
    scales[0, :4] = scales[1, 4:] = 1.35
    X = rng.standard_normal((20_000, 8)) * scales[rng.integers(2, size=20_000)]
    component, _ = make_gaussian_component(X, np.ones(len(X)), "full", True)
    model = Mixture(StickBreaking(1.0), component)
    data = Rows(X, np.ones(len(X)), 5_000)
    state = MemoizedState(model.initial(data, rng))
    sweeps(model, data, state, [Delete(), Merge(), Birth(50)], n=8)
    assert size(model, state) == 2


def test_few_rows_have_no_births():
    model, state, moves, _ = grown(clusters(n=19, K=2), 50, batch_size=7)
    assert size(model, state) == 1
    assert state.move_log == []
    assert all(move.exhausted for move in moves)


def test_a_merge_is_judged_with_the_priors_that_follow_it():
    rng = np.random.default_rng(0)
    D, labels = 60, np.repeat(np.arange(3), 210)
    X = 1.2 * rng.standard_normal((3, D))[labels] + rng.standard_normal((630, D))
    component, _ = make_gaussian_component(X, np.ones(630), "full", False)
    names = frozenset({"covariance_prior", "degrees_of_freedom_prior", "mean_precision_prior"})
    learner = GaussianLearner.from_component(component, names)
    model = Mixture(StickBreaking(1.0), component, learner=learner)
    # The third cluster has two halves, from which the priors have learned.
    halves = np.where(labels == 2, 2 + rng.integers(2, size=630), labels)
    state = state_from(model, X, np.ones(630), np.eye(4)[halves])
    for _ in range(20):
        model = model.with_learned_priors(None, state.stats)
    *_, gains = compute_pair_gains(model, state.memos.total())
    assert gains.max() < -10.0  # Under these priors the halves are better apart.
    before = compute_bound(model.with_learned_priors(None, state.stats), state.memos.total())
    merge = Merge()
    record, _ = merge.finish(model, state, OneThread())
    after = compute_bound(merge.update_priors(model), state.memos.total())
    assert record.target == "2, 3" and record.accepted == 1 and size(model, state) == 3
    assert after - before == pytest.approx(record.gain, rel=1e-6) and record.gain > 10.0


def test_distant_pairs_are_not_judged_with_other_priors(monkeypatch):
    X, labels = clusters(n=90, K=3), np.repeat(np.arange(3), 30)
    X = X + 100.0 * labels[:, None]
    component, _ = make_gaussian_component(X, np.ones(90), "full", False)
    learner = GaussianLearner.from_component(component, frozenset({"covariance_prior"}))
    model = Mixture(StickBreaking(1.0), component, learner=learner)
    state = state_from(model, X, np.ones(90), np.eye(3)[labels])
    monkeypatch.setattr(
        Merge, "_judge_with_new_priors", lambda *given: pytest.fail("learned in vain")
    )
    assert Merge().finish(model, state, OneThread())[0].accepted == 0


def test_a_target_has_equally_many_rows_of_each_batch(monkeypatch):
    monkeypatch.setattr(targets_module, "MAX_ROWS", 130)
    X = clusters(n=300)
    model = mixture_for(X)
    data = Rows(X, np.ones(300), 60)
    state = MemoizedState(model.initial(data, np.random.default_rng(0)))
    birth = Birth(50)
    seen = []
    monitor = birth._fit_fresh_components

    def create(mixtures, target):
        seen.append([len(rows) for rows in target.rows])
        return monitor(mixtures, target)

    birth._fit_fresh_components = create
    sweeps(model, data, state, [birth], n=4)
    # The first target has all rows.
    assert len(seen[0]) == 5 and min(seen[0]) > 10
    assert max(map(sum, seen)) <= 130


def test_no_birth_is_tried_if_another_one_has_reached_the_maximum_of_components(monkeypatch):
    X = clusters()
    model, data, birth = mixture_for(X, K=2), Rows(X, np.ones(300), 100), Birth(3)
    state = MemoizedState(model.initial(data, np.random.default_rng(0)))

    def both(counts, ids, *_):
        return [targets_module.Target([k], [ids[k]], [counts[k]]) for k in range(2)]

    monkeypatch.setattr(birth, "_choose_targets", both)
    sweeps(model, data, state, [birth], n=1)
    # Two components replace one of the two, so that there are three.
    assert [len(stats.arrays[0]) for stats in birth._fresh] == [2] and state.move_log == []


@pytest.mark.parametrize("contain", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_births_find_clusters_of_counts(contain):
    rng = np.random.default_rng(7)
    profiles = np.eye(3)[:, [0, 0, 1, 1, 2, 2]] * 0.5
    X = np.stack([rng.multinomial(40, profiles[k]) for k in rng.integers(3, size=200)])
    component = KINDS["multinomial"].make(6, np.dtype(np.float64))
    model, data = Mixture(StickBreaking(1.0), component), Rows(contain(X * 1.0), np.ones(200), 50)
    state = MemoizedState(model.initial(data, np.random.default_rng(0)))
    sweeps(model, data, state, [Delete(), Merge(), Birth(50)], n=8)
    assert size(model, state) == 3


def test_the_largest_of_too_many_fresh_components_is_left_out():
    model = mixture("full")
    fresh = Stats((np.array([50.0, 200.0, 100.0, 50.0]), np.arange(8.0).reshape(4, 2)))
    for number, kept in ((9, [0, 1, 2, 3]), (4, [0, 1, 2, 3]), (3, [0, 2, 3]), (1, [3])):
        for found, array in zip(
            select_smallest_components(model, fresh, number).arrays, fresh.arrays, strict=True
        ):
            np.testing.assert_array_equal(found, array[kept])


# ------------------------------------------------------------------------------------- streams
@pytest.mark.quick_cases("full", "diagonal", "Bernoulli")
@each_kind
def test_births_within_a_batch_raise_the_bound_by_what_they_record(name):
    model, rng = mixture(name, D=3), np.random.default_rng(8)
    state = MemoizedState(model.initial(Rows(KINDS[name].rows(50, 3, rng), np.ones(50), 50), rng))
    plain = MemoizedInference([Watcher()])
    with Workers() as workers:
        for key in range(4):
            data, n_before = (
                Rows(KINDS[name].rows(200, 3, rng), np.ones(200), 200),
                len(state.move_log),
            )
            batch, stream = data.batch(model, np.arange(200)), Stream(0.0, True, batch_id=key)
            plain.update(model, state, stream, PassInputs(data, RunningPolicy(), workers))
            before = compute_bound(model, state.memos.total())
            tools = EngineTools(1, rng, workers)
            records = Birth(50).change_within_batch(model, batch, key, state, tools)
            after = compute_bound(model, state.memos.total())
            gain = sum(record.gain for record in records if record.accepted)
            assert gain == pytest.approx(after - before, rel=1e-8, abs=1e-7)
            accepted = [record.accepted > 0 for record in records]
            assert accepted == [record.gain > 0.1 for record in records]
            K = size(model, state)
            assert all(memo.entropy.size == K for memo in state.memos.values())
            assert len(state.move_log) == n_before
    assert state.memos.total().weight == 800.0


def test_several_births_within_a_batch_add_up_in_their_record():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(4), 100)
    X = 40.0 * rng.normal(size=(4, 3))[group] + rng.normal(size=(400, 3))
    X[::2] += 8.0
    fit = MemoizedDPGMM(4, labels_init=group, n_batches=1, moves=(), covariance_prior=np.eye(3))
    fit.set_params(max_iter=2).fit(X)
    model, state = fit._fitted.model, fit._fitted.state.draft()
    batch = Rows(X, np.ones(400), 400).batch(model, np.arange(400))
    before = compute_bound(model, state.memos.total())
    with Workers() as workers:
        tools = EngineTools(1, rng, workers)
        birth = Birth(50)
        records = birth.change_within_batch(model, batch, 0, state, tools)
    assert sum(record.accepted > 0 for record in records) >= 2
    # The gains hold under the priors that the births have learned.
    after = compute_bound(birth.update_priors(model), state.memos.total())
    gain = sum(record.gain for record in records if record.accepted)
    assert gain == pytest.approx(after - before)


def test_rejected_merges_never_say_that_the_bound_rises():
    pairs = [(-2.0, (0, 1)), (3.0, (1, 2))]
    (record,) = record_rejected_merges(4, "merge", pairs, scale=10.0)
    assert (record.target, record.gain, record.proposed, record.accepted) == ("1, 2", 3.0, 2, 0)
    assert "would rise by 3 nats, but" in record.reason
