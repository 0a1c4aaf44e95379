"""Displays of the bound and of the temperature after each pass of a fit, and their base class.

The history of a fit is a dict of lists, with an entry for each pass over the data. T is the
temperature: at T = 1, a fit maximises the evidence lower bound (ELBO), and at other temperatures it
maximises another objective.
"""

import textwrap

import numpy as np

from skvt.plotting._axes import MAX_LINE_LENGTH, ensure_axes, get_fitted_attribute
from skvt.readers.validation import check_choice

# Keys of the history that are drawn for each value of the parameter ``bounds``. "auto" is replaced
# by "elbo" or "objective" before the keys are looked up.
KEYS_OF_CHOICE = {
    "auto": (), "elbo": ("elbo",), "objective": ("objective",), "both": ("elbo", "objective"),
}  # fmt: skip
# The first pass does not influence the y limits if at least this number of passes follow.
MIN_LATER_PASSES = 5
# Labels of the x axis for each value of the parameter ``x``.
X_LABELS = {"n_iter": "pass", "seconds": "seconds"}
# Marker and colour of each kind of move.
MARKERS = {
    "birth": ("^", "tab:green"),
    "merge": ("s", "tab:red"),
    "delete": ("v", "k"),
    "split-merge": ("o", "tab:blue"),
    "superposition": ("D", "tab:purple"),
}


class HistoryDisplay:
    """Base of the displays of ``history_``.

    ``name`` is the name of the fit in the legend. Subclasses define :meth:`_draw`, which draws on
    ``ax_`` and which :meth:`plot` calls, or they override :meth:`plot`.
    """

    # The fitted attributes that :meth:`from_estimator` passes to the constructor, in this order,
    # and the remedy that the error names if an attribute is missing.
    _remedies_by_attribute = {"history_": "Pass a fitted estimator of skvt."}
    # Fitted attributes that are passed after these, None if the estimator does not have them.
    _optional_attributes = ()
    # Title of the legend; None if it has no title.
    _legend_title = None

    def __init__(self, history, *, name=None):
        self.history = history
        self.name = name

    def plot(self, ax=None, *, x="n_iter", line_kw=None):
        """Draw the history over passes or seconds.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None makes a new figure.
        x : {"n_iter", "seconds"}, default="n_iter"
            Passes, or seconds since the fit began.
        line_kw : dict or None, default=None
            Parameters of ``Axes.plot``.

        Returns
        -------
        display
            The display itself.
        """
        self._prepare_axes(ax, x)
        self._draw(self._get_positions(x), line_kw or {})
        self._draw_legend()
        return self

    def _draw(self, positions, line_kw):
        """Draw the history at the x positions of passes; ``line_kw`` is for ``Axes.plot``."""
        raise NotImplementedError(f"{type(self).__name__} has no _draw(positions, line_kw).")

    def _prepare_axes(self, ax, x):
        """Set ``ax_`` and ``figure_``, the axes to draw on and their figure; label the x axis."""
        check_choice("x", x, X_LABELS)
        self.ax_ = ensure_axes(ax)
        self.figure_ = self.ax_.figure
        self.ax_.set_xlabel(X_LABELS[x])

    def _get_positions(self, x):
        """Return the x position of each pass, the values of ``x`` in the history."""
        return np.asarray(self.history[x], dtype=np.float64)

    def _mark_moves(self, positions, values, *, has_numbers):
        """Set ``markers_``, marks at the passes in which moves were accepted, by kind of move.

        ``positions`` and ``values`` are the places of passes. If ``has_numbers``, the area of a
        mark and its name in the legend show how many moves were accepted.
        """
        self.markers_ = {}
        if self.move_log is None:
            return
        kinds = np.asarray(self.move_log["move"])
        passes = np.asarray(self.move_log["n_iter"], int)
        n_accepted = np.asarray(self.move_log["accepted"])
        for kind, (marker, color) in MARKERS.items():
            is_accepted = (kinds == kind) & (n_accepted > 0)
            if not is_accepted.any():
                continue
            # Sum the accepted moves of this kind in each pass.
            passes_with_moves, pass_groups = np.unique(passes[is_accepted], return_inverse=True)
            n_moves = np.bincount(pass_groups, n_accepted[is_accepted])
            # Positions of these passes in the history.
            indices = np.searchsorted(self.history["n_iter"], passes_with_moves)
            label = f"{kind} ({n_accepted[is_accepted].sum()})"
            if not has_numbers:
                # Several fits on the same axes share an entry of the legend.
                _, labels = self.ax_.get_legend_handles_labels()
                n_moves, label = 1.0, f"{kind} accepted"
                label = None if label in labels else label
            self.markers_[kind] = self.ax_.scatter(
                positions[indices], values[indices], s=24.0 * n_moves, marker=marker,
                facecolors="none", edgecolors=color, zorder=3, label=label,
            )  # fmt: skip

    def _draw_legend(self):
        """Draw a legend if there are several lines or marks."""
        _, labels = self.ax_.get_legend_handles_labels()
        if len(labels) > 1:
            legend = self.ax_.legend(title=self._legend_title)
            legend.get_title().set_fontsize(legend.prop.get_size())
            # Break long names if the legend is wider than the axes.
            self.figure_.draw_without_rendering()
            if legend.get_window_extent().width > self.ax_.get_window_extent().width:
                for text in legend.get_texts():
                    text.set_text(textwrap.fill(text.get_text(), MAX_LINE_LENGTH))

    @classmethod
    def from_estimator(cls, estimator, *, name=None, ax=None, **options):
        """Draw the passes of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            An estimator after ``fit``; for :class:`MovesDisplay`, an estimator that makes moves.
        name : str or None, default=None
            Name of the fit in the legend, which is drawn if the axes show several lines or marks;
            None is the class name.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        display
            The display, drawn.
        """
        values = [
            get_fitted_attribute(estimator, attribute, remedy)
            for attribute, remedy in cls._remedies_by_attribute.items()
        ]
        values += [getattr(estimator, attribute, None) for attribute in cls._optional_attributes]
        name = type(estimator).__name__ if name is None else name
        return cls(*values, name=name).plot(ax, **options)


