"""Scores of topics: document completion, held-out likelihood and coherence.

The functions take topics as arrays of weights of words, so that topics may be from any library. In
the docstrings, theta are the topic proportions of a document, beta are the probabilities of words
in topics, and alpha is the Dirichlet prior of theta.
"""

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_random_state, check_scalar

from skvt._compiled import mix
from skvt._results import prior_vector
from skvt._results.completion import compute_completion_score, hash_contents, split_tokens
from skvt.inference import Workers
from skvt.metrics._held_out import estimate_documents
from skvt.models.lda import LDA
from skvt.readers.validation import (
    check_choice,
    refuse_bags,
    replace_masked_values,
    require_word_counts,
)
from skvt.ties import stable_order

# Largest number of tokens of a document for each method. Both methods visit tokens one by one, and
# left-to-right visits all earlier tokens again for each token.
_MAX_TOKENS = {"left-to-right": 100_000, "chib": 10_000_000}
# Number of documents in a parallel task of held-out likelihoods.
_DOCUMENTS_PER_TASK = 8


# -------------------------------------------------------------------- document completion


def document_completion_split(X):
    """Split the tokens of each document into an observed half and a held-out half.

    Each token is observed with probability 1/2. A hash of the document's content takes the place of
    random numbers, so that the split of a document does not depend on other rows.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts.

    Returns
    -------
    observed, held_out : csr_array of shape (n_samples, n_features)
        The two parts, with ``observed + held_out == X``.

    Examples
    --------
    >>> from skvt.metrics import document_completion_split
    >>> X = [[4, 0, 6], [0, 8, 2]]
    >>> observed, held_out = document_completion_split(X)
    >>> (observed + held_out).toarray().tolist() == X
    True
    """
    return split_tokens(_check_counts(X, "document completion"))


def document_completion_score(topic_word, X, *, doc_topic_prior, n_jobs=None):
    """Return the held-out log predictive probability per word for topics from any library.

    The topic proportions of a document are inferred from half of its tokens, by CVB0 [2]_ at the
    expected topics. A token of word w in the other half scores ``log sum_k E[theta_k] E[beta_kw]``.
    The method ``score`` of the topic models uses the same procedure, which is described in section
    4 of [1]_.

    Parameters
    ----------
    topic_word : array-like of shape (n_components, n_features)
        Positive weights of words: pseudo-counts, such as ``components_``, or probabilities. Rows
        are divided by their sums.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts of held-out documents.
    doc_topic_prior : float or array-like of shape (n_components,)
        Concentration of the Dirichlet prior of topic proportions.
    n_jobs : int or None, default=None
        Threads.

    Returns
    -------
    float
        Nats per held-out token; higher is better.

    References
    ----------
    .. [1] S. Mandt et al. (2016). Variational tempering. AISTATS.
    .. [2] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for topic
       models. UAI.

    Examples
    --------
    >>> from sklearn.decomposition import LatentDirichletAllocation
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.metrics import document_completion_score
    >>> X = make_topic_corpus(200, n_components=3, n_features=30, random_state=0).X
    >>> lda = LatentDirichletAllocation(3, random_state=0).fit(X[:150])  # or of any library
    >>> score = document_completion_score(lda.components_, X[150:], doc_topic_prior=1 / 3)
    """
    X = _check_counts(X, "document completion")
    topic_word = _check_topic_weights(topic_word, X)
    alpha = prior_vector("doc_topic_prior", doc_topic_prior, len(topic_word), "n_components")
    # LDA needs a prior of topics, which must be less than each weight. It has no effect, because
    # the topics are fixed.
    model = LDA(alpha, np.full(X.shape[1], topic_word.min() / 2.0))
    with Workers(n_jobs) as workers:
        return compute_completion_score(model, model.stats_from_topics(topic_word), X, workers)


