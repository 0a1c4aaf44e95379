"""Validation of data and parameters.

Errors name the illegal value, the legal range and the remedy. The argument ``caller`` is the name
of the class or the function that the user has called with the rows, for the text of errors.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher
from importlib import import_module
from numbers import Integral, Real
from os import PathLike

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skvt.files import LARGEST, LEGAL_RANGE, is_in_legal_range

# Remedy in errors for columns of text.
TEXT_REMEDY = (
    "Encode such columns first, by OneHotEncoder or, if categories have an order, OrdinalEncoder "
    "from sklearn.preprocessing. MemoizedDPMixture takes them as they are."
)

# Remedy in errors for columns of dates.
DATE_REMEDY = (
    "Turn dates into numbers, such as (dates - dates.min()) / numpy.timedelta64(1, 'D') for days, "
    "or leave the column out."
)
# Beginnings of the names, in lower case, of types of dates, times and durations.
_NAMES_OF_DATES = ("date", "time", "duration", "period")

# Number of entries that `require_binary` checks at a time.
_ENTRIES_PER_CHECK = 2**20

# Largest absolute value of real data by precision. Squares, and their sums over rows and columns,
# must be finite in the precision of the data, because results have that precision.
MAX_VALUE = {np.dtype(np.float32): 1e15, np.dtype(np.float64): 1e100}


def is_frame(X):
    """Return whether X is a data frame of pandas, polars, PyArrow or a similar package."""
    # The first comparison saves the slower second one for arrays.
    return type(X) is not np.ndarray and nw.dependencies.is_into_dataframe(X)


def is_date_type(dtype):
    """Return whether a type of any package, or its name, is of dates, times or durations."""
    return str(dtype).lower().startswith(_NAMES_OF_DATES)


def require_rows(X, caller, *, missing, dates=False):
    """Return rows with NaN or None in place of masked values; raise an error if they are illegal.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame
        Rows.
    caller : str
        Name of the class or function that the user has called, for errors.
    missing : bool
        Whether values may be missing.
    dates : bool, default=False
        Whether columns of a data frame may hold dates.

    Returns
    -------
    array-like, sparse matrix or data frame
        X itself, unless it is a masked array.

    Raises
    ------
    TypeError
        If X is an AnnData or no table in memory, or has dates and ``dates`` does not allow them.
    ValueError
        If column names are repeated, or if X has masked values and ``missing`` does not allow them.
    """
    _refuse_anndata(X, caller)
    _refuse_other_tables(X)
    if is_frame(X):
        _require_distinct_names(X)
    if not (is_frame(X) and dates):
        _refuse_dates(X, caller)
    return replace_masked_values(X, missing, caller)


def require_order_of(X, **values_by_name):
    """Raise ValueError if arguments about the rows of X have their labels in different orders.

    Data frames and series of pandas have an index, the labels of the rows. Rows are matched by
    position, which contradicts an index that has the labels of X in another order. An index with
    other labels says nothing about the order, because it may have been reset.

    ``values_by_name`` are the arguments by their names in errors. All are compared with X or, if X
    has no index, with the first argument that has one.
    """
    arguments = {"X": X, **values_by_name}
    indexes = {name: _get_index(values) for name, values in arguments.items()}
    indexes = {name: index for name, index in indexes.items() if index is not None}
    first, first_index = next(iter(indexes.items()), (None, None))
    for name, index in indexes.items():
        if len(index) != len(first_index) or index.equals(first_index):
            continue
        # Indexes of different types may have equal labels.
        pairs = enumerate(zip(index, first_index, strict=True))
        differing_rows = [row for row, (label, first_label) in pairs if label != first_label]
        if differing_rows and _have_same_values(index, first_index):
            row = differing_rows[0]
            sort = f"{name}.loc[{first}.index]" if index.is_unique else "both in the same order"
            raise ValueError(
                f"The index of {name} has the labels of {first} in another order: the label of row "
                f"{row} is {index[row]}, and that of {first} is {first_index[row]}. Rows are "
                f"matched by position. If the labels name the rows, pass {sort}. If the positions "
                f"match, pass {name}.reset_index(drop=True)."
            )


def _have_same_values(values, other_values):
    """Return whether two collections have the same values equally often; False for unhashables."""
    try:
        return Counter(values) == Counter(other_values)
    except TypeError:
        return False


def _get_index(values):
    """Return the index of a data frame or a series of pandas or a similar package, else None."""
    is_like_pandas_frame = nw.dependencies.is_pandas_like_dataframe(values)
    has_index = is_like_pandas_frame or nw.dependencies.is_pandas_like_series(values)
    return values.index if has_index else None


def _refuse_anndata(X, caller):
    """Raise TypeError for an AnnData, or for the sparse matrix of an AnnData that is in a file.

    The class AnnData of the package anndata holds a matrix with names of rows and columns. Objects
    are recognised by their attributes, because the package need not be installed.
    """
    if hasattr(X, "to_memory") and hasattr(X, "format"):
        raise TypeError(
            f"{caller} takes rows in memory, but X is a {type(X).__name__}, a sparse matrix in a "
            "file. Pass X.to_memory(), or parts of its rows, X[:1000] and so on, to partial_fit."
        )
    if hasattr(X, "var_names") and hasattr(X, "X"):
        raise TypeError(
            f"X is an {type(X).__name__}, and {caller} takes its matrix: pass X.X, or one of "
            "X.layers; after the fit, call set_words(X.var_names), and tables and displays show "
            "these names. A mixture also takes X.to_df(), a table with the names of its columns. "
            'Results of transform belong into X.obsm["topics"], say.'
        )


def _refuse_other_tables(X):
    """Raise TypeError for lazy frames, dicts, lists of dicts, and structured arrays."""
    # Lazy frames have the method ``collect_schema``, and only structured arrays have a type with
    # names of fields.
    is_lazy = hasattr(X, "collect_schema") and not is_frame(X)
    is_structured = getattr(getattr(X, "dtype", None), "names", None)
    is_list_of_dicts = isinstance(X, list) and X and isinstance(X[0], dict)
    # Sparse matrices in the format "dok" are dicts.
    is_dict = isinstance(X, dict) and not sp.issparse(X)
    if is_lazy or is_dict or is_list_of_dicts or is_structured:
        is_record = is_dict and any(np.ndim(value) == 0 for value in X.values())
        rows = "[X]" if is_record else "X"
        remedy = "X.collect()" if is_lazy else f"pandas.DataFrame({rows})"
        raise TypeError(
            f"X must be a table in memory. Got an object of type {type(X).__name__}: pass {remedy}."
        )


def refuse_masked_weights(sample_weight):
    """Raise ValueError for masked weights, because each row needs a weight."""
    if np.ma.is_masked(sample_weight):
        raise ValueError(
            f"{np.count_nonzero(np.ma.getmaskarray(sample_weight))} values of sample_weight are "
            "masked, but each row needs a weight. Set the weights of rows that do not count to 0: "
            "sample_weight.filled(0)."
        )


def _column_names(X):
    """Return the names of the columns of a data frame, which may repeat."""
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def _require_distinct_names(X):
    """Raise ValueError if several columns of a data frame have one name."""
    names = _column_names(X)
    if len(set(names)) < len(names):
        name = max(names, key=names.count)
        raise ValueError(
            f"Column names must be distinct. Got {name!r} {names.count(name)} times. Rename these "
            "columns, or keep the first of them, in pandas by X.loc[:, ~X.columns.duplicated()]."
        )


def _refuse_dates(X, caller):
    """Raise TypeError for an array of dates, or a data frame with a column of dates."""
    # The type of each column, or of X itself, by its description in the error.
    if isinstance(X, np.ndarray):
        types = {"X": X.dtype} if X.dtype.kind in "mM" else {}
    elif is_frame(X):
        dtypes = X.dtypes if hasattr(X, "dtypes") else X.schema.types
        names = (f"column {name!r}" for name in _column_names(X))
        types = dict(zip(names, dtypes, strict=True))
    else:
        types = {}
    for name, dtype in types.items():
        if is_date_type(dtype):
            raise TypeError(f"{caller} takes numbers, but {name} is of type {dtype}. {DATE_REMEDY}")


def replace_masked_values(X, takes_missing, caller):
    """Return rows X with NaN or None in place of masked values.

    X is returned as it is unless it is a masked array. Raise ValueError if there are masked values
    and ``takes_missing`` is false.
    """
    if not isinstance(X, np.ma.MaskedArray):
        return X
    values, is_masked = np.asarray(X.data), np.ma.getmaskarray(X)
    if not is_masked.any():
        return values
    if not takes_missing:
        raise ValueError(
            f"{np.count_nonzero(is_masked)} values of X are masked, but {caller} takes no missing "
            "values. Fill them in by X.filled(value), or leave their rows out."
        )
    is_numeric = values.dtype.kind in "iuf"
    # Integers are converted to the smallest type of floats that can represent them and NaN.
    dtype = np.result_type(values.dtype, np.float16) if is_numeric else object
    values = values.astype(dtype)
    values[is_masked] = np.nan if is_numeric else None
    return values


def illegal_value_error(name, legal, got):
    """Return the error for an illegal parameter.

    ``legal`` describes the legal values, and ``got`` describes the value of the parameter.
    """
    return ValueError(f"The {name!r} parameter must be {legal}. Got {got} instead.")


def check_choice(name, value, legal):
    """Raise ValueError unless the parameter is one of the legal values."""
    if value not in legal:
        raise illegal_value_error(name, f"one of {', '.join(map(repr, legal))}", repr(value))


def check_probability(name, value):
    """Raise ValueError unless the value is a number between 0 and 1."""
    if not isinstance(value, Real) or not 0.0 < value < 1.0:
        raise illegal_value_error(name, "a number in the range (0, 1)", repr(value))


def require_positive_int(name, value):
    """Return the value as an int; raise ValueError unless it is a positive integer."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an int in the range [1, inf). Got {value!r} instead.")
    return int(value)


