"""Tables of topics, clusters and components that notebooks show below the diagram of an estimator.

Each function returns three values: the title of the table, the names of its columns, and a list of
its rows.
"""

import numpy as np

from skvt._results.profiles import (
    SMALL_NOTE,
    describe_sizes,
    find_small_groups,
    format_share,
    list_distinctive_columns,
    make_profiles,
)
from skvt.readers.validation import require_column_names

# Number of words that are shown for a topic, and number of columns for a cluster.
N_WORDS, N_COLUMNS = 8, 3


def make_topics_table(estimator):
    """Return a table of the topics, the topic with the largest share first."""
    # The share of a topic in all words, which are counted by the pseudo-counts ``components_``.
    n_words_of_topics = estimator.components_.sum(axis=1)
    shares = n_words_of_topics / n_words_of_topics.sum()
    labels = estimator._labels_by_topic
    words = [", ".join(map(str, topic)) for topic in estimator.top_words(N_WORDS)]
    # If no words are known, the table shows column numbers.
    words_title = (
        "words" if hasattr(estimator, "words_") else "columns; set_words(names) shows words"
    )
    rows = [
        (f"{k} {labels.get(k, '')}".strip(), format_share(shares[k], 1), words[k])
        for k in (-shares).argsort(kind="stable").tolist()
    ]
    return f"{len(rows)} topics", ("topic", "share", words_title), rows


def make_clusters_table(estimator):
    """Return a table of the clusters, or of the components if they are not joined.

    The cluster with the largest share comes first.
    """
    is_joined = estimator._fitted.joins is not None
    table, n_rows = estimator._describe_as_table("auto" if is_joined else None)
    profiles = make_profiles(table)
    # The last weight is the weight of all rows.
    shares = profiles.weights[:-1]
    sizes = describe_sizes(shares, n_rows, n_decimals=1)
    texts = list_distinctive_columns(profiles, N_COLUMNS)
    texts = [
        f"{text}; {SMALL_NOTE}, see unusual_rows" if is_small else text
        for text, is_small in zip(texts, find_small_groups(shares, n_rows), strict=True)
    ]
    rows = [
        (f"{k} {profiles.labels[k] or ''}".strip(), sizes[k], texts[k])
        for k in (-shares).argsort(kind="stable").tolist()
    ]
    title = f"{len(rows)} {profiles.kind}s"
    title += f" of {estimator.n_components_} components" if is_joined else ""
    return title, (profiles.kind, "share", "compared with all rows"), rows


def make_components_table(estimator, title, shares, values, center=0.0):
    """Return a table of components, the component with the largest share first.

    ``values``, (K, n_features), has a value of each column in each component. The table shows the
    columns whose values differ most from ``center``. ``title`` is the title of the ``shares``.
    """
    names = require_column_names(estimator, None, estimator.n_features_in_).tolist()
    names = [f"column {name}" if isinstance(name, int) else name for name in names]
    largest = np.argsort(-np.abs(values - center), axis=1, kind="stable")[:, :N_COLUMNS]
    rows = [
        (
            k,
            format_share(shares[k], 1),
            ", ".join(f"{names[j]} {values[k, j]:.3g}" for j in largest[k]),
        )
        for k in np.argsort(-shares, kind="stable").tolist()
    ]
    return f"{len(rows)} components", ("component", title, "values that stand out"), rows
