"""Binary components of faces: held-out likelihood and temperature by schedule (VT16 fig. 3).

Yale faces, all pixels standardised together, 1,914 of them to fit to and 500 held out, variances of
noise and components 0.5. Plain inference, annealing from T = 6 over 5 and over 50 passes and as by
default, learned temperatures for all rows (VT) and for each (LVT), each without and with
superposition moves: the held-out log predictive density (``score``) and the exact bound in nats
per face, and the expected temperature over the passes.
"""

import warnings
from pathlib import Path

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from sklearn.exceptions import ConvergenceWarning

from skvt import AnnealedFactorialMixture
from skvt.temperature import LinearAnnealing

POLICIES = {
    "plain VI": None,
    "annealing, 6 over 5": LinearAnnealing(6.0, n_passes=5, replication=1.0),
    "annealing, 6 over 50": LinearAnnealing(6.0, n_passes=50, replication=1.0),
    "annealing, default": "annealed",
    "VT": "variational",
    "LVT": "local",
}
MOVES = {"": (), ", moves": ("superposition",)}
SHOWN = (1, 2, 3, 5, 10, 20, 30, 50, 75, 100)  # passes


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--data", required=True, metavar="PATH", help="folder of yale_b/data.npz")
    p.add_argument("--k", type=int, default=30)
    p.add_argument("--held-out", type=int, default=500)
    p.add_argument("--variance", type=float, default=0.5, help="of noise and components")
    p.add_argument("--activation", type=float, default=0.3)
    p.add_argument("--learned", action="store_true", help="learn variances and priors instead")
    p.add_argument("--passes", type=int, default=100)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--dtype", default="float32", choices=["float64", "float32"])
    p.add_argument("--figure", metavar="FILE", help="draw temperatures and bounds over the passes")
    p.add_argument("--quick", action="store_true", help="every fourth pixel each way, one seed")
    args = p.parse_args()
    args.step = 4 if args.quick else 1
    if args.quick:
        args.seeds = 1
    return args


def load(args):
    """Standardised faces to fit to, and held out; the split is the same for all seeds."""
    file = Path(args.data) / "yale_b" / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold yale_b/data.npz.")
    with np.load(file) as arrays:
        images = arrays["images"][:, :: args.step, :: args.step].astype(args.dtype)
    X = images.reshape(len(images), -1)
    X = (X - X.mean(dtype=np.float64)) / X.std(dtype=np.float64)
    X = X.astype(args.dtype)[np.random.default_rng(0).permutation(len(X))]
    return X[args.held_out :], X[: args.held_out]


def fit_all(args, train, test):
    """Label -> list of (score, bound per face, CPU seconds, passes, history)."""
    params = {} if args.learned else {
        "noise_variance": args.variance, "prior_variance": args.variance,
        "activation_prior": args.activation,
    }  # fmt: skip
    results = {}
    for policy, temperature in POLICIES.items():
        for suffix, moves in MOVES.items():
            label = policy + suffix
            results[label] = []
            for seed in range(args.seeds):
                model = AnnealedFactorialMixture(
                    args.k, temperature=temperature, moves=moves, max_iter=args.passes,
                    random_state=seed, **params,
                )  # fmt: skip
                _, cpu, _ = timed(model.fit, train)
                run = model.score(test), model.elbo_ / len(train), cpu, model.n_iter_
                results[label].append((*run, model.history_))
                progress(label, seed, *(f"{value:.5g}" for value in run))
    return results


def report(args, train, results):
    scores = {label: np.array([run[0] for run in runs]) for label, runs in results.items()}
    table = []
    for label, runs in results.items():
        suffix = ", moves" if ", moves" in label else ""
        same = [
            name for name in scores if "annealing" in name and (", moves" in name) == bool(suffix)
        ]
        best = max(scores[name].mean() for name in same)
        _, bounds, cpu, passes, histories = zip(*runs, strict=True)
        hot = [sum(t > 1.0 for t in history["temperature"]) for history in histories]
        table.append([
            label, spread(scores[label], 1), f"{(scores[label].mean() - best) / abs(best):+.3%}",
            spread(scores[label] - scores["plain VI" + suffix], 1), spread(bounds, 1),
            f"{np.mean(cpu):.1f}", f"{np.mean(passes):.0f}", f"{1 + np.mean(hot):.0f}",
        ])  # fmt: skip
    print_table(
        f"{len(train):,} faces of {train.shape[1]:,} pixels, K = {args.k}, {args.seeds} seeds "
        "(score of held-out faces and bound in nats per face; score against the best annealing "
        "and, seed by seed, plain VI, moves alike; T = 1 from which pass)",
        ["", "score", "annealing", "gain on VI", "ELBO", "CPU s", "passes", "T = 1"],
        table,
    )
    table = []
    for label in (name for name in results if ", moves" not in name):
        history = results[label][0][-1]["temperature"]
        table.append([label, *(f"{history[min(i, len(history)) - 1]:.3f}" for i in SHOWN)])
    print_table("Expected temperature after so many passes, first seed", ["", *SHOWN], table)


def draw(args, results):
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for label in (name for name in results if ", moves" not in name):
        history = results[label][0][-1]
        axes[0].plot(history["n_iter"], history["temperature"], label=label)
        axes[1].plot(history["n_iter"], history["elbo"])
    axes[0].set(xlabel="passes", ylabel="expected temperature", yscale="log")
    axes[1].set(xlabel="passes", ylabel="ELBO at T = 1, nats")
    bounds = [results[label][0][-1]["elbo"][-1] for label in results]
    span = max(bounds) - min(bounds)
    axes[1].set(ylim=(min(bounds) - 2.0 * span, max(bounds) + 0.2 * span))
    axes[0].legend()
    fig.savefig(args.figure, dpi=150)


def main():
    args = arguments()
    print_header()
    warnings.simplefilter("ignore", ConvergenceWarning)
    train, test = load(args)
    with cores(1):
        AnnealedFactorialMixture(args.k, max_iter=6, random_state=0).fit(train[:200])  # compiles
        results = fit_all(args, train, test)
    report(args, train, results)
    if args.figure:
        draw(args, results)


if __name__ == "__main__":
    main()
