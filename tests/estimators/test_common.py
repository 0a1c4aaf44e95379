"""What every estimator does, whatever its model."""

import copy
import pickle
import re
from functools import partial
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
    refusal,
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

from skvt import StructuredBernoulliMixture, StructuredLDA
from skvt.components import Gaussian
from skvt.components.specs import GAUSSIAN_PRIORS
from skvt.temperature import ConstantTemperature, GeometricAnnealing, LinearAnnealing

SCIKIT_LEARN = tuple(map(int, sklearn.__version__.split(".")[:2]))

# scikit-learn runs these checks on its own estimators. `parametrize_with_checks` leaves them out.
MORE_CHECKS = [
    estimator_checks.check_param_validation, estimator_checks.check_inplace_ensure_writeable,
    estimator_checks.check_dataframe_column_names_consistency,
]  # fmt: skip
TRANSFORMER_CHECKS = [
    getattr(estimator_checks, f"check_{name}") for name in (
        "set_output_transform", "set_output_transform_pandas", "set_output_transform_polars",
        "global_output_transform_pandas", "global_set_output_transform_polars",
        "transformer_get_feature_names_out", "transformer_get_feature_names_out_pandas",
        "get_feature_names_out_error",
    )
]  # fmt: skip


# --------------------------------------------------------------------- checks of scikit-learn
def _expected_failures(estimator):
    failures = {}
    if getattr(estimator, "local_step", None) == "gibbs":
        for kind in ("dense", "sparse"):
            why = "the sampler draws for a repeated row twice and for one of weight 2 once"
            failures[f"check_sample_weight_equivalence_on_{kind}_data"] = why
    if hasattr(estimator, "predict_proba") and estimator.__sklearn_tags__().input_tags.sparse:
        for container in ("array", "matrix"):
            why = "the check takes whatever has predict_proba and sparse data for a classifier"
            failures[f"check_estimator_sparse_{container}"] = why
    return failures


def _failures_in_guide():
    """The table of the guide, which has the checks that fail for each name of an estimator."""
    page = Path(__file__).parents[2] / "doc/guide/from_scikit_learn.md"
    lines = re.findall(
        r"^\| `(\w+)` \| (`check_.*?) \|", page.read_text("utf-8"), flags=re.MULTILINE
    )
    return {name: set(re.findall(r"check_\w+", checks)) for name, checks in lines}


def test_the_guide_lists_the_checks_that_are_expected_to_fail():
    expected = {e.cls.__name__: set(_expected_failures(e.cls())) for e in CLASSES}
    assert _failures_in_guide() == {name: checks for name, checks in expected.items() if checks}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@every_class
def test_only_the_checks_that_the_guide_lists_fail(entry):
    name, estimator = entry.cls.__name__, entry.cls()
    brief = {"max_iter": 4, "binarize": 0.0} | ({"moves": ()} if "DPM" in name else {})
    estimator.set_params(**{name: brief[name] for name in brief if hasattr(estimator, name)})
    outcomes = estimator_checks.check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {each["check_name"] for each in outcomes if each["status"] == "failed"}
    assert failed == _failures_in_guide().get(name, set())


def _brief(entry, **params):
    """An estimator with the entry's engine and moves and with few passes."""
    room = {name: entry.quick[name] for name in ("max_components", "moves") if name in entry.quick}
    return entry.cls(**(entry.engine | {"max_iter": 4} | room | params))


# The test above runs all checks of the other classes too. It is slow.
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


