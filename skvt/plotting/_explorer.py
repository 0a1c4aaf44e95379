"""Page to explore the topics of a fitted model in a browser, as one file that needs no network.

The module writes data in JSON into the template ``topic_explorer.html``, whose script draws them.
"""

import json
from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from skvt._results.topic_tables import generate_groups, make_corpus
from skvt._results.topic_words import RELEVANCE_WEIGHT, compute_relevance, select_first_words
from skvt.plotting._pages import require_path, write_page
from skvt.plotting._pyldavis import compute_principal_coordinates
from skvt.readers.validation import require_order_of
from skvt.rows import collect_details

# Maximum number of documents that are shown for a topic.
MAX_DOCUMENTS = 10
# Maximum number of characters that are shown of a document.
MAX_CHARACTERS = 600


def topic_explorer(
    estimator, X, feature_names=None, path=None, texts=None, groups=None, *, n_words=20,
    covariates=None, allowed_topics=None,
):  # fmt: skip
    """Write a page to explore the topics of a fitted model: one HTML file that needs no network.

    The page has a map of the topics, and a search for topics by their words. For each topic it
    shows words by relevance, with a slider for the weight of their probability, typical documents,
    and the share of the topic in each group of documents, with intervals. If groups are numbers,
    such as years, the shares are drawn as a line. The page works with tab and arrow keys, with
    screen readers, on telephones, and in dark mode.

    Parameters
    ----------
    estimator, X : as in :func:`skvt.topic_table`
        The fitted model, and the documents.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        The words; by default as in :func:`skvt.topic_table`.
    path : str or path-like, default=None
        The file to write. It is written as a whole or not at all, so that an error leaves an
        earlier file as it was. The path is required, and None is an error. It follows the words, so
        pass it by name if you pass no words.
    texts : list of str of length n_samples or None, default=None
        The texts of the documents; by default the input of a pipeline, if it consists of texts.
        The first 600 characters of a text are shown.
    groups : array-like, data frame or None, default=None
        The group of each row, such as a year, in one column or several, as in
        :func:`skvt.topic_shares`. Rows whose group is missing belong to no group.
    n_words : int, default=20
        Number of words that are shown for a topic.
    covariates : data frame or array-like, optional
        Covariates of the rows, as in :func:`skvt.topic_table`.
    allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
        Topics that each row may have, as in :func:`skvt.topic_table`.

    See Also
    --------
    skvt.topic_table : Shares, words and typical rows of topics as a data frame.

    Notes
    -----
    The page contains a script of some 250 lines. With Vega or Bokeh, the page would have half a
    megabyte or more, and keyboards and screen readers could hardly reach its parts. Positions on
    the map are principal coordinates of Jensen-Shannon divergences, as in pyLDAvis, but circles
    that would cover each other are moved apart. The search finds the words that the page may show
    for a topic. The size of a circle grows with the topic's share of the words. The file contains
    the words, numbers and texts that it shows: consider who may read these.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import topic_explorer
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> topic_explorer(lda, X, path="topics.html")  # doctest: +SKIP
    """
    require_path(path, "topic_explorer")
    check_scalar(n_words, "n_words", Integral, min_val=1)
    details = collect_details(covariates, allowed_topics)
    require_order_of(X, groups=groups, texts=texts, **details)
    corpus = make_corpus(
        estimator, X, feature_names, texts, caller="topic_explorer", details=details
    )
    group_shares = [] if groups is None else list(generate_groups(corpus, groups, confidence=0.95))
    words_of_topics = _choose_words(corpus, n_words)
    page_words = np.unique(np.concatenate(words_of_topics))
    map_positions = _compute_map_positions(corpus)
    topics = []
    for k, words in enumerate(words_of_topics):
        # The page refers to a word by its index in ``page_words``, which are sorted.
        word_numbers = np.searchsorted(page_words, words).tolist()
        topics.append({
            "label": corpus.labels[k],
            "share": float(corpus.shares[k]),
            "place": map_positions[k],
            "words": list(zip(word_numbers, _round_all(corpus.topics[k, words]), strict=True)),
            "documents": _list_documents(corpus, k),
        })  # fmt: skip
    n_samples, n_empty = corpus.lengths.size, corpus.empty_rows.size
    summary = f"{len(topics)} topics of {n_samples:,} documents."
    if n_empty:
        predicate = "have no words and belong to no topic: rows"
        if n_empty == 1:
            predicate = "has no words and belongs to no topic: row"
        summary += f" {n_empty:,} of them {predicate} {corpus.first_empty_rows}."
    names = [str(name) for name in corpus.names[page_words]]
    # The script of the page reads these keys. "weight" is the initial position of the slider.
    data = {
        "title": f"Topics of {n_samples:,} documents",
        "about": summary,
        "weight": RELEVANCE_WEIGHT,
        "n_words": n_words,
        "words": list(zip(names, _round_all(corpus.mean_topic[page_words]), strict=True)),
        "topics": topics,
        "groups": [
            {"name": group.name, "n_rows": group.n_rows}
            | {name: _round_all(getattr(group, name)) for name in ("share", "low", "high")}
            for group in group_shares
        ],
    }
    # "<" is escaped, because a text may contain the tag that ends a script.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    write_page(path, "topic_explorer.html", DATA=text)


def _choose_words(corpus, n_words):
    """Return the words that the page may show for each topic, as sorted column numbers.

    They are the words that are among the ``n_words`` first words by relevance for some position of
    the slider.
    """
    topics, mean_topic = corpus.topics, corpus.mean_topic
    # For each of the 21 positions of the slider, the first words of each topic.
    words_by_weight = [
        select_first_words(topics, compute_relevance(topics, mean_topic, weight), n_words)
        for weight in np.linspace(0.0, 1.0, 21)
    ]
    return [np.unique(np.concatenate(words)) for words in zip(*words_by_weight, strict=True)]


def _compute_map_positions(corpus):
    """Return the place [x, y] of each topic on the map, in [-1, 1]; None for one without words."""
    has_words = corpus.topics.any(axis=1)
    positions = compute_principal_coordinates(corpus.topics[has_words])
    # Scale the places, unless all are 0.
    positions = positions / (np.abs(positions).max(initial=0.0) or 1.0)
    # Take the next place for each topic that has words.
    rounded_positions = iter(np.round(positions, 3).tolist())
    return [next(rounded_positions) if topic_has_words else None for topic_has_words in has_words]


def _list_documents(corpus, k):
    """Return the rows with the largest proportions of topic k, at most MAX_DOCUMENTS.

    Each entry is a list of the index of the row, the proportion, and the beginning of the text.
    """
    documents = []
    for row in corpus.typical_rows(k, MAX_DOCUMENTS).tolist():
        text = "" if corpus.texts is None else corpus.texts[row]
        if len(text) > MAX_CHARACTERS:
            text = text[:MAX_CHARACTERS] + " ..."
        documents.append([row, float(f"{corpus.proportions[row, k]:.3g}"), text])
    return documents


def _round_all(values):
    """Return values as a list of numbers with four digits, with None for infinity and NaN."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
