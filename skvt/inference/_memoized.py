"""Memoized inference: exact updates for all data from a single batch at a time [HS13 sec. 3].

A *visit* makes the local step of a batch and replaces the *memo* of the batch: its statistics and
the entropies of its assignments. *Moves*, such as births, merges and deletes, change the number of
components between passes. They are made only at the temperature T = 1, because the memos give the
change of the bound by a move only at T = 1. :class:`MemoizedInference` is the engine, that is, the
inference algorithm. :class:`EngineTools` provides moves with memos of batches and with fits of a
few rows.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from skvt.contracts import (
    Capability,
    LocalResult,
    Memoizable,
    Move,
    MoveRecord,
    PassInputs,
    PassResult,
    Requirement,
    RunningPolicy,
    Stream,
)
from skvt.inference._bound import compute_bound_parts, compute_exact_bound
from skvt.inference._memos import Memo, find_unused_key
from skvt.inference._parallel import Workers
from skvt.inference._state import MemoizedState, Rows, State
from skvt.inference._visit import VisitRequest, make_memo
from skvt.progress import ResumableMixin
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray, Run

# Maximum number of rounds in a call of `MemoizedInference.update`; a round makes each move once.
_MAX_ROUNDS_OF_MOVES = 5
# A fit may stop after this number of consecutive passes that were reverted.
_MAX_REVERTED_PASSES = 2


class MemoizedInference(ResumableMixin):
    """Memoized inference for models with the capability ``MEMOIZABLE``, with moves at T = 1.

    A visit of a batch replaces its memo and immediately updates the global parameters. After the
    first pass, the evidence lower bound of all data is therefore known exactly after every visit.
    The bound never falls, with two exceptions: a birth may add components for a trial, and a local
    step may end in a worse optimum than before. With a single batch, the algorithm is coordinate
    ascent. The ``moves`` act after each pass, in their order. Births must be last, so that merges
    and deletes come first.
    """

    kept_attributes: ClassVar[dict[str, Any]] = {
        "_at_unit_temperature": bool,
        "_n_passes": int,
        "_last_bound": float | None,
        "_is_continued": bool,
        "_n_reverted_passes": int,
    }
    kept_parts = frozenset({"_moves"})
    knows_exact_bound = True
    # Whether the fit began with memos of an earlier fit, and has kept no pass yet. Such a fit keeps
    # a pass only if the bound does not fall, because the earlier memos may be better.
    _is_continued = False

    def __init__(self, moves: Sequence[Move] = ()) -> None:
        self._moves = moves
        remedy = "Use coordinate ascent or stochastic inference instead."
        memo_requirement = Requirement("Memoized inference", Capability.MEMOIZABLE, remedy)
        self.requires = memo_requirement, *chain.from_iterable(move.requires for move in moves)
        # Whether the last pass was at T = 1, so that moves were made.
        self._at_unit_temperature = False
        # Number of passes so far; 0 in a stream.
        self._n_passes = 0
        # The exact bound in nats after the last pass; None if the pass was not at T = 1.
        self._last_bound: float | None = None
        # Number of consecutive passes that were reverted.
        self._n_reverted_passes = 0

    def start(self, state: State, total: float) -> MemoizedState:
        """Return the state of memoized inference, with the memos of ``state`` if it has any."""
        return MemoizedState(**vars(state))

    def run_pass(self, model: Memoizable, state: MemoizedState, inputs: PassInputs) -> PassResult:
        """Make a pass over the batches in random order; return the exact bound at its end.

        ``state`` changes in place. A pass at T = 1 is reverted if it lowers the bound. Two cases
        make a lower bound possible: local steps search for an optimum at each visit, or ``state``
        has memos of an earlier fit to the same rows, whose local steps ended in better optima.
        """
        model, may_stop = self.sweep(model, state, inputs)
        totals, divergence = compute_bound_parts(model, state)
        self._last_bound = totals.untempered - divergence if self._at_unit_temperature else None
        return PassResult(totals, divergence, model, "exact", monotone=True, may_stop=may_stop)

    def sweep(
        self, model: Memoizable, state: MemoizedState, inputs: PassInputs
    ) -> tuple[Memoizable, bool]:
        """Make a pass and its moves; return the model, and whether convergence may be judged.

        See :meth:`run_pass` for the arguments.
        """
        data, policy, workers, rng = inputs
        if not state.component_ids.size:
            state.begin(model.size(state.stats))
        self._n_passes += 1
        self._at_unit_temperature = policy.at_unit_temperature
        # If the state has memos of an earlier fit, passes must not lower the bound of the memos.
        if self._n_passes == 1 and self._at_unit_temperature and len(state.memos):
            state.temper(policy.mean_inv_temp, policy.replication)
            self._last_bound = compute_exact_bound(model, state)
            self._is_continued = True
        is_mergeable = Capability.MERGEABLE in model.capabilities
        if is_mergeable and self._at_unit_temperature and not len(state.memos):
            # Learn priors from the initial components, because merges compare bounds under learned
            # priors.
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        moves = self._moves if self._at_unit_temperature else ()
        tools = EngineTools(self._n_passes, rng, workers)
        # Begin the moves in reversed order, so that births, the last of ``moves``, add components
        # before the other moves look at the components.
        for move in reversed(moves):
            move.begin(model, state, tools)
            model = move.update_priors(model)
        # At T > 1, add noise, because components that are equal would stay equal.
        if policy.jitter > 0.0:
            state.stats.add(model.symmetry_breaking_stats(state.stats, data, policy.jitter, rng))
        # Make a checkpoint only if local steps may end in worse optima than before, and the bound
        # before the pass is known. See `run_pass` for the two cases.
        may_lower_bound = self._is_continued or Capability.LOCAL_SEARCH in model.capabilities
        may_revert = self._at_unit_temperature and may_lower_bound and self._last_bound is not None
        checkpoint = state.checkpoint() if may_revert else None
        model_before = model
        # Visit the batches in random order. The key of a batch is its number in the order of rows.
        rows_of_batches = data.list_batches()
        keys = rng.permutation(len(rows_of_batches)).tolist()
        shuffled_batches = [rows_of_batches[key] for key in keys]
        remaining_keys = iter(keys)
        for batches in data.group_batches(model, workers, shuffled_batches):
            self.visit(model, batches, data.total, state, inputs, remaining_keys, moves)
        state.resum()
        # Let the moves change the components, then sort the components.
        n_records = len(state.move_log)
        for move in moves:
            state.move_log.extend(move.finish(model, state, tools))
            model = move.update_priors(model)
        sort_components(model, state)
        # Revert the pass if the exact bound is now lower than the bound before the pass.
        if checkpoint and exceeds(self._last_bound, compute_exact_bound(model, state)):
            state.restore(checkpoint)
            state.move_log[n_records:] = map(_mark_reverted, state.move_log[n_records:])
            model = model_before
            self._n_reverted_passes += 1
        else:
            self._n_reverted_passes = 0
            self._is_continued = False
        if policy.done:
            model = model.with_learned_priors(state.prior_stats, state.plain_stats)
        # If rows have candidates, convergence is judged by the gains of the passes 1, 2, 4, 8, ...,
        # which compare rows with all components. A gain is the difference of two bounds: of such a
        # pass, and of the pass before it.
        n_passes = self._n_passes
        is_judged = _visits_all_components(n_passes) or _visits_all_components(n_passes + 1)
        if state.memos.has_candidates and not is_judged:
            return model, False
        # Moves repeat their proposals after a reverted pass, so that they may never be exhausted.
        is_stuck = self._n_reverted_passes >= _MAX_REVERTED_PASSES
        return model, is_stuck or all(move.exhausted for move in moves)

    def finish(self, model: Memoizable, state: MemoizedState) -> float:
        """Conclude the moves after the last pass; return the exact bound in nats."""
        state.forget_candidates()
        for move in self._moves if self._at_unit_temperature else ():
            if move.conclude(model, state):
                sort_components(model, state)
        return compute_exact_bound(model, state)

    def update(
        self, model: Memoizable, state: MemoizedState, stream: Stream, inputs: PassInputs
    ) -> tuple[Memoizable, float]:
        """Update the memo of a batch of a stream, then make moves that raise the exact bound.

        ``inputs`` have the rows of the batch. Return the model, and 1 as the step size. ``state``
        and ``stream`` change in place.
        """
        data, policy, workers, _ = inputs
        if not state.component_ids.size:
            state.begin(model.size(state.stats))
        memos = state.memos
        key = find_unused_key(memos) if stream.batch_id is None else stream.batch_id
        # The rows are a batch, or join an earlier batch after the visit (``joined_batch_id``), or
        # are several batches (``rows_of_batches``). Several batches are one batch during this call:
        # the sum of their earlier memos is the memo that the visit replaces.
        earlier_keys = [batch_id for batch_id in stream.rows_of_batches if batch_id in memos]
        state.join_memos(earlier_keys, key)
        (rows,) = data.list_batches()
        batch = data.batch(model, rows)
        # The weight of the whole stream is at least the weight of all memos after the visit.
        weight_of_others = memos.weight - (memos[key].weight if key in memos else 0.0)
        weight_of_all = weight_of_others + float(batch.weights.sum())
        total_weight = max(stream.total_samples or 0.0, weight_of_all)
        self.visit(model, [batch], total_weight, state, inputs, iter([key]))
        # If the rows join an earlier batch, add their memo to the memo of the earlier batch.
        if stream.joined_batch_id is not None:
            state.join_memos([stream.joined_batch_id, key], stream.joined_batch_id)
        state.resum()
        moves = self._moves if policy.at_unit_temperature and stream.tries_moves else ()
        # Call ``make_rng`` only for moves, because it may advance the user's ``random_state``.
        rng = stream.make_rng() if moves else np.random.default_rng(0)
        tools = EngineTools(len(memos), rng, workers, stream.n_judged)

        def visit_again(rows_of_batches: Mapping[Hashable, IndexArray]) -> None:
            """Visit batches again, without counting the rows and the steps again.

            ``rows_of_batches`` has the rows of each batch by the key of its memo.
            """
            n_steps, rows_seen = state.n_steps, state.rows_seen
            batches = [data.batch(model, rows) for rows in rows_of_batches.values()]
            self.visit(model, batches, total_weight, state, inputs, iter(rows_of_batches))
            state.n_steps, state.rows_seen = n_steps, rows_seen

        # Make rounds of moves until no proposal is accepted, but at most _MAX_ROUNDS_OF_MOVES.
        for _ in range(_MAX_ROUNDS_OF_MOVES):
            n_accepted = 0
            for move in moves:
                records = move.change_within_batch(model, batch, key, state, tools)
                state.move_log.extend(records)
                n_accepted += sum(record.accepted for record in records)
                model = move.update_priors(model)
            sort_components(model, state)
            if policy.done:
                model = model.with_learned_priors(state.prior_stats, state.plain_stats)
            if n_accepted == 0 and all(move.exhausted for move in moves):
                break
            # Visit the batch again, because its rows may have to move to new components.
            visit_again({key: rows})
            state.resum()
        if stream.rows_of_batches:
            # Replace the memo of all rows by a memo of each batch.
            visit_again(stream.rows_of_batches)
            del state.memos[key]
            state.resum()
        stream.n_rows = state.memos.weight
        return model, 1.0

    def visit(
        self, model: Memoizable, batches: Sequence[Any], total_weight: float, state: MemoizedState,
        inputs: PassInputs, keys: Iterator[Any], moves: Sequence[Move] = (),
    ) -> None:  # fmt: skip
        """Visit batches with the same global parameters, and replace their memos.

        The visits are a step of coordinate ascent, because the posteriors q(z) of the local
        variables of different batches are independent. ``total_weight`` is the weight of all rows
        of the fit. The iterator ``keys`` yields the key of the memo of each batch; the keys of
        later batches stay in the iterator. ``moves`` observe the batches.
        """
        data, policy, workers, rng = inputs
        tools = EngineTools(self._n_passes, rng, workers)
        weights_of_batches = [float(batch.weights.sum()) for batch in batches]
        # Set the temperature. The arguments are the number of passes so far, the share of a pass
        # that the visits make, and the number of steps so far.
        share_of_pass = sum(weights_of_batches) / total_weight
        policy.advance(state.rows_seen / total_weight, share_of_pass, state.n_steps)
        state.temper(policy.mean_inv_temp, policy.replication)

        is_selective = Capability.SELECTIVE in model.capabilities
        visits_all_components = _visits_all_components(self._n_passes)

        def make_request(batch: Any) -> VisitRequest:
            inv_temp, key = policy.inv_temp(batch), next(keys)
            candidates = None
            if is_selective:
                candidates = state.candidates_of(key, batch.n_rows, visits_all_components)
            # Only moves need the losses of entropy by merges.
            return VisitRequest(
                model, inv_temp, policy.mean_inv_temp, policy.step_options,
                row_starts=state.row_starts_of(batch),
                makes_memo=True, with_pair_entropies=bool(self._moves),
                observers=tuple(move.make_observer(batch.weights.size, tools) for move in moves),
                key=key, candidates=candidates,
            )  # fmt: skip

        make_globals = partial(model.expectation, state.stats, run=workers.run)
        results = list(data.visit(batches, make_request, make_globals, workers))
        for result, weight in zip(results, weights_of_batches, strict=True):
            assert result.memo is not None
            state.store_row_starts(result.rows, result.row_starts)
            state.replace_memo(result.key, result.memo, weight / total_weight)
            state.n_steps += 1
            state.rows_seen += weight
            # The result also serves as the batch, because it has the rows and weights.
            policy.observe(result, result)
            for move, notes in zip(moves, result.notes, strict=False):
                if notes is not None:
                    move.store_notes(notes)


@dataclass(frozen=True)
class EngineTools:
    """The tools that engines provide to moves: see `skvt.contracts.MoveTools`."""

    # Number of the pass, from 1; for the moves of a stream, the number of memos.
    n_iter: int
    # Random numbers for draws of the moves.
    rng: np.random.Generator
    workers: Workers
    # In a stream, births were tried before among the first ``n_judged`` rows of the batch; None if
    # births cannot wait for rows of later calls. See `skvt.contracts.Stream`.
    n_judged: int | None = None

    @property
    def run(self) -> Run:
        """Function that runs tasks on the threads of the fit: see :meth:`Workers.run`."""
        return self.workers.run

    def make_memo(self, model: Memoizable, result: LocalResult, batch: Any) -> Memo:
        """Return the memo of a batch after its local step."""
        return make_memo(model, result, batch, self.workers.run)

    def separate_fit(
        self, model: Memoizable, X: Any, weights: Array, policy: RunningPolicy, *,
        n_batches: int = 1, seeds: IndexArray | None = None,
    ) -> tuple[MemoizedState, Callable[[Any, Sequence[Move]], tuple[Any, bool]]]:  # fmt: skip
        """Begin a fit of the rows X: see `skvt.contracts.MoveTools`.

        Initial components are chosen among the rows ``seeds``. Return the state of the fit, and a
        function ``sweep(model, moves)``, which makes a pass and these moves.
        """
        data = Rows(X, weights, max(1, -(-weights.size // n_batches)))
        seed_rows = data
        if seeds is not None:
            seed_rows = Rows(X[seeds], weights[seeds], seeds.size, data.total)
        state = MemoizedState(model.initial(seed_rows, self.rng))
        engine = MemoizedInference()
        inputs = PassInputs(data, policy, self.workers, self.rng)

        def sweep(model: Memoizable, moves: Sequence[Move]) -> tuple[Memoizable, bool]:
            engine._moves = moves
            return engine.sweep(model, state, inputs)

        return state, sweep


def _mark_reverted(record: MoveRecord) -> MoveRecord:
    """Return the record of a proposal in a reverted pass, in which no proposal is accepted."""
    if not record.accepted:
        return record
    return replace(record, accepted=0, reason="The pass was reverted, because the bound fell.")


def _visits_all_components(n_passes: int) -> bool:
    """Return whether the pass with the number ``n_passes`` compares rows with all components.

    These are the passes 1, 2, 4, 8, ..., and the calls of a stream, which have the number 0. Other
    passes compare each row only with its candidates.
    """
    # The result is True for 0 and for powers of 2, because a power of 2 has no binary digit 1 in
    # common with the number before it.
    return n_passes & (n_passes - 1) == 0


def sort_components(model: Memoizable, state: MemoizedState) -> None:
    """Sort the components if another order has a larger bound than the current order."""
    order = model.best_order(state.stats)
    if order is not None:
        state.rearrange(order)
        state.resum()
