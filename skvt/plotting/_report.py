"""A report of clusters as one page for browsers."""

from html import escape
from importlib.resources import files

import numpy as np

from skvt.fitting import html_table
from skvt.readers.chunks import require_rows_in_memory
from skvt.replacing import replacing
from skvt.results.profiles import directions, profiles_of, sentences
from skvt.results.unusual import unusual_rows
from skvt.ties import stable_argmax

# Columns of the table of profiles, the most relevant ones.
MOST_COLUMNS = 30
# A row with a probability below this has no clear cluster.
UNCLEAR = 0.8


def cluster_report(mixture, X, path):
    """Write a report of the clusters of a mixture: one HTML file that needs no network.

    The report says who the clusters are in words, how many there are and why, how certain the
    assignments are, which columns set the clusters apart, which values are missing, and which rows
    fit worst. It can be read on a telephone and printed.

    Parameters
    ----------
    mixture : MemoizedDPMixture, MemoizedDPGMM or StructuredBernoulliMixture
        A fitted mixture.
    X : {array-like, data frame, sparse matrix} of shape (n_samples, n_features)
        Rows, such as those of ``fit``.
    path : str or path-like
        The file to write. It is written as a whole or not at all.

    Raises
    ------
    TypeError
        If the mixture is of another class, or X is a collection of Dask.

    See Also
    --------
    skvt.unusual_rows : The rows that fit worst, as a data frame.
    skvt.MemoizedDPMixture.describe : The parameters of clusters, as a data frame or in words.

    Notes
    -----
    The clusters are those of ``predict(X, n_clusters="auto")``; after ``partial_fit``, where no
    components were joined, the components. Means, rates and shares of missing values are of the
    rows X where the report says so, and otherwise of the fit. The file holds values of single rows:
    consider who may read them.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skvt import MemoizedDPMixture, cluster_report
    >>> wine = load_wine(as_frame=True).data
    >>> mixture = MemoizedDPMixture(random_state=0).fit(wine)
    >>> cluster_report(mixture, wine, "report.html")  # doctest: +SKIP
    """
    require_rows_in_memory(X, "cluster_report")
    worst = unusual_rows(mixture, X)
    is_joined = mixture._fitted.joins is not None
    n_clusters = "auto" if is_joined else None
    chances = mixture.predict_proba(X, n_clusters=n_clusters)
    profiles = profiles_of(mixture.describe(n_clusters=n_clusters))
    labels = stable_argmax(chances)
    clusters = [f"{profiles.kind} {k}" for k in range(chances.shape[1])]
    missing = _missing(mixture, X, labels, clusters)
    reason = mixture.n_clusters_reason_ if is_joined else "the components, which were not joined"
    n_rows, kinds = len(chances), f"{profiles.kind}s"
    title = f"{chances.shape[1]} {kinds} of {n_rows:,} rows"
    largest = chances.max(axis=1)
    body = [
        f"<h1>{title}</h1>",
        f"<p>The rows have {len(profiles.columns)} columns that the model describes.</p>",
        f"<h2>Who are the {kinds}?</h2>",
        _groups(profiles, np.bincount(labels, minlength=chances.shape[1])),
        "<p class=note>The values in parentheses are those of all rows.</p>",
        "<h2>How many are there, and why?</h2>",
        f"<p>{escape(reason[0].upper() + reason[1:])}.</p>",
        "<h2>How certain are the assignments?</h2>",
        f"<p>On average, a row belongs to its {profiles.kind} with probability "
        f"{largest.mean():.2f}. {np.mean(largest < UNCLEAR):.0%} of the rows have no clear "
        f"{profiles.kind}: their largest probability is below {UNCLEAR}.</p>",
        f"<h2>What sets the {kinds} apart?</h2>",
        _profile_table(profiles),
        "<h2>Which values are missing?</h2>",
        missing,
        "<h2>Which rows fit worst?</h2>",
        "<p class=note>The column named fits worst to the other values of its row, which suggest "
        "the expected value. The score is in nats; an average row has 0.</p>",
        html_table(
            ["row", "column", "value", "expected", "score"],
            [(_shown(row), _shown(column), _shown(value), _shown(guess), f"{score:.1f}")
             for row, column, value, guess, score in worst.itertuples(index=False)],
            text={1, 2, 3},
        ),
    ]  # fmt: skip
    page = files("skvt.plotting").joinpath("cluster_report.html").read_text(encoding="utf-8")
    # The title is replaced first, so that no text of the table is taken for the mark of the body.
    page = page.replace("@TITLE@", title).replace("@BODY@", "\n".join(body))
    with replacing(path) as file:
        file.write(page.encode("utf-8"))


