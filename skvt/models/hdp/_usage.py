"""The usage of topics: sums over documents on which the best sticks of an HDP depend.

The bound of :class:`~skvt.models.hdp.HDP` needs only these sums of the documents' q(pi_d), the
Dirichlet distributions of their topic proportions, whose parameters are theta_d. beta_k is the
weight of topic k, and alpha beta is the prior of the proportions. A topic is in use in a document
if its tokens exceed the share :data:`~skvt.models.hdp._model.MIN_USE_SHARE` of its pseudo-count
alpha E[beta_k]. psi is the digamma function.
"""

import numpy as np

from skvt.typing import Array

# Columns of the usage (K, 5). Row k belongs to topic k, and each column is a sum over documents d,
# weighted by their weights:
# - SLOPE is the sum of psi(theta_dk) over the documents in which the topic is in use;
# - TRACES is the number of tokens of the topic in all other documents;
# - IN_USE is the number of documents in which the topic is in use;
# - DOCUMENTS is the number of all documents;
# - LENGTH_SLOPE is the sum of psi(alpha + N_d) - psi(alpha), where N_d are the document's tokens.
# All columns of a new topic are 0, so that DOCUMENTS and LENGTH_SLOPE of a topic leave out
# documents whose last local step preceded its birth.
SLOPE, TRACES, IN_USE, DOCUMENTS, LENGTH_SLOPE = range(5)
N_COLUMNS = 5


def find_document_totals(usage: Array) -> tuple[float, float]:
    """Return the number of documents and the sum LENGTH_SLOPE over all documents.

    They are the largest values of all topics, since a topic lacks the documents whose last local
    step preceded its birth.
    """
    return float(usage[:, DOCUMENTS].max()), float(usage[:, LENGTH_SLOPE].max())


def estimate_usage_of_union(usage: Array) -> Array:
    """Estimate the usage (5,) of the union of topics, given the usage (n, 5) of each.

    If n_a and n_b of D documents have topics a and b in use, ``n_a n_b / D`` documents have both in
    use by chance. In these documents, psi of the sum of both theta is at least
    ``log(exp(psi_a) + exp(psi_b))``, since exp(psi(x)) is convex, and 0 at x = 0. psi_a is the mean
    of psi(theta_da) over the documents that have topic a in use.
    """
    union = usage[0].copy()
    for added in usage[1:]:
        n_documents = max(union[DOCUMENTS], added[DOCUMENTS])
        if union[IN_USE] > 0.0 and added[IN_USE] > 0.0:
            n_both = union[IN_USE] * added[IN_USE] / n_documents
            psi_union, psi_added = union[SLOPE] / union[IN_USE], added[SLOPE] / added[IN_USE]
            union[SLOPE] += n_both * (np.logaddexp(psi_union, psi_added) - psi_union - psi_added)
            union[IN_USE] -= n_both
        union[[SLOPE, TRACES, IN_USE]] += added[[SLOPE, TRACES, IN_USE]]
        union[DOCUMENTS] = n_documents
        union[LENGTH_SLOPE] = max(union[LENGTH_SLOPE], added[LENGTH_SLOPE])
    return union
