"""Display of components as images, as ellipses over two columns, or as a table of means."""

import numpy as np

from skvt.plotting._axes import (
    check_indices,
    ensure_axes,
    fit_tick_labels,
    get_fitted_attribute,
    make_panels,
    shorten,
)
from skvt.readers.validation import check_choice, find_column_names, require_column_names


class ComponentsDisplay:
    """Display of components as a grid of images, ellipses over two columns, or a table of means.

    Use :meth:`from_estimator` to make a display, or give either ``images``, or ``means`` and
    ``covariances``. Means and covariances over two columns are shown as ellipses. Any other number
    of columns is shown as a table with a row for each component and a column for each column of the
    data. The colour of a cell shows the mean of the component minus the mean of the mixture, in
    standard deviations of the mixture.

    Parameters
    ----------
    images : array-like of shape (n_components, height, width) or None, default=None
        An image for each component.
    means : array-like of shape (n_components, n_features) or None, default=None
        Means of the components, which are shown as the centres of ellipses or in the table.
    covariances : array-like of shape (n_components, n_features, n_features) or None, default=None
        Covariances of the components; the ellipses are contours of the densities.
    weights : array-like of shape (n_components,) or None, default=None
        Weights of the components. They are the titles of images. In a table, they determine the
        mean and the standard deviation of the mixture, and None stands for equal weights.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of the columns. With None, columns are numbered.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (n_shown,)
        Axes of each image, or the single axes of ellipses or the table.
    ax_ : matplotlib Axes
        Axes of the ellipses, of the table, or of the first image.
    bounding_ax_ : matplotlib Axes or None
        The axes that were passed to ``plot`` and divided among the images, if any.
    figure_ : matplotlib Figure
        Figure of the axes.
    images_ : list of matplotlib AxesImage
        The images, or the table; empty if ellipses are drawn.
    ellipses_ : list of matplotlib Ellipse
        The ellipses; empty if images or a table are drawn.
    texts_ : list of matplotlib Text
        The number of the component at the centre of each ellipse.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM
    >>> from skvt.plotting import ComponentsDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1.0, size=(200, 2)) for m in (-6.0, 0.0, 6.0)])
    >>> mixture = MemoizedDPGMM(random_state=0).fit(X)
    >>> len(ComponentsDisplay.from_estimator(mixture).ellipses_)
    3
    """

    def __init__(
        self, images=None, *, means=None, covariances=None, weights=None, feature_names=None
    ):
        self.images = images
        self.means = means
        self.covariances = covariances
        self.weights = weights
        self.feature_names = feature_names

    def plot(
        self, ax=None, *, components=None, features=None, titles=None, n_columns=8, n_std=2.0,
        image_kw=None, ellipse_kw=None,
    ):  # fmt: skip
        """Draw the components.

        Parameters
        ----------
        ax : matplotlib Axes, array-like of Axes or None, default=None
            Axes of the ellipses or of the table; for images, axes to be divided among them, or one
            axes per image. None makes a new figure.
        components : array-like of int or None, default=None
            Indices of the components to show, in this order; None shows all.
        features : array-like of int or None, default=None
            Indices of the columns to show; None shows all. Two columns are shown as the plane of
            ellipses, and any other number of columns as a table. Images do not use the parameter.
        titles : array-like of str or None, default=None
            Titles of the images shown; None shows the weights, if there are any.
        n_columns : int, default=8
            Number of images in a row.
        n_std : float, default=2.0
            Distance of the ellipses from the means in standard deviations.
        image_kw : dict or None, default=None
            Parameters of ``Axes.imshow``. By default, each image has grey levels from its lowest to
            its highest value, and tables are blue below the mean of the mixture and red above.
        ellipse_kw : dict or None, default=None
            Parameters of ``matplotlib.patches.Ellipse``.

        Returns
        -------
        ComponentsDisplay
            The display itself.
        """
        self.images_, self.ellipses_, self.texts_ = [], [], []
        if self.images is not None:
            self._plot_images(ax, components, titles, n_columns, image_kw or {})
        elif np.ndim(self.means) == 2 and np.ndim(self.covariances) == 3:
            n_features = np.shape(self.means)[1]
            features = check_indices(features, n_features, "features")
            names = require_column_names(
                estimator=None, feature_names=self.feature_names, n_features=n_features
            )
            names = names[features].astype(str)
            ax = ensure_axes(ax)
            self.axes_ = np.array([ax], dtype=object)
            self.bounding_ax_ = None
            if features.size == 2:
                self._plot_ellipses(ax, components, features, names, n_std, ellipse_kw or {})
            else:
                self._plot_table(ax, components, features, names, image_kw or {})
        else:
            raise ValueError(
                "ComponentsDisplay needs images of shape (n_components, height, width), or means "
                "of shape (n_components, n_features) with covariances of shape (n_components, "
                f"n_features, n_features). Got means of shape {np.shape(self.means)} and "
                f"covariances of shape {np.shape(self.covariances)}; pass images, or image_shape "
                "to from_estimator."
            )
        self.ax_ = self.axes_[0]
        self.figure_ = self.ax_.figure
        return self

    def _plot_images(self, ax, components, titles, n_columns, image_kw):
        """Draw a panel for each image."""
        images = np.asarray(self.images)
        indices = check_indices(components, len(images), "components")
        if titles is None and self.weights is not None:
            titles = [f"{weight:.3f}" for weight in np.asarray(self.weights)[indices]]
        # The panels of a new figure are 1.1 inches wide and 1.35 inches high.
        self.axes_, self.bounding_ax_ = make_panels(ax, indices.size, n_columns, (1.1, 1.35))
        for i, (panel, k) in enumerate(zip(self.axes_, indices, strict=True)):
            self.images_.append(panel.imshow(images[k], **({"cmap": "gray"} | image_kw)))
            panel.set(xticks=[], yticks=[])
            if titles is not None:
                panel.set_title(titles[i], fontsize="small")

    def _plot_ellipses(self, ax, components, features, names, n_std, ellipse_kw):
        """Draw an ellipse for each component, ``n_std`` standard deviations around its mean."""
        from matplotlib.patches import Ellipse

        means = np.asarray(self.means)[:, features]
        # (n_components, 2, 2): the rows and columns of the two features.
        covariances = np.asarray(self.covariances)[:, features[:, None], features]
        for k in check_indices(components, len(means), "components"):
            # The eigenvectors of the covariance are the axes of the ellipse.
            eigenvalues, eigenvectors = np.linalg.eigh(covariances[k])
            width, height = 2.0 * n_std * np.sqrt(eigenvalues)
            angle = np.degrees(np.arctan2(eigenvectors[1, 0], eigenvectors[0, 0]))
            style = {"facecolor": "none", "edgecolor": f"C{k % 10}", "linewidth": 1.5} | ellipse_kw
            ellipse = Ellipse(means[k], width, height, angle=angle, **style)
            self.ellipses_.append(ax.add_patch(ellipse))
            text_style = {"color": ellipse.get_edgecolor(), "weight": "bold", "clip_on": True}
            text = ax.text(*means[k], str(k), ha="center", va="center", **text_style)
            self.texts_.append(text)
        ax.autoscale_view()
        ax.set_aspect("equal")
        # Without names, label the axes only if there are more columns than the two that are shown.
        if self.feature_names is not None or np.shape(self.means)[1] > 2:
            prefix = "column " if self.feature_names is None else ""
            x_name, y_name = (shorten(prefix + name, n_lines=2) for name in names)
            ax.set(xlabel=x_name, ylabel=y_name)

    def _plot_table(self, ax, components, features, names, image_kw):
        """Draw a table of standardised means, with a row for each component."""
        means = np.asarray(self.means)
        component_variances = np.diagonal(np.asarray(self.covariances), axis1=1, axis2=2)
        indices = check_indices(components, len(means), "components")
        weights = np.ones(len(means)) if self.weights is None else np.asarray(self.weights)
        weights = weights / weights.sum()
        # Standardise by the mean and the variance of the whole mixture, including components that
        # are not shown.
        deviations = means - weights @ means
        variance = weights @ (deviations**2 + component_variances)
        standardised = deviations / np.sqrt(np.where(variance > 0.0, variance, 1.0))
        table = standardised[indices][:, features]
        # The limit is positive even if all means are equal.
        limit = max(np.abs(table).max(), 1e-12)
        style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "aspect": "auto"} | image_kw
        self.images_.append(ax.imshow(table, **style))
        # Turn the names by 90 degrees if one is long or there are many.
        rotation = 90 if max(map(len, names)) > 3 or len(names) > 20 else 0
        short_names = [shorten(name, n_lines=1) for name in names]
        ax.set_xticks(range(len(names)), short_names, rotation=rotation, fontsize="small")
        ax.set_yticks(range(len(indices)), indices, fontsize="small")
        ax.set_ylabel("component")
        ax.figure.colorbar(self.images_[0], ax=ax, label="standardised mean")
        ax.figure.draw_without_rendering()
        fit_tick_labels(ax, "x")
        fit_tick_labels(ax, "y")

    @classmethod
    def from_estimator(
        cls, estimator, *, values=None, image_shape=None, feature_names=None, ax=None, **options
    ):
        """Draw the components of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator of skvt or scikit-learn, with ``components_`` or ``means_``.
        values : {"components", "means", "covariances"} or None, default=None
            Values to show as images. The covariances are shown as matrices. None shows
            ``components_``, or ``means_`` if there are no components.
        image_shape : tuple of int or None, default=None
            Height and width of the images that the rows of the data represent. If neither
            ``image_shape`` nor ``values`` is given, a mixture is shown as ellipses over two
            columns, or as a table of means.
        feature_names : array-like of str of shape (n_features,) or None, default=None
            Names of the columns; by default the names in ``fit`` or those of ``set_words``, or
            numbers if there are none.
        ax, **options : see :meth:`plot`
            Parameters of :meth:`plot`.

        Returns
        -------
        ComponentsDisplay
            The display, drawn.
        """
        names = find_column_names(estimator, feature_names)
        display = cls(weights=getattr(estimator, "weights_", None), feature_names=names)
        if values is None and image_shape is None:
            display.means = _get_values(estimator, "means")
            display.covariances = make_full_covariances(estimator)
        elif values == "covariances":
            display.images = make_full_covariances(estimator)
        else:
            if values is None:
                values = "components" if hasattr(estimator, "components_") else "means"
            display.images = _reshape_to_images(_get_values(estimator, values), image_shape)
        return display.plot(ax, **options)


