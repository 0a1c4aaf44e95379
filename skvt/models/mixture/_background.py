"""Mixtures with a background, a component of rows that belong to no other component.

    p(x_n | z_n = b) = u = 1 / volume,      p(x_n | z_n = k) = p(x_n | phi_k) for k != b.

Here z_n is the component of row n, and b is the background. The rows of the fit lie in a box whose
sides are parallel to the axes, and ``volume`` is the volume of this box [FraleyRaftery02]. The
weight of the background is a weight of the mixture like all others. The density u has no
parameters, so that E_q[log p(x | b)] = log u, and no divergence of parameters is subtracted. The
bound is therefore [HS13 eq. 8]

    sum_{k != b} log M(S_k) + N_b log u + log M_w(N_1, ..., N_K) + entropy of all assignments.

S_k are the sums of features of component k, N_k is its expected number of rows, log M is the
evidence of a component, and log M_w is the evidence of the weights.

The statistics of a component are its count N_k and its sums S_k. The background has a positive
count and the sums 0. No other component with rows has such statistics, because one of the features
counts observed values. The statistics alone therefore tell which component is the background, also
after moves, which add, delete and merge components. Since log M(0) = 0, the background adds nothing
to the first sum of the bound.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from scipy.special import expit

from skvt.contracts import LocalResult, RowBatch, RowSource
from skvt.expfam import RunningStats, Stats
from skvt.files import in_files
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._weights import StickBreaking
from skvt.models.mixture.components import LOG_2PI
from skvt.typing import Array, IndexArray, Run

# Share of the rows that the background has before the first pass of a fit, and before the first
# pass of a birth, a move that adds components for the background's rows.
_INITIAL_SHARE = 0.1


def _is_background(stats: Stats) -> Any:
    """Return, for each component, whether it is the background, (K,)."""
    counts, sums = stats.arrays
    return (counts > 0.0) & ~sums.any(axis=1)


def _require_all_values(batch: RowBatch) -> RowBatch:
    """Return the batch; raise ValueError if values are missing."""
    if np.isnan(batch.X).any():
        raise ValueError(
            "With background=True, rows cannot have missing values. Got NaN: fill in these "
            "values, leave these rows out, or set background=False."
        )
    return batch


@in_files("models.BackgroundMixture")
@dataclass(frozen=True, kw_only=True)
class BackgroundMixture(Mixture):
    """A mixture of Gaussians and a background; its rows have no missing values.

    ``global_params`` are the expected log weights (K,), the table (K, P), whose product with the
    features of a row are expected log densities, and whether a component is the background (K,).
    """

    # (D,) each: smallest and largest values of the columns, which are corners of the box.
    low: Annotated[Array, "d"]
    high: Annotated[Array, "d"]
    # Whether the initial components include the background.
    begins: bool = True
    # Whether the model is for a birth that divides the rows of the background, see `for_births`.
    is_target: bool = False

    @property
    def log_density(self) -> float:
        """The log density log u of the background, in nats."""
        return -float(np.log(self.high - self.low).sum())

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> RowBatch:
        """Return rows as a batch; raise ValueError if values are missing."""
        return _require_all_values(super().batch(X, rows, weights))

    def validate(self, d: int, k: int) -> bool:
        """Return whether a model from a file is legal, including the corners of the box."""
        return super().validate(d, k) and bool(np.all(self.low < self.high))

    # -------------------------------------------------------------------- global parameters
    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Any:
        """Return ``global_params``, whose table gives the background the log density log u."""
        log_weights, table = super().expectation(stats, batch, run)
        is_background = _is_background(stats.as_stats())
        # The product of the features of any row and ``base`` is -D log(2 pi) / 2. Multiply ``base``
        # by a number that makes this product log u.
        scale = self.log_density / (-0.5 * self.n_features * LOG_2PI)
        table = np.where(is_background[:, None], scale * self.component.base, table)
        return log_weights, table, is_background

    def statistics_energy(self, stats: RunningStats, global_params: Any) -> float:
        """Return ``E_q[log p(x, z | w, phi)]`` in nats, summed over the rows of the statistics."""
        _, _, is_background = global_params
        n_rows = float(stats.as_stats().arrays[0] @ is_background)
        return super().statistics_energy(stats, global_params) + n_rows * self.log_density

    def collapsed_energy(self, stats: Stats) -> float:
        """Return the bound without the entropies of assignments, in nats."""
        n_rows = float(stats.arrays[0] @ _is_background(stats))
        return super().collapsed_energy(stats) + n_rows * self.log_density

    def has_prior(self, stats: Stats) -> Any:
        """Return False for the background, which has no parameters, and True for the others."""
        return ~_is_background(stats)

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Return the gains of merges in nats, which are -inf for pairs with the background.

        In streams, a birth targets a component if a merge of its last rows with its other rows
        would lower the evidence. With -inf, the rows of the background are always such a target.
        """
        is_background = _is_background(stats)
        gains = super().merge_gains(stats, a, b)
        return np.where(is_background[a] | is_background[b], -np.inf, gains)

    def without_background(self, stats: RunningStats) -> tuple[Mixture, RunningStats]:
        """Return a model of the other components, and their statistics, for results of a fit.

        If the background is the only component, the model has one component without rows.
        """
        counts, sums = stats.as_stats().arrays
        is_background = _is_background(stats.as_stats())
        n_rows = float(counts @ is_background)
        fields = {name: vars(self)[name] for name in Mixture.__dataclass_fields__}
        if n_rows == 0.0:
            return Mixture(**fields), stats
        position = int(is_background.argmax())
        log_weights, _, _ = self.expectation(stats, None, None)  # type: ignore[arg-type]
        expected_weights = self.weights.mean(self.weights.natural_parameters(counts))
        weights: Any = self.weights
        model = MixtureBesideBackground(**fields | {
            "weights": SticksBesideBackground(
                weights.concentration, position=position, n_rows=n_rows
            ),
            "background_log_joint": float(log_weights[position]) + self.log_density,
            "background_weight": float(expected_weights[position]),
        })  # fmt: skip
        other_stats = [array[~is_background] for array in (counts, sums)]
        if is_background.all():
            other_stats = [np.zeros_like(array[:1]) for array in (counts, sums)]
        return model, RunningStats(other_stats)

    # ----------------------------------------------------------------------------------- rows
    def finish_step(self, result: LocalResult, global_params: Any) -> LocalResult:
        """Set the background's sums of features to 0 in the result of a local step."""
        _, _, is_background = global_params
        if result.stats is not None:
            result.stats.arrays[1][is_background] = 0.0
        return result

    def memo_entropy(
        self, batch: RowBatch, result: LocalResult, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return the entropies of assignments, and the losses of entropy by merges, in nats.

        The losses by merges with the background are NaN, so that no move makes such a merge.
        """
        entropy, losses = super().memo_entropy(batch, result, run, pairs=pairs)
        if losses is not None and result.stats is not None:
            is_background = _is_background(result.stats)
            losses[is_background] = losses[:, is_background] = np.nan
        return entropy, losses

    def make_local_result(self, batch: RowBatch, resp: Array) -> LocalResult:
        """Return the local result at given responsibilities (n, K).

        In a birth whose target is the background, the sums are 0, like the background's sums.
        """
        result = super().make_local_result(batch, resp)
        if self.is_target and result.stats is not None:
            result.stats.arrays[1][:] = 0.0
        return result

    # ------------------------------------------------------------------------- initial values
    def for_births(self, stats: Stats) -> Self:
        """Return the model for a birth that divides the rows of one component, its target.

        ``stats`` are the statistics of the target alone. If the target is the background, the new
        components compete with it for its rows.
        """
        return replace(self, is_target=bool(_is_background(stats).all()))

    def for_new_start(self) -> Self:
        """Return the model for a birth.

        The initial components of a birth include the background only if it is the target.
        """
        return replace(self, begins=self.is_target)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return the initial statistics of a mixture; the background has a tenth of the rows."""
        stats = super().initial(data, rng)
        if not self.begins:
            return stats
        counts, sums = ((1.0 - _INITIAL_SHARE) * array for array in stats.as_stats().arrays)
        counts = np.append(counts, _INITIAL_SHARE * data.total)
        return RunningStats([counts, np.vstack([sums, np.zeros_like(sums[:1])])])

    def symmetry_breaking_stats(self, stats: RunningStats, *args: Any) -> Stats:
        """Return statistics that make equal components different if they are added to ``stats``.

        The sums of the background stay 0.
        """
        counts, sums = super().symmetry_breaking_stats(stats, *args).arrays
        sums[_is_background(stats.as_stats())] = 0.0
        return Stats((counts, sums))

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, X: Any, stats: RunningStats, run: Run) -> Array:
        """Return the log predictive density of each row in nats.

        The density of the background counts as u outside the box, too.
        """
        model: Any
        model, other_stats = self.without_background(stats)
        log_densities = model.log_predictive(X, other_stats, run)
        if other_stats is stats:
            return log_densities
        return np.logaddexp(log_densities, np.log(model.background_weight) + self.log_density)


