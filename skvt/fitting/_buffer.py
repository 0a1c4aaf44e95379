"""Rows of small calls of a stream, gathered to a batch among which births are tried."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.files import in_files
from skvt.rows import stacked
from skvt.typing import Array

# Maximum number of rows of a batch gathered from small calls.
_MOST_GATHERED = 500
# Maximum number of rows of a call with an id that counts as small.
_FEW_ROWS = 100
# Key of the joint memo of calls with ids while births are tried. No user is likely to choose it as
# the id of a batch.
TOGETHER = ("calls gathered",)
# Births are tried again when a gathered batch has grown by this share of the rows among which they
# were last tried. The limits below apply to the number of additional rows.
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

    # Key of the batch's memo. For calls with ids, key of their joint memo while births are tried.
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
        """Return the gathered rows after a call.

        They are the rows of ``before`` and of the call; the rows of the call alone if there are
        none before, if these are of the other kind (with or without ids), or if both are too many;
        None for a call of many rows with an id.
        """
        n_rows, has_id = weights.size, batch_id is not None
        if has_id and n_rows > _FEW_ROWS:
            return None
        if before is not None and bool(before.calls) == has_id:
            before = before._without(batch_id)
            if before.weights.size + n_rows <= _MOST_GATHERED:
                return replace(
                    before,
                    X=stacked([before.X, X]),
                    weights=np.concatenate([before.weights, weights]),
                    n_last=n_rows,
                    calls=before.calls | ({batch_id: n_rows} if has_id else {}),
                )
        if has_id:
            return cls(TOGETHER, X, weights, n_rows, calls={batch_id: n_rows})
        key = len(memos)
        while key in memos:
            key += 1
        return cls(key, X, weights, n_rows)

    def are_legal(self, reader, n_features):
        """Return whether a file may hold these rows, given the reader and ``n_features``."""
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
        """Return the gathered rows without the rows of an earlier call with this id, if any."""
        parts = self.parts
        replaced = parts.pop(batch_id, None)
        if replaced is None:
            return self
        rows = np.concatenate([np.empty(0, np.intp), *parts.values()])
        calls = {name: part.size for name, part in parts.items()}
        # Births have not been tried among the rows that replace these.
        n_judged = max(0, self.n_judged - replaced.size)
        X, weights = self.X[rows], self.weights[rows]
        return replace(self, X=X, weights=weights, n_judged=n_judged, calls=calls)

    @property
    def parts(self):
        """Positions of the rows of each call, by id; empty for calls without ids."""
        ends = np.cumsum(list(self.calls.values()), dtype=np.intp)
        return dict(zip(self.calls, np.split(np.arange(self.weights.size), ends), strict=False))

    @property
    def memos(self):
        """Keys of the memos of these rows."""
        return set(self.calls or {self.key})

    @property
    def batch_id(self):
        """Key of the memo of all gathered rows: the id if there is a single call with an id."""
        return next(iter(self.calls)) if len(self.calls) == 1 else self.key

    @property
    def is_new(self):
        """Whether all gathered rows are of the last call."""
        return self.n_last == self.weights.size

    def kept(self):
        """Return a copy to which later calls are added; None if the batch is full.

        Rows are copied, since a caller may reuse its arrays after the call.
        """
        if self.weights.size > _MOST_GATHERED:
            return None
        if not self.is_new:  # concatenation has already copied the rows
            return self
        return replace(self, X=self.X.copy(), weights=self.weights.copy())

    @property
    def is_due(self):
        """Whether births are to be tried: many rows were added, or another call would not fit."""
        n_rows = self.weights.size
        enough = np.clip(_GROWTH * self.n_judged, _LEAST_GROWN, _MOST_GROWN)
        return n_rows - self.n_judged >= enough or n_rows + self.n_last > _MOST_GATHERED
