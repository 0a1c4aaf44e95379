"""Estimators refuse illegal input with a message and take unusual but legal input."""

import itertools
import re
import warnings
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import pandas as pd
import polars as pl
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
from sklearn.exceptions import NotFittedError

from skvt import MemoizedDPGMM, MemoizedHDP, StructuredBernoulliMixture
from skvt.metrics import document_completion_split
from skvt.temperature import ConstantTemperature, LinearAnnealing

TOPIC_MODELS = [entry for entry in ENTRIES if is_topic_model(entry)]


def spoiled(X, value):
    X = X.astype(np.result_type(X, value), copy=True)
    X[3, -1] = value
    return X


# scikit-learn's checks try other objects that are no tables.
ILLEGAL = {
    "NaN": (lambda X: spoiled(X, np.nan), "Input X contains NaN"),
    "infinity": (lambda X: spoiled(X, np.inf), "Input X contains infinity"),
    "a whole number of 401 digits": (
        lambda X: spoiled(X.astype(object), 10**400),
        "contains infinity|beyond the range of float64|Got inf",
    ),
    "words": (
        lambda X: np.full(X.shape, "word"),
        "has (text, such as )?'word'.*(CountVectorizer|(ones and zeros|OneHot).*MemoizedDPMixture|"
        "Categorical|pandas.to_numeric|column.map)",
    ),
    "None": (lambda X: None, "Expected 2D array, got scalar"),
}
NEGATIVE = r"(?=.*-2)Negative values in data .*counts"
ILLEGAL |= {
    "a negative count": (lambda X: spoiled(X, -2.0), NEGATIVE),
    "a negative count in a sparse matrix": (lambda X: sp.csr_array(spoiled(X, -2.0)), NEGATIVE),
}


# -------------------------------------------------------------------------------- illegal data
@cache
def _fitted(number):
    """The fit of an entry, which all tests share because a refusal does not change it."""
    return ENTRIES[number].make().fit(ENTRIES[number].data())


METHODS = ("fit", "partial_fit", *QUESTIONS)


def _can_be_illegal(entry, method, what):
    is_legal = {"NaN": entry.takes.allow_nan, "a negative": entry.data is not counts}
    return hasattr(entry.cls, method) and not any(
        legal and what.startswith(name) for name, legal in is_legal.items()
    )


@every_pair("entry, method, what", CLASSES, METHODS, list(ILLEGAL), legal=_can_be_illegal)
def test_illegal_data_are_refused_and_change_nothing(entry, method, what):
    spoil, message = ILLEGAL[what]
    fitted, fresh = _fitted(ENTRIES.index(entry)), entry.make()
    for estimator in (fitted,) if method in entry.questions else (fitted, fresh):
        with refused(estimator, match=message):
            getattr(estimator, method)(spoil(entry.data()))


@pytest.mark.parametrize("entry", CLASSES, ids=lambda entry: entry.cls.__name__)
def test_sparse_rows_are_refused_with_a_remedy_if_an_estimator_does_not_take_them(entry):
    X = sp.csr_array(entry.data())
    if entry.takes.sparse:
        entry.make().fit(X)
        return
    message = r"takes dense rows, but X is sparse.*TruncatedSVD.*MemoizedDPMixture takes sparse"
    for estimator, method in ((entry.make(), "fit"), (_fitted(ENTRIES.index(entry)), "score")):
        with pytest.raises(TypeError, match=message):
            getattr(estimator, method)(X)


# ---------------------------------------------------------------------- containers of legal data
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


def _mapped(array):
    """A read-only map of a file that holds the array."""
    with TemporaryFile() as file:
        array.tofile(file)
        return np.memmap(file, array.dtype, "r", shape=array.shape)


def _mapped_parts(X):
    X = sp.csr_array(X)
    return sp.csr_array((_mapped(X.data), _mapped(X.indices), _mapped(X.indptr)), shape=X.shape)


