"""A visit to a batch of rows: its local step, and the results that engines use.

A visit is a function of the batch and of a request, which can be sent to the process that stores
the rows. :func:`visit_batch` runs in this process or in another one and returns sums over rows.
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
    """How a visit draws its globals from statistics, in the process that stores its rows."""

    # See :meth:`~skvt.contracts.Drawable.drawn_globals`.
    kind: str
    # Seed of the visit's random numbers.
    seed: list[int]
    # Whether the visit's statistics are corrected for the dependence of the draw on q(beta).
    is_corrected: bool = False

    def of(self, model: Drawable, stats: RunningStats, batch: Any, run: Run) -> Any:
        """Draw the globals for the local step of a batch."""
        return model.drawn_globals(stats, batch, self.kind, np.random.default_rng(self.seed), run)

    def statistics(
        self, model: Any, stats: RunningStats, global_params: Any, found: Stats, run: Run
    ) -> Stats:
        """Return the statistics of the update: those of the local step, corrected if requested."""
        if not self.is_corrected:
            return found
        # `requires` ensures that the model is Correctable
        return model.corrected(stats, global_params, found, run)


@dataclass(frozen=True)
class VisitRequest:
    """The request of a visit."""

    model: Any
    # Inverse temperature, of the batch or (n,) of each row.
    inv_temp: float | Array = 1.0
    # Mean inverse temperature, by which the statistics will be multiplied.
    mean_inv_temp: float = 1.0
    # Keywords of the local step, which select its results.
    requested: Mapping[str, bool] = field(default_factory=dict)
    # (n, ...): where the local step of each row begins.
    start: Array | None = None
    # Whether the memo has entropies of pairs; None if there is no memo.
    pair_entropies: bool | None = None
    # Observers of moves, which take notes of the batch.
    observers: tuple[Observer | None, ...] = ()
    # Key of the batch among the memos.
    key: Hashable = None
    # (n, J): candidates of the rows; None for all components.
    candidates: IndexArray | None = None
    # How the globals are drawn from the statistics ``global_params``; None for no draw.
    draw: Draw | None = None
    # The globals as passed to the local step; with ``draw``, the statistics for it.
    global_params: Any = None

    @property
    def is_by_row(self) -> bool:
        """Whether the result has an entry for each row."""
        with_marginal = self.requested.get("with_marginal", False)
        return with_marginal or np.ndim(self.inv_temp) > 0 or self.start is not None


@dataclass(frozen=True)
class VisitResult:
    """The result of a visit."""

    # Local parts of the bound; empty if there is a memo.
    totals: LocalTotals
    # Statistics of the local result, corrected if requested.
    stats: Stats | None = None
    # Statistics from which priors are learned, see `PriorTerm`.
    prior: PriorTerm | None = None
    # As asked.
    mean_inv_temp: float = 1.0
    memo: Memo | None = None
    # As asked.
    key: Hashable = None
    # (n,): marginal energy of the local result and lengths of the batch, if requested.
    marginal_energy: Array | None = None
    lengths: Any = None
    # (n,): indices of the rows; None for a sum over several batches.
    rows: Any = None
    # (n,): their weights.
    weights: Any = None
    # (n, ...): where the next local step of each row begins.
    start: Array | None = None
    # Notes of each observer.
    notes: tuple[Any, ...] = ()

    def __sizeof__(self) -> int:
        # Dask uses this size to decide where results are sent
        arrays = [*(self.stats.arrays if self.stats else ()), self.start, self.marginal_energy]
        return sum(array.nbytes for array in arrays if array is not None) + 1000

    @classmethod
    def total(cls, parts: "Sequence[VisitResult]") -> Self:
        """Return the sum of visits whose results are additive."""
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
    """Visit a batch as requested, see :class:`VisitRequest`."""
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
    """Return the :class:`Memo` of a local result; set ``pairs`` if components may be merged."""
    entropy, merge_entropy_loss = model.memo_entropy(batch, result, run, pairs=pairs)
    assert result.stats is not None  # as requested
    weight = float(batch.weights.sum())
    return Memo(result.stats, entropy, merge_entropy_loss, weight, result.candidates)


def _memo_with_pairs(run: Run, model: Memoizable, result: LocalResult, batch: Any) -> Memo:
    return memo_of(model, result, batch, run, pairs=True)


def weighted_by_temperature(batch: Any, inv_temp: float | Array) -> Any:
    """Return the batch with rows weighted by their 1 / T over its mean [VT16 eq. 11]."""
    if np.ndim(inv_temp) == 0:
        return batch
    inv_temps = np.asarray(inv_temp, batch.weights.dtype)
    mean = np.average(inv_temps, weights=batch.weights)
    return replace(batch, weights=batch.weights * (inv_temps / mean))  # [VT16 eq. 11]
