"""What each model knows of its likelihood: the contracts, what rooms share, and a room for each."""

from skvt.models._active import n_active
from skvt.models._contracts import (
    Capability,
    Collapsible,
    Correctable,
    Drawable,
    LocalResult,
    Memoizable,
    Mergeable,
    Model,
    Outline,
    PriorAddend,
    Requirement,
    Restartable,
    RowBatch,
    RowSource,
    Temperable,
    check_requirements,
)
from skvt.models._dirichlet_correction import Gammas, corrected_statistics
from skvt.models._known_partition import choice_log_partition, noise_log_partition

__all__ = [
    "Capability",
    "Collapsible",
    "Correctable",
    "Drawable",
    "Gammas",
    "LocalResult",
    "Memoizable",
    "Mergeable",
    "Model",
    "Outline",
    "PriorAddend",
    "Requirement",
    "Restartable",
    "RowBatch",
    "RowSource",
    "Temperable",
    "check_requirements",
    "choice_log_partition",
    "corrected_statistics",
    "n_active",
    "noise_log_partition",
]
