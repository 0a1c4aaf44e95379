"""Speed of the local step: against scikit-learn, from one thread to two, against the machine.

Part 1, a pass: ``partial_fit`` of the same documents in minibatches of the same size at T = 1,
``TemperedLDA`` and scikit-learn's ``LatentDirichletAllocation``, on 1 and on 2 cores. The first
pass starts from random topics, the second from the topics of the first, where documents converge
sooner. Both stop a document at their own (equal) defaults, 1e-3 tokens.

Part 2, the compiled local step alone (q(z), q(theta), bound and statistics) on one thread, from
the topics after the passes: until documents converge, and with exactly three sweeps over all
topics, whose floating-point operations can be counted:

    4 nnz K a sweep; 2 nnz K for the last q(z), 2 nnz K for the statistics; exp for the table of
    E[log beta] of each minibatch; digamma and exp of K topics a sweep, of which the flops are
    counted in the source, as are those of the bound.

Part 3, from one thread to two: one pass of the same engine, minibatch by minibatch. Both are run
in turn, and of each minibatch the first quartile of its seconds over the repeats counts, so that
other programs on the machine disturb little. Each thread is given a core of its own (some virtual
machines otherwise leave all of a process's threads on one); arithmetic alone, in tasks of the same
length, says what the machine gives.

The machine's limits are measured beside it: multiply-adds in registers, dot products in the
first-level cache, a memory triad. All of part 2 is in CPU seconds, all else in seconds of the
clock, in part 1 with CPU seconds beside them (not those of scikit-learn's worker processes).
"""

import os
import threading
import time
from contextlib import contextmanager

import numpy as np
from _common import (
    add_data_arguments,
    cores,
    describe,
    least_cpu,
    load_corpus,
    parser,
    print_header,
    print_table,
    progress,
    timed,
)
from _machine import L1_ELEMENTS, _polynomials, dot_flops, peak_flops, triad_bytes
from _peers import warm_up
from sklearn.decomposition import LatentDirichletAllocation

from skvt import TemperedLDA
from skvt.compiled import serial_map
from skvt.inference import LocalTotals, Rows, State, StochasticInference, Workers
from skvt.models.lda import LDA
from skvt.schedules import RobbinsMonro
from skvt.temperature import ConstantTemperature

SWEEPS = 3
RATE = RobbinsMonro(64.0, 0.7)  # of the scaling's pass
# Additions, multiplications, divisions in skvt.expfam's polynomials.
EXP, LOG, DIGAMMA, GAMMALN = 32, 25, 65, 81


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p)
    p.add_argument("--k", type=int, default=50)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--repeats", type=int, default=3, help="of each pass; the fastest counts")
    p.add_argument("--peer-repeats", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="4,000 documents, once")
    args = p.parse_args()
    if args.quick:
        args.documents, args.repeats = args.documents or 4000, 1
    return args


# --------------------------------------------------------------------------------------- passes
def make(library, args, n_documents, n_jobs):
    """An unfitted model at T = 1."""
    params = {
        "n_components": args.k,
        "batch_size": args.batch_size,
        "total_samples": n_documents,
        "n_jobs": n_jobs,
        "random_state": 0,
    }
    if library == "skvt":
        return TemperedLDA(temperature=None, **params)
    return LatentDirichletAllocation(**params)


def seconds_of_passes(library, args, X, n_cores, repeats):
    """[(seconds, CPU seconds)] of the first two passes of ``partial_fit``, least of the repeats."""
    seconds = []
    with cores(n_cores):
        # starts scikit-learn's worker processes
        make(library, args, X.shape[0], n_cores).partial_fit(X[: 2 * args.batch_size])
        for _ in range(repeats):
            model = make(library, args, X.shape[0], n_cores)
            seconds.append([timed(model.partial_fit, X)[:2] for _ in range(2)])
    progress(f"{library}, {X.dtype}, {n_cores} cores: {seconds}")
    return np.min(seconds, axis=0)


