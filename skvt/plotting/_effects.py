"""Displays of effects of covariates, and of shares of topics by group, with their intervals.

A panel is one of the axes of a figure. A display draws either points, each with an interval, or
curves, each with a band of intervals.
"""

import textwrap

import numpy as np

from skvt._results import covariate_effects, topic_shares
from skvt.plotting._axes import (
    MAX_LINE_LENGTH,
    check_indices,
    choose_grid,
    fit_numbers,
    fit_tick_labels,
    make_panels,
    measure_line,
    shorten,
    shorten_to_width,
)

# Colours of points whose interval excludes 0, and of points whose interval includes 0. The colours,
# blue of the palette of Okabe and Ito and grey, can be told apart with any kind of colour vision.
# The markers of points also differ: they are hollow if the interval includes 0.
_CLEAR_COLOR, _UNCLEAR_COLOR = "#0072B2", "#767676"
# Colours of the curves of several groups, from the same palette, and their styles, which can be
# told apart in grey print. They are repeated if there are more groups.
_GROUP_COLORS = (_CLEAR_COLOR, "#D55E00", "#009E73", "#CC79A7")
_GROUP_STYLES = ("-", "--", "-.", ":")
# Width and height in inches of a panel for a topic in a new figure, and the smallest ones in given
# axes, which determine how many panels have room.
_PANEL_SIZE, _MIN_PANEL_SIZE = (2.2, 1.6), (0.9, 1.2)
# Largest number of panels in a row, unless the user sets it.
_MAX_COLUMNS = 3
# Maximum number of panels with curves or shares if the user does not select topics.
_MAX_PANELS = 12
# Maximum number of intervals between the ticks of an axis of numbers.
_MAX_TICKS = 4
# Curves of at most this number of points have a marker at each point.
_MAX_MARKERS = 6


