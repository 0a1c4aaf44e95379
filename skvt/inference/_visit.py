"""Visits to batches of rows: a visit makes the local step of a batch for an engine.

An engine describes a visit by a :class:`VisitRequest`. :func:`visit_batch` makes the visit in the
process that stores the rows, and returns a :class:`VisitResult` to the engine.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from skvt.contracts import (
    Drawable,
    LocalResult,
    LocalTotals,
    Memoizable,
    Observer,
    ObserverTools,
    PriorTerm,
    Solved,
)
from skvt.expfam import RunningStats, Stats, sum_of_stats
from skvt.inference._memos import Memo
from skvt.typing import Array, IndexArray, Run


class Draw(NamedTuple):
    """A draw of the globals for the local step of one visit.

    The draw is made from statistics, in the process that stores the rows of the visit.
    """

    # Kind of the globals, see :meth:`~skvt.contracts.Drawable.drawn_globals`.
    kind: str
    # Seed of the random numbers of the draw.
    seed: list[int]
    # Whether the statistics of the local step are corrected by V(beta, lam) [HB15 eq. 7]. The model
    # must then be :class:`~skvt.contracts.Correctable`.
    is_corrected: bool = False

    def of(self, model: Drawable, stats: RunningStats, batch: Any, run: Run) -> Any:
        """Draw the globals for the local step of ``batch`` from the statistics ``stats``."""
        return model.drawn_globals(stats, batch, self.kind, np.random.default_rng(self.seed), run)

    def statistics(
        self, model: Any, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return the statistics ``result_stats`` of the local step, corrected if requested."""
        if not self.is_corrected:
            return result_stats
        # The engine's `requires` ensures that the model is Correctable.
        return model.corrected(stats, global_params, result_stats, run)


@dataclass(frozen=True)
class VisitRequest:
    """The request for a visit to one batch."""

    model: Any
    # Inverse temperature: one number for the batch, or an array (n,) with a number for each row.
    inv_temp: float | Array = 1.0
    # Mean inverse temperature of the rows. The visit does not use it but returns it, because the
    # engine multiplies the statistics by it.
    mean_inv_temp: float = 1.0
    # Keyword arguments of the local step, such as ``with_marginal``, which select its results.
    requested: Mapping[str, bool] = field(default_factory=dict)
    # (n, ...): start of the local step of each row; None for the starts in the batch.
    start: Array | None = None
    # Whether the memo has the entropies that merges of two components lose; None for no memo.
    pair_entropies: bool | None = None
    # The observer of each move, which returns notes of the batch; None for no notes.
    observers: tuple[Observer | None, ...] = ()
    # Key of the memo of the batch.
    key: Hashable = None
    # (n, J): candidate components of each row; None, or an array with J = 0, for all components.
    candidates: IndexArray | None = None
    # The draw of the globals; None for no draw.
    draw: Draw | None = None
    # Without ``draw``, the globals for the local step. With ``draw``, the statistics from which the
    # globals are drawn.
    global_params: Any = None

    @property
    def is_by_row(self) -> bool:
        """Whether the engine needs entries of the result for each row.

        If not, results of several batches may be summed.
        """
        with_marginal = self.requested.get("with_marginal", False)
        return with_marginal or np.ndim(self.inv_temp) > 0 or self.start is not None


