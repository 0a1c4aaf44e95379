"""Fits, streams, warm starts and interrupted fits of all estimators; parameters that they share."""

from skvt.fitting._display import html_table
from skvt.fitting._estimator import VariationalEstimator
from skvt.fitting._fitted import MoveLogMixin, of_fit, of_model
from skvt.fitting._parameters import (
    AT_LEAST_ONE,
    AUTO,
    FIXED,
    FIXED_IN_STREAMS,
    FRACTION,
    NOT_NEGATIVE,
    OFFSET,
    POSITIVE,
    MemoizedMethod,
    Temperature,
    estimator,
)
from skvt.fitting._plans import (
    check_memoized,
    check_moves,
    memoized_plan,
    most_components,
    policy_of,
    rate_of,
    rows_of_batch,
)
from skvt.fitting._restarts import SameModel
from skvt.fitting._resume import checksum
from skvt.fitting._rows import read_rows, rows_of_call
from skvt.fitting._stream import STREAM_ROWS
from skvt.fitting._twin import all_or_nothing
