"""Means of an outcome in each cluster, corrected for uncertain assignments.

There are n rows and K clusters. An outcome of numbers has Q = 1 column; an outcome of categories
has Q columns of indicators, one for each category. M is the number of draws.
"""

import warnings
from dataclasses import replace

import narwhals.stable.v2 as nw
import numpy as np
from scipy.stats import t as student
from sklearn.utils import check_random_state

from skvt._results._consensus import require_different
from skvt._results._design import encode_values
from skvt._results._pooling import check_settings, pool
from skvt._results._shares import estimate_cluster_shares, is_mixture
from skvt._results.topic_tables import import_pandas, make_share_intervals
from skvt._sklearn_private import num_samples
from skvt.inference import one_blas_thread
from skvt.readers import list_column_names
from skvt.readers.validation import find_stack_level, is_frame, split_pipeline


def outcome_by_cluster(
    mixture, X, outcome, *, n_draws=25, level=0.95, sample_weight=None, random_state=None,
    n_clusters=None,
):  # fmt: skip
    """Estimate the mean of an outcome, or shares of its categories, in each cluster.

    If it is uncertain to which cluster a row belongs, plain means over the rows of each cluster are
    too similar to each other. The estimated means are corrected for this error.

    Parameters
    ----------
    mixture : estimator or list of estimators
        A fitted mixture, a pipeline that ends in one, or independent fits with different
        ``random_state``.
    X : array-like of shape (n_samples, n_features)
        Rows, such as those of ``fit``.
    outcome : array-like of shape (n_samples,)
        A number or a category for each row, in the order of the rows of X. The outcome must not be
        a column of X.
    n_draws : int, default=25
        Number of refits of each mixture to randomly drawn weights of the rows, at least 2.
    level : float, default=0.95
        Probability with which an interval contains the true mean, between 0 and 1.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the rows, such as those of a survey. Standard errors account for unequal weights.
    random_state : int, RandomState instance or None, default=None
        An int makes the draws reproducible.
    n_clusters : int, "auto" or None, default=None
        Number of clusters. With None, each component counts as a cluster. "auto" or an integer
        joins components into clusters, as in ``predict``.

    Returns
    -------
    pandas.DataFrame
        A table with a row for each cluster, or for each pair of a cluster and a category of the
        outcome. The clusters of other fits are matched to the clusters of the first fit. The
        columns are:

        - "cluster": index of the cluster in the first fit.
        - "label": name of the cluster, if ``cluster_labels_`` of the first fit names it.
        - "category": category of the outcome; left out for an outcome of numbers.
        - "mean": mean of the outcome, or share of the category.
        - "low", "high": ends of the interval of the mean.
        - "standard_error": standard error of the mean.
        - "between_fits": share of the variance that is between fits; NaN for one fit.
        - "n_fits": number of fits that have a matched cluster.
        - "agreement": mean overlap of the cluster with its matches in the other fits. The overlap
          is the probability mass that two distributions over rows have in common. NaN for one fit.

    Raises
    ------
    ValueError
        If numbers of rows differ, if the index of the outcome or of the weights has the labels of X
        in another order, if the outcome has missing values, or if two fits are equal, as fits
        with the same ``random_state`` are.

    Warns
    -----
    UserWarning
        If the outcome has the name of a column of the fit, or if shares are unknown: a share is
        estimated below -0.5 or above 1.5, or has a standard error above 0.5.

    See Also
    --------
    skvt.covariate_effects : How shares of clusters change with covariates.

    Notes
    -----
    The weight of a row in the mean of a cluster is the corrected assignment of the row. Its
    expectation is 1 for the row's true cluster and 0 for other clusters [1]_ [2]_. This assumes
    that the outcome is related to the columns of X only through the clusters. To compute
    assignments, the mixture is refitted to X. The refit is repeated for each draw of random weights
    of the rows, see :func:`skvt.covariate_effects`. After ten seconds without a line, progress is
    printed if ``verbose`` of the mixture is positive, and logged by the logger "skvt" at level
    INFO. A mean is a ratio of sums over rows, and its standard error is robust to unequal
    variances. Its degrees of freedom are the effective number of rows of the cluster minus one. In
    clusters of few rows, the standard error is too small for outcomes that are mostly near 0 and
    rarely large, such as costs.

    If the outcome has categories, or only the numbers 0 and 1, the means are shares. The standard
    error of a share is too small if hardly any row has the category, and it is 0 if no row has it.
    The interval of a share is therefore the union of two intervals: that by the standard error, and
    that of Wilson for the effective number of rows, as in :func:`skvt.topic_shares`. Corrected
    assignments may be negative, and an estimated share may be outside [0, 1]. The nearest share, 0
    or 1, then takes its place, also in the middle of the interval, whose part outside [0, 1] is cut
    off. The interval of a cluster of fewer than two effective rows is NaN.

    References
    ----------
    .. [1] A. Bolck, M. Croon and J. Hagenaars (2004). Estimating latent structure models with
       categorical variables: one-step versus three-step estimators. Political Analysis 12, 3-27.
    .. [2] J. K. Vermunt (2010). Latent class modeling with covariates: two improved three-step
       approaches. Political Analysis 18, 450-469.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM, outcome_by_cluster
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0.0, 1.0], [120, 80])
    >>> X = rng.normal(size=(200, 2)) + 9.0 * y[:, None]
    >>> mixture = MemoizedDPGMM(random_state=0).fit(X)
    >>> outcome_by_cluster(mixture, X, y + 1.0, random_state=0)["mean"].round(2).tolist()
    [1.0, 2.0]
    """
    pandas = import_pandas("outcome_by_cluster")
    weights = check_settings(
        "outcome_by_cluster", X, n_draws, level, sample_weight, outcome=outcome
    )
    fits = list(mixture) if isinstance(mixture, list | tuple) else [mixture]
    if not fits or not all(map(is_mixture, fits)):
        raise ValueError(
            "outcome_by_cluster takes a fitted mixture or a list of them. Got "
            f"{', '.join(type(fit).__name__ for fit in fits) or 'an empty list'}."
        )
    require_different(fits, "mixture")
    # An outcome of numbers has one column in ``values`` (n, Q), and ``categories`` is None. An
    # outcome of categories has a column of indicators for each category.
    categories, values = encode_values("outcome", outcome, num_samples(X))
    # `estimate_cluster_shares` leaves out rows of weight 0 in the same way.
    used_rows = np.flatnonzero(weights)
    values, used_weights = values[used_rows], weights[used_rows]
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    _warn_of_double_use(fits, outcome)
    results = []
    with one_blas_thread():
        cluster_shares = [estimate_cluster_shares(fit, X, weights, n_clusters) for fit in fits]
        for shares in cluster_shares:
            degrees_of_freedom = _compute_degrees_of_freedom(shares.profiles)
            # The shares of a row are its assignments to clusters, (n, K).
            assignments = shares.estimates
            corrections = shares.draw_matrices(n_draws, rng)
            means = _estimate_means(
                assignments, corrections, values, used_weights, degrees_of_freedom
            )
            results.append(means)
    pooled = pool(results, cluster_shares)
    has_shares = categories is not None or np.isin(values, (0.0, 1.0)).all()
    if has_shares:
        _warn_of_unknown_shares(pooled)
        pooled = replace(pooled, estimate=pooled.estimate.clip(0.0, 1.0))
    # An outcome of numbers has one term with an empty name. The column of names is left out below.
    columns = pooled.columns(level, categories or [""])
    if has_shares:
        # Standard errors are too small if few rows have the category, or nearly all. The interval
        # of Wilson has the variance of a binomial share. Only standard errors include how uncertain
        # the clusters are.

        # (K,): 1 / m for the effective number of rows m of each cluster, see
        # `_compute_degrees_of_freedom`.
        inverse_counts = (cluster_shares[0].profiles ** 2).sum(axis=1)
        variance = pooled.estimate * (1.0 - pooled.estimate) * inverse_counts
        quantile = student.ppf(0.5 + 0.5 * level, used_rows.size - 1)
        low, high = make_share_intervals(pooled.estimate, variance, inverse_counts, quantile)
        # Bring the ends, (Q, K) each, to the order of the table: all terms of the first cluster,
        # then all terms of the second cluster, and so on.
        columns["low"] = np.minimum(low.T.ravel(), columns["low"].clip(0.0, 1.0))
        columns["high"] = np.maximum(high.T.ravel(), columns["high"].clip(0.0, 1.0))
    new_names = {"component": "cluster", "term": "category", "effect": "mean"}
    if categories is None:
        del new_names["term"]
    kept_columns = ("low", "high", "standard_error", "between_fits", "n_fits", "agreement")
    frame = pandas.DataFrame(columns)[[*new_names, *kept_columns]].rename(columns=new_names)
    _, first_model = split_pipeline(fits[0])
    for name, labels in first_model._make_label_column(n_clusters, frame["cluster"]).items():
        frame.insert(1, name, labels)
    return frame


