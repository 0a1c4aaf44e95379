"""The prior of Gaussian components, given or derived from the data."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam import NormalGamma, NormalWishart, Wishart, triangle
from skvt.models.mixture import components
from skvt.models.mixture._low_rank import LowRankGaussian
from skvt.models.mixture._missing import GaussianCompletion
from skvt.models.mixture._tied import TiedGaussian
from skvt.rows import dense, pieces, some_rows, sums_of_rows
from skvt.typing import Array

# Rows whose moments are summed at a time, so that memory-mapped data are never loaded at once.
_ROWS_AT_ONCE = 16_384
# Share of a column's variance that a default prior adds to the covariance, so that it is positive
# definite even if columns are constant or collinear. A constant column counts with the mean
# variance. `least_variance` uses the same share as the least variance of rows in any direction.
_RIDGE = 1e-6
# Maximum number of evenly spaced rows from which EM estimates a covariance if values are missing.
_ROWS_OF_EM = 10_000
# Maximum number of EM steps.
_STEPS_OF_EM = 100
# Change of mean and covariance, in whitened coordinates, below which EM ends.
_TOL_OF_EM = 1e-3
# Share of a variance that EM adds to it, far less than `_RIDGE`.
_RIDGE_OF_EM = 1e-9
# Rounding is estimated from at least this many rows, or from about this many values.
_ROWS_JUDGED = 1_000
_VALUES_JUDGED = 1_000_000
# Least number of rows that share a value; fewer rows form no component.
_SHARING = 10.0
# Default scale of the noise around factors, relative to the variance of the columns.
_SHARE_OF_NOISE = 0.01

# One of `COMPONENTS`, or `ZeroMeanFullGaussian`.
_Gaussian: TypeAlias = Any

# Rows per column up to which "auto" tries neither "full" nor "tied".
ROWS_PER_COLUMN = 2.0
# Rows per column up to which a prior's scale is diagonal, since rows do not determine the rest.
ROWS_PER_COLUMN_OF_SCALE = 10.0

COMPONENTS: dict[str, Any] = {
    "full": components.FullGaussian,
    "tied": TiedGaussian,
    "low_rank": LowRankGaussian,
    "diag": components.DiagonalGaussian,
    "spherical": components.SphericalGaussian,
}
GAUSSIANS = *COMPONENTS.values(), components.ZeroMeanFullGaussian
# Covariance types whose covariances are matrices.
MATRICES = ("full", "tied", "low_rank")


class GaussianPrior(NamedTuple):
    """Parameters of the prior as in estimators; None is derived from the data."""

    mean: Any = None
    mean_precision: Any = None
    degrees_of_freedom: Any = None
    covariance: Any = None


DEFAULTS = GaussianPrior()


def gaussian_component(
    X: Array, weights: Array, covariance_type: str, zero_mean: bool,
    given: GaussianPrior = DEFAULTS, error: float | None = 0.0, max_rank: int | None = None,
) -> tuple[_Gaussian, dict[str, Any]]:  # fmt: skip
    """Return the component and its prior's parameters, None replaced by defaults of the data.

    Values count as if they were measured with errors of the variance ``error``, to which the
    variance of rounding is added, see :func:`rounding_variance`; they count as exact if ``error``
    is None. The variance of errors is added to the squares of values and to the covariance from
    which the default prior is derived. Raises ValueError if a parameter in ``given`` has the wrong
    shape or is out of range.
    """
    if zero_mean and covariance_type != "full":
        raise ValueError(
            "Components of mean zero have full covariances: with mean_type='zero' choose "
            f"covariance_type='full'. Got covariance_type={covariance_type!r}."
        )
    D = X.shape[1]
    center, moment = weighted_moments(X, weights, covariance_type, zero_mean)
    mean = prior_vector("mean_prior", given.mean, D, center)
    kappa = 1.0 if given.mean_precision is None else float(given.mean_precision)
    low_rank = covariance_type == "low_rank"
    nu = 1.0 if low_rank else float(D)
    nu = nu if given.degrees_of_freedom is None else float(given.degrees_of_freedom)
    if covariance_type in ("full", "tied") and nu <= D - 1.0:
        raise ValueError(
            "The parameter 'degrees_of_freedom_prior' should be greater than "
            f"{D - 1}, but got {nu:.3f}. (The range is (n_features - 1, inf) for "
            f"covariance_type={covariance_type!r}; None is n_features.)"
        )
    errors = np.zeros(D) if error is None else error + rounding_variance(X, weights)
    error_scale: Any = errors.mean() if covariance_type == "spherical" else errors
    error_scale = np.diag(error_scale) if covariance_type in MATRICES else error_scale
    # nu times the errors' variance, so that the prior's covariance is no less than this variance
    share = _SHARE_OF_NOISE if low_rank else 1.0
    default = share * determined(moment, weights.sum()) + nu * error_scale
    scale = prior_scale(given.covariance, covariance_type, D, default)
    priors = {
        "mean_prior": None if zero_mean else mean,
        "mean_precision_prior": None if zero_mean else kappa,
        "degrees_of_freedom_prior": nu,
        "covariance_prior": scale,
    }
    kind = components.ZeroMeanFullGaussian if zero_mean else COMPONENTS[covariance_type]
    component = _component(kind, center, GaussianPrior(mean, kappa, nu, scale), X.dtype)
    if low_rank:
        component = replace(component, max_rank=max_rank or max(1, D // 2))
    of_rows = np.full(D, moment) if covariance_type == "spherical" else moment
    added = added_to_squares(of_rows, errors, weights.sum())
    component = component if added is None else replace(component, added=added)
    return component, priors


def _component(kind: Any, center: Array, prior: Any, dtype: np.dtype[Any]) -> _Gaussian:
    """Return a component of this kind; no parameter of its prior is None."""
    D, (mean, kappa, nu, scale) = center.size, prior
    if kind is components.ZeroMeanFullGaussian:
        return kind(Wishart.from_standard(nu, scale), D, dtype)
    if kind in (components.FullGaussian, TiedGaussian, LowRankGaussian):
        scale = scale if np.ndim(scale) == 2 else np.diag(scale)
        return kind(NormalWishart.from_standard(mean - center, kappa, nu, scale), center, dtype)
    mean, kappa, shape = mean - center, np.full(D, kappa), 0.5 * nu
    if kind is components.DiagonalGaussian:
        mean, kappa, shape = mean[:, None], kappa[:, None], np.full(D, shape)
    return kind(NormalGamma.from_standard(mean, kappa, shape, 0.5 * scale), center, dtype)


def natural_prior(component: _Gaussian, prior: GaussianPrior) -> Array:
    """Return a component prior's natural parameters; its mean is relative to the centre."""
    origin, kind = np.zeros(component.n_features), type(component)
    for base in (components.FullGaussian, components.DiagonalGaussian):
        kind = base if issubclass(kind, base) else kind
    eta: Array = _component(kind, origin, prior, component.dtype).prior
    return eta


