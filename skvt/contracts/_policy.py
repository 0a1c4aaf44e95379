"""The contract of a temperature policy, which sets the temperature T of each step of a fit.

A *recipe*, such as ``LinearAnnealing(...)``, is an object of parameters that users create, a
:class:`TemperaturePolicy`. Its method ``start`` makes the *running policy* of one fit, a
:class:`RunningPolicy`, which gives the engine temperatures and observes the results of local steps.
A recipe gets the properties of the fit in a :class:`FitPlan`.
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

# Relative standard deviation of the noise of the statistics in full-data inference at T = 2. At
# other temperatures above 1 it is proportional to sqrt(T - 1).
JITTER = 0.05


def _refuse_pilot(*args: Any) -> tuple[float, Array]:
    raise RuntimeError("A plan without a pilot is for policies that learn nothing.")


@dataclass(frozen=True)
class FitPlan:
    """Properties of a fit that a policy may use before the fit begins.

    Attributes
    ----------
    model : Model
    n_passes : float
        Maximum number of passes over the rows under this policy; infinite for a stream.
    n_rows : int
        Number of rows of the data, or of the first call of a stream.
    n_units : float
        Total weight of the units of data: of the tokens of a corpus, otherwise of the rows.
    pilot : callable
        ``pilot(replication)`` fits the model in at most one pass over the data at T = 1. It returns
        energies per unit of data in nats, untempered and with the local variables summed out: the
        mean, and the energy of each row of a sample. With ``every_row=True`` the sample consists of
        all rows.
    planned_passes : float or None
        Expected number of passes of a fit that may stop on convergence: ``n_passes`` is then only a
        limit, and does not indicate how long T should be above 1. A policy anneals over a share of
        the smaller of the two numbers. None stands for ``n_passes``.
    knows_total : bool
        Whether the number of rows of a stream is known. A pass of the stream is then this number of
        rows.
    """

    model: Model
    n_passes: float
    n_rows: int = 0
    n_units: float = 1.0
    pilot: Callable[..., tuple[float, Array]] = _refuse_pilot
    planned_passes: float | None = None
    knows_total: bool = False

    def passes(self, share: float, n_hot_passes: float | None = None) -> float:
        """Return the number of passes above T = 1, with a fraction.

        It is ``n_hot_passes``, or if this is None, the share ``share`` of the expected passes. It
        is limited so that the last pass of the fit, or the second half of its only pass, is at
        T = 1.
        """
        planned = self.n_passes if self.planned_passes is None else self.planned_passes
        requested = share * min(planned, self.n_passes) if n_hot_passes is None else n_hot_passes
        return min(requested, max(self.n_passes - 1.0, 0.5 * self.n_passes))


class TemperaturePolicy(BaseEstimator):
    """Base of the recipes of temperatures that users create.

    Examples
    --------
    >>> from skvt.temperature import LinearAnnealing, TemperaturePolicy
    >>> isinstance(LinearAnnealing(), TemperaturePolicy)
    True
    """

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError if parameters are illegal, or impossible in the fit.

        Parameters
        ----------
        plan : FitPlan
            The properties of the fit.
        """
        raise NotImplementedError

    def start(self, plan: FitPlan) -> "RunningPolicy":
        """Return the running policy of one fit.

        Parameters
        ----------
        plan : FitPlan
            The properties of the fit.

        Returns
        -------
        RunningPolicy
            The policy during this fit.
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
        """Return the value of the parameter ``name``; raise ValueError unless it is legal.

        Legal values are finite numbers, or integers if ``integral``, in the range [low, high]; if
        ``low_open``, the range is (low, high].
        """
        value = getattr(self, name)
        number_type = int | np.integer if integral else Real
        is_legal = isinstance(value, number_type) and not isinstance(value, bool)
        if is_legal:
            is_above = value > low if low_open else value >= low
            is_legal = bool(np.isfinite(value)) and is_above and value <= high
        if not is_legal:
            kind = "an int" if integral else "a finite number"
            opening = "(" if low_open else "["
            end = "inf)" if high == np.inf else f"{high:g}]"
            raise ValueError(
                f"The {name!r} parameter of {type(self).__name__} must be {kind} in the range "
                f"{opening}{low:g}, {end}. Got {value!r} instead."
            )
        return value


class Batch(Protocol):
    """The part of a batch of rows that a policy reads."""

    # (n,): indices of the rows in the data.
    @property
    def rows(self) -> IndexArray: ...
    # (n,): weights of the rows.
    @property
    def weights(self) -> NDArray[Any]: ...
    # (n,): number of units of data of each row: the tokens of a document, 1 for other rows.
    @property
    def lengths(self) -> NDArray[Any]: ...


class Energies(Protocol):
    """The part of a batch's local result that a policy reads."""

    # (n,), float64: untempered energy of each row in nats with the local variables summed out; None
    # unless the policy has ``wants_marginal``.
    @property
    def marginal_energy(self) -> Array | None: ...


