"""Nonnegative matrix factorisation with a gamma process prior (GaP-KL-NMF).

    W_kf ~ Gamma(a, a)                      spectra, global, (K, F)
    theta_k ~ Gamma(alpha / K, alpha c)     weights, global, (K,)
    H_nk ~ Gamma(b, b)                      activations of row n, local, (K,)
    Y_nf ~ Poisson(sum_k theta_k W_kf H_nk)

This is the model of [HB15 eq. 12], with the matrices Y, W and H transposed: a row of Y is a frame,
such as the spectrum of a moment of sound, and its F columns are frequency bins. There are K
components and n rows. Mean field has gamma distributions for theta, W and H, and an allocation
q(z = k) = phi_nfk of each of the Y_nf counts to a component. Allocations are summed out below.
Structured inference infers H of a row given theta and W [HB15 sec. 4.3].

The likelihood is tempered, p(y, z | H, theta, W)^(1/T). The priors of H and of the globals are not.
If y is not a whole number, Gamma(y + 1) replaces y!, which is a constant of the data.

Three terms are used in the code. The *rate* of component k in bin f is theta_k W_kf, and its
tempered rate is the rate to the power 1/T. The *table* (K, F) has the tempered rates, divided by
the largest in each bin, so that not all rates of a bin underflow. The *levels* (K,) of a row are
the H of its last sweep, that is, exp(E[log H]) in mean field and a draw in Gibbs sampling.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from skvt.contracts import (
    Capability,
    ConjugateModel,
    LocalResult,
    RowBatch,
    RowSource,
    require_one_temperature,
)
from skvt.expfam import Gamma, RunningStats, Stats, log_standard_gamma
from skvt.files import PRIOR, in_files
from skvt.models import count_active
from skvt.models.gap_nmf import _kernels as kernels
from skvt.rows import dense, evaluate_rows, pieces, sums_of_rows, take_rows, without_missing
from skvt.typing import Array, IndexArray, Run

# Number of rows of a parallel task. Fewer rows are padded by empty rows, because the rounding of a
# row in a matrix product is independent of its position only if the matrix has a fixed size.
ROWS_PER_BLOCK = 256
# Smallest number of rows of a block. If a local step returns no statistics, a batch of fewer than
# ROWS_PER_BLOCK rows is padded only to the next power of two, but at least to this number. A block
# of this size is solved by a loop over rows instead of matrix products.
MIN_ROWS_OF_BLOCK = 8
# Activations below this number are set to 0. Rates below this share of the largest rate in their
# bin are set to 0, too.
ZERO_BELOW = 1e-15
# Number that is added to rates before data are divided by the rates: the square of ZERO_BELOW.
MIN_RATE = 1e-30
# The initial spectrum of a component is a weighted mean of a frame, with this weight, and of the
# mean of all frames.
FRAME_WEIGHT = 0.9
# Relative noise of initial spectra. It makes components different that start from the same frame.
INITIAL_NOISE = 0.1


class _BlockResult(NamedTuple):
    """Results of the local step of a block of n rows."""

    # The statistics SW without the factor ``table``, (K, F), and SH, (K, F) or (K, 1), see
    # :class:`GaPNMF`; None if they are not requested.
    sums: tuple[Array, ...] | None
    # (n,): tempered bound in nats.
    bound: Array
    # (n,): energy in nats, or None.
    energy: Array | None
    # (n, K): E[H].
    means: Array
    # (n, K): the H of the last sweep.
    levels: Array


class Spectra(NamedTuple):
    """Global parameters of a local step."""

    # (K, F), float64: log(theta_k W_kf), or its expectation.
    log_rates: Array
    # (K, F), float64: theta_k W_kf, or its expectation.
    rates: Array
    # Seed of the sampler of activations, or None for mean field.
    seed: int | None = None


@in_files("models.GaPNMF")
@dataclass(frozen=True)
class GaPNMF(ConjugateModel):
    """GaP-KL-NMF for the engines.

    Statistics are the counts that each component explains, ``SW`` (K, F), and its activations
    summed over the rows in which a bin is observed, ``SH`` (K, F). The best q(W) given q(theta) and
    the best q(theta) given q(W) are

        q(W_kf) = Gamma(a + SW_kf, a + E[theta_k] SH_kf)
        q(theta_k) = Gamma(alpha / K + sum_f SW_kf, alpha c + sum_f E[W_kf] SH_kf).

    :meth:`natural_parameters` solves both together, from one equation for each component. The
    solution is the joint maximum of the bound, so that the bound never falls under coordinate
    ascent. Structured inference uses the same solution with the statistics of drawn activations,
    although a Gibbs sampler would draw W and theta in turn, given each other.
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
    # Local step: "gibbs" or "mean_field".
    local: str = "gibbs"
    # Numbers of sweeps of a local step by Gibbs sampling: the first sweeps, whose statistics are
    # dropped, and the other sweeps, whose statistics are averaged.
    n_burn_in: int = 2
    n_samples: Annotated[int, PRIOR] = 2
    # Number of mean-field updates of a row whose last activations are known.
    n_local_iter: int = 1
    # Maximum number of mean-field updates of a row whose last activations are not known.
    max_local_iter: int = 200
    # A row has converged once the shapes of its q(H) change by less than this on average.
    mean_change_tol: float = 1e-3
    # Type of data and local arrays, numpy.float32 or numpy.float64; globals are float64.
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
        """Return shapes and rates of q(theta) (K, 2) and q(W) (K, F, 2) at their joint optimum."""
        SW, SH = stats.as_stats().arrays
        # The prior of theta.
        prior_shape, prior_rate = self.prior().arrays[0][0]
        a = self.component_shape
        W_shape = a + SW
        theta_shape = prior_shape + SW.sum(axis=1)
        theta_mean = _solve_expected_weights(theta_shape, prior_rate, W_shape, SH, a)
        W_rate = a + theta_mean[:, None] * SH
        theta_rate = prior_rate + (W_shape / W_rate * SH).sum(axis=1)
        theta = np.stack([theta_shape, theta_rate], axis=-1)
        return theta, np.stack([W_shape, W_rate], axis=-1)

    def size(self, stats: RunningStats) -> int:
        """Return the number of components that explain counts, which is at most K."""
        return count_active(stats.arrays[0].sum(axis=1), self.dtype)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics whose components are random rows mixed with the mean of all rows."""
        X, weights = data.X, data.weights
        rows = _draw_row_numbers(X, weights, self.n_components, rng)
        frames = dense(take_rows(X, weights, rows)[0])
        counts, observed_weight = sums_of_rows(X, weights, sum_columns)
        mean = counts / np.maximum(observed_weight, MIN_RATE)
        if not mean.any():
            mean = np.ones_like(mean)
        frames = np.where(np.isnan(frames), mean, frames)
        # Scale each frame, and the mean of all frames, to the mean 1 over bins.
        frames /= np.maximum(frames.mean(axis=1, keepdims=True), MIN_RATE)
        SW = FRAME_WEIGHT * frames + (1.0 - FRAME_WEIGHT) * mean / mean.mean()
        SW *= rng.gamma(INITIAL_NOISE**-2, INITIAL_NOISE**2, size=SW.shape)
        # All components together explain all counts.
        SW *= counts.sum() / SW.sum()
        return RunningStats([SW, np.tile(observed_weight, (self.n_components, 1))])

    def expectation(self, stats: RunningStats, batch: RowBatch, run: Run) -> Spectra:
        """Return E[log theta + log W] and E[theta] E[W] as :class:`Spectra`."""
        return self.compute_expected_spectra(*self.natural_parameters(stats))

    def compute_expected_spectra(self, weights: Array, spectra: Array) -> Spectra:
        """Return :meth:`expectation`, given shapes and rates of theta (K, 2) and W (K, F, 2)."""
        log_weights, log_spectra = (Gamma.expectation(lam)[..., 0] for lam in (weights, spectra))
        rates = Gamma.mean(weights)[:, None] * Gamma.mean(spectra)
        return Spectra(log_weights[:, None] + log_spectra, rates)

    def drawn_globals(
        self, stats: RunningStats, batch: RowBatch, kind: str, rng: np.random.Generator, run: Run
    ) -> Spectra:
        """Return drawn spectra, or expected spectra if ``kind`` is "mean_field", with a seed."""
        seed = int(rng.integers(2**63))
        if kind == "mean_field":
            return self.expectation(stats, batch, run)._replace(seed=seed)
        # The logarithms of draws from q(theta) and q(W). The last axis of lam is shape and rate.
        weights, spectra = (
            log_standard_gamma(lam[..., 0], rng) - np.log(lam[..., 1])
            for lam in self.natural_parameters(stats)
        )
        log_rates = weights[:, None] + spectra
        return Spectra(log_rates, np.exp(log_rates), seed)

    def project(self, stats: RunningStats) -> None:
        """Do nothing, since statistics are never negative."""

    def mean_field(self) -> Self:
        """Return the model with mean-field local steps, which have a bound."""
        return replace(self, local="mean_field")

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: RowBatch, global_params: Spectra, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Infer H of each row given spectra; ``q`` of the result is E[H], (n, K).

        With Gibbs sampling, ``bound`` is not a bound but the log likelihood at a draw of H. The
        ``row_starts`` of the result is the H of the last sweep, from which the next local step of
        the same rows starts.
        """
        require_one_temperature(inv_temp)
        table, shift = _make_table(global_params.log_rates, inv_temp, self.dtype)
        spectra = table, shift, global_params.rates.astype(self.dtype)
        blocks = pieces(batch.n_rows, ROWS_PER_BLOCK)
        # Draw the seed of each block at random. The sweeps of a block have consecutive seeds, so
        # that blocks with consecutive seeds would use the same seeds in different sweeps.
        seeds: list[Any] = [None] * len(blocks)
        if self.local == "gibbs" and global_params.seed is not None:
            rng = np.random.default_rng(global_params.seed)
            seeds = rng.integers(2**62, size=len(blocks)).tolist()
        # Blocks are padded to ``height`` rows: without statistics, to the next power of two.
        height = ROWS_PER_BLOCK
        if not with_stats:
            height = min(height, max(MIN_ROWS_OF_BLOCK, 1 << (batch.n_rows - 1).bit_length()))
        tasks = []
        for rows, seed in zip(blocks, seeds, strict=True):
            start = None if batch.row_starts is None else batch.row_starts[rows]
            block_arguments = (self, batch.X[rows], height, start, spectra, inv_temp)
            tasks.append((block_arguments, seed, batch.weights[rows], with_energy, with_stats))
        block_results = run(_solve_block, tasks)
        sums, bound, energy, means, levels = zip(*block_results, strict=True)
        stats = None
        if with_stats:
            SW, SH = (sum(arrays, np.float64(0.0)) for arrays in zip(*sums, strict=True))
            stats = Stats((table * SW, np.broadcast_to(SH, SW.shape)))
        return LocalResult(
            stats, np.concatenate(bound), np.concatenate(energy) if with_energy else None,
            np.concatenate(means), row_starts=np.concatenate(levels),
        )  # fmt: skip


