"""Functions shared by the classes of displays: axes and panels, and checks of what to show."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvt.readers.validation import illegal_value_error, require_package

# Maximum number of letters in a line of a name. Names may be turned by 90 degrees, and longer lines
# would leave too little height for the picture.
MAX_LINE_LENGTH = 20


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


def check_indices(requested, n_all, name):
    """Return the indices of the topics or components to show as an array.

    Parameters
    ----------
    requested : int, array-like of int, or None
        Requested indices. None stands for all of them.
    n_all : int
        Number of all topics or components.
    name : str
        Name of the parameter that holds ``requested``, for the message of an error.

    Raises
    ------
    ValueError
        If ``requested`` is empty, or has values that are not integers in the range [0, n_all).
    """
    if requested is None:
        return np.arange(n_all)
    indices = np.atleast_1d(np.asarray(requested))
    are_integers = np.issubdtype(indices.dtype, np.integer)
    are_legal = are_integers and np.all((indices >= 0) & (indices < n_all))
    if not (indices.size and are_legal):
        raise illegal_value_error(
            name, f"a list of integers in the range [0, {n_all})", repr(requested)
        )
    return indices


def shorten(name, n_lines):
    """Break a name into at most ``n_lines`` lines, 1 or 2; cut out the middle of long names."""
    name = str(name)
    max_length = n_lines * MAX_LINE_LENGTH
    if len(name) > max_length:
        # The name has ``max_length`` letters with the ellipsis.
        name = f"{name[: max_length // 2]}…{name[1 - max_length // 2 :]}"
    if len(name) <= MAX_LINE_LENGTH:
        return name
    half = (len(name) + 1) // 2
    return f"{name[:half]}\n{name[half:]}"


def write_names_on_top(ax, centres, sizes, names):
    """Write names of sections of the x axis above axes, turned by 90 degrees if one is too wide.

    ``centres`` and ``sizes`` are positions and widths of the sections in units of the x axis.
    """
    names = [shorten(name, 1) for name in names]
    top_axis = ax.secondary_xaxis("top")
    top_axis.set_xticks(centres, names, fontsize="small")
    top_axis.tick_params(length=0)
    top_axis.spines["top"].set_visible(False)
    ax.figure.draw_without_rendering()
    # Width of a unit of the x axis in pixels.
    unit = ax.get_window_extent().width / abs(np.diff(ax.get_xlim())[0])
    widths = [label.get_window_extent().width for label in top_axis.get_xticklabels()]
    if any(width > size * unit for width, size in zip(widths, sizes, strict=True)):
        top_axis.set_xticks(centres, names, rotation=90, fontsize="small")
