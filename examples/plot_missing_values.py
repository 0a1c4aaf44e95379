"""
=============================================================
Should missing values be filled in before a model is fitted?
=============================================================

.. index:: ! missing values, ! nan

No: :class:`~skvt.MemoizedDPGMM` can be fitted to a table with missing values, and describes new
rows better than if the values are filled in first. It treats each missing value as unknown, with a
distribution under each component, and averages over this distribution. The example removes a
growing share of the values of ten correlated columns at random. It then compares the density of
complete rows that were held out, and the errors of imputed values, with those of scikit-learn's
imputers.
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
# Each line of the output has the results for 0, 20 and 40 % of missing values: first the densities
# of held-out rows, in nats per row, where higher is better, then the errors of imputed values,
# without 0 %, where lower is better.
for share in SHARES:
    holes = np.random.default_rng(1).random(train.shape) < share
    holes[holes.all(axis=1), 0] = False
    held = np.where(holes, np.nan, train)
    full = MemoizedDPGMM(random_state=0).fit(held)
    diag = MemoizedDPGMM(covariance_type="diag", random_state=0).fit(held)
    filled = SimpleImputer().fit_transform(held)
    note(scores, "full", full.score(test))
    note(scores, '"diag"', diag.score(test))
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
# With 40 % of the values missing, the fit to the table as it is ("full") loses only .7 nats per
# row. If means are filled in first, it loses 9 nats, because filled-in means pull correlations
# towards zero. Diagonal covariances ("diag") have no correlations, so that they describe correlated
# columns badly from the start. Imputed values are nearest to the true ones by ``MemoizedDPGMM``,
# followed by ``IterativeImputer``.
#
# The pictures show the same numbers. The columns are standardised, so that the mean of a column has
# an error of about 1.
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, values in scores.items():
    left.plot(SHARES, values, "o-", label=name)
left.set(xlabel="share missing", ylabel="nats per held-out row", title="Density of complete rows")
left.legend()
for name, values in errors.items():
    right.plot(SHARES[1:], values, "o-", label=name)
right.set(xlabel="share missing", ylabel="root mean squared error", title="Imputed values")
right.legend()
plt.show()