@pytest.mark.quick_cases("TemperedLDA", "Annealed", "validation", "consistency", "writeable")
@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
@pytest.mark.parametrize(
    "entry, check",
    [(e, check) for e in CLASSES for check in MORE_CHECKS + TRANSFORMER_CHECKS * e.transforms],
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
def test_further_scikit_learn_check(entry, check):
    check(entry.cls.__name__, _brief(entry, **entry.still))


@every_class
def test_scikit_learn_check_that_weights_are_repetitions_at_learned_temperatures(entry):
    for temperature in entry.learned:
        estimator, name = _brief(entry, temperature=temperature), entry.cls.__name__
        estimator_checks.check_sample_weight_equivalence_on_dense_data(name, estimator)


# ---------------------------------------------------------------------------- sample weights
@every_estimator
def test_rows_of_weight_zero_do_not_change_a_fit(entry):
    X = entry.data()
    weights = np.random.default_rng(0).integers(0, 3, X.shape[0]).astype(float)
    used = weights > 0
    assert not used.all()
    for method in ("fit", "partial_fit"):
        one, other = entry.make(), entry.make()
        getattr(one, method)(X, sample_weight=weights)
        getattr(other, method)(X[used], sample_weight=weights[used])
        assert_same_fit(one, other, apart=["labels_"])
        if hasattr(one, "labels_"):  # Rows of weight 0 have labels too.
            np.testing.assert_array_equal(one.labels_[used], other.labels_)


@every_estimator_without_sampling
def test_weights_are_repetitions_across_chunks_of_a_full_pass(entry):
    # There are more rows than in any internal chunk, so that the chunks of the two fits differ.
    X = np.concatenate([entry.data(seed) for seed in range(40)])
    weights = np.random.default_rng(1).integers(0, 4, X.shape[0])
    assert weights.sum() > 2000
    # Minibatches of weighted rows differ from those of the repeated rows, and a random part of many
    # rows starts a fit. Both fits therefore go on from the same stream, with full passes.
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
        (np.zeros(n), "non-zero"), (np.ones((n, 2)), "1D array"),
        (-np.ones(n), "Negative values in data passed to `sample_weight`"),
        (np.full(n, np.nan), "sample_weight contains NaN"),
        (np.full(n, np.inf), "sample_weight contains infinity"),
        (np.ones(n + 1), r"sample_weight.shape"),
    ):  # fmt: skip
        for method in ("fit", "partial_fit", "score"):
            estimator = fitted if method == "score" else entry.make()
            with refused(estimator, match=message):
                getattr(estimator, method)(X, sample_weight=weights)


@every_class
def test_a_score_counts_weights_as_repetitions(entry):
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


@every_estimator
def test_a_copy_predicts_alike_and_goes_on_alike(entry):
    X = entry.data()
    hot_stream = entry.make(temperature=GeometricAnnealing(2.0)).partial_fit(X)
    for original in (entry.make().fit(X), hot_stream):
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


# ---------------------------------------------------------------------------------- searches
def priors_given(entry):
    """Parameters under which no prior of Gaussians is learned."""
    parameters = entry.make().get_params()
    if "components" in parameters:
        gaussian = Gaussian(**dict.fromkeys(GAUSSIAN_PRIORS))
        return {"components": [("real", gaussian, slice(None))]}
    return dict.fromkeys(set(GAUSSIAN_PRIORS) & set(parameters))


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
    # The name stands for a policy, and another temperature makes another model.
    assert scores[2] == scores[-1]
    assert len(set(scores)) == 3
    best = search.best_params_["temperature"]
    again = entry.make(temperature=best, **entry.heated).fit(X)
    assert_same_fit(search.best_estimator_, again)


@some_classes
def test_a_search_reaches_the_parameters_of_the_policy(entry):
    X = entry.data()
    grid = {"temperature__initial_temperature": [1.0, 1.5, 4.0]}
    policy = LinearAnnealing(replication=1.0)
    # Moves and learned priors wait until a schedule has ended.
    given = priors_given(entry)
    search = GridSearchCV(entry.make(temperature=policy, **entry.still, **given), grid, cv=2).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3
    plain = GridSearchCV(entry.make(**entry.still, **given), {"temperature": [None]}, cv=2).fit(X)
    # Annealing from T = 1 is no annealing.
    assert scores[0] == plain.cv_results_["mean_test_score"][0]


