"""The log of moves, that is, of proposed changes of components, as the table ``move_log_``."""


class MoveLog(dict):
    """A dict of the columns of the log, which are lists; it is printed as a table."""

    def to_frame(self):
        """Return the table as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame(dict(self))

    def __repr__(self):
        """Return the table as aligned text."""
        # The first row has the names of the columns.
        rows = [list(self), *zip(*(map(_as_text, column) for column in self.values()), strict=True)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _as_text(value):
    """Return a cell of the table as text, a float with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
