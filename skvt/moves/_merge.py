"""Merges: join two components if the exact bound rises [HS13 sec. 3.2].

The gain of a merge is known from the *memos* of the batches. A memo has the statistics of a batch,
and for each pair of components the *loss of entropy*: the entropy that the assignments of the batch
would lose by a merge. :func:`dissolve` merges components that are almost empty, even if the bound
falls slightly.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Memo, Mergeable, MovableState, Move, MoveRecord, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import compute_bound, find_rounding_scale, make_requirements
from skvt.moves._trial import MERGE_DESCRIPTION, Decision, decide, record_rejected_merges
from skvt.ties import exceeds, stable_argmax, stable_order
from skvt.typing import Array, IndexArray

# A component with a smaller expected number of rows is dissolved at the end of a fit.
MIN_ROWS_OF_COMPONENT = 1.0
# The bound must rise by at least this number of nats if a change of components also changes the
# learned priors.
MIN_GAIN_OF_PRIORS = 0.1
# The best merge is tried with new priors if it loses at most this number of nats per row of the
# data under the old priors.
_MAX_LOSS_PER_ROW = 0.5
# A merge raises the evidence of the mixture weights by at most log 2 per merged row plus this
# number of nats.
_MAX_WEIGHTS_GAIN = 10.0
# A component is dissolved if the bound falls by at most this number of nats. A larger fall shows
# that the component explains rows that no other component explains, such as a row of weight 1/2.
_MAX_DISSOLVE_LOSS = 3.0


def compute_pair_gains(
    model: Mergeable, memo: Memo, is_candidate: NDArray[np.bool_] | None = None
) -> tuple[IndexArray, IndexArray, Array]:
    """Return the gain of the bound by the merge of each pair of components.

    The gain is ``log M(S_a + S_b) - log M(S_a) - log M(S_b)``, the log ratio of the marginal
    likelihoods M with and without the merge [HS13 eq. 12], minus the loss of entropy. The evidence
    of the mixture weights is left out.

    Parameters
    ----------
    model : Mergeable
    memo : Memo
        The memo of all rows.
    is_candidate : ndarray of bool of shape (K,) or None
        Whether each component is a candidate. Pairs without a candidate are left out. None stands
        for all pairs.

    Returns
    -------
    a, b : ndarray of shape (n_pairs,)
        Numbers of the components of each pair, a < b. Pairs whose loss of entropy is unknown are
        left out, and pairs that the model does not allow, whose gain is -inf.
    gains : ndarray of shape (n_pairs,)
        Gains in nats.
    """
    merge_entropy_loss = memo.merge_entropy_loss
    n_components = memo.entropy.size
    if merge_entropy_loss is None:
        merge_entropy_loss = np.full((n_components, n_components), np.nan)
    a, b = np.triu_indices(n_components, 1)
    is_known = ~np.isnan(merge_entropy_loss[a, b])
    if is_candidate is not None:
        is_known &= is_candidate[a] | is_candidate[b]
    a, b = a[is_known], b[is_known]
    gains = _compute_gains(model, memo.stats, merge_entropy_loss, a, b)
    is_allowed = gains > -np.inf
    return a[is_allowed], b[is_allowed], gains[is_allowed]


def _compute_gains(
    model: Mergeable, stats: Stats, merge_entropy_loss: Array, a: IndexArray, b: IndexArray
) -> Array:
    """Return the gain in nats of the merge of each pair (a, b), see `compute_pair_gains`."""
    return np.asarray(model.merge_gains(stats, a, b) - merge_entropy_loss[a, b])


def _compute_merge_gain(model: Mergeable, memo: Memo, stats: Stats, a: int, b: int) -> float:
    """Return the gain in nats of the merge of a and b, as in `compute_pair_gains`.

    ``stats`` are the present statistics, and ``memo`` has the losses of entropy.
    """
    # Merges are proposed only if their loss of entropy is known.
    assert memo.merge_entropy_loss is not None
    (gain,) = _compute_gains(model, stats, memo.merge_entropy_loss, np.array([a]), np.array([b]))
    return float(gain)


def _merge_entries(array: Array, a: int, b: int) -> None:
    """Add entry b of an array to entry a, and set entry b to 0, in place."""
    array[a] += array[b]
    array[b] = 0.0


def dissolve(model: Mergeable, state: MovableState, ids: Iterable[int] | None = None) -> None:
    """Merge each component of less than a row with the component of the largest gain.

    If ``ids`` is not None, only components with these ids are dissolved. The bound may fall
    slightly, because a nearly empty component may have a small share of every row.

    If several components are merged with the same component, the memos have a lower bound of its
    entropy until the next local steps of the batches.
    """
    while True:
        memo = state.memos.total()
        counts = model.component_masses(memo.stats)
        is_small = exceeds(MIN_ROWS_OF_COMPONENT, counts)
        if ids is not None:
            is_small &= np.isin(state.component_ids, list(ids))
        if counts.size < 2 or not is_small.any():
            return
        a, b, gains = compute_pair_gains(model, memo, is_small)
        if a.size == 0 or gains.max() < -_MAX_DISSOLVE_LOSS:
            return
        best = stable_argmax(gains, scale=find_rounding_scale(compute_bound(model, memo), memo))
        # Replace losses of entropy that become unknown by upper bounds, so that further components
        # can be merged with the result.
        state.merge(a[best], b[best], bounded=True)
        state.rearrange(np.delete(np.arange(counts.size), b[best]))
        state.resum()


class Merge(Move):
    """Merge pairs of components in the order of their gains, each component at most once a pass."""

    requires = make_requirements("A merge")

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Make merges that raise the bound; return their records and a record of rejected merges.

        Priors that were learned from two halves of a component favour the halves. If no merge
        raises the bound, the best merge is therefore also judged with priors that are learned after
        the merge.
        """
        memo = state.memos.total()
        n_components = memo.entropy.size
        a, b, gains = compute_pair_gains(model, memo)
        counts = model.component_masses(memo.stats)
        # Scale of the rounding errors of gains, in nats.
        scale = max(memo.weight, float(np.abs(gains).max(initial=0.0)))
        # Try the 3 K pairs of the largest gains, in descending order.
        order = stable_order(-gains, scale=scale)[: 3 * n_components]
        # Whether the merge would not raise the bound even if the evidence of the mixture weights
        # rose as much as possible.
        is_hopeless = gains < -np.log(2.0) * (counts[a] + counts[b]) - _MAX_WEIGHTS_GAIN
        # The statistics after the merges so far. Removed components have zeros.
        arrays = tuple(array.copy() for array in memo.stats.arrays)
        records: list[MoveRecord] = []
        removed_components: list[int] = []
        already_merged: set[int] = set()
        # The gain and the two components of each rejected merge.
        rejected_pairs: list[tuple[float, Any]] = []
        weights_evidence = model.weights_log_evidence(counts)
        for i in order:
            pair = a[i], b[i]
            if already_merged & {*pair}:
                continue
            if is_hopeless[i]:
                rejected_pairs.append((gains[i], pair))
                continue
            # Add to the gain the change of the evidence of the mixture weights.
            merged_counts = counts.copy()
            _merge_entries(merged_counts, *pair)
            kept_components = np.delete(np.arange(n_components), [*removed_components, b[i]])
            new_weights_evidence = model.weights_log_evidence(merged_counts[kept_components])
            gain = gains[i] + new_weights_evidence - weights_evidence
            if exceeds(gain, 0.0, scale=scale):
                # Replace ``gains[i]`` by the exact gain with the present statistics, because
                # ``gains`` may have estimates, and earlier merges may have changed parameters that
                # components share.
                gain += _compute_merge_gain(model, memo, Stats(arrays), *pair) - gains[i]
            decision = decide(gain, scale)
            if not decision.is_accepted:
                rejected_pairs.append((gain, pair))
                continue
            records.append(decision.record(tools.n_iter, "merge", pair, MERGE_DESCRIPTION))
            for array in arrays:
                _merge_entries(array, *pair)
            counts, weights_evidence = merged_counts, new_weights_evidence
            already_merged |= {*pair}
            removed_components.append(b[i])
            state.merge(*pair)
        # If no merge was accepted, judge the best pair, the first in ``order``, with newly learned
        # priors.
        min_gain = -_MAX_LOSS_PER_ROW * memo.weight
        if not removed_components and order.size and exceeds(gains[order[0]], min_gain):
            pair = a[order[0]], b[order[0]]
            decision = self._judge_with_new_priors(model, memo, *pair)
            if decision.is_accepted:
                records.append(decision.record(tools.n_iter, "merge", pair, MERGE_DESCRIPTION))
                rejected_pairs = []
                removed_components.append(pair[1])
                state.merge(*pair)
        if removed_components:
            state.rearrange(np.delete(np.arange(n_components), removed_components))
            state.resum()
        self.exhausted = not removed_components
        return records + record_rejected_merges(tools.n_iter, "merge", rejected_pairs, scale)

    def _judge_with_new_priors(self, model: Mergeable, memo: Memo, a: int, b: int) -> Decision:
        """Decide on the merge of a and b with learned priors.

        The bounds with and without the merge are compared, each under the priors that are learned
        from its components. If the merge is accepted, the engine continues with the priors after
        the merge, see :meth:`Move.update_priors`.
        """
        model_before = model.with_learned_priors(None, RunningStats(memo.stats.arrays))
        # A model whose priors are fixed returns itself.
        if model_before is model or memo.merge_entropy_loss is None:
            return Decision(is_accepted=False, gain=np.nan, reason="No priors are learned.")
        kept_components = np.delete(np.arange(memo.entropy.size), b)
        arrays = tuple(array.copy() for array in memo.stats.arrays)
        for array in arrays:
            _merge_entries(array, a, b)
        merged_arrays = tuple(array[kept_components] for array in arrays)
        model_after = model_before.with_learned_priors(None, RunningStats(merged_arrays))
        bound = compute_bound(model_before, memo)
        energy_after = model_after.collapsed_energy(Stats(merged_arrays))
        gain = energy_after + float(memo.entropy.sum()) - bound
        gain -= float(memo.merge_entropy_loss[a, b])
        decision = decide(gain, find_rounding_scale(bound, memo), MIN_GAIN_OF_PRIORS)
        if decision.is_accepted:
            self._relearned_model = model_after
        return decision

    def change_within_batch(
        self, model: Mergeable, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Merge components as after a pass.

        Pairs whose loss of entropy is unknown are left out. The loss may be unknown after a merge
        of one of the two components, until the batches with rows of both components have their next
        local steps.
        """
        return self.finish(model, state, tools)
