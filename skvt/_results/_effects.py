"""Effects of covariates on shares of topics or clusters, pooled over draws and fits.

There are R independent fits, each with K topics or clusters. For each fit, the shares of n rows are
drawn M times from their posterior. Each draw is regressed on the P terms of a design, and Q linear
combinations of the P coefficients are reported.
"""

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import t as student
from sklearn.utils import check_random_state

from skvt._results._consensus import normalize_topics_of_fits, require_different
from skvt._results._design import make_design
from skvt._results._pooling import check_settings, pool
from skvt._results._regression import Regression
from skvt._results._shares import (
    count_words,
    estimate_cluster_shares,
    estimate_topic_shares,
    is_mixture,
)
from skvt._results.topic_tables import import_pandas
from skvt._results.topic_words import make_topic_labels
from skvt._sklearn_private import num_samples
from skvt.inference import one_blas_thread
from skvt.readers.validation import (
    check_choice,
    find_stack_level,
    show_similar,
    split_pipeline,
)

# Maximum probability of a warning of impossible shares if all true mean shares are 0 or 1.
_FALSE_WARNING_PROBABILITY = 1e-3
# Maximum distance of a share from the range [0, 1] that counts as a rounding error.
_MAX_ROUNDING = 1e-6


def covariate_effects(
    estimators, X, covariates, *, formula=None, cluster=None, n_draws=25, level=0.95,
    sample_weight=None, random_state=None, link="identity", at=None, contrasts=None,
    n_clusters=None,
):  # fmt: skip
    """Estimate how shares of topics, or of clusters, change with covariates.

    The shares of each row, corrected for uncertain assignments, are regressed on the covariates.
    With several independent fits, intervals include the variation between the local optima that the
    fits have reached.

    Parameters
    ----------
    estimators : estimator or list of estimators
        A fitted topic model or mixture, a pipeline that ends in one, or independent fits of one
        kind with different ``random_state``.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows, such as those of ``fit``; for pipelines, their input.
    covariates : data frame, or array-like of shape (n_samples,) or (n_samples, n_covariates)
        Covariates of the rows, in the order of the rows of X: rows are matched by position, not by
        the index of a data frame. A category becomes an indicator for each level but the first, and
        an intercept is added. Columns of an array are called x0, x1, ...
    formula : str or None, default=None
        The right-hand side of a formula over the columns of ``covariates``, such as ``"rating +
        bs(day, df=5)"``. The package formulaic evaluates it.
    cluster : array-like of shape (n_samples,) or None, default=None
        The group of each row, such as its author, if rows of the same group depend on each other.
    n_draws : int, default=25
        Draws of the parameters of each fit from their posterior, at least 2.
    level : float, default=0.95
        Probability of the intervals, between 0 and 1.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the rows, such as those of a survey. Standard errors allow for unequal weights.
    random_state : int, RandomState instance or None, default=None
        An int makes the draws reproducible.
    link : {"identity", "logit"}, default="identity"
        "identity": effects are differences of shares. "logit": effects are differences of the log
        odds of a share, and predicted shares lie between 0 and 1.
    at : data frame or array-like or None, default=None
        Rows of covariates. If given, the table has the predicted shares at these rows instead of
        effects.
    contrasts : dict or None, default=None
        Maps the name of each contrast to a dict, which maps terms to weights. If given, the table
        has the sums of weight times effect instead of the effects. The first level of a category
        has no term, because the other levels are compared with it. A contrast may still name it
        like the other levels, ``"party[T.Con]"``. Its effect is 0.
    n_clusters : int, "auto" or None, default=None
        The clusters of mixtures. With None, each component counts as a cluster. "auto" or an
        integer joins components into clusters, as in ``predict``.

    Returns
    -------
    pandas.DataFrame
        A table with a row for each pair of a topic or cluster and a term. The topics or clusters of
        other fits are matched to the topics or clusters of the first fit. The columns are:

        - "topic" or "cluster": index of the topic or cluster in the first fit.
        - "label": label of the topic, or name of the cluster. It is left out for clusters without
          names in ``cluster_labels_`` of the first fit.
        - "term": name of the term or contrast or, with ``at``, a description of the row.
        - "effect": the pooled effect or, with ``at``, the predicted share.
        - "low", "high": ends of the interval of the effect. NaN if one row, or one group of
          ``cluster``, alone determines the effect.
        - "standard_error": standard error of the effect; for the logit link in log odds.
        - "between_fits": share of the variance that is between fits; NaN for one fit.
        - "same_sign": number of fits in which the effect has the sign of the pooled effect.
        - "n_fits": number of fits that have a matched topic or cluster.
        - "agreement": mean overlap of the topic or cluster with its matches in the other fits. The
          overlap is the probability mass that two distributions have in common. NaN for one fit.

        For topics, ``attrs["rows_without_words"]`` has the indices of the rows that are left out
        because they have no words.

    Raises
    ------
    ValueError
        If inputs differ in the number of rows, if the index of a data frame or series has the
        labels of X in another order, if covariates have missing values or are constant or
        collinear, if the words of a fit are not the words of X in the same order, if the fits are
        of different kinds, or if two fits are equal, as fits with the same ``random_state`` are.

    Warns
    -----
    UserWarning
        If rows without words are left out, if a share has no estimate with the logit link, or if
        mean shares have standard errors above 0.5, because the data hardly distinguish some topics
        or clusters. With the identity link also if a mean share is outside [0, 1] by more than its
        standard error explains. With ``at`` also if numbers are outside the range of the data.

    See Also
    --------
    skvt.topic_shares : Shares of topics by group for one fit, with the topics taken as given.
    skvt.metrics.topic_stability : How far independent fits agree.

    Notes
    -----
    If shares are inferred under a prior without covariates, the prior pulls the shares of each row
    towards the mean of all rows. Effects would therefore be too small, above all for short
    documents. The estimates of topic shares that are used here are linear in the word counts of a
    document. Given the topics, they are unbiased for any prior of the document [1]_, so that
    covariates and allowed topics of the fits are not needed. The shares of clusters are the
    corrected assignments of [1]_, which assume that covariates are related to the columns of X only
    through the clusters. For this correction, the mixture is refitted to X by
    expectation-maximisation. A refit overstates the separation of the clusters. The difference
    between the assignments before and after a refit shows how much, and the shares are corrected by
    this difference. The refit is repeated for each draw of random weights of the rows. After ten
    seconds without a line, progress is printed if ``verbose`` of the mixture is positive, and
    logged by the logger "skvt" at level INFO.

    The variance of an effect has three parts [2]_. The first is the mean of the squared standard
    errors of the regressions, which are robust to unequal variances and to dependence within groups
    of ``cluster``. They and their degrees of freedom are corrected for effects that rest on few
    rows or groups [4]_. The second is (1 + 1/M) times the variance between M draws of parameters.
    The third is (1 + 1/R) times the variance between R fits. Intervals use Student's t with the
    degrees of freedom of Satterthwaite's approximation. The logit link is fractional regression
    [3]_.

    If an effect rests on few rows, they may all have shares near 0 by chance, and their robust
    variance is then near 0, too. It is therefore averaged with the variance that follows if the
    errors of all rows have one variance, or one dispersion for the logit link, and if the errors of
    all pairs of rows of the same group have one correlation. In the average, this variance has the
    weight of 4 degrees of freedom, as variances of genes are moderated [5]_ (section 3). The robust
    variance has the weight of its degrees of freedom, which are fewer if residuals have heavy
    tails. If the robust variance is larger than the average, it is used alone.

    References
    ----------
    .. [1] A. Bolck, M. Croon and J. Hagenaars (2004). Estimating latent structure models with
       categorical variables: one-step versus three-step estimators. Political Analysis 12, 3-27.
    .. [2] D. B. Rubin (1987). Multiple imputation for nonresponse in surveys. Wiley.
    .. [3] L. E. Papke and J. M. Wooldridge (1996). Econometric methods for fractional response
       variables. Journal of Applied Econometrics 11, 619-632.
    .. [4] R. M. Bell and D. F. McCaffrey (2002). Bias reduction in standard errors for linear
       regression with multi-stage samples. Survey Methodology 28, 169-181.
    .. [5] G. K. Smyth (2004). Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments. Statistical Applications in Genetics and Molecular
       Biology 3, article 3.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import TemperedLDA, covariate_effects
    >>> from skvt.datasets import make_topic_corpus
    >>> X, _, proportions = make_topic_corpus(300, n_components=3, n_features=50, random_state=0)
    >>> fits = [TemperedLDA(3, random_state=seed).fit(X) for seed in range(2)]
    >>> year = np.arange(300) % 10
    >>> table = covariate_effects(fits, X, year, random_state=0)
    >>> table["term"].tolist()
    ['Intercept', 'x0', 'Intercept', 'x0', 'Intercept', 'x0']
    """
    pandas = import_pandas("covariate_effects")
    check_choice("link", link, ("identity", "logit"))
    weights = check_settings(
        "covariate_effects", X, n_draws, level, sample_weight, covariates=covariates,
        cluster=cluster,
    )  # fmt: skip
    fits = list(estimators) if isinstance(estimators, list | tuple) else [estimators]
    are_mixtures = _check_whether_mixtures(fits)
    design = make_design(covariates, formula, num_samples(X))
    reported = _Combinations.from_options(design, at, contrasts)
    # Topic models leave out documents without words. Mixtures use all rows, so that ``has_words``
    # is a single True.
    word_counts = [] if are_mixtures else [count_words(fit, X) for fit in fits]
    has_words = are_mixtures or np.all([counts.sum(axis=1) > 0.0 for counts in word_counts], axis=0)
    used_rows = np.flatnonzero((weights > 0.0) & has_words)
    regression = Regression.for_rows(design, used_rows, weights, cluster, link)
    # Effects are combinations of coefficients with the weights (Q, P). The mean shares at the
    # extreme rows, by which shares are judged, are other combinations of coefficients.
    effect_weights = regression.to_orthogonal(reported.weights)
    extreme_rows = regression.find_extreme_rows()
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    with one_blas_thread():
        combinations = [
            (rows, *regression.compute_corrections(rows)) for rows in (effect_weights, extreme_rows)
        ]
        # Shares have a row for each used row. `estimate_cluster_shares` gets all rows and keeps
        # those of positive weight, which are the used rows of mixtures.
        if are_mixtures:
            shares = [estimate_cluster_shares(fit, X, weights, n_clusters) for fit in fits]
        else:
            shares = [
                estimate_topic_shares(fit, counts[used_rows])
                for fit, counts in zip(fits, word_counts, strict=True)
            ]
        estimates = [
            _estimate_effects(fit_shares, regression, *combinations, n_draws, rng)
            for fit_shares in shares
        ]
        effects, means = (pool(of_fits, shares) for of_fits in zip(*estimates, strict=True))
    _warn_of_useless_shares(means.standard_error, are_mixtures)
    _warn_of_impossible_shares(means, link, are_mixtures)
    columns = effects.columns(level, reported.names)
    _warn_of_missing_effects(columns["effect"])
    # Predictions with the logit link are in log odds; the table has shares.
    if reported.are_predictions and link == "logit":
        columns |= {name: expit(columns[name]) for name in ("effect", "low", "high")}
    indices = columns.pop("component")
    if are_mixtures:
        _, model = split_pipeline(fits[0])
        labels = model._make_label_column(n_clusters, indices)
        return pandas.DataFrame({"cluster": indices, **labels, **columns})
    topic_labels = make_topic_labels(fits[0])
    labels = [topic_labels[topic] for topic in indices]
    table = pandas.DataFrame({"topic": indices, "label": labels, **columns})
    table.attrs["rows_without_words"] = _find_rows_without_words(has_words)
    return table


