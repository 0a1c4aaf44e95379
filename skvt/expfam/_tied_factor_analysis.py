"""Variational inference of K Gaussians whose shared covariance is that of a factor analyser.

:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._factor_analysis import FactorAnalysis, Factors
from skvt.expfam._gaussian import MeanPrecision
from skvt.expfam._normal_wishart import get_m_kappa_nu
from skvt.expfam._tied_normal_wishart import TiedNormalWishart
from skvt.typing import Array


class _EqualFactorAnalysis(FactorAnalysis):
    """Factor analysers whose q differ in their means only, so that one q is computed for all."""

    def factors(self, eta: ArrayLike) -> Factors:
        members = np.reshape(eta, (-1, self.prior.size))
        factors_of_first = super().factors(members[:1])
        return Factors(*(np.repeat(array, len(members), axis=0) for array in factors_of_first))


@dataclass(frozen=True, eq=False)
class TiedFactorAnalysis(FactorAnalysis):
    """Joint distribution of the means mu_k of K Gaussians and of their shared covariance Sigma.

    Sigma has the prior of a :class:`~skvt.expfam.FactorAnalysis`, and ``mu_k | Sigma ~ N(m_0, Sigma
    / kappa_0)``. Each of the K Gaussians is called a member. Natural parameters have shape (K, E),
    with a row for each member, as if it were a separate factor analyser.

    The means are integrated out exactly. The N_k rows of member k then have the evidence of N_k
    rows of the known mean 0, times ``(kappa_0 / kappa_k)^(D / 2)``. The scatter of these rows is
    what a separate factor analyser has, that is, ``W_k^-1 - W_0^-1`` in the notation of
    :class:`~skvt.expfam.TiedNormalWishart`. The q of Sigma is therefore the q of one factor
    analyser of all rows, whose scatter is the sum over members.

    The log-normaliser has one term for each member. Each term includes a K-th of the bound of this
    factor analyser.
    """

    __name__ = "TiedFactorAnalysis"

    @cached_property
    def separate(self) -> FactorAnalysis:
        """The family of the marginals of (mu_k, Sigma), see :meth:`with_shared_globals`."""
        return _EqualFactorAnalysis(self.prior, self.max_rank, self.initial_factors)

    def with_shared_globals(self, eta: ArrayLike) -> Array:
        """Return natural parameters (K, E) of the marginals of (mu_k, Sigma)."""
        return TiedNormalWishart(self.prior).with_shared_globals(eta)

    def trial(self, eta: ArrayLike) -> "TiedFactorAnalysis":
        separate = self.separate.trial(self.with_shared_globals(eta))
        trial = replace(self, initial_factors=separate.initial_factors)
        # Set the cached property, because this family knows the best q under the present prior.
        vars(trial)["separate"] = separate
        return trial

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return the terms of the members in the bound of the log evidence, (K,), in nats."""
        shared = self.with_shared_globals(eta)
        return self.separate.log_normalizer(shared) - self._surplus(shared)

    def _surplus(self, shared: Array) -> Array:
        """Return the part of the bound of all rows that is not in the term of one member."""
        bound = self.separate.factors(shared).bound
        return np.asarray((1.0 - 1.0 / max(1, bound.size)) * bound).reshape(shared.shape[:-1])

    def expectation(self, eta: ArrayLike) -> Array:
        """Return the gradient of the sum of the log-normaliser's terms, in the shape of eta."""
        return self.separate.expectation(self.with_shared_globals(eta))

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return the parameters of the marginals by the names of a :class:`FactorAnalysis`."""
        return self.separate.to_standard(self.with_shared_globals(eta))

    def mean(self, eta: ArrayLike) -> MeanPrecision:
        return self.separate.mean(self.with_shared_globals(eta))

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """Draw means (K, D) and a precision, which is repeated for each member, (K, D, D).

        Drawn covariances vary too little, as those of :meth:`FactorAnalysis.sample`.
        """
        m, kappa, _ = get_m_kappa_nu(eta)
        (precision,) = self.separate.sample(self.with_shared_globals(eta)[:1], rng).precision
        root = np.linalg.cholesky(np.linalg.inv(precision))
        means = m + rng.standard_normal(m.shape) @ root.T / np.sqrt(kappa)[:, None]
        return MeanPrecision(means, np.repeat(precision[None], len(means), axis=0))
