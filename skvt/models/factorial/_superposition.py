"""Superposition moves: sums, differences and negatives of components, with new activations.

In a factorial mixture, a row is the sum of its active components. Coordinate ascent has two kinds
of local optima that annealing alone does not avoid:

- a and b - a have replaced the components a and b, and a is active in each row that contains a or
  b;
- the negative of a component has replaced it, and is active in the rows that do not contain the
  component.

Adding a component to another, subtracting it, or changing its sign leads out of such an optimum, if
all activations are then inferred from scratch.

1. After some passes, changes are tried on a sample of the rows: sums and differences of the pairs
   of components with the most correlated activations, and negatives.
2. During the next pass, the best change is tried on all rows: a *superposition*. If no change
   raises the bound of the sample, unchanged components are tried: a *refresh*. In both cases, each
   row keeps its activations or infers them from scratch, whichever has the higher bound.
3. After this pass, the components and activations of the trial are kept if they raise the exact
   bound of all rows.

If neither a change nor a refresh is left to try, the move pauses until the bound has risen.
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
from skvt.moves import Ledger, compute_bound, decide, find_rounding_scale
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Number of rows of the sample.
SAMPLE_ROWS = 1_000
# Number of rows of the sample on which all changes are compared.
FIRST_ROWS = 250
# Number of changes that are tried on the whole sample, the best on the first FIRST_ROWS rows.
N_FINALISTS = 4
# Number of local and global updates of a trial on the whole sample.
N_UPDATES = 2
# Maximum number of pairs of components that are tried. The most correlated pairs are chosen.
MAX_PAIRS = 8
# Maximum number of components whose negatives are tried. The largest components are chosen.
MAX_NEGATIVES = 16
# Maximum number of multiplications of a search for a change, which limits the number of changes if
# there are hundreds of components. It is the product of the numbers of changes, sweeps, rows and
# squared components.
MAX_WORK = 1e10
# Number of sweeps over the activations in a trial, as assumed for the limit MAX_WORK.
ASSUMED_SWEEPS = 60
# Smallest rise of the bound in nats for which a change is kept.
MIN_GAIN = 0.1
# A rise of the bound by less than this, in nats per row, counts as no rise.
NEGLIGIBLE_RISE = 1e-2

# A change (a, b, factor) adds ``factor mu_b`` to ``mu_a``. If a = b, it multiplies ``mu_a`` by the
# factor.
_Change: TypeAlias = tuple[int, int, float]
# Indices of sampled rows in the data (n,), the rows (n, D), and their weights (n,).
_Sample: TypeAlias = tuple[IndexArray, Array, Array]
# Indices of rows in the data (n,), and their activations (n, K).
_Activations: TypeAlias = tuple[IndexArray, Array]


class _Observation(NamedTuple):
    """Results of :func:`_observe` for a batch."""

    key: Hashable
    # A sample of the rows of the batch.
    sample: _Sample
    # Statistics and entropy after the trial, and the activations of all rows of the batch.
    memo: Memo
    activations: _Activations


class Superposition(Move):
    """Try sums, differences and negatives of components, with new activations of the rows.

    The engine calls `begin` before a pass, `make_observer` and `store_notes` for each batch of the
    pass, and `finish` after the pass.
    """

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
        # Whether nothing is left to try: the last trial has not raised the bound, and no further
        # change is better on the sample.
        self.exhausted = False
        # Bound after the last trial on all rows. The move pauses until the bound has risen above
        # it.
        self._rested_at = -np.inf
        # Whether the move pauses in this pass.
        self._rests = False
        # The change that is tried on all rows in this pass; None for a refresh. Its trial on the
        # sample has ended with the statistics ``_proposal``.
        self._change: _Change | None = None
        self._proposal: RunningStats | None = None
        # For the batches of this pass: their memos after the trial, the activations of their rows,
        # and samples of their rows. The memo of a batch has its statistics and its entropy.
        self._memos: dict[Hashable, Memo] = {}
        self._activations: list[_Activations] = []
        self._samples: list[_Sample] = []
        # Changes that have failed since this move has last raised the bound.
        self._failed: set[_Change] = set()
        # Counts the passes until the next search for a change. The pauses between searches become
        # longer if no change is found.
        self._ledger = Ledger()

    def begin(self, model: FactorialMixture, state: MovableState, tools: MoveTools) -> None:
        """Prepare the next pass; pause if nothing is left to try and the bound has not risen."""
        self._memos, self._activations, self._samples = {}, [], []
        if self.exhausted:
            total_memo = state.memos.total()
            rise = compute_bound(model, total_memo) - self._rested_at
            self._rests = rise < NEGLIGIBLE_RISE * total_memo.weight

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return the function that tries the change on a batch, or None to pause."""
        return None if self._rests else partial(_observe, self._proposal)

    def store_notes(self, observation: _Observation) -> None:
        """Store the results of :func:`_observe` for a batch, until :meth:`finish`."""
        self._samples.append(observation.sample)
        self._memos[observation.key] = observation.memo
        self._activations.append(observation.activations)

    def finish(
        self, model: FactorialMixture, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Keep the results of the trial if they raise the bound, and choose the next change."""
        if self._rests:
            return []
        change = self._change
        # The memos of the state with those of the trial in place of the memos of the same batches,
        # and the sum of the memos before the trial.
        memos_after, memo_before = state.memos.of(self._memos), state.memos.total()
        bound = compute_bound(model, memo_before)
        gain = compute_bound(model, memos_after.total()) - bound
        decision = decide(gain, find_rounding_scale(bound, memo_before), MIN_GAIN)
        if decision.is_accepted:
            self._failed = set()
            # Put the new activations and memos into the state.
            for rows, activations in self._activations:
                state.store_row_starts(rows, activations)
            state.restore((memos_after, state.component_ids))
        elif change is not None:
            self._failed.add(change)
        is_stalled = gain < NEGLIGIBLE_RISE * memo_before.weight
        self._ledger = self._ledger.record_pass()
        self._change, self._proposal = None, None
        # Search for a change if the bound no longer rises, or if the pause between searches is
        # over.
        if is_stalled or self._ledger.waiting <= 0:
            self._change, self._proposal = self._choose_change(model, state, tools)
            self._ledger = self._ledger.record_search(self._change is not None)
        self.exhausted = self._change is None and is_stalled
        self._rested_at = max(bound, bound + gain)
        components = () if change is None else change[:2]
        move_name = "superposition" if components else "refresh"
        return [decision.record(tools.n_iter, move_name, components, "new activations of all rows")]

    def _choose_change(
        self, model: FactorialMixture, state: MovableState, tools: MoveTools
    ) -> tuple[_Change | None, RunningStats | None]:
        """Choose the change that raises the bound of the sample most.

        Return the change and the statistics after its trial, scaled to all rows. Both are None if
        no change raises the bound by more than ``MIN_GAIN``.
        """
        candidates = _list_changes(state.stats.as_stats(), model.dtype)
        changes = [change for change in candidates if change not in self._failed]
        small, large = (
            self._make_sampled_batch(model, state, n) for n in (FIRST_ROWS, SAMPLE_ROWS)
        )
        # Limit the number of multiplications. Take changes at even distances in the list, so that
        # sums, differences and negatives are among them.
        work = ASSUMED_SWEEPS * max(small.n_rows, ROWS_PER_BLOCK) * model.size(state.stats) ** 2
        max_changes = max(2, int(MAX_WORK / work))
        changes = [changes[i] for i in _space_evenly(len(changes), max_changes)]
        bounds = [
            compute_bound(
                model, _try_change(model, small, state.stats, tools, change=change, n_updates=1)
            )
            for change in changes
        ]
        finalists = stable_order(-np.array(bounds), dtype=model.dtype)[:N_FINALISTS]
        # Try the best changes on the whole sample. A change must reach a higher bound than a trial
        # with unchanged components.
        best_change, proposal = None, None
        unchanged = _try_change(model, large, state.stats, tools, change=None, n_updates=N_UPDATES)
        best_bound = compute_bound(model, unchanged)
        for change in (changes[i] for i in finalists):
            memo = _try_change(model, large, state.stats, tools, change=change, n_updates=N_UPDATES)
            bound = compute_bound(model, memo)
            if bound > best_bound + MIN_GAIN:
                best_bound, best_change = bound, change
                proposal = RunningStats(memo.stats.arrays)
        if proposal is not None:
            weight = state.memos.total().weight
            proposal.rescale(weight / large.weights.sum())
        return best_change, proposal

    def _make_sampled_batch(
        self, model: FactorialMixture, state: MovableState, size: int
    ) -> FactorialBatch:
        """Return ``size`` rows of the samples as a batch, with their present activations as starts.

        The rows are evenly spaced in the samples of all batches.
        """
        row_numbers, X, weights = (
            np.concatenate(arrays) for arrays in zip(*self._samples, strict=True)
        )
        rows = _space_evenly(len(X), size)
        batch = model.batch(X, rows, weights[rows])
        return state.with_row_starts(replace(batch, rows=row_numbers[rows]))


def _observe(
    proposal: RunningStats | None,
    model: FactorialMixture,
    solved_batch: SolvedBatch,
    tools: ObserverTools,
) -> _Observation:
    """Infer the activations of a batch under the proposal, and draw a sample of its rows.

    ``proposal`` are the statistics of the changed components. None stands for unchanged components.
    ``solved_batch`` has the batch and the result of its local step in this pass.
    """
    batch, global_params = solved_batch.batch, solved_batch.global_params
    if proposal is not None:
        global_params = model.expectation(proposal, batch, tools.run)
    rows = _space_evenly(batch.n_rows, SAMPLE_ROWS)
    sample = batch.rows[rows], batch.X[rows], batch.weights[rows]
    batch_with_start = replace(batch, row_starts=solved_batch.result.q)
    result = _restart_or_continue(model, batch_with_start, global_params, tools)
    assert result.row_starts is not None
    memo = tools.make_memo(model, result, batch)
    return _Observation(solved_batch.key, sample, memo, (batch.rows, result.row_starts))


def _space_evenly(n: int, max_number: int) -> IndexArray:
    """Return at most ``max_number`` of the indices 0, ..., n - 1, evenly spaced.

    The first indices would not be a representative sample of rows, because rows may be sorted.
    """
    return np.unique(np.linspace(0, n - 1, min(max_number, n)).astype(int))


def _restart_or_continue(
    model: FactorialMixture, batch: FactorialBatch, global_params: Any,
    tools: MoveTools | ObserverTools,
) -> FactorialResult:  # fmt: skip
    """Make a local step in which each row restarts or continues, whichever bound is higher.

    A row continues from ``batch.row_starts``, and restarts without them.
    """
    inv_temp = 1.0
    continued = model.local_step(batch, global_params, inv_temp, tools.run, with_stats=False)
    without_start = replace(batch, row_starts=None)
    restarted = model.local_step(
        without_start, global_params, inv_temp, tools.run, with_stats=False
    )
    is_better = exceeds(restarted.bound, continued.bound, scale=1.0, dtype=model.dtype)
    start = np.where(is_better[:, None], restarted.q, continued.q)
    return model.local_step(replace(batch, row_starts=start), global_params, inv_temp, tools.run)


def _try_change(
    model: FactorialMixture, batch: FactorialBatch, stats: RunningStats, tools: MoveTools, *,
    change: _Change | None, n_updates: int,
) -> Memo:  # fmt: skip
    """Return the memo of the batch after a change and ``n_updates`` local steps.

    The components are updated between local steps. The change is made to the moments: row a of
    E[mu], and row a and column a of E[mu mu']. If ``change`` is None, the moments are unchanged.
    """
    global_params = model.expectation(stats, batch, tools.run)
    if change is not None:
        a, b, factor = change
        mean, second_moments = global_params[0].copy(), global_params[1].copy()
        # Views: the rows of E[mu], the rows of E[mu mu'], and the columns of E[mu mu'].
        for moments in (mean, second_moments, second_moments.swapaxes(1, 2)):
            row = moments[..., a, :]
            row *= factor if a == b else 1.0
            row += 0.0 if a == b else factor * moments[..., b, :]
        global_params = mean, second_moments
    result = _restart_or_continue(model, batch, global_params, tools)
    for _ in range(n_updates - 1):
        assert result.stats is not None  # as requested
        global_params = model.expectation(RunningStats(result.stats.arrays), batch, tools.run)
        batch_with_start = replace(batch, row_starts=result.q)
        result = _restart_or_continue(model, batch_with_start, global_params, tools)
    return tools.make_memo(model, result, batch)


def _list_changes(stats: Stats, dtype: DTypeLike) -> list[_Change]:
    """List the changes to try: sums and differences of pairs, then negatives."""
    pairs, products, activation_sums, totals = stats.arrays
    n_rows, n_values, _ = totals
    probability = activation_sums / n_rows
    # E[z z'], averaged over all observed values. ``pairs`` (D, K, K) has a sum over rows for each
    # column, or (1, K, K) a sum that holds for all columns, so that the mean times D is the sum
    # over columns. The maximum avoids 0 / 0 if no value is observed.
    joint_probability = pairs.mean(axis=0) * products.shape[1] / np.maximum(n_values, 1e-300)
    deviation = np.sqrt(np.maximum(probability * (1.0 - probability), 1e-12))
    covariance = joint_probability - np.outer(probability, probability)
    correlation = covariance / np.outer(deviation, deviation)
    first, second = np.triu_indices(len(probability), 1)
    strengths = np.abs(correlation[first, second])
    order = stable_order(-strengths, scale=1.0, dtype=dtype)[:MAX_PAIRS]
    sums_and_differences = [
        change
        for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True)
        for factor in (1.0, -1.0)
        for change in ((i, j, factor), (j, i, factor))
    ]
    largest_components = stable_order(-np.abs(products).sum(axis=1), dtype=dtype)[:MAX_NEGATIVES]
    return sums_and_differences + [(k, k, -1.0) for k in largest_components.tolist()]
