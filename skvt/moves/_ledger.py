"""The *ledger* of a move: its failed proposals, by which the move decides what to try again.

A *proposal* is a change of the components of a model.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from skvt.files import in_files
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray

# The failures of a target are forgotten if its mass has changed by more than this fraction since
# the last failure.
MAX_MASS_CHANGE = 0.1
# All failures are forgotten if the log-normalisers of the learned priors have changed by more than
# this number of nats. The number is doubled after each such change, because late changes of many
# prior parameters do not affect proposals.
MIN_PRIOR_CHANGE = 5.0


@in_files("moves.Ledger")
@dataclass(frozen=True)
class Ledger:
    """The failures of a move, and the pause until its next search for changes.

    A *target* is a component or topic that a proposal would change; it has an id. The *mass* of a
    target is its expected number of rows or tokens. The ledger is immutable: each method that
    records an event returns a changed ledger.
    """

    # By the id of each target that has failed: its mass at the last failure, and the number of its
    # failures.
    failures: dict[int, tuple[float, int]] = field(default_factory=dict)
    # Change of the mass of a target, as a fraction, after which its failures are forgotten.
    same_mass: float = MAX_MASS_CHANGE
    # Number of failed proposals, minus the failed proposals that successes have cancelled.
    n_in_vain: int = 0
    # Log-normaliser, in nats, of the priors under which the proposals failed; None before the first
    # pass.
    prior: float | None = None
    # Change of ``prior`` after which all failures are forgotten, in nats.
    other_prior: float = MIN_PRIOR_CHANGE
    # Ids of all present and former targets.
    ids: frozenset[int] = frozenset()
    # Number of passes of the last pause between two searches for changes.
    pause: int = 0
    # Number of passes until the next search.
    waiting: int = 0

    def count_failures(self, ids: Iterable[int], masses: Iterable[float]) -> IndexArray:
        """Return the number of failures of each target, (n,).

        The number is 0 if the mass of the target has changed since its last failure.
        """
        failures = [self.failures.get(int(target_id), (0.0, 0)) for target_id in ids]
        # The reshape keeps two columns if there are no targets.
        old_masses, n_failures = np.array(failures).reshape(-1, 2).T
        changes = np.abs(np.asarray(masses) - old_masses)
        has_changed = exceeds(changes, self.same_mass * old_masses, scale=old_masses)
        return np.where(has_changed, 0, n_failures).astype(np.int64)

    def record_failure(self, ids: list[int], masses: list[float] | Array, number: int = 1) -> Self:
        """Record a failed proposal, as ``number`` failures of each of its targets."""
        n_failures = (self.count_failures(ids, masses) + number).tolist()
        targets = zip(ids, masses, n_failures, strict=True)
        new_failures = {target_id: (float(mass), n) for target_id, mass, n in targets}
        return replace(self, failures=self.failures | new_failures, n_in_vain=self.n_in_vain + 1)

    def record_success(self, cancelled: int, ids: list[int], masses: list[float] | Array) -> Self:
        """Record a successful proposal, which cancels ``cancelled`` failed proposals.

        A failure of each target is recorded, so that the target is not tried again until its mass
        changes.
        """
        n_in_vain = max(0, self.n_in_vain - cancelled)
        return replace(self.record_failure(ids, masses), n_in_vain=n_in_vain)

    def forget_if_priors_changed(self, model: Any) -> Self:
        """Forget all failures if the learned priors of the model have changed a lot.

        Proposals that failed under the old priors may succeed under the new priors.
        """
        blocks = zip(model.families, model.prior().arrays, strict=True)
        log_normalizers = (family.log_normalizer(eta) for family, eta in blocks)
        prior = sum(float(np.sum(values)) for values in log_normalizers)
        if self.prior is None:
            return replace(self, prior=prior)
        if abs(prior - self.prior) <= self.other_prior:
            return self
        return replace(self, failures={}, prior=prior, other_prior=2.0 * self.other_prior)

    def record_targets(self, ids: IndexArray) -> Self:
        """Record the ids of the present targets.

        If any target is new, the pause ends, and the count of failed proposals restarts.
        """
        current_ids = frozenset(ids.tolist())
        if current_ids <= self.ids:
            return self
        return replace(self, ids=self.ids | current_ids, n_in_vain=0, pause=0, waiting=0)

    def record_pass(self) -> Self:
        """Record a pass of the pause."""
        return replace(self, waiting=self.waiting - 1)

    def record_search(self, has_succeeded: bool, max_pause: float = float("inf")) -> Self:
        """Record a search for changes, and begin the pause after the search.

        There is no pause if the search has succeeded. Otherwise the pause has one pass more than
        twice the last pause, and at most ``max_pause`` passes.
        """
        pause = 0 if has_succeeded else int(min(2 * self.pause + 1, max_pause))
        return replace(self, pause=pause, waiting=pause)
