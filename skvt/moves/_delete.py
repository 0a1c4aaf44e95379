"""Deletes: assign a nearly empty component's rows to the others if the exact bound rises."""

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
    Solved,
)
from skvt.moves._base import bound_of, of_components, shares_of, size_of
from skvt.moves._merge import dissolve
from skvt.moves._trial import Outcome, judged
from skvt.ties import exceeds, stable_argmax, stable_order

# Components with fewer rows than this, or a twentieth of an equal share, are candidates.
FEWEST_ROWS = 2.0
SMALLEST_SHARE = 0.05
MOST_CANDIDATES = 3
# Rows with a smaller responsibility are not reassigned, which costs less than 1e-12 nats a row.
_LEAST = 1e-14


class Delete(Move):
    """Delete the candidate that contributes least, one per pass.

    During the pass, the rows of each candidate are also assigned without the candidate, so that the
    exact statistics and bound without it are known at the end.
    """

    requires = of_components("A delete")

    def __init__(self) -> None:
        self._candidates: list[int] = []
        # by candidate, the change of each batch's memo if the candidate were deleted
        self._changes: dict[int, dict[Hashable, Memo]] = {}

    def begin(self, model: Mergeable, state: MovableState, tools: MoveTools) -> None:
        counts = model.component_masses(state.plain_stats.value())
        small = max(FEWEST_ROWS, SMALLEST_SHARE * counts.sum() / counts.size)
        order = stable_order(counts, scale=float(counts.sum()))[:MOST_CANDIDATES]
        order = order[exceeds(small, counts[order])]
        self._candidates = order.tolist() if counts.size > 1 else []
        self._changes = {k: {} for k in self._candidates}

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Compute the batch's memo without each candidate."""
        return partial(_changes_without, tuple(self._candidates)) if self._candidates else None

    def note(self, noted: tuple[Hashable, dict[int, Memo]]) -> None:
        """Keep the changes of a batch's memo."""
        key, changes = noted
        for k, change in changes.items():
            self._changes[k][key] = change

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Delete the best candidate if the bound rises."""
        self.exhausted = True
        if not self._candidates:
            return []
        total = state.memos.total()
        before, gains = bound_of(model, total), []
        size = size_of(before, total)
        for k in self._candidates:
            memo = total
            for change in self._changes[k].values():
                memo = memo.plus(change)
            kept = np.delete(np.arange(memo.entropy.size), k)
            gains.append(bound_of(model, memo.rearranged(kept)) - before)
        best = self._candidates[int(stable_argmax(gains, scale=size))]
        records = []
        for k, gain in zip(self._candidates, gains, strict=True):
            outcome = judged(gain, size)
            if outcome.is_accepted and k != best:
                outcome = Outcome(False, gain, "The delete of another raises the bound more.")
            records.append(outcome.record(tools.n_iter, "delete", [k], "its rows to the others"))
        self.exhausted = not any(record.accepted for record in records)
        if not self.exhausted:
            for key, change in self._changes[best].items():
                state.memos[key] = state.memos[key].plus(change)
            state.rearrange(np.delete(np.arange(state.component_ids.size), best))
            state.resum()
        return records

    def conclude(self, model: Mergeable, state: MovableState) -> bool:
        """Remove components of less than one row at the end of a fit."""
        dissolve(model, state)
        return True


def _changes_without(
    candidates: tuple[int, ...], model: Mergeable, solved: Solved, tools: ObserverTools
) -> tuple[Hashable, dict[int, Memo]]:
    """Return the key of a batch, and the change of its memo if a candidate were deleted."""
    batch, changes = solved.batch, dict[int, Memo]()
    for k in candidates:
        rows = np.flatnonzero(shares_of(solved.result.q, [k])[:, 0] > _LEAST)
        if rows.size == 0:
            continue
        part = model.batch(batch.X, rows, batch.weights[rows])
        if batch.candidates is not None:
            part = replace(part, candidates=batch.candidates[rows])
        with_it = model.local_step(part, solved.global_params, 1.0, tools.run)
        others = model.without_component(solved.global_params, k)
        without = model.local_step(part, others, 1.0, tools.run)
        before = tools.memo_of(model, with_it, part)
        changes[k] = tools.memo_of(model, without, part).plus(before, sign=-1.0)
    return solved.key, changes
