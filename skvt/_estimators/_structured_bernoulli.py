"""The estimator of mixtures of binary rows, by memoized, structured or stochastic inference.

The mathematics is in :mod:`skvt.models.mixture`, and structured inference in
:mod:`skvt.inference`.
"""

from dataclasses import KW_ONLY, replace
from typing import Annotated

from numpy.typing import ArrayLike

from skvt._estimators._mixtures import require_rows
from skvt._results import GrowingMixin, MixtureEstimator
from skvt._sklearn_private import StrOptions
from skvt.components.specs import is_auto, make_beta_learner, make_beta_prior
from skvt.expfam import Beta
from skvt.files import in_files
from skvt.fitting import (
    AUTO,
    FIXED,
    FIXED_IN_STREAMS,
    POSITIVE,
    check_memoized,
    choose_batch_size,
    estimator,
    fitted_property,
    make_plan_with_moves,
    make_policy,
)
from skvt.inference import (
    GLOBAL_STEPS,
    Phase,
    Pilot,
    Plan,
    Stopping,
    StreamPlan,
    StructuredInference,
    make_rows,
)
from skvt.models.mixture import (
    Bernoulli,
    Mixture,
    MixtureGivenGlobals,
    SeparateSticks,
    StickBreaking,
    SymmetricDirichlet,
)
from skvt.posterior import JointPosterior, Posterior
from skvt.readers import BinaryReader
from skvt.rows import has_sparse_rows
from skvt.schedules import RobbinsMonro

