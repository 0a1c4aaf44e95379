"""Tasks on Dask: on the cluster of an active client, otherwise on the scheduler of this process.

A *chunk* consists of successive rows of the data X, and its *block* has these rows and their
weights. A *task* calls a function of the package with a block and a few small arguments. A *site*,
:class:`LocalSite` or :class:`ClusterSite`, runs tasks. A site yields the results in the order of
the tasks, or combines the results in a tree of fixed shape. Results therefore depend neither on the
number of workers nor on their speed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

# Maximum number of results that are combined at once.
MAX_COMBINED = 8
# Number of running or queued tasks per thread of the cluster. With more than 1, a thread that has
# finished a task need not wait until this process starts another.
_TASKS_PER_THREAD = 2
# Assumed minimum of the number of threads, because some workers may not have started yet.
_MIN_THREADS = 2
# Share of the workers' memory that blocks may use. Visits of the rows need additional memory.
_MEMORY_SHARE = 0.3
# Number of tasks that are computed together without a cluster.
_TASKS_AT_ONCE = 16


class SealedValue:
    """A wrapper of a value, which Dask passes on without inspecting the value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __dask_tokenize__(self) -> tuple[str, int]:
        # Dask identifies the value by this token, and does not hash the content of the value.
        return "skvt-sealed", id(self)


class ChunkHandle(NamedTuple):
    """A reference to a chunk, without the rows."""

    # Number of the chunk in X, from 0.
    number: int
    # The block as an object of Dask: a delayed object, which loads the block whenever it is needed,
    # or the future of a block that the workers keep.
    block: Any
    # Number of rows of positive weight when the block was first loaded; None before that.
    n_rows: int | None = None

    def seal(self, arguments: tuple[Any, ...]) -> SealedValue:
        """Return ``n_rows`` and the arguments of a task, sealed for :func:`_call_task`."""
        return SealedValue((self.n_rows, arguments))


#: A function that combines several results into one.
Combine: TypeAlias = Callable[[list[Any]], Any]
#: The handle of a chunk, and the arguments of the function after the block.
Task: TypeAlias = tuple[ChunkHandle, tuple[Any, ...]]


@contextmanager
def name_chunk_in_errors(number: int) -> Iterator[None]:
    """Add the number of the chunk to errors that are raised within a ``with`` statement."""
    try:
        yield
    except Exception as error:
        location = f"In chunk {number} of X"
        if type(error) in (TypeError, ValueError):
            raise type(error)(f"{location}: {error}") from error
        error.add_note(f"{location}.")
        raise


def _call_task(
    function: Callable[..., Any], block: Any, sealed: SealedValue, shared: SealedValue | None
) -> Any:
    """Return ``function(block, *arguments)``: the call of a task, as Dask makes it.

    ``sealed`` is the result of :meth:`ChunkHandle.seal`. Unless ``shared`` is None, its
    value is a further, last argument of the function. Raise ValueError if the block has another
    number of rows than when it was first loaded.
    """
    n_rows, arguments = sealed.value
    if n_rows is not None and len(block.weights) != n_rows:
        raise ValueError(
            f"A chunk must have the same rows each time it is loaded. Got {len(block.weights)} "
            f"rows of positive weight, but {n_rows} when it was loaded before. Seed the code that "
            "draws the rows, or write them to a file first."
        )
    if shared is not None:
        arguments = (*arguments, shared.value)
    return function(block, *arguments)


def _keep_sealed(shared: SealedValue) -> SealedValue:
    """Return the argument: as a task of the cluster, this call stores the value on a worker."""
    # Dask does not know the size of a sealed value, and so does not move blocks to this worker.
    return shared


