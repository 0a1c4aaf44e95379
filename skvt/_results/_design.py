"""Covariates of rows as a design matrix, from arrays, data frames and formulas.

A design matrix has a row for each row of covariates, and P columns: an intercept, numbers, and
indicators of the levels of categories. The package formulaic is imported only for a formula.
"""

import re
import reprlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from skvt._sklearn_private import num_samples
from skvt.files import in_files, is_positive
from skvt.readers import list_column_names, list_columns
from skvt.readers.validation import (
    find_stack_level,
    is_frame,
    require_package,
    show_similar,
)

# A column is collinear if its distance from the span of the preceding columns, as a fraction of its
# length, is at most this number.
_COLLINEARITY_TOLERANCE = 1e-8
# A warning is issued for predictions outside the range of the data by more than this share of it.
_MARGIN = 0.05


@dataclass(frozen=True)
class Design:
    """A design matrix with P columns, and the function that encodes other rows in the same way."""

    # Names of the P columns.
    names: list[str]
    # (n, P): the design matrix.
    matrix: Any
    # Function from rows of covariates to their design matrix.
    encode: Callable[[Any], Any]
    # Names of the covariates that the design uses.
    covariate_names: list[str]
    # The level of a category with which its other levels are compared has no indicator, and its
    # coefficient is 0. These are the names that such indicators would have.
    reference_terms: list[str]
    # The smallest and the largest value of each numeric covariate in the rows of the design.
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def warn_outside(self, rows):
        """Warn of rows ``at`` whose numbers are far outside the range of the rows of the design."""
        outside = _describe_outside(_as_table(rows, "at"), self.ranges, _MARGIN)
        if outside:
            warnings.warn(
                f"at has rows outside the data: {outside}. Predictions there continue a line "
                "or curve, and the intervals do not allow for another course. Predict within the "
                "range of the data.",
                UserWarning,
                stacklevel=find_stack_level(),
            )

    def describe(self, rows):
        """Return a name for each row of covariates, such as "year=2001, party=green"."""
        table = _as_table(rows, "at")
        # A formula such as "1" uses no covariate.
        if not self.covariate_names:
            return ["Intercept"] * num_samples(table)
        columns = _get_columns_by_name(table)
        names = [name for name in self.covariate_names if name in columns]
        values = [columns[name].to_objects() for name in names]
        return [
            ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True))
            for row in zip(*values, strict=True)
        ]


def make_design(covariates, formula, n_rows):
    """Return the :class:`Design` of the covariates of ``n_rows`` rows.

    ``formula`` is a formula over the columns of the covariates, or None for all columns. Raise
    ValueError if covariates have another number of rows or missing or infinite values, or if
    columns of the design are constant or collinear.
    """
    table = _as_table_with_rows(covariates, n_rows)
    if formula is None:
        columns = Columns(_find_levels_by_name(table))
        levels = {name: levels or [] for name, levels in columns.levels.items()}
        largest = max(levels, key=lambda name: len(levels[name]))
        if levels[largest] and len(columns.names) >= n_rows:
            raise ValueError(
                f"A regression on {len(columns.names)} terms needs more rows than terms. Got "
                f"{n_rows} rows. The category {largest!r} alone has {len(levels[largest])} levels: "
                "leave out columns that are no covariates, such as texts and names of rows."
            )
        references = _find_reference_terms(columns.names, levels)
        matrix = columns.encode(table)
        design = Design(columns.names, matrix, columns.encode, [*columns.levels], references)
    else:
        design = _make_design_by_formula(table, formula)
    require_full_rank(design.matrix, design.names)
    return replace(design, ranges=_find_ranges(_select_real_columns(table, design.covariate_names)))


def _select_real_columns(table, names):
    """Return the columns of a table that are among ``names`` and hold real numbers, by name."""
    columns = _get_columns_by_name(table)
    return {name: columns[name] for name in names if columns[name].kind == "real"}


def _find_ranges(columns):
    """Return the smallest and the largest number of columns, a dict by name."""
    numbers = {name: column.to_numbers() for name, column in columns.items()}
    return {name: (float(values.min()), float(values.max())) for name, values in numbers.items()}


