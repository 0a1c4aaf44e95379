"""Profiles of components or clusters in columns of any kind, as a table coloured by relevance."""

from functools import cache

import numpy as np

from skvt.plotting._axes import check_numbers, ensure_axes, get_fitted_attribute
from skvt.results.profiles import directions, profiles_of

# Sizes of cells in inches and of their text in points: the largest at which numbers fit.
CELL_WIDTHS = 0.42, 1.0
TABLE_WIDTH = 14.0
FONT_SIZES = (8.0, 7.0, 6.0)
# Share of a cell that its text may fill.
FILLED = 0.94
# Letters of a column name in a line; longer names would leave no height for the table.
LONGEST_LINE = 20
# Cells wider than this, in inches, have names in two lines.
TWO_LINES = 0.3
# The scale of colours ends at this quantile of the cells, and at no less than LEAST_SCALE nats a
# row.
SCALED = 0.95
LEAST_SCALE = 0.1


class ProfilesDisplay:
    """Profiles of components or clusters: their parameters, and which columns distinguish them.

    A row for the whole table and one for each component or cluster, a column for each column of
    the data, the most relevant first, those of a block together. The darker a colour, the larger
    ``column_relevance_``, the evidence in nats per row that a column distinguishes a component
    from all other rows: red where the value is higher than that of the whole table, and blue where
    it is lower; of a category, where it is more or less frequent. Cells show
    parameters: the mean of numbers, rounded to a third of a standard deviation or finer; the most
    probable category and its probability; the probability of a one; the rate of counts. The first
    row shows the parameters of the mixture as a whole, the means over its components. Text that
    does not fit is shortened or left out.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    table : DataFrame or dict of lists
        As ``describe`` returns it.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the table.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage
        Colours, of shape (1 + n_shown, n_columns_shown): the relevance, with a minus sign where a
        value is lower than that of the whole table, whose row is on top and has no colour.
    texts_ : ndarray of matplotlib Text or None, shape (1 + n_shown, n_columns_shown)
        Of each cell; None where it did not fit.
    components_ : ndarray of int, shape (n_shown,)
        Numbers of the components shown, from the top, below the whole table.
    columns_ : list of tuple
        Block and name of the columns shown, from the left.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.datasets import load_wine
    >>> from skvt import MemoizedDPMixture
    >>> from skvt.plotting import ProfilesDisplay
    >>> wine = load_wine(as_frame=True).data.iloc[:, :5]
    >>> wine["strength"] = pd.cut(wine.pop("alcohol"), 3, labels=["low", "medium", "high"])
    >>> mixture = MemoizedDPMixture(max_components=4, random_state=0).fit(wine)
    >>> display = ProfilesDisplay.from_estimator(mixture)
    >>> sorted(display.columns_)[0]
    ('categories', 'strength')
    """

    def __init__(self, table):
        self.table = table

    def plot(
        self, ax=None, *, components=None, columns=None, max_columns=50, image_kw=None, text_kw=None
    ):
        """Draw the table.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes; None makes a new figure, as large as the table needs.
        components : array-like of int or None, default=None
            Numbers of the components (of a table of clusters, the clusters) to show, in this order;
            None shows all, the heaviest on top.
        columns : list or None, default=None
            Names of the columns to show, in this order; None shows all, by their weighted mean
            relevance, those of a block together.
        max_columns : int or None, default=50
            Number of columns to show at most; the axis says how many are left out. None shows all.
        image_kw : dict or None, default=None
            Parameters of ``Axes.imshow``. By default red and blue, the darker the larger the square
            root of the relevance; a relevance below 0 is white, and one above the 95 % quantile of
            the components' cells is as dark as that.
        text_kw : dict or None, default=None
            Parameters of ``Axes.text``.

        Returns
        -------
        ProfilesDisplay
            The display itself.
        """
        profiles = profiles_of(self.table)
        kind, keys, weights, relevance, cells = profiles[:5]
        whole = len(weights) - 1
        heaviest = np.argsort(-weights[:whole], kind="stable")
        self.components_ = (
            heaviest if components is None else check_numbers(components, whole, "components")
        )
        places = _places(keys, columns, max_columns, relevance[whole])
        self.columns_ = [keys[j] for j in places]
        numbers = np.append(whole, self.components_)
        cells_shown = np.ix_(numbers, places)
        shown = (np.maximum(relevance, 0.0) * directions(profiles))[cells_shown]
        if ax is None:
            ax = ensure_axes(None)
            lines = any(len(cells[k, j]) > 1 for k in numbers for j in places)
            longest = min(LONGEST_LINE, max(len(str(name)) for _, name in self.columns_))
            _resize(ax.figure, *shown.shape, two_lines=lines, longest=longest)
        self.ax_, self.figure_ = ax, ax.figure
        image_kw = image_kw or {}
        self._own_scale = not {"norm", "vmin", "vmax"} & image_kw.keys()
        if self._own_scale:
            image_kw = image_kw | {"norm": _square_root(relevance[cells_shown][1:])}
        self.image_ = ax.imshow(shown, **({"cmap": "RdBu_r", "aspect": "auto"} | image_kw))
        rows = [f"{k}: {weights[k]:.1%}" for k in self.components_]
        self._frame(["all", *rows], kind, len(keys) if columns is None else len(places))
        self._write(cells, numbers, places, text_kw or {})
        return self

    def _frame(self, rows, kind, n_all):
        """Draw the names of rows and columns, the separators of blocks and the colour bar."""
        ax, figure = self.ax_, self.figure_
        cell = ax.get_window_extent().width / figure.dpi / len(self.columns_)
        names = [_short(name, 2 if cell > TWO_LINES else 1) for _, name in self.columns_]
        rotation = 90 if max(map(len, names)) > 3 else 0
        ax.set_xticks(range(len(names)), names, rotation=rotation, fontsize="small")
        if n_all > len(names):
            ax.set_xlabel(f"{n_all - len(names)} less relevant columns not shown", fontsize="small")
        ax.set_yticks(range(len(rows)), rows, fontsize="small")
        ax.set_ylabel(f"{kind} and its weight", fontsize="small")
        ax.tick_params(length=0)
        ax.set_xticks(np.arange(1, len(names)) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.0)
        ax.tick_params(which="minor", length=0)
        ax.axhline(0.5, color="0.25", linewidth=1.5)
        blocks = [block for block, _ in self.columns_]
        starts = [j for j, block in enumerate(blocks) if j == 0 or block != blocks[j - 1]]
        ends = [*starts[1:], len(blocks)]
        for start in starts[1:]:
            ax.axvline(start - 0.5, color="0.25", linewidth=1.5)
        top = ax.secondary_xaxis("top")
        centres = [0.5 * (start + end - 1) for start, end in zip(starts, ends, strict=True)]
        widths = [end - start for start, end in zip(starts, ends, strict=True)]
        titles = [_short(blocks[start], 1) for start in starts]
        top.set_xticks(centres, titles)
        top.tick_params(length=0)
        top.spines["top"].set_visible(False)
        beyond = self._own_scale and (abs(self.image_.get_array()) > self.image_.norm.vmax).any()
        bar = figure.colorbar(
            self.image_,
            ax=ax,
            pad=0.01,
            aspect=30,
            fraction=0.03,
            extend="both" if beyond else "neither",
        )
        bar.set_label("relevance (nats per row)\nof low and high values", fontsize="small")
        bar.ax.tick_params(labelsize="small")
        if self._own_scale:  # at equal distances of the square root
            ticks = np.linspace(-1.0, 1.0, 5)
            ticks = self.image_.norm.vmax * ticks * abs(ticks)
            bar.set_ticks(ticks, labels=[f"{abs(tick):.2g}" for tick in ticks])
            bar.minorticks_off()
        cell = self._cell()[0]
        upright = any(
            label.get_window_extent().width > width * cell
            for label, width in zip(top.get_xticklabels(), widths, strict=True)
        )
        if upright:
            top.set_xticks(centres, titles, rotation=90)

    def _cell(self):
        """Lay the figure out and return the width and height of a cell in pixels."""
        self.figure_.draw_without_rendering()
        extent = self.ax_.get_window_extent()
        return extent.width / len(self.columns_), extent.height / (1 + len(self.components_))

    def _write(self, cells, numbers, places, text_kw):
        """Write the text of each cell in the longest form that fits."""
        ax, room = self.ax_, FILLED * np.array(self._cell())
        style = {"ha": "center", "va": "center", "clip_on": True, "linespacing": 1.0} | text_kw
        probe = ax.text(0.0, 0.0, "", **style)

        @cache
        def extent(text):
            probe.set_text(text)
            box = probe.get_window_extent()
            return np.array([box.width, box.height])

        def fits(text):
            # Measure line by line: few lines differ, so that the cache works.
            lines = text.split("\n")
            widest = max(extent(line)[0] for line in lines)
            return widest <= room[0] and extent("\n".join("0" * len(lines)))[1] <= room[1]

        shortest = {cells[k, j][-1] for k in numbers for j in places if cells[k, j]}
        if not {"size", "fontsize"} & text_kw.keys():
            for size in FONT_SIZES:
                probe.set_fontsize(size)
                extent.cache_clear()
                if all(map(fits, shortest)):
                    break
        self.texts_ = np.full((len(numbers), len(places)), None, object)
        colours = self.image_.to_rgba(self.image_.get_array())
        for row, k in enumerate(numbers):
            for column, j in enumerate(places):
                text = next((form for form in _forms(cells[k, j]) if fits(form)), None)
                if text is not None:
                    dark = colours[row, column, :3] @ (0.299, 0.587, 0.114) < 0.55
                    own = {"color": "white" if dark else "black"} | style
                    own |= {"fontsize": probe.get_fontsize()}
                    own.pop("size", None)
                    self.texts_[row, column] = ax.text(column, row, text, **own)
        probe.remove()

    @classmethod
    def from_estimator(cls, estimator, *, n_clusters=None, ax=None, **options):
        """Draw the profiles of a fitted mixture.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``describe``, such as :class:`~skvt.MemoizedDPMixture`.
        n_clusters : int, "auto" or None, default=None
            None shows components; a number, or "auto", the clusters into which the estimator joins
            them, as its ``describe`` does.
        ax, **options : see :meth:`plot`
            How to draw them.

        Returns
        -------
        ProfilesDisplay
            The display, drawn.
        """
        describe = get_fitted_attribute(
            estimator, "describe", "Pass a mixture that describes its components."
        )
        return cls(describe(n_clusters=n_clusters)).plot(ax, **options)


