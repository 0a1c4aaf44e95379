"""Given and learned priors of MemoizedDPGMM on tables of scikit-learn and on small clusters.

    python benchmarks/learned_priors.py [TABLE ...]

Six splits and seeds each: rows of the test half are judged by the predictive density. One line for
each table and prior: medians of held-out nats a row, components, ARI of the training rows, bound of
the training rows in nats, CPU seconds; and how often the held-out density is above that of the
default prior.
"""

import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skvt import MemoizedDPGMM

SEEDS = range(6)
SCALE = {"covariance_prior": "auto"}
MEANS = SCALE | {"mean_precision_prior": "auto"}
FREEDOM = MEANS | {"degrees_of_freedom_prior": "auto"}
ALL = FREEDOM | {"mean_prior": "auto", "weight_concentration_prior": "auto"}
PRIORS = {"default": {}, "covariance": SCALE, "and kappa": MEANS, "and nu": FREEDOM, "all": ALL}


def standardised(load):
    """Rows with columns of mean 0 and variance 1, and labels."""
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def digits():
    """Twenty principal components of the digits, and labels."""
    X, y = load_digits(return_X_y=True)
    return PCA(20, random_state=0).fit_transform(X), y


def small_clusters():
    """Forty clusters in 4 dimensions, a hundredth of the table wide."""
    rng = np.random.default_rng(0)
    means, y = rng.uniform(-1.0, 1.0, (40, 4)), rng.integers(40, size=4000)
    scales = rng.uniform(0.005, 0.02, 40)
    return means[y] + scales[y, None] * rng.standard_normal((4000, 4)), y


TABLES = {
    "wine": (lambda: standardised(load_wine), "full"),
    "wine, raw": (lambda: load_wine(return_X_y=True), "full"),
    "wine, diag": (lambda: standardised(load_wine), "diag"),
    "breast cancer": (lambda: standardised(load_breast_cancer), "full"),
    "breast cancer, raw": (lambda: load_breast_cancer(return_X_y=True), "full"),
    "breast cancer, diag": (lambda: standardised(load_breast_cancer), "diag"),
    "digits": (digits, "full"),
    "digits, diag": (digits, "diag"),
    "small clusters": (small_clusters, "full"),
    "small clusters, diag": (small_clusters, "diag"),
}


def judge(X, y, covariance_type, prior, seed):
    """Held-out nats a row, components, ARI, bound, CPU seconds."""
    train, test, labels, _ = train_test_split(X, y, test_size=0.5, random_state=seed)
    began = time.process_time()
    mixture = MemoizedDPGMM(covariance_type=covariance_type, random_state=seed, **prior)
    mixture.fit(train)
    seconds = time.process_time() - began
    ari = adjusted_rand_score(labels, mixture.predict(train))
    return mixture.score(test), mixture.n_components_, ari, mixture.elbo_, seconds


def main(names):
    """Print the table."""
    warnings.simplefilter("ignore")
    print("table                 prior        held-out   K      ARI    bound        s  better")
    for name in names or TABLES:
        load, covariance_type = TABLES[name]
        X, y = load()
        base = None
        for title, prior in PRIORS.items():
            rows = np.array([judge(X, y, covariance_type, prior, seed) for seed in SEEDS])
            base = rows[:, 0] if base is None else base
            held, K, ari, bound, seconds = np.median(rows, axis=0)
            better = f"{(rows[:, 0] > base).sum()}, least {(rows[:, 0] - base).min():+.2f}"
            print(
                f"{name:21s} {title:11s} {held:9.3f} {K:6.1f} {ari:6.3f} {bound:11.1f} "
                f"{seconds:6.1f}  {better}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
