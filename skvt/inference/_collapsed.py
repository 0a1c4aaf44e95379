"""Collapsed inference: globals are integrated out, local variables drawn given all others."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from skvt.contracts import (
    Capability,
    Collapsible,
    LocalTotals,
    PassInputs,
    PassResult,
    Requirement,
    RunningPolicy,
)
from skvt.expfam import RunningStats, Stats
from skvt.inference._parallel import Workers
from skvt.inference._state import PriorStats, Rows, State, WithoutMemosMixin
from skvt.inference._visit import VisitRequest
from skvt.progress import Continued
from skvt.stages import add_note
from skvt.typing import Array, IndexArray

# Passes between updates of the globals' priors, each of which visits all globals.
PASSES_PER_PRIOR = 5
# Share of passes, and their least number, between two that draw rows given the globals alone.
SHARE_BETWEEN = 0.03
FEWEST_BETWEEN = 6
# Share of all passes after which no pass draws rows given the globals alone.
SHARE_PLACED = 0.5
# Bytes of prepared batches that are kept from pass to pass; others are prepared for each pass.
MOST_PREPARED = 2**30


class CollapsedInference(WithoutMemosMixin, Continued):
    """Gibbs sampling of local variables with the globals summed out, at T = 1.

    The statistics are those of the drawn local variables, so that q(beta) is the posterior given
    these. They are kept batch by batch. The first pass draws local variables given the initial
    globals. A few passes in the first part of a fit draw them given the current globals, so that
    rows leave assignments that the sampler by itself hardly ever leaves. If ``n_passes`` is 0, only
    the first pass does so. Over the last ``n_averaged`` passes, at most half, ``sums`` adds up the
    statistics of each batch.
    """

    # `_every` and `_last` are not kept, because a resumed fit may have more passes
    kept: ClassVar[dict[str, Any]] = {
        "_pass": int,
        "_ends": Annotated[list[IndexArray], "components"],
    }
    requires = (
        Requirement(
            "Collapsed inference", Capability.COLLAPSIBLE, "Use structured inference instead."
        ),
    )

    def __init__(self, n_passes: int = 0, n_averaged: int = 0) -> None:
        self._every = max(FEWEST_BETWEEN, round(SHARE_BETWEEN * n_passes))
        self._last = SHARE_PLACED * n_passes
        self._pass = 0
        self._ends: list[Array] = []
        self._prepared: list[Sequence[Any]] = []
        self._n_passes, self._n_averaged = n_passes, n_averaged
        self.sums: list[Stats] = []

    def run_pass(self, model: Collapsible, state: State, inputs: PassInputs) -> PassResult:
        """Make one sweep over the rows; ``state`` changes in place."""
        data, policy, workers, _ = inputs
        totals, fresh, prior_stats = LocalTotals(), None, PriorStats()
        placed = bool(self._ends) and (self._pass % self._every > 0 or self._pass > self._last)
        if self._ends and not placed:
            add_note("topics of all tokens drawn again")
        begins, ends = iter(self._ends if placed else []), list[Any]()
        # one seed for the pass: the random numbers of a batch depend on its rows' indices, too
        seed = int(np.random.default_rng([state.seed, self._pass]).integers(2**62))

        def make_request(batch: Any) -> VisitRequest:
            return VisitRequest(model, start=next(begins, None))

        def make_globals(batch: Any) -> Any:
            return model.counts_given_others(state.stats, batch, seed)

        policy.advance(state.rows_seen / data.total, 1.0, state.n_steps)
        for batches in self._rounds(model, data, workers):
            for found in data.visit(batches, make_request, make_globals, workers):
                assert found.stats is not None and found.start is not None  # as it is
                if self._n_averaged:
                    width = state.stats.arrays[0].shape[1]
                    self._include(found.stats.whole_rows(width), len(ends), placed)
                ends.append(found.start)
                totals.extend(found.totals)
                prior_stats.add(found.prior)
                if placed:
                    state.stats.add(found.stats, 1.0, workers.run)
                else:
                    fresh = fresh or RunningStats.zeros_like(state.stats)
                    fresh.add(found.stats, 1.0, workers.run)
            state.n_steps += data.n_steps(batches)
        if fresh is not None:
            state.stats = fresh
        if not self._pass % PASSES_PER_PRIOR:
            state.stats.resum()  # rounding of fractional counts accumulates
        state.prior_stats, self._ends = prior_stats.without_last(), ends
        state.rows_seen += totals.weight
        self._pass += 1
        stats = None if self._pass % PASSES_PER_PRIOR else state.plain_stats
        if placed:
            slowly = self._pass <= self._last
            model = model.with_most_probable_priors(prior_stats, stats, slowly=slowly)
        return PassResult(totals, 0.0, model, "none")

    def _include(self, changed: Stats, place: int, placed: bool) -> None:
        """Add the changes of a batch, times the number of averaged passes that they affect."""
        factor = min(self._n_passes - self._pass, self._n_averaged)
        seen = Stats(tuple(factor * array for array in changed.arrays), changed.rows)
        if not placed:
            self.sums[place:] = [seen]
            return
        held, rows = self.sums[place].rows, seen.rows
        # (of many topics, rows are those of tokens that have moved)
        same = held is None or rows is None or held.size == rows.size
        at: Any = slice(None) if same else np.searchsorted(held, rows)  # type: ignore[arg-type]
        for total, array in zip(self.sums[place].arrays, seen.arrays, strict=True):
            total[at] += array

    def _rounds(self, model: Collapsible, data: Rows, workers: Workers) -> Iterator[Sequence[Any]]:
        """Yield the batches; prepare them in the first pass only, unless they are large."""
        if self._prepared:
            yield from self._prepared
            return
        prepared: list[Sequence[Any]] = []
        size = 0
        for batches in data.rounds(model, workers, data.order()):
            size += sum(batch.nbytes for batch in batches)
            prepared.append(batches)
            if size > MOST_PREPARED:
                prepared = []
            yield batches
        self._prepared = prepared if size <= MOST_PREPARED else []


def collapsed_means(
    model: Collapsible, data: Rows, state: State, n_passes: int, workers: Workers
) -> list[Stats]:
    """Return mean statistics of batches over the second half of passes that change ``state``."""
    n_averaged = -(-n_passes // 2)
    engine = CollapsedInference(n_passes, n_averaged)
    inputs = PassInputs(data, RunningPolicy(), workers)
    for _ in range(n_passes):
        engine.run_pass(model, state, inputs)
    for found in engine.sums:
        for array in found.arrays:  # (what cancels may leave less than nothing)
            np.maximum(array, 0.0, out=array)
            array /= array.dtype.type(n_averaged)
    return engine.sums
