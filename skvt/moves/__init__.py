"""Moves: changes of the number of components, accepted by the exact bound."""

from skvt.moves._base import Move, MoveRecord
from skvt.moves._birth import Birth
from skvt.moves._delete import Delete
from skvt.moves._merge import Merge
from skvt.moves._superposition import Superposition

__all__ = ["Birth", "Delete", "Merge", "Move", "MoveRecord", "Superposition"]
