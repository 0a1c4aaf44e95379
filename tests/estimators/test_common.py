"""What every estimator must do, whatever its model."""

import copy
import pickle
import re
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from estimators._registry import (
    CLASSES,
    ENTRIES,
    OTHER_STEPS,
    Interrupter,
    assert_same_fit,
    counts,
    every_ascent,
    every_check_of_engines,
    every_class,
    every_class_of_topic_models,
    every_estimator,
    every_estimator_whose_fits_make_minibatches,
    every_estimator_without_sampling,
    every_kind_of_stream,
    every_pair,
    every_stream_of_minibatches,
    every_transforming_class,
    published,
    refused,
    some_classes,
    takes,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from skvt import StructuredBernoulliMixture
from skvt.components import Gaussian
from skvt.components.specs import GAUSSIAN_PRIORS
from skvt.temperature import ConstantTemperature, GeometricAnnealing, LinearAnnealing

SCIKIT_LEARN = tuple(map(int, sklearn.__version__.split(".")[:2]))

# scikit-learn runs these on its own estimators; `parametrize_with_checks` leaves them out.
MORE_CHECKS = [
    estimator_checks.check_param_validation,
    estimator_checks.check_dataframe_column_names_consistency,
    estimator_checks.check_inplace_ensure_writeable,
]
TRANSFORMER_CHECKS = [
    estimator_checks.check_set_output_transform,
    estimator_checks.check_set_output_transform_pandas,
    estimator_checks.check_set_output_transform_polars,
    estimator_checks.check_global_output_transform_pandas,
    estimator_checks.check_global_set_output_transform_polars,
    estimator_checks.check_transformer_get_feature_names_out,
    estimator_checks.check_transformer_get_feature_names_out_pandas,
    estimator_checks.check_get_feature_names_out_error,
]
WEIGHT_CHECKS = [
    estimator_checks.check_sample_weights_shape,
    estimator_checks.check_sample_weights_not_overwritten,
]
if hasattr(estimator_checks, "check_all_zero_sample_weights_error"):  # scikit-learn 1.9
    WEIGHT_CHECKS.append(estimator_checks.check_all_zero_sample_weights_error)


def _name_of_check(check):
    return check.__name__


# --------------------------------------------------------------------------- scikit-learn's
def _expected_failures(estimator):
    failures = {}
    if getattr(estimator, "local_step", None) == "gibbs":
        for kind in ("dense", "sparse"):
            why = "the sampler draws for a repeated row twice and for one of weight 2 once"
            failures[f"check_sample_weight_equivalence_on_{kind}_data"] = why
    if hasattr(estimator, "predict_proba") and estimator.__sklearn_tags__().input_tags.sparse:
        for container in ("array", "matrix"):
            why = "it takes whoever has predict_proba and sparse data for a classifier"
            failures[f"check_estimator_sparse_{container}"] = why
    return failures


def _failures_in_guide():
    """{name of the estimator: checks that fail} of the table in the guide."""
    page = Path(__file__).parents[2] / "doc/guide/from_scikit_learn.md"
    lines = re.findall(
        r"^\| `(\w+)` \| (`check_.*?) \|", page.read_text("utf-8"), flags=re.MULTILINE
    )
    return {name: set(re.findall(r"check_\w+", checks)) for name, checks in lines}


def test_the_guide_lists_the_checks_that_are_expected_to_fail():
    expected = {cls.__name__: set(_expected_failures(cls())) for cls in {e.cls for e in CLASSES}}
    assert _failures_in_guide() == {name: checks for name, checks in expected.items() if checks}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "cls", sorted({e.cls for e in CLASSES}, key=str), ids=lambda cls: cls.__name__
)
def test_the_checks_that_the_guide_lists_fail_and_no_others(cls):
    estimator, known = cls(), _failures_in_guide().get(cls.__name__, set())
    brief = {"max_iter": 4, "binarize": 0.0} | ({"moves": ()} if "DPM" in cls.__name__ else {})
    estimator.set_params(**{name: brief[name] for name in brief if hasattr(estimator, name)})
    outcomes = estimator_checks.check_estimator(estimator, on_fail=None, on_skip=None)
    assert {each["check_name"] for each in outcomes if each["status"] == "failed"} == known


def _brief(entry, **params):
    """Of the entry's engine and moves, with passes enough for scikit-learn's checks."""
    room = {name: entry.quick[name] for name in ("max_components", "moves") if name in entry.quick}
    return entry.cls(**(entry.engine | {"max_iter": 4} | room | params))


# Of the other classes, the test above has all checks, and the next one those of engines.
CHECKED = "TemperedLDA", "MemoizedDPGMM", "AnnealedF", "CAVI", "StructuredBernoulli"


