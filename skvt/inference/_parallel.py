"""Threads for compiled loops.

:class:`Workers` runs tasks on threads. Threads work at the same time, because the compiled loops of
tasks release the interpreter lock. The loops write into separate slices of shared arrays.

The threads must be told to end even if Ctrl-C interrupts the calling thread, which can happen
between any two bytecodes. They are therefore told twice, in case the first attempt is interrupted,
and a third time when the :class:`Workers` are freed.

Tasks are passed to threads by a plain queue, because other ways are slow compared with the work. A
minibatch of a hundred documents takes 1 to 3 ms. A thread gets a task from the queue after 0.03 ms;
``joblib.Parallel`` polls for results every 10 ms. A loop of 10 microseconds that two threads share
takes 11 microseconds with a queue, because the caller does not wait for a thread that gets its task
too late, and 19 to 31 microseconds with a ``ThreadPoolExecutor``.
"""

import weakref
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Self, TypeAlias

import joblib

from skvt._compiled import SharedLoop, run_serially
from skvt.inference._blas import one_blas_thread
from skvt.typing import T

# Tasks that no thread has taken yet, as (index, arguments).
_WaitingTasks: TypeAlias = deque[tuple[int, tuple[Any, ...]]]
# Tasks that have ended, as (index, result, error); the error is None after a success.
_EndedTasks: TypeAlias = SimpleQueue[tuple[int, Any, BaseException | None]]


def _do_tasks(function: Callable[..., Any], waiting: _WaitingTasks, ended: _EndedTasks) -> None:
    """Do the ``waiting`` tasks and put their results into ``ended``, until no task is left."""
    while True:
        try:
            index, arguments = waiting.popleft()
        except IndexError:
            return
        try:
            ended.put((index, function(*arguments), None))
        except BaseException as error:
            # Let no thread start another task. The thread that waits for the results raises the
            # error again.
            waiting.clear()
            ended.put((index, None, error))


def _run_helper(
    jobs: "SimpleQueue[Any]", exits: deque[None], exit_signal: "SimpleQueue[None]", owner: object
) -> None:
    """Run the loop of a helper thread: take jobs and do their tasks, until no job comes.

    A job is the tuple of arguments of `_do_tasks`. Any other object ends the loop: None, or the
    weak reference ``owner`` to Workers that were freed. On exit, append to ``exits`` and put None
    into ``exit_signal``, which wakes the thread that waits for the end of helpers. ``owner`` is not
    used. The thread holds it because the callback of a weak reference is called only while the
    reference exists.
    """
    try:
        while isinstance(job := jobs.get(), tuple):
            _do_tasks(*job)
            # The job may refer to the Workers, which could not be freed while the thread waits.
            del job
    finally:
        # A single None ends all threads: each thread passes it on.
        jobs.put(None)
        exits.append(None)
        exit_signal.put(None)


class Workers:
    """A ``with`` block in which ``n_jobs`` threads, including the caller, work on tasks.

    The value None and negative values of ``n_jobs`` mean the same as in scikit-learn.
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
        # An entry for each helper that has ended. No interrupt can remove an entry.
        self._exits: deque[None] = deque()
        # Each helper that ends puts an entry into this queue, which wakes the thread that waits for
        # helpers. An interrupt of the waiting thread may lose an entry.
        self._exit_signal: SimpleQueue[None] = SimpleQueue()
        try:
            self._one_blas_thread.__enter__()
            # If this object is freed without __exit__, the weak reference calls its callback
            # ``put`` with itself, and so puts itself into the queue. The reference is no job, so
            # that it ends the helpers. Ctrl-C cannot interrupt ``put``, which is written in C.
            owner = weakref.ref(self, self._jobs.put)
            # Do not use threading.Thread: its method ``start`` waits until the thread runs. If the
            # wait is interrupted, the thread stays in the lists of the threading module for good.
            # The caller is the first of the ``n_jobs`` threads.
            for _ in range(1, self.n_jobs):
                start_new_thread(_run_helper, (self._jobs, self._exits, self._exit_signal, owner))
                self._n_helpers += 1
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._end_helpers()
        finally:
            # An interrupt may have cut the first call short. A second call is harmless.
            self._end_helpers()

    def _end_helpers(self) -> None:
        """End the helper threads and wait for them; a second call does nothing."""
        self._jobs.put(None)
        # Wait until all helpers have ended, so that no thread works after the ``with`` block.
        while len(self._exits) < self._n_helpers:
            self._exit_signal.get()
        self._n_helpers = 0
        self._one_blas_thread.__exit__()

    def run(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
        """Return ``[function(*task) for task in tasks]``, computed on all threads.

        A thread that is free takes the next task, so that tasks may take unequal time.

        If ``tasks`` is a :class:`~skvt._compiled._shared_loop.SharedLoop`, the threads share the
        items of a compiled loop. Its tasks are the calls of the calling thread; each helper thread
        makes a call with the arguments ``helpers_call``. The caller does not wait for helpers that
        wake up after the loop has finished. The results of late calls are None, which does no harm,
        because functions of shared loops write into arrays.
        """
        loop = tasks if isinstance(tasks, SharedLoop) else None
        tasks = list(tasks)
        if loop is not None:
            tasks += [loop.helpers_call] * self._n_helpers
        n_helpers = min(self._n_helpers, len(tasks) - 1)
        if n_helpers < 1:
            return run_serially(function, tasks)
        results: list[Any] = [None] * len(tasks)
        waiting: _WaitingTasks = deque(enumerate(tasks))
        ended: _EndedTasks = SimpleQueue()
        try:
            for _ in range(n_helpers):
                self._jobs.put((function, waiting, ended))
            _do_tasks(function, waiting, ended)
            loop_has_finished = loop is not None and loop.is_finished()
            for _ in tasks:
                # After the end of the loop, helpers without a result have nothing left to do.
                if loop_has_finished and ended.empty():
                    break
                index, results[index], error = ended.get()
                if error is not None:
                    raise error
        finally:
            # After an error or an interrupt, no thread starts another task.
            waiting.clear()
        return results

    def prefetch(self, function: Callable[..., T], *args: Any) -> Callable[[], T]:
        """Start ``function(*args)`` on another thread; return a function that gets the result.

        The returned function waits for the result. If no thread has begun the task, the returned
        function computes the result itself.
        """
        waiting: _WaitingTasks = deque([(0, args)])
        ended: _EndedTasks = SimpleQueue()
        if self._n_helpers:
            self._jobs.put((function, waiting, ended))

        def get_result() -> T:
            _do_tasks(function, waiting, ended)
            _, result, error = ended.get()
            if error is not None:
                raise error
            return result

        return get_result
