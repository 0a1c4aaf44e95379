"""Protocols of the memos of batches in memoized inference, and of its state in moves."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol, Self

from skvt.expfam import RunningStats, Stats
from skvt.typing import Array, IndexArray


class Memo(Protocol):
    """Contribution of one or more batches to statistics and bound: see `skvt.inference`."""

    # Statistics; the first axis of each array has the K components.
    @property
    def stats(self) -> Stats: ...
    # (K,) or (): entropy of the assignments to each component, or of all local variables, in nats.
    @property
    def entropy(self) -> Array: ...
    # (K, K): for a < b, the loss of entropy if components a and b became one; None if not known.
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
    """The memo of each batch by its key, and their sum."""

    def __getitem__(self, key: Hashable, /) -> Memo: ...
    def __setitem__(self, key: Hashable, memo: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Hashable]: ...

    def of(self, memos: Mapping[Hashable, Any]) -> Any:
        """Build memos of the same kind from a mapping of keys to memos."""

    def total(self) -> Memo:
        """Return the sum of all memos as a memo that shares no array with them."""


class SampledState(Protocol):
    """The state that moves between passes change: only its statistics."""

    stats: RunningStats


class MovableState(SampledState, Protocol):
    """A state with memos, which moves read and change: see `skvt.inference.MemoizedState`."""

    # (K,): the identity of each component, which stays when components change their order.
    component_ids: IndexArray

    @property
    def memos(self) -> Memos: ...
    @property
    def plain_stats(self) -> RunningStats: ...

    def with_row_starts(self, batch: Any) -> Any:
        """Return the batch with starts for its local step.

        The local step of each row starts where the last local step of the row ended.
        """

    def store_row_starts(self, rows: IndexArray | None, start: Array | None) -> None:
        """Store the starts of the next local steps of these rows."""

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Give the rows of component b to component a, and leave b empty; a < b is required."""

    def rearrange(self, index: IndexArray) -> None:
        """Put the components ``index`` in this order; -1 is an empty component."""

    def resum(self) -> None:
        """Recompute the statistics as the sum of the memos."""

    def checkpoint(self) -> Any:
        """Return the data that :meth:`restore` needs."""

    def restore(self, checkpoint: Any) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