HOLDERS = {
    "memory map": _mapped,
    "Fortran order": np.asfortranarray, "nested lists": lambda X: X.tolist(),
    "a view of every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "objects": lambda X: X.astype(object), "int64": lambda X: X.astype(np.int64),
    "uint8": lambda X: X.astype(np.uint8), "float16": lambda X: X.astype(np.float16),
    "pandas": pd.DataFrame,
}  # fmt: skip
# These containers reach an engine as they are. The content of the others is copied before.
HOLDERS_THAT_ENGINES_SEE = ("Fortran order", "a view of every other row", "memory map")
SPARSE_HOLDERS = {
    "csr_matrix": sp.csr_matrix, "csr_array": sp.csr_array,
    "csr of int64": lambda X: sp.csr_array(X.astype(np.int64)), "csc_array": sp.csc_array,
    "csc_matrix": sp.csc_matrix, "coo_array": sp.coo_array, "coo_matrix": sp.coo_matrix,
    "lil_array": sp.lil_array, "dok_matrix": sp.dok_matrix, "bsr_array": sp.bsr_array,
    "sparse pandas": lambda X: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X)),
    "indices of 64 bits": _wide_indices, "indices out of order": _unsorted,
    "duplicate entries": _twice, "memory maps": _mapped_parts,
}  # fmt: skip
SPARSE_HOLDERS_THAT_ENGINES_SEE = (
    "csr_array", "csc_array", "indices of 64 bits", "indices out of order", "duplicate entries",
    "memory maps",
)  # fmt: skip


@cache
def _plain(number, rounded, sparse):
    """A table of an entry, a fit, a stream and answers, which those of other containers equal."""
    entry = ENTRIES[number]
    X = entry.data()
    X = np.round(X - X.min()) if rounded else X
    # Sums over sparse rows of this estimator differ in the last digits, and so do its draws.
    own = sp.csr_array(X) if sparse and entry.cls is StructuredBernoulliMixture else X
    fitted = entry.make().fit(own)
    return X, fitted, entry.make().partial_fit(own), entry.answers(fitted, own)


def _assert_alike(entry, hold, *, rounded=False, sparse=False):
    X, fitted, streamed, answers = _plain(ENTRIES.index(entry), rounded, sparse)
    held = hold(X.copy())
    # The report examines dense columns only.
    apart = ["table_report_"] if sparse else []
    assert_same_fit(fitted, entry.make().fit(held), apart=apart)
    assert_same_fit(streamed, entry.make().partial_fit(held), apart=apart)
    np.testing.assert_equal(entry.answers(fitted, held), answers)


def _held_by(holders, seen_by_engines, classes):
    """Cases of all classes with what engines see, and of two classes with each other container."""
    copied = [holder for holder in holders if holder not in seen_by_engines]
    turns = zip(itertools.cycle(classes), sorted(2 * copied, key=copied.index), strict=False)
    cases = [*itertools.product(classes, seen_by_engines), *turns]
    return pytest.mark.parametrize("entry, holder", cases, ids=str)


@pytest.mark.quick_cases("TemperedLDA", "CAVI", "MemoizedDPMixture")
@_held_by(HOLDERS, HOLDERS_THAT_ENGINES_SEE, CLASSES)
@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
def test_the_container_of_a_dense_table_changes_no_bit(entry, holder):
    _assert_alike(entry, HOLDERS[holder], rounded=holder in ("int64", "uint8", "float16"))


@pytest.mark.quick_cases("TemperedLDA", "StructuredBernoulli")
@_held_by(SPARSE_HOLDERS, SPARSE_HOLDERS_THAT_ENGINES_SEE, [e for e in CLASSES if e.takes.sparse])
def test_the_container_of_a_sparse_table_changes_no_bit(entry, holder):
    _assert_alike(entry, SPARSE_HOLDERS[holder], rounded=True, sparse=True)


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
    stored = sp.csr_array(X + 1.0)
    stored.data -= 1.0
    one, other = entry.make().fit(X), entry.make().fit(stored)
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-9)
    np.testing.assert_allclose(one.transform(X), one.transform(stored), rtol=1e-9)
    assert one.elbo(X) == pytest.approx(one.elbo(stored), rel=1e-12)
    assert one.score(X) == pytest.approx(one.score(stored), rel=1e-12)


# ---------------------------------------------------------------------- extremes of legal data
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


