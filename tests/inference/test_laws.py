"""Engines keep their laws for any model and any temperature."""

import numpy as np
import pytest
import scipy.sparse as sp
from _engines import passes, policy_at
from joblib import parallel_config

from skvt import TemperedLDA
from skvt.contracts import LocalTotals, MoveRecord, PassInputs, PassResult, RowBatch, RunningPolicy
from skvt.expfam import RunningStats
from skvt.inference import (
    CoordinateAscent,
    MovesBetweenPasses,
    Rows,
    State,
    StochasticInference,
    Workers,
    evaluate_bound,
    iterate_local_results,
)
from skvt.inference._visit import weight_by_temperature
from skvt.models.lda._model import LDA
from skvt.temperature import ConstantTemperature, LinearAnnealing

TIGHT = {"mean_change_tol": 1e-9, "max_doc_update_iter": 5000}


def corpus(seed, *, n=60, n_words=50, n_topics=5, length=30, dtype=np.float64):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.1), size=n_topics)
    shares = rng.dirichlet(np.full(n_topics, 0.3), size=n)
    lengths = rng.poisson(length, size=n)
    X = [rng.multinomial(m, share @ topics) for m, share in zip(lengths, shares, strict=True)]
    return sp.csr_array(np.array(X, dtype))


def estimator(**changes):
    settings = {
        "n_components": 5, "topic_word_prior": None, "learning_method": "batch",
        "temperature": None, "moves": (), "max_iter": 6, "batch_size": 16, "random_state": 0,
    }  # fmt: skip
    return TemperedLDA(**(settings | changes))


def never_falls(bounds, tolerance=1e-9):
    return np.all(np.diff(bounds) > -tolerance * np.abs(bounds[:-1]))


# ------------------------------------------------------------------------- coordinate ascent
def test_an_evaluation_of_the_bound_computes_no_statistics():
    model, X = LDA(np.full(3, 0.2), np.full(50, 0.1)), corpus(0)
    data = Rows(X, np.ones(60), 16)
    stats = model.initial(data, np.random.default_rng(0))
    with Workers() as workers:
        found = list(
            iterate_local_results(
                model, lambda b: model.expectation(stats, b, workers.run), data, workers
            )
        )
    assert len(found) == 4
    assert all(result.stats is None for _, result in found)


@pytest.mark.parametrize("monotone", [True, False])
def test_a_pass_with_an_accepted_move_is_not_called_monotone(monotone):
    class Move:
        requires, exhausted = (), True

        def change_between_passes(self, model, data, state, tools):
            return [MoveRecord(1, "move", "", "", 1, self.accepted, 0.0, "")]

    move, number, before = Move(), 0, monotone
    moves = MovesBetweenPasses([move], n_passes=6)
    state = State(RunningStats([np.zeros((2, 2))]))
    for move.accepted in (0, 1, 0):
        for _ in range(2 if move.accepted else 3):
            number += 1
            result = PassResult(None, None, None, monotone=monotone)
            with Workers() as workers:
                result = moves.apply(
                    result, number, state, PassInputs(None, RunningPolicy(), workers)
                )
            assert result.monotone == (before and not result.has_moved)
            assert result.has_moved == (move.accepted > 0 and 3 <= number < 6)
            before = result.monotone
    assert not before


@pytest.mark.parametrize("temperature", [1.0, 1.5, 4.0])
def test_the_bound_never_falls_at_a_constant_temperature(temperature):
    policy = ConstantTemperature(temperature)
    fitted = estimator(temperature=policy, max_iter=15, **TIGHT).fit(corpus(0))
    objective = np.array(fitted.history_["objective"])
    assert never_falls(objective)
    assert objective[-1] > objective[0]
    if temperature == 1.0:
        np.testing.assert_array_equal(fitted.history_["elbo"], objective)
        assert fitted.elbo_ >= objective[-1] - 1e-9 * abs(objective[-1])
    else:
        # Another q maximises the untempered bound.
        assert np.all(np.array(fitted.history_["elbo"]) < objective)


@pytest.mark.parametrize("learned", [["doc_topic_prior"], ["doc_topic_prior", "topic_word_prior"]])
def test_the_bound_never_falls_while_priors_are_learned(learned):
    X = corpus(0, n=80)
    settings = dict.fromkeys(learned, "auto")
    fitted = estimator(max_iter=25, **settings, **TIGHT).fit(X)
    assert never_falls(np.array(fitted.history_["objective"]))
    # The bound is higher than with the priors of the start.
    given = estimator(max_iter=25, **TIGHT).fit(X)
    assert fitted.elbo_ > given.elbo_


