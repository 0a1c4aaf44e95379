"""SplitMix64, for compiled loops whose random numbers must not depend on threads.

A state advances by :data:`GOLDEN`; :func:`mix` of it are 64 random bits.
"""

import math

import numpy as np

from skvt.expfam._special import jit, lit, log

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_S40, _S16, _LOW_24 = np.uint64(40), np.uint64(16), np.uint64(0xFFFFFF)


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
def unit(bits):
    """A float32 in [0, 1) from the upper 24 bits."""
    return np.float32(np.int32(bits >> _S40)) * np.float32(1.0 / 16777216.0)


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


@jit
def unit_pair(bits):
    """Two float32 in (0, 1], from 24 bits each."""
    one, step = np.float32(1.0), np.float32(1.0 / 16777216.0)
    first = (np.float32(np.int32(bits >> _S40)) + one) * step
    return first, (np.float32(np.int32((bits >> _S16) & _LOW_24)) + one) * step


@jit
def fill_normals(state, out):
    """float32 normal variates by the method of Box and Muller; an entry over stays as it is."""
    half = out.size // 2
    for j in range(half):
        bits = mix(state + GOLDEN * np.uint64(j + 1))
        u, x = unit_pair(bits)
        x -= lit(u, 0.5)
        radius = np.sqrt(lit(u, -2.0) * log(u))
        z = x * x * lit(u, 4.0 * math.pi**2)
        # cosine and sine of 2 pi x by their series, |2 pi x| <= pi
        c = lit(u, -1.0 / 6402373705728000)
        c = c * z + lit(u, 1.0 / 20922789888000)
        c = c * z + lit(u, -1.0 / 87178291200)
        c = c * z + lit(u, 1.0 / 479001600)
        c = c * z + lit(u, -1.0 / 3628800)
        c = c * z + lit(u, 1.0 / 40320)
        c = c * z + lit(u, -1.0 / 720)
        c = c * z + lit(u, 1.0 / 24)
        c = c * z + lit(u, -1.0 / 2)
        c = c * z + lit(u, 1.0)
        s = lit(u, 1.0 / 355687428096000)
        s = s * z + lit(u, -1.0 / 1307674368000)
        s = s * z + lit(u, 1.0 / 6227020800)
        s = s * z + lit(u, -1.0 / 39916800)
        s = s * z + lit(u, 1.0 / 362880)
        s = s * z + lit(u, -1.0 / 5040)
        s = s * z + lit(u, 1.0 / 120)
        s = s * z + lit(u, -1.0 / 6)
        s = s * z + lit(u, 1.0)
        out[j] = radius * c
        out[half + j] = radius * s * x * lit(u, 2.0 * math.pi)


@jit
def settled_gamma(a, normal, test, state):
    """A gamma variate of shape a + 1, from this proposal or the next that is accepted.

    The proposal is a normal variate and a uniform one (Marsaglia and Tsang 2000).
    """
    d = a + 2.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        v = 1.0 + c * normal
        # in the negative, so that a NaN ends the loop
        if not v <= 0.0:
            v = v * v * v
            if not log(test) >= 0.5 * np.float64(normal) * normal + d - d * v + d * log(v):
                return d * v
        normal, _, state = normal_pair(state)
        state += GOLDEN
        test = 1.0 - uniform(mix(state))
