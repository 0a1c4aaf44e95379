"""Mixtures of exponential families, under a Dirichlet process or with other weights.

    v_k ~ Beta(1, alpha),  w_k = v_k prod_{l<k} (1 - v_l)      sticks, global
    phi_k ~ H(eta)                                             components, global
    z_n ~ Cat(w),  x_n ~ F(phi_{z_n})

[HS13 sec. 2]. The posterior is approximated by mean field with nested truncation: q(z_n = k) = 0
for k > K. The last stick is not set to 1, so that a further component without rows changes nothing.
:mod:`skvt.models.mixture._weights` defines the parameters of the weights, and whether there may be
more than K components. :mod:`skvt.models.mixture.components` defines H and F.
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
from skvt.models.mixture._candidates import has_candidates, run_candidate_step
from skvt.models.mixture._gaussian_learner import learner_matches
from skvt.models.mixture._kernels import add_assignment_entropies, responsibilities
from skvt.models.mixture._learned_priors import PriorLearner, with_learned_concentration
from skvt.models.mixture._seeds import merge_equal_rows, propose_responsibilities
from skvt.models.mixture._weights import SeparateSticks
from skvt.models.mixture.components import draw_positions
from skvt.rows import evaluate_rows, pieces
from skvt.ties import exceeds
from skvt.typing import Array, IndexArray, Run

# Number of rows whose features are computed at a time. The features of so many rows fit into the
# cache, and their matrix products are efficient.
ROWS_PER_CHUNK = 512
# Number of rows in a parallel task that computes entropies.
_ROWS_PER_TASK = 4096
# Maximum number of parallel tasks of a batch, each of which has a copy of the statistics.
MAX_TASKS = 8
# Maximum number of rows from which initial components are computed.
MAX_ROWS_TO_START = 10_000
# Maximum number of updates of missing values at fixed responsibilities, in general and for initial
# components. Steps of EM make _COMPLETIONS_OF_STEP updates, which begin with the parameters of the
# step before.
_MAX_COMPLETIONS = 40
_MAX_COMPLETIONS_OF_SEEDS = 3
_COMPLETIONS_OF_STEP = 2
# Updates of missing values end when the gain in nats per row is below this number.
_COMPLETION_TOL = 1e-4
# Missing values are drawn by sweeps of data augmentation. Draws of too few sweeps have too small a
# variance: it is too small by at most this share, unless that takes more than _MAX_SWEEPS sweeps.
_MAX_LACKING_VARIANCE = 0.03
_MAX_SWEEPS = 30
# E[log w] of a component that gets no rows.
_LOG_ZERO_WEIGHT = -1e30
# E[log w] (K,) and the table (K, P), see `Mixture`.
_GlobalParams: TypeAlias = tuple[Array, Array]


@in_files("models.Mixture")
@dataclass(frozen=True)
class Mixture(ConjugateModel):
    """The model of a mixture; :class:`~skvt.contracts.Model` documents the methods.

    All engines, which are the algorithms of inference, can fit the model. Its statistics are the
    counts of the components (K,), which are sums of responsibilities, and the weighted sums of the
    rows' features (K, P), both float64. ``global_params`` are E[log w] (K,) and the table (K, P),
    followed by further arrays in some subclasses. The inner product of a row's features and row k
    of the table is E[log p(x | phi_k)]. ``run`` is a function that runs parallel tasks.
    """

    # Distribution of the weights w, such as the sticks of a Dirichlet process.
    weights: Weights
    # Likelihood and prior of the components.
    component: Component
    # Number of initial components.
    n_initial: Annotated[int, COMPONENTS] = 1
    # Method that finds the initial components, see `propose_responsibilities`.
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
        """The capabilities of every mixture and those that depend on weights and component.

        A mixture is MERGEABLE if its weights allow moves, which add, merge and split components. It
        is TEMPERABLE if log C(T) is known for both its weights and its component.
        """
        common = {Capability.MEMOIZABLE, Capability.SELECTIVE, Capability.HYPERPRIOR}
        of_weights = self.weights.capabilities
        of_both = of_weights & self.component.capabilities
        return of_both | (of_weights & {Capability.MERGEABLE}) | common

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
        """Return whether the weights and the learner of a loaded file fit the model."""
        # Separate sticks belong to `MixtureGivenGlobals`.
        has_legal_weights = type(self.weights) is not SeparateSticks
        return has_legal_weights and learner_matches(self.learner, self.component)

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the counts and of the sums of features."""
        n_row_features = self.component.feature_coefficients(self.component.prior).shape[-1]
        return [(n_components,), (n_components, n_row_features)]

    # -------------------------------------------------------------------- global parameters
    def prior(self) -> Stats:
        return Stats((self.weights.prior(), self.component.prior[None]))

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        counts, sums = stats.as_stats().arrays
        return self.weights.natural_parameters(counts), self.component.natural_parameters(sums)

    def expectation(self, stats: RunningStats, batch: RowBatch, run: Run) -> _GlobalParams:
        """Return E[log w_k] and the table of E[log p(x | phi_k)], which must not be written to."""
        return stats.derived(_compute_expectation, self.weights, self.component)

    def without_background(self, stats: RunningStats) -> tuple["Mixture", RunningStats]:
        """Return this model and the statistics, because no component is a background."""
        return self, stats

    def row_globals(self, stats: RunningStats, batch: RowBatch, run: Run) -> Any:
        """Return global parameters for rows after the fit, which are the same as during the fit."""
        return self.expectation(stats, batch, run)

    def component_masses(self, stats: Stats) -> Array:
        return stats.arrays[0]

    def without_component(self, global_params: Any, k: int) -> Any:
        """Return global parameters under which component k gets no rows."""
        log_weights, *others = global_params
        log_weights = log_weights.copy()
        log_weights[k] = _LOG_ZERO_WEIGHT
        return log_weights, *others

    def statistics_energy(self, stats: RunningStats, global_params: Any) -> float:
        """Return the energy E_q[log p(x, z | w, phi)] of all rows in nats."""
        counts, sums = stats.as_stats().arrays
        log_weights, table = global_params[:2]
        return float(counts @ log_weights + np.einsum("kp,kp->", sums, table))

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        return self.component.merge_gains(stats.arrays[1], a, b)

    def weights_log_evidence(self, counts: Array) -> float:
        return self.weights.log_evidence(counts[self.weights.order(counts)])

    def collapsed_energy(self, stats: Stats) -> float:
        """Return the log evidence of weights and components in nats.

        This is the bound without the entropies of local variables [HS13 eq. 8], at the best order
        of the components. It includes the log density of the parameters of the components' prior.
        """
        counts, sums = stats.arrays
        components_evidence = self.component.log_evidence(sums).sum() + self.log_hyperprior()
        return float(components_evidence + self.weights_log_evidence(counts))

    def log_hyperprior(self) -> float:
        return self.component.log_hyperprior

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return the order of components with the highest bound, or None if it is the present."""
        counts = stats.as_stats().arrays[0]
        order = self.weights.order(counts)
        return None if np.array_equal(order, np.arange(order.size)) else order

    # --------------------------------------------------------------------------------- rows
    def memo_entropy(
        self, batch: RowBatch, result: LocalResult, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return the entropies that memoized inference keeps with a batch's statistics.

        The first result (K,) is the entropy of each component's assignments plus the entropy of its
        missing values. The second result (K, K) is the entropy of assignments that a merge of two
        components loses, or None unless ``pairs`` is True, see
        :func:`skvt.models.mixture._kernels.add_assignment_entropies`. No loss of the entropy of
        missing values is included: after a merge, q of a missing value is the mixture of its two
        distributions, whose entropy is at least the mean of their entropies.
        """
        resp: Any = result.q
        n_components = resp.shape[1]
        # The component of each column of ``resp``: (1, K), or (n, J) if rows have J candidates.
        components = np.arange(n_components, dtype=np.int32)[None]
        if sp.issparse(resp):
            components, resp = (a.reshape(batch.n_rows, -1) for a in (resp.indices, resp.data))
        # Each parallel task sums over one slice of rows, and writes to the entries of this slice.
        slices = pieces(batch.n_rows, _ROWS_PER_TASK)
        entropies = np.zeros((len(slices), n_components))
        pair_losses = np.zeros((len(slices), n_components, n_components))
        tasks = [
            (resp[rows], components[rows] if len(components) > 1 else components,
             batch.weights[rows], pairs, entropies[i], pair_losses[i])
            for i, rows in enumerate(slices)
        ]  # fmt: skip
        run(add_assignment_entropies, tasks)
        entropy = entropies.sum(axis=0)
        if result.hidden_entropy is not None:
            entropy = entropy + result.hidden_entropy
        return entropy, pair_losses.sum(axis=0) if pairs else None

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: RowBatch, global_params: _GlobalParams, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Compute responsibilities, statistics and the bound of each row.

        ``inv_temp`` is 1 / T of all rows, or (n,). The field ``q`` of the result has the
        responsibilities (n, K). They are CSR if only a few candidate components are evaluated for
        each row, see :mod:`skvt.models.mixture._candidates`. Energies are computed even without
        ``with_energy``.
        """
        log_weights, table = global_params[:2]
        completion = self.component.completion(table)
        inv_temps = np.atleast_1d(np.asarray(inv_temp, np.float64))
        if has_candidates(batch, completion, log_weights.size, inv_temps):
            result = run_candidate_step(
                self.component, batch, log_weights, table, run, with_stats=with_stats,
                with_marginal=with_marginal,
            )  # fmt: skip
            return self.finish_step(result, global_params)
        bound, energy = np.empty((2, batch.n_rows))
        resp = np.empty((batch.n_rows, log_weights.size), self.dtype)
        step = _LocalStep(
            self.component, batch, log_weights, np.ascontiguousarray(table.T), completion,
            inv_temps, resp=resp, bound=bound, energy=energy,
        )  # fmt: skip
        totals = _OrderedTotals()
        run(step.run_task, [
            (rows, partial(totals.add, task) if with_stats else None)
            for task, rows in enumerate(_split_into_tasks(batch.n_rows))
        ])  # fmt: skip
        stats = hidden_entropy = None
        if with_stats:
            counts, sums, hidden_entropy = totals.arrays
            stats = Stats((counts, sums))
            hidden_entropy = None if completion is None else hidden_entropy
        marginal = bound / inv_temps if with_marginal else None
        result = LocalResult(stats, bound, energy, resp, marginal, hidden_entropy=hidden_entropy)
        return self.finish_step(result, global_params)

    def finish_step(self, result: LocalResult, global_params: Any) -> LocalResult:
        """Return the result of a local step, which subclasses convert to other forms."""
        return result

    def statistics_of_assignments(
        self, batch: RowBatch, resp: Array, previous_sums: Array | None = None
    ) -> Stats:
        """Return the statistics at given responsibilities (n, K), with missing values completed.

        If the sums of features (K, P) of the previous step of an iteration are given, the updates
        of missing values begin with their parameters. There are then only a few updates, because
        the next steps continue them.
        """
        max_steps = _MAX_COMPLETIONS if previous_sums is None else _COMPLETIONS_OF_STEP
        stats, _ = self._complete_statistics(batch, resp, max_steps, previous_sums)
        return stats

    def make_local_result(self, batch: RowBatch, resp: Array) -> LocalResult:
        """Return the local result at given responsibilities; bound and energy are NaN."""
        stats, hidden_entropy = self._complete_statistics(batch, resp, _MAX_COMPLETIONS)
        nan_bounds = np.full(batch.n_rows, np.nan)
        return LocalResult(stats, nan_bounds, nan_bounds, resp, hidden_entropy=hidden_entropy)

    def _complete_statistics(
        self, batch: RowBatch, resp: Array, max_steps: int, previous_sums: Array | None = None
    ) -> tuple[Stats, Array | None]:
        """Return statistics at given responsibilities (n, K) and entropies of missing values (K,).

        Updates of q of the missing values alternate with updates of q of the components' parameters
        phi. The first update of the missing values uses q of phi given ``previous_sums`` (K, P), or
        the prior of phi if they are None. There are at most ``max_steps`` updates of the missing
        values. The entropies are None if no value is missing.
        """
        component = self.component
        weighted_resp = resp * batch.weights[:, None]
        observed_sums = component.weighted_sums(batch.X, weighted_resp)
        stats, hidden_entropy = Stats((weighted_resp.sum(axis=0), observed_sums)), None
        if previous_sums is None:
            table = component.expected_table(component.prior[None])
            table = np.repeat(table, resp.shape[1], axis=0)
        else:
            table = component.expected_table(component.natural_parameters(previous_sums))
        min_gain = _COMPLETION_TOL * batch.weights.sum()
        previous_bound = -np.inf
        for step in range(max_steps):
            # Update ``holes``, q of the missing values, and with it the statistics.
            completion = component.completion(table)
            holes = None if completion is None else completion(batch.X, np.ones(1))
            if holes is None:
                break
            logits, entropy = np.zeros((2, *resp.shape))
            holes.add_to(logits, entropy)
            hidden_entropy = (weighted_resp * entropy).sum(axis=0)
            stats = Stats((stats.arrays[0], observed_sums.copy()))
            holes.add_statistics(weighted_resp, stats.arrays[1])
            if step == max_steps - 1:
                break
            # Update q of phi, unless the last update has hardly raised the bound.
            bound = hidden_entropy.sum() + self.collapsed_energy(stats)
            if bound - previous_bound < min_gain:
                break
            previous_bound = bound
            table = component.expected_table(component.natural_parameters(stats.arrays[1]))
        return stats, hidden_entropy

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with priors of higher evidence.

        A prior stays as it is unless at least two components have rows. ``prior_stats`` is not
        used, because all priors of a mixture are learned from the statistics ``stats``.
        """
        if stats is None or not (self.learner or self.learns_concentration):
            return self
        plain_stats = stats.as_stats()
        # ``plain_stats.arrays[0]`` are not always the counts, see `MixtureGivenGlobals`.
        counts, has_prior = self.component_masses(plain_stats), self.has_prior(plain_stats)
        # The limit is half a row, because rounding may change the count of one row.
        has_rows = counts > 0.5
        learner = self.learner if (has_rows & has_prior).sum() >= 2 else None
        learns_concentration = self.learns_concentration and has_rows.sum() >= 2
        if learner is None and not learns_concentration:
            return self
        component, weights = self.component, self.weights
        if learner is not None:
            _, sums = plain_stats.arrays
            component = learner.learn_prior(component, sums[has_prior & (counts > 0.0)])
        if learns_concentration:
            weights = with_learned_concentration(weights, counts)
        return replace(self, weights=weights, component=component)

    def has_prior(self, stats: Stats) -> Any:
        """Return whether the component's prior applies to each component, (K,); here to all."""
        return np.ones(self.component_masses(stats).size, bool)

    # --------------------------------------------------------------------------- temperature
    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) of one row in nats and its slope in b = 1/T, (M,) each [VT16 app. C].

        ``C(T) = sum_k w_k^b int p(x | phi_k)^b dx`` is known only for known weights and components
        whose integral does not depend on phi_k. Otherwise T cannot be learned.
        """
        b = np.asarray(inv_temps, np.float64)
        # The weights and the component are TEMPERABLE, so that both have a `log_partition`.
        weights: Any = self.weights
        component: Any = self.component
        log_sum_of_weights, weights_slope = weights.log_partition(b)
        log_integral, integral_slope = component.log_partition(b)
        return log_sum_of_weights + log_integral, weights_slope + integral_slope

    # ------------------------------------------------------------------------- initial values
    def resized(
        self, n_components: int, *, learns_priors: bool = False, init_params: str = "k-means++"
    ) -> Self:
        """Return the model with ``n_components`` initial components by the method ``init_params``.

        If ``learns_priors`` is False, the priors stay as they are, because moves compare components
        under the priors that have been learned so far.
        """
        return replace(
            self.for_new_start(), n_initial=n_components, init_params=init_params, start=None,
            learner=self.learner if learns_priors else None,
            learns_concentration=self.learns_concentration and learns_priors,
        )  # fmt: skip

    def for_new_start(self) -> Self:
        """Return the model for a fit that starts from new components, such as a birth."""
        return self

    def with_priors_of(self, other: "Mixture") -> Self:
        """Return the model with the priors of the weights and components of ``other``."""
        return replace(self, weights=other.weights, component=other.component)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics of K components of a sample of rows, scaled to all rows."""
        if self.start is not None:
            return RunningStats(self._pad_components(self.start.arrays))
        rows = np.arange(data.n_rows)
        if data.n_rows > MAX_ROWS_TO_START:
            rows = np.sort(rng.choice(data.n_rows, MAX_ROWS_TO_START, replace=False))
        batch = data.batch(self, rows)
        stats = self.seeded_statistics(batch, self.n_initial, self.init_params, rng)
        # The sample represents the total weight of all rows.
        scale = data.total / batch.weights.sum()
        return RunningStats([scale * array for array in self._pad_components(stats.arrays)])

    def seeded_statistics(
        self, batch: RowBatch, n_components: int, init_params: str, rng: np.random.Generator
    ) -> Stats:
        """Return the statistics of at most ``n_components`` components that start from seeds.

        Seeds are rows, or clusters of rows. If the method ``init_params`` proposes several sets of
        components, the set with the highest bound is returned.
        """
        X, weights = merge_equal_rows(self.component, batch.X, batch.weights)
        distinct_batch = self.batch(X, np.arange(weights.size), weights)
        proposals = [
            self._complete_statistics(distinct_batch, resp, _MAX_COMPLETIONS_OF_SEEDS)[0]
            for resp in propose_responsibilities(
                self.component, X, weights, n_components, init_params, rng
            )
        ]
        best_stats = proposals[0]
        # The bound of a single proposal is not needed.
        best_bound = self.collapsed_energy(best_stats) if len(proposals) > 1 else 0.0
        for proposal in proposals[1:]:
            bound = self.collapsed_energy(proposal)
            if exceeds(bound, best_bound, scale=float(weights.sum())):
                best_stats, best_bound = proposal, bound
        return best_stats

    def _pad_components(self, arrays: Sequence[Array]) -> list[Array]:
        """Return statistics to which components without rows are appended up to ``n_fewest``."""
        counts, *_ = arrays
        n_lacking = max(0, self.n_fewest - counts.size)
        return [np.pad(array, [(0, n_lacking)] + [(0, 0)] * (array.ndim - 1)) for array in arrays]

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Return the statistics of one random row for each component, for engines to add.

        The weight of the row is ``share`` times the count of the component. The added statistics
        separate components that a high temperature has made equal. Rows are drawn because
        independent noise could yield sums that no rows have, such as squares that are too small for
        their means.
        """
        counts = share * stats.as_stats().arrays[0]
        rows = self._draw_rows(data, counts.size, rng)
        features = self.component.filled_features(data.batch(self, rows).X)
        features = features.toarray() if sp.issparse(features) else features
        return Stats((counts, counts[:, None] * features))

    def _draw_rows(self, data: RowSource, n_draws: int, rng: np.random.Generator) -> IndexArray:
        """Draw indices of rows by weight, spread over the data.

        The rows are sorted by a random projection, and one row is drawn from each of ``n_draws``
        parts of equal weight. The draws therefore depend neither on the order of rows nor on
        whether a row occurs twice or has weight 2.
        """
        _, (_, n_row_features) = self.statistics_shapes(n_draws)
        direction = rng.standard_normal(n_row_features)
        project = partial(_project_features, self.component, direction)
        positions = evaluate_rows(data.X, data.weights, project)
        order = np.argsort(positions, kind="stable")
        cumulative_weights = np.cumsum(np.asarray(data.weights)[order])
        # Draw one number from each of ``n_draws`` equal parts of [0, 1], in random order.
        quantiles = (rng.permutation(n_draws) + rng.random(n_draws)) / n_draws
        total_weight = cumulative_weights[-1]
        ranks = np.searchsorted(cumulative_weights, total_weight * quantiles, side="right")
        return order[np.minimum(ranks, data.n_rows - 1)]

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, X: Any, stats: RunningStats, run: Run) -> Array:
        """Return ``log(sum_k E[w_k] p(x | rows of k) + E[w_new] p(x | prior))`` in nats, (n,)."""
        predictive = self._posterior_predictive(stats)
        return _map_rows(X, predictive.log_density, shape=(), run=run)

    def _posterior_predictive(self, stats: RunningStats) -> "_Predictive":
        """Return the posterior predictive mixture of K components and a component without rows."""
        lam_weights, lam_components = self.natural_parameters(stats)
        weights = self.weights.mean(lam_weights)[: len(lam_components)]
        # The component without rows has the weight that remains, and the prior.
        weights = np.append(weights, max(0.0, 1.0 - weights.sum()))
        lam = np.concatenate([lam_components, self.component.prior[None]])
        lam = self.component.with_shared_globals(lam)
        # A weight of 0 has the logarithm -inf.
        with np.errstate(divide="ignore"):
            return _Predictive(self.component, lam, np.log(weights))

    def imputed(self, X: Array, stats: RunningStats, run: Run) -> Array:
        """Impute missing values of rows (n, D) by predictive means or most probable categories."""
        predictive = self._posterior_predictive(stats)
        return _map_rows(X, predictive.imputed, shape=X.shape[1:], run=run)

    def column_probabilities(self, X: Array, stats: RunningStats, column: int, run: Run) -> Array:
        """Return predictive probabilities of a column's categories, (n, C)."""
        predictive = self._posterior_predictive(stats)
        component: Any = self.component

        def compute_by_component(rows: Array) -> Array:
            """Return (K + 1, C), or (n, K + 1, C) if the probabilities depend on the row."""
            return np.asarray(component.column_probabilities(predictive.lam, column, rows))

        def average(rows: Array) -> Array:
            """Return the average (n, C) over the components."""
            memberships = predictive.memberships(rows)
            probabilities = compute_by_component(rows)
            if probabilities.ndim == 2:
                return memberships @ probabilities
            return np.einsum("nk,nkc->nc", memberships, probabilities)

        return _map_rows(X, average, shape=compute_by_component(X[:1]).shape[-1:], run=run)

    def draw_missing(
        self, X: Array, stats: RunningStats, rng: np.random.Generator, *, are_fit_rows: bool = False
    ) -> Array:
        """Draw the missing values of rows X (n, D), given one draw of the global parameters from q.

        Under full covariances, q of the global parameters counts missing values as observed, so
        that its variance is too small. If ``are_fit_rows`` says that X are the rows of the fit,
        data augmentation [TannerWong87] corrects the variance. Each of its sweeps draws global
        parameters given the completed rows, and then missing values given the global parameters.
        """
        rows, resp = self._draw_predictive(stats, rng).draw_missing(X, rng)
        # Values that q integrates out stay missing. ``missing_share`` is the largest share of
        # completed values in a column. It is 0 unless X are the rows of the fit.
        completed = self.component.with_completed(X, rows) if are_fit_rows else X
        missing_share = float((np.isnan(X) & ~np.isnan(completed)).mean(axis=0).max())
        for _ in range(_count_sweeps(missing_share)):
            batch = self.batch(completed, np.arange(len(X)), np.ones(len(X)))
            stats_of_rows = self._complete_statistics(batch, resp, _MAX_COMPLETIONS_OF_SEEDS)[0]
            predictive = self._draw_predictive(RunningStats(stats_of_rows.arrays), rng)
            rows, resp = predictive.draw_missing(X, rng)
            completed = self.component.with_completed(X, rows)
        return rows

    def _draw_predictive(self, stats: RunningStats, rng: np.random.Generator) -> "_Predictive":
        """Return the predictive mixture of the components given one draw of its global parameters.

        The component without rows is left out, because its values may have no mean under the prior.
        """
        lam_weights, lam_components = self.natural_parameters(stats)
        weights = self.weights.weights_of(self.weights.family.sample(lam_weights, rng))
        component, drawn_lam = self.component.drawn(lam_components, rng)
        with np.errstate(divide="ignore"):
            return _Predictive(component, drawn_lam, np.log(np.ravel(weights)[: len(drawn_lam)]))


