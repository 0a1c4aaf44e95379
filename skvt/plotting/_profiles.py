"""Display of the profiles of components or clusters, as a table coloured by relevance.

The profile of a component has the parameters of the component in each column of the data; columns
may be of any kind. The relevance says in which columns the component differs from all other rows. A
cell of the table shows a component in a column. The first row of the table shows all rows of the
data.
"""

from functools import cache

import numpy as np

from skvt._results.profiles import (
    find_directions,
    find_relevant_columns,
    format_share,
    make_profiles,
)
from skvt.plotting._axes import (
    MAX_LINE_LENGTH,
    MIN_LETTERS_OF_NAMES,
    check_indices,
    ensure_axes,
    fit_tick_labels,
    get_fitted_attribute,
    measure_line,
    shorten,
    shrink_label,
    write_names_on_top,
)

# Smallest and largest width of a cell in inches.
CELL_WIDTHS = 0.42, 1.0
# Width of the table in inches. It is larger or smaller if cells have their smallest or largest
# width.
TABLE_WIDTH = 14.0
# Width in inches that the names of rows and the colour bar take from given axes.
ROW_NAMES_WIDTH = 0.8
# Width in inches of a letter in a name of a cluster or column.
LETTER_WIDTH = 0.07
# Share of the width of given axes that a line of the name of a cluster may take, and share of their
# height that a turned name of a column may take. Names of MIN_LETTERS_OF_NAMES are always allowed.
MAX_NAME_SHARE = 0.33
# Sizes of the text of cells in points. All cells have the largest size at which every number fits
# into its cell. If no size is small enough, they have the smallest size.
FONT_SIZES = (8.0, 7.0, 6.0)
# Share of the width and height of a cell that its text may fill.
MAX_FILLED_SHARE = 0.94
# Width of a cell in inches above which the column name may have two lines.
MIN_TWO_LINE_WIDTH = 0.3
# The scale of colours ends at this quantile of the relevance of the cells. If the quantile is below
# MIN_SCALE_END nats per row, the scale ends at the smaller of MIN_SCALE_END and the largest
# relevance.
SCALE_QUANTILE = 0.95
MIN_SCALE_END = 0.1


