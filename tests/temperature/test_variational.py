"""Learned temperatures are those of q(y), of its slow step and of the ceiling."""

from dataclasses import dataclass

import numpy as np
import pytest
from estimators._registry import counts

from skvt import TemperedLDA
from skvt.contracts import Capability, ConjugateModel, FitPlan
from skvt.temperature import LocalTempering, VariationalTempering

LEARNED = [VariationalTempering, LocalTempering]
every_learned = pytest.mark.parametrize("learned", LEARNED)


class Quadratic(ConjugateModel):
    """A model that knows only log C(T) = 0.7 (1 - b)^2 + 3 (1 - b) per unit, where b = 1/T."""

    families = n_features = dtype = prior = initial = expectation = local_step = None
    capabilities = frozenset({Capability.TEMPERABLE})

    @staticmethod
    def tempered_log_partition(inv_temps):
        distance = 1.0 - np.asarray(inv_temps)
        return 0.7 * distance**2 + 3.0 * distance, -1.4 * distance - 3.0


@dataclass
class Batch:
    rows: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray


@dataclass
class Result:
    marginal_energy: np.ndarray


REFERENCE, LENGTH, N_ROWS = -5.0, 20.0, 60


def start(policy, *, n_passes=10.0, n_units=N_ROWS * LENGTH, model=None):
    """The running policy for rows of equal length and equal energy in the pilot."""

    def pilot(replication, *, every_row=False):
        return REFERENCE, np.full(N_ROWS if every_row else 0, REFERENCE)

    plan = FitPlan(model or Quadratic(), n_passes, N_ROWS, n_units, pilot)
    policy.check(plan)
    return policy.start(plan)


def batch_of(rows):
    rows = np.asarray(rows)
    return Batch(rows, np.full(rows.size, LENGTH), np.ones(rows.size))


def walk(running, energy, *, n_passes, n_batches=1, n_chunks=1):
    """(T of the first row, replication) of each step of a fit with these energies per unit.

    A pass has ``n_batches`` steps, a step ``n_chunks`` batches.
    """
    records = []
    for step in range(round(n_passes * n_batches)):
        passes = step / n_batches
        rows = np.array_split(np.arange(N_ROWS), n_batches)[step % n_batches]
        running.advance(passes, rows.size / N_ROWS, step)
        inv_temps = []
        for chunk in np.array_split(rows, n_chunks):
            batch = batch_of(chunk)
            inv_temps.append(np.broadcast_to(running.inv_temp(batch), chunk.size)[0])
            running.observe(Result(energy(passes) * batch.lengths), batch)
        assert np.ptp(inv_temps) < 1e-12
        records.append((1.0 / inv_temps[0], running.replication))
    return np.array(records).T


def expected_temperature(gain, units, ceiling, *, max_temperature=1.5, n_temperatures=100):
    """1 / E_q[1/T_y] by [VT16 eq. 9], rung by rung, for temperatures min(T_m, ceiling)."""
    inv_temps, c = lowered(ceiling, max_temperature, n_temperatures)
    log_weights = [
        units * ((gain - 3.0) * b - value) for b, value in zip(inv_temps, c, strict=True)
    ]
    weights = np.exp(np.array(log_weights) - max(log_weights))
    return weights.sum() / (weights @ inv_temps)


def lowered(ceiling, max_temperature=1.5, n_temperatures=100):
    """1/T of each rung under a ceiling, and c on the chord between the neighbouring rungs."""
    inv_temps, c = [], []
    for rung in np.linspace(0.0, 1.0, n_temperatures):
        inv_temp = 1.0 / min(max_temperature**rung, ceiling)
        height = -np.log(inv_temp) / np.log(max_temperature) * (n_temperatures - 1.0)
        below = min(int(height + 1e-9), n_temperatures - 2)
        chord = max_temperature ** (-np.array([below, below + 1]) / (n_temperatures - 1.0))
        ends = Quadratic.tempered_log_partition(chord)[0]
        share = (inv_temp - chord[0]) / (chord[1] - chord[0])
        inv_temps.append(inv_temp)
        c.append((1.0 - share) * ends[0] + share * ends[1])
    return np.array(inv_temps), np.array(c)


