"""What both estimators of latent Dirichlet allocation share: parameters, model, step sizes."""

from dataclasses import replace

import numpy as np

from skvt.fitting import (
    STREAM_ROWS,
    MoveLogMixin,
    VariationalEstimator,
    check_moves,
    of_fit,
)
from skvt.inference import (
    Averaging,
    MovesBetween,
    Plan,
    Stopping,
    perplexity,
    perplexity_fall,
    rows_of,
)
from skvt.models.lda import LDA, SplitMerge
from skvt.readers.validation import LARGEST, in_range
from skvt.results import TopicEditsMixin, TopicsMixin, prior_vector, simplest
from skvt.rows import sums_of_rows, total_and_weight
from skvt.schedules import RobbinsMonro

# learning_offset of a stream where it is not given
STREAM_OFFSET = 64.0


class TopicEstimator(MoveLogMixin, TopicEditsMixin, TopicsMixin, VariationalEstimator):
    """Base of latent Dirichlet allocation: a given number of topics."""

    def _lda(self, X, weights, old, first_eta, learned=str):
        """The model by the parameters; what is learned goes on from the ``old`` one.

        ``first_eta`` is eta where None is given, and where learning begins: of priors whose
        parameters have a ``learned`` type.
        """
        if isinstance(self.n_components, bool):
            raise ValueError(
                f"The 'n_components' parameter of {type(self).__name__} must be an int in the "
                f"range [1, inf). Got {self.n_components!r} instead."
            )
        check_moves(self.moves, ("split-merge",))
        K = self.n_components
        first_alpha = _default_concentration(X, weights, K)
        alpha = given_prior(self, "doc_topic_prior", K, "n_components", first_alpha)
        eta = given_prior(self, "topic_word_prior", X.shape[1], "n_features", first_eta, n_topics=K)
        lda = LDA(
            doc_topic_prior=alpha.astype(X.dtype),
            # word by word, as statistics
            topic_word_prior=np.ascontiguousarray(eta.T, X.dtype),
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
            learn_doc_topic_prior=isinstance(self.doc_topic_prior, learned),
            learn_topic_word_prior=isinstance(self.topic_word_prior, learned),
            start=given_topics(self, X),
        )
        # (other rows may be shorter than those of which alpha was found)
        if old is not None and (lda.learn_doc_topic_prior or self.doc_topic_prior is None):
            lda = replace(lda, doc_topic_prior=old.doc_topic_prior)
        if old is not None and lda.learn_topic_word_prior:
            lda = replace(lda, topic_word_prior=old.topic_word_prior)
        return lda

    def _learning_rate(self, n_batches, scale, delay):
        """Step sizes of a fit with this number of minibatches per pass; None is a stream.

        Without ``learning_offset``, of M minibatches: scale / M (delay + t / M)^-decay.
        """
        if self.learning_offset is not None:
            return RobbinsMonro(self.learning_offset, self.learning_decay)
        if n_batches is None:
            return RobbinsMonro(STREAM_OFFSET, self.learning_decay)
        offset = delay * n_batches
        if self._continues() and self._fitted.counts_rows:
            # the passes before may have had another number of steps
            state = self._fitted.state
            offset += state.rows_seen / self._fitted.n_rows * n_batches - state.n_steps
        scale *= n_batches ** (self.learning_decay - 1.0)
        return RobbinsMonro(offset, self.learning_decay, scale)

    def _topic_plan(self, data, engine, policy, rate, n_passes, moves, share):
        """Passes over documents, and the mean of the topics over this share of the last.

        ``moves`` are tried between passes; None is a stream, which has neither.
        """
        # ``perp_tol`` unless there is a ``tol``, and no warning, as in scikit-learn
        stopping = Stopping(n_passes, self.evaluate_every, self.tol, warns=False)
        if self.tol is None:
            stopping = replace(stopping, tol=self.perp_tol, gain=perplexity_fall)
        first, after_pass = None, []
        if moves is None:
            # the first rows stand for the whole of a stream: so do topics that are given
            total = STREAM_ROWS if self.total_samples is None else float(self.total_samples)
            first = rows_of(data.X, data.weights, data.n_rows, total=total)
        elif moves:
            after_pass.append(MovesBetween([SplitMerge()], n_passes))
        if moves is not None and share > 0.0:
            after_pass.append(Averaging(n_passes, share))
        return Plan(
            data=data,
            engine=engine,
            policy=policy,
            stopping=stopping,
            rate=rate,
            planned_passes=40.0,
            total_samples=self.total_samples,
            in_words=True,
            after_pass=tuple(after_pass),
            first_rows=first,
        )

    def _row_results(self, rows):
        if rows.in_stream:
            return {}
        return {"n_words": float(sums_of_rows(rows.X, rows.weights, total_and_weight)[0])}

    @of_fit
    def bound_(self, fitted):
        """Perplexity of the training data by the bound: ``exp(-elbo_ / words)``."""
        return perplexity(self.elbo_, fitted.n_words)

    @of_fit
    def doc_topic_prior_(self, fitted):
        """Prior of the topics of a document as used, a float where all entries are one."""
        return simplest(fitted.parameters["doc_topic_prior"], fitted.model.doc_topic_prior)

    @of_fit
    def topic_word_prior_(self, fitted):
        """Prior of a topic's words as used, a float where all entries are one."""
        return simplest(fitted.parameters["topic_word_prior"], fitted.model.topic_word_prior.T)


