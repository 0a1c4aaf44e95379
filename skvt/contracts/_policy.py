"""The contract of a temperature policy, which sets the temperature T of each step of a fit.

Users create a *recipe*, a :class:`TemperaturePolicy` with parameters, such as
``LinearAnnealing(...)``. The method ``start`` of a recipe takes the properties of a fit, a
:class:`FitPlan`, and returns the *running policy* of this fit, a :class:`RunningPolicy`. The
engine, that is, the algorithm that makes the passes, asks the running policy for temperatures and
passes the results of local steps to it.

The *energy* of a row x is ``E_q[log p(x, z | beta)]`` with local variables z and global variables
beta; it has the sign of a log density. The inverse temperature 1 / T multiplies the energy, so that
high temperatures make q(z) more spread out. In the *marginal energy*, which always belongs to
T = 1, the local variables z are summed out. A *unit of data* is a token in a model of documents,
and a row in other models.
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

# Relative standard deviation, at T = 2, of the noise by which inference on all rows multiplies the
# statistics. At other temperatures above 1 the deviation is proportional to sqrt(T - 1).
JITTER = 0.05


def _refuse_pilot(*args: Any) -> tuple[float, Array]:
    """Raise RuntimeError. The function is the ``pilot`` of a plan without a pilot."""
    raise RuntimeError("A plan without a pilot is for policies that learn nothing.")


@dataclass(frozen=True)
class FitPlan:
    """Properties of a fit that a policy may use before the fit begins.

    Attributes
    ----------
    model : Model
    n_passes : float
        Maximum number of passes over the rows under this policy; infinite for a stream, that is,
        for calls of ``partial_fit``.
    n_rows : int
        Number of rows of the data, or of the first call of a stream.
    n_units : float
        Total weight of the units of data: of the tokens of a corpus, otherwise of the rows.
    pilot : callable
        Function that makes a short fit for policies that learn temperatures from energies.
        ``pilot(replication)`` fits the model in at most a single pass over the data at T = 1, with
        each row counted ``replication`` times. The results, in nats per unit of data, are the mean
        marginal energy, and the marginal energies of the rows of a sample. With
        ``every_row=True``, the sample consists of all rows.
    planned_passes : float or None
        Expected number of passes if the fit may stop on convergence, so that ``n_passes`` is only a
        limit. A policy anneals over a share of the smaller of ``planned_passes`` and ``n_passes``.
        None stands for ``n_passes``.
    knows_total : bool
        Whether the number of rows of a stream is known. All rows of the stream then count as a
        pass.
    """

    model: Model
    n_passes: float
    n_rows: int = 0
    n_units: float = 1.0
    pilot: Callable[..., tuple[float, Array]] = _refuse_pilot
    planned_passes: float | None = None
    knows_total: bool = False

    def passes(self, share: float, n_hot_passes: float | None = None) -> float:
        """Return the number of passes above T = 1, which need not be a whole number.

        The number is ``n_hot_passes`` or, if this is None, the fraction ``share`` of the expected
        number of passes. The number is limited, so that at least the last pass of the fit is at
        T = 1, or the second half of the pass if the fit makes only one.
        """
        expected = self.n_passes if self.planned_passes is None else self.planned_passes
        n_hot = share * min(expected, self.n_passes) if n_hot_passes is None else n_hot_passes
        # The first limit holds for two or more passes, and the second for a single pass.
        return min(n_hot, max(self.n_passes - 1.0, 0.5 * self.n_passes))


class TemperaturePolicy(BaseEstimator):
    """Base of the recipes of temperatures that users create.

    Examples
    --------
    >>> from skvt.temperature import LinearAnnealing, TemperaturePolicy
    >>> isinstance(LinearAnnealing(), TemperaturePolicy)
    True
    """

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError if parameters are illegal, or cannot be used in the fit.

        Parameters
        ----------
        plan : FitPlan
            The properties of the fit.
        """
        raise NotImplementedError

    def start(self, plan: FitPlan) -> "RunningPolicy":
        """Return the running policy of a fit.

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
        self, name: str, lowest: float, highest: float = np.inf, *,
        integral: bool = False, low_open: bool = False,
    ) -> None:  # fmt: skip
        """Raise ValueError unless the value of the parameter ``name`` is legal.

        Legal values are finite numbers, or integers if ``integral``, in the range
        [lowest, highest], or (lowest, highest] if ``low_open``.
        """
        value = getattr(self, name)
        number_type = int | np.integer if integral else Real
        is_legal = isinstance(value, number_type) and not isinstance(value, bool)
        if is_legal:
            is_above_lowest = value > lowest if low_open else value >= lowest
            is_legal = bool(np.isfinite(value)) and is_above_lowest and value <= highest
        if not is_legal:
            noun = "an int" if integral else "a finite number"
            opening = "(" if low_open else "["
            end = "inf)" if highest == np.inf else f"{highest:g}]"
            raise ValueError(
                f"The {name!r} parameter of {type(self).__name__} must be {noun} in the range "
                f"{opening}{lowest:g}, {end}. Got {value!r} instead."
            )


class Batch(Protocol):
    """The part of a batch of n rows that a policy reads."""

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
    """The part of the result of a batch's local step that a policy reads."""

    # (n,), float64: marginal energy of each row in nats; None unless the policy has
    # ``wants_marginal``.
    @property
    def marginal_energy(self) -> Array | None: ...