def show_first(values, n_shown=10):
    """Return the first ``n_shown`` values of a list as text, with dots in place of later values."""
    return ", ".join(map(repr, values[:n_shown])) + (", ..." if len(values) > n_shown else "")


def show_similar(value, options):
    """Return the first five options as text, the most similar to ``value`` first."""

    def similarity(option):
        """Return the similarity of the texts, regardless of capitals."""
        return SequenceMatcher(None, str(value).lower(), str(option).lower()).ratio()

    return show_first(sorted(options, key=similarity, reverse=True), 5)


def find_text(X):
    """Return the first string or path in rows, a column or a table; None if there is none."""
    if isinstance(X, str | bytes | PathLike):
        return X
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if isinstance(X, np.ndarray):
        # Only arrays of objects, bytes and strings can hold strings.
        X = X.ravel() if X.dtype.kind in "OSTU" else ()
    for row in X if isinstance(X, list | tuple | np.ndarray) else ():
        entries = row if isinstance(row, list | tuple | np.ndarray) else (row,)
        for entry in entries:
            if isinstance(entry, str | bytes | PathLike):
                return entry
    return None


def refuse_bags(X, caller):
    """Raise ValueError if X is a list of bags of words, as gensim has them.

    A bag is a list of tuples (id of a word, count). The first tuple decides.
    """
    rows = X if isinstance(X, list | tuple) else ()
    # The first row that is not an empty bag.
    first_bag = next((row for row in rows if not isinstance(row, list | tuple) or row), None)
    pair = first_bag[0] if isinstance(first_bag, list | tuple) else None
    if isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(v, Real) for v in pair):
        raise ValueError(
            f"{caller} takes a matrix of counts, but X is a list of bags of words with pairs such "
            f"as {pair!r}. Pass gensim.matutils.corpus2csc(X, num_terms=len(dictionary)).T, where "
            "the dictionary has the words of X."
        )


