"""The mixin of topic models: topics and their names, proportions of documents, and scores.

There are K topics and V words: K is ``n_components``, and V is ``n_features``. Beta are the
probabilities of words in topics, and theta are the topic proportions of a document. The *details*
of documents are their covariates and allowed topics, in a dict by the name of the argument. Only
some topic models take details.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from skvt._results._display import make_topics_table
from skvt._results._names import find_names, get_component_keys, read_names, store_names
from skvt._results.completion import (
    compute_completion_sums,
    compute_mean_of_held_out,
    infer_document_parameters,
)
from skvt._results.topic_words import make_topic_labels, top_words
from skvt.expfam import Dirichlet
from skvt.fitting import fitted_property
from skvt.inference import Workers
from skvt.posterior import Posterior
from skvt.readers import DocumentReader
from skvt.readers.chunks import apply_by_chunk, sum_over_rows
from skvt.readers.validation import warn_of_rows_without_words
from skvt.rows import collect_details


def _get_topic_parameters(fitted):
    """Return the parameters lam of q(beta), (K, V), the first array of the global parameters."""
    return fitted.lam()[0]


class TopicsMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Transformer of counts of words to topic proportions of documents."""

    _reader_class = DocumentReader

    # --------------------------------------------------------------------------- attributes
    @fitted_property
    def components_(self, fitted):
        """Parameters lam of the posterior q(beta) of the topics, (n_components, n_features)."""
        return _get_topic_parameters(fitted).astype(fitted.model.dtype, copy=False)

    @fitted_property
    def exp_dirichlet_component_(self, fitted):
        """``exp(E[log beta])`` under q(beta), shape (n_components, n_features)."""
        expectation = Dirichlet.expectation(_get_topic_parameters(fitted))
        return np.exp(expectation).astype(fitted.model.dtype)

    @fitted_property
    def posterior_(self, fitted):
        """The posterior q(beta) of the topics."""
        return Posterior(Dirichlet, _get_topic_parameters(fitted))

    @fitted_property
    def topic_labels_(self, fitted):
        """Names of the topics, a list of str; None if no name was set.

        Set a list with a name for each topic, or a dict from indices of topics to names, such as
        ``{0: "Germany"}``. A Series of pandas counts as a dict from its index to its values. A
        topic that is not in the dict gets its three most relevant words as a name, or its index if
        no words are known. Setting replaces all names. Setting
        None, or ``del``, removes them. Several topics may have the same name.

        Files contain the names, and topics keep their names in ``partial_fit``, warm starts,
        ``merge_topics`` and ``drop_topics``. Another fit deletes the names.
        """
        return None if fitted.topic_labels is None else make_topic_labels(self)

    @topic_labels_.setter
    def topic_labels_(self, labels):
        fitted = self._require_fitted()
        label_of_topic = read_names(labels, self._n_features_out, "topic_labels_", "topic")
        topic_labels = store_names(label_of_topic, self._topic_keys)
        self._fitted = replace(fitted, topic_labels=topic_labels)

    @topic_labels_.deleter
    def topic_labels_(self):
        self.topic_labels_ = None

    # Displays of the estimator in notebooks call this method.
    _result_for_display = make_topics_table

    @property
    def _labels_by_topic(self):
        """A dict from indices of topics to the names that the user has set."""
        return find_names(self._require_fitted().topic_labels, self._topic_keys)

    @property
    def _topic_keys(self):
        """Keys of the topics, (K,), by which their names are stored."""
        return get_component_keys(self._fitted, self._fitted, self._n_features_out)

    def get_feature_names_out(self, input_features=None):
        """Return the names of the columns of the result of ``transform``, one for each topic.

        The name of a topic is the label that was set in ``topic_labels_``, and otherwise the name
        of the class in small letters with the index of the topic. If several topics have the same
        label, the index of the topic is added to the label.

        Parameters
        ----------
        input_features : ignored
            Not used.

        Returns
        -------
        ndarray of str, shape (n_components,)
        """
        names = super().get_feature_names_out(input_features)
        labels = self._labels_by_topic
        if not labels:
            return names
        names = [labels.get(k, name) for k, name in enumerate(names.tolist())]
        # Add the index of the topic to each repeated name. This is repeated until all names differ,
        # because a label with an index may be equal to the label of another topic.
        while len(counts := Counter(names)) < len(names):
            names = [f"{name} {k}" if counts[name] > 1 else name for k, name in enumerate(names)]
        return np.array(names, dtype=object)

    # --------------------------------------------------------------------------- inference
    def transform(self, X, *, normalize=True, covariates=None, allowed_topics=None):
        """Return the topic proportions of each document, inferred at T = 1.

        Proportions are inferred by CVB0 [1]_ with the expected topics, whatever method the fit used
        for documents. CVB0 updates the topic probabilities of each token given the expected topic
        counts of the other tokens of the document. The result is deterministic, and depends neither
        on other rows nor on ``n_jobs``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.
        normalize : bool, default=True
            Whether rows sum to 1. With False, rows are the parameters gamma of the Dirichlet
            q(theta): the expected number of tokens of each topic plus the prior alpha.
        covariates : data frame or array-like, optional
            Covariates of the documents, needed if the fit had covariates.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            Topics that each document may have, see ``fit``; by default all topics.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            E[theta] of each document, or the parameters of q(theta). A document without words has
            the mean of its prior; :func:`skvt.topic_table` lists such documents.

        Raises
        ------
        ValueError
            If covariates or allowed topics do not have as many rows as X or do not match those of
            the fit, or if the estimator does not take them.

        Warns
        -----
        UserWarning
            If there are documents without words that the model knows.

        References
        ----------
        .. [1] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for
           topic models. UAI.
        """
        self._require_fitted()
        details = self._check_details(X, covariates, allowed_topics)
        return self._compute_proportions(X, normalize=normalize, details=details)

    # For rows of Dask, the lambda returns the width and the dtype of the result.
    @apply_by_chunk(lambda self, **options: (self._n_features_out, self._fitted.model.dtype))
    def _compute_proportions(self, X, *, normalize, details):
        """Return the topic proportions of documents with these details."""
        fitted = self._fitted
        X = self._read(X, details)
        warn_of_rows_without_words(X)
        with Workers(self.n_jobs) as workers:
            # (n, K): parameters of the Dirichlet distribution q(theta) of each document.
            gamma = infer_document_parameters(fitted.model, fitted.stats, X, workers)
        return gamma / gamma.sum(axis=1, keepdims=True) if normalize else gamma

    def _check_details(self, X, covariates, allowed_topics):
        """Return the details of the documents X, a dict by the name of the argument.

        This class takes no details, and raises ValueError if an argument is not None. Estimators
        that take details override the method.
        """
        details = collect_details(covariates, allowed_topics)
        if details:
            raise ValueError(
                f"{type(self).__name__} takes no {' and no '.join(details)}. Leave them out, or "
                "use StructuredLDA or TemperedLDA."
            )
        return details

    def fit_transform(
        self, X, y=None, *, normalize=True, sample_weight=None, covariates=None, allowed_topics=None
    ):
        """Fit to X, then transform it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.
        y : ignored
            Not used.
        normalize : bool, default=True
            As in ``transform``.
        sample_weight : array-like of shape (n_samples,), optional
            As in ``fit``.
        covariates : data frame or array-like, optional
            As in ``fit``.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            The result of ``transform``.
        """
        details = collect_details(covariates, allowed_topics)
        self.fit(X, y, sample_weight=sample_weight, **details)
        return self.transform(X, normalize=normalize, **details)

    def score(self, X, y=None, sample_weight=None, covariates=None, allowed_topics=None):
        """Return the log predictive probability of document completion, nats per held-out word.

        Half of each document's tokens (:func:`skvt.metrics.document_completion_split`) are used to
        infer its topic proportions as ``transform`` does, and the other tokens are predicted:
        ``sum log sum_k E[theta_k] E[beta_kw] / number of held-out tokens``. Higher is better.
        Scores of all topic models and of :func:`skvt.metrics.document_completion_score` are
        comparable.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts; at least one document must have two or more tokens.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A document of weight w counts w times.
        covariates : data frame or array-like, optional
            Covariates of the documents, needed if the fit had covariates.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            Topics that each document may have, see ``fit``; by default all topics.

        Returns
        -------
        float
            Nats per held-out word.
        """
        self._require_fitted()
        details = self._check_details(X, covariates, allowed_topics)
        # `sum_over_rows` calls `_compute_score_sums` and adds up the results of all chunks.
        return compute_mean_of_held_out(*sum_over_rows(self, X, sample_weight, details))

    def _compute_score_sums(self, X, weights):
        """Return the sums over the documents X from which ``score`` computes its mean.

        `sum_over_rows` calls this method once with all rows if they are in memory, and otherwise
        once for each chunk. It reads the rows before the call. The sums are those of
        `compute_completion_sums`.
        """
        fitted = self._fitted
        with Workers(self.n_jobs) as workers:
            return compute_completion_sums(fitted.model, fitted.stats, X, weights, workers)

    def perplexity(self, X, sub_sampling=False, covariates=None, allowed_topics=None):
        """Return the perplexity of held-out words, ``exp(-score(X))``. Lower is better.

        The perplexity of scikit-learn infers proportions from the words that it predicts, and
        depends on the number of rows of X. This perplexity does neither. The attribute ``bound_``
        is comparable with ``bound_`` of scikit-learn.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts; at least one document must have two or more tokens.
        sub_sampling : bool, default=False
            Not used. The parameter exists for compatibility with scikit-learn.
        covariates : data frame or array-like, optional
            Covariates of the documents, needed if the fit had covariates.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            Topics that each document may have, see ``fit``; by default all topics.

        Returns
        -------
        float
            The number of equally probable words that would be equally hard to predict.
        """
        return float(np.exp(-self.score(X, covariates=covariates, allowed_topics=allowed_topics)))

    def top_words(self, n_words=10, feature_names=None, *, by="probability"):
        """Return the first words of each topic.

        Parameters
        ----------
        n_words : int, default=10
            Number of words per topic.
        feature_names : array-like of str of shape (n_features,), optional
            By default ``words_``, or column numbers if the model knows no words, as in a pipeline
            unless you call ``set_words``. :func:`skvt.top_words` finds the words of a pipeline.
        by : {"probability", "relevance"}, default="probability"
            The order of words, see :func:`skvt.top_words`.

        Returns
        -------
        list of list
            ``n_components`` lists of ``n_words`` words.

        Examples
        --------
        >>> from sklearn.feature_extraction.text import CountVectorizer
        >>> from sklearn.pipeline import make_pipeline
        >>> from skvt import TemperedLDA, top_words
        >>> pipeline = make_pipeline(CountVectorizer(), TemperedLDA(2, random_state=0))
        >>> pipeline = pipeline.fit(["cat mouse cat", "sun rain sun"] * 20)
        >>> sorted(top_words(pipeline, 1))
        [['cat'], ['sun']]
        >>> lda = pipeline[-1].set_words(pipeline[:-1].get_feature_names_out())
        >>> sorted(lda.top_words(1))
        [['cat'], ['sun']]
        """
        return top_words(self, n_words, feature_names, by=by)
