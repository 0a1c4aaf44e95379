"""Blocks of the columns of a table, by the user's components or by the types of columns."""

from dataclasses import replace
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from skvt.components import Bernoulli, Categorical, ComponentSpec, Gaussian, Hurdle, Multinomial
from skvt.components.specs import BY_NAME
from skvt.readers._audit import FEW_VALUES, FEWEST_ROWS, Seen, audited, left_out
from skvt.readers._columns import ONE_VALUE, Column, container_of, names_of
from skvt.readers._tables import Table, TableBlock
from skvt.rows import dense
from skvt.sklearn_private import column_indices

# Names and components of the blocks of components="auto", by kind of column.
_AUTOMATIC = {"real": ("numbers", lambda: Gaussian("auto", log="auto")),
              "category": ("categories", Categorical),
              "binary": ("flags", Bernoulli)}  # fmt: skip
# Share of a column's values above which one value is a point mass. Clusters were lost from about
# a twentieth of the rows on; at a fifth, a third of the clusters were lost. In this pair and the
# next, the second number is for values that are neither zero, the smallest nor the largest.
_MASS = 0.1, 0.3
# Factor by which a point mass is more frequent than the values next to it: rounded values are
# frequent, too.
_TIMES_BESIDE = 3.0, 10.0
# Maximum number of other values for which a column may be one of a few levels.
_FEW = 10
# Findings on a column that further rows may change.
_OF_ROWS = "constant", "identifier"
# Share of a chunk's values from which on a value is counted.
_COUNTED = 1.0 / 64.0


class Values(NamedTuple):
    """Counts of the values of a real column, over chunks."""

    # Number of values that are not missing, and whether values are missing.
    number: int
    missing: bool
    # Counts of some distinct values: the smallest, more than ``_FEW`` of them; the two largest; and
    # frequent values with their neighbours.
    counts: dict

    @classmethod
    def of(cls, values):
        """Count numbers, NaN where they are missing; return None if all are missing."""
        distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        if not distinct.size:
            return None
        number, distinct = int(counts.sum()), distinct.tolist()
        kept = _kept(distinct, dict(zip(distinct, counts.tolist(), strict=True)), number)
        return cls(number, number < len(values), kept)

    def __or__(self, other):
        """Return the counts of the values of both chunks."""
        counts = {
            value: self.counts.get(value, 0) + other.counts.get(value, 0)
            for value in self.counts | other.counts
        }
        number, missing = self.number + other.number, self.missing or other.missing
        return Values(number, missing, _kept(sorted(counts), counts, number))

    @property
    def constant(self):
        """Whether all rows have one value, which has no information but costs parameters."""
        return self.number >= FEWEST_ROWS and not self.missing and len(self.counts) == 1

    @property
    def mass(self):
        """The most frequent point mass, or None."""
        if self.number < FEWEST_ROWS:
            return None
        masses = filter(self._stands_out, self.counts)
        return max(masses, key=self.counts.__getitem__, default=None)

    def _stands_out(self, at):
        """Return whether a value is a point mass."""
        values, count = sorted(self.counts), self.counts[at]
        i, inside = values.index(at), at not in (values[0], values[-1], 0.0)
        beside = values[max(i - 1, 0) : i] + values[i + 1 : i + 2]
        most = max((self.counts[value] for value in beside), default=0)
        others, distinct = self.number - count, len(values) - 1
        return count > max(_MASS[inside] * self.number, _TIMES_BESIDE[inside] * most) and (
            distinct > _FEW or 2 * distinct >= others > 0
        )


def _kept(values, counts, number):
    """Return the counts that :class:`Values` keeps of sorted values; ``number`` is their sum."""
    kept = {*values[: _FEW + 2], *values[-2:]}
    for i, value in enumerate(values):
        if counts[value] >= _COUNTED * number:
            kept.update(values[max(i - 1, 0) : i + 2])
    return {value: counts[value] for value in kept}


class Look(NamedTuple):
    """The table of some rows, and the :class:`Values` of real columns for "auto"."""

    table: Table
    values: dict


