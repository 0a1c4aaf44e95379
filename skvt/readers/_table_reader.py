"""Reader of tables, whose columns may be numbers, categories, booleans or counts.

A :class:`~skvt.readers._tables.Table` describes the columns and converts rows to numbers. A *block*
is a group of columns that one component of the mixture describes. *Given* columns explain the other
columns, and have no component.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.readers._audit import warn_of_columns
from skvt.readers._columns import list_column_names, list_columns
from skvt.readers._reader import Reader
from skvt.readers._table_blocks import build_table, join_tables, scan_table
from skvt.readers._tables import Table
from skvt.readers.validation import (
    check_choice,
    is_frame,
    require_rows,
    to_canonical_csr,
    warn_of_empty_rows,
)

# Legal values of the parameter ``handle_unknown``.
UNKNOWN_OPTIONS = ("prior", "missing", "error")


@dataclass(frozen=True)
class TableReader(Reader):
    """Reader of arrays and data frames, whose columns a :class:`Table` describes."""

    # Three parameters of the estimator.
    components: Any = "auto"
    handle_unknown: str = "error"
    given: Any = None
    # Description of the columns; None before the first rows, or before the scan of all chunks.
    table: Table | None = None

    accepts_sparse = accepts_missing = needs_scan = True

    @classmethod
    def from_estimator(cls, estimator):
        """Make a reader with the parameters of an estimator, before the first rows."""
        names = "components", "handle_unknown", "given"
        return cls(type(estimator), **{name: getattr(estimator, name) for name in names})

    def fit_and_read(self, X):
        """Return the fitted reader, which reads further rows, and X as numbers.

        The attribute ``_table`` is added to the attributes of the estimator. Raise ValueError or
        TypeError if X is illegal.
        """
        if self.table is not None:
            self._require_given(X)
        X, attributes = self._numbers_or_objects(X)
        columns = list_columns(X)
        table = self.table or build_table(
            X, columns, self.components, self.handle_unknown, self.given,
            in_stream=self.in_stream,
        )  # fmt: skip
        must_refuse = self.handle_unknown == "error"
        encoder = replace(table, handle_unknown="error") if must_refuse else table
        X = encoder.encode(X, columns, is_new=self.table is None)
        if self.dtype is not None:
            X = X.astype(self.dtype, copy=False)
        # Warn of rows without values, unless a component models whether values are missing.
        if all(block.spec.missing == "ignore" for block in table.blocks):
            warn_of_empty_rows(table.select_modelled(X))
        if self.table is None:
            warn_of_columns(table.findings)
        attributes = attributes | {"_table": table}
        return replace(self, attributes=attributes, dtype=X.dtype, table=table), X

    def _require_given(self, X):
        """Raise ValueError if new rows lack given columns."""
        names = self.table.names
        given_names = [names[j] for j in self.table.given_positions]
        if is_frame(X):
            absent = [name for name in given_names if name not in list_column_names(X)]
        else:
            # An array with too few columns probably lacks the given columns.
            n_columns = np.shape(X)[1] if len(np.shape(X)) == 2 else len(names)
            absent = given_names if n_columns < len(names) else []
        if absent:
            raise ValueError(
                f"X lacks the given columns {', '.join(map(repr, absent))} of the fit, which "
                f"explain the other columns. Pass rows with all {len(names)} columns of the fit "
                "in order; values of the other columns may be missing (NaN)."
            )

    def with_parameters(self, estimator):
        """Return this reader with the estimator's ``handle_unknown``, which may become "error".

        Raises ValueError if ``handle_unknown`` has been set to an illegal value after ``fit``.
        """
        check_choice("handle_unknown", estimator.handle_unknown, UNKNOWN_OPTIONS)
        return replace(self, handle_unknown=estimator.handle_unknown)

    def restore(self, attributes, dtype):
        """Return this reader as if it had been fitted to the rows of an estimator in a file."""
        reader = super().restore(attributes, dtype)
        table = attributes["_table"]
        return replace(reader, attributes=reader.attributes | {"_table": table}, table=table)

    def scan(self, X):
        """Return the :class:`TableScan` of the rows of a chunk."""
        X, _ = self._numbers_or_objects(X)
        return scan_table(X, list_columns(X), self.components, self.handle_unknown, self.given)

    def learn_from_scans(self, scans):
        """Return the reader with the table of all rows, which has the categories of all chunks."""
        return replace(self, table=join_tables(scans))

    def _numbers_or_objects(self, X):
        """Return X as a data frame or an array of floats or objects, and the column attributes.

        The attributes are ``n_features_in_`` and ``feature_names_in_``. Raise an error for
        empty X.
        """
        X = require_rows(X, self.owner.__name__, missing=self.accepts_missing, dates=True)
        if is_frame(X):
            X, attributes = self._validate(X, {"skip_check_array": True})
            if X.shape[0] == 0 or X.shape[1] == 0:
                unit = "sample" if X.shape[0] == 0 else "feature"
                raise ValueError(
                    f"Found array with 0 {unit}(s) (shape={tuple(X.shape)}) while a minimum of 1 "
                    f"is required by {self.owner.__name__}."
                )
            return X, attributes
        requirements = {"accept_sparse": "csr", "dtype": None, "ensure_all_finite": False}
        X, attributes = self._validate(X, requirements)
        if sp.issparse(X):
            X = to_canonical_csr(X)
        kind = X.dtype.kind
        # An array of booleans becomes objects in the first rows, so that the table knows that its
        # columns are booleans.
        if kind == "b" and not sp.issparse(X) and self.dtype is None:
            return X.astype(object), attributes
        if kind in "biuf":
            has_precision = X.dtype in (np.float32, np.float64)
            return X if has_precision else X.astype(np.float64), attributes
        if sp.issparse(X):
            raise ValueError(f"Sparse X must hold numbers. Got entries of type {X.dtype}.")
        return X.astype(object), attributes
