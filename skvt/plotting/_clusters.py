"""Display of the tree of components joined into clusters, and of the loss by joins.

A join makes one cluster of two. As in SciPy, the K components have the numbers 0 to K - 1, and the
cluster that join i makes has the number K + i. Row i of a linkage matrix has the numbers of the two
joined clusters in columns 0 and 1, and the height of the join in column 2.
"""

import numpy as np

from skvt._results.profiles import format_share
from skvt.plotting._axes import (
    fit_tick_labels,
    get_fitted_attribute,
    make_panels,
    write_names_on_top,
)

# Width of a horizontal label, such as "34%" and the gap beside it, in units of the font size.
LABEL_WIDTH = 2.5


class ClusterTreeDisplay:
    """Display of components joined into clusters: the tree, and the loss by joins.

    Use :meth:`from_estimator` to make a display. The height of a join in the tree is the sum of the
    losses of this join and all earlier joins, in nats per row. The first joins lose entropy of the
    assignments, and later joins lose evidence. Components joined at a low height are hardly
    separated by the rows. Links within a cluster have the colour of the cluster; links between
    clusters are grey. Next to the tree, the loss is shown for each number of clusters, with a mark
    at the chosen number. Both axes have a square-root scale, because losses of entropy are small
    compared with losses of evidence.

    Parameters
    ----------
    hierarchy : array-like of shape (n_components - 1, 4)
        ``hierarchy_`` of a mixture; at least one row.
    n_clusters : int
        Number of clusters at the mark.
    weights : array-like of shape (n_components,) or None, default=None
        Weights of the components, which are shown below their numbers.
    cluster_labels : list of str of length ``n_clusters`` or None, default=None
        Names of the clusters, which are shown above the tree. Clusters are numbered in the order of
        their first components.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (2,)
        Axes of the tree and of the loss.
    ax_ : matplotlib Axes
        Axes of the tree.
    bounding_ax_ : matplotlib Axes or None
        The axes that were passed to ``plot`` and divided into ``axes_``, if any.
    figure_ : matplotlib Figure
        Figure of the axes.
    dendrogram_ : dict
        The result of :func:`scipy.cluster.hierarchy.dendrogram`: "leaves" are the components from
        left to right.
    lines_ : list of matplotlib Line2D
        The loss over the number of clusters.
    marker_ : matplotlib Line2D
        The mark of the chosen number.

    See Also
    --------
    ComponentsDisplay : The components.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM
    >>> from skvt.plotting import ClusterTreeDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2, 2, 500, 2)) * [[[[4.0, 0.3]], [[0.3, 4.0]]]]  # two crosses
    >>> X[1, :, :, 0] += 18.0
    >>> mixture = MemoizedDPGMM(random_state=0).fit(X.reshape(-1, 2))
    >>> mixture.n_components_
    4
    >>> ClusterTreeDisplay.from_estimator(mixture).n_clusters
    2
    """

    def __init__(self, hierarchy, n_clusters, *, weights=None, cluster_labels=None):
        self.hierarchy = hierarchy
        self.n_clusters = n_clusters
        self.weights = weights
        self.cluster_labels = cluster_labels

    def plot(self, ax=None, *, dendrogram_kw=None, line_kw=None):
        """Draw the tree and the loss.

        Parameters
        ----------
        ax : matplotlib Axes, sequence of two Axes or None, default=None
            Axes to be divided between the tree and the loss, or one Axes for each of them. None
            makes a new figure.
        dendrogram_kw : dict or None, default=None
            Parameters of :func:`scipy.cluster.hierarchy.dendrogram`, such as "labels".
        line_kw : dict or None, default=None
            Parameters of ``Axes.plot`` for the loss.

        Returns
        -------
        ClusterTreeDisplay
            The display itself.
        """
        # scipy.cluster is imported when it is needed, because the import takes long.
        from scipy.cluster.hierarchy import dendrogram

        hierarchy = np.asarray(self.hierarchy, dtype=np.float64)
        n_components = len(hierarchy) + 1
        if n_components == 1:
            raise ValueError(
                "A tree needs at least two components to join. Got a mixture with one component."
            )
        if not 1 <= self.n_clusters <= n_components:
            raise ValueError(
                f"n_clusters must be in the range [1, n_components] = [1, {n_components}]. Got "
                f"{self.n_clusters!r} instead."
            )
        self.axes_, self.bounding_ax_ = make_panels(
            ax, n_panels=2, n_columns=2, panel_size=(5.5, 3.6)
        )
        self.ax_, loss_ax = self.axes_
        self.figure_ = self.ax_.figure
        # Draw the tree.
        style = {"link_color_func": self._assign_link_colors(hierarchy).__getitem__, "ax": self.ax_}
        style["leaf_font_size"] = self.ax_.xaxis.get_ticklabels()[0].get_fontsize()
        # Labels have two horizontal lines, or a vertical line if they have no room side by side.
        if self.weights is not None:
            width_in_points = 72.0 * self.ax_.get_window_extent().width / self.figure_.dpi
            label_width = LABEL_WIDTH * style["leaf_font_size"]
            has_two_lines = n_components * label_width <= width_in_points
            separator, style["leaf_rotation"] = ("\n", 0) if has_two_lines else (": ", 90)
            style["labels"] = [
                f"{k}{separator}{format_share(weight)}" for k, weight in enumerate(self.weights)
            ]
        self.dendrogram_ = dendrogram(hierarchy, **(style | (dendrogram_kw or {})))
        name = "component" if self.weights is None else "component and its weight"
        self.ax_.set(xlabel=name, ylabel="lost (nats per row)")
        # Draw the losses after 0, 1, ... joins, which leave K, K - 1, ... clusters. They are the
        # heights of the joins.
        losses = np.append(0.0, hierarchy[:, 2])
        line_style = {"marker": ".", "color": "0.4"} | (line_kw or {})
        self.lines_ = loss_ax.plot(np.arange(n_components, 0, -1), losses, **line_style)
        label = f"{self.n_clusters} cluster{'s' if self.n_clusters > 1 else ''}"
        (self.marker_,) = loss_ax.plot(
            self.n_clusters, losses[n_components - self.n_clusters], marker="o", markersize=10.0,
            linestyle="none", fillstyle="none", color="tab:red", label=label, clip_on=False,
        )  # fmt: skip
        loss_ax.set(xlabel="clusters", ylabel="lost (nats per row)")
        loss_ax.locator_params(axis="x", integer=True)
        # The legend is above the axes, where it hides no loss.
        loss_ax.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), handlelength=1.0, borderaxespad=0.2,
            frameon=False, fontsize="small",
        )  # fmt: skip
        for axes in self.axes_:
            axes.set_ylim(bottom=0.0)
            axes.set_yscale("function", functions=(np.sqrt, np.square))
        if self.cluster_labels is not None:
            self._write_cluster_labels(hierarchy)
        self.figure_.draw_without_rendering()
        fit_tick_labels(self.ax_, "x")
        return self

    def _write_cluster_labels(self, hierarchy):
        """Write the names of clusters above the tree, each in the middle of its components."""
        n_components = len(hierarchy) + 1
        # The components of each cluster, by the number of the cluster in ``hierarchy``.
        members = {k: [k] for k in range(n_components)}
        for join in range(n_components - self.n_clusters):
            first_cluster, second_cluster = hierarchy[join, :2].astype(int).tolist()
            members[n_components + join] = members.pop(first_cluster) + members.pop(second_cluster)
        # SciPy draws leaf i at 10 i + 5.
        position_of = {k: 10.0 * i + 5.0 for i, k in enumerate(self.dendrogram_["leaves"])}
        clusters = sorted(members.values(), key=min)
        centres = [np.mean([position_of[k] for k in cluster]) for cluster in clusters]
        write_names_on_top(
            self.ax_, centres, [10.0 * len(c) for c in clusters], self.cluster_labels
        )

    def _assign_link_colors(self, hierarchy):
        """Return the colour of each link of the tree, a dict by the number of the joined cluster.

        Links within one of the chosen clusters have the colour of the cluster; others are grey.
        """
        n_components = len(hierarchy) + 1
        n_joins_within_clusters = n_components - self.n_clusters
        colors, n_colors = {}, 0
        # Go from the last join to the first, so that the two parts of a cluster get its colour.
        for join in reversed(range(len(hierarchy))):
            cluster = n_components + join
            if join >= n_joins_within_clusters:
                colors[cluster] = "0.6"
                continue
            if cluster not in colors:
                colors[cluster] = f"C{n_colors % 10}"
                n_colors += 1
            for child in hierarchy[join, :2].astype(int).tolist():
                colors[child] = colors[cluster]
        return colors

    @classmethod
    def from_estimator(cls, estimator, *, n_clusters="auto", ax=None, **options):
        """Draw the tree of a fitted mixture.

        Parameters
        ----------
        estimator : estimator
            A mixture after ``fit`` or ``join_components``.
        n_clusters : int or "auto", default="auto"
            Number of clusters at the mark; "auto" is ``n_clusters_``.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        ClusterTreeDisplay
            The display, drawn.
        """
        remedy = "Only mixtures have it, after fit or join_components."
        hierarchy = get_fitted_attribute(estimator, "hierarchy_", remedy)
        if isinstance(n_clusters, str) and n_clusters == "auto":
            n_clusters = estimator.n_clusters_
        weights = getattr(estimator, "weights_", None)
        labels = estimator._get_cluster_labels(n_clusters)
        display = cls(hierarchy, n_clusters, weights=weights, cluster_labels=labels)
        return display.plot(ax, **options)