def passes(args, X):
    """The table of passes and its ratios."""
    tokens, table, least = float(X.sum()), [], {}
    for library in ("skvt", "scikit-learn"):
        for dtype in ("float64", "float32"):
            for n_cores in (1, 2):
                repeats = args.repeats if library == "skvt" else args.peer_repeats
                times = seconds_of_passes(library, args, X.astype(dtype), n_cores, repeats)
                least[library, dtype, n_cores] = times
                elsewhere = library == "scikit-learn" and n_cores > 1  # worker processes
                for name, (seconds, cpu) in zip(("first", "second"), times, strict=True):
                    table.append([
                        f"{library}, {dtype}", n_cores, name, f"{seconds:.2f}",
                        "" if elsewhere else f"{cpu:.2f}",
                        f"{X.shape[0] / seconds:,.0f}", f"{tokens * args.k / seconds / 1e6:,.1f}",
                    ])  # fmt: skip
    print_table(
        f"One pass of partial_fit at T = 1, minibatches of {args.batch_size}",
        ["library", "cores", "pass", "seconds", "CPU s", "documents / s", "M tokens x topics / s"],
        table,
    )
    for dtype in ("float64", "float32"):
        print(speed_up(least, dtype))
    # one thread on a free core takes as many seconds as CPU seconds
    idle = max(np.max(times[:, 0] / times[:, 1]) for (_, _, c), times in least.items() if c == 1)
    if idle > 1.1:
        print(
            f"THE MACHINE WAS BUSY: a single thread took up to {idle:.1f} times its CPU seconds. "
            "Ratios by the clock, above all those from 1 to 2 threads, mean nothing."
        )
    print(flush=True)


def speed_up(least, dtype):
    """Lines of ratios, first and second pass."""
    lines = []
    for n_cores in (1, 2):
        mine = least["skvt", dtype, n_cores][:, 0]
        same = least["scikit-learn", dtype, n_cores][:, 0] / mine
        rivals = [
            times[:, 0]
            for (library, _, c), times in least.items()
            if library == "scikit-learn" and c <= n_cores
        ]
        best = np.min(rivals, axis=0) / mine
        lines.append(
            f"skvt {dtype}, {n_cores} cores: {same[0]:.1f}x (first pass), {same[1]:.1f}x (second) "
            f"as fast as scikit-learn at the same precision and cores; {best[0]:.1f}x, "
            f"{best[1]:.1f}x as fast as its fastest with as many"
        )
    cpu = least["scikit-learn", dtype, 1][:, 1] / least["skvt", dtype, 1][:, 1]
    lines.append(f"  by CPU seconds, 1 core: {cpu[0]:.1f}x, {cpu[1]:.1f}x")
    scaling = least["skvt", dtype, 1][:, 0] / least["skvt", dtype, 2][:, 0]
    lines.append(f"  skvt from 1 to 2 threads: {scaling[0]:.2f}x, {scaling[1]:.2f}x")
    return "\n".join(lines)


# ----------------------------------------------------------------------------------- local step
def prepared(model, X, lam, batch_size):
    """(batch, expectation) of each minibatch of X at the topics lam."""
    stats = model.from_topics(lam)
    data = Rows(X, np.ones(X.shape[0]), batch_size)
    batches = [data.batch(model, rows) for rows in data.order()]
    return [
        (batch, model.expectation(stats, batch, serial_map).value(serial_map)) for batch in batches
    ]


def flops_of_sweeps(n_documents, nnz, active, k):
    """Operations of SWEEPS sweeps, the last q(z), the bound and the statistics (docstring)."""
    products = (4 * SWEEPS + 2 + 2) * nnz * k
    table = (EXP + 3) * active * k + active * k
    topics = (SWEEPS + 1) * (DIGAMMA + EXP + 8) * n_documents * k
    bound = (DIGAMMA + GAMMALN + 6) * n_documents * k + (LOG + 4) * nnz
    return products, products + table + topics + bound


def local_step(args, X, lam):
    """The table of the local step on one thread beside the machine's limits."""
    table, limits, k = [], [], args.k
    for dtype in (np.dtype("float64"), np.dtype("float32")):
        peak, dot, triad = peak_flops(dtype), dot_flops(dtype), triad_bytes(dtype)
        limits.append([dtype, f"{peak / 1e9:.1f}", f"{dot / 1e9:.1f}", f"{triad / 1e9:.1f}"])
        prior = np.full(k, 1.0 / k, dtype), np.full(X.shape[1], 1.0 / k, dtype)
        for label, controls in (
            ("until converged", {}),
            (f"{SWEEPS} full sweeps", {"max_doc_update_iter": SWEEPS, "mean_change_tol": 0.0}),
        ):
            model = LDA(*prior, **controls)
            work = prepared(model, X.astype(dtype), lam, args.batch_size)

            def step(model=model, work=work):
                for batch, global_params in work:
                    model.local_step(batch, global_params, 1.0, serial_map)

            step()
            seconds = least_cpu(max(3, args.repeats), step)
            row = [f"{dtype}, {label}", f"{1e6 * seconds / X.shape[0]:.1f}",
                   f"{X.shape[0] / seconds:,.0f}",
                   f"{X.sum() * k / seconds / 1e6:,.0f}"]  # fmt: skip
            if controls:
                active = sum(batch.active.size for batch, _ in work)
                products, flops = flops_of_sweeps(X.shape[0], X.nnz, active, k)
                # rows of the table are gathered once for a document, once for the statistics
                moved = 3.0 * X.nnz * k * dtype.itemsize / seconds
                row += [f"{flops / seconds / 1e9:.2f}", f"{products / flops:.0%}",
                        f"{flops / seconds / peak:.0%}", f"{flops / seconds / dot:.0%}",
                        f"{moved / triad:.0%}"]  # fmt: skip
            else:
                row += [""] * 5
            table.append(row)
    print_table(
        "The machine, one thread",
        ["precision", "registers GFlop/s", "L1 dot products GFlop/s", "triad GB/s"],
        limits,
    )
    print_table(
        "The local step, one thread (products: share of the flops that are sums over topics; the "
        "last three columns: share of the machine's limits)",
        ["local step", "us / document", "documents / s", "M tokens x topics / s", "GFlop/s",
         "products", "of registers", "of L1 dots", "of triad"],
        table,
    )  # fmt: skip


