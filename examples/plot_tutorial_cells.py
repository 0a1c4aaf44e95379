"""
Tutorial: cells and genes
=========================

.. index:: ! scanpy, ! single cells, ! genes

From the counts of a single-cell experiment, cells x genes, to clusters of cells, the genes that
mark them, and programs of genes that are active together. The counts are made up: six kinds of
cells.
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
# As those of a 10x experiment: a sparse matrix of genes x cells, and the names. (Yours are there
# already; this makes some.)

rng = np.random.default_rng(0)
n_cells, n_genes, n_kinds = 500, 150, 6
kind = rng.integers(n_kinds, size=n_cells)
rates = rng.gamma(0.3, 1.0, size=n_genes) * np.ones((n_kinds, 1))
for k in range(n_kinds):
    rates[k, 20 * k : 20 * (k + 1)] += 2.0  # the genes that mark this kind
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
# Cells are rows here. With `AnnData <https://anndata.readthedocs.io>`_ these lines are
# ``X, genes = adata.X, adata.var_names``: estimators take the matrix of counts, not the object, and
# not its logarithms.

X = sparse.csr_array(mmread(folder / "matrix.mtx").T)
genes = pd.read_csv(folder / "features.tsv", header=None)[0].to_numpy()

# %%
# Clusters of cells, and the genes that mark them
# -----------------------------------------------
#
# Counts of cells spread more than a Poisson's and are in proportion to the depth at which a cell
# was read: negative binomials with the row's total as exposure. How many clusters there are is
# found.

counts = NegativeBinomial(exposure="row_total")
mixture = MemoizedDPMixture(components=counts, random_state=0).fit(X)
print(f"{mixture.n_components_} clusters; adjusted Rand index with the kinds of cells "
      f"{adjusted_rand_score(kind, mixture.labels_):.2f}")  # fmt: skip
markers = pd.DataFrame(
    {k: genes[np.argsort(-relevance)[:5]] for k, relevance in enumerate(mixture.column_relevance_)}
)
print(markers.T.to_string(header=False))

# %%
# Programs of genes
# -----------------
#
# A cell may be several things at once. Topic models take cells for documents and genes for words.

hdp = MemoizedHDP(random_state=0).fit(X)
programs = hdp.transform(X)
for k, names in enumerate(top_words(hdp, 5, genes, by="relevance")):
    print(k, *names, sep=", ")

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
order = np.argsort(mixture.labels_, kind="stable")
image = ax.imshow(programs[order].T, aspect="auto", interpolation="none", cmap="Blues")
edges = np.flatnonzero(np.diff(mixture.labels_[order])) + 0.5
ax.vlines(edges, -0.5, programs.shape[1] - 0.5, color="0.3", lw=0.7)
ax.set(xlabel="cells, by cluster", ylabel="program", yticks=range(programs.shape[1]))
fig.colorbar(image, label="share of a cell's counts")
plt.show()

# %%
# Back into the AnnData, where scanpy finds them:
#
# .. code-block:: python
#
#    adata.obs["cluster"] = pd.Categorical(mixture.labels_.astype(str))
#    adata.obsm["X_programs"] = programs
#    adata.uns["markers"] = markers
