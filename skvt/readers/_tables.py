"""Conversion of tables with columns of any kind to arrays of numbers, and back.

Models work on arrays. Each column of a table becomes a column of numbers at the same position: real
numbers and counts are unchanged, booleans become 0 and 1, categories become *codes* 0, 1, ..., and
missing values become NaN. The categories of a column are also called its levels. The conversion is
called encoding, and its result is *encoded* rows.

A *block* is a group of columns that one component of a mixture describes. The component decides how
the columns are encoded, see :mod:`skvt.readers._table_blocks`. *Given* columns explain the other
columns and have no component. j is the position of a column in the table, and i is the index of a
column in its block.
"""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from skvt.components import ComponentSpec
from skvt.components.specs import can_describe
from skvt.files import in_files
from skvt.models.mixture import as_slice
from skvt.readers._audit import ColumnWarning
from skvt.readers._columns import (
    ENTRY_REMEDY,
    as_objects,
    copy_frame,
    fill_column,
    list_column_names,
    list_columns,
    make_frame,
    make_level_array,
    to_python,
)
from skvt.readers.validation import (
    check_magnitude,
    find_stack_level,
    is_frame,
    replace_masked_values,
    show_first,
)
from skvt.rows import dense
from skvt.typing import IndexArray


@in_files("estimators.TableBlock")
@dataclass(frozen=True)
class TableBlock:
    """Columns of a table that one component describes, or a given column."""

    name: str
    # The component with its parameters.
    spec: ComponentSpec
    # Positions of the columns in the table. If the component reads the exposure of counts, a column
    # that scales their rates, the exposure is the last column.
    columns: IndexArray
    # The list of the categories of each column, in the order of their codes; None for numbers.
    categories: list[list] | None = None

    @property
    def sizes(self):
        """Number of categories of each column; None if the columns are numbers."""
        return None if self.categories is None else tuple(len(levels) for levels in self.categories)

    def describes(self, block):
        """Return whether a block of a model has this name, these columns and this component.

        The method checks tables that were read from a file.
        """
        self.spec.check()
        return (
            self.name == block.name
            and np.array_equal(self.columns, block.explained)
            and all(len(set(values)) == len(values) for values in self.categories or ())
            and can_describe(self.spec, block.component, self.sizes)
        )