def weighted_moments(
    X: Any, weights: Array, covariance_type: str, zero_mean: bool
) -> tuple[Array, Any]:
    """Return the mean (D,) and the covariance in the shape of the type, in float64.

    With ``zero_mean`` the mean is 0 and the covariance is the second moment around 0. NaN are left
    out. The function passes over the rows twice. For matrices and rows with NaN, both are
    maximum-likelihood estimates, see :func:`_most_likely`.
    """
    center = np.zeros(X.shape[1])
    if not zero_mean:
        # subtract the first row, so that means far from 0 cost no digits of the sums
        first, _ = some_rows(X, weights, np.zeros(1, np.intp))
        origin = np.nan_to_num(np.asarray(dense(first)[0], dtype=np.float64))
        total, number = sums_of_rows(X, weights, partial(_power_sums, origin, 1))
        center = origin + total / np.maximum(number, 1e-300)
    if covariance_type in MATRICES:
        moment, weight = sums_of_rows(X, weights, partial(_products, center))
        if np.isnan(moment).any():
            return _most_likely(X, weights, zero_mean)
        return center, moment / weight
    total, number = sums_of_rows(X, weights, partial(_power_sums, center, 2))
    moment = total / np.maximum(number, 1e-300)
    return center, moment if covariance_type == "diag" else float(moment.mean())


def _power_sums(center: Array, power: int, X: Any, weights: Array) -> tuple[Array, Array]:
    """Return weighted sums (D,) of a power of the centred values, and the sums (D,) of weights."""
    total, number = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        part, w = _less(dense(X[rows]), center), weights[rows]
        observed = ~np.isnan(part)
        total += w @ np.where(observed, part, 0.0) ** power
        number += w @ observed
    return total, number


def _products(center: Array, X: Any, weights: Array) -> tuple[Array, Any]:
    """Return weighted sums (D, D) of products of centred columns, and the sum of weights."""
    moment = np.zeros((X.shape[1], X.shape[1]))
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        part = _less(dense(X[rows]), center)
        moment += (part * weights[rows, None]).T @ part
    return moment, weights.sum()


