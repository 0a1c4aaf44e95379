"""Display of an estimator in notebooks: scikit-learn's diagram and, after a fit, its result."""

from html import escape

# Maximum number of rows of a table in a notebook.
MOST_ROWS = 30


def with_result(diagram, title, names, rows):
    """Return the HTML of a diagram followed by a result: a title and a table's first rows."""
    more = f"<p>{len(rows) - MOST_ROWS} more are not shown.</p>" if rows[MOST_ROWS:] else ""
    table = html_table(names, rows[:MOST_ROWS], text={len(names) - 1}) if names else ""
    return f"<div>{diagram}<p>{escape(title)}</p>{table}{more}</div>"


def html_table(names, rows, *, text):
    """Return a table as HTML; columns whose positions are in ``text`` are aligned to the left."""
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
