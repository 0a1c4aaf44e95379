"""Dirichlet process Gaussian mixtures with memoized inference, births, merges and deletes."""

from dataclasses import KW_ONLY, replace
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from skvt.components.specs import (
    COVARIANCE_TYPES,
    covariance_type_for,
    gaussian_component,
    gaussian_learner,
)
from skvt.estimators._mixtures import begun_with_labels, given_means, require_rows
from skvt.files import in_files
from skvt.fitting import (
    AT_LEAST_ONE,
    AUTO,
    FIXED,
    NOT_NEGATIVE,
    POSITIVE,
    MemoizedMethod,
    Seed,
    Temperature,
    check_memoized,
    estimator,
    memoized_plan,
    of_fit,
    of_model,
)
from skvt.models.mixture import (
    GAUSSIANS,
    MATRICES,
    Mixture,
    StickBreaking,
    SymmetricDirichlet,
    begun_at,
)
from skvt.readers.validation import check_variance
from skvt.results import GrowingMixin, MixtureEstimator, learned_values
from skvt.sklearn_private import StrOptions


@in_files(
    "estimators.MemoizedDPGMM",
    fitted={
        "model": (Mixture,),
        "model.weights": (StickBreaking, SymmetricDirichlet),
        "model.component": GAUSSIANS,
    },
)
@estimator
class MemoizedDPGMM(GrowingMixin, MixtureEstimator):
    """Dirichlet process mixture of Gaussians that adapts its number of components.

    A counterpart of :class:`sklearn.mixture.BayesianGaussianMixture`, with the same model and
    names. Memoized inference [HS13]_ visits the data batch by batch and keeps the contribution of
    each batch, so that the evidence lower bound of all data, including every constant, is known at
    every step. Moves change the number of components during the fit: births add components that the
    data support, merges and deletes remove those that they do not, both accepted by that bound. By
    default a fit starts with one component.

    Parameters
    ----------
    .. shared: n_components (memoized), max_components
    covariance_type : {"full", "tied", "diag", "spherical", "low_rank", "auto"}, default="full"
        Shape of each component's covariance; "tied" is one matrix for all components, "low_rank" a
        matrix of low rank plus the variances of each column's noise (a factor analyser). "auto" is
        the one of highest bound in short fits on at most 3,000 rows (in ``partial_fit``, of the
        first call) and 64 columns; of at most two rows for each column neither "full" nor "tied".
        Of more columns, with missing values it is "spherical" or "diag", and with at most ten rows
        for each column neither "full" nor "tied". With at most ten
        rows for each column, types whose bounds are within a nat a row of the highest are compared
        by the density of held-out rows. NaN in the data are missing values: integrated out with
        "diag" and "spherical", local variables of their rows otherwise, see Notes.
    mean_type : {"full", "zero"}, default="full"
        Whether components have means, or all have mean zero (with "full" covariances alone).
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
default="dirichlet_process"
        Weights from the sticks of a Dirichlet process, or from a finite Dirichlet: there are then
        ``n_components`` components throughout, with rows or without, and no moves are made.
    weight_concentration_prior : float, "auto" or None, default=None
        Concentration alpha of the weights; None is 1. In a finite Dirichlet, that of each
        component; None is ``1 / n_components``. The larger, the more components. "auto", here
        and below, starts with the value of None and moves it to the maximum of the bound after each
        pass that ends with two or more components.
    mean_precision_prior : float, "auto" or None, default="auto"
        Number of rows that the prior mean of a component is worth (kappa); None is 1. "auto" learns
        it, between 1e-6 and 1.
    mean_prior : array-like of shape (n_features,), "auto" or None, default="auto"
        Prior mean; None is the mean of the data (with NaN and "full", its maximum-likelihood
        estimate).
    degrees_of_freedom_prior : float, "auto" or None, default="auto"
        Degrees of freedom nu of the Wishart prior of a precision matrix, more than ``n_features -
        1``; with "diag", "spherical" and "low_rank" (of the noise) those of a gamma prior of shape
        nu / 2. None is ``n_features``, for "low_rank" 1. "auto" learns it, up to twice
        ``n_features``, but not with "tied": of one covariance no prior can be learned.
    covariance_prior : array-like, "auto" or None, default="auto"
        Inverse scale of that prior: (n_features, n_features), for "diag" and "low_rank"
        (n_features,), for "spherical" a number (the gamma prior has half of it as rate). None is
        the covariance of the data (for "low_rank" a hundredth of the variances), or with "zero"
        their second moment; with NaN, its maximum-likelihood estimate from at
        most 10,000 rows. "auto" learns it, down to a millionth of the columns' variance. In
        directions in which the rows vary by less than a millionth of the columns' variance, that
        value is used. Matrices are diagonal where there are at most ten rows for each column: so
        few rows do not determine more. The mean and scale are then learned from components of
        several rows alone.
    reg_covar : float, default=0.0
        Least variance of a component in any direction: each row counts as if it had been measured
        with an error of this variance in each column, and so does the prior found from the data. (A
        given or learned ``covariance_prior_`` below ``degrees_of_freedom_prior_`` times this may
        lower it.) Densities are those of rows as they are. Bounds of fits with different values do
        not compare. Columns most of whose rows share their value with nine others or more are taken
        for rounded, and have an error of a twelfth of the squared distance between values besides.
    max_rank : int or None, default=None
        Maximum rank of the matrix of "low_rank"; the rank of each component is found. None is half
        of the columns.
    .. shared: init_params
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Initial means, instead of those found by ``init_params``, as in
        :class:`sklearn.mixture.GaussianMixture`. Each row is initially assigned to the component
        with the nearest mean, in the metric of the prior's covariance.
    .. shared: labels_init, use_labels, labels, learning_method, moves (memoized)
    .. shared: n_batches & batch_size
    .. shared: n_parallel_batches (memoized), temperature, learning_decay, learning_offset
    .. shared: total_samples (memoized), max_iter, tol, evaluate_every, n_init, warm_start, n_jobs
    .. shared: verbose, verbose_interval, random_state

    Attributes
    ----------
    .. shared: n_components_ (memoized), n_active_components_, weights_, labels_
    .. shared: component_classes_
    means_ : ndarray of shape (K, n_features)
        Expected means.
    covariances_ : ndarray
        Inverse of the expected precision of each component: (K, n_features, n_features) for "full"
        and "low_rank", (K, n_features) for "diag", (K,) for "spherical".
    covariance_type_ : str
        ``covariance_type``, or what "auto" has chosen.
    ranks_ : ndarray of int, shape (K,)
        Rank found for each component; of "low_rank" only.
    precisions_, precisions_cholesky_ : ndarray
        Expected precisions, and their Cholesky factors as in scikit-learn (square roots for "diag"
        and "spherical").
    .. shared: block_relevance_, column_relevance_
    mean_precision_ : ndarray of shape (K,) or None
        Number of rows that each mean is worth, those of the prior included; (K, n_features) where
        columns are independent and have missing values. None with ``mean_type="zero"``.
    degrees_of_freedom_ : ndarray of shape (K,)
        Degrees of freedom of q of each precision, those of the prior included: a row adds 1, with
        "spherical" each value; (K, n_features) with "diag" and missing values.
    .. shared: weight_concentration_, hierarchy_
        The entropy is that of [Baudry10]_.
    .. shared: hierarchy_criteria_, n_clusters_, n_clusters_reason_, clusterings_
    .. shared: elbo_ & lower_bound_
    .. shared: history_ (memoized), lower_bounds_, move_log_, weight_concentration_prior_
    mean_prior_ : ndarray of shape (n_features,) or None
        Prior mean as used or learned; None with ``mean_type="zero"``.
    mean_precision_prior_ : float or None
        Number of rows that the prior mean is worth; None with ``mean_type="zero"``.
    degrees_of_freedom_prior_ : float
        Degrees of freedom of the prior of the precisions as used or learned.
    covariance_prior_ : float or ndarray
        Inverse scale of that prior as used or learned: a number for "spherical", (n_features,) for
        "diag" and "low_rank", (n_features, n_features) for "full" and "tied".
    .. shared: restart_elbos_, n_batch_iter_, temperature_, converged_, n_iter_
    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks) and "components".
    .. shared: n_features_in_, feature_names_in_

    See Also
    --------
    sklearn.mixture.BayesianGaussianMixture : Truncated at a fixed number of components.

    Notes
    -----
    Memory: the memo of a batch holds ``K (P + K)`` numbers of 8 bytes, with ``P = D (D + 3) / 2 +
    1`` for "full", "tied" and "low_rank", ``3 D`` for "diag", ``2 D + 2`` for "spherical"; and
    while a batch is worked on, its responsibilities, ``batch_size * K`` numbers. Only the number of
    batches grows with the number of rows: choose larger batches for more rows. ``fit`` reads a
    memory-mapped array batch by batch.

    With "full", "tied" and "low_rank", the missing values of a row have a normal distribution given
    each component, which is part of q and of the bound. A row with NaN costs each component
    ``O(n_features^2)`` operations more than a complete one, and each pattern of m missing columns
    among 512 consecutive rows ``O(m^3)``.

    References
    ----------
    .. [HS13] M. C. Hughes and E. B. Sudderth, "Memoized Online Variational Inference for Dirichlet
       Process Mixture Models", NeurIPS 2013.
    .. [Baudry10] J.-P. Baudry, A. E. Raftery, G. Celeux, K. Lo, R. Gottardo, "Combining Mixture
       Components for Clustering", Journal of Computational and Graphical Statistics 19, 2010.

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
    init_params: str = "k-means++"
    means_init: ArrayLike | None = None
    labels_init: ArrayLike | None = None
    use_labels: bool = False
    labels: str = "components"
    learning_method: MemoizedMethod = "memoized"
    moves: tuple[str, ...] = ("birth", "merge", "delete")
    n_batches: int | None = None
    batch_size: Annotated[int | None, None, AT_LEAST_ONE] = None
    n_parallel_batches: int | None = None
    temperature: Temperature = None
    learning_decay: float = 0.7
    learning_offset: float = 10.0
    total_samples: float | None = None
    max_iter: int = 100
    tol: float = 1e-5
    evaluate_every: int = -1
    n_init: int = 1
    warm_start: bool = False
    n_jobs: int | None = None
    verbose: int = 0
    verbose_interval: int = 1
    random_state: Seed = None

    # --------------------------------------------------------------------------------- model
    @property
    def _is_finite(self):
        """Whether there are ``n_components`` components throughout."""
        return self.weight_concentration_prior_type == "dirichlet_distribution"

    def _build_model(self, X, weights, old=None):
        """Sticks or a finite Dirichlet, and Gaussians whose priors are given or found."""
        check_memoized(self)
        K, alpha = self.n_components, self.weight_concentration_prior
        learns = isinstance(alpha, str)
        if self._is_finite and learns:
            raise ValueError(
                "The 'weight_concentration_prior' parameter of a Dirichlet distribution must be a "
                "number in the range (0, inf) or None. Got 'auto', which is for "
                "weight_concentration_prior_type='dirichlet_process'."
            )
        if old is not None:
            return old
        require_rows(self, X, K)
        if self.reg_covar > 0.0:
            check_variance("reg_covar", self.reg_covar, X.dtype)
        most = K if self._is_finite else self.max_components
        kind = covariance_type_for(self, X, weights, self.reg_covar, most)
        component, priors = gaussian_component(self, kind, X, weights, self.reg_covar)
        vars(self).update({f"{name}_": priors[name] for name in priors})
        if self._is_finite:
            law = SymmetricDirichlet(1.0 if alpha is None else float(alpha) * K, K)
        else:
            law = StickBreaking(1.0 if alpha is None or learns else float(alpha))
        model = Mixture(
            law,
            component,
            n_initial=K,
            init_params=self.init_params,
            n_fewest=K if self._is_finite else 1,
            learner=gaussian_learner(self, component),
            learns_concentration=learns,
        )
        if self.means_init is None and self.labels_init is None:
            return model
        if self.means_init is None:
            return begun_with_labels(model, self.labels_init, X, weights, most)
        if self.labels_init is not None or self.mean_type == "zero":
            other = "mean_type='zero', which has no means" if self.labels_init is None else "labels"
            raise ValueError(
                f"Give either 'means_init' or another starting point, not both. Got {other}."
            )
        return replace(model, start=begun_at(model, X, weights, given_means(self, X)))

    def _plan(self, model, X, weights, *, stream=False):
        """Memoized inference with moves, or stochastic inference."""
        return memoized_plan(self, X, weights, {} if self._is_finite else None, stream=stream)

    def _published(self, model):
        learned = learned_values(model)
        return {f"{name}_": learned[name] for name in learned}

    # --------------------------------------------------------------------------- attributes
    @of_fit
    def weight_concentration_prior_(self, fitted):
        """Concentration as used, of a finite Dirichlet that of each component."""
        return float(fitted.model.weights.prior()[0, -1])

    covariance_type_ = of_model("component.covariance_type", "Type of the covariances as used.")

    @of_fit
    def means_(self, fitted):
        """Expected means, shape (K, n_features)."""
        return self._in_precision(self._moments(fitted)[0])

    @of_fit
    def covariances_(self, fitted):
        """Inverse expected precisions, shape (K, ...); of "tied" the matrix of all components."""
        return self._in_precision(self._moments(fitted)[1])

    @of_fit
    def ranks_(self, fitted):
        """Rank found for each component of "low_rank", shape (K,)."""
        if self.covariance_type_ != "low_rank":
            raise AttributeError("'ranks_' are those of covariance_type='low_rank'.")
        return fitted.model.component.ranks(fitted.lam()[1])

    @of_fit
    def precisions_(self, fitted):
        """Expected precisions, as ``covariances_``."""
        covariances = self._moments(fitted)[1]
        inverse = np.linalg.inv(covariances) if self._has_matrices else 1.0 / covariances
        return self._in_precision(inverse)

    @of_fit
    def precisions_cholesky_(self, fitted):
        """Upper triangular U with ``precision = U U'``; square roots where not "full"."""
        covariances = self._moments(fitted)[1]
        if not self._has_matrices:
            return self._in_precision(1.0 / np.sqrt(covariances))
        roots = np.linalg.inv(np.linalg.cholesky(covariances))
        return self._in_precision(np.swapaxes(roots, -2, -1))

    @of_fit
    def mean_precision_(self, fitted):
        """Rows that each mean is worth, (K,)."""
        q = self._of_components(fitted)
        return self._of_columns(q["mean_precision"]) if "mean_precision" in q else None

    @of_fit
    def degrees_of_freedom_(self, fitted):
        """Degrees of freedom of each precision, (K,)."""
        q = self._of_components(fitted)
        return self._of_columns(2.0 * q["shape"] if "shape" in q else q["degrees_of_freedom"])

    def _of_components(self, fitted):
        """Parameters of q of the components, as textbooks name them."""
        return fitted.model.component.family.standard(fitted.lam()[1])

    def _of_columns(self, value):
        """(K, ...) as (K, n_features), or as (K,) where all columns have the same."""
        value = value.reshape(len(value), -1)
        return self._in_precision(value[:, 0] if np.all(value == value[:, :1]) else value)

    def _moments(self, fitted):
        """Means and covariances in double precision."""
        component = fitted.model.component
        return component.moments(component.apart(fitted.lam()[1]))

    @property
    def _has_matrices(self):
        return self.covariance_type_ in MATRICES

    def _in_precision(self, value):
        return np.asarray(value, self._fitted.model.dtype)
