"""Binary factors by temperature: shapes found, and held-out faces [VT16 sec. 4, fig. 3 and 4].

Plain inference, annealing and learned temperatures are compared, without and with superposition
moves, from the same random starts. "variational" learns a temperature for all rows, and "local"
learns one for each row.

- ``shapes``: rows of ``make_shapes`` are sums of eight pictures. A picture is found if it is
  matched one to one with a component, with a correlation above 0.95. The table has the number of
  pictures found, and the number of starts that find all. Variances and activation priors are
  learned.
- ``faces``: Yale faces, standardised by their common mean and deviation. Fits are to 1,914 faces,
  and 500 are held out. The variances of noise and components are 0.5. The table has the held-out
  log predictive density (``score``) and the bound, in nats per face.
"""

import warnings
from pathlib import Path

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
from sklearn.exceptions import ConvergenceWarning

from skvt import AnnealedFactorialMixture
from skvt.datasets import make_shapes
from skvt.metrics import match_components
from skvt.temperature import LinearAnnealing

# The learned temperatures by name.
LEARNED = {"variational": "variational", "local": "local"}
# Values of the parameter ``temperature`` by name, for each data set.
POLICIES = {
    "shapes": {"plain": None, "annealed": "annealed", **LEARNED},
    "faces": {
        "plain": None,
        "6 over 5": LinearAnnealing(6.0, n_passes=5, replication=1.0),
        "6 over 50": LinearAnnealing(6.0, n_passes=50, replication=1.0),
        "annealed": "annealed",
        **LEARNED,
    },
}
# Values of the parameter ``moves`` by the suffix of the name of a row.
MOVES = {"": (), ", moves": ("superposition",)}
FACES_PARAMETERS = {"noise_variance": 0.5, "activation_prior": 0.3, "prior_variance": 0.5}


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("which", choices=POLICIES)
    p.add_argument("--data", metavar="PATH", default=".", help="folder of yale_b/data.npz")
    p.add_argument("--rows", type=int, default=10_000, help="of shapes")
    p.add_argument("--starts", type=int, default=None, help="20 of shapes, 3 of faces")
    p.add_argument("--data-seed", type=int, default=0, help="of shapes")
    p.add_argument("--k", type=int, default=30, help="components of faces")
    p.add_argument("--passes", type=int, default=100)
    p.add_argument(
        "--quick", action="store_true", help="3,000 rows, every fourth pixel, few starts"
    )
    args = p.parse_args()
    args.starts = args.starts or (20 if args.which == "shapes" else 3)
    if args.quick:
        args.rows, args.starts = 3_000, 5 if args.which == "shapes" else 1
    return args


def shapes(args):
    """Return rows, parameters of the estimator, a measure of a fitted model, and its header."""
    data = make_shapes(args.rows, random_state=args.data_seed)

    def count_found(model):
        """Return the number of pictures that the model has found."""
        _, correlations = match_components(data.components, model.components_)
        return (correlations > 0.95).sum()

    return data.X, {"n_components": 8}, count_found, "found of 8"


def faces(args):
    """Return rows, parameters of the estimator, a measure of a fitted model, and its header."""
    file = Path(args.data) / "yale_b" / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold yale_b/data.npz.")
    step = 4 if args.quick else 1
    with np.load(file) as arrays:
        images = arrays["images"][:, ::step, ::step].astype(np.float32)
    X = images.reshape(len(images), -1)
    X = ((X - X.mean(dtype=float)) / X.std(dtype=float)).astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))]
    params = {"n_components": args.k} | FACES_PARAMETERS
    return X[500:], params, lambda model: model.score(X[:500]), "score"


def main():
    args = arguments()
    print_header(args)
    warnings.simplefilter("ignore", ConvergenceWarning)
    with limited_to_cores(1):
        X, params, measure, header = {"shapes": shapes, "faces": faces}[args.which](args)
        table = []
        for policy, temperature in POLICIES[args.which].items():
            for suffix, moves in MOVES.items():
                runs = []
                for seed in range(args.starts):
                    model = AnnealedFactorialMixture(
                        **params, temperature=temperature, moves=moves, max_iter=args.passes,
                        random_state=seed,
                    )  # fmt: skip
                    _, cpu, _ = timed(model.fit, X)
                    # Number of passes above T = 1.
                    hot = sum(t > 1.0 for t in model.history_["temperature"])
                    runs.append((measure(model), model.elbo_ / len(X), cpu, model.n_iter_, hot))
                    print_progress(policy + suffix, seed, *(f"{value:.5g}" for value in runs[-1]))
                measured, bound, cpu, passes, hot = np.array(runs, float).T
                table.append([
                    policy + suffix, format_mean(measured, 2),
                    f"{(measured == 8).sum()}/{len(runs)}", format_mean(bound, 3),
                    f"{bound.min():.3f}", format_mean(cpu, 2), f"{passes.mean():.0f}",
                    f"{1 + hot.mean():.0f}",
                ])  # fmt: skip
    print_table(
        f"{args.which}: {X.shape[0]:,} x {X.shape[1]:,}, {args.starts} starts, at most "
        f"{args.passes} passes (bound in nats per row; T = 1 from which pass)",
        ["", header, "all 8", "ELBO", "least", "CPU s", "passes", "T = 1"],
        table,
    )


if __name__ == "__main__":
    main()
