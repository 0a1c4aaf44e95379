"""The number of active components, by the same rule for mixtures and factorisations."""

import numpy as np
from numpy.typing import DTypeLike

from skvt.ties import exceeds
from skvt.typing import Array

# A component is active if its expected share of the data is at least this number.
ACTIVE_SHARE = 1e-3


def count_active(masses: Array, dtype: DTypeLike) -> int:
    """Return the number of components whose mass is at least ACTIVE_SHARE of the total mass.

    ``masses`` (K,) are the expected numbers of rows of the components of a mixture, or the expected
    counts of the components of a factorisation. Masses are computed in the precision ``dtype``: a
    mass that is below the limit only by rounding errors of this precision is large enough.
    """
    total = masses.sum()
    return int(np.sum(~exceeds(ACTIVE_SHARE * total, masses, dtype=dtype))) if total > 0.0 else 0
