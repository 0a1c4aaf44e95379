"""The table of the clusterings of a mixture, with a row for each number of clusters.

The K components of a mixture are joined, two clusters at a time, until one cluster is left; the
class :class:`~skvt.models.mixture.Joins` describes these joins. The clustering with n clusters is
the result of the first K - n joins. Clusterings are compared by the bounds of refits, and by their
agreement with other fits. Arrays of shape (K,) have the values of 1, ..., K clusters.
"""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from skvt.contracts import Capability, PassInputs, RunningPolicy
from skvt.expfam import RunningStats
from skvt.inference import CoordinateAscent, State, make_rows
from skvt.models.mixture import SIGNIFICANT_VALLEY, sum_joined_stats

# Refits end after _MAX_PASSES passes, or if a pass gains less than _TOL nats per row.
_MAX_PASSES = 10
_TOL = 1e-3


def compute_refitted_bounds(fitted, X, weights, workers, largest_number):
    """Refit the mixture to the rows X at each number of clusters; return the bounds (K,) in nats.

    A refit begins with the joined components, and keeps their number. The bounds are NaN for
    numbers of clusters above ``largest_number``, and for models whose components cannot be merged.
    """
    model, joins, stats = fitted.model, fitted.joins, fitted.stats.as_stats()
    bounds = np.full(joins.n_components, np.nan)
    if Capability.MERGEABLE not in model.capabilities:
        return bounds
    inputs = PassInputs(make_rows(X, weights), RunningPolicy(), workers)
    for i, clusters in enumerate(joins.all_component_clusters()[:largest_number]):
        joined_stats = sum_joined_stats(model, stats, clusters)
        bounds[i] = _compute_refitted_bound(model, State(RunningStats(joined_stats.arrays)), inputs)
    return bounds


def _compute_refitted_bound(model, state, inputs):
    """Return the bound in nats after passes of coordinate ascent, which change ``state``.

    There are at most _MAX_PASSES passes. The bound is that of the global parameters with which the
    last pass begins.
    """
    engine = CoordinateAscent()
    bound = -np.inf
    for _ in range(_MAX_PASSES):
        result = engine.run_pass(model, state, inputs)
        # The local parts of the bound, minus the divergence of q from the prior.
        previous, bound = bound, result.totals.untempered - result.divergence
        if bound - previous < _TOL * result.totals.weight:
            break
        model = result.model
    return bound


def compute_agreements(joins, labels, other_fits):
    """Return the mean adjusted Rand index with other fits at each number of clusters, (K,).

    ``labels`` (n,) are the components of the rows in this fit. ``other_fits`` has a pair for each
    other fit: its joins, and the components (n,) of the same rows in that fit. The index is NaN for
    numbers of clusters that no other fit has.
    """
    sum_of_indices, n_fits = np.zeros((2, joins.n_components))
    all_clusters = joins.all_component_clusters()
    for other_joins, other_labels in other_fits:
        # Fits have different numbers of components: zip ends at the smaller number.
        pairs = zip(all_clusters, other_joins.all_component_clusters(), strict=False)
        for i, (clusters, other_clusters) in enumerate(pairs):
            # The background counts as a further cluster. Its label -1 selects the last entry.
            this_fit, other_fit = (np.append(c, c.max() + 1) for c in (clusters, other_clusters))
            sum_of_indices[i] += adjusted_rand_score(this_fit[labels], other_fit[other_labels])
            n_fits[i] += 1.0
    all_unknown = np.full(joins.n_components, np.nan)
    return np.divide(sum_of_indices, n_fits, out=all_unknown, where=n_fits > 0.0)


def make_clusterings_table(joins, why_suggested, elbo):
    """Return the columns of ``clusterings_`` as lists, in a dict by name.

    ``why_suggested`` is the reason for the suggested number. ``elbo`` is the bound of the
    components in nats, or None if it is not known. Unknown values are NaN in the table.
    """
    numbers = range(1, joins.n_components + 1)
    are_suggested = [n == joins.n_clusters for n in numbers]
    # The row of n clusters has the join that makes n - 1 clusters of n clusters. Arrays of joins
    # begin with the join of K clusters, so that they are reversed. The row of 1 has no join.
    columns = {
        "n_clusters": numbers,
        "how": ["joined"] * (joins.n_components - 1) + ["components"],
        "loss": [np.nan, *joins.losses[::-1]],
        "criterion": ["", *joins.criteria[::-1]],
        "valley": [np.nan, *joins.valleys[::-1]],
        "valley_test": [np.nan, *joins.tests[::-1]],
        "bound": None if elbo is None or joins.bounds is None else elbo + joins.bounds,
        "refitted_bound": joins.refits,
        "agreement": joins.agreement,
        "suggested_by": joins.suggested_by,
        "suggested": are_suggested,
        "reason": [
            f"{why_suggested}." if is_suggested else explain_rejection(joins, n)
            for n, is_suggested in zip(numbers, are_suggested, strict=True)
        ],
    }
    all_unknown = np.full(joins.n_components, np.nan)
    columns = {name: all_unknown if values is None else values for name, values in columns.items()}
    return {name: np.asarray(values).tolist() for name, values in columns.items()}


def explain_rejection(joins, n_clusters):
    """Return a sentence that says why ``n_clusters`` is not the suggested number.

    If ``n_clusters`` is larger than the suggested number, the sentence describes the next join of
    two of these clusters. If it is smaller, the sentence describes the join that led to it.
    """
    is_larger = n_clusters > joins.n_clusters
    # Join number s, counted from 0, makes K - s - 1 clusters of K - s clusters.
    next_join = joins.n_components - n_clusters
    join = next_join if is_larger else next_join - 1
    # The first joins concern components to which no row is assigned.
    if join < joins.n_vacant:
        return "For one of the clusters, there is no row for which it is the most probable cluster."
    # ``valley_test`` is the depth of the valley between the two clusters in standard errors. It is
    # infinite if the clusters do not touch, and NaN if it is not known.
    criterion, valley_test = joins.criteria[join], joins.tests[join]
    if criterion == "valley" and valley_test < SIGNIFICANT_VALLEY:
        return (
            "No valley separates two of the clusters: the rows between them are fewer by only "
            f"{valley_test:.1f} standard errors, which chance explains."
        )
    if criterion == "valley":
        return "Two of the clusters are parts of a cluster that no valley divides."
    loss_text = f"{joins.losses[join]:.3g} nats of evidence per row"
    if criterion == "entropy":
        loss_text = f"{joins.shares[join]:.1%} of the entropy that it could lose"
    if is_larger:
        relation = "overlap" if criterion == "entropy" else "are alike"
        return f"Two of the clusters {relation}: joining them loses {loss_text}."
    # ``valley_depth`` is the depth of the valley in nats. It is infinite if no row lies between the
    # clusters, and NaN if it is not known.
    valley_depth = float(joins.valleys[join])
    valley_text = ""
    if np.isfinite(valley_test):
        valley_text = f", across a valley of {valley_test:.1f} standard errors"
    elif np.isinf(valley_test):
        valley_text = ", and they do not touch"
    elif np.isinf(valley_depth):
        valley_text = ", and no row lies between them"
    elif criterion == "entropy" and 0.0 < valley_depth < np.inf:
        valley_text = f", across a valley of {valley_depth:.2g} nats"
    condition = "the rule keeps" if criterion == "entropy" else "rows tell"
    return f"Two clusters were joined that {condition} apart: this loses {loss_text}{valley_text}."
