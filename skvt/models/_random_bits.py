"""SplitMix64, for compiled loops whose random numbers must not depend on threads.

A state advances by :data:`GOLDEN`; :func:`mix` of it are 64 random bits.
"""

import numpy as np

from skvt.expfam._special import jit, log

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@jit
def mix(state):
    """The finaliser of SplitMix64: every bit of the result depends on all of the state."""
    z = np.uint64(state)
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@jit
def uniform(bits):
    """A number in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def normal_pair(state):
    """(two normal variates by the polar method, new state)."""
    while True:
        state += GOLDEN
        x = 2.0 * uniform(mix(state)) - 1.0
        state += GOLDEN
        y = 2.0 * uniform(mix(state)) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            factor = np.sqrt(-2.0 * log(square) / square)
            return x * factor, y * factor, state
