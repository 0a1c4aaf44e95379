"""Division of the columns of a table into blocks, each with the component that describes it.

A *component* is the likelihood of a *block* of columns in a mixture; the object with its parameters
is a ``spec``. The user lists the blocks in ``components``, or ``components="auto"``, called "auto"
in this module, forms blocks by the types and the values of the columns. Columns named in ``given``
explain the other columns and have no component.

Rows in several chunks are scanned chunk by chunk (:func:`scan_table`), and the scans are joined
into one table (:func:`join_tables`). A real column in which one value is a point mass, such as the
zeros of rainfall, gets a :class:`~skvt.components.Hurdle`. Findings on columns, such as
identifiers, come from :mod:`skvt.readers._audit`. j is the position of a column in the table.
"""

from collections import Counter
from dataclasses import replace
from functools import reduce
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt._sklearn_private import column_indices
from skvt.components import (
    Bernoulli,
    Categorical,
    ComponentSpec,
    Gaussian,
    Hurdle,
    Multinomial,
    NegativeBinomial,
)
from skvt.components.specs import SPECS_BY_NAME, copy_component, is_auto
from skvt.readers._audit import (
    LIMITS_AT_END,
    MAX_LEVELS,
    MIN_ROWS,
    ColumnSummary,
    are_distinct,
    compute_gain_of_amounts,
    find_logarithms_of_counts,
    find_suspicious_columns,
    find_uninformative_columns,
    has_distribution_of_counts,
)
from skvt.readers._columns import ENTRY_REMEDY, Column, get_container_name, list_column_names
from skvt.readers._tables import Table, TableBlock
from skvt.readers.validation import show_first
from skvt.rows import dense

# Name and component of the block that components="auto" makes of the columns of each kind.
_AUTOMATIC_BLOCKS = {"real": ("numbers", lambda: Gaussian("auto", log="auto")),
                     "amount": ("amounts", lambda: Hurdle(Gaussian("auto", log="auto"))),
                     "count": ("counts", NegativeBinomial),
                     "zeros and count": ("zeros and counts", lambda: Hurdle(NegativeBinomial())),
                     "count from one": ("counts from one",
                                        lambda: Hurdle(NegativeBinomial(), at=1)),
                     "category": ("categories", Categorical),
                     "binary": ("flags", Bernoulli)}  # fmt: skip
# A value is a point mass if its share of the column's values exceeds a minimum share, and its count
# exceeds a minimum ratio times the count of each neighbouring value. Rounded values are frequent,
# too, but so are their neighbours. A point mass that is not detected begins to hide clusters if it
# has about a twentieth of the rows, and hides a third of them if it has a fifth. The pair (minimum
# share, minimum ratio) is LIMITS_AT_END for zero, and for the smallest and the largest value, and
# the following for other values.
_MASS_LIMITS_INSIDE = 0.3, 10.0
# A column with at most this many distinct values besides the most frequent one may have levels,
# such as ratings, and then has no point mass.
_MAX_OTHER_LEVELS = 10
# Kinds of findings that later rows of a stream may refute.
_REFUTABLE_FINDINGS = "constant", "identifier", "number as text"
# Minimum share of a chunk's values for which the count of a value is kept.
_MIN_COUNTED_SHARE = 1.0 / 64.0
# Zeros with a smaller share are also a point mass if the other values are amounts. Three conditions
# must hold: there are at least _MIN_ZEROS zeros, they exceed the minimum ratio, and logarithms of
# the other values raise the bound by at least _MIN_GAIN_PER_AMOUNT nats per value. With a smaller
# gain, a hurdle costs more than it gains, since the column leaves the block in which Gaussians
# model correlations.
_MIN_ZEROS = 5
_MIN_GAIN_PER_AMOUNT = 0.1


