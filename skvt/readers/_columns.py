"""Columns of tables: of arrays of objects, and of the data frames that narwhals knows."""

from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from skvt.readers.validation import NO_DATES, is_frame, is_of_dates

# Name of polars' type of arbitrary objects; polars cannot cast such columns or assign to them.
OBJECT_OF_POLARS = "Object"
_MISSING_TYPES = ("NAType", "NaTType")
# Types of values in columns of objects; datetimes of Python and pandas are instances of date.
_NUMBERS = Real | Decimal
_DATES = date | time | timedelta | np.datetime64 | np.timedelta64
# Remedy for cells that hold several values.
ONE_VALUE = (
    "Each entry of the argument must be a string, a number or another hashable value. Give each "
    "part of an entry a separate column, such as pandas.DataFrame(column.tolist()), or leave the "
    "column out."
)
# Remedies for columns that are not read, by kind.
_REMEDIES = {
    "date": NO_DATES,
    None: ONE_VALUE,
}


def names_of(X):
    """Return the names of the columns of a data frame, or the positions of those of an array."""
    return tuple(_frame(X).columns) if is_frame(X) else tuple(range(X.shape[1]))


def container_of(X):
    """Return the name of the package of a data frame, or "array"."""
    return _frame(X).implementation.value if is_frame(X) else "array"


def copy_of(X):
    """Return a copy of a data frame, whose values may be changed."""
    return _frame(X).clone().to_native()


def _frame(X):
    return nw.from_native(X, eager_only=True)


@dataclass(frozen=True)
class Column:
    """One column of a container: its kind, and how to read it.

    ``kind`` is "real", "category" or "binary", as components="auto" reads it, "date" for dates,
    times and durations, or None for other values, such as lists.
    """

    kind: str | None
    type: str
    values: Any
    # declared categories of a categorical type
    categories: Any = None

    @property
    def remedy(self):
        """Remedy for a column of dates, or of other values that are not read."""
        return _REMEDIES[self.kind]

    def numbers(self):
        """Return the values as float64, NaN where missing; raise unless they are numbers."""
        if self.kind != "category" and isinstance(self.values, nw.Series):
            return self.values.cast(nw.Float64).to_numpy()
        values = np.array([np.nan if value is None else value for value in self.objects()])
        return values.astype(np.float64)

    def objects(self):
        """Return the values as an array of objects, None where missing."""
        is_series = isinstance(self.values, nw.Series)
        values = self.values.to_list() if is_series else self.values.tolist()
        entries = (None if is_missing(value) else value for value in values)
        return np.fromiter(entries, object, len(values))


def is_missing(value):
    """Return whether a value of a column is None, NaN, NA or NaT."""
    return value is None or type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and value != value
    )  # fmt: skip


def declared_order(values):
    """Return the levels of an ordered categorical type in order; None for other types."""
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "ordered", False):
        return dtype.categories.tolist()
    if not nw.dependencies.is_into_series(values):
        return None
    series = nw.from_native(values, series_only=True)
    return series.cat.get_categories().to_list() if series.dtype == nw.Enum else None


def columns_of(X):
    """Return the columns of a data frame or an array of objects; None for floats or sparse X."""
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind == "f"):
        return None
    if is_frame(X):
        return [_of_frame(series) for series in _frame(X).iter_columns()]
    return [_of_objects(X[:, j]) for j in range(X.shape[1])]


def _of_frame(series):
    dtype, native = series.dtype, series.to_native()
    name = str(native.dtype if hasattr(native, "dtype") else native.type)
    if dtype in (nw.Categorical, nw.Enum):
        declares = dtype == nw.Enum or name == "category"
        return Column(
            "category", name, series, series.cat.get_categories().to_list() if declares else None
        )
    if dtype == nw.Object:
        values = series.to_list()
        return _of_objects(np.fromiter(values, object, len(values)), name)
    if dtype == nw.String:
        return Column("category", name, series)
    if dtype == nw.Boolean:
        return Column("binary", name, series)
    if dtype.is_numeric():
        return Column("real", name, series)
    if is_of_dates(name):
        return Column("date", name, series)
    # sparse columns of pandas, and columns without values
    values = np.asarray(native) if dtype == nw.Unknown else np.empty(0, "V")
    kind = {"b": "binary", "i": "real", "u": "real", "f": "real"}.get(values.dtype.kind)
    return Column(kind, name, values)