@dataclass(frozen=True, kw_only=True)
class SticksBesideBackground(StickBreaking):
    """Stick-breaking weights of K components beside a background, which also has a stick.

    Arguments and results of methods leave out the background. It is inserted at ``position`` for
    the computation, or at the end if joins have left fewer components than ``position``.
    """

    # Index of the background among all components, and its expected number of rows.
    position: int
    n_rows: float

    def natural_parameters(self, counts: Array) -> Array:
        """Return the parameters of all K + 1 sticks, given the counts of the K components."""
        position = min(self.position, counts.size)
        return super().natural_parameters(np.insert(counts, position, self.n_rows))

    def log_weights(self, t: Array) -> Array:
        """Return the log weights (K,) without the background, given t of all sticks (K + 1, 2)."""
        return np.delete(super().log_weights(t), min(self.position, len(t) - 1))

    def weights_of(self, sticks: Array) -> Array:
        """Return the weights (..., K) without the background, given all sticks (..., K + 1)."""
        position = min(self.position, sticks.shape[-1] - 1)
        return np.delete(super().weights_of(sticks), position, axis=-1)

    def log_evidence(self, counts: Array) -> float:
        """Return the log evidence of all K + 1 weights, with the counts in descending order."""
        return StickBreaking(self.concentration).log_evidence(
            np.sort(np.append(counts, self.n_rows))[::-1]
        )


