"""Fresh mixtures: fits of a few rows alone, from which births take components."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Memo, Mergeable, MoveTools, RunningPolicy
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import bound_of, joined, size_of
from skvt.moves._merge import Merge, dissolve
from skvt.moves._targets import FEWEST_ROWS, Target
from skvt.moves._trial import Outcome, judged
from skvt.rows import stacked
from skvt.ties import exceeds

# Usual number K' of components of a fresh mixture.
N_FRESH = 10
# With fewer rows per fresh component, a mixture of FEWER components is fitted, too.
ROWS_FOR_EACH = 200
FEWER = 3
# Least number of rows per fresh component under newly learned priors, and largest factor by which
# the number of fresh components may exceed N_FRESH if a component has many rows.
_FEWEST_FOR_EACH = 5
_MOST_FRESH = 4
# Nats per row by which the bound of a target's rows must rise.
SMALLEST_GAIN_PER_ROW = 1e-3
# Maximum number of rows that a collected row represents. The evidence of all rows should count, but
# a mixture in which each row counts five times or more would fit components to noise.
MOST_COUNTED = 2.0
# Least number of rows per component from which seeds are chosen,
_ROWS_PER_SEED = 50
# number of these rows per column,
_ROWS_PER_COLUMN = 4
# and their largest number.
_MOST_PER_SEED = 1_000
# Maximum numbers of passes without merges and in all.
_PASSES_UNMERGED = 5
_PASSES = 40
# A pass without merges follows another if this share of rows has changed its component.
_STILL = 1e-5
# Gain in nats per row below which the fit ends.
_TOL = 1e-4
# Nats per row by which a mixture with newly learned priors may miss its goal after one pass.
_HOPELESS = 0.02


def fresh_mixture(
    model: Any,
    batch: Any,
    tools: MoveTools,
    goal: float,
    others: Stats | None = None,
    most_passes: int = _PASSES,
) -> tuple[Memo, Any]:
    """Fit a mixture to these rows and return its total memo and its model.

    The fit ends early if the mixture will miss the ``goal``, a bound in nats. If there are
    ``others`` with the same prior, the prior is learned from them and from the seeds, and their
    loss counts.
    """
    n_components, total = model.n_initial, float(batch.weights.sum())
    # constant columns of dense rows do not count
    n_columns = batch.X.shape[1] if sp.issparse(batch.X) else np.any(batch.X != batch.X[0], 0).sum()
    of_seed = int(np.clip(_ROWS_PER_COLUMN * n_columns, _ROWS_PER_SEED, _MOST_PER_SEED))
    seeds = None
    if batch.n_rows > of_seed * n_components:
        seeds = tools.rng.permutation(batch.n_rows)[: of_seed * n_components]
    policy, moves = RunningPolicy(), list[Merge]()
    policy.done = False  # priors are learned from seeds, and again when merges begin
    state, sweep = tools.separate_fit(model, batch.X, batch.weights, policy, seeds=seeds)
    previous = float("-inf")
    joint = others is not None and others.arrays[0].size > 0
    if others is not None and joint:
        goal += model.collapsed_energy(others)
        together = joined([others, state.plain_stats.value()])
        model = model.with_learned_priors(None, RunningStats(together.arrays))
        model = model.resized(n_components)
        goal -= model.collapsed_energy(others)
    model = model.with_learned_priors(None, state.plain_stats)
    counts = model.component_masses(state.plain_stats.value())
    for n_passes in range(most_passes):
        merging = bool(moves)
        model, may_stop = sweep(model, moves)
        if joint and n_passes == 0:
            if bound_of(model, state.memos.total()) < goal - _HOPELESS * total:
                break
        if not merging:
            # delay merges, because similar seeds would all become one component at first
            before, counts = counts, model.component_masses(state.plain_stats.value())
            moves_on = np.abs(counts - before).sum() > _STILL * total
            if moves_on and n_passes < _PASSES_UNMERGED - 1:
                continue
            moves, policy.done = [Merge()], True
            model = model.with_learned_priors(None, state.plain_stats)
        bound = bound_of(model, state.memos.total())
        gain, previous = bound - previous, bound
        if merging and may_stop:
            hopeless = bound + (most_passes - n_passes) * gain < goal
            if hopeless or gain < _TOL * total:
                break
        if model.size(state.stats) == 1:
            break
    dissolve(model, state)
    return state.memos.total(), model


class Fresh(NamedTuple):
    """The best fresh mixture of a target's rows, and whether it is better than the target."""

    outcome: Outcome
    # What was fitted, in words.
    tried: str
    # Statistics of the fresh components, and of all rows as one component; None without rows.
    stats: Stats | None = None
    together: Stats | None = None
    # Whether priors were learned with the fresh components.
    learns: bool = False


