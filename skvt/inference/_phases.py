"""Phases of a fit: the passes of a phase have the same engine, that is, inference algorithm.

Most fits have a single phase. :func:`make_ascent_phases` and :func:`make_polish_phase` make further
phases. T is the temperature.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from skvt.contracts import AnyEngine, RunningPolicy
from skvt.inference._coordinate import CoordinateAscent
from skvt.inference._state import State
from skvt.inference._structured import StructuredInference
from skvt.schedules import RobbinsMonro


@dataclass(frozen=True)
class Phase:
    """Successive passes of a fit that the same engine makes."""

    engine: AnyEngine
    # Number of passes before this phase.
    n_passes_before: int = 0
    # ``view(model)`` returns the model for the engine: the model of the fit, with the local steps
    # of this phase.
    view: Callable[[Any], Any] = field(default=lambda model: model)
    # ``restore(model, learned)`` returns the model with which the fit continues after a pass.
    # ``model`` is the model of the fit before the pass, and ``learned`` is the model that the
    # engine has returned.
    restore: Callable[[Any, Any], Any] = field(default=lambda model, learned: learned)
    # Temperature policy of the phase; None for the policy of the fit.
    policy: RunningPolicy | None = None
    # ``begin(state)`` is called before the first pass of the phase.
    begin: Callable[[State], None] = field(default=lambda state: None)


def make_ascent_phases(
    engine: AnyEngine, n_passes_before: int, rounds: Iterable[tuple[int, int]] = ()
) -> tuple[Phase, ...]:
    """Return the phases that follow the first passes of structured stochastic inference.

    Phases of coordinate ascent, with mean-field local steps, alternate with phases of structured
    inference. Structured inference has no bound, and the noise of its steps keeps components that
    no row needs. Coordinate ascent empties such components. The priors of the model must be fixed,
    because priors that coordinate ascent learns are discarded.

    Parameters
    ----------
    engine : Engine
        The engine of the first passes, which makes structured inference.
    n_passes_before : int
        The number of passes before coordinate ascent begins.
    rounds : iterable of (int, int)
        For each round, the number of passes of coordinate ascent, and the number of passes of
        ``engine`` after them. Coordinate ascent makes all passes after the last round.
    """
    # Coordinate ascent returns the mean-field model, which must not replace the model of the fit.
    ascent = Phase(
        CoordinateAscent(), n_passes_before, lambda model: model.mean_field(),
        lambda model, learned: model,
    )  # fmt: skip
    phases = [ascent]
    for n_ascent_passes, n_engine_passes in rounds:
        n_passes_before += n_ascent_passes
        phases.append(Phase(engine, n_passes_before))
        n_passes_before += n_engine_passes
        phases.append(replace(ascent, n_passes_before=n_passes_before))
    return tuple(phases)


def make_polish_phase(
    n_passes: int, rate: RobbinsMonro, view: Callable[[Any], Any],
    restore: Callable[[Any, Any], Any],
) -> Phase:  # fmt: skip
    """Return a phase of structured inference at T = 1, which follows ``n_passes`` passes.

    The mean-field local steps of earlier passes make the topic proportions of documents, and
    therefore topics, too sparse. The phase makes the local steps of ``view(model)`` at the mean of
    the global parameters. ``rate`` is the schedule of step sizes, which counts steps from the
    beginning of the phase. See :class:`Phase` for ``view`` and ``restore``.
    """
    engine = StructuredInference(rate, "map")

    def begin(state: State) -> None:
        """Make the schedule count from the beginning of the phase, not of the fit."""
        engine.rate = replace(rate, offset=rate.offset - state.n_full_steps)

    return Phase(engine, n_passes, view, restore, policy=RunningPolicy(), begin=begin)
