"""Display of an estimator in notebooks: scikit-learn's diagram and, after a fit, its result."""

from html import escape

# Maximum number of rows of a table in a notebook.
MAX_ROWS = 30


def with_result(diagram, title, names, rows):
    """Return the HTML of a diagram followed by a title and the first rows of a table.

    ``names`` are the names of the columns; no table is shown if it is empty. The last column has
    texts, and the other columns have numbers.
    """
    omitted = f"<p>{len(rows) - MAX_ROWS} more are not shown.</p>" if rows[MAX_ROWS:] else ""
    table = html_table(names, rows[:MAX_ROWS], text={len(names) - 1}) if names else ""
    return f"<div>{diagram}<p>{escape(title)}</p>{table}{omitted}</div>"


def html_table(names, rows, *, text):
    """Return a table as HTML.

    ``text`` has the positions of columns of texts, which are aligned to the left; other columns are
    aligned to the right. The head is repeated on each printed page.
    """
    sides = ["left" if position in text else "right" for position in range(len(names))]

    def write_row(values, tag):
        """Return a row as HTML. ``tag`` is the tag of its cells, perhaps with attributes."""
        cells = (
            f"<{tag} style='text-align:{side};padding:.2em .5em'>{escape(str(value))}</{tag[:2]}>"
            for side, value in zip(sides, values, strict=True)
        )
        return "<tr>" + "".join(cells) + "</tr>"

    lines = "\n".join(write_row(row, "td") for row in rows)
    return (
        "<div class=wide style='overflow-x:auto'><table>"
        f"<thead>{write_row(names, 'th scope=col')}</thead>\n<tbody>{lines}</tbody></table></div>"
    )