@dataclass(frozen=True)
class FreshMixtures:
    """Proposals of fresh mixtures for a target, and the trials that choose among them.

    Attributes
    ----------
    model : Mergeable
    tools : MoveTools
    most : int
        Maximum number of fresh components.
    others : Stats or None
        Statistics of all other components, if priors are learned from them and the fresh ones.
    in_stream : bool
        Whether rows are those of a call of a stream. No later call can find clusters that this one
        misses, so that even few clusters in a line are searched for.
    """

    model: Mergeable
    tools: MoveTools
    most: int
    others: Stats | None
    in_stream: bool = False

    def of(self, target: Target, was_tried: bool) -> Fresh:
        """Return the best mixture of the collected rows, compared with the target's components.

        The rows are scaled up towards the target's total mass, see `MOST_COUNTED`.
        """
        model, tools, others = self.model, self.tools, self.others
        resp = np.concatenate([np.empty((0, len(target.ids))), *target.resp])
        mass = resp.sum(axis=1)
        of_rows = np.concatenate([np.empty(0), *target.weights])
        weights = of_rows * mass
        if not exceeds(weights.sum(), FEWEST_ROWS):
            reason = f"Only {weights.sum():.1f} rows were collected."
            return Fresh(Outcome(False, np.nan, reason), "no mixture")
        factor = np.clip(target.total / weights.sum(), 1.0, MOST_COUNTED)
        X = stacked(target.rows)
        owned = mass > 0.5
        enough = len(target.ids) == 1 and exceeds(owned.sum(), _FEWEST_FOR_EACH * N_FRESH)
        if enough and others is not None and others.arrays[0].size:
            batch = model.batch(X[owned], np.arange(owned.sum()), factor * of_rows[owned])
            fresh = self._under_learned_priors(batch, others)
            if fresh.outcome.is_accepted:
                return fresh
        batch = model.batch(X, np.arange(weights.size), factor * weights)
        resp = np.ascontiguousarray(resp / mass[:, None])
        before = tools.memo_of(model, model.given_assignments(batch, resp), batch)
        together = before
        if len(target.ids) > 1:
            alone = model.given_assignments(batch, np.ones((weights.size, 1)))
            together = tools.memo_of(model, alone, batch)
        # many components failed before, and there is no neighbour to add
        most = min(self.most, FEWER) if was_tried and len(target.ids) == 1 else self.most
        return self._best(batch, before, together, most)

    def _fit(
        self, batch: Any, proposal: tuple[int, str], goal: float, others: Stats | None
    ) -> tuple[Memo, Any]:
        """Fit a mixture from a number of components, chosen in a way that the proposal names."""
        number, init_params = proposal
        learns = others is not None
        start = self.model.resized(number, learns=learns, init_params=init_params)
        return fresh_mixture(start, batch, self.tools, goal, others)

    def _under_learned_priors(self, batch: Any, others: Stats) -> Fresh:
        """Return a mixture under priors learned from it and ``others``.

        It is accepted if the bound of these rows, compared with one component, rises by more than
        the other components lose.
        """
        model = self.model
        alone = model.given_assignments(batch, np.ones((batch.weights.size, 1)))
        goal = bound_of(model, self.tools.memo_of(model, alone, batch))
        total = batch.weights.sum()
        usual = np.median(model.component_masses(others))
        number = int(np.clip(2.0 * total / usual, N_FRESH, _MOST_FRESH * N_FRESH))
        proposals = [(min(number, self.most), "k-means++")]
        if self.in_stream:
            proposals.insert(0, (self.most, "few in line"))
        for proposal in proposals:
            memo, under = self._fit(batch, proposal, goal, others)
            loss = model.collapsed_energy(others) - under.collapsed_energy(others)
            gain = bound_of(under, memo) - loss - goal
            least = SMALLEST_GAIN_PER_ROW * total
            outcome = judged(gain, size_of(goal, memo), least, f"{total:.0f} rows")
            if outcome.is_accepted:
                break
        return Fresh(outcome, _mixtures([proposal]), memo.stats, learns=True)

    def _best(self, batch: Any, before: Memo, together: Memo, most: int) -> Fresh:
        """Return the best of one component for all rows and of several mixtures.

        A mixture of few rows that starts from many seeds may end in components of which no merge
        improves the bound, although fewer, different components would be better. It is therefore
        also started from few seeds. This is also tried if the larger mixture is no better, since a
        component with many parameters needs many rows, and if the mixture replaces a single
        component: beside a small cluster, a large one may be split into parts that the learned
        prior keeps apart. Both starts may miss components that differ in few of many directions;
        the directions in which rows are least normal may show them. If the larger mixture ends with
        as many components as the target, starts with fewer seeds than that are left out.

        A mixture of all rows is compared under the priors that it learns. With many clusters in a
        line, each of a few seeds would have several clusters, and be no better than one component.
        """
        target, number = bound_of(self.model, before), min(N_FRESH, most)
        total = batch.weights.sum()
        least = SMALLEST_GAIN_PER_ROW * total
        fewer = min(FEWER, number)
        proposals = [(number, "k-means++"), (fewer, "k-means++"), (fewer, "least normal")]
        if fewer == number:
            del proposals[1]
        others = self.others
        learns = others is not None and not others.arrays[0].size
        if learns and before.entropy.size == 1:
            proposals.insert(0, (most, "few in line" if self.in_stream else "in line"))
        few = learns or batch.weights.size < ROWS_FOR_EACH * N_FRESH
        n_old, as_before = before.entropy.size, False
        memo, bound, tried = together, bound_of(self.model, together), list[tuple[int, str]]()

        def outcome() -> Outcome:
            return judged(bound - target, size_of(bound, memo), least, f"{total:.0f} rows")

        for proposal in proposals:
            is_accepted, many = outcome().is_accepted, memo.entropy.size > N_FRESH
            if is_accepted and (many or not (few and proposal[1] == "k-means++")):
                break
            if as_before and proposal[0] < n_old:
                continue
            goal = max(bound, target + least)
            new, under = self._fit(batch, proposal, goal, others if learns else None)
            new_bound, n_new = bound_of(under, new), new.entropy.size
            tried.append(proposal)
            # no prior can be learned from one component
            legal = n_new > 1 or not learns
            if legal and exceeds(new_bound, bound, scale=size_of(new_bound, new)):
                memo, bound = new, new_bound
            as_before = n_new == n_old and not outcome().is_accepted
        return Fresh(outcome(), _mixtures(tried), memo.stats, together.stats, learns)


def _mixtures(proposals: list[tuple[int, str]]) -> str:
    """Describe the starts of mixtures in words."""
    starts = ", ".join(f"{number} ({how})" for number, how in proposals)
    return f"fresh components, from {starts}" if starts else "one component for all"