def given_prior(estimator, name, size, size_name, default, *, n_topics=None, remedy=""):
    """The prior's vector: given, or filled with the default, which is where learning starts."""
    value = getattr(estimator, name)
    if value is None or isinstance(value, str):
        return np.full(size, default)
    return prior_vector(name, value, size, size_name, n_topics=n_topics, remedy=remedy)


def given_topics(estimator, X):
    """Word probabilities of the topics given to begin with, (K, V); None without."""
    if estimator.components_init is None:
        return None
    shape = (estimator.n_components, X.shape[1])
    legal = (
        f"The 'components_init' parameter must be an array of shape (n_components, n_features) "
        f"= {shape} of numbers in the range [0, {LARGEST:g}], in each row some above 0."
    )
    try:
        topics = np.asarray(estimator.components_init, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{legal} Got {estimator.components_init!r} instead.") from error
    if topics.shape != shape:
        raise ValueError(
            f"{legal} Got an array of shape {topics.shape} instead; give a row for each topic, "
            "or set n_components."
        )
    wrong = ~((topics >= 0.0) & (topics <= LARGEST))
    if wrong.any():
        raise ValueError(
            f"{legal} Got {topics[wrong][0]:g} in row {wrong.any(axis=1).argmax()}; rows need "
            "not be normalised."
        )
    totals = topics.sum(axis=1, keepdims=True)
    if not in_range(totals):
        row = int(((totals < 1.0 / LARGEST) | (totals > LARGEST)).argmax())
        raise ValueError(
            f"{legal} Got a sum of {totals[row, 0]:g} in row {row}; leave the topic out, or "
            "begin it with the words of all documents."
        )
    return topics / totals


def _default_concentration(X, weights, n_topics):
    """alpha where none is given: 1 / n_topics, and more where documents are shorter than that.

    alpha below the reciprocal of a document's length makes its first token decide the topic of all.
    """
    tokens, n_documents = map(float, sums_of_rows(X, weights, _tokens_and_documents))
    mean_length = tokens / n_documents if n_documents > 0.0 else 1.0
    return max(1.0 / n_topics, 1.0 / max(mean_length, 1.0))


def _tokens_and_documents(X, weights):
    """Weights of all tokens, and of all documents that have some; for `sums_of_rows`."""
    lengths = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    return weights @ lengths, weights @ (lengths > 0.0)
