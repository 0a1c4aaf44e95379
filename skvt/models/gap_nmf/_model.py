"""Nonnegative matrix factorisation with a gamma process prior (GaP-KL-NMF).

    W_kf ~ Gamma(a, a)                      spectra, global, (K, F)
    theta_k ~ Gamma(alpha / K, alpha c)     weights, global, (K,)
    H_nk ~ Gamma(b, b)                      activations of row n, local, (K,)
    Y_nf ~ Poisson(sum_k theta_k W_kf H_nk)

[HB15 eq. 12]; rows are frames, so that Y, W and H are the transposes of the paper's. Mean field:
gammas for theta, W and H, and an allocation q(z = k) = phi_nfk of each of the Y_nf counts, which is
summed out below. Structured inference solves a row given theta and W [HB15 sec. 4.3].

The likelihood is tempered, p(y, z | H, theta, W)^(1/T); the priors of H and of the globals are not.
If y is not a whole number, Gamma(y + 1) replaces y!, a constant of the data.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from skvt.compiled import digamma_array
from skvt.contracts import Capability, ConjugateModel, LocalResult, RowBatch, RowSource
from skvt.expfam import Gamma, RunningStats, Stats, log_standard_gamma
from skvt.files import PRIOR, in_files
from skvt.models import n_active
from skvt.models.gap_nmf import _kernels as kernels
from skvt.rows import dense, of_each_row, pieces, some_rows, sums_of_rows, without_missing
from skvt.typing import Array, IndexArray, Run

# Number of rows of a parallel task, padded by empty rows: the rounding of a row in a matrix product
# is independent of its position only if the matrix has a fixed size.
ROWS_PER_BLOCK = 256
# Without statistics, a batch of fewer rows is padded to a power of two, at least this one. Rows of
# blocks of this size are solved one by one.
FEWEST_ROWS = 8
# Smaller activations are set to 0, and so are smaller rates relative to the largest of their bin.
SMALLEST = 1e-15
# Added to rates before data are divided by them; the square of SMALLEST.
SMALLEST_RATE = 1e-30
# Share of a frame in a component's initial spectrum; the rest is the mean spectrum.
SHARE_OF_FRAME = 0.9
# Relative noise of initial spectra, for components that begin with the same frame.
START_NOISE = 0.1


# Sums over rows, bound, energy or None, E[H] and levels.
_Solved: TypeAlias = tuple[tuple[Array, ...] | None, Array, Array | None, Array, Array]
_NO_SUMS: tuple[Any, ...] = (0.0, 0.0)


class Spectra(NamedTuple):
    """Globals of a local step."""

    # (K, F), float64: log(theta_k W_kf), or its expectation.
    log_rates: Array
    # (K, F), float64: theta_k W_kf, or its expectation.
    rates: Array
    # Seed of the sampler of activations; with None, q(H) is optimised instead.
    seed: int | None = None


@in_files("models.GaPNMF")
@dataclass(frozen=True)
class GaPNMF(ConjugateModel):
    """GaP-KL-NMF for the engines.

    Statistics are the counts that each component explains, ``SW`` (K, F), and its activations
    summed over the rows in which a bin is observed, ``SH`` (K, F). Given the other block, each of

        q(W_kf) = Gamma(a + SW_kf, a + E[theta_k] SH_kf)
        q(theta_k) = Gamma(alpha / K + sum_f SW_kf, alpha c + sum_f E[W_kf] SH_kf)

    is prior plus statistics. :meth:`natural_parameters` solves both together, from one equation for
    each component. The solution is the joint maximum of the bound, so that the bound never falls
    under coordinate ascent. Structured inference uses it as well, with the statistics of a draw,
    instead of one block's draw in the rate of the other block.
    """

    # Truncation K.
    n_components: Annotated[int, PRIOR]
    # Bins F.
    n_features: int
    # a, shape and rate of the prior of the spectra.
    component_shape: Annotated[float, PRIOR] = 0.25
    # b, shape and rate of the prior of the activations.
    activation_shape: Annotated[float, PRIOR] = 0.2
    # alpha of the gamma process.
    weight_concentration: Annotated[float, PRIOR] = 1.0
    # 1 / c, the prior mean of an entry of Y.
    data_mean_prior: Annotated[float, PRIOR] = 1.0
    # {"gibbs", "mean_field"}
    local: str = "gibbs"
    # Numbers of sweeps of the sampler in a local step that are dropped and kept.
    n_burn_in: int = 2
    n_samples: Annotated[int, PRIOR] = 2
    # Number of mean-field updates of a row whose last activations are known.
    n_local_iter: int = 1
    # Maximum number of mean-field updates of a row solved from scratch.
    max_local_iter: int = 200
    # A row has converged when the shape of q(H) changes by less than this on average.
    mean_change_tol: float = 1e-3
    # {numpy.float32, numpy.float64}: type of data and local arrays; globals are float64.
    dtype: type[np.floating[Any]] = np.float64

    families = (Gamma, Gamma)
    capabilities = frozenset({Capability.DRAWABLE})
    updates_all_rows = True

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics."""
        return [(n_components, self.n_features)] * 2

    # ------------------------------------------------------------------------------- globals
    def prior(self) -> Stats:
        """Return natural parameters of the priors of weights (1, 2) and spectra (1, 1, 2)."""
        alpha, a = self.weight_concentration, self.component_shape
        weights = [[alpha / self.n_components, alpha / self.data_mean_prior]]
        return Stats((np.array(weights), np.full((1, 1, 2), a)))

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return q(theta), (K, 2), and q(W), (K, F, 2), at their joint optimum."""
        SW, SH = stats.value().arrays
        (prior_shape, prior_rate), a = self.prior().arrays[0][0], self.component_shape
        shapes = a + SW
        shape = prior_shape + SW.sum(axis=1)
        mean = _expected_weights(shape, prior_rate, shapes, SH, a)
        rates = a + mean[:, None] * SH
        rate = prior_rate + (shapes / rates * SH).sum(axis=1)
        return np.stack([shape, rate], axis=-1), np.stack([shapes, rates], axis=-1)

    def size(self, stats: RunningStats) -> int:
        return n_active(stats.arrays[0].sum(axis=1), self.dtype)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics whose components are random rows mixed with the mean of all rows."""
        X, weights = data.X, data.weights
        rows = _random_rows(X, weights, self.n_components, rng)
        frames = dense(some_rows(X, weights, rows)[0])
        counts, seen = sums_of_rows(X, weights, column_sums)
        mean = counts / np.maximum(seen, SMALLEST_RATE)
        if not mean.any():
            mean = np.ones_like(mean)
        frames = np.where(np.isnan(frames), mean, frames)
        frames /= np.maximum(frames.mean(axis=1, keepdims=True), SMALLEST_RATE)
        SW = SHARE_OF_FRAME * frames + (1.0 - SHARE_OF_FRAME) * mean / mean.mean()
        SW *= rng.gamma(START_NOISE**-2, START_NOISE**2, size=SW.shape)
        SW *= counts.sum() / SW.sum()
        return RunningStats([SW, np.tile(seen, (self.n_components, 1))])

    def expectation(self, stats: RunningStats, batch: RowBatch, run: Run) -> Spectra:
        """Return E[log theta + log W] and E[theta] E[W] as :class:`Spectra`."""
        return self.expected_spectra(*self.natural_parameters(stats))

    def expected_spectra(self, weights: Array, spectra: Array) -> Spectra:
        """Return :meth:`expectation` given the natural parameters."""
        log_rates = _expected_log(weights)[:, None] + _expected_log(spectra)
        return Spectra(log_rates, Gamma.mean(weights)[:, None] * Gamma.mean(spectra))

    def drawn_globals(
        self, stats: RunningStats, batch: RowBatch, kind: str, rng: np.random.Generator, run: Run
    ) -> Spectra:
        """Return spectra by kind of global step: an expectation in "mean_field", else a draw."""
        seed = int(rng.integers(2**63))
        if kind == "mean_field":
            return self.expectation(stats, batch, run)._replace(seed=seed)
        weights, spectra = (
            log_standard_gamma(lam[..., 0], rng) - np.log(lam[..., 1])
            for lam in self.natural_parameters(stats)
        )
        log_rates = weights[:, None] + spectra
        return Spectra(log_rates, np.exp(log_rates), seed)

    def project(self, stats: RunningStats) -> None:
        """Do nothing, since statistics are never negative."""

    def mean_field(self) -> Self:
        return replace(self, local="mean_field")

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: RowBatch, global_params: Spectra, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Solve each row given spectra; ``q`` of the result is E[H], (n, K).

        With Gibbs sampling, ``bound`` is not a bound but the log likelihood at a draw of H.
        """
        if np.ndim(inv_temp) > 0:
            raise ValueError("One temperature for all rows is needed, not one for each.")
        spectra = (
            *_table(global_params.log_rates, inv_temp, self.dtype),
            global_params.rates.astype(self.dtype),
        )
        blocks = pieces(batch.n_rows, ROWS_PER_BLOCK)
        # The sweeps of a block have consecutive seeds, so that seeds of blocks are random.
        seeds: list[Any] = [None] * len(blocks)
        if global_params.seed is not None:
            rng = np.random.default_rng(global_params.seed)
            seeds = rng.integers(2**62, size=len(blocks)).tolist()
        height = ROWS_PER_BLOCK
        if not with_stats:
            height = min(height, max(FEWEST_ROWS, 1 << (batch.n_rows - 1).bit_length()))
        tasks = []
        for rows, seed in zip(blocks, seeds, strict=True):
            start = None if batch.start is None else batch.start[rows]
            block = (self, batch.X[rows], height, start, spectra, inv_temp)
            tasks.append((block, seed, batch.weights[rows], with_energy, with_stats))
        sums, bound, energy, means, levels = zip(*run(_solve_block, tasks), strict=True)
        stats = None
        if with_stats:
            SW, SH = (sum(part, np.float64(0.0)) for part in zip(*sums, strict=True))
            stats = Stats((spectra[0] * SW, np.broadcast_to(SH, SW.shape)))
        return LocalResult(
            stats, np.concatenate(bound), np.concatenate(energy) if with_energy else None,
            np.concatenate(means), start=np.concatenate(levels),
        )  # fmt: skip


class _Block:
    """Up to ``height`` rows and the arrays of their local step, all of (B, F) or (B, K).

    ``spectra`` are both results of :func:`_table`, and the rates. ``levels`` is the H of a sweep:
    ``exp(E[log H])``, or a draw. ``shape`` and ``rate`` are the parameters of q(H); ``rate`` is
    (1, K) if nothing is missing.
    """

    def __init__(
        self, model: "GaPNMF", X: Any, height: int, start: Array | None,
        spectra: tuple[Array, Array, Array], inv_temp: float | Array,
    ) -> None:  # fmt: skip
        self.model, (self.table, self.shift, rates) = model, spectra
        self.inv_temp, self.prior = model.dtype(inv_temp), model.dtype(model.activation_shape)
        n = X.shape[0]
        self.Y = np.zeros((height, model.n_features), model.dtype)
        self.Y[:n] = dense(X)
        missing = np.isnan(self.Y)
        self.seen = None
        if missing.any():
            self.Y[missing] = 0.0
            self.seen = (~missing).astype(model.dtype)
            exposure = self.seen @ rates.T
        else:
            exposure = rates.sum(axis=1)[None]
        self.exposure = self.inv_temp * exposure
        self.rate = self.prior + self.exposure
        self.levels = np.ones((height, model.n_components), model.dtype)
        self.anew = start is None or bool(np.isnan(start[:, 0]).any())
        if not self.anew:
            self.levels[:n] = start
        self.shape = np.full_like(self.levels, self.prior)
        self._rates = np.empty_like(self.Y)

    def solve(
        self, seed: int | None, weights: Array, with_energy: bool, with_stats: bool
    ) -> _Solved:
        """Solve the rows; return sums of statistics, bound, energy or None, E[H] and levels."""
        n, sampled = weights.size, self.model.local == "gibbs" and seed is not None
        self.weights = np.zeros((len(self.Y), 1), self.model.dtype)
        self.weights[:n, 0] = weights
        if self.anew or not sampled:
            self._ascend()
        sums: tuple[Array, ...] | None
        energy: Array | None
        if seed is not None and sampled:
            sums, bound = self._sample(seed)
            energy = bound / float(self.inv_temp)
        else:
            sums, bound, energy = self._results(with_energy, with_stats)
        energy = energy[:n] if with_energy and energy is not None else None
        return sums, bound[:n], energy, (self.shape / self.rate)[:n], self.levels[:n]

    # -------------------------------------------------------------------------------- updates
    def _tempered_levels(self) -> Array:
        return self.levels if self.inv_temp == 1.0 else self.levels**self.inv_temp

    def _tempered_rates(self) -> Array:
        """Return tempered rates summed over k, relative to each bin's largest, in ``_rates``."""
        np.matmul(self._tempered_levels(), self.table, out=self._rates)
        self._rates += self.model.dtype(SMALLEST_RATE)
        return self._rates

    def _ratio(self, rates: Array) -> Array:
        """Return the data over the tempered rates, in place."""
        return np.divide(self.Y, rates, out=rates)

    def _allocate(self, ratio: Array) -> Array:
        """Return ``b + sum_f y_f phi_fk / T``; ``ratio`` are data over tempered rates."""
        shape = ratio @ self.table.T
        shape *= self._tempered_levels()
        if self.inv_temp != 1.0:
            shape *= self.inv_temp
        shape += self.prior
        return shape

    def _ascend(self) -> None:
        """Update q(z) and q(H) in turn by mean field, each row until it has converged."""
        model, n = self.model, self.weights.size
        max_iter = model.max_local_iter if self.anew else model.n_local_iter
        if len(self.Y) <= FEWEST_ROWS:
            tol = model.mean_change_tol if self.anew else 0.0
            smallest, shape, levels = model.dtype(SMALLEST_RATE), self.shape[:n], self.levels[:n]
            kernels.ascend(
                self.Y[:n], self.table, self.inv_temp, self.prior, self.rate, max_iter, tol,
                SMALLEST, smallest, shape, levels,
            )  # fmt: skip
            return
        moving = np.ones((len(self.Y), 1), bool)
        for _ in range(max_iter):
            shape = self._allocate(self._ratio(self._tempered_rates()))
            if self.anew:
                change = np.abs(shape - self.shape).mean(axis=1, keepdims=True)
                shape = np.where(moving, shape, self.shape)
                moving &= change >= model.mean_change_tol
            self.shape = shape
            kernels.geometric_means(shape, self.rate, SMALLEST, self.levels)
            if not moving.any():
                break

    def _sample(self, seed: int) -> tuple[tuple[Array, ...], Array]:
        """Allocate counts given H, and draw H given allocations, in turn.

        Allocations are expectations ``y_f phi_fk`` and not drawn. Returns the mean of the kept
        sums, and the log likelihood at the H of the last sweep but one.
        """
        n_burn_in, n_samples = self.model.n_burn_in, self.model.n_samples
        n_sweeps, sums = n_burn_in + n_samples, _NO_SUMS
        for sweep in range(n_sweeps):
            rates = self._tempered_rates()
            if sweep == n_sweeps - 1:
                bound = self._log_likelihood(rates, self.levels)
            ratio = self._ratio(rates)
            self.shape = self._allocate(ratio)
            if sweep >= n_burn_in:
                sums = tuple(map(np.add, sums, self._sums(ratio)))
            kernels.draw_gammas(self.shape, self.rate, seed + sweep, SMALLEST, self.levels)
        return tuple(part / n_samples for part in sums), bound

    # -------------------------------------------------------------------------------- results
    def _sums(self, ratio: Array) -> tuple[Array, Array]:
        """Return weighted sums over the rows: SW without the factor ``table``, (K, F), and SH.

        SH is (K, 1), the same for all bins, if nothing is missing.
        """
        means = self.weights * (self.shape / self.rate)
        SH = means.sum(axis=0)[:, None] if self.seen is None else means.T @ self.seen
        return (self.weights * self._tempered_levels()).T @ ratio, SH

    def _log_likelihood(self, rates: Array, H: Array) -> Array:
        """Return ``log sum_z p(y, z | H)^(1/T)`` of each row, at the levels and H, (B,)."""
        logs, self.log_factorials = np.empty((2, len(self.Y)))
        kernels.poisson_terms(self.Y, rates, logs, self.log_factorials)
        expected = (H * self.exposure).sum(axis=1, dtype=np.float64)
        shift = (self.Y @ self.shift).astype(np.float64)
        return logs - expected + float(self.inv_temp) * (shift - self.log_factorials)

    def _results(
        self, with_energy: bool, with_stats: bool
    ) -> tuple[tuple[Array, ...] | None, Array, Array | None]:
        """Return sums, tempered bound and energy or None at q(H) and the best q(z).

        At T = 1, with allocations summed out, the bound is
        ``sum_f y_f log sum_k exp(E[log theta_k W_kf H_k]) - sum_kf E[theta_k] E[W_kf] E[H_k]
        - log y_f! - KL(q(H) || p(H))``.
        """
        rates, H = self._tempered_rates(), self.shape / self.rate
        divergence = np.empty(len(self.Y))
        kernels.divergences(self.shape, self.rate, self.prior, divergence)
        bound = self._log_likelihood(rates, H) - divergence
        ratio = self._ratio(rates)
        sums = self._sums(ratio) if with_stats else None
        if not with_energy:
            return sums, bound, None
        levels, table = self._tempered_levels(), self.table
        # The limit makes 0 log 0 = 0.
        log_levels = np.log(np.maximum(self.levels, SMALLEST_RATE))
        log_table = np.log(np.maximum(table, SMALLEST_RATE)) / self.inv_temp
        allocated = (levels * log_levels) @ table + levels @ (table * log_table)
        energy = (ratio * allocated).sum(axis=1, dtype=np.float64)
        energy += (self.Y @ self.shift).astype(np.float64) - self.log_factorials
        expected = (H * self.exposure).sum(axis=1, dtype=np.float64)
        return sums, bound, energy - expected / float(self.inv_temp)


