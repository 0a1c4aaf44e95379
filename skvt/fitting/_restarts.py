"""The starts of a fit, their outcomes, and the rule that decides which start follows.

A *start* is a fit from one set of random initial values.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from skvt.files import in_files
from skvt.fitting._fitted import Fitted
from skvt.inference import Plan, Position
from skvt.ties import exceeds


@in_files("estimators.Start")
@dataclass(frozen=True)
class Start:
    """The random numbers, kind and position of a start."""

    # Random numbers of the start.
    rng: np.random.Generator
    # A word that describes the start in printed lines; "" for a start of the model that the
    # estimator builds.
    kind: str = ""
    # Number of starts of the fit, as far as is known.
    n_starts: int = 1
    # Position in the start, such as the number of passes made.
    position: Position = field(default_factory=Position)
    # Number of records in the log of moves that are older than this fit, or than its interruption.
    # Their pass numbers already count the passes of earlier fits; later records do not.
    n_moves: int = 0


@dataclass(frozen=True)
class Launch:
    """Everything with which a start begins, or continues after an interruption."""

    # The plan, which serves only this start, because its engines keep data between passes.
    plan: Plan
    # The model, the state, the temperature policy and the history before the next pass.
    fitted: Fitted
    start: Start


@in_files("estimators.Outcomes")
@dataclass(frozen=True)
class Outcomes:
    """The outcomes of the starts that have ended."""

    # Kind of each start.
    kinds: tuple[str, ...] = ()
    # Exact bound of each start in nats.
    elbos: tuple[float, ...] = ()
    # The :class:`Fitted` of the best start, the start with the highest bound; None before a start
    # has ended.
    best: object = None
    # Whether the best start has converged.
    converged: bool = False

    def with_outcome(self, kind: str, fitted: Fitted, converged: bool) -> "Outcomes":
        """Return the outcomes with the outcome of a further start.

        The further start becomes the best start if its bound is higher by more than rounding
        errors.
        """
        outcomes = replace(self, kinds=(*self.kinds, kind), elbos=(*self.elbos, fitted.elbo))
        dtype = fitted.model.dtype
        if self.best is not None and not exceeds(fitted.elbo, self.best.elbo, dtype=dtype):
            return outcomes
        return replace(outcomes, best=fitted, converged=converged)


class Restarts(Protocol):
    """The rule that decides which start follows."""

    def next(self, outcomes: Outcomes) -> Launch | None:
        """Return the launch of the next start, given earlier outcomes; None if the fit ends.

        The :class:`~skvt.fitting._fit.Fit` calls the method before the first start and after each
        start.
        """


@dataclass(frozen=True)
class SameModel:
    """The rule that makes a start for each seed, all from the same model."""

    seeds: tuple[int, ...]
    # The `skvt.fitting._fit.Fit`, whose ``launch(seed, n_starts=...)`` begins a start.
    fit: Any

    def next(self, outcomes: Outcomes) -> Launch | None:
        """Return the launch with the next seed; None after the last seed."""
        n_ended = len(outcomes.elbos)
        if n_ended == len(self.seeds):
            return None
        return self.fit.launch(self.seeds[n_ended], n_starts=len(self.seeds))
