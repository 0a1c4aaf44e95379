"""The ledger of a move: which proposals failed, and when they are worth another try."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from skvt.files import in_files
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray

# A target counts as untried if its mass has changed by a larger fraction since its failures.
SAME_MASS = 0.1
# Nats by which the priors' log-normalisers must change before failures are forgotten. The number
# doubles each time, since late changes of many prior parameters do not affect proposals.
OTHER_PRIOR = 5.0


@in_files("moves.Ledger")
@dataclass(frozen=True)
class Ledger:
    """What failed, for whom, at which mass and under which priors, and when to try again.

    A target is a component or topic, known by its id. The ledger is a value: each method that
    records something returns a changed ledger.
    """

    # Mass and number of failures of each target that failed, by id.
    failures: dict[int, tuple[float, int]] = field(default_factory=dict)
    # Change of a target's mass, as a fraction of it, after which it counts as untried.
    same_mass: float = SAME_MASS
    # Number of failures of all targets, less those that successes cancelled.
    n_in_vain: int = 0
    # Log-normaliser of the priors under which they failed, in nats; None before the first pass.
    prior: float | None = None
    # Change of the priors that makes failures obsolete, in nats.
    other_prior: float = OTHER_PRIOR
    # Ids of all targets up to now.
    ids: frozenset[int] = frozenset()
    # Number of passes from the last search in vain to the next, and number of those left.
    pause: int = 0
    waiting: int = 0

    def tries(self, ids: Iterable[int], masses: Iterable[float]) -> IndexArray:
        """Return how often each target has failed since its mass last changed."""
        before = [self.failures.get(int(id_), (0.0, 0)) for id_ in ids]
        then, number = np.array(before).reshape(-1, 2).T
        changed = exceeds(np.abs(np.asarray(masses) - then), self.same_mass * then, scale=then)
        return np.where(changed, 0, number).astype(np.int64)

    def failed(self, ids: list[int], masses: list[float] | Array, number: int = 1) -> Self:
        """Count ``number`` more failures of each target, at these masses."""
        tries = (self.tries(ids, masses) + number).tolist()
        now = {id_: (float(m), n) for id_, m, n in zip(ids, masses, tries, strict=True)}
        return replace(self, failures=self.failures | now, n_in_vain=self.n_in_vain + 1)

    def succeeded(self, cancelled: int, ids: list[int], masses: list[float] | Array) -> Self:
        """Subtract failures that a success cancels; these targets wait until their mass changes."""
        n_in_vain = max(0, self.n_in_vain - cancelled)
        return replace(self.failed(ids, masses), n_in_vain=n_in_vain)

    def under(self, model: Any) -> Self:
        """Forget failures if the learned priors have changed, since the proposals may succeed."""
        blocks = zip(model.families, model.prior().arrays, strict=True)
        now = sum(float(np.sum(family.log_normalizer(prior))) for family, prior in blocks)
        if self.prior is None:
            return replace(self, prior=now)
        if abs(now - self.prior) <= self.other_prior:
            return self
        return replace(self, failures={}, prior=now, other_prior=2.0 * self.other_prior)

    def among(self, ids: IndexArray) -> Self:
        """End pauses and the count of failures in a row if there are new targets."""
        now = frozenset(ids.tolist())
        if now <= self.ids:
            return self
        return replace(self, ids=self.ids | now, n_in_vain=0, pause=0, waiting=0)

    def next_pass(self) -> Self:
        """Count a pass of the pause."""
        return replace(self, waiting=self.waiting - 1)

    def searched(self, has_succeeded: bool, longest: float = float("inf")) -> Self:
        """Begin the pause after a search: twice as long as the last, or none after a success."""
        pause = 0 if has_succeeded else int(min(2 * self.pause + 1, longest))
        return replace(self, pause=pause, waiting=pause)