# -------------------------------------------------------------------------------------- threads
@contextmanager
def pinned_workers(n_jobs):
    """Workers whose threads keep to a core each, the calling one among them."""
    allowed = os.sched_getaffinity(0)
    cores = (sorted(allowed)[::-1] * n_jobs)[:n_jobs]
    all_there = threading.Barrier(n_jobs)

    def pin(core):
        all_there.wait()  # so that each thread takes one of the cores
        os.sched_setaffinity(0, {core})  # of the calling thread

    with Workers(n_jobs) as workers:
        workers.run(pin, [(core,) for core in cores])
        try:
            yield workers
        finally:
            os.sched_setaffinity(0, allowed)


def seconds_of_minibatches(model, data, n_jobs):
    """Seconds of each minibatch of a first pass at T = 1."""
    state = State(model.initial(data, np.random.default_rng(0)))
    engine, policy = StochasticInference(RATE), ConstantTemperature().start(None)
    seconds = []
    with pinned_workers(n_jobs) as workers:
        started = time.perf_counter()
        for (batch,) in data.rounds(model, workers, data.order(), whole=True):
            engine.step(model, batch, data.total, state, policy, workers, LocalTotals())
            seconds.append(time.perf_counter() - started)
            started = time.perf_counter()
    return seconds


def seconds_of_arithmetic(n_jobs, task_seconds=5e-4, n_runs=200):
    """Seconds of runs of four tasks of arithmetic in registers, about ``task_seconds`` each."""
    x, c = np.full((4, L1_ELEMENTS), 0.5), np.array([0.25])
    once = min(timed(_polynomials, x[0], c, 20)[0] for _ in range(5)) / 20
    tasks = [(row, c, max(1, int(task_seconds / once))) for row in x]
    with pinned_workers(n_jobs) as workers:
        return [timed(workers.run, _polynomials, tasks)[0] for _ in range(n_runs)]


def first_quartile(seconds):
    """Of each column of runs x minibatches, summed."""
    return np.quantile(np.array(seconds), 0.25, axis=0).sum()


def from_one_thread_to_two(args, X):
    """The table of scalings; needs two cores."""
    table = []
    for dtype in ("float64", "float32"):
        prior = np.full(args.k, 1.0 / args.k, dtype), np.full(X.shape[1], 1.0 / args.k, dtype)
        model = LDA(*prior)
        for batch_size in (args.batch_size, 8 * args.batch_size):
            data = Rows(X.astype(dtype), np.ones(X.shape[0]), batch_size)
            seconds = {1: [], 2: []}
            for _ in range(max(5, args.repeats)):
                for n_jobs, runs in seconds.items():
                    runs.append(seconds_of_minibatches(model, data, n_jobs))
            one, two = (first_quartile(runs) for runs in seconds.values())
            table.append([f"pass, {dtype}, minibatches of {batch_size}", f"{one:.3f}",
                          f"{two:.3f}", f"{one / two:.2f}"])  # fmt: skip
    one, two = (first_quartile([[s] for s in seconds_of_arithmetic(n)]) for n in (1, 2))
    table.append(["arithmetic, tasks of 0.5 ms", f"{one:.4f}", f"{two:.4f}", f"{one / two:.2f}"])
    print_table(
        "From one thread to two", ["work", "1 thread, s", "2 threads, s", "times as fast"], table
    )


def main():
    args = arguments()
    print_header()
    X, _ = load_corpus(args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed)
    print(describe(X), f"\nK = {args.k}; kernels ready in {warm_up(X, args.k, 2):.1f} s\n")
    passes(args, X)
    with cores(1):
        model = make("skvt", args, X.shape[0], 1)
        lam = model.partial_fit(X.astype(float)).partial_fit(X.astype(float)).components_
        local_step(args, X, lam)
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1:
        from_one_thread_to_two(args, X)


if __name__ == "__main__":
    main()
