"""Python's way into parts of compiled functions, which have no entrance of their own."""

import functools

import numba as nb


@functools.cache
def entrance(function):
    """A compiled function that Python can call, which does what the function does."""
    if nb.config.DISABLE_JIT:
        return function

    @nb.njit
    def call(*arguments):
        return function(*arguments)

    return call