class EffectsDisplay:
    """Display of effects of covariates, or of predicted shares, with their intervals.

    Effects are drawn as points, in a panel for each term. Shares that are predicted at values of
    one numerical covariate are drawn as curves, in a panel for each topic, with a curve for each
    level of the other covariates. Use :meth:`from_estimator` or :meth:`from_data` to make a
    display.

    Parameters
    ----------
    effects : pandas.DataFrame
        The result of :func:`skvt.covariate_effects`.
    x : array-like of shape (n_rows,) or None, default=None
        The values of the covariate at which shares are predicted, one for each row of the parameter
        ``at`` of :func:`skvt.covariate_effects`. None draws points.
    x_name : str or None, default=None
        Name of the covariate, which labels the x axis.
    groups : array-like of str of shape (n_rows,) or None, default=None
        The curve to which each of the values belongs, such as a party; None draws one curve.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (n_panels,)
        The axes of the panels, one for each term or topic.
    bounding_ax_ : matplotlib Axes or None
        The axes that were passed to ``plot`` and divided into ``axes_``, if any.
    figure_ : matplotlib Figure
        Figure of the axes.
    points_ : list of matplotlib ErrorbarContainer
        A point with its interval for each effect; empty if curves are drawn.
    lines_ : list of matplotlib Line2D
        A curve for each topic and group; empty if points are drawn.
    bands_ : list of matplotlib PolyCollection
        A band of intervals for each curve.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import EffectsDisplay
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> display = EffectsDisplay.from_estimator(lda, X, np.arange(200) % 10)
    >>> len(display.axes_), len(display.points_)
    (1, 3)
    """

    def __init__(self, effects, *, x=None, x_name=None, groups=None):
        self.effects = effects
        self.x = x
        self.x_name = x_name
        self.groups = groups

    def plot(self, ax=None, *, terms=None, topics=None, n_columns=None):
        """Draw points of effects, or curves of predicted shares.

        Parameters
        ----------
        ax : matplotlib Axes, array-like of Axes or None, default=None
            Axes to be divided among the panels, or one axes per panel; None makes a new figure.
        terms : list of str or None, default=None
            Terms to show, if points are drawn; None shows all terms but the intercept.
        topics : array-like of int or None, default=None
            Indices of the topics or clusters to show, in this order. None shows all of them as
            points, or the first twelve as curves, of which ``ax`` may have room for fewer. The
            number of topics that are not shown is written below the last panel.
        n_columns : int or None, default=None
            Number of panels in a row. None is 3, or as many as have room in ``ax``.

        Returns
        -------
        EffectsDisplay
            The display itself.
        """
        table = self.effects
        # The column that has the index of the topic or cluster.
        kind = "topic" if "topic" in table else "cluster"
        indices = check_indices(topics, int(table[kind].max()) + 1, "topics")
        titles = _make_titles(table, kind)
        self.points_, self.lines_, self.bands_ = [], [], []
        if self.x is None:
            # The terms of the table in their order, each once.
            known = list(dict.fromkeys(table["term"]))
            terms = [t for t in known if t != "Intercept"] if terms is None else list(terms)
            unknown = [term for term in terms if term not in known]
            if unknown or not terms:
                raise ValueError(
                    f"terms must be a list of some of the terms {known}. Got {unknown or terms}."
                )
            panel_size = (3.3, 0.7 + 0.3 * indices.size)
            if n_columns is None:
                n_columns, _ = choose_grid(ax, len(terms), _MAX_COLUMNS, _MIN_PANEL_SIZE)
            self.axes_, self.bounding_ax_ = make_panels(ax, len(terms), n_columns, panel_size)
            for panel, term in zip(self.axes_, terms, strict=True):
                rows = table[table["term"] == term].set_index(kind)
                self._draw_effects(panel, rows.loc[indices])
                panel.set_title(shorten(term, 2), fontsize="small")
                _label_rows(panel, [titles[k] for k in indices])
                panel.set_xlabel("effect", fontsize="small")
            _fit_texts(self.axes_, ("x",))
        else:
            indices = _make_topic_panels(self, ax, indices, topics, n_columns, _PANEL_SIZE)
            x_label = _break_lines(self.x_name or "")
            options = {"x": self.x, "x_label": x_label, "groups": self.groups}
            _draw_curves(self, table, kind, indices, titles, **options)
        self.figure_ = self.axes_[0].figure
        return self

    def _draw_effects(self, panel, rows):
        """Draw a line at 0, and the effects in these rows of the table as points with intervals."""
        panel.axvline(0.0, color="black", linewidth=0.6, linestyle=":")
        for position, row in enumerate(rows.itertuples()):
            excludes_zero = row.low > 0.0 or row.high < 0.0
            color = _CLEAR_COLOR if excludes_zero else _UNCLEAR_COLOR
            point = _draw_points(
                panel, [row.effect], [row.low], [row.high], [position], color=color,
                marker_fill=color if excludes_zero else "white",
            )  # fmt: skip
            self.points_.append(point)

    @classmethod
    def from_data(cls, effects, *, at=None, ax=None, **options):
        """Draw a table of effects.

        Parameters
        ----------
        effects : pandas.DataFrame
            The result of :func:`skvt.covariate_effects`.
        at : data frame or array-like or None, default=None
            The rows of covariates at which shares were predicted. If exactly one numerical
            covariate varies, shares are drawn as curves over it, one for each level of the other
            covariates that vary.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        EffectsDisplay
            The display, drawn.
        """
        name, x, groups = _find_varying_number(at)
        return cls(effects, x=x, x_name=name, groups=groups).plot(ax, **options)

    @classmethod
    def from_estimator(
        cls, estimators, X, covariates, *, at=None, effects_kw=None, ax=None, **options
    ):
        """Estimate effects and draw them.

        Parameters
        ----------
        estimators : estimator or list of estimators
            One fit or several fits, as in :func:`skvt.covariate_effects`.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.
        covariates : data frame or array-like
            The covariates of the rows.
        at : data frame or array-like or None, default=None
            Rows of covariates at which shares are predicted, as in :meth:`from_data`.
        effects_kw : dict or None, default=None
            Other parameters of :func:`skvt.covariate_effects`, such as ``random_state``.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        EffectsDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If ``options`` has other parameters than those of :meth:`plot`.
        """
        if unknown := options.keys() - {"terms", "topics", "n_columns"}:
            raise TypeError(
                f"EffectsDisplay.plot has no parameters {sorted(unknown)}. Pass parameters of "
                "covariate_effects in effects_kw, such as effects_kw={'formula': 'bs(year, df=5)'}."
            )
        effects = covariate_effects(estimators, X, covariates, at=at, **(effects_kw or {}))
        return cls.from_data(effects, at=at, ax=ax, **options)


