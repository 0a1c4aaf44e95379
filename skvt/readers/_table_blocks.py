"""Blocks of the columns of a table: as given with the components, or by the types of columns."""

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
from skvt.readers._columns import ONE_VALUE, container_of, names_of
from skvt.readers._tables import Table, TableBlock
from skvt.sklearn_private import column_indices

# Components that "auto" chooses by the types of columns.
_AUTOMATIC = {"real": ("numbers", lambda: Gaussian("auto", log="auto")),
              "category": ("categories", Categorical),
              "binary": ("flags", Bernoulli)}  # fmt: skip
# Share of a column's values above which one of them is a point mass. (Clusters were lost from about
# a twentieth of the rows on, a third of them at a fifth.) By which factor it is more frequent than
# the values next to it: rounded values are many times there, too. The second of each is for values
# that are neither zero nor at an end. And how many other values a column has at most that is read
# as one of a few levels.
_MASS = 0.1, 0.3
_TIMES_BESIDE = 3.0, 10.0
_FEW = 10
# What is found of a column that more rows may change.
_OF_ROWS = "constant", "identifier"
# Share of a chunk's values from which on one of them is counted.
_COUNTED = 1.0 / 64.0


class Values(NamedTuple):
    """What is counted of the values of a real column, over chunks."""

    # How many there are, and whether others are missing.
    number: int
    missing: bool
    # How many there are of the smallest values, more than ``_FEW``, of the two largest, and of
    # frequent ones and their neighbours.
    counts: dict

    @classmethod
    def of(cls, values):
        """Of numbers, NaN where they are missing; None where all are."""
        found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        if not found.size:
            return None
        number, found = int(counts.sum()), found.tolist()
        kept = _kept(found, dict(zip(found, counts.tolist(), strict=True)), number)
        return cls(number, number < len(values), kept)

    def __or__(self, other):
        """Of the values of both."""
        counts = {
            value: self.counts.get(value, 0) + other.counts.get(value, 0)
            for value in self.counts | other.counts
        }
        number, missing = self.number + other.number, self.missing or other.missing
        return Values(number, missing, _kept(sorted(counts), counts, number))

    @property
    def constant(self):
        """Whether all rows have one value, which says nothing but costs parameters."""
        return self.number >= FEWEST_ROWS and not self.missing and len(self.counts) == 1

    @property
    def mass(self):
        """The value that is a point mass among others that are not, or None."""
        if self.number < FEWEST_ROWS:
            return None
        masses = filter(self._stands_out, self.counts)
        return max(masses, key=self.counts.__getitem__, default=None)

    def _stands_out(self, at):
        """Whether a value is a point mass."""
        values, count = sorted(self.counts), self.counts[at]
        place, inside = values.index(at), at not in (values[0], values[-1], 0.0)
        beside = values[max(place - 1, 0) : place] + values[place + 1 : place + 2]
        most = max((self.counts[value] for value in beside), default=0)
        others, distinct = self.number - count, len(values) - 1
        return count > max(_MASS[inside] * self.number, _TIMES_BESIDE[inside] * most) and (
            distinct > _FEW or 2 * distinct >= others > 0
        )


def _kept(values, counts, number):
    """Counts of the values that :class:`Values` keeps, of sorted ones among this number."""
    kept = {*values[: _FEW + 2], *values[-2:]}
    for place, value in enumerate(values):
        if counts[value] >= _COUNTED * number:
            kept.update(values[max(place - 1, 0) : place + 2])
    return {value: counts[value] for value in kept}


class Look(NamedTuple):
    """The table of some rows, and what is counted of columns of which "auto" decides."""

    table: Table
    values: dict


