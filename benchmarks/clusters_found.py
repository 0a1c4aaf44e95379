"""How many clusters the default mixture finds where they are clear.

Layouts of Gaussian clusters that are far apart: in a row, at two scales, nested, elongated, in few
and in many columns, few and many rows, of very different sizes, with missing values. For each seed:

- the number of components found from one, and the adjusted Rand index;
- the bound less that of a fit begun at the true labels, in nats: below 0, the fit has ended though
  a better one is known; above 0, the true labels are not what the bound prefers;
- ``--rivals``: the Rand index of scikit-learn's ``BayesianGaussianMixture`` at twice the true
  number of components, of its ``GaussianMixture`` by BIC, and of ``HDBSCAN``.

The last lines count the fits that end at most 2 nats below the known one, and those that find the
true number within 5 % where the bound prefers the true labels.
"""

import warnings

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

# Nats below the known bound that count as the same.
CLOSE = 2.0


def blobs(rng, centres, size, deviations=1.0):
    """Rows around centres (K, D), and labels; sizes and deviations are one or one for each."""
    centres = np.asarray(centres, float)
    sizes = np.broadcast_to(size, len(centres))
    y = np.repeat(np.arange(len(centres)), sizes)
    scale = np.broadcast_to(np.asarray(deviations, float), (len(centres),))[y]
    return centres[y] + scale[:, None] * rng.standard_normal((len(y), centres.shape[1])), y


def apart(rng, number, n_columns, least, width):
    """Centres drawn uniformly from a box, none nearer than ``least`` to another."""
    centres = []
    while len(centres) < number:
        new = rng.uniform(0, width, n_columns)
        if all(np.linalg.norm(new - old) >= least for old in centres):
            centres.append(new)
    return np.array(centres)


def circle(number):
    """Points on the unit circle."""
    angles = 2 * np.pi * np.arange(number) / number
    return np.c_[np.cos(angles), np.sin(angles)]


def two_scales(rng):
    corners = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    centres = (100.0 * corners[:, None] + 8.0 * corners[None]).reshape(-1, 2)
    return blobs(rng, centres, 200)


def long_ones(rng):
    """Six long clusters in all directions."""
    X, y = blobs(rng, apart(rng, 6, 2, 25, 80), 250)
    centres = np.array([X[y == k].mean(axis=0) for k in range(6)])
    turns = rng.uniform(0, np.pi, 6)
    for k, turn in enumerate(turns):
        c, s = np.cos(turn), np.sin(turn)
        X[y == k] = centres[k] + (X[y == k] - centres[k]) * [7.0, 0.5] @ [[c, s], [-s, c]]
    return X, y


def crossing(rng):
    """Two long clusters that cross, and a third across one of their ends."""
    parts = [rng.standard_normal((500, 2)) * size for size in ([12, 0.5], [0.5, 12], [4, 0.4])]
    parts[2] += [0, 20]
    return np.concatenate(parts), np.repeat(np.arange(3), 500)


def unlike_units(rng):
    X, y = blobs(rng, apart(rng, 8, 5, 9, 25), 200)
    return X * 10.0 ** np.arange(-4, 6, 2) + 10.0 ** np.arange(5), y


def some_columns(rng):
    """Two of 20 columns differ."""
    X, y = blobs(
        rng, np.pad(10.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]]), ((0, 0), (0, 18))), 300
    )
    return X, y


def holes(rng):
    X, y = blobs(rng, apart(rng, 6, 8, 12, 25), 300)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def single(rng):
    X, y = blobs(rng, apart(rng, 10, 6, 9, 30), 400)
    return X.astype(np.float32), y


def rings(rng):
    """Clusters on three rings about one centre."""
    centres = [radius * circle(n) for radius, n in ((8.0, 6), (24.0, 16), (60.0, 20))]
    return blobs(rng, np.concatenate(centres), 80)


def correlated(rng):
    X, y = blobs(rng, apart(rng, 6, 10, 12, 25), 250)
    return X @ rng.standard_normal((10, 10)), y


