"""The estimators that the tests of this folder run over: a new one is one more entry.

An estimator with several engines is entered once for each.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import pytest
from _pairs import pairs
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_checks

from skvt import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    MemoizedHDP,
    StructuredBernoulliMixture,
    StructuredGaPNMF,
    StructuredLDA,
    TemperedLDA,
)
from skvt._estimators._topics import TopicEstimator
from skvt._results._mixtures import MixtureEstimator
from skvt.callbacks import Checkpoint
from skvt.temperature import LinearAnnealing


def counts(seed=0, *, n_rows=40, n_features=25, n_topics=3, length=30):
    """Word counts of documents drawn from LDA, none of them empty: (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_features, 0.1), n_topics)
    shares = rng.dirichlet(np.full(n_topics, 0.2), n_rows)
    lengths = 2 + rng.poisson(length, n_rows)
    return np.stack(
        [rng.multinomial(n, p / p.sum()) for n, p in zip(lengths, shares @ topics, strict=True)]
    ).astype(np.float64)


def rows(seed=0, *, n_rows=40, n_features=3, n_clusters=3):
    """Rows of clusters that overlap: (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    means = 3.0 * rng.standard_normal((n_clusters, n_features))
    return means[rng.integers(n_clusters, size=n_rows)] + rng.standard_normal((n_rows, n_features))


def sums(seed=0, *, n_rows=40, n_features=4, n_components=3):
    """Rows that are sums of subsets of components, and noise: (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    components = 2.0 * rng.standard_normal((n_components, n_features))
    subsets = rng.random((n_rows, n_components)) < 0.4
    return subsets @ components + 0.5 * rng.standard_normal((n_rows, n_features))


def bits(seed=0, *, n_rows=40, n_features=8, n_clusters=3):
    """Binary rows of clusters that overlap: (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    means = rng.beta(0.5, 0.5, size=(n_clusters, n_features))
    chances = means[rng.integers(n_clusters, size=n_rows)]
    return (rng.random((n_rows, n_features)) < chances).astype(np.float64)


# What a fitted estimator can be asked about rows.
QUESTIONS = ("transform", "predict", "predict_proba", "score_samples", "score", "elbo")


@dataclass(frozen=True)
class Entry:
    """An estimator under test.

    ``engine`` are the parameters that select it, under which scikit-learn's checks run; ``quick``
    are more of them that make a fit of ``data(seed)`` take milliseconds, several passes and
    several minibatches; ``still`` keep the number of components, ``full`` make each pass one update
    from all rows, ``watched`` record the exact bound after each pass and ``unwatched`` do not;
    ``stream(n)`` let a stream stand for n rows. One that is not ``bounded`` knows the bound only
    where it is evaluated.

    ``shown`` are the fitted arrays that are in the precision of the data, the first of them one
    that tells fits apart; ``claimed(estimator)`` is the weight of the data that the globals stand
    for, up to a constant. ``learned`` are the names of the learned temperatures it takes. One that
    ``remembers`` keeps what a call of ``partial_fit`` is given as a batch of its own; others divide
    it into minibatches and make a step with each. ``annealed`` is what the name stands for with the
    parameters of ``heated``, None where the data decide. One that ``goes_on`` from each row's last
    visit has a bound of its own, where rows begun anew may end in other optima; one that
    ``searches`` asks more starts of a row for ``elbo`` than a fit does. ``rounding`` is what the
    company of a row may change in its answers. One that is ``sampled`` draws for a repeated row
    twice and for one of weight 2 once. Of one that is ``alike`` the tests are slow ones: another
    entry has its class, which is all that most tests look at.
    """

    cls: type
    engine: dict
    quick: dict
    data: Callable
    full: dict
    shown: tuple
    claimed: Callable = lambda estimator: estimator.components_.sum()
    still: dict = field(default_factory=lambda: {"moves": ()})
    watched: dict = field(default_factory=lambda: {"evaluate_every": 1})
    learned: tuple = ()
    remembers: bool = False
    annealed: LinearAnnealing | None = field(default_factory=LinearAnnealing)
    heated: dict = field(default_factory=dict)
    goes_on: bool = False
    searches: bool = False
    rounding: float = 0.0
    bounded: bool = True
    sampled: bool = False
    alike: bool = False
    unwatched: dict = field(default_factory=lambda: {"evaluate_every": 0})
    stream: Callable = field(default=lambda n_rows: {"total_samples": n_rows})

    def make(self, **params):
        return self.cls(**(self.engine | self.quick | params))

    def globals(self, estimator):
        """An array that tells fits apart."""
        return getattr(estimator, self.shown[0])

    @property
    def transforms(self):
        """Whether it is a transformer."""
        return hasattr(self.cls, "transform")

    @property
    def takes(self):
        """scikit-learn's tags of what data it takes."""
        return self.make().__sklearn_tags__().input_tags

    @property
    def has_births(self):
        """Whether its fits try births, which take ten times as long as all else."""
        params = self.make().get_params()
        return "max_components" in params and "birth" in params["moves"]

    @property
    def questions(self):
        """Those of ``QUESTIONS`` that it answers."""
        return [name for name in QUESTIONS if hasattr(self.cls, name)]

    def answers(self, estimator, X):
        """Its answers to them, in the same order."""
        return [getattr(estimator, question)(X) for question in self.questions]

    def __str__(self):
        return "-".join([self.cls.__name__, *map(str, self.engine.values())])


def _claimed_by_weights(mixture):
    weights = mixture.weight_concentration_
    return np.sum(weights[0] if np.ndim(weights) == 2 else weights)


QUICK = {"n_components": 3, "max_iter": 4, "batch_size": 16, "random_state": 0}
EXACT = QUICK | {"tol": 0.0}

ENTRIES = (
    [
        Entry(
            cls=TemperedLDA,
            engine={"learning_method": method},
            quick=QUICK,
            data=counts,
            still={"moves": (), "topic_word_prior": None},
            full={"learning_method": "batch"},
            watched={"evaluate_every": 1, "perp_tol": 0.0},
            shown=("components_", "exp_dirichlet_component_"),
            learned=("variational", "local"),
            alike=method == "batch",
        )
        for method in ("online", "batch")
    ]
    + [
        Entry(
            cls=MemoizedDPGMM,
            engine={"learning_method": learning_method, "covariance_type": covariance_type},
            # one engine has births, with little room
            quick=EXACT
            | {"max_components": 4}
            | ({} if learning_method == "memoized" else {"moves": ("merge", "delete")}),
            data=rows,
            full={"learning_method": "batch", "moves": ()},
            shown=("means_", "covariances_", "precisions_", "precisions_cholesky_", "weights_"),
            claimed=_claimed_by_weights,
            remembers=learning_method != "online",
            alike=learning_method != "batch",
        )
        for learning_method, covariance_type in (
            ("memoized", "full"),
            ("batch", "spherical"),
            ("online", "diag"),
        )
    ]
    + [
        Entry(
            cls=AnnealedFactorialMixture,
            # annealing and moves of ten components take a second on scikit-learn's data
            engine={"learning_method": method, "n_components": 4, "max_iter": 20},
            quick=EXACT,
            data=sums,
            still={
                "moves": (),
                "noise_variance": 0.3,
                "prior_variance": 4.0,
                "activation_prior": 0.4,
            },
            full={"learning_method": "batch", "moves": ()},
            shown=("components_",),
            claimed=lambda estimator: estimator._fitted.stats.as_stats().arrays[-1][0],
            learned=("variational", "local"),
            annealed=None,
            goes_on=method == "batch",
            searches=method == "online",
            rounding=1e-9,
            alike=method == "online",
        )
        for method in ("batch", "online")
    ]
    + [
        Entry(
            cls=CAVIGaussianMixture,
            engine={},
            quick={"n_components": 3, "max_iter": 4, "tol": 0.0, "random_state": 1},
            data=rows,
            still={},
            full={},
            watched={},
            shown=("means_", "mean_variances_", "covariances_", "weights_"),
            claimed=lambda estimator: (1.0 / estimator.mean_variances_).sum(),
            learned=("variational", "local"),
            remembers=True,
            unwatched={},
            stream=lambda n_rows: {},
        )
    ]
    + [
        Entry(
            cls=StructuredBernoulliMixture,
            # scikit-learn's data are not binary, and a hundred components of them take long
            engine={
                "n_components": 9,
                "learning_method": learning_method,
                "weight_concentration_prior_type": law,
                "max_iter": 60,
                "binarize": 0.5,
            },
            quick=EXACT,
            data=bits,
            full={"moves": (), "batch_size": None}
            | ({} if learning_method == "structured" else {"learning_method": "batch"}),
            shown=("means_", "weights_"),
            claimed=_claimed_by_weights,
            remembers=learning_method == "memoized",
            bounded=learning_method != "structured",
            alike=(learning_method, law) != ("structured", "dirichlet_process"),
            unwatched={"evaluate_every": 1 if learning_method == "structured" else 0},
        )
        for learning_method, law in (
            ("structured", "dirichlet_process"),
            ("structured", "dirichlet_distribution"),
            ("memoized", "dirichlet_distribution"),
            ("online", "dirichlet_process"),
        )
    ]
)

ENTRIES += [
    Entry(
        cls=StructuredGaPNMF,
        engine={
            "local_step": "mean_field",
            "global_step": "mean_field",
            "learning_method": method,
            "n_components": 5,
            "max_iter": 30,
        },
        quick=QUICK,
        data=counts,
        still={},
        full={"learning_method": "batch"},
        watched={"evaluate_every": 1, "tol": 0.0},
        shown=("components_", "weights_"),
        claimed=lambda estimator: estimator.posterior_.weights.eta[:, 0].sum(),
        rounding=1e-9,  # few rows are summed one by one, many by matrix products
        alike=method == "batch",
    )
    for method in ("online", "batch")
]

ENTRIES += [
    Entry(
        cls=StructuredLDA,
        engine={
            "local_step": local_step,
            "global_step": "ssvi-a",
            "learning_method": "online",
            "learning_offset": 64.0,
        },
        quick=QUICK,
        data=counts,
        full={"learning_method": "batch"},
        watched={"evaluate_every": 1, "perp_tol": 0.0},
        shown=("components_", "exp_dirichlet_component_"),
        learned=("variational", "local") if local_step == "mean_field" else (),
        annealed=LinearAnnealing(n_passes=4 / 3, replication=1.0),
        heated={"topic_word_prior": 0.02},
        bounded=False,
        sampled=local_step == "gibbs",
        alike=local_step == "mean_field",
        unwatched={"evaluate_every": 1, "perp_tol": 0.0},
    )
    for local_step in ("gibbs", "mean_field")
]


ENTRIES += [
    # (its engines are those of MemoizedDPGMM, what is its own are the rows: of one kind here, of
    # several and with births in the tests of tables)
    Entry(
        cls=MemoizedDPMixture,
        engine={"components": [("real", "gaussian", slice(None))]},
        quick=EXACT | {"max_components": 4, "moves": ("delete",)},
        data=rows,
        full={"learning_method": "batch", "moves": ()},
        shown=("weights_",),
        claimed=_claimed_by_weights,
        remembers=True,
    )
]

ENTRIES += [
    Entry(
        cls=MemoizedHDP,
        engine={"learning_method": method, "n_polish": 0},  # what the passes have found
        quick=EXACT
        | {"doc_topic_concentration": 0.5, "topic_word_prior": 0.1, "max_components": 4}
        | ({} if method == "memoized" else {"moves": ("merge", "delete")}),
        data=counts,
        full={"learning_method": "batch", "moves": ()},
        shown=("components_", "exp_dirichlet_component_", "topic_weights_"),
        remembers=method != "online",
        alike=method != "batch",
    )
    for method in ("memoized", "batch", "online")
]


# Steps that no entry has, for a law of all that draws bits: (class, parameters).
OTHER_STEPS = [
    *(
        (StructuredLDA, {"local_step": local, "global_step": step})
        for local, step in (("gibbs", "ssvi"), ("cvb0", "ssvi"), ("cvb0", "map"))
    ),
    (StructuredGaPNMF, {}),
    (StructuredGaPNMF, {"learning_method": "online"}),
    (StructuredGaPNMF, {"global_step": "mean_field"}),
    (StructuredGaPNMF, {"local_step": "mean_field"}),
]


# One entry of each class, the first without births: for what no engine has a part in, such as the
# validation of parameters and the names of columns.
CLASSES = [entry for entry in ENTRIES if not entry.has_births]
CLASSES = list({entry.cls: entry for entry in reversed(CLASSES)}.values())[::-1]


def _every(applies, among=ENTRIES):
    entries = [entry for entry in among if applies(entry)]
    return pytest.mark.parametrize("entry", entries, ids=str)


def is_topic_model(entry):
    return issubclass(entry.cls, TopicEstimator)


def is_mixture(entry):
    return issubclass(entry.cls, MixtureEstimator)


every_estimator = _every(lambda entry: True)
every_class = _every(lambda entry: True, CLASSES)
# For what all inherit from one class.
SOME_CLASSES = CLASSES[::3]
some_classes = _every(lambda entry: True, SOME_CLASSES)
every_transforming_class = _every(lambda entry: entry.transforms, CLASSES)
every_class_of_topic_models = _every(is_topic_model, CLASSES)
every_topic_model = _every(is_topic_model)
every_mixture = _every(is_mixture)
every_growing_mixture = _every(lambda entry: hasattr(entry.cls, "sample_mixtures"))
every_estimator_without_sampling = _every(lambda entry: not entry.sampled)
# One entry of each way in which a class goes through a stream.
every_kind_of_stream = _every(
    lambda entry: True,
    list({(e.cls, e.remembers, e.bounded, e.sampled): e for e in ENTRIES[::-1]}.values())[::-1],
)
# Engines that never lower the bound at T = 1.
every_ascent = _every(
    lambda entry: entry.remembers or entry.engine.get("learning_method") == "batch"
)
every_stream_of_minibatches = _every(lambda entry: not entry.remembers)
every_estimator_whose_fits_make_minibatches = _every(
    lambda entry: not entry.remembers and entry.engine | entry.full != entry.full | entry.engine
)


def every_temperature(*temperatures):
    """Each entry with each of these temperatures, learned ones where it takes them."""
    taken = [(entry, t) for entry in ENTRIES for t in temperatures if takes(entry, t)]
    return pytest.mark.parametrize("entry, temperature", taken, ids=str)


def takes(entry, temperature):
    """Whether an entry takes a temperature: only some take learned ones."""
    return temperature not in ("variational", "local") or temperature in entry.learned


def every_pair(names, *axes, legal=lambda *values: True):
    """Every two values of different axes together somewhere, not every combination of all."""
    return pytest.mark.parametrize(names, pairs(*axes, legal=legal), ids=_name)


def _name(value):
    if isinstance(value, tuple):
        return "-".join(map(_name, value))
    return getattr(value, "__name__", None) or str(value)


# scikit-learn's checks that an engine or a learned temperature has a part in: what a fit keeps, in
# which precision, and what it makes of few rows. All else that they look at is decided in code that
# the engines of an estimator share.
every_check_of_engines = pytest.mark.parametrize(
    "check",
    [
        partial(estimator_checks.check_estimators_pickle, readonly_memmap=True),
        estimator_checks.check_estimators_dtypes, estimator_checks.check_dict_unchanged,
        estimator_checks.check_fit_idempotent, estimator_checks.check_fit2d_1sample,
        estimator_checks.check_fit2d_1feature,
        estimator_checks.check_methods_sample_order_invariance,
    ],
    ids=lambda check: getattr(check, "func", check).__name__,
)  # fmt: skip


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
    if isinstance(value, list | tuple):
        return [_copied(entry) for entry in value]
    if isinstance(value, BaseEstimator):
        return repr(value)
    if isinstance(value, pd.DataFrame):
        return value.to_dict("list")
    return value.copy() if hasattr(value, "copy") else value


@contextmanager
def refused(estimator, error=ValueError, match=None):
    """A ``with`` block that ends in an error, which changes nothing of what the estimator shows."""
    before = published(estimator)
    with pytest.raises(error, match=match) as caught:
        yield caught
    np.testing.assert_equal(published(estimator), before)


def refusal(make, X):
    """The error of fit and of partial_fit of a new estimator, which must be the same."""
    messages = set()
    for method in ("fit", "partial_fit"):
        with refused(estimator := make()) as caught:
            getattr(estimator, method)(X)
        messages.add(str(caught.value))
    (message,) = messages
    return message


def without_time(shown):
    """The same without what a clock says."""
    history = shown.get("history_")
    if history is None:
        return shown
    return shown | {"history_": {k: v for k, v in history.items() if k != "seconds"}}


def assert_same_fit(one, other, *, apart=()):
    """Both show the same to the last bit, the time they took and the attributes ``apart`` apart."""
    one, other = without_time(published(one)), without_time(published(other))
    assert one.keys() == other.keys()
    for name in one.keys() - set(apart):
        np.testing.assert_equal(one[name], other[name], err_msg=name)


class StopAfter(Checkpoint):
    """Checkpoints of a fit that is interrupted after a number of passes."""

    def __init__(self, path, n_passes):
        super().__init__(path)
        self.last = n_passes

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        super().on_fit_task_end(estimator, context, fitted_estimator=fitted_estimator)
        if self._n_passes == self.last:
            raise KeyboardInterrupt


class Interrupter:
    """Counts the local steps of an entry's model; step number ``at`` (from 1) raises ``error``."""

    def __init__(self, monkeypatch, entry):
        settings = {"max_iter": 1} | entry.still
        model = type(entry.make(**settings).fit(entry.data())._fitted.model)
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
        """A middle and the last local step of an action; the first, if there is none before it."""
        self.arm(None, None)
        act()
        return sorted({self.count // 2 + 1, self.count})