@parametrize_with_checks(
    [_brief(entry) for entry in CLASSES if entry.cls.__name__.startswith(CHECKED)],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@every_check_of_engines
@pytest.mark.parametrize(
    "entry, temperature",
    [(entry, None) for entry in ENTRIES if not any(entry is one for one in CLASSES)]
    + [(entry, entry.learned[0]) for entry in CLASSES if entry.learned],
    ids=str,
)
def test_scikit_learn_check_of_engines(entry, temperature, check):
    check(entry.cls.__name__, _brief(entry, temperature=temperature))


@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
@every_class
@pytest.mark.parametrize("check", MORE_CHECKS, ids=_name_of_check)
def test_further_scikit_learn_check(entry, check):
    check(entry.cls.__name__, _brief(entry, **entry.still))


@pytest.mark.quick_cases("TemperedLDA", "Annealed")
@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
@every_transforming_class
@pytest.mark.parametrize("check", TRANSFORMER_CHECKS, ids=_name_of_check)
def test_further_scikit_learn_check_of_transformers(entry, check):
    check(entry.cls.__name__, _brief(entry, **entry.still))


@every_class
@pytest.mark.parametrize("check", WEIGHT_CHECKS, ids=_name_of_check)
def test_scikit_learn_weight_check(entry, check):
    check(entry.cls.__name__, _brief(entry))


@pytest.mark.parametrize(
    "entry, temperature",
    [(entry, temperature) for entry in CLASSES for temperature in entry.learned],
    ids=str,
)
def test_scikit_learn_check_that_weights_are_repetitions(entry, temperature):
    # (without a learned temperature it is one of the checks above)
    estimator = _brief(entry, temperature=temperature)
    estimator_checks.check_sample_weight_equivalence_on_dense_data(entry.cls.__name__, estimator)


# ---------------------------------------------------------------------------- sample weights
@every_estimator
def test_zero_weights_are_as_if_the_rows_were_not_there(entry):
    X = entry.data()
    weights = np.random.default_rng(0).integers(0, 3, X.shape[0]).astype(float)
    used = weights > 0
    assert not used.all()
    one = entry.make().fit(X, sample_weight=weights)
    other = entry.make().fit(X[used], sample_weight=weights[used])
    assert_same_fit(one, other, apart=["labels_"])
    if hasattr(one, "labels_"):  # of all rows
        np.testing.assert_array_equal(one.labels_[used], other.labels_)
    one = entry.make().partial_fit(X, sample_weight=weights)
    other = entry.make().partial_fit(X[used], sample_weight=weights[used])
    assert_same_fit(one, other, apart=["labels_"])
    if hasattr(one, "labels_"):
        np.testing.assert_array_equal(one.labels_[used], other.labels_)


@every_estimator_without_sampling
def test_weights_are_repetitions_across_chunks_of_a_full_pass(entry):
    # More rows than any internal chunk, so that the chunks differ between the two.
    X = np.concatenate([entry.data(seed) for seed in range(40)])
    weights = np.random.default_rng(1).integers(0, 4, X.shape[0])
    assert weights.sum() > 2000
    # Minibatches of weighted rows are other minibatches than those of their repetitions; and where
    # many rows start a fit, a random part of them does: both go on from the same stream.
    settings = {"temperature": "annealed", "max_iter": 3, "warm_start": True} | entry.full
    one, other = (entry.make(**settings).partial_fit(entry.data(seed=60)) for _ in range(2))
    one.fit(X, sample_weight=weights)
    other.fit(np.repeat(X, weights, axis=0))
    assert one.elbo_ == pytest.approx(other.elbo_, rel=1e-9)
    np.testing.assert_allclose(entry.globals(one), entry.globals(other), rtol=1e-7)
    np.testing.assert_allclose(one.history_["objective"], other.history_["objective"], rtol=1e-9)


@every_class
def test_illegal_weights_are_refused_and_change_nothing(entry):
    X = entry.data()
    n = X.shape[0]
    fitted = entry.make(max_iter=2).fit(X)
    for weights, message in (
        (np.zeros(n), "non-zero"),
        (-np.ones(n), "Negative values in data passed to `sample_weight`"),
        (np.full(n, np.nan), "sample_weight contains NaN"),
        (np.full(n, np.inf), "sample_weight contains infinity"),
        (np.ones(n + 1), r"sample_weight.shape"),
        (np.ones((n, 2)), r"1D array"),
    ):
        estimator = entry.make()
        for method in (estimator.fit, estimator.partial_fit):
            with refused(estimator, match=message):
                method(X, sample_weight=weights)
        with refused(fitted, match=message):
            fitted.score(X, sample_weight=weights)


@every_class
def test_weights_of_a_score_are_repetitions(entry):
    estimator, X = entry.make(max_iter=2).fit(entry.data()), entry.data(1)
    assert estimator.score(X, sample_weight=np.ones(X.shape[0])) == estimator.score(X)
    weights = np.random.default_rng(2).integers(0, 4, X.shape[0])
    assert (weights == 0).any()
    expected = estimator.score(np.repeat(X, weights, axis=0))
    assert expected != pytest.approx(estimator.score(X), rel=1e-6)
    assert estimator.score(X, sample_weight=weights) == pytest.approx(expected, rel=1e-9)


# ----------------------------------------------------------------------- parameters, copies
@every_class
def test_fit_leaves_parameters_and_policy_as_they_were(entry):
    policy = LinearAnnealing()
    estimator = entry.make(temperature=policy)
    before = estimator.get_params(deep=True)
    estimator.fit(entry.data()).partial_fit(entry.data(1))
    assert estimator.get_params(deep=True) == before
    assert vars(policy) == vars(LinearAnnealing())


@some_classes
def test_estimators_that_hold_one_policy_do_not_disturb_each_other(entry):
    policy = LinearAnnealing(2.0)
    one, other = entry.make(temperature=policy), entry.make(temperature=policy, random_state=1)
    one.partial_fit(entry.data()).partial_fit(entry.data())
    other.fit(entry.data(1))
    one.partial_fit(entry.data())
    alone = entry.make(temperature=LinearAnnealing(2.0))
    for _ in range(3):
        alone.partial_fit(entry.data())
    assert_same_fit(one, alone)


@every_estimator
def test_a_copy_predicts_alike_and_goes_on_alike(entry):
    X = entry.data()
    original = entry.make().fit(X)
    before, answers = published(original), entry.answers(original, X)
    twins = [pickle.loads(pickle.dumps(original)), copy.deepcopy(original)]
    for twin in twins:
        assert_same_fit(original, twin)
        np.testing.assert_equal(answers, entry.answers(twin, X))
        twin.partial_fit(entry.data(1))
        np.testing.assert_equal(published(original), before)
    original.partial_fit(entry.data(1))
    for twin in twins:
        assert_same_fit(original, twin)


@every_estimator
def test_a_stream_survives_a_pickle_in_its_hot_phase(entry):
    chunks = [entry.data(seed) for seed in range(4)]
    through = entry.make(temperature=GeometricAnnealing(2.0))
    for chunk in chunks:
        through.partial_fit(chunk)
    halted = entry.make(temperature=GeometricAnnealing(2.0))
    for chunk in chunks:
        halted = pickle.loads(pickle.dumps(halted.partial_fit(chunk)))
    assert_same_fit(through, halted)


# ---------------------------------------------------------------------------------- searches
@pytest.mark.quick_cases("TemperedLDA", "CAVI", "Annealed")
@every_class
def test_a_search_over_temperatures_refits_the_best(entry):
    X = entry.data()
    temperatures = [None, ConstantTemperature(1.2), "annealed"]
    if entry.annealed is not None:
        temperatures.append(entry.annealed)
    search = GridSearchCV(entry.make(**entry.heated), {"temperature": temperatures}, cv=2).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    # The name stands for a policy, and another temperature is another model.
    assert scores[2] == scores[-1]
    assert len(set(scores)) == 3
    best = search.best_params_["temperature"]
    again = entry.make(temperature=best, **entry.heated).fit(X)
    assert_same_fit(search.best_estimator_, again)


def priors_given(entry):
    """Parameters under which no prior of Gaussians is learned."""
    parameters = entry.make().get_params()
    if "components" in parameters:
        gaussian = Gaussian(**dict.fromkeys(GAUSSIAN_PRIORS))
        return {"components": [("real", gaussian, slice(None))]}
    return dict.fromkeys(set(GAUSSIAN_PRIORS) & set(parameters))


@some_classes
def test_a_search_reaches_the_parameters_of_the_policy(entry):
    X = entry.data()
    grid = {"temperature__initial_temperature": [1.0, 1.5, 4.0]}
    policy = LinearAnnealing(replication=1.0)
    # (moves wait until a schedule has ended)
    # (nor are priors learned before it has)
    given = priors_given(entry)
    search = GridSearchCV(entry.make(temperature=policy, **entry.still, **given), grid, cv=2).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3
    plain = GridSearchCV(entry.make(**entry.still, **given), {"temperature": [None]}, cv=2).fit(X)
    # Annealing from T = 1 is no annealing.
    assert scores[0] == plain.cv_results_["mean_test_score"][0]


@some_classes
def test_weights_are_routed_through_a_search(entry):
    X = entry.data()
    weights = np.random.default_rng(0).uniform(0.5, 2.0, X.shape[0])
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = entry.make().set_fit_request(sample_weight=True)
        search = GridSearchCV(estimator, {"max_iter": [4]}, cv=2).fit(X, sample_weight=weights)
    assert_same_fit(search.best_estimator_, entry.make().fit(X, sample_weight=weights))


@some_classes
def test_a_search_over_a_pipeline_weighs_fits_and_scores(entry):
    X = entry.data()
    weights = np.random.default_rng(0).uniform(0.5, 2.0, X.shape[0])
    folds = list(KFold(2).split(X))
    scores = [
        entry.make().fit(X[train], sample_weight=weights[train])
        .score(X[test], sample_weight=weights[test])
        for train, test in folds
    ]  # fmt: skip
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = entry.make().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(FunctionTransformer(accept_sparse=True), estimator)
        if SCIKIT_LEARN < (1, 9):  # there, pipelines have requests of their own
            pipeline = pipeline.set_score_request(sample_weight=True)
        name = f"{entry.cls.__name__.lower()}__max_iter"
        grid = {name: [entry.make().max_iter]}
        search = GridSearchCV(pipeline, grid, cv=folds).fit(X, sample_weight=weights)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(scores), rel=1e-12)


