"""Active components: one rule for mixtures and factorisations."""

import numpy as np
from numpy.typing import DTypeLike

from skvt.ties import exceeds
from skvt.typing import Array

# Least share of the data of an active component.
ACTIVE_SHARE = 1e-3


def n_active(masses: Array, dtype: DTypeLike) -> int:
    """Number of components to which at least a thousandth of the data is expected to belong.

    By expected rows (K,) of each component of a mixture, or counts of each of a factorisation, as
    computed in the precision ``dtype``.
    """
    total = masses.sum()
    return int(np.sum(~exceeds(ACTIVE_SHARE * total, masses, dtype=dtype))) if total > 0.0 else 0
