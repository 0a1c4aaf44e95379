"""Settings of property-based tests, which have few examples, the same in every run."""

from hypothesis import HealthCheck, Phase, settings

quick = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    # The time of an example depends on the machine.
    suppress_health_check=[HealthCheck.too_slow],
)
# A sequence of calls stands for many examples. To shorten a failing one takes minutes, so that
# Phase.shrink is left out.
sequences = settings(quick, max_examples=15, stateful_step_count=20, phases=[Phase.generate])
