"""How many clusters does the default mixture find if the clusters are clear?

A layout draws Gaussian clusters that are far apart: in a row, at two scales, nested, elongated, in
few or many columns, with few or many rows, of very different sizes, or with missing values. The
table has, for each seed,

- the number of components found, starting from one, and the adjusted Rand index;
- the bound minus the bound of a reference fit that starts from the true labels, in nats. If it is
  below 0, the fit has missed a better optimum. If it is above 0, the bound does not prefer the true
  labels;
- with ``--rivals``, the Rand index of ``BayesianGaussianMixture`` of scikit-learn with twice the
  true number of components, of ``GaussianMixture`` by BIC, and of ``HDBSCAN``.

The last lines count the fits whose bound is at most 2 nats below the reference, and the fits that
find the true number within 5 % if the bound prefers the true labels.
"""

import warnings
from typing import NamedTuple

import numpy as np
from _common import (
    format_mean,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    timed,
)
from _mixture_peers import fit_gaussian_grid
from sklearn.cluster import HDBSCAN
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from skvt import MemoizedDPGMM

# Largest difference of two bounds, in nats, that counts as no difference.
CLOSE = 2.0


def blobs(rng, centres, size, deviations=1.0):
    """Draw rows of Gaussian clusters around centres (K, D); return rows and labels.

    ``size`` and ``deviations`` are the number of rows and the standard deviation, one for all
    clusters or one for each.
    """
    centres = np.asarray(centres, float)
    sizes = np.broadcast_to(size, len(centres))
    y = np.repeat(np.arange(len(centres)), sizes)
    scale = np.broadcast_to(np.asarray(deviations, float), (len(centres),))[y]
    return centres[y] + scale[:, None] * rng.standard_normal((len(y), centres.shape[1])), y


def distant_centres(rng, number, n_columns, min_distance, width):
    """Draw centres uniformly from a box of this width, with a minimum distance of any two."""
    centres = []
    while len(centres) < number:
        new = rng.uniform(0, width, n_columns)
        if all(np.linalg.norm(new - old) >= min_distance for old in centres):
            centres.append(new)
    return np.array(centres)


def circle(number):
    """Return evenly spaced points on the unit circle."""
    angles = 2 * np.pi * np.arange(number) / number
    return np.c_[np.cos(angles), np.sin(angles)]


def two_scales(rng):
    """Draw 16 clusters at the corners of small squares at the corners of a large square."""
    corners = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    centres = (100.0 * corners[:, None] + 8.0 * corners[None]).reshape(-1, 2)
    return blobs(rng, centres, 200)


def elongated(rng):
    """Draw six long clusters in random directions."""
    X, y = blobs(rng, distant_centres(rng, 6, 2, 25, 80), 250)
    centres = np.array([X[y == k].mean(axis=0) for k in range(6)])
    for k, angle in enumerate(rng.uniform(0, np.pi, 6)):
        # Stretch the cluster along the first axis, and rotate it.
        c, s = np.cos(angle), np.sin(angle)
        X[y == k] = centres[k] + (X[y == k] - centres[k]) * [7.0, 0.5] @ [[c, s], [-s, c]]
    return X, y


def crossing(rng):
    """Draw two long clusters that cross, and a third across one of their ends."""
    parts = [rng.standard_normal((500, 2)) * size for size in ([12, 0.5], [0.5, 12], [4, 0.4])]
    parts[2] += [0, 20]
    return np.concatenate(parts), np.repeat(np.arange(3), 500)


def unlike_units(rng):
    """Draw eight clusters in columns with very different means and scales."""
    X, y = blobs(rng, distant_centres(rng, 8, 5, 9, 25), 200)
    return X * 10.0 ** np.arange(-4, 6, 2) + 10.0 ** np.arange(5), y


def some_columns(rng):
    """Draw four clusters that differ in 2 of 20 columns."""
    X, y = blobs(
        rng, np.pad(10.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]]), ((0, 0), (0, 18))), 300
    )
    return X, y


def with_missing(rng):
    """Draw six clusters, and remove a tenth of the values."""
    X, y = blobs(rng, distant_centres(rng, 6, 8, 12, 25), 300)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def single_precision(rng):
    """Draw ten clusters in single precision."""
    X, y = blobs(rng, distant_centres(rng, 10, 6, 9, 30), 400)
    return X.astype(np.float32), y


