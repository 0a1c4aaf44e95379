"""Descriptions of the columns of a table with their priors, public in :mod:`skvt.components`.

A description, a :class:`ComponentSpec`, holds the parameters that a user sets. From the rows of
``fit`` it builds a component of :mod:`skvt.models.mixture`, which is the likelihood of the columns
with its prior. The docstrings of the components have the mathematics. A learner changes the prior
during a fit. Estimators of tables call :func:`choose_components` and :func:`build_component`.
Estimators with the parameters of a Gaussian use the functions from :func:`read_gaussian_prior` to
:func:`make_gaussian_learner`, too.

*Given columns* explain the other columns and have no distribution. They divide rows into cells, one
for each combination of their levels. In shapes, n is the number of rows, and d or D the number of
columns.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from skvt._sklearn_private import Interval, StrOptions
from skvt._stages import begin_stage
from skvt.components._choices import (
    CANDIDATE_TYPES,
    MAX_ROWS,
    choose_covariance_type,
    select_evenly_spaced,
)
from skvt.components._cuts import cut_by_classes
from skvt.components.logarithms import find_log_columns
from skvt.files import in_files
from skvt.models import mixture as models
from skvt.rows import (
    evaluate_rows,
    has_sparse_rows,
    map_rows,
    sum_total_and_weight,
    sums_of_rows,
    without_missing,
)

# Legal values of parameters.
AUTO = StrOptions({"auto"})
POSITIVE = Interval(Real, 0, None, closed="neither")
# Names of the parameters of a Gaussian's prior, in the order of the fields of
# :class:`~skvt.models.mixture.GaussianPrior`.
GAUSSIAN_PRIORS = tuple(models.GaussianPrior().by_name())
GAUSSIAN_PRIOR_CONSTRAINTS = {
    "mean_prior": [None, AUTO, "array-like"],
    "mean_precision_prior": [None, AUTO, POSITIVE],
    "degrees_of_freedom_prior": [None, AUTO, POSITIVE],
    "covariance_prior": [None, AUTO, "array-like", POSITIVE],
}

MISSING_CONSTRAINT = {"missing": [StrOptions({"ignore", "informative"})]}
COVARIANCE_TYPES = {*models.MATRIX_TYPES, "diag", "spherical", "auto"}
MAX_RANK_CONSTRAINT = [None, Interval(Integral, 1, None, closed="left")]


def is_auto(value):
    """Return whether a parameter is "auto", for a learned prior or an open choice."""
    return isinstance(value, str) and value == "auto"


def select_learned_names(spec, names):
    """Return the ``names`` of the parameters of ``spec`` that are learned."""
    return frozenset(name for name in names if is_auto(getattr(spec, name)))


def read_gaussian_prior(spec):
    """Return the prior that an estimator or description sets; a learned parameter is None."""
    values = [getattr(spec, name) for name in GAUSSIAN_PRIORS]
    return models.GaussianPrior(*(None if is_auto(value) else value for value in values))


def find_covariance_type(
    spec, X, weights, error_variance=0.0, max_components=None, candidates=CANDIDATE_TYPES,
    *, may_start=False,
):  # fmt: skip
    """Return the covariance type of an estimator or description; choose a type if it is "auto".

    ``spec`` is the estimator or description. Short fits to the rows X choose a type from the
    ``candidates``. ``max_components`` is the maximum number of components of the mixture, and
    ``error_variance`` is the variance of the errors of values, see
    :func:`build_gaussian_component`. Raise ValueError if the type is to be chosen but the user has
    set ``covariance_prior``, whose shape depends on the type.

    The second result is the short fit from which the fit should start. It is None unless
    ``may_start`` is set, and may be None even then, see :func:`choose_covariance_type`.
    """
    if spec.covariance_type != "auto" or spec.mean_type == "zero":
        return spec.covariance_type, None
    if not (spec.covariance_prior is None or is_auto(spec.covariance_prior)):
        raise ValueError(
            "With covariance_type='auto', the 'covariance_prior' parameter must be None, or "
            "'auto' to learn it, because its shape depends on the type. Got "
            f"{spec.covariance_prior!r}."
        )
    n_columns = X.shape[1]
    if n_columns == 1:
        # For one column, all types are equivalent.
        return "diag", None
    begin_stage(f"choosing the covariance type of {n_columns} columns")
    learned_names = select_learned_names(spec, GAUSSIAN_PRIORS)
    build = _make_gaussian_builder(spec, error_variance)
    covariance_type, start = choose_covariance_type(
        X, weights, build, learned_names, max_components, candidates, may_start=may_start
    )
    message = f"chosen covariance type of {n_columns} columns: {covariance_type!r}"
    begin_stage("preparing the first pass", line=message)
    return covariance_type, start


def build_gaussian_component(spec, covariance_type, X, weights, error_variance=0.0):
    """Return the Gaussian of an estimator or description, and a dict of its prior's parameters.

    Values count as if they were measured with errors of the variance ``error_variance``.
    """
    return _make_gaussian_builder(spec, error_variance)(X, weights, covariance_type=covariance_type)


def _make_gaussian_builder(spec, error_variance):
    """Return a function that makes the Gaussian from rows, weights and a ``covariance_type``."""
    if error_variance == 0.0 and getattr(spec, "max_components", None) == 1:
        # Errors of rounding, for which 0 stands, keep components from shrinking to a repeated
        # value. A single component describes all values and cannot shrink to one of them.
        error_variance = None
    return partial(
        models.make_gaussian_component, zero_mean=spec.mean_type == "zero",
        prior=read_gaussian_prior(spec), error_variance=error_variance, max_rank=spec.max_rank,
    )  # fmt: skip


def make_gaussian_learner(spec, component):
    """Return the learner of the prior's parameters that are "auto"; None if no parameter is."""
    is_regression = isinstance(component, models.Regression | models.IndependentRegressions)
    learner_class = models.RegressionLearner if is_regression else models.GaussianLearner
    return learner_class.from_component(component, select_learned_names(spec, GAUSSIAN_PRIORS))


