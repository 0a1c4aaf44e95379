"""What the columns of a table are like, before any work: what says nothing, repeats or misleads."""

import warnings

import numpy as np
import scipy.sparse as sp

from skvt.readers.validation import stack_level

# Rows from which a column is judged: fewer are distinct, or the same, by chance.
FEWEST_ROWS = 30
# Share of distinct values from which categories and whole numbers are taken for identifiers.
DISTINCT = 0.9
# Share of rows from which one value is said to fill a column.
FILLED = 0.9
# Number of distinct whole numbers up to which they may be levels.
FEW_VALUES = 6
# Variance over mean from which counts spread more than Poisson.
OVERDISPERSED = 3.0
# Columns among which repeated ones are searched for, and rows at which numbers are looked at.
MOST_COLUMNS, MOST_ROWS = 500, 10_000
# Columns of one kind that a warning names.
NAMED = 5
# Kinds of finding, and what to do.
REMEDIES = {
    "missing": "no value is observed: leave it out, or give its 'categories'",
    "constant": "one value in all rows says nothing: leave it out",
    "identifier": "(nearly) every row has its own value: leave it out, or name it in 'components'",
    "one value": "one value fills most rows: skvt.components.Hurdle(component, at=value)",
    "few values": "whole numbers with few values, read as real: Categorical() or Poisson()",
    "overdispersed": "counts spread more than Poisson: NegativeBinomial()",
    "repeated": "says what another column says: leave one of the two out",
}

# (a mixture of Poissons spreads, too: whether more than that, the fit alone can say)
REPORTED_ONLY = {"overdispersed"}


class ColumnWarning(UserWarning):
    """Columns of a table that say nothing, repeat each other, or are likely read wrongly.

    One warning names all of them, by kind and with the remedy. ``table_report_`` of the fitted
    estimator has the same as a table.

    Examples
    --------
    >>> import warnings
    >>> import skvt
    >>> warnings.simplefilter("ignore", skvt.ColumnWarning)
    """


def is_identifier(column):
    """Whether categories, or whole numbers, are (nearly) all distinct, in 30 rows or more."""
    if column.kind == "category":
        values = [value for value in column.objects() if value is not None]
        try:
            n_distinct = len(set(values))
        except TypeError:
            return False
        return _all_distinct(n_distinct, len(values))
    if column.kind != "real":
        return False
    distinct, n_rows = _whole_numbers(column)
    # (whole numbers far apart are measurements, such as prices; row numbers leave no gap)
    return _all_distinct(distinct.size, n_rows) and np.median(np.diff(distinct)) <= 1.0


def has_few_values(column):
    """Whether a column of numbers holds three to six whole ones, in 30 rows or more."""
    if column.kind != "real":
        return False
    distinct, n_rows = _whole_numbers(column)
    return 2 < distinct.size <= FEW_VALUES and n_rows >= FEWEST_ROWS


def _whole_numbers(column):
    """The distinct values of a column, none if any is no whole number, and how many there are."""
    values = column.numbers()
    values = values[~np.isnan(values)]
    with np.errstate(invalid="ignore"):
        whole = np.array_equal(values, np.floor(values)) and np.isfinite(values).all()
    return np.unique(values) if whole else values[:0], values.size


def _all_distinct(n_distinct, size):
    return size >= FEWEST_ROWS and n_distinct >= DISTINCT * size


def left_out(columns):
    """What was found of the columns that "auto" leaves out, by their positions."""
    found = {}
    for j, column in enumerate(columns):
        if is_identifier(column):
            found[j] = "identifier", "left out"
        elif column.kind == "category" and column.categories is None:
            if all(value is None for value in column.objects()):
                found[j] = "missing", "left out"
    coded = {
        j: _codes(column, column.kind)
        for j, column in enumerate(columns)
        if j not in found and column.kind is not None
    }
    if coded and len(coded[min(coded)]) >= FEWEST_ROWS:
        found |= {j: ("repeated", f"column {i}, left out") for i, j in _repeated(coded)}
    return found


def audited(X, columns, blocks):
    """What was found of the columns of blocks ``(spec, positions)``, by their positions.

    ``columns`` is None for arrays of floats. Of sparse rows nothing is asked, since their zeros
    are most of them, and little of few rows.
    """
    if sp.issparse(X) or X.shape[0] < FEWEST_ROWS:
        return {}
    coded, findings = {}, {}
    for spec, positions in blocks:
        for j in positions:
            coded[j] = _codes(X[:, j] if columns is None else columns[j], spec.encoding)
            found = _finding(coded[j], type(spec).__name__)
            if found is not None:
                findings[j] = found
    repeated = {j: ("repeated", f"column {i}") for i, j in _repeated(coded) if i not in findings}
    return repeated | findings


def _codes(column, encoding):
    """Values as floats, NaN where missing; categories by the order in which they occur."""
    if isinstance(column, np.ndarray):
        return np.asarray(_sample(column), np.float64)
    if encoding != "category" and column.kind != "category":
        return _sample(column.numbers())
    code_of = {}
    values = column.objects()
    try:
        return np.array(
            [np.nan if v is None else code_of.setdefault(v, len(code_of)) for v in values], float
        )
    except TypeError:  # (what cannot be a category is an error elsewhere)
        return np.zeros(len(values))


def _sample(values):
    """Evenly spaced values of a long column."""
    return values[:: max(1, len(values) // MOST_ROWS)]


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
        if whole and 2 < distinct.size <= FEW_VALUES:
            return "few values", f"{distinct.size} values"
    if component == "Poisson" and values.var() > OVERDISPERSED * max(values.mean(), 1.0):
        return "overdispersed", f"variance {values.var() / values.mean():.1f} times the mean"
    return None


def _repeated(coded):
    """Pairs of columns that are functions of each other: the same groups, or the same line."""
    first, pairs = {}, []
    for j, values in list(coded.items())[:MOST_COLUMNS]:
        key = _signature(values[:MOST_ROWS])
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
            f"Look at these columns (table_report_ lists all):{''.join(lines)}",
            ColumnWarning,
            stacklevel=stack_level(),
        )
