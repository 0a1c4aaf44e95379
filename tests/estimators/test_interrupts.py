"""An interrupt at any place leaves everything as if the call had not been made."""

import copy
import gc
import itertools
import os
import signal
import sys
import threading
import time
import types
from contextlib import ExitStack
from functools import cached_property, partial

import joblib
import numpy as np
import pytest
from estimators._registry import CLASSES, ENTRIES, assert_same_fit
from threadpoolctl import threadpool_info, threadpool_limits

import skvt
from skvt import MemoizedDPGMM, StructuredLDA, TemperedLDA
from skvt.inference import _blas, _parallel
from skvt.inference._memos import Memos

FOLDER = skvt.__path__[0]
# Where what is undone, ended and published is decided.
MACHINERY = (
    "fitting/_twin.py",
    "inference/_parallel.py",
    "inference/_blas.py",
    "expfam/_stats.py",
)


def content(value):
    """All that an object holds, at whatever depth, to the last bit; caches and times apart."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Memos):
        return [(key, content(memo)) for key, memo in value.items()]
    if isinstance(value, dict):
        return {k: content(v) for k, v in value.items() if k not in ("cache", "seconds")}
    if isinstance(value, float):
        return float(value).hex()
    if hasattr(value, "_asdict"):
        return content(value._asdict())
    if isinstance(value, list | tuple):
        return [content(entry) for entry in value]
    if isinstance(value, type | types.FunctionType | np.dtype) or not hasattr(value, "__dict__"):
        return value
    cached = {
        name
        for cls in type(value).__mro__
        for name, member in vars(cls).items()
        if isinstance(member, cached_property)
    }
    own = {name: member for name, member in vars(value).items() if name not in cached}
    # What statistics know of their zeros, and what was derived from them, can be computed again.
    return type(value), content(own | dict.fromkeys(("_spare", "_marks", "_csr", "_derived")))


def helpers():
    """Threads of Workers that live."""
    found = []
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code is _parallel._run_helper.__code__:
                found.append(frame)
            frame = frame.f_back
    return len(found)


def while_there(count):
    """Wait until there is none of what is counted, but not long."""
    deadline = time.perf_counter() + 5.0
    while count() and time.perf_counter() < deadline:
        gc.collect()
        time.sleep(0.001)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def two_blas_threads():
    """More than one, so that a limit that stays is seen, and one that is not of our making."""
    with threadpool_limits(2, user_api="blas"):
        yield


def assert_as_if_nothing_had_been(estimator, before):
    assert content(estimator) == before
    while_there(helpers)
    assert helpers() == 0
    assert set(blas_threads()) == {2}
    assert _blas._limit._claims == set()


class Interruption:
    """Raises KeyboardInterrupt in the calling thread where the interpreter gets to a place.

    A place is a line of the given files of the package (of all, without), or an opcode; counted
    where each time is to be one of its own.
    """

    def __init__(self, files=None, *, opcodes=False, each_time=False):
        self._paths = files and {f"{FOLDER}/{file}" for file in files}
        assert all(map(os.path.isfile, self._paths or ()))
        self._event, self._each_time = "opcode" if opcodes else "line", each_time

    def places(self, act):
        """Those of one call, in the order in which they are first reached."""
        seen = {}
        self._run(act, lambda place: seen.setdefault(place))
        return list(seen)

    def at(self, place, act):
        """Interrupt a call; returns whether it got there."""

        def see(here):
            if here == place:
                sys.settrace(None)
                raise KeyboardInterrupt

        try:
            self._run(act, see)
        except KeyboardInterrupt:
            # Tracing also raises on the way out of `with lock`, before it is released, where the
            # interpreter looks for no signal. Threads of later tests would wait for it for ever.
            _blas._limit.renew_lock()
            return True
        return False

    def _run(self, act, see):
        count = itertools.count()

        def local(frame, event, arg):
            if event == self._event:
                where = frame.f_lasti if event == "opcode" else frame.f_lineno
                see((frame.f_code, where, next(count) if self._each_time else 0))
            return local

        def trace(frame, event, arg):
            path = frame.f_code.co_filename
            if not (path in self._paths if self._paths else path.startswith(FOLDER)):
                return None
            frame.f_trace_opcodes = self._event == "opcode"
            return local

        sys.settrace(trace)
        try:
            act()
        finally:
            sys.settrace(None)


def assert_safe(estimator, act, interruption, which=slice(None)):
    """Interrupt ``act(estimator)`` at these places; afterwards a call ends as if there were none.

    What comes after the assignment that publishes is no interrupt of the call; it may be traced,
    but there the interpreter looks for none.
    """
    start = copy.deepcopy(estimator)
    before = content(estimator)
    expected = copy.deepcopy(start)
    answer = act(expected)
    places = interruption.places(lambda: act(copy.deepcopy(start)))[which]
    n_interrupted = n_published = 0
    for place in places:
        reached = interruption.at(place, partial(act, estimator))
        n_interrupted += reached
        if not reached or (place[0].co_name == "on_a_twin" and content(estimator) != before):
            assert content(estimator) == content(expected)
            n_published += reached
            estimator = copy.deepcopy(start)
        assert_as_if_nothing_had_been(estimator, before)
    assert n_interrupted > 0.5 * len(places)
    assert n_published < 10
    np.testing.assert_equal(content(act(estimator)), content(answer))
    assert content(estimator) == content(expected)


LINES_OF_MACHINERY = Interruption(MACHINERY)


def streamed(entry, **params):
    """Fitted, and two more chunks of a stream later."""
    model = entry.make(**({"max_iter": 1} | params)).fit(entry.data())
    return model.partial_fit(entry.data(1)).partial_fit(entry.data(2))


def calling(method, X):
    return lambda estimator: getattr(estimator, method)(X)


@pytest.mark.quick_cases("transform-2")
@pytest.mark.parametrize("method, n_jobs", [("fit", 2), ("partial_fit", 1), ("transform", 2)])
def test_an_interrupt_at_any_line_of_what_publishes_and_ends_leaves_no_trace(method, n_jobs):
    entry = ENTRIES[0]
    model = streamed(entry, n_jobs=n_jobs)
    assert_safe(model, calling(method, entry.data(3)), LINES_OF_MACHINERY)


def test_an_interrupt_after_a_step_of_size_one_leaves_no_trace():
    # Such a step folds the statistics, which an undo by rows cannot take back.
    entry = ENTRIES[0]
    model = streamed(entry, learning_decay=0.0, learning_offset=1.0)
    before, X = content(model), entry.data(3)
    reached = Interruption(["contracts/_policy.py"], each_time=True)
    places = reached.places(lambda: copy.deepcopy(model).partial_fit(X))
    assert reached.at(places[-1], lambda: model.partial_fit(X))
    assert content(model) == before


METHODS = ("fit", "partial_fit", "transform", "predict_proba")
# One of each class: their engines are all there are.
EVERY = [
    pytest.param(entry, method, id=f"{entry}-{method}")
    for entry in CLASSES
    for method in METHODS
    if hasattr(entry.cls, method)
]


def taking_turns(*values):
    """Each estimator and method with one of the values."""
    return [
        pytest.param(*case.values, value, id=f"{case.id}-{value}")
        for case, value in zip(EVERY, itertools.cycle(values), strict=False)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("entry, method, turn", taking_turns(*itertools.product((1, 2), range(4))))
def test_an_interrupt_at_any_line_leaves_no_trace(entry, method, turn):
    # Each class and method has every fourth line in turn: most lines are those of many.
    n_jobs, first = turn
    model = streamed(entry, n_jobs=n_jobs)
    assert_safe(model, calling(method, entry.data(3)), Interruption(), slice(first, None, 4))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform"])
def test_an_interrupt_at_any_opcode_of_what_publishes_and_ends_leaves_no_trace(method):
    entry = ENTRIES[0]
    interruption = Interruption(MACHINERY[:2], opcodes=True)
    call, every_other = calling(method, entry.data(3)), slice(None, None, 2)
    assert_safe(streamed(entry, n_jobs=2), call, interruption, every_other)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
@pytest.mark.parametrize("entry, method, n_jobs", taking_turns(1, 2, 8, 1))
def test_a_signal_at_a_random_moment_leaves_no_trace(entry, method, n_jobs, monkeypatch):
    report = sys.unraisablehook

    def report_all_others(unraisable):
        # Python itself swallows what the callback of a weak reference raises, as where a thread
        # ends. Such an interrupt reaches nobody.
        if unraisable.exc_type is not KeyboardInterrupt:
            report(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", report_all_others)
    model, X, rng = streamed(entry, n_jobs=n_jobs), entry.data(3), np.random.default_rng(0)
    start, before, durations = copy.deepcopy(model), content(model), []
    for _ in range(3):
        expected = copy.deepcopy(start)
        started = time.perf_counter()
        answer = getattr(expected, method)(X)
        durations.append(time.perf_counter() - started)
    after = content(expected)

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    n_interrupted, previous = 0, signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(25):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1.2 * min(durations)))
                getattr(model, method)(X)
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt:
                n_interrupted += 1
            # At the very end, the fit may have published its results before the interrupt came.
            if content(model) != before:
                assert content(model) == after
                model = copy.deepcopy(start)
            assert_as_if_nothing_had_been(model, before)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
    assert n_interrupted > 4
    np.testing.assert_equal(content(getattr(model, method)(X)), content(answer))
    assert content(model) == after


# ------------------------------------------------------------------------ readers, threads, files
def test_a_reader_sees_one_state_while_a_stream_goes_on():
    entry = ENTRIES[0]
    model = streamed(entry)
    # The twin shares all that the estimator holds.
    twin = copy.copy(model)
    before = content(twin)
    for seed in range(3, 8):
        model.partial_fit(entry.data(seed))
    assert content(twin) == before


def test_overlapping_limits_of_the_matrix_library_end_with_the_last():
    # Limits of fits in several threads overlap.
    first, second = _blas.one_blas_thread(), _blas.one_blas_thread()
    with ExitStack() as stack:
        first.__enter__()
        stack.enter_context(second)
        assert set(blas_threads()) == {1}
        first.__exit__()
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_a_limit_of_the_matrix_library_ends_when_it_is_freed():
    limit = _blas.one_blas_thread().__enter__()
    assert set(blas_threads()) == {1}
    del limit
    assert set(blas_threads()) == {2}


def test_threads_of_workers_end_when_the_workers_are_freed():
    workers = _parallel.Workers(3).__enter__()
    # The barrier waits until all threads are there.
    workers.run(threading.Barrier(3).wait, [(10.0,)] * 3)
    assert helpers() == 2
    del workers
    while_there(helpers)
    assert helpers() == 0


def test_fits_in_several_threads_are_those_made_one_by_one():
    entry = ENTRIES[0]
    models = [entry.make(n_jobs=2, max_iter=2) for _ in range(3)]
    threads = [threading.Thread(target=model.fit, args=(entry.data(),)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert set(blas_threads()) == {2}
    for model in models:
        assert_same_fit(model, entry.make(n_jobs=1, max_iter=2).fit(entry.data()))


# Loops are compiled anew for arrays that cannot be written to, which takes long.
@pytest.mark.slow
@pytest.mark.parametrize("cls", [TemperedLDA, StructuredLDA, MemoizedDPGMM])
def test_an_estimator_in_a_file_mapped_for_reading_goes_on(cls, tmp_path):
    entry = next(entry for entry in ENTRIES if entry.cls is cls)
    model = streamed(entry)
    joblib.dump(model, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")
    for seed in (3, 4):
        model.partial_fit(entry.data(seed))
        mapped.partial_fit(entry.data(seed))
    assert_same_fit(mapped, model)


def test_the_log_of_moves_is_made_when_a_user_asks_for_it():
    entry = next(entry for entry in ENTRIES if entry.cls is MemoizedDPGMM)
    model = streamed(entry)
    # Calls of partial_fit do not make it, because it would take the longer the longer a stream is.
    assert "move_log_" not in vars(model)
    log = model._fitted.state.move_log
    assert model.move_log_["gain"] == [record.gain for record in log] != []
    assert not hasattr(entry.make(), "move_log_")
