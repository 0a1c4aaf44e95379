"""Temperatures that follow a schedule: constant, or falling to 1 by annealing [VT16 sec. 2.2].

The public classes are *recipes*, objects of parameters that users create. The method ``start`` of a
recipe makes the *running policy* of a fit, which holds the present temperature T. The engine, that
is, the inference algorithm, calls ``advance`` of the running policy before each *step*, an update
of the global parameters from a minibatch or from all data. The *progress* of a running policy rises
from 0 to 1 while the temperature falls.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from skvt.contracts import FitPlan, RunningPolicy, TemperaturePolicy
from skvt.files import in_files
from skvt.ties import exceeds

# Number of minibatches over which a stream is annealed.
STREAM_STEPS = 64
# If the number of rows of a stream is known, T is 1 after this share of the rows at the latest.
STREAM_SHARE = 0.5
# Share of a fit's passes over which the temperature falls, unless users choose another share.
SHARE_OF_PASSES = 0.75


@in_files("temperature.ConstantTemperature")
@dataclass(eq=False, repr=False)
class ConstantTemperature(TemperaturePolicy):
    """The same temperature throughout the fit.

    Parameters
    ----------
    value : float, default=1.0
        Temperature, at least 1. Unless it is 1, the result is the posterior of the tempered model
        [VT16 eq. 2], not of the model itself.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.temperature import ConstantTemperature
    >>> X = make_topic_corpus(60, n_components=3, n_features=30, random_state=0).X
    >>> lda = TemperedLDA(3, temperature=ConstantTemperature(1.2), max_iter=3, random_state=0)
    >>> lda.fit(X).history_["temperature"]
    [1.2, 1.2, 1.2]
    """

    value: float = 1.0

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError unless ``value`` is at least 1."""
        self._require("value", 1.0)

    def start(self, plan: FitPlan) -> RunningPolicy:
        """Return a running policy that stays at the temperature ``value``."""
        running_policy = RunningPolicy()
        running_policy.mean_inv_temp = 1.0 / self.value
        return running_policy


@in_files("temperature.Scheduled")
@dataclass(eq=False)
class _Scheduled(RunningPolicy):
    """Running policy that follows a schedule; progress is 1 after ``_length`` passes or steps.

    If the number of rows of a stream is known, progress is 1 after ``STREAM_SHARE`` of the rows at
    the latest. A short stream enters the schedule late, and then follows it as a long stream does:
    cooling from the initial temperature in a few steps would cost more than it gains.
    """

    _recipe: "_Annealing"
    # Number of passes, or of steps if ``_in_steps``, after which T is 1.
    _length: float
    _in_steps: bool
    # Whether the number of rows of the stream is known, which then counts as a pass.
    _knows_total: bool = False
    # Largest progress so far.
    _progress: float = 0.0

    def validate(self, d: int, k: int) -> bool:
        """Return whether a policy that was read from a file has legal numbers.

        Illegal parameters of the recipe raise ValueError.
        """
        self._recipe.check(None)  # type: ignore[arg-type]  # reads no plan
        return super().validate(d, k) and self._length > 0.0 and 0.0 <= self._progress <= 1.0

    def __post_init__(self) -> None:
        self.advance(0.0, 0.0, 0)

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Set the temperature of the next step, and whether T is 1 for the rest of the fit.

        ``passes`` and ``n_steps`` are the numbers of passes and steps so far, and ``step`` is the
        share of a pass that the next step makes.
        """
        # Take the progress in the middle of the step, so that the first temperature is near the
        # initial temperature and the last is near 1. Progress is 1 if ``n_done`` is the length up
        # to a rounding error, since the number of passes is a sum of weights.
        n_done = n_steps + 0.5 if self._in_steps else passes + 0.5 * step
        progress = n_done / self._length if exceeds(self._length, n_done) else 1.0
        if self._knows_total and step > 0.0:
            # Progress must be so large that it is 1 at STREAM_SHARE if each step raises it by
            # 1 / length, as in a long stream. ``n_remaining`` is the number of steps of the present
            # size from the middle of this step to STREAM_SHARE.
            n_remaining = (STREAM_SHARE - passes) / step - 0.5
            required_progress = 1.0 - max(n_remaining, 0.0) / self._length
            progress = max(progress, required_progress)
        # Progress never falls, even if a fit continues on further rows, of which it has made a
        # smaller share of passes, or if later steps of a stream are smaller.
        self._progress = progress = max(progress, self._progress)
        self.done = progress >= 1.0
        self.mean_inv_temp = 1.0 / self._recipe._compute_temperature(progress)
        self.replication = 1.0 if self.done else self._recipe.replication


@dataclass(eq=False, repr=False)
class _Annealing(TemperaturePolicy):
    """Base of annealing policies. Subclasses define the temperature as a function of progress."""

    initial_temperature: float = 1.5
    n_passes: float | None = None
    replication: float = 10.0
    share: float = SHARE_OF_PASSES

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError if a parameter is outside its range."""
        self._require("initial_temperature", 1.0)
        self._require("replication", 1.0)
        self._require("share", 0.0, 1.0)
        if self.n_passes is not None:
            self._require("n_passes", 0.0)

    def start(self, plan: FitPlan) -> RunningPolicy:
        """Return the running policy, with a copy of the recipe and the length of the schedule."""
        recipe = clone(self)
        # A stream has an infinite number of passes. Its schedule counts steps.
        if self.n_passes is None and not np.isfinite(plan.n_passes):
            return _Scheduled(recipe, STREAM_STEPS, _in_steps=True, _knows_total=plan.knows_total)
        return _Scheduled(recipe, plan.passes(self.share, self.n_passes), _in_steps=False)


