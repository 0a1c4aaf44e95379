"""The prior of Gaussian components, from parameters or derived from the data.

The prior has a mean m that counts as kappa rows, nu degrees of freedom and an inverse scale W^-1.
The function :func:`make_gaussian_component` makes a component with a prior. The other functions
compute the moments of the rows from which a default prior is derived, the variance of rounding, and
small variances, without which constant, dependent or rounded columns would make covariances
singular. In shapes, n is the number of rows and D the number of columns.

The covariance, its inverse scale and a *moment*, a covariance of the rows, have a shape that
depends on the covariance type: (D,) for "diag", a number for "spherical", and (D, D) for the other
types. The inverse scale of types of low rank is (D,).
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam import NormalGamma, NormalWishart, Wishart, triangle
from skvt.models.mixture import components
from skvt.models.mixture._low_rank import LowRankGaussian
from skvt.models.mixture._missing import GaussianCompletion
from skvt.models.mixture._tied import TiedGaussian, TiedLowRankGaussian
from skvt.rows import dense, pieces, sums_of_rows, take_rows
from skvt.typing import Array

# Number of rows whose moments are summed at a time, so that memory-mapped data are never loaded as
# a whole.
_ROWS_AT_ONCE = 16_384
# Share of a column's variance that a default prior adds to the covariance, so that the covariance
# is positive definite even if columns are constant or collinear. For a constant column, it is a
# share of the mean variance of all columns. In `_addition_for_least_variance`, the same share is
# the lower limit of the variance of rows in any direction.
_RIDGE_SHARE = 1e-6
# Maximum number of evenly spaced rows from which EM estimates a covariance if values are missing.
_MAX_EM_ROWS = 10_000
# Maximum number of EM steps.
_MAX_EM_STEPS = 100
# EM ends when a step changes each entry of mean and covariance by less than this number, in
# coordinates in which the covariance is the identity.
_EM_TOL = 1e-3
# Share of each variance that EM adds to the variance. It is far less than `_RIDGE_SHARE`.
_EM_RIDGE_SHARE = 1e-9
# Approximate number of values from which rounding is estimated.
_N_VALUES_FOR_ROUNDING = 1_000_000
# Minimum number of rows from which rounding is estimated.
_MIN_ROWS_FOR_ROUNDING = 1_000
# A value counts as frequent in `rounding_variance` if at least this many rows have it, so many that
# it could become a separate component.
_MIN_ROWS_PER_VALUE = 10.0
# Default inverse scale of the noise in types of low rank, relative to the variances of the columns.
_NOISE_SHARE = 0.01

# An instance of one of the classes `GAUSSIAN_CLASSES`.
_Gaussian: TypeAlias = Any

# With at most this many rows per column, "auto" tries neither "full" nor "tied".
MIN_ROWS_PER_COLUMN_OF_MATRIX = 2.0
# With at most this many rows per column, a prior's scale is diagonal, because so few rows do not
# determine the other entries.
MIN_ROWS_PER_COLUMN_OF_SCALE = 10.0

# Classes of Gaussian components by covariance type.
GAUSSIANS_BY_TYPE: dict[str, Any] = {
    "full": components.FullGaussian,
    "tied": TiedGaussian,
    "low_rank": LowRankGaussian,
    "tied_low_rank": TiedLowRankGaussian,
    "diag": components.DiagonalGaussian,
    "spherical": components.SphericalGaussian,
}
GAUSSIAN_CLASSES = *GAUSSIANS_BY_TYPE.values(), components.ZeroMeanFullGaussian
# Covariance types of factor analysers.
LOW_RANK_TYPES = ("low_rank", "tied_low_rank")
# Covariance types whose covariances are matrices.
MATRIX_TYPES = ("full", "tied", *LOW_RANK_TYPES)


class GaussianPrior(NamedTuple):
    """Parameters of a Gaussian's prior as in estimators; None if derived from the data."""

    # (D,): m.
    mean: Any = None
    # kappa.
    mean_precision: Any = None
    # nu.
    degrees_of_freedom: Any = None
    # W^-1, in the shape of the covariance type.
    covariance: Any = None

    def by_name(self) -> dict[str, Any]:
        """Return a dict from the names of parameters of estimators to the values."""
        return {f"{field}_prior": value for field, value in self._asdict().items()}


DEFAULT_PRIOR = GaussianPrior()