class ValueCounts(NamedTuple):
    """Counts of the values of a real column in one or several chunks of rows."""

    # Number of values that are not missing.
    n_observed: int
    # Whether some values are missing.
    has_missing: bool
    # Count by value, in ascending order of the values. Only the ``_MAX_OTHER_LEVELS + 2`` smallest
    # values, the two largest values, and frequent values with their neighbours are kept, because
    # the properties of this class do not depend on other values.
    counts: dict

    @classmethod
    def from_values(cls, values):
        """Count numbers, NaN where they are missing; return None if all are missing."""
        distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        if not distinct.size:
            return None
        n_observed = int(counts.sum())
        counts = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
        return cls(n_observed, n_observed < len(values), _select_counts(counts, n_observed))

    def merged_with(self, other):
        """Return the counts of the values in the chunks of this object and of ``other``."""
        summed_counts = Counter(self.counts) + Counter(other.counts)
        counts = dict(sorted(summed_counts.items()))
        n_observed = self.n_observed + other.n_observed
        has_missing = self.has_missing or other.has_missing
        return ValueCounts(n_observed, has_missing, _select_counts(counts, n_observed))

    @property
    def is_constant(self):
        """Whether all rows have the same value, so that the column has no information."""
        return self.n_observed >= MIN_ROWS and not self.has_missing and len(self.counts) == 1

    @property
    def point_mass(self):
        """The most frequent point mass; None if no value is a point mass."""
        if self.n_observed < MIN_ROWS:
            return None
        point_masses = filter(self._is_point_mass, self.counts)
        return max(point_masses, key=self.counts.__getitem__, default=None)

    @property
    def has_separate_zeros(self):
        """Whether zero is the smallest value, and more frequent than the next values allow."""
        n_zeros = self.counts.get(0.0, 0)
        _, min_ratio = LIMITS_AT_END
        return (
            min(self.counts) == 0.0
            and n_zeros >= _MIN_ZEROS
            and n_zeros > min_ratio * self._max_neighbour_count(0.0)
        )

    def _max_neighbour_count(self, value):
        """Return the larger of the counts of the values next to ``value``."""
        values = sorted(self.counts)
        position = values.index(value)
        neighbours = values[max(position - 1, 0) : position] + values[position + 1 : position + 2]
        return max((self.counts[neighbour] for neighbour in neighbours), default=0)

    def _is_point_mass(self, value):
        """Return whether a value is far more frequent than a continuous density explains."""
        count = self.counts[value]
        is_at_end = value in (min(self.counts), max(self.counts), 0.0)
        min_share, min_ratio = LIMITS_AT_END if is_at_end else _MASS_LIMITS_INSIDE
        min_count = max(min_share * self.n_observed, min_ratio * self._max_neighbour_count(value))
        # The other values must be numbers, not levels. Few distinct values may be levels, unless
        # each of them occurs at most twice on average.
        n_others = self.n_observed - count
        n_distinct_others = len(self.counts) - 1
        has_many_others = n_distinct_others > _MAX_OTHER_LEVELS
        return count > min_count and (has_many_others or 2 * n_distinct_others >= n_others > 0)


def _select_counts(counts, n_observed):
    """Return the counts that :class:`ValueCounts` keeps; ``counts`` are sorted by value."""
    values = list(counts)
    kept_values = {*values[: _MAX_OTHER_LEVELS + 2], *values[-2:]}
    for position, value in enumerate(values):
        if counts[value] >= _MIN_COUNTED_SHARE * n_observed:
            kept_values.update(values[max(position - 1, 0) : position + 2])
    return {value: counts[value] for value in kept_values}


class TableScan(NamedTuple):
    """The table of the rows of one chunk, and the values of real and of given columns."""

    table: Table
    # The :class:`ValueCounts` of each real column by the position of the column; None for a column
    # without values. The dict is empty unless ``components`` is "auto".
    value_counts: dict
    # For each given column of categories, the set of the levels that occur in the rows, and the
    # number of values; an empty set and 0 for numbers.
    given_levels: list


