"""Pooling of estimates from M draws in each of R fits [Rubin87].

Each draw gives estimates of Q terms for K components, which are topics or clusters. Terms are, for
example, the effects of covariates. The components of all fits are matched to the components of the
first fit. The standard error of a pooled estimate includes the variance between fits.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.utils import check_scalar

from skvt._results._consensus import match_topics
from skvt._sklearn_private import check_sample_weight, num_samples
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import check_probability, require_order_of

# Degrees of freedom for which the variance by all rows counts beside the robust variance. In drawn
# regressions on skewed shares, 4 and 8 are about equally good. With 4, intervals of small groups
# whose variance differs from that of other rows are nearer to the right width.
_POOLED_DEGREES_OF_FREEDOM = 4.0


def check_settings(caller, X, n_draws, level, sample_weight, **values_by_name):
    """Check the options that ``covariate_effects`` and ``outcome_by_cluster`` share.

    Return the weights of the rows, (n,). ``caller`` is the name of the calling function in errors,
    and ``values_by_name`` are further arguments with a value for each row. Raise TypeError for rows
    of Dask and for an ``n_draws`` that is not an integer. Raise ValueError if ``n_draws`` is less
    than 2, if ``level`` is not between 0 and 1, if weights are negative or all 0, or if an argument
    has the index of X in another order.
    """
    require_rows_in_memory(X, caller)
    require_order_of(X, sample_weight=sample_weight, **values_by_name)
    check_scalar(n_draws, "n_draws", Integral, min_val=2)
    check_probability("level", level)
    rows = np.empty((num_samples(X), 1))
    weights = check_sample_weight(sample_weight, rows, dtype=np.float64)
    if weights.min() < 0.0 or not weights.any():
        raise ValueError(
            "sample_weight must be in the range [0, inf), with at least one positive weight. The "
            f"smallest weight is {weights.min():g}."
        )
    return weights


def compute_kurtosis(errors, weights):
    """Return the excess kurtosis of errors (n,) of mean 0, weighted by ``weights``; at least 0."""
    squares = errors**2
    fourth_moment = weights @ squares**2
    if fourth_moment == 0.0:
        return 0.0
    return max(weights.sum() * fourth_moment / (weights @ squares) ** 2 - 3.0, 0.0)


def moderate_variances(robust, pooled, degrees_of_freedom, kurtosis):
    """Combine robust variances of estimates with variances by the errors of all rows.

    ``robust`` are variances that are robust to unequal variances of the errors. They have
    ``degrees_of_freedom`` if errors are normal, and fewer if errors have an excess ``kurtosis``: a
    quadratic form ``u' M u`` of errors with variance 1 and kurtosis k has the variance ``2 tr(M M)
    + k sum_i M_ii^2``, which is at most ``(2 + k) tr(M M)``. ``pooled`` are the variances if all
    errors have one variance.

    A robust variance says hardly anything if an estimate rests on few rows and errors are skewed:
    by chance all these rows may have nearly equal values, such as shares near 0, and then it is
    near 0. The result is the larger one of the robust variance and the mean of both variances,
    weighted by their degrees of freedom. The pooled variance counts for
    _POOLED_DEGREES_OF_FREEDOM. Return the result, and the result divided by the root of its degrees
    of freedom: the sum of those of both if the pooled variance is larger, and otherwise at most
    those of the robust variance for normal errors.
    """
    degrees_of_normal_errors = degrees_of_freedom
    degrees_of_freedom = degrees_of_freedom / (1.0 + 0.5 * kurtosis)  # [SeberLee03 sec. 1.5]
    total = _POOLED_DEGREES_OF_FREEDOM + degrees_of_freedom
    share = _POOLED_DEGREES_OF_FREEDOM / total
    variances = robust + share * np.maximum(pooled - robust, 0.0)  # [Smyth04 sec. 3]
    # The degrees of freedom of a larger robust variance are not raised above those that it has.
    total = np.where(pooled > robust, total, np.minimum(total, degrees_of_normal_errors))
    return variances, variances / np.sqrt(total)


@dataclass(frozen=True)
class Pooled:
    """Pooled estimates of Q terms for each of K components, see :func:`pool`."""

    # Mean of the estimates over draws and fits, (Q, K).
    estimate: Any
    # Standard error of the estimate, (Q, K).
    standard_error: Any
    # Degrees of freedom of the standard error, (Q, K).
    degrees_of_freedom: Any
    # Share of the variance that is between fits, (Q, K); NaN for a component that only one fit has.
    between_fits: Any
    # Number of fits in which the estimate has the sign of the pooled estimate, (Q, K).
    same_sign: Any
    # Number of fits that have the component, (K,).
    n_fits: Any
    # Mean overlap of the component with the matched components of the other fits, (K,). The overlap
    # is the probability mass that two distributions have in common. NaN for a component that only
    # one fit has.
    agreement: Any

    def columns(self, level, names):
        """Return the columns of a table with a row for each component and term.

        The columns are a dict by name. Rows are sorted by component, and then by term. ``names``
        are the names of the Q terms, and ``level`` is the probability of the intervals.
        """
        n_terms, n_components = self.estimate.shape
        half_width = student.ppf(0.5 + 0.5 * level, self.degrees_of_freedom) * self.standard_error
        return {
            "component": np.repeat(np.arange(n_components), n_terms),
            "term": list(names) * n_components,
            "effect": self.estimate.T.ravel(),
            "low": (self.estimate - half_width).T.ravel(),
            "high": (self.estimate + half_width).T.ravel(),
            "standard_error": self.standard_error.T.ravel(),
            "between_fits": self.between_fits.T.ravel(),
            "same_sign": self.same_sign.T.ravel(),
            "n_fits": np.repeat(self.n_fits, n_terms),
            "agreement": np.repeat(self.agreement, n_terms),
        }


def pool(results, shares):
    """Pool the estimates of R fits; return a :class:`Pooled`.

    Each entry of ``results`` belongs to a fit. It is an array (3, M, Q, K) for M draws, Q terms and
    K components, with the estimates, their squared standard errors, and the squared standard errors
    divided by the roots of their degrees of freedom. ``shares`` has the ``Shares`` of each fit.
    Their profiles are used to match the components of each fit to the components of the first fit.
    A component of the first fit is pooled over the fits that have a matched component.

    The total variance is ``U + (1 + 1/M) B + (1 + 1/R) F`` [Rubin87 eq. 3.1.5]. U is the mean of
    the squared standard errors; B is the variance between draws, and F is the variance between
    fits. The degrees of freedom of the total variance are computed by Satterthwaite's formula. The
    squared standard errors of all draws and fits come from the same rows. They count as fully
    dependent, so that the standard deviation of their mean is the mean of theirs.
    """
    n_draws, n_terms, n_components = results[0].shape[1:]
    # Align the estimates of each fit with the components of the first fit. Entries are 0 for
    # components that have no matched component in a fit.
    aligned = np.zeros((len(results), 3, n_draws, n_terms, n_components))
    # (R, K) each: overlap with the matched component in each fit, and 1 if there is such a match.
    agreement, is_matched = np.zeros((2, len(results), n_components))
    for fit_index, (result, fit_shares) in enumerate(zip(results, shares, strict=True)):
        overlaps, components, partners = match_topics(shares[0].profiles, fit_shares.profiles)
        # Match each component of the first fit with itself, because the matching by overlap may
        # exchange two components that are equal.
        if fit_index == 0:
            partners = components = np.arange(n_components)
        aligned[fit_index][..., components] = result[..., partners]
        agreement[fit_index, components] = overlaps
        is_matched[fit_index, components] = 1.0
    # Compute the three parts of the variance: ``within_variance`` is U, ``draw_variance`` is (1 +
    # 1/M) B, and ``fit_variance`` is (1 + 1/R) F.
    n_fits = is_matched.sum(axis=0)
    # (R, M, Q, K).
    effects = aligned[:, 0]
    # Degrees of freedom of the variance between fits.
    fit_degrees = np.maximum(n_fits - 1.0, 1.0)
    fit_means = effects.mean(axis=1)
    estimate = fit_means.sum(axis=0) / n_fits
    # The second one is U divided by the root of its degrees of freedom.
    within_variance, within_by_root = aligned[:, 1:].mean(axis=2).sum(axis=0) / n_fits
    draw_variance = (1.0 + 1.0 / n_draws) * effects.var(axis=1, ddof=1).sum(axis=0) / n_fits
    deviations = is_matched[:, None] * (fit_means - estimate) ** 2
    fit_variance = (1.0 + 1.0 / n_fits) * deviations.sum(axis=0) / fit_degrees
    variance = within_variance + draw_variance + fit_variance  # [Rubin87 eq. 3.1.5]
    inverse_degrees = (
        within_by_root**2
        + draw_variance**2 / (n_fits * (n_draws - 1))
        + fit_variance**2 / fit_degrees
    )
    same_sign = is_matched[:, None] * (np.sign(fit_means) == np.sign(estimate))
    with np.errstate(invalid="ignore", divide="ignore"):
        return Pooled(
            estimate=estimate,
            standard_error=np.sqrt(variance),
            # An estimate without variance has an interval of width 0.
            degrees_of_freedom=np.where(variance == 0.0, np.inf, variance**2 / inverse_degrees),
            between_fits=np.where(n_fits > 1.0, fit_variance / variance, np.nan),
            same_sign=same_sign.sum(axis=0).astype(int),
            n_fits=n_fits.astype(int),
            # Leave out the agreement of the first fit with itself.
            agreement=agreement[1:].sum(axis=0) / np.where(n_fits > 1.0, fit_degrees, np.nan),
        )
