"""Tasks on Dask: on the cluster of an active client, else on the scheduler of this process.

A task is a function of the package and a chunk's block, with a few small arguments. Results come
back in the order of the tasks, and sums are taken in a tree of fixed shape, so that they depend
neither on the number of workers nor on their speed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

# Results that are added up at a time.
FAN_IN = 8
# Number of running or queued tasks per thread, so that no thread waits for the driver.
_PER_THREAD = 2
# Least number of threads for which tasks are submitted, even before workers have started.
_LEAST_THREADS = 2
# Share of the workers' memory that rows may take; visits of the rows need additional memory.
_SHARE_OF_MEMORY = 0.3
# Number of tasks that are computed together without a cluster.
_TOGETHER = 16


class Sealed:
    """A value that Dask passes on without inspecting it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Sealed, (self.value,)

    def __dask_tokenize__(self) -> tuple[str, int]:
        return "skvt-sealed", id(self)


class Handle(NamedTuple):
    """A chunk: its number in X, its delayed object or future, and its first number of rows."""

    number: int
    block: Any
    n_rows: int | None = None

    def asked(self, arguments: tuple[Any, ...]) -> Sealed:
        """Return the arguments of a call besides the block."""
        return Sealed((self.n_rows, arguments))


@contextmanager
def of_chunk(number: int) -> Iterator[None]:
    """Add the number of the chunk to errors raised within a ``with`` statement."""
    try:
        yield
    except Exception as error:
        where = f"In chunk {number} of X"
        if type(error) in (TypeError, ValueError):
            raise type(error)(f"{where}: {error}") from error
        error.add_note(f"{where}.")
        raise


def _called(function: Callable[..., Any], block: Any, asked: Sealed, common: Sealed | None) -> Any:
    n_rows, arguments = asked.value
    if n_rows is not None and len(block.weights) != n_rows:
        raise ValueError(
            f"A chunk must have the same rows whenever it is loaded. Got {len(block.weights)} of "
            f"positive weight, {n_rows} when it was loaded before; seed what draws them, or write "
            "them to a file first."
        )
    shared = () if common is None else (common.value,)
    return function(block, *arguments, *shared)


def _kept(common: Sealed) -> Sealed:
    # Dask does not know its size, and therefore does not move rows to the worker that holds it
    return common


def _combined(combine: Callable[[list[Any]], Any], *parts: Any) -> Any:
    return combine(list(parts))


class LocalSite:
    """Dask's scheduler of this process, which loads blocks whenever they are visited."""

    def hold(self, loads: list[Handle], nbytes: float) -> list[Handle]:
        """Return the handles; blocks are not kept."""
        return loads

    def share(self, common: Any) -> Any:
        """Return a sealed value that is passed to many calls."""
        return Sealed(common)

    def each(
        self,
        function: Callable[..., Any],
        tasks: Iterable[tuple[Handle, tuple[Any, ...]]],
        common: Any = None,
    ) -> Iterator[Any]:
        """``function(block, *arguments)`` of (handle, arguments), and of what has been shared."""
        from dask.base import compute
        from dask.delayed import delayed

        waiting, shared = iter(tasks), delayed(common)
        while some := list(islice(waiting, _TOGETHER)):
            calls = [
                delayed(_called, pure=False)(
                    function, handle.block, delayed(handle.asked(arguments)), shared
                )
                for handle, arguments in some
            ]
            try:
                results = compute(*calls)
            except Exception:  # compute one after the other, to name the chunk that fails
                results = ()
                for (handle, _), call in zip(some, calls, strict=True):
                    with of_chunk(handle.number):
                        results += compute(call)
            yield from results

    def total(
        self,
        function: Callable[..., Any],
        combine: Callable[[list[Any]], Any],
        tasks: Iterable[tuple[Handle, tuple[Any, ...]]],
        common: Any = None,
    ) -> Any:
        """Combine all results by ``combine``, a few at a time."""
        return _of_tree(self.each(function, tasks, common), combine)

    def close(self) -> None:
        """Do nothing, since no blocks are held."""


