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
from skvt.files import in_files
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
    # (n, ...): parameters of the local distributions, in CSR if rows have candidates.
    q: Array
    # (n,), float64: the untempered energy with z summed out, as far as the model can, at the
    # expectations of the other variables; None if not requested.
    marginal_energy: Array | None = None
    # (n, ...): start for the next local step of these rows; None for models without starts.
    start: Array | None = None
    # (K,): entropy in nats of the missing values, given the component of their rows, summed like
    # ``stats``; None if no value is missing.
    hidden_entropy: Array | None = None
    # (n, K): expected units of data of each row that belong to each component, untempered; None if
    # the model does not count them.
    counts: Array | None = None
    # (n, J): candidate components of rows in their next local step; None for all components.
    candidates: IndexArray | None = None


@dataclass(frozen=True)
class RowBatch:
    """Rows prepared for local steps; consecutive rows are a view of the data.

    ``candidates`` (n, J) are the components to which rows may belong, -1 for a removed component,
    (n, 0) if none are known yet; None stands for all components. ``start`` (n, ...) are the starts
    of the local steps; NaN or None stands for the default.
    """

    X: Any
    weights: Array
    rows: IndexArray
    candidates: IndexArray | None = field(default=None, kw_only=True)
    start: Array | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, X: Any, rows: IndexArray, weights: Array) -> Self:
        """Return the batch of these rows of X."""
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
        """Units of data of each row, 1."""
        return np.ones(self.n_rows)


class BatchScope(NamedTuple):
    """The part of the globals that a batch needs."""

    # (A,): columns that occur in the batch, ascending; None for all. If it is not None, joint
    # globals of several batches have ``at(places)``, the globals of some of their columns.
    active: IndexArray | None = None
    # Whether values are missing.
    missing: bool = False


class RowSource(Protocol):
    """The rows of a fit, of which models and moves can take subsets."""

    # array or CSR matrix, (N, D)
    @property
    def X(self) -> Any: ...
    # (N,)
    @property
    def weights(self) -> Array: ...
    # N
    @property
    def n_rows(self) -> int: ...
    # Weight of the data set that these rows represent.
    @property
    def total(self) -> float: ...

    def batch(self, model: "Model", rows: IndexArray) -> Any:
        """Return the batch that the model prepares of these rows."""


@in_files("models.Capability")
class Capability(StrEnum):
    """Capabilities beyond :class:`Model`; in errors, values complete the phrase "needs ..."."""

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
    """A model: immutable; arrays in, arrays out."""

    # Family of each block of the globals.
    @property
    def families(self) -> tuple[Family, ...]: ...
    # Columns D of the data.
    @property
    def n_features(self) -> int: ...
    # Precision of the data and of results for rows.
    @property
    def dtype(self) -> Any: ...
    # Further contracts that the model fulfils.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Stats:
        """Return the natural parameters of the prior, a Stats broadcastable to the blocks."""

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = prior + S`` as a tuple of arrays, with events in the last axis."""

    def size(self, stats: RunningStats) -> int:
        """Return the number of components K of these statistics."""

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics that break the symmetry, at random or by the data."""

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Prepare rows of X for local steps: return a dataclass such as :class:`RowBatch`.

        It has ``weights``, ``rows`` and ``lengths``, the units of data of each row, and a ``start``
        if local steps begin where the last ones of the rows ended.
        """

    def scope(self, batch: Any) -> BatchScope:
        """Return the properties of a batch on which its globals, :meth:`expectation`, depend."""

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return the indices of the rows of statistics that a step on X can change, or None."""

    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Any:
        """Return ``E_q[t(beta)]`` at ``lam = prior + stats``, as far as the batch needs it."""

    def mean_field(self) -> "Model":
        """Return the model whose local step gives the bound: this one, unless structured."""

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
        """Optimise q(z) of the batch at this inverse temperature, and return a LocalResult.

        ``inv_temp`` is a float or an array (n,). ``run(function, tasks)`` maps a function over
        tuples of arguments, in parallel or not, and returns the results in order.
        """

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """Return ``(sum, weight)`` of the statistics from which priors are learned, or None."""

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with priors at the maximum of the bound; itself if priors are fixed.

        ``prior_stats.mean`` is the mean of :meth:`prior_statistics`; global priors are learned only
        if the global statistics are passed, too.
        """


class ConjugateModel:
    """Base of models with the defaults that most of them share.

    A subclass defines ``families``, ``n_features``, ``dtype``, ``prior``, ``initial``,
    ``expectation`` and ``local_step``, see :class:`Model`.
    """

    capabilities: Any = frozenset()

    def natural_parameters(self: Any, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = prior + S``."""
        pairs = zip(self.prior().arrays, stats.value().arrays, strict=True)
        return tuple(prior + S for prior, S in pairs)

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
        """Return the scope of all batches, which have the same globals."""
        return BatchScope()

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return None: a step changes all statistics."""
        return None

    def mean_field(self) -> Self:
        """Return this model."""
        return self

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """Return None: no priors are learned from local variables."""
        return None

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return this model: its priors are fixed."""
        return self


