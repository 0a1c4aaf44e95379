"""Protocols of memos and of the state of a fit, which moves read and change.

Memoized inference keeps a *memo* of each batch of rows: the statistics and the entropies of the
batch after its last local step, at the temperature T = 1. Moves change the K components of a model
between passes. `skvt.inference` defines the classes that follow these protocols.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol, Self

from skvt.expfam import RunningStats, Stats
from skvt.typing import Array, IndexArray


class Memo(Protocol):
    """The memo of a batch, or the sum of the memos of several batches."""

    # Sums of the sufficient statistics over rows; the first axis of each array has length K.
    @property
    def stats(self) -> Stats: ...
    # (K,): entropy of the assignments to each component in nats; or (): entropy of all local
    # variables.
    @property
    def entropy(self) -> Array: ...
    # (K, K): entry (a, b), for a < b, is the entropy in nats that is lost if components a and b
    # are merged; NaN where this loss is not known. The array is None if no loss is known.
    @property
    def merge_entropy_loss(self) -> Array | None: ...
    # Sum of the weights of the rows.
    @property
    def weight(self) -> float: ...

    def plus(self, other: Any, sign: float = 1.0) -> Self:
        """Return the sum of this memo and ``other``, or their difference if ``sign`` is -1."""

    def rearranged(self, index: IndexArray) -> Self:
        """Return a memo whose component i is the component ``index[i]`` of this memo.

        Where ``index[i]`` is -1, component i is empty.
        """


class Memos(Protocol):
    """A mapping from a key of each batch to its memo, which also keeps the sum of all memos."""

    def __getitem__(self, key: Hashable, /) -> Memo: ...
    def __setitem__(self, key: Hashable, memo: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Hashable]: ...

    def of(self, memos: Mapping[Hashable, Any]) -> Any:
        """Return a new collection of the memos of a mapping.

        Moves call the method of a collection that they have, since they cannot import its class.
        """

    def total(self) -> Memo:
        """Return the sum of all memos as a new memo, whose arrays may be changed."""


class SampledState(Protocol):
    """The state of a fit without memos, for moves between passes: only statistics may change."""

    # Statistics of all rows.
    stats: RunningStats


class MovableState(SampledState, Protocol):
    """The state of a fit with memos, see `skvt.inference.MemoizedState`."""

    # (K,): the identifier of each component, which stays the same if components change their order.
    component_ids: IndexArray

    @property
    def memos(self) -> Memos: ...
    # The statistics with each row counted once. ``stats`` may count each row several times, if the
    # temperature policy has a ``replication`` above 1.
    @property
    def plain_stats(self) -> RunningStats: ...

    def with_row_starts(self, batch: Any) -> Any:
        """Return the batch with the initial values for the local steps of its rows.

        The local step of a row begins where the last local step of the same row has ended.
        """

    def store_row_starts(self, rows: IndexArray | None, starts: Array | None) -> None:
        """Store ``starts``, the initial values for the next local steps of rows.

        ``rows`` are the indices of the rows in the data.
        """

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Give the rows of component b to component a, a < b, and leave b empty.

        The losses of entropy by further merges with a are then unknown. Their entries in
        ``merge_entropy_loss`` become NaN or, if ``bounded``, upper bounds of the losses.
        """

    def rearrange(self, index: IndexArray) -> None:
        """Move component ``index[i]`` to position i, for each i.

        Where ``index[i]`` is -1, component i becomes a new, empty component. Components that are
        not in ``index`` are removed.
        """

    def resum(self) -> None:
        """Recompute the statistics as the sum of the memos."""

    def checkpoint(self) -> Any:
        """Return the present memos and identifiers of components, to which `restore` returns."""

    def restore(self, checkpoint: Any) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