def build_table(X, columns, components, handle_unknown, given=None, *, in_stream=False):
    """Return the :class:`Table` of rows like X, with categories and findings on columns.

    ``columns`` is the result of `list_columns` for X; None if X is an array of floats or sparse.
    "auto" leaves out uninformative columns. ``in_stream`` tells whether X are the first rows of a
    stream. "auto" then keeps columns whose first values are all equal or all distinct, because
    later values may be others; only columns of row numbers are still left out.
    """
    # Summaries of columns, and findings on columns, by position.
    summaries, findings = {}, {}
    # The kinds as which "auto" reads the columns; None stands for ``Column.kind``.
    kinds = None
    is_automatic = is_auto(components)
    if is_automatic and columns is not None:
        # Find the columns that "auto" leaves out. Given columns are kept in any case.
        summaries = {j: ColumnSummary.from_column(column) for j, column in enumerate(columns)}
        findings = find_uninformative_columns(columns, summaries)
        for j in _find_given_positions(X, given):
            findings.pop(j, None)
        if in_stream:
            findings = {
                j: (kind, detail)
                for j, (kind, detail) in findings.items()
                if not _may_be_refuted(kind, columns[j]) or summaries[j].has_row_numbers
            }
        kinds = [column.kind for column in columns]
        for j, summary in summaries.items():
            # Columns of whole numbers with few distinct values are read as categories.
            if summary.has_few_values:
                kinds[j] = "category"
            # Later values of a stream might be neither amounts nor counts.
            elif kinds[j] == "real" and not in_stream:
                kinds[j] = _choose_kind(columns[j].to_numbers(), summary, given)
        for j in findings:
            kinds[j] = "left out"
    # Rows in memory are a single chunk with the number 0.
    scans = {0: scan_table(X, columns, components, handle_unknown, given=given, kinds=kinds)}
    table = join_tables(scans, in_stream=in_stream)
    # Positions of the columns that a component describes.
    modelled_columns = {j for block in table.blocks for j in block.columns.tolist()}
    if is_automatic and columns is None:
        # "auto" leaves out a column of an array of floats only if the column has no value, or has
        # the same value in all rows.
        omitted_columns = set(range(X.shape[1])) - modelled_columns - set(table.given_positions)
        for j in omitted_columns:
            is_missing = np.isnan(X[0, j])
            constant_finding = "constant", f"{X[0, j]:g}, left out"
            findings[j] = ("missing", "left out") if is_missing else constant_finding
    # Look for findings on the columns of the blocks. Single sparse columns are not judged, because
    # most values are zeros.
    if X.shape[0] >= MIN_ROWS and sp.issparse(X) and is_automatic:
        findings |= find_logarithms_of_counts(X, range(X.shape[1]))
    elif X.shape[0] >= MIN_ROWS and not sp.issparse(X):
        for j in modelled_columns - summaries.keys():
            summaries[j] = ColumnSummary.from_column(X[:, j] if columns is None else columns[j])
        findings |= find_suspicious_columns(summaries, table, X.shape[0])
    # Only real columns are regressed on given columns, see `ComponentSpec.build_given`. Other
    # columns have a table for each combination of given levels, so that nothing ties these levels
    # to each other.
    if not any(block.spec.encoding == "real" for block in table.blocks):
        for block in table.given:
            kind = "unused" if block.categories is None else "not tied"
            findings[int(block.columns[0])] = kind, "given"
    return replace(
        table, findings=tuple((str(table.names[j]), *findings[j]) for j in sorted(findings))
    )


def _choose_kind(numbers, summary, given):
    """Return how "auto" reads numbers, as a key of ``_AUTOMATIC_BLOCKS``.

    ``summary`` is the :class:`ColumnSummary` of the numbers.
    """
    observed = numbers[~np.isnan(numbers)]
    if observed.size < MIN_ROWS or observed.min() not in (0.0, 1.0):
        return "real"
    # With given columns, counts are read as real numbers, because given numbers do not explain
    # counts.
    may_be_counts = summary.may_be_counts and given is None
    if observed.min() == 1.0:
        # Larger numbers, of which few are 1, stay in the block in which Gaussians model
        # correlations.
        min_share, _ = LIMITS_AT_END
        if not may_be_counts or np.mean(observed == 1.0) <= min_share:
            return "real"
        is_count = any(
            has_distribution_of_counts(observed - 1.0, has_point_mass=has_point_mass)
            for has_point_mass in (False, True)
        )
        return "count from one" if is_count else "real"
    value_counts = ValueCounts.from_values(observed)
    point_mass, has_separate_zeros = value_counts.point_mass, value_counts.has_separate_zeros
    if may_be_counts:
        has_point_mass = point_mass == 0.0 or has_separate_zeros
        if has_distribution_of_counts(observed, has_point_mass=has_point_mass):
            return "zeros and count" if has_point_mass else "count"
    has_many_others = len(value_counts.counts) > _MAX_OTHER_LEVELS + 1
    if point_mass is None and has_separate_zeros and has_many_others:
        gain, n_amounts = compute_gain_of_amounts(observed)
        if gain > _MIN_GAIN_PER_AMOUNT * n_amounts:
            return "amount"
    return "real"