class Memoizable(Model, Protocol):
    """A model for memoized inference: its bound follows from sums over batches."""

    def memo_entropy(
        self, batch: Any, result: Any, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return the entropy, by component (K,) or in total, and if requested that lost by merges.

        The second array, (K, K), is the entropy lost if two components are merged.
        """

    def statistics_energy(self, stats: RunningStats, global_params: Any) -> float:
        """Return ``E_q[log p(x, z | beta)]`` of the rows of plain statistics, in nats."""

    def collapsed_energy(self, stats: Stats) -> float:
        """Return ``E_q[log p(x, z | beta)] - KL(q(beta) || p(beta))`` at the best q(beta), nats."""

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return a model and statistics without unused parts, of equal energy and divergence."""

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return the order of components that maximises the bound; None for the current one."""

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Return statistics, for this share of all rows, that separate equal components."""


class Restartable(Memoizable, Protocol):
    """A model that can begin with another number of components."""

    def resized(self, n_components: int) -> Self:
        """Return the model with another number of initial components."""


class Mergeable(Memoizable, Protocol):
    """A model for births, merges and deletes, with q (n, K) and ``X``, ``n_rows`` in batches."""

    def component_masses(self, stats: Stats) -> Array:
        """Return the expected number of rows of each component, (K,)."""

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Return the log evidence gained, apart from weights, by merging b with a, (n,) nats."""

    def weights_log_evidence(self, counts: Array) -> float:
        """Return the log probability of assignments, with the weights summed out, in nats."""

    def given_assignments(self, batch: Any, resp: Array) -> LocalResult:
        """Return the local result of rows with given responsibilities (n, K)."""

    def without_component(self, global_params: Any, k: int) -> Any:
        """Return the globals for a local step that excludes component k."""

    def resized(
        self, n_components: int, *, learns: bool = False, init_params: str = "k-means++"
    ) -> Self:
        """Return the model with other initial components, which ``learns`` priors or not."""

    def with_priors_of(self, other: Any) -> Self:
        """Return the model with the priors of another model."""


class Drawable(Model, Protocol):
    """A model with local steps given drawn globals [HB15 sec. 2]."""

    # Whether a step changes all statistics, not only some of their rows.
    @property
    def updates_all_rows(self) -> bool: ...

    def drawn_globals(
        self, stats: RunningStats, batch: Any, kind: str, rng: np.random.Generator, run: Run
    ) -> Any:
        """Return the globals for a local step, by the kind of the global step.

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
        """Return ``V(beta, lam) eta_hat`` for a draw and the statistics of a local step."""


class Collapsible(Model, Protocol):
    """A model with local steps in which the globals are summed out.

    The local step takes the statistics of all rows as globals. If the batch has a ``start``, the
    step returns the change of statistics since this start. Batches have ``nbytes``. The statistics
    from which priors are learned have an additional last entry.
    """

    def counts_given_others(self, stats: RunningStats, batch: Any, seed: int) -> Any:
        """Return the globals for a local step that draws with random numbers of this seed."""

    def with_most_probable_priors(
        self, prior_stats: Any, stats: RunningStats | None, *, slowly: bool
    ) -> Self:
        """Return the model with the most probable priors given drawn local variables.

        The statistics are those of the local variables. Priors may follow them ``slowly``, as long
        as they change a lot.
        """


class Temperable(Model, Protocol):
    """A model whose temperature can be learned; local steps also take one per row."""

    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) per unit of data, in nats, and its slope in 1/T, (M,) [VT16 eq. 13]."""


class HasHyperprior(Model, Protocol):
    """A model that learns parameters of its priors at the mode of a hyperprior."""

    def log_hyperprior(self) -> float:
        """Return the log density of these parameters in nats, a part of the bound."""


class Requirement(NamedTuple):
    """A capability that an engine, a move or a temperature policy requires of a model."""

    # Name of the engine, move or policy in the error message.
    whom: str
    capability: Capability
    # Remedy for a model without the capability, as a sentence.
    remedy: str


# Contracts of capabilities. Other capabilities only mark kinds of models.
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
    present = {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}
    missing = {*dir(protocol), *getattr(protocol, "__annotations__", ())} - present
    return sorted(name for name in missing if not name.startswith("_"))


def check_requirements(model: Model, requirements: Iterable[Requirement]) -> None:
    """Raise ValueError if the model lacks a requirement or a member of a contract."""
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
