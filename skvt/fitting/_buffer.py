"""Rows of several small calls of ``partial_fit``, which are gathered to a batch.

*Births*, the moves that add components, need more rows than a small call has, and are therefore
tried among the rows of several calls. In memoized inference, each batch has a *memo* with a key:
the statistics of the batch and the entropies of its assignments. A call may have an id,
``batch_id``, by which the user can replace the rows of the call later. The id is then the key of
the memo of the call.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.files import in_files
from skvt.inference import find_unused_key
from skvt.rows import stack_rows
from skvt.typing import Array

# A batch of small calls is complete if it has at least this number of rows.
_ROWS_OF_BATCH = 500
# A call with an id is gathered only if it has at most this number of rows.
_MAX_ROWS_OF_CALL = 100
# Key of the joint memo of calls with ids. The calls have a joint memo while births are tried, and
# separate memos at other times. No user is likely to choose this key as the id of a batch.
JOINT_KEY = ("calls gathered",)
# Births are tried again when the number of rows has grown by the share _MIN_SHARE_ADDED, and by at
# least _MIN_ADDED rows, since they were last tried.
_MIN_SHARE_ADDED = 0.5
_MIN_ADDED = 20
# In the first batch of a stream, births do not wait for rows of later calls when the number of
# gathered rows reaches a milestone.
_MILESTONES = np.array([20, 60, 180])


@in_files("estimators.Gathered", nan=("X",))
@dataclass(frozen=True)
class Gathered:
    """Rows of one or more small calls of ``partial_fit``, among which births are tried.

    Either all of the calls have ids, or no call has an id. Calls without ids form a single batch
    with a single memo. Calls with ids remain separate batches with separate memos.
    """

    # Key of the memo of the batch; for calls with ids, ``JOINT_KEY``.
    key: Hashable
    # Rows of all calls in order, (n, D).
    X: Any
    # Weights of the rows, (n,).
    weights: Array
    # Number of rows of the last call.
    n_last: int
    # Number of gathered rows when births were last tried, without rows that were replaced since.
    n_judged: int = 0
    # Number of rows of each call with an id, in the order of the rows; empty for calls without ids.
    calls: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, gathered_before, X, weights, batch_id, memos):
        """Return the gathered rows after a call of ``partial_fit``, or None if none are gathered.

        No rows are gathered if the call has an id and more than ``_MAX_ROWS_OF_CALL`` rows.
        Otherwise the rows of the call are added to the rows of earlier calls, and replace the rows
        of an earlier call with the same id. The rows of earlier calls are dropped in two cases:

        - Only this call, or only the earlier calls, have ids.
        - This call, or the earlier calls together, have at least ``_ROWS_OF_BATCH`` rows.

        Parameters
        ----------
        gathered_before : Gathered or None
            The rows gathered before the call.
        X, weights, batch_id
            The rows of the call, (n, D), their weights (n,), and the id of the call or None.
        memos : mapping
            The memos of the fit. A new batch of calls without ids gets a key that no memo has.
        """
        n_rows = weights.size
        has_id = batch_id is not None
        if has_id and n_rows > _MAX_ROWS_OF_CALL:
            return None
        # Only calls with ids are in ``calls``.
        if gathered_before is not None and bool(gathered_before.calls) == has_id:
            gathered_before = gathered_before._remove_call(batch_id)
            if max(gathered_before.weights.size, n_rows) < _ROWS_OF_BATCH:
                return replace(
                    gathered_before,
                    X=stack_rows([gathered_before.X, X]),
                    weights=np.concatenate([gathered_before.weights, weights]),
                    n_last=n_rows,
                    calls=gathered_before.calls | ({batch_id: n_rows} if has_id else {}),
                )
        if has_id:
            return cls(JOINT_KEY, X, weights, n_rows, calls={batch_id: n_rows})
        return cls(find_unused_key(memos), X, weights, n_rows)

    def are_legal(self, reader, n_features):
        """Return whether gathered rows that were read from a file are legal.

        ``reader`` is the class of the estimator's reader. ``n_features`` is the number of columns.
        """
        X, weights = self.X, self.weights
        # Number of rows of each call with an id.
        call_sizes = [*self.calls.values()]
        values = X.data if sp.issparse(X) else X
        # If calls have ids, the key is JOINT_KEY, and all rows belong to the calls.
        return (
            (reader.accepts_sparse if sp.issparse(X) else isinstance(X, np.ndarray))
            and X.shape == (weights.size, n_features)
            and weights.shape == (weights.size,)
            and values.dtype.kind in "iuf"
            and (reader.accepts_missing or not np.isnan(values).any())
            and bool(np.all((weights > 0.0) & (weights < np.inf)))
            and (not call_sizes or (self.key == JOINT_KEY and sum(call_sizes) == weights.size))
            and min(call_sizes, default=1) > 0
            and 0 < self.n_last <= weights.size
            and 0 <= self.n_judged <= weights.size
        )

    def _remove_call(self, batch_id):
        """Return the gathered rows without the rows of an earlier call with this id, if any."""
        if batch_id not in self.calls:
            return self
        kept_rows_of_calls = self.rows_of_calls
        removed_rows = kept_rows_of_calls.pop(batch_id)
        # The empty array is needed if no call is left.
        kept_rows = np.concatenate([np.empty(0, np.intp), *kept_rows_of_calls.values()])
        calls = {name: rows.size for name, rows in kept_rows_of_calls.items()}
        # Births have not been tried among the rows that replace the removed rows.
        n_judged = max(0, self.n_judged - removed_rows.size)
        X, weights = self.X[kept_rows], self.weights[kept_rows]
        return replace(self, X=X, weights=weights, n_judged=n_judged, calls=calls)

    @property
    def rows_of_calls(self):
        """Positions of the rows of each call, by id; empty for calls without ids."""
        ends = np.cumsum(list(self.calls.values()), dtype=np.intp)
        split_rows = np.split(np.arange(self.weights.size), ends)
        # ``zip`` leaves out the last array of ``split_rows``, the rows after the last call.
        return dict(zip(self.calls, split_rows, strict=False))

    @property
    def memo_keys(self):
        """Keys of the memos of the gathered rows between two calls of ``partial_fit``.

        The keys are the ids of the calls, or ``key`` if the calls have no ids.
        """
        return set(self.calls or {self.key})

    @property
    def batch_id(self):
        """Key of the memo of all gathered rows together, while births are tried.

        It is the id of the call if a single call with an id is gathered, otherwise ``key``.
        """
        return next(iter(self.calls)) if len(self.calls) == 1 else self.key

    @property
    def from_several_calls(self):
        """Whether calls before the last call provided some of the gathered rows."""
        return self.n_last != self.weights.size

    def copy_for_next_call(self):
        """Return the gathered rows for the next call, or None if the batch is complete.

        The rows are a copy, because the caller of ``partial_fit`` may overwrite X after the call.
        """
        if self.is_complete:
            return None
        # The concatenated rows of several calls are a copy already.
        if self.from_several_calls:
            return self
        return replace(self, X=self.X.copy(), weights=self.weights.copy())

    @property
    def is_complete(self):
        """Whether there are enough rows. The rows of the next call then begin another batch."""
        return self.weights.size >= _ROWS_OF_BATCH

    def find_n_judged(self, keys):
        """Return ``n_judged`` if births can wait for rows of later calls, otherwise None.

        Births cannot wait if the batch is complete, or if it is the first batch of the stream and
        has reached one of the ``_MILESTONES`` since births were last tried. ``keys`` are the keys
        of all memos of the stream.
        """
        is_first_batch = keys <= self.memo_keys
        are_reached = (self.n_judged < _MILESTONES) & (_MILESTONES <= self.weights.size)
        return None if self.is_complete or (is_first_batch and are_reached.any()) else self.n_judged

    @property
    def is_due(self):
        """Whether births must be tried in this call.

        They must be tried if enough rows were added since they were last tried, or if the batch is
        complete.
        """
        min_added = max(_MIN_SHARE_ADDED * self.n_judged, _MIN_ADDED)
        return self.is_complete or self.weights.size - self.n_judged >= min_added
