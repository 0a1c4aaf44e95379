"""The estimators that the tests of this folder run over: a new one is one more entry.

An estimator with several engines is entered once for each.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from skvt import TemperedLDA
from skvt.estimators._topics import TopicEstimator


def counts(seed=0, *, n_rows=40, n_features=25, n_topics=3, length=30):
    """Word counts of documents drawn from LDA, none of them empty: (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_features, 0.1), n_topics)
    shares = rng.dirichlet(np.full(n_topics, 0.2), n_rows)
    lengths = 2 + rng.poisson(length, n_rows)
    return np.stack(
        [rng.multinomial(n, p / p.sum()) for n, p in zip(lengths, shares @ topics, strict=True)]
    ).astype(np.float64)


@dataclass(frozen=True)
class Entry:
    """An estimator under test.

    ``engine`` are the parameters that select it, under which scikit-learn's checks run; ``quick``
    are more of them that make a fit of ``data(seed)`` take milliseconds, several passes and
    several minibatches. ``learned`` are the names of the learned temperatures it takes.
    """

    cls: type
    engine: dict
    quick: dict
    data: Callable
    learned: tuple = ()

    def make(self, **params):
        return self.cls(**(self.engine | self.quick | params))

    def __str__(self):
        return "-".join([self.cls.__name__, *map(str, self.engine.values())])


ENTRIES = [
    Entry(
        cls=TemperedLDA,
        engine={"learning_method": method},
        quick={"n_components": 3, "max_iter": 4, "batch_size": 8, "random_state": 0},
        data=counts,
        learned=("variational", "local"),
    )
    for method in ("online", "batch")
]

every_estimator = pytest.mark.parametrize("entry", ENTRIES, ids=str)
every_topic_model = pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if issubclass(entry.cls, TopicEstimator)], ids=str
)


def published(estimator):
    """All that a fitted estimator shows, by name; empty before fit."""
    shown = {}
    for name in dir(estimator):
        if name.endswith("_") and not name.startswith("_") and hasattr(estimator, name):
            value = getattr(estimator, name)
            # copies: what the estimator does to its arrays later is not to be seen here
            shown[name] = value.mean() if name == "posterior_" else _copied(value)
    return shown


def _copied(value):
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    return value.copy() if hasattr(value, "copy") else value


def without_time(shown):
    """The same without what a clock says."""
    history = shown.get("history_")
    if history is None:
        return shown
    return shown | {"history_": {k: v for k, v in history.items() if k != "seconds"}}


def assert_same_fit(one, other):
    """Both show the same to the last bit, the time they took apart."""
    one, other = without_time(published(one)), without_time(published(other))
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_equal(value, other[name], err_msg=name)


class Interrupter:
    """Counts the local steps of an entry's model; step number ``at`` (from 1) raises ``error``."""

    def __init__(self, monkeypatch, entry):
        model = type(entry.make().fit(entry.data())._fitted.model)
        step = model.local_step

        def local_step(*args, **kwargs):
            self.count += 1
            if self.count == self.at:
                raise self.error
            return step(*args, **kwargs)

        monkeypatch.setattr(model, "local_step", local_step)
        self.arm(None, None)

    def arm(self, at, error):
        """Begin to count anew."""
        self.count, self.at, self.error = 0, at, error

    def points_of_failure(self, act):
        """The first, a middle and the last local step of an action."""
        self.arm(None, None)
        act()
        return sorted({1, self.count // 2 + 1, self.count})
