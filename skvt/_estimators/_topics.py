"""Base class of TemperedLDA and StructuredLDA: their methods, model, and plan of a fit.

The *details* of documents are their covariates and allowed topics, in a dict by the name of the
argument. The dict has only the details that the caller passes. In shapes, n or N is the number of
documents, K the number of topics, and V the number of words. The Dirichlet priors have the
concentrations alpha (K,) of a document's topics and eta (K, V) of a topic's words.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from skvt._results import Covariates, TopicEditsMixin, TopicsMixin, prior_vector, simplify_prior
from skvt._results.topic_tables import import_pandas
from skvt._sklearn_private import num_samples
from skvt.fitting import (
    NOT_NEGATIVE,
    OFFSET,
    STREAM_ROWS,
    MoveLogMixin,
    Temperature,
    VariationalEstimator,
    all_or_nothing,
    check_moves,
    fitted_property,
)
from skvt.inference import (
    Averaging,
    MovesBetweenPasses,
    Phase,
    Pilot,
    Plan,
    Stopping,
    StreamPlan,
    make_rows,
    perplexity,
    perplexity_fall,
)
from skvt.models.lda import LDA, DocumentRegression, SplitMerge
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import LARGEST, is_in_legal_range, require_order_of
from skvt.rows import (
    Documents,
    collect_details,
    get_design_and_allowed,
    sum_total_and_weight,
    sums_of_rows,
)
from skvt.schedules import RobbinsMonro

# Default of ``learning_offset`` in a stream.
STREAM_OFFSET = 64.0


@dataclass(eq=False, repr=False)
class TopicEstimator(MoveLogMixin, TopicEditsMixin, TopicsMixin, VariationalEstimator):
    """Base of the estimators of latent Dirichlet allocation with a given number of topics."""

    n_components: int = 10
    _: KW_ONLY
    doc_topic_prior: ArrayLike | str | None = None
    components_init: ArrayLike | None = None
    temperature: Temperature = "annealed"
    moves: tuple[str, ...] = ("split-merge",)
    learning_method: str = "online"
    learning_decay: float = 0.7
    learning_offset: Annotated[float | None, None, OFFSET] = None
    batch_size: int = 128
    n_parallel_batches: int | None = None
    evaluate_every: int = -1
    perp_tol: float = 1e-1
    tol: Annotated[float | None, None, NOT_NEGATIVE] = None
    total_samples: float | None = None
    mean_change_tol: float = 1e-3
    max_doc_update_iter: int = 100

    @all_or_nothing
    def fit(self, X, y=None, sample_weight=None, covariates=None, allowed_topics=None):
        """Fit to all documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A document of weight w counts w times. If local steps draw, its topics are drawn once.
            Minibatches are drawn regardless of weights.
        covariates : data frame, or array-like of shape (n_samples,) or (n_samples, n_covariates), \
                optional
            Covariates on which the prior of a document's topics depends, see
            ``covariate_coef_``, in the order of the rows of X. Categories become one column for
            each level but the first. ``doc_topic_prior`` is then learned, starting from its value.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            True for the topics that a document may have, for example the topics of its labels. The
            other topics have no share in the document. A document without labels has a row of True.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has values that are not counts or that leave the range of floating point. If
            parameters, or combinations of them, are illegal. If covariates have another number of
            rows, an index with the labels of X in another order, or missing values, or are constant
            or collinear; a single constant covariate is allowed and stands for the intercept. If
            allowed topics have another shape or other values than True and False, if a document may
            have no topic, or if no document may have a topic.
        """
        details = self._collect_details(X, covariates, allowed_topics)
        return self._fit(X, y, sample_weight, details)

    @all_or_nothing
    def partial_fit(
        self, X, y=None, sample_weight=None, batch_id=None, covariates=None, allowed_topics=None
    ):
        """Update on documents of a stream.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts. A step is made for every ``batch_size`` documents.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A document of weight w counts w times.
        batch_id : ignored
            Not used: no batch is remembered.
        covariates : data frame, or array-like of shape (n_samples,) or (n_samples, n_covariates), \
                optional
            As in ``fit``, in each call or in none. Levels of categories come from the first call.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            As in ``fit``, in each call or in none; a call need not allow each topic.

        Returns
        -------
        self : estimator
            The estimator after these documents.

        Notes
        -----
        No moves are made, since they need the documents of all calls.
        """
        details = self._collect_details(X, covariates, allowed_topics)
        return self._partial_fit(X, None, sample_weight, batch_id, details)

    @all_or_nothing
    def resume(self, X, y=None, sample_weight=None, covariates=None, allowed_topics=None):
        """Continue a fit that was interrupted, to the same result as without interruption.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The documents of the interrupted fit, in the same order.
        y : ignored
            Shown to callbacks.
        sample_weight : array-like of shape (n_samples,), optional
            The weights of the interrupted fit.
        covariates : data frame or array-like, optional
            The covariates of the interrupted fit.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            The allowed topics of the interrupted fit.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            If there is nothing to resume, if these are other documents, covariates or allowed
            topics, or if a parameter has changed on which the passes so far depend.
        """
        details = self._collect_details(X, covariates, allowed_topics)
        return self._resume(X, y, sample_weight, details)

    def elbo(self, X, covariates=None, allowed_topics=None):
        """Return the untempered evidence lower bound of X in nats, every constant included.

        X counts as the whole data set: the Kullback-Leibler divergence of the topics' posterior
        from their prior is subtracted once.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.
        covariates : data frame or array-like, optional
            Covariates of the documents, needed if the fit had any.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            Topics that each document may have, see ``fit``; by default all.

        Returns
        -------
        float
            Bound of all of X in nats.
        """
        details = self._collect_details(X, covariates, allowed_topics)
        return self._elbo(X, details)

    @fitted_property
    def covariate_coef_(self, fitted):
        """Effects of covariates on log alpha, (n_components, n_terms), the intercept first.

        A document has ``alpha_k = exp(intercept_k + sum of coefficients times covariates)``. The
        result is a data frame with the names of terms as columns if the covariates of the fit were
        a data frame. Effects are learned at T = 1. They are 0 if a stream ends with T > 1, as a
        short stream may without ``total_samples``.
        """
        if self._covariates is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'covariate_coef_' after a fit "
                "without covariates. Pass covariates to fit."
            )
        model = fitted.model
        # Without a regression, all documents have the same alpha: there is only the intercept.
        coef = np.log(np.float64(model.doc_topic_prior))[None]
        if model.regression is not None:
            coef = model.regression.coef
        coef = self._covariates.convert_coefficients(coef)
        if not self._covariates.are_named:
            return coef
        pandas = import_pandas("covariate_coef_ of a fit with a data frame")
        return pandas.DataFrame(coef, columns=self._covariates.columns.names)

    def _collect_details(self, X, covariates, allowed_topics):
        """Return the details that are not None; raise TypeError if there are any for chunks X.

        Raise ValueError if the index of a data frame has the labels of X in another order.
        """
        details = collect_details(covariates, allowed_topics)
        require_order_of(X, **details)
        if details:
            require_rows_in_memory(X, "A topic model with covariates or allowed_topics")
        return details

    def _check_details(self, X, covariates, allowed_topics):
        """Return the details of documents; raise ValueError unless covariates are as in the fit."""
        details = self._collect_details(X, covariates, allowed_topics)
        self._require_same_covariates(details)
        return details

    def _with_details(self, rows, details, used, *, reset):
        """Return the documents of ``rows`` with their details; raise ValueError if illegal.

        ``rows`` are the :class:`CallRows` of a call of ``fit``, ``partial_fit`` or ``resume``, and
        ``used`` selects the documents of positive weight from the documents as passed. With
        ``reset`` a new fit or stream begins, and the encoding of its covariates is derived.
        """
        if reset and "covariates" in details:
            n_rows = num_samples(rows.passed_X)
            self._covariates = Covariates.from_rows(details["covariates"], n_rows, used)
        if not reset:
            self._require_same_covariates(details)
        if rows.in_stream and not reset:
            self._require_same_restriction(self._fitted.model, "allowed_topics" in details)
        documents = self._make_documents(rows.X, rows.passed_X, details, used, reset=reset)
        # Set the number of documents that the regression represents, if there are details. Further
        # calls of a stream leave it None, so that `_with_document_priors` keeps the regression.
        if documents is not rows.X and (reset or not rows.in_stream):
            n_documents = self._stream_rows if rows.in_stream else float(rows.weights.sum())
            documents.n_documents = n_documents
        if reset and not rows.in_stream and "allowed_topics" in details:
            is_never_allowed = ~documents.allowed.any(axis=0)
            if is_never_allowed.any():
                raise ValueError(
                    f"allowed_topics allows topic {is_never_allowed.argmax()} in no document of "
                    "positive weight. Allow it in some documents, or leave its column out and "
                    "lower n_components."
                )
        return documents

    @property
    def _stream_rows(self):
        """Assumed number of documents of a stream."""
        return STREAM_ROWS if self.total_samples is None else float(self.total_samples)

    def _read(self, X, details=None):
        """Return new rows X as the fitted model takes them, with the details of their documents."""
        return self._make_documents(super()._read(X), X, details or {})

    def _make_documents(self, X, passed_X, details, used=slice(None), *, reset=False):
        """Return X, or :class:`Documents` of X if the documents have details or a regression.

        ``passed_X`` are all documents as the user passed them, and ``used`` selects X from them.
        """
        model = None if reset else self._fitted.model
        if not details and (model is None or model.regression is None):
            return X
        n_rows, allowed = num_samples(passed_X), details.get("allowed_topics")
        # The design matrix of the regression. Without covariates, it has the intercept only.
        design = np.ones((n_rows, 1))
        if self._covariates is not None:
            design = self._covariates.encode(details["covariates"], n_rows)
        if allowed is not None:
            n_topics = self.n_components if model is None else model.n_components
            allowed = check_allowed_topics(allowed, n_rows, n_topics)[used]
        return Documents.of(X, design[used], allowed=allowed)

    def _require_same_covariates(self, details):
        """Raise ValueError if covariates are passed but the fit had none, or the reverse."""
        if self._covariates is None and "covariates" in details:
            raise ValueError(
                f"This {type(self).__name__} was fitted without covariates. Call it without "
                "covariates, or fit it again with covariates."
            )
        if self._covariates is not None and "covariates" not in details:
            names = list(self._covariates.columns.levels)
            raise ValueError(
                f"The prior of documents of this {type(self).__name__} depends on the covariates "
                f"{names}. Pass covariates with a row for each row of X."
            )

    def _require_same_restriction(self, model, is_restricted):
        """Raise ValueError if allowed topics are passed but the fit had none, or the reverse.

        ``is_restricted`` says whether this call has allowed topics, and ``model`` is of the fit.
        """
        if is_restricted != (model.topic_groups is not None):
            earlier = "without" if is_restricted else "with"
            raise ValueError(
                "Pass allowed_topics in each call or in none; the calls so far "
                f"were {earlier} allowed_topics. A document that may have all topics has a row of "
                "True. To change this, fit a clone to start anew."
            )

    def _make_lda(self, X, weights, old, default_eta, learned_types=str):
        """Return the model of the estimator's parameters.

        ``default_eta`` is the initial eta if ``topic_word_prior`` is None or "auto". A prior is
        learned if its parameter is of a type in ``learned_types``: ``str`` stands for "auto", and
        ``str | None`` for "auto" and None. If a fit is continued, learned priors keep their values
        in the ``old`` model.
        """
        if isinstance(self.n_components, bool):
            raise ValueError(
                f"The 'n_components' parameter of {type(self).__name__} must be an int in the "
                f"range [1, inf). Got {self.n_components!r} instead."
            )
        check_moves(self.moves, ("split-merge",))
        K = self.n_components
        default_alpha = _compute_default_alpha(X, weights, K)
        alpha = make_prior(self, "doc_topic_prior", K, "n_components", default_alpha)
        eta = make_prior(
            self, "topic_word_prior", X.shape[1], "n_features", default_eta, n_topics=K
        )
        lda = LDA(
            doc_topic_prior=alpha.astype(X.dtype),
            # The prior is transposed, because statistics are (V, K).
            topic_word_prior=np.ascontiguousarray(eta.T, X.dtype),
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
            learn_doc_topic_prior=isinstance(self.doc_topic_prior, learned_types),
            learn_topic_word_prior=isinstance(self.topic_word_prior, learned_types),
            start=make_initial_topics(self, X),
        )
        # A default alpha is also kept, because new documents may have another mean length.
        if old is not None and (lda.learn_doc_topic_prior or self.doc_topic_prior is None):
            lda = replace(lda, doc_topic_prior=old.doc_topic_prior)
        if old is not None and lda.learn_topic_word_prior:
            lda = replace(lda, topic_word_prior=old.topic_word_prior)
        return self._with_document_priors(lda, X, old)

    def _with_document_priors(self, lda, X, old):
        """Return the model with a prior of each document, if X has covariates or allowed topics.

        Log alpha is then a regression on the covariates. Topics that are allowed in the same
        documents form a group.
        """
        design, allowed = get_design_and_allowed(X)
        if old is not None:
            self._require_same_restriction(old, allowed is not None)
        if allowed is not None:
            _, groups = np.unique(allowed, axis=1, return_inverse=True)
            lda = replace(lda, topic_groups=groups.ravel())
        alpha = lda.doc_topic_prior if old is None else old.doc_topic_prior
        # The covariate to which each column of the design belongs; 0 is the intercept.
        terms = np.zeros(1, int)
        if self._covariates is not None:
            lda = replace(lda, doc_topic_prior=alpha, learn_doc_topic_prior=True)
            terms = self._covariates.columns.terms
        # A regression on the intercept alone is needed only to learn alpha from documents with
        # different allowed topics. In all other cases the model learns alpha more exactly itself.
        if terms.size == 1 and (allowed is None or not lda.learn_doc_topic_prior):
            return lda
        # Further rows of a stream, which have no ``n_documents``, keep the regression.
        if X.n_documents is None:
            return replace(lda, regression=old.regression)
        regression = DocumentRegression.with_equal_alpha(design, terms, alpha, X.n_documents)
        if old is not None:
            regression = replace(regression, coef=old.regression.coef)
        return replace(lda, regression=regression)

    def _make_step_sizes(self, n_batches, scale, delay):
        """Return the schedule of step sizes.

        ``RobbinsMonro(offset, decay, scale)`` gives step number t the size ``scale * (offset + t)
        ** -decay``. If ``learning_offset`` is None, step t has size ``scale / M * (delay + t / M)
        ** -learning_decay``, where M is ``n_batches``, the number of minibatches per pass. In a
        stream, where ``n_batches`` is None, the offset is STREAM_OFFSET.
        """
        if self.learning_offset is not None:
            return RobbinsMonro(self.learning_offset, self.learning_decay)
        if n_batches is None:
            return RobbinsMonro(STREAM_OFFSET, self.learning_decay)
        offset = delay * n_batches
        if self._is_warm_start() and self._fitted.counts_rows:
            # Earlier passes may have had another number of steps. Shift t so that each of them
            # counts as the number of steps of a pass of this fit.
            state = self._fitted.state
            n_passes = state.rows_seen / self._fitted.n_rows
            offset += n_passes * n_batches - state.n_full_steps
        scale *= n_batches ** (self.learning_decay - 1.0)
        return RobbinsMonro(offset, self.learning_decay, scale)

    def _make_topic_plan(
        self, data, engine, policy, step_sizes, *, n_passes, moves, average, moves_at=None
    ):
        """Return the plan of a fit, or of a call of ``partial_fit`` if ``moves`` is None.

        A fit tries ``moves`` between passes, and averages the topics over the last passes, whose
        share of all passes is ``average``. A call of ``partial_fit`` does neither. ``moves_at`` are
        the shares of the passes after which :class:`MovesBetweenPasses` makes moves. If the fit may
        stop before ``n_passes``, they are shares of the expected number of passes.
        """
        # As in scikit-learn, no warning says that the fit has not converged. Annealing plans for at
        # most 40 passes if the fit may stop before ``max_iter``.
        stopping = Stopping(
            n_passes, self.evaluate_every, self.tol, warns=False, planned_passes=40.0, in_words=True
        )
        # If ``tol`` is given, it takes the place of ``perp_tol``.
        if self.tol is None:
            stopping = replace(stopping, tol=self.perp_tol, gain=perplexity_fall)
        first_rows = None
        steps_after_pass = []
        if moves is None:
            # Scale the initial statistics, also those made from ``components_init``, to the assumed
            # size of the stream.
            first_rows = make_rows(data.X, data.weights, data.n_rows, total=self._stream_rows)
        elif moves:
            may_stop = self.evaluate_every > 0 and stopping.tol > 0.0
            n_planned = min(n_passes, stopping.planned_passes) if may_stop else n_passes
            numbers = moves_at and [round(share * n_planned) for share in moves_at]
            steps_after_pass.append(MovesBetweenPasses([SplitMerge()], n_passes, numbers))
        if moves is not None and average > 0.0:
            steps_after_pass.append(Averaging(n_passes, average))
        return Plan(
            data=data,
            phases=(Phase(engine),),
            policy=policy,
            stopping=stopping,
            # The pilot is a short fit that calibrates a learned temperature.
            pilot=Pilot(step_sizes),
            steps_after_pass=tuple(steps_after_pass),
            stream=StreamPlan(self.total_samples, first_rows),
        )

    def _row_results(self, rows, workers):
        """Return the number of words of the training data by name, for ``bound_`` after a fit."""
        if rows.in_stream:
            return {}
        n_words, _ = sums_of_rows(rows.X, rows.weights, sum_total_and_weight)
        return {"n_words": float(n_words)}

    @fitted_property
    def bound_(self, fitted):
        """Perplexity of the training data by the bound, ``exp(-elbo_ / words)``."""
        return perplexity(self.elbo_, fitted.n_words or 0.0)

    @fitted_property
    def doc_topic_prior_(self, fitted):
        """Prior of a document's topics as used; a float if it has one value for all topics."""
        return simplify_prior(fitted.parameters["doc_topic_prior"], fitted.model.doc_topic_prior)

    @fitted_property
    def topic_word_prior_(self, fitted):
        """Prior of a topic's words as used; a float if it has one value for all words."""
        return simplify_prior(
            fitted.parameters["topic_word_prior"], fitted.model.topic_word_prior.T
        )


