"""Draws of an index with probabilities proportional to products of arrays, as vector instructions.

Samplers of topics draw millions of times among few numbers. The compiler would turn loops over few
numbers into scalar instructions, since it unrolls these loops before it vectorises. The functions
of this module therefore emit instructions of LLVM for vectors of :data:`LANES` numbers, which the
compiler splits into vectors of the size that a processor has.

In this module, a *vector* is LANES consecutive numbers of an array, and a *lane* is a position
within vectors: index k belongs to lane k modulo LANES. A draw chooses first a lane, by the sum of
the numbers of each lane, and then a vector, by the partial sums of the numbers of this lane.

Functions whose names begin with ``_emit`` append instructions to the function that is compiled.
They get the ``builder`` of llvmlite, and their other arguments are *values* of LLVM, which stand
for the numbers that the instructions will compute. Each function that draws or fetches has a twin
in Python, which is used if numba does not compile.
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

# Types of LLVM, and constants in these types. Indices of arrays are int64, and positions of lanes
# in a vector are int32. ``_undefined_vector`` has no values yet.
_float32 = ir.FloatType()
_int32 = ir.IntType(32)
_int64 = ir.IntType(64)
_float32_vector = ir.VectorType(_float32, LANES)
_int32_vector = ir.VectorType(_int32, LANES)
_byte_pointer = ir.IntType(8).as_pointer()
_zero, _n_lanes, _last_lane = (ir.Constant(_int64, value) for value in (0, LANES, LANES - 1))
_zero_vector = ir.Constant(_float32_vector, [0.0] * LANES)
_undefined_vector = ir.Constant(_float32_vector, ir.Undefined)
_position_0 = ir.Constant(_int32, 0)
# The type Any is for mypy, which knows only some names of the module ``types``.
_numba_types: Any = types
_draw_result = _numba_types.Tuple((_numba_types.int64, _numba_types.float32))


def allocate_aligned(n_rows: int, n_columns: int, dtype: DTypeLike = np.float32) -> Array:
    """Return an empty array (n_rows, n_columns) that begins at a cache line.

    If the numbers are float32 and ``n_columns`` is a multiple of LANES, each vector thus lies in
    one cache line of 64 bytes. Vectors that cross cache lines load at half speed.
    """
    memory = np.empty(n_rows * n_columns + LANES, dtype)
    # Skip the items before the first address that is a multiple of the size of LANES items: -a % b
    # is the distance from a up to a multiple of b. NumPy aligns arrays to the size of an item, so
    # that the division has no remainder.
    begin = -(memory.ctypes.data // memory.itemsize) % LANES
    return memory[begin : begin + n_rows * n_columns].reshape(n_rows, n_columns)


def _draw_from_products_in_python(
    first: Array, second: Array, third: Array, upcoming: Array, sums: Array, number: Any
) -> tuple[int, np.float32]:
    """Do the same as :func:`draw_from_products` in Python, up to rounding.

    Results may differ, because the sums of lanes are cumulated in another order.
    """
    # Row i has the products of vector i, with a column for each lane.
    products = (first * second * third).reshape(-1, LANES)
    partial_sums = np.cumsum(products, axis=0, dtype=np.float32)
    # The last partial sums are the sums of the lanes.
    cumulative = np.cumsum(partial_sums[-1], dtype=np.float32)
    total = cumulative[-1]
    remainder = number * total
    # The drawn lane is the number of cumulative sums that do not exceed the target number * total.
    drawn_lane = min(int((remainder >= cumulative).sum()), LANES - 1)
    remainder -= cumulative[drawn_lane - 1] if drawn_lane else np.float32(0.0)
    # The last partial sum is left out, so that rounding cannot lead beyond the last vector.
    drawn_vector = int((remainder >= partial_sums[:-1, drawn_lane]).sum())
    return drawn_vector * LANES + drawn_lane, total


@instruction(_draw_from_products_in_python)
def draw_from_products(
    typingctx: Any, first: Any, second: Any, third: Any, upcoming: Any, sums: Any, number: Any
) -> Any:
    """Draw k with probability proportional to ``first[k] * second[k] * third[k]``.

    Return k and the sum of the products. The arrays are float32 and have the same length, a
    multiple of LANES. The random ``number`` in [0, 1) determines first the lane of k and then the
    vector of k. ``sums`` is scratch for the partial sums of the lanes. Meanwhile ``upcoming``, an
    array that the next draw needs, is fetched into the caches. The order of summation is the same
    on all processors.
    """

    # numba calls this function with types as arguments. It calls ``codegen``, which emits the
    # instructions, with the values of LLVM for the same arguments.
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *array_values, number = arguments
        arrays = _unpack_arrays(context, builder, signature, array_values)
        width = builder.extract_value(arrays[0].shape, 0)
        # Pointers to the numbers of the arrays.
        *factors, upcoming, sums = (array.data for array in arrays)

        def emit_product(k: Any) -> Any:
            """Emit the products of the vector that begins at index k."""
            a, b, c = (_load_vector(builder, factor, k) for factor in factors)
            return builder.fmul(builder.fmul(a, b), c)

        lane_sums = _emit_partial_sums(builder, emit_product, [upcoming], sums, width)
        lane, remainder, total, _ = _emit_lane_draw(builder, lane_sums, number)
        k = _emit_vector_draw(builder, sums, lane, remainder, width)
        return context.make_tuple(builder, signature.return_type, [k, total])

    return _draw_result(first, second, third, upcoming, sums, _numba_types.float32), codegen


def _draw_from_members_in_python(
    weights: Array, members: Array, values: Array, sums: Array, numbers: Any
) -> tuple[int, np.float32]:
    """Do the same as :func:`draw_from_members` in Python, up to rounding.

    ``numbers`` are the other arguments of :func:`draw_from_members` in the same order. The outcome
    ``width`` means that ``others`` was drawn.
    """
    begin, width, special, special_weight, special_value, others, number = numbers
    member_range = slice(begin, begin + width)
    is_special = members[member_range] == special
    products = (weights[member_range] - special_weight * is_special) * np.where(
        is_special, special_value, values[members[member_range]]
    )
    # Sum in the order of the vectors and lanes.
    partial_sums = np.cumsum(products.reshape(-1, LANES), axis=0, dtype=np.float32)
    sum_of_products = np.cumsum(partial_sums[-1], dtype=np.float32)[-1]
    total = sum_of_products + others
    if number * total >= sum_of_products:
        return width, total
    # Draw among the products by a number in [0, 1).
    ones = np.ones_like(products)
    number_within = number * total / sum_of_products
    return _draw_from_products_in_python(products, ones, ones, ones, sums, number_within)[0], total


@instruction(_draw_from_members_in_python)
def draw_from_members(
    typingctx: Any, weights: Any, members: Any, values: Any, sums: Any, numbers: Any
) -> Any:
    """Draw m with probability proportional to ``weights[begin + m] * values[members[begin + m]]``.

    Return m in 0, ..., ``width``, and the sum of all products and ``others``. ``width`` is a
    multiple of LANES. The result m = ``width`` stands for all outcomes that are no members, and has
    a probability proportional to the number ``others``.

    ``numbers`` is the tuple (begin, width, special, special_weight, special_value, others, number).
    For the member ``special``, ``special_weight`` is subtracted from the weight, and
    ``special_value`` takes the place of the value. ``number`` and ``sums`` are as in
    :func:`draw_from_products`.

    For example, ``weights`` and the int32 array ``members`` have an entry for each topic that
    occurs in a document, ``values`` has an entry for each topic, and ``special`` is the old topic
    of a token.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *array_values, numbers_value = arguments
        arrays = _unpack_arrays(context, builder, signature, array_values)
        weights, members, values, sums = (array.data for array in arrays)
        begin, width, special, special_weight, special_value, others, number = (
            builder.extract_value(numbers_value, i) for i in range(7)
        )
        # Let the pointers begin at ``weights[begin]`` and ``members[begin]``.
        weights, members = (builder.gep(pointer, [begin]) for pointer in (weights, members))
        special_weights = _broadcast(builder, _float32_vector, special_weight)
        special_values = _broadcast(builder, _float32_vector, special_value)
        specials = _broadcast(builder, _int32_vector, builder.trunc(special, _int32))

        def emit_product(k: Any) -> Any:
            """Emit the products of the vector that begins at index k."""
            member_vector = _load_vector(builder, members, k, _int32_vector)
            # Collect the values of the members one by one, since they lie apart in memory.
            value_vector = _undefined_vector
            for lane in range(LANES):
                position = ir.Constant(_int32, lane)
                member = builder.extract_element(member_vector, position)
                value = builder.load(builder.gep(values, [member]))
                value_vector = builder.insert_element(value_vector, value, position)
            # Replace the value of the special member in the vector instead of the array of values.
            is_special = builder.icmp_signed("==", member_vector, specials)
            weight_vector = _load_vector(builder, weights, k)
            reduction = builder.select(is_special, special_weights, _zero_vector)
            weight_vector = builder.fsub(weight_vector, reduction)
            value_vector = builder.select(is_special, special_values, value_vector)
            return builder.fmul(weight_vector, value_vector)

        lane_sums = _emit_partial_sums(builder, emit_product, [], sums, width)
        lane, remainder, total, is_other = _emit_lane_draw(builder, lane_sums, number, others)
        k = _emit_vector_draw(builder, sums, lane, remainder, width)
        # m is ``width`` if ``others`` is drawn, otherwise k.
        m = builder.select(is_other, width, k)
        return context.make_tuple(builder, signature.return_type, [m, total])

    return _draw_result(weights, members, values, sums, numbers), codegen