def _most_likely(X: Any, weights: Array, zero_mean: bool) -> tuple[Array, Array]:
    """Return the maximum-likelihood mean and covariance of one Gaussian for rows with NaN.

    The EM algorithm uses at most 10,000 rows. It starts from the mean and variance of each column's
    values in all rows. A column without values keeps the mean of all columns' variances.
    """
    center, variances = weighted_moments(X, weights, "diag", zero_mean)
    unit = np.sqrt(_variances(variances)) if variances.any() else np.ones(variances.size)
    _, number = sums_of_rows(X, weights, partial(_power_sums, center, 2))
    constant = np.flatnonzero((variances == 0.0) & (number > 0.0))
    n_rows = X.shape[0]
    rows = np.linspace(0, n_rows - 1, min(n_rows, _ROWS_OF_EM)).astype(np.intp)
    X, weights = some_rows(X, weights, rows)
    X = _less(dense(X), center) / unit
    has_values = ~np.isnan(X).all(axis=1)
    X, weights = X[has_values], weights[has_values]
    D, known, total = X.shape[1], np.nan_to_num(X), max(weights.sum(), 1e-300)
    known_sum, known_square = weights @ known, (known * weights[:, None]).T @ known
    mean, covariance = np.zeros(D), np.eye(D)
    for _ in range(_STEPS_OF_EM):
        scale = covariance + _RIDGE_OF_EM * np.eye(D)
        completion = GaussianCompletion.from_scale(0.0, mean[None], scale[None])
        holes = completion.holes(X, np.ones(1))
        sums = np.zeros((1, 1 + D + D * (D + 1) // 2))
        if holes is not None:
            holes.add_statistics(weights[:, None], sums)
        before = mean, covariance
        mean = np.zeros(D) if zero_mean else (known_sum + sums[0, 1 : 1 + D]) / total
        covariance = (known_square + triangle.unpack(sums[0, 1 + D :])) / total
        covariance = covariance - np.outer(mean, mean)
        whitener = np.linalg.inv(np.linalg.cholesky(scale))
        step = whitener @ (covariance - before[1]) @ whitener.T
        if max(np.abs(whitener @ (mean - before[0])).max(), np.abs(step).max()) < _TOL_OF_EM:
            break
    covariance[constant] = covariance[:, constant] = 0.0
    return center + unit * mean, covariance * unit * unit[:, None]


def rounding_variance(X: Any, weights: Array) -> Array:
    """Return the variance (D,) of rounding errors, 0 in columns that are not rounded.

    Densities have no upper limit. In a rounded column, such as an age or a score, the density at
    one value can grow until each value has its own component. A rounded value therefore stands for
    the interval that reaches half-way to the next value on either side. If the interval has the
    width w, the square of a value is larger by w^2 / 12 on average (Sheppard's correction), and the
    bound is a bound of the probability of intervals. A column counts as rounded if most of its rows
    share their value with enough rows for a component; w is then the median over its rows.
    """
    step = -(-X.shape[0] // max(_ROWS_JUDGED, _VALUES_JUDGED // X.shape[1]))
    X, weights = some_rows(X, weights, np.arange(0, X.shape[0], step))
    variances = np.zeros(X.shape[1])
    for j, column in enumerate(np.asarray(dense(X), np.float64).T):
        counted = ~np.isnan(column) & (weights > 0.0)
        values, inverse = np.unique(column[counted], return_inverse=True)
        number = np.bincount(inverse, weights[counted])
        # each further row of the sample that has the value stands for `step` rows
        sharing = 1.0 + step * (number - 1.0) >= _SHARING
        if values.size < 2 or 2.0 * number[sharing].sum() <= number.sum():
            continue
        gaps = np.diff(values)
        widths = 0.5 * (np.append(gaps[0], gaps) + np.append(gaps, gaps[-1]))
        order = np.argsort(widths, kind="stable")
        middle = np.searchsorted(np.cumsum(number[order]), 0.5 * number.sum())
        variances[j] = widths[order[middle]] ** 2 / 12.0
    return variances


def added_to_squares(moment: Array, errors: Array, weight: float) -> Array | None:
    """Return what is added to ``x x'`` (or ``x^2``) of each row; None if nothing is.

    The variances ``errors`` (D,) are added, and what :func:`least_variance` adds to the moment plus
    these. The latter is left out if there are no more rows than columns.
    """
    error_moment = np.diag(errors) if moment.ndim == 2 else errors
    added = least_variance(moment + error_moment) if weight > errors.size else None
    if not errors.any():
        return added
    of_errors = triangle.pack(error_moment) if moment.ndim == 2 else error_moment
    return of_errors if added is None else added + of_errors


def least_variance(moment: Array) -> Array | None:
    """Return what is added to ``x x'`` (or ``x^2``) of each row for constant or dependent columns.

    In a direction in which no row varies, a component's evidence does not depend on the positions
    of rows, but it grows faster than in proportion to their number: the more rows a component has,
    the faster the posterior of the variance approaches 0. One component for all rows would then be
    preferred to the true components. Each row therefore counts as if it varied slightly: the
    variance in each direction is raised to at least a millionth of the columns' variances. Returns
    None if all variances suffice, the usual case. For a covariance (D, D) of the data the result is
    an upper triangle, row by row; for variances (D,) of columns it is a vector (D,).
    """
    if not np.isfinite(moment).all():
        return None
    least = _ridge(moment)
    if moment.ndim == 1:
        added = np.maximum(least - moment, 0.0)
        return added if added.any() else None
    unit = np.sqrt(least / _RIDGE)
    values, directions = np.linalg.eigh(moment / unit[:, None] / unit)
    lacking = np.maximum(_RIDGE - values, 0.0)
    if not lacking.any():
        return None
    directions = unit[:, None] * directions[:, lacking > 0.0]
    return triangle.pack((directions * lacking[lacking > 0.0]) @ directions.T)


def _variances(moment: Array) -> Array:
    """Return the variance of each column; the mean of all variances where it is 0."""
    variances = np.diagonal(moment) if moment.ndim == 2 else moment
    return np.where(variances > 0.0, variances, variances.mean())


def _ridge(moment: Any) -> Array:
    """Return a millionth of each column's variance; 1 if no column varies."""
    variances = _variances(np.asarray(moment))
    return np.where(variances > 0.0, _RIDGE * variances, 1.0)


def default_scale(moment: Any) -> Any:
    """Return a default prior's inverse scale: the covariance of the data with a small ridge."""
    ridge = _ridge(moment)
    return moment + (np.diag(ridge) if np.ndim(moment) == 2 else ridge)


def determined(matrix: Any, n_rows: float) -> Any:
    """Return the matrix, or its diagonal matrix if rows are too few to determine more.

    Few rows vary little in some directions by chance, and a prior whose scale follows them expects
    little variance there. Since the bound has no penalty for the choice of the scale, it is then
    higher than the density of new rows justifies: it prefers matrices to independent columns, and
    several components to one.
    """
    few = np.ndim(matrix) == 2 and n_rows <= ROWS_PER_COLUMN_OF_SCALE * len(matrix)
    return np.diag(np.diagonal(matrix)) if few else matrix


def _less(X: Any, center: Array) -> Array:
    """Return ``X - center`` in C order, so that rounding does not depend on the layout of X."""
    return np.subtract(X, center, order="C")


def prior_vector(name: str, value: ArrayLike | None, size: int, default: Array) -> Array:
    """Return the value of parameter ``name`` as a finite vector, or ``default`` if it is None."""
    if value is None:
        return default
    value = np.array(value, dtype=np.float64)
    if value.shape != (size,) or not np.all(np.isfinite(value)):
        raise ValueError(
            f"The {name!r} parameter must be a vector of n_features = {size} finite numbers. Got "
            f"an array of shape {value.shape} instead."
        )
    return value


def prior_scale(covariance: ArrayLike | None, covariance_type: str, D: int, moment: Array) -> Any:
    """Return the prior's inverse scale in the shape of the covariance type."""
    if covariance is None:
        scale = default_scale(moment)
        return np.diagonal(scale) if covariance_type == "low_rank" else scale
    by_type = {"full": (D, D), "tied": (D, D), "diag": (D,), "low_rank": (D,), "spherical": ()}
    shape = by_type[covariance_type]
    value = np.array(covariance, dtype=np.float64)
    if value.shape != shape:
        raise ValueError(
            f"The 'covariance_prior' parameter must be an array of shape {shape} for "
            f"covariance_type={covariance_type!r}. Got the shape {value.shape} instead."
        )
    if len(shape) == 2:
        scales = np.sqrt(np.maximum(np.diagonal(value), 0.0))
        legal = np.all(np.isfinite(value)) and np.allclose(value, value.T) and scales.min() > 0.0
        # scale the columns: if their scales differ much, rounding makes eigenvalues negative
        legal = legal and np.linalg.eigvalsh(value / np.outer(scales, scales))[0] > 0.0
    else:
        legal = np.all(np.isfinite(value)) and np.all(value > 0.0)
    if not legal:
        raise ValueError(
            "The 'covariance_prior' parameter must be positive definite: symmetric with positive "
            "eigenvalues, or positive numbers. Leave it None for the covariance of the data."
        )
    return value if covariance_type != "spherical" else float(value)
