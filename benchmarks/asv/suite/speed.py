"""Speed and quality of small fits over the history of the project, for airspeed velocity."""

import time
import warnings

import numpy as np

import skvt
from skvt.datasets import make_topic_corpus


def counts(rng):
    return make_topic_corpus(600, n_components=10, n_features=300, random_state=0).X


def reals(rng):
    return np.concatenate([rng.normal(centre, size=(150, 4)) for centre in range(0, 60, 6)])


def bits(rng):
    return (rng.random((1, 5, 20)) < rng.random((200, 1, 20))).reshape(-1, 20).astype(float)


FITS = {
    "TemperedLDA": (lambda: skvt.TemperedLDA(10, random_state=0), counts),
    "StructuredLDA": (lambda: skvt.StructuredLDA(10, max_iter=40, random_state=0), counts),
    "MemoizedHDP": (lambda: skvt.MemoizedHDP(max_iter=20, n_polish=20, random_state=0), counts),
    "MemoizedDPGMM": (lambda: skvt.MemoizedDPGMM(random_state=0), reals),
    "MemoizedDPMixture": (lambda: skvt.MemoizedDPMixture(random_state=0), reals),
    "StructuredBernoulliMixture": (
        lambda: skvt.StructuredBernoulliMixture(10, random_state=0),
        bits,
    ),
}


class Fit:
    """CPU seconds of a fit and of a call of a stream, and the score of held-out rows."""

    params = list(FITS)
    param_names = ("estimator",)
    timer = time.process_time
    timeout = 600

    def setup(self, name):
        warnings.simplefilter("ignore")
        make, data = FITS[name]
        rng = np.random.default_rng(0)
        X = data(rng)
        order = rng.permutation(X.shape[0])
        n_training_rows = X.shape[0] * 4 // 5
        self.X, self.held_out = X[order[:n_training_rows]], X[order[n_training_rows:]]
        # The first fit compiles the loops.
        self.make, self.fitted = make, make().fit(self.X)

    def time_fit(self, name):
        self.make().fit(self.X)

    def time_partial_fit(self, name):
        self.make().partial_fit(self.X)

    def track_score(self, name):
        return self.fitted.score(self.held_out)

    track_score.unit = "nats"


def timeraw_import():
    return "import skvt"
