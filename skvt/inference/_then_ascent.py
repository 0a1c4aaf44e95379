"""One engine first, then coordinate ascent of the mean-field bound."""

from skvt.inference._coordinate import CoordinateAscent


class ThenCoordinateAscent:
    """An engine for so many passes; after them coordinate ascent, with mean-field local steps.

    What a structured engine leaves behind is a place to start from: it has no bound, and noise
    keeps superfluous components alive. For models whose priors are given.

    Parameters
    ----------
    engine : Engine
    n_passes : int
        Passes that it makes.
    """

    exact = False

    def __init__(self, engine, n_passes):
        self._engine, self._n_passes, self._ascent = engine, n_passes, CoordinateAscent()
        self._now = engine

    @property
    def monotone(self):
        """Whether the bound never fell in the last pass, by the engine that made it."""
        return self._now.monotone

    @property
    def bounds(self):
        """Whether the last pass gave a bound."""
        return self._now.bounds

    @property
    def may_stop(self):
        """Whether convergence may be judged: not while the first engine runs."""
        return self._now is self._ascent

    def rate(self, step):
        """Step size of the last pass."""
        return self._now.rate(step)

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass by the engine whose turn it is; ``state`` moves on."""
        self._now = self._engine if self._n_passes > 0 else self._ascent
        self._n_passes -= 1
        if self._now is self._engine:
            return self._engine.run_pass(model, data, state, policy, workers, rng)
        mean_field = model.mean_field()
        totals, divergence, _ = self._ascent.run_pass(mean_field, data, state, policy, workers, rng)
        return totals, divergence, model
