"""Superposition moves: sums, differences and negatives of components, with new activations.

Coordinate ascent of a factorial mixture has two kinds of local optima that annealing alone does not
avoid. A pair of components {a, b} becomes {a, b - a}, the first of which is on if a or b is on; or
a component becomes its negative, which is on if it should be off. Adding one component to another,
subtracting it, or changing its sign corrects this, if all activations are then inferred from
scratch. After a pass, sums and differences of the pairs whose activations are most correlated, and
negatives, are tried on a sample of the rows. In the next pass the best change is tried on all rows,
each of which keeps its activations or infers them from scratch, whichever is better
(*superposition*). If no change was good, the same is done with unchanged components (*refresh*).
Either is kept if the exact bound rises. Once nothing is left to try, no move is made until the
bound has risen.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeAlias

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
    Solved,
)
from skvt.expfam import RunningStats, Stats
from skvt.models.factorial._kernels import LANES
from skvt.models.factorial._model import FactorialBatch, FactorialMixture, FactorialResult
from skvt.moves import Ledger, bound_of, judged, size_of
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Number of rows of the sample.
SAMPLE = 1_000
# Number of rows of the sample on which all changes are tried first.
FIRST_SAMPLE = 250
# Number of changes that are then tried on the whole sample.
FINALISTS = 4
# Number of local and global updates of each of these.
STEPS = 2
# Maximum number of pairs tried, the most correlated ones.
MOST_PAIRS = 8
# Maximum number of components whose sign is changed, the largest ones.
MOST_SIGNS = 16
# Maximum number of multiplications of a search, as rows times squared components times sweeps. With
# hundreds of components, fewer changes are tried.
MOST_WORK = 1e10
# Number of sweeps assumed in that product.
SWEEPS = 60
# Smallest rise of the bound in nats for which a change is kept.
SMALLEST_GAIN = 0.1
# Rise in nats per row that counts as none.
NEXT_TO_NOTHING = 1e-2

# (a, b, factor), see :func:`_candidates`.
_Change: TypeAlias = tuple[int, int, float]
#: Numbers of rows, the rows, and their weights.
_Sampled: TypeAlias = tuple[IndexArray, Array, Array]


class Superposition(Move):
    """Try components plus or minus others, and with opposite sign, with new activations."""

    requires = (
        Requirement("Superposition", Capability.SUMS_OF_COMPONENTS, "Leave it out of moves."),
    )

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_rested_at": float,
        "_rests": bool,
        "_change": Annotated[_Change | None, "pair"],
        "_proposal": Annotated[RunningStats | None, "statistics"],
        "_failed": set[_Change],
        "_ledger": Ledger,
    }

    def __init__(self) -> None:
        # Whether neither a refresh nor any of the last superpositions has raised the bound.
        self.exhausted, self._rested_at = False, -np.inf
        self._rests = False
        # The change that is tried on all rows, and the final statistics of its trial.
        self._change: _Change | None = None
        self._proposal: RunningStats | None = None
        # Memos of the batches after the change, starts of their rows, and a sample of rows.
        self._memos: dict[Hashable, Memo] = {}
        self._ends: list[tuple[IndexArray, Array]] = []
        self._sample: list[_Sampled] = []
        self._failed: set[_Change] = set()
        self._ledger = Ledger()

    def begin(self, model: FactorialMixture, state: MovableState, tools: MoveTools) -> None:
        """Pause if the bound has not risen since nothing was left to try."""
        self._memos, self._ends, self._sample = {}, [], []
        if self.exhausted:
            total = state.memos.total()
            rise = bound_of(model, total) - self._rested_at
            self._rests = rise < NEXT_TO_NOTHING * total.weight

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Infer the activations of the batch from scratch, under the proposal."""
        return None if self._rests else partial(_anew, self._proposal)

    def note(self, noted: tuple[Hashable, _Sampled, Memo, tuple[IndexArray, Array]]) -> None:
        """Keep the memo of the batch after the change, and a sample of its rows."""
        key, sample, memo, ends = noted
        self._sample.append(sample)
        self._memos[key] = memo
        self._ends.append(ends)

    def finish(
        self, model: FactorialMixture, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Keep the change if it raises the bound, and choose the next one."""
        if self._rests:
            return []
        change = self._change
        after, before = state.memos.of(self._memos), state.memos.total()
        bound = bound_of(model, before)
        gain = bound_of(model, after.total()) - bound
        outcome = judged(gain, size_of(bound, before), SMALLEST_GAIN)
        if outcome.is_accepted:
            self._failed = set()
            for rows, start in self._ends:
                state.remember_ends(rows, start)
            state.restore((after, state.component_ids))
        elif change is not None:
            self._failed.add(change)
        at_rest = gain < NEXT_TO_NOTHING * before.weight
        self._ledger = self._ledger.next_pass()
        chosen: tuple[_Change | None, RunningStats | None] = (None, None)
        if at_rest or self._ledger.waiting <= 0:
            chosen = self._chosen(model, state, tools)
            self._ledger = self._ledger.searched(chosen[0] is not None)
        self._change, self._proposal = chosen
        self.exhausted = chosen[0] is None and at_rest
        self._rested_at = max(bound, bound + gain)
        target = () if change is None else change[:2]
        kind = "superposition" if target else "refresh"
        return [outcome.record(tools.n_iter, kind, target, "new activations of all rows")]

    def _chosen(
        self, model: FactorialMixture, state: MovableState, tools: MoveTools
    ) -> tuple[_Change | None, RunningStats | None]:
        """Return the change that raises the sample's bound most, or None, and its statistics."""
        chosen, proposal = None, None
        candidates = _candidates(state.stats.value(), model.dtype)
        changes = [c for c in candidates if c not in self._failed]
        few, many = (self._sampled(model, state, size) for size in (FIRST_SAMPLE, SAMPLE))
        work = SWEEPS * max(few.n_rows, LANES) * model.size(state.stats) ** 2
        most = max(2, int(MOST_WORK / work))
        # Evenly spaced changes include pairs and signs.
        changes = [changes[i] for i in _evenly(len(changes), most)] if changes else changes
        bounds = [bound_of(model, _trial(model, few, state.stats, c, 1, tools)) for c in changes]
        best = stable_order(-np.array(bounds), dtype=model.dtype)[:FINALISTS]
        highest = bound_of(model, _trial(model, many, state.stats, None, STEPS, tools))
        for change in (changes[i] for i in best):
            memo = _trial(model, many, state.stats, change, STEPS, tools)
            bound = bound_of(model, memo)
            if bound > highest + SMALLEST_GAIN:
                highest, chosen = bound, change
                proposal = RunningStats(memo.stats.arrays)
        if proposal is not None:
            weight = state.memos.total().weight
            proposal.rescale(weight / many.weights.sum())
        return chosen, proposal

    def _sampled(self, model: FactorialMixture, state: MovableState, size: int) -> FactorialBatch:
        """Return ``size`` rows of the sample as a batch that starts at their activations."""
        places, X, weights = (np.concatenate(part) for part in zip(*self._sample, strict=True))
        rows = _evenly(len(X), size)
        batch = model.batch(X, rows, weights[rows])
        return state.with_warm_start(replace(batch, rows=places[rows]))


def _anew(
    proposal: RunningStats | None, model: FactorialMixture, solved: Solved, tools: ObserverTools
) -> tuple[Hashable, _Sampled, Memo, tuple[IndexArray, Array]]:
    """Return a batch's key, sampled rows, and its memo and activations under the proposal."""
    batch, global_params = solved.batch, solved.global_params
    if proposal is not None:
        global_params = model.expectation(proposal, batch, tools.run)
    rows = _evenly(batch.n_rows, SAMPLE)
    sample = batch.rows[rows], batch.X[rows], batch.weights[rows]
    better = _begun_anew(model, replace(batch, start=solved.result.q), global_params, tools)
    assert better.start is not None
    memo = tools.memo_of(model, better, batch)
    return solved.key, sample, memo, (batch.rows, better.start)


def _evenly(n_rows: int, most: int) -> IndexArray:
    """Return at most ``most`` row numbers, evenly spaced, since rows may be sorted."""
    return np.unique(np.linspace(0, n_rows - 1, min(most, n_rows)).astype(int))


def _begun_anew(
    model: FactorialMixture,
    batch: FactorialBatch,
    global_params: Any,
    tools: MoveTools | ObserverTools,
) -> FactorialResult:
    """Make a local step that restarts or continues each row, whichever bound is higher."""
    on = model.local_step(batch, global_params, 1.0, tools.run, with_stats=False)
    begun = replace(batch, start=None)
    anew = model.local_step(begun, global_params, 1.0, tools.run, with_stats=False)
    better = exceeds(anew.bound, on.bound, scale=1.0, dtype=model.dtype)
    start = np.where(better[:, None], anew.q, on.q)
    return model.local_step(replace(batch, start=start), global_params, 1.0, tools.run)


def _trial(
    model: FactorialMixture, batch: FactorialBatch, stats: RunningStats, change: _Change | None,
    n_steps: int, tools: MoveTools,
) -> Memo:  # fmt: skip
    """Return the memo of the sample after a change and ``n_steps`` updates."""
    global_params = model.expectation(stats, batch, tools.run)
    if change is not None:
        a, b, factor = change
        mean, second = global_params[0].copy(), global_params[1].copy()
        for part in (mean, second, second.swapaxes(1, 2)):
            target = part[..., a, :]
            target *= factor if a == b else 1.0
            target += 0.0 if a == b else factor * part[..., b, :]
        global_params = mean, second
    result = _begun_anew(model, batch, global_params, tools)
    for _ in range(n_steps - 1):
        assert result.stats is not None  # as requested
        global_params = model.expectation(RunningStats(result.stats.arrays), batch, tools.run)
        result = _begun_anew(model, replace(batch, start=result.q), global_params, tools)
    return tools.memo_of(model, result, batch)


def _candidates(stats: Stats, dtype: DTypeLike) -> list[_Change]:
    """List changes (a, b, factor): add ``factor mu_b`` to ``mu_a``; if a = b, multiply by it."""
    pairs, products, on, (n_rows, n_values, _) = stats.arrays
    chance = on / n_rows
    # The limit is for data without values, which have no pairs either.
    together = pairs.mean(axis=0) * products.shape[1] / np.maximum(n_values, 1e-300)
    spread = np.sqrt(np.maximum(chance * (1.0 - chance), 1e-12))
    correlation = (together - np.outer(chance, chance)) / np.outer(spread, spread)
    first, second = np.triu_indices(len(chance), 1)
    strength = np.abs(correlation[first, second])
    order = stable_order(-strength, scale=1.0, dtype=dtype)[:MOST_PAIRS]
    sums = [
        change
        for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True)
        for factor in (1.0, -1.0)
        for change in ((i, j, factor), (j, i, factor))
    ]
    largest = stable_order(-np.abs(products).sum(axis=1), dtype=dtype)[:MOST_SIGNS]
    return sums + [(k, k, -1.0) for k in largest.tolist()]
