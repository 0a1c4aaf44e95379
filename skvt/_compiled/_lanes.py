"""Draws of an index with probabilities proportional to products of arrays, as vector instructions.

Samplers of topics draw millions of times among few numbers. The compiler would turn loops over few
numbers into scalar instructions, since it unrolls these loops before it vectorises. The functions
of this module therefore emit instructions of LLVM for vectors of :data:`LANES` numbers, which the
compiler splits into vectors of the size that a processor has.

In this module, a *vector* is LANES consecutive numbers of an array, and a *lane* is a position
within vectors: index k belongs to lane k modulo LANES. Functions that emit instructions get the
``builder`` of llvmlite, and their other arguments are values of LLVM, which stand for the numbers
that the instructions will compute. Each function that draws or fetches has a twin in Python, which
is used if numba does not compile.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import DTypeLike

from skvt._compiled._special import instruction
from skvt.typing import Array

# Number of numbers in a vector.
LANES = 16

# Types of LLVM, and constants in these types.
_float32 = ir.FloatType()
_int32 = ir.IntType(32)
_int64 = ir.IntType(64)
_float32_vector = ir.VectorType(_float32, LANES)
_int32_vector = ir.VectorType(_int32, LANES)
_byte_pointer = ir.IntType(8).as_pointer()
_zero, _lanes_constant, _last_lane = (ir.Constant(_int64, value) for value in (0, LANES, LANES - 1))
_zero_vector = ir.Constant(_float32_vector, [0.0] * LANES)
_undefined_vector = ir.Constant(_float32_vector, ir.Undefined)
_first_position = ir.Constant(_int32, 0)
# The type Any is for mypy, which knows only some names of the module ``types``.
_numba_types: Any = types
_draw_result = _numba_types.Tuple((_numba_types.int64, _numba_types.float32))


def allocate_aligned(n_rows: int, n_columns: int, dtype: DTypeLike = np.float32) -> Array:
    """Return an empty array (n_rows, n_columns) that begins at a cache line.

    If the numbers are float32 and ``n_columns`` is a multiple of LANES, each vector thus lies in
    one cache line of 64 bytes. Vectors that cross cache lines load at half speed.
    """
    memory = np.empty(n_rows * n_columns + LANES, dtype)
    # The number of items up to the next address that is a multiple of LANES items.
    begin = -(memory.ctypes.data // memory.itemsize) % LANES
    return memory[begin : begin + n_rows * n_columns].reshape(n_rows, n_columns)


def _draw_from_products_in_python(
    first: Array, second: Array, third: Array, following: Array, sums: Array, number: Any
) -> tuple[int, np.float32]:
    """Do the same as :func:`draw_from_products` in Python, up to rounding."""
    products = (first * second * third).reshape(-1, LANES)
    partial_sums = np.cumsum(products, axis=0, dtype=np.float32)
    cumulative = np.cumsum(partial_sums[-1], dtype=np.float32)
    remainder = number * cumulative[-1]
    lane = min(int((remainder >= cumulative).sum()), LANES - 1)
    remainder -= cumulative[lane - 1] if lane else np.float32(0.0)
    vector = int((remainder >= partial_sums[:-1, lane]).sum())
    return vector * LANES + lane, cumulative[-1]


@instruction(_draw_from_products_in_python)
def draw_from_products(
    typingctx: Any, first: Any, second: Any, third: Any, following: Any, sums: Any, number: Any
) -> Any:
    """Draw k with probability proportional to ``first[k] * second[k] * third[k]``.

    Return k and the sum of the products. The arrays are float32 and have the same length, a
    multiple of LANES. The random ``number`` in [0, 1) determines first the lane of k, by the sums
    of the lanes, and then the vector of k, by the partial sums of this lane. ``sums`` is scratch
    for the partial sums. The array ``following``, which the next draw needs, is meanwhile fetched
    into the caches. The order of summation is the same on all processors.
    """

    # The parameters of this function are types. The function that numba calls to emit instructions
    # gets the values.
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _unpack_arrays(context, builder, signature, arguments[:-1])
        width = builder.extract_value(arrays[0].shape, 0)
        *factors, following, sums = (array.data for array in arrays)

        def product(k: Any) -> Any:
            a, b, c = (_load_vector(builder, factor, k) for factor in factors)
            return builder.fmul(builder.fmul(a, b), c)

        lane_sums = _emit_partial_sums(builder, product, [following], sums, width)
        lane, remainder, total, _ = _emit_lane_draw(builder, lane_sums, arguments[-1])
        k = _emit_vector_draw(builder, sums, lane, remainder, width)
        return context.make_tuple(builder, signature.return_type, [k, total])

    return _draw_result(first, second, third, following, sums, _numba_types.float32), codegen


def _draw_from_members_in_python(
    weights: Array, members: Array, values: Array, sums: Array, numbers: Any
) -> tuple[int, np.float32]:
    """Do the same as :func:`draw_from_members` in Python, up to rounding."""
    begin, width, special, special_weight, special_value, others, number = numbers
    used = slice(begin, begin + width)
    is_special = members[used] == special
    products = (weights[used] - special_weight * is_special) * np.where(
        is_special, special_value, values[members[used]]
    )
    partial_sums = np.cumsum(products.reshape(-1, LANES), axis=0, dtype=np.float32)
    sum_of_products = np.cumsum(partial_sums[-1], dtype=np.float32)[-1]
    total = sum_of_products + others
    if number * total >= sum_of_products:
        return width, total
    ones = np.ones_like(products)
    number_within = number * total / sum_of_products
    return _draw_from_products_in_python(products, ones, ones, ones, sums, number_within)[0], total


@instruction(_draw_from_members_in_python)
def draw_from_members(
    typingctx: Any, weights: Any, members: Any, values: Any, sums: Any, numbers: Any
) -> Any:
    """Draw m with probability proportional to ``weights[begin + m] * values[members[begin + m]]``.

    Return m in 0, ..., ``width``, and the sum of ``others`` and all products. ``width`` is a
    multiple of LANES. The result m = ``width`` stands for ``others``, and has a probability
    proportional to it.

    For example, ``weights`` and the int32 array ``members`` have an entry for each topic of a
    document, and ``values`` has an entry for each topic. ``numbers`` is the tuple (begin, width,
    special, special_weight, special_value, others, number). The weight of the member ``special``,
    such as the old topic of a token, is reduced by ``special_weight``, and its value is
    ``special_value``. ``number`` and ``sums`` are as in :func:`draw_from_products`.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _unpack_arrays(context, builder, signature, arguments[:4])
        weights, members, values, sums = (array.data for array in arrays)
        begin, width, special, special_weight, special_value, others, number = (
            builder.extract_value(arguments[4], i) for i in range(7)
        )
        weights, members = (builder.gep(pointer, [begin]) for pointer in (weights, members))
        special_weights = _broadcast(builder, _float32_vector, special_weight)
        special_values = _broadcast(builder, _float32_vector, special_value)
        specials = _broadcast(builder, _int32_vector, builder.trunc(special, _int32))

        def product(k: Any) -> Any:
            member_vector = _load_vector(builder, members, k, _int32_vector)
            value_vector = _undefined_vector
            for lane in range(LANES):
                position = ir.Constant(_int32, lane)
                member = builder.extract_element(member_vector, position)
                value = builder.load(builder.gep(values, [member]))
                value_vector = builder.insert_element(value_vector, value, position)
            # Replace the value of the special member in the vector, so that the array of values
            # need not be changed before the draw.
            is_special = builder.icmp_signed("==", member_vector, specials)
            weight_vector = _load_vector(builder, weights, k)
            reduction = builder.select(is_special, special_weights, _zero_vector)
            weight_vector = builder.fsub(weight_vector, reduction)
            value_vector = builder.select(is_special, special_values, value_vector)
            return builder.fmul(weight_vector, value_vector)

        lane_sums = _emit_partial_sums(builder, product, [], sums, width)
        lane, remainder, total, is_other = _emit_lane_draw(builder, lane_sums, number, others)
        k = _emit_vector_draw(builder, sums, lane, remainder, width)
        m = builder.select(is_other, width, k)
        return context.make_tuple(builder, signature.return_type, [m, total])

    return _draw_result(weights, members, values, sums, numbers), codegen


