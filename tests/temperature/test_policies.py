"""Constant and annealed temperatures keep their schedules, and fits follow them."""

import pickle

import numpy as np
import pytest
from _properties import quick
from estimators._registry import counts
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from skvt import StructuredGaPNMF, StructuredLDA, TemperedLDA
from skvt.contracts import FitPlan
from skvt.temperature import (
    ConstantTemperature,
    GeometricAnnealing,
    LinearAnnealing,
    LocalTempering,
    RunningPolicy,
    TemperaturePolicy,
    VariationalTempering,
)

ANNEALINGS = [LinearAnnealing, GeometricAnnealing]
every_annealing = pytest.mark.parametrize("annealing", ANNEALINGS)


def walk(policy, *, n_passes, batches_per_pass, n_steps=None, knows_total=False):
    """Temperature and `done` of each step of a fit."""
    plan = FitPlan(model=None, n_passes=n_passes, knows_total=knows_total)
    policy.check(plan)
    running = policy.start(plan)
    temperatures, done = [], []
    for step in range(n_steps or n_passes * batches_per_pass):
        running.advance(step / batches_per_pass, 1.0 / batches_per_pass, step)
        assert running.temperature == pytest.approx(1.0 / running.mean_inv_temp, rel=1e-15)
        temperatures.append(running.temperature)
        done.append(running.done)
    return np.array(temperatures), np.array(done)


X = counts(n_rows=48, n_features=30)


def fitted(temperature, **changes):
    settings = {
        "n_components": 3, "topic_word_prior": None, "batch_size": 8, "max_iter": 6,
        "random_state": 0, "moves": (),
    }  # fmt: skip
    return TemperedLDA(temperature=temperature, **(settings | changes)).fit(X)


# ------------------------------------------------------------------------------- schedules
def test_linear_annealing_is_linear():
    temperatures, _ = walk(LinearAnnealing(3.0, 4.0), n_passes=10, batches_per_pass=20)
    middles = (np.arange(80) + 0.5) / 80
    np.testing.assert_allclose(temperatures[:80], 3.0 - 2.0 * middles, rtol=1e-12)
    assert temperatures[:80].mean() == pytest.approx(2.0, rel=1e-12)


def test_geometric_annealing_falls_by_a_constant_factor():
    temperatures, _ = walk(GeometricAnnealing(3.0, 4.0), n_passes=10, batches_per_pass=20)
    np.testing.assert_allclose(
        temperatures[1:80] / temperatures[:79], 3.0 ** (-1.0 / 80.0), rtol=1e-12
    )
    assert np.exp(np.log(temperatures[:80]).mean()) == pytest.approx(np.sqrt(3.0), rel=1e-12)


@every_annealing
def test_the_division_into_batches_does_not_change_the_schedule(annealing):
    coarse, _ = walk(annealing(2.0, 4.0), n_passes=8, batches_per_pass=5)
    fine, _ = walk(annealing(2.0, 4.0), n_passes=8, batches_per_pass=15)
    # The middle of a coarse step is the middle of the second of its three fine ones.
    np.testing.assert_allclose(coarse, fine[1::3], rtol=1e-12)


@every_annealing
@quick
@given(
    st.floats(1.0, 50.0),
    st.integers(0, 6),
    st.lists(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=6), min_size=8, max_size=8),
)
def test_the_temperature_falls_to_one_in_time_for_any_division_of_passes(
    annealing, initial, n_hot, passes
):
    # A list of weights of batches for each pass.
    running = annealing(initial, float(n_hot)).start(FitPlan(model=None, n_passes=8))
    seen, last, n_steps = 0.0, initial, 0
    for number, batches in enumerate(passes):
        total = sum(batches)
        for weight in batches:
            share = weight / total
            running.advance(seen, share, n_steps)
            assert 1.0 <= running.temperature <= last * (1.0 + 1e-15)
            if number >= n_hot:
                assert running.temperature == 1.0 and running.done
            else:
                assert not running.done
                assert running.temperature > 1.0 or initial < 1.0 + 1e-12
            last, seen, n_steps = running.temperature, seen + share, n_steps + 1


@every_annealing
@pytest.mark.parametrize("asked", [None, 0.0, 0.3, 1.0, 2.5, 100.0])
@pytest.mark.parametrize("n_passes", [1, 2, 3, 7])
def test_a_fit_of_any_length_ends_at_one(annealing, asked, n_passes):
    temperatures, done = walk(annealing(2.0, asked), n_passes=n_passes, batches_per_pass=8)
    # The whole last pass is at T = 1, or the second half of a single pass.
    np.testing.assert_array_equal(temperatures[-8 if n_passes > 1 else -4 :], 1.0)
    assert done[-1]
    if asked == 0.0:
        np.testing.assert_array_equal(temperatures, 1.0)


