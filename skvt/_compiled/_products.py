"""Products of a matrix and a vector, for compiled loops.

The vectors are too short for BLAS, whose calls would take longer than the products. The number K of
rows of the matrix must be a multiple of 4, since the loops take four rows at a time: the compiler
can then keep several sums in registers.
"""

from skvt._compiled._special import jit_inlined, lit
from skvt.typing import Array


@jit_inlined
def write_weighted_sum(table: Array, weights: Array, out: Array) -> None:
    """Write ``sum_k weights_k table_kj`` to ``out[j]``; ``table`` is (K, J), ``out`` is (J,)."""
    for k in range(0, weights.size, 4):
        w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        t0, t1, t2, t3 = table[k], table[k + 1], table[k + 2], table[k + 3]
        if k == 0:
            for j in range(out.size):
                out[j] = (w0 * t0[j] + w1 * t1[j]) + (w2 * t2[j] + w3 * t3[j])
        else:
            for j in range(out.size):
                out[j] += (w0 * t0[j] + w1 * t1[j]) + (w2 * t2[j] + w3 * t3[j])


@jit_inlined
def write_dot_products(table: Array, vector: Array, out: Array) -> None:
    """Write ``sum_j table_kj vector_j`` to ``out[k]``; ``table`` is (K, J), ``out`` is (K,)."""
    for k in range(0, out.size, 4):
        t0, t1, t2, t3 = table[k], table[k + 1], table[k + 2], table[k + 3]
        s0 = s1 = s2 = s3 = lit(vector[0], 0.0)
        for j in range(vector.size):
            v = vector[j]
            s0 += v * t0[j]
            s1 += v * t1[j]
            s2 += v * t2[j]
            s3 += v * t3[j]
        out[k], out[k + 1], out[k + 2], out[k + 3] = s0, s1, s2, s3