@dataclass(frozen=True, kw_only=True)
class MixtureBesideBackground(Mixture):
    """The components of a fit beside its background, for attributes and predictions.

    The responsibilities of a row add up to 1 minus the probability of the background.
    """

    # E[log w_b] + log u, and E[w_b].
    background_log_joint: float
    background_weight: float

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> RowBatch:
        """Return rows as a batch; raise ValueError if values are missing."""
        return _require_all_values(super().batch(X, rows, weights))

    def finish_step(self, result: LocalResult, global_params: Any) -> LocalResult:
        """Take the share of the background from the responsibilities for each row."""
        # The probability that the row does not belong to the background.
        foreground_probability = expit(result.bound - self.background_log_joint)
        return replace(result, q=result.q * foreground_probability[:, None].astype(self.dtype))

    def _posterior_predictive(self, stats: RunningStats) -> Any:
        """Return the predictive mixture, without the weight of the background."""
        predictive = super()._posterior_predictive(stats)
        log_weights = predictive.log_weights.copy()
        # The last component has no rows. Its weight is 1 minus the weights of the other components,
        # so that it includes the weight of the background.
        with np.errstate(divide="ignore"):
            remaining_weight = np.exp(log_weights[-1]) - self.background_weight
            log_weights[-1] = np.log(max(remaining_weight, 0.0))
        return predictive._replace(log_weights=log_weights)
