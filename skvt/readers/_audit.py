"""Findings on the columns of a table before a fit: columns without information, or misleading."""

import warnings
from typing import NamedTuple

import numpy as np

from skvt.readers.validation import stack_level
from skvt.typing import Array

# Minimum number of rows to judge a column: fewer values can all differ or all agree by chance.
FEWEST_ROWS = 30
# Share of distinct values from which on categories and whole numbers count as identifiers.
DISTINCT = 0.9
# Share of rows above which one value fills a column.
FILLED = 0.9
# Maximum number of distinct whole numbers that may be levels.
FEW_VALUES = 6
# Maximum number of distinct whole numbers, read as real, that may be a code.
MOST_CODES = 10
# Quotient of variance and mean above which counts are overdispersed.
OVERDISPERSED = 3.0
# Minimum number of columns of counts that may depend on the total of their row, minimum quotient of
# the variance of the total and the sum of the columns' variances, and minimum share of columns that
# are correlated with the total of the others. The variance of counts rises with their mean at
# least like this power of it.
FEWEST_COUNTS = 10
VARIES_IN_TOTAL = 2.0
RISING = 0.9
POWER = 0.5
# Maximum number of columns that are compared with each other.
MOST_COLUMNS = 500
# Size of the sample of a longer column of numbers, up to a factor of two.
MOST_ROWS = 10_000
# Maximum number of columns of one kind that a warning names.
NAMED = 5
# Kinds of findings, with remedies.
REMEDIES = {
    "date": "dates and times are not read: turn them into numbers, such as days",
    "missing": "no value is observed: leave it out, or give its 'categories'",
    "constant": "one value in all rows says nothing: leave it out",
    "identifier": "(nearly) every row has its own value: leave it out, or name it in 'components'",
    "one value": "one value fills most rows: skvt.components.Hurdle(component, at=value)",
    "of a total": "counts that rise with the total of their row, such as genes of cells, read as "
    "numbers or categories: components=NegativeBinomial(exposure='row_total')",
    "few values": "whole numbers with few values, read as real: Categorical() or Poisson()",
    "code": "whole numbers, read as real, that may be a code: Categorical()",
    "overdispersed": "counts vary more than Poisson: NegativeBinomial()",
    "repeated": "says what another column says: leave one of the two out",
}

# Kinds without a warning: a mixture of Poissons is overdispersed, too, and whole numbers may be
# ratings or counts. Only the user knows.
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
    """Summary of the values of a column."""

    # NaN where missing; codes of categories in the order in which they occur; for a long column of
    # numbers, an evenly spaced sample.
    values: Array
    # Whether categories, or whole numbers without gaps, are (nearly) all distinct.
    is_identifier: bool = False
    # Whether numbers are whole and of two to six values.
    has_few_values: bool = False
    # Whether numbers that are an identifier fill their range, as row numbers do.
    counts_rows: bool = False

    @classmethod
    def of(cls, column):
        """Summarise a column of a data frame, of an array of objects or of an array of floats."""
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
        # whole numbers far apart are measurements, such as prices; row numbers have no gaps
        numbered = _all_distinct(distinct.size, observed.size) and (
            np.median(np.diff(distinct)) <= 1.0
        )
        counts_rows = numbered and distinct.size >= DISTINCT * (np.ptp(distinct) + 1.0)
        return cls(_sample(values), numbered, 1 < distinct.size <= FEW_VALUES, bool(counts_rows))


def _all_distinct(n_distinct, size):
    return size >= FEWEST_ROWS and n_distinct >= DISTINCT * size


def _codes(values):
    """Return codes of categories in order of occurrence, NaN for None, and the number of codes."""
    code_of = {None: np.nan}
    try:
        codes = [code_of.setdefault(value, len(code_of) - 1) for value in values]
    except TypeError:  # other functions raise the error
        return np.zeros(len(values)), 1
    return np.array(codes, np.float64), len(code_of) - 1


