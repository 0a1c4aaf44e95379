"""Memoized inference keeps its laws for every kind of component."""

import sys
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
from _engines import bound_in_this_order, policy_at
from _properties import quick, sequences
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from models._textbook import KINDS, with_gaps
from scipy.special import xlogy

from skvt.contracts import FitPlan, LocalTotals, Move, MoveRecord, PassInputs, RunningPolicy, Stream
from skvt.expfam import RunningStats, Stats
from skvt.inference import (
    CoordinateAscent,
    MemoizedInference,
    MemoizedState,
    Pilot,
    Rows,
    StochasticInference,
    Workers,
    _memos,
)
from skvt.inference._bound import compute_bound_parts
from skvt.inference._memoized import sort_components
from skvt.inference._memos import Memo, Memos
from skvt.inference._visit import VisitResult, make_memo
from skvt.models.mixture._kernels import add_assignment_entropies
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import StickBreaking
from skvt.moves import Birth, Delete, Merge
from skvt.schedules import RobbinsMonro
from skvt.temperature import LinearAnnealing

each_kind = pytest.mark.parametrize("name", KINDS)


def mixture(name, *, D=2, K=4, **start):
    component = KINDS[name].make(D, np.dtype(np.float64))
    return Mixture(StickBreaking(1.3), component, n_initial=K, **start)


def data_of(name, n=120, *, D=2, batch_size=30, seed=0, weighted=True, gaps=True):
    rng = np.random.default_rng(seed)
    X = KINDS[name].rows(n, D, rng)
    if gaps and KINDS[name].make(D, np.float64).missing:
        X = with_gaps(X, rng, share=0.1)
    return Rows(X, rng.uniform(0.3, 2.0, n) if weighted else np.ones(n), batch_size)


def start(model, data, seed=0):
    return MemoizedState(model.initial(data, np.random.default_rng(seed)))


def bound(model, state):
    totals, divergence = compute_bound_parts(model, state)
    return totals.untempered - divergence


class Watched(MemoizedInference):
    """Notes the exact bound after each visit, and the last assignments of each batch."""

    def __init__(self, moves=()):
        super().__init__(moves)
        self.bounds_seen, self.tempered, self.assigned = [], [], {}

    def visit(self, model, batches, total, state, inputs, keys, *args):
        step, (batch,), key = type(model).local_step, batches, next(keys)

        class Spy(type(model)):
            def local_step(spy, *inner, **more):
                result = step(model, *inner, **more)
                self.assigned[key] = (batch, result.q)
                return result

        spied = Spy(model.weights, model.component, model.n_initial, model.init_params)
        super().visit(spied, batches, total, state, inputs, iter([key]), *args)
        if state.initial is None:
            totals, divergence = compute_bound_parts(model, state)
            self.bounds_seen.append(totals.untempered - divergence)
            self.tempered.append(totals.tempered - divergence / state.replication)
            if state.inv_temp == state.replication == 1.0:
                # The globals maximise the bound given the memos.
                bound = bound_in_this_order(model, state.memos.total())
                assert bound == pytest.approx(self.bounds_seen[-1], rel=1e-9)


def visits_of(data, workers, key):
    """The inputs of a visit to one batch at T = 1, and the key of the batch."""
    return PassInputs(data, RunningPolicy(), workers), iter([key])


def sweep(engine, model, data, state, policy=None, n=1, seed=0):
    rng = np.random.default_rng(seed)
    policy = RunningPolicy() if policy is None else policy
    with Workers() as workers:
        return [
            engine.run_pass(model, state, PassInputs(data, policy, workers, rng)) for _ in range(n)
        ]


def assert_same_statistics(state, other, rtol=1e-10):
    for one, two in zip(state.stats.as_stats().arrays, other.stats.as_stats().arrays, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol * np.abs(two).max())


def test_a_pilot_returns_the_energy_of_each_row():
    model, data = mixture("full"), data_of("full")
    rate = RobbinsMonro(8.0, 0.6)
    with Workers() as workers:
        rng = np.random.default_rng(0)
        mean, each = Pilot(rate).energies(model, data, 1.0, workers, rng, every_row=True)
    assert mean == pytest.approx(np.average(each, weights=data.weights), rel=1e-12)
    # The energy of two columns is a few nats.
    assert each.shape == (120,) and -50.0 < mean < 0.0