class ComponentSpec(BaseEstimator):
    """Base of descriptions of columns: their encoding, and their likelihood with its prior.

    A subclass sets ``encoding`` and implements :meth:`build`.

    Attributes
    ----------
    encoding : {"real", "binary", "count", "category"}
        How the columns are read: as real numbers; as 0 and 1 or booleans; as counts 0, 1, 2, ...;
        or as categories, which :meth:`build` receives as codes 0, 1, ...
    allows_missing : bool
        Whether values may be missing.
    missing : {"ignore", "informative"}
        With "informative", the component has a probability of being observed for each column except
        the exposure. It is a parameter of descriptions whose columns may have missing values.
    exposure : str, int or None
        The column of the table to which the counts of a row are proportional. :meth:`build`
        receives it as the last column. If it is None or "row_total", no such column is read.
    smallest_count : int
        The smallest legal value of columns of counts.

    Examples
    --------
    >>> from skvt.components import Bernoulli, ComponentSpec
    >>> isinstance(Bernoulli(), ComponentSpec), Bernoulli().encoding
    (True, 'binary')
    """

    encoding = "real"
    allows_missing = True
    missing = "ignore"
    exposure = None
    smallest_count = 0
    _parameter_constraints: dict = {}
    # Classes of likelihoods that :meth:`build` returns, for checks of files. An empty tuple stands
    # for all classes.
    _likelihoods: tuple = ()

    @property
    def reads_exposure(self):
        """Whether the exposure is a column of the table."""
        return self.exposure is not None and self.exposure != "row_total"

    def chosen(self, X, weights, given=None):
        """Make the choices that the parameters leave open; return the complete description.

        Called once for each block, before :meth:`build`.

        Parameters
        ----------
        X : {ndarray, CSR array} of shape (n, d)
            The columns of the rows of ``fit``, encoded, and the given columns.
        weights : ndarray of shape (n,)
            Weights of the rows.
        given : skvt.models.mixture.GivenColumns or None, default=None
            Converts the given columns, which are the last columns of X, to regressors and cells.

        Returns
        -------
        spec : ComponentSpec
            A description that leaves no choice open: this object, or a new one.
        choices : dict
            Chosen values by name of the parameter, which are published with the prior's parameters.
        """
        return self, {}

    def build(self, X, weights, sizes):
        """Return the likelihood of the described columns with its prior.

        Parameters
        ----------
        X : {ndarray, CSR array} of shape (n, d)
            The columns of the rows of ``fit``, encoded; NaN where a value is missing.
        weights : ndarray of shape (n,)
            Weights of the rows.
        sizes : tuple of int or None
            Number of categories of each column, for the encoding "category".

        Returns
        -------
        component : skvt.models.mixture.Component
            See :doc:`/adding_a_component`.
        priors : dict
            The prior's parameters as used.
        """
        raise NotImplementedError(f"{type(self).__name__} must define build(X, weights, sizes).")

    def build_given(self, X, weights, sizes, given):
        """Return the likelihood of the described columns given other columns, with its prior.

        Parameters
        ----------
        X : {ndarray, CSR array} of shape (n, d + g)
            The columns, and the given columns.
        weights : ndarray of shape (n,)
            Weights of the rows.
        sizes : tuple of int or None
            Number of categories of each column, for the encoding "category".
        given : skvt.models.mixture.GivenColumns
            Converts the last g columns to regressors and cells.

        Returns
        -------
        component : skvt.models.mixture.Component
            The likelihood of rows like those of X.
        priors : dict
            The prior's parameters as used.

        Raises
        ------
        ValueError
            If the component cannot depend on given columns.
        """
        raise ValueError(
            f"{type(self).__name__} cannot depend on given columns. Leave its columns out of "
            "'components', set given=None, or use Gaussian, Categorical, Bernoulli, Poisson, "
            "NegativeBinomial or Hurdle."
        )

    def learner(self, component):
        """Return the learner of the prior of a likelihood, or None if the prior is fixed.

        Parameters
        ----------
        component : skvt.models.mixture.Component
            The result of :meth:`build` or :meth:`build_given`. If this wraps another component,
            such as the Gaussian of a Student t, it is the wrapped component.

        Returns
        -------
        skvt.models.mixture.PriorLearner or None
            The learner, which moves the prior to the maximum of the bound.
        """
        return None

    def describes(self, component, sizes):
        """Return whether a file may contain this description with this likelihood.

        Parameters
        ----------
        component : skvt.models.mixture.Component
            The likelihood, without indicators of missing values.
        sizes : tuple of int or None
            Number of categories of each column, for the encoding "category".

        Returns
        -------
        bool
            Whether :meth:`build` can have returned the likelihood.
        """
        return not self._likelihoods or type(component) in self._likelihoods

    def for_columns(self, columns, positions_of):
        """Return the description with positions in place of the names of columns.

        Parameters
        ----------
        columns : list of int
            Positions of the columns in the table.
        positions_of : callable
            Takes names, positions or a selector of columns, and returns positions in the table.

        Returns
        -------
        ComponentSpec
            This object, or a copy if a parameter names columns. In the copy, the parameter has the
            positions of the named columns within ``columns``.
        """
        return self

    def check(self):
        """Raise ValueError or TypeError for illegal parameters."""
        self._validate_params()


def _take_logarithms(X, log_columns, least_values):
    """Return rows with logarithms in the columns at the positions ``log_columns``.

    ``least_values`` has a positive number for each of these columns. Smaller values of the column
    are raised to this number before the logarithm is taken.
    """
    if log_columns.size == 0:
        return X
    return map_rows(X, partial(models.take_logarithms, log_columns, least_values))


class _SpecByCell(ComponentSpec):
    """Base of descriptions of binary columns, categories or counts.

    The given columns divide the rows into cells, and the component has parameters for each cell.
    """

    def build_given(self, X, weights, sizes, given):
        """Return the component with parameters for each cell, see :class:`ComponentSpec`."""
        if self.exposure == "row_total":
            raise ValueError(
                "exposure='row_total' cannot be combined with given columns. Add the total of "
                "each row to the table as a column, and name that column as the 'exposure'."
            )
        component, priors = self.build(X[:, : X.shape[1] - given.n_columns], weights, sizes)
        return models.separate_by_cell(component, given, self.reads_exposure), priors


@dataclass(eq=False, repr=False)
class _GaussianSpec(ComponentSpec):
    """Base of descriptions of real columns with a prior of mean and precision."""

    _parameter_constraints = {**GAUSSIAN_PRIOR_CONSTRAINTS, **MISSING_CONSTRAINT}
    _: KW_ONLY
    mean_precision_prior: Any = "auto"
    mean_prior: Any = "auto"
    degrees_of_freedom_prior: Any = "auto"
    covariance_prior: Any = "auto"
    missing: str = "ignore"

    def learner(self, component):
        """Return the learner of the prior's parameters, see :class:`ComponentSpec`."""
        return make_gaussian_learner(self, component)


