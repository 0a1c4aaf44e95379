"""Results of skvt compared with results that other groups have published.

- ``clusterings``: the adjusted Rand index on Gagolewski's suite (SoftwareX 20, 2022), compared with
  the published labels by Genie, Gaussian mixtures and k-means, which were given the number of
  clusters. Noise points are left out. If a data set has several reference labelings, the highest
  index counts.
- ``genie``: the same for Genie in the installed version of genieclust, by the threshold of its Gini
  index.
- ``bits``: held-out nats per row on binary data sets of the density literature, compared with
  mixtures of Bernoullis (Germain et al., MADE, ICML 2015) and LearnSPN (Gens and Domingos, ICML
  2013).
- ``posts``: the log probability of held-out words of posts with 100 topics, compared with stm in R
  (Roberts, Stewart and Tingley, Journal of Statistical Software 91, 2019). Half of the words of a
  tenth of the posts are held out. The score is the mean over posts of the mean over their words.
- ``stm``: the same for the structural topic model of topica, which is a port of stm.
- ``agreement``: how similar the 15 topics of two fits to all posts from random starts are, compared
  with stm in R, as the documentation of topica reports it. Topics are matched one to one.
"""

import csv
import gzip
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _common import format_mean, parser, print_header, print_progress, print_table, timed
from _peers import list_tokens, reorder_topics
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM, MemoizedDPMixture, StructuredBernoulliMixture, StructuredLDA
from skvt.components import Bernoulli
from skvt.metrics import topic_stability


def clusterings(folder, args):
    """Print the mean adjusted Rand index over all sets, by method."""
    indices, n_right = {}, 0
    for row, X, references, numbers in suite(folder):
        mixture = MemoizedDPGMM(random_state=args.seed).fit(X)
        n_right += mixture.n_clusters_ in numbers
        # For each method, the labels that are compared with each reference.
        answers = {
            "components": [mixture.predict(X)] * len(references),
            'n_clusters="auto"': [mixture.predict(X, n_clusters="auto")] * len(references),
            "number given": [mixture.predict(X, n_clusters=number) for number in numbers],
        }
        for method, answer in answers.items():
            best = max(map(_index, references, answer))
            indices.setdefault(method, []).append(best)
        # The published indices are in the columns from the fourth on.
        for key, method in zip(
            list(row)[3:], ("Genie", "Gaussian mixture", "k-means"), strict=True
        ):
            indices.setdefault(f"{method}, published, number given", []).append(float(row[key]))
        print_progress(
            row["ds"], {method: round(values[-1], 2) for method, values in indices.items()}
        )
    rows = [[method, f"{np.mean(values):.3f}"] for method, values in indices.items()]
    n_sets = len(indices["components"])
    print_table(
        f"Mean adjusted Rand index of {n_sets} sets; a reference number in {n_right}",
        ["method", "index"],
        rows,
    )


