"""Columns of arrays of objects and of data frames: their kinds and values, and replaced values.

The package narwhals gives pandas, polars, PyArrow and modin one interface. The *container* is the
array or data frame of the user. A :class:`Column` refers to the values in the container, and
converts them to numbers or to objects on demand. A *series* is a column of a data frame behind the
interface of narwhals.
"""

from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from skvt.readers.validation import DATE_REMEDY, is_date_type, is_frame

# Name of the type of arbitrary objects in polars. Polars cannot cast columns of this type, nor
# assign values to them.
_POLARS_OBJECT = "Object"
# Names of the types of pandas.NA and pandas.NaT.
_MISSING_TYPES = ("NAType", "NaTType")
# Types of values in columns of objects. Datetimes of Python and pandas are instances of date.
_NUMBERS = Real | Decimal
_DATES = date | time | timedelta | np.datetime64 | np.timedelta64
# Remedy for entries of a column that hold several values.
ENTRY_REMEDY = (
    "Each entry of the argument must be a string, a number or another hashable value. Make a "
    "separate column of each part of an entry, for example by pandas.DataFrame(column.tolist()), "
    "or leave the column out."
)


def list_column_names(X):
    """Return the names of the columns of a data frame, or the positions 0, 1, ... of an array."""
    return tuple(_wrap_frame(X).columns) if is_frame(X) else tuple(range(X.shape[1]))


def get_container_name(X):
    """Return the name of the package of the data frame X, such as "pandas", or "array"."""
    return _wrap_frame(X).implementation.value if is_frame(X) else "array"


def copy_frame(X):
    """Return a copy of a data frame, whose values may be changed."""
    return _wrap_frame(X).clone().to_native()


def _wrap_frame(X):
    """Return the narwhals data frame that wraps X, a data frame of any package."""
    return nw.from_native(X, eager_only=True)


@dataclass(frozen=True)
class Column:
    """A column of a data frame or of an array of objects."""

    # "real", "category" or "binary", the kinds that components="auto" reads; "date" for dates,
    # times and durations; None for other values, such as lists.
    kind: str | None
    # Name of the type in the container, for reports and errors.
    type: str
    # The values: a series of narwhals, or an array.
    values: Any
    # The categories in order, if the type declares them; otherwise None.
    categories: Any = None

    @property
    def remedy(self):
        """Remedy for errors about a column of the kind "date" or None, which cannot be read."""
        return DATE_REMEDY if self.kind == "date" else ENTRY_REMEDY

    def to_numbers(self):
        """Return the values as float64, NaN where missing; raise an error for other values.

        Whole numbers beyond the range of float64 become infinite, which later checks refuse.
        """
        # Do not cast categories, because a cast might return their codes.
        if self.kind != "category" and isinstance(self.values, nw.Series):
            return self.values.cast(nw.Float64).to_numpy()
        values = np.array([np.nan if value is None else value for value in self.to_objects()])
        try:
            return values.astype(np.float64)
        except OverflowError:
            # Texts of such numbers are read as infinity.
            return values.astype(str).astype(np.float64)

    def to_objects(self):
        """Return the values as an array of objects, None where missing."""
        is_series = isinstance(self.values, nw.Series)
        values = self.values.to_list() if is_series else self.values.tolist()
        entries = [None if is_missing(value) else value for value in values]
        return np.fromiter(entries, object, len(entries))


def is_missing(value):
    """Return whether a value of a column is None, NaN, NA or NaT."""
    # Only NaN differs from itself.
    return value is None or type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and value != value
    )  # fmt: skip


def find_declared_order(values):
    """Return the categories in order if the type of ``values`` orders them; None for other types.

    The types are the ordered categorical type of pandas and the type Enum of polars.
    """
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "ordered", False):
        return dtype.categories.tolist()
    if not nw.dependencies.is_into_series(values):
        return None
    series = nw.from_native(values, series_only=True)
    return series.cat.get_categories().to_list() if series.dtype == nw.Enum else None


def list_columns(X):
    """Return the list of the :class:`Column` objects of a data frame or an array of objects.

    Return None for sparse X or an array of floats, whose columns need no description.
    """
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind == "f"):
        return None
    if is_frame(X):
        return [_read_series(series) for series in _wrap_frame(X).iter_columns()]
    return [_read_objects(X[:, j]) for j in range(X.shape[1])]


def _read_series(series):
    """Return the :class:`Column` of a series of a data frame."""
    dtype, native = series.dtype, series.to_native()
    # Name of the type in the container.
    name = str(native.dtype if hasattr(native, "dtype") else native.type)
    if dtype in (nw.Categorical, nw.Enum):
        # Only Enum of polars and the categorical type of pandas declare their categories.
        declares_categories = dtype == nw.Enum or name == "category"
        categories = series.cat.get_categories().to_list() if declares_categories else None
        return Column("category", name, series, categories)
    if dtype == nw.Object:
        values = series.to_list()
        return _read_objects(np.fromiter(values, object, len(values)), name)
    if dtype == nw.String:
        return Column("category", name, series)
    if dtype == nw.Boolean:
        return Column("binary", name, series)
    if dtype.is_numeric():
        return Column("real", name, series)
    if is_date_type(name):
        return Column("date", name, series)
    if dtype != nw.Unknown:
        # Other types, such as lists, and columns of polars without values have no kind.
        return Column(None, name, np.empty(0, "V"))
    # Sparse columns of pandas, and columns of PyArrow without values, have the type Unknown of
    # narwhals, and are read as arrays.
    values = np.asarray(native)
    if name.startswith("null"):
        return _read_objects(values, name)
    kind = {"b": "binary", "i": "real", "u": "real", "f": "real"}.get(values.dtype.kind)
    return Column(kind, name, values)


