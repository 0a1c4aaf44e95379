"""
Tutorial: which kinds of cells are there, and which genes mark them?
====================================================================

.. index:: ! scanpy, ! single cells, ! genes

A table has the counts of genes in cells. :class:`~skvt.MemoizedDPMixture` finds the kinds of cells
and the genes that mark each kind, and :class:`~skvt.MemoizedHDP` finds programs of genes that are
active together. The counts of this tutorial are drawn for six kinds of cells, so that the answers
can be checked.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.io import mmread, mmwrite
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPMixture, MemoizedHDP, top_words
from skvt.components import NegativeBinomial

# %%
# The files
# ---------
#
# The files are like those of a 10x experiment: a sparse matrix with a row for each gene and a
# column for each cell, and the names of the genes. You already have your files; this code makes
# some for the tutorial.

rng = np.random.default_rng(0)
n_cells, n_genes, n_kinds = 500, 150, 6
kind = rng.integers(n_kinds, size=n_cells)
rates = rng.gamma(0.3, 1.0, size=n_genes) * np.ones((n_kinds, 1))
for k in range(n_kinds):
    rates[k, 20 * k : 20 * (k + 1)] += 2.0  # These genes mark the kind.
depths = rng.lognormal(0.0, 0.5, size=(n_cells, 1))
counts = rng.poisson(depths * rates[kind] * rng.gamma(3.0, 1.0 / 3.0, size=(n_cells, n_genes)))
folder = Path(tempfile.mkdtemp())
mmwrite(folder / "matrix.mtx", sparse.coo_array(counts.T))
pd.Series([f"gene {j}" for j in range(n_genes)]).to_csv(
    folder / "features.tsv", header=False, index=False
)

# %%
# Read
# ----
#
# Estimators expect a row for each cell, so the matrix is transposed. With an `AnnData
# <https://anndata.readthedocs.io>`_, write ``X, genes = adata.X, adata.var_names`` instead of these
# lines. Pass counts, not their logarithms.

X = sparse.csr_array(mmread(folder / "matrix.mtx").T)
genes = pd.read_csv(folder / "features.tsv", header=None)[0].to_numpy()

# %%
# Clusters of cells, and the genes that mark them
# -----------------------------------------------
#
# Which likelihood suits counts of genes? Such counts vary more than Poisson counts, and they are
# proportional to the depth of a cell, which is its total count. So use negative binomials with the
# total of the row as the exposure. The fit estimates the number of components, and joins components
# that overlap to clusters, ``n_clusters="auto"``: a batch may divide a kind into two components.

counts = NegativeBinomial(exposure="row_total")
mixture = MemoizedDPMixture(components=counts, random_state=0).fit(X).set_words(genes)
clusters = mixture.predict(X, n_clusters="auto")
print(f"{mixture.n_clusters_} clusters; adjusted Rand index with the kinds of cells "
      f"{adjusted_rand_score(kind, clusters):.2f}")  # fmt: skip
relevance = mixture.column_relevance("auto")
markers = pd.DataFrame({str(k): row.nlargest(5).index for k, row in relevance.iterrows()})
print(markers.T.to_string(header=False))

# %%
# The six clusters are the six kinds of cells. Each line has the number of a cluster and the genes
# that set it apart most. Genes 0 to 19 mark the first kind, genes 20 to 39 the second one, and so
# on, so that all genes of a line should be from the same twenty.
#
# Programs of genes
# -----------------
#
# Can a cell be of several kinds at once? In a topic model it can: cells are the documents, genes
# are the words, and a topic is a program of genes that are active together. Each line has a program
# and its most relevant genes.

hdp = MemoizedHDP(random_state=0).fit(X)
programs = hdp.transform(X)
for k, names in enumerate(top_words(hdp, 5, genes, by="relevance")):
    print(k, *names, sep=", ")

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
order = np.argsort(clusters, kind="stable")
image = ax.imshow(programs[order].T, aspect="auto", interpolation="none", cmap="Blues")
edges = np.flatnonzero(np.diff(clusters[order])) + 0.5
ax.vlines(edges, -0.5, programs.shape[1] - 0.5, color="0.3", lw=0.7)
ax.set(xlabel="cells, by cluster", ylabel="program", yticks=range(programs.shape[1]))
fig.colorbar(image, label="share of a cell's counts")
plt.show()

# %%
# Six of the nine programs have the genes of one kind of cell. The first three have genes that are
# active in all kinds. In the picture, cells are sorted by cluster, with lines between the clusters,
# and a darker colour is a larger share of the counts of a cell. Each cluster has a program that is
# active in its cells only. In larger tables the fit may find dozens of programs, because a topic
# model does not expect that reads vary so much; then set their number by
# ``StructuredLDA(n_components=10)``.
#
# To use the results in scanpy, write them into the AnnData:
#
# .. code-block:: python
#
#    adata.obs["cluster"] = pd.Categorical(clusters.astype(str))
#    adata.obsm["X_programs"] = programs
#    adata.uns["markers"] = markers
