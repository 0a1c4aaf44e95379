"""Memoized inference: exact full-data updates from one batch at a time [HS13 sec. 3]."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skvt.compiled import serial_map
from skvt.contracts import (
    Capability,
    LocalResult,
    LocalTotals,
    Memoizable,
    Move,
    MoveTools,
    PassInputs,
    PassResult,
    Requirement,
    RunningPolicy,
    Stream,
)
from skvt.inference._bound import global_divergence
from skvt.inference._memos import Memo
from skvt.inference._parallel import Workers
from skvt.inference._state import MemoizedState, Rows, State
from skvt.inference._visit import VisitRequest, memo_of
from skvt.progress import Continued
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray, Run

# Maximum number of rounds of moves in one call of a stream.
_MOST_ROUNDS = 5
# Stop after this many consecutive reverted passes.
_MOST_TAKEN_BACK = 2


class MemoVisits(NamedTuple):
    """Arguments shared by the visits of one pass."""

    data: Rows
    workers: Workers
    policy: RunningPolicy
    keys: Iterator[Any]


class MemoizedInference(Continued):
    """Memoized inference for mixtures, with moves at the end of each pass.

    Each batch has a memo: its statistics and the entropies of its assignments. A visit replaces the
    memo and immediately updates the globals. After the first pass, the evidence lower bound of all
    data is thus known exactly at every step, and only births can lower it. With one batch this is
    coordinate ascent. The ``moves`` are made in their order, births last, and only at T = 1.
    """

    kept: ClassVar[dict[str, Any]] = {
        "_moving": bool,
        "_n_passes": int,
        "_reached": float | None,
        "_goes_on": bool,
        "_n_taken_back": int,
    }
    parts = frozenset({"_moves"})
    knows_exact_bound = True
    # whether no pass has yet reached the bound of memos of an earlier fit
    _goes_on = False

    def __init__(self, moves: Sequence[Move] = ()) -> None:
        self._moves = moves
        self.requires = (
            Requirement(
                "Memoized inference",
                Capability.MEMOIZABLE,
                "Use coordinate ascent or stochastic inference instead.",
            ),
            *(requirement for move in moves for requirement in move.requires),
        )
        # whether the last pass was at T = 1, so that moves were made
        self._moving = False
        self._n_passes = 0
        # the exact bound after the last pass at T = 1, of the model at its end
        self._reached: float | None = None
        # number of consecutive passes that were reverted
        self._n_taken_back = 0

    def start(self, state: State, total: float) -> MemoizedState:
        """Keep memos; without memos, statistics represent all rows until these are visited."""
        return MemoizedState(**vars(state))

    # A call of a stream begins as a fit does.
    resume = start

    def run_pass(self, model: Memoizable, state: MemoizedState, inputs: PassInputs) -> PassResult:
        """Make one pass over the batches in random order; return the exact bound at its end.

        ``state`` changes in place. If it has memos of an earlier fit to the same rows, local steps
        without a start may end in other optima; passes that lower the bound are reverted.
        """
        model, may_stop = self.sweep(model, state, inputs)
        totals, divergence = exact_bound(model, state)
        self._reached = totals.untempered - divergence if self._moving else None
        return PassResult(totals, divergence, model, "exact", monotone=True, may_stop=may_stop)

    def sweep(
        self, model: Memoizable, state: MemoizedState, inputs: PassInputs
    ) -> tuple[Memoizable, bool]:
        """Make a pass; return the model, and whether the fit may stop."""
        data, policy, workers, rng = inputs
        if not state.component_ids.size:
            state.begin(model.size(state.stats))
        self._n_passes += 1
        self._moving = policy.at_unit_temperature
        if self._n_passes == 1 and self._moving and len(state.memos):
            state.temper(policy.mean_inv_temp, policy.replication)
            self._reached, self._goes_on = bound_of_all(model, state), True
        mergeable = Capability.MERGEABLE in model.capabilities
        if mergeable and self._moving and not len(state.memos):
            # learn priors from the initial components, which merges compare under these priors
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        moves = self._moves if self._moving else ()
        tools = Tools(self._n_passes, rng, workers)
        # Births begin first, so that the others see the new components, and finish last.
        for move in reversed(moves):
            move.begin(model, state, tools)
            model = move.under_priors(model)
        if policy.jitter > 0.0:
            state.stats.add(model.symmetry_breaking_stats(state.stats, data, policy.jitter, rng))
        # Deterministic local steps never lower the bound, so no checkpoint is needed.
        searches = self._goes_on or Capability.LOCAL_SEARCH in model.capabilities
        before = state.checkpoint() if self._moving and searches else None
        places = data.order()
        keys = rng.permutation(len(places)).tolist()
        visits = MemoVisits(data, workers, policy, iter(keys))
        for batches in data.rounds(model, workers, [places[key] for key in keys]):
            self.visit(model, batches, data.total, state, visits, moves, tools)
        state.resum()
        for move in moves:
            state.move_log.extend(move.finish(model, state, tools))
            model = move.under_priors(model)
        sort_by_mass(model, state)
        # Local steps that search from the beginning may end in a worse optimum; then revert the
        # pass. Accepted moves have raised the bound by more; births of mixtures are checked later.
        reached = self._reached
        if before and reached is not None and exceeds(reached, bound_of_all(model, state)):
            state.restore(before)
            self._n_taken_back += 1
        else:
            self._n_taken_back, self._goes_on = 0, False
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        # convergence needs the gain of a pass in which rows are compared with all components
        judged = any(map(_asks_all, (self._n_passes, self._n_passes + 1)))
        if state.memos.has_candidates and not judged:
            return model, False
        # moves would repeat their proposals after each reverted pass, so stop then
        may_stop = self._n_taken_back >= _MOST_TAKEN_BACK or all(move.exhausted for move in moves)
        return model, may_stop

    def finish(self, model: Memoizable, state: MemoizedState) -> float:
        """Conclude the moves after the last pass. Returns the exact bound in nats."""
        state.forget_candidates()
        for move in self._moves if self._moving else ():
            if move.conclude(model, state):
                sort_by_mass(model, state)
        return bound_of_all(model, state)

    def update(
        self, model: Memoizable, state: MemoizedState, stream: Stream, inputs: PassInputs
    ) -> tuple[Memoizable, float]:
        """Update the memo of one batch of a stream, then make moves that raise the exact bound."""
        data, policy, workers, _ = inputs
        if not state.component_ids.size:
            state.begin(model.size(state.stats))
        key, memos = stream.batch_id, state.memos
        if key is None:
            key = len(memos)
            while key in memos:
                key += 1
        state.join([part for part in stream.parts if part in memos], key)
        (rows,) = data.order()
        batch = data.batch(model, rows)
        seen = memos.weight - (memos[key].weight if key in memos else 0.0)
        total = max(stream.total or 0.0, seen + float(batch.weights.sum()))
        self.visit(model, [batch], total, state, MemoVisits(data, workers, policy, iter([key])))
        if stream.joins is not None:
            state.join([stream.joins, key], stream.joins)
        state.resum()
        moves = self._moves if policy.at_unit_temperature and stream.moves else ()
        rng = stream.make_rng() if moves else np.random.default_rng(0)
        tools = Tools(len(memos), rng, workers)

        def visit_again(parts: Mapping[Hashable, IndexArray]) -> None:
            counted = state.n_steps, state.rows_seen
            batches = [data.batch(model, part) for part in parts.values()]
            visits = MemoVisits(data, workers, policy, iter(parts))
            self.visit(model, batches, total, state, visits)
            state.n_steps, state.rows_seen = counted

        for _ in range(_MOST_ROUNDS):
            n_accepted = 0
            for move in moves:
                records = move.within(model, batch, key, state, tools)
                state.move_log.extend(records)
                n_accepted += sum(record.accepted for record in records)
                model = move.under_priors(model)
            sort_by_mass(model, state)
            if policy.done:
                model = model.with_learned_priors(state.prior_stats, state.plain_stats)
            if n_accepted == 0 and all(move.exhausted for move in moves):
                break
            # rows may still have to move to new components
            visit_again({key: rows})
            state.resum()
        if stream.parts:
            visit_again(stream.parts)
            del state.memos[key]
            state.resum()
        stream.n_rows = state.memos.weight
        return model, 1.0

    def visit(
        self,
        model: Memoizable,
        batches: Sequence[Any],
        total: float,
        state: MemoizedState,
        visits: "MemoVisits",
        moves: Sequence[Move] = (),
        tools: MoveTools | None = None,
    ) -> None:
        """Visit batches at once: their q(z) are independent, so that this is coordinate ascent."""
        data, workers, policy, keys = visits
        weights = [float(batch.weights.sum()) for batch in batches]
        policy.advance(state.rows_seen / total, sum(weights) / total, state.n_steps)
        state.temper(policy.mean_inv_temp, policy.replication)

        selective = Capability.SELECTIVE in model.capabilities
        asks_all = _asks_all(self._n_passes)

        def make_request(batch: Any) -> VisitRequest:
            inv_temp, observers, key = policy.inv_temp(batch), [], next(keys)
            if tools is not None:
                observers = [move.observer(batch.weights.size, tools) for move in moves]
            return VisitRequest(
                model,
                inv_temp,
                policy.mean_inv_temp,
                policy.requested,
                state.row_starts_of(batch),
                bool(self._moves),
                tuple(observers),
                key,
                state.candidates_of(key, batch.n_rows, asks_all) if selective else None,
            )

        def make_globals(batch: Any) -> Any:
            return model.expectation(state.stats, batch, workers.run)

        visited = list(data.visit(batches, make_request, make_globals, workers))
        for found, weight in zip(visited, weights, strict=True):
            assert found.memo is not None  # as requested
            state.store_row_starts(found.rows, found.start)
            state.remember(found.key, found.memo, weight / total)
            state.n_steps += 1
            state.rows_seen += weight
            policy.observe(found, found)
            for move, noted in zip(moves, found.notes, strict=False):
                if noted is not None:
                    move.note(noted)


@dataclass(frozen=True)
class Tools:
    """The tools that engines provide to moves: see `skvt.contracts.MoveTools`."""

    n_iter: int
    rng: np.random.Generator
    workers: Workers

    @property
    def run(self) -> Run:
        """The threads of the fit."""
        return self.workers.run

    def memo_of(self, model: Memoizable, result: LocalResult, batch: Any) -> Memo:
        """Return the memo of a batch after its local step."""
        return memo_of(model, result, batch, self.workers.run, pairs=True)

    def separate_fit(
        self,
        model: Memoizable,
        X: Any,
        weights: Array,
        policy: RunningPolicy,
        *,
        n_batches: int = 1,
        seeds: IndexArray | None = None,
    ) -> tuple[MemoizedState, Callable[[Any, Sequence[Move]], tuple[Any, bool]]]:
        """Begin a fit of these rows; initial components are chosen among the rows ``seeds``."""
        data = sample = Rows(X, weights, max(1, -(-weights.size // n_batches)))
        if seeds is not None:
            sample = Rows(X[seeds], weights[seeds], seeds.size, data.total)
        state = MemoizedState(model.initial(sample, self.rng))
        engine, inputs = MemoizedInference(), PassInputs(data, policy, self.workers, self.rng)

        def sweep(model: Memoizable, moves: Sequence[Move]) -> tuple[Memoizable, bool]:
            engine._moves = moves
            return engine.sweep(model, state, inputs)

        return state, sweep


def _asks_all(n_passes: int) -> bool:
    """Return whether rows are compared with all components: in streams, passes 1, 2, 4, 8, ..."""
    return n_passes & (n_passes - 1) == 0


def exact_bound(model: Memoizable, state: MemoizedState) -> tuple[LocalTotals, float]:
    """Return the local totals of all memos and the divergence of the globals, in nats."""
    memo = state.memos.total()
    entropy, weight = float(memo.entropy.sum()), memo.weight
    del memo  # it is as large as the globals
    model, stats = model.compact(state.stats)
    plain = stats.scaled(1.0 / (state.inv_temp * state.replication))
    energy = model.statistics_energy(plain, model.expectation(stats, None, serial_map))
    tempered = state.inv_temp * energy + entropy
    totals = LocalTotals(tempered, energy + entropy, weight)
    return totals, global_divergence(model, stats)


def bound_of_all(model: Memoizable, state: MemoizedState) -> float:
    """Return the exact bound of all memos, in nats."""
    totals, divergence = exact_bound(model, state)
    return totals.untempered - divergence


def sort_by_mass(model: Memoizable, state: MemoizedState) -> None:
    """Put the components into the order that the model prefers."""
    order = model.best_order(state.stats)
    if order is not None:
        state.rearrange(order)
        state.resum()