# There is no __init__, because it would hide the class attributes of subclasses.
@in_files("temperature.RunningPolicy")
@dataclass(eq=False, kw_only=True, init=False)
class RunningPolicy:
    """A policy during one fit; the base class stays at temperature 1.

    Attributes
    ----------
    mean_inv_temp : float
        The inverse temperature 1 / T. If each row has a separate temperature, the mean of 1 / T
        over the rows of the last batch.
    wants_energy : bool
        Whether local steps must return the energy of each row, in addition to the bound.
    replication : float
        How many times the update of the global parameters counts each row. The tempered bound
        divides ``KL(q(beta) || p(beta))`` by the replication.
    jitter : float
        Relative standard deviation of the noise by which full-data inference multiplies the
        statistics after each pass. At high temperatures all components become equal, and without
        noise they would remain equal at T = 1. Inference on minibatches is noisy enough.
    wants_marginal : bool
        Whether ``observe`` needs the energy of each row with the local variables summed out.
    done : bool
        Whether the temperature has reached its final value, so that convergence may be judged.
    """

    mean_inv_temp: float = 1.0
    replication: float = 1.0
    done: bool = True
    wants_marginal: bool = False

    def validate(self, d: int, k: int) -> bool:
        """Return whether a policy that was read from a file has legal numbers.

        `skvt.files` passes the numbers ``d`` of columns and ``k`` of components to all classes.
        """
        return 0.0 < self.mean_inv_temp <= 1.0 <= self.replication < np.inf

    @property
    def wants_energy(self) -> bool:
        """Whether the untempered bound needs the energy of each row, because T is not 1."""
        return self.mean_inv_temp != 1.0

    @property
    def at_unit_temperature(self) -> bool:
        """Whether T stays at 1, so that inference maximises the bound by which moves are judged."""
        return self.done and self.mean_inv_temp == 1.0

    @property
    def jitter(self) -> float:
        """Relative noise of full-data inference, 0 at the final temperature."""
        return 0.0 if self.done else JITTER * (self.temperature - 1.0) ** 0.5

    @property
    def step_options(self) -> dict[str, bool]:
        """Keyword arguments of local steps, which request the results that the policy needs."""
        return {"with_energy": self.wants_energy, "with_marginal": self.wants_marginal}

    @property
    def temperature(self) -> float:
        """The temperature ``1 / mean_inv_temp``, as in the history."""
        return 1.0 / self.mean_inv_temp

    def resume(self, n_rows: int) -> None:
        """Forget the data of single rows, because further passes are over ``n_rows`` other rows."""

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Set the temperature of the next step.

        Parameters
        ----------
        passes : float
            Number of passes made so far, including the fraction of the present pass.
        step : float
            The share of a pass that the step makes.
        n_steps : int
            Number of steps made so far.
        """

    def inv_temp(self, batch: Batch) -> float | Array:
        """Return the inverse temperature of a batch: one float, or an array (n,) for its rows."""
        return self.mean_inv_temp

    def observe(self, result: Energies, batch: Batch) -> None:
        """Update the policy with the result of the local step of a batch."""

    def bound_terms(self, total: float) -> float:
        """Return what the latent variables of the policy add to the tempered bound, in nats.

        ``total`` is the weight of all rows.
        """
        return 0.0
