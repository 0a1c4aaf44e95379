"""Every estimator takes scikit-learn's callbacks."""

import numpy as np
import pytest
from estimators._registry import (
    ENTRIES,
    SOME_CLASSES,
    assert_same_fit,
    every_class,
    every_estimator,
    every_pair,
    published,
    refused,
    some_classes,
    takes,
    without_time,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skvt
from skvt import load
from skvt.callbacks import Checkpoint
from skvt.components import Gaussian


class Spy:
    """A callback that notes its calls, and that raises or stops where a test asks for it."""

    def __init__(self, *, fail_at=None, error=RuntimeError, stop_after=None):
        self.fail_at, self.error, self.stop_after = fail_at, error, stop_after
        self.calls = []

    def _note(self, hook, context):
        self.calls.append((hook, context.task_name, context.task_id))
        if (hook, context.task_name) == self.fail_at:
            raise self.error("stop here")

    def setup(self, estimator, context):
        self._note("setup", context)

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name, context.task_id))

    def on_fit_task_begin(self, estimator, context):
        self._note("begin", context)

    def on_fit_task_end(self, estimator, context):
        self._note("end", context)
        return context.task_name == "pass" and context.task_id + 1 == self.stop_after

    def count(self, hook, task):
        return sum(call[:2] == (hook, task) for call in self.calls)


def own_score(estimator, X, y=None):
    return estimator.score(X)


def of_scikit_learn(name, **params):
    """A callback of scikit-learn, which has callbacks since 1.9."""
    return getattr(pytest.importorskip("sklearn.callback"), name)(**params)


def monitor_of_scores():
    # scikit-learn 1.9.1 fails on a scorer of a single value and on None.
    return of_scikit_learn("ScoringMonitor", scoring={"score": own_score})


class Collector(Spy):
    """A callback that keeps the estimator of each pass and its answers."""

    def __init__(self, entry):
        super().__init__()
        self.entry, self.fitted, self.then = entry, [], []

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        super().on_fit_task_end(estimator, context)
        if context.task_name == "pass":
            self.fitted.append(fitted_estimator)
            self.then.append(self.entry.answers(fitted_estimator, X))


@some_classes
@pytest.mark.parametrize("n_init", [1, 2])
def test_callbacks_are_called_for_the_fit_and_for_each_pass(entry, n_init):
    spy = Spy()
    entry.make(n_init=n_init).set_callbacks(spy).fit(entry.data())
    passes = [(hook, "pass", task) for task in range(4 * n_init) for hook in ("begin", "end")]
    first, *hooks, last = [(hook, "fit", 0) for hook in ("setup", "begin", "end", "teardown")]
    assert spy.calls == [first, hooks[0], *passes, hooks[1], last]


@some_classes
def test_callbacks_do_not_change_a_fit(entry):
    X = entry.data()
    watched = entry.make().set_callbacks(Spy(), monitor_of_scores(), Collector(entry)).fit(X)
    assert_same_fit(watched, entry.make().fit(X))


@every_pair("entry, y, n_init", SOME_CLASSES, [None, "target"], [1, 2])
def test_a_scoring_monitor_has_a_finite_score_for_each_pass_and_for_the_fit(entry, y, n_init):
    X = entry.data()
    monitor = monitor_of_scores()
    target = None if y is None else np.zeros(X.shape[0])
    estimator = entry.make(n_init=n_init).set_callbacks(monitor).fit(X, target)
    rows, final = monitor.get_logs().data, estimator.score(X)
    passes = [row for row in rows if row["task_name"] == "pass"]
    assert [row["task_id"] for row in passes] == list(range(4 * n_init))
    scores = np.array([row["score"] for row in passes])
    assert np.isfinite(scores).all()
    # The score after the last pass of the start that is kept is the score of the fit.
    best = int(np.argmax(estimator.restart_elbos_))
    assert scores[4 * best + 3] == pytest.approx(final, rel=1e-12)
    (whole,) = [row for row in rows if row["task_name"] == "fit"]
    assert whole["score"] == pytest.approx(final, rel=1e-12)


