"""Compiled loops shared among threads.

Every thread calls the same compiled function with the same arguments. The function claims the next
few items by a common counter until no item is left. The threads thus end together, and the
interpreter handles one call per thread, for any number of items. Results do not depend on which
thread computes an item, as long as the results of an item do not depend on other items.

    for _ in range(CLAIMS):
        start, stop = claim(counter, SIZE, n)
        if start >= stop:
            break
        for i in range(start, stop):
            ...
        finish(counter, start, stop)

A function can have several loops, of which each needs the results of the loops before. It has one
counter for each loop, and calls ``all_finished`` between loops. ``all_finished`` gives up after a
while. The function then returns False and is called again until it returns True; loops that have
finished have no items left in such calls.
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

# Maximum number of claims of one call. The number is limited so that the interpreter can handle an
# interrupt between calls.
CLAIMS = 2000
# Number of entries of a counter. Threads other than the calling thread are helpers. The last
# counter that a helper gets has one more entry, by which :func:`claim` knows a helper.
COUNTER = 16
# Index of the number of claimed items.
_CLAIMED = 0
# Index of the number of finished items, which lies in another cache line than the number of claimed
# items.
_FINISHED = 8
# Number of reads of a counter before a thread gives up, which take some 30 microseconds.
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
    """Do the same as :func:`_fetch_and_add` in Python."""
    with lock:
        value = int(counter[place])
        counter[place] += size
    return value


@instruction(_fetch_and_add_in_python)
def _fetch_and_add(typingctx: Any, counter: Any, place: Any, size: Any) -> Any:
    """Add ``size`` to ``counter[place]`` atomically; return the value before the addition."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(counter, types.int64, types.int64), codegen


@instruction(lambda counter, place: int(counter[place]))
def _look(typingctx: Any, counter: Any, place: Any) -> Any:
    """Read ``counter[place]`` with acquire order.

    A fence prevents the compiler from merging several reads into one.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        builder.fence("seq_cst")
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(counter, types.int64), codegen


@jit
def all_finished(counter: IndexArray, n: int) -> bool:
    """Return whether all n items are finished, after a short wait for items of other threads.

    The function does not wait if there are items that no thread has claimed. The wait is a loop of
    reads, since a thread that sleeps takes longer to wake up than another thread takes for its last
    item.
    """
    if _look(counter, _CLAIMED) < n:
        return False
    for _ in range(_LOOKS):
        if _look(counter, _FINISHED) >= n:
            return True
    return False


@part
def claim(counter: IndexArray, size: Whole, n: int) -> tuple[int, int]:
    """Claim the next ``size`` of n items; return the start and the stop of their range.

    If no item is left, start is not below stop. A helper that finds no item waits until shortly
    after all items are finished, but not longer than :func:`all_finished`. The calling thread then
    is the first thread that returns to the interpreter. If a helper returned earlier and held the
    lock of the interpreter, the calling thread would sleep.
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
    """Call ``function`` with the arguments of each task in this thread; return all results."""
    return [function(*task) for task in tasks]


def give_way() -> None:
    """Yield the processor core to another thread that waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0.0)


class SharedLoop(list[tuple[Any, ...]]):
    """Tasks for ``run`` that are calls of a shared loop over n items.

    Each claim takes ``size`` items. The list has as many calls as a single thread needs. A runner
    with several threads adds the call ``helpers_call`` for each thread other than the calling
    thread. ``args`` are the arguments of the function without the last argument, which is the
    counter, or an array of all counters if the function has ``n_loops`` loops. With several loops,
    n and ``size`` belong to the last loop.
    """

    def __init__(self, n: int, size: Whole, *args: Any, n_loops: int = 1) -> None:
        self._n, counters = n, np.zeros(COUNTER * n_loops + 1, np.int64)
        self._last = counters[-COUNTER - 1 :]
        n_calls = -(-n // (size * CLAIMS)) if n_loops == 1 else 1
        super().__init__([(*args, counters[:-1])] * n_calls)
        self.helpers_call = (*args, counters)

    def finished(self) -> bool:
        """Return whether all items of the last loop are finished, see :func:`all_finished`."""
        return all_finished(self._last, self._n)
