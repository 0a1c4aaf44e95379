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

# Rows whose moments are summed at a time: memory-mapped data are not loaded whole.
_ROWS_AT_ONCE = 16_384
# Share of a column's variance (without any, of the mean variance) that a default prior adds to it,
# so that constant or collinear columns leave it positive definite; and least variance of rows in
# any direction, see `least_variance`.
_RIDGE = 1e-6
# Most rows with missing values, evenly spaced, on which EM finds a full covariance.
_ROWS_OF_EM = 10_000
# Most steps of EM.
_STEPS_OF_EM = 100
# Change of mean and covariance, where the covariance is the identity, that ends EM.
_TOL_OF_EM = 1e-3
# Share of a variance that EM adds to it, far less than `_RIDGE`.
_RIDGE_OF_EM = 1e-9
# Rows at least, and about the number of values, by which rounding is judged.
_ROWS_JUDGED = 1_000
_VALUES_JUDGED = 1_000_000
# Rows that must share a value: fewer make no component.
_SHARING = 10.0
# Default scale of the noise around factors, relative to the variance of the columns.
_SHARE_OF_NOISE = 0.01

# One of `COMPONENTS`, or `ZeroMeanFullGaussian`.
_Gaussian: TypeAlias = Any

# Rows per column up to which "auto" tries neither "full" nor "tied".
ROWS_PER_COLUMN = 2.0
# Rows per column up to which the scale of a prior is diagonal: the rows do not determine the rest.
ROWS_PER_COLUMN_OF_SCALE = 10.0

COMPONENTS: dict[str, Any] = {
    "full": components.FullGaussian,
    "tied": TiedGaussian,
    "low_rank": LowRankGaussian,
    "diag": components.DiagonalGaussian,
    "spherical": components.SphericalGaussian,
}
# Covariance types whose covariances are matrices.
MATRICES = ("full", "tied", "low_rank")


class GaussianPrior(NamedTuple):
    """Parameters of the prior as in estimators; None are determined from the data."""

    mean: Any = None
    mean_precision: Any = None
    degrees_of_freedom: Any = None
    covariance: Any = None


DEFAULTS = GaussianPrior()


def gaussian_component(
    X: Array, weights: Array, covariance_type: str, zero_mean: bool,
    given: GaussianPrior = DEFAULTS, error: float | None = 0.0, max_rank: int | None = None,
) -> tuple[_Gaussian, dict[str, Any]]:  # fmt: skip
    """The component and the prior's parameters as used, None replaced by defaults of the data.

    Rows count as if measured with an ``error`` of this variance in each column, to which that of
    rounding is added (see :func:`rounding_variance`), or as exact (None): it is added to their
    squares and to the covariance from which the default prior is found. ValueError where a given
    parameter has the wrong shape or is out of range.
    """
    if zero_mean and covariance_type != "full":
        raise ValueError(
            "Components of mean zero have full covariances: with mean_type='zero' choose "
            f"covariance_type='full'. Got covariance_type={covariance_type!r}."
        )
    D = X.shape[1]
    center, moment = weighted_moments(X, weights, covariance_type, zero_mean)
    mean = _vector("mean_prior", given.mean, D, center)
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
    own: Any = errors.mean() if covariance_type == "spherical" else errors
    own = np.diag(own) if covariance_type in MATRICES else own
    # degrees of freedom times the error: the prior's own covariance is no less than the error
    share = _SHARE_OF_NOISE if low_rank else 1.0
    default = share * determined(moment, weights.sum()) + nu * own
    scale = _scale(given.covariance, covariance_type, D, default)
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
    """The component of a kind whose prior is fully known."""
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
    """Natural parameters of a component's prior, the mean relative to its centre."""
    origin, kind = np.zeros(component.n_features), type(component)
    for base in (components.FullGaussian, components.DiagonalGaussian):
        kind = base if issubclass(kind, base) else kind
    eta: Array = _component(kind, origin, prior, component.dtype).prior
    return eta


