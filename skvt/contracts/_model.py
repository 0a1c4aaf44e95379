"""The contract between a model and the engines, on one page.

A model is conditionally conjugate: with global variables beta and the local variables z of a row,

    E_q[log p(x, z | beta)] = <S, E_q[t(beta)]> + a local term.

q(beta) therefore has the natural parameters ``lam = prior + S``, and an engine does arithmetic on
the statistics S. A local step optimises q(z) of a batch of rows. It does not depend on q(beta)
itself, only on the numbers ``global_params``: ``E_q[t(beta)]`` in mean-field inference, or
``t(beta)`` with beta drawn from q in structured inference.

The inverse temperature multiplies the energy ``E_q[log p(x, z | beta)]`` and the statistics; it
never multiplies the natural parameters of a prior.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from skvt.expfam import Family, RunningStats, Stats
from skvt.files import in_files
from skvt.typing import Array, IndexArray, Run

#: ``(sum, weight)``: weighted sum of the statistics from which priors are learned, and sum of the
#: weights.
PriorTerm: TypeAlias = tuple[Any, float]


@dataclass(frozen=True)
class LocalResult:
    """Result of the local step of n rows."""

    # Expected sufficient statistics summed over the weighted rows; None if not requested.
    stats: Stats | None
    # (n,), float64: part of the tempered bound of each row in nats: inverse temperature times
    # energy, plus entropy. It is not multiplied by the weight of the row.
    bound: Array
    # (n,), float64: ``E_q[log p(x, z | beta)]`` in nats, untempered; None if not requested.
    energy: Array | None
    # (n, ...): parameters of q(z), a CSR matrix if rows have candidates.
    q: Array
    # (n,), float64: untempered energy in nats with z summed out; local variables that the model
    # cannot sum out are at their expectations. None if not requested.
    marginal_energy: Array | None = None
    # (n, ...): start of the next local step of each row; None for models without starts.
    start: Array | None = None
    # (K,): entropy in nats of the missing values given the component of their row, summed over rows
    # with the weights of ``stats``; None if no value is missing.
    hidden_entropy: Array | None = None
    # (n, K): expected number of units of data of each row that belong to each component,
    # untempered; None if the model does not count them.
    counts: Array | None = None
    # (n, J): candidate components of each row in its next local step; None for all components.
    candidates: IndexArray | None = None


@dataclass(frozen=True)
class RowBatch:
    """A batch of rows, prepared for local steps."""

    # (n, D): array or CSR matrix; a view of the data if the rows are consecutive.
    X: Any
    # (n,).
    weights: Array
    # (n,): indices of the rows in the data.
    rows: IndexArray
    # (n, J): components to which each row may belong; -1 is a removed component. None stands for
    # all components, (n, 0) for all components until the local step has found candidates.
    candidates: IndexArray | None = field(default=None, kw_only=True)
    # (n, ...): starts of the local steps; NaN or None stands for the default start.
    start: Array | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, X: Any, rows: IndexArray, weights: Array) -> Self:
        """Return the batch of the rows of X with these indices."""
        may_be_consecutive = rows.size > 0 and rows[-1] - rows[0] == rows.size - 1
        if may_be_consecutive and np.array_equal(rows, np.arange(rows[0], rows[0] + rows.size)):
            # A slice is a view, so that no rows are copied.
            X = X[rows[0] : rows[-1] + 1]
        else:
            X = X[rows]
        return cls(X, np.asarray(weights, dtype=np.float64), rows)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.weights.size

    @property
    def lengths(self) -> Array:
        """Units of data of each row, 1."""
        return np.ones(self.n_rows)


class BatchScope(NamedTuple):
    """The part of the globals that a batch needs."""

    # (A,): columns that occur in the batch, ascending; None for all columns. If a model sets it,
    # its globals have a method ``at(positions)``, which returns the globals of the columns at these
    # positions of ``active``.
    active: IndexArray | None = None
    # Whether values are missing.
    has_missing: bool = False


class RowSource(Protocol):
    """The rows of a fit, from which models and moves can take batches."""

    # (N, D): array or CSR matrix.
    @property
    def X(self) -> Any: ...
    # (N,).
    @property
    def weights(self) -> Array: ...
    # Number of rows N.
    @property
    def n_rows(self) -> int: ...
    # Weight of the data set that these rows represent.
    @property
    def total(self) -> float: ...

    def batch(self, model: "Model", rows: IndexArray) -> Any:
        """Return a batch of the rows with these indices, prepared by the model."""


@in_files("models.Capability")
class Capability(StrEnum):
    """Capabilities of models beyond :class:`Model`.

    The values complete the phrase "needs ..." of error messages.
    """

    MEMOIZABLE = "the bound from statistics and entropies that are kept for each batch"
    MERGEABLE = "the evidence of each component by itself"
    DRAWABLE = "local steps given drawn globals"
    COLLAPSIBLE = "local steps with the globals summed out"
    CORRECTABLE = "the correction of a draw for its dependence on q(beta)"
    TEMPERABLE = "the tempered log partition function of the model"
    SELECTIVE = "local steps by a few of the components"
    LOCAL_SEARCH = "local steps that search anew each time, and may end in other optima"
    GROWING_TOPICS = "topics whose number is found"
    TOPICS = "topics, that is, distributions over words"
    SUMS_OF_COMPONENTS = "rows that are sums of components"
    HYPERPRIOR = "a density of the parameters of its priors"


class Model(Protocol):
    """An immutable model, whose methods take and return arrays."""

    # Family of each block of the globals.
    @property
    def families(self) -> tuple[Family, ...]: ...
    # Number D of columns of the data.
    @property
    def n_features(self) -> int: ...
    # Precision of the data and of the results for rows.
    @property
    def dtype(self) -> Any: ...
    # Capabilities of the model, with whose protocols it complies.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Stats:
        """Return the natural parameters of the prior, broadcastable to the blocks of statistics."""

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = prior + S`` for each block; the last axis has a factor's parameters."""

    def size(self, stats: RunningStats) -> int:
        """Return the number of components K that the statistics have."""

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return initial statistics, in which components differ at random or by the data."""

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Prepare rows of X for local steps: return a dataclass such as :class:`RowBatch`.

        It has ``weights``, ``rows`` and ``lengths``, the number of units of data of each row. It
        also has ``start`` if the local step of a row begins where the last one ended.
        """

    def scope(self, batch: Any) -> BatchScope:
        """Return the part of the globals that the local step of the batch needs."""

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return which rows of the statistics a step on X can change, as indices; None for all."""

    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Any:
        """Return ``E_q[t(beta)]`` at ``lam = prior + stats``, the part that the batch needs.

        It is the whole if ``batch`` is None.
        """

    def mean_field(self) -> "Model":
        """Return the model with mean-field local steps, from which the bound is computed.

        A model without other local steps returns itself.
        """

    def local_step(
        self,
        batch: Any,
        global_params: Any,
        inv_temp: float | Array,
        run: Run,
        *,
        with_energy: bool = False,
        with_marginal: bool = False,
        with_stats: bool = True,
    ) -> LocalResult:
        """Optimise q(z) of the batch at this inverse temperature, and return the result.

        ``inv_temp`` is a float, or an array (n,) with a number for each row. ``run(function,
        tasks)`` calls the function with each tuple of arguments in ``tasks``, perhaps in parallel,
        and returns the results in order. The flags select the optional results.
        """

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """Return the statistics of a batch from which the priors of local variables are learned.

        Return None if these priors are fixed.
        """

    def prior_step(self, rho: float, share: float) -> float:
        """Return the step size of :meth:`prior_statistics` of a minibatch.

        ``rho`` is the step size of the global statistics, and ``share`` is the share of the
        minibatch in the data.
        """

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with the priors that maximise the bound; itself if priors are fixed.

        ``prior_stats.mean`` is the mean of :meth:`prior_statistics`. Priors of the globals are
        learned from ``stats``; they stay if it is None.
        """


