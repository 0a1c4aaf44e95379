"""Display of topics as bars of their most probable words."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from skvt._results.topic_words import (
    average_topics,
    compute_relevance,
    normalize_topics,
)
from skvt.plotting._axes import check_indices, make_panels
from skvt.readers.validation import check_choice, require_column_names, split_pipeline

# Maximum number of panels if the user does not select topics.
MAX_TOPICS = 30
# Width of a panel in inches below which its title has two lines and its x axis has two ticks.
NARROW_PANEL = 1.2
# Panels in a row at most, and the smallest width of a panel in inches, unless the user sets the
# number of columns.
MAX_COLUMNS = 5
MIN_PANEL_WIDTH = 1.3
# Smallest size of words in points, and the height of a bar relative to the size of its word.
MIN_WORD_SIZE = 5.0
HEIGHT_OF_BAR = 1.3


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
            Number of words per topic. Panels of ``ax`` show as many of them as have room.
        topics : array-like of int or None, default=None
            Indices of the topics to show, in this order. None shows the thirty topics with the
            largest shares, or the first thirty topics if there are no ``shares``. More topics are
            shown only on request, because a hundred panels take some ten seconds. The number of
            topics that are not shown is written below the last panel.
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
        n_not_shown = max(indices.size - MAX_TOPICS, 0) if topics is None else 0
        self.topics_ = indices = indices[: indices.size - n_not_shown]
        panel_size = (2.4, 0.5 + 0.2 * n_words)
        if n_columns is None:
            is_divided = hasattr(ax, "get_window_extent")
            width = ax.get_window_extent().width / ax.figure.dpi if is_divided else np.inf
            n_columns = int(np.clip(width / MIN_PANEL_WIDTH, 1, MAX_COLUMNS))
        self.axes_, self.bounding_ax_ = make_panels(ax, indices.size, n_columns, panel_size)
        self.figure_ = self.axes_[0].figure
        self.bars_ = []
        # All panels have the same x limit. It is 1 if all weights are 0.
        x_max = 1.05 * weights[indices].max() or 1.0
        for panel, k in zip(self.axes_, indices, strict=True):
            # The first words by score, as column numbers, without words of weight 0.
            words = np.argsort(-scores[k], kind="stable")[:n_words]
            words = words[weights[k, words] > 0.0]
            positions = np.arange(words.size)
            self.bars_.append(panel.barh(positions, weights[k, words], **(bar_kw or {})))
            panel.set_yticks(positions, names[words].astype(str))
            title = f"topic {k}" if self.titles is None else self.titles[k]
            is_narrow = panel.get_window_extent().width < NARROW_PANEL * self.figure_.dpi
            separator = "\n" if is_narrow else " "
            title += "" if self.shares is None else f"{separator}({self.shares[k]:.1%})"
            title += "" if words.size else ": no words"
            panel.set_title(title, fontsize="small", loc="left")
            panel.invert_yaxis()
            panel.set_xlim(0.0, x_max)
            panel.locator_params(axis="x", nbins=1 if is_narrow else 3)
        if self.bounding_ax_ is not None:
            self._fit_words_to_panels()
        if n_not_shown:
            self.axes_[-1].set_xlabel(f"{n_not_shown} more topics not shown", loc="right")
        return self

    def _fit_words_to_panels(self):
        """Reduce the size of words, and then their number, until they do not overlap.

        Only the lowest panel of each column has numbers on its x axis, since all have the same.
        """
        n_columns = self.axes_[0].get_subplotspec().get_gridspec().ncols
        for panel in self.axes_[:-n_columns]:
            panel.tick_params(labelbottom=False)
        self.figure_.draw_without_rendering()
        for panel in self.axes_:
            words = panel.get_yticklabels()
            height = panel.get_window_extent().height * 72.0 / self.figure_.dpi / HEIGHT_OF_BAR
            n_shown = min(len(words), max(1, int(height / MIN_WORD_SIZE)))
            if n_shown:
                panel.set_ylim(n_shown - 0.5, -0.5)
                panel.set_yticks(np.arange(n_shown), [word.get_text() for word in words[:n_shown]])
                size = min(words[0].get_fontsize(), height / n_shown)
                panel.tick_params(axis="y", labelsize=size)

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
