"""The contract of an engine, on one page.

An engine turns statistics of rows into a posterior over the globals, pass by pass. It reports each
pass to the loop in a :class:`PassResult`, and declares in ``requires`` what it needs of a model,
which is checked before a fit begins.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from skvt.contracts._model import LocalResult, Model, Requirement
from skvt.contracts._policy import RunningPolicy
from skvt.typing import Array, IndexArray

# What an engine asks of a model, and the `skvt.inference.State` as it keeps it.
ModelT = TypeVar("ModelT", bound=Model, contravariant=True)
StateT = TypeVar("StateT")


@dataclass
class LocalTotals:
    """Weighted sums of the local parts of the bound over the rows of a pass, in nats."""

    # ``sum w (inv_temp * energy + entropy)``.
    tempered: float = 0.0
    # ``sum w (energy + entropy)``; nan of rows whose energy has not been requested.
    untempered: float = 0.0
    # Sum of the row weights.
    weight: float = 0.0

    def add(self, result: LocalResult, weights: Array, inv_temp: float | Array) -> None:
        """Add one batch's :class:`~skvt.contracts.LocalResult`."""
        weights = np.asarray(weights, dtype=np.float64)
        tempered = float(weights @ result.bound)
        self.tempered += tempered
        if np.ndim(inv_temp) == 0 and inv_temp == 1.0:
            self.untempered += tempered
        elif result.energy is None:
            self.untempered = math.nan
        else:
            self.untempered += tempered + float(weights @ ((1.0 - inv_temp) * result.energy))
        self.weight += float(weights.sum())

    def extend(self, other: "LocalTotals") -> None:
        """Add those of other rows."""
        self.tempered += other.tempered
        self.untempered += other.untempered
        self.weight += other.weight

    def scaled(self, total: float) -> "LocalTotals":
        """These totals, scaled to rows of weight ``total``."""
        factor = total / self.weight
        return LocalTotals(self.tempered * factor, self.untempered * factor, total)


class PassInputs(NamedTuple):
    """What passes of a fit, or a call of ``partial_fit``, have at hand."""

    # The `skvt.inference.Rows`, divided into batches.
    data: Any
    policy: RunningPolicy
    # The threads, `skvt.inference.Workers`.
    workers: Any
    # The `numpy.random.Generator` that shuffles batches and jitters; None in a stream.
    rng: Any = None


class PassResult(NamedTuple):
    """The outcome of one pass over the rows."""

    # Local parts of the bound, in nats.
    totals: LocalTotals
    # KL(q(beta) || p(beta)) to subtract from them, in nats.
    divergence: float
    # The model, with the priors learned so far.
    model: Model
    # {"exact", "estimate", "none"}: "exact" if ``totals`` minus ``divergence`` is the bound at the
    # current globals; "estimate" if it is the bound at the globals before the pass, or is estimated
    # from minibatches; "none" if there is no bound.
    bound_kind: str = "estimate"
    # Size of the last step.
    learning_rate: float = 1.0
    # Whether, up to rounding, the pass cannot lower the bound at a constant temperature.
    monotone: bool = False
    # Whether convergence may be judged after this pass.
    may_stop: bool = True
    # Whether moves have changed components after the pass.
    has_moved: bool = False


class Remembering(Protocol):
    """What an interrupted fit continues: see :class:`skvt.progress.Continued`."""

    def progress(self) -> dict[str, Any]:
        """What the next pass needs: see :class:`~skvt.progress.Continued`."""

    def take_up(self, progress: dict[str, Any]) -> None:
        """Continue an interrupted fit from there."""


class Engine(Remembering, Protocol[ModelT, StateT]):
    """How the passes of a fit are made. An engine serves one fit: make a new one for the next."""

    # Capabilities of a model that it needs beyond the :class:`Model` contract.
    requires: tuple[Requirement, ...]
    # Whether passes end with the exact bound, so that convergence is judged without evaluations.
    knows_exact_bound: bool

    def start(self, state: Any, total: float) -> StateT:
        """The state as this engine keeps it, before a fit to rows of weight ``total``."""

    def run_pass(self, model: ModelT, state: StateT, given: PassInputs) -> PassResult:
        """One pass over the rows; ``state`` changes in place."""

    def finish(self, model: ModelT, state: StateT) -> float | None:
        """After the last pass. Returns the exact bound in nats, or None if it is not known."""


#: An engine for any models and states.
AnyEngine: TypeAlias = Engine[Any, Any]


class AfterPass(Remembering, Protocol):
    """What follows each pass of a fit, whatever the engine."""

    # Capabilities of a model that it needs.
    @property
    def requires(self) -> tuple[Requirement, ...]: ...

    def after(self, result: PassResult, number: int, state: Any, given: PassInputs) -> PassResult:
        """After the pass of this number, from 1: its result; ``state`` changes in place."""

    def finish(self, state: Any) -> bool:
        """After the last pass; whether the state has changed, so that its bound is not known."""


@dataclass
class Stream:
    """Place of a call of ``partial_fit`` in its stream: weight so far, and the current batch."""

    # Weight of the rows that the globals represent so far.
    n_rows: float
    # Whether new rows add to ``n_rows``; otherwise it is the assumed size of the whole stream.
    grows: bool
    # Size of the whole stream if given by the user, regardless of what has been seen.
    total: float | None = None
    # Id of the batch for memoized inference; None is a new batch.
    batch_id: Hashable | None = None
    # Makes the random number generator of this call, for engines that need one.
    make_rng: Callable[[], np.random.Generator] = np.random.default_rng
    # Whether moves are tried.
    moves: bool = True
    # Id of the batch of which the new batch becomes a part.
    joins: Hashable | None = None
    # Batches that these rows are, and the rows of each, if they are one for the moves alone.
    parts: Mapping[Hashable, IndexArray] = field(default_factory=dict)

    def taken_for(self, weight: float) -> float:
        """Weight of the data set to which a step on rows of this weight scales its statistics."""
        if self.grows:
            self.n_rows += weight
        return self.total or self.n_rows


class StreamEngine(Protocol[StateT]):
    """An engine of ``partial_fit``."""

    requires: tuple[Requirement, ...]

    def resume(self, state: Any, total: float) -> StateT:
        """The state as this engine keeps it, within a stream of which ``total`` has been seen."""

    def update(
        self, model: Any, state: StateT, stream: Stream, given: PassInputs
    ) -> tuple[Any, float]:
        """Steps on these rows; ``state`` changes in place. Returns the model and the last rate."""
