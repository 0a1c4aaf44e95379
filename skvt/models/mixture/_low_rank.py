"""Factor analysers: Gaussians whose covariance is a matrix of low rank plus noise of each column.

See :mod:`skvt.expfam._factor_analysis`. The factors of a row are integrated out of the bound, so
that rows have the statistics of Gaussians with full covariances. These are sums over rows, the
evidence of merged components follows from them, and missing values are treated as in any Gaussian.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvt.compiled import digamma_array
from skvt.expfam import FactorAnalysis, Factors, NormalGamma, NormalWishart, triangle
from skvt.files import in_files
from skvt.models.mixture.components import (
    LOG_2PI,
    DiagonalGaussian,
    FullGaussian,
    RowFits,
    normal_gamma_log_normalizers,
)
from skvt.typing import Array, IndexArray

# The gain of a merge is not computed if the merge surely loses this many nats.
_CLEARLY = 10.0


@in_files("models.LowRankGaussian")
@dataclass(frozen=True)
class LowRankGaussian(FullGaussian):
    """N(mu_k, W_k W_k' + diag(psi_k)^-1), parameters as of :class:`FullGaussian`."""

    # Maximum number of columns of W_k.
    max_rank: int = 1
    # See :class:`~skvt.expfam.FactorAnalysis`; None except while other priors are tried.
    begun: Factors | None = None

    covariance_type = "low_rank"

    @cached_property
    def family(self) -> FactorAnalysis:  # type: ignore[override]
        return FactorAnalysis(self.prior, self.max_rank, self.begun)

    def trial(self, sums: Array) -> "LowRankGaussian":
        """Return a component for trials of other priors, solved from the best q at these sums."""
        return replace(self, begun=self.family.factors(self.natural_parameters(sums)))

    def uncentred(self, lam: Array) -> tuple[FactorAnalysis, Array]:
        prior, eta = (
            NormalWishart.from_standard(**(q | {"mean": q["mean"] + self.center}))
            for q in (NormalWishart.standard(self.prior), NormalWishart.standard(lam))
        )
        return FactorAnalysis(prior, self.max_rank), eta

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[FullGaussian, Array]:
        """Draw means and covariances; return them as those of full Gaussians."""
        full = FullGaussian(self.prior, self.center, self.dtype, self.added)
        return full, NormalWishart.certain(self.family.sample(lam, rng))

    def row_fits(self, X: Any) -> RowFits:
        """Return fits with independent columns, since one row has no factors."""
        q, D = NormalWishart.standard(self.prior), self.n_features
        rate = 0.5 * np.diagonal(q["scale_inverse"])
        prior = NormalGamma.from_standard(
            q["mean"][:, None],
            np.full((D, 1), q["mean_precision"]),
            np.full(D, 0.5 * q["degrees_of_freedom"]),
            rate,
        )
        added = None if self.added is None else np.diagonal(triangle.unpack(self.added))
        single = DiagonalGaussian(prior, self.center, self.dtype, added)
        return single.row_fits(self.filled(X))

    def ranks(self, lam: Array) -> IndexArray:
        """Return the number of columns of each W_k that the data support, (K,)."""
        return self.family.factors(lam).ranks

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """See :class:`Component`; for pairs that a merge cannot improve, return an upper bound.

        The evidence of the merged component is less than the likelihood of its rows under the best
        Gaussian. The weights gain no more than log 2 for each row.
        """
        both = sums[a] + sums[b]
        number, D = both[:, 0], self.n_features
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = both[:, 1 : 1 + D] / number[:, None]
            covariance = triangle.unpack(both[:, 1 + D :]) / number[:, None, None]
            log_det = np.linalg.slogdet(covariance - mean[:, :, None] * mean[:, None])[1]
        single = self.log_evidence(sums)
        gain = -0.5 * number * (log_det + D * (1.0 + LOG_2PI)) - single[a] - single[b]
        close = ~(gain < -number * np.log(2.0) - _CLEARLY) | (number <= D + 1.0)
        gain[close] = super().merge_gains(sums, a[close], b[close])
        return gain

    def noise(self, lam: Array) -> tuple[float, Array]:
        """Return averages over components of ``sum_d E[log psi_d]`` and of E[psi], (D,)."""
        q = self.family.standard(lam)
        log_psi = digamma_array(q["shape"])[:, None] - np.log(q["rate"])
        return float(log_psi.sum(axis=1).mean()), (q["shape"][:, None] / q["rate"]).mean(axis=0)

    def moments(self, lam: Array) -> tuple[Array, Array]:
        mean, precision = self.family.mean(lam)
        return mean + self.center, np.linalg.inv(precision)

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return a Student t with the predictive's mean and covariance.

        Without factors it has the predictive's kurtosis, too. The predictive, a Gaussian about W h
        with the precision of each column's noise integrated out, has no closed form. For D columns
        that are independent t with 2 a degrees of freedom, the squared distance from the mean has
        the same variance as under one t with ``2 a + (D - 1) (2 a - 4) / 3`` degrees of freedom.
        """
        q = self.family.standard(lam)
        D, shape, variance = self.n_features, q["shape"], q["loadings_variance"]
        rank = (np.abs(q["loadings"]).sum(axis=1) > 0.0).sum(axis=1)
        freedom = 2.0 * shape + (D - 1.0) * np.maximum(2.0 * shape - 4.0, 0.0) / 3.0
        # ratio of covariance and shape matrix, 1 where the covariance does not exist
        finite = shape > 1.0
        ratio = np.where(finite, freedom / np.where(finite, freedom - 2.0, 1.0), 1.0)
        noise = np.where(finite, 1.0 / np.where(finite, shape - 1.0, 1.0) / ratio, 1.0 / shape)
        noise = noise * (1.0 + rank * variance)
        loadings = q["loadings"] / np.sqrt(ratio)[:, None, None]
        scale = loadings @ np.swapaxes(loadings, 1, 2)
        columns = np.arange(D)
        scale[:, columns, columns] += noise[:, None] * q["rate"]
        scale *= (freedom * (1.0 + 1.0 / q["mean_precision"]))[:, None, None]
        return q["mean"], scale, freedom

    def _of_columns(self, lam: Array) -> tuple[Array, Array, Array, Array]:
        """Return the normal-gamma of each column, with the signal-to-noise ratio taken as known."""
        q = self.family.standard(lam)
        signal = (q["loadings"] ** 2).sum(axis=2) * (q["shape"][:, None] / q["rate"])
        rate = q["rate"] * (1.0 + signal)
        return q["mean"] + self.center, q["mean_precision"][:, None], q["shape"][:, None], rate

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of each column in a model of this column alone, without factors."""
        after, before = (
            normal_gamma_log_normalizers(
                q["mean_precision"][:, None],
                0.5 * q["degrees_of_freedom"][:, None],
                0.5 * np.diagonal(q["scale_inverse"], axis1=1, axis2=2),
            )
            for q in map(NormalWishart.standard, (self.natural_parameters(sums), self.prior[None]))
        )
        return after - before
