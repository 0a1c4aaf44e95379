"""Births: components learned on a targeted sample join the model [HS13 sec. 3.1].

Three phases over two passes: *collect* rows that a target component explains, *create* fresh
components by fitting a mixture of its own to them, *adopt* them in the next pass, in which they
compete for all rows. Merges and deletes then take away what nobody needed. If the exact bound has
not risen after that, all is put back as it was before; the paper keeps every birth, which on data
that the likelihood fits badly adds components faster than merges remove them. In a stream all three
phases happen within one batch.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from skvt.expfam import RunningStats, Stats
from skvt.moves._base import MoveRecord, bound_of
from skvt.moves._merge import FEWEST_ROWS as FEWEST_WON
from skvt.moves._merge import dissolve

# Rows of a component below which there is nothing to split.
FEWEST_ROWS = 20.0
# A component whose mass changed by a larger share since its birth failed may be tried again.
SAME_MASS = 0.1
# The bound must rise by more nats than this.
SMALLEST_GAIN = 0.1
# Most targets of a pass relative to the number of components, at least one.
MOST_TARGETS = 0.5
# Local and global updates by which a birth within a batch is judged.
_TRIAL_STEPS = 3


@dataclass
class _Target:
    """A component whose rows are collected: its number, name, mass, and the rows so far."""

    component: int
    name: int
    mass: float
    rows: list = field(default_factory=list)
    weights: list = field(default_factory=list)
    size: int = 0


class Birth:
    """Propose fresh components where one component may stand for several.

    Parameters
    ----------
    max_components : int
        No births beyond this number.
    n_fresh : int
        Components K' of a fresh mixture.
    max_rows : int
        Rows collected for one target.
    threshold : float
        A row is collected if the target's responsibility exceeds this.

    Attributes
    ----------
    settled : bool
        Nothing waits for adoption or has just been adopted, and no component is left to try.
    """

    def __init__(self, max_components, n_fresh=10, max_rows=10_000, threshold=0.1):
        self._max_components = max_components
        self._n_fresh, self._max_rows, self._threshold = n_fresh, max_rows, threshold
        self._targets, self._fresh = [], []
        # mass by name of components whose births found nothing
        self._failed = {}
        # what was before the adoption: state, bound, and the targets of what is being adopted
        self._before, self._adopted = None, []
        self._share = MOST_TARGETS
        self.settled = False

    # ------------------------------------------------------------------------------- a pass
    def begin(self, model, state, tools):
        """Adopt what was created after the last pass, then choose targets for this one."""
        self._before, self._adopted = None, self._targets
        if self._fresh:
            self._before = state.components(), bound_of(model, state.memos.total())
            n_old = model.size(state.stats)
            arrays = zip(*(fresh.arrays for fresh in self._fresh), strict=True)
            arrays = [np.concatenate(parts) for parts in arrays]
            state.rearrange(_with_more(n_old, len(arrays[0])))
            # S' helps the new components through the pass; resum takes it off again
            none = [np.zeros((n_old, *array.shape[1:])) for array in arrays]
            pairs = zip(none, arrays, strict=True)
            state.stats.add(Stats(tuple(np.concatenate(pair) for pair in pairs)))
            self._newborn = set(state.names[n_old:].tolist())
        self._fresh = []
        self._targets = self._choose(state.plain_stats.value().arrays[0], state.names, tools.rng)

    def observe(self, model, batch, key, g, result, tools):
        """Collect rows of the targets."""
        for target in self._targets:
            rows = np.flatnonzero(result.q[:, target.component] > self._threshold)
            rows = rows[: self._max_rows - target.size]
            if rows.size:
                target.rows.append(batch.X[rows])
                target.weights.append(batch.weights[rows])
                target.size += rows.size

    def finish(self, model, state, tools):
        """Judge what was adopted, then create fresh components from what was collected.

        Comes after the other moves, which judge, too.
        """
        gain = self._judge(model, state) if self._before else 0.0
        # what has been merged or put back since is another component now, or none
        self._targets = [target for target in self._targets if target.name in state.names]
        n_components = model.size(state.stats)
        room = min(self._max_components - n_components, max(n_components, self._n_fresh))
        proposed, born, kept = 0, 0, []
        for target in self._targets:
            if born >= room:
                break
            proposed += 1
            fresh = self._create(model, target, tools, room - born)
            if fresh is not None:
                self._fresh.append(fresh)
                kept.append(target)
                born += len(fresh.arrays[0])
        self._targets = kept
        self.settled = self._before is None and proposed == 0
        return MoveRecord(tools.n_iter, "birth", proposed, born, gain)

    def _judge(self, model, state):
        """Gain of the bound since before the adoption; without one, put all back."""
        dissolve(model, state, self._newborn)
        saved, before = self._before
        gain = bound_of(model, state.memos.total()) - before
        if gain > SMALLEST_GAIN:
            self._share = min(MOST_TARGETS, 2.0 * self._share)
            return gain
        state.put_back(saved)
        # of several births one may have been good: fewer at a time
        self._share *= 0.5
        if len(self._adopted) == 1:
            self._failed[self._adopted[0].name] = self._adopted[0].mass
        return 0.0

    # ----------------------------------------------------------------------------- a stream
    def within(self, model, batch, key, state, tools):
        """Births in one batch, each kept if the exact bound of all that is remembered rises."""
        self._targets = self._choose(state.memos[key].stats.arrays[0], state.names, tools.rng)
        g = model.expectation(state.stats, batch, tools.run)
        result = model.local_step(batch, g, 1.0, tools.run, with_stats=False)
        self.observe(model, batch, key, g, result, tools)
        proposed, born, gain = len(self._targets), 0, 0.0
        for target in self._targets:
            n_before = model.size(state.stats)
            if n_before >= self._max_components:
                break
            fresh = self._create(model, target, tools, self._max_components - n_before)
            if fresh is None:
                continue
            rise = _try(model, batch, key, state, fresh, tools)
            if rise > 0.0:
                born += model.size(state.stats) - n_before
                gain += rise
        return [MoveRecord(tools.n_iter, "birth", proposed, born, gain)]

    # --------------------------------------------------------------------------------- both
    def _choose(self, counts, names, rng):
        """Targets by mass among components not tried in vain."""
        pairs = zip(counts, names, strict=True)
        eligible = np.array([n > FEWEST_ROWS and not self._has_failed(n, i) for n, i in pairs])
        if counts.size >= self._max_components or not eligible.any():
            return []
        most = max(1, int(self._share * counts.size))
        chances = eligible * np.maximum(counts, 0.0)
        number = min(int(eligible.sum()), most)
        chosen = rng.choice(counts.size, size=number, replace=False, p=chances / chances.sum())
        return [_Target(int(k), int(names[k]), float(counts[k])) for k in chosen]

    def _has_failed(self, mass, name):
        """Whether a birth from the component as it is was tried and found nothing."""
        before = self._failed.get(int(name))
        return before is not None and abs(mass - before) <= SAME_MASS * before

    def _create(self, model, target, tools, room):
        """Statistics of a mixture fitted to the collected rows; None if one component is best.

        At most ``room`` components: where there are more, the target stands for the largest.
        """
        weights = np.concatenate([np.empty(0), *target.weights])
        if weights.sum() > FEWEST_ROWS:
            stack = sp.vstack if sp.issparse(target.rows[0]) else np.concatenate
            X = stack(target.rows)
            batch = model.batch(X, np.arange(weights.size), weights)
            memo = tools.fresh(model, batch, min(self._n_fresh, room + 1))
            one = Stats(tuple(a.sum(axis=0, keepdims=True) for a in memo.stats.arrays))
            together = replace(memo, stats=one, entropy=np.zeros(1), excess=None)
            if memo.entropy.size > 1 and bound_of(model, memo) > bound_of(model, together):
                order = np.argsort(-memo.stats.arrays[0], kind="stable")
                kept = np.arange(order.size) if order.size <= room else np.sort(order[1:])
                return memo.rearranged(kept).stats
        self._failed[target.name] = target.mass
        return None


def _with_more(n_old, n_new):
    """Index of the components with empty ones appended."""
    return np.concatenate([np.arange(n_old), np.full(n_new, -1)])


def _try(model, batch, key, state, fresh, tools):
    """Let fresh components compete for a batch; keep them if the bound rises. Returns the rise."""
    before = state.memos.total()
    n_old, arrays = before.entropy.size, fresh.arrays
    while len(arrays[0]):
        index = _with_more(n_old, len(arrays[0]))
        others = before.plus(state.memos[key], sign=-1.0).rearranged(index)
        pairs = zip(before.stats.arrays, arrays, strict=True)
        stats = RunningStats(np.concatenate(pair) for pair in pairs)
        for _ in range(_TRIAL_STEPS):
            g = model.expectation(stats, batch, tools.run)
            memo = tools.memo_of(model, model.local_step(batch, g, 1.0, tools.run), batch)
            total = others.plus(memo)
            stats = RunningStats(total.stats.arrays)
        won = total.stats.arrays[0][n_old:] >= FEWEST_WON
        if won.all():
            rise = bound_of(model, total) - bound_of(model, before)
            if rise > SMALLEST_GAIN:
                state.rearrange(index)
                state.memos[key] = memo
                state.resum()
                return rise
            break
        arrays = tuple(array[n_old:][won] for array in total.stats.arrays)
    return 0.0
