"""Findings on the columns of a table before a fit, such as constant columns and identifiers.

A *finding* on a column is a pair of strings ``(kind, detail)``. The kind is a key of ``_REMEDIES``,
and the detail is, for instance, the value of a constant column. `find_uninformative_columns` finds
the columns that components="auto" leaves out. `find_suspicious_columns` judges the columns of the
*blocks*, the groups of columns that components of the mixture describe. Both take the values of
columns from a :class:`ColumnSummary`. j is the position of a column in the table.
"""

import re
import warnings
from datetime import date
from typing import NamedTuple

import numpy as np

from skvt.components.logarithms import MIN_GAIN, compute_gains, prefer_cube_roots
from skvt.components.shapes import are_evenly_spread, prefer_counts
from skvt.readers.validation import find_stack_level
from skvt.rows import dense
from skvt.typing import Array

# Minimum number of rows to judge a column. A few values can all differ or be equal by chance.
MIN_ROWS = 30
# Categories and whole numbers are identifiers if at least this share of them is distinct.
_MIN_DISTINCT_SHARE = 0.9
# Texts of at least this many characters are words, whose case has no meaning.
_MIN_WORD_LENGTH = 4
# Levels are rare if a column has at least _MIN_LEVELS_TO_GROUP of them, with fewer than
# _MIN_ROWS_OF_LEVEL rows each on average.
_MIN_LEVELS_TO_GROUP = 30
_MIN_ROWS_OF_LEVEL = 4
# Texts are numbers written as text if more than this share of the distinct texts are.
_MIN_NUMBER_SHARE = 0.9
# One value fills a column if it has more than this share of the rows.
_MIN_FILLED_SHARE = 0.9
# Whole numbers may be levels, such as ratings, if at most this many of them are distinct.
MAX_LEVELS = 6
# Whole numbers may be codes of categories if at most this many of them are distinct.
# Answers from 0 to 10 have eleven values.
_MAX_CODES = 11
# Ratings pile up at an end of their scale if the share of the end exceeds the first number, and its
# count exceeds the second one times the count of the next value. Zero, and the smallest and the
# largest of more values, are then a point mass.
LIMITS_AT_END = 0.1, 3.0
# Maximum number of adjacent numbers that may stand for missing values, such as 97, 98 and 99.
_MAX_MISSING_CODES = 3
# Minimum number of rows that have these numbers.
_MIN_CODED_ROWS = 3
# Maximum share of the rows that have these numbers, unless they are negative.
_MAX_CODED_SHARE = 0.3
# Whole numbers may be counts if the largest is at most this number.
_MAX_COUNT = 1e9
# Counts are overdispersed if their variance is more than this many times their mean.
_MIN_OVERDISPERSION = 3.0
# Logarithms of a column of amounts are not modelled if some values are 0 or less. Such values are
# probably errors if they are at most this share of the values.
_MAX_NOT_POSITIVE_SHARE = 0.02
# Logarithms, counts and even spreads are judged by a sample of at least this many values, and fewer
# than twice as many, to save time.
_JUDGED_SIZE = 1_000
# Columns of counts rise with the total of their row if most of them vary more than Poisson counts
# and the four conditions of the following constants hold.
# Minimum number of columns of counts.
MIN_COUNT_COLUMNS = 10
# Minimum variance of the total, divided by the sum of the variances of the columns.
_MIN_TOTAL_RATIO = 2.0
# Minimum share of the columns with a positive covariance with the total of all other columns.
_MIN_RISING_SHARE = 0.9
# The variances of the columns rise at least like their means to this power.
_MIN_VARIANCE_POWER = 0.5
# To find logarithms of counts, a sample of at least _N_JUDGED_ROWS rows, and fewer than twice as
# many, is judged, without rows that have fewer than _MIN_POSITIVE_VALUES positive values. Columns
# are logarithms of counts if more than half of these rows are.
_N_JUDGED_ROWS, _MIN_POSITIVE_VALUES = 100, 5
# Maximum deviation of a number from the next count, relative to the number and absolutely, and the
# largest count, because logarithms of larger counts are too imprecise. Logarithms may be rounded to
# three decimals.
_MAX_RELATIVE_DEVIATION, _MAX_DEVIATION, _MAX_READS = 2e-3, 0.05, 1e5
# Maximum number of columns that are compared with each other, to find repeated columns.
_MAX_COMPARED_COLUMNS = 500
# Two columns have the same zeros if at most this share of the zeros of one column, and of its other
# values, differ in the other column.
_MAX_OTHER_ZEROS = 0.05
# Long columns are judged by a sample of at least this number of values, and fewer than twice as
# many.
_SAMPLE_SIZE = 10_000
# Maximum number of columns of one kind that a warning names.
_MAX_NAMED = 5
# Numbers as spreadsheets write them, with a sign, marks of decimals and of thousands, and a unit.
# \1 repeats the first mark of thousands, so that all of them must be equal. "<" stands before a
# limit of detection. Numbers that begin with +, or with 0 and a further digit, do not match,
# because they may be numbers of telephones.
_NUMBER_AS_TEXT = re.compile(
    r"(?:[<>]=?\s?)?(?:[€$£]\s?)?[-−]?(?!0\d)(?:\d{1,3}([.,'\s])\d{3}(?:\1\d{3})*|\d+)(?:[.,]\d+)?"
    r"(?:[eE][-+]?\d+)?(?:\s?[€$£%])?"
)
# The text of a pattern for an optional time of the day, after a date.
_TIME_PATTERN = (
    r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp][Mm])?\s?(?:Z|[-+]\d{2}:?\d{2})?)?"
)
# Dates with a year of four digits, one pattern for each order of year, month and day, with a mark
# between them or with eight digits. All values of a column must match the same pattern.
_DATES_AS_TEXT = tuple(
    re.compile(order.format(mark=mark, digits=digits) + _TIME_PATTERN, re.ASCII)
    for mark, digits in (("[-/.]", "{1,2}"), ("", "{2}"))
    for order in (
        r"(?P<year>(?:1[89]|2[01])\d{{2}})({mark})(?P<month>\d{digits})\2(?P<day>\d{digits})",
        r"(?P<day>\d{digits})({mark})(?P<month>\d{digits})\2(?P<year>(?:1[89]|2[01])\d{{2}})",
        r"(?P<month>\d{digits})({mark})(?P<day>\d{digits})\2(?P<year>(?:1[89]|2[01])\d{{2}})",
    )
)
# Remedy for each kind of finding.
_REMEDIES = {
    "date": "dates and times are not used: if they say something about groups, turn them into "
    "numbers, such as days",
    "missing": "no value is observed: leave the column out, or give its 'categories'",
    "constant": "one value in all rows says nothing: leave the column out",
    "missing code": "numbers far from all others: if they stand for missing values, such as 999, "
    "or are errors, replace them by NaN; if they are true values, keep them, and try StudentT() or "
    "logarithms",
    "number as text": "numbers written as text: unless they are codes, turn them into numbers, by "
    "decimal=',', thousands='.' and na_values=['k. A.'] of pandas.read_csv, or by "
    "pandas.to_numeric, whose errors='coerce' makes other text missing",
    "spelling": "texts that may be one category, or none: unify them, for instance by "
    "column.str.lower().str.split().str.join(' '), and replace blank texts by NaN if they are "
    "missing values",
    "identifier": "(nearly) every row has its own value: leave it out, or name it in 'components'",
    "rare levels": "categories have few rows each, such as those of times of day, places or names: "
    "put similar ones together, or leave the column out",
    "one value": "one value fills most rows: try skvt.components.Hurdle(component, at=value)",
    "of a total": (
        "counts that rise with the total of their row, such as those of genes in cells, read "
        "without an exposure: try components=NegativeBinomial(exposure='row_total')"
    ),
    "logarithms of counts": (
        "logarithms of counts, such as those of genes in cells, which Gaussians do not describe: "
        "fit MemoizedDPMixture(components=NegativeBinomial(exposure='row_total')) to the counts, "
        "or Gaussians to some ten principal components"
    ),
    "not positive": "amounts are modelled without logarithms, because a few are 0 or less: if "
    "these are errors or stand for missing values, replace them by NaN; if they are true zeros, "
    "try skvt.components.Hurdle(Gaussian()); if they are true negative values, such as those of "
    "fluorescence, transform the column, for instance by numpy.arcsinh(column / 100)",
    "few values": "numbers with few values, read as real: try Categorical(), or Poisson() if they "
    "are counts",
    "code": "whole numbers, read as real: try Categorical() for codes",
    "piled up": "many are at an end of the scale, which Gaussians do not describe, so that they "
    "divide groups: if these are ratings, try LatentGaussian(ordinal=[...]); try Categorical() for "
    "codes",
    "uniform": "numbers are spread evenly over a range, such as days of a year or places, so that "
    "Gaussians need several components, which divide groups: if they say nothing about groups, "
    "leave the column out, or name it in 'given'; try Categorical() for weekdays, months and hours",
    "cube roots": "cube roots are nearer to a Gaussian than the numbers and their logarithms, as "
    "of durations, so that Gaussians may divide groups: replace the column by numpy.cbrt(column)",
    "overdispersed": "counts vary more than a Poisson distribution: try NegativeBinomial()",
    "repeated": "has the same information as another column: leave one of the two out",
    "same zeros": "zero in the rows in which the other column is zero, or has one of two values, "
    "so that zeros count twice and may decide the groups: leave one of the two columns out",
    "unused": "given numbers explain real columns only, and there is none: cut them into levels, "
    "for instance by pandas.cut",
    "not tied": "without real columns, only its size ties a cluster in one given level to the same "
    "cluster in another: compare the clusters of the levels, or leave the column out",
}