def _read_objects(values, name="object"):
    """Return the :class:`Column` of an array of objects.

    ``name`` is the name of the type in the container. The kind depends on the objects that are not
    missing:

    - "binary" if all are booleans,
    - "real" if all are numbers, or if the column has no such object,
    - "date" if all are dates,
    - None if another object is not hashable,
    - "category" otherwise.
    """
    observed = [value for value in values if not is_missing(value)]
    types = {type(value) for value in observed}
    if types and all(issubclass(type_, bool | np.bool_) for type_ in types):
        return Column("binary", "bool", values)
    if all(issubclass(type_, _NUMBERS) for type_ in types):
        return Column("real", name, values)
    if all(issubclass(type_, _DATES) for type_ in types):
        return Column("date", f"{name} ({min(type_.__name__ for type_ in types)})", values)
    try:
        # Categories must be hashable.
        set(observed)
    except TypeError as error:
        return Column(None, f"{name} ({error})", values)
    return Column("category", name, values)


def find_unread_column(X):
    """Return ``(name, column)`` of the first column of dates, or of values that cannot be read.

    Return None if X has no such column, or if X is neither a data frame nor an array of objects.
    """
    if is_frame(X) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2):
        for name, column in zip(list_column_names(X), list_columns(X), strict=True):
            if column.kind in (None, "date"):
                return name, column
    return None


def fill_column(X, j, mask, values):
    """Return X with ``values`` in the rows of column j that ``mask`` (n_rows,) marks.

    An array is changed in place; a data frame is not changed. The column keeps its type, but a
    column of integers or booleans that cannot represent a value becomes a column of floats.
    """
    if isinstance(X, np.ndarray):
        X[mask, j] = values
        return X
    frame = _wrap_frame(X)
    series = frame[:, int(j)]
    # Make an array of the type of the values, or of objects if the values have several types.
    values = make_level_array(values)
    rows = np.flatnonzero(mask)
    are_numbers = values.dtype.kind in "biuf"
    holds_numbers = series.dtype.is_numeric() or series.dtype == nw.Boolean
    is_other_type = are_numbers != holds_numbers or series.dtype == nw.Unknown
    if mask.all() and is_other_type and series.dtype not in (nw.Categorical, nw.Enum, nw.Object):
        # No value was observed, and the type is a default, such as that of NaN.
        entries = values if are_numbers else values.tolist()
        series = nw.new_series(series.name, entries, backend=frame.implementation)
        return frame.with_columns(series).to_native()
    if are_numbers and series.dtype not in (nw.Categorical, nw.Enum, nw.Object):
        series, values = _widen_for_values(series, values)
    # Replace a column of objects of polars by a new one, because polars cannot assign to it. The
    # name of the type identifies it: pandas has columns of objects, too, but can assign to them.
    if str(getattr(series.to_native(), "dtype", "")) == _POLARS_OBJECT:
        entries = series.to_list()
        for row, value in zip(rows, values.tolist(), strict=True):
            entries[row] = value
        series = nw.new_series(series.name, entries, nw.Object, backend=frame.implementation)
    else:
        dtype = series.dtype
        entries = values.tolist() if values.dtype == object else values
        if dtype == nw.Categorical and frame.implementation.is_polars():
            # polars 1.0 cannot scatter strings into a categorical column.
            series = series.cast(nw.String).scatter(rows, entries).cast(dtype)
        else:
            series = series.scatter(rows, entries)
    return frame.with_columns(series).to_native()


def _widen_for_values(series, values):
    """Convert a series of numbers to a type that can hold ``values``; return series and values.

    If the type of the series can hold the values exactly, or is a type of floats, the values are
    converted to this type. Otherwise the series is converted to Float64.
    """
    try:
        # Other names of types are the same in NumPy, except for capitals.
        is_boolean = series.dtype == nw.Boolean
        dtype = np.dtype("bool" if is_boolean else str(series.dtype).lower())
    except TypeError:
        # Decimals and columns without values have no type in NumPy.
        return series.cast(nw.Float64), values
    with np.errstate(over="ignore", invalid="ignore"):
        converted = values.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(converted, values):
        return series.cast(nw.Float64), values
    return series, converted


def make_frame(columns, types, container):
    """Return a data frame of the package ``container``.

    ``columns`` has the array of values of each column by its name. ``types`` has, by the name of
    the column, the name of its type in the frame that was passed to ``fit``.
    """
    frames = []
    for name, values in columns.items():
        is_polars_object = types[name] == _POLARS_OBJECT and values.dtype == object
        dtype = nw.Object if is_polars_object else None
        # Only pandas makes a column from an array of objects; other packages need a list.
        takes_list = values.dtype == object and container != "pandas"
        entries = values.tolist() if takes_list else values
        frames.append(nw.new_series(name, entries, dtype, backend=container).to_frame())
    return nw.concat(frames, how="horizontal").to_native()


def as_objects(values):
    """Return values as an array of objects, in which numbers of NumPy became numbers of Python."""
    return np.fromiter(map(to_python, values), object, len(values))


def make_level_array(categories):
    """Return categories as an array of their type, or as an array of objects.

    An array of objects is returned if categories have several types, or if an array of their type
    would change their values: an array of strings, for example, drops null characters at the ends.
    """
    # A category with a dimension, such as a tuple, would become several entries of an array.
    if len({type(value) for value in categories}) == 1 and np.ndim(categories[0]) == 0:
        array = np.array(list(categories))
        if array.tolist() == list(map(to_python, categories)):
            return array
    return as_objects(categories)


def to_python(value):
    """Return a number of NumPy as a number of Python, and other values as they are."""
    return value.item() if isinstance(value, np.generic) else value
