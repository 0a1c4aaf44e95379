"""The contract of a temperature policy.

Users create a recipe, such as ``LinearAnnealing(...)``: parameters with ``get_params`` and
``set_params``. Its method ``start`` makes the running policy of one fit, which gives the engine
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
from skvt.files import in_files
from skvt.typing import Array, IndexArray

# Relative noise of the statistics in full-data inference above T = 1, times sqrt(T - 1).
JITTER = 0.05


def _no_pilot(*args: Any) -> tuple[float, Array]:
    raise RuntimeError("A plan without a pilot is for policies that learn nothing.")


@dataclass(frozen=True)
class FitPlan:
    """Properties of a fit that a policy may use before the fit begins.

    Attributes
    ----------
    model : Model
    n_passes : float
        Maximum number of passes of this fit; infinite for a stream.
    n_rows : int
        Number of rows of the data, or of the first call of a stream.
    n_units : float
        Weight of all local likelihoods, such as the number of tokens of a corpus.
    pilot : callable
        ``pilot(replication)`` fits the model in at most one pass over the data at T = 1. It returns
        the untempered marginal energy per unit of data of a sample: the mean, and the value of each
        row; with ``every_row=True``, of all rows.
    planned_passes : float or None
        Number of passes of which a policy takes its share, at most ``n_passes``. It is smaller
        if a fit may stop on convergence, since ``max_iter`` is then only a limit and does not
        indicate how long T should be above 1. None is ``n_passes``.
    knows_total : bool
        Whether the number of rows of a stream is given; its passes are then shares of it.
    """

    model: Model
    n_passes: float
    n_rows: int = 0
    n_units: float = 1.0
    pilot: Callable[..., tuple[float, Array]] = _no_pilot
    planned_passes: float | None = None
    knows_total: bool = False

    def passes(self, share: float, given: float | None = None) -> float:
        """Return the number of passes above T = 1: ``given``, or this share of the fit.

        At most all passes but the last are above T = 1, or half of a single pass.
        """
        planned = self.n_passes if self.planned_passes is None else self.planned_passes
        asked = share * min(planned, self.n_passes) if given is None else given
        return min(asked, max(self.n_passes - 1.0, 0.5 * self.n_passes))


class TemperaturePolicy(BaseEstimator):
    """Base of recipes of temperatures: parameters, their check, and ``start``.

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
    """The part of a batch of rows that a policy reads."""

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
    """The part of a batch's local result that a policy reads."""

    # (n,), float64: as in :class:`~skvt.contracts.LocalResult`.
    @property
    def marginal_energy(self) -> Array | None: ...


# An __init__ would override the class attributes of subclasses.
@in_files("temperature.RunningPolicy")
@dataclass(eq=False, kw_only=True, init=False)
class RunningPolicy:
    """A policy during one fit; the base class stays at temperature 1.

    Attributes
    ----------
    mean_inv_temp : float
        1 / T; with one temperature per row, its mean over the rows of the last batch.
    wants_energy : bool
        Whether ``observe`` (or the untempered bound) needs the energy of each row.
    replication : float
        How many times the global update counts each row; its bound divides
        ``KL(q(beta) || p(beta))`` by this.
    jitter : float
        Relative standard deviation of noise that full-data inference multiplies into the
        statistics after each pass. Above the temperature at which symmetry breaks, all components
        become equal, and without noise they would remain equal at T = 1. Inference on minibatches
        has enough noise without it.
    wants_marginal : bool
        Whether ``observe`` needs the marginal energy of each row.
    done : bool
        Whether the policy has reached its final values, so that convergence may be judged.
    """

    mean_inv_temp: float = 1.0
    replication: float = 1.0
    done: bool = True
    wants_marginal: bool = False

    def validate(self, d: int, k: int) -> bool:
        """Return whether a policy of a file has legal numbers, see `skvt.files`."""
        return 0.0 < self.mean_inv_temp <= 1.0 <= self.replication < np.inf

    @property
    def wants_energy(self) -> bool:
        """Whether T is not 1, so that energy and entropy are needed separately."""
        return self.mean_inv_temp != 1.0

    @property
    def at_unit_temperature(self) -> bool:
        """Whether T stays at 1: inference then maximises the bound by which moves are judged."""
        return self.done and self.mean_inv_temp == 1.0

    @property
    def jitter(self) -> float:
        """Relative noise of full-data inference, 0 at the final temperature."""
        return 0.0 if self.done else JITTER * (self.temperature - 1.0) ** 0.5

    @property
    def requested(self) -> dict[str, bool]:
        """Keyword arguments of local steps for this policy."""
        return {"with_energy": self.wants_energy, "with_marginal": self.wants_marginal}

    @property
    def temperature(self) -> float:
        """Temperature in the history, ``1 / mean_inv_temp``."""
        return 1.0 / self.mean_inv_temp

    def resume(self, n_rows: int) -> None:
        """Discard the data of single rows, as ``n_rows`` other rows follow."""

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Prepare step number ``n_steps``, of ``step`` passes, after ``passes`` passes."""

    def inv_temp(self, batch: Batch) -> float | Array:
        """Return the inverse temperature of a batch, a float or an array with one per row."""
        return self.mean_inv_temp

    def observe(self, result: Energies, batch: Batch) -> None:
        """Update the policy by the local result of a batch."""

    def bound_terms(self, total: float) -> float:
        """Return the policy's terms of the tempered bound for rows of weight ``total``, nats."""
        return 0.0
