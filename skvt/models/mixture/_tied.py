"""Gaussians that share one covariance.

    mu_k | Sigma ~ N(m_0, Sigma / kappa_0)

The prior of Sigma is the prior of "full" or of "low_rank". The distribution q(Sigma) depends on all
rows, and the evidence of all rows is not a sum over components, see doc/guide/covariance_types.md.
A merge of two components increases the scatter of rows about the means of their components. The
gain of a merge includes the change of the evidence of Sigma that this scatter causes.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skvt.expfam import (
    FactorAnalysis,
    NormalWishart,
    TiedFactorAnalysis,
    TiedNormalWishart,
    Wishart,
)
from skvt.files import in_files
from skvt.models.mixture._low_rank import MIN_CLEAR_LOSS, LowRankGaussian
from skvt.models.mixture.components import FullGaussian
from skvt.rows import pieces
from skvt.typing import Array, IndexArray

# Maximum number of entries of scatter matrices that are in memory at a time. Each pair of
# components has one matrix.
_ENTRIES_AT_ONCE = 2**21


class _TiedMixin(FullGaussian):
    """What Gaussians with one covariance have in common.

    The arguments ``lam`` (K, E) of methods are natural parameters, one normal-Wishart for each
    component, and ``sums`` (K, P) are sums of features. :class:`skvt.contracts.Component` documents
    the methods without docstrings.
    """

    family: Any

    def with_shared_globals(self, lam: Array) -> Array:
        shared: Array = self.family.with_shared_globals(lam)
        return shared

    def _compute_scatter_gains(self, lam: Array, scatter: Array, least_gains: Array) -> Array:
        """Return how the evidence of Sigma changes if scatter is added, (P,) in nats.

        Each of the matrices ``scatter`` (P, D, D) is added to the scatter of all rows, but not
        together. Changes that are clearly less than ``least_gains`` (P,) may be estimates.
        """
        raise NotImplementedError

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of merging each pair of components (a, b) in nats.

        A gain includes the change of the evidence of the shared covariance. It is exact if the
        merge is the only one, and if it is not a clear loss or there is only one pair.
        """
        lam = self.natural_parameters(sums)
        separate, prior = NormalWishart.to_standard(lam), NormalWishart.to_standard(self.prior)
        kappa, kappa_prior = separate["mean_precision"], prior["mean_precision"]
        gain = 0.5 * self.n_features * np.log(kappa[a] * kappa[b] / kappa_prior)
        for chunk in pieces(a.size, max(1, _ENTRIES_AT_ONCE // prior["scale_inverse"].size)):
            first, second = a[chunk], b[chunk]
            merged = NormalWishart.to_standard(self.natural_parameters(sums[first] + sums[second]))
            # Compute the scatter, which the merge adds to the scatter of all rows.
            scatter = merged["scale_inverse"] + prior["scale_inverse"]
            scatter -= separate["scale_inverse"][first] + separate["scale_inverse"][second]
            gain[chunk] -= 0.5 * self.n_features * np.log(merged["mean_precision"])
            # The first feature counts the rows. The weights gain at most log 2 for each row.
            weight_gain = np.log(2.0) * (sums[first, 0] + sums[second, 0])
            gain[chunk] += self._compute_scatter_gains(lam, scatter, -gain[chunk] - weight_gain)
        return gain

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return means (K, D) and the covariance of all components (D, D)."""
        # The method of the base class repeats the shared covariance for each component.
        means, covariances = super().moments(lam)
        return means, covariances[0]


@in_files("models.TiedGaussian")
@dataclass(frozen=True)
class TiedGaussian(_TiedMixin):
    """N(mu_k, Lambda^-1) with one Lambda, and with the fields of :class:`FullGaussian`."""

    covariance_type = "tied"

    @cached_property
    def family(self) -> TiedNormalWishart:  # type: ignore[override]
        return TiedNormalWishart(self.prior)

    @property
    def without_shared_globals(self) -> FullGaussian:
        return FullGaussian(self.prior, self.center, self.dtype, self.added)

    def in_data_coordinates(self, lam: Array) -> tuple[TiedNormalWishart, Array]:
        """Return the family and ``lam`` for columns that are not centred."""
        family = TiedNormalWishart(self.add_center(NormalWishart, self.prior))
        q = self.family.to_standard(lam)
        return family, family.from_standard(**(q | {"mean": q["mean"] + self.center}))

    def _compute_scatter_gains(self, lam: Array, scatter: Array, least_gains: Array) -> Array:
        shared = Wishart.to_standard(self.family.precision_marginal(lam))
        nu, scale = shared["degrees_of_freedom"], shared["scale_inverse"]
        log_dets = np.linalg.slogdet(scale + scatter)[1] - np.linalg.slogdet(scale)[1]
        return np.asarray(-0.5 * nu * log_dets)


@in_files("models.TiedLowRankGaussian")
@dataclass(frozen=True)
class TiedLowRankGaussian(_TiedMixin, LowRankGaussian):
    """N(mu_k, W W' + diag(psi)^-1) with one W and one psi.

    The fields are those of :class:`LowRankGaussian`.
    """

    covariance_type = "tied_low_rank"

    @cached_property
    def family(self) -> TiedFactorAnalysis:  # type: ignore[override]
        return TiedFactorAnalysis(self.prior, self.max_rank, self.initial_factors)

    @property
    def separate_family(self) -> FactorAnalysis:
        return self.family.separate

    @property
    def without_shared_globals(self) -> LowRankGaussian:
        return LowRankGaussian(self.prior, self.center, self.dtype, self.added, self.max_rank)

    def in_data_coordinates(self, lam: Array) -> tuple[TiedFactorAnalysis, Array]:
        prior, eta = (self.add_center(NormalWishart, eta) for eta in (self.prior, lam))
        return TiedFactorAnalysis(prior, self.max_rank), eta

    def _compute_scatter_gains(self, lam: Array, scatter: Array, least_gains: Array) -> Array:
        """Return changes of the evidence of Sigma, some of which are estimates.

        A Gaussian of any covariance S, fitted to N rows, loses ``N / 2 log(1 + tr(S^-1 A) / N)`` if
        the scatter A of rank 1 is added. A factor analyser loses about as much. Its loss is
        computed unless half of this estimate is more than MIN_CLEAR_LOSS below ``least_gains``.
        """
        shared = self.family.with_shared_globals(lam)[:1]
        q, prior = NormalWishart.to_standard(shared), NormalWishart.to_standard(self.prior)
        (n_rows,) = q["degrees_of_freedom"] - prior["degrees_of_freedom"]
        (precision,) = self.separate_family.mean(shared).precision
        (evidence,) = self.separate_family.factors(shared).bound
        # Without rows there is no scatter, and the gains are 0.
        positive_rows = max(n_rows, np.finfo(float).tiny)
        gains = -0.5 * n_rows * np.log1p(np.tensordot(scatter, precision, 2) / positive_rows)
        may_gain = (0.5 * gains > least_gains - MIN_CLEAR_LOSS) | (gains.size == 1)
        for pair in np.flatnonzero(may_gain):
            scale = q["scale_inverse"] + scatter[pair]
            eta = NormalWishart.from_standard(**(q | {"scale_inverse": scale}))
            gains[pair] = self.separate_family.factors(eta).bound[0] - evidence
        return np.asarray(gains)
