"""Factorial mixtures: rows as sums of subsets of components."""

from skvt.models.factorial._model import FEWEST_ON, FactorialMixture, column_moments
from skvt.models.factorial._superposition import Superposition

__all__ = [
    "FEWEST_ON",
    "FactorialMixture",
    "Superposition",
    "column_moments",
]
