"""Functions that all moves share: the bound of a memo, and the rule by which a change is accepted.

A memo holds the statistics and entropies of one or more batches of rows. A change of components is
accepted if the exact bound rises by more than rounding errors.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from skvt.contracts import Capability, Memo, Memoizable, Requirement
from skvt.expfam import RunningStats, Stats
from skvt.ties import exceeds
from skvt.typing import Array

# Number of updates of the priors in a call of `learn_priors`. One update is not enough, because the
# priors are learned from posteriors, which depend on the priors.
_N_PRIOR_UPDATES = 3


def compute_bound(model: Memoizable, memo: Memo) -> float:
    """Return the bound of the rows of a memo in nats, with the best global parameters for it."""
    return float(memo.entropy.sum()) + model.collapsed_energy(memo.stats)


def concatenate_components(parts: list[Stats]) -> Stats:
    """Return the statistics of the components of all parts, in their order."""
    blocks = zip(*(part.arrays for part in parts), strict=True)
    return Stats(tuple(np.concatenate(arrays) for arrays in blocks))


def learn_priors(model: Any, parts: list[Stats]) -> Any:
    """Return the model with priors learned from the components of all parts."""
    stats = RunningStats(concatenate_components(parts).arrays)
    for _ in range(_N_PRIOR_UPDATES):
        model = model.with_learned_priors(None, stats)
    return model


def find_rounding_scale(bound: float, memo: Memo) -> float:
    """Return the scale to which rounding errors of the bound of a memo are relative, in nats.

    The scale is at least one nat per row, because the bound may be the small sum of large terms.
    """
    return max(abs(bound), memo.weight)


def select_responsibilities(q: Any, components: list[int]) -> Array:
    """Return the responsibilities of A components as a dense array (n, A).

    ``q`` has the responsibilities (n, K) of all components; it may be a CSR matrix.
    """
    resp = q[:, components]
    return np.asarray(resp.toarray() if sp.issparse(resp) else resp)


def make_requirements(subject: str) -> tuple[Requirement, ...]:
    """Return the requirements of a birth, a merge or a delete on the model.

    ``subject`` names the move in error messages, such as "A birth".
    """
    return (Requirement(subject, Capability.MERGEABLE, "Leave it out of moves."),)


def exceeds_rounding(
    gain: float, scale: float, min_gain: float = 0.0, dtype: DTypeLike | None = None
) -> bool:
    """Return whether a gain of the bound exceeds ``min_gain`` by more than rounding errors.

    Rounding errors are relative to ``scale``: see :func:`find_rounding_scale`. ``dtype`` is
    the precision of the bound, by default float64.
    """
    return bool(exceeds(gain, min_gain, scale=scale, dtype=dtype))