def ceiling(passes, hot_passes, max_temperature=1.5):
    return 1.0 + (max_temperature - 1.0) * (1.0 - passes / hot_passes)


# --------------------------------------------------------------------------------------- q(y)
@pytest.mark.parametrize("gain", [-0.6, -0.3, -0.1])
@pytest.mark.parametrize("learned, units", [(VariationalTempering, 1200.0), (LocalTempering, 20.0)])
def test_the_temperature_of_steady_energies_is_the_mean_of_the_ladder(learned, units, gain):
    temperatures, _ = walk(
        start(learned(max_temperature=1.5)), lambda _: REFERENCE + gain, n_passes=10
    )
    middles = np.arange(10) + 0.5
    # The first step knows no energy.
    assert temperatures[0] == pytest.approx(ceiling(0.5, 7.5), rel=1e-12)
    for passes, temperature in zip(middles[1:7], temperatures[1:7], strict=True):
        expected = expected_temperature(gain, units, ceiling(passes, 7.5))
        assert temperature == pytest.approx(expected, rel=1e-9)
    np.testing.assert_array_equal(temperatures[7:], 1.0)


def test_the_energy_of_the_pilot_gives_unit_temperature():
    # The calibration adds the slope of c at 1, so that 1/T = 1 maximises the exponent.
    running = start(VariationalTempering(max_temperature=1.5), n_units=1e6)
    temperatures, replications = walk(running, lambda _: REFERENCE + 0.05, n_passes=3)
    assert temperatures[0] > 1.0
    np.testing.assert_array_equal(temperatures[1:], 1.0)
    np.testing.assert_array_equal(replications, [10.0, 1.0, 1.0])
    assert running.done


# --------------------------------------------------------------------------------- the ceiling
@every_learned
@pytest.mark.parametrize("n_passes", [1, 2, 3, 10])
@pytest.mark.parametrize("n_temperatures", [2, 100])
def test_low_energies_follow_the_ceiling_to_one(learned, n_passes, n_temperatures):
    hot = min(0.75 * n_passes, max(n_passes - 1.0, 0.5 * n_passes))
    policy = learned(n_temperatures, max_temperature=2.0)
    n_batches = 20
    temperatures, replications = walk(
        start(policy, n_passes=n_passes), lambda _: REFERENCE - 50.0,
        n_passes=n_passes, n_batches=n_batches,
    )  # fmt: skip
    middles = (np.arange(n_passes * n_batches) + 0.5) / n_batches
    expected = np.maximum(1.0, ceiling(middles, hot, 2.0))
    np.testing.assert_allclose(temperatures, expected, rtol=1e-3)
    np.testing.assert_array_equal(temperatures[middles >= hot], 1.0)
    np.testing.assert_array_equal(replications, np.where(temperatures > 1.0, 10.0, 1.0))
    # The largest step down is that of the ceiling.
    assert np.diff(temperatures).min() > -1.001 / (hot * n_batches) - 1e-3


def test_a_stream_has_no_ceiling():
    running = start(VariationalTempering(max_temperature=1.5), n_passes=np.inf)
    temperatures, _ = walk(running, lambda _: REFERENCE - 50.0, n_passes=200)
    np.testing.assert_allclose(temperatures, 1.5, rtol=1e-12)
    assert not running.done


# ------------------------------------------------------------------------------------- memory
def falling(passes):
    """An energy 1 nat below the reference in the first pass, and 0.2 nats below it later."""
    return REFERENCE - 0.2 - (0.8 if passes == 0.0 else 0.0)