def suite(folder):
    """Yield the row of published indices, the points, the references and their numbers of clusters.

    A reference has a label for each point, and 0 for noise.
    """
    with open(folder / "clustering" / "published.csv", encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    for row in published:
        battery = folder / "clustering" / row["battery"]
        X = np.loadtxt(battery / f"{row['ds']}.data.gz", ndmin=2)
        files = sorted(battery.glob(f"{row['ds']}.labels*.gz"))
        references = [np.loadtxt(path, dtype=int) for path in files]
        yield row, X, references, [len(set(y[y > 0].tolist())) for y in references]


def genie(folder, args):
    """Print the mean adjusted Rand index of Genie with the number given, by its threshold."""
    from genieclust import Genie

    thresholds = (0.1, 0.3, 0.5, 0.7)
    indices = []
    for row, X, references, numbers in suite(folder):
        answers = [
            [Genie(number, gini_threshold=g).fit_predict(X) for number in numbers]
            for g in thresholds
        ]
        indices.append([max(map(_index, references, answer)) for answer in answers])
        print_progress(row["ds"], indices[-1])
    means = np.mean(indices, axis=0).tolist()
    rows = [[f"{g:g} for all sets", f"{m:.3f}"] for g, m in zip(thresholds, means, strict=True)]
    rows.append(["the best for each set", f"{np.max(indices, axis=1).mean():.3f}"])
    print_table(f"Genie, {len(indices)} sets, number given", ["threshold", "index"], rows)


def _index(labels, predicted):
    """Return the adjusted Rand index of the points that are not noise."""
    return adjusted_rand_score(labels[labels > 0], predicted[labels > 0])


def bits(folder, args):
    """Print held-out nats per row of the binary data sets."""
    published = {
        "mushrooms": "-14.46 (mixture of Bernoullis)",
        "nltcs": "-6.11 (LearnSPN)",
        "plants": "-12.98 (LearnSPN)",
    }
    mixture = partial(MemoizedDPMixture, random_state=args.seed)
    fits = {
        "MemoizedDPMixture": lambda: mixture(components=[("bits", Bernoulli(), slice(None))]),
        "MemoizedDPMixture, prior 1": lambda: mixture(
            components=[("bits", Bernoulli(1.0), slice(None))]
        ),
        "StructuredBernoulliMixture": lambda: StructuredBernoulliMixture(random_state=args.seed),
    }
    rows = []
    for name in published:
        parts = []
        for part in ("train", "test"):
            with gzip.open(folder / "bits" / f"{name}.{part}.csv.gz", "rt") as file:
                parts.append(np.loadtxt(file, delimiter=","))
        train, test = parts
        for method, make in fits.items():
            _, cpu, model = timed(make().fit, train[: args.rows])
            score = f"{model.score(test):.2f}"
            print_progress(name, method, score, f"{cpu:.1f} CPU s")
            rows.append([name, method, score, published[name], f"{cpu:.1f}"])
    print_table(
        f"Held-out nats a row, at most {args.rows:,} training rows",
        ["set", "method", "ours", "published", "CPU s"],
        rows,
    )


def posts(folder, args):
    """Print the score of held-out words of posts by StructuredLDA."""
    scores, seconds = [], []
    for seed, seen, rows, held_out in splits_of_posts(folder, args.splits):
        _, cpu, lda = timed(StructuredLDA(100, random_state=seed).fit, seen)
        topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
        scores.append(score_posts(lda.transform(seen[rows]) @ topics, held_out))
        seconds.append(cpu)
        print_progress(f"split {seed}: {scores[-1]:.3f}, {cpu:.1f} CPU s")
    print_table(
        f"Posts, 100 topics, {args.splits} splits",
        ["method", "held-out nats a word", "CPU s"],
        [
            ["StructuredLDA", format_mean(scores, 3), format_mean(seconds, 1)],
            ["stm, published", "-6.81", "858"],
        ],
    )


def stm(folder, args):
    """Print the score of held-out words of posts by topica's STM.

    Its prior depends on the rating and the day of a post.
    """
    import pandas as pd
    import topica

    meta = pd.read_csv(folder / "poliblog5k" / "meta.csv")
    options = {"formula": "~ rating + s(day)", "data": meta, "num_threads": 1}
    scores, seconds = {"mode": [], "mean": []}, []
    for seed, seen, rows, held_out in splits_of_posts(folder, args.splits):
        corpus = topica.Corpus.from_documents(list_tokens(seen))
        _, cpu, model = timed(topica.STM(100, seed=seed).fit, corpus, **options)
        topics = reorder_topics(np.asarray(model.topic_word), model.vocabulary, seen.shape[1])
        shares = {"mode": model.doc_topic, "mean": model.posterior_doc_topic()}
        for name, values in shares.items():
            scores[name].append(score_posts(np.asarray(values)[rows] @ topics, held_out))
        seconds.append(cpu)
        print_progress(f"split {seed}: {scores['mean'][-1]:.3f}, {cpu:.1f} CPU s")
    print_table(
        f"Posts, 100 topics, {args.splits} splits",
        ["method", "held-out nats a word", "CPU s"],
        [
            [
                f"topica's STM, posterior {name} of shares",
                format_mean(values, 3),
                format_mean(seconds, 1),
            ]
            for name, values in scores.items()
        ],
    )


def agreement(folder, args):
    """Print the similarity of the topics of pairs of fits to the posts from random starts.

    Each pair has two fits of its own, so that the pairs are independent.
    """
    import pandas as pd
    import topica

    X = sp.csr_array(sp.load_npz(folder / "poliblog5k" / "counts.npz")).astype(np.int64)
    corpus = topica.Corpus.from_documents(list_tokens(X))
    meta = pd.read_csv(folder / "poliblog5k" / "meta.csv")
    options = {"formula": "~ rating + s(day)", "data": meta, "num_threads": 1}

    def fit_structured(seed):
        """Return the CPU seconds and the topics of a fit of StructuredLDA."""
        _, cpu, lda = timed(StructuredLDA(15, random_state=seed).fit, X)
        return cpu, lda.components_ / lda.components_.sum(axis=1, keepdims=True)

    def fit_stm(seed):
        """Return the CPU seconds and the topics of a fit of topica's STM."""
        model = topica.STM(15, seed=seed, init="random")
        _, cpu, model = timed(model.fit, corpus, **options)
        return cpu, reorder_topics(np.asarray(model.topic_word), model.vocabulary, X.shape[1])

    rows = []
    for name, fit, n_pairs in (
        ("StructuredLDA", fit_structured, args.pairs),
        ("topica's STM, random start", fit_stm, args.peer_pairs),
    ):
        similarities, overlaps, seconds = [], [], []
        for pair in range(n_pairs):
            (cpu, A), (other_cpu, B) = fit(2 * pair), fit(2 * pair + 1)
            similarities.append(compare_topics(A, B))
            overlaps.append(topic_stability([A, B]))
            seconds += [cpu, other_cpu]
            print_progress(f"{name}, pair {pair}: {similarities[-1]:.3f}, {overlaps[-1]:.3f}")
        texts = [format_mean(similarities, 2), format_mean(overlaps, 2), format_mean(seconds, 1)]
        rows.append([name, str(n_pairs), *texts])
    rows.append(["stm from random starts, published", "1", "0.68", "-", "-"])
    print_table(
        "Posts, 15 topics, pairs of random starts",
        ["method", "pairs", "cosine", "shared mass", "CPU s"],
        rows,
    )


def compare_topics(A, B):
    """Return the mean cosine of matched topics, the rows of A and B (K, V).

    As in topica's comparison, each topic of A gets the most similar topic of B that is still free,
    and topics of A with a large cosine choose first.
    """
    A, B = (topics / np.linalg.norm(topics, axis=1, keepdims=True) for topics in (A, B))
    cosines = A @ B.T
    is_free, chosen = np.ones(len(B), dtype=bool), []
    for k in np.argsort(-cosines.max(axis=1)):
        best = np.argmax(np.where(is_free, cosines[k], -1.0))
        is_free[best] = False
        chosen.append(cosines[k, best])
    return np.mean(chosen)


def splits_of_posts(folder, number):
    """Yield seed, counts of seen words, rows of posts with held-out words, and the held-out words.

    The held-out words of a post are an array of word numbers, one for each token.
    """
    X = sp.csr_array(sp.load_npz(folder / "poliblog5k" / "counts.npz")).astype(np.int64)
    for seed in range(number):
        rng = np.random.default_rng(seed)
        seen, held_out = X.tolil(), []
        rows = np.sort(rng.choice(X.shape[0], X.shape[0] // 10, replace=False))
        for row in rows.tolist():
            post = X[[row]]
            tokens = np.repeat(post.indices, post.data)
            hidden = rng.choice(tokens.size, tokens.size // 2, replace=False)
            held_out.append(tokens[hidden])
            seen[row] = np.bincount(np.delete(tokens, hidden), minlength=X.shape[1])
        yield seed, sp.csr_array(seen), rows, held_out


def score_posts(probabilities, held_out):
    """Return the mean over posts of the mean log probability of a held-out word.

    ``probabilities`` (n, V) has the probability of each word in each post.
    """
    posts = zip(np.log(probabilities), held_out, strict=True)
    return np.mean([log_probabilities[words].mean() for log_probabilities, words in posts])


PARTS = {
    "clusterings": clusterings,
    "genie": genie,
    "bits": bits,
    "posts": posts,
    "stm": stm,
    "agreement": agreement,
}
# Other packages whose versions the header prints.
PACKAGES = {"genie": ["genieclust"], "stm": ["topica"], "agreement": ["topica"]}


def main():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("part", choices=PARTS)
    p.add_argument("--data", required=True, metavar="PATH", help="folder of the data")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--splits", type=int, default=3, help="splits of the posts")
    p.add_argument("--pairs", type=int, default=5, help="pairs of fits for the agreement")
    p.add_argument("--peer-pairs", type=int, default=2, help="the same, for topica's STM")
    p.add_argument("--rows", type=int, default=5000, help="most training rows of bits")
    args = p.parse_args()
    print_header(args, *PACKAGES.get(args.part, []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PARTS[args.part](Path(args.data), args)


if __name__ == "__main__":
    main()
