"""Latent Dirichlet allocation with structured stochastic variational inference."""

from numbers import Integral

import numpy as np

from skvt.estimators._sklearn_private import Interval, StrOptions
from skvt.estimators._topics import TopicEstimator
from skvt.inference import GLOBAL_STEPS, Plan, Rows, StructuredInference
from skvt.models.lda import LDAGivenTopics
from skvt.temperature import LinearAnnealing

# "annealed" begins at HOTTEST where the prior of the topics is HOT_PRIOR at most. Draws of such
# topics are nearly zero for words not seen in them, and assignments hardly move; from COOL_PRIOR
# on, the draws themselves vary as much as is good.
HOTTEST, HOT_PRIOR, COOL_PRIOR = 1.5, 0.02, 0.1
# It lasts a third of the passes: what is drawn takes long to settle, at steps that fall.
SHARE = 1.0 / 3.0


class StructuredLDA(TopicEstimator):
    """Latent Dirichlet allocation by structured stochastic variational inference.

    Mean-field inference solves each document under averaged topics and so breaks the dependence
    between topics and assignments, which makes poor local optima. Structured inference [1]_ draws
    the topics from their posterior in each step and solves the minibatch given the draw. Given
    many steps it leaves better optima behind it than plain mean-field inference, from a stream of
    minibatches. Parameters and attributes are those of :class:`~skvt.TemperedLDA`.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.

    doc_topic_prior : float, array-like of shape (n_components,), "auto" or None, default=None
        Concentration alpha of the Dirichlet prior of a document's topic proportions. None is ``1 /
        n_components``; "auto" starts there and learns each entry by maximising the bound, once the
        temperature is 1.

    topic_word_prior : float, array-like of shape (n_features,), "auto" or None, default=None
        Concentration eta of the Dirichlet prior of a topic's word probabilities. None is ``1 /
        n_components``; "auto" starts there and learns one value for all words.

    local_step : {"gibbs", "cvb0", "mean_field"}, default="gibbs"
        How a row is solved given the globals. A document by Gibbs sampling of its assignments,
        proportions summed out [2]_; by CVB0 [3]_, its deterministic approximation; or by mean
        field.

    global_step : {"ssvi-a", "ssvi", "mean_field", "map"}, default="ssvi-a"
        Globals that rows are solved under. A draw of the topics from q(beta), with the statistics
        taken as they are ("ssvi-a") or corrected for the dependence of the draw on its parameters
        ("ssvi", which works on the whole vocabulary in each step); ``exp(E[log beta])``; or
        ``E[beta]``.

    n_burn_in : int, default=2
        Sweeps of the sampler over a row before any is kept.

    n_samples : int, default=4
        Sweeps that are kept.

    temperature : None, str or policy, default="annealed"
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        Learned ones only with ``local_step="mean_field"``. "annealed" is ``LinearAnnealing(T,
        replication=1, share=1/3)``: drawn topics are sharp by themselves, and take long to settle.
        T is 1.5 where ``topic_word_prior`` is 0.02 or less or learned, and falls to 1 (no heat) at
        0.1, since draws under such priors vary enough without (``benchmarks/``).

    moves : tuple of {"split-merge"}, default=("split-merge",)
        Moves that may be made; ``()`` is none. After passes of ``fit`` at T = 1 (from the middle,
        the tenth at the latest, and not after the last), topics that stand for two are split in the
        place of topics that are two halves of one, where a sample of the documents says that the
        bound rises.

    learning_method : {"batch", "online"}, default="online"
        How the posterior q is found. "online": steps on minibatches. "batch": steps on all
        documents at once.

    learning_decay : float, default=0.7
        How fast steps fall. With ``learning_offset`` given, step number t has size
        ``(learning_offset + t) ** -learning_decay``.

    learning_offset : float or None, default=None
        Down-weights early steps; at least 1. None ties the steps of ``fit`` to the M minibatches of
        a pass, ``5 / M * (0.4 + t / M) ** -learning_decay`` and 1 at most. In ``partial_fit`` None
        is 64, and also with "ssvi", under which topics may collapse in large first steps.

    max_iter : int, default=40
        Most passes over the data.

    batch_size : int, default=128
        Rows of a minibatch.

    evaluate_every : int, default=-1
        Evaluate the bound on all data every so many passes; never where it is 0 or negative. It is
        the mean-field bound. A structured step gives no bound: ``history_["elbo"]`` is NaN in other
        passes.

    perp_tol : float, default=0.1
        Where the bound is evaluated, stop when the perplexity ``exp(-ELBO / tokens)`` falls by less
        than this from one evaluation to the next, at the final temperature. So that it is reached
        whatever ``max_iter``, named temperatures then last a third of 40 passes at most. (The sizes
        of steps do not depend on ``max_iter``.) 0 never stops.

    tol : float or None, default=None
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        word; it takes the place of ``perp_tol`` where it is given.

    total_samples : float or None, default=None
        Rows for which a stream of ``partial_fit`` stands. None is a million for a stream begun by
        ``partial_fit``, and after ``fit`` its rows plus those seen since.

    mean_change_tol : float, default=1e-3
        A document's local step has converged when its topic weights (in tokens) change by less than
        this on average. By mean field and CVB0; the sampler takes ``n_burn_in`` and ``n_samples``
        sweeps.

    max_doc_update_iter : int, default=100
        Most sweeps of a document's local step. By mean field and CVB0.

    n_init : int, default=1
        Starts of ``fit``; that with the highest bound is kept.

    warm_start : bool, default=False
        Whether another ``fit`` starts from the posterior, step number and temperature of the last.

    n_jobs : int or None, default=None
        Threads. The result does not depend on it, to the last bit.

    verbose : int, default=0
        Print a line a pass if positive.

    random_state : int, RandomState instance or None, default=None
        Source of randomness. It decides the start of the topics, the order of the documents, and
        draws of topics and assignments.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Variational parameters lam of the topics: pseudo-counts, prior included.
    exp_dirichlet_component_ : ndarray of shape (n_components, n_features)
        ``exp(E[log beta])``.
    posterior_ : Posterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. It is that of the
        topics.
    elbo_ : float
        Evidence lower bound of the training data in nats, every constant included. The mean-field
        bound at the final topics, comparable with that of ``TemperedLDA``. Not there after
        ``partial_fit``, see ``elbo``.
    history_ : dict of lists
        One entry a pass of ``fit``, those of earlier warm starts included, and one a call of
        ``partial_fit``, without bounds (NaN): "n_iter", "elbo", "objective", "temperature",
        "learning_rate", "n_components", "seconds". "objective" is the log probability of the words
        of the pass at the drawn topics and fitted proportions, less the divergence of q(beta); not
        a bound.
    move_log_ : dict of lists
        One entry for each kind of move due in a pass: "n_iter", "move", "proposed", "accepted",
        "gain" (nats). Gains are estimated on a sample.
    restart_elbos_ : ndarray of shape (n_init,)
        ELBO of each start.
    converged_ : bool
        Whether the fit stopped on convergence.
    n_iter_ : int
        Passes of ``fit`` and calls of ``partial_fit`` made, entries of ``history_``.
    n_batch_iter_ : int
        Global updates made.
    doc_topic_prior_, topic_word_prior_ : float or ndarray
        The priors as used or learned.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names, where X had any.

    See Also
    --------
    skvt.TemperedLDA : Mean-field inference, annealed or tempered.

    Notes
    -----
    A step draws beta_k ~ Dir(lam_k), finds the expected counts S of a minibatch of B documents
    given beta, and moves ``lam <- (1 - rho) lam + rho (eta + (N / B) V(beta, lam) S)``; V has the
    identity as expectation, which "ssvi-a" takes for it. ``transform`` and ``score`` are
    deterministic, row by row: CVB0 at the expected topics (with ``local_step="mean_field"``, mean
    field). Counts that are not whole are tokens of weight 1 and one of the rest. The sampler visits
    tokens one by one, given the others; those of a count above 1,000 it draws together, given a
    draw of the document's proportions.

    References
    ----------
    .. [1] M. Hoffman, D. Blei (2015). Structured stochastic variational inference. AISTATS.
    .. [2] D. Mimno, M. Hoffman, D. Blei (2012). Sparse stochastic inference for latent Dirichlet
       allocation. ICML.
    .. [3] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for topic
       models. UAI.

    Examples
    --------
    >>> from skvt import StructuredLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(300, n_components=5, n_features=200, random_state=0).X
    >>> lda = StructuredLDA(n_components=5, random_state=0).fit(X)
    >>> lda.transform(X[:2]).shape
    (2, 5)
    """

    _parameter_constraints = TopicEstimator._parameter_constraints | {
        "local_step": [StrOptions({"gibbs", "cvb0", "mean_field"})],
        "global_step": [StrOptions(set(GLOBAL_STEPS))],
        "n_burn_in": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
    }
    _model_parameters = (
        *TopicEstimator._model_parameters,
        "local_step",
        "global_step",
        "n_burn_in",
        "n_samples",
    )
    _fit_scale, _fit_delay = 5.0, 0.4

    def __init__(
        self,
        n_components=10,
        *,
        doc_topic_prior=None,
        topic_word_prior=None,
        local_step="gibbs",
        global_step="ssvi-a",
        n_burn_in=2,
        n_samples=4,
        temperature="annealed",
        moves=("split-merge",),
        learning_method="online",
        learning_decay=0.7,
        learning_offset=None,
        max_iter=40,
        batch_size=128,
        evaluate_every=-1,
        perp_tol=1e-1,
        tol=None,
        total_samples=None,
        mean_change_tol=1e-3,
        max_doc_update_iter=100,
        n_init=1,
        warm_start=False,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.local_step = local_step
        self.global_step = global_step
        self.n_burn_in = n_burn_in
        self.n_samples = n_samples
        self.temperature = temperature
        self.moves = moves
        self.learning_method = learning_method
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.evaluate_every = evaluate_every
        self.perp_tol = perp_tol
        self.tol = tol
        self.total_samples = total_samples
        self.mean_change_tol = mean_change_tol
        self.max_doc_update_iter = max_doc_update_iter
        self.n_init = n_init
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _temperature_policy(self, model):
        if isinstance(self.temperature, str) and self.temperature == "annealed":
            # where learning begins says little of where it ends
            eta = HOT_PRIOR if model.learn_topic_word_prior else model.topic_word_prior.mean()
            first = np.interp(np.log(eta), np.log([HOT_PRIOR, COOL_PRIOR]), [HOTTEST, 1.0])
            return LinearAnnealing(first, replication=1.0, share=SHARE)
        return super()._temperature_policy(model)

    def _build_model(self, X, weights):
        lda = super()._build_model(X, weights)
        return LDAGivenTopics.of(
            lda, self.local_step, self.n_burn_in, self.n_samples, self.global_step == "ssvi"
        )

    def _plan(self, model, X, weights, *, stream=False):
        """What a fit is made of: local steps given topics, by the kind of the global step."""
        whole = self.learning_method == "batch"
        data = Rows(X, weights, X.shape[0] if whole else self.batch_size)
        corrected = self.global_step == "ssvi"
        rate = self._learning_rate(None if stream or corrected else data.n_batches)
        return Plan(
            data=data,
            engine=self._with_moves(StructuredInference(rate, self.global_step), stream),
            policy=self._temperature_policy(model),
            stopping=self._stopping,
            minibatches=data,
            rate=rate,
            planned_passes=40.0,
            total_samples=self.total_samples,
            in_words=True,
        )
