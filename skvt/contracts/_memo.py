"""Protocols of memos and of the state of a fit, which moves read and change.

A *memo* holds the statistics and entropies of one batch of rows after its last local step, at
T = 1. `skvt.inference` defines the classes.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol, Self

from skvt.expfam import RunningStats, Stats
from skvt.typing import Array, IndexArray


class Memo(Protocol):
    """The memo of a batch, or the sum of the memos of several batches."""

    # Statistics; the first axis of each array has the K components.
    @property
    def stats(self) -> Stats: ...
    # (K,): entropy of the assignments to each component in nats; or (): entropy of all local
    # variables.
    @property
    def entropy(self) -> Array: ...
    # (K, K): for a < b, the entropy in nats that is lost if components a and b become one; NaN
    # where it is not known. It is None if no entry is known.
    @property
    def merge_entropy_loss(self) -> Array | None: ...
    # Sum of the weights of the rows.
    @property
    def weight(self) -> float: ...

    def plus(self, other: Any, sign: float = 1.0) -> Self:
        """Return the sum of the memo and ``other``, or their difference if ``sign`` is -1."""

    def rearranged(self, index: IndexArray) -> Self:
        """Return a memo whose component i is component ``index[i]``, or empty if it is -1."""


class Memos(Protocol):
    """The memo of each batch by a key that identifies the batch, and the sum of all memos."""

    def __getitem__(self, key: Hashable, /) -> Memo: ...
    def __setitem__(self, key: Hashable, memo: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Hashable]: ...

    def of(self, memos: Mapping[Hashable, Any]) -> Any:
        """Return a new collection with the memos of a mapping."""

    def total(self) -> Memo:
        """Return the sum of all memos as a new memo, whose arrays may be changed."""


class SampledState(Protocol):
    """A state whose statistics moves change between passes, by a sample of the rows."""

    stats: RunningStats


class MovableState(SampledState, Protocol):
    """A state with memos, which moves read and change: see `skvt.inference.MemoizedState`."""

    # (K,): the identifier of each component, which stays the same if components change their order.
    component_ids: IndexArray

    @property
    def memos(self) -> Memos: ...
    # The statistics with each row counted once.
    @property
    def plain_stats(self) -> RunningStats: ...

    def with_row_starts(self, batch: Any) -> Any:
        """Return the batch with the initial value for the local step of each row.

        The initial value is the end of the last local step of the row.
        """

    def store_row_starts(self, rows: IndexArray | None, starts: Array | None) -> None:
        """Store initial values for the next local steps of the rows with these indices."""

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Give the rows of component b to component a, a < b, and leave b empty.

        The entropies that further merges of a would lose are then unknown. They become NaN, or if
        ``bounded``, upper bounds.
        """

    def rearrange(self, index: IndexArray) -> None:
        """Make component ``index[i]`` the component i, for each i; -1 makes a new, empty one."""

    def resum(self) -> None:
        """Recompute the statistics as the sum of the memos."""

    def checkpoint(self) -> Any:
        """Return the present memos and components, for :meth:`restore`."""

    def restore(self, checkpoint: Any) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