def test_symmetry_is_broken_only_if_the_policy_has_jitter():
    class Hot(RunningPolicy):
        jitter = 0.1

    class Counting(Mixture):
        def symmetry_breaking_stats(self, stats, *args):
            shares.append(args[1])
            return super().symmetry_breaking_stats(stats, *args)

    shares, data = [], data_of("full")
    model = mixture("full")
    model = Counting(model.weights, model.component, model.n_initial, model.init_params)
    state = start(model, data)
    sweep(MemoizedInference(), model, data, state)
    assert shares == []
    sweep(MemoizedInference(), model, data, state, Hot())
    assert shares == [0.1]


# ------------------------------------------------------------------------- the bound rises
@each_kind
def test_the_bound_never_falls_at_any_visit_after_the_first_pass(name):
    model, data = mixture(name), data_of(name)
    state, engine = start(model, data), Watched()
    sweep(engine, model, data, state, n=8)
    gains = np.diff(engine.bounds_seen)
    assert gains.size == 27
    assert np.all(gains > -1e-10 * np.abs(engine.bounds_seen[0]))
    assert engine.bounds_seen[-1] > engine.bounds_seen[0]


class Replicated(RunningPolicy):
    """The globals count each row five times, at T = 1.5."""

    replication, mean_inv_temp = 5.0, 1.0 / 1.5


@each_kind
@pytest.mark.parametrize("policy", [policy_at(1.5), policy_at(4.0), Replicated()])
def test_the_tempered_bound_never_falls_at_a_constant_temperature(name, policy):
    model, data = mixture(name), data_of(name)
    state, engine = start(model, data), Watched()
    sweep(engine, model, data, state, policy, n=6)
    gains = np.diff(engine.tempered)
    assert np.all(gains > -1e-10 * np.abs(engine.tempered[0]))
    assert engine.tempered[-1] > engine.tempered[0]


@pytest.mark.quick_cases("full-1", "diagonal")
@pytest.mark.parametrize(
    "name, K",
    [("full", 1), ("zero-mean full", 6), ("diagonal", 6), ("Bernoulli", 1), ("multinomial", 6)],
)
def test_with_moves_the_bound_never_falls_from_pass_to_pass(name, K):
    model, data = mixture(name, D=3, K=K), data_of(name, 240, D=3, batch_size=80)
    state = start(model, data)
    engine = MemoizedInference([Delete(), Merge(), Birth(50)])
    bounds = [totals.untempered - divergence for totals, divergence, *_ in
              sweep(engine, model, data, state, n=7)]  # fmt: skip
    # Births are judged by this bound, after small components have been dissolved.
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[0]))
    expected = bound_in_this_order(model, state.memos.total())
    assert bounds[-1] == pytest.approx(expected, rel=1e-9)
    assert state.memos.total().weight == pytest.approx(data.total)
    counts = state.memos.total().stats.arrays[0]
    assert counts.sum() == pytest.approx(data.total, rel=1e-9)
    # At the end, components of less than a row are dissolved, which costs little.
    concluded = engine.finish(model, state)
    assert concluded > bounds[-1] - 3.0
    assert concluded == pytest.approx(bound(model, state), rel=1e-12)
    counts = state.memos.total().stats.arrays[0]
    assert counts.size == 1 or counts.min() >= 1.0


class LearnsWorsePriors(Move):
    """A move that changes the priors to some under which the bound is lower."""

    def finish(self, model, state, tools):
        worse = replace(model.component, prior=50.0 * model.component.prior)
        self._relearned_model = replace(model, component=worse)
        return [MoveRecord(tools.n_iter, "merge", "0, 1", "worse priors", 1, 1, 2.0, "for a test")]


def test_a_reverted_pass_keeps_the_priors_and_accepts_no_move():
    model, data = mixture("Bernoulli"), data_of("Bernoulli")
    state = start(model, data)
    model = sweep(MemoizedInference(), model, data, state, n=10)[-1].model
    before = bound(model, state)
    (result,) = sweep(MemoizedInference([LearnsWorsePriors()]), model, data, state)
    assert result.model is model
    assert bound(result.model, state) >= before
    # The log says that the moves of the pass were reverted.
    (record,) = state.move_log
    assert (record.proposed, record.accepted) == (1, 0) and "reverted" in record.reason


