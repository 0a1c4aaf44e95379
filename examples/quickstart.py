"""Topics of the documentation of NumPy, SciPy and scikit-learn, compared with scikit-learn's LDA.

Fits the same model with both libraries to a corpus that is part of skvt, with an equal number of
passes. Scores both on held-out words in the same way. Writes ``quickstart.png``, which shows the
bound and the temperature after each pass. Takes less than a minute on two cores.
"""

import argparse
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from skvt import TemperedLDA
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.metrics import document_completion_score
from skvt.plotting import ELBODisplay, TemperatureDisplay

N_TOPICS, N_SHOWN, N_PASSES, SEED = 30, 12, 10, 0


def timed_fit(model, X):
    """Fit the model and return the seconds."""
    started = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - started


def main():
    """Load the texts, fit both models, compare them and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", default="quickstart.png", help="where to save the figure")
    figure = parser.parse_args().figure

    corpus = load_docstrings()
    vectorizer = CountVectorizer(
        stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.3, token_pattern=r"[a-z]{3,}"
    )
    X = vectorizer.fit_transform(corpus.data)
    train, test = train_test_split(X, test_size=500, random_state=SEED)
    print(f"{X.shape[0]} docstrings, {X.shape[1]} words, {X.sum()} tokens; 500 held out")

    common = dict(
        n_components=N_TOPICS,
        learning_method="online",
        max_iter=N_PASSES,
        n_jobs=2,
        random_state=SEED,
    )
    ours = TemperedLDA(**common, verbose=1)
    # The first fit of an installation compiles the code. It makes all passes, because the moves of
    # later passes have compiled code, too.
    compile_seconds = timed_fit(TemperedLDA(**common), train[:200])
    print(f"compiled loops ready after {compile_seconds:.1f} s")
    seconds = timed_fit(ours, train)
    theirs = LatentDirichletAllocation(**common)
    their_seconds = timed_fit(theirs, train)

    print("\nheld-out log predictive probability, nats per word (higher is better)")
    for name, model, spent in [
        ("skvt.TemperedLDA", ours, seconds),
        ("sklearn LatentDirichletAllocation", theirs, their_seconds),
    ]:
        score = document_completion_score(model.components_, test, doc_topic_prior=1.0 / N_TOPICS)
        print(f"  {name:35s} {score:8.4f}  fitted in {spent:5.1f} s")

    print(f"\nthe {N_SHOWN} largest of {N_TOPICS} topics: share of all words, and first words")
    share = ours.transform(train).sum(axis=0)
    topics = ours.top_words(9, vectorizer.get_feature_names_out())
    for k in np.argsort(-share)[:N_SHOWN]:
        print(f"  {share[k] / share.sum():5.1%}  {' '.join(topics[k])}")

    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    ELBODisplay.from_estimator(ours, ax=left)
    TemperatureDisplay.from_estimator(ours, ax=right, line_kw={"color": "tab:red"})
    fig.savefig(figure, dpi=120)
    print(f"\nfigure saved as {figure}")
    print("next: your own texts, under 'Topics of texts' in README.md; skvt.topic_table lists all")
    print("topics with typical texts, and skvt.topic_explorer writes a page to browse them")


if __name__ == "__main__":
    main()
