"""Moves: changes of components, accepted by the bound."""

from skvt.moves._base import (
    Memo,
    Memos,
    MovableState,
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    SampledMove,
    SampledState,
    Solved,
    bound_of,
    is_accepted,
    size_of,
)
from skvt.moves._birth import Birth
from skvt.moves._delete import Delete
from skvt.moves._merge import Merge, dissolve, pair_gains

__all__ = [
    "Birth",
    "Delete",
    "Memo",
    "Memos",
    "Merge",
    "MovableState",
    "Move",
    "MoveRecord",
    "MoveTools",
    "Observer",
    "ObserverTools",
    "SampledMove",
    "SampledState",
    "Solved",
    "bound_of",
    "dissolve",
    "is_accepted",
    "pair_gains",
    "size_of",
]