@each_kind
def test_sorting_by_mass_permutes_the_components_and_never_lowers_the_bound(name):
    model, data = mixture(name, init_params="random"), data_of(name)
    for seed in range(4):
        state = start(model, data, seed)
        rng = np.random.default_rng(seed)
        sweep(MemoizedInference([Merge()]), model, data, state)
        shuffled = rng.permutation(model.size(state.stats))
        state.rearrange(shuffled)
        state.resum()
        before = bound(model, state)
        evidence = model.component.log_evidence(state.stats.as_stats().arrays[1])
        memo = state.memos.total()
        sort_components(model, state)
        counts = state.stats.as_stats().arrays[0]
        after = state.memos.total()
        assert np.all(np.diff(counts) <= 0.0)
        assert bound(model, state) >= before
        np.testing.assert_allclose(
            np.sort(model.component.log_evidence(state.stats.as_stats().arrays[1])),
            np.sort(evidence),
        )
        # The entropies of pairs follow their components.
        order = [int(np.argmin(np.abs(memo.stats.arrays[0] - n))) for n in counts]
        np.testing.assert_array_equal(after.entropy, memo.entropy[order])
        both = memo.merge_entropy_loss + memo.merge_entropy_loss.T
        np.testing.assert_array_equal(
            after.merge_entropy_loss, np.triu(both[np.ix_(order, order)], 1)
        )


# ---------------------------------------------------------------- one batch, several batches
PLAN = FitPlan(None, n_passes=8.0)
POLICIES = {
    "T = 1": lambda: policy_at(1.0),
    "T = 1.7": lambda: policy_at(1.7),
    "annealed": lambda: LinearAnnealing(2.0, replication=3.0).start(PLAN),
}


@each_kind
@pytest.mark.parametrize("make_policy", POLICIES.values(), ids=POLICIES)
def test_memoized_inference_with_one_batch_is_coordinate_ascent(name, make_policy, monkeypatch):
    monkeypatch.setattr(RunningPolicy, "jitter", 0.0)
    model, data = mixture(name), data_of(name, batch_size=120)
    memoized, ascent, inv_temp = start(model, data), start(model, data), 1.0
    policies = make_policy(), make_policy()
    for _ in range(8):
        sweep(MemoizedInference(), model, data, memoized, policies[0])
        # Memoized inference weights what it remembers by the temperature of the coming step,
        # and coordinate ascent by the temperature of the last step.
        ascent.stats.rescale(memoized.inv_temp / inv_temp)
        inv_temp = memoized.inv_temp
        sweep(CoordinateAscent(), model, data, ascent, policies[1])
        # Coordinate ascent does not sort the components.
        order = np.argsort(-ascent.stats.as_stats().arrays[0], kind="stable")
        ascent.stats = type(ascent.stats)(a[order] for a in ascent.stats.as_stats().arrays)
        assert memoized.replication == ascent.replication
        assert_same_statistics(memoized, ascent)
    assert memoized.n_steps == ascent.n_steps == 8
    assert memoized.replication == 1.0


