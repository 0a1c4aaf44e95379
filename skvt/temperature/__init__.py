"""Temperature policies: constant, annealed, learned for all rows, learned row by row."""

from collections.abc import Callable

from skvt.contracts import FitPlan, RunningPolicy, TemperaturePolicy
from skvt.temperature._local import LocalTempering
from skvt.temperature._scheduled import ConstantTemperature, GeometricAnnealing, LinearAnnealing
from skvt.temperature._variational import VariationalTempering

# Users import the class from this module, and error messages should name it.
TemperaturePolicy.__module__ = __name__

# Policies by the strings that the parameter ``temperature`` of estimators accepts.
POLICIES: dict[str, Callable[[], TemperaturePolicy]] = {
    "annealed": LinearAnnealing,
    "variational": VariationalTempering,
    "local": LocalTempering,
}

__all__ = [
    "POLICIES", "ConstantTemperature", "FitPlan", "GeometricAnnealing", "LinearAnnealing",
    "LocalTempering", "RunningPolicy", "TemperaturePolicy", "VariationalTempering",
]  # fmt: skip