def scan_table(X, columns, components, handle_unknown, given=None, kinds=None):
    """Return the :class:`TableScan` of rows X, which may be one of several chunks.

    ``columns`` is the result of `list_columns` for X. ``kinds`` are the kinds as which "auto" reads
    the columns, by default ``Column.kind``.
    """
    names = list_column_names(X)
    given_positions = _find_given_positions(X, given)
    value_counts = {}
    # Find the name, the component and the positions of the columns of each block.
    if is_auto(components):
        blocks = _make_automatic_blocks(X, columns, names, kinds, given_positions)
        for _, spec, positions in blocks:
            for j in positions if spec.encoding == "real" else ():
                values = X[:, j] if columns is None else columns[j].to_numbers()
                value_counts[j] = ValueCounts.from_values(values)
    else:
        blocks = [
            (name, _copy_legal_component(name, component), _find_positions(X, key, name))
            for name, component, key in list_blocks(components)
        ]
        if is_single_component(components):
            # The only block describes all columns that have no other use.
            blocks = [_use_remaining_columns(*blocks[0], X, given_positions)]
    _check_blocks(blocks, names, given_positions)
    # Add categories and exposures to the blocks.
    table_blocks = []
    for name, spec, positions in blocks:
        # Some parameters of a component select columns by names; the function that is passed finds
        # the positions of these columns.
        spec = spec.for_columns(positions, lambda key, name=name: _find_positions(X, key, name))
        categories = None
        if spec.encoding == "category":
            if isinstance(spec.categories, str):
                categories = [_find_categories(X, columns, j, names[j]) for j in positions]
            elif len(spec.categories) == len(positions):
                categories = [list(levels) for levels in spec.categories]
            else:
                raise ValueError(
                    f"The 'categories' parameter of {name!r} must be 'auto' or have a list for "
                    f"each of its {len(positions)} columns. Got {len(spec.categories)} lists."
                )
        if spec.reads_exposure:
            positions = [*positions, _find_exposure(X, spec, name, blocks)]
        table_blocks.append(TableBlock(name, spec, np.array(positions, np.intp), categories))
    types = () if columns is None else tuple(column.type for column in columns)
    reasons = _explain_reading(X, columns, kinds) if is_auto(components) else ()
    given_blocks = [_make_given_block(X, columns, j, names[j]) for j in given_positions]
    table = Table(
        tuple(table_blocks), names, handle_unknown, get_container_name(X), types, reasons=reasons,
        given=tuple(block for block, _ in given_blocks),
    )  # fmt: skip
    return TableScan(table, value_counts, [levels for _, levels in given_blocks])


def _may_be_refuted(kind, column):
    """Return whether later rows may refute this kind of finding on a column.

    Later values of a column of numbers may be observed. Categories must be known from the first
    rows on.
    """
    return kind in _REFUTABLE_FINDINGS or (kind == "missing" and column.kind == "real")


