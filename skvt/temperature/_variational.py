"""Variational tempering: the temperature as a latent variable of the model [VT16 sec. 2.3].

The latent variable y chooses a temperature of a *ladder* 1 = T_1 < ... < T_M. Its distribution is
q(y) = Mult(r), and all other updates use the expectation E_q[1 / T_y]. Let C(T) be the normalising
constant of the tempered model, and c = log C per unit of data, such as a token. Let W be the number
of units, and e their energy per unit, a log probability in nats. Then r_m is proportional to

    exp(W (e / T_m - c(T_m))).                                                [VT16 eq. 9]

This module differs from the paper in four points. The reason for the first three is that with the
update of the paper, the temperature stays at its highest value or falls to 1 at once.

- The assignments are summed out of the energy. For a token of word w in LDA, the energy is
  ``log sum_k exp(E[log theta_k] + E[log beta_kw])``. With E[log p(w, z | .)] in its place, the
  temperature never falls.
- The zero of the energy is calibrated, because log C(T) under the priors is not comparable with an
  energy under a posterior. A *pilot*, a run of plain inference of at most a single pass before the
  fit, determines the energy e_ref that corresponds to T = 1. The exponent per unit is
  ``(e - e_ref + c'(1)) / T - c(T)``. Its derivative by 1 / T at T = 1 is e - e_ref, because of the
  term c'(1). Energies above e_ref therefore lead to T = 1.
- q(y) changes slowly, by a step for each global update: e is a running mean over a share of the
  fit's passes, which begins with the energy at the random start.
- A fit ends at T = 1, which it reaches without a jump: the temperatures of the ladder are
  min(T_m, ceiling), and the *ceiling* falls linearly to 1 over three quarters of the fit's passes,
  as in :class:`~skvt.temperature.LinearAnnealing`. The energies can only lower the temperature
  sooner. A stream has no end and no ceiling.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, softmax

from skvt.contracts import (
    Batch,
    Capability,
    Energies,
    FitPlan,
    Requirement,
    RunningPolicy,
    TemperaturePolicy,
    check_requirements,
)
from skvt.files import PRIOR, in_files
from skvt.temperature._scheduled import SHARE_OF_PASSES
from skvt.ties import exceeds
from skvt.typing import Array

# Number of minibatches over which the energies of a stream are averaged.
STREAM_STEPS = 32
# T is set to 1 once E[1 / T] differs from 1 by less than this number, because an average over the
# ladder never reaches 1.
TOLERANCE_AT_ONE = 1e-3


@in_files("temperature.Ladder")
@dataclass(eq=False)
class _Ladder:
    """The M temperatures, evenly spaced in log T from 1 to T_max, and limited by the ceiling."""

    # (M,): inverse temperatures 1 / T_m in descending order, each at least 1 / ceiling.
    inv_temps: Annotated[Array, "n", PRIOR]
    # (M,): c(T_m) in nats per unit.
    log_partition: Annotated[Array, "n"]
    # c'(1), the derivative of c by 1 / T at T = 1.
    slope_at_one: float
    # ``inv_temps`` and ``log_partition`` without a ceiling, in ascending order of 1 / T.
    _full: tuple[Array, ...] = field(init=False)

    def validate(self, d: int, k: int) -> bool:
        """Return whether a ladder that was read from a file has legal shapes and values."""
        full_inv_temps, full_log_partition = self._full
        return (
            full_inv_temps.shape == full_log_partition.shape == self.inv_temps.shape
            and full_inv_temps[-1] == 1.0
            and self.inv_temps.max() <= 1.0
            and bool(np.all(np.diff(full_inv_temps) > 0.0) and full_inv_temps[0] > 0.0)
        )

    def __post_init__(self) -> None:
        self._full = self.inv_temps[::-1], self.log_partition[::-1]

    def set_ceiling(self, share: float) -> None:
        """Set the ceiling of the temperatures to ``1 + share * (T_max - 1)``."""
        full_inv_temps, full_log_partition = self._full
        ceiling = 1.0 + share * (1.0 / full_inv_temps[0] - 1.0)
        self.inv_temps = np.maximum(full_inv_temps[::-1], 1.0 / ceiling)
        self.log_partition = np.interp(self.inv_temps, full_inv_temps, full_log_partition)

    def compute_probabilities(self, gain: ArrayLike, units: ArrayLike) -> Array:
        """Return r, the probabilities (..., M) of the temperatures [VT16 eq. 9].

        ``gain`` (...) is ``e - e_ref`` in nats per unit, and ``units`` (...) is W.
        """
        exponent = (np.asarray(gain)[..., None] + self.slope_at_one) * self.inv_temps
        exponent -= self.log_partition
        return softmax(np.asarray(units)[..., None] * exponent, axis=-1)  # [VT16 eq. 9]

    def bound_terms(self, r: Array, units: ArrayLike) -> Array:
        """Return E[log p(y)] - E[log q(y)] - E[log C(T_y)] in nats for each r [VT16 eq. 5].

        r has the shape (..., M), ``units`` and the result have the shape (...).
        """
        # p(y) is uniform over the ladder.
        negative_divergence = entr(r).sum(axis=-1) - np.log(self.inv_temps.size)
        return negative_divergence - np.asarray(units) * (r @ self.log_partition)


@in_files("temperature.Learned")
@dataclass(eq=False)
class Learned(RunningPolicy):
    """Running policy that learns the same temperature for all data."""

    _ladder: _Ladder
    # e_ref in nats per unit.
    _reference: float
    # W, the number of units of data.
    _units: float
    # Number of passes that the running mean of energies remembers; None for a stream.
    _memory: float | None
    # Number of passes until the ceiling is 1; infinite for a stream.
    _hot_passes: float
    # Running mean e in nats per unit; None before the first step.
    _energy: float | None = None
    # Sums of the energies in nats, and of the units, of the rows that the present step has visited.
    # `observe` adds to both; `advance` reads both and sets them to 0.
    _seen_energy: float = 0.0
    _seen_units: float = 0.0
    # Share of a pass that the present step makes.
    _seen_share: float = 0.0
    # q(y), which is at the highest temperature until energies are known.
    _r: Array = field(init=False)
    done: bool = field(default=False, kw_only=True)
    wants_marginal: bool = field(default=True, kw_only=True)

    def validate(self, d: int, k: int) -> bool:
        """Return whether a policy that was read from a file has legal numbers."""
        # ``_hot_passes`` is infinite in streams, and ``_units`` is 0 if all counts are 0.
        memory = 1.0 if self._memory is None else self._memory
        is_legal = self._hot_passes > 0.0 and 0.0 < memory < np.inf and 0.0 <= self._units < np.inf
        return super().validate(d, k) and is_legal and self._r.shape == self._ladder.inv_temps.shape

    def __post_init__(self) -> None:
        # The last temperature of the ladder is the highest.
        self._r = np.eye(self._ladder.inv_temps.size)[-1]
        self.mean_inv_temp = self._ladder.inv_temps[-1]

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Lower the ceiling, and update q(y) by the energies of the last step.

        ``passes`` is the number of passes so far, and ``step`` is the share of a pass that the next
        step makes. ``n_steps`` is not used.
        """
        # Take the progress in the middle of the step, as in annealing.
        progress = (passes + 0.5 * step) / self._hot_passes
        # The hot passes are over if ``progress`` is 1, up to rounding.
        if self.done or not exceeds(1.0, progress):
            self._finish()
            return
        self._ladder.set_ceiling(1.0 - progress)
        if self._seen_units > 0.0:
            # Move the running mean towards the energy of the last step.
            energy = self._seen_energy / self._seen_units
            last_mean = energy if self._energy is None else self._energy
            self._energy = last_mean + self._get_rate(self._seen_share) * (energy - last_mean)
        # The energies observed from here on belong to the next step.
        self._seen_energy = self._seen_units = 0.0
        self._seen_share = step
        if self._energy is not None:
            gain = self._energy - self._reference
            self._r = self._ladder.compute_probabilities(gain, self._units)
        self.mean_inv_temp = float(self._r @ self._ladder.inv_temps)
        if self.mean_inv_temp > 1.0 - TOLERANCE_AT_ONE:
            self._finish()

    def _get_rate(self, passes: float) -> float:
        """Return the step size of the running mean for a step of this number of passes.

        With a memory of m passes it is ``1 - exp(-passes / m)``.
        """
        share_of_memory = 1.0 / STREAM_STEPS if self._memory is None else passes / self._memory
        return -np.expm1(-share_of_memory)

    def observe(self, result: Energies, batch: Batch) -> None:
        """Add the energies of a batch to the sums of the step, which may have several batches."""
        if self.done:
            return
        # The energies were requested by ``wants_marginal``.
        assert result.marginal_energy is not None
        weights = np.asarray(batch.weights, np.float64)
        self._seen_energy += float(weights @ result.marginal_energy)
        self._seen_units += float(weights @ batch.lengths)

    def bound_terms(self, total: float) -> float:
        """Return the terms of y in the bound, in nats; 0 once T is 1 for the rest of the fit."""
        return 0.0 if self.done else float(self._ladder.bound_terms(self._r, self._units))

    def _finish(self) -> None:
        """Set T to 1 for the rest of the fit."""
        self.mean_inv_temp = self.replication = 1.0
        self.done = True
        self.wants_marginal = False


