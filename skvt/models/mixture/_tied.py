"""Gaussians that share one covariance.

    Lambda ~ Wishart(nu_0, W_0),      mu_k | Lambda ~ N(m_0, (kappa_0 Lambda)^-1)

so that q(Lambda) is a Wishart distribution that depends on all rows, and the evidence of all rows
is not a sum over components, see doc/guide/covariance_types.md. A merge of two components increases
the scatter of rows about the means of their components. The gain of a merge includes the change of
the Wishart's log-normaliser that this scatter causes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skvt.expfam import NormalWishart, TiedNormalWishart, Wishart
from skvt.files import in_files
from skvt.models.mixture.components import FullGaussian
from skvt.rows import pieces
from skvt.typing import Array, IndexArray

# Maximum number of entries of scatter matrices that are in memory at a time. Each pair of
# components has one matrix.
_ENTRIES_AT_ONCE = 2**21


@in_files("models.TiedGaussian")
@dataclass(frozen=True)
class TiedGaussian(FullGaussian):
    """N(mu_k, Lambda^-1) with one Lambda, and with the fields of :class:`FullGaussian`.

    The arguments ``lam`` (K, E) of methods are natural parameters, one normal-Wishart for each
    component, and ``sums`` (K, P) are sums of features. :class:`skvt.contracts.Component` documents
    the methods without docstrings.
    """

    covariance_type = "tied"

    @cached_property
    def family(self) -> TiedNormalWishart:  # type: ignore[override]
        return TiedNormalWishart(self.prior)

    @property
    def without_shared_globals(self) -> FullGaussian:
        return FullGaussian(self.prior, self.center, self.dtype, self.added)

    def with_shared_globals(self, lam: Array) -> Array:
        return self.family.with_shared_globals(lam)

    def in_data_coordinates(self, lam: Array) -> tuple[TiedNormalWishart, Array]:
        """Return the family and ``lam`` for columns that are not centred."""
        family = TiedNormalWishart(self.add_center(NormalWishart, self.prior))
        q = self.family.to_standard(lam)
        return family, family.from_standard(**(q | {"mean": q["mean"] + self.center}))

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of merging each pair of components (a, b) in nats.

        A gain includes the change of the evidence of the shared covariance. It is exact if the
        merge is the only one.
        """
        lam = self.natural_parameters(sums)
        shared_wishart = Wishart.to_standard(self.family.precision_marginal(lam))
        separate, prior = NormalWishart.to_standard(lam), NormalWishart.to_standard(self.prior)
        nu, scale = shared_wishart["degrees_of_freedom"], shared_wishart["scale_inverse"]
        kappa, kappa_prior = separate["mean_precision"], prior["mean_precision"]
        gain = 0.5 * self.n_features * np.log(kappa[a] * kappa[b] / kappa_prior)
        log_det_before = np.linalg.slogdet(scale)[1]
        for chunk in pieces(a.size, max(1, _ENTRIES_AT_ONCE // scale.size)):
            first, second = a[chunk], b[chunk]
            merged = NormalWishart.to_standard(self.natural_parameters(sums[first] + sums[second]))
            # Compute the scatter, which the merge adds to the inverse scale of the Wishart.
            scatter = merged["scale_inverse"] + prior["scale_inverse"]
            scatter -= separate["scale_inverse"][first] + separate["scale_inverse"][second]
            log_det_after = np.linalg.slogdet(scale + scatter)[1]
            gain[chunk] -= 0.5 * nu * (log_det_after - log_det_before)
            gain[chunk] -= 0.5 * self.n_features * np.log(merged["mean_precision"])
        return gain

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Return means (K, D) and the inverse of the expected precision (D, D)."""
        # The method of the base class repeats the shared covariance for each component.
        means, covariances = super().moments(lam)
        return means, covariances[0]
