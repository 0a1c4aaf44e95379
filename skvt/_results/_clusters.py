"""Clusters of a mixture: components that are joined in a hierarchy.

A mixture has K components. A join makes one cluster of two. The first joins depend on valleys,
which are regions of low density between two components, or on the entropy of assignments, which are
the probabilities that a row belongs to each component. Later joins depend on the evidence of the
components, see :mod:`skvt.models.mixture`. One of the numbers of clusters is suggested, with a
reason.
"""

import warnings
from dataclasses import replace
from numbers import Integral

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar

from skvt._results._clusterings import (
    compute_agreements,
    compute_refitted_bounds,
    make_clusterings_table,
)
from skvt._results._names import find_names, get_component_keys, read_names, store_names
from skvt._results.topic_tables import make_frame
from skvt.contracts import Capability
from skvt.expfam import RunningStats, sum_stats
from skvt.fitting import fitted_property, open_rows
from skvt.inference import iterate_local_results, make_rows
from skvt.models.mixture import (
    Assignments,
    Evidence,
    choose_by_elbow,
    choose_clusters,
    compute_join_bounds,
    find_valleys,
    indicate_clusters,
    join_components,
    number_distinct_rows,
    split_clusters,
)
from skvt.readers import ColumnWarning
from skvt.readers.validation import check_choice, find_stack_level
from skvt.rows import take_rows

# Losses of joins are computed from at most MAX_ROWS rows, or ROWS_PER_COMPONENT rows for each
# component if that is more. If there are more rows, a uniform sample is used.
MAX_ROWS = 10_000
ROWS_PER_COMPONENT = 200
# The uncertainty of assignments is measured on held-out rows if components have fewer rows than
# this number times their statistics, on average. The held-out rows are those of one of N_FOLDS
# folds.
MAX_ROWS_PER_STATISTIC = 5
N_FOLDS = 10
# Minimum ratio of the rows in the sample to the rows of the fit. Rows of a background are left out
# by their labels, and the number of rows of a fit is a sum of responsibilities, so that the ratio
# may be less than 1 for all rows.
_MIN_SHARE_OF_ROWS = 0.9
# Responsibilities that differ by less than this number are equal, up to rounding errors.
_MAX_ROUNDING_OF_RESP = 1e-6
# Criteria by which the next pair to join is chosen.
CRITERIA = ("auto", "share", "entropy", "evidence")
# Common factors of more columns than this may hide groups.
_MIN_FACTOR_COLUMNS = 20
_FACTORS_HIDE_GROUPS = (
    "the many columns depend on common factors, which may hide groups: compare with a fit of "
    "MemoizedDPGMM to 20 principal components"
)


def _has_factors(component, lam):
    """Return whether components explain many columns by common factors."""
    if not hasattr(component, "ranks"):
        return False
    lam = component.with_shared_globals(lam)
    means, _ = component.gaussians(lam)
    return means.shape[1] > _MIN_FACTOR_COLUMNS and component.ranks(lam).any()


