"""The contract between a model and the engines, on one page.

A model is conditionally conjugate: with global variables beta and the local variables z of a row,

    E_q[log p(x, z | beta)] = <S, E_q[t(beta)]> + a local term,

so that its globals live in natural parameters, ``lam = prior + S``, and an engine is arithmetic on
statistics S. A local step never depends on q(beta) itself, only on the numbers ``global_params``:
``E_q[t(beta)]`` (mean field) or ``t(beta)`` with beta drawn from q (structured inference).

Temperature multiplies the energy ``E_q[log p(x, z | beta)]`` and the statistics; it never
multiplies the natural parameters of a prior.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from skvt.expfam import Family, RunningStats, Stats
from skvt.typing import Array, IndexArray, Run

#: ``(sum, weight)`` of the statistics from which priors are learned.
PriorTerm: TypeAlias = tuple[Any, float]


@dataclass(frozen=True)
class LocalResult:
    """Result of the local step of n rows."""

    # Expected sufficient statistics summed over the weighted rows; None if not requested.
    stats: Stats | None
    # (n,), float64: each row's part of the tempered bound in nats (weights not applied): inverse
    # temperature times energy, plus entropy.
    bound: Array
    # (n,), float64: ``E_q[log p(x, z | beta)]`` in nats, untempered; None if not requested.
    energy: Array | None
    # (n, ...): parameters of the local distributions; in CSR where rows have candidates.
    q: Array
    # (n,), float64: the untempered energy with z summed out at the expectations of the other
    # variables, as far as the model can; None if not requested.
    marginal_energy: Array | None = None
    # (n, ...): start for the next local step of these rows; None for models without starts.
    start: Array | None = None
    # (K,): entropy in nats of the missing values, given the component of their rows, summed like
    # ``stats``; None if no value is missing.
    hidden_entropy: Array | None = None
    # (n, K): expected units of data of each row that belong to each component, untempered; None if
    # the model does not count them.
    counts: Array | None = None
    # (n, J): components by which rows are judged at their next visit; None for all.
    candidates: IndexArray | None = None


@dataclass(frozen=True)
class RowBatch:
    """Rows prepared for local steps; consecutive rows are a view of the data.

    ``candidates`` (n, J) are components by which rows may be judged, -1 where one is gone, (n, 0)
    if there are none yet; without, rows are judged by all. ``start`` (n, ...) is where the local
    steps of rows begin, NaN or None by default.
    """

    X: Any
    weights: Array
    rows: IndexArray
    candidates: IndexArray | None = field(default=None, kw_only=True)
    start: Array | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, X: Any, rows: IndexArray, weights: Array) -> Self:
        """The given rows of X."""
        consecutive = rows.size > 0 and rows[-1] - rows[0] == rows.size - 1
        if consecutive and np.array_equal(rows, np.arange(rows[0], rows[0] + rows.size)):
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
        """A row is one unit of data."""
        return np.ones(self.n_rows)


class BatchScope(NamedTuple):
    """Which globals a batch needs."""

    # (A,): columns that occur in the batch, ascending; None for all. Where there are any, globals
    # of several batches have ``at(places)``: those of some of their columns.
    active: IndexArray | None = None
    # Whether values are missing.
    missing: bool = False


class RowSource(Protocol):
    """The rows of a fit, from which models and moves take some."""

    # array or CSR matrix, (N, D)
    @property
    def X(self) -> Any: ...
    # (N,)
    @property
    def weights(self) -> Array: ...
    # N
    @property
    def n_rows(self) -> int: ...
    # Weight of the rows that these represent.
    @property
    def total(self) -> float: ...

    def batch(self, model: "Model", rows: IndexArray) -> Any:
        """The model's preparation of these rows."""


class Capability(StrEnum):
    """Capabilities of models beyond the contract of all; the value completes "needs ..."."""

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