class TopicSharesDisplay:
    """Display of the shares of topics by group, such as a year, with their intervals.

    If groups are numbers, the shares of a topic are drawn as a curve with a band of intervals.
    Otherwise, they are drawn as points with intervals. Use :meth:`from_estimator` or
    :meth:`from_data` to make a display.

    Parameters
    ----------
    shares : pandas.DataFrame
        The result of :func:`skvt.topic_shares`.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (n_topics,)
        The axes of the panels, one for each topic that is shown.
    bounding_ax_ : matplotlib Axes or None
        The axes that were passed to ``plot`` and divided into ``axes_``, if any.
    figure_ : matplotlib Figure
        Figure of the axes.
    points_ : list of matplotlib ErrorbarContainer
        Points with their intervals for each topic; empty if curves are drawn.
    lines_ : list of matplotlib Line2D
        A curve for each topic; empty if points are drawn.
    bands_ : list of matplotlib PolyCollection
        A band of intervals for each curve.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import TopicSharesDisplay
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> display = TopicSharesDisplay.from_estimator(lda, X, [2001, 2002, 2003, 2004] * 50)
    >>> len(display.lines_)
    3
    """

    def __init__(self, shares):
        self.shares = shares

    def plot(self, ax=None, *, topics=None, n_columns=None):
        """Draw a panel for each topic.

        Parameters
        ----------
        ax : matplotlib Axes, array-like of Axes or None, default=None
            Axes to be divided among the panels, or one axes per panel; None makes a new figure.
        topics : array-like of int or None, default=None
            Indices of the topics to show, in this order. None shows the first twelve topics, or as
            many of them as have room in ``ax``. The number of topics that are not shown is written
            below the last panel.
        n_columns : int or None, default=None
            Number of panels in a row. None is 3, or as many as have room in ``ax``.

        Returns
        -------
        TopicSharesDisplay
            The display itself.
        """
        table = self.shares
        # The columns before "topic" have the values of the groups.
        groups = table[list(table.columns[: table.columns.get_loc("topic")])]
        indices = check_indices(topics, int(table["topic"].max()) + 1, "topics")
        # All topics have the same groups, whose values (n_groups, n_columns) are taken from the
        # rows of one topic.
        group_values = groups[table["topic"] == indices[0]].to_numpy()
        are_numbers = group_values.shape[1] == 1 and groups.dtypes.iloc[0].kind in "iuf"
        width, height = _PANEL_SIZE
        if not are_numbers:
            # Labels of groups need a line each, and the title and the x axis need 5.5 lines.
            height = max(height, (len(group_values) + 5.5) * measure_line("small"))
        indices = _make_topic_panels(self, ax, indices, topics, n_columns, (width, height))
        self.figure_ = self.axes_[0].figure
        self.points_, self.lines_, self.bands_ = [], [], []
        titles = _make_titles(table, "topic")
        if are_numbers:
            _draw_curves(self, table, "topic", indices, titles, x=group_values[:, 0])
            return self
        # Pandas writes dates without hours if all of them are midnights.
        texts = groups[table["topic"] == indices[0]].astype(str).to_numpy()
        labels = [shorten(", ".join(row), 1) for row in texts]
        for panel, k in zip(self.axes_, indices, strict=True):
            rows = table[table["topic"] == k]
            shares, low, high = (rows[name].to_numpy() for name in ("share", "low", "high"))
            positions = np.arange(len(rows))
            points = _draw_points(
                panel, shares, low, high, positions, color=_CLEAR_COLOR, marker_fill=_CLEAR_COLOR
            )
            self.points_.append(points)
            _label_rows(panel, labels)
            panel.set_title(titles[k], fontsize="small")
            _add_x_label(panel, "share")
        _fit_texts(self.axes_, ("x",))
        return self

    @classmethod
    def from_data(cls, shares, *, ax=None, **options):
        """Draw a table of shares.

        Parameters
        ----------
        shares : pandas.DataFrame
            The result of :func:`skvt.topic_shares`.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        TopicSharesDisplay
            The display, drawn.
        """
        return cls(shares).plot(ax, **options)

    @classmethod
    def from_estimator(
        cls, estimator, X, groups, *, feature_names=None, confidence=0.95, covariates=None,
        allowed_topics=None, ax=None, **options,
    ):  # fmt: skip
        """Estimate the shares of topics by group and draw them.

        Parameters
        ----------
        estimator : estimator or Pipeline
            A fitted topic model.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.
        groups : array-like or data frame
            The group of each row, as in :func:`skvt.topic_shares`.
        feature_names : array-like of str of shape (n_features,) or None, default=None
            Words, as in :func:`skvt.topic_shares`.
        confidence : float, default=0.95
            Probability of the intervals, between 0 and 1.
        covariates : data frame or array-like, optional
            Covariates of the rows, as in :func:`skvt.topic_shares`.
        allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
            Topics that each row may have, as in :func:`skvt.topic_shares`.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        TopicSharesDisplay
            The display, drawn.
        """
        shares = topic_shares(
            estimator, X, groups, feature_names, confidence=confidence, covariates=covariates,
            allowed_topics=allowed_topics,
        )  # fmt: skip
        return cls.from_data(shares, ax=ax, **options)