def _find_given_positions(X, given):
    """Return the positions of the columns that the parameter ``given`` selects."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return []
    key = [given] if isinstance(given, str | int) else given
    if np.ndim(key) > 0 and len(key) > X.shape[1]:
        raise ValueError(
            f"The 'given' parameter takes names or positions of columns of X. Got {len(key)} "
            f"values, a {type(given).__name__}, but X has {X.shape[1]} columns. Make the values a "
            "column of X, such as X.assign(batch=values), and pass its name: given=['batch']."
        )
    # A dict drops repeated positions and keeps their order.
    positions = list(dict.fromkeys(_find_positions(X, key, "given")))
    if len(positions) == X.shape[1]:
        raise ValueError(
            f"The 'given' parameter names all {X.shape[1]} columns, so that no column is left to "
            "be explained. Name fewer columns."
        )
    return positions


def _make_given_block(X, columns, j, name):
    """Return the block of the given column at position j, and its entry of ``given_levels``.

    The column is read as numbers, or as categories, see the field of :class:`TableScan`.
    Whole numbers of at most ``MAX_LEVELS`` distinct values are categories, unless more than half of
    the values are distinct. If values of categories are missing, None is the last level. Given
    columns have no component: Gaussian stands for numbers, and Categorical for categories.
    """
    column = Column("real", "number", dense(X[:, [j]]).ravel()) if columns is None else columns[j]
    if column.kind in (None, "date"):
        raise TypeError(
            f"The given column {name!r} is of type {column.type}, which cannot explain other "
            f"columns. {column.remedy}"
        )
    if column.kind == "real":
        observed = column.to_numbers()
        observed = observed[~np.isnan(observed)]
        n_distinct = np.unique(observed).size
        are_whole = np.array_equal(observed, np.floor(observed))
        if n_distinct == 0 or not are_whole or n_distinct > min(MAX_LEVELS, 0.5 * observed.size):
            return TableBlock("given", Gaussian(), np.array([j], np.intp)), (set(), 0)
    entries = column.to_objects()
    levels = column.categories
    if levels is None:
        levels = _sort_levels({value for value in entries if value is not None})
    observed = [value for value in entries if value is not None]
    levels = [*levels, None] if len(observed) < len(entries) else list(levels)
    block = TableBlock("given", Categorical(), np.array([j], np.intp), [levels])
    # Declared levels may occur in no row.
    return block, (set(observed), len(observed))


def _check_given_levels(block, name, chunk_levels):
    """Raise ValueError for a given column of categories whose values nearly all differ.

    ``block`` is the block of the column, and ``chunk_levels`` has its entry of ``given_levels`` for
    each chunk, see :class:`TableScan`.
    """
    chunk_sets, chunk_sizes = zip(*chunk_levels, strict=True)
    n_levels, n_values = len(set().union(*chunk_sets)), sum(chunk_sizes)
    if block.categories is not None and are_distinct(n_levels, n_values):
        raise ValueError(
            f"The given column {name!r} has {n_levels} levels in {n_values} rows. A level of a "
            "single row explains nothing about other rows: do not name the column in 'given'."
        )


def _join_given_blocks(chunk_blocks):
    """Return the block of a given column for all rows, by its blocks in the chunks."""
    # The column is numbers if it was read as numbers in any chunk.
    numeric_blocks = [block for block in chunk_blocks if block.categories is None]
    if numeric_blocks:
        return numeric_blocks[0]
    # A given block has one column, with the index 0. None is joined separately, as the last level.
    chunk_levels = [block.categories[0] for block in chunk_blocks]
    has_missing = any(None in levels for levels in chunk_levels)
    known_levels = [[level for level in levels if level is not None] for levels in chunk_levels]
    joined_levels = _join_levels(known_levels)
    joined_levels = [*joined_levels, None] if has_missing else joined_levels
    return replace(chunk_blocks[0], categories=[joined_levels])


def join_tables(scans, *, in_stream=False):
    """Return the table of all rows, with the categories of all chunks.

    ``scans`` has the :class:`TableScan` of each chunk by the number of the chunk. ``in_stream``
    tells whether the rows are the first of a stream. "auto" then keeps columns of numbers that are
    constant or have no value, instead of leaving them out, and the values of given columns may all
    differ.
    """
    tables = {number: scan.table for number, scan in scans.items()}
    first_table = next(iter(tables.values()))
    _check_same_columns(tables)
    blocks = []
    for i, block in enumerate(first_table.blocks):
        if block.categories is not None:
            chunk_categories = [table.blocks[i].categories for table in tables.values()]
            categories = [_join_levels(levels) for levels in zip(*chunk_categories, strict=True)]
            _check_categories(categories, block.columns, first_table.names)
            block = replace(block, categories=categories)
        if block.spec.encoding == "real" and type(block.spec) is not Hurdle:
            value_counts = [scan.value_counts for scan in scans.values()]
            blocks += _split_block(block, value_counts, in_stream)
        else:
            blocks.append(block)
    # For each given column, the blocks of all chunks.
    chunk_blocks = zip(*(table.given for table in tables.values()), strict=True)
    given = tuple(map(_join_given_blocks, chunk_blocks))
    for i, block in enumerate(given if not in_stream else ()):
        levels = [scan.given_levels[i] for scan in scans.values()]
        _check_given_levels(block, first_table.names[block.columns[0]], levels)
    return replace(first_table, blocks=tuple(blocks), given=given)


def _split_block(block, value_counts, keeps_constant):
    """Split a real block into columns without and with a point mass; return the list of blocks.

    Columns with one value in all rows and columns without a value are left out, unless all columns
    are such columns or ``keeps_constant`` is true. ``value_counts`` has, for each chunk, the
    :class:`ValueCounts` of the columns by position. If ``components`` is not "auto", the dicts are
    empty, and the block is returned as it is.
    """
    # The point mass of each column that has one, by position; and the positions of the columns with
    # one value or without a value.
    point_masses, constant_columns = {}, []
    for j in block.columns.tolist():
        chunk_counts = [counts[j] for counts in value_counts if counts.get(j) is not None]
        if not chunk_counts:
            # The column has no value, or the dicts are empty.
            if any(j in counts for counts in value_counts) and not keeps_constant:
                constant_columns.append(j)
            continue
        counts = reduce(ValueCounts.merged_with, chunk_counts)
        if counts.point_mass is not None:
            point_masses[j] = counts.point_mass
        # A chunk without counts has only missing values, so that the column is not constant.
        elif counts.is_constant and len(chunk_counts) == len(value_counts) and not keeps_constant:
            constant_columns.append(j)
    if len(constant_columns) < block.columns.size:
        block = replace(block, columns=block.columns[~np.isin(block.columns, constant_columns)])
    if not point_masses:
        return [block]
    columns_without_mass = np.setdiff1d(block.columns, list(point_masses))
    hurdle = Hurdle(block.spec, list(point_masses.values()))
    hurdles = TableBlock("hurdles", hurdle, np.array(list(point_masses), np.intp))
    block = replace(block, columns=columns_without_mass)
    return [block, hurdles] if block.columns.size else [hurdles]


def _join_levels(chunk_levels):
    """Return the categories of a column, given the list of its categories in each chunk.

    If all chunks have the same categories, a declared order is kept. Otherwise the result is the
    sorted union.
    """
    first, *others = chunk_levels
    have_same_levels = all(levels == first for levels in others)
    return first if have_same_levels else _sort_levels(set().union(*chunk_levels))


def _check_same_columns(tables):
    """Raise ValueError unless all chunks have the same columns in the same order and blocks.

    ``tables`` has the :class:`Table` of each chunk by the number of the chunk.
    """
    (first_number, first_table), *other_tables = tables.items()
    for number, other_table in other_tables:
        names = map(repr, first_table.names), map(repr, other_table.names)
        for j, (name, other_name) in enumerate(zip_longest(*names, fillvalue="missing")):
            if name != other_name:
                raise ValueError(
                    f"Chunks must have the same columns in the same order. Column {j} is {name} "
                    f"in chunk {first_number}, {other_name} in chunk {number}. Select the columns "
                    "of each chunk by name: chunk[columns]."
                )
        # "auto" makes a block for each kind of columns, so that the name of the block is the kind.
        first_kinds = {j: block.name for block in first_table.blocks for j in block.columns}
        other_kinds = {j: block.name for block in other_table.blocks for j in block.columns}
        for j, name in enumerate(first_table.names):
            kind, other_kind = first_kinds.get(j), other_kinds.get(j)
            if kind != other_kind:
                raise ValueError(
                    f"Column {name!r} must have the same kind of values in all chunks. Got "
                    f"{kind!r} in chunk {first_number} and {other_kind!r} in chunk {number}. Set "
                    "its dtype, or list the 'components'."
                )


def _make_automatic_blocks(X, columns, names, kinds, given_positions):
    """Return ``(name, component, positions)`` of the blocks of components="auto".

    A sparse matrix is one block of counts. Otherwise there is a block for each kind of columns.
    ``kinds`` are the kinds as which "auto" reads the columns; None for ``Column.kind``.
    """
    positions = [j for j in range(X.shape[1]) if j not in given_positions]
    if sp.issparse(X):
        return [("counts", Multinomial(), positions)]
    if columns is None:
        name, make_component = _AUTOMATIC_BLOCKS["real"]
        return [(name, make_component(), positions)]
    kinds = list(kinds or [column.kind for column in columns])
    for j in given_positions:
        kinds[j] = "given"
    blocks = []
    for block_kind, (name, make_component) in _AUTOMATIC_BLOCKS.items():
        positions = [j for j, kind in enumerate(kinds) if kind == block_kind]
        if positions:
            blocks.append((name, make_component(), positions))
    for name, column, kind in zip(names, columns, kinds, strict=True):
        if kind in (None, "date"):
            raise TypeError(
                f"Column {name!r} is of the type {column.type}, which components='auto' does not "
                f"take. {column.remedy[:-1]} of a list of 'components'."
            )
    if not blocks:
        raise ValueError(
            "components='auto' leaves out every column: each is an identifier, has one value, "
            "repeats another column, holds dates or has no values (columns "
            f"{show_first(names, 5)}). List the 'components' to use these columns."
        )
    return blocks


def _explain_reading(X, columns, kinds):
    """Return the reason why "auto" reads each column as it does, for the report of the table.

    ``kinds`` are the kinds as which "auto" reads the columns; None for ``Column.kind``.
    """
    if columns is None:
        return ("counts of a sparse matrix" if sp.issparse(X) else "numbers",) * X.shape[1]
    descriptions = {"real": "numbers", "binary": "booleans", "category": "text or other objects"}
    reasons = []
    for column, kind in zip(columns, kinds or [None] * len(columns), strict=True):
        reason = descriptions.get(column.kind, column.type)
        if column.categories is not None:
            reason = "a categorical type"
        elif kind == "category" and column.kind != "category":
            # The column has whole numbers, which are read as categories.
            reason = f"2 to {MAX_LEVELS} distinct whole numbers"
        elif kind == "amount":
            reason = "amounts, some of them zero"
        elif kind in ("count", "zeros and count", "count from one"):
            reason = "counts, by their distribution"
        reasons.append(reason)
    return tuple(reasons)


def is_single_component(components):
    """Return whether ``components`` is one component, or its name: neither "auto" nor a list."""
    return not (is_auto(components) or isinstance(components, list | tuple))


def list_blocks(components):
    """Return ``(name, component, columns)`` of each block in the parameter ``components``.

    A component that is not in a list makes one block of all columns, which has the name "all".
    """
    if is_single_component(components):
        return [("all", components, slice(None))]
    for block in components:
        if not (isinstance(block, tuple | list) and len(block) == 3):
            raise TypeError(
                "The 'components' parameter must be 'auto', a list of tuples (name, component, "
                "columns), such as [('counts', NegativeBinomial(), ['reads', 'visits'])], or one "
                f"component for all columns, such as NegativeBinomial(). Got the entry {block!r}."
            )
    return list(components)


def _use_remaining_columns(name, spec, positions, X, given_positions):
    """Return the block of all columns except the given columns and the exposure."""
    excluded_columns = set(given_positions)
    if spec.reads_exposure:
        excluded_columns.update(_find_positions(X, spec.exposure, name))
    return name, spec, [j for j in positions if j not in excluded_columns]


def _copy_legal_component(name, component):
    """Return a copy of a block's component, because the user may change the original later."""
    if isinstance(component, str):
        if component not in SPECS_BY_NAME:
            raise ValueError(
                f"The component of {name!r} must be one of {', '.join(map(repr, SPECS_BY_NAME))} "
                f"or an object of skvt.components. Got {component!r} instead."
            )
    elif not isinstance(component, ComponentSpec):
        raise TypeError(
            f"The component of {name!r} must be a string or an object of skvt.components, such as "
            f"skvt.components.Gaussian(). Got {component!r} instead."
        )
    copied = copy_component(component)
    copied.check()
    return copied