# Kinds of findings that the report of the table has, but no warning, because only the user knows
# whether they matter: a mixture of Poisson distributions is overdispersed, too, and whole numbers
# may be ratings.
_REPORTED_ONLY = {"overdispersed", "code"}


class ColumnWarning(UserWarning):
    """Warning of columns without information, repeated columns and columns probably read wrongly.

    One warning names all such columns by the kind of the finding, with a remedy for each kind.
    ``table_report_`` of the fitted estimator says how each column was read, and why.

    Examples
    --------
    >>> import warnings
    >>> import skvt
    >>> warnings.simplefilter("ignore", skvt.ColumnWarning)
    """


class ColumnSummary(NamedTuple):
    """Summary of the values of a column."""

    # The numbers, or codes of categories in order of occurrence; NaN where a value is missing. The
    # numbers of a long column are an evenly spaced sample.
    values: Array
    # Whether nearly all values are distinct, and the column has categories, or whole numbers most
    # of which follow each other without gaps.
    is_identifier: bool = False
    # Whether the values are whole numbers, with 2 to ``MAX_LEVELS`` distinct values.
    has_few_values: bool = False
    # Whether the values are whole numbers, 0 or 1 is the smallest, more than ``MAX_LEVELS`` of them
    # are distinct, and the column is no identifier.
    may_be_counts: bool = False
    # Whether the column is an identifier whose numbers fill their range, as numbers of rows do.
    has_row_numbers: bool = False
    # The first number if nearly all values are numbers written as text, otherwise None.
    number_as_text: str | None = None
    # The first value if all values are dates, written as text or as whole numbers such as 20241231,
    # otherwise None.
    date_as_text: str | None = None
    # A blank text, or two texts that differ only in case and blanks, otherwise None.
    spelling: str | None = None

    @classmethod
    def from_column(cls, column):
        """Summarise a :class:`~skvt.readers._columns.Column`, or a column of an array of floats."""
        if isinstance(column, np.ndarray):
            return cls(np.asarray(_sample_values(column), np.float64))
        if column.kind not in ("real", "binary"):
            entries = column.to_objects()
            codes, categories = _encode_categories(entries)
            n_observed = np.count_nonzero(~np.isnan(codes))
            is_category = column.kind == "category"
            is_identifier = is_category and are_distinct(len(categories), n_observed)
            # If the user declares a categorical type, its categories are meant as such.
            is_undeclared = is_category and column.categories is None
            number_text = _find_number_as_text(categories, n_observed) if is_undeclared else None
            date_text = _find_date_as_text(categories) if is_undeclared else None
            spelling = _find_spelling(categories) if is_undeclared else None
            return cls(
                codes, is_identifier, number_as_text=number_text, date_as_text=date_text,
                spelling=spelling,
            )  # fmt: skip
        values = column.to_numbers()
        observed = values[~np.isnan(values)]
        are_whole = np.isfinite(observed).all() and np.array_equal(observed, np.floor(observed))
        if column.kind == "binary" or observed.size < MIN_ROWS or not are_whole:
            return cls(_sample_values(values))
        distinct = np.unique(observed)
        is_identifier = are_distinct(distinct.size, observed.size) and _follow_each_other(distinct)
        range_size = np.ptp(distinct) + 1.0
        has_row_numbers = is_identifier and distinct.size >= _MIN_DISTINCT_SHARE * range_size
        has_few_values = 1 < distinct.size <= MAX_LEVELS
        has_range_of_counts = distinct[0] in (0.0, 1.0) and distinct[-1] <= _MAX_COUNT
        may_be_counts = has_range_of_counts and distinct.size > MAX_LEVELS and not is_identifier
        return cls(
            _sample_values(values), is_identifier, has_few_values, bool(may_be_counts),
            has_row_numbers=bool(has_row_numbers), date_as_text=_find_date_as_number(distinct),
        )  # fmt: skip


