"""
Tutorial: a model behind an API
===============================

.. index:: ! latency, ! deployment, ! production

From a fitted pipeline to a service: files without pickle, a first call that is not slow, the time
of one row, threads. The texts are docstrings of NumPy, SciPy and scikit-learn.
"""

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

import skvt
from skvt.datasets import load_docstrings

texts = load_docstrings().data
folder = Path(tempfile.mkdtemp())

# %%
# Where the model is fitted
# -------------------------
#
# ``skvt.save`` writes numbers and text alone: who reads the file runs nothing of it. The vectorizer
# is its parameters and its vocabulary, as JSON.

how = dict(token_pattern="[a-z]{3,}", stop_words="english")
vectorizer = CountVectorizer(min_df=5, max_df=0.3, **how)
X = vectorizer.fit_transform(texts)
lda = skvt.TemperedLDA(n_components=20, random_state=0).fit(X)
words = vectorizer.get_feature_names_out().tolist()
skvt.save(lda, folder / "topics.skvt")
(folder / "vectorizer.json").write_text(json.dumps(how | {"vocabulary": words}))
sizes = {path.name: f"{path.stat().st_size / 1e3:.0f} kB" for path in sorted(folder.iterdir())}
print(sizes)

# %%
# In the worker
# -------------
#
# Load once for each process, not for each request, and make one call before the first request
# comes: it loads the compiled loops. Containers without a writable home set ``NUMBA_CACHE_DIR`` to
# a folder that stays, so that loops are compiled once for the image and not once for the process.


def load_model():
    """The vectorizer and the model, warm."""
    vectorizer = CountVectorizer(**json.loads((folder / "vectorizer.json").read_text()))
    model = skvt.load(folder / "topics.skvt")
    model.transform(vectorizer.transform(["warm up"]))
    return vectorizer, model


worker_vectorizer, model = load_model()


def answer(text):
    """The shares of the topics of one text."""
    return model.transform(worker_vectorizer.transform([text]))[0]


np.testing.assert_array_equal(answer(texts[0]), lda.transform(X[[0]])[0])

# %%
# The time of one row
# -------------------
#
# Most of it is the same for one row and for a hundred: where requests come in crowds, gather them.

milliseconds = []
for text in texts[:300]:
    start = time.perf_counter()
    answer(text)
    milliseconds.append(1e3 * (time.perf_counter() - start))
start = time.perf_counter()
together = model.transform(X[:300])
each = 1e3 * (time.perf_counter() - start) / 300

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.hist(milliseconds, bins=np.geomspace(0.05, 50.0, 40))
ax.axvline(each, color="C3", label="each of 300 rows in one call")
ax.set(xscale="log", xlabel="milliseconds a text, on the machine that built this page",
       ylabel="texts")  # fmt: skip
ax.margins(y=0.3)  # room for the legend
ax.legend()
plt.show()

# %%
# Threads
# -------
#
# ``predict``, ``transform`` and ``score`` change nothing of the estimator: threads share one model,
# and get the same answers to the last bit. ``n_jobs=None`` is one thread for a call, which is right
# where the server has threads of its own.

with ThreadPoolExecutor(4) as threads:
    answers = list(threads.map(answer, texts[:300]))
print("the same answers:", np.array_equal(answers, [answer(text) for text in texts[:300]]))

# %%
# What comes in from outside
# --------------------------
#
# Texts without known words get the prior's shares: tell the caller. Rows of the wrong width or with
# NaN raise a ``ValueError`` that can be shown as it is.

counts = worker_vectorizer.transform(["lorem ipsum dolor", "eigenvalues of a matrix"])
print("words that the model knows:", np.asarray(counts.sum(axis=1)).ravel().tolist())
try:
    model.transform(counts[:, :10])
except ValueError as error:
    print(error)
