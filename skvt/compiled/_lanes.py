"""Draws from products of arrays, written with vector instructions.

The compiler would turn loops over few numbers into scalar instructions, since it unrolls them
before it vectorises. The functions here emit instructions for vectors of :data:`LANES` numbers,
which the compiler splits into vectors of the size that a processor has.

In this module, a *line* is LANES consecutive numbers of an array, and a *lane* is a position within
lines: index k belongs to lane k modulo LANES.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from skvt.compiled._special import instruction
from skvt.typing import Array

# Number of numbers of a vector.
LANES = 16

# Types and constants of LLVM.
_single = ir.FloatType()
_index = ir.IntType(32)
_whole = ir.IntType(64)
_vector = ir.VectorType(_single, LANES)
_pattern = ir.VectorType(_index, LANES)
_byte_pointer = ir.IntType(8).as_pointer()
_zero, _step, _last = (ir.Constant(_whole, value) for value in (0, LANES, LANES - 1))
_zeros = ir.Constant(_vector, [0.0] * LANES)
_undefined = ir.Constant(_vector, ir.Undefined)
_first = ir.Constant(_index, 0)
# Any hides the module from mypy, which finds only some of its names.
_kinds: Any = types
_drawn_place = _kinds.Tuple((_kinds.int64, _kinds.float32))


def aligned(n_rows: int, n_columns: int) -> Array:
    """Return an empty float32 array (n_rows, n_columns) that begins at a cache line.

    Each line of LANES numbers thus lies in one cache line.
    """
    memory = np.empty(n_rows * n_columns + LANES, np.float32)
    begin = -(memory.ctypes.data // memory.itemsize) % LANES
    return memory[begin : begin + n_rows * n_columns].reshape(n_rows, n_columns)


def _drawn(
    first: Array, second: Array, third: Array, following: Array, sums: Array, number: Any
) -> tuple[int, np.float32]:
    """Do the same as :func:`draw_of_product` in Python."""
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
    """Draw k with probability proportional to ``first[k] * second[k] * third[k]``.

    Return k and the sum of the products. The arrays are float32 and have the same length, a
    multiple of LANES. The random ``number`` in [0, 1) determines first the lane of k, by the sums
    of the lanes, then the line of k, by the partial sums of the lane. Partial sums are written to
    ``sums``. Meanwhile the array ``following``, which the next draw needs, is fetched into the
    caches. The order of summation is the same on all processors.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _arrays(context, builder, signature, arguments[:-1])
        width = builder.extract_value(arrays[0].shape, 0)
        *factors, ahead, sums = (array.data for array in arrays)

        def product(k: Any) -> Any:
            a, b, c = (_line(builder, factor, k) for factor in factors)
            return builder.fmul(builder.fmul(a, b), c)

        ends = _partial_sums(builder, product, [ahead], sums, width)
        lane, rest, total, _ = _lane(builder, ends, arguments[-1])
        k = _place(builder, sums, lane, rest, width)
        return context.make_tuple(builder, signature.return_type, [k, total])

    return _drawn_place(first, second, third, following, sums, _kinds.float32), codegen


def _drawn_member(
    weights: Array, members: Array, values: Array, sums: Array, numbers: Any
) -> tuple[int, np.float32]:
    """Do the same as :func:`draw_of_members` in Python."""
    begin, width, left, weight, value, others, number = numbers
    lines = slice(begin, begin + width)
    is_left = members[lines] == left
    products = (weights[lines] - weight * is_left) * np.where(
        is_left, value, values[members[lines]]
    )
    within = np.cumsum(products.reshape(-1, LANES), axis=0, dtype=np.float32)
    total = np.cumsum(within[-1], dtype=np.float32)[-1]
    whole = total + others
    if number * whole >= total:
        return width, whole
    ones = np.ones_like(products)
    return _drawn(products, ones, ones, ones, sums, number * whole / total)[0], whole


@instruction(_drawn_member)
def draw_of_members(
    typingctx: Any, weights: Any, members: Any, values: Any, sums: Any, numbers: Any
) -> Any:
    """Draw m with probability proportional to ``weights[begin + m] * values[members[begin + m]]``.

    Return m and the sum of all products and ``others``. ``numbers`` is the tuple begin, width,
    left, weight, value, others and number. m is less than ``width``, a multiple of LANES; or m is
    ``width``, with probability proportional to ``others``. For the member ``left``, the weight is
    reduced by ``weight``, and ``value`` takes the place of the value. ``number`` and ``sums`` are
    as in :func:`draw_of_product`. Members are int32.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _arrays(context, builder, signature, arguments[:4])
        weights, members, values, sums = (array.data for array in arrays)
        begin, width, left, *changes, others, number = (
            builder.extract_value(arguments[4], i) for i in range(7)
        )
        weights, members = (builder.gep(pointer, [begin]) for pointer in (weights, members))
        weight, value = (_everywhere(builder, _vector, part) for part in changes)
        left = _everywhere(builder, _pattern, builder.trunc(left, _index))

        def product(k: Any) -> Any:
            places, gathered = _line(builder, members, k, _pattern), _undefined
            for lane in range(LANES):
                at = ir.Constant(_index, lane)
                source = builder.gep(values, [builder.extract_element(places, at)])
                gathered = builder.insert_element(gathered, builder.load(source), at)
            # Replace the value of the member ``left`` in the vector, so that the array of values
            # need not be changed before the draw.
            is_left = builder.icmp_signed("==", places, left)
            line = _line(builder, weights, k)
            line = builder.fsub(line, builder.select(is_left, weight, _zeros))
            return builder.fmul(line, builder.select(is_left, value, gathered))

        ends = _partial_sums(builder, product, [], sums, width)
        lane, rest, whole, is_other = _lane(builder, ends, number, others)
        m = builder.select(is_other, width, _place(builder, sums, lane, rest, width))
        return context.make_tuple(builder, signature.return_type, [m, whole])

    return _drawn_place(weights, members, values, sums, numbers), codegen


@instruction(lambda array, place: None)
def fetch(typingctx: Any, array: Any, place: Any) -> Any:
    """Fetch the cache line of ``array[place]`` into the caches.

    ``place`` may lie beyond the end of the array, since no value is read.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (pointer,) = (array.data for array in _arrays(context, builder, signature, arguments[:1]))
        _fetch(builder, builder.gep(pointer, [arguments[1]]))
        return context.get_dummy_value()

    return _kinds.void(array, _kinds.int64), codegen