def _of_tree(results: Iterable[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """Combine results by a tree whose nodes have at most ``FAN_IN`` parts."""
    levels: list[list[Any]] = [[]]
    for result in results:
        levels[0].append(result)
        level = 0
        while len(levels[level]) == FAN_IN:
            if level + 1 == len(levels):
                levels.append([])
            levels[level + 1].append(combine(levels[level]))
            levels[level] = []
            level += 1
    rest: list[Any] = []
    for parts in levels:
        rest = [combine(parts + rest)] if parts or rest else []
    return rest[0]


class ClusterSite:
    """A cluster of :mod:`distributed`, whose workers keep blocks as far as memory allows.

    If the caller is a task of the cluster, it gives up its worker thread to the tasks for which it
    waits, until the site is closed.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._held: list[Any] = []
        self._has_left = _has_left_pool()

    def hold(self, loads: list[Handle], nbytes: float) -> list[Handle]:
        """Return handles of the blocks of delayed objects, of ``nbytes`` in total.

        The workers keep the blocks and load lost ones again. Blocks that would need more than their
        share of the memory are loaded whenever they are visited.
        """
        with _errors_of_clusters():
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            if nbytes > _SHARE_OF_MEMORY * sum(worker["memory_limit"] for worker in workers):
                return loads
            blocks = self._client.compute([handle.block for handle in loads])
        self._held.extend(blocks)
        return [handle._replace(block=block) for handle, block in zip(loads, blocks, strict=True)]

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        import dask

        # globals of a large chunk are sent on purpose, so do not warn about their size
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self._client.submit(function, *arguments, pure=False)

    def share(self, common: Any) -> Any:
        """Send a value that is passed to many calls once; workers pass it on."""
        with _errors_of_clusters():
            return self._submit(_kept, Sealed(common))

    def _start(
        self, function: Callable[..., Any], handle: Handle, arguments: tuple[Any, ...], common: Any
    ) -> Any:
        """Return the future of a call with a block that is kept, or loaded for this call."""
        from dask.base import is_dask_collection
        from dask.delayed import delayed

        block, asked = handle.block, handle.asked(arguments)
        if is_dask_collection(block):
            call = delayed(_called, pure=False)
            return self._client.compute(call(function, block, delayed(asked), common))
        return self._submit(_called, function, block, asked, common)

    @property
    def _most(self) -> int:
        """Maximum number of running or queued tasks; results do not depend on it."""
        return _PER_THREAD * max(_LEAST_THREADS, sum(self._client.nthreads().values()))

    def each(
        self,
        function: Callable[..., Any],
        tasks: Iterable[tuple[Handle, tuple[Any, ...]]],
        common: Any = None,
    ) -> Iterator[Any]:
        """``function(block, *arguments)`` of (handle, arguments), and of what has been shared."""
        under_way: deque[Any] = deque()
        numbers: deque[int] = deque()

        def first() -> Any:
            with of_chunk(numbers.popleft()):
                return under_way[0].result()

        with _errors_of_clusters(), self._cancelling(under_way):
            most = self._most
            for handle, arguments in tasks:
                under_way.append(self._start(function, handle, arguments, common))
                numbers.append(handle.number)
                if len(under_way) >= most:
                    yield first()
                    under_way.popleft()
            while under_way:
                yield first()
                under_way.popleft()

    def total(
        self,
        function: Callable[..., Any],
        combine: Callable[[list[Any]], Any],
        tasks: Iterable[tuple[Handle, tuple[Any, ...]]],
        common: Any = None,
    ) -> Any:
        """Combine all results by ``combine`` on the workers, a few at a time."""
        under_way: deque[Any] = deque()

        def parts() -> Iterator[Any]:
            most = self._most
            waiting: deque[Any] = deque()
            for handle, arguments in tasks:
                future = self._start(function, handle, arguments, common)
                under_way.append(future)
                waiting.append(future)
                if len(waiting) > most:
                    _wait(waiting.popleft())
                yield future

        def combined(futures: list[Any]) -> Any:
            together = self._submit(_combined, combine, *futures)
            under_way.append(together)
            for future in futures:
                under_way.remove(future)
            return together

        with _errors_of_clusters(), self._cancelling(under_way):
            return _of_tree(parts(), combined).result()

    @contextmanager
    def _cancelling(self, under_way: deque[Any]) -> Iterator[None]:
        """Cancel all running and queued tasks if a ``with`` statement is left early."""
        try:
            yield
        except BaseException:
            self._client.cancel(list(under_way), force=True)
            raise

    def close(self) -> None:
        """Release all blocks, and take a thread of the worker again."""
        from distributed import rejoin

        for future in self._held:
            future.release()
        self._held = []
        if self._has_left:
            self._has_left = False
            rejoin()


def _has_left_pool() -> bool:
    """Leave the worker's thread pool; return whether the caller was a task in it."""
    from distributed import secede

    try:
        secede()
    except (AttributeError, KeyError, ValueError):  # not a task, or one that has left already
        return False
    return True


def _wait(future: Any) -> None:
    from distributed import wait

    wait(future)


@contextmanager
def _errors_of_clusters() -> Iterator[None]:
    """Convert failures of a cluster within a ``with`` statement to errors with a remedy."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise RuntimeError(
            f"Workers of the Dask cluster died repeatedly at the same task ({error}). Give them "
            "more memory, or make chunks smaller: X.rechunk, or fewer rows a partition."
        ) from error
    except (CancelledError, CommClosedError, TimeoutError) as error:
        raise RuntimeError(
            f"The Dask cluster was lost, or its tasks were cancelled ({error!r}). What was fitted "
            "before is as it was; a fit with skvt.callbacks.Checkpoint can be resumed from its "
            "last file."
        ) from error


def active_site() -> LocalSite | ClusterSite:
    """Return the cluster of the active client, or this process without a client."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)  # whose method it is, if there is one
    return LocalSite() if client is None else ClusterSite(client)
