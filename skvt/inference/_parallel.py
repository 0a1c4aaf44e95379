"""Threads for compiled loops, joblib for everything that leaves the process.

A minibatch of a hundred documents takes 1 to 3 ms. joblib polls for results every 10 ms, so that a
call of ``joblib.Parallel`` costs more than the work; a plain queue hands over in 0.03 ms. Kernels
release the interpreter lock and write into slices of shared arrays. Where the user has chosen
another joblib backend (``parallel_config(backend="loky" | "dask" | "ray")``), engines that work
through many batches at once send whole batches there and get statistics back.
"""

from collections import deque
from functools import cache
from queue import SimpleQueue
from threading import Thread

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from skvt.expfam._shared_loop import SharedLoop, in_turn


@cache
def _blas():
    """The matrix libraries of this process; looking for them takes milliseconds, so once."""
    return ThreadpoolController().select(user_api="blas")


def one_blas_thread():
    """A ``with`` block whose matrix products run on one thread each.

    Several would compete with the package's own threads, and the last digits would depend on their
    number.
    """
    return _blas().limit(limits=1)


def _work(function, waiting, done):
    """Do the next of the ``waiting`` (place, task) until none is left."""
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


def _help(jobs):
    """A thread's life: work on each job until there is None."""
    while (job := jobs.get()) is not None:
        _work(*job)


class Workers:
    """``n_jobs`` threads, the calling one among them, for the length of a ``with`` block.

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn: None is 1 unless a ``joblib.parallel_config`` says otherwise.
    """

    def __init__(self, n_jobs=None):
        self.n_jobs = joblib.effective_n_jobs(n_jobs)
        self._requested = n_jobs
        self._jobs = SimpleQueue()
        self._threads = []

    def __enter__(self):
        # Matrix products on one thread each: several would compete with ours, and the last digits
        # would depend on their number.
        self._one_blas_thread = one_blas_thread()
        self._threads = [
            Thread(target=_help, args=(self._jobs,), name=f"skvt-{i}", daemon=True)
            for i in range(1, self.n_jobs)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info):
        for _ in self._threads:
            self._jobs.put(None)
        # After an interrupt too: a task that has begun must not go on writing.
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._one_blas_thread.restore_original_limits()

    def run(self, function, tasks):
        """``[function(*task) for task in tasks]``, by the threads where there are several.

        Whoever is free takes the next task, so that tasks may be of unequal length; a thread that
        wakes up too late to find one is not waited for. Of a
        :class:`~skvt.expfam._shared_loop.SharedLoop`, every thread gets a call.
        """
        loop = tasks if isinstance(tasks, SharedLoop) else None
        if loop is not None:
            tasks = loop + [loop.helpers_call] * len(self._threads)
        n_helpers = min(len(self._threads), len(tasks) - 1)
        if n_helpers < 1:
            return in_turn(function, tasks)
        results, waiting, done = [None] * len(tasks), deque(enumerate(tasks)), SimpleQueue()
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
            waiting.clear()  # nobody begins another after an interrupt
        return results

    def ahead(self, function, *args):
        """Let a thread begin ``function(*args)`` as soon as one is free.

        Returns
        -------
        callable
            Gives the result; the calling thread does the work if no other has begun it.
        """
        waiting, done = deque([(0, args)]), SimpleQueue()
        if self._threads:
            self._jobs.put((function, waiting, done))

        def result():
            _work(function, waiting, done)
            _, value, error = done.get()
            if error is not None:
                raise error
            return value

        return result

    @property
    def remote(self):
        """Whether the user has chosen a joblib backend that does not share memory."""
        # Without a choice of the user's, the hint decides and threads are answered.
        backend, _ = get_active_backend(prefer="threads")
        return self.n_jobs > 1 and not getattr(backend, "supports_sharedmem", False)

    def run_remote(self, function, tasks):
        """``[function(*task) for task in tasks]`` through joblib's active backend, in order."""
        return joblib.Parallel(n_jobs=self._requested)(
            joblib.delayed(function)(*task) for task in tasks
        )
