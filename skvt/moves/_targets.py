"""Targets of births: components whose rows are collected during a pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from skvt.contracts import Mergeable, ObserverTools, Solved
from skvt.files import in_files
from skvt.moves._base import shares_of
from skvt.moves._ledger import Ledger
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array, IndexArray

# Maximum number of rows collected for one target.
MOST_ROWS = 10_000
# A row is collected if the target's responsibility exceeds this.
SMALLEST_SHARE = 0.01
# Least number of rows of a component that may be split.
FEWEST_ROWS = 20.0
# Number of failed births after which a component is no longer a target. Births from it alone come
# first, then with up to two neighbours, then with up to MOST_NEIGHBOURS. A birth without any
# acceptable proposal counts `LOST` times.
MOST_TRIES = 5
# Number of failures that a birth counts for if no proposal was better than the target.
LOST = 2
# Maximum number of neighbours of a target.
MOST_NEIGHBOURS = 9


@in_files("moves.Target")
@dataclass
class Target:
    """Components whose rows are collected: numbers, ids and masses, the chosen component first.

    ``total`` is their mass in all rows visited. ``rows``, ``weights`` and ``resp`` are the rows
    collected, the rows' weights and the components' responsibilities.
    """

    components: list[int]
    ids: list[int]
    masses: list[float]
    rows: list[Any] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)
    resp: list[Array] = field(default_factory=list)
    size: int = 0
    total: float = 0.0

    @property
    def wanted(self) -> "Wanted":
        """The components, how many more rows are collected, and the share of each batch."""
        share = MOST_ROWS / max(sum(self.masses), MOST_ROWS)
        return self.components, MOST_ROWS - self.size, share

    def add(self, collected: "Collected") -> None:
        """Add the rows collected from a batch."""
        total, rows, weights, resp = collected
        self.total += total
        n_left = MOST_ROWS - self.size
        if n_left > 0 and weights.size:
            self.rows.append(rows[:n_left])
            self.weights.append(weights[:n_left])
            self.resp.append(resp[:n_left])
            self.size += weights[:n_left].size


#: Components of a target, most rows of them to collect, and the share of each batch.
Wanted: TypeAlias = tuple[list[int], int, float]
#: Mass of a target, some of its rows, their weights, and its components' responsibilities.
Collected: TypeAlias = tuple[float, Any, Array, Array]


def choose(
    ledger: Ledger,
    counts: Array,
    ids: IndexArray,
    rng: np.random.Generator,
    number: int,
    overlaps: Array | None = None,
) -> list[Target]:
    """Draw at most ``number`` disjoint targets by mass, of components with few failed births.

    A component whose births have failed is tried together with its nearest neighbours, by their
    ``overlaps`` (K, K) in nats; without overlaps it is not tried.
    """
    tries = ledger.tries(ids, counts)
    free = np.ones(counts.size, bool)
    eligible = exceeds(counts, FEWEST_ROWS) & (tries < (1 if overlaps is None else MOST_TRIES))
    targets: list[Target] = []
    while len(targets) < number and (eligible & free).any():
        chances = counts * (eligible & free)
        chosen = int(rng.choice(counts.size, p=chances / chances.sum()))
        components = [chosen]
        free[chosen] = False
        wide = tries[chosen] >= 2 * LOST
        for _ in range(MOST_NEIGHBOURS if wide else min(tries[chosen], 2)):
            assert overlaps is not None  # otherwise only components without failures are tried
            nearness = overlaps[components].sum(axis=0) * free
            nearest = int(stable_argmax(nearness))
            # components that share negligible responsibilities are no neighbours
            if exceeds(nearness[nearest], 0.0, scale=counts[chosen]):
                components.append(nearest)
                free[nearest] = False
        if tries[chosen] >= LOST and len(components) == 1:
            continue  # all proposals failed, and there is no neighbour to add
        targets.append(Target(components, ids[components].tolist(), counts[components].tolist()))
    return targets


def collected(
    wanted: Sequence[Wanted],
    seed: int,
    model: Mergeable,
    solved: Solved,
    tools: ObserverTools,
) -> list[Collected]:
    """Collect a batch's rows of targets; ``wanted`` has components, most rows and share of each."""
    batch, of_targets = solved.batch, list[Collected]()
    for components, most, share in wanted:
        resp = shares_of(solved.result.q, components)
        mass = resp.sum(axis=1)
        chosen = mass > SMALLEST_SHARE
        if share < 1.0:
            chosen &= np.random.default_rng(seed).random(mass.size) < share
        rows = np.flatnonzero(chosen)[: max(0, most)]
        of_targets.append((
            float(batch.weights @ mass),
            batch.X[rows],
            batch.weights[rows],
            resp[rows],
        ))  # fmt: skip
    return of_targets
