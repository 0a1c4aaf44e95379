"""The contract of an *engine*, the inference algorithm that makes the passes of a fit.

Pass by pass, an engine turns statistics of rows into a posterior q(beta) of the global variables
beta of a model. The local variables z_n of a row x_n have the posterior q(z_n). After each pass the
engine returns a :class:`PassResult` to the loop over the passes, `skvt.inference.fit_loop`.

The attribute ``requires`` of an engine declares the capabilities that it needs of a model, which
are checked before a fit begins. A :class:`StreamEngine` serves ``partial_fit``. A *stream* is a
sequence of calls of ``partial_fit``, and :class:`Stream` describes one of these calls.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from skvt.contracts._model import LocalResult, Model, Requirement
from skvt.contracts._policy import RunningPolicy
from skvt.typing import Array, IndexArray

# The type of the models that an engine accepts.
ModelT = TypeVar("ModelT", bound=Model, contravariant=True)
# The subclass of `skvt.inference.State` that an engine uses.
StateT = TypeVar("StateT")


@dataclass
class LocalTotals:
    """Weighted sums of the local parts of the bound over the rows of a pass, in nats.

    The weight of row n is w_n, and its inverse temperature is 1 / T. Its energy is
    ``E_q[log p(x_n, z_n | beta)]``, without the minus sign that physics gives to energies. Its
    entropy is the entropy of q(z_n).
    """

    # ``sum_n w_n (inv_temp_n * energy_n + entropy_n)``.
    tempered: float = 0.0
    # ``sum_n w_n (energy_n + entropy_n)``; NaN if the energy of a tempered row is unknown.
    untempered: float = 0.0
    # Sum of the weights w_n of the rows.
    weight: float = 0.0

    def add(self, result: LocalResult, weights: Array, inv_temp: float | Array) -> None:
        """Add the totals of a batch.

        Parameters
        ----------
        result : LocalResult
            The result of the local step of the batch.
        weights : ndarray of shape (n,)
            Weights of the rows of the batch.
        inv_temp : float or ndarray of shape (n,)
            Inverse temperature of the local step, for all rows or for each row.
        """
        weights = np.asarray(weights, dtype=np.float64)
        tempered = float(weights @ result.bound)
        self.tempered += tempered
        # At T = 1 the two sums are equal. Otherwise ``bound`` has only the share ``inv_temp`` of
        # the energy; add the share ``1 - inv_temp`` to the untempered sum.
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
        """Return the sums, scaled to the weight ``total``.

        Sums over a sample of the rows thus become estimates of the sums over all rows.
        """
        factor = total / self.weight
        return LocalTotals(self.tempered * factor, self.untempered * factor, total)


class PassInputs(NamedTuple):
    """Inputs of the passes of a fit, or of a call of ``partial_fit``."""

    # The rows, divided into batches: a `skvt.inference.Rows` object.
    data: Any
    # The temperature policy of this fit, which sets the temperature of each step.
    policy: RunningPolicy
    # The threads: a `skvt.inference.Workers` object.
    workers: Any
    # The `numpy.random.Generator` of the passes of a fit; None in a stream.
    rng: Any = None


class PassResult(NamedTuple):
    """The result of a pass over the rows."""

    # Sums of the local parts of the bound, in nats.
    totals: LocalTotals
    # KL(q(beta) || p(beta)) in nats.
    divergence: float
    # The model, with the priors learned so far.
    model: Model
    # Meaning of ``totals`` minus ``divergence``: "exact" for the bound at the current global
    # parameters, "estimate" for the bound at the global parameters before the pass or an estimate
    # from minibatches, "none" if the difference is no bound.
    bound_kind: str = "estimate"
    # Size of the last step of the statistics, from 0 to 1.
    learning_rate: float = 1.0
    # Whether passes at a constant temperature never lower the bound, apart from rounding errors.
    monotone: bool = False
    # Whether convergence may be judged after this pass.
    may_stop: bool = True
    # Whether moves have changed components after the pass.
    has_moved: bool = False


class Resumable(Protocol):
    """An engine or step that can continue an interrupted fit.

    `skvt.progress.ResumableMixin` implements both methods.
    """

    def get_progress(self) -> dict[str, Any]:
        """Return the attributes that the next pass needs, by name.

        A file must be able to hold them.
        """

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Continue an interrupted fit from the result of :meth:`get_progress`."""