@some_classes
def test_a_search_over_a_pipeline_weighs_fits_and_scores(entry):
    X = entry.data()
    weights = np.random.default_rng(0).uniform(0.5, 2.0, X.shape[0])
    folds = list(KFold(2).split(X))
    fits = [entry.make().fit(X[train], sample_weight=weights[train]) for train, _ in folds]
    scores = [
        fit.score(X[test], sample_weight=weights[test])
        for fit, (_, test) in zip(fits, folds, strict=True)
    ]
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = entry.make().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(FunctionTransformer(accept_sparse=True), estimator)
        if SCIKIT_LEARN < (1, 9):  # Pipelines have requests of their own there.
            pipeline = pipeline.set_score_request(sample_weight=True)
        name = f"{entry.cls.__name__.lower()}__max_iter"
        grid = {name: [entry.make().max_iter]}
        search = GridSearchCV(pipeline, grid, cv=folds).fit(X, sample_weight=weights)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(scores), rel=1e-12)


@every_class_of_topic_models
def test_a_pipeline_turns_texts_into_topics(entry):
    texts = ["red green blue", "blue sea sea", "green grass", "red sea blue", "grass red"] * 4
    pipeline = make_pipeline(CountVectorizer(), entry.make()).fit(texts)
    assert pipeline.transform(texts).shape == (20, 3)
    assert np.isfinite(pipeline.score(texts))
    prefix = entry.cls.__name__.lower()
    assert list(pipeline.get_feature_names_out()) == [f"{prefix}{k}" for k in range(3)]
    by_hand = entry.make().fit(CountVectorizer().fit_transform(texts))
    assert_same_fit(pipeline[-1], by_hand)


# ------------------------------------------------------------------------- names and outputs
@pytest.mark.quick_cases("pandas-TemperedLDA", "polars-CAVI", "polars-Annealed")
@every_class
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_names_of_columns_are_kept_and_change_no_answer(entry, frame):
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
@pytest.mark.filterwarnings("ignore:These counts vary more than counts of words")
def test_the_number_of_jobs_changes_no_bit(entry):
    # There are more rows than in a chunk.
    X = np.concatenate([entry.data(seed) for seed in range(40)])
    settings = {"max_iter": 2} | entry.full
    one, three = (entry.make(n_jobs=n, **settings).fit(X) for n in (1, 3))
    assert_same_fit(one, three)
    np.testing.assert_equal(entry.answers(one, X), entry.answers(three, X))


