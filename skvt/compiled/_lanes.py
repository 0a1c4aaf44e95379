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

_single = ir.FloatType()
_index = ir.IntType(32)
_whole = ir.IntType(64)
_vector = ir.VectorType(_single, LANES)
_pattern = ir.VectorType(_index, LANES)
_byte_pointer = ir.IntType(8).as_pointer()
_zero, _step, _last = (ir.Constant(_whole, value) for value in (0, LANES, LANES - 1))
_zeros = ir.Constant(_vector, [0.0] * LANES)
_undefined = ir.Constant(_vector, ir.Undefined)


def aligned(n_rows: int, n_columns: int) -> Array:
    """An array of float32, not set, whose rows of LANES numbers each lie in one cache line."""
    memory = np.empty(n_rows * n_columns + LANES, np.float32)
    begin = -(memory.ctypes.data // memory.itemsize) % LANES
    return memory[begin : begin + n_rows * n_columns].reshape(n_rows, n_columns)


def _drawn(
    first: Array, second: Array, third: Array, following: Array, sums: Array, number: Any
) -> tuple[int, np.float32]:
    """:func:`draw_of_product` in Python."""
    within = np.cumsum((first * second * third).reshape(-1, LANES), axis=0, dtype=np.float32)
    ends = np.cumsum(within[-1], dtype=np.float32)
    rest = number * ends[-1]
    lane = min(int((rest >= ends).sum()), LANES - 1)
    rest -= ends[lane - 1] if lane else np.float32(0.0)
    return int((rest >= within[:-1, lane]).sum()) * LANES + lane, ends[-1]


@instruction(_drawn)
def draw_of_product(
    typingctx: Any, first: Any, second: Any, third: Any, following: Any, sums: Any, number: Any
) -> Any:
    """``(k, sum)`` with k drawn by ``p_k ~ first[k] second[k] third[k]``, and their sum.

    Arrays are of float32, all of the same length, a multiple of LANES. k is drawn by ``number``
    from [0, 1): its lane first, which is k modulo LANES, then its place in the lane by the partial
    sums, kept in ``sums``. Meanwhile ``following`` is on its way from memory. Sums are in one
    order, whatever the processor.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:-1], arguments, strict=False)
        ]
        width = builder.extract_value(arrays[0].shape, 0)
        *factors, ahead, sums = (array.data for array in arrays)
        ends = _partial_sums(builder, factors, ahead, sums, width)
        lane, rest, total = _lane(builder, ends, arguments[-1])
        place = _place_in_lane(builder, builder.gep(sums, [lane]), rest, width)
        k = builder.add(builder.mul(place, _step), lane)
        return context.make_tuple(builder, signature.return_type, [k, total])

    kinds: Any = types  # (whose names mypy finds only in part)
    result = kinds.Tuple((kinds.int64, kinds.float32))
    return result(first, second, third, following, sums, kinds.float32), codegen


def _partial_sums(builder: Any, factors: Any, ahead: Any, sums: Any, width: Any) -> Any:
    """Write the sums of the products up to each line, lane by lane; returns the last."""

    def lanes(pointer: Any, k: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [k]), _vector.as_pointer())

    prefetch = builder.module.declare_intrinsic(
        "llvm.prefetch",
        [_byte_pointer],
        ir.FunctionType(ir.VoidType(), [_byte_pointer, _index, _index, _index]),
    )
    to_read, to_all_caches, of_data = (ir.Constant(_index, value) for value in (0, 3, 1))
    before, loop = builder.block, builder.append_basic_block("sums")
    after = builder.append_basic_block("lane")
    builder.branch(loop)
    builder.position_at_end(loop)
    k, up_to_here = builder.phi(_whole), builder.phi(_vector)
    a, b, c = (builder.load(lanes(factor, k), align=4) for factor in factors)
    added = builder.fadd(up_to_here, builder.fmul(builder.fmul(a, b), c))
    builder.store(added, lanes(sums, k), align=4)
    place = builder.bitcast(builder.gep(ahead, [k]), _byte_pointer)
    builder.call(prefetch, [place, to_read, to_all_caches, of_data])
    further = builder.add(k, _step)
    for phi, start, value in (k, _zero, further), (up_to_here, _zeros, added):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", further, width), loop, after)
    builder.position_at_end(after)
    return added


def _lane(builder: Any, ends: Any, number: Any) -> tuple[Any, Any, Any]:
    """The first lane whose end is above the drawn number, what is left of this, and the sum."""

    def shifted(x: Any, by: int) -> Any:
        places = [LANES + lane - by if lane >= by else 0 for lane in range(LANES)]
        return builder.shuffle_vector(_zeros, x, ir.Constant(_pattern, places))

    for by in 1, 2, 4, 8:
        ends = builder.fadd(ends, shifted(ends, by))
    total = builder.extract_element(ends, ir.Constant(_index, LANES - 1))
    drawn = builder.fmul(number, total)
    everywhere = builder.insert_element(_undefined, drawn, ir.Constant(_index, 0))
    everywhere = builder.shuffle_vector(everywhere, _undefined, ir.Constant(_pattern, [0] * LANES))
    passed = builder.bitcast(builder.fcmp_ordered(">=", everywhere, ends), ir.IntType(LANES))
    lane = builder.zext(builder.ctpop(passed), _whole)
    # (rounding may leave a number that no lane holds)
    lane = builder.select(builder.icmp_signed("<", lane, _last), lane, _last)
    rest = builder.fsub(drawn, builder.extract_element(shifted(ends, 1), lane))
    return lane, rest, total


def _place_in_lane(builder: Any, sums: Any, rest: Any, width: Any) -> Any:
    """How many sums of the lane, all but the last, are not above the rest."""
    before, test = builder.block, builder.append_basic_block("test")
    loop, after = builder.append_basic_block("place"), builder.append_basic_block("drawn")
    stop = builder.sub(width, _step)
    builder.branch(test)
    builder.position_at_end(test)
    k, place = builder.phi(_whole), builder.phi(_whole)
    builder.cbranch(builder.icmp_signed("<", k, stop), loop, after)
    builder.position_at_end(loop)
    passed = builder.fcmp_ordered(">=", rest, builder.load(builder.gep(sums, [k])))
    further = builder.add(k, _step), builder.add(place, builder.zext(passed, _whole))
    for phi, value in zip((k, place), further, strict=True):
        phi.add_incoming(_zero, before)
        phi.add_incoming(value, loop)
    builder.branch(test)
    builder.position_at_end(after)
    return place