@every_class_of_topic_models
def test_a_pipeline_from_text_to_components(entry):
    texts = ["red green blue", "blue sea sea", "green grass", "red sea blue", "grass red"] * 4
    pipeline = make_pipeline(CountVectorizer(), entry.make()).fit(texts)
    assert pipeline.transform(texts).shape == (20, 3)
    assert np.isfinite(pipeline.score(texts))
    prefix = entry.cls.__name__.lower()
    assert list(pipeline.get_feature_names_out()) == [f"{prefix}{k}" for k in range(3)]
    by_hand = entry.make().fit(CountVectorizer().fit_transform(texts))
    assert_same_fit(pipeline[-1], by_hand)
    search = GridSearchCV(
        pipeline, {f"{prefix}__temperature": [None, ConstantTemperature(2.0)]}, cv=2
    ).fit(texts)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# ------------------------------------------------------------------------- names and outputs
@pytest.mark.quick_cases("pandas-TemperedLDA", "polars-CAVI", "polars-Annealed")
@every_class
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_names_of_columns_are_kept(entry, frame):
    X = entry.data()
    names = [f"word{v}" for v in range(X.shape[1])]
    table = frame(dict(zip(names, X.T, strict=True)))
    estimator = entry.make().fit(table)
    assert list(estimator.feature_names_in_) == names
    plain = entry.make().fit(X)
    np.testing.assert_equal(entry.answers(estimator, table), entry.answers(plain, X))


