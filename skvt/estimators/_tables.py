"""Tables of any columns as arrays of numbers, and back.

Models work on arrays. Of a table, whatever holds it, each column becomes a column of numbers in the
same place: real numbers and counts as they are, booleans 0 and 1, categories their codes, missing
values NaN. What a column is for is given with the components, or follows from its type.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from skvt.estimators._sklearn_private import column_indices
from skvt.estimators.component_specs import (
    BY_NAME,
    Bernoulli,
    Categorical,
    ComponentSpec,
    Gaussian,
    Multinomial,
)
from skvt.estimators.validation import check_magnitude
from skvt.models.mixture import as_slice

# What the types of columns are to "auto".
_AUTOMATIC = {"real": ("numbers", lambda: Gaussian("diag")),
              "category": ("categories", Categorical),
              "binary": ("flags", Bernoulli)}  # fmt: skip
_MISSING_TYPES = ("NAType", "NaTType")


# ------------------------------------------------------------------------------ containers
def _is_pandas(X):
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _is_polars(X):
    return hasattr(X, "get_columns") and hasattr(X, "schema")


def is_frame(X):
    """Whether X is a data frame: of pandas or polars."""
    return _is_pandas(X) or _is_polars(X)


@dataclass(frozen=True)
class _Column:
    """One column as it is held: its kind, and how to read it.

    ``kind`` is "real", "category" or "binary" as "auto" takes it, or None for what cannot be
    computed with, such as dates.
    """

    kind: str | None
    type: str
    values: Any
    # declared categories of a categorical type
    categories: Any = None

    def numbers(self):
        """As float64, NaN where missing; ValueError or TypeError for what is no number."""
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


def _columns(X):
    """The columns of a data frame or of an array of objects."""
    if _is_pandas(X):
        return [_of_pandas(X.iloc[:, j]) for j in range(X.shape[1])]
    if _is_polars(X):
        return [_of_polars(series) for series in X.get_columns()]
    return [_of_objects(X[:, j]) for j in range(X.shape[1])]


def _of_pandas(series):
    from pandas.api import types

    dtype = series.dtype
    if hasattr(dtype, "categories"):
        return _Column("category", str(dtype), series, list(dtype.categories))
    if types.is_bool_dtype(dtype):
        return _Column("binary", str(dtype), series)
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return _Column("real", str(dtype), series)
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        return _Column("category", str(dtype), series)
    return _Column(None, str(dtype), series)


def _of_polars(series):
    import polars

    dtype = series.dtype
    if dtype == polars.Boolean:
        return _Column("binary", str(dtype), series)
    if dtype.is_numeric() or dtype == polars.Null:
        return _Column("real", str(dtype), series)
    if dtype in (polars.String, polars.Categorical, polars.Enum, polars.Object):
        declared = list(dtype.categories) if dtype == polars.Enum else None
        return _Column("category", str(dtype), series, declared)
    return _Column(None, str(dtype), series)


def _of_objects(values):
    """A column of an array of objects: numbers if all are, booleans, or else categories."""
    there = [value for value in values if not _is_missing(value)]
    if all(isinstance(value, bool | np.bool_) for value in there) and there:
        return _Column("binary", "object", values)
    if all(isinstance(value, int | float | np.number) for value in there):
        return _Column("real", "object", values)
    return _Column("category", "object", values)


# --------------------------------------------------------------------------------- encoding
@dataclass(frozen=True)
class TableBlock:
    """Some columns, what they are, and their categories.

    Attributes
    ----------
    name : str
    spec : ComponentSpec
    columns : ndarray of int, shape (d,)
        Positions in the table.
    categories : list of ndarray, or None
        Of each column, in the order of their codes; for the encoding "category".
    """

    name: str
    spec: ComponentSpec
    columns: np.ndarray
    categories: list | None = None

    @property
    def sizes(self):
        """Number of categories of each column, or None."""
        return None if self.categories is None else tuple(len(own) for own in self.categories)


@dataclass(frozen=True)
class Table:
    """How the rows of a fit are read: the blocks and the columns' names."""

    blocks: tuple
    names: tuple
    handle_unknown: str
    # what the rows of fit were held in, and the types of the columns
    container: str = "array"
    types: tuple = field(default=())

    def encode(self, X):
        """X as numbers, (n, D) in its own precision or float64; ValueError for illegal values."""
        if sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind == "f"):
            return self._encode_numbers(X)
        columns = _columns(X)
        out = np.zeros((X.shape[0], len(columns)))
        for block in self.blocks:
            for place, j in enumerate(block.columns):
                if block.categories is not None:
                    out[:, j] = self._codes(
                        columns[j].objects(), block.categories[place], self.names[j]
                    )
                else:
                    out[:, j] = _numbers(columns[j], self.names[j], block)
        self._check(out)
        return out

    def _encode_numbers(self, X):
        """Numbers stay as they are, but for categories that are not 0, 1, ... already."""
        self._check(X)
        copied = False
        for block in self.blocks:
            for place, j in enumerate(block.columns if block.categories is not None else ()):
                categories = block.categories[place]
                if sp.issparse(X):
                    raise ValueError(
                        f"Column {self.names[j]!r} of categories must be dense: zeros that are not "
                        "stored are categories, too. Pass a data frame or a dense array."
                    )
                values = np.asarray(X[:, j], np.float64)
                codes = self._numeric_codes(values, categories, self.names[j])
                if not np.array_equal(codes, values, equal_nan=True):
                    X, copied = (X if copied else np.array(X)), True
                    X[:, j] = codes
        return X

    def _numeric_codes(self, values, categories, name):
        """Codes of numbers; the categories are numbers in ascending order, or any objects."""
        known = np.asarray(categories)
        if known.dtype.kind not in "biuf" or np.any(known[1:] <= known[:-1]):
            objects = values.astype(object)
            objects[np.isnan(values)] = None
            return self._codes(objects, categories, name)
        if known.size == 0:
            places = np.zeros(values.size, np.intp)
            found = np.zeros(values.size, bool)
        else:
            places = np.minimum(np.searchsorted(known, values), known.size - 1)
            found = known[places] == values
        missing = np.isnan(values)
        if not np.all(found | missing):
            self._unknown(values[~(found | missing)][0], name, categories)
        return np.where(found, places, np.nan)

    def _codes(self, objects, categories, name):
        """Codes of objects, NaN where they are missing."""
        code_of = {category: code for code, category in enumerate(categories)}
        try:
            codes = np.array([code_of.get(value, -1) for value in objects], np.float64)
        except TypeError as error:
            raise TypeError(
                f"Column {name!r} holds values that cannot be categories: {error}. An argument "
                "must be a string, a number or another hashable value."
            ) from error
        missing = np.array([value is None for value in objects], bool)
        unknown = (codes < 0.0) & ~missing
        if unknown.any():
            self._unknown(objects[np.flatnonzero(unknown)[0]], name, categories)
        codes[codes < 0.0] = np.nan
        return codes

    def _unknown(self, value, name, categories):
        if self.handle_unknown == "error":
            shown = ", ".join(map(repr, list(categories)[:10]))
            more = ", ..." if len(categories) > 10 else ""
            raise ValueError(
                f"Unknown category {_plain(value)!r} in column {name!r}: those of the fit are "
                f"{shown}{more}. Set handle_unknown='missing' to take unknown categories for "
                "missing values."
            )

    def _check(self, X):
        """Raise ValueError for numbers that the blocks do not take."""
        for block in self.blocks:
            values = X[:, as_slice(block.columns)]
            stored = values.data if sp.issparse(values) else values
            _CHECKS[block.spec.encoding](stored, block, self)
            if not block.spec.allows_missing and np.isnan(stored).any():
                raise ValueError(
                    f"Input X contains NaN in the columns of {block.name!r}, and "
                    f"{type(block.spec).__name__} needs complete rows. Use Poisson() for counts "
                    "with missing values, or fill them in."
                )

    def modelled(self, X):
        """The columns of X that belong to a block."""
        columns = np.sort(np.concatenate([block.columns for block in self.blocks]))
        return X if columns.size == X.shape[1] else X[:, columns]

    def position(self, column):
        """The position of a column given by its name or position; it must belong to a block."""
        places = [j for j, name in enumerate(self.names) if name is column or name == column]
        if not places and isinstance(column, int | np.integer) and not isinstance(column, bool):
            places = [int(column)] if 0 <= column < len(self.names) else []
        owned = [block for block in self.blocks if places and places[0] in block.columns]
        if not owned:
            known = [self.names[j] for block in self.blocks for j in block.columns]
            raise ValueError(
                f"column must be a column that a component describes: one of {known}. Got "
                f"{column!r} instead."
            )
        return places[0]

    def block_of(self, j):
        """The block of the column at a position, and its place there."""
        for block in self.blocks:
            if j in block.columns:
                return block, int(np.flatnonzero(block.columns == j)[0])
        raise ValueError(f"No block has column {self.names[j]!r}.")

    def labels(self, j):
        """The categories of a column: those of its block, or False and True."""
        block, place = self.block_of(j)
        if block.categories is None:
            return np.array([False, True] if self._is_boolean(j) else [0, 1])
        categories = block.categories[place]
        plain = np.array(categories)
        return plain if plain.ndim == 1 else _objects(categories)

    def _is_boolean(self, j):
        """Whether a column held booleans at ``fit``."""
        return bool(self.types) and (
            self.types[j].lower().startswith("bool") or self.types[j] == "object"
        )

    def decoded(self, j, values):
        """Encoded values of a column, none missing, as what the table holds."""
        block, place = self.block_of(j)
        if block.categories is not None:
            return _objects(block.categories[place])[np.asarray(values).astype(np.intp)]
        if block.spec.encoding == "binary" and self._is_boolean(j):
            return np.asarray(values) > 0.5
        return np.asarray(values, np.float64)

    def rows_of(self, X):
        """Encoded rows (n, D) as a container like that of ``fit``; of a frame, modelled columns."""
        columns = np.sort(np.concatenate([block.columns for block in self.blocks]))
        if self.container == "array":
            numeric = all(
                np.array(own).dtype.kind in "biuf"
                for block in self.blocks
                for own in block.categories or []
            )
            out = np.array(X, X.dtype if numeric else object)
            for j in columns:
                out[:, j] = self.decoded(j, X[:, j])
            return out
        decoded = {self.names[j]: self.decoded(j, X[:, j]) for j in columns}
        if self.container == "pandas":
            import pandas

            return pandas.DataFrame(decoded)
        import polars

        return polars.DataFrame(
            {name: values.tolist() if values.dtype == object else values
             for name, values in decoded.items()}
        )  # fmt: skip

    def restored(self, X, encoded, filled):
        """X as it was given, with the missing values of modelled columns replaced."""
        if not is_frame(X):
            X = np.array(X)
        holes = np.isnan(encoded) & ~np.isnan(filled)
        for j in np.flatnonzero(holes.any(axis=0)):
            X = _with_column(X, j, holes[:, j], self.decoded(j, filled[:, j]))
        return X

    def named(self, block, bad):
        """The name of the first column in which something is bad (n, d) or stored (nnz,)."""
        if bad.ndim < 2:
            return block.name
        return self.names[block.columns[int(np.argmax(bad.any(axis=0)))]]


