"""Running statistics: the scaled, sparse arithmetic is the plain one."""

import numpy as np
import pytest

from skvt.expfam import RunningStats, Stats

V, K = 40, 3


def dense(stats):
    """Stats with rows as a full array."""
    if stats.rows is None:
        return stats.arrays[0]
    full = np.zeros((V, K))
    full[stats.rows] = stats.arrays[0]
    return full


def random_addend(rng, *, sparse, dtype=np.float64):
    if not sparse:
        return Stats((rng.gamma(0.5, size=(V, K)).astype(dtype),))
    rows = rng.permutation(V)[: rng.integers(1, V)].astype(np.int32)
    return Stats((rng.gamma(0.5, size=(rows.size, K)).astype(dtype),), rows=rows)


def assert_equal_to(running, expected, rtol, atol=0.0):
    np.testing.assert_allclose(running.value().arrays[0], expected, rtol=rtol, atol=atol)
    np.testing.assert_allclose(running.sums[0], expected.sum(axis=0), rtol=rtol)


@pytest.mark.parametrize("sparse", [True, False], ids=["rows", "dense"])
def test_blends_and_additions_equal_dense_arithmetic(sparse):
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(V, K)) + 1.0
    running = RunningStats([plain.copy()])
    for step in range(30):
        addend = random_addend(rng, sparse=sparse)
        factor = rng.uniform(0.1, 20.0)
        if step % 5 == 4:
            running.add(addend, factor)
            plain = plain + factor * dense(addend)
        else:
            rho = rng.uniform(0.0, 1.0)
            running.blend(rho, addend, factor)
            plain = (1.0 - rho) * plain + rho * factor * dense(addend)
        assert_equal_to(running, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 2e-5)], ids=["float64", "float32"]
)
def test_a_thousand_blends_do_not_drift(dtype, tolerance):
    rng = np.random.default_rng(1)
    plain = rng.gamma(1.0, size=(V, K))
    running = RunningStats([plain.astype(dtype)])
    for _ in range(1000):
        addend = random_addend(rng, sparse=True, dtype=dtype)
        rho = rng.uniform(0.001, 0.6)
        running.blend(rho, addend, 7.0)
        plain = (1.0 - rho) * plain + rho * 7.0 * dense(addend)
    assert_equal_to(running, plain, rtol=tolerance, atol=tolerance * plain.max())
    sums = running.sums[0].copy()
    running.resum()
    np.testing.assert_allclose(running.sums[0], sums, rtol=tolerance)


@pytest.mark.parametrize("sparse", [True, False], ids=["rows", "dense"])
@pytest.mark.parametrize("before", [0, 3, 200], ids="after {} blends".format)
def test_a_step_of_one_replaces(sparse, before):
    rng = np.random.default_rng(2)
    running = RunningStats([rng.normal(size=(V, K))])
    for _ in range(before):
        running.blend(0.3, random_addend(rng, sparse=True))
    addend = random_addend(rng, sparse=sparse)
    running.blend(1.0, addend, 2.5)
    np.testing.assert_allclose(running.value().arrays[0], 2.5 * dense(addend), rtol=1e-14)
    np.testing.assert_allclose(running.sums[0], 2.5 * dense(addend).sum(axis=0), rtol=1e-14)


def test_a_step_of_zero_changes_nothing():
    rng = np.random.default_rng(3)
    plain = rng.gamma(1.0, size=(V, K))
    running = RunningStats([plain.copy()])
    running.blend(0.0, random_addend(rng, sparse=True), 100.0)
    assert_equal_to(running, plain, rtol=0.0)


def test_small_scales_are_folded_into_the_arrays_without_a_change_of_value():
    rng = np.random.default_rng(4)
    plain = rng.gamma(1.0, size=(V, K))
    running = RunningStats([plain.copy()])
    scales = []
    for _ in range(80):
        addend = random_addend(rng, sparse=True)
        running.blend(0.5, addend)
        plain = 0.5 * plain + 0.5 * dense(addend)
        scales.append(running.scale)
        assert_equal_to(running, plain, rtol=1e-12)
    assert min(scales) >= 1e-7
    assert np.sum(np.diff(scales) > 0.0) >= 2  # it was folded now and then
    running.fold()
    assert running.scale == 1.0
    assert_equal_to(running, plain, rtol=1e-12)