def make_prior(estimator, name, size, size_name, default, *, n_topics=None, remedy=""):
    """Return the prior of the parameter ``name`` as an array; raise ValueError if it is illegal.

    If the parameter is None or "auto", all ``size`` entries are ``default``. The other arguments
    are those of `prior_vector`.
    """
    value = getattr(estimator, name)
    if value is None or isinstance(value, str):
        return np.full(size, default)
    return prior_vector(name, value, size, size_name, n_topics=n_topics, remedy=remedy)


def check_allowed_topics(allowed, n_rows, n_topics):
    """Return allowed topics as an array (n, K) of booleans; raise ValueError if it is illegal."""
    array = np.asarray(allowed.toarray() if sp.issparse(allowed) else allowed)
    requirement = (
        "allowed_topics must be a Boolean array of shape (n_samples, n_components) = "
        f"{(n_rows, n_topics)}"
    )
    if array.shape != (n_rows, n_topics):
        raise ValueError(
            f"{requirement}, with a row for each row of X and a column for each topic. Got the "
            f"shape {array.shape}."
        )
    if array.dtype.kind not in "buif":
        raise ValueError(f"{requirement}. Got values of type {array.dtype}.")
    is_illegal = (array != 0) & (array != 1)
    if is_illegal.any():
        row = is_illegal.any(axis=1).argmax()
        raise ValueError(f"{requirement}. Got {array[is_illegal][0]} in row {row}.")
    array = array.astype(bool)
    has_topics = array.any(axis=1)
    if not has_topics.all():
        raise ValueError(
            f"allowed_topics allows no topic in the document in row {has_topics.argmin()}. Allow "
            "all topics in documents without labels."
        )
    return array


