"""Dirichlet process Gaussian mixtures with memoized inference, births, merges and deletes."""

from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from skvt.estimators._base import all_or_nothing
from skvt.estimators._description import DescriptionMixin
from skvt.estimators._imputation import ImputeMixin
from skvt.estimators._mixins import LEARNING_RATE_CONSTRAINTS, TemperatureMixin
from skvt.estimators._mixtures import MixtureEstimator
from skvt.estimators._moves_mixin import (
    CONCENTRATION_CONSTRAINT,
    MovesMixin,
    begun_with_labels,
    sticks,
)
from skvt.estimators._sklearn_private import Interval, StrOptions
from skvt.estimators.component_specs import (
    GAUSSIAN_PRIOR_CONSTRAINTS,
    GAUSSIAN_PRIORS,
    gaussian_prior,
    learned_names,
)
from skvt.estimators.validation import LARGEST_VALUE
from skvt.models.mixture import MATRICES, GaussianLearner, begun_at, gaussian_component

MOVES = ("birth", "merge", "delete")


class MemoizedDPGMM(DescriptionMixin, ImputeMixin, MovesMixin, MixtureEstimator):
    """Dirichlet process mixture of Gaussians that grows and prunes itself.

    A neighbour of :class:`sklearn.mixture.BayesianGaussianMixture`: the same model and names.
    Memoized inference [HS13]_ works through the data batch by batch, remembers what each batch
    contributed, and so knows the evidence lower bound of all data, with every constant, at every
    step. Moves change the number of components during the fit: births add what the data support,
    merges and deletes take away what they do not, both judged by that bound. By default a fit
    starts with one component.

    Parameters
    ----------
    n_components : int, default=1
        Components at the start; without births and merges, throughout.

    max_components : int, default=200
        Births stop at this number.

    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Shape of each component's covariance; "tied" is one matrix for all components. NaN in the
        data are missing values: with "diag" and "spherical" integrated out, with "full" and "tied"
        local variables of their rows, see Notes.

    mean_type : {"full", "zero"}, default="full"
        Whether components have means, or all have mean zero.

    weight_concentration_prior : float, "auto" or None, default=None
        Concentration alpha of the weights; None is 1. The larger, the more components. "auto", here
        and below, begins with what None is and learns it at the maximum of the bound, after each
        pass from which two or more components come.

    mean_precision_prior : float, "auto" or None, default=None
        Rows for which the prior mean of a component counts (kappa); None is 1. "auto" learns it,
        from 1e-6 to 1.

    mean_prior : array-like of shape (n_features,), "auto" or None, default=None
        Prior mean; None is the mean of the data, with NaN and "full" the most likely one.

    degrees_of_freedom_prior : float, "auto" or None, default=None
        Degrees of freedom nu of the Wishart prior of a precision matrix, more than
        ``n_features - 1``; with "diag" and "spherical" those of a gamma prior of shape nu / 2.
        None is ``n_features``. "auto" learns it, twice that at most.

    covariance_prior : array-like, "auto" or None, default=None
        Inverse scale of that prior: (n_features, n_features), for "diag" (n_features,), for
        "spherical" a number (the gamma prior has half of it as rate). None is the covariance of
        the data, with "zero" their second moment; of data with NaN, those of the largest
        likelihood, found on at most 10,000 rows. "auto" learns it; a millionth of the columns'
        variance is the least. In directions in which the rows vary by less than
        a millionth of the columns' variance, they count as if they varied by that.

    init_params : {"k-means++", "random", "random_from_data"}, default="k-means++"
        How the components are found that a fit begins with: rows as seeds, drawn by what the others
        explain badly; random responsibilities; rows as seeds, drawn evenly.

    means_init : array-like of shape (n_components, n_features) or None, default=None
        Means that a fit begins with, in the place of those that ``init_params`` finds, as in
        :class:`sklearn.mixture.GaussianMixture`. Each row begins in the component whose mean is
        nearest, in the metric of the prior's covariance.

    labels_init : array-like of shape (n_samples,) or None, default=None
        Component that each row of ``fit`` begins in, in the place of those that ``init_params``
        finds: as many components as there are labels, whatever ``n_components`` is. -1 where it is
        not known: such a row begins in the component that explains it best. The labels are those of
        the rows with a positive weight.

    learning_method : {"memoized", "online", "batch"}, default="memoized"
        How the posterior q is found. "memoized": memoized inference. "online": stochastic inference
        on shuffled minibatches, without moves. "batch": memoized inference with one batch, which is
        coordinate ascent.

    moves : tuple of {"birth", "merge", "delete"}, default=("birth", "merge", "delete")
        Moves that may be made; ``()`` is none. They come at the end of each pass; without them,
        ``n_components`` stays.

    n_batches, batch_size : int or None, default=None
        Into how many batches of consecutive rows, or of how many rows, ``fit`` divides the data; at
        most one of them is given. None are about 10 batches of 1,000 to 50,000 rows.

    temperature : None, str or policy, default=None
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name. Those
        that learn the temperature are refused. Moves wait until it is 1.

    learning_decay : float, default=0.7
        How fast steps fall. With "online", step number t has size ``(learning_offset + t) **
        -learning_decay``.

    learning_offset : float, default=10.0
        Down-weights early steps; at least 1.

    total_samples : float or None, default=None
        Rows for which a stream of ``partial_fit`` stands. None are, with "memoized" and "batch",
        those seen; otherwise a million for a stream begun by ``partial_fit``, and after ``fit`` its
        rows plus those seen since.

    max_iter : int, default=100
        Most passes over the data.

    tol : float, default=1e-5
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        row. Not while the fit is hot, or a move has anything left to try. A
        :class:`~sklearn.exceptions.ConvergenceWarning` where ``max_iter`` passes do not get there.

    evaluate_every : int, default=-1
        Evaluate the bound on all data every so many passes; never where it is 0 or negative.
        Memoized inference knows it anyhow. With "online", ``tol`` is judged by these evaluations
        alone.

    n_init : int, default=1
        Starts of ``fit``; that with the highest bound is kept.

    warm_start : bool, default=False
        Whether another ``fit`` starts from the posterior, step number and temperature of the last.

    n_jobs : int or None, default=None
        Threads. The result does not depend on it, to the last bit.

    verbose : int, default=0
        Print a line a pass if positive.

    random_state : int, RandomState instance or None, default=None
        Source of randomness. It decides the initial components, the order of the batches, and the
        rows on which births are learned.

    Attributes
    ----------
    n_components_ : int
        Number of components K. As found.

    n_active_components_ : int
        Components to which at least a thousandth of the data is expected to belong. Data are rows.

    weights_ : ndarray of shape (K,)
        Expected weights, normalised: the mass of a component not yet seen is left out.

    means_ : ndarray of shape (K, n_features)
        Expected means.

    covariances_ : ndarray
        Inverse of the expected precision of each component: (K, n_features, n_features) for
        "full", (K, n_features) for "diag", (K,) for "spherical".

    precisions_, precisions_cholesky_ : ndarray
        Expected precisions, and their Cholesky factors as in scikit-learn (square roots for "diag"
        and "spherical").

    block_relevance_ : ndarray of shape (K, n_blocks)
        Nats per row of a component by which its rows have parameters of their own in a block,
        rather than share those of all other rows: the logarithm of the Bayes factor of the two,
        divided by the component's rows. Above 0, the block tells the component from the rest.
        Components of less than a row count as one row.

    column_relevance_ : ndarray of shape (K, n_columns)
        The same of each column. Those of independent columns add up to that of their block; of full
        covariances, and of counts of tokens, it is that of the column alone; columns of spherical
        ones share the block's equally.

    weight_concentration_ : ndarray of shape (2, K)
        Parameters (a, b) of q(v_k) = Beta.

    hierarchy_ : ndarray of shape (K - 1, 4)
        Components joined to clusters where rows do not tell them apart: a linkage matrix, as
        :func:`scipy.cluster.hierarchy.dendrogram` draws it. Its heights are the entropy that the
        assignments of the rows of ``fit`` have lost so far [Baudry10]_, in nats per row. Not there
        after ``partial_fit``, see ``join_components``.

    n_clusters_ : int
        Number of clusters to which the hierarchy suggests to join them. Pairs are joined that lose
        a tenth of what could tell them apart; and where the entropy has an elbow, those before it
        that lose a hundredth. ``predict(X, n_clusters="auto")`` gives these clusters.

    elbo_, lower_bound_ : float
        Evidence lower bound of the training data in nats, every constant included. Not there after
        ``partial_fit``, see ``elbo``.

    history_ : dict of lists
        One entry a pass of ``fit``, those of earlier warm starts included, and one a call of
        ``partial_fit``, without bounds (NaN): "n_iter", "elbo", "objective", "temperature",
        "learning_rate", "n_components", "seconds". With "online", the bounds are estimates from the
        minibatches of the pass unless ``evaluate_every`` asks for exact ones.

    lower_bounds_ : list of float
        ``history_["elbo"]``.

    move_log_ : dict of lists
        One entry for each kind of move due in a pass: "n_iter", "move", "proposed", "accepted",
        "gain" (nats). The gain of births is that of the components which the pass adopted. After a
        birth that did not pay, what other moves did in the same pass is undone with it.

    weight_concentration_prior_ : float
        Concentration of the weights as used.

    mean_prior_ : ndarray of shape (n_features,) or None
        Prior mean as used or learned; None with ``mean_type="zero"``.

    mean_precision_prior_ : float or None
        Rows for which it counts; None with ``mean_type="zero"``.

    degrees_of_freedom_prior_ : float
        Degrees of freedom of the prior of the precisions as used or learned.

    covariance_prior_ : float or ndarray
        Inverse scale of that prior as used or learned: a number for "spherical", (n_features,) for
        "diag", (n_features, n_features) for "full" and "tied".

    restart_elbos_ : ndarray of shape (n_init,)
        ELBO of each start.

    n_batch_iter_ : int
        Global updates made.

    converged_ : bool
        Whether the fit stopped on convergence.

    n_iter_ : int
        Passes of ``fit`` and calls of ``partial_fit`` made, entries of ``history_``.

    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks) and "components".

    n_features_in_ : int
        Number of columns of X.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names, where X had any.

    See Also
    --------
    sklearn.mixture.BayesianGaussianMixture : Truncated at a fixed number of components.

    Notes
    -----
    Memory: the memo of a batch holds ``K (P + K)`` numbers of 8 bytes, with ``P = D (D + 3) / 2 +
    1`` for "full" and "tied", ``3 D`` for "diag", ``2 D + 2`` for "spherical"; and while a batch is
    worked on, its responsibilities, ``batch_size * K`` numbers. Nothing grows with the number of
    rows but the number of batches: choose larger batches for more rows. ``fit`` takes rows from a
    memory-mapped array batch by batch.

    With "full" and "tied", what is missing of a row has a normal distribution under each component,
    which is part of q and of the bound. A row with NaN costs each component ``O(n_features^2)``
    operations more than a complete one, and each pattern of m missing columns among 512 consecutive
    rows ``O(m^3)``.

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

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "mean_type": [StrOptions({"full", "zero"})],
        "weight_concentration_prior": CONCENTRATION_CONSTRAINT,
        **GAUSSIAN_PRIOR_CONSTRAINTS,
        "init_params": [StrOptions({"k-means++", "random", "random_from_data"})],
        "means_init": [None, "array-like"],
        "labels_init": [None, "array-like"],
        "learning_method": [StrOptions({"memoized", "online", "batch"})],
        "moves": [tuple, list],
        "n_batches": [None, Interval(Integral, 1, None, closed="left")],
        "batch_size": [None, Interval(Integral, 1, None, closed="left")],
        "total_samples": [None, Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "evaluate_every": [Interval(Integral, None, None, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        **TemperatureMixin._temperature_constraints,
        **LEARNING_RATE_CONSTRAINTS,
    }

    _allows_missing = True
    _fixed_parameters = (
        "n_components",
        "covariance_type",
        "mean_type",
        "weight_concentration_prior",
        "mean_precision_prior",
        "mean_prior",
        "degrees_of_freedom_prior",
        "covariance_prior",
    )

    def __init__(
        self,
        n_components=1,
        *,
        max_components=200,
        covariance_type="full",
        mean_type="full",
        weight_concentration_prior=None,
        mean_precision_prior=None,
        mean_prior=None,
        degrees_of_freedom_prior=None,
        covariance_prior=None,
        init_params="k-means++",
        means_init=None,
        labels_init=None,
        learning_method="memoized",
        moves=MOVES,
        n_batches=None,
        batch_size=None,
        temperature=None,
        learning_decay=0.7,
        learning_offset=10.0,
        total_samples=None,
        max_iter=100,
        tol=1e-5,
        evaluate_every=-1,
        n_init=1,
        warm_start=False,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.n_components = n_components
        self.max_components = max_components
        self.covariance_type = covariance_type
        self.mean_type = mean_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.init_params = init_params
        self.means_init = means_init
        self.labels_init = labels_init
        self.learning_method = learning_method
        self.moves = moves
        self.n_batches = n_batches
        self.batch_size = batch_size
        self.temperature = temperature
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.total_samples = total_samples
        self.max_iter = max_iter
        self.tol = tol
        self.evaluate_every = evaluate_every
        self.n_init = n_init
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # --------------------------------------------------------------------------------- model
    @property
    def _most_components(self):
        return self.max_components

    def _check_parameters(self):
        super()._check_parameters()
        if self.max_components < self.n_components:
            raise ValueError(
                f"The 'max_components' parameter must be in the range [n_components, inf) = "
                f"[{self.n_components}, inf). Got {self.max_components} instead."
            )

    def _build_model(self, X, weights):
        model = super()._build_model(X, weights)
        if self.means_init is not None:
            return self._begun_with_means(model, X, weights)
        return begun_with_labels(model, self.labels_init, X, weights, self.max_components)

    def _begun_with_means(self, model, X, weights):
        """The model, begun with the means given."""
        if self.labels_init is not None or self.mean_type == "zero":
            other = "mean_type='zero', which has no means" if self.labels_init is None else "labels"
            raise ValueError(
                f"Give 'means_init' or something else to begin with, not both. Got {other}."
            )
        means = np.asarray(self.means_init, dtype=np.float64)
        shape = (self.n_components, X.shape[1])
        if means.shape != shape or not np.all(np.abs(means) <= LARGEST_VALUE[X.dtype]):
            raise ValueError(
                f"The 'means_init' parameter must be an array of shape (n_components, n_features) "
                f"= {shape} of finite numbers, no larger than {LARGEST_VALUE[X.dtype]:g} in "
                f"{X.dtype}. Got {self.means_init!r} instead."
            )
        return replace(model, start=begun_at(model, X, weights, means))

    def _build_weights(self):
        return sticks(self.weight_concentration_prior)

    def _build_component(self, X, weights):
        component, priors = gaussian_component(
            X,
            weights,
            self.covariance_type,
            self.mean_type == "zero",
            gaussian_prior(self),
        )
        self._set_priors(priors)
        return component

    def _build_learner(self, component):
        return GaussianLearner.of(component, learned_names(self, GAUSSIAN_PRIORS))

    def _set_priors(self, priors):
        for name in priors:
            setattr(self, f"{name}_", priors[name])

    def _publish(self, X):
        super()._publish(X)
        self._set_priors(self._learned_values())

    # ------------------------------------------------------------------------------ fitting
    @all_or_nothing
    def fit(self, X, y=None, sample_weight=None):
        """Fit the mixture to all data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; a memory-mapped array is read batch by batch.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight 2 counts as two.

        Returns
        -------
        self : MemoizedDPGMM
            The fitted estimator.

        Raises
        ------
        ValueError
            For infinite values, values beyond 1e100 (1e15 in float32), fewer rows than
            ``n_components``, and illegal priors.
        """
        return self._fit(X, y, sample_weight)

    @all_or_nothing
    def partial_fit(self, X, y=None, sample_weight=None, batch_id=None):
        """Update on one more batch, or on a batch seen before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of one batch.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight 2 counts as two.
        batch_id : hashable or None, default=None
            None remembers X as a new batch. With the id of an earlier call (or the number of a
            batch of ``fit``, from 0), X takes that batch's place: so that several passes over
            batches on disk are calls with the same ids. With ``learning_method="online"`` ids are
            not used.

        Returns
        -------
        self : MemoizedDPGMM
            The fitted estimator.

        Notes
        -----
        Births are made within the batch, and merges with what is remembered of all; both only
        where the exact bound rises. Default priors are those of the first batch.
        """
        return self._partial_fit(X, sample_weight, batch_id=batch_id)

    # --------------------------------------------------------------------------- attributes
    @property
    def means_(self):
        """Expected means, shape (K, n_features)."""
        return self._in_precision(self._moments("means_")[0])

    @property
    def covariances_(self):
        """Inverse expected precisions, shape (K, ...); of "tied" the matrix of all components."""
        return self._in_precision(self._moments("covariances_")[1])

    @property
    def precisions_(self):
        """Expected precisions, as ``covariances_``."""
        covariances = self._moments("precisions_")[1]
        inverse = np.linalg.inv(covariances) if self._has_matrices else 1.0 / covariances
        return self._in_precision(inverse)

    @property
    def precisions_cholesky_(self):
        """Upper triangular U with ``precision = U U'``; square roots where not "full"."""
        covariances = self._moments("precisions_cholesky_")[1]
        if not self._has_matrices:
            return self._in_precision(1.0 / np.sqrt(covariances))
        roots = np.linalg.inv(np.linalg.cholesky(covariances))
        return self._in_precision(np.swapaxes(roots, -2, -1))

    def _moments(self, name):
        """Means and covariances in double precision, or the error of an attribute not there yet."""
        fitted = self._of_fit(name)
        component = fitted.model.component
        return component.moments(component.apart(fitted.lam()[1]))

    @property
    def _has_matrices(self):
        return self._fitted.parameters["covariance_type"] in MATRICES

    def _in_precision(self, value):
        return np.asarray(value, self._fitted.model.dtype)