@every_transforming_class
def test_a_parameter_set_after_fit_does_not_change_the_names_of_the_outputs(entry):
    X = entry.data()
    estimator = entry.make().fit(X).set_params(n_components=5)
    assert len(estimator.get_feature_names_out()) == estimator.transform(X).shape[1] == 3
    assert estimator.set_output(transform="pandas").transform(X).shape == (40, 3)


# ----------------------------------------------------------------------------- reproducibility
@every_estimator
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_seed_decides_everything(entry, method):
    X = entry.data()
    run = [getattr(entry.make(random_state=seed), method)(X) for seed in (3, 3, 4)]
    assert_same_fit(run[0], run[1])
    assert not np.array_equal(entry.globals(run[0]), entry.globals(run[2]))


@every_estimator
def test_the_number_of_jobs_changes_no_bit(entry):
    # more rows than a chunk has
    X = np.concatenate([entry.data(seed) for seed in range(40)])
    settings = {"max_iter": 2} | entry.full
    one, three = (entry.make(n_jobs=n, **settings).fit(X) for n in (1, 3))
    assert_same_fit(one, three)
    np.testing.assert_equal(entry.answers(one, X), entry.answers(three, X))


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "cls, steps, dtype",
    [
        (*step, dtype)
        for step, dtype in zip(OTHER_STEPS, cycle(["float64", "float32"]), strict=False)
    ],
    ids=str,
)
def test_jobs_containers_pickles_and_company_change_no_bit_of_other_steps(cls, steps, dtype):
    X = np.concatenate([counts(seed) for seed in range(20)]).astype(dtype)
    settings = {"n_components": 3, "max_iter": 4, "batch_size": 600, "random_state": 0} | steps
    one = cls(**settings).fit(X)
    for other in (cls(**settings, n_jobs=3).fit(X), cls(**settings).fit(sp.csr_array(X))):
        assert_same_fit(one, other)
    assert one.components_.dtype == one.transform(X).dtype == dtype
    np.testing.assert_allclose(one.transform(X[17:18]), one.transform(X)[17:18], rtol=1e-4)
    twin = pickle.loads(pickle.dumps(one))
    assert_same_fit(one.partial_fit(X[:30]), twin.partial_fit(X[:30]))


