"""Merges: replace two components by one if the exact bound rises [HS13 sec. 3.2]."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.contracts import Memo, Mergeable, MovableState, Move, MoveRecord, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import bound_of, is_accepted, of_components, size_of
from skvt.moves._trial import ONE_FOR_BOTH, Outcome, judged, rejected
from skvt.ties import exceeds, stable_argmax, stable_order
from skvt.typing import Array, IndexArray

# A component with fewer expected rows is removed at the end of a fit.
FEWEST_ROWS = 1.0
# Nats by which the bound must rise if a merge changes the learned priors, too.
SMALLEST_GAIN = 0.1
# Pairs that lose more nats than this per row of the data are not tried with other priors.
_FARTHEST = 0.5
# Weights gain at most log 2 per merged row plus this many nats by a merge.
_OF_WEIGHTS = 10.0
# Largest loss in nats at which a component of fewer than FEWEST_ROWS is removed. At a larger loss,
# it explains rows that no other component explains, such as a row of weight 1/2.
_LARGEST_LOSS = 3.0


def pair_gains(
    model: Mergeable, memo: Memo, among: NDArray[np.bool_] | None = None
) -> tuple[IndexArray, IndexArray, Array]:
    """Return (a, b, gain) for all pairs a < b: the gain of the bound if the pair is merged.

    The gain is ``log M(S_a + S_b) - log M(S_a) - log M(S_b)``, the log ratio of marginal
    likelihoods [HS13 eq. 12], minus the entropy that the assignments lose. The evidence of weights
    is left out. Pairs whose loss is unknown are left out, and pairs of gain -inf, which the model
    does not allow; with ``among`` (K,), so are pairs of which neither component is in it.
    """
    merge_entropy_loss = memo.merge_entropy_loss
    n_components = memo.entropy.size
    if merge_entropy_loss is None:
        merge_entropy_loss = np.full((n_components, n_components), np.nan)
    a, b = np.triu_indices(n_components, 1)
    wanted = ~np.isnan(merge_entropy_loss[a, b])
    if among is not None:
        wanted &= among[a] | among[b]
    a, b = a[wanted], b[wanted]
    gain = model.merge_gains(memo.stats, a, b) - merge_entropy_loss[a, b]
    legal = gain > -np.inf
    return a[legal], b[legal], gain[legal]


def dissolve(model: Mergeable, state: MovableState, ids: Iterable[int] | None = None) -> None:
    """Merge components of less than one row, among ``ids`` or all, into their best partners.

    The bound may fall slightly, because a nearly empty component has a small share of every row
    like a new component. If several components are merged into one, entropies are lower bounds
    until batches are visited again.
    """
    while True:
        memo = state.memos.total()
        counts = model.component_masses(memo.stats)
        few = exceeds(FEWEST_ROWS, counts)
        if ids is not None:
            few &= np.isin(state.component_ids, list(ids))
        if counts.size < 2 or not few.any():
            return
        a, b, gain = pair_gains(model, memo, few)
        if a.size == 0 or gain.max() < -_LARGEST_LOSS:
            return
        best = stable_argmax(gain, scale=size_of(bound_of(model, memo), memo))
        state.merge(a[best], b[best], bounded=True)
        state.rearrange(np.delete(np.arange(counts.size), b[best]))
        state.resum()


class Merge(Move):
    """Merge pairs in order of their gain, each component at most once per pass."""

    requires = of_components("A merge")

    def finish(self, model: Mergeable, state: MovableState, tools: MoveTools) -> list[MoveRecord]:
        """Merge while the bound rises; the pairs that stay have one record, that of the best.

        If no merge raises it, the best merge is also tried with priors learned after it, because
        priors that were learned from both halves of a component favour the halves.
        """
        memo = state.memos.total()
        n_components = memo.entropy.size
        self.exhausted = True
        if n_components < 2:
            return []
        a, b, gain = pair_gains(model, memo)
        counts = model.component_masses(memo.stats).copy()
        size = max(memo.weight, float(np.abs(gain).max(initial=0.0)))
        order = stable_order(-gain, scale=size)[: 3 * n_components]
        hopeless = gain < -np.log(2.0) * (counts[a] + counts[b]) - _OF_WEIGHTS
        arrays = tuple(array.copy() for array in memo.stats.arrays)
        records = list[MoveRecord]()
        gone: list[int] = []
        used: set[int] = set()
        stay: list[tuple[float, Any]] = []
        weights_before = model.weights_log_evidence(counts)
        for i in order:
            if used & {a[i], b[i]}:
                continue
            pair = a[i], b[i]
            if hopeless[i]:
                stay.append((gain[i], pair))
                continue
            merged = counts.copy()
            merged[a[i]] += merged[b[i]]
            merged[b[i]] = 0.0
            kept = np.delete(np.arange(n_components), [*gone, b[i]])
            weights_after = model.weights_log_evidence(merged[kept])
            rise = gain[i] + weights_after - weights_before
            if gone and is_accepted(rise, size):
                # earlier merges have changed parameters that components share
                assert memo.merge_entropy_loss is not None  # only such memos have pairs
                now = float(model.merge_gains(Stats(arrays), a[[i]], b[[i]])[0])
                rise += now - float(memo.merge_entropy_loss[pair]) - gain[i]
            outcome = judged(rise, size)
            if not outcome.is_accepted:
                stay.append((rise, pair))
                continue
            records.append(outcome.record(tools.n_iter, "merge", pair, ONE_FOR_BOTH))
            for array in arrays:
                array[a[i]] += array[b[i]]
                array[b[i]] = 0.0
            counts, weights_before = merged, weights_after
            used |= {*pair}
            gone.append(b[i])
            state.merge(a[i], b[i])
        if not gone and order.size and exceeds(gain[order[0]], -_FARTHEST * memo.weight):
            pair = a[order[0]], b[order[0]]
            outcome = self._relearn(model, memo, *pair)
            if outcome.is_accepted:
                records.append(outcome.record(tools.n_iter, "merge", pair, ONE_FOR_BOTH))
                stay = []
                gone.append(pair[1])
                state.merge(*pair)
        if gone:
            state.rearrange(np.delete(np.arange(n_components), gone))
            state.resum()
        self.exhausted = not gone
        return records + rejected(tools.n_iter, "merge", stay, size)

    def _relearn(self, model: Mergeable, memo: Memo, a: int, b: int) -> Outcome:
        """Decide on the merge of a and b with newly learned priors."""
        before = model.with_learned_priors(None, RunningStats(memo.stats.arrays))
        if before is model or memo.merge_entropy_loss is None:
            return Outcome(False, np.nan, "No priors are learned.")
        kept = np.delete(np.arange(memo.entropy.size), b)
        arrays = tuple(array.copy() for array in memo.stats.arrays)
        for array in arrays:
            array[a] += array[b]
        merged = tuple(array[kept] for array in arrays)
        after = before.with_learned_priors(None, RunningStats(merged))
        bound = bound_of(before, memo)
        gain = after.collapsed_energy(Stats(merged)) + float(memo.entropy.sum()) - bound
        gain -= float(memo.merge_entropy_loss[a, b])
        outcome = judged(gain, size_of(bound, memo), SMALLEST_GAIN)
        if outcome.is_accepted:
            self._relearned = after
        return outcome

    def within(
        self, model: Mergeable, batch: Any, key: Hashable, state: MovableState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Merge as after a pass; pairs with a loss unknown since an earlier merge are left out."""
        return self.finish(model, state, tools)
