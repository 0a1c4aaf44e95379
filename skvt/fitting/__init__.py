"""Fits, streams, warm starts and interrupted fits of all estimators; parameters that they share."""

from skvt.fitting._display import html_table
from skvt.fitting._estimator import VariationalEstimator
from skvt.fitting._fitted import MoveLogMixin, fitted_property, model_property
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
    choose_batch_size,
    choose_max_components,
    make_plan_with_moves,
    make_policy,
)
from skvt.fitting._restarts import SameModel
from skvt.fitting._resume import hash_all_rows
from skvt.fitting._rows import open_rows, read_rows
from skvt.fitting._stream import STREAM_ROWS
from skvt.fitting._twin import all_or_nothing
