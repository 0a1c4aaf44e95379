"""Latent Dirichlet allocation with annealed and tempered variational inference."""

from numbers import Integral, Real

from skvt.estimators._mixins import LearningRateMixin, TemperatureMixin
from skvt.estimators._sklearn_private import Interval, StrOptions, fit_context
from skvt.estimators._topics import TopicEstimator


class TemperedLDA(TopicEstimator):
    """DOC"""

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
            "learning_method": [StrOptions({"batch", "online"})],
            "max_iter": [Interval(Integral, 1, None, closed="left")],
            "batch_size": [Interval(Integral, 1, None, closed="left")],
            "evaluate_every": [Interval(Integral, None, None, closed="neither")],
            "perp_tol": [Interval(Real, 0, None, closed="left")],
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
        | LearningRateMixin._learning_rate_constraints
    )

    def __init__(
        self,
        n_components=10,
        *,
        doc_topic_prior=None,
        topic_word_prior=None,
        temperature="annealed",
        learning_method="online",
        learning_decay=0.7,
        learning_offset=10.0,
        max_iter=10,
        batch_size=128,
        evaluate_every=-1,
        perp_tol=1e-1,
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
        self.temperature = temperature
        self.learning_method = learning_method
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.evaluate_every = evaluate_every
        self.perp_tol = perp_tol
        self.total_samples = total_samples
        self.mean_change_tol = mean_change_tol
        self.max_doc_update_iter = max_doc_update_iter
        self.n_init = n_init
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Fit the topics to counts X."""
        return self._fit(X, y, sample_weight)

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the topics with rows of a stream."""
        return self._partial_fit(X, sample_weight)