@pytest.mark.parametrize(
    "entry, temperature",
    [(e, t) for e in CLASSES for t in ("variational", "local") if not takes(e, t)],
    ids=str,
)
def test_a_learned_temperature_without_a_normaliser_is_refused_with_a_remedy(entry, temperature):
    estimator = entry.make(temperature=temperature)
    for method in (estimator.fit, estimator.partial_fit):
        with refused(estimator, match=r"does not have. Use LinearAnnealing\(\) instead"):
            method(entry.data())


@every_class
def test_a_random_state_object_is_drawn_from(entry):
    X = entry.data()
    shared = np.random.RandomState(3)
    estimator = entry.make(random_state=shared)
    first = entry.globals(estimator.fit(X)).copy()
    assert not np.array_equal(entry.globals(estimator.fit(X)), first)
    again = entry.make(random_state=np.random.RandomState(3)).fit(X)
    np.testing.assert_array_equal(entry.globals(again), first)


@every_class
def test_without_a_seed_fits_differ(entry):
    X = entry.data()
    # (moves may lead both to the same place)
    one, other = (entry.make(random_state=None, **entry.still).fit(X) for _ in range(2))
    assert not np.array_equal(entry.globals(one), entry.globals(other))


@every_class
def test_global_random_state_is_left_alone_by_a_seeded_fit(entry):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    entry.make().fit(entry.data())
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


# ------------------------------------------------------------------------ what a fit publishes
@pytest.mark.quick_cases("TemperedLDA", "MemoizedDPMixture", "CAVI", "StructuredBernoulli")
@every_estimator
@pytest.mark.parametrize("temperature", [None, "annealed"])
def test_history_is_a_table_with_a_row_for_each_pass(entry, temperature):
    estimator = entry.make(temperature=temperature, **entry.unwatched).fit(entry.data())
    table = pd.DataFrame(estimator.history_)
    assert set(table.columns) == {
        "n_iter", "elbo", "objective", "temperature", "learning_rate", "n_components", "seconds",
    }  # fmt: skip
    assert list(table["n_iter"]) == [1, 2, 3, 4]
    assert len(table) == estimator.n_iter_ == estimator.max_iter
    assert np.isfinite(table.to_numpy(dtype=float)).all()
    assert (table["temperature"] >= 1.0).all()
    assert table["learning_rate"].between(0.0, 1.0).all()
    assert (table["seconds"] > 0.0).all() and table["seconds"].is_monotonic_increasing
    # At T = 1 the tempered bound is the bound.
    cold = table["temperature"] == 1.0
    assert cold.any()
    if temperature is None and entry.bounded:
        np.testing.assert_array_equal(table["objective"], table["elbo"])


@pytest.mark.quick_cases("float64")
@every_pair("entry, temperature, dtype", ENTRIES, [None, "annealed"], [np.float32, np.float64])
def test_elbo_of_the_training_data_is_the_published_one(entry, temperature, dtype):
    X = entry.data().astype(dtype)
    estimator = entry.make(temperature=temperature).fit(X)
    assert isinstance(estimator.elbo_, float)
    if entry.remembers:
        # that of each batch as it was last seen; at the end of all passes they are the same
        assert estimator.elbo(X) >= estimator.elbo_ - 1e-6 * abs(estimator.elbo_)
        settings = {"temperature": temperature, "max_iter": 300, "tol": 1e-13} | entry.still
        estimator = entry.make(**settings).fit(X)
        rounding = 1e-10 if dtype is np.float64 else 1e-6
        assert estimator.elbo(X) == pytest.approx(estimator.elbo_, rel=rounding)
    elif entry.searches:
        assert estimator.elbo(X) >= estimator.elbo_ - 1e-6 * abs(estimator.elbo_)
    elif not entry.goes_on:
        assert estimator.elbo(X) == pytest.approx(estimator.elbo_, rel=1e-12)
    # Rows only add to the energy and entropy of each; the globals' divergence is counted once.
    assert estimator.elbo(X) < estimator.elbo(X[:20]) < 0.0


