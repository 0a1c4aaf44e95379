"""Step sizes of stochastic inference follow the schedule."""

import itertools

import numpy as np
import pytest
from _properties import quick
from hypothesis import given
from hypothesis import strategies as st

from skvt.schedules import RobbinsMonro


@quick
@given(
    st.floats(1.0, 1e6), st.floats(0.0, 1.0), st.floats(1e-3, 1e6),
    st.lists(st.integers(0, 10**9), min_size=2, max_size=20),
)  # fmt: skip
def test_step_sizes_are_positive_and_never_grow(offset, decay, scale, steps):
    rate = RobbinsMonro(offset, decay, scale)
    steps = sorted(steps)
    sizes = [rate(step) for step in steps]
    assert all(0.0 < size <= 1.0 for size in sizes)
    assert all(later <= size for size, later in itertools.pairwise(sizes))
    for step, size in zip(steps, sizes, strict=True):
        expected = np.log(scale) - decay * np.log(offset + step)
        assert np.log(size) == pytest.approx(min(0.0, expected), abs=1e-9)