def _describe_outside(table, ranges, margin=0.0):
    """Describe the numbers of a table that are outside the ranges of the data; "" if none are.

    ``ranges`` has the smallest and the largest value of numeric covariates by name. Numbers that
    are outside by at most the ``margin``, a share of the range, are not described.
    """
    columns = _get_columns_by_name(table)
    new_ranges = _find_ranges({name: columns[name] for name in ranges if name in columns})
    faults = []
    for name, (new_low, new_high) in new_ranges.items():
        low, high = ranges[name]
        if max(low - new_low, new_high - high) > margin * (high - low):
            faults.append(
                f"{name!r} is {new_low:g} to {new_high:g}, but {low:g} to {high:g} in the data"
            )
    return "; ".join(faults)


def _as_table(covariates, name="covariates"):
    """Return covariates as a data frame or as an array of objects with two axes.

    Raise ValueError if this is impossible. The error calls the parameter ``name``.
    """
    is_series = nw.dependencies.is_into_series(covariates)
    if not is_series and hasattr(getattr(covariates, "dtype", None), "categories"):
        # Categories of pandas without an index, whose values may be numbers.
        import pandas

        return pandas.DataFrame({"x0": covariates})
    if is_series:
        series = nw.from_native(covariates, series_only=True)
        return series.alias(str(series.name or "x0")).to_frame().to_native()
    table = covariates
    if not is_frame(covariates):
        table = np.asarray(covariates)
        if table.dtype.kind in "US" and not isinstance(covariates, np.ndarray):
            # NumPy has converted missing values in lists of text to text.
            table = np.array(covariates, dtype=object)
        table = table.astype(object)
        table = table[:, None] if table.ndim == 1 else table
    if len(table.shape) != 2 or 0 in table.shape:
        received = f"the shape {table.shape}" if table.shape else reprlib.repr(covariates)
        raise ValueError(
            f"{name} must be a data frame, or an array with a row for each "
            f"{'prediction' if name == 'at' else 'row of X'} and at least one column. Got "
            f"{received}."
        )
    return table


def _get_columns_by_name(table):
    """Return the columns of a table, a dict by name; the columns of an array are x0, x1, ..."""
    n_columns = table.shape[1]
    names = list_column_names(table) if is_frame(table) else [f"x{j}" for j in range(n_columns)]
    return dict(zip(map(str, names), list_columns(table), strict=True))


@in_files("estimators.Columns")
@dataclass(frozen=True)
class Columns:
    """Encoding of covariates: an intercept, numbers, and indicators of all levels but the first."""

    # The levels of each covariate by its name: a list for a category, None for numbers.
    levels: dict[str, Any]

    @property
    def names(self):
        """Names of the P columns of the design; indicators are named as formulaic names them."""
        names = ["Intercept"]
        for name, levels in self.levels.items():
            names += [name] if levels is None else [f"{name}[T.{level}]" for level in levels[1:]]
        return names

    @property
    def terms(self):
        """Number of the covariate that each column encodes, (P,).

        Covariates are numbered from 1 in the order of ``levels``; the intercept has the number 0.
        """
        n_columns = [1 if levels is None else len(levels) - 1 for levels in self.levels.values()]
        return np.repeat(np.arange(len(n_columns) + 1), [1, *n_columns])

    def encode(self, rows):
        """Return the design matrix (n, P) of rows of covariates."""
        columns = _get_columns_by_name(_as_table(rows))
        missing_names = [name for name in self.levels if name not in columns]
        if missing_names:
            raise ValueError(
                f"The covariates {missing_names} are missing: these rows have the columns "
                f"{list(columns)}. Add the covariates, or rename columns."
            )
        blocks = [_encode_column(name, columns[name], self.levels[name]) for name in self.levels]
        return np.hstack([np.ones((len(blocks[0]), 1)), *blocks])