def _compute_expectation(stats: Stats, weights: Weights, component: Component) -> _GlobalParams:
    """Return E[log w_k] (K,) and the table of E[log p(x | phi_k)] (K, P)."""
    counts, sums = stats.arrays
    t = weights.family.expectation(weights.natural_parameters(counts))
    table = component.expected_table(component.natural_parameters(sums))
    # A finite Dirichlet may have more weights than there are components with statistics.
    return weights.log_weights(t)[: len(sums)], table


def _split_into_tasks(n_rows: int) -> list[slice]:
    """Return the slices of rows of parallel tasks, at most `MAX_TASKS`, each of whole chunks.

    The slices depend on the number of rows alone, so that sums do not depend on the number of
    threads.
    """
    n_chunks = -(-n_rows // ROWS_PER_CHUNK)
    return pieces(n_rows, max(-(-n_chunks // MAX_TASKS) * ROWS_PER_CHUNK, 1))


def _split_into_chunks(rows: slice) -> list[slice]:
    """Return the slices of `ROWS_PER_CHUNK` rows of a task."""
    return pieces(rows.stop, ROWS_PER_CHUNK, rows.start)


class _OrderedTotals:
    """Sums of arrays over parallel tasks.

    Arrays are added in the order of the tasks, so that the rounded sums do not depend on the order
    in which tasks end. The arrays of a task that ends early are kept until all preceding tasks have
    ended.
    """

    def __init__(self) -> None:
        # The sums over the first ``_n_added`` tasks; () until the first task has ended.
        self.arrays: tuple[Array, ...] = ()
        # Arrays of tasks that have ended before a preceding task, by the number of the task.
        self._waiting: dict[int, tuple[Array, ...]] = {}
        self._n_added = 0
        self._lock = Lock()

    def add(self, task: int, *arrays: Array) -> None:
        """Add the arrays of the task with this number; the sums may overwrite the arrays."""
        with self._lock:
            self._waiting[task] = arrays
            while self._n_added in self._waiting:
                addends = self._waiting.pop(self._n_added)
                # The arrays of the first task become the sums.
                for total, addend in zip(self.arrays, addends, strict=self._n_added > 0):
                    total += addend
                self.arrays = self.arrays or addends
                self._n_added += 1


class _LocalStep(NamedTuple):
    """A local step for a batch of n rows, in which each parallel task computes a slice of rows."""

    component: Component
    batch: RowBatch
    # (K,): E[log w].
    log_weights: Array
    # (P, K): the transposed table.
    table: Array
    completion: Completion | None
    # (n,) or (1,): 1 / T of each row, or of all rows.
    inv_temps: Array
    # Outputs: responsibilities (n, K).
    resp: Array
    # Outputs: bound and energy of the rows in nats, (n,) each.
    bound: Array
    energy: Array

    def run_task(self, rows: slice, add: Callable[[Array, Array, Array], None] | None) -> None:
        """Write the results of ``rows``, and add their statistics.

        ``add``, unless None, is called with counts (K,), sums (K, P) and the entropy of
        missing values (K,).
        """
        X, weights = self.batch.X, self.batch.weights
        counts, hidden_entropy = np.zeros((2, self.log_weights.size))
        sums = np.zeros(self.table.T.shape)
        for chunk in _split_into_chunks(rows):
            # Compute the logits E[log w_k] + E[log p(x_n | phi_k)], (rows of the chunk, K).
            resp, sum_features = self.component.log_densities_and_sums(X[chunk], self.table)
            resp += self.log_weights
            inv_temps = self.inv_temps[chunk] if self.inv_temps.size > 1 else self.inv_temps
            holes = None if self.completion is None else self.completion(X[chunk], inv_temps)
            if holes is not None:
                entropy = np.zeros_like(resp)
                holes.add_to(resp, entropy)
            # Replace the logits by responsibilities, and write the bounds and energies of the rows.
            responsibilities(resp, inv_temps, self.bound[chunk], self.energy[chunk])
            self.resp[chunk] = resp
            if holes is not None:
                # The logits contain T times the entropy of missing values, but the energy must not.
                self.energy[chunk] -= (resp * entropy).sum(axis=1) / inv_temps
            if add is not None:
                weighted_resp = resp * weights[chunk, None]
                counts += weighted_resp.sum(axis=0)
                sums += sum_features(weighted_resp)  # [HS13 eq. 7]
                if holes is not None:
                    hidden_entropy += (weighted_resp * entropy).sum(axis=0)
                    holes.add_statistics(weighted_resp, sums)
        if add is not None:
            add(counts, sums, hidden_entropy)


class _Predictive(NamedTuple):
    """A predictive mixture of K components, the last of which may be a component without rows."""

    component: Component
    # (K, ...): natural parameters of the components.
    lam: Array
    # (K,): logarithms of the weights.
    log_weights: Array

    def compute_log_joint(self, X: Any) -> Array:
        """Return log weight plus log density of each row and component, (n, K) in nats."""
        return self.component.log_predictive(X, self.lam) + self.log_weights

    def log_density(self, X: Any) -> Array:
        """Return the log density of each row, (n,) in nats."""
        return logsumexp(self.compute_log_joint(X), axis=1)

    def memberships(self, X: Any) -> Array:
        """Return the probabilities of the components given each row, (n, K)."""
        return softmax(self.compute_log_joint(X), axis=1)

    def imputed(self, X: Array) -> Array:
        """Return rows with predictive means or most probable categories for missing values."""
        return self.component.imputed(X, self.lam, self.memberships(X))

    def draw_missing(self, X: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw the component and the missing values of each row.

        Returns the completed rows (n, D) and indicators of the drawn components (n, K).
        """
        completed = np.array(X, np.float64)
        resp = np.zeros((len(X), len(self.lam)))
        for chunk in pieces(X.shape[0], ROWS_PER_CHUNK):
            drawn_components = draw_positions(self.memberships(X[chunk]), rng)
            resp[chunk.start + np.arange(drawn_components.size), drawn_components] = 1.0
            for k in np.unique(drawn_components):
                rows = chunk.start + np.flatnonzero(drawn_components == k)
                completed[rows] = self.component.conditional_sample(X[rows], self.lam[k], rng)
        return completed, resp


def _count_sweeps(missing_share: float) -> int:
    """Return the number of sweeps that reduce the lacking variance to `_MAX_LACKING_VARIANCE`.

    ``missing_share`` is the largest share of missing values in a column. Each sweep multiplies the
    deviation from the exact distribution by at most this share, and its variance by the square.
    """
    if missing_share == 0.0:
        return 0
    n_sweeps = np.ceil(np.log(_MAX_LACKING_VARIANCE) / (2.0 * np.log(min(missing_share, 0.99))))
    return int(np.clip(n_sweeps, 1, _MAX_SWEEPS))


def _project_features(component: Component, direction: Array, X: Any) -> Array:
    """Return the inner product of each row's features with a direction, (n,)."""
    chunks = pieces(X.shape[0], ROWS_PER_CHUNK)
    return np.concatenate([component.filled_features(X[rows]) @ direction for rows in chunks])


def _map_rows(X: Any, function: Callable[[Any], Array], shape: tuple[int, ...], run: Run) -> Array:
    """Apply ``function`` to chunks of rows and return the results of all rows, (n, *shape)."""
    results = np.empty((X.shape[0], *shape))

    def write_results(rows: slice) -> None:
        for chunk in _split_into_chunks(rows):
            results[chunk] = function(X[chunk])

    run(write_results, [(rows,) for rows in _split_into_tasks(X.shape[0])])
    return results