def _objects(values):
    out = np.empty(len(values), object)
    out[:] = [_plain(value) for value in values]
    return out


def _with_column(X, j, holes, values):
    """X with the values of column j replaced where there are holes; a frame is a new one."""
    if isinstance(X, np.ndarray):
        X[holes, j] = values[holes]
        return X
    if _is_pandas(X):
        series = X.iloc[:, j]
        whole = values.dtype == np.float64 and not np.all(values[holes] % 1.0 == 0.0)
        if whole and str(series.dtype).lower().startswith(("int", "uint")):
            series = series.astype("Float64")
        X = X.copy()
        X.isetitem(j, series.mask(holes, values))
        return X
    import polars

    series = X.to_series(j)
    mixed = series.to_list()
    for place in np.flatnonzero(holes):
        mixed[place] = _plain(values[place])
    numeric = series.dtype.is_numeric() or series.dtype == polars.Null
    dtype = polars.Float64 if numeric else series.dtype
    return X.with_columns(polars.Series(series.name, mixed, dtype=dtype))


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value


def _numbers(column, name, block):
    """A column as numbers, or ValueError that names an example of what is none."""
    if column.kind is None:
        raise ValueError(
            f"Column {name!r} is of the type {column.type}, which {type(block.spec).__name__} does "
            "not take. Turn it into numbers or strings first."
        )
    try:
        return column.numbers()
    except (TypeError, ValueError) as error:
        example = next(
            (value for value in column.objects() if isinstance(value, str)), column.objects()[0]
        )
        raise ValueError(
            f"Column {name!r} holds {example!r}, and {type(block.spec).__name__} takes numbers. "
            "Give the column to a Categorical(), or leave it out of 'components'."
        ) from error