@pytest.mark.parametrize("memory", [0.5, 2.0])
@pytest.mark.parametrize("learned, units", [(VariationalTempering, 1200.0), (LocalTempering, 20.0)])
def test_memory_is_the_time_constant_of_the_mean_energy_in_passes(learned, units, memory):
    running = start(learned(max_temperature=1.5, memory=memory), n_passes=100.0)
    temperatures, _ = walk(running, falling, n_passes=8)
    # Step 0 knows no energy, step 1 that of step 0, and the influence of step 0 then fades.
    for step in range(1, 8):
        gain = -0.2 - 0.8 * np.exp(-(step - 1) / memory)
        expected = expected_temperature(gain, units, ceiling(step + 0.5, 75.0))
        assert temperatures[step] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("planned", [None, 20.0])
@pytest.mark.parametrize("learned, share", [(VariationalTempering, 0.25), (LocalTempering, 0.5)])
def test_the_default_memory_is_the_documented_share_of_the_fit(learned, share, planned):
    def temperatures(memory):
        plan = FitPlan(
            Quadratic(), 80.0, N_ROWS, N_ROWS * LENGTH,
            lambda replication, every_row=False: (REFERENCE, np.full(N_ROWS, REFERENCE)),
            planned_passes=planned,
        )  # fmt: skip
        running = learned(max_temperature=1.5, memory=memory).start(plan)
        return walk(running, falling, n_passes=8)[0]

    asked = temperatures(share * (planned or 80.0))
    np.testing.assert_array_equal(temperatures(None), asked)
    assert not np.array_equal(temperatures(share * 10.0), asked)