@every_estimator
def test_of_several_starts_the_best_is_kept_and_all_are_told(entry):
    X = entry.data()
    estimator = entry.make(n_init=4, **entry.still).fit(X)
    assert estimator.restart_elbos_.shape == (4,)
    assert len(set(estimator.restart_elbos_)) == 4
    assert estimator.elbo_ == estimator.restart_elbos_.max()
    if not (entry.remembers or entry.goes_on or entry.searches):
        assert estimator.elbo(X) == pytest.approx(estimator.elbo_, rel=1e-12)
    assert len(estimator.history_["elbo"]) == estimator.n_iter_ == 4
    single = entry.make(**entry.still).fit(X)
    # The first start is that of a single one.
    assert single.restart_elbos_[0] == estimator.restart_elbos_[0]


@every_estimator
def test_a_finer_evaluation_does_not_change_the_fit(entry):
    X = entry.data()
    plain = entry.make().fit(X)
    watched = entry.make(**entry.watched).fit(X)
    np.testing.assert_array_equal(entry.globals(plain), entry.globals(watched))
    assert watched.history_["elbo"][-1] == pytest.approx(watched.elbo_, rel=1e-12)


@pytest.mark.quick_cases("TemperedLDA", "MemoizedDP", "Annealed", "CAVI", "Bernoulli")
@every_estimator
def test_single_precision_stays_single(entry):
    X = entry.data().astype(np.float32)
    # One number for each row and component; scores and densities are double in any case.
    questions = [name for name in entry.questions if name in ("transform", "predict_proba")]

    def assert_precision(estimator, dtype):
        for name in entry.shown:
            assert getattr(estimator, name).dtype == dtype, name
        for question in questions:
            assert getattr(estimator, question)(X).dtype == dtype, question

    assert questions
    estimator = entry.make().fit(X)
    assert_precision(estimator, np.float32)
    assert_precision(estimator.partial_fit(X), np.float32)
    # and stays so when the data change to double
    assert_precision(estimator.partial_fit(X.astype(np.float64)), np.float32)
    assert_precision(entry.make().fit(X.astype(np.float64)), np.float64)


# ------------------------------------------------------------------------- one row, many rows
@every_estimator
def test_questions_treat_each_row_on_its_own(entry):
    X = entry.data()
    estimator = entry.make().fit(X)
    for question in entry.questions:
        ask, exact = getattr(estimator, question), question == "transform"
        together = ask(X)
        np.testing.assert_array_equal(ask(X), together)
        if np.ndim(together) == 0:
            # a matrix product of one row rounds otherwise than one of many
            np.testing.assert_allclose(ask(X[::-1]), together, rtol=1e-12)
            continue
        rounding = {"rtol": entry.rounding if exact else 1e-9, "atol": 0.0 if exact else 1e-15}
        one_by_one = np.concatenate([ask(row[None]) for row in X])
        np.testing.assert_allclose(one_by_one, together, **rounding)
        np.testing.assert_allclose(ask(X[::-1]), together[::-1], **rounding)
    if entry.transforms:
        np.testing.assert_array_equal(estimator.fit_transform(X), estimator.transform(X))


# ---------------------------------------------------------------------- streams and warm starts
@every_class
def test_before_fit_every_question_is_refused_and_a_stream_can_begin(entry):
    X = entry.data()
    estimator = entry.make()
    for method in entry.questions:
        with pytest.raises(NotFittedError):
            getattr(estimator, method)(X)
    assert published(estimator) == {}
    estimator.partial_fit(X)
    assert all(np.isfinite(answer).all() for answer in entry.answers(estimator, X))


# What has an entry for each call of partial_fit.
BY_CALL = ("history_", "lower_bounds_", "n_iter_", "move_log_", "labels_")


@every_stream_of_minibatches
def test_a_stream_cut_at_minibatches_is_the_same_stream(entry):
    X = entry.data()
    # The first call may choose priors and starting values by its rows.
    settings = {"batch_size": 8, "total_samples": 40}
    at_once, in_pieces = (entry.make(**settings).partial_fit(X[:8]) for _ in range(2))
    at_once.partial_fit(X[8:])
    for start in range(8, 40, 8):
        in_pieces.partial_fit(X[start : start + 8])
    # but for what is counted in calls
    assert_same_fit(at_once, in_pieces, apart=BY_CALL)
    assert at_once.n_batch_iter_ == 5
    assert (at_once.n_iter_, in_pieces.n_iter_) == (2, 5)


@pytest.mark.quick_cases("MemoizedDPGMM", "MemoizedHDP", "StructuredBernoulli")
@every_kind_of_stream
def test_a_caller_may_use_its_arrays_again_after_each_call(entry):
    births = {"moves": ("birth",)} if "max_components" in entry.make().get_params() else {}
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 40)
    containers = [np.array, sp.csr_array] if entry.takes.sparse else [np.array]
    for container in containers:
        kept, reused = (entry.make(**births) for _ in range(2))
        for part in np.split(np.arange(40), [8, 16, 24]):
            X, of_rows = container(entry.data()[part]), weights[part]
            kept.partial_fit(X, sample_weight=of_rows)
            buffer, of_buffer = X.copy(), of_rows.copy()
            reused.partial_fit(buffer, sample_weight=of_buffer)
            (buffer.data if sp.issparse(buffer) else buffer)[...] = 1.0
            of_buffer[:] = 7.0
        assert_same_fit(kept, reused)


