"""Variational tempering: the temperature as a latent variable of the model [VT16 sec. 2.3].

q(y) = Mult(r) over a ladder of temperatures 1 = T_1 < ... < T_M, and everything else uses
E_q[1 / T_y]. Per unit of data (a token), with e the energy of the data and c = log C,

    r_m ~ exp(W (e / T_m - c(T_m))),    W units in all.                       [VT16 eq. 9]

Three things differ from the paper, each because the update as it stands there stays on the hottest
temperature or falls to 1 at once:

- The energy has the assignments summed out, ``log sum_k exp(E[log theta_k] + E[log beta_kw])``;
  E[log p(w, z | .)] never cools.
- Its zero is calibrated. log C(T) under the priors is not comparable with an energy under a
  posterior, so that a pilot of plain inference (a pass at most) says which energy e_ref counts as
  T = 1: the exponent is ``(e - e_ref + c'(1)) / T - c(T)``.
- y is a global variable and has a slow step of its own: e is a running mean over a quarter of the
  fit's passes, begun at the energy of the random start.
"""

import numpy as np
from scipy.special import entr, softmax

from skvt.temperature._base import RunningPolicy, TemperaturePolicy

# A stream's energies are averaged over so many minibatches.
STREAM_STEPS = 64
# As good as 1: the ladder's softmax approaches 1 without reaching it.
NEARLY_ONE = 1e-3


def _kept_for_the_end(n_passes):
    """Passes at T = 1 whatever the energies say: a quarter, at least one (of one: half)."""
    return max(0.25 * n_passes, min(1.0, 0.5 * n_passes)) if np.isfinite(n_passes) else 0.0


class _Ladder:
    """Inverse temperatures 1 .. 1/T_max, evenly spaced in log T, and c on them."""

    def __init__(self, model, n_temperatures, max_temperature):
        self.inv_temps = max_temperature ** -np.linspace(0.0, 1.0, n_temperatures)
        self.log_partition, slope = model.tempered_log_partition(self.inv_temps)
        self.slope_at_one = slope[0]

    def weights(self, gain, units):
        """r of [VT16 eq. 9] for energies ``gain = e - e_ref`` per unit, (..., M)."""
        gain, units = np.asarray(gain)[..., None], np.asarray(units)[..., None]
        exponent = (gain + self.slope_at_one) * self.inv_temps - self.log_partition
        return softmax(units * exponent, axis=-1)  # [VT16 eq. 9]

    def mean_inv_temp(self, gain, units):
        """E_q[1 / T_y], one for each gain."""
        return self.weights(gain, units) @ self.inv_temps

    def bound_terms(self, gain, units):
        """E[log p(y)] - E[log q(y)] - E[log C(T_y)], one for each gain [VT16 eq. 5]."""
        r = self.weights(gain, units)
        entropy = entr(r).sum(axis=-1) - np.log(self.inv_temps.size)
        return entropy - np.asarray(units) * (r @ self.log_partition)


class _Learned(RunningPolicy):
    wants_marginal = True

    def __init__(self, ladder, reference, units, step, replication, last_pass):
        self._ladder, self._reference = ladder, reference
        self._units, self._step, self._last_pass = units, step, last_pass
        self._energy = None
        self.mean_inv_temp = ladder.inv_temps[-1]
        self.replication, self.settled = replication, False

    def advance(self, passes, step, n_steps):
        if not self.settled and passes >= self._last_pass - 1e-9:
            self._finish()

    def observe(self, result, batch):
        """Move the running mean of the energy, then q(y)."""
        weights = np.asarray(batch.weights, np.float64)
        length = float(weights @ batch.lengths)
        if length == 0.0 or self.settled:
            return
        energy = float(weights @ result.marginal_energy) / length
        if self._energy is None:
            self._energy = energy
        self._energy += self._step * (energy - self._energy)
        gain = self._energy - self._reference
        self.mean_inv_temp = float(self._ladder.mean_inv_temp(gain, self._units))
        if self.mean_inv_temp > 1.0 - NEARLY_ONE:
            self._finish()

    def bound_terms(self, total):
        """The terms of y in nats; none before the first and after the last observation."""
        if self.settled or self._energy is None:
            return 0.0
        return float(self._ladder.bound_terms(self._energy - self._reference, self._units))

    def _finish(self):
        """At T = 1 for good: a fit ends in the model itself."""
        self.mean_inv_temp, self.replication = 1.0, 1.0
        self.settled, self.wants_marginal = True, False


class VariationalTempering(TemperaturePolicy):
    """Learn the temperature of all data from the data.

    Parameters
    ----------
    n_temperatures : int, default=100
        Temperatures of the ladder, exponentially spaced between 1 and ``max_temperature``.
    max_temperature : float, default=1.5
        Hottest of them, at which the fit starts. (The paper's 10 makes all topics alike.)
    memory : float, optional
        Passes over which energies are averaged: the speed at which y moves. None is a quarter of
        the fit's passes, and in ``partial_fit`` 64 minibatches.
    replication : float, default=10.0
        As in :class:`LinearAnnealing`, while T > 1.
    """

    def __init__(self, n_temperatures=100, max_temperature=1.5, memory=None, replication=10.0):
        self.n_temperatures = n_temperatures
        self.max_temperature = max_temperature
        self.memory = memory
        self.replication = replication

    def check(self, plan):
        """Raise ValueError for illegal parameters and for models without log C(T)."""
        self._require("n_temperatures", 2, integral=True)
        self._require("max_temperature", 1.0, low_open=True)
        self._require("replication", 1.0)
        if self.memory is not None:
            self._require("memory", 0.0, low_open=True)
        if not hasattr(plan.model, "tempered_log_partition"):
            raise ValueError(
                f"{type(self).__name__} needs the tempered log partition function of the model, "
                f"which {type(plan.model).__name__} does not have; use LinearAnnealing() instead."
            )

    def start(self, plan):
        """The running policy of one fit."""
        ladder = _Ladder(plan.model, self.n_temperatures, self.max_temperature)
        return _Learned(
            ladder,
            plan.pilot(self.replication)[0],
            plan.n_units,
            self._step(plan),
            self.replication,
            plan.n_passes - _kept_for_the_end(plan.n_passes),
        )

    def _step(self, plan):
        """Step size of the running mean of the energy."""
        if self.memory is None and not np.isfinite(plan.n_passes):
            return 1.0 / STREAM_STEPS
        memory = 0.25 * plan.n_passes if self.memory is None else self.memory
        return min(1.0, 1.0 / (memory * plan.batches_per_pass))