def rings(rng):
    """Draw clusters on three rings around one centre."""
    centres = [radius * circle(n) for radius, n in ((8.0, 6), (24.0, 16), (60.0, 20))]
    return blobs(rng, np.concatenate(centres), 80)


def correlated(rng):
    """Draw six clusters with a common covariance of correlated columns."""
    X, y = blobs(rng, distant_centres(rng, 6, 10, 12, 25), 250)
    return X @ rng.standard_normal((10, 10)), y


# Layouts by name. The name ends with the covariance type of the fit unless the type is "full".
LAYOUTS = {
    "8 in a row": lambda rng: blobs(rng, np.c_[10.0 * np.arange(8), np.zeros(8)], 400),
    "12 on a line": lambda rng: blobs(rng, 8.0 * np.arange(12)[:, None], 300),
    "16 at two scales": two_scales,
    "6 of 30 to 3,000 rows": lambda rng: blobs(
        rng, distant_centres(rng, 6, 2, 10, 40), [3000, 1000, 300, 100, 50, 30]
    ),
    "40 in the plane": lambda rng: blobs(rng, distant_centres(rng, 40, 2, 7, 80), 150),
    "6 in 50 columns": lambda rng: blobs(rng, 1.5 * rng.standard_normal((6, 50)), 300),
    "5 x 5": lambda rng: blobs(rng, 8.0 * np.argwhere(np.ones((5, 5))), 120),
    "ring of 12": lambda rng: blobs(rng, 16.0 * circle(12), 150),
    "100 on a line": lambda rng: blobs(rng, np.cumsum(rng.uniform(8, 10, 100))[:, None], 60),
    "80 on two lines": lambda rng: blobs(
        rng, np.r_[9.0 * np.arange(40), 3000 + 9.0 * np.arange(40)][:, None], 60
    ),
    "three rings": rings,
    "12 of 30 to 4,000 rows": lambda rng: blobs(
        rng, distant_centres(rng, 12, 3, 9, 40), (4000 * 0.55 ** np.arange(12)).astype(int) + 25
    ),
    "three nested": lambda rng: blobs(rng, np.zeros((3, 2)), [900, 400, 300], [20.0, 3.0, 0.3]),
    "correlated": correlated,
    "nested": lambda rng: blobs(
        rng, [[0, 0], [0, 0], [40, 0], [40, 0]], [600, 300, 600, 300], [6.0, 0.3, 6.0, 0.3]
    ),
    "long": elongated,
    "crossing": crossing,
    "deviations of .05 to 50": lambda rng: blobs(
        rng, np.c_[[0.0, 3, 20, 100, 600], np.zeros(5)], 300, [0.05, 0.4, 3.0, 12.0, 50.0]
    ),
    "25 rows each": lambda rng: blobs(rng, distant_centres(rng, 5, 3, 10, 30), 25),
    "5 in 100 columns": lambda rng: blobs(rng, 1.2 * rng.standard_normal((5, 100)), 300),
    "40 rows beside 20,000": lambda rng: blobs(rng, [[0, 0, 0], [9, 0, 0]], [20_000, 40]),
    "unlike units": unlike_units,
    "2 of 20 columns": some_columns,
    "a tenth missing": with_missing,
    "float32": single_precision,
    "no clusters": lambda rng: blobs(rng, np.zeros((1, 4)), 1500),
    "3 of 67 rows": lambda rng: blobs(rng, [[0.0], [12.0], [24.0]], 67),
    "27 at three scales": lambda rng: blobs(
        rng, np.argwhere(np.ones((3, 3, 3))) @ [[400.0], [60.0], [9.0]], 100
    ),
    "200,000 rows": lambda rng: blobs(rng, distant_centres(rng, 10, 4, 9, 30), 20_000),
}
LAYOUTS |= {
    f"{name}, {shape}": LAYOUTS[name]
    for name, shape in (
        ("6 in 50 columns", "diag"),
        ("2 of 20 columns", "diag"),
        ("a tenth missing", "diag"),
        ("8 in a row", "diag"),
        ("40 in the plane", "spherical"),
    )
}


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--layouts", nargs="+", choices=sorted(LAYOUTS), default=list(LAYOUTS))
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--published", action="store_true", help="priors given, none learned")
    p.add_argument("--rivals", action="store_true")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="1 seed")
    args = p.parse_args()
    args.seeds = 1 if args.quick else args.seeds
    return args