@in_files("estimators.Covariates")
@dataclass(frozen=True)
class Covariates:
    """Encoding of the covariates of a fit, standardised by the rows of the fit."""

    columns: Columns
    # (P,): mean of each column of the design; 0 for the intercept.
    mean: Any
    # (P,): standard deviation of each column of the design; 1 for the intercept.
    scale: Any
    # Whether the covariates of the fit were passed as a data frame.
    are_named: bool

    @classmethod
    def from_rows(cls, covariates, n_rows, fit_rows):
        """Derive the encoding from n rows; ``fit_rows`` are the indices of the rows of the fit.

        If there is only one covariate and it is constant, the design consists of the intercept.
        Otherwise, raise ValueError for illegal covariates as :func:`make_design` does.
        """
        table = _as_table_with_rows(covariates, n_rows)
        table_columns = _get_columns_by_name(table)
        # A single covariate may be constant. Several covariates are not tested here.
        values = []
        if len(table_columns) == 1:
            (column,) = table_columns.values()
            values = column.to_objects()
        if len(set(values)) == 1 and values[0] is not None:
            # The covariate counts as a category of one level, which has no indicators.
            columns = Columns({name: list(values[:1]) for name in table_columns})
        else:
            columns = Columns(_find_levels_by_name(table))
        matrix = columns.encode(table)[fit_rows]
        require_full_rank(matrix, columns.names)
        mean, scale = matrix.mean(axis=0), matrix.std(axis=0)
        mean[0], scale[0] = 0.0, 1.0
        return cls(columns, mean, scale, is_frame(table))

    def encode(self, covariates, n_rows):
        """Return the standardised design (n, P) of n rows."""
        table = _as_table_with_rows(covariates, n_rows)
        unknown = [name for name in _get_columns_by_name(table) if name not in self.columns.levels]
        if unknown:
            raise ValueError(
                f"The covariates {unknown} were not among those of the fit, "
                f"{list(self.columns.levels)}. Leave them out, or fit anew."
            )
        return (self.columns.encode(table) - self.mean) / self.scale

    def is_legal_for(self, regression, is_restricted):
        """Return whether this encoding is legal, and ``regression`` is a regression on its columns.

        The encoding and the regression come from a file. ``regression`` is None for a model without
        a regression, which is legal only if the intercept is the only column. ``is_restricted``
        says whether documents are restricted to allowed topics; only then may a model have a
        regression on the intercept alone.
        """
        terms = self.columns.terms
        # The levels of a category are a list that is not empty.
        if not all(v is None or (type(v) is list and v) for v in self.columns.levels.values()):
            return False
        are_aligned = self.mean.shape == self.scale.shape == terms.shape
        if not (are_aligned and np.isfinite(self.mean).all() and is_positive(self.scale)):
            return False
        if regression is None:
            return terms.size == 1
        return (terms.size > 1 or is_restricted) and np.array_equal(regression.groups, terms)

    def convert_coefficients(self, coef):
        """Convert coefficients (P, K) of the standardised design to units of the covariates.

        The result is (K, P), where K is the number of topics.
        """
        in_user_units = coef.T / self.scale
        # The intercept is the value where covariates are 0, not where they have their means.
        in_user_units[:, 0] -= in_user_units @ self.mean
        return in_user_units


def _as_table_with_rows(covariates, n_rows):
    """Return covariates as a table; raise ValueError unless it has ``n_rows`` rows."""
    table = _as_table(covariates)
    if num_samples(table) != n_rows:
        raise ValueError(
            f"covariates has {num_samples(table)} rows, but X has {n_rows} rows. Pass covariates "
            "of the same rows, in the same order."
        )
    return table


def encode_values(name, values, n_rows):
    """Encode ``values``, a number or a category for each of n rows.

    For categories, return their levels and indicators (n, number of levels). For numbers, return
    None and the numbers (n, 1). Raise ValueError for another number of rows or columns, and for
    missing values. ``name`` is the name of the parameter in errors.
    """
    column = _require_column(name, values, n_rows)
    levels = _find_levels(name, column)
    # `_encode_column` makes no indicator of the first level. With None as the first level, each
    # level of the values gets an indicator.
    encoded_levels = None if levels is None else [None, *levels]
    return levels, _encode_column(name, column, encoded_levels)


def list_values(name, values, n_rows):
    """Return the value of each of n rows as an array of objects; missing values are None.

    Raise ValueError for another number of rows or columns. ``name`` is the name of the parameter in
    errors.
    """
    return _require_column(name, values, n_rows).to_objects()


def _require_column(name, values, n_rows):
    """Return the only column of ``values``; raise ValueError unless it has ``n_rows`` rows."""
    table = _as_table(values, name)
    columns = list(_get_columns_by_name(table).values())
    if len(columns) != 1 or num_samples(table) != n_rows:
        raise ValueError(
            f"{name} must have one value for each of the {n_rows} rows of X. Got "
            f"{num_samples(table)} rows and {len(columns)} columns."
        )
    return columns[0]


def _find_levels_by_name(table):
    """Return the levels of each covariate of a table, a dict by name; None for numbers.

    Raise ValueError for a category that has only one level.
    """
    columns = _get_columns_by_name(table)
    levels_by_name = {name: _find_levels(name, column) for name, column in columns.items()}
    for name, levels in levels_by_name.items():
        if levels is not None and len(levels) == 1:
            raise _make_constant_covariate_error(name, levels[0])
    return levels_by_name


