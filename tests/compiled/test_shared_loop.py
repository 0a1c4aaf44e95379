"""Threads that share a loop visit each item once, and none of them waits for ever."""

import threading
import time

import numba as nb
import numpy as np
import pytest
from _properties import quick
from hypothesis import given
from hypothesis import strategies as st

from skvt._compiled import _shared_loop
from skvt._compiled._shared_loop import (
    COUNTER_SIZE,
    MAX_CLAIMS,
    SharedLoop,
    claim_items,
    wait_for_items,
    yield_core,
)
from skvt._compiled._special import jit
from skvt.inference import Workers

SIZE = 3


@nb.njit
def items(counter, size, n):
    """The items that a thread claims, as an iterator for Python."""
    for item in claim_items(counter, size, n):  # noqa: UP028 (numba has no ``yield from``)
        yield item


@jit
def count(visits, counter):
    """visits[i] += 1 of each item."""
    for i in claim_items(counter, SIZE, visits.size):
        visits[i] += 1


@jit
def cumulate(a, b, c, counters):
    """First b = a + 1 and then c[i] = b[-1 - i] + 1, which needs another item of the first loop."""
    first, second = counters[:COUNTER_SIZE], counters[COUNTER_SIZE:]
    for i in claim_items(first, SIZE, a.size):
        b[i] = a[i] + 1
    if not wait_for_items(first, a.size):
        return False
    for i in claim_items(second, SIZE, a.size):
        c[i] = b[a.size - 1 - i] + 1
    return wait_for_items(second, a.size)


def cumulate_to_the_end(*args):
    while not cumulate(*args):
        time.sleep(1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50, 2 * SIZE * MAX_CLAIMS + 1])
@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5])
def test_threads_do_each_item_once(n, n_jobs):
    for _ in range(10):
        visits = np.zeros(n, int)
        loop = SharedLoop(n, SIZE, visits)
        if n_jobs is None:
            for task in loop:
                count(*task)
        else:
            with Workers(n_jobs) as workers:
                workers.run(count, loop)
        assert np.all(visits == 1)
        assert loop.is_finished()
        # A late thread finds nothing to do.
        count(*loop.helpers_call)
        assert np.all(visits == 1)


@pytest.mark.parametrize("n", [0, 1, 50, 2 * SIZE * MAX_CLAIMS + 1])
@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_a_second_loop_begins_after_the_first_is_done(n, n_jobs):
    with Workers(n_jobs) as workers:
        for _ in range(10):
            a, b, c = np.random.default_rng(n).random(n), np.zeros(n), np.zeros(n)
            workers.run(cumulate_to_the_end, SharedLoop(n, SIZE, a, b, c, n_loops=2))
            np.testing.assert_array_equal(c, (a + 1)[::-1] + 1)


@quick
@given(st.integers(0, 40), st.integers(1, 9), st.lists(st.integers(0, 3), max_size=60))
def test_threads_that_take_turns_claim_each_item_once(n, size, turns):
    counter, threads, done = np.zeros(COUNTER_SIZE, np.int64), {}, []
    for who in turns:
        if who not in threads:
            threads[who] = items(counter, size, n)
        done.extend(item for item in [next(threads[who], None)] if item is not None)
    for claimed in [*threads.values(), items(counter, size, n)]:
        done.extend(claimed)
    assert sorted(done) == list(range(n))
    assert wait_for_items(counter, n)


def test_a_claimed_item_is_not_yet_finished():
    loop = SharedLoop(10, 4, np.zeros(10))
    ((_, counter),) = loop
    assert not loop.is_finished()
    held = items(counter, 4, 10)
    assert next(held) == 0
    assert list(items(counter, 4, 10)) == list(range(4, 10))
    assert not loop.is_finished()  # The call does not wait for ever.
    assert list(held) == [1, 2, 3]
    assert loop.is_finished()


def test_waiting_ends_with_the_last_item_of_another_thread():
    counter, met = np.zeros(COUNTER_SIZE, np.int64), []
    for _ in range(100):
        counter[:] = 0
        last_item = items(counter, 1, 1)
        next(last_item)
        thread = threading.Thread(target=next, args=(last_item, None))
        thread.start()
        met.append(wait_for_items(counter, 1))
        thread.join()
        assert wait_for_items(counter, 1)
    assert any(met)


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
@pytest.mark.parametrize("by_caller", [True, False])
def test_an_error_is_raised_even_if_all_items_are_done(n_jobs, by_caller):
    caller = threading.current_thread()
    begun = threading.Event()

    def failing(visits, counter):
        count(visits, counter)
        if by_caller and threading.current_thread() is caller:
            raise KeyError("caller")
        if threading.current_thread() is not caller:
            begun.set()
            raise KeyError("helper")
        if n_jobs > 1:
            assert begun.wait(10.0)
            time.sleep(0.1)

    with Workers(n_jobs) as workers:
        if n_jobs == 1 and not by_caller:
            workers.run(failing, SharedLoop(20, SIZE, np.zeros(20, int)))
        else:
            with pytest.raises(KeyError):
                workers.run(failing, SharedLoop(20, SIZE, np.zeros(20, int)))
        visits = np.zeros(20, int)
        workers.run(count, SharedLoop(20, SIZE, visits))
        assert np.all(visits == 1)


def test_an_unfinished_item_raises_the_error_of_its_thread():
    caller = threading.current_thread()

    def failing(visits, counter):
        if threading.current_thread() is not caller:
            next(items(counter, 1, 2))
            claimed.set()
            raise MemoryError
        assert claimed.wait(10.0)
        count(visits, counter)

    claimed = threading.Event()
    with Workers(2) as workers, pytest.raises(MemoryError):
        workers.run(failing, SharedLoop(2, 1, np.zeros(2, int)))


def test_without_sched_yield_a_thread_gives_way_by_sleeping(monkeypatch):
    slept = []
    monkeypatch.delattr(_shared_loop.os, "sched_yield", raising=False)
    monkeypatch.setattr(_shared_loop.time, "sleep", slept.append)
    yield_core()
    assert slept == [0.0]


def test_compiled_loops_release_the_interpreter():
    # Otherwise threads would take turns. All loops are compiled with the options of this one.
    assert count.targetoptions["nogil"]
