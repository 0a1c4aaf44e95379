"""Functions shared by the classes of displays: axes and panels, and checks of what to show."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvt.readers.validation import illegal_value_error, require_package

# Maximum number of letters in a line of a name. Names may be turned by 90 degrees, and longer lines
# would leave too little height for the picture.
MAX_LINE_LENGTH = 20
# Maximum length of turned names above axes, relative to the height of the axes, unless names have
# fewer letters than MIN_LETTERS_OF_NAMES.
MAX_NAME_LENGTH_SHARE, MIN_LETTERS_OF_NAMES = 0.4, 8
# Smallest size of the labels of ticks in points. If labels of this size overlap, some are left out.
MIN_LABEL_SIZE = 5.0
# Room that a label needs, relative to its length: for names, and for numbers.
NAME_SPACING, NUMBER_SPACING = 1.05, 1.3


def import_pyplot():
    """Import and return matplotlib.pyplot; raise ImportError if matplotlib is missing."""
    error_text = "skvt.plotting draws with matplotlib: pip install matplotlib"
    return require_package("matplotlib.pyplot", error_text)


def ensure_axes(ax):
    """Return ``ax``, or the axes of a new figure if ``ax`` is None."""
    if ax is None:
        _, ax = import_pyplot().subplots(layout="constrained")
    return ax


def make_panels(ax, n_panels, n_columns, panel_size):
    """Return the axes of several panels, and make them if necessary.

    Parameters
    ----------
    ax : matplotlib Axes, sequence of Axes, or None
        A single Axes is hidden, and its area is divided into panels. A sequence of Axes gives the
        panels, of which the first ``n_panels`` are used. None makes a new figure.
    n_panels : int
        Number of panels.
    n_columns : int
        Largest number of panels side by side, unless ``ax`` is a sequence.
    panel_size : tuple of two floats
        Width and height of a panel of a new figure, in inches.

    Returns
    -------
    axes : ndarray of object, shape (n_panels,)
        Axes of each panel.
    bounding_ax : matplotlib Axes or None
        ``ax`` if it was divided into panels; otherwise None.

    Raises
    ------
    ValueError
        If ``ax`` is a sequence of fewer than ``n_panels`` axes.
    """
    plt = import_pyplot()
    if isinstance(ax, list | tuple | np.ndarray):
        axes = np.ravel(np.asarray(ax, dtype=object))
        if axes.size < n_panels:
            raise ValueError(
                f"The plot has {n_panels} panels, but 'ax' has {axes.size} axes. Pass {n_panels} "
                "axes, one to be divided, or None for a new figure."
            )
        return axes[:n_panels], None
    n_columns = min(n_columns, n_panels)
    # The quotient is rounded up.
    n_rows = -(-n_panels // n_columns)
    if ax is None:
        width, height = panel_size
        figure = plt.figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
        grid = figure.add_gridspec(n_rows, n_columns)
    else:
        ax.set_axis_off()
        figure = ax.figure
        grid = ax.get_subplotspec().subgridspec(n_rows, n_columns)
    cells = [grid[divmod(i, n_columns)] for i in range(n_panels)]
    return np.array([figure.add_subplot(cell) for cell in cells], dtype=object), ax


def get_fitted_attribute(estimator, name, remedy):
    """Return the attribute ``name`` of a fitted estimator.

    Raise NotFittedError if the estimator is not fitted, and ValueError if it has no such attribute.
    The message of the ValueError ends with ``remedy``, which says how to obtain the attribute.
    """
    check_is_fitted(estimator)
    try:
        return getattr(estimator, name)
    except AttributeError:
        raise ValueError(
            f"This {type(estimator).__name__} has no attribute {name!r}. {remedy}"
        ) from None


def check_indices(requested_indices, n_items, name):
    """Return the indices of the topics or components to show as an array.

    Parameters
    ----------
    requested_indices : int, array-like of int, or None
        Requested indices. None stands for all of them.
    n_items : int
        Number of all topics or components.
    name : str
        Name of the parameter that holds ``requested_indices``, for the message of an error.

    Raises
    ------
    ValueError
        If ``requested_indices`` is empty, or has values other than integers from 0 to n_items - 1.
    """
    if requested_indices is None:
        return np.arange(n_items)
    indices = np.atleast_1d(np.asarray(requested_indices))
    are_integers = np.issubdtype(indices.dtype, np.integer)
    are_legal = are_integers and np.all((indices >= 0) & (indices < n_items))
    if not (indices.size and are_legal):
        raise illegal_value_error(
            name, f"a list of integers in the range [0, {n_items})", repr(requested_indices)
        )
    return indices


def measure_line(size):
    """Return the height of a line in inches, for a size of letters such as "small"."""
    from matplotlib.font_manager import FontProperties

    return 1.2 * FontProperties(size=size).get_size_in_points() / 72.0


def choose_grid(ax, n_panels, max_columns, min_size):
    """Return the number of columns of panels, and how many panels have room in ``ax``.

    ``max_columns`` is the largest number of columns, and ``min_size`` is the smallest width and
    height of a panel in inches. A new figure, or a sequence of axes, has room for all panels.
    """
    if not hasattr(ax, "get_window_extent"):
        return max_columns, n_panels
    extent = ax.get_window_extent()
    sizes = np.array([extent.width, extent.height]) / ax.figure.dpi / min_size
    n_columns, n_rows = np.clip(sizes.astype(int), 1, (max_columns, n_panels)).tolist()
    return n_columns, min(n_panels, n_columns * n_rows)


def shorten(name, n_lines, max_length=MAX_LINE_LENGTH):
    """Break a name into at most ``n_lines`` lines, 1 or 2; cut out the middle of long names.

    ``max_length`` is the maximum number of letters in a line.
    """
    name = str(name)
    if len(name) > n_lines * max_length:
        # The name has as many letters as the lines, with the ellipsis.
        n_last = (n_lines * max_length - 1) // 2
        name = f"{name[: n_lines * max_length - 1 - n_last]}…{name[len(name) - n_last :]}"
    if len(name) <= max_length:
        return name
    middle = (len(name) + 1) // 2
    # Break at the space nearest to the middle that leaves two lines of legal length, if any.
    spaces = [
        i for i, letter in enumerate(name)
        if letter == " " and i <= max_length and len(name) - i - 1 <= max_length
    ]  # fmt: skip
    if spaces:
        i = min(spaces, key=lambda i: abs(i - middle))
        return f"{name[:i]}\n{name[i + 1 :]}"
    return f"{name[:middle]}\n{name[middle:]}"


def shorten_to_width(text, width):
    """Cut out the middle of each line of a text that is wider than ``width`` pixels."""
    lines = text.get_text().split("\n")
    for i, line in enumerate(lines):
        text.set_text(line)
        n_letters = len(line)
        while n_letters > 1 and (text_width := text.get_window_extent().width) > width:
            n_letters = max(1, min(n_letters - 1, int(n_letters * width / text_width)))
            lines[i] = shorten(line, 1, n_letters)
            text.set_text(lines[i])
    text.set_text("\n".join(lines))


def shrink_label(label, max_length):
    """Reduce the size of the label of a y axis until it is at most ``max_length`` pixels long."""
    present = label.get_window_extent().height
    if present > max_length:
        size = label.get_fontsize()
        label.set_fontsize(min(size, max(MIN_LABEL_SIZE, size * max_length / present)))


def fit_tick_labels(ax, axis_name, *, keep_all=False):
    """Reduce the size of the tick labels of the axis "x" or "y", and then their number.

    Afterwards no labels overlap. With ``keep_all``, only the size is reduced. The figure must be
    laid out.
    """
    axis = getattr(ax, f"{axis_name}axis")
    labels = axis.get_ticklabels()
    texts = np.array([label.get_text() for label in labels], dtype=object)
    shown = np.flatnonzero(texts != "")
    if shown.size < 2:
        return
    # Ends of the labels on the axis in pixels, (n_shown, 2).
    ends = [getattr(labels[i].get_window_extent(), f"interval{axis_name}") for i in shown]
    ends = np.sort(ends, axis=1)
    order = np.argsort(ends.mean(axis=1))
    shown, ends = shown[order], ends[order]
    centres, lengths = (ends.mean(axis=1), NAME_SPACING * (ends[:, 1] - ends[:, 0]))

    def compute_excess(step):
        """Return the largest ratio of the length of labels to their room, for each step-th."""
        distances = np.maximum(np.diff(centres[::step]), 1e-12)
        mean_lengths = 0.5 * (lengths[::step][1:] + lengths[::step][:-1])
        return (mean_lengths / distances).max(initial=0.0)

    excess = compute_excess(1)
    if excess <= 1.0:
        return
    old_size = labels[shown[0]].get_fontsize()
    new_size = min(old_size, max(old_size / excess, MIN_LABEL_SIZE))
    axis.set_tick_params(labelsize=new_size)
    if keep_all:
        return
    lengths *= new_size / old_size
    step = next(step for step in range(1, shown.size + 1) if compute_excess(step) <= 1.0 + 1e-9)
    if step > 1:
        is_hidden = np.ones(texts.size, dtype=bool)
        is_hidden[shown[::step]] = False
        axis.set_ticklabels(np.where(is_hidden, "", texts).tolist())


def fit_numbers(ax, axis_name, max_ticks):
    """Reduce the number of ticks of the axis "x" or "y", which has numbers, until they have room.

    There are at most ``max_ticks`` intervals between ticks. The figure must be laid out.
    """
    dimension = "width" if axis_name == "x" else "height"
    labels = getattr(ax, f"get_{axis_name}ticklabels")()
    longest = max((getattr(label.get_window_extent(), dimension) for label in labels), default=0.0)
    axis_length = getattr(ax.get_window_extent(), dimension)
    n_ticks = np.clip(int(axis_length / max(NUMBER_SPACING * longest, 1.0)), 1, max_ticks)
    ax.locator_params(axis=axis_name, nbins=int(n_ticks))
    fit_tick_labels(ax, axis_name, keep_all=True)


def write_names_on_top(ax, centres, widths, names):
    """Write names of sections of the x axis above axes, turned by 90 degrees if one is too wide.

    ``centres`` and ``widths`` are positions and widths of the sections in units of the x axis.
    """
    names = [shorten(name, 1) for name in names]
    top_axis = ax.secondary_xaxis("top")
    top_axis.set_xticks(centres, names, fontsize="small")
    top_axis.tick_params(length=0)
    top_axis.spines["top"].set_visible(False)
    ax.figure.draw_without_rendering()
    # Width of a unit of the x axis in pixels.
    unit = ax.get_window_extent().width / abs(np.diff(ax.get_xlim())[0])
    label_widths = [label.get_window_extent().width for label in top_axis.get_xticklabels()]
    if any(width > size * unit for width, size in zip(label_widths, widths, strict=True)):
        # Turned names are shortened, so that they leave most of the height to the picture.
        max_length = MAX_NAME_LENGTH_SHARE * ax.get_window_extent().height
        n_letters = int(max(map(len, names)) * max_length / max(label_widths))
        names = [shorten(name, 1, max(MIN_LETTERS_OF_NAMES, n_letters)) for name in names]
        top_axis.set_xticks(centres, names, rotation=90, fontsize="small")
        ax.figure.draw_without_rendering()
        fit_tick_labels(top_axis, "x")