@pytest.mark.filterwarnings("ignore:40 of 40 rows have the words of 9 or more other rows")
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
def test_a_fit_warns_if_most_documents_are_without_words(entry):
    X, estimator = entry.data(), entry.make(max_iter=1)
    n = X.shape[0]
    with pytest.warns(UserWarning, match=f"{n} of {n} rows have no words. Topics are the prior"):
        estimator.fit(0.0 * X)
    X[: n // 2] = 0.0
    estimator.fit(X)  # Half of the documents are not most of them.
    X[n // 2] = 0.0
    message = f"{n // 2 + 1} of {n} rows have no words. Topics come from the others only"
    with pytest.warns(UserWarning, match=message):
        estimator.fit(sp.csr_array(X))
    estimator.fit(X, sample_weight=X.any(axis=1))
    entry.make().partial_fit(0.0 * X).partial_fit(X)


@every_class_of_topic_models
def test_a_fit_warns_of_values_that_are_mostly_no_whole_numbers(entry):
    X = entry.data()
    with pytest.warns(UserWarning, match=r"whole numbers, such as 0\.693.*takes counts"):
        entry.make().fit(np.log1p(np.minimum(X, 1)))
    mostly_counts = np.where(np.arange(X.size).reshape(X.shape) % 3 == 0, 0.5 * X, X)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        entry.make().fit(mostly_counts).transform(0.3 * X)
    assert not any("whole numbers" in str(one.message) for one in seen)


@every_class_of_topic_models
def test_a_fit_warns_of_copies_of_a_text(entry):
    X = np.random.default_rng(0).poisson(1.0, (50, 30))
    copies = np.vstack([X, np.tile(X[:1], (9, 1))])
    entry.make().partial_fit(copies)
    with pytest.warns(UserWarning, match="10 of 59 rows have the words of 9 or more other rows"):
        entry.make(max_iter=1).fit(copies)
    entry.make(max_iter=1).fit(copies[1:])
    copies[:1, 4:] = copies[50:, 4:] = 0  # Texts of four words may be equal by chance.
    entry.make(max_iter=1).fit(copies)


@every_class_of_topic_models
def test_a_fit_does_not_warn_of_baskets_that_are_equal_by_chance(entry):
    rng = np.random.default_rng(0)
    # Three kinds of customers, who buy some of 15 products nearly always.
    shares = np.where(rng.random((3, 15)) < 0.4, 0.9, 0.05)
    X = (rng.random((600, 15)) < shares[rng.integers(3, size=600)]).astype(float)
    _, basket, n_rows = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    assert np.mean((n_rows[basket.ravel()] >= 10) & (X.sum(axis=1) >= 5)) > 0.1
    entry.make(max_iter=1).fit(X)
    # The same number of copies of texts is unlikely in a vocabulary of 300 words.
    texts = rng.multinomial(10, np.full(300, 1 / 300), 600).astype(float)
    texts[:100] = np.repeat(texts[:10], 10, axis=0)
    with pytest.warns(UserWarning, match="100 of 600 rows have the words of 9 or more other rows"):
        entry.make(max_iter=1).fit(texts)


@every_class_of_topic_models
def test_a_fit_warns_of_a_column_that_has_half_of_all_counts(entry):
    frame = pd.DataFrame(entry.data()).add_prefix("word")
    half = frame.assign(length=frame.sum(axis=1))
    with pytest.warns(UserWarning, match="The column 'length' has 50% of all counts"):
        entry.make(max_iter=1).fit(half)
    entry.make(max_iter=1).fit(half.assign(length=half["length"] - 1.0))
    few = half[["length", "word0"]].to_numpy()
    entry.make(max_iter=1).fit(few)


@every_class_of_topic_models
def test_missing_counts_of_lists_are_refused(entry):
    with pytest.raises(ValueError, match="Input X contains NaN"):
        entry.make().fit(spoiled(entry.data(), np.nan).tolist())


def test_errors_about_huge_numbers_name_the_column_of_the_first_rows():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [0.0, -1e200, 1.0]})
    with pytest.raises(ValueError, match=r"Got -1e\+200 in column 'b'"):
        MemoizedDPGMM().fit(frame)