def make_gaussian_component(
    X: Array, weights: Array, covariance_type: str, zero_mean: bool,
    prior: GaussianPrior = DEFAULT_PRIOR, error_variance: float | None = 0.0,
    max_rank: int | None = None,
) -> tuple[_Gaussian, dict[str, Any]]:  # fmt: skip
    """Return the component with the prior that ``prior`` describes, and a dict of its parameters.

    Parameters that are None in ``prior`` are derived from the rows X (n, D) with weights (n,). The
    dict has the parameters by name; they are None if components with mean zero do not have them.

    If ``error_variance`` is a number, values count as measured with errors of this variance plus
    the variance of rounding, see :func:`rounding_variance`. If ``error_variance`` is None, values
    count as exact. The variance of errors is added to the squares of values and to the covariance
    from which the default prior is derived. ``max_rank`` is the maximum number of factors of
    types of low rank; None stands for half the number of columns. Raises ValueError if a parameter
    in ``prior`` has the wrong shape or is out of range.
    """
    if zero_mean and covariance_type != "full":
        raise ValueError(
            "mean_type='zero' needs covariance_type='full'. Got "
            f"covariance_type={covariance_type!r}."
        )
    D = X.shape[1]
    center, moment = weighted_moments(X, weights, covariance_type, zero_mean)
    # (D,): variances of errors. ``error_moment`` has them in the shape of the covariance type.
    errors = (
        np.zeros(D) if error_variance is None else error_variance + rounding_variance(X, weights)
    )
    error_moment: Any = errors.mean() if covariance_type == "spherical" else errors
    error_moment = np.diag(error_moment) if covariance_type in MATRIX_TYPES else error_moment
    default_moment = diagonal_if_few_rows(moment, weights.sum())
    if covariance_type in LOW_RANK_TYPES:
        default_moment = _NOISE_SHARE * default_moment
    prior = complete_prior(prior, covariance_type, center, default_moment, error_moment)
    component: _Gaussian
    if zero_mean:
        eta = natural_prior("full", prior._replace(mean=np.empty(0)))
        component = components.ZeroMeanFullGaussian(eta, D, X.dtype)
    else:
        eta = natural_prior(covariance_type, prior._replace(mean=prior.mean - center))
        component = GAUSSIANS_BY_TYPE[covariance_type](eta, center, X.dtype)
    if covariance_type in LOW_RANK_TYPES:
        component = replace(component, max_rank=max_rank or max(1, D // 2))
    moment = np.full(D, moment) if covariance_type == "spherical" else moment
    added = addition_to_squares(moment, errors, weights.sum())
    component = component if added is None else replace(component, added=added)
    # Components with mean zero have no prior of the mean.
    reported_prior = prior._replace(mean=None, mean_precision=None) if zero_mean else prior
    return component, reported_prior.by_name()


def complete_prior(
    prior: GaussianPrior, covariance_type: str, center: Array, moment: Any, error_moment: Any
) -> GaussianPrior:
    """Return the prior with default values for parameters that are None.

    The default mean is ``center`` (D,). The default inverse scale is the ``moment`` plus nu times
    the covariance of errors, ``error_moment``. The covariance under the prior, W^-1 / nu, is thus
    at least the covariance of errors. Raises ValueError if a parameter has the wrong shape or is
    out of range.
    """
    D = center.size
    mean = choose_prior_mean(prior.mean, center)
    kappa = 1.0 if prior.mean_precision is None else float(prior.mean_precision)
    # In types of low rank, nu and the inverse scale belong to the noise, which is independent by
    # column.
    default_nu = 1.0 if covariance_type in LOW_RANK_TYPES else D
    nu = float(default_nu if prior.degrees_of_freedom is None else prior.degrees_of_freedom)
    if covariance_type in ("full", "tied") and nu <= D - 1.0:
        raise ValueError(
            "The parameter 'degrees_of_freedom_prior' should be greater than "
            f"{D - 1}, but got {nu:.3f}. (The range is (n_features - 1, inf) for "
            f"covariance_type={covariance_type!r}; None is n_features.)"
        )
    default_moment = moment + nu * error_moment
    inverse_scale = choose_prior_scale(prior.covariance, covariance_type, D, default_moment)
    return GaussianPrior(mean, kappa, nu, inverse_scale)


def natural_prior(covariance_type: str, prior: GaussianPrior) -> Array:
    """Return the natural parameters of a prior, none of whose parameters is None.

    The mean (D,) is relative to the center of the component. It is empty if components have mean
    zero.
    """
    mean, kappa, nu, inverse_scale = prior
    D = mean.size
    if D == 0:
        return Wishart.from_standard(nu, inverse_scale)
    if covariance_type in MATRIX_TYPES:
        inverse_scale = inverse_scale if np.ndim(inverse_scale) == 2 else np.diag(inverse_scale)
        return NormalWishart.from_standard(mean, kappa, nu, inverse_scale)
    # "spherical" has one normal-gamma prior with D means, "diag" has D with one mean each.
    kappa, shape = np.full(D, kappa), 0.5 * nu
    if covariance_type == "diag":
        mean, kappa, shape = mean[:, None], kappa[:, None], np.full(D, shape)
    return NormalGamma.from_standard(mean, kappa, shape, 0.5 * inverse_scale)


def weighted_moments(
    X: Any, weights: Array, covariance_type: str, zero_mean: bool = False
) -> tuple[Array, Any]:
    """Return the mean (D,) and the covariance in the shape of the covariance type, in float64.

    With ``zero_mean`` the mean is 0, and the covariance is the second moment around 0. The function
    passes over the rows twice. NaN are left out. If values are missing and the covariance is a
    matrix, the mean and the matrix are maximum-likelihood estimates, see :func:`_estimate_by_em`.
    """
    center = np.zeros(X.shape[1])
    if not zero_mean:
        # Subtract the first row, so that the sums keep all digits even if means are far from 0.
        first_row, _ = take_rows(X, weights, np.zeros(1, np.intp))
        origin = np.nan_to_num(np.asarray(dense(first_row)[0], dtype=np.float64))
        sums, weight_sums = sums_of_rows(X, weights, partial(_sum_powers, origin, 1))
        center = origin + sums / np.maximum(weight_sums, 1e-300)
    if covariance_type in MATRIX_TYPES:
        moment, weight_sums = sums_of_rows(X, weights, partial(_sum_products, center))
        if np.isnan(moment).any():
            return _estimate_by_em(X, weights, zero_mean)
        return center, moment / weight_sums
    sums, weight_sums = sums_of_rows(X, weights, partial(_sum_powers, center, 2))
    moment = sums / np.maximum(weight_sums, 1e-300)
    return center, moment if covariance_type == "diag" else float(moment.mean())


def _sum_powers(center: Array, power: int, X: Any, weights: Array) -> tuple[Array, Array]:
    """Return weighted sums of a power of X - ``center``, and sums of weights, (D,) each.

    Both sums are over the rows in which the column is observed. X - ``center`` is in C order, so
    that rounding does not depend on the layout of X.
    """
    sums, weight_sums = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        centred = np.subtract(dense(X[rows]), center, order="C")
        is_observed = ~np.isnan(centred)
        sums += weights[rows] @ np.where(is_observed, centred, 0.0) ** power
        weight_sums += weights[rows] @ is_observed
    return sums, weight_sums


def _sum_products(center: Array, X: Any, weights: Array) -> tuple[Array, Any]:
    """Return weighted sums (D, D) of products of columns of X - ``center``, and of the weights.

    A sum is NaN if one of the two columns has a missing value.
    """
    products = np.zeros((X.shape[1], X.shape[1]))
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        centred = np.subtract(dense(X[rows]), center, order="C")
        products += (centred * weights[rows, None]).T @ centred
    return products, weights.sum()


def _estimate_by_em(X: Any, weights: Array, zero_mean: bool) -> tuple[Array, Array]:
    """Return the maximum-likelihood mean (D,) and covariance (D, D) of rows with NaN.

    The EM algorithm for one Gaussian uses at most `_MAX_EM_ROWS` rows. It starts from the mean and
    variance of each column's values in all rows. A column without values keeps the mean variance of
    all columns. A constant column gets the variance 0.
    """
    center, variances = weighted_moments(X, weights, "diag", zero_mean)
    # (D,): the units in which the columns are standardised.
    units = np.sqrt(_positive_variances(variances)) if variances.any() else np.ones(variances.size)
    _, column_weights = sums_of_rows(X, weights, partial(_sum_powers, center, 2))
    constant_columns = np.flatnonzero((variances == 0.0) & (column_weights > 0.0))
    # Standardise the columns of a sample of rows.
    n_rows = X.shape[0]
    rows = np.linspace(0, n_rows - 1, min(n_rows, _MAX_EM_ROWS)).astype(np.intp)
    X, weights = take_rows(X, weights, rows)
    X = np.subtract(dense(X), center, order="C") / units
    has_values = ~np.isnan(X).all(axis=1)
    X, weights = X[has_values], weights[has_values]
    D = X.shape[1]
    total_weight = max(weights.sum(), 1e-300)
    # Sums over rows in which missing values count as 0.
    filled_rows = np.nan_to_num(X)
    observed_sum = weights @ filled_rows
    observed_square = (filled_rows * weights[:, None]).T @ filled_rows
    mean, covariance = np.zeros(D), np.eye(D)
    # In turn, compute the expected sums of missing values, and update mean and covariance.
    for _ in range(_MAX_EM_STEPS):
        regular_covariance = covariance + _EM_RIDGE_SHARE * np.eye(D)
        # What missing values contribute to sums of the features [1, x, upper triangle of x x'], for
        # one component.
        sums = np.zeros((1, 1 + D + D * (D + 1) // 2))
        completion = GaussianCompletion.from_scale(0.0, mean[None], regular_covariance[None])
        holes = completion.holes(X, np.ones(1))
        if holes is not None:
            holes.add_statistics(weights[:, None], sums)
        old_mean, old_covariance = mean, covariance
        mean = np.zeros(D) if zero_mean else (observed_sum + sums[0, 1 : 1 + D]) / total_weight
        covariance = (observed_square + triangle.unpack(sums[0, 1 + D :])) / total_weight
        covariance = covariance - np.outer(mean, mean)
        whitener = np.linalg.inv(np.linalg.cholesky(regular_covariance))
        mean_step = whitener @ (mean - old_mean)
        covariance_step = whitener @ (covariance - old_covariance) @ whitener.T
        if max(np.abs(mean_step).max(), np.abs(covariance_step).max()) < _EM_TOL:
            break
    covariance[constant_columns] = covariance[:, constant_columns] = 0.0
    return center + units * mean, covariance * units * units[:, None]


def rounding_variance(X: Any, weights: Array) -> Array:
    """Return the variance (D,) of rounding errors, 0 in columns that are not rounded.

    In a rounded column, such as an age or a score, many rows have the same value. If a component
    shrank to this value, its density there would grow without limit, so that each value would
    become a component. A rounded value therefore stands for the interval that reaches half-way to
    the next value on either side. The mean square over an interval of the width w is larger than
    the square of its middle by w^2 / 12 (Sheppard's correction). With this correction, the bound is
    a bound of the probability of intervals.

    A column counts as rounded if more than half of its rows have a value that at least
    `_MIN_ROWS_PER_VALUE` rows have. Its width w is the median of the widths of the rows' intervals.
    """
    # Take a sample of evenly spaced rows.
    row_step = -(-X.shape[0] // max(_MIN_ROWS_FOR_ROUNDING, _N_VALUES_FOR_ROUNDING // X.shape[1]))
    X, weights = take_rows(X, weights, np.arange(0, X.shape[0], row_step))
    variances = np.zeros(X.shape[1])
    for j, column in enumerate(np.asarray(dense(X), np.float64).T):
        # Sum the weights of the rows that have each value.
        is_used = ~np.isnan(column) & (weights > 0.0)
        values, value_of_row = np.unique(column[is_used], return_inverse=True)
        counts = np.bincount(value_of_row, weights[is_used])
        # Estimate the number of rows of the data that have a value. The first row of the sample
        # counts as 1, because the value may be rare, and each further row as `row_step` rows.
        is_frequent = 1.0 + row_step * (counts - 1.0) >= _MIN_ROWS_PER_VALUE
        if values.size < 2 or 2.0 * counts[is_frequent].sum() <= counts.sum():
            continue
        # Find the median of the widths of the values' intervals.
        gaps = np.diff(values)
        widths = 0.5 * (np.append(gaps[0], gaps) + np.append(gaps, gaps[-1]))
        order = np.argsort(widths, kind="stable")
        median_position = np.searchsorted(np.cumsum(counts[order]), 0.5 * counts.sum())
        variances[j] = widths[order[median_position]] ** 2 / 12.0
    return variances


def addition_to_squares(moment: Array, errors: Array, weight: float) -> Array | None:
    """Return what is added to ``x x'`` (or ``x^2``) of each row; None if nothing is.

    The variances ``errors`` (D,) of errors are added. If the ``weight`` of all rows is greater than
    the number of columns, the result of :func:`_addition_for_least_variance` for the ``moment`` of
    the data plus ``errors`` is added, too. The sum has the shape of this result.
    """
    is_matrix = moment.ndim == 2
    error_moment = np.diag(errors) if is_matrix else errors
    added = triangle.pack(error_moment) if is_matrix else error_moment
    if weight > errors.size and np.isfinite(moment).all():
        added = added + _addition_for_least_variance(moment + error_moment)
    return added if added.any() else None


def _addition_for_least_variance(moment: Array) -> Array:
    """Return an addition to ``x x'`` (or ``x^2``) of each row for constant or dependent columns.

    The addition raises the variance in each direction to at least a millionth of the columns'
    variances. Without it, one component for all rows could have a higher bound than the true
    components. In a direction in which no row varies, the posterior of a component's variance
    approaches 0 as the number of its rows grows. The evidence of the component then grows faster
    than in proportion to this number, whatever the positions of the rows in other directions.

    ``moment`` is the covariance (D, D) of the data or the variances (D,) of the columns. The result
    is an upper triangle (D (D + 1) / 2,), row by row, or a vector (D,). It is 0 in the usual case,
    in which no variance has to be raised.
    """
    lower_limits = _compute_ridge(moment)
    if moment.ndim == 1:
        # Add what each variance lacks to its lower limit.
        return np.maximum(lower_limits - moment, 0.0)
    # Raise the eigenvalues of the covariance in units of the columns' standard deviations.
    units = np.sqrt(lower_limits / _RIDGE_SHARE)
    eigenvalues, directions = np.linalg.eigh(moment / units[:, None] / units)
    is_lacking = eigenvalues < _RIDGE_SHARE
    directions = units[:, None] * directions[:, is_lacking]
    return triangle.pack((directions * (_RIDGE_SHARE - eigenvalues[is_lacking])) @ directions.T)


def _positive_variances(moment: Array) -> Array:
    """Return the variance of each column, (D,), with the mean variance in place of 0."""
    variances = np.diagonal(moment) if moment.ndim == 2 else moment
    return np.where(variances > 0.0, variances, variances.mean())


def _compute_ridge(moment: Any) -> Array:
    """Return a millionth of each column's variance, (D,); 1 if no column varies."""
    variances = _positive_variances(np.asarray(moment))
    return np.where(variances > 0.0, _RIDGE_SHARE * variances, 1.0)


def diagonal_if_few_rows(matrix: Any, n_rows: float) -> Any:
    """Return the matrix, or only its diagonal if there are too few rows for the other entries.

    Few rows vary little in some directions by chance. If their moment is the scale of a prior, the
    prior expects little variance in these directions, and the bound is higher than the density of
    new rows justifies. It would favour matrices over independent columns, and several components
    over one.
    """
    is_undetermined = np.ndim(matrix) == 2 and n_rows <= MIN_ROWS_PER_COLUMN_OF_SCALE * len(matrix)
    return np.diag(np.diagonal(matrix)) if is_undetermined else matrix


def choose_prior_mean(mean: ArrayLike | None, default: Array) -> Array:
    """Return the prior's mean: ``mean``, or ``default`` (D,) if it is None.

    Raises ValueError if the value has another shape or is not finite.
    """
    if mean is None:
        return default
    mean = np.array(mean, dtype=np.float64)
    if mean.shape != default.shape or not np.all(np.isfinite(mean)):
        raise ValueError(
            f"The 'mean_prior' parameter must be an array of shape (n_features,) = {default.shape} "
            f"of finite numbers. Got an array of shape {mean.shape} instead."
        )
    return mean


def choose_prior_scale(
    covariance: ArrayLike | None, covariance_type: str, D: int, moment: Array
) -> Any:
    """Return the prior's inverse scale in the shape of the covariance type.

    It is ``covariance`` or, if this is None, the ``moment`` plus a millionth of the variances.
    Raises ValueError if ``covariance`` has another shape or is not positive definite.
    """
    if covariance is None:
        ridge = _compute_ridge(moment)
        regular_moment = moment + (np.diag(ridge) if np.ndim(moment) == 2 else ridge)
        return np.diagonal(regular_moment) if covariance_type in LOW_RANK_TYPES else regular_moment
    shapes = {"full": (D, D), "tied": (D, D), "spherical": ()}
    shape = shapes.get(covariance_type, (D,))
    value = np.array(covariance, dtype=np.float64)
    if value.shape != shape:
        expected = f"an array of shape {shape}" if shape else "a number"
        raise ValueError(
            f"With covariance_type={covariance_type!r}, the 'covariance_prior' parameter must be "
            f"{expected}. Got the shape {value.shape} instead."
        )
    if len(shape) == 2:
        scales = np.sqrt(np.maximum(np.diagonal(value), 0.0))
        is_legal = np.all(np.isfinite(value)) and np.allclose(value, value.T) and scales.min() > 0.0
        # Divide by the scales of the columns, because rounding makes eigenvalues negative if the
        # scales differ much.
        is_legal = is_legal and np.linalg.eigvalsh(value / np.outer(scales, scales))[0] > 0.0
    else:
        is_legal = np.all(np.isfinite(value)) and np.all(value > 0.0)
    if not is_legal:
        raise ValueError(
            "The 'covariance_prior' parameter must be positive definite: a symmetric matrix with "
            "positive eigenvalues, or positive numbers for types without a matrix. Set it to None "
            "for the covariance of the data."
        )
    return value if covariance_type != "spherical" else float(value)