def _find_positions(X, key, name):
    """Return the positions of the columns that a key selects, as in ColumnTransformer.

    ``name`` is the name of the block or the parameter, for errors.
    """
    if callable(key):
        key = key(X)
    if key is None or isinstance(key, bool):
        raise ValueError(
            f"The columns of {name!r} must be names, positions, a mask, a slice or a callable. Got "
            f"{key}. For all columns of X, pass slice(None)."
        )
    # A slice without start and stop selects from all columns, whatever their names are.
    if isinstance(key, slice) and key.start is None and key.stop is None:
        return list(range(X.shape[1]))[key]
    try:
        return [int(j) for j in column_indices(X, key)]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"The columns of {name!r} are not in X: {error}") from error


def _find_exposure(X, spec, name, blocks):
    """Return the position of the exposure of a block's counts, a column that scales their rates."""
    exposures = _find_positions(X, spec.exposure, name)
    if len(exposures) != 1 or any(exposures[0] in positions for _, _, positions in blocks):
        raise ValueError(
            f"The 'exposure' parameter of {name!r} must be 'row_total' or a column that belongs "
            f"to no component. Got {spec.exposure!r}."
        )
    return exposures[0]


def _check_blocks(blocks, names, given_positions):
    """Raise ValueError unless blocks have distinct names and no column is in two blocks.

    ``blocks`` are triples (name, component, positions of the columns).
    """
    if not blocks or all(not positions for _, _, positions in blocks):
        raise ValueError("The 'components' parameter must select at least one column. Got none.")
    block_names = [block_name for block_name, _, _ in blocks]
    for block_name in block_names:
        is_legal = isinstance(block_name, str) and "__" not in block_name
        if not is_legal or block_names.count(block_name) > 1:
            raise ValueError(
                "The names in 'components' must be distinct strings without '__'. Got "
                f"{block_name!r} among {block_names}."
            )
    block_of_column = dict.fromkeys(given_positions, "given")
    for block_name, _, positions in blocks:
        if not positions:
            raise ValueError(
                f"The entry {block_name!r} of 'components' selects no column. Leave it out."
            )
        for j in positions:
            if j in block_of_column:
                raise ValueError(
                    f"Each column can belong to one component only. Column {names[j]!r} belongs "
                    f"to {block_of_column[j]!r} and to {block_name!r}."
                )
            block_of_column[j] = block_name


