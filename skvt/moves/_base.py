"""The bound from statistics alone, and the rule by which moves are accepted."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from skvt.contracts import Capability, Memo, Memoizable, Requirement
from skvt.expfam import RunningStats, Stats
from skvt.ties import exceeds
from skvt.typing import Array

# Number of updates that fit the priors to components of all rows.
_LEARNING_STEPS = 3


def bound_of(model: Memoizable, memo: Memo) -> float:
    """Return the exact lower bound of a memo's rows at their optimal globals, in nats."""
    return float(memo.entropy.sum()) + model.collapsed_energy(memo.stats)


def joined(parts: list[Stats]) -> Stats:
    """Concatenate the statistics of the components of all parts."""
    arrays = zip(*(part.arrays for part in parts), strict=True)
    return Stats(tuple(np.concatenate(blocks) for blocks in arrays))


def learned(model: Any, parts: list[Stats]) -> Any:
    """Return the model with priors learned from the components of all parts."""
    stats = RunningStats(joined(parts).arrays)
    for _ in range(_LEARNING_STEPS):
        model = model.with_learned_priors(None, stats)
    return model


def size_of(bound: float, memo: Memo) -> float:
    """Return the scale of rounding in a memo's bound: at least a nat a row, as terms may cancel."""
    return max(abs(bound), memo.weight)


def shares_of(q: Any, components: list[int]) -> Array:
    """Return the responsibilities (n, A) of these components as a dense array; q may be CSR."""
    shares = q[:, components]
    return np.asarray(shares.toarray() if sp.issparse(shares) else shares)


def of_components(whom: str) -> tuple[Requirement, ...]:
    """Return the capabilities of a model that births, merges and deletes require."""
    return (Requirement(whom, Capability.MERGEABLE, "Leave it out of moves."),)


def is_accepted(
    gain: float, size: float, least: float = 0.0, dtype: DTypeLike | None = None
) -> bool:
    """Return whether the gain exceeds ``least`` by more than rounding of a bound of ``size``.

    ``dtype`` is the precision of the bound, by default float64.
    """
    return bool(exceeds(gain, least, scale=size, dtype=dtype))
