"""Streams: small calls gathered to batches, and the steps of a call."""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skvt.contracts import PassInputs, Stream
from skvt.inference import Entry
from skvt.rows import stacked
from skvt.typing import Array

# Largest number of rows of small calls of a stream that are gathered to a batch, and of a call with
# an id of its own that counts as small.
_MOST_GATHERED = 500
_FEW_ROWS = 100
# Key of the memo of calls with ids while births are tried: no id of a user is a tuple of this.
TOGETHER = ("calls gathered",)
# Share by which a gathered batch must have grown before births are tried again, and the least and
# largest number of rows.
_GROWTH = 0.3
_LEAST_GROWN = 20
_MOST_GROWN = 50


@dataclass(frozen=True)
class Gathered:
    """Rows of small calls of a stream, among which births are tried together.

    A call of few rows says nothing about components that are not there yet. Calls without an id are
    one batch; those with ids remain batches of their own.
    """

    # Of the batch among the memos; of calls with ids, while births are tried.
    key: Hashable
    # (n, D)
    X: Any
    # (n,)
    weights: Array
    # Number of rows of the last call.
    n_last: int
    # Number of rows when births were last tried.
    n_judged: int = 0
    # Number of rows of each call with an id, in order.
    calls: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, before, X, weights, batch_id, memos):
        """A call's rows after those gathered ``before``; None if it has an id and many rows."""
        n_rows, named = weights.size, batch_id is not None
        if named and n_rows > _FEW_ROWS:
            return None
        if before is not None and bool(before.calls) == named:
            before = before._without(batch_id)
            if before.weights.size + n_rows <= _MOST_GATHERED:
                return replace(
                    before,
                    X=stacked([before.X, X]),
                    weights=np.concatenate([before.weights, weights]),
                    n_last=n_rows,
                    calls=before.calls | ({batch_id: n_rows} if named else {}),
                )
        if named:
            return cls(TOGETHER, X, weights, n_rows, calls={batch_id: n_rows})
        key = len(memos)
        while key in memos:
            key += 1
        return cls(key, X, weights, n_rows)

    def _without(self, batch_id):
        """What remains without the rows of a call, if it is one of these."""
        parts = self.parts
        gone = parts.pop(batch_id, None)
        if gone is None:
            return self
        rows = np.concatenate([np.empty(0, np.intp), *parts.values()])
        calls = {name: part.size for name, part in parts.items()}
        # (rows that come once more are judged once more, when there are many of them)
        judged = max(0, self.n_judged - gone.size)
        X, weights = self.X[rows], self.weights[rows]
        return replace(self, X=X, weights=weights, n_judged=judged, calls=calls)

    @property
    def parts(self):
        """The rows of each call with an id."""
        ends = np.cumsum(list(self.calls.values()), dtype=np.intp)
        return dict(zip(self.calls, np.split(np.arange(self.weights.size), ends), strict=False))

    @property
    def memos(self):
        """Keys of the memos of these rows."""
        return set(self.calls or {self.key})

    @property
    def batch_id(self):
        """Key of the memo of all these rows: the id of a call that is alone."""
        return next(iter(self.calls)) if len(self.calls) == 1 else self.key

    @property
    def is_new(self):
        """Whether these are the rows of one call."""
        return self.n_last == self.weights.size

    def kept(self):
        """What later calls are added to, with rows of its own; None if no other call fits in.

        A caller may use its arrays for other rows as soon as a call has ended.
        """
        if self.weights.size > _MOST_GATHERED:
            return None
        if not self.is_new:  # (they have been copied when they were put together)
            return self
        return replace(self, X=self.X.copy(), weights=self.weights.copy())

    @property
    def is_due(self):
        """Whether births are tried: there are many more rows, or hardly room for another call."""
        n_rows = self.weights.size
        enough = np.clip(_GROWTH * self.n_judged, _LEAST_GROWN, _MOST_GROWN)
        return n_rows - self.n_judged >= enough or n_rows + self.n_last > _MOST_GATHERED


def gathers_calls(estimator, before=None):
    """Whether small calls of ``partial_fit`` are gathered to batches: those among which births are.

    With "structured", the first rows: components begin at rows of all that are there.
    """
    method = getattr(estimator, "learning_method", None)
    if method == "structured":
        return before is None or before.gathered is not None
    return method != "online" and "birth" in getattr(estimator, "moves", ())


def update_stream(fitted, plan, workers, batch_id, random_state):
    """Steps on rows of a stream; returns the size of the last."""
    n_steps = fitted.state.n_steps

    def make_rng():
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        return np.random.default_rng([seed, n_steps])

    gathered = fitted.gathered
    moves = gathered is None or gathered.is_due
    if gathered is not None and moves:
        fitted.gathered = replace(gathered, n_judged=gathered.weights.size)
    stream = Stream(
        fitted.n_rows, fitted.counts_rows, plan.total_samples, batch_id, make_rng, moves
    )
    if gathered is not None and batch_id == gathered.key:
        stream.parts = gathered.parts
    elif gathered is not None and batch_id is None:
        stream.joins = gathered.key
    fitted.state = plan.engine.resume(fitted.state, fitted.n_rows)
    given = PassInputs(plan.data, fitted.policy, workers)
    fitted.model, rate = plan.engine.update(fitted.model, fitted.state, stream, given)
    fitted.n_rows = stream.n_rows
    return rate


def record_call(fitted, rate, n_moves, started):
    """An entry of the history for a call of ``partial_fit`` whose last step had this size."""
    fitted.elbo = fitted.joins = fitted.labels = None
    state = fitted.state
    number = len(fitted.history) + 1
    state.move_log[n_moves:] = [
        replace(record, n_iter=number) for record in state.move_log[n_moves:]
    ]
    entry = Entry(
        n_iter=number,
        elbo=np.nan,
        objective=np.nan,
        temperature=fitted.policy.temperature,
        learning_rate=rate,
        n_components=fitted.model.size(state.stats),
        seconds=fitted.history.seconds + time.perf_counter() - started,
    )
    fitted.history.append(entry)