@every_class_of_topic_models
def test_errors_for_counts_say_how_to_make_the_columns_of_the_fit(entry):
    words = [f"word{j}" for j in range(entry.data().shape[1])]
    frame = pd.DataFrame(entry.data(), columns=words)
    joined = frame.reindex(range(frame.shape[0] + 1))
    with pytest.raises(ValueError, match=r"first in column 'word0'\. .*by X\.fillna\(0\)"):
        entry.make().fit(joined)
    model = entry.make().fit(frame)
    with pytest.raises(
        ValueError, match=r"reindex\(columns=model\.feature_names_in_, fill_value=0"
    ):
        model.transform(frame[words[::-1]])
    with pytest.raises(ValueError, match=r"is expecting.*vectorizer\.transform\(texts\)"):
        entry.make().fit(entry.data()).transform(entry.data()[:, 1:])


@every_class
def test_the_remedy_for_a_column_that_a_frame_lacks_can_be_run(entry):
    X = pd.DataFrame(entry.data()).add_prefix("column ")
    model = entry.make().fit(X)
    X = X.iloc[::-1, :0:-1].assign(other=1.0)
    with pytest.raises(ValueError, match="yet now missing") as caught:
        model.score(X)
    (remedy,) = re.findall(r"Pass (X\.reindex\(.*\)), which", str(caught.value))
    assert np.isfinite(model.score(eval(remedy)))


@every_class
def test_tables_of_other_kinds_are_refused_with_a_remedy(entry):
    X = pd.DataFrame(entry.data()).add_prefix("column ")
    records = X.to_dict("records")
    tables = {
        r"X\.collect\(\)": pl.from_pandas(X).lazy(), r"pandas\.DataFrame\(X\)": records,
        r"pandas\.DataFrame\(\[X\]\)": records[0],
    }  # fmt: skip
    for remedy, table in tables.items():
        with pytest.raises(TypeError, match=f"must be a table in memory.*{remedy}"):
            entry.make().fit(table)


@every_class
def test_results_are_not_there_before_a_fit(entry):
    estimator = entry.make()
    for name in ("history_", "components_", "labels_", "table_report_"):
        if hasattr(type(estimator), name):
            with pytest.raises(NotFittedError):
                getattr(estimator, name)


@every_class
def test_data_frames_with_the_words_in_another_order_are_refused(entry):
    X = entry.data()
    words = [f"word{j}" for j in range(X.shape[1])]
    model = entry.make().fit(X)
    read = model.transform if hasattr(model, "transform") else model.score_samples
    expected, frame = read(X), pd.DataFrame(X, columns=words)
    model.set_words(words)
    for method in (read, model.score, model.partial_fit):
        with pytest.raises(ValueError, match=r"names of set_words.*model\.words_"):
            method(frame[words[::-1]])
    with pytest.warns(UserWarning, match="fitted without feature names"):
        np.testing.assert_array_equal(read(frame), expected)


@every_class_of_topic_models
def test_known_proportions_and_scores_are_exact(entry):
    """They are known of a document without words, of one topic and of one word."""
    X, alpha = entry.data(), np.array([0.2, 0.5, 1.3])
    estimator = entry.make(doc_topic_prior=alpha).fit(np.concatenate([X, 0.0 * X[:3]]))
    prior = np.tile(alpha / alpha.sum(), (2, 1))
    np.testing.assert_allclose(estimator.transform(0.0 * X[:2]), prior, rtol=1e-12)
    np.testing.assert_array_equal(entry.make(n_components=1).fit(X).transform(X), np.ones((40, 1)))
    word = X[:, :1] + 1.0
    assert entry.make().fit(word).score(word) == pytest.approx(0.0, abs=1e-12)


@every_class_of_topic_models
@pytest.mark.parametrize("weight", [1e-12, 1e12])
def test_weights_of_any_common_scale_are_taken(entry, weight):
    X = entry.data()
    estimator = entry.make(**entry.unwatched).fit(X, sample_weight=np.full(len(X), weight))
    _assert_sound(estimator, X)


@pytest.mark.quick_cases("TemperedLDA")
@every_class_of_topic_models
def test_weights_below_single_precision_are_refused(entry):
    X = entry.data().astype(np.float32)
    with refused(estimator := entry.make(), match="sample_weight"):
        estimator.fit(X, sample_weight=np.full(len(X), 1e-50))


# -------------------------------------------------------------------------------- parameters
def _message_on(entry, **params):
    return refusal(partial(entry.make, **params), entry.data())


