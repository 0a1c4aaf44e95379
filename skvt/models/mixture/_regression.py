"""Gaussian columns with a linear regression on given columns in each component.

A row has E explained columns y and G given columns, which explain y and have no distribution. The
class :class:`GivenColumns` converts the given columns to R standardised regressors u. With
w = (1, u), the distribution of y (E,) in component k is

    y ~ N(B_k w, Lambda_k^-1),    B_k | Lambda_k ~ N(M, (V kron Lambda_k)^-1),
    Lambda_k ~ Wishart(nu, W).

The prior is a matrix normal-Wishart with natural parameters eta and log normalizer A, see
:class:`skvt.expfam.MatrixNormalWishart`. With x = (w, y), the n rows of component k add
``S_k = (n, sum x x')`` to eta, so that the log evidence of these rows is
``A(eta + S_k) - A(eta) - n E log(2 pi) / 2``. In the local step, with e = y - M_k w,

    E_q[log p(y | w, phi_k)]
        = (E_q[log|Lambda|] - E log(2 pi) - e' E_q[Lambda] e - E w' V_k^-1 w) / 2

where E_q is an expectation under q, E is the number of explained columns, and phi_k are B_k and
Lambda_k. This is quadratic in (u, y). Features and the posterior q of missing values of y are
therefore the same as for a Gaussian of R + E columns with a full covariance.

The predictive density is a Student t with nu_k - E + 1 degrees of freedom, the location M_k w and
the scale matrix ``W_k^-1 (1 + w' V_k^-1 w) / (nu_k - E + 1)``.

By default the prior is derived from one regression for all rows: M are its coefficients, and W^-1
is the covariance of its residuals. ``V = diag(kappa, kappa C)`` counts as much as kappa rows, where
C is the covariance of u in the rows of the fit [Zellner86].

Arguments ``lam`` (K, ...) of methods are natural parameters of q of K components. The class
:class:`skvt.contracts.Component` documents the methods without docstrings.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Annotated, Any

import numpy as np

from skvt.contracts import Completion, HiddenValues
from skvt.expfam import MatrixNormalWishart, triangle
from skvt.files import in_files
from skvt.models.mixture._gaussian_learner import MIN_SQUARED_DISTANCE, GaussianLearner
from skvt.models.mixture._gaussian_prior import (
    DEFAULT_PRIOR,
    GaussianPrior,
    addition_to_squares,
    choose_prior_mean,
    choose_prior_scale,
    complete_prior,
    diagonal_if_few_rows,
    rounding_variance,
    weighted_moments,
)
from skvt.models.mixture._given_columns import GivenColumns
from skvt.models.mixture._marginals import Marginals, deviation_marginals, mean_marginals
from skvt.models.mixture._missing import GaussianCompletion, has_missing
from skvt.models.mixture._product import Block, Product, ProductLearner
from skvt.models.mixture.components import (
    LOG_2PI,
    ConjugateComponent,
    FullGaussian,
    SphericalGaussian,
    ZeroMeanFullGaussian,
    column_gammas,
    dense_rows,
    full_features,
)
from skvt.rows import map_rows
from skvt.typing import Array


@in_files("models.Regression")
@dataclass(frozen=True)
class Regression(ConjugateComponent):
    """A component of E Gaussian columns with a regression on given columns.

    Rows of the data have the E explained columns y first, then the G given columns. With the joint
    row z = (u, y), the features of a row are [1, z, upper triangle of z z'].
    """

    # (1 + (Q + E) (Q + E + 1) / 2,): natural parameters of the prior for centred y. Q = 1 + R is
    # the number of coefficients of each explained column: the intercept and the slopes.
    prior: Array
    # (E,): the centre that is subtracted from y.
    center: Annotated[Array, "e"]
    # The conversion of given columns to regressors.
    given: GivenColumns
    dtype: np.dtype[Any]
    # (E (E + 1) / 2,): added to ``y y'`` in the features of each row, see `addition_to_squares`.
    # Predictive densities leave it out.
    added: Array | None = None

    covariance_type = "full"
    missing = True

    def validate(self, d: int, k: int) -> bool:
        """Return whether the shapes of the fields fit each other, for loaded files."""
        E = self.n_explained
        size, n_squares = 1 + self.given.n_regressors + E, E * (E + 1) // 2
        return (
            E > 0
            and self.prior.shape == (1 + size * (size + 1) // 2,)
            and (self.added is None or self.added.shape == (n_squares,))
        )

    @property
    def n_features(self) -> int:
        return self.n_explained + self.given.n_columns

    @property
    def n_explained(self) -> int:
        """E, the number of explained columns."""
        return int(self.center.size)

    @cached_property
    def family(self) -> MatrixNormalWishart:
        return MatrixNormalWishart(1 + self.given.center.size)

    @property
    def base(self) -> Array:
        """The coefficients of features that do not depend on the parameters, (P,)."""
        base = np.zeros(self.prior.size - 1)
        base[0] = -0.5 * self.n_explained * LOG_2PI
        return base

    def with_prior(self, M: Array, kappa: Array, nu: float, scale: Array) -> "Regression":
        """Return the component with the prior that has these parameters.

        M (E, Q) are the prior means of the coefficients. ``kappa`` (2,) are the numbers of rows as
        which the priors of intercepts and of slopes count. ``scale`` (E, E) is W^-1.
        """
        # The first coefficient is the intercept, and ``moment`` is C, the covariance of regressors.
        V = np.zeros((M.shape[1], M.shape[1]))
        V[0, 0] = kappa[0]
        V[1:, 1:] = kappa[1] * self.given.moment
        return replace(self, prior=self.family.from_standard(M, V, nu, scale))

    def _split_columns(self, X: Any) -> tuple[Array, Array]:
        """Return the centred explained values (n, E) and the regressors (n, R)."""
        X = dense_rows(X)
        E = self.n_explained
        return X[:, :E] - self.center, self.given.regressors(X[:, E:])

    def _joint_rows(self, X: Any) -> Array:
        """Return the joint rows z = (u, y) with centred y, (n, R + E).

        A row without any value of y is NaN in all columns, so that its features are 0.
        """
        y, u = self._split_columns(X)
        if has_missing(y):
            u[np.isnan(y).all(axis=1)] = np.nan
        return np.concatenate([u, y], axis=1)

    def features(self, X: Any) -> Any:
        return full_features(self._joint_rows(X), self.added, with_linear=True)

    # As for a Gaussian, natural parameters repeat the first sum, the number of rows n: it is n of
    # ``S_k = (n, sum x x')``, and the sum of squares of the constant regressor in x.
    natural_sums = FullGaussian.natural_sums
    feature_coefficients = FullGaussian.feature_coefficients

    def completion(self, table: Array) -> Completion | None:
        """Return a function that finds q of the missing values of y, given the table (K, P)."""
        # Convert the table only once, for the first chunk of rows that has missing values. The
        # center is 0.0, because `_joint_rows` returns centred rows.
        width = self.given.center.size + self.n_explained
        convert_table = cache(partial(GaussianCompletion.from_table, 0.0, table, width))

        def complete(X: Any, inv_temps: Array) -> HiddenValues | None:
            if not has_missing(X[:, : self.n_explained]):
                return None
            return convert_table().holes(self._joint_rows(X), inv_temps)

        return complete

    def filled(self, X: Any) -> Any:
        """Return rows whose missing values are conditional means under the prior."""
        return self.conditional_mean(X, self.prior[None])[0] if has_missing(X) else X

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return the completed rows; return X if there is a single explained column.

        With a single explained column, q has no factor for missing values: they are integrated out.
        """
        return completed if self.n_explained > 1 else X

    def projected(self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]) -> Any:
        """Return fits of projected residuals, for the search for seeds.

        Given columns are not projected, because they have no distribution.
        ``directions(residuals, weights)`` returns the projected residuals.
        """
        residuals = self.residuals(self.filled(X))
        # The method `projected` uses only the number of columns and the dtype, so that the prior
        # may be empty.
        gaussian = SphericalGaussian(np.empty(0), np.zeros(residuals.shape[1]), self.dtype)
        return gaussian.projected(residuals, weights, directions)

    def residuals(self, X: Any) -> Array:
        """Return the residuals (n, E) of rows under the prior means of the coefficients."""
        y, u = self._split_columns(X)
        (prediction,), _ = self._predict(u, self.prior[None])
        return y - prediction

    def _predict(self, u: Array, lam: Array) -> tuple[Array, Array]:
        """Return predictions ``M_k w``, (K, n, E), and factors ``sqrt(1 + w' V_k^-1 w)``, (K, n).

        ``u`` (n, R) are the regressors. A factor is the ratio of the predictive scale to the scale
        of the residuals.
        """
        M, V, _ = self.family.split(lam)
        w = np.concatenate([np.ones((len(u), 1)), u], axis=1)
        leverage = np.einsum("nq,kqr,nr->kn", w, np.linalg.inv(V), w, optimize=True)
        return w @ M, np.sqrt(1.0 + leverage)

    def _standardise(self, X: Any, lam: Array) -> tuple[Array, Array, Array]:
        """Return predictions and factors of :meth:`_predict`, and standardised residuals (K, n, E).

        Standardised residuals are residuals divided by the factors. They have the predictive
        density of a zero-mean Gaussian component with q(Lambda), see :meth:`_residual_gaussian`.
        """
        y, u = self._split_columns(X)
        mean, factor = self._predict(u, lam)
        return mean, factor, (y - mean) / factor[..., None]

    def _residual_gaussian(self, lam: Array) -> tuple[ZeroMeanFullGaussian, Array]:
        """Return the zero-mean Gaussian of standardised residuals, and its ``lam`` (K, ...)."""
        _, _, prior = self.family.split(self.prior)
        _, _, residual_lam = self.family.split(lam)
        gaussian = ZeroMeanFullGaussian(prior, self.n_explained, np.dtype(np.float64))
        return gaussian, residual_lam

    def log_predictive(self, X: Any, lam: Array) -> Array:
        gaussian, residual_lam = self._residual_gaussian(lam)
        _, factor, residuals = self._standardise(X, lam)
        # (n,): the same for all components.
        n_observed = (~np.isnan(residuals[0])).sum(axis=1)
        # Evaluate the components one by one, because their residuals differ.
        by_component = zip(residuals, residual_lam[:, None], strict=True)
        log_densities = [gaussian.log_predictive(X_k, lam_k)[:, 0] for X_k, lam_k in by_component]
        # The standardisation of each observed value divides the density by the factor.
        return np.asarray((log_densities - n_observed * np.log(factor)).T)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        gaussian, residual_lam = self._residual_gaussian(lam)
        mean, factor, residuals = self._standardise(X, lam)
        by_component = zip(residuals, residual_lam[:, None], strict=True)
        residual_means = [gaussian.conditional_mean(X_k, lam_k) for X_k, lam_k in by_component]
        return self._fill_rows(X, mean + factor[..., None] * np.concatenate(residual_means))

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        gaussian, residual_lam = self._residual_gaussian(lam[None])
        (mean,), (factor,), (residuals,) = self._standardise(X, lam[None])
        draws = gaussian.conditional_sample(residuals, residual_lam[0], rng)
        return self._fill_rows(X, mean + factor[:, None] * draws)

    def _fill_rows(self, X: Any, values: Array) -> Array:
        """Return rows (..., n, E + G) with missing values of y filled in from ``values``.

        ``values`` (..., n, E) are relative to the center.
        """
        X, E = dense_rows(X), self.n_explained
        rows = np.array(np.broadcast_to(X, (*values.shape[:-1], X.shape[1])))
        rows[..., :E] = np.where(np.isnan(X[:, :E]), values + self.center, X[:, :E])
        return rows

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        """Return the family and ``lam`` for explained columns that are not centred."""
        q = self.family.to_standard(lam)
        M = q["coefficients"].copy()
        M[..., 0] += self.center
        return self.family, self.family.from_standard(**(q | {"coefficients": M}))

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return marginals of means, of residual standard deviations, and of slopes.

        Each mean is the mean of a column for rows in which all regressors are at their mean.
        """
        q = self.family.to_standard(lam)
        M, coefficient_covariances = q["coefficients"], np.linalg.inv(q["coefficients_precision"])
        shape, rate = column_gammas(q)
        precision = 1.0 / np.diagonal(coefficient_covariances, axis1=1, axis2=2)
        slopes = []
        # Convert slopes of standardised regressors to slopes in units of the data. Coefficient 0 is
        # the intercept.
        regressors = zip(self.given.labels, self.given.scale, strict=True)
        for r, (label, scale) in enumerate(regressors, 1):
            slope = mean_marginals(M[..., r] / scale, precision[:, r, None] * scale**2, shape, rate)
            slopes.append(slope._replace(quantity=f"slope of {label}"))
        means = mean_marginals(M[..., 0] + self.center, precision[:, :1], shape, rate)
        return means, deviation_marginals(shape, rate), *slopes

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return the log normalizers of the regressions of single columns, (K, E).

        They are normalizers of the marginal distributions, under ``lam``, of the coefficients and
        the residual precision of one column.
        """
        q = self.family.to_standard(lam)
        # A gamma distribution is a Wishart distribution of one column with nu = 2 shape and
        # W^-1 = 2 rate.
        shape, rate = column_gammas(q)
        # Each column gets axes of length 1 for a regression of E = 1 column.
        M, V = q["coefficients"][:, :, None], q["coefficients_precision"][:, None]
        eta = self.family.from_standard(M, V, 2.0 * shape, 2.0 * rate[..., None, None])
        return self.family.log_normalizer(eta)