@dataclass(frozen=True)
class VisitResult:
    """The result of a visit to a batch, or the sum of several results."""

    # Sums of the local parts of the bound; all 0 if there is a memo.
    totals: LocalTotals
    # Statistics of the local step, corrected if requested; None if they were not requested.
    stats: Stats | None = None
    # Statistics from which priors are learned, see `PriorTerm`; None if the priors are
    # fixed or no statistics were requested.
    prior: PriorTerm | None = None
    # Mean inverse temperature of the request.
    mean_inv_temp: float = 1.0
    # Memo of the batch; None if it was not requested.
    memo: Memo | None = None
    # Key of the request.
    key: Hashable = None
    # (n,): marginal energy of each row; None if it was not requested.
    marginal_energy: Array | None = None
    # (n,): number of units of data of each row; None if the marginal energy was not requested.
    lengths: Any = None
    # (n,): index of each row; None in a sum, or if the result was sent without entries of rows.
    rows: Any = None
    # (n,): weight of each row; None if ``rows`` is None.
    weights: Any = None
    # (n, ...): start of the next local step of each row.
    start: Array | None = None
    # The notes of each observer; None if there is no observer.
    notes: tuple[Any, ...] = ()

    def __sizeof__(self) -> int:
        # Dask uses this estimate of the size in bytes to decide where results are sent.
        arrays: list[Any] = [self.start, self.marginal_energy]
        if self.stats:
            arrays += self.stats.arrays
        memo = self.memo
        if memo is not None:
            arrays += [*memo.stats.arrays, memo.merge_entropy_loss, memo.candidates]
        return sum(array.nbytes for array in arrays if array is not None) + 1000

    @classmethod
    def total(cls, parts: "Sequence[VisitResult]") -> Self:
        """Return the sum of the results of several visits, without memos and entries for rows.

        The requests must have the same mean inverse temperature.
        """
        totals = LocalTotals()
        for part in parts:
            totals.extend(part.totals)
        prior = None
        if parts[0].prior is not None:
            sums, weights = zip(*(part.prior for part in parts if part.prior), strict=True)
            prior = sum(sums[1:], sums[0]), sum(weights)
        stats = [part.stats for part in parts if part.stats is not None]
        mean_inv_temp = parts[0].mean_inv_temp
        return cls(totals, sum_of_stats(stats) if stats else None, prior, mean_inv_temp)


def visit_batch(batch: Any, request: VisitRequest, run: Run) -> VisitResult:
    """Make the local step of a batch as requested, and return the requested results."""
    model, inv_temp = request.model, request.inv_temp
    # Prepare the globals, the batch and the starts.
    global_params = request.global_params
    if request.draw is not None:
        global_params = request.draw.of(model, request.global_params, batch, run)
    if request.candidates is not None:
        batch = replace(batch, candidates=request.candidates)
    batch_with_start = batch if request.start is None else replace(batch, start=request.start)
    tempered_batch = weighted_by_temperature(batch_with_start, inv_temp)
    result = model.local_step(tempered_batch, global_params, inv_temp, run, **request.requested)
    # Add up the local parts of the bound, or make a memo, from which the bound is computed later.
    totals = LocalTotals()
    memo = None
    if request.pair_entropies is None:
        totals.add(result, batch.weights, inv_temp)
    else:
        memo = memo_of(model, result, batch, run, pairs=request.pair_entropies)
    # Let the moves observe the batch.
    solved = Solved(batch, request.key, global_params, result)
    tools = ObserverTools(run, partial(memo_of, run=run, pairs=True))
    notes = tuple(observer and observer(model, solved, tools) for observer in request.observers)
    stats = result.stats
    if request.draw is not None and stats is not None:
        stats = request.draw.statistics(model, request.global_params, global_params, stats, run)
    return VisitResult(
        totals, stats, mean_inv_temp=request.mean_inv_temp, memo=memo, key=request.key,
        prior=None if result.stats is None else model.prior_statistics(batch, result),
        marginal_energy=result.marginal_energy,
        lengths=None if result.marginal_energy is None else batch.lengths,
        rows=batch.rows, weights=batch.weights, start=result.start, notes=notes,
    )  # fmt: skip


def memo_of(model: Memoizable, result: LocalResult, batch: Any, run: Run, *, pairs: bool) -> Memo:
    """Return the :class:`Memo` of a batch after its local step.

    ``pairs`` tells whether the memo has the entropies that merges of two components lose.
    """
    entropy, merge_entropy_loss = model.memo_entropy(batch, result, run, pairs=pairs)
    # A memo can only be made of a result with statistics.
    assert result.stats is not None
    weight = float(batch.weights.sum())
    return Memo(result.stats, entropy, merge_entropy_loss, weight, result.candidates)


def weighted_by_temperature(batch: Any, inv_temp: float | Array) -> Any:
    """Return the batch with the weight of each row times its inverse temperature over the mean.

    The mean is weighted. If ``inv_temp`` is a float, the inverse temperature of all rows, return
    the batch itself.
    """
    if np.ndim(inv_temp) == 0:
        return batch
    inv_temps = np.asarray(inv_temp, batch.weights.dtype)
    mean = np.average(inv_temps, weights=batch.weights)
    return replace(batch, weights=batch.weights * (inv_temps / mean))  # [VT16 eq. 11]
