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

# How polars calls columns of any objects, which it does not cast and does not assign to.
OBJECT_OF_POLARS = "Object"
_MISSING_TYPES = ("NAType", "NaTType")
# Types of the values of columns of objects; datetimes of Python and pandas are dates, too.
_NUMBERS = Real | Decimal
_DATES = date | time | timedelta | np.datetime64 | np.timedelta64
# What to do with cells that hold several values.
ONE_VALUE = (
    "Each entry of the argument must be a string, a number or another hashable value. Give each "
    "part of an entry a separate column, such as pandas.DataFrame(column.tolist()), or leave the "
    "column out."
)
# What to do with columns that are not read, by their kind.
_REMEDIES = {
    "date": NO_DATES,
    None: ONE_VALUE,
}


def names_of(X):
    """Names of the columns of a data frame, numbers of those of an array."""
    return tuple(_frame(X).columns) if is_frame(X) else tuple(range(X.shape[1]))


def container_of(X):
    """The package of a data frame, or "array"."""
    return _frame(X).implementation.value if is_frame(X) else "array"


def copy_of(X):
    """A copy of a data frame whose values a caller may change."""
    return _frame(X).clone().to_native()


def _frame(X):
    return nw.from_native(X, eager_only=True)


@dataclass(frozen=True)
class Column:
    """One column of a container: its kind, and how to read it.

    ``kind`` is "real", "category" or "binary" as "auto" takes it, "date" for dates, times and
    durations, or None for other values that cannot be computed with, such as lists.
    """

    kind: str | None
    type: str
    values: Any
    # declared categories of a categorical type
    categories: Any = None

    @property
    def remedy(self):
        """What to do with a column of dates, or of other values that are not read."""
        return _REMEDIES[self.kind]

    def numbers(self):
        """As float64, NaN where missing; ValueError or TypeError for anything but numbers."""
        if self.kind != "category" and isinstance(self.values, nw.Series):
            return self.values.cast(nw.Float64).to_numpy()
        values = np.array([np.nan if value is None else value for value in self.objects()])
        return values.astype(np.float64)

    def objects(self):
        """As an array of objects, None where missing."""
        is_series = isinstance(self.values, nw.Series)
        values = self.values.to_list() if is_series else self.values.tolist()
        there = (None if is_missing(value) else value for value in values)
        return np.fromiter(there, object, len(values))


def is_missing(value):
    """Whether a value of a column stands for a missing one: None, NaN, NA, NaT."""
    return value is None or type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and value != value
    )  # fmt: skip


def declared_order(values):
    """The values of an ordered categorical type from first to last; None for other types."""
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "ordered", False):
        return dtype.categories.tolist()
    if not nw.dependencies.is_into_series(values):
        return None
    series = nw.from_native(values, series_only=True)
    return series.cat.get_categories().to_list() if series.dtype == nw.Enum else None


def columns_of(X):
    """The columns of a data frame or of an array of objects; None of floats, sparse or dense."""
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
    # sparse columns of pandas, and those that hold nothing
    values = np.asarray(native) if dtype == nw.Unknown else np.empty(0, "V")
    kind = {"b": "binary", "i": "real", "u": "real", "f": "real"}.get(values.dtype.kind)
    return Column(kind, name, values)


def _of_objects(values, name="object"):
    """A column of objects: numbers, booleans or dates if all are, or else categories."""
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
    """The name of the first column that is read neither as numbers nor as categories, and it.

    None without such a column, and where X is neither a data frame nor an array of objects.
    """
    if is_frame(X) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2):
        for name, column in zip(names_of(X), columns_of(X), strict=True):
            if column.kind in (None, "date"):
                return name, column
    return None


def with_column(X, j, holes, values):
    """X with the missing values of column j replaced by others; a data frame is copied.

    The column keeps its type, but whole numbers among which others are filled in become floats.
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
        dtype, own = series.dtype, filled.tolist() if filled.dtype == object else filled
        if dtype == nw.Categorical and frame.implementation.is_polars():
            # (polars 1.0 does not take strings there)
            series = series.cast(nw.String).scatter(places, own).cast(dtype)
        else:
            series = series.scatter(places, own)
    return frame.with_columns(series).to_native()


def _with_room_for(series, filled):
    """A column of numbers as the type that takes others, and these as this type."""
    try:
        own = np.dtype(bool if series.dtype == nw.Boolean else str(series.dtype).lower())
    except TypeError:  # of decimals, or of a column that holds nothing
        return series.cast(nw.Float64), filled
    with np.errstate(over="ignore", invalid="ignore"):
        as_held = filled.astype(own)
    if own.kind != "f" and not np.array_equal(as_held, filled):
        return series.cast(nw.Float64), filled
    return series, as_held


def frame_of(columns, types, container):
    """A data frame of this package, of columns by their names."""
    made = []
    for name, values in columns.items():
        is_any = types[name] == OBJECT_OF_POLARS and values.dtype == object
        dtype = nw.Object if is_any else None
        as_list = values.dtype == object and container != "pandas"
        own = values.tolist() if as_list else values
        made.append(nw.new_series(name, own, dtype, backend=container).to_frame())
    return nw.concat(made, how="horizontal").to_native()


def objects(values):
    """Values as an array of objects, numbers of NumPy as Python's."""
    return np.fromiter(map(plain, values), object, len(values))


def levels(categories):
    """Categories as an array of their type, or of objects where that would change one of them."""
    if len({type(value) for value in categories}) == 1 and np.ndim(categories[0]) == 0:
        found = np.array(list(categories))
        if found.tolist() == list(map(plain, categories)):
            return found
    return objects(categories)


def plain(value):
    """A value, a number of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value