def to_canonical_csr(X):
    """Return a sparse matrix as a CSR array that stores each entry once, sorted by column."""
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def sum_entries(X, weights=None):
    """Return the sum of the entries of X that are not missing, in float64.

    ``weights`` are the weights of the rows; None is 1 for each row.
    """
    values = X.data if sp.issparse(X) else X
    with np.errstate(over="ignore", invalid="ignore"):
        if weights is None:
            # Try ``sum`` first, because ``nansum`` copies the data.
            total = float(values.sum(dtype=np.float64))
            return float(np.nansum(values, dtype=np.float64)) if np.isnan(total) else total
        if sp.issparse(X):
            # Each stored entry has the weight of its row.
            weights = np.repeat(weights, np.diff(X.indptr))
            return float(np.nansum(weights * values))
        return float(np.nansum(weights * np.nansum(values, axis=1, dtype=np.float64)))


def require_counts(X, caller, entries_name="counts of words", remedy=""):
    """Raise ValueError if X has negative entries, or if their sum is neither 0 nor in LEGAL_RANGE.

    Missing entries, which are NaN, are ignored. ``entries_name`` is the name of the entries in the
    error about negative entries, and ``remedy`` is the last sentence of this error.
    """
    values = X.data if sp.issparse(X) else X
    # The initial value serves the case that there are no entries.
    lowest = np.nanmin(values, initial=0.0)
    if lowest < 0.0:
        raise ValueError(
            f"Negative values in data passed to {caller}: the lowest is {lowest:g}, but "
            f"{entries_name} must be in the range [0, inf).{remedy}"
        )
    total = sum_entries(X)
    if total > 0.0 and not is_in_legal_range(total):
        raise ValueError(
            f"The data passed to {caller} must add up to 0 or a number in {LEGAL_RANGE}. The sum "
            f"is {total:g}; divide all values by one number."
        )


