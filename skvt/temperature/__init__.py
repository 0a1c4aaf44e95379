"""Temperature policies: constant, annealed, learned for all rows, learned row by row."""

from skvt.contracts import FitPlan, RunningPolicy, TemperaturePolicy
from skvt.temperature._local import LocalTempering
from skvt.temperature._scheduled import ConstantTemperature, GeometricAnnealing, LinearAnnealing
from skvt.temperature._variational import VariationalTempering

# Where users find it, and what error messages call it.
TemperaturePolicy.__module__ = __name__

# The names by which estimators' ``temperature=`` knows the policies, at their defaults.
POLICIES = {
    "annealed": LinearAnnealing,
    "variational": VariationalTempering,
    "local": LocalTempering,
}

__all__ = [
    "POLICIES", "ConstantTemperature", "FitPlan", "GeometricAnnealing", "LinearAnnealing",
    "LocalTempering", "RunningPolicy", "TemperaturePolicy", "VariationalTempering",
]  # fmt: skip
