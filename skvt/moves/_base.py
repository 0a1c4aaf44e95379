"""The bound from statistics alone, and the rule by which moves are accepted."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Capability, Memo, Memoizable, Requirement
from skvt.expfam import RunningStats, Stats
from skvt.ties import exceeds
from skvt.typing import Array

# Updates of the priors by which they follow components that describe all rows.
_LEARNING_STEPS = 3


def bound_of(model: Memoizable, memo: Memo) -> float:
    """The exact evidence lower bound in nats of a memo's rows, at the globals optimal for them."""
    return float(memo.entropy.sum()) + model.collapsed_energy(memo.stats)


def joined(parts: list[Stats]) -> Stats:
    """Statistics of the components of all parts."""
    arrays = zip(*(part.arrays for part in parts), strict=True)
    return Stats(tuple(np.concatenate(blocks) for blocks in arrays))


def learned(model: Any, parts: list[Stats]) -> Any:
    """The model with priors learned from all components."""
    stats = RunningStats(joined(parts).arrays)
    for _ in range(_LEARNING_STEPS):
        model = model.with_learned_priors(None, stats)
    return model


def size_of(bound: float, memo: Memo) -> float:
    """Scale of rounding in a memo's bound: the bound, or a nat a row, since terms may cancel."""
    return max(abs(bound), memo.weight)


def shares_of(q: Any, components: list[int]) -> Array:
    """Responsibilities (n, A) of these components, of all, which may be in CSR."""
    shares = q[:, components]
    return np.asarray(shares.toarray() if sp.issparse(shares) else shares)


def of_components(whom: str) -> tuple[Requirement, ...]:
    """Capabilities of a model that births, merges and deletes need."""
    return (Requirement(whom, Capability.MERGEABLE, "Leave it out of moves."),)


def is_accepted(gain: float, size: float, least: float = 0.0) -> bool:
    """Whether the exact bound, of this ``size``, rises by more than ``least`` and its rounding."""
    return bool(exceeds(gain, least, scale=size))