def make_initial_topics(estimator, X):
    """Return the word probabilities (K, V) of ``components_init``, or None if it is None."""
    if estimator.components_init is None:
        return None
    shape = (estimator.n_components, X.shape[1])
    requirement = (
        "The 'components_init' parameter must be an array of shape (n_components, n_features) = "
        f"{shape} of numbers in the range [0, {LARGEST:g}], with a positive number in each row."
    )
    try:
        topics = np.asarray(estimator.components_init, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{requirement} Got {estimator.components_init!r} instead.") from error
    if topics.shape != shape:
        raise ValueError(
            f"{requirement} Got an array of shape {topics.shape} instead; pass a row for each "
            "topic, or set n_components."
        )
    is_illegal = ~((topics >= 0.0) & (topics <= LARGEST))
    if is_illegal.any():
        row = is_illegal.any(axis=1).argmax()
        raise ValueError(
            f"{requirement} Got {topics[is_illegal][0]:g} in row {row}; rows need not be "
            "normalised."
        )
    row_sums = topics.sum(axis=1, keepdims=True)
    if not is_in_legal_range(row_sums):
        row = int(((row_sums < 1.0 / LARGEST) | (row_sums > LARGEST)).argmax())
        raise ValueError(
            f"{requirement} The sum of row {row} is {row_sums[row, 0]:g}; leave this topic out, or "
            "begin it with the words of all documents."
        )
    return topics / row_sums


def _compute_default_alpha(X, weights, n_topics):
    """Return the default alpha: the larger of 1 / n_topics and 1 / (mean tokens of a document).

    If alpha were below the reciprocal of a document's length, the topic of the first token would
    decide the topics of all tokens of the document.
    """
    n_tokens, n_documents = map(float, sums_of_rows(X, weights, _count_tokens_and_documents))
    mean_length = n_tokens / n_documents if n_documents > 0.0 else 1.0
    return max(1.0 / n_topics, 1.0 / max(mean_length, 1.0))


def _count_tokens_and_documents(X, weights):
    """Return the weighted number of tokens, and of documents with tokens, for `sums_of_rows`."""
    lengths = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    return weights @ lengths, weights @ (lengths > 0.0)
