"""The estimator of Gaussian mixtures that find their number of components, by memoized inference.

The memo of a batch of rows is the contribution of the batch to the statistics and the bound. The
mathematics is in :mod:`skvt.models.mixture`.
"""

from dataclasses import KW_ONLY, replace
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from skvt._estimators._mixtures import make_initial_means, require_rows, start_from_labels
from skvt._results import GrowingMixin, MixtureEstimator, learned_values
from skvt._sklearn_private import StrOptions
from skvt.components.specs import (
    COVARIANCE_TYPES,
    build_gaussian_component,
    find_covariance_type,
    make_gaussian_learner,
)
from skvt.files import in_files
from skvt.fitting import (
    AT_LEAST_ONE,
    AUTO,
    FIXED,
    NOT_NEGATIVE,
    POSITIVE,
    MemoizedMethod,
    check_memoized,
    estimator,
    fitted_property,
    make_plan_with_moves,
    model_property,
)
from skvt.models.mixture import (
    GAUSSIAN_CLASSES,
    LOW_RANK_TYPES,
    MATRIX_TYPES,
    BackgroundMixture,
    Mixture,
    StickBreaking,
    SymmetricDirichlet,
    initialise_from_means,
)
from skvt.readers import MIN_COUNT_COLUMNS, warn_of_logarithms
from skvt.readers.validation import check_variance
from skvt.rows import get_chunk_sizes


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files(
    "estimators.MemoizedDPGMM",
    fitted={
        "model": (Mixture, BackgroundMixture),
        "model.weights": (StickBreaking, SymmetricDirichlet),
        "model.component": GAUSSIAN_CLASSES,
    },
)
@estimator
class MemoizedDPGMM(GrowingMixin, MixtureEstimator):
    """Dirichlet process mixture of Gaussians that adapts its number of components.

    Model and names are as in :class:`sklearn.mixture.BayesianGaussianMixture`. Memoized inference
    [HS13]_ visits the data batch by batch and keeps the contribution of each batch. The evidence
    lower bound of all data, including every constant, is therefore known at every step.

    Moves change the number of components during the fit. Births add components, merges and deletes
    remove components, and a move is accepted if it raises the bound. By default a fit starts with
    one component.

    Parameters
    ----------
    .. shared: n_components (memoized), max_components
    covariance_type : {"full", "tied", "diag", "spherical", "low_rank", "tied_low_rank", "auto"}, \
            default="full"
        Shape of each component's covariance. "tied" is one matrix for all components. "low_rank" is
        a matrix of low rank plus a noise variance for each column, as in factor analysis, and
        "tied_low_rank" is one such matrix for all components.

        "auto" makes short fits with several types, on at most 3,000 rows and 64 columns, and takes
        the type with the highest bound. In ``partial_fit``, the rows of the first call decide. The
        types are

        - "spherical" and "diag";
        - "low_rank" and "tied_low_rank" if there are four or more columns;
        - "tied" and "full" if there are more than two rows for each column. Data of more than 64
          columns need more than ten rows for each column.

        Only "spherical" and "diag" are compared on data of more than 64 columns if rows have many
        missing values, that is, if the mean cube of their number is more than four times the square
        of the number of columns. With at most ten rows for each column, bounds may differ too
        little to decide. A type whose bound is within 0.05 nats per row and column of the highest
        bound is then left out if it gives held-out rows a clearly lower density than another such
        type.

        With at most ten rows for each column, the fit also starts from the short fit of the chosen
        type if all rows and columns were compared, ``n_components`` is 1, and the moves include
        births. If all components of the short fit were merged, held-out rows decide whether the fit
        starts from it. Fits with ``background``, ``use_labels``, ``means_init``, ``labels_init`` or
        a Dirichlet distribution of the weights start as usual.

        NaN in the data are missing values. They are integrated out with "diag" and "spherical".
        With other types they are local variables of their rows, see Notes.
    background : bool, default=False
        Whether one component is a background of rows that belong to no other [FraleyRaftery02]_.
        Its density is constant, 1 / volume of the box that holds the rows of the first fit or call,
        with sides parallel to the axes. Its weight is learned, and is 0 if the bound is larger
        without a background. Rows of the background have the label -1, and clusters leave them out.
        Attributes of components leave the background out, and percentages in ``describe`` are
        shares of the other rows, but ``history_``, ``max_components`` and the sticks of
        ``posterior_`` and ``weight_concentration_`` include it. ``sample`` draws rows of components
        only.

        A single row that is far from all others makes the box large and the background weak. New
        rows outside the box have the same density under the background, so that ``score_samples``
        is bounded from below. A background cannot be combined with missing values, constant
        columns, rows in chunks, ``use_labels=True`` or
        ``weight_concentration_prior_type="dirichlet_distribution"``.
    mean_type : {"full", "zero"}, default="full"
        Whether components have means, or all components have mean zero. "zero" requires
        ``covariance_type="full"``.
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
default="dirichlet_process"
        Prior of the weights: the sticks of a Dirichlet process, or a finite Dirichlet distribution.
        With the latter there are ``n_components`` components throughout, of which some may have no
        rows, and no moves are made.
    weight_concentration_prior : float, "auto" or None, default=None
        Concentration alpha of the prior of the weights. A larger concentration favours more
        components. None is 1. With a Dirichlet distribution it is the concentration of each
        component, and None is ``1 / n_components``.

        "auto" learns the concentration of a Dirichlet process, between 0.001 and 1,000. The other
        parameters of priors below are learned in the same way. A learned parameter starts with the
        value that None would give it. After each pass that ends with two or more components, it
        moves to the maximum of the bound.
    mean_precision_prior : float, "auto" or None, default="auto"
        Number of rows that the prior mean of a component is worth, kappa. None is 1. "auto" learns
        it, between 1e-6 and 1.
    mean_prior : array-like of shape (n_features,), "auto" or None, default="auto"
        Prior mean. None is the mean of the data. With missing values and covariances that are
        matrices, None is the maximum-likelihood estimate of the mean.
    degrees_of_freedom_prior : float, "auto" or None, default="auto"
        Degrees of freedom nu of the prior of a precision. With "full" and "tied" the prior is a
        Wishart distribution, and nu must be more than ``n_features - 1``. With "diag", "spherical"
        and, for the noise, the types of low rank, the prior is a gamma distribution with shape
        nu / 2. None is ``n_features``, or 1 with the types of low rank. "auto" learns nu, up to
        twice ``n_features``. With "tied" and "tied_low_rank" it is not learned, since one
        covariance does not determine its prior.
    covariance_prior : array-like, "auto" or None, default="auto"
        Inverse scale of the prior of a precision: an array (n_features, n_features) with "full" and
        "tied", an array (n_features,) with "diag" and the types of low rank, and a number with
        "spherical". The rate of a gamma prior is half the inverse scale.

        None is the covariance of the data, a hundredth of the variances with the types of low rank,
        and the second moment of the data with ``mean_type="zero"``. With missing values and
        covariances that are matrices, the covariance is a maximum-likelihood estimate from at most
        10,000 rows.

        "auto" learns the inverse scale, down to a millionth of the columns' variances. With "tied"
        and "tied_low_rank" it is not learned. If there are more rows than columns, the variance of
        the rows in each direction counts as at least a millionth of the columns' variances.

        With at most ten rows for each column, the default and learned matrices are diagonal,
        because so few rows do not determine other entries. If mean and inverse scale are both
        learned from so few rows, components that have a single row are left out.
    reg_covar : float, default=0.0
        Smallest variance of a component in any direction. Each row counts as if each value had been
        measured with an error of this variance, and the prior that is found from the data includes
        the error. The variance may still be smaller if a given or learned ``covariance_prior_`` is
        less than ``reg_covar * degrees_of_freedom_prior_``. Predicted densities are densities of
        rows as they are, to which no error is added. Bounds of fits with different ``reg_covar``
        cannot be compared.

        A column counts as rounded if most of its rows share their value with nine or more other
        rows. Values of rounded columns have a further error, whose variance is a twelfth of the
        squared distance between neighbouring values.
    max_rank : int or None, default=None
        Maximum rank of the types of low rank. The fit finds the rank of each component. None is
        half the number of columns, at least 1.
    .. shared: init_params
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Initial means, in place of the initial components that ``init_params`` finds. Each row is
        initially assigned to the component with the nearest mean, in the metric of the prior's
        covariance.
    .. shared: labels_init, use_labels, labels, learning_method, moves (memoized)
    .. shared: n_batches & batch_size
    .. shared: n_parallel_batches (memoized), temperature, learning_decay, learning_offset
    .. shared: total_samples (memoized), max_iter, tol, evaluate_every, n_init, warm_start, n_jobs
    .. shared: verbose, verbose_interval, random_state

    Attributes
    ----------
    .. shared: n_components_ (memoized), n_active_components_, weights_, labels_
    .. shared: component_classes_
    background_weight_ : float
        Expected share of the background in all rows. ``weights_`` are shares in the other rows.
    means_ : ndarray of shape (K, n_features)
        Expected means.
    covariances_ : ndarray
        Inverse of the expected precision of each component: (K, n_features, n_features) for "full"
        and "low_rank", (K, n_features) for "diag", (K,) for "spherical". For "tied" and
        "tied_low_rank" it is one matrix (n_features, n_features).
    covariance_type_ : str
        ``covariance_type``, or the type that "auto" has chosen.
    ranks_ : ndarray of int, shape (K,)
        Rank of each component. It exists with "low_rank" and "tied_low_rank" only.
    precisions_, precisions_cholesky_ : ndarray
        Expected precisions, and their Cholesky factors as in scikit-learn (square roots for "diag"
        and "spherical").
    .. shared: block_relevance_, column_relevance_
    mean_precision_ : ndarray of shape (K,) or None
        Number of rows that each mean is worth, which includes the rows that the prior is worth. It
        is (K, n_features) if columns are independent and have missing values, and None with
        ``mean_type="zero"``.
    degrees_of_freedom_ : ndarray of shape (K,)
        Degrees of freedom of q of each precision, which include the prior's degrees of freedom.
        Each row adds 1; with "spherical", each value adds 1. It is (K, n_features) with "diag" and
        missing values.
    .. shared: weight_concentration_, hierarchy_
        The entropy is defined in [Baudry10]_.
    .. shared: hierarchy_criteria_, n_clusters_, n_clusters_reason_, clusterings_
    .. shared: cluster_labels_
    .. shared: elbo_ & lower_bound_
    .. shared: history_ (memoized), lower_bounds_, move_log_, weight_concentration_prior_
    mean_prior_ : ndarray of shape (n_features,) or None
        Given, default or learned prior mean. None with ``mean_type="zero"``.
    mean_precision_prior_ : float or None
        Number of rows that the prior mean is worth. None with ``mean_type="zero"``.
    degrees_of_freedom_prior_ : float
        Given, default or learned degrees of freedom of the prior of the precisions.
    covariance_prior_ : float or ndarray
        Given, default or learned inverse scale of the prior of the precisions: a number for
        "spherical", (n_features,) for "diag" and the types of low rank, (n_features, n_features)
        for "full" and "tied".
    .. shared: restart_elbos_, n_batch_iter_, temperature_, converged_, n_iter_
    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks, or a Dirichlet) and "components".
    .. shared: n_features_in_, feature_names_in_, words_

    See Also
    --------
    sklearn.mixture.BayesianGaussianMixture : Truncated at a fixed number of components.

    Notes
    -----
    Memory: the memo of a batch holds ``K (P + K)`` numbers of 8 bytes for K components. P, the
    number of sufficient statistics of D columns, is ``3 D`` for "diag", ``2 D + 2`` for
    "spherical" and ``D (D + 3) / 2 + 1`` for the other types. While a batch is updated, its
    responsibilities take ``batch_size * K`` more numbers. Only the number of batches grows with the
    number of rows, so choose larger batches for more rows. ``fit`` reads a memory-mapped array
    batch by batch.

    If covariances are matrices, the missing values of a row have a normal distribution given each
    component, which is part of q and of the bound. For each component, a row with NaN costs
    ``O(n_features^2)`` operations more than a complete row. Each pattern of m missing columns among
    512 consecutive rows costs ``O(m^3)`` operations for each component.

    References
    ----------
    .. [HS13] M. C. Hughes and E. B. Sudderth, "Memoized Online Variational Inference for Dirichlet
       Process Mixture Models", NeurIPS 2013.
    .. [Baudry10] J.-P. Baudry, A. E. Raftery, G. Celeux, K. Lo, R. Gottardo, "Combining Mixture
       Components for Clustering", Journal of Computational and Graphical Statistics 19, 2010.

    .. [FraleyRaftery02] C. Fraley and A. E. Raftery, "Model-Based Clustering, Discriminant
       Analysis, and Density Estimation", Journal of the American Statistical Association 97, 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1.0, size=(200, 2)) for m in (-6.0, 0.0, 6.0)])
    >>> MemoizedDPGMM(random_state=0).fit(X).n_components_
    3
    """

    n_components: int = 1
    _: KW_ONLY
    max_components: int | None = None
    covariance_type: Annotated[str, FIXED, StrOptions(COVARIANCE_TYPES)] = "full"
    background: Annotated[bool, FIXED, "boolean"] = False
    mean_type: Annotated[str, FIXED, StrOptions({"full", "zero"})] = "full"
    weight_concentration_prior_type: Annotated[str, FIXED] = "dirichlet_process"
    weight_concentration_prior: Annotated[float | str | None, FIXED, None, AUTO, POSITIVE] = None
    mean_precision_prior: Annotated[float | str | None, FIXED, None, AUTO, POSITIVE] = "auto"
    mean_prior: Annotated[ArrayLike | str | None, FIXED, None, AUTO, "array-like"] = "auto"
    degrees_of_freedom_prior: Annotated[float | str | None, FIXED, None, AUTO, POSITIVE] = "auto"
    covariance_prior: Annotated[
        ArrayLike | str | None, FIXED, None, AUTO, "array-like", POSITIVE
    ] = "auto"
    reg_covar: Annotated[float, FIXED, NOT_NEGATIVE] = 0.0
    max_rank: Annotated[int | None, FIXED, None, AT_LEAST_ONE] = None
    means_init: ArrayLike | None = None
    labels_init: ArrayLike | None = None
    use_labels: bool = False
    learning_method: MemoizedMethod = "memoized"
    max_iter: int = 100

    # --------------------------------------------------------------------------------- model
    @property
    def _is_finite(self):
        """Whether the number of components is ``n_components`` throughout the fit."""
        return self.weight_concentration_prior_type == "dirichlet_distribution"

    def _build_model(self, X, weights, old=None):
        """Build the mixture, with the user's priors or priors that are computed from the rows.

        The mixture may start from the short fit that has chosen its covariance type. ``old`` is
        None for a new fit. If a fit is continued, return its model ``old`` unchanged.
        """
        return self._build_mixture(X, weights, old, may_start=self._may_start_from_short_fit)

    def _build_model_of_stream(self, X, weights):
        """Build the mixture of the first rows of a stream.

        It does not start from a short fit. While the mixture has one component, the rows of further
        small calls are added to the rows of the first call, and all choices are made anew.
        """
        return self._build_mixture(X, weights, None, may_start=False)

    def _build_mixture(self, X, weights, old, *, may_start):
        """Build the mixture; see :meth:`_build_model`.

        ``may_start`` tells whether the mixture may start from a short fit.
        """
        check_memoized(self)
        if self.background:
            self._check_background(X)
        K = self.n_components
        alpha = self.weight_concentration_prior
        learns_alpha = isinstance(alpha, str)
        if self._is_finite and learns_alpha:
            raise ValueError(
                "With weight_concentration_prior_type='dirichlet_distribution', the "
                "'weight_concentration_prior' parameter must be a number in the range (0, inf) or "
                "None. Got 'auto', which is for 'dirichlet_process'."
            )
        if old is not None:
            return old
        require_rows(self, X, K)
        if X.shape[1] >= MIN_COUNT_COLUMNS:
            warn_of_logarithms(X)
        if self.reg_covar > 0.0:
            check_variance("reg_covar", self.reg_covar, X.dtype)
        max_components = K if self._is_finite else self.max_components
        covariance_type, short_fit = find_covariance_type(
            self, X, weights, self.reg_covar, max_components, may_start=may_start
        )
        component, priors = build_gaussian_component(
            self, covariance_type, X, weights, self.reg_covar
        )
        # Set the fitted attributes of the prior, such as ``mean_prior_``.
        vars(self).update({f"{name}_": value for name, value in priors.items()})
        if self._is_finite:
            # `SymmetricDirichlet` takes the sum of the concentrations of all components, while the
            # parameter is the concentration of each.
            weights_prior = SymmetricDirichlet(1.0 if alpha is None else float(alpha) * K, K)
        else:
            weights_prior = StickBreaking(1.0 if alpha is None or learns_alpha else float(alpha))
        model = Mixture(
            weights_prior, component, n_initial=K, init_params=self.init_params,
            n_fewest=K if self._is_finite else 1, learner=make_gaussian_learner(self, component),
            learns_concentration=learns_alpha,
        )  # fmt: skip
        if self.background:
            model = BackgroundMixture(**vars(model), **self._compute_box(X))
        # The mixture starts from the short fit, from labels, from means, or from seeds.
        if self.means_init is None and self.labels_init is None:
            if short_fit is None:
                return model
            return replace(model, component=short_fit.model.component, start=short_fit.memo.stats)
        if self.means_init is None:
            return start_from_labels(model, self.labels_init, X, weights, max_components)
        if self.labels_init is not None or self.mean_type == "zero":
            conflict = "mean_type='zero'" if self.labels_init is None else "'labels_init'"
            raise ValueError(
                f"'means_init' cannot be combined with {conflict}. Set one of them to its default."
            )
        return replace(
            model, start=initialise_from_means(model, X, weights, make_initial_means(self, X))
        )

    @property
    def _may_start_from_short_fit(self):
        """Whether the fit may start from a short fit.

        Births must find all components, and the user must set neither a start nor labels.
        """
        finds_components = self.learning_method == "memoized" and "birth" in self.moves
        is_restricted = self._is_finite or self.background or self.use_labels
        has_start = self.means_init is not None or self.labels_init is not None
        return self.n_components == 1 and finds_components and not (is_restricted or has_start)

    def _check_background(self, X):
        """Raise ValueError if the fit cannot have a background."""
        for is_conflicting, setting in (
            (self.use_labels, "use_labels=True"),
            (self._is_finite, "weight_concentration_prior_type='dirichlet_distribution'"),
            (get_chunk_sizes(X).size > 0, "rows in chunks"),
        ):
            if is_conflicting:
                raise ValueError(
                    f"background=True cannot be combined with {setting}. Set background=False."
                )

    def _compute_box(self, X):
        """Return the corners ``low`` and ``high`` (D,) of the box that holds the rows X."""
        low, high = (np.asarray(f(X, axis=0), np.float64) for f in (np.min, np.max))
        # NaN pass this check, because the model itself refuses missing values.
        constant_columns = np.flatnonzero(low == high)
        if constant_columns.size:
            raise ValueError(
                "With background=True, each column must have at least two different values. All "
                f"values of column {constant_columns[0]} are equal: leave out such columns, or set "
                "background=False."
            )
        return {"low": low, "high": high}

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of memoized inference with moves, or of stochastic inference."""
        # A finite mixture has no moves, so that its number of components stays the same. None
        # stands for all moves.
        moves = {} if self._is_finite else None
        return make_plan_with_moves(self, X, weights, moves, stream=stream)

    def _attributes_of_model(self, model):
        """Return the learned parameters of priors by the names of their attributes."""
        return {f"{name}_": value for name, value in learned_values(model).items()}

    # --------------------------------------------------------------------------- attributes
    @fitted_property
    def weight_concentration_prior_(self, fitted):
        """Given, default or learned concentration of a Dirichlet process or of each component."""
        # The only row of the prior is (1, concentration) of each stick, or the concentration of
        # each component. In both cases its last entry is the concentration.
        return float(fitted.model.weights.prior()[0, -1])

    @fitted_property
    def background_weight_(self, fitted):
        """Expected share of the background in all rows; 0 without a background."""
        # Only `MixtureBesideBackground`, the fitted model with a background, has this attribute.
        return vars(fitted.model).get("background_weight", 0.0)

    covariance_type_ = model_property(
        "component.covariance_type",
        'Type of the covariances: the given one, or the one chosen by "auto".',
    )

    @fitted_property
    def means_(self, fitted):
        """Expected means, shape (K, n_features)."""
        means, _ = self._compute_moments(fitted)
        return self._convert_dtype(means)

    @fitted_property
    def covariances_(self, fitted):
        """Inverse expected precisions, shape (K, ...), or one matrix of all components."""
        _, covariances = self._compute_moments(fitted)
        return self._convert_dtype(covariances)

    @fitted_property
    def ranks_(self, fitted):
        """Rank of each component of "low_rank" and "tied_low_rank", shape (K,)."""
        if self.covariance_type_ not in LOW_RANK_TYPES:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'ranks_': only a fit with "
                "covariance_type='low_rank' or 'tied_low_rank' has ranks."
            )
        component = fitted.model.component
        return component.ranks(component.with_shared_globals(fitted.lam()[1]))

    @fitted_property
    def precisions_(self, fitted):
        """Expected precisions, in the shape of ``covariances_``."""
        _, covariances = self._compute_moments(fitted)
        inverse = np.linalg.inv(covariances) if self._has_matrices else 1.0 / covariances
        return self._convert_dtype(inverse)

    @fitted_property
    def precisions_cholesky_(self, fitted):
        """Upper triangular U with ``precision = U U'``; square roots with "diag", "spherical"."""
        _, covariances = self._compute_moments(fitted)
        if not self._has_matrices:
            return self._convert_dtype(1.0 / np.sqrt(covariances))
        # If covariance = L L', the precision is U U' with U the transpose of the inverse of L.
        inverse_factors = np.linalg.inv(np.linalg.cholesky(covariances))
        return self._convert_dtype(np.swapaxes(inverse_factors, -2, -1))

    @fitted_property
    def mean_precision_(self, fitted):
        """Number of rows that each mean is worth, shape (K,) or (K, n_features), or None."""
        q = self._standard_parameters(fitted)
        return self._merge_equal_columns(q["mean_precision"]) if "mean_precision" in q else None

    @fitted_property
    def degrees_of_freedom_(self, fitted):
        """Degrees of freedom of q of each precision, shape (K,) or (K, n_features)."""
        q = self._standard_parameters(fitted)
        # A gamma distribution of shape a has 2 a degrees of freedom.
        degrees_of_freedom = 2.0 * q["shape"] if "shape" in q else q["degrees_of_freedom"]
        return self._merge_equal_columns(degrees_of_freedom)

    def _standard_parameters(self, fitted):
        """Return the standard parameters of q of the components, by name."""
        return fitted.model.component.family.to_standard(fitted.lam()[1])

    def _merge_equal_columns(self, values):
        """Reshape values (K, ...) to (K, n_features), or to (K,) if all columns are equal."""
        values = values.reshape(len(values), -1)
        return self._convert_dtype(values[:, 0] if np.all(values == values[:, :1]) else values)

    def _compute_moments(self, fitted):
        """Return the means (K, D) and the covariances (K, ...) of the components as float64."""
        component = fitted.model.component
        # With "tied", each component gets the posterior of the shared covariance.
        return component.moments(component.with_shared_globals(fitted.lam()[1]))

    @property
    def _has_matrices(self):
        """Whether the covariances are matrices."""
        return self.covariance_type_ in MATRIX_TYPES

    def _convert_dtype(self, values):
        """Return values in the floating-point type of the model."""
        return np.asarray(values, self._fitted.model.dtype)
