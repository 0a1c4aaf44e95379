"""The contract between a model and the engines.

An *engine* is an algorithm of inference, which makes the passes of a fit. A model is conditionally
conjugate: with global variables beta, the *globals*, and the local variables z of a row x,

    E_q[log p(x, z | beta)] = <S, E_q[t(beta)]> + a term without beta.

Here t(beta) are the sufficient statistics of q(beta), and S are the expected statistics of the row,
which depend on x and q(z). With S summed over all rows, q(beta) has the natural parameters
``lam = prior + S``: to update q(beta), an engine only adds and scales statistics. The globals may
consist of several *blocks*, such as the weights and the parameters of the components. Each block
has an exponential family and an array of statistics. :class:`~skvt.expfam.Stats` are the statistics
of some rows, for instance of a batch. :class:`~skvt.expfam.RunningStats` are the statistics of all
rows during a fit, which engines change in place. They are stored as arrays and a scale.

A *local step* optimises q(z) of a batch of rows. It does not depend on q(beta) itself, only on the
numbers ``global_params``: ``E_q[t(beta)]`` in mean-field inference, or ``t(beta)`` with beta drawn
from q in structured inference. Row n has the weight w_n, which multiplies its statistics and its
part of the bound.

The *energy* of a row is ``E_q[log p(x, z | beta)]``. The inverse temperature 1 / T multiplies the
energy and the statistics; it never multiplies the natural parameters of a prior. A *unit of data*
is a token in a model of documents, and a row in other models. In shapes, n is the number of rows of
a batch, N the number of all rows, D the number of columns and K the number of components.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from skvt.expfam import Family, RunningStats, Stats
from skvt.files import in_files
from skvt.typing import Array, IndexArray, Run

#: The pair ``(sum, weight)``: the weighted sum over rows of the statistics from which the priors of
#: local variables are learned, and the sum of the weights of the rows.
PriorTerm: TypeAlias = tuple[Any, float]


@dataclass(frozen=True)
class LocalResult:
    """Result of the local step of a batch of n rows."""

    # The statistics S: weighted sums over the rows, not multiplied by the inverse temperature; None
    # if not requested.
    stats: Stats | None
    # (n,), float64: ``inv_temp * energy + entropy`` of each row in nats, the local part of the
    # tempered bound, with the entropy of q(z). It is not multiplied by the weight of the row.
    bound: Array
    # (n,), float64: energy ``E_q[log p(x, z | beta)]`` of each row in nats, not multiplied by the
    # inverse temperature; None if not requested.
    energy: Array | None
    # (n, ...): parameters of q(z) of each row, such as responsibilities (n, K). A CSR matrix if
    # rows are compared only with their ``candidates``.
    q: Array
    # (n,), float64: energy of each row in nats at T = 1, with z summed out; local variables that
    # the model cannot sum out have their expected values. None if not requested.
    marginal_energy: Array | None = None
    # (n, ...): initial value for the next local step of each row; None if the model always begins
    # local steps anew.
    row_starts: Array | None = None
    # (K,): entropy in nats of the missing values, given that their row belongs to component k,
    # summed over rows like ``stats``; None if no value is missing.
    hidden_entropy: Array | None = None
    # (n, K): expected number of units of data of each row that belong to each component, not
    # multiplied by the inverse temperature; None if the model does not count them.
    counts: Array | None = None
    # (n, J): components with which the next local step compares each row; None for all components.
    candidates: IndexArray | None = None


@dataclass(frozen=True)
class RowBatch:
    """A batch of rows, prepared for local steps."""

    # (n, D): array or CSR matrix; a view of the data if the rows are consecutive.
    X: Any
    # (n,): weights of the rows.
    weights: Array
    # (n,): indices of the rows in the data.
    rows: IndexArray
    # Components with which the local step compares each row:
    # - None: all components.
    # - (n, 0): all components. The result must have candidates for the next local step.
    # - (n, J): the components with these indices; -1 stands for a component that was removed.
    candidates: IndexArray | None = field(default=None, kw_only=True)
    # (n, ...): initial value for the local step of each row; NaN or None stands for the default.
    row_starts: Array | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, X: Any, rows: IndexArray, weights: Array) -> Self:
        """Return the batch of the rows of X with the indices ``rows``, without a copy if possible.

        ``weights`` (n,) are the weights of these rows.
        """
        # Take consecutive rows by a slice, because a slice of an array is a view.
        is_consecutive = rows.size > 0 and bool((rows[1:] - rows[:-1] == 1).all())
        selected = slice(rows[0], rows[-1] + 1) if is_consecutive else rows
        return cls(X[selected], np.asarray(weights, dtype=np.float64), rows)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.weights.size

    @property
    def lengths(self) -> Array:
        """Number of units of data of each row, (n,): 1, because the row is the unit."""
        return np.ones(self.n_rows)


class BatchScope(NamedTuple):
    """The part of the globals that the local step of a batch needs."""

    # (A,): columns of the data that occur in the batch, such as the words of its documents, in
    # ascending order; None if the globals of all columns are needed. With an array, the
    # ``global_params`` of the batch have these columns only, and must have a method
    # ``select_words(positions)``, which returns the ``global_params`` of the columns
    # ``active[positions]``.
    active: IndexArray | None = None
    # Whether values of the batch are missing.
    has_missing: bool = False


class RowSource(Protocol):
    """The rows of a fit, from which models and moves can take batches."""

    # (N, D): array, CSR matrix, or matrix in chunks that are stored elsewhere.
    @property
    def X(self) -> Any: ...
    # (N,): weights of the rows.
    @property
    def weights(self) -> Array: ...
    # Number of rows N.
    @property
    def n_rows(self) -> int: ...
    # Weight of the data set that these rows represent, which is larger than the sum of ``weights``
    # if the rows are a sample.
    @property
    def total(self) -> float: ...

    def batch(self, model: "Model", rows: IndexArray) -> Any:
        """Return a batch of the rows whose indices are ``rows``, prepared by the model."""


@in_files("models.Capability")
class Capability(StrEnum):
    """Capabilities that only some models have, in addition to the protocol :class:`Model`.

    Most capabilities require further methods: ``PROTOCOLS`` has the protocol of each of them. The
    values complete the phrase "needs ..." of error messages.
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

    # Exponential family of each block of the globals, in the order of the arrays of statistics.
    @property
    def families(self) -> tuple[Family, ...]: ...
    # Number D of columns of the data.
    @property
    def n_features(self) -> int: ...
    # Type of the numbers in the data and in the results for rows: float32 or float64.
    @property
    def dtype(self) -> Any: ...
    # Capabilities of the model. The model must have the members of their protocols.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Stats:
        """Return the natural parameters of the prior, an array for each block of the globals.

        Each array can be broadcast to the array of statistics of its block.
        """

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = prior + S``, an array for each block of the globals.

        q(beta) is a product of factors. The last axis of each array has the natural parameters of
        one factor; the other axes count the factors of the block.
        """

    def size(self, stats: RunningStats) -> int:
        """Return the number of components K that the statistics have."""

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return the statistics with which a fit to ``data`` begins.

        The components must differ, because equal components would remain equal.
        """

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Prepare the rows of X with the indices ``rows`` for local steps; return them as a batch.

        ``weights`` (n,) are the weights of these rows. The batch is a dataclass such as
        :class:`RowBatch`, with the attributes ``weights``, ``rows``, and ``lengths``, the number of
        units of data of each row. It also has ``row_starts`` if the local step of a row begins
        where the last local step of the same row ended.
        """

    def scope(self, batch: Any) -> BatchScope:
        """Return the part of the globals that the local step of the batch needs."""

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return the columns whose statistics a step on the rows X changes.

        The columns are ascending indices, for instance of the words that occur in X. Return None if
        a step changes all statistics.
        """

    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Any:
        """Return ``E_q[t(beta)]`` for ``lam = prior + stats``, the mean-field ``global_params``.

        The result has only the part that the local step of ``batch`` needs. If ``batch`` is None,
        the result is complete.
        """

    def mean_field(self) -> "Model":
        """Return the model with mean-field local steps, by which the bound is evaluated.

        A model whose local steps are mean-field steps returns itself.
        """

    def local_step(
        self, batch: Any, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Optimise q(z) of the batch at this inverse temperature, and return the result.

        ``inv_temp`` is a float, or an array (n,) with a number for each row. ``run(function,
        tasks)`` calls the function with each tuple of arguments in ``tasks``, perhaps in parallel,
        and returns the results in order. The flags request the fields ``energy``,
        ``marginal_energy`` and ``stats`` of the result.
        """

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """Return the statistics of a batch from which the priors of local variables are learned.

        ``result`` is the local result of the batch. Return None if these priors are fixed.
        """

    def prior_step(self, rho: float, share: float) -> float:
        """Return the size of a step of the statistics from which priors are learned.

        Stochastic inference moves the statistics S by the step size ``rho``, and the mean of
        :meth:`prior_statistics` by the returned step size, towards their values in a minibatch.
        ``share`` is the share of the minibatch in the weight of the data.
        """

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with the priors that maximise the bound, or itself if they are fixed.

        Priors of local variables are learned from ``prior_stats.mean``, the mean of
        :meth:`prior_statistics` over rows. Priors of the globals are learned from the statistics
        ``stats``, and stay if ``stats`` is None.
        """


class ConjugateModel:
    """Base of models, with the methods that are the same in most models.

    A subclass defines ``families``, ``n_features``, ``dtype``, ``prior``, ``initial``,
    ``expectation`` and ``local_step``, which :class:`Model` explains.
    """

    capabilities: Any = frozenset()

    def natural_parameters(self: Any, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = prior + S``, an array for each block of the globals."""
        blocks = zip(self.prior().arrays, stats.as_stats().arrays, strict=True)
        return tuple(prior + S for prior, S in blocks)

    def size(self, stats: RunningStats) -> int:
        """Return the length of the first axis of the statistics, the number of components."""
        return len(stats.arrays[0])

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return the model and the statistics unchanged, because rows use all of their parts."""
        return self, stats

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Return the rows as a :class:`RowBatch`."""
        return RowBatch.of(X, rows, weights)

    def scope(self, batch: Any) -> BatchScope:
        """Return the scope of a batch whose local step needs all globals."""
        return BatchScope()

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return None, because a step changes all statistics."""
        return None

    def mean_field(self) -> Self:
        """Return this model."""
        return self

    def prior_statistics(self, batch: Any, result: LocalResult) -> PriorTerm | None:
        """Return None, because no priors of local variables are learned."""
        return None

    def prior_step(self, rho: float, share: float) -> float:
        """Return ``rho``, so that priors are learned as slowly as the globals."""
        return rho

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return this model, because its priors are fixed."""
        return self

    def for_births(self, stats: Stats) -> Self:
        """Return this model, which is the model for births from any component."""
        return self


class Memoizable(Model, Protocol):
    """A model for memoized inference: its bound can be computed from sums over batches.

    Memoized inference keeps a *memo* of each batch: the statistics and entropies after the last
    local step of the batch.
    """

    def memo_entropy(
        self, batch: Any, result: Any, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return the entropy of a batch and the losses of entropy by merges, in nats.

        ``result`` is the local result of the batch. The entropy of the local variables has an entry
        for each component, (K,), or is a single number, (). The losses (K, K) are None unless
        ``pairs``. Their entry (a, b), for a < b, is the entropy that would be lost if components a
        and b became one.
        """

    def statistics_energy(self, stats: RunningStats, global_params: Any) -> float:
        """Return the energy ``E_q[log p(x, z | beta)]`` of all rows, in nats.

        ``stats`` are the statistics of the rows at T = 1 with each row counted once, and
        ``global_params`` are ``E_q[t(beta)]``.
        """

    def collapsed_energy(self, stats: Stats) -> float:
        """Return the maximum over q(beta) of energy minus ``KL(q(beta) || p(beta))``, in nats.

        The energy is the energy of all rows with the statistics ``stats``. If the bound depends on
        the order of the components, return the maximum over all orders.
        """

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return a smaller model and its statistics, without parts that no row uses.

        An example of such a part is a word that occurs in no document. The energy and the
        divergence are the same as before, and cost less to evaluate.
        """

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return the order of components that maximises the bound; None for the current order.

        The order is an array (K,) of the current indices of the components.
        """

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Return statistics that make equal components different if they are added to ``stats``.

        The returned statistics represent the fraction ``share`` of all rows.
        """


class Restartable(Memoizable, Protocol):
    """A model that can begin a fit with another number of components."""

    def resized(self, n_components: int) -> Self:
        """Return the model with another number of initial components."""


class Mergeable(Memoizable, Protocol):
    """A model for the moves that add, merge and delete components.

    The ``q`` of its local results has the responsibilities (n, K). Its batches have ``X`` and
    ``n_rows``.
    """

    def component_masses(self, stats: Stats) -> Array:
        """Return the expected number of rows of each component, (K,)."""

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of log evidence in nats by each of n possible merges, (n,).

        Merge i gives the rows of component b[i] to component a[i], and changes no other component.
        The evidence of the mixture weights is left out.
        """

    def weights_log_evidence(self, counts: Array) -> float:
        """Return the log probability in nats of the assignments of all rows to components.

        The assignments give ``counts[k]`` rows to component k. The mixture weights are integrated
        out, and the components are in the order for which the probability is largest.
        """

    def make_local_result(self, batch: Any, resp: Array) -> LocalResult:
        """Return the local result of a batch whose responsibilities are ``resp`` (n, K)."""

    def without_component(self, global_params: Any, k: int) -> Any:
        """Return ``global_params`` that give component k the probability 0 for every row."""

    def resized(
        self, n_components: int, *, learns_priors: bool = False, init_params: str = "k-means++"
    ) -> Self:
        """Return the model with other settings for the beginning of a fit.

        ``n_components`` is the number of initial components, ``init_params`` is the method that
        finds them, and ``learns_priors`` is whether the model learns its priors.
        """

    def with_priors_of(self, other: Any) -> Self:
        """Return the model with the priors of another model."""

    def for_births(self, stats: Stats) -> Self:
        """Return the model for births from some components, whose statistics are ``stats``.

        A birth from a component tries to replace it by several new components.
        """


class Drawable(Model, Protocol):
    """A model with local steps given drawn globals [HB15 sec. 2]."""

    # Whether each step changes all rows of the arrays of statistics. Otherwise a row belongs to a
    # column of the data, and a step changes the rows of the columns that occur in its batches.
    @property
    def updates_all_rows(self) -> bool: ...

    def drawn_globals(
        self, stats: RunningStats, batch: Any, kind: str, rng: np.random.Generator, run: Run
    ) -> Any:
        """Return the ``global_params`` for the local step of a batch.

        ``kind``, the kind of the global step, determines what ``global_params`` are:

        - "mean_field": ``E_q[t(beta)]``,
        - "map": ``t(E_q[beta])``,
        - "ssvi-a": ``t(beta)`` for a draw beta from q,
        - "ssvi": ``t(beta)`` for a draw, with the random numbers of the draw, which
          :meth:`Correctable.corrected` needs.
        """

    def project(self, stats: RunningStats) -> None:
        """Change ``stats`` in place: make ``lam = prior + stats`` legal, and sort the components.

        A step with the correction V of a draw may overshoot, so that ``lam`` becomes illegal.
        """


class Correctable(Drawable, Protocol):
    """A model for structured stochastic inference, SSVI, with a correction V [HB15 eq. 7].

    The correction accounts for the dependence of the draw beta on ``lam``. The approximation SSVI-A
    leaves it out.
    """

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return the corrected statistics ``V(beta, lam) eta_hat`` of a local step.

        ``global_params`` are the result of :meth:`Drawable.drawn_globals` for the draw beta, and
        ``result_stats`` are the statistics eta_hat of the local step.
        """


class Collapsible(Model, Protocol):
    """A model with local steps in which the globals are integrated out.

    A local step draws each local variable given all others. Its ``global_params`` hold the
    statistics of all rows. If an earlier local step has drawn the local variables of a batch, the
    ``row_starts`` of the batch are the earlier draws, and the statistics in the result are the
    change since the earlier step.

    Batches have ``nbytes``, their size in bytes. The first member of :meth:`prior_statistics`, the
    sum over rows, has one entry more than in other models. It is the last entry, and
    :meth:`with_most_probable_priors` learns from it.
    """

    def counts_given_others(self, stats: RunningStats, batch: Any, seed: int) -> Any:
        """Return the ``global_params`` for a local step of the batch.

        The random numbers of the local step follow from ``seed``.
        """

    def with_most_probable_priors(
        self, prior_stats: Any, stats: RunningStats | None, *, slowly: bool
    ) -> Self:
        """Return the model with priors under which the drawn local variables are more probable.

        ``prior_stats`` and ``stats`` are as in :meth:`with_learned_priors`. The priors make smaller
        steps if ``slowly``, which is for statistics that still change a lot.
        """


class Temperable(Model, Protocol):
    """A model whose temperature can be learned, for all rows or for each row."""

    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) per unit of data in nats, and its derivative by 1 / T [VT16 eq. 13].

        C(T) is the normalising constant of the tempered model. ``inv_temps`` are M values of 1 / T,
        and both results have the shape (M,).
        """


class HasHyperprior(Model, Protocol):
    """A model whose priors have parameters with a prior, a hyperprior.

    The learned values of the parameters are the mode of their posterior.
    """

    def log_hyperprior(self) -> float:
        """Return the log density of the parameters under the hyperprior in nats.

        The bound includes this density.
        """


class Requirement(NamedTuple):
    """A capability that an engine, a move or a temperature policy requires of a model."""

    # The engine, move or policy, as the subject of the sentence of an error, such as "A birth".
    subject: str
    capability: Capability
    # What the user can do if the model lacks the capability, as a sentence.
    remedy: str


# The protocol of each capability. Capabilities that are not listed require no further methods.
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
    # ``dir`` does not list fields without defaults.
    members = {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}
    missing = {*dir(protocol), *getattr(protocol, "__annotations__", ())} - members
    return sorted(name for name in missing if not name.startswith("_"))


def check_requirements(model: Model, requirements: Iterable[Requirement]) -> None:
    """Raise ValueError if the model lacks a required capability, or a member of a protocol.

    The protocols are :class:`Model` and the protocols of the capabilities that the model declares.
    """
    capabilities = model.capabilities
    for subject, capability, remedy in requirements:
        if capability not in capabilities:
            raise ValueError(
                f"{subject} needs {capability.value}, which {type(model).__name__} does not have. "
                f"{remedy}"
            )
    declared = [PROTOCOLS[capability] for capability in PROTOCOLS if capability in capabilities]
    for protocol in (Model, *declared):
        missing = missing_members(type(model), protocol)
        if missing:
            raise ValueError(
                f"{type(model).__name__} lacks {', '.join(missing)}, which "
                f"skvt.contracts.{protocol.__name__} requires. Define what is missing; the base "
                "class skvt.contracts.ConjugateModel has what most models share."
            )


def require_one_temperature(inv_temp: float | Array) -> None:
    """Raise ValueError if a policy gives each row its own temperature, for models without them."""
    if np.ndim(inv_temp):
        raise ValueError(
            "The temperature policy returned inverse temperatures of single rows, an array of "
            f"shape {np.shape(inv_temp)}, but the local steps of this estimator take one number "
            "for all rows of a batch. Return a number from 'inv_temp' of the running policy; "
            "StructuredLDA takes an array with local_step='mean_field'."
        )
