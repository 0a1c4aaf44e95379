"""Axes of displays, and the attributes of estimators that they show."""

import numpy as np
from sklearn.utils.validation import check_is_fitted


def pyplot():
    """Import matplotlib.pyplot; the error names the remedy."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("skvt.plotting draws with matplotlib: pip install matplotlib") from error
    return plt


def single(ax):
    """Return the given axes, or the axes of a new figure."""
    return pyplot().subplots(layout="constrained")[1] if ax is None else ax


def panels(ax, n_panels, n_columns, panel_size):
    """Return axes for each panel, (n_panels,), and the axes that they replace or None.

    ``ax`` are axes that are divided into panels, a sequence with axes for each panel, or None for a
    new figure, whose panels have this size in inches.
    """
    plt = pyplot()
    if isinstance(ax, list | tuple | np.ndarray):
        axes = np.ravel(np.asarray(ax, dtype=object))
        if axes.size < n_panels:
            raise ValueError(
                f"{n_panels} panels need as many axes. Got {axes.size}; pass more, or one to be "
                "divided, or None for a new figure."
            )
        return axes[:n_panels], None
    n_columns = min(n_columns, n_panels)
    n_rows = -(-n_panels // n_columns)
    if ax is None:
        size = (panel_size[0] * n_columns, panel_size[1] * n_rows)
        figure = plt.figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(n_rows, n_columns)
    else:
        ax.set_axis_off()
        figure = ax.figure
        grid = ax.get_subplotspec().subgridspec(n_rows, n_columns)
    cells = [grid[divmod(i, n_columns)] for i in range(n_panels)]
    return np.array([figure.add_subplot(cell) for cell in cells], dtype=object), ax


def fitted_attribute(estimator, name, remedy):
    """Return an attribute of a fitted estimator; if it has none, raise with the ``remedy``."""
    check_is_fitted(estimator)
    try:
        return getattr(estimator, name)
    except AttributeError:
        raise ValueError(
            f"This {type(estimator).__name__} has no attribute {name!r}. {remedy}"
        ) from None


def chosen(which, n_all, name):
    """Return the numbers of the topics or components to show, by default all."""
    if which is None:
        return np.arange(n_all)
    numbers = np.atleast_1d(np.asarray(which))
    if not (
        numbers.size
        and np.issubdtype(numbers.dtype, np.integer)
        and np.all((numbers >= 0) & (numbers < n_all))
    ):
        raise ValueError(
            f"The {name!r} parameter must be numbers in the range [0, {n_all}). Got {which!r} "
            "instead."
        )
    return numbers