@instruction(lambda array, index: None)
def fetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of ``array[index]`` into the caches.

    ``index`` may lie beyond the end of the array, since no value is read.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (structure,) = _unpack_arrays(context, builder, signature, arguments[:1])
        _emit_fetch(builder, builder.gep(structure.data, [arguments[1]]))
        return context.get_dummy_value()

    return _numba_types.void(array, _numba_types.int64), codegen


def _emit_fetch(builder: Any, pointer: Any) -> None:
    """Emit the instruction that fetches the cache line at a pointer into the caches."""
    prefetch = builder.module.declare_intrinsic(
        "llvm.prefetch",
        [_byte_pointer],
        ir.FunctionType(ir.VoidType(), [_byte_pointer, _int32, _int32, _int32]),
    )
    to_read, to_all_caches, of_data = (ir.Constant(_int32, value) for value in (0, 3, 1))
    address = builder.bitcast(pointer, _byte_pointer)
    builder.call(prefetch, [address, to_read, to_all_caches, of_data])


def _unpack_arrays(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Return the ``arguments``, which are arrays, as structures with ``data`` and ``shape``.

    The types of the arguments are the first types of ``signature``.
    """
    return [
        context.make_array(kind)(context, builder, value)
        for kind, value in zip(signature.args, arguments, strict=False)
    ]


def _load_vector(builder: Any, pointer: Any, k: Any, kind: Any = _float32_vector) -> Any:
    """Load the LANES numbers that begin at index k.

    The alignment is that of one number, because arrays and vectors may begin anywhere.
    """
    return builder.load(builder.bitcast(builder.gep(pointer, [k]), kind.as_pointer()), align=4)


def _broadcast(builder: Any, kind: Any, number: Any) -> Any:
    """Return the vector that has ``number`` in all lanes."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _first_position)
    return builder.shuffle_vector(first, first, ir.Constant(_int32_vector, [0] * LANES))


def _emit_partial_sums(
    builder: Any, product: Any, to_fetch: list[Any], sums: Any, width: Any
) -> Any:
    """Write the partial sums of each lane to ``sums``; return the vector of the sums of the lanes.

    ``product(k)`` returns the products of the vector that begins at k, below ``width``. The arrays
    at the pointers ``to_fetch`` are meanwhile fetched into the caches.
    """
    before, loop = builder.block, builder.append_basic_block("sums")
    after = builder.append_basic_block("after_sums")
    builder.branch(loop)
    builder.position_at_end(loop)
    # In each round of the loop, k is the beginning of a vector, and last_sums are the sums before
    # it.
    k, last_sums = builder.phi(_int64), builder.phi(_float32_vector)
    new_sums = builder.fadd(last_sums, product(k))
    target = builder.bitcast(builder.gep(sums, [k]), _float32_vector.as_pointer())
    builder.store(new_sums, target, align=4)
    for pointer in to_fetch:
        _emit_fetch(builder, builder.gep(pointer, [k]))
    next_k = builder.add(k, _lanes_constant)
    for phi, start, value in (k, _zero, next_k), (last_sums, _zero_vector, new_sums):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", next_k, width), loop, after)
    builder.position_at_end(after)
    return new_sums


def _emit_lane_draw(
    builder: Any, lane_sums: Any, number: Any, others: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Draw a lane by ``number`` in [0, 1), given the vector of the sums of the lanes.

    ``number`` times the total is the target. Return the lane, the target less the sums of the lanes
    before it, the total of all lanes and ``others``, and whether ``others`` is drawn instead of a
    lane.
    """

    def shift(x: Any, by: int) -> Any:
        """Return x moved ``by`` lanes up, with 0 in the lowest lanes."""
        # Sources from LANES on are lanes of x. Source 0 is a lane of the vector of zeros.
        sources = [LANES + lane - by if lane >= by else 0 for lane in range(LANES)]
        return builder.shuffle_vector(_zero_vector, x, ir.Constant(_int32_vector, sources))

    # Compute the cumulative sums of the lanes.
    cumulative = lane_sums
    for by in 1, 2, 4, 8:
        cumulative = builder.fadd(cumulative, shift(cumulative, by))
    total = builder.extract_element(cumulative, ir.Constant(_int32, LANES - 1))
    if others is not None:
        total = builder.fadd(total, others)
    target = builder.fmul(number, total)
    # The number of cumulative sums that do not exceed the target is the drawn lane.
    is_passed = builder.fcmp_ordered(">=", _broadcast(builder, _float32_vector, target), cumulative)
    is_passed = builder.bitcast(is_passed, ir.IntType(LANES))
    lane = builder.zext(builder.ctpop(is_passed), _int64)
    # Take the last lane if the target is not below the sum of all lanes, which can be due to
    # rounding, or to ``others``.
    is_below_last = builder.icmp_signed("<", lane, _last_lane)
    is_other = builder.icmp_signed(">", lane, _last_lane)
    lane = builder.select(is_below_last, lane, _last_lane)
    remainder = builder.fsub(target, builder.extract_element(shift(cumulative, 1), lane))
    return lane, remainder, total, is_other


def _emit_vector_draw(builder: Any, sums: Any, lane: Any, remainder: Any, width: Any) -> Any:
    """Draw a vector, given its lane and the ``remainder`` of the target; return the drawn index.

    The number of partial sums of the lane that do not exceed the remainder is the drawn vector. The
    last partial sum is not compared, so that rounding cannot lead beyond the last vector.
    """
    sums = builder.gep(sums, [lane])
    before, test = builder.block, builder.append_basic_block("test")
    loop, after = builder.append_basic_block("count"), builder.append_basic_block("after_count")
    stop = builder.sub(width, _lanes_constant)
    builder.branch(test)
    builder.position_at_end(test)
    # In each round of the loop, k is the beginning of a vector, and n_passed counts the sums before
    # it that do not exceed the remainder.
    k, n_passed = builder.phi(_int64), builder.phi(_int64)
    builder.cbranch(builder.icmp_signed("<", k, stop), loop, after)
    builder.position_at_end(loop)
    is_passed = builder.fcmp_ordered(">=", remainder, builder.load(builder.gep(sums, [k])))
    next_k = builder.add(k, _lanes_constant)
    next_n_passed = builder.add(n_passed, builder.zext(is_passed, _int64))
    for phi, value in (k, next_k), (n_passed, next_n_passed):
        phi.add_incoming(_zero, before)
        phi.add_incoming(value, loop)
    builder.branch(test)
    builder.position_at_end(after)
    return builder.add(builder.mul(n_passed, _lanes_constant), lane)
