"""An interrupted fit: what :meth:`resume` needs beside the model and the state."""

import hashlib
from dataclasses import dataclass, field
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
