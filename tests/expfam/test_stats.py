"""Running statistics, which are scaled and sparse, equal plain arrays."""

import pickle

import numpy as np
import pytest
from _properties import sequences
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skvt.expfam import RunningStats, Stats

V, K = 40, 3


def dense(stats):
    """A full array from statistics of some rows."""
    if stats.rows is None:
        return stats.arrays[0]
    full = np.zeros((V, K))
    full[stats.rows] = stats.arrays[0]
    return full


def first_block(value):
    return value.arrays[0]


def random_addend(rng, *, sparse, dtype=np.float64):
    if not sparse:
        return Stats((rng.gamma(0.5, size=(V, K)).astype(dtype),))
    rows = rng.permutation(V)[: rng.integers(1, V)].astype(np.int32)
    return Stats((rng.gamma(0.5, size=(rows.size, K)).astype(dtype),), rows=rows)


def assert_equal_to(running, expected, rtol, atol=0.0):
    np.testing.assert_allclose(running.as_stats().arrays[0], expected, rtol=rtol, atol=atol)
    np.testing.assert_allclose(running.sums[0], expected.sum(axis=0), rtol=rtol)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 2e-5)])
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


def test_jitter_is_relative_of_mean_one_and_kept_in_the_sums():
    plain = np.random.default_rng(8).gamma(2.0, size=(4000, K))
    running = RunningStats([plain.copy()])
    running.rescale(0.5)
    running.jitter(0.05, np.random.default_rng(9))
    noise = running.as_stats().arrays[0] / (0.5 * plain)
    assert noise.mean() == pytest.approx(1.0, abs=4.0 * 0.05 / np.sqrt(noise.size))
    assert noise.std() == pytest.approx(0.05, rel=0.05)
    np.testing.assert_allclose(
        running.sums[0], running.as_stats().arrays[0].sum(axis=0), rtol=1e-12
    )


def test_statistics_of_words_that_do_not_occur_again_fade_to_zero():
    running = RunningStats([np.ones((V, K))])
    addend = Stats((np.ones((1, K)),), rows=np.array([0], np.int32))
    for _ in range(3000):
        running.blend(0.5, addend)
    value = running.as_stats().arrays[0]
    np.testing.assert_allclose(value[0], 1.0, rtol=1e-12)
    assert np.all(value[1:] == 0.0)


def test_all_blocks_are_blended():
    rng = np.random.default_rng(6)
    blocks = [rng.gamma(1.0, size=(5, 2)), rng.gamma(1.0, size=7)]
    addends = [rng.gamma(1.0, size=(5, 2)), rng.gamma(1.0, size=7)]
    running = RunningStats([block.copy() for block in blocks])
    running.blend(0.3, Stats(tuple(addends)), 4.0)
    for value, block, addend in zip(running.as_stats().arrays, blocks, addends, strict=True):
        np.testing.assert_allclose(value, 0.7 * block + 1.2 * addend, rtol=1e-13)
    empty = RunningStats.zeros_like(running)
    assert [array.shape for array in empty.arrays] == [(5, 2), (7,)]
    assert all(np.all(array == 0.0) for array in empty.arrays)
    assert all(np.all(total == 0.0) for total in empty.sums)


def test_sums_include_all_added_rows():
    # The rows are more than a thread takes at a time, and no multiple of that number.
    rng = np.random.default_rng(10)
    plain = rng.gamma(1.0, size=(1000, K))
    running = RunningStats([plain.copy()])
    rows = rng.permutation(1000)[:333].astype(np.int32)
    addend = rng.gamma(0.5, size=(rows.size, K))
    running.add(Stats((addend,), rows=rows), 3.0)
    plain[rows] += 3.0 * addend
    assert_equal_to(running, plain, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7, 3), (7,), (4, 3, 2)], ids=str)