def are_distinct(n_distinct, n_observed):
    """Return whether there are enough values to judge a column, and nearly all are distinct."""
    return n_observed >= MIN_ROWS and n_distinct >= _MIN_DISTINCT_SHARE * n_observed


def _find_number_as_text(categories, n_observed):
    """Return the first number if nearly all categories of a column are numbers written as text.

    At most a tenth of the categories may be other text, such as "n/a". Otherwise, return None. Also
    return None for whole numbers that may be codes, postal codes or identifiers: codes have few
    distinct values, postal codes have one length and no other text among them, and nearly all
    identifiers are distinct.
    ``n_observed`` is the number of values of the column that are not missing.
    """
    numbers = [str(entry).strip() for entry in categories if _is_number_as_text(entry)]
    n_distinct = len(numbers)
    if n_observed < MIN_ROWS or n_distinct <= max(MAX_LEVELS, _MIN_NUMBER_SHARE * len(categories)):
        return None
    if all(number.isdecimal() for number in numbers):
        lengths = {len(number) for number in numbers}
        has_one_length = len(lengths) == 1 and n_distinct == len(categories)
        if n_distinct <= _MAX_CODES or has_one_length or are_distinct(n_distinct, n_observed):
            return None
    return numbers[0]


def _find_spelling(categories):
    """Return a blank text, or two texts that differ only in case and blanks, as text, or None.

    Shorter texts than ``_MIN_WORD_LENGTH`` may differ in case on purpose, such as genotypes.
    """
    spellings = {}
    for entry in categories:
        key = " ".join(entry.split()).casefold() if isinstance(entry, str) else None
        if key == "":
            return repr(entry)
        if key is not None and spellings.setdefault(key, entry) != entry:
            if len(key) >= _MIN_WORD_LENGTH:
                return f"{spellings[key]!r} and {entry!r}"
    return None


