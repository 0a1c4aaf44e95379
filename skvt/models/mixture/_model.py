"""Mixtures of exponential families, under a Dirichlet process or with other weights.

    v_k ~ Beta(1, alpha),  w_k = v_k prod_{l<k} (1 - v_l)      sticks, global
    phi_k ~ H(eta)                                             components, global
    z_n ~ Cat(w),  x_n ~ F(phi_{z_n})

[HS13 sec. 2]. Mean field with nested truncation: q(z_n = k) = 0 for k > K, and no mass is forced
on the last component, so that a further component without rows changes nothing. The parameters of
the weights, and whether there may be more than K components, are defined in
:mod:`skvt.models.mixture._weights`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from skvt.contracts import (
    Capability,
    Completion,
    Component,
    ConjugateModel,
    LocalResult,
    RowBatch,
    RowSource,
    Weights,
)
from skvt.expfam import Family, RunningStats, Stats
from skvt.files import COMPONENTS, in_files
from skvt.models.mixture._candidates import has_candidates, step_of_candidates
from skvt.models.mixture._gaussian_learner import suits
from skvt.models.mixture._kernels import assignment_entropy, responsibilities
from skvt.models.mixture._learned_priors import PriorLearner, with_learned_concentration
from skvt.models.mixture._seeds import distinct_rows, memberships_of_seeds
from skvt.models.mixture._weights import SeparateSticks
from skvt.rows import of_each_row, pieces, some_rows
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray, Run

# Rows whose features are held at a time: they fit the cache, and matrix products are efficient.
ROWS_PER_CHUNK = 512
# Rows of a parallel task of the entropies.
_ROWS_PER_TASK = 4096
# Maximum number of parallel tasks of a batch, each of which has a copy of the statistics.
MOST_TASKS = 8
# Maximum number of rows on which initial components are found.
ROWS_TO_START = 10_000
# Maximum number of updates of missing values for given responsibilities, and the gain in nats per
# row below which they end.
_COMPLETIONS = 40
_COMPLETIONS_OF_SEEDS = 3
_COMPLETION_TOL = 1e-4
# Maximum number of data-augmentation sweeps of an imputation.
_MOST_SWEEPS = 30
# E[log w] of an excluded component.
_NEVER = -1e30
# E[log w] and the table.
_Params: TypeAlias = tuple[Array, Array]


@in_files("models.Mixture")
@dataclass(frozen=True)
class Mixture(ConjugateModel):
    """A mixture for the engines.

    Statistics are counts (K,) and sums of features (K, P), both float64. ``global_params`` is the
    pair of E[log w] (K,) and the table (K, P) whose product with the features is
    E[log p(x | phi_k)].
    """

    weights: Weights
    # Likelihood and prior of the components.
    component: Component
    # Number of initial components, and the method that finds them, see `memberships_of_seeds`.
    n_initial: Annotated[int, COMPONENTS] = 1
    init_params: str = "k-means++"
    # Minimum number of initial components; components without rows are added up to it.
    n_fewest: Annotated[int, COMPONENTS] = 1
    # Initial statistics; None if they are computed from the rows.
    start: Stats | None = None
    # Learner of the components' prior; None if the prior is fixed.
    learner: PriorLearner | None = None
    # Whether the concentration of the sticks is learned.
    learns_concentration: bool = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return MERGEABLE if the weights allow moves, and TEMPERABLE if log C(T) is known."""
        of_weights = self.weights.capabilities
        tempered = of_weights & self.component.capabilities
        always = frozenset({Capability.MEMOIZABLE, Capability.SELECTIVE, Capability.HYPERPRIOR})
        return always | (of_weights & {Capability.MERGEABLE}) | tempered

    @property
    def families(self) -> tuple[Family, ...]:
        return self.weights.family, self.component.family

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the data and of responsibilities; everything else is in double precision."""
        return self.component.dtype

    @property
    def n_features(self) -> int:
        return self.component.n_features

    def validate(self, d: int, k: int) -> bool:
        of_counts = type(self.weights) is not SeparateSticks
        return of_counts and suits(self.learner, self.component)

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics."""
        width = self.component.gather(self.component.prior).shape[-1]
        return [(n_components,), (n_components, width)]

    # ------------------------------------------------------------------------------- globals
    def prior(self) -> Stats:
        return Stats((self.weights.prior(), self.component.prior[None]))

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        counts, sums = stats.value().arrays
        return self.weights.natural_parameters(counts), self.component.natural_parameters(sums)

    def expectation(self, stats: RunningStats, batch: RowBatch, run: Run) -> _Params:
        """Return E[log w_k] and the table of E[log p(x | phi_k)]."""
        weights, components = self.natural_parameters(stats)
        t = self.weights.family.expectation(weights)
        log_weights = self.weights.log_weights(t)[: len(components)]
        return log_weights, self.component.table(components)

    def row_globals(self, stats: RunningStats, batch: RowBatch, run: Run) -> Any:
        """Return the globals for rows after the fit, the same as during it."""
        return self.expectation(stats, batch, run)

    def component_masses(self, stats: Stats) -> Array:
        return stats.arrays[0]

    def without_component(self, global_params: _Params, k: int) -> _Params:
        log_weights, table = global_params
        log_weights = log_weights.copy()
        log_weights[k] = _NEVER
        return log_weights, table

    def statistics_energy(self, stats: RunningStats, global_params: _Params) -> float:
        counts, sums = stats.value().arrays
        return float(counts @ global_params[0] + np.einsum("kp,kp->", sums, global_params[1]))

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        return self.component.merge_gains(stats.arrays[1], a, b)

    def weights_log_evidence(self, counts: Array) -> float:
        return self.weights.log_evidence(counts)

    def collapsed_energy(self, stats: Stats) -> float:
        """Return the evidence of weights and components, the bound less entropies [HS13 eq. 8].

        The log density of the parameters of the components' prior is included.
        """
        counts, sums = stats.arrays
        of_components = self.component.log_evidence(sums).sum() + self.log_hyperprior()
        return float(of_components + self.weights_log_evidence(counts))

    def log_hyperprior(self) -> float:
        return self.component.log_hyperprior

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        counts = stats.value().arrays[0]
        order = self.weights.order(counts)
        return None if np.array_equal(order, np.arange(order.size)) else order

    # --------------------------------------------------------------------------------- rows
    def memo_entropy(
        self, batch: RowBatch, result: LocalResult, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return the entropy of each component's assignments (K,) and, if requested, of pairs.

        See :func:`skvt.models.mixture._kernels.assignment_entropy`. The entropy of missing values
        is included. Pairs lose nothing of it: after a merge, q of a missing value is the mixture of
        both distributions, whose entropy is at least the mean of their entropies.
        """
        resp: Any = result.q
        n_components = resp.shape[1]
        components = np.arange(n_components, dtype=np.int32)[None]
        if sp.issparse(resp):
            components, resp = (a.reshape(batch.n_rows, -1) for a in (resp.indices, resp.data))
        tasks = []
        for rows in pieces(batch.n_rows, _ROWS_PER_TASK):
            of_rows = components[rows] if len(components) > 1 else components
            out = np.zeros(n_components), np.zeros((n_components, n_components))
            tasks.append((resp[rows], of_rows, batch.weights[rows], pairs, *out))
        run(assignment_entropy, tasks)
        entropy = np.sum([task[4] for task in tasks], axis=0)
        if result.hidden_entropy is not None:
            entropy = entropy + result.hidden_entropy
        return entropy, np.sum([task[5] for task in tasks], axis=0) if pairs else None

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: RowBatch, global_params: _Params, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Compute responsibilities; ``q`` of the result is (n, K), CSR if rows have candidates."""
        log_weights, completion = global_params[0], self.component.completion(global_params[1])
        inv_temps = np.atleast_1d(np.asarray(inv_temp, np.float64))
        if has_candidates(batch, completion, log_weights.size, inv_temps):
            return step_of_candidates(
                self.component, batch, *global_params[:2], run, with_stats=with_stats,
                with_marginal=with_marginal,
            )  # fmt: skip
        table = np.ascontiguousarray(global_params[1].T)
        bound, energy = np.empty((2, batch.n_rows))
        resp = np.empty((batch.n_rows, log_weights.size), self.dtype)
        params, out = (log_weights, table, completion), (resp, bound, energy)
        total = _Total() if with_stats else None
        tasks = [
            (self.component, batch, rows, params, inv_temps, out, total and partial(total.add, i))
            for i, rows in enumerate(_tasks(batch.n_rows))
        ]
        run(_local_task, tasks)
        stats = hidden_entropy = None
        if total is not None:
            counts, sums, hidden = total.arrays
            stats = Stats((counts, sums))
            hidden_entropy = None if completion is None else hidden
        marginal = bound / inv_temps if with_marginal else None
        return LocalResult(stats, bound, energy, resp, marginal, hidden_entropy=hidden_entropy)

    def given_assignments(self, batch: RowBatch, resp: Array) -> LocalResult:
        stats, hidden_entropy = self._completed(batch, resp, _COMPLETIONS)
        unknown = np.full(batch.n_rows, np.nan)
        return LocalResult(stats, unknown, unknown, resp, hidden_entropy=hidden_entropy)

    def _completed(
        self, batch: RowBatch, resp: Array, most_steps: int
    ) -> tuple[Stats, Array | None]:
        """Return statistics at given responsibilities (n, K) and entropies of missing values (K,).

        Updates of q of the missing values and of the components alternate, starting at the prior.
        """
        component, weighted = self.component, resp * batch.weights[:, None]
        sums = component.weighted_sums(batch.X, weighted)
        stats, hidden_entropy = Stats((weighted.sum(axis=0), sums)), None
        table = np.repeat(component.table(component.prior[None]), resp.shape[1], axis=0)
        least, previous = _COMPLETION_TOL * batch.weights.sum(), -np.inf
        for step in range(most_steps):
            completion = component.completion(table)
            holes = None if completion is None else completion(batch.X, np.ones(1))
            if holes is None:
                break
            logits, entropy = np.zeros((2, *resp.shape))
            holes.add_to(logits, entropy)
            hidden_entropy = (weighted * entropy).sum(axis=0)
            stats = Stats((stats.arrays[0], sums.copy()))
            holes.add_statistics(weighted, stats.arrays[1])
            if step == most_steps - 1:
                break
            bound = hidden_entropy.sum() + self.collapsed_energy(stats)
            if bound - previous < least:
                break
            previous, table = bound, component.table(component.natural_parameters(stats.arrays[1]))
        return stats, hidden_entropy

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with priors of higher evidence, if two components or more have rows."""
        if stats is None or not (self.learner or self.learns_concentration):
            return self
        value = stats.value()
        counts, sums = self.component_masses(value), value.arrays[1]
        # compare with half a row, because the count of one row may be rounded
        if (counts > 0.5).sum() < 2:
            return self
        component, weights = self.component, self.weights
        if self.learner is not None:
            component = self.learner.learned(component, sums[counts > 0.0])
        if self.learns_concentration:
            weights = with_learned_concentration(weights, counts)
        return replace(self, weights=weights, component=component)

    # --------------------------------------------------------------------------- temperature
    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) of one row in nats and its slope in b = 1/T, (M,) each [VT16 app. C].

        ``C(T) = sum_k w_k^b int p(x | phi_k)^b dx`` is known only for known weights and components
        whose integral does not depend on phi_k. Otherwise T cannot be learned.
        """
        b = np.asarray(inv_temps, np.float64)
        weights: Any = self.weights
        component: Any = self.component  # both are TEMPERABLE
        of_weight, slope = weights.log_partition(b)
        of_row, slope_of_row = component.log_partition(b)
        return of_weight + of_row, slope + slope_of_row

    # ------------------------------------------------------------------------- initial values
    def resized(
        self, n_components: int, *, learns: bool = False, init_params: str = "k-means++"
    ) -> Self:
        """Return the model with ``n_components`` initial components found by ``init_params``.

        Its priors stay those learned so far, under which moves compare components, unless
        ``learns`` is set.
        """
        return replace(
            self, n_initial=n_components, init_params=init_params, start=None,
            learner=self.learner if learns else None,
            learns_concentration=self.learns_concentration and learns,
        )  # fmt: skip

    def with_priors_of(self, other: "Mixture") -> Self:
        return replace(self, weights=other.weights, component=other.component)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics of K components found on a sample, scaled to all rows."""
        if self.start is not None:
            return RunningStats(self._with_fewest(self.start.arrays))
        rows = np.arange(data.n_rows)
        if data.n_rows > ROWS_TO_START:
            rows = np.sort(rng.choice(data.n_rows, ROWS_TO_START, replace=False))
        batch = data.batch(self, rows)
        stats = self.seeded_statistics(batch, self.n_initial, self.init_params, rng)
        factor = data.total / batch.weights.sum()
        return RunningStats([factor * a for a in self._with_fewest(stats.arrays)])

    def seeded_statistics(
        self, batch: RowBatch, n_components: int, init_params: str, rng: np.random.Generator
    ) -> Stats:
        """Return the statistics of at most ``n_components`` seeds whose bound is highest."""
        X, weights = distinct_rows(self.component, batch.X, batch.weights)
        rows = self.batch(X, np.arange(weights.size), weights)
        seeds = memberships_of_seeds(self.component, X, weights, n_components, init_params, rng)
        proposals = [self._completed(rows, resp, _COMPLETIONS_OF_SEEDS)[0] for resp in seeds]
        chosen = proposals[0]
        best = self.collapsed_energy(chosen) if len(proposals) > 1 else 0.0
        for proposal in proposals[1:]:
            bound = self.collapsed_energy(proposal)
            if exceeds(bound, best, scale=float(weights.sum())):
                chosen, best = proposal, bound
        return chosen

    def _with_fewest(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the statistics, padded with components without rows up to ``n_fewest``."""
        missing = max(0, self.n_fewest - arrays[0].size)
        return [np.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)) for a in arrays]

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Return statistics of a random row per component, weighted by a share of its count.

        Added to the statistics, they separate components that a high temperature has made equal.
        Independent noise on the statistics could yield sums that no rows have, such as squares that
        are too small for their means.
        """
        counts = share * stats.value().arrays[0]
        rows = self._random_rows(data, counts.size, rng)
        features = self.component.filled_features(data.batch(self, rows).X)
        features = features.toarray() if sp.issparse(features) else features
        return Stats((counts, counts[:, None] * features))

    def _random_rows(self, data: RowSource, number: int, rng: np.random.Generator) -> IndexArray:
        """Draw indices of rows by weight, spread over the data.

        The rows are sorted by a random projection, and one row is drawn from each of ``number``
        parts of equal weight. The draws therefore depend neither on the order of rows nor on
        whether a row occurs twice or has weight 2.
        """
        component = self.component
        first, _ = some_rows(data.X, data.weights, np.zeros(1, np.intp))
        direction = rng.standard_normal(component.features(first).shape[1])
        positions = of_each_row(data.X, data.weights, partial(_projected, component, direction))
        order = np.argsort(positions, kind="stable")
        below = np.cumsum(np.asarray(data.weights)[order])
        shares = (rng.permutation(number) + rng.random(number)) / number
        ranks = np.searchsorted(below, below[-1] * shares, side="right")
        return order[np.minimum(ranks, data.n_rows - 1)]

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, X: Any, stats: RunningStats, run: Run) -> Array:
        """Return ``log(sum_k E[w_k] p(x | rows of k) + E[w_new] p(x | prior))`` in nats, (n,)."""
        predictive = self._predictive(stats)
        return _of_rows(X, lambda rows: logsumexp(predictive.log_joint(rows), axis=1), (), run)

    def _predictive(self, stats: RunningStats) -> "_Predictive":
        """Return the posterior predictive mixture of the components and one without rows."""
        weights, components = self.natural_parameters(stats)
        weights = self.weights.mean(weights)[: len(components)]
        weights = np.append(weights, max(0.0, 1.0 - weights.sum()))
        components = self.component.apart(np.concatenate([components, self.component.prior[None]]))
        with np.errstate(divide="ignore"):
            return _Predictive(self.component, components, np.log(weights))

    def imputed(self, X: Array, stats: RunningStats, run: Run) -> Array:
        """Return rows with missing values at predictive means, or most probable categories."""
        predictive = self._predictive(stats)
        return _of_rows(X, predictive.imputed, X.shape[1:], run)

    def column_probabilities(self, X: Array, stats: RunningStats, column: int, run: Run) -> Array:
        """Return predictive probabilities of a column's categories, (n, C)."""
        predictive = self._predictive(stats)
        component: Any = self.component  # has columns of categories

        def by_component(rows: Array) -> Array:
            values: Array = component.column_probabilities(predictive.components, column, rows)
            return values

        def by_row(rows: Array) -> Array:
            memberships, probabilities = predictive.memberships(rows), by_component(rows)
            if probabilities.ndim == 2:
                return memberships @ probabilities
            return np.einsum("nk,nkc->nc", memberships, probabilities)

        return _of_rows(X, by_row, by_component(X[:1]).shape[-1:], run)

    def completed(
        self, X: Array, stats: RunningStats, rng: np.random.Generator, *, of_fit: bool = False
    ) -> Array:
        """Draw the missing values given one draw of the globals from q for all rows.

        Under full covariances q counts missing values as observed, so that its variance is too
        small. If the rows are those ``of_fit``, globals given the completed rows and values given
        the globals are therefore drawn in turn, until the draws have the variance that q lacks:
        data augmentation [TannerWong87].
        """
        rows, resp = self._drawn(stats, rng).completed(X, rng)
        filled = self.component.with_completed(X, rows) if of_fit else X
        share = float((np.isnan(X) & ~np.isnan(filled)).mean(axis=0).max())
        for _ in range(_sweeps(share)):
            batch = self.batch(filled, np.arange(len(X)), np.ones(len(X)))
            stats_of_rows = self._completed(batch, resp, _COMPLETIONS_OF_SEEDS)[0]
            drawn = self._drawn(RunningStats(stats_of_rows.arrays), rng)
            rows, resp = drawn.completed(X, rng)
            filled = self.component.with_completed(X, rows)
        return rows

    def _drawn(self, stats: RunningStats, rng: np.random.Generator) -> "_Predictive":
        """Return the mixture given one draw of its globals; a new component is integrated out."""
        weights, components = self.natural_parameters(stats)
        drawn = self.weights.weights_of(self.weights.family.sample(weights, rng))
        drawn = np.ravel(drawn)[: len(components)]
        drawn = np.append(drawn, max(0.0, 1.0 - drawn.sum()))
        component, known = self.component.drawn(components, rng)
        known = np.concatenate([known, self.component.prior[None]])
        with np.errstate(divide="ignore"):
            return _Predictive(component, known, np.log(drawn))