class ProfilesDisplay:
    """Display of the parameters of components or clusters, coloured by relevance.

    The first row of the table shows all rows of the data, and each other row shows a component or
    cluster. The columns of the table are the columns of the data. The most relevant columns come
    first, but columns of the same block stand together. The darker a cell, the larger
    ``column_relevance_``, the evidence in nats per row that the column distinguishes the component
    from all other rows. A cell is red if its value is higher than in all rows, or its category more
    frequent, and blue if the value is lower or the category less frequent.

    A cell shows the mean of numbers, rounded to a third of a standard deviation or finer, the most
    probable category and its probability, the probability of a one, or the rate of counts. In the
    first row, parameters are averages over components, and medians are averaged as logarithms.
    Categories that do not fit are shortened. If a number of a column does not fit, the column has
    no texts.

    Use :meth:`from_estimator` to make a display.

    Parameters
    ----------
    table : DataFrame or dict of lists
        The result of ``describe`` of a mixture.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the table.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage
        Colours of the cells, from an array of shape (1 + n_shown, n_columns_shown). It has the
        relevance, with a minus sign if a value is lower than in all rows. The cells of the first
        row have no colour.
    texts_ : ndarray of matplotlib Text or None, shape (1 + n_shown, n_columns_shown)
        Text of each cell; None if the numbers of its column do not fit.
    components_ : ndarray of int, shape (n_shown,)
        Indices of the components or clusters shown, from the second row down.
    columns_ : list of tuple
        Block and name of each column shown, from left to right.

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
            Indices of the components or clusters to show, in this order; None shows all, the one
            with the largest weight on top.
        columns : list or None, default=None
            Names of the columns to show, in this order. None shows the columns with the largest
            mean relevance first, and columns of the same block together.
        max_columns : int or None, default=50
            Maximum number of columns to show if ``columns`` is None; the label of the axis says how
            many are left out. The columns shown are the most relevant column of each component
            shown, then the second of each, and so on, so that small components have theirs. If
            ``ax`` is too narrow for the names of so many columns, fewer are shown. None shows all.
        image_kw : dict or None, default=None
            Parameters of ``Axes.imshow``. By default, colours are white at a relevance of 0 or
            less, and red and blue darken with the square root of the relevance. The darkest colour
            is at the end of the scale, usually the 95 % quantile of the components' cells.
        text_kw : dict or None, default=None
            Parameters of ``Axes.text``.

        Returns
        -------
        ProfilesDisplay
            The display itself.
        """
        profiles = make_profiles(self.table)
        weights, relevance = profiles.weights, profiles.relevance
        # The last index of weights, relevance and cells stands for all rows of the data.
        all_rows = len(weights) - 1
        self.components_ = check_indices(components, all_rows, "components")
        if components is None:
            self.components_ = np.argsort(-weights[:all_rows], kind="stable")
        # Maximum numbers of letters in a line of a name of a cluster, and of a column.
        label_length, name_length = _choose_name_lengths(ax)
        labels = [shorten(label or "", 1, label_length) for label in profiles.labels]
        if ax is not None and max_columns is not None:
            max_columns = min(max_columns, _count_names_that_fit(ax, max(map(len, labels))))
        shown_columns = _select_columns(
            profiles.columns, columns, max_columns, relevance[self.components_], relevance[all_rows]
        )
        self.columns_ = [profiles.columns[j] for j in shown_columns]
        shown_rows = np.append(all_rows, self.components_)
        shown_cells = np.ix_(shown_rows, shown_columns)
        # The relevance of a cell, with a minus sign if its value is lower than in all rows.
        colours = (np.maximum(relevance, 0.0) * find_directions(profiles))[shown_cells]
        if ax is None:
            ax = ensure_axes(None)
            cells = [profiles.cells[k, j] for k in shown_rows for j in shown_columns]
            # A category and its probability, the two parts of a text, take two lines.
            has_two_lines = any(len(parts) > 1 for parts in cells)
            longest = min(name_length, max(len(str(name)) for _, name in self.columns_))
            _resize(ax.figure, *colours.shape, has_two_lines=has_two_lines, name_length=longest)
        self.ax_, self.figure_ = ax, ax.figure
        image_kw = image_kw or {}
        self._has_default_scale = not {"norm", "vmin", "vmax"} & image_kw.keys()
        if self._has_default_scale:
            # The first row, which stands for all rows, has no influence on the scale.
            image_kw = image_kw | {"norm": _make_norm(relevance[shown_cells][1:])}
        self.image_ = ax.imshow(colours, **({"cmap": "RdBu_r", "aspect": "auto"} | image_kw))
        row_names = ["all"]
        row_names += [
            f"{k} {labels[k]}".strip() + f": {format_share(weights[k], 1)}"
            for k in self.components_
        ]
        n_left_out = len(profiles.columns) - len(shown_columns) if columns is None else 0
        self._draw_frame(row_names, profiles.kind, n_left_out, name_length)
        self._write_cells(profiles.cells, shown_rows, shown_columns, text_kw or {})
        return self

    def _draw_frame(self, row_names, kind, n_left_out, name_length):
        """Draw the names of rows and columns, the separators of blocks and the colour bar.

        ``kind`` is "component" or "cluster". ``n_left_out`` is the number of less relevant columns
        that are left out, and ``name_length`` the maximum number of letters in a line of a name.
        """
        ax, figure = self.ax_, self.figure_
        # Write the names of rows and columns.
        width_in_inches = ax.get_window_extent().width / figure.dpi / len(self.columns_)
        n_lines = 2 if width_in_inches > MIN_TWO_LINE_WIDTH else 1
        names = [shorten(name, n_lines, name_length) for _, name in self.columns_]
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize="small")
        if n_left_out:
            ax.set_xlabel(f"{n_left_out} less relevant columns not shown", fontsize="small")
        ax.set_yticks(range(len(row_names)), row_names, fontsize="small")
        ax.set_ylabel(f"{kind} and its weight", fontsize="small")
        ax.tick_params(length=0)
        # Draw lines between cells, and thicker lines below the first row and between blocks.
        ax.set_xticks(np.arange(1, len(names)) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, len(row_names)) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.0)
        ax.tick_params(which="minor", length=0)
        ax.axhline(0.5, color="0.25", linewidth=1.5)
        blocks = [block for block, _ in self.columns_]
        # Positions of the first column of each block, and of the column after its last one.
        starts = [j for j, block in enumerate(blocks) if j == 0 or block != blocks[j - 1]]
        ends = [*starts[1:], len(blocks)]
        for start in starts[1:]:
            ax.axvline(start - 0.5, color="0.25", linewidth=1.5)
        colorbar = self._draw_colorbar()
        cell_width, _ = self._measure_cell()
        if cell_width < MIN_TWO_LINE_WIDTH * figure.dpi:
            # The names of rows and the colour bar have left less width.
            ax.set_xticklabels([shorten(name, 1, name_length) for _, name in self.columns_])
        for label, axes in ((ax.yaxis.label, ax), (colorbar.ax.yaxis.label, colorbar.ax)):
            shrink_label(label, axes.get_window_extent().height)
        figure.draw_without_rendering()
        fit_tick_labels(ax, "x")
        # Names are horizontal if all of them fit. The height of a turned name is its length.
        name_heights = [label.get_window_extent().height for label in ax.get_xticklabels()]
        if max(name_heights) <= MAX_FILLED_SHARE * cell_width:
            ax.tick_params(axis="x", labelrotation=0)
        if len(starts) > 1:
            # Write the names of several blocks on top.
            centres = [0.5 * (start + end - 1) for start, end in zip(starts, ends, strict=True)]
            names = [blocks[start] for start in starts]
            write_names_on_top(ax, centres, np.subtract(ends, starts), names)
        # The names of blocks and columns have left less height to the rows.
        figure.draw_without_rendering()
        fit_tick_labels(ax, "y")

    def _draw_colorbar(self):
        """Draw and return the colour bar.

        It has pointed ends if some cells are beyond the default scale.
        """
        norm = self.image_.norm
        is_exceeded = self._has_default_scale and (abs(self.image_.get_array()) > norm.vmax).any()
        extend = "both" if is_exceeded else "neither"
        style = {"pad": 0.01, "aspect": 30, "fraction": 0.03, "extend": extend}
        colorbar = self.figure_.colorbar(self.image_, ax=self.ax_, **style)
        colorbar.set_label("relevance (nats per row)\nof low and high values", fontsize="small")
        colorbar.ax.tick_params(labelsize="small")
        if self._has_default_scale:
            # The ticks have equal distances on the scale of the square root.
            roots = np.linspace(-1.0, 1.0, 5)
            ticks = norm.vmax * roots * abs(roots)
            colorbar.set_ticks(ticks, labels=[f"{abs(tick):.2g}" for tick in ticks])
            colorbar.minorticks_off()
        return colorbar

    def _measure_cell(self):
        """Lay the figure out and return the width and height of a cell in pixels."""
        self.figure_.draw_without_rendering()
        extent = self.ax_.get_window_extent()
        return extent.width / len(self.columns_), extent.height / (1 + len(self.components_))

    def _write_cells(self, cells, shown_rows, shown_columns, text_kw):
        """Write the text of each cell in the longest form that fits.

        ``cells`` are the texts from `make_profiles`. ``shown_rows`` and ``shown_columns`` are the
        indices of the components and columns that are shown.
        """
        ax = self.ax_
        max_width, max_height = MAX_FILLED_SHARE * np.array(self._measure_cell())
        text_style = {"ha": "center", "va": "center", "clip_on": True, "linespacing": 1.0} | text_kw
        # The probe is a text whose content is replaced to measure texts of this style.
        probe = ax.text(0.0, 0.0, "", **text_style)

        @cache
        def measure(text):
            """Return width and height of a text in pixels."""
            probe.set_text(text)
            extent = probe.get_window_extent()
            return extent.width, extent.height

        def fits(text):
            """Return whether a text fits into a cell."""
            # Lines are measured one by one, because most of them are in the cache. The height is
            # measured with a digit in each line.
            lines = text.split("\n")
            width = max(measure(line)[0] for line in lines)
            _, height = measure("\n".join("0" * len(lines)))
            return width <= max_width and height <= max_height

        # Unless the user sets the size, take the largest size at which all numbers fit. The number
        # of a cell is the last part of its text.
        numbers = {cells[k, j][-1] for k in shown_rows for j in shown_columns if cells[k, j]}
        if not {"size", "fontsize"} & text_kw.keys():
            for size in FONT_SIZES:
                probe.set_fontsize(size)
                measure.cache_clear()
                if all(map(fits, numbers)):
                    break
        self.texts_ = np.full((len(shown_rows), len(shown_columns)), None, object)
        colours = self.image_.to_rgba(self.image_.get_array())
        # A column has texts only if all of its numbers fit, because numbers with a minus sign are
        # wider than the others and would be missing alone.
        has_texts = [all(fits(cells[k, j][-1]) for k in shown_rows) for j in shown_columns]
        for row, k in enumerate(shown_rows):
            for column, j in enumerate(shown_columns):
                if not has_texts[column]:
                    continue
                text = next(filter(fits, _iterate_text_forms(cells[k, j])), None)
                if text is not None:
                    # Text is white on cells whose luma, a weighted mean of red, green and blue, is
                    # low.
                    is_dark = colours[row, column, :3] @ (0.299, 0.587, 0.114) < 0.55
                    cell_style = {"color": "white" if is_dark else "black"} | text_style
                    # The probe has the user's size or the chosen size. matplotlib does not accept
                    # "size" and "fontsize" together.
                    cell_style |= {"fontsize": probe.get_fontsize()}
                    cell_style.pop("size", None)
                    self.texts_[row, column] = ax.text(column, row, text, **cell_style)
        probe.remove()

    @classmethod
    def from_estimator(cls, estimator, *, n_clusters=None, ax=None, **options):
        """Draw the profiles of a fitted mixture.

        Parameters
        ----------
        estimator : estimator
            A fitted mixture with ``describe``, such as :class:`~skvt.MemoizedDPMixture`.
        n_clusters : int, "auto" or None, default=None
            None shows components. A number or "auto" shows clusters, as in ``describe`` of the
            estimator.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        ProfilesDisplay
            The display, drawn.
        """
        describe = get_fitted_attribute(
            estimator, "describe", "Pass a mixture that describes its components."
        )
        return cls(describe(n_clusters=n_clusters)).plot(ax, **options)