def test_rescaled_statistics_go_on_as_if_they_had_always_been_so():
    rng = np.random.default_rng(7)
    plain = rng.gamma(1.0, size=(V, K))
    running = RunningStats([plain.copy()])
    for step in range(60):
        addend = random_addend(rng, sparse=True)
        running.blend(0.2, addend, 3.0)
        plain = 0.8 * plain + 0.6 * dense(addend)
        if step % 20 == 10:
            factor = (10.0, 0.1, 1e-3)[step // 20]
            running.rescale(factor)
            plain = factor * plain
        assert_equal_to(running, plain, rtol=1e-12)


def test_jitter_is_relative_of_mean_one_and_kept_in_the_sums():
    plain = np.random.default_rng(8).gamma(2.0, size=(4000, K))
    running = RunningStats([plain.copy()])
    running.rescale(0.5)
    running.jitter(0.05, np.random.default_rng(9))
    noise = running.value().arrays[0] / (0.5 * plain)
    assert noise.mean() == pytest.approx(1.0, abs=4.0 * 0.05 / np.sqrt(noise.size))
    assert noise.std() == pytest.approx(0.05, rel=0.05)
    np.testing.assert_allclose(running.sums[0], running.value().arrays[0].sum(axis=0), rtol=1e-12)


def test_words_that_do_not_come_again_fade_to_nothing():
    running = RunningStats([np.ones((V, K))])
    addend = Stats((np.ones((1, K)),), rows=np.array([0], np.int32))
    for _ in range(3000):
        running.blend(0.5, addend)
    value = running.value().arrays[0]
    np.testing.assert_allclose(value[0], 1.0, rtol=1e-12)
    assert np.all(value[1:] == 0.0)


def test_copies_and_values_are_independent_of_what_follows():
    rng = np.random.default_rng(5)
    running = RunningStats([rng.gamma(1.0, size=(V, K))])
    running.blend(0.4, random_addend(rng, sparse=True))
    twin, value = running.copy(), running.value().arrays[0]
    before = value.copy()
    running.blend(0.9, random_addend(rng, sparse=True))
    np.testing.assert_array_equal(twin.value().arrays[0], before)
    np.testing.assert_array_equal(value, before)
    np.testing.assert_allclose(twin.sums[0], before.sum(axis=0), rtol=1e-12)


def test_blocks_are_blended_alike():
    rng = np.random.default_rng(6)
    blocks = [rng.gamma(1.0, size=(5, 2)), rng.gamma(1.0, size=7)]
    addends = [rng.gamma(1.0, size=(5, 2)), rng.gamma(1.0, size=7)]
    running = RunningStats([block.copy() for block in blocks])
    running.blend(0.3, Stats(tuple(addends)), 4.0)
    for value, block, addend in zip(running.value().arrays, blocks, addends, strict=True):
        np.testing.assert_allclose(value, 0.7 * block + 1.2 * addend, rtol=1e-13)
    empty = RunningStats.zeros_like(running)
    assert [array.shape for array in empty.arrays] == [(5, 2), (7,)]
    assert all(np.all(array == 0.0) for array in empty.arrays)
    assert all(np.all(total == 0.0) for total in empty.sums)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7, 3), (7,), (4, 3, 2)], ids=str)
def test_clipped_statistics_are_not_negative(dtype, shape):
    array = np.random.default_rng(0).normal(size=shape).astype(dtype)
    stats = RunningStats([array.copy(), np.abs(array)])
    stats.rescale(0.25)
    stats.clip()
    for found, given, total in zip(
        stats.value().arrays, (array, np.abs(array)), stats.sums, strict=True
    ):
        assert found.dtype == dtype
        expected = 0.25 * np.maximum(given, 0.0)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(total, expected.sum(axis=0, dtype=float), rtol=1e-12)
