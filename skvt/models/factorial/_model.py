"""The factorial mixture: each row is a sum of a subset of components, plus noise.

    z_nk ~ Bernoulli(pi_k)                           activations, local
    mu_k ~ N(0, c I)                                 components, global
    x_n ~ N(sum_k z_nk mu_k, s I)                    rows

[VT16 sec. 4, app. C]. q(z) is factorised, q(mu) has the exact joint covariance of the components,
which all columns share; with missing values, each column has its own.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import serial_map
from skvt.contracts import BatchScope, Capability, ConjugateModel, LocalResult, RowBatch, RowSource
from skvt.expfam import Family, GaussianColumns, RunningStats, Stats
from skvt.files import POSITIVE, PRIOR, in_files
from skvt.models import choice_log_partition, noise_log_partition
from skvt.models.factorial._kernels import row_squares, sweep_factors
from skvt.models.factorial._particles import particles_of, spread
from skvt.rows import pieces, some_rows, sums_of_rows
from skvt.typing import Array, IndexArray, Run

# Maximum number of rows of a task, and of matrix entries if each row has a separate matrix.
ROWS_PER_CHUNK = 1024
NUMBERS_PER_CHUNK = 1 << 21
# Factors of the inverse temperature in the first sweeps of a row that starts from pi.
LADDER = np.geomspace(0.1, 1.0, 6, endpoint=False)
# Maximum number of rows for initial values, and maximum cost of a random component in nats a row.
ROWS_TO_START = 10_000
WEAK = 15.0
# Smallest number of active components per row that a guess of their size assumes.
FEWEST_ON = 1e-3
# Maximum number of rows whose spectrum determines the initial noise and temperature.
ROWS_OF_SPECTRUM = 1_000
# Learned noise starts as the share of squares that K directions leave, if it is at least this ...
LEAST_NOISE = 0.01
# ... and as this share otherwise.
FIRST_NOISE = 0.1
# Smallest distance of learned activation priors from 0 and 1.
_EDGE = 1e-6


# E[mu] and E[mu mu'].
_Moments: TypeAlias = tuple[Array, Array]


class Sweeps(NamedTuple):
    """Sweeps over activations: at the temperatures of the ladder, then at most ``most`` more."""

    ladder: Array
    most: int
    tol: float


# Sweeps of a row that continues from its last visit: no ladder, one sweep.
GO_ON = Sweeps(LADDER[:0], 1, 0.0)


@dataclass(frozen=True)
class FactorialBatch(RowBatch):
    """Rows, and whether values are missing; ``start`` are the activations of the last visit."""

    missing: bool = False


@dataclass(frozen=True)
class FactorialResult(LocalResult):
    """A local result with the entropy of each row's activations in nats, (n,)."""

    entropies: Array | None = None