def table_of(X, columns, components, handle_unknown, given=None, *, in_stream=False):
    """Return the :class:`Table` of rows like X, with categories and findings on columns.

    In a stream, no column is left out for a finding that later rows may change: that the first rows
    have one value, or have distinct values, unless these are row numbers.
    """
    seen, findings, kinds = {}, {}, None
    if isinstance(components, str) and columns is not None:
        seen = {j: Seen.of(column) for j, column in enumerate(columns)}
        findings = left_out(columns, seen)
        for j in _given_positions(X, given):
            findings.pop(j, None)
        if in_stream:
            findings = {
                j: finding
                for j, finding in findings.items()
                if finding[0] not in _OF_ROWS or seen[j].counts_rows
            }
        kinds = [
            "left out" if j in findings else "category" if seen[j].has_few_values else column.kind
            for j, column in enumerate(columns)
        ]
    looks = {0: look(X, columns, components, handle_unknown, given, kinds)}
    table = joint_table(looks, keeps_constant=in_stream)
    if isinstance(components, str) and columns is None:
        taken = {j for block in table.blocks + table.given for j in block.columns.tolist()}
        left = set(range(X.shape[1])) - taken
        findings = {j: ("constant", f"{X[0, j]:g}, left out") for j in left}
    # sparse rows are not audited, since most of their values are zeros
    if X.shape[0] >= FEWEST_ROWS and not sp.issparse(X):
        for j in {j for block in table.blocks for j in block.columns.tolist()} - seen.keys():
            seen[j] = Seen.of(X[:, j] if columns is None else columns[j])
        findings |= audited(seen, table, X.shape[0])
    return replace(
        table, findings=tuple((str(table.names[j]), *findings[j]) for j in sorted(findings))
    )


def look(X, columns, components, handle_unknown, given=None, kinds=None):
    """Return the :class:`Look` at some rows; by default, types give the ``kinds`` for "auto"."""
    names = names_of(X)
    values, of_given = {}, _given_positions(X, given)
    if isinstance(components, str):
        blocks = _automatic(X, columns, names, kinds, of_given)
        for j in [j for _, spec, block in blocks if spec.encoding == "real" for j in block]:
            values[j] = Values.of(X[:, j] if columns is None else columns[j].numbers())
    else:
        blocks = [
            (name, _spec(name, component), _positions(X, key, name))
            for name, component, key in triples(components)
        ]
        if is_alone(components):
            blocks = [_of_all_columns(*blocks[0], X, of_given)]
    _check_blocks(blocks, names, of_given)
    done = []
    for name, spec, positions in blocks:
        spec = spec.for_columns(positions, lambda key, name=name: _positions(X, key, name))
        categories = None
        if spec.encoding == "category":
            given = spec.categories
            if not isinstance(given, str) and len(given) != len(positions):
                raise ValueError(
                    f"The 'categories' parameter of {name!r} must be 'auto' or a list for each of "
                    f"its {len(positions)} columns. Got {len(given)} of them."
                )
            categories = [
                _categories(X, columns, j, names[j])
                if isinstance(given, str)
                else list(given[place])
                for place, j in enumerate(positions)
            ]
        if spec.reads_exposure:
            positions = [*positions, _exposure_of(X, spec, name, blocks)]
        done.append(TableBlock(name, spec, np.array(positions, np.intp), categories))
    types = () if columns is None else tuple(column.type for column in columns)
    reasons = _reasons(X, columns, kinds) if isinstance(components, str) else ()
    table = Table(
        tuple(done), names, handle_unknown, container_of(X), types, reasons=reasons,
        given=tuple(_given_block(X, columns, j, names[j]) for j in of_given),
    )  # fmt: skip
    return Look(table, values)


