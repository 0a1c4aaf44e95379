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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np

from skvt.contracts import (
    Memo,
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
from skvt.expfam import RunningStats, Stats
from skvt.files import in_files
from skvt.moves._base import (
    bound_of,
    is_accepted,
    joined,
    learned,
    of_components,
    shares_of,
    size_of,
)
from skvt.moves._fresh import fresh_mixture
from skvt.moves._ledger import Ledger
from skvt.moves._merge import FEWEST_ROWS as FEWEST_WON
from skvt.moves._merge import dissolve
from skvt.rows import stacked
from skvt.ties import exceeds, stable_argmax, stable_order
from skvt.typing import Array, IndexArray

# Usual number K' of components of a fresh mixture.
N_FRESH = 10
# Maximum number of rows collected for one target.
MOST_ROWS = 10_000
# A row is collected if the target's responsibility exceeds this.
SMALLEST_SHARE = 0.01
# With fewer rows per fresh component, a mixture of FEWER components is fitted, too.
ROWS_FOR_EACH = 200
FEWER = 3
# Least number of rows per fresh component under newly learned priors, and largest factor by which
# the number of fresh components may exceed N_FRESH if a component has many rows.
_FEWEST_FOR_EACH = 5
_MOST_FRESH = 4
# Least number of rows of a component that may be split.
FEWEST_ROWS = 20.0
# Number of failed births after which a component is no longer a target. Births from it alone come
# first, then with up to two neighbours, then with up to N_FRESH - 1. A birth without any acceptable
# proposal counts `_LOST` times.
MOST_TRIES = 5
# Number of failures that a birth counts for if no proposal was better than the target.
_LOST = 2
# Nats by which the bound must rise in all, and per row on the collected rows.
SMALLEST_GAIN = 0.1
SMALLEST_GAIN_PER_ROW = 1e-3
# Maximum number of rows that a collected row represents. The evidence of all rows should count, but
# a mixture in which each row counts five times or more would fit components to noise.
MOST_COUNTED = 2.0
# Maximum number of targets of a pass relative to the number of components; at least one.
MOST_TARGETS = 0.5
# Number of local and global updates before a birth within a batch is accepted or rejected.
_TRIAL_STEPS = 3


@in_files("moves.Target")
@dataclass
class _Target:
    """Components whose rows are collected: numbers, ids and masses, the chosen component first.

    ``total`` is their mass in all rows visited. ``rows``, ``weights`` and ``resp`` are the rows
    collected, the rows' weights and the components' responsibilities.
    """

    components: list[int]
    ids: list[int]
    masses: list[float]
    rows: list[Any] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)
    resp: list[Array] = field(default_factory=list)
    size: int = 0
    total: float = 0.0


