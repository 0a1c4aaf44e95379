"""Gaussians whose covariance is of low rank but for the noise of each column: factor analysers.

See :mod:`skvt.expfam._factor_analysis`. Rows add to the posterior what they add to that of full
covariances, the factors of a row being summed out of the bound: statistics are sums over rows, the
evidence of merged components is known from theirs, and missing values are those of any Gaussian.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvt.compiled import digamma_array
from skvt.expfam import FactorAnalysis, Factors, NormalGamma, NormalWishart, triangle
from skvt.models.mixture.components import (
    LOG_2PI,
    DiagonalGaussian,
    FullGaussian,
    RowFits,
    log_normal_gammas,
)
from skvt.typing import Array, IndexArray

# Nats by which a merge must be bad at least for its gain not to be computed.
_CLEARLY = 10.0


@dataclass(frozen=True)
class LowRankGaussian(FullGaussian):
    """N(mu_k, W_k W_k' + diag(psi_k)^-1), parameters as of :class:`FullGaussian`."""

    # Most columns of W_k.
    max_rank: int = 1
    # See :class:`~skvt.expfam.FactorAnalysis`; None but while priors are tried.
    begun: Factors | None = None

    covariance_type = "low_rank"

    @cached_property
    def family(self) -> FactorAnalysis:  # type: ignore[override]
        return FactorAnalysis(self.prior, self.max_rank, self.begun)

    def trial(self, sums: Array) -> "LowRankGaussian":
        """Of which other priors are tried, given these sums: solved from the best q of this one."""
        return replace(self, begun=self.family.factors(self.natural_parameters(sums)))

    def uncentred(self, lam: Array) -> tuple[FactorAnalysis, Array]:
        prior, eta = (
            NormalWishart.from_standard(**(q | {"mean": q["mean"] + self.center}))
            for q in (NormalWishart.standard(self.prior), NormalWishart.standard(lam))
        )
        return FactorAnalysis(prior, self.max_rank), eta

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[FullGaussian, Array]:
        """Means and covariances drawn, as those of full Gaussians."""
        full = FullGaussian(self.prior, self.center, self.dtype, self.added)
        return full, NormalWishart.certain(self.family.sample(lam, rng))

    def row_fits(self, X: Any) -> RowFits:
        """One row has no factors: its columns are independent."""
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
        """Columns of W_k that the data support, (K,)."""
        return self.family.factors(lam).ranks

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """See :class:`Component`; of pairs that no merge can be good for, a bound of the gain.

        The evidence of both as one is less than their likelihood under the best of all Gaussians.
        What the weights gain is no more than log 2 for each row.
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
        """Averages over the components of ``sum_d E[log psi_d]``, and of E[psi], (D,)."""
        q = self.family.standard(lam)
        log_psi = digamma_array(q["shape"])[:, None] - np.log(q["rate"])
        return float(log_psi.sum(axis=1).mean()), (q["shape"][:, None] / q["rate"]).mean(axis=0)

    def moments(self, lam: Array) -> tuple[Array, Array]:
        mean, precision = self.family.mean(lam)
        return mean + self.center, np.linalg.inv(precision)

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        """With the mean and covariance of the predictive and, without factors, its kurtosis.

        The predictive is a Gaussian about W h with the precision of each column's noise
        integrated out: no closed form. Of D columns that are independent t with 2 a degrees of
        freedom, the squared distance from the mean has the variance that it has under one t with
        ``2 a + (D - 1) (2 a - 4) / 3``.
        """
        q = self.family.standard(lam)
        D, shape, variance = self.n_features, q["shape"], q["loadings_variance"]
        rank = (np.abs(q["loadings"]).sum(axis=1) > 0.0).sum(axis=1)
        freedom = 2.0 * shape + (D - 1.0) * np.maximum(2.0 * shape - 4.0, 0.0) / 3.0
        # covariance over shape matrix; where there is no covariance, that of the noise alone
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
        """Normal-gamma of each column, the signal-to-noise ratio taken as known."""
        q = self.family.standard(lam)
        signal = (q["loadings"] ** 2).sum(axis=2) * (q["shape"][:, None] / q["rate"])
        rate = q["rate"] * (1.0 + signal)
        return q["mean"] + self.center, q["mean_precision"][:, None], q["shape"][:, None], rate

    def column_evidence(self, sums: Array) -> Array:
        """Of each column in the model of this column alone, without factors."""
        after, before = (
            log_normal_gammas(
                q["mean_precision"][:, None],
                0.5 * q["degrees_of_freedom"][:, None],
                0.5 * np.diagonal(q["scale_inverse"], axis1=1, axis2=2),
            )
            for q in map(NormalWishart.standard, (self.natural_parameters(sums), self.prior[None]))
        )
        return after - before
