"""Births: components learned on a sample of rows join the model [HS13 sec. 3.1].

A *target* is a component that may be replaced, and *fresh* components replace it. A birth has three
phases in two passes:

1. *Collect* rows of the target during a pass.
2. *Create* fresh components after the pass, by fitting a separate mixture to the collected rows.
3. *Adopt* the fresh components in the next pass, in which they compete for all rows.

In the paper, a target is a single component, which stays beside the fresh components, and every
birth is kept. On data that the likelihood fits badly, such births add components faster than merges
remove components. This module differs from the paper in five points:

- A target is a component or, after births from this component have failed, the component and its
  neighbours. A split of a single component does not help, for instance, if two components describe
  their rows badly, and three new components, each with rows of both, would describe them well.
- The collected rows are weighted by the responsibility of the target, so that the exact bounds of
  the fresh components and of the target on these rows can be compared. Fresh components are adopted
  only if their bound is larger. They then replace the target.
- If each component has the rows of many clusters, priors that were learned from these components
  can prevent every split. Rows for which the responsibility of the target is more than 1/2 are
  therefore also fitted under new priors, which are learned from the fresh and all other components.
  The loss of the bound of the other components under the new priors is subtracted from the gain of
  the fresh components.
- If the exact bound of all data has not risen by the end of the second pass, the state before the
  pass is restored.
- A birth only *tiles* if it gains few nats compared with the number of rows. Births end when
  several successive births only tile. Without this rule, births would continue for a long time on
  data with a thin or even density, for which many numbers of components are about equally good.

In a stream, all three phases happen within a batch, and a target is a single component. If other
batches have rows of the target, the target stays, and new priors are also learned from these rows.
If rows of later calls may still join the batch, births from a target wait until its rows since the
last births differ from its earlier rows.

The exact bound of all data is known from the *memos* of the batches: the statistics and entropies
of their last local steps.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import (
    Memos,
    Mergeable,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    SolvedBatch,
)
from skvt.expfam import Stats
from skvt.moves._base import (
    compute_bound,
    concatenate_components,
    learn_priors,
    make_requirements,
    select_components,
)
from skvt.moves._batch import BatchBirths, select_smallest_components
from skvt.moves._fresh import FreshMixtures, FreshResult
from skvt.moves._ledger import Ledger
from skvt.moves._merge import MIN_GAIN_OF_PRIORS, dissolve
from skvt.moves._targets import (
    FAILURES_IF_LOST,
    MAX_ROWS,
    CollectedRows,
    Target,
    collect_rows,
    draw_targets,
)
from skvt.moves._trial import Decision, decide
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray

# Maximum number of targets of a pass, as a share of the number of components. A single target is
# always allowed.
MAX_TARGET_SHARE = 0.5
# A birth only tiles if its gain is at most _MAX_TILING_GAIN_PER_ROW nats for each row, and at most
# _MAX_TILING_GAIN nats. Its target then describes the rows nearly as well as fresh components.
_MAX_TILING_GAIN_PER_ROW = 0.0025
_MAX_TILING_GAIN = 10.0
# Births end after this number of successive births that only tile.
_MAX_TILING_BIRTHS = 5


class Birth(Move):
    """Births, which replace a component, or a component and its neighbours, by fresh components.

    Births add components only up to ``max_components``. ``exhausted`` is true if the last pass has
    adopted no components and no target is left to try.
    """

    # Attributes that an interrupted fit keeps, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {
        **Move.kept_attributes,
        "_targets": list[Target],
        "_fresh": Annotated[list[Stats], "fresh"],
        "_ledger": Ledger,
        "_share": float,
        "_learns": bool,
        "_seed": int,
        "_n_tiling": int,
    }
    requires = make_requirements("A birth")
    # Whether any fresh components were fitted under newly learned priors.
    _learns: bool = False
    # Seed of the choice among the rows of large targets.
    _seed: int = 0
    # Number of successive births that only tile.
    _n_tiling: int = 0

    def __init__(self, max_components: int) -> None:
        self._max_components = max_components
        # During a pass, the targets whose rows are collected. Between passes, the targets that the
        # components in ``_fresh`` will replace.
        self._targets: list[Target] = []
        # Statistics of the fresh components of each target, to be adopted in the next pass.
        self._fresh: list[Stats] = []
        # The record of failed births by the ids of the components of their targets.
        self._ledger = Ledger()
        # Checkpoint of the state, bound in nats, and model before this pass adopted components;
        # None if the pass has adopted no components. `begin` sets it, and `finish` reads it.
        self._before_adoption: tuple[Any, float, Any] | None = None
        # Targets that the adopted components replace, and the identifiers of the adopted components
        # during this pass. `begin` sets both.
        self._adopted_targets: list[Target] = []
        self._newborn_ids: set[int] = set()
        # Present maximum number of targets of a pass, as a share of the number of components.
        self._share = MAX_TARGET_SHARE
        self.exhausted = False

    # ------------------------------------------------------------------------------- a pass
    def begin(self, model: Mergeable, state: MovableState, tools: MoveTools) -> None:
        """Adopt the fresh components of the last pass, then choose the targets of this pass."""
        self._before_adoption = None
        self._adopted_targets = self._targets
        # Forget failures if the priors of the model have changed.
        self._ledger = self._ledger.forget_if_priors_changed(model)
        if self._fresh:
            bound = compute_bound(model, state.memos.total())
            self._before_adoption = state.checkpoint(), bound, model
            replaced_ids = [id_ for target in self._adopted_targets for id_ in target.ids]
            kept_components = np.flatnonzero(~np.isin(state.component_ids, replaced_ids))
            fresh = concatenate_components(self._fresh)
            if self._learns:
                other_stats = select_components(state.plain_stats.as_stats(), kept_components)
                # The engine continues with these priors, see :meth:`Move.update_priors`.
                self._relearned_model = learn_priors(model, [other_stats, *self._fresh])
            # Replace the targets by empty components, for which the index -1 stands.
            n_kept, n_fresh = kept_components.size, len(fresh.arrays[0])
            state.rearrange(np.concatenate([kept_components, np.full(n_fresh, -1)]))
            # Add the statistics of the fresh components to the statistics of the state [HS13], so
            # that the fresh components get rows during the pass. The end of the pass drops them,
            # because it computes the statistics of the state as the sum of the memos.
            zeros = Stats(tuple(np.zeros((n_kept, *array.shape[1:])) for array in fresh.arrays))
            state.stats.add(concatenate_components([zeros, fresh]))
            self._newborn_ids = set(state.component_ids[n_kept:].tolist())
        self._fresh = []
        self._learns = False
        counts = model.component_masses(state.plain_stats.as_stats())
        overlaps = _compute_overlaps(state.memos, counts.size)
        self._targets = self._choose_targets(counts, state.component_ids, tools, overlaps)
        if any(sum(target.masses) > MAX_ROWS for target in self._targets):
            self._seed = int(tools.rng.integers(2**31))

    def _choose_targets(
        self, counts: Array, ids: IndexArray, tools: MoveTools, overlaps: Array | None = None
    ) -> list[Target]:
        """Return the targets of a pass; none if there are enough components or births only tile."""
        if counts.size >= self._max_components or self._n_tiling >= _MAX_TILING_BIRTHS:
            return []
        n_targets = max(1, int(self._share * counts.size))
        return draw_targets(self._ledger, counts, ids, tools.rng, n_targets, overlaps)

    def make_observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Return an observer that collects rows of the targets.

        The observer takes the same share of the rows of a large target from each batch, because the
        rows of the data may be sorted.
        """
        requests = [target.request for target in self._targets]
        return partial(collect_rows, requests, self._seed) if requests else None

    def store_notes(self, notes: list[CollectedRows]) -> None:
        """Store the rows of each target that the observer has collected."""
        for target, rows_of_target in zip(self._targets, notes, strict=True):
            target.add(rows_of_target)

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Keep or remove the adopted components, then fit fresh components to the collected rows.

        Births finish after all other moves, so that merges of adopted components add to the gain of
        the adoption. Return the record of the adopted components, and the records of births that
        failed. The new fresh components are adopted in the next pass, and recorded at its end.
        """
        records = [self._judge_adopted(model, state, tools)] if self._before_adoption else []
        # Leave out targets with components that no longer exist after merges, deletes, or the
        # removal of adopted components.
        ids = state.component_ids
        targets = [target for target in self._targets if np.isin(target.ids, ids).all()]
        stats = state.plain_stats.as_stats()
        # Number of components that births may still add.
        n_left = self._max_components - model.size(state.stats)
        n_tried = 0
        gains: list[float] = []
        self._targets = []
        for target in targets:
            if n_left <= 0:
                break
            n_tried += 1
            components = target.components
            is_target = np.isin(ids, target.ids)
            other_stats = select_components(stats, ~is_target)
            target_model = model.for_births(select_components(stats, is_target))
            max_fresh = n_left + len(components)
            mixtures = FreshMixtures(target_model, tools, max_fresh, other_stats)
            result = self._fit_fresh_components(mixtures, target)
            decision = result.decision
            if decision.is_accepted and result.stats is not None:
                self._fresh.append(result.stats)
                gains.append(decision.gain)
                self._learns |= result.learns_priors
                # Keep the target without the collected rows, which need memory.
                self._targets.append(replace(target, rows=[], weights=[], resp=[]))
                n_left = max_fresh - len(result.stats.arrays[0])
            else:
                description = result.description
                records.append(decision.record(tools.n_iter, "birth", components, description))
        if gains:
            n_rows = model.component_masses(stats).sum()
            only_tile = max(gains) <= min(_MAX_TILING_GAIN_PER_ROW * n_rows, _MAX_TILING_GAIN)
            self._n_tiling = self._n_tiling + len(gains) if only_tile else 0
        self.exhausted = self._before_adoption is None and n_tried == 0
        return records

    def _fit_fresh_components(self, mixtures: FreshMixtures, target: Target) -> FreshResult:
        """Return the best fresh components for the collected rows.

        If they are no better than the target, record the failure in the ledger.
        """
        # Only failures of the first component count, which was drawn; the others are neighbours.
        was_tried = bool(self._ledger.count_failures(target.ids[:1], target.masses[:1])[0])
        result = mixtures.fit_target_rows(target, was_tried)
        if not result.decision.is_accepted:
            self._ledger = self._ledger.record_failure(target.ids, target.masses, FAILURES_IF_LOST)
        return result

    def _judge_adopted(self, model: Mergeable, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Decide on the adopted components; return the record of the decision.

        If they are rejected, restore the state before the adoption.
        """
        # Remove adopted components that have less than one row.
        dissolve(model, state, self._newborn_ids)
        # This method is called only after an adoption.
        assert self._before_adoption is not None
        checkpoint, bound_before, model_before = self._before_adoption
        gain = compute_bound(model, state.memos.total()) - bound_before
        decision = decide(gain, abs(bound_before), MIN_GAIN_OF_PRIORS)
        if decision.is_accepted:
            self._share = min(MAX_TARGET_SHARE, 2.0 * self._share)
        else:
            state.restore(checkpoint)
            self._relearned_model = model_before
            # Good births may have been rejected together with bad births. Therefore choose fewer
            # targets from now on, and record a failure only after the birth of a single target.
            self._share *= 0.5
            if len(self._adopted_targets) == 1:
                (target,) = self._adopted_targets
                self._ledger = self._ledger.record_failure(target.ids, target.masses)
        components = [k for target in self._adopted_targets for k in target.components]
        n_fresh, n_targets = len(self._newborn_ids), len(self._adopted_targets)
        tried = f"{n_fresh} fresh components, adopted for a pass"
        return decision.record(tools.n_iter, "birth", components, tried, n_fresh, n_targets)

    # ----------------------------------------------------------------------------- a stream
    def change_within_batch(
        self, model: Mergeable, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try births within a batch; accept a birth if the exact bound of all memos rises."""
        counts = model.component_masses(state.memos[key].stats)
        global_params = model.expectation(state.stats, batch, tools.run)
        # The inverse temperature is 1.
        result = model.local_step(batch, global_params, 1.0, tools.run, with_stats=False)
        if tools.n_judged is not None:
            # A component is no target as long as its new rows are like its earlier rows.
            has_new_rows = _have_new_rows(model, state.memos, key, batch, result.q, tools.n_judged)
            counts = np.where(has_new_rows, counts, 0.0)
        self._targets = self._choose_targets(counts, state.component_ids, tools)
        self.exhausted = not self._targets
        # Collect the rows of the targets, as a pass would do for each batch.
        observer = self.make_observer(batch.weights.size, tools)
        if observer is not None:
            solved_batch = SolvedBatch(batch, key, global_params, result)
            notes = observer(model, solved_batch, ObserverTools(tools.run, tools.make_memo))
            self.store_notes(notes)
        records = list[MoveRecord]()
        for target in self._targets:
            if model.size(state.stats) >= self._max_components:
                break
            births = BatchBirths(model, batch, key, state, tools)
            decision, description, n_fresh, fresh_model = self._try_birth_within(births, target)
            if decision.is_accepted:
                model = self._relearned_model = fresh_model
            else:
                self._ledger = self._ledger.record_failure(target.ids, target.masses)
            record = decision.record(tools.n_iter, "birth", target.components, description, n_fresh)
            records.append(record)
        return records

    def _try_birth_within(
        self, births: BatchBirths, target: Target
    ) -> tuple[Decision, str, int, Mergeable]:
        """Try births from a target within a batch, until a birth is accepted.

        Return the decision, a description of the last birth, the number of fresh components, and
        the model with their priors. The number is 0 if no birth was accepted.
        """
        model, state = births.model, births.state
        n_before = model.size(state.stats)
        kept_components = births.find_kept_components(target)
        other_stats = births.compute_statistics_without_target_rows(kept_components, target)
        max_fresh = self._max_components - n_before + 1
        # First fit fresh components under priors that are learned from the fresh and all other
        # components. If they raise the bound of the collected rows, but not the bound of all rows,
        # then fit fresh components under the priors of the model. ``model.for_births`` is for
        # targets that are replaced; here the target stays if it has rows in other batches.
        for prior_sources in (other_stats, None):
            mixtures = FreshMixtures(model, births.tools, max_fresh, prior_sources, in_stream=True)
            result = self._fit_fresh_components(mixtures, target)
            fresh_model, decision = model, result.decision
            if result.decision.is_accepted and result.stats is not None:
                if result.learns_priors:
                    fresh_model = learn_priors(model, [other_stats, result.stats])
                max_added = self._max_components - kept_components.size
                added_stats = select_smallest_components(model, result.stats, max_added)
                decision = births.try_components(fresh_model, added_stats, kept_components)
            raises_only_bound_of_its_rows = result.decision.is_accepted and not decision.is_accepted
            needs_other_priors = result.learns_priors and raises_only_bound_of_its_rows
            if not needs_other_priors or not other_stats.arrays[0].size:
                break
        if not decision.is_accepted and len(state.memos) > 1 and result.one_component is not None:
            # Try to add a component for all collected rows beside the target, because the target's
            # rows in this batch may differ from its rows in other batches.
            all_components = np.arange(n_before)
            decision_on_one = births.try_components(model, result.one_component, all_components)
            if decision_on_one.is_accepted:
                return decision_on_one, "one component for the rows of this call", 1, model
        n_fresh = model.size(state.stats) - kept_components.size if decision.is_accepted else 0
        return decision, result.description, n_fresh, fresh_model


def _compute_overlaps(memos: Memos, n_components: int) -> Array:
    """Return the entropy in nats that each merge of two components would lose, (K, K).

    The matrix is symmetric. Unknown entries are 0, as all entries are before the first memo.
    """
    merge_entropy_loss = memos.total().merge_entropy_loss if memos else None
    if merge_entropy_loss is None:
        return np.zeros((n_components, n_components))
    return np.nan_to_num(merge_entropy_loss + merge_entropy_loss.T)


def _have_new_rows(
    model: Mergeable, memos: Memos, key: Hashable, batch: Any, q: Array, n_judged: int
) -> NDArray[np.bool_]:
    """Return for each component whether its new rows differ from its earlier rows, (K,).

    New rows follow the first ``n_judged`` rows of the batch; all other rows of the stream are
    earlier rows. New and earlier rows differ if two separate components for them have more evidence
    than a single component, or if there are no earlier rows. ``q`` (n, K) are the responsibilities
    for the rows of the batch.
    """

    def compute_stats(rows: slice) -> Stats:
        """Return the statistics of some rows of the batch with the responsibilities q."""
        weights = batch.weights[rows]
        some_rows = model.batch(batch.X[rows], np.arange(weights.size), weights)
        stats = model.make_local_result(some_rows, q[rows]).stats
        # ``make_local_result`` returns statistics.
        assert stats is not None
        return stats

    total_memo = memos.total()
    new_stats = compute_stats(slice(n_judged, None))
    # The earlier rows are the rows of other batches, and the first ``n_judged`` rows of this batch.
    earlier_stats = total_memo.plus(memos[key], sign=-1.0).stats
    if n_judged:
        first_stats = compute_stats(slice(n_judged))
        arrays = zip(earlier_stats.arrays, first_stats.arrays, strict=True)
        earlier_stats = Stats(tuple(array + addend for array, addend in arrays))
    are_new = ~exceeds(model.component_masses(earlier_stats), 0.0, scale=total_memo.weight)
    # Merges are judged among 2 K components: the components of the earlier rows have the numbers 0
    # to K - 1, and the components of the new rows the numbers K to 2 K - 1.
    all_stats = concatenate_components([earlier_stats, new_stats])
    has_earlier = np.flatnonzero(~are_new)
    gains = model.merge_gains(all_stats, has_earlier, are_new.size + has_earlier)
    are_new[has_earlier] = gains < 0.0
    return are_new
