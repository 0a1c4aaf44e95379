"""Compiled loops shared among threads.

Every thread calls the same function with the same arguments and takes the next few items from a
common counter until none is left. The threads end together, and a call costs the interpreter as
much as one task, for any number of items. It does not matter which thread does which item, as long
as the results of an item depend only on itself.

    for _ in range(CLAIMS):
        start, stop = claim(counter, SIZE, n)
        if start >= stop:
            break
        for i in range(start, stop):
            ...
        finish(counter, start, stop)

Loops that need each other's results can be one function, with one counter for each loop and
``all_finished`` between them. ``all_finished`` gives up after a while, so that the function reports
whether it has finished and is called again until it has; finished loops have no items left then.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numba.core import types

from skvt.compiled._special import instruction, jit, part
from skvt.typing import IndexArray, T, Whole

# Maximum number of claims of one call; between calls the interpreter can handle an interrupt.
CLAIMS = 2000
# Number of entries of a counter. The last counter of a helper has one more, which marks a helper.
COUNTER = 16
# Index of the number of claimed items.
_CLAIMED = 0
# Index of the number of finished items, in another cache line.
_FINISHED = 8
# Number of reads of a counter before a thread gives up, some 30 microseconds.
_LOOKS = 6_000
# Number of reads by which a helper delays its end after the last item is done.
_LAST_LOOKS = 500


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return the address of an entry of an int64 array."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


def _fetch_and_add_in_python(
    counter: IndexArray,
    place: int,
    size: int,
    lock: threading.Lock = threading.Lock(),  # noqa: B008
) -> int:
    with lock:
        value = int(counter[place])
        counter[place] += size
    return value


@instruction(_fetch_and_add_in_python)
def _fetch_and_add(typingctx: Any, counter: Any, place: Any, size: Any) -> Any:
    """Add ``size`` to ``counter[place]`` atomically; return its value before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(counter, types.int64, types.int64), codegen


@instruction(lambda counter, place: int(counter[place]))
def _look(typingctx: Any, counter: Any, place: Any) -> Any:
    """Read ``counter[place]`` with acquire order; the fence keeps reads from being merged."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        builder.fence("seq_cst")
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(counter, types.int64), codegen


@jit
def all_finished(counter: IndexArray, n: int) -> bool:
    """Return whether all n items are done; wait a moment for items that other threads work on.

    The wait is a loop of reads, since a thread that sleeps takes longer to wake up than another
    thread takes for its last item.
    """
    if _look(counter, _CLAIMED) < n:
        return False
    for _ in range(_LOOKS):
        if _look(counter, _FINISHED) >= n:
            return True
    return False


@part
def claim(counter: IndexArray, size: Whole, n: int) -> tuple[int, int]:
    """Claim the next ``size`` of n items; return start and stop, start >= stop if none is left.

    A helper that ends early waits until shortly after all items are done. Thus the calling thread
    is the first to need the interpreter; if another thread held it, the calling thread would sleep.
    """
    start = _fetch_and_add(counter, _CLAIMED, size)
    if start >= n and counter.size > COUNTER and _look(counter, _FINISHED) < n:
        if all_finished(counter, n):
            for _ in range(_LAST_LOOKS):
                _look(counter, _FINISHED)
    return start, min(start + size, n)


@part
def finish(counter: IndexArray, start: int, stop: int) -> None:
    """Count the items of a claim as finished."""
    _fetch_and_add(counter, _FINISHED, stop - start)


def serial_map(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
    """Run tasks one after the other, without threads."""
    return [function(*task) for task in tasks]


def give_way() -> None:
    """Yield the core to another thread that waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0.0)


class SharedLoop(list[tuple[Any, ...]]):
    """Tasks for ``run``: calls of a shared loop over n items, of which a claim takes ``size``.

    The list has as many calls as one thread needs; a runner with several threads adds
    ``helpers_call`` for each other thread. For a function with several loops, n and size are those
    of the last loop. The function's last argument, which is not among ``args``, is the counter, or
    all counters in one array.
    """

    def __init__(self, n: int, size: Whole, *args: Any, n_loops: int = 1) -> None:
        self._n, counters = n, np.zeros(COUNTER * n_loops + 1, np.int64)
        self._last = counters[-COUNTER - 1 :]
        n_calls = -(-n // (size * CLAIMS)) if n_loops == 1 else 1
        super().__init__([(*args, counters[:-1])] * n_calls)
        self.helpers_call = (*args, counters)

    def finished(self) -> bool:
        """Return whether all items of the last loop are done, see :func:`all_finished`."""
        return all_finished(self._last, self._n)
