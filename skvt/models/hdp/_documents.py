"""Some documents of a batch, taken out and put back: what moves of topics have in common."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.expfam import Stats
from skvt.models.hdp._model import HDP
from skvt.typing import Array, IndexArray


def documents(batch: Any, rows: IndexArray, n_features: int) -> sp.csr_array:
    """Documents ``rows`` of a prepared batch, as counts of all words."""
    shape = batch.n_rows, n_features
    whole = sp.csr_array((batch.counts, batch.active[batch.words], batch.indptr), shape=shape)
    return whole[rows]


def part_of(model: HDP, batch: Any, rows: IndexArray) -> Any:
    """The same as a batch of their own, with their weights."""
    X = documents(batch, rows, model.n_features)
    return model.batch(X, np.arange(rows.size), batch.weights[rows])


@dataclass(frozen=True)
class Part:
    """Documents of one batch, and what its memo owes to them.

    Attributes
    ----------
    key : hashable
        Of the batch.
    batch : object
        The documents.
    memo : Memo
        Their part of the batch's memo.
    tokens : ndarray, shape (n, K)
        Expected tokens of each topic.
    """

    key: Hashable
    batch: Any
    memo: Any
    tokens: Array


def with_topics(memo: Any, index: IndexArray) -> Any:
    """The memo with topics in another order: those of ``index``, empty ones where it is -1."""
    index = np.asarray(index)
    arrays = []
    for array in memo.stats.arrays:
        taken = array[index]
        taken[index < 0] = 0.0
        arrays.append(taken)
    return replace(memo, stats=Stats(tuple(arrays)))


def added(memos: list[Any]) -> Any:
    """The sum of some memos."""
    total = memos[0]
    for memo in memos[1:]:
        total = total.plus(memo)
    return total