class Engine(Resumable, Protocol[ModelT, StateT]):
    """An algorithm for the passes of a fit.

    An engine serves a single start, that is, a fit from a single initial state.
    """

    # Capabilities that the engine needs of a model in addition to the contract :class:`Model`.
    requires: tuple[Requirement, ...]
    # Whether the engine knows the exact bound after each pass. Otherwise a further pass over the
    # rows must evaluate the bound.
    knows_exact_bound: bool

    def start(self, state: Any, total: float) -> StateT:
        """Return ``state`` as an object of the class that the engine uses.

        The method is called before the first pass of a fit. ``total`` is the weight of all rows of
        the fit.
        """

    def run_pass(self, model: ModelT, state: StateT, inputs: PassInputs) -> PassResult:
        """Make a pass over the rows, and change ``state`` in place."""

    def finish(self, model: ModelT, state: StateT) -> float | None:
        """Finish the fit after its last pass.

        Return the exact bound in nats, or None if it is not known.
        """


#: An engine for models and states of any class.
AnyEngine: TypeAlias = Engine[Any, Any]


class StepAfterPass(Resumable, Protocol):
    """A change of the state after each pass of a fit, independent of the engine."""

    # Capabilities that the step needs of a model.
    @property
    def requires(self) -> tuple[Requirement, ...]: ...

    def apply(self, result: PassResult, number: int, state: Any, inputs: PassInputs) -> PassResult:
        """Change ``state`` in place after a pass; return the changed result of the pass.

        ``result`` is the result of the pass before the step. ``number`` is the number of the pass,
        from 1.
        """

    def finish(self, state: Any) -> bool:
        """Finish after the last pass; return whether ``state`` has changed."""


@dataclass
class Stream:
    """A call of ``partial_fit``: the weight of the stream so far, and the batch of the call.

    The fields from ``batch_id`` on are for memoized inference, which keeps a *memo* of each batch
    of rows, its statistics and entropies, and makes *moves*, such as births, which add components.
    """

    # Weight of the rows of the stream so far if ``counts_rows``; otherwise the assumed weight of
    # the whole stream.
    n_rows: float
    # Whether the weight of new rows is added to ``n_rows``.
    counts_rows: bool
    # Weight of the whole stream according to the user, which steps then use in place of ``n_rows``.
    total_samples: float | None = None
    # Id of the batch; None for a new batch.
    batch_id: Hashable | None = None
    # Function that returns the random number generator of this call.
    make_rng: Callable[[], np.random.Generator] = np.random.default_rng
    # Whether moves are tried.
    tries_moves: bool = True
    # Number of rows, at the beginning of the batch, on which births were tried before. Births are
    # tried again only from components whose later rows differ from these rows. None if births do
    # not wait for rows of later calls.
    n_judged: int | None = None
    # Id of an earlier batch, which the rows of this call join after their local step. None if the
    # rows stay a separate batch.
    joined_batch_id: Hashable | None = None
    # If the rows of the call form several batches, the positions of the rows of each batch by its
    # id. Moves are made on a single batch of all rows; after the call the batches are separate.
    rows_of_batches: Mapping[Hashable, IndexArray] = field(default_factory=dict)

    def count_rows(self, weight: float) -> float:
        """Count new rows of this weight; return the weight to which a step scales their statistics.

        The result is ``total_samples`` or, if this is None, ``n_rows`` after the count.
        """
        if self.counts_rows:
            self.n_rows += weight
        return self.total_samples or self.n_rows


class StreamEngine(Protocol[StateT]):
    """An engine of ``partial_fit``."""

    # Capabilities that the engine needs of a model in addition to the contract :class:`Model`.
    requires: tuple[Requirement, ...]

    def start(self, state: Any, total: float) -> StateT:
        """Return ``state`` as an object of the class that the engine uses.

        The method is called at the beginning of each call of ``partial_fit``. ``total`` is
        ``n_rows`` of the :class:`Stream` before the call.
        """

    def update(
        self, model: Any, state: StateT, stream: Stream, inputs: PassInputs
    ) -> tuple[Any, float]:
        """Make steps on the rows ``inputs.data``; return the model and the size of the last step.

        The returned model has the priors learned so far. ``state`` and ``stream`` change in place.
        """