class ConjugateModel:
    """Base of models, with the methods that are the same in most of them.

    A subclass defines ``families``, ``n_features``, ``dtype``, ``prior``, ``initial``,
    ``expectation`` and ``local_step``: see :class:`Model`.
    """

    capabilities: Any = frozenset()

    def natural_parameters(self: Any, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = prior + S`` for each block."""
        blocks = zip(self.prior().arrays, stats.value().arrays, strict=True)
        return tuple(prior + S for prior, S in blocks)

    def size(self, stats: RunningStats) -> int:
        """Return the length of the first axis of the statistics, the number of components."""
        return len(stats.arrays[0])

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return the model and the statistics unchanged."""
        return self, stats

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Return the rows as a :class:`RowBatch`."""
        return RowBatch.of(X, rows, weights)

    def scope(self, batch: Any) -> BatchScope:
        """Return the scope of a batch that needs all globals."""
        return BatchScope()

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return None, because a step changes all statistics."""
        return None

    def mean_field(self) -> Self:
        """Return this model."""
        return self

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """Return None, because no priors are learned from local variables."""
        return None

    def prior_step(self, rho: float, share: float) -> float:
        """Return ``rho``: priors are learned as slowly as the globals."""
        return rho

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return this model, because its priors are fixed."""
        return self


class Memoizable(Model, Protocol):
    """A model for memoized inference: its bound can be computed from sums over batches."""

    def memo_entropy(
        self, batch: Any, result: Any, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return two entropies of the local variables of a batch in nats, for its memo.

        The first is the entropy of each component, (K,), or of all local variables, (). The second,
        (K, K), is the entropy that would be lost if two components became one: see `Memo`. It is
        None unless ``pairs``.
        """

    def statistics_energy(self, stats: RunningStats, global_params: Any) -> float:
        """Return ``E_q[log p(x, z | beta)]`` of all rows, in nats.

        ``stats`` are the statistics of the rows at T = 1 with each row counted once.
        """

    def collapsed_energy(self, stats: Stats) -> float:
        """Return the maximum over q(beta) of energy minus ``KL(q(beta) || p(beta))``, in nats.

        If the bound depends on the order of the components, it is the maximum over orders, too.
        """

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return a model and statistics without unused parts, with equal energy and divergence."""

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return the order of components that maximises the bound; None for the current order."""

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Return statistics to add, so that equal components become different.

        They represent the fraction ``share`` of all rows.
        """


class Restartable(Memoizable, Protocol):
    """A model that can begin with other numbers of components."""

    def resized(self, n_components: int) -> Self:
        """Return the model with another number of initial components."""


class Mergeable(Memoizable, Protocol):
    """A model for births, merges and deletes.

    The ``q`` of its local results has the responsibilities (n, K). Its batches have ``X`` and
    ``n_rows``.
    """

    def component_masses(self, stats: Stats) -> Array:
        """Return the expected number of rows of each component, (K,)."""

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of log evidence if b[i] is merged with a[i] alone, for each i, in nats.

        ``a`` and ``b`` (n,) are numbers of components. The evidence of the mixture weights is left
        out.
        """

    def weights_log_evidence(self, counts: Array) -> float:
        """Return the log probability of assignments with these counts (K,), in nats.

        The mixture weights are integrated out, at the best order of the components.
        """

    def given_assignments(self, batch: Any, resp: Array) -> LocalResult:
        """Return the local result of a batch with the responsibilities ``resp`` (n, K)."""

    def without_component(self, global_params: Any, k: int) -> Any:
        """Return the globals for a local step in which no row belongs to component k."""

    def resized(
        self, n_components: int, *, learns: bool = False, init_params: str = "k-means++"
    ) -> Self:
        """Return the model with another number of initial components and another way to find them.

        The model learns its priors only if ``learns``.
        """

    def with_priors_of(self, other: Any) -> Self:
        """Return the model with the priors of another model."""


class Drawable(Model, Protocol):
    """A model with local steps given drawn globals [HB15 sec. 2]."""

    # Whether each step changes all statistics. Otherwise it changes only some rows of them.
    @property
    def updates_all_rows(self) -> bool: ...

    def drawn_globals(
        self, stats: RunningStats, batch: Any, kind: str, rng: np.random.Generator, run: Run
    ) -> Any:
        """Return the globals for a local step.

        They depend on ``kind``, the kind of global step:

        - "mean_field": ``E_q[t(beta)]``,
        - "map": ``t(E_q[beta])``,
        - "ssvi-a": ``t(beta)`` for a draw beta from q,
        - "ssvi": ``t(beta)`` for a draw, with the random numbers of the draw, which
          :meth:`Correctable.corrected` needs.
        """

    def project(self, stats: RunningStats) -> None:
        """Make ``lam = prior + stats`` legal, and order the components, in place."""


class Correctable(Drawable, Protocol):
    """A model for SSVI with the correction V of its steps [HB15 eq. 7], which SSVI-A leaves out."""

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return the corrected statistics ``V(beta, lam) eta_hat`` of a local step.

        ``global_params`` are the globals of the draw beta, and ``result_stats`` the statistics
        eta_hat of the local step.
        """


class Collapsible(Model, Protocol):
    """A model with local steps in which the globals are integrated out.

    A local step draws local variables given all others, and takes the statistics of all rows in
    place of globals. If the batch has a ``start``, the step returns the change of the statistics
    since this start. Batches have ``nbytes``. The statistics from which priors are learned have an
    additional last entry.
    """

    def counts_given_others(self, stats: RunningStats, batch: Any, seed: int) -> Any:
        """Return the ``global_params`` for a local step with random numbers from this seed."""

    def with_most_probable_priors(
        self, prior_stats: Any, stats: RunningStats | None, *, slowly: bool
    ) -> Self:
        """Return the model with priors under which drawn local variables are more probable.

        The arguments are those of :meth:`with_learned_priors`, with the statistics of the drawn
        variables. If ``slowly``, the priors make smaller steps, for use while the statistics still
        change a lot.
        """


class Temperable(Model, Protocol):
    """A model whose temperature can be learned; its local steps also take one for each row."""

    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) per unit of data in nats, and its slope in 1/T [VT16 eq. 13].

        ``inv_temps`` and both results have the shape (M,).
        """


class HasHyperprior(Model, Protocol):
    """A model whose priors have parameters with a prior themselves, a hyperprior.

    The parameters are learned at the mode of their posterior.
    """

    def log_hyperprior(self) -> float:
        """Return the log density of the parameters in nats, a part of the bound."""


class Requirement(NamedTuple):
    """A capability that an engine, a move or a temperature policy requires of a model."""

    # The engine, move or policy as the subject of the error message, such as "A birth".
    whom: str
    capability: Capability
    # Remedy for a model without the capability, as a sentence.
    remedy: str


# The protocol of each capability. Capabilities that are not listed only mark kinds of models.
PROTOCOLS = {
    Capability.MEMOIZABLE: Memoizable,
    Capability.MERGEABLE: Mergeable,
    Capability.DRAWABLE: Drawable,
    Capability.COLLAPSIBLE: Collapsible,
    Capability.CORRECTABLE: Correctable,
    Capability.TEMPERABLE: Temperable,
    Capability.HYPERPRIOR: HasHyperprior,
    Capability.GROWING_TOPICS: Restartable,
}


def missing_members(cls: type, protocol: Any) -> list[str]:
    """Return the names of the members of a protocol that a class does not have."""
    members = {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}
    missing = {*dir(protocol), *getattr(protocol, "__annotations__", ())} - members
    return sorted(name for name in missing if not name.startswith("_"))


def check_requirements(model: Model, requirements: Iterable[Requirement]) -> None:
    """Raise ValueError if the model lacks a required capability, or a member of a protocol.

    The protocols are :class:`Model` and those of the capabilities that the model declares.
    """
    capabilities = model.capabilities
    for whom, capability, remedy in requirements:
        if capability not in capabilities:
            raise ValueError(
                f"{whom} needs {capability.value}, which {type(model).__name__} does not have. "
                f"{remedy}"
            )
    declared = [PROTOCOLS[capability] for capability in PROTOCOLS if capability in capabilities]
    for protocol in (Model, *declared):
        missing = missing_members(type(model), protocol)
        if missing:
            raise ValueError(
                f"{type(model).__name__} has no {', '.join(missing)}, for which "
                f"skvt.contracts.{protocol.__name__} asks. Define what is missing; "
                "skvt.contracts.ConjugateModel has what most models answer alike."
            )
