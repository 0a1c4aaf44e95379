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

    knows_exact_bound = False

    def __init__(self, engine, n_passes):
        self._engine, self._n_passes, self._ascent = engine, n_passes, CoordinateAscent()
        self.requires = engine.requires

    def start(self, state, total):
        """As the first engine keeps it."""
        return self._engine.start(state, total)

    def run_pass(self, model, data, state, policy, workers, rng):
        """One pass by the engine whose turn it is; ``state`` changes in place."""
        self._n_passes -= 1
        if self._n_passes >= 0:
            result = self._engine.run_pass(model, data, state, policy, workers, rng)
            return result._replace(may_stop=False)
        mean_field = model.mean_field()
        result = self._ascent.run_pass(mean_field, data, state, policy, workers, rng)
        return result._replace(model=model)

    def finish(self, model, state):
        """As coordinate ascent ends."""
        return self._ascent.finish(model, state)