@every_class
def test_a_stream_may_change_its_container(entry):
    X = entry.data()
    sparse = entry.takes.sparse and entry.cls is not StructuredBernoulliMixture
    one, other = entry.make(), entry.make()
    one.partial_fit(X).partial_fit(X)
    other.partial_fit(X).partial_fit(sp.csr_array(X) if sparse else X.tolist())
    assert_same_fit(one, other)


@pytest.mark.quick_cases("TemperedLDA", "MemoizedDPGMM", "StructuredGaPNMF")
@every_kind_of_stream
def test_a_stream_over_several_passes_approaches_fit(entry):
    X = entry.data(n_rows=300)
    train, test = X[:200], X[200:]
    rng = np.random.default_rng(0)
    stream = entry.make(**entry.stream(200), temperature=None)
    again = {"batch_id": 0} if entry.remembers else {}
    scores = []
    for _ in range(20):
        rows = rng.permutation(200)
        stream.partial_fit(train[rows], **again)
        scores += [stream.score(test)] if not scores else []
    scores.append(stream.score(test))
    fitted = entry.make(max_iter=10, temperature=None).fit(train)
    # (a mixture of few components is found in the first call)
    assert scores[-1] > scores[0] or not entry.transforms
    assert scores[-1] == pytest.approx(fitted.score(test), abs=0.05)


@every_estimator
def test_partial_fit_goes_on_from_fit(entry):
    X = entry.data()
    estimator = entry.make().fit(X)
    before = published(estimator)
    estimator.partial_fit(entry.data(1))
    assert estimator.n_batch_iter_ == before["n_batch_iter_"] + (1 if entry.remembers else 3)
    # A step moves the fit; it does not start anew.
    more = entry.data(1)
    fresh = entry.make().partial_fit(more)
    assert not np.array_equal(entry.globals(estimator), before[entry.shown[0]])
    assert fresh.elbo(X) < estimator.elbo(X)
    assert entry.make().fit(X).elbo(more) < estimator.elbo(more)


@pytest.mark.filterwarnings("ignore:.*rows have no words")
@every_estimator
def test_a_second_fit_forgets_the_first(entry):
    estimator = entry.make().fit(entry.data(1)).partial_fit(entry.data(2)).fit(entry.data())
    assert_same_fit(estimator, entry.make().fit(entry.data()))
    narrow = entry.data()[:, :2]
    assert_same_fit(estimator.fit(narrow), entry.make().fit(narrow))


@every_estimator
def test_a_warm_start_goes_on(entry):
    X = entry.data()
    warm = entry.make(warm_start=True, temperature=None, **entry.still).fit(X)
    first = published(warm)
    warm.fit(X)
    assert warm.n_batch_iter_ == 2 * first["n_batch_iter_"]
    # (a structured step does not raise the bound, but on average)
    assert warm.elbo_ > first["elbo_"] or not entry.bounded
    assert warm.n_iter_ == len(warm.history_["elbo"]) == 2 * first["n_iter_"]
    # A fresh estimator with warm_start has nothing to go on from.
    assert_same_fit(entry.make(warm_start=True).fit(X), entry.make().fit(X))


@pytest.mark.quick_cases("MemoizedHDP", "MemoizedDPMixture")
@every_ascent
def test_a_warm_start_on_the_same_rows_never_lowers_the_bound(entry):
    settings = {"temperature": None, "warm_start": True, "tol": 0.0, "n_components": 4}
    if "moves" in entry.make().get_params():
        settings["moves"] = ()
    for seed in range(2):
        X, warm = entry.data(seed, n_rows=60), entry.make(**settings, max_iter=15)
        before = warm.fit(X).elbo_
        bounds = warm.fit(X).history_["elbo"][-15:]
        assert min(*bounds, warm.elbo_) > before - 1e-8 * abs(before)


