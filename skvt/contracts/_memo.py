"""What memoized inference keeps of batches, and the state, as moves read and change them."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol, Self

from skvt.expfam import RunningStats, Stats
from skvt.typing import Array, IndexArray


class Memo(Protocol):
    """Contribution of a batch, or of several: see `skvt.inference`."""

    @property
    def stats(self) -> Stats: ...
    @property
    def entropy(self) -> Array: ...
    @property
    def merge_entropy_loss(self) -> Array | None: ...
    @property
    def weight(self) -> float: ...

    def plus(self, other: Any, sign: float = 1.0) -> Self:
        """The sum with another memo, or with ``sign=-1`` the difference."""

    def rearranged(self, index: IndexArray) -> Self:
        """Components in another order: those of ``index``, empty ones where it is -1."""


class Memos(Protocol):
    """The memo of each batch by its key, and their sum."""

    def __getitem__(self, key: Hashable, /) -> Memo: ...
    def __setitem__(self, key: Hashable, memo: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Hashable]: ...

    def of(self, memos: Mapping[Hashable, Any]) -> Any:
        """Memos of the same kind, from a mapping."""

    def total(self) -> Memo:
        """The sum of all memos, as a memo with arrays of its own."""


class SampledState(Protocol):
    """The state as moves between passes change it: the statistics."""

    stats: RunningStats


class MovableState(SampledState, Protocol):
    """A state with memos, as moves read and change it: see `skvt.inference.MemoizedState`."""

    component_ids: IndexArray

    @property
    def memos(self) -> Memos: ...
    @property
    def plain_stats(self) -> RunningStats: ...

    def with_warm_start(self, batch: Any) -> Any:
        """The batch, with local steps starting where the last ones of these rows ended."""

    def remember_ends(self, rows: IndexArray | None, start: Array | None) -> None:
        """Store where the next local step of these rows begins."""

    def merge(self, a: int, b: int, *, bounded: bool = False) -> None:
        """Component a takes over the rows of b, which is left empty; a < b."""

    def rearrange(self, index: IndexArray) -> None:
        """Components in another order: those of ``index``, empty ones where it is -1."""

    def resum(self) -> None:
        """Statistics are the sum of the memos."""

    def checkpoint(self) -> Any:
        """What :meth:`restore` needs."""

    def restore(self, checkpoint: Any) -> None:
        """Undo all changes of memos and components since :meth:`checkpoint`."""