def _check_real(values, block, table):
    if np.isinf(values).any():
        bad = np.isinf(values)
        raise ValueError(
            f"Input X contains infinity in column {table.named(block, bad)!r}. Real columns take "
            "finite numbers, NaN where a value is missing."
        )
    check_magnitude(values)


def _check_binary(values, block, table):
    bad = (values != 0.0) & (values != 1.0) & ~np.isnan(values)
    if bad.any():
        raise ValueError(
            f"Column {table.named(block, bad)!r} must be binary: 0 or 1, NaN where a value is "
            f"missing. Got {values[bad].flat[0]:g}; if it is a code, use Categorical()."
        )


def _check_count(values, block, table):
    whole = block.spec.allows_missing  # of Poisson
    bad = (values < 0.0) | np.isinf(values)
    if whole:
        with np.errstate(invalid="ignore"):
            bad |= (values != np.floor(values)) & ~np.isnan(values)
    if bad.any():
        numbers = "0, 1, 2, ..." if whole else "finite numbers from 0 on"
        raise ValueError(
            f"Column {table.named(block, bad)!r} must hold counts: {numbers}. Negative values in "
            f"data passed to {type(block.spec).__name__}, or others, are none. Got "
            f"{values[bad].flat[0]:g}."
        )


def _check_category(values, block, table):
    if np.isinf(values).any():
        raise ValueError(
            f"Input X contains infinity in column {table.named(block, np.isinf(values))!r}."
        )


