"""The evidence lower bound, in one place for all models and engines.

    ELBO = sum_n w_n (energy_n + entropy_n) - KL(q(beta) || p(beta))          (nats)

with every constant. The tempered bound multiplies the energy by the inverse temperature
[VT16 eq. 4]; the policy adds the terms of its own latent variables [VT16 eq. 5].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.expfam import RunningStats, kl_divergence
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows
from skvt.models import LocalResult, Model
from skvt.typing import Array


@dataclass
class LocalTotals:
    """Weighted sums of the local parts of the bound over the rows of a pass, in nats.

    Attributes
    ----------
    tempered : float
        ``sum w (inv_temp * energy + entropy)``.
    untempered : float
        ``sum w (energy + entropy)``.
    weight : float
        Sum of the row weights.
    """

    tempered: float = 0.0
    untempered: float = 0.0
    weight: float = 0.0

    def add(self, result: LocalResult, weights: NDArray[Any], inv_temp: float | Array) -> None:
        """Add one batch's :class:`~skvt.models._contracts.LocalResult`."""
        weights = np.asarray(weights, dtype=np.float64)
        tempered = float(weights @ result.bound)
        self.tempered += tempered
        if np.ndim(inv_temp) == 0 and inv_temp == 1.0:
            self.untempered += tempered
        else:
            assert result.energy is not None  # as requested
            self.untempered += tempered + float(weights @ ((1.0 - inv_temp) * result.energy))
        self.weight += float(weights.sum())

    def scaled(self, total: float) -> "LocalTotals":
        """The same for rows of weight ``total``."""
        factor = total / self.weight
        return LocalTotals(self.tempered * factor, self.untempered * factor, total)


def global_divergence(model: Model, stats: RunningStats) -> float:
    """KL(q(beta) || p(beta)) in nats, summed over the blocks of the globals."""
    return sum(
        kl_divergence(family, lam, prior)
        for family, lam, prior in zip(
            model.families, model.natural_parameters(stats), model.prior().arrays, strict=True
        )
    )


def local_results(
    model: Model, globals_of: Callable[[Any], Any], data: Rows, workers: Workers
) -> Iterator[tuple[Any, LocalResult]]:
    """The batches of ``data`` in order and their local results at T = 1, without statistics.

    ``globals_of(batch)`` is what the local step takes for the globals.
    """
    for batch in data.batches(model, workers):
        global_params = globals_of(batch)
        yield batch, model.local_step(batch, global_params, 1.0, workers.run, with_stats=False)


def evaluate_bound(model: Model, stats: RunningStats, data: Rows, workers: Workers) -> float:
    """The untempered ELBO of ``data`` at the globals ``prior + stats``, q(z) optimised anew.

    Returns
    -------
    float
        Nats, every constant included.
    """
    totals, model = LocalTotals(), model.mean_field()

    def globals_of(batch: Any) -> Any:
        return model.expectation(stats, batch, workers.run)

    for batch, result in local_results(model, globals_of, data, workers):
        totals.add(result, batch.weights, 1.0)
    return totals.untempered - global_divergence(model, stats)
