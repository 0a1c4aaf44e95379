"""
A new topic in a stream
=======================

Documents come by the month. From the seventh month on, some of them have a topic that there was not
before. ``MemoizedHDP`` finds it in the month in which it appears, and leaves the old topics where
they are: ``topic_ids_`` say which is which. Nobody said how many topics there are.
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
# Each month is a batch of its own. What is remembered of it are statistics, not documents.

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
# The share of each topic in the tokens of a month. The last to be born was born in the seventh, and
# its words are those of the topic that was new.

newest = max(shares[-1])
assert newest not in shares[5] and newest in shares[6]
distance = 0.5 * np.abs(topics[-1][newest] - truth[12]).sum()
moved = max(0.5 * np.abs(topics[-1][k] - topics[5][k]).sum() for k in topics[5])
print(f"from the truth, the new topic: {distance:.2f}; an old topic moved by at most {moved:.2f}")

fig, axes = plt.subplots(figsize=(7, 4), num="stream", layout="constrained")
for k in sorted(shares[-1]):
    style = dict(color="C3", lw=2.5, label="born in month 7") if k == newest else dict(color="0.7")
    axes.plot(range(1, 11), [month.get(k, np.nan) for month in shares], **style)
axes.axvline(6.5, color="0.5", ls=":")
axes.set(xlabel="month", ylabel="share of the tokens", ylim=(0, None))
axes.legend()
plt.show()
