"""Tables of any columns as arrays of numbers, and back.

Models work on arrays. Each column of a table becomes a column of numbers at the same position: real
numbers and counts are unchanged, booleans become 0 and 1, categories codes, missing values NaN. The
kind of a column follows from its component or its type, see :mod:`skvt.readers._table_blocks`.
"""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from skvt.components import ComponentSpec
from skvt.components.specs import describes
from skvt.files import in_files
from skvt.models.mixture import as_slice
from skvt.readers._audit import ColumnWarning
from skvt.readers._columns import (
    ONE_VALUE,
    columns_of,
    copy_of,
    frame_of,
    levels,
    names_of,
    objects,
    plain,
    with_column,
)
from skvt.readers.validation import check_magnitude, is_frame, stack_level, without_mask
from skvt.rows import dense
from skvt.typing import IndexArray


@in_files("estimators.TableBlock")
@dataclass(frozen=True)
class TableBlock:
    """Some columns, by their positions in the table, and their component.

    ``categories`` lists those of each column by code, for the encoding "category".
    """

    name: str
    spec: ComponentSpec
    columns: IndexArray
    categories: list[list] | None = None

    @property
    def sizes(self):
        """Number of categories of each column, or None."""
        return None if self.categories is None else tuple(len(each) for each in self.categories)

    def describes(self, block):
        """Return whether these are the columns and the description of a block of a model."""
        self.spec.check()
        return (
            self.name == block.name
            and np.array_equal(self.columns, block.explained)
            and all(len(set(values)) == len(values) for values in self.categories or ())
            and describes(self.spec, block.component, self.sizes)
        )


