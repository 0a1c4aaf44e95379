"""Deletes: give the rows of a nearly empty component to other components if the exact bound rises.

The *memo* of a batch has the statistics and entropies of the batch, from which the bound is
computed. A delete makes local steps with and without the component, to find how each memo would
change.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial

import numpy as np

from skvt.contracts import (
    Memo,
    Mergeable,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    SolvedBatch,
)
from skvt.moves._base import (
    compute_bound,
    find_rounding_scale,
    make_requirements,
    select_responsibilities,
)
from skvt.moves._merge import dissolve
from skvt.moves._trial import Decision, decide
from skvt.ties import exceeds, stable_argmax, stable_order

# A component is a candidate for a delete if its expected number of rows is smaller than
# MAX_ROWS_OF_CANDIDATE, or smaller than MAX_SHARE_OF_CANDIDATE times the mean number of rows of a
# component.
MAX_ROWS_OF_CANDIDATE = 2.0
MAX_SHARE_OF_CANDIDATE = 0.05
# Maximum number of candidates of a pass.
MAX_CANDIDATES = 3
# A row for which the candidate has a smaller responsibility is not reassigned, which changes the
# bound by less than 1e-12 nats per row.
_MIN_RESPONSIBILITY = 1e-14


class Delete(Move):
    """In each pass, delete the candidate whose delete raises the bound most, if any does.

    During the pass, local steps of each candidate's rows are made with and without the candidate.
    The exact bound of all rows without the candidate is therefore known after the pass.
    """

    requires = make_requirements("A delete")

    def __init__(self) -> None:
        # Numbers of the candidates of the pass, set by `begin`.
        self._candidates: list[int] = []
        # For each candidate, the change of the memo of each batch by the delete of the candidate,
        # with the key of the batch. `store_notes` adds the changes during the pass.
        self._changes: dict[int, dict[Hashable, Memo]] = {}

    def begin(self, model: Mergeable, state: MovableState, tools: MoveTools) -> None:
        """Choose the candidates: the smallest components, if they are small enough."""
        counts = model.component_masses(state.plain_stats.as_stats())
        max_count = max(MAX_ROWS_OF_CANDIDATE, MAX_SHARE_OF_CANDIDATE * counts.sum() / counts.size)
        candidates = stable_order(counts, scale=float(counts.sum()))[:MAX_CANDIDATES]
        candidates = candidates[exceeds(max_count, counts[candidates])]
        self._candidates = candidates.tolist() if counts.size > 1 else []
        self._changes = {k: {} for k in self._candidates}

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return an observer that computes how the memo of a batch changes by each delete."""
        return partial(_compute_changes, tuple(self._candidates)) if self._candidates else None

    def store_notes(self, notes: tuple[Hashable, dict[int, Memo]]) -> None:
        """Keep the changes of the memo of a batch, which the observer has returned."""
        key, changes = notes
        for k, change in changes.items():
            self._changes[k][key] = change

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Delete the best candidate if the bound rises; return a record for each candidate."""
        self.exhausted = True
        if not self._candidates:
            return []
        total_memo = state.memos.total()
        bound = compute_bound(model, total_memo)
        # Scale of the rounding errors of the bound, in nats.
        scale = find_rounding_scale(bound, total_memo)
        gains = []
        for k in self._candidates:
            memo_without = total_memo
            for change in self._changes[k].values():
                memo_without = memo_without.plus(change)
            kept_components = np.delete(np.arange(memo_without.entropy.size), k)
            gains.append(compute_bound(model, memo_without.rearranged(kept_components)) - bound)
        best_candidate = self._candidates[int(stable_argmax(gains, scale=scale))]
        records = []
        for k, gain in zip(self._candidates, gains, strict=True):
            decision = decide(gain, scale)
            if decision.is_accepted and k != best_candidate:
                reason = "The delete of another raises the bound more."
                decision = Decision(is_accepted=False, gain=gain, reason=reason)
            records.append(decision.record(tools.n_iter, "delete", [k], "its rows to the others"))
        self.exhausted = not any(record.accepted for record in records)
        if not self.exhausted:
            for key, change in self._changes[best_candidate].items():
                state.memos[key] = state.memos[key].plus(change)
            state.rearrange(np.delete(np.arange(state.component_ids.size), best_candidate))
            state.resum()
        return records

    def conclude(self, model: Mergeable, state: MovableState) -> bool:
        """Dissolve components of less than a row at the end of a fit.

        Return True, which tells the engine that components may have changed.
        """
        dissolve(model, state)
        return True


def _compute_changes(
    candidates: tuple[int, ...], model: Mergeable, solved_batch: SolvedBatch, tools: ObserverTools
) -> tuple[Hashable, dict[int, Memo]]:
    """Return the key of a batch, and the change of its memo by the delete of each candidate.

    Candidates without rows in the batch are left out. With ``candidates`` bound by `partial`, the
    function is the observer of deletes.
    """
    batch, changes = solved_batch.batch, dict[int, Memo]()
    for k in candidates:
        resp = select_responsibilities(solved_batch.result.q, [k])[:, 0]
        rows = np.flatnonzero(resp > _MIN_RESPONSIBILITY)
        if rows.size == 0:
            continue
        candidate_rows = model.batch(batch.X, rows, batch.weights[rows])
        # If each row was compared only with its candidate components, keep these components.
        if batch.candidates is not None:
            candidate_rows = replace(candidate_rows, candidates=batch.candidates[rows])
        # Make the local step of these rows with and without component k, at the temperature 1.
        result = model.local_step(candidate_rows, solved_batch.global_params, 1.0, tools.run)
        globals_without = model.without_component(solved_batch.global_params, k)
        result_without = model.local_step(candidate_rows, globals_without, 1.0, tools.run)
        memo = tools.make_memo(model, result, candidate_rows)
        changes[k] = tools.make_memo(model, result_without, candidate_rows).plus(memo, sign=-1.0)
    return solved_batch.key, changes
