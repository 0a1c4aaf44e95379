"""
================================
Missing values, integrated out
================================

.. index:: ! missing values, ! nan

A table with holes can be filled in first and modelled then, or modelled as it is.
:class:`~skvt.MemoizedDPGMM` does the latter: what is missing of a row is one more hidden variable,
with a distribution under each component. A growing share of ten correlated columns is removed at
random. On the left the density of complete rows that were held out; on the right the error of
filling the holes in, beside scikit-learn's imputers.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skvt import MemoizedDPGMM

SHARES = [0.0, 0.2, 0.4]

X = StandardScaler().fit_transform(np.log1p(load_breast_cancer().data[:, :10]))
train, test = train_test_split(X, test_size=0.3, random_state=0)
scores: dict[str, list[float]] = {}
errors: dict[str, list[float]] = {}


def note(results, name, value):
    """Append a result under a name."""
    results.setdefault(name, []).append(value)


# %%
# Means in the place of missing values pull correlations towards zero, and "diag" has none: both
# lose density. With full covariances each hole is as uncertain as the other columns leave it.
for share in SHARES:
    holes = np.random.default_rng(1).random(train.shape) < share
    holes[holes.all(axis=1), 0] = False
    held = np.where(holes, np.nan, train)
    full = MemoizedDPGMM(random_state=0).fit(held)
    diag = MemoizedDPGMM(covariance_type="diag", random_state=0).fit(held)
    filled = SimpleImputer().fit_transform(held)
    note(scores, "full, holes integrated out", full.score(test))
    note(scores, '"diag", holes integrated out', diag.score(test))
    note(scores, "full, means filled in", MemoizedDPGMM(random_state=0).fit(filled).score(test))
    if share == 0.0:
        continue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        imputed = {
            "MemoizedDPGMM": full.impute(held),
            "IterativeImputer": IterativeImputer(random_state=0).fit_transform(held),
            "KNNImputer": KNNImputer().fit_transform(held),
            "mean": filled,
        }
    for name, rows in imputed.items():
        note(errors, name, np.sqrt(np.mean((rows - train)[holes] ** 2)))

for name, values in (scores | errors).items():
    print(f"{name:30s}", *(f"{value:7.3f}" for value in values))

# %%
# The columns are standardised: an error of 1 is that of the mean.
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, values in scores.items():
    left.plot(SHARES, values, "o-", label=name)
left.set(xlabel="share missing", ylabel="nats per held-out row", title="Density of complete rows")
left.legend()
for name, values in errors.items():
    right.plot(SHARES[1:], values, "o-", label=name)
right.set(xlabel="share missing", ylabel="root mean squared error", title="Holes filled in")
right.legend()
plt.show()