# Layouts by name, which ends with the covariance type where that is not "full".
LAYOUTS = {
    "8 in a row": lambda rng: blobs(rng, np.c_[10.0 * np.arange(8), np.zeros(8)], 400),
    "12 on a line": lambda rng: blobs(rng, 8.0 * np.arange(12)[:, None], 300),
    "16 at two scales": two_scales,
    "6 of 30 to 3,000 rows": lambda rng: blobs(
        rng, apart(rng, 6, 2, 10, 40), [3000, 1000, 300, 100, 50, 30]
    ),
    "40 in the plane": lambda rng: blobs(rng, apart(rng, 40, 2, 7, 80), 150),
    "6 in 50 columns": lambda rng: blobs(rng, 1.5 * rng.standard_normal((6, 50)), 300),
    "5 x 5": lambda rng: blobs(rng, 8.0 * np.argwhere(np.ones((5, 5))), 120),
    "ring of 12": lambda rng: blobs(rng, 16.0 * circle(12), 150),
    "100 on a line": lambda rng: blobs(rng, np.cumsum(rng.uniform(8, 10, 100))[:, None], 60),
    "80 on two lines": lambda rng: blobs(
        rng, np.r_[9.0 * np.arange(40), 3000 + 9.0 * np.arange(40)][:, None], 60
    ),
    "three rings": rings,
    "12 of 30 to 4,000 rows": lambda rng: blobs(
        rng, apart(rng, 12, 3, 9, 40), (4000 * 0.55 ** np.arange(12)).astype(int) + 25
    ),
    "three nested": lambda rng: blobs(rng, np.zeros((3, 2)), [900, 400, 300], [20.0, 3.0, 0.3]),
    "correlated": correlated,
    "nested": lambda rng: blobs(
        rng, [[0, 0], [0, 0], [40, 0], [40, 0]], [600, 300, 600, 300], [6.0, 0.3, 6.0, 0.3]
    ),
    "long": long_ones,
    "crossing": crossing,
    "deviations of .05 to 50": lambda rng: blobs(
        rng, np.c_[[0.0, 3, 20, 100, 600], np.zeros(5)], 300, [0.05, 0.4, 3.0, 12.0, 50.0]
    ),
    "25 rows each": lambda rng: blobs(rng, apart(rng, 5, 3, 10, 30), 25),
    "5 in 100 columns": lambda rng: blobs(rng, 1.2 * rng.standard_normal((5, 100)), 300),
    "40 rows beside 20,000": lambda rng: blobs(rng, [[0, 0, 0], [9, 0, 0]], [20_000, 40]),
    "unlike units": unlike_units,
    "2 of 20 columns": some_columns,
    "a tenth missing": holes,
    "float32": single,
    "no clusters": lambda rng: blobs(rng, np.zeros((1, 4)), 1500),
    "3 of 67 rows": lambda rng: blobs(rng, [[0.0], [12.0], [24.0]], 67),
    "27 at three scales": lambda rng: blobs(
        rng, np.argwhere(np.ones((3, 3, 3))) @ [[400.0], [60.0], [9.0]], 100
    ),
    "200,000 rows": lambda rng: blobs(rng, apart(rng, 10, 4, 9, 30), 20_000),
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


PUBLISHED = dict.fromkeys(
    ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior")
)


def ours(X, y, shape, seed, args):
    """(number, Rand index, nats above the fit begun at the truth, its number, CPU seconds)."""
    chosen = {"covariance_type": shape, "random_state": seed} | (
        PUBLISHED if args.published else {}
    )
    _, seconds, mixture = timed(MemoizedDPGMM(**chosen).fit, X)
    known = MemoizedDPGMM(labels_init=y, **chosen).fit(X)
    index = adjusted_rand_score(y, mixture.predict(X))
    ahead = mixture.elbo_ - known.elbo_
    return mixture.n_components_, index, ahead, known.n_components_, seconds


def rivals(X, y, shape, seed):
    """{name: Rand index} of other ways."""
    number = int(y.max()) + 1
    if np.isnan(X).any():
        return {}
    twice = BayesianGaussianMixture(
        n_components=2 * number, covariance_type=shape, random_state=seed
    )
    found = {
        "BGM": twice.fit(X),
        "BIC": fit_gaussian_grid(X, min(60, 2 * number), shapes=[shape], random_state=seed),
    }
    indices = {name: adjusted_rand_score(y, fit.predict(X)) for name, fit in found.items()}
    if len(X) <= 30_000:
        labels = HDBSCAN(copy=True).fit_predict(X)
        indices["HDBSCAN"] = adjusted_rand_score(y, labels)
    return indices


def main():
    args = arguments()
    print_header(args)
    warnings.simplefilter("ignore", ConvergenceWarning)
    close = right = fits = judged = 0
    table = []
    with limited_to_cores(args.cores):
        for name in args.layouts:
            shape = next((kind for kind in ("diag", "spherical") if name.endswith(kind)), "full")
            runs, others = [], []
            for seed in range(args.seeds):
                X, y = LAYOUTS[name](np.random.default_rng(seed))
                runs.append(ours(X, y, shape, seed, args))
                others.append(rivals(X, y, shape, seed) if args.rivals else {})
            true = int(y.max()) + 1
            for number, _, ahead, known, _ in runs:
                fits += 1
                close += ahead > -CLOSE
                if known == true and ahead < CLOSE:
                    judged += 1
                    right += abs(number - true) <= 0.05 * true
            table.append([
                name,
                f"{X.shape[0]:,} x {X.shape[1]}",
                str(true),
                " ".join(str(run[0]) for run in runs),
                format_mean([run[1] for run in runs], 3),
                " ".join(f"{run[2]:.0f}" for run in runs),
                format_mean([run[4] for run in runs], 1),
                *(
                    format_mean([o[r] for o in others], 3) if r in others[0] else "-"
                    for r in (("BGM", "BIC", "HDBSCAN") if args.rivals else ())
                ),
            ])  # fmt: skip
            print_progress(*table[-1])
    print_table(
        "Components found from one" + (", published priors" if args.published else ""),
        ["layout", "size", "true", "found", "ARI", "nats ahead", "CPU s"]
        + (["BGM", "BIC", "HDBSCAN"] if args.rivals else []),
        table,
    )
    print(f"\nat most {CLOSE:g} nats below a fit begun at the truth: {close} of {fits}")
    print(f"true number within 5 % where the bound prefers the truth: {right} of {judged}")


if __name__ == "__main__":
    main()