@in_files("estimators.Table")
@dataclass(frozen=True)
class Table:
    """Description of the columns of a fit: blocks, names, types and findings."""

    # The blocks of the columns that components describe.
    blocks: tuple[TableBlock, ...]
    # Names of all columns, or their positions if the table is an array.
    names: tuple[Hashable, ...]
    # The user's parameter for categories that did not occur in ``fit``: "error", "prior" or
    # "missing".
    handle_unknown: str
    # "array", or the package of the data frame that was passed to ``fit``.
    container: str = "array"
    # Names of the types of the columns; empty for sparse rows and arrays of floats.
    types: tuple[str, ...] = ()
    # Findings on columns, such as "constant", as tuples (name of the column, kind, detail), see
    # ``skvt.readers._audit``.
    findings: tuple[tuple[str, str, str], ...] = ()
    # Reason why "auto" reads each column as it does; empty if the user lists components.
    reasons: tuple[str, ...] = ()
    # The columns that the user's parameter ``given`` names; one column in each block.
    given: tuple[TableBlock, ...] = ()

    @property
    def given_positions(self):
        """Positions of the given columns in the table, in the order of ``given``."""
        return [int(block.columns[0]) for block in self.given]

    @property
    def ordinal_positions(self):
        """Positions of the ordinal columns in the table."""
        return [int(block.columns[i]) for block in self.blocks
                for i in getattr(block.spec, "ordinal", ())]  # fmt: skip

    def describes(self, component, priors):
        """Return whether this table matches a model that was read from the same file.

        ``component`` is the likelihood of all blocks, and ``priors`` has the parameters of the
        priors by the name of the block.
        """
        n_features = component.n_features
        # Names are distinct, and types and reasons are empty or have an entry for each column.
        return (
            n_features == len(self.names) == len({*self.names})
            and {len(self.types), len(self.reasons)} <= {0, n_features}
            and self.container in ("array", "pandas", "polars", "pyarrow", "modin")
            and {*priors} == {block.name for block in component.blocks}
            and len(self.blocks) == len(component.blocks)
            and all(map(TableBlock.describes, self.blocks, component.blocks))
            and all(given.columns.size == 1 for given in self.given)
            and all(np.array_equal(b.given, self.given_positions) for b in component.blocks)
        )

    def renamed(self, names):
        """Return the table with other names of all columns, for descriptions of a fit."""
        name_of = dict(zip(map(str, self.names), names, strict=True))
        findings = tuple((name_of[name], *finding) for name, *finding in self.findings)
        return replace(self, names=tuple(names), findings=findings)

    def encode(self, X, columns, *, is_new=False):
        """Return X encoded as numbers (n_rows, n_columns), in the precision of X or float64.

        ``columns`` is the result of `list_columns` for X: None for numbers. ``is_new`` says whether
        the table was made for X, so that an error may advise other components. Columns without a
        block become 0 if X is a data frame or an array of objects. Raise ValueError or TypeError
        for values that the blocks do not allow.
        """
        if columns is None:
            return self._encode_numbers(X)
        encoded = np.zeros((X.shape[0], len(columns)))
        for block in (*self.blocks, *self.given):
            for i, j in enumerate(block.columns):
                if block.categories is None:
                    encoded[:, j] = _read_numbers(
                        columns[j], self.names[j], block.spec, is_new=is_new
                    )
                else:
                    encoded[:, j] = self._encode_objects(columns[j].to_objects(), block, i)
        encoded = self._hide_other_numbers(encoded)
        self._check_values(encoded)
        return encoded

    def _encode_numbers(self, X):
        """Encode an array of numbers, in which only categories other than 0, 1, ... change.

        X is not changed in place: the result is X itself, or a copy with codes.
        """
        X = self._hide_other_numbers(X)
        self._check_values(X)
        encoded = X
        for block in self.given:
            if block.categories is not None:
                # A given block has one column, with the index 0.
                entries = _to_entries(dense(X[:, block.columns]).ravel())
                codes = self._encode_objects(entries, block, 0)
                encoded = self._replace_column(encoded, block, codes)
        for block in self.blocks:
            for i, j in enumerate(block.columns if block.categories is not None else ()):
                if sp.issparse(X):
                    raise ValueError(
                        f"Column {self.names[j]!r} of categories cannot be sparse, because zeros "
                        "that are not stored are categories, too. Pass a data frame or a dense "
                        "array."
                    )
                values = np.asarray(X[:, j], np.float64)
                codes = self._encode_numeric_levels(values, block, i)
                if not np.array_equal(codes, values, equal_nan=True):
                    # Copy X before the first change.
                    encoded = np.array(X) if encoded is X else encoded
                    encoded[:, j] = codes
        return encoded

    def _hide_other_numbers(self, X):
        """Return rows with NaN for numbers that are no counts, where "auto" reads counts, and warn.

        X is not changed in place. If ``handle_unknown`` is "error", the numbers stay as they are,
        so that a check raises ValueError.
        """
        if not self.reasons or sp.issparse(X) or self.handle_unknown == "error":
            return X
        for block in self.blocks:
            # Multinomial, which takes no missing values, also takes numbers that are not whole.
            if block.spec.encoding != "count" or not block.spec.allows_missing:
                continue
            values, smallest = X[:, block.columns], block.spec.smallest_count
            is_other = np.isfinite(values) & ((values < smallest) | (values != np.floor(values)))
            if not is_other.any():
                continue
            warnings.warn(
                f"Column {self.name_bad_column(block, is_other)!r} was read as counts from "
                f"{smallest} on, but has other numbers, such as {values[is_other][0]:g} "
                f"({is_other.any(axis=1).sum()} of {len(X)} rows). They are treated as missing. If "
                "they are no errors, list the 'components', such as Gaussian('auto', log='auto'); "
                "handle_unknown='error' raises an error instead.",
                ColumnWarning,
                stacklevel=find_stack_level(),
            )
            X = np.array(X, np.float64)
            X[:, block.columns] = np.where(is_other, np.nan, values)
        return X

    @staticmethod
    def _replace_column(X, block, codes):
        """Return a copy of X with ``codes`` (n_rows,) in the column of a block of one column."""
        is_sparse = sp.issparse(X)
        # Columns of CSR arrays cannot be replaced efficiently.
        X = sp.lil_array(X) if is_sparse else np.array(X)
        X[:, block.columns] = codes[:, None]
        return sp.csr_array(X) if is_sparse else X

    def _check_given(self, X):
        """Raise ValueError unless given columns of numbers are complete and finite."""
        for block in self.given:
            if block.categories is not None:
                continue
            values = dense(X[:, block.columns])
            _check_real(values, block, self)
            n_missing = np.isnan(values).sum()
            if n_missing:
                raise ValueError(
                    f"The given column {self.names[block.columns[0]]!r} has missing values "
                    f"({n_missing} of {values.size} rows), but a row cannot be explained without "
                    "its number. Fill in the values, leave these rows out, or convert the column "
                    "to categories, for which a missing value is a level."
                )

    def _encode_numeric_levels(self, values, block, i):
        """Return the codes of numbers in column i of a block, NaN where a number is missing."""
        levels = make_level_array(block.categories[i])
        is_ascending = not np.any(levels[1:] <= levels[:-1])
        if levels.dtype.kind not in "biuf" or not is_ascending:
            return self._encode_objects(_to_entries(values), block, i)
        # The code of a value is its position among the levels, which bisection finds fast. A value
        # above all levels gets the position of the last level, from which it differs.
        codes = np.minimum(np.searchsorted(levels, values), levels.size - 1)
        is_missing = np.isnan(values)
        is_unseen = ~is_missing & (levels[codes] != values)
        return self._encode_unseen(np.where(is_missing, np.nan, codes), is_unseen, values, block, i)

    def _encode_objects(self, entries, block, i):
        """Return the codes of objects in column i of a block.

        The code of None is NaN, except in a given column, where None can be a level.
        """
        code_of_category = {category: code for code, category in enumerate(block.categories[i])}
        try:
            # -1 marks unseen levels, which did not occur in ``fit``.
            codes = np.array([code_of_category.get(value, -1) for value in entries], np.float64)
        except TypeError as error:
            name = self.names[block.columns[i]]
            raise ValueError(
                f"Column {name!r} has values that cannot be categories: {error}. {ENTRY_REMEDY}"
            ) from error
        is_unseen = codes < 0.0
        # If the block is not one of the given blocks, None is a missing value and no unseen level.
        if not any(block is given for given in self.given):
            is_missing = np.array([value is None for value in entries], bool)
            codes[is_missing] = np.nan
            is_unseen &= ~is_missing
        return self._encode_unseen(codes, is_unseen, entries, block, i)

    def _encode_unseen(self, codes, is_unseen, values, block, i):
        """Set the code of unseen levels to the number of categories, in place; return the codes.

        ``is_unseen`` (n_rows,) marks the unseen levels among ``values``, which did not occur in
        ``fit``. Raise ValueError for unseen levels of a given column, and if ``handle_unknown`` is
        "error". Warn if it is "prior".
        """
        if not is_unseen.any():
            return codes
        name, categories = self.names[block.columns[i]], block.categories[i]
        # The first unseen level, for the message.
        level = to_python(values[np.flatnonzero(is_unseen)[0]])
        if any(block is given for given in self.given):
            problem = "missing values" if level is None else f"the level {level!r}"
            raise ValueError(
                f"The given column {name!r} has {problem} ({np.count_nonzero(is_unseen)} of "
                f"{codes.size} rows), which did not occur in fit. Its levels are "
                f"{show_first(categories)}, and nothing is known of rows of other levels: leave "
                "these rows out, give them one of these levels, or fit with such rows."
            )
        if self.handle_unknown == "error":
            raise ValueError(
                f"Unknown category {level!r} in column {name!r}: the categories of the fit are "
                f"{show_first(categories)}. Set handle_unknown='prior' to give unknown categories "
                "the share of the prior, or list all categories: Categorical(categories=[[...], "
                "...])."
            )
        if self.handle_unknown == "prior":
            warnings.warn(
                f"Column {name!r} has levels that are not among the categories of the fit, such "
                f"as {level!r} ({np.count_nonzero(is_unseen)} of {is_unseen.size} rows). Each of "
                "them has the share that the prior gives to one level that was not seen. If such "
                "levels are expected, list them in Categorical(categories=[[...], ...]), or give "
                "the column a categorical dtype; handle_unknown='error' raises an error instead.",
                ColumnWarning,
                stacklevel=find_stack_level(),
            )
        codes[is_unseen] = len(categories)
        return codes

    def _check_values(self, X):
        """Raise ValueError for encoded rows with numbers that the blocks do not allow."""
        self._check_given(X)
        for block in self.blocks:
            columns = block.columns
            if block.spec.reads_exposure:
                # The last column of the block is the exposure.
                columns, exposures = columns[:-1], X[:, columns[-1:]]
                self._check_exposures(dense(exposures), block)
            # If the columns are consecutive, a slice avoids a copy.
            values = X[:, as_slice(columns)]
            # If zeros are illegal, those that are not stored are checked, too.
            values = dense(values) if block.spec.smallest_count else values
            stored_values = values.data if sp.issparse(values) else values
            _CHECKS[block.spec.encoding](stored_values, block, self)
            if not block.spec.allows_missing and np.isnan(stored_values).any():
                raise ValueError(
                    f"Input X contains NaN in the columns of {block.name!r}, but "
                    f"{type(block.spec).__name__} needs complete rows. Fill in the values, or use "
                    "a component that allows missing values, such as Poisson() for counts."
                )

    def _check_exposures(self, values, block):
        """Raise ValueError unless exposures are positive and finite."""
        if not np.all((values > 0.0) & np.isfinite(values)):
            raise ValueError(
                f"The exposure of {block.name!r}, column {self.names[block.columns[-1]]!r}, must "
                f"have positive numbers. Got {values[~(values > 0.0) | np.isinf(values)][0]:g}."
            )

    @property
    def columns(self):
        """Positions of the columns that belong to a block of ``blocks``, in ascending order."""
        return np.sort(np.concatenate([block.columns for block in self.blocks]))

    def encode_given_rows(self, X):
        """Return encoded rows (n_rows, n_columns) with values only in the conditioning columns.

        The conditioning columns are the given columns and the exposures, on which the distribution
        of the other columns is conditional. The other columns become NaN.

        X is a frame or an array. It has all columns of the fit, or only the conditioning columns;
        in an array, the given columns then come before the exposures.
        """
        exposures = [int(block.columns[-1]) for block in self.blocks if block.spec.reads_exposure]
        positions = self.given_positions + exposures
        names = [self.names[j] for j in positions]
        if is_frame(X):
            columns = dict(zip(list_column_names(X), list_columns(X), strict=True))
            absent = [name for name in names if name not in columns]
            if absent:
                raise ValueError(
                    f"'given' lacks the columns {absent}. Pass a data frame with the columns "
                    f"{names}."
                )
            values = [columns[name].to_objects() for name in names]
        else:
            X = dense(X) if sp.issparse(X) else np.asarray(X)
            if X.ndim != 2 or X.shape[1] not in (len(positions), len(self.names)):
                raise ValueError(
                    f"'given' must be an array of the {len(positions)} columns {names}, or of all "
                    f"{len(self.names)} columns of the fit. Got the shape {X.shape}."
                )
            # The rows of the transposed array are the columns.
            values = X.T if X.shape[1] == len(positions) else X.T[positions]
        rows = np.full((X.shape[0], len(self.names)), None, object)
        for j, column in zip(positions, values, strict=True):
            rows[:, j] = column
        return self.encode(rows, list_columns(rows))

    def select_modelled(self, X):
        """Return the columns of X that belong to a block of ``blocks``, in the order of X."""
        return X if self.columns.size == X.shape[1] else X[:, self.columns]

    def find_position(self, column):
        """Return the position of a column that a component describes.

        ``column`` is the name of the column or, if no column has this name, its position.
        """
        matches = [j for j, name in enumerate(self.names) if name is column or name == column]
        if not matches and isinstance(column, int | np.integer) and not isinstance(column, bool):
            matches = [int(column)] if 0 <= column < len(self.names) else []
        if not matches or not any(matches[0] in block.columns for block in self.blocks):
            known = [self.names[j] for block in self.blocks for j in block.columns]
            raise ValueError(
                f"column must be one of the columns that a component describes: {known}. Got "
                f"{column!r} instead."
            )
        return matches[0]

    def find_block(self, j):
        """Return the block of the column at position j, and the column's index in the block."""
        block = next(block for block in self.blocks if j in block.columns)
        return block, int(np.flatnonzero(block.columns == j)[0])

    def labels(self, j):
        """Return the categories of column j; for a binary column, False and True, or 0 and 1."""
        block, i = self.find_block(j)
        if block.categories is None:
            return np.array([False, True] if self._is_boolean(j) else [0, 1])
        return make_level_array(block.categories[i])

    def _is_boolean(self, j):
        """Return whether a column held booleans in ``fit``."""
        return bool(self.types) and self.types[j].lower().startswith("bool")

    def decode_column(self, j, values):
        """Convert encoded values of column j, none of which is missing, to values of the table."""
        block, i = self.find_block(j)
        if block.categories is not None:
            return as_objects(block.categories[i])[np.asarray(values).astype(np.intp)]
        values = np.asarray(values, np.float64)
        # A Gaussian may describe booleans. Its means, which may differ from 0 and 1, stay numbers.
        if self._is_boolean(j) and np.isin(values, (0.0, 1.0)).all():
            return values > 0.5
        return values

    def find_entry(self, X, encoded, row, j):
        """Return the value of column j in a row of X; ``encoded`` are the encoded rows X.

        An unseen level is read from X, because all unseen levels of a column have the same code.
        """
        block, i = self.find_block(j)
        code = encoded[row, j]
        if block.categories is None or code < len(block.categories[i]):
            return self.decode_column(j, [code])[0]
        if is_frame(X):
            return to_python(list_columns(X)[j].to_objects()[row])
        return to_python(np.asarray(X[row], object)[j])

    def _decode_with_missing(self, j, values):
        """Convert encoded values of column j, some of which may be NaN, to values of the table.

        Missing values become NaN among numbers and None among objects.
        """
        is_observed = ~np.isnan(values)
        observed = self.decode_column(j, values[is_observed])
        if is_observed.all():
            return observed
        dtype = float if observed.dtype.kind == "f" else object
        decoded = np.full(values.shape, np.nan if dtype is float else None, dtype)
        decoded[is_observed] = observed
        return decoded

    def decode_rows(self, X):
        """Convert encoded rows (n_rows, n_columns) to an array or a data frame, as in ``fit``.

        A data frame has only the columns that belong to a block of ``blocks``.
        """
        if self.container == "array":
            # Decoded categories may be texts or other objects.
            is_numeric = all(
                make_level_array(categories).dtype.kind in "biuf"
                for block in self.blocks
                for categories in block.categories or []
            )
            decoded = np.array(X, X.dtype if is_numeric else object)
            for j in self.columns:
                is_observed = ~np.isnan(X[:, j])
                decoded[is_observed, j] = self.decode_column(j, X[is_observed, j])
            return decoded
        decoded = {self.names[j]: self._decode_with_missing(j, X[:, j]) for j in self.columns}
        return make_frame(decoded, dict(zip(self.names, self.types, strict=True)), self.container)

    def mark_unseen_as_missing(self, encoded):
        """Return encoded rows with NaN for unseen levels if ``handle_unknown`` is "missing"."""
        if self.handle_unknown != "missing":
            return encoded
        encoded = np.array(encoded)
        for block in self.blocks:
            if block.categories is not None:
                codes = encoded[:, block.columns]
                encoded[:, block.columns] = np.where(codes >= block.sizes, np.nan, codes)
        return encoded

    def fill_missing(self, X, encoded, filled):
        """Return a copy of X in which missing values of modelled columns are filled in.

        ``encoded`` and ``filled`` (n_rows, n_columns) are the encoded rows before and after missing
        values are filled in.
        """
        X = replace_masked_values(X, takes_missing=True, caller="")
        X = copy_frame(X) if is_frame(X) else np.array(X)
        is_filled = np.isnan(encoded) & ~np.isnan(filled)
        for j in np.flatnonzero(is_filled.any(axis=0)):
            values = self.decode_column(j, filled[is_filled[:, j], j])
            X = fill_column(X, j, is_filled[:, j], values)
        return X

    def name_bad_column(self, block, is_illegal):
        """Return the name of the first column of a block that has an illegal value, for an error.

        ``is_illegal`` (n_rows, n_columns of the block) marks illegal values. If it marks the stored
        values of sparse rows, (nnz,), the column is not known: return the name of the block.
        """
        if is_illegal.ndim < 2:
            return block.name
        return self.names[block.columns[int(np.argmax(is_illegal.any(axis=0)))]]