@in_files("components.Gaussian")
@dataclass(eq=False, repr=False)
class Gaussian(_GaussianSpec):
    """Real columns: Gaussian, with a conjugate prior of mean and precision.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical", "low_rank", "tied_low_rank", "auto"}, \
            default="full"
        Shape of each component's covariance. "tied" is one matrix for all components. "low_rank" is
        a matrix of low rank plus a noise variance for each column, and "tied_low_rank" is one such
        matrix for all components. "auto" chooses the type by short fits to these columns, see
        :class:`~skvt.MemoizedDPGMM`; the chosen type is in ``priors_``.
    mean_precision_prior : float, "auto" or None, default="auto"
        Number of rows that the prior mean of a component is worth; None is 1. "auto", here and
        below, starts with the value that None stands for and learns the parameter at the maximum of
        the bound, within the ranges of :class:`~skvt.MemoizedDPGMM`.
    mean_prior : array-like of shape (n_columns,), "auto" or None, default="auto"
        Prior mean; None is the mean of the data.
    degrees_of_freedom_prior : float, "auto" or None, default="auto"
        Degrees of freedom nu of the prior of a precision. With "full" and "tied" the prior is a
        Wishart distribution, and nu must be more than ``n_columns - 1``. With "diag", "spherical"
        and, for the noise, the types of low rank, the prior is a gamma distribution with shape
        nu / 2. None is ``n_columns``, or 1 with the types of low rank.
    covariance_prior : array-like, "auto" or None, default="auto"
        Inverse scale of the Wishart or gamma prior: an array (n_columns, n_columns) with "full" and
        "tied", an array (n_columns,) with "diag" and the types of low rank, and a number with
        "spherical". None is the covariance of the data, or a hundredth of the variances with the
        types of low rank. With at most ten rows for each column, this covariance is diagonal.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values are integrated out or carry information: "informative" adds the
        probability of being observed, for each component and column, with a uniform prior. Columns
        that are missing in nearly the same rows share one probability.
    mean_type : {"full", "zero"}, default="full"
        Whether components have means, or all components have mean zero. "zero" requires
        ``covariance_type="full"``.
    max_rank : int or None, default=None
        Maximum rank of the types of low rank. The fit finds the rank of each component. None is
        half the number of columns.
    log : str, int, slice, callable, array-like of str, int or bool, "auto" or None, default=None
        Columns of positive numbers whose logarithms are Gaussian, such as incomes, prices and
        areas, selected like the columns of a component. "auto" selects the columns for which
        logarithms raise the bound of a short fit to the column alone, without its most extreme
        values, by 8 nats, or no column if a prior mean or covariance is given. ``priors_`` has
        their indices within the block.

        Parameters of the prior refer to the logarithms; densities and bounds refer to the original
        numbers. In later rows, numbers that are not positive, or far below all numbers of ``fit``,
        count as a small number, below which the density is flat. Values of these columns count as
        exact, even if they are rounded.

    See Also
    --------
    skvt.MemoizedDPGMM : The same for tables of real columns only.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [9.0]], 100, axis=0)
    >>> MemoizedDPMixture(components=Gaussian("diag"), random_state=0).fit(X).n_components_
    2
    """

    _likelihoods = (*models.GAUSSIAN_CLASSES, models.Regression, models.IndependentRegressions)
    _parameter_constraints = {
        "covariance_type": [StrOptions(COVARIANCE_TYPES)],
        "mean_type": [StrOptions({"full", "zero"})],
        "max_rank": MAX_RANK_CONSTRAINT,
        **_GaussianSpec._parameter_constraints,
    }
    covariance_type: str = "full"
    _: KW_ONLY
    mean_type: str = "full"
    max_rank: int | None = None
    log: Any = None

    def for_columns(self, columns, positions_of):
        """Return the description with positions in ``log``, see :class:`ComponentSpec`."""
        if self.log is None or is_auto(self.log):
            return self
        return _with_positions(self, "log", columns, positions_of)

    def describes(self, component, sizes):
        """Return whether a file may contain this description with ``component``."""
        if type(component) is models.Logged and self.log is not None:
            component = component.blocks[0].component
        return super().describes(component, sizes)

    def chosen(self, X, weights, given=None):
        """Choose columns in logarithms and the covariance type, see :class:`ComponentSpec`."""
        self._check_given(given)
        log_columns, least_values = self._find_logarithms(X, weights, given)
        choices = {}
        if self.covariance_type == "auto":
            X = _take_logarithms(X, log_columns, least_values)
            choices["covariance_type"] = self._choose_type(X, weights, given)
        log = log_columns if log_columns.size else None
        return Gaussian(**self.get_params(deep=False) | {"log": log} | choices), choices

    def _check_given(self, given):
        """Raise ValueError if there are given columns, on which this Gaussian cannot depend."""
        is_legal = self.mean_type != "zero" and self.covariance_type in ("diag", "full", "auto")
        if given is not None and not is_legal:
            raise ValueError(
                "With given columns, a Gaussian must have means and covariance_type='diag', "
                f"'full' or 'auto'. Got {self!r}."
            )

    def _choose_type(self, X, weights, given):
        """Choose the covariance type by short fits.

        X has logarithms in the columns whose logarithms are modelled.
        """
        if given is None:
            covariance_type, _ = find_covariance_type(self, X, weights)
            return covariance_type
        # Short fits describe the residuals of one regression of all rows on the given columns.
        X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
        component, _ = models.make_regression_component(X, weights, "diag", given)
        spec = Gaussian("auto", mean_precision_prior=self.mean_precision_prior)
        residuals, candidates = component.residuals(X), ("diag", "full")
        covariance_type, _ = find_covariance_type(spec, residuals, weights, candidates=candidates)
        return covariance_type

    def build(self, X, weights, sizes=None):
        """Return a Gaussian component, see :class:`ComponentSpec`."""
        return self.build_given(X, weights, sizes, None)

    def build_given(self, X, weights, sizes, given):
        """Return a regression on the given columns, or a Gaussian component without any."""
        log_columns, least_values = self._find_logarithms(X, weights, given)
        X = _take_logarithms(X, log_columns, least_values)
        if given is None:
            component, priors = build_gaussian_component(self, self.covariance_type, X, weights)
        else:
            component, priors = models.make_regression_component(
                X, weights, self.covariance_type, given, read_gaussian_prior(self)
            )
        if log_columns.size:
            component = models.model_logarithms(component, log_columns, least_values)
            priors["log"] = log_columns
        return component, priors

    def _find_logarithms(self, X, weights, given):
        """Return the positions of the columns in logarithms, and a tuple of their least values.

        :func:`find_log_columns` explains the least values. If ``log`` is "auto" and the user has
        set the prior mean or covariance, no column is in logarithms, because the numbers that the
        user has set refer to the columns as they are.
        """
        prior = read_gaussian_prior(self)
        has_prior_numbers = prior.mean is not None or prior.covariance is not None
        if self.log is None or (is_auto(self.log) and has_prior_numbers):
            return np.empty(0, np.intp), ()
        # Given columns come last. Leave them out.
        X = X if given is None else X[:, : X.shape[1] - given.n_columns]
        if not is_auto(self.log):
            return find_log_columns(X, weights, self.log)
        begin_stage(f"choosing logarithms among {X.shape[1]} columns")
        log_columns, least_values = find_log_columns(X, weights)
        message = f"chosen logarithms in {log_columns.size} of {X.shape[1]} columns"
        begin_stage("preparing the first pass", line=message)
        return log_columns, least_values


