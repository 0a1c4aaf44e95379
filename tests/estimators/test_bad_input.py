"""What estimators refuse, in which words, and what odd but legal input they take."""

import itertools
import re
import warnings
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimators._registry import (
    CLASSES,
    ENTRIES,
    QUESTIONS,
    assert_same_fit,
    counts,
    every_class,
    every_class_of_topic_models,
    every_pair,
    is_topic_model,
    published,
    refusal,
    refused,
    takes,
)

from skvt import MemoizedHDP, StructuredBernoulliMixture
from skvt.metrics import document_completion_split
from skvt.temperature import ConstantTemperature, LinearAnnealing

TOPIC_MODELS = [entry for entry in ENTRIES if is_topic_model(entry)]
MODELS_OF_COUNTS = [entry for entry in ENTRIES if entry.data is counts]


def spoiled(X, value):
    X = X.astype(np.result_type(X, value), copy=True)
    X[3, -1] = value
    return X


# (what else cannot be a table, scikit-learn's checks try)
ILLEGAL = {
    "NaN": (lambda X: spoiled(X, np.nan), "Input X contains NaN"),
    "infinity": (lambda X: spoiled(X, np.inf), "Input X contains infinity"),
    "words": (
        lambda X: np.full(X.shape, "word"),
        "has (text, such as )?'word'.*(CountVectorizer|OneHot.*MemoizedDPMixture|Categorical)",
    ),
    "None": (lambda X: None, "Expected 2D array, got scalar"),
}
NEGATIVE = {
    "a negative count": (lambda X: spoiled(X, -2.0), "(?=.*-2)Negative values in data .*counts"),
    "minus infinity": (lambda X: spoiled(X, -np.inf), "infinity"),
}


# ---------------------------------------------------------------------------------- illegal X
@cache
def _fitted(number):
    """The fit of an entry, which nothing that is refused changes."""
    return ENTRIES[number].make().fit(ENTRIES[number].data())


def _refused(entry, method, spoil, message):
    X = entry.data()
    estimator = _fitted(ENTRIES.index(entry))
    with refused(estimator, match=message):
        getattr(estimator, method)(spoil(X))
    if method not in entry.questions:
        fresh = entry.make()
        with refused(fresh, match=message):
            getattr(fresh, method)(spoil(X))


METHODS = ("fit", "partial_fit", *QUESTIONS)


@every_pair(
    "entry, method, what",
    CLASSES,
    METHODS,
    list(ILLEGAL),
    legal=lambda entry, method, what: (
        hasattr(entry.cls, method) and not (what == "NaN" and entry.takes.allow_nan)
    ),
)
def test_illegal_data_are_refused_and_change_nothing(entry, method, what):
    _refused(entry, method, *ILLEGAL[what])


@every_pair(
    "entry, method, what, contain", MODELS_OF_COUNTS,
    ["fit", "partial_fit", "transform", "score", "elbo"], list(NEGATIVE),
    [np.asarray, sp.csr_array],
)  # fmt: skip
def test_negative_counts_are_refused_and_change_nothing(entry, method, what, contain):
    spoil, message = NEGATIVE[what]
    _refused(entry, method, lambda X: contain(spoil(X)), message)


# ----------------------------------------------------------------------------- legal X, oddly held
def _unsorted(X):
    X = sp.csr_array(X)
    reverse = [np.arange(X.indptr[i], X.indptr[i + 1])[::-1] for i in range(X.shape[0])]
    order = np.concatenate(reverse)
    return sp.csr_array((X.data[order], X.indices[order], X.indptr), shape=X.shape)