class ClustersMixin:
    """Mixin of mixtures whose components are joined to a hierarchy of clusters."""

    def _compute_joins(self, X, weights, workers, criterion="auto"):
        """Join the components by the rows X of positive weight, or by a sample of them.

        Return :class:`skvt.models.mixture.Joins`: the joined pairs in order, the loss of each join,
        and the suggested number of clusters. ``criterion`` is one of CRITERIA.
        """
        # A fit with a background component has a ``shown_fit`` without it. Rows of the background
        # have the label -1. Leave them out, unless all rows belong to the background.
        fitted = self._fitted.shown_fit
        X, weights = take_rows(X, weights, self._sample_rows(weights.size))
        if fitted is not self._fitted:
            foreground = np.flatnonzero(self._predict_labels(X, None, workers) >= 0)
            X, weights = take_rows(
                X, weights, foreground if foreground.size else np.arange(weights.size)
            )
        X, weights = _leave_out_silent_rows(fitted, X, weights, workers)
        assignments = make_assignments(iterate_results(fitted, X, weights, workers))
        model, stats = fitted.model, fitted.stats.as_stats()
        component = model.component
        # Natural parameters of the posteriors of the components.
        _, lam = fitted.lam()
        # The density may have valleys if there is one block of columns that are not categories.
        # Classes that differ in all of several blocks overlap in each of them, and no value lies
        # between two categories.
        parts = list(component.parts(lam).values()) or [(component, lam)]
        categories = [
            marginals.categories for part, part_lam in parts
            for marginals in part.marginals(part_lam)
        ]  # fmt: skip
        has_levels = bool(categories) and all(names is not None for names in categories)
        has_valleys = len(parts) < 2 and not has_levels
        valleys = find_valleys(assignments, component, lam, X, weights)
        if criterion in ("share", "entropy"):
            joins = join_components(assignments, is_relative=criterion == "share")
            joins = replace(joins, reason="by the rule for the entropy")
        else:
            component_masses = model.component_masses(stats)
            _, feature_sums = stats.arrays
            evidence = Evidence(component, feature_sums, component_masses, assignments.is_vacant)
            # The assignments that show how much components overlap.
            overlaps = assignments
            if valleys is None and should_hold_out_rows(model, evidence, weights):
                overlaps = assign_held_out_rows(fitted, X, weights, workers, assignments.is_vacant)
            if criterion == "evidence":
                joins = choose_by_elbow(overlaps, evidence, "by the evidence alone")
            else:
                density = assignments if has_valleys else None
                joins = choose_clusters(overlaps, evidence, density, valleys)
            if joins.n_clusters == 1 and any(map(_has_factors, *zip(*parts, strict=True))):
                joins = replace(joins, reason=f"{joins.reason}; {_FACTORS_HIDE_GROUPS}")
        bounds = compute_join_bounds(model, stats, assignments, joins)
        # (K - 1,) each: depth and test of the valley between the two clusters of each join, NaN if
        # not known.
        valley_depths = valley_tests = np.full(len(joins.linkage), np.nan)
        if has_valleys:
            valley_depths = assignments.valley_depths(joins)
        if valleys is not None:
            valley_tests = valleys.join_tests(joins)
        return replace(joins, valleys=valley_depths, tests=valley_tests, bounds=bounds)

    def _sample_rows(self, n_rows):
        """Return the indices of all ``n_rows`` rows, or of a uniform sample, in ascending order."""
        max_rows = max(MAX_ROWS, ROWS_PER_COMPONENT * self.n_components_)
        if n_rows <= max_rows:
            return np.arange(n_rows)
        rng = np.random.default_rng(self._fitted.state.seed)
        return np.sort(rng.choice(n_rows, max_rows, replace=False))

    def join_components(self, X, sample_weight=None, *, criterion="auto"):
        """Join the components into clusters by the rows X, instead of the rows of ``fit``.

        The method is useful after ``partial_fit``, which joins no components, or for another
        criterion. Only ``hierarchy_`` and the other attributes of clusters change.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows. At most 10,000 rows are used, or 200 for each component if that is more. If there
            are more rows, a uniform sample is used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times.
        criterion : {"auto", "share", "entropy", "evidence"}, default="auto"
            How the next pair to join is selected. "entropy" selects by the loss of entropy of the
            assignments, as in Baudry et al. (2010), which favours pairs with many rows. "share"
            selects by this loss divided by the largest possible loss, which two components have if
            every row is equally likely to belong to either. "evidence" selects by the loss of
            evidence if the two become one component. "auto" selects as ``fit`` does. It first joins
            Gaussians of up to three columns by tests of the valleys between them, and other
            components by "share" as long as they overlap. Then it joins clusters by the evidence,
            weighted by how certain rows are and how deep the valleys are.

        Returns
        -------
        self : estimator
            The estimator itself.
        """
        self._require_fitted()
        check_choice("criterion", criterion, CRITERIA)
        with open_rows(self, X, sample_weight) as (rows, workers):
            joins = self._compute_joins(rows.X, rows.weights, workers, criterion)
        self._fitted = replace(self._fitted, joins=joins)
        return self

    def compare_clusterings(self, X, y=None, sample_weight=None, *, n_fits=1, max_refitted=20):
        """Compare the clusterings with refits of the mixture, and with fits of other seeds.

        A clustering is the hierarchy cut at one number of clusters. Only three columns of
        ``clusterings_`` change: "refitted_bound", "agreement" and "suggested_by". Each of the other
        fits takes as long as ``fit`` with ``n_init=1``. If ``labels_init`` or ``means_init`` is
        set, the other fits have the same start, so that their agreement says little. Agreement
        counts each row once, whatever its weight. Refits use neither classes of rows nor a
        background, so that "refitted_bound" is NaN if the fit used them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of ``fit``.
        y : array-like of shape (n_samples,), optional
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            As in ``fit``.
        n_fits : int, default=1
            Number of other fits, at least 0. Their seeds follow from the seed of this fit.
        max_refitted : int, default=20
            Largest number of clusters at which the mixture is refitted, at least 0.

        Returns
        -------
        self : estimator
            The estimator itself.

        Raises
        ------
        ValueError
            For illegal numbers, and after ``partial_fit`` unless ``join_components`` was called.
        """
        fitted = self._require_fitted()
        joins = self._require_joins(fitted, "clusterings_", ValueError)
        for name, value in (("n_fits", n_fits), ("max_refitted", max_refitted)):
            check_scalar(value, name, Integral, min_val=0)
        with open_rows(self, X, sample_weight) as (rows, workers):
            bounds = joins.refits
            # Refits use neither classes of rows nor a background, so that their bounds cannot be
            # compared with the bound of a fit that uses them. With a background, ``fitted`` is the
            # fit without the background component.
            has_comparable_bound = fitted.component_classes is None and fitted is self._fitted
            if max_refitted > 0 and has_comparable_bound:
                bounds = compute_refitted_bounds(
                    fitted, rows.X, rows.weights, workers, max_refitted
                )
            sample = self._sample_rows(rows.weights.size)
            sampled_rows, _ = take_rows(rows.X, rows.weights, sample)
            # The labels are components, because the clusters are None.
            labels = self._predict_labels(sampled_rows, None, workers)
        joins = replace(joins, refits=bounds)
        if n_fits > 0:
            seeds = np.random.default_rng(fitted.state.seed).integers(2**31 - 1, size=n_fits)
            # The joins and the labels of each other fit.
            other_fits = [self._fit_with_seed(int(s), X, y, sample_weight, sample) for s in seeds]
            # The number of clusters that each fit suggests, and all possible numbers 1, ..., K.
            suggested = np.array([joins.n_clusters, *(other.n_clusters for other, _ in other_fits)])
            possible_numbers = np.arange(1, joins.n_components + 1)
            joins = replace(
                joins, agreement=compute_agreements(joins, labels, other_fits),
                suggested_by=(suggested == possible_numbers[:, None]).mean(axis=1),
            )  # fmt: skip
        self._fitted = replace(self._fitted, joins=joins)
        return self

    def _fit_with_seed(self, seed, X, y, sample_weight, sampled_indices):
        """Fit with another seed; return the joins, and the labels of a sample of the rows.

        ``sampled_indices`` are the indices of the sampled rows. The labels are components.
        """
        parameters = self.get_params(deep=False) | {"n_init": 1, "warm_start": False, "verbose": 0}
        other_fit = type(self)(**parameters | {"random_state": seed})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # The first fit has issued this warning.
            warnings.simplefilter("ignore", ColumnWarning)
            other_fit.fit(X, y, sample_weight=sample_weight)
        with open_rows(other_fit, X, sample_weight) as (rows, workers):
            sampled_rows, _ = take_rows(rows.X, rows.weights, sampled_indices)
            return other_fit._fitted.joins, other_fit._predict_labels(sampled_rows, None, workers)

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
        return self._get_component_clusters(n_clusters)

    def _get_component_clusters(self, n_clusters):
        """Return the cluster of each component, (K,); None if ``n_clusters`` is None.

        Warn if the suggested number is 1.
        """
        if n_clusters is None:
            return None
        joins = self._require_joins(self._fitted, "hierarchy_", ValueError)
        if isinstance(n_clusters, str) and n_clusters == "auto":
            if joins.n_clusters == 1 < joins.n_components:
                warnings.warn(
                    f"All rows are in {self.n_clusters_reason_}.", stacklevel=find_stack_level()
                )
            return joins.component_clusters(joins.n_clusters)
        if not _is_int(n_clusters) or not 1 <= n_clusters <= joins.n_components:
            settings = "n_components=k" + " and moves=()" * hasattr(self, "moves")
            raise ValueError(
                "n_clusters must be 'auto', None for components, or an int in the range [1, "
                f"n_components_] = [1, {joins.n_components}]: clusters are joined components. "
                "Only 'predict' splits components, and the parts have no parameters. For more "
                f"clusters, fit anew with {settings}. Got {n_clusters!r} instead."
            )
        return joins.component_clusters(int(n_clusters))

    def _must_split_components(self, n_clusters):
        """Return whether ``n_clusters`` is an integer larger than the number of components."""
        return _is_int(n_clusters) and n_clusters > self.n_components_

    def _split_into_clusters(self, X, n_clusters, workers):
        """Split components into ``n_clusters`` clusters; return the cluster of each row of X, (n,).

        Equal rows count as one row with a weight, so that they get the same label.
        """
        # Row i of X is equal to row ``inverse[i]`` of the distinct rows.
        first_rows, inverse = number_distinct_rows(X)
        distinct_rows = X[first_rows]
        labels = self._predict_labels(distinct_rows, None, workers)
        # Rows of the background keep the label -1.
        is_foreground = labels >= 0
        if n_clusters > is_foreground.sum():
            raise ValueError(
                "n_clusters must be at most the number of rows of X that differ, "
                f"{is_foreground.sum()}. Got {n_clusters!r} instead."
            )
        fitted = self._fitted.shown_fit
        rng = np.random.default_rng(fitted.state.seed)
        counts = np.bincount(inverse).astype(np.float64)
        foreground_rows = distinct_rows[is_foreground], counts[is_foreground], labels[is_foreground]
        labels[is_foreground] = split_clusters(fitted.model, *foreground_rows, int(n_clusters), rng)
        return labels[inverse]

    def _require_joins(self, fitted, name, error=AttributeError):
        """Return the joins of components; raise ``error`` if the fit has none.

        ``name`` is the attribute that the message names.
        """
        if fitted.joins is None:
            raise error(
                f"{type(self).__name__!r} object has no attribute {name!r} during a fit and "
                "after partial_fit: it is computed from assignments of all rows, which are not "
                "available then. join_components(X) computes it from the rows X."
            )
        return fitted.joins

    @fitted_property
    def cluster_labels_(self, fitted):
        """Names of the suggested clusters, a list of str; None if no name was set.

        Set a list with a name for each cluster of ``predict(X, n_clusters="auto")``, or a dict from
        numbers of clusters to names, such as ``{0: "young"}``. A Series of pandas counts as a dict
        from its index to its values. A cluster that is not in the dict is called "cluster 1" by its
        number. Setting replaces all names, and ``del`` removes them.

        Files contain the names. After a warm start, ``partial_fit`` or ``join_components``, a
        cluster keeps its name if it consists of the same components as before; otherwise it has no
        name. Another fit deletes the names.
        """
        if fitted.joins is None:
            return None
        return self._get_cluster_labels("auto")

    @cluster_labels_.setter
    def cluster_labels_(self, labels):
        joins = self._require_joins(self._require_fitted(), "n_clusters_", ValueError)
        label_of_cluster = read_names(labels, joins.n_clusters, "cluster_labels_", "cluster")
        cluster_labels = store_names(label_of_cluster, self._get_cluster_keys(joins))
        self._fitted = replace(self._fitted, cluster_labels=cluster_labels)

    @cluster_labels_.deleter
    def cluster_labels_(self):
        self.cluster_labels_ = None

    def _get_cluster_labels(self, n_clusters):
        """Return the names of these clusters, a list of str; None if they have no names.

        Only the suggested clusters have names. ``n_clusters`` is as in ``predict``, and legal. A
        cluster to which the user gave no name gets its number as a name.
        """
        joins = self._fitted.joins
        if n_clusters is None or joins is None or n_clusters not in ("auto", joins.n_clusters):
            return None
        labels = find_names(self._fitted.cluster_labels, self._get_cluster_keys(joins))
        numbers = range(joins.n_clusters)
        return [labels.get(k, f"cluster {k}") for k in numbers] if labels else None

    def _make_label_column(self, n_clusters, clusters):
        """Return the column of a table with the names of ``clusters``, a dict; {} without names.

        ``clusters`` are numbers of clusters of the clustering ``n_clusters``.
        """
        labels = self._get_cluster_labels(n_clusters)
        return {} if labels is None else {"label": [labels[k] for k in clusters]}

    def _get_cluster_keys(self, joins):
        """Return the keys of the suggested clusters, by which their names are stored, a list.

        The key of a cluster is the tuple of the identifiers of its components, in ascending order.
        """
        fitted = self._fitted
        ids = get_component_keys(fitted, self._get_shown_fit(fitted), joins.n_components)
        clusters = joins.component_clusters(joins.n_clusters)
        return [
            tuple(sorted(ids[k] for k in np.flatnonzero(clusters == cluster)))
            for cluster in range(joins.n_clusters)
        ]

    @fitted_property
    def hierarchy_(self, fitted):
        """Linkage matrix of the joins of components, shape (K - 1, 4), as in SciPy."""
        return self._require_joins(fitted, "hierarchy_").linkage.copy()

    @fitted_property
    def hierarchy_criteria_(self, fitted):
        """Criterion that chose each pair: "valley", "entropy" or "evidence", (K - 1,)."""
        return self._require_joins(fitted, "hierarchy_criteria_").criteria

    @fitted_property
    def n_clusters_(self, fitted):
        """Suggested number of clusters."""
        return self._require_joins(fitted, "n_clusters_").n_clusters

    @fitted_property
    def n_clusters_reason_(self, fitted):
        """Reason why ``n_clusters_`` is suggested, in words."""
        joins = self._require_joins(fitted, "n_clusters_reason_")
        counts = ((joins.n_clusters, "cluster"), (joins.n_components, "component"))
        clusters, components = (f"{n} {noun}{'s' * (n > 1)}" for n, noun in counts)
        return f"{clusters} of {components}: {joins.reason}"

    @fitted_property
    def clusterings_(self, fitted):
        """Table with a row for each number of clusters from 1 to K, see the class's attributes."""
        joins = self._require_joins(fitted, "clusterings_")
        return make_frame(make_clusterings_table(joins, self.n_clusters_reason_, fitted.elbo))


