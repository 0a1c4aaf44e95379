"""The estimator of topic models by structured inference or collapsed Gibbs sampling.

The mathematics is in :mod:`skvt.models.lda`, and structured inference in :mod:`skvt.inference`.
Topics are summed out in collapsed sampling, which draws the topic of each token; otherwise each
step draws the topics themselves. A sweep is one pass of collapsed sampling over the tokens.
"""

from dataclasses import KW_ONLY, replace
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from skvt._estimators._topics import TopicEstimator
from skvt._sklearn_private import StrOptions
from skvt.contracts import Capability
from skvt.files import in_files
from skvt.fitting import (
    AT_LEAST_ONE,
    FRACTION,
    estimator,
    make_policy,
)
from skvt.inference import GLOBAL_STEPS, CollapsedInference, StructuredInference, make_rows
from skvt.models.lda import LDA, CollapsedLDA, LDAGivenTopics
from skvt.temperature import ConstantTemperature, LinearAnnealing

# Step number t of a fit with M minibatches per pass has size
# ``FIT_SCALE / M * (FIT_DELAY + t / M) ** -learning_decay``.
FIT_SCALE = 5.0
FIT_DELAY = 0.4
# "annealed" starts at T = HIGHEST_TEMPERATURE for topic priors up to MAX_HOT_PRIOR. At T = 1
# assignments would not change, because topics drawn under such a prior are nearly zero for words
# that do not occur in them. For priors from MIN_COOL_PRIOR on, T = 1 from the start, because draws
# vary enough without annealing.
HIGHEST_TEMPERATURE = 1.5
MAX_HOT_PRIOR = 0.02
MIN_COOL_PRIOR = 0.1
# Annealing takes a third of the passes: drawn topics settle slowly, because step sizes fall.
ANNEALED_SHARE = 1.0 / 3.0
# The eta under which collapsed sampling draws the topics of tokens, unless the user gives a prior.
# The learned eta of the posterior is usually smaller, but under a small eta the sampler changes the
# topics of fewer tokens (``benchmarks/``).
COLLAPSED_PRIOR = 0.1
# Default numbers of passes, and defaults of ``average``, for "collapsed" and for other global
# steps. A collapsed pass takes a tenth of the time of a pass with drawn topics, and gains less.
COLLAPSED_DEFAULTS = 200, 0.5
DRAWN_DEFAULTS = 40, 0.25
# Minimum ``max_iter`` for which the global step "auto" is "collapsed".
MIN_COLLAPSED_PASSES = 100
# Shares of the passes of "collapsed" after which moves are made. Earlier, topics differ too little,
# and after the last share, topics are averaged.
SHARES_BEFORE_MOVES = 0.3, 0.4, 0.5
# Maximum number of documents in a batch of a sweep. The counts of topics, given which topics are
# drawn, are updated between batches.
MAX_ROWS_OF_BATCH = 16_384


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files("estimators.StructuredLDA", fitted={"model": (LDA, LDAGivenTopics, CollapsedLDA)})
@estimator
class StructuredLDA(TopicEstimator):
    """Latent Dirichlet allocation by structured stochastic variational inference.

    Mean-field inference fits each document to expected topics. It thus ignores the dependence
    between topics and assignments, and ends in poor local optima. Structured inference [1]_ draws
    the topics from their posterior in each step and solves the minibatch given the draw. Given many
    steps it finds better optima than plain mean-field inference, also from a stream of minibatches.
    By default, ``fit`` goes further and sums the topics out, by collapsed Gibbs sampling [4]_ with
    learned priors and averaged topics. Parameters and attributes are as in
    :class:`~skvt.TemperedLDA`.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    doc_topic_prior : float, array-like of shape (n_components,), "auto" or None, default=None
        Concentration alpha of the Dirichlet prior of a document's topic proportions. None is
        ``max(1 / n_components, 1 / m)``, but at most 1, where m is the mean number of tokens of the
        documents that are not empty. In a stream, m is the mean over the first call. "auto" starts
        from this value and learns each entry by maximising the bound, once the temperature is 1; so
        does None if ``global_step`` is "collapsed".
    topic_word_prior : float, array-like, "auto" or None, default=None
        Concentration eta of the Dirichlet prior of a topic's word probabilities. It is one number,
        one for each word, shape (n_features,), or one for each topic and word, shape (n_components,
        n_features). :func:`skvt.seeded_prior` makes the latter from seed words. Topic k has row k
        of the prior, and keeps it, since no move exchanges topics whose priors differ. None is ``1
        / n_components``. "auto" starts from this value and learns one value for all words. If
        ``global_step`` is "collapsed", None is learned, too: "auto" and None then start from 0.1.
        The topics of tokens are still drawn with eta = 0.1 while eta is learned, because the
        sampler changes the topics of fewer tokens under smaller values.
    .. shared: components_init
    local_step : {"gibbs", "cvb0", "mean_field"}, default="gibbs"
        Local step of a row given the global parameters. "gibbs" is Gibbs sampling of the
        document's assignments, with the topic proportions integrated out [2]_. "cvb0" is a
        deterministic approximation of it [3]_, and "mean_field" is mean field.
    global_step : {"auto", "collapsed", "ssvi-a", "ssvi", "mean_field", "map"}, default="auto"
        Global parameters on which local steps are conditioned.

        - "collapsed" sums the topics out, too: each pass of ``fit`` draws the topic of every token
          given the topics of all others [4]_, and priors are learned unless they are given. With a
          hundred passes or more it predicts best; a pass takes a tenth of the time of a pass with
          drawn topics. It stays at T = 1 and ignores the parameters of minibatches and step sizes.
          It takes two bytes of memory for each token, and up to 1 GB for prepared documents that
          are kept from pass to pass. ``partial_fit`` then makes steps of "ssvi-a".
        - "ssvi-a" draws the topics from q(beta).
        - "ssvi" also corrects the statistics for the dependence of the draw on its parameters; it
          updates the whole vocabulary in each step.
        - "mean_field" takes ``exp(E[log beta])``.
        - "map" takes ``E[beta]``.
        - "auto" is "collapsed" under Gibbs sampling at the default temperature or None, unless
          ``max_iter`` is below 100, and "ssvi-a" otherwise.
    .. shared: n_burn_in, n_samples
    temperature : None, str or policy, default="annealed"
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        Policies that learn the temperature require ``local_step="mean_field"``. "annealed" is
        ``LinearAnnealing(T, replication=1, share=1/3)``: drawn topics are concentrated even without
        replication, and need many passes at T = 1. The initial T is 1.5 where ``topic_word_prior``
        is learned or at most 0.02, and decreases to 1 (no annealing) for a prior of 0.1, under
        which the draws themselves vary enough (``benchmarks/``).
    .. shared: moves
    average : float or None, default=None
        Share of the passes of ``fit`` over which the topics are averaged. These are the last
        passes, and the posterior has the mean of ``components_`` after each of them. Only passes at
        T = 1 count, and an accepted move restarts the mean. With 0, or with fewer than two such
        passes, the topics are the topics after the last pass. Learned priors are always the priors
        of the last pass. None is 0.5 if topics are summed out, see ``global_step``, and 0.25
        otherwise.
    learning_method : {"batch", "online"}, default="online"
        How the posterior q is found. "online": steps on minibatches. "batch": steps on all
        documents at once.
    .. shared: learning_decay (topics)
    learning_offset : float or None, default=None
        A larger offset makes early steps smaller; at least 1. With None, the steps of ``fit``
        depend on the number M of minibatches of a pass: step number t has size
        ``5 / M * (0.4 + t / M) ** -learning_decay``, at most 1. In ``partial_fit``, and with
        "ssvi", None is 64, because topics may become the same in large first steps of "ssvi".
    max_iter : int or None, default=None
        Maximum number of passes over the data. None is 200 if topics are summed out, see
        ``global_step``, and 40 otherwise.
    .. shared: batch_size, n_parallel_batches
    evaluate_every : int, default=-1
        Number of passes between evaluations of the bound on all data; 0 or a negative number means
        never. It is the mean-field bound. A structured step yields no bound: ``history_["elbo"]``
        is NaN for the other passes.
    perp_tol : float, default=0.1
        Where the bound is evaluated, stop when the perplexity ``exp(-ELBO / tokens)`` falls by less
        than this from one evaluation to the next, at the final temperature. A temperature given by
        name then falls over at most a third of 40 passes, however large ``max_iter`` is. Step sizes
        do not depend on ``max_iter``. With 0 the fit never stops early.
    .. shared: tol (topics), total_samples, mean_change_tol
        It applies to mean field and CVB0; the sampler makes ``n_burn_in + n_samples`` sweeps.
    max_doc_update_iter : int, default=100
        Maximum number of sweeps in a document's local step. It applies to mean field and CVB0.
    .. shared: n_init, warm_start, n_jobs, verbose, verbose_interval, random_state

    Attributes
    ----------
    .. shared: components_, topic_labels_, exp_dirichlet_component_, posterior_
    elbo_ : float
        Evidence lower bound of the training data in nats, every constant included. It is the
        mean-field bound at the final topics, which can be compared with the bound of
        ``TemperedLDA``. Not available after ``partial_fit``, ``merge_topics`` and ``drop_topics``,
        see ``elbo``.
    .. shared: bound_, history_
        "objective" is the log probability of the words of the pass at the drawn topics and fitted
        proportions, minus the divergence of q(beta), which is not a bound. For "collapsed" it is
        the sum over tokens of the log probability of each token given all others.
    .. shared: move_log_, restart_elbos_, converged_, n_iter_, n_batch_iter_, temperature_
    .. shared: doc_topic_prior_ & topic_word_prior_, covariate_coef_, n_features_in_
    .. shared: feature_names_in_, words_

    See Also
    --------
    skvt.TemperedLDA : Mean-field inference, annealed or tempered.

    Notes
    -----
    A step draws beta_k ~ Dir(lam_k), finds the expected counts S of a minibatch of B documents
    given beta, and updates ``lam <- (1 - rho) lam + rho (eta + (N / B) V(beta, lam) S)``. V
    corrects for the dependence of the draw on lam; "ssvi-a" replaces it by its expectation, the
    identity.

    A count that is not whole consists of tokens of weight 1 and one token of the remaining weight.
    The sampler draws the topic of one token at a time, given the topics of all others. If a count
    is above both 100 and the number of topics, the topics of its tokens are drawn jointly, given a
    draw of the document's topic proportions.

    References
    ----------
    .. [1] M. Hoffman, D. Blei (2015). Structured stochastic variational inference. AISTATS.
    .. [2] D. Mimno, M. Hoffman, D. Blei (2012). Sparse stochastic inference for latent Dirichlet
       allocation. ICML.
    .. [3] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for topic
       models. UAI.
    .. [4] T. Griffiths, M. Steyvers (2004). Finding scientific topics. PNAS.

    Examples
    --------
    >>> from skvt import StructuredLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(300, n_components=5, n_features=200, random_state=0).X
    >>> lda = StructuredLDA(n_components=5, random_state=0).fit(X)
    >>> lda.transform(X[:2]).shape
    (2, 5)
    """

    _: KW_ONLY
    topic_word_prior: ArrayLike | str | None = None
    local_step: Annotated[str, StrOptions({"gibbs", "cvb0", "mean_field"})] = "gibbs"
    global_step: Annotated[str, StrOptions({*GLOBAL_STEPS, "collapsed", "auto"})] = "auto"
    n_burn_in: int = 2
    n_samples: int = 4
    average: Annotated[float | None, FRACTION, None] = None
    max_iter: Annotated[int | None, AT_LEAST_ONE, None] = None

    def _is_collapsed(self, model):
        """Return whether topics are summed out.

        ``model`` is the model of the fit that is continued, or None. With "auto", such a fit goes
        on as before.
        """
        if self.global_step != "auto":
            return self.global_step == "collapsed"
        if self.local_step != "gibbs" or not self._has_default_temperature:
            return False
        # Only an interrupted fit has the attribute ``_progress``. Its model is the fitted one.
        if "_progress" in vars(self):
            model = self._fitted.model
        if model is not None:
            return Capability.COLLAPSIBLE in model.capabilities
        return self.max_iter is None or self.max_iter >= MIN_COLLAPSED_PASSES

    @property
    def _has_default_temperature(self):
        """Whether the temperature is None or "annealed", which collapsed sampling ignores."""
        return self.temperature is None or self.temperature == "annealed"

    def _build_model(self, X, weights, old=None):
        """Return the model with topics summed out, or with local steps given topics."""
        if not self._is_collapsed(old):
            lda = self._make_lda(X, weights, old, default_eta=1.0 / self.n_components)
            return LDAGivenTopics.from_lda(
                lda, self.local_step, self.n_burn_in, self.n_samples,
                updates_all_rows=self.global_step == "ssvi",
            )  # fmt: skip
        # Priors are learned if their parameters are "auto" or None.
        lda = self._make_lda(X, weights, old, COLLAPSED_PRIOR, learned_types=str | None)
        if self.local_step != "gibbs":
            raise ValueError(
                'global_step="collapsed" draws the topic of each token, which needs '
                f'local_step="gibbs". Got local_step={self.local_step!r}.'
            )
        model = CollapsedLDA.from_lda(lda, self.local_step, self.n_burn_in, self.n_samples)
        if model.learn_topic_word_prior:
            model = replace(model, sampling_prior=COLLAPSED_PRIOR)
        return model

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of sweeps with topics summed out, or of stochastic steps given topics.

        A stream makes no sweeps, because it does not store the topics of tokens.
        """
        makes_sweeps = self._is_collapsed(model) and not stream
        n_passes, average = COLLAPSED_DEFAULTS if makes_sweeps else DRAWN_DEFAULTS
        n_passes = n_passes if self.max_iter is None else self.max_iter
        average = average if self.average is None else self.average
        batch_size = self.batch_size
        if self.learning_method == "batch":
            # A step of a stream on fewer rows than ``batch_size`` is smaller than a full step.
            batch_size = max(X.shape[0], self.batch_size) if stream else X.shape[0]
        if makes_sweeps:
            batch_size = min(MAX_ROWS_OF_BATCH, X.shape[0])
        data = make_rows(X, weights, batch_size, self.n_parallel_batches)
        # In a fit with sweeps, only later calls of partial_fit use the schedule of step sizes.
        n_batches = None if stream or self.global_step == "ssvi" else data.n_batches
        step_sizes = self._make_step_sizes(n_batches, FIT_SCALE, FIT_DELAY)
        if makes_sweeps:
            # A few of the first passes draw the topics of all tokens again. Their number grows with
            # the argument; 0 stands for none, because a warm start starts from settled topics.
            engine = CollapsedInference(0 if self._is_warm_start() else n_passes)
        else:
            # The step of "auto" is "ssvi-a", and so is the step of "collapsed" in a stream.
            global_step = self.global_step if self.global_step in GLOBAL_STEPS else "ssvi-a"
            engine = StructuredInference(step_sizes, global_step)
        return self._make_topic_plan(
            data, engine, self._make_policy(model), step_sizes, n_passes=n_passes,
            moves=None if stream else self.moves, average=average,
            moves_at=SHARES_BEFORE_MOVES if makes_sweeps else None,
        )  # fmt: skip

    def _make_policy(self, model):
        """Return the temperature policy: T = 1 if topics are summed out, else by ``temperature``.

        For "annealed", the topic prior determines the initial temperature.
        """
        if self._is_collapsed(model):
            if not self._has_default_temperature:
                raise ValueError(
                    'global_step="collapsed" samples at T = 1 only. Got '
                    f"temperature={self.temperature!r}; leave it at its default, or use another "
                    "global_step."
                )
            return ConstantTemperature()
        if self.temperature != "annealed":
            policy = make_policy(self.temperature)
            needed = {requirement.capability for requirement in getattr(policy, "requires", ())}
            if Capability.TEMPERABLE in needed - model.capabilities:
                raise ValueError(
                    f'{type(self).__name__} learns its temperature with local_step="mean_field" '
                    f"only. Got temperature={self.temperature!r} and local_step="
                    f'{self.local_step!r}. Set local_step="mean_field", or use another '
                    'temperature, such as "annealed".'
                )
            return policy
        # Annealing would destroy topics that the user gives as a start.
        if model.start is not None:
            return ConstantTemperature()
        eta = model.topic_word_prior
        # For a prior of each topic and word, the median is the value of words without seeds.
        eta = eta.mean() if eta.ndim == 1 else np.median(eta)
        # A learned prior counts as small, because its final value may be smaller than the initial.
        eta = MAX_HOT_PRIOR if model.learn_topic_word_prior else eta
        # Interpolate in log eta. Outside of the two priors the result is one of the two ends.
        initial_temperature = np.interp(
            np.log(eta), np.log([MAX_HOT_PRIOR, MIN_COOL_PRIOR]), [HIGHEST_TEMPERATURE, 1.0]
        )
        return LinearAnnealing(initial_temperature, replication=1.0, share=ANNEALED_SHARE)