@pytest.mark.parametrize(
    "name, how", list(zip(KINDS, cycle(["plain", "annealed", "moves"]), strict=False))
)
def test_statistics_are_sums_of_memos_and_memos_are_sums_over_rows(name, how):
    model, data = mixture(name), data_of(name, gaps=not name.endswith("full"))
    state = start(model, data)
    engine = Watched([Merge()] if how == "moves" else ())
    plan = FitPlan(model, n_passes=8.0)
    policy = LinearAnnealing(1.5).start(plan) if how == "annealed" else RunningPolicy()
    n_hot = 0
    for n in range(6):
        sweep(engine, model, data, state, policy, seed=n)
        hot = state.inv_temp * state.replication
        n_hot += hot != 1.0
        total = state.memos.total()
        for array, remembered in zip(
            state.stats.as_stats().arrays, total.stats.arrays, strict=True
        ):
            np.testing.assert_allclose(array, hot * remembered, rtol=1e-12, atol=1e-12)
        # At any temperature, each row counts once in the memos.
        assert total.stats.arrays[0].sum() == pytest.approx(data.total, rel=1e-12)
        assert len(state.memos) == 4 and total.weight == pytest.approx(data.total)
        if how != "moves":
            K = model.size(state.stats)
            entropy = sum(-b.weights @ xlogy(r, r).sum(axis=1) for b, r in engine.assigned.values())
            assert total.entropy.sum() == pytest.approx(entropy, rel=1e-10, abs=1e-9)
            sums = sum(
                model.component.features(b.X).T @ (r * b.weights[:, None]).sum(axis=1)
                for b, r in engine.assigned.values()
            )
            np.testing.assert_allclose(total.stats.arrays[1].sum(axis=0), sums, rtol=1e-9)
            assert total.merge_entropy_loss is None and K == 4
    assert (n_hot > 0) == (how == "annealed")


@pytest.mark.parametrize("name", ["full", "Poisson"])
def test_many_replacements_leave_no_rounding_errors(name):
    model = mixture(name, K=3)
    data = data_of(name, 200, batch_size=20, gaps=not name.endswith("full"))
    batches = [data.batch(model, rows) for rows in data.list_batches()]
    state, engine, rng = start(model, data), Watched(), np.random.default_rng(1)
    state.begin(3)
    with Workers() as workers:
        for n in range(150):
            key = n if n < 10 else int(rng.integers(10))
            # The batch has some of its rows, in any order.
            rows = rng.permutation(20)[: rng.integers(5, 21)]
            batch = batches[key]
            batch = model.batch(batch.X, rows, batch.weights[rows])
            total = batch.weights.sum() / 0.1  # Each batch stands for a tenth of the start.
            engine.visit(model, [batch], total, state, *visits_of(data, workers, key))
            if n == 9:
                state.initial = None
    drifted = state.stats.as_stats()
    state.resum()
    for found, exact in zip(drifted.arrays, state.stats.as_stats().arrays, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9 * np.abs(exact).max())


@each_kind
def test_jitter_separates_equal_components(name, monkeypatch):
    model, data, states = mixture(name), data_of(name, batch_size=120), []
    for jitter in (0.0, 0.05):
        monkeypatch.setattr(RunningPolicy, "jitter", jitter)
        state = start(model, data)
        counts, sums = (array.mean(axis=0) for array in state.stats.as_stats().arrays)
        state.stats = type(state.stats)([np.full(4, counts), np.tile(sums, (4, 1))])
        sweep(MemoizedInference(), model, data, state, policy_at(1.5))
        states.append(state)
    means = [state.stats.as_stats().arrays[1] / state.stats.as_stats().arrays[0][:, None]
             for state in states]  # fmt: skip
    np.testing.assert_allclose(means[0], np.tile(means[0][0], (4, 1)), rtol=1e-9, atol=1e-9)
    for a in range(4):
        for b in range(a):
            assert np.abs(means[1][a] - means[1][b]).max() > 1e-6
    # The jitter does not change the sum of the counts.
    for state in states:
        assert state.untempered().as_stats().arrays[0].sum() == pytest.approx(data.total)


# ------------------------------------------------------------------------------ stochastic
@each_kind
def test_a_stochastic_step_is_a_weighted_mean_of_old_and_new_statistics(name):
    model, data = mixture(name), data_of(name)
    state = start(model, data)
    batch = data.batch(model, np.arange(17))
    old = state.stats.as_stats().arrays
    g = model.expectation(state.stats, None, None)
    with Workers() as workers:
        new = model.local_step(batch, g, 1.0, workers.run).stats.arrays
        engine = StochasticInference(lambda step: 0.3)
        inputs = PassInputs(data, RunningPolicy(), workers)
        engine.step(model, [batch], 5000.0, state, inputs, LocalTotals())
    factor = 5000.0 / batch.weights.sum()
    for found, before, added in zip(state.stats.as_stats().arrays, old, new, strict=True):
        np.testing.assert_allclose(found, 0.7 * before + 0.3 * factor * added, rtol=1e-12)


