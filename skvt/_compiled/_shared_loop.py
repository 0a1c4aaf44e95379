"""Compiled loops shared among threads.

Every thread calls the same compiled function with the same arguments. The function *claims* the
next few items of the loop, such as rows, until no item is left: an atomic addition to a counter,
which the threads share, gives the items to this thread alone. The threads thus end together, and
the interpreter handles one call per thread for any number of items. The compiled function has the
form

    for i in claim_items(counter, SIZE, n):
        ...

Results do not depend on which thread computes an item, as long as the result of an item does not
depend on other items.

Threads can also share several loops, each of which needs the results of the loops before. Every
thread then calls a Python function, which calls a compiled function for each loop, with one counter
for each loop. After each loop the Python function calls :func:`wait_for_items`, which waits for the
other threads a little. If the result is False, items may be left, and the Python function calls the
compiled function of the same loop again.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numba.core import types

from skvt._compiled._special import instruction, jit, jit_inlined
from skvt.typing import IndexArray, T, Whole

# Maximum number of claims of one call. The number is limited so that the interpreter can handle an
# interrupt, such as Ctrl-C, between calls.
MAX_CLAIMS = 2000
# Number of entries of a counter. The *calling thread* is the thread of the user's call; the other
# threads are *helpers*. The array of counters of a helper has one more entry at the end, so that
# its last counter has more than COUNTER_SIZE entries. :func:`claim_items` recognises helpers by it.
COUNTER_SIZE = 16
# Index, within a counter, of the number of claimed items.
_CLAIMED_INDEX = 0
# Index, within a counter, of the number of finished items. It is in another cache line than the
# number of claimed items, so that changes of the one do not delay reads of the other.
_FINISHED_INDEX = 8
# Number of reads of a counter after which a thread stops waiting. They take about 30 microseconds.
_MAX_READS = 6_000
# Number of reads by which a helper delays its return after the last item is finished.
_N_DELAYING_READS = 500
# Lock that makes additions to a counter in Python atomic.
_lock = threading.Lock()


def _emit_pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return the address of an entry of an int64 array, as a value of LLVM.

    The first two ``args`` are the array and the index.
    """
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


def _fetch_and_add_in_python(counter: IndexArray, index: int, size: int) -> int:
    """Do the same as :func:`_fetch_and_add` in Python."""
    with _lock:
        old_value = int(counter[index])
        counter[index] += size
    return old_value


@instruction(_fetch_and_add_in_python)
def _fetch_and_add(typingctx: Any, counter: Any, index: Any, size: Any) -> Any:
    """Add ``size`` to ``counter[index]`` atomically; return the value before the addition."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _emit_pointer(context, builder, signature, args)
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(counter, types.int64, types.int64), codegen


@instruction(lambda counter, index: int(counter[index]))
def _read_counter(typingctx: Any, counter: Any, index: Any) -> Any:
    """Read ``counter[index]`` anew, after changes by other threads.

    The acquire order makes the results visible that other threads wrote before they changed the
    counter. The fence prevents the compiler from merging several reads into one.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _emit_pointer(context, builder, signature, args)
        builder.fence("seq_cst")
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(counter, types.int64), codegen


@jit
def wait_for_items(counter: IndexArray, n: int) -> bool:
    """Return whether all n items are finished, after a short wait for items of other threads.

    The function does not wait if there is an item that no thread has claimed. It waits by reading
    the counter again and again instead of sleeping, because waking up would take longer than the
    last items of other threads.
    """
    if _read_counter(counter, _CLAIMED_INDEX) < n:
        return False
    for _ in range(_MAX_READS):
        if _read_counter(counter, _FINISHED_INDEX) >= n:
            return True
    return False


@jit_inlined
def claim_items(counter: IndexArray, claim_size: Whole, n: int) -> Iterator[int]:
    """Claim ``claim_size`` of n items at a time, up to MAX_CLAIMS times, and yield each item.

    If no item is left, a helper delays its return until shortly after all items are finished, or
    until :func:`wait_for_items` stops waiting. The calling thread thus returns to the interpreter
    first. Otherwise it might have to sleep until a helper releases the lock of the interpreter.
    """
    for _ in range(MAX_CLAIMS):
        start = _fetch_and_add(counter, _CLAIMED_INDEX, claim_size)
        if start >= n:
            # Only the last counter of a helper has more than COUNTER_SIZE entries.
            if counter.size > COUNTER_SIZE and _read_counter(counter, _FINISHED_INDEX) < n:
                if wait_for_items(counter, n):
                    for _ in range(_N_DELAYING_READS):
                        _read_counter(counter, _FINISHED_INDEX)
            break
        stop = min(start + claim_size, n)
        # numba does not compile ``yield from``.
        for item in range(start, stop):  # noqa: UP028
            yield item
        _fetch_and_add(counter, _FINISHED_INDEX, stop - start)


def run_serially(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
    """Call ``function`` for each task, a tuple of arguments, in this thread; return all results."""
    return [function(*task) for task in tasks]


def yield_core() -> None:
    """Yield the processor core to another thread that waits for a core."""
    # Where ``sched_yield`` is missing, as on Windows, a sleep of no time yields the core.
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0.0)


class SharedLoop(list[tuple[Any, ...]]):
    """List of tasks that compute a shared loop over n items, for ``run(function, tasks)``.

    ``run`` is `run_serially`, or the method of an object with several threads. A task is the tuple
    of arguments of one call of the function. The list has the tasks of the calling thread, which
    are enough to finish the loop without helpers. ``run`` with several threads adds the task
    ``helpers_call`` for each helper.

    Parameters
    ----------
    n : int
        Number of items of the loop, or of the last of several loops.
    size : int
        Number of items that a thread claims at a time.
    *args
        Arguments of the function, except the last. The last argument is the counter of the loop,
        or an array of the counters of all loops, one after the other.
    n_loops : int, default=1
        Number of loops of the function.
    """

    def __init__(self, n: int, size: Whole, *args: Any, n_loops: int = 1) -> None:
        self._n = n
        # The counters of all loops, and the additional last entry, which only helpers get.
        counters = np.zeros(COUNTER_SIZE * n_loops + 1, np.int64)
        self._last_counter = counters[-COUNTER_SIZE - 1 :]
        # A call claims at most size * MAX_CLAIMS items. A function of several loops calls the
        # compiled functions as often as necessary.
        n_calls = -(-n // (size * MAX_CLAIMS)) if n_loops == 1 else 1
        super().__init__([(*args, counters[:-1])] * n_calls)
        self.helpers_call = (*args, counters)

    def is_finished(self) -> bool:
        """Return whether all items of the last loop are finished, see :func:`wait_for_items`."""
        return wait_for_items(self._last_counter, self._n)
