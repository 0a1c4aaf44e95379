"""The progress of an interrupted fit, and checksums that identify the rows of a fit.

:class:`Progress` has the data that ``resume`` needs in addition to the :class:`Fitted`, the outcome
of the passes so far. ``resume`` recognises the rows of the interrupted fit by a
:class:`RowsIdentity`, a checksum of a sample of the rows. Warm starts and ``impute`` recognise the
rows of the last fit by :func:`hash_all_rows`, a checksum of all rows.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.files import in_files
from skvt.fitting._changes import FREE_TO_CHANGE, refuse_changes
from skvt.fitting._restarts import Outcomes, Start
from skvt.rows import get_chunk_sizes, get_design_and_allowed, sums_of_rows, take_rows
from skvt.typing import Array

# Maximum number of rows in the sample whose checksum identifies the rows of a fit.
_SAMPLE_SIZE = 1000
# Number of bytes that are hashed at a time.
_BYTES_HASHED = 2**22


@in_files("estimators.RowsSeen")
@dataclass(frozen=True)
class RowsIdentity:
    """The identity of the rows of a fit: their shape, their type and a checksum of a sample."""

    # (N, D): the number of rows of positive weight, and the number of columns.
    shape: tuple[int, int]
    # Name of the type of the numbers.
    dtype: str
    # BLAKE2b hash as hexadecimal text. It covers at most _SAMPLE_SIZE evenly spaced rows with their
    # weights, covariates and allowed topics, and the lengths of chunks.
    digest: str

    @classmethod
    def of(cls, X, weights):
        """Return the shape, type and digest of rows and their weights."""
        n_rows = X.shape[0]
        evenly_spaced = np.linspace(0, n_rows - 1, min(n_rows, _SAMPLE_SIZE))
        rows = np.unique(evenly_spaced.astype(np.int64))
        sample, sample_weights = take_rows(X, weights, rows)
        arrays = [np.asarray(sample_weights, np.float64), get_chunk_sizes(X), *_details_of(sample)]
        if sp.issparse(sample):
            # Equal sparse rows can be stored in several ways. Bring them to one form, in which
            # entries are sorted and indices are int64.
            sample = sp.csr_array(sample)
            sample.sum_duplicates()
            arrays += [sample.indptr.astype(np.int64), sample.indices.astype(np.int64), sample.data]
        else:
            arrays.append(sample)
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return cls(tuple(X.shape), np.dtype(X.dtype).name, digest.hexdigest())

    def check(self, X, weights):
        """Raise ValueError if rows X with weights ``weights`` have another identity."""
        current = RowsIdentity.of(X, weights)
        if current != self:
            raise ValueError(
                "resume continues with the rows of the interrupted fit, in the same order: "
                f"{self.shape[0]} rows of positive weight, {self.shape[1]} columns, {self.dtype}, "
                f"checksum {self.digest}. Got {current.shape[0]} rows, {current.shape[1]} "
                f"columns, {current.dtype}, checksum {current.digest}. Pass the same X and "
                "sample_weight, and the same covariates and allowed topics if there were any, or "
                "call fit to start anew."
            )


def _details_of(X):
    """Return a list of the covariates and the allowed topics of documents X, if X has any."""
    return [array for array in get_design_and_allowed(X) if array is not None]


def hash_all_rows(X, weights):
    """Return a checksum of all rows with their weights, covariates and allowed topics, as text.

    The checksum does not depend on the order of chunks of equal size, because the hashes of chunks
    are added.
    """
    (digest,) = sums_of_rows(X, weights, _digest)
    return (
        f"{X.shape} {np.dtype(X.dtype).name} {get_chunk_sizes(X).tolist()} {digest.tobytes().hex()}"
    )


def _digest(X, weights):
    """Return the BLAKE2b hash of a chunk of rows with weights and details, as two integers.

    `sums_of_rows` calls the function for each chunk, or once for rows in memory, and adds up the
    integers. It expects a tuple, because it can add up several arrays.
    """
    digest = hashlib.blake2b(digest_size=16)
    arrays = [weights, X.indptr, X.indices, X.data] if sp.issparse(X) else [weights, X]
    for array in [*arrays, *_details_of(X)]:
        # Hash some rows at a time, because arrays that are not contiguous are copied.
        step = max(1, _BYTES_HASHED // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            digest.update(np.ascontiguousarray(array[start : start + step]))
    return (np.frombuffer(digest.digest(), np.uint64),)


@in_files("estimators.Progress", nan=("row_starts", "engine"))
@dataclass(frozen=True)
class Progress:
    """The state of an interrupted fit, without the :class:`Fitted` of the current start.

    A fit makes one or more starts, each from other random initial values.
    """

    # The identity of the rows.
    rows: RowsIdentity
    # Seeds of the ``n_init`` first starts, in order. All further starts have the first seed.
    seeds: tuple[int, ...]
    # Outcomes of the starts that have ended.
    outcomes: Outcomes
    # The start that was interrupted.
    start: Start
    # The data that engines and steps after passes keep from pass to pass, as returned by
    # :meth:`skvt.inference.Plan.get_progress`.
    engine: dict[str, Any]
    # (N, K): initial value for the next local step of each row; None for default values.
    row_starts: Array | None = None


def require_progress(estimator):
    """Return the :class:`Progress` of an estimator's interrupted fit.

    Raise ValueError if no fit was interrupted, if a parameter is illegal, or if a parameter has
    changed on which the passes so far depend.
    """
    progress = vars(estimator).get("_progress")
    if progress is None:
        raise ValueError(
            f"This {type(estimator).__name__} has no interrupted fit to resume. Load a file that "
            "skvt.callbacks.Checkpoint wrote during a fit; to continue a fit that has ended, call "
            "fit with warm_start=True."
        )
    estimator._validate_params()
    fitted = estimator._fitted
    fixed = [name for name in fitted.parameters if name not in FREE_TO_CHANGE]
    refuse_changes(estimator, fitted, "resume", fixed, "call fit to start anew")
    return progress
