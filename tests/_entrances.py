"""Python's way into parts of compiled functions, which have no entrance of their own."""

import functools

import numba as nb


@functools.cache
def entrance(part):
    """A compiled function that Python can call, which does what the part does."""
    if nb.config.DISABLE_JIT:
        return part

    @nb.njit
    def call(*arguments):
        return part(*arguments)

    return call