def _iterate_text_forms(parts):
    """Yield the forms of a cell's text, the best first.

    ``parts`` are a number, or a category and its probability. The first form has the category above
    its probability, the second has it beside its probability. In the next forms, the category has
    fewer and fewer letters, and the last form is the probability alone.
    """
    if len(parts) == 2:
        category, probability = parts
        yield f"{category}\n{probability}"
        yield f"{category} {probability}"
        for n_letters in range(len(category) - 1, 1, -1):
            yield f"{category[:n_letters]}…\n{probability}"
    yield from parts[-1:]


def _select_columns(all_columns, columns, max_columns, relevance, mean_relevance):
    """Return the indices of the columns to show, in order.

    ``all_columns`` are block and name of all columns. ``relevance`` (n_shown, n_columns) is their
    relevance in the components shown, and ``mean_relevance`` (n_columns,) the mean over all rows.
    ``columns`` are the names that the user selects, or None for the ``max_columns`` columns with
    the best rank in any component.
    """
    if columns is not None:
        names = [name for _, name in all_columns]
        unknown_names = [name for name in columns if name not in names]
        if unknown_names or not len(columns):
            raise ValueError(
                f"The 'columns' parameter must be a list of some of the columns {names}. Got "
                f"{unknown_names[0] if unknown_names else columns!r} instead."
            )
        return [j for name in columns for j, other in enumerate(names) if other == name]
    most_relevant = find_relevant_columns(relevance, mean_relevance, max_columns)
    # Columns of a block stand together, at the rank of the most relevant of them.
    block_of = [block for block, _ in all_columns]
    blocks = list(dict.fromkeys(block_of[j] for j in most_relevant))
    return sorted(most_relevant, key=lambda j: blocks.index(block_of[j]))