def _solve_block(block: tuple[Any, ...], *args: Any) -> _Solved:
    return _Block(*block).solve(*args)


def _expected_weights(shape: Array, prior_rate: float, shapes: Array, SH: Array, a: float) -> Array:
    """Return E[theta], the root t of ``prior_rate t + sum_f shapes t SH / (a + t SH) = shape``.

    The left side grows with t from 0, so there is one root. If no value is missing, SH is the same
    for all bins and the equation is quadratic; otherwise Newton's method in log t starts from the
    root of the quadratic equation for a weighted mean of SH.
    """
    total = shapes.sum(axis=1)
    mean = (shapes * SH).sum(axis=1) / total
    half = 0.5 * (prior_rate * a + (total - shape) * mean)
    square = np.sqrt(half**2 + prior_rate * mean * shape * a)
    # Use that form of the root which has no cancellation.
    t, negative = np.empty_like(half), half <= 0.0
    positive = ~negative
    t[positive] = (shape * a)[positive] / (half + square)[positive]
    t[negative] = (square - half)[negative] / (prior_rate * mean[negative])
    if np.array_equal(SH, np.broadcast_to(SH[:, :1], SH.shape)):
        return t
    for _ in range(100):
        part = a / (a + t[:, None] * SH)
        excess = prior_rate * t + (shapes * (1.0 - part)).sum(axis=1) - shape
        slope = prior_rate * t + (shapes * part * (1.0 - part)).sum(axis=1)
        step = np.clip(excess / slope, -2.0, 2.0)
        t = t * np.exp(-step)
        if np.abs(step).max() < 1e-12:
            break
    return t