@every_annealing
def test_a_stream_cools_down_by_steps_of_any_size(annealing):
    small, done = walk(annealing(2.0), n_passes=np.inf, batches_per_pass=1e6, n_steps=2000)
    large, _ = walk(annealing(2.0), n_passes=np.inf, batches_per_pass=10, n_steps=2000)
    np.testing.assert_array_equal(small, large)
    assert small[0] > 1.9
    assert (np.diff(small) <= 0.0).all()
    assert small[-1] == 1.0
    assert done[-1]


@every_annealing
@pytest.mark.parametrize("n_steps", [2, 20, 50, 128, 1000])
def test_a_stream_of_known_length_has_the_last_part_of_the_schedule(annealing, n_steps):
    settings = {"n_passes": np.inf, "batches_per_pass": n_steps, "n_steps": n_steps}
    known, done = walk(annealing(2.0), **settings, knows_total=True)
    whole, _ = walk(annealing(2.0), **settings | {"n_steps": 64, "batches_per_pass": 1e6})
    # Half of the stream is hot, at most 64 minibatches.
    n_hot = min(n_steps // 2, 64)
    np.testing.assert_allclose(known[:n_hot], whole[64 - n_hot :], rtol=1e-12)
    assert (known[n_hot:] == 1.0).all() and done[n_hot:].all() and not done[:n_hot].any()


def test_a_stream_of_known_length_never_becomes_hotter():
    policy = LinearAnnealing(2.0).start(FitPlan(None, np.inf, knows_total=True))
    temperatures = []
    for n_steps, (passes, step) in enumerate([(0.0, 0.1), (0.1, 0.1), (0.2, 0.001), (0.201, 0.2)]):
        policy.advance(passes, step, n_steps)
        temperatures.append(policy.temperature)
    # First 4.5 and 3.5 steps are left, and then less than two of the larger ones.
    expected = 1.0 + np.array([4.5, 3.5, 3.5, 0.299 / 0.2 - 0.5]) / 64.0
    np.testing.assert_allclose(temperatures, expected, rtol=1e-12)


@every_annealing
def test_a_stream_of_known_length_is_annealed_over_the_passes_asked_for(annealing):
    temperatures, _ = walk(annealing(2.0, 0.5), n_passes=np.inf, batches_per_pass=100, n_steps=200)
    assert (temperatures[:50] > 1.0).all()
    np.testing.assert_array_equal(temperatures[50:], 1.0)


@pytest.mark.parametrize("value", [1.0, 1.2, 50.0])
def test_a_constant_temperature_is_constant_and_final(value):
    temperatures, done = walk(ConstantTemperature(value), n_passes=3, batches_per_pass=7)
    np.testing.assert_allclose(temperatures, value, rtol=1e-15)
    assert done.all()


@every_annealing
def test_replication_lasts_while_the_temperature_is_above_one(annealing):
    policy = annealing(2.0, 2.0, replication=5.0)
    running = policy.start(FitPlan(model=None, n_passes=6))
    for step in range(60):
        running.advance(step / 10, 0.1, step)
        assert running.replication == (5.0 if running.temperature > 1.0 else 1.0)


@every_annealing
def test_a_later_change_of_a_policy_does_not_change_a_fit_that_has_begun(annealing):
    policy = annealing(2.0, 4.0)
    running = policy.start(FitPlan(model=None, n_passes=8))
    policy.set_params(initial_temperature=0.1)
    running.advance(1.0, 0.1, 10)
    assert running.temperature > 1.0


# ------------------------------------------------------------------------------ as parameters
POLICIES = [LinearAnnealing(1.7, 3.0, 4.0), GeometricAnnealing(2.0), ConstantTemperature(1.3)]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_parameters_can_be_read_set_cloned_and_pickled(policy):
    params = policy.get_params()
    for twin in (clone(policy), pickle.loads(pickle.dumps(policy)), type(policy)(**params)):
        assert twin is not policy
        assert twin.get_params() == params
        assert repr(twin) == repr(policy)
    name = next(iter(params))
    twin.set_params(**{name: 5.0})
    assert getattr(twin, name) == 5.0
    assert policy.get_params() == params
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        twin.set_params(nonsense=1.0)


@pytest.mark.parametrize(
    "policy, name, legal",
    [
        (ConstantTemperature(0.5), "value", r"\[1, inf\)"),
        (ConstantTemperature(None), "value", r"\[1, inf\)"),
        (ConstantTemperature(True), "value", r"\[1, inf\)"),
        (ConstantTemperature([1.0]), "value", r"\[1, inf\)"),
        (LinearAnnealing(0.999), "initial_temperature", r"\[1, inf\)"),
        (LinearAnnealing(np.nan), "initial_temperature", r"\[1, inf\)"),
        (GeometricAnnealing(np.inf), "initial_temperature", r"\[1, inf\)"),
        (GeometricAnnealing("2"), "initial_temperature", r"\[1, inf\)"),
        (LinearAnnealing(n_passes=-0.5), "n_passes", r"\[0, inf\)"),
        (GeometricAnnealing(n_passes=np.inf), "n_passes", r"\[0, inf\)"),
        (LinearAnnealing(replication=0.0), "replication", r"\[1, inf\)"),
        (LinearAnnealing(replication=np.inf), "replication", r"\[1, inf\)"),
        (LinearAnnealing(share=1.1), "share", r"\[0, 1\]"),
    ],
    ids=str,
)
def test_fit_refuses_illegal_parameters_with_value_and_range(policy, name, legal):
    value = policy.get_params()[name]
    message = rf"The '{name}' parameter of {type(policy).__name__} must be .* {legal}\. Got "
    with pytest.raises(ValueError, match=message) as caught:
        fitted(policy)
    assert str(caught.value).endswith(f"Got {value!r} instead.")


@pytest.mark.parametrize("number", [2, np.int64(2), np.float32(2.0)])
def test_parameters_may_be_numbers_of_any_type(number):
    expected = fitted(LinearAnnealing(2.0, 2.0, 2.0)).components_
    np.testing.assert_allclose(
        fitted(LinearAnnealing(number, number, number)).components_, expected, rtol=1e-5
    )


# ------------------------------------------------------------------------------------- fits
@pytest.mark.parametrize("learning_method", ["online", "batch"])
@pytest.mark.parametrize(
    "policy",
    [
        ConstantTemperature(), LinearAnnealing(1.0, replication=1.0),
        GeometricAnnealing(1.0, replication=1.0), LinearAnnealing(3.0, n_passes=0),
        GeometricAnnealing(3.0, n_passes=0.0),
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_that_stays_at_one_is_plain_inference(policy, learning_method):
    plain = fitted(None, learning_method=learning_method)
    tempered = fitted(policy, learning_method=learning_method)
    np.testing.assert_array_equal(tempered.components_, plain.components_)
    assert tempered.elbo_ == plain.elbo_
    assert plain.history_["temperature"] == tempered.history_["temperature"] == [1.0] * 6


@every_annealing
def test_a_fit_of_one_full_pass_is_plain_inference(annealing):
    plain, tempered = (
        fitted(policy, max_iter=1, learning_method="batch") for policy in (None, annealing(3.0))
    )
    np.testing.assert_array_equal(tempered.components_, plain.components_)


def test_fits_that_share_a_policy_do_not_affect_each_other():
    policy = LinearAnnealing(2.0)
    one, other = (TemperedLDA(3, temperature=policy, random_state=seed) for seed in (0, 1))
    alone = TemperedLDA(3, temperature=LinearAnnealing(2.0), random_state=0)
    one.partial_fit(X).partial_fit(X)
    other.fit(X[::2])
    one.partial_fit(X)
    for _ in range(3):
        alone.partial_fit(X)
    np.testing.assert_array_equal(one.components_, alone.components_)


@pytest.mark.parametrize("learning_method", ["online", "batch"])
def test_the_history_shows_the_temperature_of_each_pass(learning_method):
    constant = fitted(ConstantTemperature(1.25), learning_method=learning_method)
    np.testing.assert_allclose(constant.history_["temperature"], 1.25, rtol=1e-15)
    annealed = fitted(LinearAnnealing(2.0, 4.0), learning_method=learning_method)
    # The history has the temperature of the last of six steps, or of the only step.
    step = 1.0 / 6.0 if learning_method == "online" else 1.0
    middles = np.arange(1, 5) - 0.5 * step
    np.testing.assert_allclose(
        annealed.history_["temperature"], [*(2.0 - middles / 4.0), 1.0, 1.0], rtol=1e-12
    )


@pytest.mark.parametrize("value", [1.5, 4.0])
def test_a_constant_temperature_above_one_widens_the_posterior(value):
    # lam = eta + S / T, so that the statistics of all tokens weigh 1 / T.
    estimator = fitted(ConstantTemperature(value), learning_method="batch")
    assert estimator.components_.sum() == pytest.approx(X.sum() / value + 30.0, rel=1e-9)
    assert estimator.elbo_ < fitted(None, learning_method="batch").elbo_


# ------------------------------------------------------------- fits that stop on convergence
@every_annealing
@pytest.mark.parametrize(
    "n_passes, planned, share, hot",
    [(100, 10.0, {}, 7.5), (8, 10.0, {}, 6.0), (100, 10.0, {"share": 0.2}, 2.0)],
)
def test_annealing_takes_its_share_of_the_planned_passes(annealing, n_passes, planned, share, hot):
    running = annealing(2.0, **share).start(FitPlan(None, n_passes, planned_passes=planned))
    for passes in np.arange(0.0, n_passes, 0.25):
        running.advance(passes, 0.25, 0)
        assert running.done == (passes + 0.125 >= hot)


@every_annealing
def test_an_explicit_number_of_hot_passes_overrides_the_plan(annealing):
    running = annealing(2.0, n_passes=30.0).start(FitPlan(None, 100, planned_passes=10.0))
    running.advance(29.0, 0.5, 0)
    assert not running.done
    running.advance(30.0, 0.5, 0)
    assert running.done


@pytest.mark.quick_cases("annealed")
@pytest.mark.parametrize("temperature", ["annealed", "variational", "local"])
def test_a_large_max_iter_does_not_keep_a_converging_fit_hot(temperature):
    stops = fitted(temperature, max_iter=100, evaluate_every=1, perp_tol=5.0)
    assert stops.converged_
    hot = np.array(stops.history_["temperature"]) > 1.0
    assert 1 <= hot.sum() <= 8 and stops.n_iter_ < 20
    # A fit cannot end early by evaluation without tolerance, or by tolerance without evaluation.
    for settings in ({"evaluate_every": 50, "perp_tol": 0.0}, {"perp_tol": 5.0}):
        with_all_heat = fitted("annealed", max_iter=100, **settings)
        assert (np.array(with_all_heat.history_["temperature"]) > 1.0).sum() == 75


def test_evaluation_changes_nothing_at_the_default_max_iter():
    with_stop = fitted("annealed", max_iter=10, evaluate_every=1, perp_tol=1e-9)
    np.testing.assert_array_equal(
        with_stop.components_, fitted("annealed", max_iter=10).components_
    )


def test_a_fit_that_continues_as_a_stream_stays_at_one():
    lda = fitted(LinearAnnealing(), max_iter=8)
    assert lda.temperature_ == 1.0
    for _ in range(5):
        assert lda.partial_fit(X).temperature_ == 1.0


@pytest.mark.parametrize(
    "policy",
    [
        ConstantTemperature,
        GeometricAnnealing,
        LinearAnnealing,
        LocalTempering,
        VariationalTempering,
    ],
)
def test_an_unknown_parameter_is_refused_by_the_name_of_the_class(policy):
    with pytest.raises(TypeError, match=rf"^{policy.__name__}\.__init__\(\) got .* 'start'"):
        policy(start=2.0)


# ----------------------------------------------------------------------- temperatures of rows
class ByRow(TemperaturePolicy):
    """All rows have T = 2 for three passes, as an array, and T = 1 afterwards."""

    def check(self, plan):
        pass

    def start(self, plan):
        return RunningByRow()


class RunningByRow(RunningPolicy):
    mean_inv_temp, done = 0.5, False

    def advance(self, passes, step, n_steps):
        self.done = passes >= 3.0
        self.mean_inv_temp = 1.0 if self.done else 0.5

    def inv_temp(self, batch):
        return 1.0 if self.done else np.full(batch.rows.size, self.mean_inv_temp)


@pytest.mark.parametrize(
    "estimator",
    [
        StructuredLDA(3, local_step="gibbs"), StructuredLDA(3, local_step="cvb0"),
        StructuredGaPNMF(3, local_step="gibbs"), StructuredGaPNMF(3, local_step="mean_field"),
    ],
)  # fmt: skip
def test_models_with_one_temperature_refuse_temperatures_of_rows(estimator):
    estimator.set_params(temperature=ByRow(), max_iter=4, batch_size=48)
    with pytest.raises(ValueError, match=r"single rows, an array of shape \(48,\).*one number"):
        estimator.fit(X)
    assert not hasattr(estimator, "history_")


def test_topics_with_mean_field_steps_take_temperatures_of_rows():
    lda = StructuredLDA(3, local_step="mean_field", temperature=ByRow(), max_iter=4)
    assert list(lda.fit(X).history_["temperature"]) == [2.0, 2.0, 2.0, 1.0]
