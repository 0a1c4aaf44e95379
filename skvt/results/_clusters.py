"""Clusters of a mixture: components joined by valleys or entropy, then by distinctness."""

import warnings
from dataclasses import replace
from numbers import Integral

import numpy as np

from skvt.fitting import given_rows, of_fit
from skvt.inference import Workers, local_results, rows_of
from skvt.models.mixture import (
    SIGNIFICANT,
    Assignments,
    Evidence,
    by_elbow,
    choose_clusters,
    join_components,
    rows_that_differ,
    split_clusters,
    valleys_between,
)
from skvt.readers.validation import check_choice, stack_level
from skvt.results.topic_tables import as_frame
from skvt.rows import some_rows

# Components are joined by at most ROWS_TO_JOIN rows, or ROWS_TO_JOIN_EACH rows for each component
# if that is more. If there are more rows, a uniform sample is used.
ROWS_TO_JOIN = 10_000
ROWS_TO_JOIN_EACH = 200
# Criteria by which pairs are chosen.
CRITERIA = ("auto", "share", "entropy", "evidence")


class ClustersMixin:
    """Attributes and methods of the hierarchy of clusters of a mixture's components."""

    def _joins(self, X, weights, criterion="auto"):
        """Join the components by the rows X; return `skvt.models.mixture.Joins`."""
        fitted, (X, weights) = self._fitted, self._rows_to_join(X, weights)
        with Workers(self.n_jobs) as workers:
            results = results_of(fitted, X, weights, workers)
            assignments = Assignments(
                (result.q, batch.weights, result.bound) for batch, result in results
            )
        model, stats = fitted.model, fitted.stats.value()
        component, lam = model.component, fitted.lam()[1]
        n_blocks = len(component.parts(lam))
        valleys = valleys_between(assignments, component, lam, X, weights)
        if criterion in ("share", "entropy"):
            joins = join_components(assignments, relative=criterion == "share")
            joins = replace(joins, reason="by the rule for the entropy")
        else:
            counts = model.component_masses(stats)
            evidence = Evidence(component, stats.arrays[1], counts, assignments.vacant)
            if criterion == "evidence":
                joins = by_elbow(evidence, "by the evidence alone")
            else:
                joins = choose_clusters(assignments, evidence, n_blocks, valleys)
        depths = tests = np.full(len(joins.linkage), np.nan)
        # Valleys are not looked for if there are several blocks of columns, see choose_clusters.
        if n_blocks < 2:
            depths = assignments.valleys(joins)
        if valleys is not None:
            tests = valleys.tests_of(joins)
        return replace(joins, valleys=depths, tests=tests)

    def _rows_to_join(self, X, weights):
        """Return the rows, or a uniform sample of them in the same order, and their weights."""
        n_rows, most = weights.size, max(ROWS_TO_JOIN, ROWS_TO_JOIN_EACH * self.n_components_)
        rows = np.arange(n_rows)
        if n_rows > most:
            rng = np.random.default_rng(self._fitted.state.seed)
            rows = np.sort(rng.choice(n_rows, most, replace=False))
        return some_rows(X, weights, rows)

    def join_components(self, X, sample_weight=None, *, criterion="auto"):
        """Join the components into clusters by the rows X, instead of those of ``fit``.

        For streams, where there was no ``fit``, and for another criterion. Only ``hierarchy_`` and
        what goes with it changes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows. At most 10,000 rows, or 200 per component if that is more, are used; of more rows,
            a uniform sample.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times.
        criterion : {"auto", "share", "entropy", "evidence"}, default="auto"
            What selects the next pair to join. "share": the loss of entropy of the assignments
            divided by its maximum, the loss of two components between which every row is
            undecided. "entropy": the loss itself, as in the paper, which favours pairs with many
            rows. "evidence": the loss of evidence if the two become one component. "auto", as in
            ``fit``: Gaussians of up to three columns by tests of the valleys between them, others
            by "share" as far as components overlap; then by the evidence, weighted by how certain
            rows are and how deep the valleys are.

        Returns
        -------
        self : estimator
            The estimator itself.
        """
        fitted = self._require_fitted()
        check_choice("criterion", criterion, CRITERIA)
        with given_rows(self, X, sample_weight) as rows:
            joins = self._joins(rows.X, rows.weights, criterion)
        self._fitted = replace(fitted, joins=joins)
        return self

    def component_clusters(self, n_clusters="auto"):
        """Return the cluster of each component.

        Parameters
        ----------
        n_clusters : int or "auto", default="auto"
            Number of clusters; "auto" is ``n_clusters_``.

        Returns
        -------
        ndarray of int, shape (K,)
            Clusters, numbered from 0 in the order of their first components.
        """
        self._require_fitted()
        return self._clusters_of_components(n_clusters)

    def _clusters_of_components(self, n_clusters):
        """Return the cluster of each component, numbered from 0; None if ``n_clusters`` is None."""
        if n_clusters is None:
            return None
        joins = self._of_joins(self._fitted, "hierarchy_", ValueError)
        if isinstance(n_clusters, str) and n_clusters == "auto":
            if joins.n_clusters == 1 < joins.n_components:
                warnings.warn(
                    f"All rows are in {self.n_clusters_reason_}.", stacklevel=stack_level()
                )
            return joins.clusters(joins.n_clusters)
        is_int = isinstance(n_clusters, Integral) and not isinstance(n_clusters, bool | np.bool_)
        if not is_int or not 1 <= n_clusters <= joins.n_components:
            raise ValueError(
                "n_clusters must be 'auto', None for components, or an int in the range [1, "
                f"n_components_] = [1, {joins.n_components}]: clusters are joined components; "
                f"only 'predict' splits these into more. Got {n_clusters!r} instead."
            )
        return joins.clusters(int(n_clusters))

    def _needs_splits(self, n_clusters):
        """Return whether ``n_clusters`` is a number larger than the number of components."""
        is_int = isinstance(n_clusters, Integral) and not isinstance(n_clusters, bool | np.bool_)
        return is_int and n_clusters > self._fitted.model.size(self._fitted.stats)

    def _split_labels(self, X, n_clusters):
        """Return the labels of rows X in more clusters than there are components, (n,)."""
        firsts, inverse = rows_that_differ(X)
        if n_clusters > firsts.size:
            raise ValueError(
                f"n_clusters must be at most the number of rows of X that differ, {firsts.size}. "
                f"Got {n_clusters!r} instead."
            )
        fitted, rng = self._fitted, np.random.default_rng(self._fitted.state.seed)
        X, labels = X[firsts], self._labels_of(X[firsts], None)
        counts = np.bincount(inverse).astype(np.float64)
        return split_clusters(fitted.model, X, counts, labels, int(n_clusters), rng)[inverse]

    def _of_joins(self, fitted, name, error=AttributeError):
        """Return the joins, or raise ``error`` for the attribute ``name`` if they are not known."""
        joins = fitted.joins
        if joins is None:
            raise error(
                f"{type(self).__name__!r} object has no attribute {name!r} during a fit and "
                "after partial_fit: it is computed from assignments of all rows, which are not "
                "available then. join_components(X) computes it from the rows X."
            )
        return joins

    @of_fit
    def hierarchy_(self, fitted):
        """Linkage matrix of the components, shape (K - 1, 4)."""
        return self._of_joins(fitted, "hierarchy_").linkage.copy()

    @of_fit
    def hierarchy_criteria_(self, fitted):
        """Criterion that chose each pair: "valley", "entropy" or "evidence", (K - 1,)."""
        return self._of_joins(fitted, "hierarchy_criteria_").criteria

    @of_fit
    def n_clusters_(self, fitted):
        """Suggested number of clusters."""
        return self._of_joins(fitted, "n_clusters_").n_clusters

    @of_fit
    def n_clusters_reason_(self, fitted):
        """Reason why this number is suggested, in words."""
        joins = self._of_joins(fitted, "n_clusters_reason_")
        numbers = ((joins.n_clusters, "cluster"), (joins.n_components, "component"))
        clusters, components = (f"{n} {name}{'s' * (n > 1)}" for n, name in numbers)
        return f"{clusters} of {components}: {joins.reason}"

    @of_fit
    def clusterings_(self, fitted):
        """Table with a row for each number of clusters from 1 to K, see the class's attributes."""
        joins = self._of_joins(fitted, "clusterings_")
        return as_frame(clusterings(joins, self.n_clusters_reason_))