@in_files("components.LatentGaussian")
@dataclass(eq=False, repr=False)
class LatentGaussian(_GaussianSpec):
    """Real and ordinal columns that are correlated given the component.

    Each level of an ordinal column, such as a grade, a rating or a flag, is an interval of a latent
    real value. Latent values and real columns are jointly Gaussian, as in an ordered probit model.
    The intervals are the same in all components. By default they divide a standard normal
    distribution by the shares of the levels in the rows of ``fit``. If classes of rows are far
    apart, they divide a mixture of a normal distribution for each class, where BIC prefers that.
    Only the order of the levels matters.

    Parameters
    ----------
    ordinal : str, int, slice, callable or array-like of str, int or bool
        The ordinal columns, selected like the columns of a component: by names, positions in the
        table, a mask or a callable. They hold numbers or booleans; their levels are the distinct
        values in the rows of ``fit``. In new rows, a value between two levels counts as the higher
        level, and a value above all levels as the highest level.
    covariance_type : {"full", "tied"}, default="full"
        Shape of each component's covariance; "tied" is one matrix for all components.
    mean_precision_prior : float, "auto" or None, default="auto"
        This and the next three parameters are as in :class:`Gaussian`; ordinal columns are on the
        scale of their latent values.
    mean_prior : array-like of shape (n_columns,), "auto" or None, default="auto"
        Prior mean. None is the mean of the data, and 0 in ordinal columns.
    degrees_of_freedom_prior : float, "auto" or None, default="auto"
        Degrees of freedom of the Wishart prior; None is ``n_columns``.
    covariance_prior : array-like of shape (n_columns, n_columns), "auto" or None, default="auto"
        Inverse scale of the Wishart prior. None is the covariance of the data, where an ordinal
        value counts as the mean of a standard normal distribution within its interval, plus the
        variance within the intervals.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.

    See Also
    --------
    skvt.components.Categorical : Categories without an order, independent given the component.

    Notes
    -----
    The posterior of a row's latent values is approximated by independent distributions, so that the
    bound is lower than the best possible bound if ordinal columns are correlated with each other.
    Predictive densities estimate the probability of several ordinal levels by 128 points.

    Examples
    --------
    >>> from skvt.components import LatentGaussian
    >>> blocks = [("survey", LatentGaussian(ordinal=["grade"]), ["age", "grade"])]
    """

    _likelihoods = models.LATENT_GAUSSIAN_CLASSES
    _parameter_constraints = {
        "covariance_type": [StrOptions({"full", "tied"})],
        **_GaussianSpec._parameter_constraints,
    }
    ordinal: Any
    covariance_type: str = "full"

    def for_columns(self, columns, positions_of):
        """Return the description with positions in ``ordinal``, see :class:`ComponentSpec`."""
        return _with_positions(self, "ordinal", columns, positions_of)

    def describes(self, component, sizes):
        """Return whether a file may contain this description with ``component``."""
        is_latent = super().describes(component, sizes)
        return is_latent and np.array_equal(self.ordinal, component.cells.columns)

    def build(self, X, weights, sizes=None):
        """Return a Gaussian component of latent values, see :class:`ComponentSpec`."""
        cells = cut_by_classes(models.Cells.from_frequencies(X, weights, self.ordinal), X, weights)
        return models.make_latent_gaussian_component(
            X, weights, self.covariance_type, cells, read_gaussian_prior(self)
        )


@in_files("components.Categorical")
@dataclass(eq=False, repr=False)
class Categorical(_SpecByCell):
    """Columns of categories, independent given the component, with Dirichlet priors.

    Parameters
    ----------
    concentration_prior : float, array-like of shape (n_categories,), or "auto", default="auto"
        Concentration of the Dirichlet prior at each category. An array has the concentrations of
        all columns, column after column in the order of codes. "auto" starts with 1 and learns such
        an array, with numbers between 0.001 and 1,000. It maximises the bound plus the log of a
        prior that pulls the concentrations towards 1 with the weight of two components.
    categories : "auto" or list of array-like, default="auto"
        Categories of each column in the order of their codes. "auto" uses the categories in the
        rows of ``fit``, sorted, or the categories that the dtype of a column declares.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.

    Examples
    --------
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import Categorical
    >>> X = [["cat", "milk"], ["dog", "bone"]] * 50
    >>> items = Categorical(concentration_prior=0.1)
    >>> mixture = MemoizedDPMixture(components=items, random_state=0).fit(X)
    >>> mixture.predict_column(X[:2], 1).tolist()
    ['milk', 'bone']
    """

    encoding = "category"
    _likelihoods = (models.Categorical,)
    _parameter_constraints = {
        "concentration_prior": [AUTO, POSITIVE, "array-like"],
        "categories": [StrOptions({"auto"}), list],
        **MISSING_CONSTRAINT,
    }
    concentration_prior: Any = "auto"
    _: KW_ONLY
    categories: Any = "auto"
    missing: str = "ignore"

    def describes(self, component, sizes):
        """Return whether a file may contain this description with ``component``."""
        return super().describes(component, sizes) and component.sizes == sizes

    def build(self, X, weights, sizes):
        """Return independent categorical columns, see :class:`ComponentSpec`."""
        n_categories = sum(sizes)
        concentrations = 1.0 if is_auto(self.concentration_prior) else self.concentration_prior
        shape = f"(n_categories,) = ({n_categories},)"
        legal = f"a number or an array of shape {shape} for the categories of all columns"
        prior = positive_numbers("concentration_prior", concentrations, legal, (n_categories,))
        component = models.Categorical(prior, tuple(sizes), X.dtype)
        # A number stands for equal concentrations, and is published as a number.
        published = prior if np.ndim(concentrations) else float(concentrations)
        return component, {"concentration_prior": published}

    def learner(self, component):
        """Return the learner of the concentrations, see :class:`ComponentSpec`."""
        if not is_auto(self.concentration_prior):
            return None
        return models.DirichletLearner("concentration_prior", component.sizes)


@in_files("components.Bernoulli")
@dataclass(eq=False, repr=False)
class Bernoulli(_SpecByCell):
    """Binary columns, independent given the component, with beta priors.

    Parameters
    ----------
    feature_prior : float, array-like of shape (2,) or (n_columns, 2), or "auto", default="auto"
        Parameters (a, b) of the beta prior of the probability of a one. A number stands for both.
        "auto" starts with 1 and learns the parameters of each column, between 0.001 and 1,000. It
        maximises the bound plus the log of a prior that pulls the parameters towards 1 with the
        weight of two components.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.

    Examples
    --------
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import Bernoulli
    >>> X = [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]] * 50
    >>> MemoizedDPMixture(components=Bernoulli(), random_state=0).fit(X).n_components_
    2
    """

    encoding = "binary"
    _likelihoods = (models.Bernoulli,)
    _parameter_constraints = {
        "feature_prior": [AUTO, POSITIVE, "array-like"],
        **MISSING_CONSTRAINT,
    }
    feature_prior: Any = "auto"
    _: KW_ONLY
    missing: str = "ignore"

    def build(self, X, weights, sizes=None):
        """Return independent binary columns, see :class:`ComponentSpec`."""
        prior = make_beta_prior(self.feature_prior, X.shape[1])
        component = models.Bernoulli(prior, X.dtype, has_sparse_rows(X, weights))
        return component, {"feature_prior": prior}

    def learner(self, component):
        """Return the learner of the beta priors, see :class:`ComponentSpec`."""
        return make_beta_learner(component) if is_auto(self.feature_prior) else None


