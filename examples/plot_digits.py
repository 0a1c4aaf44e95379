"""
How many ways are there to write ten digits?
============================================

There are more than ten, because people write some digits in several ways. A Dirichlet process
mixture of Gaussians finds them in scikit-learn's 8 x 8 digits, projected by PCA. The fit starts
from one component, and stops when no birth raises the evidence lower bound any more. The classes
are not given to the fit. To compare the result with them, each component is assigned to the class
of most of its digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM
from skvt.metrics import cluster_alignment
from skvt.plotting import ComponentsDisplay, ELBODisplay, MovesDisplay

digits = load_digits()
pca = PCA(16, random_state=0)
X = pca.fit_transform(digits.data)

mixture = MemoizedDPGMM(random_state=0)
labels = mixture.fit_predict(X)
accuracy, classes = cluster_alignment(digits.target, labels)
print(f"{mixture.n_components_} components, ELBO {mixture.elbo_:,.0f} nats")
print(f"alignment accuracy {accuracy:.3f}, adjusted Rand index "
      f"{adjusted_rand_score(digits.target, labels):.3f}")  # fmt: skip

# %%
# There are 41 components. The accuracy is the share of digits whose component belongs to their
# class, .96. The adjusted Rand index is only .48, because a class has about four components.
#
# **What do the components look like?** The pictures show the means as images, the largest component
# first. A title has the class of the component and its weight.

means = pca.inverse_transform(mixture.means_).reshape(-1, 8, 8)
titles = [f"{classes.get(k, '-')}: {weight:.3f}" for k, weight in enumerate(mixture.weights_)]
ComponentsDisplay(means).plot(titles=titles, image_kw={"cmap": "gray_r"})

# %%
# **Which digits are confused, and how did the fit get there?** The table on the left has the number
# of images of each digit in each component. The other pictures show how the bound and the number of
# components rose during the fit.

table = np.zeros((10, len(means)))
np.add.at(table, (digits.target, labels), 1)
fig, (left, bound, moves) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
order = np.argsort([classes.get(k, 10) for k in range(len(means))], kind="stable")
image = left.imshow(table[:, order], cmap="Blues", aspect="auto")
left.set(xlabel="component, sorted by its class", ylabel="digit", yticks=range(10))
fig.colorbar(image, ax=left, label="images")
ELBODisplay.from_estimator(mixture, ax=bound)
MovesDisplay.from_estimator(mixture, ax=moves)
plt.show()
