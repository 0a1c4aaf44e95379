"""Parameters that several estimators have: legal values, and what is made of them."""

from numbers import Integral, Real

from skvt.contracts import TemperaturePolicy
from skvt.sklearn_private import Interval, StrOptions
from skvt.temperature import POLICIES, ConstantTemperature

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
    "max_components": [None, AT_LEAST_ONE],
    "learning_method": [StrOptions({"memoized", "online", "batch"})],
    "n_batches": [None, AT_LEAST_ONE],
    "batch_size": [None, AT_LEAST_ONE],
    "weight_concentration_prior": [None, AUTO, POSITIVE],
    "weight_concentration_prior_type": [
        StrOptions({"dirichlet_process", "dirichlet_distribution"})
    ],
}


def policy_of(temperature):
    """The policy that a parameter ``temperature`` means: None, a name, or a policy."""
    if temperature is None:
        return ConstantTemperature()
    return POLICIES[temperature]() if isinstance(temperature, str) else temperature


def is_annealed(temperature):
    """Whether the temperature is annealed by default or by name, not by a policy."""
    return isinstance(temperature, str) and temperature == "annealed"


def check_moves(moves, known):
    """Raise ValueError unless the ``moves`` are among those ``known``."""
    unknown = [move for move in moves if move not in known]
    if unknown:
        names = ", ".join(map(repr, known))
        raise ValueError(
            f"The 'moves' parameter must be a tuple of {names}, or () for none. Got "
            f"{unknown[0]!r} in it."
        )