def _to_entries(values):
    """Return numbers as an array of objects, None where they are NaN."""
    entries = values.astype(object)
    entries[np.isnan(values)] = None
    return entries


def _read_numbers(column, name, spec, *, is_new):
    """Return a column as numbers; raise ValueError if a value is not a number.

    ``spec`` is the component that describes the column. ``is_new`` is as in `Table.encode`.
    """
    if column.kind in (None, "date"):
        raise ValueError(
            f"Column {name!r} is of type {column.type}, which {type(spec).__name__} does not "
            f"take. {column.remedy}"
        )
    try:
        return column.to_numbers()
    except (TypeError, ValueError) as error:
        entries = column.to_objects()
        # Show the first string or, without strings, the first entry.
        example = next((entry for entry in entries if isinstance(entry, str)), entries[0])
        if is_new:
            raise ValueError(
                f"{type(spec).__name__} takes numbers, but column {name!r} has {example!r}. Use "
                "Categorical() for this column, pass codes in the order of its levels, or leave it "
                "out of 'components'."
            ) from error
        kind, remedy = "numbers", "pandas.to_numeric(column, errors='coerce')"
        if spec.encoding == "binary":
            kind, remedy = "true or false", "column.map({'yes': True, 'no': False})"
        raise ValueError(
            f"Column {name!r} was read as {kind} in fit, but has {example!r}. Convert the column, "
            f"for example by {remedy}, which makes other values missing."
        ) from error


