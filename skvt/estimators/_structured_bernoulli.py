"""Mixtures of Bernoullis that find their number of clusters."""

from dataclasses import replace
from numbers import Real

from skvt.components.specs import beta_learner, beta_prior, is_auto
from skvt.estimators._description import DescriptionMixin
from skvt.estimators._imputation import ImputeMixin
from skvt.estimators._mixtures import MixtureEstimator
from skvt.estimators._moves_mixin import MovesMixin
from skvt.estimators._parameters import AUTO, MEMOIZED_CONSTRAINTS, POSITIVE
from skvt.expfam import Beta
from skvt.inference import GLOBAL_STEPS, StructuredInference
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
from skvt.schedules import RobbinsMonro
from skvt.sklearn_private import Interval, StrOptions

# Where a step takes all rows: rho = min(1, 100 t^-0.75) is 1 in the first 450 steps.
SCALE_OF_FULL_STEPS = 100.0
# In a stream, how many times the share of its rows a step is at most: above 1, so that the rows
# assigned when little was known are forgotten.
MOST_OF_SHARE = 2.0


class StructuredBernoulliMixture(DescriptionMixin, ImputeMixin, MovesMixin, MixtureEstimator):
    """Mixture of Bernoullis for binary rows that finds its number of clusters.

    A component consists of the probability of a one in each column, and each row belongs to one
    component. Mean-field inference ignores the dependence between components and assignments, and
    leaves most of many components without rows. Structured inference [1]_ draws weights and
    components from their posterior in each step, assigns all rows given the draw, and finds about
    as many clusters as Gibbs sampling. NaN are missing values and are integrated out.

    Parameters
    ----------
    n_components : int, default=100
        Maximum number of components K. Choose more than are expected: those that the data do not
        support remain without rows (or are merged away, with "memoized").

    weight_concentration_prior : float or None, default=None
        Concentration alpha of the weights; None is 1. The larger, the more components.

    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
default="dirichlet_process"
        Weights from the sticks of a Dirichlet process, or from ``Dirichlet(alpha / K)``, its finite
        approximation [1]_.

    feature_prior : float, array-like of shape (2,) or (n_features, 2), or "auto", default=1.0
        Parameters (a, b) of the beta prior of the probability of a one; a number stands for both.
        "auto" starts with 1 and learns the parameters of each column, between 0.001 and 1,000, at
        the maximum of the bound; with "structured", at that of the evidence of the components given
        the assignments of each pass, by a step a pass.

    learning_method : {"structured", "memoized", "online", "batch"}, default="structured"
        How the posterior q is found. "structured": structured inference. "memoized": memoized
        mean-field inference [2]_ with births, merges and deletes. "online": stochastic mean-field
        inference on shuffled minibatches, without moves. "batch": memoized inference with one
        batch, which is coordinate ascent.

    global_step : {"ssvi-a", "ssvi", "mean_field", "map"}, default="ssvi-a"
        Globals on which local steps are conditioned. With "structured", a draw of weights and
        components from q, with the statistics taken as they are ("ssvi-a") or corrected for the
        dependence of the draw on its parameters ("ssvi"); their expected logarithms; or their
        means.

    init_params : {"k-means++", "random", "random_from_data"}, default="k-means++"
        How the initial components are found: from rows as seeds, drawn with probabilities that grow
        with how badly the earlier seeds explain a row; from random responsibilities; or from rows
        as seeds, drawn uniformly.

    moves : tuple of {"birth", "merge", "delete"}, default=("birth", "merge", "delete")
        Moves that may be made; ``()`` is none. With "memoized" and "batch", they are made at the
        end of each pass, as in :class:`~skvt.MemoizedDPGMM`.

    n_batches, batch_size : int or None, default=None
        Number of batches of consecutive rows into which ``fit`` divides the data, or number of rows
        per batch; give at most one of them. None is one batch of all rows with "structured", and
        otherwise about 10 batches of 1,000 to 50,000 rows.

    n_parallel_batches : int or None, default=None
        Number of batches that are visited at once, with the same globals. It changes the result;
        ``n_jobs`` and the number of workers of a cluster do not. None is 1, and for rows of Dask a
        tenth of the batches, or one minibatch of each of up to 8 chunks.

    temperature : None, str or policy, default=None
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        Policies that learn the temperature are refused. Moves are made only at T = 1.

    learning_decay : float, default=0.75
        How fast step sizes decrease. With "structured" and "online", step number t has size
        ``learning_scale * (learning_offset + t) ** -learning_decay``, at most 1. In ``partial_fit``
        a structured step is also at most twice the share of its rows in all rows seen.

    learning_offset : float, default=10.0
        Down-weights early steps; at least 1.

    learning_scale : float or None, default=None
        None is 100 for steps of "ssvi-a" on all rows, of which the first 450 then have size 1, and
        otherwise 1: minibatches and corrections are noisy, and small steps average the noise out.

    total_samples : float or None, default=None
        Assumed number of rows of the whole stream in ``partial_fit``. None is the number of rows
        seen; with "online" a million for a stream started by ``partial_fit``. A structured stream
        of more rows forgets the first ones.

    binarize : float or None, default=None
        Values above it count as 1, others as 0, as in :class:`sklearn.naive_bayes.BernoulliNB`.
        None requires binary data. Codes for missing values, such as -1, would count as 0: replace
        them by NaN first.

    max_iter : int, default=500
        Maximum number of passes over the data.

    tol : float, default=1e-5
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        row. Convergence is not judged while T > 1 or a move has something left to try. Where bounds
        are evaluated or known, there is a :class:`~sklearn.exceptions.ConvergenceWarning` if
        ``max_iter`` passes do not suffice.

    evaluate_every : int, default=-1
        Number of passes between evaluations of the bound on all data; 0 or a negative number means
        never. It is the mean-field bound. A structured step yields no bound: ``history_["elbo"]``
        is NaN for the other passes. Memoized inference knows it anyway.

    n_init : int, default=1
        Number of starts of ``fit``; the one with the highest bound is kept.

    warm_start : bool, default=False
        Whether another call of ``fit`` continues from the posterior, step number and temperature of
        the last one.

    n_jobs : int or None, default=None
        Number of threads. The result does not depend on it, to the last bit.

    verbose : int, default=0
        Print one line per pass if positive.

    random_state : int, RandomState instance or None, default=None
        Source of randomness. It determines the initial components, the order of the batches, and
        all draws.

    Attributes
    ----------
    n_active_components_ : int
        Number of components to which at least a thousandth of the data is expected to belong. Data
        are rows.

    n_components_ : int
        Number of components K. Those without rows are included.

    weights_ : ndarray of shape (K,)
        Expected weights, normalised: the mass of components not yet seen is left out.

    labels_ : ndarray of int, shape (n_samples,)
        Most probable component of each row of ``fit``. There is none after ``partial_fit`` and of
        chunks of Dask: ``predict``.

    means_ : ndarray of shape (K, n_features)
        Expected probabilities of a one.

    block_relevance_ : ndarray of shape (K, n_blocks)
        Evidence that the rows of a component have parameters of their own in a block, rather than
        those of all other rows: the log Bayes factor of the two hypotheses in nats, divided by the
        component's number of rows. If positive, the block distinguishes the component from the
        rest. Components of less than one row count as one row.

    column_relevance_ : ndarray of shape (K, n_columns)
        The same for each column. The values of independent columns add up to that of their block;
        with full covariances, and for counts of tokens, the value is that of the column by itself;
        columns of a spherical block have equal shares of the block's value.

    weight_concentration_ : ndarray of shape (2, K) or (K,)
        Parameters (a, b) of q(v_k) = Beta. With "dirichlet_distribution", the concentration of q(w)
        = Dirichlet, (K,).

    hierarchy_ : ndarray of shape (K - 1, 4)
        Linkage matrix of components successively joined into clusters, first those between which
        the assignments of rows are least certain, then those that lose least evidence as one
        component, as :func:`scipy.cluster.hierarchy.dendrogram` takes it. Its heights are what has
        been lost so far, in nats per row: entropy of the assignments of the rows of
        ``fit`` [3]_, then evidence. Not available after ``partial_fit``, see ``join_components``.

    hierarchy_criteria_ : ndarray of str, shape (K - 1,)
        What chose each pair, "entropy" or "evidence".

    n_clusters_ : int
        Number of clusters suggested. Pairs are joined that lose at least a tenth of the entropy
        that they could lose; and where the entropy has an elbow, also pairs before it that lose at
        least a hundredth. See the user guide for rows that are too few for that, and for classes
        that overlap. ``predict(X, n_clusters="auto")`` gives these clusters.

    n_clusters_reason_ : str
        Why this number is suggested.

    elbo_, lower_bound_ : float
        Evidence lower bound of the training data in nats, every constant included. The mean-field
        bound; after structured inference the bound at the final q(w) q(phi), which is not the
        objective that was maximised. Not available after ``partial_fit``, see ``elbo``.

    history_ : dict of lists
        One entry per pass of ``fit``, including those of earlier warm starts, and one per call of
        ``partial_fit``, without bounds (NaN): "n_iter", "elbo", "objective", "temperature",
        "learning_rate", "n_components", "seconds". With "structured", "objective" is the log
        probability of the rows under what was drawn, minus the divergence of the globals, which is
        not a bound.

    lower_bounds_ : list of float
        ``history_["elbo"]``.

    move_log_ : dict of lists
        One entry for each kind of move due in a pass: "n_iter", "move", "proposed", "accepted",
        "gain" (nats), "reason". As in :class:`~skvt.MemoizedDPGMM`.

    weight_concentration_prior_ : float
        Concentration of the weights as used.

    feature_prior_ : ndarray of shape (n_features, 2)
        Parameters (a, b) of the beta priors as used or learned.

    restart_elbos_ : ndarray of shape (n_init,)
        ELBO of each start.

    n_batch_iter_ : int
        Number of global updates so far.

    converged_ : bool
        Whether the fit stopped on convergence.

    n_iter_ : int
        Number of passes of ``fit`` and calls of ``partial_fit`` so far, the length of ``history_``.

    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks, or a Dirichlet) and "components" (a beta for each and column).

    n_features_in_ : int
        Number of columns of X.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names, where X had any.

    See Also
    --------
    skvt.MemoizedDPGMM : For rows of real numbers.
    sklearn.neural_network.BernoulliRBM : Binary rows by binary features.

    Notes
    -----
    A structured step draws w and phi from q, finds the counts S of components and ones given the
    draw, and moves ``lam <- (1 - rho) lam + rho (eta + V S)``, V the identity with "ssvi-a". Steps
    of size 1 are a Gibbs sampler whose assignments are replaced by their probabilities; as step
    sizes decrease, q converges. The schedule matters: if step sizes decrease from the first step
    on, early assignments are frozen.

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
    >>> mixture.n_active_components_
    4
    """

    _parameter_constraints = MEMOIZED_CONSTRAINTS | {
        "weight_concentration_prior": [None, POSITIVE],
        "feature_prior": [AUTO, POSITIVE, "array-like"],
        "learning_method": [StrOptions({"structured", "memoized", "online", "batch"})],
        "global_step": [StrOptions(set(GLOBAL_STEPS))],
        "learning_scale": [None, POSITIVE],
        "binarize": [None, Interval(Real, None, None, closed="neither")],
    }

    _fixed_parameters = (
        "n_components",
        "weight_concentration_prior",
        "weight_concentration_prior_type",
        "feature_prior",
    )
    _reads = BinaryReader
    _fewest_rows = 1

    def __init__(
        self,
        n_components=100,
        *,
        weight_concentration_prior=None,
        weight_concentration_prior_type="dirichlet_process",
        feature_prior=1.0,
        learning_method="structured",
        global_step="ssvi-a",
        init_params="k-means++",
        moves=("birth", "merge", "delete"),
        n_batches=None,
        batch_size=None,
        n_parallel_batches=None,
        temperature=None,
        learning_decay=0.75,
        learning_offset=10.0,
        learning_scale=None,
        total_samples=None,
        binarize=None,
        max_iter=500,
        tol=1e-5,
        evaluate_every=-1,
        n_init=1,
        warm_start=False,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.n_components = n_components
        self.weight_concentration_prior = weight_concentration_prior
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.feature_prior = feature_prior
        self.learning_method = learning_method
        self.global_step = global_step
        self.init_params = init_params
        self.moves = moves
        self.n_batches = n_batches
        self.batch_size = batch_size
        self.n_parallel_batches = n_parallel_batches
        self.temperature = temperature
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.learning_scale = learning_scale
        self.total_samples = total_samples
        self.binarize = binarize
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
    def _structured(self):
        return self.learning_method == "structured"

    @property
    def _counts_stream(self):
        return self._structured

    def _gathers_calls(self):
        """With "structured", the first rows: components begin at rows of all that are there."""
        if not self._structured:
            return super()._gathers_calls()
        return not hasattr(self, "_fitted") or self._fitted.gathered is not None

    @property
    def _model_class(self):
        return MixtureGivenGlobals if self._structured else Mixture

    @property
    def _n_fewest(self):
        return self.n_components if self._structured else 1

    @property
    def _most_components(self):
        return self.n_components

    def _build_weights(self):
        alpha = self.weight_concentration_prior
        alpha = 1.0 if alpha is None else float(alpha)
        if self.weight_concentration_prior_type == "dirichlet_distribution":
            return SymmetricDirichlet(alpha, self.n_components)
        return SeparateSticks(alpha) if self._structured else StickBreaking(alpha)

    def _build_component(self, X, weights):
        return Bernoulli(beta_prior(self.feature_prior, X.shape[1]), X.dtype)

    def _build_learner(self, component):
        if not is_auto(self.feature_prior):
            return None
        learner = beta_learner(component)
        # the draws of the next pass have another maximum: a step towards it will do
        return replace(learner, most_steps=1) if self._structured else learner

    def _continued_model(self, X, weights):
        model = super()._continued_model(X, weights)
        if type(model) is not self._model_class:
            raise ValueError(
                f"A warm start cannot change between structured and mean-field inference. Got "
                f"learning_method={self.learning_method!r}; set warm_start=False to start anew."
            )
        return model

    # --------------------------------------------------------------------------------- plan
    def _plan(self, model, X, weights, *, stream=False):
        """What a fit is made of: with "structured", the engine alone is another."""
        plan = super()._plan(model, X, weights, stream=stream)
        if not self._structured:
            return plan
        engine = StructuredInference(plan.rate, self.global_step, MOST_OF_SHARE)
        return replace(plan, engine=engine, data=plan.minibatches)

    @property
    def _undivided(self):
        """Whether the user leaves the division into batches to the estimator."""
        return self.n_batches is None and self.batch_size is None

    def _batch_size(self, n_rows):
        return n_rows if self._structured and self._undivided else super()._batch_size(n_rows)

    @property
    def _rate(self):
        scale = self.learning_scale
        if scale is None:
            full_steps = self._structured and self.global_step == "ssvi-a" and self._undivided
            scale = SCALE_OF_FULL_STEPS if full_steps else 1.0
        return RobbinsMonro(self.learning_offset, self.learning_decay, scale)

    # --------------------------------------------------------------------------- attributes
    def _published(self, model):
        return super()._published(model) | {"feature_prior_": model.component.prior.copy()}

    @property
    def means_(self):
        """Expected probabilities of a one, shape (K, n_features)."""
        fitted = self._of_fit("means_")
        return Beta.mean(fitted.lam()[1]).astype(fitted.model.dtype)

    @property
    def posterior_(self):
        """q of the weights and of the components."""
        fitted = self._of_fit("posterior_")
        weights, components = fitted.lam()
        return JointPosterior(
            weights=Posterior(fitted.model.weights.family, weights),
            components=Posterior(Beta, components),
        )
