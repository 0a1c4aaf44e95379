"""Shares of topics or clusters in each row, corrected for uncertain assignments.

A fit assigns topics to the tokens of a document, or clusters to rows, with probabilities. The
prior of these probabilities is the same for all rows, which pulls every row towards the mean of all
rows. Averages of the probabilities therefore understate differences between rows.

In this module, a component is a topic or a cluster, and an item is a token or a row. There are K
components and n rows. Let ``r_i`` (K,) be the probabilities with which item i belongs to the
components, ``w_i`` the weight of the item, and ``D = diag(sum_i w_i r_i)``. Row k of the matrix
``M = D^-1 sum_i w_i r_i r_i'`` contains the expected probabilities of an item that truly belongs to
component k. Hence the expectation of ``r_i' M^-1`` is the indicator of the true component of item
i, for any prior of the item. This is the correction of Bolck, Croon and Hagenaars with proportional
assignment [BCH04].

For topics, ``r_i`` depends on the word of the token only. With the probability beta_kv of word v in
topic k, the matrix is therefore ``M_kl = sum_v beta_kv r_vl``. The mean of the corrected
probabilities over a document's tokens is an unbiased estimate of its shares. Estimates may lie
outside [0, 1].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from skvt._results._clusters import sum_by_cluster
from skvt._results.topic_words import average_topics, normalize_topics
from skvt._stages import begin_stage, reporting_stages
from skvt.readers import DocumentReader
from skvt.readers.validation import require_fitted, split_pipeline

# Eigenvalues of the symmetric form of M count as 0 if they are below this number. The largest
# eigenvalue is 1. If an eigenvalue is near 0, the data do not distinguish the components that its
# eigenvector combines.
_MIN_EIGENVALUE = 1e-8
# Smaller singular values of the matrix A of `estimate_cluster_shares` are replaced by this number
# before A is inverted.
_MIN_SINGULAR_VALUE = 0.2


@dataclass(frozen=True)
class Shares:
    """Corrected shares of the topics or clusters of one fit."""

    # (n, K): estimated shares of each row.
    estimates: Any
    # (K, V) or (K, n): the distribution of each topic over words, or of each cluster over rows.
    # Components of several fits are matched by these distributions.
    profiles: Any
    # ``draw_matrices(n_draws, rng)`` returns matrices (n_draws, K, K). For each matrix, ``estimates
    # @ matrix`` is a draw of the shares. The draws express the uncertainty of the parameters of the
    # fit.
    draw_matrices: Callable[[int, np.random.Generator], Any]


def is_mixture(estimator):
    """Return whether a fit assigns rows to clusters, rather than tokens to topics.

    Raise ValueError for an estimator that does neither.
    """
    _, model = split_pipeline(estimator)
    require_fitted(model)
    # Only mixtures have this method.
    if hasattr(model, "_make_refits"):
        return True
    # Only models with Dirichlet posteriors of topics have this attribute.
    if hasattr(model, "exp_dirichlet_component_"):
        return False
    raise ValueError(
        f"{type(model).__name__} has neither clusters nor topics with a Dirichlet posterior. Pass "
        "a fit of StructuredLDA, TemperedLDA or MemoizedHDP, or a mixture."
    )


def count_words(estimator, X):
    """Return the word counts of X as a CSR matrix.

    If the estimator is a pipeline, X is the input of the pipeline, and the counts are the input of
    its last step.

    Raise ValueError if X holds other values than counts, or if X is a data frame whose columns
    differ from those of the rows of ``fit``.
    """
    preprocessing, model = split_pipeline(estimator)
    X = X if preprocessing is None else preprocessing.transform(X)
    # Read X by the rules of the fit, which are stored in the attributes of the model.
    reader = DocumentReader(type(model)).restore(vars(model), np.float64)
    reader.refuse_other_names(X, getattr(model, "words_", None))
    X = reader.read(X)
    if X.shape[1] != model.components_.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns, but the fit has a vocabulary of "
            f"{model.components_.shape[1]} words. Count the words of X with the vocabulary of the "
            "fit."
        )
    return X


def estimate_topic_shares(estimator, X):
    """Return the :class:`Shares` of topics in the documents X, a CSR matrix without empty rows.

    For each draw of the shares, all topics are drawn from their Dirichlet posteriors. Let beta be
    the expected topics, and suppose that the drawn topics ``beta + delta`` were the true topics.
    The estimated shares of a document that has topic k only would then be too large by ``delta_k'
    G`` on average, where G (V, K) are the corrected probabilities of topics given a word. The
    matrix of a draw subtracts this error. The matrices are shifted so that their mean is the
    identity. The mean of the drawn shares is then ``estimates``.
    """
    _, model = split_pipeline(estimator)
    # (K, V): parameters of the Dirichlet posteriors.
    lam = np.asarray(model.components_, np.float64)
    topics = normalize_topics(estimator)
    p_word = average_topics(estimator)
    # Probability of each topic for a random token, (K,), and for a token of each word, (V, K).
    sizes = lam.sum(axis=1) / lam.sum()
    probabilities = (sizes[:, None] * topics / np.where(p_word > 0.0, p_word, 1.0)).T
    corrected = _correct_items(probabilities, p_word)
    lengths = np.asarray(X.sum(axis=1), np.float64).ravel()
    estimates = (X @ corrected) / lengths[:, None]

    def draw_matrices(n_draws, rng):
        """Return a matrix (K, K) for each of ``n_draws`` draws of the topics."""
        # Gamma variates divided by their sum have a Dirichlet distribution.
        gammas = (rng.standard_gamma(lam) for _ in range(n_draws))
        drawn_topics = (gamma / gamma.sum(axis=1, keepdims=True) for gamma in gammas)
        mean_errors = [(drawn - topics) @ corrected for drawn in drawn_topics]
        return np.eye(len(lam)) + np.mean(mean_errors, axis=0) - mean_errors

    return Shares(estimates, topics, draw_matrices)


def estimate_cluster_shares(estimator, X, weights, n_clusters=None):
    """Return the :class:`Shares` of clusters in rows of positive weight.

    The mixture is refitted to X, and refitted again to each draw of weights e_i of the rows, see
    :mod:`skvt.models.mixture._refits`. For one draw, let r_i (K,) be the probabilities of row i
    before the refit, and let s_i be its probabilities after the refit. Let M be the matrix of the
    module docstring, computed from s_i and e_i instead of r_i and w_i. Suppose that r_i are the
    probabilities of the true clusters. The corrected shares ``s_i' M^-1`` of rows of cluster k then
    have the mean in row k of ``A = D^-1 sum_i e_i r_i s_i' M^-1``, with ``D = diag(sum_i e_i
    r_i)``. A is not the identity, because a refit overstates certainty. As in the bootstrap, A is
    assumed to describe also how the shares of the fit deviate from the true shares. Draws of the
    true shares are therefore ``estimates A^-1``.

    With ``n_clusters`` of None, each component of the mixture is a cluster. Refits are stages, see
    :mod:`skvt._stages`.
    """
    preprocessing, model = split_pipeline(estimator)
    X = X if preprocessing is None else preprocessing.transform(X)
    # The cluster of each component of the mixture.
    clusters = None if n_clusters is None else model.component_clusters(n_clusters)
    with reporting_stages(model.verbose):
        begin_stage("refit to all rows")
        refits = model._make_refits(X, weights)
    # The refits have no rows of weight 0.
    weights = weights[weights > 0.0]
    probabilities = sum_by_cluster(refits.resp, clusters)
    estimates = _correct_items(probabilities, weights)
    # Expected weight of the rows in each cluster.
    sizes = weights @ probabilities
    profiles = (weights[:, None] * probabilities / np.where(sizes > 0.0, sizes, 1.0)).T

    def draw_matrices(n_draws, rng):
        """Return A^-1 for each of ``n_draws`` draws of weights, shifted to a robust mean.

        The matrices are shifted so that their mean is their entrywise median, because a few extreme
        draws hardly change the median. The median is corrected so that its rows sum to 1.
        """
        inverses = []
        with reporting_stages(model.verbose):
            for i in range(n_draws):
                begin_stage(f"refit {i + 1} of {n_draws} to drawn weights of rows")
                inverses.append(_compute_draw_matrix(*refits.draw(rng), clusters))
        center = np.median(inverses, axis=0)
        center += (1.0 - center.sum(axis=1, keepdims=True)) / len(center)
        return center + inverses - np.mean(inverses, axis=0)

    return Shares(estimates, profiles, draw_matrices)


def _compute_draw_matrix(weights, resp_before, resp_after, clusters):
    """Return A^-1 (K, K) of :func:`estimate_cluster_shares` for one draw of row weights (n,).

    ``resp_before`` and ``resp_after`` (n, number of components) are the responsibilities of the
    mixture's components before and after the refit to this draw. ``clusters`` is as in
    `sum_by_cluster`.
    """
    before, after = (sum_by_cluster(resp, clusters) for resp in (resp_before, resp_after))
    weighted = weights[:, None] * before
    # Match the clusters after the refit to the clusters before the refit by their common mass.
    _, partners = linear_sum_assignment(weighted.T @ after, maximize=True)
    after = after[:, partners]
    sizes = weighted.sum(axis=0)
    A = weighted.T @ _correct_items(after, weights) / np.where(sizes > 0.0, sizes, 1.0)[:, None]
    left, singular_values, right = np.linalg.svd(A)
    return (right.T / np.maximum(singular_values, _MIN_SINGULAR_VALUE)) @ left.T


def _correct_items(probabilities, weights):
    """Return the corrected probabilities ``r_i' M^-1`` of each item i, in row i.

    The arguments are r_i in row i of ``probabilities``, and w_i in ``weights``. The inverse is
    computed from the symmetric form ``D^-1/2 sum_i w_i r_i r_i' D^-1/2`` of M, whose small
    eigenvalues count as 0.
    """
    # The square roots of the diagonal of D.
    root_sizes = np.sqrt(weights @ probabilities)
    scaled = probabilities / np.where(root_sizes > 0.0, root_sizes, 1.0)
    symmetric = scaled.T @ (weights[:, None] * scaled)
    return scaled @ np.linalg.pinv(symmetric, rcond=_MIN_EIGENVALUE, hermitian=True) * root_sizes
