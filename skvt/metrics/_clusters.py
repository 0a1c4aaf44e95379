"""Agreement of a fit with a known truth: of cluster labels, and of matched components."""

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from skvt.readers.validation import check_choice


def cluster_alignment(labels_true, labels_pred, *, method="majority"):
    """Align clusters to true classes, and return the accuracy and the mapping.

    Parameters
    ----------
    labels_true : array-like of shape (N,)
        True classes: integers, strings or other sortable values.
    labels_pred : array-like of shape (N,)
        Clusters.
    method : {"majority", "one-to-one"}, default="majority"
        "majority": each cluster is aligned to the most frequent class among its members [1]_, so
        that several clusters may share a class. **Extra clusters are not penalised**: splitting a
        cluster cannot lower the accuracy, and one cluster per row makes it 1. "one-to-one": each
        class is paired with at most one cluster, in the pairing with the highest accuracy [2]_.
        **Extra clusters are errors**: all rows of an unpaired cluster count as wrong, and so do the
        rows of a class without a cluster.

    Returns
    -------
    accuracy : float
        Fraction of rows, 0 to 1, whose cluster is aligned to their class.
    mapping : dict
        The class to which each cluster is aligned. Unpaired clusters are left out. If several
        classes are equally frequent in a cluster, "majority" takes the first in sorted order.

    References
    ----------
    .. [1] M. C. Hughes and E. B. Sudderth (2013). Memoized online variational inference for
       Dirichlet process mixture models. NeurIPS 26, section 4.2 and figure 3 ("alignment
       accuracy"); also known as purity.
    .. [2] H. W. Kuhn (1955). The Hungarian method for the assignment problem. Naval Research
       Logistics Quarterly 2, 83-97. https://doi.org/10.1002/nav.3800020109

    Examples
    --------
    >>> from skvt.metrics import cluster_alignment
    >>> truth, clusters = ["a", "a", "a", "b", "b"], [0, 0, 1, 2, 2]
    >>> cluster_alignment(truth, clusters)
    (1.0, {0: 'a', 1: 'a', 2: 'b'})
    >>> cluster_alignment(truth, clusters, method="one-to-one")
    (0.8, {0: 'a', 2: 'b'})
    """
    check_choice("method", method, ("majority", "one-to-one"))
    labels_true = _check_labels("labels_true", labels_true)
    labels_pred = _check_labels("labels_pred", labels_pred)
    check_consistent_length(labels_true, labels_pred)

    # (n_classes, n_clusters): numbers of rows by class and cluster, which are both sorted.
    counts = contingency_matrix(labels_true, labels_pred)
    # Pair m is the class ``class_indices[m]`` and the cluster ``cluster_indices[m]``.
    if method == "majority":
        class_indices = counts.argmax(axis=0)  # [HS13 sec. 4.2]
        cluster_indices = np.arange(counts.shape[1])
    else:
        class_indices, cluster_indices = linear_sum_assignment(counts, maximize=True)
        # A class and a cluster without a common row do not count as a pair.
        have_common_rows = counts[class_indices, cluster_indices] > 0
        class_indices = class_indices[have_common_rows]
        cluster_indices = cluster_indices[have_common_rows]
    accuracy = float(counts[class_indices, cluster_indices].sum() / len(labels_true))
    classes, clusters = np.unique(labels_true), np.unique(labels_pred)
    pairs = zip(clusters[cluster_indices].tolist(), classes[class_indices].tolist(), strict=True)
    return accuracy, dict(sorted(pairs))


def _check_labels(name, labels):
    """Return labels as an array; raise ValueError if there are none, or if values are missing."""
    labels = column_or_1d(labels)
    if len(labels) == 0:
        raise ValueError(f"{name} must have at least one row. Got none.")
    # Only NaN differs from itself.
    if any(label is None or label != label for label in labels.tolist()):
        raise ValueError(
            f"{name} has missing values (NaN or None). Leave these rows out of both arrays of "
            "labels."
        )
    return labels


def match_components(A, B):
    """Pair the components of two models one to one by correlation.

    Parameters
    ----------
    A : array-like of shape (K, D)
        Components for which partners are searched, such as the true components, one per row. D is
        at least 2.
    B : array-like of shape (L, D)
        Components that may be partners, such as the fitted components. L may differ from K.

    Returns
    -------
    partners : ndarray of int64, shape (K,)
        ``B[partners[k]]`` is the partner of ``A[k]``. If L < K, components without a partner
        have -1.
    correlations : ndarray of float64, shape (K,)
        Pearson correlation of each component with its partner over the D features; NaN for a
        component without a partner.

    Notes
    -----
    The pairing has the largest sum of correlations of all one-to-one pairings
    (:func:`scipy.optimize.linear_sum_assignment`). Correlations are signed: a component does not
    match its negative. A constant component correlates 0 with all others.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt.metrics import match_components
    >>> A = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> partners, correlations = match_components(A, 2 * A[::-1])
    >>> partners
    array([1, 0])
    """
    A = check_array(A, dtype=np.float64, input_name="A")
    B = check_array(B, dtype=np.float64, input_name="B")
    if A.shape[1] != B.shape[1] or A.shape[1] < 2:
        raise ValueError(
            f"A and B must have the same number of features, at least 2. Got {A.shape[1]} "
            f"features in A and {B.shape[1]} in B."
        )
    # Correlations of all pairs, (K, L).
    all_correlations = np.clip(_standardise_rows(A) @ _standardise_rows(B).T, -1.0, 1.0)
    rows, columns = linear_sum_assignment(all_correlations, maximize=True)
    partners = np.full(len(A), -1, dtype=np.int64)
    correlations = np.full(len(A), np.nan)
    partners[rows] = columns
    correlations[rows] = all_correlations[rows, columns]
    return partners, correlations


def _standardise_rows(A):
    """Return the rows of A, shifted to mean 0 and scaled to length 1.

    Rows that are constant up to rounding errors become 0.
    """
    centred = A - A.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    max_rounding_errors = 8 * np.finfo(np.float64).eps * np.linalg.norm(A, axis=1, keepdims=True)
    is_varying = norms > max_rounding_errors
    return np.where(is_varying, centred, 0.0) / np.where(is_varying, norms, 1.0)
