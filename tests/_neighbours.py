"""A pytest plugin by which other libraries' own tests of an estimator meet ours under its name.

``SKVT_NEIGHBOUR="Theirs=Ours"`` says which. Of scikit-learn's, ours is a subclass of that name:
names of features and errors of estimators that are not fitted have the class's name in them, as
theirs have. ``lda.LDA`` has other parameters and attributes.
"""

import os

import skvt


def pytest_collection_modifyitems(items):
    """In each module of theirs, ours stands where their class was imported."""
    theirs, ours = os.environ["SKVT_NEIGHBOUR"].split("=")
    for module in {item.module for item in items}:
        if theirs == "LDA":
            module.lda.LDA = LDA
        else:
            setattr(module, theirs, type(theirs, (getattr(skvt, ours),), {}))


class LDA:
    """``StructuredLDA(global_step="collapsed")`` as ``lda.LDA``."""

    def __init__(self, n_topics, n_iter=2000, alpha=0.1, eta=0.01, random_state=None):
        self.n_topics, self.n_iter, self.random_state = n_topics, n_iter, random_state
        priors = {"doc_topic_prior": alpha, "topic_word_prior": eta}
        self.ours = skvt.StructuredLDA(
            n_topics, global_step="collapsed", max_iter=n_iter, random_state=random_state, **priors
        )
        self.ours._validate_params()

    def fit(self, X):
        self.doc_topic_ = self.ours.fit_transform(X)
        self.components_ = self.topic_word_ = self.ours.posterior_.mean()
        self.loglikelihoods_ = self.ours.history_["elbo"]
        return self

    def fit_transform(self, X):
        return self.fit(X).doc_topic_

    def transform(self, X):
        return self.ours.transform(X if X.ndim == 2 else X[None])

    def loglikelihood(self):
        return self.ours.elbo_