def _choose_name_lengths(ax):
    """Return the maximum numbers of letters in a line of a name of a cluster, and of a column.

    Names are shorter on small given axes. ``ax`` is None for a new figure.
    """
    if ax is None:
        return MAX_LINE_LENGTH, MAX_LINE_LENGTH
    extent = ax.get_window_extent()
    sizes = np.array([extent.width, extent.height]) / ax.figure.dpi
    n_letters = (MAX_NAME_SHARE * sizes / LETTER_WIDTH).astype(int)
    return np.clip(n_letters, MIN_LETTERS_OF_NAMES, MAX_LINE_LENGTH).tolist()


def _count_names_that_fit(ax, n_letters):
    """Return how many turned column names fit side by side into a table on given axes.

    ``n_letters`` is the number of letters in the longest name of a cluster.
    """
    width = ax.get_window_extent().width / ax.figure.dpi
    width -= ROW_NAMES_WIDTH + LETTER_WIDTH * n_letters
    return max(1, int(width / measure_line("small")))


def _resize(figure, n_rows, n_columns, *, has_two_lines, name_length):
    """Give a new figure the size that the table and the names of its columns need.

    ``has_two_lines`` says whether any cell has two lines. ``name_length`` is the number of letters
    in the longest line of a column name.
    """
    # All sizes are in inches. The names of rows and the colour bar need a width of 1.8. The names
    # of blocks need a height of 0.5, and those of columns 0.08 for each letter.
    cell_width = float(np.clip(TABLE_WIDTH / n_columns, *CELL_WIDTHS))
    height = max(1.6, (0.36 if has_two_lines else 0.26) * n_rows)
    width = max(4.0, cell_width * n_columns + 1.8)
    figure.set_size_inches(width, height + 0.5 + 0.08 * name_length)


def _make_norm(relevance):
    """Return a colour norm that maps the relevance of cells to colours by its signed square root.

    ``relevance`` (n_shown, n_columns_shown) determines where the scale ends.
    """
    from matplotlib.colors import FuncNorm

    relevance_quantile = np.quantile(relevance, SCALE_QUANTILE, method="lower")
    # The end of the scale is positive even if no cell has a positive relevance.
    scale_end = max(relevance_quantile, min(relevance.max(), MIN_SCALE_END), 1e-12)
    root_and_inverse = (lambda x: np.sign(x) * np.sqrt(abs(x)), lambda x: x * abs(x))
    return FuncNorm(root_and_inverse, vmin=-scale_end, vmax=scale_end, clip=True)