def table_of(X, columns, components, handle_unknown, *, in_stream=False):
    """The :class:`Table` of rows like X, with their categories, and what was found of columns.

    In a stream no column is left out for what other rows may change: that these first ones have one
    value in it, or all a value of their own, unless these count the rows.
    """
    seen, findings, kinds = {}, {}, None
    if isinstance(components, str) and columns is not None:
        seen = {j: Seen.of(column) for j, column in enumerate(columns)}
        findings = left_out(columns, seen)
        if in_stream:
            findings = {
                j: found
                for j, found in findings.items()
                if found[0] not in _OF_ROWS or seen[j].counts_rows
            }
        kinds = [
            "left out" if j in findings else "category" if seen[j].has_few_values else column.kind
            for j, column in enumerate(columns)
        ]
    looks = {0: look(X, columns, components, handle_unknown, kinds)}
    table = joint_table(looks, keeps_constant=in_stream)
    if isinstance(components, str) and columns is None:
        taken = {j for block in table.blocks for j in block.columns.tolist()}
        left = set(range(X.shape[1])) - taken
        findings = {j: ("constant", f"{X[0, j]:g}, left out") for j in left}
    # of sparse rows nothing is asked, since their zeros are most of them
    if X.shape[0] >= FEWEST_ROWS and not sp.issparse(X):
        for j in {j for block in table.blocks for j in block.columns.tolist()} - seen.keys():
            seen[j] = Seen.of(X[:, j] if columns is None else columns[j])
        findings |= audited(seen, table, X.shape[0])
    return replace(
        table, findings=tuple((str(table.names[j]), *findings[j]) for j in sorted(findings))
    )


def look(X, columns, components, handle_unknown, kinds=None):
    """The :class:`Look` at some rows; ``kinds`` of the columns for "auto", by default by types."""
    names = names_of(X)
    values = {}
    if isinstance(components, str):
        blocks = _automatic(X, columns, names, kinds)
        for j in [j for _, spec, own in blocks if spec.encoding == "real" for j in own]:
            values[j] = Values.of(X[:, j] if columns is None else columns[j].numbers())
    else:
        blocks = [
            (name, _spec(name, given), _positions(X, key, name)) for name, given, key in components
        ]
    _check_blocks(blocks, names)
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
    table = Table(tuple(done), names, handle_unknown, container_of(X), types, reasons=reasons)
    return Look(table, values)


def joint_table(looks, *, keeps_constant=False):
    """The table of all rows, of looks at chunks by their numbers: with all categories."""
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
    return replace(first, blocks=tuple(blocks))


def _told_apart(block, looks, keeps_constant):
    """The block without columns that have a point mass, if values were counted; and these.

    Constant columns are left out, unless all are or they are to be kept.
    """
    masses, constant = {}, []
    for j in block.columns.tolist():
        there = [values[j] for values in looks if values.get(j) is not None]
        joint = reduce(or_, there) if there else None
        if joint is not None and joint.mass is not None:
            masses[j] = joint.mass
        elif joint is not None and joint.constant and len(there) == len(looks):
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
    """Categories of any part: in their order if all have the same, else sorted."""
    return parts[0] if all(part == parts[0] for part in parts) else _sorted(set().union(*parts))


def _check_alike(tables):
    """Raise ValueError unless chunks have the same columns in the same order, of the same kinds."""
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


def _automatic(X, columns, names, kinds):
    """Blocks by the kinds of the columns; of a sparse matrix, counts."""
    if sp.issparse(X):
        return [("counts", Multinomial(), list(range(X.shape[1])))]
    if columns is None:
        return [("numbers", _AUTOMATIC["real"][1](), list(range(X.shape[1])))]
    kinds = kinds or [column.kind for column in columns]
    blocks = []
    for kind, (name, make) in _AUTOMATIC.items():
        positions = [j for j, own in enumerate(kinds) if own == kind]
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
    """Why "auto" reads each column as it does."""
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


def _spec(name, given):
    """The component of a block: a copy of the given one, which may be changed after the fit."""
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
    """Positions of the columns that a key names, as in scikit-learn's ColumnTransformer."""
    if callable(key):
        key = key(X)
    if isinstance(key, slice) and key.start is None and key.stop is None:
        return list(range(X.shape[1]))[key]
    try:
        return [int(j) for j in column_indices(X, key)]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"The columns of {name!r} are not in X: {error}") from error


def _exposure_of(X, spec, name, blocks):
    """Position of the column that is the exposure of a block's counts."""
    found = _positions(X, spec.exposure, name)
    if len(found) != 1 or any(found[0] in positions for _, _, positions in blocks):
        raise ValueError(
            f"The 'exposure' parameter of {name!r} must be 'row_total' or a column that belongs to "
            f"no component. Got {spec.exposure!r}."
        )
    return found[0]


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


def _categories(X, columns, j, name):
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
            f"Column {name!r} holds values that cannot be categories: {error}. {ONE_VALUE}"
        ) from error
    return _sorted(distinct)


def _sorted(distinct):
    """A set of categories as a list."""
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