@every_class
def test_the_estimator_of_a_pass_answers_every_question_and_does_not_change(entry):
    X = entry.data()
    collector = Collector(entry)
    estimator = entry.make().set_callbacks(collector).fit(X)
    assert len(collector.fitted) == 4
    for fitted, then in zip(collector.fitted, collector.then, strict=True):
        np.testing.assert_equal(entry.answers(fitted, X), then)
        if entry.transforms:
            assert len(fitted.get_feature_names_out()) == then[0].shape[1]
        assert all(np.isfinite(answer).all() for answer in then)
    assert collector.then[0][-1] != collector.then[-1][-1]
    np.testing.assert_equal(collector.then[-1], entry.answers(estimator, X))
    # A further call of the estimator of a pass does not change the fit.
    before = published(estimator)
    collector.fitted[-1].partial_fit(entry.data(1))
    np.testing.assert_equal(published(estimator), before)


# Attributes that the estimator of a pass lacks, because they need all rows once more.
AT_THE_END = {"elbo_", "lower_bound_", "bound_", "restart_elbos_"} | {
    "hierarchy_", "hierarchy_criteria_", "labels_", "n_clusters_", "n_clusters_reason_",
    "clusterings_",
}  # fmt: skip
# Parameters with which an estimator learns its priors.
LEARNING = {
    skvt.TemperedLDA: {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
    skvt.StructuredLDA: {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
    skvt.MemoizedHDP: {"doc_topic_concentration": "auto", "topic_word_prior": "auto"},
    skvt.MemoizedDPGMM: {"mean_precision_prior": "auto", "weight_concentration_prior": "auto"},
    skvt.MemoizedDPMixture: {"components": [("real", Gaussian(mean_prior="auto"), [0, 1, 2])]},
    skvt.StructuredBernoulliMixture: {"feature_prior": "auto"},
}


@every_estimator
def test_the_estimator_of_a_pass_shows_all_that_a_fit_shows(entry, tmp_path):
    X, collector, path = entry.data(), Collector(entry), tmp_path / "fit.skvt"
    estimator = entry.make(**LEARNING.get(entry.cls, {}), warm_start=True).fit(entry.data(1))
    estimator.set_callbacks(collector, Checkpoint(path)).fit(X)
    shown = without_time(published(estimator))
    if entry.cls is skvt.CAVIGaussianMixture:
        del shown["posterior_"]["assignments"]
    for of_pass in (collector.fitted[-1], load(path)):
        of_pass = without_time(published(of_pass))
        assert of_pass.keys() == shown.keys() - AT_THE_END
        for name, value in of_pass.items():
            np.testing.assert_equal(value, shown[name], err_msg=name)


@pytest.mark.quick_cases("TemperedLDA", "CAVI", "MemoizedDPMixture")
@every_estimator
@pytest.mark.parametrize("stop_after", [1, 4])
def test_a_callback_stops_the_fit_after_the_pass_it_chooses(entry, stop_after):
    X = entry.data()
    # The first pass with moves would depend on max_iter.
    plain = {"temperature": None, **entry.still}
    estimator = entry.make(**plain).set_callbacks(Spy(stop_after=stop_after)).fit(X)
    assert estimator.n_iter_ == stop_after
    assert {len(column) for column in estimator.history_.values()} == {stop_after}
    assert not estimator.converged_
    short = entry.make(**plain, max_iter=stop_after).fit(X)
    assert_same_fit(estimator, short)


@every_estimator
def test_a_fit_stopped_while_hot_claims_no_more_data_than_it_has(entry):
    X = entry.data()
    stopped = entry.make().set_callbacks(Spy(stop_after=1)).fit(X)
    plain = entry.make(temperature=None, max_iter=1).fit(X)
    assert entry.claimed(stopped) <= entry.claimed(plain) * (1.0 + 1e-9)


@pytest.mark.quick_cases("annealed")
@every_pair(
    "entry, temperature, method", ENTRIES, [None, "annealed", "variational", "local"],
    ["partial_fit", "fit"], legal=lambda entry, temperature, method: takes(entry, temperature),
)  # fmt: skip
def test_a_fit_stopped_while_hot_goes_on_with_other_rows(entry, temperature, method):
    X, other = entry.data(), entry.data(1, n_rows=90)
    settings = {"temperature": temperature, "max_iter": 13, "warm_start": True, **entry.still}
    estimator = entry.make(**settings).set_callbacks(Spy(stop_after=1)).fit(X)
    hot = entry.claimed(estimator)
    estimator.set_callbacks()
    getattr(estimator, method)(other)
    cold = entry.make(**settings | {"temperature": None})
    if method == "fit":
        # The fit ends at T = 1 and stands for the new rows only. The weight that minibatches stand
        # for is random.
        assert estimator.history_["temperature"][-1] == 1.0
        exact = entry.remembers or entry.full.items() <= entry.engine.items()
        expected = entry.claimed(cold.fit(other))
        assert entry.claimed(estimator) == pytest.approx(expected, rel=1e-9 if exact else 0.15)
    else:
        # The steps of a stream are small and hot, so that its weight is between both.
        both = entry.claimed(cold.fit(np.concatenate([X, other])))
        assert hot < entry.claimed(estimator) < 1.05 * both
    assert np.isfinite(entry.globals(estimator)).all()
    assert np.isfinite(estimator.score(X))


@every_pair(
    "entry, fitted_before, fail_at, error", SOME_CLASSES, [False, True],
    [("setup", "fit"), ("begin", "fit"), ("begin", "pass"), ("end", "pass"), ("end", "fit")],
    [RuntimeError, KeyboardInterrupt],
)  # fmt: skip
def test_a_callback_that_fails_leaves_the_estimator_as_it_was(entry, fitted_before, fail_at, error):
    estimator = entry.make()
    if fitted_before:
        estimator.fit(entry.data())
    spy = Spy(fail_at=fail_at, error=error)
    estimator.set_callbacks(spy)
    with refused(estimator, error, match="stop here"):
        estimator.fit(entry.data(1))
    assert hasattr(estimator, entry.shown[0]) == fitted_before
    assert spy.count("teardown", "fit") == 1
    # The failure does not change the next fit.
    estimator.set_callbacks().fit(entry.data(1))
    assert_same_fit(estimator, entry.make().fit(entry.data(1)))


@every_class
def test_illegal_data_and_partial_fit_call_no_callback(entry):
    spy = Spy()
    with pytest.raises(ValueError, match="infinity"):
        entry.make().set_callbacks(spy).fit(np.full((4, 3), np.inf))
    entry.make().set_callbacks(spy).partial_fit(entry.data())
    assert spy.calls == []


@some_classes
def test_callbacks_reach_the_estimator_in_a_pipeline_in_a_search(entry, capsys):
    X, callbacks = entry.data(), [of_scikit_learn("ProgressBar"), monitor_of_scores()]
    pipeline = make_pipeline(FunctionTransformer(accept_sparse=True), entry.make())
    name = f"{entry.cls.__name__.lower()}__max_iter"
    search = GridSearchCV(pipeline, {name: [1, 2]}, cv=2).set_callbacks(*callbacks).fit(X)
    capsys.readouterr()
    assert_same_fit(
        search.best_estimator_[-1], entry.make(max_iter=search.best_params_[name]).fit(X)
    )


@every_class
def test_a_callback_that_stops_a_fit_stops_later_starts_too(entry):
    estimator = entry.make(n_init=3).set_callbacks(Spy(stop_after=2)).fit(entry.data())
    assert estimator.restart_elbos_.shape == (1,)
    assert estimator.n_iter_ == 2
