"""The estimator of topic models by annealed and tempered mean-field inference.

The mathematics is in :mod:`skvt.models.lda` and :mod:`skvt.temperature`.
"""

from dataclasses import KW_ONLY, replace
from typing import Annotated

from numpy.typing import ArrayLike

from skvt._estimators._topics import TopicEstimator
from skvt.files import in_files
from skvt.fitting import FRACTION, estimator, make_policy
from skvt.inference import (
    CoordinateAscent,
    Pilot,
    StochasticInference,
    make_polish_phase,
    make_rows,
)
from skvt.models.lda import LDA, LDAGivenTopics
from skvt.schedules import RobbinsMonro

# Step number t of a fit with M minibatches per pass has size
# ``FIT_SCALE / M * (FIT_DELAY + t / M) ** -learning_decay``.
FIT_SCALE = 2.8
FIT_DELAY = 0.8
# Step number t of the ``n_polish`` extra passes has size
# ``POLISH_SCALE / M * (POLISH_DELAY + t / M) ** -POLISH_DECAY``, as in StructuredLDA.
POLISH_SCALE = 5.0
POLISH_DELAY = 0.4
POLISH_DECAY = 0.7
# Number of passes for which temperature policies plan at most, if the fit may stop on convergence.
_PLANNED_PASSES = 10.0


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files("estimators.TemperedLDA", fitted={"model": (LDA, LDAGivenTopics)})
@estimator
class TemperedLDA(TopicEstimator):
    """Latent Dirichlet allocation by annealed and tempered variational inference.

    This is a counterpart of :class:`sklearn.decomposition.LatentDirichletAllocation`, with the same
    model, parameters and attributes. Inference starts at a temperature above 1, which smooths the
    bound, and is annealed to T = 1, the model itself. It thus reaches better local optima.
    Minibatches are shuffled, the result is the same for any ``n_jobs``, the bound includes all
    constants, and models are scored by document completion.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    doc_topic_prior : float, array-like of shape (n_components,), "auto" or None, default=None
        Concentration alpha of the Dirichlet prior of a document's topic proportions. None is
        ``max(1 / n_components, 1 / m)``, but at most 1, where m is the mean number of tokens of the
        documents that are not empty. In a stream, m is the mean over the first call. "auto" starts
        from this value and learns each entry by maximising the bound, once the temperature is 1.
    topic_word_prior : float, array-like, "auto" or None, default="auto"
        Concentration eta of the Dirichlet prior of a topic's word probabilities. It is one number,
        one for each word, shape (n_features,), or one for each topic and word, shape (n_components,
        n_features). :func:`skvt.seeded_prior` makes the latter from seed words. Topic k has row k
        of the prior throughout the fit, since moves exchange only topics with equal priors. None is
        ``1 / n_components``, as in scikit-learn. "auto" starts from this value and learns one value
        for all words by maximising the bound.
    .. shared: components_init
    temperature : None, str or policy, default="annealed"
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        "annealed" is :class:`~skvt.temperature.LinearAnnealing`, "variational"
        :class:`~skvt.temperature.VariationalTempering`, "local"
        :class:`~skvt.temperature.LocalTempering`, with their defaults.
    .. shared: moves
    average : float, default=0.25
        Share of the passes of ``fit`` over which the topics are averaged. These are the last
        passes, and the posterior has the mean of ``components_`` after each of them. Only passes at
        T = 1 count, and an accepted move restarts the mean. With 0, or with fewer than two such
        passes, the topics are the topics after the last pass. Learned priors are always the priors
        of the last pass. Coordinate ascent does not average, because it converges.
    learning_method : {"batch", "online"}, default="online"
        How the posterior q is found. "online": stochastic inference on minibatches. "batch":
        coordinate ascent on all data.
    .. shared: learning_decay (topics)
    learning_offset : float or None, default=None
        A larger offset makes early steps smaller; at least 1. With None, the steps of ``fit``
        depend on the number M of minibatches of a pass: step number t has size
        ``2.8 / M * (0.8 + t / M) ** -learning_decay``, at most 1. A pass over a large corpus then
        discounts earlier statistics about as much as a pass over a small corpus. In
        ``partial_fit`` None is 64.
    .. shared: max_iter
    n_polish : int, default=0
        Number of extra passes after ``max_iter``, at T = 1 on minibatches. They solve documents by
        CVB0 at the mean topics, as ``transform`` does, because mean field makes the proportions
        too sparse. If ``topic_word_prior`` is "auto", these passes go on learning it, and the
        topics predict held-out words better (``benchmarks/``); ``doc_topic_prior`` stays fixed. An
        extra pass costs nearly twice as much as an ordinary pass. ``history_`` has no bounds of the
        extra passes, ``elbo_`` is the mean-field bound at the final topics, and the fit does not
        stop early before the extra passes.
    .. shared: batch_size, n_parallel_batches
    evaluate_every : int, default=-1
        Number of passes between evaluations of the bound on all data; 0 or a negative number means
        never. An evaluation costs about as much as a pass.
    perp_tol : float, default=0.1
        Where the bound is evaluated, stop when the perplexity ``exp(-ELBO / tokens)`` falls by less
        than this from one evaluation to the next, at the final temperature. Policies then plan
        temperatures for at most 10 passes, even if ``max_iter`` is larger. A policy given by name
        thus reaches T = 1 within 7.5 passes. Step sizes do not depend on ``max_iter``. With 0 the
        fit never stops early.
    .. shared: tol (topics), total_samples, mean_change_tol, max_doc_update_iter, n_init, warm_start
    .. shared: n_jobs, verbose, verbose_interval, random_state

    Attributes
    ----------
    .. shared: components_, topic_labels_, exp_dirichlet_component_, posterior_
    elbo_ : float
        Evidence lower bound of the training data in nats, every constant included. It is the
        untempered bound at the final topics. Not available after ``partial_fit``, ``merge_topics``
        and ``drop_topics``, see ``elbo``.
    .. shared: bound_, history_
        "objective" is the tempered bound. Online, the bounds are estimates from the minibatches of
        the pass, except where ``evaluate_every`` requests exact bounds.
    .. shared: move_log_, restart_elbos_, converged_, n_iter_, n_batch_iter_, temperature_
    .. shared: doc_topic_prior_ & topic_word_prior_, covariate_coef_, n_features_in_
    .. shared: feature_names_in_, words_

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Plain variational inference.

    Notes
    -----
    Local step [2]_ (app. B.2) of a document with counts n_w at inverse temperature b = 1 / T:
    ``phi_wk`` is proportional to ``exp(b (E[log theta_k] + E[log beta_kw]))``, and ``gamma_k =
    alpha_k + b sum_w n_w phi_wk``. Global step [1]_ of size rho: ``lam <- (1 - rho) lam + rho (eta
    + b (N / B) S)``, where S are the statistics of a minibatch of B of all N documents. Neither
    prior is tempered.

    References
    ----------
    .. [1] M. Hoffman, D. Blei, F. Bach (2010). Online learning for latent Dirichlet allocation.
       NIPS.
    .. [2] S. Mandt, J. McInerney, F. Abrol, R. Ranganath, D. Blei (2016). Variational tempering.
       AISTATS.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(300, n_components=5, n_features=200, random_state=0).X
    >>> lda = TemperedLDA(n_components=5, random_state=0).fit(X)
    >>> lda.transform(X[:2]).shape
    (2, 5)
    """

    _: KW_ONLY
    topic_word_prior: ArrayLike | str | None = "auto"
    average: Annotated[float, FRACTION] = 0.25
    max_iter: int = 10
    n_polish: int = 0

    def _build_model(self, X, weights, old=None):
        """Build the model, whose local step is mean field until the extra passes of CVB0."""
        lda = self._make_lda(X, weights, old, default_eta=1.0 / self.n_components)
        return LDAGivenTopics.from_lda(lda, "mean_field") if self.n_polish else lda

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of stochastic inference or coordinate ascent, and of the extra passes."""
        minibatches = make_rows(X, weights, self.batch_size, self.n_parallel_batches)
        n_batches = minibatches.n_batches
        step_sizes = self._make_step_sizes(None if stream else n_batches, FIT_SCALE, FIT_DELAY)
        is_online = stream or self.learning_method == "online"
        data = (
            minibatches if is_online else make_rows(X, weights, n_parallel=self.n_parallel_batches)
        )
        engine = StochasticInference(step_sizes) if is_online else CoordinateAscent()
        extra_phases = []
        if self.n_polish and not stream:
            # With M batches, the step size at POLISH_SCALE above has the form ``scale * (offset +
            # t) ** -decay``, with scale = POLISH_SCALE M^(decay - 1) and offset = POLISH_DELAY M.
            scale = POLISH_SCALE * data.n_batches ** (POLISH_DECAY - 1.0)
            polish_step_sizes = RobbinsMonro(POLISH_DELAY * data.n_batches, POLISH_DECAY, scale)
            extra_phases = [
                make_polish_phase(self.max_iter, polish_step_sizes, _use_cvb0, _take_learned_prior)
            ]
        # If a fit starts from topics of the user, T = 1 throughout, because annealing would destroy
        # these topics.
        ignores_annealing = self.temperature == "annealed" and model.start is not None
        policy = make_policy(None if ignores_annealing else self.temperature)
        # A stream has no moves, and coordinate ascent averages no topics.
        plan = self._make_topic_plan(
            data, engine, policy, step_sizes, n_passes=self.max_iter,
            moves=None if stream else self.moves, average=self.average if is_online else 0.0,
        )  # fmt: skip
        # The pilot, which calibrates a learned temperature, has minibatches in any case.
        return replace(
            plan,
            phases=(*plan.phases, *extra_phases),
            stopping=replace(
                plan.stopping,
                max_iter=self.max_iter + self.n_polish,
                planned_passes=_PLANNED_PASSES,
            ),
            pilot=Pilot(step_sizes, minibatches),
        )


def _use_cvb0(model):
    """Return the model with CVB0 as local step, and with a fixed alpha.

    CVB0 spreads counts over all topics, so that a learned alpha would grow.
    """
    return replace(model, local="cvb0", learn_doc_topic_prior=False)


def _take_learned_prior(model, polished_model):
    """Return the ``model`` before the extra passes, with the learned eta of ``polished_model``."""
    return replace(model, topic_word_prior=polished_model.topic_word_prior)
