"""What the machine can do at most, measured in the same run: floating point and memory.

All of one thread, by its CPU seconds, so that other programs on the machine disturb little.
"""

import numba as nb
import numpy as np
from _common import least_cpu

jit = nb.njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")

POLYNOMIAL = 32  # fused multiply-adds an element
L1_ELEMENTS = 1024
TRIAD_BYTES = 256 * 2**20  # an array; far more than most last-level caches


@jit
def _polynomials(x, c, repeats):
    """x <- polynomial of x: 32 multiply-adds in registers for a load and a store."""
    for _ in range(repeats):
        for i in range(x.size):
            p = x[i]
            v = p
            for _ in range(POLYNOMIAL):
                p = p * v + c[0]
            x[i] = p


@jit
def _dots(a, b, out, repeats):
    """out[r] = a[r, :] . b: one load from the first-level cache for each multiply-add."""
    for _ in range(repeats):
        for r in range(a.shape[0]):
            total = out[r] - out[r]  # a zero of the precision asked for
            for i in range(a.shape[1]):
                total += a[r, i] * b[i]
            out[r] = total


@jit
def _triad(a, b, c, s):
    for i in range(a.size):
        a[i] = b[i] + s * c[i]


def peak_flops(dtype):
    """Flops a second of one thread: multiply-adds in registers."""
    x, c = np.full(L1_ELEMENTS, 0.5, dtype), np.array([0.25], dtype)
    repeats = 20_000
    _polynomials(x, c, 1)
    seconds = least_cpu(5, lambda: _polynomials(x, c, repeats))
    return 2.0 * POLYNOMIAL * L1_ELEMENTS * repeats / seconds


def dot_flops(dtype, length=512):
    """Flops a second of one thread: dot products in the first-level cache."""
    n_rows = 16384 // (length * np.dtype(dtype).itemsize)
    a, b, out = np.ones((n_rows, length), dtype), np.ones(length, dtype), np.zeros(n_rows, dtype)
    repeats = 50_000_000 // (n_rows * length)
    _dots(a, b, out, 1)
    seconds = least_cpu(5, lambda: _dots(a, b, out, repeats))
    return 2.0 * a.size * repeats / seconds


def triad_bytes(dtype):
    """Bytes a second of one thread, a = b + s c, counted as STREAM does (two reads, a write)."""
    n = TRIAD_BYTES // np.dtype(dtype).itemsize
    a, b, c = (np.ones(n, dtype) for _ in range(3))
    s = np.dtype(dtype).type(3.0)
    _triad(a, b, c, s)
    return 3.0 * TRIAD_BYTES / least_cpu(3, lambda: _triad(a, b, c, s))


def gemm_flops(dtype, m=512, k=326, n=25):
    """Flops a second of one thread: BLAS products of an (m, k) with a (k, n) matrix."""
    a, b, out = np.ones((m, k), dtype), np.ones((k, n), dtype), np.empty((m, n), dtype)
    repeats = max(1, int(1e9 / (2.0 * m * k * n)))

    def products():
        for _ in range(repeats):
            np.matmul(a, b, out=out)

    products()
    return 2.0 * m * k * n * repeats / least_cpu(5, products)
