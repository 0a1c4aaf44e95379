"""Limit the matrix library (BLAS) to a single thread in a ``with`` block.

The number of threads of the matrix library must be restored even if Ctrl-C interrupts the calling
thread, which can happen between any two bytecodes. The ``with`` block therefore restores the number
twice, in case the first attempt is interrupted. The number is restored a third time when the object
:class:`one_blas_thread` is freed.
"""

import os
import weakref
from functools import cache
from threading import RLock
from typing import Any, Self

from threadpoolctl import ThreadpoolController


@cache
def _find_matrix_libraries() -> list[Any]:
    """Return the matrix libraries of this process.

    The result is cached, because a search for libraries takes milliseconds.
    """
    return ThreadpoolController().select(user_api="blas").lib_controllers


class _ThreadLimit:
    """A limit of the matrix libraries of the process to a single thread each.

    An object that needs the limit, an *owner*, makes a claim. When the last claim ends, the numbers
    of threads are restored. The limits of threadpoolctl are not enough: each of them restores the
    number that it replaced, so that two limits that overlap can leave a single thread.
    """

    def __init__(self) -> None:
        # The lock must be reentrant: while a thread holds the lock, it may free an owner. The weak
        # reference to the owner then calls `give_back` in the same thread.
        self._lock = RLock()
        # Weak references to the owners of claims.
        self._claims: set[weakref.ref[object]] = set()
        # Each library with its number of threads before the limit; None without a limit.
        self._threads_before: list[tuple[Any, int]] | None = None

    def renew_lock(self) -> None:
        """Replace the lock in a forked process, which may lack the thread that holds the lock."""
        self._lock = RLock()

    def claim(self, owner: object) -> None:
        """Limit the libraries until ``owner`` gives back its claim or is freed."""
        with self._lock:
            self._claims.add(weakref.ref(owner, self.give_back))
            if self._threads_before is None:
                libraries = _find_matrix_libraries()
                self._threads_before = [(lib, lib.get_num_threads()) for lib in libraries]
            for library, _ in self._threads_before:
                library.set_num_threads(1)

    def give_back(self, claim: "weakref.ref[object]") -> None:
        """End a claim, the weak reference to an owner; do nothing if it has ended already."""
        with self._lock:
            self._claims.discard(claim)
            if not self._claims and self._threads_before is not None:
                for library, n_threads in self._threads_before:
                    library.set_num_threads(n_threads)
                self._threads_before = None


_limit = _ThreadLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.renew_lock)


class one_blas_thread:
    """A ``with`` block in which matrix products run on a single thread.

    The last digits of results then do not depend on the number of threads.
    """

    def __enter__(self) -> Self:
        _limit.claim(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        # A new weak reference is equal to the claim, because both refer to the same object.
        try:
            _limit.give_back(weakref.ref(self))
        finally:
            # An interrupt may have cut the first call short. A second call is harmless.
            _limit.give_back(weakref.ref(self))
