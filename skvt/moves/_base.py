"""Functions that all moves share, such as the bound of a memo.

A *memo* has the statistics and entropies of one or more batches of rows. A *move* changes the
components if the exact bound rises by more than rounding errors.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Capability, Memo, Memoizable, Requirement
from skvt.expfam import RunningStats, Stats
from skvt.typing import Array

# Number of updates of the priors in a call of `learn_priors`. A single update is not enough: priors
# are learned from posteriors, which depend on the priors.
_N_PRIOR_UPDATES = 3


def compute_bound(model: Memoizable, memo: Memo) -> float:
    """Return the bound of the rows of a memo in nats, under the optimal global parameters."""
    return float(memo.entropy.sum()) + model.collapsed_energy(memo.stats)


def concatenate_components(stats_of_groups: list[Stats]) -> Stats:
    """Return the statistics of the components of all groups, one group after the other."""
    blocks = zip(*(stats.arrays for stats in stats_of_groups), strict=True)
    return Stats(tuple(np.concatenate(arrays) for arrays in blocks))


def select_components(stats: Stats, selected: Any) -> Stats:
    """Return the statistics of some components, selected by their numbers, a slice or a mask."""
    return Stats(tuple(array[selected] for array in stats.arrays))


def learn_priors(model: Any, stats_of_groups: list[Stats]) -> Any:
    """Return the model with priors learned from the components of all groups."""
    stats = RunningStats(concatenate_components(stats_of_groups).arrays)
    for _ in range(_N_PRIOR_UPDATES):
        model = model.with_learned_priors(None, stats)
    return model


def find_rounding_scale(bound: float, memo: Memo) -> float:
    """Return the scale in nats to which rounding errors of the bound of a memo are relative.

    The scale is at least a nat per row, because a small bound may be the sum of large terms.
    """
    return max(abs(bound), memo.weight)


def select_responsibilities(q: Any, components: list[int]) -> Array:
    """Return the responsibilities of A components as a dense array (n, A).

    ``q`` (n, K) has the responsibilities of all components, and may be a CSR matrix.
    """
    resp = q[:, components]
    return np.asarray(resp.toarray() if sp.issparse(resp) else resp)


def make_requirements(subject: str) -> tuple[Requirement, ...]:
    """Return the requirements of a birth, a merge or a delete on the model.

    ``subject`` names the move in error messages, such as "A birth".
    """
    return (Requirement(subject, Capability.MERGEABLE, "Leave it out of moves."),)
