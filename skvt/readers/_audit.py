"""What the columns of a table are like, before any work: what says nothing, repeats or misleads."""

import warnings
from typing import NamedTuple

import numpy as np

from skvt.readers.validation import stack_level
from skvt.typing import Array

# Rows from which a column is judged: fewer are distinct, or the same, by chance.
FEWEST_ROWS = 30
# Share of distinct values from which categories and whole numbers are taken for identifiers.
DISTINCT = 0.9
# Share of rows from which one value is said to fill a column.
FILLED = 0.9
# Number of distinct whole numbers up to which they may be levels.
FEW_VALUES = 6
# Number of distinct whole numbers up to which real ones may be a code.
MOST_CODES = 10
# Variance over mean from which counts spread more than Poisson.
OVERDISPERSED = 3.0
# Columns among which repeated ones are searched for.
MOST_COLUMNS = 500
# Rows at which numbers are looked at.
MOST_ROWS = 10_000
# Columns of one kind that a warning names.
NAMED = 5
# Kinds of finding, and what to do.
REMEDIES = {
    "date": "dates and times are not read: turn them into numbers, such as days",
    "missing": "no value is observed: leave it out, or give its 'categories'",
    "constant": "one value in all rows says nothing: leave it out",
    "identifier": "(nearly) every row has its own value: leave it out, or name it in 'components'",
    "one value": "one value fills most rows: skvt.components.Hurdle(component, at=value)",
    "few values": "whole numbers with few values, read as real: Categorical() or Poisson()",
    "code": "whole numbers, read as real, that may be a code: Categorical()",
    "overdispersed": "counts spread more than Poisson: NegativeBinomial()",
    "repeated": "says what another column says: leave one of the two out",
}

# No warning names these. A mixture of Poissons spreads, too, and whole numbers may be ratings and
# counts: whether they are something else, only the user knows.
REPORTED_ONLY = {"overdispersed", "code"}


class ColumnWarning(UserWarning):
    """Columns of a table that say nothing, repeat each other, or are likely read wrongly.

    One warning names all of them, by kind and with the remedy. ``table_report_`` of the fitted
    estimator says how each column was read, and why.

    Examples
    --------
    >>> import warnings
    >>> import skvt
    >>> warnings.simplefilter("ignore", skvt.ColumnWarning)
    """


class Seen(NamedTuple):
    """A column, looked at once."""

    # NaN where missing; categories by the order in which they occur; of a long column of numbers
    # evenly spaced ones.
    values: Array
    # Whether categories, or whole numbers without gaps, are (nearly) all distinct.
    is_identifier: bool = False
    # Whether numbers are whole and of two to six values.
    has_few_values: bool = False
    # Whether numbers that are an identifier fill their range, as those that count rows do.
    counts_rows: bool = False

    @classmethod
    def of(cls, column):
        """Of a column of a data frame or of an array of objects, or of an array of floats."""
        if isinstance(column, np.ndarray):
            return cls(np.asarray(_sample(column), np.float64))
        if column.kind not in ("real", "binary"):
            codes, n_distinct = _codes(column.objects())
            n_observed = np.count_nonzero(~np.isnan(codes))
            named = column.kind == "category" and _all_distinct(n_distinct, n_observed)
            return cls(codes, named)
        values = column.numbers()
        observed = values[~np.isnan(values)]
        are_whole = np.isfinite(observed).all() and np.array_equal(observed, np.floor(observed))
        if column.kind == "binary" or observed.size < FEWEST_ROWS or not are_whole:
            return cls(_sample(values))
        distinct = np.unique(observed)
        # (whole numbers far apart are measurements, such as prices; row numbers leave no gap)
        numbered = _all_distinct(distinct.size, observed.size) and (
            np.median(np.diff(distinct)) <= 1.0
        )
        counts_rows = numbered and distinct.size >= DISTINCT * (np.ptp(distinct) + 1.0)
        return cls(_sample(values), numbered, 1 < distinct.size <= FEW_VALUES, bool(counts_rows))


def _all_distinct(n_distinct, size):
    return size >= FEWEST_ROWS and n_distinct >= DISTINCT * size


def _codes(values):
    """Numbers of categories in the order in which they occur, NaN for None; how many there are."""
    code_of = {None: np.nan}
    try:
        codes = [code_of.setdefault(value, len(code_of) - 1) for value in values]
    except TypeError:  # (what cannot be a category is an error elsewhere)
        return np.zeros(len(values)), 1
    return np.array(codes, np.float64), len(code_of) - 1


