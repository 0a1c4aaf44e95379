"""The estimator of mixtures of tables with real, categorical, binary and count columns.

Memoized inference finds the number of components. The memo of a batch of rows is the contribution
of the batch to the statistics and the bound. The mathematics is in :mod:`skvt.models.mixture`.
"""

from dataclasses import KW_ONLY, replace
from functools import partial
from numbers import Integral
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import clone

from skvt._estimators._mixtures import require_rows, start_from_labels
from skvt._results import GrowingMixin, MixtureEstimator, learned_values
from skvt._sklearn_private import StrOptions
from skvt.components import ComponentSpec
from skvt.components.specs import (
    SPECS_BY_NAME,
    build_component,
    choose_components,
    copy_component,
    is_auto,
)
from skvt.files import in_files
from skvt.fitting import (
    AUTO,
    FIXED,
    POSITIVE,
    MemoizedMethod,
    check_memoized,
    estimator,
    fitted_property,
    make_plan_with_moves,
)
from skvt.inference import Workers
from skvt.models.mixture import (
    Block,
    GivenColumns,
    Mixture,
    Product,
    ProductLearner,
    StickBreaking,
    as_slice,
    name_block_in_errors,
    with_sparse_differences,
)
from skvt.readers import (
    UNKNOWN_OPTIONS,
    TableReader,
    is_single_component,
    list_blocks,
    make_level_array,
    make_table_report,
)
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import require_positive_int
from skvt.rows import sums_of_rows


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files(
    "estimators.MemoizedDPMixture",
    attributes=("_table",),
    fitted={"model": (Mixture,), "model.weights": (StickBreaking,), "model.component": (Product,)},
)
@estimator
class MemoizedDPMixture(GrowingMixin, MixtureEstimator):
    """Dirichlet process mixture of rows of any columns that finds its number of components.

    Tables may have real, ordinal, categorical, binary and count columns, and missing values, which
    are integrated out. Blocks of columns are conditionally independent given the component of a
    row, and each block has its own likelihood. Components are born, merged and deleted during the
    fit as the data support them, by memoized inference [HS13]_, as in
    :class:`~skvt.MemoizedDPGMM`.

    Parameters
    ----------
    .. shared: n_components (memoized)
    components : "auto", component, str, or list of tuple, default="auto"
        Likelihoods of the columns. A list has a tuple ``(name, component, columns)`` for each
        block, as in scikit-learn's :class:`~sklearn.compose.ColumnTransformer`. A single component,
        such as ``NegativeBinomial(exposure="row_total")``, describes all columns except given
        columns and the exposure; its block has the name "all".

        A component is an object of :mod:`skvt.components`, or a name: "gaussian", "categorical",
        "bernoulli", "poisson", "negative_binomial" or "multinomial". Columns are names, positions,
        slices, boolean masks, or a callable such as
        :func:`~sklearn.compose.make_column_selector`. Columns that are not listed are left out.

        "auto" chooses components by the types of the columns. Booleans belong to Bernoulli
        ("flags"). Strings, categories and other objects belong to Categorical ("categories").
        Numbers belong to ``Gaussian("auto", log="auto")`` ("numbers"). In a data frame in memory,
        whole numbers with two to six distinct values belong to Categorical, and whole numbers from
        0 on belong to NegativeBinomial ("counts") if it describes them better, unless there are
        ``given`` columns. Numbers with a point mass belong to a Hurdle of a Gaussian ("hurdles") or
        of counts ("zeros and counts", or "counts from one" if the smallest is 1). Few zeros are a
        point mass, too, if the other values are amounts, which are much better in logarithms
        ("amounts"). The columns of a sparse matrix belong to Multinomial ("counts"). In parentheses
        are the names of the blocks. Dates are left out, also as text, and so are columns without
        information, see ``table_report_``. In a stream, constant columns and identifiers are kept,
        because later rows may vary; only identifiers that number the rows are left out.

        A point mass is a frequent value of a column of at least 30 values. If it is zero, the
        smallest or the largest value, it makes up more than a tenth of the values, and is more than
        three times as frequent as each value next to it. If it is another value, these limits are
        three tenths and ten times. The other values must have more than ten distinct numbers among
        them, or at least half as many distinct numbers as there are other values.

        A nested parameter has the name ``components__<name>__<parameter>``, or
        ``components__<parameter>`` if one component describes all columns.
    handle_unknown : {"prior", "missing", "error"}, default="prior"
        How to treat a category that did not occur in the rows of ``fit``, or a whole number that
        was read as a category. "prior": the value gets the share that the Dirichlet prior of its
        column gives to one more level without any row, so that ``score_samples`` is never higher
        than for a level of ``fit``. A :class:`~skvt.ColumnWarning` names each such column once per
        call. The value does not affect the responsibilities of the row. "missing": as with "prior",
        but without a warning, and ``impute`` replaces such values. "error": a ValueError names the
        column and the value, and densities reserve no share for unknown categories. After a fit,
        ``set_params(handle_unknown="error")`` makes predictions and ``partial_fit`` refuse such
        rows; densities stay as they are. Other changes take effect in the next fit.
    given : str, int, list of str or int, slice, mask, callable or None, default=None
        Columns that explain the other columns and have no distribution. They are selected like the
        columns of a component, in arrays by position, and belong to no component. All methods need
        their values. Numbers must not be missing. A missing category is a separate level if a
        category was missing in ``fit``. Levels that did not occur in ``fit`` raise an error.

        In each component, real columns have a linear regression on the given columns, by a Gaussian
        of the type "diag", "full" or "auto". The regressors are the given numbers, and an indicator
        of each level but the first of booleans, categories and whole numbers with 2 to 6 values.
        Binary columns, categorical columns and counts have separate parameters for each combination
        of given levels that occurs in ``fit``, and one more set for all other combinations. There
        are at most 200 sets, and given numbers do not matter for these columns. StudentT,
        LatentGaussian and Multinomial do not work with given columns. See the guide,
        :doc:`/guide/given_columns`.
    sparse_differences : bool, default=False
        Whether components may share parameters, column by column. In each column a component has a
        separate parameter with probability pi, and otherwise the parameter that all components
        share. pi is unknown and differs between components and blocks. A small cluster then pays
        only for the columns in which it differs, so that it is found in wide tables, and
        ``column_relevance_`` and ``describe`` name these columns.

        This is for columns that are independent given the component: Categorical, Bernoulli,
        Poisson, NegativeBinomial, and Gaussian of the type "diag" or of known variance, also with
        ``log``, within a Hurdle and with informative missing values. Other blocks, and columns that
        given columns explain, keep separate parameters. See the guide,
        :doc:`/guide/small_clusters`.
    .. shared: max_components
    weight_concentration_prior : float, "auto" or None, default=None
        Concentration alpha of the prior of the weights. A larger concentration favours more
        components. None is 1. "auto" starts with 1 and learns alpha, between 0.001 and 1,000, at
        the maximum of the bound. Priors of :mod:`skvt.components` that are "auto" are learned in
        the same way.
    .. shared: init_params, labels_init, use_labels, labels, learning_method, moves (memoized)
    .. shared: n_batches & batch_size
    .. shared: n_parallel_batches (memoized), temperature, learning_decay, learning_offset
    .. shared: total_samples (memoized), max_iter, tol, evaluate_every, n_init, warm_start, n_jobs
    .. shared: verbose, verbose_interval, random_state

    Attributes
    ----------
    .. shared: n_components_ (memoized), n_active_components_, weights_, labels_
    .. shared: component_classes_
    blocks_ : list of tuple
        A tuple ``(name, component, columns)`` for each block as fitted. The component is an object
        of :mod:`skvt.components`, and the columns are names, or positions if they have no names.
    categories_ : dict
        Categories of the columns of each block that has some, by the block's name: a list with an
        array for each column, in the order of the codes.
    table_report_ : DataFrame of shape (n_features, 3) or dict of list
        How each column was read, and why. "column" is the column, "read_as" is its component or
        "left out", and "why" gives the reason, or what to try if a column is probably read wrongly.
        It is a data frame of polars if X was one, and otherwise of pandas, or a dict of lists if
        pandas cannot be imported.

        The reasons are found before the fit. They concern columns without a value, constant
        columns, dates, identifiers, columns with one value in nine tenths of the rows, whole
        numbers with 2 to 10 values that are read as real, counts whose variance is three times
        their mean, and columns that repeat another column. A column of at least 30 rows is an
        identifier if nine tenths of its rows have distinct categories, or distinct whole numbers
        most of which follow each other. A :class:`~skvt.ColumnWarning` names these columns, with
        two exceptions: counts, because clusters also raise their variance, and whole numbers with
        more than 6 values, because they need not be codes. Chunks of Dask are not examined.
    priors_ : dict of dict
        Parameters of the priors, as used or learned, by the block's name.
    .. shared: block_relevance_, column_relevance_
    weight_concentration_ : ndarray of shape (2, K)
        Parameters (a, b) of q(v_k) = Beta.
    .. shared: hierarchy_, hierarchy_criteria_, n_clusters_, n_clusters_reason_
    .. shared: clusterings_, cluster_labels_
    .. shared: elbo_ & lower_bound_, history_ (memoized), lower_bounds_, move_log_
    .. shared: weight_concentration_prior_, restart_elbos_, n_batch_iter_, temperature_, converged_
    .. shared: n_iter_
    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks) and "components". The latter is again a joint posterior, with a block
        for each of ``blocks_``.
    .. shared: n_features_in_, feature_names_in_, words_

    See Also
    --------
    skvt.MemoizedDPGMM : The same for real columns with a joint covariance matrix.
    skvt.StructuredBernoulliMixture : Binary rows, by structured inference.

    Notes
    -----
    Memory: the memo of a batch holds ``K (P + K)`` numbers of 8 bytes for K components, where P is
    the number of sufficient statistics of all blocks. A block of d columns has

    - ``3 d`` statistics if it is a "diag" Gaussian, ``2 d + 2`` if it is "spherical", and
      ``d (d + 3) / 2 + 1`` if it is another or a latent Gaussian;
    - as many as there are categories for categorical columns;
    - ``2 d`` for binary columns, and d for a multinomial;
    - ``2 d + 1`` for Poisson columns, and ``17 d`` for negative binomial columns, or about ``36 d``
      with an exposure.

    With given columns of R numbers and levels, a "full" block has the statistics of ``d + R``
    columns, and a "diag" block about ``d R^2 / 2``. Binary columns, categorical columns and counts
    have their statistics once for each combination of given levels.

    References
    ----------
    .. [HS13] M. C. Hughes and E. B. Sudderth, "Memoized Online Variational Inference for Dirichlet
       Process Mixture Models", NeurIPS 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skvt import MemoizedDPMixture
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.integers(3, size=600)
    >>> table = pd.DataFrame(
    ...     {
    ...         "length": rng.normal([0.0, 4.0, 8.0], 1.0, size=(600, 3))[np.arange(600), kind],
    ...         "colour": np.array(["red", "blue", "red"])[kind],
    ...         "striped": rng.random(600) < np.array([0.1, 0.5, 0.9])[kind],
    ...     }
    ... )
    >>> table.loc[::7, "length"] = np.nan
    >>> mixture = MemoizedDPMixture(random_state=0).fit(table)
    >>> mixture.n_components_
    3
    """

    _reader_class = TableReader

    n_components: int = 1
    _: KW_ONLY
    components: Annotated[
        ComponentSpec | list | str,
        FIXED, StrOptions({"auto", *SPECS_BY_NAME}), ComponentSpec, list, tuple,
    ] = "auto"  # fmt: skip
    handle_unknown: Annotated[str, StrOptions({*UNKNOWN_OPTIONS})] = "prior"
    given: Annotated[Any, FIXED, None, str, Integral, "array-like", slice, callable] = None
    sparse_differences: Annotated[bool, FIXED, bool] = False
    max_components: int | None = None
    weight_concentration_prior: Annotated[float | str | None, FIXED, None, AUTO, POSITIVE] = None
    labels_init: ArrayLike | None = None
    use_labels: bool = False
    learning_method: MemoizedMethod = "memoized"
    max_iter: int = 100

    # --------------------------------------------------------------------------- parameters
    def get_params(self, deep=True):
        """Parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the components and their parameters, as ``components__<name>`` and
            ``components__<name>__<parameter>``, or ``components__<parameter>`` if one component
            describes all columns.

        Returns
        -------
        dict
            Values by name.
        """
        params = super().get_params(deep=deep)
        if deep and not is_single_component(self.components):
            for name, component, _ in _list_blocks_of_parameter(self.components):
                params[f"components__{name}"] = component
                if not isinstance(component, str):
                    nested = component.get_params(deep=True)
                    params |= {f"components__{name}__{key}": nested[key] for key in nested}
        return params

    def set_params(self, **params):
        """Set parameters, including the parameters of components.

        Parameters
        ----------
        **params : dict
            ``components__<name>`` replaces a component. ``components__<name>__<parameter>`` sets a
            parameter of a component, and so does ``components__<parameter>`` if one component
            describes all columns.

        Returns
        -------
        self : MemoizedDPMixture
            The estimator itself.
        """
        prefix = "components__"
        nested_params = {name: params[name] for name in params if name.startswith(prefix)}
        super().set_params(**{name: params[name] for name in params if name not in nested_params})
        # Names in order of depth: components are replaced before their parameters are set.
        for name in sorted(nested_params, key=lambda name: name.count("__")):
            self._set_component(name.removeprefix(prefix), nested_params[name])
        return self

    def _set_component(self, path, value):
        """Replace a component, or set its parameter, in a copy of the user's ``components``.

        ``path`` is "<name>" or "<name>__<parameter>", or "<parameter>" of a single component.
        """
        if is_single_component(self.components):
            self.components = copy_component(self.components).set_params(**{path: value})
            return
        name, _, parameter = path.partition("__")
        blocks = _list_blocks_of_parameter(self.components)
        names = [block_name for block_name, _, _ in blocks]
        if name not in names:
            known_names = names or "'auto', which has no parameters to set"
            raise ValueError(
                f"Invalid parameter 'components__{path}' for estimator {type(self).__name__}: "
                f"components are {known_names}."
            )
        position = names.index(name)
        _, component, columns = blocks[position]
        if parameter:
            value = copy_component(component).set_params(**{parameter: value})
        blocks[position] = (name, value, columns)
        self.components = blocks

    # --------------------------------------------------------------------------------- model
    def _build_model(self, X, weights, old=None):
        """Build the mixture of the blocks' components, with priors that are computed from the rows.

        ``old`` is None for a new fit. If a fit is continued, return its model ``old`` unchanged.
        """
        check_memoized(self)
        if old is not None:
            return old
        require_rows(self, X, self.n_components)
        # The learner of a block is None if no parameter of its prior is learned.
        blocks, learners = [], []
        self.priors_ = {}
        alpha = self.weight_concentration_prior
        learns_alpha = isinstance(alpha, str)
        given_columns, given_positions = self._make_given_columns(X, weights)
        table = self._table
        choices = choose_components(table.blocks, X, weights, given_columns, given_positions)
        for block, (spec, chosen_values) in zip(table.blocks, choices, strict=True):
            # The given columns, which explain the columns of the block, come last.
            columns = np.append(block.columns, given_positions)
            values = X[:, as_slice(columns)]
            with name_block_in_errors(block.name):
                component, priors, learner = build_component(
                    spec, values, weights, block.sizes,
                    open_levels=table.handle_unknown != "error", given=given_columns,
                )  # fmt: skip
            self.priors_[block.name] = priors | chosen_values
            if self.sparse_differences:
                (feature_sums,) = sums_of_rows(values, weights, partial(_sum_statistics, component))
                component, learner = with_sparse_differences(component, learner, feature_sums)
            learners.append(learner)
            blocks.append(Block(block.name, component, columns, given_positions.size))
        model = Mixture(
            StickBreaking(1.0 if alpha is None or learns_alpha else float(alpha)),
            Product(tuple(blocks), X.shape[1], X.dtype),
            n_initial=self.n_components,
            init_params=self.init_params,
            learner=ProductLearner(tuple(learners)) if any(learners) else None,
            learns_concentration=learns_alpha,
        )
        if self.labels_init is None:
            return model
        return start_from_labels(model, self.labels_init, X, weights, self.max_components)

    def _make_given_columns(self, X, weights):
        """Return the :class:`GivenColumns` of the table and their positions in X, (G,).

        The object converts given columns to regressors. Without given columns, return None and an
        empty array.
        """
        blocks = self._table.given
        positions = np.array([block.columns[0] for block in blocks], np.intp)
        if not blocks:
            return None, positions
        # A column of numbers is one regressor. Other columns have an indicator of each level but
        # the first. Each of these blocks has a single column.
        regressor_names = []
        for block, position in zip(blocks, positions, strict=True):
            name = str(self._table.names[position])
            if block.categories is None:
                regressor_names.append(name)
            else:
                regressor_names += [f"{name}: {level}" for level in block.categories[0][1:]]
        # The numbers of levels; 0 stands for a column of numbers.
        sizes = tuple(0 if block.categories is None else block.sizes[0] for block in blocks)
        return GivenColumns.from_rows(
            X[:, as_slice(positions)], weights, sizes, tuple(regressor_names)
        ), positions

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of memoized inference with moves, or of stochastic inference."""
        return make_plan_with_moves(self, X, weights, stream=stream)

    def _attributes_of_model(self, model):
        """Return the attribute ``priors_`` with the values that the fit has learned so far."""
        learned = learned_values(model)
        priors = self.priors_.items()
        return {"priors_": {name: values | learned.get(name, {}) for name, values in priors}}

    # --------------------------------------------------------------------------- attributes
    @fitted_property
    def blocks_(self, fitted):
        """A tuple ``(name, component, columns)`` for each block as fitted."""
        # The names are those of `fit`, so that the blocks are legal ``components``.
        table = self._table
        return [
            (block.name, clone(block.spec), [table.names[j] for j in block.columns])
            for block in table.blocks
        ]

    @fitted_property
    def categories_(self, fitted):
        """Categories of the columns of blocks with categories, by the block's name."""
        blocks = [block for block in self._table.blocks if block.categories is not None]
        return {block.name: list(map(make_level_array, block.categories)) for block in blocks}

    # --------------------------------------------------------------------------- inference
    def sample(self, n_samples=1, random_state=None, given=None):
        """Draw rows from the posterior predictive of the components in use.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows to draw; with ``given``, the number for each of its rows.
        random_state : int, RandomState instance or None, default=None
            None uses the estimator's ``random_state``.
        given : {array-like, data frame} of shape (n_rows, n_features), optional
            Rows with values of the given columns and of exposures, for which the other columns are
            drawn. A frame has at least these columns. An array has all columns of ``fit``, or only
            these columns in the same order. It is required after a fit with given columns.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            The drawn rows, in a container of the type that ``fit`` got. With ``given``, there are
            ``n_samples`` rows for each row of ``given``, in the same order. A data frame has the
            columns that belong to a component. An array has all columns, with NaN in columns that
            belong to no component.
        y : ndarray of int, shape (n_samples,)
            Component of each row; without ``given``, in ascending order as in scikit-learn.

        Raises
        ------
        ValueError
            If ``given`` is missing after a fit with given columns, or passed after another fit.
        """
        fitted = self._require_fitted()
        if not self._table.given:
            if given is not None:
                raise ValueError(
                    f"This {type(self).__name__} was fitted without given columns: call sample "
                    "without 'given'."
                )
            return super().sample(n_samples, random_state)
        if given is None:
            names = [self._table.names[block.columns[0]] for block in self._table.given]
            raise ValueError(
                f"The given columns {names} explain the others and have no distribution of their "
                "own. Pass the rows for whose values of these columns to draw: sample(n_samples, "
                "given=rows)."
            )
        rows = self._table.encode_given_rows(given)
        rows = np.repeat(rows, require_positive_int("n_samples", n_samples), axis=0)
        rng = self._make_draw_rng(random_state)
        weights = self.weights_.astype(np.float64)
        labels = rng.choice(weights.size, len(rows), p=weights / weights.sum())
        component = fitted.model.component
        # The natural parameters of q of the components, (K, ...), with parameters that all
        # components share repeated for each.
        _, lam = fitted.lam()
        lam = component.with_shared_globals(lam)
        for k in np.unique(labels):
            is_of_component = labels == k
            rows[is_of_component] = component.conditional_sample(rows[is_of_component], lam[k], rng)
        return self._table.decode_rows(rows.astype(fitted.model.dtype, copy=False)), labels

    @property
    def table_report_(self):
        """How each column was read, and why, see the attributes of the class."""
        self._require_fitted()
        return make_table_report(self._columns, self.priors_)

    def predict_column(self, X, column):
        """Predict a column from the other values of each row.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_features)
            Rows. Their values in ``column`` are not used.
        column : str or int
            Name of the column, or its position if columns have no names.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictive means of numbers and counts, and most probable values of binary, ordinal and
            categorical columns.
        """
        hidden = self._hide_column(X, column)
        with Workers(self.n_jobs) as workers:
            filled = hidden.model.imputed(hidden.rows, self._fitted.stats, workers.run)
        return self._table.decode_column(hidden.position, filled[:, hidden.position])

    def predict_column_proba(self, X, column):
        """Predict probabilities of a binary or categorical column from the other values of a row.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_features)
            Rows. Their values in ``column`` are not used.
        column : str or int
            Name of the column, or its position if columns have no names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_categories)
            Probability of each value; each row sums to 1.
        categories : ndarray of shape (n_categories,)
            Values to which the columns of ``probabilities`` belong.

        Raises
        ------
        ValueError
            For columns of numbers or counts, for which there is ``score_column``.
        """
        hidden = self._hide_column(X, column)
        block, _ = self._table.find_block(hidden.position)
        if block.spec.encoding not in ("category", "binary"):
            raise ValueError(
                "predict_column_proba takes columns of categories or bits, but the values of "
                f"column {column!r} are of the kind {block.spec.encoding!r}. Use "
                "predict_column(X, column) to predict them, or score_column(X, column) for the "
                "log probability or log density of given values."
            )
        with Workers(self.n_jobs) as workers:
            probabilities = hidden.model.column_probabilities(
                hidden.rows, self._fitted.stats, hidden.position, workers.run
            )
        return probabilities, self._table.labels(hidden.position)

    def score_column(self, X, column):
        """Return the log predictive density of a column, given the other values of each row.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_features)
            Rows.
        column : str or int
            Name of the column, or its position if columns have no names.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log densities in nats. For a missing value it is 0, or with ``missing="informative"``
            the log probability that the value is missing.
        """
        hidden = self._hide_column(X, column)
        fitted = self._fitted
        # log p(column | others) is log p(all columns) minus log p(others).
        complete_rows = hidden.rows.copy()
        complete_rows[:, hidden.position] = hidden.values
        with Workers(self.n_jobs) as workers:
            joint = fitted.model.log_predictive(complete_rows, fitted.stats, workers.run)
            return joint - hidden.model.log_predictive(hidden.rows, fitted.stats, workers.run)

    def _hide_column(self, X, column):
        """Encode rows and hide a column of them, so that the other columns can predict it."""
        fitted = self._require_fitted()
        require_rows_in_memory(X, "A prediction of one column")
        encoded = self._read(X)
        # Columns have the names in the rows of ``fit`` and those of `set_words`.
        is_name_in_fit = any(name == column for name in self._table.names)
        position = (self._table if is_name_in_fit else self._columns).find_position(column)
        block, _ = self._table.find_block(position)
        if not block.spec.allows_missing or sp.issparse(encoded):
            raise ValueError(
                f"Column {column!r} belongs to {type(block.spec).__name__}, which takes complete "
                "rows only: it cannot be predicted from the other columns."
            )
        rows = np.array(encoded)
        rows[:, position] = np.nan
        # Here NaN only hides a value: it must not count as a missing value with information.
        component = fitted.model.component.without_indicator(position)
        model = replace(fitted.model, component=component)
        return _HiddenColumn(model, rows, position, values=encoded[:, position])


class _HiddenColumn(NamedTuple):
    """A column that is hidden in encoded rows, and the model that predicts it."""

    # The model without the column's indicator of missing values.
    model: Any
    # (n, n_features): encoded rows, with NaN in the column.
    rows: Any
    # Position of the column in the rows.
    position: int
    # (n,): encoded values of the column.
    values: Any


def _sum_statistics(component, X, weights):
    """Return the weighted sums (P,) of the sufficient statistics of rows, for `sums_of_rows`."""
    (sums,) = component.weighted_sums(X, weights[:, None])
    return (sums,)


def _list_blocks_of_parameter(components):
    """Return ``(name, component, columns)`` of each block of the parameter ``components``.

    The list is empty for "auto", and for an illegal value, for which ``fit`` raises an error.
    """
    try:
        return [] if is_auto(components) else list_blocks(components)
    except TypeError:
        return []