class LocalSite:
    """Dask's scheduler of this process, which loads a block again for each task."""

    def keep_blocks(self, handles: list[ChunkHandle], nbytes: float) -> list[ChunkHandle]:
        """Return the handles; this site does not keep blocks."""
        return handles

    def send_value(self, value: Any) -> Any:
        """Return the sealed value, which can be the argument ``shared`` of the other methods."""
        return SealedValue(value)

    def run_each(
        self, function: Callable[..., Any], tasks: Iterable[Task], shared: Any = None
    ) -> Iterator[Any]:
        """Yield the result of each task, in the order of the tasks.

        A task ``(handle, arguments)`` is the call ``function(block, *arguments)`` with the block of
        the handle. Unless ``shared`` is None, it is a result of :meth:`send_value`, whose value is
        a further, last argument of each call.
        """
        from dask.base import compute
        from dask.delayed import delayed

        call_task, delayed_shared = delayed(_call_task, pure=False), delayed(shared)
        remaining_tasks = iter(tasks)
        while task_group := list(islice(remaining_tasks, _TASKS_AT_ONCE)):
            calls = [
                call_task(function, handle.block, delayed(handle.seal(arguments)), delayed_shared)
                for handle, arguments in task_group
            ]
            try:
                results = compute(*calls)
            except Exception:
                # Repeat the calls one after the other, so that the error names the chunk.
                results = ()
                for (handle, _), call in zip(task_group, calls, strict=True):
                    with name_chunk_in_errors(handle.number):
                        results += compute(call)
            yield from results

    def run_and_combine(
        self, function: Callable[..., Any], combine: Combine, tasks: Iterable[Task],
        shared: Any = None,
    ) -> Any:  # fmt: skip
        """Return the combined result of all tasks.

        ``combine`` combines a list of at most ``MAX_COMBINED`` results into a result of the same
        type. For the other arguments, see :meth:`run_each`.
        """
        return _combine_in_tree(self.run_each(function, tasks, shared), combine)

    def close(self) -> None:
        """Do nothing, because no blocks are kept."""


def _combine_in_tree(results: Iterable[Any], combine: Combine) -> Any:
    """Combine results in a tree whose nodes have at most ``MAX_COMBINED`` children."""
    # For each level of the tree, from the leaves to the root, the nodes without a parent so far.
    levels: list[list[Any]] = [[]]
    for result in results:
        levels[0].append(result)
        level = 0
        while len(levels[level]) == MAX_COMBINED:
            if level + 1 == len(levels):
                levels.append([])
            levels[level + 1].append(combine(levels[level]))
            levels[level] = []
            level += 1
    # Combine the remaining nodes from the leaves to the root. ``combined`` has the combination of
    # the nodes of all levels so far, and is empty before the first node.
    combined: list[Any] = []
    for nodes in levels:
        combined = [combine(nodes + combined)] if nodes or combined else []
    return combined[0]


