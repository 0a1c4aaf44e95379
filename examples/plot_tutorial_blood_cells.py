"""
Tutorial: which kinds of cells are in an AnnData?
=================================================

.. index:: ! AnnData, ! obs, ! markers of cells

Which kinds of white blood cells were sequenced, which genes mark each kind, and how does the answer
get back into the file? The package ``scanpy`` contains 700 of the 68,000 cells of Zheng et al.
(2017) as an AnnData. The names that its authors gave to the cells are hidden from the fit, so that
the answer can be checked. The tutorial ends with an ``.h5ad`` file and a page to hand on.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPMixture, cluster_report
from skvt.components import NegativeBinomial
from skvt.plotting import ProfilesDisplay

cells = sc.datasets.pbmc68k_reduced()
print(cells)

# %%
# **Get the counts.** Mixtures of counts take counts, not logarithms. Your file may have them in
# ``adata.X`` or ``adata.layers["counts"]``. This one has logarithms of counts that were divided by
# each cell's total, so that the smallest value of a cell is that of one read, and the counts can be
# recovered. A cell's depth is its total over all genes, in thousands of reads; it is computed
# before genes are selected.

scaled = np.expm1(cells.raw.X.toarray())
one_read = np.where(scaled > 0, scaled, np.inf).min(axis=1, keepdims=True)
reads = pd.DataFrame(np.round(scaled / one_read), cells.obs_names, cells.raw.var_names)
depth = reads.sum(axis=1).rename("depth") / 1000

# %%
# **Choose genes.** A fit of all 765 genes takes minutes; the 80 genes that vary most between cells
# are enough to find the kinds of cells, and take about twenty seconds. This file says how much each
# gene varies. For a file of counts, compute it in a copy, because the fit needs the counts::
#
#     scaled = cells.copy()
#     sc.pp.normalize_total(scaled)
#     sc.pp.log1p(scaled)
#     sc.pp.highly_variable_genes(scaled)
#     varying = scaled.var["dispersions_norm"].nlargest(80).index

varying = cells.var["dispersions_norm"].nlargest(80).index
table = reads[varying].join(depth)

# %%
# **Fit.** Reads are in proportion to the depth of a cell, and spread more than a Poisson
# distribution allows: negative binomials with the depth as the exposure. Components whose rows
# overlap are joined to clusters, which are the kinds of cells. The description says how many reads
# of a gene there are among a thousand reads of a cell.

mixture = MemoizedDPMixture(components=NegativeBinomial(exposure="depth"), random_state=0)
mixture.fit(table)
print(mixture.n_components_, "components are joined to", mixture.n_clusters_, "clusters")
print(mixture.describe(form="text", n_clusters="auto"))

# %%
# **Which kinds are they?** The genes of each line are markers that textbooks name: CD79A and MS4A1
# for B cells, NKG7 and GNLY for natural killer and cytotoxic cells, C1QA for monocytes, CLEC10A for
# dendritic cells, MZB1 and TNFRSF17 for plasma cells. The clusters go into the AnnData like any
# other annotation.

cells.obs["cluster"] = pd.Categorical(mixture.predict(table, n_clusters="auto"))
chances = mixture.predict_proba(table, n_clusters="auto")
cells.obs["certainty"] = chances.max(axis=1)
print(pd.crosstab(cells.obs["bulk_labels"], cells.obs["cluster"]).to_string())
agreement = adjusted_rand_score(cells.obs["bulk_labels"], cells.obs["cluster"])
print(f"adjusted Rand index with the authors' labels: {agreement:.2f}")

# %%
# The authors' labels are not the truth either: each cell has the name of the sample of sorted cells
# to which it is most similar, and no sample was of plasma cells. So they are called B cells,
# although they have many times as many reads of IGJ, a part of antibodies:

b_cells = cells.obs["bulk_labels"] == "CD19+ B"
per_thousand = (reads["IGJ"] / depth)[b_cells].groupby(cells.obs["cluster"], observed=True)
print(per_thousand.agg(["size", "mean"]).query("size > 1").round(1).to_string())

# %%
# **A picture for the paper**, on the coordinates that the file already has, and the profiles of the
# clusters.

umap = cells.obsm["X_umap"]
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained", num="umap")
for name, place in cells.obs.groupby("cluster", observed=True).indices.items():
    ax.scatter(*umap[place].T, s=6, label=f"cluster {name}")
ax.set(xticks=[], yticks=[], xlabel="UMAP 1", ylabel="UMAP 2")
ax.legend(fontsize="small")
display = ProfilesDisplay.from_estimator(mixture, n_clusters="auto", max_columns=12)
display.figure_.set_label("profiles")
plt.show()

# %%
# **Hand on**: the AnnData with the clusters, and a page that a browser shows without a network.

folder = Path(tempfile.mkdtemp())
cells.write_h5ad(folder / "cells.h5ad")
cluster_report(mixture, table, folder / "cells.html")
for path in sorted(folder.iterdir()):
    print(path.name, f"{path.stat().st_size / 1000:.0f} kB")
