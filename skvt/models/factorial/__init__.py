"""Factorial mixtures: rows as sums of subsets of components."""

from skvt.models.factorial._model import FactorialMixture, contains_missing, guess_variances
from skvt.models.factorial._posterior import ActivationPosterior, infer_activations
from skvt.models.factorial._superposition import Superposition