def held_out_log_likelihood(
    topic_word, X, *, doc_topic_prior, method="left-to-right", n_samples=20, n_burn_in=10,
    random_state=0, n_jobs=None,
):  # fmt: skip
    """Estimate the log probability of held-out documents, ``log p(w | alpha, beta)``.

    The topic proportions of a document are integrated out. The integral has no closed form, so that
    it is estimated by a method of Wallach et al. [1]_. Unlike document completion, which predicts
    one half of a document from the other, the estimate is the probability of the whole document.

    Parameters
    ----------
    topic_word : array-like of shape (n_components, n_features)
        Positive weights of words in topics, such as ``components_``. Beta are the rows divided by
        their sums.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Whole counts of held-out documents.
    doc_topic_prior : float or array-like of shape (n_components,)
        Concentration alpha of the Dirichlet prior of topic proportions.
    method : {"left-to-right", "chib"}, default="left-to-right"
        With both methods, ``exp`` of a document's estimate is unbiased, so that the estimate itself
        is too low on average. The cost of left-to-right is quadratic in a document's length. Its
        particles are resampled; the version of the paper, without resampling, is biased. The cost
        of the Chib-style estimator is linear, but its estimates vary more.
    n_samples : int, default=20
        Number of particles, or of states of the Chib-style chain.
    n_burn_in : int, default=10
        Number of Gibbs sweeps over the topics of the tokens before the start of the chain is
        chosen. Used by "chib" only.
    random_state : int, RandomState instance or None, default=0
        With an int, the estimate of a document does not depend on the position of the document.
    n_jobs : int or None, default=None
        Threads.

    Returns
    -------
    ndarray of shape (n_samples,)
        Nats, one value for each document; ``sum() / X.sum()`` is the usual score per word.

    Raises
    ------
    ValueError
        For counts that are not whole numbers, and for documents with too many tokens.

    References
    ----------
    .. [1] H. Wallach, I. Murray, R. Salakhutdinov, D. Mimno (2009). Evaluation methods for topic
       models. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt.metrics import held_out_log_likelihood
    >>> topics = np.array([[0.5, 0.25, 0.25]])  # of a single topic, the likelihood is known
    >>> nats = held_out_log_likelihood(topics, [[2, 1, 0]], doc_topic_prior=1.0)
    >>> np.round(np.exp(nats), 6).tolist()
    [0.0625]
    """
    X = _check_counts(X, "held_out_log_likelihood")
    if not np.array_equal(X.data, np.floor(X.data)):
        raise ValueError(
            "Counts must be whole numbers, because the likelihood is that of a sequence of words. "
            "Use document_completion_score for weighted counts."
        )
    check_choice("method", method, ("left-to-right", "chib"))
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_burn_in, "n_burn_in", Integral, min_val=0)
    topic_word = _check_topic_weights(topic_word, X)
    alpha = prior_vector("doc_topic_prior", doc_topic_prior, len(topic_word), "n_components")
    max_tokens = X.sum(axis=1).max(initial=0.0)
    if max_tokens > _MAX_TOKENS[method]:
        raise ValueError(
            f"A document has {max_tokens:g} tokens, but method={method!r} takes at most "
            f"{_MAX_TOKENS[method]} tokens, because it visits them one by one. Leave such "
            "documents out, use method='chib' for up to ten million tokens, or use "
            "document_completion_score, which takes any number."
        )
    topics = np.ascontiguousarray((topic_word / topic_word.sum(axis=1, keepdims=True)).T)
    seed = np.uint64(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    # The content of a document determines its seed, so that its position does not matter.
    seeds = hash_contents(X) ^ mix(seed)
    log_likelihoods = np.empty(X.shape[0])
    # Each task has the arguments of a call of `estimate_documents` for some rows of X.
    tasks = []
    # Counts of any dtype become int64, so that the loop is compiled only once.
    indptr, words, counts = (array.astype(np.int64) for array in (X.indptr, X.indices, X.data))
    for start in range(0, X.shape[0], _DOCUMENTS_PER_TASK):
        rows = slice(start, start + _DOCUMENTS_PER_TASK)
        row_bounds = indptr[start : start + _DOCUMENTS_PER_TASK + 1]
        entries = slice(row_bounds[0], row_bounds[-1])
        tasks.append((row_bounds - row_bounds[0], words[entries], counts[entries], topics, alpha,
                      seeds[rows], method == "chib", n_samples, n_burn_in,
                      log_likelihoods[rows]))  # fmt: skip
    with Workers(n_jobs) as workers:
        workers.run(estimate_documents, tasks)
    return log_likelihoods


def _check_topic_weights(topic_word, X):
    """Return the weights of words in topics as float64.

    Raise ValueError unless all weights are positive, and each column of X has a weight.
    """
    topic_word = check_array(topic_word, dtype=np.float64)
    if topic_word.shape[1] != X.shape[1] or topic_word.min() <= 0.0:
        raise ValueError(
            "topic_word must be an array of positive numbers with a column for each of the "
            f"{X.shape[1]} columns of X. Got shape {topic_word.shape} and minimum "
            f"{topic_word.min():g} instead; if these are counts, add the topic prior to them."
        )
    return topic_word


def perplexity(log_predictive):
    """Return the perplexity of held-out words, ``exp(-log_predictive)``.

    Parameters
    ----------
    log_predictive : float
        Log predictive probability in nats per word, such as :func:`document_completion_score`.

    Returns
    -------
    float
        The number of equally probable words that would be equally hard to predict.

    Examples
    --------
    >>> import math
    >>> from skvt.metrics import perplexity
    >>> round(perplexity(-math.log(50)), 6)
    50.0
    """
    return float(np.exp(-check_scalar(log_predictive, "log_predictive", Real)))


def _check_counts(X, caller):
    """Return counts of words as a canonical CSR matrix; raise ValueError if they are illegal.

    ``caller`` is the name of the calling function in errors.
    """
    X = replace_masked_values(X, takes_missing=False, caller=caller)
    refuse_bags(X, caller)
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    return require_word_counts(X, caller)


# ------------------------------------------------------------------------ topic coherence


def topic_coherence(topic_word, X, *, n_words=10, measure="npmi", eps=0.0):
    """Return the coherence of each topic's top words, from their co-occurrence in documents.

    Parameters
    ----------
    topic_word : array-like of shape (K, V)
        Weight of each word in each topic, such as ``components_``. Only the order of the words
        within a topic matters. If weights are equal, the word with the smaller index comes first.
    X : {array-like, sparse matrix, sparse array} of shape (N, V)
        Word counts of the reference corpus. Only the presence of a word in a document matters.
    n_words : int, default=10
        Number of top words per topic, from 2 to V.
    measure : {"npmi", "umass"}, default="npmi"
        "npmi" is the normalised pointwise mutual information [1]_, averaged over the pairs of top
        words. A pair has -1 if the words never occur together, 0 if they are independent, and 1 if
        they occur only together. "umass" is the measure of Mimno et al. [2]_, summed over the
        pairs, which is nearly always negative. Higher is better for both measures.
    eps : float, default=0.0
        Number that "npmi" adds to the share of documents that have both words of a pair. With 0, a
        pair that never occurs together has the limit -1. With 1e-12, the choice of some libraries,
        such a pair has about -0.6. "umass" does not use ``eps``: it always adds 1 to the number of
        documents that have both words.

    Returns
    -------
    coherence : ndarray, shape (K,)
        One value per topic; the mean is the usual score of a model.

    Raises
    ------
    ValueError
        With "umass", if a top word occurs in no document of X.

    Notes
    -----
    Let D(v) be the number of documents that have the word v, D(v, w) the number of documents that
    have both words v and w, p = D / N, and v_1, ..., v_M the top words of a topic, the most
    probable first.

    - "npmi" is the mean over pairs of log[p(v, w) / (p(v) p(w))] / (-log p(v, w)). A pair that
      occurs in all documents has 0, because it does not distinguish a topic. A pair with a word
      that occurs in no document has -1.
    - "umass" is the sum over l < m of log[(D(v_m, v_l) + 1) / D(v_l)], equation 1 of [2]_.

    References
    ----------
    .. [1] J. H. Lau, D. Newman and T. Baldwin (2014). Machine reading tea leaves: automatically
       evaluating topic coherence and topic model quality. EACL, 530-539.
       https://doi.org/10.3115/v1/E14-1056
    .. [2] D. Mimno, H. Wallach, E. Talley, M. Leenders and A. McCallum (2011). Optimizing
       semantic coherence in topic models. EMNLP, 262-272.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt.metrics import topic_coherence
    >>> X = np.array([[1, 2, 0, 0], [3, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    >>> topic_coherence([[4, 3, 1, 1], [1, 1, 4, 3]], X, n_words=2)
    array([ 1., -1.])
    """
    topic_word = check_array(topic_word, dtype=[np.float64, np.float32], input_name="topic_word")
    X = replace_masked_values(X, takes_missing=False, caller="topic_coherence")
    X = check_array(X, accept_sparse="csr", ensure_non_negative=True, input_name="X")
    if topic_word.shape[1] != X.shape[1]:
        raise ValueError(
            f"topic_word has {topic_word.shape[1]} words, but X has {X.shape[1]}. Both need the "
            "same vocabulary in the same order."
        )
    check_choice("measure", measure, ("npmi", "umass"))
    check_scalar(n_words, "n_words", Integral, min_val=2, max_val=X.shape[1])
    if not 0.0 <= eps < 1.0:
        raise ValueError(f"eps must be in the range [0, 1). Got {eps!r}; try 0 or 1e-12.")

    # Find the top words (K, n_words) as column numbers, the distinct ``words`` of all topics, and
    # the positions (K, n_words) of the top words in ``words``.
    top_words = np.stack([stable_order(-topic)[:n_words] for topic in topic_word])
    words, positions = np.unique(top_words, return_inverse=True)
    # Form all pairs of top words (K, n_pairs); the first of a pair is the more probable word.
    first_ranks, second_ranks = np.triu_indices(n_words, k=1)
    firsts, seconds = positions[:, first_ranks], positions[:, second_ranks]
    # Numbers of documents with each of the words, and with both words of each pair, (K, n_pairs).
    frequency, joint_frequency = _count_documents(X, words, firsts, seconds)
    if measure == "umass":
        if (frequency == 0).any():
            raise ValueError(
                f"The words {words[frequency == 0][:10].tolist()} are top words but occur in no "
                "document of X. Pass the corpus of the fit, or use measure='npmi'."
            )
        return np.log((joint_frequency + 1) / frequency[firsts]).sum(axis=1)
    share, joint_share = frequency / X.shape[0], joint_frequency / X.shape[0]
    return _compute_npmi(share[firsts], share[seconds], joint_share + eps).mean(axis=1)


def _count_documents(X, words, firsts, seconds):
    """Count the documents with each word, and with both words of each pair (first, second).

    ``firsts`` and ``seconds`` are indices in ``words``.
    """
    is_present = sparse.csr_matrix(X[:, words] > 0, dtype=np.float64)
    # (number of words, number of words), sparse because most pairs of words do not occur together.
    # The diagonal has the number of documents with each word.
    joint_counts = (is_present.T @ is_present).tocsr()
    joint = np.asarray(joint_counts[firsts.ravel(), seconds.ravel()]).reshape(firsts.shape)
    return joint_counts.diagonal(), joint


def _compute_npmi(p_first, p_second, p_joint):
    """Return the normalised pointwise mutual information of pairs of words.

    Arguments are the probabilities of the two words and of the pair. The result is 0 for a pair of
    probability 1, and -1 for a pair or a word of probability 0.
    """
    is_regular = (p_joint > 0) & (p_joint < 1) & (p_first > 0) & (p_second > 0)
    # Other pairs get arbitrary legal probabilities, so that no logarithm warns.
    p_first, p_second = np.where(is_regular, p_first, 1.0), np.where(is_regular, p_second, 1.0)
    p_safe = np.where(is_regular, p_joint, 0.5)
    npmi = np.log(p_safe / (p_first * p_second)) / -np.log(p_safe)
    return np.where(is_regular, npmi, np.where(p_joint >= 1, 0.0, -1.0))