class _Block:
    """Up to ``height`` rows and the arrays of their local step.

    Arrays have B = ``height`` rows; the rows after the n data rows are empty *padding rows*.
    ``start`` (n, K) is the H from which sweeps start, or None. ``spectra`` are the ``table`` and
    ``shift`` of :func:`_make_table`, and the rates theta_k W_kf (K, F).

    The attributes ``shape`` (B, K) and ``rate``, which is (B, K), or (1, K) if no value is missing,
    are the parameters of q(H). :meth:`solve` sets ``weights`` (B, 1), the weights of the rows.
    """

    def __init__(
        self, model: "GaPNMF", X: Any, height: int, start: Array | None,
        spectra: tuple[Array, Array, Array], inv_temp: float | Array,
    ) -> None:  # fmt: skip
        self.model = model
        self.table, self.shift, rates = spectra
        self.inv_temp = model.dtype(inv_temp)
        # b, shape and rate of the prior of H.
        self.prior = model.dtype(model.activation_shape)
        n_rows = X.shape[0]
        self.Y = np.zeros((height, model.n_features), model.dtype)
        self.Y[:n_rows] = dense(X)
        is_missing = np.isnan(self.Y)
        # (B, F): 1 for observed and 0 for missing values; None if no value is missing.
        self.observed = None
        # The *exposure* of a component in a row is the sum of theta_k W_kf over observed bins. The
        # expected counts of the row are the sum over k of h_k times the exposure.
        if is_missing.any():
            self.Y[is_missing] = 0.0
            self.observed = (~is_missing).astype(model.dtype)
            exposure = self.observed @ rates.T
        else:
            exposure = rates.sum(axis=1)[None]
        self.exposure = self.inv_temp * exposure
        self.rate = self.prior + self.exposure
        self.levels = np.ones((height, model.n_components), model.dtype)
        # Whether the rows start without earlier activations. This is so if ``start`` is None, or if
        # it has NaN in any row.
        self.starts_anew = start is None or bool(np.isnan(start[:, 0]).any())
        if not self.starts_anew:
            self.levels[:n_rows] = start
        self.shape = np.full_like(self.levels, self.prior)
        # Memory (B, F) for tempered rates and for the ratios of the data to them.
        self._rates_memory = np.empty_like(self.Y)

    def solve(
        self, seed: int | None, weights: Array, with_energy: bool, with_stats: bool
    ) -> _BlockResult:
        """Infer H of the rows, by Gibbs sampling if there is a seed, and otherwise by mean field.

        Mean field also prepares new rows for Gibbs sampling. The results leave out padding rows.
        """
        n_rows = weights.size
        self.weights = np.zeros((len(self.Y), 1), self.model.dtype)
        self.weights[:n_rows, 0] = weights
        if self.starts_anew or seed is None:
            self._ascend_bound()
        sums, bound, energy = (
            self._make_results(with_energy, with_stats) if seed is None else self._draw_levels(seed)
        )
        energy = energy[:n_rows] if with_energy and energy is not None else None
        means = self.shape / self.rate
        return _BlockResult(sums, bound[:n_rows], energy, means[:n_rows], self.levels[:n_rows])

    # -------------------------------------------------------------------------------- updates
    def _temper_levels(self) -> Array:
        """Return the levels to the power of the inverse temperature, (B, K)."""
        return self.levels if self.inv_temp == 1.0 else self.levels**self.inv_temp

    def _compute_tempered_rates(self) -> Array:
        """Return the sums over k of tempered levels times the table, (B, F).

        The next call overwrites the result.
        """
        np.matmul(self._temper_levels(), self.table, out=self._rates_memory)
        self._rates_memory += self.model.dtype(MIN_RATE)
        return self._rates_memory

    def _compute_shapes(self, ratio: Array) -> Array:
        """Return the shapes ``b + sum_f y_f phi_fk / T`` of q(H), (B, K).

        ``ratio`` (B, F) are the data divided by the tempered rates.
        """
        shape = ratio @ self.table.T
        shape *= self._temper_levels()
        if self.inv_temp != 1.0:
            shape *= self.inv_temp
        shape += self.prior
        return shape

    def _ascend_bound(self) -> None:
        """Update q(z) and q(H) in turn by mean field.

        New rows are updated until they have converged, other rows a few times.
        """
        model, n_rows = self.model, self.weights.size
        max_iter = model.max_local_iter if self.starts_anew else model.n_local_iter
        # For few rows, a loop over rows is faster than products of matrices.
        if len(self.Y) <= MIN_ROWS_OF_BLOCK:
            tol = model.mean_change_tol if self.starts_anew else 0.0
            shape, levels = self.shape[:n_rows], self.levels[:n_rows]
            kernels.ascend_activations(
                self.Y[:n_rows], self.table, self.inv_temp, self.prior, self.rate, max_iter, tol,
                ZERO_BELOW, model.dtype(MIN_RATE), shape, levels,
            )  # fmt: skip
            return
        # (B, 1): whether a row has not converged yet.
        is_moving = np.ones((len(self.Y), 1), bool)
        for _ in range(max_iter):
            rates = self._compute_tempered_rates()
            shape = self._compute_shapes(np.divide(self.Y, rates, out=rates))
            if self.starts_anew:
                change = np.abs(shape - self.shape).mean(axis=1, keepdims=True)
                shape = np.where(is_moving, shape, self.shape)
                is_moving &= change >= model.mean_change_tol
            self.shape = shape
            kernels.write_geometric_means(shape, self.rate, ZERO_BELOW, self.levels)
            if not is_moving.any():
                break

    def _draw_levels(self, seed: int) -> tuple[tuple[Array, ...], Array, Array]:
        """Allocate counts given H, and draw H given allocations, in turn [HB15 sec. 4.3].

        Allocations are expectations ``y_f phi_fk`` and not drawn. Return the sums of
        :meth:`_sum_rows`, averaged over the kept sweeps. Also return the tempered log likelihood
        and the energy, (B,) each, at the H before the last draw.
        """
        n_burn_in, n_samples = self.model.n_burn_in, self.model.n_samples
        n_sweeps = n_burn_in + n_samples
        sums: tuple[Any, ...] = (0.0, 0.0)
        for sweep in range(n_sweeps):
            rates = self._compute_tempered_rates()
            if sweep == n_sweeps - 1:
                log_likelihood = self._compute_log_likelihood(rates, self.levels)
            ratio = np.divide(self.Y, rates, out=rates)
            self.shape = self._compute_shapes(ratio)
            if sweep >= n_burn_in:
                sums = tuple(map(np.add, sums, self._sum_rows(ratio)))
            kernels.draw_gammas(self.shape, self.rate, seed + sweep, ZERO_BELOW, self.levels)
        sums = tuple(array / n_samples for array in sums)
        return sums, log_likelihood, log_likelihood / float(self.inv_temp)

    # -------------------------------------------------------------------------------- results
    def _sum_rows(self, ratio: Array) -> tuple[Array, Array]:
        """Return weighted sums over the rows: SW without the factor ``table``, (K, F), and SH.

        SH is (K, F), or (K, 1) if no value is missing, because it is then equal for all bins.
        """
        means = self.weights * (self.shape / self.rate)
        SH = means.sum(axis=0)[:, None] if self.observed is None else means.T @ self.observed
        return (self.weights * self._temper_levels()).T @ ratio, SH

    def _compute_log_likelihood(self, rates: Array, H: Array) -> Array:
        """Return ``log sum_z p(y, z | H)^(1/T)`` of each row, (B,), in nats.

        ``rates`` are the tempered rates at the levels. ``H``, which is E[H] for a bound, enters the
        expected counts. The method also sets the attribute ``log_factorials`` (B,), which
        :meth:`_make_results` reads.
        """
        logs, self.log_factorials = np.empty((2, len(self.Y)))
        kernels.write_poisson_terms(self.Y, rates, logs, self.log_factorials)
        expected_counts = (H * self.exposure).sum(axis=1, dtype=np.float64)
        shift = (self.Y @ self.shift).astype(np.float64)
        return logs - expected_counts + float(self.inv_temp) * (shift - self.log_factorials)

    def _make_results(
        self, with_energy: bool, with_stats: bool
    ) -> tuple[tuple[Array, ...] | None, Array, Array | None]:
        """Return sums, tempered bound, and energy or None, at q(H) and the best q(z).

        At T = 1, with allocations summed out, the bound is
        ``sum_f y_f log sum_k exp(E[log theta_k W_kf H_k]) - sum_kf E[theta_k] E[W_kf] E[H_k]
        - log y_f! - KL(q(H) || p(H))``.
        """
        rates = self._compute_tempered_rates()
        H = self.shape / self.rate
        divergence = np.empty(len(self.Y))
        kernels.write_divergences(self.shape, self.rate, self.prior, divergence)
        bound = self._compute_log_likelihood(rates, H) - divergence
        ratio = np.divide(self.Y, rates, out=rates)
        sums = self._sum_rows(ratio) if with_stats else None
        if not with_energy:
            return sums, bound, None
        # Sum y_f phi_fk E[log theta_k W_kf H_k] over k and f. The maximum makes 0 log 0 equal to 0.
        levels = self._temper_levels()
        table = self.table
        log_levels = np.log(np.maximum(self.levels, MIN_RATE))
        log_table = np.log(np.maximum(table, MIN_RATE)) / self.inv_temp
        allocated = (levels * log_levels) @ table + levels @ (table * log_table)
        energy = (ratio * allocated).sum(axis=1, dtype=np.float64)
        energy += (self.Y @ self.shift).astype(np.float64) - self.log_factorials
        expected_counts = (H * self.exposure).sum(axis=1, dtype=np.float64)
        return sums, bound, energy - expected_counts / float(self.inv_temp)


