"""Annealing: a temperature that falls to 1 by a schedule [VT16 sec. 2.2]."""

from skvt.temperature._base import RunningPolicy, TemperaturePolicy


class _Scheduled(RunningPolicy):
    """Follows ``temperature_at(progress)``, progress in [0, 1] over ``n_passes``."""

    def __init__(self, temperature_at, n_passes):
        self._temperature_at = temperature_at
        self._n_passes = n_passes
        self.advance(0.0, 0.0)

    def advance(self, passes, step):
        # The middle of the step: neither the first step's nor the last one's temperature is lost.
        progress = (passes + 0.5 * step) / self._n_passes if self._n_passes > 0.0 else 1.0
        self.settled = progress >= 1.0
        self.mean_inv_temp = 1.0 / self._temperature_at(min(1.0, progress))


class _Annealing(TemperaturePolicy):
    def __init__(self, initial_temperature=1.5, n_passes=2.0):
        self.initial_temperature = initial_temperature
        self.n_passes = n_passes

    def start(self, plan):
        """The running policy of one fit."""
        self._require("initial_temperature", 1.0)
        self._require("n_passes", 0.0)
        # A fit always ends at T = 1: at least the last of its passes is kept for that.
        n_passes = min(self.n_passes, max(0.0, plan.n_passes - 1.0))
        return _Scheduled(self._temperature_at, n_passes)


class LinearAnnealing(_Annealing):
    """Temperature falls linearly from ``initial_temperature`` to 1 [VT16 sec. 4].

    Parameters
    ----------
    initial_temperature : float, default=1.5
        Temperature at the start, at least 1.
    n_passes : float, default=2.0
        Passes over the data until T = 1. A fit with ``max_iter`` passes is at T = 1 in the last one
        at the latest.
    """

    def _temperature_at(self, progress):
        return self.initial_temperature + (1.0 - self.initial_temperature) * progress


class GeometricAnnealing(_Annealing):
    """Temperature falls by a constant factor per pass from ``initial_temperature`` to 1.

    Parameters
    ----------
    initial_temperature : float, default=1.5
        Temperature at the start, at least 1.
    n_passes : float, default=2.0
        Passes over the data until T = 1, as in :class:`LinearAnnealing`.
    """

    def _temperature_at(self, progress):
        return self.initial_temperature ** (1.0 - progress)
