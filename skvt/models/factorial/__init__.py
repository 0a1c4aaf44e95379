"""Factorial mixtures: rows as sums of subsets of components."""

from skvt.models.factorial._model import FactorialMixture, guess_variances, has_missing
from skvt.models.factorial._posterior import Explanations, explain
from skvt.models.factorial._superposition import Superposition
