"""The hierarchical Dirichlet process: topics whose number is found."""

from skvt.models.hdp._model import HDP
from skvt.models.hdp._sticks import Sticks

__all__ = [
    "HDP",
    "Sticks",
]
