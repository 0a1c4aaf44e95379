"""
Density and clusters are two questions
======================================

A mixture of Gaussians describes a density: a cluster that is not a Gaussian takes several of its
components, and that is right for the density. To count clusters as people do, components are joined
where no valley separates them or where rows do not tell them apart, and then those that are least
distinct. ``hierarchy_`` says in which order, ``n_clusters_`` how far.
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
# Where each cluster is a Gaussian, components are clusters, and a fit from one component finds how
# many there are. It does so because its priors learn. The published prior expects of each component
# the covariance of all rows, which forbids clusters that are small beside the whole.

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
# Clusters of any shape
# ---------------------

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
# The tree: each join at the height of what is lost by then. First joins are of components without a
# valley between them: along a moon, rows are about as dense everywhere. A valley separates the two
# moons, and no row is in doubt: the last join is by the evidence, and loses far more.

ClusterTreeDisplay.from_estimator(mixture)
print(mixture.n_clusters_reason_, mixture.hierarchy_criteria_)

# %%
# Of ten digits there are more than ten kinds. Joining stops where rows tell the kinds apart, even
# though people call several of them by the same name. What is joined beyond, down to ten, loses the
# least evidence: the kinds that are most alike.

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
# The mean of each component, one line for each cluster that is made of several.

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