def _twice(X):
    X = sp.csr_array(X)
    return sp.csr_array(
        (np.repeat(X.data / 2.0, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape
    )


def _wide_indices(X):
    X = sp.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _stored_zeros(X):
    n_rows, n_features = X.shape
    indices = np.tile(np.arange(n_features), n_rows)
    return sp.csr_array((X.ravel(), indices, n_features * np.arange(n_rows + 1)), shape=X.shape)


HOLDERS = {
    "Fortran order": np.asfortranarray,
    "a view of every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "nested lists": lambda X: X.tolist(),
    "objects": lambda X: X.astype(object),
    "int64": lambda X: X.astype(np.int64),
    "uint8": lambda X: X.astype(np.uint8),
    "float16": lambda X: X.astype(np.float16),
    "pandas": lambda X: pd.DataFrame(X),  # columns numbered, not named
}
# These reach an engine as they are; what the others hold is copied into a plain table before.
HOLDERS_THAT_ENGINES_SEE = ("Fortran order", "a view of every other row")
SPARSE_HOLDERS = {
    "csr_matrix": sp.csr_matrix, "csr_array": sp.csr_array,
    "csr of int64": lambda X: sp.csr_array(X.astype(np.int64)), "csc_array": sp.csc_array,
    "csc_matrix": sp.csc_matrix, "coo_array": sp.coo_array, "coo_matrix": sp.coo_matrix,
    "lil_array": sp.lil_array, "dok_matrix": sp.dok_matrix, "bsr_array": sp.bsr_array,
    "sparse pandas": lambda X: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X)),
    "indices of 64 bits": _wide_indices, "indices out of order": _unsorted,
    "duplicate entries": _twice,
}  # fmt: skip
SPARSE_HOLDERS_THAT_ENGINES_SEE = (
    "csr_array", "csc_array", "indices of 64 bits", "indices out of order", "duplicate entries",
)  # fmt: skip


@cache
def _plain(number, rounded, sparse):
    """What each way to hold the table of an entry is compared with."""
    entry = ENTRIES[number]
    X = entry.data()
    X = np.round(X - X.min()) if rounded else X
    # (its sums over sparse rows have other last digits, and so its draws)
    own = sp.csr_array(X) if sparse and entry.cls is StructuredBernoulliMixture else X
    fitted = entry.make().fit(own)
    return X, fitted, entry.make().partial_fit(own), entry.answers(fitted, own)


def _assert_alike(entry, hold, *, rounded=False, sparse=False):
    X, fitted, streamed, answers = _plain(ENTRIES.index(entry), rounded, sparse)
    held = hold(X.copy())
    # The findings of the report are of dense columns.
    apart = ["table_report_"] if sparse else []
    assert_same_fit(fitted, entry.make().fit(held), apart=apart)
    assert_same_fit(streamed, entry.make().partial_fit(held), apart=apart)
    np.testing.assert_equal(entry.answers(fitted, held), answers)


def _held_by(holders, seen_by_engines, classes):
    """Each class with what engines see; two in turn with what all copy by the same code."""
    copied = [holder for holder in holders if holder not in seen_by_engines]
    turns = zip(itertools.cycle(classes), sorted(2 * copied, key=copied.index), strict=False)
    cases = [*itertools.product(classes, seen_by_engines), *turns]
    return pytest.mark.parametrize("entry, holder", cases, ids=str)


@pytest.mark.quick_cases("TemperedLDA", "CAVI", "MemoizedDPMixture")
@_held_by(HOLDERS, HOLDERS_THAT_ENGINES_SEE, CLASSES)
@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
def test_how_a_dense_table_is_held_does_not_matter(entry, holder):
    _assert_alike(entry, HOLDERS[holder], rounded=holder in ("int64", "uint8", "float16"))


@pytest.mark.quick_cases("TemperedLDA", "StructuredBernoulli")
@_held_by(SPARSE_HOLDERS, SPARSE_HOLDERS_THAT_ENGINES_SEE, [e for e in CLASSES if e.takes.sparse])
def test_how_a_sparse_table_is_held_does_not_matter(entry, holder):
    _assert_alike(entry, SPARSE_HOLDERS[holder], rounded=True, sparse=True)