@pytest.mark.parametrize("total", [N_ROWS, 3.0 * N_ROWS])
def test_the_rows_seen_so_far_stand_for_all_rows(total):
    # Half of the rows, which are all equal, stand for any number of rows.
    running = start(LocalTempering(max_temperature=1.5))
    batch = batch_of(np.arange(N_ROWS // 2))
    for step in range(2):
        running.advance(float(step), 1.0, step)
        running.observe(Result((REFERENCE - 0.2) * batch.lengths), batch)
    ladder = running._ladder
    r = ladder.compute_probabilities(-0.2, LENGTH)
    assert running.bound_terms(total) == pytest.approx(
        total * float(ladder.bound_terms(r, LENGTH)), rel=1e-12
    )


@every_learned
def test_the_division_of_a_step_into_batches_does_not_matter(learned):
    whole = walk(start(learned(max_temperature=1.5)), falling, n_passes=10)
    chunks = walk(start(learned(max_temperature=1.5)), falling, n_passes=10, n_chunks=7)
    np.testing.assert_allclose(chunks, whole, rtol=1e-12)


def test_memory_is_counted_in_passes_of_any_number_of_steps():
    # The energies are steady after the first step, whose influence fades.
    def after_five_passes(n_batches):
        running = start(VariationalTempering(max_temperature=1.5, memory=3.0), n_passes=100.0)
        first = True
        for step in range(5 * n_batches + 1):
            running.advance(step / n_batches, 1.0 / n_batches, step)
            batch = batch_of(np.arange(N_ROWS // n_batches))
            running.observe(Result((REFERENCE - (1.0 if first else 0.2)) * batch.lengths), batch)
            first = False
        return running.temperature

    # The energy of the first step counts from the second step on.
    temperatures = [
        expected_temperature(
            -0.2 - 0.8 * np.exp(-(5.0 - 1.0 / n) / 3.0), 1200.0, ceiling(5.0 + 0.5 / n, 75.0)
        )
        for n in (1, 4, 20)
    ]
    np.testing.assert_allclose([after_five_passes(n) for n in (1, 4, 20)], temperatures, rtol=1e-9)


def test_the_memory_of_a_stream_is_counted_in_steps():
    running = start(VariationalTempering(max_temperature=1.5), n_passes=np.inf)
    for step in range(33):
        running.advance(step * 1e-6, 1e-6, step)
        batch = batch_of(np.arange(4))
        running.observe(Result((REFERENCE - (1.0 if step == 0 else 0.2)) * batch.lengths), batch)
    gain = -0.2 - 0.8 * np.exp(-31.0 / 32.0)
    expected = expected_temperature(gain, N_ROWS * LENGTH, 1.5)
    assert running.temperature == pytest.approx(expected, rel=1e-9)


def test_steps_without_data_change_only_the_ceiling():
    def learned(lengths):
        running = start(VariationalTempering(max_temperature=1.5), n_passes=100.0)
        for step, length in enumerate(lengths):
            running.advance(float(step), 1.0, step)
            batch = Batch(np.arange(3), np.full(3, length), np.ones(3))
            running.observe(Result(np.full(3, length * (REFERENCE - 0.3))), batch)
        running.advance(5.0, 1.0, 5)
        return running.temperature

    assert learned([4.0, 0.0, 0.0, 4.0]) == pytest.approx(learned([4.0, 4.0]), rel=1e-12)
    assert learned([0.0]) == pytest.approx(ceiling(5.5, 75.0), rel=1e-12)


# -------------------------------------------------------------------------------------- bound
@pytest.mark.parametrize("gain", [None, -0.6, -0.3])
def test_the_bound_terms_are_the_sum_over_the_rungs(gain):
    running = start(VariationalTempering(7, max_temperature=1.5))
    running.advance(0.0, 1.0, 0)
    if gain is None:
        inv_temps, c = lowered(ceiling(0.5, 7.5), n_temperatures=7)
        log_r = np.array([-np.inf] * 6 + [0.0])
    else:
        batch = batch_of(np.arange(N_ROWS))
        running.observe(Result((REFERENCE + gain) * batch.lengths), batch)
        running.advance(1.0, 1.0, 1)
        inv_temps, c = lowered(ceiling(1.5, 7.5), n_temperatures=7)
        log_r = 1200.0 * ((gain - 3.0) * inv_temps - c)
    r = np.exp(log_r - log_r.max())
    r /= r.sum()
    expected = 0.0
    for probability, value in zip(r, c, strict=True):
        if probability > 0.0:
            expected += probability * (np.log(1.0 / 7.0) - np.log(probability) - 1200.0 * value)
    assert running.bound_terms(60.0) == pytest.approx(expected, rel=1e-9)


# --------------------------------------------------------------------------------------- fits
def fitted(temperature, **changes):
    settings = {"n_components": 3, "batch_size": 8, "max_iter": 6, "random_state": 0}
    return TemperedLDA(temperature=temperature, **(settings | changes)).fit(
        counts(n_rows=48, n_features=30)
    )


@every_learned
@pytest.mark.parametrize("learning_method", ["online", "batch"])
@pytest.mark.parametrize("max_iter", [1, 3])
def test_a_fit_of_any_length_ends_at_one(learned, learning_method, max_iter):
    estimator = fitted(learned(), learning_method=learning_method, max_iter=max_iter)
    temperatures = estimator.history_["temperature"]
    assert temperatures[-1] == 1.0
    assert estimator._fitted.policy.done
    assert estimator._fitted.state.replication == 1.0
    assert (temperatures[0] > 1.0) == (max_iter > 1)


@pytest.mark.parametrize(
    "name, value, legal",
    [
        ("n_temperatures", 1, r"\[2, inf\)"), ("n_temperatures", 2.5, r"\[2, inf\)"),
        ("max_temperature", 1.0, r"\(1, inf\)"), ("max_temperature", np.inf, r"\(1, inf\)"),
        ("memory", 0.0, r"\(0, inf\)"), ("replication", 0.5, r"\[1, inf\)"),
    ],
)  # fmt: skip
@every_learned
def test_illegal_parameters_are_refused_at_fit(learned, name, value, legal):
    message = rf"The '{name}' parameter of {learned.__name__} must be .* {legal}\. Got "
    with pytest.raises(ValueError, match=message):
        fitted(learned(**{name: value}))