def _find_levels(name, column):
    """Return the levels of a category that occur in a column, in order; None for numbers."""
    if column.kind in (None, "date"):
        raise ValueError(_describe_type(name, column))
    if column.kind != "category":
        return None
    values = column.to_objects()
    _require_no_missing_values(name, [value is None for value in values])
    present_levels = set(values)
    if column.categories is not None:
        return [level for level in column.categories if level in present_levels]
    # Values of different types cannot be compared, so that they are sorted by type first.
    return sorted(present_levels, key=lambda value: (str(type(value)), value))


def _describe_type(name, column):
    """Return the fault and the remedy of a covariate that is neither a number nor a category."""
    return (
        f"The values of covariate {name!r} are of type {column.type}, which is neither a number "
        "nor a category. Convert dates to numbers, such as days since the first date. For months "
        "as groups, pass dates.dt.strftime('%Y-%m')."
    )


def _encode_column(name, column, levels):
    """Return the columns of the design for one covariate, whose values are in ``column``.

    Numbers have one column (n, 1). A category has indicators (n, number of levels - 1) of all
    ``levels`` but the first. ``levels`` is None for numbers. Raise ValueError for values that are
    missing, infinite, or not among the levels.
    """
    if levels is None:
        try:
            numbers = np.asarray(column.to_numbers(), np.float64)
        except ValueError as error:
            non_numbers = (v for v in column.to_objects() if not isinstance(v, Real | None))
            raise ValueError(
                f"Covariate {name!r} was a number in the fit, but has the value "
                f"{next(non_numbers)!r} here. Pass numbers."
            ) from error
        _require_no_missing_values(name, np.isnan(numbers))
        if np.isinf(numbers).any():
            raise ValueError(
                f"Covariate {name!r} has infinite values. Replace them, or leave these rows out, "
                "also out of X."
            )
        return numbers[:, None]
    values = column.to_objects()
    _require_no_missing_values(name, [value is None for value in values])
    _require_known_levels(name, values, levels)
    indicators = [[value == level for value in values] for level in levels[1:]]
    return np.array(indicators, np.float64).reshape(len(levels) - 1, len(values)).T


def _require_known_levels(name, values, levels):
    """Raise ValueError for values of a covariate that are not among its levels."""
    unknown = [value for value in values if value not in levels]
    if unknown:
        raise ValueError(
            f"Covariate {name!r} has the level {unknown[0]!r} here, whose effect is not known, "
            "because no row of the fit has it. The most similar levels of the fit are "
            f"{show_similar(unknown[0], levels)}. Pass one of them."
        )


def _make_design_by_formula(table, formula):
    """Return the :class:`Design` that formulaic makes of a table by a formula.

    The function ``encode`` of the design uses the knots of splines and the levels of categories of
    this table for other tables, too.
    """
    if not is_frame(table):
        raise ValueError(
            "A formula needs covariates in a data frame, because it refers to their columns by "
            "name. Got an array."
        )
    columns = _get_columns_by_name(table)
    parsed_formula = _parse_formula(formula, columns)
    # The package is installed, because `_parse_formula` has used it.
    from formulaic.errors import DataMismatchWarning, FormulaicError

    def make_model_matrix(rows, rule=parsed_formula):
        """Return the model matrix of rows by ``rule``, a formula or a fitted specification."""
        rows = _as_table(rows)
        for name, values in _find_columns_in_formula(rows, formula):
            _require_no_missing_values(name, [value is None for value in values])
        with warnings.catch_warnings():
            warnings.simplefilter("error", DataMismatchWarning)
            try:
                return rule.get_model_matrix(_convert_for_formula(rows), na_action="raise")
            except (FormulaicError, DataMismatchWarning, TypeError, ValueError) as error:
                fault = _explain_outside(error, rows, real_columns) or _explain_formula_error(
                    error, formula, columns
                )
                raise ValueError(f"The formula {formula!r} cannot be evaluated: {fault}") from error

    covariates = dict(_find_columns_in_formula(table, formula))
    for name, values in covariates.items():
        if len(set(values)) == 1:
            raise _make_constant_covariate_error(name, values[0])
    real_columns = _select_real_columns(table, covariates)
    model_matrix = make_model_matrix(table)
    matrix = np.asarray(model_matrix, np.float64)
    names = list(map(str, model_matrix.columns))
    if not names:
        raise ValueError(f"The formula {formula!r} has no terms. Pass '1' for the mean shares.")
    _require_finite(matrix, names)
    # The specification has the knots of splines and the levels of categories of the table.
    specification = model_matrix.model_spec

    levels = {name: list(dict.fromkeys(values)) for name, values in covariates.items()}

    def encode_new_rows(rows):
        """Return the design matrix of new rows, encoded in the same way as the table."""
        for name, values in _find_columns_in_formula(_as_table(rows), formula):
            as_category = re.search(rf"\bC\(\s*{re.escape(name)}\b", formula)
            if name in levels and (as_category or columns[name].kind == "category"):
                _require_known_levels(name, values, levels[name])
        return _require_finite(
            np.asarray(make_model_matrix(rows, specification), np.float64), names
        )

    return Design(
        names, matrix, encode_new_rows, [*covariates], _find_reference_terms(names, levels)
    )


