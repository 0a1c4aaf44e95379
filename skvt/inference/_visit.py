"""A visit to a batch of rows: its local step, and what engines keep of it.

A visit is a function of the batch and of what is asked, all of which can be sent to where the rows
lie: :func:`visit_batch` runs in this process or in another, and what comes back are sums over rows.
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
    """How a visit draws its globals from statistics, where its rows lie."""

    # See :meth:`~skvt.contracts.Drawable.drawn_globals`.
    kind: str
    # Of the visit's own random numbers.
    seed: list[int]
    # Whether the visit's statistics are corrected for the dependence of the draw on q(beta).
    is_corrected: bool = False

    def of(self, model: Drawable, stats: RunningStats, batch: Any, run: Run) -> Any:
        """The globals as passed to the local step of a batch."""
        return model.drawn_globals(stats, batch, self.kind, np.random.default_rng(self.seed), run)

    def statistics(
        self, model: Any, stats: RunningStats, global_params: Any, found: Stats, run: Run
    ) -> Stats:
        """Statistics of the update, of those that the local step has found."""
        if not self.is_corrected:
            return found
        # (a Correctable, by `requires`)
        return model.corrected(stats, global_params, found, run)


@dataclass(frozen=True)
class VisitRequest:
    """What a visit is to do."""

    model: Any
    # Inverse temperature, of the batch or (n,) of each row.
    inv_temp: float | Array = 1.0
    # Its mean, by which the statistics will be multiplied.
    mean_inv_temp: float = 1.0
    # What the local step is to compute: its keywords.
    requested: Mapping[str, bool] = field(default_factory=dict)
    # (n, ...): where the local step of each row begins.
    start: Array | None = None
    # Whether the memo has them; None if there is no memo.
    pair_entropies: bool | None = None
    # What moves note of the batch.
    observers: tuple[Observer | None, ...] = ()
    # Of the batch among the memos.
    key: Hashable = None
    # (n, J): components by which rows may be judged; None for all.
    candidates: IndexArray | None = None
    # How the globals are made of ``global_params``, if they are not there yet.
    draw: Draw | None = None
    # The globals as passed to the local step; with ``draw``, the statistics for it.
    global_params: Any = None

    @property
    def is_by_row(self) -> bool:
        """Whether there is something to be found of each row."""
        with_marginal = self.requested.get("with_marginal", False)
        return with_marginal or np.ndim(self.inv_temp) > 0 or self.start is not None


@dataclass(frozen=True)
class VisitResult:
    """What a visit has found."""

    # Local parts of the bound; empty if there is a memo.
    totals: LocalTotals
    # As in the local result, or corrected.
    stats: Stats | None = None
    # Statistics from which priors are learned, see `PriorTerm`.
    prior: PriorTerm | None = None
    # As asked.
    mean_inv_temp: float = 1.0
    memo: Memo | None = None
    # As asked.
    key: Hashable = None
    # (n,): as in the local result and in the batch, where the former was requested.
    marginal_energy: Array | None = None
    lengths: Any = None
    # (n,): numbers of the rows; None of those of several batches.
    rows: Any = None
    # (n,): their weights.
    weights: Any = None
    # (n, ...): where the next local step of each row begins.
    start: Array | None = None
    # What each observer noted.
    notes: tuple[Any, ...] = ()

    def __sizeof__(self) -> int:
        # (by which Dask knows what to send where)
        arrays = [*(self.stats.arrays if self.stats else ()), self.start, self.marginal_energy]
        return sum(array.nbytes for array in arrays if array is not None) + 1000

    @classmethod
    def total(cls, parts: "Sequence[VisitResult]") -> Self:
        """The sum of visits of which all is additive."""
        totals = LocalTotals()
        for part in parts:
            totals.extend(part.totals)
        prior = None
        if parts[0].prior is not None:
            sums, weights = zip(*(part.prior for part in parts if part.prior), strict=True)
            prior = sum(sums[1:], sums[0]), sum(weights)
        stats = [part.stats for part in parts if part.stats is not None]
        mean = parts[0].mean_inv_temp
        return cls(totals, sum_of_stats(stats) if stats else None, prior, mean)


def visit_batch(batch: Any, asked: VisitRequest, run: Run) -> VisitResult:
    """The visit of a batch: see :class:`VisitRequest`."""
    model, inv_temp = asked.model, asked.inv_temp
    global_params = asked.global_params
    if asked.draw is not None:
        global_params = asked.draw.of(model, asked.global_params, batch, run)
    if asked.candidates is not None:
        batch = replace(batch, candidates=asked.candidates)
    begun = batch if asked.start is None else replace(batch, start=asked.start)
    result = model.local_step(
        weighted_by_temperature(begun, inv_temp), global_params, inv_temp, run, **asked.requested
    )
    totals, memo = LocalTotals(), None
    if asked.pair_entropies is None:
        totals.add(result, batch.weights, inv_temp)
    else:
        memo = memo_of(model, result, batch, run, pairs=asked.pair_entropies)
    solved = Solved(batch, asked.key, global_params, result)
    tools = ObserverTools(run, partial(_memo_with_pairs, run))
    notes = tuple(note and note(model, solved, tools) for note in asked.observers)
    with_marginal, stats = result.marginal_energy is not None, result.stats
    if asked.draw is not None and stats is not None:
        stats = asked.draw.statistics(model, asked.global_params, global_params, stats, run)
    return VisitResult(
        totals,
        stats,
        model.prior_statistics(batch, result) if result.stats is not None else None,
        asked.mean_inv_temp,
        memo,
        asked.key,
        result.marginal_energy,
        batch.lengths if with_marginal else None,
        batch.rows,
        batch.weights,
        result.start,
        notes,
    )


def memo_of(model: Memoizable, result: LocalResult, batch: Any, run: Run, *, pairs: bool) -> Memo:
    """The :class:`Memo` of a local result; ``pairs`` if components may be merged."""
    entropy, merge_entropy_loss = model.memo_entropy(batch, result, run, pairs=pairs)
    assert result.stats is not None  # as requested
    weight = float(batch.weights.sum())
    return Memo(result.stats, entropy, merge_entropy_loss, weight, result.candidates)


def _memo_with_pairs(run: Run, model: Memoizable, result: LocalResult, batch: Any) -> Memo:
    return memo_of(model, result, batch, run, pairs=True)


def weighted_by_temperature(batch: Any, inv_temp: float | Array) -> Any:
    """The batch, rows weighted by their own 1 / T over the mean of these [VT16 eq. 11]."""
    if np.ndim(inv_temp) == 0:
        return batch
    own = np.asarray(inv_temp, batch.weights.dtype)
    mean = np.average(own, weights=batch.weights)
    return replace(batch, weights=batch.weights * (own / mean))  # [VT16 eq. 11]
