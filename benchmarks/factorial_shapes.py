"""Does a factorial mixture find the shapes that the rows are sums of? Optima by temperature.

Rows of ``make_shapes``: sums of eight pictures of 4 x 4 (VT16 sec. 4 and fig. 4). Plain inference,
annealing, and learned temperatures for all rows (VT) and for each (LVT), each without and with
superposition moves, from the same random starts: in how many of them each true component is matched
one to one with a correlation above 0.95, the exact bound in nats per row, CPU seconds, passes, and
sweeps, where one is an update of the activations of all factors of all rows; those of moves, of
their samples, of rows begun anew and of the pilots of learned temperatures are counted, too. The
last line is inference that starts at the true components, its activations found by annealing.
Variances and activation priors are learned by all, or with ``--given`` are those of the data.
"""

import warnings

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from sklearn.exceptions import ConvergenceWarning

from skvt import AnnealedFactorialMixture
from skvt.datasets import make_shapes
from skvt.expfam import RunningStats
from skvt.metrics import match_components
from skvt.models.factorial import _model as _factorial

POLICIES = {"plain VI": None, "annealing": "annealed", "VT": "variational", "LVT": "local"}
MOVES = {"": (), ", moves": ("superposition",)}
TRUTH = "started at the truth"
# As in make_shapes; E[w^2] of its weights, times 40 of the 128 pixels of its pictures.
GIVEN = {"noise_variance": 0.1, "activation_prior": 0.3, "prior_variance": 7 / 12 * 40 / 128}


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, default=10_000)
    p.add_argument("--starts", type=int, default=20)
    p.add_argument("--data-seeds", type=int, default=2)
    p.add_argument("--passes", type=int, default=100)
    p.add_argument("--given", action="store_true", help="variances and priors are known")
    p.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    p.add_argument("--quick", action="store_true", help="3,000 rows, one data set, 5 starts")
    args = p.parse_args()
    if args.quick:
        args.rows, args.starts, args.data_seeds = 3_000, 5, 1
    return args


class SweepCounter:
    """The kernel of the local step, adding up the sweeps of single rows that it makes."""

    def __init__(self):
        self.kernel, self.row_sweeps = _factorial.sweep_factors, 0
        _factorial.sweep_factors = self

    def __call__(self, *args):
        made = self.kernel(*args)
        self.row_sweeps += made
        return made

    def of(self, n_rows, function, *args):
        """(sweeps of all rows, what :func:`timed` says) of one call."""
        self.row_sweeps = 0
        result = timed(function, *args)
        return self.row_sweeps / n_rows, result


def started_at_truth(shapes, params):
    """Plain inference from the statistics of the true activations, which it then finds anew.

    There is no public way yet, so this sets the fitted state.
    """
    model = AnnealedFactorialMixture(8, temperature=None, moves=(), **params)
    model.partial_fit(shapes.X)
    Z, state = shapes.activations.astype(float), model._fitted.state
    totals = np.array([len(Z), shapes.X.size, (shapes.X.astype(float) ** 2).sum()])
    state.stats = RunningStats([(Z.T @ Z)[None], Z.T @ shapes.X, Z.sum(axis=0), totals])
    model._fitted.model = model._fitted.model.with_learned_priors(None, state.stats)
    return model.set_params(warm_start=True).fit(shapes.X)


def run_of(shapes, sweeps, seconds, cpu, model):
    """Components recovered, bound per row, T = 1 reached at, cost."""
    _, correlations = match_components(shapes.components, model.components_)
    return (
        int((correlations > 0.95).sum()), model.elbo_ / len(shapes.X), cpu, model.n_iter_, sweeps,
        1 + int((np.array(model.history_["temperature"]) > 1.0).sum()),
    )  # fmt: skip


def fit_all(args, shapes, counter):
    params = {"max_iter": args.passes} | (GIVEN if args.given else {})
    results = {}
    for policy, temperature in POLICIES.items():
        for suffix, moves in MOVES.items():
            label = policy + suffix
            results[label] = []
            for seed in range(args.starts):
                model = AnnealedFactorialMixture(
                    8, temperature=temperature, moves=moves, random_state=seed, **params
                )
                sweeps, timing = counter.of(args.rows, model.fit, shapes.X)
                results[label].append(run_of(shapes, sweeps, *timing))
            progress(label, *np.mean(results[label], axis=0).round(3))
    sweeps, timing = counter.of(args.rows, started_at_truth, shapes, params)
    results[TRUTH] = [run_of(shapes, sweeps, *timing)]
    return results


def report(args, seed, results):
    truth, table = results[TRUTH][0][1], []
    for label, runs in results.items():
        found, bound, cpu, passes, sweeps, cold = (np.array(c) for c in zip(*runs, strict=True))
        table.append([
            label, f"{(found == 8).sum()} of {len(runs)}", f"{found.mean():.2f}", spread(bound, 3),
            f"{bound.mean() - truth:+.3f}", f"{bound.min() - truth:+.3f}", f"{cpu.mean():.2f}",
            f"{passes.mean():.0f}", f"{cold.mean():.0f}", f"{sweeps.mean():.0f}",
            f"{sweeps.max():.0f}",
        ])  # fmt: skip
    print_table(
        f"Data {seed}: N = {args.rows:,}, {args.starts} starts, at most {args.passes} passes, "
        f"{'given' if args.given else 'learned'} variances and priors (starts that found all 8, "
        "and the mean number; bound in nats per row, its mean and least minus that of the truth; "
        "T = 1 from which pass)",
        ["", "all 8", "found", "ELBO", "mean", "least", "CPU s", "passes", "T = 1", "sweeps",
         "most"],
        table,
    )  # fmt: skip


def main():
    args = arguments()
    print_header()
    warnings.simplefilter("ignore", ConvergenceWarning)
    counter = SweepCounter()
    with cores(1):
        for seed in range(args.data_seeds):
            shapes = make_shapes(args.rows, random_state=seed)
            shapes = shapes._replace(X=shapes.X.astype(args.dtype))
            if seed == 0:
                AnnealedFactorialMixture(8, max_iter=6, random_state=0).fit(shapes.X)  # compiles
            report(args, seed, fit_all(args, shapes, counter))


if __name__ == "__main__":
    main()
