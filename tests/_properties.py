"""Settings of property-based tests: few examples, and the same ones in every run."""

from hypothesis import HealthCheck, Phase, settings

quick = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    # how long an example takes says more of the machine than of the test
    suppress_health_check=[HealthCheck.too_slow],
)
# Of sequences of calls, each of which is many examples. To shorten one that has failed takes
# minutes: allow Phase.shrink where it is wanted.
sequences = settings(quick, max_examples=15, stateful_step_count=20, phases=[Phase.generate])
