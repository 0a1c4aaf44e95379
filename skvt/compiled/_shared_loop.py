"""Compiled loops shared among threads.

Every thread calls the same function with the same arguments, and takes the next few items from a
common counter until none is left: the threads end together, and a call costs the interpreter as
much as one task, for any number of items. It does not matter which thread does which item, as long
as the results of an item depend only on itself.

    for _ in range(CLAIMS):
        start, stop = claim(counter, SIZE, n)
        if start >= stop:
            break
        for i in range(start, stop):
            ...
        finish(counter, start, stop)

Loops that need each other's results can be one function, with a counter each and ``all_finished``
between them. It gives up after a while, so that the function reports whether it has finished, and
is called again until it has: loops already finished have no items left.
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

# Claims of one call: between calls the interpreter can answer an interrupt.
CLAIMS = 2000
# Entries of a counter. The last counter of a helper has one more, which marks it as a helper's.
COUNTER = 16
# Place of the count of claimed items.
_CLAIMED = 0
# Place of the count of finished ones, a line of the cache further.
_FINISHED = 8
# Looks at a count before a thread gives up (some 30 microseconds).
_LOOKS = 6_000
# Looks of a helper after the last item is done.
_LAST_LOOKS = 500


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Address of the entry of an int64 array."""
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
    """``counter[place]``, to which ``size`` is added before another thread sees it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(counter, types.int64, types.int64), codegen


@instruction(lambda counter, place: int(counter[place]))
def _look(typingctx: Any, counter: Any, place: Any) -> Any:
    """``counter[place]`` now, and what was written before; the fence keeps it one look of many."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        builder.fence("seq_cst")
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(counter, types.int64), codegen


@jit
def all_finished(counter: IndexArray, n: int) -> bool:
    """Whether all n items are done; waits for those that others are at, but not long.

    A thread that falls asleep takes longer to wake up than others to do their last item.
    """
    if _look(counter, _CLAIMED) < n:
        return False
    for _ in range(_LOOKS):
        if _look(counter, _FINISHED) >= n:
            return True
    return False


@part
def claim(counter: IndexArray, size: Whole, n: int) -> tuple[int, int]:
    """Start and stop of the next ``size`` of n items; nothing is left if start >= stop.

    A helper that ends before the others stays a moment longer than they do: the calling thread is
    to be the first that needs the interpreter, since a thread that finds it taken falls asleep.
    """
    start = _fetch_and_add(counter, _CLAIMED, size)
    if start >= n and counter.size > COUNTER and _look(counter, _FINISHED) < n:
        if all_finished(counter, n):
            for _ in range(_LAST_LOOKS):
                _look(counter, _FINISHED)
    return start, min(start + size, n)


@part
def finish(counter: IndexArray, start: int, stop: int) -> None:
    """The items of a claim are done."""
    _fetch_and_add(counter, _FINISHED, stop - start)


def serial_map(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
    """``run`` without threads."""
    return [function(*task) for task in tasks]


def give_way() -> None:
    """Let another thread have this one's core, if one waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0.0)


class SharedLoop(list[tuple[Any, ...]]):
    """Tasks for ``run``: the calls of a shared loop over n items, ``size`` a claim.

    They are as many as one thread needs; whoever has several adds ``helpers_call`` for each. Of a
    function with several loops, n and size are those of the last. The function's last argument, not
    among ``args``, is the counter, or counters one after the other.
    """

    def __init__(self, n: int, size: Whole, *args: Any, n_loops: int = 1) -> None:
        self._n, counters = n, np.zeros(COUNTER * n_loops + 1, np.int64)
        self._last = counters[-COUNTER - 1 :]
        n_calls = -(-n // (size * CLAIMS)) if n_loops == 1 else 1
        super().__init__([(*args, counters[:-1])] * n_calls)
        self.helpers_call = (*args, counters)

    def finished(self) -> bool:
        """Whether all items of the last loop are done, see :func:`all_finished`."""
        return all_finished(self._last, self._n)