@dataclass(eq=False, repr=False)
class _Counts(_SpecByCell):
    """Base of descriptions of counts.

    The expectation of a count is the rate of its column times the exposure of its row, such as the
    time or the area in which events were counted. The rates have gamma priors.
    """

    encoding = "count"
    _parameter_constraints = {
        "shape_prior": [AUTO, POSITIVE],
        "rate_prior": [None, AUTO, POSITIVE, "array-like"],
        "exposure": [None, str, Integral],
        **MISSING_CONSTRAINT,
    }
    shape_prior: Any = "auto"
    _: KW_ONLY
    rate_prior: Any = "auto"
    exposure: Any = None
    missing: str = "ignore"

    def check(self):
        """Raise ValueError or TypeError for illegal parameters."""
        if np.ndim(self.exposure) > 0:
            raise ValueError(
                f"The 'exposure' parameter of {type(self).__name__} takes the name or the position "
                f"of a column of X, or 'row_total'. Got values, a {type(self.exposure).__name__}. "
                "Make them a column of X, such as X.assign(depth=values), and pass its name: "
                "exposure='depth'."
            )
        super().check()

    def _read_prior_and_exposure(self, X, weights):
        """Return the prior of the rates, whether rows are sparse, and the exposure.

        Returns
        -------
        shape, rate : ndarray of shape (D,)
            Parameters of the gamma prior of each column.
        is_sparse : bool
            Whether the rows, or the rows of any chunk, are sparse.
        exposure_arguments : dict
            Arguments of the component. ``exposure`` is "none", "column" or "row_total". ``typical``
            is the average exposure of a row. ``shares`` (D,) are the shares of the columns in the
            sum of all counts; None unless the exposure is the row total.
        """
        # Without a column of exposures, the parameter is None or "row_total".
        exposure = "column" if self.reads_exposure else self.exposure or "none"
        shares = None
        if exposure == "row_total":
            totals, *_ = sums_of_rows(X, weights, partial(_sum_counts, "none", None))
            shares = totals / max(totals.sum(), 1.0)
        # See the results of `_sum_counts`.
        totals, exposed, total_exposure, total_weight, n_sparse_chunks = sums_of_rows(
            X, weights, partial(_sum_counts, exposure, shares)
        )
        shape = np.full(totals.size, _read_initial_value(self.shape_prior))
        if self.rate_prior is None or is_auto(self.rate_prior):
            # The prior mean of a rate is the mean of the data, or 1 if the column has no counts.
            mean = np.where(totals > 0.0, totals, 1.0) / np.where(totals > 0.0, exposed, 1.0)
            rate = shape / mean
        else:
            legal = f"a number or an array of shape (n_columns,) = ({shape.size},)"
            rate = positive_numbers("rate_prior", self.rate_prior, legal, shape.shape)
        typical = 1.0 if exposure == "none" else float(total_exposure / total_weight)
        exposure_arguments = {"exposure": exposure, "typical": typical, "shares": shares}
        return shape, rate, bool(n_sparse_chunks), exposure_arguments


@in_files("components.Poisson")
class Poisson(_Counts):
    """Columns of counts, Poisson and independent given the component, with gamma priors.

    Counts are proportional to the exposure of the row, if there is one. Sparse rows remain sparse.

    Parameters
    ----------
    shape_prior : float or "auto", default="auto"
        Shape of the gamma prior of a rate. "auto" starts with 1 and learns one shape for all
        columns, between 0.001 and 1,000, at the maximum of the bound.
    rate_prior : float, array-like of shape (n_columns,), "auto" or None, default="auto"
        Rate of the gamma prior of each column. None is the shape divided by the mean of the
        column's counts per exposure, so that the prior mean is the mean of the data. "auto" starts
        with these rates and learns them.
    exposure : str, int, "row_total" or None, default=None
        The quantity to which counts are proportional, such as the years or the area in which events
        were counted. It is the name or position of another column of the table, which has positive
        numbers, or "row_total", the sum of the component's columns. If columns are missing in a
        row, this sum is divided by the share of the row's observed columns in the counts of all
        rows. None is 1. Densities are not conditional on "row_total": they are the densities of
        independent counts, and do not add up to 1 over all rows with the same total.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.

    See Also
    --------
    skvt.components.NegativeBinomial : Counts whose variance exceeds their mean.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import Poisson
    >>> rng = np.random.default_rng(0)
    >>> years = rng.uniform(1.0, 9.0, 200)
    >>> visits = rng.poisson(years * np.repeat([1.0, 20.0], 100))
    >>> blocks = [("visits", Poisson(exposure=1), [0])]  # in proportion to column 1
    >>> mixture = MemoizedDPMixture(components=blocks, random_state=0)
    >>> mixture.fit(np.column_stack([visits, years])).n_components_
    2
    """

    _likelihoods = (models.Poisson,)

    def build(self, X, weights, sizes=None):
        """Return independent Poisson columns, see :class:`ComponentSpec`."""
        shape, rate, is_sparse, exposure_arguments = self._read_prior_and_exposure(X, weights)
        priors = {"shape_prior": _read_initial_value(self.shape_prior), "rate_prior": rate}
        prior = np.stack([shape, rate], axis=1)
        return models.Poisson(prior, X.dtype, is_sparse, **exposure_arguments), priors

    def learner(self, component):
        """Return the learner of the shape, the rates or both, see :class:`ComponentSpec`."""
        names = select_learned_names(self, ("shape_prior", "rate_prior"))
        return models.GammaLearner(names) if names else None


