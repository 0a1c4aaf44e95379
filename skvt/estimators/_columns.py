"""Columns of tables: of arrays, and of data frames of pandas and polars.

pandas and polars are imported only by functions that handle their data frames.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

_MISSING_TYPES = ("NAType", "NaTType")


def is_pandas(X):
    """Whether X is a data frame of pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def is_polars(X):
    """Whether X is a data frame of polars."""
    return hasattr(X, "get_columns") and hasattr(X, "schema")


def is_frame(X):
    """Whether X is a data frame: of pandas or polars."""
    return is_pandas(X) or is_polars(X)


@dataclass(frozen=True)
class Column:
    """One column of a container: its kind, and how to read it.

    ``kind`` is "real", "category" or "binary" as "auto" takes it, or None for what cannot be
    computed with, such as dates.
    """

    kind: str | None
    type: str
    values: Any
    # declared categories of a categorical type
    categories: Any = None

    def numbers(self):
        """As float64, NaN where missing; ValueError or TypeError for anything but numbers."""
        if _is_series_of_pandas(self.values):
            return self.values.to_numpy(dtype=np.float64, na_value=np.nan)
        if hasattr(self.values, "to_list"):
            if self.kind == "category":
                return _as_numbers(np.array(self.values.to_list(), dtype=object))
            return self.values.cast(float).to_numpy()
        return _as_numbers(self.values)

    def objects(self):
        """As an array of objects, None where missing."""
        if _is_series_of_pandas(self.values):
            out = self.values.astype(object).to_numpy(copy=True)
            out[self.values.isna().to_numpy()] = None
            return out
        if hasattr(self.values, "to_list"):
            out = np.empty(len(self.values), object)
            out[:] = self.values.to_list()
            return out
        if self.values.dtype.kind == "f":
            out = self.values.astype(object)
            out[np.isnan(self.values)] = None
            return out
        out = np.array(self.values, dtype=object)
        out[np.fromiter((_is_missing(value) for value in out), bool, out.size)] = None
        return out


def _is_series_of_pandas(values):
    return hasattr(values, "iloc")


def _is_missing(value):
    return value is None or type(value).__name__ in _MISSING_TYPES or (
        isinstance(value, float | np.floating) and value != value
    )  # fmt: skip


def _as_numbers(values):
    if values.dtype == object:
        values = np.array([np.nan if _is_missing(value) else value for value in values])
        if values.size == 0:
            return values.astype(np.float64)
    return values.astype(np.float64)


def columns_of(X):
    """The columns of a data frame or of an array of objects."""
    if is_pandas(X):
        return [_of_pandas(X.iloc[:, j]) for j in range(X.shape[1])]
    if is_polars(X):
        return [_of_polars(series) for series in X.get_columns()]
    return [_of_objects(X[:, j]) for j in range(X.shape[1])]


def _of_pandas(series):
    from pandas.api import types

    dtype = series.dtype
    if hasattr(dtype, "categories"):
        return Column("category", str(dtype), series, list(dtype.categories))
    if types.is_bool_dtype(dtype):
        return Column("binary", str(dtype), series)
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return Column("real", str(dtype), series)
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        return Column("category", str(dtype), series)
    return Column(None, str(dtype), series)


def _of_polars(series):
    import polars

    dtype = series.dtype
    if dtype == polars.Boolean:
        return Column("binary", str(dtype), series)
    if dtype.is_numeric() or dtype == polars.Null:
        return Column("real", str(dtype), series)
    if dtype in (polars.String, polars.Categorical, polars.Enum, polars.Object):
        declared = list(dtype.categories) if dtype == polars.Enum else None
        return Column("category", str(dtype), series, declared)
    return Column(None, str(dtype), series)


def _of_objects(values):
    """A column of an array of objects: numbers if all are, booleans, or else categories."""
    there = [value for value in values if not _is_missing(value)]
    if all(isinstance(value, bool | np.bool_) for value in there) and there:
        return Column("binary", "object", values)
    if all(isinstance(value, int | float | np.number) for value in there):
        return Column("real", "object", values)
    return Column("category", "object", values)


def with_column(X, j, holes, values):
    """X with the missing values of column j replaced; a data frame is copied.

    The column keeps its type, but whole numbers among which others are filled in become floats.
    """
    if isinstance(X, np.ndarray):
        X[holes, j] = values[holes]
        return X
    filled = levels(values[holes])
    if is_pandas(X):
        series = X.iloc[:, j].copy()
        number = getattr(series.dtype, "numpy_dtype", series.dtype)
        if filled.dtype.kind in "biuf" and number.kind in "biuf":
            with np.errstate(over="ignore"):
                own = filled.astype(number)
            if number.kind == "f" or np.array_equal(own, filled):
                filled = own
            else:
                arrow = str(series.dtype).endswith("[pyarrow]")
                series = series.astype("double[pyarrow]" if arrow else "Float64")
        series.iloc[holes] = filled
        X = X.copy()
        X.isetitem(j, series)
        return X
    import polars

    series = X.to_series(j)
    dtype, is_whole = series.dtype, series.dtype.is_integer() or series.dtype == polars.Boolean
    if is_whole:
        own = polars.Series(filled).cast(dtype, strict=False)
        is_whole = np.array_equal(own.to_numpy(), filled)
        dtype = dtype if is_whole else polars.Float64
    elif dtype.is_decimal() or dtype == polars.Null:
        dtype = polars.Float64
    mixed = (series if dtype == series.dtype else series.cast(dtype)).to_list()
    for place, value in zip(np.flatnonzero(holes), filled.tolist(), strict=True):
        mixed[place] = value
    series = polars.Series(series.name, mixed, dtype=dtype, strict=not is_whole)
    return X.with_columns(series)


def objects(values):
    """Values as an array of objects, numbers of NumPy as Python's."""
    out = np.empty(len(values), object)
    out[:] = [plain(value) for value in values]
    return out


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