@instruction(lambda array, index: None)
def fetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of ``array[index]`` into the caches before it is needed.

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
    # The codes by which LLVM knows these three options of the intrinsic.
    to_read, to_all_caches, of_data = (ir.Constant(_int32, value) for value in (0, 3, 1))
    address = builder.bitcast(pointer, _byte_pointer)
    builder.call(prefetch, [address, to_read, to_all_caches, of_data])


def _unpack_arrays(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Return the values ``arguments``, which are arrays, as structures with ``data`` and ``shape``.

    They are the first arguments of a function with this ``signature``, which has their types.
    """
    return [
        context.make_array(array_type)(context, builder, value)
        for array_type, value in zip(signature.args, arguments, strict=False)
    ]


def _load_vector(builder: Any, pointer: Any, k: Any, vector_type: Any = _float32_vector) -> Any:
    """Emit the load of the LANES numbers that begin at index k; return them as a vector.

    The instruction assumes the alignment of one number, because arrays may begin anywhere.
    """
    address = builder.bitcast(builder.gep(pointer, [k]), vector_type.as_pointer())
    return builder.load(address, align=4)


def _broadcast(builder: Any, vector_type: Any, number: Any) -> Any:
    """Return the vector that has ``number`` in all lanes."""
    source = builder.insert_element(ir.Constant(vector_type, ir.Undefined), number, _position_0)
    # Each lane of the result is lane 0 of ``source``.
    return builder.shuffle_vector(source, source, ir.Constant(_int32_vector, [0] * LANES))


def _emit_partial_sums(
    builder: Any, emit_product: Any, pointers_to_fetch: list[Any], sums: Any, width: Any
) -> Any:
    """Emit a loop that sums the products of each lane; return the vector of the sums of the lanes.

    ``emit_product(k)`` emits the products of the vector that begins at index k, for k = 0, LANES,
    ... below ``width``. The partial sums are written to the array at the pointer ``sums``. The
    arrays at the pointers ``pointers_to_fetch`` are meanwhile fetched into the caches.
    """
    block_before, loop_block = builder.block, builder.append_basic_block("sums")
    block_after = builder.append_basic_block("after_sums")
    builder.branch(loop_block)
    builder.position_at_end(loop_block)
    # In each round of the loop, k is the beginning of a vector, and last_sums are the sums of all
    # vectors before. A *phi* is a variable of LLVM whose value depends on the block from which its
    # block was entered: ``block_before`` in the first round, ``loop_block`` in later rounds.
    k, last_sums = builder.phi(_int64), builder.phi(_float32_vector)
    new_sums = builder.fadd(last_sums, emit_product(k))
    target = builder.bitcast(builder.gep(sums, [k]), _float32_vector.as_pointer())
    builder.store(new_sums, target, align=4)
    for pointer in pointers_to_fetch:
        _emit_fetch(builder, builder.gep(pointer, [k]))
    next_k = builder.add(k, _n_lanes)
    for phi, first_value, next_value in (k, _zero, next_k), (last_sums, _zero_vector, new_sums):
        phi.add_incoming(first_value, block_before)
        phi.add_incoming(next_value, loop_block)
    builder.cbranch(builder.icmp_signed("<", next_k, width), loop_block, block_after)
    builder.position_at_end(block_after)
    return new_sums


def _emit_lane_draw(
    builder: Any, lane_sums: Any, number: Any, others: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Emit the draw of a lane by ``number`` in [0, 1), given the sums of the lanes.

    ``others`` is the sum of an additional lane after the last lane; None without this lane. The
    total is the sum of all lanes, and the target is ``number`` times the total. Return the drawn
    lane, the target minus the sums of the lanes before the drawn lane, the total, and whether the
    additional lane is drawn.
    """

    def shift_lanes(x: Any, distance: int) -> Any:
        """Return x moved ``distance`` lanes up, with 0 in the lowest lanes."""
        # ``shuffle_vector`` numbers the lanes of its first vector, here zeros, from 0, and the
        # lanes of its second vector, here x, from LANES.
        sources = [LANES + lane - distance if lane >= distance else 0 for lane in range(LANES)]
        return builder.shuffle_vector(_zero_vector, x, ir.Constant(_int32_vector, sources))

    # Compute the cumulative sums of the lanes. After each round, a lane has the sum of twice as
    # many lanes up to itself.
    cumulative = lane_sums
    for distance in 1, 2, 4, 8:
        cumulative = builder.fadd(cumulative, shift_lanes(cumulative, distance))
    total = builder.extract_element(cumulative, ir.Constant(_int32, LANES - 1))
    if others is not None:
        total = builder.fadd(total, others)
    target = builder.fmul(number, total)
    # The drawn lane is the number of cumulative sums that do not exceed the target: count the bits
    # that are 1 in the results of the comparisons.
    is_passed = builder.fcmp_ordered(">=", _broadcast(builder, _float32_vector, target), cumulative)
    is_passed = builder.bitcast(is_passed, ir.IntType(LANES))
    lane = builder.zext(builder.ctpop(is_passed), _int64)
    # If the count is LANES, the additional lane is drawn or, without this lane, rounding is the
    # cause. Take the last lane in both cases.
    is_below_last = builder.icmp_signed("<", lane, _last_lane)
    is_other = builder.icmp_signed(">", lane, _last_lane)
    lane = builder.select(is_below_last, lane, _last_lane)
    remainder = builder.fsub(target, builder.extract_element(shift_lanes(cumulative, 1), lane))
    return lane, remainder, total, is_other


def _emit_vector_draw(builder: Any, sums: Any, lane: Any, remainder: Any, width: Any) -> Any:
    """Emit the draw of a vector, given the drawn lane; return the drawn index k.

    The drawn vector is the number of partial sums of the lane that do not exceed ``remainder``, see
    :func:`_emit_lane_draw`. The last partial sum is not compared, so that rounding cannot lead
    beyond the last vector.
    """
    # Let the pointer begin at the first partial sum of the lane.
    sums = builder.gep(sums, [lane])
    block_before, test_block = builder.block, builder.append_basic_block("test")
    loop_block = builder.append_basic_block("count")
    block_after = builder.append_basic_block("after_count")
    last_vector = builder.sub(width, _n_lanes)
    builder.branch(test_block)
    builder.position_at_end(test_block)
    # In each round of the loop, k is the beginning of a vector, and n_passed counts the sums before
    # it that do not exceed the remainder.
    k, n_passed = builder.phi(_int64), builder.phi(_int64)
    builder.cbranch(builder.icmp_signed("<", k, last_vector), loop_block, block_after)
    builder.position_at_end(loop_block)
    is_passed = builder.fcmp_ordered(">=", remainder, builder.load(builder.gep(sums, [k])))
    next_k = builder.add(k, _n_lanes)
    next_n_passed = builder.add(n_passed, builder.zext(is_passed, _int64))
    for phi, next_value in (k, next_k), (n_passed, next_n_passed):
        phi.add_incoming(_zero, block_before)
        phi.add_incoming(next_value, loop_block)
    builder.branch(test_block)
    builder.position_at_end(block_after)
    return builder.add(builder.mul(n_passed, _n_lanes), lane)
