"""Display of topics as bars of their most probable words."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from skvt._results.profiles import format_share
from skvt._results.topic_words import (
    average_topics,
    compute_relevance,
    normalize_topics,
)
from skvt.plotting._axes import (
    MAX_LINE_LENGTH,
    MIN_LABEL_SIZE,
    check_indices,
    choose_grid,
    fit_numbers,
    make_panels,
    shorten,
    shorten_to_width,
)
from skvt.readers.validation import check_choice, require_column_names, split_pipeline

# Maximum number of panels if the user does not select topics.
MAX_PANELS = 30
# Width of a panel in inches below which its title has two lines, of which the second has the share.
# So do titles of more than MAX_TITLE_LENGTH letters.
NARROW_PANEL_WIDTH = 1.2
MAX_TITLE_LENGTH = 12
# Maximum number of intervals between the ticks of the x axis.
MAX_TICKS = 3
# Panels in a row at most, and the smallest width and height of a panel in inches, unless the user
# sets the number of columns or selects topics.
MAX_COLUMNS = 5
MIN_PANEL_SIZE = (1.3, 0.65)
# Height of a bar relative to the size of its word.
BAR_HEIGHT = 1.3
# Maximum share of the words in the width of a panel with its words.
MAX_SHARE_OF_WORDS = 0.55


class TopicsDisplay:
    """Display of the most probable words of each topic as horizontal bars.

    Use :meth:`from_estimator` to make a display.

    Parameters
    ----------
    topics : array-like of shape (n_components, n_features)
        Weight of each word in each topic, such as the probability of the word.
    feature_names : array-like of str of shape (n_features,)
        The words.
    shares : array-like of shape (n_components,) or None, default=None
        Shares of the topics in all tokens. Topics with larger shares are shown first, and titles
        include the share.
    titles : list of str or None, default=None
        Titles of the topics. None means "topic 0", "topic 1" and so on.
    scores : array-like of shape (n_components, n_features) or None, default=None
        Scores by which the words of each topic are chosen and ordered. With None, the weights in
        ``topics`` are the scores.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (n_topics,)
        Axes of each topic shown.
    bounding_ax_ : matplotlib Axes or None
        The single axes that were passed to ``plot`` and divided into ``axes_``; None if no single
        axes were passed.
    figure_ : matplotlib Figure
        Figure of the axes.
    bars_ : list of matplotlib BarContainer
        Bars of each topic that is shown, with the first word at the top. Words of weight 0 have no
        bar. All panels have the same x limits.
    topics_ : ndarray of int, shape (n_topics,)
        Indices of the topics shown.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.plotting import TopicsDisplay
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> display = TopicsDisplay.from_estimator(lda, n_words=5)
    >>> len(display.bars_), len(display.bars_[0])
    (3, 5)
    """

    def __init__(self, topics, feature_names, *, shares=None, titles=None, scores=None):
        self.topics = topics
        self.feature_names = feature_names
        self.shares = shares
        self.titles = titles
        self.scores = scores

    def plot(self, ax=None, *, n_words=10, topics=None, n_columns=None, bar_kw=None):
        """Draw a panel for each topic.

        Parameters
        ----------
        ax : matplotlib Axes, array-like of Axes or None, default=None
            Axes to be divided among the panels, or one axes per panel; None makes a new figure.
        n_words : int, default=10
            Number of words per topic. Panels of ``ax`` show as many of them as have room. Long
            words are shown without their middle.
        topics : array-like of int or None, default=None
            Indices of the topics to show, in this order. None shows the thirty topics with the
            largest shares, or the first thirty topics if there are no ``shares``. More topics are
            shown only on request, because a hundred panels take some ten seconds, and ``ax`` may
            have room for fewer. The number of topics that are not shown is written below the last
            panel.
        n_columns : int or None, default=None
            Number of panels in a row. None is 5, or as many as have room for words in ``ax``.
        bar_kw : dict or None, default=None
            Parameters of ``Axes.barh``.

        Returns
        -------
        TopicsDisplay
            The display itself.
        """
        check_scalar(n_words, "n_words", Integral, min_val=1)
        # (n_components, n_features) each: the lengths of bars, and the scores that order words.
        weights, names = np.asarray(self.topics), np.asarray(self.feature_names)
        scores = weights if self.scores is None else np.asarray(self.scores)
        indices = check_indices(topics, weights.shape[0], "topics")
        if topics is None and self.shares is not None:
            indices = np.argsort(-np.asarray(self.shares), kind="stable")
        default_columns, max_panels = choose_grid(ax, MAX_PANELS, MAX_COLUMNS, MIN_PANEL_SIZE)
        n_shown = indices.size if topics is not None else min(indices.size, max_panels)
        n_not_shown = indices.size - n_shown
        self.topics_ = indices = indices[:n_shown]
        panel_size = (2.4, 0.5 + 0.2 * n_words)
        n_columns = default_columns if n_columns is None else n_columns
        self.axes_, self.bounding_ax_ = make_panels(ax, indices.size, n_columns, panel_size)
        self.figure_ = self.axes_[0].figure
        self.bars_ = []
        # All panels have the same x limit. It is 1 if all weights are 0.
        x_max = 1.05 * weights[indices].max() or 1.0
        for panel, k in zip(self.axes_, indices, strict=True):
            # The first words by score, as column numbers, without words of weight 0.
            word_indices = np.argsort(-scores[k], kind="stable")[:n_words]
            word_indices = word_indices[weights[k, word_indices] > 0.0]
            positions = np.arange(word_indices.size)
            self.bars_.append(panel.barh(positions, weights[k, word_indices], **(bar_kw or {})))
            panel.set_yticks(positions, [shorten(word, 1) for word in names[word_indices]])
            title = f"topic {k}" if self.titles is None else self.titles[k]
            is_narrow = panel.get_window_extent().width < NARROW_PANEL_WIDTH * self.figure_.dpi
            separator = "\n" if is_narrow or len(title) > MAX_TITLE_LENGTH else " "
            title += (
                "" if self.shares is None else f"{separator}({format_share(self.shares[k], 1)})"
            )
            title += "" if word_indices.size else ": no words"
            panel.set_title(title, fontsize="small", loc="left")
            panel.invert_yaxis()
            panel.set_xlim(0.0, x_max)
        # Bars are probabilities if the weights of each topic have the sum 1.
        totals = weights.sum(axis=1)
        are_probabilities = np.isclose(totals, 1.0) | (totals == 0.0)
        first_of_last_row = (indices.size - 1) // n_columns * n_columns
        self.axes_[first_of_last_row].set_xlabel(
            "probability" if are_probabilities.all() else "weight", fontsize="small"
        )
        if n_not_shown:
            note = f"{n_not_shown} more topics not shown"
            label = self.axes_[-1].get_xlabel()
            self.axes_[-1].set_xlabel(f"{label}\n{note}".strip(), loc="right", fontsize="small")
        self._fit_texts_to_panels(is_new=ax is None)
        return self

    def _fit_texts_to_panels(self, *, is_new):
        """Shorten words and titles that are too wide, and reduce the size of words.

        The panels of a new figure have room for all words. In axes that were divided into panels,
        words may be left out, and only the lowest panel of each column has numbers on its x axis,
        since all have the same.
        """
        titles = [panel._left_title.get_text() for panel in self.axes_]
        if is_new:
            for panel in self.axes_:
                self._shorten_words(panel)
                panel.locator_params(axis="x", nbins=MAX_TICKS)
            # A layout takes long if there are many panels.
            if all(len(line) <= MAX_LINE_LENGTH for title in titles for line in title.split("\n")):
                return
        # Titles of one letter show how much room each panel has, because long titles would make the
        # layout narrow the bars.
        for panel, title in zip(self.axes_, titles, strict=True):
            panel._left_title.set_text("\n".join("0" for _ in title.split("\n")))
        if not is_new:
            self._fit_words_to_panels()
        self.figure_.draw_without_rendering()
        for panel, title in zip(self.axes_, titles, strict=True):
            fit_numbers(panel, "x", MAX_TICKS)
            panel._left_title.set_text(title)
            shorten_to_width(panel._left_title, panel.get_window_extent().width)

    def _fit_words_to_panels(self):
        """Reduce the size of words, and then their number if axes were divided into panels."""
        is_divided = self.bounding_ax_ is not None
        if is_divided:
            n_columns = self.axes_[0].get_subplotspec().get_gridspec().ncols
            for panel in self.axes_[:-n_columns]:
                panel.tick_params(labelbottom=False)
        # Words of one letter show how much height each panel has.
        words = [[word.get_text() for word in panel.get_yticklabels()] for panel in self.axes_]
        for panel in self.axes_:
            panel.set_yticks(panel.get_yticks(), ["0"] * len(panel.get_yticks()))
        self.figure_.draw_without_rendering()
        for panel, words_of_topic in zip(self.axes_, words, strict=True):
            height = panel.get_window_extent().height * 72.0 / self.figure_.dpi / BAR_HEIGHT
            n_shown = len(words_of_topic)
            if is_divided:
                n_shown = min(n_shown, max(1, int(height / MIN_LABEL_SIZE)))
            if n_shown:
                panel.set_ylim(n_shown - 0.5, -0.5)
                panel.set_yticks(np.arange(n_shown), words_of_topic[:n_shown])
                size = min(panel.get_yticklabels()[0].get_fontsize(), height / n_shown)
                panel.tick_params(axis="y", labelsize=size)
                self._shorten_words(panel)

    def _shorten_words(self, panel):
        """Shorten words that take more than MAX_SHARE_OF_WORDS of the width of their panel."""
        # The place of the panel has room for the panel and for its words.
        spec = panel.get_subplotspec()
        width = panel.get_window_extent().width
        if spec is not None:
            area = self.figure_.bbox if self.bounding_ax_ is None else self.bounding_ax_.bbox
            width = area.width / spec.get_gridspec().ncols
        words = panel.get_yticklabels()
        for word in words:
            shorten_to_width(word, MAX_SHARE_OF_WORDS * width)
        panel.set_yticks(panel.get_yticks(), [word.get_text() for word in words])

    @classmethod
    def from_estimator(cls, estimator, *, feature_names=None, by="probability", ax=None, **options):
        """Draw the topics of a fitted estimator in the order of their shares, the largest first.

        Parameters
        ----------
        estimator : estimator or Pipeline
            A fitted topic model with ``components_``, also of scikit-learn, or a pipeline that ends
            in a topic model. The rows of ``components_`` are divided by their sums, so that bars
            are the expected probabilities of words.
        feature_names : array-like of str of shape (n_features,) or None, default=None
            Words, such as ``CountVectorizer.get_feature_names_out()``; by default as in
            :func:`skvt.topic_table`.
        by : {"probability", "relevance"}, default="probability"
            Score by which words are chosen and ordered, as in :func:`skvt.top_words`. Bars are
            probabilities in both cases.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        TopicsDisplay
            The display, drawn.
        """
        weights = normalize_topics(estimator)
        names = require_column_names(estimator, feature_names, weights.shape[1])
        check_choice("by", by, ("probability", "relevance"))
        _, model = split_pipeline(estimator)
        # Labels that the user has set; models of other libraries have none.
        labels = getattr(model, "_labels_by_topic", {})
        titles = [labels.get(k, f"topic {k}") for k in range(len(weights))]
        scores = None
        if by == "relevance":
            scores = compute_relevance(weights, average_topics(estimator))
        # The shares are 0 if all weights of words are 0.
        n_words_of_topics = np.asarray(model.components_, np.float64).sum(axis=1)
        shares = n_words_of_topics / (n_words_of_topics.sum() or 1.0)
        display = cls(weights, names, shares=shares, titles=titles, scores=scores)
        return display.plot(ax, **options)
