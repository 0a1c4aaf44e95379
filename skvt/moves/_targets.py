"""Targets of births: a component, or a component and its neighbours, whose rows are collected.

:func:`choose` draws the targets of a pass, and :func:`collected` takes their rows from a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from skvt.contracts import Mergeable, ObserverTools, Solved
from skvt.files import in_files
from skvt.moves._base import select_responsibilities
from skvt.moves._ledger import Ledger
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array, IndexArray

# Maximum number of rows that are collected for one target.
MOST_ROWS = 10_000
# A row is collected if the responsibility of the target for it is larger than this.
SMALLEST_SHARE = 0.01
# A component is a target only if its expected number of rows is larger than this.
FEWEST_ROWS = 20.0
# A component with this number of failures is not a target. After fewer failures, it is a target
# with neighbours: one neighbour for each failure, at most two, and up to MOST_NEIGHBOURS after
# 2 * LOST failures.
MOST_TRIES = 5
# Number of failures for which a birth counts if no proposal was better than the target.
LOST = 2
# Maximum number of neighbours of a target.
MOST_NEIGHBOURS = 9


@in_files("moves.Target")
@dataclass
class Target:
    """A chosen component, perhaps with neighbours, and the rows that have been collected for it."""

    # Numbers, ids and expected numbers of rows of the components; the chosen component is first.
    components: list[int]
    ids: list[int]
    masses: list[float]
    # For each batch, the collected rows, their weights (n,), and the responsibilities of the
    # components for them (n, A).
    rows: list[Any] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)
    resp: list[Array] = field(default_factory=list)
    # Number of collected rows.
    size: int = 0
    # Expected number of rows of the components in all batches, collected or not.
    total: float = 0.0

    @property
    def wanted(self) -> "Wanted":
        """The request for rows of this target from a batch."""
        share = MOST_ROWS / max(sum(self.masses), MOST_ROWS)
        return self.components, MOST_ROWS - self.size, share

    def add(self, collected: "Collected") -> None:
        """Add the rows that were collected from a batch."""
        total, rows, weights, resp = collected
        self.total += total
        n_left = MOST_ROWS - self.size
        if n_left > 0 and weights.size:
            self.rows.append(rows[:n_left])
            self.weights.append(weights[:n_left])
            self.resp.append(resp[:n_left])
            self.size += weights[:n_left].size


#: A request for rows: numbers of the components, maximum number of rows, and share of the rows of
#: each batch to take.
Wanted: TypeAlias = tuple[list[int], int, float]
#: The reply: expected number of rows of the components in the batch, collected rows, their weights
#: (n,), and the responsibilities of the components (n, A).
Collected: TypeAlias = tuple[float, Any, Array, Array]


def choose(
    ledger: Ledger,
    counts: Array,
    ids: IndexArray,
    rng: np.random.Generator,
    number: int,
    overlaps: Array | None = None,
) -> list[Target]:
    """Draw at most ``number`` targets without common components.

    A component is drawn with probability proportional to its count. If births from it have failed,
    its nearest neighbours are added to the target.

    Parameters
    ----------
    ledger : Ledger
        The failed births.
    counts, ids : ndarray of shape (K,)
        Expected numbers of rows and identifiers of the components.
    rng : numpy.random.Generator
    number : int
        Maximum number of targets.
    overlaps : ndarray of shape (K, K) or None
        Entropy in nats that is lost if two components are merged; nearest neighbours have the
        largest overlaps. If it is None, components whose births have failed are not targets.
    """
    tries = ledger.tries(ids, counts)
    is_free = np.ones(counts.size, bool)
    max_tries = 1 if overlaps is None else MOST_TRIES
    is_eligible = exceeds(counts, FEWEST_ROWS) & (tries < max_tries)
    targets: list[Target] = []
    while len(targets) < number and (is_eligible & is_free).any():
        chances = counts * (is_eligible & is_free)
        chosen = int(rng.choice(counts.size, p=chances / chances.sum()))
        components = [chosen]
        is_free[chosen] = False
        has_often_failed = tries[chosen] >= 2 * LOST
        for _ in range(MOST_NEIGHBOURS if has_often_failed else min(tries[chosen], 2)):
            # Without overlaps, only components without failures are eligible.
            assert overlaps is not None
            overlap = overlaps[components].sum(axis=0) * is_free
            nearest = int(stable_argmax(overlap))
            # Components whose overlap is a rounding error are no neighbours.
            if exceeds(overlap[nearest], 0.0, scale=counts[chosen]):
                components.append(nearest)
                is_free[nearest] = False
        # Leave the target out if all proposals have failed, and there is no neighbour to add.
        if tries[chosen] >= LOST and len(components) == 1:
            continue
        targets.append(Target(components, ids[components].tolist(), counts[components].tolist()))
    return targets


def collected(
    wanted: Sequence[Wanted], seed: int, model: Mergeable, solved: Solved, tools: ObserverTools
) -> list[Collected]:
    """Return the rows of a batch that are collected for each target: the observer of births.

    ``wanted`` has the request of each target. ``seed`` is the seed of the choice among the rows of
    large targets.
    """
    batch, replies = solved.batch, list[Collected]()
    for components, max_rows, share in wanted:
        resp = select_responsibilities(solved.result.q, components)
        # (n,): responsibility of the target for each row.
        resp_of_target = resp.sum(axis=1)
        is_chosen = resp_of_target > SMALLEST_SHARE
        if share < 1.0:
            is_chosen &= np.random.default_rng(seed).random(resp_of_target.size) < share
        rows = np.flatnonzero(is_chosen)[: max(0, max_rows)]
        replies.append((
            float(batch.weights @ resp_of_target),
            batch.X[rows],
            batch.weights[rows],
            resp[rows],
        ))  # fmt: skip
    return replies
