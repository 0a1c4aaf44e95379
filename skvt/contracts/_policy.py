"""What a temperature policy is.

A policy as users create it (``LinearAnnealing(...)``) is a recipe: parameters with ``get_params`` /
``set_params``. ``start`` makes the running policy of one fit from it, which gives the engine
temperatures and receives energies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skvt.contracts._model import Model
from skvt.typing import Array, IndexArray

# Relative noise of the statistics in full-data inference above T = 1, times sqrt(T - 1).
JITTER = 0.05


def _no_pilot(*args: Any) -> tuple[float, Array]:
    raise RuntimeError("A plan without a pilot is for policies that learn nothing.")


@dataclass(frozen=True)
class FitPlan:
    """What a policy may know before a fit begins.

    Attributes
    ----------
    model : Model
    n_passes : float
        Maximum number of passes of this fit; infinite for a stream.
    n_rows : int
        Rows of the data, of the first chunk of a stream.
    n_units : float
        Weight of all local likelihoods: tokens of a corpus.
    pilot : callable
        ``pilot(replication)`` fits the model to at most a pass of the data without temperature and
        returns the untempered marginal energy per unit of a sample: its mean and that of each row;
        with ``every_row=True`` of all rows.
    planned_passes : float or None
        Number of passes of which a policy takes its share, at most ``n_passes``. It is smaller
        where a fit may stop on convergence, since ``max_iter`` then does not indicate how long T
        should be above 1. None is ``n_passes``.
    knows_total : bool
        Whether the number of rows of a stream is given, so that its passes are shares of it.
    """

    model: Model
    n_passes: float
    n_rows: int = 0
    n_units: float = 1.0
    pilot: Callable[..., tuple[float, Array]] = _no_pilot
    planned_passes: float | None = None
    knows_total: bool = False

    def passes(self, share: float, given: float | None = None) -> float:
        """Number of passes above T = 1: those ``given``, or this share of the fit.

        All but the last at most, or half of a single one.
        """
        planned = self.n_passes if self.planned_passes is None else self.planned_passes
        asked = share * min(planned, self.n_passes) if given is None else given
        return min(asked, max(self.n_passes - 1.0, 0.5 * self.n_passes))


class TemperaturePolicy(BaseEstimator):
    """Base of the recipes: parameters, their check, and ``start``.

    Examples
    --------
    >>> from skvt.temperature import LinearAnnealing, TemperaturePolicy
    >>> isinstance(LinearAnnealing(), TemperaturePolicy)
    True
    """

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError for parameters that are illegal, or not possible under the plan.

        Parameters
        ----------
        plan : FitPlan
            The model, and how many passes over how many rows.
        """
        raise NotImplementedError

    def start(self, plan: FitPlan) -> "RunningPolicy":
        """Begin one fit.

        Parameters
        ----------
        plan : FitPlan
            The model, and how many passes over how many rows.

        Returns
        -------
        RunningPolicy
            Gives the engine temperatures and receives energies.
        """
        raise NotImplementedError

    def _require(
        self,
        name: str,
        low: float,
        high: float = np.inf,
        *,
        integral: bool = False,
        low_open: bool = False,
    ) -> Any:
        """Raise ValueError unless the parameter is a finite number in the range."""
        value = getattr(self, name)
        kind = int | np.integer if integral else Real
        legal = isinstance(value, kind) and not isinstance(value, bool)
        if legal:
            above = value > low if low_open else value >= low
            legal = bool(np.isfinite(value)) and above and value <= high
        if not legal:
            what = "an int" if integral else "a finite number"
            left = "(" if low_open else "["
            right = "inf)" if high == np.inf else f"{high:g}]"
            raise ValueError(
                f"The {name!r} parameter of {type(self).__name__} must be {what} in the range "
                f"{left}{low:g}, {right}. Got {value!r} instead."
            )
        return value


class Batch(Protocol):
    """What a policy reads of a batch of rows."""

    # (n,): numbers of the rows in the data.
    @property
    def rows(self) -> IndexArray: ...
    # (n,): their sample weights.
    @property
    def weights(self) -> NDArray[Any]: ...
    # (n,): their units of data: tokens of a document, 1 elsewhere.
    @property
    def lengths(self) -> NDArray[Any]: ...


class Energies(Protocol):
    """What a policy reads of a batch's local step."""

    # (n,), float64: as in :class:`~skvt.contracts.LocalResult`.
    @property
    def marginal_energy(self) -> Array | None: ...


# (without an __init__, which would undo the class attributes of subclasses)
@dataclass(eq=False, kw_only=True, init=False)
class RunningPolicy:
    """A policy during one fit, at temperature 1 unless a subclass says otherwise.

    Attributes
    ----------
    mean_inv_temp : float
        1 / T; with one temperature per row the mean over the rows of the last batch.
    wants_energy : bool
        Whether ``observe`` (or the untempered bound) needs the energy of each row.
    replication : float
        How many times the global update counts each row; its bound divides
        ``KL(q(beta) || p(beta))`` by this.
    jitter : float
        Relative standard deviation of noise that full-data inference multiplies into the
        statistics after each pass. Above the temperature at which symmetry breaks, all components
        become one; exactly equal, they would stay so at T = 1. (Minibatches are noise enough.)
    wants_marginal : bool
        Whether ``observe`` needs the marginal energy of each row.
    done : bool
        Whether the policy has reached its final values, so that convergence may be judged.
    """

    mean_inv_temp: float = 1.0
    replication: float = 1.0
    done: bool = True
    wants_marginal: bool = False

    @property
    def wants_energy(self) -> bool:
        """Energy and entropy are needed separately wherever T is not 1."""
        return self.mean_inv_temp != 1.0

    @property
    def at_unit_temperature(self) -> bool:
        """Whether T = 1 for good: what is maximised is the bound by which moves are judged."""
        return self.done and self.mean_inv_temp == 1.0

    @property
    def jitter(self) -> float:
        """Noise of full-data inference, see above: none at the final temperature."""
        return 0.0 if self.done else JITTER * (self.temperature - 1.0) ** 0.5

    @property
    def requested(self) -> dict[str, bool]:
        """What a local step computes for this policy."""
        return {"with_energy": self.wants_energy, "with_marginal": self.wants_marginal}

    @property
    def temperature(self) -> float:
        """Temperature for the records, ``1 / mean_inv_temp``."""
        return 1.0 / self.mean_inv_temp

    def resume(self, n_rows: int) -> None:
        """Forget what is known of single rows: ``n_rows`` other rows follow."""

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Step number ``n_steps``, of ``step`` passes, is about to be made after ``passes``."""

    def inv_temp(self, batch: Batch) -> float | Array:
        """Inverse temperature of a batch: a float, or one for each row."""
        return self.mean_inv_temp

    def observe(self, result: Energies, batch: Batch) -> None:
        """Update from a batch's local result."""

    def bound_terms(self, total: float) -> float:
        """The policy's own terms of the tempered bound for rows of weight ``total``, in nats."""
        return 0.0
