"""An interrupted fit: what :meth:`resume` needs beside the model and the state."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.inference import Position
from skvt.rows import layout_of, some_rows, sums_of_rows
from skvt.typing import Array

# Number of rows of which a checksum is kept.
_SAMPLED = 1000
# Bytes hashed at a time.
_HASHED = 2**22
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
                stack = sp.vstack if sp.issparse(X) else np.concatenate
                return replace(
                    before,
                    X=stack([before.X, X]),
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
        if parts.pop(batch_id, None) is None:
            return self
        rows = np.concatenate([np.empty(0, np.intp), *parts.values()])
        calls = {name: part.size for name, part in parts.items()}
        return replace(self, X=self.X[rows], weights=self.weights[rows], calls=calls)

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

    @property
    def is_due(self):
        """Whether births are tried: there are many more rows, or hardly room for another call."""
        n_rows = self.weights.size
        enough = np.clip(_GROWTH * self.n_judged, _LEAST_GROWN, _MOST_GROWN)
        return n_rows - self.n_judged >= enough or n_rows + self.n_last > _MOST_GATHERED


@dataclass(frozen=True)
class RowsSeen:
    """By what the rows of a fit are recognised: shape, type, and a checksum of a sample."""

    # (N, D), rows of weight 0 apart.
    shape: tuple[int, int]
    dtype: str
    # BLAKE2b of at most 1,000 rows at even distances, their weights, and lengths of chunks.
    digest: str

    @classmethod
    def of(cls, X, weights):
        """Shape, type and digest of rows and their weights."""
        n_rows = X.shape[0]
        rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _SAMPLED)).astype(np.int64))
        sample, of_rows = some_rows(X, weights, rows)
        parts = [np.asarray(of_rows, np.float64), layout_of(X)]
        if sp.issparse(sample):
            sample = sp.csr_array(sample)
            sample.sum_duplicates()
            parts += [sample.indptr.astype(np.int64), sample.indices.astype(np.int64), sample.data]
        else:
            parts.append(sample)
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        return cls(tuple(X.shape), np.dtype(X.dtype).name, digest.hexdigest())

    def check(self, X, weights):
        """Raise ValueError unless these are the same rows."""
        given = RowsSeen.of(X, weights)
        if given != self:
            raise ValueError(
                "resume continues on the rows of the interrupted fit, in their order: "
                f"{self.shape[0]} rows of positive weight, {self.shape[1]} columns, "
                f"{self.dtype}, checksum {self.digest}. Got {given.shape[0]} rows, "
                f"{given.shape[1]} columns, {given.dtype}, checksum {given.digest}. Pass the same "
                "X and sample_weight, or call fit to start anew."
            )


def checksum(X, weights):
    """Text by which all rows and their weights are recognised."""
    (digest,) = sums_of_rows(X, weights, _digest)
    return f"{X.shape} {np.dtype(X.dtype).name} {layout_of(X).tolist()} {digest.tobytes().hex()}"


def _digest(X, weights):
    """BLAKE2b of rows and their weights as integers, which add up over chunks."""
    digest = hashlib.blake2b(digest_size=16)
    arrays = [weights, X.indptr, X.indices, X.data] if sp.issparse(X) else [weights, X]
    for array in arrays:
        step = max(1, _HASHED // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            digest.update(np.ascontiguousarray(array[start : start + step]))
    return (np.frombuffer(digest.digest(), np.uint64),)


@dataclass
class Starts:
    """The starts of a fit (``n_init``)."""

    # One for each start.
    seeds: list[int]
    # The bounds of those that have ended, in nats.
    elbos: list[float] = field(default_factory=list)
    # The best of them.
    best: object = None
    # Whether it has converged.
    converged: bool = False


@dataclass
class Start:
    """The start under way: what a pass changes, beside the state."""

    rng: np.random.Generator
    position: Position = field(default_factory=Position)
    # Entries of the log of moves that count the passes of the model: those before this fit, and
    # where it was interrupted.
    n_moves: int = 0


@dataclass
class Progress:
    """An interrupted fit."""

    rows: RowsSeen
    starts: Starts
    start: Start
    # What the engine remembers, see :class:`~skvt.progress.Continued`.
    engine: dict[str, Any]
    # Where the next local step of each row begins.
    row_starts: Array | None = None
