"""Targets of births: the components that a birth may replace, and the rows collected for the birth.

A *birth* learns new components from a sample of the rows of its *target*. The target is a component
or, after births from this component have failed, the component and its neighbours.
:func:`draw_targets` draws the targets of a pass, and :func:`collect_rows` takes their rows from a
batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from skvt.contracts import Mergeable, ObserverTools, SolvedBatch
from skvt.files import in_files
from skvt.moves._base import select_responsibilities
from skvt.moves._ledger import Ledger
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array, IndexArray

# Maximum number of rows that are collected for a target.
MAX_ROWS = 10_000
# A row is collected if the responsibility of the target for the row is larger than this.
MIN_RESPONSIBILITY = 0.01
# A component can be a target only if its expected number of rows is larger than this.
MIN_ROWS_OF_TARGET = 20.0
# A component is no target after this number of failed births.
MIN_FAILURES_TO_GIVE_UP = 5
# A birth counts as this number of failures if no mixture of new components was better than the
# target on the collected rows. Otherwise a failed birth counts as a single failure.
FAILURES_IF_LOST = 2
# Number of neighbours in a target: one for each failure, but at most _MAX_FEW_NEIGHBOURS; after
# 2 * FAILURES_IF_LOST failures, MAX_NEIGHBOURS. After 0, 1, 2, 3 and 4 failures these are 0, 1, 2,
# 2 and 9 neighbours.
_MAX_FEW_NEIGHBOURS = 2
MAX_NEIGHBOURS = 9


class RowRequest(NamedTuple):
    """A request for rows of a target from a batch."""

    # Numbers of the components of the target.
    components: list[int]
    # Maximum number of rows.
    max_rows: int
    # Share of the target's rows that is collected. Below 1, the rows are drawn at random.
    sampled_share: float


class CollectedRows(NamedTuple):
    """The rows of a target that were collected from a batch."""

    # Expected number of rows of the target in the batch, collected or not.
    total: float
    # (n, D): the rows.
    X: Any
    # (n,): weights of the rows.
    weights: Array
    # (n, A): responsibilities of the A components of the target.
    resp: Array


@in_files("moves.Target")
@dataclass
class Target:
    """The components of a target, and the rows collected for a birth."""

    # Numbers, ids and expected numbers of rows of the A components. The first component was drawn,
    # and the others are its neighbours.
    components: list[int]
    ids: list[int]
    masses: list[float]
    # For each batch, the collected rows (n, D), the weights of these rows (n,), and the
    # responsibilities of the A components for them (n, A).
    rows: list[Any] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)
    resp: list[Array] = field(default_factory=list)
    # Number of collected rows.
    size: int = 0
    # Expected number of rows of the components in all batches, collected or not.
    total: float = 0.0

    @property
    def request(self) -> RowRequest:
        """The request for rows of this target from the next batch."""
        # The share is 1 if the target has at most MAX_ROWS expected rows.
        sampled_share = MAX_ROWS / max(sum(self.masses), MAX_ROWS)
        return RowRequest(self.components, MAX_ROWS - self.size, sampled_share)

    def add(self, collected: CollectedRows) -> None:
        """Add rows that were collected from a batch, up to MAX_ROWS rows of all batches.

        The surplus is dropped: batches that are visited at once answer the same request, and may
        together return more rows than it asks for.
        """
        self.total += collected.total
        # Number of rows that are still needed.
        n_left = MAX_ROWS - self.size
        if n_left > 0 and collected.weights.size:
            self.rows.append(collected.X[:n_left])
            self.weights.append(collected.weights[:n_left])
            self.resp.append(collected.resp[:n_left])
            self.size += self.weights[-1].size


def draw_targets(
    ledger: Ledger, counts: Array, ids: IndexArray, rng: np.random.Generator, max_targets: int,
    overlaps: Array | None = None,
) -> list[Target]:  # fmt: skip
    """Draw at most ``max_targets`` targets without common components.

    The first component of a target is drawn with probability proportional to its count. If births
    from this component have failed, its nearest neighbours are added to the target.

    Parameters
    ----------
    ledger : Ledger
        The record of failed births.
    counts, ids : ndarray of shape (K,)
        Expected numbers of rows and identifiers of the components.
    rng : numpy.random.Generator
    max_targets : int
    overlaps : ndarray of shape (K, K) or None
        The overlap of each pair: the entropy in nats that a merge of the two components would lose.
        The nearest neighbours of a component have the largest overlaps with it. If ``overlaps`` is
        None, components whose births have failed are no targets.
    """
    n_failures = ledger.count_failures(ids, counts)
    # Whether a component belongs to no target yet.
    is_free = np.ones(counts.size, bool)
    # Number of failures that excludes a component.
    max_failures = 1 if overlaps is None else MIN_FAILURES_TO_GIVE_UP
    is_eligible = exceeds(counts, MIN_ROWS_OF_TARGET) & (n_failures < max_failures)
    targets: list[Target] = []
    while len(targets) < max_targets and (is_eligible & is_free).any():
        draw_weights = counts * (is_eligible & is_free)
        first_component = int(rng.choice(counts.size, p=draw_weights / draw_weights.sum()))
        components = [first_component]
        is_free[first_component] = False
        n_neighbours = min(n_failures[first_component], _MAX_FEW_NEIGHBOURS)
        if n_failures[first_component] >= 2 * FAILURES_IF_LOST:
            n_neighbours = MAX_NEIGHBOURS
        for _ in range(n_neighbours):
            # Without overlaps, components with failures are excluded, and need no neighbours.
            assert overlaps is not None
            # (K,): overlap of each free component with the components of the target so far.
            overlaps_with_target = overlaps[components].sum(axis=0) * is_free
            neighbour = int(stable_argmax(overlaps_with_target))
            # A component whose overlap is a rounding error is no neighbour.
            if exceeds(overlaps_with_target[neighbour], 0.0, scale=counts[first_component]):
                components.append(neighbour)
                is_free[neighbour] = False
        # Without neighbours, a further birth from this component would fail again if no mixture
        # was better than the component in an earlier birth.
        if n_failures[first_component] >= FAILURES_IF_LOST and len(components) == 1:
            continue
        targets.append(Target(components, ids[components].tolist(), counts[components].tolist()))
    return targets


def collect_rows(
    requests: Sequence[RowRequest], seed: int, model: Mergeable, solved_batch: SolvedBatch,
    tools: ObserverTools,
) -> list[CollectedRows]:  # fmt: skip
    """Return the rows of a batch that each request asks for.

    With the first two arguments bound by `partial`, the function is the observer of births, which
    is called after the local step of each batch. ``seed`` is the seed by which rows of large
    targets are drawn. Each request starts from this seed, so that its rows do not depend on other
    requests.
    """
    batch, collected = solved_batch.batch, list[CollectedRows]()
    for components, max_rows, sampled_share in requests:
        resp = select_responsibilities(solved_batch.result.q, components)
        # (n,): responsibility of the whole target for each row.
        resp_of_target = resp.sum(axis=1)
        is_collected = resp_of_target > MIN_RESPONSIBILITY
        if sampled_share < 1.0:
            is_collected &= np.random.default_rng(seed).random(resp_of_target.size) < sampled_share
        rows = np.flatnonzero(is_collected)[: max(0, max_rows)]
        total = float(batch.weights @ resp_of_target)
        collected.append(CollectedRows(total, batch.X[rows], batch.weights[rows], resp[rows]))
    return collected