@every_class
def test_a_memory_mapped_table_is_taken(entry, tmp_path):
    def mapped(name, array):
        np.save(tmp_path / f"{name}.npy", array)
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    def mapped_parts(X):
        csr = sp.csr_array(X)
        parts = [mapped(name, getattr(csr, name)) for name in ("data", "indices", "indptr")]
        return sp.csr_array(tuple(parts), shape=X.shape)

    _assert_alike(entry, lambda X: mapped("X", X))
    if entry.takes.sparse:
        _assert_alike(entry, mapped_parts, sparse=True)


@every_class_of_topic_models
def test_true_and_false_are_one_and_zero(entry):
    X = entry.data() > 0
    fits = [entry.make().fit(held) for held in (X.astype(float), X, sp.csr_array(X))]
    assert_same_fit(fits[0], fits[1])
    assert_same_fit(fits[0], fits[2])
    np.testing.assert_equal(entry.answers(fits[0], X), entry.answers(fits[0], X.astype(float)))


@every_class_of_topic_models
def test_stored_zeros_change_no_fit(entry):
    X = entry.data()
    one, other = entry.make().fit(X), entry.make().fit(_stored_zeros(X))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-9)
    np.testing.assert_allclose(one.transform(X), one.transform(_stored_zeros(X)), rtol=1e-9)
    assert one.elbo(X) == pytest.approx(one.elbo(_stored_zeros(X)), rel=1e-12)
    assert one.score(X) == pytest.approx(one.score(_stored_zeros(X)), rel=1e-12)


# --------------------------------------------------------------------------- extremes of legal X
def _assert_sound(estimator, X):
    for name, value in published(estimator).items():
        if name in ("components_", "elbo_", "exp_dirichlet_component_", "restart_elbos_"):
            assert np.isfinite(value).all(), name
    assert (estimator.components_ > 0.0).all()
    assert all(np.isfinite(value).all() for value in map(np.array, estimator.history_.values()))
    proportions = estimator.transform(X)
    assert (proportions >= 0.0).all()
    np.testing.assert_allclose(proportions.sum(axis=1), 1.0, rtol=1e-5)
    assert np.isfinite(estimator.elbo(X))


EXTREMES = {
    "one row": lambda X: X[:1], "one column": lambda X: X[:, :1],
    "one row and one column": lambda X: X[:1, :1] + 1.0,
    "fewer rows than components": lambda X: X[:2], "constant columns": lambda X: np.ones_like(X),
    "one word in each row": lambda X: np.eye(X.shape[1]),
    "rows without words": lambda X: np.concatenate([X[:10], 0.0 * X[:10]]),
    "no words at all": lambda X: 0.0 * X, "counts of a million": lambda X: 1e6 * (X[:3] > 0),
    "fractions of counts": lambda X: 0.37 * X, "very small fractions": lambda X: 1e-9 * X,
}  # fmt: skip


@pytest.mark.quick_cases("float64")
@every_pair(
    "entry, extreme, dtype, n_components", TOPIC_MODELS, list(EXTREMES), ["float32", "float64"],
    [1, 3],
)  # fmt: skip
def test_extreme_counts_give_finite_answers(entry, extreme, dtype, n_components):
    X = EXTREMES[extreme](entry.data()).astype(dtype)
    settings = {"n_components": n_components, "evaluate_every": 1, "perp_tol": 0.0}
    estimator = entry.make(**settings)
    warns = pytest.warns(UserWarning, match="rows have no words")
    with warns if X.any(axis=1).mean() < 0.5 else nullcontext():
        estimator.fit(X)
    _assert_sound(estimator, X)
    assert np.isfinite(estimator.partial_fit(X).components_).all()
    if document_completion_split(X)[1].nnz:
        assert np.isfinite(estimator.score(X))


@every_pair(
    "entry, temperature, prior", TOPIC_MODELS,
    [None, ConstantTemperature(1e3), LinearAnnealing(100.0), "variational", "local"],
    [1e-12, 1e3, "auto"], legal=lambda entry, temperature, prior: takes(entry, temperature),
)  # fmt: skip
def test_extreme_settings_give_finite_answers(entry, temperature, prior):
    X, settings = entry.data(), {"temperature": temperature} | entry.unwatched
    _assert_sound(entry.make(doc_topic_prior=prior, **settings).fit(X), X)
    if prior != "auto":
        _assert_sound(entry.make(topic_word_prior=prior, **settings).fit(X), X)


