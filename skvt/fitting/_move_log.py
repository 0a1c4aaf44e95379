"""The log of moves as a table."""

# Maximum number of rows that are printed, the last ones.
MOST_ROWS = 30


class MoveLog(dict):
    """Columns of a table of proposals, by name, which is printed as a table."""

    def to_frame(self):
        """Return the table as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame(dict(self))

    def __repr__(self):
        """Return the last rows as aligned text."""
        rows = [list(self), *zip(*(map(_as_text, column) for column in self.values()), strict=True)]
        rows[1:] = rows[1:][-MOST_ROWS:]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        n_hidden = len(next(iter(self.values()))) - len(rows) + 1
        return "\n".join(lines + [f"({n_hidden} earlier proposals)"] * (n_hidden > 0))


def _as_text(value):
    """Return a cell of the table as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
