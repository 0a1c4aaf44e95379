"""
Tutorial: what did a parliament talk about, and what has changed?
=================================================================

.. index:: ! years; topics, ! parties; topics, ! speeches

Which subjects have become more frequent in the House of Commons since 1989, and which belong to a
party? The corpus has 797 speeches of members of the three largest parties, with the date, the party
and the speaker. They are a random sample of ParlSpeech V2 (Rauh and Schwalbach, 2020), which is in
the public domain; ``examples/data/SOURCE.md`` says what was left out. The tutorial ends with a page
to hand on.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from skvt import StructuredLDA, covariate_effects, topic_table
from skvt.plotting import EffectsDisplay, topic_explorer

# %%
# **Read, and count words.** Words of parliamentary habit ("my right honourable friend") say nothing
# about the subject, so they are left out like other stop words.

speeches = pd.read_csv(Path(sys.argv[0]).parent / "data" / "house_of_commons.csv.xz")
speeches["year"] = speeches["date"].str[:4].astype(int)
print(speeches[["date", "party", "speaker", "text"]].head(3).to_string(max_colwidth=40))
HABITS = """
    agree answer ask asked believe bill case clause come committee constituency country
    debate does ensure friend gentleman gentlemen going good government great hon
    honourable hope house important issue just know lady learned let like look lord make
    making matter matters member members minister ministers mr new number opposition order
    people place point question right said say secretary shall sir speaker state statement
    sure take taken tell thank thing think time today want way work year years
""".split()
vectorizer = CountVectorizer(
    stop_words=sorted(ENGLISH_STOP_WORDS.union(HABITS)), min_df=5, max_df=0.3,
    token_pattern="[a-z]{3,}",
)  # fmt: skip
X = vectorizer.fit_transform(speeches["text"])
has_words = X.getnnz(axis=1) > 0
X, speeches = X[has_words], speeches[has_words]

# %%
# **Fit, several times.** With few texts, another random start can end in other topics. Four fits
# take seconds, and the intervals below include their differences.

words = vectorizer.get_feature_names_out()
fits = [StructuredLDA(10, random_state=seed).fit(X).set_words(words) for seed in range(4)]
lda = fits[0]
print(topic_table(lda, X)[["label", "share", "n_rows"]].round(3).to_string())

# %%
# **What has changed, and who speaks of what?** The effect of a year is the change of a topic's
# share from one year to the next, and that of a party is the difference from the Conservatives, the
# party that is first in the alphabet; both are in percentage points here. Speeches of one member
# resemble each other, which ``cluster`` accounts for. The rows below are the effects whose interval
# excludes zero. ``same_sign`` counts the fits that agree on the sign, and ``between_fits`` is the
# share of the variance that comes from the random start.

covariates = speeches[["party", "year"]]
settings = {"cluster": speeches["speaker"], "random_state": 0}
effects = covariate_effects(fits, X, covariates, **settings)
effects[["effect", "low", "high"]] *= 100


def clear(table):
    """Return the rows of a table of effects whose interval excludes zero."""
    return table[((table["low"] > 0) | (table["high"] < 0)) & (table["term"] != "Intercept")]


shown = ["label", "term", "effect", "low", "high", "between_fits", "same_sign"]
print(clear(effects)[shown].round(2).to_string(index=False))

# %%
# **Would one fit have been enough?** It would have claimed more:

alone = covariate_effects(lda, X, covariates, **settings)
print(len(clear(alone)), "effects by one fit,", len(clear(effects)), "by four fits")

# %%
# With 800 short speeches, a large part of the uncertainty is which topics a fit finds. The curves
# are the shares predicted for the Conservatives, and the bands are 95 % intervals that include the
# differences between the fits.

at = pd.DataFrame({"party": "Con", "year": np.arange(1989, 2020, 3)})
fig, ax = plt.subplots(figsize=(10, 5), layout="constrained", num="years")
EffectsDisplay.from_estimator(fits, X, covariates, at=at, effects_kw=settings, ax=ax, n_columns=5)
plt.show()

# %%
# **What does a topic mean?** Read speeches before you name it. These begin the three that have most
# of the topic that grew most clearly.

trend = effects[effects["term"] == "year"].set_index("topic")["low"]
row = topic_table(lda, X, texts=speeches["text"].tolist()).loc[trend.idxmax()]
print(row["label"])
for text in row["texts"]:
    print("-", text[:120], "...")

# %%
# **A page for others**: one file with a map of the topics, their words, typical speeches, and
# shares by period.

page = Path(tempfile.mkdtemp()) / "speeches.html"
period = pd.cut(
    speeches["year"], [1988, 1996, 2009, 2019], labels=["1989-96", "1997-2009", "2010-19"]
)
topic_explorer(lda, X, path=page, texts=speeches["text"].tolist(), groups=period)
print(f"{page.stat().st_size / 1000:.0f} kB")
