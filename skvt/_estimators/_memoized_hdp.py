"""The estimator of the topic model that finds its number of topics, by memoized inference.

The memo of a batch of documents is the contribution of the batch to the statistics and the bound.
The mathematics is in :mod:`skvt.models.hdp`.
"""

import warnings
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import UNUSED

from skvt._estimators._hdp_restarts import TopicRestarts, polish_topics
from skvt._estimators._noise import compute_noise_ratio
from skvt._estimators._topics import make_initial_topics, make_prior
from skvt._results import TopicEditsMixin, TopicsMixin, simplify_prior
from skvt.components.specs import is_auto
from skvt.files import in_files
from skvt.fitting import (
    AT_LEAST_ONE,
    AUTO,
    POSITIVE,
    MemoizedMethod,
    MoveLogMixin,
    SameModel,
    Temperature,
    VariationalEstimator,
    check_memoized,
    choose_max_components,
    estimator,
    fitted_property,
    make_plan_with_moves,
    model_property,
)
from skvt.models.hdp import HDP, BirthOfTopics, DeleteTopic, MergeTopics, Sticks
from skvt.models.lda import LDA
from skvt.readers.validation import find_stack_level

# Minimum and maximum number of documents of a batch if the user passes no batch size.
BATCH_SIZE_LIMITS = 250, 5_000
# `fit` warns if the noise ratio is larger, see `compute_noise_ratio`. The ratio was at most 1.5 in
# five corpora of texts. It was at most 1.9 if ten or thirty texts were joined to one document, and
# at most 2.0 if there were 20 to 150 words or 40 to 1,000 documents. It is 2.6 for simulated counts
# of genes, which are drawn from negative binomials of mean 2 and size 2.
MAX_NOISE_RATIO = 2.0
# Advice in the error if a prior for each topic is passed.
ONE_PRIOR_ADVICE = (
    " Topics whose number is learned share one prior, because births, merges and deletes change "
    "which topics there are. To begin with given topics, pass them as components_init."
)
# Initial values of learned parameters.
TOPIC_WORD_PRIOR = 0.1
TOPIC_CONCENTRATION = 1.0
INITIAL_STICKS = Sticks(concentration=TOPIC_CONCENTRATION, doc_concentration=0.5)


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files("estimators.MemoizedHDP", fitted={"model": (HDP,)})
@estimator
class MemoizedHDP(MoveLogMixin, TopicEditsMixin, TopicsMixin, VariationalEstimator):
    """Topic model that finds its number of topics: a hierarchical Dirichlet process.

    The model resembles :class:`sklearn.decomposition.LatentDirichletAllocation`, but the user gives
    no number of topics. Memoized inference [HS13]_ [HKS15]_ visits the corpus batch by batch and
    keeps the contribution of each batch. The evidence lower bound of all documents, including every
    constant, is therefore known at every step.

    Moves change the number of topics during the fit. Births add topics, merges and deletes remove
    topics, and a move is accepted if it raises the bound. By default a fit starts with one topic.

    Parameters
    ----------
    n_components : int, default=1
        Number of topics at the start of a fit. Without moves it stays the same.
    .. shared: max_components
    topic_word_prior : float, array-like of shape (n_features,), "auto" or None, default="auto"
        Concentration eta of the Dirichlet prior of a topic's word probabilities. All topics share
        one prior, since births, merges and deletes exchange topics. None is 0.1. "auto" starts with
        0.1 and learns one value for all words at the maximum of the bound.
    topic_concentration : float or "auto", default=1.0
        Concentration gamma of the prior of the topics' weights. A larger concentration favours more
        topics. "auto" starts with 1 and learns it.
    doc_topic_concentration : float or "auto", default="auto"
        Concentration alpha of a document's topic proportions around the weights of the topics. A
        larger concentration favours documents of more topics. "auto" starts with 0.5 and learns it.
    components_init : array-like of shape (n_components, n_features) or None, default=None
        Initial topics, instead of random ones, such as ``components_`` of another fit. Each row is
        divided by its sum to give the probabilities of words. Zeros are allowed, since the prior
        makes each word possible. Each topic begins with an equal part of the tokens. The
        topics have the ids 0, 1, ... in ``topic_ids_``, as long as they exist.
    learning_method : {"memoized", "batch", "online"}, default="memoized"
        How the posterior q is found. "memoized": memoized inference. "batch": memoized inference
        with one batch, which is coordinate ascent. "online": stochastic inference on shuffled
        minibatches, without moves.
    moves : tuple of {"birth", "merge", "delete"}, default=("birth", "merge", "delete")
        Moves that may be made; ``()`` is none. They are made at the end of each pass.
    n_batches, batch_size : int or None, default=None
        Number of batches of consecutive rows into which ``fit`` divides the data, or number of rows
        per batch; give at most one of them. None is about 10 batches of 250 to 5,000 documents.
    .. shared: n_parallel_batches (memoized)
    temperature : None, str or policy, default=None
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        Policies that learn the temperature are refused. Moves wait until the temperature is 1.
    .. shared: learning_decay, learning_offset, max_iter
    tol : float, default=2e-4
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        word. Convergence is not judged while T > 1 or a move has something left to try. There is a
        :class:`~sklearn.exceptions.ConvergenceWarning` if ``max_iter`` passes do not suffice.
    .. shared: evaluate_every, total_samples (memoized)
    n_polish : int, default=200
        Number of sweeps of collapsed Gibbs sampling after the last pass of ``fit``, as in
        ``StructuredLDA``; 0 is none. They start from the topics that the passes have found. The
        topics are then the mean over the last half of the sweeps, which predicts better than mean
        field. The number, weights and ids of topics, the concentrations and ``topic_word_prior_``
        stay as they are after the passes. There are no sweeps if the fit ends with one topic, or
        with T > 1. The cost of a sweep grows with the tokens, and the cost of a pass with the
        distinct words of each document. If the counts that are not 0 exceed 10 on average, the
        number of sweeps is reduced in proportion, but not below 20.
    .. shared: mean_change_tol, max_doc_update_iter, n_init, warm_start, n_jobs, verbose
    .. shared: verbose_interval, random_state

    Attributes
    ----------
    n_components_ : int
        Number of components K. The components are the topics at the end of the fit.
    topic_weights_ : ndarray of shape (K,)
        Expected weights of the topics in the corpus, usually in descending order: topics are only
        sorted if that raises the bound. The difference between their sum and 1 is the weight of
        topics not yet seen.
    topic_ids_ : ndarray of int of shape (K,)
        Id of each topic, by which it is recognised from pass to pass and from call to call. A topic
        keeps its id as long as it exists, whatever its position. A merged topic has the id of the
        more frequent one of the two topics.
    components_ : ndarray of shape (K, n_features)
        Variational parameters lam of the topics: pseudo-counts, which include the prior.
    .. shared: topic_labels_
    exp_dirichlet_component_ : ndarray of shape (K, n_features)
        ``exp(E[log phi])``.
    .. shared: posterior_
    elbo_ : float
        Evidence lower bound of the training data in nats, every constant included. After
        ``n_polish`` sweeps it is ``elbo(X)`` of the topics after the sweeps. The sweeps do not
        maximise it: ``history_`` and ``restart_elbos_`` have the bounds before the sweeps, which
        are higher at convergence. Not available after ``partial_fit``, ``merge_topics`` and
        ``drop_topics``, see ``elbo``.
    .. shared: history_ (memoized), move_log_
    .. shared: restart_elbos_, converged_, n_iter_, n_batch_iter_, temperature_
    topic_word_prior_ : float or ndarray
        The priors as used or learned.
    topic_concentration_, doc_topic_concentration_ : float
        The concentrations as used or learned.
    .. shared: n_features_in_, feature_names_in_, words_

    See Also
    --------
    TemperedLDA : Topic model with a given number of topics.

    Notes
    -----
    Memory: the memo of a batch holds K numbers of 8 bytes for each word that occurs in the batch.
    If half of the words of the vocabulary occur, it holds K numbers for each word of the
    vocabulary. In both cases it holds 5 K more. The sum of all memos holds K numbers for each word
    of the vocabulary, and so do the statistics. While a batch is updated, there are about 10 K
    numbers for each of its documents. Only the number of batches grows with the number of
    documents: it is 10 for 50,000 documents, and 1 more for each further 5,000. Choose larger
    batches to have fewer.

    If a fit ends with one topic and births are among the moves, annealed starts follow: one from 20
    topics if there are at least 200 documents, and one from 50 topics if there are at least 500. If
    a fit that started from one topic ends with several, and there are at most 1,000 documents,
    another fit starts from these topics after 200 sweeps of collapsed sampling. The fit with the
    highest bound is kept, and ``restart_elbos_`` includes the bounds of these starts.

    The user guide derives the bound, which holds for every ``doc_topic_concentration``.

    References
    ----------
    .. [HS13] M. C. Hughes and E. B. Sudderth, "Memoized Online Variational Inference for Dirichlet
       Process Mixture Models", NeurIPS 2013.
    .. [HKS15] M. C. Hughes, D. I. Kim and E. B. Sudderth, "Reliable and Scalable Variational
       Inference for the Hierarchical Dirichlet Process", AISTATS 2015.

    Examples
    --------
    >>> from skvt import MemoizedHDP
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(300, n_components=5, n_features=200, random_state=0).X
    >>> MemoizedHDP(random_state=0).fit(X).n_components_
    5
    """

    n_components: int = 1
    _: KW_ONLY
    max_components: int | None = None
    topic_word_prior: ArrayLike | str | None = "auto"
    topic_concentration: Annotated[float | str, AUTO, POSITIVE] = TOPIC_CONCENTRATION
    doc_topic_concentration: Annotated[float | str, AUTO, POSITIVE] = "auto"
    components_init: ArrayLike | None = None
    learning_method: MemoizedMethod = "memoized"
    moves: tuple[str, ...] = ("birth", "merge", "delete")
    n_batches: int | None = None
    batch_size: Annotated[int | None, None, AT_LEAST_ONE] = None
    n_parallel_batches: int | None = None
    temperature: Temperature = None
    learning_decay: float = 0.7
    learning_offset: float = 10.0
    max_iter: int = 100
    tol: float = 2e-4
    evaluate_every: int = -1
    total_samples: float | None = None
    n_polish: int = 200
    mean_change_tol: float = 1e-3
    max_doc_update_iter: int = 100

    # Default maximum number of topics that births may reach.
    _default_max_components = 400

    # --------------------------------------------------------------------------------- model
    # Metadata routing of scikit-learn passes neither covariates nor allowed topics to these
    # methods, because births and merges change the topics to which they would refer.
    __metadata_request__transform = {"covariates": UNUSED, "allowed_topics": UNUSED}
    __metadata_request__score = __metadata_request__transform

    def _build_model(self, X, weights, old=None):
        """Build the model; in a fit that continues, learned values come from the ``old`` model."""
        check_memoized(self)
        if old is None and compute_noise_ratio(X, weights) > MAX_NOISE_RATIO:
            warnings.warn(
                "These counts vary more than counts of words do, even in single columns. Topics "
                "cannot describe this, so the fit may find many topics that mean nothing. For "
                "clusters of rows, such as cells, use skvt.MemoizedDPMixture with "
                'components=skvt.components.NegativeBinomial(exposure="row_total"). For topics, '
                "such as groups of taxa, set their number in skvt.StructuredLDA(n_components=...), "
                "chosen by skvt.metrics.topic_stability.",
                UserWarning,
                stacklevel=find_stack_level(),
            )
        eta = make_prior(
            self, "topic_word_prior", X.shape[1], "n_features", TOPIC_WORD_PRIOR,
            remedy=ONE_PRIOR_ADVICE,
        )  # fmt: skip
        learns_eta = is_auto(self.topic_word_prior)
        eta = eta.astype(X.dtype)
        if old is not None and learns_eta:
            eta = old.topics.topic_word_prior
        # The sticks determine the prior of documents, so that this doc_topic_prior has no effect.
        lda = LDA(
            doc_topic_prior=np.ones(1, X.dtype),
            topic_word_prior=eta,
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
        )
        gamma, alpha = self.topic_concentration, self.doc_topic_concentration
        learns_gamma, learns_alpha = is_auto(gamma), is_auto(alpha)
        # The values from which learned concentrations start.
        initial_sticks = INITIAL_STICKS if old is None else old.sticks
        sticks = Sticks(
            concentration=initial_sticks.concentration if learns_gamma else float(gamma),
            doc_concentration=initial_sticks.doc_concentration if learns_alpha else float(alpha),
        )
        return HDP(
            lda, sticks, n_initial=self.n_components, start=make_initial_topics(self, X),
            learn_topic_concentration=learns_gamma, learn_doc_topic_concentration=learns_alpha,
            learn_topic_word_prior=learns_eta,
        )  # fmt: skip

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of memoized inference with moves, or of stochastic inference."""
        # Merges come before deletes. If two topics share words, a merge joins them without new
        # assignments of tokens, which a delete would need.
        moves = {
            "merge": MergeTopics,
            "delete": DeleteTopic,
            "birth": partial(BirthOfTopics, choose_max_components(self)),
        }
        plan = make_plan_with_moves(
            self, X, weights, moves, stream=stream, limits=BATCH_SIZE_LIMITS
        )
        # The sweeps of collapsed sampling that a fit makes after its last pass.
        last_step = partial(polish_topics, self.n_polish) if self.n_polish and not stream else None
        stopping = replace(plan.stopping, in_words=True)
        return replace(plan, stopping=stopping, last_step=last_step)

    def _restarts(self, seeds, fit):
        """Return the rule that decides which starts a fit makes, one after the other.

        ``seeds`` has a seed for each of the ``n_init`` starts of the same model. With births,
        starts from other numbers of topics may follow, except in a warm start. A start from sampled
        topics may follow only if the fit starts from one topic.
        """
        # Only fits with births have a maximum number of components.
        if fit.plan.stopping.max_components is None or fit.is_warm:
            return SameModel(seeds, fit)
        return TopicRestarts.from_fit(seeds, fit, may_sample=self.n_components == 1)

    # ---------------------------------------------------------------------------- attributes
    topic_concentration_ = model_property(
        "sticks.concentration",
        "Concentration gamma of the Dirichlet process of the topics' weights, given or learned.",
    )
    doc_topic_concentration_ = model_property(
        "sticks.doc_concentration",
        "Concentration alpha of the topic proportions of a document, given or learned.",
    )

    @fitted_property
    def topic_word_prior_(self, fitted):
        """Prior of a topic's words as used; a float if it has one value for all words."""
        return simplify_prior(fitted.parameters["topic_word_prior"], fitted.model.topic_word_prior)

    @fitted_property
    def n_components_(self, fitted):
        """Number of topics K."""
        return fitted.model.size(fitted.stats)

    @fitted_property
    def topic_weights_(self, fitted):
        """Expected weights of the topics, shape (K,)."""
        # Leave out the last weight, the weight of topics not yet seen.
        return fitted.model.weights(fitted.stats)[:-1].astype(fitted.model.dtype)

    @fitted_property
    def topic_ids_(self, fitted):
        """Id of each topic, shape (K,)."""
        return np.array(self._topic_keys, np.int64)