def test_the_recorded_bound_is_exact_at_the_start_of_the_pass():
    X = corpus(4)
    history = estimator(max_iter=5).fit(X).history_["elbo"]
    for n in (1, 3):
        # A shorter fit ends where that pass begins.
        assert estimator(max_iter=n).fit(X).elbo_ == pytest.approx(history[n], rel=1e-12)


@pytest.mark.parametrize("learning_method", ["batch", "online"])
def test_evaluations_use_the_globals_after_the_pass(learning_method):
    X = corpus(5)
    settings = {"learning_method": learning_method, "perp_tol": 0.0, "evaluate_every": 1}
    history = estimator(**settings, max_iter=4).fit(X).history_["elbo"]
    for n in (1, 4):
        fitted = estimator(**settings, max_iter=n).fit(X)
        assert fitted.elbo_ == pytest.approx(history[n - 1], rel=1e-12)
        assert fitted.elbo(X) == pytest.approx(fitted.elbo_, rel=1e-12)


def test_the_division_into_batches_does_not_change_coordinate_ascent():
    X = corpus(7)
    model = LDA(np.full(5, 0.2), np.full(X.shape[1], 0.2))
    results = []
    for batch_size in (60, 7):
        data = Rows(X, np.ones(60), batch_size)
        state = State(model.initial(None, np.random.default_rng(0)))
        *_, (totals, divergence, *_) = passes(CoordinateAscent(), model, state, data, 3)
        with Workers() as workers:
            bound = evaluate_bound(model, state.stats, data, workers)
        results.append(
            (model.natural_parameters(state.stats)[0], totals.tempered, divergence, bound)
        )
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-10)
    np.testing.assert_allclose(results[0][1:], results[1][1:], rtol=1e-12)


# -------------------------------------------------------------------------- one batch of all
@pytest.mark.parametrize("temperature", [1.0, 1.6])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_one_batch_of_all_rows_and_a_full_step_is_coordinate_ascent(temperature, weighted):
    X = corpus(8)
    weights = np.random.default_rng(9).uniform(0.2, 3.0, 60) if weighted else np.ones(60)
    model = LDA(np.full(5, 0.2), np.full(X.shape[1], 0.2))
    data, ends = Rows(X, weights, 60), []
    for engine in (CoordinateAscent(), StochasticInference(lambda step: 1.0)):
        state = State(model.initial(None, np.random.default_rng(1)))
        *_, (totals, *_) = passes(engine, model, state, data, 3, policy=policy_at(temperature))
        assert state.n_steps == 3
        assert state.rows_seen == pytest.approx(3 * weights.sum())
        ends.append((model.natural_parameters(state.stats)[0], totals, state.stats.sums[0]))
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-12)
    np.testing.assert_allclose(ends[0][2], ends[1][2], rtol=1e-12)
    assert ends[0][1].tempered == pytest.approx(ends[1][1].tempered, rel=1e-13)
    assert ends[0][1].untempered == pytest.approx(ends[1][1].untempered, rel=1e-13)


@pytest.mark.slow
def test_other_processes_fit_the_same_bits():
    X = corpus(18, n=40)
    alone = estimator(max_iter=2).fit(X)
    with parallel_config(backend="loky", n_jobs=2):
        elsewhere = estimator(max_iter=2).fit(X)
    np.testing.assert_array_equal(elsewhere.components_, alone.components_)
    assert elsewhere.history_["elbo"] == alone.history_["elbo"]


# ------------------------------------------------------------------------------- temperature
class UnitTemperatureOfEachRow(ConstantTemperature):
    """T = 1 as a separate temperature for each row."""

    def start(self, plan):
        running = super().start(plan)
        running.inv_temp = lambda batch: np.ones(batch.n_rows)
        running.wants_marginal = True  # Learned temperatures of rows set this, too.
        return running


@pytest.mark.parametrize("learning_method", ["batch", "online"])
def test_unit_temperature_of_each_row_changes_nothing(learning_method, monkeypatch):
    monkeypatch.setattr("skvt.contracts.RunningPolicy.wants_energy", property(lambda self: True))
    X = corpus(12)
    plain = estimator(learning_method=learning_method, max_iter=3).fit(X)
    same = estimator(
        learning_method=learning_method, max_iter=3, temperature=UnitTemperatureOfEachRow()
    ).fit(X)
    np.testing.assert_allclose(same.components_, plain.components_, rtol=1e-9)
    np.testing.assert_allclose(same.history_["elbo"], plain.history_["elbo"], rtol=1e-11)
    np.testing.assert_allclose(same.history_["objective"], plain.history_["objective"], rtol=1e-11)


