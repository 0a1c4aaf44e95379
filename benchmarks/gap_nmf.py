"""How many sounds does a factorisation of a spectrogram find, at what rank: beside other libraries.

Synthetic (HB15 sec. 4.3 and fig. 5): 50 speech-like spectra, Gamma(0.2, 0.2) activations, Poisson
counts. Spectra found are true ones whose partner, one to one, correlates by more than 0.9;
"closest" lets partners be shared. Mean field starts as structured inference does. Held-out entries
of other frames are scored by one evaluator for all: columns of one parity predicted from those of
the other, activations by maximum likelihood given the components. The score is the log of the
Poisson probability in nats per entry, whatever loss a method has minimised.

scikit-learn's NMF has the Kullback-Leibler loss, which is Poisson likelihood, or Itakura-Saito, of
counts plus one. poismf (left out where it is not installed) is Poisson factorisation, too; its
defaults are meant for ratings of which next to all are zero. "Chosen" rows have the rank, and of
poismf the solver and the penalty, too, that predict best a fifth of the first seed's frames,
learned from the rest.

With ``--data``, the magnitudes of ``audio/piano_mix_mag.npy`` (bins x frames), scaled to the mean
count: ranks, time, and the same held-out score of every fifth frame.

Seconds of an iteration are the difference of two fits, by n iterations apart, divided by n: least
CPU seconds of several repeats.
"""

import importlib.util
import itertools
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _common import (
    cores,
    least_cpu,
    parser,
    print_header,
    print_table,
    progress,
    spread,
    timed,
)
from scipy.special import gammaln
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

from skvt import StructuredGaPNMF
from skvt.datasets import make_spectrogram
from skvt.metrics import match_components

MEAN_FIELD = {"local_step": "mean_field", "global_step": "mean_field"}
OURS = {
    "SSVI-A, Gibbs": {},
    "Gibbs, expected spectra": {"global_step": "mean_field"},
    "mean field": MEAN_FIELD,
    "mean field, 4 updates a pass": MEAN_FIELD | {"n_local_iter": 4},
}


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--data", metavar="PATH", help="folder of audio/piano_mix_mag.npy")
    p.add_argument("--frames", type=int, default=1000)
    p.add_argument("--k", type=int, default=100)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--passes", type=int, default=None, help="of ours; the default's if not given")
    p.add_argument("--mean-count", type=float, default=5.0)
    p.add_argument("--nmf-passes", type=int, default=500, help="of scikit-learn")
    p.add_argument("--rows", nargs="+", help="beginnings of the names of methods; all if not given")
    p.add_argument("--repeats", type=int, default=3, help="of the timing; 0 for none")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="2 seeds, 300 passes")
    args = p.parse_args()
    if args.quick:
        args.seeds, args.passes, args.nmf_passes = 2, 300, 200
    return args


def held_out(components, X, n_iter=300):
    """Nats per entry of X, each parity of the columns predicted from the other."""
    components, total = components.astype(np.float64), 0.0
    for parity in (0, 1):
        seen, hidden = components[:, 1 - parity :: 2], components[:, parity::2]
        Y, H = X[:, 1 - parity :: 2], np.ones((len(X), len(components)))
        scale = np.maximum(seen.sum(axis=1), 1e-12)
        for _ in range(n_iter):
            H *= (Y / (H @ seen + 1e-12)) @ seen.T / scale
        y, rate = X[:, parity::2], H @ hidden + 1e-3
        total += (y * np.log(rate) - rate - gammaln(y + 1.0)).sum()
    return total / X.size


def ours(args, seed, **params):
    if args.passes is not None:
        params = {"max_iter": args.passes} | params
    return StructuredGaPNMF(args.k, n_jobs=args.cores, random_state=seed, **params)


# --------------------------------------------------------------------------------- other libraries
def sklearn(k, n_passes, seed, beta_loss="kullback-leibler"):
    return NMF(
        k, init="random", beta_loss=beta_loss, solver="mu", max_iter=n_passes, tol=0.0,
        random_state=seed,
    )  # fmt: skip


class ItakuraSaito:
    """NMF of counts plus one: the loss is infinite where a count is zero."""

    def __init__(self, k, n_passes, seed):
        self.nmf = sklearn(k, n_passes, seed, "itakura-saito")

    def fit(self, X):
        self.components_ = self.nmf.fit(X + 1.0).components_
        return self


class Poismf:
    """PoisMF with components in rows."""

    def __init__(self, seed, **params):
        from poismf import PoisMF

        self.model = PoisMF(**params, use_float=False, reindex=False, produce_dicts=False,
                            nthreads=1, random_state=seed)  # fmt: skip

    def fit(self, X):
        self.model.fit(sp.coo_matrix(X.astype(np.float64)))
        self.components_ = np.array(self.model.B, dtype=np.float64).T
        return self


def has_poismf():
    return importlib.util.find_spec("poismf") is not None


RANKS = (20, 30, 40, 50)
POISMF = [
    {"method": "cg", "niter": 50, "maxupd": 5, "l2_reg": l2_reg, "k": k}
    for l2_reg, k in itertools.product((0.1, 1.0, 3.0), (30, 40, 50))
] + [
    {"method": "tncg", "niter": 20, "maxupd": 100, "reuse_prev": True, "l2_reg": l2_reg, "k": 40}
    for l2_reg in (0.1, 1.0)
]