def _is_number_as_text(entry):
    """Return whether an entry is a number, written as text or beside text."""
    return _NUMBER_AS_TEXT.fullmatch(str(entry).strip()) is not None


def _find_date_as_text(categories):
    """Return the first category if all categories of a column are dates written as text, or None.

    All dates must have the same order of year, month and day, and years from 1800 to 2199.
    """
    are_dates = categories and any(
        all(_is_date_as_text(entry, pattern) for entry in categories) for pattern in _DATES_AS_TEXT
    )
    return categories[0] if are_dates else None


def _find_date_as_number(distinct):
    """Return the first of sorted whole numbers as text if all are dates such as 20241231, or None.

    The first digit may be missing if it is 0, as in 1052024 for the first of May.
    """
    if distinct[0] < 1_01_1800 or distinct[-1] > 31_12_2199:
        return None
    return _find_date_as_text([f"{number:08.0f}" for number in _sample_values(distinct)])


def _is_date_as_text(entry, pattern):
    """Return whether an entry is text that matches the pattern, and is a day of the calendar."""
    match = pattern.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is None:
        return False
    try:
        date(*(int(match[unit]) for unit in ("year", "month", "day")))
    except ValueError:
        return False
    return True


def _encode_categories(values):
    """Return codes of categories, and the categories in order of occurrence.

    The code of None, a missing value, is NaN.
    """
    code_of_category = {None: np.nan}
    try:
        # The next code is the number of categories so far; None is in the dict, but no category.
        codes = [code_of_category.setdefault(value, len(code_of_category) - 1) for value in values]
    except TypeError:
        # Values such as lists cannot be categories. The reader of the column raises an error later.
        return np.zeros(len(values)), list(values[:1])
    _, *categories = code_of_category
    return np.array(codes, np.float64), categories


def _sample_values(values):
    """Return evenly spaced values of a long column, or all values of a short column."""
    return _sample_evenly(values, _SAMPLE_SIZE)