@every_estimator_whose_fits_make_minibatches
def test_a_warm_start_of_a_hot_stream_is_the_stream_gone_on(entry):
    # A pass of one minibatch: `fit` and `partial_fit` make the same step.
    X = entry.data()
    settings = {"batch_size": 40, "max_iter": 1, "warm_start": True, "total_samples": 40}
    settings["temperature"] = LinearAnnealing(n_passes=6.0)
    settings["learning_offset"] = 64.0  # topic models tie the steps of a fit to its passes
    settings |= priors_given(entry)  # (priors are learned after other steps in a fit)
    one, other = (entry.make(**settings).partial_fit(X) for _ in range(2))
    one.fit(X)
    other.partial_fit(X)
    np.testing.assert_allclose(entry.globals(one), entry.globals(other), rtol=1e-10)
    assert one.temperature_ == other.temperature_ == 1.375


@pytest.mark.parametrize(
    "entry, temperature",
    [
        (entry, temperature)
        for entry in ENTRIES
        for temperature in ("annealed", "variational")
        if takes(entry, temperature) and not entry.remembers
    ],
    ids=str,
)
def test_a_stream_in_its_hot_phase_claims_no_more_data_than_it_has_met(entry, temperature):
    X = entry.data(n_rows=200)
    # full steps: the statistics are those of the last minibatch, for all rows
    settings = {"learning_decay": 0.0, "batch_size": 200}
    hot = entry.make(temperature=temperature, **settings).partial_fit(X)
    plain = entry.make(temperature=None, **settings).partial_fit(X)
    assert entry.claimed(hot) <= entry.claimed(plain) * (1.0 + 1e-9)


@every_class
def test_a_warm_start_with_other_columns_is_refused_and_changes_nothing(entry):
    X = entry.data()
    warm = entry.make(warm_start=True).fit(X)
    with refused(warm, match=rf"X has 2 features, but .* expecting {X.shape[1]}"):
        warm.fit(X[:, :2])


@every_estimator
def test_a_warm_start_never_ignores_a_changed_number_of_components(entry):
    X = entry.data()
    warm = entry.make(warm_start=True).fit(X).set_params(n_components=5)
    try:
        warm.fit(X)
    except ValueError as error:
        assert "n_components" in str(error) and "warm_start=False" in str(error)
    else:
        assert len(entry.globals(warm)) == 5


# --------------------------------------------------------------------------- all or nothing
CALLS = {
    "fit": ("new", "fit"), "a second fit": ("fitted", "fit"),
    "a warm start": ("fitted", "warm fit"), "the first call of a stream": ("new", "partial_fit"),
    "a stream after a fit": ("fitted", "partial_fit"), "a stream": ("streamed", "partial_fit"),
    "a warm start after a stream": ("streamed", "warm fit"),
}  # fmt: skip


@pytest.mark.quick_cases("TemperedLDA", "CAVI")
@every_pair(
    "entry, call, temperature, error", ENTRIES, list(CALLS), ["annealed", "variational"],
    [KeyboardInterrupt, RuntimeError],
    legal=lambda entry, call, temperature, error: takes(entry, temperature),
)  # fmt: skip
def test_a_failure_in_between_leaves_the_estimator_as_it_was(
    entry, monkeypatch, call, temperature, error
):
    history, method = CALLS[call]
    X, more = entry.data(), entry.data(1)

    # (of births, another test fails in between)
    moves = {"moves": ("merge", "delete")} if entry.has_births else {}

    def start():
        estimator = entry.make(warm_start=method == "warm fit", temperature=temperature, **moves)
        if history != "new":
            getattr(estimator, {"fitted": "fit", "streamed": "partial_fit"}[history])(X)
        return estimator

    def act(estimator):
        return getattr(estimator, method.split()[-1])(more)

    interrupter = Interrupter(monkeypatch, entry)
    whole = start()
    for point in interrupter.points_of_failure(lambda: act(whole)):
        interrupter.arm(None, None)
        estimator = start()
        before = published(estimator)
        interrupter.arm(point, error)
        with pytest.raises(error):
            act(estimator)
        interrupter.arm(None, None)
        np.testing.assert_equal(published(estimator), before)
        # Nor is anything different that does not show: it goes on as if nothing had happened.
        assert_same_fit(act(estimator), whole)


@every_class
def test_what_an_estimator_shows_cannot_be_used_to_change_it(entry):
    X = entry.data()
    estimator = entry.make().fit(X)
    before = published(estimator)
    for name in entry.shown:
        shown = getattr(estimator, name)
        if shown.flags.writeable:
            shown[...] = 7.0
    np.testing.assert_equal(published(estimator), before)


@every_estimator
def test_data_are_never_written_to(entry):
    X = entry.data()
    estimator = entry.make()
    containers = [X.copy()]
    if entry.takes.sparse:
        containers += [sp.csr_array(X), sp.csc_array(X)]
    for method, data in product(("fit", "partial_fit", *entry.questions), containers):
        kept = data.copy()
        getattr(estimator, method)(data)
        difference = data != kept
        assert difference.sum() == 0