class Model(Protocol):
    """A model: immutable; arrays in, arrays out."""

    # One for each block of the globals.
    @property
    def families(self) -> tuple[Family, ...]: ...
    # Columns D of the data.
    @property
    def n_features(self) -> int: ...
    # Precision of the data, and of what is answered about rows.
    @property
    def dtype(self) -> Any: ...
    # Which of the contracts below it also fulfils.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Stats:
        """Natural parameters of the prior: a Stats, arrays broadcastable to the blocks."""

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """``lam = prior + S`` as a tuple of arrays, events in the last axis."""

    def size(self, stats: RunningStats) -> int:
        """Number of components K under these statistics."""

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Statistics that break the symmetry, at random or found on the data: a RunningStats."""

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Rows of X, prepared for local steps: a dataclass such as :class:`RowBatch`.

        With ``weights``, ``rows`` and ``lengths``, the units of data of each row; and a ``start``,
        where the local steps of rows begin where the last ones ended.
        """

    def scope(self, batch: Any) -> BatchScope:
        """What of a batch :meth:`expectation` depends on, and what else makes its globals."""

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Indices of the statistics' rows that a step on X can change; None for all."""

    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Any:
        """``E_q[t(beta)]`` under ``lam = prior + stats``, as far as the batch needs it."""

    def mean_field(self) -> "Model":
        """The model whose local step gives the bound: itself but for structured inference."""

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
        """Optimise q(z) of the batch at the given inverse temperature; a LocalResult.

        ``inv_temp`` is a float or an array (n,). ``run(function, tasks)`` maps a function over
        tuples of arguments, in parallel or not, and returns the results in order.
        """

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """``(sum, weight)`` of the statistics from which priors are learned; None without any."""

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """The model with its priors moved to the maximum of the bound; itself if they are given.

        ``prior_stats.mean`` is the mean of :meth:`prior_statistics`; global priors are learned only
        if the global statistics are passed, too.
        """


class ConjugateModel:
    """Base of models: what most of them answer alike.

    A subclass has ``families``, ``n_features``, ``dtype``, ``prior``, ``initial``, ``expectation``
    and ``local_step``, see :class:`Model`.
    """

    capabilities: Any = frozenset()

    def natural_parameters(self: Any, stats: RunningStats) -> tuple[Array, ...]:
        """``lam = prior + S``."""
        pairs = zip(self.prior().arrays, stats.value().arrays, strict=True)
        return tuple(prior + S for prior, S in pairs)

    def size(self, stats: RunningStats) -> int:
        """Components are the first axis of the statistics."""
        return len(stats.arrays[0])

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """As they are."""
        return self, stats

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Rows as they are."""
        return RowBatch.of(X, rows, weights)

    def scope(self, batch: Any) -> BatchScope:
        """All batches have the same globals."""
        return BatchScope()

    def touched_columns(self, X: Any) -> IndexArray | None:
        """A step changes all statistics."""
        return None

    def mean_field(self) -> Self:
        """Itself."""
        return self

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """No priors are learned from local variables."""
        return None

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Priors are given."""
        return self


