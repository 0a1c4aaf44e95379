"""The contract of an engine, on one page.

An engine turns statistics of rows into a posterior over the globals, pass by pass. It reports each
pass to the loop in a :class:`PassResult`, and declares in ``requires`` what it needs of a model,
which is checked before any work.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from skvt.inference._bound import LocalTotals
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows, State
from skvt.models import Model, Requirement
from skvt.temperature import RunningPolicy
from skvt.typing import Array

# What an engine asks of a model, and the state as it keeps it.
ModelT = TypeVar("ModelT", bound=Model, contravariant=True)
StateT = TypeVar("StateT", bound=State)


class PassResult(NamedTuple):
    """The outcome of one pass over the rows.

    Attributes
    ----------
    totals : LocalTotals
        Local parts of the bound, in nats.
    divergence : float
        KL(q(beta) || p(beta)) to subtract from them, in nats.
    model : Model
        The model, its priors as learned so far.
    bound_kind : {"exact", "estimate", "none"}
        "exact" if ``totals`` less ``divergence`` is the bound at the current globals; "estimate" if
        it is that at the globals before the pass, or from minibatches; "none" without a bound.
    learning_rate : float
        Size of the last step.
    monotone : bool
        Whether the pass cannot lower the bound at a constant temperature, rounding aside.
    may_stop : bool
        Whether convergence may be judged after this pass.
    """

    totals: LocalTotals
    divergence: float
    model: Model
    bound_kind: str = "estimate"
    learning_rate: float = 1.0
    monotone: bool = False
    may_stop: bool = True


class Engine(Protocol[ModelT, StateT]):
    """How the passes of a fit are made. An engine serves one fit: make a new one for the next.

    Attributes
    ----------
    requires : tuple of Requirement
        What it needs of a model beyond what every model has.
    knows_exact_bound : bool
        Whether passes end with the exact bound, so that convergence is judged without evaluations.
    """

    requires: tuple[Requirement, ...]
    knows_exact_bound: bool

    def start(self, state: State, total: float) -> StateT:
        """The state as this engine keeps it, before a fit to rows of weight ``total``."""

    def run_pass(
        self,
        model: ModelT,
        data: Rows,
        state: StateT,
        policy: RunningPolicy,
        workers: Workers,
        rng: np.random.Generator,
    ) -> PassResult:
        """One pass over the rows; ``state`` changes in place."""

    def finish(self, model: ModelT, state: StateT) -> float | None:
        """After the last pass: tidy up. Returns the exact bound in nats, None if not known."""


#: Whatever it asks and keeps.
AnyEngine: TypeAlias = Engine[Any, Any]


@dataclass
class Stream:
    """How a call of ``partial_fit`` fits into its stream: its weight so far, and the batch at hand.

    Attributes
    ----------
    n_rows : float
        Weight of the rows that the globals represent so far.
    grows : bool
        Whether new rows add to ``n_rows``; otherwise it is the assumed size of the whole stream.
    total : float or None
        Size of the whole stream if the user gives it, whatever has been seen.
    batch_id : hashable or None
        Of memoized inference; None is a new batch.
    make_rng : callable
        Gives the generator of random numbers for this call, to engines that need one.
    """

    n_rows: float
    grows: bool
    total: float | None = None
    batch_id: Hashable | None = None
    make_rng: Callable[[], np.random.Generator] = np.random.default_rng

    def taken_for(self, weight: float) -> float:
        """Weight of the data set that a step on rows of this weight scales its statistics to."""
        if self.grows:
            self.n_rows += weight
        return self.total or self.n_rows


class StreamEngine(Protocol[StateT]):
    """An engine of ``partial_fit``."""

    requires: tuple[Requirement, ...]

    def resume(self, state: State, total: float) -> StateT:
        """The state as this engine keeps it, amid a stream of which ``total`` has been seen."""

    def update(
        self,
        model: Any,
        data: Rows,
        stream: Stream,
        state: StateT,
        policy: RunningPolicy,
        workers: Workers,
    ) -> tuple[Any, float]:
        """Steps on these rows; ``state`` changes in place. Returns the model and the last rate."""


def weighted_by_temperature(batch: Any, inv_temp: float | Array) -> Any:
    """The batch with weights by which statistics count: times a row's own 1 / T over the mean.

    At one temperature for all rows, the batch as it is. [VT16 eq. 11]
    """
    if np.ndim(inv_temp) == 0:
        return batch
    own = np.asarray(inv_temp, batch.weights.dtype)
    mean = np.average(own, weights=batch.weights)
    return replace(batch, weights=batch.weights * (own / mean))  # [VT16 eq. 11]