@every_class_of_topic_models
def test_a_fit_warns_of_documents_without_words_if_they_are_most(entry):
    X, estimator = entry.data(), entry.make(max_iter=1)
    n = X.shape[0]
    with pytest.warns(UserWarning, match=f"{n} of {n} rows have no words. Topics are the prior"):
        estimator.fit(0.0 * X)
    X[: n // 2] = 0.0
    estimator.fit(X)  # half of them are silent
    X[n // 2] = 0.0
    message = f"{n // 2 + 1} of {n} rows have no words. Topics come from the others only"
    with pytest.warns(UserWarning, match=message):
        estimator.fit(sp.csr_array(X))
    estimator.fit(X, sample_weight=X.any(axis=1))
    entry.make().partial_fit(0.0 * X).partial_fit(X)


@every_class_of_topic_models
def test_paths_of_files_are_refused_with_the_remedy(entry):
    message = "X has paths, such as 'a.txt'. Read the files first.*read_text.*CountVectorizer"
    estimator = entry.make()
    with refused(estimator, match=message):
        estimator.fit([Path("a.txt"), Path("b.txt")])


@every_class_of_topic_models
def test_topics_of_what_are_hardly_counts_come_with_a_warning(entry):
    X = entry.data()
    with pytest.warns(UserWarning, match=r"whole numbers, such as 0\.693.*takes counts"):
        entry.make().fit(np.log1p(np.minimum(X, 1)))
    mostly_counts = np.where(np.arange(X.size).reshape(X.shape) % 3 == 0, 0.5 * X, X)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        entry.make().fit(mostly_counts).transform(0.3 * X)
    assert not any("whole numbers" in str(one.message) for one in seen)


@every_class_of_topic_models
def test_a_row_without_words_has_the_mean_of_the_prior(entry):
    X = entry.data()
    alpha = np.array([0.2, 0.5, 1.3])
    estimator = entry.make(doc_topic_prior=alpha).fit(np.concatenate([X, 0.0 * X[:3]]))
    np.testing.assert_allclose(
        estimator.transform(0.0 * X[:2]), np.tile(alpha / alpha.sum(), (2, 1)), rtol=1e-12
    )


@every_class_of_topic_models
def test_one_topic_takes_everything_and_one_word_surprises_nobody(entry):
    X = entry.data()
    np.testing.assert_array_equal(entry.make(n_components=1).fit(X).transform(X), np.ones((40, 1)))
    single_word = entry.make().fit(X[:, :1] + 1.0)
    assert single_word.score(X[:, :1] + 1.0) == pytest.approx(0.0, abs=1e-12)


@every_class_of_topic_models
def test_weights_of_any_common_scale_are_taken(entry):
    X = entry.data()
    for weight in (1e-12, 1e12):
        weights = np.full(X.shape[0], weight)
        estimator = entry.make(**entry.unwatched).fit(X, sample_weight=weights)
        _assert_sound(estimator, X)


@pytest.mark.quick_cases("TemperedLDA")
@every_class_of_topic_models
def test_weights_below_single_precision_are_taken_or_refused_with_their_name(entry):
    X = entry.data().astype(np.float32)
    try:
        estimator = entry.make().fit(X, sample_weight=np.full(X.shape[0], 1e-50))
    except ValueError as error:
        assert "sample_weight" in str(error)
    else:
        _assert_sound(estimator, X)


# -------------------------------------------------------------------------------- parameters
def _message_on(entry, **params):
    return refusal(partial(entry.make, **params), entry.data())


WHOLE = r"int in the range \[1, inf\)"
POSITIVE, NOT_NEGATIVE = (rf"{bracket}0(\.0)?, inf\)" for bracket in (r"\(", r"\["))
# Parameter -> what the message says is legal, and values that are illegal wherever it is.
ILLEGAL_PARAMETERS = {
    **dict.fromkeys(["n_components", "max_components"], (WHOLE, [0, 2.0, "3"])),
    **dict.fromkeys(["max_iter", "batch_size", "n_init", "max_doc_update_iter"], (WHOLE, [0, 1.5])),
    **dict.fromkeys(["n_batches", "n_samples"], (WHOLE, [0])),
    **dict.fromkeys(["tol", "perp_tol", "mean_change_tol"], (NOT_NEGATIVE, [-1e-3])),
    **dict.fromkeys(["verbose", "n_burn_in"], (r"int in the range \[0, inf\)", [-1])),
    **dict.fromkeys(["total_samples", "weight_concentration_prior", "doc_topic_prior"],
                    (POSITIVE, [0.0, -3.0, np.nan, np.inf])),
    **dict.fromkeys(["mean_precision_prior", "topic_word_prior"], (POSITIVE, [0.0, "one", np.inf])),
    **dict.fromkeys(["noise_variance", "prior_variance", "learning_scale", "component_shape",
                     "activation_shape", "data_mean_prior", "degrees_of_freedom_prior"],
                    (POSITIVE, [0.0, -1.0])),
    **dict.fromkeys(["covariance_prior", "feature_prior"], (POSITIVE, [-1.0])),
    **dict.fromkeys(["covariance_type", "mean_type", "init_params", "learning_method",
                     "weight_concentration_prior_type", "global_step", "local_step"],
                    ("a str among {.*'", ["what is not there", 3])),
    "activation_prior": (r"\(0(\.0)?, 1(\.0)?\)", [0.0]),
    "binarize": ("float", ["yes"]),
    "evaluate_every": ("int", [0.5]),
    "learning_decay": (r"\[0(\.0)?, 1(\.0)?\]", [1.1, -0.1, np.nan]),
    "learning_offset": (r"\[1\.0, inf\)", [0.5, np.inf, "10"]),
    "mean_prior": ("array-like", [3.0]),
    "moves": ("tuple.* or .*list", ["birth", None]),
    "n_jobs": ("None or an instance of 'int'", [1.5]),
    "polish": (r"\[0(\.0)?, 1(\.0)?\]", [1.5]),
    "random_state": ("RandomState.* None", ["seed", np.random.default_rng(0)]),
    "temperature": ("None, a str among .*'annealed'.*TemperaturePolicy",
                    ["hot", 1.5, LinearAnnealing, object()]),
    "warm_start": ("bool", ["yes"]),
    "weights": ("array-like", [0.5]),
}  # fmt: skip


@every_class
def test_an_illegal_parameter_is_named_with_its_value_and_the_legal_ones(entry):
    for name in ILLEGAL_PARAMETERS.keys() & entry.make().get_params().keys():
        legal, values = ILLEGAL_PARAMETERS[name]
        for value in values:
            message = _message_on(entry, **{name: value})
            assert message.startswith(f"The {name!r} parameter of {entry.cls.__name__} must be ")
            assert message.endswith(f"Got {value!r} instead.")
            assert re.search(legal, message), message


@every_class
def test_zero_jobs_are_refused(entry):
    with pytest.raises(ValueError, match="n_jobs == 0"):
        entry.make(n_jobs=0).fit(entry.data())


@every_class_of_topic_models
@pytest.mark.parametrize(
    "name, value, size",
    [
        ("doc_topic_prior", [1.0, 1.0], "n_components = 3"),
        ("doc_topic_prior", [], "n_components = 3"),
        ("doc_topic_prior", [[1.0, 1.0, 1.0]], "n_components = 3"),
        ("topic_word_prior", np.ones(24), "n_features = 25"),
    ],
)
def test_a_prior_of_another_size_is_refused_with_both_sizes(entry, name, value, size):
    message = _message_on(entry, **{name: value})
    assert f"The {name!r} parameter must be a number or an array of {size} numbers" in message
    assert str(np.shape(value)) in message


@every_class_of_topic_models
def test_a_prior_of_each_topic_is_refused_with_its_shape(entry):
    message = _message_on(entry, topic_word_prior=np.ones((2, 25)))
    assert "or an array of shape (n_components, n_features) = (3, 25)" in message
    assert "(2, 25)" in message


def test_topics_whose_number_is_found_have_no_priors_of_their_own():
    (entry,) = (entry for entry in CLASSES if entry.cls is MemoizedHDP)
    message = _message_on(entry, n_components=3, topic_word_prior=np.ones((3, 25)))
    assert "n_features = 25" in message and "shape (3, 25)" in message
    assert "share one prior" in message and "components_init" in message


@every_pair(
    "entry, named, bad", [entry for entry in CLASSES if is_topic_model(entry)],
    [("doc_topic_prior", 3), ("topic_word_prior", 25)], [0.0, -1.0, np.nan, np.inf],
)  # fmt: skip
def test_an_illegal_entry_of_a_prior_is_refused_with_the_legal_range(entry, named, bad):
    name, size = named
    value = np.ones(size)
    value[1] = bad
    message = _message_on(entry, **{name: value})
    assert name in message
    assert "(0, inf)" in message
    assert str(value) in message


@every_class_of_topic_models
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, 1e-40])
def test_an_illegal_entry_of_a_prior_of_each_topic_is_refused_with_its_place(entry, bad):
    value = np.ones((3, 25))
    value[2, 7] = bad
    message = _message_on(entry, topic_word_prior=value)
    assert f"[1e-30, 1e+30]. Got {bad:g} for word 7 of topic 2" in message


