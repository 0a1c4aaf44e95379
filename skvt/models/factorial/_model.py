"""The factorial mixture: each row is a sum of a subset of components, plus noise.

    z_nk ~ Bernoulli(pi_k)                           activations, local
    mu_k ~ N(0, c I)                                 components, global
    x_n ~ N(sum_k z_nk mu_k, s I)                    rows

The model and its updates are described in [VT16 sec. 4, app. C]. q(z) is factorised. q(mu) keeps
the covariance between components: one matrix (K, K) for all columns, or one for each column if
values are missing. In shapes, n is the number of rows, D of columns and K of components. In the
code, pi_k is called ``activation_prior``, c ``prior_variance`` and s ``noise_variance``.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skvt._compiled import run_serially
from skvt.contracts import BatchScope, Capability, ConjugateModel, LocalResult, RowBatch, RowSource
from skvt.expfam import Family, GaussianColumns, RunningStats, Stats
from skvt.files import POSITIVE, PRIOR, in_files
from skvt.models import compute_choice_partition, compute_noise_partition
from skvt.models.factorial._kernels import optimise_activations, sum_row_squares
from skvt.models.factorial._particles import draw_particles, evaluate_forms
from skvt.rows import pieces, sums_of_rows, take_rows
from skvt.typing import Array, IndexArray, Run

# Maximum number of rows of a parallel task.
ROWS_PER_CHUNK = 1024
# Maximum number of entries of the matrices (K, K) of a task. Each row has such a matrix if values
# are missing.
NUMBERS_PER_CHUNK = 1 << 21
# Factors of the inverse temperature in the first sweeps over the activations of a row, if the
# activations start from pi. Low factors make the start matter less.
LADDER = np.geomspace(0.1, 1.0, 6, endpoint=False)
# Maximum number of rows that determine initial components.
MAX_ROWS_TO_START = 10_000
# Largest mean of |mu_k|^2 / (2 s) of a random initial component. This is the loss in nats if the
# component is active in a row that does not contain it.
MAX_COMPONENT_COST = 15.0
# Smallest expected number of active components of a row by which initial components, and guesses of
# their variance, are divided.
MIN_ACTIVE_COMPONENTS = 1e-3
# Maximum number of rows whose principal directions determine the initial noise and temperature.
MAX_ROWS_OF_SPECTRUM = 1_000
# A learned noise variance starts at the share of the mean square of all values that the first K
# principal directions of the rows do not explain or, if this share is less than MIN_NOISE_SHARE, at
# the share DEFAULT_NOISE_SHARE.
MIN_NOISE_SHARE = 0.01
DEFAULT_NOISE_SHARE = 0.1
# Smallest distance of learned activation priors from 0 and 1.
_MIN_PRIOR = 1e-6


# The moments E[mu] (K, D) and E[mu mu'], summed over columns (1, K, K) or by column (D, K, K).
_Moments: TypeAlias = tuple[Array, Array]


class Sweeps(NamedTuple):
    """The sweeps of a local step; each sweep updates all activations of a row in turn.

    In the first sweeps, the inverse temperature is multiplied by the entries of ``ladder``, one
    entry for each sweep. Then there are at most ``max_sweeps`` sweeps without a factor. They end
    once a sweep changes all activations by less than ``tol``.
    """

    ladder: Array
    max_sweeps: int
    tol: float


# A row that continues from the activations of its last local step has one sweep and no ladder.
ONE_SWEEP = Sweeps(ladder=LADDER[:0], max_sweeps=1, tol=0.0)


@dataclass(frozen=True)
class FactorialBatch(RowBatch):
    """Rows with the activations of their last local step as ``row_starts``, (n, K).

    NaN in ``row_starts`` means that the row has had no local step. inf means that the local step
    must search by particles, see :meth:`FactorialMixture.local_step`.
    """

    has_missing: bool = False


@dataclass(frozen=True)
class FactorialResult(LocalResult):
    """A local result that also has the entropies of activations."""

    # (n,): entropy of each row's activations in nats.
    entropies: Array | None = None


@in_files("models.FactorialMixture")
@dataclass(frozen=True)
class FactorialMixture(ConjugateModel):
    """A factorial mixture for the engines.

    There are four statistics:

    - ``pairs``, the sum of E[z z'] over all rows (1, K, K), or, for each column, over the rows in
      which the column is observed (D, K, K);
    - ``products``, the sum of E[z] x' (K, D);
    - ``activation_sums``, the sum of E[z] (K,);
    - ``totals`` (3,): the number of rows, the number of observed values and the sum of the squares
      of these values.

    ``global_params`` are the moments E[mu] (K, D) and E[mu mu'], summed over columns (1, K, K) or
    by column (D, K, K).
    """

    # K, the number of components, and D, the number of columns.
    n_components: Annotated[int, PRIOR]
    n_features: int
    # s, the variance of the noise, and c, the prior variance of each entry of mu.
    noise_variance: Annotated[float, POSITIVE]
    prior_variance: Annotated[float, POSITIVE]
    # (K,), float64: pi.
    activation_prior: Annotated[Array, "n_components", PRIOR]
    # Type of the data and of all arrays with one row per row of the data.
    dtype: np.dtype[Any]
    # Subset of {"noise_variance", "prior_variance", "activation_prior"} that is learned.
    learned: frozenset[str] = frozenset()
    # Whether statistics are summed for each column over its observed values.
    by_column: bool = False
    # Temperature above which components that differ little become equal: the largest variance of
    # the rows along any direction, divided by the noise variance.
    critical_temperature: float = np.inf
    # Maximum number of sweeps after the ladder, for a row that does not continue from an earlier
    # local step. The sweeps end once a sweep changes all activations by less than ``sweep_tol``.
    max_sweeps: int = 50
    sweep_tol: float = 1e-3
    # Whether local steps also search for better activations by annealed particles. This is set when
    # bounds are reported, but not in a fit, because the search is slow.
    search: bool = False

    capabilities = frozenset({
        Capability.MEMOIZABLE, Capability.TEMPERABLE, Capability.SUMS_OF_COMPONENTS
    })  # fmt: skip

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics."""
        K, D = n_components, self.n_features
        return [(D if self.by_column else 1, K, K), (K, D), (K,), (3,)]

    @property
    def family(self) -> GaussianColumns:
        """The family of q(mu): columns with Gaussian vectors of K entries."""
        return GaussianColumns(self.n_components, self.n_features)

    @property
    def families(self) -> tuple[Family, ...]:
        """The family of q(mu), the only block of the globals."""
        return (self.family,)

    # -------------------------------------------------------------------- global parameters
    def size(self, stats: RunningStats) -> int:
        """Return K."""
        return self.n_components

    def prior(self) -> Stats:
        """Return the natural parameters of p(mu)."""
        K = self.n_components
        precision = np.eye(K)[None] / self.prior_variance
        precision = np.broadcast_to(precision, (self._n_precisions, K, K))
        return Stats((self.family.natural(precision, np.zeros((K, self.n_features))),))

    @property
    def _n_precisions(self) -> int:
        """Number of precision matrices of q(mu): D if statistics are by column, else 1."""
        return self.n_features if self.by_column else 1

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return the natural parameters of q(mu) [VT16 app. C].

        The precision is ``I / c + sum E[z z'] / s`` and the linear term ``sum E[z] x' / s``.
        """
        pairs, products = stats.as_stats().arrays[:2]
        precision = np.eye(self.n_components) / self.prior_variance
        precision = precision + pairs / self.noise_variance
        return (self.family.natural(precision, products / self.noise_variance),)

    def expectation(self, stats: RunningStats, batch: FactorialBatch | None, run: Run) -> _Moments:
        """Return E[mu] and E[mu mu'].

        The second moments are by column if values are missing in the batch or, without a batch, if
        the statistics are by column.
        """
        q = self.family.to_standard(self.natural_parameters(stats)[0])
        by_column = self.by_column if batch is None else batch.has_missing
        return q["mean"], self.family.second_moments(**q, by_column=by_column)

    def statistics_energy(self, stats: RunningStats, global_params: _Moments) -> float:
        """Return ``E_q[log p(x, z | mu)]`` in nats, summed over the rows of the statistics."""
        pairs, products = stats.as_stats().arrays[:2]
        explained = (products * global_params[0]).sum() - 0.5 * (pairs * global_params[1]).sum()
        return explained / self.noise_variance + self._compute_constant_energy(stats.as_stats())

    def collapsed_energy(self, stats: Stats) -> float:
        """Return ``E_q[log p(x, z | mu)] - KL(q(mu) || p(mu))`` at the best q(mu), in nats."""
        family = self.family
        posterior = family.log_normalizer(self.natural_parameters(RunningStats(stats.arrays))[0])
        # In the family, n_rows is K and n_columns is D.
        prior = 0.5 * family.n_rows * family.n_columns * np.log(self.prior_variance)
        return float(posterior - prior) + self._compute_constant_energy(stats)

    def _compute_constant_energy(self, stats: Stats) -> float:
        """Return the part of ``E_q[log p(x, z | mu)]`` that does not depend on mu, in nats."""
        _, _, activation_sums, totals = stats.arrays
        n_rows, n_values, squares = totals
        noise_variance = self.noise_variance
        energy = -0.5 * (n_values * np.log(2.0 * np.pi * noise_variance) + squares / noise_variance)
        return float(energy + activation_sums @ self.logit + n_rows * self.log_prob_all_inactive)

    @property
    def logit(self) -> Array:
        """Log odds of the activations, shape (K,)."""
        return np.log(self.activation_prior) - np.log1p(-self.activation_prior)

    @property
    def log_prob_all_inactive(self) -> float:
        """Log probability that no component is active, in nats."""
        return np.log1p(-self.activation_prior).sum()

    def with_column_covariances(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return the model and its statistics in the form with sums for each column.

        The components then have a separate covariance for each column. The statistics must be sums
        over complete rows, so that ``pairs`` are the same for all columns.
        """
        pairs, *others = stats.as_stats().arrays
        pairs = np.repeat(pairs, self.n_features, axis=0)
        return replace(self, by_column=True), RunningStats([pairs, *others])

    def scope(self, batch: FactorialBatch) -> BatchScope:
        """Return the part of the globals that the local step of the batch needs."""
        return BatchScope(has_missing=batch.has_missing)

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return None, since the bound does not depend on the order of components."""
        return None

    # --------------------------------------------------------------------------------- rows
    def batch(self, X: Array, rows: IndexArray, weights: Array) -> FactorialBatch:
        """Return rows of X, and whether values are missing in them."""
        batch = FactorialBatch.of(X, rows, weights)
        # The minimum of an array that contains NaN is NaN.
        return replace(batch, has_missing=bool(np.isnan(batch.X.min())))

    def memo_entropy(
        self, batch: FactorialBatch, result: FactorialResult, run: Run, *, pairs: bool
    ) -> tuple[Array, None]:
        """Return the entropy of all activations (1,), and None.

        Models whose components can be merged return the losses of entropy by merges in place of
        None.
        """
        assert result.entropies is not None  # a local step of this model
        return np.array([batch.weights @ result.entropies]), None

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: FactorialBatch, global_params: _Moments, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> FactorialResult:  # fmt: skip
        """Optimise the activations of each row; ``q`` of the result are the activations (n, K).

        If ``batch.row_starts`` are finite, make one sweep from these activations, which does not
        lower the bound. Otherwise sweeps start from pi, with the ladder of temperatures, and end at
        convergence. With ``search``, or if a start is infinite, sweeps also start from annealed
        particles, and each row keeps the activations with the highest bound.
        """
        options = {"with_marginal": with_marginal, "with_stats": with_stats}
        # The entries of a row are all finite, all NaN or all inf, so that the first column shows
        # which. Either all rows of a batch have a finite start, or none has.
        if batch.row_starts is not None and np.isfinite(batch.row_starts[:, 0]).all():
            return self._step_from_start(batch, global_params, inv_temp, run, ONE_SWEEP, **options)
        pi = np.tile(self.activation_prior.astype(self.dtype), (batch.n_rows, 1))
        sweeps = Sweeps(LADDER, self.max_sweeps, self.sweep_tol)
        from_pi = replace(batch, row_starts=pi)
        needs_search = self.search or (
            batch.row_starts is not None and np.isinf(batch.row_starts[:, 0]).any()
        )
        if not needs_search:
            return self._step_from_start(from_pi, global_params, inv_temp, run, sweeps, **options)
        result = self._step_from_start(from_pi, global_params, inv_temp, run, sweeps)
        best_q, best_bound = result.q, result.bound
        # Leave out the ladder, whose high temperatures would lead away from the start.
        sweeps = sweeps._replace(ladder=LADDER[:0])
        for start in self._find_particle_starts(batch, global_params, run):
            from_particles = replace(batch, row_starts=start)
            result = self._step_from_start(from_particles, global_params, inv_temp, run, sweeps)
            best_q = np.where((result.bound > best_bound)[:, None], result.q, best_q)
            best_bound = np.maximum(result.bound, best_bound)
        # One more sweep from the best activations computes all that ``options`` request.
        at_best = replace(batch, row_starts=best_q)
        return self._step_from_start(at_best, global_params, inv_temp, run, ONE_SWEEP, **options)

    def _step_from_start(
        self, batch: FactorialBatch, global_params: _Moments, inv_temp: float | Array, run: Run,
        sweeps: Sweeps, *, with_marginal: bool = False, with_stats: bool = False,
    ) -> FactorialResult:  # fmt: skip
        """Make the local step from ``batch.row_starts``, which must be finite."""
        assert batch.row_starts is not None  # set by :meth:`local_step`
        inv_temps = np.atleast_1d(np.asarray(inv_temp, np.float64))
        q = batch.row_starts.astype(self.dtype)
        energy, entropy = np.empty((2, batch.n_rows))
        mean, second = (np.ascontiguousarray(moment, self.dtype) for moment in global_params)
        sweeps = sweeps._replace(ladder=sweeps.ladder.astype(self.dtype))
        schedule = inv_temps.astype(self.dtype), sweeps
        out = q, energy, entropy
        tasks = [
            (self, batch, rows, (mean, second), schedule, with_stats, out)
            for rows in self._chunks(batch)
        ]
        stats_of_chunks = run(_run_local_task, tasks)
        stats = None
        if with_stats:
            stats = Stats(tuple(sum(arrays) for arrays in zip(*stats_of_chunks, strict=True)))
        bound = inv_temps * energy + entropy
        # The log density of a row, with the activations summed out, is at least the energy plus the
        # entropy, by Jensen's inequality.
        marginal = energy + entropy if with_marginal else None
        return FactorialResult(stats, bound, energy, q, marginal, row_starts=q, entropies=entropy)

    def compute_row_terms(
        self, X: Array, observed: Array | None, mean: Array, second: Array
    ) -> tuple[Array, Array, Array, float | Array]:
        """Compute the terms of rows X (n, D) on which their activations depend.

        ``observed`` (n, D) is 1 for observed and 0 for missing values, or None if no value is
        missing. ``mean`` is E[mu] (K, D), and ``second`` is E[mu mu'], summed over columns
        (1, K, K), or by column (D, K, K) if ``observed`` is not None.

        Returns
        -------
        X : ndarray, shape (n, D)
            The rows with 0 for missing values.
        linear : ndarray, shape (n, K)
            ``E[mu_k] . x``.
        gram : ndarray, shape (1, K, K) or (n, K, K)
            ``E[mu mu']`` summed over the observed columns.
        n_values : float or ndarray of shape (n,)
            Number of observed values of a row.
        """
        if observed is None:
            return X, X @ mean.T, second, float(X.shape[1])
        X = np.where(observed > 0.0, X, X.dtype.type(0.0))
        gram = (observed @ second.reshape(len(second), -1)).reshape(-1, *second.shape[1:])
        return X, X @ mean.T, gram, observed.sum(axis=1, dtype=np.float64)

    def _find_particle_starts(
        self, batch: FactorialBatch, global_params: _Moments, run: Run
    ) -> tuple[Array, Array]:
        """Return two starts of each row's activations from annealed particles, (n, K) each.

        The first start is the state of the row's most probable particle. The second start are
        probabilities of activations, estimated by the row's particles.
        """
        best, probabilities = np.empty((2, batch.n_rows, self.n_components))
        tasks = [
            (self, batch, rows, global_params, best, probabilities) for rows in self._chunks(batch)
        ]
        run(_write_particle_starts, tasks)
        return best, probabilities

    def _chunks(self, batch: FactorialBatch) -> list[slice]:
        """Divide the rows into chunks, as slices, that do not depend on the number of threads."""
        rows_per_chunk = ROWS_PER_CHUNK
        if batch.has_missing:
            rows_per_chunk = max(1, min(rows_per_chunk, NUMBERS_PER_CHUNK // self.n_components**2))
        return pieces(batch.n_rows, rows_per_chunk)

    # ------------------------------------------------------------------------ learned priors
    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with the learned variances and priors that maximise the bound."""
        if stats is None or not self.learned:
            return self
        _, _, activation_sums, totals = stats.as_stats().arrays
        n_rows, n_values, squares = totals
        global_params = self.expectation(stats, batch=None, run=run_serially)
        learned = {}
        # Keep the noise variance if all values are 0 or missing, because they do not determine it.
        if "noise_variance" in self.learned and squares > 0.0:
            # The lower limit is a share of the sum of squares. In a perfect fit, the noise variance
            # would otherwise become 0, or so small that rounding matters.
            error = max(self._compute_squared_error(stats, global_params), 1e-4 * squares)
            learned["noise_variance"] = error / n_values
        if "prior_variance" in self.learned:
            square_norm = np.trace(global_params[1].sum(axis=0))
            learned["prior_variance"] = square_norm / (self.n_components * self.n_features)
        if "activation_prior" in self.learned:
            limits = _MIN_PRIOR, 1.0 - _MIN_PRIOR
            learned["activation_prior"] = np.clip(activation_sums / n_rows, *limits)
        return replace(self, **learned)

    def _compute_squared_error(self, stats: RunningStats, global_params: _Moments) -> float:
        """Return ``E_q |x - sum_k z_k mu_k|^2`` summed over all observed values."""
        mean, second_moments = global_params
        pairs, products, _, totals = stats.as_stats().arrays
        _, _, squares = totals
        return squares - 2.0 * (products * mean).sum() + (pairs * second_moments).sum()

    # --------------------------------------------------------------------------- temperature
    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) of a row in nats and its slope in b = 1/T, (M,) each [VT16 app. C].

        ``inv_temps`` (M,) are values of b, and ``C(T) = sum_z p(z)^b int p(x | z, mu)^b dx``. The
        integral does not depend on z and mu, and ``sum_z p(z)^b = prod_k (pi_k^b + (1 -
        pi_k)^b)``.
        """
        b = np.asarray(inv_temps, np.float64)
        log_p = np.stack([np.log(self.activation_prior), np.log1p(-self.activation_prior)])
        noise_log_c, noise_slope = compute_noise_partition(b, self.n_features, self.noise_variance)
        choice_log_c, choice_slope = compute_choice_partition(b, log_p)
        return noise_log_c + choice_log_c.sum(axis=1), noise_slope + choice_slope.sum(axis=1)

    # ------------------------------------------------------------------------ initial values
    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics for which E[mu_k] is an equal part of the mean row, plus noise.

        The statistics are expected sums over rows whose activations are independent, with the
        probabilities pi.
        """
        K = self.n_components
        mean, variance = compute_column_moments(data)
        pi = self.activation_prior
        random_parts = self._draw_components(variance, rng)
        components = mean / max(pi.sum(), MIN_ACTIVE_COMPONENTS) + random_parts
        pairs = data.total * (np.outer(pi, pi) + np.diag(pi * (1.0 - pi)))
        # E[mu] solves (pairs + ridge) E[mu] = products.
        ridge = self.noise_variance / self.prior_variance * np.eye(K)
        products = (pairs + ridge) @ components
        pairs = np.repeat(pairs[None], self._n_precisions, axis=0)
        totals = np.array([data.total, data.total * self.n_features, 0.0])
        stats = RunningStats([pairs, products, data.total * pi, totals])
        # Set the sum of squares, ``totals[2]``, so that the mean squared error is the noise
        # variance. The array ``totals`` is a part of ``stats``, and 0 so far.
        global_params = self.expectation(stats, batch=None, run=run_serially)
        error = self._compute_squared_error(stats, global_params)
        totals[2] = self.noise_variance * totals[1] - error
        stats.resum()
        return stats

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Return statistics that make components different when they are added to ``stats``.

        Components become equal at high temperatures. The statistics add random vectors of about
        ``share`` times the spread of the rows to the components.
        """
        pairs, _, activation_sums, totals = stats.as_stats().arrays
        _, variance = compute_column_moments(data)
        sums = share * activation_sums[:, None] * self._draw_components(variance, rng)
        return Stats(
            (np.zeros_like(pairs), sums, np.zeros_like(activation_sums), np.zeros_like(totals))
        )

    def _draw_components(self, variance: Array, rng: np.random.Generator) -> Array:
        """Draw normal components (K, D) with variances of at most ``variance`` (D,) by column.

        The variance is lower if the cost of the components would exceed ``MAX_COMPONENT_COST``,
        since local steps would turn off such components.
        """
        square_norm = max(variance.sum(), 1e-300)
        max_square_norm = 2.0 * MAX_COMPONENT_COST * self.noise_variance
        scale = np.sqrt(variance * (min(square_norm, max_square_norm) / square_norm))
        return scale * rng.standard_normal((self.n_components, self.n_features))

    # --------------------------------------------------------------------------- predictions
    def sample(
        self, stats: RunningStats, n_rows: int, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Draw rows from the posterior predictive; return rows (n, D) and activations (n, K)."""
        q = self.family.to_standard(self.natural_parameters(stats)[0])
        z = rng.random((n_rows, self.n_components)) < self.activation_prior
        # `evaluate_forms` takes an axis of states for each row. Here its length is 1.
        states = z[:, None].astype(np.float64)
        variance = self.noise_variance + evaluate_forms(states, q["covariance"])
        noise = np.sqrt(variance[:, 0]) * rng.standard_normal((n_rows, self.n_features))
        return (z @ q["mean"] + noise).astype(self.dtype), z


def _run_local_task(
    model: FactorialMixture, batch: FactorialBatch, rows: slice, moments: _Moments,
    schedule: tuple[Array, Sweeps], with_stats: bool, out: tuple[Array, Array, Array],
) -> tuple[Array, Array, Array, Array] | None:  # fmt: skip
    """Write the results of the local step of ``rows`` to ``out``; return the rows' statistics.

    ``schedule`` has the inverse temperatures of all rows of the batch, and the sweeps. ``out`` has
    the activations (n, K), the energies (n,) and the entropies (n,) of all rows of the batch, in
    nats. Its activations are the start of the sweeps before the call. The statistics are None
    unless ``with_stats`` is set.
    """
    inv_temps, (ladder, max_sweeps, tol) = schedule
    q, energy, entropy = out
    X = np.asarray(batch.X[rows], model.dtype)
    q = q[rows]
    observed = (~np.isnan(X)).astype(model.dtype) if batch.has_missing else None
    X, linear, gram, n_values = model.compute_row_terms(X, observed, *moments)
    squares = sum_row_squares(X)
    noise = model.noise_variance
    optimise_activations(
        linear, gram, model.logit.astype(model.dtype), model.dtype.type(1.0 / noise),
        inv_temps[rows] if inv_temps.size > 1 else inv_temps, ladder, max_sweeps,
        model.dtype.type(tol), q, energy[rows], entropy[rows],
    )  # fmt: skip
    # Add the terms that do not depend on the activations.
    energy[rows] -= 0.5 * (n_values * np.log(2.0 * np.pi * noise) + squares / noise)
    energy[rows] += model.log_prob_all_inactive
    if not with_stats:
        return None
    weights = batch.weights[rows]
    weighted_q = q * weights[:, None].astype(model.dtype)
    activation_sums = weights @ q
    # Sum E[z] E[z]' over rows, (D or 1, K, K). The diagonal is the sum of E[z_k^2] = E[z_k].
    if model.by_column:
        observed = np.ones_like(X) if observed is None else observed
        pairs = (weighted_q[:, :, None] * q[:, None, :]).reshape(len(q), -1)
        pairs = (observed.T @ pairs).reshape(X.shape[1], *gram.shape[1:])
        diagonal = observed.T @ weighted_q
    else:
        pairs, diagonal = (weighted_q.T @ q)[None], activation_sums
    pairs = pairs.astype(np.float64)
    # `einsum` returns a view of the diagonals, which may be written to.
    np.einsum("pkk->pk", pairs)[:] = diagonal
    totals = np.array([weights.sum(), (weights * n_values).sum(), weights @ squares])
    return pairs, (weighted_q.T @ X).astype(np.float64), activation_sums, totals


def _write_particle_starts(
    model: FactorialMixture, batch: FactorialBatch, rows: slice, global_params: _Moments,
    best: Array, probabilities: Array,
) -> None:  # fmt: skip
    """Write the most probable particle and the activation probabilities of ``rows``.

    They are written to these rows of ``best`` (n, K) and ``probabilities`` (n, K), where n is the
    number of rows of the batch.
    """
    X = np.asarray(batch.X[rows], np.float64)
    observed = (~np.isnan(X)).astype(np.float64) if batch.has_missing else None
    _, linear, gram, _ = model.compute_row_terms(X, observed, *global_params)
    particles = draw_particles(X, linear, gram, model.logit, model.noise_variance)
    probabilities[rows], best[rows] = particles.probabilities, particles.best


def compute_column_moments(data: RowSource) -> tuple[Array, Array]:
    """Return mean and variance of the observed values of each column, (D,) each.

    They are computed from at most ``MAX_ROWS_TO_START`` rows, which are evenly spaced.
    """
    rows = np.arange(0, data.n_rows, -(-data.n_rows // MAX_ROWS_TO_START))
    return _compute_mean_and_variance(*take_rows(data.X, data.weights, rows))


def _compute_mean_and_variance(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return mean and variance of the observed values of each column of X, (D,) each.

    A column without observed values has mean and variance 0.
    """
    X = np.asarray(X, np.float64)
    weights = np.where(np.isnan(X), 0.0, weights[:, None])
    X = np.nan_to_num(X)
    total_weight = np.maximum(weights.sum(axis=0), 1e-300)
    mean = (weights * X).sum(axis=0) / total_weight
    return mean, (weights * (X - mean) ** 2).sum(axis=0) / total_weight


def guess_variances(
    X: Array, weights: Array, n_components: int, n_active: float
) -> tuple[dict[str, float], float]:
    """Guess initial values of learned variances from the rows.

    ``n_active`` is the expected number of active components of a row. The results are a dict of
    "noise_variance" and "prior_variance", and the largest variance of the rows along any direction.
    """
    squares, observed = sums_of_rows(X, weights, _sum_column_squares)
    # The lower limit keeps the variances positive if all values are 0.
    mean_square = max(squares.sum() / max(observed.sum(), 1.0), 1e-12)
    noise_share, max_variance = _estimate_noise_share(X, weights, n_components)
    prior = mean_square / max(n_active, MIN_ACTIVE_COMPONENTS)
    return {"noise_variance": mean_square * noise_share, "prior_variance": prior}, max_variance


def _sum_column_squares(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return, for each column, the weighted sum of squares and the weight of observed values."""
    observed = ~np.isnan(X)
    return weights @ np.where(observed, X, 0.0).astype(np.float64) ** 2, weights @ observed


def contains_missing(X: Any, weights: Array) -> bool:
    """Return whether any value of X is NaN."""
    return bool(sums_of_rows(X, weights, _count_missing)[0] > 0)


def _count_missing(X: Array, weights: Array) -> tuple[Any]:
    """Return a tuple with the number of missing values, for `sums_of_rows`."""
    return (np.isnan(X).sum(),)


def _estimate_noise_share(X: Array, weights: Array, n_directions: int) -> tuple[float, float]:
    """Return the share of noise in the mean square, and the largest variance along any direction.

    The noise variance is the sum of squares that the ``n_directions`` largest principal directions
    do not explain, divided by its degrees of freedom. Its share is the ratio to the mean square of
    all values. A share below ``MIN_NOISE_SHARE`` is replaced by ``DEFAULT_NOISE_SHARE``, because
    too small a noise variance acts like a low temperature: the components would almost stop to
    change before the noise is learned.
    """
    X, weights = take_rows(X, weights, np.arange(0, len(X), -(-len(X) // MAX_ROWS_OF_SPECTRUM)))
    X = X.astype(np.float64)
    means, _ = _compute_mean_and_variance(X, weights)
    X = np.where(np.isnan(X), means, X)
    n_rows, n_columns = weights.sum(), X.shape[1]
    largest_variance = _compute_direction_squares(X - means, weights)[-1] / n_rows
    squares = _compute_direction_squares(X, weights)
    degrees_of_freedom = (n_rows - n_directions) * (n_columns - n_directions)
    if n_columns <= n_directions or degrees_of_freedom <= 0.0:
        return DEFAULT_NOISE_SHARE, largest_variance
    mean_square = max(squares.sum(), 1e-300) / (n_rows * n_columns)
    noise_share = squares[:-n_directions].sum() / degrees_of_freedom / mean_square
    return noise_share if noise_share >= MIN_NOISE_SHARE else DEFAULT_NOISE_SHARE, largest_variance


def _compute_direction_squares(X: Array, weights: Array) -> Array:
    """Return the weighted sums of squares of the rows in their principal directions, ascending."""
    X = np.sqrt(weights)[:, None] * X
    # X X' and X' X have the same positive eigenvalues. Use the smaller matrix.
    return np.linalg.eigvalsh(X @ X.T if len(X) < X.shape[1] else X.T @ X)
