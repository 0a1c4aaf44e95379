"""Display of an estimator in notebooks: scikit-learn's diagram and, after a fit, its result."""

from html import escape

# Maximum number of rows of a table in a notebook.
MOST_ROWS = 30


def with_result(diagram, title, names, rows):
    """Return the HTML of a diagram followed by a title and the first rows of a table.

    ``names`` are the names of the columns, the last of which has texts; without names, there is no
    table.
    """
    omitted = f"<p>{len(rows) - MOST_ROWS} more are not shown.</p>" if rows[MOST_ROWS:] else ""
    table = html_table(names, rows[:MOST_ROWS], text={len(names) - 1}) if names else ""
    return f"<div>{diagram}<p>{escape(title)}</p>{table}{omitted}</div>"


def html_table(names, rows, *, text):
    """Return a table as HTML.

    ``text`` has the positions of columns of texts, which are aligned to the left; other columns are
    aligned to the right.
    """
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in names)
    lines = [
        "<tr>" + "".join(
            f"<td style='text-align:{'left' if position in text else 'right'}'>"
            f"{escape(str(value))}</td>"
            for position, value in enumerate(row)
        ) + "</tr>"
        for row in rows
    ]  # fmt: skip
    return (
        f"<div style='overflow-x:auto'><table><tr>{head}</tr>\n"
        + "\n".join(lines)
        + "</table></div>"
    )