@every_class_of_topic_models
def test_a_truth_value_is_no_number_of_components(entry):
    assert "n_components" in _message_on(entry, n_components=True)


@every_class_of_topic_models
def test_an_illegal_temperature_at_a_later_fit_changes_nothing(entry):
    estimator = entry.make(temperature=LinearAnnealing()).fit(entry.data())
    estimator.set_params(temperature__initial_temperature=0.5)
    with refused(estimator, match="initial_temperature"):
        estimator.fit(entry.data(1))


@every_class_of_topic_models
def test_a_vector_of_equal_entries_is_the_number(entry):
    X = entry.data()
    one = entry.make(doc_topic_prior=0.3, topic_word_prior=0.2).fit(X)
    other = entry.make(doc_topic_prior=np.full(3, 0.3), topic_word_prior=[0.2] * 25).fit(X)
    np.testing.assert_array_equal(one.components_, other.components_)
    assert one.elbo_ == other.elbo_


class Annotated:
    """What an AnnData looks like."""

    X, var_names, shape = np.ones((4, 2)), ["a", "b"], (4, 2)


@every_class
def test_an_anndata_is_refused_with_the_remedy(entry):
    remedy = r"pass X\.X.* set_words\(X\.var_names\).* X\.to_df\(\)"
    with pytest.raises(TypeError, match=rf"X is an Annotated, .* {remedy}"):
        entry.make().fit(Annotated())


class InFile:
    """What the sparse matrix of an AnnData in a file looks like."""

    shape, format = (4, 2), "csr"

    def to_memory(self):
        return sp.csr_array(np.ones((4, 2)))


@every_class
def test_a_sparse_matrix_in_a_file_is_refused_with_the_remedy(entry):
    with pytest.raises(TypeError, match=r"X is a InFile, a sparse matrix .* Pass X\.to_memory"):
        entry.make().fit(InFile())


@every_class_of_topic_models
def test_priors_that_are_shown_are_copies(entry):
    model = entry.make(topic_word_prior=np.full(25, 0.2)).fit(entry.data())
    expected = model.transform(entry.data())
    model.topic_word_prior_[:] = 9.0
    np.testing.assert_array_equal(model.topic_word_prior_, 0.2)
    np.testing.assert_array_equal(model.transform(entry.data()), expected)
