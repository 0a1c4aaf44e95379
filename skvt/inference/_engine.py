"""The contract of an engine, on one page.

An engine turns statistics of rows into a posterior over the globals, pass by pass. What the loop
needs to know of a pass, the engine says in its :class:`PassResult`; what it asks of a model, it
declares in ``requires``, which is checked before any work.
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
    """What one pass over the rows ended with.

    Attributes
    ----------
    totals : LocalTotals
        Local parts of the bound, in nats.
    divergence : float
        KL(q(beta) || p(beta)) that belongs to them, in nats.
    model : Model
        With the priors learned so far.
    bound_kind : {"exact", "estimate", "none"}
        Whether ``totals`` less ``divergence`` is the bound at the globals as they are now; the
        bound at those before the pass, or an estimate from minibatches; or no bound.
    learning_rate : float
        Size of the last step.
    monotone : bool
        Whether the bound cannot have fallen at a constant temperature, but by rounding.
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
    """How the passes of a fit are made. An object serves one fit: make a new one for the next.

    Attributes
    ----------
    requires : tuple of Requirement
        What it asks of a model, beside what each has.
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
    """What rows of a stream stand for, and which batch they are.

    Attributes
    ----------
    n_rows : float
        Weight of the rows for which the globals stand so far.
    grows : bool
        Whether rows that come add to ``n_rows``; otherwise it is what the stream is taken for.
    total : float or None
        Given by the user: rows for which the stream stands, whatever has been seen.
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
        """Weight of the rows for which a step on rows of this weight is made."""
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
