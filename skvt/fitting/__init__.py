"""Fits, streams, warm starts and interrupted fits of all estimators; parameters that they share."""

from skvt.fitting._base import STREAM_ROWS, VariationalEstimator
from skvt.fitting._fitted import MoveLogMixin, attribute_of_fit
from skvt.fitting._parameters import (
    AT_LEAST_ONE,
    AUTO,
    COMMON_CONSTRAINTS,
    FRACTION,
    MEMOIZED_CONSTRAINTS,
    NATURAL,
    NOT_NEGATIVE,
    POSITIVE,
    check_moves,
    is_annealed,
    policy_of,
)
from skvt.fitting._plans import (
    check_memoized,
    check_number_of_batches,
    memoized_plan,
    mixture_moves,
    most_components,
    rate_of,
    rows_of_batch,
)
from skvt.fitting._texts import with_shared_texts

__all__ = [
    "AT_LEAST_ONE",
    "AUTO",
    "COMMON_CONSTRAINTS",
    "FRACTION",
    "MEMOIZED_CONSTRAINTS",
    "NATURAL",
    "NOT_NEGATIVE",
    "POSITIVE",
    "STREAM_ROWS",
    "MoveLogMixin",
    "VariationalEstimator",
    "attribute_of_fit",
    "check_memoized",
    "check_moves",
    "check_number_of_batches",
    "is_annealed",
    "memoized_plan",
    "mixture_moves",
    "most_components",
    "policy_of",
    "rate_of",
    "rows_of_batch",
    "with_shared_texts",
]