def _make_titles(table, kind):
    """Return the title of each topic or cluster, a dict by its index.

    ``kind`` is "topic" or "cluster". A title has at most two lines.
    """
    rows = table.drop_duplicates(kind).set_index(kind)
    labels = rows["label"].astype(str) if "label" in rows else {}
    titles = {k: f"{kind} {k}" if k not in labels else f"{k}: {labels[k]}" for k in rows.index}
    return {k: _break_lines(title) for k, title in titles.items()}


def _break_lines(text):
    """Break a text into at most two lines; leave out its end if it is longer."""
    return textwrap.fill(text, MAX_LINE_LENGTH, max_lines=2, placeholder=" ...")


def _make_topic_panels(display, ax, indices, topics, n_columns, panel_size):
    """Set the axes of a display with a panel for each topic; return the indices of those shown.

    ``topics`` are the topics that the user selects. If it is None, the first ``indices`` are shown,
    and the number of others is written below the last panel.
    """
    default_columns, max_panels = choose_grid(ax, _MAX_PANELS, _MAX_COLUMNS, _MIN_PANEL_SIZE)
    shown_indices = indices if topics is not None else indices[:max_panels]
    n_columns = default_columns if n_columns is None else n_columns
    display.axes_, display.bounding_ax_ = make_panels(ax, shown_indices.size, n_columns, panel_size)
    if shown_indices.size < indices.size:
        note = f"{indices.size - shown_indices.size} more\nnot shown"
        display.axes_[-1].set_xlabel(note, fontsize="small")
    return shown_indices


def _add_x_label(panel, label):
    """Write a label of the x axis above the label that the axis has."""
    text = f"{label}\n{panel.get_xlabel()}".strip()
    panel.set_xlabel(text, fontsize="small")


def _fit_texts(panels, axes_of_numbers):
    """Fit the labels of ticks, titles and labels of the x axis of panels to their size.

    ``axes_of_numbers`` are the names of the axes that have numbers, "x" or ("x", "y").
    """
    figure = panels[0].figure
    figure.draw_without_rendering()
    for panel in panels:
        for axis_name in axes_of_numbers:
            fit_numbers(panel, axis_name, _MAX_TICKS)
        if "y" not in axes_of_numbers:
            fit_tick_labels(panel, "y")
    figure.draw_without_rendering()
    for panel in panels:
        width = panel.get_window_extent().width
        _break_to_width(panel.title, width)
        shorten_to_width(panel.xaxis.label, width)


def _break_to_width(title, width):
    """Break a title of at most two lines into shorter lines of at most ``width`` pixels."""
    text, title_width = title.get_text(), title.get_window_extent().width
    if title_width > width:
        n_letters = int(max(map(len, text.split("\n"))) * width / title_width)
        # No break follows the number of a topic. Longer words than a line are shortened below.
        text = " ".join(text.split()).replace(": ", ":\N{NO-BREAK SPACE}", 1)
        lines = textwrap.wrap(
            text, max(5, n_letters), max_lines=2, placeholder=" …", break_long_words=False
        )
        title.set_text("\n".join(lines))
    shorten_to_width(title, width)