# ----------------------------------------------------------------------------------- memos
def random_memo(seed, K=4, P=3):
    rng = np.random.default_rng(seed)
    arrays = rng.uniform(size=K), rng.standard_normal((K, P))
    return Memo(Stats(arrays), rng.uniform(size=K), np.triu(rng.uniform(size=(K, K)), 1), 5.0)


def test_memos_are_never_changed_in_place():
    memo = random_memo(0)
    before = [array.copy() for array in (*memo.stats.arrays, memo.entropy, memo.merge_entropy_loss)]
    memo.merged(0, 2)
    memo.rearranged([3, -1, 0]).stats.arrays[0][...] = 7.0
    memo.plus(random_memo(1))
    Memos({0: memo, 1: random_memo(1)}).total().entropy[...] = 7.0
    Memos({0: memo}).total().stats.arrays[0][...] = 7.0
    for array, kept in zip(
        (*memo.stats.arrays, memo.entropy, memo.merge_entropy_loss), before, strict=True
    ):
        np.testing.assert_array_equal(array, kept)


def test_a_merge_makes_the_entropies_of_its_pairs_unknown():
    merged = random_memo(3).merged(1, 2)
    unknown = np.isnan(merged.merge_entropy_loss)
    expected = np.zeros((4, 4), bool)
    expected[0, 1] = expected[1, 3] = True
    # A pair with the empty component has nothing to lose.
    np.testing.assert_array_equal(unknown, expected)
    assert merged.merge_entropy_loss[0, 2] == merged.merge_entropy_loss[2, 3] == 0.0
    assert np.isnan(merged.rearranged([3, 1, 0]).merge_entropy_loss[0, 1])
    # If neither part would have lost any entropy, their merge loses none.
    memo = random_memo(3)
    memo.merge_entropy_loss[0, 1:3] = 0.0
    assert memo.merged(1, 2).merge_entropy_loss[0, 1] == 0.0


def test_a_start_from_other_data_is_replaced_batch_by_batch():
    model, data = mixture("full"), data_of("full")
    state = start(model, data)
    sweep(MemoizedInference([Merge()]), model, data, state, Replicated(), n=2)
    counts = state.untempered().as_stats().arrays[0].copy()
    more = data_of("full", 60, seed=5)
    state = MemoizedInference().start(state.without_memos(more.total), more.total)
    assert not state.memos and state.move_log == []
    np.testing.assert_allclose(
        state.untempered().as_stats().arrays[0], counts * more.total / data.total
    )
    # Each batch replaces a part of it, so that nothing is left after a pass.
    sweep(MemoizedInference(), model, more, state, Replicated())
    total = state.memos.total().stats.arrays[0].sum()
    assert total == pytest.approx(more.total, rel=1e-12)


def test_every_row_counts_once_during_the_first_pass():
    model, data = mixture("spherical"), data_of("spherical")
    state, claimed = start(model, data), []

    class Claims(MemoizedInference):
        def visit(self, model, batches, total, state, *args):
            super().visit(model, batches, total, state, *args)
            claimed.append(state.untempered().as_stats().arrays[0].sum())

    for policy in (RunningPolicy(), Replicated()):
        state = start(model, data)
        sweep(Claims(), model, data, state, policy)
        np.testing.assert_allclose(claimed, data.total, rtol=1e-10)


@pytest.mark.parametrize("pairs", [False, True])
def test_entropies_do_not_depend_on_the_division_into_tasks(pairs, monkeypatch):
    from skvt.models.mixture import _model as _mixture

    model, data = mixture("spherical"), data_of("spherical")
    state = start(model, data)
    batch = data.batch(model, np.arange(120))
    with Workers() as workers:
        result = model.local_step(batch, model.expectation(state.stats, None, None), 1.0,
                                  workers.run)  # fmt: skip
        whole = make_memo(model, result, batch, workers.run, with_pair_entropies=pairs)
        monkeypatch.setattr(_mixture, "_ROWS_PER_TASK", 7)
        divided = make_memo(model, result, batch, workers.run, with_pair_entropies=pairs)
    np.testing.assert_allclose(divided.entropy, whole.entropy, rtol=1e-12)
    assert (whole.merge_entropy_loss is None) == (not pairs)
    if pairs:
        np.testing.assert_allclose(
            divided.merge_entropy_loss, whole.merge_entropy_loss, rtol=1e-10, atol=1e-12
        )
    assert divided.weight == pytest.approx(batch.weights.sum())


