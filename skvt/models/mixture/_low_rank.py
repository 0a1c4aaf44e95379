"""Factor analysers: Gaussians whose covariance is a matrix of low rank plus noise of each column.

A row is W_k h plus a mean and noise, with a vector of factors h for each row.
:mod:`skvt.expfam._factor_analysis` has the model and its posterior. The factors of a row are
integrated out of the bound, so that the statistics are those of Gaussians with full covariances.
The evidence of merged components follows from sums of statistics, and missing values are treated as
in any Gaussian.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvt._compiled import digamma_array
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

# The gain of a merge is costly to compute. It is left out if the merge surely loses more than this
# number of nats.
MIN_CLEAR_LOSS = 10.0


@in_files("models.LowRankGaussian")
@dataclass(frozen=True)
class LowRankGaussian(FullGaussian):
    """N(mu_k, W_k W_k' + diag(psi_k)^-1), with the parameters of :class:`FullGaussian`.

    W_k are the loadings, and psi_k are the precisions of the noise of each column. The arguments
    ``lam`` (K, E) of methods are natural parameters of q of K components, and ``sums`` (K, P) are
    sums of features.
    """

    # Maximum number of columns of W_k.
    max_rank: int = 1
    # Factors from which the iterations of :class:`~skvt.expfam.FactorAnalysis` start; None unless
    # other priors are tried.
    initial_factors: Factors | None = None

    covariance_type = "low_rank"

    @cached_property
    def family(self) -> FactorAnalysis:  # type: ignore[override]
        return FactorAnalysis(self.prior, self.max_rank, self.initial_factors)

    @property
    def separate_family(self) -> FactorAnalysis:
        """The family of the marginals of the parameters of single components."""
        return self.family

    def trial(self, sums: Array) -> "LowRankGaussian":
        """Return a component for trials of other priors, which start from the best q at ``sums``.

        The learner of the prior calls this method.
        """
        family = self.family.trial(self.natural_parameters(sums))
        trial_component = replace(self, initial_factors=family.initial_factors)
        # Set the cached property, because this family knows the best q under the present prior.
        vars(trial_component)["family"] = family
        return trial_component

    def in_data_coordinates(self, lam: Array) -> tuple[FactorAnalysis, Array]:
        """Return the family and natural parameters of columns before they are centred."""
        prior, eta = (self.add_center(NormalWishart, eta) for eta in (self.prior, lam))
        return FactorAnalysis(prior, self.max_rank), eta

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[FullGaussian, Array]:
        """Draw means and covariances; return a full Gaussian and a ``lam`` concentrated at them."""
        full_gaussian = FullGaussian(self.prior, self.center, self.dtype, self.added)
        return full_gaussian, NormalWishart.concentrate_at(self.family.sample(lam, rng))

    def row_fits(self, X: Any) -> RowFits:
        """Return fits with independent columns, because one row determines no factors."""
        q, D = NormalWishart.to_standard(self.prior), self.n_features
        kappa = np.full((D, 1), q["mean_precision"])
        shape = np.full(D, 0.5 * q["degrees_of_freedom"])
        rate = 0.5 * np.diagonal(q["scale_inverse"])
        prior = NormalGamma.from_standard(q["mean"][:, None], kappa, shape, rate)
        added = None if self.added is None else np.diagonal(triangle.unpack(self.added))
        diagonal_gaussian = DiagonalGaussian(prior, self.center, self.dtype, added)
        return diagonal_gaussian.row_fits(self.filled(X))

    def ranks(self, lam: Array) -> IndexArray:
        """Return the number of columns of each W_k that the data support, (K,)."""
        return self.separate_family.factors(lam).ranks

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of merging each pair of components (a, b), in nats.

        If there are several pairs, the result is only an upper bound of the gain for pairs that a
        merge surely makes worse, since the gain itself is costly. The evidence of the merged
        component is less than the likelihood of its rows under the best Gaussian, and the weights
        gain at most log 2 for each row.
        """
        if a.size == 0:
            return np.zeros(0)
        # The features are [1, x, upper triangle of x x'], so that the first sum counts the rows.
        n_rows, D = sums[a, 0] + sums[b, 0], self.n_features
        # The upper bound needs a regular covariance of the rows, which few rows do not have.
        has_bound = n_rows > D + 1.0
        merged_sums = sums[a[has_bound]] + sums[b[has_bound]]
        mean = merged_sums[:, 1 : 1 + D] / merged_sums[:, :1]
        moment = triangle.unpack(merged_sums[:, 1 + D :]) / merged_sums[:, :1, None]
        # The log-determinant of a singular covariance is NaN or -inf.
        with np.errstate(divide="ignore", invalid="ignore"):
            _, log_det = np.linalg.slogdet(moment - mean[:, :, None] * mean[:, None])
        evidence, merged_components = np.zeros(len(sums)), np.union1d(a, b)
        evidence[merged_components] = self.log_evidence(sums[merged_components])
        gains = np.full(a.size, np.nan)
        gains[has_bound] = -0.5 * n_rows[has_bound] * (log_det + D * (1.0 + LOG_2PI))
        gains = gains - evidence[a] - evidence[b]
        # The negation includes pairs without an upper bound, whose ``gains`` are NaN.
        may_gain = ~(gains < -n_rows * np.log(2.0) - MIN_CLEAR_LOSS) | (a.size == 1)
        gains[may_gain] = super().merge_gains(sums, a[may_gain], b[may_gain])
        return gains

    def noise(self, lam: Array) -> tuple[float, Array]:
        """Return the averages over components of ``sum_d E[log psi_d]`` and of E[psi_d], (D,)."""
        q = self.family.to_standard(lam)
        log_psi = digamma_array(q["shape"])[:, None] - np.log(q["rate"])
        return float(log_psi.sum(axis=1).mean()), (q["shape"][:, None] / q["rate"]).mean(axis=0)

    def moments(self, lam: Array) -> tuple[Array, Array]:
        mean, precision = self.separate_family.mean(lam)
        return mean + self.center, np.linalg.inv(precision)

    def _compute_student_t(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return a Student t with the mean and covariance of the posterior predictive.

        The results are the means (K, D), the scales (K, D, D), which are the shape matrices times
        the degrees of freedom, and the degrees of freedom (K,).

        The predictive has no closed form. It is a Gaussian around W h, for factors h, with the
        precision of each column's noise integrated out. Without factors, it is a product of D
        independent t with 2 a degrees of freedom, where a is the shape of the precisions. The
        squared distance from the mean then has the same variance as under the returned Student t,
        which has ``2 a + (D - 1) (2 a - 4) / 3`` degrees of freedom.
        """
        q = self.separate_family.to_standard(lam)
        D, shape, variance = self.n_features, q["shape"], q["loadings_variance"]
        # The number of columns of loadings that are not 0, (K,).
        ranks = (np.abs(q["loadings"]).sum(axis=1) > 0.0).sum(axis=1)
        freedom = 2.0 * shape + (D - 1.0) * np.maximum(2.0 * shape - 4.0, 0.0) / 3.0
        # ``ratio`` is the ratio of the Student t's covariance to its shape matrix. It is set to 1
        # if there is no covariance, that is, if E[1 / psi] is infinite.
        has_covariance = shape > 1.0
        ratio = freedom / np.where(has_covariance, freedom - 2.0, 1.0)
        ratio = np.where(has_covariance, ratio, 1.0)
        mean_noise = 1.0 / np.where(has_covariance, shape - 1.0, 1.0)
        noise = np.where(has_covariance, mean_noise / ratio, 1.0 / shape)
        # The uncertainty of the loadings adds to the noise.
        noise = noise * (1.0 + ranks * variance)
        loadings = q["loadings"] / np.sqrt(ratio)[:, None, None]
        scale = loadings @ np.swapaxes(loadings, 1, 2)
        columns = np.arange(D)
        scale[:, columns, columns] += noise[:, None] * q["rate"]
        scale *= (freedom * (1.0 + 1.0 / q["mean_precision"]))[:, None, None]
        return q["mean"], scale, freedom

    def _normal_gammas_of_columns(self, lam: Array) -> tuple[Array, Array, Array, Array]:
        """Return m, kappa, shape and rate of each column's normal-gamma, broadcast to (K, D).

        The ratio of each column's variance from factors to its noise is taken as known.
        """
        q = self.separate_family.to_standard(lam)
        signal_ratio = (q["loadings"] ** 2).sum(axis=2) * (q["shape"][:, None] / q["rate"])
        rate = q["rate"] * (1.0 + signal_ratio)
        return q["mean"] + self.center, q["mean_precision"][:, None], q["shape"][:, None], rate

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return the log normalizers of models of single columns, which have no factors, (K, D)."""
        q = NormalWishart.to_standard(lam)
        kappa, shape = q["mean_precision"][:, None], 0.5 * q["degrees_of_freedom"][:, None]
        rate = 0.5 * np.diagonal(q["scale_inverse"], axis1=1, axis2=2)
        return normal_gamma_log_normalizers(kappa, shape, rate)