class ELBODisplay(HistoryDisplay):
    """Display of the evidence lower bound (ELBO) over the course of a fit.

    Use :meth:`from_estimator` to make a display. Pass ``ax`` to draw several fits on the same axes.
    The bound of the first pass is often far lower than later bounds. If each line has at least five
    passes after its first pass, the y limits therefore depend on the later passes only. Marks at
    passes say that components were added, merged, deleted or exchanged, as in
    :class:`MovesDisplay`, because the bound may jump there.

    Parameters
    ----------
    history : dict of lists
        ``history_`` of an estimator: "elbo" and "objective" in nats, "n_iter" and "seconds", with
        one entry per pass.
    move_log : dict of lists or None, default=None
        ``move_log_`` of the same estimator, if it has one.
    name : str or None, default=None
        Name of the fit in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes drawn on.
    figure_ : matplotlib Figure
        Figure of the axes.
    lines_ : list of matplotlib Line2D
        A line for each bound, the ELBO first.
    markers_ : dict of matplotlib PathCollection
        Marks on the first line, by the kind of the moves that were accepted.

    See Also
    --------
    TemperatureDisplay : The temperature of the same passes.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import ELBODisplay
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> annealed = TemperedLDA(3, learning_method="batch", random_state=0).fit(X)
    >>> plain = TemperedLDA(3, learning_method="batch", temperature=None, random_state=0).fit(X)
    >>> display = ELBODisplay.from_estimator(annealed, name="annealed")
    >>> _ = ELBODisplay.from_estimator(plain, name="plain", ax=display.ax_)
    """

    _optional_attributes = ("move_log_",)

    def __init__(self, history, move_log=None, *, name=None):
        super().__init__(history, name=name)
        self.move_log = move_log

    def plot(self, ax=None, *, bounds="auto", x="n_iter", n_samples=None, line_kw=None):
        """Draw the bound over passes or seconds.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None makes a new figure.
        bounds : {"auto", "elbo", "objective", "both"}, default="auto"
            "elbo" draws the ELBO, and "objective" draws the objective that the fit maximises, as a
            dashed line. They are equal at T = 1, except in structured inference, whose objective is
            not a bound. "auto" draws the ELBO if it is known for a pass, and otherwise the
            objective. Passes whose value was not evaluated are left out.
        x : {"n_iter", "seconds"}, default="n_iter"
            Passes, or seconds since the fit began.
        n_samples : float or None, default=None
            Number by which the bound is divided, such as the number of rows or of tokens.
        line_kw : dict or None, default=None
            Parameters of ``Axes.plot``.

        Returns
        -------
        ELBODisplay
            The display itself.

        Raises
        ------
        ValueError
            If no pass has a bound, or for an unknown choice.
        """
        check_choice("bounds", bounds, KEYS_OF_CHOICE)
        if bounds == "auto":
            bounds = "elbo" if np.isfinite(np.asarray(self.history["elbo"])).any() else "objective"
        # Select the passes of each curve first, so that errors are raised before a figure is made.
        divisor = 1.0 if n_samples is None else n_samples
        curves = [(key, *self._select_passes(key, divisor)) for key in KEYS_OF_CHOICE[bounds]]
        self._prepare_axes(ax, x)
        positions = self._get_positions(x)
        self.lines_ = []
        for key, is_known, values in curves:
            style = {"marker": ".", "linestyle": "--" if key == "objective" else "-"}
            # The second line has the colour of the first line.
            if self.lines_:
                style["color"] = self.lines_[0].get_color()
            label = self.name
            if bounds == "both":
                label = f"{self.name} {key}" if self.name else key
            style |= {"label": label} | (line_kw or {})
            self.lines_ += self.ax_.plot(positions[is_known], values, **style)
        values = np.asarray(self.history[curves[0][0]], dtype=np.float64) / divisor
        self._mark_moves(positions, values, has_numbers=False)
        unit = "nats" if n_samples is None else "nats per sample"
        self.ax_.set_ylabel(f"{'objective' if bounds == 'objective' else 'ELBO'} ({unit})")
        # Labels show whole values, not their differences from a number above the axis.
        self.ax_.ticklabel_format(axis="y", style="plain", useOffset=False)
        self._limit_y_axis()
        self._draw_legend()
        return self

    def _select_passes(self, key, divisor):
        """Return the mask of the passes that have a value of ``key``, and the divided values."""
        values = np.asarray(self.history[key], dtype=np.float64)
        is_known = np.isfinite(values)
        if not is_known.any():
            raise ValueError(
                f"No pass has a value of {key!r}: partial_fit knows no bound of all rows, "
                "and structured inference evaluates it on request. Call fit with "
                "evaluate_every=1."
            )
        return is_known, values[is_known] / divisor

    def _limit_y_axis(self):
        """Set the y limits by the values after the first pass of each line, if there are enough.

        The lines are all lines of the axes, which may include other fits.
        """
        later_values = [line.get_ydata()[1:] for line in self.ax_.lines]
        if all(values.size >= MIN_LATER_PASSES for values in later_values):
            lowest, highest = min(map(np.min, later_values)), max(map(np.max, later_values))
            # The limits differ even if all values are equal, and by more than rounding errors.
            margin = max(0.05 * (highest - lowest), 1e-5 * abs(highest)) or 0.05
            self.ax_.set_ylim(lowest - margin, highest + margin)


class TemperatureDisplay(HistoryDisplay):
    """Display of the temperature over the course of a fit.

    Use :meth:`from_estimator` to make a display. Pass ``ax`` to draw several fits on the same axes.

    Parameters
    ----------
    history : dict of lists
        ``history_`` of an estimator: "temperature", "n_iter" and "seconds", with one entry per
        pass.
    name : str or None, default=None
        Name of the fit in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes drawn on.
    figure_ : matplotlib Figure
        Figure of the axes.
    lines_ : list of matplotlib Line2D
        The line of the temperatures at the end of each pass.

    See Also
    --------
    ELBODisplay : The bound of the same passes.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import TemperatureDisplay
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> TemperatureDisplay.from_estimator(lda).lines_[0].get_ydata()[-1]
    np.float64(1.0)
    """

    def _draw(self, positions, line_kw):
        """Draw the temperatures at the x positions of passes."""
        style = {"marker": ".", "label": self.name} | line_kw
        self.lines_ = self.ax_.plot(positions, self.history["temperature"], **style)
        self.ax_.set_ylabel("temperature")