@in_files("models.IndependentRegressions")
@dataclass(frozen=True)
class IndependentRegressions(Product):
    """A component of Gaussian columns with independent regressions on given columns.

    Each explained column has a block whose component is a :class:`Regression`.
    """

    covariance_type = "diag"

    def validate(self, d: int, k: int) -> bool:
        """Return whether block j has the explained column j and all given columns."""
        return all(
            type(block.component) is Regression
            and block.name == str(j)
            and np.array_equal(block.columns, [j, *range(len(self.blocks), d)])
            for j, block in enumerate(self.blocks)
        )

    @property
    def given(self) -> GivenColumns:
        """The conversion of given columns, which all blocks share."""
        return self.blocks[0].component.given  # type: ignore[attr-defined]

    @property
    def n_explained(self) -> int:
        """Number of explained columns."""
        return len(self.blocks)

    # These methods use only methods and fields that both classes have.
    filled = Regression.filled
    projected = Regression.projected

    def residuals(self, X: Any) -> Array:
        """Return the residuals (n, E) of rows under the prior means of the coefficients."""
        columns: Any = self._split_rows(X)
        residuals = [component.residuals(rows) for component, rows in columns]
        return np.concatenate(residuals, axis=1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are predictions from the given columns, (K, n, D)."""
        completed = np.repeat(dense_rows(X)[None], len(lam), axis=0)
        blocks: Any = zip(self._split_rows(X), self.family.split(lam), strict=True)
        for j, ((component, rows), column_lam) in enumerate(blocks):
            # The explained column is the first column of the block.
            completed[..., j] = component.conditional_mean(rows, column_lam)[..., 0]
        return completed

    def marginals(self, lam: Array) -> Any:
        """Return the marginals of all columns, each with the index of its column in the data."""
        return tuple(
            marginals._replace(columns=np.array([j]))
            for j, column_marginals in enumerate(super().marginals(lam))
            for marginals in column_marginals
        )


def make_regression_component(
    X: Any, weights: Any, covariance_type: str, given: GivenColumns,
    prior: GaussianPrior = DEFAULT_PRIOR,
) -> tuple[Regression | IndependentRegressions, dict[str, Any]]:  # fmt: skip
    """Return the component for rows X of ``weights`` (n,), and its prior's parameters by name.

    The given columns are the last columns of X. The ``covariance_type`` of residuals is "full" or
    "diag". The parameters in ``prior`` mean the same as for
    :func:`~skvt.models.mixture.make_gaussian_component`; they apply to intercepts and residuals.
    Parameters that are None are derived from the data.
    """
    if covariance_type == "full":
        return _make_regression(X, weights, given, prior)
    E = X.shape[1] - given.n_columns
    mean = None if prior.mean is None else choose_prior_mean(prior.mean, np.zeros(E))
    scale = prior.covariance
    if scale is not None:
        scale = choose_prior_scale(scale, "diag", E, np.ones(E))
    # Each block has one explained column, but the default nu is the number of all these columns.
    nu = float(E) if prior.degrees_of_freedom is None else prior.degrees_of_freedom
    # Make a separate regression for each explained column.
    blocks: list[Block] = []
    priors: list[dict[str, Any]] = []
    for j in range(E):
        # The prior of one column has arrays (1,) and (1, 1).
        column_prior = prior._replace(
            mean=None if mean is None else mean[[j]], degrees_of_freedom=nu,
            covariance=None if scale is None else scale[[j], None],
        )  # fmt: skip
        # The explained column is first, and all given columns follow.
        columns = np.append(j, np.arange(E, X.shape[1]))
        component, column_values = _make_regression(X[:, columns], weights, given, column_prior)
        blocks.append(Block(str(j), component, columns))
        priors.append(column_values)
    regressions = IndependentRegressions(tuple(blocks), X.shape[1], X.dtype)
    return regressions, _stack_columns(priors)


def _stack_columns(priors: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack the prior parameters of E columns into arrays whose first axis is the column.

    ``priors`` has the parameters of each column by name. Slopes become an array (E, R), and the
    other parameters, of which a column has one number each, become arrays (E,).
    """
    stacked = {name: np.stack([prior[name] for prior in priors]) for name in priors[0]}
    return {
        name: values.reshape(len(priors), -1) if name == "slope_prior" else values.ravel()
        for name, values in stacked.items()
    }


def _make_regression(
    X: Any, weights: Any, given: GivenColumns, prior: GaussianPrior
) -> tuple[Regression, dict[str, Any]]:
    """Return the regression of E columns on the given columns, and its prior's parameters by name.

    Raises ValueError if the degrees of freedom in ``prior`` are too few for E columns.
    """
    E, R = X.shape[1] - given.n_columns, given.center.size
    # Fit one regression to all rows, from which the default prior is derived. In the covariance
    # ``moment`` (R + E, R + E), regressors are first and explained columns last.
    joint_rows = map_rows(X, partial(_uncentred_joint_rows, given, E))
    center, moment = weighted_moments(joint_rows, weights, "full")
    center = center[R:]
    slopes = np.linalg.solve(given.moment, moment[:R, R:]).T
    covariance = moment[R:, R:] - slopes @ moment[:R, R:]
    # Rounding can make the variance of the residuals of a single column negative.
    covariance = np.maximum(covariance, 0.0) if E == 1 else covariance
    # The default W^-1 includes rounding errors of the data.
    errors = rounding_variance(X[:, :E], weights)
    n_rows = float(weights.sum())
    residual_moment = diagonal_if_few_rows(covariance, n_rows)
    mean, kappa, nu, scale = complete_prior(
        prior, "full", center, residual_moment, error_moment=np.diag(errors)
    )
    # Natural parameters are relative to the center.
    M = np.column_stack([mean - center, slopes])
    added = addition_to_squares(covariance, errors, n_rows)
    # The prior is empty at first; `with_prior` sets it.
    component = Regression(np.empty(0), center, given, X.dtype, added)
    component = component.with_prior(M, np.array([kappa, kappa]), nu, scale)
    return component, get_prior_values(component)


def _uncentred_joint_rows(given: GivenColumns, n_explained: int, X: Any) -> Array:
    """Return the regressors and the explained columns of rows X in one array, (n, R + E).

    In contrast to `Regression._joint_rows`, explained columns are not centred.
    """
    X = dense_rows(X)
    return np.concatenate([given.regressors(X[:, n_explained:]), X[:, :n_explained]], axis=1)


def get_prior_values(component: Regression) -> dict[str, Any]:
    """Return the parameters of a regression's prior by name, in units of the data."""
    M, kappa, nu, scale = _get_prior(component)
    return {
        "mean_prior": component.center + M[:, 0],
        "slope_prior": M[:, 1:] / component.given.scale,
        "mean_precision_prior": kappa[0],
        "slope_precision_prior": kappa[1],
        "degrees_of_freedom_prior": np.float64(nu),
        "covariance_prior": scale,
    }


def _get_prior(component: Regression) -> GaussianPrior:
    """Return M, kappa, nu and W^-1 of a regression's prior, as in `Regression.with_prior`."""
    q = component.family.to_standard(component.prior)
    # V is diag(kappa_0, kappa_1 C), so that one entry of C suffices to find kappa_1.
    V = q["coefficients_precision"]
    kappa = np.array([V[0, 0], V[1, 1] / component.given.moment[0, 0]])
    nu = float(q["degrees_of_freedom"])
    return GaussianPrior(q["coefficients"], kappa, nu, q["scale_inverse"])


@in_files("models.RegressionLearner")
@dataclass(frozen=True)
class RegressionLearner(GaussianLearner):
    """Learns parameters of the prior of a :class:`Regression` by expectation maximisation (EM).

    If a parameter of means is learned, the same parameter of slopes is learned, too. Let avg be the
    average over components. A step of EM is

        M = avg(E_q[Lambda])^-1 avg(E_q[Lambda B]),     D = avg(E_q[(B - M)' Lambda (B - M)]),
        kappa_0 = E / D_00,      kappa_1 = E R / tr(C D_uu),

    where E is the number of explained columns. D_00 is the entry of D for the intercept, and D_uu
    are the entries for the slopes. W^-1 and nu are updated as for a Gaussian, see
    :mod:`skvt.models.mixture._gaussian_learner`. The base class documents the methods without
    docstrings.
    """

    # Number of explained columns of the data, which determines the range of nu. It counts all
    # columns, even if each column has a separate regression.
    n_columns: int = 1

    @classmethod
    def from_component(cls, component: Any, names: frozenset[str]) -> Any:
        """Return the learner for a :class:`Regression` or for :class:`IndependentRegressions`.

        The result is None if ``names`` is empty.
        """
        if not names:
            return None
        if component.covariance_type == "diag":
            n_columns = len(component.blocks)
            learners = [cls.from_component(block.component, names) for block in component.blocks]
            learners = [replace(learner, n_columns=n_columns) for learner in learners]
            return IndependentLearner(tuple(learners))
        scale = component.family.to_standard(component.prior)["scale_inverse"]
        return cls(names, np.sqrt(np.diagonal(scale)), n_columns=component.n_explained)

    def prior_of(self, component: Any) -> GaussianPrior:
        return _get_prior(component)

    def with_prior(self, component: Any, prior: GaussianPrior) -> Any:
        return component.with_prior(*prior)

    def count_rows(self, component: Any, sums: Array) -> Array:
        return sums[:, 0]

    def count_columns(self, component: Any) -> int:
        return self.n_columns

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters, and the same parameters of slopes, by name."""
        values = get_prior_values(component)
        slope_names = {name.replace("mean", "slope") for name in self.names if "mean" in name}
        learned_names = self.names | slope_names
        return {name: values[name] for name in values if name in learned_names}

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameter vector after one step of EM, given ``sums`` of features (K, P)."""
        M, kappa, nu, scale = _get_prior(component)
        E, Q = M.shape
        # Average E[B' Lambda B], E[Lambda B] and E[Lambda] over components. The first statistic is
        # log|Lambda| / 2. The others are the upper triangle of -G' Lambda G, with G = (B, -I) and
        # the diagonal halved.
        t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
        moments = triangle.unpack_statistic(t[1:])
        square, linear, precision = moments[:Q, :Q], -moments[Q:, :Q], moments[Q:, Q:]
        if "mean_prior" in self.names:
            M = np.linalg.solve(precision, linear)
        if "mean_precision_prior" in self.names:
            # The matrix ``distance`` is D in the docstring of the class.
            cross_products = M.T @ linear
            distance = square - cross_products - cross_products.T + M.T @ precision @ M
            slope_distance = np.sum(component.given.moment * distance[1:, 1:]) / (Q - 1)
            kappa = E / np.maximum([distance[0, 0], slope_distance], MIN_SQUARED_DISTANCE)
        prior = GaussianPrior(M, kappa, nu, scale)
        return self.finish_step(component, prior, 2.0 * t[0], precision, sums)


@in_files("models.IndependentLearner")
@dataclass(frozen=True)
class IndependentLearner(ProductLearner):
    """Learns the priors of independent regressions."""

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned values by name, with the explained column as the first axis."""
        values = super().learned_values(component)
        return _stack_columns([values[block.name] for block in component.blocks])
