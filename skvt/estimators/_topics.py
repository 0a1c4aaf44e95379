"""What both estimators of latent Dirichlet allocation share: parameters, model, step sizes."""

from dataclasses import replace

import numpy as np

from skvt.components.specs import is_auto
from skvt.fitting import (
    STREAM_ROWS,
    MoveLogMixin,
    VariationalEstimator,
    check_moves,
    is_annealed,
    of_fit,
    policy_of,
)
from skvt.inference import Averaging, MovesBetween, Stopping, perplexity, perplexity_fall, rows_of
from skvt.models.lda import LDA, SplitMerge
from skvt.results import TopicEditsMixin, TopicsMixin, simplest
from skvt.rows import sums_of_rows, total_and_weight
from skvt.schedules import RobbinsMonro
from skvt.temperature import ConstantTemperature

# learning_offset of a stream where it is not given
STREAM_OFFSET = 64.0


class TopicEstimator(MoveLogMixin, TopicEditsMixin, TopicsMixin, VariationalEstimator):
    """Base of latent Dirichlet allocation: a given number of topics."""

    def _lda(self, X, weights, old, first_eta, learned=is_auto):
        """The model by the parameters; what is learned goes on from the ``old`` one.

        ``first_eta`` is eta where None is given, and where learning begins; ``learned(value)``
        says whether a prior whose parameter has this value is learned.
        """
        if isinstance(self.n_components, bool):
            raise ValueError(
                f"The 'n_components' parameter of {type(self).__name__} must be an int in the "
                f"range [1, inf). Got {self.n_components!r} instead."
            )
        check_moves(self.moves, ("split-merge",))
        K = self.n_components
        first_alpha = _default_concentration(X, weights, K)
        alpha = self._prior_vector("doc_topic_prior", K, "n_components", first_alpha)
        eta = self._prior_vector(
            "topic_word_prior", X.shape[1], "n_features", first_eta, n_topics=K
        )
        lda = LDA(
            doc_topic_prior=alpha.astype(X.dtype),
            # word by word, as statistics
            topic_word_prior=np.ascontiguousarray(eta.T, X.dtype),
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
            learn_doc_topic_prior=learned(self.doc_topic_prior),
            learn_topic_word_prior=learned(self.topic_word_prior),
            start=self._initial_topics(X),
        )
        # (other rows may be shorter than those of which alpha was found)
        if old is not None and (lda.learn_doc_topic_prior or self.doc_topic_prior is None):
            lda = replace(lda, doc_topic_prior=old.doc_topic_prior)
        if old is not None and lda.learn_topic_word_prior:
            lda = replace(lda, topic_word_prior=old.topic_word_prior)
        return lda

    def _first_rows(self, X, weights):
        """Rows that stand for the whole of a stream: so do topics that are given."""
        total = STREAM_ROWS if self.total_samples is None else float(self.total_samples)
        return rows_of(X, weights, X.shape[0], total)

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

    def _stopping(self, n_passes):
        """``perp_tol`` unless there is a ``tol``, and no warning, as in scikit-learn."""
        stopping = Stopping(n_passes, self.evaluate_every, self.tol, warns=False)
        if self.tol is None:
            return replace(stopping, tol=self.perp_tol, gain=perplexity_fall)
        return stopping

    def _publish(self, X, weights, given=None):
        super()._publish(X, weights, given)
        if given is not None:
            self._n_words = float(sums_of_rows(X, weights, total_and_weight)[0])

    @property
    def bound_(self):
        """Perplexity of the training data by the bound: ``exp(-elbo_ / words)``."""
        return perplexity(self.elbo_, self._n_words)

    @of_fit
    def doc_topic_prior_(self, fitted):
        """Prior of the topics of a document as used, a float where all entries are one."""
        return simplest(fitted.parameters["doc_topic_prior"], fitted.model.doc_topic_prior)

    @of_fit
    def topic_word_prior_(self, fitted):
        """Prior of a topic's words as used, a float where all entries are one."""
        return simplest(fitted.parameters["topic_word_prior"], fitted.model.topic_word_prior.T)


def moves_and_mean(moves, n_passes, share):
    """What follows passes: moves, and the mean of the topics over this share of the last ones."""
    parts = [MovesBetween([SplitMerge()], n_passes)] if moves else []
    return (*parts, Averaging(n_passes, share)) if share > 0.0 else tuple(parts)


def policy_of_topics(temperature, model):
    """The policy; topics that are given are not heated by default: it would wash them out."""
    if model.start is not None and is_annealed(temperature):
        return ConstantTemperature()
    return policy_of(temperature)


def _default_concentration(X, weights, n_topics):
    """alpha where none is given: 1 / n_topics, and more where documents are shorter than that.

    alpha below the reciprocal of a document's length makes its first token decide the topic of all.
    """
    tokens, n_documents = map(float, sums_of_rows(X, weights, total_and_weight))
    mean_length = tokens / n_documents if n_documents > 0.0 else 1.0
    return max(1.0 / n_topics, 1.0 / max(mean_length, 1.0))
