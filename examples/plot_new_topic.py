"""
Does a stream have a new topic?
===============================

Documents arrive each month, and from the seventh month on some of them have a new topic.
``MemoizedHDP`` finds this topic in the month in which it appears, and hardly changes the old
topics. ``topic_ids_`` identifies each topic over the months. The number of topics is not given to
the model.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvt import MemoizedHDP
from skvt.datasets import make_topic_corpus

truth = make_topic_corpus(1, n_components=13, n_features=500, random_state=0).topics
parameters = dict(mean_length=80, doc_topic_prior=0.1)
before = make_topic_corpus(6 * 300, topics=truth[:12], random_state=1, **parameters).X
after = make_topic_corpus(4 * 300, topics=truth, random_state=2, **parameters).X
months = [before[start : start + 300] for start in range(0, 1800, 300)]
months += [after[start : start + 300] for start in range(0, 1200, 300)]

# %%
# Each month is a batch. The model stores statistics of a batch, not its documents.

hdp = MemoizedHDP(random_state=0)
shares, topics = [], []
for number, month in enumerate(months):
    hdp.partial_fit(month, batch_id=number)
    ids = hdp.topic_ids_.tolist()
    lengths = np.asarray(month.sum(axis=1)).ravel()
    share = lengths @ hdp.transform(month) / lengths.sum()
    shares.append(dict(zip(ids, share, strict=True)))
    probabilities = hdp.components_ / hdp.components_.sum(axis=1, keepdims=True)
    topics.append(dict(zip(ids, probabilities, strict=True)))

# %%
# Is the latest topic the new one? It first appears in the seventh month. The printed distances are
# total variations between word distributions, from 0 to 1. The latest topic is near the true new
# topic, and the old topics have changed little. The picture shows the share of each topic in the
# words of a month.

newest = max(shares[-1])
assert newest not in shares[5] and newest in shares[6]
distance = 0.5 * np.abs(topics[-1][newest] - truth[12]).sum()
moved = max(0.5 * np.abs(topics[-1][k] - topics[5][k]).sum() for k in topics[5])
print(f"distance from the true new topic: {distance:.2f}; of old topics, at most: {moved:.2f}")

fig, axes = plt.subplots(figsize=(7, 4), num="stream", layout="constrained")
for k in sorted(shares[-1]):
    style = dict(color="C3", lw=2.5, label="found in month 7") if k == newest else dict(color="0.7")
    axes.plot(range(1, 11), [month.get(k, np.nan) for month in shares], **style)
axes.axvline(6.5, color="0.5", ls=":")
axes.set(xlabel="month", ylabel="share of the tokens", ylim=(0, None))
axes.legend()
plt.show()