def clusterings(joins, why_suggested):
    """Return the columns of ``clusterings_`` by name, each as a list."""
    numbers = range(1, joins.n_components + 1)
    suggested = [n == joins.n_clusters for n in numbers]
    # The join that leaves n - 1 of n clusters is in the row of n. The row of 1 has no join.
    return {
        "n_clusters": list(numbers),
        "how": ["joined"] * (joins.n_components - 1) + ["components"],
        "loss": [np.nan, *joins.losses[::-1].tolist()],
        "criterion": ["", *joins.criteria[::-1].tolist()],
        "valley": [np.nan, *joins.valleys[::-1].tolist()],
        "valley_test": [np.nan, *joins.tests[::-1].tolist()],
        "suggested": suggested,
        "reason": [
            f"{why_suggested}." if is_it else why_not(joins, n)
            for n, is_it in zip(numbers, suggested, strict=True)
        ],
    }


def why_not(joins, n_clusters):
    """Return a sentence that says why ``n_clusters``, not the suggested number, was not chosen.

    The sentence about a larger number describes the join that follows it, the sentence about a
    smaller number the join that leads to it.
    """
    is_larger = n_clusters > joins.n_clusters
    step = joins.n_components - n_clusters - (not is_larger)
    if step < joins.n_vacant:
        return "One of the clusters is the most probable one of no row."
    criterion, test = joins.criteria[step], joins.tests[step]
    if criterion == "valley" and test < SIGNIFICANT:
        return (
            f"No valley separates two of the clusters: there are {test:.1f} standard errors fewer "
            "rows between them, which chance explains."
        )
    if criterion == "valley":
        return "Two of the clusters are parts of one that no valley divides."
    share, loss = joins.shares[step], f"{joins.losses[step]:.3g} nats of evidence per row"
    if criterion == "entropy":
        loss = f"{share:.1%} of the entropy that it could lose"
    if is_larger:
        relation = "overlap" if criterion == "entropy" else "are alike"
        return f"Two of the clusters {relation}: joining them loses {loss}."
    depth, valley = float(joins.valleys[step]), ""
    if np.isfinite(test):
        valley = f", across a valley of {test:.1f} standard errors"
    elif np.isinf(test):
        valley = ", and they do not touch"
    elif np.isinf(depth):
        valley = ", and no row lies between them"
    elif criterion == "entropy" and 0.0 < depth < np.inf:
        valley = f", across a valley of {depth:.2g} nats"
    subject = "the rule keeps" if criterion == "entropy" else "rows tell"
    return f"Two clusters were joined that {subject} apart: this loses {loss}{valley}."


def together(resp, clusters):
    """Sum responsibilities over the components of each cluster, (n, n_clusters).

    They are returned unchanged if ``clusters`` is None.
    """
    if clusters is None:
        return resp
    return resp @ membership(clusters, resp.dtype).T


def membership(clusters, dtype=np.float64):
    """Return 1 where a component belongs to a cluster, else 0, (n_clusters, K)."""
    return (clusters == np.arange(clusters.max() + 1)[:, None]).astype(dtype)


def results_of(fitted, X, weights, workers):
    """Yield the batches of the rows with their local results under the fitted model."""
    model = fitted.model
    global_params = model.row_globals(fitted.stats, None, workers.run)
    return local_results(model, lambda batch: global_params, rows_of(X, weights), workers)
