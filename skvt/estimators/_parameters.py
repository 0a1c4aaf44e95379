"""Parameters that several estimators have: the values that are legal."""

from numbers import Integral, Real

from skvt.contracts import TemperaturePolicy
from skvt.sklearn_private import Interval, StrOptions
from skvt.temperature import POLICIES

NATURAL = Interval(Integral, 0, None, closed="left")
AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
FRACTION = Interval(Real, 0, 1, closed="both")
AUTO = StrOptions({"auto"})

COMMON_CONSTRAINTS = {
    "n_components": [AT_LEAST_ONE],
    "init_params": [StrOptions({"k-means++", "random", "random_from_data"})],
    "means_init": [None, "array-like"],
    "labels_init": [None, "array-like"],
    "components_init": [None, "array-like"],
    "moves": [tuple, list],
    "learning_method": [StrOptions({"batch", "online"})],
    "batch_size": [AT_LEAST_ONE],
    "n_parallel_batches": [None, AT_LEAST_ONE],
    "temperature": [None, StrOptions(set(POLICIES)), TemperaturePolicy],
    "learning_decay": [FRACTION],
    "learning_offset": [Interval(Real, 1.0, None, closed="left")],
    "total_samples": [None, POSITIVE],
    "mean_change_tol": [NOT_NEGATIVE],
    "max_iter": [AT_LEAST_ONE],
    "tol": [NOT_NEGATIVE],
    "evaluate_every": [Interval(Integral, None, None, closed="neither")],
    "n_init": [AT_LEAST_ONE],
    "warm_start": ["boolean"],
    "n_jobs": [None, Integral],
    "verbose": ["verbose"],
    "verbose_interval": [AT_LEAST_ONE],
    "random_state": ["random_state"],
}

# Of estimators with memoized inference.
MEMOIZED_CONSTRAINTS = COMMON_CONSTRAINTS | {
    "max_components": [AT_LEAST_ONE],
    "learning_method": [StrOptions({"memoized", "online", "batch"})],
    "n_batches": [None, AT_LEAST_ONE],
    "batch_size": [None, AT_LEAST_ONE],
    "weight_concentration_prior": [None, AUTO, POSITIVE],
    "weight_concentration_prior_type": [
        StrOptions({"dirichlet_process", "dirichlet_distribution"})
    ],
}