def _warn_of_missing_effects(effects):
    """Warn if effects are NaN, as they are if the logit of a mean share does not exist."""
    if np.isnan(effects).any():
        warnings.warn(
            "The logit link gives no estimates for some topics or clusters, which are NaN in the "
            "result: the mean of their shares is estimated as 0 or less in some rows. Use "
            "link='identity' for them.",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def _check_whether_mixtures(fits):
    """Return whether the fits are mixtures; raise ValueError if they cannot be compared.

    Fits can be compared if they are different objects, and all of them are mixtures, or all of them
    are topic models with vocabularies of the same size.
    """
    mixture_flags = {is_mixture(fit) for fit in fits}
    if len(mixture_flags) != 1:
        raise ValueError(
            "estimators must be fits of one kind, either topic models or mixtures. Got "
            f"{', '.join(type(fit).__name__ for fit in fits) or 'an empty list'}."
        )
    require_different(fits, "estimators")
    (are_mixtures,) = mixture_flags
    if not are_mixtures:
        # Call the function only for its ValueError if the vocabularies differ in size.
        normalize_topics_of_fits(fits)
    return are_mixtures


def _find_rows_without_words(has_words):
    """Return the indices of the rows without words; warn if there are any."""
    empty_rows = np.flatnonzero(~has_words).tolist()
    if empty_rows:
        warnings.warn(
            f"{len(empty_rows)} of {has_words.size} rows have no words that the model knows, the "
            f"first of them row {empty_rows[0]}. They are left out, because nothing is known of "
            "their topics.",
            UserWarning,
            stacklevel=find_stack_level(),
        )
    return empty_rows


class _Combinations(NamedTuple):
    """The linear combinations of the P coefficients that the table reports."""

    # Names of the Q combinations.
    names: list
    # (Q, P): weights of the coefficients.
    weights: Any
    # Whether the combinations are predictions at rows of covariates.
    are_predictions: bool = False

    @classmethod
    def from_options(cls, design, at, contrasts):
        """Return the combinations that ``at`` or ``contrasts`` ask for, or all coefficients.

        ``design`` is the :class:`~skvt._results._design.Design` of the regression. ``at`` are rows
        of covariates for predictions, or None. ``contrasts`` maps the name of each contrast to a
        dict of weights by term, or is None. Raise ValueError if neither is None, or for illegal
        contrasts.
        """
        if at is not None and contrasts is not None:
            raise ValueError("Pass either 'at' or 'contrasts', not both.")
        if at is not None:
            names, combinations = design.describe(at), design.encode(at)
            design.warn_outside(at)
            return cls(names, combinations, are_predictions=True)
        if contrasts is None:
            return cls(design.names, np.eye(len(design.names)))
        weights_by_term = list(contrasts.values()) if isinstance(contrasts, dict) else [contrasts]
        if not all(map(_are_finite_weights, weights_by_term)):
            raise ValueError(
                "contrasts must be a dict of the form {name: {term: weight}} with finite weights, "
                f"such as {{'difference': {dict.fromkeys(design.names[-1:], 1)}}}. "
                f"Got {contrasts!r}."
            )
        combinations = np.zeros((len(contrasts), len(design.names)))
        terms = [*design.names, *design.reference_terms]
        for row, weights in zip(combinations, weights_by_term, strict=True):
            for term, weight in weights.items():
                if term not in terms:
                    raise ValueError(
                        f"contrasts has the term {term!r}, which is not among the {len(terms)} "
                        "terms and first levels of the design. Those most similar to it are "
                        f"{show_similar(term, terms)}. Pass one of them."
                    )
                # The coefficient of a first level is 0, whatever its weight.
                if term in design.names:
                    row[design.names.index(term)] = weight
        return cls(list(contrasts), combinations)


def _are_finite_weights(weights):
    """Return whether ``weights`` maps names to finite real numbers."""
    return hasattr(weights, "items") and all(
        isinstance(weight, Real) and np.isfinite(weight) for _, weight in weights.items()
    )


def _estimate_effects(shares, regression, of_effects, of_means, n_draws, rng):
    """Return estimates of one fit and their variances, in two arrays as :func:`pool` takes them.

    ``shares`` are the :class:`~skvt._results._shares.Shares` of the fit. The first array,
    (3, M, Q, K), has the effects, which are combinations of coefficients. The second array,
    (3, M, number of rows, K), has mean shares by least squares at the rows of
    :meth:`Regression.find_extreme_rows`. ``of_effects`` and ``of_means`` are the combinations and
    the corrections of their variances, as :meth:`RegressionFit.combine` takes them.
    """
    # (M, K, K): matrices by which the estimated shares (n, K) are multiplied, one for each draw.
    draw_matrices = shares.draw_matrices(n_draws, rng)
    linear = replace(regression, link="identity")
    n_components = draw_matrices.shape[1]
    effects = np.empty((3, n_draws, len(of_effects[0]), n_components))
    means = np.empty((3, n_draws, len(of_means[0]), n_components))
    for k in range(n_components):
        # The coefficients of one draw are the start of Newton's method for the next draw.
        start = None
        for m in range(n_draws):
            drawn_shares = shares.estimates @ draw_matrices[m, :, k]
            fit = regression.fit(drawn_shares, start=start)
            start = fit.coefficients
            effects[:, m, :, k] = fit.combine(*of_effects)
            linear_fit = fit if regression.link == "identity" else linear.fit(drawn_shares)
            means[:, m, :, k] = linear_fit.combine(*of_means)
    return effects, means


def _warn_of_useless_shares(standard_errors, are_mixtures):
    """Warn if a mean share of a topic or cluster has a standard error above 0.5.

    ``standard_errors`` (number of rows, K) belong to the mean shares at the extreme rows. A number
    between 0 and 1 has a standard deviation of at most 0.5, so that such an estimate says less than
    that shares are between 0 and 1. Corrected shares are far outside this range if the correction
    is almost singular, that is, if words or rows hardly distinguish some of the topics or clusters.
    """
    # Errors are NaN in a row that alone determines its mean shares.
    errors = np.fmax.reduce(standard_errors, axis=0)
    useless = np.flatnonzero(errors > 0.5)
    if useless.size:
        name = "clusters" if are_mixtures else "topics"
        remedy = (
            "Join clusters by n_clusters='auto', or fit fewer components."
            if are_mixtures
            else "Fit fewer topics, or leave out fits that repeat a topic."
        )
        warnings.warn(
            f"The effects on the shares of the {name} {useless.tolist()} are unknown: mean shares "
            f"have standard errors of up to {errors[useless].max():.2g}, and numbers between 0 and "
            f"1 vary by at most 0.5. The data hardly distinguish these {name}, the fits contradict "
            f"each other, or there are too few rows for the terms. {remedy}",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def _warn_of_impossible_shares(means, link, are_mixtures):
    """Warn of topics or clusters whose mean shares are outside [0, 1], beyond chance.

    ``means`` are the :class:`~skvt._results._pooling.Pooled` mean shares by least squares. With the
    logit link, effects do not rely on them.
    """
    if link == "logit":
        return
    excess = np.maximum(-means.estimate, means.estimate - 1.0).clip(min=0.0)
    # If all true mean shares are 0 or 1, a warning has at most the probability
    # _FALSE_WARNING_PROBABILITY, by the inequality of Bonferroni.
    critical = student.isf(_FALSE_WARNING_PROBABILITY / excess.size, means.degrees_of_freedom)
    impossible = np.flatnonzero(
        (excess > critical * means.standard_error + _MAX_ROUNDING).any(axis=0)
    )
    if impossible.size:
        name = "clusters" if are_mixtures else "topics"
        warnings.warn(
            f"Mean shares of the {name} {impossible.tolist()} are outside [0, 1] for some rows, by "
            f"up to {excess[:, impossible].max():.2g} and by more than their standard errors "
            "explain: shares do not change linearly with the covariates. Use link='logit', or "
            "curves and interactions in formula.",
            UserWarning,
            stacklevel=find_stack_level(),
        )