def test_clipped_statistics_are_not_negative(dtype, shape):
    array = np.random.default_rng(0).normal(size=shape).astype(dtype)
    stats = RunningStats([array.copy(), np.abs(array)])
    stats.rescale(0.25)
    stats.clip()
    for found, given, total in zip(
        stats.as_stats().arrays, (array, np.abs(array)), stats.sums, strict=True
    ):
        assert found.dtype == dtype
        expected = 0.25 * np.maximum(given, 0.0)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(total, expected.sum(axis=0, dtype=float), rtol=1e-12)


# ---------------------------------------------------------------------------------------- drafts
def drafted(running, rng, *, rho=0.3):
    """A step on a draft, and its result in plain arithmetic."""
    addend = random_addend(rng, sparse=True)
    draft = running.draft(addend.rows)
    draft.blend(rho, addend, 2.0)
    plain = (1.0 - rho) * running.as_stats().arrays[0] + rho * 2.0 * dense(addend)
    return draft, plain


def test_a_draft_reuses_only_arrays_that_are_not_in_use():
    rng = np.random.default_rng(12)
    first = RunningStats([rng.gamma(1.0, size=(V, K))])
    view = first.scaled_view(2.0)
    shown = view.as_stats().arrays[0]
    own = first.arrays[0]
    second, _ = drafted(first, rng)
    del first
    third, _ = drafted(second, rng)  # The view shows the arrays of the first.
    assert not np.shares_memory(third.arrays[0], own)
    np.testing.assert_array_equal(view.as_stats().arrays[0], shown)
    del view
    first_again, _ = drafted(third, rng)
    assert not np.shares_memory(first_again.arrays[0], third.arrays[0])
    freed = second.arrays[0]
    del second
    again, _ = drafted(third, rng)
    assert not np.shares_memory(again.arrays[0], third.arrays[0])
    del freed, again
    fourth, _ = drafted(third, rng)
    place = third.arrays[0].__array_interface__["data"]
    del third
    fifth, _ = drafted(fourth, rng)
    assert fifth.arrays[0].__array_interface__["data"] == place