def _given_positions(X, given):
    """Return the positions of the given columns."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return []
    key = [given] if isinstance(given, str | int) else given
    positions = list(dict.fromkeys(_positions(X, key, "given")))
    if len(positions) == X.shape[1]:
        raise ValueError(
            f"The 'given' parameter names all {X.shape[1]} columns, which leaves none to be "
            "explained. Name fewer."
        )
    return positions


def _given_block(X, columns, j, name):
    """Return the block of a given column: numbers, or categories with their levels.

    Whole numbers with few values are categories.
    """
    column = Column("real", "number", dense(X[:, [j]]).ravel()) if columns is None else columns[j]
    if column.kind in (None, "date"):
        raise TypeError(f"The given column {name!r} is of the type {column.type}. {column.remedy}")
    if column.kind == "real":
        observed = column.numbers()
        observed = observed[~np.isnan(observed)]
        number = np.unique(observed).size
        is_whole = np.array_equal(observed, np.floor(observed))
        if number == 0 or not is_whole or number > min(FEW_VALUES, 0.5 * observed.size):
            return TableBlock("given", Gaussian(), np.array([j], np.intp))
    entries = column.objects()
    levels = column.categories
    if levels is None:
        levels = _sorted({value for value in entries if value is not None})
    levels = list(levels) + [None] * any(value is None for value in entries)
    return TableBlock("given", Categorical(), np.array([j], np.intp), [levels])


def _joint_given(parts):
    """Return the block of a given column of all chunks."""
    numbers = [part for part in parts if part.categories is None]
    if numbers:
        return numbers[0]
    levels = [[level for level in part.categories[0] if level is not None] for part in parts]
    missing = any(None in part.categories[0] for part in parts)
    return replace(parts[0], categories=[_joint(levels) + [None] * missing])


def joint_table(looks, *, keeps_constant=False):
    """Return the table of all rows, with all categories, by the looks at chunks by number."""
    tables = {number: one.table for number, one in looks.items()}
    first = next(iter(tables.values()))
    _check_alike(tables)
    blocks = []
    for place, block in enumerate(first.blocks):
        if block.categories is not None:
            of_parts = [table.blocks[place].categories for table in tables.values()]
            categories = [_joint(list(parts)) for parts in zip(*of_parts, strict=True)]
            _check_categories(categories, block.columns, first.names)
            block = replace(block, categories=categories)
        parts = [block]
        if block.spec.encoding == "real":
            parts = _told_apart(block, [one.values for one in looks.values()], keeps_constant)
        blocks += parts
    given = zip(*(table.given for table in tables.values()), strict=True)
    return replace(first, blocks=tuple(blocks), given=tuple(map(_joint_given, given)))


def _told_apart(block, looks, keeps_constant):
    """Split a block into columns without and with a point mass, if values were counted.

    Constant columns are left out, unless all columns are constant or ``keeps_constant``.
    """
    masses, constant = {}, []
    for j in block.columns.tolist():
        of_chunks = [values[j] for values in looks if values.get(j) is not None]
        joint = reduce(or_, of_chunks) if of_chunks else None
        if joint is not None and joint.mass is not None:
            masses[j] = joint.mass
        elif joint is not None and joint.constant and len(of_chunks) == len(looks):
            constant += [] if keeps_constant else [j]
    if len(constant) < block.columns.size:
        block = replace(block, columns=block.columns[~np.isin(block.columns, constant)])
    if not masses:
        return [block]
    rest = np.setdiff1d(block.columns, list(masses))
    hurdle = Hurdle(block.spec, list(masses.values()))
    hurdles = TableBlock("hurdles", hurdle, np.array(list(masses), np.intp))
    return [replace(block, columns=rest), hurdles] if rest.size else [hurdles]


def _joint(parts):
    """Join the categories of parts: in their order if all parts have the same, else sorted."""
    return parts[0] if all(part == parts[0] for part in parts) else _sorted(set().union(*parts))


def _check_alike(tables):
    """Raise ValueError unless chunks have the same columns, in order, of the same kinds."""
    (first, one), *others = tables.items()
    for number, other in others:
        names = map(repr, one.names), map(repr, other.names)
        for place, (name, found) in enumerate(zip_longest(*names, fillvalue="missing")):
            if name != found:
                raise ValueError(
                    f"Chunks must have the same columns in the same order. Column {place} is "
                    f"{name} in chunk {first}, {found} in chunk {number}; select the columns by "
                    "name in each, chunk[columns]."
                )
        kinds = [
            {j: block.name for block in table.blocks for j in block.columns}
            for table in (one, other)
        ]
        for j, name in enumerate(one.names):
            if kinds[0].get(j) != kinds[1].get(j):
                raise ValueError(
                    f"Column {name!r} is of one kind in chunk {first}, {kinds[0].get(j)!r}, of "
                    f"another in chunk {number}, {kinds[1].get(j)!r}. Give its dtype, or list the "
                    "'components'."
                )


def _automatic(X, columns, names, kinds, given):
    """Return blocks by the kinds of columns; a sparse matrix is a block of counts."""
    others = [j for j in range(X.shape[1]) if j not in given]
    if sp.issparse(X):
        return [("counts", Multinomial(), others)]
    if columns is None:
        return [("numbers", _AUTOMATIC["real"][1](), others)]
    kinds = list(kinds or [column.kind for column in columns])
    for j in given:
        kinds[j] = "given"
    blocks = []
    for kind, (name, make) in _AUTOMATIC.items():
        positions = [j for j, of_column in enumerate(kinds) if of_column == kind]
        if positions:
            blocks.append((name, make(), positions))
    for name, column, kind in zip(names, columns, kinds, strict=True):
        if kind in (None, "date"):
            raise TypeError(
                f"Column {name!r} is of the type {column.type}, which components='auto' does not "
                f"take. {column.remedy[:-1]} of a list of 'components'."
            )
    if not blocks:
        raise ValueError(
            "components='auto' leaves out every column: each is an identifier, has one value, "
            "repeats another one, holds dates or is missing throughout (columns "
            f"{', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}). List "
            "the 'components' to use them."
        )
    return blocks


def _reasons(X, columns, kinds):
    """Return the reason for which "auto" reads each column as it does."""
    if columns is None:
        return ("counts of a sparse matrix" if sp.issparse(X) else "numbers",) * X.shape[1]
    words = {"real": "numbers", "binary": "booleans", "category": "text or other objects"}
    reasons = []
    for column, kind in zip(columns, kinds or [None] * len(columns), strict=True):
        reason = words.get(column.kind, column.type)
        if column.categories is not None:
            reason = "a categorical type"
        elif kind == "category" != column.kind:
            reason = f"2 to {FEW_VALUES} distinct whole numbers"
        reasons.append(reason)
    return tuple(reasons)


def is_alone(components):
    """Return whether the parameter is one component for all columns: neither "auto" nor a list."""
    return not isinstance(components, str | list | tuple)


def triples(components):
    """Return ``(name, component, columns)`` of each block that users describe.

    A component that stands alone describes all columns, under the name "all".
    """
    if is_alone(components):
        return [("all", components, slice(None))]
    for block in components:
        if not (isinstance(block, tuple | list) and len(block) == 3):
            raise TypeError(
                "The 'components' parameter must be 'auto', a list of tuples (name, component, "
                "columns), such as [('counts', NegativeBinomial(), ['reads', 'visits'])], or one "
                f"component for all columns, such as NegativeBinomial(). Got {block!r} in the list."
            )
    return list(components)


def _of_all_columns(name, spec, positions, X, given):
    """Return the block of all columns but given ones and the exposure."""
    apart = set(given)
    if spec.reads_exposure:
        apart.update(_positions(X, spec.exposure, name))
    return name, spec, [j for j in positions if j not in apart]


def _spec(name, given):
    """Return a copy of the component of a block, which the user may change after the fit."""
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
    return clone(given)


def _positions(X, key, name):
    """Return the positions of the columns that a key selects, as in ColumnTransformer."""
    if callable(key):
        key = key(X)
    if isinstance(key, slice) and key.start is None and key.stop is None:
        return list(range(X.shape[1]))[key]
    try:
        return [int(j) for j in column_indices(X, key)]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"The columns of {name!r} are not in X: {error}") from error


def _exposure_of(X, spec, name, blocks):
    """Return the position of the column that is the exposure of a block's counts."""
    exposed = _positions(X, spec.exposure, name)
    if len(exposed) != 1 or any(exposed[0] in positions for _, _, positions in blocks):
        raise ValueError(
            f"The 'exposure' parameter of {name!r} must be 'row_total' or a column that belongs to "
            f"no component. Got {spec.exposure!r}."
        )
    return exposed[0]