# Default scale of the sizes of steps on all rows. With the default offset and decay, step number t
# then has size rho = min(1, 100 (10 + t)^-0.75), which is 1 up to t = 454.
SCALE_OF_FULL_STEPS = 100.0
# Maximum number of initial components of memoized inference if births can add components.
MAX_INITIAL_COMPONENTS = 100
# Maximum step size in a structured stream, as a multiple of the share of the step's rows in all
# rows so far. With a multiple of 1, all rows would count equally. A larger multiple gives the first
# rows less weight, because their assignments were made when little was known.
MAX_MULTIPLE_OF_SHARE = 2.0


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files(
    "estimators.StructuredBernoulliMixture",
    fitted={
        "model": (Mixture, MixtureGivenGlobals),
        "model.weights": (StickBreaking, SeparateSticks, SymmetricDirichlet),
        "model.component": (Bernoulli,),
    },
)
@estimator
class StructuredBernoulliMixture(GrowingMixin, MixtureEstimator):
    """Mixture of Bernoullis for binary rows that finds its number of clusters.

    A component consists of the probability of a one in each column, and each row belongs to one
    component. By default, memoized inference [2]_ with births, merges and deletes finds the number
    of components and learns the prior of each column. As an alternative, structured inference [1]_
    draws weights and components from their posterior in each step, and assigns all rows given the
    draw. It finds about as many small clusters as Gibbs sampling does. NaN are missing values and
    are integrated out.

    Parameters
    ----------
    n_components : int, default=100
        Maximum number of components. Choose more than you expect. With "memoized" and "batch",
        components that the data do not support are merged or deleted. If births may add components,
        these fits begin with at most 100 components, and a stream begins with one. With
        "structured" and "online", unneeded components remain without rows.
    weight_concentration_prior : float or None, default=None
        Concentration alpha of the prior of the weights. A larger concentration favours more
        components. None is 1.
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
default="dirichlet_process"
        Prior of the weights: the sticks of a Dirichlet process, or its finite approximation
        ``Dirichlet(alpha / K)`` [1]_.
    feature_prior : float, array-like of shape (2,) or (n_features, 2), or "auto", default="auto"
        Parameters (a, b) of the beta prior of the probability of a one. A number stands for both.
        "auto" starts with 1 and learns the parameters of each column, between 0.001 and 1,000. It
        maximises the bound plus the log of a prior that pulls the parameters towards 1 with the
        weight of two components. With "structured", it maximises the evidence of the components
        given the assignments, by one step per pass.
    learning_method : {"memoized", "structured", "online", "batch"}, default="memoized"
        How the posterior q is found. "memoized": memoized mean-field inference [2]_ with births,
        merges and deletes. "structured": structured inference. "online": stochastic mean-field
        inference on shuffled minibatches, without moves. "batch": memoized inference with one
        batch, which is coordinate ascent.
    global_step : {"ssvi-a", "ssvi", "mean_field", "map"}, default="ssvi-a"
        Global parameters on which local steps are conditioned. This is for "structured". "ssvi-a"
        and "ssvi" draw weights and components from q. "ssvi" also corrects the statistics for the
        dependence of the draw on its parameters. "mean_field" takes expected logarithms, and "map"
        takes means.
    .. shared: init_params, labels
    moves : tuple of {"birth", "merge", "delete"}, default=("birth", "merge", "delete")
        Moves that may be made; ``()`` is none. With "memoized" and "batch", they are made at the
        end of each pass, as in :class:`~skvt.MemoizedDPGMM`.
    n_batches, batch_size : int or None, default=None
        Number of batches of consecutive rows into which ``fit`` divides the data, or number of rows
        per batch; give at most one of them. None is one batch of all rows with "structured", and
        otherwise about 10 batches of 1,000 to 50,000 rows.
    .. shared: n_parallel_batches (memoized), temperature
    learning_decay : float, default=0.75
        How fast step sizes decrease. With "structured" and "online", step number t has size
        ``learning_scale * (learning_offset + t) ** -learning_decay``, at most 1. In ``partial_fit``
        a structured step is also at most twice the share of its rows in all rows seen.
    .. shared: learning_offset
    learning_scale : float or None, default=None
        Scale of the step sizes, see ``learning_decay``. None is 100 for steps of "ssvi-a" on all
        rows, so that about the first 450 steps have size 1, and otherwise 1. Minibatches and the
        corrections of "ssvi" are noisy, and small steps average the noise out.
    total_samples : float or None, default=None
        Assumed number of rows of the whole stream in ``partial_fit``. None is the number of rows
        seen, or with "online" a million for a stream started by ``partial_fit``. If a structured
        stream has more rows than assumed, the first rows are forgotten.
    binarize : float or None, default=None
        Values above this number count as 1 and others as 0, as in
        :class:`sklearn.naive_bayes.BernoulliNB`. None requires binary data. Codes for missing
        values, such as -1, would count as 0: replace them by NaN first.
    .. shared: max_iter
    tol : float, default=1e-5
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        row. Convergence is not judged while T > 1 or a move has something left to try. Where bounds
        are evaluated or known, there is a :class:`~sklearn.exceptions.ConvergenceWarning` if
        ``max_iter`` passes do not suffice.
    evaluate_every : int, default=-1
        Number of passes between evaluations of the bound on all data; 0 or a negative number means
        never. It is the mean-field bound. A structured step yields no bound: ``history_["elbo"]``
        is NaN for the other passes. Memoized inference knows the bound after each pass.
    .. shared: n_init, warm_start, n_jobs, verbose, verbose_interval, random_state

    Attributes
    ----------
    .. shared: n_active_components_
    n_components_ : int
        Number of components K. With "structured" and "online" it includes components without
        rows.
    .. shared: weights_, labels_
    means_ : ndarray of shape (K, n_features)
        Expected probabilities of a one.
    .. shared: block_relevance_, column_relevance_, weight_concentration_, hierarchy_
        The entropy is defined in [3]_.
    .. shared: hierarchy_criteria_, n_clusters_, n_clusters_reason_, clusterings_
    .. shared: cluster_labels_
    elbo_, lower_bound_ : float
        Evidence lower bound of the training data in nats, every constant included. It is the
        mean-field bound. Structured inference does not maximise it: it is then the bound at the
        final q(w) q(phi). Not available after ``partial_fit``, see ``elbo``.
    .. shared: history_
        With "structured", "objective" is the log probability of the rows under the drawn weights
        and components, minus the divergence of the global parameters. This difference is not a
        bound.
    .. shared: lower_bounds_, move_log_, weight_concentration_prior_
    feature_prior_ : ndarray of shape (n_features, 2)
        Parameters (a, b) of the beta priors as used or learned.
    .. shared: restart_elbos_, n_batch_iter_, temperature_, converged_, n_iter_
    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks, or a Dirichlet) and "components" (a beta distribution for each
        component and column).
    .. shared: n_features_in_, feature_names_in_, words_

    See Also
    --------
    skvt.MemoizedDPGMM : For rows of real numbers.
    sklearn.neural_network.BernoulliRBM : Binary rows described by binary features.

    Notes
    -----
    A structured step draws weights w and components phi from q. Given the draw, it finds the
    expected counts S of rows and of ones in each component, and updates ``lam <- (1 - rho) lam +
    rho (eta + V S)``, where V is the identity with "ssvi-a". Steps of size 1 are a Gibbs sampler
    whose assignments are replaced by their probabilities. As step sizes decrease, q converges. If
    step sizes decreased from the first step on, early assignments would be frozen.

    References
    ----------
    .. [1] M. Hoffman, D. Blei (2015). Structured stochastic variational inference. AISTATS.
    .. [2] M. C. Hughes, E. B. Sudderth (2013). Memoized online variational inference for Dirichlet
       process mixture models. NeurIPS.
    .. [3] J.-P. Baudry, A. E. Raftery, G. Celeux, K. Lo, R. Gottardo (2010). Combining mixture
       components for clustering. Journal of Computational and Graphical Statistics 19.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import StructuredBernoulliMixture
    >>> rng = np.random.default_rng(0)
    >>> profiles = rng.random((4, 30)) < 0.5
    >>> X = profiles[rng.integers(4, size=400)] ^ (rng.random((400, 30)) < 0.1)
    >>> mixture = StructuredBernoulliMixture(20, random_state=0).fit(X)
    >>> mixture.n_components_
    4
    """

    _reader_class = BinaryReader

    n_components: int = 100
    _: KW_ONLY
    weight_concentration_prior: Annotated[float | None, FIXED, None, POSITIVE] = None
    weight_concentration_prior_type: Annotated[str, FIXED] = "dirichlet_process"
    feature_prior: Annotated[ArrayLike | str, FIXED, AUTO, POSITIVE, "array-like"] = "auto"
    learning_method: Annotated[
        str, FIXED_IN_STREAMS, StrOptions({"structured", "memoized", "online", "batch"})
    ] = "memoized"
    global_step: Annotated[str, StrOptions(set(GLOBAL_STEPS))] = "ssvi-a"
    learning_decay: float = 0.75
    learning_scale: Annotated[float | None, None, POSITIVE] = None
    binarize: Annotated[float | None, FIXED] = None
    max_iter: int = 500

    # --------------------------------------------------------------------------------- model
    @property
    def _is_structured(self):
        """Whether inference is structured."""
        return self.learning_method == "structured"

    def _build_model(self, X, weights, old=None):
        """Build the mixture of independent binary columns.

        ``old`` is None for a new fit. If a fit is continued, return its model ``old`` unchanged.
        """
        check_memoized(self)
        model_class = MixtureGivenGlobals if self._is_structured else Mixture
        if old is not None and type(old) is not model_class:
            raise ValueError(
                "A warm start cannot change learning_method between 'structured' and the other "
                f"methods. Got learning_method={self.learning_method!r}; set it back, or set "
                "warm_start=False to start anew."
            )
        if old is not None:
            return old
        require_rows(self, X, 1)
        K = self.n_components
        alpha = self.weight_concentration_prior
        alpha = 1.0 if alpha is None else float(alpha)
        if self.weight_concentration_prior_type == "dirichlet_distribution":
            weights_prior = SymmetricDirichlet(alpha, K)
        else:
            weights_prior = SeparateSticks(alpha) if self._is_structured else StickBreaking(alpha)
        component = Bernoulli(
            make_beta_prior(self.feature_prior, X.shape[1]), X.dtype, has_sparse_rows(X, weights)
        )
        learner = make_beta_learner(component) if is_auto(self.feature_prior) else None
        if learner is not None and self._is_structured:
            # One step per pass suffices, because the maximum changes with the draws of each pass.
            learner = replace(learner, most_steps=1)
        has_births = self.learning_method in ("memoized", "batch") and "birth" in self.moves
        return model_class(
            weights_prior, component, n_initial=min(K, MAX_INITIAL_COMPONENTS) if has_births else K,
            init_params=self.init_params, n_fewest=K if self._is_structured else 1, learner=learner,
        )  # fmt: skip

    def _gathers_small_calls(self, before=None):
        """Return whether the rows of small calls of ``partial_fit`` are gathered into batches.

        ``before`` is the fit so far, or None in the first call. Structured inference gathers the
        rows of the first calls only, so that the initial components come from many rows.
        """
        if self._is_structured:
            return before is None or before.gathered is not None
        return super()._gathers_small_calls(before)

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of structured inference, or of memoized or stochastic inference."""
        # The scale of step sizes, and then the schedule of step sizes.
        scale = self.learning_scale
        if not self._is_structured:
            scale = 1.0 if scale is None else scale
            plan = make_plan_with_moves(self, X, weights, stream=stream, scale=scale)
            if stream and self._gathers_small_calls():
                # Start with one component, which is made from the first row. Unneeded initial
                # components would remain, because a stream deletes none.
                first_rows = make_rows(X[:1], weights[:1], 1)
                plan = replace(plan, stream=replace(plan.stream, first_rows=first_rows))
            return plan
        # By default, all rows are one batch.
        is_one_batch = self.n_batches is None and self.batch_size is None
        if scale is None:
            has_full_steps = is_one_batch and self.global_step == "ssvi-a"
            scale = SCALE_OF_FULL_STEPS if has_full_steps else 1.0
        step_sizes = RobbinsMonro(self.learning_offset, self.learning_decay, scale)
        size = X.shape[0] if is_one_batch else choose_batch_size(self, X.shape[0], stream=stream)
        data = make_rows(X, weights, size, self.n_parallel_batches)
        engine = StructuredInference(step_sizes, self.global_step, MAX_MULTIPLE_OF_SHARE)
        return Plan(
            data=data,
            phases=(Phase(engine),),
            policy=make_policy(self.temperature),
            stopping=Stopping(self.max_iter, self.evaluate_every, self.tol),
            # The pilot is a short fit that calibrates a learned temperature.
            pilot=Pilot(step_sizes),
            stream=StreamPlan(self.total_samples, counts_rows=True),
        )

    # --------------------------------------------------------------------------- attributes
    @fitted_property
    def feature_prior_(self, fitted):
        """Beta prior of each column: pseudo-counts of ones and of zeros, shape (n_features, 2)."""
        return fitted.model.component.prior.copy()

    @fitted_property
    def means_(self, fitted):
        """Expected probabilities of a one, shape (K, n_features)."""
        _, components = fitted.lam()
        return Beta.mean(components).astype(fitted.model.dtype)

    @fitted_property
    def posterior_(self, fitted):
        """The posterior q of the weights and of the components."""
        weights, components = fitted.lam()
        return JointPosterior(
            weights=Posterior(fitted.model.weights.family, weights),
            components=Posterior(Beta, components),
        )
