"""Report of the clusters of a mixture, as one HTML page.

If the components of the mixture are not joined into clusters, the report describes the components,
and "cluster" means component in this module.
"""

from html import escape

import numpy as np
import scipy.sparse as sp

from skvt._results import find_most_probable
from skvt._results.profiles import (
    SMALL_NOTE,
    explain_columns,
    find_directions,
    find_relevant_columns,
    find_small_groups,
    format_share,
    list_distinctive_columns,
    make_profiles,
    name_groups,
)
from skvt._results.unusual import require_describing_mixture, unusual_rows
from skvt.fitting import html_table
from skvt.plotting._pages import write_page
from skvt.rows import dense

# Maximum number of columns of the data in the table of profiles, which shows the most relevant.
MAX_COLUMNS = 30
# Maximum number of clusters side by side in a table. More clusters are shown in further tables.
MAX_CLUSTERS = 8
# A row whose largest probability is below this has no clear cluster.
MIN_CLEAR_PROBABILITY = 0.8
# Title of the section of unusual rows.
WORST_ROWS_TITLE = "Which rows fit worst?"


def cluster_report(mixture, X, path, *, n_clusters=None):
    """Write a report of the clusters of a mixture: one HTML file that needs no network.

    The report describes the clusters in words. It says how many there are and why, how certain the
    assignments of rows are, which columns distinguish the clusters, which values are missing, and
    which rows fit worst. It can be read on a telephone and printed.

    Parameters
    ----------
    mixture : MemoizedDPMixture, MemoizedDPGMM or StructuredBernoulliMixture
        A fitted mixture.
    X : {array-like, data frame, sparse matrix} of shape (n_samples, n_features)
        Rows, such as those of ``fit``.
    path : str or path-like
        The file to write. It is written as a whole or not at all.
    n_clusters : int, "auto" or None, default=None
        Number of clusters to describe, from 1 to ``n_components_``. "auto" describes the suggested
        ``n_clusters_`` clusters. None is "auto", or describes the components if they were not
        joined, as after ``partial_fit``.

    Raises
    ------
    TypeError
        If the mixture is of another class, such as a pipeline, or X is a collection of Dask.
    ValueError
        If ``n_clusters`` is illegal, if components were not joined and it is not None, or if all
        rows of X belong to the background.

    See Also
    --------
    skvt.unusual_rows : The rows that fit worst, as a data frame.
    skvt.MemoizedDPMixture.describe : The parameters of clusters, as a data frame or in words.

    Notes
    -----
    The report shows the clusters of ``predict(X, n_clusters=n_clusters)``. Means and rates are
    estimates of the fit. Shares of missing values, numbers of rows in clusters and probabilities
    are computed for the rows X. The file contains values of single rows: consider who may read
    them.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skvt import MemoizedDPMixture, cluster_report
    >>> wine = load_wine(as_frame=True).data
    >>> mixture = MemoizedDPMixture(random_state=0).fit(wine)
    >>> cluster_report(mixture, wine, "report.html")  # doctest: +SKIP
    """
    require_describing_mixture(mixture, X, "cluster_report")
    mixture._require_fitted()
    is_joined = mixture._fitted.joins is not None
    if n_clusters is None and is_joined:
        n_clusters = "auto"
    # This call raises an error for an illegal number of clusters, before rows are searched.
    mixture._get_component_clusters(n_clusters)
    probabilities = mixture.predict_proba(X, n_clusters=n_clusters)
    description, expected_counts = mixture._describe_as_table(n_clusters)
    profiles = make_profiles(description)
    labels = find_most_probable(probabilities)
    n_rows, n_shown = probabilities.shape
    # The text "clusters" or "components".
    plural_kind = f"{profiles.kind}s"
    reason = f"there are {n_shown} components, which were not joined"
    if is_joined:
        reason = mixture.n_clusters_reason_
        if n_clusters != "auto":
            reason = f"{n_shown} clusters were asked for; suggested are {reason}"
    title = f"{n_rows:,} rows in {n_shown} {plural_kind}"
    certainty = _describe_certainty(probabilities, labels < 0, profiles.kind)
    worst_rows = unusual_rows(mixture, X)
    # Rows have the labels of a pandas index, or else their position.
    row_labels = X.index if hasattr(X, "iloc") else range(n_rows)
    body = [
        f"<h1>{title}</h1>",
        f"<p>The rows have {len(profiles.columns)} columns that the model describes.</p>",
        *(f"<p>{escape(text)}</p>" for text in explain_columns(mixture._columns)),
        f"<h2>Who are the {plural_kind}?</h2>",
        _list_clusters(
            profiles, expected_counts, np.bincount(labels[labels >= 0], minlength=n_shown)
        ),
        "<h2>How many are there, and why?</h2>",
        f"<p>{escape(reason[0].upper() + reason[1:])}.</p>",
        "<h2>How certain are the assignments?</h2>",
        *certainty,
        f"<h2>What sets the {plural_kind} apart?</h2>",
        _tabulate_profiles(profiles),
        "<h2>Which values are missing?</h2>",
        _tabulate_missing(mixture, X, labels, name_groups(profiles)),
        f"<h2>{WORST_ROWS_TITLE}</h2>",
        "<p class=note>For each of these rows, the table names the column whose value fits the "
        "other values of the row worst, and the value that these suggest. The score is in nats; "
        "an average row has 0. Rows without names are numbered from 0. A row with one very "
        "improbable value may come before a row with a larger score.</p>",
        html_table(
            ["row", "column", "value", "expected", "score"],
            [(*map(_format_value, (row_labels[row], column, value, expected)), f"{score:.1f}")
             for row, column, value, expected, score in worst_rows.itertuples(index=False)],
            text={1, 2, 3},
        ),
    ]  # fmt: skip
    write_page(path, "cluster_report.html", TITLE=title, BODY="\n".join(body))


