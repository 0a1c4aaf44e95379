"""Rows of small calls of a stream, gathered to a batch among which births are tried."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.files import in_files
from skvt.rows import stacked
from skvt.typing import Array

# Maximum number of rows of a batch gathered from small calls, and of a call with an id that counts
# as small.
_MOST_GATHERED = 500
_FEW_ROWS = 100
# Key of the joint memo of calls with ids while births are tried, unlikely as an id of a user.
TOGETHER = ("calls gathered",)
# Share by which a gathered batch must have grown before births are tried again, and the limits of
# the number of additional rows.
_GROWTH = 0.3
_LEAST_GROWN = 20
_MOST_GROWN = 50


@in_files("estimators.Gathered", nan=("X",))
@dataclass(frozen=True)
class Gathered:
    """Rows of small calls of a stream, among which births are tried together.

    A call of few rows alone does not support new components. Calls without an id form one batch;
    calls with ids remain separate batches.
    """

    # Key of the batch's memo; for calls with ids, of the joint memo while births are tried.
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
        """Return ``before`` with a call's rows, or these alone; None for an id with many rows."""
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

    def are_legal(self, reader, n_features):
        """Return whether a file can have these rows for a reader and so many columns."""
        X, weights, sizes = self.X, self.weights, [*self.calls.values()]
        values = X.data if sp.issparse(X) else X
        return (
            (reader.sparse if sp.issparse(X) else isinstance(X, np.ndarray))
            and X.shape == (weights.size, n_features)
            and weights.shape == (weights.size,)
            and values.dtype.kind in "iuf"
            and (reader.missing or not np.isnan(values).any())
            and bool(np.all((weights > 0.0) & (weights < np.inf)))
            and (not sizes or (self.key == TOGETHER and sum(sizes) == weights.size))
            and min(sizes, default=1) > 0
        )

    def _without(self, batch_id):
        """Return the rows without those of the call with this id, if there is one."""
        parts = self.parts
        gone = parts.pop(batch_id, None)
        if gone is None:
            return self
        rows = np.concatenate([np.empty(0, np.intp), *parts.values()])
        calls = {name: part.size for name, part in parts.items()}
        # rows that replace others count as rows for which births were not tried
        judged = max(0, self.n_judged - gone.size)
        X, weights = self.X[rows], self.weights[rows]
        return replace(self, X=X, weights=weights, n_judged=judged, calls=calls)

    @property
    def parts(self):
        """Positions of the rows of each call with an id."""
        ends = np.cumsum(list(self.calls.values()), dtype=np.intp)
        return dict(zip(self.calls, np.split(np.arange(self.weights.size), ends), strict=False))

    @property
    def memos(self):
        """Keys of the memos of these rows."""
        return set(self.calls or {self.key})

    @property
    def batch_id(self):
        """Key of the memo of all these rows: the id if there is one call with an id."""
        return next(iter(self.calls)) if len(self.calls) == 1 else self.key

    @property
    def is_new(self):
        """Whether these are the rows of one call."""
        return self.n_last == self.weights.size

    def kept(self):
        """Return a copy to which later calls are added; None if the batch is full.

        Rows are copied, since a caller may reuse its arrays after the call.
        """
        if self.weights.size > _MOST_GATHERED:
            return None
        if not self.is_new:  # concatenation has made copies
            return self
        return replace(self, X=self.X.copy(), weights=self.weights.copy())

    @property
    def is_due(self):
        """Whether births are tried: many rows were added, or another such call would not fit."""
        n_rows = self.weights.size
        enough = np.clip(_GROWTH * self.n_judged, _LEAST_GROWN, _MOST_GROWN)
        return n_rows - self.n_judged >= enough or n_rows + self.n_last > _MOST_GATHERED
