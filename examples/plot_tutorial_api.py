"""
Tutorial: how do you serve a model behind an API?
=================================================

.. index:: ! latency, ! deployment, ! production

Save the model to a file without pickle, load it once in each process, and call it from as many
threads as you like. The tutorial also shows how to avoid a slow first request, how long one text
takes, and what happens with bad input. The texts are docstrings of NumPy, SciPy and scikit-learn.
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
# ``skvt.save`` writes only numbers and text, so that loading a file never runs code from it. The
# vectorizer is saved as JSON, with its parameters and its vocabulary.

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
# Load the model once for each process, not for each request. Make one call before the first request
# arrives, because the first call loads the compiled code and is slow. In a container without a
# writable home directory, set ``NUMBA_CACHE_DIR`` to a folder of the image, so that the code is not
# compiled again in each process.


def load_model():
    """Return the vectorizer and the model, after a first call."""
    vectorizer = CountVectorizer(**json.loads((folder / "vectorizer.json").read_text()))
    model = skvt.load(folder / "topics.skvt")
    model.transform(vectorizer.transform(["warm up"]))
    return vectorizer, model


worker_vectorizer, model = load_model()


def answer(text):
    """Return the shares of the topics in one text."""
    return model.transform(worker_vectorizer.transform([text]))[0]


np.testing.assert_array_equal(answer(texts[0]), lda.transform(X[[0]])[0])

# %%
# The time of one row
# -------------------
#
# How long does a request take? The histogram has the milliseconds of 300 calls for one text each.
# The red line is the time per row of one call for the same 300 rows.

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
ax.margins(y=0.3)  # The legend needs space.
ax.legend()
plt.show()

# %%
# A call for one text takes longer than a row in a large call, because most of the time of a call
# does not depend on the number of rows. If many requests arrive at once, answer them in one call.
#
# Threads
# -------
#
# Can threads share a model? Yes: ``predict``, ``transform`` and ``score`` do not change the
# estimator, and each thread gets exactly the same answers as a single one. The default,
# ``n_jobs=None``, uses one thread for each call. This is right for a server that has several
# threads.

with ThreadPoolExecutor(4) as threads:
    answers = list(threads.map(answer, texts[:300]))
print("the same answers:", np.array_equal(answers, [answer(text) for text in texts[:300]]))

# %%
# What comes in from outside
# --------------------------
#
# What happens if a text has no word that the model knows? It gets the shares of the prior, which
# say nothing about the text, so tell the caller. Rows with the wrong number of columns or with NaN
# raise a ``ValueError`` whose text you can show to the caller. For a mixture of a table,
# :doc:`/guide/files` has a function that answers records, of which some values may be missing.

counts = worker_vectorizer.transform(["lorem ipsum dolor", "eigenvalues of a matrix"])
print("words that the model knows:", np.asarray(counts.sum(axis=1)).ravel().tolist())
try:
    model.transform(counts[:, :10])
except ValueError as error:
    print(error)

# %%
# The first text has no known word, and the second one has two.