@in_files("components.NegativeBinomial")
@dataclass(eq=False, repr=False)
class NegativeBinomial(_Counts):
    """Columns of counts with a larger variance than Poisson, independent given the component.

    A count has the mean ``exposure * rate`` and the variance ``mean + dispersion * mean**2``. Each
    component has a separate rate and a separate dispersion for each column. The dispersion is one
    of 16 values from 0.01 to 20, with exact posterior probabilities. Sparse rows stay sparse.

    Parameters
    ----------
    shape_prior : float, default=1.0
        Number of events that the prior of a rate is worth. In the limit of no dispersion it is the
        shape of the prior of :class:`Poisson`.
    rate_prior : float, array-like of shape (n_columns,), or None, default=None
        The exposure in which these events occur. None is the shape divided by the mean of the
        column's counts per exposure, so that the prior mean is the mean of the data, whatever the
        dispersion.
    exposure : str, int, "row_total" or None, default=None
        As in :class:`Poisson`. An exposure of a new row counts as at most twice the largest
        exposure in the rows of ``fit``, and as at least half the smallest.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.
    dispersion_prior : "auto", array-like of shape (16,), or None, default="auto"
        Prior probabilities of the dispersions ``np.geomspace(0.01, 20, 16)``, the same for all
        columns. None makes them equal. "auto" starts with equal probabilities and learns them at
        the maximum of the bound plus the log of a prior that pulls them towards equal
        probabilities with the weight of eight columns.

    See Also
    --------
    skvt.components.Poisson : Counts whose variance is their mean.

    Notes
    -----
    Without an exposure, a pass takes about twice as long as with :class:`Poisson`, and a component
    takes 9 times the memory, because statistics are kept for each dispersion. With an exposure, a
    pass takes about five times as long, and a component about 20 times the memory, because
    statistics are also kept at 8 to 20 exposures. Births in many columns take even longer.

    With an exposure, the bound is lower than the best possible bound by some hundredths of a nat
    for each column and component, and predictive densities approximate the posterior of a rate by a
    beta prime distribution for each row. Without an exposure, predictive densities are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import NegativeBinomial
    >>> X = np.random.default_rng(0).poisson([[9.0, 1.0, 3.0]] * 60 + [[1.0, 9.0, 3.0]] * 60)
    >>> counts = NegativeBinomial(exposure="row_total")
    >>> MemoizedDPMixture(components=counts, random_state=0).fit(X).n_components_
    2
    """

    _likelihoods = (models.NegativeBinomial,)
    _parameter_constraints = _Counts._parameter_constraints | {
        "shape_prior": [POSITIVE],
        "rate_prior": [None, POSITIVE, "array-like"],
        "dispersion_prior": [AUTO, None, "array-like"],
    }
    shape_prior: Any = 1.0
    _: KW_ONLY
    rate_prior: Any = None
    dispersion_prior: Any = "auto"

    def build(self, X, weights, sizes=None):
        """Return independent negative binomial columns, see :class:`ComponentSpec`."""
        shape, rate, _, exposure_arguments = self._read_prior_and_exposure(X, weights)
        # Prior weights of the dispersions, which need not add up to 1.
        prior_weights = np.full(models.SIZES.size, 1.0 / models.SIZES.size)
        if not (self.dispersion_prior is None or is_auto(self.dispersion_prior)):
            legal = f"None, 'auto' or an array of shape ({models.SIZES.size},) of probabilities"
            prior_weights = positive_numbers(
                "dispersion_prior", self.dispersion_prior, legal, models.SIZES.shape,
                allows_number=False,
            )  # fmt: skip
        exposure, shares = exposure_arguments["exposure"], exposure_arguments["shares"]
        # Exposures at which statistics are kept, in ascending order.
        points = np.ones(1)
        if exposure != "none":
            exposures = evaluate_rows(X, weights, partial(_read_exposures, exposure, shares))
            exposures = exposures[exposures > 0.0] if np.any(exposures > 0.0) else np.ones(1)
            points = models.make_exposure_points(exposures.min(), exposures.max())
            typical = np.clip(exposure_arguments["typical"], points[0], points[-1])
            exposure_arguments["typical"] = float(typical)
        # The prior is empty at first; `with_prior` sets it.
        empty_prior = np.empty((shape.size, 0))
        component = models.NegativeBinomial(empty_prior, X.dtype, points, **exposure_arguments)
        priors = {"shape_prior": float(self.shape_prior), "rate_prior": rate,
                  "dispersion_prior": prior_weights / prior_weights.sum()}  # fmt: skip
        # The parameters of the component are sizes, 1 / dispersion, in ascending order, which is
        # the reverse of the order of dispersions.
        return component.with_prior(shape, rate, prior_weights[::-1]), priors

    def learner(self, component):
        """Return the learner of the probabilities of dispersions, see :class:`ComponentSpec`."""
        return models.SizesLearner() if is_auto(self.dispersion_prior) else None


@in_files("components.Multinomial")
@dataclass(eq=False, repr=False)
class Multinomial(ComponentSpec):
    """Columns that count the tokens of a row, such as words, with a Dirichlet prior.

    Given the component, the tokens of a row are independent draws of columns with the same
    probabilities; the number of tokens is not modelled. Sparse rows stay sparse. The density is the
    probability of the sequence of tokens, without the multinomial coefficient. Rows drawn from the
    mixture have the average number of tokens of the rows of ``fit``.

    Parameters
    ----------
    concentration_prior : float or "auto", default="auto"
        Concentration of the Dirichlet prior at each column. "auto" starts with 1 and learns one
        value for all columns, between 0.001 and 1,000. It maximises the bound plus the log of a
        prior that pulls the concentration towards 1 with the weight of two components.

    Examples
    --------
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import Multinomial
    >>> X = [[9, 1, 0], [0, 2, 8]] * 50
    >>> MemoizedDPMixture(components=Multinomial(), random_state=0).fit(X).n_components_
    2
    """

    encoding = "count"
    _likelihoods = (models.Multinomial,)
    allows_missing = False
    _parameter_constraints = {"concentration_prior": [AUTO, POSITIVE]}
    concentration_prior: Any = "auto"

    def build(self, X, weights, sizes=None):
        """Return a distribution of tokens over the columns, see :class:`ComponentSpec`."""
        concentration = _read_initial_value(self.concentration_prior)
        prior = np.full(X.shape[1], concentration)
        total_tokens, total_weight = sums_of_rows(X, weights, sum_total_and_weight)
        n_tokens = max(1, round(float(total_tokens) / float(total_weight)))
        component = models.Multinomial(prior, X.dtype, n_tokens)
        return component, {"concentration_prior": concentration}

    def learner(self, component):
        """Return the learner of the concentration, see :class:`ComponentSpec`."""
        if not is_auto(self.concentration_prior):
            return None
        sizes = (component.n_features,)
        return models.DirichletLearner("concentration_prior", sizes, symmetric=True)