WRITES = {
    "addition": lambda stats: stats.add(Stats((np.ones((V, K)),))),
    "addition of rows": lambda stats: stats.add(Stats((np.ones((1, K)),), np.array([3], np.int32))),
    "clip": RunningStats.clip,
    "fold": RunningStats.fold,
    "jitter": lambda stats: stats.jitter(0.1, np.random.default_rng(0)),
    "overwrite": lambda stats: stats.overwrite(np.zeros((1, V, K))),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_view_cannot_be_written_to_and_not_be_read_after_a_write(write):
    running = RunningStats([np.random.default_rng(15).normal(size=(V, K))])
    running.rescale(0.5)
    value = running.as_stats().arrays[0]
    view = running.scaled_view(2.0).scaled_view(0.5)
    assert np.shares_memory(view.arrays[0], running.arrays[0])
    np.testing.assert_array_equal(view.derived(first_block), value)
    with pytest.raises(RuntimeError, match="cannot be written to"):
        write(view)
    running.rescale(0.5)  # This writes to no array.
    np.testing.assert_array_equal(view.as_stats().arrays[0], value)
    kept = view.copy(), view.draft(np.array([3]))
    write(running)
    with pytest.raises(RuntimeError, match="written to since"):
        view.as_stats()
    with pytest.raises(RuntimeError, match="written to since"):
        view.derived(first_block)
    for twin in kept:
        np.testing.assert_array_equal(twin.as_stats().arrays[0], value)
        write(twin)


def test_a_draft_of_read_only_arrays_can_be_written_to():
    rng = np.random.default_rng(14)
    running = RunningStats([rng.gamma(1.0, size=(V, K))])
    running.arrays[0].flags.writeable = False
    for _ in range(4):
        running, plain = drafted(running, rng)
        assert_equal_to(running, plain, rtol=1e-12)


# ------------------------------------------------------------------------- any sequence of calls
_SEEDS = st.integers(0, 2**32 - 1)
_STEPS = st.sampled_from([0.0, 1e-3, 0.3, 0.9, 1.0 - 1e-7, 1.0])
_FACTORS = st.sampled_from([1e-3, 0.5, 1.0, 40.0])
_REWRITES = st.sampled_from(["add", "clip", "fold", "rescale", "resum"])


class Statistics(RuleBasedStateMachine):
    """Statistics beside an equal plain array, and older statistics that must not change.

    ``error`` bounds the rounding error of an entry.
    """

    def __init__(self):
        super().__init__()
        self.plain = np.random.default_rng(0).gamma(1.0, size=(V, K))
        self.stats, self.error = RunningStats([self.plain.copy()]), 1e-14
        self.kept, self.is_draft = [], False

    def _becomes(self, plain, error):
        self.plain, self.error = plain, error + 1e-14 * np.abs(plain).max()

    def _added(self, addend, factor, keep=1.0):
        new = factor * dense(addend)
        error = keep * self.error + 1e-14 * np.abs(new).max()
        self._becomes(keep * self.plain + new, error + 1e-14 * np.abs(self.plain).max() * keep)

    @rule(seed=_SEEDS, sparse=st.booleans(), rho=st.none() | _STEPS, factor=_FACTORS)
    def learn(self, seed, sparse, rho, factor):
        # A draft takes only the rows for which it was made.
        sparse = sparse and not self.is_draft
        addend = random_addend(np.random.default_rng(seed), sparse=sparse)
        if rho is None:
            self.stats.add(addend, -factor)
            self._added(addend, -factor)
        else:
            self.stats.blend(rho, addend, factor)
            self._added(addend, rho * factor, 1.0 - rho)

    @rule(how=_REWRITES, factor=_FACTORS)
    def rewrite(self, how, factor):
        if how == "rescale":
            self.stats.rescale(factor)
            self._becomes(factor * self.plain, factor * self.error)
        elif how == "add":
            self.learn(0, False, None, factor)
        else:
            getattr(self.stats, how)()
            if how == "clip":
                self.plain = np.maximum(self.plain, 0.0)

    @rule(how=st.sampled_from(["copy", "pickle", "draft of all rows", "scaled"]), factor=_FACTORS)
    def go_on_with_a_copy(self, how, factor):
        if how == "scaled":
            return self._check(
                self.stats.scaled_view(factor), factor * self.plain, factor * self.error
            )
        self.kept.append((self.stats, self.plain, self.error))
        self.is_draft = False
        if how == "pickle":
            self.stats = pickle.loads(pickle.dumps(self.stats))
        else:
            self.stats = self.stats.copy() if how == "copy" else self.stats.draft(None)

    def _drafted(self, seed, rhos):
        addend = random_addend(np.random.default_rng(seed), sparse=True)
        twin = self.stats.draft(addend.rows)
        for rho in rhos:
            twin.blend(rho, addend, 2.0)
            self._added(addend, 2.0 * rho, 1.0 - rho)
        self._check(twin, self.plain, self.error)
        return twin

    @rule(seed=_SEEDS, rhos=st.lists(_STEPS, min_size=1, max_size=2), how=_REWRITES)
    def two_drafts(self, seed, rhos, how):
        # No name holds the old statistics, so that the second draft reuses their arrays.
        self.stats, self.is_draft = self._drafted(seed, rhos), True
        self.rewrite(how, 0.5)
        self.stats = self._drafted(seed + 1, rhos)

    @rule(seed=_SEEDS, rhos=st.lists(_STEPS, min_size=1, max_size=2), adopted=st.booleans())
    def draft_and_keep_the_old(self, seed, rhos, adopted):
        before = self.stats, self.plain, self.error
        twin = self._drafted(seed, rhos)
        if adopted:
            self.kept.append(before)
            self.stats, self.is_draft = twin, True
        else:
            _, self.plain, self.error = before

    @precondition(lambda self: self.kept)
    @rule()
    def free_the_oldest(self):
        self.kept.pop(0)

    def _check(self, stats, plain, error):
        np.testing.assert_array_equal(stats.derived(first_block), stats.as_stats().arrays[0])
        np.testing.assert_allclose(stats.as_stats().arrays[0], plain, rtol=0.0, atol=4.0 * error)
        np.testing.assert_allclose(stats.sums[0], plain.sum(axis=0), rtol=0.0, atol=4.0 * V * error)

    @invariant()
    def are_what_they_stand_for(self):
        for stats, plain, error in [(self.stats, self.plain, self.error), *self.kept]:
            self._check(stats, plain, error)


TestStatistics = Statistics.TestCase
TestStatistics.settings = sequences


def test_a_derived_value_is_computed_once_for_equal_statistics_and_one_source():
    made = []

    def derive(value, source):
        made.append(source)
        return value.arrays[0].sum()

    stats = RunningStats([np.random.default_rng(0).random((V, K))])
    source, other = object(), object()
    stats.derived(derive, source)
    for same in (stats, stats.draft(None), stats.scaled_view(1.0)):
        same.derived(derive, source)
    assert made == [source]
    stats.derived(derive, other)
    stats.rescale(0.5)
    stats.derived(derive, other)
    stats.add(Stats((np.ones((V, K)),)))
    assert stats.derived(derive, other) == stats.as_stats().arrays[0].sum()
    assert made == [source, other, other, other]


def test_derived_values_are_not_pickled():
    stats = RunningStats([np.random.default_rng(0).random((V, K))])
    sent = len(pickle.dumps(stats))
    stats.derived(first_block)
    assert len(pickle.dumps(stats)) == sent


def test_a_view_of_rows_is_pickled_with_these_rows_only():
    stats = RunningStats([np.random.default_rng(0).random((500, 20))])
    stats.rescale(0.5)
    rows = np.array([3, 70, 499])
    sent = pickle.dumps(stats.view_of_rows(rows))
    assert len(sent) < 3_000  # These bytes are three rows and the sums.
    there = pickle.loads(pickle.dumps(pickle.loads(sent)))  # A worker sends it to another.
    expected = np.zeros((500, 20))
    expected[rows] = stats.arrays[0][rows]
    np.testing.assert_array_equal(there.arrays[0], expected)
    np.testing.assert_array_equal(there.sums[0], stats.sums[0])
    assert there.scale == 0.5


def test_the_sparse_form_holds_all_entries_that_are_not_zero():
    rng = np.random.default_rng(0)
    stats = RunningStats.zeros_like(RunningStats([np.ones((6, 131))]))

    def check(found):
        for _ in range(2):  # The second time, the array has marks of the first.
            np.testing.assert_array_equal(found.as_csr().toarray(), found.arrays[0])
            np.testing.assert_array_equal(found.as_csr(np.float32).toarray(), found.arrays[0])
        total = np.ones((6, 131))
        found.add_to([total])
        np.testing.assert_array_equal(total, 1.0 + found.scale * found.arrays[0])
        found.resum()
        np.testing.assert_array_equal(found.sums[0], found.scale * found.arrays[0].sum(axis=0))

    rows, columns = rng.integers(6, size=20), rng.integers(131, size=20)
    moved = Stats((np.ones(20),), rows, columns)
    for factor in 2.0, -2.0, 1.0:  # The second addition leaves nothing.
        stats.add(moved, factor)
        check(stats)
    other = stats.copy()
    other.add(Stats((np.ones(1),), np.array([0]), np.array([130])))
    check(other)
    check(stats)
    stats.add(Stats((np.ones((1, 131)),), rows=np.array([3])))
    check(stats)
    stats.blend(0.5, Stats((np.eye(6, 131),)))
    check(stats)