def _sample(values):
    """Evenly spaced values of a long column."""
    return values[:: max(1, len(values) // MOST_ROWS)]


def left_out(columns, seen):
    """What was found of the columns that "auto" leaves out, by their positions."""
    found = {}
    for j, column in enumerate(columns):
        if column.kind == "date":
            found[j] = "date", f"{column.type}, left out"
        elif seen[j].is_identifier:
            found[j] = "identifier", "left out"
        elif column.kind == "category" and column.categories is None:
            if np.isnan(seen[j].values).all():
                found[j] = "missing", "left out"
        if j not in found and _is_constant(column, seen[j].values):
            value = column.objects()[0]
            found[j] = "constant", f"{value}, left out"
    others = {
        j: seen[j].values
        for j, column in enumerate(columns)
        if j not in found and column.kind is not None
    }
    if others and len(others[min(others)]) >= FEWEST_ROWS:
        found |= {j: ("repeated", f"column {i}, left out") for i, j in _repeated(others)}
    return found


def _is_constant(column, values):
    """Whether all rows of a column have one value, of which ``values`` are a sample."""
    if column.kind is None or len(values) < FEWEST_ROWS or not np.all(values == values[0]):
        return False
    # (of categories the sample is all rows)
    return column.kind not in ("real", "binary") or bool(np.all(column.numbers() == values[0]))


def audited(seen, table, n_rows):
    """What was found of the columns that the table's blocks describe, by their positions."""
    findings = {}
    for block in table.blocks:
        for place, j in enumerate(block.columns.tolist()):
            found = _finding(seen[j].values, type(block.spec).__name__)
            if found and found[0] == "identifier":
                # (of numbers, evenly spaced ones alone were looked at)
                n_levels = len(block.categories[place])
                n_seen = seen[j].values.size / np.count_nonzero(~np.isnan(seen[j].values))
                found = found if n_levels * n_seen >= DISTINCT * n_rows else None
            elif found and found[0] == "constant" and block.categories is not None:
                found = "constant", str(block.categories[place][0])  # (values are codes)
            if found:
                findings[j] = found
    modelled = {j: seen[j].values for block in table.blocks for j in block.columns.tolist()}
    repeated = {j: ("repeated", f"column {i}") for i, j in _repeated(modelled) if i not in findings}
    return repeated | findings


def _finding(values, component):
    """(kind, value) of a column, or None."""
    n_rows = values.size
    values = values[np.isfinite(values)]
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size < 2:
        return ("constant", f"{distinct[0]:g}") if distinct.size else ("missing", "no value")
    if component == "Categorical" and _all_distinct(distinct.size, values.size):
        return "identifier", f"{distinct.size} values"
    whole = np.array_equal(values, np.floor(values))
    if component in ("Gaussian", "StudentT"):
        if distinct.size > 2 and counts.max() > FILLED * n_rows:
            return "one value", f"{distinct[counts.argmax()]:g} in {counts.max() / n_rows:.0%}"
        if whole and 1 < distinct.size <= FEW_VALUES:
            return "few values", f"{distinct.size} values"
        if whole and distinct.size <= MOST_CODES:
            return "code", f"{distinct.size} whole numbers"
    if component == "Poisson" and values.var() > OVERDISPERSED * max(values.mean(), 1.0):
        return "overdispersed", f"variance {values.var() / values.mean():.1f} times the mean"
    return None


def _repeated(coded):
    """Pairs of columns that are functions of each other: the same groups, or the same line.

    All columns are compared in the same rows, also where one of them has been sampled.
    """
    first, pairs = {}, []
    for j, values in list(coded.items())[:MOST_COLUMNS]:
        key = _signature(_sample(values)[:MOST_ROWS])
        if key in first:
            pairs.append((first[key], j))
        elif key is not None:
            first[key] = j
    return pairs


def _signature(values):
    """Bytes that columns have in common which say the same; None if they say nothing."""
    observed = np.isfinite(values)
    where, values = observed.tobytes(), values[observed]
    distinct, codes = np.unique(values, return_inverse=True)
    if distinct.size < 2:
        return None
    if 2 * distinct.size <= values.size:
        # groups, numbered in the order in which they occur
        seen = np.full(distinct.size, codes.size)
        np.minimum.at(seen, codes, np.arange(codes.size))
        return where, seen[codes].tobytes()
    with np.errstate(over="ignore", invalid="ignore"):  # (such values are refused elsewhere)
        centred = values - values.mean()
        line = centred / (values.std() * np.sign(centred[0]) or 1.0)
    return where, np.round(line, 6).tobytes()


def warn_of_columns(findings):
    """One :class:`ColumnWarning` that lists the columns by kind, with the remedy of each."""
    lines = []
    for kind, remedy in REMEDIES.items():
        if kind in REPORTED_ONLY:
            continue
        own = [f"{column!r} ({value})" for column, found, value in findings if found == kind]
        if own:
            more = f" and {len(own) - NAMED} more" if len(own) > NAMED else ""
            lines.append(f"\n  {', '.join(own[:NAMED])}{more}: {remedy}")
    if lines:
        warnings.warn(
            f"Look at these columns (table_report_ has all columns):{''.join(lines)}",
            ColumnWarning,
            stacklevel=stack_level(),
        )
