"""Arguments of pyLDAvis for a topic model, and the page of pyLDAvis as a self-contained file.

There are K topics and V words.
"""

from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist, squareform

from skvt._results.topic_tables import make_corpus
from skvt.plotting._pages import require_path, write_page
from skvt.readers.validation import require_package
from skvt.rows import collect_details


def prepare_arguments(estimator, X, feature_names=None, *, covariates=None, allowed_topics=None):
    """Return the arguments of ``pyLDAvis.prepare`` for a fitted topic model.

    Use the result as ``pyLDAvis.prepare(**prepare_arguments(lda, X, names))``. This function does
    not need pyLDAvis.

    Parameters
    ----------
    estimator, X : as in :func:`skvt.topic_table`
        The fitted model, and the counts of words in documents, sparse or dense.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        The words, such as ``CountVectorizer.get_feature_names_out()``; by default as in
        :func:`skvt.topic_table`.
    covariates : data frame or array-like, optional
        Covariates of the rows, as in :func:`skvt.topic_table`.
    allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
        Topics that each row may have, as in :func:`skvt.topic_table`.

    Returns
    -------
    dict
        - "topic_term_dists" (n_components, n_words): probabilities of words in topics.
        - "doc_topic_dists" (n_samples, n_components): proportions of topics in documents.
        - "doc_lengths" (n_samples,): numbers of words in documents.
        - "vocab" (n_words,): the words.
        - "term_frequency" (n_words,): number of times that each word occurs in X.
        - "mds": a function that maps topics to the plane by principal coordinates of Jensen-Shannon
          divergences, as pyLDAvis does by default. It always returns real numbers, whereas pyLDAvis
          3.4.1 obtains complex numbers with NumPy 2.5.

        Words that do not occur in X are left out, because pyLDAvis divides by their frequency.
        Topics without words, which NMF may have, and documents without words or topics are left
        out, because they have no distributions.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import prepare_arguments
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> prepare_arguments(lda, X)["doc_topic_dists"].shape
    (200, 3)
    """
    details = collect_details(covariates, allowed_topics)
    corpus = make_corpus(estimator, X, feature_names, caller="prepare_arguments", details=details)
    # Keep the words that occur, topics that have such words, and documents that have such topics.
    occurs = corpus.frequency > 0.0
    if not occurs.any():
        raise ValueError("X has no words. Pass at least one document with words.")
    has_words = corpus.topics[:, occurs].any(axis=1)
    topics, proportions = corpus.topics[np.ix_(has_words, occurs)], corpus.proportions[:, has_words]
    has_topics = proportions.any(axis=1)
    if not has_topics.any():
        raise ValueError(
            "X has no document with words that the model knows. Pass documents such as those of "
            "the fit."
        )
    proportions = proportions[has_topics]
    return {
        "topic_term_dists": topics / topics.sum(axis=1, keepdims=True),
        "doc_topic_dists": proportions / proportions.sum(axis=1, keepdims=True),
        "doc_lengths": corpus.lengths[has_topics],
        "vocab": corpus.names[occurs],
        "term_frequency": corpus.frequency[occurs],
        "mds": compute_principal_coordinates,
    }


def save_pyldavis(
    estimator, X, feature_names=None, path=None, *, covariates=None, allowed_topics=None
):
    """Write the page of pyLDAvis as one HTML file that needs no network.

    The page of ``pyLDAvis.save_html`` loads scripts from the network, and is blank without a
    network. This function writes the scripts into the file. :func:`topic_explorer` writes a similar
    page and does not need pyLDAvis.

    Parameters
    ----------
    estimator, X : as in :func:`skvt.topic_table`
        The fitted model, and the documents.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        The words; by default as in :func:`skvt.topic_table`.
    path : str or path-like, default=None
        The file to write. It is written as a whole or not at all, so that an error leaves an
        earlier file as it was. The path is required; pass it by name if you pass no words.
    covariates : data frame or array-like, optional
        Covariates of the rows, as in :func:`skvt.topic_table`.
    allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
        Topics that each row may have, as in :func:`skvt.topic_table`.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import save_pyldavis
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> save_pyldavis(lda, X, path="topics.html")  # doctest: +SKIP
    """
    require_path(path, "save_pyldavis")
    arguments = prepare_arguments(
        estimator, X, feature_names, covariates=covariates, allowed_topics=allowed_topics
    )
    error_text = 'save_pyldavis needs the package pyLDAvis: pip install "skvt[ldavis]"'
    pyldavis = require_package("pyLDAvis", error_text)
    urls = require_package("pyLDAvis.urls", error_text)
    # "<" is escaped, because a word may contain the tag that ends a script.
    data = pyldavis.prepare(**arguments, n_jobs=1).to_json().replace("<", "\\u003c")
    style, d3, script = (
        Path(file).read_text(encoding="utf-8")
        for file in (urls.LDAVIS_CSS_LOCAL, urls.D3_LOCAL, urls.LDAVIS_LOCAL)
    )
    write_page(path, "pyldavis.html", STYLE=style, D3=d3, SCRIPT=script, DATA=data)


def compute_principal_coordinates(topics):
    """Map topics (K, V) to the plane (K, 2) by classical scaling of Jensen-Shannon divergences."""
    # The metric of SciPy is the square root of the divergence. For nearly equal topics it may be
    # NaN, because rounding can make the number under the root negative. NaN becomes 0.
    divergences = squareform(np.nan_to_num(pdist(np.asarray(topics), "jensenshannon") ** 2))
    # Double centring of the squared distances gives the inner products of the points.
    gram = -0.5 * divergences**2
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)
    # Eigenvalues are in ascending order.
    eigenvalues, eigenvectors = np.linalg.eigh(gram)
    # Leave out the smallest eigenvalue, because K points span at most K - 1 axes. Take the two
    # largest of the others, in descending order; for K = 2, there is only one.
    eigenvalues, eigenvectors = eigenvalues[:0:-1][:2], eigenvectors[:, :0:-1][:, :2]
    # Make the entry with the largest absolute value of each vector positive, so that the map does
    # not depend on the signs of eigenvectors.
    signs = np.sign(eigenvectors[np.abs(eigenvectors).argmax(axis=0), range(len(eigenvalues))])
    positions = np.zeros((len(divergences), 2))
    positions[:, : len(eigenvalues)] = np.sqrt(np.maximum(eigenvalues, 0.0)) * signs * eigenvectors
    return positions