def _tasks(n_rows: int) -> list[slice]:
    """Return slices of rows that depend on the number of rows alone."""
    chunks = -(-n_rows // ROWS_PER_CHUNK)
    return pieces(n_rows, max(-(-chunks // MOST_TASKS) * ROWS_PER_CHUNK, 1))


def _chunks(rows: slice) -> list[slice]:
    return pieces(rows.stop, ROWS_PER_CHUNK, rows.start)


class _Total:
    """Sums over tasks in their order; arrays that arrive early wait for the preceding tasks."""

    def __init__(self) -> None:
        self.arrays: tuple[Array, ...] = ()
        self._waiting: dict[int, tuple[Array, ...]] = {}
        self._n_added = 0
        self._lock = Lock()

    def add(self, place: int, *arrays: Array) -> None:
        """Add the arrays of the task at this place; the sums may overwrite them."""
        with self._lock:
            self._waiting[place] = arrays
            while self._n_added in self._waiting:
                addends = self._waiting.pop(self._n_added)
                for total, addend in zip(self.arrays, addends, strict=self._n_added > 0):
                    total += addend
                self.arrays = self.arrays or addends
                self._n_added += 1


def _local_task(
    component: Component, batch: RowBatch, rows: slice,
    given: tuple[Array, Array, Completion | None], inv_temps: Array,
    out: tuple[Array, Array, Array], add: Callable[[Array, Array, Array], None] | None,
) -> None:  # fmt: skip
    """Write the responsibilities, bound and energy of these rows, and add their statistics.

    ``given`` holds E[log w] (K,), the transposed table (P, K) and the completion. ``out`` holds
    responsibilities (n, K), bound and energy (n,). ``add``, unless None, is called with counts
    (K,), sums (K, P) and the entropy of missing values (K,).
    """
    (log_weights, table, completion), (resp, bound, energy) = given, out
    X, weights = batch.X, batch.weights
    counts, hidden_entropy = np.zeros((2, log_weights.size))
    sums = np.zeros(table.T.shape)
    for chunk in _chunks(rows):
        r, sums_of = component.explain(X[chunk], table)  # E[log p(x_n | phi_k)]
        r += log_weights
        temps = inv_temps[chunk] if inv_temps.size > 1 else inv_temps
        holes = None if completion is None else completion(X[chunk], temps)
        if holes is not None:
            entropy = np.zeros_like(r)
            holes.add_to(r, entropy)
        responsibilities(r, temps, bound[chunk], energy[chunk])
        resp[chunk] = r
        if holes is not None:
            energy[chunk] -= (r * entropy).sum(axis=1) / temps
        if add is not None:
            weighted = r * weights[chunk, None]
            counts += weighted.sum(axis=0)
            sums += sums_of(weighted)  # [HS13 eq. 7]
            if holes is not None:
                hidden_entropy += (weighted * entropy).sum(axis=0)
                holes.add_statistics(weighted, sums)
    if add is not None:
        add(counts, sums, hidden_entropy)


class _Predictive(NamedTuple):
    """Components (K + 1, ...) of a posterior predictive mixture, and log weights (K + 1,)."""

    component: Component
    components: Array
    log_weights: Array

    def log_joint(self, X: Any) -> Array:
        """Return log weight plus log density of each row and component, (n, K + 1) in nats."""
        return self.component.log_predictive(X, self.components) + self.log_weights

    def memberships(self, X: Any) -> Array:
        """Return the probabilities of the components given each row, (n, K + 1)."""
        return softmax(self.log_joint(X), axis=1)

    def imputed(self, X: Array) -> Array:
        return self.component.imputed(X, self.components, self.memberships(X))

    def completed(self, X: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a component and missing values of each row; return rows and indicators (n, K)."""
        out, resp = np.array(X, np.float64), np.zeros((len(X), len(self.components)))
        for chunk in pieces(X.shape[0], ROWS_PER_CHUNK):
            below = self.memberships(X[chunk]).cumsum(axis=1)
            drawn = (below < rng.random((len(below), 1)) * below[:, -1:]).sum(axis=1)
            resp[chunk.start + np.arange(drawn.size), drawn] = 1.0
            for k in np.unique(drawn):
                rows = chunk.start + np.flatnonzero(drawn == k)
                lam = self.components[k]
                out[rows] = self.component.conditional_sample(X[rows], lam, rng)
        return out, resp[:, :-1]


def _sweeps(share: float) -> int:
    """Return the number of sweeps after which draws have all but 3 % of the variance q lacks.

    If this share of a column is missing, each sweep keeps at most this share of a deviation.
    """
    if share == 0.0:
        return 0
    return int(np.clip(np.ceil(np.log(0.03) / (2.0 * np.log(min(share, 0.99)))), 1, _MOST_SWEEPS))


def _projected(component: Component, direction: Array, X: Any) -> Array:
    """Return the inner product of each row's features with a direction, (n,)."""
    chunks = pieces(X.shape[0], ROWS_PER_CHUNK)
    return np.concatenate([component.filled_features(X[rows]) @ direction for rows in chunks])


def _of_rows(X: Any, function: Callable[[Any], Array], shape: tuple[int, ...], run: Run) -> Array:
    """Apply ``function`` to chunks of rows and return the results of all rows, (n, *shape)."""
    out = np.empty((X.shape[0], *shape))
    run(_rows_task, [(X, rows, function, out) for rows in _tasks(X.shape[0])])
    return out


def _rows_task(X: Any, rows: slice, function: Callable[[Any], Array], out: Array) -> None:
    for chunk in _chunks(rows):
        out[chunk] = function(X[chunk])
