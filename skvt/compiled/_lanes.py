"""Draws from products of arrays, written as vectors.

Of a loop over few numbers the compiler makes single instructions before it looks for vectors. Here
it is given vectors of :data:`LANES` numbers, which it splits into those that a processor has.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from skvt.compiled._special import instruction
from skvt.typing import Array

LANES = 16


def aligned(n_rows: int, n_columns: int) -> Array:
    """An array of float32, not set, whose rows of LANES numbers each lie in one cache line."""
    memory = np.empty(n_rows * n_columns + LANES, np.float32)
    begin = -(memory.ctypes.data // memory.itemsize) % LANES
    return memory[begin : begin + n_rows * n_columns].reshape(n_rows, n_columns)


def _drawn(
    first: Array, i: int, second: Array, table: Array, j: int, following: int, sums: Array,
    number: Any,
) -> tuple[int, np.float32]:  # fmt: skip
    """:func:`draw_of_product` in Python."""
    products = (first[i] * second * table[j]).reshape(-1, LANES)
    within = np.cumsum(products, axis=0, dtype=np.float32)
    ends = np.cumsum(within[-1], dtype=np.float32)
    rest = number * ends[-1]
    lane = min(int((rest >= ends).sum()), LANES - 1)
    rest -= ends[lane - 1] if lane else np.float32(0.0)
    return int((rest >= within[:-1, lane]).sum()) * LANES + lane, ends[-1]


@instruction(_drawn)
def draw_of_product(
    typingctx: Any, first: Any, i: Any, second: Any, table: Any, j: Any, following: Any,
    sums: Any, number: Any,
) -> Any:  # fmt: skip
    """``(k, sum)`` with k drawn by ``p_k ~ first[i, k] second[k] table[j, k]``, and their sum.

    Arrays are float32 in C order, their rows as long as ``second`` and that of LANES numbers each.
    k is drawn by ``number`` from [0, 1): its lane first, which is k modulo LANES, then its place in
    the lane by the partial sums, kept in ``sums`` (as long as a row). Meanwhile row ``following``
    of the table is on its way from memory. Sums are in one order, whatever the processor.
    """
    single, whole, index = ir.FloatType(), ir.IntType(64), ir.IntType(32)
    vector, pattern = ir.VectorType(single, LANES), ir.VectorType(index, LANES)
    zeros, undefined = ir.Constant(vector, [0.0] * LANES), ir.Constant(vector, ir.Undefined)
    zero, step = ir.Constant(whole, 0), ir.Constant(whole, LANES)
    byte_pointer = ir.IntType(8).as_pointer()

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (first, i, second, table, j, following, sums, number) = signature.args, arguments

        def array(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value)

        width = builder.extract_value(array(kinds[2], second).shape, 0)

        def row(kind: Any, value: Any, number: Any) -> Any:
            return builder.gep(array(kind, value).data, [builder.mul(number, width)])

        def lanes(pointer: Any, k: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [k]), vector.as_pointer())

        def loaded(pointer: Any, k: Any) -> Any:
            return builder.load(lanes(pointer, k), align=4)

        def shifted(x: Any, by: int) -> Any:
            places = [LANES + lane - by if lane >= by else 0 for lane in range(LANES)]
            return builder.shuffle_vector(zeros, x, ir.Constant(pattern, places))

        a, c = row(kinds[0], first, i), row(kinds[3], table, j)
        ahead = row(kinds[3], table, following)
        b, partial = array(kinds[2], second).data, array(kinds[6], sums).data
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte_pointer],
            ir.FunctionType(ir.VoidType(), [byte_pointer, index, index, index]),
        )  # fmt: skip
        to_read, to_all_caches, of_data = (ir.Constant(index, value) for value in (0, 3, 1))

        # the sums of the lanes, all that lead to them kept
        before = builder.block
        loop = builder.append_basic_block("sums")
        after = builder.append_basic_block("lane")
        builder.branch(loop)
        builder.position_at_end(loop)
        k, ends = builder.phi(whole), builder.phi(vector)
        products = builder.fmul(builder.fmul(loaded(a, k), loaded(b, k)), loaded(c, k))
        added = builder.fadd(ends, products)
        builder.store(added, lanes(partial, k), align=4)
        place = builder.bitcast(builder.gep(ahead, [k]), byte_pointer)
        builder.call(prefetch, [place, to_read, to_all_caches, of_data])
        further = builder.add(k, step)
        for phi, start, value in (k, zero, further), (ends, zeros, added):
            phi.add_incoming(start, before)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", further, width), loop, after)

        # the lane: the first whose end, all before it included, is above the drawn number
        builder.position_at_end(after)
        ends = added
        for by in 1, 2, 4, 8:
            ends = builder.fadd(ends, shifted(ends, by))
        total = builder.extract_element(ends, ir.Constant(index, LANES - 1))
        drawn = builder.fmul(number, total)
        everywhere = builder.insert_element(undefined, drawn, ir.Constant(index, 0))
        everywhere = builder.shuffle_vector(
            everywhere, undefined, ir.Constant(pattern, [0] * LANES)
        )
        passed = builder.bitcast(builder.fcmp_ordered(">=", everywhere, ends), ir.IntType(LANES))
        lane, last = builder.zext(builder.ctpop(passed), whole), ir.Constant(whole, LANES - 1)
        lane = builder.select(builder.icmp_signed("<", lane, last), lane, last)
        rest = builder.fsub(drawn, builder.extract_element(shifted(ends, 1), lane))

        # the place in the lane, the last for what rounding leaves
        before = builder.block
        test = builder.append_basic_block("test")
        loop = builder.append_basic_block("place")
        after = builder.append_basic_block("drawn")
        stop = builder.sub(width, step)
        builder.branch(test)
        builder.position_at_end(test)
        k, found = builder.phi(whole), builder.phi(whole)
        builder.cbranch(builder.icmp_signed("<", k, stop), loop, after)
        builder.position_at_end(loop)
        end = builder.load(builder.gep(partial, [builder.add(k, lane)]))
        passed = builder.zext(builder.fcmp_ordered(">=", rest, end), whole)
        further = builder.add(k, step), builder.add(found, passed)
        for phi, value in zip((k, found), further, strict=True):
            phi.add_incoming(zero, before)
            phi.add_incoming(value, loop)
        builder.branch(test)
        builder.position_at_end(after)
        drawn_at = builder.add(builder.mul(found, step), lane)
        return context.make_tuple(builder, signature.return_type, [drawn_at, total])

    at = types.int64
    result = types.Tuple((at, types.float32))  # type: ignore[attr-defined]
    return result(first, at, second, table, at, at, sums, types.float32), codegen