def _get_values(estimator, name):
    """Return the "components", "means" or "covariances" of a fitted estimator as an array."""
    check_choice("values", name, ("components", "means", "covariances"))
    remedy = (
        "Pass values='components', 'means' or 'covariances', and image_shape for images. "
        "ProfilesDisplay shows mixtures of columns of any kind."
    )
    return np.asarray(get_fitted_attribute(estimator, f"{name}_", remedy))


def _reshape_to_images(values, image_shape):
    """Return rows (n_components, height * width) as images (n_components, height, width)."""
    if image_shape is None or np.prod(image_shape) != values.shape[1]:
        raise ValueError(
            f"image_shape must be a pair (height, width) with the product {values.shape[1]}, "
            f"because the data have {values.shape[1]} columns. Got {image_shape!r}."
        )
    return values.reshape(-1, *image_shape)


def make_full_covariances(estimator):
    """Return the covariances of a mixture as matrices (n_components, n_features, n_features).

    The mixture may have any ``covariance_type``.
    """
    covariances = _get_values(estimator, "covariances")
    n_components, n_features = np.shape(estimator.means_)
    # In skvt, ``covariance_type_`` is the type of the fit. Estimators of scikit-learn have only the
    # parameter.
    parameter = getattr(estimator, "covariance_type", None)
    type_of_fit = getattr(estimator, "covariance_type_", parameter)
    if type_of_fit in ("tied", "tied_low_rank"):
        return np.broadcast_to(covariances, (n_components, n_features, n_features))
    if covariances.ndim == 3:
        return covariances
    # (n_components, n_features) for diagonal covariances, or (n_components, 1) for spherical ones.
    variances = covariances.reshape(n_components, -1)
    return variances[:, :, None] * np.eye(n_features)
