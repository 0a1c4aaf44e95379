"""Workers return results in order, share work, raise errors and leave no thread behind."""

import sys
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skvt import StructuredLDA, TemperedLDA
from skvt._compiled._shared_loop import SharedLoop, run_serially
from skvt.inference import Workers, _blas, _parallel

N_JOBS = [1, 2, 3]


def alive():
    """Threads of Workers that have not ended, after a moment in which the last ones may."""
    for _ in range(200):
        frames = sys._current_frames().values()
        helpers = [frame for frame in frames if _in_help(frame)]
        if not helpers:
            break
        del frames
        time.sleep(0.01)
    return helpers


def _in_help(frame):
    while frame is not None:
        if frame.f_code is _parallel._run_helper.__code__:
            return True
        frame = frame.f_back
    return False


@pytest.mark.parametrize("n_jobs", N_JOBS)
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 3, 50])
def test_results_come_in_the_order_of_the_tasks(n_jobs, n_tasks):
    with Workers(n_jobs) as workers:
        for _ in range(20):
            assert workers.run(pow, [(i, 2) for i in range(n_tasks)]) == [
                i * i for i in range(n_tasks)
            ]
    assert alive() == []


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_n_jobs_tasks_run_at_the_same_time(n_jobs):
    barrier = threading.Barrier(n_jobs)
    with Workers(n_jobs) as workers:
        # The barrier waits for all threads, one of which is the calling thread.
        places = workers.run(barrier.wait, [(10.0,)] * n_jobs)
        assert sorted(places) == list(range(n_jobs))
        names = workers.run(lambda: (barrier.wait(10.0), threading.current_thread()), [()] * n_jobs)
        assert threading.current_thread() in {thread for _, thread in names}


@pytest.mark.parametrize("n_jobs", N_JOBS)
@pytest.mark.parametrize("place", [0, 5, 199])
def test_the_error_of_a_task_is_raised_and_ends_the_run(n_jobs, place):
    begun = []

    def task(i):
        begun.append(i)
        if i == place:
            raise KeyError(i)
        if i > place:  # It ends after the error is noticed.
            time.sleep(0.01)

    with Workers(n_jobs) as workers:
        with pytest.raises(KeyError) as caught:
            workers.run(task, [(i,) for i in range(200)])
        assert caught.value.args == (place,)
        assert place == 199 or len(begun) < 200
        assert workers.run(pow, [(i, 2) for i in range(5)]) == [0, 1, 4, 9, 16]
    assert alive() == []


def test_an_interrupt_of_the_calling_thread_waits_for_running_tasks():
    release, written, caller = threading.Event(), [], threading.current_thread()

    def task(i):
        if threading.current_thread() is caller:
            began.wait(10.0)
            threading.Timer(0.2, release.set).start()
            raise KeyboardInterrupt
        began.set()
        release.wait(10.0)
        written.append(i)

    began = threading.Event()
    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        workers.run(task, [(i,) for i in range(10)])
    # Only the task that the other thread had begun was finished.
    assert len(written) == 1
    assert alive() == []


@pytest.mark.parametrize("n_jobs", N_JOBS)
def test_prefetched_work_gives_its_result(n_jobs):
    with Workers(n_jobs) as workers:
        for i in range(50):
            square, cube = workers.prefetch(pow, i, 2), workers.prefetch(pow, i, 3)
            assert workers.run(pow, [(i, 4), (i, 5)]) == [i**4, i**5]
            assert (square(), cube()) == (i**2, i**3)
        failing = workers.prefetch(pow, 0, -1)
        with pytest.raises(ZeroDivisionError):
            failing()
        workers.prefetch(pow, 2, 2)  # No code asks for the result.
    assert alive() == []


def test_prefetched_work_runs_beside_the_calling_thread():
    begun, release = threading.Event(), threading.Event()

    def task():
        begun.set()
        assert release.wait(10.0)
        return threading.current_thread()

    with Workers(2) as workers:
        result = workers.prefetch(task)
        assert begun.wait(10.0)
        release.set()
        assert result() is not threading.current_thread()


def test_a_task_may_itself_run_tasks():
    with Workers(2) as workers:

        def outer(i):
            return sum(workers.run(pow, [(j, i) for j in range(4)]))

        assert workers.run(outer, [(1,), (2,), (3,)]) == [6, 14, 36]


@pytest.mark.quick_cases("cvb0")
@pytest.mark.parametrize(
    "estimator",
    [
        TemperedLDA(3, max_iter=3),
        StructuredLDA(3, max_iter=3),
        StructuredLDA(3, max_iter=3, local_step="cvb0", global_step="ssvi"),
    ],
    ids=repr,
)
def test_shared_loops_mark_every_item_as_done(estimator, monkeypatch):
    # Other threads wait for the last item only as long as it takes.
    loops = []

    def run(function, tasks):
        results = run_serially(function, tasks)
        if isinstance(tasks, SharedLoop):
            loops.append((function, tasks.is_finished()))
        return results

    monkeypatch.setattr(Workers, "run", staticmethod(run))
    X = np.random.default_rng(0).poisson(0.5, size=(60, 40))
    estimator.set_params(batch_size=20, random_state=0).fit(X).score(X)
    assert len(loops) > 9
    assert {function for function, done in loops if not done} == set()


def test_matrix_products_run_on_one_thread_only_within_the_block():
    def n_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        assert n_threads() == {2}
        with Workers():
            assert n_threads() == {1}
        assert n_threads() == {2}


def test_an_interrupt_during_the_exit_restores_the_number_of_threads(monkeypatch):
    give_back, calls = _blas._limit.give_back, []

    def interrupted(claim):
        calls.append(claim)
        if len(calls) == 1:
            raise KeyboardInterrupt
        give_back(claim)

    with threadpool_limits(2, user_api="blas"):
        limit = _blas.one_blas_thread()
        limit.__enter__()
        monkeypatch.setattr(_blas._limit, "give_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            limit.__exit__()
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert {pool["num_threads"] for pool in pools} == {2}
