"""*Fresh* mixtures: mixtures that are fitted to some rows, apart from the model.

A *birth* replaces its *target*, a component or several components, by the components of a fresh
mixture of the target's rows. :class:`FreshMixtures` fits several mixtures to these rows, from
different *starts*, that is, initial components, and compares the best mixture with the target.
:func:`fit_fresh_mixture` fits a single mixture, also for the short fits that choose a likelihood.
The *memo* of rows has their statistics and entropies, from which the bound is computed.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Memo, Mergeable, MoveTools, RunningPolicy
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import compute_bound, concatenate_components, find_rounding_scale
from skvt.moves._merge import Merge, dissolve
from skvt.moves._targets import MIN_ROWS_OF_TARGET, Target
from skvt.moves._trial import Decision, decide
from skvt.rows import stack_rows
from skvt.ties import exceeds

# Usual number of components with which a fresh mixture starts.
N_FRESH = 10
# A smaller number of components, with which a second mixture starts.
N_FEWER_FRESH = 3
# With fewer than ROWS_PER_FRESH * N_FRESH rows, the second mixture is fitted even if the first
# mixture is better than the target.
ROWS_PER_FRESH = 200
# With at most _MAX_COLUMNS_FOR_FEWER columns, few starts find the clusters of a target, and no
# mixture starts from the least normal directions. If there are also at most _MAX_ROWS_FOR_FEWER
# rows, all mixtures start with N_FEWER_FRESH components, unless they learn their priors, which is
# the case if the target has all components of the model.
_MAX_COLUMNS_FOR_FEWER = 3
_MAX_ROWS_FOR_FEWER = 100
# A mixture under newly learned priors is fitted only to more than _MIN_ROWS_PER_FRESH * N_FRESH
# rows, or to more than _MAX_ROWS_FOR_FEWER rows if few starts are enough.
_MIN_ROWS_PER_FRESH = 5
# A mixture under newly learned priors starts with at most this number times N_FRESH components.
_MAX_FACTOR_OF_N_FRESH = 4
# The bound of the rows of a target must rise by more than this number of nats per row.
MIN_GAIN_PER_ROW = 1e-3
# Maximum number of rows of the target that a collected row represents. If each row counted as five
# or more rows, mixtures would fit components to noise.
MAX_ROW_FACTOR = 2.0
# An initial component is made from a *seed*, a row of a sample of all rows. For each seed, the
# sample has _ROWS_PER_COLUMN rows per column, but at least _MIN_ROWS_PER_SEED and at most
# _MAX_ROWS_PER_SEED.
_ROWS_PER_COLUMN = 4
_MIN_ROWS_PER_SEED = 50
_MAX_ROWS_PER_SEED = 1_000
# Maximum number of passes before merges begin, and maximum number of all passes.
_MAX_PASSES_WITHOUT_MERGES = 5
_MAX_PASSES = 40
# Merges begin when at most this share of the rows changes its component in a pass.
_MAX_SHARE_MOVED = 1e-5
# The fit ends when the bound rises by less than this number of nats per row in a pass.
_MIN_GAIN_OF_PASS = 1e-4
# The goal of a fit is the bound at which the mixture would be useful. The fit of a mixture with
# newly learned priors ends after the first pass if its bound misses the goal by more than this
# number of nats per row.
_MAX_SHORTFALL = 0.02


def fit_fresh_mixture(
    model: Any, batch: Any, tools: MoveTools, goal: float, other_stats: Stats | None = None,
    max_passes: int = _MAX_PASSES,
) -> tuple[Memo, Any]:  # fmt: skip
    """Fit a mixture to the rows of a batch by memoized inference with merges.

    Parameters
    ----------
    model : Mergeable
        The model, whose ``n_initial`` is the number of initial components.
    batch : RowBatch
    tools : MoveTools
    goal : float
        The bound in nats that the mixture must reach to be useful. The fit ends early if the
        mixture is unlikely to reach the goal.
    other_stats : Stats or None
        Statistics of other components with the same prior, if any. The prior is then first learned
        from the other and the initial components, and the goal is raised by the loss of the bound
        of the other components under the new prior.
    max_passes : int
        Maximum number of passes.

    Returns
    -------
    memo : Memo
        The memo of all rows of the batch: their statistics and entropies.
    model : Mergeable
        The model with the priors that were learned.
    """
    n_components = model.n_initial
    total_weight = float(batch.weights.sum())
    # Draw the sample of rows from which seeds are chosen, unless the batch has few rows. Constant
    # columns of dense rows do not count as columns.
    n_columns = batch.X.shape[1] if sp.issparse(batch.X) else np.any(batch.X != batch.X[0], 0).sum()
    rows_per_seed = np.clip(_ROWS_PER_COLUMN * n_columns, _MIN_ROWS_PER_SEED, _MAX_ROWS_PER_SEED)
    sample_size = int(rows_per_seed) * n_components
    sampled_rows = None
    if batch.n_rows > sample_size:
        sampled_rows = tools.rng.permutation(batch.n_rows)[:sample_size]
    moves: list[Merge] = []
    policy = RunningPolicy()
    # Passes learn no priors while the policy is not done. The model therefore keeps the priors that
    # are learned below until merges begin.
    policy.done = False
    state, sweep = tools.separate_fit(model, batch.X, batch.weights, policy, seeds=sampled_rows)
    previous_bound = float("-inf")
    has_others = other_stats is not None and other_stats.arrays[0].size > 0
    if other_stats is not None and has_others:
        # Learn the priors from all components, and raise the goal by the loss of the bound of the
        # other components. ``resized`` makes a model whose priors are fixed from here on.
        goal += model.collapsed_energy(other_stats)
        all_components = concatenate_components([other_stats, state.plain_stats.as_stats()])
        model = model.with_learned_priors(None, RunningStats(all_components.arrays))
        model = model.resized(n_components)
        goal -= model.collapsed_energy(other_stats)
    model = model.with_learned_priors(None, state.plain_stats)
    counts = model.component_masses(state.plain_stats.as_stats())
    for n_passes in range(max_passes):
        has_merges = bool(moves)
        model, may_stop = sweep(model, moves)
        # Make no further passes if the first pass ends far below the goal.
        if has_others and n_passes == 0:
            if compute_bound(model, state.memos.total()) < goal - _MAX_SHORTFALL * total_weight:
                break
        if not has_merges:
            # Delay merges until rows rarely change their component, because similar initial
            # components would all be merged at first.
            old_counts, counts = counts, model.component_masses(state.plain_stats.as_stats())
            are_rows_moving = np.abs(counts - old_counts).sum() > _MAX_SHARE_MOVED * total_weight
            if are_rows_moving and n_passes < _MAX_PASSES_WITHOUT_MERGES - 1:
                continue
            moves = [Merge()]
            policy.done = True
            model = model.with_learned_priors(None, state.plain_stats)
        bound = compute_bound(model, state.memos.total())
        gain, previous_bound = bound - previous_bound, bound
        if has_merges and may_stop:
            # The fit is hopeless if it would miss the goal even if each remaining pass, and one
            # more, gained as much as this pass.
            is_hopeless = bound + (max_passes - n_passes) * gain < goal
            if is_hopeless or gain < _MIN_GAIN_OF_PASS * total_weight:
                break
        if model.size(state.stats) == 1:
            break
    dissolve(model, state)
    return state.memos.total(), model


class FreshResult(NamedTuple):
    """The best fresh mixture for the rows of a target, and whether it is better than the target."""

    decision: Decision
    # Description of the starts of the mixtures, for records; of the last start only, if priors were
    # learned from the fresh and other components.
    description: str
    # Statistics of the fresh components; None if no mixture was fitted.
    stats: Stats | None = None
    # Statistics of one component that has all rows of the target; None if they were not computed.
    one_component: Stats | None = None
    # Whether priors were learned from the fresh components.
    learns_priors: bool = False


@dataclass(frozen=True)
class FreshMixtures:
    """The fits of fresh mixtures to the rows of a target, and the choice among them.

    Attributes
    ----------
    model : Mergeable
    tools : MoveTools
    max_fresh : int
        Maximum number of fresh components.
    other_stats : Stats or None
        Statistics of all components outside the target. Priors are learned from these components
        and the fresh components; None if no priors are learned.
    in_stream : bool
        Whether the rows come from a call of a stream. Mixtures then also start from a few clusters
        in a line, because the rows may not come again.
    """

    model: Mergeable
    tools: MoveTools
    max_fresh: int
    other_stats: Stats | None
    in_stream: bool = False

    def fit_target_rows(self, target: Target, was_tried: bool) -> FreshResult:
        """Return the best mixture of the collected rows, and whether it is better than the target.

        ``was_tried`` tells whether births from the target have failed before.
        """
        model, tools, other_stats = self.model, self.tools, self.other_stats
        # The empty arrays give the results their shapes if no rows were collected.
        resp = np.concatenate([np.empty((0, len(target.ids))), *target.resp])
        row_weights = np.concatenate([np.empty(0), *target.weights])
        resp_of_target = resp.sum(axis=1)
        # (n,): the part of the weight of each row that belongs to the target.
        weights = row_weights * resp_of_target
        if not exceeds(weights.sum(), MIN_ROWS_OF_TARGET):
            reason = f"Only {weights.sum():.1f} rows were collected."
            decision = Decision(is_accepted=False, gain=np.nan, reason=reason)
            return FreshResult(decision, "no mixture")
        # Number of rows of the target that each collected row represents.
        row_factor = np.clip(target.total / weights.sum(), 1.0, MAX_ROW_FACTOR)
        X = stack_rows(target.rows)
        # A *member* is a row for which the responsibility of the target is more than 1/2. If the
        # target is a single component with enough members, and if there are other components, first
        # try a mixture of the members under new priors.
        is_member = resp_of_target > 0.5
        is_single = len(target.ids) == 1
        min_rows = _MAX_ROWS_FOR_FEWER if self._is_narrow(X) else _MIN_ROWS_PER_FRESH * N_FRESH
        has_enough_members = is_single and exceeds(is_member.sum(), min_rows)
        if has_enough_members and other_stats is not None and other_stats.arrays[0].size:
            member_weights = row_factor * row_weights[is_member]
            batch = model.batch(X[is_member], np.arange(is_member.sum()), member_weights)
            fresh = self._fit_under_learned_priors(batch, other_stats)
            if fresh.decision.is_accepted:
                return fresh
        # Compare mixtures with the target and with one component for all rows.
        batch = model.batch(X, np.arange(weights.size), row_factor * weights)
        resp_within_target = np.ascontiguousarray(resp / resp_of_target[:, None])
        target_result = model.make_local_result(batch, resp_within_target)
        target_memo = tools.make_memo(model, target_result, batch)
        one_component_memo = target_memo
        if len(target.ids) > 1:
            one_component_result = model.make_local_result(batch, np.ones((weights.size, 1)))
            one_component_memo = tools.make_memo(model, one_component_result, batch)
        # Try only few components if births from a single component have failed before.
        tries_few = was_tried and is_single
        max_fresh = min(self.max_fresh, N_FEWER_FRESH) if tries_few else self.max_fresh
        # The bounds of both memos are comparable, because they have the same rows and weights.
        return self._fit_best(batch, target_memo, one_component_memo, max_fresh)

    def _fit(
        self, batch: Any, start: tuple[int, str], goal: float, other_stats: Stats | None
    ) -> tuple[Memo, Any]:
        """Fit a mixture that should reach the bound ``goal``; return its memo and its model.

        ``start`` has the number of initial components, and the name of the method that finds these
        components. Priors are learned unless ``other_stats`` is None.
        """
        n_components, method = start
        learns_priors = other_stats is not None
        model = self.model.resized(n_components, learns_priors=learns_priors, init_params=method)
        return fit_fresh_mixture(model, batch, self.tools, goal, other_stats)

    def _is_narrow(self, X: Any) -> bool:
        """Return whether few starts are enough, because X has few columns.

        In a stream, few starts are not enough, because the rows may not come again.
        """
        return not self.in_stream and bool(X.shape[1] <= _MAX_COLUMNS_FOR_FEWER)

    def _fit_under_learned_priors(self, batch: Any, other_stats: Stats) -> FreshResult:
        """Return a mixture under priors that are learned from its components and other components.

        The mixture gains the difference between its bound and the bound of a single component for
        all rows. It is accepted if this gain is larger than the loss of the bound of the other
        components, with the statistics ``other_stats``, under the new priors.
        """
        model = self.model
        one_component_result = model.make_local_result(batch, np.ones((batch.weights.size, 1)))
        # The bound in nats of a single component for all rows.
        goal = compute_bound(model, self.tools.make_memo(model, one_component_result, batch))
        weight = batch.weights.sum()
        # Start with components that are half as large as the median of the other components.
        median_mass = np.median(model.component_masses(other_stats))
        max_initial = _MAX_FACTOR_OF_N_FRESH * N_FRESH
        n_initial = int(np.clip(2.0 * weight / median_mass, N_FRESH, max_initial))
        starts = [(min(n_initial, self.max_fresh), "k-means++")]
        if self.in_stream:
            starts.insert(0, (self.max_fresh, "few in line"))
        for start in starts:
            memo, fresh_model = self._fit(batch, start, goal, other_stats)
            loss = model.collapsed_energy(other_stats) - fresh_model.collapsed_energy(other_stats)
            gain = compute_bound(fresh_model, memo) - loss - goal
            min_gain = MIN_GAIN_PER_ROW * weight
            decision = decide(gain, find_rounding_scale(goal, memo), min_gain, f"{weight:.0f} rows")
            if decision.is_accepted:
                break
        return FreshResult(decision, _describe_starts([start]), memo.stats, learns_priors=True)

    def _fit_best(
        self, batch: Any, target_memo: Memo, one_component_memo: Memo, max_fresh: int
    ) -> FreshResult:
        """Return the best of several mixtures and of a single component for all rows.

        ``target_memo`` is the memo of the rows with the components of the target, and
        ``one_component_memo`` is their memo with a single component. The mixtures learn their
        priors if there are no components outside the target. They have different starts:

        1. A start from clusters in a line is made only if the mixtures learn their priors, and the
           target is a single component. Of many clusters in a line, a mixture of few components
           would put several into each component, and would be no better than a single component.
        2. The usual start has N_FRESH initial components, which k-means++ finds.
        3. A start with N_FEWER_FRESH components follows in three cases:

           - No mixture is better than the target yet, for instance because a component with many
             parameters needs many rows.
           - There are few rows. The usual mixture may then end in components of which no merge
             improves the bound, although fewer, different components would be better.
           - The mixtures learn their priors. Beside a small cluster, the usual mixture may then
             split a large cluster into parts that the learned prior keeps apart.
        4. A start from the directions in which rows are least normal follows if no mixture is
           better than the target yet. It may find components that differ in few of many directions.

        Outside streams, start 4 is left out if there are at most _MAX_COLUMNS_FOR_FEWER columns. If
        the total weight of the rows is also at most _MAX_ROWS_FOR_FEWER, start 2 is left out, too,
        unless the mixtures learn their priors.

        If a mixture ends with as many components as the target and is no better, starts with fewer
        components than the target are left out.
        """
        # The entropy of a memo has one entry for each component.
        target_bound, n_target = compute_bound(self.model, target_memo), target_memo.entropy.size
        weight = batch.weights.sum()
        min_gain = MIN_GAIN_PER_ROW * weight
        other_stats = self.other_stats
        learns_priors = other_stats is not None and not other_stats.arrays[0].size
        prior_sources = other_stats if learns_priors else None
        # List the starts as pairs of the number of initial components, and the method that finds
        # the components.
        n_usual, n_fewer = min(N_FRESH, max_fresh), min(N_FEWER_FRESH, max_fresh)
        is_narrow = self._is_narrow(batch.X)
        starts = [(n_fewer, "k-means++")]
        if n_usual > n_fewer and (learns_priors or not is_narrow or weight > _MAX_ROWS_FOR_FEWER):
            starts.insert(0, (n_usual, "k-means++"))
        if not is_narrow:
            starts.append((n_fewer, "least normal"))
        if learns_priors and n_target == 1:
            starts.insert(0, (max_fresh, "few in line" if self.in_stream else "in line"))
        tries_fewer = learns_priors or batch.weights.size < ROWS_PER_FRESH * N_FRESH
        # Whether the last mixture has as many components as the target and is no better.
        ends_like_target = False
        # The best result so far, at first a single component for all rows.
        memo, bound = one_component_memo, compute_bound(self.model, one_component_memo)
        tried_starts: list[tuple[int, str]] = []

        def judge_best() -> Decision:
            """Decide between the best result so far and the target."""
            gain = bound - target_bound
            return decide(gain, find_rounding_scale(bound, memo), min_gain, f"{weight:.0f} rows")

        for start in starts:
            n_initial, init_params = start
            # After a result was accepted, only starts by k-means++ follow, and only if the result
            # has few components.
            has_many_components = memo.entropy.size > N_FRESH
            may_follow = tries_fewer and init_params == "k-means++" and not has_many_components
            if judge_best().is_accepted and not may_follow:
                break
            if ends_like_target and n_initial < n_target:
                continue
            goal = max(bound, target_bound + min_gain)
            new_memo, new_model = self._fit(batch, start, goal, prior_sources)
            new_bound, n_new = compute_bound(new_model, new_memo), new_memo.entropy.size
            tried_starts.append(start)
            # A prior cannot be learned from a single component.
            is_legal = n_new > 1 or not learns_priors
            scale = find_rounding_scale(new_bound, new_memo)
            if is_legal and exceeds(new_bound, bound, scale=scale):
                memo, bound = new_memo, new_bound
            ends_like_target = n_new == n_target and not judge_best().is_accepted
        description = _describe_starts(tried_starts)
        one_component = one_component_memo.stats
        return FreshResult(judge_best(), description, memo.stats, one_component, learns_priors)


def _describe_starts(starts: list[tuple[int, str]]) -> str:
    """Describe the starts of mixtures in words, for records."""
    text = ", ".join(f"{n_initial} ({init_params})" for n_initial, init_params in starts)
    return f"fresh components, from {text}" if text else "one component for all"
