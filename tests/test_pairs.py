"""The covering arrays that crossed parameters are thinned by."""

from itertools import combinations, product

import pytest
from _pairs import pairs


def _held(combos):
    return {pair for combo in combos for pair in combinations(enumerate(combo), 2)}


@pytest.mark.parametrize(
    "legal",
    [lambda *values: True, lambda a, b, c, d: not (a == 4 and b == 0) and (c < 2 or d == 1)],
    ids=["all", "some"],
)
def test_every_pair_that_can_occur_does_and_nothing_illegal(legal):
    axes = [range(9), range(5), range(3), range(2)]
    every = [combo for combo in product(*axes) if legal(*combo)]
    few = pairs(*axes, legal=legal)
    assert set(few) <= set(every) and len(set(few)) == len(few)
    assert _held(few) == _held(every)
    # no list can be shorter than the product of the two longest axes
    assert len(few) <= 1.2 * 9 * 5
