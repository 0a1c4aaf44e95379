"""The same answer on every processor: number of components, bound and score under several kernels.

OpenBLAS has kernels for each kind of processor, which add up products in different orders, and
Numba compiles for the processor at hand. Here every estimator is fitted to five data sets in one
process for each kernel, with the same seeds; differences are those of rounding, and of what a fit
makes of them on its way. A fifth of the rows is held out. Kernels under which NumPy itself fails on
this machine are left out with a message.
"""

import json
import os
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
from _common import parser, print_header, print_table, progress
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

import skvt
from skvt.datasets import (
    DOCSTRING_STOP_WORDS,
    load_docstrings,
    make_bernoulli_mixture,
    make_edge_patches,
    make_shapes,
    make_spectrogram,
    make_topic_corpus,
)

KERNELS = {
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "Sandybridge": {"OPENBLAS_CORETYPE": "Sandybridge"},
    "generic": {"NUMBA_CPU_NAME": "generic"},
}
PRODUCT = "import numpy as np; a = np.arange(9e4).reshape(300, 300); np.linalg.eigvalsh(a.T @ a)"


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    p.add_argument("--estimators", nargs="+", choices=list(ESTIMATORS), default=list(ESTIMATORS))
    p.add_argument("--quick", action="store_true", help="two data sets each")
    p.add_argument("--worker", action="store_true", help="fit under the present kernel; for itself")
    return p.parse_args()


# ------------------------------------------------------------------------------------------ data
def standardised(load):
    return StandardScaler().fit_transform(load().data)


def mirror_images():
    """Eight clusters of equally many rows, each the mirror image of the others."""
    signs = np.array([[a, b, c] for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)])
    offsets = np.random.default_rng(0).normal(size=(15, 1, 3))
    cluster = (offsets * signs).reshape(-1, 3)
    return np.concatenate([6.0 * corner + cluster for corner in signs])


@cache
def docstrings():
    counts = CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=20, max_df=0.3)
    return counts.fit_transform(load_docstrings().data[:1500]).astype(float)


DATA = {
    "iris": lambda: standardised(load_iris),
    "wine": lambda: standardised(load_wine),
    "breast cancer": lambda: standardised(load_breast_cancer),
    "digits": lambda: load_digits().data,
    "mirror images": mirror_images,
    "edge patches": lambda: make_edge_patches(2000, random_state=0).X,
    "shapes": lambda: make_shapes(1000, random_state=0).X,
    "docstrings": docstrings,
    "20 topics": lambda: make_topic_corpus(1000, random_state=0).X,
    "5 topics": lambda: make_topic_corpus(500, n_components=5, n_features=300, random_state=0).X,
    "binary rows": lambda: make_bernoulli_mixture(random_state=0).X,
    "20 clusters": lambda: make_bernoulli_mixture(n_components=20, random_state=1).X,
    "binary digits": lambda: (load_digits().data > 7.0).astype(float),
    "words present": lambda: (docstrings() > 0).astype(float).toarray()[:, :200],
    "above the median": lambda: (
        standardised(load_breast_cancer) > np.median(standardised(load_breast_cancer), axis=0)
    ).astype(float),
    "10 sounds": lambda: make_spectrogram(300, n_components=10, random_state=0).X,
    "20 sounds": lambda: make_spectrogram(400, n_components=20, random_state=1).X,
}

GAUSSIAN = ("iris", "wine", "breast cancer", "digits", "mirror images")
TEXTS = ("docstrings", "20 topics", "5 topics", "digits", "binary rows")
ESTIMATORS = {
    "TemperedLDA": (lambda: skvt.TemperedLDA(20, max_iter=20), TEXTS),
    "StructuredLDA": (lambda: skvt.StructuredLDA(20, max_iter=10), TEXTS),
    "MemoizedDPGMM": (skvt.MemoizedDPGMM, GAUSSIAN),
    "StructuredBernoulliMixture": (
        lambda: skvt.StructuredBernoulliMixture(30, max_iter=100),
        ("binary rows", "20 clusters", "binary digits", "words present", "above the median"),
    ),
    "StructuredGaPNMF": (
        lambda: skvt.StructuredGaPNMF(30, max_iter=20),
        ("10 sounds", "20 sounds", "digits", "5 topics", "docstrings"),
    ),
    "AnnealedFactorialMixture": (
        lambda: skvt.AnnealedFactorialMixture(8, max_iter=50),
        ("shapes", "edge patches", "wine", "breast cancer", "digits"),
    ),
    "CAVIGaussianMixture": (lambda: skvt.CAVIGaussianMixture(8), GAUSSIAN),
}


