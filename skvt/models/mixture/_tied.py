"""Gaussians whose covariance is one for all components.

    Lambda ~ Wishart(nu_0, W_0),      mu_k | Lambda ~ N(m_0, (kappa_0 Lambda)^-1)

so that q(Lambda) is a Wishart of all rows, and their joint evidence is, for statistics S_k,

    log p(X | z) = sum_k [D / 2 log(kappa_0 / kappa_k) - N_k D / 2 log(2 pi)]
                   + A_W(nu, W) - A_W(nu_0, W_0)

with A_W the log-normaliser of a Wishart, W^-1 = W_0^-1 plus the scatter of all components about
their own means. It is not a sum over components: the gain of a merge includes the change of A_W by
the scatter of both about one mean.
"""

from dataclasses import dataclass

import numpy as np

from skvt.expfam import NormalWishart, TiedNormalWishart, Wishart
from skvt.models.mixture.components import FullGaussian
from skvt.typing import Array, IndexArray

# Numbers that the scatter matrices of pairs hold at a time.
_ENTRIES_AT_ONCE = 2**21


@dataclass(frozen=True)
class TiedGaussian(FullGaussian):
    """N(mu_k, Lambda^-1) with one Lambda, normal-Wishart prior; features [1, x, x x'].

    Parameters are those of :class:`FullGaussian`.
    """

    covariance_type = "tied"

    @property
    def family(self) -> TiedNormalWishart:  # type: ignore[override]
        """K means and one precision."""
        return TiedNormalWishart(self.prior)

    @property
    def alone(self) -> FullGaussian:
        """With a precision of its own."""
        return FullGaussian(self.prior, self.center, self.dtype, self.added)

    def apart(self, lam: Array) -> Array:
        """The marginal of each component, a normal-Wishart."""
        return self.family.apart(lam)

    def uncentred(self, lam: Array) -> tuple[TiedNormalWishart, Array]:
        """The family and ``lam`` in the coordinates of the data."""
        prior = NormalWishart.standard(self.prior)
        family = TiedNormalWishart(
            NormalWishart.from_standard(**(prior | {"mean": prior["mean"] + self.center}))
        )
        q = self.family.standard(lam)
        return family, family.from_standard(**(q | {"mean": q["mean"] + self.center}))

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """See :class:`Component`; exact for one merge among all these components."""
        lam = self.natural_parameters(sums)
        shared = Wishart.standard(self.family.shared(lam))
        own, prior = NormalWishart.standard(lam), NormalWishart.standard(self.prior)
        nu, scale = shared["degrees_of_freedom"], shared["scale_inverse"]
        kappa, kappa_prior = own["mean_precision"], prior["mean_precision"]
        gain = 0.5 * self.n_features * np.log(kappa[a] * kappa[b] / kappa_prior)
        before = np.linalg.slogdet(scale)[1]
        step = max(1, _ENTRIES_AT_ONCE // scale.size)
        for start in range(0, a.size, step):
            pairs = slice(start, start + step)
            first, second = a[pairs], b[pairs]
            both = NormalWishart.standard(self.natural_parameters(sums[first] + sums[second]))
            scatter = both["scale_inverse"] + prior["scale_inverse"]
            scatter -= own["scale_inverse"][first] + own["scale_inverse"][second]
            after = np.linalg.slogdet(scale + scatter)[1]
            gain[pairs] -= 0.5 * nu * (after - before)
            gain[pairs] -= 0.5 * self.n_features * np.log(both["mean_precision"])
        return gain

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Mean (K, D) and inverse of the expected precision (D, D)."""
        means, covariances = super().moments(lam)
        return means, covariances[0]