# Parameters of a fit with default priors, none of them learned.
PUBLISHED = dict.fromkeys(
    ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior")
)


class Run(NamedTuple):
    """Results of a fit and of the reference fit, which starts from the true labels."""

    n_components: int
    rand_index: float
    # Bound of the fit minus the bound of the reference fit, in nats.
    nats_ahead: float
    n_components_of_reference: int
    cpu: float


def ours(X, y, shape, seed, args):
    """Return the :class:`Run` of a fit with the covariance type ``shape``."""
    params = {"covariance_type": shape, "random_state": seed}
    params |= PUBLISHED if args.published else {}
    _, cpu, mixture = timed(MemoizedDPGMM(**params).fit, X)
    reference = MemoizedDPGMM(labels_init=y, **params).fit(X)
    index = adjusted_rand_score(y, mixture.predict(X))
    nats_ahead = mixture.elbo_ - reference.elbo_
    return Run(mixture.n_components_, index, nats_ahead, reference.n_components_, cpu)


def rivals(X, y, shape, seed):
    """Return the Rand indices of other methods by name; none if values are missing."""
    number = int(y.max()) + 1
    if np.isnan(X).any():
        return {}
    twice = BayesianGaussianMixture(
        n_components=2 * number, covariance_type=shape, random_state=seed
    )
    mixtures = {
        "BGM": twice.fit(X),
        "BIC": fit_gaussian_grid(X, min(60, 2 * number), shapes=[shape], random_state=seed),
    }
    indices = {name: adjusted_rand_score(y, fit.predict(X)) for name, fit in mixtures.items()}
    # HDBSCAN takes long for many rows.
    if len(X) <= 30_000:
        labels = HDBSCAN(copy=True).fit_predict(X)
        indices["HDBSCAN"] = adjusted_rand_score(y, labels)
    return indices


def main():
    args = arguments()
    print_header(args)
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Numbers of fits: all, those with a close bound, those for which the bound prefers the truth,
    # and those of them with the right number of components.
    n_fits = n_close = n_preferred = n_right = 0
    table = []
    with limited_to_cores(args.cores):
        for name in args.layouts:
            shape = next((kind for kind in ("diag", "spherical") if name.endswith(kind)), "full")
            runs, indices = [], []
            for seed in range(args.seeds):
                X, y = LAYOUTS[name](np.random.default_rng(seed))
                runs.append(ours(X, y, shape, seed, args))
                indices.append(rivals(X, y, shape, seed) if args.rivals else {})
            true_number = int(y.max()) + 1
            for run in runs:
                n_fits += 1
                n_close += run.nats_ahead > -CLOSE
                if run.n_components_of_reference == true_number and run.nats_ahead < CLOSE:
                    n_preferred += 1
                    n_right += abs(run.n_components - true_number) <= 0.05 * true_number
            table.append([
                name,
                f"{X.shape[0]:,} x {X.shape[1]}",
                str(true_number),
                " ".join(str(run.n_components) for run in runs),
                format_mean([run.rand_index for run in runs], 3),
                " ".join(f"{run.nats_ahead:.0f}" for run in runs),
                format_mean([run.cpu for run in runs], 1),
                *(
                    format_mean([by_name[rival] for by_name in indices], 3)
                    if rival in indices[0] else "-"
                    for rival in (("BGM", "BIC", "HDBSCAN") if args.rivals else ())
                ),
            ])  # fmt: skip
            print_progress(*table[-1])
    print_table(
        "Components found from one" + (", published priors" if args.published else ""),
        ["layout", "size", "true", "found", "ARI", "nats ahead", "CPU s"]
        + (["BGM", "BIC", "HDBSCAN"] if args.rivals else []),
        table,
    )
    print(f"\nat most {CLOSE:g} nats below a fit begun at the truth: {n_close} of {n_fits}")
    print(f"true number within 5 % where the bound prefers the truth: {n_right} of {n_preferred}")


if __name__ == "__main__":
    main()
