"""Births: components learned on a targeted sample join the model [HS13 sec. 3.1].

A birth has three phases in two passes: *collect* rows that a target explains, *create* fresh
components by fitting a separate mixture to them, and *adopt* these in the next pass, in which they
compete for all rows. In the paper a target is one component, which stays, and every birth is kept.
On data that the likelihood fits badly, this adds components faster than merges remove them. Here

- a target is one component or, after births from it have failed, the component and its neighbours.
  Three components may describe rows well that two describe badly, even if none of the three is a
  part of one of the two;
- rows are weighted by the target's responsibility, so that the exact bounds of the fresh and of the
  target's components on these rows can be compared. Fresh components are adopted only if they are
  better, and they replace the target;
- priors learned from few components, each of many clusters, can prevent every split. Rows of which
  a target has more than half are therefore also fitted under priors learned from the seeds among
  them and all other components; the loss of the other components counts;
- if the exact bound of all data has not risen by the end of the second pass, the former state is
  restored.

In a stream all three phases happen within one batch. A target is then one component. It is kept if
other batches have rows of it, and priors are also learned from these rows.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from skvt.contracts import (
    Memos,
    Mergeable,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    Solved,
)
from skvt.expfam import Stats
from skvt.moves._base import bound_of, joined, learned, of_components
from skvt.moves._batch import BatchOfStream, at_most
from skvt.moves._fresh import Fresh, FreshMixtures
from skvt.moves._ledger import Ledger
from skvt.moves._merge import SMALLEST_GAIN, dissolve
from skvt.moves._targets import LOST, MOST_ROWS, Collected, Target, choose, collected
from skvt.moves._trial import Outcome, judged
from skvt.typing import Array, IndexArray

# Maximum number of targets of a pass relative to the number of components; at least one.
MOST_TARGETS = 0.5


class Birth(Move):
    """Propose fresh components that replace a component, or a component and its neighbours.

    The model has at most ``max_components``. ``exhausted`` is true if no components have just been
    adopted and no target is left to try.
    """

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_targets": list[Target],
        "_fresh": Annotated[list[Stats], "fresh"],
        "_ledger": Ledger,
        "_share": float,
        "_learns": bool,
        "_seed": int,
    }
    requires = of_components("A birth")
    # Whether fresh components have been fitted under newly learned priors.
    _learns: bool = False
    # Seed of the choice among the rows of large targets.
    _seed: int = 0

    def __init__(self, max_components: int) -> None:
        self._max_components = max_components
        self._targets: list[Target] = []
        self._fresh: list[Stats] = []
        self._ledger = Ledger()
        # state, bound and model before the adoption, and targets of the adopted components
        self._before: tuple[Any, float, Any] | None = None
        self._adopted: list[Target] = []
        self._share = MOST_TARGETS
        self.exhausted = False

    # ------------------------------------------------------------------------------- a pass
    def begin(self, model: Mergeable, state: MovableState, tools: MoveTools) -> None:
        """Adopt the components created after the last pass, then choose targets for this one."""
        self._before, self._adopted = None, self._targets
        self._ledger = self._ledger.under(model)
        if self._fresh:
            self._before = state.checkpoint(), bound_of(model, state.memos.total()), model
            gone = [id_ for target in self._adopted for id_ in target.ids]
            kept = np.flatnonzero(~np.isin(state.component_ids, gone))
            fresh = joined(self._fresh)
            if self._learns:
                self._relearned = learned(model, [_others(state, gone), *self._fresh])
            state.rearrange(np.concatenate([kept, np.full(len(fresh.arrays[0]), -1)]))
            # [HS13] S' keeps the new components alive during the pass; resum removes it again
            none = Stats(tuple(np.zeros((kept.size, *array.shape[1:])) for array in fresh.arrays))
            state.stats.add(joined([none, fresh]))
            self._newborn = set(state.component_ids[kept.size :].tolist())
        self._fresh, self._learns = [], False
        counts = model.component_masses(state.plain_stats.value())
        overlaps = _overlaps(state.memos, counts.size)
        self._targets = self._choose(counts, state.component_ids, tools, overlaps)
        if any(sum(target.masses) > MOST_ROWS for target in self._targets):
            self._seed = int(tools.rng.integers(2**31))

    def _choose(
        self, counts: Array, ids: IndexArray, tools: MoveTools, overlaps: Array | None = None
    ) -> list[Target]:
        """Choose targets, unless the model has as many components as it may have."""
        number = max(1, int(self._share * counts.size))
        number = number if counts.size < self._max_components else 0
        return choose(self._ledger, counts, ids, tools.rng, number, overlaps)

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Collect rows of the targets: the same share of each batch, since rows may be sorted."""
        wanted = [target.wanted for target in self._targets]
        return partial(collected, wanted, self._seed) if wanted else None

    def note(self, noted: list[Collected]) -> None:
        """Keep the rows of the targets."""
        for target, part in zip(self._targets, noted, strict=True):
            target.add(part)

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Keep or discard the adopted components, then create fresh ones from collected rows.

        The other moves have finished before, so that their gains count for the adopted components.
        Births that are created are recorded in the next pass, which decides on them.
        """
        records = [self._judge(model, state, tools)] if self._before else []
        # the ids of components that were merged or restored since then do not exist any more
        targets = [
            target for target in self._targets if np.isin(target.ids, state.component_ids).all()
        ]
        n_left = self._max_components - model.size(state.stats)
        n_tried, self._targets = 0, []
        for target in targets:
            if n_left <= 0:
                break
            n_tried += 1
            n_old = len(target.components)
            others = _others(state, target.ids)
            fresh = self._create(FreshMixtures(model, tools, n_left + n_old, others), target)
            if fresh.outcome.is_accepted and fresh.stats is not None:
                self._fresh.append(fresh.stats)
                self._learns |= fresh.learns
                self._targets.append(replace(target, rows=[], weights=[], resp=[]))
                n_left -= len(fresh.stats.arrays[0]) - n_old
            else:
                parts = tools.n_iter, "birth", target.components, fresh.tried
                records.append(fresh.outcome.record(*parts))
        self.exhausted = self._before is None and n_tried == 0
        return records

    def _create(self, mixtures: FreshMixtures, target: Target) -> Fresh:
        """Return fresh components for the collected rows, and remember a failure."""
        was_tried = bool(self._ledger.tries(target.ids[:1], target.masses[:1])[0])
        fresh = mixtures.of(target, was_tried)
        if not fresh.outcome.is_accepted:
            self._ledger = self._ledger.failed(target.ids, target.masses, LOST)
        return fresh

    def _judge(self, model: Mergeable, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Decide on the adoption; restore the former state if its gain is too small."""
        dissolve(model, state, self._newborn)
        assert self._before is not None  # something has been adopted
        saved, before, begun = self._before
        gain = bound_of(model, state.memos.total()) - before
        outcome = judged(gain, abs(before), SMALLEST_GAIN)
        if outcome.is_accepted:
            self._share = min(MOST_TARGETS, 2.0 * self._share)
        else:
            state.restore(saved)
            self._relearned = begun
            # one of several births may have been good, so try fewer at a time
            self._share *= 0.5
            if len(self._adopted) == 1:
                (target,) = self._adopted
                self._ledger = self._ledger.failed(target.ids, target.masses)
        targets = [k for target in self._adopted for k in target.components]
        number = len(self._newborn)
        tried = f"{number} fresh components, adopted for a pass"
        parts = tools.n_iter, "birth", targets, tried, number, len(self._adopted)
        return outcome.record(*parts)

    # ----------------------------------------------------------------------------- a stream
    def within(
        self, model: Mergeable, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try births in one batch; each is kept if the exact bound of all memos rises."""
        counts, ids = model.component_masses(state.memos[key].stats), state.component_ids
        self._targets = self._choose(counts, ids, tools)
        self.exhausted = not self._targets
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run, with_stats=False)
        observer = self.observer(batch.weights.size, tools)
        if observer is not None:
            solved = Solved(batch, key, global_params, result)
            self.note(observer(model, solved, ObserverTools(tools.run, tools.memo_of)))
        records = list[MoveRecord]()
        for target in self._targets:
            if model.size(state.stats) >= self._max_components:
                break
            place = BatchOfStream(model, batch, key, state, tools)
            outcome, tried, number, under = self._birth_within(place, target)
            if outcome.is_accepted:
                model = self._relearned = under
            else:
                self._ledger = self._ledger.failed(target.ids, target.masses)
            parts = tools.n_iter, "birth", target.components, tried, number
            records.append(outcome.record(*parts))
        return records

    def _birth_within(
        self, place: BatchOfStream, target: Target
    ) -> tuple[Outcome, str, int, Mergeable]:
        """Try births from a target; return the outcome, what was tried, and the model then."""
        model, state = place.model, place.state
        n_before = model.size(state.stats)
        kept = place.kept(target)
        others = place.statistics_of(kept, target)
        most = self._max_components - n_before + 1
        # if components with new priors fail among all rows, try components with old priors
        for known in (others, None):
            fresh = self._create(FreshMixtures(model, place.tools, most, known, True), target)
            under, outcome = model, fresh.outcome
            if fresh.outcome.is_accepted and fresh.stats is not None:
                under = learned(model, [others, fresh.stats]) if fresh.learns else model
                few = at_most(model, fresh.stats, self._max_components - kept.size)
                outcome = place.try_components(under, few, kept)
            learns = fresh.learns and fresh.outcome.is_accepted
            if outcome.is_accepted or not learns or not others.arrays[0].size:
                break
        if not outcome.is_accepted and len(state.memos) > 1 and fresh.together is not None:
            # the rows may form one component that differs from the target's earlier rows
            apart = place.try_components(model, fresh.together, np.arange(n_before))
            if apart.is_accepted:
                return apart, "one component for the rows of this call", 1, model
        number = model.size(state.stats) - (kept.size if outcome.is_accepted else 0)
        return outcome, fresh.tried, number, under


def _overlaps(memos: Memos, n_components: int) -> Array:
    """Return the entropy in nats that merged pairs would lose, (K, K); 0 where unknown."""
    merge_entropy_loss = memos.total().merge_entropy_loss if memos else None
    if merge_entropy_loss is None:
        return np.zeros((n_components, n_components))
    return np.nan_to_num(merge_entropy_loss + merge_entropy_loss.T)


def _others(state: MovableState, ids: list[int]) -> Stats:
    """Return the statistics of the components that do not have these ids."""
    kept = ~np.isin(state.component_ids, ids)
    return Stats(tuple(array[kept] for array in state.plain_stats.value().arrays))
