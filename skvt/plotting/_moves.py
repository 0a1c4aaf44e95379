"""Display of the number of components after each pass, with the accepted moves.

A move is a proposed change of the components, such as the merge of two components into one.
"""

import numpy as np

from skvt.plotting._history import HistoryDisplay


class MovesDisplay(HistoryDisplay):
    """Display of the number of components after each pass, and of accepted moves.

    Use :meth:`from_estimator` to make a display. A mark at a pass says that components were added,
    merged, deleted or exchanged in this pass. The area of the mark is proportional to the number of
    moves of this kind that were accepted in the pass.

    Parameters
    ----------
    history : dict of lists
        ``history_`` of an estimator: "n_components", "n_iter" and "seconds", with one entry per
        pass.
    move_log : dict of lists
        ``move_log_`` of the same estimator: "n_iter", "move" and "accepted".
    name : str or None, default=None
        Name of the fit in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes drawn on.
    figure_ : matplotlib Figure
        Figure of the axes.
    lines_ : list of matplotlib Line2D
        The line of the number of components.
    markers_ : dict of matplotlib PathCollection
        Marks of "birth", "merge", "delete", "split-merge" and "superposition", if moves of this
        kind were accepted.

    See Also
    --------
    ELBODisplay : The bound of the same passes.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM
    >>> from skvt.plotting import MovesDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1.0, size=(200, 2)) for m in (-6.0, 0.0, 6.0)])
    >>> mixture = MemoizedDPGMM(random_state=0).fit(X)
    >>> sorted(MovesDisplay.from_estimator(mixture).markers_)
    ['birth']
    """

    _remedies_by_attribute = HistoryDisplay._remedies_by_attribute | {
        "move_log_": "Pass a fitted estimator that makes moves, such as MemoizedDPGMM."
    }

    def __init__(self, history, move_log, *, name=None):
        super().__init__(history, name=name)
        self.move_log = move_log

    @property
    def _legend_title(self):
        """Title of the legend, which explains the marks; None if there are no marks."""
        return "moves accepted\n(area: their number)" if self.markers_ else None

    def _draw(self, positions, line_kw):
        """Draw the number of components at the x positions of passes, and the marks of moves."""
        n_components = np.asarray(self.history["n_components"])
        style = {"label": self.name, "color": "0.6"} | line_kw
        self.lines_ = self.ax_.plot(positions, n_components, **style)
        self._mark_moves(positions, n_components, has_numbers=True)
        self.ax_.set_ylabel("components")
        self.ax_.locator_params(axis="y", integer=True)