_CHECKS = {
    "real": _check_real,
    "binary": _check_binary,
    "count": _check_count,
    "category": _check_category,
}


# ------------------------------------------------------------------------------ a new table
def numbers_or_objects(estimator, X, *, reset):
    """X by scikit-learn's checks: a data frame as it is, or an array of floats or of objects."""
    if is_frame(X):
        X = validate_data(estimator, X, reset=reset, skip_check_array=True)
        if X.shape[0] == 0 or X.shape[1] == 0:
            what = "sample" if X.shape[0] == 0 else "feature"
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={tuple(X.shape)}) while a minimum of 1 is "
                f"required by {type(estimator).__name__}."
            )
        return X
    X = validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=None, ensure_all_finite=False
    )
    if X.dtype.kind in "biu":
        kept = X.dtype.kind == "b" and not sp.issparse(X)
        return X.astype(object) if kept and reset else X.astype(np.float64)
    if X.dtype.kind == "f":
        return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if sp.issparse(X):
        raise ValueError(f"Sparse X must hold numbers. Got the type {X.dtype}.")
    return X.astype(object)


def table_of(X, components, handle_unknown):
    """The :class:`Table` of rows like X, with the categories that they have."""
    numbers = sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind == "f")
    names = tuple(X.columns) if is_frame(X) else tuple(range(X.shape[1]))
    columns = None if numbers else _columns(X)
    if isinstance(components, str):
        blocks = _automatic(X, columns)
    else:
        blocks = [
            (name, _spec(name, given), _positions(X, key, name)) for name, given, key in components
        ]
    _check_blocks(blocks, names)
    done = []
    for name, spec, positions in blocks:
        categories = None
        if spec.encoding == "category":
            given = spec.categories
            if not isinstance(given, str) and len(given) != len(positions):
                raise ValueError(
                    f"The 'categories' parameter of {name!r} must be 'auto' or a list for each of "
                    f"its {len(positions)} columns. Got {len(given)} of them."
                )
            categories = [
                _categories(X, columns, j) if isinstance(given, str) else list(given[place])
                for place, j in enumerate(positions)
            ]
            _check_categories(categories, positions, names)
        done.append(TableBlock(name, spec, np.array(positions, np.intp), categories))
    container = "pandas" if _is_pandas(X) else "polars" if _is_polars(X) else "array"
    types = () if columns is None else tuple(column.type for column in columns)
    return Table(tuple(done), names, handle_unknown, container, types)