def _is_int(value):
    """Return whether a value is an integer other than True and False."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def sum_by_cluster(resp, clusters):
    """Sum responsibilities (n, K) over the components of each cluster, (n, n_clusters).

    ``clusters`` (K,) has the cluster of each component. If it is None, return ``resp`` itself.
    """
    return resp if clusters is None else resp @ indicate_clusters(clusters, resp.dtype).T


def make_assignments(results):
    """Return the assignments of the rows of batches, from batches and their local results."""
    return Assignments((result.q, batch.weights, result.bound) for batch, result in results)


def iterate_results(fitted, X, weights, workers, stats=None):
    """Yield each batch of the rows X with its result of the local step.

    The local step computes the assignments of rows, at the global parameters of ``stats``, or of
    the fit if it is None.
    """
    model, stats = fitted.model, fitted.stats if stats is None else stats
    global_params = model.row_globals(stats, batch=None, run=workers.run)
    return iterate_local_results(model, lambda batch: global_params, make_rows(X, weights), workers)


def _leave_out_silent_rows(fitted, X, weights, workers):
    """Return rows and weights without the rows whose values say nothing about their component.

    The responsibilities of a row without a value, or of counts whose exposure is 0, are the
    expected weights of the components. Such rows must not count as overlap of components. If all
    rows are of this kind, they are returned unchanged.
    """
    is_empty = np.diff(X.indptr) == 0 if sp.issparse(X) else ~np.nan_to_num(X).any(axis=1)
    if not is_empty.any():
        return X, weights
    log_weights, *_ = fitted.model.row_globals(fitted.stats, batch=None, run=workers.run)
    empty_rows = np.flatnonzero(is_empty)
    results = iterate_results(fitted, *take_rows(X, weights, empty_rows), workers)
    resp = np.concatenate([result.q for _, result in results])
    is_silent = np.abs(resp - softmax(log_weights)).max(axis=1) < _MAX_ROUNDING_OF_RESP
    kept_rows = np.delete(np.arange(weights.size), empty_rows[is_silent])
    return take_rows(X, weights, kept_rows) if kept_rows.size else (X, weights)


def should_hold_out_rows(model, evidence, weights):
    """Return whether the uncertainty of assignments is measured on held-out rows.

    This needs two components with rows, and statistics that are sums over the assigned rows, as
    they are if components can be merged. It also needs all rows of the fit, because parameters that
    are learned from a sample of the rows, of the given ``weights``, are less certain.
    """
    has_several = np.count_nonzero(~evidence.is_vacant) > 1
    has_few_per_statistic = evidence.rows_per_statistic < MAX_ROWS_PER_STATISTIC
    has_most_rows = weights.sum() >= _MIN_SHARE_OF_ROWS * evidence.n_rows
    are_additive = Capability.MERGEABLE in model.capabilities
    return has_several and has_few_per_statistic and has_most_rows and are_additive


def assign_held_out_rows(fitted, X, weights, workers, is_vacant):
    """Return assignments of rows at global parameters that are learned without these rows.

    With few rows, the parameters of a component are close to its rows, so that its rows seem to be
    certain even if another component describes the same cluster. The assignments of rows that the
    parameters are not learned from show whether components overlap. The rows are divided into
    N_FOLDS folds at random. The parameters for a fold are learned from the rows of all other folds,
    as the fit assigns them. ``is_vacant`` (K,) says which component is the most probable one for no
    row of the fit.
    """
    model = fitted.model
    order = np.random.default_rng(fitted.state.seed).permutation(weights.size)
    folds = [take_rows(X, weights, np.sort(rows)) for rows in np.array_split(order, N_FOLDS)]
    folds = [fold for fold in folds if fold[1].size]
    fold_stats = [
        sum_stats([
            model.statistics_of_assignments(batch, result.q)
            for batch, result in iterate_results(fitted, *fold, workers)
        ])
        for fold in folds
    ]  # fmt: skip

    def iterate_held_out():
        for i, fold in enumerate(folds):
            other_folds = sum_stats(fold_stats[:i] + fold_stats[i + 1 :])
            learned_stats = RunningStats(array.copy() for array in other_folds.arrays)
            yield from iterate_results(fitted, *fold, workers, learned_stats)

    held_out = make_assignments(iterate_held_out())
    held_out.is_vacant = is_vacant.copy()
    return held_out