def _require_finite(matrix, names):
    """Return the design matrix of a formula; raise ValueError if a term is not finite."""
    is_finite = np.isfinite(matrix).all(axis=0)
    if not is_finite.all():
        # argmin returns the position of the first False.
        term = names[int(np.argmin(is_finite))]
        raise ValueError(
            f"The term {term!r} of the formula must be finite in all rows. Got NaN or infinity."
        )
    return matrix


def _parse_formula(formula, columns):
    """Return a formula of text as a formula of formulaic.

    ``columns`` are the columns of the covariates by name. Raise ImportError without formulaic, and
    ValueError if the text is not the right-hand side of a formula.
    """
    formulaic = require_package(
        "formulaic", 'A formula needs the package formulaic: pip install "skvt[formulas]"'
    )
    from formulaic.errors import FormulaicError

    try:
        parsed_formula = formulaic.Formula(formula)
    except (FormulaicError, SyntaxError) as error:
        # formulaic marks the fault with codes that colour the text of a terminal.
        fault = re.sub(r"\x1b\[[0-9;]*m", "", _explain_formula_error(error, formula, columns))
        raise ValueError(f"{formula!r} is not a formula: {fault}") from error
    # A formula without a left-hand side has no attribute "lhs".
    if hasattr(parsed_formula, "lhs"):
        raise ValueError(
            "The formula must have no left-hand side, because the shares of X are the response. "
            f"Got {formula!r}."
        )
    return parsed_formula


def _explain_outside(error, rows, real_columns):
    """Return the fault and the remedy if a spline has no values outside its knots, else None.

    ``real_columns`` are the covariates of the formula that hold real numbers in the data, by name.
    """
    outside = _describe_outside(rows, _find_ranges(real_columns))
    if not outside or "extend beyond upper and/or lower bounds" not in str(error):
        return None
    return (
        f"a spline ends where the data end: {outside}. Predict within the range of the data, or "
        "keep the value at its ends, as bs(year, df=5, extrapolation='clip') does."
    )


def _explain_formula_error(error, formula, columns):
    """Return the fault of a formula that formulaic cannot evaluate, and the remedy.

    ``columns`` are the columns of the covariates by name.
    """
    unknown_name = re.search(r"NameError: (?:name )?['`](.+?)['`] is not", str(error))
    # In "as.factor(party)", "as" is a word of Python.
    function_call = re.search(r"\b(as\.factor)\(\s*(\w*)", formula)
    if unknown_name:
        name = unknown_name[1]
        if name in columns:
            return f"the covariate {name!r} is missing in these rows. Add it, or rename a column."
        function_call = re.search(rf"(?<![\w.])({re.escape(name)})\(\s*(\w*)", formula)
        if not function_call:
            similar = show_similar(name, columns)
            return f"{name!r} is not a column of the covariates. The most similar are {similar}."
    if function_call:
        function, argument = function_call.groups()
        return (
            f"formulaic has no function {function!r}. For a curve, as s({argument}) of R, write "
            f"bs({argument}, df=5), and for a category C({argument})."
        )
    for name, column in columns.items():
        if column.kind in (None, "date") and _occurs(name, formula):
            return _describe_type(name, column)
        is_text = column.kind == "category" and _occurs(name, formula)
        if is_text and re.search("TypeError|could not convert string", str(error)):
            value = column.to_objects()[0]
            return f"{name!r} is a category, with values such as {value!r}. A curve needs numbers."
    is_warning = isinstance(error, Warning)
    fault = "some values are not among the levels of a category." if is_warning else str(error)
    if "levels" not in fault:
        return fault
    quoted = re.search("'(.+?)'", str(error))
    for name, column in columns.items():
        if column.kind == "category" and name in formula:
            levels = show_similar(quoted[1] if quoted else "", dict.fromkeys(column.to_objects()))
            fault += f" The levels of {name!r} are {levels}."
    return fault