def _solve_block(block_arguments: tuple[Any, ...], *solve_arguments: Any) -> _BlockResult:
    """Make a :class:`_Block` and return the result of its method ``solve``."""
    return _Block(*block_arguments).solve(*solve_arguments)


def _solve_expected_weights(
    theta_shape: Array, prior_rate: float, W_shape: Array, SH: Array, a: float
) -> Array:
    """Return E[theta] (K,) under the joint optimum of q(theta) and q(W).

    For each component, E[theta] is the root t of
    ``prior_rate t + sum_f W_shape t SH / (a + t SH) = theta_shape``. The left side grows with t
    from 0, so there is one root. If no value is missing, SH is the same for all bins and the
    equation is quadratic. Otherwise Newton's method in log t starts from the root of the quadratic
    equation for a weighted mean of SH.
    """
    W_shape_sum = W_shape.sum(axis=1)
    mean_SH = (W_shape * SH).sum(axis=1) / W_shape_sum
    half = 0.5 * (prior_rate * a + (W_shape_sum - theta_shape) * mean_SH)
    root = np.sqrt(half**2 + prior_rate * mean_SH * theta_shape * a)
    # The quadratic equation is prior_rate mean_SH t^2 + 2 half t = theta_shape a. Its solution is
    # (root - half) / (prior_rate mean_SH) = theta_shape a / (half + root). Use the form that adds
    # numbers of equal sign, because a difference would lose digits.
    t = np.empty_like(half)
    is_negative = half <= 0.0
    is_positive = ~is_negative
    t[is_positive] = (theta_shape * a)[is_positive] / (half + root)[is_positive]
    t[is_negative] = (root - half)[is_negative] / (prior_rate * mean_SH[is_negative])
    if np.array_equal(SH, np.broadcast_to(SH[:, :1], SH.shape)):
        return t
    # ``excess`` is the left side minus the right side of the equation, and ``slope`` is its
    # derivative with respect to log t. A step changes t by a factor of at most e^2.
    for _ in range(100):
        share = a / (a + t[:, None] * SH)
        excess = prior_rate * t + (W_shape * (1.0 - share)).sum(axis=1) - theta_shape
        slope = prior_rate * t + (W_shape * share * (1.0 - share)).sum(axis=1)
        step = np.clip(excess / slope, -2.0, 2.0)
        t = t * np.exp(-step)
        if np.abs(step).max() < 1e-12:
            break
    return t


