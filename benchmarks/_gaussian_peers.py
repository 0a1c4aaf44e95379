"""Gaussian mixtures of other libraries, the number of components by the best BIC."""

import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

SHAPES = ("full", "tied", "diag", "spherical")


def gaussian_grid(X, most, *, shapes=SHAPES, **params):
    """The GaussianMixture of 1 to ``most`` components and of ``shapes`` with the lowest BIC."""
    best = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for shape in shapes:
            for k in range(1, min(most, len(X)) + 1):
                mixture = GaussianMixture(k, covariance_type=shape, **params).fit(X)
                bic = mixture.bic(X)
                if best is None or bic < best[0]:
                    best = bic, mixture
    return best[1]


class Mclust(NamedTuple):
    """What Mclust of R has found, with the best of its 14 models by BIC."""

    number: int
    labels: np.ndarray
    cpu: float  # seconds of Mclust itself, without the start of R


# Where one of the models fails, Mclust ends: the others are then fitted one by one.
MCLUST = """
suppressMessages(library(mclust))
X <- as.matrix(read.csv("X.csv", header = FALSE))
fit <- function(...) Mclust(X, G = 1:{most}, verbose = FALSE, ...)
one_by_one <- function(error) {{
  one <- function(name) tryCatch(fit(modelNames = name), error = function(error) NULL)
  fits <- Filter(Negate(is.null), lapply(mclust.options("emModelNames"), one))
  fits[[which.max(sapply(fits, function(m) m$bic))]]
}}
used <- system.time(m <- tryCatch(fit(), error = one_by_one))
write.table(m$classification, "labels.csv", row.names = FALSE, col.names = FALSE)
cat(m$G, used[["user.self"]] + used[["sys.self"]])
"""


def mclust(X, most):
    """Mclust with the best of its models by BIC."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder) / "X.csv", X, delimiter=",")
        command = ["Rscript", "-e", MCLUST.format(most=most)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"mclust failed: {done.stderr.strip()}")
        number, cpu = done.stdout.split()
        labels = np.loadtxt(Path(folder) / "labels.csv", ndmin=1).astype(int)
    return Mclust(int(number), labels, float(cpu))


@cache
def has_mclust():
    """Whether Rscript is there and has mclust."""
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(mclust)"], capture_output=True).returncode == 0