def _check_blocks(blocks, names, given):
    if not blocks or all(not positions for _, _, positions in blocks):
        raise ValueError("The 'components' parameter must name at least one column. Got none.")
    titles = [name for name, _, _ in blocks]
    for name in titles:
        if not isinstance(name, str) or "__" in name or titles.count(name) > 1:
            raise ValueError(
                "The names in 'components' must be distinct strings without '__'. Got "
                f"{name!r} in {titles}."
            )
    taken = dict.fromkeys(given, "given")
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


def _categories(X, columns, j, name):
    """Return the categories of a column: sorted, or as its type declares them."""
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
            f"Column {name!r} holds values that cannot be categories: {error}. {ONE_VALUE}"
        ) from error
    return _sorted(distinct)


def _sorted(distinct):
    """Return a set of categories as a sorted list."""
    try:
        return sorted(distinct)
    except TypeError:  # of several types
        return sorted(distinct, key=lambda value: (type(value).__name__, repr(value)))


def _check_categories(categories, positions, names):
    for of_column, j in zip(categories, positions, strict=True):
        if not of_column:
            raise ValueError(
                f"Column {names[j]!r} has no category: all values are missing. Leave it out, or "
                "give its 'categories'."
            )
        if len(set(of_column)) < len(of_column):
            raise ValueError(
                f"The categories of column {names[j]!r} must be distinct. Got {of_column}."
            )