@in_files("estimators.Table")
@dataclass(frozen=True)
class Table:
    """Description of the rows of a fit: blocks of columns, names, types and findings."""

    blocks: tuple[TableBlock, ...]
    names: tuple[Hashable, ...]
    handle_unknown: str
    # the container of the rows of fit, and the types of the columns
    container: str = "array"
    types: tuple[str, ...] = ()
    # findings on columns, see skvt.readers._audit: (column, kind, value)
    findings: tuple[tuple[str, str, str], ...] = ()
    # reason for which "auto" reads each column as it does; empty if the user lists components
    reasons: tuple[str, ...] = ()
    # columns that explain the others, each a block of its own
    given: tuple[TableBlock, ...] = ()

    def describes(self, component, priors):
        """Return whether a file has this table for this component with these priors."""
        n_features = component.n_features
        return (
            n_features == len(self.names) == len({*self.names})
            and {len(self.types), len(self.reasons)} <= {0, n_features}
            and self.container in ("array", "pandas", "polars", "pyarrow", "modin")
            and {*priors} == {block.name for block in component.blocks}
            and len(self.blocks) == len(component.blocks)
            and all(map(TableBlock.describes, self.blocks, component.blocks))
            and all(one.columns.size == 1 for one in self.given)
            and all(map(self._gives, component.blocks))
        )

    def _gives(self, block):
        """Return whether the given columns are those of a block of a model."""
        return np.array_equal(block.given, [one.columns[0] for one in self.given])

    def encode(self, X, columns):
        """Return X as numbers (n, D), in the precision of X or float64; refuse illegal values.

        ``columns`` is the result of `columns_of` for X.
        """
        if columns is None:
            return self._encode_numbers(X)
        out = np.zeros((X.shape[0], len(columns)))
        for block in self.blocks:
            for place, j in enumerate(block.columns):
                if block.categories is not None:
                    out[:, j] = self._codes(
                        columns[j].objects(), block.categories[place], self.names[j]
                    )
                else:
                    out[:, j] = _numbers(columns[j], self.names[j], block)
        for block in self.given:
            (j,) = block.columns
            if block.categories is None:
                out[:, j] = _numbers(columns[j], self.names[j], block)
            else:
                out[:, j] = self._given_codes(columns[j].objects(), block)
        self._check(out)
        return out

    def _encode_numbers(self, X):
        """Encode an array of numbers, in which only categories other than 0, 1, ... change."""
        self._check(X)
        copied = False
        for block in self.given:
            if block.categories is not None:
                values = dense(X[:, block.columns]).ravel()
                entries = values.astype(object)
                entries[np.isnan(values)] = None
                X, copied = self._replaced(X, block, self._given_codes(entries, block)), True
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

    @staticmethod
    def _replaced(X, block, codes):
        """Return a copy of X with these codes in the column of a block."""
        if sp.issparse(X):
            X = sp.lil_array(X)
            X[:, block.columns] = codes[:, None]
            return sp.csr_array(X)
        X = np.array(X)
        X[:, block.columns] = codes[:, None]
        return X

    def _given_codes(self, entries, block):
        """Return the codes of a given column; a missing value is a level if it was one in fit."""
        (categories,), (j,) = block.categories, block.columns
        code_of = {category: code for code, category in enumerate(categories)}
        codes = np.array([code_of.get(value, -1) for value in entries], np.float64)
        unknown = np.flatnonzero(codes < 0.0)
        if unknown.size:
            value, shown = plain(entries[unknown[0]]), ", ".join(map(repr, categories[:10]))
            what = "missing values" if value is None else f"the level {value!r}"
            raise ValueError(
                f"The given column {self.names[j]!r} has {what} ({unknown.size} of {codes.size} "
                f"rows), which did not occur in fit: its levels are {shown}"
                f"{', ...' if len(categories) > 10 else ''}. Nothing is known of rows of another "
                "level: leave them out, give them one of these levels, or fit with such rows."
            )
        return codes

    def _check_given(self, X):
        """Raise ValueError unless given columns of numbers are complete and finite."""
        for block in self.given:
            if block.categories is not None:
                continue
            values = dense(X[:, block.columns])
            _check_real(values, block, self)
            missing = np.isnan(values).sum()
            if missing:
                raise ValueError(
                    f"The given column {self.names[block.columns[0]]!r} has missing values "
                    f"({missing} of {values.size} rows), and rows are explained by its numbers. "
                    "Fill them in, leave these rows out, or give categories, for which a missing "
                    "value is a level."
                )

    def _numeric_codes(self, values, categories, name):
        """Return codes of numbers, for categories in ascending order or of any objects."""
        known = levels(categories)
        if known.dtype.kind not in "biuf" or np.any(known[1:] <= known[:-1]):
            entries = values.astype(object)
            entries[np.isnan(values)] = None
            return self._codes(entries, categories, name)
        places = np.minimum(np.searchsorted(known, values), known.size - 1)
        missing = np.isnan(values)
        codes, unseen = np.where(missing, np.nan, places), ~missing & (known[places] != values)
        return self._with_unseen(codes, unseen, values, name, categories)

    def _codes(self, entries, categories, name):
        """Return the codes of an array of objects, NaN where they are None."""
        code_of = {category: code for code, category in enumerate(categories)}
        try:
            codes = np.array([code_of.get(value, -1) for value in entries], np.float64)
        except TypeError as error:
            raise TypeError(
                f"Column {name!r} holds values that cannot be categories: {error}. {ONE_VALUE}"
            ) from error
        missing = np.array([value is None for value in entries], bool)
        unseen = (codes < 0.0) & ~missing
        codes[missing] = np.nan
        return self._with_unseen(codes, unseen, entries, name, categories)

    def _with_unseen(self, codes, unseen, values, name, categories):
        """Give unknown levels the number of categories as their code, or raise ValueError."""
        if not unseen.any():
            return codes
        value = plain(values[np.flatnonzero(unseen)[0]])
        if self.handle_unknown == "error":
            shown = ", ".join(map(repr, list(categories)[:10]))
            more = ", ..." if len(categories) > 10 else ""
            raise ValueError(
                f"Unknown category {value!r} in column {name!r}: those of the fit are "
                f"{shown}{more}. Set handle_unknown='prior' to give unknown categories the prior's "
                "share, or list all of them, Categorical(categories=[[...], ...])."
            )
        if self.handle_unknown == "prior":
            warnings.warn(
                f"Column {name!r} holds levels that are not among the categories of the fit, such "
                f"as {value!r} (rows: {np.count_nonzero(unseen)} of {unseen.size}). Each has the "
                "share that the prior gives to one unseen level. If such levels are expected, list "
                "them, Categorical(categories=[[...], ...]), or give the column a categorical "
                "dtype; handle_unknown='error' refuses them.",
                ColumnWarning,
                stacklevel=stack_level(),
            )
        codes[unseen] = len(categories)
        return codes

    def _check(self, X):
        """Raise ValueError for numbers that the blocks do not allow."""
        self._check_given(X)
        for block in self.blocks:
            columns = block.columns
            if block.spec.reads_exposure:
                columns, exposures = columns[:-1], X[:, columns[-1:]]
                self._check_exposures(dense(exposures), block)
            values = X[:, as_slice(columns)]
            stored = values.data if sp.issparse(values) else values
            _CHECKS[block.spec.encoding](stored, block, self)
            if not block.spec.allows_missing and np.isnan(stored).any():
                raise ValueError(
                    f"Input X contains NaN in the columns of {block.name!r}, and "
                    f"{type(block.spec).__name__} needs complete rows. Fill them in, or take a "
                    "component that allows missing values, such as Poisson() for counts."
                )

    def _check_exposures(self, values, block):
        if not np.all((values > 0.0) & np.isfinite(values)):
            raise ValueError(
                f"The exposure of {block.name!r}, column {self.names[block.columns[-1]]!r}, must "
                f"hold positive numbers. Got {values[~(values > 0.0) | np.isinf(values)][0]:g}."
            )

    @property
    def columns(self):
        """Positions of the columns that belong to a block, in order."""
        return np.sort(np.concatenate([block.columns for block in self.blocks]))

    def given_rows(self, X):
        """Return encoded rows (n, D) with the values of given columns and exposures alone.

        X has these columns, or all columns; an array of only these has them in this order.
        """
        exposures = [int(b.columns[-1]) for b in self.blocks if b.spec.reads_exposure]
        positions = [int(block.columns[0]) for block in self.given] + exposures
        names = [self.names[j] for j in positions]
        if is_frame(X):
            columns = dict(zip(names_of(X), columns_of(X), strict=True))
            lacking = [name for name in names if name not in columns]
            if lacking:
                raise ValueError(f"'given' lacks the columns {lacking}: give a frame of {names}.")
            values = [columns[name].objects() for name in names]
        else:
            X = dense(X) if sp.issparse(X) else np.asarray(X)
            if X.ndim != 2 or X.shape[1] not in (len(positions), len(self.names)):
                raise ValueError(
                    f"'given' must be an array of the {len(positions)} columns {names}, or of all "
                    f"{len(self.names)} columns of the fit. Got the shape {X.shape}."
                )
            values = X.T if X.shape[1] == len(positions) else X.T[positions]
        rows = np.full((X.shape[0], len(self.names)), None, object)
        for j, column in zip(positions, values, strict=True):
            rows[:, j] = column
        return self.encode(rows, columns_of(rows))

    def modelled(self, X):
        """Return the columns of X that belong to a block."""
        return X if self.columns.size == X.shape[1] else X[:, self.columns]

    def position(self, column):
        """Return the position of a column of a block, given by name or position."""
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
        """Return the block of the column at position j, and the column's index in the block."""
        block = next(block for block in self.blocks if j in block.columns)
        return block, int(np.flatnonzero(block.columns == j)[0])

    def labels(self, j):
        """Return the categories of a column; of a column without any, False and True or 0 and 1."""
        block, place = self.block_of(j)
        if block.categories is None:
            return np.array([False, True] if self._is_boolean(j) else [0, 1])
        return levels(block.categories[place])

    def _is_boolean(self, j):
        """Return whether a column held booleans in ``fit``."""
        return bool(self.types) and self.types[j].lower().startswith("bool")

    def decoded(self, j, values):
        """Convert encoded values of a column, none missing, to values of the table."""
        block, place = self.block_of(j)
        if block.categories is not None:
            return objects(block.categories[place])[np.asarray(values).astype(np.intp)]
        values = np.asarray(values, np.float64)
        # the mean of a Gaussian of booleans remains a number
        if self._is_boolean(j) and np.isin(values, (0.0, 1.0)).all():
            return values > 0.5
        return values

    def _with_holes(self, j, values):
        """Convert encoded values of a column, missing values included, to values of the table."""
        observed = ~np.isnan(values)
        decoded = self.decoded(j, values[observed])
        if observed.all():
            return decoded
        kind = float if decoded.dtype.kind == "f" else object
        out = np.full(values.shape, np.nan if kind is float else None, kind)
        out[observed] = decoded
        return out

    def rows_of(self, X):
        """Convert encoded rows (n, D) to the container of ``fit``, a frame of modelled columns."""
        if self.container == "array":
            numeric = all(
                levels(categories).dtype.kind in "biuf"
                for block in self.blocks
                for categories in block.categories or []
            )
            out = np.array(X, X.dtype if numeric else object)
            for j in self.columns:
                observed = ~np.isnan(X[:, j])
                out[observed, j] = self.decoded(j, X[observed, j])
            return out
        decoded = {self.names[j]: self._with_holes(j, X[:, j]) for j in self.columns}
        return frame_of(decoded, dict(zip(self.names, self.types, strict=True)), self.container)

    def to_complete(self, encoded):
        """Return encoded rows with NaN where ``impute`` fills in a value."""
        if self.handle_unknown != "missing":
            return encoded
        encoded = np.array(encoded)
        for block in self.blocks:
            if block.categories is not None:
                codes = encoded[:, block.columns]
                encoded[:, block.columns] = np.where(codes >= block.sizes, np.nan, codes)
        return encoded

    def restored(self, X, encoded, filled):
        """Return a copy of X with the missing values of modelled columns filled in."""
        X = copy_of(X) if is_frame(X) else np.array(without_mask(X, True, ""))
        holes = np.isnan(encoded) & ~np.isnan(filled)
        for j in np.flatnonzero(holes.any(axis=0)):
            X = with_column(X, j, holes[:, j], self.decoded(j, filled[holes[:, j], j]))
        return X

    def named(self, block, bad):
        """Return the name of the first bad column, or of the block if ``bad`` is (nnz,)."""
        if bad.ndim < 2:
            return block.name
        return self.names[block.columns[int(np.argmax(bad.any(axis=0)))]]