# The dataclass has ``init=False``, because an __init__ would set all fields to the defaults of this
# class. Subclasses declare other defaults as class attributes, which these fields would hide.
@in_files("temperature.RunningPolicy")
@dataclass(eq=False, kw_only=True, init=False)
class RunningPolicy:
    """A temperature policy during a fit; the temperature of this base class is always 1.

    Attributes
    ----------
    mean_inv_temp : float
        The inverse temperature 1 / T. If each row has a separate temperature, it is the mean of
        1 / T over the rows of the last batch.
    wants_energy : bool
        Whether local steps must return the energy of each row. At T other than 1, the untempered
        bound is computed from the energy.
    replication : float
        The number of times that the update of the global parameters counts each row. The tempered
        bound divides ``KL(q(beta) || p(beta))`` by this number.
    jitter : float
        Relative standard deviation of the noise by which inference on all rows multiplies the
        statistics after each pass. At high temperatures all components become equal, and without
        noise they would remain equal at T = 1. Inference on minibatches is noisy enough itself.
    wants_marginal : bool
        Whether ``observe`` needs the marginal energy of each row.
    done : bool
        Whether the temperature has reached its final value, so that convergence may be judged.
    """

    mean_inv_temp: float = 1.0
    replication: float = 1.0
    done: bool = True
    wants_marginal: bool = False

    def validate(self, d: int, k: int) -> bool:
        """Return whether a policy that was read from a file has legal numbers.

        `skvt.files` calls the method with the numbers ``d`` of columns and ``k`` of components,
        which do not matter here.
        """
        return 0.0 < self.mean_inv_temp <= 1.0 <= self.replication < np.inf

    @property
    def wants_energy(self) -> bool:
        """Whether local steps must return energies, from which the untempered bound is computed."""
        return self.mean_inv_temp != 1.0

    @property
    def at_unit_temperature(self) -> bool:
        """Whether T is 1 from now on. Inference then maximises the bound by which moves decide."""
        return self.done and self.mean_inv_temp == 1.0

    @property
    def jitter(self) -> float:
        """Relative noise of inference on all rows, 0 at the final temperature."""
        return 0.0 if self.done else JITTER * (self.temperature - 1.0) ** 0.5

    @property
    def step_options(self) -> dict[str, bool]:
        """Keyword arguments of local steps, which request the results that the policy needs."""
        return {"with_energy": self.wants_energy, "with_marginal": self.wants_marginal}

    @property
    def temperature(self) -> float:
        """The temperature ``1 / mean_inv_temp``, which the history of a fit shows."""
        return 1.0 / self.mean_inv_temp

    def forget_rows(self, n_rows: int) -> None:
        """Forget data of single rows, and prepare for passes over ``n_rows`` other rows.

        A warm start or a call of ``partial_fit`` calls the method before its passes.
        """

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Set the temperature of the next step; the engine calls the method before each step.

        Parameters
        ----------
        passes : float
            Number of passes made so far, including the fraction of the present pass.
        step : float
            Length of the step, as a share of a pass.
        n_steps : int
            Number of steps made so far.
        """

    def inv_temp(self, batch: Batch) -> float | Array:
        """Return the inverse temperature of a batch: a float, or an array (n,) for its rows.

        Local steps by Gibbs sampling or CVB0, and all of gamma process NMF, take a float only. They
        raise ValueError for an array.
        """
        return self.mean_inv_temp

    def observe(self, result: Energies, batch: Batch) -> None:
        """Update the policy with the result of the local step of a batch, after the local step."""

    def bound_terms(self, total: float) -> float:
        """Return the terms that the policy adds to the tempered bound, in nats.

        A policy that treats the temperature as a latent variable adds terms of this variable.
        ``total`` is the weight of all rows.
        """
        return 0.0