# In the following checks, ``values`` are the values of a block of a table, or its stored values if
# rows are sparse.
def _check_finite(values, block, table):
    """Raise ValueError for infinite values of a block."""
    is_illegal = np.isinf(values)
    if is_illegal.any():
        raise ValueError(
            f"Input X contains infinity in column {table.name_bad_column(block, is_illegal)!r}. "
            "Columns take finite numbers, or NaN where a value is missing."
        )


def _check_real(values, block, table):
    """Raise ValueError for real values that are infinite or too large to be squared."""
    _check_finite(values, block, table)
    check_magnitude(values, partial(table.name_bad_column, block))


def _check_binary(values, block, table):
    """Raise ValueError unless the values of a block are 0, 1 or NaN."""
    is_illegal = (values != 0.0) & (values != 1.0) & ~np.isnan(values)
    if is_illegal.any():
        raise ValueError(
            f"Column {table.name_bad_column(block, is_illegal)!r} must be binary: 0 or 1, or NaN "
            f"where a value is missing. Got {values[is_illegal].flat[0]:g}; if it is a code, use "
            "Categorical()."
        )


def _check_count(values, block, table):
    """Raise ValueError unless the values of a block are counts.

    The component Multinomial also takes magnitudes, numbers that need not be whole.
    """
    # Only Multinomial takes no missing values, so that other components take counts only.
    takes_integers_only = block.spec.allows_missing
    smallest = block.spec.smallest_count
    is_illegal = (values < smallest) | np.isinf(values)
    if takes_integers_only:
        with np.errstate(invalid="ignore"):
            is_illegal |= (values != np.floor(values)) & ~np.isnan(values)
    if is_illegal.any():
        numbers = "finite numbers from 0 on"
        if takes_integers_only:
            numbers = f"{smallest}, {smallest + 1}, {smallest + 2}, ..."
        remedy, value = "", values[is_illegal].flat[0]
        if 0.0 <= value < smallest:
            remedy = (
                " The parameter 'at' of Hurdle is the smallest count of all rows: set it to a "
                "smaller number or, if smaller counts are errors, replace them by NaN."
            )
        elif takes_integers_only:
            remedy = (
                " Pass numbers as they were counted, neither scaled nor in logarithms; those of an "
                "AnnData may be in layers['counts']."
            )
        elif table.reasons:
            remedy = (
                " components='auto' reads a sparse matrix as counts of words. For other numbers, "
                "pass X.toarray(), or list the 'components'."
            )
        raise ValueError(
            f"Column {table.name_bad_column(block, is_illegal)!r} must have counts: {numbers}. "
            f"Negative values in data passed to {type(block.spec).__name__} are not counts, nor "
            f"are other values. Got {value:g}.{remedy}"
        )


# Check of the values of a block, by the encoding of its component.
_CHECKS = {
    "real": _check_real,
    "binary": _check_binary,
    "count": _check_count,
    "category": _check_finite,
}