def _expected_log(lam: Array) -> Array:
    return digamma_array(lam[..., 0]) - np.log(lam[..., 1])


def _table(log_rates: Array, inv_temp: float | Array, dtype: DTypeLike) -> tuple[Array, Array]:
    """Return ``exp(log_rates / T)`` over the largest of each bin, and its log_rate, ``shift``."""
    shift = log_rates.max(axis=0)
    table = np.exp(inv_temp * (log_rates - shift)).astype(dtype)
    table[table < SMALLEST] = 0.0  # products of such numbers would be denormal
    return table, shift.astype(dtype)


def column_sums(X: Any, weights: Array) -> tuple[Array, Array]:
    """Return weighted sum and weight of the observed values of each column of X, (F,) each."""
    filled, missing = without_missing(X)
    seen = np.full(X.shape[1], weights.sum())
    if missing is not None:
        # Rounding may make the difference of sums negative.
        seen = np.maximum(seen - weights @ missing, 0.0)
    return np.asarray(weights @ filled), seen


def _projected(direction: Array, X: Any) -> Array:
    return np.asarray(without_missing(X)[0] @ direction)


def _random_rows(X: Any, weights: Array, n: int, rng: np.random.Generator) -> IndexArray:
    """Draw n rows by weight, evenly along a random projection, whatever their order in X."""
    direction = rng.random(X.shape[1])
    order = np.argsort(of_each_row(X, weights, partial(_projected, direction)), kind="stable")
    cumulative = np.cumsum(np.asarray(weights)[order])
    targets = (np.arange(n) + rng.random()) / n * cumulative[-1]
    return order[np.minimum(np.searchsorted(cumulative, targets, side="right"), order.size - 1)]
