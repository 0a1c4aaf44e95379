"""
How many clusters are there, if clusters are not ellipses?
==========================================================

A mixture finds components, which are ellipses. If each cluster is an ellipse, its components are
the clusters. If a cluster is curved, several components describe it together, because a single
ellipse would describe the density of its rows badly. ``predict(X, n_clusters="auto")`` therefore
joins components of which the rows belong to the same cluster. ``n_clusters_`` is the number of
clusters after these joins, and ``hierarchy_`` has the order of all joins.
"""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_moons
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM
from skvt.plotting import ClusterTreeDisplay, ComponentsDisplay

# %%
# Clear clusters
# --------------
#
# Does the fit find the number of clusters by itself? If each cluster is a Gaussian, it does,
# because it learns its priors from the rows. The upper pictures show the clusters found by default,
# and the lower ones those found with the priors of the published algorithm. A title has the true
# number and the number that was found.

published = dict.fromkeys(
    ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior")
)
rng = np.random.default_rng(0)
corners = np.array([*product((0, 1), repeat=2)])
layouts = {
    "in a row": np.c_[10.0 * np.arange(8), np.zeros(8)],
    "on a grid": 8.0 * np.array([*product(range(5), repeat=2)]),
    "at two scales": (100.0 * corners[:, None] + 8.0 * corners).reshape(-1, 2),
}
fig, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
for column, (name, centres) in zip(axes.T, layouts.items(), strict=True):
    rows = np.repeat(centres, 150, axis=0)
    rows = rows + rng.standard_normal(rows.shape)
    for place, priors in zip(column, ({}, published), strict=True):
        found = MemoizedDPGMM(random_state=0, **priors).fit(rows)
        place.scatter(*rows.T, c=found.predict(rows), cmap="tab20", s=3)
        which = "published priors" if priors else "default"
        place.set_title(f"{len(centres)} {name}, {which}: {found.n_components_}")

# %%
# By default all numbers are right. With the published priors, too few components are found, because
# these priors expect that each component has the covariance of all rows. Clusters that are much
# smaller than the whole are then improbable.
#
# Clusters of any shape
# ---------------------
#
# Two half moons are not ellipses. How many components do they need, and which of these belong
# together?

X, y = make_moons(1000, noise=0.08, random_state=0)
mixture = MemoizedDPGMM(random_state=0).fit(X)
print(f"{mixture.n_components_} components, {mixture.n_clusters_} clusters")

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), num="moons", layout="constrained")
for axes, n_clusters in ((left, None), (right, "auto")):
    labels = mixture.predict(X, n_clusters)
    axes.scatter(*X.T, c=labels, cmap="tab10", s=4, vmin=0, vmax=9)
    index = adjusted_rand_score(y, labels)
    axes.set_title(f"n_clusters={n_clusters!r}: adjusted Rand index {index:.2f}")
ComponentsDisplay.from_estimator(mixture, ax=left)

# %%
# Ten components describe the moons, five for each. If the components were the clusters (left), they
# would agree badly with the moons, with an adjusted Rand index of .21. With ``n_clusters="auto"``
# (right), components are joined to two clusters, which are exactly the moons.
#
# Why does joining stop at two clusters? The tree shows each join at the height of what all joins up
# to it have lost. Along a moon the rows are about equally dense, so that no valley of the density
# separates its components, and they are joined first. The last join would lose far more, because a
# valley separates the two moons.

ClusterTreeDisplay.from_estimator(mixture)
print(mixture.n_clusters_reason_, mixture.hierarchy_criteria_)

# %%
# The printed criteria say how each join was chosen: the first eight because no valley separates the
# two clusters, and the last one, which "auto" does not make, by the evidence that it loses.
#
# Clusters that have several forms
# --------------------------------
#
# Are there ten clusters of ten handwritten digits? People write some digits in several ways, so
# that there are more clusters than digits. You can nevertheless ask for ten clusters.

digits = load_digits()
pca = PCA(10, random_state=0)
rows = pca.fit_transform(digits.data)
kinds = MemoizedDPGMM(random_state=0).fit(rows)
for n_clusters in (None, "auto", 10):
    labels = kinds.predict(rows, n_clusters)
    index = adjusted_rand_score(digits.target, labels)
    print(f"n_clusters={n_clusters!r}: {len(set(labels))} clusters, index {index:.2f}")
ClusterTreeDisplay.from_estimator(kinds)

# %%
# The fit finds 34 components, and "auto" joins them to 18 clusters. The index with the true digits
# rises from .51 to .81, because components of the same digit are joined. If you ask for ten
# clusters, the most similar clusters are joined. The index falls to .79, because some of these
# clusters are forms of different digits.
#
# Which components did "auto" join? Each line below is a cluster of several components, and each
# picture is the mean of a component, with its number and its weight. The components of most lines
# are forms of one digit.

clusters = kinds.component_clusters()
several = [c for c in range(kinds.n_clusters_) if np.sum(clusters == c) > 1]
means = pca.inverse_transform(kinds.means_).reshape(-1, 8, 8)
most = max(np.sum(clusters == c) for c in several)
fig, axes = plt.subplots(
    len(several), most, figsize=(1.6 * most, 1.6 * len(several)), squeeze=False,
    layout="constrained",
)  # fmt: skip
for line, c in zip(axes, several, strict=True):
    for place in line:
        place.set_axis_off()
    for place, k in zip(line, np.flatnonzero(clusters == c), strict=False):
        place.imshow(means[k], cmap="gray_r")
        place.set_title(f"{k}: {kinds.weights_[k]:.2f}", fontsize=8)
plt.show()