def _fetch(builder: Any, pointer: Any) -> None:
    """Emit the instruction that fetches the cache line at a pointer into the caches."""
    prefetch = builder.module.declare_intrinsic(
        "llvm.prefetch",
        [_byte_pointer],
        ir.FunctionType(ir.VoidType(), [_byte_pointer, _index, _index, _index]),
    )
    to_read, to_all_caches, of_data = (ir.Constant(_index, value) for value in (0, 3, 1))
    place = builder.bitcast(pointer, _byte_pointer)
    builder.call(prefetch, [place, to_read, to_all_caches, of_data])


def _arrays(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Return the arrays that are passed as arguments, with their attributes ``data`` and so on."""
    return [
        context.make_array(kind)(context, builder, value)
        for kind, value in zip(signature.args, arguments, strict=False)
    ]


def _line(builder: Any, pointer: Any, k: Any, kind: Any = _vector) -> Any:
    """Load the line of LANES numbers that begins at index k."""
    return builder.load(builder.bitcast(builder.gep(pointer, [k]), kind.as_pointer()), align=4)


def _everywhere(builder: Any, kind: Any, number: Any) -> Any:
    """Return the vector that has ``number`` in all lanes."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _first)
    return builder.shuffle_vector(first, first, ir.Constant(_pattern, [0] * LANES))


def _partial_sums(builder: Any, product: Any, ahead: Any, sums: Any, width: Any) -> Any:
    """Write the partial sums of each lane to ``sums``; return the sums of the lanes.

    ``product(k)`` returns the vector of products of the line at k. The lines of the arrays
    ``ahead`` are fetched into the caches meanwhile.
    """
    before, loop = builder.block, builder.append_basic_block("sums")
    after = builder.append_basic_block("lane")
    builder.branch(loop)
    builder.position_at_end(loop)
    k, up_to_here = builder.phi(_whole), builder.phi(_vector)
    added = builder.fadd(up_to_here, product(k))
    builder.store(added, builder.bitcast(builder.gep(sums, [k]), _vector.as_pointer()), align=4)
    for pointer in ahead:
        _fetch(builder, builder.gep(pointer, [k]))
    further = builder.add(k, _step)
    for phi, start, value in (k, _zero, further), (up_to_here, _zeros, added):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", further, width), loop, after)
    builder.position_at_end(after)
    return added


def _lane(builder: Any, ends: Any, number: Any, others: Any = None) -> tuple[Any, Any, Any, Any]:
    """Draw a lane by ``number`` in [0, 1), given the sums of the lanes.

    Return the lane, the drawn number less the sums of the lanes before, the sum of all lanes and
    ``others``, and whether ``others`` is drawn instead of a lane.
    """

    def shifted(x: Any, by: int) -> Any:
        """Return x moved ``by`` lanes up, with 0 in the lowest lanes."""
        places = [LANES + lane - by if lane >= by else 0 for lane in range(LANES)]
        return builder.shuffle_vector(_zeros, x, ir.Constant(_pattern, places))

    # Compute the cumulative sums of the lanes.
    for by in 1, 2, 4, 8:
        ends = builder.fadd(ends, shifted(ends, by))
    total = builder.extract_element(ends, ir.Constant(_index, LANES - 1))
    if others is not None:
        total = builder.fadd(total, others)
    drawn = builder.fmul(number, total)
    passed = builder.fcmp_ordered(">=", _everywhere(builder, _vector, drawn), ends)
    passed = builder.bitcast(passed, ir.IntType(LANES))
    lane = builder.zext(builder.ctpop(passed), _whole)
    # Take the last lane if the drawn number is not below the sum of all lanes, which can be due to
    # rounding, or to ``others``.
    is_below_last = builder.icmp_signed("<", lane, _last)
    lane, none = builder.select(is_below_last, lane, _last), builder.icmp_signed(">", lane, _last)
    rest = builder.fsub(drawn, builder.extract_element(shifted(ends, 1), lane))
    return lane, rest, total, none


def _place(builder: Any, sums: Any, lane: Any, rest: Any, width: Any) -> Any:
    """Return the drawn index in a lane, given the remainder ``rest`` of the drawn number.

    The number of partial sums of the lane that do not exceed the remainder is the drawn line. The
    last partial sum is not compared, so that rounding cannot lead beyond the last line.
    """
    sums = builder.gep(sums, [lane])
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
    return builder.add(builder.mul(place, _step), lane)