def _find_reference_terms(names, levels_by_name):
    """Return the names of the indicators that treatment coding leaves out, one for each category.

    ``names`` are the names of the columns of the design. ``levels_by_name`` has the levels of each
    covariate. Under treatment coding, all levels but one have an indicator in the design, and the
    coefficient of the other level is 0 by definition. No level is left out if a formula codes a
    category in another way, or has it only in interactions.
    """
    references, names = [], set(names)
    for name, levels in levels_by_name.items():
        # A formula may say that a covariate is categorical, as in "C(party)".
        for term in (name, f"C({name})"):
            indicators = [f"{term}[T.{level}]" for level in levels]
            absent_indicators = [indicator for indicator in indicators if indicator not in names]
            if len(absent_indicators) == 1 < len(indicators):
                references += absent_indicators
    return references


def _convert_for_formula(rows):
    """Return rows as a data frame of pandas whose columns formulaic reads correctly.

    Numbers that are stored as objects, such as ``decimal.Decimal``, become floats. Categories lose
    the levels that do not occur.
    """
    # A shallow copy, because the user's frame must not change.
    frame = nw.from_native(rows).to_pandas().copy(deep=False)
    for name, column in zip(frame.columns, list_columns(rows), strict=True):
        if column.kind == "real" and frame[name].dtype.kind == "O":
            frame[name] = column.to_numbers()
        elif frame[name].dtype == "category":
            frame[name] = frame[name].cat.remove_unused_categories()
    return frame


def _find_columns_in_formula(table, formula):
    """Yield name and values of each column of the table that occurs in a formula."""
    for name, column in _get_columns_by_name(table).items():
        if _occurs(name, formula):
            yield name, column.to_objects()


def _occurs(name, formula):
    """Return whether a name occurs in a formula, and not only as a part of a longer name."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", formula) is not None


def _make_constant_covariate_error(name, value):
    """Return the error for a covariate that is constant."""
    return ValueError(
        f"Covariate {name!r} is {value} in all rows that are used, so that its effect cannot be "
        "estimated. Leave it out."
    )


def _require_no_missing_values(name, is_missing):
    """Raise ValueError if values of a covariate are missing; ``is_missing`` is a mask (n,)."""
    rows = np.flatnonzero(is_missing)
    if rows.size:
        raise ValueError(
            f"{name!r} has {rows.size} missing values, the first in row {rows[0]}. Leave these "
            "rows out, also out of X, or fill in the values; for a category, 'missing' may be a "
            "level."
        )


def require_full_rank(matrix, names):
    """Raise ValueError if a column is constant or a linear combination of the preceding columns.

    ``matrix`` is the design (n, P), and ``names`` are the names of its columns.
    """
    # Orthonormal basis of the span of the preceding columns.
    basis = np.empty((matrix.shape[0], 0))
    for j, name in enumerate(names):
        column = matrix[:, j]
        residual = column - basis @ (basis.T @ column)
        # A second projection removes rounding errors of the first.
        residual -= basis @ (basis.T @ residual)
        distance = np.linalg.norm(residual)
        if distance > _COLLINEARITY_TOLERANCE * np.linalg.norm(column):
            basis = np.column_stack([basis, residual / distance])
            continue
        if np.ptp(column) == 0.0:
            raise _make_constant_covariate_error(name, f"{column[0]:g}")
        # Name the columns whose contributions to the combination are more than rounding errors.
        # Columns of length 1 have equal units, so that `lstsq` leaves none of them out as small.
        unit_columns = matrix[:, :j] / np.linalg.norm(matrix[:, :j], axis=0)
        contributions = abs(np.linalg.lstsq(unit_columns, column, rcond=None)[0])
        contributes = contributions > _COLLINEARITY_TOLERANCE * contributions.max()
        terms = [names[i] for i in np.flatnonzero(contributes)]
        # The columns of a cubic regression spline of formulaic add up to the intercept.
        is_spline = re.match(r"c[rsc]\(", name)
        remedy = "Write constraints='center' in it" if is_spline else "Leave one of them out"
        raise ValueError(
            f"The term {name!r} is collinear: it is a linear combination of {', '.join(terms)}. "
            f"{remedy}."
        )
