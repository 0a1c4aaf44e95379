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

# The models that an engine accepts, and its kind of `skvt.inference.State`.
ModelT = TypeVar("ModelT", bound=Model, contravariant=True)
StateT = TypeVar("StateT")


@dataclass
class LocalTotals:
    """Weighted sums of the local parts of the bound over the rows of a pass, in nats."""

    # ``sum w (inv_temp * energy + entropy)``.
    tempered: float = 0.0
    # ``sum w (energy + entropy)``; nan if the energy of a tempered row was not requested.
    untempered: float = 0.0
    # Sum of the row weights.
    weight: float = 0.0

    def add(self, result: LocalResult, weights: Array, inv_temp: float | Array) -> None:
        """Add the totals of a batch from its :class:`~skvt.contracts.LocalResult`."""
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
        """Add the totals of other rows."""
        self.tempered += other.tempered
        self.untempered += other.untempered
        self.weight += other.weight

    def scaled(self, total: float) -> "LocalTotals":
        """Return these totals scaled to rows of weight ``total``."""
        factor = total / self.weight
        return LocalTotals(self.tempered * factor, self.untempered * factor, total)


class PassInputs(NamedTuple):
    """Inputs of the passes of a fit, or of a call of ``partial_fit``."""

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
    # Whether the pass cannot lower the bound at a constant temperature, except by rounding.
    monotone: bool = False
    # Whether convergence may be judged after this pass.
    may_stop: bool = True
    # Whether moves have changed components after the pass.
    has_moved: bool = False


class Remembering(Protocol):
    """An object that can continue an interrupted fit: see :class:`skvt.progress.Continued`."""

    def progress(self) -> dict[str, Any]:
        """Return the data that the next pass needs: see :class:`~skvt.progress.Continued`."""

    def take_up(self, progress: dict[str, Any]) -> None:
        """Continue an interrupted fit from the result of :meth:`progress`."""


class Engine(Remembering, Protocol[ModelT, StateT]):
    """An algorithm for the passes of a fit; each start of a fit needs a new engine."""

    # Capabilities that the engine needs of a model beyond the :class:`Model` contract.
    requires: tuple[Requirement, ...]
    # Whether passes end with the exact bound, so that convergence is judged without evaluations.
    knows_exact_bound: bool

    def start(self, state: Any, total: float) -> StateT:
        """Return the engine's kind of state, before a fit to rows of weight ``total``."""

    def run_pass(self, model: ModelT, state: StateT, given: PassInputs) -> PassResult:
        """Make one pass over the rows, and change ``state`` in place."""

    def finish(self, model: ModelT, state: StateT) -> float | None:
        """Finish after the last pass; return the exact bound in nats, or None if unknown."""


#: An engine for any models and states.
AnyEngine: TypeAlias = Engine[Any, Any]


class AfterPass(Remembering, Protocol):
    """A step after each pass of a fit, for any engine."""

    # Capabilities that the step needs of a model.
    @property
    def requires(self) -> tuple[Requirement, ...]: ...

    def after(self, result: PassResult, number: int, state: Any, given: PassInputs) -> PassResult:
        """Change ``state`` after pass ``number``, from 1; return the result of the pass."""

    def finish(self, state: Any) -> bool:
        """Finish after the last pass; return whether the state, and so its bound, has changed."""


@dataclass
class Stream:
    """A call of ``partial_fit`` within its stream: the weight so far, and the current batch."""

    # Weight of the rows that the globals represent so far.
    n_rows: float
    # Whether new rows add to ``n_rows``; otherwise it is the assumed size of the whole stream.
    grows: bool
    # Size of the whole stream if given by the user, regardless of the rows so far.
    total: float | None = None
    # Id of the batch for memoized inference; None is a new batch.
    batch_id: Hashable | None = None
    # Constructor of the random number generator of this call, for engines that need one.
    make_rng: Callable[[], np.random.Generator] = np.random.default_rng
    # Whether moves are tried.
    moves: bool = True
    # Id of the batch of which the new batch becomes a part.
    joins: Hashable | None = None
    # Keys and rows of the batches that make up these rows, if only moves take them as one batch.
    parts: Mapping[Hashable, IndexArray] = field(default_factory=dict)

    def taken_for(self, weight: float) -> float:
        """Count the weight of new rows; return the weight to which a step scales statistics."""
        if self.grows:
            self.n_rows += weight
        return self.total or self.n_rows


class StreamEngine(Protocol[StateT]):
    """An engine of ``partial_fit``."""

    requires: tuple[Requirement, ...]

    def resume(self, state: Any, total: float) -> StateT:
        """Return the engine's kind of state in a stream whose rows so far weigh ``total``."""

    def update(
        self, model: Any, state: StateT, stream: Stream, given: PassInputs
    ) -> tuple[Any, float]:
        """Make steps on the rows, change ``state``; return the model and the last step size."""