WHOLE = r"int in the range \[1, inf\)"
POSITIVE, NOT_NEGATIVE = (rf"{bracket}0(\.0)?, inf\)" for bracket in (r"\(", r"\["))
# For each parameter: a pattern of the legal values in the message, and values that are illegal.
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
    assert "n_jobs == 0" in _message_on(entry, n_jobs=0)


def _ones_but(value, shape, place):
    array = np.ones(shape)
    array[place] = value
    return array


NOT_POSITIVE = (0.0, -1.0, np.nan, np.inf)
# Parameters of topic models, and parts of the message.
ILLEGAL_PRIORS = [
    *(({"doc_topic_prior": prior},
       ["'doc_topic_prior'", "a number or an array of n_components = 3 numbers", shape])
      for prior, shape in (([1.0, 1.0], "(2,)"), ([], "(0,)"), ([[1.0, 1.0, 1.0]], "(1, 3)"))),
    *(({"doc_topic_prior": prior}, ["doc_topic_prior", "(0, inf)", str(prior)])
      for prior in (_ones_but(bad, 3, 1) for bad in NOT_POSITIVE)),
    ({"topic_word_prior": np.ones(24)},
     ["'topic_word_prior'", "a number or an array of n_features = 25 numbers", "(24,)"]),
    ({"topic_word_prior": np.ones((2, 25))},
     ["an array of shape (n_components, n_features) = (3, 25)", "(2, 25)"]),
    *(({"topic_word_prior": prior}, ["topic_word_prior", "(0, inf)", str(prior)])
      for prior in (_ones_but(bad, 25, 1) for bad in NOT_POSITIVE)),
    *(({"topic_word_prior": _ones_but(bad, (3, 25), (2, 7))},
       [f"[1e-30, 1e+30]. Got {bad:g} for word 7 of topic 2"]) for bad in (*NOT_POSITIVE, 1e-40)),
    ({"n_components": True}, ["n_components"]),
]  # fmt: skip


@every_class_of_topic_models
def test_an_illegal_prior_is_named_with_its_fault(entry):
    for params, parts in ILLEGAL_PRIORS:
        message = _message_on(entry, **params)
        assert all(part in message for part in parts), message


def test_topics_whose_number_is_found_have_no_priors_of_their_own():
    (entry,) = (entry for entry in CLASSES if entry.cls is MemoizedHDP)
    message = _message_on(entry, n_components=3, topic_word_prior=np.ones((3, 25)))
    assert "n_features = 25" in message and "shape (3, 25)" in message
    assert "share one prior" in message and "components_init" in message


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
    """An object with the attributes of an AnnData."""

    X, var_names, shape = np.ones((4, 2)), ["a", "b"], (4, 2)


class InFile:
    """An object with the attributes of a sparse matrix of an AnnData in a file."""

    shape, format, to_memory = (4, 2), "csr", sp.csr_array


ANNOTATED = r"X is an Annotated, .* pass X\.X.* set_words\(X\.var_names\).* X\.to_df\(\)"
IN_FILE = r"X is a InFile, a sparse matrix .* Pass X\.to_memory"
PATHS = "X has paths, such as 'a.txt'. Read the files first.*read_text.*CountVectorizer"


OTHER_KINDS = [
    *((entry, Annotated(), TypeError, ANNOTATED) for entry in CLASSES),
    *((entry, InFile(), TypeError, IN_FILE) for entry in CLASSES),
    *(
        (entry, [Path("a.txt")] * 2, ValueError, PATHS)
        for entry in CLASSES
        if is_topic_model(entry)
    ),
]


def names_of_kinds(value):
    return type(value).__name__ if isinstance(value, Annotated | InFile) else str(value)


@pytest.mark.parametrize("entry, X, error, message", OTHER_KINDS, ids=names_of_kinds)
def test_other_kinds_of_data_are_refused_with_the_remedy(entry, X, error, message):
    with refused(estimator := entry.make(), error, match=message):
        estimator.fit(X)


@every_class_of_topic_models
def test_writing_to_a_shown_prior_does_not_change_the_model(entry):
    model = entry.make(topic_word_prior=np.full(25, 0.2)).fit(entry.data())
    expected = model.transform(entry.data())
    model.topic_word_prior_[:] = 9.0
    np.testing.assert_array_equal(model.topic_word_prior_, 0.2)
    np.testing.assert_array_equal(model.transform(entry.data()), expected)
