"""The evidence lower bound of all models and engines, in nats and with all constants.

    ELBO = sum_n w_n (energy_n + entropy_n) - KL(q(beta) || p(beta))

Here beta are the global parameters, given which rows are independent. Row n has the weight w_n and
the local variables z_n. Its energy is ``E_q[log p(x_n, z_n | beta)]``, and its entropy is the
entropy of q(z_n). The tempered bound multiplies the energy by the inverse temperature [VT16 eq. 4].
The temperature policy adds the terms of its latent variables [VT16 eq. 5]. Memoized inference
computes the bound from *memos*: the statistics and entropies that it keeps of each batch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from skvt._compiled import run_serially
from skvt.contracts import Capability, HasHyperprior, LocalResult, LocalTotals, Memoizable, Model
from skvt.expfam import RunningStats, kl_divergence
from skvt.inference._parallel import Workers
from skvt.inference._state import MemoizedState, Rows
from skvt.inference._visit import VisitRequest


def compute_global_divergence(model: Model, stats: RunningStats) -> float:
    """Return KL(q(beta) || p(beta)) in nats, summed over the blocks of the global parameters.

    The parameters of a block have the same exponential family. If parameters of the priors have a
    hyperprior, their log density under the hyperprior is subtracted.
    """
    lam, priors = model.natural_parameters(stats), model.prior().arrays
    blocks = zip(model.families, lam, priors, strict=True)
    divergence: float = sum(kl_divergence(*block) for block in blocks)
    if Capability.HYPERPRIOR in model.capabilities:
        divergence -= cast("HasHyperprior", model).log_hyperprior()
    return divergence


def evaluate_bound(model: Model, stats: RunningStats, data: Rows, workers: Workers) -> float:
    """Return the untempered ELBO in nats of q(beta) with the parameters ``prior + stats``.

    A local step of each batch finds the optimal q(z) of its rows.
    """
    totals = LocalTotals()
    # The bound is evaluated by mean-field local steps, even if the fit makes other local steps.
    model = model.mean_field()
    request = VisitRequest(model, step_options={"with_stats": False})
    make_globals = partial(model.expectation, stats, run=workers.run)
    for batches in data.group_batches(model, workers, data.list_batches(), fixed_globals=True):
        results = data.visit(batches, lambda batch: request, make_globals, workers, summed=True)
        for result in results:
            totals.extend(result.totals)
    return totals.untempered - compute_global_divergence(model, stats)


def compute_bound_parts(model: Memoizable, state: MemoizedState) -> tuple[LocalTotals, float]:
    """Return the two parts of the exact bound of the rows of all memos, in nats.

    The first part is the sums over rows, tempered and untempered. The second part is the divergence
    of the global parameters. The statistics of ``state`` must be the sum of the memos.
    """
    memo = state.memos.total()
    entropy, weight = float(memo.entropy.sum()), memo.weight
    # Free the memory of the total, which is as large as the global parameters.
    del memo
    model, stats = model.compact(state.stats)
    untempered_stats = stats.scaled_view(1.0 / (state.inv_temp * state.replication))
    global_params = model.expectation(stats, None, run_serially)
    energy = model.statistics_energy(untempered_stats, global_params)
    tempered = state.inv_temp * energy + entropy
    totals = LocalTotals(tempered, energy + entropy, weight)
    return totals, compute_global_divergence(model, stats)


def compute_exact_bound(model: Memoizable, state: MemoizedState) -> float:
    """Return the exact untempered bound of the rows of all memos, in nats."""
    totals, divergence = compute_bound_parts(model, state)
    return totals.untempered - divergence


def iterate_local_results(
    model: Model, make_globals: Callable[[Any], Any], data: Rows, workers: Workers
) -> Iterator[tuple[Any, LocalResult]]:
    """Yield each batch and the result of its local step at T = 1, without statistics.

    ``make_globals(batch)`` returns the ``global_params`` of the local step.
    """
    for batches in data.group_batches(model, workers, data.list_batches(), fixed_globals=True):
        for batch in batches:
            global_params = make_globals(batch)
            # The inverse temperature is 1.
            yield batch, model.local_step(batch, global_params, 1.0, workers.run, with_stats=False)
