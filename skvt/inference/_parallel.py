"""Threads for compiled loops.

A minibatch of a hundred documents takes 1 to 3 ms. joblib polls for results every 10 ms, so that a
call of ``joblib.Parallel`` costs more than the work; a plain queue takes 0.03 ms. A loop of 10
microseconds that two threads share takes 11 microseconds with a queue, and 19 to 31 with a
``ThreadPoolExecutor``. Kernels release the interpreter lock and write into slices of shared arrays.

Ctrl-C can arrive between any two bytecodes of the calling thread. Two clean-ups must happen all the
same: telling the threads to end, and restoring the number of threads of the matrix library. Each is
tried a second time if the first attempt was interrupted, and a last time when its owner is freed.
"""

import os
import weakref
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from queue import SimpleQueue
from threading import RLock
from typing import Any, Self, TypeAlias

import joblib
from threadpoolctl import ThreadpoolController

from skvt.compiled import SharedLoop, serial_map
from skvt.typing import T

# Tasks that wait, as (index, task), and finished ones, as (index, result, error).
_Waiting: TypeAlias = deque[tuple[int, tuple[Any, ...]]]
_Done: TypeAlias = SimpleQueue[tuple[int, Any, BaseException | None]]


@cache
def _blas() -> list[Any]:
    """Return the matrix libraries of this process; the search takes milliseconds."""
    return ThreadpoolController().select(user_api="blas").lib_controllers


class _Limit:
    """The numbers of threads of the matrix libraries, which belong to the process.

    They are one as long as any thread has a claim, and are restored when the last claim ends.
    threadpoolctl is not enough: each of its limits restores the number that it replaced, so two
    limits that overlap can leave the process at one thread.
    """

    def __init__(self) -> None:
        # reentrant: an owner freed while the lock is held gives back its claim immediately
        self._lock = RLock()
        self._claims: set[weakref.ref[object]] = set()
        self._before: list[tuple[Any, int]] | None = None

    def renew_lock(self) -> None:
        """Replace the lock after a fork: the thread that held it may not exist in the child."""
        self._lock = RLock()

    def claim(self, owner: object) -> None:
        """Hold the libraries at one thread until ``owner`` gives back its claim or is freed."""
        with self._lock:
            self._claims.add(weakref.ref(owner, self.give_back))
            if self._before is None:
                self._before = [(library, library.get_num_threads()) for library in _blas()]
            for library, _ in self._before:
                library.set_num_threads(1)

    def give_back(self, claim: "weakref.ref[object]") -> None:
        """End a claim, which is a reference to its owner; do nothing if it has ended already."""
        with self._lock:
            self._claims.discard(claim)
            if not self._claims and self._before is not None:
                for library, n_threads in self._before:
                    library.set_num_threads(n_threads)
                self._before = None


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.renew_lock)


class one_blas_thread:
    """A ``with`` block of matrix products on one thread each, so that no last digits vary."""

    def __enter__(self) -> Self:
        _limit.claim(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            _limit.give_back(weakref.ref(self))
        finally:
            _limit.give_back(weakref.ref(self))  # an interrupt may have cut the first call short


def _work(function: Callable[..., Any], waiting: _Waiting, done: _Done) -> None:
    """Do the ``waiting`` tasks one after the other until none is left."""
    while True:
        try:
            place, task = waiting.popleft()
        except IndexError:
            return
        try:
            done.put((place, function(*task), None))
        except BaseException as error:  # raised again by the thread that waits for the results
            waiting.clear()
            done.put((place, None, error))


def _help(
    jobs: "SimpleQueue[Any]", ended: deque[None], bell: "SimpleQueue[None]", watch: object
) -> None:
    """Run the loop of a worker thread. On exit, append to ``ended`` and ring ``bell``.

    ``watch`` is not used: holding it keeps the weak reference alive.
    """
    try:
        while isinstance(job := jobs.get(), tuple):
            _work(*job)
            del job  # it may refer to the Workers, which must stay collectable while we wait
    finally:
        jobs.put(None)  # one signal for all: each thread passes it on
        ended.append(None)
        bell.put(None)


class Workers:
    """A ``with`` block of ``n_jobs`` threads, the caller included; None as in scikit-learn."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = joblib.effective_n_jobs(n_jobs)
        self._n_helpers = 0
        # Matrix products on one thread each: several would compete with ours, and the last digits
        # would depend on their number.
        self._one_blas_thread = one_blas_thread()

    def __enter__(self) -> Self:
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._ended: deque[None] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        try:
            self._one_blas_thread.__enter__()
            # If this object is freed without __exit__, the callback of the weak reference ends
            # the threads. It is `put` itself, which is written in C: Ctrl-C cannot interrupt it.
            watch = weakref.ref(self, self._jobs.put)
            # threading.Thread.start waits until the thread runs. If that wait is interrupted, the
            # thread stays in the lists of the threading module for good.
            for _ in range(1, self.n_jobs):
                start_new_thread(_help, (self._jobs, self._ended, self._bell, watch))
                self._n_helpers += 1
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._end()
        finally:
            self._end()  # an interrupt may have cut the first call short

    def _end(self) -> None:
        """End the threads and wait for them; a second call does nothing."""
        self._jobs.put(None)
        # Wait after an interrupt too: no thread still works when the call has returned.
        while len(self._ended) < self._n_helpers:
            self._bell.get()
        self._n_helpers = 0
        self._one_blas_thread.__exit__()

    def run(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
        """``[function(*task) for task in tasks]``, by the threads where there are several.

        Whichever thread is free takes the next task, so that tasks may take unequal time. A
        thread that wakes after the last task was taken is not waited for. A
        :class:`~skvt.compiled._shared_loop.SharedLoop` is called once on every thread.
        """
        loop = tasks if isinstance(tasks, SharedLoop) else None
        tasks = list(tasks)
        if loop is not None:
            tasks += [loop.helpers_call] * self._n_helpers
        n_helpers = min(self._n_helpers, len(tasks) - 1)
        if n_helpers < 1:
            return serial_map(function, tasks)
        results: list[Any] = [None] * len(tasks)
        waiting: _Waiting = deque(enumerate(tasks))
        done: _Done = SimpleQueue()
        try:
            for _ in range(n_helpers):
                self._jobs.put((function, waiting, done))
            _work(function, waiting, done)
            finished = loop is not None and loop.finished()
            for _ in tasks:
                if finished and done.empty():
                    break  # a thread that found nothing to do is not waited for
                place, results[place], error = done.get()
                if error is not None:
                    raise error
        finally:
            waiting.clear()  # no thread starts another task after an interrupt
        return results

    def prefetch(self, function: Callable[..., T], *args: Any) -> Callable[[], T]:
        """Start ``function(*args)`` on another thread and return a callable that gives the result.

        The callable computes the result itself if no thread has started.
        """
        waiting: _Waiting = deque([(0, args)])
        done: _Done = SimpleQueue()
        if self._n_helpers:
            self._jobs.put((function, waiting, done))

        def result() -> T:
            _work(function, waiting, done)
            _, value, error = done.get()
            if error is not None:
                raise error
            return value

        return result