@in_files("temperature.VariationalTempering")
@dataclass(eq=False, repr=False)
class VariationalTempering(TemperaturePolicy):
    """Learn the temperature of all data from the data.

    Parameters
    ----------
    n_temperatures : int, default=100
        Temperatures of the ladder, exponentially spaced between 1 and ``max_temperature``.
    max_temperature : float, default=1.6
        Highest temperature of the ladder, at which the fit starts. It decreases linearly to 1 over
        three quarters of the fit's passes, counted as in :class:`LinearAnnealing`; the energies can
        only lower T sooner.
    memory : float, optional
        Number of passes over which energies are averaged: the time constant of a running mean,
        which determines how fast the temperature follows the energies. If None, a quarter of the
        fit's passes; in ``partial_fit``, 32 minibatches.
    replication : float, default=10.0
        Number of times that the global update counts each row while T > 1, as in
        :class:`LinearAnnealing`.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.temperature import VariationalTempering
    >>> X = make_topic_corpus(60, n_components=3, n_features=30, random_state=0).X
    >>> policy = VariationalTempering(max_temperature=1.4)
    >>> lda = TemperedLDA(3, temperature=policy, max_iter=8, random_state=0).fit(X)
    >>> lda.history_["temperature"][-1]
    1.0
    """

    n_temperatures: int = 100
    max_temperature: float = 1.6
    memory: float | None = None
    replication: float = 10.0

    @property
    def requires(self) -> tuple[Requirement, ...]:
        """Requirements of the policy on a model."""
        remedy = "Use LinearAnnealing() instead."
        return (Requirement(type(self).__name__, Capability.TEMPERABLE, remedy),)

    # Default of ``memory`` as a share of the fit's passes. Subclasses may have another share.
    _default_memory = 0.25

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError for illegal parameters, and for models whose log C(T) is not known."""
        self._require("n_temperatures", 2, integral=True)
        self._require("max_temperature", 1.0, low_open=True)
        self._require("replication", 1.0)
        if self.memory is not None:
            self._require("memory", 0.0, low_open=True)
        check_requirements(plan.model, self.requires)

    def start(self, plan: FitPlan) -> RunningPolicy:
        """Return the running policy, with the energy after the pilot as reference."""
        reference, _ = plan.pilot(self.replication)
        return Learned(
            self._make_ladder(plan), reference, plan.n_units, self._get_memory_in_passes(plan),
            plan.passes(SHARE_OF_PASSES), replication=self.replication,
        )  # fmt: skip

    def _make_ladder(self, plan: FitPlan) -> _Ladder:
        """Return the ladder, with the model's log C per unit at each temperature."""
        # The model is Temperable, since :meth:`check` requires it.
        model: Any = plan.model
        inv_temps = self.max_temperature ** -np.linspace(0.0, 1.0, self.n_temperatures)
        log_partition, slope = model.tempered_log_partition(inv_temps)
        return _Ladder(inv_temps, log_partition, slope[0])

    def _get_memory_in_passes(self, plan: FitPlan) -> float | None:
        """Return ``memory`` or, if it is None, the default: a share of the fit's passes.

        In a stream the default is None, because the running mean counts steps instead of passes.
        """
        if self.memory is None and np.isfinite(plan.n_passes):
            return plan.passes(self._default_memory)
        return self.memory
