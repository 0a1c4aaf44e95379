"""Shared parameters of estimators: each mixin turns its own into a collaborator. No numerics."""

from sklearn.base import DensityMixin

from skvt.temperature import POLICIES, ConstantTemperature


class TemperatureMixin:
    """``temperature``: None, a name, or an object of :mod:`skvt.temperature`."""

    @property
    def _is_annealed(self):
        """Whether the temperature is annealed by default or by name, not by a policy."""
        return isinstance(self.temperature, str) and self.temperature == "annealed"

    def _temperature_policy(self, model):
        if self.temperature is None:
            return ConstantTemperature()
        if isinstance(self.temperature, str):
            return POLICIES[self.temperature]()
        return self.temperature


class MoveLogMixin:
    """``moves`` and ``move_log_``."""

    def _check_moves(self, known):
        """Raise ValueError unless ``moves`` are among these."""
        unknown = [move for move in self.moves if move not in known]
        if unknown:
            names = ", ".join(map(repr, known))
            raise ValueError(
                f"The 'moves' parameter must be a tuple of {names}, or () for none. Got "
                f"{unknown[0]!r} in it."
            )

    @property
    def move_log_(self):
        """Proposed and accepted moves, as columns of a table."""
        log = _attribute_of_fit(self, "move_log_").state.move_log
        names = ("n_iter", "move", "proposed", "accepted", "gain", "reason")
        return {name: [getattr(record, name) for record in log] for name in names}


class PredictiveDensityMixin(DensityMixin):
    """``score`` of estimators with ``score_samples``."""

    def score(self, X, y=None):
        """Mean log posterior predictive density. Higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : ignored
            Not used.

        Returns
        -------
        float
            Nats per row.
        """
        return float(self.score_samples(X).mean())


def _attribute_of_fit(estimator, name):
    """The fitted state, or the AttributeError of an attribute that does not exist yet."""
    try:
        return vars(estimator)["_fitted"]
    except KeyError:
        raise AttributeError(
            f"{type(estimator).__name__!r} object has no attribute {name!r} before fit."
        ) from None
