"""The number of components after each pass, and the moves."""

import numpy as np

from skvt.plotting._history import HistoryDisplay

# Marker and colour of accepted moves.
STYLES = {
    "birth": ("^", "tab:green"),
    "merge": ("s", "tab:red"),
    "delete": ("v", "k"),
    "split-merge": ("o", "tab:blue"),
    "superposition": ("D", "tab:purple"),
}


class MovesDisplay(HistoryDisplay):
    """Number of components after each pass, and accepted moves.

    Make it by :meth:`from_estimator`. A mark at a pass means that components were added, merged,
    deleted or exchanged in this pass; its area grows with their number.

    Parameters
    ----------
    history : dict of lists
        ``history_`` of an estimator: "n_components", "n_iter", "seconds", one entry a pass.
    move_log : dict of lists
        ``move_log_`` of the same estimator: "n_iter", "move", "accepted".
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

    _shows = HistoryDisplay._shows | {"move_log_": "Only estimators that make moves have it."}

    def __init__(self, history, move_log, *, name=None):
        super().__init__(history, name=name)
        self.move_log = move_log

    def _legend(self):
        title = "moves accepted (area: their number)" if self.markers_ else None
        if self.ax_.get_legend_handles_labels()[1]:
            self.ax_.legend(title=title)

    def _draw(self, position, line_kw):
        n_components = np.asarray(self.history["n_components"])
        style = {"label": self.name, "color": "0.6"} | line_kw
        self.lines_ = self.ax_.plot(position, n_components, **style)
        moves, passes = np.asarray(self.move_log["move"]), np.asarray(self.move_log["n_iter"], int)
        accepted = np.asarray(self.move_log["accepted"])
        self.markers_ = {}
        for move, (marker, color) in STYLES.items():
            made = (moves == move) & (accepted > 0)
            if made.any():
                in_pass, which = np.unique(passes[made], return_inverse=True)
                number = np.bincount(which, accepted[made])
                at = np.searchsorted(self.history["n_iter"], in_pass)
                self.markers_[move] = self.ax_.scatter(
                    position[at],
                    n_components[at],
                    s=24.0 * number,
                    marker=marker,
                    facecolors="none",
                    edgecolors=color,
                    label=f"{move} ({accepted[made].sum()})",
                    zorder=3,
                )
        self.ax_.set_ylabel("components")