@in_files("components.StudentT")
@dataclass(eq=False, repr=False)
class StudentT(_GaussianSpec):
    """Real columns with outliers, such as typing errors, by Student t distributions.

    The component is a Gaussian whose precision is multiplied by a gamma variable for each row
    ("full") or each value ("diag"). Outliers thus have little weight, while a Gaussian component
    would become wider, or several components would take its place.

    Parameters
    ----------
    covariance_type : {"full", "diag"}, default="full"
        Shape of each component's scale. With "diag", columns are independent given the component,
        so that an outlier in one column has no influence on the other columns.
    mean_precision_prior : float, "auto" or None, default="auto"
        This and the next three parameters are as in :class:`Gaussian`, with the scale in place of
        the covariance.
    mean_prior : array-like of shape (n_columns,), "auto" or None, default="auto"
        Prior mean.
    degrees_of_freedom_prior : float, "auto" or None, default="auto"
        Degrees of freedom of the prior of the precision, not of the t distribution of the rows.
    covariance_prior : array-like, "auto" or None, default="auto"
        Inverse scale of the prior of the precision.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.
    degrees_of_freedom : float or None, default=None
        Degrees of freedom of the t distribution of the rows. None learns them, between 1 and 100,
        at the maximum of the bound: for each component ("full"), or for each component and column
        ("diag").

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.components import StudentT
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> X[0] = 1000.0  # a typing error
    >>> mixture = MemoizedDPMixture(components=StudentT(), max_components=2, random_state=0).fit(X)
    >>> int(mixture.score_samples(X).argmin())
    0
    """

    _likelihoods = (models.StudentT,)
    _parameter_constraints = {
        "covariance_type": [StrOptions({"full", "diag"})],
        "degrees_of_freedom": [None, POSITIVE],
        **_GaussianSpec._parameter_constraints,
    }
    # :func:`build_gaussian_component` reads these attributes, which are parameters of `Gaussian`.
    mean_type = "full"
    max_rank = None
    covariance_type: str = "full"
    _: KW_ONLY
    degrees_of_freedom: float | None = None

    def build(self, X, weights, sizes=None):
        """Return a Student t component, see :class:`ComponentSpec`."""
        gaussian, priors = build_gaussian_component(self, self.covariance_type, X, weights)
        return models.make_student_t_component(gaussian, self.degrees_of_freedom), priors


@in_files("components.Hurdle")
@dataclass(eq=False, repr=False)
class Hurdle(ComponentSpec):
    """Columns in which many values equal the same number, such as zero.

    The number is a point mass. For each component and column, a Bernoulli with a uniform prior
    models whether a value is at the point mass. A further component describes the other values, and
    treats values at the point mass as missing. Densities of real values are with respect to
    Lebesgue measure plus a unit mass at the point: ``score_samples`` uses the log probability of a
    value at the point mass, and the log density of any other value.

    Parameters
    ----------
    component : ComponentSpec
        Component of the other values, which are real numbers or counts. A component of counts
        describes the count minus ``at`` minus 1.
    at : float or array-like of shape (n_columns,), default=0
        The point mass of all columns, or of each column. For counts it is the smallest count of
        all columns, such as 1 for numbers of purchases. Smaller counts raise ValueError, in ``fit``
        and in later rows.
    missing : {"ignore", "informative"}, default="ignore"
        Whether missing values carry information, see :class:`Gaussian`.

    Examples
    --------
    >>> from skvt.components import Gaussian, Hurdle
    >>> hurdle = Hurdle(Gaussian("diag"), at=0)
    """

    _parameter_constraints = {
        "component": [ComponentSpec],
        "at": [Interval(Real, None, None, closed="neither"), "array-like"],
        **MISSING_CONSTRAINT,
    }
    component: ComponentSpec
    at: Any = 0
    _: KW_ONLY
    missing: str = "ignore"

    @property
    def encoding(self):
        """Encoding of the component's columns."""
        return self.component.encoding

    @property
    def smallest_count(self):
        """The smallest legal value of columns of counts."""
        return int(self.at) if self.encoding == "count" else 0

    def check(self):
        """Raise ValueError or TypeError for illegal parameters."""
        self._validate_params()
        inner_spec = self.component
        inner_spec.check()
        is_legal = self.encoding in ("real", "count") and inner_spec.allows_missing
        if not is_legal or inner_spec.missing != "ignore" or inner_spec.exposure is not None:
            raise ValueError(
                "The 'component' parameter of Hurdle must describe real numbers or counts and "
                "allow missing values, with missing='ignore' and without an exposure. Set "
                f"'missing' of the Hurdle instead. Got {inner_spec!r}."
            )

    def for_columns(self, columns, positions_of):
        """Return the description with positions in the component, see :class:`ComponentSpec`.

        Raise ValueError for illegal point masses.
        """
        at = np.asarray(self.at, np.float64)
        is_legal = np.isfinite(at).all() and at.shape in ((), (len(columns),))
        if self.encoding == "count":
            is_legal = is_legal and at.ndim == 0 and at >= 0.0 and at == np.floor(at)
        if not is_legal:
            raise ValueError(
                "The 'at' parameter must be a finite number, or an array of shape (n_columns,) = "
                f"({len(columns)},) of them; for counts it must be a whole number >= 0. Got "
                f"{self.at!r} instead."
            )
        inner_spec = self.component.for_columns(columns, positions_of)
        return Hurdle(inner_spec, self.at, missing=self.missing)

    def chosen(self, X, weights, given=None):
        """Make the choices of the component of other values, see :class:`ComponentSpec`."""
        other_values, _, _ = self._separate_other_values(X, given)
        inner_spec, choices = self.component.chosen(other_values, weights, given)
        return Hurdle(inner_spec, self.at, missing=self.missing), choices

    def describes(self, component, sizes):
        """Return whether a file may contain this description with ``component``."""
        is_hurdle = type(component) is models.Indicated and bool(component.at)
        return is_hurdle and _can_describe(self.component, component.blocks[0].component, sizes)

    def build(self, X, weights, sizes=None):
        """Return a component of other values and indicators, see :class:`ComponentSpec`."""
        return self.build_given(X, weights, sizes, None)

    def build_given(self, X, weights, sizes, given):
        """Return a component of other values and indicators, see :class:`ComponentSpec`."""
        other_values, point_masses, shift = self._separate_other_values(X, given)
        component, priors = _build_likelihood(self.component, other_values, weights, sizes, given)
        return models.add_indicators(component, point_masses, shift, given=given), priors

    def _separate_other_values(self, X, given):
        """Return rows of the other values, the point masses, and the shift of the other values.

        In these rows, values at the point mass are missing, and the shift is subtracted from all
        other values. It is ``at + 1`` for counts, which then begin at 0, and otherwise 0.
        """
        n_columns = X.shape[1] - (0 if given is None else given.n_columns)
        # Point masses are rounded to the precision of the data, because they are compared for
        # equality with the data.
        masses = tuple(np.full(n_columns, self.at, X.dtype).tolist())
        shift = float(self.at) + 1.0 if self.encoding == "count" else 0.0
        return map_rows(X, partial(models.without_point_masses, masses, shift)), masses, shift

    def learner(self, component):
        """Return the learner of the prior of other values, see :class:`ComponentSpec`."""
        return _make_learner(self.component, component)


def choose_components(blocks, X, weights, given, given_positions):
    """Return a list of the results of :meth:`ComponentSpec.chosen` for the blocks of a table.

    ``given`` is the :class:`~skvt.models.mixture.GivenColumns` of the columns at
    ``given_positions``, or None. Each choice is made by short fits to the block's columns, and is
    printed or logged.
    """
    choices = []
    for block in blocks:
        with models.name_block_in_errors(block.name):
            columns = models.as_slice(np.append(block.columns, given_positions))
            choices.append(block.spec.chosen(X[:, columns], weights, given))
    return choices