def _numbers(column, name, block):
    """Return a column as numbers; raise ValueError with an example of another value."""
    if column.kind in (None, "date"):
        raise ValueError(
            f"Column {name!r} is of the type {column.type}, which {type(block.spec).__name__} does "
            f"not take. {column.remedy}"
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


def _check_finite(values, block, table):
    bad = np.isinf(values)
    if bad.any():
        raise ValueError(
            f"Input X contains infinity in column {table.named(block, bad)!r}. Columns take finite "
            "numbers, NaN where a value is missing."
        )


def _check_real(values, block, table):
    _check_finite(values, block, table)
    check_magnitude(values)


def _check_binary(values, block, table):
    bad = (values != 0.0) & (values != 1.0) & ~np.isnan(values)
    if bad.any():
        raise ValueError(
            f"Column {table.named(block, bad)!r} must be binary: 0 or 1, NaN where a value is "
            f"missing. Got {values[bad].flat[0]:g}; if it is a code, use Categorical()."
        )


def _check_count(values, block, table):
    is_integral = block.spec.allows_missing  # Poisson and negative binomial, not Multinomial
    bad = (values < 0.0) | np.isinf(values)
    if is_integral:
        with np.errstate(invalid="ignore"):
            bad |= (values != np.floor(values)) & ~np.isnan(values)
    if bad.any():
        numbers = "0, 1, 2, ..." if is_integral else "finite numbers from 0 on"
        raise ValueError(
            f"Column {table.named(block, bad)!r} must hold counts: {numbers}. Negative values in "
            f"data passed to {type(block.spec).__name__}, or others, are none. Got "
            f"{values[bad].flat[0]:g}."
        )


_CHECKS = {
    "real": _check_real,
    "binary": _check_binary,
    "count": _check_count,
    "category": _check_finite,
}
