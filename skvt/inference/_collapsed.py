"""Collapsed inference: each local variable is drawn given all others, with the globals summed out.

The *globals* are the global parameters. :class:`CollapsedInference` is the engine, that is, the
inference algorithm, and :func:`average_collapsed_passes` averages over its passes. A *visit* makes
the local step of a batch of rows, which draws the local variables of the batch. The collapsed topic
model is :class:`~skvt.models.lda._collapsed.CollapsedLDA`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from skvt._stages import add_note
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
from skvt.progress import ResumableMixin
from skvt.typing import Array, IndexArray

# The priors of the globals are updated after this number of passes. Updates are rare, because they
# read the statistics of all globals.
PASSES_PER_PRIOR_UPDATE = 5
# A restart is a pass that draws the local variables given the globals, instead of given all other
# local variables. The interval between restarts is the share RESTART_SHARE of all passes, but at
# least MIN_PASSES_PER_RESTART passes. After LAST_RESTART_SHARE of all passes, restarts end.
RESTART_SHARE = 0.03
MIN_PASSES_PER_RESTART = 6
LAST_RESTART_SHARE = 0.5
# Prepared batches are kept from pass to pass if all of them need at most this number of bytes.
# Otherwise they are prepared again in each pass.
MAX_BYTES_PREPARED = 2**30


class CollapsedInference(WithoutMemosMixin, ResumableMixin):
    """Gibbs sampling of local variables with the globals summed out, at the temperature 1.

    The statistics are computed from the drawn local variables, so that q(beta) is the posterior of
    the globals beta given the drawn variables. The drawn variables of each batch are kept, and the
    next pass starts with them.

    The first pass draws local variables given the initial globals. In the first half of the
    ``n_passes`` passes a few *restarts* follow: passes that draw all local variables again, given
    the current globals. Rows thus leave assignments that the sampler by itself hardly ever leaves.
    If ``n_passes`` is 0, there are no restarts, except after moves.

    The attribute ``sums`` has the statistics of each batch, summed over the last ``n_averaged``
    passes. ``n_averaged`` is at most half of ``n_passes``, because a restart discards the sums.
    """

    # Attributes that an interrupted fit keeps. `_passes_per_restart` and `_last_restart` are not
    # kept, because a resumed fit may have more passes.
    kept_attributes: ClassVar[dict[str, Any]] = {
        "_pass": int,
        "_n_moves": int,
        "_ends": Annotated[list[IndexArray], "components"],
    }
    # Number of accepted moves before the last pass; 0 in files of versions without moves.
    _n_moves: int = 0
    requires = (
        Requirement(
            "Collapsed inference", Capability.COLLAPSIBLE, "Use structured inference instead."
        ),
    )

    def __init__(self, n_passes: int = 0, n_averaged: int = 0) -> None:
        self._passes_per_restart = max(MIN_PASSES_PER_RESTART, round(RESTART_SHARE * n_passes))
        # Number of passes after which there are no restarts.
        self._last_restart = LAST_RESTART_SHARE * n_passes
        # Number of passes made so far.
        self._pass = 0
        # The drawn local variables of each batch, with which the next visit of the batch starts.
        self._ends: list[Array] = []
        # Lists of batches that are visited at once, if they are kept from pass to pass.
        self._prepared_batches: list[Sequence[Any]] = []
        self._n_passes = n_passes
        self._n_averaged = n_averaged
        self.sums: list[Stats] = []

    def run_pass(self, model: Collapsible, state: State, inputs: PassInputs) -> PassResult:
        """Make a pass over the rows, and change ``state`` in place. The result has no bound."""
        data, policy, workers, _ = inputs
        totals, prior_stats = LocalTotals(), PriorStats()
        new_stats = None
        # Local steps start with the variables that the last pass has drawn, except in the first
        # pass, in restarts, and after accepted moves, which have changed the globals.
        n_moves = sum(record.accepted for record in state.move_log)
        has_moved = n_moves > self._n_moves
        self._n_moves = n_moves
        is_restart = self._pass % self._passes_per_restart == 0 and self._pass <= self._last_restart
        has_starts = bool(self._ends) and not (is_restart or has_moved)
        if self._ends and not has_starts:
            add_note("topics of all tokens drawn again")
        # The drawn variables of each batch before and after this pass.
        starts = iter(self._ends if has_starts else [])
        drawn_variables: list[Any] = []
        # All batches have the same seed. The random numbers of batches still differ, because they
        # also depend on the indices of the rows.
        seed = int(np.random.default_rng([state.seed, self._pass]).integers(2**62))

        def make_request(batch: Any) -> VisitRequest:
            # The iterator is empty if local steps have no starts.
            return VisitRequest(model, row_starts=next(starts, None))

        make_globals = partial(model.counts_given_others, state.stats, seed=seed)
        # A pass visits the share 1 of the rows.
        policy.advance(state.rows_seen / data.total, 1.0, state.n_steps)
        for batches in self._group_batches(model, data, workers):
            for result in data.visit(batches, make_request, make_globals, workers):
                # The local step of a collapsible model returns statistics and drawn variables.
                assert result.stats is not None and result.row_starts is not None
                if self._n_averaged:
                    width = state.stats.arrays[0].shape[1]
                    batch_number = len(drawn_variables)
                    self._add_to_sums(result.stats.as_whole_rows(width), batch_number, has_starts)
                drawn_variables.append(result.row_starts)
                totals.extend(result.totals)
                prior_stats.add(result.prior_term)
                if has_starts:
                    # Local steps with starts return changes of the statistics.
                    state.stats.add(result.stats, 1.0, workers.run)
                else:
                    new_stats = new_stats or RunningStats.zeros_like(state.stats)
                    new_stats.add(result.stats, 1.0, workers.run)
            state.n_steps += data.count_steps(batches)
        if new_stats is not None:
            state.stats = new_stats
        if self._pass % PASSES_PER_PRIOR_UPDATE == 0:
            # Recompute the sums over rows that `RunningStats` keeps, because rounding errors of
            # fractional counts accumulate.
            state.stats.resum()
        # Only `with_most_probable_priors` needs the last entry of the statistics.
        state.prior_stats = prior_stats.without_last()
        state.rows_seen += totals.weight
        self._ends = drawn_variables
        self._pass += 1
        if has_starts:
            # If ``stats`` is None, the model does not learn the priors of the globals. While
            # restarts may follow, priors are learned slowly.
            learns_globals = self._pass % PASSES_PER_PRIOR_UPDATE == 0
            stats = state.plain_stats if learns_globals else None
            slowly = self._pass <= self._last_restart
            model = model.with_most_probable_priors(prior_stats, stats, slowly=slowly)
        return PassResult(totals, 0.0, model, bound_kind="none")

    def _add_to_sums(self, stats: Stats, batch_number: int, is_change: bool) -> None:
        """Add the statistics of a batch, or their change in this pass, to the sums.

        Statistics count in each averaged pass until they change. The addend is therefore multiplied
        by the number of averaged passes from this pass on, so that later passes add only changes.
        ``batch_number`` is the number of the batch in the pass.
        """
        n_averaged_from_now = min(self._n_passes - self._pass, self._n_averaged)
        addend = Stats(tuple(n_averaged_from_now * array for array in stats.arrays), stats.rows)
        if not is_change:
            # The first pass and restarts replace all earlier sums.
            self.sums[batch_number:] = [addend]
            return
        sum_rows, rows = self.sums[batch_number].rows, addend.rows
        # The change may have only some rows of the arrays. ``positions`` are their positions in the
        # arrays of the sum.
        positions: Any = slice(None)
        if sum_rows is not None and rows is not None:
            positions = np.searchsorted(sum_rows, rows)
        for sums, array in zip(self.sums[batch_number].arrays, addend.arrays, strict=True):
            sums[positions] += array

    def _group_batches(
        self, model: Collapsible, data: Rows, workers: Workers
    ) -> Iterator[Sequence[Any]]:
        """Yield lists of batches that are visited at once.

        The batches are prepared only in the first pass, unless they are too large to be kept.
        """
        if self._prepared_batches:
            yield from self._prepared_batches
            return
        prepared: list[Sequence[Any]] = []
        nbytes = 0
        for batches in data.group_batches(model, workers, data.list_batches()):
            nbytes += sum(batch.nbytes for batch in batches)
            prepared.append(batches)
            if nbytes > MAX_BYTES_PREPARED:
                prepared = []
            yield batches
        self._prepared_batches = prepared if nbytes <= MAX_BYTES_PREPARED else []


def average_collapsed_passes(
    model: Collapsible, data: Rows, state: State, n_passes: int, workers: Workers
) -> list[Stats]:
    """Make passes of collapsed inference; return the mean statistics of each batch.

    The means are taken over the second half of the passes. ``state`` changes in place, and the
    priors of the model do not change.
    """
    n_averaged = -(-n_passes // 2)
    engine = CollapsedInference(n_passes, n_averaged)
    inputs = PassInputs(data, RunningPolicy(), workers)
    for _ in range(n_passes):
        engine.run_pass(model, state, inputs)
    for sums in engine.sums:
        for array in sums.arrays:
            # Changes that cancel each other may leave small negative numbers.
            np.maximum(array, 0.0, out=array)
            array /= array.dtype.type(n_averaged)
    return engine.sums