def _warn_of_double_use(fits, outcome):
    """Warn if the name of the outcome is that of a column of a fit.

    Clusters of such a fit were chosen to differ in the outcome.
    """
    if nw.dependencies.is_into_series(outcome):
        names = [nw.from_native(outcome, series_only=True).name]
    else:
        names = list_column_names(outcome) if is_frame(outcome) else []
    for name in names:
        if any(name in _get_fitted_names(split_pipeline(fit)[1]) for fit in fits):
            warnings.warn(
                f"The outcome {name!r} is a column of the fit, whose clusters were chosen to "
                "differ in it. If clusters overlap, their means are too far apart, and intervals "
                "miss the true means. Fit the mixture without this column, or see "
                "mixture.describe() for its means. If the outcome was measured at another time, "
                "rename it.",
                UserWarning,
                stacklevel=find_stack_level(),
            )


def _warn_of_unknown_shares(pooled):
    """Warn of clusters whose shares, of :class:`~skvt._results._pooling.Pooled`, are unknown.

    A number between 0 and 1 has a standard deviation of at most 0.5. If an estimate is off by more,
    it says less than that the share is between 0 and 1.
    """
    excess = np.abs(pooled.estimate - pooled.estimate.clip(0.0, 1.0))
    error = np.fmax(excess, pooled.standard_error)
    unknown = np.flatnonzero((error > 0.5).any(axis=0))
    if unknown.size:
        warnings.warn(
            f"The shares of the clusters {unknown.tolist()} are unknown: they are off by up to "
            f"{error[:, unknown].max():.2g}, because few rows belong to these clusters alone, or "
            "because the outcome depends on the columns also within clusters. Join clusters, for "
            "example by n_clusters='auto', or fit fewer components.",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def _get_fitted_names(mixture):
    """Return the names of the columns that the components of a mixture describe."""
    table = getattr(mixture, "_columns", None)
    if table is None:
        return getattr(mixture, "words_", ())
    return [table.names[j] for block in table.blocks for j in block.columns]


def _estimate_means(assignments, corrections, values, weights, degrees_of_freedom):
    """Estimate the means of ``values`` (n, Q) in K clusters, for each of M draws.

    Return the means, their squared standard errors, and these divided by the roots of their degrees
    of freedom, in an array (3, M, Q, K) as :func:`~skvt._results._pooling.pool` takes it.

    The product of ``assignments`` (n, K) and a matrix of ``corrections`` (M, K, K) is a draw of
    corrected assignments. ``weights`` (n,) are the weights of the rows. A mean is a ratio of sums
    over rows. The denominator is the size of a cluster, which may be near 0 in a draw. The ratio is
    therefore replaced by its linear approximation at the mean of the draws. The squared errors are
    multiplied by m / (m - 1) for the effective number of rows m of each cluster, because they are
    too small for few rows; ``degrees_of_freedom`` (K,) are m - 1.
    """
    weighted_assignments = weights[:, None] * (assignments @ corrections.mean(axis=0))
    sizes = weighted_assignments.sum(axis=0)
    # A cluster without rows has no mean.
    sizes[sizes == 0.0] = np.nan
    means_at_mean_draw = values.T @ weighted_assignments / sizes
    results = np.empty((3, len(corrections), *means_at_mean_draw.shape))
    # Three views of ``results``, (M, Q, K) each.
    means, squared_errors, errors_by_root = results
    factors = 1.0 + 1.0 / degrees_of_freedom
    for m, correction in enumerate(corrections):
        # (n, K): the weight of each row in the mean of each cluster. The weights of a cluster sum
        # to about 1.
        row_weights = weights[:, None] * (assignments @ correction) / sizes
        for q, column in enumerate(values.T):
            deviations = row_weights * (column[:, None] - means_at_mean_draw[q])
            means[m, q] = means_at_mean_draw[q] + deviations.sum(axis=0)
            squared_errors[m, q] = (deviations**2).sum(axis=0) * factors
    np.divide(squared_errors, np.sqrt(degrees_of_freedom), out=errors_by_root)
    return results


def _compute_degrees_of_freedom(profiles):
    """Return m - 1 for the effective number of rows m of each cluster, (K,).

    ``profiles`` (K, n) has the distribution of each cluster over rows; m is 1 divided by the sum of
    its squares. A cluster without rows has a profile of zeros. The result is NaN if m < 2, because
    fewer than two rows do not determine a variance.
    """
    concentrations = (profiles**2).sum(axis=1)
    m = np.zeros(len(profiles))
    np.divide(1.0, concentrations, out=m, where=concentrations > 0.0)
    return np.where(m < 2.0, np.nan, m - 1.0)