def build_component(spec, X, weights, sizes, *, open_levels=False, given=None):
    """Return the likelihood that ``spec`` describes, its prior's parameters, and their learner.

    The likelihood has indicators of observed values if missing values are informative. The learner
    is None if the prior is fixed. With ``open_levels``, later rows may have levels of categories
    that do not occur in these rows. ``given`` is the :class:`~skvt.models.mixture.GivenColumns` of
    the last columns of X, or None. ``sizes`` is explained in :meth:`ComponentSpec.build`.
    """
    component, priors = _build_likelihood(spec, X, weights, sizes, given)
    if open_levels and sizes is not None:
        component = component.with_unknown_levels
    if spec.missing == "informative":
        n_given = 0 if given is None else given.n_columns
        # Given columns and the exposure have no indicators.
        n_columns = component.n_features - n_given - spec.reads_exposure
        component = models.add_indicators(
            component, exposed=spec.reads_exposure, given=given,
            shared=models.find_columns_missing_together(X, weights, n_columns),
        )  # fmt: skip
    return component, priors, _make_learner(spec, component)


def _build_likelihood(spec, X, weights, sizes, given):
    """Return the likelihood that ``spec`` builds, and the prior's parameters.

    The given columns are the last columns of X, unless ``given`` is None.
    """
    if given is None:
        return spec.build(X, weights, sizes)
    return spec.build_given(X, weights, sizes, given)


def _make_learner(spec, component):
    """Return the learner of the prior of a component that ``spec`` describes, or None.

    If the component wraps another one, for logarithms, indicators or cells, only the prior of the
    wrapped component is learned.
    """
    if not isinstance(component, models.WrapperMixin):
        return spec.learner(component)
    learner = _make_learner(spec, component.value_component)
    return None if learner is None else models.ValuesLearner(learner)


def can_describe(spec, component, sizes):
    """Return whether ``spec`` can describe a component that was read from a file.

    The condition is that :func:`build_component` can have returned the component, before or after
    :func:`~skvt.models.mixture.with_sparse_differences` has changed it.
    """
    component = models.without_sparse_differences(component)
    if spec.missing == "informative":
        if type(component) is not models.Indicated or component.at:
            return False
        component = component.blocks[0].component
    return _can_describe(spec, component, sizes)


def _can_describe(spec, component, sizes):
    """Return whether ``spec`` can describe a component without indicators of missing values."""
    if type(component) is models.Conditioned:
        # All columns are repeated for each cell of the given columns.
        sizes = sizes and sizes * component.given.shares.size
        component = component.value_component
    return spec.describes(component, sizes)


#: Class of descriptions by the name that users may pass instead of an object.
SPECS_BY_NAME = {
    "gaussian": Gaussian,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "multinomial": Multinomial,
    "negative_binomial": NegativeBinomial,
}


def copy_component(component):
    """Return a copy of a description, or a new description for a name in `SPECS_BY_NAME`."""
    return SPECS_BY_NAME[component]() if isinstance(component, str) else clone(component)


def _with_positions(spec, name, columns, positions_of):
    """Return a copy of ``spec`` whose parameter ``name`` has positions within ``columns``.

    Raise ValueError if the parameter selects no column, or a column not among ``columns``.
    """
    selector = getattr(spec, name)
    selected = [] if isinstance(selector, bool) else positions_of(selector)
    if not selected or set(selected) - set(columns):
        raise ValueError(
            f"The {name!r} parameter must select at least one of the component's columns, and no "
            f"other columns. Got {selector!r}. For all columns of the component, list them again."
        )
    copied = clone(spec)
    positions = [position for position, column in enumerate(columns) if column in selected]
    setattr(copied, name, np.array(positions, np.intp))
    return copied


def _read_exposures(exposure, shares, X):
    """Return the exposure (n,) of each row, for `evaluate_rows`."""
    _, exposures = models.split_exposure(X, exposure, shares=shares)
    return exposures


def _sum_counts(exposure, shares, X, weights):
    """Return sums over rows of counts and exposures, for `sums_of_rows`.

    Returns
    -------
    totals, exposed : ndarray of shape (D,)
        Weighted sum of the counts of each column, and of the exposures of the rows in which the
        column is observed.
    total_exposure, total_weight : float
        Weighted sum of the exposures of all rows, and sum of the weights.
    n_sparse_chunks : float
        1 if the rows are sparse, else 0. The sum is the number of sparse chunks.
    """
    counts, exposures = models.split_exposure(X, exposure, shares=shares)
    weighted_exposures = weights * exposures
    # ``values`` have 0 in place of missing values. ``is_missing`` is sparse if the rows are.
    values, is_missing = without_missing(counts)
    if sp.issparse(counts):
        unobserved = 0.0 if is_missing is None else weighted_exposures @ is_missing
        exposed = np.full(counts.shape[1], weighted_exposures.sum()) - unobserved
    else:
        exposed = weighted_exposures @ ~np.isnan(counts)
    total_exposure, is_sparse = weighted_exposures.sum(), float(sp.issparse(counts))
    return weights @ values, exposed, total_exposure, weights.sum(), is_sparse


def _read_initial_value(value):
    """Return the value of a parameter as a float; a learned parameter starts at 1."""
    return 1.0 if is_auto(value) else float(value)


def make_beta_learner(component):
    """Return the learner of the beta priors of binary columns."""
    return models.DirichletLearner("feature_prior", (2,) * component.n_features)


def make_beta_prior(feature_prior, n_columns):
    """Return the parameters (a, b) of the beta prior of each column, (n_columns, 2)."""
    value = 1.0 if is_auto(feature_prior) else feature_prior
    legal = f"a number, a pair (a, b) or an array of shape (n_features, 2) = ({n_columns}, 2)"
    return positive_numbers("feature_prior", value, legal, (n_columns, 2), (2,))


def positive_numbers(name, value, legal, shape, *other_shapes, allows_number=True):
    """Return the value of the parameter ``name``, broadcast to ``shape``, as float64.

    The value may have ``shape``, one of ``other_shapes`` or, with ``allows_number``, be a number.
    Raise ValueError if the value has another shape, or numbers that are not positive and finite.
    ``legal`` is the phrase that describes legal values in the error.
    """
    numbers = np.asarray(value, np.float64)
    legal_shapes = (shape, *other_shapes, ()) if allows_number else (shape, *other_shapes)
    if numbers.shape not in legal_shapes or not np.all((numbers > 0.0) & np.isfinite(numbers)):
        raise ValueError(
            f"The {name!r} parameter must be {legal}, with all numbers in the range (0, inf). Got "
            f"{value!r} instead."
        )
    return np.array(np.broadcast_to(numbers, shape))