def split(X):
    """Rows to learn from, and every fifth of a permutation, held out."""
    rows = np.random.default_rng(0).permutation(X.shape[0])
    return X[rows[rows.size // 5 :]], X[rows[: rows.size // 5]]


def worker(args):
    """Fit everything under the kernel that the environment says; a line of JSON for each fit."""
    names = {i["architecture"] for i in threadpool_info() if i.get("internal_api") == "openblas"}
    print(json.dumps({"architecture": sorted(names)}), flush=True)
    warnings.simplefilter("ignore")
    for name in args.estimators:
        make, data = ESTIMATORS[name]
        for what in data[: 2 if args.quick else None]:
            train, test = split(DATA[what]())
            fitted = make().set_params(random_state=0).fit(train)
            found = next(
                int(getattr(fitted, attribute))
                for attribute in ("n_active_components_", "n_components_", "n_components")
                if hasattr(fitted, attribute)
            )
            answer = {"K": found, "bound": fitted.elbo_, "score": fitted.score(test)}
            answer |= {"passes": fitted.n_iter_}
            print(json.dumps({"fit": [name, what], **answer}), flush=True)


# --------------------------------------------------------------------------------------- parent
def run(kernel, args):
    """(estimator, data) -> answers under a kernel; None where NumPy fails under it."""
    environment = os.environ | KERNELS[kernel]
    probe = subprocess.run([sys.executable, "-c", PRODUCT], env=environment, capture_output=True)
    if probe.returncode != 0:
        print(f"{kernel}: NumPy itself fails under it here (code {probe.returncode}); left out.")
        return None
    command = [sys.executable, __file__, "--worker", "--estimators", *args.estimators]
    command += ["--quick"] * args.quick
    answers = {}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            answer = json.loads(line)
            if "fit" in answer:
                answers[tuple(answer.pop("fit"))] = answer
                progress(kernel, *list(answers)[-1])
            else:
                print(f"{kernel}: OpenBLAS runs kernels {', '.join(answer['architecture'])}")
    if process.returncode != 0:
        raise SystemExit(f"Fits under {kernel} kernels ended with code {process.returncode}.")
    return answers


def spread_of(values):
    """Largest relative difference."""
    values = np.array(values)
    return np.ptp(values) / np.abs(values).max()


def main(args):
    print_header()
    kernels = {kernel: run(kernel, args) for kernel in args.kernels}
    kernels = {kernel: answers for kernel, answers in kernels.items() if answers is not None}
    rows = []
    for fit in next(iter(kernels.values())):
        of = {key: [answers[fit][key] for answers in kernels.values()] for key in ("K", "passes")}
        of |= {key: [a[fit][key] for a in kernels.values()] for key in ("bound", "score")}
        same = [
            "/".join(map(str, v if len(set(v)) > 1 else v[:1])) for v in (of["K"], of["passes"])
        ]
        rows.append(
            (*fit, *same, f"{of['bound'][0]:.3f}", f"{spread_of(of['bound']):.0e}",
             f"{of['score'][0]:.4f}", f"{spread_of(of['score']):.0e}")
        )  # fmt: skip
    print_table(
        f"Fits under {len(kernels)} kernels: {', '.join(kernels)}. K and passes under each where "
        "they differ; bound and held-out score under the first, and largest relative differences",
        ("estimator", "data", "K", "passes", "bound", "differs", "score", "differs"),
        rows,
    )


if __name__ == "__main__":
    given = arguments()
    (worker if given.worker else main)(given)