def _make_table(log_rates: Array, inv_temp: float | Array, dtype: DTypeLike) -> tuple[Array, Array]:
    """Return the table (K, F) of tempered rates, divided by the largest in each bin, and the shift.

    The shift (F,) is the largest of the ``log_rates`` (K, F) in each bin.
    """
    shift = log_rates.max(axis=0)
    table = np.exp(inv_temp * (log_rates - shift)).astype(dtype)
    # Set small numbers to 0. Their products could be denormal numbers, with which arithmetic is
    # slow.
    table[table < ZERO_BELOW] = 0.0
    return table, shift.astype(dtype)


def sum_columns(X: Any, weights: Array) -> tuple[Array, Array]:
    """Return the weighted sum, and the weight, of the observed values of each column, (F,) each."""
    filled_rows, is_missing = without_missing(X)
    observed_weight = np.full(X.shape[1], weights.sum())
    if is_missing is not None:
        # Rounding may make the difference of sums negative.
        observed_weight = np.maximum(observed_weight - weights @ is_missing, 0.0)
    return np.asarray(weights @ filled_rows), observed_weight


def _project_rows(direction: Array, X: Any) -> Array:
    """Return the projections of rows X on a direction (F,); missing values count as 0."""
    return np.asarray(without_missing(X)[0] @ direction)


def _draw_row_numbers(X: Any, weights: Array, n_drawn: int, rng: np.random.Generator) -> IndexArray:
    """Draw n row numbers, evenly spaced by weight along a random projection.

    The drawn rows do not depend on the order of the rows in X, except for rows of equal projection.
    """
    direction = rng.random(X.shape[1])
    order = np.argsort(evaluate_rows(X, weights, partial(_project_rows, direction)), kind="stable")
    cumulative = np.cumsum(np.asarray(weights)[order])
    targets = (np.arange(n_drawn) + rng.random()) / n_drawn * cumulative[-1]
    ranks = np.searchsorted(cumulative, targets, side="right")
    return order[np.minimum(ranks, order.size - 1)]