@in_files("temperature.LinearAnnealing")
@dataclass(eq=False, repr=False)
class LinearAnnealing(_Annealing):
    """Temperature falls linearly from ``initial_temperature`` to 1 [VT16 sec. 4].

    Parameters
    ----------
    initial_temperature : float, default=1.5
        Temperature at the start, at least 1.
    n_passes : float, optional
        Number of passes over the data until T = 1. T is 1 at the latest in the last pass of a fit,
        or in the second half of its only pass. If None, the number is a ``share`` of the fit's
        passes; in ``partial_fit``, T is 1 after 64 minibatches. If ``total_samples`` is given, T is
        1 after half of these rows at the latest: a stream of n < 128 minibatches has only the last
        n / 2 minibatches of the schedule, and thus begins at a lower temperature.
    replication : float, default=10.0
        Number of times that the global update counts each row while T > 1. The divergence of the
        global parameters from their prior in the bound is divided by this number. 1 is the
        annealing of the paper. Once T is 1, the statistics are scaled back.
    share : float, default=0.75
        Share of the fit's passes over which the temperature falls, from 0 to 1; used if
        ``n_passes`` is None. If a fit may stop on convergence, this is a share of at most 20
        passes, so that a large ``max_iter`` does not prolong the annealing. The limit is 10 passes
        for :class:`~skvt.TemperedLDA`, 40 for :class:`~skvt.StructuredLDA` and 100 for
        :class:`~skvt.AnnealedFactorialMixture`.

    Notes
    -----
    A high temperature softens the assignments; replication sharpens the global parameters. Without
    replication, ``E[log beta]`` of uncertain early topics penalises rare words twice in every local
    step, and only few, broad topics survive.

    An initial temperature of 1.5 over most of the passes was better than plain stochastic inference
    on every corpus tried, and replication improved it as much again (``benchmarks/``). 1.25 was
    slightly better on one small corpus and 2 on another; from 3 on, topics become alike.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.temperature import LinearAnnealing
    >>> lda = TemperedLDA(10, temperature=LinearAnnealing(initial_temperature=2.0, share=0.5))
    >>> lda.set_params(temperature__share=0.9).temperature.share
    0.9
    """

    def _compute_temperature(self, progress: float) -> float:
        """Return the temperature, given the progress from 0 to 1."""
        return self.initial_temperature + (1.0 - self.initial_temperature) * progress


@in_files("temperature.GeometricAnnealing")
@dataclass(eq=False, repr=False)
class GeometricAnnealing(_Annealing):
    """Temperature falls by a constant factor per pass from ``initial_temperature`` to 1.

    Parameters
    ----------
    initial_temperature : float, default=1.5
        Temperature at the start, at least 1.
    n_passes : float, optional
        Number of passes over the data until T = 1, as in :class:`LinearAnnealing`.
    replication : float, default=10.0
        Number of times that the global update counts each row while T > 1, as in
        :class:`LinearAnnealing`.
    share : float, default=0.75
        Share of the fit's passes over which the temperature falls, as in :class:`LinearAnnealing`.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.temperature import GeometricAnnealing
    >>> lda = TemperedLDA(10, temperature=GeometricAnnealing(initial_temperature=2.0, n_passes=5))
    """

    def _compute_temperature(self, progress: float) -> float:
        """Return the temperature, given the progress from 0 to 1."""
        return self.initial_temperature ** (1.0 - progress)
