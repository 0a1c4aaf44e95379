"""Moves: changes of components, accepted by the bound."""

from skvt.moves._base import Move, MoveRecord, SampledMove
from skvt.moves._birth import Birth
from skvt.moves._delete import Delete
from skvt.moves._merge import Merge
from skvt.moves._split_merge import SplitMerge
from skvt.moves._superposition import Superposition

__all__ = [
    "Birth",
    "Delete",
    "Merge",
    "Move",
    "MoveRecord",
    "SampledMove",
    "SplitMerge",
    "Superposition",
]
