"""Exponential families: log-normaliser, expectation and sample, in natural parameters.

One convention for the whole package: a member is ``h(x) exp(<eta, t(x)> - A(eta))``, and the
natural parameter ``eta`` is chosen such that a posterior is the prior plus statistics. For the
Dirichlet that makes ``eta`` the concentration itself, ``t(x) = log x`` and ``h(x) = 1 / prod(x)``.
"""

from skvt.expfam._dirichlet import Dirichlet
from skvt.expfam._family import Family, kl_divergence
from skvt.expfam._posterior import Posterior
from skvt.expfam._stats import RunningStats, Stats

__all__ = ["Dirichlet", "Family", "Posterior", "RunningStats", "Stats", "kl_divergence"]
