"""The evidence lower bound of all models and engines.

    ELBO = sum_n w_n (energy_n + entropy_n) - KL(q(beta) || p(beta))          (nats)

including all constants. The tempered bound multiplies the energy by the inverse temperature
[VT16 eq. 4]; the policy adds the terms of its own latent variables [VT16 eq. 5].
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from skvt.contracts import Capability, HasHyperprior, LocalResult, LocalTotals, Model
from skvt.expfam import RunningStats, kl_divergence
from skvt.inference._parallel import Workers
from skvt.inference._state import Rows
from skvt.inference._visit import VisitRequest


def global_divergence(model: Model, stats: RunningStats) -> float:
    """Return KL(q(beta) || p(beta)) in nats, summed over the blocks of the globals.

    The log density of parameters of priors that have a prior themselves is subtracted.
    """
    divergence: float = sum(
        kl_divergence(family, lam, prior)
        for family, lam, prior in zip(
            model.families, model.natural_parameters(stats), model.prior().arrays, strict=True
        )
    )
    if Capability.HYPERPRIOR in model.capabilities:
        divergence -= cast("HasHyperprior", model).log_hyperprior()
    return divergence


def evaluate_bound(model: Model, stats: RunningStats, data: Rows, workers: Workers) -> float:
    """Return the untempered ELBO in nats at globals ``prior + stats``, with q(z) optimised."""
    totals, model = LocalTotals(), model.mean_field()
    request = VisitRequest(model, requested={"with_stats": False})
    make_globals = partial(model.expectation, stats, run=workers.run)
    for batches in data.rounds(model, workers, data.order(), whole=True):
        for result in data.visit(
            batches, lambda batch: request, make_globals, workers, summed=True
        ):
            totals.extend(result.totals)
    return totals.untempered - global_divergence(model, stats)


def local_results(
    model: Model, globals_of: Callable[[Any], Any], data: Rows, workers: Workers
) -> Iterator[tuple[Any, LocalResult]]:
    """Yield batches and their local results at T = 1, without statistics."""
    for batches in data.rounds(model, workers, data.order(), whole=True):
        for batch in batches:
            global_params = globals_of(batch)
            yield batch, model.local_step(batch, global_params, 1.0, workers.run, with_stats=False)
