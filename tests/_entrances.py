"""Calls from Python of compiled functions that only other compiled functions can call."""

import functools

import numba as nb


@functools.cache
def entrance(function):
    """A compiled function that calls ``function`` and that Python can call."""
    if nb.config.DISABLE_JIT:
        return function

    @nb.njit
    def call(*arguments):
        return function(*arguments)

    return call