# ------------------------------------------------------------------------------ a pass, a stream
def test_the_first_batch_of_a_stream_replaces_the_start():
    model, data = mixture("full"), data_of("full")
    first = Rows(data.X[:30], data.weights[:30], 30)
    with Workers() as workers:
        state = _begun(model, start(model, data))
        engine, batch = MemoizedInference(), first.batch(model, np.arange(30))
        engine.visit(model, [batch], 50.0 * data.total, state, *visits_of(first, workers, 0))
        left = state.stats.as_stats().arrays[0].sum()
        state, stream = (
            start(model, data),
            Stream(0.0, counts_rows=True, total_samples=50.0 * data.total),
        )
        engine.update(model, state, stream, PassInputs(first, RunningPolicy(), workers))
    assert left > first.total + 1.0  # A visit of a pass keeps the share of the other batches.
    assert state.stats.as_stats().arrays[0].sum() == pytest.approx(first.total, rel=1e-10)
    assert stream.n_rows == pytest.approx(first.total, rel=1e-12)


def _begun(model, state):
    state.begin(model.size(state.stats))
    return state


def test_moves_begin_from_the_last_to_the_first_and_finish_from_the_first_to_the_last():
    calls = []

    class Noted(Move):
        def __init__(self, name):
            self.name = name

        def begin(self, model, state, tools):
            calls.append(("begin", self.name))

        def finish(self, model, state, tools):
            calls.append(("finish", self.name))
            return []

    model, data = mixture("diagonal"), data_of("diagonal")
    sweep(MemoizedInference([Noted("merge"), Noted("birth")]), model, data, start(model, data))
    assert calls == [
        ("begin", "birth"), ("begin", "merge"), ("finish", "merge"), ("finish", "birth")
    ]  # fmt: skip


# ------------------------------------------------------------------------------- sums of memos
def test_a_new_batch_of_a_long_stream_costs_few_additions(monkeypatch):
    memos = Memos({key: random_memo(key % 7) for key in range(3000)})
    memos.total()
    added, plain_sum = [], _memos.add_memos

    def counted(parts):
        added.append(len(parts))
        return plain_sum(parts)

    monkeypatch.setattr(_memos, "add_memos", counted)
    memos[3000] = random_memo(0)
    memos.total()
    assert sum(added) <= 3 * 32