def require_binary(values):
    """Raise ValueError unless all values are 0, 1 or NaN."""
    # Check some rows at a time: each of the three masks of all entries would take an eighth of the
    # memory of the data, or more.
    n_rows = max(1, _ENTRIES_PER_CHECK // max(1, values[:1].size))
    for start in range(0, len(values), n_rows):
        some_rows = values[start : start + n_rows]
        is_illegal = (some_rows != 0.0) & (some_rows != 1.0) & ~np.isnan(some_rows)
        if is_illegal.any():
            value = some_rows[is_illegal].flat[0]
            raise ValueError(
                f"X must be binary: 0 or 1, or NaN where a value is missing. Got {value:g}. If "
                f"{value:g} stands for a missing value, replace it by NaN; if all values are "
                "counts or measurements, set 'binarize' to a threshold, such as 0 for counts, "
                "above which they count as 1. If 1 means yes and 2 means no, pass 2 - X."
            )


def require_prior(name, value):
    """Raise ValueError unless a parameter of a prior, or each of its numbers, is in LEGAL_RANGE."""
    if not is_in_legal_range(value):
        raise ValueError(
            f"The {name!r} parameter must be in {LEGAL_RANGE}; numbers beyond this range would "
            f"act like its ends. Got {value!r} instead."
        )


def check_magnitude(X, name_column):
    """Raise ValueError for real values whose squares would leave the range of the precision.

    ``name_column`` returns the name of the column of a mask of illegal values.
    """
    if X.size == 0:
        return
    # fmin and fmax ignore NaN without a copy of X.
    lowest, highest = np.fmin.reduce(X, axis=None), np.fmax.reduce(X, axis=None)
    limit = MAX_VALUE[X.dtype]
    if max(-lowest, highest) > limit:
        # Show the value with the largest magnitude.
        value = lowest if -lowest > highest else highest
        remedy = "scale the columns" + (", or use float64" if X.dtype == np.float32 else "")
        raise ValueError(
            f"Values must be in the range [{-limit:g}, {limit:g}] in {X.dtype}, so that sums of "
            f"squares stay finite. Got {value:g} in column {name_column(value == X)!r}; {remedy}."
        )


def check_variance(name, variance, dtype, mean_square=0.0):
    """Raise ValueError unless the variance is in the range of squares of legal values.

    The variance must also not be too small compared with ``mean_square``, the mean square of the
    data, because the quotient of the mean square and the variance is squared and summed over rows.
    """
    highest = MAX_VALUE[np.dtype(dtype)] ** 2
    lowest = max(1.0 / highest, mean_square / LARGEST)
    if not lowest <= variance <= highest:
        raise ValueError(
            f"The {name!r} parameter must be in the range [{lowest:g}, {highest:g}] for these "
            f"data in {np.dtype(dtype)}. Got {variance:g}. Scale the columns to a variance near "
            "1, and set variances on that scale."
        )


def out_of_range_error(symptom):
    """Return the error for a fit whose numbers leave the range of floating point.

    ``symptom`` is the evidence for the error, such as an infinite bound.
    """
    return ValueError(
        f"A number of this fit is beyond the range or precision of floating point ({symptom}). "
        "Scale the columns to a variance near 1, and choose variances, priors and weights of rows "
        "that are not many orders of magnitude larger or smaller."
    )


def find_stack_level():
    """Return the ``stacklevel`` with which a warning shows the line of the user's code.

    It is the last line before the calls of this package and of packages that it uses.
    """
    # ``_getframe(1)`` is the frame of the function that issues the warning.
    frame, level = sys._getframe(1), 1
    packages = {"skvt", "sklearn", "contextlib", "functools"}
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        frame, level = frame.f_back, level + 1
    return level


def warn_of_empty_rows(X):
    """Warn of rows without any value, which the prior alone assigns to components."""
    values = X.data if sp.issparse(X) else X
    # The minimum is NaN if any value is NaN.
    if values.size == 0 or not np.isnan(values.min()):
        return
    if sp.issparse(X):
        # Only stored values can be missing, because entries that are not stored are 0. ``rows`` has
        # the row of each stored value.
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        n_missing = np.bincount(rows[np.isnan(values)], minlength=X.shape[0])
    else:
        n_missing = np.isnan(X).sum(axis=1)
    n_empty_rows = int(np.sum(n_missing == X.shape[1]))
    if n_empty_rows:
        warnings.warn(
            f"{n_empty_rows} of {X.shape[0]} rows have NaN only. They are assigned by the prior "
            "probabilities of the components; leave these rows out if that is not intended.",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def warn_of_rows_without_words(X):
    """Warn of rows of counts X, without stored zeros, whose topics the prior alone determines."""
    n_empty_rows = int(np.count_nonzero(np.diff(X.indptr) == 0))
    if n_empty_rows:
        warnings.warn(
            f"{n_empty_rows} of {X.shape[0]} rows have no words that the model knows. Their "
            "proportions are the mean of their prior and say nothing about the texts. Leave these "
            "rows out, or count their words as for the fit, by its vectorizer.",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def split_pipeline(estimator):
    """Return the preprocessing and the last step of a pipeline.

    The preprocessing is None if the estimator is no pipeline, or a pipeline of one step.
    """
    if not isinstance(estimator, Pipeline):
        return None, estimator
    return (estimator[:-1] if len(estimator) > 1 else None), estimator[-1]


def require_fitted(model):
    """Raise NotFittedError if ``model`` is not fitted, and TypeError if it is no estimator."""
    # The error of scikit-learn would print all of the object, such as a matrix of topics.
    if not hasattr(model, "fit"):
        raise TypeError(
            "A fitted estimator, or a pipeline that ends in one, is needed. Got an object of type "
            f"{type(model).__name__}. It has no method 'fit'. To begin a fit with topics of "
            "another library, pass them as components_init of StructuredLDA or TemperedLDA; under "
            "a strong topic_word_prior they stay as they are."
        )
    check_is_fitted(model)


def find_column_names(estimator, feature_names=None):
    """Return the names of the columns of a fitted estimator or pipeline, or None.

    The names are taken from the first source that has some: ``feature_names``, ``words_`` of the
    model, the preprocessing of a pipeline, the columns of X in ``fit``.
    """
    preprocessing, model = split_pipeline(estimator)
    if feature_names is not None:
        return feature_names
    words = getattr(model, "words_", None)
    if words is None and preprocessing is not None:
        return preprocessing.get_feature_names_out()
    return getattr(model, "feature_names_in_", None) if words is None else words


def list_names(names, n_features=None):
    """Return the names of the columns in order, from a mapping; return other names as they are.

    A mapping has either the name of each column by its number, as the Dictionary of gensim has, or
    the number of the column of each name, as ``vocabulary_`` of CountVectorizer. In the second
    case, all keys are strings. Raise ValueError unless each of the columns 0, ..., n_features - 1
    has one name. If ``n_features`` is None, it is the number of entries.
    """
    if not isinstance(names, Mapping):
        return names
    n_features = len(names) if n_features is None else n_features
    has_numbers = bool(names) and all(isinstance(key, str) for key in names)
    pairs = [(names[key], key) if has_numbers else (key, names[key]) for key in names]
    name_of_column = {number: name for number, name in pairs if isinstance(number, Integral)}
    unnamed = [column for column in range(n_features) if column not in name_of_column]
    if unnamed or len(pairs) != n_features:
        missing = f" and none for column {unnamed[0]}" if unnamed else ""
        raise ValueError(
            f"A dict of names must have one name for each of the {n_features} columns of X, as "
            "{0: 'cat', 1: 'mouse'} or as {'cat': 0, 'mouse': 1}. Got a dict with "
            f"{len(pairs)} entries{missing}. From gensim, pass the Dictionary of the counts "
            "itself, because its id2token may be empty until it is used."
        )
    return [name_of_column[column] for column in range(n_features)]


def require_column_names(estimator, feature_names, n_features):
    """Return the known names of the columns (n_features,), or the numbers 0, 1, ... instead."""
    known = find_column_names(estimator, feature_names)
    names = np.arange(n_features) if known is None else np.asarray(list_names(known, n_features))
    if names.shape != (n_features,):
        raise ValueError(
            f"feature_names must be {n_features} names, one for each column of X. Got an array of "
            f"shape {names.shape} instead."
        )
    return names


def require_word_counts(X, caller, *, warns=False):
    """Return counts as a CSR matrix without duplicates and stored zeros; refuse illegal counts.

    If ``warns``, a warning is issued if most values are not whole numbers.
    """
    X = sp.csr_array(X)
    require_counts(X, caller, "counts of words", " Pass counts, such as CountVectorizer's.")
    fractions = X.data[X.data != np.floor(X.data)] if warns else X.data[:0]
    if warns and 2 * fractions.size > np.count_nonzero(X.data):
        warnings.warn(
            f"Most values are not whole numbers, such as {fractions[0]:.3g}, but {caller} takes "
            "counts. Pass the counts themselves, not their logarithms, shares or TF-IDF weights.",
            UserWarning,
            stacklevel=find_stack_level(),
        )
    if X.has_canonical_format and (X.nnz == 0 or X.data.min() > 0.0):
        return X
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def require_package(name, error_text):
    """Import and return an optional package; raise ImportError with ``error_text`` without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(error_text) from error