def _sample_evenly(values, size):
    """Return at least ``size``, but fewer than ``2 * size``, evenly spaced values.

    Return all values if there are fewer than ``2 * size``.
    """
    return values[:: max(1, len(values) // size)]


def _sample_same_rows(values):
    """Return a sample of the values of a summary, from the same rows for each column.

    The values of numbers can be a sample already, those of categories are always of all rows.
    """
    return _sample_values(values)[:_SAMPLE_SIZE]


def find_uninformative_columns(columns, summaries):
    """Return, by position, the finding on each column that components="auto" leaves out.

    ``summaries`` has the :class:`ColumnSummary` of each column by position.
    """
    findings = {}
    for j, column in enumerate(columns):
        values = summaries[j].values
        if column.kind == "date":
            findings[j] = "date", f"{column.type}, left out"
        elif summaries[j].date_as_text is not None:
            findings[j] = "date", f"{summaries[j].date_as_text!r}, left out"
        elif summaries[j].is_identifier and summaries[j].number_as_text is not None:
            findings[j] = "number as text", f"{summaries[j].number_as_text!r}, left out"
        elif summaries[j].is_identifier:
            findings[j] = "identifier", "left out"
        elif _has_no_value(column, values):
            findings[j] = "missing", "left out"
        if j not in findings and _is_constant(column, values):
            findings[j] = "constant", f"{column.to_objects()[0]}, left out"
    # Compare the other columns with each other.
    kept_values = {
        j: summaries[j].values
        for j, column in enumerate(columns)
        if j not in findings and column.kind is not None and len(summaries[j].values) >= MIN_ROWS
    }
    repeated = _find_repeated(kept_values)
    return findings | {j: ("repeated", f"column {i}, left out") for i, j in repeated}


def _has_no_value(column, values):
    """Return whether no row of a column of numbers or of undeclared categories has a value.

    ``values`` are those of the column's summary.
    """
    if column.categories is not None or not np.isnan(values).all():
        return False
    # The summary of numbers may be a sample. Therefore test all numbers.
    return column.kind == "category" or (
        column.kind == "real" and bool(np.isnan(column.to_numbers()).all())
    )


def _is_constant(column, values):
    """Return whether all rows of a column have one value; ``values`` are those of its summary."""
    if column.kind is None or len(values) < MIN_ROWS or not np.all(values == values[0]):
        return False
    # The summary of categories has the codes of all rows, but the summary of numbers may be a
    # sample. All numbers must therefore be compared.
    return column.kind not in ("real", "binary") or bool(np.all(column.to_numbers() == values[0]))


def find_suspicious_columns(summaries, table, n_rows):
    """Return, by position, the finding on each suspicious column of the table's blocks.

    ``summaries`` has the :class:`ColumnSummary` of each column by position. ``n_rows`` is the
    number of all rows; a summary may have a sample of the rows.
    """
    findings = {}
    for block in table.blocks:
        for i, j in enumerate(block.columns.tolist()):
            values = summaries[j].values
            finding = _judge_values(values, type(block.spec).__name__)
            finding_kind = finding[0] if finding else None
            # ``reasons`` is empty if the user has listed the components. Texts that the user lists
            # as categories are meant as such.
            number_as_text = summaries[j].number_as_text if table.reasons else None
            # Values that the user lists as a level or a point mass are meant as such.
            is_value_meant = type(block.spec).__name__ in ("Categorical", "Hurdle")
            code = _find_missing_code(values) if table.reasons or not is_value_meant else None
            if number_as_text is not None:
                finding = "number as text", repr(number_as_text)
            elif finding_kind == "identifier":
                # The share of distinct values is larger in a sample than in all rows. Compare the
                # number of levels with the number of all rows that have a value.
                n_levels = len(block.categories[i])
                rows_per_observed = values.size / np.count_nonzero(~np.isnan(values))
                if n_levels * rows_per_observed < _MIN_DISTINCT_SHARE * n_rows:
                    finding = None
            elif code is not None:
                finding = "missing code", code
            elif finding is None and table.reasons and summaries[j].spelling is not None:
                finding = "spelling", summaries[j].spelling
            elif finding is None and table.reasons and block.categories is not None:
                finding = _find_rare_levels(values)
            elif finding_kind == "constant" and block.categories is not None:
                # Show the category in place of its code.
                finding = "constant", str(block.categories[i][0])
            if finding:
                findings[j] = finding
    findings |= _find_counts_rising_with_total(summaries, table)
    modelled = {j: summaries[j].values for block in table.blocks for j in block.columns.tolist()}
    numbers = [j for j, values in modelled.items() if _may_be_logarithms(values)]
    if numbers:
        rows = np.stack([modelled[j] for j in numbers], axis=1)
        findings |= find_logarithms_of_counts(rows, numbers)
    findings = _find_same_zeros(summaries, table) | findings
    # Repetitions of a column that has a finding itself are not reported.
    repeated = {
        j: ("repeated", f"column {i}") for i, j in _find_repeated(modelled) if i not in findings
    }
    return repeated | findings


def _judge_values(values, component_name):
    """Return the finding on the ``values`` of one column, or None.

    ``component_name`` is the name of the class of the component that describes the column.
    """
    n_rows = values.size
    values = values[np.isfinite(values)]
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size < 2:
        return ("constant", f"{distinct[0]:g}") if distinct.size else ("missing", "no value")
    if component_name == "Categorical" and are_distinct(distinct.size, values.size):
        return "identifier", f"{distinct.size} values"
    are_whole = np.array_equal(values, np.floor(values))
    if component_name in ("Gaussian", "StudentT"):
        if distinct.size > 2 and counts.max() > _MIN_FILLED_SHARE * n_rows:
            return "one value", f"{distinct[counts.argmax()]:g} in {counts.max() / n_rows:.0%}"
        if distinct.size <= MAX_LEVELS and (are_whole or values.size >= MIN_ROWS):
            return "few values", f"{distinct.size} values"
        if values.size >= MIN_ROWS and are_evenly_spread(_sample_evenly(values, _JUDGED_SIZE)):
            return "uniform", f"{values.min():g} to {values.max():g}"
        if are_whole and distinct.size <= _MAX_CODES:
            return _judge_scale(distinct, counts)
        if values.size >= MIN_ROWS and prefer_cube_roots(_sample_evenly(values, _JUDGED_SIZE)):
            return "cube roots", f"{values.min():g} to {values.max():g}"
        if component_name == "Gaussian" and _have_errors_among_amounts(values):
            return "not positive", f"{values.min():g}"
    min_variance = _MIN_OVERDISPERSION * max(values.mean(), 1.0)
    if component_name == "Poisson" and values.var() > min_variance:
        return "overdispersed", f"variance {values.var() / values.mean():.1f} times the mean"
    return None


def _find_rare_levels(codes):
    """Return the finding if the levels that occur have few rows each, or None."""
    _, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    if counts.size < _MIN_LEVELS_TO_GROUP or counts.mean() >= _MIN_ROWS_OF_LEVEL:
        return None
    return "rare levels", f"{counts.size} categories, {counts.mean():.1f} rows each"


def _judge_scale(levels, counts):
    """Return the finding on whole numbers that may be codes or ratings; ``levels`` are sorted."""
    min_share, min_ratio = LIMITS_AT_END
    n_values = counts.sum()
    for end, neighbour in ((0, 1), (-1, -2)):
        min_count = max(min_share * n_values, min_ratio * counts[neighbour])
        if n_values >= MIN_ROWS and counts[end] > min_count:
            return "piled up", f"{levels[end]:g} in {counts[end] / n_values:.0%}"
    return "code", f"{levels.size} whole numbers"


def _have_errors_among_amounts(values):
    """Return whether values are better in logarithms, except a few that are 0 or less."""
    share = np.mean(values <= 0.0)
    return 0.0 < share <= _MAX_NOT_POSITIVE_SHARE and compute_gain_of_amounts(values)[0] > MIN_GAIN


def compute_gain_of_amounts(values):
    """Return by how many nats logarithms raise the bound of a sample of the positive values.

    Also return the number of values in the sample.
    """
    amounts = _sample_evenly(values[values > 0.0], _JUDGED_SIZE)
    return compute_gains(amounts[:, None], np.ones(amounts.size))[0], amounts.size


def has_distribution_of_counts(values, *, has_point_mass):
    """Return whether a sample of whole numbers is described better by counts than by real numbers.

    ``has_point_mass`` says whether zeros are a point mass, which a hurdle describes.
    """
    return prefer_counts(_sample_evenly(values, _JUDGED_SIZE), has_point_mass=has_point_mass)


def _find_missing_code(values):
    """Describe numbers that may stand for missing values, such as -99; return None without any.

    These are the highest or the lowest number of a column, or up to three adjacent whole numbers.
    The outermost of them has only the digit 8, or only the digit 9. One of two conditions holds:

    - They are negative, and the other values are not.
    - At most a share ``_MAX_CODED_SHARE`` of the rows has them, and their distance from the other
      values is at least 2, and at least the range of the other values. If there are only two other
      values, the distance must be at least three times their range.
    """
    values = values[np.isfinite(values)]
    if values.size < MIN_ROWS:
        return None
    distinct_values, counts = np.unique(values, return_counts=True)
    for direction in (slice(None), slice(None, None, -1)):
        # The values from the lowest or from the highest on, and the numbers of rows up to each.
        ordered, cumulative_counts = distinct_values[direction], counts[direction].cumsum()
        if set(f"{abs(ordered[0]):.15g}") not in ({"8"}, {"9"}):
            continue
        # ``n_codes`` is the number of distinct values that may stand for missing ones.
        for n_codes in range(1, min(_MAX_MISSING_CODES, distinct_values.size - 2) + 1):
            inner, other_values = ordered[n_codes - 1], ordered[n_codes:]
            min_distance = np.ptp(other_values) * (1.0 if other_values.size > 2 else 3.0)
            is_far = abs(other_values[0] - inner) >= max(2.0, min_distance)
            n_coded_rows = cumulative_counts[n_codes - 1]
            is_rare = n_coded_rows <= _MAX_CODED_SHARE * values.size
            if not (inner < 0.0 <= other_values.min() or (is_far and is_rare)):
                continue
            if abs(ordered[0] - inner) < n_codes and n_coded_rows >= _MIN_CODED_ROWS:
                text = " to ".join(f"{value:g}" for value in sorted({ordered[0], inner}))
                return f"{text} in {n_coded_rows / values.size:.0%}"
    return None


def _find_counts_rising_with_total(summaries, table):
    """Return, by position, the findings on columns of counts that rise with the total of their row.

    Counts of genes in cells are an example: a cell that is read more often has larger counts of all
    genes. The constants at the head of the module explain the conditions.
    """
    values_of_counts = {
        j: summaries[j].values
        for block in table.blocks
        for j in block.columns.tolist()
        if type(block.spec).__name__ in ("Gaussian", "StudentT")
        # "auto" reads counts without an exposure. Users who list counts have decided about it.
        or (table.reasons and block.spec.encoding == "count")
        or (type(block.spec).__name__ == "Categorical" and summaries[j].has_few_values)
    }
    values_of_counts = {j: x for j, x in values_of_counts.items() if _are_counts(x)}
    if len(values_of_counts) < MIN_COUNT_COLUMNS:
        return {}
    # The columns of X are the columns of counts, with the mean for missing values.
    columns = [np.nan_to_num(x, nan=np.nanmean(x)) for x in values_of_counts.values()]
    X = np.stack(columns, axis=1)
    mean, variance = X.mean(axis=0), X.var(axis=0)
    row_totals = X.sum(axis=1)
    # Entry (n, i) is the total of row n without column i of X.
    other_totals = row_totals[:, None] - X
    covariance = ((X - mean) * (other_totals - other_totals.mean(axis=0))).mean(axis=0)
    # The power of the mean is the slope of the regression of log variances on log means, that is,
    # ``log_covariance / log_mean_variance``.
    (log_mean_variance, log_covariance), _ = np.cov(np.log(mean), np.log(variance))
    rises_with_total = (
        np.mean(variance > mean) > 0.5
        and row_totals.var() >= _MIN_TOTAL_RATIO * variance.sum()
        and np.mean(covariance > 0.0) >= _MIN_RISING_SHARE
        and log_covariance >= _MIN_VARIANCE_POWER * log_mean_variance > 0.0
    )
    if not rises_with_total:
        return {}
    return {j: ("of a total", f"mean {mean[i]:.2g}") for i, j in enumerate(values_of_counts)}


def _may_be_logarithms(values):
    """Return whether values are nonnegative, and some of them are not whole."""
    return not np.any(values < 0.0) and bool(np.any(values > np.floor(values)))


def find_logarithms_of_counts(X, positions):
    """Return, by position, the findings on columns of log(1 + c n), where n are counts.

    c is a factor of each row, such as 10,000 divided by the total of the row. The smallest positive
    value of a row probably stands for one count. ``X`` (N, D) is an array or a sparse matrix, and
    ``positions`` are the positions of its D columns in the table. Fewer than MIN_COUNT_COLUMNS
    columns are not judged.
    """
    if X.shape[1] < MIN_COUNT_COLUMNS:
        return {}
    rows = X[:: max(1, X.shape[0] // _N_JUDGED_ROWS)]
    rows = np.nan_to_num(np.asarray(dense(rows), np.float64))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scaled = np.expm1(rows)
        counts = scaled / np.where(scaled > 0.0, scaled, np.inf).min(axis=1, keepdims=True)
        tolerances = np.minimum(_MAX_RELATIVE_DEVIATION * counts, _MAX_DEVIATION)
        are_counts = (np.abs(counts - np.rint(counts)) <= tolerances) & (counts <= _MAX_READS)
    # The logarithm of 1 plus a small number is the number, so that small rates look like counts.
    is_judged = ((rows > 0.0).sum(axis=1) >= _MIN_POSITIVE_VALUES) & (rows.max(axis=1) > 0.1)
    # Rows that have one value, apart from zeros, may be anything.
    is_logarithm = are_counts.all(axis=1) & (counts.max(axis=1) > 1.5)
    if not is_judged.any() or is_logarithm[is_judged].mean() <= 0.5 or not (rows % 1.0).any():
        return {}
    largest = rows.max(axis=0)
    return {j: ("logarithms of counts", f"up to {largest[i]:.2g}") for i, j in enumerate(positions)}


def warn_of_logarithms(X):
    """Warn if the rows of an array, for a mixture of Gaussians, are logarithms of counts.

    Neither rows in chunks nor fewer than MIN_COUNT_COLUMNS columns are judged.
    """
    if isinstance(X, np.ndarray) and len(X) >= MIN_ROWS and find_logarithms_of_counts(X, [0]):
        remedy = _REMEDIES["logarithms of counts"]
        warnings.warn(f"X has {remedy}.", ColumnWarning, stacklevel=find_stack_level())


def _are_counts(values):
    """Return whether values are counts 0, 1, ..., at least MIN_ROWS of them and not all equal."""
    values = values[~np.isnan(values)]
    return (
        values.size >= MIN_ROWS
        and values.min() >= 0.0
        and values.max() > values.min()
        and np.array_equal(values, np.floor(values))
    )


def _find_repeated(values_by_column):
    """Return a list of pairs of positions (i, j): column j repeats the earlier column i.

    A column repeats another column if both divide the rows into the same groups, or if one is a
    linear function of the other. If persons have several rows each, two measurements of persons
    divide the rows into the same groups, too: see :func:`_are_copies`.
    """
    # The columns with each signature, by position, that do not repeat each other.
    columns_of_signature = {}
    pairs = []
    for j, values in list(values_by_column.items())[:_MAX_COMPARED_COLUMNS]:
        values = _sample_same_rows(values)
        signature = _compute_signature(values)
        if signature is None:
            continue
        others = columns_of_signature.setdefault(signature, {})
        first_column = next((i for i, x in others.items() if _are_copies(x, values)), None)
        if first_column is None:
            others[j] = values
        else:
            pairs.append((first_column, j))
    return pairs


def _find_same_zeros(summaries, table):
    """Return, by position, the findings on hurdles with the zeros of another column.

    Numbers and amounts of claims are an example. Instead of zeros, the other column may have one of
    two values, such as "no".
    """
    blocks_of_hurdles = [block for block in table.blocks if type(block.spec).__name__ == "Hurdle"]
    hurdles = {j for block in blocks_of_hurdles for j in block.columns.tolist()}
    if not hurdles:
        return {}
    # By column, a number for each row: 1 for zero or the first of two values, -1 for another value,
    # 0 for a missing value.
    signs, flags = {}, set()
    for block in table.blocks:
        for j in block.columns.tolist():
            values = _sample_evenly(_sample_same_rows(summaries[j].values), _JUDGED_SIZE)
            distinct = np.unique(values[~np.isnan(values)])
            if distinct.size == 2:
                flags.add(j)
            elif block.categories is not None and not summaries[j].has_few_values:
                continue
            zero = distinct[0] if j in flags else 0.0
            signs[j] = np.where(np.isnan(values), 0, np.where(values == zero, 1, -1))
    hurdles &= signs.keys() - flags
    findings = {}
    for j in sorted(hurdles)[:_MAX_COMPARED_COLUMNS]:
        for i in sorted(signs)[:_MAX_COMPARED_COLUMNS]:
            is_other = i != j and not (i in hurdles and i > j)
            if is_other and _have_same_zeros(signs[j], signs[i], may_be_swapped=i in flags):
                findings.setdefault(j, ("same zeros", f"as {table.names[i]!r}"))
    return findings


def _have_same_zeros(signs, other_signs, *, may_be_swapped):
    """Return whether two columns of signs agree in nearly all rows in which both have a value."""
    products = signs * other_signs
    agreement = -1 if may_be_swapped and products.sum() < 0 else 1
    return all(
        np.count_nonzero(observed := products[signs == sign]) >= MIN_ROWS
        and np.sum(observed == -agreement) <= _MAX_OTHER_ZEROS * np.count_nonzero(observed)
        for sign in (1, -1)
    )


def _are_copies(values, other_values):
    """Return whether two columns with the same signature repeat each other.

    Columns of more than ``_MAX_CODES`` groups repeat each other if both are codes, or if one only
    rises or only falls with the other.
    """
    (distinct, ranks), (other_distinct, other_ranks) = (
        np.unique(x[np.isfinite(x)], return_inverse=True) for x in (values, other_values)
    )
    return (
        distinct.size <= _MAX_CODES
        # The signature has the standardised values, so that one is a linear function of the other.
        or 2 * distinct.size > ranks.size
        or (_follow_each_other(distinct) and _follow_each_other(other_distinct))
        or np.array_equal(ranks, other_ranks)
        or np.array_equal(ranks, distinct.size - 1 - other_ranks)
    )


def _follow_each_other(distinct):
    """Return whether distinct numbers are whole, and most of them follow each other without gaps.

    Whole numbers with gaps between most of them are measurements, such as prices, and no codes.
    """
    return np.array_equal(distinct, np.floor(distinct)) and np.median(np.diff(distinct)) <= 1.0


def _compute_signature(values):
    """Return a key that is equal for columns that repeat each other; None for constant values.

    The key is two strings of bytes. The first says which values are observed. The second represents
    the observed values. If values occur twice or more on average, it has the groups of equal
    values, otherwise the standardised values.
    """
    is_observed = np.isfinite(values)
    values = values[is_observed]
    distinct, codes = np.unique(values, return_inverse=True)
    if distinct.size < 2:
        return None
    if 2 * distinct.size <= values.size:
        # Number each group by the first row in which its value occurs, so that the numbers do not
        # depend on the values.
        first_rows = np.full(distinct.size, codes.size)
        np.minimum.at(first_rows, codes, np.arange(codes.size))
        return is_observed.tobytes(), first_rows[codes].tobytes()
    # Very large values overflow here; the check of magnitudes refuses them.
    with np.errstate(over="ignore", invalid="ignore"):
        standardised = np.round((values - values.mean()) / (values.std() or 1.0), 6)
    # If one column falls as another rises, their standardised values differ only in the sign.
    # Multiply by the sign of the first value that is not 0, which ``argmax`` finds. Adding 0 turns
    # -0.0 into 0.0.
    sign = np.sign(standardised[np.argmax(standardised != 0.0)])
    return is_observed.tobytes(), (sign * standardised + 0.0).tobytes()


def warn_of_columns(findings):
    """Issue one :class:`ColumnWarning` that lists columns by the kind of finding, with remedies.

    ``findings`` are triples (name of the column, kind, detail).
    """
    lines = []
    for kind, remedy in _REMEDIES.items():
        if kind in _REPORTED_ONLY:
            continue
        columns = [f"{name!r} ({detail})" for name, kind_, detail in findings if kind_ == kind]
        if columns:
            more = f" and {len(columns) - _MAX_NAMED} more" if len(columns) > _MAX_NAMED else ""
            lines.append(f"\n  {', '.join(columns[:_MAX_NAMED])}{more}: {remedy}")
    if lines:
        warnings.warn(
            f"Look at these columns (table_report_ lists all columns):{''.join(lines)}",
            ColumnWarning,
            stacklevel=find_stack_level(),
        )
