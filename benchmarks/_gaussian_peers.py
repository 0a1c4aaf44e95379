"""Gaussian mixtures of other libraries, the number of components by the best BIC."""

import shutil
import subprocess
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


@dataclass
class Mclust:
    """What Mclust of R has found."""

    model: str  # "VVV" and the like, by BIC among all 14
    number: int
    labels: np.ndarray
    log_density: np.ndarray | None  # of the rows of ``test``
    cpu: float  # seconds of Mclust itself, without the start of R


# Where one of the models fails, Mclust ends: the others are then fitted one by one.
MCLUST = """
suppressMessages(library(mclust))
X <- as.matrix(read.csv("X.csv", header = FALSE))
fit <- function(...) Mclust(X, G = 1:{most}, verbose = FALSE, prior = {prior}, ...)
one_by_one <- function(error) {{
  one <- function(name) tryCatch(fit(modelNames = name), error = function(error) NULL)
  fits <- Filter(Negate(is.null), lapply(mclust.options("emModelNames"), one))
  fits[[which.max(sapply(fits, function(m) m$bic))]]
}}
used <- system.time(m <- tryCatch(fit(), error = one_by_one))
write.table(m$classification, "labels.csv", row.names = FALSE, col.names = FALSE)
write.table(c(m$modelName, m$G, used[["user.self"]] + used[["sys.self"]]), "found.csv",
            row.names = FALSE, col.names = FALSE, quote = FALSE)
if (file.exists("test.csv")) {{
  test <- as.matrix(read.csv("test.csv", header = FALSE))
  density <- dens(test, modelName = m$modelName, parameters = m$parameters, logarithm = TRUE)
  write.table(format(density, digits = 17), "density.csv", row.names = FALSE, col.names = FALSE,
              quote = FALSE)
}}
"""


def mclust(X, most, *, test=None, prior=False):
    """Mclust with the best of its models by BIC; ``prior`` adds its conjugate prior."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        np.savetxt(folder / "X.csv", X, delimiter=",")
        if test is not None:
            np.savetxt(folder / "test.csv", test, delimiter=",")
        code = MCLUST.format(most=most, prior="priorControl()" if prior else "NULL")
        done = subprocess.run(["Rscript", "-e", code], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"mclust failed: {done.stderr.strip()}")
        model, number, cpu = (folder / "found.csv").read_text().split()
        density = None if test is None else np.loadtxt(folder / "density.csv", ndmin=1)
        labels = np.loadtxt(folder / "labels.csv", ndmin=1).astype(int)
    return Mclust(model, int(number), labels, density, float(cpu))


@cache
def has_mclust():
    """Whether Rscript is there and has mclust."""
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(mclust)"], capture_output=True).returncode == 0