@pytest.mark.quick_cases("float64")
@pytest.mark.parametrize(
    "cls, steps, dtype",
    [(*step, dtype) for step, dtype in zip(OTHER_STEPS, cycle(["float64", "float32"]))],
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


@every_class
def test_a_learned_temperature_without_a_normaliser_is_refused_with_a_remedy(entry):
    for temperature in {"variational", "local"} - {*entry.learned}:
        message = refusal(partial(entry.make, temperature=temperature), entry.data())
        remedy = "does not have. Use LinearAnnealing() instead"
        if entry.cls is StructuredLDA:
            remedy = 'Set local_step="mean_field", or use another temperature'
        assert remedy in message


@every_class
def test_fits_draw_from_their_own_random_state(entry):
    X, before = entry.data(), np.random.get_state()[1].copy()  # noqa: NPY002

    def fit_from(random_state):
        # Moves may lead fits of different seeds to the same place.
        return entry.globals(entry.make(random_state=random_state, **entry.still).fit(X))

    shared = np.random.RandomState(3)
    first, second = fit_from(shared), fit_from(shared)
    np.testing.assert_array_equal(first, fit_from(np.random.RandomState(3)))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    for one, other in ((first, second), (fit_from(None), fit_from(None))):
        assert not np.array_equal(one, other)


# ----------------------------------------------------------------- attributes of fits
@pytest.mark.quick_cases("TemperedLDA", "MemoizedDPMixture", "CAVI", "StructuredBernoulli")
@every_estimator
@pytest.mark.parametrize("temperature", [None, "annealed"])
def test_the_history_is_a_table_with_a_row_for_each_pass(entry, temperature):
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
def test_the_elbo_of_the_training_data_is_the_published_one(entry, temperature, dtype):
    X = entry.data().astype(dtype)
    estimator = entry.make(temperature=temperature).fit(X)
    assert isinstance(estimator.elbo_, float)
    if entry.remembers:
        # The published bound is that of each batch at its last visit. After enough passes the two
        # bounds are the same.
        assert estimator.elbo(X) >= estimator.elbo_ - 1e-6 * abs(estimator.elbo_)
        settings = {"temperature": temperature, "max_iter": 300, "tol": 1e-13} | entry.still
        estimator = entry.make(**settings).fit(X)
        rounding = 1e-10 if dtype is np.float64 else 1e-6
        assert estimator.elbo(X) == pytest.approx(estimator.elbo_, rel=rounding)
    elif entry.searches:
        assert estimator.elbo(X) >= estimator.elbo_ - 1e-6 * abs(estimator.elbo_)
    elif not entry.goes_on:
        assert estimator.elbo(X) == pytest.approx(estimator.elbo_, rel=1e-12)
    # Each row adds a negative term. The divergence of the globals is counted once.
    assert estimator.elbo(X) < estimator.elbo(X[:20]) < 0.0


@every_estimator
def test_the_best_of_several_starts_is_kept_and_the_bounds_of_all_are_shown(entry):
    X = entry.data()
    estimator = entry.make(n_init=4, **entry.still).fit(X)
    assert estimator.restart_elbos_.shape == (4,)
    assert len(set(estimator.restart_elbos_)) == 4
    assert estimator.elbo_ == estimator.restart_elbos_.max()
    if not (entry.remembers or entry.goes_on or entry.searches):
        assert estimator.elbo(X) == pytest.approx(estimator.elbo_, rel=1e-12)
    assert len(estimator.history_["elbo"]) == estimator.n_iter_ == 4
    # The first of several starts is the start of a fit with one.
    assert entry.make(**entry.still).fit(X).elbo_ == estimator.restart_elbos_[0]


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
    # Scores and densities are in double precision in any case.
    questions = [name for name in entry.questions if name in ("transform", "predict_proba")]

    def assert_precision(estimator, dtype):
        for name in entry.shown:
            assert getattr(estimator, name).dtype == dtype, name
        for question in questions:
            assert getattr(estimator, question)(X).dtype == dtype, question
        assert getattr(estimator, "hierarchy_", np.empty(0)).dtype == np.float64

    assert questions
    estimator = entry.make().fit(X)
    assert_precision(estimator, np.float32)
    assert_precision(estimator.partial_fit(X), np.float32)
    # Later rows in double precision do not change the precision of the fit.
    assert_precision(estimator.partial_fit(X.astype(np.float64)), np.float32)
    assert_precision(entry.make().fit(X.astype(np.float64)), np.float64)


# ------------------------------------------------------------------------------ single rows
@every_estimator
def test_an_answer_for_a_row_does_not_depend_on_the_other_rows(entry):
    X = entry.data()
    estimator = entry.make().fit(X)
    for question in entry.questions:
        ask, exact = getattr(estimator, question), question == "transform"
        together = ask(X)
        np.testing.assert_array_equal(ask(X), together)
        if np.ndim(together) == 0:
            # A matrix product of one row is rounded differently than one of many rows.
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
def test_an_estimator_answers_nothing_before_its_first_call(entry):
    X = entry.data()
    estimator = entry.make()
    for method in entry.questions:
        with pytest.raises(NotFittedError):
            getattr(estimator, method)(X)
    assert published(estimator) == {}
    estimator.partial_fit(X)
    assert all(np.isfinite(answer).all() for answer in entry.answers(estimator, X))


# These attributes have an entry for each call of partial_fit.
BY_CALL = ("history_", "lower_bounds_", "n_iter_", "move_log_", "labels_")


@every_stream_of_minibatches
def test_a_stream_cut_at_minibatches_is_the_same_stream(entry):
    X = entry.data()
    # Both begin with the same call, because it may choose priors and starting values by its rows.
    settings = {"batch_size": 8, "total_samples": 40}
    at_once, in_pieces = (entry.make(**settings).partial_fit(X[:8]) for _ in range(2))
    at_once.partial_fit(X[8:])
    for start in range(8, 40, 8):
        in_pieces.partial_fit(X[start : start + 8])
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
    # A mixture of few components is found in the first call.
    assert scores[-1] > scores[0] or not entry.transforms
    assert scores[-1] == pytest.approx(fitted.score(test), abs=0.05)


@every_estimator
def test_partial_fit_goes_on_from_fit(entry):
    X = entry.data()
    estimator = entry.make().fit(X)
    before = published(estimator)
    estimator.partial_fit(entry.data(1))
    assert estimator.n_batch_iter_ == before["n_batch_iter_"] + (1 if entry.remembers else 3)
    # The step changes the fit, but does not start it anew.
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
    # A structured step raises the bound only on average, and a minibatch may lower it.
    assert warm.elbo_ > first["elbo_"] or not entry.bounded
    if entry.remembers or entry.engine.get("learning_method") == "batch":
        bounds = np.array(warm.history_["elbo"][first["n_iter_"] :])
        assert bounds.min() > first["elbo_"] - 1e-8 * abs(first["elbo_"])
    assert warm.n_iter_ == len(warm.history_["elbo"]) == 2 * first["n_iter_"]
    # A fresh estimator with warm_start has nothing to go on from.
    assert_same_fit(entry.make(warm_start=True).fit(X), entry.make().fit(X))


@every_estimator_whose_fits_make_minibatches
def test_a_warm_start_of_a_hot_stream_is_the_stream_gone_on(entry):
    # In a pass of one minibatch, `fit` and `partial_fit` make the same step.
    X = entry.data()
    settings = {"batch_size": 40, "max_iter": 1, "warm_start": True, "total_samples": 40}
    settings["temperature"] = LinearAnnealing(n_passes=6.0)
    # Topic models would derive the steps of a fit from its number of passes, and a fit would learn
    # priors after other steps.
    settings |= {"learning_offset": 64.0} | priors_given(entry)
    one, other = (entry.make(**settings).partial_fit(X) for _ in range(2))
    one.fit(X)
    other.partial_fit(X)
    np.testing.assert_allclose(entry.globals(one), entry.globals(other), rtol=1e-10)
    assert one.temperature_ == other.temperature_ == 1.375


@every_stream_of_minibatches
def test_a_hot_stream_stands_for_no_more_data_than_it_has_seen(entry):
    X = entry.data(n_rows=200)
    # By full steps, the last minibatch stands for all rows.
    settings = {"learning_decay": 0.0, "batch_size": 200}
    plain = entry.make(temperature=None, **settings).partial_fit(X)
    for temperature in ("annealed", *entry.learned[:1]):
        hot = entry.make(temperature=temperature, **settings).partial_fit(X)
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


# ------------------------------------------------------------------------------- failures
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

    # Failures during births have a test of their own.
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
        # The next call shows that nothing else has changed either.
        assert_same_fit(act(estimator), whole)


@every_class
def test_writing_to_a_shown_array_does_not_change_the_estimator(entry):
    X = entry.data()
    estimator = entry.make().fit(X)
    before = published(estimator)
    for name in entry.shown:
        shown = getattr(estimator, name)
        if shown.flags.writeable:
            shown[...] = 7.0
    np.testing.assert_equal(published(estimator), before)


@every_estimator
def test_data_and_weights_are_never_written_to(entry):
    X = entry.data()
    estimator, weights = entry.make(), np.full(len(X), 2.0)
    containers = [X.copy()]
    if entry.takes.sparse:
        containers += [sp.csr_array(X), sp.csc_array(X)]
    for method, data in product(("fit", "partial_fit", *entry.questions), containers):
        kept = data.copy()
        given = {"sample_weight": weights} if "fit" in method else {}
        getattr(estimator, method)(data, **given)
        difference = data != kept
        assert difference.sum() == 0
        assert (weights == 2.0).all()