def _forms(parts):
    """Forms of a cell's text, the best first."""
    if len(parts) == 2:
        category, probability = parts
        short = [category[:n] + "…" for n in range(len(category) - 1, 1, -1)]
        for form in (category, *short):
            yield f"{form}\n{probability}"
            if form == category:
                yield f"{category} {probability}"
    yield from parts[-1:]


def _places(keys, columns, most, means):
    """Return the indices of the columns to show, in order."""
    if columns is not None:
        names = [name for _, name in keys]
        unknown = [name for name in columns if name not in names]
        if unknown or not len(columns):
            raise ValueError(
                f"The 'columns' parameter must be names of columns: some of {names}. Got "
                f"{unknown[0] if unknown else columns!r} instead."
            )
        return [j for name in columns for j, other in enumerate(names) if other == name]
    best = np.argsort(-means, kind="stable")[:most].tolist()
    blocks = list(dict.fromkeys(keys[j][0] for j in best))
    return sorted(best, key=lambda j: blocks.index(keys[j][0]))


def _resize(figure, n_rows, n_columns, *, two_lines, longest):
    """A new figure as large as the table and the names of its columns need."""
    cell = float(np.clip(TABLE_WIDTH / n_columns, *CELL_WIDTHS))
    height = max(1.6, (0.36 if two_lines else 0.26) * n_rows)
    figure.set_size_inches(max(4.0, cell * n_columns + 1.8), height + 0.5 + 0.08 * longest)


def _square_root(relevance):
    """Return a colour norm by the signed square root, up to a quantile of the cells."""
    from matplotlib.colors import FuncNorm

    usual = np.quantile(relevance, SCALED, method="lower")
    largest = max(usual, min(relevance.max(), LEAST_SCALE), 1e-12)
    signed_root = (lambda x: np.sign(x) * np.sqrt(abs(x)), lambda x: x * abs(x))
    return FuncNorm(signed_root, vmin=-largest, vmax=largest, clip=True)


def _short(name, n_lines):
    """Break a name into at most two lines and cut the middle out if it is too long."""
    name, room = str(name), n_lines * LONGEST_LINE
    if len(name) > room:
        name = f"{name[: room // 2]}…{name[1 - room // 2 :]}"
    if len(name) <= LONGEST_LINE:
        return name
    half = (len(name) + 1) // 2
    return f"{name[:half]}\n{name[half:]}"
