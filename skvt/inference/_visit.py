"""Visits to batches of rows: a visit makes the local step of a batch for an engine.

An *engine* is an inference algorithm, and a *local step* computes the posterior of the local
variables of a batch. An engine describes a visit by a :class:`VisitRequest`. :func:`visit_batch`
makes the visit in the process that stores the rows, and returns a :class:`VisitResult` to the
engine. For memoized inference the result has a *memo*, which holds the statistics and entropies of
the batch. *Moves* change the components between passes. During the pass, the *observer* of a move
can take notes on each batch.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from skvt.contracts import (
    LocalResult,
    LocalTotals,
    Memoizable,
    Observer,
    ObserverTools,
    PriorTerm,
    SolvedBatch,
)
from skvt.expfam import Stats, sum_stats
from skvt.inference._memos import Memo
from skvt.typing import Array, IndexArray, Run


class Draw(NamedTuple):
    """Description of the draw of the global parameters by a visit, in structured inference.

    The visit draws them from the posterior with the statistics of the request.
    """

    # Kind of the global parameters, see :meth:`~skvt.contracts.Drawable.drawn_globals`.
    kind: str
    # Seed of the random numbers of the draw.
    seed: list[int]
    # Whether the statistics of the local step are corrected by V(beta, lam) [HB15 eq. 7]. The model
    # must then be :class:`~skvt.contracts.Correctable`, which the engine ensures by ``requires``.
    is_corrected: bool = False


@dataclass(frozen=True)
class VisitRequest:
    """A request for a visit to a batch."""

    model: Any
    # Inverse temperature: a number for the batch, or an array (n,) with a number for each row.
    inv_temp: float | Array = 1.0
    # Mean inverse temperature of the rows, by which the engine multiplies the statistics. The visit
    # only copies it to the result.
    mean_inv_temp: float = 1.0
    # Flags of the local step, such as ``with_marginal``, which request fields of its result.
    step_options: Mapping[str, bool] = field(default_factory=dict)
    # (n, ...): initial value for the local step of each row; None for the values in the batch.
    row_starts: Array | None = None
    # Whether the visit makes a memo.
    makes_memo: bool = False
    # Whether the memo has, for each pair of components, the entropy that their merge would lose.
    with_pair_entropies: bool = False
    # For each move, the observer that returns the notes of the move on the batch; None for a move
    # without observer.
    observers: tuple[Observer | None, ...] = ()
    # Key of the memo of the batch.
    key: Hashable = None
    # (n, J): components with which each row is compared. None and arrays with J = 0 stand for all
    # components.
    candidates: IndexArray | None = None
    # How the global parameters are drawn; None if they are not drawn.
    draw: Draw | None = None
    # The statistics from which the global parameters are drawn, if the request has a ``draw``;
    # otherwise the global parameters for the local step.
    globals_or_stats: Any = None

    @property
    def needs_row_arrays(self) -> bool:
        """Whether the engine needs arrays with an entry for each row.

        If it does not, the results of several batches may be summed.
        """
        with_marginal = self.step_options.get("with_marginal", False)
        return with_marginal or np.ndim(self.inv_temp) > 0 or self.row_starts is not None


@dataclass(frozen=True)
class VisitResult:
    """The result of a visit to a batch, or the sum of several results."""

    # Sums of the local parts of the bound; 0 if the result has a memo, because memoized inference
    # computes the bound from the memos.
    totals: LocalTotals
    # Statistics of the local step, corrected if requested; None if they were not requested.
    stats: Stats | None = None
    # Sum and weight of the statistics from which priors of local variables are learned; None if
    # these priors are fixed or no statistics were requested.
    prior_term: PriorTerm | None = None
    # Mean inverse temperature of the request.
    mean_inv_temp: float = 1.0
    # Memo of the batch; None if it was not requested.
    memo: Memo | None = None
    # Key of the request.
    key: Hashable = None
    # (n,): untempered energy of each row in nats with the local variables summed out; None if it
    # was not requested.
    marginal_energy: Array | None = None
    # (n,): number of units of data of each row, such as its tokens; None if the marginal energy was
    # not requested.
    lengths: Any = None
    # (n,): index of each row; None in a sum, and if the engine needs no arrays with an entry for
    # each row.
    rows: Any = None
    # (n,): weight of each row; None if ``rows`` is None.
    weights: Any = None
    # (n, ...): initial value for the next local step of each row; None if the model has none.
    row_starts: Array | None = None
    # The notes of each move; None for a move without observer.
    notes: tuple[Any, ...] = ()

    def __sizeof__(self) -> int:
        # Dask uses this estimate of the size in bytes to decide where results are sent.
        arrays: list[Any] = [self.row_starts, self.marginal_energy]
        if self.stats:
            arrays += self.stats.arrays
        memo = self.memo
        if memo is not None:
            arrays += [*memo.stats.arrays, memo.merge_entropy_loss, memo.candidates]
        return sum(array.nbytes for array in arrays if array is not None) + 1000

    @classmethod
    def from_parts(cls, results: "Sequence[VisitResult]") -> Self:
        """Return the sum of several results, without memos and arrays of rows.

        The requests must have the same mean inverse temperature.
        """
        totals = LocalTotals()
        for result in results:
            totals.extend(result.totals)
        prior_term = None
        if terms := [result.prior_term for result in results if result.prior_term is not None]:
            sums, weights = zip(*terms, strict=True)
            prior_term = sum(sums[1:], sums[0]), sum(weights)
        stats = [result.stats for result in results if result.stats is not None]
        total_stats = sum_stats(stats) if stats else None
        return cls(totals, total_stats, prior_term, results[0].mean_inv_temp)


def visit_batch(batch: Any, request: VisitRequest, run: Run) -> VisitResult:
    """Make the local step of a batch as requested, and return the requested results."""
    model, inv_temp, draw = request.model, request.inv_temp, request.draw
    global_params = request.globals_or_stats
    if draw is not None:
        rng = np.random.default_rng(draw.seed)
        global_params = model.drawn_globals(request.globals_or_stats, batch, draw.kind, rng, run)
    if request.candidates is not None:
        batch = replace(batch, candidates=request.candidates)
    # Make the local step with the requested initial values and with tempered weights. Moves observe
    # ``batch``, which has neither.
    row_starts = request.row_starts
    batch_with_start = batch if row_starts is None else replace(batch, row_starts=row_starts)
    tempered_batch = weight_by_temperature(batch_with_start, inv_temp)
    result = model.local_step(tempered_batch, global_params, inv_temp, run, **request.step_options)
    # Add up the local parts of the bound, or make a memo, from which the bound is computed later.
    totals = LocalTotals()
    memo = None
    if request.makes_memo:
        memo = make_memo(model, result, batch, run, with_pair_entropies=request.with_pair_entropies)
    else:
        totals.add(result, batch.weights, inv_temp)
    # Let the moves observe the batch. The notes are None for a move without observer.
    solved = SolvedBatch(batch, request.key, global_params, result)
    tools = ObserverTools(run, partial(make_memo, run=run))
    notes = tuple(observer and observer(model, solved, tools) for observer in request.observers)
    stats = result.stats
    if draw is not None and draw.is_corrected and stats is not None:
        stats = model.corrected(request.globals_or_stats, global_params, stats, run)
    return VisitResult(
        totals, stats, mean_inv_temp=request.mean_inv_temp, memo=memo, key=request.key,
        prior_term=None if result.stats is None else model.prior_statistics(batch, result),
        marginal_energy=result.marginal_energy,
        lengths=None if result.marginal_energy is None else batch.lengths,
        rows=batch.rows, weights=batch.weights, row_starts=result.row_starts, notes=notes,
    )  # fmt: skip


def make_memo(
    model: Memoizable, result: LocalResult, batch: Any, run: Run, *,
    with_pair_entropies: bool = True,
) -> Memo:  # fmt: skip
    """Return the :class:`Memo` of a batch after its local step.

    If ``with_pair_entropies``, the memo has the entropy that each merge of two components would
    lose.
    """
    entropy, losses = model.memo_entropy(batch, result, run, pairs=with_pair_entropies)
    # A memo can only be made of a result with statistics.
    assert result.stats is not None
    weight = float(batch.weights.sum())
    return Memo(result.stats, entropy, losses, weight, result.candidates)


def weight_by_temperature(batch: Any, inv_temp: float | Array) -> Any:
    """Return the batch with the weights of the rows multiplied by their inverse temperatures.

    The inverse temperatures ``inv_temp`` (n,) are divided by their weighted mean, so that the total
    weight stays the same. If ``inv_temp`` is a float, the inverse temperature of all rows, the
    result is the batch itself.
    """
    if np.ndim(inv_temp) == 0:
        return batch
    inv_temps = np.asarray(inv_temp, batch.weights.dtype)
    mean = np.average(inv_temps, weights=batch.weights)
    return replace(batch, weights=batch.weights * (inv_temps / mean))  # [VT16 eq. 11]