def _of_objects(values, name="object"):
    """Return a column of numbers, booleans or dates if all objects are, else of categories."""
    observed = [value for value in values if not is_missing(value)]
    types = {type(value) for value in observed}
    if types and all(issubclass(one, bool | np.bool_) for one in types):
        return Column("binary", "bool", values)
    if all(issubclass(one, _NUMBERS) for one in types):
        return Column("real", name, values)
    if all(issubclass(one, _DATES) for one in types):
        return Column("date", f"{name} ({min(one.__name__ for one in types)})", values)
    try:
        set(observed)
    except TypeError as error:
        return Column(None, f"{name} ({error})", values)
    return Column("category", name, values)


def unread_column(X):
    """Return (name, column) of the first column that is neither numbers nor categories.

    Return None without such a column, or if X is neither a data frame nor an array of objects.
    """
    if is_frame(X) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2):
        for name, column in zip(names_of(X), columns_of(X), strict=True):
            if column.kind in (None, "date"):
                return name, column
    return None


def with_column(X, j, holes, values):
    """Replace the missing values of column j of X by ``values``; copy a data frame.

    The column keeps its type, except that integers become floats if a value is not whole.
    """
    if isinstance(X, np.ndarray):
        X[holes, j] = values
        return X
    frame, filled = _frame(X), levels(values)
    series, places = frame[:, int(j)], np.flatnonzero(holes)
    if filled.dtype.kind in "biuf" and series.dtype not in (nw.Categorical, nw.Enum, nw.Object):
        series, filled = _with_room_for(series, filled)
    if str(getattr(series.to_native(), "dtype", "")) == OBJECT_OF_POLARS:
        mixed = series.to_list()
        for place, value in zip(places, filled.tolist(), strict=True):
            mixed[place] = value
        series = nw.new_series(series.name, mixed, nw.Object, backend=frame.implementation)
    else:
        dtype, entries = series.dtype, filled.tolist() if filled.dtype == object else filled
        if dtype == nw.Categorical and frame.implementation.is_polars():
            # polars 1.0 cannot scatter strings into a categorical column
            series = series.cast(nw.String).scatter(places, entries).cast(dtype)
        else:
            series = series.scatter(places, entries)
    return frame.with_columns(series).to_native()


def _with_room_for(series, filled):
    """Return a column of numbers in a type that can hold ``filled``, and ``filled`` in it."""
    try:
        dtype = np.dtype(bool if series.dtype == nw.Boolean else str(series.dtype).lower())
    except TypeError:  # decimals, or a column without values
        return series.cast(nw.Float64), filled
    with np.errstate(over="ignore", invalid="ignore"):
        as_held = filled.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(as_held, filled):
        return series.cast(nw.Float64), filled
    return series, as_held


def frame_of(columns, types, container):
    """Return a data frame of the package ``container`` with these columns."""
    made = []
    for name, values in columns.items():
        is_any = types[name] == OBJECT_OF_POLARS and values.dtype == object
        dtype = nw.Object if is_any else None
        as_list = values.dtype == object and container != "pandas"
        entries = values.tolist() if as_list else values
        made.append(nw.new_series(name, entries, dtype, backend=container).to_frame())
    return nw.concat(made, how="horizontal").to_native()


def objects(values):
    """Return values as an array of objects, with numbers of NumPy as numbers of Python."""
    return np.fromiter(map(plain, values), object, len(values))


def levels(categories):
    """Return categories as an array of their type, or of objects if that changes one of them."""
    if len({type(value) for value in categories}) == 1 and np.ndim(categories[0]) == 0:
        array = np.array(list(categories))
        if array.tolist() == list(map(plain, categories)):
            return array
    return objects(categories)


def plain(value):
    """Return a value, with a number of NumPy as a number of Python."""
    return value.item() if isinstance(value, np.generic) else value
