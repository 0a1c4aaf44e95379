"""Threads for compiled loops, and one thread for the matrix library (BLAS).

:class:`Workers` runs tasks on threads. Threads work at the same time, because the compiled loops of
tasks release the interpreter lock. The loops write into separate slices of shared arrays.

Tasks are passed to threads by a plain queue, which takes 0.03 ms. A minibatch of a hundred
documents takes 1 to 3 ms; ``joblib.Parallel`` would cost more than the work, because joblib polls
for results every 10 ms. A loop of 10 microseconds that two threads share takes 11 microseconds with
a queue, and 19 to 31 with a ``ThreadPoolExecutor``.

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

from skvt._compiled import SharedLoop, run_serially
from skvt.typing import T

# Tasks that no thread has taken yet, as (index, arguments).
_Waiting: TypeAlias = deque[tuple[int, tuple[Any, ...]]]
# Tasks that have ended, as (index, result, error); the error is None after a success.
_Done: TypeAlias = SimpleQueue[tuple[int, Any, BaseException | None]]


@cache
def _find_matrix_libraries() -> list[Any]:
    """Return the matrix libraries of this process.

    The result is cached, because a search for libraries takes milliseconds.
    """
    return ThreadpoolController().select(user_api="blas").lib_controllers


class _Limit:
    """The limit of the matrix libraries to one thread each, which holds for the whole process.

    The limit holds as long as any object, an owner, has a claim. When the last claim ends, the
    numbers of threads are restored. threadpoolctl alone is not enough: each of its limits restores
    the number that it replaced, so that two limits that overlap can leave the process at one
    thread.
    """

    def __init__(self) -> None:
        # The lock is reentrant, because an owner that is freed while this thread holds the lock
        # gives back its claim immediately.
        self._lock = RLock()
        # Weak references to the owners of claims.
        self._claims: set[weakref.ref[object]] = set()
        # Each library with its number of threads before the limit; None without a limit.
        self._threads_before: list[tuple[Any, int]] | None = None

    def renew_lock(self) -> None:
        """Replace the lock after a fork, because the thread that holds it may be missing."""
        self._lock = RLock()

    def claim(self, owner: object) -> None:
        """Hold the libraries at one thread until ``owner`` gives back its claim or is freed."""
        with self._lock:
            self._claims.add(weakref.ref(owner, self.give_back))
            if self._threads_before is None:
                libraries = _find_matrix_libraries()
                self._threads_before = [(lib, lib.get_num_threads()) for lib in libraries]
            for library, _ in self._threads_before:
                library.set_num_threads(1)

    def give_back(self, claim: "weakref.ref[object]") -> None:
        """End a claim, which is the weak reference to its owner, unless it has ended already."""
        with self._lock:
            self._claims.discard(claim)
            if not self._claims and self._threads_before is not None:
                for library, n_threads in self._threads_before:
                    library.set_num_threads(n_threads)
                self._threads_before = None


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.renew_lock)


class one_blas_thread:
    """A ``with`` block in which matrix products run on one thread, so that last digits agree."""

    def __enter__(self) -> Self:
        _limit.claim(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            _limit.give_back(weakref.ref(self))
        finally:
            # An interrupt may have cut the first call short.
            _limit.give_back(weakref.ref(self))


def _do_tasks(function: Callable[..., Any], waiting: _Waiting, done: _Done) -> None:
    """Take ``waiting`` tasks and put their results into ``done``, until no task waits."""
    while True:
        try:
            index, arguments = waiting.popleft()
        except IndexError:
            return
        try:
            done.put((index, function(*arguments), None))
        except BaseException as error:
            # The thread that waits for the results raises the error again.
            waiting.clear()
            done.put((index, None, error))


def _run_helper(
    jobs: "SimpleQueue[Any]", ended: deque[None], bell: "SimpleQueue[None]", watch: object
) -> None:
    """Run the loop of a helper thread: take jobs and do their tasks, until None comes.

    A job is the tuple of arguments of `_do_tasks`. On exit, append to ``ended`` and put None into
    ``bell``, which wakes the thread that waits for the end of helpers. ``watch`` is not used: the
    thread holds this weak reference so that it stays alive.
    """
    try:
        while isinstance(job := jobs.get(), tuple):
            _do_tasks(*job)
            # The job may refer to the Workers. They must be collectable while the thread waits.
            del job
    finally:
        # A single None ends all threads: each thread passes it on.
        jobs.put(None)
        ended.append(None)
        bell.put(None)


class Workers:
    """A ``with`` block in which ``n_jobs`` threads, the caller included, work on tasks.

    None and negative numbers of ``n_jobs`` mean the same as in scikit-learn.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = joblib.effective_n_jobs(n_jobs)
        # Number of helper threads, that is, threads besides the caller.
        self._n_helpers = 0
        # Matrix products run on one thread: further threads would compete with the helpers, and
        # last digits would depend on the number of threads.
        self._one_blas_thread = one_blas_thread()

    def __enter__(self) -> Self:
        # The jobs of the helpers.
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        # An entry for each helper that has ended.
        self._ended: deque[None] = deque()
        # The queue in which each helper announces its end.
        self._bell: SimpleQueue[None] = SimpleQueue()
        try:
            self._one_blas_thread.__enter__()
            # If this object is freed without __exit__, the callback of the weak reference ends the
            # helpers, because the callback puts the reference, which is no job, into the queue. The
            # callback is `put` itself, which is written in C: Ctrl-C cannot interrupt it.
            watch = weakref.ref(self, self._jobs.put)
            # Threads are started by the function of the interpreter, because the method
            # threading.Thread.start waits until the thread runs. If the wait is interrupted, the
            # thread stays in the lists of the threading module for good.
            for _ in range(1, self.n_jobs):
                start_new_thread(_run_helper, (self._jobs, self._ended, self._bell, watch))
                self._n_helpers += 1
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._end_helpers()
        finally:
            # An interrupt may have cut the first call short.
            self._end_helpers()

    def _end_helpers(self) -> None:
        """End the helper threads and wait for them; a second call does nothing."""
        self._jobs.put(None)
        # Wait even after an interrupt, so that no thread works after the ``with`` block.
        while len(self._ended) < self._n_helpers:
            self._bell.get()
        self._n_helpers = 0
        self._one_blas_thread.__exit__()

    def run(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
        """Return ``[function(*task) for task in tasks]``, computed on all threads.

        Whichever thread is free takes the next task, so that tasks may take unequal time. If
        ``tasks`` is a :class:`~skvt._compiled._shared_loop.SharedLoop`, the function is also called
        on every helper thread. The caller does not wait for threads that wake up after the loop has
        finished.
        """
        loop = tasks if isinstance(tasks, SharedLoop) else None
        tasks = list(tasks)
        if loop is not None:
            tasks += [loop.helpers_call] * self._n_helpers
        n_helpers = min(self._n_helpers, len(tasks) - 1)
        if n_helpers < 1:
            return run_serially(function, tasks)
        results: list[Any] = [None] * len(tasks)
        waiting: _Waiting = deque(enumerate(tasks))
        done: _Done = SimpleQueue()
        try:
            for _ in range(n_helpers):
                self._jobs.put((function, waiting, done))
            _do_tasks(function, waiting, done)
            loop_has_finished = loop is not None and loop.is_finished()
            for _ in tasks:
                # The other threads have nothing to do in a loop that has finished.
                if loop_has_finished and done.empty():
                    break
                index, results[index], error = done.get()
                if error is not None:
                    raise error
        finally:
            # After an error or an interrupt, no thread starts another task.
            waiting.clear()
        return results

    def prefetch(self, function: Callable[..., T], *args: Any) -> Callable[[], T]:
        """Start ``function(*args)`` on another thread, and return a callable.

        The callable waits for the result and returns it. If no thread has taken the task yet, it
        computes the result.
        """
        waiting: _Waiting = deque([(0, args)])
        done: _Done = SimpleQueue()
        if self._n_helpers:
            self._jobs.put((function, waiting, done))

        def get_result() -> T:
            _do_tasks(function, waiting, done)
            _, result, error = done.get()
            if error is not None:
                raise error
            return result

        return get_result
