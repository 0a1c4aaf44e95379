"""Reading of rows: their checks, their conversion to numbers, and the conversion back to tables."""

from skvt.readers._audit import MIN_COUNT_COLUMNS, ColumnWarning, warn_of_logarithms
from skvt.readers._columns import (
    find_declared_order,
    is_missing,
    list_column_names,
    list_columns,
    make_level_array,
)
from skvt.readers._reader import (
    BinaryReader,
    ContiguousReader,
    CountReader,
    DocumentReader,
    Reader,
    RealReader,
    warn_of_weights,
)
from skvt.readers._report import make_table_report
from skvt.readers._table_blocks import is_single_component, list_blocks
from skvt.readers._table_reader import UNKNOWN_OPTIONS, TableReader
from skvt.readers._tables import Table, TableBlock