# ------------------------------------------------------------------------ any sequence of changes
def some_rows(seed, K):
    """Responsibilities (n, K) with zeros and ones, weights and features of some rows."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    r = rng.dirichlet(np.full(K, 0.4), size=n)
    r[rng.random(r.shape) < 0.2] = 0.0
    r[r.sum(axis=1) == 0.0, rng.integers(K)] = 1.0
    return r / r.sum(axis=1, keepdims=True), rng.uniform(0.2, 2.0, n), rng.standard_normal((n, 2))


def entropies(r, weights):
    """The entropy of the assignments of these rows, by component, from its definition."""
    return -weights @ xlogy(r, r)


def memo_of_rows(r, weights, features):
    entropy, merge_entropy_loss = np.zeros(r.shape[1]), np.zeros((r.shape[1], r.shape[1]))
    every = np.arange(r.shape[1], dtype=np.int32)[None]
    add_assignment_entropies(r, every, weights, True, entropy, merge_entropy_loss)
    weighted = r * weights[:, None]
    stats = Stats((weighted.sum(axis=0), weighted.T @ features))
    return Memo(stats, entropy, merge_entropy_loss, float(weights.sum()))


class Remembering(RuleBasedStateMachine):
    """A state with memos beside the rows themselves, whose responsibilities change likewise."""

    def __init__(self):
        super().__init__()
        self.summed, _memos._MAX_TERMS = _memos._MAX_TERMS, 2  # A few batches make sums of sums.

    def teardown(self):
        _memos._MAX_TERMS = self.summed

    @initialize(seeds=st.lists(st.integers(0, 999), min_size=2, max_size=7))
    def first_pass(self, seeds):
        self.K, self.rows, self.saved = 4, {}, None
        rng = np.random.default_rng(1)
        self.state = MemoizedState(RunningStats([rng.uniform(size=4), rng.standard_normal((4, 2))]))
        self.state.begin(4)
        for key, seed in enumerate(seeds):
            self._remember(key, seed, 1.0 / len(seeds))
        # The first pass replaces the statistics of the start completely.
        self._statistics_are(self._expected()[0])
        self.state.resum()

    def _remember(self, key, seed, share=1.0):
        self.rows[key] = some_rows(seed, self.K)
        self.state.replace_memo(key, memo_of_rows(*self.rows[key]), share)

    @rule(seed=st.integers(0, 999), new=st.booleans(), data=st.data())
    def remember(self, seed, new, data):
        key = max(self.rows) + 1 if new else data.draw(st.sampled_from(sorted(self.rows)))
        self._remember(key, seed)

    @precondition(lambda self: len(self.rows) > 1)
    @rule(data=st.data())
    def forget(self, data):
        key = data.draw(st.sampled_from(sorted(self.rows)))
        del self.rows[key], self.state.memos[key]
        self.state.resum()

    def _pairs(self):
        """Pairs for which all memos know the cost of a merge."""
        merge_entropy_loss = self.state.memos.total().merge_entropy_loss
        return [(a, b) for a in range(self.K) for b in range(a + 1, self.K)
                if not np.isnan(merge_entropy_loss[a, b])]  # fmt: skip

    @precondition(lambda self: self.K > 1)
    @rule(data=st.data(), empty=st.booleans())
    def merge(self, data, empty):
        pairs = self._pairs()
        if not pairs:
            return
        a, b = data.draw(st.sampled_from(pairs))
        names = set(self.state.component_ids)
        self.state.merge(a, b)
        assert self.state.component_ids[a] not in names
        for key, (r, weights, features) in self.rows.items():
            r = r.copy()
            r[:, a] += r[:, b]
            r[:, b] = 0.0
            self.rows[key] = r, weights, features
        if not empty:
            self._rearrange(np.delete(np.arange(self.K), b))

    @rule(data=st.data())
    def rearrange(self, data):
        places = st.lists(st.integers(-1, self.K - 1), min_size=1, max_size=5)
        index = data.draw(places.filter(lambda some: len({k for k in some if k >= 0})
                                        == sum(k >= 0 for k in some)))  # fmt: skip
        self._rearrange(np.array(index))

    def _rearrange(self, index):
        self.state.rearrange(index)
        self.K = index.size
        for key, (r, weights, features) in self.rows.items():
            r = np.where(index >= 0, r[:, index], 0.0)
            self.rows[key] = r, weights, features
        assert len(set(self.state.component_ids)) == self.K

    @rule(inv_temp=st.sampled_from([0.5, 0.8, 1.0]), replication=st.sampled_from([1.0, 10.0]))
    def temper(self, inv_temp, replication):
        self.state.temper(inv_temp, replication)

    @rule()
    def resum(self):
        self.state.resum()

    @rule()
    def save(self):
        ids = self.state.component_ids.copy()
        self.saved = self.state.checkpoint(), self.K, dict(self.rows), ids

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self):
        saved, self.K, self.rows, ids = self.saved
        self.state.restore(saved)
        np.testing.assert_array_equal(self.state.component_ids, ids)
        self.saved = None

    @rule(seed=st.integers(0, 999))
    def try_a_new_batch(self, seed):
        self.save()
        self._remember(max(self.rows) + 1, seed)
        self.restore()

    def _expected(self):
        """Statistics, entropies and weight of all rows."""
        parts = [(r * w[:, None], features) for r, w, features in self.rows.values()]
        stats = sum(r.sum(axis=0) for r, _ in parts), sum(r.T @ f for r, f in parts)
        entropy = sum(entropies(r, w) for r, w, _ in self.rows.values())
        return stats, entropy, sum(w.sum() for _, w, _ in self.rows.values())

    def _statistics_are(self, expected):
        for found, array in zip(self.state.untempered().as_stats().arrays, expected, strict=True):
            np.testing.assert_allclose(found, array, rtol=1e-10, atol=1e-11)

    @invariant()
    def all_is_the_sum_over_the_rows(self):
        stats, entropy, weight = self._expected()
        self._statistics_are(stats)
        total = self.state.memos.total()
        for found, array in zip(total.stats.arrays, stats, strict=True):
            np.testing.assert_allclose(found, array, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(total.entropy, entropy, rtol=1e-10, atol=1e-11)
        assert total.weight == pytest.approx(weight)
        assert self.state.memos.weight == pytest.approx(weight)
        assert list(self.state.memos) == list(self.rows) and self.state.memos.is_consistent()
        for a, b in self._pairs():
            lost = entropy[a] + entropy[b]
            lost -= sum(entropies(r[:, [a]] + r[:, [b]], w)[0] for r, w, _ in self.rows.values())
            assert total.merge_entropy_loss[a, b] == pytest.approx(lost, rel=1e-9, abs=1e-10)

    @rule(data=st.data())
    def look_at_one(self, data):
        key = data.draw(st.sampled_from(sorted(self.rows)))
        r, weights, features = self.rows[key]
        memo = self.state.memos[key]
        np.testing.assert_allclose(memo.stats.arrays[1], (r * weights[:, None]).T @ features,
                                   atol=1e-11)  # fmt: skip
        np.testing.assert_allclose(memo.entropy, entropies(r, weights), atol=1e-11)


TestRemembering = Remembering.TestCase
TestRemembering.settings = sequences


@quick
@given(st.integers(0, 10_000), st.permutations(range(4)))
def test_a_bounded_merge_knows_an_upper_bound_of_the_loss_of_its_pairs(seed, order):
    r, weights, features = some_rows(seed, 4)
    memo = memo_of_rows(r, weights, features)
    a, b = sorted(order[:2])
    bounded = memo.merged(a, b, bounded=True)
    merged = r.copy()
    merged[:, a] += merged[:, b]
    merged[:, b] = 0.0
    exact = memo_of_rows(merged, weights, features)
    np.testing.assert_allclose(bounded.entropy, exact.entropy, atol=1e-11)
    assert np.all(bounded.merge_entropy_loss >= exact.merge_entropy_loss - 1e-11)
    known = np.ones((4, 4), bool)
    known[a], known[:, a] = False, False
    np.testing.assert_allclose(
        bounded.merge_entropy_loss[known], exact.merge_entropy_loss[known], atol=1e-11
    )


# ------------------------------------------------------------------------------- rows in batches
@quick
@given(st.integers(1, 60), st.integers(1, 70), st.one_of(st.none(), st.integers(0, 99)))
def test_every_row_is_in_one_batch_of_a_pass(n, batch_size, seed):
    class Model:
        def batch(self, X, rows, weights):
            return X[rows], rows, weights

    weights = np.linspace(1.0, 2.0, n)
    data = Rows(10.0 * np.arange(n), weights, batch_size)
    with Workers(2) as workers:
        rng = None if seed is None else np.random.default_rng(seed)
        (batches,) = zip(*data.group_batches(Model(), workers, data.list_batches(rng)), strict=True)
    assert len(batches) == data.n_batches
    assert all(rows.size == batch_size for _, rows, _ in batches[:-1])
    assert 1 <= batches[-1][1].size <= batch_size
    rows = np.concatenate([rows for _, rows, _ in batches])
    np.testing.assert_array_equal(np.sort(rows), np.arange(n))
    if seed is None or data.n_batches == 1:
        np.testing.assert_array_equal(rows, np.arange(n))
    for x, rows, w in batches:
        np.testing.assert_array_equal(x, 10.0 * rows)
        np.testing.assert_array_equal(w, weights[rows])


def test_the_size_of_a_result_includes_its_memo():
    memo = Memo(Stats((np.zeros((100, 5)),)), np.zeros(100), np.zeros((100, 100)), 1.0)
    assert sys.getsizeof(VisitResult(LocalTotals(), memo=memo)) > 8 * (100 * 5 + 100 * 100)