def _describe_certainty(probabilities, in_background, kind):
    """Return HTML paragraphs on the certainty of assignments and on rows of the background.

    ``probabilities`` (n_rows, n_clusters) are those of the clusters, ``in_background`` (n_rows,) is
    the mask of the rows that belong to no cluster, and ``kind`` is "cluster" or "component".
    """
    if in_background.all():
        raise ValueError(
            f"All {in_background.size} rows of X belong to the background, so that no {kind} can "
            "be described. Pass rows that resemble those of fit."
        )
    largest = probabilities[~in_background].max(axis=1)
    unclear_share = format_share(np.mean(largest < MIN_CLEAR_PROBABILITY))
    texts = [
        f"On average, a row belongs to its {kind} with probability {largest.mean():.2f}. "
        f"{escape(unclear_share)} of the rows have no clear {kind}: their largest probability is "
        f"below {MIN_CLEAR_PROBABILITY}."
    ]
    if in_background.any():
        texts.append(
            f"{in_background.sum():,} of {in_background.size:,} rows belong to none of the "
            f"{kind}s, but to the background. Percentages of {kind}s are shares of the other rows."
        )
    return [f"<p>{text}</p>" for text in texts]


def _list_clusters(profiles, expected_counts, counts):
    """Return an HTML list of the clusters, the largest first, and a note that explains its values.

    An item is a sentence, and a bar that shows the share of the cluster. The expected numbers of
    rows of the fit are ``expected_counts`` (n_clusters,), and ``counts`` (n_clusters,) are the
    numbers of rows of X in the clusters.
    """
    # The last weight is the weight of all rows.
    shares = profiles.weights[:-1]
    names, texts = name_groups(profiles), list_distinctive_columns(profiles)
    are_small = find_small_groups(shares, expected_counts)
    items = []
    for k in np.argsort(-shares, kind="stable"):
        name = f"{names[k][0].upper()}{names[k][1:]}"
        sentence = escape(f"{name} ({format_share(shares[k])} of rows): {texts[k]}")
        bar = f"<div class=track><div style='width:{shares[k]:.1%}'></div></div>"
        warning = f" {SMALL_NOTE.capitalize()}, see “{WORST_ROWS_TITLE}”" if are_small[k] else ""
        note = f"<span class=note>{counts[k]:,} of the rows.{warning}</span>"
        items.append(f"<li>{sentence}. {note}{bar}</li>")
    explanation = "The values in parentheses are those of all rows"
    if any(f"(average {profiles.kind}: " in text for text in texts):
        explanation += f"; a standard deviation is followed by its average over {profiles.kind}s"
    if are_small.any():
        explanation += (
            f". If a {profiles.kind} is small, its values are closer to those of all rows than its "
            "rows are"
        )
    note = f"<p class=note>{explanation}.</p>"
    return "<ol class=groups>" + "\n".join(items) + "</ol>" + note


