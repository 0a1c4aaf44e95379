"""Threads for compiled loops, joblib for everything that leaves the process.

A minibatch of a hundred documents takes 1 to 3 ms. joblib polls for results every 10 ms, so that a
call of ``joblib.Parallel`` costs more than the work; a plain thread pool hands over in 0.04 ms.
Kernels release the interpreter lock and write into slices of shared arrays. Where the user has
chosen another joblib backend (``parallel_config(backend="loky" | "dask" | "ray")``), engines that
work through many batches at once send whole batches there and get statistics back.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController


@cache
def _blas():
    """The matrix libraries of this process; looking for them takes milliseconds, so once."""
    return ThreadpoolController().select(user_api="blas")


class Workers:
    """A pool of ``n_jobs`` threads for the length of a ``with`` block.

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn: None is 1 unless a ``joblib.parallel_config`` says otherwise.
    """

    def __init__(self, n_jobs=None):
        self.n_jobs = joblib.effective_n_jobs(n_jobs)
        self._requested = n_jobs
        self._pool = None

    def __enter__(self):
        # Matrix products on one thread each: several would compete with ours, and the last digits
        # would depend on their number.
        self._one_blas_thread = _blas().limit(limits=1)
        if self.n_jobs > 1:
            self._pool = ThreadPoolExecutor(self.n_jobs, thread_name_prefix="skvt")
        return self

    def __exit__(self, *exc_info):
        self._one_blas_thread.restore_original_limits()
        if self._pool is not None:
            # A waiting task must not go on writing after an interrupt.
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def run(self, function, tasks):
        """``[function(*task) for task in tasks]``, by the threads where there are several."""
        if self._pool is None or len(tasks) < 2:
            return [function(*task) for task in tasks]
        futures = [self._pool.submit(function, *task) for task in tasks]
        return [future.result() for future in futures]

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