# ----------------------------------------------------------------------------- rows and weights
def test_weights_are_repetitions_if_priors_are_learned():
    X = corpus(14)
    weights = np.random.default_rng(15).integers(0, 4, 60)
    settings = {"doc_topic_prior": "auto", "topic_word_prior": "auto"}
    by_weight = estimator(**settings).fit(X, sample_weight=weights)
    by_row = estimator(**settings).fit(X[np.repeat(np.arange(60), weights)])
    np.testing.assert_allclose(by_weight.doc_topic_prior_, by_row.doc_topic_prior_, rtol=1e-6)
    assert by_weight.topic_word_prior_ == pytest.approx(by_row.topic_word_prior_, rel=1e-6)


# -------------------------------------------------------------------------------- stopping
def test_a_converged_fit_gains_less_than_the_tolerance():
    X = corpus(25)
    fitted = estimator(max_iter=200, evaluate_every=1, perp_tol=1e-3).fit(X)
    assert fitted.converged_
    assert fitted.n_iter_ < 200
    perplexity = np.exp(-np.array(fitted.history_["elbo"]) / X.sum())
    falls = -np.diff(perplexity)
    assert 0.0 <= falls[-1] < 1e-3
    assert np.all(falls[:-1] >= 1e-3)


def test_a_fit_does_not_converge_while_it_is_hot():
    # With this tolerance, a fit at T = 1 would stop at once.
    fitted = estimator(
        max_iter=8, evaluate_every=1, perp_tol=1e6, temperature=LinearAnnealing(1.5, 4.0)
    ).fit(corpus(26))
    assert fitted.converged_
    # After four hot passes, two evaluations are compared.
    assert fitted.n_iter_ >= 5
    assert fitted.history_["temperature"][-1] == 1.0


# ---------------------------------------------------------------- what one step does, term by term
class Fixed:
    """A running policy that replicates rows at a constant temperature, 1.5 by default."""

    done, step_options, jitter = False, {"with_energy": True}, 0.0

    def __init__(self, replication, inv_temp=1.0 / 1.5):
        self.replication, self.mean_inv_temp = replication, inv_temp

    def advance(self, passes, step, n_steps):
        pass

    def inv_temp(self, batch):
        return self.mean_inv_temp

    def observe(self, result, batch):
        pass


def test_a_stochastic_step_counts_the_batch_as_often_as_the_policy_says():
    X, rho = corpus(20), 0.25
    model = LDA(np.full(5, 0.2), np.full(X.shape[1], 0.2))
    state = State(model.initial(None, np.random.default_rng(0)))
    before = state.stats.as_stats().arrays[0]
    with Workers() as workers:
        batch = model.batch(X, np.arange(12), np.ones(12))
        inputs = PassInputs(Rows(X, np.ones(60), 12), Fixed(7.0), workers)
        engine = StochasticInference(lambda step: rho)
        engine.step(model, [batch], 60.0, state, inputs, LocalTotals())
    # lam <- (1 - rho) lam + rho (eta + (N/B) c S/T), with all statistics counted c times. For any
    # assignments, S sums to the tokens of each word.
    tokens = X[:12].sum(axis=0)
    expected = 7.0 * ((1.0 - rho) * before.sum(axis=1) + rho * (60.0 / 12.0) / 1.5 * tokens)
    np.testing.assert_allclose(state.stats.as_stats().arrays[0].sum(axis=1), expected, rtol=1e-12)


def test_coordinate_ascent_learns_priors_from_all_batches():
    X, seen = corpus(21), []

    class Spy(LDA):
        def prior_statistics(self, batch, result):
            seen.append(super().prior_statistics(batch, result))
            return seen[-1]

    model = Spy(np.full(5, 0.2), np.full(X.shape[1], 0.2), learn_doc_topic_prior=True)
    state = State(model.initial(None, np.random.default_rng(0)))
    data = Rows(X, np.random.default_rng(1).uniform(0.5, 2.0, 60), 16)
    next(passes(CoordinateAscent(), model, state, data, policy=Fixed(1.0)))
    assert len(seen) == 4
    assert state.prior_stats.weight == pytest.approx(data.total, rel=1e-12)
    np.testing.assert_allclose(state.prior_stats.total, sum(total for total, _ in seen), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_weighted_by_their_inverse_temperature(dtype):
    # The global update multiplies by the mean inverse temperature and gives sum_n w_n b_n S_n
    # [VT16 eq. 11].
    rng = np.random.default_rng(0)
    weights, own = rng.uniform(0.5, 2.0, 7).astype(dtype), rng.uniform(0.1, 1.0, 7)
    batch = RowBatch(np.zeros((7, 1)), weights, np.arange(7))
    weighted = weight_by_temperature(batch, own)
    np.testing.assert_allclose(
        weighted.weights * np.average(own, weights=weights), weights * own, rtol=1e-6
    )
    assert weighted.weights.dtype == dtype and batch.weights is weights
    assert weight_by_temperature(batch, 0.7) is batch
