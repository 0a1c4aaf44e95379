"""Visits of memoized inference: local steps of batches, which replace the memos of the batches."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from skvt.contracts import Capability, Memoizable, Move, MoveTools, RunningPolicy
from skvt.inference._parallel import Workers
from skvt.inference._state import MemoizedState, Rows
from skvt.inference._visit import VisitRequest
from skvt.progress import Continued


class MemoVisits(NamedTuple):
    """Arguments that the visits of one pass share."""

    data: Rows
    workers: Workers
    policy: RunningPolicy
    # The keys of the memos of the batches, in the order of the visits.
    keys: Iterator[Any]


class MemoVisitor(Continued):
    """Base of memoized inference, which visits batches."""

    # The moves of the engine, in their order.
    _moves: Sequence[Move]
    # Number of passes so far, with the current one.
    _n_passes: int

    def visit(
        self,
        model: Memoizable,
        batches: Sequence[Any],
        total: float,
        state: MemoizedState,
        visits: MemoVisits,
        moves: Sequence[Move] = (),
        tools: MoveTools | None = None,
    ) -> None:
        """Visit batches with the same globals, and replace their memos.

        This is a step of coordinate ascent, because the q(z) of the batches are independent.
        ``total`` is the weight of all rows of the fit.
        """
        data, workers, policy, keys = visits
        weights = [float(batch.weights.sum()) for batch in batches]
        policy.advance(state.rows_seen / total, sum(weights) / total, state.n_steps)
        state.temper(policy.mean_inv_temp, policy.replication)

        is_selective = Capability.SELECTIVE in model.capabilities
        visits_all = visits_all_components(self._n_passes)

        def make_request(batch: Any) -> VisitRequest:
            inv_temp, observers, key = policy.inv_temp(batch), [], next(keys)
            if tools is not None:
                observers = [move.observer(batch.weights.size, tools) for move in moves]
            candidates = None
            if is_selective:
                candidates = state.candidates_of(key, batch.n_rows, visits_all)
            return VisitRequest(
                model,
                inv_temp,
                policy.mean_inv_temp,
                policy.requested,
                state.row_starts_of(batch),
                pair_entropies=bool(self._moves),
                observers=tuple(observers),
                key=key,
                candidates=candidates,
            )

        def make_globals(batch: Any) -> Any:
            return model.expectation(state.stats, batch, workers.run)

        results = list(data.visit(batches, make_request, make_globals, workers))
        for result, weight in zip(results, weights, strict=True):
            # The request has asked for a memo.
            assert result.memo is not None
            state.store_row_starts(result.rows, result.start)
            state.remember(result.key, result.memo, weight / total)
            state.n_steps += 1
            state.rows_seen += weight
            policy.observe(result, result)
            for move, notes in zip(moves, result.notes, strict=False):
                if notes is not None:
                    move.note(notes)


def visits_all_components(n_passes: int) -> bool:
    """Return whether a pass compares rows with all components, not only with their candidates.

    The passes 1, 2, 4, 8, ... do so, and calls of a stream, which do not count passes.
    """
    return n_passes & (n_passes - 1) == 0
