"""Mixtures of any component, with any weights."""

from skvt.models.mixture._components import (
    Bernoulli,
    Component,
    ConjugateComponent,
    KnownVarianceGaussian,
)
from skvt.models.mixture._gaussian_prior import GaussianPrior, gaussian_component, weighted_moments
from skvt.models.mixture._given_globals import MixtureGivenGlobals
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import (
    KnownWeights,
    SeparateSticks,
    StickBreaking,
    SymmetricDirichlet,
    Weights,
)

__all__ = [
    "Bernoulli",
    "Component",
    "ConjugateComponent",
    "GaussianPrior",
    "KnownVarianceGaussian",
    "KnownWeights",
    "Mixture",
    "MixtureGivenGlobals",
    "SeparateSticks",
    "StickBreaking",
    "SymmetricDirichlet",
    "Weights",
    "gaussian_component",
    "weighted_moments",
]