def weighted_moments(
    X: Any, weights: Array, covariance_type: str, zero_mean: bool
) -> tuple[Array, Any]:
    """Mean (D,), and covariance (second moment around 0) as the type needs it, in float64.

    NaN are left out. Two passes over the rows. With NaN, the mean and the full covariance are
    maximum-likelihood estimates, see :func:`_most_likely`.
    """
    center = np.zeros(X.shape[1])
    if not zero_mean:
        # around the first row, which takes a far origin out of the sums
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
    """Weighted sums of a power of the values less a centre, and weights of the values, (D,)."""
    total, number = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        part, w = _less(dense(X[rows]), center), weights[rows]
        there = ~np.isnan(part)
        total += w @ np.where(there, part, 0.0) ** power
        number += w @ there
    return total, number


def _products(center: Array, X: Any, weights: Array) -> tuple[Array, Any]:
    """Weighted sum of the products of columns less their centres, (D, D), and of weights."""
    moment = np.zeros((X.shape[1], X.shape[1]))
    for rows in pieces(X.shape[0], _ROWS_AT_ONCE):
        part = _less(dense(X[rows]), center)
        moment += (part * weights[rows, None]).T @ part
    return moment, weights.sum()


def _most_likely(X: Any, weights: Array, zero_mean: bool) -> tuple[Array, Array]:
    """Maximum-likelihood mean and covariance of one Gaussian for rows with NaN.

    By the EM algorithm, on at most 10,000 rows, started from the mean and variance of each column's
    values in all rows. A column without any value keeps the mean of all columns' variances.
    """
    center, variances = weighted_moments(X, weights, "diag", zero_mean)
    unit = np.sqrt(_variances(variances)) if variances.any() else np.ones(variances.size)
    _, number = sums_of_rows(X, weights, partial(_power_sums, center, 2))
    constant = np.flatnonzero((variances == 0.0) & (number > 0.0))
    n_rows = X.shape[0]
    rows = np.linspace(0, n_rows - 1, min(n_rows, _ROWS_OF_EM)).astype(np.intp)
    X, weights = some_rows(X, weights, rows)
    X = _less(dense(X), center) / unit
    there = ~np.isnan(X)
    X, weights = X[there.any(axis=1)], weights[there.any(axis=1)]
    D, known, total = X.shape[1], np.nan_to_num(X), max(weights.sum(), 1e-300)
    seen_sum, seen_square = weights @ known, (known * weights[:, None]).T @ known
    mean, covariance = np.zeros(D), np.eye(D)
    for _ in range(_STEPS_OF_EM):
        scale = covariance + _RIDGE_OF_EM * np.eye(D)
        completion = GaussianCompletion.of_scale(0.0, mean[None], scale[None])
        holes = completion.holes(X, np.ones(1))
        sums = np.zeros((1, 1 + D + D * (D + 1) // 2))
        if holes is not None:
            holes.add_statistics(weights[:, None], sums)
        before = mean, covariance
        mean = np.zeros(D) if zero_mean else (seen_sum + sums[0, 1 : 1 + D]) / total
        covariance = (seen_square + triangle.unpack(sums[0, 1 + D :])) / total
        covariance = covariance - np.outer(mean, mean)
        whitener = np.linalg.inv(np.linalg.cholesky(scale))
        step = whitener @ (covariance - before[1]) @ whitener.T
        if max(np.abs(whitener @ (mean - before[0])).max(), np.abs(step).max()) < _TOL_OF_EM:
            break
    covariance[constant] = covariance[:, constant] = 0.0
    return center + unit * mean, covariance * unit * unit[:, None]


def rounding_variance(X: Any, weights: Array) -> Array:
    """Variance of the values that rounding has made equal, (D,): 0 where it has not.

    A density has no upper limit: at one value of a rounded column, such as an age or a score, it
    can grow until there is a component for each value. A rounded value therefore stands for the
    interval half-way to the next values on either side. With w the width of this interval, the
    square of a value is larger by w^2 / 12 on average (Sheppard's correction), and the bound is
    one of the probability of intervals. For w the median of rows is taken, of columns most of
    whose rows share their value with enough others for a component.
    """
    step = -(-X.shape[0] // max(_ROWS_JUDGED, _VALUES_JUDGED // X.shape[1]))
    X, weights = some_rows(X, weights, np.arange(0, X.shape[0], step))
    variances = np.zeros(X.shape[1])
    for j, column in enumerate(np.asarray(dense(X), np.float64).T):
        there = ~np.isnan(column) & (weights > 0.0)
        values, places = np.unique(column[there], return_inverse=True)
        number = np.bincount(places, weights[there])
        # (of the rows that are left out, as many more have the value as others here have it)
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
    """Addition to ``x x'`` (or ``x^2``) of each row for errors (D,); None if there is nothing.

    Added to the moment, too, as :func:`least_variance` has it; of few rows this is no matter.
    """
    own = np.diag(errors) if moment.ndim == 2 else errors
    added = least_variance(moment + own) if weight > errors.size else None
    if not errors.any():
        return added
    of_errors = triangle.pack(own) if moment.ndim == 2 else own
    return of_errors if added is None else added + of_errors


def least_variance(moment: Array) -> Array | None:
    """Addition to ``x x'`` (or ``x^2``) of each row where columns are constant or dependent.

    In a direction in which no row varies, a component's evidence does not depend on the positions
    of rows, and yet grows faster than in proportion to their number: the more rows a component has,
    the faster the posterior of the variance approaches 0. One component for all rows would then be
    preferred to the true ones. Each row therefore counts as if it varied slightly: the variance of
    each direction is raised to at least a millionth of that of the columns. None if all variances
    suffice, the usual case. Of the covariance (D, D) of the data its upper triangle row by row, of
    the variances (D,) of columns theirs.
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
    """Variance of each column; the mean of all where it is 0."""
    variances = np.diagonal(moment) if moment.ndim == 2 else moment
    return np.where(variances > 0.0, variances, variances.mean())


def _ridge(moment: Any) -> Array:
    """Least variance of each column: a millionth of its own; 1 where no column varies."""
    own = _variances(np.asarray(moment))
    return np.where(own > 0.0, _RIDGE * own, 1.0)


def default_scale(moment: Any) -> Any:
    """Inverse scale of a default prior: the covariance of the data, made positive definite."""
    ridge = _ridge(moment)
    return moment + (np.diag(ridge) if np.ndim(moment) == 2 else ridge)


def determined(matrix: Any, n_rows: float) -> Any:
    """The matrix, or its diagonal where rows are too few to determine more.

    In directions in which few rows happen to vary little, a prior whose scale follows them expects
    little variance. The bound, which counts nothing for the choice of the scale, is then higher
    than the density of new rows justifies: it prefers matrices to independent columns, and several
    components to one.
    """
    few = np.ndim(matrix) == 2 and n_rows <= ROWS_PER_COLUMN_OF_SCALE * len(matrix)
    return np.diag(np.diagonal(matrix)) if few else matrix


def _less(X: Any, center: Array) -> Array:
    """Row by row in memory, so that rounding does not depend on the layout of X."""
    return np.subtract(X, center, order="C")


def _vector(name: str, value: ArrayLike | None, size: int, default: Array) -> Array:
    if value is None:
        return default
    value = np.array(value, dtype=np.float64)
    if value.shape != (size,) or not np.all(np.isfinite(value)):
        raise ValueError(
            f"The {name!r} parameter must be a vector of n_features = {size} finite numbers. Got "
            f"an array of shape {value.shape} instead."
        )
    return value


def _scale(covariance: ArrayLike | None, covariance_type: str, D: int, moment: Array) -> Any:
    """The prior's inverse scale in the shape of the covariance type."""
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
        # (where columns differ much in scale, rounding makes eigenvalues negative)
        legal = legal and np.linalg.eigvalsh(value / np.outer(scales, scales))[0] > 0.0
    else:
        legal = np.all(np.isfinite(value)) and np.all(value > 0.0)
    if not legal:
        raise ValueError(
            "The 'covariance_prior' parameter must be positive definite: symmetric with positive "
            "eigenvalues, or positive numbers. Leave it None for the covariance of the data."
        )
    return value if covariance_type != "spherical" else float(value)
