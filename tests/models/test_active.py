"""Which components count as active."""

import numpy as np
import pytest

from skvt.models import count_active


@pytest.mark.parametrize("unit", [1e-20, 1.0, 1e20])
def test_components_with_a_thousandth_of_the_data_are_active(unit):
    # The second mass is below a thousandth by rounding alone.
    masses = unit * np.array([998.5, 1.0 - 1e-12, 0.5])
    assert count_active(masses, np.float64) == 2
    assert count_active(0.0 * masses, np.float64) == 0