class ClusterSite:
    """A cluster of :mod:`distributed`, whose workers keep the blocks if they fit in memory.

    The caller may itself be a task of the cluster. It then leaves the thread pool of its worker
    until the site is closed, so that the thread can run the tasks for which the caller waits.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # Futures of the blocks that workers keep.
        self._kept_blocks: list[Any] = []
        self._has_left_pool = _leave_thread_pool()

    def keep_blocks(self, handles: list[ChunkHandle], nbytes: float) -> list[ChunkHandle]:
        """Let the workers load and keep blocks; return handles of the blocks that are kept.

        If ``nbytes``, the size of all blocks, exceeds the share `_MEMORY_SHARE` of the workers'
        memory, return ``handles`` unchanged: each task then loads its block. If a worker dies, its
        blocks are loaded again.
        """
        with _errors_of_clusters():
            # -1 requests the information on all workers.
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            if nbytes > _MEMORY_SHARE * sum(worker["memory_limit"] for worker in workers):
                return handles
            blocks = self._client.compute([handle.block for handle in handles])
        self._kept_blocks.extend(blocks)
        return [handle._replace(block=block) for handle, block in zip(handles, blocks, strict=True)]

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the future of ``function(*arguments)``."""
        import dask

        # Turn off the warning about large arguments: the global parameters may be large.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self._client.submit(function, *arguments, pure=False)

    def send_value(self, value: Any) -> Any:
        """Send a value to the cluster once, for many tasks.

        Return its future, which can be the argument ``shared`` of the other methods.
        """
        with _errors_of_clusters():
            return self._submit(_keep_sealed, SealedValue(value))

    def _start_task(
        self, function: Callable[..., Any], handle: ChunkHandle, arguments: tuple[Any, ...],
        shared: Any,
    ) -> Any:  # fmt: skip
        """Start a task, and return its future.

        The task first loads its block, unless the workers keep the block.
        """
        from dask.base import is_dask_collection
        from dask.delayed import delayed

        block = handle.block
        sealed_arguments = handle.seal(arguments)
        # The block is a delayed object, or the future of a block that the workers keep.
        if is_dask_collection(block):
            call = delayed(_call_task, pure=False)
            return self._client.compute(call(function, block, delayed(sealed_arguments), shared))
        return self._submit(_call_task, function, block, sealed_arguments, shared)

    @property
    def _max_tasks(self) -> int:
        """Maximum number of running or queued tasks, on which results do not depend."""
        return _TASKS_PER_THREAD * max(_MIN_THREADS, sum(self._client.nthreads().values()))

    def run_each(
        self, function: Callable[..., Any], tasks: Iterable[Task], shared: Any = None
    ) -> Iterator[Any]:
        """Yield the results in the order of the tasks: see :meth:`LocalSite.run_each`."""
        futures: deque[Any] = deque()
        chunk_numbers: deque[int] = deque()

        def wait_for_first() -> Any:
            """Wait for the result of the first future, and return it."""
            with name_chunk_in_errors(chunk_numbers.popleft()):
                return futures[0].result()

        # A future stays in ``futures`` until the caller asks for the next result, so that
        # `_cancelling` also cancels this future if the caller stops instead.
        with _errors_of_clusters(), self._cancelling(futures):
            max_tasks = self._max_tasks
            for handle, arguments in tasks:
                futures.append(self._start_task(function, handle, arguments, shared))
                chunk_numbers.append(handle.number)
                if len(futures) >= max_tasks:
                    yield wait_for_first()
                    futures.popleft()
            while futures:
                yield wait_for_first()
                futures.popleft()

    def run_and_combine(
        self, function: Callable[..., Any], combine: Combine, tasks: Iterable[Task],
        shared: Any = None,
    ) -> Any:  # fmt: skip
        """Combine the results of all tasks: see :meth:`LocalSite.run_and_combine`."""
        from distributed import wait

        # Futures whose results are not combined yet. They are cancelled after an error.
        uncombined_futures: deque[Any] = deque()

        def start_tasks() -> Iterator[Any]:
            """Start the tasks and yield their futures; wait while too many tasks are unfinished."""
            max_tasks = self._max_tasks
            unfinished: deque[Any] = deque()
            for handle, arguments in tasks:
                future = self._start_task(function, handle, arguments, shared)
                uncombined_futures.append(future)
                unfinished.append(future)
                if len(unfinished) > max_tasks:
                    wait(unfinished.popleft())
                yield future

        def combine_futures(futures: list[Any]) -> Any:
            """Start a task that combines the results of ``futures``; return its future."""
            combined = self._submit(combine, futures)
            uncombined_futures.append(combined)
            for future in futures:
                uncombined_futures.remove(future)
            return combined

        with _errors_of_clusters(), self._cancelling(uncombined_futures):
            return _combine_in_tree(start_tasks(), combine_futures).result()

    @contextmanager
    def _cancelling(self, futures: deque[Any]) -> Iterator[None]:
        """Cancel all tasks in ``futures`` if an error or an interrupt ends a ``with`` statement."""
        try:
            yield
        except BaseException:
            self._client.cancel(list(futures), force=True)
            raise

    def close(self) -> None:
        """Release all blocks; if the caller is a task, return it to the thread pool."""
        from distributed import rejoin

        for future in self._kept_blocks:
            future.release()
        self._kept_blocks = []
        if self._has_left_pool:
            self._has_left_pool = False
            rejoin()


def _leave_thread_pool() -> bool:
    """Leave the thread pool of the worker; return whether the caller was a task in the pool."""
    from distributed import secede

    try:
        secede()
    except (AttributeError, KeyError, ValueError):
        # The caller is not a task, or a task that has left the pool before.
        return False
    return True


@contextmanager
def _errors_of_clusters() -> Iterator[None]:
    """Convert failures of a cluster within a ``with`` statement to errors that name a remedy."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise RuntimeError(
            f"Workers of the Dask cluster died repeatedly at the same task ({error}). Give them "
            "more memory, or make chunks smaller by X.rechunk or X.repartition."
        ) from error
    except (CancelledError, CommClosedError, TimeoutError) as error:
        raise RuntimeError(
            f"The Dask cluster was lost, or its tasks were cancelled ({error!r}). Results of "
            "earlier fits have not changed; a fit with skvt.callbacks.Checkpoint can be resumed "
            "from its last file."
        ) from error


def get_active_site() -> LocalSite | ClusterSite:
    """Return the site of the active client, or of this process if there is no client."""
    from dask.base import get_scheduler

    # The scheduler of a cluster is a method of its client.
    client = getattr(get_scheduler(), "__self__", None)
    return LocalSite() if client is None else ClusterSite(client)
