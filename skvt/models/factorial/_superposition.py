"""Superposition moves: sums, differences and negatives of components, with new activations.

Coordinate ascent of a factorial mixture has two kinds of local optima that annealing alone does not
avoid. In the first, components a and b have become a and b - a, the first of which is active if a
or b should be active. In the second, a component has become its negative, which is active if the
component should not be. Adding a component to another, subtracting it, or changing its sign
corrects this, if all activations are then inferred from scratch.

1. After a pass, changes are tried on a sample of the rows: sums and differences of the pairs of
   components with the most correlated activations, and negatives.
2. During the next pass, the best change is tried on all rows (*superposition*). If no change was
   good, the same is done with unchanged components (*refresh*). Each row keeps its activations or
   infers them from scratch, whichever is better.
3. After that pass, the result is kept if the exact bound has risen.

Once nothing is left to try, no move is made until the bound has risen.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from skvt.contracts import (
    Capability,
    Memo,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    Requirement,
    SolvedBatch,
)
from skvt.expfam import RunningStats, Stats
from skvt.models.factorial._kernels import ROWS_PER_BLOCK
from skvt.models.factorial._model import FactorialBatch, FactorialMixture, FactorialResult
from skvt.moves import Ledger, compute_bound, decide, find_scale
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Number of rows of the sample.
SAMPLE_ROWS = 1_000
# Number of rows of the sample on which all changes are tried first.
FIRST_ROWS = 250
# Number of changes that are then tried on the whole sample.
N_FINALISTS = 4
# Number of local and global updates of a trial on the whole sample.
N_STEPS = 2
# Maximum number of pairs that are tried, which are the most correlated ones.
MAX_PAIRS = 8
# Maximum number of components whose sign is changed, which are the largest ones.
MAX_SIGNS = 16
# Maximum number of multiplications of a search, which are changes times sweeps times rows times
# squared components. With hundreds of components, this limits the number of changes.
MAX_WORK = 1e10
# Number of sweeps of a trial that the count of multiplications assumes.
ASSUMED_SWEEPS = 60
# Smallest rise of the bound in nats for which a change is kept.
MIN_GAIN = 0.1
# Rises of the bound by less than this, in nats per row, count as none.
NEGLIGIBLE_RISE = 1e-2

# A change (a, b, factor) adds ``factor mu_b`` to ``mu_a``. If a = b, it multiplies ``mu_a`` by the
# factor.
_Change: TypeAlias = tuple[int, int, float]
# Indices of sampled rows in the data (n,), the rows (n, D), and their weights (n,).
_Sample: TypeAlias = tuple[IndexArray, Array, Array]
# Indices of rows in the data (n,), and their activations (n, K).
_Activations: TypeAlias = tuple[IndexArray, Array]


class _Observed(NamedTuple):
    """Results of :func:`_observe` for a batch."""

    key: Hashable
    sample: _Sample
    memo: Memo
    activations: _Activations


class Superposition(Move):
    """Try sums, differences and negatives of components, with new activations of the rows."""

    requires = (
        Requirement("Superposition", Capability.SUMS_OF_COMPONENTS, "Leave it out of moves."),
    )

    # Attributes that files keep, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {
        **Move.kept_attributes,
        "_rested_at": float,
        "_rests": bool,
        "_change": Annotated[_Change | None, "pair"],
        "_proposal": Annotated[RunningStats | None, "statistics"],
        "_failed": set[_Change],
        "_ledger": Ledger,
    }

    def __init__(self) -> None:
        # Whether neither a refresh nor any of the last superpositions has raised the bound.
        self.exhausted = False
        # The bound when nothing was left to try.
        self._rested_at = -np.inf
        # Whether the move pauses in this pass.
        self._rests = False
        # The change that is tried on all rows in this pass, and the statistics with which its trial
        # on the sample ended.
        self._change: _Change | None = None
        self._proposal: RunningStats | None = None
        # Memos of the batches of this pass after the change, new activations of their rows, and
        # samples of their rows. A memo is what memoized inference keeps of a batch.
        self._memos: dict[Hashable, Memo] = {}
        self._activations: list[_Activations] = []
        self._samples: list[_Sample] = []
        # Changes that failed since the bound last rose by a move.
        self._failed: set[_Change] = set()
        # Counts searches without a change, and says when to search again.
        self._ledger = Ledger()

    def begin(self, model: FactorialMixture, state: MovableState, tools: MoveTools) -> None:
        """Pause if the bound has not risen since nothing was left to try."""
        self._memos, self._activations, self._samples = {}, [], []
        if self.exhausted:
            total = state.memos.total()
            rise = compute_bound(model, total) - self._rested_at
            self._rests = rise < NEGLIGIBLE_RISE * total.weight

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the function that infers activations of a batch from scratch, or None to pause."""
        return None if self._rests else partial(_observe, self._proposal)

    def store_notes(self, noted: _Observed) -> None:
        """Keep the results of a batch."""
        self._samples.append(noted.sample)
        self._memos[noted.key] = noted.memo
        self._activations.append(noted.activations)

    def finish(
        self, model: FactorialMixture, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Keep the change if it raises the bound, and choose the next one."""
        if self._rests:
            return []
        change = self._change
        after, before = state.memos.of(self._memos), state.memos.total()
        bound = compute_bound(model, before)
        gain = compute_bound(model, after.total()) - bound
        decision = decide(gain, find_scale(bound, before), MIN_GAIN)
        if decision.is_accepted:
            self._failed = set()
            # Put the new activations and memos into the state.
            for rows, activations in self._activations:
                state.store_row_starts(rows, activations)
            state.restore((after, state.component_ids))
        elif change is not None:
            self._failed.add(change)
        is_stalled = gain < NEGLIGIBLE_RISE * before.weight
        self._ledger = self._ledger.record_pass()
        self._change, self._proposal = None, None
        if is_stalled or self._ledger.waiting <= 0:
            self._change, self._proposal = self._choose_change(model, state, tools)
            self._ledger = self._ledger.record_search(self._change is not None)
        self.exhausted = self._change is None and is_stalled
        self._rested_at = max(bound, bound + gain)
        target = () if change is None else change[:2]
        kind = "superposition" if target else "refresh"
        return [decision.record(tools.n_iter, kind, target, "new activations of all rows")]

    def _choose_change(
        self, model: FactorialMixture, state: MovableState, tools: MoveTools
    ) -> tuple[_Change | None, RunningStats | None]:
        """Choose the change that raises the bound of the sample most, if any does.

        Return the change and the statistics after its trial, scaled to all rows.
        """
        candidates = _list_changes(state.stats.as_stats(), model.dtype)
        changes = [change for change in candidates if change not in self._failed]
        small, large = (self._sampled_batch(model, state, n) for n in (FIRST_ROWS, SAMPLE_ROWS))
        # Try at most as many changes as the work allows. Evenly spaced changes include sums,
        # differences and negatives.
        work = ASSUMED_SWEEPS * max(small.n_rows, ROWS_PER_BLOCK) * model.size(state.stats) ** 2
        max_changes = max(2, int(MAX_WORK / work))
        changes = [changes[i] for i in _evenly_spaced(len(changes), max_changes)]
        bounds = [
            compute_bound(model, _trial(model, small, state.stats, tools, change=change, n_steps=1))
            for change in changes
        ]
        finalists = stable_order(-np.array(bounds), dtype=model.dtype)[:N_FINALISTS]
        # Compare the best changes with unchanged components on the whole sample.
        best_change, proposal = None, None
        unchanged = _trial(model, large, state.stats, tools, change=None, n_steps=N_STEPS)
        best_bound = compute_bound(model, unchanged)
        for change in (changes[i] for i in finalists):
            memo = _trial(model, large, state.stats, tools, change=change, n_steps=N_STEPS)
            bound = compute_bound(model, memo)
            if bound > best_bound + MIN_GAIN:
                best_bound, best_change = bound, change
                proposal = RunningStats(memo.stats.arrays)
        if proposal is not None:
            weight = state.memos.total().weight
            proposal.rescale(weight / large.weights.sum())
        return best_change, proposal

    def _sampled_batch(
        self, model: FactorialMixture, state: MovableState, size: int
    ) -> FactorialBatch:
        """Return ``size`` rows of the samples as a batch that starts at their activations."""
        row_numbers, X, weights = (
            np.concatenate(arrays) for arrays in zip(*self._samples, strict=True)
        )
        rows = _evenly_spaced(len(X), size)
        batch = model.batch(X, rows, weights[rows])
        return state.with_row_starts(replace(batch, rows=row_numbers[rows]))


def _observe(
    proposal: RunningStats | None,
    model: FactorialMixture,
    solved_batch: SolvedBatch,
    tools: ObserverTools,
) -> _Observed:
    """Infer the activations of a batch from scratch under the proposal."""
    batch, global_params = solved_batch.batch, solved_batch.global_params
    if proposal is not None:
        global_params = model.expectation(proposal, batch, tools.run)
    rows = _evenly_spaced(batch.n_rows, SAMPLE_ROWS)
    sample = batch.rows[rows], batch.X[rows], batch.weights[rows]
    started = replace(batch, row_starts=solved_batch.result.q)
    result = _restart_or_continue(model, started, global_params, tools)
    assert result.row_starts is not None
    memo = tools.make_memo(model, result, batch)
    return _Observed(solved_batch.key, sample, memo, (batch.rows, result.row_starts))


def _evenly_spaced(n: int, most: int) -> IndexArray:
    """Choose at most ``most`` of n rows, evenly spaced, since rows may be sorted."""
    return np.unique(np.linspace(0, n - 1, min(most, n)).astype(int))


def _restart_or_continue(
    model: FactorialMixture, batch: FactorialBatch, global_params: Any,
    tools: MoveTools | ObserverTools,
) -> FactorialResult:  # fmt: skip
    """Make a local step in which each row restarts or continues, whichever bound is higher."""
    continued = model.local_step(batch, global_params, 1.0, tools.run, with_stats=False)
    without_start = replace(batch, row_starts=None)
    restarted = model.local_step(without_start, global_params, 1.0, tools.run, with_stats=False)
    is_better = exceeds(restarted.bound, continued.bound, scale=1.0, dtype=model.dtype)
    start = np.where(is_better[:, None], restarted.q, continued.q)
    return model.local_step(replace(batch, row_starts=start), global_params, 1.0, tools.run)


def _trial(
    model: FactorialMixture, batch: FactorialBatch, stats: RunningStats, tools: MoveTools, *,
    change: _Change | None, n_steps: int,
) -> Memo:  # fmt: skip
    """Return the memo of the batch after a change and ``n_steps`` updates.

    The change is made to the moments E[mu] and E[mu mu']: a multiple of row b is added to row a, or
    row a is multiplied. In E[mu mu'] the same is done to columns.
    """
    global_params = model.expectation(stats, batch, tools.run)
    if change is not None:
        a, b, factor = change
        mean, second = global_params[0].copy(), global_params[1].copy()
        for moments in (mean, second, second.swapaxes(1, 2)):
            row = moments[..., a, :]
            row *= factor if a == b else 1.0
            row += 0.0 if a == b else factor * moments[..., b, :]
        global_params = mean, second
    result = _restart_or_continue(model, batch, global_params, tools)
    for _ in range(n_steps - 1):
        assert result.stats is not None  # as requested
        global_params = model.expectation(RunningStats(result.stats.arrays), batch, tools.run)
        started = replace(batch, row_starts=result.q)
        result = _restart_or_continue(model, started, global_params, tools)
    return tools.make_memo(model, result, batch)


def _list_changes(stats: Stats, dtype: DTypeLike) -> list[_Change]:
    """List the changes to try: sums and differences of pairs, then negatives."""
    pairs, products, activation_sums, totals = stats.arrays
    n_rows, n_values, _ = totals
    probability = activation_sums / n_rows
    # E[z z'] of a row, averaged over columns. If no value is observed, the maximum avoids 0 / 0.
    joint_probability = pairs.mean(axis=0) * products.shape[1] / np.maximum(n_values, 1e-300)
    deviation = np.sqrt(np.maximum(probability * (1.0 - probability), 1e-12))
    covariance = joint_probability - np.outer(probability, probability)
    correlation = covariance / np.outer(deviation, deviation)
    first, second = np.triu_indices(len(probability), 1)
    strength = np.abs(correlation[first, second])
    order = stable_order(-strength, scale=1.0, dtype=dtype)[:MAX_PAIRS]
    sums_and_differences = [
        change
        for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True)
        for factor in (1.0, -1.0)
        for change in ((i, j, factor), (j, i, factor))
    ]
    largest = stable_order(-np.abs(products).sum(axis=1), dtype=dtype)[:MAX_SIGNS]
    return sums_and_differences + [(k, k, -1.0) for k in largest.tolist()]
