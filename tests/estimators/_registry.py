"""The estimators that the tests of this folder use. A new estimator is one more entry.

An estimator with several engines has an entry for each.
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
    """Word counts of documents drawn from LDA, of which none is empty, (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_features, 0.1), n_topics)
    shares = rng.dirichlet(np.full(n_topics, 0.2), n_rows)
    lengths = 2 + rng.poisson(length, n_rows)
    return np.stack(
        [rng.multinomial(n, p / p.sum()) for n, p in zip(lengths, shares @ topics, strict=True)]
    ).astype(np.float64)


def rows(seed=0, *, n_rows=40, n_features=3, n_clusters=3):
    """Rows of clusters that overlap, (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    means = 3.0 * rng.standard_normal((n_clusters, n_features))
    return means[rng.integers(n_clusters, size=n_rows)] + rng.standard_normal((n_rows, n_features))


def sums(seed=0, *, n_rows=40, n_features=4, n_components=3):
    """Rows that are sums of subsets of components and noise, (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    components = 2.0 * rng.standard_normal((n_components, n_features))
    subsets = rng.random((n_rows, n_components)) < 0.4
    return subsets @ components + 0.5 * rng.standard_normal((n_rows, n_features))


def bits(seed=0, *, n_rows=40, n_features=8, n_clusters=3):
    """Binary rows of clusters that overlap, (n_rows, n_features)."""
    rng = np.random.default_rng(seed)
    means = rng.beta(0.5, 0.5, size=(n_clusters, n_features))
    chances = means[rng.integers(n_clusters, size=n_rows)]
    return (rng.random((n_rows, n_features)) < chances).astype(np.float64)


# Methods by which a fitted estimator answers questions about rows.
QUESTIONS = ("transform", "predict", "predict_proba", "score_samples", "score", "elbo")


@dataclass(frozen=True)
class Entry:
    """An estimator under test.

    Attributes
    ----------
    engine : dict
        Parameters that select the engine. scikit-learn's checks use them.
    quick : dict
        Parameters that make a fit of ``data(seed)`` take milliseconds, several passes and several
        minibatches.
    full, still, watched, unwatched : dict
        Parameters that make each pass one update from all rows, that keep the number of components,
        that record the exact bound after each pass, and that do not record it.
    shown : tuple of str
        Fitted arrays that have the precision of the data. The first one tells fits apart.
    claimed : callable
        The weight of the data that the global parameters stand for, up to a constant.
    learned : tuple of str
        Names of the learned temperatures that the estimator takes.
    remembers : bool
        Whether ``partial_fit`` keeps each call as a batch instead of making steps with minibatches.
    annealed : LinearAnnealing or None
        The policy that "annealed" stands for with the parameters ``heated``. None if it depends on
        the data.
    goes_on : bool
        Whether a visit of a row begins at its last one, so that new visits may end elsewhere.
    searches : bool
        Whether ``elbo`` tries more starts of a row than a fit does.
    rounding : float
        The relative change of an answer for a row by the other rows.
    bounded : bool
        Whether each pass knows the bound.
    sampled : bool
        Whether a repeated row has more random draws than a row of weight 2.
    alike : bool
        Whether another entry has the same class. Tests of such an entry are slow tests.
    stream : callable
        Parameters with which a stream stands for a number of rows.
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
EXACT_IN_ONE_BATCH = {"n_components": 3, "max_iter": 4, "tol": 0.0, "random_state": 1}

ENTRIES = [
    *(
        Entry(
            TemperedLDA, {"learning_method": method}, QUICK, counts,
            still={"moves": (), "topic_word_prior": None}, full={"learning_method": "batch"},
            watched={"evaluate_every": 1, "perp_tol": 0.0},
            shown=("components_", "exp_dirichlet_component_"), learned=("variational", "local"),
            alike=method == "batch",
        )
        for method in ("online", "batch")
    ),
    *(
        Entry(
            MemoizedDPGMM, {"learning_method": method, "covariance_type": covariance_type},
            # One engine has births, but may have few components.
            EXACT | {"max_components": 4}
            | ({} if method == "memoized" else {"moves": ("merge", "delete")}), rows,
            full={"learning_method": "batch", "moves": ()},
            shown=("means_", "covariances_", "precisions_", "precisions_cholesky_", "weights_"),
            claimed=_claimed_by_weights, remembers=method != "online", alike=method != "batch",
        )
        for method, covariance_type in (
            ("memoized", "full"), ("batch", "spherical"), ("online", "diag"),
        )
    ),
    *(
        Entry(
            # With ten components, annealing and moves take a second on scikit-learn's data.
            AnnealedFactorialMixture,
            {"learning_method": method, "n_components": 4, "max_iter": 20}, EXACT, sums,
            still={"moves": (), "noise_variance": 0.3, "prior_variance": 4.0,
                   "activation_prior": 0.4},
            full={"learning_method": "batch", "moves": ()}, shown=("components_",),
            claimed=lambda estimator: estimator._fitted.stats.as_stats().arrays[-1][0],
            learned=("variational", "local"), annealed=None, goes_on=method == "batch",
            searches=method == "online", rounding=1e-9, alike=method == "online",
        )
        for method in ("batch", "online")
    ),
    Entry(
        CAVIGaussianMixture, {}, EXACT_IN_ONE_BATCH, rows, still={}, full={}, watched={},
        unwatched={}, stream=lambda n_rows: {},
        shown=("means_", "mean_variances_", "covariances_", "weights_"),
        claimed=lambda estimator: (1.0 / estimator.mean_variances_).sum(),
        learned=("variational", "local"), remembers=True,
    ),
    *(
        Entry(
            # scikit-learn's data are not binary. A hundred components of them would take long.
            StructuredBernoulliMixture,
            {"n_components": 9, "learning_method": method, "weight_concentration_prior_type": law,
             "max_iter": 60, "binarize": 0.5}, EXACT, bits,
            full={"moves": (), "batch_size": None}
            | ({} if method == "structured" else {"learning_method": "batch"}),
            shown=("means_", "weights_"), claimed=_claimed_by_weights,
            remembers=method == "memoized", bounded=method != "structured",
            alike=(method, law) != ("structured", "dirichlet_process"),
            unwatched={"evaluate_every": 1 if method == "structured" else 0},
        )
        for method, law in (
            ("structured", "dirichlet_process"), ("structured", "dirichlet_distribution"),
            ("memoized", "dirichlet_distribution"), ("online", "dirichlet_process"),
        )
    ),
    *(
        Entry(
            StructuredGaPNMF,
            {"local_step": "mean_field", "global_step": "mean_field", "learning_method": method,
             "n_components": 5, "max_iter": 30}, QUICK, counts,
            still={}, full={"learning_method": "batch"}, watched={"evaluate_every": 1, "tol": 0.0},
            shown=("components_", "weights_"),
            claimed=lambda estimator: estimator.posterior_.weights.eta[:, 0].sum(),
            rounding=1e-9,  # Few rows are summed one by one and many by matrix products.
            alike=method == "batch",
        )
        for method in ("online", "batch")
    ),
    *(
        Entry(
            StructuredLDA,
            {"local_step": local_step, "global_step": "ssvi-a", "learning_method": "online",
             "learning_offset": 64.0}, QUICK, counts,
            full={"learning_method": "batch"}, watched={"evaluate_every": 1, "perp_tol": 0.0},
            unwatched={"evaluate_every": 1, "perp_tol": 0.0},
            shown=("components_", "exp_dirichlet_component_"),
            learned=("variational", "local") if local_step == "mean_field" else (),
            annealed=LinearAnnealing(n_passes=4 / 3, replication=1.0),
            heated={"topic_word_prior": 0.02}, bounded=False, sampled=local_step == "gibbs",
            alike=local_step == "mean_field",
        )
        for local_step in ("gibbs", "mean_field")
    ),
    Entry(
        # Its engines are those of MemoizedDPGMM. Tables of several kinds have tests of their own.
        MemoizedDPMixture, {"components": [("real", "gaussian", slice(None))]},
        EXACT | {"max_components": 4, "moves": ("delete",)}, rows,
        full={"learning_method": "batch", "moves": ()}, shown=("weights_",),
        claimed=_claimed_by_weights, remembers=True,
    ),
    *(
        Entry(
            MemoizedHDP, {"learning_method": method, "n_polish": 0},
            EXACT
            | {"doc_topic_concentration": 0.5, "topic_word_prior": 0.1, "max_components": 4}
            | ({} if method == "memoized" else {"moves": ("merge", "delete")}), counts,
            full={"learning_method": "batch", "moves": ()},
            shown=("components_", "exp_dirichlet_component_", "topic_weights_"),
            remembers=method != "online", alike=method != "batch",
        )
        for method in ("memoized", "batch", "online")
    ),
]  # fmt: skip


# Classes and parameters of steps that no entry has.
OTHER_STEPS = [
    (StructuredLDA, {"local_step": "gibbs", "global_step": "ssvi"}),
    (StructuredLDA, {"local_step": "cvb0", "global_step": "ssvi"}),
    (StructuredLDA, {"local_step": "cvb0", "global_step": "map"}),
    (StructuredGaPNMF, {}),
    (StructuredGaPNMF, {"learning_method": "online"}),
    (StructuredGaPNMF, {"global_step": "mean_field"}),
    (StructuredGaPNMF, {"local_step": "mean_field"}),
]


# The first entry without births of each class. They are enough for laws that do not depend on an
# engine, such as the validation of parameters and the names of columns.
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
# They are enough for what all classes inherit from one.
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
every_stream_of_minibatches = _every(lambda entry: not entry.remembers)
every_estimator_whose_fits_make_minibatches = _every(
    lambda entry: not entry.remembers and entry.engine | entry.full != entry.full | entry.engine
)


def every_temperature(*temperatures):
    """Each entry with each temperature that it takes."""
    taken = [(entry, t) for entry in ENTRIES for t in temperatures if takes(entry, t)]
    return pytest.mark.parametrize("entry, temperature", taken, ids=str)


def takes(entry, temperature):
    """Whether an entry takes a temperature. Only some entries take learned temperatures."""
    return temperature not in ("variational", "local") or temperature in entry.learned


def every_pair(names, *axes, legal=lambda *values: True):
    """Cases in which every two values of different axes occur together."""
    return pytest.mark.parametrize(names, pairs(*axes, legal=legal), ids=_name)


def _name(value):
    if isinstance(value, tuple):
        return "-".join(map(_name, value))
    return getattr(value, "__name__", None) or str(value)


# scikit-learn's checks that depend on the engine or on a learned temperature. The engines of an
# estimator share the code that decides all other checks.
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
    """The fitted attributes of an estimator by their names. There are none before a fit."""
    shown = {}
    for name in dir(estimator):
        if name.endswith("_") and not name.startswith("_") and hasattr(estimator, name):
            value = getattr(estimator, name)
            # Later changes of the estimator do not change copies.
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
    """A ``with`` block ends in an error and leaves the fitted attributes as they were."""
    before = published(estimator)
    with pytest.raises(error, match=match) as caught:
        yield caught
    np.testing.assert_equal(published(estimator), before)


def refusal(make, X):
    """The message of the error of ``fit``, which ``partial_fit`` must have as well."""
    messages = set()
    for method in ("fit", "partial_fit"):
        with refused(estimator := make()) as caught:
            getattr(estimator, method)(X)
        messages.add(str(caught.value))
    (message,) = messages
    return message


def without_time(shown):
    """Fitted attributes without the seconds of the history."""
    history = shown.get("history_", {})
    timeless = {k: v for k, v in history.items() if k != "seconds"}
    return shown | ({"history_": timeless} if history else {})


def assert_same_fit(one, other, *, apart=()):
    """The fitted attributes are the same to the last bit, except for times and ``apart``."""
    one, other = without_time(published(one)), without_time(published(other))
    assert one.keys() == other.keys()
    for name in one.keys() - set(apart):
        np.testing.assert_equal(one[name], other[name], err_msg=name)


class StopAfter(Checkpoint):
    """Write checkpoints of a fit and interrupt it after a number of passes."""

    def __init__(self, path, n_passes):
        super().__init__(path)
        self.last = n_passes

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        super().on_fit_task_end(estimator, context, fitted_estimator=fitted_estimator)
        if self._n_passes == self.last:
            raise KeyboardInterrupt


class Interrupter:
    """Count the local steps of an entry's model, and raise ``error`` in step ``at``, from 1."""

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
        """Return a middle and the last local step of an action, as numbers from 1."""
        self.arm(None, None)
        act()
        return sorted({self.count // 2 + 1, self.count})