def candidates(args):
    """Label -> settings -> maker of an estimator from a seed, of methods that have a choice."""

    def ranks(make):
        return {f"rank {k}": lambda seed, k=k: make(k, args.nmf_passes, seed) for k in RANKS}

    rows = {
        "sklearn NMF, KL, chosen": ranks(sklearn),
        "sklearn NMF, IS, chosen": ranks(ItakuraSaito),
    }
    if has_poismf():
        rows["poismf, chosen"] = {
            ", ".join(f"{name} {value}" for name, value in params.items()): (
                lambda seed, params=params: Poismf(seed, **params)
            )
            for params in POISMF
        }
    return rows


def chosen(label, settings, X):
    """The maker whose components of four fifths of the rows predict the others best."""
    test = np.arange(len(X)) % 5 == 4
    scores = {}
    for name, make in settings.items():
        scores[name] = held_out(make(0).fit(X[~test]).components_, X[test])
        progress(label, name, f"{scores[name]:.4f}")
    best = max(scores, key=scores.get)
    print(f"{label}: {best}, of {len(settings)} settings")
    return settings[best]


def methods(args, X):
    """Label -> maker of an estimator from a seed; choices are made by rows of X."""

    def maker(params):
        return lambda seed: ours(args, seed, **params)

    rows = {label: maker(params) for label, params in OURS.items()}
    for k in (50, args.k):
        rows[f"sklearn NMF, rank {k}"] = lambda seed, k=k: sklearn(k, args.nmf_passes, seed)
    if has_poismf():
        rows["poismf, its defaults"] = lambda seed: Poismf(seed)
    else:
        print("poismf is not installed, left out")

    def wanted(label):
        return args.rows is None or label.startswith(tuple(args.rows))

    rows = {label: make for label, make in rows.items() if wanted(label)}
    for label, settings in candidates(args).items():
        if wanted(label):
            rows[label] = chosen(label, settings, X)
    return rows


def synthetic(args):
    table = []
    X = make_spectrogram(args.frames + 200, mean_count=args.mean_count, random_state=0).X
    for label, make in methods(args, X[: args.frames].astype(np.float32)).items():
        runs = []
        for seed in range(args.seeds):
            sounds = make_spectrogram(
                args.frames + 200, mean_count=args.mean_count, random_state=seed
            )
            X = sounds.X.astype(np.float32)
            seconds, cpu, model = timed(make(seed).fit, X[: args.frames])
            runs.append([*found(sounds.components, model), held_out(model.components_, X[-200:]),
                         seconds, cpu])  # fmt: skip
            progress(label, seed, *(f"{value:.4g}" for value in runs[-1]))
        one_to_one, closest, active, score, seconds, cpu = zip(*runs, strict=True)
        table.append([label, spread(one_to_one, 1), min(one_to_one), spread(closest, 1),
                      f"{min(active)}-{max(active)}", spread(score, 3), f"{np.mean(seconds):.1f}",
                      f"{np.mean(cpu):.1f}"])  # fmt: skip
    print_table(
        f"{args.frames} frames, K = {args.k}, mean count {args.mean_count:g}, {args.seeds} seeds",
        ["", "found of 50", "least", "closest", "active", "held-out", "s", "CPU s"],
        table,
    )


def found(truth, model):
    """(found one to one, found by the closest, active components)."""
    components = model.components_
    matched = int((match_components(truth, components)[1] > 0.9).sum())
    with np.errstate(invalid="ignore"):  # a component that has faded may be constant
        correlation = np.corrcoef(truth, components)[: len(truth), len(truth) :]
    closest = int((np.nan_to_num(correlation).max(axis=1) > 0.9).sum())
    return matched, closest, getattr(model, "n_active_components_", len(components))


def piano(args):
    magnitudes = np.load(Path(args.data) / "audio" / "piano_mix_mag.npy").T
    X = (magnitudes * (args.mean_count / magnitudes.mean())).astype(np.float32)
    test = np.arange(len(X)) % 5 == 4
    table = []
    for label, make in methods(args, X[~test]).items():
        seconds, cpu, model = timed(make(0).fit, X[~test])
        active = getattr(model, "n_active_components_", len(model.components_))
        score = held_out(model.components_, X[test])
        table.append([label, active, f"{score:.3f}", f"{seconds:.1f}", f"{cpu:.1f}"])
        progress(*table[-1])
    print_table(
        f"piano, {X.shape[0]} frames x {X.shape[1]} bins, mean {args.mean_count:g}",
        ["", "active", "held-out", "s", "CPU s"],
        table,
    )


def speed(args):
    """CPU seconds of one iteration, beside scikit-learn's at the same rank."""
    X = make_spectrogram(args.frames, random_state=0).X.astype(np.float32)
    few, many = 20, 70

    def iteration(make):
        short, long = (least_cpu(args.repeats, lambda n=n: make(n).fit(X)) for n in (few, many))
        return (long - short) / (many - few)

    base = iteration(lambda n: sklearn(args.k, n, 0))
    table = [["sklearn NMF", f"{1e3 * base:.2f}", "1.0"]]
    for label, params in OURS.items():
        seconds = iteration(lambda n, p=params: ours(args, 0, **p, max_iter=n, polish=0.0))
        table.append([label, f"{1e3 * seconds:.2f}", f"{seconds / base:.1f}"])
    print_table(
        f"one iteration, {args.frames} x 257, rank {args.k}, float32, one core",
        ["", "CPU ms", "x sklearn"],
        table,
    )


def main():
    args = arguments()
    print_header()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with cores(args.cores):
        ours(args, 0, max_iter=3).fit(np.ones((4, 4), np.float32))  # compiles
        if args.repeats:
            speed(args)
        if args.data is not None:
            piano(args)
        synthetic(args)


if __name__ == "__main__":
    main()