def _draw_points(panel, values, low, high, positions, *, color, marker_fill):
    """Draw ``values`` as points with intervals from ``low`` to ``high``; return their container.

    ``positions`` are the y positions of the points.
    """
    panel.tick_params(axis="x", labelsize="small")
    errors = np.subtract(values, low), np.subtract(high, values)
    style = {"fmt": "o", "markersize": 4, "linewidth": 1.2}
    return panel.errorbar(
        values, positions, xerr=errors, color=color, markerfacecolor=marker_fill, **style
    )


def _label_rows(panel, labels):
    """Label the y positions 0, 1, ..., from the top.

    Only panels in the first column show the labels.
    """
    labels = labels if _is_in_first_column(panel) else [""] * len(labels)
    panel.set_yticks(np.arange(len(labels)), labels, fontsize="small")
    panel.set_ylim(len(labels) - 0.5, -0.5)


def _is_in_first_column(panel):
    """Return whether a panel is in the first column of a grid of panels, or in no grid."""
    spec = panel.get_subplotspec()
    return spec is None or spec.is_first_col()


def _find_varying_number(at):
    """Return ``(name, values, groups)`` of the numerical covariate that varies in ``at``.

    ``at`` are rows of covariates, and ``groups`` are the levels of the other covariates that vary
    in each row, as a text; None if no other varies. Return (None, None, None) unless exactly one
    numerical covariate varies.
    """
    if at is None:
        return None, None, None
    if hasattr(at, "columns"):
        columns = {str(name): np.asarray(at[name]) for name in at.columns}
    else:
        array = np.asarray(at)
        array = array[:, None] if array.ndim == 1 else array
        columns = {f"x{j}": array[:, j] for j in range(array.shape[1])}
    varying = {name: v for name, v in columns.items() if len(set(v.tolist())) > 1}
    numbers = [name for name, values in varying.items() if values.dtype.kind in "iuf"]
    if len(numbers) != 1:
        return None, None, None
    x = varying.pop(numbers[0])
    levels = zip(*(values.tolist() for values in varying.values()), strict=True)
    groups = [", ".join(map(str, row)) for row in levels] if varying else None
    return numbers[0], x, groups


def _draw_curves(display, table, kind, indices, titles, *, x, x_label="", groups=None):
    """Draw shares over x, with a band of intervals, for each topic or cluster, and each group.

    ``kind`` is "topic" or "cluster", ``indices`` select the topics or clusters to show, and
    ``titles`` are from `_make_titles`. The rows of a topic or cluster in ``table`` are in the order
    of x, which need not be sorted. ``groups`` has the group of each value of x; None stands for one
    group. The lines and bands are added to the display, and the first panel has a legend of groups.
    """
    x = np.asarray(x)
    groups = np.array([""] * len(x) if groups is None else groups)
    column = "effect" if "effect" in table else "share"
    for panel, k in zip(display.axes_, indices, strict=True):
        rows = table[table[kind] == k]
        for i, group in enumerate(dict.fromkeys(groups.tolist())):
            members = np.flatnonzero(groups == group)
            order = members[np.argsort(x[members], kind="stable")]
            curve, places = rows.iloc[order], x[order]
            color = _GROUP_COLORS[i % len(_GROUP_COLORS)]
            style = _GROUP_STYLES[i % len(_GROUP_STYLES)]
            marker = "o" if len(places) <= _MAX_MARKERS else ""
            (line,) = panel.plot(
                places, curve[column], style, color=color, marker=marker, markersize=3, label=group
            )
            band = panel.fill_between(
                places, curve["low"], curve["high"], color=color, alpha=0.25, linewidth=0.0
            )
            display.lines_.append(line)
            display.bands_.append(band)
        panel.set_title(titles[k], fontsize="small")
        panel.tick_params(labelsize="small")
        _add_x_label(panel, x_label)
        if _is_in_first_column(panel):
            panel.set_ylabel("share", fontsize="small")
        panel.locator_params(axis="x", nbins=_MAX_TICKS, integer=x.dtype.kind in "iu")
        # Write 200101 in place of 1 + 2.001e5.
        panel.ticklabel_format(axis="x", useOffset=False)
    if len(set(groups.tolist())) > 1:
        display.axes_[0].legend(fontsize="x-small")
    _fit_texts(display.axes_, ("x", "y"))