class Birth(Move):
    """Propose fresh components that replace a component, or a component and its neighbours.

    The model has at most ``max_components``. ``exhausted`` is true if no components have just been
    adopted and no target is left to try.
    """

    kept: ClassVar[dict[str, Any]] = {
        **Move.kept,
        "_targets": list[_Target],
        "_fresh": Annotated[list[Stats], "fresh"],
        "_ledger": Ledger,
        "_share": float,
        "_learns": bool,
        "_seed": int,
    }
    requires = of_components("A birth")
    # Whether fresh components have been fitted under newly learned priors.
    _learns: bool = False
    # Whether rows are those of a call of a stream. No later call can find clusters that this one
    # misses, so that even few clusters in a line are searched for.
    _in_stream: bool = False
    # Seed of the choice among the rows of large targets.
    _seed: int = 0

    def __init__(self, max_components: int) -> None:
        self._max_components = max_components
        self._targets: list[_Target] = []
        self._fresh: list[Stats] = []
        self._ledger = Ledger()
        # state, bound and model before the adoption, and targets of the adopted components
        self._before: tuple[Any, float, Any] | None = None
        self._adopted: list[_Target] = []
        # reasons why births of this pass failed
        self._reasons: list[str] = []
        # statistics of a target's rows as one component
        self._apart: Stats | None = None
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
            arrays = joined(self._fresh).arrays
            if self._learns:
                self._relearned = learned(model, [_others(state, gone), *self._fresh])
            state.rearrange(_with_more(kept, len(arrays[0])))
            # [HS13] S' keeps the new components alive during the pass; resum removes it again
            none = [np.zeros((kept.size, *array.shape[1:])) for array in arrays]
            pairs = zip(none, arrays, strict=True)
            state.stats.add(Stats(tuple(np.concatenate(pair) for pair in pairs)))
            self._newborn = set(state.component_ids[kept.size :].tolist())
        self._fresh, self._learns = [], False
        counts = model.component_masses(state.plain_stats.value())
        overlaps = _overlaps(state.memos, counts.size)
        self._targets = self._choose(counts, state.component_ids, overlaps, tools.rng)
        if any(sum(target.masses) > MOST_ROWS for target in self._targets):
            self._seed = int(tools.rng.integers(2**31))

    def observer(self, n_rows: int, tools: MoveTools) -> Observer | None:
        """Collect rows of the targets."""
        if not self._targets:
            return None
        # collect the same share of each batch, since batches differ if rows are sorted
        wanted = [
            (
                target.components,
                MOST_ROWS - target.size,
                MOST_ROWS / max(sum(target.masses), MOST_ROWS),
            )
            for target in self._targets
        ]
        return partial(_collected, wanted, self._seed)

    def note(self, noted: list["_Collected"]) -> None:
        for target, (total, rows, weights, resp) in zip(self._targets, noted, strict=True):
            target.total += total
            n_left = MOST_ROWS - target.size
            if n_left > 0 and weights.size:
                target.rows.append(rows[:n_left])
                target.weights.append(weights[:n_left])
                target.resp.append(resp[:n_left])
                target.size += weights[:n_left].size

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> MoveRecord:
        """Keep or discard the adopted components, then create fresh ones from collected rows.

        The other moves have finished before, so that their gains count for the adopted components.
        """
        self._reasons, self._in_stream = [], False
        gain = self._judge(model, state) if self._before else 0.0
        # the ids of components that were merged or restored since then do not exist any more
        targets = [
            target for target in self._targets if np.isin(target.ids, state.component_ids).all()
        ]
        n_left = self._max_components - model.size(state.stats)
        proposed, n_fresh, self._targets = 0, 0, []
        for target in targets:
            if n_left <= 0:
                break
            proposed += 1
            n_old = len(target.components)
            others = _others(state, target.ids)
            fresh = self._create(model, target, tools, n_left + n_old, others)
            if fresh is not None:
                self._fresh.append(fresh)
                self._targets.append(replace(target, rows=[], weights=[], resp=[]))
                n_fresh += len(fresh.arrays[0])
                n_left -= len(fresh.arrays[0]) - n_old
        self.exhausted = self._before is None and proposed == 0
        return MoveRecord(tools.n_iter, "birth", proposed, n_fresh, gain, "; ".join(self._reasons))

    def _judge(self, model: Mergeable, state: MovableState) -> float:
        """Return the gain by the adoption; restore the former state if it is too small."""
        dissolve(model, state, self._newborn)
        assert self._before is not None  # something has been adopted
        saved, before, begun = self._before
        gain = bound_of(model, state.memos.total()) - before
        if is_accepted(gain, abs(before), SMALLEST_GAIN):
            self._share = min(MOST_TARGETS, 2.0 * self._share)
            return gain
        state.restore(saved)
        self._relearned = begun
        self._reasons.append(f"adopted components: {-gain:.1f} nats short")
        # one of several births may have been good, so try fewer at a time
        self._share *= 0.5
        if len(self._adopted) == 1:
            (target,) = self._adopted
            self._ledger = self._ledger.failed(target.ids, target.masses)
        return 0.0

    # ----------------------------------------------------------------------------- a stream
    def within(
        self, model: Mergeable, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try births in one batch; each is kept if the exact bound of all memos rises."""
        self._in_stream = True
        counts = model.component_masses(state.memos[key].stats)
        alone = _overlaps(None, counts.size)
        self._reasons = []
        self._targets = self._choose(counts, state.component_ids, alone, tools.rng, most_tries=1)
        self.exhausted = not self._targets
        global_params = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, global_params, 1.0, tools.run, with_stats=False)
        observer = self.observer(batch.weights.size, tools)
        if observer is not None:
            solved = Solved(batch, key, global_params, result)
            self.note(observer(model, solved, ObserverTools(tools.run, tools.memo_of)))
        proposed, born, gain = len(self._targets), 0, 0.0
        for target in self._targets:
            n_before = model.size(state.stats)
            room = self._max_components - n_before
            if room <= 0:
                break
            kept = _but(target, model, key, state)
            others = _kept_of(target, kept, key, state)
            # if components with new priors fail among all rows, try components with old priors
            for known in (others, None):
                under, rise, self._learns = model, 0.0, False
                fresh = self._create(model, target, tools, room + 1, known)
                if fresh is not None:
                    under = learned(model, [others, fresh]) if self._learns else model
                    fresh = _at_most(model, fresh, self._max_components - kept.size)
                    rise = _try(model, under, batch, key, state, (fresh, kept), tools)
                if rise > 0.0 or not self._learns or not others.arrays[0].size:
                    break
            if rise <= 0.0 and len(state.memos) > 1 and self._apart is not None:
                # the rows may form one component that differs from the target's earlier rows
                apart = self._apart, np.arange(n_before)
                rise, under = _try(model, model, batch, key, state, apart, tools), model
            if rise <= 0.0:
                self._ledger = self._ledger.failed(target.ids, target.masses)
            else:
                model = self._relearned = under
                born += model.size(state.stats) - n_before
                gain += rise
        reason = "; ".join(self._reasons)
        return [MoveRecord(tools.n_iter, "birth", proposed, born, gain, reason)]

    # --------------------------------------------------------------------------------- both
    def _choose(
        self,
        counts: Array,
        ids: IndexArray,
        overlaps: Array,
        rng: np.random.Generator,
        most_tries: int = MOST_TRIES,
    ) -> list[_Target]:
        """Draw disjoint targets by mass among components with few failed births.

        A component whose births have failed is tried together with its nearest neighbours.
        """
        tries = self._ledger.tries(ids, counts)
        free = np.ones(counts.size, bool)
        eligible = exceeds(counts, FEWEST_ROWS) & (tries < most_tries)
        targets: list[_Target] = []
        if counts.size >= self._max_components:
            return targets
        while len(targets) < max(1, int(self._share * counts.size)) and (eligible & free).any():
            chances = counts * (eligible & free)
            chosen = int(rng.choice(counts.size, p=chances / chances.sum()))
            components = [chosen]
            free[chosen] = False
            wide = tries[chosen] >= 2 * _LOST
            for _ in range(N_FRESH - 1 if wide else min(tries[chosen], 2)):
                nearness = overlaps[components].sum(axis=0) * free
                nearest = int(stable_argmax(nearness))
                # components that share negligible responsibilities are no neighbours
                if exceeds(nearness[nearest], 0.0, scale=counts[chosen]):
                    components.append(nearest)
                    free[nearest] = False
            if tries[chosen] >= _LOST and len(components) == 1:
                continue  # all proposals failed, and there is no neighbour to add
            targets.append(
                _Target(components, ids[components].tolist(), counts[components].tolist())
            )
        return targets

    def _create(
        self, model: Mergeable, target: _Target, tools: MoveTools, most: int, others: Stats | None
    ) -> Stats | None:
        """Return statistics of at most ``most`` components fitted to the collected rows.

        Priors are learned, too, if statistics of all ``others`` are passed. The rows are scaled up
        towards the target's total mass, see `MOST_COUNTED`. Returns None if the target's components
        describe these rows equally well.
        """
        self._apart = None
        resp = np.concatenate([np.empty((0, len(target.ids))), *target.resp])
        mass = resp.sum(axis=1)
        of_rows = np.concatenate([np.empty(0), *target.weights])
        weights = of_rows * mass
        if exceeds(weights.sum(), FEWEST_ROWS):
            factor = np.clip(target.total / weights.sum(), 1.0, MOST_COUNTED)
            X = stacked(target.rows)
            owned = mass > 0.5
            enough = len(target.ids) == 1 and exceeds(owned.sum(), _FEWEST_FOR_EACH * N_FRESH)
            if enough and others is not None and others.arrays[0].size:
                batch = model.batch(X[owned], np.arange(owned.sum()), factor * of_rows[owned])
                fresh = self._under_own_priors(model, batch, tools, most, others)
                if fresh is not None:
                    return fresh
            batch = model.batch(X, np.arange(weights.size), factor * weights)
            resp = np.ascontiguousarray(resp / mass[:, None])
            before = tools.memo_of(model, model.given_assignments(batch, resp), batch)
            together = before
            if len(target.ids) > 1:
                alone = model.given_assignments(batch, np.ones((weights.size, 1)))
                together = tools.memo_of(model, alone, batch)
            self._apart = together.stats
            if len(target.ids) == 1 and self._ledger.tries(target.ids, target.masses)[0]:
                # many components failed before, and there is no neighbour to add
                most = min(most, FEWER)
            goal = before, together, most
            memo = self._fresh_mixture(model, batch, tools, goal, others)
            if memo is not None:
                return memo.stats
        self._ledger = self._ledger.failed(target.ids, target.masses, _LOST)
        return None

    def _under_own_priors(
        self, model: Mergeable, batch: Any, tools: MoveTools, most: int, others: Stats
    ) -> Stats | None:
        """Return statistics of fresh components under priors learned from them and ``others``.

        Returns None unless the bound of these rows, compared with one component, rises by more than
        the other components lose.
        """
        alone = model.given_assignments(batch, np.ones((batch.weights.size, 1)))
        goal = bound_of(model, tools.memo_of(model, alone, batch))
        usual = np.median(model.component_masses(others))
        number = int(np.clip(2.0 * batch.weights.sum() / usual, N_FRESH, _MOST_FRESH * N_FRESH))
        proposals = [(min(number, most), "k-means++")]
        if self._in_stream:
            proposals.insert(0, (most, "few in line"))
        for n_components, init_params in proposals:
            start = model.resized(n_components, learns=True, init_params=init_params)
            memo, under = fresh_mixture(start, batch, tools, goal, others)
            loss = model.collapsed_energy(others) - under.collapsed_energy(others)
            gain, least = bound_of(under, memo) - loss - goal, SMALLEST_GAIN_PER_ROW
            if is_accepted(gain, size_of(goal, memo), least * batch.weights.sum()):
                self._learns = True
                return memo.stats
        return None

    def _fresh_mixture(
        self,
        model: Mergeable,
        batch: Any,
        tools: MoveTools,
        goal: tuple[Memo, Memo, int],
        others: Stats | None,
    ) -> Memo | None:
        """Return the memo of a mixture with a higher bound than the goal's first memo, or None.

        The mixture has one component for all rows, or at most the goal's number. A mixture of few
        rows that starts from many seeds may end in components of which no merge improves the bound,
        although fewer, different components would be better. It is therefore also started from few
        seeds. This is also tried if the larger mixture is no better, since a component with many
        parameters needs many rows, and if the mixture replaces a single component: beside a small
        cluster, a large one may be split into parts that the learned prior keeps apart. Both starts
        may miss components that differ in few of many directions; the directions in which rows are
        least normal may show them. If the larger mixture ends with as many components as the
        target, starts with fewer seeds than that are left out.

        A mixture of all rows is compared under the priors that it learns. With many clusters in a
        line, each of a few seeds would have several clusters, and be no better than one component.
        """
        before, together, most = goal
        target, number = bound_of(model, before), min(N_FRESH, most)
        least = SMALLEST_GAIN_PER_ROW * batch.weights.sum()
        fewer = min(FEWER, number)
        proposals = [(number, "k-means++"), (fewer, "k-means++"), (fewer, "least normal")]
        if fewer == number:
            del proposals[1]
        learns = others is not None and not others.arrays[0].size
        if learns and before.entropy.size == 1:
            proposals.insert(0, (most, "few in line" if self._in_stream else "in line"))
        few = learns or batch.weights.size < ROWS_FOR_EACH * N_FRESH
        n_old, as_before = before.entropy.size, False
        memo, bound = together, bound_of(model, together)
        accepted = is_accepted(bound - target, size_of(bound, memo), least)
        for n_components, init_params in proposals:
            many = memo.entropy.size > N_FRESH
            if accepted and (many or not (few and init_params == "k-means++")):
                break
            if as_before and n_components < n_old:
                continue
            goal_now = max(bound, target + least)
            learned_with = others if learns else None
            start = model.resized(n_components, learns=learns, init_params=init_params)
            new, under = fresh_mixture(start, batch, tools, goal_now, learned_with)
            new_bound, n_new = bound_of(under, new), new.entropy.size
            # no prior can be learned from one component
            legal = n_new > 1 or not learns
            if legal and exceeds(new_bound, bound, scale=size_of(new_bound, new)):
                memo, bound = new, new_bound
                accepted = is_accepted(bound - target, size_of(bound, memo), least)
            as_before = n_new == n_old and not accepted
        if not accepted:
            short = target + least - bound
            self._reasons.append(f"{batch.weights.sum():.0f} rows: {short:.1f} nats short")
            return None
        self._learns |= learns
        return memo


#: Mass of a target, some of its rows, their weights, and its components' responsibilities.
_Collected: TypeAlias = tuple[float, Any, Array, Array]


def _collected(
    wanted: list[tuple[list[int], int, float]],
    seed: int,
    model: Mergeable,
    solved: Solved,
    tools: ObserverTools,
) -> list[_Collected]:
    """Collect a batch's rows of targets; ``wanted`` has components, most rows and share of each."""
    batch, collected = solved.batch, list[_Collected]()
    for components, most, share in wanted:
        resp = shares_of(solved.result.q, components)
        mass = resp.sum(axis=1)
        chosen = mass > SMALLEST_SHARE
        if share < 1.0:
            chosen &= np.random.default_rng(seed).random(mass.size) < share
        rows = np.flatnonzero(chosen)[: max(0, most)]
        collected.append((
            float(batch.weights @ mass),
            batch.X[rows],
            batch.weights[rows],
            resp[rows],
        ))  # fmt: skip
    return collected


def _overlaps(memos: Memos | None, n_components: int) -> Array:
    """Return the entropy in nats that merged pairs would lose, (K, K); 0 where unknown."""
    merge_entropy_loss = memos.total().merge_entropy_loss if memos else None
    if merge_entropy_loss is None:
        return np.zeros((n_components, n_components))
    return np.nan_to_num(merge_entropy_loss + merge_entropy_loss.T)


def _at_most(model: Mergeable, fresh: Stats, number: int) -> Stats:
    """Return the statistics of at most ``number`` components, the ones with smallest counts."""
    counts = model.component_masses(fresh)
    order = stable_order(-counts, scale=float(counts.sum()))
    kept = np.sort(order[max(0, counts.size - number) :])
    return Stats(tuple(array[kept] for array in fresh.arrays))


def _others(state: MovableState, ids: list[int]) -> Stats:
    """Return the statistics of the components that do not have these ids."""
    kept = ~np.isin(state.component_ids, ids)
    return Stats(tuple(array[kept] for array in state.plain_stats.value().arrays))


def _with_more(kept: IndexArray, n_new: int) -> IndexArray:
    return np.concatenate([kept, np.full(n_new, -1)])


def _but(target: _Target, model: Mergeable, key: Hashable, state: MovableState) -> IndexArray:
    """Return the components that stay: all but those of the target without rows elsewhere."""
    of_all, of_batch = state.memos.total(), state.memos[key]
    elsewhere = model.component_masses(of_all.stats) - model.component_masses(of_batch.stats)
    is_other = ~np.isin(state.component_ids, target.ids)
    return np.flatnonzero(is_other | exceeds(elsewhere, 0.0, scale=of_all.weight))


def _kept_of(target: _Target, kept: IndexArray, key: Hashable, state: MovableState) -> Stats:
    """Return the statistics of ``kept`` components less those of the target in a batch."""
    of_all, of_batch = state.memos.total().stats.arrays, state.memos[key].stats.arrays
    is_target = np.isin(state.component_ids[kept], target.ids)
    arrays = [array[kept] for array in of_all]
    for array, part in zip(arrays, of_batch, strict=True):
        array[is_target] -= part[kept][is_target]
    return Stats(tuple(arrays))


def _try(
    model: Mergeable,
    under: Mergeable,
    batch: Any,
    key: Hashable,
    state: MovableState,
    born: tuple[Stats, IndexArray],
    tools: MoveTools,
) -> float:
    """Add fresh components if the bound of all memos rises; return the rise, or 0.

    ``born`` has their statistics and the numbers of the components that stay. All compete for the
    batch's rows. ``under`` is the model with the priors of the fresh components.
    """
    before, (fresh, kept) = state.memos.total(), born
    n_old, arrays = kept.size, fresh.arrays
    while len(arrays[0]):
        index = _with_more(kept, len(arrays[0]))
        others = before.plus(state.memos[key], sign=-1.0).rearranged(index)
        pairs = zip((array[kept] for array in before.stats.arrays), arrays, strict=True)
        stats = RunningStats(np.concatenate(pair) for pair in pairs)
        for _ in range(_TRIAL_STEPS):
            global_params = under.expectation(stats, batch, tools.run)
            memo = tools.memo_of(
                under, under.local_step(batch, global_params, 1.0, tools.run), batch
            )
            total = others.plus(memo)
            stats = RunningStats(total.stats.arrays)
        kept_rows = ~exceeds(FEWEST_WON, model.component_masses(total.stats)[n_old:])
        if kept_rows.all():
            bound = bound_of(model, before)
            rise = bound_of(under, total) - bound
            if is_accepted(rise, size_of(bound, before), SMALLEST_GAIN):
                state.rearrange(index)
                state.memos[key] = memo
                state.resum()
                return rise
            break
        arrays = tuple(array[n_old:][kept_rows] for array in total.stats.arrays)
    return 0.0