class Memoizable(Model, Protocol):
    """A model for memoized inference: the bound of all rows is that of sums over batches."""

    def memo_entropy(
        self, batch: Any, result: Any, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Entropy by component (K,) or as a whole; if requested, lost by pairs, (K, K)."""

    def statistics_energy(self, stats: RunningStats, global_params: Any) -> float:
        """``E_q[log p(x, z | beta)]`` of the rows that the plain statistics represent, in nats."""

    def collapsed_energy(self, stats: Stats) -> float:
        """``E_q[log p(x, z | beta)] - KL(q(beta) || p(beta))`` at the best q(beta), in nats."""

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """A model and statistics of the same energy and divergence, without what does not occur."""

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """The order of the components that maximises the bound; None if they are in it."""

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Statistics, for this share of all rows, that make components differ which are equal."""


class Restartable(Memoizable, Protocol):
    """A model that can begin with another number of components."""

    def resized(self, n_components: int) -> Self:
        """The model with another number of initial components."""


class Mergeable(Memoizable, Protocol):
    """A model of components born, merged, deleted; q (n, K), batches with ``X``, ``n_rows``."""

    def component_masses(self, stats: Stats) -> Array:
        """Expected rows of each component, shape (K,)."""

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Log evidence gained, without weights, by merging a (n,) with b (n,), (n,) nats."""

    def weights_log_evidence(self, counts: Array) -> float:
        """Log probability of the assignments with the weights summed out, in nats."""

    def given_assignments(self, batch: Any, resp: Array) -> LocalResult:
        """The local result of rows with given responsibilities, (n, K)."""

    def without_component(self, global_params: Any, k: int) -> Any:
        """The globals as passed to a local step that excludes component k."""

    def resized(
        self, n_components: int, *, learns: bool = False, init_params: str = "k-means++"
    ) -> Self:
        """The model with other initial components; whether it ``learns`` priors."""

    def with_priors_of(self, other: Any) -> Self:
        """The model with the priors of another."""


class Drawable(Model, Protocol):
    """A model whose rows can be solved given drawn globals [HB15 sec. 2]."""

    # Whether a step changes all statistics, not those of some rows alone.
    @property
    def updates_all_rows(self) -> bool: ...

    def drawn_globals(
        self, stats: RunningStats, batch: Any, kind: str, rng: np.random.Generator, run: Run
    ) -> Any:
        """The globals as passed to a local step, by the kind of the global step.

        "mean_field" is ``E_q[t(beta)]``, "map" ``t(E_q[beta])``, "ssvi-a" ``t(beta)`` of a draw
        beta ~ q, and "ssvi" the same with the variates of the draw that
        :meth:`Correctable.corrected` needs.
        """

    def project(self, stats: RunningStats) -> None:
        """Make ``lam = prior + stats`` legal, and components ordered, in place."""


class Correctable(Drawable, Protocol):
    """A model for SSVI proper, whose steps are corrected [HB15 eq. 7]."""

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """``V(beta, lam) eta_hat`` of a draw and a local step's statistics: a Stats."""


class Collapsible(Model, Protocol):
    """A model whose rows can be solved with the globals summed out.

    The local step takes the statistics of all rows for globals. Where the batch has a ``start``,
    its statistics are the change since then. Batches have ``nbytes``. What priors are learned from
    has one entry more than elsewhere, the last.
    """

    def counts_given_others(self, stats: RunningStats, batch: Any, seed: int) -> Any:
        """The globals as passed to a local step that draws by random numbers of this seed."""

    def with_most_probable_priors(
        self, prior_stats: Any, stats: RunningStats | None, *, slowly: bool
    ) -> Self:
        """As :meth:`with_learned_priors`, given the local variables whose statistics these are.

        Priors may follow them ``slowly``, as long as these change a lot.
        """


class Temperable(Model, Protocol):
    """A model whose temperature can be learned; local steps take one for each row, too."""

    # How log C(T) can be computed. "closed_form" is :meth:`tempered_log_partition`, others are for
    # ``estimated_log_partition(inv_temps, method, n_rows, n_units)``.
    @property
    def log_partition_methods(self) -> tuple[str, ...]: ...

    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """log C(T) of a unit of data in nats and its slope in 1/T, (M,) each [VT16 eq. 13]."""


class Requirement(NamedTuple):
    """A capability that an engine, a move or a temperature policy requires of a model."""

    # Who requires it, in words for users.
    whom: str
    capability: Capability
    # What to do if it is missing, as a sentence.
    remedy: str


# What a model that declares a capability has; the others only mark what a model is.
PROTOCOLS = {
    Capability.MEMOIZABLE: Memoizable,
    Capability.MERGEABLE: Mergeable,
    Capability.DRAWABLE: Drawable,
    Capability.COLLAPSIBLE: Collapsible,
    Capability.CORRECTABLE: Correctable,
    Capability.TEMPERABLE: Temperable,
    Capability.GROWING_TOPICS: Restartable,
}


def missing_members(cls: type, protocol: Any) -> list[str]:
    """Names of what a protocol asks for and a class does not have."""
    own = {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}
    asked = {*dir(protocol), *getattr(protocol, "__annotations__", ())} - own
    return sorted(name for name in asked if not name.startswith("_"))


def check_requirements(model: Model, requirements: Iterable[Requirement]) -> None:
    """ValueError for the first requirement, or part of a contract, that the model lacks."""
    capabilities = model.capabilities
    for whom, capability, remedy in requirements:
        if capability not in capabilities:
            raise ValueError(
                f"{whom} needs {capability.value}, which {type(model).__name__} does not have. "
                f"{remedy}"
            )
    protocols = [PROTOCOLS[each] for each in PROTOCOLS if each in capabilities]
    for protocol in (Model, *protocols):
        missing = missing_members(type(model), protocol)
        if missing:
            raise ValueError(
                f"{type(model).__name__} has no {', '.join(missing)}, for which "
                f"skvt.contracts.{protocol.__name__} asks. Define what is missing; "
                "skvt.contracts.ConjugateModel has what most models answer alike."
            )
