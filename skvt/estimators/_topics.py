"""What all topic models have in common: topics, document completion, perplexity, top words."""

from dataclasses import replace
from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_scalar

from skvt.estimators._base import (
    VariationalEstimator,
    _attribute_of_fit,
    all_or_nothing,
)
from skvt.estimators._mixins import LEARNING_RATE_CONSTRAINTS, MoveLogMixin, TemperatureMixin
from skvt.estimators._sklearn_private import Interval, StrOptions
from skvt.estimators.completion import completion_score, expected_proportions
from skvt.estimators.validation import (
    OF_WORDS,
    canonical,
    column_names,
    require_counts,
    require_prior,
    validated,
)
from skvt.expfam import Dirichlet
from skvt.inference import Stopping, WithMoves, Workers, perplexity_fall
from skvt.models.lda import LDA, SplitMerge
from skvt.posterior import Posterior
from skvt.schedules import RobbinsMonro
from skvt.ties import stable_order

# learning_offset of a stream where it is not given
STREAM_OFFSET = 64.0


class TopicEstimator(
    MoveLogMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, VariationalEstimator
):
    """Base of the topic models: non-negative counts in, topic proportions out."""

    _parameter_constraints = (
        {
            "n_components": [Interval(Integral, 1, None, closed="left")],
            "doc_topic_prior": [
                None,
                StrOptions({"auto"}),
                Interval(Real, 0, None, closed="neither"),
                "array-like",
            ],
            "topic_word_prior": [
                None,
                StrOptions({"auto"}),
                Interval(Real, 0, None, closed="neither"),
                "array-like",
            ],
            "moves": [tuple, list],
            "learning_method": [StrOptions({"batch", "online"})],
            "max_iter": [Interval(Integral, 1, None, closed="left")],
            "batch_size": [Interval(Integral, 1, None, closed="left")],
            "evaluate_every": [Interval(Integral, None, None, closed="neither")],
            "perp_tol": [Interval(Real, 0, None, closed="left")],
            "tol": [None, Interval(Real, 0, None, closed="left")],
            "total_samples": [None, Interval(Real, 0, None, closed="neither")],
            "mean_change_tol": [Interval(Real, 0, None, closed="left")],
            "max_doc_update_iter": [Interval(Integral, 1, None, closed="left")],
            "n_init": [Interval(Integral, 1, None, closed="left")],
            "warm_start": ["boolean"],
            "n_jobs": [None, Integral],
            "verbose": ["verbose"],
            "random_state": ["random_state"],
        }
        | TemperatureMixin._temperature_constraints
        | LEARNING_RATE_CONSTRAINTS
        | {"learning_offset": [None, Interval(Real, 1.0, None, closed="left")]}
    )
    _of_counts = True
    _model_parameters = (
        "doc_topic_prior",
        "topic_word_prior",
        "mean_change_tol",
        "max_doc_update_iter",
    )
    # LatentDirichletAllocation does not warn either
    _warns_unconverged = False
    # Steps of a fit without learning_offset, M minibatches a pass:
    # scale / M (delay + t / M)^-decay.
    _fit_scale, _fit_delay = 2.8, 0.8

    @all_or_nothing
    def fit(self, X, y=None, sample_weight=None):
        """Fit the topics to a corpus.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts: non-negative numbers, whole or not.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A document of weight w counts w times. Minibatches are drawn regardless of weights.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            For negative, infinite or missing counts, illegal priors or temperatures, and where
            counts (times weights) add up to less than 1e-30 or more than 1e30.
        """
        return self._fit(X, y, sample_weight)

    @all_or_nothing
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update on documents of a stream, with one step for every ``batch_size`` of them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A document of weight w counts w times.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        return self._partial_fit(X, sample_weight)

    # --------------------------------------------------------------------------- validation
    def _validate_rows(self, X, *, reset):
        remedy = (
            "Count the words first: CountVectorizer().fit_transform(texts), of "
            "sklearn.feature_extraction.text."
        )
        X = sp.csr_array(validated(self, X, reset=reset, accept_sparse="csr", remedy=remedy))
        require_counts(X, type(self).__name__, *OF_WORDS)
        return canonical(X)

    def _build_model(self, X, weights):
        if isinstance(self.n_components, bool):
            raise ValueError(
                f"The 'n_components' parameter of {type(self).__name__} must be an int in the "
                f"range [1, inf). Got {self.n_components!r} instead."
            )
        self._check_moves(("split-merge",))
        alpha = self._prior("doc_topic_prior", self.n_components, "n_components")
        eta = self._prior("topic_word_prior", X.shape[1], "n_features")
        return LDA(
            doc_topic_prior=alpha.astype(X.dtype),
            topic_word_prior=eta.astype(X.dtype),
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
            learn_doc_topic_prior=_is_auto(self.doc_topic_prior),
            learn_topic_word_prior=_is_auto(self.topic_word_prior),
        )

    def _continued_model(self, X, weights):
        """The model by the parameters as they are now, learned priors kept."""
        old = self._fitted.model
        model = self._build_model(X, weights)
        kept = {}
        if model.learn_doc_topic_prior:
            kept["doc_topic_prior"] = old.doc_topic_prior
        if model.learn_topic_word_prior:
            kept["topic_word_prior"] = old.topic_word_prior
        return replace(model, **kept)

    def _prior(self, name, size, size_name):
        """The prior's vector: given, 1 / n_components by default and where learning starts."""
        value = getattr(self, name)
        if value is None or _is_auto(value):
            return np.full(size, 1.0 / self.n_components)
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The {name!r} parameter must be positive numbers. Got {value!r} instead."
            ) from error
        if value.ndim > 1 or (value.ndim == 1 and value.size != size):
            raise ValueError(
                f"The {name!r} parameter must be a number or a vector of {size_name} = {size} "
                f"numbers. Got an array of shape {value.shape} instead."
            )
        if not (np.all(np.isfinite(value)) and np.all(value > 0.0)):
            raise ValueError(
                f"The {name!r} parameter must be in the range (0, inf), each entry. Got {value} "
                "instead; drop words or topics that shall have no mass."
            )
        require_prior(name, getattr(self, name))
        return np.broadcast_to(value, (size,)).copy()

    def _with_moves(self, engine, stream):
        """The engine with moves between its passes; a stream has none."""
        if not self.moves or stream:
            return engine
        return WithMoves(engine, [SplitMerge()], self.max_iter)

    def _learning_rate(self, n_batches):
        """Step sizes of a fit with this number of minibatches per pass; None is a stream."""
        if self.learning_offset is not None:
            return RobbinsMonro(self.learning_offset, self.learning_decay)
        if n_batches is None:
            return RobbinsMonro(STREAM_OFFSET, self.learning_decay)
        scale = self._fit_scale * n_batches ** (self.learning_decay - 1.0)
        offset = self._fit_delay * n_batches
        if self._continues() and self._fitted.counts_rows:
            # the passes before may have had another number of steps
            state = self._fitted.state
            offset += state.rows_seen / self._fitted.n_rows * n_batches - state.n_steps
        return RobbinsMonro(offset, self.learning_decay, scale)

    @property
    def _stopping(self):
        """``perp_tol``, as in scikit-learn, unless there is a ``tol``."""
        if self.tol is None:
            return Stopping(self.max_iter, self.evaluate_every, self.perp_tol, perplexity_fall)
        return Stopping(self.max_iter, self.evaluate_every, self.tol)

    def _publish(self, X):
        """The priors as used, a float where all entries are one."""
        model = self._fitted.model
        self.doc_topic_prior_ = _simplest(self.doc_topic_prior, model.doc_topic_prior)
        self.topic_word_prior_ = _simplest(self.topic_word_prior, model.topic_word_prior)

    # --------------------------------------------------------------------------- attributes
    @property
    def components_(self):
        """Variational parameters lam of the topics, shape (n_components, n_features)."""
        return _attribute_of_fit(self, "components_").lam()[0]

    @property
    def exp_dirichlet_component_(self):
        """``exp(E[log beta])`` under q(beta), shape (n_components, n_features)."""
        fitted = _attribute_of_fit(self, "exp_dirichlet_component_")
        return np.exp(Dirichlet.expectation(fitted.lam()[0])).astype(fitted.model.dtype)

    @property
    def posterior_(self):
        """The posterior q(beta) of the topics."""
        return Posterior(Dirichlet, _attribute_of_fit(self, "posterior_").lam()[0])

    @property
    def _n_features_out(self):
        return _attribute_of_fit(self, "_n_features_out").model.n_components

    # --------------------------------------------------------------------------- inference
    def transform(self, X):
        """Topic proportions of each document, inferred at T = 1.

        Deterministic, and independent of the other rows and of ``n_jobs``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            E[theta] of each document; each row sums to 1.
        """
        fitted = self._require_fitted()
        X = self._validate_rows(X, reset=False)
        with Workers(self.n_jobs) as workers:
            return expected_proportions(fitted.model, fitted.stats, X, workers)

    def score(self, X, y=None):
        """Document-completion log predictive probability in nats per held-out word.

        Half of each document's tokens (:func:`skvt.metrics.document_completion_split`) are used to
        infer its topic proportions, and the others are predicted: ``sum log sum_k E[theta_k]
        E[beta_kw] / number of held-out tokens``. Higher is better.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts; at least one document must have two or more tokens.
        y : ignored
            Not used.

        Returns
        -------
        float
            Nats per held-out word.

        Raises
        ------
        ValueError
            If no document of X has a token to hold out.
        """
        fitted = self._require_fitted()
        X = self._validate_rows(X, reset=False)
        with Workers(self.n_jobs) as workers:
            return completion_score(fitted.model, fitted.stats, X, workers)

    def perplexity(self, X):
        """``exp(-score(X))``: perplexity of held-out words. Lower is better.

        Unlike scikit-learn's, it does not use the words it predicts, and does not depend on the
        number of rows of X.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts; at least one document must have two or more tokens.

        Returns
        -------
        float
            Number of equally probable words that would be as hard to predict.
        """
        return float(np.exp(-self.score(X)))

    def top_words(self, n_words=10, feature_names=None):
        """The most probable words of each topic.

        Parameters
        ----------
        n_words : int, default=10
            Number of words per topic.
        feature_names : array-like of str of shape (n_features,), optional
            By default the column names of X in ``fit``, or column numbers if it had none. The
            sparse counts of ``CountVectorizer`` have no column names: pass its
            ``get_feature_names_out()``. In a pipeline, ``pipeline[-1].top_words(10,
            pipeline[:-1].get_feature_names_out())``.

        Returns
        -------
        list of list
            ``n_components`` lists of ``n_words`` words, most probable first.
        """
        lam = self._require_fitted().lam()[0]
        check_scalar(n_words, "n_words", Integral, min_val=1)
        names = column_names(self, feature_names, lam.shape[1])
        probability = Dirichlet.mean(lam)
        dtype = self._fitted.model.dtype
        order = [stable_order(-topic, dtype=dtype)[:n_words] for topic in probability]
        return [names[topic].tolist() for topic in order]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _is_auto(value):
    return isinstance(value, str) and value == "auto"


def _simplest(given, used):
    """A float where one number was given (or is shared by all entries), else the vector."""
    return float(used[0]) if np.all(used == used[0]) and np.ndim(given) == 0 else used