def _automatic(X, columns):
    """Blocks by the types of the columns; of a sparse matrix, counts."""
    if sp.issparse(X):
        return [("counts", Multinomial(), list(range(X.shape[1])))]
    if columns is None:
        return [("numbers", Gaussian("diag"), list(range(X.shape[1])))]
    blocks = []
    for kind, (name, make) in _AUTOMATIC.items():
        positions = [j for j, column in enumerate(columns) if column.kind == kind]
        if positions:
            blocks.append((name, make(), positions))
    others = [j for j, column in enumerate(columns) if column.kind is None]
    if others:
        name = X.columns[others[0]]
        raise ValueError(
            f"Column {name!r} is of the type {columns[others[0]].type}, which components='auto' "
            "does not take. Turn it into numbers or strings, or leave it out of a list of "
            "'components'."
        )
    return blocks


def _spec(name, given):
    if isinstance(given, str):
        if given not in BY_NAME:
            raise ValueError(
                f"The component of {name!r} must be one of {', '.join(map(repr, BY_NAME))} or an "
                f"object of skvt.components. Got {given!r} instead."
            )
        given = BY_NAME[given]()
    if not isinstance(given, ComponentSpec):
        raise TypeError(
            f"The component of {name!r} must be a string or an object of skvt.components, such as "
            f"skvt.components.Gaussian(). Got {given!r} instead."
        )
    given.check()
    return given


def _positions(X, key, name):
    """Positions of the columns that a key names, as in scikit-learn's ColumnTransformer."""
    if callable(key):
        key = key(X)
    if isinstance(key, slice) and key.start is None and key.stop is None:
        return list(range(X.shape[1]))[key]
    try:
        return [int(j) for j in column_indices(X, key)]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"The columns of {name!r} are not in X: {error}") from error


def _check_blocks(blocks, names):
    if not blocks or all(not positions for _, _, positions in blocks):
        raise ValueError("The 'components' parameter must name at least one column. Got none.")
    titles = [name for name, _, _ in blocks]
    for name in titles:
        if not isinstance(name, str) or "__" in name or titles.count(name) > 1:
            raise ValueError(
                "The names in 'components' must be distinct strings without '__'. Got "
                f"{name!r} in {titles}."
            )
    taken = {}
    for title, _, positions in blocks:
        if not positions:
            raise ValueError(f"No column belongs to {title!r}. Leave it out of 'components'.")
        for j in positions:
            if j in taken:
                raise ValueError(
                    f"Column {names[j]!r} belongs to {taken[j]!r} and to {title!r}. Each column "
                    "may have one component."
                )
            taken[j] = title


def _categories(X, columns, j):
    """The categories of a column, sorted, or as its own type declares them."""
    if columns is None:
        values = np.asarray(X[:, [j]].toarray() if sp.issparse(X) else X[:, j]).ravel()
        return list(np.unique(values[~np.isnan(values)]))
    if columns[j].categories is not None:
        return columns[j].categories
    values = columns[j].objects()
    try:
        distinct = {value for value in values if value is not None}
    except TypeError as error:
        raise TypeError(
            f"A column holds values that cannot be categories: {error}. An argument must be a "
            "string, a number or another hashable value."
        ) from error
    try:
        return sorted(distinct)
    except TypeError:  # of several types
        return sorted(distinct, key=lambda value: (type(value).__name__, repr(value)))


def _check_categories(categories, positions, names):
    for own, j in zip(categories, positions, strict=True):
        if not own:
            raise ValueError(
                f"Column {names[j]!r} has no category: all values are missing. Leave it out, or "
                "give its 'categories'."
            )
        if len(set(own)) < len(own):
            raise ValueError(f"The categories of column {names[j]!r} must be distinct. Got {own}.")