def _tabulate_profiles(profiles):
    """Return HTML tables with the most relevant columns of each cluster, coloured by relevance."""
    # The first axis of weights, relevance and cells is the clusters, followed by all rows.
    n_clusters = len(profiles.weights) - 1
    all_rows = n_clusters
    columns = find_relevant_columns(
        profiles.relevance[:n_clusters], profiles.relevance[all_rows], MAX_COLUMNS
    )
    # The scale of colours ends at a quantile of the relevance. If it ended at the maximum, a few
    # small clusters of large relevance would make all others pale.
    relevances = profiles.relevance[:n_clusters, columns]
    scale_end = max(np.quantile(relevances, 0.95, method="lower"), 1e-12)
    signs, cluster_names = find_directions(profiles), name_groups(profiles)

    def make_row(j, clusters):
        """Return the HTML row of column j, with a cell for all rows and one for each cluster."""
        _, column_name = profiles.columns[j]
        cells = [f"<th scope=row>{escape(str(column_name))}</th>"]
        for k in (all_rows, *clusters):
            relevance = 0.0 if k == all_rows else profiles.relevance[k, j]
            strength = np.clip(relevance / scale_end, 0.0, 1.0)
            colour = "low" if signs[k, j] < 0.0 else "high"
            style = f" style='background:rgba(var(--{colour}),{0.6 * strength**0.5:.2f})'"
            cells.append(f"<td{style}>{escape(' '.join(profiles.cells[k, j]))}</td>")
        return "<tr>" + "".join(cells) + "</tr>"

    def make_table(clusters):
        """Return the HTML table of some of the clusters."""
        names = ["all", *(escape(cluster_names[k]) for k in clusters)]
        return (
            "<div class=wide><table><thead><tr><th scope=col class=text>column</th>"
            + "".join(f"<th scope=col>{name}</th>" for name in names)
            + "</tr></thead>\n<tbody>" + "\n".join(make_row(j, clusters) for j in columns)
            + "</tbody></table></div>"
        )  # fmt: skip

    n_left_out = len(profiles.columns) - len(columns)
    note = f" {n_left_out} less relevant columns are not shown." if n_left_out else ""
    return (
        "<p class=note>Means, medians or rates of numbers, the most probable category with its "
        "probability, or the probability of a one. A number beside a share of zeros, or of another "
        "frequent value, is that of the other values. The stronger the colour, the more the column "
        f"sets the {profiles.kind} apart from all other rows: red if the value is higher than in "
        f"all rows, blue if it is lower.{note}</p>"
        + "\n".join(map(make_table, _divide_among_tables(n_clusters)))
    )


def _divide_among_tables(n_clusters):
    """Divide the indices of clusters among tables; return a list of indices for each table."""
    # The quotient is rounded up.
    n_tables = -(-n_clusters // MAX_CLUSTERS)
    return [part.tolist() for part in np.array_split(np.arange(n_clusters), n_tables)]


def _tabulate_missing(mixture, X, labels, cluster_names):
    """Return HTML tables of the shares of missing values, in all rows and in each cluster.

    A row of the tables is a column of X. ``labels`` (n_rows,) are the clusters of the rows, and
    ``cluster_names`` are the names of the clusters.
    """
    encoded = mixture._read(X)
    table_columns = mixture._columns
    if not np.isnan(encoded.data if sp.issparse(encoded) else encoded).any():
        return "<p>No value is missing.</p>"
    n_clusters = len(cluster_names)
    # For each column with missing values: its name, its share in all rows, and in each cluster.
    rows = []
    for j in table_columns.columns:
        is_missing = np.isnan(dense(encoded[:, [j]])[:, 0])
        if is_missing.any():
            masks_by_cluster = [is_missing[labels == k] for k in range(n_clusters)]
            # A cluster may have no row.
            shares = [format_share(mask.mean()) if mask.size else "" for mask in masks_by_cluster]
            rows.append((table_columns.names[j], format_share(is_missing.mean()), shares))
    return "\n".join(
        html_table(
            ["column", "all", *(cluster_names[k] for k in clusters)],
            [(name, share, *(shares[k] for k in clusters)) for name, share, shares in rows],
            text={0},
        )
        for clusters in _divide_among_tables(n_clusters)
    )


def _format_value(value):
    """Return a value as text: a float with at least four digits, and "" for None."""
    if value is None:
        return ""
    if not isinstance(value, float | np.floating):
        return str(value)
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"
