"""Peak memory of one pass, above the data.

Each library runs in a process of its own that loads the corpus, converts it to the library's
format and loads all code; only then it counts. "Above the data" is the peak during one pass over
what was resident before it. Copies that a fit makes of its input belong to the pass. Linux only.
"""

import json
import subprocess
import sys

import numpy as np
from _common import (
    add_data_arguments,
    cores,
    describe,
    load_corpus,
    parser,
    peak_bytes,
    peers_of,
    print_header,
    print_table,
    progress,
    reset_peak,
    resident_bytes,
    timed,
)
from _peers import gensim_corpus, tomotopy_model, warm_up
from sklearn.decomposition import LatentDirichletAllocation

from skvt import TemperedLDA

LIBRARIES = (
    "skvt float64", "skvt float32", "skvt float64 batch", "skvt float32 partial_fit",
    "skvt float32 moves", "scikit-learn", "gensim", "tomotopy",
)  # fmt: skip


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p, corpus="arxiv_daily")
    p.add_argument("--k", type=int, default=500)
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES[:5])
    p.add_argument("--all", action="store_true", help="all libraries")
    p.add_argument("--limit", type=float, default=2.0, help="GB above the data that are aimed at")
    p.add_argument(
        "--slow-documents", type=int, default=3000,
        help="documents for scikit-learn and gensim, whose pass takes long; what they need "
        "hardly depends on it",
    )  # fmt: skip
    p.add_argument("--quick", action="store_true", help="10,000 documents")
    p.add_argument("--child", metavar="LIBRARY", default=None, help="(used by the script itself)")
    args = p.parse_args()
    if args.all:
        args.libraries = LIBRARIES
    if args.quick:
        args.documents = args.documents or 10_000
    return args


def pass_of(library, args, X):
    """A function that makes one pass; everything it needs is resident when this returns."""
    jobs = {"n_jobs": args.cores, "random_state": 0}
    if library.startswith("skvt"):
        dtype = "float32" if "float32" in library else "float64"
        warm_up(X, 5, args.cores, [dtype])
        # the data in the precision of the fit are the data; X itself stays resident, too
        X = X.astype(dtype)
        method = "batch" if "batch" in library else "online"
        # two passes, with a search for moves in between, or one
        passes = {"temperature": None, "max_iter": 2} if "moves" in library else {"max_iter": 1}
        model = TemperedLDA(args.k, learning_method=method, **passes, **jobs)
        return (model.partial_fit if "partial" in library else model.fit), (X,)
    if library == "scikit-learn":
        X = X[: args.slow_documents].astype(np.float64)
        model = LatentDirichletAllocation(
            args.k, total_samples=X.shape[0], n_jobs=1, random_state=0
        )
        return model.partial_fit, (X,)
    if library == "gensim":
        from gensim.models import LdaModel

        corpus, names = gensim_corpus(X[: args.slow_documents]), range(X.shape[1])
        settings = {"id2word": {v: str(v) for v in names}, "eval_every": None, "random_state": 0}
        return (lambda: LdaModel(corpus, num_topics=args.k, **settings)), ()
    before = resident_bytes()
    model = tomotopy_model(X, args.k, alpha=1.0 / args.k, eta=1.0 / args.k, random_state=0)
    print(f"tomotopy's own documents take {(resident_bytes() - before) / 1e9:.2f} GB",
          file=sys.stderr)  # fmt: skip
    return (lambda: model.train(1, workers=args.cores, show_progress=False)), ()


def measure(library, args):
    """Run in the child: one pass of one library, a line of JSON."""
    X, _ = load_corpus(args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed)
    with cores(args.cores):
        function, arguments_of_it = pass_of(library, args, X)
        before = resident_bytes()
        reset_peak()
        seconds, _, _ = timed(function, *arguments_of_it)
    result = {"before": before, "peak": peak_bytes(), "seconds": seconds}
    print(json.dumps(result))


def child(library):
    """Measure in a fresh process, so that no library sees what another has left."""
    command = [sys.executable, *sys.argv, "--child", library]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode != 0:
        return None
    return json.loads(answer.stdout.splitlines()[-1])


def main():
    args = arguments()
    if args.child:
        measure(args.child, args)
        return
    print_header(*peers_of(args.libraries))
    X, _ = load_corpus(args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed)
    print(describe(X))
    topics = args.k * X.shape[1] * 8 / 1e9
    print(f"K = {args.k}; one copy of the topics takes {topics:.3f} GB in float64\n")
    table, verdicts = [], []
    for library in args.libraries:
        result = child(library)
        if result is None:
            table.append([library, "failed", "", "", ""])
            continue
        above = (result["peak"] - result["before"]) / 1e9
        progress(f"{library}: {above:.2f} GB in {result['seconds']:.0f} s")
        few = library in ("scikit-learn", "gensim")
        n = min(X.shape[0], args.slow_documents) if few else X.shape[0]
        table.append([
            library, f"{n:,}", f"{result['before'] / 1e9:.2f}", f"{above:.2f}",
            f"{result['seconds']:.1f}",
        ])  # fmt: skip
        if library.startswith("skvt"):
            verdict = "below" if above < args.limit else "ABOVE"
            verdicts.append(f"{library}: {above:.2f} GB, {verdict} {args.limit:g} GB")
    print_table(
        f"{args.corpus}, K = {args.k}, one pass, {args.cores} cores (scikit-learn: 1 process)",
        ["library", "documents", "resident before, GB", "peak above it, GB", "seconds"],
        table,
    )
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
