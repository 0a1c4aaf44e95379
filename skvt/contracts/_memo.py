"""Protocols of memos and of the state of a fit: what moves read and change.

`skvt.inference` defines the classes.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol, Self

from skvt.expfam import RunningStats, Stats
from skvt.typing import Array, IndexArray


class Memo(Protocol):
    """Contribution of one or more batches to the statistics and to the bound."""

    # Statistics; the first axis of each array has the K components.
    @property
    def stats(self) -> Stats: ...
    # (K,): entropy of the assignments to each component in nats; or (): entropy of all local
    # variables.
    @property
    def entropy(self) -> Array: ...
    # (K, K): for a < b, the entropy in nats that is lost if components a and b become one; NaN
    # where it is not known. None if no entry is known.
    @property
    def merge_entropy_loss(self) -> Array | None: ...
    # Sum of the weights of the rows.
    @property
    def weight(self) -> float: ...

    def plus(self, other: Any, sign: float = 1.0) -> Self:
        """Return the sum of the memo and ``other``, or their difference if ``sign`` is -1."""

    def rearranged(self, index: IndexArray) -> Self:
        """Return a memo of the components ``index``, in this order; -1 is an empty component."""


class Memos(Protocol):
    """The memo of each batch by its key, and the sum of all memos."""

    def __getitem__(self, key: Hashable, /) -> Memo: ...
    def __setitem__(self, key: Hashable, memo: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Hashable]: ...

    def of(self, memos: Mapping[Hashable, Any]) -> Any:
        """Return a collection of the memos of a mapping."""

    def total(self) -> Memo:
        """Return the sum of all memos as a memo that shares no array with them."""


class SampledState(Protocol):
    """A state without memos: moves between passes change its statistics."""

    stats: RunningStats


class MovableState(SampledState, Protocol):
    """A state with memos, which moves read and change: see `skvt.inference.MemoizedState`."""

    # (K,): the identifier of each component, which it keeps when components change their order.
    component_ids: IndexArray

    @property
    def memos(self) -> Memos: ...
    # The statistics with each row counted once.
    @property
    def plain_stats(self) -> RunningStats: ...

    def with_row_starts(self, batch: Any) -> Any:
        """Return the batch with the starts of its local steps.

        The local step of each row starts where the last local step of the row ended.
        """

    def store_row_starts(self, rows: IndexArray | None, starts: Array | None) -> None:
        """Store the starts of the next local steps of the rows with these indices."""

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Give the rows of component b to component a, a < b, and leave b empty.

        If ``bounded``, the entropies that further merges of a lose become upper bounds; otherwise
        they become NaN.
        """

    def rearrange(self, index: IndexArray) -> None:
        """Put the components ``index`` in this order; -1 is a new, empty component."""

    def resum(self) -> None:
        """Recompute the statistics as the sum of the memos."""

    def checkpoint(self) -> Any:
        """Return the argument of :meth:`restore`."""

    def restore(self, checkpoint: Any) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