def _find_categories(X, columns, j, name):
    """Return the list of the categories of the column at position j.

    They are the categories that the type of the column declares, or the sorted distinct values.
    """
    if columns is None:
        values = np.asarray(X[:, [j]].toarray() if sp.issparse(X) else X[:, j]).ravel()
        return list(np.unique(values[~np.isnan(values)]))
    if columns[j].categories is not None:
        return columns[j].categories
    values = columns[j].to_objects()
    try:
        distinct = {value for value in values if value is not None}
    except TypeError as error:
        raise ValueError(
            f"Column {name!r} has values that cannot be categories: {error}. {ENTRY_REMEDY}"
        ) from error
    return _sort_levels(distinct)


def _sort_levels(distinct):
    """Return a set of categories as a sorted list."""
    try:
        return sorted(distinct)
    except TypeError:
        # Values of several types, such as strings and numbers, cannot be compared. Sort them by
        # type, then by their texts.
        return sorted(distinct, key=lambda value: (type(value).__name__, repr(value)))


def _check_categories(categories, positions, names):
    """Raise ValueError unless each column has categories, and they are distinct.

    ``categories`` has the list of the categories of each column at one of the ``positions``.
    """
    for levels, j in zip(categories, positions, strict=True):
        if not levels:
            raise ValueError(
                f"Column {names[j]!r} has no categories, because all its values are missing. "
                "Leave it out, or give its 'categories'."
            )
        if len(set(levels)) < len(levels):
            raise ValueError(
                f"The categories of column {names[j]!r} must be distinct. Got {levels}."
            )
