"""Temperature policies: constant, annealed, learned for all rows, learned row by row."""

from collections.abc import Callable

from skvt.contracts import FitPlan, RunningPolicy, TemperaturePolicy
from skvt.temperature._local import LocalTempering
from skvt.temperature._scheduled import ConstantTemperature, GeometricAnnealing, LinearAnnealing
from skvt.temperature._variational import VariationalTempering

# Users import the class from here, and error messages name this module.
TemperaturePolicy.__module__ = __name__

# Policies with default parameters, by their names in estimators' ``temperature=``.
POLICIES: dict[str, Callable[[], TemperaturePolicy]] = {
    "annealed": LinearAnnealing,
    "variational": VariationalTempering,
    "local": LocalTempering,
}

__all__ = [
    "POLICIES", "ConstantTemperature", "FitPlan", "GeometricAnnealing", "LinearAnnealing",
    "LocalTempering", "RunningPolicy", "TemperaturePolicy", "VariationalTempering",
]  # fmt: skip