@in_files("models.FactorialMixture")
@dataclass(frozen=True)
class FactorialMixture(ConjugateModel):
    """A factorial mixture for the engines.

    Statistics are the sums of z z' over all rows (1, K, K), or over the rows in which a column is
    observed (D, K, K); of z x' (K, D); of z (K,); and the number of rows, the number of observed
    values and the sum of their squares (3,). ``global_params`` are E[mu] (K, D) and E[mu mu'],
    summed over columns (1, K, K) or by column (D, K, K).
    """

    # K and D.
    n_components: Annotated[int, PRIOR]
    n_features: int
    # s and c.
    noise_variance: Annotated[float, POSITIVE]
    prior_variance: Annotated[float, POSITIVE]
    # (K,), float64: pi.
    activation_prior: Annotated[Array, "n_components", PRIOR]
    # Type of the data and of all arrays with one row per row of the data.
    dtype: np.dtype[Any]
    # Subset of {"noise_variance", "prior_variance", "activation_prior"} that is learned.
    learned: frozenset[str] = frozenset()
    # Whether the statistics record which values of a column were observed.
    by_column: bool = False
    # The largest variance of any direction of the rows over the noise variance. Above this
    # temperature, components that differ little become equal.
    critical_temperature: float = np.inf
    # Maximum number of sweeps of a row without a start, and the change that ends them.
    max_sweeps: int = 50
    sweep_tol: float = 1e-3
    # Whether a row without a start is also started from annealed particles; the best bound is kept.
    # This is meant for reported bounds and too slow for fits.
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
        return GaussianColumns(self.n_components, self.n_features)

    @property
    def families(self) -> tuple[Family, ...]:
        return (self.family,)

    # ------------------------------------------------------------------------------- globals
    def size(self, stats: RunningStats) -> int:
        return self.n_components

    def prior(self) -> Stats:
        K = self.n_components
        precision = np.eye(K)[None] / self.prior_variance
        precision = np.broadcast_to(precision, (self._n_precisions, K, K))
        return Stats((self.family.natural(precision, np.zeros((K, self.n_features))),))

    @property
    def _n_precisions(self) -> int:
        return self.n_features if self.by_column else 1

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``I / c + sum E[z z'] / s`` and ``sum E[z] x' / s`` [VT16 app. C]."""
        pairs, products = stats.value().arrays[:2]
        precision = np.eye(self.n_components) / self.prior_variance
        precision = precision + pairs / self.noise_variance
        return (self.family.natural(precision, products / self.noise_variance),)

    def expectation(self, stats: RunningStats, batch: FactorialBatch | None, run: Run) -> _Moments:
        """Return E[mu] and E[mu mu'], by column if the batch, or else the model, needs it."""
        q = self.family.standard(self.natural_parameters(stats)[0])
        by_column = self.by_column if batch is None else batch.missing
        return q["mean"], self.family.second_moments(**q, by_column=by_column)

    def statistics_energy(self, stats: RunningStats, global_params: _Moments) -> float:
        """Return ``E_q[log p(x, z | mu)]`` of the rows that the statistics sum over, in nats."""
        pairs, products = stats.value().arrays[:2]
        explained = (products * global_params[0]).sum() - 0.5 * (pairs * global_params[1]).sum()
        return explained / self.noise_variance + self._rest(stats.value())

    def collapsed_energy(self, stats: Stats) -> float:
        """Return ``E_q[log p(x, z | mu)] - KL(q(mu) || p(mu))`` at the best q(mu), in nats."""
        family = self.family
        after = family.log_normalizer(self.natural_parameters(RunningStats(stats.arrays))[0])
        before = 0.5 * family.n_rows * family.n_columns * np.log(self.prior_variance)
        return float(after - before) + self._rest(stats)

    def _rest(self, stats: Stats) -> float:
        """Return the part of the energy that does not depend on the components."""
        _, _, on, (n_rows, n_values, squares) = stats.arrays
        noise = self.noise_variance
        rest = -0.5 * (n_values * np.log(2.0 * np.pi * noise) + squares / noise)
        return float(rest + on @ self.logit + n_rows * self.log_all_off)

    @property
    def logit(self) -> Array:
        """Log odds of the activations, shape (K,)."""
        return np.log(self.activation_prior) - np.log1p(-self.activation_prior)

    @property
    def log_all_off(self) -> float:
        """Log probability that no component is on, in nats."""
        return np.log1p(-self.activation_prior).sum()

    def with_column_covariances(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Extend model and statistics of complete rows to one covariance for each column."""
        pairs, *others = stats.value().arrays
        pairs = np.repeat(pairs, self.n_features, axis=0)
        return replace(self, by_column=True), RunningStats([pairs, *others])

    def scope(self, batch: FactorialBatch) -> BatchScope:
        return BatchScope(missing=batch.missing)

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        return None

    # --------------------------------------------------------------------------------- rows
    def batch(self, X: Array, rows: IndexArray, weights: Array) -> FactorialBatch:
        batch = FactorialBatch.of(X, rows, weights)
        return replace(batch, missing=bool(np.isnan(batch.X.min())))

    def memo_entropy(
        self, batch: FactorialBatch, result: FactorialResult, run: Run, *, pairs: bool
    ) -> tuple[Array, None]:
        """Return the entropy of all activations (1,), and None for pairs."""
        assert result.entropies is not None  # a local step of this model
        return np.array([batch.weights @ result.entropies]), None

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: FactorialBatch, global_params: _Moments, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> FactorialResult:  # fmt: skip
        """Optimise the activations of each row; ``q`` of the result are probabilities (n, K).

        If the batch has a start, one sweep from there, which does not lower the bound. Otherwise
        sweeps start from pi at higher temperatures and end at convergence. With ``search``, or if
        starts are infinite, they also start from annealed particles, and the best end is kept.
        """
        wanted = {"with_marginal": with_marginal, "with_stats": with_stats}
        # All rows of a batch continue, or all start anew.
        if batch.start is not None and np.isfinite(batch.start[:, 0]).all():
            return self._step(batch, global_params, inv_temp, run, GO_ON, **wanted)
        v = np.tile(self.activation_prior.astype(self.dtype), (batch.n_rows, 1))
        begin = Sweeps(LADDER, self.max_sweeps, self.sweep_tol)
        anew = replace(batch, start=v)
        searches = self.search or (batch.start is not None and np.isinf(batch.start[:, 0]).any())
        if not searches:
            return self._step(anew, global_params, inv_temp, run, begin, **wanted)
        best = self._step(anew, global_params, inv_temp, run, begin)
        v, bound, begin = best.q, best.bound, begin._replace(ladder=LADDER[:0])
        for start in self._particle_starts(batch, global_params, run):
            other = self._step(replace(batch, start=start), global_params, inv_temp, run, begin)
            v = np.where((other.bound > bound)[:, None], other.q, v)
            bound = np.maximum(other.bound, bound)
        return self._step(replace(batch, start=v), global_params, inv_temp, run, GO_ON, **wanted)

    def _step(
        self, batch: FactorialBatch, global_params: _Moments, inv_temp: float | Array, run: Run,
        sweeps: Sweeps, *, with_marginal: bool = False, with_stats: bool = False,
    ) -> FactorialResult:  # fmt: skip
        """Make the local step from ``batch.start``."""
        assert batch.start is not None  # set by :meth:`local_step`
        inv_temps = np.atleast_1d(np.asarray(inv_temp, np.float64))
        v = batch.start.astype(self.dtype)
        energy, entropy = np.empty((2, batch.n_rows))
        means, second = (np.ascontiguousarray(part, self.dtype) for part in global_params)
        sweeps = sweeps._replace(ladder=sweeps.ladder.astype(self.dtype))
        heat, out = inv_temps.astype(self.dtype), (v, energy, entropy)
        tasks = [
            (self, batch, rows, (means, second), (heat, sweeps), with_stats, out)
            for rows in self._chunks(batch)
        ]
        parts = run(_local_task, tasks)
        stats = None
        if with_stats:
            stats = Stats(tuple(sum(part) for part in zip(*parts, strict=True)))
        bound = inv_temps * energy + entropy
        # A lower bound of the energy with the activations summed out.
        marginal = energy + entropy if with_marginal else None
        return FactorialResult(stats, bound, energy, v, marginal, start=v, entropies=entropy)

    def row_terms(
        self, X: Array, there: Array | None, means: Array, second: Array
    ) -> tuple[Array, Array, Array, float | Array]:
        """Compute the terms of rows on which their activations depend.

        ``there`` (n, D) is 1 for observed and 0 for missing values; None if none is missing.
        Returns X with 0 for missing values, ``E[mu_k] . x`` (n, K), E[mu mu'] summed over the
        observed columns, (1, K, K) or (n, K, K), and the number of values.
        """
        if there is None:
            return X, X @ means.T, second, float(X.shape[1])
        X = np.where(there > 0.0, X, X.dtype.type(0.0))
        gram = (there @ second.reshape(len(second), -1)).reshape(-1, *second.shape[1:])
        return X, X @ means.T, gram, there.sum(axis=1, dtype=np.float64)

    def _particle_starts(
        self, batch: FactorialBatch, global_params: _Moments, run: Run
    ) -> tuple[Array, Array]:
        """Return the most probable particle of each row, and its activation probabilities."""
        best, chances = np.empty((2, batch.n_rows, self.n_components))
        tasks = [(self, batch, rows, global_params, best, chances) for rows in self._chunks(batch)]
        run(_start_task, tasks)
        return best, chances

    def _chunks(self, batch: FactorialBatch) -> list[slice]:
        """Return slices of rows that depend on the number and kind of rows alone."""
        step = ROWS_PER_CHUNK
        if batch.missing:
            step = max(1, min(step, NUMBERS_PER_CHUNK // self.n_components**2))
        return pieces(batch.n_rows, step)

    # ------------------------------------------------------------------------ learned priors
    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with learned variances and priors at the maximum of the bound."""
        if stats is None or not self.learned:
            return self
        _, _, on, (n_rows, n_values, squares) = stats.value().arrays
        global_params, changes = self.expectation(stats, None, serial_map), {}
        # If all values are 0 or missing, they carry no information on the noise.
        if "noise_variance" in self.learned and squares > 0.0:
            # The limit keeps a perfect fit from a noise of 0, or so small that rounding matters.
            error = max(self._squared_error(stats, global_params), 1e-4 * squares)
            changes["noise_variance"] = error / n_values
        if "prior_variance" in self.learned:
            total = np.trace(global_params[1].sum(axis=0))
            changes["prior_variance"] = total / (self.n_components * self.n_features)
        if "activation_prior" in self.learned:
            changes["activation_prior"] = np.clip(on / n_rows, _EDGE, 1.0 - _EDGE)
        return replace(self, **changes)

    def _squared_error(self, stats: RunningStats, global_params: _Moments) -> float:
        """Return ``E_q |x - sum_k z_k mu_k|^2`` summed over all observed values."""
        mean, second = global_params
        pairs, products, _, (_, _, squares) = stats.value().arrays
        return squares - 2.0 * (products * mean).sum() + (pairs * second).sum()

    # --------------------------------------------------------------------------- temperature
    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) of one row in nats and its slope in b = 1/T, (M,) each [VT16 app. C].

        ``int p(x | z, mu)^b dx`` does not depend on z and mu, and ``sum_z p(z)^b = prod_k (pi_k^b +
        (1 - pi_k)^b)``.
        """
        b = np.asarray(inv_temps, np.float64)
        log_p = np.stack([np.log(self.activation_prior), np.log1p(-self.activation_prior)])
        value, slope = noise_log_partition(b, self.n_features, self.noise_variance)
        of_each, slope_of_each = choice_log_partition(b, log_p)
        return value + of_each.sum(axis=1), slope + slope_of_each.sum(axis=1)

    # ------------------------------------------------------------------------ initial values
    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics whose components are equal parts of the mean row, plus noise.

        Pairs are those of independent activations; squares agree with the noise variance.
        """
        K = self.n_components
        mean, variance = column_moments(data)
        pi, noise = self.activation_prior, self._random_components(variance, rng)
        start = mean / max(pi.sum(), FEWEST_ON) + noise
        pairs = data.total * (np.outer(pi, pi) + np.diag(pi * (1.0 - pi)))
        ridge = self.noise_variance / self.prior_variance * np.eye(K)
        products = (pairs + ridge) @ start
        pairs = np.repeat(pairs[None], self._n_precisions, axis=0)
        totals = np.array([data.total, data.total * self.n_features, 0.0])
        stats = RunningStats([pairs, products, data.total * pi, totals])
        totals[2] = self.noise_variance * totals[1]
        totals[2] -= self._squared_error(stats, self.expectation(stats, None, serial_map))
        return stats

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Draw random components of this share of the spread, since heat makes components equal."""
        pairs, _, on, totals = stats.value().arrays
        noise = share * on[:, None] * self._random_components(column_moments(data)[1], rng)
        return Stats((np.zeros_like(pairs), noise, np.zeros_like(on), np.zeros_like(totals)))

    def _random_components(self, variance: Array, rng: np.random.Generator) -> Array:
        """Draw components that cost a row at most ``WEAK`` nats; at a higher cost, all turn off."""
        square = max(variance.sum(), 1e-300)
        scale = np.sqrt(variance * (min(square, 2.0 * WEAK * self.noise_variance) / square))
        return scale * rng.standard_normal((self.n_components, self.n_features))

    # --------------------------------------------------------------------------- predictions
    def sample(
        self, stats: RunningStats, n_rows: int, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Draw rows from the posterior predictive (n, D), and their activations (n, K)."""
        q = self.family.standard(self.natural_parameters(stats)[0])
        z = rng.random((n_rows, self.n_components)) < self.activation_prior
        variance = self.noise_variance + spread(z[:, None].astype(np.float64), q["covariance"])
        noise = np.sqrt(variance[:, 0]) * rng.standard_normal((n_rows, self.n_features))
        return (z @ q["mean"] + noise).astype(self.dtype), z


def _local_task(
    model: FactorialMixture, batch: FactorialBatch, rows: slice, moments: _Moments,
    heat_and_sweeps: tuple[Array, Sweeps], with_stats: bool, out: tuple[Array, Array, Array],
) -> tuple[Array, Array, Array, Array] | None:  # fmt: skip
    """Update ``out``, activations, energy and entropy; return statistics of these rows."""
    inv_temps, (ladder, most, tol) = heat_and_sweeps
    v, energy, entropy = out
    X, v = np.asarray(batch.X[rows], model.dtype), v[rows]
    observed = (~np.isnan(X)).astype(model.dtype) if batch.missing else None
    X, linear, gram, n_values = model.row_terms(X, observed, *moments)
    squares, noise = row_squares(X), model.noise_variance
    sweep_factors(
        linear, gram, model.logit.astype(model.dtype), model.dtype.type(1.0 / noise),
        inv_temps[rows] if inv_temps.size > 1 else inv_temps, ladder, most, model.dtype.type(tol),
        v, energy[rows], entropy[rows],
    )  # fmt: skip
    # Add the terms that do not depend on the activations.
    energy[rows] -= 0.5 * (n_values * np.log(2.0 * np.pi * noise) + squares / noise)
    energy[rows] += model.log_all_off
    if not with_stats:
        return None
    weights = batch.weights[rows]
    weighted = v * weights[:, None].astype(model.dtype)
    on = weights @ v
    if model.by_column:
        observed = np.ones_like(X) if observed is None else observed
        pairs = (weighted[:, :, None] * v[:, None, :]).reshape(len(v), -1)
        pairs = (observed.T @ pairs).reshape(X.shape[1], *gram.shape[1:])
        diagonal = observed.T @ weighted
    else:
        pairs, diagonal = (weighted.T @ v)[None], on
    pairs = pairs.astype(np.float64)
    np.einsum("pkk->pk", pairs)[:] = diagonal  # E[z^2] = E[z]
    totals = np.array([weights.sum(), (weights * n_values).sum(), weights @ squares])
    return pairs, (weighted.T @ X).astype(np.float64), on, totals


def _start_task(
    model: FactorialMixture, batch: FactorialBatch, rows: slice, global_params: _Moments,
    best: Array, chances: Array,
) -> None:  # fmt: skip
    """Write the best particle and mean activation probabilities of these rows."""
    X = np.asarray(batch.X[rows], np.float64)
    observed = (~np.isnan(X)).astype(np.float64) if batch.missing else None
    _, linear, gram, _ = model.row_terms(X, observed, *global_params)
    particles = particles_of(X, linear, gram, model.logit, model.noise_variance)
    chances[rows], best[rows] = particles[2], particles[4]


def column_moments(data: RowSource) -> tuple[Array, Array]:
    """Return mean and variance of each column's observed values in a subset of rows, or 0."""
    rows = np.arange(0, data.n_rows, -(-data.n_rows // ROWS_TO_START))
    return _moments(*some_rows(data.X, data.weights, rows))


def _moments(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return mean and variance of each column's observed values, 0 if there are none."""
    X = np.asarray(X, np.float64)
    weights = np.where(np.isnan(X), 0.0, weights[:, None])
    X = np.nan_to_num(X)
    total = np.maximum(weights.sum(axis=0), 1e-300)
    mean = (weights * X).sum(axis=0) / total
    return mean, (weights * (X - mean) ** 2).sum(axis=0) / total


def first_guess(
    X: Array, weights: Array, n_components: int, n_on: float
) -> tuple[dict[str, float], float]:
    """Guess initial values of learned variances, with ``n_on`` components on in a row.

    Returns a dict of "noise_variance" and "prior_variance", and the largest variance of any
    direction of the rows.
    """
    squares, observed = sums_of_rows(X, weights, _squares_of_columns)
    # The limit is for rows of zeros, which have no scale.
    square = max(squares.sum() / max(observed.sum(), 1.0), 1e-12)
    noise, largest = _spectrum(X, weights, n_components)
    prior = square / max(n_on, FEWEST_ON)
    return {"noise_variance": square * noise, "prior_variance": prior}, largest


def _squares_of_columns(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weighted sum of squares of each column's values, and their weight, (D,)."""
    observed = ~np.isnan(X)
    return weights @ np.where(observed, X, 0.0).astype(np.float64) ** 2, weights @ observed


def has_missing(X: Any, weights: Array) -> bool:
    return bool(sums_of_rows(X, weights, _n_missing)[0] > 0)


def _n_missing(X: Array, weights: Array) -> tuple[Any]:
    return (np.isnan(X).sum(),)


def _spectrum(X: Array, weights: Array, n_directions: int) -> tuple[float, float]:
    """Return noise variance over mean square, and the largest variance of any direction.

    The noise is the residual of ``n_directions`` directions, divided by its degrees of freedom. Too
    small a value acts like a low temperature: components would be quenched before the noise is
    learned.
    """
    X, weights = some_rows(X, weights, np.arange(0, len(X), -(-len(X) // ROWS_OF_SPECTRUM)))
    X = X.astype(np.float64)
    means, _ = _moments(X, weights)
    X = np.where(np.isnan(X), means, X)
    total, n_columns = weights.sum(), X.shape[1]
    largest = _squares(X - means, weights)[-1] / total
    squares = _squares(X, weights)
    freedom = (total - n_directions) * (n_columns - n_directions)
    if n_columns <= n_directions or freedom <= 0.0:
        return FIRST_NOISE, largest
    mean = max(squares.sum(), 1e-300) / (total * n_columns)
    share = squares[:-n_directions].sum() / freedom / mean
    return share if share >= LEAST_NOISE else FIRST_NOISE, largest


def _squares(X: Array, weights: Array) -> Array:
    """Return sums of squares of the rows in their principal directions, ascending."""
    X = np.sqrt(weights)[:, None] * X
    return np.linalg.eigvalsh(X @ X.T if len(X) < X.shape[1] else X.T @ X)