def _groups(profiles, counts):
    """Sentences about the clusters, the largest first, each with a bar of its share."""
    shares, lines, items = profiles.weights[:-1], sentences(profiles), []
    for k in np.argsort(-shares, kind="stable"):
        sentence = escape(lines[k][0].upper() + lines[k][1:])
        bar = f"<div class=track><div style='width:{shares[k]:.1%}'></div></div>"
        note = f"<span class=note>{counts[k]:,} of the rows.</span>"
        items.append(f"<li>{sentence}. {note}{bar}</li>")
    return "<ol class=groups>" + "\n".join(items) + "</ol>"


def _profile_table(profiles):
    """Return a table of the most relevant columns, a row for each, coloured by relevance."""
    whole = len(profiles.weights) - 1
    order = np.argsort(-profiles.relevance[whole], kind="stable")[:MOST_COLUMNS].tolist()
    # A few small clusters of errors do not pale the others.
    scale = max(np.quantile(profiles.relevance[:whole, order], 0.95, method="lower"), 1e-12)
    signs, rows = directions(profiles), []
    for j in order:
        cells = [f"<th scope=row>{escape(str(profiles.columns[j][1]))}</th>"]
        for k in (whole, *range(whole)):
            relevance = 0.0 if k == whole else profiles.relevance[k, j]
            strength = np.clip(relevance / scale, 0.0, 1.0)
            colour = "low" if signs[k, j] < 0.0 else "high"
            style = f" style='background:rgba(var(--{colour}),{0.6 * strength**0.5:.2f})'"
            cells.append(f"<td{style}>{escape(' '.join(profiles.cells[k, j]))}</td>")
        rows.append("<tr>" + "".join(cells) + "</tr>")
    names = ["column", "all", *(f"{profiles.kind} {k}" for k in range(whole))]
    left_out = len(profiles.columns) - len(order)
    note = f" {left_out} less relevant columns are not shown." if left_out else ""
    return (
        "<p class=note>Means, medians or rates of numbers, the most probable category with its "
        "probability, or the probability of a one. The darker a cell, the more the column sets the "
        f"{profiles.kind} apart from all other rows: red if the value is higher than in all rows, "
        f"blue if it is lower.{note}</p><div class=wide><table><tr>"
        + "".join(f"<th scope=col>{name}</th>" for name in names)
        + "</tr>\n" + "\n".join(rows) + "</table></div>"
    )  # fmt: skip


def _missing(mixture, X, labels, clusters):
    """Shares of missing values of X by column, for all rows and each cluster."""
    encoded, table = mixture._read(X), mixture._columns
    if not hasattr(encoded, "toarray") and np.isnan(encoded).any():
        columns = [j for j in table.columns if np.isnan(encoded[:, j]).any()]
        rows = []
        for j in columns:
            is_missing = np.isnan(encoded[:, j])
            shares = [is_missing.mean()] + [
                is_missing[labels == k].mean() if np.any(labels == k) else np.nan
                for k in range(len(clusters))
            ]
            rows.append((table.names[j], *("" if s != s else f"{s:.0%}" for s in shares)))
        return html_table(["column", "all", *clusters], rows, text={0})
    return "<p>No value is missing.</p>"


def _shown(value):
    """Return a value as text: numbers with four digits, and nothing for None."""
    if value is None:
        return ""
    is_number = isinstance(value, float | np.floating)
    return f"{value:.4g}" if is_number else str(value)