def _sample(values):
    """Return evenly spaced values of a long column, or all values of a short one."""
    return values[:: max(1, len(values) // MOST_ROWS)]


def left_out(columns, seen):
    """Return the findings on columns that "auto" leaves out, by position."""
    findings = {}
    for j, column in enumerate(columns):
        if column.kind == "date":
            findings[j] = "date", f"{column.type}, left out"
        elif seen[j].is_identifier:
            findings[j] = "identifier", "left out"
        elif column.kind == "category" and column.categories is None:
            if np.isnan(seen[j].values).all():
                findings[j] = "missing", "left out"
        if j not in findings and _is_constant(column, seen[j].values):
            value = column.objects()[0]
            findings[j] = "constant", f"{value}, left out"
    others = {
        j: seen[j].values
        for j, column in enumerate(columns)
        if j not in findings and column.kind is not None
    }
    if others and len(others[min(others)]) >= FEWEST_ROWS:
        findings |= {j: ("repeated", f"column {i}, left out") for i, j in _repeated(others)}
    return findings


def _is_constant(column, values):
    """Return whether all rows of a column have one value; ``values`` are a sample of them."""
    if column.kind is None or len(values) < FEWEST_ROWS or not np.all(values == values[0]):
        return False
    # the values of categories are those of all rows
    return column.kind not in ("real", "binary") or bool(np.all(column.numbers() == values[0]))


def audited(seen, table, n_rows):
    """Return the findings on columns that the table's blocks describe, by position."""
    findings = {}
    for block in table.blocks:
        for i, j in enumerate(block.columns.tolist()):
            finding = _finding(seen[j].values, type(block.spec).__name__)
            if finding and finding[0] == "identifier":
                # numbers were judged by a sample: compare the number of levels with all rows
                n_levels = len(block.categories[i])
                per_observed = seen[j].values.size / np.count_nonzero(~np.isnan(seen[j].values))
                finding = finding if n_levels * per_observed >= DISTINCT * n_rows else None
            elif finding and finding[0] == "constant" and block.categories is not None:
                finding = "constant", str(block.categories[i][0])  # the value, not its code
            if finding:
                findings[j] = finding
    findings |= _counts_of_a_total(seen, table)
    modelled = {j: seen[j].values for block in table.blocks for j in block.columns.tolist()}
    repeated = {j: ("repeated", f"column {i}") for i, j in _repeated(modelled) if i not in findings}
    return repeated | findings


def _finding(values, component):
    """Return the finding on a column, (kind, value), or None."""
    n_rows = values.size
    values = values[np.isfinite(values)]
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size < 2:
        return ("constant", f"{distinct[0]:g}") if distinct.size else ("missing", "no value")
    if component == "Categorical" and _all_distinct(distinct.size, values.size):
        return "identifier", f"{distinct.size} values"
    are_whole = np.array_equal(values, np.floor(values))
    if component in ("Gaussian", "StudentT"):
        if distinct.size > 2 and counts.max() > FILLED * n_rows:
            return "one value", f"{distinct[counts.argmax()]:g} in {counts.max() / n_rows:.0%}"
        if are_whole and 1 < distinct.size <= FEW_VALUES:
            return "few values", f"{distinct.size} values"
        if are_whole and distinct.size <= MOST_CODES:
            return "code", f"{distinct.size} whole numbers"
    if component == "Poisson" and values.var() > OVERDISPERSED * max(values.mean(), 1.0):
        return "overdispersed", f"variance {values.var() / values.mean():.1f} times the mean"
    return None


def _counts_of_a_total(seen, table):
    """Return the findings on counts that rise with the total of their row, by position."""
    counts = {
        j: seen[j].values
        for block in table.blocks
        for j in block.columns.tolist()
        if type(block.spec).__name__ in ("Gaussian", "StudentT")
        or (type(block.spec).__name__ == "Categorical" and seen[j].has_few_values)
    }
    counts = {j: x for j, x in counts.items() if _are_counts(x)}
    if len(counts) < FEWEST_COUNTS:
        return {}
    X = np.stack([np.nan_to_num(x, nan=np.nanmean(x)) for x in counts.values()], axis=1)
    mean, variance, total = X.mean(axis=0), X.var(axis=0), X.sum(axis=1)
    others = total[:, None] - X
    covariance = ((X - mean) * (others - others.mean(axis=0))).mean(axis=0)
    joint = np.cov(np.log(mean), np.log(variance))
    rises = (
        np.mean(variance > mean) > 0.5
        and total.var() >= VARIES_IN_TOTAL * variance.sum()
        and np.mean(covariance > 0.0) >= RISING
        and joint[0, 1] >= POWER * joint[0, 0] > 0.0
    )
    if not rises:
        return {}
    return {j: ("of a total", f"mean {m:.2g}") for j, m in zip(counts, mean, strict=True)}


def _are_counts(values):
    """Return whether values of at least ``FEWEST_ROWS`` rows are 0, 1, 2, ... and differ."""
    values = values[~np.isnan(values)]
    return (
        values.size >= FEWEST_ROWS
        and values.min() >= 0.0
        and values.max() > values.min()
        and np.array_equal(values, np.floor(values))
    )


def _repeated(coded):
    """Return pairs of columns with the same groups of rows, or that are linear in each other.

    All columns are compared in the same rows, even if one of them is a sample.
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
    """Return bytes that are equal for repeated columns; None for a column with one value."""
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
    with np.errstate(over="ignore", invalid="ignore"):  # other functions refuse such values
        centred = values - values.mean()
        line = centred / (values.std() * np.sign(centred[0]) or 1.0)
    return where, np.round(line, 6).tobytes()


def warn_of_columns(findings):
    """Issue one :class:`ColumnWarning` that lists the columns by kind, with remedies."""
    lines = []
    for kind, remedy in REMEDIES.items():
        if kind in REPORTED_ONLY:
            continue
        columns = [f"{name!r} ({value})" for name, of_kind, value in findings if of_kind == kind]
        if columns:
            more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
            lines.append(f"\n  {', '.join(columns[:NAMED])}{more}: {remedy}")
    if lines:
        warnings.warn(
            f"Look at these columns (table_report_ has all columns):{''.join(lines)}",
            ColumnWarning,
            stacklevel=stack_level(),
        )
