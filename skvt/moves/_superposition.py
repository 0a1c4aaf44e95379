"""Superposition moves: sums, differences and negatives of components, activations begun anew.

Coordinate ascent of a factorial mixture has two kinds of optima that heat alone does not avoid: a
pair of components {a, b} became {a, which is on where a or b is; b - a}; or a component became its
negative, on where it should be off. Adding one component to another, subtracting it, or changing
its sign undoes that, if all activations are then found anew. A move has two phases. In one pass the
activations of all rows are found anew under the components as they are (*refresh*), and a sample of
rows is kept, on which sums and differences of the pairs whose activations are most correlated are
tried, and negatives. In the next pass the best of them is tried on all rows (*superposition*).
Either is kept if the exact bound rises.
"""

from dataclasses import replace

import numpy as np

from skvt.expfam import RunningStats
from skvt.moves._base import MoveRecord, bound_of

# Rows of the sample.
SAMPLE = 1_000
# Pairs tried on it, the most correlated ones, and components changed in sign, the largest ones.
MOST_PAIRS = 8
MOST_SIGNS = 16
# Local and global updates of each trial.
STEPS = 2
# The bound must rise by more nats than this.
SMALLEST_GAIN = 0.1


class Superposition:
    """Try components plus or minus others and with the opposite sign, activations begun anew.

    Attributes
    ----------
    settled : bool
        Neither a refresh nor any superposition of those tried last raised the bound.
    """

    def __init__(self):
        self.settled = False
        # the change being tried on all rows and the statistics that its trial ended with
        self._change, self._proposal = None, None
        self._memos, self._sample = {}, []
        self._failed = set()

    def begin(self, model, state, tools):
        """Forget what the last pass has seen."""
        self._memos, self._sample = {}, []

    def observe(self, model, batch, key, g, result, tools):
        """Find the activations of the batch anew, under the proposal."""
        batch = replace(batch, start=None)
        if self._change is not None:
            g = model.expectation(self._proposal, batch, tools.run)
        else:
            rows = _evenly(batch.n_rows)
            self._sample.append((batch.X[rows], batch.weights[rows]))
        fresh = model.local_step(batch, g, 1.0, tools.run)
        self._memos[key] = tools.memo_of(model, fresh, batch)

    def finish(self, model, state, tools):
        """Keep what raises the bound, and choose what to try next."""
        refreshes = self._change is None
        after = type(state.memos)(self._memos)
        gain = bound_of(model, after.total()) - bound_of(model, state.memos.total())
        accepted = gain > SMALLEST_GAIN
        if accepted:
            state.memos, self._failed = after, set()
            state.resum()
        elif not refreshes:
            self._failed.add(self._change)
        # components that have changed are refreshed before others are tried
        self._change = None
        if refreshes:
            self._choose(model, state, tools)
        self.settled = refreshes and not accepted and self._change is None
        kind = "refresh" if refreshes else "superposition"
        return MoveRecord(tools.n_iter, kind, 1, int(accepted), gain if accepted else 0.0)

    def within(self, model, batch, key, state, tools):
        """Never in a stream: rows of other batches would have to be seen again."""
        return []

    def _choose(self, model, state, tools):
        """The change that raises the bound of the sample most, if one does."""
        X, weights = (np.concatenate(part) for part in zip(*self._sample, strict=True))
        rows = _evenly(len(X))
        batch = model.batch(X, rows, weights[rows])
        highest = bound_of(model, _trial(model, batch, state.stats, None, tools))
        for change in _candidates(state.stats.value()):
            if change not in self._failed:
                memo = _trial(model, batch, state.stats, change, tools)
                bound = bound_of(model, memo)
                if bound > highest + SMALLEST_GAIN:
                    highest, self._change = bound, change
                    self._proposal = RunningStats(memo.stats.arrays)
        if self._change is not None:
            self._proposal.rescale(state.memos.total().weight / batch.weights.sum())


def _evenly(n_rows):
    """At most ``SAMPLE`` row numbers, evenly spread: rows may be in an order."""
    return np.unique(np.linspace(0, n_rows - 1, min(SAMPLE, n_rows)).astype(int))


def _trial(model, batch, stats, change, tools):
    """The memo of the sample after a change and a few updates from there."""
    g = model.expectation(stats, batch, tools.run)
    if change is not None:
        a, b, factor = change
        mix = np.eye(model.size(stats))
        mix[a, b] = factor
        g = mix @ g[0], mix @ g[1] @ mix.T
    memo = tools.memo_of(model, model.local_step(batch, g, 1.0, tools.run), batch)
    for _ in range(STEPS - 1):
        g = model.expectation(RunningStats(memo.stats.arrays), batch, tools.run)
        memo = tools.memo_of(model, model.local_step(batch, g, 1.0, tools.run), batch)
    return memo


def _candidates(stats):
    """(a, b, factor): ``mu_a`` gains ``factor mu_b``, or for a = b is multiplied by it."""
    pairs, products, on, (n_rows, n_values, _) = stats.arrays
    chance = on / n_rows
    together = pairs.mean(axis=0) * products.shape[1] / n_values
    spread = np.sqrt(np.maximum(chance * (1.0 - chance), 1e-12))
    correlation = (together - np.outer(chance, chance)) / np.outer(spread, spread)
    first, second = np.triu_indices(len(chance), 1)
    order = np.argsort(-np.abs(correlation[first, second]), kind="stable")[:MOST_PAIRS]
    sums = [
        change
        for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True)
        for factor in (1.0, -1.0)
        for change in ((i, j, factor), (j, i, factor))
    ]
    largest = np.argsort(-np.abs(products).sum(axis=1), kind="stable")[:MOST_SIGNS]
    return sums + [(k, k, -1.0) for k in largest.tolist()]
