"""Draws from products of arrays have probabilities in proportion to the products."""

import numpy as np
import pytest
from _entrances import entrance

from skvt._compiled import LANES, allocate_aligned, draw_from_members, draw_from_products

draw, draw_member = entrance(draw_from_products), entrance(draw_from_members)


@pytest.mark.parametrize("n_lines", [1, 3])
def test_evenly_spaced_numbers_draw_each_place_in_proportion(n_lines):
    rng = np.random.default_rng(n_lines)
    first, second, table = (allocate_aligned(n, n_lines * LANES) for n in (3, 1, 4))
    for array in first, second, table:
        array[:] = rng.integers(0, 4, array.shape)
    # All sums are whole numbers and the last is a power of two, so that nothing is rounded.
    first[2, -1] = table[1, -1] = 1.0
    second[0, -1] = 2**10 - np.sum(first[2, :-1] * second[0, :-1] * table[1, :-1])
    numbers = np.arange(2**10, dtype=np.float32) / np.float32(2**10)
    sums = np.empty_like(second[0])
    drawn = [draw(first[2], second[0], table[1], table[3], sums, number) for number in numbers]
    places, totals = np.transpose(drawn)
    np.testing.assert_array_equal(np.bincount(places.astype(int)), first[2] * second[0] * table[1])
    assert np.all(totals == 2**10)
    # The number 1 is drawn if rounding makes the product with the sum the sum itself.
    assert (
        draw(first[2], second[0], table[1], table[3], sums, np.float32(1.0))[0]
        == n_lines * LANES - 1
    )


@pytest.mark.parametrize("n_lines", [1, 3])
def test_members_and_others_are_drawn_in_proportion(n_lines):
    rng = np.random.default_rng(n_lines)
    width, left = n_lines * LANES, 7
    weights, values = allocate_aligned(1, 2 * width)[0], allocate_aligned(1, 2 * width)[0]
    weights[:], values[:] = rng.integers(1, 4, (2, 2 * width))
    members = np.concatenate([np.zeros(width), rng.permutation(width)]).astype(np.int32)
    expected = weights[width:] * values[members[width:]]
    place = np.flatnonzero(members[width:] == left)[0]
    expected[place] = (weights[width + place] - 1.0) * 5.0
    # All sums are whole numbers and the total is a power of two, so that nothing is rounded.
    others = np.float32(2**10 - expected.sum())
    drawn = [
        draw_member(
            weights, members, values, np.empty_like(values),
            (width, width, left, np.float32(1.0), np.float32(5.0), others,
             np.float32(i / 2**10)),
        )
        for i in range(2**10)
    ]  # fmt: skip
    places, totals = np.transpose(drawn)
    np.testing.assert_array_equal(np.bincount(places.astype(int)), [*expected, others])
    assert np.all(totals == 2**10)
